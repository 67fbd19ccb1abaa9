/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Short messages along a tree: see rail.h.
 *
 *     own input, reduced with what comes from the children -> the process above
 *     the result, from the process above -> the children, the outputs
 *
 * The CPU reduces, so no step but the first and the last one has to do with the GPU.  The tree is filled level by level
 * from process 0, whatever the root of a broadcast: so a process has the same neighbours in all calls, and rings for
 * those alone.  What is broadcast goes up from its root, and down wherever it has not been.  The degree makes the
 * levels few where a message takes long, and the messages of a process few where they cost much (tuning/tree.h).
 *
 * All that comes is copied to the send buffers: at any time the call can be dropped.
 */
#include "mca/common/gpusym/rail/tree.h"

#include <string.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/rail/short.h"

/* Bytes that the CPU reduces at a process at most, of types and operations that it is slow at: 0.2 ms. */
#define REDUCE_MAX_SLOW (64u << 10)

/* Blocks in the send buffers: the own input, those of the children, their sum, the result. */
enum { OWN, CHILDREN, SUM = CHILDREN + GPUSYM_TREE_DEGREE_MAX, RESULT, BLOCKS };

_Static_assert(BLOCKS *(GPUSYM_RAIL_DIRECT_BYTES(1024) + 64) < GPUSYM_RAIL_SEND_BYTES(1024) / 2,
               "blocks and an exchange have room");

static char *block_at(const gpusym_rail_t *r, uint32_t i)
{
    return r->params.send + i * ((r->call.bytes + 63) / 64 * 64);
}

static int stream_up(gpusym_rail_t *r, gpusym_net_stream_t **stream)
{
    return gpusym_rail_stream(r, GPUSYM_RAIL_CHANNELS, (r->params.pos - 1) / r->tree.degree, stream);
}

static int stream_down(gpusym_rail_t *r, uint32_t child, gpusym_net_stream_t **stream)
{
    return gpusym_rail_stream(r, GPUSYM_RAIL_CHANNELS, r->params.pos * r->tree.degree + 1 + child, stream);
}

bool gpusym_rail_tree_fits(const gpusym_rail_call_t *call, uint32_t n, uint32_t piece_bytes)
{
    const uint64_t inputs = 1 + gpusym_tuning_tree_degree(n);
    return call->bytes <= GPUSYM_RAIL_DIRECT_BYTES(piece_bytes) &&
           (!call->reduces || gpusym_kernel_reduces_fast_on_cpu(call->op, call->type) ||
            inputs * call->bytes <= REDUCE_MAX_SLOW);
}

/* Of a broadcast: finds whether its data come to this process from below, and by which child. */
static void find_source(gpusym_rail_t *r)
{
    gpusym_rail_tree_t *t = &r->tree;
    uint32_t at = r->call.root, below = at;
    while (at > r->params.pos) {
        below = at;
        at = (at - 1) / t->degree;
    }
    if (at == r->params.pos) {
        t->falls = false;
        t->rises = 0 != at;
    }
    if (at == r->params.pos && below != at) {
        t->unread = t->told = 1u << (below - (at * t->degree + 1));
    }
}

int gpusym_rail_tree_start(gpusym_rail_t *r)
{
    gpusym_rail_tree_t *t = &r->tree;
    const bool fills = r->call.reduces || r->call.root == r->params.pos;
    const void *src[GPUSYM_TEAM_MAX];
    memset(t, 0, sizeof *t);
    if (r->call.bytes > GPUSYM_RAIL_DIRECT_BYTES(r->params.piece_bytes) || r->call.reduces == r->call.rooted ||
        (fills && 0 == r->nin && 0 != r->call.bytes)) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    if (0 == r->call.bytes) {
        return GPUSYM_SUCCESS;
    }
    t->degree = gpusym_tuning_tree_degree(r->params.n);
    const uint64_t first = (uint64_t) r->params.pos * t->degree + 1,
                   left = first < r->params.n ? r->params.n - first : 0;
    t->children = left < t->degree ? (uint32_t) left : t->degree;
    t->unread = r->call.reduces ? (1u << t->children) - 1 : 0;
    t->rises = r->call.reduces && 0 != r->params.pos;
    t->falls = 0 != r->params.pos;
    t->result = OWN;
    t->filled = t->stored = (gpusym_rail_work_t){.is_copy = true}; /* which has ended */
    if (r->call.rooted) {
        find_source(r);
    }
    if (!fills) {
        return GPUSYM_SUCCESS;
    }
    const uint32_t nsrc = gpusym_rail_inputs(r, 0, src);
    const int rc = gpusym_rail_short_fill(r, 0, src, nsrc, block_at(r, OWN), r->call.bytes, &t->filled);
    t->stored = t->filled; /* where there is no output */
    return rc;
}

/* Reads the next piece of a stream to a block.  1: it was there. */
static int read_block(gpusym_rail_t *r, gpusym_net_stream_t *stream, uint32_t block)
{
    const char *piece;
    const int rc = gpusym_rail_read(r, stream, r->call.bytes, &piece);
    if (1 == rc) {
        memcpy(block_at(r, block), piece, r->call.bytes);
        gpusym_net_stream_release(stream, 1);
    }
    return rc;
}

