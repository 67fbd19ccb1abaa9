/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call: one collective in flight on this rank.
 *
 *   plan/segments.c   what a collective is in the kernels' terms
 *   call/call.c     how a call goes: posted, agreed, launched, ended; and the order of the calls of a communicator
 *   call/request.c  nonblocking and persistent calls: MPI requests, progress
 *
 * Everything is asynchronous; a blocking call starts one and waits.
 */
#ifndef MCA_COLL_GPUSYM_CALL_H
#define MCA_COLL_GPUSYM_CALL_H

#include <time.h>

#include "mca/coll/gpusym/args/args.h"
#include "mca/coll/gpusym/team/team.h"
#include "tuning/tuning.h"

typedef enum {
    COLL_GPUSYM_CALL_NEW,      /* not posted: the team is not set up, or a peer is too far behind */
    COLL_GPUSYM_CALL_ROLLCALL, /* posted; waiting for the peers' entries */
    COLL_GPUSYM_CALL_SIZES,    /* agreed: native, but not all that is sent is taken; waiting for the ranks' sizes */
    COLL_GPUSYM_CALL_SETUP,    /* agreed: native; the team's second step */
    COLL_GPUSYM_CALL_VOTE,     /* zero copy: waiting whether all could map the buffers */
    COLL_GPUSYM_CALL_TURN,     /* waiting until it may be launched */
    COLL_GPUSYM_CALL_RUNNING,  /* the kernel runs */
    COLL_GPUSYM_CALL_UNPACKING, /* what it left in scratch memory is copied to the user */
    COLL_GPUSYM_CALL_DRAINING, /* something failed; waiting for the kernel to leave */
    COLL_GPUSYM_CALL_PREVIOUS, /* agreed: the previous module's, for `reason` (staged) or -1 (passed on); who asked does it */
    COLL_GPUSYM_CALL_BELOW,    /* there it goes on, by its request */
    COLL_GPUSYM_CALL_ENDED,    /* with `error` */
} coll_gpusym_call_state_t;

/* Rows of a user's buffer, of equal length and distance: a vector datatype. rows 0: none. */
typedef struct {
    char *first;
    uint64_t width, pitch, rows; /* bytes */
} coll_gpusym_rows_t;

/* What a call is for the kernels; see plan/segments.c. */
typedef struct {
    int reason;                /* enum coll_gpusym_reason: why this rank has it staged; -1: it need not be */
    const void *in;
    void *out;
    uint64_t in_id, out_id;    /* of their allocations, gpusym_mem_t.id */
    uint64_t in_bytes, out_bytes; /* extents of what is read and written there */
    uint64_t bytes;            /* as gpusym_work_t.bytes, before all ranks have said theirs */
    uint64_t balance;          /* gpusym_post_t.balance */
    uint32_t counts;           /* reduce_scatter: a hash of the ranks' parts, which all must give alike */
    bool exact;                /* ... which must be the same on all ranks */
    bool in_place;             /* in and out may overlap */
    unsigned op, type;         /* of kernels.def; bytes are moved as GPUSYM_T_U8 */
    uint32_t layout;           /* hash of what zero copy wants alike on all ranks */
    /* What goes through scratch memory: in, out are in that then, once it is there (coll_gpusym_native_scratch). */
    coll_gpusym_rows_t pack;   /* copied there before the kernel */
    coll_gpusym_rows_t unpack; /* copied back after it */
    uint64_t in_off;           /* where in out the input is, in place */
    bool keep;                 /* `unpack` is copied there before the kernel too: it writes not all of that, or reads it */
} coll_gpusym_native_t;

/* A launch that is made again and again: all but its epoch. Zeroed before its first use. */
typedef struct {
    bool valid, zero_copy;
    bool copies, reduces;      /* copy engines send the data (copies.h); and kernels reduce it */
    bool offered;              /* zero copy was agreed to be possible, taken or not */
    gpusym_graph_t *graph;     /* owned; NULL: not made yet */
    int algorithm;
    unsigned kernel;
    uint64_t epochs;
    gpusym_work_t work;
} coll_gpusym_plan_t;

/* What goes between any two ranks of a call where sizes differ; see plan/sizes.c. */
typedef struct coll_gpusym_sizes coll_gpusym_sizes_t;

