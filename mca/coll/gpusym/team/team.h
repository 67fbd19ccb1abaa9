/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Teams: their making, their first step (bootstrap), and their end.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_H
#define MCA_COLL_GPUSYM_TEAM_H

#include "mca/coll/gpusym/team/state.h"

/* Makes an empty team, locally, or finds that there is none: *team is NULL then, for *reason (enum coll_gpusym_reason). MPI
 * error code. */
int coll_gpusym_team_create(coll_gpusym_fallback_t *f, coll_gpusym_team_t **team, int *reason);
/* Frees a team, after the communicator's last collective. NULL is fine. */
void coll_gpusym_team_free(coll_gpusym_team_t *team);
/* The first rank whose process has ended, or -1; from the first step on. About 1 us a rank. */
int coll_gpusym_team_dead(const coll_gpusym_team_t *team);
/* Whether the bootstrap goes on, in which the ranks' lines are not mapped yet: a missing rank is seen by other means. */
bool coll_gpusym_team_bootstrapping(const coll_gpusym_team_t *team);
/* Tells the peers that this rank gave up: those that can read its line by now, or later. */
void coll_gpusym_team_abort(coll_gpusym_team_t *team);
/* First step: the ranks' addresses. 1: done (team->none or team->reason is set, perhaps); 0: not yet; negative: failed. All
 * ranks begin it at their first call; never waits. */
int coll_gpusym_team_bootstrap(coll_gpusym_team_t *team);

#endif
