/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams and events.  Open MPI makes hundreds of events in MPI_Init, and two streams, for programs that may never use
 * a GPU.  So an event is a number, and a stream gets its queue on a GPU with its first copy.
 */
#include "mca/accelerator/gpusym/accelerator_gpusym.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* What opal_accelerator_stream_t.stream points to.  The stream and each event recorded on it hold it. */
typedef struct {
    pthread_mutex_t lock; /* covers the rest */
    unsigned holders;
    gpusym_gpu_t *gpu;
    gpusym_stream_t *queue; /* NULL: nothing has been queued yet */
    uint64_t queued;        /* operations */
    uint64_t done;          /* of those, how many have ended for sure */
} queue_t;

/* What opal_accelerator_event_t.event points to. */
typedef struct {
    queue_t *on;     /* the stream that it was recorded on; NULL: not recorded */
    uint64_t number; /* complete when so many operations of that stream have ended */
    bool shared;
} mark_t;

/* ---- queues ---- */

static queue_t *queue_new(void)
{
    queue_t *q = calloc(1, sizeof(*q));

    if (NULL != q) {
        pthread_mutex_init(&q->lock, NULL);
        q->holders = 1;
    }
    return q;
}

static void queue_hold(queue_t *q)
{
    pthread_mutex_lock(&q->lock);
    q->holders++;
    pthread_mutex_unlock(&q->lock);
}

static void queue_drop(queue_t *q)
{
    pthread_mutex_lock(&q->lock);
    const unsigned left = --q->holders;
    pthread_mutex_unlock(&q->lock);
    if (0 != left) {
        return;
    }
    if (NULL != q->queue && NULL != gpusym_current.dev) {
        gpusym_current.dev->stream_destroy(q->queue);
    }
    pthread_mutex_destroy(&q->lock);
    free(q);
}

/* With the lock held: makes the queue on the GPU of its first copy.  A copy of another GPU's memory may use it too. */
static int queue_need(queue_t *q, gpusym_gpu_t *gpu)
{
    const gpusym_device_t *dev = gpusym_current.dev;

    if (NULL != q->queue && !dev->gpu_alive(q->gpu)) { /* the program has reset the GPU, and what was queued is gone */
        dev->stream_destroy(q->queue);
        q->queue = NULL;
        q->done = q->queued;
    }
    if (NULL != q->queue) {
        return GPUSYM_SUCCESS;
    }
    q->gpu = gpu;
    return dev->stream_create(gpu, &q->queue);
}

/* Whether the first `number` operations have ended: OPAL_SUCCESS, OPAL_ERR_RESOURCE_BUSY, or an error. The device tells
 * only whether all have; a stream that never runs dry reports its events late. */
static int queue_poll(queue_t *q, uint64_t number)
{
    int state = 1;

    pthread_mutex_lock(&q->lock);
    if (q->done < number && NULL != q->queue) {
        state = gpusym_current.dev->stream_poll(q->queue);
    }
    if (state > 0 && q->done < number) {
        q->done = q->queued;
    }
    pthread_mutex_unlock(&q->lock);
    return state > 0 ? OPAL_SUCCESS : 0 == state ? OPAL_ERR_RESOURCE_BUSY : accelerator_code(state, "A copy", 0);
}

/* Waits for all that is queued now: copies of the GPU, which wait for nobody. */
static int queue_wait(queue_t *q)
{
    int rc;

    pthread_mutex_lock(&q->lock);
    const uint64_t number = q->queued;
    pthread_mutex_unlock(&q->lock);
    while (OPAL_ERR_RESOURCE_BUSY == (rc = queue_poll(q, number))) {
        sched_yield();
    }
    return rc;
}

/* ---- streams ---- */

static void stream_construct(opal_accelerator_stream_t *stream)
{
    stream->stream = queue_new();
}

static void stream_destruct(opal_accelerator_stream_t *stream)
{
    if (NULL != stream->stream) {
        queue_drop(stream->stream);
    }
}

typedef opal_accelerator_stream_t accelerator_gpusym_stream_t;
OBJ_CLASS_DECLARATION(accelerator_gpusym_stream_t);
OBJ_CLASS_INSTANCE(accelerator_gpusym_stream_t, opal_object_t, stream_construct, stream_destruct);

int accelerator_create_stream(int dev_id, opal_accelerator_stream_t **stream)
{
    (void) dev_id;
    *stream = OBJ_NEW(accelerator_gpusym_stream_t);
    if (NULL != *stream && NULL == (*stream)->stream) {
        OBJ_RELEASE(*stream);
        *stream = NULL;
    }
    return NULL != *stream ? OPAL_SUCCESS : OPAL_ERR_OUT_OF_RESOURCE;
}

/* The stream that stands for the driver's default one, under `lock`. */
static struct {
    pthread_mutex_t lock;
    queue_t *queue;
} standard = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* NULL: there is no host memory. */
static queue_t *queue_of(opal_accelerator_stream_t *stream)
{
    queue_t *q;

    if (NULL != stream && !GPUSYM_IS_DEFAULT_STREAM(stream)) {
        return stream->stream;
    }
    pthread_mutex_lock(&standard.lock);
    if (NULL == standard.queue) {
        standard.queue = queue_new();
    }
    q = standard.queue;
    pthread_mutex_unlock(&standard.lock);
    return q;
}

