/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call in flight: it is posted, the ranks agree, a way carries it out (exec/way.h), it ends.
 */
#include "mca/coll/gpusym/call/call.h"

#include <string.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/call/decide.h"
#include "mca/coll/gpusym/call/fail.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/exec/traced.h"
#include "mca/coll/gpusym/exec/ways.h"
#include "mca/coll/gpusym/exec/whole.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/coll/gpusym/team/settings.h"
#include "mca/coll/gpusym/team/tuner.h"
#include "mca/coll/gpusym/team/team.h"
#include "mca/common/gpusym/gpusym.h"

/* How long what is to end may take, before it is given up. */
#define GRACE_NS 5000000000ull

uint32_t coll_gpusym_in_flight;

/* The number of the call, the first of its communicator that is not over; also before it is posted. */
static uint64_t number_of(const coll_gpusym_call_t *call)
{
    return coll_gpusym_run_agreement(&call->run)->seq + (COLL_GPUSYM_CALL_NEW == call->state);
}

/* ---- what it is ---- */

void coll_gpusym_call_init_apart(coll_gpusym_call_t *call, coll_gpusym_engine_t *e, const coll_gpusym_buffers_t *b,
                                 int reason)
{
    *call = (coll_gpusym_call_t){.args = *b->args, .buffers = *b, .settled = COLL_GPUSYM_UNSETTLED};
    call->buffers.args = &call->args;
    coll_gpusym_whole_init(&call->run, e, &call->buffers, reason);
}

void coll_gpusym_call_init(coll_gpusym_call_t *call, coll_gpusym_engine_t *e, const coll_gpusym_buffers_t *b,
                           coll_gpusym_mode_t mode)
{
    *call = (coll_gpusym_call_t){
        .args = *b->args,
        .buffers = *b,
        .segments = {.args = &call->args, .team = e->team, .where = *coll_gpusym_buffers_where(b)},
        .settled = COLL_GPUSYM_UNSETTLED,
        .run = {.engine = e,
                .args = &call->args,
                .buffers = &call->buffers,
                .mode = mode,
                .device = !coll_gpusym_buffers_on_host(b),
                .reason = -1,
                .task = {.segments = &call->segments, .cache = e->cache, .blocking = COLL_GPUSYM_NONBLOCKING != mode},
                .launch = {.algorithm = -1}}};
    call->run.ours = call->run.device && coll_gpusym_on_gpu(&call->segments.where);
    call->buffers.args = &call->args;
    if (call->run.device && coll_gpusym_has_kernels(call->args.coll)) {
        coll_gpusym_segments_init(&call->segments, b);
    }
}

/* The arguments and what belongs to all starts are kept by name; all else is reset. */
void coll_gpusym_call_reset(coll_gpusym_call_t *call)
{
    const coll_gpusym_run_t *run = &call->run;
    *call = (coll_gpusym_call_t){.args = call->args,
                                 .buffers = call->buffers,
                                 .segments = call->segments,
                                 .settled = call->settled,
                                 .run = {.engine = run->engine,
                                         .args = run->args,
                                         .buffers = run->buffers,
                                         .mode = run->mode,
                                         .device = run->device,
                                         .on_host = run->on_host,
                                         .ours = run->ours,
                                         .reason = -1,
                                         .task = {.segments = &call->segments,
                                                  .cache = run->engine->cache,
                                                  .plan = run->task.plan,
                                                  .blocking = COLL_GPUSYM_NONBLOCKING != run->mode},
                                         .launch = {.algorithm = -1}}};
}

/* ---- its end ---- */

static void drop_sizes(coll_gpusym_run_t *run)
{
    coll_gpusym_sizes_free(run->sizes);
    run->sizes = NULL;
    run->task.sizes = NULL;
}

static void end_way(coll_gpusym_call_t *call)
{
    if (NULL != call->way && NULL != call->way->end) {
        call->way->end(&call->run);
    }
}

/* The way that a call goes from now on. */
static void choose(coll_gpusym_call_t *call, const coll_gpusym_way_t *way)
{
    coll_gpusym_run_t *run = &call->run;
    end_way(call);
    memset(&run->is, 0, sizeof run->is);
    run->stopping = false;
    run->waits_for = COLL_GPUSYM_WAIT_NONE;
    call->way = way;
}

