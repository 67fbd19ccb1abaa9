/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The choice: tables of thresholds.  Constants have their unit and where they come from.
 */
#include "tuning/tuning.h"

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
/* ... who wants so few has larger ones: 512 MiB by 16 blocks 1746 us in place of 2440, by 32 1730 in place of 1742 (2 x H200; since
 * then 1684 by 16, where the best is 1511). */
#define TWOSHOT_FEW_BLOCKS 32u
#define TWOSHOT_FEW_THREADS 512u
/* ... and with zero copy more than one a multiprocessor (of 132) in the middle: 86.2 us in place of 87.9 for 16 MiB, but 311 in
 * place of 306 for 64. In bytes. */
#define MIDDLE_BLOCKS 176u
#define MIDDLE_THREADS 192u
#define MIDDLE_MIN (8ull << 20)
#define MIDDLE_MAX (32ull << 20)
/* Zero copy: up to so many bytes of message loads with one barrier beat stores with two, by ranks: 2, up to 4, more. On 2 x H200
 * 24.7 us for 4 MiB in place of 27.7, 37.7 for 8 in place of 38.7, but 62.6 for 16 in place of 61.5 (on another machine 26.3 and
 * 26.0, 38.7 and 38.5: no difference; 63.4 and 61.5); the others were measured on 4, by slower code. */
static const uint64_t pull_max[3] = {8ull << 20, 2ull << 20, 2ull << 20};
/* ... measured on 4 x H200: up to so many the root of a bcast, reduce serves all by itself, for the same reason. */
#define ROOT_MAX (1ull << 20)
/* Two-shot by LL128 lines, measured on 2 x H200: a warp for each group of lines of a slice, in blocks of 4 warps up to so many
 * groups (128 KiB: 12.9 us, with 8 warps 13.5), then of 8 (2 MiB: 19.2 us, with 4 warps 21.8). */
#define TWOSHOT_LL128_FEW 256u
#define TWOSHOT_LL128_BLOCKS 128u
#define TWOSHOT_LL128_THREADS 128u
#define TWOSHOT_LL128_THREADS_MAX 256u
/* Rings, chains and trees, by protocol: bytes of a message that a channel is worth, and threads, measured on 4 x H200 at 8
 * bytes to 256 MiB: 64 channels were best wherever there is enough for them. */
#define CHANNEL_LL_BYTES (4u << 10)
#define CHANNEL_LL128_BYTES (16u << 10)
#define CHANNEL_SIMPLE_BYTES (32u << 10)
#define CHANNEL_THREADS 256u
/* ... and more threads for LL128 from so many bytes of a channel on (16 MiB: 106 us in place of 139), and for trees. */
#define CHANNEL_LL128_LONG (128u << 10)
#define CHANNEL_THREADS_LONG 512u
/* Bytes of a piece: rings are busy with any; chains and trees want pieces enough to fill all of their hops. */
#define CHANNEL_PIECE_RING (256u << 10)
#define CHANNEL_PIECES 16u
#define CHANNEL_PIECE_MIN (8u << 10)
#define CHANNEL_PIECE_MAX (128u << 10)
/* Where GPUs reach each other along rings only: largest message in bytes by LL, by LL128 (where it may be), then Simple. */
#define RING_LL_MAX (64ull << 10)
#define RING_LL128_MAX (4ull << 20)
/* Copy engines: a slice goes in so many pieces, of these bytes at least and at most; the blocks that reduce a piece, and
 * their threads. Measured on 2 x H200: a piece costs 12 us besides its bytes, so that large ones are best. */
#define COPIES_PIECES 2u
#define COPIES_PIECE_MIN (2u << 20)
#define COPIES_PIECE_MAX (64u << 20)
#define COPIES_BYTES_PER_BLOCK (16u << 10)
#define COPIES_BLOCKS 32u
#define COPIES_THREADS 512u
/* The simulator runs a block as one CPU thread, one after the other: more blocks only add barriers. */
#define SIM_BLOCKS 4u

static uint32_t min_u32(uint64_t a, uint32_t b)
{
    return a < b ? (uint32_t)a : b;
}

static uint32_t at_least_1(uint32_t a)
{
    return 0 == a ? 1 : a;
}

/* Where a table by ranks has so many: 2, up to 4, more. */
static unsigned by_ranks(uint32_t nranks)
{
    return nranks <= 2 ? 0 : nranks <= 4 ? 1 : 2;
}

