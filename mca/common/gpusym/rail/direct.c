/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Direct calls: each process sends to each what is for it; see rail.h.  In the k-th round to the process k places
 * further on, from the one k places before, so that nobody is sent to by all at once.
 *
 * In place, what goes to a process and what comes from it have one place, which is sent before it is written.  So two
 * processes exchange in the same round: in the k-th those whose places add up to k.  A piece that waits for its place
 * waits for one that this process sends in the same round, and that for earlier rounds at most, all over the rail.
 *
 * What is the same for all (`spread`) is copied to a send buffer once, and sent from there to each.  Several inputs are
 * reduced into it; this process takes their sum from there too, so that all reduce the same.
 */
#include "mca/common/gpusym/rail/direct.h"

#include <string.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/rail/short.h"

/* Lanes: of what goes, and of what has come, whose kernels end in their order. */
enum { FILLS, STORES };

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint32_t piece_max(const gpusym_rail_t *r)
{
    return (uint32_t) GPUSYM_RAIL_DIRECT_BYTES(r->params.piece_bytes);
}

/* The process d places further on. */
static uint32_t place_after(const gpusym_rail_t *r, uint32_t d)
{
    return (r->params.pos + d) % r->params.n;
}

/* The process that is sent to in round d. */
static uint32_t place_in_round(const gpusym_rail_t *r, uint32_t d)
{
    return r->direct.swaps ? (r->params.n + d - r->params.pos) % r->params.n : place_after(r, d);
}

/* What process `from` of a broadcast sends to each. */
static gpusym_rail_part_t part_of_root(const gpusym_rail_t *r, uint32_t from)
{
    return (gpusym_rail_part_t){0, r->call.root == from ? r->call.bytes : 0};
}

static gpusym_rail_part_t part_for(const gpusym_rail_t *r, uint32_t pos)
{
    if (r->call.rooted) {
        return part_of_root(r, r->params.pos);
    }
    return r->call.spread ? (gpusym_rail_part_t){0, r->call.bytes} : r->call.part(r->call.arg, pos);
}

static gpusym_rail_part_t part_from(const gpusym_rail_t *r, uint32_t pos)
{
    if (r->call.rooted) {
        return part_of_root(r, pos);
    }
    return r->call.reduces ? (gpusym_rail_part_t){0, r->call.bytes} : r->call.from(r->call.arg, pos);
}

int gpusym_rail_direct_start(gpusym_rail_t *r)
{
    gpusym_rail_direct_t *d = &r->direct;
    const uint32_t n = r->params.n;
    if ((r->call.spread && n > GPUSYM_RAIL_DIRECT_MAX) || (r->call.rooted && (!r->call.spread || r->call.reduces)) ||
        (r->call.reduces && (!r->call.spread || r->call.bytes > piece_max(r)))) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    for (uint32_t i = 0; i < GPUSYM_RAIL_SENDING; i++) { /* not the messages, which are most of it */
        d->sending[i].busy = false;
    }
    d->storing = d->stored = 0;
    d->own_begun = d->own_stores = false;
    d->swaps = !r->call.spread && gpusym_rail_in_place(r);
    d->distance = d->swaps ? 0 : 1;
    memset(r->pair, 0, n * sizeof *r->pair);
    for (uint32_t p = 0; p < n; p++) {
        const gpusym_rail_part_t out = part_for(r, p), in = part_from(r, p);
        const uint64_t to = out.bytes, from = in.bytes;
        const bool swapped = to == from && (0 == to || out.off == in.off);
        if ((0 != to && 0 == r->nin) || (d->swaps && !swapped)) {
            return GPUSYM_ERR_BAD_PARAM;
        }
        const bool both = p != r->params.pos && 0 != to + from;
        const int rc = both ? gpusym_rail_stream(r, GPUSYM_RAIL_CHANNELS, p, &r->pair[p].stream) : GPUSYM_SUCCESS;
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
    }
    return GPUSYM_SUCCESS;
}

/* ---- sending ---- */

