/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ways: tables of functions, each of which carries out one start of a call. call/call.c agrees, chooses, polls and
 * ends; it knows no way by name, and a way knows nothing of the list of calls or of MPI's requests.
 *
 * A team has one native way at a time (ways.h). Where the ranks agree that this does not do the call, a staged way
 * takes its place: the first of `instead` that is possible.
 *
 * No function waits, but `finish`. For a nonblocking call the lock of all lists is held: no function may take it, or
 * make Open MPI's progress.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_WAY_H
#define MCA_COLL_GPUSYM_EXEC_WAY_H

#include "mca/coll/gpusym/conf/counters.h"
#include "mca/coll/gpusym/exec/engine.h"
#include "mca/coll/gpusym/exec/rails.h"
#include "mca/coll/gpusym/fallback/segmentation.h"
#include "mca/coll/gpusym/plan/sizes.h"

/* What a function of a way says. */
typedef enum {
    COLL_GPUSYM_TURN_WAITS,   /* for ranks, or the GPU: about every 10 ms it is checked that they are well */
    COLL_GPUSYM_TURN_DONE,    /* agree: the way is agreed. poll: the call is over, with run->error */
    COLL_GPUSYM_TURN_EMPTY,   /* agree: all ranks agree, and there is nothing to do */
    COLL_GPUSYM_TURN_REFUSED, /* agree: all ranks know that this way does not do it, for run->reason */
    COLL_GPUSYM_TURN_AGAIN,   /* agree: all ranks post the call anew */
    COLL_GPUSYM_TURN_HANDED,  /* poll: the fallback does the rest, outside the list of calls: `finish`, or request.c */
    COLL_GPUSYM_TURN_FAILED,  /* run->failure says why */
} coll_gpusym_turn_t;

/* What a call waits for, in messages to the user. */
typedef enum {
    COLL_GPUSYM_WAIT_NONE,
    COLL_GPUSYM_WAIT_POST,    /* to be posted: the address exchange of the team, or a peer that is too far behind */
    COLL_GPUSYM_WAIT_ENTRIES, /* for the peers' entries */
    COLL_GPUSYM_WAIT_SIZES,   /* for the peers' tables of sizes */
    COLL_GPUSYM_WAIT_SETUP,   /* for the second step of set-up, in which all lines are mapped */
    COLL_GPUSYM_WAIT_VOTE,    /* for the peers' votes */
    COLL_GPUSYM_WAIT_READY,   /* a leader: for the ranks that bring their input */
    COLL_GPUSYM_WAIT_LED,     /* for the leaders */
    COLL_GPUSYM_WAIT_ISLANDS, /* for other islands */
    COLL_GPUSYM_WAIT_LAUNCH,  /* nonblocking: for the peers' launches, which come while these are inside MPI */
    COLL_GPUSYM_WAIT_STAGED,  /* for the peers' copies of their data to host memory */
} coll_gpusym_wait_for_t;

/* Why a call failed on this rank. `rank`: a member of the team (DEAD, TIMEOUT, CORRUPT, ABORTED), or a rank of the
 * communicator (LOST, OTHER_CALL). `text`: not owned, valid until the failure has been reported. */
typedef enum {
    COLL_GPUSYM_FAILED_REPORTED,   /* the user has been told already */
    COLL_GPUSYM_FAILED_GPU,        /* text: what the driver says */
    COLL_GPUSYM_FAILED_MEMORY,     /* host memory: text: for what; bytes */
    COLL_GPUSYM_FAILED_REVOKED,    /* the communicator has been revoked (ULFM) */
    COLL_GPUSYM_FAILED_DEAD,       /* the process of a rank of this host has ended */
    COLL_GPUSYM_FAILED_LOST,       /* a rank of another island, or that Open MPI knows to be dead: text: why */
    COLL_GPUSYM_FAILED_ABORTED,    /* a rank has given up */
    COLL_GPUSYM_FAILED_TIMEOUT,    /* a rank does not come */
    COLL_GPUSYM_FAILED_MISMATCH,   /* the ranks are not in the same call, as task.read says */
    COLL_GPUSYM_FAILED_OTHER_CALL, /* an island is in another call */
    COLL_GPUSYM_FAILED_CORRUPT,    /* a rank's line, or what it lists, was overwritten */
    COLL_GPUSYM_FAILED_NET,        /* what came from another island is not of this call */
} coll_gpusym_failed_t;
typedef struct {
    coll_gpusym_failed_t kind;
    int rank;
    size_t bytes;
    const char *text;
    bool ask_peers; /* a peer that is lost is the reason, if there is one */
} coll_gpusym_failure_t;

