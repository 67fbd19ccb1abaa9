/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A collective through host memory in segments: while the fallback works on one, the GPU copies those before and behind
 * it.  Small segments also stay in the CPU's caches.
 *
 * Every segment is a call of the fallback of its own, on a range of the elements. So all ranks must divide alike, or
 * none (exec/way_segments.c). Each element is reduced over the ranks as in a call of the segment's length: the bits are
 * those of the whole call wherever the fallback's algorithm for both lengths is the same.
 */
#ifndef MCA_COLL_GPUSYM_SEGMENTATION_H
#define MCA_COLL_GPUSYM_SEGMENTATION_H

#include "mca/coll/gpusym/fallback/bounce.h"

/* Returns whether a call can be divided. *bytes: of all its elements, *element: of one, both without gaps: alike on all
 * ranks if they are to divide it. */
bool coll_gpusym_segmentation_may(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, uint64_t *bytes,
                                  uint32_t *element);
/* A call in segments. */
typedef struct coll_gpusym_segmentation coll_gpusym_segmentation_t;

/* Prepares a call in segments of at most `segment` bytes, and of at least an element: its memory and streams. f and b
 * outlive it. NULL: this rank cannot, with the MPI error code *rv, which has been reported. */
coll_gpusym_segmentation_t *coll_gpusym_segmentation_begin(coll_gpusym_fallback_t *f, const coll_gpusym_buffers_t *b,
                                                           size_t segment, int *rv);
/* Does it, by blocking calls of the fallback. MPI error code; what is no fallback's error has been reported. Where this
 * rank cannot copy, it calls failed(arg, error), once, and goes on with the fallback on any data, for the other ranks
 * are in it: they are to find out by themselves, once they have all segments. No copy is under way then. */
int coll_gpusym_segmentation_blocking(coll_gpusym_segmentation_t *c, void (*failed)(void *arg, int error), void *arg);
/* Or, by nonblocking ones: */
/* Does what can be done now; never waits. True: it is over, with the MPI error code *rv. Until then no other call of
 * the fallback may begin on this communicator: so its order of calls is the same on all ranks. */
bool coll_gpusym_segmentation_poll(coll_gpusym_segmentation_t *c, int *rv);
/* After an error: whether no copy is under way any more. */
bool coll_gpusym_segmentation_stopped(const coll_gpusym_segmentation_t *c);
/* Frees it once it is over or has stopped. What the fallback still works on, since a peer was lost, stays allocated,
 * and so does the communicator. NULL is fine. */
void coll_gpusym_segmentation_free(coll_gpusym_segmentation_t *c);

#endif
