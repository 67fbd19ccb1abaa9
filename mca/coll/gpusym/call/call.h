/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call: one collective in flight on this rank. Everything is asynchronous; a blocking call starts one and waits.
 */
#ifndef MCA_COLL_GPUSYM_CALL_CALL_H
#define MCA_COLL_GPUSYM_CALL_CALL_H

#include "mca/coll/gpusym/call/engine.h"
#include "mca/coll/gpusym/call/wait.h"
#include "mca/coll/gpusym/exec/rails.h"
#include "mca/coll/gpusym/fallback/bounce.h"
#include "mca/coll/gpusym/fallback/cut.h"
#include "mca/coll/gpusym/plan/sizes.h"

typedef enum {
    COLL_GPUSYM_CALL_NEW,       /* not posted: the team is not set up, or a peer is too far behind */
    COLL_GPUSYM_CALL_ROLLCALL,  /* posted; waiting for the peers' entries */
    COLL_GPUSYM_CALL_SIZES,     /* agreed: native, but not all that is sent is taken; waiting for the ranks' sizes */
    COLL_GPUSYM_CALL_SETUP,     /* agreed: native; the team's second step */
    COLL_GPUSYM_CALL_VOTE,      /* zero copy: waiting whether all could map the buffers */
    COLL_GPUSYM_CALL_ISLANDS,   /* several islands: waiting for what the others do */
    COLL_GPUSYM_CALL_DROPPING,  /* ... which do not do it natively: waiting for what has begun on rails */
    COLL_GPUSYM_CALL_TOKENS,    /* waiting for the launch tokens of its processes */
    COLL_GPUSYM_CALL_CLEARING,  /* the epochs wrap round: waiting until all ranks have cleared their flags */
    COLL_GPUSYM_CALL_FILLING,   /* led: our input is brought to where leaders load it */
    COLL_GPUSYM_CALL_READY,     /* led, a leader: waiting for the ranks that have to bring theirs */
    COLL_GPUSYM_CALL_RUNNING,   /* the kernel runs */
    COLL_GPUSYM_CALL_RAILS,     /* led, of several islands: this rank's rails move the data */
    COLL_GPUSYM_CALL_LED,       /* led: waiting for the leaders */
    COLL_GPUSYM_CALL_UNPACKING, /* what it left in scratch memory is copied to the user */
    COLL_GPUSYM_CALL_WINDOWS,   /* staged, agreed: by windows, which are looked for */
    COLL_GPUSYM_CALL_MOVING,    /* ... and the data move through them */
    COLL_GPUSYM_CALL_CUTTING,   /* staged, agreed, nonblocking: in pieces */
    COLL_GPUSYM_CALL_DRAINING,  /* something failed; waiting for the kernel to retire */
    COLL_GPUSYM_CALL_FALLBACK, /* agreed: the fallback's, for `reason` (staged) or -1 (forwarded); the poller does it */
    COLL_GPUSYM_CALL_FORWARDED, /* the fallback does it, by `inner` */
    COLL_GPUSYM_CALL_ENDED,     /* with `error` */
} coll_gpusym_call_state_t;

