/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Staged copies: see staged_copies.h.
 *
 *     sender:    buffer -> ring in its staging buffer   `filled` segments are there
 *     receiver:  ring -> buffer                         `taken` of them are copied: their slots are free
 *
 * A receiver needs nothing of its own to take a segment, and a part of each staging buffer is for staged copies only,
 * which begin when all ranks have come. So every flow goes on once its receiver is in the call, whatever other calls
 * hold of the staging buffers.
 */
#include "mca/coll/gpusym/exec/staged_copies.h"

#include <stdlib.h>
#include <string.h>

#include "mca/coll/gpusym/args/facts.h"
#include "mca/common/gpusym/exec/lane.h"
#include "mca/common/gpusym/exec/queue.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/gpusym/shm/flow.h"

/* Copies of this rank under way in each direction: the copy engine always has the next one. */
#define COPIES_MAX 3u
/* Bytes of segments: of whole flows up to SEGMENT_MIN one, of longer ones an eighth, up to a chunk of the staging
 * buffer. */
#define SEGMENT_MIN (64ull << 10)
#define SEGMENT_MAX GPUSYM_STAGING_BUFFER_CHUNK
/* Segments of a flow that are in its ring, at most; and bytes of the rings of a call. */
#define SLOTS_MAX 8u
#define RINGS_MAX (12ull << 20)

#define READ(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define WRITE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

/* A flow on the sender's board: its first line is the sender's, the second the receiver's. */
typedef struct {
    uint64_t filled;       /* segments; the three fields behind are there if it is not 0 */
    uint64_t segment, off; /* bytes of a segment; the ring's offset in the staging buffer */
    uint32_t slots;        /* segments that the ring holds */
    uint32_t pad;
    uint64_t bytes;              /* of the flow; there with the board */
    _Alignas(64) uint64_t taken; /* segments; GPUSYM_FLOW_OVER: the receiver does not look at the board any more */
} flow_t;
_Static_assert(128 == sizeof(flow_t), "flows are two cache lines");

/* A flow that this rank sends. */
typedef struct {
    const char *from;
    uint64_t bytes, segment, segments, off;
    gpusym_flow_t ring; /* of segments. No slots: it has none yet */
    uint64_t started;   /* segments */
    bool over;          /* all its receivers have acknowledged that */
} out_t;

/* A flow that this rank receives. */
typedef struct {
    const flow_t *flow; /* NULL: the board is not there yet */
    char *to;
    uint64_t room, bytes;  /* of the buffer; of the flow */
    uint64_t segment, off; /* as the sender says, read once */
    gpusym_flow_t ring;    /* of segments. No slots: not known yet */
    uint64_t segments, started;
    bool over;
} in_t;

struct coll_gpusym_staged_copies {
    const gpusym_agreement_t *rc;
    const coll_gpusym_staging_buffers_t *w;
    gpusym_gpu_t *gpu; /* NULL: both buffers are host memory */
    uint64_t seq;
    uint32_t n, me;
    bool shared; /* all receivers read one flow */
    bool truncated, failed;
    flow_t *board; /* [n], in our staging buffer; NULL: we send nothing, or there is no room yet */
    uint64_t board_off;
    bool sends;
    uint32_t outs, ins;     /* flows that are not over */
    gpusym_lane_t *own;     /* what this rank sends to itself, or its copies to `kept` */
    char *kept;             /* in place: what is sent, before it is overwritten; owned */
    bool keeps;             /* it is being copied there */
    bool kept_on_gpu;       /* it is scratch memory, not the host's */
    gpusym_queue_t out, in; /* to and from staging buffers, by peer. No gpu: the buffer is host memory */
    out_t *to;              /* [n]; shared: [0] alone */
    in_t *from;             /* [n] */
};

/* ---- staging buffers ---- */

static bool find_staging(coll_gpusym_staging_buffers_t *w, const gpusym_agreement_t *rc, bool *refused)
{
    bool all = true;
    for (uint32_t r = 0; r < rc->nranks && !*refused; r++) {
        if (NULL == w->of[r]) {
            const int rv = gpusym_staging_buffer_of(rc->peer[r], &w->of[r]);
            all = all && GPUSYM_SUCCESS == rv;
            *refused = GPUSYM_SUCCESS != rv && GPUSYM_ERR_NOT_AVAILABLE != rv;
        }
    }
    return all;
}

