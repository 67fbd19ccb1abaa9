/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/team.c, against a model that numbers hosts as they come.
 * A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mca/common/gpusym/team.h"
#include "test/unit/random.h"

#define RANKS 40

/* Groups ranks whose host (a small number) is given; keys that differ in one word only are different hosts. */
static void check_nodes(const unsigned *host_of, uint32_t n, const gpusym_host_t *key_of)
{
    gpusym_host_t hosts[RANKS];
    uint32_t number[RANKS], leader[RANKS], size[RANKS], local[RANKS], nhosts = 0;

    for (uint32_t r = 0; r < n; r++) {
        uint32_t h = 0;
        hosts[r] = key_of[host_of[r]];
        while (h < nhosts && host_of[leader[h]] != host_of[r]) {
            h++;
        }
        if (h == nhosts) {
            leader[nhosts] = r;
            size[nhosts++] = 0;
        }
        number[r] = h;
        local[r] = size[h]++;
    }
    for (uint32_t r = 0; r < n; r++) {
        gpusym_nodes_t nodes;
        memset(&nodes, 0xff, sizeof nodes);
        gpusym_team_nodes(hosts, n, r, &nodes);
        assert_int_equal(nodes.nhosts, nhosts);
        assert_int_equal(nodes.host, number[r]);
        assert_int_equal(nodes.leader, leader[number[r]]);
        assert_int_equal(nodes.local_rank, local[r]);
        assert_int_equal(nodes.local_size, size[number[r]]);
    }
}

static void random_hosts(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 3000; i++) {
        const uint32_t n = 1 + (uint32_t) (next_random() % RANKS), most = 1 + (uint32_t) (next_random() % n);
        gpusym_host_t key_of[RANKS];
        unsigned host_of[RANKS];
        for (uint32_t r = 0; r < n; r++) {
            /* every second host differs from the one before it in the second word alone */
            key_of[r].key[0] = r % 2 ? key_of[r - 1].key[0] : next_random();
            key_of[r].key[1] = r % 4 < 2 ? next_random() : key_of[r - 2].key[1];
            host_of[r] = (unsigned) (next_random() % most);
        }
        check_nodes(host_of, n, key_of);
    }
}

static void one_host_and_a_host_each(void **state)
{
    (void) state;
    const gpusym_host_t key_of[] = {{{1, 1}}, {{1, 2}}, {{2, 1}}, {{2, 2}}};
    const unsigned together[RANKS] = {0}, apart[] = {3, 1, 0, 2}, blocks[] = {1, 1, 0, 0, 1, 1, 2};
    check_nodes(together, 1, key_of);
    check_nodes(together, RANKS, key_of);
    check_nodes(apart, 4, key_of);
    check_nodes(blocks, 7, key_of);
}

static void shared_gpus_are_found(void **state)
{
    (void) state;
    struct {
        uint32_t before;
        uint8_t uuid[16];
        uint64_t after;
    } all[RANKS];
    for (unsigned i = 0; i < 3000; i++) {
        const uint32_t n = 1 + (uint32_t) (next_random() % RANKS);
        uint32_t a = 77, b = 77, want_a = 77, want_b = 77;
        for (uint32_t r = 0; r < n; r++) {
            const uint64_t id = next_random() % (4 * RANKS * RANKS / 2);
            all[r].before = all[r].after = 1; /* what lies between does not count */
            memset(all[r].uuid, 7, sizeof all[r].uuid);
            memcpy(all[r].uuid + (i % 2 ? 0 : 8), &id, sizeof id);
        }
        for (uint32_t x = 0; 77 == want_a && x < n; x++) {
            for (uint32_t y = x + 1; 77 == want_a && y < n; y++) {
                if (0 == memcmp(all[x].uuid, all[y].uuid, 16)) {
                    want_a = x;
                    want_b = y;
                }
            }
        }
        const bool shared = gpusym_team_shared_gpu(all[0].uuid, sizeof all[0], n, &a, &b);
        assert_int_equal(shared, 77 != want_a);
        if (shared) {
            assert_int_equal(a, want_a);
            assert_int_equal(b, want_b);
        }
    }
}

/* The same at any time and in any process of this host. */
static void our_host_is_stable(void **state)
{
    (void) state;
    gpusym_host_t first, again;
    int status;
    memset(&first, 0x11, sizeof first);
    memset(&again, 0x22, sizeof again);
    gpusym_host_self(&first);
    gpusym_host_self(&again);
    assert_memory_equal(&first, &again, sizeof first);
    assert_true(0 != first.key[0] && 0 != first.key[1]);

    const pid_t child = fork();
    assert_true(child >= 0);
    if (0 == child) {
        gpusym_host_self(&again);
        _exit(0 == memcmp(&first, &again, sizeof first) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_hosts),
        cmocka_unit_test(one_host_and_a_host_each),
        cmocka_unit_test(shared_gpus_are_found),
        cmocka_unit_test(our_host_is_stable),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
