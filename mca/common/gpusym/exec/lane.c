/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Lanes: see lane.h.
 */
#include "mca/common/gpusym/exec/lane.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/trace.h"

/* How long closing waits for a stream: longer than a resident kernel that was told to retire runs
 * (coll_gpusym_linger). */
#define CLOSE_NS 5000000000ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gpusym_lane_t *free_lanes; /* under the lock */

static int lane_make(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_lane_t **out)
{
    void *host, *line;
    gpusym_lane_t *lane = calloc(1, sizeof *lane);
    if (NULL == lane) {
        gpusym_log_no_memory("a lane");
        return GPUSYM_ERR_NO_MEMORY;
    }
    lane->dev = dev;
    lane->gpu = gpu;
    int rc = dev->stream_create(gpu, &lane->stream);
    if (GPUSYM_SUCCESS != rc) {
        goto free_lane;
    }
    rc = dev->host_alloc(gpu, sizeof(gpusym_lane_line_t), &host, &line);
    if (GPUSYM_SUCCESS != rc) {
        goto free_stream;
    }
    lane->host = host;
    lane->line = line;
    *out = lane;
    return GPUSYM_SUCCESS;

free_stream:
    dev->stream_destroy(lane->stream);
free_lane:
    free(lane);
    return rc;
}

int gpusym_lane_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_lane_t **lane)
{
    pthread_mutex_lock(&lock);
    gpusym_lane_t **link = &free_lanes;
    while (NULL != *link && (*link)->gpu != gpu) {
        link = &(*link)->next;
    }
    *lane = *link;
    if (NULL != *link) {
        *link = (*link)->next;
    }
    pthread_mutex_unlock(&lock);
    return NULL != *lane ? GPUSYM_SUCCESS : lane_make(dev, gpu, lane);
}

int gpusym_lane_await(const gpusym_lane_t *lane)
{
    int idle;
    while (0 == (idle = lane->dev->stream_poll(lane->stream))) {
        if (lane->dev->simulated) {
            sched_yield(); /* its streams are threads of this host */
        }
    }
    return idle;
}

void gpusym_lane_put(gpusym_lane_t *lane)
{
    pthread_mutex_lock(&lock);
    lane->next = free_lanes;
    free_lanes = lane;
    pthread_mutex_unlock(&lock);
}

/* Waits for the stream, for CLOSE_NS at most. Returns whether its work has ended, or its context is gone. */
static bool wait_idle(const gpusym_lane_t *lane)
{
    const uint64_t start = gpusym_now_ns();
    int state;
    if (!gpusym_lane_alive(lane)) {
        return true;
    }
    /* A kernel that was told to retire may still poll the doorbell: it sees the command, or its time runs out. */
    while (0 == (state = lane->dev->stream_poll(lane->stream)) && gpusym_now_ns() - start < CLOSE_NS) {
        sched_yield();
    }
    return 0 != state;
}

static void lane_end(gpusym_lane_t *lane)
{
    if (!wait_idle(lane)) { /* destroying it might never return: the kernel keeps what it uses until the process ends */
        return;
    }
    if (NULL != lane->graph) {
        lane->dev->graph_destroy(lane->graph);
    }
    if (NULL != lane->clusters) {
        lane->dev->graph_destroy(lane->clusters);
    }
    lane->dev->stream_destroy(lane->stream);
    lane->dev->host_free(lane->gpu, lane->host);
    free(lane);
}

void gpusym_lanes_close(void)
{
    pthread_mutex_lock(&lock);
    while (NULL != free_lanes) {
        gpusym_lane_t *lane = free_lanes;
        free_lanes = lane->next;
        lane_end(lane);
    }
    pthread_mutex_unlock(&lock);
}

/* The time that GPUSYM_TIME has put there, if it is of that operation, else 0. */
static uint64_t time_of(uint64_t time, uint32_t seq)
{
    return time >> 48 == (seq & 0xffffu) ? GPUSYM_TIME(0, time) : 0;
}

void gpusym_lane_times(const uint64_t words[3], uint64_t times[2])
{
    const uint32_t seq = (uint32_t) (words[0] >> 32), took = GPUSYM_STATUS_TOOK((uint32_t) words[0]);
    times[0] = time_of(words[2], seq);
    times[1] = time_of(words[1], seq);
    if (0 != took && GPUSYM_TOOK_MAX != took && 0 != times[1]) {
        times[0] = GPUSYM_TIME(0, times[1] - (uint64_t) took * GPUSYM_TOOK_NS);
    }
}

static void write_doorbell(gpusym_lane_t *lane, const void *in, void *out, uint64_t bytes, uint32_t skip)
{
    __atomic_store_n(&lane->host->doorbell[1],
                     (uint64_t) (uintptr_t) out << 16 | (bytes & 0xff00u) | (uint64_t) (skip >> 2 & 3) << 6 |
                         (bytes >> 16 & 3) << 4 | (lane->seq & GPUSYM_COMMAND_NUMBER_AGAIN),
                     __ATOMIC_RELEASE);
    __atomic_store_n(&lane->host->doorbell[0],
                     (uint64_t) (uintptr_t) in << 16 | (bytes & 0xffu) << 8 | (uint64_t) (skip & 3) << 6 |
                         (uint64_t) (skip & GPUSYM_COMMAND_EARLY) << 1 | (lane->seq & GPUSYM_COMMAND_NUMBER),
                     __ATOMIC_RELEASE);
}

void gpusym_lane_command(gpusym_lane_t *lane, const void *in, void *out, uint64_t bytes, uint32_t skip)
{
    lane->seq++;
    GPUSYM_TRACE(COMMAND, bytes, lane->seq);
    write_doorbell(lane, in, out, bytes, skip);
}

void gpusym_lane_retire(gpusym_lane_t *lane)
{
    gpusym_lane_command(lane, NULL, NULL, 0, 0);
}

void gpusym_lane_begin(gpusym_lane_t *lane, gpusym_work_t *w)
{
    lane->seq++;
    __atomic_store_n(&lane->host->abort, 0u, __ATOMIC_RELAXED); /* a kernel that was retired may still poll it */
    write_doorbell(lane, NULL, NULL, 0,
                   0); /* of this operation: nothing new to its own kernel, and to one before it: retire */
    w->doorbell = lane->line->doorbell;
    w->done = &lane->line->done;
    w->abort = &lane->line->abort;
    w->done_seq = lane->seq;
}

int gpusym_lane_more(gpusym_lane_t *lane, unsigned kernel, const gpusym_work_t *w)
{
    if (NULL != lane->dev->graph_launch) {
        const int rc = lane->dev->graph_launch(&lane->graph, lane->stream, kernel, w);
        if (GPUSYM_SUCCESS == rc || NULL != lane->graph) {
            return rc;
        }
    }
    return lane->dev->launch(lane->stream, kernel, w);
}

int gpusym_lane_launch(gpusym_lane_t *lane, unsigned kernel, gpusym_work_t *w)
{
    gpusym_lane_begin(lane, w);
    GPUSYM_TRACE(LAUNCH, kernel, lane->seq);
    return lane->dev->launch(lane->stream, kernel, w);
}

int gpusym_lane_launch_graph(gpusym_lane_t *lane, unsigned kernel, gpusym_work_t *w, gpusym_graph_t **graph)
{
    gpusym_lane_begin(lane, w);
    GPUSYM_TRACE(LAUNCH, kernel, lane->seq);
    return lane->dev->graph_launch(graph, lane->stream, kernel, w);
}
