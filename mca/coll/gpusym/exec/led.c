/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What leaders and rails do alike: see led.h.
 */
#include "mca/coll/gpusym/exec/led.h"

#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/exec/kernel.h"
#include "mca/coll/gpusym/exec/traced.h"
#include "mca/common/gpusym/gpusym.h"

/* Beyond coll_gpusym_timeout: the leader's kernel has that limit, and some time to retire. */
#define GRACE_NS 10000000000ull

coll_gpusym_turn_t coll_gpusym_led_map(coll_gpusym_run_t *run, int otherwise)
{
    coll_gpusym_led_buffers_t all;
    int corrupt = -1;
    if (COLL_GPUSYM_LED_VOTE == run->is.led.step) {
        const coll_gpusym_turn_t turn = coll_gpusym_run_votes(run);
        return COLL_GPUSYM_TURN_REFUSED == turn ? coll_gpusym_run_refused(run, otherwise) : turn;
    }
    if (0 == (run->task.read.any & GPUSYM_POST_NEW_KEY)) {
        return COLL_GPUSYM_TURN_DONE;
    }
    const bool mapped = !coll_gpusym_led_leads(run) || coll_gpusym_zero_copy_map_led(&run->task, &all, false, &corrupt);
    run->is.led.step = COLL_GPUSYM_LED_VOTE;
    return coll_gpusym_run_vote(run, mapped, corrupt);
}

/* Once all inputs are where they are loaded. */
static coll_gpusym_turn_t await_ready(coll_gpusym_run_t *run, coll_gpusym_led_buffers_t *all)
{
    const gpusym_agreement_t *rc = coll_gpusym_run_agreement(run);
    const gpusym_agreement_read_t *read = &run->task.read;
    uint32_t r = 0;
    int corrupt;
    while (r < rc->nranks && (0 == (read->any & GPUSYM_POST_FILLS) || gpusym_agreement_is_ready(rc, r, read->seq))) {
        r++;
    }
    if (r < rc->nranks) {
        return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_READY);
    }
    if (!coll_gpusym_zero_copy_map_led(&run->task, all, true, &corrupt)) {
        return corrupt >= 0 ? coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_CORRUPT, corrupt, NULL)
                            : coll_gpusym_run_gpu_failed(run);
    }
    run->is.led.step = COLL_GPUSYM_LED_LEAD;
    return COLL_GPUSYM_TURN_DONE;
}

/* This rank's input is where it is loaded. */
static coll_gpusym_turn_t go_on(coll_gpusym_run_t *run, coll_gpusym_led_buffers_t *all)
{
    if (!coll_gpusym_led_leads(run)) {
        run->is.led.step = COLL_GPUSYM_LED_OTHERS;
        return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
    }
    run->is.led.step = COLL_GPUSYM_LED_READY;
    return await_ready(run, all);
}

coll_gpusym_turn_t coll_gpusym_led_begin(coll_gpusym_run_t *run, coll_gpusym_led_buffers_t *all)
{
    coll_gpusym_zero_copy_t *zero_copy = &run->task.zero_copy;
    coll_gpusym_turn_t turn;
    switch (run->is.led.step) {
    case COLL_GPUSYM_LED_READY:
        return await_ready(run, all);
    case COLL_GPUSYM_LED_FILL:
        turn = coll_gpusym_kernel_copies(run);
        if (COLL_GPUSYM_TURN_DONE != turn) {
            return turn;
        }
        run->since_ns = 0;
        gpusym_agreement_ready(coll_gpusym_run_agreement(run), run->task.read.seq);
        return go_on(run, all);
    default:
        run->is.led.begun = true;
        coll_gpusym_traced_launched(run, 0);
        zero_copy->used = !zero_copy->in_staging && !zero_copy->out_staging;
        if (!zero_copy->fills) {
            return go_on(run, all);
        }
        run->is.led.step = COLL_GPUSYM_LED_FILL;
        return coll_gpusym_launch_fill(&run->launch, &run->task) ? coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE)
                                                                 : coll_gpusym_run_gpu_failed(run);
    }
}

coll_gpusym_turn_t coll_gpusym_led_done(coll_gpusym_run_t *run)
{
    gpusym_agreement_done(coll_gpusym_run_agreement(run), run->task.read.seq);
    run->is.led.step = COLL_GPUSYM_LED_OTHERS;
    return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
}

/* The first rank that leads and has not done its part; as many as there are: none. */
static uint32_t find_missing(const coll_gpusym_run_t *run)
{
    const coll_gpusym_team_t *t = run->engine->team;
    uint32_t r = 0;
    while (r < t->host.nranks &&
           (t->host.leader[r] != r || gpusym_agreement_is_done(&t->host.rc, r, run->task.read.seq))) {
        r++;
    }
    return r;
}

coll_gpusym_turn_t coll_gpusym_led_end(coll_gpusym_run_t *run, bool limited)
{
    if (COLL_GPUSYM_LED_DRAIN == run->is.led.step) {
        return coll_gpusym_kernel_copies(run);
    }
    if (find_missing(run) < run->engine->team->host.nranks) {
        return coll_gpusym_run_waits(run, limited ? COLL_GPUSYM_WAIT_NONE : COLL_GPUSYM_WAIT_LED);
    }
    if (!coll_gpusym_launch_drains(&run->task)) {
        return COLL_GPUSYM_TURN_DONE;
    }
    run->is.led.step = COLL_GPUSYM_LED_DRAIN;
    run->since_ns = 0;
    return coll_gpusym_launch_drain(&run->launch, &run->task) ? coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE)
                                                              : coll_gpusym_run_gpu_failed(run);
}

bool coll_gpusym_led_copies(const coll_gpusym_run_t *run)
{
    return COLL_GPUSYM_LED_FILL == run->is.led.step || COLL_GPUSYM_LED_DRAIN == run->is.led.step;
}

coll_gpusym_turn_t coll_gpusym_led_check(coll_gpusym_run_t *run, uint64_t now_ns, bool limited)
{
    const double timeout = coll_gpusym_params.timeout;
    if (coll_gpusym_led_copies(run)) {
        return coll_gpusym_kernel_check_copies(run, now_ns);
    }
    if (COLL_GPUSYM_LED_OTHERS != run->is.led.step || !limited) {
        return COLL_GPUSYM_TURN_WAITS;
    }
    run->since_ns = 0 == run->since_ns ? now_ns : run->since_ns;
    if (timeout > 0 && (double) (now_ns - run->since_ns) > timeout * 1e9 + (double) GRACE_NS) {
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_TIMEOUT, (int) find_missing(run), NULL);
    }
    return COLL_GPUSYM_TURN_WAITS;
}

void coll_gpusym_led_lose(coll_gpusym_run_t *run)
{
    if (run->is.led.begun && MPI_SUCCESS != run->error) {
        coll_gpusym_zero_copy_lose(&run->task);
        coll_gpusym_scratch_lose(&run->launch);
    }
}
