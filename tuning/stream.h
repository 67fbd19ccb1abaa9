/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls on streams of the program: how much of the GPU their kernels may take.
 * Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_TUNING_STREAM_H
#define GPUSYM_TUNING_STREAM_H

#include "tuning/geometry.h"

/*
 * Most threads of a launch on a stream, of the `nth` communicator (from 1) of a process, on a GPU of that many
 * multiprocessors. Its kernels wait for ranks that may not have come, perhaps for long: so they leave room for those of
 * all other communicators, and for the largest launch that the host makes once all ranks are there (geometry.c). Where
 * a kernel comes to the GPU while that of the call before runs, both count.
 */
uint32_t gpusym_tuning_stream_threads(uint32_t sm_count, unsigned nth, bool simulated);

/* Sets what calls on streams want where the user forces nothing: the longest message, or segment, in LL lines; blocks
 * and threads. call->zero_copy: the buffers are registered; then whether the call goes straight between them, which it
 * does from zero_copy_min bytes on, of the message or a segment; 0: by the table. */
void gpusym_tuning_stream(gpusym_tuning_call_t *call, uint64_t zero_copy_min, gpusym_tuning_forced_t *forced);

/* Threads of the block that exchanges segments of up to so many bytes in LL lines: a pack each, as far as there are
 * threads. */
uint32_t gpusym_tuning_stream_lines(uint64_t bytes, uint32_t nranks);

#endif
