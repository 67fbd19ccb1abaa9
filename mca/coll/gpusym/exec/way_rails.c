/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The way of a communicator of several islands. The ranks of each island agree by their call agreement, then the
 * islands; the owners of rails load the inputs of their island's members, and store to their outputs.
 */
#include "mca/coll/gpusym/exec/kernel.h"
#include "mca/coll/gpusym/exec/led.h"
#include "mca/coll/gpusym/exec/traced.h"

#include "mca/coll/gpusym/team/islands.h"
#include "mca/coll/gpusym/team/rails.h"

static void offer(coll_gpusym_run_t *run, gpusym_post_t *post)
{
    coll_gpusym_segments_t *k = run->task.segments;
    if (k->reason < 0 && run->engine->team->reason < 0 && !coll_gpusym_rails_may(run->args)) {
        k->reason = COLL_GPUSYM_R_BETWEEN;
    }
    coll_gpusym_run_offer(run, post);
}

static void enter(coll_gpusym_run_t *run, uint64_t seq)
{
    coll_gpusym_hosts_enter(run->engine->team, seq);
}

/* A GPU is opened for an island without data only once others have data on theirs. All members find the same. */
static bool is_unset(const coll_gpusym_run_t *run)
{
    return run->joins && COLL_GPUSYM_AGREES != run->mode && 0 == (run->task.read.any & GPUSYM_POST_GPU) &&
           !run->engine->team->wanted;
}

/* A rail has failed. */
static coll_gpusym_turn_t rail_failed(coll_gpusym_run_t *run, int rc)
{
    if (GPUSYM_ERR_CORRUPT == rc) {
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_NET, -1, NULL);
    }
    (void) coll_gpusym_run_gpu_failed(run);
    run->failure.text = GPUSYM_ERR_UNREACHABLE == rc ? "a rank of another island is lost"
                        : GPUSYM_ERR_BAD_PARAM == rc ? "the engine between hosts does not support this call"
                        : GPUSYM_ERR_NO_MEMORY == rc ? "there is no memory for messages between hosts"
                                                     : run->failure.text;
    run->failure.ask_peers = true;
    return COLL_GPUSYM_TURN_FAILED;
}

/* A short call begins on rails while the islands agree, where they have agreed on the last one: it takes one network
 * step then. It writes no output before they have. A long one is planned meanwhile. Where inputs are still to be
 * brought to where they are loaded, or there is no memory for the plan, nothing is done yet. */
static void begin_early(coll_gpusym_run_t *run)
{
    coll_gpusym_rails_t *rails = &run->is.led.rails;
    coll_gpusym_led_buffers_t all;
    int corrupt;
    if (!run->engine->team->last_native || 0 != (run->task.read.any & GPUSYM_POST_FILLS) ||
        0 == run->task.segments->bytes || !coll_gpusym_zero_copy_map_led(&run->task, &all, true, &corrupt)) {
        return;
    }
    rails->plan = coll_gpusym_rails_make(&run->task, &all);
    rails->held = NULL != rails->plan && rails->plan->direct;
}

/* Whether the kernels of what has begun early are over, in a call that is not native: REFUSED for run->reason; if that
 * is -1 EMPTY. */
static coll_gpusym_turn_t await_dropped(coll_gpusym_run_t *run)
{
    coll_gpusym_rails_t *rails = &run->is.led.rails;
    if (NULL != rails->plan && !coll_gpusym_rails_drop(rails)) {
        return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
    }
    coll_gpusym_rails_end(rails);
    return run->reason < 0 ? COLL_GPUSYM_TURN_EMPTY : COLL_GPUSYM_TURN_REFUSED;
}

static coll_gpusym_turn_t drop_early(coll_gpusym_run_t *run, int reason)
{
    run->reason = reason;
    run->is.led.step = COLL_GPUSYM_LED_DROP;
    run->since_ns = 0;
    return await_dropped(run);
}

