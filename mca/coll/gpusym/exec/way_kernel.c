/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The way by kernels of all ranks' GPUs, which wait for each other: launched, or commanded where one is resident.
 */
#include "mca/coll/gpusym/exec/kernel.h"
#include "mca/coll/gpusym/exec/traced.h"

#include "mca/coll/gpusym/plan/plan.h"
#include "mca/coll/gpusym/plan/zero_copy.h"
#include "mca/coll/gpusym/team/epochs.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/common/gpusym/agree/tokens.h"
#include "mca/common/gpusym/gpusym.h"

static void offer(coll_gpusym_run_t *run, gpusym_post_t *post)
{
    coll_gpusym_team_t *t = run->engine->team;
    if (!t->host.mps && coll_gpusym_team_crowded(t)) {
        post->flags |= GPUSYM_POST_CROWDED;
    }
    post->flags |= coll_gpusym_early_tells(&run->engine->residents->early);
    coll_gpusym_run_offer(run, post);
}

/* If ranks then leave it to the fallback, one at least is on the host, and has not commanded: so no kernel has done
 * it. */
static void early(coll_gpusym_run_t *run)
{
    coll_gpusym_residents_t *all = run->engine->residents;
    if (run->task.zero_copy.led) {
        return; /* leaders may do it */
    }
    coll_gpusym_resident_begin(all, &run->task, &run->launch);
    if (NULL != run->launch.lane || run->task.blocking) {
        return;
    }
    const uint64_t linger_ns = coll_gpusym_resident_linger_ns();
    if (coll_gpusym_early_may(&all->early, &run->task, linger_ns)) {
        coll_gpusym_early_launch(&all->early, &run->task, &run->launch, linger_ns);
    }
}

/* All are on GPUs and have a team: how the data go. */
static coll_gpusym_turn_t find_buffers(coll_gpusym_run_t *run)
{
    coll_gpusym_task_t *task = &run->task;
    gpusym_work_t w;
    int corrupt;
    if (!coll_gpusym_plan_reaches(task)) {
        return coll_gpusym_run_refused(run, COLL_GPUSYM_R_UNREACHABLE);
    }
    coll_gpusym_early_told(&run->engine->residents->early, task);
    /* Another process has come to a rank's GPU, as all ranks find. This call is done yet as any: a resident kernel may
     * have done it already. */
    run->engine->team->host.leads_next = 0 != (task->read.any & GPUSYM_POST_CROWDED) && !run->joins;
    task->zero_copy.agreed = coll_gpusym_zero_copy_possible(task);
    task->cache->longest[run->args->coll] = task->read.max_bytes;
    if (!task->zero_copy.agreed || 0 == (task->read.any & GPUSYM_POST_NEW_KEY)) {
        return COLL_GPUSYM_TURN_DONE;
    }
    const bool mapped = coll_gpusym_zero_copy_map(task, &w, NULL, false, &corrupt);
    run->is.kernel.step = COLL_GPUSYM_KERNEL_VOTE;
    return coll_gpusym_run_vote(run, mapped, corrupt);
}

static coll_gpusym_turn_t agree(coll_gpusym_run_t *run)
{
    coll_gpusym_turn_t turn;
    if (run->reason >= 0 || coll_gpusym_messages_suit(run)) {
        return COLL_GPUSYM_TURN_REFUSED;
    }
    if (COLL_GPUSYM_AGREES == run->mode) {
        return COLL_GPUSYM_TURN_EMPTY;
    }
    if (COLL_GPUSYM_KERNEL_FIND == run->is.kernel.step) {
        turn = find_buffers(run);
    } else {
        turn = coll_gpusym_run_votes(run);
        turn = COLL_GPUSYM_TURN_REFUSED == turn ? COLL_GPUSYM_TURN_DONE : turn; /* without zero copy */
    }
    if (COLL_GPUSYM_TURN_DONE == turn) {
        run->is.kernel.step = COLL_GPUSYM_KERNEL_TOKENS;
    }
    return turn;
}

