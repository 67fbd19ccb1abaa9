/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What multicast kernels are made of: stores and reductions by the switch, through the multicast address of the slot
 * (w->mc).
 *   RSxLDMC_AGxSTMC  two-shot all-reduce (symm_rs_ag.h): the input goes to one's own heap, the owner of a slice has the
 *                    switch load and reduce it over all heaps, and store the result to all;
 *   XSTMC            all-gather (symm_xchg.h): multicast stores to all heaps, copied out there;
 *   XLDMC_R          reduce-scatter (symm_xchg.h): the segments go to one's own heap, the switch reduces one's own over
 *                    all heaps;
 *   AGxLLMC_R        symm_ll.h;
 *   XLLMC            symm_xchg.h.
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

#include "kernels/prim/move.h"

/* gs_barrier with one multicast store in place of nranks - 1, by the same flags: so a timeout can name the missing
 * rank, which a count of arrivals could not, and a failed launch leaves nothing behind that has to be counted anew. */
GS_FN uint32_t gs_mc_barrier(gs_ctx_t c, const gpusym_work_t *w, uint32_t epoch)
{
    gs_block_sync(c);
    if (0 == c.thread) {
        gs_mc_fence();
        gs_mc_red_max((char *) w->mc + gs_flag_at(c.block, w->rank), epoch);
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
    char *out = (char *) w->out + off;
    const uint32_t align = gs_align(out);
    for (uint32_t i = c.thread; i < n; i += c.nthreads * GS_PACKS) {
        const uint32_t left = (n - i + c.nthreads - 1) / c.nthreads, m = left < GS_PACKS ? left : GS_PACKS;
        gs_pack_t v[GS_PACKS];
        gs_mc_ld_reduce(w->op, w->type, (char *) w->mc + from + 16ull * i, 16 * c.nthreads, m, v);
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (u < m) {
                const uint64_t at = i + (uint64_t) u * c.nthreads;
                if (0 != to) {
                    gs_mc_st16((char *) w->mc + to + 16 * at, v[u]);
                }
                gs_st_user(out, align, bytes, at, v[u]);
            }
        }
    }
}

#endif
