/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/topo/islands.c: known placements, and random ones against what islands must be. A
 * seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/topo/islands.h"
#include "test/unit/random.h"

#define MOST (1u << 17)

static uint64_t host[MOST];
static gpusym_islands_t islands;

static void make(uint32_t n, uint32_t node_size)
{
    const gpusym_islands_of_t of = {.nranks = n, .host = host, .node_size = node_size};
    assert_true(gpusym_islands_make(&of, &islands));
    assert_int_equal(islands.nranks, n);
}

/* What holds of all islands: both maps agree, members and leaders rise, each island is of one host. */
static void check_maps(void)
{
    uint32_t members = 0, most = 0;
    for (uint32_t i = 0; i < islands.nislands; i++) {
        const uint32_t size = gpusym_island_size(&islands, i);
        assert_in_range(size, 1, GPUSYM_ISLAND_MAX);
        most = size > most ? size : most;
        members += size;
        for (uint32_t k = 0; k < size; k++) {
            const uint32_t rank = gpusym_island_member(&islands, i, k);
            assert_int_equal(gpusym_islands_find(&islands, rank), i);
            assert_int_equal(gpusym_islands_number(&islands, rank), k);
            assert_int_equal(host[rank], host[gpusym_island_member(&islands, i, 0)]);
            assert_true(0 == k || rank > gpusym_island_member(&islands, i, k - 1));
        }
        assert_true(0 == i || gpusym_island_member(&islands, i, 0) > gpusym_island_member(&islands, i - 1, 0));
    }
    assert_int_equal(members, islands.nranks);
    assert_int_equal(most, islands.most);
}

/* The sizes of all islands: n numbers. */
static void check_sizes(uint32_t n, const uint32_t *sizes)
{
    check_maps();
    assert_int_equal(islands.nislands, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(gpusym_island_size(&islands, i), sizes[i]);
    }
    gpusym_islands_free(&islands);
}

static void hosts_of_unequal_size(void **state)
{
    (void) state;
    for (uint32_t r = 0; r < 6; r++) {
        host[r] = r < 1 ? 70 : r < 3 ? 7 : UINT64_MAX;
    }
    make(6, 0);
    check_sizes(3, (const uint32_t[]){1, 2, 3});
    make(1, 0);
    check_sizes(1, (const uint32_t[]){1});
}

static void one_rank_a_host(void **state)
{
    (void) state;
    for (uint32_t r = 0; r < 100; r++) {
        host[r] = r << 16;
    }
    make(100, 0);
    check_maps();
    assert_int_equal(islands.nislands, 100);
    assert_int_equal(islands.most, 1);
    gpusym_islands_free(&islands);
}

static void round_robin(void **state)
{
    (void) state;
    for (uint32_t r = 0; r < 11; r++) {
        host[r] = r % 4;
    }
    make(11, 0);
    check_maps();
    assert_int_equal(gpusym_islands_find(&islands, 6), 2);
    assert_int_equal(gpusym_island_member(&islands, 2, 1), 6);
    assert_int_equal(gpusym_islands_number(&islands, 10), 2);
    check_sizes(4, (const uint32_t[]){3, 3, 3, 2});
}

static void large_hosts_are_divided(void **state)
{
    (void) state;
    memset(host, 0, sizeof host);
    make(31, 0);
    check_sizes(1, (const uint32_t[]){31});
    make(32, 0);
    check_sizes(2, (const uint32_t[]){16, 16});
    make(65, 0);
    check_sizes(3, (const uint32_t[]){22, 22, 21});
    for (uint32_t r = 0; r < 45; r++) { /* 5 ranks of another host among 40 */
        host[r] = 0 == r % 9;
    }
    make(45, 0);
    check_sizes(3, (const uint32_t[]){5, 20, 20});
}

static void node_size(void **state)
{
    (void) state;
    memset(host, 0, sizeof host);
    make(7, 3);
    check_sizes(3, (const uint32_t[]){3, 3, 1});
    make(3, 1);
    check_sizes(3, (const uint32_t[]){1, 1, 1});
    make(40, 1000);
    check_sizes(2, (const uint32_t[]){31, 9});
    for (uint32_t r = 0; r < 6; r++) { /* no island has ranks of two hosts */
        host[r] = r % 2;
    }
    make(6, 2);
    check_sizes(4, (const uint32_t[]){2, 2, 1, 1});
}

/* Ranks reach each other where that says so. */
static bool reach_below(void *arg, uint32_t a, uint32_t b)
{
    const uint32_t border = *(const uint32_t *) arg;
    return (a < border) == (b < border);
}

