/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives on streams: see streams.h.
 */
#include "mca/common/gpusym/streams.h"

static const gpusym_streams_t *offered; /* atomic */

void gpusym_streams_offer(const gpusym_streams_t *streams)
{
    __atomic_store_n(&offered, streams, __ATOMIC_RELEASE);
}

const gpusym_streams_t *gpusym_streams(void)
{
    return __atomic_load_n(&offered, __ATOMIC_ACQUIRE);
}
