/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The degree of trees between hosts: see tree.h.
 */
#include "tuning/tree.h"

/* What a message takes from host to host, in times of what it costs the process that sends it, and the one that
 * receives it: 2 us and 0.4 us, as docs/scale.md assumes. */
#define LATENCY 5u

/* The tree is filled level by level. */
uint32_t gpusym_tuning_tree_depth(uint32_t n, uint32_t degree)
{
    uint32_t depth = 0;
    for (uint64_t level = 1, all = 1; all < n; depth++) {
        level *= degree;
        all += level;
    }
    return depth;
}

/* A level takes a message's way, and as long again as the process above takes for its children. */
uint32_t gpusym_tuning_tree_degree(uint32_t n)
{
    uint32_t best = 2;
    for (uint32_t k = 3; k <= GPUSYM_TREE_DEGREE_MAX; k++) {
        if (gpusym_tuning_tree_depth(n, k) * (LATENCY + k) < gpusym_tuning_tree_depth(n, best) * (LATENCY + best)) {
            best = k;
        }
    }
    return best;
}
