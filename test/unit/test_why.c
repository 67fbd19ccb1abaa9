/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of tuning/why.c: what it says of a call is what the choice does.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/memory/heap.h"
#include "tuning/why.h"
#include "test/unit/random.h"

static gpusym_tuning_call_t draw_call(void)
{
    gpusym_tuning_call_t call = {.coll = (unsigned) (next_random() % GPUSYM_COLL_COUNT),
                                 .nranks = 2 + (uint32_t) (next_random() % (GPUSYM_TEAM_MAX - 1)),
                                 .sm_count = 1 + (uint32_t) (next_random() % 200),
                                 .simulated = next_random() % 2,
                                 .zero_copy = next_random() % 2,
                                 .multicast = next_random() % 2,
                                 .mc_requested = next_random() % 2,
                                 .reproducible = 0 == next_random() % 4,
                                 .all_reach = 0 != next_random() % 4,
                                 .ll128 = next_random() % 2,
                                 .copies = next_random() % 2};
    do {
        call.op = (unsigned) (next_random() % GPUSYM_OP_COUNT);
        call.type = (unsigned) (next_random() % GPUSYM_T_COUNT);
    } while (!gpusym_op_valid(call.op, call.type));
    return call;
}

/* The drawn call, of any length; zero copy from a length on, as where ranks map long buffers only. */
static gpusym_tuning_call_t as_long(const void *arg, uint64_t bytes)
{
    gpusym_tuning_call_t call = *(const gpusym_tuning_call_t *) arg;

    call.bytes = bytes;
    call.zero_copy = call.zero_copy && bytes >= gpusym_tuning_zero_copy_min(call.nranks, call.simulated);
    return call;
}

static void divide_slot(gpusym_work_t *slot, gpusym_tuning_call_t *call)
{
    do {
        call->max_blocks = gpusym_slot_layout((4096ull << next_random() % 14) + 256 * (next_random() % 9), call->nranks,
                                              gpusym_tuning_max_blocks(call->sm_count, call->simulated), slot);
    } while (0 == call->max_blocks);
    slot->nranks = call->nranks;
    call->ll_payload = slot->ll_bytes / 2;
}

/* An algorithm is taken where it is forced if it lacks nothing, and not if it lacks something; none is chosen that
 * does. */
static void what_lacks_nothing_can_be_forced(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 20000; i++) {
        gpusym_tuning_call_t call = draw_call();
        gpusym_work_t slot = {0};
        divide_slot(&slot, &call);
        gpusym_tuning_question_t question = {.call = as_long, .arg = &call, .slot = &slot};
        const uint64_t bytes = 1 + next_random() % (1ull << next_random() % 34);
        for (int algorithm = 0; algorithm < GPUSYM_ALG_COUNT; algorithm++) {
            if (gpusym_algorithm_collective((unsigned) algorithm) != call.coll) {
                continue;
            }
            question.forced.algorithm = algorithm;
            const gpusym_tuning_lack_t lack = gpusym_tuning_ask_lack(&question, bytes, (unsigned) algorithm);
            const int chosen = gpusym_tuning_ask(&question, bytes).algorithm;
            assert_true(lack < GPUSYM_TUNING_LACKS_COUNT);
            assert_int_equal('\0' == *gpusym_tuning_lack_words(lack), GPUSYM_TUNING_LACKS_NOTHING == lack);
            if (GPUSYM_TUNING_LACKS_NOTHING == lack) {
                assert_int_equal(chosen, algorithm);
            } else {
                question.forced.algorithm = -1;
                assert_int_equal(chosen, gpusym_tuning_ask(&question, bytes).algorithm);
            }
            assert_true(chosen < 0 ||
                        GPUSYM_TUNING_LACKS_NOTHING == gpusym_tuning_ask_lack(&question, bytes, (unsigned) chosen));
        }
    }
}

/* Ranges follow each other, and the choice is theirs at both ends and between them. */
static void ranges_are_what_is_chosen(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 4000; i++) {
        gpusym_tuning_call_t call = draw_call();
        gpusym_work_t slot = {0};
        gpusym_tuning_range_t range[GPUSYM_TUNING_RANGES_MAX];
        divide_slot(&slot, &call);
        const gpusym_tuning_question_t question = {
            .call = as_long,
            .arg = &call,
            .slot = &slot,
            .forced = {.algorithm = -1, .oneshot_max = 0 == next_random() % 4 ? next_random() % (1u << 24) : 0}};
        const unsigned n = gpusym_tuning_ranges(&question, range);
        assert_in_range(n, 1, GPUSYM_TUNING_RANGES_MAX - 1);
        assert_true(1 == range[0].from && GPUSYM_TUNING_BYTES_MAX == range[n - 1].to);
        for (unsigned k = 0; k < n; k++) {
            const uint64_t length = range[k].to - range[k].from + 1;
            assert_true(range[k].from <= range[k].to && (0 == k || range[k - 1].to + 1 == range[k].from));
            assert_true(0 == k || range[k - 1].algorithm != range[k].algorithm);
            assert_int_equal(gpusym_tuning_ask(&question, range[k].from).algorithm, range[k].algorithm);
            assert_int_equal(gpusym_tuning_ask(&question, range[k].to).algorithm, range[k].algorithm);
            for (unsigned j = 0; j < 4; j++) {
                const uint64_t bytes = range[k].from + next_random() % length;
                assert_int_equal(gpusym_tuning_ask(&question, bytes).algorithm, range[k].algorithm);
            }
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lacks_nothing_can_be_forced),
        cmocka_unit_test(ranges_are_what_is_chosen),
    };

    random_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
