/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives whose data copy engines send straight between users' buffers, or into the heaps of those who reduce them.
 * Streams wait for flags and write flags of peers (device.h: stream_flags); kernels reduce, and end the call
 * (kernels/symm/symm_ce.h).
 */
#ifndef GPUSYM_COMMON_EXEC_COPIES_H
#define GPUSYM_COMMON_EXEC_COPIES_H

#include "mca/common/gpusym/exec/lane.h"

/* A stream to each rank, of lanes (lane.h), which one operation in flight has for itself. */
typedef struct gpusym_copies_streams gpusym_copies_streams_t;

/* Streams for one operation of nranks ranks on gpu. Thread-safe. */
int gpusym_copies_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint32_t nranks, gpusym_copies_streams_t **streams);
/* Gives them back; their operation must have ended. */
void gpusym_copies_put(gpusym_copies_streams_t *streams);

/*
 * Queues a call. w: descriptor of kernel `end` of family CE, after gpusym_kernel_plan() for CE or CE_R; reduce: kernel of
 * family CE_R, used where `reduces`. peer_out of whoever is sent to must be set, but for a reduce-scatter. The lane's
 * completion word tells of its end as of a launch's.
 * After an error nothing more is queued than the end, with the abort word set: *queued tells whether the completion word is
 * to be waited for.
 */
int gpusym_copies_queue(gpusym_copies_streams_t *streams, gpusym_lane_t *lane, unsigned reduce, unsigned end, bool reduces,
                        const gpusym_work_t *w, bool *queued);

#endif
