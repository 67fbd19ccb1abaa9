/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/topo/rings.c: paths for every number of ranks to 4096, rings against a search of all
 * orders. A seed as the argument repeats a run.
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

#include "mca/common/gpusym/shm/host.h"
#include "mca/common/gpusym/topo/paths.h"
#include "mca/common/gpusym/topo/rings.h"
#include "test/unit/random.h"

#define RANKS 40

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

/* ---- paths ---- */

#define MOST 4096u

static gpusym_team_path_t paths[2][MOST]; /* of the trees or rings at hand: [which][rank] */

static void make_paths(uint32_t kind, uint32_t n, const uint32_t *order, unsigned which, uint32_t root)
{
    for (uint32_t r = 0; r < n; r++) {
        memset(&paths[which][r], 0xa5, sizeof paths[which][r]);
        gpusym_team_path(kind, n, order, which, r, root, &paths[which][r]);
    }
}

static bool has(const gpusym_team_path_t *path, uint32_t link)
{
    return 0 != (path->links & 1u << link);
}

/* Both ends of every link say the same of it. */
static void links_agree(const gpusym_team_path_t *all, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        assert_true(all[r].links < 1u << GS_LINKS);
        for (uint32_t link = 0; link < GS_LINKS; link++) {
            if (has(&all[r], link)) {
                const uint32_t peer = all[r].peer[link], peer_link = all[r].peer_link[link];
                assert_true(peer < n && peer != r && peer_link < GS_LINKS && has(&all[peer], peer_link));
                assert_true(all[peer].peer[peer_link] == r && all[peer].peer_link[peer_link] == link);
            }
        }
    }
}

static uint32_t log2_up(uint32_t n)
{
    uint32_t k = 0;
    while (1u << k < n) {
        k++;
    }
    return k;
}

/* Walks a tree in order from rank r down, depth links below the root; order gets the ranks. Returns how many. */
static uint32_t in_order(const gpusym_team_path_t *all, uint32_t r, uint32_t depth, uint32_t deepest, uint32_t *order)
{
    uint32_t count = 0;
    assert_true(depth <= deepest && depth == all[r].pos);
    if (has(&all[r], GS_CHILD0)) {
        count += in_order(all, all[r].peer[GS_CHILD0], depth + 1, deepest, order);
    }
    order[count++] = r;
    if (has(&all[r], GS_CHILD1)) {
        count += in_order(all, all[r].peer[GS_CHILD1], depth + 1, deepest, order + count);
    }
    return count;
}

/* One root, from which all are reached: then, links being n - 1 and agreeing, it is a tree. Returns the root. */
static uint32_t check_tree(const gpusym_team_path_t *all, uint32_t n, uint32_t *order)
{
    uint32_t roots = 0, root = 0;
    links_agree(all, n);
    for (uint32_t r = 0; r < n; r++) {
        if (!has(&all[r], GS_PARENT)) {
            roots++;
            root = r;
        }
        for (uint32_t c = GS_CHILD0; c <= GS_CHILD1; c++) {
            assert_true(!has(&all[r], c) || GS_PARENT == all[r].peer_link[c]);
        }
    }
    assert_int_equal(roots, 1);
    assert_int_equal(in_order(all, root, 0, log2_up(n) + 1, order), n);
    return root;
}

static bool inner(const gpusym_team_path_t *path)
{
    return has(path, GS_CHILD0) || has(path, GS_CHILD1);
}

/* root is let off: it may be inner in both */
static void none_inner_in_both(uint32_t n, uint32_t root)
{
    for (uint32_t r = 0; r < n; r++) {
        assert_true(r == root || !inner(&paths[0][r]) || !inner(&paths[1][r]));
    }
}

static void trees_of_an_allreduce(void **state)
{
    (void) state;
    static uint32_t order[MOST];
    for (uint32_t n = 1; n <= MOST; n++) {
        for (unsigned which = 0; which < 2; which++) {
            make_paths(GS_TREE_ALLREDUCE, n, NULL, which, 77);
            check_tree(paths[which], n, order);
            for (uint32_t i = 0; i < n; i++) { /* in order: child 0, own, child 1 */
                assert_int_equal(order[i], (i + n - which) % n);
            }
        }
        none_inner_in_both(n, n);
    }
}

static void check_rooted_trees(uint32_t kind, uint32_t n, uint32_t root)
{
    static uint32_t order[MOST];
    for (unsigned which = 0; which < 2; which++) {
        make_paths(kind, n, NULL, which, root);
        assert_int_equal(check_tree(paths[which], n, order), root);
        assert_int_equal(paths[which][root].links, n > 1 ? 1u << GS_CHILD0 : 0);
        for (uint32_t i = 0; i + 1 < n; i++) { /* the others in order, then the root, whose child 0 they are below */
            assert_int_equal(order[i], (root + 1 + (i + (n - 1) - which % (n - 1)) % (n - 1)) % n);
        }
    }
    none_inner_in_both(n, root);
}

