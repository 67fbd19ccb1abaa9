/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What graphs of the program hold: see held.h. Graphs end when the program destroys them, after MPI_Finalize perhaps:
 * this library is not unloaded.
 */
#include "mca/common/gpusym/exec/held.h"

#include <stdlib.h>

#include "mca/common/gpusym/log.h"

struct gpusym_held {
    uint32_t users;   /* atomic: the owner, and graphs */
    uint64_t capture; /* the last one that holds it */
};

gpusym_held_t *gpusym_held_new(void)
{
    gpusym_held_t *held = calloc(1, sizeof *held);
    if (NULL != held) {
        held->users = 1;
    }
    return held;
}

static void drop(void *held)
{
    if (1 == __atomic_fetch_sub(&((gpusym_held_t *) held)->users, 1, __ATOMIC_ACQ_REL)) {
        free(held);
    }
}

void gpusym_held_by_graph(gpusym_held_t *held, const gpusym_device_t *dev, gpusym_stream_t *stream)
{
    const uint64_t before = held->capture;
    __atomic_fetch_add(&held->users, 1, __ATOMIC_RELAXED);
    if (GPUSYM_SUCCESS != dev->graph_hold(stream, &held->capture, drop, held)) {
        GPUSYM_LOG(2, "it will not be known when a captured graph is gone: %s", dev->error());
    } else if (before == held->capture) { /* it does already */
        drop(held);
    }
}

bool gpusym_held_still(const gpusym_held_t *held)
{
    return 1 != __atomic_load_n(&held->users, __ATOMIC_ACQUIRE);
}

void gpusym_held_leave(gpusym_held_t *held)
{
    if (NULL != held) {
        drop(held);
    }
}
