/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The second step of a team: GPUs, slots of the heap, links, multicast.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_JOIN_H
#define MCA_COLL_GPUSYM_TEAM_JOIN_H

#include "mca/coll/gpusym/team/state.h"

/* Second step: every rank's buffers lie on its GPU; where: one of ours. 1: done, team->reason is set where it
 * cannot be; 0: not yet; negative: failed. Never waits. */
int coll_gpusym_team_join(coll_gpusym_team_t *team, const gpusym_mem_t *where);
/* Whether mem can be used by kernels of this team's GPU (of the process's heap, before the second step). Local. */
bool coll_gpusym_team_owns(coll_gpusym_team_t *team, const gpusym_mem_t *mem);
/* Takes `epochs` epochs for the call in flight, clearing the slots when the counter would wrap (collective then). */
int coll_gpusym_team_epochs(coll_gpusym_team_t *team, uint64_t epochs, uint32_t *first);

/* Gives back what the second step took. */
void coll_gpusym_team_leave(coll_gpusym_team_t *team);

#endif
