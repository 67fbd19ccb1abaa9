/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives, and what MPI says about each, made from the columns of the list: which ranks send and receive, what
 * lies in the buffers, and what that means for the kernels. Where the collective is a constant, so are its facts.
 */
#ifndef MCA_COLL_GPUSYM_ARGS_FACTS_H
#define MCA_COLL_GPUSYM_ARGS_FACTS_H

#include <stdbool.h>
#include <stdint.h>

enum coll_gpusym_coll {
#define GPUSYM_COLL(ID, name, Name, FIELDS, ...) COLL_GPUSYM_##ID,
#include "mca/coll/gpusym/args/coll_gpusym.def"
    COLL_GPUSYM_COLLS
};

/* How many of them have kernels; these come first. */
enum {
#define GPUSYM_COLL_NATIVE(ID, name, Name, FIELDS, ...) COLL_GPUSYM_NATIVE_##ID,
#include "mca/coll/gpusym/args/coll_gpusym.def"
    COLL_GPUSYM_NATIVES
};

/* Why a call is staged through the host. */
enum coll_gpusym_reason {
#define GPUSYM_REASON(ID, name, doc, hint) COLL_GPUSYM_R_##ID,
#include "mca/coll/gpusym/args/coll_gpusym.def"
    COLL_GPUSYM_REASONS
};

/* What goes between which ranks. */
enum {
    COLL_GPUSYM_P_ALLREDUCE,
    COLL_GPUSYM_P_ROOTED, /* one message, from or to the root */
    COLL_GPUSYM_P_ALLGATHER,
    COLL_GPUSYM_P_REDUCE_SCATTER,
    COLL_GPUSYM_P_ALLTOALL,
    COLL_GPUSYM_P_GATHER,
    COLL_GPUSYM_P_SCATTER,
    COLL_GPUSYM_P_SCAN,      /* from each rank to itself and those behind it */
    COLL_GPUSYM_P_NEIGHBORS, /* of the communicator's topology */
    COLL_GPUSYM_P_BARRIER,   /* no data */
    COLL_GPUSYM_P_LOCAL,     /* no communicator */
    COLL_GPUSYM_PATTERNS
};

/* The ranks whose buffer is significant. */
enum {
    COLL_GPUSYM_RANKS_ALL,
    COLL_GPUSYM_RANKS_MEMBERS, /* every rank; of an intercommunicator, the group without the root */
    COLL_GPUSYM_RANKS_ROOT,
    COLL_GPUSYM_RANKS_OTHERS, /* MEMBERS without the root: its send buffer is its receive buffer */
    COLL_GPUSYM_RANKS_LATER,  /* all but rank 0 */
};

/* What lies in a buffer. */
enum {
    COLL_GPUSYM_L_NOTHING,
    COLL_GPUSYM_L_BLOCK,    /* the count's elements */
    COLL_GPUSYM_L_BLOCKS,   /* as many for each peer, contiguous */
    COLL_GPUSYM_L_BLOCKS_V, /* a block for each peer: arrays of counts and displacements */
    COLL_GPUSYM_L_BLOCKS_W, /* the same, and an array of datatypes */
    COLL_GPUSYM_L_PARTS,    /* the receive blocks of all ranks, contiguous */
    COLL_GPUSYM_L_PART,     /* this rank's of the array of receive counts */
};

/* Buffers that zero copy maps at the peers. NONE: there are no data between ranks. */
enum {
    COLL_GPUSYM_MAPS_NONE = 0,
    COLL_GPUSYM_MAPS_IN = 1,
    COLL_GPUSYM_MAPS_OUT = 2,
    COLL_GPUSYM_MAPS_BOTH = 3,
};

/* A collective's columns; see coll_gpusym.def. */
typedef struct {
    uint8_t pattern; /* COLL_GPUSYM_P_ */
    uint8_t from;    /* COLL_GPUSYM_RANKS_ */
    uint8_t sent;    /* COLL_GPUSYM_L_ */
    uint8_t to;
    uint8_t written;
    uint8_t maps; /* COLL_GPUSYM_MAPS_ */
    bool reduces;
    bool one_count;
    bool apart;
} coll_gpusym_facts_t;

/* Of each collective: enum coll_gpusym_coll. */
static const coll_gpusym_facts_t coll_gpusym_facts[] = {
#define GPUSYM_COLL(ID, name, Name, FIELDS, PATTERN, FROM, SENT, TO, WRITTEN, MAPS, REDUCES, ONE_COUNT, APART) \
    {.pattern = COLL_GPUSYM_P_##PATTERN,                                                                       \
     .from = COLL_GPUSYM_RANKS_##FROM,                                                                         \
     .sent = COLL_GPUSYM_L_##SENT,                                                                             \
     .to = COLL_GPUSYM_RANKS_##TO,                                                                             \
     .written = COLL_GPUSYM_L_##WRITTEN,                                                                       \
     .maps = COLL_GPUSYM_MAPS_##MAPS,                                                                          \
     .reduces = REDUCES,                                                                                       \
     .one_count = ONE_COUNT,                                                                                   \
     .apart = APART},
#include "mca/coll/gpusym/args/coll_gpusym.def"
};

/* Whether a layout is described by arrays that the caller passes. */
static inline bool coll_gpusym_has_arrays(unsigned layout)
{
    return COLL_GPUSYM_L_BLOCKS_V == layout || COLL_GPUSYM_L_BLOCKS_W == layout || COLL_GPUSYM_L_PART == layout;
}

#endif
