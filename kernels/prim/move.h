/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the algorithms that move whole packs share: copying, and the loop that loads from several ranks, reduces in
 * rank order and stores to several.
 */
#ifndef GPUSYM_KERNELS_MOVE_H
#define GPUSYM_KERNELS_MOVE_H

#include "kernels/prim/reduce.h"

/* The q-th rank as this one counts, from itself: all ranks start at another one, and no port is stormed. */
GS_FN uint32_t gs_nth(const gpusym_work_t *w, uint32_t q)
{
    return w->rank + q < w->nranks ? w->rank + q : w->rank + q - w->nranks;
}

GS_FN bool gs_is_src(const gpusym_work_t *w, uint32_t p)
{
    return p >= w->src_first && p < w->src_end;
}

/* Only one rank has input: the result is that. */
GS_FN bool gs_one_src(const gpusym_work_t *w)
{
    return 1 == w->src_end - w->src_first;
}

/* Whether rank p is sent the result (an only source, which has it already, is not). */
GS_FN bool gs_is_dst(const gpusym_work_t *w, uint32_t p)
{
    return p >= w->dst_first && p < w->dst_end && !(gs_one_src(w) && p == w->src_first);
}

/* Copies `bytes` bytes with all threads of c; any alignment. Out of line: the loop need not be in every kernel. */
GS_OUTLINE void gs_copy(gs_ctx_t c, char *dst, const char *src, uint64_t bytes)
{
    const uint32_t to = gs_align(dst), from = gs_align(src);
    const uint64_t packs = (bytes + 15) / 16, even = 16 == to && 16 == from ? bytes / 16 : 0;
    const uint64_t whole = even > (GS_PACKS - 1) * c.nthreads ? even - (GS_PACKS - 1) * c.nthreads : 0;
    uint64_t i = c.thread;

    for (; i < whole; i += c.nthreads * GS_PACKS) { /* all that a thread has under way is there: no tests */
        gs_pack_t v[GS_PACKS];
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            v[u] = gs_ld16(src + 16 * (i + u * c.nthreads));
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            gs_st16(dst + 16 * (i + u * c.nthreads), v[u]);
        }
    }
    for (; i < even; i += c.nthreads * GS_PACKS) {
        gs_pack_t v[GS_PACKS] = {{{0, 0}}};
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * c.nthreads < even) {
                v[u] = gs_ld16(src + 16 * (i + u * c.nthreads));
            }
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * c.nthreads < even) {
                gs_st16(dst + 16 * (i + u * c.nthreads), v[u]);
            }
        }
    }
    GS_NO_UNROLL
    for (i = even + c.thread; i < packs; i += c.nthreads) {
        gs_st_unaligned(dst, to, bytes, i, gs_ld_unaligned(src, from, bytes, i));
    }
}

/*
 * Shares the threads of a block out among `parts` parts of the work, in whole warps, so that the parts go on side by
 * side: a part for each peer keeps all links busy, and short parts all threads.  Returns this thread in its share;
 * *share: number of that share, of *shares, to which the warps go in turns. lanes: threads of a warp, a constant to
 * the compiler; c has some warps.
 */
GS_FN gs_ctx_t gs_share(gs_ctx_t c, uint32_t lanes, uint32_t parts, uint32_t *share, uint32_t *shares)
{
    const uint32_t warps = c.nthreads / lanes, warp = c.thread / lanes, most = parts > 0 ? parts : 1;
    const uint32_t n = most < warps ? most : warps, turn = gs_quotient(warp, n), mine = warp - turn * n;
    *share = mine;
    *shares = n;
    return (gs_ctx_t){turn * lanes + c.thread % lanes, gs_quotient(warps - mine + n - 1, n) * lanes, c.block,
                      c.nblocks};
}

/* How staged data cross from rank to rank; a constant to the compiler. */
#define GS_LD 0u   /* to one's own heap, loaded from there */
#define GS_ST 1u   /* stored to the heap of the rank that wants them */
#define GS_ST_Z 2u /* ... and results straight to outputs */
#define GS_MC 3u   /* by multicast stores, or reduced by the switch over all heaps */

/* Where the ranks' inputs lie. */
#define GS_FROM_OWN 0u    /* in our own slot, scattered there */
#define GS_FROM_SLOTS 1u  /* in the ranks' slots */
#define GS_FROM_INS 2u    /* in their users' inputs, at the same place in each */
#define GS_FROM_REMOTE 3u /* in their users' inputs, from remote_off[] */
#define GS_FROM_SENT 4u   /* in our own slot, sent there by the others' copy engines; ours where `own` is */
typedef struct {
    uint32_t kind;      /* a constant to the compiler */
    uint64_t off, step; /* of pack 0 of rank p: off + p * step */
    const char *own;    /* of ours, if it is not there either; else NULL */
} gs_from_t;