static void trees_with_a_root(void **state)
{
    (void) state;
    for (uint32_t n = 1; n <= 64; n++) {
        for (uint32_t root = 0; root < n; root++) {
            check_rooted_trees(GS_TREE_BCAST, n, root);
            check_rooted_trees(GS_TREE_REDUCE, n, root);
        }
    }
    for (uint32_t n = 65; n <= MOST; n++) {
        check_rooted_trees(n % 2 ? GS_TREE_BCAST : GS_TREE_REDUCE, n, (uint32_t) (next_random() % n));
    }
}

static void shuffle(uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t j = (uint32_t) (next_random() % (i + 1));
        order[i] = order[j];
        order[j] = i;
    }
}

/* Along a ring from the rank at place 0; or a chain from its first to its last. */
static void check_ring(uint32_t kind, uint32_t n, const uint32_t *order, uint32_t root)
{
    const bool chain = GS_CHAIN_BCAST == kind || GS_CHAIN_REDUCE == kind;
    uint32_t at = 0, r = NULL == order ? 0 : order[0];

    make_paths(kind, n, order, 0, root);
    links_agree(paths[0], n);
    if (chain) {
        for (r = 0; 0 != paths[0][r].pos; r++) {
        }
        assert_true(GS_CHAIN_BCAST == kind ? r == root : n - 1 == paths[0][root].pos);
    }
    for (uint32_t first = r; at < n; at++, r = paths[0][r].peer[GS_NEXT]) {
        const gpusym_team_path_t *s = &paths[0][r];
        const bool before = n > 1 && (!chain || at > 0), after = n > 1 && (!chain || at < n - 1);
        assert_int_equal(s->pos, at);
        assert_int_equal(s->links, (before ? 1u << GS_PREV : 0) | (after ? 1u << GS_NEXT : 0));
        assert_true(!after || (GS_PREV == s->peer_link[GS_NEXT] && (!chain || s->peer[GS_NEXT] != first)));
        assert_true(!after || NULL == order || chain || s->peer[GS_NEXT] == order[(at + 1) % n]);
        assert_true(!after || NULL != order || s->peer[GS_NEXT] == (r + 1) % n);
    }
}

static void rings_and_chains(void **state)
{
    (void) state;
    static const uint32_t rings[] = {GS_RING_ALLREDUCE, GS_RING_ALLGATHER, GS_RING_REDUCE_SCATTER};
    static uint32_t order[MOST];
    for (uint32_t n = 1; n <= MOST; n++) {
        const uint32_t any = (uint32_t) (next_random() % n);
        check_ring(rings[n % 3], n, NULL, 0);
        for (uint32_t root = n <= 64 ? 0 : any; root < (n <= 64 ? n : any + 1); root++) {
            check_ring(GS_CHAIN_BCAST, n, NULL, root);
            check_ring(GS_CHAIN_REDUCE, n, NULL, root);
        }
        if (n <= 64 || 0 == n % 256) { /* the search for a place makes it n^2 */
            shuffle(order, n);
            check_ring(rings[n % 3], n, order, 0);
            check_ring(GS_CHAIN_BCAST, n, order, any);
            check_ring(GS_CHAIN_REDUCE, n, order, any);
        }
    }
}

/* ---- rings along the best links ---- */

#define RINGS 8u

static uint8_t link_of[MOST * MOST]; /* [n][n] */
static uint32_t orders[RINGS * MOST];

static uint8_t both_ways(uint32_t n, uint32_t a, uint32_t b)
{
    return link_of[a * n + b] < link_of[b * n + a] ? link_of[a * n + b] : link_of[b * n + a];
}

/* Makes the link of each pair of n ranks what `class` says of them under other names. */
static void make_links(uint32_t n, uint8_t (*class)(uint32_t a, uint32_t b))
{
    static uint32_t name[MOST];
    shuffle(name, n);
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = 0; b < n; b++) {
            link_of[a * n + b] = a == b ? (uint8_t) next_random() : class(name[a], name[b]);
        }
    }
}

/* Weakest link, then, in the lower 32 bits, the sum. 0: a link is missing. */
static uint64_t worth(uint32_t n, const uint32_t *order)
{
    uint64_t sum = 0, weakest = UINT8_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t w = both_ways(n, order[i], order[(i + 1) % n]);
        sum += w;
        weakest = w < weakest ? w : weakest;
    }
    return 0 == weakest ? 0 : weakest << 32 | sum;
}

