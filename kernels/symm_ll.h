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
 * an epoch has was there in those before; and from call to call, since a rank's call begins after its last one has ended.
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
            gs_line_t raw[GS_LL_GROUP][2];
            missing = w->nranks;
            GS_UNROLL
            for (uint32_t g = 0; g < GS_LL_GROUP; g++) {
                const char *line = gs_ll_line(w, w->rank, p0 + g, epoch, i);
                const bool want = p0 + g < src_end && p0 + g != w->rank;
                raw[g][0] = gs_ll_peek(line, want);
                raw[g][1] = gs_ll_peek(line + 16, want && two);
            }
            GS_UNROLL
            for (uint32_t g = 0; g < GS_LL_GROUP; g++) {
                v[g] = own;
                if (p0 + g < src_end && p0 + g != w->rank) {
                    const bool one = gs_ll_whole(&raw[g][0], epoch, &v[g].w[0]);
                    const bool other = gs_ll_whole(&raw[g][1], epoch, &v[g].w[1]);
                    missing = one && (other || !two) ? missing : p0 + g;
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

/* Packs that a thread has under way at once in a call that was rung for, at most; see gs_agxll_r_rung(). */
#define GS_RUNG_PACKS 4u
/* Turns between two looks at the clock and the abort word in such a call. */
#define GS_RUNG_LOOK 64u

/* One turn of waiting for a peer that may be late: as long as a kernel may stay. GPUSYM_STATUS_OK: go on waiting. */
GS_FN uint32_t gs_wait_rung(const gpusym_work_t *w, gs_wait_t *wait)
{
    gs_pause();
    if (0 != ++wait->turns % GS_RUNG_LOOK) {
        return GPUSYM_STATUS_OK;
    }
    const uint64_t now = gs_now_ns();
    wait->since_ns = 0 == wait->since_ns ? now : wait->since_ns;
    return (uint32_t)(now - wait->since_ns > w->linger_ns || gs_aborted(w) ? GPUSYM_STATUS_LEFT : GPUSYM_STATUS_OK);
}

/* Packs i, i + step, ..., k of them, as far as they are below `packs`, reduced over all ranks; own: our input, which becomes
 * the result. Waits for all their lines at once. k is a constant. */
GS_FN uint32_t gs_rung_reduce(const gpusym_work_t *w, uint32_t op, uint32_t type, const gs_rung_t *r, uint32_t k,
                              uint32_t packs, uint32_t i, uint32_t step, gs_pack_t own[GS_RUNG_PACKS])
{
    const uint32_t group = k < GS_RUNG_PACKS ? GS_LL_GROUP : GS_LL_GROUP / 2; /* lines that fit the registers */
    gs_acc_t acc[GS_RUNG_PACKS] = {{{0, 0, 0, 0}}};
    gs_wait_t wait = GS_WAIT_INIT;
    for (uint32_t p0 = 0; p0 < w->nranks; p0 += group) {
        gs_pack_t v[GS_RUNG_PACKS][GS_LL_GROUP];
        bool missing;
        do { /* rank p writes its lines here */
            gs_line_t raw[GS_RUNG_PACKS][GS_LL_GROUP][2];
            missing = false;
            GS_UNROLL
            for (uint32_t u = 0; u < k; u++) {
                GS_UNROLL
                for (uint32_t g = 0; g < group; g++) {
                    const char *line = gs_ll_line(w, w->rank, p0 + g, r->epoch, i + u * step);
                    const bool want = i + u * step < packs && p0 + g < w->nranks && p0 + g != w->rank;
                    raw[u][g][0] = gs_ll_peek(line, want);
                    raw[u][g][1] = gs_ll_peek(line + 16, want && gs_ll_two(r->m.bytes, i + u * step));
                }
            }
            GS_UNROLL
            for (uint32_t u = 0; u < k; u++) {
                GS_UNROLL
                for (uint32_t g = 0; g < group; g++) {
                    v[u][g] = own[u];
                    if (i + u * step < packs && p0 + g < w->nranks && p0 + g != w->rank) {
                        const bool one = gs_ll_whole(&raw[u][g][0], r->epoch, &v[u][g].w[0]);
                        const bool other = gs_ll_whole(&raw[u][g][1], r->epoch, &v[u][g].w[1]);
                        missing = !one || !(other || !gs_ll_two(r->m.bytes, i + u * step)) || missing;
                    }
                }
            }
            if (missing && GPUSYM_STATUS_OK != gs_wait_rung(w, &wait)) {
                return GPUSYM_STATUS_LEFT;
            }
        } while (missing);
        GS_UNROLL
        for (uint32_t u = 0; u < k; u++) {
            GS_UNROLL
            for (uint32_t g = 0; g < group; g++) {
                if (0 == p0 + g) {
                    acc[u] = gs_acc_start(gs_acc_type(w, op, type), v[u][g]);
                } else if (p0 + g < w->nranks) {
                    gs_acc_op(w, op, type, &acc[u], v[u][g]);
                }
            }
        }
    }
    GS_UNROLL
    for (uint32_t u = 0; u < k; u++) {
        own[u] = gs_acc_end(gs_acc_type(w, op, type), &acc[u]);
    }
    return GPUSYM_STATUS_OK;
}

/* Sends pack i of our input to all. */
GS_FN void gs_rung_send(const gpusym_work_t *w, const gs_rung_t *r, uint32_t i, gs_pack_t v)
{
    const bool two = gs_ll_two(r->m.bytes, i);
    for (uint32_t q = 1; q < w->nranks; q++) {
        gs_ll_send(gs_ll_line(w, gs_nth(w, q), w->rank, r->epoch, i), v, two, r->epoch, false);
    }
}

/* Packs i, i + step, ... of a call of which nothing can be taken back any more: all have been sent. */
GS_FN uint32_t gs_rung_rest(const gpusym_work_t *w, uint32_t op, uint32_t type, const gs_rung_t *r, uint32_t packs,
                            uint32_t i, uint32_t step)
{
    const uint32_t in_align = gs_align(r->m.in), out_align = gs_align(r->m.out);
    uint32_t status = GPUSYM_STATUS_OK;
    GS_NO_UNROLL
    for (; i < packs && GPUSYM_STATUS_OK == status; i += step) {
        const gs_pack_t own = gs_ld_user_fresh(r->m.in, in_align, r->m.bytes, i);
        const gs_pack_t v = gs_ll_reduce(w, op, type, 0, w->nranks, r->epoch, i, gs_ll_two(r->m.bytes, i), own, &status);
        if (GPUSYM_STATUS_OK == status) {
            gs_st_user(r->m.out, out_align, r->m.bytes, i, v);
        }
    }
    return status;
}

/*
 * A call that the host has rung for, by the threads of part, each of which has k packs under way at once.  The host may have
 * rung before it knows whether the peers are in the same call, or in any.  So these threads wait, for as long as a kernel
 * may stay and until they are told to leave, for lines of all ranks for each of them, and store nothing before.  Did they
 * not come, then nothing has been done, and GPUSYM_STATUS_LEFT is returned: the host launches the call later, or not at all.
 * What was sent does no harm: the epoch is this call's alone, and if it is made again it sends the same.  Once they have
 * come all peers are in the call, and their other lines come by themselves.
 * Ends with a barrier of part, behind all that its threads store; all return the same.
 */
GS_FN uint32_t gs_agxll_r_rung(gs_ctx_t part, const gpusym_work_t *w, uint32_t op, uint32_t type, const gs_rung_t *r,
                               uint32_t k)
{
    const uint32_t in_align = gs_align(r->m.in), out_align = gs_align(r->m.out);
    const uint32_t packs = (uint32_t)((r->m.bytes + 15) / 16), first = part.thread, step = part.nthreads;
    gs_pack_t v[GS_RUNG_PACKS] = {{{0, 0}}};

    GS_UNROLL
    for (uint32_t u = 0; u < k; u++) {
        if (first + u * step < packs) {
            v[u] = gs_ld_user_fresh(r->m.in, in_align, r->m.bytes, first + u * step);
        }
    }
    GS_UNROLL
    for (uint32_t u = 0; u < k; u++) {
        if (first + u * step < packs) {
            gs_rung_send(w, r, first + u * step, v[u]);
        }
    }
    GS_NO_UNROLL
    for (uint32_t i = first + k * step; k > 1 && i < packs; i += step) {
        gs_rung_send(w, r, i, gs_ld_user_fresh(r->m.in, in_align, r->m.bytes, i));
    }
    if (!gs_part_all(part, GPUSYM_STATUS_OK == gs_rung_reduce(w, op, type, r, k, packs, first, step, v))) {
        return GPUSYM_STATUS_LEFT;
    }
    GS_UNROLL
    for (uint32_t u = 0; u < k; u++) {
        if (first + u * step < packs) {
            gs_st_user_word(r->m.out, out_align, r->m.bytes, first + u * step, v[u]);
        }
    }
    if (1 == k || packs <= k * step) {
        (void)gs_part_all(part, true);
        return GPUSYM_STATUS_OK;
    }
    return gs_block_worst(part, gs_rung_rest(w, op, type, r, packs, first + k * step, step)); /* part is the block */
}

/*
 * A kernel that stays: the one block waits after its call for the host to ring for the next one of the same kind, which then
 * costs no launch.  After linger_ns without, or when it is told to, it leaves, and says so with its last call's number: the
 * host, which finds that there in place of the next one's, knows that the next was not done, and launches it.  Thread 0
 * alone looks at the bell and writes the completion word, so no call is lost, or done twice.
 * Ranks need not agree: to a peer it makes no difference whether a rank's lines come from a kernel that stayed.
 * Each call takes one epoch.
 *
 * Who waits for whom:
 *   thread 0             for the bell, which the host writes: gs_bell_heard()
 *   the rest of its warp for thread 0: gs_bell(). This warp does a message of a pack a thread, or less, alone
 *   the other warps      for the first one, which comes to their barrier with a longer message, or to leave: gs_bell()
 *   who does the call    for the peers' lines: gs_agxll_r_rung()
 *   the host             for the completion word, which thread 0 writes: gs_bell_done()
 *
 * One thread looks: all-reduce at 8 bytes, 4, 8 and 16 KiB on 2 x H200, in us, with
 *   one warp that looks at the bell           4.85   5.03   5.5    6.7
 *   two, which share the messages of a warp   4.9    5.27   6.03   7.7
 *   four                                      8.3    9.0    9.8    11.5
 * With one, but a barrier of the block for every message, a fence of system scope behind the bell, lines awaited one by
 * one, and calls rung for only once all had posted them: 5.38, 6.04, 6.35, 6.78.
 */

/* What the two words of a bell say to the kernel that has done call seq: 0 nothing yet, 1 the next call, in m, with so many
 * epochs skipped before it; -1 leave. */
GS_FN int gs_bell_says(const uint64_t bell[2], uint32_t seq, gs_message_t *m, uint32_t *skip)
{
    const uint32_t a = (uint32_t)bell[0] & GPUSYM_BELL_NUMBER, b = (uint32_t)bell[1] & GPUSYM_BELL_NUMBER;
    if (a != b || a == (seq & GPUSYM_BELL_NUMBER)) {
        return 0;
    }
    *skip = ((uint32_t)bell[0] >> 6 & 3u) | ((uint32_t)bell[1] >> 4 & 12u);
    m->in = (const char *)(uintptr_t)(bell[0] >> 16);
    m->out = (char *)(uintptr_t)(bell[1] >> 16);
    m->bytes = (bell[0] >> 8 & 0xffu) | (bell[1] & 0xff00u);
    return a == ((seq + 1) & GPUSYM_BELL_NUMBER) && 0 != m->bytes ? 1 : -1;
}

/* Thread 0: waits, at most linger_ns, for the host to ring. True: r, which was the last call, is now the next one; false: it
 * is the last one still, of 0 bytes, and the kernel leaves. */
GS_FN bool gs_bell_heard(const gpusym_work_t *w, gs_rung_t *r)
{
    const uint64_t since = gs_now_ns();
    for (uint32_t look = 1;; look++) {
        uint64_t bell[2];
        uint32_t skip;
        gs_bell_look(w, bell);
        const int says = gs_bell_says(bell, r->seq, &r->m, &skip);
        if (says > 0 && gs_bell_reach(&r->m)) {
            r->seq++;
            r->epoch += 1 + skip;
            return true;
        }
        if (0 != says || gs_now_ns() - since > w->linger_ns || (0 == look % GS_RUNG_LOOK && gs_aborted(w))) {
            r->m.bytes = 0;
            return false;
        }
        gs_pause();
    }
}

/* The next call, r, which was the last one, and the threads that do it, of which the caller is one (not all may be). False:
 * the kernel leaves, and the completion word says so. */
GS_FN bool gs_bell(gs_ctx_t c, const gpusym_work_t *w, gs_rung_t *r, gs_ctx_t *part)
{
    const gs_ctx_t warp = {c.thread, GS_WARP, 0, 1};
    if (c.thread < GS_WARP) {
        if (0 == c.thread) {
            if (!gs_bell_heard(w, r)) {
                gs_done_as(w, r->seq, GPUSYM_STATUS_LEFT);
            }
            gs_tell(r);
        }
        *part = warp;
        gs_told(warp, r); /* thread 0 has told */
        if (0 != r->m.bytes && r->m.bytes <= GPUSYM_PACK * GS_WARP) {
            return true;
        }
    }
    *part = c;
    gs_told(c, r); /* the first warp comes here, for a longer message or to leave; or goes to gs_bell_done() to leave */
    return 0 != r->m.bytes;
}

/* The threads of part have done call r, with this status, which all of them have, and have all stored their results; or
 * (GPUSYM_STATUS_LEFT alone) have done nothing of it.  Writes the completion word. False: the kernel leaves. */
GS_FN bool gs_bell_done(gs_ctx_t c, const gpusym_work_t *w, gs_ctx_t part, gs_rung_t *r, uint32_t status)
{
    if (0 == part.thread) {
        if (GPUSYM_STATUS_LEFT == status) {
            gs_done_as(w, r->seq - 1, status);
        } else {
            gs_done_as(w, r->seq, GPUSYM_STATUS_OK == status ? status : status | GPUSYM_STATUS_LEFT);
        }
    }
    if (GPUSYM_STATUS_OK != status && part.nthreads < c.nthreads) {
        r->m.bytes = 0; /* to the other warps, which sleep in gs_bell() */
        if (0 == c.thread) {
            gs_tell(r);
        }
        gs_told(c, r);
    }
    return GPUSYM_STATUS_OK == status;
}

/* Ends a launch of one block, which has done its own call with this status, and the calls that it is told of. */
GS_FN void gs_stay(gs_ctx_t c, const gpusym_work_t *w, uint32_t op, uint32_t type, uint32_t status)
{
    gs_rung_t r = {w->done_seq, w->epoch, {NULL, NULL, 0}};
    gs_ctx_t part = c;
    status = gs_block_worst(c, status);
    while (gs_bell_done(c, w, part, &r, status) && gs_bell(c, w, &r, &part)) {
        /* The shortest messages want as few instructions between two looks at their lines as can be. */
        const uint64_t round = GPUSYM_PACK * (uint64_t)part.nthreads;
        /* Four packs of more than two ranks do not fit the registers; and of sums alone they are worth 75 KB of code, which is in
         * every GPU's memory. */
        const bool common = GPUSYM_OP_SUM == op && (GPUSYM_T_F32 == type || GPUSYM_T_F64 == type);
        const bool two = r.m.bytes <= 2 * round || w->nranks > 2 || !common;
        status = r.m.bytes <= round ? gs_agxll_r_rung(part, w, op, type, &r, 1)
                 : two              ? gs_agxll_r_rung(part, w, op, type, &r, 2)
                                    : gs_agxll_r_rung(part, w, op, type, &r, GS_RUNG_PACKS);
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