/* Where the result goes. */
#define GS_TO_OUT 0u   /* to our user */
#define GS_TO_SLOTS 1u /* to the slots of ranks that get it, and to our user if we are one */
#define GS_TO_OUTS 2u  /* to the users of ranks that get it */
typedef struct {
    uint32_t kind;       /* a constant to the compiler */
    uint64_t slot;       /* of pack 0 in a slot */
    uint64_t off, bytes; /* of pack 0 in a user's output, and how many bytes may be written from there */
} gs_to_t;

/* Pack 0 of rank p's input. */
GS_FN const char *gs_source(const gpusym_work_t *w, const gs_from_t *f, uint32_t p)
{
    if (GS_FROM_INS == f->kind) {
        return gs_peer_in(w, p) + f->off;
    }
    if (GS_FROM_REMOTE == f->kind) {
        return gs_peer_in(w, p) + w->remote_off[p] + f->off;
    }
    if (p == w->rank && NULL != f->own) {
        return f->own;
    }
    if (GS_FROM_SENT == f->kind) {
        return (const char *) w->peer[w->rank] + f->off + (p - (p > w->rank)) * f->step;
    }
    return (const char *) w->peer[GS_FROM_SLOTS == f->kind ? p : w->rank] + f->off + p * f->step;
}

/* Stores pack i of the result. even: all users' outputs can take whole packs here (GS_TO_OUTS). */
GS_FN void gs_store(const gpusym_work_t *w, const gs_to_t *o, uint32_t align, bool even, uint64_t i, gs_pack_t v)
{
    if (GS_TO_OUT != o->kind) {
        for (uint32_t q = GS_TO_SLOTS == o->kind; q < w->nranks; q++) {
            const uint32_t p = gs_nth(w, q);
            if (!gs_is_dst(w, p)) {
                continue;
            }
            if (GS_TO_SLOTS == o->kind) {
                gs_st16((char *) w->peer[p] + o->slot + 16 * i, v);
            } else if (even) {
                gs_st16(gs_peer_out(w, p) + o->off + 16 * i, v);
            } else {
                char *to = gs_peer_out(w, p) + o->off;
                gs_st_unaligned(to, gs_align(to), o->bytes, i, v);
            }
        }
    }
    if (GS_TO_OUT == o->kind || (GS_TO_SLOTS == o->kind && gs_is_dst(w, w->rank))) {
        gs_st_user((char *) w->out + o->off, align, o->bytes, i, v);
    }
}

/* Whether all users' buffers that are read or written here are aligned. */
GS_FN bool gs_all_aligned(const gpusym_work_t *w, const gs_from_t *f, const gs_to_t *o)
{
    uintptr_t low = 0;
    for (uint32_t p = 0; p < w->nranks; p++) {
        if (f->kind >= GS_FROM_INS && gs_is_src(w, p)) {
            low |= (uintptr_t) gs_source(w, f, p);
        }
        if (GS_TO_OUTS == o->kind && gs_is_dst(w, p)) {
            low |= (uintptr_t) gs_peer_out(w, p) + o->off;
        }
    }
    if (GS_TO_OUT == o->kind) {
        low |= (uintptr_t) w->out + o->off;
    }
    return 0 == (low & 15);
}

/* Packs [first, n), one by one, of any alignment and end. */
GS_FN void gs_reduce_unaligned(gs_ctx_t c, gs_kernel_t kernel, const gs_from_t *f, const gs_to_t *o, uint32_t first,
                               uint32_t n)
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t align = gs_align((const char *) w->out + o->off);
    GS_NO_UNROLL
    for (uint32_t i = first + c.thread; i < n; i += c.nthreads) {
        gs_acc_t acc = {{0, 0, 0, 0}};
        GS_NO_UNROLL
        for (uint32_t p = w->src_first; p < w->src_end; p++) {
            const char *src = gs_source(w, f, p);
            const gs_pack_t v = gs_ld_unaligned(src, gs_align(src), o->bytes, i);
            if (p == w->src_first) {
                acc = gs_acc_start(gs_acc_type(kernel), v);
            } else {
                gs_acc_op(kernel, &acc, v);
            }
        }
        gs_store(w, o, align, false, i, gs_acc_end(gs_acc_type(kernel), &acc));
    }
}

/*
 * Whole rounds of gs_reduce() from users or slots to users' outputs, of few ranks: where the addresses of all stay in
 * registers, and a thread has all its packs, nothing is looked up or tested for each pack. That leaves less than
 * half of the instructions, which is what few blocks wait for.  Returns the pack to go on with.
 */
