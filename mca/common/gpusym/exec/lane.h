/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Lanes: a stream and a line of pinned memory, which one operation in flight has for itself. Kernels of different
 * communicators wait for each other's peers, so no two operations in flight may share a stream: two ranks
 * that start them in different orders would wait for ever.
 */
#ifndef GPUSYM_COMMON_EXEC_LANE_H
#define GPUSYM_COMMON_EXEC_LANE_H

#include "mca/common/gpusym/device/device.h"

/* Pinned memory: `done` is written by the kernel, the others by the host. The doorbell has a cache line of its own, which the
 * kernel polls. */
typedef struct {
    uint64_t done;  /* sequence << 32 | status */
    uint32_t abort; /* not 0: the kernel leaves its waits */
    _Alignas(64) uint64_t doorbell[2]; /* kernels/work.h */
} gpusym_lane_line_t;

typedef struct gpusym_lane {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
    gpusym_stream_t *stream;
    gpusym_lane_line_t *host; /* the line for the CPU */
    gpusym_lane_line_t *line; /* the line for the kernels */
    uint32_t seq;             /* of the last operation */
    gpusym_graph_t *graph;    /* for launches that have none of their own; NULL: not made yet. The lane's */
    struct gpusym_lane *next;
} gpusym_lane_t;

/* A lane on gpu: a free one, or a new one. Thread-safe. */
int gpusym_lane_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_lane_t **lane);
/* Gives it back; its operation must have ended. (One whose kernel never ended is not given back.) */
void gpusym_lane_put(gpusym_lane_t *lane);
/* Whether its line may be looked at and its stream be used: else its GPU's context has been destroyed, see device.h. */
static inline bool gpusym_lane_alive(const gpusym_lane_t *lane)
{
    return lane->dev->gpu_alive(lane->gpu);
}
/* Destroys all lanes that were given back. Waits for work that has been told to end, but not for ever. */
void gpusym_lanes_close(void);

/* A new operation, of several launches: fills done, done_seq, abort and doorbell of w, for all of them. */
void gpusym_lane_begin(gpusym_lane_t *lane, gpusym_work_t *w);
/* One of its launches. */
int gpusym_lane_more(gpusym_lane_t *lane, unsigned kernel, const gpusym_work_t *w);
/* Queues a kernel on the lane: fills done, done_seq and abort of w. */
int gpusym_lane_launch(gpusym_lane_t *lane, unsigned kernel, gpusym_work_t *w);
/* The same by the device's graph_launch, which it has: *graph is made where it is NULL, and whose it is destroys it. */
int gpusym_lane_launch_graph(gpusym_lane_t *lane, unsigned kernel, gpusym_work_t *w, gpusym_graph_t **graph);

/* Commands a resident kernel (kernels/work.h) to do the next operation, without a launch. The addresses have 48 bits, bytes are 1 to
 * GPUSYM_COMMAND_BYTES_MAX; skip, up to GPUSYM_COMMAND_SKIP_MAX: epochs between its last operation's and this one's. */
void gpusym_lane_command(gpusym_lane_t *lane, const void *in, void *out, uint64_t bytes, uint32_t skip);
/* Commands it to retire; the lane can be given back at once. */
void gpusym_lane_retire(gpusym_lane_t *lane);

/* Whether it has retired without the last operation: nothing of that has been done, or will be. */
static inline bool gpusym_lane_retired(const gpusym_lane_t *lane)
{
    const uint64_t v = __atomic_load_n(&lane->host->done, __ATOMIC_ACQUIRE);
    return (uint32_t)(v >> 32) == lane->seq - 1 && 0 != ((uint32_t)v & GPUSYM_STATUS_RETIRED);
}

/* Whether the last operation has written its completion word; *status then is its enum gpusym_status word,
 * with GPUSYM_STATUS_RETIRED where it was the last one of a resident kernel. */
static inline bool gpusym_lane_done(const gpusym_lane_t *lane, uint32_t *status)
{
    const uint64_t v = __atomic_load_n(&lane->host->done, __ATOMIC_ACQUIRE);
    *status = (uint32_t)v;
    return (uint32_t)(v >> 32) == lane->seq;
}

#endif
