/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels that send in LL lines: data and flag in one 16-byte store, so that there is no barrier and no fence.  For small
 * messages.
 *   AGxLL_R    one-shot all-reduce: every rank pushes its input to all, and reduces all inputs in rank order;
 *   AGxLLMC_R  the same with one multicast store a line in place of n - 1.
 * Source: NCCL's symmetric kernels, as described in "Demystifying NCCL", arXiv 2507.04786, for LL.
 * The exchange kernels XLL and XLL_R (symm_xchg.h) use the same lines.
 *
 * Bytes sent by a rank: 2 * (n - 1) * bytes (multicast: 2 * bytes).
 * Order of summation: ranks rising, from 0.
 *
 * Slot: the LL area holds two parities of n sources of ll_bytes.  Area [parity][s] of rank r is written by rank s only,
 * line i of it in every epoch of a launch in which the message has that line.  An epoch's lines are overwritten two
 * epochs later; a rank gets there only with the lines of the epoch between, which their sender sent after it had
 * read the first.  That holds line by line, since line i is always handled by the same thread, and a line that
 * an epoch has was there in those before.
 */
#ifndef GPUSYM_KERNELS_SYMM_LL_H
#define GPUSYM_KERNELS_SYMM_LL_H

#include "kernels/move.h"

/* Lines that a thread awaits together: their loads are in flight at once. */
#define GS_LL_GROUP 4

/* Offset in a slot of the LL line pair of pack i from source src. */
GS_FN uint64_t gs_ll_at(const gpusym_work_t *w, uint32_t src, uint32_t epoch, uint64_t i)
{
    return w->ll_off + (uint64_t)((epoch & 1) * w->nranks + src) * w->ll_bytes + 32 * i;
}

/* The same in rank dst's slot. */
GS_FN char *gs_ll_line(const gpusym_work_t *w, uint32_t dst, uint32_t src, uint32_t epoch, uint64_t i)
{
    return (char *)w->peer[dst] + gs_ll_at(w, src, epoch, i);
}

/* Sends a pack; two: its second half too, which a last pack of 8 bytes or fewer does without. mc: line is a multicast
 * address. */
GS_FN void gs_ll_send(char *line, gs_pack_t v, bool two, uint32_t epoch, bool mc)
{
    GS_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        if (0 == half || two) {
            if (mc) {
                gs_mc_ll_st(line + 16 * half, v.w[half], epoch);
            } else {
                gs_ll_st(line + 16 * half, v.w[half], epoch);
            }
        }
    }
}

/* Whether pack i of so many bytes has a second half. */
GS_FN bool gs_ll_two(uint64_t bytes, uint64_t i)
{
    return bytes - 16 * i > 8;
}

/* Reduces line i of this epoch over the sources. own: our input; two: whether the second halves were sent. */
GS_FN gs_pack_t gs_ll_reduce(const gpusym_work_t *w, uint32_t op, uint32_t type, uint32_t src_first, uint32_t src_end,
                             uint32_t epoch, uint64_t i, bool two, gs_pack_t own, uint32_t *status)
{
    gs_acc_t acc = {{0, 0, 0, 0}};
    for (uint32_t p0 = src_first; p0 < src_end; p0 += GS_LL_GROUP) {
        gs_pack_t v[GS_LL_GROUP];
        gs_wait_t wait = GS_WAIT_INIT;
        uint32_t missing;
        do { /* rank p writes its lines here; all lines of the group are asked for again until all are there */
            missing = w->nranks;
            GS_UNROLL
            for (uint32_t g = 0; g < GS_LL_GROUP; g++) {
                const uint32_t p = p0 + g;
                v[g] = own;
                if (p < src_end && p != w->rank) {
                    const char *line = gs_ll_line(w, w->rank, p, epoch, i);
                    const bool ok = gs_ll_ld(line, epoch, &v[g].w[0]);
                    if (!(two ? (gs_ll_ld(line + 16, epoch, &v[g].w[1]) && ok) : ok)) {
                        missing = p;
                    }
                }
            }
            if (missing < w->nranks && GPUSYM_STATUS_OK == *status) {
                *status = gs_wait(w, &wait, missing);
            }
        } while (missing < w->nranks && GPUSYM_STATUS_OK == *status);
        GS_UNROLL
        for (uint32_t g = 0; g < GS_LL_GROUP; g++) {
            if (p0 + g < src_end) {
                if (src_first == p0 + g) {
                    acc = gs_acc_start(gs_acc_type(w, op, type), v[g]);
                } else {
                    gs_acc_op(w, op, type, &acc, v[g]);
                }
            }
        }
    }
    return gs_acc_end(gs_acc_type(w, op, type), &acc);
}

