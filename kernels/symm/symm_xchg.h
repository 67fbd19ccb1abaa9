/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The exchange kernels: what a rank has for another is a segment of its input, what it gets a segment of its output,
 * any of them empty.  All-gather, all-to-all, gather, scatter; and, where the receiver reduces what it gets,
 * reduce-scatter, scan, reduce.
 *   XLL, XLL_R        segments go in LL lines (lines.h); small ones
 *   XST, XST_R        segments are stored to the receiver's heap
 *   XLD_R             segments go to one's own heap, the receiver loads them
 *   XST_Z             segments are stored to the receivers' outputs (zero copy)
 *   XLD_Z, XLD_R_Z    segments are loaded from the senders' inputs (zero copy)
 * Source: NCCL's symmetric kernels AllGather_{LL,ST} and ReduceScatter_{LL,LD}, made to take segments of any length.
 *
 * Bytes sent by a rank: its segments for others (LL: twice, and in messages of several epochs as many as it gets).
 * Order of summation (_R): ranks rising, from src_first.
 *
 * Staging (XST, XST_R, XLD_R): [two parities][blocks][ranks] buffers of stage_bytes.  Every block has a span of every
 * segment, cut into chunks; a block works in phases, one barrier each; phase t stores chunk t and takes chunk t - 1.
 * Buffer [t & 1][b][s] is written in phase t, by block b of the sender s (XLD_R: the owner writes, s reads), is
 * read in phase t + 1, and written again in phase t + 2: a barrier lies between any two phases. The last phase only
 * takes.  If there is one chunk only, there is one parity only, with all the room.
 */
#ifndef GPUSYM_KERNELS_SYMM_XCHG_H
#define GPUSYM_KERNELS_SYMM_XCHG_H

#include "kernels/prim/lines.h"
#include "kernels/prim/stream.h"
#include "kernels/symm/resident.h"
#include "kernels/symm/symm_mc.h"

GS_FN uint64_t gs_lines(uint64_t bytes)
{
    return (bytes + 15) / 16;
}

/* Whether a segment between two ranks is stored. */
GS_FN bool gs_x_stored(const gpusym_work_t *w, uint64_t bytes)
{
    return gs_is_sized(w) ? bytes > GPUSYM_SIZED_LINES(w) : 0 != bytes;
}

/* ---- LL ---- */

/*
 * The lines of a pair of ranks in one direction: as many as the longer direction has, where that takes several epochs,
 * so that each epoch's lines answer those of the epoch before (an empty line is its first half with nothing in it);
 * else only those that carry something.  mc: everyone sends to all, so the longest segment counts.
 */
GS_FN uint64_t gs_xll_lines(const gpusym_work_t *w, uint64_t bytes, uint64_t back, bool mc)
{
    const uint64_t lines = gs_lines(mc ? w->bytes : bytes > back ? bytes : back);
    return lines > w->chunk ? lines : gs_lines(bytes);
}

/* One line of XLL as a thread sees it. */
typedef struct {
    uint32_t peer;
    uint32_t i;    /* in the epoch's area */
    uint64_t pack; /* in the segment */
    bool there;    /* whether there is such a line; and whether it carries something: */
    bool full, two;
} gs_xll_t;

/* The lines [from, from + len) of each pair that this block has, of an epoch's, which begins with pack base. */
typedef struct {
    uint32_t from, len;
    uint64_t base;
} gs_xll_part_t;

/* Line j of the peers' lines; to: of those that we send. */
GS_FN gs_xll_t gs_xll_line(const gpusym_work_t *w, bool mc, bool to, uint32_t j, const gs_xll_part_t *k)
{
    gs_xll_t l = {w->rank, 0, 0, false, false, false};
    if (j < (mc && to ? k->len : (w->nranks - 1) * k->len)) {
        const uint32_t q = j < k->len ? 0 : j / k->len;
        l.peer = gs_nth(w, mc && to ? 1 : 1 + q);
        l.i = k->from + j - q * k->len;
        l.pack = k->base + l.i;
        const uint64_t sent = w->send[l.peer].bytes, got = w->recv[l.peer].bytes, bytes = to ? sent : got;
        l.there = l.pack < gs_xll_lines(w, bytes, to ? got : sent, mc);
        l.full = l.there && l.pack < gs_lines(bytes);
        l.two = l.full && gs_ll_two(bytes, l.pack);
    }
    return l;
}

/* Input is loaded by strong loads: other kernels may have written it while this one was resident. group: lines that a
 * thread has under way, a constant of at most GS_LL_GROUP. */
