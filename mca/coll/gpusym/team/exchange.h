/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of set-up: exchanges and votes, by the fallback's nonblocking allgather. Of an island among others: by
 * notices in its ranks' pages, since the fallback's calls are all ranks' of the communicator. A team has one in flight
 * at most.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_EXCHANGE_H
#define MCA_COLL_GPUSYM_TEAM_EXCHANGE_H

#include "mca/coll/gpusym/team/state.h"

/* What a rank votes: yes; or that it failed: 0, or this and errno. */
#define COLL_GPUSYM_VOTE_YES 1u

/* Starts an exchange: every rank sends `size` bytes to all; all: [ranks] of these: those of the communicator in the
 * bootstrap, those of the team behind it. The caller keeps both
 * buffers until the exchange has ended. Returns an MPI error code. */
int coll_gpusym_exchange_start(coll_gpusym_team_t *t, const void *mine, void *all, size_t size);
/* 1: the exchange has ended; 0: it is in progress; negative: it failed. Never waits. */
int coll_gpusym_exchange_poll(coll_gpusym_team_t *t);
/* Starts a vote of all ranks. Returns an MPI error code. */
int coll_gpusym_vote_start(coll_gpusym_team_t *t, bool mine);
/* The same; error: 0 is yes, an errno is no and its cause. */
int coll_gpusym_vote_start_error(coll_gpusym_team_t *t, int error);
/* Whether all ranks voted yes. The vote has ended. */
bool coll_gpusym_vote_result(const coll_gpusym_team_t *t);
/* Allocates the zeroed buffers of an exchange, `size` bytes per rank: t->boot.mine and t->boot.all. False: no
 * memory. */
bool coll_gpusym_exchange_alloc(coll_gpusym_team_t *t, size_t size);
void coll_gpusym_exchange_free(coll_gpusym_team_t *t);

/* Lists the ranks, of an exchange that has ended, whose hash is another than rank 0's: "1, 3 (none)"; 0 is none. hash:
 * of rank 0; those of the other ranks follow, `stride` bytes apart. Returns whether there are any. */
bool coll_gpusym_list_others(const coll_gpusym_team_t *t, const uint64_t *hash, size_t stride, char *ranks,
                             size_t size);

/* Sets the step of set-up, which peers that wait for this rank read. */
void coll_gpusym_team_step(coll_gpusym_team_t *t, int step);
/* Settles a team on which all ranks agree that every call is staged. detail: text, or NULL. */
void coll_gpusym_team_settle(coll_gpusym_team_t *t, int reason, const char *detail);

#endif
