/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Paths over the ranks of a team, and what each rank sees of them: rings, chains and trees. Pure functions.
 */
#ifndef GPUSYM_COMMON_TOPO_PATHS_H
#define GPUSYM_COMMON_TOPO_PATHS_H

#include <stdint.h>

#include "kernels/schedule.h"

/* What a rank sees of a path (kernels/schedule.h) over all ranks: its links, and who is at their other ends. */
typedef struct {
    uint32_t pos;            /* for gs_schedule_t: ring, chain: our place; tree: links from the root */
    uint32_t links;          /* those that are there, as bits 1 << GS_PREV, ...; none where n is 1 */
    uint32_t peer[GS_LINKS]; /* of a link that is there: the rank at its other end */
    uint32_t far[GS_LINKS];  /* and which of that rank's links it is: what we send on it, the peer receives from that one */
} gpusym_shape_t;

/*
 * The shape of a path as rank `me` of n (at least 1) sees it.  Needs no memory, O(log n) time; with an order O(n).
 *   kind    enum gs_schedule_kind
 *   order   ring, chain: order[i] is the rank at place i of a ring over all n ranks, NULL: rank i.  A chain is that ring,
 *           cut: its root is the first of a broadcast, the last of a reduce.  Trees do not look at it
 *   which   tree: 0 or 1, of two in which no rank has children in both (the root of a broadcast or reduce apart: it has
 *           one child in each).  Each takes half of the message; so nobody sends more than the message in a broadcast
 *           or reduce, twice the message in an all-reduce
 *   root    of a broadcast or reduce; else not looked at
 * Two trees as in Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
 * Computing 35 (2009); ours are in-order trees with the leaves on even places, the second shifted by one place, which
 * holds for every n.  Depth: at most ceil(log2 n) + 1 links from the root to a leaf.
 */
void gpusym_team_shape(uint32_t kind, uint32_t n, const uint32_t *order, unsigned which, uint32_t me, uint32_t root,
                       gpusym_shape_t *shape);

#endif