/* Sends a block, if there is room.  1: it is under way. */
static int send_block(gpusym_rail_t *r, gpusym_net_stream_t *stream, gpusym_net_message_t *message, uint32_t block)
{
    if (0 == gpusym_net_stream_room(stream)) {
        return 0;
    }
    *message = (gpusym_net_message_t){.sent = 0};
    const int rc = gpusym_rail_send(r, stream, message, block_at(r, block), (uint32_t) r->call.bytes);
    if (GPUSYM_SUCCESS != rc) {
        return GPUSYM_ERR_NO_MEMORY == rc ? 0 : rc; /* later */
    }
    return 1;
}

/* Reads what the children send, and reduces it with the own input, in their order.  1: what goes up is there. */
static int gather_children(gpusym_rail_t *r)
{
    gpusym_rail_tree_t *t = &r->tree;
    const void *src[1 + GPUSYM_TREE_DEGREE_MAX] = {block_at(r, OWN)};
    gpusym_net_stream_t *stream;
    for (uint32_t c = 0; c < t->children; c++) {
        int rc = 0 != (t->unread >> c & 1) ? stream_down(r, c, &stream) : 0;
        if (0 != (t->unread >> c & 1) && GPUSYM_SUCCESS == rc) {
            rc = read_block(r, stream, CHILDREN + c);
        }
        if (rc < 0) {
            return rc;
        }
        t->unread &= ~((uint32_t) rc << c);
        t->result = 1 == rc && r->call.rooted ? CHILDREN + c : t->result;
        src[1 + c] = block_at(r, CHILDREN + c);
    }
    if (0 != t->unread || !gpusym_rail_ended(r, &t->filled)) {
        return 0;
    }
    if (r->call.reduces && 0 != t->children) {
        gpusym_kernel_reduce_on_cpu(r->call.op, r->call.type, src, 1 + t->children, block_at(r, SUM), r->call.bytes);
        t->result = SUM;
    }
    return 1;
}

/* What goes up, and what comes down.  1: the result is here. */
static int meet_parent(gpusym_rail_t *r)
{
    gpusym_rail_tree_t *t = &r->tree;
    gpusym_net_stream_t *stream;
    if (!t->rises && !t->falls) {
        return 1;
    }
    int rc = stream_up(r, &stream);
    if (GPUSYM_SUCCESS == rc && t->rises) {
        rc = send_block(r, stream, &t->up, t->result);
        t->rises = 1 != rc;
        t->rose = !t->rises;
    }
    if (rc >= 0 && !t->rises && t->falls) {
        rc = read_block(r, stream, RESULT);
        t->falls = 1 != rc;
        t->result = RESULT;
    }
    return rc < 0 ? rc : !t->rises && !t->falls;
}

/* Sends the result to the children.  1: it is under way to all. */
static int tell_children(gpusym_rail_t *r)
{
    gpusym_rail_tree_t *t = &r->tree;
    gpusym_net_stream_t *stream;
    for (uint32_t c = 0; c < t->children; c++) {
        if (0 != (t->told >> c & 1)) {
            continue;
        }
        int rc = stream_down(r, c, &stream);
        if (GPUSYM_SUCCESS == rc) {
            rc = send_block(r, stream, &t->down[c], t->result);
        }
        if (rc < 0) {
            return rc;
        }
        t->told |= (uint32_t) rc << c;
        t->telling |= (uint32_t) rc << c;
    }
    return t->told == (1u << t->children) - 1;
}

static int store_result(gpusym_rail_t *r)
{
    const void *src = gpusym_rail_device(r, block_at(r, r->tree.result));
    void *dst[GPUSYM_TEAM_MAX];
    const uint32_t ndst = gpusym_rail_outputs(r, 0, &src, 1, dst);
    r->tree.finishing = true;
    return 0 != ndst ? gpusym_rail_short_move(r, 0, &src, 1, dst, ndst, r->call.bytes, &r->tree.stored)
                     : GPUSYM_SUCCESS;
}

int gpusym_rail_tree_poll(gpusym_rail_t *r)
{
    gpusym_rail_tree_t *t = &r->tree;
    int rc = 1;
    if (0 == r->call.bytes) {
        return 1;
    }
    if (!t->gathered) {
        rc = gather_children(r);
        t->gathered = 1 == rc;
    }
    if (1 == rc && 1 == (rc = meet_parent(r))) {
        rc = tell_children(r);
    }
    if (rc < 0 || t->rises || t->falls || !t->gathered || r->call.held) {
        return rc < 0 ? rc : 0;
    }
    if (!t->finishing) {
        const int stores = store_result(r);
        if (GPUSYM_SUCCESS != stores) {
            return stores;
        }
    }
    return 1 == rc && gpusym_rail_ended(r, &t->stored) && gpusym_rail_short_ended(r) && gpusym_rail_tree_quiet(r);
}

bool gpusym_rail_tree_quiet(const gpusym_rail_t *r)
{
    const gpusym_rail_tree_t *t = &r->tree;
    bool quiet = !t->rose || 0 != __atomic_load_n(&t->up.sent, __ATOMIC_ACQUIRE);
    for (uint32_t c = 0; c < t->children; c++) {
        quiet = quiet && (0 == (t->telling >> c & 1) || 0 != __atomic_load_n(&t->down[c].sent, __ATOMIC_ACQUIRE));
    }
    return quiet;
}