/* Gives back all that the call holds, but what its way does. */
static void leave(coll_gpusym_call_t *call, coll_gpusym_call_state_t state)
{
    coll_gpusym_run_withdraw(&call->run);
    drop_sizes(&call->run);
    call->state = state;
}

static void end_call(coll_gpusym_call_t *call)
{
    coll_gpusym_run_t *run = &call->run;
    end_way(call);
    if (MPI_SUCCESS == run->error && coll_gpusym_sizes_truncated(run->sizes)) {
        run->error = MPI_ERR_TRUNCATE; /* of this rank alone: the call has ended well */
    }
    leave(call, COLL_GPUSYM_CALL_ENDED);
}

/* The first of the ways instead of this one that is possible. */
static void go_instead(coll_gpusym_call_t *call)
{
    const coll_gpusym_way_t *const *way = call->way->instead;
    drop_sizes(&call->run); /* it finds out by itself */
    while (NULL != (*way)->possible && !(*way)->possible(&call->run)) {
        way++;
    }
    choose(call, *way);
    call->state = COLL_GPUSYM_CALL_AGREE;
}

/* The last of them, without agreement: all ranks know. */
static void leave_to_fallback(coll_gpusym_call_t *call, int reason)
{
    const coll_gpusym_way_t *const *way = call->way->instead;
    while (NULL != way[1]) {
        way++;
    }
    call->run.reason = reason;
    choose(call, *way);
    call->state = COLL_GPUSYM_CALL_RUN;
}

static void poll_stop(coll_gpusym_call_t *call)
{
    coll_gpusym_run_t *run = &call->run;
    const coll_gpusym_way_t *way = call->way;
    const bool due = coll_gpusym_health_due(&call->health);
    bool stopped = NULL == way || NULL == way->stop || way->stop(run, call->recalled, due);
    if (!stopped && due) {
        run->since_ns = 0 == run->since_ns ? call->health.checked_ns : run->since_ns;
        if (NULL != way->abandon && call->health.checked_ns - run->since_ns > GRACE_NS) {
            way->abandon(run);
            stopped = true;
        }
    }
    if (stopped && call->recalled) {
        go_instead(call);
    } else if (stopped) {
        end_call(call);
    }
}

/* Makes what runs end: it may be using the user's buffers. Then the call ends, or, recalled, goes another way. */
static void stop_call(coll_gpusym_call_t *call, bool recalled)
{
    call->state = COLL_GPUSYM_CALL_STOP;
    call->recalled = recalled;
    call->run.since_ns = 0;
    poll_stop(call);
}

static void fail(coll_gpusym_call_t *call)
{
    coll_gpusym_fail(&call->run, number_of(call));
    stop_call(call, false);
}

static void fail_for(coll_gpusym_call_t *call, coll_gpusym_failed_t kind, int rank)
{
    (void) coll_gpusym_run_failed(&call->run, kind, rank, NULL);
    fail(call);
}

/* For gpusym_info --job. */
static void publish(const coll_gpusym_call_t *call, coll_gpusym_wait_for_t what)
{
    static const gpusym_status_state_t states[] = {
        [COLL_GPUSYM_CALL_NEW] = GPUSYM_STATUS_NEW,       [COLL_GPUSYM_CALL_POSTED] = GPUSYM_STATUS_POSTED,
        [COLL_GPUSYM_CALL_SIZES] = GPUSYM_STATUS_AGREES,  [COLL_GPUSYM_CALL_SETUP] = GPUSYM_STATUS_AGREES,
        [COLL_GPUSYM_CALL_AGREE] = GPUSYM_STATUS_AGREES,  [COLL_GPUSYM_CALL_RUN] = GPUSYM_STATUS_RUNS,
        [COLL_GPUSYM_CALL_STOP] = GPUSYM_STATUS_STOPS,    [COLL_GPUSYM_CALL_FALLBACK] = GPUSYM_STATUS_FALLBACK,
        [COLL_GPUSYM_CALL_ENDED] = GPUSYM_STATUS_FALLBACK};
    coll_gpusym_wait_publish(&call->health, &call->run, NULL == call->way ? NULL : call->way->name, states[call->state],
                             number_of(call), what);
}