uint32_t gpusym_tuning_max_blocks(uint32_t sm_count, bool simulated)
{
    return at_least_1(simulated ? SIM_BLOCKS : min_u32(2 * sm_count, GPUSYM_BLOCKS_MAX));
}

/* The LL and the other unicast algorithm of a collective, and how large a message, or segment, goes by LL lines: in bytes, by
 * ranks: 2, up to 4, more. LL lines are twice as long as their data but need no barrier. Not in the table: no LL beyond that.
 * Between these two, where links keep LL128 lines whole: the two-shot by those, up to how large a message; 0: never. From how
 * large a segment on copy engines send, with zero copy; 0: never. */
typedef struct {
    int ll, st;
    uint32_t ll_max[3];
    int ll128;
    uint32_t ll128_max[3];
    int ce;
    uint32_t ce_min[3];
} row_t;

#define KIB << 10
#define MIB << 20
#define CE(algorithm, bytes) .ce = (algorithm), .ce_min = {(bytes), 0, 0} /* on 2 ranks, where it was measured */
static const row_t rows[GPUSYM_COLL_COUNT] = {
    /* measured on 4 and 2 x H200 */
    [GPUSYM_COLL_ALLREDUCE] = {GPUSYM_ALG_ALLREDUCE_AGXLL_R,
                               GPUSYM_ALG_ALLREDUCE_RSXST_AGXST,
                               {128 KIB, 128 KIB, 64 KIB},
                               GPUSYM_ALG_ALLREDUCE_RSXLL128_AGXLL128,
                               /* 512 KiB: 13.1 us in place of 13.8 by ST, 16.9 by LL; measured on 2 only */
                               {1 MIB, 0, 0}},
    /* the same traffic as the one-shot all-reduce of a message as long as a segment; ce: 64 MiB in all 105.6 us in place of
     * 107.8, 256 MiB 365 in place of 388; measured on 2 only */
    [GPUSYM_COLL_ALLGATHER] = {GPUSYM_ALG_ALLGATHER_LL, GPUSYM_ALG_ALLGATHER_ST, {128 KIB, 64 KIB, 32 KIB},
                               CE(GPUSYM_ALG_ALLGATHER_CE, 32 MIB)},
    [GPUSYM_COLL_ALLGATHERV] = {GPUSYM_ALG_ALLGATHERV_LL, GPUSYM_ALG_ALLGATHERV_ST, {128 KIB, 64 KIB, 32 KIB},
                                CE(GPUSYM_ALG_ALLGATHERV_CE, 32 MIB)},
    [GPUSYM_COLL_REDUCE_SCATTER] = {GPUSYM_ALG_REDUCE_SCATTER_LL, GPUSYM_ALG_REDUCE_SCATTER_ST, {256 KIB, 128 KIB, 64 KIB}},
    [GPUSYM_COLL_REDUCE_SCATTER_BLOCK] = {GPUSYM_ALG_REDUCE_SCATTER_BLOCK_LL,
                                          GPUSYM_ALG_REDUCE_SCATTER_BLOCK_ST,
                                          {256 KIB, 128 KIB, 64 KIB}},
    [GPUSYM_COLL_ALLTOALL] = {GPUSYM_ALG_ALLTOALL_LL, GPUSYM_ALG_ALLTOALL_ST, {128 KIB, 64 KIB, 32 KIB},
                              CE(GPUSYM_ALG_ALLTOALL_CE, 32 MIB)},
    [GPUSYM_COLL_ALLTOALLV] = {GPUSYM_ALG_ALLTOALLV_LL, GPUSYM_ALG_ALLTOALLV_ST, {128 KIB, 64 KIB, 32 KIB}},
    [GPUSYM_COLL_GATHER] = {GPUSYM_ALG_GATHER_LL, GPUSYM_ALG_GATHER_ST, {128 KIB, 64 KIB, 32 KIB}},
    [GPUSYM_COLL_GATHERV] = {GPUSYM_ALG_GATHERV_LL, GPUSYM_ALG_GATHERV_ST, {128 KIB, 64 KIB, 32 KIB}},
    [GPUSYM_COLL_SCATTER] = {GPUSYM_ALG_SCATTER_LL, GPUSYM_ALG_SCATTER_ST, {128 KIB, 64 KIB, 32 KIB}},
    [GPUSYM_COLL_SCATTERV] = {GPUSYM_ALG_SCATTERV_LL, GPUSYM_ALG_SCATTERV_ST, {128 KIB, 64 KIB, 32 KIB}},
    [GPUSYM_COLL_SCAN] = {GPUSYM_ALG_SCAN_LL, GPUSYM_ALG_SCAN_ST, {128 KIB, 64 KIB, 32 KIB}},
    [GPUSYM_COLL_EXSCAN] = {GPUSYM_ALG_EXSCAN_LL, GPUSYM_ALG_EXSCAN_ST, {128 KIB, 64 KIB, 32 KIB}},
    /* all of it through one GPU's port; ce: 256 MiB 712 us in place of 745, but 16 MiB 71 in place of 62 */
    [GPUSYM_COLL_BCAST] = {GPUSYM_ALG_BCAST_LL, GPUSYM_ALG_BCAST_ST, {128 KIB, 64 KIB, 32 KIB},
                           CE(GPUSYM_ALG_BCAST_CE, 256 MIB)},
    [GPUSYM_COLL_REDUCE] = {GPUSYM_ALG_REDUCE_LL, GPUSYM_ALG_REDUCE_ST, {128 KIB, 64 KIB, 32 KIB}},
};
#undef KIB
#undef MIB
#undef CE

