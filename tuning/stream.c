/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls on streams of the program: see stream.h.
 */
#include "tuning/stream.h"

/* The largest launch takes up to two thirds of a GPU; of the rest the first communicator gets half, the next one half
 * of what is left. A block of 512 threads takes a multiprocessor at worst. */
uint32_t gpusym_tuning_stream_blocks(uint32_t sm_count, unsigned nth, bool simulated)
{
    const uint32_t spare = simulated ? 8 : sm_count / 3;
    const uint32_t blocks = nth < 32 ? spare >> (0 == nth ? 1 : nth) : 0;
    return 0 == blocks ? 1 : blocks;
}