/* The next piece, and whom it is for: from d->distance on. False: all is under way. */
static bool next_piece(gpusym_rail_t *r, uint32_t *pos, gpusym_rail_part_t *piece)
{
    gpusym_rail_direct_t *d = &r->direct;
    for (; d->distance < r->params.n; d->distance++) {
        *pos = place_in_round(r, d->distance);
        if (*pos == r->params.pos) {
            continue; /* what is swapped with itself stays */
        }
        const gpusym_rail_part_t part = part_for(r, *pos);
        const uint64_t done = r->pair[*pos].begun;
        if (done < part.bytes) {
            *piece = (gpusym_rail_part_t){part.off + done, min_u64(part.bytes - done, piece_max(r))};
            return true;
        }
        if (r->call.spread) {
            return false; /* all get what the first gets */
        }
    }
    return false;
}

/* Copies the next pieces to send buffers, as many as are free; several inputs reduced. */
static int fill_buffers(gpusym_rail_t *r)
{
    const void *src[GPUSYM_TEAM_MAX];
    for (uint32_t i = 0; i < GPUSYM_RAIL_SENDING; i++) {
        gpusym_rail_piece_t *p = &r->direct.sending[i];
        gpusym_rail_part_t part;
        if (p->busy) {
            continue;
        }
        if (!next_piece(r, &p->pos, &part)) {
            return GPUSYM_SUCCESS;
        }
        const uint32_t nsrc = gpusym_rail_inputs(r, part.off, src);
        p->data = r->params.send + (uint64_t) i * piece_max(r);
        const int rc = gpusym_rail_short_fill(r, FILLS, src, nsrc, p->data, part.bytes, &p->filled);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
        p->busy = true;
        p->first = r->pair[p->pos].begun;
        p->bytes = (uint32_t) part.bytes;
        p->count = r->call.spread ? r->params.n - 1 : 1;
        p->unsent = p->count < 32 ? (1u << p->count) - 1 : UINT32_MAX;
        r->pair[p->pos].begun += part.bytes;
    }
    return GPUSYM_SUCCESS;
}

/* The process that copy k of a piece goes to. */
static uint32_t destination(const gpusym_rail_t *r, const gpusym_rail_piece_t *p, uint32_t k)
{
    return r->call.spread ? place_after(r, 1 + k) : p->pos;
}

/* Hands a piece to the streams, unless one that began before it is still to go there. */
static int send_copies(gpusym_rail_t *r, gpusym_rail_piece_t *p)
{
    for (uint32_t k = 0; k < p->count; k++) {
        gpusym_rail_pair_t *pair = &r->pair[destination(r, p, k)];
        if (0 == (p->unsent >> k & 1) || pair->sent != p->first || 0 == gpusym_net_stream_room(pair->stream)) {
            continue;
        }
        p->message[k] = (gpusym_net_message_t){.sent = 0};
        const int rc = gpusym_rail_send(r, pair->stream, &p->message[k], p->data, p->bytes);
        if (GPUSYM_SUCCESS != rc) {
            return GPUSYM_ERR_NO_MEMORY == rc ? GPUSYM_SUCCESS : rc; /* later */
        }
        p->unsent &= ~(1u << k);
        pair->sent += p->bytes;
    }
    return GPUSYM_SUCCESS;
}

static bool are_sent(const gpusym_rail_piece_t *p)
{
    for (uint32_t k = 0; k < p->count; k++) {
        if (0 == (p->unsent >> k & 1) && 0 == __atomic_load_n(&p->message[k].sent, __ATOMIC_ACQUIRE)) {
            return false;
        }
    }
    return true;
}

/* Sends what has been copied. *left: something is still to be sent, or being sent. */
static int send_pieces(gpusym_rail_t *r, bool *left)
{
    uint32_t pos;
    gpusym_rail_part_t part;
    for (uint32_t i = 0; i < GPUSYM_RAIL_SENDING; i++) {
        gpusym_rail_piece_t *p = &r->direct.sending[i];
        if (p->busy && 0 != p->unsent && gpusym_rail_ended(r, &p->filled)) {
            const int rc = send_copies(r, p);
            if (GPUSYM_SUCCESS != rc) {
                return rc;
            }
        }
        p->busy = p->busy && (0 != p->unsent || !are_sent(p));
        *left = *left || p->busy;
    }
    *left = *left || next_piece(r, &pos, &part);
    return GPUSYM_SUCCESS;
}