static bool is_ll(unsigned family)
{
    return GPUSYM_F_AGXLL_R == family || GPUSYM_F_AGXLLMC_R == family || GPUSYM_F_XLL == family ||
           GPUSYM_F_XLL_R == family || GPUSYM_F_XLLMC == family;
}

/* By plain loads and stores, of rank to rank. */
static bool is_stored(unsigned family)
{
    return !is_ll(family) && !gpusym_family_ll128(family) && !gpusym_family_copies(family) &&
           GPUSYM_F_CHAN_SIMPLE != family && GPUSYM_F_CHAN_SIMPLE_R != family && GPUSYM_F_CHAN_LL != family &&
           GPUSYM_F_CHAN_LL_R != family;
}

/* Whether the message is cut over blocks as a whole, not each rank's segment of it. */
static bool is_whole(unsigned coll)
{
    return GPUSYM_COLL_ALLREDUCE == coll || GPUSYM_COLL_REDUCE == coll || GPUSYM_COLL_BCAST == coll;
}

/* What is sent to a rank goes to its heap: users' outputs need not be mapped. */
static bool is_reduce_scatter(unsigned coll)
{
    return GPUSYM_COLL_REDUCE_SCATTER == coll || GPUSYM_COLL_REDUCE_SCATTER_BLOCK == coll;
}

static void shape_ll(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    const uint64_t now = call->bytes < call->ll_payload ? call->bytes : call->ll_payload; /* one epoch at a time */
    /* Where segments are placed each thread has one line of one peer, where they are reduced a line of every peer. */
    const bool placed = GPUSYM_F_XLL == gpusym_algorithm_family((unsigned)choice->algorithm);
    const uint64_t packs = (now + GPUSYM_PACK - 1) / GPUSYM_PACK * (placed ? call->nranks - 1 : 1);
    if (packs <= ONESHOT_ALONE) {
        choice->threads = at_least_1((uint32_t)(packs + 31) / 32) * 32;
        choice->blocks = 1;
    } else {
        choice->threads = packs <= 2 * ONESHOT_BLOCKS * ONESHOT_THREADS ? ONESHOT_THREADS : ONESHOT_THREADS_MAX;
        choice->blocks = min_u32((packs + choice->threads - 1) / choice->threads, ONESHOT_BLOCKS);
    }
}

static void shape_st(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    const uint64_t bytes = call->bytes * (is_whole(call->coll) ? 1 : call->nranks);
    const bool middle = GPUSYM_F_RSXST_AGXST_Z == choice->family && bytes > MIDDLE_MIN && bytes <= MIDDLE_MAX;
    choice->threads = middle ? MIDDLE_THREADS : TWOSHOT_THREADS;
    choice->blocks = min_u32(bytes / TWOSHOT_BYTES_PER_BLOCK, middle ? MIDDLE_BLOCKS : TWOSHOT_BLOCKS);
}

