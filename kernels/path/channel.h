/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rings, chains and double binary trees: the executor of the schedules of schedule.h, and their three protocols.
 * Source: Demystifying NCCL (arXiv 2507.04786) for channels, primitives and protocols; Sanders, Speck, Traeff (2009)
 * for the pair of trees.
 *
 *   Simple   a buffer of the FIFO at a time, a flag when it is there (tail), a flag when it has been taken (head).
 *   LL       lines of 16 bytes, 8 of them data, which carry their own flag: no tail, no fence.
 *   LL128    lines of 128 bytes, 120 of them data, stored by a warp at once: only where a link keeps them whole.
 *
 * All three have heads: the sender of message k of a stream waits until message k - GS_STEPS has been taken.  Flags and
 * lines of message k hold w->epoch + k, and nothing in the slot is as large as w->epoch before.  Rows 2b and 2b + 1 of
 * the slot's flags are channel b's tails and heads, column r written by rank r: between two ranks there is one stream
 * a direction.  FIFOs: w->fifo_off, [channel][link of the receiver][GS_STEPS] buffers of w->fifo_step bytes, in the
 * area of the protocol.
 *
 * Direct (Simple): results are stored to the receiver's output, and forwarded from there.  That is safe because
 * all ranks are in the call, and a rank's own part has gone into a result before it comes back.
 *
 * In place: input and output of all-reduce, all-gather and broadcast may be the same memory (an all-gather's own
 * block). A reduce-scatter's output must not overlap its input: channels are not in step.
 *
 * Order of summation: on a ring, from the rank after the owner of a chunk on, round to the owner; in trees, the
 * children's sums on both sides of one's own.  Every hop rounds to the element's type.
 */
#ifndef GPUSYM_KERNELS_CHANNEL_H
#define GPUSYM_KERNELS_CHANNEL_H

#include "kernels/prim/lines.h"
#include "kernels/prim/move.h"
#include "kernels/prim/stream.h"

#define GS_SIMPLE 0u
#define GS_LL 1u
#define GS_LL128 2u

/* A channel while it runs. */
typedef struct {
    const gpusym_path_t *path;
    uint64_t from, to;                        /* its packs of the message, or of a segment */
    uint32_t sent[GS_LINKS], taken[GS_LINKS]; /* messages so far */
    bool credits;                             /* there are more messages than buffers: heads are needed */
    uint32_t unposted;                        /* LL, LL128: links whose last message has been taken, with no head yet */
    uint32_t lost; /* LL, LL128: status of this thread, told to the others at the next step */
} gs_channel_t;

/* The chunk of a step: where it is in the users' buffers. */
typedef struct {
    const char *in;
    char *out;
    uint64_t remote_out; /* from the start of a peer's output (direct) */
    uint64_t bytes;
} gs_step_chunk_t;

GS_FN bool gs_has(uint32_t set, uint32_t bit)
{
    return 0 != (set >> bit & 1u);
}

/* Rank `owner`'s buffer for message k of the stream that comes to it by its link. */
GS_FN char *gs_fifo(const gpusym_work_t *w, uint32_t owner, uint32_t channel, uint32_t link, uint32_t k)
{
    const uint64_t buffer = ((uint64_t) channel * w->fifo_links + link) * GS_STEPS + k % GS_STEPS;
    return (char *) w->peer[owner] + w->fifo_off + buffer * w->fifo_step;
}

/* The flag of a channel that `writer` writes in `owner`'s slot. */
GS_FN uint32_t *gs_tail(const gpusym_work_t *w, uint32_t owner, uint32_t channel, uint32_t writer)
{
    return gs_flag(w, owner, 2 * channel, writer);
}

GS_FN uint32_t *gs_head(const gpusym_work_t *w, uint32_t owner, uint32_t channel, uint32_t writer)
{
    return gs_flag(w, owner, 2 * channel + 1, writer);
}

