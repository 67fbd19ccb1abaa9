/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The fallback does a call: see whole.h.
 */
#include "mca/coll/gpusym/exec/whole.h"

#include <stdlib.h>

#include "mca/coll/gpusym/args/facts.h"
#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/common/gpusym/gpusym.h"
#include "ompi/runtime/mpiruntime.h"

void coll_gpusym_whole_init(coll_gpusym_run_t *run, coll_gpusym_engine_t *e, coll_gpusym_buffers_t *b, int reason)
{
    *run =
        (coll_gpusym_run_t){.engine = e, .args = b->args, .buffers = b, .reason = reason, .launch = {.algorithm = -1}};
}

/* Whether no other rank is in the call. */
static bool is_alone(const coll_gpusym_run_t *run)
{
    return run->engine->alone || COLL_GPUSYM_P_LOCAL == coll_gpusym_facts[run->args->coll].pattern;
}

/* Whether all ranks of a staged call look at this one's line once it is over. Those with host buffers have not been
 * told that it is staged; other islands hear of a mark later than of the data; without a call agreement nobody looks.
 */
static bool all_look(const coll_gpusym_run_t *run)
{
    const gpusym_agreement_read_t *read = &run->task.read;
    return 0 != read->seq && !read->host && !coll_gpusym_team_is_part(run->engine->team);
}

/* This rank failed with a staged call, or knows of one that did. It takes part in the calls that it has posted, in none
 * behind them: ranks that still agree on this call go on with it. */
static void leave_communicator(coll_gpusym_run_t *run)
{
    coll_gpusym_team_t *t = run->engine->team;
    if (NULL != t && !is_alone(run)) {
        coll_gpusym_team_abort(t, t->host.rc.seq + 1);
        t->broken = true;
        t->error = run->error;
        t->open = false;
        __atomic_store_n(&run->engine->host_only, false, __ATOMIC_RELAXED); /* calls behind it are to find out */
    }
}

/* The others would wait for ever, or take any data for a result. Where the job can go on, all of their calls on this
 * communicator end. */
static void end_others(const coll_gpusym_run_t *run)
{
    struct ompi_communicator_t *comm = run->engine->fallback->comm;
    char label[GPUSYM_COMM_LABEL_MAX];
    coll_gpusym_help("cannot-stage", ompi_comm_rank(comm), gpusym_comm_label(comm, label, sizeof label),
                     coll_gpusym_mpi_name(run->args->coll));
    if (gpusym_ft_revoke(comm)) {
        return;
    }
    /* Open MPI 4.1 and intercommunicators: it looks for the local group's ranks in the remote one, and crashes. */
    (void) ompi_mpi_abort(OMPI_COMM_IS_INTER(comm) ? &ompi_mpi_comm_world.comm : comm, run->error);
}

bool coll_gpusym_whole_goes_on(coll_gpusym_run_t *run)
{
    if (MPI_SUCCESS == run->error) {
        return true;
    }
    if (is_alone(run)) {
        return false;
    }
    const bool ends = MPI_ERR_NO_MEM == run->error || !all_look(run);
    if (ends) {
        end_others(run);
    }
    leave_communicator(run);
    return !ends;
}

bool coll_gpusym_whole_open(coll_gpusym_run_t *run, coll_gpusym_bounce_t *bounce, coll_gpusym_args_t *on_host)
{
    run->error = coll_gpusym_bounce_open(run->buffers, bounce, on_host);
    return coll_gpusym_whole_goes_on(run);
}

bool coll_gpusym_whole_fill(coll_gpusym_run_t *run, coll_gpusym_bounce_t *bounce)
{
    run->error = coll_gpusym_bounce_in(run->buffers, bounce);
    return coll_gpusym_whole_goes_on(run);
}

bool coll_gpusym_whole_stage(coll_gpusym_run_t *run, coll_gpusym_bounce_t *bounce, coll_gpusym_args_t *on_host)
{
    const bool opened = coll_gpusym_whole_open(run, bounce, on_host);
    return MPI_SUCCESS == run->error ? coll_gpusym_whole_fill(run, bounce) : opened;
}

void coll_gpusym_whole_forwarded(coll_gpusym_run_t *run, int rv)
{
    run->error = MPI_SUCCESS == run->error ? rv : run->error;
}

void coll_gpusym_whole_copied(coll_gpusym_run_t *run, int rv)
{
    if (MPI_SUCCESS == run->error && MPI_SUCCESS != rv) {
        run->error = rv;
        leave_communicator(run);
    }
}

void coll_gpusym_whole_drain(coll_gpusym_run_t *run, coll_gpusym_bounce_t *bounce)
{
    coll_gpusym_whole_copied(run, coll_gpusym_bounce_out(run->buffers, bounce, run->error));
}

void coll_gpusym_whole_look(coll_gpusym_run_t *run)
{
    coll_gpusym_team_t *t = run->engine->team;
    const gpusym_agreement_read_t *read = &run->task.read;
    char label[GPUSYM_COMM_LABEL_MAX];
    if (MPI_SUCCESS != run->error || 0 == read->seq) {
        return;
    }
    const int quitter = gpusym_agreement_aborted(&t->host.rc, read->seq + 1);
    if (quitter >= 0) {
        coll_gpusym_help("aborted", (int) coll_gpusym_team_rank(t),
                         gpusym_comm_label(run->engine->fallback->comm, label, sizeof label),
                         coll_gpusym_mpi_name(run->args->coll), (int) coll_gpusym_team_member(t, (uint32_t) quitter));
        run->error = MPI_ERR_OTHER;
        leave_communicator(run);
    }
}

