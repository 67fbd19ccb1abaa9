/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call: one collective in flight on this rank. Everything is asynchronous; a blocking call starts one and waits.
 */
#ifndef MCA_COLL_GPUSYM_CALL_CALL_H
#define MCA_COLL_GPUSYM_CALL_CALL_H

#include "mca/coll/gpusym/call/wait.h"
#include "mca/coll/gpusym/exec/way.h"

typedef enum {
    COLL_GPUSYM_CALL_NEW,      /* not posted: the team is not set up, or a peer is too far behind */
    COLL_GPUSYM_CALL_POSTED,   /* posted; waiting for the peers' entries */
    COLL_GPUSYM_CALL_SIZES,    /* agreed: native, but not all that is sent is taken; waiting for the ranks' sizes */
    COLL_GPUSYM_CALL_SETUP,    /* agreed: native; the team's second step */
    COLL_GPUSYM_CALL_AGREE,    /* the ranks agree on the way */
    COLL_GPUSYM_CALL_RUN,      /* the way carries it out */
    COLL_GPUSYM_CALL_STOP,     /* something failed, or the call goes another way: waiting until nothing runs any more */
    COLL_GPUSYM_CALL_FALLBACK, /* the fallback's, as the way says: the poller does it */
    COLL_GPUSYM_CALL_ENDED,    /* with run.error */
} coll_gpusym_call_state_t;

/* coll_gpusym_call_t.settled: it is not. */
#define COLL_GPUSYM_UNSETTLED (-2)

typedef struct coll_gpusym_call {
    coll_gpusym_args_t args;
    coll_gpusym_buffers_t buffers; /* of args */
    coll_gpusym_segments_t segments;
    /* A start of a persistent call that is staged, for that reason, or forwarded (-1); posted only where there are
     * lines. */
    int settled;
    /* One start of it: see coll_gpusym_call_reset(). */
    coll_gpusym_call_state_t state;
    bool recalled;                /* STOP: the call goes another way then */
    const coll_gpusym_way_t *way; /* NULL: not known yet */
    coll_gpusym_run_t run;
    coll_gpusym_health_t health;
    coll_gpusym_wait_t wait;
    struct coll_gpusym_call *next; /* in the engine's list */
} coll_gpusym_call_t;

/* Nonblocking and started persistent calls of this process that have not completed. */
extern uint32_t coll_gpusym_in_flight;

/*
 * The calls of a communicator go one after the other: only the first that is not over is polled. So the fallback's
 * collectives are called in the same order on all ranks, and a rank that has posted a call has ended all before it.
 */
/* Describes a call by its buffers, which have been found; copies them and their arguments. The team exists. The call
 * must not move. */
void coll_gpusym_call_init(coll_gpusym_call_t *call, coll_gpusym_engine_t *e, const coll_gpusym_buffers_t *b,
                           coll_gpusym_mode_t mode);
/* The same of a call without a team, for the fallback alone, staged for `reason` unless that is -1. */
void coll_gpusym_call_init_apart(coll_gpusym_call_t *call, coll_gpusym_engine_t *e, const coll_gpusym_buffers_t *b,
                                 int reason);
/* Makes a call that is over new again, with the same arguments. */
void coll_gpusym_call_reset(coll_gpusym_call_t *call);
/* One step, which never waits. True once the state is FALLBACK or ENDED: the communicator's next call may go on. */
bool coll_gpusym_call_poll(coll_gpusym_call_t *call);
/* Counts how the call was served; once, when it is over. */
void coll_gpusym_call_count(const coll_gpusym_call_t *call);

#endif
