/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The end of a launch; and both ends of one on a stream of the program, whose host neither knows when it begins, nor
 * whether the peers are in the call, nor how often it is repeated (a graph that is launched again and again).
 *
 * So the GPU counts calls and epochs, in the head of the slot, and the kernels find by themselves what otherwise the
 * host sees to: that no rank begins a call before all have ended the one before.  Each rank's kernel sends an entry to
 * all ranks as it begins: the signature of its call, with the call's first epoch. Since a stream runs its kernels one
 * after the other, an entry of call k tells that its rank has ended call k - 1.
 *
 *   GPUSYM_STREAM_WAITS    the kernel waits for all ranks' entries before anything else.
 *   GPUSYM_STREAM_BEGINS   it waits for them before it ends. So when a rank begins call k, all have ended k - 2; and
 *                          one-epoch calls in LL lines, which are what is launched so, write the lines of call k - 2,
 *                          of whatever other calls stand between. Behind a call of several epochs it waits as above.
 *
 * Entries lie in two sets that calls use in turns: a rank sends that of call k + 2 when it has those of k + 1 from all,
 * each of which was sent by a rank that had ended k.
 *
 * A rank whose call fails tells all others, by entries of both sets, which it does not change any more: all ranks fail
 * then, in this call or the next, and none waits. What a failed call has written of its output is undefined.
 */
#ifndef GPUSYM_KERNELS_PRIM_STREAM_H
#define GPUSYM_KERNELS_PRIM_STREAM_H

#include "kernels/prim/prim.h"

GS_FN void gs_enter_send(gs_ctx_t c, const gpusym_work_t *w, uint32_t which, uint64_t what)
{
    for (uint32_t p = c.thread; p < w->nranks; p += c.nthreads) {
        if (p != w->rank) {
            gs_ll_st(gs_enter_line(w, p, w->rank, w->enter_set, which), what, w->epoch);
        }
    }
}

/* ---- calls on streams ---- */

/* One thread: tells all ranks that a call has failed. */
GS_FN void gs_stream_fail(const gpusym_work_t *w)
{
    for (uint32_t p = 0; p < w->nranks; p++) {
        for (uint32_t set = 0; set < 2 && p != w->rank; set++) {
            gs_ll_st(gs_enter_line(w, p, w->rank, set, GS_ENTRY), 0, GS_STREAM_FAILED);
        }
    }
}

GS_FN gpusym_slot_head_t *gs_slot_head(const gpusym_work_t *w)
{
    return (gpusym_slot_head_t *) w->peer[w->rank];
}

/* Waits for what the ranks send in their lines, which is to be `what`. The worst status of the block's threads. */
GS_FN uint32_t gs_stream_await(gs_ctx_t c, const gpusym_work_t *w, uint32_t which, uint64_t what)
{
    uint32_t status = GPUSYM_STATUS_OK;
    for (uint32_t p = c.thread; p < w->nranks && GPUSYM_STATUS_OK == status; p += c.nthreads) {
        gs_wait_t wait = GS_WAIT_INIT;
        uint64_t said = what;
        while (GPUSYM_STATUS_OK == status && p != w->rank &&
               !gs_ll_ld(gs_enter_line(w, w->rank, p, w->enter_set, which), w->epoch, &said)) {
            status = gs_wait(w, &wait, p);
        }
        if (GPUSYM_STATUS_OK == status && said != what) {
            status = GPUSYM_STATUS_MISMATCH | p << 8;
        }
    }
    return gs_block_worst(c, status);
}

GS_FN void gs_stream_zero(gs_ctx_t c, const gpusym_work_t *w, uint64_t from, uint64_t to)
{
    const gs_pack_t zero = {{0, 0}};
    for (uint64_t at = from + 16 * c.thread; at < to; at += 16 * c.nthreads) {
        gs_st16((char *) w->peer[w->rank] + at, zero);
    }
}

/*
 * Block 0: begins the epochs anew. All ranks come here in the same call.  First all have told that they are here: no
 * kernel of theirs writes anything then. Then each wipes its own flags and lines, and tells that: what comes from now
 * on is new. At last the lines by which they have told.
 */