void coll_gpusym_staging_buffers_poll(coll_gpusym_staging_buffers_t *w, gpusym_agreement_t *rc, uint64_t seq)
{
    gpusym_staging_buffer_t *own;
    if (!w->voted) {
        bool refused = gpusym_agreement_refused(rc, seq) || GPUSYM_SUCCESS != gpusym_staging_buffer_own(&own);
        if (NULL == w->of && !refused) {
            w->of = calloc(rc->nranks, sizeof(gpusym_staging_buffer_t *));
            refused = NULL == w->of;
        }
        const bool all = !refused && find_staging(w, rc, &refused);
        if (refused || all) {
            gpusym_agreement_vote(rc, seq, all && !refused);
            w->voted = true;
        }
    }
    w->agreed = w->voted ? gpusym_agreement_votes(rc, seq) : 0;
}

void coll_gpusym_staging_buffers_free(coll_gpusym_staging_buffers_t *w)
{
    free(w->of);
    w->of = NULL;
}

/* ---- who sends to whom ---- */

static bool rank_sends(const coll_gpusym_args_t *a, uint32_t r)
{
    return COLL_GPUSYM_RANKS_ROOT != coll_gpusym_facts[a->coll].from || r == (uint32_t) a->root;
}

static bool rank_receives(const coll_gpusym_args_t *a, uint32_t r)
{
    switch (coll_gpusym_facts[a->coll].to) {
    case COLL_GPUSYM_RANKS_ROOT:
        return r == (uint32_t) a->root;
    case COLL_GPUSYM_RANKS_OTHERS:
        return r != (uint32_t) a->root;
    default:
        return true;
    }
}

/* Where this rank's i-th turn is with rank r, rank r's i-th turn is with this rank. */
static uint32_t turn_with(const coll_gpusym_staged_copies_t *m, uint32_t i)
{
    return (i + m->n - m->me % m->n) % m->n;
}

static out_t *out_to(const coll_gpusym_staged_copies_t *m, uint32_t r)
{
    return &m->to[m->shared ? 0 : r];
}

/* ---- making ---- */

static void set_flows(coll_gpusym_staged_copies_t *m, const coll_gpusym_args_t *a, const char *in, char *out,
                      const gpusym_table_row_t *row)
{
    for (uint32_t r = 0; r < m->n; r++) {
        if (r != m->me && m->sends && rank_receives(a, r)) {
            *out_to(m, r) = (out_t){.from = in + row[r].send_off, .bytes = row[r].send_bytes};
            m->outs += m->shared && m->outs > 0 ? 0 : 1;
        } else if (!m->shared) {
            m->to[r].over = true;
        }
        m->from[r] = (in_t){.to = out + row[r].recv_off, .room = row[r].recv_bytes, .over = true};
        if (r != m->me && rank_sends(a, r) && rank_receives(a, m->me)) {
            m->from[r].over = false;
            m->ins++;
        }
    }
}

/* In place, or where one buffer is both (a broadcast), what is sent lies in the receive buffer. */
static bool open_gpu(coll_gpusym_staged_copies_t *m, const coll_gpusym_buffers_t *b)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    if (coll_gpusym_buffers_on_gpu(b) && GPUSYM_SUCCESS != dev->gpu_open(coll_gpusym_buffers_where(b), &m->gpu)) {
        return false;
    }
    const gpusym_mem_t *sent = GPUSYM_MEM_NONE == b->send.mem.kind ? &b->recv.mem : &b->send.mem;
    m->in = (gpusym_queue_t){.dev = dev, .gpu = coll_gpusym_on_gpu(&b->recv.mem) ? m->gpu : NULL};
    m->out = (gpusym_queue_t){.dev = dev, .gpu = coll_gpusym_on_gpu(sent) ? m->gpu : NULL};
    return true;
}

/* What a rank sends to itself. Both are the same where it is in place. */
static void copy_own(coll_gpusym_staged_copies_t *m, const gpusym_table_row_t *own, const char *in, char *out)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const char *from = in + own->send_off;
    char *to = out + own->recv_off;
    const uint64_t bytes = own->send_bytes < own->recv_bytes ? own->send_bytes : own->recv_bytes;
    m->truncated = own->send_bytes > own->recv_bytes;
    if (0 == bytes || from == to) {
        return;
    }
    if (NULL == m->gpu) {
        memmove(to, from, bytes);
    } else if (GPUSYM_SUCCESS != gpusym_lane_get(dev, m->gpu, &m->own)) {
        m->own = NULL;
        m->failed = GPUSYM_SUCCESS != dev->copy(m->gpu, to, from, bytes);
    } else {
        m->failed = GPUSYM_SUCCESS != dev->copy_async(m->own->stream, to, from, bytes);
    }
}

