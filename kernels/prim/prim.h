/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The primitives: what the algorithms are written in.  They have two meanings, prim_cuda.h (a GPU)
 * and prim_sim.h (the simulator: one CPU thread does all the work of a block), with the same
 * names.  Algorithms (symm_*.h) include this file and nothing else of the two.
 *
 * An algorithm keeps to the rules that make one source serve both:
 *   - work is spread by loops `for (i = c.thread; i < n; i += c.nthreads)`, never by thread number alone;
 *   - a thread posts all that others wait for before it waits itself, in separate loops;
 *   - a block waits only for blocks of its own number (the simulator runs blocks one by one).
 *
 * Provided by both meanings:
 *   GS_FN, GS_OUTLINE           qualifiers of a device function: always inlined, never inlined
 *   GS_UNROLL, GS_NO_UNROLL     loop pragmas
 *   GS_SHARED                   qualifier of a local array: the block's threads share it
 *   GS_PACKS, GS_RANKS          how much a thread keeps in flight: packs, and ranks for each pack
 *   gs_ld16(p), gs_st16(p, v)   16-byte load and store, p 16-byte aligned
 *   gs_ll_st(line, d, e)        stores the LL line {d.lo, e, d.hi, e}; either half may arrive first
 *   gs_ll_ld(line, e, &d)       loads a line; true once both its flags are e
 *   gs_ll_order(line)           what a line's writer could read before its launch can be read, once the line is there
 *   gs_ll_peek(line, want)      what stands in a line, whole or not, as a gs_line_t, without waiting for it; only if
 *                               want
 *   gs_ll_whole(&raw, e, &d)    whether both its flags are e: then its data are in d
 *   gs_flag_post(p, v)          stores v at p after everything this block wrote before its last gs_block_sync
 *   gs_flag_get(p)              loads p; what the poster wrote before posting can be read afterwards
 *   gs_local_st(p, v), gs_local_ld(p)  a word that blocks of a launch tell each other, and nothing else with it
 *   gs_block_sync(c)            barrier of the block's threads
 *   gs_block_worst(c, s)        barrier that returns the largest s of all threads
 *   gs_now_ns(), gs_aborted(w)  clock; the abort word
 *   gs_takes_turn(k)            whether it is the turn of the caller's warp, of all of the launch, for k = 1, 2, ...
 *   gs_pause()                  one poll of a wait loop
 *   GS_ON_STREAM(w)             whether this is a launch on a stream of the program (stream.h): on a GPU a constant
 *   gs_stream_order()           what the stream did before this launch has been done, and can be read
 *   gs_stream_next()            the stream's next launch, if it begins with gs_stream_order(), may come to the GPU
 *   gs_enter_fails()            whether a kernel that was launched early is to leave (symm/enter.h): by the simulator
 *   gs_block_own(), gs_block_places()  of a launch on a stream: what the block's threads share, a gs_count_t and a
 *                               gs_places_t; what one has stored there others load behind a barrier
 *   GS_WARP                     threads that go together: LL128 lines are stored and loaded by 32 lanes, GS_WARP at
 *                               once
 *   GS_BLOCKS_TOGETHER          whether the blocks of a launch run side by side: else one after the other
 *   gs_warp_worst(s)            the largest s of the lanes of a warp; all call it
 *   GS_GROUPS                   how many groups of LL128 lines (lines.h) a warp takes at a time
 *   gs_ll128_st(group, lane, v, e, &half)  stores a lane's pack of a group with flag e; all lanes of a warp call it, or
 *                               one thread for all lanes, rising; half: kept between them
 *   gs_ll128_ld(group, lane)    what a lane has of a group, as a gs_raw_t, whether it is there yet or not
 *   gs_ll128_whole(&raw, lane, e)  true if the flags of all lines that the caller's lanes have were e; then raw.v is
 *                               the lane's pack. All lanes of a warp call it
 *   gs_part_any(c, x)           barrier of the first c.nthreads of the block's threads; whether x is true in any of
 *                               them
 *   gs_flag_free(p, v)          stores v at p after everything this block has loaded before its last gs_block_sync
 *   gs_last_keeps(c, w, s)      counts this block as ended; true in the last one. The worst status of all stays in the
 *                               ticket, for the launches of the same call that follow
 *   gs_last_block(c, w, &s)     the same of a call's only launch: s is then the worst status of all
 *   gs_done_at(w, p, seq, s)    writes the completion word of call seq at p after everything the launch wrote
 *   gs_done_timed(w, seq, s, t) the same at w->done, with the time t at which it has ended
 *   gs_fence_out(w)             the same for those who read w's output: this GPU and its peers, if that is out_local
 *   gs_time(w, which, seq)      writes the time to w->done[which], where that is wanted; one thread
 *   gs_fence_system()           what this thread has seen written is visible to the host before what it writes next
 *   gs_ld16_strong(p), gs_ld_strong(p, size)  loads of 16, and of 8, 4, 2 or 1 bytes, of what other kernels may have
 *                                             written
 *                               since this one began
 *   gs_doorbell_poll(w, doorbell)  loads the two words of the doorbell, which the host writes; both at once, or one by
 *                                  one
 *   gs_command_translate(&m)    makes the addresses of a command this kernel's; false: it cannot access them, and
 *                               retires
 *   gs_reach(p)                 an address that stands in a list, not in the descriptor, as this kernel's
 *   gs_command_publish(&r)      thread 0 of a resident block: what the others get at gs_command_receive()
 *   gs_command_receive(part, &r)           barrier of these threads, thread 0 among them, which has told; r is then
 *                                          that in all of them
 *   GS_CLUSTERS                 whether the blocks of a launch can be a cluster; without, the following are not called
 *   gs_cluster_begin(c)         all threads of a cluster, before the others of these; false: this block has nothing to
 *                               do, the first one does all
 *   gs_cluster_threads(c)       the caller as one of the threads of all blocks of a cluster: as of one block, of more
 *                               threads than GPUSYM_THREADS_MAX
 *   gs_cluster_publish(c, &r)   all threads of the first block: barrier, at which the other blocks get r->epoch,
 *                               r->m and r->skip
 *   gs_cluster_receive(c, &r)   all threads of these: barrier; r has then what has been published
 *   gs_cluster_sync()           barrier of all threads of a cluster
 *   gs_cluster_worst(c, s)      the same, which returns the largest s of all of them; if that is not 0, they leave
 *   gs_part_sync(part)          barrier of these threads: a warp, the block, or a cluster
 *   gs_part_all(part, x)        the same; whether x is true in all of them. If not, the blocks of a cluster leave
 *   gs_mc_ready(w)              GPUSYM_STATUS_OK where the following can be used, else the status to end with
 *   gs_mc_ll_st(line, d, e)     gs_ll_st at a multicast address: in all ranks' slots
 *   gs_mc_st16(p, v)            gs_st16 likewise
 *   gs_mc_red_max(p, v)         makes the flag at multicast address p at least v, in all slots, as gs_flag_post does
 *   gs_mc_fence()               accesses by multicast and by ordinary addresses on either side of it see each other
 *   gs_mc_ld_reduce(op, type, p, step, m, v)  loads packs p, p + step, ... (m of them) reduced over all ranks' slots
 *   gs_log2(x)                  the largest l so that 1 << l is at most x, which is not 0
 *   gs_f16_to_f32, gs_f32_to_f16, gs_as_f32, gs_as_u32, gs_as_f64, gs_as_u64
 */
