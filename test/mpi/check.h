/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One checked call of MPI_Allreduce, and what the mpirun tests share around it: arguments, seed, memory with
 * guard zones, the component's counters, the closing line "NAME: N passed, M failed".
 * Uses nothing but MPI, ref.h and mem.h, so the tests run with any MPI library.
 */
#ifndef TEST_MPI_CHECK_H
#define TEST_MPI_CHECK_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "test/mpi/mem.h"
#include "test/mpi/ref.h"

#define CHECK_KINDS MEM_COUNT
#define CHECK_GUARD 64 /* bytes before and behind a buffer that must stay as they are */

/* The exit status by which a test says that it cannot run here (Automake's). */
#define CHECK_SKIPPED 77

typedef struct {
    unsigned char *p; /* memory of some kind */
    size_t size;
} check_buf_t;

/* What one thread needs to check calls.  Owned by check_start and check_end. */
typedef struct {
    const char *name;
    MPI_Comm world;   /* results are collected over it, at its rank 0 */
    int rank, nranks; /* there */
    check_buf_t send[CHECK_KINDS], recv[CHECK_KINDS];
    unsigned char *image[3]; /* host copies: sent, expected outside of the result, received */
    unsigned char *want;
    long double *tol;
    size_t room, tol_room; /* of each image, of tol */
    unsigned char *wrong;  /* one byte a call since the last collection */
    size_t calls, calls_room;
    long passed, failed; /* at rank 0 of world */
    int printed;         /* failures printed by this rank */
} check_t;

typedef struct {
    MPI_Comm comm;         /* an intracommunicator, or see `contribute` */
    const ref_case_t *c;   /* c->nranks: contributions to the result */
    int contribute;        /* our number among them; -1: our rank in comm */
    const ref_case_t *own; /* what we send, NULL: c (they differ in an intercommunicator) */
    uint64_t first;        /* first element */
    size_t count;
    bool in_place;
    int skind, rkind;       /* memory of the two buffers; in place only rkind counts */
    size_t soff, roff;      /* bytes behind a 256-byte boundary */
    const void *want;       /* the result where the caller knows it already, else NULL */
    const long double *tol; /* with want */
} check_call_t;

/* MPI_Init_thread(level), mem_init and ref_init.  Prints the seed.  Ends the process where memory or device are
 * not there.  Returns the level of thread support. */
int check_init(int *argc, char ***argv, const char *name, int level);
/* ref_fini, mem_fini and MPI_Finalize; returns the exit status for `failed`, alike on every rank.  1 also where
 * the thread's current GPU context is not what it was after check_init.  After the last check_end. */
int check_fini(long failed);

/* "--name value", "--name=value": the value, or NULL.  Exits with a message where the value is missing. */
const char *check_option(const char *name);
/* The same for a number, suffixes k, m, g (powers of 1024); `otherwise` without the option. */
uint64_t check_number(const char *name, uint64_t otherwise);
/* "--name" alone. */
bool check_flag(const char *name);
/* --trace was given: every call is to be printed before it is made. */
bool check_trace(void);
/* After all options were asked for: exits with a message where an argument was not used. */
void check_arguments_end(const char *usage);
/* --seed, else GPUSYM_TEST_SEED of the environment, else a fresh one, the same on every rank. */
uint64_t check_seed(void);

/* The kinds of memory to test: --kinds, else all that this device has; returns how many. */
int check_kinds(int kinds[CHECK_KINDS]);
/* Whether buffers of this kind reach the GPU's kernels at once: the native counter rises.  Collective over
 * MPI_COMM_WORLD, or over comm; the same answer on all ranks. */
bool check_native(int kind);
bool check_native_on(int kind, MPI_Comm comm);
/* The same of calls with that type and operation. Not of MPI_INT and MPI_SUM alone, as the others. */
bool check_native_case(int kind, const ref_case_t *c);

/* What this MPI library's own reduction makes of (type, op), found by MPI_Reduce_local.  Calls on host memory and
 * staged calls end there, so they are tested only with what it can do; native calls are tested with everything.
 * Some releases saturate small integers (open-mpi/ompi#8045), some take MPI_UNSIGNED_LONG for a signed type. */
enum check_library {
    CHECK_LACKS,     /* refuses: the pair cannot be tested */
    CHECK_WRONG,     /* wrong results: only native calls */
    CHECK_SATURATES, /* right as long as nothing overflows */
    CHECK_RIGHT
};
enum check_library check_library(const ref_type_t *type, const ref_op_t *op);
/* Sets c->overflow; false: this case must be left out. */
bool check_prepare(ref_case_t *c, bool native);

void check_start(check_t *t, const char *name, MPI_Comm world);
/* Prepares buffers, calls MPI_Allreduce, verifies every byte.  Every rank of call->comm calls it. */
void check_run(check_t *t, const check_call_t *call);
/* In the place of check_run or check_result on a rank that takes no part. */
void check_absent(check_t *t);
/* A check of another kind: one call in the tally; a rank where !right has printed why. */
void check_result(check_t *t, bool right);
/* Frees the buffers, so that the next call has new ones. */
void check_forget(check_t *t);
/* Collective over t->world: calls so far are added up; one wrong on any rank has failed. */
void check_collect(check_t *t);
/* check_collect, frees; returns failed at every rank.  Prints nothing. */
long check_end(check_t *t);
/* "NAME: N passed, M failed" from rank 0 of MPI_COMM_WORLD. */
void check_print(const char *name, long passed, long failed);

/* The component's counters, by MPI_T.  False if this MPI library has no such variable. */
enum check_counter { CHECK_NATIVE, CHECK_STAGED, CHECK_FORWARDED };
bool check_counter(enum check_counter which, unsigned long long *value);
/* The same of another collective, "allgather". Call it in one thread. */
bool check_counter_of(const char *coll, enum check_counter which, unsigned long long *value);

#endif
