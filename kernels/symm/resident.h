/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A kernel that stays: the one block waits after its call for the host to ring for the next one of the same kind, which then
 * costs no launch.  After linger_ns without, or when it is told to, it leaves, and says so with its last call's number: the
 * host, which finds that there in place of the next one's, knows that the next was not done, and launches it.  Thread 0
 * alone looks at the bell and writes the completion word, so no call is lost, or done twice.
 * Ranks need not agree: to a peer it makes no difference whether a rank's lines come from a kernel that stayed.
 * Each call takes one epoch.
 *
 * Who waits for whom:
 *   thread 0             for the bell, which the host writes: gs_command_wait()
 *   the rest of its warp for thread 0: gs_command_next(). This warp does a message of a pack a thread, or less, alone
 *   the other warps      for the first one, which comes to their barrier with a longer message, or to leave: gs_command_next()
 *   who does the call    for the peers' lines: gs_agxll_r_command()
 *   the host             for the completion word, which thread 0 writes: gs_command_end()
 *
 * One thread looks: all-reduce at 8 bytes, 4, 8 and 16 KiB on 2 x H200, in us, with
 *   one warp that looks at the bell           4.85   5.03   5.5    6.7
 *   two, which share the messages of a warp   4.9    5.27   6.03   7.7
 *   four                                      8.3    9.0    9.8    11.5
 * With one, but a barrier of the block for every message, a fence of system scope behind the bell, lines awaited one by
 * one, and calls rung for only once all had posted them: 5.38, 6.04, 6.35, 6.78.
 */
#ifndef GPUSYM_KERNELS_RESIDENT_H
#define GPUSYM_KERNELS_RESIDENT_H

#include "kernels/prim/prim.h"

/* Turns between two looks at the clock and the abort word in such a call. */
#define GS_COMMAND_POLLS 64u

/* One turn of waiting for a peer that may be late: as long as a kernel may stay. GPUSYM_STATUS_OK: go on waiting. */
GS_FN uint32_t gs_wait_command(const gpusym_work_t *w, gs_wait_t *wait)
{
    gs_pause();
    if (0 != ++wait->turns % GS_COMMAND_POLLS) {
        return GPUSYM_STATUS_OK;
    }
    const uint64_t now = gs_now_ns();
    wait->since_ns = 0 == wait->since_ns ? now : wait->since_ns;
    return (uint32_t)(now - wait->since_ns > w->linger_ns || gs_aborted(w) ? GPUSYM_STATUS_RETIRED : GPUSYM_STATUS_OK);
}

/* What the two words of a bell say to the kernel that has done call seq: 0 nothing yet, 1 the next call, in m, with so many
 * epochs skipped before it; -1 leave. */
GS_FN int gs_command_read(const uint64_t bell[2], uint32_t seq, gs_message_t *m, uint32_t *skip)
{
    const uint32_t a = (uint32_t)bell[0] & GPUSYM_COMMAND_NUMBER, b = (uint32_t)bell[1] & GPUSYM_COMMAND_NUMBER;
    if (a != b || a == (seq & GPUSYM_COMMAND_NUMBER)) {
        return 0;
    }
    *skip = ((uint32_t)bell[0] >> 6 & 3u) | ((uint32_t)bell[1] >> 4 & 12u);
    m->in = (const char *)(uintptr_t)(bell[0] >> 16);
    m->out = (char *)(uintptr_t)(bell[1] >> 16);
    m->bytes = (bell[0] >> 8 & 0xffu) | (bell[1] & 0xff00u);
    return a == ((seq + 1) & GPUSYM_COMMAND_NUMBER) && 0 != m->bytes ? 1 : -1;
}

/* Thread 0: waits, at most linger_ns, for the host to ring. True: r, which was the last call, is now the next one; false: it
 * is the last one still, of 0 bytes, and the kernel leaves. */
GS_FN bool gs_command_wait(const gpusym_work_t *w, gs_command_t *r)
{
    const uint64_t since = gs_now_ns();
    for (uint32_t look = 1;; look++) {
        uint64_t bell[2];
        uint32_t skip;
        gs_doorbell_poll(w, bell);
        const int says = gs_command_read(bell, r->seq, &r->m, &skip);
        if (says > 0 && gs_command_translate(&r->m)) {
            r->seq++;
            r->epoch += 1 + skip;
            return true;
        }
        if (0 != says || gs_now_ns() - since > w->linger_ns || (0 == look % GS_COMMAND_POLLS && gs_aborted(w))) {
            r->m.bytes = 0;
            return false;
        }
        gs_pause();
    }
}

/* The next call, r, which was the last one, and the threads that do it, of which the caller is one (not all may be). False:
 * the kernel leaves, and the completion word says so. */
GS_FN bool gs_command_next(gs_ctx_t c, const gpusym_work_t *w, gs_command_t *r, gs_ctx_t *part)
{
    const gs_ctx_t warp = {c.thread, GS_WARP, 0, 1};
    if (c.thread < GS_WARP) {
        if (0 == c.thread) {
            if (!gs_command_wait(w, r)) {
                gs_done_as(w, r->seq, GPUSYM_STATUS_RETIRED);
            }
            gs_command_publish(r);
        }
        *part = warp;
        gs_command_receive(warp, r); /* thread 0 has told */
        if (0 != r->m.bytes && r->m.bytes <= GPUSYM_PACK * GS_WARP) {
            return true;
        }
    }
    *part = c;
    gs_command_receive(c, r); /* the first warp comes here, for a longer message or to leave; or goes to gs_command_end() to leave */
    return 0 != r->m.bytes;
}

/* The threads of part have done call r, with this status, which all of them have, and have all stored their results; or
 * (GPUSYM_STATUS_RETIRED alone) have done nothing of it.  Writes the completion word. False: the kernel leaves. */
GS_FN bool gs_command_end(gs_ctx_t c, const gpusym_work_t *w, gs_ctx_t part, gs_command_t *r, uint32_t status)
{
    if (0 == part.thread) {
        if (GPUSYM_STATUS_RETIRED == status) {
            gs_done_as(w, r->seq - 1, status);
        } else {
            gs_done_as(w, r->seq, GPUSYM_STATUS_OK == status ? status : status | GPUSYM_STATUS_RETIRED);
        }
    }
    if (GPUSYM_STATUS_OK != status && part.nthreads < c.nthreads) {
        r->m.bytes = 0; /* to the other warps, which sleep in gs_command_next() */
        if (0 == c.thread) {
            gs_command_publish(r);
        }
        gs_command_receive(c, r);
    }
    return GPUSYM_STATUS_OK == status;
}

#endif
