/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A launch of one job: see job.h.
 */
#include "mca/common/gpusym/exec/job.h"

#include <string.h>

#include "kernels/plan.h"
#include "tuning/geometry.h"

int gpusym_job_launch(gpusym_lane_t *lane, void *ticket, uint32_t sm_count, unsigned op, unsigned type,
                      const void *const *src, void *const *dst, const gpusym_job_t *job)
{
    const gpusym_tuning_forced_t forced = {.algorithm = -1};
    const bool reduces = GPUSYM_JOB_SPREAD != job->form;
    gpusym_tuning_choice_t choice;
    gpusym_work_t w;

    memset(&w, 0, sizeof w);
    w.peer[0] = ticket;
    w.op = reduces ? op : GPUSYM_OP_SUM;
    w.type = reduces ? type : GPUSYM_T_U8;
    w.nranks = job->src_end > job->dst_end ? job->src_end : job->dst_end;
    memcpy(w.peer_in, src, job->src_end * sizeof *src);
    memcpy(w.peer_out, dst, job->dst_end * sizeof *dst);
    w.job[0] = *job;
    w.lead.njobs = 1;
    w.lead.nranks = (uint16_t) w.nranks;
    w.lead.packs = gpusym_jobs_plan(w.job, 1);
    gpusym_tuning_lead(w.lead.packs, sm_count, lane->dev->simulated, &forced, &choice);
    w.nblocks = choice.blocks < GPUSYM_JOB_BLOCKS_MAX ? choice.blocks : GPUSYM_JOB_BLOCKS_MAX;
    w.nthreads = choice.threads;
    gpusym_lane_begin(lane, &w);
    return gpusym_lane_more(lane, gpusym_kernel_find(reduces ? GPUSYM_F_LEAD_R : GPUSYM_F_LEAD, w.op, w.type), &w);
}