GS_FN void gs_xll_send(gs_ctx_t c, const gpusym_work_t *w, bool mc, const gs_message_t *m, const gs_xll_part_t *k,
                       uint32_t epoch, uint32_t group)
{
    const uint32_t all = mc ? k->len : (w->nranks - 1) * k->len;
    GS_NO_UNROLL
    for (uint32_t j = c.thread; j < all; j += group * c.nthreads) {
        gs_xll_t l[GS_LL_GROUP];
        gs_pack_t v[GS_LL_GROUP];
        GS_UNROLL
        for (uint32_t g = 0; g < group; g++) {
            l[g] = gs_xll_line(w, mc, true, j + g * c.nthreads, k);
            v[g].w[0] = v[g].w[1] = 0;
            if (l[g].full) {
                const gpusym_seg_t *s = &w->send[l[g].peer];
                const char *in = m->in + s->off;
                v[g] = gs_ld_user_strong(in, gs_align(in), s->bytes, l[g].pack);
            }
        }
        GS_UNROLL
        for (uint32_t g = 0; g < group; g++) {
            if (l[g].there) {
                char *line = (char *) (mc ? w->mc : w->peer[l[g].peer]) + gs_ll_at(w, w->rank, epoch, l[g].i);
                gs_ll_send(line, v[g], l[g].two, epoch, mc);
            }
        }
    }
}

GS_FN void gs_xll_take(gs_ctx_t c, const gpusym_work_t *w, bool mc, const gs_message_t *m, const gs_xll_part_t *k,
                       uint32_t epoch, uint32_t group, bool early, uint32_t *status)
{
    GS_NO_UNROLL
    for (uint32_t j = c.thread; j < (w->nranks - 1) * k->len; j += group * c.nthreads) {
        gs_xll_t l[GS_LL_GROUP];
        gs_pack_t v[GS_LL_GROUP];
        gs_wait_t wait = GS_WAIT_INIT;
        uint32_t missing;
        GS_UNROLL
        for (uint32_t g = 0; g < group; g++) {
            l[g] = gs_xll_line(w, mc, false, j + g * c.nthreads, k);
        }
        do { /* rank l.peer writes its lines here */
            missing = w->nranks;
            GS_UNROLL
            for (uint32_t g = 0; g < group; g++) {
                v[g].w[0] = v[g].w[1] = 0;
                if (l[g].there) {
                    const char *line = gs_ll_line(w, w->rank, l[g].peer, epoch, l[g].i);
                    const bool ok = gs_ll_ld(line, epoch, &v[g].w[0]);
                    if (!(l[g].two ? (gs_ll_ld(line + 16, epoch, &v[g].w[1]) && ok) : ok)) {
                        missing = l[g].peer;
                    }
                }
            }
            if (missing < w->nranks && GPUSYM_STATUS_OK == *status) {
                *status = gs_wait_line(w, early, &wait, missing);
            }
        } while (missing < w->nranks && GPUSYM_STATUS_OK == *status);
        GS_UNROLL
        for (uint32_t g = 0; g < group; g++) {
            if (l[g].full && GPUSYM_STATUS_OK == *status) {
                const gpusym_seg_t *s = &w->recv[l[g].peer];
                char *out = m->out + s->off;
                gs_st_user_word(out, gs_align(out), s->bytes, l[g].pack, v[g]);
            }
        }
    }
}

/* Our own segment, as far as it is this block's. */
GS_FN void gs_x_own(gs_ctx_t c, const gpusym_work_t *w, uint64_t from, uint64_t bytes)
{
    const char *in = (const char *) w->in + w->send[w->rank].off + from;
    char *out = (char *) w->out + w->recv[w->rank].off + from;
    if (in != out && 0 != bytes) {
        gs_copy(c, out, in, bytes);
    }
}

/* Packs of a segment for each block. */
GS_FN uint64_t gs_x_span(gs_ctx_t c, uint64_t bytes)
{
    const uint64_t even = gs_lines(bytes) + c.nblocks - 1; /* a division of 64 bits takes a hundred instructions */
    const uint64_t per = even >> 32 ? even / c.nblocks : gs_quotient((uint32_t) even, c.nblocks);
    return GPUSYM_SPAN(per, 1u);
}

/* Bytes of chunk t of this block of a segment, in chunks of `chunk` packs; *from: where in the segment they begin.
 * planned: the host has found the span of the longest segments. */
GS_FN uint64_t gs_x_part(gs_ctx_t c, const gpusym_work_t *w, bool planned, uint64_t bytes, uint64_t chunk, uint32_t t,
                         uint64_t *from)
{
    const uint64_t span = planned && bytes == w->bytes && !gs_is_sized(w) ? w->span : gs_x_span(c, bytes);
    const uint64_t first = c.block * span + t * chunk;
    const uint64_t left = t * chunk < span ? span - t * chunk : 0, n = 16 * (left < chunk ? left : chunk);
    *from = 16 * first;
    return *from >= bytes ? 0 : bytes - *from < n ? bytes - *from : n;
}
#define GS_WHOLE (UINT64_MAX / 32) /* a chunk that all of a span is */

