/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams: a worker thread each, with a queue of items; what is queued while one is captured becomes a graph.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_setname_np */
#endif

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/sim/sim_internal.h"

/* Items for which an empty queue has room. More are some 100 KiB, which a stream would have for good. */
#define ROOM_KEPT 16u

struct gpusym_stream {
    pthread_mutex_t lock; /* covers all but pending; capture is read without it */
    pthread_cond_t more;  /* an item was queued, or quit was set */
    bool started, quit;   /* quit: atomic, as waits for a flag read it without the lock */
    pthread_t worker;     /* if started */
    sim_item_t *ring;     /* the queue: n items from head on, modulo room */
    unsigned head, n, room;
    unsigned pending;            /* atomic: items queued or running; the worker counts down after each */
    gpusym_sim_graph_t *capture; /* atomic: that it is captured into; NULL: none */
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
        if (0 == stream->n && stream->room > ROOM_KEPT) {
            free(stream->ring);
            stream->ring = NULL;
            stream->head = stream->room = 0;
        }
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

/* Makes room for n more items; the caller holds the lock. */
static int stream_room(gpusym_stream_t *stream, unsigned n)
{
    unsigned room = stream->room;
    while (room < stream->n + n) {
        room = 0 == room ? ROOM_KEPT : 2 * room;
    }
    if (room == stream->room) {
        return GPUSYM_SUCCESS;
    }
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

/* Queues n items, and takes over their pins, all or none. */
static int stream_push(gpusym_stream_t *stream, const sim_item_t *item, unsigned n)
{
    pthread_mutex_lock(&stream->lock);
    int rc = stream_room(stream, n);
    if (GPUSYM_SUCCESS == rc && !stream->started) {
        rc = stream_start(stream);
    }
    if (GPUSYM_SUCCESS == rc) {
        for (unsigned i = 0; i < n; i++) {
            stream->ring[(stream->head + stream->n++) % stream->room] = item[i];
        }
        __atomic_fetch_add(&stream->pending, n, __ATOMIC_RELAXED);
        pthread_cond_signal(&stream->more);
    }
    pthread_mutex_unlock(&stream->lock);
    return rc;
}

/* Lets its worker end, once the queue is empty; what it waits for it waits for no more. */
static void stream_quit(gpusym_stream_t *stream)
{
    pthread_mutex_lock(&stream->lock);
    __atomic_store_n(&stream->quit, true, __ATOMIC_RELAXED);
    pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&stream->lock);
}

/* Frees a stream that is in no list, once its queue is empty. */
static void stream_end(gpusym_stream_t *stream)
{
    stream_quit(stream);
    if (stream->started) {
        pthread_join(stream->worker, NULL);
    }
    pthread_cond_destroy(&stream->more);
    pthread_mutex_destroy(&stream->lock);
    if (NULL != stream->capture) {
        gpusym_sim_graph_destroy(stream->capture);
    }
    free(stream->ring);
    free(stream);
}

/* ---- captures ---- */

int sim_stream_captured(gpusym_stream_t *stream, bool *captured)
{
    pthread_mutex_lock(&stream->lock);
    *captured = NULL != stream->capture;
    pthread_mutex_unlock(&stream->lock);
    return GPUSYM_SUCCESS;
}

int sim_stream_capture(gpusym_stream_t *stream)
{
    gpusym_sim_graph_t *graph = calloc(1, sizeof(*graph));
    if (NULL == graph) {
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
    }
    pthread_mutex_lock(&stream->lock);
    const bool already = NULL != stream->capture;
    if (!already) {
        __atomic_store_n(&stream->capture, graph, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&stream->lock);
    if (already) {
        free(graph);
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "the stream is being captured already");
    }
    return GPUSYM_SUCCESS;
}

int sim_stream_capture_end(gpusym_stream_t *stream, gpusym_sim_graph_t **graph)
{
    pthread_mutex_lock(&stream->lock);
    *graph = stream->capture;
    __atomic_store_n(&stream->capture, NULL, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&stream->lock);
    if (NULL == *graph) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "the stream is not being captured");
    }
    return GPUSYM_SUCCESS;
}

