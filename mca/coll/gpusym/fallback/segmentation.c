/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives in segments: see segmentation.h.
 *
 * Segment k has slot k % SLOTS: bounce buffers and a stream. On this stream the copy of a segment to the host is queued
 * behind the copy back of the segment that had the slot before.
 *
 *     copy to the host     0 1 2 3 4 ...
 *     the fallback             0 1 2 3 4 ...
 *     copy back                    0 1 2 3 4 ...
 *
 * A blocking call waits for each step. A nonblocking one is polled: begun <= worked + SLOTS, ended <= worked <= begun.
 */
#include "mca/coll/gpusym/fallback/segmentation.h"

#include <stdlib.h>

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/pinned.h"

#define SLOTS 4u

/* A segment under way. */
typedef struct {
    coll_gpusym_args_t part, on_host; /* the call on the segment's elements: the user's, and the bounce buffers' */
    coll_gpusym_buffers_t buffers;    /* of part */
    coll_gpusym_bounce_t bounce;
    gpusym_count_element_t *counts; /* [ranks] of part; in the segmentation's counts */
    ompi_request_t *inner;          /* nonblocking: the fallback's */
} slot_t;

typedef struct coll_gpusym_segmentation {
    coll_gpusym_fallback_t *f;
    const coll_gpusym_args_t *whole;
    const coll_gpusym_buffers_t *buffers; /* of whole */
    size_t elements, segment;             /* of the call, of a segment */
    size_t segments;
    char *memory; /* of all slots; owned */
    bool pinned;
    size_t room;                    /* bytes of a slot's memory */
    gpusym_count_element_t *counts; /* owned */
    slot_t slot[SLOTS];
    /* Nonblocking: segments whose copy to the host is queued, that the fallback has begun with, has ended with. */
    size_t begun, worked, ended;
    int rv;                                /* the first error: no further segment is begun */
    struct coll_gpusym_segmentation *next; /* of those that are kept */
} segmentation_t;

/* Those that the fallback will never end with: kept where leak checkers find them. */
static segmentation_t *kept;

/* ---- segments ---- */

/* A reduce-scatter's segments are ranges of the vector that it reduces. */
static bool is_scattered(const coll_gpusym_args_t *a)
{
    return COLL_GPUSYM_P_REDUCE_SCATTER == coll_gpusym_facts[a->coll].pattern;
}

/* Elements of rank r's part of a reduce-scatter. */
static size_t part_of(const coll_gpusym_args_t *a, int r)
{
    return COLL_GPUSYM_L_PART == coll_gpusym_facts[a->coll].written ? gpusym_count_at(a->rcounts, (size_t) r)
                                                                    : a->rcount;
}

static size_t count_elements(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a)
{
    size_t sum = 0;
    if (!is_scattered(a)) {
        return a->rcount;
    }
    for (int r = 0; r < ompi_comm_size(comm); r++) {
        sum += part_of(a, r);
    }
    return sum;
}

bool coll_gpusym_segmentation_may(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, uint64_t *bytes,
                                  uint32_t *element)
{
    if (OMPI_COMM_IS_INTER(comm)) { /* its ranks' vectors need not be alike */
        return false;
    }
    switch (coll_gpusym_facts[a->coll].pattern) {
    case COLL_GPUSYM_P_ALLREDUCE:
    case COLL_GPUSYM_P_REDUCE_SCATTER:
    case COLL_GPUSYM_P_ROOTED:
    case COLL_GPUSYM_P_SCAN:
        break;
    default:
        return false;
    }
    *element = (uint32_t) a->rdtype->super.size;
    *bytes = (uint64_t) count_elements(comm, a) * a->rdtype->super.size;
    return a->rdtype->super.size <= UINT32_MAX && 0 != *element;
}

/* The address `elements` elements behind p. */
static void *behind(const segmentation_t *c, const void *p, size_t elements)
{
    const opal_datatype_t *d = &c->whole->rdtype->super;
    return (void *) ((uintptr_t) p + (uintptr_t) ((ptrdiff_t) elements * (d->ub - d->lb)));
}

