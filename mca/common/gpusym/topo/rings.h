/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Who reaches whom, and by which rings, chains and trees: pure functions of what the ranks told each other. No MPI, no GPU.
 */
#ifndef GPUSYM_COMMON_TOPO_RINGS_H
#define GPUSYM_COMMON_TOPO_RINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/schedule.h"

/* What identifies a host: ranks with equal keys share memory and GPUs. */
typedef struct {
    uint64_t key[2];
} gpusym_host_t;

/* This host's key: boot id, host name and pid namespace. 0, or errno where the boot id could not be read: the key is then not
 * that of the other ranks here, unless they cannot read it either. */
int gpusym_host_self(gpusym_host_t *host);

/* Whether two of n GPUs are the same: uuids of 16 bytes, `stride` bytes apart. Sets *a < *b to the first such pair. */
bool gpusym_team_shared_gpu(const void *uuids, uint32_t stride, uint32_t n, uint32_t *a, uint32_t *b);

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

/* Classes of links between two GPUs: the larger the better. */
#define GPUSYM_LINK_NONE 0u   /* cannot be mapped */
#define GPUSYM_LINK_NUMA 1u   /* across NUMA nodes */
#define GPUSYM_LINK_HOST 2u   /* by the host bridge of a NUMA node */
#define GPUSYM_LINK_SWITCH 3u /* by one PCIe switch */
#define GPUSYM_LINK_NVLINK 3u /* plus the number of NVLinks, at most 252 */

/* Whether every one of n ranks reaches every other; link as below. */
bool gpusym_team_all_reach(const uint8_t *link, uint32_t n);

/*
 * Rings over all n ranks, along the best links.
 *   link     [n][n]: class of the link from the one to the other; the diagonal is not looked at.  A pair counts as the
 *            smaller of its two directions, since the data go the one way and the credits the other
 *   max      how many rings are wanted, at least 1
 *   orders   [max][n], the caller's: order i is ranks from orders[i * n], beginning with rank 0
 * Returns how many were found, 0: there is no ring (n > 16: none was found).  Any two neighbours in a ring are linked.  The
 * first has the best weakest link, and of such the largest sum of links (n > 16: as good as a heuristic finds).  One is
 * enough where all pairs are equal, as behind NVSwitch, and is all that PCIe carries.  Where the first is NVLinks alone, it
 * is followed by the same the other way round, and by further ones: each takes one NVLink of each of its steps, and none
 * takes what others have taken.  So a ring with many NVLinks may be there several times, for a larger part of the
 * channels.  For n > 32 one.
 * A function of its arguments alone, so that all ranks have the same rings.  Some ms a ring for n = 16, less than 1 for 8.
 */
uint32_t gpusym_team_rings(const uint8_t *link, uint32_t n, uint32_t max, uint32_t *orders);

#endif
