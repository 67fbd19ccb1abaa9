/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Launch geometry by family.  Constants have their unit and where they come from.
 */
#include "tuning/geometry.h"

#include "kernels/kernels.h"

/* One-shot, measured on 4 x H200: up to 2 KiB one block, whose end costs the least; above, many small blocks
 * (64 of 64 threads: 12.4 us at 32 KiB, where 8 of 256 take 14.2), which send from more multiprocessors at once;
 * larger blocks when a thread would have more than 2 packs. */
#define ONESHOT_ALONE 128u /* packs of 16 bytes */
#define ONESHOT_THREADS 64u
#define ONESHOT_THREADS_MAX 256u
#define ONESHOT_BLOCKS 64u
/* Two-shot: a block needs this many bytes of message to be worth its barriers. */
#define TWOSHOT_BYTES_PER_BLOCK (8u << 10)
#define TWOSHOT_THREADS 256u
#define TWOSHOT_BLOCKS 128u
/* ... as few blocks as this are larger: 512 MiB by 16 blocks 1746 us in place of 2440, by 32 1730 in place of 1742 (2 x
 * H200; since then 1684 by 16, where the best is 1511). */
#define TWOSHOT_FEW_BLOCKS 32u
#define TWOSHOT_FEW_THREADS 512u
/* Two-shot by LL128 lines, measured on 2 x H200: a warp for each group of lines of a slice, in blocks of 4 warps up to
 * so many groups (128 KiB: 12.9 us, with 8 warps 13.5), then of 8 (2 MiB: 19.2 us, with 4 warps 21.8). */
#define TWOSHOT_LL128_FEW 256u
#define TWOSHOT_LL128_BLOCKS 128u
#define TWOSHOT_LL128_THREADS 128u
#define TWOSHOT_LL128_THREADS_MAX 256u
/* Rings, chains and trees, by protocol: bytes of a message that a channel is worth, and threads, measured on 4 x H200
 * at 8 bytes to 256 MiB: 64 channels were best wherever there is enough for them. */
#define CHANNEL_LL_BYTES (4u << 10)
#define CHANNEL_LL128_BYTES (16u << 10)
#define CHANNEL_SIMPLE_BYTES (32u << 10)
#define CHANNEL_THREADS 256u
/* ... and more threads for LL128 from so many bytes of a channel on (16 MiB: 106 us in place of 139), and for trees. */
#define CHANNEL_LL128_LONG (128u << 10)
#define CHANNEL_THREADS_LONG 512u
/* Bytes of a chunk: rings are busy with any; chains and trees want chunks enough to fill all of their hops. */
#define CHANNEL_CHUNK_RING (256u << 10)
#define CHANNEL_CHUNKS 16u
#define CHANNEL_CHUNK_MIN (8u << 10)
#define CHANNEL_CHUNK_MAX (128u << 10)
/* Copy engines: a slice goes in so many chunks, of these bytes at least and at most; the blocks that reduce a chunk,
 * and their threads. Measured on 2 x H200: a chunk costs 12 us besides its bytes, so that large ones are best. */
#define COPIES_CHUNKS 2u
#define COPIES_CHUNK_MIN (2u << 20)
#define COPIES_CHUNK_MAX (64u << 20)
#define COPIES_BYTES_PER_BLOCK (16u << 10)
#define COPIES_BLOCKS 32u
#define COPIES_THREADS 512u
/* A leader's launch (kernels/symm/lead.h), as it was measured on a shared H200: packs that a block is worth, 4 MiB by
 * two ranks 15.3 us. */
#define LEAD_PACKS_PER_BLOCK 512u
/* Threads that take a piece at most, while it has fewer packs than a block is worth it for. All threads of a block with
 * one piece after the other: an all-to-all of 128 bytes among 8 ranks 70 us, of 2 KiB 15. */
#define LEAD_GROUP_MAX 32u
#define LEAD_PIECE_ALONE 256u
/* Ranks that share a GPU by MPS: a multiprocessor has room for a block of any kernel at least, and for those of other
 * communicators, resident kernels and the program there is as much again, this often. */
#define BESIDE_SHARES 4u
/* What a leader would do as fast: bytes of a message times ranks. All-reduces of 128 KiB by 2 ranks 8.5 us, by a leader
 * 13; of 64 and 128 KiB by 4 ranks 9.8 and 19, 14; without clusters, by 8 ranks, blocks of 4 and 8 KiB of an all-gather
 * 13.9 and 19.4, 14.2. */