#ifndef GPUSYM_KERNELS_PRIM_H
#define GPUSYM_KERNELS_PRIM_H

#include "kernels/kernels.h"

/* Sixteen bytes as two words: a register pair on the GPU, whatever the element type. */
/* clang-format off */
#if defined(__CUDACC__)
typedef struct __align__(16) {
    uint64_t w[2];
} gs_pack_t;
#else
typedef struct {
    uint64_t w[2];
} gs_pack_t;
#endif
/* clang-format on */

/* The caller: thread `thread` of `nthreads` in block `block` of `nblocks`. */
typedef struct {
    uint32_t thread, nthreads, block, nblocks;
} gs_ctx_t;

/* What a call is about, of users' memory. */
typedef struct {
    const char *in;
    char *out;
    uint64_t bytes;
} gs_message_t;

/* A command to a resident kernel; of 0 bytes: that it retires. */
typedef struct {
    uint32_t seq, epoch;
    gs_message_t m;
    uint32_t skip; /* epochs between the last call's and its own */
    uint32_t time; /* thread 0's alone, where times are wanted: gs_done_since() */
} gs_command_t;

/* What counts calls on streams, of gpusym_slot_head_t; and the epochs of this one. */
typedef struct {
    uint32_t epoch, calls, longer, failed;
    uint32_t epochs;
} gs_count_t;

