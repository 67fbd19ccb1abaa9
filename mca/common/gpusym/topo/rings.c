/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPUs that ranks share, and rings: see rings.h.
 */
#include "mca/common/gpusym/topo/rings.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

bool gpusym_team_shared_gpu(const void *uuids, uint32_t stride, uint32_t n, uint32_t *a, uint32_t *b)
{
    const uint8_t *u = uuids;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = i + 1; j < n; j++) {
            if (0 == memcmp(u + (size_t) i * stride, u + (size_t) j * stride, 16)) {
                *a = i;
                *b = j;
                return true;
            }
        }
    }
    return false;
}

#define RING_EXACT 16u /* most ranks for which the best ring is found */
#define RING_MANY 32u  /* most ranks for which there may be several rings */
/* Limits of the heuristic: orders that it starts from, and pairs of steps that it examines (about 0.1 s). */
#define RING_STARTS 512u
#define RING_WORK (1u << 24)

typedef struct {
    uint32_t n;
    const uint8_t *link;                     /* as the caller gave it */
    uint8_t remaining[RING_MANY][RING_MANY]; /* n <= RING_MANY: link classes both ways, less what rings have taken */
    uint64_t random;
    uint32_t work; /* what remains of RING_WORK */
} search_t;

static uint8_t both_ways(const search_t *s, uint32_t a, uint32_t b)
{
    const uint8_t there = s->link[(size_t) a * s->n + b], back = s->link[(size_t) b * s->n + a];
    return there < back ? there : back;
}

static uint8_t remaining_link(const search_t *s, uint32_t a, uint32_t b)
{
    return s->n > RING_MANY ? both_ways(s, a, b) : s->remaining[a][b];
}

/* Rates a ring: its weakest link and, in the lower 32 bits, the sum of its links. 0: a link is missing. */
static uint64_t rate_ring(const search_t *s, const uint32_t *order)
{
    uint64_t sum = 0;
    uint8_t weakest = UINT8_MAX;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t a = order[i], b = order[(i + 1) % s->n];
        const uint8_t w = remaining_link(s, a, b);
        sum += both_ways(s, a, b);
        weakest = w < weakest ? w : weakest;
    }
    return 0 == weakest ? 0 : (uint64_t) weakest << 32 | sum;
}

/*
 * Held and Karp's dynamic programme: sums[set][r] is the largest sum of links of a path that begins at the last rank,
 * goes through all ranks of the set and ends at r, one of them; 0: there is none.  Not on the heap: a rank without
 * memory would find another ring than the others.  1 MB, of which only what is used becomes memory.  sums_lock: one
 * search at a time.
 */
static uint16_t sums[1u << (RING_EXACT - 1)][RING_EXACT - 1];
static pthread_mutex_t sums_lock = PTHREAD_MUTEX_INITIALIZER;

/* The best path through `set` and on to rank r, which has links to the ranks `near`: its sum; *before: the rank before
 * r. */
static uint16_t best_path(const search_t *s, uint32_t set, uint32_t near, uint32_t r, uint32_t *before)
{
    uint16_t best = 0;
    for (uint32_t rest = set & near; 0 != rest; rest &= rest - 1) {
        const uint32_t p = (uint32_t) __builtin_ctz(rest);
        const uint16_t sum = (uint16_t) (0 == sums[set][p] ? 0 : sums[set][p] + both_ways(s, p, r));
        if (sum > best) {
            best = sum;
            *before = p;
        }
    }
    return best;
}