/* The first element of a segment, and how many it has. */
static size_t range_of(const segmentation_t *c, size_t k, size_t *first)
{
    *first = k * c->segment;
    return c->elements - *first < c->segment ? c->elements - *first : c->segment;
}

/* A reduce-scatter of the range: each rank gets what of its part lies in there. Never in place: the result of a segment
 * lies where an earlier segment, or this one, was read. */
static void make_scattered(const segmentation_t *c, size_t first, size_t n, slot_t *s)
{
    const coll_gpusym_args_t *a = c->whole;
    const int me = ompi_comm_rank(c->f->comm);
    size_t begin = 0, mine = 0;

    for (int r = 0; r < ompi_comm_size(c->f->comm); r++) {
        const size_t end = begin + part_of(a, r);
        const size_t lo = begin > first ? begin : first, hi = end < first + n ? end : first + n;
        s->counts[r] = (gpusym_count_element_t) (hi > lo ? hi - lo : 0);
        mine = r == me && hi > lo ? lo - begin : mine;
        begin = end;
    }
    s->part.coll = COLL_GPUSYM_REDUCE_SCATTER;
    s->part.rcounts = GPUSYM_COUNTS_OF(s->counts);
    s->part.sbuf = behind(c, MPI_IN_PLACE == a->sbuf ? a->rbuf : a->sbuf, first);
    s->part.rbuf = behind(c, a->rbuf, mine);
}

static void make_part(const segmentation_t *c, size_t k, slot_t *s)
{
    const coll_gpusym_args_t *a = c->whole;
    size_t first;
    const size_t n = range_of(c, k, &first);

    s->part = *a;
    if (is_scattered(a)) {
        make_scattered(c, first, n, s);
        return;
    }
    s->part.scount = s->part.rcount = n;
    s->part.sbuf = MPI_IN_PLACE == a->sbuf ? MPI_IN_PLACE : behind(c, a->sbuf, first);
    s->part.rbuf = behind(c, a->rbuf, first);
}

/* ---- slots ---- */

/* The memory of the slots. The first segment is the longest; that of a reduce-scatter may leave this rank without a
 * result, but none is longer than a segment. */
static bool get_memory(segmentation_t *c, gpusym_gpu_t *gpu)
{
    slot_t *s = &c->slot[0];
    struct ompi_communicator_t *comm = c->f->comm;
    const size_t ranks = (size_t) ompi_comm_size(comm);
    coll_gpusym_args_t longest;
    void *p = NULL;

    c->counts = calloc(SLOTS * ranks, sizeof *c->counts);
    if (NULL == c->counts) {
        return false;
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        c->slot[i].counts = c->counts + i * ranks;
    }
    make_part(c, 0, s);
    longest = s->part;
    if (is_scattered(c->whole)) { /* as many elements on both sides */
        longest.coll = COLL_GPUSYM_ALLREDUCE;
        longest.rcount = longest.scount = c->segment;
    }
    coll_gpusym_buffers_part(c->buffers, &longest, &s->buffers);
    c->room = coll_gpusym_bounce_room(&s->buffers, &s->bounce);
    if (0 == c->room) {
        return true;
    }
    c->memory = NULL != gpu ? gpusym_pinned_get(gpusym_current.dev, gpu, SLOTS * c->room) : NULL;
    c->pinned = NULL != c->memory;
    if (!c->pinned && 0 == posix_memalign(&p, 64, SLOTS * c->room)) {
        c->memory = p;
    }
    return NULL != c->memory;
}

/* Opens the GPU, streams and memory. MPI error code, reported. close_slots() frees what there is. */
static int open_slots(segmentation_t *c)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    coll_gpusym_bounce_t found;
    const int rv = coll_gpusym_bounce_find(c->buffers, &found);

    if (is_scattered(c->whole) && MPI_IN_PLACE == c->whole->sbuf) { /* segments are not in place */
        found.send.on_gpu = found.recv.on_gpu;
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        c->slot[i].bounce = found;
    }
    if (!get_memory(c, found.gpu)) {
        return coll_gpusym_bounce_report(c->buffers, "no-memory", (size_t) (SLOTS * c->room));
    }
    /* Without streams each copy is waited for. */
    for (unsigned i = 0; i < SLOTS && NULL != found.gpu && 0 != c->room; i++) {
        if (GPUSYM_SUCCESS != gpusym_lane_get(dev, found.gpu, &c->slot[i].bounce.lane)) {
            c->slot[i].bounce.lane = NULL;
        }
    }
    return rv;
}

