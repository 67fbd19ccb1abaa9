/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls in which a rank sends more than its peer receives: the bytes that go between each pair of ranks.
 */
#ifndef MCA_COLL_GPUSYM_PLAN_SIZES_H
#define MCA_COLL_GPUSYM_PLAN_SIZES_H

#include "mca/coll/gpusym/plan/segments.h"

/* One call's exchange of sizes. */
typedef struct coll_gpusym_sizes coll_gpusym_sizes_t;

/* Starts the exchange of sizes, in the same call on all ranks. k: not owned, and outlives *sizes. The caller frees
 * *sizes, also after a failure (false); NULL: no memory. */
bool coll_gpusym_sizes_start(const coll_gpusym_segments_t *k, coll_gpusym_sizes_t **sizes);
/* 1: the sizes between each pair of ranks are agreed, and *max_bytes is the largest; 0: in progress; negative: failed.
 * Never waits. */
int coll_gpusym_sizes_poll(coll_gpusym_sizes_t *sizes, uint64_t *max_bytes);
/* Returns the agreed sizes of this rank; NULL where sizes is NULL. */
const coll_gpusym_pair_sizes_t *coll_gpusym_sizes_agreed(const coll_gpusym_sizes_t *sizes);
/* Whether a rank sends this one more than it receives. sizes NULL: no. */
bool coll_gpusym_sizes_truncated(const coll_gpusym_sizes_t *sizes);
/* Frees an exchange; NULL is allowed. */
void coll_gpusym_sizes_free(coll_gpusym_sizes_t *sizes);

#endif
