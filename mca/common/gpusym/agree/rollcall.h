/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How the ranks of a communicator on one host agree, without a message, what kind of buffers a call
 * has, and how they learn that one of them failed.
 *
 * Every process has one slab of shared host memory (a memfd: nothing is left behind, whoever dies). Every
 * communicator has a line in each of its ranks' slabs. A rank writes its own line only.
 */
#ifndef GPUSYM_COMMON_AGREE_ROLLCALL_H
#define GPUSYM_COMMON_AGREE_ROLLCALL_H

#include <stdbool.h>
#include <stdint.h>

#include "mca/common/gpusym/common.h"

/* Calls that a line remembers: a rank may run ahead of a reader by half of that. */
#define GPUSYM_ROLLCALL_HISTORY 32u

/* What a rank says of one call, a cache line. Ranks with host buffers write `word` only. */
typedef struct {
    uint64_t word;              /* sequence << 48 | kind << 40 | what << 32 | hash; written last */
    uint64_t bytes;
    uint32_t flags, layout;     /* GPUSYM_POST_... */
    uint32_t in_key, out_key;   /* of reg.h: the buffers, for peers that map them */
    uint64_t in_off, out_off;   /* where in these allocations they begin */
    uint64_t check;             /* of keys and offsets, where there are keys: see gpusym_entry_intact */
    uint64_t balance;           /* see gpusym_post_t */
} gpusym_entry_t;

/* Bytes of a communicator's name in its line, with the final 0. */
#define GPUSYM_LABEL_MAX 96u

/* A line: written by its owner, read by its peers. */
typedef struct {
    gpusym_entry_t entry[GPUSYM_ROLLCALL_HISTORY]; /* by sequence % HISTORY */
    uint64_t vote[GPUSYM_ROLLCALL_HISTORY];        /* the same: sequence << 1 | yes, see gpusym_rollcall_vote */
    uint64_t go;       /* of rank 0: the last call for which it has taken all turns */
    uint64_t launched; /* the last call whose kernel the owner has launched */
    uint32_t abort;    /* not 0: the owner gave up; see gpusym_line_abort */
    uint32_t step;     /* how far the owner's set-up is; only rises */
    uint64_t key;      /* which communicator it is, see gpusym_line_name; 0: none (any more) */
    uint64_t stamp;    /* when the owner was last seen here, see gpusym_seen_t. Nanoseconds of CLOCK_MONOTONIC */
    uint64_t said;     /* what the owner has told the user last of a wait here, see gpusym_line_say; only rises */
    char label[GPUSYM_LABEL_MAX]; /* the communicator's name, for messages; stays when the owner has left */
    uint32_t pad[10];
    uint64_t life;     /* which use of the line this is; changes when its owner leaves, and is never the same again. Last */
} gpusym_line_t;

/* ---- pages: the slab of this process, and those of its peers ---- */

/* A process's slab as its peers know it: plain bytes, to be sent to them. */
typedef struct {
    uint64_t nonce[2]; /* random; also at the slab's start, so that a wrong one is noticed */
    int32_t pid, fd;
    uint64_t bytes;
} gpusym_pages_id_t;

/* A process whose slab is mapped here. Cached; lives until gpusym_pages_close. */
typedef struct gpusym_peer gpusym_peer_t;

/* Makes this process's slab. Idempotent, thread-safe. With errno where that fails. */
int gpusym_pages_open(gpusym_pages_id_t *id);
void gpusym_pages_close(void);
/* A zeroed line in our slab; and back, where no peer reads it (else gpusym_rollcall_leave). */
int gpusym_pages_alloc(uint64_t *off);
void gpusym_pages_free(uint64_t off);
/* Maps a peer of this host (once). GPUSYM_ERR_UNREACHABLE, with errno, if it cannot be: another host, user or pid
 * namespace, or no memory whose size is sealed. Our own id works. */
int gpusym_pages_peer(const gpusym_pages_id_t *id, gpusym_peer_t **peer);
/* A peer's line; NULL: none can stand there. */
gpusym_line_t *gpusym_peer_line(gpusym_peer_t *peer, uint64_t off);
/* Our own line at off. */
gpusym_line_t *gpusym_pages_line(uint64_t off);
/* Which use of a peer's line this is. To be read while the peer cannot have left it. */
uint64_t gpusym_line_life(const gpusym_line_t *line);
int gpusym_peer_pid(const gpusym_peer_t *peer);
/* False once the process has ended (also while its parent has not yet noticed), and only then. About 1 us. */
bool gpusym_peer_alive(gpusym_peer_t *peer);
/* A zeroed piece of every slab, at a fixed place: what a process tells all of its peers (reg.h). Ours, NULL
 * before gpusym_pages_open; a peer's. */
#define GPUSYM_PAGES_AREA 16384u
void *gpusym_pages_area(void);
void *gpusym_peer_area(gpusym_peer_t *peer);

/* ---- where a process was last: for messages about ranks that do not come ---- */

/* Of our own line: which communicator it is. key: the same on all of its ranks, not 0; label: cut to GPUSYM_LABEL_MAX.
 */
