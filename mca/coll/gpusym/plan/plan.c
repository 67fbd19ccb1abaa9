/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Plans: see plan.h.  Nothing here depends on what only this rank knows.
 */
#include "mca/coll/gpusym/plan/plan.h"

#include <stdlib.h>

#include "kernels/plan.h"
#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/plan/zero_copy.h"
#include "mca/coll/gpusym/team/settings.h"
#include "mca/coll/gpusym/team/tuner.h"
#include "mca/common/gpusym/gpusym.h"

/* Collectives with kernels have the same numbers in both lists. */
#define GPUSYM_COLLECTIVE(id, ...) _Static_assert((int) COLL_GPUSYM_##id == (int) GPUSYM_COLL_##id, #id);
#include "kernels/kernels.def"
_Static_assert((int) COLL_GPUSYM_NATIVES == (int) GPUSYM_COLL_COUNT, "and there are as many");

/* Ranks that see different parameters would launch different plans. */
uint32_t coll_gpusym_plan_hash(const coll_gpusym_segments_t *k)
{
    const coll_gpusym_params_t *c = &coll_gpusym_params;
    const uint32_t words[] = {k->op,
                              k->type,
                              (uint32_t) k->args->root,
                              k->counts,
                              (uint32_t) (c->algorithm[k->args->coll] - COLL_GPUSYM_ALG_AUTO),
                              c->oneshot_max,
                              (uint32_t) c->blocks,
                              (uint32_t) c->threads,
                              c->chunk,
                              c->zero_copy_min,
                              c->piece,
                              (uint32_t) c->reproducible << 1 | c->zero_copy};
    uint32_t hash = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        hash = (hash ^ words[i]) * 2654435761u;
    }
    return hash;
}

/* Blocks that a launch may have. */
static uint32_t limit_blocks(const coll_gpusym_team_t *t)
{
    const uint32_t most = (uint32_t) coll_gpusym_setting(t, COLL_GPUSYM_KEY_MAX_BLOCKS, 0);
    return 0 != most && most < t->host.max_blocks ? most : t->host.max_blocks;
}

/* Whether some rank stores its result over its input. */
static bool overwrites(const coll_gpusym_task_t *task)
{
    return 0 != (task->read.any & GPUSYM_POST_OVERWRITES);
}

/* The call, as all of its ranks know it. */
static gpusym_tuning_call_t describe_call(const coll_gpusym_task_t *task)
{
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    const coll_gpusym_params_t *c = &coll_gpusym_params;
    const gpusym_device_t *dev = gpusym_current.dev;
    const unsigned coll = coll_gpusym_task_coll(task);
    const bool sized = NULL != task->sizes; /* between any two ranks another length: an all-to-all of segments */
    return (gpusym_tuning_call_t){.coll = sized ? (unsigned) GPUSYM_COLL_ALLTOALLV : coll,
                                  .bytes = task->read.max_bytes,
                                  .op = task->segments->op,
                                  .type = task->segments->type,
                                  .nranks = t->host.nranks,
                                  .sm_count = t->host.sm_count,
                                  .simulated = dev->simulated,
                                  .zero_copy = task->zero_copy.agreed,
                                  .multicast = NULL != t->host.work.mc && !sized,
                                  .mc_requested = t->host.mc_requested,
                                  .reproducible =
                                      0 != coll_gpusym_setting(t, COLL_GPUSYM_KEY_REPRODUCIBLE, c->reproducible),
                                  .overwrites = overwrites(task),
                                  .all_reach = t->host.all_reach,
                                  .scattered = !coll_gpusym_segments_alike(coll, &task->read),
                                  .ll128 = t->host.ll128,
                                  .copies = !sized && NULL != dev->stream_flags &&
                                            coll_gpusym_segments_copies(coll, task->read.max_bytes, &t->host.work),
                                  .clusters = t->host.clusters,
                                  .ll_payload = gpusym_ll_payload(t->host.work.ll_bytes),
                                  .max_blocks = limit_blocks(t)};
}

/* The algorithm of a collective in which copy engines move the data; -1: it has none. */
static int find_copies(unsigned coll)
{
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; a++) {
        if (coll_gpusym_algorithm_is_of(a, coll) && gpusym_family_copies(gpusym_algorithm_family(a))) {
            return (int) a;
        }
    }
    return -1;
}

/* Once per communicator, likewise. */
static void tell_no_copies(const coll_gpusym_task_t *task)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    if (!task->cache->told_unavailable) {
        task->cache->told_unavailable = true;
        GPUSYM_LOG(2, "%s: gpusym_copy_engines_only: %s has no algorithm by copy engines: kernels do it",
                   gpusym_comm_label(coll_gpusym_task_team(task)->fallback->comm, name, sizeof name),
                   coll_gpusym_name(coll_gpusym_task_coll(task)));
    }
}

/* The algorithm that the user wants, or COLL_GPUSYM_ALG_AUTO. */
static int find_requested(const coll_gpusym_task_t *task)
{
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    const unsigned coll = coll_gpusym_task_coll(task);
    if (NULL != task->sizes) {
        return COLL_GPUSYM_ALG_AUTO;
    }
    const int requested = coll_gpusym_setting(t, coll, COLL_GPUSYM_ALG_AUTO);
    if (COLL_GPUSYM_ALG_AUTO == requested && 1 == coll_gpusym_setting(t, COLL_GPUSYM_KEY_COPY_ENGINES_ONLY, 0)) {
        const int copies = find_copies(coll);
        if (copies < 0) {
            tell_no_copies(task);
        }
        return copies >= 0 ? copies : coll_gpusym_params.algorithm[coll];
    }
    return coll_gpusym_setting(t, coll, coll_gpusym_params.algorithm[coll]);
}

