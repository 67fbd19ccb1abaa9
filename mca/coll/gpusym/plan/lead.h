/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The plan of a leader: where ranks share GPUs, the part of a call that one leader's kernel does (kernels/symm/lead.h).
 */
#ifndef MCA_COLL_GPUSYM_PLAN_LEAD_H
#define MCA_COLL_GPUSYM_PLAN_LEAD_H

#include "mca/coll/gpusym/plan/zero_copy.h"

/* A leader's launch. */
typedef struct {
    unsigned kernel;
    gpusym_work_t work; /* its lead.packs are 0: this leader has nothing to do */
    /* What does not fit into the descriptor, and has to be brought to memory of the GPU, at work.lead.at and
     * work.lead.jobs: addresses, then jobs. Owned; NULL: there is none, or the launch has it. */
    void *list;
    size_t list_bytes, jobs_off; /* in bytes */
} coll_gpusym_lead_plan_t;

/* Whether leaders can do such a call, by what is alike on all ranks. All entries have been read; the team is led. */
bool coll_gpusym_lead_possible(const coll_gpusym_task_t *task);
/* Plans this leader's part. all: the ranks' buffers. The caller calls coll_gpusym_lead_free. False: *corrupt is the
 * rank whose table is corrupt, or -1: no memory. */
bool coll_gpusym_lead_make(const coll_gpusym_task_t *task, const coll_gpusym_led_buffers_t *all,
                           coll_gpusym_lead_plan_t *p, int *corrupt);
/* Frees the list of a plan. */
void coll_gpusym_lead_free(coll_gpusym_lead_plan_t *p);

#endif