/* What a start of a call is for. */
typedef enum {
    COLL_GPUSYM_NONBLOCKING,
    COLL_GPUSYM_BLOCKING,
    COLL_GPUSYM_AGREES, /* of a persistent call's init, blocking: ends once all ranks have posted what they have */
} coll_gpusym_mode_t;

/* What each way keeps. */
typedef struct {
    enum {
        COLL_GPUSYM_KERNEL_FIND,
        COLL_GPUSYM_KERNEL_VOTE,
        COLL_GPUSYM_KERNEL_TOKENS,
        COLL_GPUSYM_KERNEL_CLEARING,
        COLL_GPUSYM_KERNEL_RUNS,
        COLL_GPUSYM_KERNEL_UNPACKS
    } step;
    bool has_tokens; /* launch tokens, or some of them, to be given back */
} coll_gpusym_kernel_t;
typedef struct {
    enum {
        COLL_GPUSYM_LED_FIND,
        COLL_GPUSYM_LED_VOTE,
        COLL_GPUSYM_LED_ASK,
        COLL_GPUSYM_LED_DROP,
        COLL_GPUSYM_LED_BEGIN,
        COLL_GPUSYM_LED_FILL,
        COLL_GPUSYM_LED_READY,
        COLL_GPUSYM_LED_LEAD,
        COLL_GPUSYM_LED_OTHERS,
        COLL_GPUSYM_LED_DRAIN
    } step;
    bool begun; /* a leader may load and store in this rank's scratch memory and staging buffer */
    /* Of several islands. */
    bool told;  /* a leader: it has told the others what this island does */
    int reason; /* this island wants the call staged; -1: it does not */
    coll_gpusym_rails_t rails;
} coll_gpusym_led_t;
/* The memory of a call that is staged as a whole, and that call on it. */
typedef struct {
    coll_gpusym_bounce_t bounce;
    coll_gpusym_args_t on_host;
} coll_gpusym_stage_t;
/* The fallback is not called before all ranks have what they need for it. */
typedef struct {
    enum {
        COLL_GPUSYM_WHOLE_BEGINS,
        COLL_GPUSYM_WHOLE_FILLS, /* copies to the host are under way */
        COLL_GPUSYM_WHOLE_AWAITS /* this rank has told that it is ready */
    } step;
    coll_gpusym_stage_t *stage; /* owned; NULL: this rank has no GPU memory, or stages in `finish` or in request.c */
} coll_gpusym_whole_t;
typedef struct {
    coll_gpusym_segmentation_t *segmentation; /* owned; NULL: not begun, or this rank has no GPU memory */
    bool told;                                /* blocking: this rank has told that it is ready */
} coll_gpusym_segmented_t;