/* Our own segment, as far as it is this block's. Each thread's first pack of it is loaded before the lines are sent,
 * and stored behind: short messages wait for memory once, not twice. */
typedef struct {
    const char *in;
    char *out;
    uint64_t bytes;
    gs_pack_t v;
} gs_xll_own_t;

GS_FN void gs_xll_own_load(gs_ctx_t c, const gpusym_work_t *w, const gs_message_t *m, gs_xll_own_t *o)
{
    uint64_t from;
    o->bytes = gs_x_part(c, w, false, w->send[w->rank].bytes, GS_WHOLE, 0, &from);
    o->in = m->in + w->send[w->rank].off + from;
    o->out = m->out + w->recv[w->rank].off + from;
    o->bytes = o->in == o->out ? 0 : o->bytes;
    if (c.thread < gs_lines(o->bytes)) {
        o->v = gs_ld_user_strong(o->in, gs_align(o->in), o->bytes, c.thread);
    }
}

GS_FN void gs_xll_own_store(gs_ctx_t c, const gs_xll_own_t *o)
{
    gs_pack_t v = o->v;
    GS_NO_UNROLL
    for (uint64_t i = c.thread; i < gs_lines(o->bytes); i += c.nthreads) {
        if (i != c.thread) {
            v = gs_ld_user_strong(o->in, gs_align(o->in), o->bytes, i);
        }
        gs_st_user_word(o->out, gs_align(o->out), o->bytes, i, v);
    }
}

/* A call of one epoch, of which no thread has more than a line either way, and a pack of our own segment: as few
 * instructions as can be. Each peer has k->len threads. */
GS_FN uint32_t gs_xll_once(gs_ctx_t c, const gpusym_work_t *w, const gs_message_t *m, const gs_xll_part_t *k,
                           uint32_t epoch, bool early)
{
    const uint32_t q = c.thread < k->len ? 0 : c.thread / k->len, i = k->from + c.thread - q * k->len;
    const bool there = q + 1 < w->nranks, keeps = c.thread < k->len;
    const uint32_t p = gs_nth(w, there ? q + 1 : 0), own = w->rank, at = k->from + c.thread;
    const char *in = m->in + w->send[p].off, *own_in = m->in + w->send[own].off;
    char *out = m->out + w->recv[p].off, *own_out = m->out + w->recv[own].off;
    const uint32_t sent = there ? (uint32_t) w->send[p].bytes : 0, got = there ? (uint32_t) w->recv[p].bytes : 0;
    const uint32_t kept = keeps && own_in != own_out ? (uint32_t) w->send[own].bytes : 0;
    gs_pack_t v = {{0, 0}}, mine = {{0, 0}};
    uint32_t status = GPUSYM_STATUS_OK;

    if (GPUSYM_PACK * i < sent) {
        v = gs_ld_user_strong(in, gs_align(in), sent, i);
    }
    if (GPUSYM_PACK * at < kept) {
        mine = gs_ld_user_strong(own_in, gs_align(own_in), kept, at);
    }
    if (GPUSYM_PACK * i < sent) {
        gs_ll_send(gs_ll_line(w, p, own, epoch, i), v, gs_ll_two(sent, i), epoch, false);
    }
    if (GPUSYM_PACK * at < kept) {
        gs_st_user_word(own_out, gs_align(own_out), kept, at, mine);
    }
    if (GPUSYM_PACK * i < got) {
        const char *line = gs_ll_line(w, own, p, epoch, i);
        const bool two = gs_ll_two(got, i);
        gs_wait_t wait = GS_WAIT_INIT;
        bool all = false;
        while (!all && GPUSYM_STATUS_OK == status) { /* rank p writes it; both halves are loaded at once */
            const gs_line_t low = gs_ll_peek(line, true), high = gs_ll_peek(line + 16, two);
            all = gs_ll_whole(&low, epoch, &v.w[0]);
            all = (gs_ll_whole(&high, epoch, &v.w[1]) || !two) && all;
            status = all ? (uint32_t) GPUSYM_STATUS_OK : gs_wait_line(w, early, &wait, p);
        }
        if (GPUSYM_STATUS_OK == status) {
            gs_st_user_word(out, gs_align(out), got, i, v);
        }
    }
    return status;
}

/*
 * A block has its own lines of every pair (the simulator runs blocks one by one).  Within it, threads share out (peer,
 * line): short segments keep all of them busy.  The same thread sends a line of a pair and takes the line that answers
 * it; with multicast, where a line is for all, the block's threads meet between epochs instead.
 */
