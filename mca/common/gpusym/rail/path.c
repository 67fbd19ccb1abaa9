/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls along rings, chains and trees: see rail.h.  The steps are those of kernels/schedule.h, in their order; several
 * are under way at a time, since a step needs no more than what has landed for it and a buffer to send from.
 *
 * A step that sends what it receives as it is sends it from the ring, at once, beside the kernel that stores it.  A
 * piece is released, and the step ends, when all that uses it has ended.
 */
#include "mca/common/gpusym/rail/path.h"

#include <string.h>

#include "mca/common/gpusym/topo/paths.h"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* x / by, upwards to a multiple of a line of memory. */
static uint64_t share_of(uint64_t x, uint64_t by)
{
    return ((x + by - 1) / by + 127) / 128 * 128;
}

static bool is_tree(uint32_t kind)
{
    return kind >= GS_TREE_ALLREDUCE;
}

/* ---- starting ---- */

static bool is_ring(uint32_t kind)
{
    return GS_RING_ALLREDUCE == kind || GS_RING_ALLGATHER == kind || GS_RING_REDUCE_SCATTER == kind;
}

/* Cuts the channel's part in loops, as few as pieces allow, and even ones. A ring has one piece of a channel on each
 * wire at a time, so its pieces are long: a wire that is slow has enough to send while this process does not run. */
static void cut_loops(const gpusym_rail_t *r, gpusym_rail_channel_t *ch)
{
    const uint64_t chunks = GS_RING_ALLREDUCE == ch->schedule.kind ? r->params.n : 1, bytes = ch->to - ch->from;
    const uint32_t piece = r->params.piece_bytes, longest = GPUSYM_RAIL_LONG_BYTES(piece);
    const uint64_t most = chunks * (is_ring(ch->schedule.kind) ? longest : piece);
    ch->schedule.loops = (uint32_t) ((bytes + most - 1) / most);
    ch->chunk = 0 != ch->schedule.loops ? share_of(bytes, chunks * ch->schedule.loops) : 0;
    ch->buffer_bytes = ch->chunk > piece ? longest : piece;
    ch->free_buffers = (1u << GPUSYM_RAIL_PIECES * piece / ch->buffer_bytes) - 1;
    ch->steps = gs_schedule_steps(&ch->schedule) * ch->schedule.loops;
}

static int start_channel(gpusym_rail_t *r, uint32_t c, uint64_t from, uint64_t to)
{
    gpusym_rail_channel_t *ch = &r->channel[c];
    gpusym_team_path_t path;
    gpusym_team_path(r->call.schedule, r->params.n, NULL, c, r->params.pos, r->call.root, &path);
    memset(ch, 0, sizeof *ch);
    ch->from = from;
    ch->to = to;
    ch->schedule =
        (gs_schedule_t){.kind = (uint32_t) r->call.schedule, .n = r->params.n, .pos = path.pos, .links = path.links};
    ch->send = r->params.send + (uint64_t) c * GPUSYM_RAIL_PIECES * r->params.piece_bytes;
    cut_loops(r, ch);
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        if (0 != (path.links >> l & 1)) {
            const int rc = gpusym_rail_stream(r, c, path.peer[l], &ch->stream[l]);
            if (GPUSYM_SUCCESS != rc) {
                return rc;
            }
        }
    }
    return GPUSYM_SUCCESS;
}

/* Whether there is an input where the call takes one, and all kernels have room: for the inputs beside the pieces that
 * a step receives, for the outputs beside a send buffer. */
static bool buffers_fit(const gpusym_rail_t *r)
{
    const gpusym_rail_call_t *call = &r->call;
    uint64_t bytes = call->bytes; /* of the input; of a reduce-scatter, of any part */
    if (GS_CHAIN_BCAST == call->schedule || GS_TREE_BCAST == call->schedule) {
        bytes = call->root == r->params.pos ? bytes : 0;
    } else if (GS_RING_ALLGATHER == call->schedule) {
        bytes = call->part(call->arg, r->params.pos).bytes;
    }
    return (0 == bytes || 0 != r->nin) && r->nin + (is_tree(call->schedule) ? 2 : 1) <= GPUSYM_TEAM_MAX &&
           r->nout < GPUSYM_TEAM_MAX;
}