/* Plans the launch, and takes its epochs. DONE; WAITS: the flags are being cleared; FAILED. */
static coll_gpusym_turn_t plan_launch(coll_gpusym_run_t *run, coll_gpusym_plan_t *p)
{
    int corrupt;
    if (!coll_gpusym_plan_get(&run->task, p, &corrupt)) {
        return corrupt >= 0 ? coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_CORRUPT, corrupt, NULL)
                            : coll_gpusym_run_gpu_failed(run);
    }
    run->launch.algorithm = p->algorithm;
    run->task.zero_copy.used = p->zero_copy;
    const int taken = coll_gpusym_team_epochs(run->engine->team, p->epochs, &p->work.epoch);
    if (taken < 0) {
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_GPU, -1, "the flags of its kernels cannot be cleared");
    }
    if (0 == taken) {
        run->is.kernel.step = COLL_GPUSYM_KERNEL_CLEARING;
        return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
    }
    return COLL_GPUSYM_TURN_DONE;
}

/* The kernel has been launched or commanded. */
static coll_gpusym_turn_t runs(coll_gpusym_run_t *run, uint32_t blocks)
{
    coll_gpusym_traced_runs(run, &coll_gpusym_way_kernel, blocks);
    run->is.kernel.step = COLL_GPUSYM_KERNEL_RUNS;
    if (COLL_GPUSYM_NONBLOCKING == run->mode) {
        gpusym_agreement_launched(coll_gpusym_run_agreement(run), run->task.read.seq);
    }
    return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
}

/* Fills the descriptor and launches; or commands a resident kernel. */
static coll_gpusym_turn_t launch_planned(coll_gpusym_run_t *run)
{
    coll_gpusym_engine_t *e = run->engine;
    const coll_gpusym_task_t *task = &run->task;
    coll_gpusym_launch_t *l = &run->launch;
    coll_gpusym_plan_t once, *p = NULL != task->plan && NULL == run->sizes ? task->plan : &once;

    const coll_gpusym_turn_t turn = plan_launch(run, p);
    if (COLL_GPUSYM_TURN_DONE != turn) {
        return turn;
    }
    const bool early = coll_gpusym_early_prefers(&e->residents->early, task, coll_gpusym_resident_linger_ns());
    p->work.linger_ns = 0;
    if (!early && coll_gpusym_resident_may(task, p)) {
        if (coll_gpusym_resident_command(e->residents, task, l, p)) {
            return runs(run, 1);
        }
        if (p == task->plan) { /* which is kept as it is */
            once = *p;
            p = &once;
        }
        coll_gpusym_resident_prepare(e->residents, task, l, p);
    } else {
        coll_gpusym_resident_make_room(e->residents, e->team, p);
    }
    if (!coll_gpusym_launch_plan(l, task, p)) {
        return coll_gpusym_run_gpu_failed(run);
    }
    if (early || !p->resident) {
        coll_gpusym_early_note(&e->residents->early, task, p);
    }
    return runs(run, p->work.nblocks);
}

/* Whether the call may be launched: once its processes have no other in flight, where they may have. A kernel that
 * enters needs no tokens, nor do those of other ranks: all of them go on, or none. */
static bool take_tokens(coll_gpusym_run_t *run)
{
    if (COLL_GPUSYM_ENTERS == run->launch.resident.how ||
        (!run->engine->team->host.threads && 0 != (run->task.read.all & GPUSYM_POST_QUIET))) {
        return true;
    }
    if (!run->is.kernel.has_tokens && !coll_gpusym_launch_has_begun(&run->launch)) {
        coll_gpusym_resident_command_sender(run->engine->residents, &run->task, &run->launch);
    }
    run->is.kernel.has_tokens = true; /* or some of them */
    return gpusym_tokens_take(coll_gpusym_run_agreement(run), run->task.read.seq);
}

/* Once the call may be launched: a resident kernel may have its command already, or take that of the last call. */
static coll_gpusym_turn_t launch(coll_gpusym_run_t *run)
{
    coll_gpusym_residents_t *all = run->engine->residents;
    if (!take_tokens(run)) {
        return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
    }
    if (coll_gpusym_launch_has_begun(&run->launch) ||
        coll_gpusym_resident_command_same(all, &run->task, &run->launch)) {
        return runs(run, COLL_GPUSYM_ENTERS == run->launch.resident.how ? all->early.work.nblocks : 1);
    }
    return launch_planned(run);
}

