/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Queues: a few copies under way at a time (copy.h), whose ends are told in the order in which they were started,
 * whichever ends first.
 */
#ifndef GPUSYM_COMMON_EXEC_QUEUE_H
#define GPUSYM_COMMON_EXEC_QUEUE_H

#include <string.h>

#include "mca/common/gpusym/exec/copy.h"

/* Copies under way at most. */
#define GPUSYM_QUEUE_MAX 8u

/* Its user sets dev and gpu, all else is zeroed.  It stays in place while copies are under way. */
typedef struct {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;       /* NULL: both sides are host memory */
    uint64_t started, ended; /* copies */
    gpusym_copy_t copy[GPUSYM_QUEUE_MAX];
    uint32_t tag[GPUSYM_QUEUE_MAX];
} gpusym_queue_t;

static inline uint32_t gpusym_queue_under_way(const gpusym_queue_t *queue)
{
    return (uint32_t) (queue->started - queue->ended);
}

/* Starts one run of bytes (gpusym_copy_start_rows; height 1); less than GPUSYM_QUEUE_MAX are under way.  Without a GPU
 * this call copies it, and it is told like any other.  tag: the user's.  Errors: the device's; nothing was started. */
static inline int gpusym_queue_start(gpusym_queue_t *queue, const gpusym_copy_rows_t *run, uint32_t tag)
{
    const uint32_t i = queue->started % GPUSYM_QUEUE_MAX;
    int rc = GPUSYM_SUCCESS;
    if (NULL != queue->gpu) {
        rc = gpusym_copy_start_rows(queue->dev, queue->gpu, run, &queue->copy[i]);
    } else {
        memcpy(run->dst, run->src, run->width);
        queue->copy[i] = (gpusym_copy_t){.queue = NULL};
    }
    queue->tag[i] = tag;
    queue->started += GPUSYM_SUCCESS == rc ? 1 : 0;
    return rc;
}

/* Returns 1 if the oldest copy has ended, 0 if it has not, or there is none, or the device's error, which ends it too.
 * Unless 0 is returned *tag is its tag, and the next one is the oldest.  tag: may be NULL. */
static inline int gpusym_queue_end(gpusym_queue_t *queue, uint32_t *tag)
{
    const uint32_t i = queue->ended % GPUSYM_QUEUE_MAX;
    const int rc = queue->ended == queue->started ? 0 : gpusym_copy_poll(&queue->copy[i]);
    if (0 != rc) {
        queue->ended++;
    }
    if (0 != rc && NULL != tag) {
        *tag = queue->tag[i];
    }
    return rc;
}

/* Ends all copies that have ended, whatever came of them.  Returns whether none is under way any more. */
static inline bool gpusym_queue_drain(gpusym_queue_t *queue)
{
    while (0 != gpusym_queue_end(queue, NULL)) {
    }
    return 0 == gpusym_queue_under_way(queue);
}

#endif