/* Adds items to a graph, as they were asked for. */
static int graph_add(gpusym_sim_graph_t *graph, const sim_item_t *asked, unsigned n)
{
    if (SIM_ITEM_RECORD == asked->what || SIM_ITEM_WAIT == asked->what) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "the stream is being captured: the simulator has no events of graphs");
    }
    while (graph->room < graph->n + n) {
        const unsigned room = 0 == graph->room ? 4 : 2 * graph->room;
        sim_item_t *more = realloc(graph->item, room * sizeof(*more));
        if (NULL == more) {
            return sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
        }
        graph->item = more;
        graph->room = room;
    }
    memcpy(graph->item + graph->n, asked, n * sizeof(*asked));
    graph->n += n;
    return GPUSYM_SUCCESS;
}

void gpusym_sim_graph_destroy(gpusym_sim_graph_t *graph)
{
    if (NULL != graph) {
        free(graph->item);
        free(graph);
    }
}

/* ---- items ---- */

int sim_stream_queue(gpusym_stream_t *stream, const sim_item_t *asked, unsigned n)
{
    if (0 == n) {
        return GPUSYM_SUCCESS;
    }
    pthread_mutex_lock(&stream->lock);
    const bool captured = NULL != stream->capture;
    const int added = captured ? graph_add(stream->capture, asked, n) : GPUSYM_SUCCESS;
    pthread_mutex_unlock(&stream->lock);
    if (captured) {
        return added;
    }
    sim_item_t *item = malloc(n * sizeof(*item));
    if (NULL == item) {
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
    }
    unsigned made = 0;
    int rc = GPUSYM_SUCCESS;
    while (made < n && GPUSYM_SUCCESS == (rc = sim_item_prepare(&item[made], &asked[made]))) {
        const bool copies = SIM_ITEM_COPY == item[made].what || SIM_ITEM_COPY2D == item[made].what;
        const bool freezes = SIM_ITEM_KERNEL == item[made].what && sim_fault_due(SIM_FAULT_FREEZE);
        if (freezes || (copies && sim_fault_due(SIM_FAULT_STALL))) {
            item[made].what = SIM_ITEM_STALL;
        }
        made++;
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = stream_push(stream, item, n);
    }
    for (; GPUSYM_SUCCESS != rc && made > 0; made--) {
        sim_item_unpin(&item[made - 1]);
    }
    free(item);
    return rc;
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

int sim_stream_check(const gpusym_stream_t *stream)
{
    pthread_mutex_lock(&streams.lock);
    const gpusym_stream_t *s = streams.first;
    while (NULL != s && stream != s) {
        s = s->next;
    }
    pthread_mutex_unlock(&streams.lock);
    return NULL != s ? GPUSYM_SUCCESS
                     : sim_fail(GPUSYM_ERR_BAD_PARAM, "%p is not a stream of the simulator", (const void *) stream);
}

int sim_stream_wrap(gpusym_gpu_t *gpu, void *handle, gpusym_stream_t **stream)
{
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS == rc) {
        rc = sim_stream_check(handle);
    }
    if (GPUSYM_SUCCESS == rc) {
        *stream = handle;
    }
    return rc;
}

void sim_stream_unwrap(gpusym_stream_t *stream)
{
    (void) stream;
}

int sim_stream_poll(gpusym_stream_t *stream)
{
    if (NULL != __atomic_load_n(&stream->capture, __ATOMIC_RELAXED)) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "the stream is being captured: its work does not end");
    }
    return sim_broken() ? GPUSYM_ERR : 0 == __atomic_load_n(&stream->pending, __ATOMIC_ACQUIRE);
}

static bool all_idle(void)
{
    pthread_mutex_lock(&streams.lock);
    const gpusym_stream_t *s = streams.first;
    while (NULL != s && 0 == __atomic_load_n(&s->pending, __ATOMIC_ACQUIRE)) {
        s = s->next;
    }
    pthread_mutex_unlock(&streams.lock);
    return NULL == s;
}

int gpusym_sim_synchronize(void)
{
    for (unsigned tries = 0; !all_idle(); tries++) { /* counted down by the streams' workers */
        sim_nap(tries);
    }
    return GPUSYM_SUCCESS;
}

void sim_streams_close(void)
{
    pthread_mutex_lock(&streams.lock);
    gpusym_stream_t *stream = streams.first;
    streams.first = NULL;
    pthread_mutex_unlock(&streams.lock);
    for (gpusym_stream_t *s = stream; NULL != s; s = s->next) {
        stream_quit(s); /* one may wait for another */
    }
    while (NULL != stream) {
        gpusym_stream_t *next = stream->next;
        stream_end(stream);
        stream = next;
    }
}
