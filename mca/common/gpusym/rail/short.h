/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Short pieces of direct calls and trees: copied by the copier of the GPU (exec/copier.h), which has begun some
 * microseconds before a launch would, and reduced by the CPU, where they stand in host memory on their way.
 */
#ifndef GPUSYM_COMMON_RAIL_SHORT_H
#define GPUSYM_COMMON_RAIL_SHORT_H

#include "mca/common/gpusym/rail/hop.h"

/* As gpusym_rail_launch; what is short is copied by the copier, one copy behind the other. */
int gpusym_rail_short_move(gpusym_rail_t *rail, uint32_t lane, const void *const *src, uint32_t nsrc, void *const *dst,
                           uint32_t ndst, uint64_t bytes, gpusym_rail_work_t *work);
/* The same of a call's inputs, to a send buffer.  Shorter ones still are exchanged for the result: one command of the
 * copier, which waits on the GPU for what short_move then gives it, the result for all outputs. */
int gpusym_rail_short_fill(gpusym_rail_t *rail, uint32_t lane, const void *const *src, uint32_t nsrc, char *to,
                           uint64_t bytes, gpusym_rail_work_t *work);
/* Whether all copies have ended: those of a call by kernels may have ended before. */
bool gpusym_rail_short_ended(const gpusym_rail_t *rail);
/* Moves the copies on.  GPUSYM_SUCCESS, or the device's error, now and from then on. */
int gpusym_rail_short_poll(gpusym_rail_t *rail);
/* Forgets the copies that have not begun.  Whether none is under way. */
bool gpusym_rail_short_drop(gpusym_rail_t *rail);

/* Whether the CPU reduces the call's data, one input of each process: the same on all processes. */
bool gpusym_rail_short_reduces(const gpusym_rail_t *rail);

#endif
