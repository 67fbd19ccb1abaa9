/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams of a program: see sim.h.
 */
#include <stdlib.h>

#include "mca/common/gpusym/device/sim/sim_internal.h"

/* ---- streams ---- */

int gpusym_sim_stream_create(gpusym_stream_t **stream)
{
    return sim_stream_create(&sim.gpu, stream);
}

int gpusym_sim_stream_query(gpusym_stream_t *stream)
{
    const int rc = sim_stream_check(stream);
    return GPUSYM_SUCCESS == rc ? sim_stream_poll(stream) : rc;
}

int gpusym_sim_stream_synchronize(gpusym_stream_t *stream)
{
    int done;
    /* counted down by the stream's worker, after each item */
    for (unsigned tries = 0; 0 == (done = gpusym_sim_stream_query(stream)); tries++) {
        sim_nap(tries);
    }
    return 1 == done ? GPUSYM_SUCCESS : done;
}

int gpusym_sim_stream_destroy(gpusym_stream_t *stream)
{
    const int rc = gpusym_sim_stream_synchronize(stream);
    if (GPUSYM_SUCCESS == rc) {
        sim_stream_destroy(stream);
    }
    return rc;
}

/* sim_stream_queue() on what may be no stream. */
static int program_queue(gpusym_stream_t *stream, const sim_item_t *asked, unsigned n)
{
    const int rc = sim_stream_check(stream);
    return GPUSYM_SUCCESS == rc ? sim_stream_queue(stream, asked, n) : rc;
}

int gpusym_sim_stream_copy(gpusym_stream_t *stream, void *dst, const void *src, size_t size)
{
    const sim_item_t asked = {.what = SIM_ITEM_COPY, .dst = dst, .src = src, .size = size};
    return program_queue(stream, &asked, 0 == size ? 0 : 1);
}

int gpusym_sim_stream_call(gpusym_stream_t *stream, void (*function)(void *), void *argument)
{
    const sim_item_t asked = {.what = SIM_ITEM_CALL, .function = function, .argument = argument};
    return program_queue(stream, &asked, 1);
}

/* ---- graphs ---- */

int gpusym_sim_stream_capture(gpusym_stream_t *stream)
{
    const int rc = sim_stream_check(stream);
    return GPUSYM_SUCCESS == rc ? sim_stream_capture(stream) : rc;
}

int gpusym_sim_stream_capture_end(gpusym_stream_t *stream, gpusym_sim_graph_t **graph)
{
    const int rc = sim_stream_check(stream);
    return GPUSYM_SUCCESS == rc ? sim_stream_capture_end(stream, graph) : rc;
}

int gpusym_sim_graph_launch(gpusym_sim_graph_t *graph, gpusym_stream_t *stream)
{
    return program_queue(stream, graph->item, graph->n);
}

/* ---- events ---- */

struct gpusym_sim_event {
    pthread_mutex_t lock;
    sim_mark_t *mark; /* of the last record, kept; NULL: there was none */
};

int gpusym_sim_event_create(gpusym_sim_event_t **event)
{
    *event = calloc(1, sizeof(**event));
    if (NULL == *event) {
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
    }
    pthread_mutex_init(&(*event)->lock, NULL);
    return GPUSYM_SUCCESS;
}

/* The mark of the last record, kept once more; NULL: there was none. */
static sim_mark_t *event_mark(gpusym_sim_event_t *event)
{
    pthread_mutex_lock(&event->lock);
    sim_mark_t *mark = event->mark;
    if (NULL != mark) {
        sim_mark_keep(mark);
    }
    pthread_mutex_unlock(&event->lock);
    return mark;
}

/* Drops the mark of the last record for another one. */
static void event_set(gpusym_sim_event_t *event, sim_mark_t *mark)
{
    pthread_mutex_lock(&event->lock);
    sim_mark_t *last = event->mark;
    event->mark = mark;
    pthread_mutex_unlock(&event->lock);
    if (NULL != last) {
        sim_mark_drop(last);
    }
}

void gpusym_sim_event_destroy(gpusym_sim_event_t *event)
{
    event_set(event, NULL);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

int gpusym_sim_event_record(gpusym_sim_event_t *event, gpusym_stream_t *stream)
{
    const sim_item_t asked = {.what = SIM_ITEM_RECORD, .mark = sim_mark_new()};
    if (NULL == asked.mark) {
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
    }
    const int rc = program_queue(stream, &asked, 1);
    if (GPUSYM_SUCCESS == rc) {
        event_set(event, asked.mark);
    } else {
        sim_mark_drop(asked.mark);
    }
    return rc;
}

int gpusym_sim_event_query(gpusym_sim_event_t *event)
{
    sim_mark_t *mark = event_mark(event);
    if (NULL == mark) {
        return 1;
    }
    const bool reached = sim_mark_reached(mark);
    sim_mark_drop(mark);
    return reached;
}

int gpusym_sim_stream_wait(gpusym_stream_t *stream, gpusym_sim_event_t *event)
{
    const sim_item_t asked = {.what = SIM_ITEM_WAIT, .mark = event_mark(event)};
    const int rc = program_queue(stream, &asked, NULL == asked.mark ? 0 : 1);
    if (NULL != asked.mark) {
        sim_mark_drop(asked.mark);
    }
    return rc;
}
