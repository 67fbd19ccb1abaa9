/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Teams: creation, bootstrap and release.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_H
#define MCA_COLL_GPUSYM_TEAM_H

#include "mca/coll/gpusym/team/state.h"

/* Creates an empty team: of all ranks, or where the communicator has several islands of those of this rank's island.
 * Local. If the ranks cannot agree on calls, sets *team to NULL and *reason (enum coll_gpusym_reason). Returns an MPI
 * error code. */
int coll_gpusym_team_create(coll_gpusym_fallback_t *f, coll_gpusym_team_t **team, int *reason);
/* Returns a key of a communicator: the same on all of its ranks, and no other's in any of its processes, by its id and
 * its ranks. Not 0. */
uint64_t coll_gpusym_team_key(struct ompi_communicator_t *comm);
/* Frees a team, after the communicator's last collective. NULL is fine. */
void coll_gpusym_team_free(coll_gpusym_team_t *team);
/* Sets *mem to memory of the GPU on which this rank's buffers in host memory are worked on. False: it uses none. */
bool coll_gpusym_team_find_gpu(const coll_gpusym_team_t *team, gpusym_mem_t *mem);
/* Returns the first rank whose process has ended, or -1. Takes about 1 us per rank. */
int coll_gpusym_team_dead(const coll_gpusym_team_t *team);
/* Whether the bootstrap is in progress: the ranks' lines are not mapped yet, and do not show a missing rank. */
bool coll_gpusym_team_bootstrapping(const coll_gpusym_team_t *team);
/* Marks this rank's line as aborted, for peers that read it now or later: this rank takes part in calls before number
 * `first`, and in no other. */
void coll_gpusym_team_abort(coll_gpusym_team_t *team, uint64_t first);
/* Polls the bootstrap, which all ranks begin at their first call. 1: done, and team->none or team->reason may be set;
 * 0: in progress; negative: failed. Never waits. */
int coll_gpusym_team_bootstrap(coll_gpusym_team_t *team);

/* Posts a call in which this rank has host buffers, where peers may wait for that: not if the collective has no
 * kernels, or no rank reads the others' lines. The team is open, and no call is in flight. False: a peer is
 * too far behind, and nothing is posted. */
static inline bool coll_gpusym_team_post_host(coll_gpusym_team_t *team, enum coll_gpusym_coll coll)
{
    return (int) coll >= (int) COLL_GPUSYM_NATIVES || !team->host.joined ||
           gpusym_agreement_post_host(&team->host.rc, (uint8_t) coll);
}

#endif
