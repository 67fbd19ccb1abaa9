/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The way of ranks that share GPUs: one of each GPU, its leader, launches a kernel for all ranks there. These kernels
 * wait for nobody, so they need no launch tokens.
 */
#include "mca/coll/gpusym/exec/kernel.h"
#include "mca/coll/gpusym/exec/led.h"
#include "mca/coll/gpusym/exec/traced.h"

/* A call that has just found that ranks share GPUs is posted again, now with what leaders want. */
static coll_gpusym_turn_t agree(coll_gpusym_run_t *run)
{
    if (run->reason >= 0 || coll_gpusym_messages_suit(run)) {
        return COLL_GPUSYM_TURN_REFUSED;
    }
    if (COLL_GPUSYM_AGREES == run->mode) {
        return COLL_GPUSYM_TURN_EMPTY;
    }
    if (COLL_GPUSYM_LED_FIND == run->is.led.step && run->joins) {
        return COLL_GPUSYM_TURN_AGAIN;
    }
    if (COLL_GPUSYM_LED_FIND == run->is.led.step && !coll_gpusym_lead_possible(&run->task)) {
        return coll_gpusym_run_refused(run, COLL_GPUSYM_R_SHARED_GPU);
    }
    const coll_gpusym_turn_t turn = coll_gpusym_led_map(run, COLL_GPUSYM_R_SHARED_GPU);
    if (COLL_GPUSYM_TURN_DONE == turn) {
        run->is.led.step = COLL_GPUSYM_LED_BEGIN;
    }
    return turn;
}

/* Launches what this leader has to do. */
static coll_gpusym_turn_t launch(coll_gpusym_run_t *run, const coll_gpusym_led_buffers_t *all)
{
    coll_gpusym_lead_plan_t p;
    coll_gpusym_turn_t turn;
    int corrupt;
    const bool made = coll_gpusym_lead_make(&run->task, all, &p, &corrupt);
    if (!made && corrupt >= 0) {
        turn = coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_CORRUPT, corrupt, NULL);
    } else if (!made) {
        turn = coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_GPU, -1, "no host memory for a leader's list of jobs");
    } else if (0 == p.work.lead.packs) {
        turn = coll_gpusym_led_done(run);
    } else if (coll_gpusym_launch_lead(&run->launch, &run->task, &p)) {
        coll_gpusym_traced_launched(run, p.work.nblocks);
        turn = coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
    } else {
        turn = coll_gpusym_run_gpu_failed(run);
    }
    coll_gpusym_lead_free(&p);
    return turn;
}

/* What goes on without this rank's doing may take that long. */
static bool is_limited(const coll_gpusym_run_t *run)
{
    return COLL_GPUSYM_NONBLOCKING != run->mode; /* else a leader may compute */
}

static coll_gpusym_turn_t poll(coll_gpusym_run_t *run)
{
    coll_gpusym_led_buffers_t all;
    coll_gpusym_turn_t turn;
    if (run->is.led.step < COLL_GPUSYM_LED_LEAD) {
        turn = coll_gpusym_led_begin(run, &all);
        return COLL_GPUSYM_TURN_DONE == turn ? launch(run, &all) : turn;
    }
    if (COLL_GPUSYM_LED_LEAD == run->is.led.step) {
        turn = coll_gpusym_kernel_poll(run, false);
        if (COLL_GPUSYM_TURN_DONE != turn) {
            return turn;
        }
        (void) coll_gpusym_led_done(run);
    }
    return coll_gpusym_led_end(run, is_limited(run));
}

static coll_gpusym_turn_t check(coll_gpusym_run_t *run, uint64_t now_ns)
{
    return COLL_GPUSYM_LED_LEAD == run->is.led.step ? coll_gpusym_kernel_check(run, now_ns)
                                                    : coll_gpusym_led_check(run, now_ns, is_limited(run));
}

static bool stop(coll_gpusym_run_t *run, bool recalled, bool due)
{
    return coll_gpusym_led_copies(run) ? coll_gpusym_kernel_stop_copies(run)
                                       : coll_gpusym_kernel_stop(run, recalled, due);
}

static void count(const coll_gpusym_run_t *run, coll_gpusym_counters_t *counters)
{
    coll_gpusym_kernel_count(run, counters);
    if (MPI_SUCCESS == run->error && run->is.led.begun) {
        coll_gpusym_count(&counters->led);
        if (run->task.zero_copy.used) {
            coll_gpusym_count(&counters->zero_copy);
        }
    }
}

static const coll_gpusym_way_t *const instead[] = {&coll_gpusym_way_messages, &coll_gpusym_way_staged_copies,
                                                   &coll_gpusym_way_segments, &coll_gpusym_way_whole, NULL};

const coll_gpusym_way_t coll_gpusym_way_leaders = {
    .name = "leaders",
    .instead = instead,
    .takes_host = true,
    .offer = coll_gpusym_run_offer,
    .agree = agree,
    .poll = poll,
    .check = check,
    .stop = stop,
    .abandon = coll_gpusym_kernel_abandon,
    .end = coll_gpusym_led_lose,
    .count = count,
};
