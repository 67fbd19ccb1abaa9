/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that wait for ranks: when to check the health of peers and GPU, and what to report to the user.
 */
#ifndef MCA_COLL_GPUSYM_CALL_WAIT_H
#define MCA_COLL_GPUSYM_CALL_WAIT_H

#include "mca/coll/gpusym/exec/way.h"
#include "mca/common/gpusym/agree/status.h"

/* When a poll last checked whether peers and GPU are well. Zeroed before its first use. */
typedef struct {
    uint32_t polls;      /* since the last check */
    uint64_t checked_ns; /* the last check; 0: none yet */
    uint64_t gap_ns;     /* between that and the one before */
} coll_gpusym_health_t;

/* Called at every poll. True about every 10 ms: a health check is due. */
bool coll_gpusym_health_due(coll_gpusym_health_t *h);

/* How long a call has waited. Zeroed before its first use. */
typedef struct {
    uint64_t waited_ns; /* for missing ranks, while this rank was polling */
    uint32_t step;      /* of call and set-up: waited_ns counts from its beginning */
    uint32_t reports;   /* so far, by this rank or another */
} coll_gpusym_wait_t;

/* A health check of a call that waits. seq: of its call agreement, if it is posted; gap_ns: time since the last check.
 * Reports missing ranks to the user from time to time. True: the time limit has passed. */
bool coll_gpusym_wait_note(coll_gpusym_wait_t *w, const coll_gpusym_team_t *t, unsigned coll, uint64_t seq,
                           coll_gpusym_wait_for_t what, uint64_t gap_ns);
/* Reports that, with the missing ranks: the call gives up. */
void coll_gpusym_wait_report(const coll_gpusym_team_t *t, unsigned coll, uint64_t seq, coll_gpusym_wait_for_t what);

/* The same check, of any call: publishes for gpusym_info --job what it waits for, if it has waited since the last
 * check. way: its name; NULL: not known yet. seq: the call's number, also before it is posted. */
void coll_gpusym_wait_publish(const coll_gpusym_health_t *h, const coll_gpusym_run_t *run, const char *way,
                              gpusym_status_state_t state, uint64_t seq, coll_gpusym_wait_for_t what);

#endif
