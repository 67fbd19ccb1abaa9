/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Call agreement: the ranks of a communicator on one host agree, without a message, on the kind of buffers of a call,
 * and learn of failed ranks.
 */
#ifndef GPUSYM_COMMON_AGREE_AGREEMENT_H
#define GPUSYM_COMMON_AGREE_AGREEMENT_H

#include "mca/common/gpusym/agree/line.h"

/* The kind of a rank's buffers in one call. */
enum {
    GPUSYM_KIND_HOST = 0,   /* host memory: the rank forwards the call to the fallback without reading entries */
    GPUSYM_KIND_NATIVE = 1, /* device memory that a kernel can serve */
    GPUSYM_KIND_BOUNCE = 2, /* device memory that goes through bounce buffers; 2 + reason */
    GPUSYM_KIND_MIXED = 128 /* added by gpusym_agreement_post: the rank has lately seen a mix */
};

typedef struct {
    uint32_t nranks, rank;
    uint64_t seq;         /* number of the last posted call; another thread may read it (team/islands.c) */
    uint64_t mixed;       /* the last call in which this rank saw ranks on the host among others; 0: none */
    bool looks;           /* a rank has lately told that: ranks on the host take part, see gpusym_agreement_mixed */
    gpusym_line_t **line; /* [nranks], not owned; line[rank] is this rank's */
    gpusym_peer_t **peer; /* [nranks], not owned */
    uint64_t *generation; /* [nranks] generations of these lines, for gpusym_agreement_retire. Not owned */
    /* Launch tokens, see tokens.h */
    uint32_t *order; /* [nranks] ranks in the order in which their tokens are taken. Not owned */
    uint32_t tokens; /* rank 0: number of tokens that it holds */
    uint64_t holder; /* value of a token that this communicator holds: not 0, unique */
    /* This rank's table, see table.h */
    struct {
        uint64_t off;     /* in our slab; 0: none yet */
        bool lacking;     /* nor will there be one: no memory */
        uint64_t last[2]; /* the last call that each of its halves was filled for; 0: none */
    } table;
} gpusym_agreement_t;

/* Flags of an entry. */
enum {
    GPUSYM_POST_QUIET = 1,    /* this process had no other call in flight */
    GPUSYM_POST_IN_PLACE = 2, /* input and output may overlap */
    GPUSYM_POST_CAN_IN = 4,   /* peers can map the input by in_key, or need not */
    GPUSYM_POST_CAN_OUT = 8,  /* peers can map the output by out_key, or need not */
    GPUSYM_POST_NEW_KEY =
        16, /* one of these keys is new in this communicator: all ranks vote whether they could map it */
    GPUSYM_POST_SEGMENTS = 32,      /* if the call goes through the host, this rank can divide it in segments */
    GPUSYM_POST_STAGED_COPIES = 64, /* or can copy it through its staging buffer */
    /* For leaders, where ranks share a GPU: the input, or the output, can be mapped by its key, stands in the rank's
     * staging buffer at its offset (memory/staging_buffer.h), or there is none. */
    GPUSYM_POST_LED_IN = 128,
    GPUSYM_POST_LED_OUT = 256,
    GPUSYM_POST_STAGED_IN = 512,
    GPUSYM_POST_STAGED_OUT = 1024,
    GPUSYM_POST_FILLS = 2048,         /* the rank tells when its input is there: see gpusym_agreement_ready */
    GPUSYM_POST_HOST = 4096,          /* its buffers are host memory all the same */
    GPUSYM_POST_GPU = 8192,           /* it has a buffer on a GPU */
    GPUSYM_POST_CROWDED = 16384,      /* another process uses its GPU */
    GPUSYM_POST_EARLY = 32768,        /* its last call was launched before it knew of its peers' */
    GPUSYM_POST_LEFT = 65536,         /* and for nothing: they did not come in time */
    GPUSYM_POST_OVERLAPS = 131072,    /* its last call was nonblocking, and the program did something else meanwhile */
    GPUSYM_POST_WAITS = 262144,       /* or it waited at once */
    GPUSYM_POST_SETTINGS = 524288,    /* its communicator has settings that the ranks have not compared yet */
    GPUSYM_POST_MESSAGES = 1048576,   /* neighbours: messages of this process take GPU memory */
    GPUSYM_POST_GAPS = 2097152,       /* and of its buffers one has elements that do not lie side by side */
    GPUSYM_POST_OVERWRITES = 4194304, /* its kernel is to store the result over the input: not before this is sent */
    GPUSYM_POST_FLAGS_END = 8388608,
};