GS_OUTLINE void gs_stream_wipe(gs_ctx_t c, gpusym_work_t *w)
{
    const uint32_t before = gs_local_ld(&gs_slot_head(w)->failed);
    const uint32_t set = w->enter_set, step = (uint32_t) (GS_ENTER_LINES * 16u);
    const uint64_t lines = GPUSYM_ENTER_OFF + GPUSYM_ENTER_LINES;
    uint32_t status = GPUSYM_STATUS_OK;
    for (uint32_t round = 0; round < 2 && GPUSYM_STATUS_OK == status; round++) {
        gs_block_sync(c);
        if (0 == c.thread) {
            w->enter_set = round;
        }
        gs_block_sync(c);
        if (1 == round) {
            for (uint64_t at = lines + GS_ENTRY * 16u; at < GPUSYM_FLAGS_OFF; at += step) {
                gs_stream_zero(c, w, at, at + 16);
            }
            gs_stream_zero(c, w, GPUSYM_FLAGS_OFF, w->stage_off);
            gs_fence_system();
            gs_block_sync(c);
        }
        gs_enter_send(c, w, GS_WORD, w->enter_sig);
        status = gs_stream_await(c, w, GS_WORD, w->enter_sig);
    }
    for (uint64_t at = lines + GS_WORD * 16u; at < GPUSYM_FLAGS_OFF; at += step) {
        gs_stream_zero(c, w, at, at + 16);
    }
    gs_fence_system();
    gs_block_sync(c);
    if (0 == c.thread) {
        w->enter_set = set;
        gs_local_st(&gs_slot_head(w)->failed, GPUSYM_STATUS_OK == before ? status : before);
        gs_fence_system();
        gs_local_st(&gs_slot_head(w)->epoch, 1); /* the other blocks wait for that */
    }
    gs_block_sync(c);
}

/* Thread 0: reads the head of the slot into the launch's own descriptor. */
GS_FN void gs_stream_read(gpusym_work_t *w)
{
    const gpusym_slot_head_t *head = gs_slot_head(w);
    w->epoch = gs_local_ld(&head->epoch);
    w->enter_set = gs_local_ld(&head->calls) % 2;
    w->early = 0 != gs_local_ld(&head->longer) ? (uint32_t) GPUSYM_STREAM_WAITS : w->early;
}

/* Begins a launch on a stream: w is its own copy of the descriptor, which all threads of the block have, and which gets
 * the epoch. The status, the same in all threads; if it is not GPUSYM_STATUS_OK, the caller ends the launch with it. */
GS_OUTLINE uint32_t gs_stream_begin(gs_ctx_t c, gpusym_work_t *w)
{
    uint32_t *failed = &gs_slot_head(w)->failed;
    gs_stream_order();
    if (0 == c.thread) {
        gs_stream_read(w);
    }
    gs_block_sync(c);
    if (w->epoch > GPUSYM_STREAM_EPOCH_MAX) {
        if (0 == c.block) {
            gs_stream_wipe(c, w);
        }
        if (0 == c.thread) {
            while (w->epoch > GPUSYM_STREAM_EPOCH_MAX) {
                gs_pause();
                gs_stream_read(w);
            }
            gs_fence_system();
        }
        gs_block_sync(c);
    }
    const uint32_t before = gs_block_worst(c, 0 == c.thread ? gs_local_ld(failed) : (uint32_t) GPUSYM_STATUS_OK);
    if (GPUSYM_STATUS_OK != before) {
        if (0 == c.block && 0 == c.thread) {
            gs_stream_fail(w);
        }
        return before;
    }
    if (0 == c.block) {
        gs_enter_send(c, w, GS_ENTRY, w->enter_sig);
    }
    if (GPUSYM_STREAM_WAITS != w->early) {
        return GPUSYM_STATUS_OK;
    }
    return gs_stream_await(c, w, GS_ENTRY, w->enter_sig);
}

/* Ends it. */
GS_OUTLINE void gs_stream_end(gs_ctx_t c, const gpusym_work_t *w, uint32_t status)
{
    gpusym_slot_head_t *head = gs_slot_head(w);
    if (0 == c.block && GPUSYM_STREAM_WAITS != w->early && GPUSYM_STATUS_OK == status) {
        status = gs_stream_await(c, w, GS_ENTRY, w->enter_sig);
    }
    if (0 != c.thread || !gs_last_block(c, w, &status)) {
        return;
    }
    gs_local_st(&head->epoch, w->epoch + (uint32_t) w->epochs);
    gs_local_st(&head->calls, gs_local_ld(&head->calls) + 1);
    gs_local_st(&head->longer, w->epochs > 1);
    if (GPUSYM_STATUS_OK != status && GPUSYM_STATUS_OK == gs_local_ld(&head->failed)) {
        gs_local_st(&head->failed, status);
        gs_stream_fail(w);
    }
    if (0 != w->done_seq || GPUSYM_STATUS_OK != status) { /* one that a graph repeats tells of failures only */
        gs_done_at(w, w->done + (GPUSYM_STATUS_OK == status ? 0 : 1), w->done_seq, status);
        if (0 != w->done_seq && GPUSYM_STATUS_OK != status) {
            gs_done_as(w, w->done_seq, status);
        }
    }
}

/* ---- any launch ---- */

/* Ends a launch: the last block to come here writes the completion word. */
GS_FN void gs_finish(gs_ctx_t c, const gpusym_work_t *w, uint32_t status)
{
    status = gs_block_worst(c, status);
    if (w->early >= GPUSYM_STREAM_BEGINS) {
        gs_stream_end(c, w, status);
    } else if (0 == c.thread && gs_last_block(c, w, &status)) {
        gs_done_as(w, w->done_seq, status);
    }
}

#endif
