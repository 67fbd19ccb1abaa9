/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Lanes: a stream and a line of pinned memory, for exclusive use by one operation in flight.  Kernels of different
 * communicators wait for each other's peers, so two operations in flight must not share a stream: two ranks that start
 * them in different orders would deadlock.
 */
#ifndef GPUSYM_COMMON_EXEC_LANE_H
#define GPUSYM_COMMON_EXEC_LANE_H

#include "mca/common/gpusym/device/device.h"
#include "tuning/copy.h"

/* Pinned memory: the GPU writes `done`, `end`, `begin`, `copied` and `part`, the host writes the rest.  The doorbell,
 * which the kernel polls, has a cache line of its own. */
typedef struct {
    uint64_t done;   /* sequence << 32 | status */
    uint64_t end;    /* of the last operation that was timed: GPUSYM_TIME; written with `done`, by one store */
    uint64_t begin;  /* of the last one that was timed and launched; of a command `done` tells how long it took */
    uint32_t abort;  /* not 0: the kernel ends its waits */
    uint32_t copied; /* sequence of the last copy of a copy engine that has ended; its stream writes it */
    _Alignas(64) uint64_t doorbell[3];              /* kernels/work.h */
    _Alignas(64) uint64_t part[GPUSYM_COPY_BLOCKS]; /* as done, of each block of a copy (copy.h) */
    uint64_t late[GPUSYM_COPY_BLOCKS];              /* the same, of those that waited in vain; behind `part` */
} gpusym_lane_line_t;
_Static_assert(8 * GPUSYM_TIME_END == offsetof(gpusym_lane_line_t, end), "the kernels find it behind `done`");
_Static_assert(8 * GPUSYM_TIME_BEGIN == offsetof(gpusym_lane_line_t, begin), "the kernels find it behind `done`");

typedef struct gpusym_lane {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
    gpusym_stream_t *stream;
    gpusym_lane_line_t *host; /* the line for the CPU */
    gpusym_lane_line_t *line; /* the line for the kernels */
    uint32_t seq;             /* of the last operation */
    gpusym_graph_t *graph;    /* for launches without a graph of their own; NULL: not created yet.  Owned by the lane */
    gpusym_graph_t *clusters; /* the same for those of a cluster */
    struct gpusym_lane *next;
} gpusym_lane_t;

/* Gets a lane on gpu: a free one, or a new one.  Return it by gpusym_lane_put.  Thread-safe. */
int gpusym_lane_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_lane_t **lane);
/* Waits until all work of the lane's stream has ended: 1, or the device's error. */
int gpusym_lane_await(const gpusym_lane_t *lane);
/* Returns a lane.  Its operation must have ended; a lane whose kernel never ended is not returned. */
void gpusym_lane_put(gpusym_lane_t *lane);
/* Returns whether line and stream may be used.  If not, the context of the GPU has been destroyed (device.h:
 * gpu_alive). */
static inline bool gpusym_lane_alive(const gpusym_lane_t *lane)
{
    return lane->dev->gpu_alive(lane->gpu);
}
/* Destroys all returned lanes.  Waits for kernels that were told to retire, for a limited time. */
void gpusym_lanes_close(void);

/* Begins an operation of several launches: fills done, done_seq, abort and doorbell of w, for all of them. */
void gpusym_lane_begin(gpusym_lane_t *lane, gpusym_work_t *w);
/* Queues one launch of the operation begun last, by a graph where the device has such. */
int gpusym_lane_more(gpusym_lane_t *lane, unsigned kernel, const gpusym_work_t *w);
/* Begins an operation and queues its only launch: fills done, done_seq, abort and doorbell of w. */
int gpusym_lane_launch(gpusym_lane_t *lane, unsigned kernel, gpusym_work_t *w);
/* The same by the device's graph_launch, which must exist.  Creates *graph if it is NULL; the caller destroys it. */
int gpusym_lane_launch_graph(gpusym_lane_t *lane, unsigned kernel, gpusym_work_t *w, gpusym_graph_t **graph);

/* Commands a resident kernel (kernels/work.h) to do the next operation, without a launch. The addresses have 48 bits,
 * bytes are 1 to GPUSYM_COMMAND_BYTES_MAX; skip, up to GPUSYM_COMMAND_SKIP_MAX: epochs between its last operation's and
 * this one's, with or without GPUSYM_COMMAND_EARLY. */
void gpusym_lane_command(gpusym_lane_t *lane, const void *in, void *out, uint64_t bytes, uint32_t skip);
/* Before the command of a copy: the number of its signal. */
static inline void gpusym_lane_signal(gpusym_lane_t *lane, uint32_t signal)
{
    __atomic_store_n(&lane->host->doorbell[2], signal, __ATOMIC_RELAXED);
}
/* Commands a resident kernel to retire.  The lane can be returned at once. */
void gpusym_lane_retire(gpusym_lane_t *lane);

/* Before a launch whose kernel may retire with nothing done, which the caller then finds by gpusym_lane_retired(): the
 * lane's last kernel may have retired by itself, and left the word that would tell so. */
static inline void gpusym_lane_skip(gpusym_lane_t *lane)
{
    lane->seq++;
}

/* What the GPU has written of the last operation, which is done: taken before the lane is given back or commanded. */
static inline void gpusym_lane_words(const gpusym_lane_t *lane, uint64_t words[3])
{
    words[0] = __atomic_load_n(&lane->host->done, __ATOMIC_RELAXED);
    words[1] = __atomic_load_n(&lane->host->end, __ATOMIC_RELAXED);
    words[2] = __atomic_load_n(&lane->host->begin, __ATOMIC_RELAXED);
}
/* Begin and end of that operation, if its kernel was to tell, by the GPU's clock modulo 2^48 ns. 0: it is not there. */
void gpusym_lane_times(const uint64_t words[3], uint64_t times[2]);

/* Returns whether the kernel has retired without the last operation, of which nothing has been or will be done. */
static inline bool gpusym_lane_retired(const gpusym_lane_t *lane)
{
    const uint64_t v = __atomic_load_n(&lane->host->done, __ATOMIC_ACQUIRE);
    return (uint32_t) (v >> 32) == lane->seq - 1 && 0 != ((uint32_t) v & GPUSYM_STATUS_RETIRED);
}

/* Returns whether the last operation has written its completion word.  *status is then its enum gpusym_status word,
 * with GPUSYM_STATUS_RETIRED if it was the last one of a resident kernel. */
static inline bool gpusym_lane_done(const gpusym_lane_t *lane, uint32_t *status)
{
    const uint64_t v = __atomic_load_n(&lane->host->done, __ATOMIC_ACQUIRE);
    *status = (uint32_t) v;
    return (uint32_t) (v >> 32) == lane->seq;
}

/* Returns whether the first n parts of the last operation have ended. */
static inline bool gpusym_lane_parts_done(const gpusym_lane_t *lane, uint32_t n)
{
    while (n > 0 && (uint32_t) (__atomic_load_n(&lane->host->part[n - 1], __ATOMIC_ACQUIRE) >> 32) == lane->seq) {
        n--;
    }
    return 0 == n;
}

#endif