/* What a rank posts. */
typedef struct {
    uint8_t kind;
    uint8_t what;             /* the collective; device ranks compare it */
    uint32_t hash;            /* of operation, type, root and tuning; device ranks compare it */
    bool exact;               /* bytes must be equal on all device ranks */
    uint64_t bytes;           /* the largest message of the call, as far as this rank knows */
    uint32_t flags, layout;   /* layout: a hash of what zero copy requires alike on all ranks, and MPI does not */
    uint32_t in_key, out_key; /* as in gpusym_entry_t; 0: none */
    uint64_t in_off, out_off;
    uint64_t balance; /* what the rank sends to each rank less what it receives from each, weighted. The sum over
                               * all ranks is 0 if all that is sent is received */
} gpusym_post_t;

/* The state of reading the entries of one call. */
typedef struct {
    uint64_t seq;
    uint32_t next;           /* ranks below have answered */
    bool host;               /* some rank has host buffers */
    int bounce;              /* the first kind >= GPUSYM_KIND_BOUNCE, or -1 */
    int bounce_rank;         /* the rank of that kind */
    int mismatch_rank;       /* first rank whose `what`, hash or (exact) bytes differ from ours, or -1 */
    uint64_t mismatch_bytes; /* its bytes */
    int corrupt_rank;        /* a rank whose entry holds values that no rank posts, or -1 */
    bool other_call;         /* some rank's `what` or hash differs from ours */
    uint64_t balance;        /* the sum over all device ranks */
    uint64_t word, bytes;    /* as this rank posted them */
    bool exact;
    uint64_t max_bytes; /* of all device ranks */
    uint32_t all, any;  /* flags of all, and of any device rank */
    uint32_t layout;
    bool same_layout;
} gpusym_agreement_read_t;

/*
 * Posts the next call, and initialises its reading. A rank with host buffers makes one store. Never waits: returns
 * false, with nothing posted, while a peer is too far behind (checked every HISTORY / 2 calls). All earlier calls must
 * have ended on this rank: a posted call thus tells that its rank reads no earlier entry and runs no earlier kernel.
 */
bool gpusym_agreement_post(gpusym_agreement_t *rc, const gpusym_post_t *post, gpusym_agreement_read_t *read);
/* Returns whether no peer still reads the entries that HISTORY / 2 calls from seq, a multiple of HISTORY / 2,
 * overwrite. */
bool gpusym_agreement_near_enough(gpusym_agreement_t *rc, uint64_t seq);
/* Posts a call of kind HOST with `what` alone, as gpusym_agreement_post() would: the fast path of host buffers. */
static inline bool gpusym_agreement_post_host(gpusym_agreement_t *rc, uint8_t what)
{
    const uint64_t seq = rc->seq + 1;
    if (0 == seq % (GPUSYM_AGREEMENT_HISTORY / 2) && (!gpusym_agreement_near_enough(rc, seq) || rc->looks)) {
        return false;
    }
    __atomic_store_n(&rc->seq, seq, __ATOMIC_RELAXED);
    __atomic_store_n(&rc->line[rc->rank]->entry[seq % GPUSYM_AGREEMENT_HISTORY].word,
                     seq << 48 | (uint64_t) GPUSYM_KIND_HOST << 40 | (uint64_t) what << 32, __ATOMIC_RELEASE);
    return true;
}
/* Notes that some ranks of call seq are on the host and others are not. This rank then tells it in its posts of calls
 * that are multiples of HISTORY / 2, where every rank reads the last such posts anyway, and sets rc->looks: ranks on
 * the host post what they have, and read, so that the call need not go through the host. Not all ranks need find the
 * same: one that goes on at once is seen as ever. */