/* ---- receiving ---- */

/* Stores the piece that has landed from a process, in each output from `off` on; releases it where there is none. */
static int store_piece(gpusym_rail_t *r, uint32_t pos, uint64_t off, uint64_t bytes)
{
    gpusym_rail_direct_t *d = &r->direct;
    const void *src = gpusym_rail_device(r, r->pair[pos].piece);
    void *dst[GPUSYM_TEAM_MAX];
    const uint32_t ndst = gpusym_rail_outputs(r, off, &src, 1, dst);
    if (0 == ndst) {
        gpusym_net_stream_release(r->pair[pos].stream, 1);
        return GPUSYM_SUCCESS;
    }
    gpusym_rail_store_t *s = &d->store[d->storing++ % GPUSYM_RAIL_FLIGHTS];
    s->pos = pos;
    return gpusym_rail_short_move(r, STORES, &src, 1, dst, ndst, bytes, &s->work);
}

/* Stores what has landed from a process. *left: something is still to come. */
static int store_from(gpusym_rail_t *r, uint32_t pos, bool *left)
{
    gpusym_rail_direct_t *d = &r->direct;
    gpusym_rail_pair_t *pair = &r->pair[pos];
    const gpusym_rail_part_t part = part_from(r, pos);
    while (pair->landed < part.bytes && d->stored + GPUSYM_RAIL_FLIGHTS != d->storing) {
        const uint64_t bytes = min_u64(part.bytes - pair->landed, piece_max(r));
        if (d->swaps && pair->sent < pair->landed + bytes) { /* what is there has still to be sent */
            break;
        }
        const int rc = gpusym_rail_read(r, pair->stream, bytes, &pair->piece);
        if (1 != rc) {
            *left = true;
            return rc;
        }
        const int error = r->call.reduces ? GPUSYM_SUCCESS : store_piece(r, pos, part.off + pair->landed, bytes);
        if (GPUSYM_SUCCESS != error) {
            return error;
        }
        pair->landed += bytes;
    }
    *left = *left || pair->landed < part.bytes;
    return GPUSYM_SUCCESS;
}

static int store_pieces(gpusym_rail_t *r, bool *left)
{
    for (uint32_t k = 1; k < r->params.n; k++) {
        const int rc = store_from(r, place_after(r, r->params.n - k), left);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
    }
    return GPUSYM_SUCCESS;
}

static void release_stored(gpusym_rail_t *r)
{
    gpusym_rail_direct_t *d = &r->direct;
    while (d->stored != d->storing && gpusym_rail_ended(r, &d->store[d->stored % GPUSYM_RAIL_FLIGHTS].work)) {
        gpusym_net_stream_release(r->pair[d->store[d->stored++ % GPUSYM_RAIL_FLIGHTS].pos].stream, 1);
    }
}

/* ---- the own part, and the sum ---- */

static int store_own(gpusym_rail_t *r)
{
    gpusym_rail_direct_t *d = &r->direct;
    const gpusym_rail_part_t to = part_for(r, r->params.pos), from = part_from(r, r->params.pos);
    const uint64_t bytes = d->swaps ? 0 : min_u64(to.bytes, from.bytes);
    const void *src[GPUSYM_TEAM_MAX];
    void *dst[GPUSYM_TEAM_MAX];
    const uint32_t nsrc = gpusym_rail_inputs(r, to.off, src);
    const uint32_t ndst = gpusym_rail_outputs(r, from.off, src, nsrc, dst);
    d->own_begun = true;
    d->own_stores = 0 != bytes && 0 != ndst;
    return d->own_stores ? gpusym_rail_short_move(r, STORES, src, nsrc, dst, ndst, bytes, &d->own) : GPUSYM_SUCCESS;
}

/* Whether the own input may be reduced, and an output written, which may be an input: it is in its send buffer.  A
 * kernel that reduces follows the one that brings it there, on one lane; the copier is behind no lane.  A process alone
 * fills none. */
static bool own_is_filled(const gpusym_rail_t *r)
{
    const gpusym_rail_work_t *filled = &r->direct.sending[0].filled;
    return 1 == r->params.n || (!filled->is_copy && !gpusym_rail_short_reduces(r)) || gpusym_rail_ended(r, filled);
}