/* Waits for the copies of a slot. MPI error code. */
static int await_slot(const segmentation_t *c, const slot_t *s)
{
    return NULL == s->bounce.lane || gpusym_lane_await(s->bounce.lane) > 0
               ? MPI_SUCCESS
               : coll_gpusym_bounce_report(c->buffers, "gpu-error", 0);
}

/* Waits for all copies. Returns rv, or the first error of these. */
static int await_slots(const segmentation_t *c, int rv)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        if (MPI_SUCCESS == rv) {
            rv = await_slot(c, &c->slot[i]);
        } else if (NULL != c->slot[i].bounce.lane) {
            (void) gpusym_lane_await(c->slot[i].bounce.lane);
        }
    }
    return rv;
}

/* No copy is under way. */
static void close_slots(segmentation_t *c)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        coll_gpusym_bounce_end_queue(&c->slot[i].bounce);
    }
    if (c->pinned) {
        gpusym_pinned_put(c->memory);
    } else {
        free(c->memory);
    }
    free(c->counts);
}

/* Places a segment in its slot. */
static slot_t *place_segment(segmentation_t *c, size_t k)
{
    slot_t *s = &c->slot[k % SLOTS];
    make_part(c, k, s);
    coll_gpusym_buffers_part(c->buffers, &s->part, &s->buffers);
    coll_gpusym_bounce_place(&s->buffers, &s->bounce, c->memory + k % SLOTS * c->room, &s->on_host);
    return s;
}

/* Queues the copy of a segment to the host. */
static int begin_segment(segmentation_t *c, size_t k)
{
    slot_t *s = place_segment(c, k);
    return coll_gpusym_bounce_in(&s->buffers, &s->bounce);
}

coll_gpusym_segmentation_t *coll_gpusym_segmentation_begin(coll_gpusym_fallback_t *f, const coll_gpusym_buffers_t *b,
                                                           size_t segment, int *rv)
{
    const size_t element = b->args->rdtype->super.size;
    segmentation_t *c = malloc(sizeof *c);
    if (NULL == c) {
        *rv = coll_gpusym_bounce_report(b, "no-memory", sizeof *c);
        return NULL;
    }
    *c = (segmentation_t){.f = f, .whole = b->args, .buffers = b, .elements = count_elements(f->comm, b->args)};
    c->segment = segment > element ? segment / element : 1;
    c->segments = (c->elements + c->segment - 1) / c->segment;
    *rv = open_slots(c);
    if (MPI_SUCCESS != *rv) {
        coll_gpusym_segmentation_free(c);
        return NULL;
    }
    return c;
}

/* ---- blocking ---- */

/* A blocking call in segments. */
typedef struct {
    segmentation_t *all;
    int rv; /* of the copies of this rank: MPI_SUCCESS, or the first error */
    void (*failed)(void *arg, int error);
    void *arg;
} blocking_t;

static void note_copied(blocking_t *b, int rv)
{
    if (MPI_SUCCESS == b->rv && MPI_SUCCESS != rv) {
        b->rv = rv;
        b->failed(b->arg, rv);
    }
}

static void begin_blocking(blocking_t *b, size_t k)
{
    slot_t *s = place_segment(b->all, k);
    if (MPI_SUCCESS == b->rv) {
        note_copied(b, coll_gpusym_bounce_in(&s->buffers, &s->bounce));
    }
}

/* The fallback's work on a segment; queues the copy back. Returns the fallback's error. */
static int end_blocking(blocking_t *b, size_t k)
{
    slot_t *s = &b->all->slot[k % SLOTS];
    if (MPI_SUCCESS == b->rv) {
        note_copied(b, await_slot(b->all, s));
    } else if (NULL != s->bounce.lane) { /* the fallback may read what is copied */
        (void) gpusym_lane_await(s->bounce.lane);
    }
    const int rv = coll_gpusym_forward(b->all->f, &s->on_host);
    if (MPI_SUCCESS == rv && MPI_SUCCESS == b->rv) {
        note_copied(b, coll_gpusym_bounce_out(&s->buffers, &s->bounce, rv));
    }
    return rv;
}