void gpusym_line_name(gpusym_line_t *line, uint64_t key, const char *label);
/* How far our set-up of that communicator is. */
void gpusym_line_step(gpusym_line_t *line, uint32_t step);
/* Tells the peers that we gave up in this communicator. */
void gpusym_line_abort(gpusym_line_t *line);
/* Tells them that we have told the user of a wait: so that one rank does. mark: rises with calls and messages. */
void gpusym_line_say(gpusym_line_t *line, uint64_t mark);

/* What a peer's slab tells of it, while the peer goes on. */
typedef struct {
    bool begun;                   /* it has a line of the communicator asked for */
    uint32_t step;                /* of that: see gpusym_line_step */
    uint64_t said;                /* of that: see gpusym_line_say */
    char label[GPUSYM_LABEL_MAX]; /* the communicator in which it was seen last; "": in none */
    int what;        /* gpusym_post_t.what of its last call there; -1: none yet, it set the communicator up */
    uint64_t age_ns; /* since then. Of host buffers every 64th call is seen: such a call is at most that old */
} gpusym_seen_t;
/* key: of the communicator asked for. Reads all lines that the peer has ever had: for messages. */
void gpusym_peer_seen(gpusym_peer_t *peer, uint64_t key, gpusym_seen_t *seen);
/* Maps the slab of a process that has not told us of it. GPUSYM_ERR_NOT_AVAILABLE: it has none, it has not yet called a
 * collective of ours with others; GPUSYM_ERR_UNREACHABLE: that cannot be known. Some 100 us. */
int gpusym_pages_find(int32_t pid, gpusym_peer_t **peer);

/* ---- roll-call ---- */

/* What a rank's buffers are, in one call. */
enum {
    GPUSYM_KIND_HOST = 0,   /* host memory: the rank goes on to the previous module without looking */
    GPUSYM_KIND_NATIVE = 1, /* device memory that a kernel can serve */
    GPUSYM_KIND_STAGE = 2,  /* device memory that must be staged; 2 + reason */
};

typedef struct {
    uint32_t nranks, rank;
    uint64_t seq;           /* calls so far */
    gpusym_line_t **line;   /* [nranks], not owned; line[rank] is ours */
    gpusym_peer_t **peer;   /* [nranks], not owned */
    uint64_t *life;         /* [nranks] of these lines, for gpusym_rollcall_leave. Not owned */
    uint32_t *order;        /* [nranks] ranks in the order of turns. Not owned */
    uint32_t turns;         /* rank 0: how many of them it holds */
    uint64_t token;         /* what stands in a turn that this communicator holds: not 0, no other's */
} gpusym_rollcall_t;

/* Flags of an entry. */
enum {
    GPUSYM_POST_QUIET = 1,    /* this process had no other call in flight */
    GPUSYM_POST_IN_PLACE = 2, /* input and output may overlap */
    GPUSYM_POST_CAN_IN = 4,   /* peers need not, or can, map the input: in_key */
    GPUSYM_POST_CAN_OUT = 8,  /* ... the output: out_key */
    GPUSYM_POST_FRESH = 16,   /* one of these keys is new in this communicator: all vote whether they could map it */
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
    int stage;         /* first kind >= GPUSYM_KIND_STAGE met, or -1 */
    int stage_rank;    /* whose */
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
 * it is handed out again once all peers have left too. Takes `line` and `life`, which it will free().
 */
void gpusym_rollcall_leave(gpusym_rollcall_t *rc, uint64_t off);

/* A second word on a call: this rank says yes or no. */
void gpusym_rollcall_vote(gpusym_rollcall_t *rc, uint64_t seq, bool yes);
/* 1: all have said yes; 0: not all have spoken; -1: all have, and one said no. */
int gpusym_rollcall_votes(const gpusym_rollcall_t *rc, uint64_t seq);

/* Says that the kernel of call seq is launched here; whether all have said so. */
void gpusym_rollcall_launched(gpusym_rollcall_t *rc, uint64_t seq);
bool gpusym_rollcall_all_launched(const gpusym_rollcall_t *rc, uint64_t seq);

/*
 * Turns.  Where several threads of a process are in calls of different communicators, their kernels must not be in
 * flight together: a kernel waits for its peers' kernels, a driver call of another thread (cudaFree, say) may
 * wait for that kernel and keep yet another from being launched, and two processes doing so wait for ever. So every
 * process has one turn; a call needs the turns of all its ranks.  Rank 0 takes them, in an order that is the
 * same everywhere (so that takers cannot block each other in a circle), and says go.
 */
/* Makes a roll-call whose peers are set take turns, in an order kept in order[nranks]. line_off: of rank 0's line.
 * All ranks compute the same. */
void gpusym_turns_init(gpusym_rollcall_t *rc, uint32_t *order, uint64_t line_off);
/* One try for the call `seq`. 1: it is this call's turn; 0: not yet. Never waits. */
int gpusym_turns_take(gpusym_rollcall_t *rc, uint64_t seq);
/* A call has ended on this rank: gives our process's turn back; rank 0 of a failed call gives all back. */
void gpusym_turns_give(gpusym_rollcall_t *rc, bool failed);
/* Rank 0, while it waits: if the turn in its way is held by a process that has died, frees it. The rank in whose turn
 * stands what nobody writes there; -1: none. */
int gpusym_turns_rescue(gpusym_rollcall_t *rc);

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
