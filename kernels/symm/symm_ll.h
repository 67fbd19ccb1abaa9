/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels that send in LL lines: data and flag in one 16-byte store, so that there is no barrier and no fence.  For
 * small messages.
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
 * an epoch has was there in those before; and from call to call, since a rank's call begins after its last one has
 * ended.
 */
#ifndef GPUSYM_KERNELS_SYMM_LL_H
#define GPUSYM_KERNELS_SYMM_LL_H

#include "kernels/prim/lines.h"
#include "kernels/prim/move.h"
#include "kernels/prim/stream.h"
#include "kernels/symm/resident.h"

/* One all-reduce, with this status so far; returns that at the end. chunk: packs of an epoch. */
GS_FN uint32_t gs_agxll_r_call(gs_ctx_t c, gs_kernel_t kernel, bool mc, const gs_message_t *m, uint32_t chunk,
                               uint32_t epoch, uint32_t status)
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t in_align = gs_align(m->in), out_align = gs_align(m->out);
    const uint64_t packs = (m->bytes + 15) / 16;
    const uint32_t first = c.block * c.nthreads + c.thread, stride = c.nblocks * c.nthreads;

    for (uint64_t base = 0; base < packs && GPUSYM_STATUS_OK == status; base += chunk, epoch++) {
        const uint64_t n = packs - base < chunk ? packs - base : chunk;
        for (uint64_t i = first; i < n; i += stride) {
            const gs_pack_t v = kernel.loaded && 0 == base && first == i
                                    ? kernel.ahead
                                    : gs_ld_user_word(m->in, in_align, m->bytes, base + i);
            const bool two = gs_ll_two(m->bytes, base + i);
            if (mc) {
                gs_ll_send((char *) w->mc + gs_ll_at(w, w->rank, epoch, i), v, two, epoch, true);
                continue;
            }
            for (uint32_t q = 1; q < w->nranks; q++) {
                gs_ll_send(gs_ll_line(w, gs_nth(w, q), w->rank, epoch, i), v, two, epoch, false);
            }
        }
        for (uint64_t i = first; i < n; i += stride) {
            const gs_pack_t own = kernel.loaded && 0 == base && first == i
                                      ? kernel.ahead
                                      : gs_ld_user_word(m->in, in_align, m->bytes, base + i);
            const bool two = gs_ll_two(m->bytes, base + i);
            const gs_pack_t v = gs_ll_reduce(kernel, 0, w->nranks, epoch, i, two, own, &status);
            if (GPUSYM_STATUS_OK == status) {
                gs_st_user_word(m->out, out_align, m->bytes, base + i, v);
            }
        }
    }
    return status;
}

/* A call of one epoch, of which no thread has more than a pack: as few instructions as can be. */
GS_FN uint32_t gs_agxll_r_once(gs_ctx_t c, gs_kernel_t kernel, const gs_message_t *m)
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t i = c.block * c.nthreads + c.thread;
    uint32_t status = GPUSYM_STATUS_OK;
    if (GPUSYM_PACK * i < m->bytes) {
        const bool two = gs_ll_two(m->bytes, i);
        const gs_pack_t own = kernel.loaded ? kernel.ahead : gs_ld_user_word(m->in, gs_align(m->in), m->bytes, i);
        GS_NO_UNROLL
        for (uint32_t q = 1; q < w->nranks; q++) {
            gs_ll_send(gs_ll_line(w, gs_nth(w, q), w->rank, kernel.epoch, i), own, two, kernel.epoch, false);
        }
        const gs_pack_t v = gs_ll_reduce(kernel, 0, w->nranks, kernel.epoch, i, two, own, &status);
        if (GPUSYM_STATUS_OK == status) {
            gs_st_user_word(m->out, gs_align(m->out), m->bytes, i, v);
        }
    }
    return status;
}

/* Packs that a thread has under way at once in a commanded call, at most; see gs_agxll_r_command(). */
#define GS_COMMAND_PACKS 4u
/* Packs i, i + step, ..., k of them, as far as they are below `packs`, reduced over all ranks; own: our input, which
 * becomes the result. Waits for all their lines at once. k is a constant. */
