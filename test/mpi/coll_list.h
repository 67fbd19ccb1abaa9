/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives of colls.def, and what each is.
 */
#ifndef TEST_MPI_COLL_LIST_H
#define TEST_MPI_COLL_LIST_H

enum coll_id {
#define COLL(id, Name, name, what, ...) COLL_##id,
#define COLL_LOCAL COLL
#include "test/mpi/colls.def"
    COLL_COUNT
};

/* What a collective is. Neither FROM_ROOT nor TO_ROOT: everybody sends, everybody receives. */
enum coll_what {
    COLL_IS_REDUCTION = 1,     /* else data are moved */
    COLL_IS_FROM_ROOT = 2,     /* the root sends */
    COLL_IS_TO_ROOT = 4,       /* the root receives */
    COLL_IS_SEND_EACH = 8,     /* other data for every receiver; else the same for all */
    COLL_IS_RECV_EACH = 16,    /* a block from every sender; else one block */
    COLL_IS_V = 32,            /* counts and displacements a peer */
    COLL_IS_W = 64,            /* displacements in bytes, a type a peer */
    COLL_IS_SCATTERED = 128,   /* each receiver gets its part of the reduction */
    COLL_IS_PREFIX = 256,      /* the reduction over the ranks up to one's own ... */
    COLL_IS_EXCLUSIVE = 512,   /* ... without it */
    COLL_IS_ONE_BUFFER = 1024, /* for sending and receiving */
    COLL_IS_IN_PLACE = 2048,   /* MPI_IN_PLACE is allowed (on intracommunicators) */
    COLL_IS_INTER = 4096,      /* allowed on intercommunicators */
    COLL_IS_NEIGHBOR = 8192,   /* needs a topology */
    COLL_IS_LOCAL = 16384      /* no communicator: rank 0's elements are in, rank 1's are inout */
};

enum coll_mode { COLL_BLOCKING, COLL_NONBLOCKING, COLL_PERSISTENT, COLL_MODES };

const char *coll_name(enum coll_id id);
unsigned coll_what(enum coll_id id);
const char *coll_mode_name(enum coll_mode mode);

#endif