/* Where the ranks' buffers are, of zero copy on a stream (stream.h). */
typedef struct {
    const char *in[GPUSYM_TEAM_MAX];
    char *out[GPUSYM_TEAM_MAX];
} gs_places_t;

#if defined(__CUDACC__)
#include "kernels/prim/prim_cuda.h"
#else
#include "kernels/prim/prim_sim.h"
#endif

/* a / b. Counts of ranks, blocks and warps are mostly powers of two, and a division takes 20 instructions; all warps of
 * a block take them in turns. */
GS_FN uint32_t gs_quotient(uint32_t a, uint32_t b)
{
    return 0 == (b & (b - 1)) ? a >> gs_log2(b) : a / b;
}

/* ---- the completion word ---- */

/* Writes that of call seq, with its times where they are wanted. *time: when the call began, in GPUSYM_TOOK_NS, 0: it
 * was launched; becomes what the word says of how long it took (GPUSYM_STATUS_TOOK). */
GS_FN void gs_done_since(const gpusym_work_t *w, uint32_t seq, uint32_t status, uint32_t *time)
{
    if (0 == w->timed) {
        gs_done_at(w, w->done, seq, status);
        return;
    }
    const uint64_t end = gs_now_ns();
    const uint32_t took = (uint32_t) (end / GPUSYM_TOOK_NS) - *time + 1;
    const bool known = 0 != *time && GPUSYM_STATUS_OK == (status & 0xff);
    *time = known ? (took < GPUSYM_TOOK_MAX ? took : GPUSYM_TOOK_MAX) << 8 : 0;
    gs_done_timed(w, seq, status | *time, end);
}

GS_FN void gs_done_as(const gpusym_work_t *w, uint32_t seq, uint32_t status)
{
    uint32_t launched = 0;
    gs_done_since(w, seq, status, &launched);
}

/* ---- zero copy: the buffers of rank p ---- */

GS_FN const char *gs_peer_in(const gpusym_work_t *w, uint32_t p)
{
    return GS_ON_STREAM(w) ? gs_block_places()->in[p] : (const char *) w->peer_in[p];
}

GS_FN char *gs_peer_out(const gpusym_work_t *w, uint32_t p)
{
    return GS_ON_STREAM(w) ? gs_block_places()->out[p] : (char *) w->peer_out[p];
}

/* ---- entries of launches: symm/enter.h, prim/stream.h ---- */

enum { GS_ENTRY, GS_WORD, GS_ENTER_LINES };

/* The line that rank `writer` has in rank `owner`'s slot, in a set. */
GS_FN char *gs_enter_line(const gpusym_work_t *w, uint32_t owner, uint32_t writer, uint32_t set, uint32_t which)
{
    const uint32_t line = (set * GPUSYM_TEAM_MAX + writer) * GS_ENTER_LINES + which;
    return (char *) w->peer[owner] + GPUSYM_ENTER_OFF + GPUSYM_ENTER_LINES + line * 16u;
}

/* On a stream: the lines in which rank `writer` tells where its buffers are, 0 the input, 1 the output. They stand
 * where the blocks of other launches have their words. */
enum { GS_PLACE_LINES = 2 };
#if GPUSYM_TEAM_MAX * 2 * 16 > GPUSYM_BLOCKS_MAX * 4
#error "there is no room for the lines"
#endif
GS_FN char *gs_place_line(const gpusym_work_t *w, uint32_t owner, uint32_t writer, uint32_t which)
{
    return (char *) w->peer[owner] + GPUSYM_ENTER_OFF + (writer * GS_PLACE_LINES + which) * 16u;
}

