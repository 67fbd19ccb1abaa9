/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * AllReduce_AGxLL_R, one-shot: every rank pushes its input to all in LL lines (NCCL's protocol of
 * data and flag in one 16-byte store: no barrier, no fence), and reduces all inputs in rank order.
 * Source: NCCL's symmetric kernels, as described in "Demystifying NCCL", arXiv 2507.04786, for LL.
 *
 * Bytes sent by a rank: 2 * (n - 1) * bytes.  For small messages.
 *
 * Slot: the LL area holds two parities of n sources of ll_bytes.  Area [parity][s] of rank r is
 * written by rank s only.  An epoch's lines are overwritten two epochs later; a rank gets there
 * only with the lines of the epoch between, which their sender sent after it had read the first.
 * That holds line by line within a launch (line i is always handled by the same thread, and every epoch of a
 * launch has the same number of lines: the last is filled up with empty ones), and from one launch to
 * the next because a rank launches only after its last launch has ended.
 */
#ifndef GPUSYM_KERNELS_SYMM_LL_H
#define GPUSYM_KERNELS_SYMM_LL_H

#include "kernels/reduce.h"

/* Ranks whose lines are awaited together: their loads are in flight at once. */
#define GS_LL_GROUP 4

/* The LL line pair of pack i from source src, in rank dst's slot. */
GS_FN char *gs_ll_line(const gpusym_work_t *w, uint32_t dst, uint32_t src, uint32_t epoch, uint64_t i)
{
    return (char *)w->peer[dst] + w->ll_off + (uint64_t)((epoch & 1) * w->nranks + src) * w->ll_bytes + 32 * i;
}

/* Reduces pack i of this epoch over all ranks.  own: our input; two: whether its second line was sent. */
GS_FN gs_pack_t gs_ll_reduce(const gpusym_work_t *w, uint32_t op, uint32_t type, uint32_t epoch, uint64_t i, bool two,
                             gs_pack_t own, uint32_t *status)
{
    gs_acc_t acc = {{0, 0, 0, 0}};
    for (uint32_t p0 = 0; p0 < w->nranks; p0 += GS_LL_GROUP) {
        gs_pack_t v[GS_LL_GROUP];
        gs_wait_t wait = GS_WAIT_INIT;
        uint32_t missing;
        do { /* rank p writes its lines here; all lines of the group are asked for again until all are there */
            missing = w->nranks;
            GS_UNROLL
            for (uint32_t g = 0; g < GS_LL_GROUP; g++) {
                const uint32_t p = p0 + g;
                v[g] = own;
                if (p < w->nranks && p != w->rank) {
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
            if (p0 + g < w->nranks) {
                if (0 == p0 + g) {
                    acc = gs_acc_start(gs_acc_type(w, op, type), v[g]);
                } else {
                    gs_acc_op(w, op, type, &acc, v[g]);
                }
            }
        }
    }
    return gs_acc_end(gs_acc_type(w, op, type), &acc);
}

GS_FN void gs_agxll_r(gs_ctx_t c, const gpusym_work_t *w, uint32_t op, uint32_t type)
{
    const uint32_t in_align = gs_align(w->in), out_align = gs_align(w->out);
    const uint64_t packs = (w->bytes + 15) / 16, n = w->chunk;
    const uint32_t first = c.block * c.nthreads + c.thread, stride = c.nblocks * c.nthreads;
    uint32_t epoch = w->epoch, status = GPUSYM_STATUS_OK;

    for (uint64_t base = 0; base < packs && GPUSYM_STATUS_OK == status; base += n, epoch++) {
        for (uint64_t i = first; i < n; i += stride) {
            const bool some = base + i < packs; /* else an empty line */
            gs_pack_t v = {{0, 0}};
            if (some) {
                v = gs_ld_user(w->in, in_align, w->bytes, base + i);
            }
            const bool two = some && w->bytes - 16 * (base + i) > 8;
            for (uint32_t q = 1; q < w->nranks; q++) { /* each starts at another rank: no port is stormed */
                const uint32_t dst = w->rank + q < w->nranks ? w->rank + q : w->rank + q - w->nranks;
                char *line = gs_ll_line(w, dst, w->rank, epoch, i);
                gs_ll_st(line, v.w[0], epoch);
                if (two) {
                    gs_ll_st(line + 16, v.w[1], epoch);
                }
            }
        }
        for (uint64_t i = first; i < n; i += stride) {
            const bool some = base + i < packs;
            gs_pack_t own = {{0, 0}};
            if (some) {
                own = gs_ld_user(w->in, in_align, w->bytes, base + i);
            }
            const bool two = some && w->bytes - 16 * (base + i) > 8;
            const gs_pack_t v = gs_ll_reduce(w, op, type, epoch, i, two, own, &status);
            if (some && GPUSYM_STATUS_OK == status) {
                gs_st_user(w->out, out_align, w->bytes, base + i, v);
            }
        }
    }
    gs_finish(c, w, status);
}

#endif