GS_FN uint32_t gs_xll_call(gs_ctx_t c, const gpusym_work_t *w, bool mc, const gs_message_t *m, uint32_t epoch,
                           bool early, uint32_t status)
{
    const uint64_t packs = gs_lines(w->bytes);
    const uint32_t even = gs_quotient(w->chunk + c.nblocks - 1, c.nblocks), span = GPUSYM_SPAN(even, 1u);
    const uint32_t from = c.block * span < w->chunk ? c.block * span : w->chunk;
    gs_xll_part_t k = {from, w->chunk - from < span ? w->chunk - from : span, 0};
    gs_xll_own_t own = {NULL, NULL, 0, {{0, 0}}};

    /* The same in all blocks, which have other parts of our own segment otherwise. */
    if (!mc && packs <= w->chunk && gs_lines(w->send[w->rank].bytes) <= w->chunk && span <= c.nthreads &&
        (w->nranks - 1) * span <= c.nthreads) {
        return 0 != k.len ? gs_xll_once(c, w, m, &k, epoch, early) : (uint32_t) GPUSYM_STATUS_OK;
    }
    gs_xll_own_load(c, w, m, &own);
    for (; k.base < packs && GPUSYM_STATUS_OK == status; k.base += w->chunk, epoch++) {
        if ((w->nranks - 1) * k.len <= c.nthreads) { /* a line a thread: as few instructions as can be */
            gs_xll_send(c, w, mc, m, &k, epoch, 1);
        } else {
            gs_xll_send(c, w, mc, m, &k, epoch, GS_LL_GROUP);
        }
        if (0 == k.base) { /* while the lines are under way */
            gs_xll_own_store(c, &own);
        }
        if ((w->nranks - 1) * k.len <= c.nthreads) {
            gs_xll_take(c, w, mc, m, &k, epoch, 1, early, &status);
        } else {
            gs_xll_take(c, w, mc, m, &k, epoch, GS_LL_GROUP, early, &status);
        }
        if (mc && k.base + w->chunk < packs) {
            status = gs_block_worst(c, status);
        }
    }
    return status;
}

/* What a sender p has for us to reduce. */
GS_FN uint64_t gs_xr_bytes(const gpusym_work_t *w, uint32_t p)
{
    return gs_is_src(w, p) ? w->recv[w->rank].bytes : 0;
}

GS_FN void gs_xll_r_send(const gpusym_work_t *w, const gs_message_t *m, uint64_t i, uint64_t pack, uint32_t epoch)
{
    GS_NO_UNROLL
    for (uint32_t q0 = 1; q0 < w->nranks; q0 += GS_LL_GROUP) {
        gs_pack_t v[GS_LL_GROUP];
        GS_UNROLL
        for (uint32_t g = 0; g < GS_LL_GROUP; g++) {
            v[g].w[0] = v[g].w[1] = 0;
            if (q0 + g < w->nranks) {
                const gpusym_seg_t *s = &w->send[gs_nth(w, q0 + g)];
                const char *in = m->in + s->off;
                if (pack < gs_lines(s->bytes)) {
                    v[g] = gs_ld_user_strong(in, gs_align(in), s->bytes, pack);
                }
            }
        }
        GS_UNROLL
        for (uint32_t g = 0; g < GS_LL_GROUP; g++) {
            if (q0 + g < w->nranks) {
                const uint32_t p = gs_nth(w, q0 + g);
                const uint64_t bytes = w->send[p].bytes;
                if (pack < gs_xll_lines(w, bytes, gs_xr_bytes(w, p), false)) {
                    const bool two = pack < gs_lines(bytes) && gs_ll_two(bytes, pack);
                    gs_ll_send(gs_ll_line(w, p, w->rank, epoch, i), v[g], two, epoch, false);
                }
            }
        }
    }
}

/* Awaits the empty lines that answer our own. */
GS_FN void gs_xll_r_answers(const gpusym_work_t *w, uint64_t i, uint64_t pack, uint32_t epoch, uint32_t *status)
{
    GS_NO_UNROLL
    for (uint32_t p = 0; p < w->nranks; p++) {
        const uint64_t bytes = gs_xr_bytes(w, p);
        if (p != w->rank && pack >= gs_lines(bytes) && pack < gs_xll_lines(w, bytes, w->send[p].bytes, false)) {
            const char *line = gs_ll_line(w, w->rank, p, epoch, i);
            gs_wait_t wait = GS_WAIT_INIT;
            uint64_t nothing;
            while (!gs_ll_ld(line, epoch, &nothing) && GPUSYM_STATUS_OK == *status) { /* rank p writes it */
                *status = gs_wait(w, &wait, p);
            }
        }
    }
}

