/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * NVTX ranges: a profiler (Nsight Systems) shows the calls of MPI beside the program's kernels. Nothing is loaded, and
 * no range is made, unless a profiler injects itself into the process.
 */
#ifndef MCA_COLL_GPUSYM_TRACE_RANGES_H
#define MCA_COLL_GPUSYM_TRACE_RANGES_H

#include <stdbool.h>

/* Whether a profiler takes ranges. Written while MPI is initialised. */
extern bool coll_gpusym_ranges_on;

/* Finds out whether there is one. */
void coll_gpusym_ranges_start(void);
/* Begins a range of this thread, named as the collective; ends the last one that it has begun. */
void coll_gpusym_range_push(unsigned coll);
void coll_gpusym_range_pop(void);

#endif
