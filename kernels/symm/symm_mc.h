/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels whose stores and reductions the switch does, through the multicast address of the slot (w->mc):
 *   RSxLDMC_AGxSTMC  two-shot all-reduce: the input goes to one's own heap, the owner of a slice has the switch load and
 *                    reduce it over all heaps, and store the result to all;
 *   XSTMC            all-gather: multicast stores to all heaps, copied out there;
 *   XLDMC_R          reduce-scatter: the segments go to one's own heap, the switch reduces one's own over all heaps.
 * AGxLLMC_R is in symm_ll.h, XLLMC in symm_xchg.h.
 * Source: NCCL's symmetric kernels of these names.
 *
 * Bytes sent by a rank: bytes (all-reduce, all-gather).
 * Order of summation: the switch's, which is not specified: the bits may differ from those of other kernels, and of
 * another launch.  fp16 and bf16 are accumulated in fp32.
 *
 * What the switch reads and writes is in the heap, in whole packs, whatever the users' alignment: heads and tails that
 * are no 16 bytes are handled where data enter and leave the heap.  Staging, chunks, phases: as symm_rs_ag.h
 * and symm_xchg.h say.  Stores by the ranks' own addresses are read by the switch through the multicast address,
 * and the other way about: the barriers here make the two agree (gs_mc_fence).
 */
#ifndef GPUSYM_KERNELS_SYMM_MC_H
#define GPUSYM_KERNELS_SYMM_MC_H

#include "kernels/symm/symm_rs_ag.h"
#include "kernels/symm/symm_xchg.h"

/* gs_barrier with one multicast store in place of nranks - 1, by the same flags: so a timeout can name who is missing,
 * which a count of arrivals could not, and a failed launch leaves nothing behind that has to be counted anew. */
GS_FN uint32_t gs_mc_barrier(gs_ctx_t c, const gpusym_work_t *w, uint32_t epoch)
{
    gs_block_sync(c);
    if (0 == c.thread) {
        gs_mc_fence();
        gs_mc_red_max((char *)w->mc + gs_flag_at(c.block, w->rank), epoch);
    }
    const uint32_t status = gs_await_flags(c, w, epoch);
    gs_mc_fence();
    return gs_block_worst(c, status);
}

/* Has the switch reduce n packs at offset `from` of the slots; they go to the user's output from byte `off`, of which
 * `bytes` may be written, and, if to is not 0, to offset `to` of all slots. */
GS_FN void gs_mc_reduce(gs_ctx_t c, const gpusym_work_t *w, uint64_t from, uint64_t to, uint64_t off, uint64_t bytes,
                        uint32_t n)
{
    char *out = (char *)w->out + off;
    const uint32_t align = gs_align(out);
    for (uint32_t i = c.thread; i < n; i += c.nthreads * GS_PACKS) {
        const uint32_t left = (n - i + c.nthreads - 1) / c.nthreads, m = left < GS_PACKS ? left : GS_PACKS;
        gs_pack_t v[GS_PACKS];
        gs_mc_ld_reduce(w->op, w->type, (char *)w->mc + from + 16ull * i, 16 * c.nthreads, m, v);
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (u < m) {
                const uint64_t at = i + (uint64_t)u * c.nthreads;
                if (0 != to) {
                    gs_mc_st16((char *)w->mc + to + 16 * at, v[u]);
                }
                gs_st_user(out, align, bytes, at, v[u]);
            }
        }
    }
}

GS_FN void gs_rs_ag_mc(gs_ctx_t c, const gpusym_work_t *w)
{
    uint32_t status = gs_mc_ready(w);

    for (uint32_t t = 0; GPUSYM_STATUS_OK == status; t++) {
        gs_chunk_t k;
        bool crossed = false;
        if (gs_rs_ag_chunk(c, w, t, &k)) {
            gs_rs_scatter(c, w, false, true, &k);
            crossed = true;
        }
        if (t > 1 && gs_rs_ag_chunk(c, w, t - 2, &k)) {
            gs_ag_copy_out(c, w, &k);
        }
        if (t > 0 && gs_rs_ag_chunk(c, w, t - 1, &k)) {
            uint32_t first;
            const uint32_t n = gs_slice(w, &k, w->rank, &first);
            const uint64_t at = 16 * (k.base + first);
            gs_mc_reduce(c, w, k.in + 16ull * first, k.out + 16ull * first, at, w->bytes - at, n);
            crossed = true;
        }
        if (!crossed) {
            break;
        }
        status = gs_mc_barrier(c, w, w->epoch + t);
    }
    gs_finish(c, w, status);
}

/* Stores chunk t of our segment, the same for all, to all heaps. */
GS_FN void gs_xstmc_put(gs_ctx_t c, const gpusym_work_t *w, uint32_t t)
{
    uint64_t from;
    const uint64_t bytes = gs_x_part(c, w, w->send[w->rank].bytes, w->chunk, t, &from);
    const char *in = (const char *)w->in + w->send[w->rank].off + from;
    const uint32_t align = gs_align(in), n = (uint32_t)gs_lines(bytes);
    char *to = (char *)w->mc + gs_x_at(c, w, t, w->rank);

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

/* reduce: XLDMC_R; else XSTMC. */
GS_FN void gs_xchg_mc(gs_ctx_t c, const gpusym_work_t *w, bool reduce)
{
    const uint32_t chunks = (uint32_t)((w->span + w->chunk - 1) / w->chunk);
    uint32_t status = gs_mc_ready(w);

    for (uint32_t t = 0; t <= chunks && GPUSYM_STATUS_OK == status; t++) {
        if (t < chunks && reduce) {
            gs_x_put(c, w, false, true, true, t);
        } else if (t < chunks) {
            gs_xstmc_put(c, w, t);
        }
        if (t > 0 && reduce) {
            uint64_t from;
            const uint64_t bytes = gs_x_part(c, w, w->recv[w->rank].bytes, w->chunk, t - 1, &from);
            gs_mc_reduce(c, w, gs_x_at(c, w, t - 1, w->rank), 0, w->recv[w->rank].off + from, bytes,
                         (uint32_t)gs_lines(bytes));
        } else if (t > 0) {
            gs_x_copy_out(c, w, t - 1);
        }
        if (t < chunks) {
            status = gs_mc_barrier(c, w, w->epoch + t);
        }
    }
    gs_finish(c, w, status);
}

#endif
