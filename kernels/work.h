/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The work descriptor: everything one kernel launch needs, passed by value.
 * Shared by the host (which fills it), the kernels (which read it) and the
 * simulator (which translates its pointers).  Includes nothing of mca/.
 */
#ifndef GPUSYM_KERNELS_WORK_H
#define GPUSYM_KERNELS_WORK_H

#include <stdint.h>

/* Largest team one kernel serves: bounded by the 4 KiB of kernel parameters and by what one
 * host holds; larger communicators are staged. */
#define GPUSYM_TEAM_MAX 32
/* Most blocks a launch may use: one flag row of the slot header each. */
#define GPUSYM_BLOCKS_MAX 256
/* Threads of a block at most (__launch_bounds__ of every kernel). */
#define GPUSYM_THREADS_MAX 512

/* Data move through the heap in packs of 16 bytes; no element straddles one. */
#define GPUSYM_PACK 16

/* Where a kernel ends: low byte of the status in the completion word. */
enum gpusym_status {
    GPUSYM_STATUS_OK = 0,
    GPUSYM_STATUS_ABORTED = 1, /* the host set the abort word */
    GPUSYM_STATUS_TIMEOUT = 2, /* a wait outlasted limit_ns; bits 8..15: the team rank waited for */
};

/*
 * One launch.  All pointers are device pointers as this rank's GPU sees them.
 *
 * A slot is a piece of every rank's symmetric heap that belongs to one communicator:
 *   [0, GPUSYM_FLAGS_OFF)      the owner's ticket: uint32_t blocks ended, worst status
 *   [GPUSYM_FLAGS_OFF, ll_off) flags: uint32_t [blocks][GPUSYM_TEAM_MAX]; row b, column r is written by
 *                              block b of rank r only
 *   [ll_off, stage_off)        LL lines: two parities x nranks sources x ll_bytes
 *   [stage_off, + stage_room)  first half: 2 parities of `in` for each block of the launch, stage_bytes each;
 *                              second half: the same of `out`
 */
typedef struct gpusym_work {
    void *peer[GPUSYM_TEAM_MAX]; /* base of the slot in every rank's heap; [rank] is our own */
    const void *in;              /* user's input, any alignment; may equal out */
    void *out;                   /* user's output, any alignment */
    uint64_t bytes;              /* size of the message of one rank */
    uint64_t ll_off;             /* offset of the LL area in the slot */
    uint64_t stage_off;          /* offset of the staging area in the slot */
    uint64_t limit_ns;           /* longest wait for one peer in nanoseconds; 0: no limit */
    uint64_t *done;              /* pinned host memory: {sequence << 32 | status}, written last */
    const uint32_t *abort;       /* pinned host memory: not 0 makes every wait end */
    uint32_t done_seq;           /* the sequence to write there */
    uint32_t ll_bytes;           /* LL lines of one source in bytes: twice the payload of an epoch */
    uint64_t stage_room;         /* bytes of the staging area, for all blocks of a launch */
    /* From gpusym_kernel_plan(): */
    uint32_t chunk;              /* packs of a chunk: of a block (two-shot), of an epoch (one-shot) */
    uint64_t span;               /* two-shot: packs of the message for a block */
    uint32_t stage_bytes;        /* two-shot: bytes of one buffer of a block, a multiple of 16 * nranks */
    uint32_t epoch;              /* first epoch of this call; gpusym_kernel_plan() says how many it uses */
    uint32_t rank, nranks;
    uint32_t op, type;           /* enum gpusym_op, enum gpusym_type (kernels/kernels.h) */
    uint32_t nblocks, nthreads;
    uint32_t out_local;          /* out is memory of this rank's GPU: it need be visible only there at completion */
} gpusym_work_t;

#define GPUSYM_FLAGS_OFF 256u
#define GPUSYM_FLAG_ROW (GPUSYM_TEAM_MAX * 4u)

#endif
