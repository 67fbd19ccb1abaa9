/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Zero copy: offering this rank's buffers to its peers, and mapping theirs.
 */
#ifndef MCA_COLL_GPUSYM_PLAN_ZERO_COPY_H
#define MCA_COLL_GPUSYM_PLAN_ZERO_COPY_H

#include "mca/coll/gpusym/plan/task.h"

/* Offers the call's buffers, as far as they can be: fills in the keys, offsets and flags of what is to be posted. Buffers stay
 * pinned until coll_gpusym_zero_copy_withdraw. */
void coll_gpusym_zero_copy_offer(coll_gpusym_task_t *task, gpusym_post_t *post);
/* Takes back what was offered. */
void coll_gpusym_zero_copy_withdraw(coll_gpusym_task_t *task);
/* With all entries read: whether the call may go by zero copy, as far as all ranks have posted. */
bool coll_gpusym_zero_copy_possible(const coll_gpusym_task_t *task);

/* Maps all that the peers offer into w->peer_in and w->peer_out. voted: all ranks have done so before, and the buffers'
 * owners keep them. False: it cannot be mapped; *corrupt is then -1, or a rank that cannot have offered what it posted. */
bool coll_gpusym_zero_copy_map(coll_gpusym_task_t *task, gpusym_work_t *w, bool voted, int *corrupt);
/* All ranks have mapped what this call offers: that need not be voted on again. */
void coll_gpusym_zero_copy_mapped(coll_gpusym_task_t *task);

#endif
