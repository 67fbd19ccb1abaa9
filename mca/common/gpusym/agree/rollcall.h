/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How the ranks of a communicator on one host agree, without a message, what kind of buffers a call
 * has, and how they learn that one of them failed.
 */
#ifndef GPUSYM_COMMON_AGREE_ROLLCALL_H
#define GPUSYM_COMMON_AGREE_ROLLCALL_H

#include "mca/common/gpusym/agree/line.h"

/* What a rank's buffers are, in one call. */
enum {
    GPUSYM_KIND_HOST = 0,   /* host memory: the rank goes on to the fallback without looking */
    GPUSYM_KIND_NATIVE = 1, /* device memory that a kernel can serve */
    GPUSYM_KIND_BOUNCE = 2,  /* device memory that goes through bounce buffers; 2 + reason */
};

typedef struct {
    uint32_t nranks, rank;
    uint64_t seq;           /* calls so far */
    gpusym_line_t **line;   /* [nranks], not owned; line[rank] is ours */
    gpusym_peer_t **peer;   /* [nranks], not owned */
    uint64_t *generation;   /* [nranks] of these lines, for gpusym_rollcall_retire. Not owned */
    /* Launch tokens, see tokens.h */
    uint32_t *order;        /* [nranks] ranks in the order in which their tokens are taken. Not owned */
    uint32_t tokens;        /* rank 0: how many of them it holds */
    uint64_t holder;        /* what stands in a token that this communicator holds: not 0, no other's */
} gpusym_rollcall_t;

/* Flags of an entry. */
enum {
    GPUSYM_POST_QUIET = 1,    /* this process had no other call in flight */
    GPUSYM_POST_IN_PLACE = 2, /* input and output may overlap */
    GPUSYM_POST_CAN_IN = 4,   /* peers need not, or can, map the input: in_key */
    GPUSYM_POST_CAN_OUT = 8,  /* ... the output: out_key */
    GPUSYM_POST_NEW_KEY = 16,   /* one of these keys is new in this communicator: all vote whether they could map it */
    GPUSYM_POST_FLAGS_END = 32,
};

/* What a rank posts. */
typedef struct {
    uint8_t kind;
    uint8_t what;             /* compared among device ranks, as is hash: the collective; operation, type, root, tuning */
    uint32_t hash;
    bool exact;               /* bytes must be the same on all device ranks */
    uint64_t bytes;           /* the largest piece of data of the call, as far as this rank knows */
    uint32_t flags, layout;   /* layout: a hash of what zero copy wants alike everywhere, though MPI does not */
    uint32_t in_key, out_key; /* 0: none */
    uint64_t in_off, out_off;
    uint64_t balance;         /* what it sends to each rank less what it takes from each, weighted: the sum of all ranks' is 0
                               * where all that is sent is taken */
} gpusym_post_t;

/* The state of reading one call's lines. */
typedef struct {
    uint64_t seq;
    uint32_t next;     /* ranks below have answered */
    bool host;         /* some rank has host buffers */
    int bounce;        /* the first kind >= GPUSYM_KIND_BOUNCE, or -1 */
    int bounce_rank;   /* whose */
    int mismatch_rank; /* first rank whose `what`, hash or (exact) bytes differ from ours, or -1 */
    uint64_t mismatch_bytes; /* its bytes */
    int corrupt_rank;        /* a rank whose entry holds what no rank posts, or -1 */
    bool other_call;         /* some rank's `what` or hash differ from ours */
    uint64_t balance;        /* the sum of all device ranks' */
    uint64_t word, bytes;    /* that we posted */
    bool exact;
    uint64_t max_bytes;      /* of all device ranks */
    uint32_t all, any;       /* flags of all, and of any device rank */
    uint32_t layout;
    bool same_layout;
} gpusym_rollcall_read_t;

/*
 * Posts the next call: one store by a rank with host buffers. Never waits: false, and nothing posted, while a peer is too far
 * behind (every HISTORY / 2 calls it is looked at). All earlier calls must have ended on this rank: that a rank has posted a
 * call so tells that it reads no earlier one, and runs no kernel of one.
 */
