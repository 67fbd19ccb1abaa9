/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives whose data copy engines move directly between user buffers, or into the heap of the rank that reduces
 * them.  Streams wait for flags and write flags of peers (device.h: stream_flags); kernels reduce, and end the call
 * (kernels/symm/symm_ce.h).
 */
#ifndef GPUSYM_COMMON_EXEC_COPIES_H
#define GPUSYM_COMMON_EXEC_COPIES_H

#include "mca/common/gpusym/exec/lane.h"

/* One stream per rank, from lanes (lane.h), for exclusive use by one operation in flight. */
typedef struct gpusym_copies_streams gpusym_copies_streams_t;

/* Gets streams for one operation of nranks ranks on gpu.  Return them by gpusym_copies_put.  Thread-safe. */
int gpusym_copies_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint32_t nranks,
                      gpusym_copies_streams_t **streams);
/* Returns the streams.  Their operation must have ended. */
void gpusym_copies_put(gpusym_copies_streams_t *streams);

/*
 * Queues a call.
 *   streams  for exclusive use until the call ends
 *   reduce   kernel of family CE_R; used if `reduces`
 *   end      kernel of family CE
 *   fills    the lane has work queued that brings the input, of a reduction
 *   w        descriptor of `end`, after gpusym_kernel_plan() for CE or CE_R; copied. peer_out of every receiving rank
 *            is set, except for a reduce-scatter
 *   queued   set to whether the caller must wait for the completion word of the lane, which reports the end as for a
 *            launch. True also after an error if the end could be queued, with the abort word set
 * Returns the device's error.
 */
int gpusym_copies_queue(gpusym_copies_streams_t *streams, gpusym_lane_t *lane, unsigned reduce, unsigned end,
                        bool reduces, bool fills, const gpusym_work_t *w, bool *queued);

#endif
