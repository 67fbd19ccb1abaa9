/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The plan of a launch: algorithm, geometry, and the descriptor, from what all ranks know alike.
 */
#ifndef MCA_COLL_GPUSYM_PLAN_PLAN_H
#define MCA_COLL_GPUSYM_PLAN_PLAN_H

#include "mca/coll/gpusym/plan/task.h"

/* What must be alike on all ranks, in one word: the call, and the user's tuning. */
uint32_t coll_gpusym_plan_hash(const coll_gpusym_segments_t *k);
/* Whether there are kernels for a team in which not all ranks reach all: the same on all ranks. The team is set up. */
bool coll_gpusym_plan_reaches(coll_gpusym_task_t *task);
/* Makes p the plan for this start: a kept one, of which only peers' buffers may have moved, or a new one. The epoch of p->work
 * is left to the caller. False: as coll_gpusym_zero_copy_map. */
bool coll_gpusym_plan_get(coll_gpusym_task_t *task, coll_gpusym_plan_t *p, int *corrupt);
/* Frees a plan, NULL too, which no call uses any more. */
void coll_gpusym_plan_free(coll_gpusym_plan_t *plan);

#endif
