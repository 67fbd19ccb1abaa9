/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Who reaches whom, and the best rings over all ranks: pure functions of what the ranks told each other.
 */
#ifndef GPUSYM_COMMON_TOPO_RINGS_H
#define GPUSYM_COMMON_TOPO_RINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "mca/common/gpusym/topo/links.h"

/* Whether two of n GPUs are the same: uuids of 16 bytes, `stride` bytes apart. Sets *a < *b to the first such pair. */
bool gpusym_team_shared_gpu(const void *uuids, uint32_t stride, uint32_t n, uint32_t *a, uint32_t *b);

/* Whether every one of n ranks reaches every other; link as for gpusym_team_rings. */
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