void accelerator_streams_close(void)
{
    if (NULL != standard.queue) {
        queue_drop(standard.queue);
        standard.queue = NULL;
    }
}

int accelerator_sync_stream(opal_accelerator_stream_t *stream)
{
    queue_t *q = queue_of(stream);

    return NULL != q ? queue_wait(q) : OPAL_ERR_OUT_OF_RESOURCE;
}

int accelerator_mem_copy_async(int dst_id, int src_id, void *dst, const void *src, size_t size,
                               opal_accelerator_stream_t *stream, accelerator_transfer_t type)
{
    queue_t *q = queue_of(stream);
    gpusym_gpu_t *gpu;
    int rc;

    (void) dst_id;
    (void) src_id;
    (void) type;
    if (NULL == q || 0 == size) {
        return NULL != q ? OPAL_SUCCESS : OPAL_ERR_OUT_OF_RESOURCE;
    }
    rc = accelerator_gpu_of(dst, src, &gpu);
    if (OPAL_SUCCESS != rc) {
        return rc;
    }
    if (NULL == gpu) { /* host to host, in the stream's order */
        rc = queue_wait(q);
        memcpy(dst, src, size);
        return rc;
    }
    pthread_mutex_lock(&q->lock);
    rc = queue_need(q, gpu);
    if (GPUSYM_SUCCESS == rc) {
        rc = gpusym_current.dev->copy_async(q->queue, dst, src, size);
        q->queued++;
    }
    pthread_mutex_unlock(&q->lock);
    return accelerator_code(rc, "A copy", size);
}

/* The rest is rare, and does its work after the stream's. */
int accelerator_mem_move_async(int dst_id, int src_id, void *dst, const void *src, size_t size,
                               opal_accelerator_stream_t *stream, accelerator_transfer_t type)
{
    const int rc = accelerator_sync_stream(stream);

    return OPAL_SUCCESS != rc ? rc : accelerator_mem_move(dst_id, src_id, dst, src, size, type);
}

int accelerator_mem_alloc_stream(int dev_id, void **p, size_t size, opal_accelerator_stream_t *stream)
{
    (void) stream;
    return accelerator_mem_alloc(dev_id, p, size);
}

int accelerator_mem_release_stream(int dev_id, void *p, opal_accelerator_stream_t *stream)
{
    const int rc = accelerator_sync_stream(stream);

    return OPAL_SUCCESS != rc ? rc : accelerator_mem_release(dev_id, p);
}

/* ---- events ---- */

static void mark_clear(mark_t *mark)
{
    if (NULL != mark->on) {
        queue_drop(mark->on);
        mark->on = NULL;
    }
}

static void event_construct(opal_accelerator_event_t *event)
{
    event->event = calloc(1, sizeof(mark_t));
}

static void event_destruct(opal_accelerator_event_t *event)
{
    if (NULL != event->event) {
        mark_clear(event->event);
        free(event->event);
    }
}

OBJ_CLASS_INSTANCE(accelerator_gpusym_event_t, opal_object_t, event_construct, event_destruct);

int accelerator_create_event(int dev_id, opal_accelerator_event_t **event, bool shared)
{
    (void) dev_id;
    *event = OBJ_NEW(accelerator_gpusym_event_t);
    if (NULL != *event && NULL == (*event)->event) {
        OBJ_RELEASE(*event);
        *event = NULL;
    }
    if (NULL == *event) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    ((mark_t *) (*event)->event)->shared = shared;
    return OPAL_SUCCESS;
}

int accelerator_record_event(int dev_id, opal_accelerator_event_t *event, opal_accelerator_stream_t *stream)
{
    queue_t *q = queue_of(stream);
    mark_t *mark;

    (void) dev_id;
    if (NULL == q || NULL == event || NULL == event->event) {
        return OPAL_ERR_BAD_PARAM;
    }
    mark = event->event;
    mark_clear(mark);
    if (mark->shared) {
        return queue_wait(q);
    }
    queue_hold(q);
    mark->on = q;
    pthread_mutex_lock(&q->lock);
    mark->number = q->queued;
    pthread_mutex_unlock(&q->lock);
    return OPAL_SUCCESS;
}

/* An event that was never recorded is complete, as the driver's are. */
int accelerator_query_event(int dev_id, opal_accelerator_event_t *event)
{
    const mark_t *mark;

    (void) dev_id;
    if (NULL == event || NULL == event->event) {
        return OPAL_ERR_BAD_PARAM;
    }
    mark = event->event;
    return NULL == mark->on ? OPAL_SUCCESS : queue_poll(mark->on, mark->number);
}

/* What is queued on the stream later comes later, because the caller waits. */
int accelerator_wait_event(int dev_id, opal_accelerator_event_t *event, opal_accelerator_stream_t *stream)
{
    int rc;

    (void) stream;
    while (OPAL_ERR_RESOURCE_BUSY == (rc = accelerator_query_event(dev_id, event))) {
        sched_yield();
    }
    return rc;
}
