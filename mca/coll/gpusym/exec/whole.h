/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The fallback does a call, staged or forwarded. Where all ranks know that it is staged, and have lines, each copies
 * its data to the host first, and none calls the fallback before all have: one that cannot stage fails, and with it all
 * of them.
 *
 * Elsewhere (some ranks have host buffers, or there are several islands, or no lines) the others may be in the
 * fallback already, and would wait for ever. A rank that cannot stage there ends the job, with the reason. One that
 * fails later calls the fallback all the same, on any data; its line tells the others, who look at it once the call is
 * over (coll_gpusym_whole_look). From then on all of them refuse calls of the communicator. The first MPI error code
 * stays in run->error; those of this rank's own have been reported.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_WHOLE_H
#define MCA_COLL_GPUSYM_EXEC_WHOLE_H

#include "mca/coll/gpusym/exec/way.h"

/* The run of a call without a team, for the fallback alone, staged for `reason` unless that is -1. b: not owned. */
void coll_gpusym_whole_init(coll_gpusym_run_t *run, coll_gpusym_engine_t *e, coll_gpusym_buffers_t *b, int reason);
/* Before a staged call. Whether the fallback is to be called whatever run->error is, for other ranks are in it, on any
 * data: they look at this rank's mark afterwards. */
bool coll_gpusym_whole_goes_on(coll_gpusym_run_t *run);
/* Tells once (*told) that this rank has what it needs for a staged call of a team of one island whose ranks all know of
 * it. HANDED: all ranks have, and none has given up before (call/call.c); else WAITS. A rank that cannot fails instead:
 * no rank is in the fallback then. */
static inline coll_gpusym_turn_t coll_gpusym_whole_await(coll_gpusym_run_t *run, bool *told)
{
    gpusym_agreement_t *rc = coll_gpusym_run_agreement(run);
    const uint64_t seq = run->task.read.seq;
    if (!*told) {
        gpusym_agreement_ready(rc, seq);
        *told = true;
    }
    return gpusym_agreement_all_staged(rc, seq) && gpusym_agreement_decide(rc, seq, true)
               ? COLL_GPUSYM_TURN_HANDED
               : coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_STAGED);
}
/* Makes bounce buffers, and *on_host, the call on them; copies into them; both. False: there is no other rank, and the
 * fallback is not to be called. */
bool coll_gpusym_whole_open(coll_gpusym_run_t *run, coll_gpusym_bounce_t *bounce, coll_gpusym_args_t *on_host);
bool coll_gpusym_whole_fill(coll_gpusym_run_t *run, coll_gpusym_bounce_t *bounce);
bool coll_gpusym_whole_stage(coll_gpusym_run_t *run, coll_gpusym_bounce_t *bounce, coll_gpusym_args_t *on_host);
/* Takes the fallback's MPI error code. */
void coll_gpusym_whole_forwarded(coll_gpusym_run_t *run, int rv);
/* Copies the results back, if all went well. The bounce buffers stay. */
void coll_gpusym_whole_drain(coll_gpusym_run_t *run, coll_gpusym_bounce_t *bounce);
/* Takes the MPI error code of copies that were queued by whole_fill, or by whole_drain. */
void coll_gpusym_whole_copied(coll_gpusym_run_t *run, int rv);
/* Moves the bounce buffers of a call that has filled them, and that call, to the caller. False: it has none. */
bool coll_gpusym_whole_take(coll_gpusym_run_t *run, coll_gpusym_bounce_t *bounce, coll_gpusym_args_t *on_host);
/* The fallback is done with the call: has another rank failed with it? */
void coll_gpusym_whole_look(coll_gpusym_run_t *run);
/* The fallback is to do it: without bounce buffers where this rank has no GPU memory. */
void coll_gpusym_whole_settle(coll_gpusym_run_t *run);
/* As coll_gpusym_way_t.count: staged for run->reason, or forwarded. */
void coll_gpusym_whole_count(const coll_gpusym_run_t *run, coll_gpusym_counters_t *counters);

#endif