/* Finds, of the rings whose links all have at least link class `weakest`, one with the largest sum.  False: none. */
static bool exact_ring(const search_t *s, uint8_t weakest, uint32_t *order)
{
    const uint32_t home = s->n - 1, all = (1u << home) - 1;
    uint32_t near[RING_EXACT] = {0}, before = 0;

    for (uint32_t a = 0; a < s->n; a++) {
        for (uint32_t b = 0; b < s->n; b++) {
            near[a] |= (uint32_t) (a != b && s->remaining[a][b] >= weakest) << b;
        }
        if (__builtin_popcount(near[a]) < 2) {
            return false;
        }
    }
    for (uint32_t set = 1; set <= all; set++) {
        for (uint32_t rest = set; 0 != rest; rest &= rest - 1) {
            const uint32_t r = (uint32_t) __builtin_ctz(rest), others = set & ~(1u << r);
            if (0 != others) {
                sums[set][r] = best_path(s, others, near[r], r, &before);
            } else {
                sums[set][r] = 0 != (near[r] & 1u << home) ? both_ways(s, home, r) : 0;
            }
        }
    }
    if (0 == best_path(s, all, near[home], home, &before)) {
        return false;
    }
    /* Back along the best path. */
    order[0] = home;
    for (uint32_t i = home, set = all; i > 0; i--) {
        const uint32_t r = before;
        order[i] = r;
        set &= ~(1u << r);
        best_path(s, set, near[r], r, &before);
    }
    return true;
}

/* Finds the best ring of n <= RING_EXACT ranks.  False: there is none. */
static bool best_ring(const search_t *s, uint32_t *order)
{
    bool found = false;
    pthread_mutex_lock(&sums_lock);
    for (unsigned weakest = UINT8_MAX; !found && weakest > 0; weakest--) {
        found = exact_ring(s, (uint8_t) weakest, order);
    }
    pthread_mutex_unlock(&sums_lock);
    return found;
}

/* splitmix64, from the same seed on all ranks. */
static uint32_t random_below(search_t *s, uint32_t limit)
{
    uint64_t z = s->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (uint32_t) ((z ^ z >> 31) % limit);
}

static void swap_ranks(uint32_t *a, uint32_t *b)
{
    const uint32_t was = *a;
    *a = *b;
    *b = was;
}

/* Reverses order[lo .. hi - 1]. */
static void reverse_part(uint32_t *order, uint32_t lo, uint32_t hi)
{
    for (; lo + 1 < hi; lo++, hi--) {
        swap_ranks(&order[lo], &order[hi - 1]);
    }
}

/* Shuffles the ranks, then goes from each to the nearest remaining rank, the first of equals. */
static void nearest_neighbours(search_t *s, uint32_t *order)
{
    for (uint32_t i = s->n - 1; i > 0; i--) {
        swap_ranks(&order[i], &order[random_below(s, i + 1)]);
    }
    for (uint32_t i = 1; i + 1 < s->n; i++) {
        uint32_t best = i;
        for (uint32_t j = i + 1; j < s->n; j++) {
            if (remaining_link(s, order[i - 1], order[j]) > remaining_link(s, order[i - 1], order[best])) {
                best = j;
            }
        }
        swap_ranks(&order[i], &order[best]);
    }
}

/* Returns whether links x and y are better than u and v: the worse of each pair counts first. */
static bool is_better(uint8_t x, uint8_t y, uint8_t u, uint8_t v)
{
    const uint8_t worse = x < y ? x : y, was = u < v ? u : v;
    return worse > was || (worse == was && x + y > u + v);
}

/* 2-opt: reverses parts of the ring as long as the two links that change improve. */
static void improve_ring(search_t *s, uint32_t *order)
{
    bool improved = true;
    while (improved && s->work > 0) {
        improved = false;
        for (uint32_t i = 0; i + 2 < s->n; i++) {
            for (uint32_t j = i + 2; j < s->n && s->work > 0; j++, s->work--) {
                const uint32_t a = order[i], b = order[i + 1], c = order[j], d = order[(j + 1) % s->n];
                if (a == d || !is_better(remaining_link(s, a, c), remaining_link(s, b, d), remaining_link(s, a, b),
                                         remaining_link(s, c, d))) {
                    continue;
                }
                reverse_part(order, i + 1, j + 1);
                improved = true;
            }
        }
    }
}