/* In place of an epoch, in the entries of both sets: a call of the rank on a stream has failed. */
#define GS_STREAM_FAILED UINT32_MAX

GS_FN bool gs_stream_has_failed(const gpusym_work_t *w, uint32_t p)
{
    uint64_t unused;
    return gs_ll_ld(gs_enter_line(w, w->rank, p, 0, GS_ENTRY), GS_STREAM_FAILED, &unused) ||
           gs_ll_ld(gs_enter_line(w, w->rank, p, 1, GS_ENTRY), GS_STREAM_FAILED, &unused);
}

/* ---- waits ---- */

/* A wait: how often it polled, and since when.  Start it with GS_WAIT_INIT. */
typedef struct {
    uint32_t polls;
    uint64_t since_ns;
} gs_wait_t;
/* clang-format off */
#define GS_WAIT_INIT {0, 0}
/* clang-format on */
/* Polls between two looks at the clock; and in long waits. */
#define GS_SHORT_POLLS 64u
#define GS_WAIT_POLLS 1024u

/* The head of our slot; and its count, in one load: it stays as it is while a launch runs. */
GS_FN gpusym_slot_head_t *gs_slot_head(const gpusym_work_t *w)
{
    return (gpusym_slot_head_t *) w->peer[w->rank];
}

GS_FN gs_count_t gs_count_read(const gpusym_work_t *w)
{
    const gs_pack_t v = gs_ld16_strong(&gs_slot_head(w)->epoch);
    const gs_count_t count = {(uint32_t) v.w[0], (uint32_t) (v.w[0] >> 32), (uint32_t) v.w[1],
                              (uint32_t) (v.w[1] >> 32), 0};
    return count;
}

/* A call on a stream whose ranks do not know all lengths. */
GS_FN bool gs_is_sized(const gpusym_work_t *w)
{
    return GS_ON_STREAM(w) && w->early >= GPUSYM_STREAM_SIZED_BEGINS;
}

/* Whether a kernel that takes commands is resident: none on a stream is. */
GS_FN bool gs_lingers(const gpusym_work_t *w)
{
    return !GS_ON_STREAM(w) && 0 != w->linger_ns;
}

/* Whether rank p, which has sent this entry, is in our call; sized: and has as many bytes for us as we expect. */
GS_FN bool gs_is_in_call(const gpusym_work_t *w, uint32_t p, bool sized, uint64_t said)
{
    const uint64_t other = said ^ w->enter_sig;
    if (!sized) {
        return 0 == other;
    }
    const uint32_t hash = (uint32_t) said & ((1u << GPUSYM_SIZED_HASH_BITS) - 1);
    return 0 == other >> 32 && GPUSYM_SIZED_HASH(w->recv[p].bytes) == hash;
}

/* Of a call on a stream: whether the peer is in another one, or has failed. GS_NOT_YET: it is in none yet. */
#define GS_NOT_YET 0xffffffffu
GS_OUTLINE uint32_t gs_wait_on_stream(const gpusym_work_t *w, uint32_t peer)
{
    const gs_count_t count = gs_count_read(w);
    uint64_t said;
    if (gs_stream_has_failed(w, peer)) {
        return GPUSYM_STATUS_PEER | peer << 8;
    }
    if (!gs_ll_ld(gs_enter_line(w, w->rank, peer, count.calls % 2, GS_ENTRY), count.epoch, &said)) {
        return GS_NOT_YET;
    }
    return gs_is_in_call(w, peer, gs_is_sized(w), said) ? (uint32_t) GPUSYM_STATUS_OK
                                                        : GPUSYM_STATUS_MISMATCH | peer << 8;
}