typedef struct coll_gpusym_call {
    mca_coll_gpusym_module_t *module;
    coll_gpusym_args_t args;
    bool device;               /* a buffer of ours is device memory, or we have none: it may be native */
    bool blocking;
    bool agree_only;           /* of a persistent call's init: ends once all have said what they have; `agreed` then */
    bool agreed;               /* native on all ranks */
    bool settled;              /* a start of a persistent call that is the previous module's: known, not posted */
    int reason_settled;
    gpusym_mem_t where;        /* a buffer on our GPU */
    bool out_local;            /* the output is memory of our GPU, neither managed nor the host's */
    coll_gpusym_native_t native;

    coll_gpusym_call_state_t state;
    int reason;                /* of staging; -1 */
    int error;                 /* MPI error code */
    int algorithm;             /* that ran */
    gpusym_rollcall_read_t read;
    bool zero_copy;            /* agreed that it may be */
    bool zero_copied;          /* and it was */
    uint32_t in_key, out_key;  /* pinned; 0: none */
    bool has_turn;             /* to be given back */
    bool stays;                /* its kernel stays afterwards: the lane is not given back */
    bool rang;                 /* it was not launched: the kernel was there */
    bool taken_back;           /* it rang, and then all agreed that it is the previous module's */
    coll_gpusym_sizes_t *sizes; /* owned; NULL: all that is sent is taken, and nothing else awaited */
    uint32_t hash;             /* of what is alike on all ranks: the call, and the user's tuning */
    bool late;                 /* it rang, but the kernel had left: launched */
    gpusym_lane_t *lane;       /* while a kernel of ours is queued, or has been told of the call */
    struct gpusym_copies_streams *streams; /* and of copy engines, what they do for us; NULL: nothing */
    char *scratch;             /* GPU memory, while the call lasts; NULL: none */
    gpusym_gpu_t *scratch_gpu;
    uint32_t polls;            /* since the last look at the peers' health */
    uint64_t looked_ns, gap_ns, since_ns; /* last look; time between that and the one before; begin of this state */
    uint64_t waited_ns;                   /* for ranks that had not come: as far as this rank was there to wait */
    uint32_t waits_in;                    /* the step at which it waits, of call and set-up: waited_ns is of that */
    uint32_t said;                        /* how often that was said, here or by another rank */

    coll_gpusym_stage_t stage;        /* COLL_GPUSYM_CALL_BELOW, staged */
    struct ompi_request_t *below;     /* the previous module's request */
    coll_gpusym_plan_t *plan;         /* persistent: what the first start found out; NULL: not kept */
    struct coll_gpusym_call *next;    /* in the team's list */
} coll_gpusym_call_t;

/* A clock that only rises. */
static inline uint64_t coll_gpusym_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Whether kernels.def has algorithms of a collective. */
static inline bool coll_gpusym_has_kernels(enum coll_gpusym_coll coll)
{
    return (int)coll < (int)COLL_GPUSYM_NATIVES;
}

/* ---- plan/segments.c ---- */

/* What the call is for the kernels. Local; may find that it must be staged. */
void coll_gpusym_native(coll_gpusym_call_t *call, const gpusym_mem_t *smem, const gpusym_mem_t *rmem);
/* Bytes of scratch memory that the call needs, 0: none; and puts in and out there. */
uint64_t coll_gpusym_native_scratch_bytes(const coll_gpusym_native_t *native);
void coll_gpusym_native_scratch(coll_gpusym_call_t *call, char *scratch);
/* Whether zero copy needs peers to map the input, the output of this rank. */
void coll_gpusym_native_shares(const coll_gpusym_call_t *call, bool *in, bool *out);
/* With all entries read: whether all ranks can, and the collective may. */
bool coll_gpusym_native_zero_copy(const coll_gpusym_call_t *call);
/* Fills in what the collective is: in, out, segments, ranks. call->read.max_bytes is agreed. */
void coll_gpusym_native_work(const coll_gpusym_call_t *call, gpusym_work_t *w);
/* Which ways the channels of a schedule (enum gs_schedule_kind; -1: none) take. w->rank, w->nranks are set. */
void coll_gpusym_native_paths(const coll_gpusym_call_t *call, int schedule, gpusym_work_t *w);
/* Whether the slot has room for a channel of the choice, or a stream of LL128 lines. */
bool coll_gpusym_native_channels(const gpusym_tuning_choice_t *choice, const gpusym_work_t *slot);
/* Whether a collective moves bytes and reduces none. */
bool coll_gpusym_native_moves(unsigned coll);
/* What this rank sends to each rank of the team, and takes from each, in bytes: by its own arguments. Of what moves. */
void coll_gpusym_native_sizes(const coll_gpusym_call_t *call, uint64_t *send, uint64_t *recv);
/* Whether a collective's message is one, to be cut as a whole: no segments. */
bool coll_gpusym_native_whole(unsigned coll);
/* Whether the slot has room for what copy engines would need for the call. */
bool coll_gpusym_native_copies(const coll_gpusym_call_t *call, const gpusym_work_t *slot);
/* A communicator of one rank: copies what comes out; *rv is the MPI error code. False: that cannot be done by a plain copy. */
bool coll_gpusym_native_alone(const coll_gpusym_args_t *args, const gpusym_mem_t *where, int *rv);

