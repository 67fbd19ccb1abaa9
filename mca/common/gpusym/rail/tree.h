/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Short reductions and broadcasts among many processes, along a tree: see rail.h.
 */
#ifndef GPUSYM_COMMON_RAIL_TREE_H
#define GPUSYM_COMMON_RAIL_TREE_H

#include "mca/common/gpusym/rail/hop.h"

int gpusym_rail_tree_start(gpusym_rail_t *rail);
/* As gpusym_rail_poll. */
int gpusym_rail_tree_poll(gpusym_rail_t *rail);
/* Whether nothing that was sent is still in use by the transport. */
bool gpusym_rail_tree_quiet(const gpusym_rail_t *rail);

#endif