/* One all-reduce, with this status so far; returns that at the end. chunk: packs of an epoch. */
GS_FN uint32_t gs_agxll_r_call(gs_ctx_t c, const gpusym_work_t *w, uint32_t op, uint32_t type, bool mc,
                               const gs_message_t *m, uint32_t chunk, uint32_t epoch, uint32_t status)
{
    const uint32_t in_align = gs_align(m->in), out_align = gs_align(m->out);
    const uint64_t packs = (m->bytes + 15) / 16;
    const uint32_t first = c.block * c.nthreads + c.thread, stride = c.nblocks * c.nthreads;

    for (uint64_t base = 0; base < packs && GPUSYM_STATUS_OK == status; base += chunk, epoch++) {
        const uint64_t n = packs - base < chunk ? packs - base : chunk;
        for (uint64_t i = first; i < n; i += stride) {
            const gs_pack_t v = gs_ld_user(m->in, in_align, m->bytes, base + i);
            const bool two = gs_ll_two(m->bytes, base + i);
            if (mc) {
                gs_ll_send((char *)w->mc + gs_ll_at(w, w->rank, epoch, i), v, two, epoch, true);
                continue;
            }
            for (uint32_t q = 1; q < w->nranks; q++) {
                gs_ll_send(gs_ll_line(w, gs_nth(w, q), w->rank, epoch, i), v, two, epoch, false);
            }
        }
        for (uint64_t i = first; i < n; i += stride) {
            const gs_pack_t own = gs_ld_user(m->in, in_align, m->bytes, base + i);
            const bool two = gs_ll_two(m->bytes, base + i);
            const gs_pack_t v = gs_ll_reduce(w, op, type, 0, w->nranks, epoch, i, two, own, &status);
            if (GPUSYM_STATUS_OK == status) {
                gs_st_user(m->out, out_align, m->bytes, base + i, v);
            }
        }
    }
    return status;
}

/*
 * The one block that stays after its call: it waits for the host to ring for the next one of the same kind, which then costs
 * no launch.  After linger_ns without, or when it is told to, it leaves, and says so with its last call's number: the host,
 * which finds that there in place of the next one's, knows that the next was not done, and launches it.  It never looks at
 * the bell again once it has decided to leave; so no call is lost, or done twice.
 * Ranks need not agree: to a peer it makes no difference whether a rank's lines come from a kernel that stayed.
 * Each call takes one epoch.
 */
GS_FN void gs_stay(gs_ctx_t c, const gpusym_work_t *w, uint32_t op, uint32_t type, uint32_t status)
{
    uint32_t seq = w->done_seq, epoch = w->epoch;
    for (;;) {
        gs_message_t m;
        status = gs_block_worst(c, status);
        if (0 == c.thread) {
            gs_done_as(w, seq, GPUSYM_STATUS_OK == status ? status : status | GPUSYM_STATUS_LEFT);
        }
        if (GPUSYM_STATUS_OK != status) {
            return;
        }
        if (!gs_bell(c, w, seq, &m)) { /* the host rings */
            if (0 == c.thread) {
                gs_done_as(w, seq, GPUSYM_STATUS_LEFT);
            }
            return;
        }
        seq++;
        epoch++;
        status = gs_agxll_r_call(c, w, op, type, false, &m, GPUSYM_CHUNK_MAX, epoch, status);
    }
}

GS_FN void gs_agxll_r(gs_ctx_t c, const gpusym_work_t *w, uint32_t op, uint32_t type, bool mc)
{
    const gs_message_t m = {(const char *)w->in, (char *)w->out, w->bytes};
    uint32_t status = mc ? gs_mc_ready(w) : (uint32_t)GPUSYM_STATUS_OK;
    status = gs_agxll_r_call(c, w, op, type, mc, &m, w->chunk, w->epoch, status);
    if (!mc && 0 != w->linger_ns) {
        gs_stay(c, w, op, type, status);
    } else {
        gs_finish(c, w, status);
    }
}

#endif
