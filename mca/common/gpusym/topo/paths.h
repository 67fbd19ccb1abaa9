/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Paths over the ranks of a team, and what each rank sees of them: rings, chains and trees. Pure functions.
 */
#ifndef GPUSYM_COMMON_TOPO_PATHS_H
#define GPUSYM_COMMON_TOPO_PATHS_H

#include <stdint.h>

#include "kernels/schedule.h"

/* A path over all ranks of a team as one rank sees it (kernels/schedule.h): its place, its links and their peers. */
typedef struct {
    uint32_t pos;            /* for gs_schedule_t. Ring, chain: the rank's place; tree: links from the root */
    uint32_t links;          /* mask of existing links, 1 << GS_PREV, ...; 0 where n is 1 */
    uint32_t peer[GS_LINKS]; /* of an existing link: the rank at its other end */
    uint32_t
        peer_link[GS_LINKS]; /* of an existing link: its number at that rank, which receives from it what we send */
} gpusym_team_path_t;

/*
 * Computes a path as rank `me` of n (at least 1) sees it.  Allocates nothing.  O(log n) time; O(n) with an order.
 *   kind    enum gs_schedule_kind
 *   order   ring, chain: order[i] is the rank at place i of a ring over all n ranks; NULL: rank i.  A chain is that
 *           ring, cut: its root is the first rank of a broadcast, the last of a reduce.  Trees ignore it
 *   which   tree: 0 or 1, of two trees in which no rank has children in both, except the root of a broadcast or reduce,
 *           which has one child in each.  Each tree carries half of the message: no rank sends more than one message in
 *           a broadcast or reduce, or two in an all-reduce.  Greater numbers are further trees, for messages in more
 *           parts: as many places further on
 *   root    of a broadcast or reduce; other kinds ignore it
 * Source: Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
 * Computing 35 (2009).  The trees here are in-order trees with the leaves on even places, the second shifted by one
 * place, which holds for every n.  Depth: at most ceil(log2 n) + 1 links from the root to a leaf.
 */
void gpusym_team_path(uint32_t kind, uint32_t n, const uint32_t *order, unsigned which, uint32_t me, uint32_t root,
                      gpusym_team_path_t *path);

#endif