static coll_gpusym_turn_t poll(coll_gpusym_run_t *run)
{
    coll_gpusym_early_t *early = &run->engine->residents->early;
    coll_gpusym_turn_t turn;
    bool unpacks;
    switch (run->is.kernel.step) {
    case COLL_GPUSYM_KERNEL_RUNS:
        if (coll_gpusym_early_left(early, &run->launch)) {
            run->is.kernel.step = COLL_GPUSYM_KERNEL_TOKENS;
            return launch(run);
        }
        unpacks = coll_gpusym_segments_unpacks(run->task.segments);
        turn = coll_gpusym_kernel_poll(run, unpacks);
        if (COLL_GPUSYM_TURN_DONE == turn && COLL_GPUSYM_ENTERS == run->launch.resident.how &&
            !coll_gpusym_early_done(early, &run->task)) {
            return coll_gpusym_run_gpu_failed(run);
        }
        if (COLL_GPUSYM_TURN_WAITS == turn && COLL_GPUSYM_NONBLOCKING == run->mode && 0 == run->since_ns) {
            return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_LAUNCH); /* its limit has not begun */
        }
        if (COLL_GPUSYM_TURN_DONE != turn || !unpacks) {
            return turn;
        }
        if (!run->launch.unpacks && !coll_gpusym_launch_unpack(&run->launch, run->task.segments)) {
            return coll_gpusym_run_gpu_failed(run);
        }
        run->is.kernel.step = COLL_GPUSYM_KERNEL_UNPACKS;
        run->since_ns = 0;
        return coll_gpusym_kernel_copies(run);
    case COLL_GPUSYM_KERNEL_UNPACKS:
        return coll_gpusym_kernel_copies(run);
    case COLL_GPUSYM_KERNEL_CLEARING:
        return launch_planned(run);
    default:
        return launch(run);
    }
}

static coll_gpusym_turn_t check(coll_gpusym_run_t *run, uint64_t now_ns)
{
    if (COLL_GPUSYM_KERNEL_RUNS == run->is.kernel.step) {
        return coll_gpusym_kernel_check(run, now_ns);
    }
    if (COLL_GPUSYM_KERNEL_UNPACKS == run->is.kernel.step) {
        return coll_gpusym_kernel_check_copies(run, now_ns);
    }
    if (COLL_GPUSYM_KERNEL_TOKENS == run->is.kernel.step) {
        const int corrupt = gpusym_tokens_rescue(coll_gpusym_run_agreement(run));
        if (corrupt >= 0) {
            return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_CORRUPT, corrupt, NULL);
        }
    }
    return COLL_GPUSYM_TURN_WAITS;
}

static bool stop(coll_gpusym_run_t *run, bool recalled, bool due)
{
    return COLL_GPUSYM_KERNEL_UNPACKS == run->is.kernel.step ? coll_gpusym_kernel_stop_copies(run)
                                                             : coll_gpusym_kernel_stop(run, recalled, due);
}

static void end(coll_gpusym_run_t *run)
{
    coll_gpusym_early_ended(&run->engine->residents->early, &run->task);
    if (run->is.kernel.has_tokens) {
        gpusym_tokens_give(coll_gpusym_run_agreement(run), MPI_SUCCESS != run->error);
    }
}

static const coll_gpusym_way_t *const instead[] = {&coll_gpusym_way_messages, &coll_gpusym_way_staged_copies,
                                                   &coll_gpusym_way_segments, &coll_gpusym_way_whole, NULL};

const coll_gpusym_way_t coll_gpusym_way_kernel = {
    .name = "kernel",
    .instead = instead,
    .takes_host = true,
    .offer = offer,
    .early = early,
    .agree = agree,
    .poll = poll,
    .check = check,
    .stop = stop,
    .abandon = coll_gpusym_kernel_abandon,
    .end = end,
    .count = coll_gpusym_kernel_count,
};
