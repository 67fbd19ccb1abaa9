/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives by copy engines: see copies.h, and kernels/symm/symm_ce.h for the flags.
 *
 * A message that is reduced takes two hops: each rank sends its slices to their owners, chunk by chunk; an owner
 * reduces a chunk once it has all of it, and sends the result to all receivers. A broadcast takes the same two hops,
 * without the reduction. Segments take one hop.
 *
 * Order.  One stream to each peer carries both hops: chunk k - AHEAD of the second hop follows chunk k of the first.
 * About 15 us (H200) pass between the arrival of a chunk and the departure of its result: flags, a kernel and the start
 * of a copy engine. Meanwhile the wire carries the chunks between. More streams to a peer are slower: 580 us against
 * 537 at 128 MiB on 2 GPUs.
 *
 * No deadlock.  No stream waits for work queued behind it. Assume that every rank executes all its work strictly in the
 * order in which it queues it, over all of its streams and kernels (a GPU may do so: streams share few hardware
 * queues). By induction over steps k, all ranks still end step k, since each part waits only for work that ranks queue
 * before it:
 *   first hop   chunk k waits for the peer's kernel of chunk k - BUFFERS;
 *   kernel      of chunk k waits for the first hop's chunk k of all, and, where its result goes through a buffer of the
 *               slot, for our own second hop's chunk k - BUFFERS (of step k - BUFFERS + AHEAD, before this one);
 *   second hop  chunk k - AHEAD waits for our kernel of that chunk, or, in a broadcast, for the first hop's.
 */
#include "mca/common/gpusym/exec/copies.h"

#include <stdlib.h>

#include "mca/common/gpusym/log.h"

/* Most flag operations that a stream collects before its next copy. */
#define PENDING_MAX 6u

typedef struct {
    gpusym_stream_t *stream;
    gpusym_stream_flag_t pending[PENDING_MAX];
    unsigned n;
    bool used; /* by this operation */
} outgoing_t;

#define BUFFERS GPUSYM_COPIES_BUFFERS
#define AHEAD (BUFFERS - 1)

