/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the copy engines do: see copies.h, and kernels/symm/symm_ce.h for the flags.
 *
 * A message that is reduced goes in two hops: each rank sends its slices to their owners, chunk by chunk, an owner reduces
 * a chunk when it has all of it and sends the result to all who get it. A broadcast goes the same two hops, without the
 * reduction. Segments go one hop.
 *
 * Order.  One stream to each peer carries both hops: after chunk k of the first hop comes chunk k - AHEAD of the second.
 * From the arrival of a chunk to the departure of its result it takes flags, a kernel and a copy engine that begins, some 15
 * us (H200): meanwhile the wire carries the nchunks between. (More streams to a peer were slower, 580 us for 537 at 128 MiB
 * on 2 GPUs.) No stream waits for what is queued behind it; let
 * every rank do all that it queues strictly in the order in which it queues it, over all of its streams and kernels (a GPU
 * may do so: it has few hardware queues, and streams share them). Nothing stands still even then. By induction over
 * steps k, all ranks end step k, since each part waits only for what ranks queue before it:
 *   first hop   chunk k waits for the peer's kernel of chunk k - BUFFERS;
 *   kernel      of chunk k waits for the first hop's chunk k of all, and, where its result goes through a buffer of the
 *               slot, for our own second hop's chunk k - BUFFERS (of step k - BUFFERS + AHEAD, before this one);
 *   second hop  chunk k - AHEAD waits for our kernel of that chunk, or, in a broadcast, for the first hop's.
 */
#include "mca/common/gpusym/exec/copies.h"

#include <stdlib.h>

#include "mca/common/gpusym/log.h"

/* Flags that a stream has to do before its next copy: at most what the hops leave and want. */
#define PENDING_MAX 6u

typedef struct {
    gpusym_stream_t *stream;
    gpusym_stream_flag_t pending[PENDING_MAX];
    unsigned n;
    bool used; /* in this operation */
} outgoing_t;

#define BUFFERS GPUSYM_COPIES_BUFFERS
#define AHEAD (BUFFERS - 1)

struct gpusym_copies_streams {
    uint32_t n;
    gpusym_lane_t *lane[GPUSYM_TEAM_MAX]; /* whose stream goes to each rank */
    outgoing_t to[GPUSYM_TEAM_MAX];
};

int gpusym_copies_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint32_t nranks, gpusym_copies_streams_t **streams)
{
    gpusym_copies_streams_t *s = calloc(1, sizeof *s);
    if (NULL == s) {
        gpusym_log_no_memory("the streams of copy engines");
        return GPUSYM_ERR_NO_MEMORY;
    }
    for (; s->n < nranks; s->n++) {
        const int rc = gpusym_lane_get(dev, gpu, &s->lane[s->n]);
        if (GPUSYM_SUCCESS != rc) {
            gpusym_copies_put(s);
            return rc;
        }
        s->to[s->n].stream = s->lane[s->n]->stream;
    }
    *streams = s;
    return GPUSYM_SUCCESS;
}

void gpusym_copies_put(gpusym_copies_streams_t *streams)
{
    while (streams->n > 0) {
        gpusym_lane_put(streams->lane[--streams->n]);
    }
    free(streams);
}

/* ---- what a call is ---- */

typedef struct {
    const gpusym_work_t *w;
    const gpusym_device_t *dev;
    gpusym_copies_streams_t *s;
    bool reduces;
    uint32_t nchunks;
    uint32_t sources, owners, receivers; /* masks of ranks: who has input, owns a slice, gets the result */
    bool result_in_slot;                /* our slice's result goes through our slot */
    int rc;                            /* of what was queued so far */
} ce_call_t;

static bool has_rank(uint32_t mask, uint32_t rank)
{
    return 0 != (mask & 1u << rank);
}

static uint32_t make_mask(uint32_t first, uint32_t end)
{
    return (uint32_t)((1ull << end) - (1ull << first));
}

/* The ranks from the one behind ours on: all start at another one, and no port is stormed. */
static uint32_t nth_peer(const gpusym_work_t *w, uint32_t q)
{
    return (w->rank + q) % w->nranks;
}

