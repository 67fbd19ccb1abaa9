/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Launch geometry: how many blocks, threads and bytes a chunk an algorithm is launched with.
 * Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_TUNING_GEOMETRY_H
#define GPUSYM_TUNING_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

/* What a call looks like to all of its ranks. */
typedef struct {
    unsigned coll;     /* enum gpusym_collective */
    uint64_t bytes;    /* of the message; where each pair of ranks has a segment: of the longest */
    unsigned op, type; /* enum gpusym_op, gpusym_type */
    uint32_t nranks;
    uint32_t sm_count; /* multiprocessors of the smallest GPU of the team */
    bool simulated;
    bool zero_copy;      /* peers have each other's buffers mapped */
    bool scattered;      /* a rank knows by the peers' tables alone where its data go: no rank can forward them there */
    bool multicast;      /* the team has a multicast object */
    bool mc_requested;   /* ... since the user asks for it: then the defaults have multicast, too */
    bool reproducible;   /* only algorithms with gpusym_algorithm_reproducible() */
    bool overwrites;     /* some rank stores its result over its input: not before this is sent */
    bool all_reach;      /* every rank has every other's memory mapped; else only along the rings that the team has */
    bool ll128;          /* links keep stores of 128 bytes whole */
    bool copies;         /* copy engines can do it, with zero copy */
    bool clusters;       /* blocks of a resident kernel can be a cluster */
    uint64_t ll_payload; /* bytes that fit into one epoch of LL lines */
    uint32_t max_blocks; /* that the team's slot has room for */
} gpusym_tuning_call_t;

/* What the tables choose for it. */
typedef struct {
    /* enum gpusym_algorithm; -1: none for this collective where not all reach all, and nothing else is set. */
    int algorithm;
    unsigned family;   /* enum gpusym_family that does it: with zero copy another one */
    uint32_t blocks;   /* 1 .. max_blocks */
    uint32_t threads;  /* of a block, a multiple of 32 */
    uint32_t chunk;    /* staged kernels: bytes that a block takes at a time; 0: all that its buffers hold */
    bool zero_copy;    /* the kernel wants peer_in, peer_out */
    bool own_threads;  /* forced: for resident kernels, too */
    uint32_t resident; /* blocks of a resident kernel that may serve it (resident.h), as far as its length is concerned;
                        * 0: none may */
} gpusym_tuning_choice_t;

/* What the user forces: algorithm -1, or 0 for any other, leaves it to the table. */
typedef struct {
    int algorithm;
    uint64_t oneshot_max; /* largest message in bytes for the LL kernels */
    uint32_t blocks, threads, chunk;
    uint64_t resident_below; /* messages, or segments, of fewer bytes may be served by resident kernels */
} gpusym_tuning_forced_t;

/* Sets blocks, threads and chunk of a choice whose algorithm and family are set. */
void gpusym_tuning_geometry(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                            gpusym_tuning_choice_t *choice);

/* Sets blocks and threads of a leader's launch of so many packs, on a GPU of that many multiprocessors. */
void gpusym_tuning_lead(uint64_t packs, uint32_t sm_count, bool simulated, const gpusym_tuning_forced_t *forced,
                        gpusym_tuning_choice_t *choice);

/* How many of the threads take pieces by themselves, where these have so many bytes: gpusym_lead_t.group. There may be
 * more threads then. */
uint32_t gpusym_tuning_lead_group(uint64_t packs, uint64_t piece_bytes, const gpusym_tuning_forced_t *forced,
                                  gpusym_tuning_choice_t *choice);

/* Where so many ranks share a GPU of that many multiprocessors by MPS, and each has a kernel there, which wait for each
 * other: blocks that such a kernel may have. And the longest call, by its largest message in bytes, that so many ranks
 * do so. */
uint32_t gpusym_tuning_beside_blocks(uint32_t sm_count, uint32_t per_gpu);
uint64_t gpusym_tuning_beside_max(uint32_t nranks, uint32_t blocks);

/* Most blocks that any call asks for on GPUs of that many multiprocessors: a slot is divided for it. */
uint32_t gpusym_tuning_max_blocks(uint32_t sm_count, bool simulated);

/* Whether communicators have multicast objects where the user has not set it. */
bool gpusym_tuning_multicast(bool simulated);

/* Column of a table by ranks: 2; up to 4; more. */
static inline unsigned gpusym_tuning_by_ranks(uint32_t nranks)
{
    if (nranks <= 2) {
        return 0;
    }
    return nranks <= 4 ? 1 : 2;
}

#endif