/* One start of a call: all that a way sees of it. Zeroed before its first use, but for what it is. */
typedef struct coll_gpusym_run {
    /* What it is: the same for all starts of a persistent call. */
    coll_gpusym_engine_t *engine;
    const coll_gpusym_args_t *args;
    coll_gpusym_buffers_t *buffers; /* of args */
    coll_gpusym_mode_t mode;
    bool device;  /* a buffer of ours is device memory, or we have none: it may be native */
    bool on_host; /* our buffers are host memory, and `device` is set all the same: the rank takes part */
    bool ours;    /* a buffer of ours is GPU memory */

    bool joins;        /* posted before the team was set up */
    bool voted;        /* this call's one vote is cast */
    bool stopping;     /* what runs has been told to end */
    uint16_t wish;     /* number of the settings that this rank wanted when the call was made; 0: the newest */
    int reason;        /* enum coll_gpusym_reason: all ranks want it staged; -1: they do not */
    int error;         /* MPI error code */
    uint32_t trace;    /* number of its record; 0: it has none. See traced.h */
    uint64_t since_ns; /* begin of what has a limit of time; 0: not yet */
    coll_gpusym_task_t task;
    coll_gpusym_launch_t launch;
    coll_gpusym_sizes_t *sizes; /* owned; NULL: all that is sent is taken, and nothing else awaited */
    coll_gpusym_wait_for_t waits_for;
    coll_gpusym_failure_t failure;
    union { /* of the way; zeroed when it is chosen */
        coll_gpusym_kernel_t kernel;
        coll_gpusym_led_t led;               /* leaders, rails */
        coll_gpusym_staged_copies_t *copies; /* staged copies: owned; NULL: not begun */
        coll_gpusym_segmented_t segmented;
        coll_gpusym_whole_t whole;
    } is;
} coll_gpusym_run_t;

/* Functions may be NULL, but `poll`, `count`, and a native way's `offer` and `agree`. */
typedef struct coll_gpusym_way {
    const char *name; /* in the trace */
    /* The staged ways that may take its place, in order, NULL behind them. NULL: this one refuses nothing. */
    const struct coll_gpusym_way *const *instead;
    bool takes_host; /* ranks on the host may take part; what the ranks send and take may differ */

    /* Before each attempt to post, of a rank with GPU memory: what it has; a staged way adds what it needs to know. */
    void (*offer)(coll_gpusym_run_t *run, gpusym_post_t *post);
    /* The same, last, of each rank that will read the entries: number seq is posted now, or in a later attempt. */
    void (*enter)(coll_gpusym_run_t *run, uint64_t seq);
    /* After the post of a native call on our GPU memory: what can be done before the ranks have agreed. */
    void (*early)(coll_gpusym_run_t *run);
    /* Native: whether a call in which no rank of this team has data needs no set-up, and is agreed at once. */
    bool (*unset)(const coll_gpusym_run_t *run);
    /* Staged: whether all ranks go this way, by what all of them know alike. NULL: it can do any call. */
    bool (*possible)(const coll_gpusym_run_t *run);
    /* Until it is agreed. Native: run->reason is set if the ranks of this team want it staged. */
    coll_gpusym_turn_t (*agree)(coll_gpusym_run_t *run);
    /* Then, until it is over; the first one begins. */
    coll_gpusym_turn_t (*poll)(coll_gpusym_run_t *run);
    /* About every 10 ms while poll waits, or agree for nobody (WAIT_NONE), once the peers are known to live: time
     * limits, the GPU. WAITS or FAILED. */
    coll_gpusym_turn_t (*check)(coll_gpusym_run_t *run, uint64_t now_ns);
    /* Makes what runs end; called until it has: true. recalled: the call has not failed, but goes another way. due:
     * about every 10 ms. */
    bool (*stop)(coll_gpusym_run_t *run, bool recalled, bool due);
    /* `stop` has taken too long: what runs is not used again. NULL: there is no limit. */
    void (*abandon)(coll_gpusym_run_t *run);
    /* Once, at the end or before another way is chosen: gives back what it holds. With run->error: what peers may still
     * use is not used again. */
    void (*end)(coll_gpusym_run_t *run);
    /* A blocking call that was HANDED. MPI error code. */
    int (*finish)(coll_gpusym_run_t *run);
    /* Once the call is over, or has been handed over. */
    void (*count)(const coll_gpusym_run_t *run, coll_gpusym_counters_t *counters);
} coll_gpusym_way_t;

