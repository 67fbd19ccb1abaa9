/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Entry of a launch that was made before the host knew whether the peers are in the call (GPUSYM_EARLY_ENTERS): the
 * kernels of all ranks find out, and all of them go on, or none. One that does not has done nothing.
 *
 *   1. Block 0 sends an entry to each rank: the signature of the call, and of all ranks' buffers as this rank knows
 *      them.
 *   2. All other blocks of the launch tell block 0 that they run. So a kernel that goes on needs no more room on its
 *      GPU.
 *   3. With that, and the same signature from all ranks, it sends "go" to each, else, or after enter_ns, "leave".
 *   4. With "go" from all ranks, its own among them, the launch goes on, else it leaves.
 *
 * Each rank sends one of these two words, to all ranks the same, and all ranks that go on have all of them: so no rank
 * leaves where another one goes on. Only 4 has no limit: who waits there has entries of all ranks, whose kernels
 * therefore run, and send their words within enter_ns.
 *
 * Lines: of each rank one for its entry and one for its word, in two sets that calls use in turns: a rank may have
 * ended the call, and send what it has for the next, before another has read its word. Each holds the call's first
 * epoch, which is no other call's.
 *
 * What ranks have in their buffers was there before their kernels were launched, and no thread loads any of it before
 * it knows that all go on: so the words here carry nothing with them, and need no fence.
 */
#ifndef GPUSYM_KERNELS_ENTER_H
#define GPUSYM_KERNELS_ENTER_H

#include "kernels/prim/stream.h"

#define GS_ENTER_GO 1u

/* Where block b tells that it runs; of block 0: what it has found. In this rank's slot. */
GS_FN uint32_t *gs_enter_block(const gpusym_work_t *w, uint32_t b)
{
    return (uint32_t *) ((char *) w->peer[w->rank] + GPUSYM_ENTER_OFF) + b;
}

/* Whether the other blocks run. Each thread of block 0 looks at some. */
GS_FN bool gs_enter_blocks(gs_ctx_t c, const gpusym_work_t *w, gs_wait_t *wait)
{
    bool here = true;
    for (uint32_t b = 1 + c.thread; GS_BLOCKS_TOGETHER && b < c.nblocks && here; b += c.nthreads) {
        while (here && gs_local_ld(gs_enter_block(w, b)) != w->epoch) {
            here = !gs_wait_is_over(w, wait, w->enter_ns);
        }
    }
    return here;
}

/* Whether the entries of all ranks are there, and as they should be. Those of one that leaves will not be. */
GS_FN bool gs_enter_entries(gs_ctx_t c, const gpusym_work_t *w, gs_wait_t *wait)
{
    bool same = true;
    for (uint32_t p = c.thread; p < w->nranks && same; p += c.nthreads) {
        uint64_t sig, word;
        while (p != w->rank && same &&
               !gs_ll_ld(gs_enter_line(w, w->rank, p, w->enter_set, GS_ENTRY), w->epoch, &sig)) {
            const bool leaves =
                gs_ll_ld(gs_enter_line(w, w->rank, p, w->enter_set, GS_WORD), w->epoch, &word) && GS_ENTER_GO != word;
            same = !leaves && !gs_wait_is_over(w, wait, w->enter_ns);
        }
        same = same && (p == w->rank || sig == w->enter_sig);
    }
    return same;
}

/* Whether the words of all ranks are "go". */
GS_FN bool gs_enter_words(gs_ctx_t c, const gpusym_work_t *w)
{
    bool go = true;
    for (uint32_t p = c.thread; p < w->nranks; p += c.nthreads) {
        uint64_t word = GS_ENTER_GO;
        for (uint32_t polls = 1;
             p != w->rank && !gs_ll_ld(gs_enter_line(w, w->rank, p, w->enter_set, GS_WORD), w->epoch, &word); polls++) {
            gs_pause();
            if (0 == polls % GS_WAIT_POLLS && gs_aborted(w)) { /* the call has failed */
                word = 0;
                break;
            }
        }
        go = go && GS_ENTER_GO == word;
    }
    return go;
}

/* Block 0. Whether all ranks go on. */
GS_FN bool gs_enter_first(gs_ctx_t c, const gpusym_work_t *w)
{
    gs_wait_t wait = GS_WAIT_INIT;
    gs_enter_send(c, w, w->enter_set, GS_ENTRY, w->enter_sig, w->epoch);
    const bool here = !gs_enter_fails() && gs_enter_blocks(c, w, &wait);
    bool go = gs_part_all(c, here && gs_enter_entries(c, w, &wait));
    gs_enter_send(c, w, w->enter_set, GS_WORD, go ? GS_ENTER_GO : 0, w->epoch);
    if (go) {
        go = gs_part_all(c, gs_enter_words(c, w));
    }
    if (0 == c.thread) {
        gs_local_st(gs_enter_block(w, 0), w->epoch << 1 | (go ? GS_ENTER_GO : 0));
    }
    return go;
}

/* Another block. */
GS_FN bool gs_enter_other(gs_ctx_t c, const gpusym_work_t *w)
{
    uint32_t found = GS_ENTER_GO;
    if (0 == c.thread) {
        gs_local_st(gs_enter_block(w, c.block), w->epoch);
        for (found = 0; found >> 1 != w->epoch; found = gs_local_ld(gs_enter_block(w, 0))) {
            gs_pause();
        }
    }
    return gs_part_all(c, 0 != (found & GS_ENTER_GO));
}

/* Whether the launch goes on: the same in all threads of all blocks. If not, the last block has told the host that it
 * has retired with nothing done. */
GS_OUTLINE bool gs_enter(gs_ctx_t c, const gpusym_work_t *w)
{
    const bool go = 0 == c.block ? gs_enter_first(c, w) : gs_enter_other(c, w);
    uint32_t status = GPUSYM_STATUS_OK;
    if (!go && 0 == c.thread && gs_last_block(c, w, &status)) {
        gs_done_as(w, w->done_seq - 1, GPUSYM_STATUS_RETIRED);
    }
    return go;
}

#endif