/* Waits until the buffers that a step sends to are free, and (tails) what it receives is there: a flag a thread. */
GS_FN uint32_t gs_await_links(gs_ctx_t c, const gpusym_work_t *w, const gs_channel_t *ch, const gs_step_t *step,
                              bool tails)
{
    uint32_t status = GPUSYM_STATUS_OK;
    GS_UNROLL
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        const uint32_t p = ch->path->peer[l];
        if (tails && GPUSYM_STATUS_OK == status && gs_has(step->recv, l) && l % c.nthreads == c.thread) {
            status = gs_await(w, gs_tail(w, w->rank, c.block, p), w->epoch + ch->taken[l], p);
        }
        if (GPUSYM_STATUS_OK == status && gs_has(step->send, l) && ch->sent[l] >= GS_STEPS &&
            (GS_LINKS + l) % c.nthreads == c.thread) {
            status = gs_await(w, gs_head(w, w->rank, c.block, p), w->epoch + ch->sent[l] - GS_STEPS, p);
        }
    }
    return status;
}

/* After a barrier of the block: tells the peers what has been sent there. */
GS_FN void gs_post_tails(gs_ctx_t c, const gpusym_work_t *w, const gs_channel_t *ch, uint32_t send)
{
    GS_UNROLL
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        if (gs_has(send, l) && l % c.nthreads == c.thread) {
            gs_flag_post(gs_tail(w, ch->path->peer[l], c.block, w->rank), w->epoch + ch->sent[l]);
        }
    }
}

/* Likewise: that the last message of each link in `recv` has been taken, which is number taken[] - before. */
GS_FN void gs_post_heads(gs_ctx_t c, const gpusym_work_t *w, const gs_channel_t *ch, uint32_t recv, uint32_t before)
{
    GS_UNROLL
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        if (ch->credits && gs_has(recv, l) && (GS_LINKS + l) % c.nthreads == c.thread) {
            gs_flag_free(gs_head(w, ch->path->peer[l], c.block, w->rank), w->epoch + ch->taken[l] - before);
        }
    }
}

/* The step is done. */
GS_FN void gs_count(gs_channel_t *ch, const gs_step_t *step)
{
    GS_UNROLL
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        ch->sent[l] += gs_has(step->send, l);
        ch->taken[l] += gs_has(step->recv, l);
    }
}

/* ---- chunks ---- */

/* Rings of a whole message share a loop out evenly; a segment has a chunk of its own in each loop. */
GS_FN gs_step_chunk_t gs_step_chunk(const gpusym_work_t *w, const gs_channel_t *ch, const gs_step_t *step)
{
    gs_step_chunk_t chunk;
    uint64_t in_off = 0, out_off = 0, bytes = w->bytes, base, end = ch->to;
    if (GS_RING_ALLGATHER == w->schedule) {
        const uint32_t r = ch->path->order[step->chunk];
        out_off = w->recv[r].off;
        bytes = w->recv[r].bytes;
    } else if (GS_RING_REDUCE_SCATTER == w->schedule) {
        const uint32_t r = ch->path->order[step->chunk];
        in_off = w->send[r].off;
        bytes = w->send[r].bytes;
    }
    if (GS_RING_ALLREDUCE == w->schedule) {
        const uint64_t loop = ch->from + (uint64_t) step->loop * w->nranks * w->chunk;
        const uint64_t len = gs_min64(ch->to - loop, (uint64_t) w->nranks * w->chunk);
        const uint32_t even = ((uint32_t) len + w->nranks - 1) / w->nranks; /* as many as fit: gpusym_kernel_plan() */
        const uint64_t slice = gs_min64(GPUSYM_SPAN(even, 1u), w->chunk);
        base = gs_min64(loop + step->chunk * slice, loop + len);
        end = gs_min64(base + slice, loop + len);
    } else {
        base = gs_min64(ch->from + (uint64_t) step->loop * w->chunk, end);
        end = gs_min64(base + w->chunk, end);
    }
    base = gs_min64(16 * base, bytes);
    chunk.in = (const char *) w->in + in_off + base;
    chunk.remote_out = out_off + base;
    chunk.out = (char *) w->out + chunk.remote_out;
    chunk.bytes = gs_min64(16 * end, bytes) - base;
    return chunk;
}

/* ---- Simple ---- */

/* Where a step takes packs from, in the order in which they are reduced, and where it puts them. */
typedef struct {
    const char *src[GS_LINKS];
    char *dst[GS_LINKS];
    uint32_t nsrc, ndst;
} gs_ends_t;

