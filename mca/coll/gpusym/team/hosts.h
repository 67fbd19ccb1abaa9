/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of a communicator of several islands share beyond their island: addresses, agreement on calls, rails.
 *
 * Member 0 of each island, its leader, agrees with the other leaders on each call in which its island has no rank on
 * the host (rail/records.h), and tells its members by a word of its line. A leader that does a call on host memory goes
 * on at once: the helper thread of its worker answers for it.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_HOSTS_H
#define MCA_COLL_GPUSYM_TEAM_HOSTS_H

#include "mca/coll/gpusym/team/state.h"
#include "mca/common/gpusym/rail/rail.h"
#include "mca/common/gpusym/rail/records.h"

/* ---- the process's end of the net ---- */

/* Closes it, if it is open: no communicator is left. */
void coll_gpusym_hosts_fini(void);

/* ---- set-up ---- */

/* Bytes of a process's address in the net, at most. */
#define COLL_GPUSYM_ADDRESS_MAX 1008u
/* What a rank tells all ranks of the communicator at the end of the bootstrap. */
typedef struct {
    uint64_t token; /* random */
    int32_t error;  /* errno of what it could not map in its island; 0: nothing */
    uint32_t bytes; /* of the address; 0: it has no net */
    char address[COLL_GPUSYM_ADDRESS_MAX];
} coll_gpusym_host_card_t;

/* Fills in this rank's card, but for `error`; opens the process's net, which takes 20 to 100 ms the first time. */
void coll_gpusym_hosts_describe(coll_gpusym_host_card_t *card);
/* Begins the agreement between the islands. card: [ranks of the communicator], owned from now on. Every rank has a net.
 * GPUSYM_SUCCESS, or this rank cannot take part: GPUSYM_ERR_UNREACHABLE: the network does not lead to another
 * leader; GPUSYM_ERR_NOT_AVAILABLE: no thread that answers for it can be started. */
int coll_gpusym_hosts_open(coll_gpusym_team_t *t, coll_gpusym_host_card_t *card);
/* Takes memory of the net for this rank's rails, and opens them on its GPU. Returns what it has: */
enum {
    COLL_GPUSYM_HOSTS_RAILS = 1, /* its rails between the islands */
    COLL_GPUSYM_HOSTS_ALL = 2,   /* its rail among all ranks */
};
unsigned coll_gpusym_hosts_reserve(coll_gpusym_team_t *t);
/* Before the team is freed. used: all ranks have opened it: the net still answers for it. */
void coll_gpusym_hosts_close(coll_gpusym_team_t *t, bool used);

/* ---- agreement ---- */

/* What all islands do with a call. */
typedef enum {
    COLL_GPUSYM_VERDICT_NATIVE = 1,
    COLL_GPUSYM_VERDICT_EMPTY,    /* nothing goes from anyone to anyone */
    COLL_GPUSYM_VERDICT_UNSET,    /* staged: an island without data is to be set up first, in its next call */
    COLL_GPUSYM_VERDICT_MISMATCH, /* an island has posted another call */
    COLL_GPUSYM_VERDICT_ABORTED,  /* an island gave up */
    COLL_GPUSYM_VERDICT_STAGED,   /* + enum coll_gpusym_reason */
} coll_gpusym_verdict_kind_t;
typedef struct {
    unsigned kind;
    uint32_t rank; /* MISMATCH, ABORTED: the leader of that island, as a rank of the communicator */
} coll_gpusym_verdict_t;

/* What an island tells of a call. */
typedef struct {
    int reason;    /* -1: native; else enum coll_gpusym_reason; COLL_GPUSYM_R_MIXED: a rank is on the host */
    uint32_t hash; /* compared where all are native; so are what and, where that says so, bytes */
    uint8_t what;
    bool unset; /* native, but not set up, since no member has a buffer: staged if other islands have data */
    uint64_t bytes, balance;
} coll_gpusym_island_record_t;

/* Notes that this rank posts call seq with buffers on its GPU: nobody answers for it. Before it posts. */
void coll_gpusym_hosts_enter(coll_gpusym_team_t *t, uint64_t seq);
/* A leader: posts its island's record of call seq. 1: it has; 0: not yet, for other leaders are behind; negative: the
 * agreement has failed. */
int coll_gpusym_hosts_post(coll_gpusym_team_t *t, uint64_t seq, const coll_gpusym_island_record_t *record);
/* Polls for the verdict on call seq, in which this island is native, and a leader has posted that. 1: there; 0: not
 * yet; negative: the agreement has failed. exact: all islands have the same bytes. */
int coll_gpusym_hosts_poll(coll_gpusym_team_t *t, uint64_t seq, bool exact, coll_gpusym_verdict_t *verdict);
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
/* Describes the ranks that a call waits for in the agreement: the islands whose record is missing. */
void coll_gpusym_hosts_missing(const coll_gpusym_team_t *t, char *text, size_t size);
/* Tells the other islands that this one gives up. */
void coll_gpusym_hosts_abort(coll_gpusym_team_t *t);

/* ---- rails ---- */

/* Rails of a communicator: as many as its largest island has members. */
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
/* After an error: closes the rails. Whether no kernel of theirs runs any more. Never waits: messages to a host that
 * does not answer may stay under way until the end of the process. */
bool coll_gpusym_hosts_stop(const coll_gpusym_team_t *t);
/* Whoever uses rails has entered: false: another thread is at it. */
bool coll_gpusym_hosts_lock(const coll_gpusym_team_t *t);
void coll_gpusym_hosts_unlock(const coll_gpusym_team_t *t);

#endif