void coll_gpusym_whole_settle(coll_gpusym_run_t *run)
{
    run->reason = run->ours ? run->reason : -1;
}

void coll_gpusym_whole_count(const coll_gpusym_run_t *run, coll_gpusym_counters_t *counters)
{
    if (run->reason < 0) {
        coll_gpusym_count(&counters->forwarded);
    } else {
        coll_gpusym_count(&counters->staged);
        coll_gpusym_count(&counters->reason[run->reason]);
    }
}

/* Begins to copy this rank's data to the host. Copies of a nonblocking call are not waited for. MPI error code. */
static int begin_stage(coll_gpusym_run_t *run)
{
    coll_gpusym_stage_t *s = calloc(1, sizeof *s);
    if (NULL == s) {
        return coll_gpusym_bounce_report(run->buffers, "no-memory", sizeof *s);
    }
    run->is.whole.stage = s;
    int rv = coll_gpusym_bounce_open(run->buffers, &s->bounce, &s->on_host);
    if (MPI_SUCCESS == rv && COLL_GPUSYM_NONBLOCKING == run->mode) {
        coll_gpusym_bounce_queue(&s->bounce);
    }
    return MPI_SUCCESS == rv ? coll_gpusym_bounce_in(run->buffers, &s->bounce) : rv;
}

/* Whether this rank's data are there; with run->error. */
static bool poll_stage(coll_gpusym_run_t *run)
{
    coll_gpusym_stage_t *s = run->is.whole.stage;
    return MPI_SUCCESS != run->error || NULL == s || coll_gpusym_bounce_poll(run->buffers, &s->bounce, &run->error);
}

static coll_gpusym_turn_t poll(coll_gpusym_run_t *run)
{
    coll_gpusym_whole_t *is = &run->is.whole;
    bool told = COLL_GPUSYM_WHOLE_AWAITS == is->step;
    if (COLL_GPUSYM_WHOLE_BEGINS == is->step) {
        const bool together = COLL_GPUSYM_AGREES != run->mode && run->reason >= 0 && all_look(run);
        coll_gpusym_whole_settle(run);
        if (!together) {
            return COLL_GPUSYM_TURN_HANDED;
        }
        run->error = run->reason >= 0 ? begin_stage(run) : MPI_SUCCESS;
        is->step = COLL_GPUSYM_WHOLE_FILLS;
    }
    if (COLL_GPUSYM_WHOLE_FILLS == is->step && !poll_stage(run)) {
        return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
    }
    is->step = COLL_GPUSYM_WHOLE_AWAITS;
    return MPI_SUCCESS == run->error ? coll_gpusym_whole_await(run, &told)
                                     : coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_REPORTED, -1, NULL);
}

/* Whether no copy is under way. */
static bool stop(coll_gpusym_run_t *run, bool recalled, bool due)
{
    const coll_gpusym_stage_t *s = run->is.whole.stage;
    (void) recalled;
    (void) due;
    return NULL == s || NULL == s->bounce.lane || 0 != gpusym_current.dev->stream_poll(s->bounce.lane->stream);
}

static void end(coll_gpusym_run_t *run)
{
    coll_gpusym_stage_t *s = run->is.whole.stage;
    if (NULL != s) {
        coll_gpusym_bounce_end_queue(&s->bounce);
        coll_gpusym_bounce_close(&s->bounce);
        free(s);
        run->is.whole.stage = NULL;
    }
}

bool coll_gpusym_whole_take(coll_gpusym_run_t *run, coll_gpusym_bounce_t *bounce, coll_gpusym_args_t *on_host)
{
    coll_gpusym_stage_t *s = run->is.whole.stage;
    if (NULL == s) {
        return false;
    }
    coll_gpusym_bounce_end_queue(&s->bounce);
    *bounce = s->bounce;
    *on_host = s->on_host;
    free(s);
    run->is.whole.stage = NULL;
    return true;
}

static int finish(coll_gpusym_run_t *run)
{
    coll_gpusym_fallback_t *f = run->engine->fallback;
    coll_gpusym_bounce_t bounce = {0};
    coll_gpusym_args_t on_host;
    if (run->reason < 0) {
        coll_gpusym_whole_forwarded(run, coll_gpusym_forward(f, run->args));
    } else {
        if (coll_gpusym_whole_take(run, &bounce, &on_host) || coll_gpusym_whole_stage(run, &bounce, &on_host)) {
            coll_gpusym_whole_forwarded(run, coll_gpusym_forward(f, &on_host));
        }
        coll_gpusym_whole_drain(run, &bounce);
        coll_gpusym_bounce_close(&bounce);
    }
    coll_gpusym_whole_look(run);
    return run->error;
}

const coll_gpusym_way_t coll_gpusym_way_whole = {
    .name = "whole",
    .poll = poll,
    .stop = stop,
    .end = end,
    .finish = finish,
    .count = coll_gpusym_whole_count,
};