/* Packs one by one, of any alignment and end. */
GS_OUTLINE void gs_move_unaligned(gs_ctx_t c, const gpusym_work_t *w, const gs_ends_t *e, uint64_t bytes,
                                  uint64_t first)
{
    GS_NO_UNROLL
    for (uint64_t i = first + c.thread; 16 * i < bytes; i += c.nthreads) {
        gs_pack_t v = gs_ld_unaligned(e->src[0], gs_align(e->src[0]), bytes, i);
        if (e->nsrc > 1) {
            gs_acc_t acc = gs_acc_start(w->type, v);
            GS_NO_UNROLL
            for (uint32_t s = 1; s < e->nsrc; s++) {
                acc = gs_acc_any(w->op, w->type, acc, gs_ld_unaligned(e->src[s], gs_align(e->src[s]), bytes, i));
            }
            v = gs_acc_end(w->type, &acc);
        }
        GS_NO_UNROLL
        for (uint32_t d = 0; d < e->ndst; d++) {
            gs_st_unaligned(e->dst[d], gs_align(e->dst[d]), bytes, i, v);
        }
    }
}

/* Loads from all sources, reduces, stores to all destinations. */
GS_FN void gs_move(gs_ctx_t c, gs_kernel_t kernel, const gs_ends_t *e, uint64_t bytes)
{
    const gpusym_work_t *const w = kernel.w;
    uintptr_t low = 0;
    GS_UNROLL
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        low |= l < e->nsrc ? (uintptr_t) e->src[l] : 0;
        low |= l < e->ndst ? (uintptr_t) e->dst[l] : 0;
    }
    const uint64_t even = 0 == (low & 15) ? bytes / 16 : 0;
    for (uint64_t i = c.thread; i < even; i += (uint64_t) c.nthreads * GS_PACKS) {
        gs_pack_t v[GS_LINKS][GS_PACKS] = {{{{0, 0}}}};
        GS_UNROLL
        for (uint32_t s = 0; s < GS_LINKS; s++) {
            if (s < (kernel.reduces ? e->nsrc : 1)) {
                GS_UNROLL
                for (uint32_t u = 0; u < GS_PACKS; u++) {
                    if (i + (uint64_t) u * c.nthreads < even) {
                        v[s][u] = gs_ld16(e->src[s] + 16 * (i + (uint64_t) u * c.nthreads));
                    }
                }
            }
        }
        if (kernel.reduces && e->nsrc > 1) {
            GS_UNROLL
            for (uint32_t u = 0; u < GS_PACKS; u++) {
                gs_acc_t acc = gs_acc_start(gs_acc_type(kernel), v[0][u]);
                gs_acc_op(kernel, &acc, v[1][u]);
                if (e->nsrc > 2) {
                    gs_acc_op(kernel, &acc, v[2][u]);
                }
                v[0][u] = gs_acc_end(gs_acc_type(kernel), &acc);
            }
        }
        GS_UNROLL
        for (uint32_t d = 0; d < GS_LINKS; d++) {
            if (d < e->ndst) {
                GS_UNROLL
                for (uint32_t u = 0; u < GS_PACKS; u++) {
                    if (i + (uint64_t) u * c.nthreads < even) {
                        gs_st16(e->dst[d] + 16 * (i + (uint64_t) u * c.nthreads), v[0][u]);
                    }
                }
            }
        }
    }
    if (16 * even < bytes) {
        gs_move_unaligned(c, w, e, bytes, even);
    }
}

/* Adds a pointer to a list whose length the compiler does not know: no indexing, so that it stays in registers. */
GS_FN void gs_add_src(gs_ends_t *e, const char *p)
{
    GS_UNROLL
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        e->src[l] = l == e->nsrc ? p : e->src[l];
    }
    e->nsrc++;
}

GS_FN void gs_add_dst(gs_ends_t *e, char *p)
{
    GS_UNROLL
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        e->dst[l] = l == e->ndst ? p : e->dst[l];
    }
    e->ndst++;
}