/* Whether the way checks what it waits for. */
static bool has_limit(const coll_gpusym_call_t *call, coll_gpusym_wait_for_t what)
{
    return COLL_GPUSYM_CALL_RUN == call->state ||
           (COLL_GPUSYM_CALL_AGREE == call->state && COLL_GPUSYM_WAIT_NONE == what);
}

/* Whether this rank may give up: not once the ranks go on into the fallback, where they count on it. It goes on with
 * them at the next poll, if the memory that tells so can be relied upon. */
static bool may_give_up(const coll_gpusym_call_t *call, coll_gpusym_wait_for_t what)
{
    const coll_gpusym_run_t *run = &call->run;
    return COLL_GPUSYM_WAIT_STAGED != what || COLL_GPUSYM_FAILED_CORRUPT == run->failure.kind ||
           !gpusym_agreement_decide(coll_gpusym_run_agreement(run), run->task.read.seq, false);
}

/* A poll of a call that waits for ranks: are they well, and is its way? what: for which it has waited so long. */
static void check(coll_gpusym_call_t *call, coll_gpusym_wait_for_t what)
{
    coll_gpusym_run_t *run = &call->run;
    const coll_gpusym_team_t *t = run->engine->team;
    if (!coll_gpusym_health_due(&call->health)) {
        return;
    }
    publish(call, what);
    if (coll_gpusym_find_lost(run, number_of(call)) ||
        (has_limit(call, what) && NULL != call->way->check &&
         COLL_GPUSYM_TURN_FAILED == call->way->check(run, call->health.checked_ns))) {
        if (may_give_up(call, what)) {
            fail(call);
        }
    } else if (COLL_GPUSYM_WAIT_NONE != what &&
               coll_gpusym_wait_note(&call->wait, t, run->args->coll, run->task.read.seq, what, call->health.gap_ns) &&
               may_give_up(call, what)) {
        coll_gpusym_wait_report(t, run->args->coll, run->task.read.seq, what);
        fail_for(call, COLL_GPUSYM_FAILED_REPORTED, -1);
    }
}

/* ---- call agreement ---- */

/* This rank's buffers are host memory, and other ranks' lately were not: it takes part, if it can. */
static void take_part(coll_gpusym_call_t *call)
{
    coll_gpusym_run_t *run = &call->run;
    const coll_gpusym_team_t *t = run->engine->team;
    if (run->device || COLL_GPUSYM_AGREES == run->mode || !t->host.rc.looks || t->reason >= 0 ||
        !coll_gpusym_team_find_gpu(t, &call->segments.where)) {
        return;
    }
    coll_gpusym_segments_init(&call->segments, run->buffers);
    run->device = run->on_host = call->segments.reason < 0;
}

/* What this rank with device buffers, or none, has to post. */
static void describe(coll_gpusym_call_t *call, gpusym_post_t *post)
{
    coll_gpusym_run_t *run = &call->run;
    const coll_gpusym_way_t *const *way = call->way->instead;
    run->task.alone = (run->task.blocking ? 0 : 1) == __atomic_load_n(&coll_gpusym_in_flight, __ATOMIC_RELAXED);
    call->way->offer(run, post);
    /* While a nonblocking call is in flight more may be started. */
    post->flags |= run->task.blocking && run->task.alone ? GPUSYM_POST_QUIET : 0;
    post->flags |= run->on_host ? GPUSYM_POST_HOST : run->ours ? GPUSYM_POST_GPU : 0;
    if (NULL != run->engine->wish && coll_gpusym_settings_wanted(run->engine->team, run->engine->wish, &run->wish)) {
        post->flags |= GPUSYM_POST_SETTINGS;
    }
    for (; NULL != *way; way++) {
        if (NULL != (*way)->offer) {
            (*way)->offer(run, post);
        }
    }
}

