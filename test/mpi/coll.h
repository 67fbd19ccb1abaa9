/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One checked call of any MPI collective, blocking, nonblocking or persistent: its buffers in memory of any kind,
 * with guard zones and poison, its data and what must come out, byte for byte. The collectives are those of
 * colls.def; the data those of ref.h; the tally that of check.h.
 *
 * What rank s sends to rank d is elements of s's contribution that only d gets; so what any rank must receive
 * can be computed from the seed, and nothing is asked of the MPI library.
 */
#ifndef TEST_MPI_COLL_H
#define TEST_MPI_COLL_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "test/mpi/check.h"
#include "test/mpi/ref.h"

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

/* ---- communicators ---- */

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

/* ---- calls ---- */

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

/* Whether the call is valid MPI and this MPI library can do it; sets call->overflow. The same on all ranks of the job
 * where the calls are (of all parts of a split too). */
bool coll_possible(coll_call_t *call);

/* One thread's buffers, for calls one after the other and at the same time. Zeroed before its first use. */
typedef struct coll_store coll_store_t;
coll_store_t *coll_store_new(void);
/* Frees the memory that no call uses, so that the next calls have new. */
void coll_store_forget(coll_store_t *store);
/* No call may be left. */
void coll_store_free(coll_store_t *store);

typedef struct coll_run coll_run_t;
/* Makes the buffers, from the store. Ends the process where there is no memory. */
coll_run_t *coll_make(coll_store_t *store, const coll_call_t *call);
/* A persistent call: makes its request, inactive. Any rank may wait there for all others, as MPI allows; so on all
 * ranks in the same order. Of other modes: does nothing. */
void coll_init(coll_run_t *run);
/* Fills the buffers, other data at every start, and calls. A blocking call has ended when it returns; otherwise
 * *coll_request is active. Again only for persistent calls, and after coll_check; they are made by coll_init before,
 * or by the first start. */
void coll_start(coll_run_t *run);
/* The same for many persistent calls, by MPI_Startall; each must have been started once by coll_start. */
void coll_startall(coll_run_t **runs, int n);
/* For MPI_Wait and its kin. MPI_REQUEST_NULL after a blocking call. */
MPI_Request *coll_request(coll_run_t *run);
/* After the call's end: whether every byte of both buffers is right; prints the first that is not, in the name of t. */
bool coll_check(check_t *t, coll_run_t *run);
/* Gives the buffers back to the store, and frees a persistent request. */
void coll_drop(coll_run_t *run);

/* make, start (persistent: `starts` times), wait, check and drop, and the tally of t. */
void coll_once(check_t *t, coll_store_t *store, const coll_call_t *call, int starts);

/* The call in words, into buf; returns buf. */
const char *coll_text(const coll_call_t *call, char *buf, size_t size);

#endif
