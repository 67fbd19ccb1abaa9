/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Two-shot all-reduce out of the symmetric heap, for user buffers that peers cannot map:
 *   AllReduce_RSxLD_AGxST  the input goes to one's own heap, owners load their slice from all heaps;
 *   AllReduce_RSxST_AGxST  every slice is stored straight into its owner's heap.
 * Then both reduce in rank order and store the result to all ranks' heaps, whence it is copied out.
 * Source: NCCL's symmetric kernels (names and scheme of RSxLD_AGxST); the push form follows the
 * same scheme with stores in place of loads, which carry more over NVLink.
 *
 * Bytes sent by a rank: 2 * (n - 1) / n * bytes.
 *
 * The host has given every block a span of the message, cut into chunks (gpusym_kernel_plan).  A block works in phases,
 * one barrier each; phase t scatters chunk t + 1, reduces chunk t and copies out chunk t - 1, so
 * that the wire carries both directions of work all the time.  Buffers alternate with t:
 *   in[t & 1]   written in phase t - 1, read in phase t, written again in phase t + 1
 *   out[t & 1]  written (by its owner ranks) in phase t, read in phase t + 1, written again in t + 2
 * with a barrier between any two phases, so no one overwrites what another still reads.
 * The last phase of a call only reads its own `out`; a peer writes there again after the first barrier of the next
 * call, in which this rank takes part. All `in` lie below all `out`, whatever the number of blocks: what a peer
 * scatters before that barrier cannot fall on an `out`.
 */
#ifndef GPUSYM_KERNELS_SYMM_RS_AG_H
#define GPUSYM_KERNELS_SYMM_RS_AG_H

#include "kernels/reduce.h"

/* One chunk as a block sees it. */
typedef struct {
    uint64_t base;  /* first pack in the message */
    uint32_t len;   /* packs */
    uint32_t slice; /* packs of a rank's slice: [r * slice, min(len, (r + 1) * slice)) */
    uint64_t in, out; /* offsets of its buffers in the slot */
} gs_chunk_t;

/* Chunk t of this block; false, and a chunk of no length, if it has not so many. */
GS_FN bool gs_rs_ag_chunk(gs_ctx_t c, const gpusym_work_t *w, uint32_t t, gs_chunk_t *k)
{
    const uint64_t packs = (w->bytes + 15) / 16, from = c.block * w->span;
    const uint64_t to = from + w->span < packs ? from + w->span : packs;
    k->base = from + (uint64_t)t * w->chunk;
    k->len = k->base >= to ? 0 : (uint32_t)(to - k->base < w->chunk ? to - k->base : w->chunk);
    k->slice = (k->len + w->nranks - 1) / w->nranks;
    k->in = w->stage_off + ((uint64_t)c.block * 2 + (t & 1)) * w->stage_bytes;
    k->out = k->in + w->stage_room / 32 * 16; /* a border that no number of blocks moves */
    return 0 != k->len;
}

/* The slice of rank r: its first pack in the chunk, and its length in packs. */
GS_FN uint32_t gs_slice(const gs_chunk_t *k, uint32_t r, uint32_t *first)
{
    const uint32_t a = r * k->slice, b = a + k->slice;
    *first = a < k->len ? a : k->len;
    return (b < k->len ? b : k->len) - *first;
}

/* Copies n packs, all whole and aligned. */
GS_FN void gs_copy_packs(gs_ctx_t c, char *dst, const char *src, uint32_t n)
{
    for (uint32_t i = c.thread; i < n; i += c.nthreads * GS_PACKS) {
        gs_pack_t v[GS_PACKS] = {{{0, 0}}};
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * c.nthreads < n) {
                v[u] = gs_ld16(src + 16 * (size_t)(i + u * c.nthreads));
            }
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * c.nthreads < n) {
                gs_st16(dst + 16 * (size_t)(i + u * c.nthreads), v[u]);
            }
        }
    }
}

/* Whether packs [from, from + n) of a user buffer are whole and aligned. */
GS_FN bool gs_even(const gpusym_work_t *w, uint32_t align, uint64_t from, uint32_t n)
{
    return 16 == align && 16 * (from + n) <= w->bytes;
}

/* Copies packs [from, from + n) of the user's input to dst. */
GS_FN void gs_rs_copy_in(gs_ctx_t c, const gpusym_work_t *w, uint32_t align, uint64_t from, uint32_t n, char *dst)
{
    if (gs_even(w, align, from, n)) {
        gs_copy_packs(c, dst, (const char *)w->in + 16 * from, n);
        return;
    }
    for (uint32_t i = c.thread; i < n; i += c.nthreads) {
        gs_st16(dst + 16 * (size_t)i, gs_ld_ragged(w->in, align, w->bytes, from + i));
    }
}

/* Copies packs from src to packs [from, from + n) of the user's output. */
GS_FN void gs_ag_copy_part(gs_ctx_t c, const gpusym_work_t *w, uint32_t align, uint64_t from, uint32_t n, const char *src)
{
    if (gs_even(w, align, from, n)) {
        gs_copy_packs(c, (char *)w->out + 16 * from, src, n);
        return;
    }
    for (uint32_t i = c.thread; i < n; i += c.nthreads) {
        gs_st_ragged(w->out, align, w->bytes, from + i, gs_ld16(src + 16 * (size_t)i));
    }
}

/* Scatter.  push: each slice to its owner's `in`, as source w->rank; else all slices to one's own `in`.
 * One's own slice is read from the user's buffer later if that is aligned, else goes to `in` as well. */
