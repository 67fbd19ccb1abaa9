/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * This rank's ends of the rails of a communicator of several islands: as many rails between the islands as its largest
 * island has members, and one among all ranks.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_RAILS_H
#define MCA_COLL_GPUSYM_TEAM_RAILS_H

#include "mca/coll/gpusym/team/state.h"
#include "mca/common/gpusym/rail/rail.h"

/* Which rails a rank has. */
enum {
    COLL_GPUSYM_HOSTS_RAILS = 1,  /* its rails between the islands */
    COLL_GPUSYM_HOSTS_ALL = 2,    /* its rail among all ranks */
    COLL_GPUSYM_HOSTS_PINNED = 4, /* none, perhaps, but the memory for them */
};

/* Rails between the islands. */
static inline uint32_t coll_gpusym_hosts_rails(const coll_gpusym_team_t *t)
{
    return t->islands.most;
}
/* Those that this rank owns: [*first, *end). */
static inline void coll_gpusym_hosts_own(const coll_gpusym_team_t *t, uint32_t *first, uint32_t *end)
{
    *first = gpusym_rail_first(t->host.nranks, t->host.rank, coll_gpusym_hosts_rails(t));
    *end = gpusym_rail_first(t->host.nranks, t->host.rank + 1, coll_gpusym_hosts_rails(t));
}
/* This rank's end of a rail between the islands, which it owns; at coll_gpusym_hosts_rails: of the one among all
 * ranks. */
gpusym_rail_t *coll_gpusym_hosts_rail(const coll_gpusym_team_t *t, uint32_t rail);
/* Bytes of its pieces. */
uint32_t coll_gpusym_hosts_piece(const coll_gpusym_team_t *t);
/* Bytes of the longest pieces, up to the worker's, for which this rank's rails need no more memory of the net than the
 * next communicator should have: those of later communicators are shorter, so that more of them have rails. Where bits
 * are to be reproducible, which depend on the pieces, all have the worker's. 0: this rank has no net. */
uint32_t coll_gpusym_hosts_propose(const coll_gpusym_team_t *t);
/* Whether no message of a call that was dropped is under way from their memory, and a call may begin. Whoever asks has
 * entered. */
bool coll_gpusym_hosts_quiet(const coll_gpusym_team_t *t);
/* Whoever uses rails has entered: false: another thread is at it. */
bool coll_gpusym_hosts_lock(const coll_gpusym_team_t *t);
void coll_gpusym_hosts_unlock(const coll_gpusym_team_t *t);
/* After an error: closes the rails. Whether no kernel of theirs runs any more. Never waits: messages to a host that
 * does not answer may stay under way until the end of the process. */
bool coll_gpusym_hosts_stop(const coll_gpusym_team_t *t);

/* ---- for hosts.c ---- */

/* At the end of the bootstrap: all ranks have told what they propose. Agrees on the shortest pieces, and promises this
 * rank's rails their memory. With the worker's lock held. */
void coll_gpusym_hosts_settle_pieces(coll_gpusym_team_t *t);
/* Forgoes what is promised. With the worker's lock held. */
void coll_gpusym_hosts_forgo(struct coll_gpusym_hosts *h);
/* Takes memory of the net for this rank's rails, and opens them on its GPU. Returns what it has. With the worker's lock
 * held, as for closing them. */
unsigned coll_gpusym_hosts_open_rails(coll_gpusym_team_t *t);
/* Closes the rails that can be, and gives back the memory after the last of them. Whether all are. */
bool coll_gpusym_hosts_close_rails(struct coll_gpusym_hosts *h);
/* Frees them, once the worker is closed. Waits for their kernels. */
void coll_gpusym_hosts_free_rails(struct coll_gpusym_hosts *h);

#endif
