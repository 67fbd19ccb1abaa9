/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The tags of gpusym's own messages by the PML, of all faces: behind those of Open MPI's components, and no tag is of
 * two of them.
 */
#ifndef GPUSYM_OMPI_TAGS_H
#define GPUSYM_OMPI_TAGS_H

#include <limits.h>
#include <stdbool.h>

#include "mca/common/ompi/ompi_compat.h"

#include "ompi/mca/coll/base/coll_tags.h"

/* Data that follow an envelope as a message of their own: [FIRST, FIRST + NUMBERS) of envelopes that name an entry,
 * and as many of others behind (pml/gpusym/fetch.c). */
#define GPUSYM_TAG_FOLLOW_FIRST (-INT_MAX)
#define GPUSYM_TAG_FOLLOW_NUMBERS 0x10000000
#define GPUSYM_TAG_FOLLOW_LAST (GPUSYM_TAG_FOLLOW_FIRST + 2 * GPUSYM_TAG_FOLLOW_NUMBERS - 1)

/* All-reduces that Open MPI itself calls (coll/gpusym/call/internal.c). Far below the tags that coll/libnbc counts down
 * from -27, and also in the 24 bits that pml/ucx sends of it: there it is -4194304. */
#define GPUSYM_TAG_INTERNAL (INT_MIN + 2 * GPUSYM_TAG_FOLLOW_NUMBERS + (3 << 22))

/* What the processes tell rank 0 at the end (coll/gpusym/team/totals.c). */
#define GPUSYM_TAG_TOTALS (GPUSYM_TAG_INTERNAL + 1)

_Static_assert(GPUSYM_TAG_INTERNAL > GPUSYM_TAG_FOLLOW_LAST, "the two ranges do not meet");
_Static_assert(GPUSYM_TAG_INTERNAL < MCA_COLL_BASE_TAG_NEIGHBOR_END, "Open MPI's collectives have other tags");

/* A collective begins to post messages that may be of GPU memory, with tags of Open MPI's own, and ends: on all ranks
 * that it exchanges them with, around all that may post them. Those of other threads are meanwhile looked at too. Any
 * thread, of a component. */
extern unsigned gpusym_tags_exchanges; /* of tags.c */
static inline void gpusym_tags_exchange(void)
{
    __atomic_fetch_add(&gpusym_tags_exchanges, 1, __ATOMIC_RELAXED);
}
static inline void gpusym_tags_exchanged(void)
{
    __atomic_fetch_sub(&gpusym_tags_exchanges, 1, __ATOMIC_RELAXED);
}
/* Whether one does. All other messages with such tags are of host memory: collectives on GPU memory are staged above
 * them. */
static inline bool gpusym_tags_exchanging(void)
{
    return 0 != __atomic_load_n(&gpusym_tags_exchanges, __ATOMIC_RELAXED);
}

#endif