/* native: kernels of all ranks' GPUs, which wait for each other */
extern const coll_gpusym_way_t coll_gpusym_way_kernel __attribute__((visibility("hidden")));
/* native, where ranks share GPUs: a kernel of each GPU's leader, for all ranks there */
extern const coll_gpusym_way_t coll_gpusym_way_leaders __attribute__((visibility("hidden")));
/* native, of several islands: kernels and messages of the owners of rails */
extern const coll_gpusym_way_t coll_gpusym_way_rails __attribute__((visibility("hidden")));
/* not staged, where messages take GPU memory: the fallback's, of neighbours */
extern const coll_gpusym_way_t coll_gpusym_way_messages __attribute__((visibility("hidden")));
/* staged: what moves bytes is copied through staging buffers in host memory */
extern const coll_gpusym_way_t coll_gpusym_way_staged_copies __attribute__((visibility("hidden")));
/* staged: the fallback's, in segments */
extern const coll_gpusym_way_t coll_gpusym_way_segments __attribute__((visibility("hidden")));
/* the fallback's as it is: forwarded, or staged on bounce buffers */
extern const coll_gpusym_way_t coll_gpusym_way_whole __attribute__((visibility("hidden")));

/* Whether a call that a native way could do goes by messages; `instead` of that way has them. All ranks know alike. */
bool coll_gpusym_messages_suit(const coll_gpusym_run_t *run);

/* The call's name in posts and records: the collective, and that the call is not made yet. */
#define COLL_GPUSYM_WHAT_AGREES 0x80u
static inline uint8_t coll_gpusym_run_what(const coll_gpusym_run_t *run)
{
    return (uint8_t) ((uint8_t) run->args->coll | (COLL_GPUSYM_AGREES == run->mode ? COLL_GPUSYM_WHAT_AGREES : 0));
}
static inline gpusym_agreement_t *coll_gpusym_run_agreement(const coll_gpusym_run_t *run)
{
    return &run->engine->team->host.rc;
}

/* Sets run->failure. Returns FAILED. */
static inline coll_gpusym_turn_t coll_gpusym_run_failed(coll_gpusym_run_t *run, coll_gpusym_failed_t kind, int rank,
                                                        const char *text)
{
    run->failure = (coll_gpusym_failure_t){.kind = kind, .rank = rank, .text = text};
    return COLL_GPUSYM_TURN_FAILED;
}
/* The same of the last function of the device. */
coll_gpusym_turn_t coll_gpusym_run_gpu_failed(coll_gpusym_run_t *run);
/* Returns REFUSED, for that reason. */
static inline coll_gpusym_turn_t coll_gpusym_run_refused(coll_gpusym_run_t *run, int reason)
{
    run->reason = reason;
    return COLL_GPUSYM_TURN_REFUSED;
}
/* Returns WAITS, for what the user is told. */
static inline coll_gpusym_turn_t coll_gpusym_run_waits(coll_gpusym_run_t *run, coll_gpusym_wait_for_t what)
{
    run->waits_for = what;
    return COLL_GPUSYM_TURN_WAITS;
}
/* `offer` of all native ways: the buffers, and what peers can map of them. */
void coll_gpusym_run_offer(coll_gpusym_run_t *run, gpusym_post_t *post);
/* Posts. False: a peer is too far behind; nothing was posted, and what was offered is taken back. */
bool coll_gpusym_run_post(coll_gpusym_run_t *run, gpusym_post_t *post);
/* All ranks post it again: takes back what was offered. */
void coll_gpusym_run_repost(coll_gpusym_run_t *run);
/* At the end of the call: takes back what was offered, gives back scratch memory. */
void coll_gpusym_run_withdraw(coll_gpusym_run_t *run);
/* Casts this rank's vote on whether it has mapped the buffers that are new to it. corrupt: the rank whose post is, or
 * -1. WAITS or FAILED. */
coll_gpusym_turn_t coll_gpusym_run_vote(coll_gpusym_run_t *run, bool mapped, int corrupt);
/* Counts the votes. DONE: all have mapped them; WAITS; REFUSED: not all have, and there is no zero copy from now on. */
coll_gpusym_turn_t coll_gpusym_run_votes(coll_gpusym_run_t *run);

#endif