static inline void gpusym_agreement_mixed(gpusym_agreement_t *rc, uint64_t seq)
{
    rc->mixed = seq;
    rc->looks = true; /* until it has told it, by gpusym_agreement_post() */
}
/* Returns whether rank r has posted call seq, or a later one that its line may hold by now. */
bool gpusym_agreement_has_posted(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq);
/* Returns the last call that rank r has posted: within 2^15 calls of ours. */
uint64_t gpusym_agreement_last(const gpusym_agreement_t *rc, uint32_t r);
/* Returns whether rank r has voted on call seq. */
bool gpusym_agreement_has_voted(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq);
/* Reads the entries that have been posted. Returns true once all ranks have posted. Never waits. */
bool gpusym_agreement_read(gpusym_agreement_t *rc, gpusym_agreement_read_t *read);
/* Returns rank r's entry of call seq, which must have been read and not have ended here. */
const gpusym_entry_t *gpusym_agreement_entry(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq);
/* Returns `what` rank r has posted as call seq, which must have been read and not have ended here. */
uint8_t gpusym_agreement_what(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq);
/* No buffer has so many bytes: addresses have fewer bits. */
#define GPUSYM_BYTES_BITS 57
/* Returns whether an entry of call seq that has keys, or offsets in a staging buffer, still holds what was posted of
 * them. */
bool gpusym_entry_intact(const gpusym_entry_t *e, uint64_t seq);

/*
 * Ends the call agreement. All calls must have ended here; peers may still read our line. off: of our line; notices: of
 * the board of its notices, 0: it has none. They are reused once all peers have retired theirs. Takes ownership of
 * `line` and `generation` and free()s them.
 */
void gpusym_agreement_retire(gpusym_agreement_t *rc, uint64_t off, uint64_t notices);

/* Casts this rank's vote on call seq. */
void gpusym_agreement_vote(gpusym_agreement_t *rc, uint64_t seq, bool yes);
/* Counts the votes. 1: all ranks voted yes; 0: not all ranks have voted; -1: all have voted, at least one no. */
int gpusym_agreement_votes(const gpusym_agreement_t *rc, uint64_t seq);
/* Returns whether some rank has voted no on call seq, before all have voted. */
bool gpusym_agreement_refused(const gpusym_agreement_t *rc, uint64_t seq);

/* Tells the peers that the kernel of call seq is launched here. */
void gpusym_agreement_launched(gpusym_agreement_t *rc, uint64_t seq);
/* Return whether rank r has, or all ranks have, launched the kernel of call seq. */
bool gpusym_agreement_has_launched(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq);
bool gpusym_agreement_all_launched(const gpusym_agreement_t *rc, uint64_t seq);

/* Tells that what this rank had to bring to where it is loaded is there. */
void gpusym_agreement_ready(gpusym_agreement_t *rc, uint64_t seq);
/* Returns whether rank r has told so, or posted call seq without GPUSYM_POST_FILLS. All entries have been read. */
bool gpusym_agreement_is_ready(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq);
/* Return whether rank r has, or all ranks have, told so: in a staged call, that the rank's data are in host memory. */
bool gpusym_agreement_has_staged(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq);
bool gpusym_agreement_all_staged(const gpusym_agreement_t *rc, uint64_t seq);
/* Decides, once for all ranks, whether they go on with call seq, which this rank has told that it is ready for. The
 * first to ask has its wish: yes if it has found all ranks ready, no if it gives up. Returns what is decided. */
bool gpusym_agreement_decide(const gpusym_agreement_t *rc, uint64_t seq, bool yes);
/* A leader tells that it has done call seq for the ranks of its GPU. */
void gpusym_agreement_done(gpusym_agreement_t *rc, uint64_t seq);
/* Returns whether leader r has. */
bool gpusym_agreement_is_done(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq);

/* Returns the first peer that takes no part in call seq, for it gave up (gpusym_line_abort), or -1. Skips lines that
 * are not mapped yet (NULL). */
int gpusym_agreement_aborted(const gpusym_agreement_t *rc, uint64_t seq);
/* Returns the first peer that gave up at whatever call, or -1. */
int gpusym_agreement_quitter(const gpusym_agreement_t *rc);
/*
 * Checks all lines while a call waits. Returns the first rank, which may be this one, whose line holds values that no
 * rank writes: its program has overwritten the memory, and the wait might never end; or -1. read: of the call, or of
 * the last one. About 0.2 us per rank.
 */
int gpusym_agreement_corrupt(const gpusym_agreement_t *rc, const gpusym_agreement_read_t *read);
/* Returns the first peer whose process has ended, or -1. About 1 us per rank. */
int gpusym_agreement_dead(const gpusym_agreement_t *rc);

#endif
