/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank's part of the net in a communicator of several islands: what hosts.c, islands.c, watch.c and rails.c share,
 * and no other file includes. But where it is said to be otherwise, the worker's lock is held for what changes after it
 * was made: the helper thread and other threads of MPI use it too.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_PART_H
#define MCA_COLL_GPUSYM_TEAM_PART_H

#include "mca/coll/gpusym/team/state.h"
#include "mca/coll/gpusym/team/worker.h"
#include "mca/common/gpusym/rail/rail.h"
#include "mca/common/gpusym/rail/records.h"

typedef struct coll_gpusym_hosts coll_gpusym_hosts_t;

/* A rail, for gpusym_rail_params_t. */
typedef struct {
    coll_gpusym_hosts_t *hosts;
    uint32_t rail;
} coll_gpusym_place_t;

struct coll_gpusym_hosts {
    coll_gpusym_team_t *team; /* NULL: it was freed, and the rest is used up or answers still */
    gpusym_worker_t *worker;  /* the process's */
    uint32_t nranks, rank;    /* of the communicator */
    uint32_t nislands, island;
    coll_gpusym_host_card_t *cards; /* [nranks]; owned */
    gpusym_worker_peer_t **peer;    /* [nranks]; NULL: not open; owned */
    uint32_t *leader;               /* [nislands] ranks; owned */
    int unreached;                  /* a rank that the network does not lead to; -1: none is known */

    /* hosts.c */
    gpusym_worker_task_t task; /* added: of a leader, or where something is left to be closed */
    bool has_task;
    bool used;                 /* closed: all ranks had opened it, so that leaders leave each other */
    coll_gpusym_hosts_t *next; /* in the list of those that were freed */

    /* islands.c, of a leader */
    gpusym_records_t *records;
    /* What the helper thread answers by: the calls that this rank has posted, and the last of them that was not on host
     * memory. Atomic. */
    const uint64_t *seq; /* in the call agreement; of a communicator that was freed: last_seq */
    uint64_t last_seq;
    uint64_t entered;
    uint64_t posted; /* the call whose record this leader has posted last; 0: none */
    bool watches;    /* a call has been native: leaders watch each other */

    /* watch.c: atomic, without the lock */
    uint64_t lost_rank; /* 1 + a rank that is lost, for which this island gives up, | whether all of its island are (as
                         * it is told to other islands); 0: none is known */
    bool gives_up;      /* a leader: the other islands are to know it, whoever has the lock next */

    /* rails.c */
    uint32_t piece;           /* bytes of the pieces of all rails but the one among all ranks, the same on all ranks */
    uint64_t promised, taken; /* bytes of the worker's memory */
    char *send;               /* send buffers of the own rails */
    uint64_t send_bytes;
    gpusym_rail_t *rail[GPUSYM_TEAM_MAX + 1]; /* at coll_gpusym_hosts_rails the one among all ranks; NULL: not owned */
    coll_gpusym_place_t place[GPUSYM_TEAM_MAX + 1];
};

/* Makes it, with no peer open. cards: as coll_gpusym_hosts_open. NULL: there is no memory, or no worker. */
coll_gpusym_hosts_t *coll_gpusym_part_create(coll_gpusym_team_t *t, coll_gpusym_host_card_t *cards);
/* Frees it. Streams and rails are closed, and peers put, unless the worker is closed. */
void coll_gpusym_part_free(coll_gpusym_hosts_t *h);

/* Gets a rank for a rail or the records, opened at the first call. Errors as gpusym_worker_peer_get. */
int coll_gpusym_part_get(coll_gpusym_hosts_t *h, uint32_t rank, gpusym_rail_peer_t *peer);
/* Puts all ranks that it has got. */
void coll_gpusym_part_put(coll_gpusym_hosts_t *h);

#endif