/* A chunk of the slice of rank p, or of the segment that goes to it. */
typedef struct {
    uint64_t off, bytes; /* of the message, or of the segment */
} chunk_t;

static chunk_t chunk_of(const ce_call_t *c, uint32_t p, uint32_t k)
{
    const gpusym_work_t *w = c->w;
    const uint64_t at = (uint64_t)k * w->chunk, after = at + w->chunk < w->span ? at + w->chunk : w->span;
    const uint64_t slice = w->copies.whole ? (p < w->skip ? p : p - 1) * w->span : 0;
    const uint64_t end = w->copies.whole ? w->bytes : w->send[p].bytes;
    const uint64_t from = GPUSYM_PACK * (slice + at), to = GPUSYM_PACK * (slice + after);
    const chunk_t chunk = {from, from >= end ? 0 : (to < end ? to : end) - from};
    return chunk;
}

/* Where chunk k of everyone is in a slot; and our result, where that goes through it. */
static uint64_t arrivals_off(const gpusym_work_t *w, uint32_t k)
{
    return w->stage_off + (uint64_t)(k % BUFFERS) * w->nranks * w->stage_bytes;
}

static char *result_at(const ce_call_t *c, uint32_t k, const chunk_t *chunk)
{
    const gpusym_work_t *w = c->w;
    if (c->result_in_slot) {
        return (char *)w->peer[w->rank] + arrivals_off(w, k) + (uint64_t)(w->nranks - 1) * w->stage_bytes;
    }
    return (char *)w->out + (w->copies.whole ? chunk->off : w->recv[w->rank].off + chunk->off);
}

static uint32_t *flag_at(const gpusym_work_t *w, uint32_t owner, uint32_t row, uint32_t writer)
{
    return (uint32_t *)((char *)w->peer[owner] + GPUSYM_FLAGS_OFF + row * GPUSYM_FLAG_ROW + 4 * writer);
}

static uint32_t *sent_word(const gpusym_work_t *w, uint32_t p)
{
    return (uint32_t *)((char *)w->peer[w->rank] + GPUSYM_SENT_OFF + 4 * p);
}

/* Rows of flags (kernels/symm/symm_ce.h). */
#define ARRIVED 0u
#define REDUCED 0u
#define DELIVERED 1u
#define CREDIT 2u

/* ---- queueing ---- */

static void queue_flags(ce_call_t *c, outgoing_t *o)
{
    if (0 != o->n && GPUSYM_SUCCESS == c->rc) {
        c->rc = c->dev->stream_flags(o->stream, o->pending, o->n);
    }
    o->n = 0;
}

static void add_flag(ce_call_t *c, outgoing_t *o, bool wait, uint32_t *at, uint32_t value)
{
    if (PENDING_MAX == o->n) {
        queue_flags(c, o);
    }
    o->pending[o->n++] = (gpusym_stream_flag_t){wait, at, value};
    o->used = true;
}

static void queue_copy(ce_call_t *c, outgoing_t *o, void *dst, const void *src, uint64_t bytes)
{
    queue_flags(c, o);
    o->used = true;
    if (GPUSYM_SUCCESS == c->rc && dst != src) {
        c->rc = c->dev->copy_async(o->stream, dst, src, bytes);
    }
}

/* Whether there is something for rank p in the first hop, in the second. */
static bool scatters_to(const ce_call_t *c, uint32_t p)
{
    return has_rank(c->sources, c->w->rank) && has_rank(c->owners, p);
}

static bool gathers_to(const ce_call_t *c, uint32_t p)
{
    return has_rank(c->owners, c->w->rank) && has_rank(c->receivers, p) && (c->reduces || !has_rank(c->sources, p));
}

/* For chunk k of our slice: our kernel writes it, or (broadcast) the stream of the only source. */
static void await_result(ce_call_t *c, outgoing_t *o, uint32_t k)
{
    const gpusym_work_t *w = c->w;
    add_flag(c, o, true, c->reduces ? flag_at(w, w->rank, REDUCED, w->rank) : flag_at(w, w->rank, ARRIVED, w->src_first), w->epoch + k);
}

/* First hop: chunk k of every slice to its owner. Its flag is queued now, since a kernel that is queued next may wait for
 * it; with it what the second hop will wait for: one call to the driver. */
