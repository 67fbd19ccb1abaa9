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
 *   GPUSYM_STREAM_SIZED_   BEGINS and WAITS: the same where ranks know only the lengths of their own segments. A
 *                          segment's length says whether it goes in LL lines or is stored. A rank whose segments all go
 *                          in lines begins at once. How many epochs the call takes the kernels find: an entry's lower
 *                          half says how many chunks its rank has for any other, or from it, and the most of all ranks
 *                          count. It has a hash of the segment's length too: two ranks that do not agree on it fail.
 *
 * Entries lie in two sets that calls use in turns: a rank sends that of call k + 2 when it has those of k + 1 from all,
 * each of which was sent by a rank that had ended k.
 *
 * A call with zero copy waits as well, and for two lines more of each rank: how far its input and its output are from
 * the addresses that the peers have of its memory; where the call has segments, those that go between the two ranks, so
 * that no rank need know how another's lie. There is one set of these: such a call ends behind a barrier of each
 * of its blocks, and each has read them all before. What ranks have in their buffers was there before their kernels
 * began, so the lines carry nothing with them, and need no fence; who reads them looks at memory anew.
 *
 * That a call has ended is told to the host only where it asks for that: a kernel that writes to the host's memory ends
 * 1 us later, and the next one of the stream begins later. Else its number stands in the slot's head: all threads have
 * stored the result by then, but nothing orders these stores with the number's. So who finds it there looks again.
 *
 * A rank whose call fails tells all others, by entries of both sets, which it does not change any more: all ranks fail
 * then, in this call or the next, and none waits. What a failed call has written of its output is undefined.
 */
#ifndef GPUSYM_KERNELS_PRIM_STREAM_H
#define GPUSYM_KERNELS_PRIM_STREAM_H

#include "kernels/prim/reduce.h"

