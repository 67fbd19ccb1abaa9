/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A launch of one job (kernels/work.h): sources, reduced or not, to destinations, which no other process takes part in.
 */
#ifndef GPUSYM_COMMON_EXEC_JOB_H
#define GPUSYM_COMMON_EXEC_JOB_H

#include "mca/common/gpusym/exec/lane.h"

/* GPU memory by which the blocks of a launch find out which is the last: zeroed before the first one; of one launch at
 * a time. */
#define GPUSYM_JOB_TICKET_BYTES 256u
/* Blocks of a launch at most: more move no more across PCIe, and take the program's kernels more room. */
#define GPUSYM_JOB_BLOCKS_MAX 16u

/* Queues the launch on the lane, whose completion word tells its end (lane.h). op, type: enum gpusym_op, enum
 * gpusym_type; read if the job reduces. sm_count: multiprocessors of the lane's GPU. src, dst: addresses that the GPU
 * reaches, as many as the job says, GPUSYM_TEAM_MAX at most; a destination may be a source. The kernels have been
 * loaded. Errors: the device's; nothing is queued then. */
int gpusym_job_launch(gpusym_lane_t *lane, void *ticket, uint32_t sm_count, unsigned op, unsigned type,
                      const void *const *src, void *const *dst, const gpusym_job_t *job);

#endif