GS_FN gs_ends_t gs_ends(gs_ctx_t c, const gpusym_work_t *w, const gs_channel_t *ch, const gs_step_t *step,
                        const gs_step_chunk_t *chunk)
{
    const bool landed = w->direct && 0 != (step->does & GS_LANDED); /* it is in our output already */
    gs_ends_t e = {{0, 0, 0}, {0, 0, 0}, 0, 0};
    if (landed) {
        gs_add_src(&e, chunk->out);
    }
    GS_UNROLL
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        if (GS_CHILD1 == l && 0 != (step->does & GS_INPUT)) {
            gs_add_src(&e, chunk->in);
        }
        if (gs_has(step->recv, l) && !landed) {
            gs_add_src(&e, gs_fifo(w, w->rank, c.block, l, ch->taken[l]));
        }
    }
    if (0 != (step->does & GS_COPY) && !landed && !(0 == step->recv && chunk->in == chunk->out)) {
        gs_add_dst(&e, chunk->out);
    }
    GS_UNROLL
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        if (gs_has(step->send, l)) {
            const uint32_t p = ch->path->peer[l];
            const bool direct = w->direct && 0 != (step->does & GS_FINAL);
            gs_add_dst(&e, direct ? (char *) w->peer_out[p] + chunk->remote_out
                                  : gs_fifo(w, p, c.block, ch->path->peer_link[l], ch->sent[l]));
        }
    }
    return e;
}

/* One warp only posts flags: its fence, which waits until all stores have arrived, goes on beside the next step. */
GS_FN uint32_t gs_step_simple(gs_ctx_t c, gs_kernel_t kernel, gs_channel_t *ch, const gs_step_t *step)
{
    const gpusym_work_t *const w = kernel.w;
    const bool apart = c.nthreads >= 3 * GS_WARP && GS_WARP > 1;
    const gs_ctx_t work = {c.thread, c.nthreads - (apart ? GS_WARP : 0), c.block, c.nblocks};
    uint32_t status = GPUSYM_STATUS_OK;
    if (work.thread < work.nthreads) {
        const gs_step_chunk_t chunk = gs_step_chunk(w, ch, step);
        status = gs_await_links(work, w, ch, step, true);
        if (!gs_part_any(work, GPUSYM_STATUS_OK != status)) {
            const gs_ends_t e = gs_ends(c, w, ch, step, &chunk);
            if (e.ndst > 0) {
                gs_move(work, kernel, &e, chunk.bytes);
            }
        }
    }
    status = gs_block_worst(c, status);
    if (GPUSYM_STATUS_OK == status && (!apart || work.thread >= work.nthreads)) {
        const uint32_t first = apart ? work.nthreads : 0;
        const gs_ctx_t post = {c.thread - first, c.nthreads - first, c.block, c.nblocks};
        gs_post_heads(post, w, ch, step->recv, 0);
        gs_post_tails(post, w, ch, step->send);
    }
    gs_count(ch, step);
    return status;
}

/* ---- LL ---- */

/* Takes pack i of a message, as soon as its lines are there; rank p writes them. */
GS_FN gs_pack_t gs_ll_take(const gpusym_work_t *w, const char *fifo, uint64_t i, uint32_t flag, uint32_t p,
                           uint32_t *status)
{
    gs_pack_t v = {{0, 0}};
    gs_wait_t wait = GS_WAIT_INIT;
    const char *line = fifo + 32 * i;
    while (GPUSYM_STATUS_OK == *status) {
        const bool first = gs_ll_ld(line, flag, &v.w[0]), second = gs_ll_ld(line + 16, flag, &v.w[1]);
        if (first && second) {
            break;
        }
        *status = gs_wait(w, &wait, p);
    }
    return v;
}

/* Reduces with what there is already, in acc, if there is any. */
GS_FN void gs_join(gs_kernel_t kernel, bool any, gs_acc_t *acc, gs_pack_t v)
{
    if (any && kernel.reduces) {
        gs_acc_op(kernel, acc, v);
    } else if (kernel.reduces) {
        *acc = gs_acc_start(gs_acc_type(kernel), v);
    } else {
        acc->w[0] = v.w[0];
        acc->w[1] = v.w[1];
    }
}

GS_FN gs_pack_t gs_joined(gs_kernel_t kernel, const gs_acc_t *acc)
{
    gs_pack_t v = {{acc->w[0], acc->w[1]}};
    return kernel.reduces ? gs_acc_end(gs_acc_type(kernel), acc) : v;
}

