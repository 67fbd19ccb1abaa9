/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that wait for ranks: when it is time to look after these, and what the user is told.
 */
#ifndef MCA_COLL_GPUSYM_CALL_WAIT_H
#define MCA_COLL_GPUSYM_CALL_WAIT_H

#include "mca/coll/gpusym/team/team.h"

/* When a poll last checked whether peers and GPU are well. Zeroed before its first use. */
typedef struct {
    uint32_t polls;      /* since the last check */
    uint64_t checked_ns; /* the last check; 0: none yet */
    uint64_t gap_ns;     /* between that and the one before */
} coll_gpusym_health_t;

/* To be asked at every poll. True: it is time to check, every 10 ms about. */
bool coll_gpusym_health_due(coll_gpusym_health_t *h);

/* What a call waits for. */
typedef enum {
    COLL_GPUSYM_WAIT_POST = 1, /* to be posted: the address exchange of the team, or a peer that is too far behind */
    COLL_GPUSYM_WAIT_ROLLCALL, /* for the peers' entries */
    COLL_GPUSYM_WAIT_SETUP,    /* for the second step of set-up, in which all lines are mapped */
    COLL_GPUSYM_WAIT_VOTE,     /* for the peers' votes */
} coll_gpusym_wait_for_t;

/* How long a call has waited. Zeroed before its first use. */
typedef struct {
    uint64_t waited_ns; /* for ranks that had not come: as far as this rank was there to wait */
    uint32_t step;      /* at which it waits, of call and set-up: waited_ns is of that */
    uint32_t told;      /* how often that was told, here or by another rank */
} coll_gpusym_wait_t;

/* A check by a call (seq: of its roll-call, where it is posted) that waits; gap_ns: time since the last. Tells the user now and
 * then which ranks are missing. True: it has waited as long as it may, and the user has been told. */
bool coll_gpusym_wait_note(coll_gpusym_wait_t *w, const coll_gpusym_team_t *t, unsigned coll, uint64_t seq,
                           coll_gpusym_wait_for_t what, uint64_t gap_ns);

#endif
