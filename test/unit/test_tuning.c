/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of tuning/tuning.c: whatever the call, the choice can be launched, is the same on every rank, and is what
 * the user forces.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "tuning/tuning.h"
#include "test/unit/random.h"

static const gpusym_tuning_forced_t nothing = {.algorithm = -1};

static void say(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                const gpusym_tuning_choice_t *choice)
{
    print_error("%lu bytes, %u ranks, %u SMs, simulated %d, LL payload %lu, %u blocks at most; forced %d %lu %u %u: "
                "algorithm %d, %u blocks of %u threads\n",
                (unsigned long) call->bytes, call->nranks, call->sm_count, call->simulated,
                (unsigned long) call->ll_payload, call->max_blocks, forced->algorithm,
                (unsigned long) forced->oneshot_max, forced->blocks, forced->threads, choice->algorithm, choice->blocks,
                choice->threads);
}

static bool within_bounds(const gpusym_tuning_call_t *call, const gpusym_tuning_choice_t *c)
{
    return c->algorithm >= 0 && c->algorithm < GPUSYM_ALG_COUNT && c->blocks >= 1 && c->blocks <= call->max_blocks &&
           c->threads >= 32 && c->threads <= GPUSYM_THREADS_MAX && 0 == c->threads % 32;
}

static bool as_forced(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *f,
                      const gpusym_tuning_choice_t *c)
{
    if (f->algorithm >= 0 && c->algorithm != f->algorithm) {
        return false;
    }
    if (f->algorithm < 0 && 0 != f->oneshot_max &&
        (GPUSYM_ALG_AGXLL_R == c->algorithm) != (call->bytes <= f->oneshot_max)) {
        return false;
    }
    if (0 != f->blocks && c->blocks != (f->blocks < call->max_blocks ? f->blocks : call->max_blocks)) {
        return false;
    }
    return 0 == f->threads || 0 != f->threads % 32 || f->threads > GPUSYM_THREADS_MAX || c->threads == f->threads;
}

static gpusym_tuning_choice_t choose(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced)
{
    gpusym_tuning_choice_t first, again;
    memset(&first, 0x11, sizeof first);
    memset(&again, 0x22, sizeof again);
    gpusym_tuning_allreduce(call, forced, &first);
    gpusym_tuning_allreduce(call, forced, &again);
    if (!within_bounds(call, &first) || !as_forced(call, forced, &first) || first.algorithm != again.algorithm ||
        first.blocks != again.blocks || first.threads != again.threads) {
        say(call, forced, &first);
        fail();
    }
    return first;
}

/* 1, 2, 3, then every power of two with its neighbours and a random size, up to 2^33. */
static unsigned sizes(uint64_t *size)
{
    unsigned n = 0;
    size[n++] = 0;
    for (unsigned b = 0; b <= 33; b++) {
        size[n++] = (1ull << b) - (b > 0);
        size[n++] = 1ull << b;
        size[n++] = (1ull << b) + 1;
        size[n++] = (1ull << b) + next_random() % (1ull << b);
    }
    return n;
}
#define SIZES (1 + 4 * 34)

static void any_call_can_be_launched(void **state)
{
    (void) state;
    uint64_t size[SIZES];
    const unsigned n = sizes(size);
    for (uint32_t sm = 1; sm <= 200; sm++) {
        for (uint32_t ranks = 1; ranks <= GPUSYM_TEAM_MAX; ranks++) {
            for (unsigned k = 0; k < 2 * n; k++) {
                gpusym_tuning_call_t call = {.bytes = size[k / 2],
                                             .nranks = ranks,
                                             .sm_count = sm,
                                             .simulated = k % 2,
                                             .ll_payload = 16ull << next_random() % 20};
                call.max_blocks = gpusym_tuning_max_blocks(sm, call.simulated);
                if (0 == next_random() % 4) { /* a small slot has room for fewer */
                    call.max_blocks = 1 + (uint32_t) (next_random() % call.max_blocks);
                }
                choose(&call, &nothing);
            }
        }
    }
}

static void what_is_forced_is_taken(void **state)
{
    (void) state;
    static const uint32_t threads[] = {0, 32, 64, 256, 512, 1, 33, 500, 1024, UINT32_MAX};
    static const uint32_t blocks[] = {0, 1, 2, 3, 7, 32, 64, 128, 256, UINT32_MAX};
    uint64_t size[SIZES];
    const unsigned n = sizes(size);
    for (unsigned i = 0; i < 300000; i++) {
        gpusym_tuning_call_t call = {.bytes = size[next_random() % n],
                                     .nranks = 1 + (uint32_t) (next_random() % GPUSYM_TEAM_MAX),
                                     .sm_count = 1 + (uint32_t) (next_random() % 200),
                                     .simulated = next_random() % 2,
                                     .ll_payload = 16 + next_random() % 100000};
        const gpusym_tuning_forced_t forced = {.algorithm = (int) (next_random() % (GPUSYM_ALG_COUNT + 1)) - 1,
                                               .oneshot_max = next_random() % 2 ? 0 : size[next_random() % n],
                                               .blocks = blocks[next_random() % 10],
                                               .threads = threads[next_random() % 10]};
        call.max_blocks = 1 + (uint32_t) (next_random() % GPUSYM_BLOCKS_MAX);
        choose(&call, &forced);
    }
}

/* Once a message is too large for the one-shot, every larger one is. */
static void oneshot_is_for_the_small(void **state)
{
    (void) state;
    for (uint32_t ranks = 2; ranks <= GPUSYM_TEAM_MAX; ranks++) {
        bool large = false;
        for (uint64_t bytes = 1; bytes < 1ull << 33; bytes += 1 + bytes / 16) {
            const gpusym_tuning_call_t call = {bytes, ranks, 132, false, 64 << 10, 128};
            const bool oneshot = GPUSYM_ALG_AGXLL_R == choose(&call, &nothing).algorithm;
            assert_false(large && oneshot);
            large = !oneshot;
        }
        assert_true(large);
        const gpusym_tuning_call_t least = {8, ranks, 132, false, 64 << 10, 128};
        assert_int_equal(choose(&least, &nothing).algorithm, GPUSYM_ALG_AGXLL_R);
    }
}

/* A slot is divided for this many: no more than flag rows, and no less for a larger GPU. */
static void blocks_fit_the_flag_rows(void **state)
{
    (void) state;
    for (int simulated = 0; simulated < 2; simulated++) {
        uint32_t before = 1;
        for (uint32_t sm = 0; sm <= 1000; sm++) {
            const uint32_t most = gpusym_tuning_max_blocks(sm, simulated);
            assert_in_range(most, before, GPUSYM_BLOCKS_MAX);
            before = most;
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_can_be_launched),
        cmocka_unit_test(what_is_forced_is_taken),
        cmocka_unit_test(oneshot_is_for_the_small),
        cmocka_unit_test(blocks_fit_the_flag_rows),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("tuning", tests, NULL, NULL);
}