GS_FN uint32_t gs_xll_r_call(gs_ctx_t c, gs_kernel_t kernel, const gs_message_t *m, uint32_t epoch)
{
    const gpusym_work_t *const w = kernel.w;
    const uint64_t packs = gs_lines(w->bytes), bytes = w->recv[w->rank].bytes;
    const uint64_t mine = w->src_first < w->src_end ? gs_lines(bytes) : 0;
    const uint32_t first = c.block * c.nthreads + c.thread, stride = c.nblocks * c.nthreads;
    const char *in = m->in + w->send[w->rank].off;
    char *out = m->out + w->recv[w->rank].off;
    uint32_t status = GPUSYM_STATUS_OK;

    for (uint64_t base = 0; base < packs && GPUSYM_STATUS_OK == status; base += w->chunk, epoch++) {
        const uint64_t n = packs - base < w->chunk ? packs - base : w->chunk;
        for (uint64_t i = first; i < n; i += stride) {
            gs_xll_r_send(w, m, i, base + i, epoch);
        }
        for (uint64_t i = first; i < n; i += stride) {
            if (base + i < mine) {
                gs_pack_t own = {{0, 0}};
                if (gs_is_src(w, w->rank)) {
                    own = gs_ld_user_strong(in, gs_align(in), bytes, base + i);
                }
                const gs_pack_t v =
                    gs_ll_reduce(kernel, w->src_first, w->src_end, epoch, i, gs_ll_two(bytes, base + i), own, &status);
                if (GPUSYM_STATUS_OK == status) {
                    gs_st_user(out, gs_align(out), bytes, base + i, v);
                }
            }
            if (packs > w->chunk) {
                gs_xll_r_answers(w, i, base + i, epoch, &status);
            }
        }
    }
    return status;
}

/*
 * A launch: its own call and, where the kernel is resident (one epoch), those that it is commanded (resident.h): they
 * have the same segments, elsewhere.
 */
GS_FN void gs_xll_launch(gs_ctx_t c, gs_kernel_t kernel)
{
    const gpusym_work_t *const w = kernel.w;
    gs_command_t r = {w->done_seq,
                      kernel.epoch,
                      {(const char *) w->in, (char *) w->out, w->bytes},
                      gs_is_commanded(w) ? GPUSYM_COMMAND_EARLY : 0,
                      0};
    const uint32_t lines = kernel.reduces ? 1 : w->nranks - 1; /* where segments are placed, a thread has one peer's */
    gs_ctx_t part = c;
    uint32_t status;
    if (gs_lingers(w) && !gs_command_first(c, &part)) {
        return;
    }
    do {
        kernel.early = 0 != (r.skip & GPUSYM_COMMAND_EARLY);
        status = kernel.reduces ? gs_xll_r_call(part, kernel, &r.m, r.epoch)
                                : gs_xll_call(part, w, false, &r.m, r.epoch, kernel.early, GPUSYM_STATUS_OK);
        if (!gs_lingers(w)) {
            gs_finish_lines(c, kernel, status);
            return;
        }
        status = gs_part_worst(c, part, status);
    } while (gs_command_end(c, w, part, &r, status) && gs_command_next(c, w, &r, lines, &part));
}

/* XLL, XLL_R; mc: XLLMC. */
GS_FN void gs_xll(gs_ctx_t c, gs_kernel_t kernel, bool mc)
{
    const gpusym_work_t *const w = kernel.w;
    if (mc) {
        const gs_message_t m = {(const char *) w->in, (char *) w->out, w->bytes};
        gs_finish(c, w, gs_xll_call(c, w, true, &m, w->epoch, false, gs_mc_ready(w)));
    } else {
        gs_xll_launch(c, kernel);
    }
}

/* ---- staged ---- */

/* Offset in a slot of this block's buffer number s for chunk t. */
GS_FN uint64_t gs_x_at(gs_ctx_t c, const gpusym_work_t *w, uint32_t t, uint32_t s)
{
    return w->stage_off + (((uint64_t) (t & 1) * w->nblocks + c.block) * w->nranks + s) * w->stage_bytes;
}

/* Whether chunk t of our own segment is read where the user has it, or goes through our heap (XST_R, XLD_R). */
GS_FN bool gs_x_own_aligned(const gpusym_work_t *w, uint64_t from, uint64_t bytes)
{
    return 0 == bytes % 16 && 16 == gs_align((const char *) w->in + w->send[w->rank].off + from);
}

/* Segments shared out among the threads of a block, in whole warps: each thread's part of the block does every
 * shares-th segment that is not empty; own: ours too. */
typedef struct {
    gs_ctx_t mine; /* this thread in its part of the block */
    uint32_t share, shares, at;
} gs_segments_t;

GS_FN gs_segments_t gs_segments(gs_ctx_t c, const gpusym_work_t *w, const gpusym_seg_t *seg, bool own)
{
    gs_segments_t s = {c, 0, 1, 0};
    uint32_t parts = 0;
    GS_NO_UNROLL
    for (uint32_t p = 0; p < w->nranks; p++) {
        parts += (own || p != w->rank) && gs_x_stored(w, seg[p].bytes);
    }
    if (parts > 1) {
        s.mine = gs_share(c, GS_WARP, parts, &s.share, &s.shares);
    }
    return s;
}

