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

/* Data that follow an RTS as a message of their own (pml/gpusym/fetch.c). */
#define GPUSYM_TAG_FOLLOW_FIRST (-INT_MAX)
#define GPUSYM_TAG_FOLLOW_NUMBERS 0x20000000
#define GPUSYM_TAG_FOLLOW_LAST (GPUSYM_TAG_FOLLOW_FIRST + GPUSYM_TAG_FOLLOW_NUMBERS - 1)

/* All-reduces that Open MPI itself calls (coll/gpusym/call/internal.c). Far below the tags that coll/libnbc counts down
 * from -27, and also in the 24 bits that pml/ucx sends of it: there it is -4194304. */
#define GPUSYM_TAG_INTERNAL (INT_MIN + GPUSYM_TAG_FOLLOW_NUMBERS + (3 << 22))

/* What the processes tell rank 0 at the end (coll/gpusym/team/totals.c). */
#define GPUSYM_TAG_TOTALS (GPUSYM_TAG_INTERNAL + 1)

/* What ranks of several hosts request of each other for one-sided calls, and the answers, each with its own tag
 * (osc/gpusym/message.h). */
#define GPUSYM_TAG_WINDOW_REQUEST (GPUSYM_TAG_INTERNAL + 2)
#define GPUSYM_TAG_WINDOW_ANSWER (GPUSYM_TAG_INTERNAL + 3)
#define GPUSYM_TAG_WINDOW_ANSWERS 4096u

_Static_assert(GPUSYM_TAG_INTERNAL > GPUSYM_TAG_FOLLOW_LAST, "the two ranges do not meet");
_Static_assert(GPUSYM_TAG_INTERNAL < MCA_COLL_BASE_TAG_NEIGHBOR_END, "Open MPI's collectives have other tags");

/* This thread begins to post messages of a blocking neighbourhood collective that may be of GPU memory, and ends: on
 * all ranks that it exchanges them with. */
extern _Thread_local unsigned gpusym_tags_exchanges; /* of tags.c, of a component */
static inline void gpusym_tags_exchange(void)
{
    gpusym_tags_exchanges++;
}
static inline void gpusym_tags_exchanged(void)
{
    gpusym_tags_exchanges--;
}
/* Whether a message that this thread posts with a tag of Open MPI's own is one of these: of a blocking collective. All
 * others are of host memory: collectives on GPU memory are staged above them. */
static inline bool gpusym_tags_exchanging(int tag)
{
    return 0 != gpusym_tags_exchanges && tag >= MCA_COLL_BASE_TAG_NEIGHBOR_END &&
           (tag > MCA_COLL_BASE_TAG_NONBLOCKING_BASE || tag <= MCA_COLL_BASE_TAG_NEIGHBOR_BASE);
}

#endif