/* Whether the call has been aborted, as far as a wait knows at its so-many-th poll.  The abort word lies in host
 * memory, and a GPU reads a word there once a microsecond, however many warps ask.  Where all of a cluster of eight
 * blocks asked at their 64th poll, they saw the lines of a rank that was 30 us late 40 us later in one kernel alone
 * (H200), 100 to 140 us later in a collective, whose ranks were then late in turns for hundreds of calls; where 64
 * blocks of a launch asked at their 1024th, 60 to 100 us later.  So the warps of a launch take turns: that kernel, of
 * 1, 8, 64 and 130 blocks that all wait, leaves 0.3, 3, 42 and 111 ms after the word has been set. */
GS_FN bool gs_wait_aborted(const gpusym_work_t *w, uint32_t polls)
{
    return gs_takes_turn(polls / GS_SHORT_POLLS) && gs_aborted(w);
}

/* One poll of a wait for `peer`. GPUSYM_STATUS_OK: go on waiting; else the status to end with. */
GS_FN uint32_t gs_wait(const gpusym_work_t *w, gs_wait_t *wait, uint32_t peer)
{
    gs_pause();
    if (0 != ++wait->polls % GS_SHORT_POLLS) {
        return GPUSYM_STATUS_OK;
    }
    if (gs_wait_aborted(w, wait->polls)) {
        return GPUSYM_STATUS_ABORTED;
    }
    if (0 != wait->polls % GS_WAIT_POLLS) {
        return GPUSYM_STATUS_OK;
    }
    const uint64_t now = gs_now_ns();
    if (GS_ON_STREAM(w)) {
        const uint32_t status = gs_wait_on_stream(w, peer);
        if (GS_NOT_YET == status) {
            wait->since_ns = 0; /* time counts from when it is in this call */
        } else if (GPUSYM_STATUS_OK != status) {
            return status;
        }
    }
    if (0 == wait->since_ns) {
        wait->since_ns = now;
    } else if (0 != w->limit_ns && now - wait->since_ns > w->limit_ns) {
        return GPUSYM_STATUS_TIMEOUT | peer << 8;
    }
    return GPUSYM_STATUS_OK;
}

/* One poll of a wait of at most ns for a peer that may be late: whether it is over, or the call has been aborted. */
GS_FN bool gs_wait_is_over(const gpusym_work_t *w, gs_wait_t *wait, uint64_t ns)
{
    gs_pause();
    if (0 != ++wait->polls % GS_SHORT_POLLS) {
        return false;
    }
    const uint64_t now = gs_now_ns();
    wait->since_ns = 0 == wait->since_ns ? now : wait->since_ns;
    return now - wait->since_ns > ns || gs_wait_aborted(w, wait->polls);
}

/* gs_wait(), or, early, that of a resident kernel whose peers may not be in the call: after linger_ns it retires, with
 * what has been stored so far. */
GS_FN uint32_t gs_wait_line(const gpusym_work_t *w, bool early, gs_wait_t *wait, uint32_t peer)
{
    return !early                                   ? gs_wait(w, wait, peer)
           : gs_wait_is_over(w, wait, w->linger_ns) ? (uint32_t) GPUSYM_STATUS_RETIRED
                                                    : (uint32_t) GPUSYM_STATUS_OK;
}

/* Offset in a slot of the flag that block `block` of rank `writer` writes. */
GS_FN uint32_t gs_flag_at(uint32_t block, uint32_t writer)
{
    return GPUSYM_FLAGS_OFF + block * GPUSYM_FLAG_ROW + writer * (uint32_t) sizeof(uint32_t);
}

/* That flag in rank `owner`'s slot. */
GS_FN uint32_t *gs_flag(const gpusym_work_t *w, uint32_t owner, uint32_t block, uint32_t writer)
{
    return (uint32_t *) ((char *) w->peer[owner] + gs_flag_at(block, writer));
}

/* Waits until a flag of ours, which rank p writes, is at least v. */
GS_FN uint32_t gs_await(const gpusym_work_t *w, const uint32_t *flag, uint32_t v, uint32_t p)
{
    uint32_t status = GPUSYM_STATUS_OK;
    gs_wait_t wait = GS_WAIT_INIT;
    while (GPUSYM_STATUS_OK == status && gs_flag_get(flag) < v) {
        status = gs_wait(w, &wait, p);
    }
    return status;
}

