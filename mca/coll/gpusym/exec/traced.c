/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call in the trace: see traced.h.
 */
#include "mca/coll/gpusym/exec/traced.h"

#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/trace/events.h"
#include "mca/coll/gpusym/trace/sums.h"
#include "mca/coll/gpusym/trace/ticks.h"
#include "mca/common/gpusym/gpusym.h"

/* coll_gpusym_run_t.trace of a call that is to take its record; of those of a communicator one at a time, which is the
 * first that is not over. */
#define LATER 0x40000000u
/* Added to the number of a record that is complete, but for when the call ends, unless it fails. */
#define COMPLETE 0x80000000u
/* A call takes its record while it waits for ranks, and its GPU has nothing to do yet, only when it has waited for so
 * long: to take it lasts about as long as ranks that arrive together wait for each other. */
#define SHORT_WAIT_NS 10000

void coll_gpusym_traced_note_enter(coll_gpusym_engine_t *e, enum coll_gpusym_form form)
{
    e->trace.form = (uint8_t) form;
    e->trace.entered = e->fallback->forwarding ? 0 : coll_gpusym_ticks_now();
}

/* MPI_Reduce_local belongs to no communicator: any thread may be in it. */
static bool has_comm(const coll_gpusym_args_t *a)
{
    return COLL_GPUSYM_P_LOCAL != coll_gpusym_facts[a->coll].pattern;
}

/* The program has just set coll_gpusym_trace_calls: the next call already is not recorded. */
static bool is_off(void)
{
    return 0 == coll_gpusym_params.trace_calls && !GPUSYM_FLAG(coll_gpusym_trace_wanted);
}

/* The call has entered while records were taken, and not inside another. */
static bool has_entered(const coll_gpusym_engine_t *e)
{
    return e->trace.entered >= __atomic_load_n(&coll_gpusym_trace_since, __ATOMIC_RELAXED);
}

/* entered: in ticks, compared at base. Returns the record; NULL: there is none. */
static coll_gpusym_record_t *take_record(coll_gpusym_run_t *run, uint64_t base, uint64_t entered, unsigned form)
{
    run->trace = coll_gpusym_trace_take();
    if (0 == run->trace) {
        return NULL;
    }
    coll_gpusym_record_t *r = coll_gpusym_trace_record(run->trace);
    r->entered = coll_gpusym_ticks_ns(base, entered);
    r->form = (uint8_t) form;
    r->coll = (uint8_t) run->args->coll;
    return r;
}

void coll_gpusym_traced_take(coll_gpusym_run_t *run)
{
    const coll_gpusym_engine_t *e = run->engine;
    if (is_off()) {
        return;
    }
    if (!has_comm(run->args)) {
        (void) take_record(run, coll_gpusym_ticks_base(), coll_gpusym_ticks_now(), COLL_GPUSYM_FORM_BLOCKING);
    } else if (has_entered(e)) {
        (void) take_record(run, coll_gpusym_ticks_base(), e->trace.entered, e->trace.form);
    }
    if (0 != run->trace) {
        coll_gpusym_events_begin(run->trace);
    }
}

/* Not behind others; nor if there may be an event, which is raised without the lock that is held where calls are. */
void coll_gpusym_traced_take_later(coll_gpusym_run_t *run)
{
    coll_gpusym_engine_t *e = run->engine;
    if (GPUSYM_FLAG(coll_gpusym_trace_wanted) || NULL != __atomic_load_n(&e->first, __ATOMIC_ACQUIRE)) {
        coll_gpusym_traced_take(run);
    } else if (has_entered(e) && !is_off()) {
        e->trace.later.entered = e->trace.entered;
        e->trace.later.form = e->trace.form;
        e->trace.later.posted = e->trace.later.there = 0;
        run->trace = LATER;
    }
}

static __attribute__((noinline)) void take_kept(coll_gpusym_run_t *run)
{
    const coll_gpusym_engine_t *e = run->engine;
    const uint64_t base = coll_gpusym_ticks_base();
    coll_gpusym_record_t *r = take_record(run, base, e->trace.later.entered, e->trace.later.form);
    if (NULL != r && 0 != e->trace.later.posted) {
        r->posted = coll_gpusym_ticks_ns(base, e->trace.later.posted);
        r->there = 0 != e->trace.later.there ? coll_gpusym_ticks_ns(base, e->trace.later.there) : 0;
        r->last = (int) coll_gpusym_team_member(e->team, e->trace.later.last);
    }
}

