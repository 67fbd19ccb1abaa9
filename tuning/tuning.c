/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The choice for all-reduce: a table of thresholds.  Constants have their unit and where they come from.
 */
#include "tuning/tuning.h"

#include "kernels/kernels.h"

/* Largest message for the one-shot: it sends (n - 1) * bytes as LL lines (twice that), the two-shot
 * 2 (n - 1) / n * bytes but with two barriers. In bytes, by ranks. */
static uint64_t oneshot_max(uint32_t nranks)
{
    if (nranks <= 2) {
        return 512u << 10;
    }
    return nranks <= 4 ? 128u << 10 : 64u << 10;
}

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

uint32_t gpusym_tuning_max_blocks(uint32_t sm_count, bool simulated)
{
    return at_least_1(simulated ? SIM_BLOCKS : min_u32(2 * sm_count, GPUSYM_BLOCKS_MAX));
}

static void oneshot(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    const uint64_t now = call->bytes < call->ll_payload ? call->bytes : call->ll_payload; /* one epoch at a time */
    const uint64_t packs = (now + GPUSYM_PACK - 1) / GPUSYM_PACK;
    choice->algorithm = GPUSYM_ALG_AGXLL_R;
    if (packs <= ONESHOT_ALONE) {
        choice->threads = at_least_1((uint32_t)(packs + 31) / 32) * 32;
        choice->blocks = 1;
    } else {
        choice->threads = packs <= 2 * ONESHOT_BLOCKS * ONESHOT_THREADS ? ONESHOT_THREADS : ONESHOT_THREADS_MAX;
        choice->blocks = min_u32((packs + choice->threads - 1) / choice->threads, ONESHOT_BLOCKS);
    }
    choice->chunk = 0;
}

static void twoshot(const gpusym_tuning_call_t *call, int algorithm, gpusym_tuning_choice_t *choice)
{
    choice->algorithm = algorithm;
    choice->threads = TWOSHOT_THREADS;
    choice->blocks = min_u32(call->bytes / TWOSHOT_BYTES_PER_BLOCK, TWOSHOT_BLOCKS);
    choice->chunk = 0;
}

void gpusym_tuning_allreduce(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                             gpusym_tuning_choice_t *choice)
{
    const uint64_t limit = 0 != forced->oneshot_max ? forced->oneshot_max : oneshot_max(call->nranks);
    int algorithm = forced->algorithm;
    if (algorithm < 0) {
        algorithm = call->bytes <= limit ? GPUSYM_ALG_AGXLL_R : GPUSYM_ALG_RSXST_AGXST;
    }
    if (GPUSYM_ALG_AGXLL_R == algorithm) {
        oneshot(call, choice);
    } else {
        twoshot(call, algorithm, choice);
    }
    if (call->simulated) {
        choice->blocks = min_u32(choice->blocks, SIM_BLOCKS);
    }
    if (0 != forced->threads) {
        choice->threads = (min_u32(forced->threads, GPUSYM_THREADS_MAX) + 31) / 32 * 32;
    }
    if (0 != forced->chunk) {
        choice->chunk = forced->chunk;
    }
    if (0 != forced->blocks) {
        choice->blocks = forced->blocks;
    }
    choice->blocks = at_least_1(min_u32(choice->blocks, call->max_blocks));
}
