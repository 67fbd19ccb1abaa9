/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The second step of a team: GPUs, slots of the heap, links, multicast.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_JOIN_H
#define MCA_COLL_GPUSYM_TEAM_JOIN_H

#include "mca/coll/gpusym/team/state.h"

/* Polls the second step. where: a buffer of this rank, on its GPU; every rank has one. 1: done, and team->reason is set
 * if kernels cannot be used; 0: in progress; negative: failed. Never waits. */
int coll_gpusym_team_join(coll_gpusym_team_t *team, const gpusym_mem_t *where);
/* Whether kernels on this team's GPU (before the second step: on that of the process's heap) can use mem. Local. */
bool coll_gpusym_team_owns(coll_gpusym_team_t *team, const gpusym_mem_t *mem);
/* Whether another process uses this process's GPU, as far as is known: looked up in every 64th call. */
bool coll_gpusym_team_crowded(coll_gpusym_team_t *team);
/* Of a team whose ranks share GPUs by MPS (state.h): whether a call of so many bytes, the largest message of any rank,
 * is one for kernels of all ranks; else it is for leaders. The same on all ranks. */
bool coll_gpusym_team_is_short(const coll_gpusym_team_t *t, uint64_t bytes);
/* The team, which is set up, is led from now on: see state.h. In the same call on all ranks. */
void coll_gpusym_team_lead(coll_gpusym_team_t *team);

/* Frees what the second step has made, but for the slot. */
void coll_gpusym_team_leave(coll_gpusym_team_t *team);
/* Frees the slot, after the line has been retired. */
void coll_gpusym_team_free_slot(coll_gpusym_team_t *team);

#endif
