/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The two-shot kernels: every rank owns a slice of the message, reduces it in rank order and sends the result to all
 * destinations.  All-reduce, and, with one destination, reduce; with one source, broadcast.
 *
 * Out of the symmetric heap, for user buffers that peers cannot map:
 *   RSxLD_AGxST   the input goes to one's own heap, owners load their slice from all heaps;
 *   RSxST_AGxST   every slice is stored straight into its owner's heap.
 * The result is stored to the heaps of the destinations, which copy it out.
 * Straight between user buffers that all ranks have mapped (zero copy):
 *   RSxLD_AGxST_Z owners load their slice from all inputs and store the result to all outputs;
 *   RSxST_AGxST_Z every slice is stored into its owner's heap, the result to all outputs.
 * Source: NCCL's symmetric kernels (names and scheme of RSxLD_AGxST); the push form follows the
 * same scheme with stores in place of loads, which carry more over NVLink.
 *
 * Bytes sent by a rank: 2 * (n - 1) / n * bytes (all-reduce). Where one rank has all the input, or gets all the result,
 * the others own the slices, so that its port carries the message once.
 * Order of summation: ranks rising, from src_first.
 *
 * The host has given every block a span of the message, cut into chunks (gpusym_kernel_plan), a chunk into one slice a
 * rank.  A block works in phases, one barrier each; phase t scatters chunk t + 1, reduces chunk t and copies out chunk
 * t - 1, so that the wire carries both directions of work all the time.  The staging area has four buffers of
 * stage_bytes for each block, which alternate with t:
 *   in[t & 1]   written in phase t - 1, read in phase t, written again in phase t + 1
 *   out[t & 1]  written (by its owner ranks) in phase t, read in phase t + 1, written again in t + 2
 * with a barrier between any two phases, so no one overwrites what another still reads.
 * RSxST_AGxST_Z has `in` only, and its last phase has a barrier too, as has the only phase of RSxLD_AGxST_Z: after it
 * all stores to one's output are there, and nobody reads one's input any more.  In place is safe, for any rank: a chunk
 * of an input was scattered before the barrier that lets anyone store that chunk of the result (ST), or each pack is
 * stored by the thread that has loaded it from everywhere (LD).
 */
#ifndef GPUSYM_KERNELS_SYMM_RS_AG_H
#define GPUSYM_KERNELS_SYMM_RS_AG_H

#include "kernels/prim/stream.h"
#include "kernels/symm/symm_mc.h"

/* One chunk as a block sees it. */
typedef struct {
    uint64_t base;    /* first pack in the message */
    uint32_t len;     /* packs */
    uint32_t slice;   /* packs of an owner's slice: [i * slice, min(len, (i + 1) * slice)) for the i-th owner */
    uint64_t in, out; /* offsets of its buffers in the slot */
} gs_chunk_t;

/* Chunk t of this block; false, and a chunk of no length, if it has not so many. */
GS_FN bool gs_rs_ag_chunk(gs_ctx_t c, const gpusym_work_t *w, uint32_t t, gs_chunk_t *k)
{
    const uint64_t packs = (w->bytes + 15) / 16, from = c.block * w->span;
    const uint64_t to = from + w->span < packs ? from + w->span : packs;
    k->base = from + (uint64_t) t * w->chunk;
    k->len = k->base >= to ? 0 : (uint32_t) (to - k->base < w->chunk ? to - k->base : w->chunk);
    k->slice = w->slice;
    if (k->len != w->chunk) {
        const uint32_t even = gs_quotient(k->len + w->owners - 1, w->owners);
        k->slice = GPUSYM_SLICE(even, w->owners, w->chunk);
    }
    k->in = w->stage_off + ((uint64_t) (t & 1) * w->nblocks + c.block) * w->stage_bytes;
    k->out = k->in + 2ull * w->nblocks * w->stage_bytes;
    return 0 != k->len;
}

