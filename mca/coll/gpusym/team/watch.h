/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The watch of a communicator of several islands: ranks that are lost, and islands that give up.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_WATCH_H
#define MCA_COLL_GPUSYM_TEAM_WATCH_H

#include "mca/coll/gpusym/team/state.h"

/* Why an island is lost whose ranks may be there. */
extern const char coll_gpusym_hosts_gave_up[] __attribute__((visibility("hidden")));
/* Why all ranks of an island are lost: nothing has come from its leader, as this rank knows or has been told. */
extern const char coll_gpusym_hosts_silent[] __attribute__((visibility("hidden")));

/* A rank of the communicator that is lost, or whose island gave up; -1: none. *why: words for it. A call that waits
 * asks about every 10 ms, also before the islands are open. About 1 us for each rank of this host.
 *
 * Where the network does not tell of a loss, as of a cut link, leaders watch each other, from the first native call on:
 * what has not been heard of for coll_gpusym_timeout is lost. */
int coll_gpusym_hosts_lost(coll_gpusym_team_t *t, const char **why);
/* Tells the other islands that this one gives up, and, before coll_gpusym_team_abort, this island for which lost rank
 * of the communicator; -1: none is known. why: as above, or NULL. Never waits: if another thread has the lock, the
 * helper thread tells it, in about 10 ms, or coll_gpusym_hosts_close, whichever comes first. */
void coll_gpusym_hosts_abort(coll_gpusym_team_t *t, int lost, const char *why);
/* Returns that rank, of a member of this island that gave up, and words for it; -1: it has told none. */
int coll_gpusym_hosts_blamed(const coll_gpusym_team_t *t, int member, const char **why);

/* ---- for hosts.c, with the worker's lock held ---- */

/* For the helper thread, of a leader: hears the other islands, tells them that this one is there; and passes on that a
 * member gave up, or that not all are there any more: the leader may do something else. */
void coll_gpusym_hosts_watch(struct coll_gpusym_hosts *h);
/* Of a leader: tells the other islands, if it has given up. The first time counts. */
void coll_gpusym_hosts_pass_on(struct coll_gpusym_hosts *h);

#endif