/* Waits for the flags that block c.block of the other ranks writes here. The status of this thread. */
GS_FN uint32_t gs_await_flags(gs_ctx_t c, const gpusym_work_t *w, uint32_t epoch)
{
    uint32_t status = GPUSYM_STATUS_OK;
    for (uint32_t p = c.thread; p < w->nranks && GPUSYM_STATUS_OK == status; p += c.nthreads) {
        if (p != w->rank) {
            status = gs_await(w, gs_flag(w, w->rank, c.block, p), epoch, p);
        }
    }
    return status;
}

/*
 * Barrier of block c.block over all ranks: everything this block wrote anywhere before it can be
 * read by the same block of every rank after it.  Flag row c.block of every rank's slot: column r is
 * written by rank r, with the epoch.  An epoch may be overtaken by one (a fast peer arrives at
 * the next barrier), hence "at least"; epochs only rise, since the host clears the slots before they would wrap.
 * Returns the worst status of the block's threads.
 */
GS_FN void gs_barrier_post(gs_ctx_t c, const gpusym_work_t *w, uint32_t epoch)
{
    gs_block_sync(c);
    for (uint32_t p = c.thread; p < w->nranks; p += c.nthreads) {
        if (p != w->rank) {
            gs_flag_post(gs_flag(w, p, c.block, w->rank), epoch);
        }
    }
}

GS_FN uint32_t gs_barrier_wait(gs_ctx_t c, const gpusym_work_t *w, uint32_t epoch)
{
    return gs_block_worst(c, gs_await_flags(c, w, epoch));
}

/* Both at once; between them a block may do what needs nothing of what the others wrote before it. */
GS_FN uint32_t gs_barrier(gs_ctx_t c, const gpusym_work_t *w, uint32_t epoch)
{
    gs_barrier_post(c, w, epoch);
    return gs_barrier_wait(c, w, epoch);
}

/*
 * User buffers have any alignment and length; the heap is made of whole packs.  `bytes` is the length of the
 * whole buffer, pack i covers [16 i, 16 i + 16) of it.  The part of a last pack beyond the end
 * reads as zero and is not written.
 */
GS_FN uint32_t gs_align(const void *p)
{
    const uint32_t low = (uint32_t) (uintptr_t) p & 15u;
    return 0 == low ? 16u : low & (~low + 1u);
}

/* Any alignment, any end. Out of line: it is rare, and it would swell every loop. Loads do not wait for each
 * other: a message of 8 bytes comes this way, and its load is on the critical path. */
GS_OUTLINE gs_pack_t gs_ld_unaligned(const void *base, uint32_t align, uint64_t bytes, uint64_t i)
{
    const char *p = (const char *) base + 16 * i;
    const uint32_t n = bytes - 16 * i < 16 ? (uint32_t) (bytes - 16 * i) : 16;
    gs_pack_t v = {{0, 0}};

    if (align >= 8 && 0 == n % 8) {
        v.w[0] = ((const uint64_t *) p)[0];
        v.w[1] = n > 8 ? ((const uint64_t *) p)[1] : 0;
        return v;
    }
    if (align >= 4 && 0 == n % 4) {
        GS_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            if (4 * k < n) {
                v.w[k / 2] |= (uint64_t) ((const uint32_t *) p)[k] << 32 * (k % 2);
            }
        }
        return v;
    }
    GS_UNROLL
    for (uint32_t b = 0; b < 16; b++) {
        if (b < n) {
            v.w[b / 8] |= (uint64_t) ((const uint8_t *) p)[b] << 8 * (b % 8);
        }
    }
    return v;
}

/* n bytes at p, of any alignment, of what other kernels may have written since this one began. No load waits for
 * another one. */
GS_OUTLINE gs_pack_t gs_ld_bytes_strong(const char *p, uint32_t n)
{
    gs_pack_t v = {{0, 0}};
    GS_UNROLL
    for (uint32_t b = 0; b < 16; b++) {
        if (b < n) {
            v.w[b / 8] |= gs_ld_strong(p + b, 1) << 8 * (b % 8);
        }
    }
    return v;
}