/* Finds rings, twice; checks what holds for all. Returns how many. */
static uint32_t find_rings(uint32_t n, uint32_t max)
{
    static uint32_t again[RINGS * MOST];
    static bool seen[MOST];
    const uint32_t found = gpusym_team_rings(link_of, n, max, orders);

    assert_true(found <= max);
    assert_int_equal(gpusym_team_rings(link_of, n, max, again), found);
    assert_memory_equal(again, orders, found * n * sizeof *orders);
    for (uint32_t k = 0; k < found; k++) {
        const uint32_t *order = orders + k * n;
        memset(seen, 0, sizeof seen);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(order[i] < n && !seen[order[i]]);
            seen[order[i]] = true;
        }
        assert_int_equal(order[0], 0);
        assert_true(1 == n || 0 != worth(n, order));
    }
    if (found > 1) { /* no more rings than NVLinks go from one rank to another */
        for (uint32_t i = 0; i < found * n; i++) {
            const uint32_t a = orders[i], b = orders[i / n * n + (i + 1) % n];
            uint32_t used = 0;
            for (uint32_t j = 0; j < found * n; j++) {
                used += a == orders[j] && b == orders[j / n * n + (j + 1) % n];
            }
            assert_true(used + GPUSYM_LINK_NVLINK <= both_ways(n, a, b));
        }
    }
    return found;
}

static uint8_t eighteen(uint32_t a, uint32_t b)
{
    (void) a;
    (void) b;
    return GPUSYM_LINK_NVLINK + 18;
}

static uint8_t none(uint32_t a, uint32_t b)
{
    (void) a;
    (void) b;
    return GPUSYM_LINK_NONE;
}

static void equal_links_need_one_ring(void **state)
{
    (void) state;
    const uint32_t sizes[] = {1, 2, 3, 8, 16, 17, 32, 33, 200, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint32_t n = sizes[i];
        make_links(n, eighteen);
        assert_true(gpusym_team_all_reach(link_of, n));
        assert_int_equal(find_rings(n, RINGS), 1);
        for (uint32_t r = 0; r < n; r++) {
            assert_int_equal(orders[r], r);
        }
        assert_int_equal(gpusym_team_rings(link_of, n, 0, orders), 0);
        make_links(n, none);
        assert_int_equal(gpusym_team_all_reach(link_of, n), 1 == n);
        assert_int_equal(find_rings(n, RINGS), 1 == n ? 1 : 0);
    }
}

static uint32_t gpus_a_switch, gpus_a_numa; /* of the machine at hand */

static uint8_t pcie(uint32_t a, uint32_t b)
{
    return a / gpus_a_switch == b / gpus_a_switch ? GPUSYM_LINK_SWITCH
           : a / gpus_a_numa == b / gpus_a_numa   ? GPUSYM_LINK_HOST
                                                  : GPUSYM_LINK_NUMA;
}

/* Every switch, every NUMA node is entered once and left once. */
static void pcie_rings_leave_a_switch_once(void **state)
{
    (void) state;
    for (gpus_a_switch = 2; gpus_a_switch <= 4; gpus_a_switch += 2) {
        for (uint32_t switches = 1; switches <= 4; switches *= 2) {
            for (unsigned i = 0; i < 5; i++) {
                gpus_a_numa = gpus_a_switch * switches;
                const uint32_t n = 2 * gpus_a_numa;
                uint32_t of[GPUSYM_LINK_SWITCH + 1] = {0};
                make_links(n, pcie);
                assert_int_equal(find_rings(n, RINGS), 1);
                for (uint32_t r = 0; r < n; r++) {
                    of[both_ways(n, orders[r], orders[(r + 1) % n])]++;
                }
                assert_int_equal(of[GPUSYM_LINK_NUMA], 2);
                assert_int_equal(of[GPUSYM_LINK_HOST], 2 * switches - 2);
                assert_int_equal(of[GPUSYM_LINK_SWITCH], n - 2 * switches);
            }
        }
    }
}

/* The hybrid cube mesh of a DGX-1 with V100: NVLinks of each pair; PCIe for the others. */
static uint8_t dgx1(uint32_t a, uint32_t b)
{
    static const uint8_t nvlinks[8][8] = {
        {0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0}, {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
        {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1}, {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0},
    };
    return 0 != nvlinks[a][b] ? GPUSYM_LINK_NVLINK + nvlinks[a][b]
           : a / 4 == b / 4   ? GPUSYM_LINK_HOST
                              : GPUSYM_LINK_NUMA;
}

/* The six NVLinks of each GPU in six rings: all that there are, in each direction. */
static void dgx1_uses_all_links(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 50; i++) {
        make_links(8, dgx1);
        assert_int_equal(find_rings(8, RINGS), 6);
        assert_int_equal(worth(8, orders) >> 32, GPUSYM_LINK_NVLINK + 2);
        assert_int_equal(find_rings(8, 3), 3);
        assert_int_equal(find_rings(8, 1), 1);
    }
}