static void queue_scatter(ce_call_t *c, uint32_t k)
{
    const gpusym_work_t *w = c->w;
    const uint32_t epoch = w->epoch + k, me = w->rank;
    for (uint32_t q = 1; q < w->nranks; q++) {
        const uint32_t p = nth_peer(w, q);
        outgoing_t *o = &c->s->to[p];
        if (!scatters_to(c, p)) {
            continue;
        }
        const chunk_t chunk = chunk_of(c, p, k);
        const char *from = (const char *)w->in + (w->copies.whole ? 0 : w->send[p].off) + chunk.off;
        char *to = (char *)w->peer_out[p] + chunk.off;
        if (c->reduces) {
            to = (char *)w->peer[p] + arrivals_off(w, k) + (uint64_t)(me - (me > p)) * w->stage_bytes;
            if (k >= BUFFERS) { /* p's kernel writes it */
                add_flag(c, o, true, flag_at(w, me, CREDIT, p), epoch - BUFFERS);
            }
        }
        queue_copy(c, o, to, from, chunk.bytes);
        add_flag(c, o, false, flag_at(w, p, ARRIVED, me), epoch);
        if (k >= AHEAD && gathers_to(c, p)) {
            await_result(c, o, k - AHEAD);
        }
        queue_flags(c, o);
    }
}

/* Our slice's chunk k: reduced when it has arrived. */
static void queue_reduce(ce_call_t *c, gpusym_lane_t *lane, unsigned kernel, uint32_t k)
{
    gpusym_work_t w = *c->w;
    const uint32_t me = w.rank;
    if (!has_rank(c->owners, me) || GPUSYM_SUCCESS != c->rc) {
        return;
    }
    const chunk_t chunk = chunk_of(c, me, k);
    if (0 != chunk.bytes) {
        w.in = (const char *)w.in + (w.copies.whole ? 0 : w.send[me].off) + chunk.off;
        w.out = result_at(c, k, &chunk);
    } else { /* there may be no buffers; its flags are wanted all the same */
        w.in = w.out = NULL;
    }
    w.bytes = chunk.bytes;
    w.epoch += k;
    w.copies.arrived = c->sources & ~(1u << me);
    w.copies.delivered = 0;
    w.copies.sent = c->result_in_slot && k >= BUFFERS ? c->receivers & ~(1u << me) : 0;
    w.copies.sent_epoch = w.epoch - BUFFERS;
    w.copies.off = arrivals_off(&w, k);
    w.copies.step = w.stage_bytes;
    c->rc = gpusym_lane_more(lane, kernel, &w);
}

/* Second hop: chunk k of our slice's result to all who get it. Only the last kernel waits for its flag: that can be queued with
 * what comes next. */
static void queue_gather(ce_call_t *c, uint32_t k)
{
    const gpusym_work_t *w = c->w;
    const uint32_t epoch = w->epoch + k, me = w->rank;
    for (uint32_t q = 1; q < w->nranks; q++) {
        const uint32_t p = nth_peer(w, q);
        outgoing_t *o = &c->s->to[p];
        if (!gathers_to(c, p)) {
            continue;
        }
        const chunk_t chunk = chunk_of(c, me, k);
        if (!scatters_to(c, p) || k + AHEAD >= c->nchunks) { /* else with what came before */
            await_result(c, o, k);
        }
        queue_copy(c, o, (char *)w->peer_out[p] + chunk.off, result_at(c, k, &chunk), chunk.bytes);
        add_flag(c, o, false, flag_at(w, p, DELIVERED, me), epoch);
        if (c->result_in_slot) { /* but for our kernel's */
            add_flag(c, o, false, sent_word(w, p), epoch);
            queue_flags(c, o);
        }
    }
}