GS_FN uint32_t gs_reduce_few(gs_ctx_t c, gs_kernel_t kernel, const gs_from_t *f, const gs_to_t *o, uint32_t n)
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t rounds = (GS_PACKS - 1) * c.nthreads, whole = n > rounds ? n - rounds : 0;
    const char *src[GS_RANKS];
    char *dst[GS_RANKS];
    uint32_t i = c.thread;
    GS_UNROLL
    for (uint32_t g = 0; g < GS_RANKS; g++) {
        const uint32_t p = w->src_first + g, q = g < w->nranks ? gs_nth(w, g) : 0;
        src[g] = p < w->src_end ? gs_source(w, f, p) : NULL;
        dst[g] = g < w->nranks && gs_is_dst(w, q) ? gs_peer_out(w, q) + o->off : NULL;
    }
    for (; i < whole; i += c.nthreads * GS_PACKS) {
        gs_pack_t v[GS_RANKS][GS_PACKS] = {{{{0, 0}}}};
        GS_UNROLL
        for (uint32_t g = 0; g < GS_RANKS; g++) {
            GS_UNROLL
            for (uint32_t u = 0; u < GS_PACKS; u++) {
                if (NULL != src[g]) {
                    v[g][u] = gs_ld16(src[g] + 16ull * (i + u * c.nthreads));
                }
            }
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            gs_acc_t acc = gs_acc_start(gs_acc_type(kernel), v[0][u]);
            GS_UNROLL
            for (uint32_t g = 1; g < GS_RANKS; g++) {
                if (NULL != src[g]) {
                    gs_acc_op(kernel, &acc, v[g][u]);
                }
            }
            v[0][u] = gs_acc_end(gs_acc_type(kernel), &acc);
        }
        GS_UNROLL
        for (uint32_t g = 0; g < GS_RANKS; g++) {
            GS_UNROLL
            for (uint32_t u = 0; u < GS_PACKS; u++) {
                if (NULL != dst[g]) {
                    gs_st16(dst[g] + 16ull * (i + u * c.nthreads), v[0][u]);
                }
            }
        }
    }
    return i;
}

/*
 * Reduces n packs of the sources, in rank order, and stores them.  A pack is loaded from every source before any of it
 * is stored, by one thread: input and output may be the same memory, on any rank.  n is at most GPUSYM_CHUNK_MAX.
 */
GS_FN void gs_reduce(gs_ctx_t c, gs_kernel_t kernel, const gs_from_t *f, const gs_to_t *o, uint32_t n)
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t align = gs_align((const char *) w->out + o->off);
    uint32_t even = n; /* what is in slots is whole packs */
    if (f->kind >= GS_FROM_INS || GS_TO_OUTS == o->kind) {
        even = !gs_all_aligned(w, f, o) ? 0 : o->bytes / 16 < n ? (uint32_t) (o->bytes / 16) : n;
        gs_reduce_unaligned(c, kernel, f, o, even, n);
    }
    uint32_t i = c.thread;
    if (GS_TO_OUTS == o->kind && GS_ANY != kernel.op && w->nranks <= GS_RANKS && even > (GS_PACKS - 1) * c.nthreads) {
        i = gs_reduce_few(c, kernel, f, o, even);
    }
    for (; i < even; i += c.nthreads * GS_PACKS) {
        gs_acc_t acc[GS_PACKS] = {{{0, 0, 0, 0}}};
        GS_NO_UNROLL
        for (uint32_t p0 = w->src_first; p0 < w->src_end; p0 += GS_RANKS) {
            gs_pack_t v[GS_RANKS][GS_PACKS] = {{{{0, 0}}}};
            GS_UNROLL
            for (uint32_t g = 0; g < GS_RANKS; g++) {
                if (p0 + g < w->src_end) {
                    const char *src = gs_source(w, f, p0 + g);
                    GS_UNROLL
                    for (uint32_t u = 0; u < GS_PACKS; u++) {
                        if (i + u * c.nthreads < even) {
                            v[g][u] = gs_ld16(src + 16ull * (i + u * c.nthreads));
                        }
                    }
                }
            }
            GS_UNROLL
            for (uint32_t g = 0; g < GS_RANKS; g++) {
                GS_UNROLL
                for (uint32_t u = 0; u < GS_PACKS; u++) {
                    if (0 == g && p0 == w->src_first) {
                        acc[u] = gs_acc_start(gs_acc_type(kernel), v[g][u]);
                    } else if (p0 + g < w->src_end && gs_acc_wanted(kernel, i + u * c.nthreads < even)) {
                        gs_acc_op(kernel, &acc[u], v[g][u]);
                    }
                }
            }
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * c.nthreads < even) {
                gs_store(w, o, align, true, i + u * c.nthreads, gs_acc_end(gs_acc_type(kernel), &acc[u]));
            }
        }
    }
}

#endif