/* The record of a call, which takes it now, if it was to. NULL: there is none. */
static coll_gpusym_record_t *record_of(coll_gpusym_run_t *run)
{
    if (LATER == run->trace) {
        take_kept(run);
    }
    return 0 != run->trace ? coll_gpusym_trace_record(run->trace & ~COMPLETE) : NULL;
}

static int own_rank(const coll_gpusym_run_t *run)
{
    const coll_gpusym_team_t *t = run->engine->team;
    return (int) coll_gpusym_team_member(t, t->host.rank);
}

static void set_posted(const coll_gpusym_run_t *run, coll_gpusym_record_t *r, uint64_t when)
{
    if (0 == r->posted) { /* else it is posted anew */
        r->posted = when;
        r->last = own_rank(run);
    }
}

/* One that has been posted and was to take its record has waited for nobody: a post takes less time than to ask for
 * it. */
static void set_not_waited(const coll_gpusym_run_t *run, coll_gpusym_record_t *r)
{
    if (0 == r->posted && 0 != run->task.read.seq) {
        set_posted(run, r, r->entered);
        r->there = r->posted;
    }
}

void coll_gpusym_traced_note_posted(coll_gpusym_run_t *run, bool posted)
{
    const bool has_kernel = NULL != run->launch.lane;
    if (LATER == run->trace && posted && !has_kernel) {
        return;
    }
    coll_gpusym_record_t *r = record_of(run);
    if (NULL == r || !posted) {
        return;
    }
    const uint64_t now = gpusym_now_ns();
    /* A command takes less time than to ask for it. A launch takes longer than all before. */
    set_posted(run, r, has_kernel && COLL_GPUSYM_COMMANDED != run->launch.resident.how ? r->entered : now);
    if (has_kernel) {
        r->launched = now;
    }
}

/* Notes in the engine that a call waits. False: it has no record yet, and has not waited for long. */
static bool has_waited(coll_gpusym_run_t *run)
{
    coll_gpusym_engine_t *e = run->engine;
    const uint64_t now = coll_gpusym_ticks_now();
    e->trace.later.last = run->task.read.next;
    e->trace.later.posted = 0 != e->trace.later.posted ? e->trace.later.posted : now;
    return (double) (now - e->trace.later.posted) * coll_gpusym_ticks.ns > SHORT_WAIT_NS;
}

void coll_gpusym_traced_note_awaits(coll_gpusym_run_t *run)
{
    if (LATER == run->trace && NULL == run->launch.lane && !has_waited(run)) {
        return;
    }
    coll_gpusym_record_t *r = record_of(run);
    if (NULL != r) {
        if (0 == r->posted) {
            set_posted(run, r, gpusym_now_ns());
        }
        r->last = (int) coll_gpusym_team_member(run->engine->team, run->task.read.next);
    }
}

