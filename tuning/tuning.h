/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which algorithm when, with how many blocks and threads: from what all ranks know alike, never
 * from an address. Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_TUNING_TUNING_H
#define GPUSYM_TUNING_TUNING_H

#include <stdbool.h>
#include <stdint.h>

/* What a call looks like to all of its ranks. */
typedef struct {
    unsigned coll;       /* enum gpusym_collective */
    uint64_t bytes;      /* of the message; where each pair of ranks has a segment: of the longest */
    unsigned op, type;   /* enum gpusym_op, gpusym_type */
    uint32_t nranks;
    uint32_t sm_count;   /* multiprocessors of the smallest GPU of the team */
    bool simulated;
    bool zero_copy;      /* peers have each other's buffers mapped */
    bool multicast;      /* the team has a multicast object */
    bool reproducible;   /* only algorithms with gpusym_algorithm_reproducible() */
    bool all_reach;      /* every rank has every other's memory mapped; else only along the rings that the team has */
    bool ll128;          /* links keep stores of 128 bytes whole */
    bool copies;         /* copy engines can do it, with zero copy */
    uint64_t ll_payload; /* bytes that fit into one epoch of LL lines */
    uint32_t max_blocks; /* that the team's slot has room for */
} gpusym_tuning_call_t;

typedef struct {
    int algorithm;    /* enum gpusym_algorithm; -1: none for this collective where not all reach all (nothing else is set) */
    unsigned family;  /* enum gpusym_family that does it: with zero copy another one */
    uint32_t blocks;  /* 1 .. max_blocks */
    uint32_t threads; /* of a block, a multiple of 32 */
    uint32_t chunk;   /* staged kernels: bytes that a block takes at a time; 0: all that its buffers hold */
    bool zero_copy;   /* the kernel wants peer_in, peer_out */
} gpusym_tuning_choice_t;

/* What the user forces: algorithm -1, or 0 for any other, leaves it to the table. */
typedef struct {
    int algorithm;
    uint64_t oneshot_max; /* largest message in bytes for the LL kernels */
    uint32_t blocks, threads, chunk;
} gpusym_tuning_forced_t;

/* A forced algorithm is replaced by the table's where it is not to be had: multicast where there is none, or not for op and
 * type; LL128, trees, or what reduces in another order than the ranks', as the call says. */
void gpusym_tuning_choose(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                          gpusym_tuning_choice_t *choice);

/* Kernels that stay after a small call: for how long, in microseconds (0: they do not); up to which message, in
 * bytes; and the threads of their one block. */
uint32_t gpusym_tuning_linger_us(bool simulated);
uint64_t gpusym_tuning_stay_max(uint32_t nranks);
uint32_t gpusym_tuning_stay_threads(void);

/* ... and what bounds them. None of it has been measured, but what one saves. */
enum {
    /* Calls that one kernel serves: then it is launched anew, so that whoever waits for all of the GPU's kernels to end
     * (cudaFree of another thread), or is queued behind it, waits no longer than for these, even if the program never
     * pauses. They share the cost of the launch. */
    GPUSYM_STAY_SERVED_MAX = 256,
    /* Kernels that are kept at a time, of all communicators. Each may be a block that waits, and the GPU's hardware queues (8, unless
     * CUDA_DEVICE_MAX_CONNECTIONS says otherwise) are the program's too; and a program may have thousands of them. */
    GPUSYM_STAY_KEEPERS_MAX = 4,
    /* What a call saves that a kernel serves which has stayed, in nanoseconds: 8.9 us by a launch, 5.0 without (8 bytes on
     * 2 x H200). */
    GPUSYM_STAY_GAIN_NS = 3900,
    /* After so many kernels in a row that were not worth it, so many calls go without, twice as many each further time, up
     * to the most. */
    GPUSYM_STAY_MISSES = 2,
    GPUSYM_STAY_SKIP_FIRST = 64,
    GPUSYM_STAY_SKIP_MOST = 4096,
    /* After so many that were not worth it, but did not make the pauses, that is found out anew. */
    GPUSYM_STAY_EXCUSED = 16,
    /* How often pauses come is told from about so many calls. */
    GPUSYM_STAY_RECENT = 128,
};

/*
 * Whether kernels are worth it that stay, of a communicator, where the user has not said how long they are to. One costs the
 * program up to that time if it waits for its GPU behind the kernel's last call, which nobody can see. So a kernel that leaves
 * by itself should have saved as much before; if not, calls go without for a while. Where these have pauses as long, and half
 * as often at least, it is not the kernel that makes them, and kernels may go on that serve anyone: that is looked at again
 * now and then, since programs change. One that made place for another should have been worth it too. Zeroed before its
 * first use.
 */
typedef struct {
    uint32_t misses; /* kernels in a row that were not worth it, since calls went without */
    uint32_t skip;   /* calls that will go without */
    uint32_t skips;  /* how often they have, since a kernel was worth it */
    uint32_t calls, pauses;           /* of kernels that stayed: calls; pauses behind which they left by themselves */
    uint32_t skipped, skipped_pauses; /* calls that went without; pauses of at least the same length before them */
    uint64_t skipped_ns;              /* when the last of these began; 0: it was not the call before */
    uint32_t excused;                 /* kernels that were not worth it, but did not make the pauses: since this was found */
} gpusym_tuning_stay_t;
/* Why a kernel is gone: told to leave; told to, for another that wants its place; left by itself. */
enum gpusym_stay_gone { GPUSYM_STAY_TOLD, GPUSYM_STAY_DISPLACED, GPUSYM_STAY_LEFT };

/* Before a launch, at that time: whether its kernel may stay, for so long. */
bool gpusym_tuning_stay_next(gpusym_tuning_stay_t *s, uint64_t linger_ns, uint64_t now_ns);
/* A kernel is gone that was to stay for so long and has served so many calls, but for the one that it was launched for. */
void gpusym_tuning_stay_gone(gpusym_tuning_stay_t *s, uint32_t served, uint64_t linger_ns, enum gpusym_stay_gone why);
/* The next calls go without. */
void gpusym_tuning_stay_skip(gpusym_tuning_stay_t *s);

/* Smallest message in bytes for which ranks map each other's buffers. */
uint64_t gpusym_tuning_zero_copy_min(bool simulated);

/* Most blocks any call will ask for on GPUs of that many multiprocessors: a slot is divided for it. */
uint32_t gpusym_tuning_max_blocks(uint32_t sm_count, bool simulated);

#endif
