/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams: a worker thread each, with a queue of items.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_setname_np */
#endif

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/sim/sim_internal.h"

struct gpusym_stream {
    pthread_mutex_t lock; /* covers all but pending */
    pthread_cond_t more;  /* an item was queued, or quit was set */
    bool started, quit;   /* quit: atomic, as waits for a flag read it without the lock */
    pthread_t worker;     /* if started */
    sim_item_t *ring;     /* the queue: n items from head on, modulo room */
    unsigned head, n, room;
    unsigned pending; /* atomic: items queued or running; the worker counts down after each */
    gpusym_stream_t *next;
};

/* All streams. */
static struct {
    pthread_mutex_t lock;
    gpusym_stream_t *first;
} streams = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the queue and its worker ---- */

static void *stream_work(void *arg)
{
    gpusym_stream_t *stream = arg;
    sim_item_t item;

    pthread_setname_np(pthread_self(), "gpusym-sim");
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        /* written by stream_push or stream_end, of any thread */
        while (0 == stream->n && !stream->quit) {
            pthread_cond_wait(&stream->more, &stream->lock);
        }
        if (0 == stream->n) {
            break;
        }
        item = stream->ring[stream->head];
        stream->head = (stream->head + 1) % stream->room;
        stream->n--;
        pthread_mutex_unlock(&stream->lock);
        sim_item_run(&item, &stream->quit);
        sim_item_unpin(&item);
        __atomic_fetch_sub(&stream->pending, 1, __ATOMIC_RELEASE);
        pthread_mutex_lock(&stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* Starts the worker. It blocks all signals but those of its own faults: a program's handlers run in its own threads. */
static int stream_start(gpusym_stream_t *stream)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t blocked, saved;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(&blocked, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &saved);
    int err = pthread_create(&stream->worker, NULL, stream_work, stream);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    if (0 != err) {
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "pthread_create: %s", strerror(err));
    }
    stream->started = true;
    return GPUSYM_SUCCESS;
}

/* Makes room for one more item; the caller holds the lock. */
static int stream_room(gpusym_stream_t *stream)
{
    if (stream->n < stream->room) {
        return GPUSYM_SUCCESS;
    }
    unsigned room = 0 == stream->room ? 16 : 2 * stream->room;
    sim_item_t *ring = malloc(room * sizeof(*ring));
    if (NULL == ring) {
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
    }
    for (unsigned i = 0; i < stream->n; i++) {
        ring[i] = stream->ring[(stream->head + i) % stream->room];
    }
    free(stream->ring);
    stream->ring = ring;
    stream->room = room;
    stream->head = 0;
    return GPUSYM_SUCCESS;
}

/* Queues an item, and takes over its pins, even if it cannot queue it. */
static int stream_push(gpusym_stream_t *stream, sim_item_t *item)
{
    pthread_mutex_lock(&stream->lock);
    int rc = stream_room(stream);
    if (GPUSYM_SUCCESS == rc && !stream->started) {
        rc = stream_start(stream);
    }
    if (GPUSYM_SUCCESS == rc) {
        stream->ring[(stream->head + stream->n) % stream->room] = *item;
        stream->n++;
        __atomic_fetch_add(&stream->pending, 1, __ATOMIC_RELAXED);
        pthread_cond_signal(&stream->more);
    }
    pthread_mutex_unlock(&stream->lock);
    if (GPUSYM_SUCCESS != rc) {
        sim_item_unpin(item);
    }
    return rc;
}

/* Frees a stream that is in no list, once its queue is empty. */
static void stream_end(gpusym_stream_t *stream)
{
    pthread_mutex_lock(&stream->lock);
    __atomic_store_n(&stream->quit, true, __ATOMIC_RELAXED);
    pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&stream->lock);
    if (stream->started) {
        pthread_join(stream->worker, NULL);
    }
    pthread_cond_destroy(&stream->more);
    pthread_mutex_destroy(&stream->lock);
    free(stream->ring);
    free(stream);
}

/* ---- streams ---- */

int sim_stream_create(gpusym_gpu_t *gpu, gpusym_stream_t **out)
{
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (sim_fault_due(SIM_FAULT_STREAM)) {
        return GPUSYM_ERR;
    }
    gpusym_stream_t *stream = calloc(1, sizeof(*stream));
    if (NULL == stream) {
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
    }
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->more, NULL);
    pthread_mutex_lock(&streams.lock);
    stream->next = streams.first;
    streams.first = stream;
    pthread_mutex_unlock(&streams.lock);
    *out = stream;
    return GPUSYM_SUCCESS;
}