void coll_gpusym_traced_note_there(coll_gpusym_run_t *run, bool late)
{
    if (LATER == run->trace && !late) {
        coll_gpusym_engine_t *e = run->engine;
        e->trace.later.there = 0 != e->trace.later.posted ? coll_gpusym_ticks_now() : 0;
        return;
    }
    coll_gpusym_record_t *r = record_of(run);
    if (NULL != r) {
        set_not_waited(run, r);
        /* Where it has waited for none, nobody has come since it posted. */
        r->there = late || r->last != own_rank(run) ? gpusym_now_ns() : r->posted;
        r->last = late ? -1 : r->last;
    }
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

/* What is known of a call once it runs, or has ended without. */
static void describe(const coll_gpusym_run_t *run, coll_gpusym_record_t *r)
{
    coll_gpusym_engine_t *e = run->engine;
    const coll_gpusym_team_t *t = e->team;
    set_not_waited(run, r);
    r->bytes = coll_gpusym_args_bytes(e->fallback->comm, run->args);
    r->seq = 0 != run->task.read.seq ? run->task.read.seq : ++e->trace.calls;
    r->algorithm = (int16_t) run->launch.algorithm;
    r->zero_copy = run->task.zero_copy.used;
    r->comm = UINT32_MAX;
    if (!GPUSYM_FLAG(coll_gpusym_trace_written)) {
        return;
    }
    r->comm = find_comm(e) ? e->trace.comm - 1 : UINT32_MAX;
    r->nth = e->trace.nth;
    if (NULL != t && '\0' != t->host.gpu_text[0] && __atomic_load_n(&coll_gpusym_trace_wants_gpu, __ATOMIC_RELAXED)) {
        coll_gpusym_trace_gpu(t->host.gpu_text);
    }
}

static void set_launched(const coll_gpusym_run_t *run, coll_gpusym_record_t *r, uint32_t blocks)
{
    r->blocks = (uint16_t) blocks;
    r->launched = 0 != r->launched ? r->launched : gpusym_now_ns();
    describe(run, r);
}

void coll_gpusym_traced_note_launched(coll_gpusym_run_t *run, uint32_t blocks)
{
    coll_gpusym_record_t *r = record_of(run);
    if (NULL != r) {
        set_launched(run, r, blocks);
    }
}

static void set_way(const coll_gpusym_run_t *run, coll_gpusym_record_t *r, const coll_gpusym_way_t *way)
{
    r->way = NULL != way ? way->name : NULL;
    r->by = run->launch.algorithm >= 0 ? (int8_t) run->launch.resident.how : -1;
    r->reason = (int8_t) run->reason;
}

void coll_gpusym_traced_note_runs(coll_gpusym_run_t *run, const coll_gpusym_way_t *way, uint32_t blocks)
{
    coll_gpusym_record_t *r = record_of(run);
    if (NULL == r) {
        return;
    }
    set_launched(run, r, blocks);
    set_way(run, r, way);
    if (GPUSYM_FLAG(coll_gpusym_trace_written) && !GPUSYM_FLAG(coll_gpusym_trace_wanted) && UINT32_MAX != r->comm) {
        r->base = coll_gpusym_ticks_base();
        run->trace |= COMPLETE;
    }
}

void coll_gpusym_traced_note_ran(const coll_gpusym_run_t *run)
{
    gpusym_lane_words(run->launch.lane, coll_gpusym_trace_record(run->trace & ~COMPLETE)->gpu);
}

/* The record is complete but for these. */
static void end_record(coll_gpusym_record_t *r, uint32_t number, int error)
{
    r->error = error;
    r->base = 0;
    r->returned = gpusym_now_ns();
    if (GPUSYM_FLAG(coll_gpusym_trace_wanted)) {
        coll_gpusym_sums_add(r);
        coll_gpusym_events_end(number);
    }
    if (!GPUSYM_FLAG(coll_gpusym_trace_written)) {
        coll_gpusym_trace_drop(number);
    } else if (UINT32_MAX == r->comm) {
        coll_gpusym_trace_lose(number);
    } else {
        coll_gpusym_trace_put(r, r->returned);
        if (MPI_SUCCESS != error) { /* the program may end by it */
            coll_gpusym_trace_flush();
        }
    }
}

static __attribute__((noinline)) void end_incomplete(coll_gpusym_run_t *run, const coll_gpusym_way_t *way)
{
    coll_gpusym_record_t *r = record_of(run);
    const uint32_t number = run->trace & ~COMPLETE;
    run->trace = 0;
    if (NULL == r) {
        return;
    }
    if (&coll_gpusym_way_whole == way && run->reason < 0) { /* forwarded, with host buffers */
        coll_gpusym_trace_drop(number);
        return;
    }
    set_way(run, r, way);
    if (0 == r->seq) {
        describe(run, r);
    }
    end_record(r, number, run->error);
}

void coll_gpusym_traced_note_end(coll_gpusym_run_t *run, const coll_gpusym_way_t *way)
{
    if (0 != (run->trace & COMPLETE) && MPI_SUCCESS == run->error) {
        coll_gpusym_trace_put(coll_gpusym_trace_record(run->trace & ~COMPLETE), coll_gpusym_ticks_now());
        run->trace = 0;
    } else {
        end_incomplete(run, way);
    }
}

void coll_gpusym_traced_alone(coll_gpusym_engine_t *e, coll_gpusym_buffers_t *b, int error)
{
    coll_gpusym_run_t run = {.engine = e, .args = b->args, .buffers = b, .launch = {.algorithm = -1}};
    coll_gpusym_traced_begin(&run);
    if (COLL_GPUSYM_TRACED(&run)) {
        coll_gpusym_record_t *r = coll_gpusym_trace_record(run.trace);
        r->way = "copy";
        describe(&run, r);
        end_record(r, run.trace, error);
    }
}
