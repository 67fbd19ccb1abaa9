/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators of all kinds, as a rank sees them.
 */
#ifndef TEST_MPI_COLL_COMMS_H
#define TEST_MPI_COLL_COMMS_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#define COLL_PEERS 64 /* ranks and neighbours at most */

/* A communicator as its rank sees it; data come from and go to the peers. Owned by whoever made it, and freed with
 * coll_comm_free. */
typedef struct {
    MPI_Comm comm;
    const char *name;
    uint64_t salt; /* tells the parts of a split apart; the same on all ranks, of both groups */
    bool inter, topology;
    int group;      /* 0 or 1; 0 on an intracommunicator */
    int me, n;      /* in the own group */
    int peers;      /* the remote group's size; n on an intracommunicator */
    int nfrom, nto; /* topology: neighbours; MPI_PROC_NULL for a place at the grid's edge */
    int from[COLL_PEERS], to[COLL_PEERS];
} coll_comm_t;

/* All are collective over base, an intracommunicator; those that leave out ranks give comm MPI_COMM_NULL there. */
void coll_comm_dup(coll_comm_t *c, MPI_Comm base);
void coll_comm_reversed(coll_comm_t *c, MPI_Comm base);
void coll_comm_split(coll_comm_t *c, MPI_Comm base, int color, int key, const char *name);
/* Ranks [0, first) and [first, n) of base; both not empty. */
void coll_comm_inter(coll_comm_t *c, MPI_Comm base, int first);
/* A line (a ring if periodic, of 3 ranks at least) or, of an even number of ranks >= 4, a plane of two rows. */
void coll_comm_cart(coll_comm_t *c, MPI_Comm base, bool periodic, bool plane);
/* Edges drawn from the seed, to oneself too; some ranks may have none. */
void coll_comm_graph(coll_comm_t *c, MPI_Comm base, uint64_t seed);
/* The communicator is MPI_COMM_SELF or MPI_COMM_WORLD itself, and not freed. */
void coll_comm_of(coll_comm_t *c, MPI_Comm comm, const char *name);
void coll_comm_free(coll_comm_t *c);

#endif