GS_FN void gs_packs_ll(gs_ctx_t c, gs_kernel_t kernel, const gs_channel_t *ch, const gs_step_t *step,
                       const gs_step_chunk_t *chunk, uint32_t *status)
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t in_align = gs_align(chunk->in), out_align = gs_align(chunk->out);
    for (uint64_t i = c.thread; 16 * i < chunk->bytes && GPUSYM_STATUS_OK == *status; i += c.nthreads) {
        gs_acc_t acc = {{0, 0, 0, 0}};
        gs_pack_t own = {{0, 0}};
        bool any = false;
        if (0 != (step->does & GS_INPUT)) {
            own = gs_ld_user(chunk->in, in_align, chunk->bytes, i);
        }
        GS_UNROLL
        for (uint32_t l = 0; l < GS_LINKS; l++) {
            if (GS_CHILD1 == l && 0 != (step->does & GS_INPUT)) {
                gs_join(kernel, any, &acc, own);
                any = true;
            }
            if (gs_has(step->recv, l)) {
                gs_join(kernel, any, &acc,
                        gs_ll_take(w, gs_fifo(w, w->rank, c.block, l, ch->taken[l]), i, w->epoch + ch->taken[l],
                                   ch->path->peer[l], status));
                any = true;
            }
        }
        if (GPUSYM_STATUS_OK != *status) {
            return;
        }
        const gs_pack_t v = gs_joined(kernel, &acc);
        GS_UNROLL
        for (uint32_t l = 0; l < GS_LINKS; l++) {
            if (gs_has(step->send, l)) {
                char *line = gs_fifo(w, ch->path->peer[l], c.block, ch->path->peer_link[l], ch->sent[l]) + 32 * i;
                gs_ll_st(line, v.w[0], w->epoch + ch->sent[l]);
                gs_ll_st(line + 16, v.w[1], w->epoch + ch->sent[l]);
            }
        }
        if (0 != (step->does & GS_COPY)) {
            gs_st_user(chunk->out, out_align, chunk->bytes, i, v);
        }
    }
}

/* ---- LL128 ---- */

/* Packs of m groups from number g on, of one lane. */
GS_FN void gs_lane_ll128(gs_ctx_t c, gs_kernel_t kernel, const gs_channel_t *ch, const gs_step_t *step,
                         const gs_step_chunk_t *chunk, uint64_t g, uint32_t m, uint32_t lane,
                         uint64_t half[][GS_GROUPS], uint32_t *status)
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t in_align = gs_align(chunk->in), out_align = gs_align(chunk->out);
    const uint64_t packs = (chunk->bytes + 15) / 16, first = g * GPUSYM_LL128_PACKS + gs_ll128_pack(lane);
    const bool has = gs_ll128_pack(lane) < GPUSYM_LL128_PACKS;
    gs_acc_t acc[GS_GROUPS] = {{{0, 0, 0, 0}}};
    gs_pack_t own[GS_GROUPS] = {{{0, 0}}};
    bool any = false;
    GS_UNROLL
    for (uint32_t u = 0; u < GS_GROUPS; u++) {
        if (0 != (step->does & GS_INPUT) && has && u < m && first + u * GPUSYM_LL128_PACKS < packs) {
            own[u] = gs_ld_user(chunk->in, in_align, chunk->bytes, first + u * GPUSYM_LL128_PACKS);
        }
    }
    GS_UNROLL
    for (uint32_t l = 0; l < GS_LINKS; l++) {
        gs_pack_t v[GS_GROUPS];
        if (GS_CHILD1 == l && 0 != (step->does & GS_INPUT)) {
            GS_UNROLL
            for (uint32_t u = 0; u < GS_GROUPS; u++) {
                gs_join(kernel, any, &acc[u], own[u]);
            }
            any = true;
        }
        if (gs_has(step->recv, l)) {
            gs_ll128_take(w, gs_fifo(w, w->rank, c.block, l, ch->taken[l]) + g * GPUSYM_LL128_BYTES, m, lane,
                          w->epoch + ch->taken[l], ch->path->peer[l], v, status);
            GS_UNROLL
            for (uint32_t u = 0; u < GS_GROUPS; u++) {
                gs_join(kernel, any, &acc[u], v[u]);
            }
            any = true;
        }
    }
    if (GPUSYM_STATUS_OK != *status) {
        return;
    }
    GS_UNROLL
    for (uint32_t u = 0; u < GS_GROUPS; u++) {
        const gs_pack_t v = gs_joined(kernel, &acc[u]);
        GS_UNROLL
        for (uint32_t l = 0; l < GS_LINKS; l++) {
            if (gs_has(step->send, l) && u < m) {
                char *fifo = gs_fifo(w, ch->path->peer[l], c.block, ch->path->peer_link[l], ch->sent[l]);
                gs_ll128_st(fifo + (g + u) * GPUSYM_LL128_BYTES, lane, v, w->epoch + ch->sent[l], &half[l][u]);
            }
        }
        if (0 != (step->does & GS_COPY) && has && u < m && first + u * GPUSYM_LL128_PACKS < packs) {
            gs_st_user(chunk->out, out_align, chunk->bytes, first + u * GPUSYM_LL128_PACKS, v);
        }
    }
}

