/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Resident kernels: their limits, and whether they are worth it.
 */
#include "tuning/resident.h"

#include "kernels/kernels.h"
#include "tuning/geometry.h"

/* Resident kernels on 4 x H200: 6.3 us in place of 12.4 at 8 bytes, 8.6 in place of 13.9 at 8 KiB; but the one block
 * takes 16.7 at 32 KiB, where 64 blocks and their launch take 14.1; on 2, it sends a third of those lines; on 8 it
 * takes 18.9 at 16 KiB, and they 15.3, for blocks of 16 KiB of an all-gather or all-to-all 29.4, and they 19.5 and
 * 18.5. 512 threads: 8 KiB took 9.2 us with 256, 11.0 with 128; 8 bytes 0.1 us less with these. */
#define RESIDENT_THREADS 512u
/* Longest message in bytes, by ranks. */
static const uint32_t resident_max[3] = {32u << 10, 16u << 10, 8u << 10};
/* The same of a cluster: not measured on more than two ranks. On 2 x H200 24, 32, 64 and 128 KiB take 7.5, 7.8, 7.8 and
 * 9.8 us, by one block 8.3 and 9.4, by a launch 11.5 and 12.6; 16 KiB as long by one block as by a cluster. Blocks
 * of an all-gather of 12, 16, 48 and 64 KiB 7.7, 7.8, 7.8 and 7.8, by one block 9.3 and 10.1, by a launch 11.8 and
 * 11.9. */
static const uint32_t cluster_max[3] = {128u << 10, 64u << 10, 32u << 10};
/* Up to here one block is to do it, where there are clusters: an all-reduce, two packs a thread; others, one, or, where
 * segments are placed, that of one peer. */
#define ALONE_MAX (2 * RESIDENT_THREADS * GPUSYM_PACK)
#define ALONE_OTHERS_MAX (RESIDENT_THREADS * GPUSYM_PACK)
/* How long, in us: longer than a solver's work between two sums (examples/cg on 2 x H200: 95 us an iteration without,
 * 89 with 50, 80 with 100, 82 with 200); as long as cudaDeviceSynchronize may wait for it. */
#define LINGER_US 100u
/* How often the calls that go without double: 64 to 4096. */
#define SKIPS_DOUBLE 6u

/* The simulator's kernels share the cores with the ranks: there they are resident only when the user sets it. */
uint32_t gpusym_tuning_linger_us(bool simulated)
{
    return simulated ? 0 : LINGER_US;
}

uint64_t gpusym_tuning_resident_max(uint32_t nranks, uint32_t blocks)
{
    const uint64_t most = (blocks > 1 ? cluster_max : resident_max)[gpusym_tuning_by_ranks(nranks)];
    /* A rank sends its lines to each other one: above 8 ranks, by the model (model.h), the fewer bytes. */
    return nranks <= 8 ? most : most / nranks * 8;
}

uint32_t gpusym_tuning_resident_blocks(unsigned family, uint32_t nranks, uint64_t bytes, bool clusters)
{
    const uint64_t alone = GPUSYM_F_AGXLL_R == family             ? ALONE_MAX
                           : GPUSYM_F_XLL == family && nranks > 2 ? ALONE_OTHERS_MAX / (nranks - 1)
                                                                  : ALONE_OTHERS_MAX;
    const uint64_t most = gpusym_tuning_resident_max(nranks, 1);
    return clusters && bytes > (alone < most ? alone : most) ? GPUSYM_CLUSTER_BLOCKS : 1;
}

uint32_t gpusym_tuning_resident_threads(void)
{
    return RESIDENT_THREADS;
}

/* Whether calls that go without have long pauses as well, at least half as often. */
static bool pauses_without_kernel(const gpusym_tuning_resident_t *s)
{
    return s->skipped >= GPUSYM_RESIDENT_SKIP_FIRST / 2 &&
           (uint64_t) s->pauses * s->skipped <= 2 * (uint64_t) s->skipped_pauses * s->calls;
}

/* Old calls count less: programs change. */
static void halve_old(uint32_t *calls, uint32_t *pauses)
{
    if (*calls > GPUSYM_RESIDENT_RECENT) {
        *calls /= 2;
        *pauses /= 2;
    }
}

/* How many calls go without, where some have `skips` times before. */
static uint32_t calls_without(uint32_t skips)
{
    return skips >= SKIPS_DOUBLE ? GPUSYM_RESIDENT_SKIP_MOST : GPUSYM_RESIDENT_SKIP_FIRST << skips;
}

void gpusym_tuning_resident_skip(gpusym_tuning_resident_t *s)
{
    s->skip = calls_without(s->skips);
    s->skips++;
    s->misses = 0;
    s->calls = s->pauses = s->skipped = s->skipped_pauses = 0; /* what comes then may be another program */
    s->skipped_ns = 0;
}

bool gpusym_tuning_resident_allow(gpusym_tuning_resident_t *s, uint64_t linger_ns, uint64_t now_ns)
{
    if (0 == s->skip) {
        return true;
    }
    s->skip--;
    s->skipped++;
    s->skipped_pauses += 0 != s->skipped_ns && now_ns - s->skipped_ns > linger_ns;
    s->skipped_ns = now_ns;
    halve_old(&s->skipped, &s->skipped_pauses);
    return false;
}

void gpusym_tuning_resident_ended(gpusym_tuning_resident_t *s, uint32_t served, uint64_t linger_ns,
                                  enum gpusym_resident_end why)
{
    const bool expired = GPUSYM_RESIDENT_EXPIRED == why;
    s->calls += 1 + served;
    s->pauses += expired;
    if ((uint64_t) served * GPUSYM_RESIDENT_GAIN_NS >= linger_ns) {
        s->misses = s->skips = 0;
    } else if (expired && served > 0 && pauses_without_kernel(s)) {
        s->misses = s->skips = 0;
        if (++s->excused >= GPUSYM_RESIDENT_EXCUSED) {
            s->excused = s->skipped = s->skipped_pauses = 0;
            s->skip = GPUSYM_RESIDENT_SKIP_FIRST / 2 + 1; /* the first of these does not tell of a pause */
            s->skipped_ns = 0;
        }
    } else if (GPUSYM_RESIDENT_RETIRED != why && ++s->misses >= GPUSYM_RESIDENT_MISSES) {
        gpusym_tuning_resident_skip(s);
    }
    halve_old(&s->calls, &s->pauses);
}

void gpusym_tuning_early_told(gpusym_tuning_early_t *e, const gpusym_tuning_told_t *told)
{
    e->waits += told->waits && e->waits < GPUSYM_EARLY_WAITS;
    e->waits = told->overlaps ? 0 : e->waits;
    e->skip -= 0 != e->skip;
    if (told->left && ++e->misses >= GPUSYM_RESIDENT_MISSES) {
        e->misses = 0;
        e->skip = calls_without(e->skips);
        e->skips++;
    } else if (told->early && !told->left) {
        e->misses = e->skips = 0;
    }
}