bool gpusym_rollcall_post(gpusym_rollcall_t *rc, const gpusym_post_t *post, gpusym_rollcall_read_t *read);
/* Before the entries of the calls up to HISTORY / 2 from seq, a multiple of that, overwrite older ones: whether no peer
 * reads those any more. */
bool gpusym_rollcall_near_enough(const gpusym_rollcall_t *rc, uint64_t seq);
/* The same as gpusym_rollcall_post() of kind HOST, `what` and nothing else: for the shortest way of host buffers. */
static inline bool gpusym_rollcall_post_host(gpusym_rollcall_t *rc, uint8_t what)
{
    const uint64_t seq = rc->seq + 1;
    if (0 == seq % (GPUSYM_ROLLCALL_HISTORY / 2) && !gpusym_rollcall_near_enough(rc, seq)) {
        return false;
    }
    rc->seq = seq;
    __atomic_store_n(&rc->line[rc->rank]->entry[seq % GPUSYM_ROLLCALL_HISTORY].word,
                     seq << 48 | (uint64_t)GPUSYM_KIND_HOST << 40 | (uint64_t)what << 32, __ATOMIC_RELEASE);
    return true;
}
/* Whether rank r has posted call seq, or a later one of those that its line may hold by now. */
bool gpusym_rollcall_has_posted(const gpusym_rollcall_t *rc, uint32_t r, uint64_t seq);
/* The last call that rank r has posted, as far from ours as half of 2^16 at most. */
uint64_t gpusym_rollcall_last(const gpusym_rollcall_t *rc, uint32_t r);
/* Whether rank r has voted on call seq. */
bool gpusym_rollcall_has_voted(const gpusym_rollcall_t *rc, uint32_t r, uint64_t seq);
/* Reads what has been posted. True: all ranks have; false: not yet. Never waits. */
bool gpusym_rollcall_read(gpusym_rollcall_t *rc, gpusym_rollcall_read_t *read);
/* Rank r's entry of call seq, which has been read and has not ended here. */
const gpusym_entry_t *gpusym_rollcall_entry(const gpusym_rollcall_t *rc, uint32_t r, uint64_t seq);
/* Whether keys and offsets of an entry of call seq that has keys are those that were posted. */
bool gpusym_entry_intact(const gpusym_entry_t *e, uint64_t seq);

/*
 * The end: all calls have ended here, but perhaps not yet on the peers, which may still read our line. `off` is our line's;
 * it is handed out again once all peers have retired theirs. Takes `line` and `generation`, which it will free().
 */
void gpusym_rollcall_retire(gpusym_rollcall_t *rc, uint64_t off);

/* A second word on a call: this rank says yes or no. */
void gpusym_rollcall_vote(gpusym_rollcall_t *rc, uint64_t seq, bool yes);
/* 1: all have said yes; 0: not all have spoken; -1: all have, and one said no. */
int gpusym_rollcall_votes(const gpusym_rollcall_t *rc, uint64_t seq);

/* Says that the kernel of call seq is launched here; whether all have said so. */
void gpusym_rollcall_launched(gpusym_rollcall_t *rc, uint64_t seq);
bool gpusym_rollcall_all_launched(const gpusym_rollcall_t *rc, uint64_t seq);

/* The first peer that gave up, or -1. Lines that are not mapped yet (NULL) are passed over. */
int gpusym_rollcall_aborted(const gpusym_rollcall_t *rc);
/*
 * While a call waits: the first rank, ours among them, in whose line stands what no rank writes there, so that the wait
 * might never end: the program has overwritten its memory; or -1. read: the call's, or the last one's. A fifth of a us
 * a rank.
 */
int gpusym_rollcall_corrupt(const gpusym_rollcall_t *rc, const gpusym_rollcall_read_t *read);
/* The first peer whose process has ended, or -1. About 1 us a rank. */
int gpusym_rollcall_dead(const gpusym_rollcall_t *rc);

#endif
