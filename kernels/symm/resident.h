/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Resident kernels: the one block of a small call, or the blocks of a cluster, wait, after that call, for the host's
 * command of the next one of the same kind, which then costs no launch.  The kernel retires when linger_ns have passed
 * without a command, or when the host commands it to; its completion word then holds its last call's number, and
 * GPUSYM_STATUS_RETIRED.  Each call takes one epoch. work.h has the layout of a command, mca/common/gpusym/exec/lane.h
 * the host's half.
 *
 * Why no command is lost or executed twice.  The calls of a lane are numbered, and the host sends the command of call k
 * + 1 after call k is done.  Thread 0 alone polls the doorbell and writes the completion word.  Either it reads the
 * command, and the word becomes k + 1; or it has decided to retire before, or takes k + 1 back, does not read the
 * doorbell again, and the word becomes "k, retired": the host then launches k + 1.  The word becomes one of these and
 * never the other.  Each half of the doorbell carries the number of its call (5 bits, and 4), so a half that arrives
 * first has no effect.  A kernel that reads a number other than its own and the next one retires: its lane has been
 * given to another call, whose kernel is queued behind it, so there are never 16 calls between.
 *
 * Why a command may come before the peers have posted the call.  The kernel of an all-reduce, which may be in place,
 * stores nothing before each of its threads has lines of all peers.  That of an exchange stores what comes, where no
 * input is: the call can be done again, by another kernel or on the host.  If lines do not come in time, the kernel
 * retires, and nothing of the call counts as done.  What it has sent is harmless: an epoch belongs to one call alone
 * (it is the number of the call agreement, plus the epochs that calls of several epochs have taken), so a line of an
 * epoch is the same whichever kernel sends it and however often.  A rank that only sends cannot detect whether its
 * peers are in the call, and has stored nothing.  Lines of one parity are not overwritten early: a rank sends such a
 * command only if the other parity is that of the kernel's last call, which peers may still be in, and no other kernel
 * of the communicator had a call since.  Peers have ended those before, since all have posted the last one: the host
 * does not end a call before.
 *
 * Ranks need not agree: to a peer it makes no difference whether a rank's lines come from a resident kernel.
 *
 * What waits for what:
 *   thread 0              for the doorbell, which the host writes: gs_command_wait()
 *   the rest of its warp  for thread 0: gs_command_next(). This warp does a message of at most a pack per thread alone
 *   the other warps       for the first one, which comes to their barrier with a longer message, or to retire:
 *                         gs_command_next()
 *   the other blocks      for the first one, which comes to the cluster's barrier likewise: gs_command_help()
 *   threads in a call     for the peers' lines: gs_agxll_r_command(), gs_xll_call()
 *   the host              for the completion word, which thread 0 writes: gs_command_end()
 *
 * One thread polls: all-reduce at 8 bytes, 4, 8 and 16 KiB on 2 x H200, in us, with
 *   one warp that polls the doorbell          4.85   5.03   5.5    6.7
 *   two, which share the messages of a warp   4.9    5.27   6.03   7.7
 *   four                                      8.3    9.0    9.8    11.5
 * With one thread, but two loads of the doorbell in flight, half a round trip apart, 6.7 at 8 bytes; with four, 8.3.
 * With one, but a barrier of the block for every message, a fence of system scope behind the doorbell, lines awaited
 * one by one, and commands only once all ranks had posted the call: 5.38, 6.04, 6.35, 6.78.
 */
#ifndef GPUSYM_KERNELS_RESIDENT_H
#define GPUSYM_KERNELS_RESIDENT_H

#include "kernels/prim/prim.h"

/* What the doorbell tells the kernel that has done call seq: 0 nothing yet; 1 the next call, in m, with *skip epochs
 * skipped before it; -1 retire. */
GS_FN int gs_command_read(const uint64_t doorbell[2], uint32_t seq, gs_message_t *m, uint32_t *skip)
{
    const uint32_t a = (uint32_t) doorbell[0] & GPUSYM_COMMAND_NUMBER,
                   b = (uint32_t) doorbell[1] & GPUSYM_COMMAND_NUMBER_AGAIN;
    if ((a & GPUSYM_COMMAND_NUMBER_AGAIN) != b || a == (seq & GPUSYM_COMMAND_NUMBER)) {
        return 0;
    }
    *skip = ((uint32_t) doorbell[0] >> 6 & 3u) | ((uint32_t) doorbell[1] >> 4 & 12u) |
            ((uint32_t) doorbell[0] >> 1 & GPUSYM_COMMAND_EARLY);
    m->in = (const char *) (uintptr_t) (doorbell[0] >> 16);
    m->out = (char *) (uintptr_t) (doorbell[1] >> 16);
    m->bytes = (doorbell[0] >> 8 & 0xffu) | (doorbell[1] & 0xff00u) | (doorbell[1] << 12 & 0x30000u);
    return a == ((seq + 1) & GPUSYM_COMMAND_NUMBER) && 0 != m->bytes ? 1 : -1;
}

/* Thread 0: waits, at most linger_ns, for a command. True: r, which was the last call, is now the next one; false: it
 * is the last one still, of 0 bytes, and the kernel retires. */