/* Sends a line to all ranks. */
GS_FN void gs_enter_send(gs_ctx_t c, const gpusym_work_t *w, uint32_t set, uint32_t which, uint64_t what,
                         uint32_t epoch)
{
    for (uint32_t p = c.thread; p < w->nranks; p += c.nthreads) {
        if (p != w->rank) {
            gs_ll_st(gs_enter_line(w, p, w->rank, set, which), what, epoch);
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

/* In what follows `sized` is whether a call is SIZED: a constant where no call of a kernel is. */

/* What this rank's entry for rank p says. */
GS_FN uint64_t gs_stream_entry(const gpusym_work_t *w, uint32_t p, bool sized)
{
    return sized && p < w->nranks
               ? w->enter_sig | w->epochs << GPUSYM_SIZED_HASH_BITS | GPUSYM_SIZED_HASH(w->send[p].bytes)
               : w->enter_sig;
}

/* The first rank to which this thread sends an entry, and from which it awaits one: the last threads have the least to
 * do for a short message. The next ones are nthreads further. */
GS_FN uint32_t gs_stream_rank(gs_ctx_t c)
{
    return c.nthreads - 1 - c.thread;
}

/* Sends the entries of this rank. first: what this thread's first one says. */
GS_FN void gs_stream_enter(gs_ctx_t c, const gpusym_work_t *w, gs_count_t count, bool sized, uint64_t first)
{
    for (uint32_t p = gs_stream_rank(c); p < w->nranks; p += c.nthreads) {
        if (p != w->rank) {
            gs_ll_st(gs_enter_line(w, p, w->rank, count.calls % 2, GS_ENTRY),
                     p == gs_stream_rank(c) ? first : gs_stream_entry(w, p, sized), count.epoch);
        }
    }
}

/* Waits for the lines of this thread's ranks, which are to have our signature. Its status. *most: becomes the largest
 * lower half of those, if it is more. */
GS_FN uint32_t gs_stream_await(gs_ctx_t c, const gpusym_work_t *w, uint32_t set, uint32_t which, uint32_t epoch,
                               bool sized, uint32_t *most)
{
    uint32_t status = GPUSYM_STATUS_OK;
    for (uint32_t p = gs_stream_rank(c); p < w->nranks && GPUSYM_STATUS_OK == status; p += c.nthreads) {
        gs_wait_t wait = GS_WAIT_INIT;
        uint64_t said = w->enter_sig;
        while (GPUSYM_STATUS_OK == status && p != w->rank &&
               !gs_ll_ld(gs_enter_line(w, w->rank, p, set, which), epoch, &said)) {
            status = gs_wait(w, &wait, p);
        }
        if (GPUSYM_STATUS_OK == status && p != w->rank && !gs_is_in_call(w, p, sized, said)) {
            status = GPUSYM_STATUS_MISMATCH | p << 8;
        }
        if (p != w->rank) {
            *most = (uint32_t) said > *most ? (uint32_t) said : *most;
        }
    }
    return status;
}

/* Waits for the entries of all ranks, in this set; with them the block knows how many epochs the call takes. status:
 * this thread's. Returns the worst of the block. */
GS_FN uint32_t gs_stream_await_all(gs_ctx_t c, const gpusym_work_t *w, uint32_t set, uint32_t epoch, bool sized,
                                   uint32_t status)
{
    uint32_t most = (uint32_t) w->epochs << GPUSYM_SIZED_HASH_BITS;
    if (GPUSYM_STATUS_OK == status) {
        status = gs_stream_await(c, w, set, GS_ENTRY, epoch, sized, &most);
    }
    status = gs_block_worst(c, status);
    if (sized && GPUSYM_STATUS_OK == status) {
        most = gs_block_worst(c, most);
        if (0 == c.thread) {
            gs_block_own()->epochs = most >> GPUSYM_SIZED_HASH_BITS;
        }
        gs_block_sync(c);
    }
    return status;
}

/* How far what rank p accesses of our buffers is from the addresses of our memory that the peers have: 0 of the input,
 * 1 of the output. */
GS_FN uint64_t gs_stream_place(const gpusym_work_t *w, uint32_t p, uint32_t which, uint32_t plan)
{
    const bool pairs = GPUSYM_PLAN_SEGMENTS == plan; /* others have no segments in their descriptors */
    return 0 == which
               ? (uint64_t) ((uintptr_t) w->in - (uintptr_t) w->peer_in[w->rank]) + (pairs ? w->send[p].off : 0)
               : (uint64_t) ((uintptr_t) w->out - (uintptr_t) w->peer_out[w->rank]) + (pairs ? w->recv[p].off : 0);
}

GS_FN void gs_stream_tell(gs_ctx_t c, const gpusym_work_t *w, uint32_t plan, uint32_t epoch)
{
    for (uint32_t i = c.thread; i < w->nranks * GS_PLACE_LINES; i += c.nthreads) {
        const uint32_t p = i / GS_PLACE_LINES, which = i % GS_PLACE_LINES;
        if (p != w->rank) {
            gs_ll_st(gs_place_line(w, p, w->rank, which), gs_stream_place(w, p, which, plan), epoch);
        }
    }
}

/* Finds the buffers of all ranks, which are in the call. The worst status of the block's threads. */
GS_FN uint32_t gs_stream_find(gs_ctx_t c, const gpusym_work_t *w, uint32_t plan, uint32_t epoch)
{
    gs_places_t *places = gs_block_places();
    uint32_t status = GPUSYM_STATUS_OK;
    for (uint32_t p = c.thread; p < w->nranks && GPUSYM_STATUS_OK == status; p += c.nthreads) {
        const char *line = gs_place_line(w, w->rank, p, 0);
        uint64_t in = gs_stream_place(w, p, 0, plan), out = gs_stream_place(w, p, 1, plan);
        gs_wait_t wait = GS_WAIT_INIT;
        while (GPUSYM_STATUS_OK == status && p != w->rank &&
               !(gs_ll_ld(line, epoch, &in) && gs_ll_ld(line + 16, epoch, &out))) {
            status = gs_wait(w, &wait, p);
        }
        gs_ll_order(line);
        places->in[p] = (const char *) ((uintptr_t) w->peer_in[p] + in);
        places->out[p] = (char *) ((uintptr_t) w->peer_out[p] + out);
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

/* Wipes the lines of both sets that are an entry, or a word. */
GS_FN void gs_stream_zero_lines(gs_ctx_t c, const gpusym_work_t *w, uint32_t which)
{
    const uint64_t step = GS_ENTER_LINES * 16u, first = GPUSYM_ENTER_OFF + GPUSYM_ENTER_LINES + which * 16u;
    for (uint64_t at = first + c.thread * step; at < GPUSYM_FLAGS_OFF; at += c.nthreads * step) {
        gs_stream_zero((gs_ctx_t){0, 1, 0, 1}, w, at, at + 16);
    }
}

/*
 * Block 0: begins the epochs anew. All ranks come here in the same call.  First all have told that they are here: no
 * kernel of theirs writes anything then. Then each wipes its own flags and lines, and tells that: what comes from now
 * on is new. At last the words by which they have told.
 */
GS_OUTLINE void gs_stream_wipe(gs_ctx_t c, const gpusym_work_t *w, uint32_t epoch)
{
    gpusym_slot_head_t *head = gs_slot_head(w);
    const uint32_t before = gs_block_worst(c, gs_local_ld(&head->failed));
    gs_enter_send(c, w, 0, GS_WORD, w->enter_sig, epoch);
    uint32_t unused = 0, status = gs_block_worst(c, gs_stream_await(c, w, 0, GS_WORD, epoch, false, &unused));
    if (GPUSYM_STATUS_OK == status) {
        gs_stream_zero_lines(c, w, GS_ENTRY);
        gs_stream_zero(c, w, GPUSYM_ENTER_OFF, GPUSYM_ENTER_OFF + GPUSYM_ENTER_LINES); /* where buffers were */
        gs_stream_zero(c, w, GPUSYM_FLAGS_OFF, w->stage_off);
        gs_fence_system();
        gs_block_sync(c);
        gs_enter_send(c, w, 1, GS_WORD, w->enter_sig, epoch);
        status = gs_block_worst(c, gs_stream_await(c, w, 1, GS_WORD, epoch, false, &unused));
    }
    gs_stream_zero_lines(c, w, GS_WORD);
    gs_fence_system();
    gs_block_sync(c);
    if (0 == c.thread) {
        gs_local_st(&head->failed, GPUSYM_STATUS_OK == before ? status : before);
        gs_fence_system();
        gs_local_st(&head->epoch, 1); /* the other blocks wait for that */
    }
}

/* Any block, which has found the epochs at their end: the count with the first of the new ones. */
GS_OUTLINE gs_count_t gs_stream_anew(gs_ctx_t c, const gpusym_work_t *w, uint32_t epoch)
{
    gs_count_t count;
    if (0 == c.block) {
        gs_stream_wipe(c, w, epoch);
    }
    do {
        gs_pause();
        count = gs_count_read(w);
    } while (count.epoch > GPUSYM_STREAM_EPOCH_MAX);
    gs_fence_system();
    count = gs_count_read(w);
    gs_block_sync(c);
    return count;
}

/* The set of the entries that a launch awaits as it ends, plus 1; 0: none. */
GS_FN uint32_t gs_stream_entries(gs_count_t count)
{
    return 0 == count.longer ? 1 + count.calls % 2 : 0;
}

/* What this thread sends first of an all-reduce. */
GS_FN gs_pack_t gs_stream_first(gs_ctx_t c, const gpusym_work_t *w)
{
    const uint32_t i = c.block * c.nthreads + c.thread;
    const gs_pack_t none = {{0, 0}};
    return 16ull * i < w->bytes ? gs_ld_user_word(w->in, gs_align(w->in), w->bytes, i) : none;
}

/* Begins a launch on a stream: *begun is its count, with its first epoch. plan: the family's, a constant on a GPU; of
 * zero copy, the kernel accesses peers' buffers, and waits for entries. ahead: NULL, or becomes gs_stream_first(): that
 * of the count does not wait for its load. The status, the same in all threads; if it is not GPUSYM_STATUS_OK, the
 * caller ends the launch with it. */
GS_FN uint32_t gs_stream_begin(gs_ctx_t c, const gpusym_work_t *w, uint32_t plan, bool sized, gs_count_t *begun,
                               gs_pack_t *ahead)
{
    const bool straight = GPUSYM_PLAN_STRAIGHT(plan);
    /* Before the kernel ahead has ended: the descriptor's lines, in which segments are, come from afar. */
    const uint64_t entry = gs_stream_entry(w, gs_stream_rank(c), sized);
    gs_stream_order();
    if (NULL != ahead) {
        *ahead = gs_stream_first(c, w);
    }
    gs_count_t count = gs_count_read(w);
    if (count.epoch > GPUSYM_STREAM_EPOCH_MAX) {
        count = gs_stream_anew(c, w, count.epoch);
    }
    count.longer = 0 != count.longer || (sized ? GPUSYM_STREAM_SIZED_BEGINS : GPUSYM_STREAM_BEGINS) != w->early;
    count.epochs = (uint32_t) w->epochs;
    *begun = count;
    if (0 == c.thread) {
        *gs_block_own() = count; /* for the end */
    }
    if (GPUSYM_STATUS_OK != count.failed) {
        if (0 == c.block && 0 == c.thread) {
            gs_stream_fail(w);
        }
        return gs_block_worst(c, count.failed);
    }
    if (0 == c.block) {
        gs_stream_enter(c, w, count, sized, entry);
    }
    if (0 == c.block && straight) {
        gs_stream_tell(c, w, plan, count.epoch);
    }
    if (0 != (w->soon & GPUSYM_SOON_NEXT)) {
        gs_stream_next();
    }
    if (0 == count.longer) {
        return GPUSYM_STATUS_OK;
    }
    const uint32_t status = gs_stream_await_all(c, w, count.calls % 2, count.epoch, sized, GPUSYM_STATUS_OK);
    return straight && GPUSYM_STATUS_OK == status ? gs_stream_find(c, w, plan, count.epoch) : status;
}

/* Ends it, behind a barrier of the block. */
GS_FN void gs_stream_end_now(gs_ctx_t c, const gpusym_work_t *w, uint32_t status)
{
    if (0 != c.thread || !gs_last_block(c, w, &status)) {
        return;
    }
    const gs_count_t count = *gs_block_own();
    const uint32_t failed = GPUSYM_STATUS_OK != count.failed ? count.failed : status;
    const gs_pack_t next = {{(uint64_t) (count.calls + 1) << 32 | (count.epoch + count.epochs),
                             (uint64_t) failed << 32 | (count.epochs > 1)}};
    gs_st16(&gs_slot_head(w)->epoch, next);
    if (failed != count.failed) {
        gs_stream_fail(w);
    }
    if (GPUSYM_STATUS_OK != status) {
        gs_done_at(w, w->failed, w->done_seq, status);
    }
    if (0 != w->done_seq) {                                 /* none that a graph repeats */
        gs_local_st(&gs_slot_head(w)->number, w->done_seq); /* a fence would take 0.6 us */
        if (NULL != w->done) {
            gs_done_as(w, w->done_seq, status);
        }
    }
}

/* The same, out of line. */
GS_OUTLINE void gs_stream_end(gs_ctx_t c, const gpusym_work_t *w, uint32_t status)
{
    gs_stream_end_now(c, w, status);
}

/* ---- any launch ---- */

/* Ends a launch: the last block to come here writes the completion word. */
GS_FN void gs_finish(gs_ctx_t c, const gpusym_work_t *w, uint32_t status)
{
    status = gs_block_worst(c, status);
    if (GS_ON_STREAM(w)) {
        gs_stream_end(c, w, status);
    } else if (0 == c.thread && gs_last_block(c, w, &status)) {
        gs_done_as(w, w->done_seq, status);
    }
}

/* The same of one in LL lines. Its entries are awaited while lines are: both have been under way for as long. */
GS_FN void gs_finish_lines(gs_ctx_t c, gs_kernel_t kernel, uint32_t status)
{
    const gpusym_work_t *const w = kernel.w;
    if (!GS_ON_STREAM(w)) {
        gs_finish(c, w, status);
        return;
    }
    if (0 == c.block && 0 != kernel.entries) {
        const bool sized = !kernel.reduces && gs_is_sized(w);
        status = gs_stream_await_all(c, w, kernel.entries - 1, kernel.epoch, sized, status);
    } else {
        status = gs_block_worst(c, status);
    }
    gs_stream_end_now(c, w, status);
}

#endif
