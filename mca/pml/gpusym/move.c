/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The move of a message to the receiver's buffer.
 *
 * To GPU memory and to pinned host memory the GPU copies straight. To other host memory it copies chunks to pinned
 * memory, which the CPU copies to the buffer while the next ones are on their way: as fast as one core copies.
 */
#include "mca/pml/gpusym/move.h"

#include <string.h>

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/gpusym/gpus.h"
#include "tuning/copy.h"
#include "tuning/pack.h"

typedef pml_gpusym_move_t move_t;

static bool is_together(const pml_gpusym_route_t *route)
{
    return route->together || gpusym_layout_together(gpusym_current.dev, route->layout, route->buf);
}

/* As gpusym_layout_is_one. */
static bool is_one(const pml_gpusym_route_t *route)
{
    return GPUSYM_LAYOUT_RUN == route->layout->kind &&
           (route->together || gpusym_layout_is_one(gpusym_current.dev, route->layout, route->buf));
}

/* It has ended before. */
static int poll_end(move_t *m)
{
    (void) m;
    return 1;
}

/* ---- straight ---- */

static int poll_copy(move_t *m)
{
    return gpusym_copy_poll(&m->copy);
}

static int start_copy(move_t *m)
{
    const pml_gpusym_route_t *route = &m->route;
    const gpusym_layout_t *l = route->layout;
    char *to = (char *) route->buf + l->lo;

    const bool run = GPUSYM_LAYOUT_RUN == l->kind;
    const gpusym_copy_rows_t rows = {.dst = to,
                                     .src = route->from,
                                     .width = run ? route->bytes : l->width,
                                     .height = run ? 1 : l->rows,
                                     .to_pitch = run ? 0 : l->pitch,
                                     .from_pitch = run ? 0 : l->width,
                                     .local = !route->on_host,
                                     .far = route->on_host,
                                     .shared = true,
                                     .does = 0 != route->signal ? GPUSYM_COPY_WAITS : 0,
                                     .signal = route->signal};

    m->poll = poll_copy;
    gpusym_p2p_gpu_review(route->gpu);
    return gpusym_copy_start_rows(gpusym_current.dev, route->gpu, &rows, &m->copy);
}

/* ---- many copies ---- */

static int poll_stream(move_t *m)
{
    return gpusym_current.dev->stream_poll(m->lane->stream);
}

static int start_stream(move_t *m)
{
    const pml_gpusym_route_t *route = &m->route;

    m->poll = poll_stream;
    if (GPUSYM_SUCCESS != gpusym_lane_get(gpusym_current.dev, route->gpu, &m->lane)) {
        GPUSYM_LOG(2, "no stream is available for a message: this call waits: %s", gpusym_current.dev->error());
        m->lane = NULL;
        m->poll = poll_end;
        return gpusym_layout_unpack(gpusym_current.dev, route->gpu, route->layout, route->buf, route->from,
                                    route->bytes);
    }
    return gpusym_layout_unpack_async(gpusym_current.dev, route->gpu, m->lane->stream, route->layout, route->buf,
                                      route->from, route->bytes);
}

/* ---- through pinned memory ---- */

static int poll_staged(move_t *m)
{
    return gpusym_staged_poll(&m->staged);
}

static int start_staged(move_t *m, size_t chunk)
{
    m->staged = (gpusym_staged_t){.dev = gpusym_current.dev,
                                  .gpu = m->route.gpu,
                                  .on_gpu = (char *) (uintptr_t) m->route.from,
                                  .on_host = (char *) m->route.buf + m->route.layout->lo,
                                  .bytes = m->route.bytes,
                                  .chunks = m->bounce.p,
                                  .chunk = chunk,
                                  .to_host = true};
    m->poll = poll_staged;
    gpusym_staged_start(&m->staged);
    return GPUSYM_SUCCESS;
}

/* A buffer with gaps: the whole message lies in pinned memory before the CPU unpacks it. */
static int poll_scatter(move_t *m)
{
    const int done = gpusym_copy_poll(&m->copy);

    if (done <= 0) {
        return done;
    }
    const int rc = gpusym_layout_scatter(m->route.layout, m->route.buf, m->bounce.p, m->route.bytes);
    return GPUSYM_SUCCESS == rc ? 1 : rc;
}

static int start_scatter(move_t *m)
{
    const gpusym_copy_rows_t run = {
        .dst = m->bounce.p, .src = m->route.from, .width = m->route.bytes, .height = 1, .far = true};
    m->poll = poll_scatter;
    return gpusym_copy_start_rows(gpusym_current.dev, m->route.gpu, &run, &m->copy);
}

/* Without pinned memory: the driver copies, and this call waits for it. */
static int copy_at_once(move_t *m)
{
    const pml_gpusym_route_t *route = &m->route;

    m->poll = poll_end;
    m->bounce.used = m->bounce.size;
    int rc = gpusym_current.dev->copy(route->gpu, m->bounce.p, route->from, route->bytes);
    if (GPUSYM_SUCCESS == rc) {
        rc = gpusym_layout_scatter(route->layout, route->buf, m->bounce.p, route->bytes);
    }
    return rc;
}