static bool is_scan_right(const gpusym_rail_call_t *c, uint32_t n)
{
    return GPUSYM_RAIL_NO_SCAN == c->scan ||
           (GS_CHAIN_REDUCE == c->schedule && n - 1 == c->root && c->nin == c->nout && NULL == c->in && NULL == c->out);
}

int gpusym_rail_path_start(gpusym_rail_t *r)
{
    if (!buffers_fit(r) || !is_scan_right(&r->call, r->params.n) ||
        (GS_RING_REDUCE_SCATTER == r->call.schedule && gpusym_rail_in_place(r))) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    /* Rings, chains: as many as have a whole piece. Trees are two at least, so that no process sends it all twice. */
    const uint64_t pieces = (r->call.bytes + r->params.piece_bytes - 1) / r->params.piece_bytes;
    const uint64_t least = is_tree(r->call.schedule) ? 2 : 1;
    const uint32_t n = (uint32_t) min_u64(pieces > least ? pieces : least, GPUSYM_RAIL_CHANNELS);
    const uint64_t share = share_of(r->call.bytes, n);
    int rc = GPUSYM_SUCCESS;
    r->nchannels = 0;
    for (uint32_t c = 0; c < n && GPUSYM_SUCCESS == rc; c++) {
        const uint64_t from = min_u64(c * share, r->call.bytes);
        rc = start_channel(r, c, from, min_u64(from + share, r->call.bytes));
        r->nchannels++;
    }
    return rc;
}

/* ---- steps ---- */

/* Where a step's bytes are in the input and in the output. */
typedef struct {
    uint64_t in, out, bytes;
} chunk_t;

static chunk_t find_chunk(const gpusym_rail_t *r, const gpusym_rail_channel_t *ch, const gs_step_t *step)
{
    chunk_t k = {0, 0, 0};
    uint64_t base, end = ch->to, limit = UINT64_MAX;
    if (GS_RING_ALLREDUCE == ch->schedule.kind) {
        base = ch->from + ((uint64_t) step->loop * r->params.n + step->chunk) * ch->chunk;
    } else {
        base = ch->from + step->loop * ch->chunk;
    }
    if (GS_RING_ALLGATHER == ch->schedule.kind || GS_RING_REDUCE_SCATTER == ch->schedule.kind) {
        const gpusym_rail_part_t part = r->call.part(r->call.arg, step->chunk);
        k.out = GS_RING_ALLGATHER == ch->schedule.kind ? part.off : 0;
        k.in = GS_RING_ALLGATHER == ch->schedule.kind ? 0 : part.off;
        limit = part.bytes;
    }
    base = min_u64(min_u64(base, end), limit);
    end = min_u64(min_u64(base + ch->chunk, end), limit);
    k.in += base;
    k.out += base;
    k.bytes = end - base;
    return k;
}

/* The oldest buffer that is free; -1: none. */
static int take_buffer(gpusym_rail_channel_t *ch)
{
    for (int b = 0; b < (int) GPUSYM_RAIL_PIECES; b++) {
        if (0 != (ch->free_buffers >> b & 1)) {
            ch->free_buffers &= ~(1u << b);
            return b;
        }
    }
    return -1;
}

static char *buffer_of(const gpusym_rail_channel_t *ch, int b)
{
    return ch->send + (uint64_t) b * ch->buffer_bytes;
}

/* Reads what a step receives. 1: it is all there. */
static int read_pieces(gpusym_rail_t *r, gpusym_rail_channel_t *ch, gpusym_rail_flight_t *f)
{
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        if (0 != (f->unread >> l & 1)) {
            const int rc = gpusym_rail_read(r, ch->stream[l], f->bytes, &f->piece[l]);
            if (rc < 0) {
                return rc;
            }
            f->unread &= ~((uint32_t) (1 == rc) << l);
        }
    }
    return 0 == f->unread;
}

/* Queues the kernel of a scan's outputs, behind the one that fills the send buffer: an output may be an input. What has
 * come is the first source, and nobody's input. */