struct gpusym_copies_streams {
    uint32_t n;
    gpusym_lane_t *lane[GPUSYM_TEAM_MAX]; /* [n] the lanes whose streams these are */
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

/* ---- the call ---- */

typedef struct {
    const gpusym_work_t *w;
    const gpusym_device_t *dev;
    gpusym_copies_streams_t *s;
    bool reduces;
    uint32_t nchunks;
    uint32_t sources, owners, receivers; /* masks of the ranks that have input, own a slice, get the result */
    bool result_in_slot;                 /* our slice's result goes through our slot */
    int rc;                              /* of what was queued so far */
} ce_call_t;

static bool has_rank(uint32_t mask, uint32_t rank)
{
    return 0 != (mask & 1u << rank);
}

static uint32_t make_mask(uint32_t first, uint32_t end)
{
    return (uint32_t) ((1ull << end) - (1ull << first));
}

/* The q-th rank after ours: ranks begin with different peers, which spreads the load over ports. */
static uint32_t nth_peer(const gpusym_work_t *w, uint32_t q)
{
    return (w->rank + q) % w->nranks;
}

/* A chunk of the slice of rank p, or of the segment for it. */
typedef struct {
    uint64_t off, bytes; /* in the message, or in the segment */
} chunk_t;

static chunk_t chunk_of(const ce_call_t *c, uint32_t p, uint32_t k)
{
    const gpusym_work_t *w = c->w;
    const uint64_t at = (uint64_t) k * w->chunk, after = at + w->chunk < w->span ? at + w->chunk : w->span;
    const uint64_t slice = w->copies.whole ? (p < w->skip ? p : p - 1) * w->span : 0;
    const uint64_t end = w->copies.whole ? w->bytes : w->send[p].bytes;
    const uint64_t from = GPUSYM_PACK * (slice + at), to = GPUSYM_PACK * (slice + after);
    const chunk_t chunk = {from, from >= end ? 0 : (to < end ? to : end) - from};
    return chunk;
}

/* The offset in a slot at which the ranks' chunks k arrive, and our result if it goes through the slot. */
static uint64_t arrivals_off(const gpusym_work_t *w, uint32_t k)
{
    return w->stage_off + (uint64_t) (k % BUFFERS) * w->nranks * w->stage_bytes;
}

static char *result_at(const ce_call_t *c, uint32_t k, const chunk_t *chunk)
{
    const gpusym_work_t *w = c->w;
    if (c->result_in_slot) {
        return (char *) w->peer[w->rank] + arrivals_off(w, k) + (uint64_t) (w->nranks - 1) * w->stage_bytes;
    }
    return (char *) w->out + (w->copies.whole ? chunk->off : w->recv[w->rank].off + chunk->off);
}

static uint32_t *flag_at(const gpusym_work_t *w, uint32_t owner, uint32_t row, uint32_t writer)
{
    return (uint32_t *) ((char *) w->peer[owner] + GPUSYM_FLAGS_OFF + row * GPUSYM_FLAG_ROW + 4 * writer);
}

static uint32_t *sent_word(const gpusym_work_t *w, uint32_t p)
{
    return (uint32_t *) ((char *) w->peer[w->rank] + GPUSYM_SENT_OFF + 4 * p);
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

/* Return whether this rank sends to rank p in the first hop, in the second. */
static bool scatters_to(const ce_call_t *c, uint32_t p)
{
    return has_rank(c->sources, c->w->rank) && has_rank(c->owners, p);
}

static bool gathers_to(const ce_call_t *c, uint32_t p)
{
    return has_rank(c->owners, c->w->rank) && has_rank(c->receivers, p) && (c->reduces || !has_rank(c->sources, p));
}

/* Waits for the flag of chunk k of our slice. Our kernel writes it, or (broadcast) the stream of the only source. */
static void await_result(ce_call_t *c, outgoing_t *o, uint32_t k)
{
    const gpusym_work_t *w = c->w;
    add_flag(c, o, true,
             c->reduces ? flag_at(w, w->rank, REDUCED, w->rank) : flag_at(w, w->rank, ARRIVED, w->src_first),
             w->epoch + k);
}

/* Has all streams that send input wait for what the lane has queued so far, which brings it. */
static void await_input(ce_call_t *c, const gpusym_lane_t *lane)
{
    const gpusym_stream_flag_t brought = {false, sent_word(c->w, c->w->rank), c->w->epoch};
    c->rc = c->dev->stream_flags(lane->stream, &brought, 1);
    for (uint32_t p = 0; p < c->w->nranks; p++) {
        if (scatters_to(c, p) && p != c->w->rank) {
            add_flag(c, &c->s->to[p], true, brought.at, brought.value);
        }
    }
}

/* First hop: sends chunk k of every slice to its owner. Queues its flag now, since the next kernel may wait for it, and
 * with it the wait of the second hop: one call to the driver. */
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
        const char *from = (const char *) w->in + (w->copies.whole ? 0 : w->send[p].off) + chunk.off;
        char *to = (char *) w->peer_out[p] + chunk.off;
        if (c->reduces) {
            to = (char *) w->peer[p] + arrivals_off(w, k) + (uint64_t) (me - (me > p)) * w->stage_bytes;
            if (k >= BUFFERS) { /* written by p's kernel */
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

/* Reduces chunk k of our slice, once it has arrived. */
static void queue_reduce(ce_call_t *c, gpusym_lane_t *lane, unsigned kernel, uint32_t k)
{
    gpusym_work_t w = *c->w;
    const uint32_t me = w.rank;
    if (!has_rank(c->owners, me) || GPUSYM_SUCCESS != c->rc) {
        return;
    }
    const chunk_t chunk = chunk_of(c, me, k);
    if (0 != chunk.bytes) {
        w.in = (const char *) w.in + (w.copies.whole ? 0 : w.send[me].off) + chunk.off;
        w.out = result_at(c, k, &chunk);
    } else { /* there may be no buffers; peers still wait for the flags */
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

/* Second hop: sends chunk k of our slice's result to all receivers. Only the last kernel waits for its flag, which can
 * be queued with later work. */
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
        if (!scatters_to(c, p) || k + AHEAD >= c->nchunks) { /* else queued with the first hop */
            await_result(c, o, k);
        }
        queue_copy(c, o, (char *) w->peer_out[p] + chunk.off, result_at(c, k, &chunk), chunk.bytes);
        add_flag(c, o, false, flag_at(w, p, DELIVERED, me), epoch);
        if (c->result_in_slot) { /* only our kernel waits for it */
            add_flag(c, o, false, sent_word(w, p), epoch);
            queue_flags(c, o);
        }
    }
}

/* Sends segments, which are not reduced. */
static void queue_exchange(ce_call_t *c)
{
    const gpusym_work_t *w = c->w;
    for (uint32_t q = 0; q < w->nranks; q++) {
        const uint32_t p = nth_peer(w, q);
        const uint64_t bytes = w->send[p].bytes;
        const char *from = (const char *) w->in + w->send[p].off;
        outgoing_t *o = &c->s->to[p];
        if (0 == bytes) {
            continue;
        }
        if (p == w->rank) {
            queue_copy(c, o, (char *) w->out + w->recv[p].off, from, bytes);
        } else {
            queue_copy(c, o, (char *) w->peer_out[p] + w->remote_off[p], from, bytes);
            add_flag(c, o, false, flag_at(w, p, DELIVERED, w->rank), w->epoch);
        }
    }
}

/* Copies the only source's input to its own output, if these differ. */
static void queue_own_copy(ce_call_t *c)
{
    const gpusym_work_t *w = c->w;
    if (!c->reduces && w->copies.whole && has_rank(c->sources & c->receivers, w->rank) && w->in != w->out) {
        queue_copy(c, &c->s->to[w->rank], w->out, w->in, w->bytes);
    }
}

/* Has every stream report its end, and the last kernel wait for these reports and for the data of other ranks. */
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

int gpusym_copies_queue(gpusym_copies_streams_t *streams, gpusym_lane_t *lane, unsigned reduce_kernel, unsigned end,
                        bool reduces, bool fills, const gpusym_work_t *work, bool *queued)
{
    gpusym_work_t w = *work;
    ce_call_t c = {.w = &w, .dev = lane->dev, .s = streams, .reduces = reduces, .rc = GPUSYM_SUCCESS};
    const bool two_hops = 0 != w.copies.whole;

    c.nchunks = (uint32_t) ((w.span + w.chunk - 1) / w.chunk);
    w.copies.last = w.epoch + c.nchunks - 1;
    c.sources = make_mask(w.src_first, w.src_end);
    c.receivers = two_hops ? make_mask(w.dst_first, w.dst_end) : 0;
    c.owners = make_mask(0, w.nranks) & ~(two_hops && w.skip < w.nranks ? 1u << w.skip : 0);
    c.result_in_slot = reduces && two_hops && !has_rank(c.receivers, w.rank);
    gpusym_lane_begin(lane, &w);

    if (fills) {
        await_input(&c, lane);
    }
    queue_own_copy(&c);
    if (!two_hops && !reduces) {
        queue_exchange(&c);
    }
    for (uint32_t k = 0; k < c.nchunks + AHEAD && (two_hops || reduces);
         k++) { /* in the order that the top of this file describes */
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
    if (GPUSYM_SUCCESS != c.rc) { /* no rank may write what the streams wait for: the last kernel ends their waits */
        __atomic_store_n(&lane->host->abort, 1u, __ATOMIC_RELEASE);
    }
    const int rc = queue_end(&c, lane, end);
    *queued = GPUSYM_SUCCESS == rc;
    return GPUSYM_SUCCESS != c.rc ? c.rc : rc;
}
