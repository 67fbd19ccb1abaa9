/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Gathers of short blocks, in as few steps as there can be: see rail.h.
 */
#ifndef GPUSYM_COMMON_RAIL_GATHER_H
#define GPUSYM_COMMON_RAIL_GATHER_H

#include "mca/common/gpusym/rail/hop.h"

int gpusym_rail_gather_start(gpusym_rail_t *rail);
/* As gpusym_rail_poll. */
int gpusym_rail_gather_poll(gpusym_rail_t *rail);
/* Whether nothing that was sent is still in use by the transport. */
bool gpusym_rail_gather_quiet(const gpusym_rail_t *rail);

#endif
