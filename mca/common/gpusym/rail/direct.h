/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Direct calls, from each process to each: see rail.h.
 */
#ifndef GPUSYM_COMMON_RAIL_DIRECT_H
#define GPUSYM_COMMON_RAIL_DIRECT_H

#include "mca/common/gpusym/rail/hop.h"

int gpusym_rail_direct_start(gpusym_rail_t *rail);
/* As gpusym_rail_poll. */
int gpusym_rail_direct_poll(gpusym_rail_t *rail);
/* Whether nothing that was sent is still in use by the transport. */
bool gpusym_rail_direct_quiet(const gpusym_rail_t *rail);

#endif