/* All islands have told what they do. */
static coll_gpusym_turn_t take_verdict(coll_gpusym_run_t *run, const coll_gpusym_verdict_t *v)
{
    run->engine->team->last_native = COLL_GPUSYM_VERDICT_NATIVE == v->kind;
    switch (v->kind) {
    case COLL_GPUSYM_VERDICT_NATIVE:
        run->is.led.step = COLL_GPUSYM_LED_BEGIN;
        return COLL_GPUSYM_AGREES == run->mode ? COLL_GPUSYM_TURN_EMPTY : COLL_GPUSYM_TURN_DONE;
    case COLL_GPUSYM_VERDICT_EMPTY:
        return drop_early(run, -1);
    case COLL_GPUSYM_VERDICT_AGAIN: /* nothing has begun: no call has been native yet */
        run->engine->team->wanted = true;
        return COLL_GPUSYM_TURN_AGAIN;
    case COLL_GPUSYM_VERDICT_MISMATCH:
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_OTHER_CALL, (int) v->rank, NULL);
    default:
        return drop_early(run, (int) (v->kind - COLL_GPUSYM_VERDICT_STAGED));
    }
}

/* A leader tells what this island does. 1: it has; 0: not yet; negative: the agreement has failed. */
static int tell_islands(coll_gpusym_run_t *run)
{
    const gpusym_agreement_read_t *read = &run->task.read;
    const coll_gpusym_island_record_t record = {.reason = run->is.led.reason,
                                                .hash = run->task.hash,
                                                .what = coll_gpusym_run_what(run),
                                                .again = run->joins && COLL_GPUSYM_AGREES != run->mode,
                                                .bytes = read->max_bytes,
                                                .balance = read->balance};
    const int rc = coll_gpusym_hosts_post(run->engine->team, read->seq, &record);
    run->is.led.told = 1 == rc;
    return rc;
}

static coll_gpusym_turn_t await_islands(coll_gpusym_run_t *run)
{
    coll_gpusym_led_t *led = &run->is.led;
    coll_gpusym_verdict_t verdict;
    int rc = led->rails.held ? coll_gpusym_rails_poll(&led->rails) : 0;
    if (rc < 0) {
        return rail_failed(run, rc);
    }
    rc = led->told ? 1 : tell_islands(run);
    if (led->told && led->reason >= 0) {
        return coll_gpusym_run_refused(run, led->reason);
    }
    if (1 == rc) {
        rc = coll_gpusym_hosts_poll(run->engine->team, run->task.read.seq, run->task.segments->exact, &verdict);
    }
    if (rc < 0) {
        (void) coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_NET, -1, NULL);
        run->failure.ask_peers = true;
        return COLL_GPUSYM_TURN_FAILED;
    }
    return 1 == rc ? take_verdict(run, &verdict) : coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_ISLANDS);
}

/* All ranks of this island know what it does with the call: natively (-1), or staged for a reason. The others are to
 * know it, and it what they do. */
static coll_gpusym_turn_t ask_islands(coll_gpusym_run_t *run, int reason)
{
    const bool leader = 0 == run->engine->team->host.rank;
    if (reason >= 0 && !leader) {
        return coll_gpusym_run_refused(run, reason);
    }
    run->reason = -1;
    run->is.led.reason = reason;
    run->is.led.told = !leader;
    run->is.led.step = COLL_GPUSYM_LED_ASK;
    return await_islands(run);
}

/* All are on GPUs and have a team. What is posted again counts as another call: all islands do that then. */
static coll_gpusym_turn_t find_buffers(coll_gpusym_run_t *run)
{
    if (COLL_GPUSYM_LED_FIND == run->is.led.step && run->joins) {
        return ask_islands(run, -1);
    }
    if (COLL_GPUSYM_LED_FIND == run->is.led.step &&
        (!coll_gpusym_zero_copy_led(&run->task) || !coll_gpusym_rails_can(&run->task))) {
        return ask_islands(run, COLL_GPUSYM_R_BETWEEN);
    }
    const coll_gpusym_turn_t turn = coll_gpusym_led_map(run, COLL_GPUSYM_R_SHARED_GPU);
    if (COLL_GPUSYM_TURN_REFUSED == turn) {
        return ask_islands(run, run->reason);
    }
    if (COLL_GPUSYM_TURN_DONE == turn) {
        begin_early(run);
        return ask_islands(run, -1);
    }
    return turn;
}

static coll_gpusym_turn_t agree(coll_gpusym_run_t *run)
{
    switch (run->is.led.step) {
    case COLL_GPUSYM_LED_ASK:
        return await_islands(run);
    case COLL_GPUSYM_LED_DROP:
        return await_dropped(run);
    default:
        return run->reason >= 0 || COLL_GPUSYM_AGREES == run->mode || is_unset(run) ? ask_islands(run, run->reason)
                                                                                    : find_buffers(run);
    }
}