static uint32_t pinned; /* atomic: moves that have pinned memory, and will return it */

static int start_to_host(move_t *m);

/* All pinned memory is in use by others. */
static int poll_waiting(move_t *m)
{
    return start_to_host(m);
}

static int start_to_host(move_t *m)
{
    const bool run = GPUSYM_LAYOUT_RUN == m->route.layout->kind;
    const size_t whole = m->route.bytes, chunk = gpusym_tuning_host_chunk(whole);
    const size_t bytes = run ? gpusym_staged_room(whole, chunk) : whole;
    const bool others = 0 != __atomic_load_n(&pinned, __ATOMIC_RELAXED);

    m->poll = poll_waiting;
    gpusym_p2p_gpu_review(m->route.gpu);
    if (pml_gpusym_bounce_pin(&m->bounce, m->route.gpu, bytes)) {
        __atomic_fetch_add(&pinned, 1, __ATOMIC_RELAXED);
        return run ? start_staged(m, chunk) : start_scatter(m);
    }
    if (others) {
        return GPUSYM_SUCCESS;
    }
    return pml_gpusym_bounce_reserve(&m->bounce, whole) ? copy_at_once(m) : GPUSYM_ERR_NO_MEMORY;
}

/* ---- boxes ---- */

static int start_packed(move_t *m);

/* Copies from box to box. */
static int start_box(move_t *m, void *to, const gpusym_box_t *box)
{
    const gpusym_box_run_t run = {
        .in = m->route.from, .out = to, .bytes = (uint32_t) m->route.bytes, .from = m->box, .to = *box};
    m->poll = poll_copy;
    gpusym_p2p_gpu_review(m->route.gpu);
    return gpusym_copy_start_box(gpusym_current.dev, m->route.gpu, &run, &m->copy);
}

/* The box is packed: it goes on as any packed message. */
static int poll_gather(move_t *m)
{
    const int done = gpusym_copy_poll(&m->copy);
    if (done <= 0) {
        return done;
    }
    m->route.from = m->scratch;
    m->route.box = NULL;
    return start_packed(m);
}

/* To a buffer that is no box, or on the host. */
static int start_gather(move_t *m)
{
    const size_t bytes = m->route.bytes;
    const gpusym_box_t packed = {(uint32_t) bytes, {1, 1}, {0, 0, 0}};
    int rc = gpusym_scratch_get(gpusym_current.dev, m->route.gpu, bytes, &m->scratch);
    m->scratch = GPUSYM_SUCCESS == rc ? m->scratch : NULL;
    if (GPUSYM_SUCCESS == rc) {
        rc = start_box(m, m->scratch, &packed);
        m->poll = poll_gather;
    }
    return rc;
}

/* ---- all ---- */

/* Returns what the move has. */
static void end_move(move_t *m)
{
    if (NULL != m->scratch) {
        gpusym_scratch_put(gpusym_current.dev, m->route.gpu, m->scratch);
        m->scratch = NULL;
    }
    if (NULL != m->bounce.p && PML_GPUSYM_BOUNCE_PINNED == m->bounce.kind) {
        __atomic_fetch_sub(&pinned, 1, __ATOMIC_RELAXED);
    }
    pml_gpusym_bounce_put(&m->bounce);
    if (NULL != m->lane) {
        gpusym_lane_put(m->lane);
        m->lane = NULL;
    }
}

static int start_packed(move_t *m)
{
    const pml_gpusym_route_t *route = &m->route;
    const gpusym_layout_t *l = route->layout;
    const bool whole = is_one(route) || (GPUSYM_LAYOUT_ROWS == l->kind && route->bytes == l->bytes &&
                                         !gpusym_tuning_pack_message(route->bytes) && is_together(route));

    if (route->on_host && !gpusym_p2p_gpu_reaches((const char *) route->buf + l->lo, l->span)) {
        return start_to_host(m);
    }
    return whole ? start_copy(m) : start_stream(m);
}

bool pml_gpusym_move_can_wait(const pml_gpusym_route_t *route)
{
    return !route->on_host && NULL == route->box && GPUSYM_LAYOUT_RUN == route->layout->kind &&
           gpusym_tuning_copy_by_kernel(route->bytes, 1) && is_one(route);
}

int pml_gpusym_move_start(move_t *m, const pml_gpusym_route_t *route)
{
    gpusym_box_t to;
    int rc;

    m->route = *route;
    m->lane = NULL;
    m->scratch = NULL;
    m->bounce.p = NULL;
    if (NULL == route->box) {
        rc = start_packed(m);
    } else {
        m->box = *route->box;
        rc = !route->on_host && gpusym_layout_box(route->layout, &to) && is_together(route)
                 ? start_box(m, (char *) route->buf + route->layout->lo, &to)
                 : start_gather(m);
    }
    if (GPUSYM_SUCCESS != rc) {
        end_move(m);
    }
    return rc;
}

int pml_gpusym_move_poll(move_t *m)
{
    const int done = m->poll(m);
    if (0 != done) {
        end_move(m);
    }
    return done;
}
