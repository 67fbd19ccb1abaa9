/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of tuning/halving.c.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tuning/halving.h"
#include "test/unit/random.h"

typedef struct {
    double seconds[GPUSYM_TUNING_CANDIDATES_MAX]; /* negative: cannot be measured */
    unsigned long calls;                          /* so far */
    double noise;                                 /* of one call, at most; less the more calls there are */
} machine_t;

static double measure(void *arg, unsigned i, unsigned calls)
{
    machine_t *m = arg;
    m->calls += calls;
    return m->seconds[i] < 0 ? -1 : m->seconds[i] * (1 + m->noise * (double) (next_random() % 1000) / 1000 / calls);
}

/* Without noise the best is first and, by the last rounds, better ones before worse; all numbers come up once. */
static void the_best_is_first(void **state)
{
    (void) state;
    for (unsigned n = 1; n <= GPUSYM_TUNING_CANDIDATES_MAX; n++) {
        machine_t m = {.noise = 0};
        unsigned order[GPUSYM_TUNING_CANDIDATES_MAX], can = 0, seen[GPUSYM_TUNING_CANDIDATES_MAX] = {0};
        for (unsigned i = 0; i < n; i++) {
            m.seconds[i] = 0 == next_random() % 5 ? -1 : (double) (1 + next_random() % 1000);
            can += m.seconds[i] >= 0;
        }
        assert_int_equal(gpusym_tuning_halve(n, 4, measure, &m, order), can);
        for (unsigned i = 0; i < n; i++) {
            seen[order[i]]++;
            assert_int_equal(m.seconds[order[i]] >= 0, i < can);
            assert_true(0 == i || i >= can || m.seconds[order[i - 1]] <= m.seconds[order[i]]);
        }
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(seen[i], 1);
        }
    }
}

/* Where few calls mislead, one of the best is found; by fewer calls than all candidates would take as long as the last
 * ones. */
static void noise_costs_little(void **state)
{
    unsigned best = 0;
    (void) state;
    for (unsigned run = 0; run < 200; run++) {
        machine_t m = {.noise = 4};
        unsigned order[GPUSYM_TUNING_CANDIDATES_MAX];
        for (unsigned i = 0; i < 32; i++) {
            m.seconds[i] = 1 + 0.1 * i;
        }
        assert_int_equal(gpusym_tuning_halve(32, 8, measure, &m, order), 32);
        best += order[0] <= 1;
        assert_true(m.calls < 32 * 8 * 16 / 3);
    }
    assert_in_range(best, 160, 200);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_is_first),
        cmocka_unit_test(noise_costs_little),
    };

    random_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