/* Posts, if the peers are near enough. */
static void post_call(coll_gpusym_call_t *call)
{
    coll_gpusym_run_t *run = &call->run;
    const bool agrees = COLL_GPUSYM_AGREES == run->mode;
    gpusym_post_t post = {.kind = GPUSYM_KIND_HOST, .what = coll_gpusym_run_what(run)};

    run->joins = COLL_GPUSYM_STEP_DONE != run->engine->team->boot.step;
    take_part(call);
    if (run->device) {
        describe(call, &post);
    }
    const bool reads = GPUSYM_KIND_HOST != post.kind || agrees;
    if (reads && NULL != call->way->enter) {
        call->way->enter(run, coll_gpusym_run_agreement(run)->seq + 1);
    }
    if (!coll_gpusym_run_post(run, &post)) {
        check(call, COLL_GPUSYM_WAIT_POST);
        return;
    }
    if (!reads) {
        leave_to_fallback(call, -1);
    } else {
        call->state = COLL_GPUSYM_CALL_POSTED;
        if (NULL != call->way->early && GPUSYM_KIND_NATIVE == post.kind && !agrees && run->ours &&
            0 == (post.flags & GPUSYM_POST_SETTINGS)) {
            call->way->early(run);
        }
    }
}

static void begin_call(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->run.engine->team;
    if (t->broken) { /* the failure has been reported */
        call->run.error = t->error;
        end_call(call);
        return;
    }
    const int bootstrapped = coll_gpusym_team_bootstrap(t);
    if (bootstrapped < 0) {
        if (!coll_gpusym_find_lost(&call->run, number_of(call))) {
            (void) coll_gpusym_run_failed(&call->run, COLL_GPUSYM_FAILED_REPORTED, -1, NULL);
        }
        fail(call);
        return;
    }
    if (0 == bootstrapped) {
        check(call, COLL_GPUSYM_WAIT_POST);
        return;
    }
    if (!coll_gpusym_engine_streams_ended(call->run.engine)) {
        check(call, COLL_GPUSYM_WAIT_NONE);
        return;
    }
    call->way = coll_gpusym_native_way(call->run.engine, NULL);
    if (t->none) {
        leave_to_fallback(call, -1);
    } else if (COLL_GPUSYM_UNSETTLED != call->settled && !t->host.joined) {
        leave_to_fallback(call, call->settled);
    } else if (!coll_gpusym_has_kernels(call->args.coll)) {
        leave_to_fallback(call, COLL_GPUSYM_R_NO_NATIVE);
    } else if (t->reason >= 0 && !t->host.joined) { /* agreed for good, and no lines to agree on more by */
        leave_to_fallback(call, t->reason);
    } else {
        post_call(call);
    }
}

/* The ranks' sizes are there? */
static void await_sizes(coll_gpusym_call_t *call)
{
    coll_gpusym_run_t *run = &call->run;
    char label[GPUSYM_COMM_LABEL_MAX];
    int rank;
    switch (coll_gpusym_sizes_poll(run->sizes, &run->task.read.max_bytes, &rank)) {
    case COLL_GPUSYM_SIZES_AGREED:
        if (0 == run->task.read.max_bytes) {
            end_call(call);
        } else {
            call->state = COLL_GPUSYM_CALL_SETUP;
        }
        break;
    case COLL_GPUSYM_SIZES_LACKING: /* all ranks find that */
        GPUSYM_LOG(2, "%s: %s goes through the host: rank %d has no memory for a table of sizes",
                   gpusym_comm_label(run->engine->fallback->comm, label, sizeof label),
                   coll_gpusym_mpi_name(run->args->coll),
                   (int) coll_gpusym_team_member(run->engine->team, (uint32_t) rank));
        run->reason = COLL_GPUSYM_R_NO_MEMORY;
        call->state = COLL_GPUSYM_CALL_AGREE;
        break;
    case COLL_GPUSYM_SIZES_CORRUPT:
        fail_for(call, COLL_GPUSYM_FAILED_CORRUPT, rank);
        break;
    default:
        check(call, COLL_GPUSYM_WAIT_SIZES);
        break;
    }
}

/* Not all that is sent is taken; agreed. */
static void compare_sizes(coll_gpusym_call_t *call)
{
    coll_gpusym_run_t *run = &call->run;
    run->sizes = coll_gpusym_sizes_create(&call->segments, run->task.read.seq);
    if (NULL == run->sizes) {
        run->failure = (coll_gpusym_failure_t){
            .kind = COLL_GPUSYM_FAILED_MEMORY, .bytes = sizeof(uint64_t), .text = "host memory for the ranks' sizes"};
        fail(call);
        return;
    }
    run->task.sizes = coll_gpusym_sizes_agreed(run->sizes);
    call->state = COLL_GPUSYM_CALL_SIZES;
}