GS_FN uint32_t gs_command_reduce(gs_kernel_t kernel, const gs_command_t *r, uint32_t k, uint32_t packs, uint32_t i,
                                 uint32_t step, gs_pack_t own[GS_COMMAND_PACKS])
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t group = k < GS_COMMAND_PACKS ? GS_LL_GROUP : GS_LL_GROUP / 2; /* lines that fit the registers */
    gs_acc_t acc[GS_COMMAND_PACKS] = {{{0, 0, 0, 0}}};
    gs_wait_t wait = GS_WAIT_INIT;
    for (uint32_t p0 = 0; p0 < w->nranks; p0 += group) {
        gs_pack_t v[GS_COMMAND_PACKS][GS_LL_GROUP];
        bool missing;
        do { /* rank p writes its lines here */
            gs_line_t raw[GS_COMMAND_PACKS][GS_LL_GROUP][2];
            missing = false;
            GS_UNROLL
            for (uint32_t u = 0; u < k; u++) {
                const uint32_t pack = i + u * step, end = pack < packs ? w->nranks : 0;
                gs_ll_group_peek(w, group, p0, end, r->epoch, pack, gs_ll_two(r->m.bytes, pack), raw[u]);
            }
            GS_UNROLL
            for (uint32_t u = 0; u < k; u++) {
                const uint32_t pack = i + u * step, end = pack < packs ? w->nranks : 0;
                const bool two = gs_ll_two(r->m.bytes, pack);
                missing =
                    gs_ll_group_take(w, group, p0, end, r->epoch, two, raw[u], own[u], v[u]) < w->nranks || missing;
            }
            if (missing && gs_wait_is_over(w, &wait, w->linger_ns)) {
                return GPUSYM_STATUS_RETIRED;
            }
        } while (missing);
        GS_UNROLL
        for (uint32_t u = 0; u < k; u++) {
            gs_ll_group_reduce(kernel, group, p0, 0, w->nranks, v[u], &acc[u]);
        }
    }
    GS_UNROLL
    for (uint32_t u = 0; u < k; u++) {
        own[u] = gs_acc_end(gs_acc_type(kernel), &acc[u]);
    }
    return GPUSYM_STATUS_OK;
}

/* Sends pack i of our input to all. */
GS_FN void gs_command_send(const gpusym_work_t *w, const gs_command_t *r, uint32_t i, gs_pack_t v)
{
    const bool two = gs_ll_two(r->m.bytes, i);
    for (uint32_t q = 1; q < w->nranks; q++) {
        gs_ll_send(gs_ll_line(w, gs_nth(w, q), w->rank, r->epoch, i), v, two, r->epoch, false);
    }
}

/* Packs i, i + step, ... of a call of which nothing can be taken back any more: all have been sent. */
GS_FN uint32_t gs_command_rest(gs_kernel_t kernel, const gs_command_t *r, uint32_t packs, uint32_t i, uint32_t step)
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t in_align = gs_align(r->m.in), out_align = gs_align(r->m.out);
    uint32_t status = GPUSYM_STATUS_OK;
    GS_NO_UNROLL
    for (; i < packs && GPUSYM_STATUS_OK == status; i += step) {
        const gs_pack_t own = gs_ld_user_strong(r->m.in, in_align, r->m.bytes, i);
        const gs_pack_t v = gs_ll_reduce(kernel, 0, w->nranks, r->epoch, i, gs_ll_two(r->m.bytes, i), own, &status);
        if (GPUSYM_STATUS_OK == status) {
            gs_st_user(r->m.out, out_align, r->m.bytes, i, v);
        }
    }
    return status;
}

/*
 * A commanded call, by the threads of part, each of which has k packs under way at once.  The command may have come
 * before the peers are in the call (resident.h).  So these threads wait, at most linger_ns and until the abort word is
 * set, for lines of all ranks for each of them, and store nothing before.  If the lines do not come, nothing has been
 * done, and GPUSYM_STATUS_RETIRED is returned.  Once they have come all peers are in the call, and their other lines
 * come by themselves. Ends with a barrier of part, behind all that its threads store; all return the same.
 */