static int launch_scan(gpusym_rail_t *r, gpusym_rail_channel_t *ch, gpusym_rail_flight_t *f)
{
    const chunk_t k = find_chunk(r, ch, &f->step);
    const void *src[GPUSYM_TEAM_MAX];
    void *dst[GPUSYM_TEAM_MAX];
    uint32_t n = 0;
    if (0 != f->step.recv) {
        src[n] = gpusym_rail_device(r, f->piece[GS_PREV]);
        dst[n++] = NULL;
    }
    for (uint32_t i = 0; i < r->nin; i++, n++) {
        src[n] = NULL != r->in[i] ? r->in[i] + k.in : NULL;
        dst[n] = NULL != r->out[i] ? r->out[i] + k.out : NULL;
    }
    f->launched = true;
    return gpusym_rail_launch_scan(r, (uint32_t) (ch - r->channel), src, dst, n, GPUSYM_RAIL_EXSCAN == r->call.scan,
                                   k.bytes, &f->work);
}

/* Queues the kernel of a step, if it needs one. In the order in which the kernels' channels reduce, the inputs in
 * theirs. */
static int launch_step(gpusym_rail_t *r, gpusym_rail_channel_t *ch, gpusym_rail_flight_t *f)
{
    const chunk_t k = find_chunk(r, ch, &f->step);
    const void *src[GPUSYM_TEAM_MAX];
    void *dst[GPUSYM_TEAM_MAX];
    uint32_t nsrc = 0, ndst = 0;
    if (GPUSYM_RAIL_NO_SCAN != r->call.scan && f->buffer < 0) {
        return GPUSYM_SUCCESS; /* the last process: only here an input may be NULL */
    }
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        if (GS_CHILD1 == l && 0 != (f->step.does & GS_INPUT)) {
            nsrc += gpusym_rail_inputs(r, k.in, &src[nsrc]);
        }
        if (0 != (f->step.recv >> l & 1)) {
            src[nsrc++] = gpusym_rail_device(r, f->piece[l]);
        }
    }
    if (0 != (f->step.does & GS_COPY) && GPUSYM_RAIL_NO_SCAN == r->call.scan) {
        ndst = gpusym_rail_outputs(r, k.out, src, nsrc, dst);
    }
    if (f->buffer >= 0) {
        dst[ndst++] = gpusym_rail_device(r, buffer_of(ch, f->buffer));
    }
    if (0 == ndst) {
        return GPUSYM_SUCCESS;
    }
    f->launched = true;
    const int rc = gpusym_rail_launch(r, (uint32_t) (ch - r->channel), src, nsrc, dst, ndst, k.bytes, &f->filled);
    f->work = f->filled;
    return rc;
}

/* Begins the next step. 1: it has; 0: it cannot yet, or there is none. */
static int begin_step(gpusym_rail_t *r, gpusym_rail_channel_t *ch)
{
    gpusym_rail_flight_t *f = &ch->flight[ch->begun % GPUSYM_RAIL_FLIGHTS];
    if (ch->begun == ch->steps || ch->begun - ch->ended == GPUSYM_RAIL_FLIGHTS) {
        return 0;
    }
    if (!f->found) {
        (void) gs_schedule_step(&ch->schedule, ch->begun, &f->step);
        f->bytes = find_chunk(r, ch, &f->step).bytes;
        f->unread = 0 != f->bytes ? f->step.recv : 0;
        f->unsent = 0 != f->bytes ? f->step.send : 0;
        f->forwards = 0 == (f->step.does & GS_INPUT) && 0 != f->step.recv && 0 != f->step.send;
        f->buffer = -1;
        f->launched = false;
        f->found = true;
    }
    int rc = read_pieces(r, ch, f);
    if (1 != rc) {
        return rc;
    }
    if (0 != f->unsent && !f->forwards && (f->buffer = take_buffer(ch)) < 0) {
        return 0;
    }
    rc = 0 != f->bytes ? launch_step(r, ch, f) : GPUSYM_SUCCESS;
    if (GPUSYM_SUCCESS == rc && 0 != f->bytes && GPUSYM_RAIL_NO_SCAN != r->call.scan) {
        rc = launch_scan(r, ch, f);
    }
    ch->begun++;
    return GPUSYM_SUCCESS == rc ? 1 : rc;
}

static bool kernel_done(const gpusym_rail_t *r, const gpusym_rail_flight_t *f)
{
    return !f->launched || gpusym_rail_ended(r, &f->work);
}