/* All have answered: what to do. */
static void judge_answers(coll_gpusym_call_t *call)
{
    coll_gpusym_run_t *run = &call->run;
    const gpusym_agreement_read_t *read = &run->task.read;
    const coll_gpusym_way_t *way = call->way;
    const coll_gpusym_decision_t d =
        coll_gpusym_decide(&(coll_gpusym_question_t){.read = read,
                                                     .agree_only = COLL_GPUSYM_AGREES == run->mode,
                                                     .moves = coll_gpusym_segments_moves(run->args->coll),
                                                     .takes_host = way->takes_host,
                                                     .unset = NULL != way->unset && way->unset(run)});
    if (way->takes_host && run->ours && (read->host || 0 != (read->any & GPUSYM_POST_HOST))) {
        gpusym_agreement_mixed(coll_gpusym_run_agreement(run), read->seq);
    }
    run->reason = d.reason;
    switch (d.kind) {
    case COLL_GPUSYM_DECIDED_CORRUPT:
        fail_for(call, COLL_GPUSYM_FAILED_CORRUPT, d.rank);
        break;
    case COLL_GPUSYM_DECIDED_MISMATCH:
        fail_for(call, COLL_GPUSYM_FAILED_MISMATCH, -1);
        break;
    case COLL_GPUSYM_DECIDED_FORWARD:
        leave_to_fallback(call, -1);
        break;
    case COLL_GPUSYM_DECIDED_EMPTY:
        end_call(call);
        break;
    case COLL_GPUSYM_DECIDED_SIZES:
        compare_sizes(call);
        break;
    case COLL_GPUSYM_DECIDED_GO:
        call->state = COLL_GPUSYM_CALL_SETUP;
        break;
    case COLL_GPUSYM_DECIDED_STAGE:
    case COLL_GPUSYM_DECIDED_AGREED:
        call->state = COLL_GPUSYM_CALL_AGREE;
        break;
    }
}

/* ---- agreed: native ---- */

/* All ranks post it again: the set-up has changed what they have to tell. */
static void post_again(coll_gpusym_call_t *call)
{
    choose(call, call->way);
    coll_gpusym_run_repost(&call->run);
    drop_sizes(&call->run);
    call->state = COLL_GPUSYM_CALL_NEW;
}

/* The team is set up. Why all of its ranks want the call staged; -1: they do not. */
static int find_reason(const coll_gpusym_call_t *call)
{
    const coll_gpusym_team_t *t = call->run.engine->team;
    if (t->reason < 0 && COLL_GPUSYM_ALG_STAGED == coll_gpusym_setting(t, call->args.coll, COLL_GPUSYM_ALG_AUTO)) {
        return COLL_GPUSYM_R_FORCED;
    }
    return t->reason;
}

/* Some rank wants other settings. True: all ranks want those that hold, or keep them. */
static bool compare_settings(coll_gpusym_call_t *call)
{
    coll_gpusym_engine_t *e = call->run.engine;
    switch (coll_gpusym_settings_compare(e->team, e->wish, call->run.wish)) {
    case COLL_GPUSYM_SETTINGS_SAME:
        call->run.task.read.any &= ~(uint32_t) GPUSYM_POST_SETTINGS; /* they are compared */
        return true;
    case COLL_GPUSYM_SETTINGS_CHANGED:
        coll_gpusym_residents_forget(e->residents);
        e->cache->changes++;
        e->cache->told_unavailable = false;
        post_again(call);
        break;
    case COLL_GPUSYM_SETTINGS_FAILED:
        fail_for(call, COLL_GPUSYM_FAILED_REPORTED, -1);
        break;
    default:
        check(call, COLL_GPUSYM_WAIT_SETUP);
        break;
    }
    return false;
}

/* The tuner's answer for such calls. True: it is there, or none is wanted. */
static bool need_answer(coll_gpusym_call_t *call)
{
    const coll_gpusym_run_t *run = &call->run;
    coll_gpusym_team_t *t = run->engine->team;
    if (t->reason >= 0 || t->host.led || NULL != run->task.sizes) {
        return true;
    }
    const int known =
        coll_gpusym_tuner_need(t, run->args->coll, call->segments.op, call->segments.type, run->task.read.max_bytes);
    if (known < 0) {
        fail_for(call, COLL_GPUSYM_FAILED_REPORTED, -1);
    } else if (0 == known) {
        check(call, COLL_GPUSYM_WAIT_SETUP);
    }
    return known > 0;
}