/* Memory for what an in-place call sends: of the GPU if there is any. False: none. */
static bool get_kept(coll_gpusym_staged_copies_t *m, uint64_t bytes)
{
    void *p = NULL;
    m->kept_on_gpu = NULL != m->gpu && GPUSYM_SUCCESS == gpusym_scratch_get(gpusym_current.dev, m->gpu, bytes, &p);
    m->kept = m->kept_on_gpu ? p : malloc(bytes);
    m->out.gpu = m->kept_on_gpu ? m->gpu : NULL;
    return NULL != m->kept;
}

static bool keep_block(coll_gpusym_staged_copies_t *m, void *to, const void *from, uint64_t bytes)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    if (NULL == m->gpu) {
        memcpy(to, from, bytes);
        return true;
    }
    return GPUSYM_SUCCESS ==
           (NULL != m->own ? dev->copy_async(m->own->stream, to, from, bytes) : dev->copy(m->gpu, to, from, bytes));
}

/* In place, a block comes where another one is sent from: what is sent is copied first, one block behind the other.
 * Points *in and the rows there. False: no memory. */
static bool keep_sent(coll_gpusym_staged_copies_t *m, gpusym_table_row_t *row, const char **in)
{
    uint64_t at = 0, bytes = 0;
    for (uint32_t r = 0; r < m->n; r++) {
        bytes += row[r].send_bytes;
    }
    if (0 == bytes || m->failed) {
        return true;
    }
    if (!get_kept(m, bytes)) {
        return false;
    }
    m->keeps = m->kept_on_gpu && GPUSYM_SUCCESS == gpusym_lane_get(gpusym_current.dev, m->gpu, &m->own);
    m->own = m->keeps ? m->own : NULL;
    for (uint32_t r = 0; r < m->n && !m->failed; r++) {
        m->failed = 0 != row[r].send_bytes && !keep_block(m, m->kept + at, *in + row[r].send_off, row[r].send_bytes);
        row[r].send_off = at;
        at += row[r].send_bytes;
    }
    *in = m->kept;
    return true;
}

coll_gpusym_staged_copies_t *coll_gpusym_staged_copies_begin(const coll_gpusym_segments_t *k,
                                                             const coll_gpusym_buffers_t *b,
                                                             const gpusym_agreement_t *rc,
                                                             const coll_gpusym_staging_buffers_t *w, uint64_t seq)
{
    const uint32_t n = rc->nranks;
    const unsigned pattern = coll_gpusym_facts[k->args->coll].pattern;
    gpusym_table_row_t *row = calloc(n, sizeof *row);
    coll_gpusym_staged_copies_t *m = calloc(1, sizeof *m + n * (sizeof *m->to + sizeof *m->from));
    const char *in;
    char *out;

    if (NULL == row || NULL == m) {
        free(row);
        free(m);
        return NULL;
    }
    coll_gpusym_segments_stage(k, row, &in, &out);
    m->rc = rc;
    m->w = w;
    m->seq = seq;
    m->n = n;
    m->me = rc->rank;
    m->shared = COLL_GPUSYM_P_ROOTED == pattern || COLL_GPUSYM_P_ALLGATHER == pattern;
    m->to = (out_t *) (m + 1);
    m->from = (in_t *) (m->to + n);
    m->sends = rank_sends(k->args, m->me);
    m->failed = !open_gpu(m, b);
    if (k->in_place && COLL_GPUSYM_P_ALLTOALL == pattern && !keep_sent(m, row, &in)) {
        free(row);
        free(m);
        return NULL;
    }
    set_flows(m, k->args, in, out, row);
    m->sends = m->outs > 0;
    if (!m->failed) {
        copy_own(m, &row[m->me], in, out);
    }
    free(row);
    return m;
}

/* ---- the board ---- */

/* Puts up our board. False: the staging buffer has no room now. */
static bool put_board(coll_gpusym_staged_copies_t *m)
{
    gpusym_line_t *line = m->rc->line[m->me];
    void *at;
    if (GPUSYM_SUCCESS != gpusym_staging_buffer_get(m->n * sizeof(flow_t), &m->board_off)) {
        return false;
    }
    m->board = gpusym_staging_buffer_at(m->w->of[m->me], m->board_off, m->n * sizeof(flow_t));
    memset(m->board, 0, m->n * sizeof(flow_t));
    for (uint32_t r = 0; r < m->n; r++) {
        m->board[r].bytes = out_to(m, r)->bytes;
    }
    if (NULL != m->out.gpu) {
        (void) gpusym_staging_buffer_register(m->w->of[m->me], gpusym_current.dev, m->gpu, &at);
    }
    WRITE(line->board, m->seq << GPUSYM_BOARD_BITS | m->board_off / GPUSYM_BOARD_UNIT);
    return true;
}