/* Finds a good ring of any number of ranks.  False: none was found. */
static bool good_ring(search_t *s, uint32_t *order)
{
    uint32_t tried[RING_MANY];
    for (uint32_t r = 0; r < s->n; r++) {
        order[r] = r;
    }
    nearest_neighbours(s, order);
    improve_ring(s, order);
    for (uint32_t i = 1; s->n <= RING_MANY && i < RING_STARTS; i++) {
        memcpy(tried, order, s->n * sizeof *order);
        nearest_neighbours(s, tried);
        improve_ring(s, tried);
        if (rate_ring(s, tried) > rate_ring(s, order)) {
            memcpy(order, tried, s->n * sizeof *order);
        }
    }
    return 0 != rate_ring(s, order);
}

static bool find_ring(search_t *s, uint32_t *order)
{
    return s->n <= RING_EXACT ? best_ring(s, order) : good_ring(s, order);
}

static uint32_t place_of(const uint32_t *order, uint32_t rank)
{
    uint32_t place = 0;
    while (order[place] != rank) {
        place++;
    }
    return place;
}

/* Makes the ring begin with rank 0 and its lower neighbour. */
static void begin_with_0(uint32_t n, uint32_t *order)
{
    const uint32_t place = place_of(order, 0);
    reverse_part(order, 0, place);
    reverse_part(order, place, n);
    reverse_part(order, 0, n);
    if (order[1] > order[n - 1]) {
        reverse_part(order, 1, n);
    }
}

/* Takes one NVLink in each direction from every step of a ring. Only NVLinks remain. */
static void take_links(search_t *s, const uint32_t *order)
{
    for (uint32_t a = 0; a < s->n; a++) {
        for (uint32_t b = 0; b < s->n; b++) {
            s->remaining[a][b] = s->remaining[a][b] > GPUSYM_LINK_NVLINK ? s->remaining[a][b] : GPUSYM_LINK_NONE;
        }
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t a = order[i], b = order[(i + 1) % s->n];
        const uint8_t less = (uint8_t) (s->remaining[a][b] - 1);
        s->remaining[a][b] = s->remaining[b][a] = less > GPUSYM_LINK_NVLINK ? less : GPUSYM_LINK_NONE;
    }
}

static bool are_equal(const search_t *s)
{
    for (uint32_t a = 0; a < s->n; a++) {
        for (uint32_t b = a + 1; b < s->n; b++) {
            if (both_ways(s, a, b) != both_ways(s, 0, 1)) {
                return false;
            }
        }
    }
    return true;
}

/* Finds rings where the links differ. Returns how many. */
static uint32_t search_rings(search_t *s, uint32_t max, uint32_t *orders)
{
    const uint32_t n = s->n;
    uint32_t found = 0;

    for (uint32_t a = 0; n <= RING_MANY && a < n; a++) {
        for (uint32_t b = 0; b < n; b++) {
            s->remaining[a][b] = both_ways(s, a, b);
        }
    }
    while (found < max && find_ring(s, orders + (size_t) found * n)) {
        uint32_t *order = orders + (size_t) found * n;
        begin_with_0(n, order);
        found++;
        if (n > RING_MANY || rate_ring(s, order) >> 32 <= GPUSYM_LINK_NVLINK) {
            break; /* PCIe has no more for a second ring */
        }
        take_links(s, order);
        if (found < max) { /* links carry as much the other way */
            memcpy(order + n, order, n * sizeof *order);
            reverse_part(order + n, 1, n);
            found++;
        }
    }
    return found;
}

bool gpusym_team_all_reach(const uint8_t *link, uint32_t n)
{
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = 0; b < n; b++) {
            if (a != b && GPUSYM_LINK_NONE == link[(size_t) a * n + b]) {
                return false;
            }
        }
    }
    return true;
}

uint32_t gpusym_team_rings(const uint8_t *link, uint32_t n, uint32_t max, uint32_t *orders)
{
    search_t s = {.n = n, .link = link, .random = 1, .work = RING_WORK};
    const bool one = 1 == n || (n > 1 && are_equal(&s)); /* as behind NVSwitch: no order is better than another */

    if (0 == n || 0 == max || (one && n > 1 && 0 == both_ways(&s, 0, 1))) {
        return 0;
    }
    if (!one) {
        return search_rings(&s, max, orders);
    }
    for (uint32_t r = 0; r < n; r++) {
        orders[r] = r;
    }
    return 1;
}