/* Leaders and islands are not in step either. */
bool coll_gpusym_plan_overwrites(const coll_gpusym_task_t *task)
{
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    const int requested = find_requested(task);
    return t->host.all_reach && !t->host.led && !t->host.beside && !coll_gpusym_team_is_part(t) &&
           (requested < 0 || gpusym_algorithm_in_step((unsigned) requested));
}

/* Once per communicator: another algorithm than the requested one is taken. */
static void tell_unavailable(const coll_gpusym_task_t *task, int requested)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    const int taken = task->choice.algorithm;
    task->cache->told_unavailable = true;
    GPUSYM_LOG(
        2,
        "%s: %s is not available here (multicast, operation, type, reproducibility, links or mapped buffers): using %s",
        gpusym_comm_label(coll_gpusym_task_team(task)->fallback->comm, name, sizeof name),
        gpusym_algorithm_name((unsigned) requested),
        taken >= 0 ? gpusym_algorithm_name((unsigned) taken) : "the fallback");
}

/* The algorithm and its launch geometry, once per start. */
static const gpusym_tuning_choice_t *choose_algorithm(coll_gpusym_task_t *task)
{
    const coll_gpusym_params_t *c = &coll_gpusym_params;
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    const int requested = find_requested(task);
    gpusym_tuning_forced_t forced = {.algorithm = requested,
                                     .oneshot_max = c->oneshot_max,
                                     .blocks = (uint32_t) c->blocks,
                                     .threads = (uint32_t) c->threads,
                                     .chunk = c->chunk,
                                     .resident_below = (uint64_t) (c->resident_max + 1)};
    gpusym_tuning_choice_t *choice = &task->choice;

    if (task->chosen) {
        return choice;
    }
    gpusym_tuning_call_t what = describe_call(task);
    if (NULL != t->host.tuner && NULL == task->sizes) {
        coll_gpusym_tuner_apply(t, &what, &forced);
    }
    if (NULL != t->host.rules && NULL == task->sizes) {
        (void) gpusym_rules_apply(t->host.rules, &t->host.work, &what, &forced);
    }
    gpusym_tuning_choose_in(&t->host.work, &what, &forced, choice);
    if (requested >= 0 && choice->algorithm != requested && !task->cache->told_unavailable) {
        tell_unavailable(task, requested);
    }
    task->chosen = true;
    return choice;
}

bool coll_gpusym_plan_reaches(coll_gpusym_task_t *task)
{
    return coll_gpusym_task_team(task)->host.all_reach || choose_algorithm(task)->algorithm >= 0;
}

static bool needs_scratch(const coll_gpusym_task_t *task)
{
    return 0 != coll_gpusym_segments_scratch_bytes(task->segments);
}

/* Everything of a launch but its epoch. */
static bool make_plan(coll_gpusym_task_t *task, coll_gpusym_plan_t *p, int *corrupt)
{
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    const coll_gpusym_segments_t *k = task->segments;
    const gpusym_tuning_choice_t *choice = choose_algorithm(task);

    p->work = t->host.work;
    coll_gpusym_segments_work(k, task->read.max_bytes, task->sizes, &p->work);
    p->work.nblocks = choice->blocks;
    p->work.nthreads = choice->threads;
    p->work.limit_ns = coll_gpusym_task_limit_ns(task);
    p->algorithm = choice->algorithm;
    p->kernel = gpusym_kernel_find(choice->family, k->op, k->type);
    p->zero_copy = choice->zero_copy;
    p->resident = (uint8_t) choice->resident;
    p->own_threads = choice->own_threads;
    p->copies = gpusym_family_copies(choice->family);
    p->reduces = gpusym_family_reduces(choice->family);
    p->work.copies.whole = gpusym_collective_whole(k->args->coll);
    coll_gpusym_segments_paths(k, gpusym_algorithm_schedule((unsigned) choice->algorithm), &p->work);
    p->work.direct = choice->zero_copy;
    if (p->zero_copy && (!coll_gpusym_zero_copy_map(task, &p->work, NULL, true, corrupt) ||
                         !coll_gpusym_zero_copy_place(task, &p->work, &p->reach, corrupt))) {
        return false;
    }
    p->epochs = gpusym_kernel_plan(choice->family, &p->work, choice->chunk);
    p->valid = needs_scratch(task) ? 0 : task->cache->changes + 1; /* scratch: another call may have it the next time */
    p->offered = task->zero_copy.agreed;
    p->overwrites = overwrites(task);
    return true;
}

bool coll_gpusym_plan_get(coll_gpusym_task_t *task, coll_gpusym_plan_t *p, int *corrupt)
{
    *corrupt = -1;
    if (p != task->plan || p->valid != task->cache->changes + 1 || p->offered != task->zero_copy.agreed ||
        p->overwrites != overwrites(task) || needs_scratch(task)) {
        return make_plan(task, p, corrupt);
    }
    return !p->zero_copy || coll_gpusym_zero_copy_map(task, &p->work, &p->reach, true, corrupt);
}

void coll_gpusym_plan_free(coll_gpusym_plan_t *plan)
{
    if (NULL != plan && NULL != plan->graph) {
        gpusym_current.dev->graph_destroy(plan->graph);
    }
    free(plan);
}