/* All islands are in the call: what this rank's rails have to do, if that has not been planned before. */
static coll_gpusym_turn_t begin(coll_gpusym_run_t *run)
{
    coll_gpusym_led_t *led = &run->is.led;
    coll_gpusym_led_buffers_t all;
    if (NULL != led->rails.plan) {
        led->begun = true;
        coll_gpusym_traced_launched(run, 0);
        run->task.zero_copy.used = true;
        coll_gpusym_rails_release(&led->rails);
        led->step = COLL_GPUSYM_LED_LEAD;
        return COLL_GPUSYM_TURN_DONE;
    }
    const coll_gpusym_turn_t turn = coll_gpusym_led_begin(run, &all);
    if (COLL_GPUSYM_TURN_DONE != turn) {
        return turn;
    }
    led->rails = (coll_gpusym_rails_t){.plan = coll_gpusym_rails_make(&run->task, &all)};
    if (NULL == led->rails.plan) {
        (void) coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_MEMORY, -1,
                                      "host memory for the plan of a call between hosts");
        run->failure.bytes = sizeof *led->rails.plan;
        return COLL_GPUSYM_TURN_FAILED;
    }
    return COLL_GPUSYM_TURN_DONE;
}

static coll_gpusym_turn_t poll(coll_gpusym_run_t *run)
{
    coll_gpusym_led_t *led = &run->is.led;
    if (led->step < COLL_GPUSYM_LED_LEAD) {
        const coll_gpusym_turn_t turn = begin(run);
        if (COLL_GPUSYM_TURN_DONE != turn) {
            return turn;
        }
    }
    if (COLL_GPUSYM_LED_LEAD == led->step) {
        const int rc = coll_gpusym_rails_poll(&led->rails);
        if (rc < 0) {
            return rail_failed(run, rc);
        }
        if (0 == rc) {
            return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
        }
        coll_gpusym_rails_end(&led->rails);
        return coll_gpusym_led_done(run);
    }
    return coll_gpusym_led_end(run, false); /* what goes between hosts may take long */
}

/* What goes between hosts may take long; what this rank's GPU does alone may not. */
static coll_gpusym_turn_t check(coll_gpusym_run_t *run, uint64_t now_ns)
{
    return COLL_GPUSYM_LED_DROP == run->is.led.step ? coll_gpusym_kernel_check_copies(run, now_ns)
                                                    : coll_gpusym_led_check(run, now_ns, false);
}

/* Its kernels wait for nobody, its messages are being sent from the rails' own memory. */
static bool stop(coll_gpusym_run_t *run, bool recalled, bool due)
{
    (void) recalled;
    (void) due;
    if (coll_gpusym_led_copies(run) && !coll_gpusym_kernel_stop_copies(run)) {
        return false;
    }
    return NULL == run->is.led.rails.plan || coll_gpusym_hosts_stop(run->engine->team);
}

/* Kernels that do not get to run: the program's own fill the GPU, and may wait for a rank that is lost. The rails keep
 * what these use until they have ended; copies of this rank keep their lane and scratch memory. */
static void abandon(coll_gpusym_run_t *run)
{
    coll_gpusym_kernel_abandon(run);
}

static void end(coll_gpusym_run_t *run)
{
    coll_gpusym_led_lose(run);
    coll_gpusym_rails_end(&run->is.led.rails);
}

static void count(const coll_gpusym_run_t *run, coll_gpusym_counters_t *counters)
{
    if (MPI_SUCCESS == run->error) {
        coll_gpusym_count(&counters->native);
        if (run->is.led.begun) {
            coll_gpusym_count(&counters->rails);
        }
        if (run->is.led.begun && run->task.zero_copy.used) {
            coll_gpusym_count(&counters->zero_copy);
        }
    }
}

static const coll_gpusym_way_t *const instead[] = {&coll_gpusym_way_whole, NULL};

const coll_gpusym_way_t coll_gpusym_way_rails = {
    .name = "rails",
    .instead = instead,
    .offer = offer,
    .enter = enter,
    .unset = is_unset,
    .agree = agree,
    .poll = poll,
    .check = check,
    .stop = stop,
    .abandon = abandon,
    .end = end,
    .count = count,
};