static void gpus_that_do_not_reach_each_other(void **state)
{
    (void) state;
    uint32_t border = 3;
    const gpusym_islands_of_t of = {.nranks = 8, .host = host, .reach = reach_below, .arg = &border};
    memset(host, 0, sizeof host);
    assert_true(gpusym_islands_make(&of, &islands));
    check_sizes(2, (const uint32_t[]){3, 5});
    border = 0; /* all do */
    assert_true(gpusym_islands_make(&of, &islands));
    check_sizes(1, (const uint32_t[]){8});
}

static uint8_t reaches[64][64];

static bool reach_random(void *arg, uint32_t a, uint32_t b)
{
    (void) arg;
    assert_int_equal(host[a], host[b]);
    return 0 != reaches[a][b];
}

/* Whether two islands are of one host, and could be one. */
static bool could_be_one(uint32_t i, uint32_t j)
{
    const uint32_t n = gpusym_island_size(&islands, i), m = gpusym_island_size(&islands, j);
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = 0; b < m; b++) {
            const uint32_t x = gpusym_island_member(&islands, i, a), y = gpusym_island_member(&islands, j, b);
            if (host[x] != host[y] || !reaches[x][y]) {
                return false;
            }
        }
    }
    return true;
}

static void random_islands(void **state)
{
    (void) state;
    for (unsigned round = 0; round < 2000; round++) {
        const uint32_t n = 1 + (uint32_t) (next_random() % 60), hosts = 1 + (uint32_t) (next_random() % 6);
        const uint64_t missing = next_random() % 4;
        for (uint32_t a = 0; a < n; a++) {
            host[a] = next_random() % hosts * 0x100000000ull;
            for (uint32_t b = 0; b <= a; b++) {
                reaches[a][b] = reaches[b][a] = next_random() % 4 >= missing;
            }
        }
        const gpusym_islands_of_t of = {
            .nranks = n, .host = host, .node_size = GPUSYM_ISLAND_MAX, .reach = reach_random};
        assert_true(gpusym_islands_make(&of, &islands));
        check_maps();
        for (uint32_t i = 0; i < islands.nislands; i++) {
            const uint32_t size = gpusym_island_size(&islands, i);
            for (uint32_t k = 0; k < size * size; k++) {
                const uint32_t a = gpusym_island_member(&islands, i, k / size);
                const uint32_t b = gpusym_island_member(&islands, i, k % size);
                assert_true(a == b || reaches[a][b]);
            }
            for (uint32_t j = 0; j < i; j++) {
                const bool room = gpusym_island_size(&islands, j) + size <= GPUSYM_ISLAND_MAX;
                assert_true(!room || !could_be_one(i, j));
            }
        }
        gpusym_islands_free(&islands);
    }
}

/* Every rail has one owner in an island of any size, and each member knows its own. */
static void rails_have_owners(void **state)
{
    (void) state;
    for (uint32_t size = 1; size <= GPUSYM_ISLAND_MAX; size++) {
        for (uint32_t rails = 1; rails <= 2 * GPUSYM_ISLAND_MAX; rails++) {
            for (uint32_t i = 0; i < size; i++) {
                const uint32_t first = gpusym_rail_first(size, i, rails), end = gpusym_rail_first(size, i + 1, rails);
                for (uint32_t rail = 0; rail < rails; rail++) {
                    assert_int_equal(i == gpusym_rail_owner(size, rail, rails), rail >= first && rail < end);
                }
            }
            assert_int_equal(gpusym_rail_first(size, size, rails), rails);
        }
    }
}

/* In at most 6 bytes a rank, up to where numbers of 2 bytes end; and beyond. */
static void many_ranks(void **state)
{
    (void) state;
    static const uint32_t per_host[] = {1, 8, 72};
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t r = 0; r < MOST; r++) {
            host[r] = r / per_host[i] * 0x10001ull;
        }
        make(65536, 0);
        check_maps();
        assert_in_range(islands.bytes, 1, 6 * 65536);
        assert_int_equal(islands.most, per_host[i] > 32 ? 24 : per_host[i]);
        gpusym_islands_free(&islands);
        make(MOST, 0);
        check_maps();
        assert_int_equal(gpusym_islands_find(&islands, MOST - 1), islands.nislands - 1);
        gpusym_islands_free(&islands);
    }
    for (uint32_t r = 0; r < MOST; r++) {
        host[r] = r % 4096; /* round-robin */
    }
    make(65536, 0);
    check_maps();
    assert_int_equal(gpusym_island_member(&islands, 5, 15), 5 + 15 * 4096);
    gpusym_islands_free(&islands);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_of_unequal_size),
        cmocka_unit_test(one_rank_a_host),
        cmocka_unit_test(round_robin),
        cmocka_unit_test(large_hosts_are_divided),
        cmocka_unit_test(node_size),
        cmocka_unit_test(gpus_that_do_not_reach_each_other),
        cmocka_unit_test(random_islands),
        cmocka_unit_test(rails_have_owners),
        cmocka_unit_test(many_ranks),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("islands", tests, NULL, NULL);
}
