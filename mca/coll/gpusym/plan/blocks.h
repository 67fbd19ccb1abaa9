/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives whose buffers have a block for each edge: alltoallw, and those of neighbours. An edge goes from a rank
 * to another, or to itself, and there may be several between two ranks. Kernels know one segment for each pair of
 * ranks: the blocks of all edges between the two, one behind the other.
 *
 * Blocks that lie so in the user's buffer, without gaps, are the segment. Otherwise the side is packed: its segments
 * lie in scratch memory, where its blocks are packed before the kernel, or unpacked from behind it.
 */
#ifndef MCA_COLL_GPUSYM_PLAN_BLOCKS_H
#define MCA_COLL_GPUSYM_PLAN_BLOCKS_H

#include "mca/coll/gpusym/args/args.h"
#include "mca/common/gpusym/device/device.h"
#include "mca/common/ompi/layout.h"
#include "kernels/work.h"

/* One side of such a call. */
typedef struct {
    const coll_gpusym_args_t *args; /* not owned */
    struct ompi_communicator_t *comm;
    coll_gpusym_side_t side;   /* COLL_GPUSYM_SENT, COLL_GPUSYM_WRITTEN */
    const gpusym_mem_t *where; /* a buffer on the GPU that packs */
} coll_gpusym_blocks_t;

/* Whether the GPU of `where` packs elements at once; others could take a copy for each of very many runs. */
bool coll_gpusym_packed_at_once(const gpusym_mem_t *where, const gpusym_layout_t *l, const void *buf);

/* Whether a collective has such blocks. */
bool coll_gpusym_blocks_has(unsigned coll);

/* Where the segments of a side lie. */
typedef struct {
    char *base;     /* what their offsets count from; packed: NULL, for the scratch memory */
    bool packed;    /* they lie in scratch memory */
    uint64_t bytes; /* of scratch memory that they need, in multiples of 256; 0: none */
} coll_gpusym_place_t;

/* Finds where the segments of a side lie. False: no kernel packs its blocks. At most COLL_GPUSYM_RANKS_MAX ranks. */
bool coll_gpusym_blocks_find(const coll_gpusym_blocks_t *b, coll_gpusym_place_t *place);
/* Then the segments: what goes to each rank of the communicator, or comes from it. packed: as in their place;
 * seg[ranks]. */
void coll_gpusym_blocks_segments(const coll_gpusym_blocks_t *b, bool packed, gpusym_seg_t *seg);

/* Adds to a queue the packing of a packed side into scratch memory, or its unpacking from there. Errors as of
 * gpusym_layout_pack_async; some of it may be queued then. */
int coll_gpusym_blocks_copy(const coll_gpusym_blocks_t *b, gpusym_layout_queue_t *q, char *scratch);

/* Does a call of a one-rank communicator by copies; *rv is the MPI error code. False: that cannot be done. */
bool coll_gpusym_blocks_alone(const coll_gpusym_buffers_t *b, int *rv);

#endif