/* Looks for rank r's board. False: it lies where no board can. */
static bool find_board(coll_gpusym_staged_copies_t *m, uint32_t r)
{
    const uint64_t word = READ(m->rc->line[r]->board);
    in_t *in = &m->from[r];
    void *at;
    if (word >> GPUSYM_BOARD_BITS != (m->seq & UINT64_MAX >> GPUSYM_BOARD_BITS)) {
        return true;
    }
    flow_t *board = gpusym_staging_buffer_at(m->w->of[r], word % (1u << GPUSYM_BOARD_BITS) * GPUSYM_BOARD_UNIT,
                                             m->n * sizeof(flow_t));
    if (NULL == board) {
        return false;
    }
    flow_t *flow = &board[m->shared ? 0 : m->me];
    in->flow = flow;
    in->ring = (gpusym_flow_t){.filled = &flow->filled, .taken = &board[m->me].taken};
    in->bytes = flow->bytes;
    m->truncated = m->truncated || in->bytes > in->room;
    if (NULL != m->in.gpu && 0 != in->bytes) {
        (void) gpusym_staging_buffer_register(m->w->of[r], gpusym_current.dev, m->gpu, &at);
    }
    return true;
}

/* ---- copies ---- */

static bool has_room(const coll_gpusym_staged_copies_t *m, const gpusym_queue_t *copies)
{
    return !m->failed && gpusym_queue_under_way(copies) < COPIES_MAX;
}

/* Copies between a buffer and a staging buffer; has_room(). */
static void copy_segment(coll_gpusym_staged_copies_t *m, gpusym_queue_t *copies, uint32_t peer, void *to,
                         const void *from, uint64_t bytes)
{
    const gpusym_copy_rows_t run = {.dst = to, .src = from, .width = bytes, .height = 1, .engine = true};
    m->failed = GPUSYM_SUCCESS != gpusym_queue_start(copies, &run, peer);
}

/* Whether the oldest copy has ended, and whose it was. */
static bool end_segment(coll_gpusym_staged_copies_t *m, gpusym_queue_t *copies, uint32_t *peer)
{
    const int ended = gpusym_queue_end(copies, peer);
    m->failed = m->failed || ended < 0;
    return ended > 0;
}

/* ---- sending ---- */

/* The segments that all receivers of a flow have taken, or GPUSYM_FLOW_OVER. */
static uint64_t taken_of(const coll_gpusym_staged_copies_t *m, uint32_t r)
{
    uint64_t least = GPUSYM_FLOW_OVER;
    if (!m->shared) {
        return READ(m->board[r].taken);
    }
    for (uint32_t p = 0; p < m->n; p++) {
        const uint64_t taken = p == m->me ? GPUSYM_FLOW_OVER : READ(m->board[p].taken);
        least = taken < least ? taken : least;
    }
    return least;
}

/* Gives a flow its ring: a smaller one where the staging buffer is full. False: it has no room now. */
static bool get_ring(coll_gpusym_staged_copies_t *m, out_t *o, flow_t *flow)
{
    const uint64_t eighth = (o->bytes / 8 + SEGMENT_MIN - 1) / SEGMENT_MIN * SEGMENT_MIN;
    const uint64_t share = RINGS_MAX / (m->outs < 3 ? m->outs : 3);
    o->segment = o->bytes <= SEGMENT_MIN ? o->bytes : eighth < SEGMENT_MIN ? SEGMENT_MIN : eighth;
    o->segment = o->segment > SEGMENT_MAX ? SEGMENT_MAX : o->segment;
    o->segments = (o->bytes + o->segment - 1) / o->segment;
    uint64_t slots = share / o->segment < o->segments ? share / o->segment : o->segments;
    slots = slots > SLOTS_MAX ? SLOTS_MAX : slots;
    while (slots > 0 && GPUSYM_SUCCESS != gpusym_staging_buffer_get(slots * o->segment, &o->off)) {
        slots /= 2;
    }
    o->ring = (gpusym_flow_t){.filled = &flow->filled, .taken = &flow->taken, .slots = slots};
    flow->segment = o->segment;
    flow->off = o->off;
    flow->slots = (uint32_t) slots;
    return 0 != slots;
}