#define BESIDE_BYTES_CLUSTER (256u << 10)
#define BESIDE_BYTES (32u << 10)
/* The simulator runs a block as one CPU thread, one after the other: more blocks only add barriers. */
#define SIM_BLOCKS 4u

static uint32_t min_u32(uint64_t a, uint32_t b)
{
    return a < b ? (uint32_t) a : b;
}

static uint32_t at_least_1(uint32_t a)
{
    return 0 == a ? 1 : a;
}

uint32_t gpusym_tuning_max_blocks(uint32_t sm_count, bool simulated)
{
    return at_least_1(simulated ? SIM_BLOCKS : min_u32(2 * sm_count, GPUSYM_BLOCKS_MAX));
}

/* LL lines, in epochs. */
static void set_lines(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    const uint64_t now = call->bytes < call->ll_payload ? call->bytes : call->ll_payload; /* one epoch at a time */
    /* Where segments are placed each thread has one line of one peer, where they are reduced a line of every peer. */
    const bool placed = GPUSYM_F_XLL == choice->family;
    const uint64_t packs = (now + GPUSYM_PACK - 1) / GPUSYM_PACK * (placed ? call->nranks - 1 : 1);
    if (packs <= ONESHOT_ALONE) {
        choice->threads = at_least_1((uint32_t) (packs + 31) / 32) * 32;
        choice->blocks = 1;
    } else {
        choice->threads = packs <= 2 * ONESHOT_BLOCKS * ONESHOT_THREADS ? ONESHOT_THREADS : ONESHOT_THREADS_MAX;
        choice->blocks = min_u32((packs + choice->threads - 1) / choice->threads, ONESHOT_BLOCKS);
    }
}

/* Plain loads and stores between ranks. */
static void set_stored(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    const uint64_t bytes = call->bytes * (gpusym_collective_whole(call->coll) ? 1 : call->nranks);
    choice->threads = TWOSHOT_THREADS;
    choice->blocks = min_u32(bytes / TWOSHOT_BYTES_PER_BLOCK, TWOSHOT_BLOCKS);
}

/* Two-shot by LL128 lines: warps, each a stream. */
static void set_ll128(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    const uint64_t group = (uint64_t) GPUSYM_LL128_PACKS * GPUSYM_PACK * call->nranks; /* one of each slice */
    const uint64_t groups = (call->bytes + group - 1) / group;
    choice->threads = groups <= TWOSHOT_LL128_FEW ? TWOSHOT_LL128_THREADS : TWOSHOT_LL128_THREADS_MAX;
    choice->blocks = min_u32((groups + choice->threads / 32 - 1) / (choice->threads / 32), TWOSHOT_LL128_BLOCKS);
}

/* Bytes of a chunk of chains and trees: so that there are enough to fill all hops. */
static uint32_t chunk_of_hops(uint64_t channel_bytes)
{
    const uint32_t chunk = min_u32(channel_bytes / CHANNEL_CHUNKS, CHANNEL_CHUNK_MAX);
    return chunk < CHANNEL_CHUNK_MIN ? CHANNEL_CHUNK_MIN : chunk;
}

/* Rings, chains and trees: channels, and chunks. */
static void set_channels(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    static const uint32_t channel_bytes[] = {[GPUSYM_PROTOCOL_LL] = CHANNEL_LL_BYTES,
                                             [GPUSYM_PROTOCOL_LL128] = CHANNEL_LL128_BYTES,
                                             [GPUSYM_PROTOCOL_SIMPLE] = CHANNEL_SIMPLE_BYTES};
    const enum gpusym_protocol protocol = gpusym_family_protocol(choice->family);
    const int schedule = gpusym_algorithm_schedule((unsigned) choice->algorithm);
    const bool tree = schedule >= GS_TREE_ALLREDUCE;
    const uint32_t least = tree ? 2 : 1; /* both trees */
    const uint64_t bytes = call->bytes * (gpusym_collective_whole(call->coll) ? 1 : call->nranks);
    choice->blocks = min_u32(bytes / channel_bytes[protocol], GPUSYM_CHANNELS_MAX);
    choice->blocks = choice->blocks < least ? least : choice->blocks;
    const bool many = GPUSYM_PROTOCOL_LL128 == protocol ? bytes / choice->blocks >= CHANNEL_LL128_LONG
                                                        : GPUSYM_PROTOCOL_SIMPLE == protocol && tree;
    choice->threads = many ? CHANNEL_THREADS_LONG : CHANNEL_THREADS;
    if (0 == choice->chunk) {
        choice->chunk = schedule <= GS_RING_REDUCE_SCATTER ? CHANNEL_CHUNK_RING : chunk_of_hops(bytes / choice->blocks);
    }
}

