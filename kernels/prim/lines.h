/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * LL and LL128 lines: data that carry their own flags, so that there is no fence and no barrier.
 *   LL     16 bytes, 8 of them data; either half may arrive first
 *   LL128  128 bytes, 120 of them data: only where a link keeps stores of 128 bytes whole
 * Source: "Demystifying NCCL", arXiv 2507.04786.
 */
#ifndef GPUSYM_KERNELS_LINES_H
#define GPUSYM_KERNELS_LINES_H

#include "kernels/prim/reduce.h"

GS_FN uint64_t gs_min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- LL ---- */

/* Lines that a thread awaits together: their loads are in flight at once. */
#define GS_LL_GROUP 4

/* Offset in a slot of the LL line pair of pack i from source src. */
GS_FN uint64_t gs_ll_at(const gpusym_work_t *w, uint32_t src, uint32_t epoch, uint64_t i)
{
    return w->ll_off + (uint64_t) ((epoch & 1) * w->nranks + src) * w->ll_bytes + 32 * i;
}

/* The same in rank dst's slot. */
GS_FN char *gs_ll_line(const gpusym_work_t *w, uint32_t dst, uint32_t src, uint32_t epoch, uint64_t i)
{
    return (char *) w->peer[dst] + gs_ll_at(w, src, epoch, i);
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

/* What stands in the lines of pack i of the first n ranks from p0 on, as far as they are below `end` and not this one;
 * two: whether second halves were sent. n is a constant, at most GS_LL_GROUP. */
GS_FN void gs_ll_group_peek(const gpusym_work_t *w, uint32_t n, uint32_t p0, uint32_t end, uint32_t epoch, uint64_t i,
                            bool two, gs_line_t raw[][2])
{
    GS_UNROLL
    for (uint32_t g = 0; g < n; g++) {
        const char *line = gs_ll_line(w, w->rank, p0 + g, epoch, i);
        const bool want = p0 + g < end && p0 + g != w->rank;
        raw[g][0] = gs_ll_peek(line, want);
        raw[g][1] = gs_ll_peek(line + 16, want && two);
    }
}

/* Takes their packs, and `own` for this rank's. Returns a rank whose line is not there yet; w->nranks: all are. */
GS_FN uint32_t gs_ll_group_take(const gpusym_work_t *w, uint32_t n, uint32_t p0, uint32_t end, uint32_t epoch, bool two,
                                gs_line_t raw[][2], gs_pack_t own, gs_pack_t *v)
{
    uint32_t missing = w->nranks;
    GS_UNROLL
    for (uint32_t g = 0; g < n; g++) {
        v[g] = own;
        if (p0 + g < end && p0 + g != w->rank) {
            const bool one = gs_ll_whole(&raw[g][0], epoch, &v[g].w[0]);
            const bool other = gs_ll_whole(&raw[g][1], epoch, &v[g].w[1]);
            missing = one && (other || !two) ? missing : p0 + g;
        }
    }
    return missing;
}

/* Reduces them into acc; first: the rank that begins. */
GS_FN void gs_ll_group_reduce(gs_kernel_t kernel, uint32_t n, uint32_t p0, uint32_t first, uint32_t end,
                              const gs_pack_t *v, gs_acc_t *acc)
{
    GS_UNROLL
    for (uint32_t g = 0; g < n; g++) {
        if (p0 + g < end) {
            if (first == p0 + g) {
                *acc = gs_acc_start(gs_acc_type(kernel), v[g]);
            } else {
                gs_acc_op(kernel, acc, v[g]);
            }
        }
    }
}

/* Reduces pack i of this epoch over the sources. own: our input; two: whether the second halves were sent. */
GS_FN gs_pack_t gs_ll_reduce(gs_kernel_t kernel, uint32_t src_first, uint32_t src_end, uint32_t epoch, uint64_t i,
                             bool two, gs_pack_t own, uint32_t *status)
{
    const gpusym_work_t *const w = kernel.w;
    gs_acc_t acc = {{0, 0, 0, 0}};
    for (uint32_t p0 = src_first; p0 < src_end; p0 += GS_LL_GROUP) {
        gs_pack_t v[GS_LL_GROUP];
        gs_wait_t wait = GS_WAIT_INIT;
        uint32_t missing;
        do { /* rank p writes its lines here; all lines of the group are loaded again until all are there */
            gs_line_t raw[GS_LL_GROUP][2];
            gs_ll_group_peek(w, GS_LL_GROUP, p0, src_end, epoch, i, two, raw);
            missing = gs_ll_group_take(w, GS_LL_GROUP, p0, src_end, epoch, two, raw, own, v);
            if (missing < w->nranks && GPUSYM_STATUS_OK == *status) {
                *status = gs_wait_line(w, kernel.early, &wait, missing);
            }
        } while (missing < w->nranks && GPUSYM_STATUS_OK == *status);
        gs_ll_group_reduce(kernel, GS_LL_GROUP, p0, src_first, src_end, v, &acc);
    }
    return gs_acc_end(gs_acc_type(kernel), &acc);
}

/* ---- LL128 ---- */

/* A group: four lines, which a warp stores and loads at once, with 30 packs. Lane l of line l / 8 has 16 bytes; those
 * of the last lane of a line are 8 bytes of data and the flag.  So 28 packs lie in the other lanes, and two are halved:
 * pack 28 over lanes 7 and 15, pack 29 over lanes 23 and 31. */
/* Which pack of a group a lane has; GPUSYM_LL128_PACKS: none. */
GS_FN uint32_t gs_ll128_pack(uint32_t lane)
{
    return 7 != lane % 8 ? lane / 8 * 7 + lane % 8 : 7 == lane ? 28 : 23 == lane ? 29 : GPUSYM_LL128_PACKS;
}

/* Takes a lane's packs of m groups, when they are there; rank p writes them. Called by all lanes of a warp. The loads
 * go out together. */
GS_FN void gs_ll128_take(const gpusym_work_t *w, const char *group, uint32_t m, uint32_t lane, uint32_t flag,
                         uint32_t p, gs_pack_t *v, uint32_t *status)
{
    gs_wait_t wait = GS_WAIT_INIT;
    uint32_t mine = *status; /* GPUSYM_STATUS_OK, in all lanes */
    bool there;
    do {
        gs_raw_t raw[GS_GROUPS];
        GS_UNROLL
        for (uint32_t u = 0; u < GS_GROUPS; u++) {
            raw[u] = gs_ll128_ld(group + (u < m ? u : 0) * GPUSYM_LL128_BYTES, lane);
        }
        there = true;
        GS_UNROLL
        for (uint32_t u = 0; u < GS_GROUPS; u++) {
            there = gs_ll128_whole(&raw[u], lane, flag) && there;
            v[u] = raw[u].v;
        }
        if (!there) {
            mine = gs_wait(w, &wait, p);
        }
    } while (!there && GPUSYM_STATUS_OK == gs_warp_worst(mine));
    *status = gs_warp_worst(mine);
}

#endif