/* ---- plan/sizes.c: calls of which not all that is sent is taken ---- */

/* All ranks begin it in the same call: makes call->sizes, and begins to tell the ranks ours. False: that failed. */
bool coll_gpusym_sizes_start(coll_gpusym_call_t *call);
/* 1: all have spoken, and it is agreed what goes between any two ranks, the longest piece of which is put into
 * call->read.max_bytes; 0: not yet; negative: failed. Never waits. */
int coll_gpusym_sizes_poll(coll_gpusym_call_t *call);
/* Whether something that is sent to this rank is longer than what it takes. NULL: no. */
bool coll_gpusym_sizes_truncated(const coll_gpusym_sizes_t *sizes);
/* Sets the lengths of the n segments on either side. */
void coll_gpusym_sizes_set(const coll_gpusym_sizes_t *sizes, uint32_t n, gpusym_seg_t *send, gpusym_seg_t *recv);
/* NULL is fine. */
void coll_gpusym_sizes_free(coll_gpusym_sizes_t *sizes);

/* ---- call/call.c ---- */

/*
 * The calls of a communicator go one after the other: only the first that is not over is polled. So the previous module's
 * collectives are called in the same order on all ranks, and who has posted a call has ended all before it.
 */
/* Describes a call: what its buffers are. The team exists. */
void coll_gpusym_call_init(coll_gpusym_call_t *call, mca_coll_gpusym_module_t *module, const coll_gpusym_args_t *args);
/* Makes one that is over new again, with the same arguments. */
void coll_gpusym_call_again(coll_gpusym_call_t *call);
/* One step, which never waits. True once the state is PREVIOUS or ENDED: the communicator's next call may go on. */
bool coll_gpusym_call_poll(coll_gpusym_call_t *call);
/* Frees a plan, NULL too, which no call uses any more. */
void coll_gpusym_plan_free(coll_gpusym_plan_t *plan);
/* Counts how the call was served; once, when it is over. */
void coll_gpusym_call_count(const coll_gpusym_call_t *call);

/* ---- call/wait.c ---- */

/* A look by a call that waits for ranks in set-up or roll-call; gap_ns: time since the last. Says now and then for
 * which ranks. True: it has waited as long as it may, and the user has been told. */
bool coll_gpusym_wait_note(coll_gpusym_call_t *call, uint64_t gap_ns);

/* ---- exec/resident.c ---- */

/* Whether a call may be one of a kernel that stays. */
bool coll_gpusym_stay_may(const coll_gpusym_call_t *call, const coll_gpusym_plan_t *p);
/* For such a call, planned and with its epoch: true if the kernel is here, and has been told; call->lane is set. */
bool coll_gpusym_stay_ring(coll_gpusym_call_t *call, const coll_gpusym_plan_t *p);
/* The short way, without a plan: the call is like the last one of a kernel that is here. */
bool coll_gpusym_stay_same(coll_gpusym_call_t *call);
/* If not: makes the plan one of a kernel that stays, or leaves it. */
void coll_gpusym_stay_prepare(coll_gpusym_call_t *call, coll_gpusym_plan_t *p);
/* For a call that has just been posted: rings, if it is like the last one of a kernel that is here; call->lane is set then,
 * and the call goes on as if it had not. */
void coll_gpusym_stay_early(coll_gpusym_call_t *call);
/* Of a call that runs, or is given up: whether it rang, and the kernel had left before: nothing of it has been done, or
 * will be. */
bool coll_gpusym_stay_left(const coll_gpusym_call_t *call);
/* Launches such a call. False: that failed. */
bool coll_gpusym_stay_again(coll_gpusym_call_t *call);
/* It is done: the team has the lane. Not well: the kernel is let go. */
void coll_gpusym_stay_done(coll_gpusym_call_t *call, bool well);
/* Another kernel of the team is about to be launched, by this plan: the one that stays does so beside it, if there is a
 * multiprocessor for both. */
void coll_gpusym_stay_beside(coll_gpusym_team_t *t, const coll_gpusym_plan_t *p);
/* The team ends: the kernel is told to leave. */
void coll_gpusym_stay_end(coll_gpusym_team_t *t);

/* ---- call/request.c ---- */

/* Nonblocking and started persistent calls of this process that have not completed. */
extern uint32_t coll_gpusym_in_flight;
/* Frees what is kept for requests, after the last one; progress is no longer made. */
void coll_gpusym_requests_fini(void);

#endif