/* The slice of rank r: its first pack in the chunk, and its length in packs. */
GS_FN uint32_t gs_slice(const gpusym_work_t *w, const gs_chunk_t *k, uint32_t r, uint32_t *first)
{
    if (r == w->skip) {
        *first = 0;
        return 0;
    }
    const uint64_t a = (uint64_t) (r < w->skip ? r : r - 1) * k->slice, b = a + k->slice;
    *first = (uint32_t) (a < k->len ? a : k->len);
    return (uint32_t) (b < k->len ? b : k->len) - *first;
}

/* Bytes of n packs of the message from pack `from`: fewer at its end. */
GS_FN uint64_t gs_bytes(const gpusym_work_t *w, uint64_t from, uint64_t n)
{
    return w->bytes - 16 * from < 16 * n ? w->bytes - 16 * from : 16 * n;
}

/* Whether packs [from, from + n) of the user's input are whole and aligned. */
GS_FN bool gs_is_aligned(const gpusym_work_t *w, uint64_t from, uint64_t n)
{
    return 16 == gs_align(w->in) && 16 * (from + n) <= w->bytes;
}

/* Scatter.  push: each slice to its owner's `in`, as source w->rank; else all slices to one's own `in`.
 * One's own slice is read from the user's buffer later if that is aligned, else goes to `in` as well; all: so it does
 * always. */
GS_FN void gs_rs_scatter(gs_ctx_t c, const gpusym_work_t *w, bool push, bool all, const gs_chunk_t *k)
{
    const uint32_t slices = gs_is_src(w, w->rank) ? w->nranks : 0;
    GS_NO_UNROLL
    for (uint32_t q = 0; q < slices; q++) {
        const uint32_t p = gs_nth(w, q);
        uint32_t first;
        const uint32_t n = gs_slice(w, k, p, &first);
        if (0 == n || (p == w->rank && !all && gs_is_aligned(w, k->base + first, n))) {
            continue;
        }
        gs_copy(c,
                (char *) w->peer[push ? p : w->rank] + k->in +
                    16ull * (push ? (w->rank - w->src_first) * k->slice : first),
                (const char *) w->in + 16 * (k->base + first), gs_bytes(w, k->base + first, n));
    }
}

/* Reduces our slice and stores it to all destinations: to their slots, or (zero copy) to their outputs. */
GS_FN void gs_rs_reduce(gs_ctx_t c, gs_kernel_t kernel, bool push, bool zero, const gs_chunk_t *k)
{
    const gpusym_work_t *const w = kernel.w;
    uint32_t first;
    const uint32_t n = gs_slice(w, k, w->rank, &first);
    const uint64_t at = k->base + first;
    const gs_from_t from = {
        push   ? GS_FROM_OWN
        : zero ? GS_FROM_INS
               : GS_FROM_SLOTS,
        push   ? k->in - 16ull * w->src_first * k->slice
        : zero ? 16 * at
               : k->in + 16ull * first,
        push ? 16ull * k->slice : 0,
        gs_is_aligned(w, at, n) ? (const char *) w->in + 16 * at : NULL,
    };
    const gs_to_t to = {zero ? GS_TO_OUTS : GS_TO_SLOTS, k->out + 16ull * first, 16 * at, w->bytes - 16 * at};
    if (0 != n) {
        gs_reduce(c, kernel, &from, &to, n);
    }
}

/* The same by the switch. */
GS_FN void gs_rs_reduce_mc(gs_ctx_t c, const gpusym_work_t *w, const gs_chunk_t *k)
{
    uint32_t first;
    const uint32_t n = gs_slice(w, k, w->rank, &first);
    const uint64_t at = 16 * (k->base + first);
    gs_mc_reduce(c, w, k->in + 16ull * first, k->out + 16ull * first, at, w->bytes - at, n);
}