static void shape_ll128(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    const uint64_t group = (uint64_t)GPUSYM_LL128_PACKS * GPUSYM_PACK * call->nranks; /* one of each slice */
    const uint64_t groups = (call->bytes + group - 1) / group;
    choice->threads = groups <= TWOSHOT_LL128_FEW ? TWOSHOT_LL128_THREADS : TWOSHOT_LL128_THREADS_MAX;
    choice->blocks = min_u32((groups + choice->threads / 32 - 1) / (choice->threads / 32), TWOSHOT_LL128_BLOCKS);
}

/* Rings, chains and trees: channels, and pieces. */
static void shape_channels(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    const int schedule = gpusym_algorithm_schedule((unsigned)choice->algorithm);
    const bool ll = GPUSYM_F_CHAN_LL == choice->family || GPUSYM_F_CHAN_LL_R == choice->family;
    const bool ll128 = gpusym_family_ll128(choice->family);
    const uint32_t worth = ll ? CHANNEL_LL_BYTES : ll128 ? CHANNEL_LL128_BYTES : CHANNEL_SIMPLE_BYTES;
    const uint32_t least = schedule >= GS_TREE_ALLREDUCE ? 2 : 1; /* both trees */
    const uint64_t bytes = call->bytes * (is_whole(call->coll) ? 1 : call->nranks);
    choice->blocks = min_u32(bytes / worth, GPUSYM_CHANNELS_MAX);
    choice->blocks = choice->blocks < least ? least : choice->blocks;
    const bool many = ll128 ? bytes / choice->blocks >= CHANNEL_LL128_LONG : !ll && schedule >= GS_TREE_ALLREDUCE;
    choice->threads = many ? CHANNEL_THREADS_LONG : CHANNEL_THREADS;
    if (0 == choice->chunk) {
        const uint32_t piece = min_u32(bytes / choice->blocks / CHANNEL_PIECES, CHANNEL_PIECE_MAX);
        choice->chunk = schedule <= GS_RING_REDUCE_SCATTER ? CHANNEL_PIECE_RING
                        : piece < CHANNEL_PIECE_MIN        ? CHANNEL_PIECE_MIN
                                                           : piece;
    }
    /* Ranks hand results on straight into the next one's output, where there are results to hand on. */
    choice->zero_copy = call->zero_copy && !ll && !ll128 && GS_RING_REDUCE_SCATTER != schedule &&
                        GS_CHAIN_REDUCE != schedule && GS_TREE_REDUCE != schedule;
}

/* Copy engines: pieces, and what reduces them. */
static void shape_copies(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    const uint64_t slice = is_whole(call->coll) ? call->bytes / call->nranks : call->bytes;
    choice->threads = COPIES_THREADS;
    choice->blocks = min_u32(slice / COPIES_PIECES / COPIES_BYTES_PER_BLOCK, COPIES_BLOCKS);
    if (0 == choice->chunk) {
        const uint32_t piece = min_u32(slice / COPIES_PIECES, COPIES_PIECE_MAX);
        choice->chunk = piece < COPIES_PIECE_MIN ? COPIES_PIECE_MIN : piece;
    }
    choice->zero_copy = !is_reduce_scatter(call->coll);
}

/* The family for an algorithm with zero copy. */
static unsigned zero_copy_family(const gpusym_tuning_call_t *call, unsigned algorithm)
{
    switch (algorithm) {
    case GPUSYM_ALG_ALLREDUCE_RSXST_AGXST:
        return call->bytes <= pull_max[by_ranks(call->nranks)] ? GPUSYM_F_RSXLD_AGXST_Z : GPUSYM_F_RSXST_AGXST_Z;
    case GPUSYM_ALG_BCAST_ST:
        return call->bytes <= ROOT_MAX ? GPUSYM_F_XST_Z : GPUSYM_F_RSXLD_AGXST_Z;
    case GPUSYM_ALG_REDUCE_ST:
        return call->bytes <= ROOT_MAX ? GPUSYM_F_XLD_R_Z : GPUSYM_F_RSXLD_AGXST_Z;
    case GPUSYM_ALG_REDUCE_SCATTER_ST: /* staged stores beat loads: 55 to 65 us for 16 MiB on 4 x H200 */
    case GPUSYM_ALG_REDUCE_SCATTER_BLOCK_ST:
        return GPUSYM_F_XST_R;
    case GPUSYM_ALG_GATHERV_ST: /* only the root knows where all lies */
        return GPUSYM_F_XLD_Z;
    default:
        return gpusym_family_zero_copy(gpusym_algorithm_family(algorithm));
    }
}