/* The same of a pack. Short messages come this way: not out of line, unless the address is odd. */
GS_FN gs_pack_t gs_ld_user_strong(const void *base, uint32_t align, uint64_t bytes, uint64_t i)
{
    const char *p = (const char *) base + 16 * i;
    const uint32_t n = bytes - 16 * i < 16 ? (uint32_t) (bytes - 16 * i) : 16;
    gs_pack_t v = {{0, 0}};

    if (16 == align && 16 == n) {
        return gs_ld16_strong(p);
    }
    if (align >= 8 && 0 == n % 8) {
        v.w[0] = gs_ld_strong(p, 8);
        v.w[1] = n > 8 ? gs_ld_strong(p + 8, 8) : 0;
        return v;
    }
    if (align < 4) {
        return gs_ld_bytes_strong(p, n);
    }
    const uint32_t whole = n / 4 * 4;
    uint64_t last = 0; /* one to three bytes */
    GS_UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        if (4 * k < whole) {
            v.w[k / 2] |= gs_ld_strong(p + 4 * k, 4) << 32 * (k % 2);
        }
    }
    GS_UNROLL
    for (uint32_t b = 0; b < 3; b++) {
        if (whole + b < n) {
            last |= gs_ld_strong(p + whole + b, 1) << 8 * (whole % 8 + b);
        }
    }
    v.w[0] |= whole < 8 ? last : 0; /* no index that is not a constant: v stays in registers */
    v.w[1] |= whole < 8 ? 0 : last;
    return v;
}

GS_OUTLINE void gs_st_unaligned(void *base, uint32_t align, uint64_t bytes, uint64_t i, gs_pack_t v)
{
    char *p = (char *) base + 16 * i;
    const uint32_t n = bytes - 16 * i < 16 ? (uint32_t) (bytes - 16 * i) : 16;

    if (align >= 8 && 0 == n % 8) {
        ((uint64_t *) p)[0] = v.w[0];
        if (n > 8) {
            ((uint64_t *) p)[1] = v.w[1];
        }
        return;
    }
    if (align >= 4 && 0 == n % 4) {
        GS_UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            if (4 * k < n) {
                ((uint32_t *) p)[k] = (uint32_t) (v.w[k / 2] >> 32 * (k % 2));
            }
        }
        return;
    }
    GS_UNROLL
    for (uint32_t b = 0; b < 16; b++) {
        if (b < n) {
            ((uint8_t *) p)[b] = (uint8_t) (v.w[b / 8] >> 8 * (b % 8));
        }
    }
}

GS_FN gs_pack_t gs_ld_user(const void *base, uint32_t align, uint64_t bytes, uint64_t i)
{
    if (16 == align && 16 * i + 16 <= bytes) {
        return gs_ld16((const char *) base + 16 * i);
    }
    return gs_ld_unaligned(base, align, bytes, i);
}

/* The same, inline for a last pack of one word too: the whole message may be that. */
GS_FN gs_pack_t gs_ld_user_word(const void *base, uint32_t align, uint64_t bytes, uint64_t i)
{
    if (align >= 8 && 8 == bytes - 16 * i) {
        const gs_pack_t v = {{*(const uint64_t *) ((const char *) base + 16 * i), 0}};
        return v;
    }
    return gs_ld_user(base, align, bytes, i);
}

GS_FN void gs_st_user(void *base, uint32_t align, uint64_t bytes, uint64_t i, gs_pack_t v)
{
    if (16 == align && 16 * i + 16 <= bytes) {
        gs_st16((char *) base + 16 * i, v);
    } else {
        gs_st_unaligned(base, align, bytes, i, v);
    }
}

/* The same, inline for a last pack of one word too: the whole message may be that. */
GS_FN void gs_st_user_word(void *base, uint32_t align, uint64_t bytes, uint64_t i, gs_pack_t v)
{
    if (align >= 8 && 8 == bytes - 16 * i) {
        *(uint64_t *) ((char *) base + 16 * i) = v.w[0];
    } else {
        gs_st_user(base, align, bytes, i, v);
    }
}

#endif