/* Whether this thread does the next segment that is not empty. */
GS_FN bool gs_segments_take(gs_segments_t *s)
{
    const bool mine = s->at == s->share;
    s->at = s->at + 1 == s->shares ? 0 : s->at + 1;
    return mine;
}

/* Stores chunk t of the segments: to the receivers' heaps (push) or our own. own: our own segment too, and whatever its
 * alignment (all). */
GS_FN void gs_x_put(gs_ctx_t c, const gpusym_work_t *w, bool push, bool own, bool all, uint32_t t)
{
    gs_segments_t segments = gs_segments(c, w, w->send, own);
    uint64_t from;
    GS_NO_UNROLL
    for (uint32_t q = 0; q < w->nranks; q++) {
        const uint32_t p = gs_nth(w, q);
        if (!gs_x_stored(w, w->send[p].bytes) || (0 == q && !own) || !gs_segments_take(&segments)) {
            continue;
        }
        const uint64_t bytes = gs_x_part(c, w, true, w->send[p].bytes, w->chunk, t, &from);
        if (0 != bytes && (0 != q || all || !gs_x_own_aligned(w, from, bytes))) {
            gs_copy(segments.mine, (char *) w->peer[push ? p : w->rank] + gs_x_at(c, w, t, push ? w->rank : p),
                    (const char *) w->in + w->send[p].off + from, bytes);
        }
    }
}

/* Copies chunk t of what has come, and of our own segment, to the user. */
GS_FN void gs_x_copy_out(gs_ctx_t c, const gpusym_work_t *w, uint32_t t)
{
    gs_segments_t segments = gs_segments(c, w, w->recv, true);
    uint64_t from;
    GS_NO_UNROLL
    for (uint32_t p = 0; p < w->nranks; p++) {
        if (!(p == w->rank || gs_x_stored(w, w->recv[p].bytes)) || !gs_segments_take(&segments)) {
            continue;
        }
        const uint64_t bytes = gs_x_part(c, w, true, w->recv[p].bytes, w->chunk, t, &from);
        if (0 == bytes) {
            continue;
        }
        if (p == w->rank) {
            gs_x_own(segments.mine, w, from, bytes);
        } else {
            gs_copy(segments.mine, (char *) w->out + w->recv[p].off + from,
                    (const char *) w->peer[w->rank] + gs_x_at(c, w, t, p), bytes);
        }
    }
}

/* Reduces chunk t of what the sources have for us. */
GS_FN void gs_x_reduce(gs_ctx_t c, gs_kernel_t kernel, bool push, uint32_t t)
{
    const gpusym_work_t *const w = kernel.w;
    uint64_t from;
    const uint64_t bytes = gs_x_part(c, w, true, w->recv[w->rank].bytes, w->chunk, t, &from);
    const gs_from_t f = {
        push ? GS_FROM_OWN : GS_FROM_SLOTS,
        gs_x_at(c, w, t, push ? 0 : w->rank),
        push ? w->stage_bytes : 0,
        gs_x_own_aligned(w, from, bytes) ? (const char *) w->in + w->send[w->rank].off + from : NULL,
    };
    const gs_to_t o = {GS_TO_OUT, 0, w->recv[w->rank].off + from, bytes};
    if (0 != bytes && w->src_first < w->src_end) {
        gs_reduce(c, kernel, &f, &o, (uint32_t) gs_lines(bytes));
    }
}

/* Stores chunk t of our segment, the same for all, to all heaps. */
GS_FN void gs_xstmc_put(gs_ctx_t c, const gpusym_work_t *w, uint32_t t)
{
    uint64_t from;
    const uint64_t bytes = gs_x_part(c, w, true, w->send[w->rank].bytes, w->chunk, t, &from);
    const char *in = (const char *) w->in + w->send[w->rank].off + from;
    const uint32_t align = gs_align(in), n = (uint32_t) gs_lines(bytes);
    char *to = (char *) w->mc + gs_x_at(c, w, t, w->rank);

    for (uint32_t i = c.thread; i < n; i += c.nthreads * GS_PACKS) {
        gs_pack_t v[GS_PACKS] = {{{0, 0}}};
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * c.nthreads < n) {
                v[u] = gs_ld_user(in, align, bytes, i + u * c.nthreads);
            }
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * c.nthreads < n) {
                gs_mc_st16(to + 16ull * (i + u * c.nthreads), v[u]);
            }
        }
    }
}

/* Has the switch reduce chunk t of what is for us. */
GS_FN void gs_x_reduce_mc(gs_ctx_t c, const gpusym_work_t *w, uint32_t t)
{
    uint64_t from;
    const uint64_t bytes = gs_x_part(c, w, true, w->recv[w->rank].bytes, w->chunk, t, &from);
    gs_mc_reduce(c, w, gs_x_at(c, w, t, w->rank), 0, w->recv[w->rank].off + from, bytes, (uint32_t) gs_lines(bytes));
}