static int by_table(const gpusym_tuning_call_t *call, uint64_t forced_max)
{
    const row_t *row = &rows[call->coll];
    const unsigned n = by_ranks(call->nranks);
    if (call->bytes <= (0 != forced_max ? forced_max : row->ll_max[n])) {
        return row->ll;
    }
    if (call->ll128 && call->bytes <= row->ll128_max[n]) {
        return row->ll128;
    }
    return call->copies && call->zero_copy && 0 != row->ce_min[n] && call->bytes >= row->ce_min[n] ? row->ce : row->st;
}

/* The algorithm along rings and chains alone; -1: none. */
static int by_ring(const gpusym_tuning_call_t *call)
{
    static const int ring[GPUSYM_COLL_COUNT][3] = {
#define ROW(coll, shape) \
    [GPUSYM_COLL_##coll] = {GPUSYM_ALG_##coll##_##shape##_LL, GPUSYM_ALG_##coll##_##shape##_LL128, \
                            GPUSYM_ALG_##coll##_##shape##_SIMPLE}
        ROW(ALLREDUCE, RING),
        ROW(ALLGATHER, RING),
        ROW(ALLGATHERV, RING),
        ROW(REDUCE_SCATTER, RING),
        ROW(REDUCE_SCATTER_BLOCK, RING),
        ROW(BCAST, CHAIN),
        ROW(REDUCE, CHAIN),
#undef ROW
    };
    const uint64_t bytes = call->bytes * (is_whole(call->coll) ? 1 : call->nranks);
    const int *row = ring[call->coll];
    if (row[0] == row[1] || (call->reproducible && !gpusym_algorithm_reproducible((unsigned)row[0]))) {
        return -1; /* not in the table, or not to be had */
    }
    return bytes <= RING_LL_MAX ? row[0] : bytes <= RING_LL128_MAX && call->ll128 ? row[1] : row[2];
}

/* Whether a call may have an algorithm. */
static bool to_be_had(const gpusym_tuning_call_t *call, unsigned algorithm)
{
    const unsigned family = gpusym_algorithm_family(algorithm);
    const int schedule = gpusym_algorithm_schedule(algorithm);
    if (gpusym_family_multicast(family) && (!call->multicast || !gpusym_family_valid(family, call->op, call->type))) {
        return false;
    }
    if (call->reproducible && !gpusym_algorithm_reproducible(algorithm)) {
        return false;
    }
    if (gpusym_family_copies(family) && (!call->copies || (!call->zero_copy && !is_reduce_scatter(call->coll)))) {
        return false;
    }
    if (!call->all_reach && (schedule < 0 || schedule >= GS_TREE_ALLREDUCE)) {
        return false;
    }
    return call->ll128 || !gpusym_family_ll128(family);
}

void gpusym_tuning_choose(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                          gpusym_tuning_choice_t *choice)
{
    const bool wanted = forced->algorithm >= 0 && to_be_had(call, (unsigned)forced->algorithm);
    /* Multicast, rings and trees are taken only by name where all reach all: the first has not been measured, the others
     * were slower. */
    choice->algorithm = wanted           ? forced->algorithm
                        : call->all_reach ? by_table(call, forced->oneshot_max)
                                          : by_ring(call);
    if (choice->algorithm < 0) {
        return;
    }
    const bool channels = gpusym_algorithm_schedule((unsigned)choice->algorithm) >= 0;
    const unsigned family = gpusym_algorithm_family((unsigned)choice->algorithm);
    choice->chunk = forced->chunk;
    choice->family = call->zero_copy && !channels ? zero_copy_family(call, (unsigned)choice->algorithm) : family;
    choice->zero_copy = choice->family != family;
    if (channels) {
        shape_channels(call, choice);
    } else if (GPUSYM_F_RSXLL128_AGXLL128 == choice->family) {
        shape_ll128(call, choice);
    } else if (gpusym_family_copies(family)) {
        shape_copies(call, choice);
    } else if (is_ll(choice->family)) {
        shape_ll(call, choice);
    } else {
        shape_st(call, choice);
    }
    if (call->simulated) {
        choice->blocks = min_u32(choice->blocks, SIM_BLOCKS);
    }
    if (0 != forced->threads) {
        choice->threads = (min_u32(forced->threads, GPUSYM_THREADS_MAX) + 31) / 32 * 32;
    }
    if (0 != forced->blocks) {
        choice->blocks = forced->blocks;
        if (0 == forced->threads && forced->blocks <= TWOSHOT_FEW_BLOCKS && is_stored(choice->family)) {
            choice->threads = TWOSHOT_FEW_THREADS;
        }
    }
    choice->blocks = at_least_1(min_u32(choice->blocks, call->max_blocks));
}

/* A new buffer costs one import a peer (about 0.1 ms), once; then a look at its allocation a call. */
uint64_t gpusym_tuning_zero_copy_min(bool simulated)
{
    return simulated ? 32u << 10 : 128u << 10;
}

/* Kernels that stay, on 4 x H200: 6.3 us in place of 12.4 at 8 bytes, 8.6 in place of 13.9 at 8 KiB; but the one block takes
 * 16.7 at 32 KiB, where 64 blocks and their launch take 14.1; on 2, it sends a third of those lines. 512 threads: 8 KiB took
 * 9.2 us with 256, 11.0 with 128; 8 bytes 0.1 us less with these. */
/* Longest message in bytes, by ranks: 2, up to 4, more. */
static const uint32_t stay_max[3] = {32u << 10, 16u << 10, 16u << 10};
#define STAY_THREADS 512u
/* How long, in us: longer than a solver's work between two sums (examples/cg on 2 x H200: 95 us an iteration without, 89 with 50,
 * 80 with 100, 82 with 200); as long as cudaDeviceSynchronize may wait for it. */
#define LINGER 100u

/* The simulator's kernels share the cores with the ranks: there they stay only when asked to. */
uint32_t gpusym_tuning_linger_us(bool simulated)
{
    return simulated ? 0 : LINGER;
}

uint64_t gpusym_tuning_stay_max(uint32_t nranks)
{
    return stay_max[by_ranks(nranks)];
}

uint32_t gpusym_tuning_stay_threads(void)
{
    return STAY_THREADS;
}

/* Whether calls that go without have long pauses as well: half as often, at least. */
static bool pauses_anyway(const gpusym_tuning_stay_t *s)
{
    return s->skipped >= GPUSYM_STAY_SKIP_FIRST / 2 &&
           (uint64_t)s->pauses * s->skipped <= 2 * (uint64_t)s->skipped_pauses * s->calls;
}

/* What is long ago counts less: programs change. */
static void age(uint32_t *calls, uint32_t *pauses)
{
    if (*calls > GPUSYM_STAY_RECENT) {
        *calls /= 2;
        *pauses /= 2;
    }
}

void gpusym_tuning_stay_skip(gpusym_tuning_stay_t *s)
{
    s->skip = s->skips > 5 ? GPUSYM_STAY_SKIP_MOST : GPUSYM_STAY_SKIP_FIRST << s->skips;
    s->skips++;
    s->misses = 0;
    s->calls = s->pauses = s->skipped = s->skipped_pauses = 0; /* what comes then may be another program */
    s->skipped_ns = 0;
}

bool gpusym_tuning_stay_next(gpusym_tuning_stay_t *s, uint64_t linger_ns, uint64_t now_ns)
{
    if (0 == s->skip) {
        return true;
    }
    s->skip--;
    s->skipped++;
    s->skipped_pauses += 0 != s->skipped_ns && now_ns - s->skipped_ns > linger_ns;
    s->skipped_ns = now_ns;
    age(&s->skipped, &s->skipped_pauses);
    return false;
}

void gpusym_tuning_stay_gone(gpusym_tuning_stay_t *s, uint32_t served, uint64_t linger_ns, enum gpusym_stay_gone why)
{
    const bool left = GPUSYM_STAY_LEFT == why;
    s->calls += 1 + served;
    s->pauses += left;
    if ((uint64_t)served * GPUSYM_STAY_GAIN_NS >= linger_ns) {
        s->misses = s->skips = 0;
    } else if (left && served > 0 && pauses_anyway(s)) {
        s->misses = s->skips = 0;
        if (++s->excused >= GPUSYM_STAY_EXCUSED) {
            s->excused = s->skipped = s->skipped_pauses = 0;
            s->skip = GPUSYM_STAY_SKIP_FIRST / 2 + 1; /* the first of these does not tell of a pause */
            s->skipped_ns = 0;
        }
    } else if (GPUSYM_STAY_TOLD != why && ++s->misses >= GPUSYM_STAY_MISSES) {
        gpusym_tuning_stay_skip(s);
    }
    age(&s->calls, &s->pauses);
}