GS_FN void gs_packs_ll128(gs_ctx_t c, gs_kernel_t kernel, const gs_channel_t *ch, const gs_step_t *step,
                          const gs_step_chunk_t *chunk, uint32_t *status)
{
    const uint64_t packs = (chunk->bytes + 15) / 16, groups = (packs + GPUSYM_LL128_PACKS - 1) / GPUSYM_LL128_PACKS;
    const uint32_t warps = c.nthreads / GS_WARP;
    for (uint64_t g = c.thread / GS_WARP * GS_GROUPS; g < groups && GPUSYM_STATUS_OK == *status;
         g += warps * GS_GROUPS) {
        const uint32_t m = groups - g < GS_GROUPS ? (uint32_t) (groups - g) : GS_GROUPS;
        uint64_t half[GS_LINKS][GS_GROUPS] = {{0}}; /* of packs that two lanes share */
        GS_NO_UNROLL
        for (uint32_t lane = c.thread % GS_WARP; lane < 32; lane += GS_WARP) {
            gs_lane_ll128(c, kernel, ch, step, chunk, g, m, lane, half, status);
        }
    }
}

/* A step of the protocols whose data carry flags. Without credits threads need not wait for each other at all; with
 * them there is one barrier, after which both the last step's buffers have been read and this one's may be written. */
GS_FN uint32_t gs_step_lines(gs_ctx_t c, gs_kernel_t kernel, uint32_t proto, gs_channel_t *ch, const gs_step_t *step)
{
    const gpusym_work_t *const w = kernel.w;
    const gs_step_chunk_t chunk = gs_step_chunk(w, ch, step);
    uint32_t status = GPUSYM_STATUS_OK;
    if (ch->credits) {
        status = gs_block_worst(c, GPUSYM_STATUS_OK != ch->lost ? ch->lost : gs_await_links(c, w, ch, step, false));
        if (GPUSYM_STATUS_OK != status) {
            return status;
        }
        gs_post_heads(c, w, ch, ch->unposted, 1);
        ch->unposted = step->recv;
    }
    if (GS_LL128 == proto) {
        gs_packs_ll128(c, kernel, ch, step, &chunk, &status);
    } else {
        gs_packs_ll(c, kernel, ch, step, &chunk, &status);
    }
    gs_count(ch, step);
    ch->lost = status;
    return ch->credits ? (uint32_t) GPUSYM_STATUS_OK : status; /* a thread that waits at barriers ends at one */
}

/* ---- the executor ---- */

GS_FN void gs_channels(gs_ctx_t c, gs_kernel_t kernel, uint32_t proto)
{
    const gpusym_work_t *const w = kernel.w;
    const uint64_t packs = (w->bytes + 15) / 16;
    const uint32_t chunks = GS_RING_ALLREDUCE == w->schedule ? w->nranks : 1;
    gs_channel_t ch = {&w->path[c.block % w->npaths], 0, 0, {0, 0, 0}, {0, 0, 0}, false, 0, GPUSYM_STATUS_OK};
    uint32_t status = GPUSYM_STATUS_OK;
    gs_schedule_t s;
    gs_step_t step;

    ch.from = gs_min64(c.block * w->span, packs);
    ch.to = gs_min64(ch.from + w->span, packs);
    s.kind = w->schedule;
    s.n = w->nranks;
    s.pos = ch.path->pos;
    s.links = ch.path->links;
    s.loops = (uint32_t) ((ch.to - ch.from + (uint64_t) w->chunk * chunks - 1) / ((uint64_t) w->chunk * chunks));
    ch.credits = (uint64_t) s.loops * gs_schedule_sends(s.kind, s.n) > GS_STEPS;

    for (uint32_t i = 0; GPUSYM_STATUS_OK == status && gs_schedule_step(&s, i, &step); i++) {
        status =
            GS_SIMPLE == proto ? gs_step_simple(c, kernel, &ch, &step) : gs_step_lines(c, kernel, proto, &ch, &step);
    }
    gs_finish(c, w, GPUSYM_STATUS_OK != status ? status : ch.lost);
}

#endif
