/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What multiprocessors do in a call whose data copy engines carry: reduce what has arrived, and end the call.  Copy
 * engines send 387 GB/s over an NVLink port of an H200 where stores reach 350 and loads 315, and take no
 * multiprocessor. mca/common/gpusym/exec/copies.c has the other half: what the streams do, in which order, and why they
 * never stand still.
 *
 * Flags in a slot, by row; column p.  All are epochs: of chunk k of a call, its first epoch + k.
 *   row 0  p != rank: chunk k of rank p has arrived in our staging area (bcast: in our output); written by p's stream
 *          p == rank: we have reduced chunk k; written by our kernel for our own streams
 *   row 1  chunk k of the result has been delivered to our output by its owner p; written by p's stream
 *   row 2  rank p has reduced our chunk k: its buffer there is free; written by p's kernel for our stream
 *   GPUSYM_SENT_OFF, word p  our stream to p has sent chunk k; the last one: all; written by that stream
 *
 * Chunks arrive in GPUSYM_COPIES_BUFFERS buffers by turns, ranks - 1 in each.  The kernels of a call are launched one
 * after the other: one of CE_R for each chunk, then one of CE.  A status that is not OK stays in the ticket: those that
 * follow do nothing, but the last.
 *
 * Source: the copy-engine collectives of NCCL 2.28 move data so for all-gather and all-to-all; reduction between two
 * phases of copies is ours.
 * Order of summation: ranks rising.
 */
#ifndef GPUSYM_KERNELS_SYMM_CE_H
#define GPUSYM_KERNELS_SYMM_CE_H

#include "kernels/prim/move.h"

/* After a failure: how long the last kernel lets its GPU's streams run out. */
#define GS_CE_DRAIN_NS 1000000000ull

#define GS_CE_DELIVERED 1u
#define GS_CE_CREDIT 2u

GS_FN uint32_t *gs_ce_sent(const gpusym_work_t *w, uint32_t p)
{
    return (uint32_t *) ((char *) w->peer[w->rank] + GPUSYM_SENT_OFF) + p;
}

/* The worst status of the launches before. */
GS_FN uint32_t gs_ce_kept(const gpusym_work_t *w)
{
    return gs_flag_get((const uint32_t *) w->peer[w->rank] + 1);
}

/* Waits for all that w->copies names: written as above. The status of the block. */
GS_FN uint32_t gs_ce_await(gs_ctx_t c, const gpusym_work_t *w)
{
    uint32_t status = gs_ce_kept(w);
    for (uint32_t p = c.thread; p < w->nranks && GPUSYM_STATUS_OK == status; p += c.nthreads) {
        const uint32_t bit = 1u << p;
        if (0 != (w->copies.arrived & bit)) {
            status = gs_await(w, gs_flag(w, w->rank, 0, p), w->epoch, p);
        }
        if (0 != (w->copies.delivered & bit) && GPUSYM_STATUS_OK == status) {
            status = gs_await(w, gs_flag(w, w->rank, GS_CE_DELIVERED, p), w->epoch, p);
        }
        if (0 != (w->copies.sent & bit) && GPUSYM_STATUS_OK == status) {
            status = gs_await(w, gs_ce_sent(w, p), w->copies.sent_epoch, p);
        }
    }
    return gs_block_worst(c, status);
}

/* One chunk: ours is at w->in, the others' have arrived; the result goes to w->out. */
GS_FN void gs_ce_reduce(gs_ctx_t c, gs_kernel_t kernel)
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t status = gs_ce_await(c, w);
    if (GPUSYM_STATUS_OK == status) {
        const gs_ctx_t all = {c.block * c.nthreads + c.thread, c.nblocks * c.nthreads, c.block, c.nblocks};
        const gs_from_t from = {GS_FROM_SENT, w->copies.off, w->copies.step, (const char *) w->in};
        const gs_to_t to = {GS_TO_OUT, 0, 0, w->bytes};
        gs_reduce(all, kernel, &from, &to, (uint32_t) ((w->bytes + 15) / 16));
    }
    gs_block_sync(c);
    if (0 == c.thread && gs_last_keeps(c, w, status) && GPUSYM_STATUS_OK == gs_ce_kept(w)) {
        gs_flag_post(gs_flag(w, w->rank, 0, w->rank), w->epoch);
        GS_NO_UNROLL
        for (uint32_t q = 1; q < w->nranks; q++) {
            gs_flag_free(gs_flag(w, gs_nth(w, q), GS_CE_CREDIT, w->rank), w->epoch);
        }
    }
}

/*
 * After a failure our streams still wait, some for what will never come: they are let through, to send what no rank
 * will read, until each has written that it is done. Over and over, since a peer that knows of nothing yet may write an
 * older epoch over ours.
 */
GS_FN void gs_ce_drain(const gpusym_work_t *w)
{
    const uint64_t since = gs_now_ns();
    uint32_t left;
    do {
        left = 0;
        for (uint32_t p = 0; p < w->nranks; p++) {
            gs_flag_post(gs_flag(w, w->rank, 0, p), w->copies.last);
            gs_flag_post(gs_flag(w, w->rank, GS_CE_CREDIT, p), w->copies.last);
            left += 0 != (w->copies.sent & 1u << p) && gs_flag_get(gs_ce_sent(w, p)) < w->copies.last;
        }
        gs_pause();
    } while (0 != left && gs_now_ns() - since < GS_CE_DRAIN_NS);
}

/* The end of a call, one block: everything has come to us, and gone from us. */
GS_FN void gs_ce_end(gs_ctx_t c, const gpusym_work_t *w)
{
    const uint32_t status = gs_ce_await(c, w);
    if (0 == c.thread) {
        if (GPUSYM_STATUS_OK != status) {
            gs_ce_drain(w);
            gs_flag_post((uint32_t *) w->peer[w->rank] + 1, 0);
        }
        gs_done_as(w, w->done_seq, status);
    }
}

#endif