static void set_up(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->run.engine->team;
    const int rv = coll_gpusym_team_join(t, &call->segments.where);
    if (rv < 0) {
        fail_for(call, COLL_GPUSYM_FAILED_REPORTED, -1);
    } else if (0 == rv) {
        check(call, COLL_GPUSYM_WAIT_SETUP);
    } else if ((0 == (call->run.task.read.any & GPUSYM_POST_SETTINGS) || compare_settings(call)) &&
               (NULL == t->host.tuner || need_answer(call))) {
        const coll_gpusym_way_t *way = coll_gpusym_native_way(call->run.engine, &call->run.task);
        if (way != call->way) {
            choose(call, way);
        }
        call->run.reason = find_reason(call);
        call->state = COLL_GPUSYM_CALL_AGREE;
    }
}

/* What a function of the way has said, in AGREE or RUN. */
static void take_turn(coll_gpusym_call_t *call, coll_gpusym_turn_t turn)
{
    switch (turn) {
    case COLL_GPUSYM_TURN_WAITS:
        check(call, call->run.waits_for);
        break;
    case COLL_GPUSYM_TURN_DONE:
        if (COLL_GPUSYM_CALL_AGREE == call->state) {
            coll_gpusym_traced_agreed(&call->run);
            call->state = COLL_GPUSYM_CALL_RUN;
        } else {
            end_call(call);
        }
        break;
    case COLL_GPUSYM_TURN_EMPTY:
        end_call(call);
        break;
    case COLL_GPUSYM_TURN_REFUSED: /* what has begun early is recalled */
        stop_call(call, true);
        break;
    case COLL_GPUSYM_TURN_AGAIN:
        post_again(call);
        break;
    case COLL_GPUSYM_TURN_HANDED:
        coll_gpusym_traced_launched(&call->run, 0);
        leave(call, COLL_GPUSYM_CALL_FALLBACK);
        break;
    case COLL_GPUSYM_TURN_FAILED:
        fail(call);
        break;
    }
}

static void step(coll_gpusym_call_t *call)
{
    switch (call->state) {
    case COLL_GPUSYM_CALL_NEW:
        begin_call(call);
        coll_gpusym_traced_posted(&call->run, COLL_GPUSYM_CALL_POSTED == call->state);
        break;
    case COLL_GPUSYM_CALL_POSTED:
        if (gpusym_agreement_read(coll_gpusym_run_agreement(&call->run), &call->run.task.read)) {
            coll_gpusym_traced_there(&call->run);
            judge_answers(call);
        } else {
            coll_gpusym_traced_awaits(&call->run);
            check(call, COLL_GPUSYM_WAIT_ENTRIES);
        }
        break;
    case COLL_GPUSYM_CALL_SIZES:
        await_sizes(call);
        break;
    case COLL_GPUSYM_CALL_SETUP:
        set_up(call);
        break;
    case COLL_GPUSYM_CALL_AGREE:
        take_turn(call, NULL != call->way->agree ? call->way->agree(&call->run) : COLL_GPUSYM_TURN_DONE);
        break;
    case COLL_GPUSYM_CALL_RUN:
        take_turn(call, call->way->poll(&call->run));
        break;
    case COLL_GPUSYM_CALL_STOP:
        poll_stop(call);
        break;
    case COLL_GPUSYM_CALL_FALLBACK:
    case COLL_GPUSYM_CALL_ENDED:
        break;
    }
}

bool coll_gpusym_call_poll(coll_gpusym_call_t *call)
{
    coll_gpusym_call_state_t before;
    do {
        before = call->state;
        step(call);
    } while (before != call->state);
    return call->state >= COLL_GPUSYM_CALL_FALLBACK;
}

void coll_gpusym_call_count(const coll_gpusym_call_t *call)
{
    if (NULL != call->way) {
        call->way->count(&call->run, &coll_gpusym_counters[call->args.coll]);
    }
}