/* Whether data go between this rank and rank p, either way: both see it alike. */
GS_FN bool gs_x_partner(const gpusym_work_t *w, uint32_t p)
{
    return p != w->rank && (gs_x_stored(w, w->send[p].bytes) || gs_x_stored(w, w->recv[p].bytes));
}

/* The barrier of block c.block over the ranks that it exchanges segments with: no rank waits for one that it gets
 * nothing from and gives nothing to. */
GS_FN uint32_t gs_x_barrier(gs_ctx_t c, const gpusym_work_t *w, uint32_t epoch)
{
    uint32_t status = GPUSYM_STATUS_OK;
    gs_block_sync(c);
    for (uint32_t p = c.thread; p < w->nranks; p += c.nthreads) {
        if (gs_x_partner(w, p)) {
            gs_flag_post(gs_flag(w, p, c.block, w->rank), epoch);
        }
    }
    for (uint32_t p = c.thread; p < w->nranks && GPUSYM_STATUS_OK == status; p += c.nthreads) {
        if (gs_x_partner(w, p)) { /* rank p posts it */
            status = gs_await(w, gs_flag(w, w->rank, c.block, p), epoch, p);
        }
    }
    return gs_block_worst(c, status);
}

GS_FN uint32_t gs_xchg_chunks(const gpusym_work_t *w)
{
    return gs_is_sized(w)        ? gs_block_own()->epochs
           : w->span <= w->chunk ? 1u
                                 : (uint32_t) ((w->span + w->chunk - 1) / w->chunk);
}

/* The barrier behind phase t. What is reduced may come from ranks that have no segment of ours. */
GS_FN uint32_t gs_xchg_barrier(gs_ctx_t c, gs_kernel_t kernel, uint32_t form, uint32_t t)
{
    const gpusym_work_t *const w = kernel.w;
    if (GS_MC == form) {
        return gs_mc_barrier(c, w, kernel.epoch + t);
    }
    return kernel.reduces ? gs_barrier(c, w, kernel.epoch + t) : gs_x_barrier(c, w, kernel.epoch + t);
}

/* Chunk t leaves the user's input. form: GS_LD, GS_ST, GS_MC. */
GS_FN void gs_xchg_send(gs_ctx_t c, gs_kernel_t kernel, uint32_t form, uint32_t t)
{
    const gpusym_work_t *const w = kernel.w;
    if (GS_MC == form && !kernel.reduces) {
        gs_xstmc_put(c, w, t);
    } else if (GS_MC == form) {
        gs_x_put(c, w, false, true, true, t);
    } else {
        gs_x_put(c, w, GS_ST == form, kernel.reduces && gs_is_src(w, w->rank), false, t);
    }
}

/* Chunk t comes to the user's output. */
GS_FN void gs_xchg_take(gs_ctx_t c, gs_kernel_t kernel, uint32_t form, uint32_t t)
{
    if (!kernel.reduces) {
        gs_x_copy_out(c, kernel.w, t);
    } else if (GS_MC == form) {
        gs_x_reduce_mc(c, kernel.w, t);
    } else {
        gs_x_reduce(c, kernel, GS_ST == form, t);
    }
}

/* Bytes of a segment that goes in lines, of a call that stores others. */
GS_FN uint64_t gs_x_in_lines(const gpusym_work_t *w, const gpusym_seg_t *seg, uint32_t p)
{
    return p == w->rank || gs_x_stored(w, seg[p].bytes) ? 0 : seg[p].bytes;
}

GS_FN void gs_x_send_lines(gs_ctx_t c, const gpusym_work_t *w, uint32_t p, uint32_t epoch)
{
    const char *in = (const char *) w->in + w->send[p].off;
    const uint64_t bytes = gs_x_in_lines(w, w->send, p);
    for (uint64_t i = c.thread; i < gs_lines(bytes); i += c.nthreads) {
        const gs_pack_t v = gs_ld_user_strong(in, gs_align(in), bytes, i);
        gs_ll_send(gs_ll_line(w, p, w->rank, epoch, i), v, gs_ll_two(bytes, i), epoch, false);
    }
}

GS_FN uint32_t gs_x_take_lines(gs_ctx_t c, const gpusym_work_t *w, uint32_t p, uint32_t epoch)
{
    char *out = (char *) w->out + w->recv[p].off;
    const uint64_t bytes = gs_x_in_lines(w, w->recv, p);
    uint32_t status = GPUSYM_STATUS_OK;
    for (uint64_t i = c.thread; i < gs_lines(bytes) && GPUSYM_STATUS_OK == status; i += c.nthreads) {
        const char *line = gs_ll_line(w, w->rank, p, epoch, i);
        const bool two = gs_ll_two(bytes, i);
        gs_pack_t v = {{0, 0}};
        gs_wait_t wait = GS_WAIT_INIT;
        while (GPUSYM_STATUS_OK == status &&
               !(gs_ll_ld(line, epoch, &v.w[0]) && (!two || gs_ll_ld(line + 16, epoch, &v.w[1])))) {
            status = gs_wait(w, &wait, p); /* rank p writes it */
        }
        if (GPUSYM_STATUS_OK == status) {
            gs_st_user_word(out, gs_align(out), bytes, i, v);
        }
    }
    return status;
}

