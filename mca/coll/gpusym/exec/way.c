/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What several ways do alike: see way.h.
 */
#include "mca/coll/gpusym/exec/way.h"

#include "mca/coll/gpusym/plan/plan.h"
#include "mca/coll/gpusym/plan/zero_copy.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/shm/fd.h"

coll_gpusym_turn_t coll_gpusym_run_gpu_failed(coll_gpusym_run_t *run)
{
    return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_GPU, -1, gpusym_current.dev->error());
}

void coll_gpusym_run_offer(coll_gpusym_run_t *run, gpusym_post_t *post)
{
    coll_gpusym_segments_t *k = run->task.segments;
    const int agreed = run->engine->team->reason; /* for good */
    const bool agrees = COLL_GPUSYM_AGREES == run->mode;
    k->reason = agreed >= 0 ? agreed : k->reason;
    if (k->even && NULL == run->launch.scratch) {
        coll_gpusym_segments_settle(k, !run->joins && coll_gpusym_plan_overwrites(&run->task));
    }
    if (k->reason < 0 && !agrees && !coll_gpusym_scratch_get(&run->launch, k)) {
        k->reason = COLL_GPUSYM_R_NO_MEMORY;
    }
    post->kind = (uint8_t) (k->reason < 0 ? GPUSYM_KIND_NATIVE : GPUSYM_KIND_BOUNCE + k->reason);
    post->exact = k->exact;
    post->bytes = k->bytes;
    post->balance = k->balance;
    post->hash = run->task.hash = coll_gpusym_plan_hash(k);
    post->layout = k->layout;
    post->flags |= k->in_place ? GPUSYM_POST_IN_PLACE : 0;
    post->flags |= k->even && 0 == k->unpack.bytes ? GPUSYM_POST_OVERWRITES : 0;
    if (k->reason < 0 && !agrees) {
        coll_gpusym_zero_copy_offer(&run->task, post);
    }
}

bool coll_gpusym_run_post(coll_gpusym_run_t *run, gpusym_post_t *post)
{
    if (coll_gpusym_zero_copy_tell(&run->task, post) &&
        gpusym_agreement_post(coll_gpusym_run_agreement(run), post, &run->task.read)) {
        return true;
    }
    coll_gpusym_run_repost(run);
    return false;
}

void coll_gpusym_run_repost(coll_gpusym_run_t *run)
{
    coll_gpusym_zero_copy_withdraw(&run->task);
}

void coll_gpusym_run_withdraw(coll_gpusym_run_t *run)
{
    coll_gpusym_zero_copy_withdraw(&run->task);
    coll_gpusym_scratch_put(&run->launch);
}

coll_gpusym_turn_t coll_gpusym_run_vote(coll_gpusym_run_t *run, bool mapped, int corrupt)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    if (corrupt >= 0) {
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_CORRUPT, corrupt, NULL);
    }
    if (!mapped) {
        GPUSYM_LOG(2, "%s: rank %u cannot map a peer's buffer: %s%s",
                   gpusym_comm_label(run->engine->fallback->comm, label, sizeof label),
                   coll_gpusym_team_rank(run->engine->team), gpusym_current.dev->error(),
                   gpusym_fd_lack() ? " (no file descriptor is left)" : "");
    }
    gpusym_agreement_vote(coll_gpusym_run_agreement(run), run->task.read.seq, mapped);
    run->voted = true;
    return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_VOTE);
}

coll_gpusym_turn_t coll_gpusym_run_votes(coll_gpusym_run_t *run)
{
    coll_gpusym_task_t *task = &run->task;
    char label[GPUSYM_COMM_LABEL_MAX];
    const int votes = gpusym_agreement_votes(coll_gpusym_run_agreement(run), task->read.seq);
    if (0 == votes) {
        return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_VOTE);
    }
    if (votes > 0) {
        coll_gpusym_zero_copy_mapped(task);
        return COLL_GPUSYM_TURN_DONE;
    }
    task->zero_copy.agreed = false;
    task->cache->refused = true;
    GPUSYM_LOG(2, "%s: zero copy is disabled from now on: a rank could not map a peer's buffer",
               gpusym_comm_label(run->engine->fallback->comm, label, sizeof label));
    return COLL_GPUSYM_TURN_REFUSED;
}
