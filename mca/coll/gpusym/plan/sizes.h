/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls in which a rank sends more than its peer receives: the bytes that go between each pair of ranks.
 */
#ifndef MCA_COLL_GPUSYM_PLAN_SIZES_H
#define MCA_COLL_GPUSYM_PLAN_SIZES_H

#include "mca/coll/gpusym/plan/segments.h"

/* One call's comparison of sizes. */
typedef struct coll_gpusym_sizes coll_gpusym_sizes_t;

typedef enum {
    COLL_GPUSYM_SIZES_WAITING, /* a rank has not told its sizes yet */
    COLL_GPUSYM_SIZES_AGREED,  /* the sizes between each pair of ranks are known, the same on all ranks */
    COLL_GPUSYM_SIZES_LACKING, /* a rank cannot tell them, known to all: it has no memory */
    COLL_GPUSYM_SIZES_CORRUPT, /* a rank's table has values that no rank writes */
} coll_gpusym_sizes_state_t;

/* Makes the comparison of a call's sizes. k: not owned, and outlives it. seq: of the call, which all ranks have posted.
 * The caller frees it. NULL: no memory. */
coll_gpusym_sizes_t *coll_gpusym_sizes_create(const coll_gpusym_segments_t *k, uint64_t seq);
/* Tells the peers this rank's sizes, and compares them once all are there: *max_bytes is the largest that is agreed.
 * CORRUPT: *corrupt is the rank. Never waits. */
coll_gpusym_sizes_state_t coll_gpusym_sizes_poll(coll_gpusym_sizes_t *sizes, uint64_t *max_bytes, int *corrupt);
/* Returns the agreed sizes of this rank; NULL where sizes is NULL. */
const coll_gpusym_pair_sizes_t *coll_gpusym_sizes_agreed(const coll_gpusym_sizes_t *sizes);
/* Whether a rank sends this one more than it receives. sizes NULL: no. */
bool coll_gpusym_sizes_truncated(const coll_gpusym_sizes_t *sizes);
/* Frees a comparison; NULL is allowed. */
void coll_gpusym_sizes_free(coll_gpusym_sizes_t *sizes);

#endif