GS_FN uint32_t gs_agxll_r_command(gs_ctx_t c, gs_ctx_t part, gs_kernel_t kernel, const gs_command_t *r, uint32_t k)
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t in_align = gs_align(r->m.in), out_align = gs_align(r->m.out);
    const uint32_t packs = (uint32_t) ((r->m.bytes + 15) / 16), first = part.thread, step = part.nthreads;
    gs_pack_t v[GS_COMMAND_PACKS] = {{{0, 0}}};

    GS_UNROLL
    for (uint32_t u = 0; u < k; u++) {
        if (first + u * step < packs) {
            v[u] = gs_ld_user_strong(r->m.in, in_align, r->m.bytes, first + u * step);
        }
    }
    GS_UNROLL
    for (uint32_t u = 0; u < k; u++) {
        if (first + u * step < packs) {
            gs_command_send(w, r, first + u * step, v[u]);
        }
    }
    GS_NO_UNROLL
    for (uint32_t i = first + k * step; k > 1 && i < packs; i += step) {
        gs_command_send(w, r, i, gs_ld_user_strong(r->m.in, in_align, r->m.bytes, i));
    }
    if (!gs_part_all(part, GPUSYM_STATUS_OK == gs_command_reduce(kernel, r, k, packs, first, step, v))) {
        return GPUSYM_STATUS_RETIRED;
    }
    GS_UNROLL
    for (uint32_t u = 0; u < k; u++) {
        if (first + u * step < packs) {
            gs_st_user_word(r->m.out, out_align, r->m.bytes, first + u * step, v[u]);
        }
    }
    if (1 == k || packs <= k * step) {
        gs_part_sync(part);
        return GPUSYM_STATUS_OK;
    }
    return gs_part_worst(c, part, gs_command_rest(kernel, r, packs, first + k * step, step));
}

/* A launch that stays: its own call by the threads of part, if that is to be done as a commanded one, else it has been
 * done, with this status of them all; then those that it is commanded. */
GS_FN void gs_agxll_r_resident(gs_ctx_t c, gs_ctx_t part, gs_kernel_t kernel, uint32_t status)
{
    const gpusym_work_t *const w = kernel.w;
    gs_command_t r = {w->done_seq, w->epoch, {(const char *) w->in, (char *) w->out, w->bytes}, 0, 0};
    bool commanded = gs_is_commanded(w);
    do {
        /* The shortest messages want as few instructions between two polls of their lines as can be. */
        const uint64_t round = GPUSYM_PACK * (uint64_t) part.nthreads;
        /* Four packs of more than two ranks do not fit the registers; and of sums alone they are worth 75 KB of code,
         * which is in every GPU's memory. */
        const bool common = GPUSYM_OP_SUM == kernel.op && (GPUSYM_T_F32 == kernel.type || GPUSYM_T_F64 == kernel.type);
        const bool two = r.m.bytes <= 2 * round || w->nranks > 2 || !common;
        if (commanded) {
            status = r.m.bytes <= round ? gs_agxll_r_command(c, part, kernel, &r, 1)
                     : two              ? gs_agxll_r_command(c, part, kernel, &r, 2)
                                        : gs_agxll_r_command(c, part, kernel, &r, GS_COMMAND_PACKS);
        }
        if (!gs_command_end(c, w, part, &r, status)) {
            return;
        }
        commanded = true;
    } while (gs_command_next(c, w, &r, 1, &part));
}

GS_FN void gs_agxll_r(gs_ctx_t c, gs_kernel_t kernel, bool mc)
{
    const gpusym_work_t *const w = kernel.w;
    const gs_message_t m = {(const char *) w->in, (char *) w->out, w->bytes};
    uint32_t status = mc ? gs_mc_ready(w) : (uint32_t) GPUSYM_STATUS_OK;
    gs_ctx_t part = c;
    if (!mc && gs_lingers(w) && !gs_command_first(c, &part)) {
        return;
    }
    const uint32_t most = part.nblocks * part.nthreads;
    const uint64_t once = (uint64_t) GPUSYM_PACK * (w->chunk < most ? w->chunk : most);
    if (!gs_is_commanded(w)) {
        status = !mc && w->bytes <= once ? gs_agxll_r_once(part, kernel, &m)
                                         : gs_agxll_r_call(part, kernel, mc, &m, w->chunk, kernel.epoch, status);
    }
    if (!mc && gs_lingers(w)) {
        gs_agxll_r_resident(c, part, kernel, gs_part_worst(c, part, status));
    } else {
        gs_finish_lines(c, kernel, status);
    }
}

#endif