int coll_gpusym_segmentation_blocking(coll_gpusym_segmentation_t *c, void (*failed)(void *arg, int error), void *arg)
{
    blocking_t b = {.all = c, .rv = MPI_SUCCESS, .failed = failed, .arg = arg};
    size_t begun = 0;
    int rv = MPI_SUCCESS;

    for (size_t k = 0; MPI_SUCCESS == rv && k < c->segments; k++) {
        while (begun < c->segments && begun < k + SLOTS) {
            begin_blocking(&b, begun++);
        }
        rv = end_blocking(&b, k);
    }
    const int copied = await_slots(c, MPI_SUCCESS == rv ? b.rv : rv);
    if (MPI_SUCCESS == rv) {
        note_copied(&b, copied);
    }
    return copied;
}

/* ---- nonblocking ---- */

/* The fallback begins with the segments that have come to the host, in order: so on all ranks. */
static void work_segments(segmentation_t *c)
{
    slot_t *s = &c->slot[c->worked % SLOTS];
    while (MPI_SUCCESS == c->rv && c->worked < c->begun && coll_gpusym_bounce_poll(c->buffers, &s->bounce, &c->rv)) {
        if (MPI_SUCCESS == c->rv) {
            c->rv = coll_gpusym_forward_nonblocking(c->f, &s->on_host, &s->inner);
        }
        c->worked += MPI_SUCCESS == c->rv;
        s = &c->slot[c->worked % SLOTS];
    }
}

/* Copies back the segments that the fallback has ended with. */
static void end_segments(segmentation_t *c)
{
    slot_t *s = &c->slot[c->ended % SLOTS];
    while (c->ended < c->worked && REQUEST_COMPLETE(s->inner)) {
        const int rv = ompi_request_wait(&s->inner, MPI_STATUS_IGNORE);
        c->rv = MPI_SUCCESS == c->rv ? rv : c->rv;
        c->rv = coll_gpusym_bounce_out(&s->buffers, &s->bounce, c->rv);
        c->ended++;
        s = &c->slot[c->ended % SLOTS];
    }
}

bool coll_gpusym_segmentation_poll(coll_gpusym_segmentation_t *c, int *rv)
{
    end_segments(c);
    while (MPI_SUCCESS == c->rv && c->begun < c->segments && c->begun < c->ended + SLOTS) {
        c->rv = begin_segment(c, c->begun++);
    }
    work_segments(c);
    bool over = c->ended == (MPI_SUCCESS == c->rv ? c->segments : c->worked);
    for (unsigned i = 0; over && i < SLOTS; i++) {
        int copied;
        over = coll_gpusym_bounce_poll(c->buffers, &c->slot[i].bounce, &copied);
        c->rv = MPI_SUCCESS == c->rv ? copied : c->rv;
    }
    *rv = c->rv;
    return over;
}

bool coll_gpusym_segmentation_stopped(const coll_gpusym_segmentation_t *c)
{
    bool copies = false;
    for (unsigned i = 0; i < SLOTS && !copies; i++) {
        const gpusym_lane_t *lane = c->slot[i].bounce.lane;
        copies = NULL != lane && 0 == gpusym_current.dev->stream_poll(lane->stream);
    }
    return !copies;
}

void coll_gpusym_segmentation_free(coll_gpusym_segmentation_t *c)
{
    if (NULL == c) {
        return;
    }
    if (c->ended < c->worked) { /* the fallback cannot be told to stop, and still uses these */
        OBJ_RETAIN(c->f->comm);
        OBJ_RETAIN(c->whole->op);
        OBJ_RETAIN(c->whole->rdtype);
        c->next = __atomic_load_n(&kept, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&kept, &c->next, c, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        }
        return;
    }
    close_slots(c);
    free(c);
}