/* Sends what a step has to send, on links that no step before it still has to send on. */
static int send_step(gpusym_rail_t *r, gpusym_rail_channel_t *ch, gpusym_rail_flight_t *f, uint32_t links)
{
    int rc = GPUSYM_SUCCESS;
    for (uint32_t l = 0; l < GS_LINKS && GPUSYM_SUCCESS == rc; l++) {
        if (0 == (f->unsent & links & 1u << l) || 0 == gpusym_net_stream_room_for(ch->stream[l], (uint32_t) f->bytes)) {
            continue;
        }
        const char *data = f->forwards ? f->piece[__builtin_ctz(f->step.recv)] : buffer_of(ch, f->buffer);
        f->message[l] = (gpusym_net_message_t){.sent = 0};
        rc = gpusym_rail_send(r, ch->stream[l], &f->message[l], data, (uint32_t) f->bytes);
        if (GPUSYM_ERR_NO_MEMORY == rc) {
            return GPUSYM_SUCCESS; /* later */
        }
        f->unsent &= ~((uint32_t) (GPUSYM_SUCCESS == rc) << l);
    }
    return rc;
}

static int send_steps(gpusym_rail_t *r, gpusym_rail_channel_t *ch)
{
    uint32_t links = (1u << GS_LINKS) - 1;
    int rc = GPUSYM_SUCCESS;
    for (uint32_t i = ch->ended; i != ch->begun && 0 != links && GPUSYM_SUCCESS == rc; i++) {
        gpusym_rail_flight_t *f = &ch->flight[i % GPUSYM_RAIL_FLIGHTS];
        if (0 != f->unsent && (f->forwards || gpusym_rail_ended(r, &f->filled))) {
            rc = send_step(r, ch, f, links);
        }
        links &= ~f->unsent;
    }
    return rc;
}

/* Whether the transport no longer needs what a step has sent. */
static bool are_sent(const gpusym_rail_flight_t *f)
{
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        if (0 != f->bytes && 0 != (f->step.send & ~f->unsent & 1u << l) &&
            0 == __atomic_load_n(&f->message[l].sent, __ATOMIC_ACQUIRE)) {
            return false;
        }
    }
    return true;
}

static void end_steps(gpusym_rail_t *r, gpusym_rail_channel_t *ch)
{
    while (ch->ended != ch->begun) {
        gpusym_rail_flight_t *f = &ch->flight[ch->ended % GPUSYM_RAIL_FLIGHTS];
        if (0 != f->unsent || !kernel_done(r, f) || !are_sent(f)) {
            return;
        }
        for (uint32_t l = 0; l < GS_LINKS; l++) {
            if (0 != f->bytes && 0 != (f->step.recv >> l & 1)) {
                gpusym_net_stream_release(ch->stream[l], 1);
            }
        }
        if (f->buffer >= 0) {
            ch->free_buffers |= 1u << f->buffer;
        }
        f->found = false;
        ch->ended++;
    }
}

/* Moves a channel on as far as it goes. */
static int poll_channel(gpusym_rail_t *r, gpusym_rail_channel_t *ch)
{
    uint32_t ended;
    do {
        int rc;
        do {
            rc = begin_step(r, ch);
        } while (1 == rc);
        if (GPUSYM_SUCCESS == rc) {
            rc = send_steps(r, ch);
        }
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
        ended = ch->ended;
        end_steps(r, ch);
    } while (ended != ch->ended && ch->begun != ch->steps); /* there is room for further steps */
    return GPUSYM_SUCCESS;
}

int gpusym_rail_path_poll(gpusym_rail_t *r)
{
    bool ended = true;
    for (uint32_t c = 0; c < r->nchannels; c++) {
        const int rc = poll_channel(r, &r->channel[c]);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
        ended = ended && r->channel[c].ended == r->channel[c].steps;
    }
    return ended;
}

bool gpusym_rail_path_quiet(const gpusym_rail_t *r)
{
    for (uint32_t c = 0; c < r->nchannels; c++) {
        const gpusym_rail_channel_t *ch = &r->channel[c];
        for (uint32_t i = ch->ended; i != ch->begun; i++) {
            if (!are_sent(&ch->flight[i % GPUSYM_RAIL_FLIGHTS])) {
                return false;
            }
        }
    }
    return true;
}
