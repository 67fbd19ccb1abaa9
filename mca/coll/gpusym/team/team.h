/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A team: what a communicator shares with its peers. Made in two steps, each when all ranks are there: at
 * the first collective (who is where, the lines of the roll-call), and at the first call in which all ranks have
 * device buffers (the heap, the slots). Both go on by being polled: a nonblocking call must not wait for its peers.
 * Used by the files of coll/gpusym that serve collectives.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_H
#define MCA_COLL_GPUSYM_TEAM_H

#include "mca/coll/gpusym/fallback/fallback.h"
#include "mca/coll/gpusym/team/peers.h"
#include "mca/common/gpusym/agree/rollcall.h"
#include "mca/common/gpusym/memory/heap.h"

/* A team; made at a communicator's first collective. */
typedef struct coll_gpusym_team coll_gpusym_team_t;

struct coll_gpusym_team {
    coll_gpusym_fallback_t *fallback; /* not owned: the communicator, and its messages */
    uint32_t nranks, rank;
    int reason;            /* enum coll_gpusym_reason for which every call is staged, agreed by all ranks; -1: none */
    gpusym_rollcall_t rc;  /* valid while reason < 0 or became so after the second step */
    coll_gpusym_peer_t **peers; /* [nranks] the ranks' processes */
    uint64_t key; /* of our line: which communicator this is, for processes of other ranks that look for it; not 0 */
    bool none;             /* no rank has a device: every call is forwarded, once those in flight are over */
    bool broken;           /* a call failed: flags and epochs are no longer alike, every further call is refused */
    bool open; /* the first step is over (joined, or reason says why not), and not broken: host buffers' short way */
    bool has_line;
    bool joined;           /* all ranks have mapped all lines: peers read ours */
    bool threads;          /* some rank may be in several calls at once: calls take turns */
    uint64_t line_off;     /* of our line in our pages */

    /* The steps of set-up: see team/team.c. */
    int step;
    struct ompi_request_t *exchange; /* an allgather of the previous module in flight; NULL: none */
    void *mine, *all;                /* its buffers */
    uint8_t my_vote, *votes;         /* [nranks] */
    uint8_t my_link[GPUSYM_TEAM_MAX]; /* what this rank says of its links, see `link` */

    bool has_slot;
    int slot_class;
    gpusym_gpu_t *gpu;
    char gpu_text[112];    /* "NVIDIA H200, 0000:1b:00.0", for messages */
    int mem_gpu;           /* ordinal and context of memory known to be gpu's */
    void *mem_context;
    uint64_t slot_off, slot_size;
    uint32_t max_blocks;   /* a launch may use */
    uint32_t sm_count;     /* of the smallest GPU */
    /* A call begins with the epoch epoch_base + the number of its roll-call: so an epoch belongs to one call alone, also if
     * that is not made by kernels then. Modulo 2^64; the sum is at least 1. */
    uint64_t epoch_base;
    gpusym_work_t work;    /* peers and layout filled in */
    /* Who reaches whom, agreed: link[a][b] is a class of team.h, the smaller of both directions. */
    uint8_t link[GPUSYM_TEAM_MAX][GPUSYM_TEAM_MAX];
    bool all_reach;        /* else only along the rings, and work.peer[r] is NULL for those whom we do not reach */
    bool ll128;            /* every link keeps stores of 128 bytes whole */
    uint32_t nrings;
    uint8_t ring[GPUSYM_PATHS_MAX][GPUSYM_TEAM_MAX]; /* orders of the ranks */
    gpusym_mc_t *mc;       /* multicast object over all ranks' slots, bound; NULL: none, on all ranks */

    bool no_zero_copy;     /* not all GPUs reach each other: agreed by all */
};

/* Makes an empty team, locally, or finds that there is none: *team is NULL then, for *reason (enum coll_gpusym_reason). MPI
 * error code. */
int coll_gpusym_team_create(coll_gpusym_fallback_t *f, coll_gpusym_team_t **team, int *reason);
/* Frees a team, after the communicator's last collective. NULL is fine. */
void coll_gpusym_team_free(coll_gpusym_team_t *team);
/* The first rank whose process has ended, or -1; from the first step on. About 1 us a rank. */
int coll_gpusym_team_dead(const coll_gpusym_team_t *team);
/* Whether set-up is where the ranks' lines are not mapped yet: who has not come is seen by other means. */
bool coll_gpusym_team_meeting(const coll_gpusym_team_t *team);
/* Tells the peers that this rank gave up: those that can read its line by now, or later. */
void coll_gpusym_team_abort(coll_gpusym_team_t *team);
/* First step: who is where. 1: done (team->none or team->reason is set, perhaps); 0: not yet; negative: failed. All
 * ranks begin it at their first call; never waits. */
int coll_gpusym_team_meet(coll_gpusym_team_t *team);
/* Second step: every rank's buffers lie on its GPU; where: one of ours. 1: done, team->reason is set where it
 * cannot be; 0: not yet; negative: failed. */
int coll_gpusym_team_gpu(coll_gpusym_team_t *team, const gpusym_mem_t *where);
/* Whether mem can be used by kernels of this team's GPU (of the process's heap, before the second step). Local. */
bool coll_gpusym_team_owns(coll_gpusym_team_t *team, const gpusym_mem_t *mem);
/* Takes `epochs` epochs for the call in flight, clearing the slots when the counter would wrap (collective then). */
int coll_gpusym_team_epochs(coll_gpusym_team_t *team, uint64_t epochs, uint32_t *first);

#endif