/* The only source, if it gets the result at all, has it already: in its input. */
GS_FN void gs_ag_own(gs_ctx_t c, const gpusym_work_t *w, const gs_chunk_t *k)
{
    if (gs_one_src(w) && w->rank == w->src_first && w->rank >= w->dst_first && w->rank < w->dst_end &&
        w->in != w->out) {
        gs_copy(c, (char *) w->out + 16 * k->base, (const char *) w->in + 16 * k->base, gs_bytes(w, k->base, k->len));
    }
}

/* Copies the other ranks' slices from our `out` to the user's output. */
GS_FN void gs_ag_copy_out(gs_ctx_t c, const gpusym_work_t *w, const gs_chunk_t *k)
{
    const char *src = (const char *) w->peer[w->rank] + k->out;
    uint32_t first;
    const uint32_t own = gs_slice(w, k, w->rank, &first), after = first + own, parts = gs_is_dst(w, w->rank) ? 2 : 0;

    GS_NO_UNROLL
    for (uint32_t part = 0; part < parts; part++) {
        const uint32_t from = part ? after : 0, to = part ? k->len : first;
        if (from < to) {
            gs_copy(c, (char *) w->out + 16 * (k->base + from), src + 16ull * from,
                    gs_bytes(w, k->base + from, to - from));
        }
    }
    gs_ag_own(c, w, k);
}

/* The pipeline, in one of the forms of move.h; a barrier ends each phase. GS_ST_Z: a message that the staging area
 * holds is one chunk: two barriers. (To await a chunk's flags only when the next one has been scattered was no faster
 * on 4 x H200, nor was it to pull a part meanwhile.) Phase t - 1 of the comment at the top: t counts from 0 so that
 * chunk t is the one to scatter. */
GS_FN void gs_rs_ag(gs_ctx_t c, gs_kernel_t kernel, uint32_t form)
{
    const gpusym_work_t *const w = kernel.w;
    const bool push = GS_ST == form || GS_ST_Z == form, zero = GS_ST_Z == form;
    uint32_t status = GS_MC == form ? gs_mc_ready(w) : (uint32_t) GPUSYM_STATUS_OK;

    for (uint32_t t = 0; GPUSYM_STATUS_OK == status; t++) {
        gs_chunk_t k;
        /* Whether something was handed to a peer: a barrier must follow. On a stream, too, once a block has read where
         * the peers' buffers are: there may be none in its part. */
        bool crossed = GS_ON_STREAM(w) && zero && 0 == t;
        if (gs_rs_ag_chunk(c, w, t, &k)) {
            gs_rs_scatter(c, w, push, GS_MC == form, &k);
            crossed = true;
        }
        if (!zero && t > 1 && gs_rs_ag_chunk(c, w, t - 2, &k)) { /* between the two that fill the wire: 2 % at 64 MiB */
            gs_ag_copy_out(c, w, &k);
        }
        if (t > 0 && gs_rs_ag_chunk(c, w, t - 1, &k)) {
            if (GS_MC == form) {
                gs_rs_reduce_mc(c, w, &k);
            } else {
                gs_rs_reduce(c, kernel, push, zero, &k);
            }
            if (zero) {
                gs_ag_own(c, w, &k);
            }
            crossed = true;
        }
        if (!crossed) {
            break;
        }
        status = GS_MC == form ? gs_mc_barrier(c, w, kernel.epoch + t) : gs_barrier(c, w, kernel.epoch + t);
    }
    gs_finish(c, w, status);
}

/* Zero copy, pull. All ranks are in the call, so their inputs are there: the only barrier is at the end. */
GS_FN void gs_rs_ag_ld_z(gs_ctx_t c, gs_kernel_t kernel)
{
    const gpusym_work_t *const w = kernel.w;
    gs_chunk_t k;
    for (uint32_t t = 0; gs_rs_ag_chunk(c, w, t, &k); t++) {
        gs_rs_reduce(c, kernel, false, true, &k);
        gs_ag_own(c, w, &k);
    }
    gs_finish(c, w, gs_barrier(c, w, kernel.epoch));
}

#endif