/* Tells of the segments that are in their rings. */
static void end_sends(coll_gpusym_staged_copies_t *m)
{
    uint32_t r;
    while (end_segment(m, &m->out, &r)) {
        out_t *o = out_to(m, r);
        gpusym_flow_publish(&o->ring, o->ring.told + 1);
    }
}

/* Starts the copy of a flow's next segment, if its ring has a free slot. False: not now, or (*corrupt) never. */
static bool send_segment(coll_gpusym_staged_copies_t *m, uint32_t r, bool *corrupt)
{
    out_t *o = out_to(m, r);
    if (o->over || 0 == o->bytes || (0 != o->ring.slots && o->started == o->segments) ||
        (0 == o->ring.slots && !get_ring(m, o, &m->board[r]))) {
        return false;
    }
    const int64_t room = gpusym_flow_room_by(&o->ring, o->started, taken_of(m, r));
    if (room <= 0) {
        *corrupt = room < 0;
        return false;
    }
    const uint64_t at = o->started * o->segment, left = o->bytes - at;
    const uint64_t bytes = left < o->segment ? left : o->segment;
    void *slot = gpusym_staging_buffer_at(m->w->of[m->me], o->off + o->started % o->ring.slots * o->segment, bytes);
    o->started++;
    copy_segment(m, &m->out, r, slot, o->from + at, bytes);
    end_sends(m); /* of host memory it has ended */
    return true;
}

/* Notes flows whose receivers are done. False: one says so before it can be. */
static bool end_flows(coll_gpusym_staged_copies_t *m)
{
    for (uint32_t r = 0; r < (m->shared ? 1 : m->n); r++) {
        out_t *o = &m->to[r];
        if (o->over || GPUSYM_FLOW_OVER != taken_of(m, r)) {
            continue;
        }
        if (o->ring.told * o->segment < o->bytes) {
            return false;
        }
        o->over = true;
        m->outs--;
        if (0 != o->ring.slots) {
            gpusym_staging_buffer_put(o->off);
        }
    }
    return true;
}

/* False: our board is corrupt. */
static bool send_some(coll_gpusym_staged_copies_t *m)
{
    bool corrupt = false;
    if (NULL == m->board && !put_board(m)) {
        return true;
    }
    end_sends(m);
    /* The first turns first: the other rank does the same. */
    for (uint32_t i = 0; i < m->n && has_room(m, &m->out) && !corrupt; i++) {
        const uint32_t turn = m->shared ? 0 : turn_with(m, i);
        while (has_room(m, &m->out) && send_segment(m, turn, &corrupt)) {
        }
        i = m->shared ? m->n : i;
    }
    return !corrupt && end_flows(m);
}

/* ---- receiving ---- */

/* Acknowledges a flow that has been taken, or has nothing. */
static void end_flow(coll_gpusym_staged_copies_t *m, in_t *in)
{
    in->over = true;
    m->ins--;
    gpusym_flow_take(&in->ring, GPUSYM_FLOW_OVER);
}

static void note_taken(coll_gpusym_staged_copies_t *m, in_t *in)
{
    const uint64_t taken = in->ring.told + 1;
    if (taken == in->segments) {
        end_flow(m, in);
    } else {
        gpusym_flow_take(&in->ring, taken);
    }
}

static void end_receives(coll_gpusym_staged_copies_t *m)
{
    uint32_t r;
    while (end_segment(m, &m->in, &r)) {
        note_taken(m, &m->from[r]);
    }
}

/* Reads where the sender has its ring, once it says so. False: that is corrupt. */
static bool read_ring(in_t *in)
{
    in->segment = READ(in->flow->segment);
    in->off = READ(in->flow->off);
    in->ring.slots = READ(in->flow->slots);
    if (0 == in->segment || in->segment > in->bytes || 0 == in->ring.slots || in->ring.slots > SLOTS_MAX) {
        return false;
    }
    in->segments = (in->bytes - 1) / in->segment + 1;
    return true;
}

/* Returns how many segments more of a flow are there, or GPUSYM_ERR_CORRUPT. */
static int64_t segments_there(in_t *in)
{
    if (0 == in->ring.slots && !gpusym_flow_has_begun(&in->ring)) {
        return 0;
    }
    if (0 == in->ring.slots && !read_ring(in)) {
        return GPUSYM_ERR_CORRUPT;
    }
    const int64_t ready = gpusym_flow_ready(&in->ring, in->started);
    return in->ring.seen <= in->segments ? ready : GPUSYM_ERR_CORRUPT;
}

