/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of set-up: what ranks tell each other, by the fallback's nonblocking allgather, and votes. One at a time.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_EXCHANGE_H
#define MCA_COLL_GPUSYM_TEAM_EXCHANGE_H

#include "mca/coll/gpusym/team/state.h"

/* What a rank votes: yes; or that it failed: 0, or this and errno. */
#define COLL_GPUSYM_VOTE_YES 1u

/* Begins to tell all ranks `size` bytes; all: [nranks] of these. Both stay until the exchange has ended. MPI error code. */
int coll_gpusym_exchange_start(coll_gpusym_team_t *t, const void *mine, void *all, size_t size);
/* 1: all ranks have told theirs; 0: not yet; negative: failed. Never waits. */
int coll_gpusym_exchange_poll(coll_gpusym_team_t *t);
/* Begins to ask all ranks whether they agree. MPI error code. */
int coll_gpusym_vote_start(coll_gpusym_team_t *t, bool mine);
/* The same; error: errno why not, 0: yes. */
int coll_gpusym_vote_start_error(coll_gpusym_team_t *t, int error);
/* After the vote: whether all said yes. */
bool coll_gpusym_vote_result(const coll_gpusym_team_t *t);
/* Buffers for what all ranks tell, `size` bytes each, zeroed: t->boot.mine and all. False: no memory. */
bool coll_gpusym_exchange_alloc(coll_gpusym_team_t *t, size_t size);
void coll_gpusym_exchange_free(coll_gpusym_team_t *t);

/* Sets how far set-up is, for peers that wait for this rank too. */
void coll_gpusym_team_step(coll_gpusym_team_t *t, int step);
/* Agreed: every call is staged, for that reason; detail: in words, or NULL. */
void coll_gpusym_team_settle(coll_gpusym_team_t *t, int reason, const char *detail);

#endif
