/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Registered memory: regions of the program's GPU memory that all ranks of a communicator have mapped at each other, so
 * that calls on streams, whose ranks cannot agree on the host, go straight between buffers in them.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_REGIONS_H
#define MCA_COLL_GPUSYM_EXEC_REGIONS_H

#include "mca/coll/gpusym/team/state.h"

/* Most regions of a communicator at a time. */
#define COLL_GPUSYM_REGIONS_MAX 16

/* One of each rank, perhaps of 0 bytes. */
typedef struct {
    uint32_t number;           /* of this registration, the same on all ranks, and no other's; 0: there is none */
    const char *base;          /* this rank's */
    uint64_t bytes, id;        /* id: of the allocation, gpusym_mem_t.id */
    uint64_t least;            /* bytes of the rank that has the fewest: the same on all ranks */
    uint32_t key;              /* of our memory (memory/reg.h), which is pinned; 0: none is */
    void *at[GPUSYM_TEAM_MAX]; /* each rank's, as our GPU reaches it; NULL: it has none */
} coll_gpusym_region_t;

typedef struct {
    uint32_t registered; /* number of the last one */
    coll_gpusym_region_t region[COLL_GPUSYM_REGIONS_MAX];
} coll_gpusym_regions_t;

/* What a rank tells the others of its region. */
typedef struct {
    uint64_t off, bytes; /* in its allocation */
    uint32_t key;        /* of that; 0: it has none */
    int32_t why;         /* this rank has nothing to offer, coll_gpusym_region_why(); 0: all is well */
} coll_gpusym_region_offer_t;

/* Registering, in two steps, between which all ranks tell each other what they offer; behind them they tell whether
 * they have mapped all. NULL: there are COLL_GPUSYM_REGIONS_MAX. The region is not used before all ranks have. */
coll_gpusym_region_t *coll_gpusym_regions_add(coll_gpusym_regions_t *all);
void coll_gpusym_region_offer(coll_gpusym_region_t *region, coll_gpusym_team_t *t, const void *base, uint64_t bytes,
                              coll_gpusym_region_offer_t *mine);
/* offers: [ranks]. Returns 0: all are mapped, else 1 + the rank whose memory cannot be. */
uint32_t coll_gpusym_region_map(coll_gpusym_region_t *region, const coll_gpusym_team_t *t,
                                const coll_gpusym_region_offer_t *offers);
/* One that no memory is the cause of: calls on streams have failed before. */
#define COLL_GPUSYM_REGION_FAILED 1
/* What an offer's `why` means. */
const char *coll_gpusym_region_why(int32_t why);

/* The region of that number; NULL: none. */
coll_gpusym_region_t *coll_gpusym_regions_get(coll_gpusym_regions_t *all, uint32_t number);
/* The first region that has the buffer; NULL: none. id: of its allocation; 0: not known. least: what every rank's
 * buffer has at least: a region with less of any rank is no rank's, so that all decide alike. */
coll_gpusym_region_t *coll_gpusym_regions_find(coll_gpusym_regions_t *all, const void *p, uint64_t bytes, uint64_t id,
                                               uint64_t least);
/* Ends a region. unused: no kernel of a peer can access our memory any more; else it stays exported, for good. */
void coll_gpusym_region_end(coll_gpusym_region_t *region, bool unused);

#endif