/* Starts the copy of rank r's next segment, if it is there. False: not now, or (*corrupt) never. */
static bool receive_segment(coll_gpusym_staged_copies_t *m, uint32_t r, bool *corrupt)
{
    in_t *in = &m->from[r];
    if (0 == in->bytes) {
        end_flow(m, in);
        return false;
    }
    const int64_t there = segments_there(in);
    if (there <= 0) {
        *corrupt = there < 0;
        return false;
    }
    if (in->room <= in->started * in->segment && in->ring.told < in->started) {
        return false; /* what has no room is taken behind what has */
    }
    const uint64_t at = in->started * in->segment, left = in->bytes - at;
    const uint64_t bytes = left < in->segment ? left : in->segment, room = in->room > at ? in->room - at : 0;
    const void *slot =
        gpusym_staging_buffer_at(m->w->of[r], in->off + in->started % in->ring.slots * in->segment, bytes);
    if (NULL == slot) {
        *corrupt = true;
        return false;
    }
    in->started++;
    if (0 == room) { /* it is let go */
        note_taken(m, in);
        return !in->over;
    }
    copy_segment(m, &m->in, r, in->to + at, slot, bytes < room ? bytes : room);
    end_receives(m);
    return !in->over && in->started < in->segments;
}

/* False: rank *rank's board is corrupt. */
static bool receive_some(coll_gpusym_staged_copies_t *m, uint32_t *rank)
{
    uint32_t r;
    bool corrupt = false;
    end_receives(m);
    for (uint32_t i = 0; i < m->n && !m->failed; i++) {
        r = turn_with(m, i);
        *rank = r;
        if (m->from[r].over) {
            continue;
        }
        if (NULL == m->from[r].flow && !find_board(m, r)) {
            return false;
        }
        while (NULL != m->from[r].flow && has_room(m, &m->in) &&
               (0 == m->from[r].segments || m->from[r].started < m->from[r].segments) &&
               receive_segment(m, r, &corrupt)) {
        }
        if (corrupt) {
            return false;
        }
    }
    return true;
}

/* ---- the whole ---- */

coll_gpusym_staged_copies_state_t coll_gpusym_staged_copies_poll(coll_gpusym_staged_copies_t *m, uint32_t *rank)
{
    if (m->keeps && !m->failed) {
        const int kept = gpusym_current.dev->stream_poll(m->own->stream);
        if (0 == kept) {
            return COLL_GPUSYM_STAGED_COPIES_GOES_ON;
        }
        m->failed = kept < 0; /* nothing of it is sent */
    }
    m->keeps = false;
    if (m->sends && !m->failed && !send_some(m)) {
        *rank = m->me;
        return COLL_GPUSYM_STAGED_COPIES_CORRUPT;
    }
    if (m->ins > 0 && !m->failed && !receive_some(m, rank)) {
        return COLL_GPUSYM_STAGED_COPIES_CORRUPT;
    }
    const int own = NULL == m->own ? 1 : gpusym_current.dev->stream_poll(m->own->stream);
    if (m->failed || own < 0) {
        return COLL_GPUSYM_STAGED_COPIES_GPU_ERROR;
    }
    if (0 != m->outs || 0 != m->ins || 0 == own) {
        return COLL_GPUSYM_STAGED_COPIES_GOES_ON;
    }
    return m->truncated ? COLL_GPUSYM_STAGED_COPIES_TRUNCATED : COLL_GPUSYM_STAGED_COPIES_ENDED;
}

bool coll_gpusym_staged_copies_stop(coll_gpusym_staged_copies_t *m)
{
    const bool sent = gpusym_queue_drain(&m->out), received = gpusym_queue_drain(&m->in);
    return sent && received && (NULL == m->own || 0 != gpusym_current.dev->stream_poll(m->own->stream));
}

void coll_gpusym_staged_copies_free(coll_gpusym_staged_copies_t *m)
{
    if (NULL == m) {
        return;
    }
    if (NULL != m->own) {
        gpusym_lane_put(m->own);
    }
    if (m->kept_on_gpu) {
        gpusym_scratch_put(gpusym_current.dev, m->gpu, m->kept);
    } else {
        free(m->kept);
    }
    if (NULL != m->board && 0 == m->outs) {
        gpusym_staging_buffer_put(m->board_off);
    } else if (NULL != m->board) { /* nor are the rings put back: receivers may still read them */
        gpusym_staging_buffer_lose();
    }
    free(m);
}
