/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Early launches: see early.h.
 */
#include "mca/coll/gpusym/exec/early.h"

#include <string.h>

#include "mca/coll/gpusym/args/facts.h"
#include "mca/coll/gpusym/team/epochs.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/common/gpusym/gpusym.h"

void coll_gpusym_early_told(coll_gpusym_early_t *e, const coll_gpusym_task_t *task)
{
    const uint32_t any = task->read.any;
    const gpusym_tuning_told_t told = {.early = 0 != (any & GPUSYM_POST_EARLY),
                                       .left = 0 != (any & GPUSYM_POST_LEFT),
                                       .overlaps = 0 != (any & GPUSYM_POST_OVERLAPS),
                                       .waits = 0 != (any & GPUSYM_POST_WAITS)};
    gpusym_tuning_early_told(&e->worth, &told);
    e->tells = 0;
}

bool coll_gpusym_early_may(const coll_gpusym_early_t *e, const coll_gpusym_task_t *task, uint64_t linger_ns)
{
    coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    return !task->blocking && task->alone && NULL == task->sizes && 0 != linger_ns &&
           gpusym_tuning_early_allow(&e->worth) && (t->host.mps || !coll_gpusym_team_crowded(t)) &&
           0 == coll_gpusym_segments_scratch_bytes(task->segments);
}

bool coll_gpusym_early_begins(const coll_gpusym_task_t *task)
{
    const coll_gpusym_segments_t *k = task->segments;
    const unsigned pattern = coll_gpusym_facts[k->args->coll].pattern;
    return k->exact && NULL == task->sizes &&
           (!k->in_place || COLL_GPUSYM_P_ALLREDUCE == pattern || COLL_GPUSYM_P_ALLGATHER == pattern);
}

bool coll_gpusym_early_prefers(const coll_gpusym_early_t *e, const coll_gpusym_task_t *task, uint64_t linger_ns)
{
    return !coll_gpusym_early_begins(task) && task->read.max_bytes >= GPUSYM_EARLY_MIN &&
           coll_gpusym_early_may(e, task, linger_ns);
}

/* ---- buffers ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    const uint64_t x = (a ^ b >> 32 ^ b << 32) * 0x9e3779b97f4a7c15ull;
    return (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
}

/* Signature of what rank r has posted of its buffers. */
static uint64_t sign_rank(const coll_gpusym_task_t *task, uint32_t r)
{
    const gpusym_entry_t *entry = gpusym_agreement_entry(&coll_gpusym_task_team(task)->host.rc, r, task->read.seq);
    if (0 == (entry->in_key | entry->out_key)) {
        return 0;
    }
    const uint64_t keys = (uint64_t) entry->in_key << 32 | entry->out_key;
    return mix(mix(mix(keys, r + 1), entry->in_off), entry->out_off);
}

/* What a call must have as the last one had it. */
static bool is_alike(const coll_gpusym_early_t *e, const coll_gpusym_task_t *task)
{
    const coll_gpusym_segments_t *k = task->segments;
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    return 0 != e->seq && e->coll == coll_gpusym_task_coll(task) && e->hash == task->hash && e->layout == k->layout &&
           e->bytes == k->bytes && e->in_place == k->in_place && k->out_local == (0 != e->work.out_local) &&
           0 == (task->read.any & GPUSYM_POST_NEW_KEY) && coll_gpusym_team_epoch(t) + e->epochs < GPUSYM_EPOCH_MAX &&
           e->own == sign_rank(task, t->host.rank);
}

/* ---- launches ---- */

void coll_gpusym_early_launch(coll_gpusym_early_t *e, coll_gpusym_task_t *task, coll_gpusym_launch_t *l,
                              uint64_t linger_ns)
{
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    gpusym_work_t w;
    if (!is_alike(e, task)) {
        return;
    }
    w = e->work;
    coll_gpusym_segments_work(task->segments, e->most, NULL, &w);
    /* By the peers' tables: these are as they were, or their ranks do not enter. */
    memcpy(w.remote_off, e->work.remote_off, sizeof w.remote_off);
    if (0 != memcmp(w.send, e->work.send, w.nranks * sizeof *w.send) ||
        0 != memcmp(w.recv, e->work.recv, w.nranks * sizeof *w.recv) || w.bytes != e->work.bytes ||
        (e->zero_copy && (w.in != e->work.in || w.out != e->work.out)) ||
        GPUSYM_SUCCESS != gpusym_lane_get(gpusym_current.dev, t->host.gpu, &l->lane)) {
        return;
    }
    w.epoch = (uint32_t) coll_gpusym_team_epoch(t);
    w.limit_ns = coll_gpusym_task_limit_ns(task);
    w.linger_ns = 0;
    w.early = GPUSYM_EARLY_ENTERS;
    w.enter_set = task->read.seq % 2;
    w.enter_sig = mix(mix(mix(e->all, e->hash), e->seq), e->most);
    w.enter_ns = linger_ns;
    gpusym_lane_skip(l->lane);
    if (!coll_gpusym_launch_kernel(l, task, e->kernel, &w)) {
        coll_gpusym_launch_put_lane(l);
        return;
    }
    l->resident.how = COLL_GPUSYM_ENTERS;
    l->algorithm = e->algorithm;
    task->zero_copy.used = e->zero_copy;
}

bool coll_gpusym_early_left(coll_gpusym_early_t *e, coll_gpusym_launch_t *l)
{
    if (COLL_GPUSYM_ENTERS != l->resident.how || !gpusym_lane_retired(l->lane)) {
        return false;
    }
    e->tells |= GPUSYM_POST_EARLY | GPUSYM_POST_LEFT;
    l->resident.how = COLL_GPUSYM_LATE;
    coll_gpusym_launch_put_lane(l);
    return true;
}

void coll_gpusym_early_ended(coll_gpusym_early_t *e, const coll_gpusym_task_t *task)
{
    e->tells |= task->blocking ? 0 : task->overlaps ? GPUSYM_POST_OVERLAPS : GPUSYM_POST_WAITS;
}

bool coll_gpusym_early_done(coll_gpusym_early_t *e, const coll_gpusym_task_t *task)
{
    uint32_t first;
    e->tells |= GPUSYM_POST_EARLY;
    return 1 == coll_gpusym_team_epochs(coll_gpusym_task_team(task), e->epochs, &first);
}

void coll_gpusym_early_note(coll_gpusym_early_t *e, const coll_gpusym_task_t *task, const coll_gpusym_plan_t *p)
{
    const coll_gpusym_segments_t *k = task->segments;
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[k->args->coll];
    if (task->blocking || p->copies || NULL != task->sizes || 0 != coll_gpusym_segments_scratch_bytes(k) ||
        coll_gpusym_has_arrays(f->sent) || coll_gpusym_has_arrays(f->written)) {
        return;
    }
    e->own = sign_rank(task, t->host.rank);
    e->all = 0;
    for (uint32_t r = 0; r < k->nranks; r++) {
        e->all += r == t->host.rank ? e->own : sign_rank(task, r);
    }
    e->seq = task->read.seq;
    e->coll = k->args->coll;
    e->hash = task->hash;
    e->layout = k->layout;
    e->bytes = k->bytes;
    e->most = task->read.max_bytes;
    e->in_place = k->in_place;
    e->zero_copy = p->zero_copy;
    e->algorithm = p->algorithm;
    e->kernel = p->kernel;
    e->epochs = p->epochs;
    e->work = p->work;
}