GS_FN bool gs_command_wait(const gpusym_work_t *w, gs_command_t *r)
{
    const uint64_t since = gs_now_ns();
    for (uint32_t polls = 1;; polls++) {
        uint64_t doorbell[2];
        gs_doorbell_poll(w, doorbell);
        const int says = gs_command_read(doorbell, r->seq, &r->m, &r->skip);
        if (says > 0 && gs_command_translate(&r->m)) {
            r->seq++;
            r->epoch += 1 + (r->skip & GPUSYM_COMMAND_SKIP_MAX);
            r->time = (uint32_t) (gs_now_ns() / GPUSYM_TOOK_NS);
            return true;
        }
        if (0 != says || gs_now_ns() - since > w->linger_ns || (0 == polls % GS_SHORT_POLLS && gs_aborted(w))) {
            r->m.bytes = 0;
            return false;
        }
        gs_pause();
    }
}

/* Whether the call of a launch is done as a commanded one. */
GS_FN bool gs_is_commanded(const gpusym_work_t *w)
{
    return !GS_ON_STREAM(w) && (GPUSYM_EARLY_STAYS == w->early || GPUSYM_EARLY_RETIRES == w->early);
}

/* Whether the blocks of a resident kernel are a cluster. */
GS_FN bool gs_is_cluster(gs_ctx_t c)
{
    return GS_CLUSTERS && c.nblocks > 1;
}

/* Blocks beside the first one: they sleep at the cluster's barrier until they are to help, or to leave. */
GS_FN bool gs_command_help(gs_ctx_t c, gs_command_t *r, gs_ctx_t *part)
{
    if (!gs_is_cluster(c)) {
        return false;
    }
    gs_cluster_receive(c, r);
    *part = gs_cluster_threads(c);
    return 0 != r->m.bytes;
}

/* Whether so many threads have at most a line each of a call, of whose message a pack has `lines`. */
GS_FN bool gs_command_suits(const gs_command_t *r, uint32_t lines, uint32_t threads)
{
    return ((uint32_t) r->m.bytes + GPUSYM_PACK - 1) / GPUSYM_PACK * lines <= threads;
}

/* The next call, r, which was the last one, and the threads that do it, of which the caller is one (not all may be): a
 * warp, the block or the cluster, the first that suits. False: the kernel retires, and the completion word says so. */
GS_FN bool gs_command_next(gs_ctx_t c, const gpusym_work_t *w, gs_command_t *r, uint32_t lines, gs_ctx_t *part)
{
    const gs_ctx_t warp = {c.thread, GS_WARP, 0, 1}, block = {c.thread, c.nthreads, 0, 1};
    if (0 != c.block) {
        return gs_command_help(c, r, part);
    }
    if (c.thread < GS_WARP) {
        if (0 == c.thread) {
            if (!gs_command_wait(w, r)) {
                gs_done_at(w, w->done, r->seq, GPUSYM_STATUS_RETIRED | (0 != w->timed ? r->time : 0)); /* times stay */
            }
            gs_command_publish(r);
        }
        *part = warp;
        gs_command_receive(warp, r); /* thread 0 has published it */
        if (0 != r->m.bytes && gs_command_suits(r, lines, GS_WARP)) {
            return true;
        }
    }
    *part = block;
    gs_command_receive(block, r); /* the first warp comes here for a longer message or to retire; or goes to
                                     gs_command_end() to retire */
    if (gs_is_cluster(c) && (0 == r->m.bytes || !gs_command_suits(r, lines, GPUSYM_THREADS_MAX))) {
        gs_cluster_publish(c, r);
        *part = gs_cluster_threads(c);
    }
    return 0 != r->m.bytes;
}

/* The threads of part have done call r, with this status, which all of them have, and have all stored their results; or
 * (GPUSYM_STATUS_RETIRED alone) have done nothing of it.  Writes the completion word. False: the kernel retires. */
GS_FN bool gs_command_end(gs_ctx_t c, const gpusym_work_t *w, gs_ctx_t part, gs_command_t *r, uint32_t status)
{
    const bool stays = GPUSYM_STATUS_OK == status && GPUSYM_EARLY_RETIRES != w->early;
    const gs_ctx_t block = {c.thread, c.nthreads, 0, 1};
    if (0 == part.thread) {
        if (GPUSYM_STATUS_RETIRED == status) {
            gs_done_as(w, r->seq - 1, status);
        } else {
            gs_done_since(w, r->seq, stays ? status : status | GPUSYM_STATUS_RETIRED, &r->time);
        }
    }
    if (!stays && part.nthreads < c.nthreads) {
        r->m.bytes = 0; /* to the other warps, which sleep in gs_command_next() */
        if (0 == c.thread) {
            gs_command_publish(r);
        }
        gs_part_sync(block);
    }
    if (!stays && gs_is_cluster(c) && part.nthreads <= c.nthreads) {
        r->m.bytes = 0; /* to the other blocks */
        gs_cluster_publish(c, r);
    }
    return stays;
}

/* A launch that stays: the threads that do its own call, those of all its blocks. False: this block has nothing to do,
 * for there are no clusters. */
GS_FN bool gs_command_first(gs_ctx_t c, gs_ctx_t *part)
{
    const gs_ctx_t block = {c.thread, c.nthreads, 0, 1};
    *part = block;
    if (gs_is_cluster(c)) {
        *part = gs_cluster_threads(c);
        return gs_cluster_begin(c);
    }
    return 0 == c.block;
}

/* The worst status of these threads, behind all that they store: of a warp of the block c, of all of it, or of its
 * cluster. */
GS_FN uint32_t gs_part_worst(gs_ctx_t c, gs_ctx_t part, uint32_t status)
{
    if (part.nthreads == c.nthreads) {
        return gs_block_worst(c, status);
    }
    if (part.nthreads > c.nthreads) {
        return gs_cluster_worst(c, status);
    }
    status = gs_warp_worst(status);
    gs_part_sync(part);
    return status;
}

#endif
