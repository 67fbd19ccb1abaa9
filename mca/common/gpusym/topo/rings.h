/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Reachability between ranks, and the best rings over all of them: pure functions of what the ranks have exchanged.
 */
#ifndef GPUSYM_COMMON_TOPO_RINGS_H
#define GPUSYM_COMMON_TOPO_RINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "mca/common/gpusym/topo/links.h"

/* Returns whether two of n GPUs are the same, and sets *a < *b to the first such pair. uuids: n of 16 bytes, `stride`
 * bytes apart. */
bool gpusym_team_shared_gpu(const void *uuids, uint32_t stride, uint32_t n, uint32_t *a, uint32_t *b);

/* Returns whether each of n ranks reaches every other. link: as for gpusym_team_rings. */
bool gpusym_team_all_reach(const uint8_t *link, uint32_t n);

/*
 * Finds rings over all n ranks, along the best links.
 *   link     [n][n]: link class (links.h) from the one rank to the other; the diagonal is ignored.  A pair counts as
 *            the smaller of its two directions, since data go one way and credits the other
 *   max      number of rings requested, at least 1
 *   orders   [max][n], owned by the caller: ring i is the ranks from orders[i * n] on, beginning with rank 0
 * Returns the number of rings found; 0: there is none (n > 16: none was found).  All neighbours in a ring are linked.
 * The first ring has the best weakest link and, of such rings, the largest sum of links (n > 16: as good as a heuristic
 * finds). One ring is returned if all pairs are equal, as behind NVSwitch, if the links are PCIe, or if n > 32.  If the
 * first ring uses NVLinks only, its reverse follows, and then further rings.  Each ring takes one NVLink of each of its
 * steps, which no other ring takes; so a ring with many NVLinks may occur several times, and gets more of the channels.
 * The result depends on the arguments only: all ranks find the same rings.  Some ms per ring for n = 16, less than 1
 * for 8.
 */
uint32_t gpusym_team_rings(const uint8_t *link, uint32_t n, uint32_t max, uint32_t *orders);

#endif