typedef struct coll_gpusym_call {
    /* What it is: the same for all starts of a persistent call. */
    coll_gpusym_engine_t *engine;
    coll_gpusym_args_t args;
    coll_gpusym_segments_t segments;
    bool device;  /* a buffer of ours is device memory, or we have none: it may be native */
    bool on_host; /* our buffers are host memory, and `device` is set all the same: the rank takes part */
    bool blocking;
    bool agree_only; /* of a persistent call's init: ends once all ranks have posted what they have; `agreed` then */
    bool agreed;     /* native on all ranks */
    bool settled;    /* a start of a persistent call that is staged or forwarded; posted only where there are lines */
    int reason_settled;
    coll_gpusym_plan_t *plan;    /* persistent: what the first start found out; NULL: not kept. Not owned */
    coll_gpusym_bounce_t bounce; /* COLL_GPUSYM_CALL_FORWARDED, staged */

    /* One start of it: see coll_gpusym_call_reset(). */
    coll_gpusym_call_state_t state;
    int reason; /* of staging; -1 */
    bool cut;   /* staged in pieces (fallback/cut.h): agreed */
    bool moved; /* staged by windows (exec/move.h) */
    int error;  /* MPI error code */
    coll_gpusym_task_t task;
    coll_gpusym_launch_t launch;
    coll_gpusym_sizes_t *sizes; /* owned; NULL: all that is sent is taken, and nothing else awaited */
    coll_gpusym_cut_t *pieces;  /* owned; NULL: it is not cut, or blocking */
    coll_gpusym_move_t *move;   /* owned; NULL: no data move through windows */
    bool joins;                 /* posted before the team was set up */
    bool led;                   /* leaders do it, for the ranks of their GPUs */
    bool told;                  /* several islands, a leader: it has told the others what this island does */
    int island_reason;          /* several islands: this one wants it staged; -1: it does not */
    int verdict;                /* DROPPING: the reason for staging; -1: the call ends */
    coll_gpusym_rails_t rails;
    bool has_tokens; /* launch tokens, or some of them, to be given back */
    coll_gpusym_health_t health;
    coll_gpusym_wait_t wait;
    uint64_t since_ns;             /* begin of this state, where it has a limit of time; 0: not yet */
    struct ompi_request_t *inner;  /* the fallback's request */
    struct coll_gpusym_call *next; /* in the engine's list */
} coll_gpusym_call_t;

/* Nonblocking and started persistent calls of this process that have not completed. */
extern uint32_t coll_gpusym_in_flight;

/*
 * The calls of a communicator go one after the other: only the first that is not over is polled. So the fallback's
 * collectives are called in the same order on all ranks, and a rank that has posted a call has ended all before it.
 */
/* Describes a call; smem, rmem: of coll_gpusym_where(). The team exists. The call must not move. */
void coll_gpusym_call_init(coll_gpusym_call_t *call, coll_gpusym_engine_t *e, const coll_gpusym_args_t *args,
                           const gpusym_mem_t *smem, const gpusym_mem_t *rmem, bool blocking);
/* The same of a call without a team, for the fallback alone; reason: as in the struct. */
void coll_gpusym_call_init_apart(coll_gpusym_call_t *call, coll_gpusym_engine_t *e, const coll_gpusym_args_t *args,
                                 int reason);
/* Makes a call that is over new again, with the same arguments. */
void coll_gpusym_call_reset(coll_gpusym_call_t *call);
/* One step, which never waits. True once the state is FALLBACK or ENDED: the communicator's next call may go on. */
bool coll_gpusym_call_poll(coll_gpusym_call_t *call);

/*
 * The fallback does a call, staged or forwarded. A rank that cannot stage calls it all the same, on any data, since the
 * other ranks are in it and would wait for ever; its line tells them, and they look at it once the call is over
 * (coll_gpusym_call_look). From then on all of them refuse calls of the communicator. Where this rank has no memory, or
 * not all ranks look (some have host buffers, or there are several islands, or no lines), the job ends, with the
 * reason. The first MPI error code stays in call->error; those of this rank's own have been reported.
 */
/* Makes bounce buffers, and *on_host, the call on them; copies into them; both. False: there is no other rank, and the
 * fallback is not to be called. */
bool coll_gpusym_call_open(coll_gpusym_call_t *call, coll_gpusym_args_t *on_host);
bool coll_gpusym_call_fill(coll_gpusym_call_t *call);
bool coll_gpusym_call_stage(coll_gpusym_call_t *call, coll_gpusym_args_t *on_host);
/* Takes the fallback's MPI error code. */
void coll_gpusym_call_forwarded(coll_gpusym_call_t *call, int rv);
/* Copies the results back, if all went well. The bounce buffers stay. */
void coll_gpusym_call_drain(coll_gpusym_call_t *call);
/* The fallback is done with the call: has another rank failed with it? */
void coll_gpusym_call_look(coll_gpusym_call_t *call);
/* All of it for a blocking call that is staged; the same in pieces, as all ranks have agreed. MPI error code. */
int coll_gpusym_call_staged(coll_gpusym_call_t *call);
int coll_gpusym_call_cut(coll_gpusym_call_t *call);
/* Counts how the call was served; once, when it is over. */
void coll_gpusym_call_count(const coll_gpusym_call_t *call);

#endif
