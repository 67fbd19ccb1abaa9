/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Tuner plug-ins: a shared library of yours chooses algorithms in place of gpusym's tuning table.
 *
 * A plug-in defines `gpusym_tuner`, and is named by the parameter coll_gpusym_tuner, a path or a name for dlopen().
 * Every rank loads it; that of rank 0 of a communicator is asked, in the communicator's first call of each collective,
 * type, operation and size class, and its answer is sent to the other ranks and kept. What the user forces (parameters,
 * info keys) goes before an answer; what an answer leaves open, or cannot be, is chosen by rules and the tuning table.
 *
 * All pointers that a function is given are gpusym's, and valid until it returns. Functions are called inside MPI
 * calls, of any thread, of one communicator one at a time; they must not call MPI or wait for other processes.
 */
#ifndef GPUSYM_TUNER_H
#define GPUSYM_TUNER_H

#include <stdint.h>

/* The version of these structs. A plug-in of another version is not used. */
#define GPUSYM_TUNER_VERSION 1

/* A communicator, whose ranks are on one host and have a GPU each. */
typedef struct {
    const char *name;            /* in messages, "MPI_COMM_WORLD (cid 0)" */
    const char *gpu;             /* of rank 0, "NVIDIA H200" */
    uint32_t ranks;              /* 2 to 32 */
    uint32_t compute_capability; /* of that GPU, 90 is 9.0; 0: the simulator */
    uint32_t multiprocessors;    /* of the smallest GPU */
    uint32_t nvlink;             /* 1: each two GPUs have an NVLink; 0: not */
    uint32_t max_blocks;         /* of a launch */
} gpusym_tuner_comm_t;

/* Calls of one collective, type, operation and size class. */
typedef struct {
    const char *collective;        /* "allreduce" */
    const char *type;              /* "f32"; "u8" where bytes are moved */
    const char *op;                /* "sum"; NULL where nothing is reduced */
    uint64_t bytes_min, bytes_max; /* of the message, as MPI users count it: from a power of two to below the next */
    const char *const *algorithms; /* those that gpusym has for it, docs/algorithms.md; NULL behind them */
} gpusym_tuner_call_t;

/* An answer. All zero: the table chooses. */
typedef struct {
    const char
        *algorithm;   /* one of the call's; NULL: the table's. The plug-in's, read when the function has returned */
    uint32_t blocks;  /* of a launch, at most the communicator's max_blocks; 0: as the table has it */
    uint32_t threads; /* of a block, a multiple of 32 up to 512; 0: likewise */
    uint32_t chunk;   /* bytes that a block takes at a time, at most 64 MiB; 0: likewise */
} gpusym_tuner_choice_t;

/* The plug-in. Functions return 0; anything else is an error, whereupon the table chooses. */
typedef struct {
    uint32_t version; /* GPUSYM_TUNER_VERSION */
    const char *name; /* the same on all ranks; in messages */
    /* On rank 0 of a communicator, before it is asked. Sets *context, which the others get. NULL: there is nothing to
     * do. After an error the plug-in is not asked for this communicator. */
    int (*init)(const gpusym_tuner_comm_t *comm, void **context);
    /* Fills in the choice, which is all zero. */
    int (*choose)(void *context, const gpusym_tuner_call_t *call, gpusym_tuner_choice_t *choice);
    /* When the communicator is freed, if init returned 0. NULL: there is nothing to do. */
    void (*finalize)(void *context);
} gpusym_tuner_t;

/* Yours to define. */
#ifdef __cplusplus
extern "C"
#else
extern
#endif
    const gpusym_tuner_t gpusym_tuner;

#endif