/* Segments, which are not reduced. */
static void queue_exchange(ce_call_t *c)
{
    const gpusym_work_t *w = c->w;
    for (uint32_t q = 0; q < w->nranks; q++) {
        const uint32_t p = nth_peer(w, q);
        const uint64_t bytes = w->send[p].bytes;
        const char *from = (const char *)w->in + w->send[p].off;
        outgoing_t *o = &c->s->to[p];
        if (0 == bytes) {
            continue;
        }
        if (p == w->rank) {
            queue_copy(c, o, (char *)w->out + w->recv[p].off, from, bytes);
        } else {
            queue_copy(c, o, (char *)w->peer_out[p] + w->remote_off[p], from, bytes);
            add_flag(c, o, false, flag_at(w, p, DELIVERED, w->rank), w->epoch);
        }
    }
}

/* The only source's own output, if it is not its input. */
static void queue_own_copy(ce_call_t *c)
{
    const gpusym_work_t *w = c->w;
    if (!c->reduces && w->copies.whole && has_rank(c->sources & c->receivers, w->rank) && w->in != w->out) {
        queue_copy(c, &c->s->to[w->rank], w->out, w->in, w->bytes);
    }
}

/* Every stream says when it is through, and the last kernel waits for that, and for what comes from others. */
static int queue_end(ce_call_t *c, gpusym_lane_t *lane, unsigned end)
{
    gpusym_work_t w = *c->w;
    const uint32_t others = make_mask(0, w.nranks) & ~(1u << w.rank), last = w.copies.last;
    w.copies.arrived = w.copies.delivered = w.copies.sent = 0;
    for (uint32_t p = 0; p < w.nranks; p++) {
        outgoing_t *o = &c->s->to[p];
        if (o->used) {
            add_flag(c, o, false, sent_word(&w, p), last);
            w.copies.sent |= 1u << p;
        }
        queue_flags(c, o);
    }
    if (!w.copies.whole) {
        for (uint32_t p = 0; p < w.nranks && !c->reduces; p++) {
            w.copies.delivered |= p != w.rank && 0 != w.recv[p].bytes ? 1u << p : 0;
        }
    } else if (has_rank(c->receivers, w.rank) && (c->reduces || !has_rank(c->sources, w.rank))) {
        w.copies.delivered = c->owners & others;
        w.copies.arrived = c->reduces ? 0 : c->sources;
    }
    w.epoch = w.copies.sent_epoch = last;
    w.nblocks = 1;
    w.nthreads = 32;
    return gpusym_lane_more(lane, end, &w);
}

int gpusym_copies_queue(gpusym_copies_streams_t *streams, gpusym_lane_t *lane, unsigned reduce_kernel, unsigned end, bool reduces,
                        const gpusym_work_t *work, bool *queued)
{
    gpusym_work_t w = *work;
    ce_call_t c = {.w = &w, .dev = lane->dev, .s = streams, .reduces = reduces, .rc = GPUSYM_SUCCESS};
    const bool two_hops = 0 != w.copies.whole;

    c.nchunks = (uint32_t)((w.span + w.chunk - 1) / w.chunk);
    w.copies.last = w.epoch + c.nchunks - 1;
    c.sources = make_mask(w.src_first, w.src_end);
    c.receivers = two_hops ? make_mask(w.dst_first, w.dst_end) : 0;
    c.owners = make_mask(0, w.nranks) & ~(two_hops && w.skip < w.nranks ? 1u << w.skip : 0);
    c.result_in_slot = reduces && two_hops && !has_rank(c.receivers, w.rank);
    gpusym_lane_begin(lane, &w);

    queue_own_copy(&c);
    if (!two_hops && !reduces) {
        queue_exchange(&c);
    }
    for (uint32_t k = 0; k < c.nchunks + AHEAD && (two_hops || reduces); k++) { /* the order at the top */
        if (k < c.nchunks) {
            queue_scatter(&c, k);
            if (reduces) {
                queue_reduce(&c, lane, reduce_kernel, k);
            }
        }
        if (k >= AHEAD && two_hops) {
            queue_gather(&c, k - AHEAD);
        }
    }
    if (GPUSYM_SUCCESS != c.rc) { /* the streams will wait for what nobody writes: the last kernel lets them go */
        __atomic_store_n(&lane->host->abort, 1u, __ATOMIC_RELEASE);
    }
    const int rc = queue_end(&c, lane, end);
    *queued = GPUSYM_SUCCESS == rc;
    return GPUSYM_SUCCESS != c.rc ? c.rc : rc;
}