/* Copy engines: chunks, and the kernel that reduces them. */
static void set_copies(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    const uint64_t slice = gpusym_collective_whole(call->coll) ? call->bytes / call->nranks : call->bytes;
    choice->threads = COPIES_THREADS;
    choice->blocks = min_u32(slice / COPIES_CHUNKS / COPIES_BYTES_PER_BLOCK, COPIES_BLOCKS);
    if (0 == choice->chunk) {
        const uint32_t chunk = min_u32(slice / COPIES_CHUNKS, COPIES_CHUNK_MAX);
        choice->chunk = chunk < COPIES_CHUNK_MIN ? COPIES_CHUNK_MIN : chunk;
    }
}

void gpusym_tuning_lead(uint64_t packs, uint32_t sm_count, bool simulated, const gpusym_tuning_forced_t *forced,
                        gpusym_tuning_choice_t *choice)
{
    const uint32_t most = gpusym_tuning_max_blocks(sm_count, simulated);
    choice->blocks = 0 != forced->blocks ? forced->blocks : min_u32(packs / LEAD_PACKS_PER_BLOCK, most);
    choice->blocks = at_least_1(min_u32(choice->blocks, most));
    choice->threads = min_u32((0 != forced->threads ? forced->threads : packs) + 31, GPUSYM_THREADS_MAX) / 32 * 32;
}

uint32_t gpusym_tuning_beside_blocks(uint32_t sm_count, uint32_t per_gpu)
{
    return at_least_1(sm_count / (BESIDE_SHARES * per_gpu));
}

uint64_t gpusym_tuning_beside_max(uint32_t nranks, uint32_t blocks)
{
    return (blocks >= GPUSYM_CLUSTER_BLOCKS ? BESIDE_BYTES_CLUSTER : BESIDE_BYTES) / nranks;
}

uint32_t gpusym_tuning_lead_group(uint64_t packs, uint64_t piece_bytes, const gpusym_tuning_forced_t *forced,
                                  gpusym_tuning_choice_t *choice)
{
    const uint64_t piece = (piece_bytes + GPUSYM_PACK - 1) / GPUSYM_PACK;
    uint32_t group = 1;
    if (piece >= packs || piece >= LEAD_PIECE_ALONE) {
        return 0;
    }
    while (group < piece && group < LEAD_GROUP_MAX) {
        group *= 2;
    }
    if (0 == forced->threads) {
        const uint32_t threads = min_u32((packs + piece - 1) / piece * group + 31, GPUSYM_THREADS_MAX) / 32 * 32;
        choice->threads = threads > choice->threads ? threads : choice->threads;
    }
    return group;
}

void gpusym_tuning_geometry(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                            gpusym_tuning_choice_t *choice)
{
    bool stored = false;
    choice->chunk = forced->chunk;
    switch (gpusym_family_plan(choice->family)) {
    case GPUSYM_PLAN_CHANNELS:
        set_channels(call, choice);
        break;
    case GPUSYM_PLAN_LL128:
        set_ll128(call, choice);
        break;
    case GPUSYM_PLAN_COPIES:
        set_copies(call, choice);
        break;
    case GPUSYM_PLAN_LINES:
        set_lines(call, choice);
        break;
    default:
        set_stored(call, choice);
        stored = true;
        break;
    }
    if (call->simulated) {
        choice->blocks = min_u32(choice->blocks, SIM_BLOCKS);
    }
    if (0 != forced->blocks) {
        choice->blocks = forced->blocks;
        choice->threads = stored && forced->blocks <= TWOSHOT_FEW_BLOCKS ? TWOSHOT_FEW_THREADS : choice->threads;
    }
    if (0 != forced->threads) {
        choice->threads = (min_u32(forced->threads, GPUSYM_THREADS_MAX) + 31) / 32 * 32;
    }
    choice->blocks = at_least_1(min_u32(choice->blocks, call->max_blocks));
}

/* The kernels have not run on GPUs, and no time of theirs is known: so there only who asks for them has them. */
bool gpusym_tuning_multicast(bool simulated)
{
    return simulated;
}