GS_FN void gs_rs_scatter(gs_ctx_t c, const gpusym_work_t *w, bool push, uint32_t align, const gs_chunk_t *k)
{
    GS_NO_UNROLL
    for (uint32_t q = 0; q < w->nranks; q++) {
        const uint32_t p = w->rank + q < w->nranks ? w->rank + q : w->rank + q - w->nranks;
        uint32_t first;
        const uint32_t n = gs_slice(k, p, &first);
        if (p == w->rank && gs_even(w, align, k->base + first, n)) {
            continue;
        }
        char *dst = (char *)w->peer[push ? p : w->rank] + k->in + 16ull * (push ? w->rank * k->slice : first);
        gs_rs_copy_in(c, w, align, k->base + first, n, dst);
    }
}

/* Where rank p's input for our slice (n packs from `first`) lies. */
GS_FN const char *gs_rs_source(const gpusym_work_t *w, bool push, uint32_t align, const gs_chunk_t *k, uint32_t first,
                               uint32_t n, uint32_t p)
{
    if (p == w->rank && gs_even(w, align, k->base + first, n)) {
        return (const char *)w->in + 16 * (k->base + first);
    }
    return push ? (const char *)w->peer[w->rank] + k->in + 16ull * p * k->slice
                : (const char *)w->peer[p] + k->in + 16ull * first;
}

/* Stores a reduced pack, number i of our slice, to every peer's `out` and to the user's output. */
GS_FN void gs_ag_store(const gpusym_work_t *w, const gs_chunk_t *k, uint32_t align, uint32_t at, gs_pack_t v)
{
    for (uint32_t q = 1; q < w->nranks; q++) {
        const uint32_t p = w->rank + q < w->nranks ? w->rank + q : w->rank + q - w->nranks;
        gs_st16((char *)w->peer[p] + k->out + 16ull * at, v);
    }
    gs_st_user(w->out, align, w->bytes, k->base + at, v);
}

/* Reduces our slice and gathers it to all. */
GS_FN void gs_rs_reduce(gs_ctx_t c, const gpusym_work_t *w, uint32_t op, uint32_t type, bool push, const gs_chunk_t *k)
{
    const uint32_t in_align = gs_align(w->in), out_align = gs_align(w->out);
    uint32_t first;
    const uint32_t n = gs_slice(k, w->rank, &first);

    for (uint32_t i = c.thread; i < n; i += c.nthreads * GS_PACKS) {
        gs_acc_t acc[GS_PACKS] = {{{0, 0, 0, 0}}};
        GS_NO_UNROLL
        for (uint32_t p0 = 0; p0 < w->nranks; p0 += GS_RANKS) {
            gs_pack_t v[GS_RANKS][GS_PACKS] = {{{{0, 0}}}};
            GS_UNROLL
            for (uint32_t g = 0; g < GS_RANKS; g++) {
                if (p0 + g < w->nranks) {
                    const char *src = gs_rs_source(w, push, in_align, k, first, n, p0 + g);
                    GS_UNROLL
                    for (uint32_t u = 0; u < GS_PACKS; u++) {
                        if (i + u * c.nthreads < n) {
                            v[g][u] = gs_ld16(src + 16 * (size_t)(i + u * c.nthreads));
                        }
                    }
                }
            }
            GS_UNROLL
            for (uint32_t g = 0; g < GS_RANKS; g++) {
                GS_UNROLL
                for (uint32_t u = 0; u < GS_PACKS; u++) {
                    if (0 == g && 0 == p0) {
                        acc[u] = gs_acc_start(gs_acc_type(w, op, type), v[g][u]);
                    } else if (p0 + g < w->nranks) {
                        gs_acc_op(w, op, type, &acc[u], v[g][u]);
                    }
                }
            }
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * c.nthreads < n) {
                gs_ag_store(w, k, out_align, first + i + u * c.nthreads, gs_acc_end(gs_acc_type(w, op, type), &acc[u]));
            }
        }
    }
}

/* Copies the other ranks' slices from our `out` to the user's output. */
GS_FN void gs_ag_copy_out(gs_ctx_t c, const gpusym_work_t *w, const gs_chunk_t *k)
{
    const uint32_t align = gs_align(w->out);
    const char *src = (const char *)w->peer[w->rank] + k->out;
    uint32_t first;
    const uint32_t own = gs_slice(k, w->rank, &first), after = first + own;

    GS_NO_UNROLL
    for (uint32_t part = 0; part < 2; part++) {
        const uint32_t from = part ? after : 0, to = part ? k->len : first;
        gs_ag_copy_part(c, w, align, k->base + from, to - from, src + 16 * (size_t)from);
    }
}

GS_FN void gs_rs_ag(gs_ctx_t c, const gpusym_work_t *w, uint32_t op, uint32_t type, bool push)
{
    const uint32_t align = gs_align(w->in);
    uint32_t status = GPUSYM_STATUS_OK;

    /* Phase t - 1 of the comment at the top: t counts from 0 so that chunk t is the one to scatter. */
    for (uint32_t t = 0; GPUSYM_STATUS_OK == status; t++) {
        gs_chunk_t k;
        bool crossed = false; /* something was handed to a peer: a barrier must follow */
        if (gs_rs_ag_chunk(c, w, t, &k)) {
            gs_rs_scatter(c, w, push, align, &k);
            crossed = true;
        }
        if (t > 1 && gs_rs_ag_chunk(c, w, t - 2, &k)) { /* between the two that fill the wire: 2 % at 64 MiB */
            gs_ag_copy_out(c, w, &k);
        }
        if (t > 0 && gs_rs_ag_chunk(c, w, t - 1, &k)) {
            gs_rs_reduce(c, w, op, type, push, &k);
            crossed = true;
        }
        if (!crossed) {
            break;
        }
        status = gs_barrier(c, w, w->epoch + t);
    }
    gs_finish(c, w, status);
}

#endif
