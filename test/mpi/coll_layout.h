/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A collective call; what a rank's two buffers hold before and after it, and how it is said to MPI. Pure functions of
 * the call: every rank computes what its peers send.
 */
#ifndef TEST_MPI_COLL_LAYOUT_H
#define TEST_MPI_COLL_LAYOUT_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "test/mpi/coll_comms.h"
#include "test/mpi/coll_list.h"
#include "test/mpi/ref.h"

typedef struct {
    const coll_comm_t *comm;
    enum coll_id coll;
    enum coll_mode mode;
    const ref_type_t *type;
    const ref_op_t *op; /* of what only moves data too: it decides what the data look like; any that the type allows */
    bool overflow;      /* set by coll_possible */
    size_t count;       /* elements; of V: at most, for a peer; of SCATTERED: about so many for a receiver */
    int root;           /* rank in the root's group, modulo its size */
    int root_group;     /* intercommunicators */
    bool in_place;      /* where the collective and the communicator allow it */
    uint64_t seed;      /* of the data, the counts and the displacements; the same on all ranks of comm */
    /* This rank's own: */
    int skind, rkind;  /* memory of the two buffers */
    size_t soff, roff; /* bytes behind a 256-byte boundary */
    bool sflat, rflat; /* say the same data by the type's other description, where it has one */
} coll_call_t;

/* Elements that stand one behind the other in a buffer. */
typedef struct {
    ptrdiff_t at; /* byte offset of the first element's address from the buffer's */
    size_t count;
    bool flat;    /* data bytes only, without the type's gaps */
    int group;    /* whose contributions ... */
    int from, to; /* ... of which ranks of it, reduced; to == from + 1: moved */
    uint64_t first;
} coll_piece_t;

typedef struct {
    bool significant;    /* MPI reads or writes it on this rank */
    bool unspecified;    /* what of `before` is not covered by `after` may have any value in the end */
    int nbefore, nafter; /* pieces; all other bytes stay as they are */
    coll_piece_t before[COLL_PEERS], after[COLL_PEERS];
    ptrdiff_t lo, hi; /* bytes [lo, hi) from the buffer's address are MPI's to use */
} coll_side_t;

/* The arguments, for colls.def. sbuf and rbuf are set by who has the buffers, unless MPI_IN_PLACE. */
typedef struct {
    MPI_Comm comm;
    const void *sbuf;
    void *rbuf;
    int scount, rcount;
    MPI_Datatype stype, rtype;
    const int *scounts, *rcounts, *sdispls, *rdispls; /* NULL or the arrays below */
    const MPI_Aint *sdispls_w, *rdispls_w;
    const MPI_Datatype *stypes, *rtypes;
    MPI_Op op;
    int root;
    struct {
        int counts[COLL_PEERS], displs[COLL_PEERS];
        MPI_Aint displs_w[COLL_PEERS];
        MPI_Datatype types[COLL_PEERS];
    } array[2]; /* send, receive */
} coll_args_t;

/* Fills all three. args points into itself: it must not be moved. */
void coll_layout(const coll_call_t *call, coll_side_t *send, coll_side_t *recv, coll_args_t *args);
/* Ranks of a group of the call's communicator. */
int coll_group_size(const coll_call_t *call, int group);

#endif
