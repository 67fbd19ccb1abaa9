/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The plan of a launch: algorithm, geometry, and the descriptor, from what all ranks know alike.
 */
#ifndef MCA_COLL_GPUSYM_PLAN_PLAN_H
#define MCA_COLL_GPUSYM_PLAN_PLAN_H

#include "mca/coll/gpusym/plan/task.h"

/* Returns a hash of what must be the same on all ranks: the call, and the user's tuning. */
uint32_t coll_gpusym_plan_hash(const coll_gpusym_segments_t *k);
/* Whether kernels can do the call where not all ranks reach each other. The same on all ranks. The team is set up. */
bool coll_gpusym_plan_reaches(coll_gpusym_task_t *task);
/* Whether the kernels that do the call, as far as it is known before it is posted, store a result over its input only
 * once that has been sent. The team is set up. */
bool coll_gpusym_plan_overwrites(const coll_gpusym_task_t *task);
/* Sets p to the plan of this start: the kept one, with the peers' current buffers, or a new one. The caller sets the
 * epoch of p->work. False: as coll_gpusym_zero_copy_map. */
bool coll_gpusym_plan_get(coll_gpusym_task_t *task, coll_gpusym_plan_t *p, int *corrupt);
/* Frees a plan that no call uses; NULL is allowed. */
void coll_gpusym_plan_free(coll_gpusym_plan_t *plan);

#endif
