/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * bench/wire's calls by the engine for several hosts (mca/common/gpusym/rail/), without MPI between: one rank a host.
 */
#ifndef BENCH_WIRE_RAIL_H
#define BENCH_WIRE_RAIL_H

#include "bench/collectives.h"

/* Opens a rail of all ranks over UCX, on the interface named; device: "sim" or "cuda".  Collective.  False: there is no
 * UCX here; says so.  Ends the job where something else is lacking. */
bool wire_rail_open(const char *device, const char *interface);
/* Does the call, an allreduce, allgather, reduce_scatter_block, bcast or alltoall of float sums. */
void wire_rail_call(const bench_call_t *call);
/* After each call, untimed: waits until all ranks have ended it. */
void wire_rail_settle(void);
void wire_rail_close(void);

#endif
