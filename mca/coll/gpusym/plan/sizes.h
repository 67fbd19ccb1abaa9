/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls of which not all that is sent is taken: what goes between any two ranks then.
 */
#ifndef MCA_COLL_GPUSYM_PLAN_SIZES_H
#define MCA_COLL_GPUSYM_PLAN_SIZES_H

#include "mca/coll/gpusym/plan/segments.h"

/* One call's exchange of sizes. */
typedef struct coll_gpusym_sizes coll_gpusym_sizes_t;

/* Begins to tell all ranks this one's sizes; all ranks do so in the same call. k: not owned, and outlives it. *sizes is the
 * caller's to free, also where it failed (false); NULL: no memory. */
bool coll_gpusym_sizes_start(const coll_gpusym_segments_t *k, coll_gpusym_sizes_t **sizes);
/* 1: all ranks have told theirs, and it is agreed what goes between any two, *max_bytes at most; 0: not yet; negative: failed.
 * Never waits. */
int coll_gpusym_sizes_poll(coll_gpusym_sizes_t *sizes, uint64_t *max_bytes);
/* What is agreed for this rank. NULL where sizes is. */
const coll_gpusym_pair_sizes_t *coll_gpusym_sizes_agreed(const coll_gpusym_sizes_t *sizes);
/* Whether something sent to this rank is longer than what it takes. NULL: no. */
bool coll_gpusym_sizes_truncated(const coll_gpusym_sizes_t *sizes);
/* NULL is fine. */
void coll_gpusym_sizes_free(coll_gpusym_sizes_t *sizes);

#endif