/* One block, of a call whose ranks do not know all lengths: what goes in lines, by a rank that stores other segments.
 * Not inlined: a call that has none does not fetch it. */
GS_OUTLINE uint32_t gs_x_lines(gs_ctx_t c, const gpusym_work_t *w, uint32_t epoch)
{
    uint32_t status = GPUSYM_STATUS_OK;
    for (uint32_t p = 0; p < w->nranks; p++) {
        gs_x_send_lines(c, w, p, epoch);
    }
    for (uint32_t p = 0; p < w->nranks && GPUSYM_STATUS_OK == status; p++) {
        status = gs_x_take_lines(c, w, p, epoch);
    }
    return gs_block_worst(c, status);
}

/* form: GS_ST: XST, XST_R; GS_LD: XLD_R; GS_MC: XSTMC, XLDMC_R. */
GS_FN void gs_xchg(gs_ctx_t c, gs_kernel_t kernel, uint32_t form)
{
    const gpusym_work_t *const w = kernel.w;
    uint32_t status = GS_MC == form ? gs_mc_ready(w) : (uint32_t) GPUSYM_STATUS_OK;
    if (GS_ST == form && !kernel.reduces && gs_is_sized(w) && 0 == c.block && 0 != w->lines) {
        status = gs_x_lines(c, w, kernel.epoch);
    }
    const uint32_t chunks = gs_xchg_chunks(w);

    for (uint32_t t = 0; t <= chunks && GPUSYM_STATUS_OK == status; t++) {
        if (t < chunks) {
            gs_xchg_send(c, kernel, form, t);
        }
        if (t > 0) {
            gs_xchg_take(c, kernel, form, t - 1);
        }
        if (t < chunks) {
            status = gs_xchg_barrier(c, kernel, form, t);
        }
    }
    gs_finish(c, w, status);
}

/* ---- zero copy: straight between users' buffers; after the barrier at the end all stores to our output are there, and
 *      nobody reads our input any more ---- */

/* push: XST_Z; else XLD_Z. */
GS_FN void gs_x_z(gs_ctx_t c, gs_kernel_t kernel, bool push)
{
    const gpusym_work_t *const w = kernel.w;
    const gpusym_seg_t *seg = push ? w->send : w->recv;
    gs_segments_t segments = gs_segments(c, w, seg, true);
    uint64_t from;
    GS_NO_UNROLL
    for (uint32_t q = 0; q < w->nranks; q++) {
        const uint32_t p = gs_nth(w, q);
        if (0 == seg[p].bytes || !gs_segments_take(&segments)) {
            continue;
        }
        const uint64_t bytes = gs_x_part(c, w, true, seg[p].bytes, GS_WHOLE, 0, &from);
        if (0 == bytes) {
            continue;
        }
        if (0 == q) {
            gs_x_own(segments.mine, w, from, bytes);
        } else if (push) {
            gs_copy(segments.mine, gs_peer_out(w, p) + w->remote_off[p] + from,
                    (const char *) w->in + w->send[p].off + from, bytes);
        } else {
            gs_copy(segments.mine, (char *) w->out + w->recv[p].off + from, gs_peer_in(w, p) + w->remote_off[p] + from,
                    bytes);
        }
    }
    /* On a stream nobody leaves before all ranks have read where the buffers are. */
    gs_finish(c, w, GS_ON_STREAM(w) ? gs_barrier(c, w, kernel.epoch) : gs_x_barrier(c, w, kernel.epoch));
}

GS_FN void gs_xld_r_z(gs_ctx_t c, gs_kernel_t kernel)
{
    const gpusym_work_t *const w = kernel.w;
    const uint64_t mine = w->src_first < w->src_end ? w->recv[w->rank].bytes : 0;
    uint64_t from, bytes;
    for (uint32_t t = 0; 0 != (bytes = gs_x_part(c, w, true, mine, w->chunk, t, &from)); t++) {
        const gs_from_t f = {GS_FROM_REMOTE, from, 0, NULL};
        const gs_to_t o = {GS_TO_OUT, 0, w->recv[w->rank].off + from, bytes};
        gs_reduce(c, kernel, &f, &o, (uint32_t) gs_lines(bytes));
    }
    gs_finish(c, w, gs_barrier(c, w, kernel.epoch));
}

#endif