void sim_stream_destroy(gpusym_stream_t *stream)
{
    pthread_mutex_lock(&streams.lock);
    gpusym_stream_t **link = &streams.first;
    while (NULL != *link && stream != *link) {
        link = &(*link)->next;
    }
    bool ours = NULL != *link;
    if (ours) {
        *link = stream->next;
    }
    pthread_mutex_unlock(&streams.lock);
    if (ours) {
        stream_end(stream);
    }
}

int sim_stream_poll(gpusym_stream_t *stream)
{
    return 0 == __atomic_load_n(&stream->pending, __ATOMIC_ACQUIRE);
}

void sim_streams_close(void)
{
    pthread_mutex_lock(&streams.lock);
    gpusym_stream_t *stream = streams.first;
    streams.first = NULL;
    pthread_mutex_unlock(&streams.lock);
    while (NULL != stream) {
        gpusym_stream_t *next = stream->next;
        stream_end(stream);
        stream = next;
    }
}

/* ---- work ---- */

int sim_launch(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    if (kernel >= GPUSYM_K_COUNT || 0 == w->nranks || w->nranks > GPUSYM_TEAM_MAX || 0 == w->nblocks ||
        w->nblocks > GPUSYM_BLOCKS_MAX || 0 == w->nthreads || w->nthreads > GPUSYM_THREADS_MAX) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "kernel %u cannot be launched for %u ranks with %u blocks of %u threads",
                        kernel, (unsigned) w->nranks, (unsigned) w->nblocks, (unsigned) w->nthreads);
    }
    bool hang = sim_fault_due(SIM_FAULT_HANG);
    if (sim_fault_due(SIM_FAULT_LAUNCH)) {
        return GPUSYM_ERR;
    }
    sim_item_t item = {.what = hang ? SIM_ITEM_NOTHING : SIM_ITEM_KERNEL, .kernel = kernel, .npins = 0};
    int rc = sim_item_kernel(&item, w);
    return GPUSYM_SUCCESS != rc ? rc : stream_push(stream, &item);
}

/* The last launch made by it, from which the next may differ. */
struct gpusym_graph {
    unsigned kernel;
    gpusym_work_t work;
};

int sim_graph_launch(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    if (NULL == *graph) {
        if (sim_fault_due(SIM_FAULT_GRAPH)) {
            return GPUSYM_ERR;
        }
        *graph = malloc(sizeof(**graph));
        if (NULL == *graph) {
            return sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
        }
    }
    **graph = (struct gpusym_graph){.kernel = kernel, .work = *w};
    return sim_launch(stream, (*graph)->kernel, &(*graph)->work);
}

void sim_graph_destroy(gpusym_graph_t *graph)
{
    free(graph);
}

int sim_copy(gpusym_gpu_t *gpu, void *dst, const void *src, size_t size)
{
    sim_item_t item = {.npins = 0};
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc || 0 == size) {
        return rc;
    }
    if (sim_fault_due(SIM_FAULT_COPY)) {
        return GPUSYM_ERR;
    }
    rc = sim_item_copy(&item, dst, src, size);
    if (GPUSYM_SUCCESS == rc) {
        sim_item_run(&item, NULL);
        sim_item_unpin(&item);
    }
    return rc;
}

int sim_copy_async(gpusym_stream_t *stream, void *dst, const void *src, size_t size)
{
    if (0 == size) {
        return GPUSYM_SUCCESS;
    }
    if (sim_fault_due(SIM_FAULT_COPY)) {
        return GPUSYM_ERR;
    }
    sim_item_t item = {.npins = 0};
    int rc = sim_item_copy(&item, dst, src, size);
    return GPUSYM_SUCCESS != rc ? rc : stream_push(stream, &item);
}

int sim_copy2d_async(gpusym_stream_t *stream, void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                     size_t height)
{
    if (0 == width || 0 == height) {
        return GPUSYM_SUCCESS;
    }
    if (sim_fault_due(SIM_FAULT_COPY)) {
        return GPUSYM_ERR;
    }
    sim_item_t item = {.npins = 0, .size = width, .dpitch = dpitch, .spitch = spitch, .rows = height};
    int rc = sim_item_copy2d(&item, dst, src);
    return GPUSYM_SUCCESS != rc ? rc : stream_push(stream, &item);
}

int sim_stream_flags(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n)
{
    while (n > 0) {
        sim_item_t item = {.npins = 0};
        int rc = GPUSYM_SUCCESS;
        for (; n > 0 && item.nflags < SIM_FLAGS_MAX && GPUSYM_SUCCESS == rc; n--, flags++) {
            rc = sim_item_flag(&item, flags);
        }
        if (GPUSYM_SUCCESS == rc) {
            rc = stream_push(stream, &item);
        }
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
    }
    return GPUSYM_SUCCESS;
}
