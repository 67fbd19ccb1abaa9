/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call in the trace: see traced.h.
 */
#include "mca/coll/gpusym/exec/traced.h"

#include "mca/coll/gpusym/trace/events.h"
#include "mca/coll/gpusym/trace/sums.h"
#include "mca/common/gpusym/gpusym.h"

static coll_gpusym_record_t *record_of(const coll_gpusym_run_t *run)
{
    return coll_gpusym_trace_record(run->trace);
}

/* MPI_Reduce_local belongs to no communicator: any thread may be in it. */
static bool has_comm(const coll_gpusym_args_t *a)
{
    return COLL_GPUSYM_P_LOCAL != coll_gpusym_facts[a->coll].pattern;
}

void coll_gpusym_traced_take(coll_gpusym_run_t *run)
{
    const coll_gpusym_engine_t *e = run->engine;
    if (has_comm(run->args) && 0 == e->trace.entered) { /* it began before records were taken */
        return;
    }
    run->trace = coll_gpusym_trace_take();
    if (0 != run->trace) {
        coll_gpusym_record_t *r = record_of(run);
        const bool noted = has_comm(run->args);
        r->entered = noted ? e->trace.entered : gpusym_now_ns();
        r->form = noted ? e->trace.form : COLL_GPUSYM_FORM_BLOCKING;
        r->coll = (uint8_t) run->args->coll;
        coll_gpusym_events_begin(run->trace);
    }
}

void coll_gpusym_traced_note_posted(const coll_gpusym_run_t *run)
{
    coll_gpusym_record_t *r = record_of(run);
    const uint64_t now = gpusym_now_ns();
    const bool has_kernel = NULL != run->launch.lane;
    if (0 == r->posted) { /* else it is posted anew */
        /* A command takes less time than to ask for it. A launch takes longer than all before. */
        r->posted = has_kernel && COLL_GPUSYM_COMMANDED != run->launch.resident.how ? r->entered : now;
        r->last = (int) run->engine->team->host.rank;
    }
    if (has_kernel) {
        r->launched = now;
    }
}

void coll_gpusym_traced_note_there(const coll_gpusym_run_t *run, bool late)
{
    coll_gpusym_record_t *r = record_of(run);
    const coll_gpusym_team_t *t = run->engine->team;
    /* Where it has waited for none, nobody has come since it posted. */
    r->there = late || r->last != (int) t->host.rank ? gpusym_now_ns() : r->posted;
    r->last = late ? -1 : r->last;
}

/* A pass over the blocks of all ranks, where they differ. */
static void measure(const coll_gpusym_run_t *run, coll_gpusym_record_t *r)
{
    coll_gpusym_buffers_t *b = run->buffers;
    coll_gpusym_buffers_measure(b);
    r->bytes = b->send.span.bytes > b->recv.span.bytes ? b->send.span.bytes : b->recv.span.bytes;
}

void coll_gpusym_traced_note_launched(const coll_gpusym_run_t *run, uint32_t blocks)
{
    coll_gpusym_record_t *r = record_of(run);
    r->blocks = (uint16_t) blocks;
    if (0 == r->launched) {
        r->launched = gpusym_now_ns();
    }
    measure(run, r); /* while the GPU works */
}

void coll_gpusym_traced_note_ran(const coll_gpusym_run_t *run)
{
    coll_gpusym_record_t *r = record_of(run);
    if (!GPUSYM_FLAG(coll_gpusym_trace_written)) { /* launched without times */
        return;
    }
    gpusym_lane_times(run->launch.lane, r->gpu);
}

/* The communicator's number, at its first call that ends. */
static bool find_comm(coll_gpusym_engine_t *e)
{
    struct ompi_communicator_t *comm = e->fallback->comm;
    char label[GPUSYM_COMM_LABEL_MAX];
    uint32_t number;
    if (0 == e->trace.comm &&
        coll_gpusym_trace_comm(coll_gpusym_team_key(comm), gpusym_comm_label(comm, label, sizeof label),
                               ompi_comm_rank(comm), ompi_comm_size(comm), &number, &e->trace.nth)) {
        e->trace.comm = number + 1;
    }
    return 0 != e->trace.comm;
}

/* What holds whatever way it has gone. */
static void end_record(coll_gpusym_engine_t *e, coll_gpusym_record_t *r, uint32_t number, uint64_t seq, int error)
{
    const coll_gpusym_team_t *t = e->team;
    r->returned = gpusym_now_ns();
    r->error = error;
    coll_gpusym_sums_add(r);
    coll_gpusym_events_end(number);
    if (!GPUSYM_FLAG(coll_gpusym_trace_written)) {
        coll_gpusym_trace_drop(number);
        return;
    }
    if (!find_comm(e)) {
        coll_gpusym_trace_lose(number);
        return;
    }
    r->comm = e->trace.comm - 1;
    r->nth = e->trace.nth;
    r->seq = 0 != seq ? seq : ++e->trace.calls;
    if (NULL != t && '\0' != t->host.gpu_text[0] && __atomic_load_n(&coll_gpusym_trace_wants_gpu, __ATOMIC_RELAXED)) {
        coll_gpusym_trace_gpu(t->host.gpu_text);
    }
    coll_gpusym_trace_put(number);
    if (MPI_SUCCESS != error) { /* the program may end by it */
        coll_gpusym_trace_flush();
    }
}

void coll_gpusym_traced_note_end(coll_gpusym_run_t *run, const coll_gpusym_way_t *way)
{
    static const char *const by[] = {"launch", "resident", "early", "early", "late"};
    coll_gpusym_record_t *r = record_of(run);
    const uint32_t number = run->trace;
    run->trace = 0;
    if (&coll_gpusym_way_whole == way && run->reason < 0) { /* forwarded, with host buffers */
        coll_gpusym_trace_drop(number);
        return;
    }
    r->way = NULL != way ? way->name : NULL;
    r->reason = (int8_t) run->reason;
    r->zero_copy = run->task.zero_copy.used;
    if (run->launch.algorithm >= 0) {
        r->algorithm = gpusym_algorithm_name((unsigned) run->launch.algorithm);
        r->by = by[run->launch.resident.how];
    }
    if (r->last >= 0) {
        r->last = (int) coll_gpusym_team_member(run->engine->team, (uint32_t) r->last);
    }
    if (0 == r->launched) {
        measure(run, r);
    }
    end_record(run->engine, r, number, run->task.read.seq, run->error);
}

void coll_gpusym_traced_alone(coll_gpusym_engine_t *e, coll_gpusym_buffers_t *b, int error)
{
    coll_gpusym_run_t run = {.engine = e, .args = b->args, .buffers = b};
    coll_gpusym_traced_begin(&run);
    if (COLL_GPUSYM_TRACED(&run)) {
        coll_gpusym_record_t *r = record_of(&run);
        r->way = "copy";
        measure(&run, r);
        end_record(e, r, run.trace, 0, error);
    }
}