/* The best ring of all, by trying all orders that begin with rank 0. */
static uint64_t best_of_all(uint32_t n, uint32_t *order, uint32_t fixed)
{
    uint64_t best = fixed == n ? worth(n, order) : 0;
    for (uint32_t i = fixed; i < n; i++) {
        const uint32_t was = order[fixed];
        order[fixed] = order[i];
        order[i] = was;
        const uint64_t w = best_of_all(n, order, fixed + 1);
        best = w > best ? w : best;
        order[i] = order[fixed];
        order[fixed] = was;
    }
    return best;
}

static uint32_t classes, missing; /* of random_link: how many classes, and how many of 100 pairs have no link */

static uint8_t random_link(uint32_t a, uint32_t b)
{
    (void) a;
    (void) b;
    return next_random() % 100 < missing ? GPUSYM_LINK_NONE : (uint8_t) (1 + next_random() % classes);
}

static void first_ring_is_the_best(void **state)
{
    (void) state;
    uint32_t without = 0;
    for (unsigned i = 0; i < 600; i++) {
        const uint32_t n = 3 + i % 6;
        uint32_t order[8] = {0, 1, 2, 3, 4, 5, 6, 7};
        classes = 0 == i % 4 ? UINT8_MAX : 1 + i % 7;
        missing = i / 6 % 5 * 12;
        make_links(n, random_link);
        const uint64_t best = best_of_all(n, order, 1);
        const uint32_t found = find_rings(n, RINGS);
        assert_int_equal(found > 0, best > 0);
        assert_true(0 == found || worth(n, orders) == best);
        without += 0 == best;
    }
    assert_true(without > 0);
}

static uint8_t line(uint32_t a, uint32_t b)
{
    return a + 1 == b || b + 1 == a ? GPUSYM_LINK_NVLINK + 4 : GPUSYM_LINK_NONE;
}

static uint32_t last; /* of the circle at hand */

static uint8_t circle(uint32_t a, uint32_t b)
{
    return (0 == a && last == b) || (0 == b && last == a) ? GPUSYM_LINK_NVLINK + 4 : line(a, b);
}

/* GPUs in a circle: 4 times each way round. */
static void missing_links_are_not_used(void **state)
{
    (void) state;
    for (uint32_t n = 3; n <= 16; n++) {
        make_links(n, line);
        assert_int_equal(find_rings(n, RINGS), 0);
        last = n - 1;
        make_links(n, circle);
        assert_int_equal(gpusym_team_all_reach(link_of, n), 3 == n);
        assert_int_equal(find_rings(n, RINGS), 3 == n ? 1 : 8);
    }
    /* links in a circle all the same, one of which one end of it denies */
    last = 4;
    make_links(5, circle);
    assert_int_equal(find_rings(5, RINGS), 8);
    link_of[orders[0] * 5 + orders[1]] = GPUSYM_LINK_NONE;
    assert_int_equal(find_rings(5, RINGS), 0);
    assert_false(gpusym_team_all_reach(link_of, 5));
}

static void many_ranks(void **state)
{
    (void) state;
    for (uint32_t n = 17; n <= 32; n++) {
        classes = 5;
        missing = 10;
        make_links(n, random_link);
        assert_true(find_rings(n, RINGS) > 0);
        make_links(n, line);
        assert_int_equal(find_rings(n, RINGS), 0);
    }
    for (uint32_t n = 33; n <= 600; n += n) {
        classes = 7;
        missing = 0;
        make_links(n, random_link);
        assert_int_equal(find_rings(n, RINGS), 1);
    }
    make_links(MOST, random_link);
    assert_int_equal(gpusym_team_rings(link_of, MOST, RINGS, orders), 1);
    assert_true(worth(MOST, orders) > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_gpus_are_found),
        cmocka_unit_test(our_host_is_stable),
        cmocka_unit_test(trees_of_an_allreduce),
        cmocka_unit_test(trees_with_a_root),
        cmocka_unit_test(rings_and_chains),
        cmocka_unit_test(equal_links_need_one_ring),
        cmocka_unit_test(pcie_rings_leave_a_switch_once),
        cmocka_unit_test(dgx1_uses_all_links),
        cmocka_unit_test(first_ring_is_the_best),
        cmocka_unit_test(missing_links_are_not_used),
        cmocka_unit_test(many_ranks),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