/* All pieces have landed: reduces them, in rising order of the processes.  The buffer is the first, of the only piece,
 * and keeps it; nobody is sent one by a process alone. */
static int reduce_all(gpusym_rail_t *r)
{
    gpusym_rail_direct_t *d = &r->direct;
    const void *src[GPUSYM_TEAM_MAX];
    void *dst[GPUSYM_TEAM_MAX];
    uint32_t nsrc = 0;
    for (uint32_t p = 0; p < r->params.n; p++) {
        if (p != r->params.pos) {
            src[nsrc++] = gpusym_rail_device(r, r->pair[p].piece);
        } else if (1 == r->nin || 1 == r->params.n) {
            nsrc += gpusym_rail_inputs(r, 0, &src[nsrc]);
        } else {
            src[nsrc++] = gpusym_rail_device(r, d->sending[0].data);
        }
    }
    const uint32_t ndst = gpusym_rail_outputs(r, 0, src, nsrc, dst);
    d->own_begun = true;
    d->own_stores = 0 != ndst;
    return d->own_stores ? gpusym_rail_short_move(r, FILLS, src, nsrc, dst, ndst, r->call.bytes, &d->own)
                         : GPUSYM_SUCCESS;
}

/* The same by the CPU, of what stands in send buffers and rings. */
static int reduce_short(gpusym_rail_t *r)
{
    gpusym_rail_direct_t *d = &r->direct;
    const void *src[GPUSYM_RAIL_DIRECT_MAX], *sum;
    void *dst[GPUSYM_TEAM_MAX];
    char *host = r->params.send + piece_max(r); /* the second buffer */
    const uint32_t ndst = r->nout;
    for (uint32_t p = 0; p < r->params.n; p++) {
        src[p] = p != r->params.pos ? r->pair[p].piece : d->sending[0].data;
    }
    d->own_begun = true;
    d->own_stores = 0 != ndst;
    if (0 == ndst) {
        return GPUSYM_SUCCESS;
    }
    gpusym_kernel_reduce_on_cpu(r->call.op, r->call.type, src, r->params.n, host, r->call.bytes);
    sum = gpusym_rail_device(r, host);
    (void) gpusym_rail_outputs(r, 0, &sum, 1, dst);
    return gpusym_rail_short_move(r, FILLS, &sum, 1, dst, ndst, r->call.bytes, &d->own);
}

/* Releases what was reduced. */
static void release_all(gpusym_rail_t *r)
{
    for (uint32_t p = 0; p < r->params.n; p++) {
        if (p != r->params.pos) {
            gpusym_net_stream_release(r->pair[p].stream, 1);
        }
    }
}

int gpusym_rail_direct_poll(gpusym_rail_t *r)
{
    gpusym_rail_direct_t *d = &r->direct;
    bool left = false, missing = false;
    int rc = fill_buffers(r);
    if (GPUSYM_SUCCESS == rc) {
        rc = send_pieces(r, &left);
    }
    if (GPUSYM_SUCCESS != rc || r->call.held) {
        return rc;
    }
    rc = store_pieces(r, &missing);
    if (GPUSYM_SUCCESS == rc && !d->own_begun &&
        !(r->call.reduces && (missing || 0 == r->call.bytes || !own_is_filled(r)))) {
        rc = gpusym_rail_short_reduces(r) ? reduce_short(r) : r->call.reduces ? reduce_all(r) : store_own(r);
    }
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    release_stored(r);
    if (left || missing || d->stored != d->storing || (r->call.reduces && 0 != r->call.bytes && !d->own_begun) ||
        (d->own_stores && !gpusym_rail_ended(r, &d->own))) {
        return 0;
    }
    if (r->call.reduces && d->own_begun) {
        release_all(r);
    }
    return 1;
}

bool gpusym_rail_direct_quiet(const gpusym_rail_t *r)
{
    for (uint32_t i = 0; i < GPUSYM_RAIL_SENDING; i++) {
        if (r->direct.sending[i].busy && !are_sent(&r->direct.sending[i])) {
            return false;
        }
    }
    return true;
}
