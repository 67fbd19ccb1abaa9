/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The watch of a communicator of several islands: ranks that are lost, and islands that give up.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_WATCH_H
#define MCA_COLL_GPUSYM_TEAM_WATCH_H

#include "mca/coll/gpusym/team/state.h"

/* A rank of the communicator that is lost, or whose island gave up; -1: none. *why: words for it. A call that waits
 * asks about every 10 ms, also before the islands are open. About 1 us for each rank of this host.
 *
 * Where the network does not tell of a loss, as of a cut link, leaders watch each other, from the first native call on:
 * what has not been heard of for coll_gpusym_timeout is lost. */
int coll_gpusym_hosts_lost(coll_gpusym_team_t *t, const char **why);
/* Notes, before coll_gpusym_hosts_abort, for which lost rank of the communicator this rank gives up. */
void coll_gpusym_hosts_blame(coll_gpusym_team_t *t, uint32_t rank);
/* Returns that rank, of a member of this island that gave up; -1: it has told none. */
int coll_gpusym_hosts_blamed(const coll_gpusym_team_t *t, int member);
/* Tells the other islands that this one gives up. */
void coll_gpusym_hosts_abort(coll_gpusym_team_t *t);

/* For the helper thread, of a leader, with the worker's lock held: hears the other islands, tells them that this one is
 * there; and passes on that a member gave up, or that not all are there any more: the leader may do something else. */
void coll_gpusym_hosts_watch(struct coll_gpusym_hosts *h);

#endif
