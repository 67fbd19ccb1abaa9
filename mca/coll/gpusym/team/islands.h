/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How the islands of a communicator agree on calls.
 *
 * Member 0 of each island, its leader, agrees with the other leaders on each call in which its island has no rank on
 * the host (rail/records.h), and tells its members by a word of its line. A leader that does a call on host memory goes
 * on at once: the helper thread of its worker answers for it.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_ISLANDS_H
#define MCA_COLL_GPUSYM_TEAM_ISLANDS_H

#include "mca/coll/gpusym/team/state.h"

/* What all islands do with a call. */
typedef enum {
    COLL_GPUSYM_VERDICT_NATIVE = 1,
    COLL_GPUSYM_VERDICT_EMPTY,    /* nothing goes from anyone to anyone */
    COLL_GPUSYM_VERDICT_AGAIN,    /* all post it again: an island has been set up in it, or is to be */
    COLL_GPUSYM_VERDICT_MISMATCH, /* an island has posted another call */
    COLL_GPUSYM_VERDICT_ABORTED,  /* an island gave up */
    COLL_GPUSYM_VERDICT_SILENT,   /* and nothing comes from the island of that rank */
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
    bool again; /* native, but it was not set up when its members posted */
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
/* Describes the ranks that a call waits for in the agreement: the islands whose record is missing. */
void coll_gpusym_hosts_missing(const coll_gpusym_team_t *t, char *text, size_t size);
/* Gets them, by the ranks of their leaders, of which each stands for its island; at most `most`, at least 1. Returns
 * how many. */
unsigned coll_gpusym_hosts_awaited(const coll_gpusym_team_t *t, uint32_t *rank, unsigned most);

/* ---- for hosts.c and watch.c ---- */

/* Opens a leader's records. With the worker's lock held. GPUSYM_ERR_UNREACHABLE: the network does not lead to another
 * leader. */
int coll_gpusym_hosts_open_records(struct coll_gpusym_hosts *h);
/* Whether all islands are native in the call that this leader has posted last, as far as is known. With the worker's
 * lock held. */
bool coll_gpusym_hosts_is_native(const struct coll_gpusym_hosts *h);
/* Writes a verdict into this rank's line. seq: 0: of no call. */
void coll_gpusym_hosts_tell(const coll_gpusym_team_t *t, uint64_t seq, coll_gpusym_verdict_t verdict);
/* Reads that of a member's line. */
coll_gpusym_verdict_t coll_gpusym_hosts_told(const coll_gpusym_team_t *t, uint32_t member, uint64_t *seq);

#endif
