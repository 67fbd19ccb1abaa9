/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a leader's kernel does of a call: see lead.h.
 *
 * Several leaders divide a call without a word: a reduction whose result goes to many by slices of the message, all
 * else by ranks of their GPUs.  A leader loads for the outputs of its own GPU what goes to several of them, so that it
 * crosses the link once; what goes to one rank alone is stored by the leader whose GPU it comes from.
 */
#include "mca/coll/gpusym/plan/lead.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/plan.h"
#include "mca/coll/gpusym/args/facts.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/common/gpusym/gpusym.h"
#include "tuning/geometry.h"

/* A plan in the making. */
typedef struct {
    const coll_gpusym_task_t *task;
    const coll_gpusym_team_t *team;
    const coll_gpusym_args_t *args;
    uint32_t n, me;
    uint64_t bytes; /* as gpusym_work_t.bytes */
    gpusym_job_t *job;
    uint32_t njobs, room;
    bool failed; /* no memory */
    const coll_gpusym_led_buffers_t *all;
    int corrupt; /* the rank whose table is, or what it says of its buffer; -1: none */
} maker_t;

static bool in_place(const maker_t *m)
{
    return 0 != (m->task->read.all & GPUSYM_POST_IN_PLACE);
}

static bool is_own(const maker_t *m, uint32_t r)
{
    return m->team->host.leader[r] == m->me;
}

/* Adds a job, unless it has nothing to do. */
static void add_job(maker_t *m, gpusym_job_t job)
{
    if (0 == job.bytes || job.src_first >= job.src_end || job.dst_first >= job.dst_end) {
        return;
    }
    if (m->njobs == m->room) {
        const uint32_t room = 2 * m->room;
        gpusym_job_t *more = realloc(m->job, room * sizeof *more);
        if (NULL == more) {
            m->failed = true;
            return;
        }
        m->job = more;
        m->room = room;
    }
    m->job[m->njobs++] = job;
}

/* The next run of own ranks from *first on: [*first, returned end). False: there is none. */
static bool next_run(const maker_t *m, uint32_t *first, uint32_t *end)
{
    while (*first < m->n && !is_own(m, *first)) {
        (*first)++;
    }
    *end = *first;
    while (*end < m->n && is_own(m, *end)) {
        (*end)++;
    }
    return *first < *end;
}

/* The job for own sources only, or own destinations: one for each run of them. */
static void add_own_sources(maker_t *m, gpusym_job_t job)
{
    uint32_t end;
    for (uint32_t first = 0; next_run(m, &first, &end); first = end) {
        job.src_first = (uint16_t) first;
        job.src_end = (uint16_t) end;
        add_job(m, job);
    }
}

static void add_own_destinations(maker_t *m, gpusym_job_t job)
{
    uint32_t end;
    for (uint32_t first = 0; next_run(m, &first, &end); first = end) {
        job.dst_first = (uint16_t) first;
        job.dst_end = (uint16_t) end;
        add_job(m, job);
    }
}

/* All ranks with all ranks. */
static gpusym_job_t job_of(const maker_t *m, enum gpusym_job_form form, uint64_t bytes)
{
    return (gpusym_job_t){.form = form, .bytes = bytes, .src_end = (uint16_t) m->n, .dst_end = (uint16_t) m->n};
}

static void only_from(gpusym_job_t *job, int rank)
{
    job->src_first = (uint16_t) rank;
    job->src_end = (uint16_t) (rank + 1);
}

static void only_to(gpusym_job_t *job, int rank)
{
    job->dst_first = (uint16_t) rank;
    job->dst_end = (uint16_t) (rank + 1);
}

/* This leader's slice of the message: whole packs, and lines where that hardly matters. */
static gpusym_job_t slice_of(const maker_t *m, enum gpusym_job_form form)
{
    const uint64_t packs = (m->bytes + GPUSYM_PACK - 1) / GPUSYM_PACK, n = m->team->host.nleaders;
    const uint64_t span = GPUSYM_PACK * GPUSYM_SPAN((packs + n - 1) / n, 1u), at = m->team->host.leader_index * span;
    const uint64_t left = at < m->bytes ? m->bytes - at : 0;
    gpusym_job_t job = job_of(m, form, left < span ? left : span);
    job.in_off = job.out_off = at;
    return job;
}

/* Bytes of all ranks' parts, where every rank passes all lengths. */
static void segments_alike(const maker_t *m, gpusym_work_t *w)
{
    w->rank = m->team->host.rank;
    w->nranks = m->n;
    coll_gpusym_segments_work(m->task->segments, m->bytes, NULL, w);
}

static void plan_allreduce(maker_t *m)
{
    add_job(m, slice_of(m, GPUSYM_JOB_REDUCE));
}

static void plan_rooted(maker_t *m)
{
    if (coll_gpusym_facts[m->args->coll].reduces) {
        gpusym_job_t job = slice_of(m, GPUSYM_JOB_REDUCE);
        only_to(&job, m->args->root);
        add_job(m, job);
        return;
    }
    gpusym_job_t job = job_of(m, GPUSYM_JOB_SPREAD, m->bytes);
    only_from(&job, m->args->root);
    add_own_destinations(m, job);
}

static void plan_allgather(maker_t *m)
{
    if (COLL_GPUSYM_L_BLOCKS_V != coll_gpusym_facts[m->args->coll].written) {
        gpusym_job_t job = job_of(m, GPUSYM_JOB_SPREAD, m->bytes);
        job.out_step = m->bytes;
        add_own_destinations(m, job);
        return;
    }
    gpusym_work_t w;
    memset(&w, 0, sizeof w);
    segments_alike(m, &w);
    for (uint32_t p = 0; p < m->n; p++) {
        gpusym_job_t job = job_of(m, GPUSYM_JOB_SPREAD, w.recv[p].bytes);
        only_from(&job, (int) p);
        job.out_off = w.recv[p].off;
        add_own_destinations(m, job);
    }
}

static void plan_reduce_scatter(maker_t *m)
{
    if (COLL_GPUSYM_L_PART != coll_gpusym_facts[m->args->coll].written) {
        gpusym_job_t job = job_of(m, GPUSYM_JOB_REDUCE_EACH, m->bytes);
        job.in_step = m->bytes;
        add_own_destinations(m, job);
        return;
    }
    gpusym_work_t w;
    memset(&w, 0, sizeof w);
    segments_alike(m, &w);
    for (uint32_t p = 0; p < m->n; p++) {
        gpusym_job_t job = job_of(m, GPUSYM_JOB_REDUCE_EACH, w.send[p].bytes);
        job.in_off = w.send[p].off;
        only_to(&job, (int) p);
        if (is_own(m, p)) {
            add_job(m, job);
        }
    }
}

static void plan_alltoall(maker_t *m)
{
    gpusym_job_t job = job_of(m, in_place(m) ? GPUSYM_JOB_SWAP : GPUSYM_JOB_MOVE, m->bytes);
    job.in_step = job.out_step = m->bytes;
    if (!in_place(m) || m->n > GPUSYM_JOBS_MAX + 1) {
        add_own_sources(m, job);
        return;
    }
    for (uint32_t s = 0; s + 1 < m->n; s++) { /* each pair is swapped once: no parts with nothing to do */
        only_from(&job, (int) s);
        job.dst_first = (uint16_t) (s + 1);
        if (is_own(m, s)) {
            add_job(m, job);
        }
    }
}

static void plan_gather(maker_t *m)
{
    gpusym_job_t job = job_of(m, GPUSYM_JOB_MOVE, m->bytes);
    only_to(&job, m->args->root);
    job.out_step = m->bytes;
    add_own_sources(m, job);
}

static void plan_scatter(maker_t *m)
{
    gpusym_job_t job = job_of(m, GPUSYM_JOB_MOVE, m->bytes);
    only_from(&job, m->args->root);
    job.in_step = m->bytes;
    add_own_destinations(m, job);
}

static void plan_scan(maker_t *m)
{
    add_job(m, slice_of(m, COLL_GPUSYM_EXSCAN == m->args->coll ? GPUSYM_JOB_EXSCAN : GPUSYM_JOB_SCAN));
}

/* A piece of ranks s and d, by their tables, whose rows for each other these are. */
static void add_pair(maker_t *m, uint32_t s, uint32_t d, const gpusym_table_row_t *to, const gpusym_table_row_t *from)
{
    gpusym_job_t job = {.form = GPUSYM_JOB_MOVE,
                        .bytes = to->send_bytes < from->recv_bytes ? to->send_bytes : from->recv_bytes,
                        .in_off = to->send_off,
                        .out_off = from->recv_off};
    only_from(&job, (int) s);
    only_to(&job, (int) d);
    if (COLL_GPUSYM_P_ALLTOALL == coll_gpusym_facts[m->args->coll].pattern && in_place(m)) {
        job.form = GPUSYM_JOB_SWAP;
        job.in_off = to->recv_off;
        job.bytes = s < d ? job.bytes : 0;
    }
    const uint64_t in_room = GPUSYM_JOB_SWAP == job.form ? m->all->out_room[s] : m->all->in_room[s];
    if (0 != job.bytes && (job.in_off > in_room || job.bytes > in_room - job.in_off)) {
        m->corrupt = (int) s;
    } else if (0 != job.bytes && (job.out_off > m->all->out_room[d] || job.bytes > m->all->out_room[d] - job.out_off)) {
        m->corrupt = (int) d;
    } else {
        add_job(m, job);
    }
}

/* What goes between any two ranks stands in their tables. */
static void plan_pairs(maker_t *m)
{
    const gpusym_agreement_t *rc = &m->team->host.rc;
    const gpusym_table_row_t *rows[COLL_GPUSYM_LED_MAX];
    for (uint32_t r = 0; r < m->n; r++) {
        if (GPUSYM_TABLE_THERE != gpusym_table_find(rc, r, m->task->read.seq, &rows[r])) {
            m->corrupt = (int) r;
            return;
        }
    }
    for (uint32_t s = 0; s < m->n; s++) {
        for (uint32_t d = 0; d < m->n && m->corrupt < 0 && is_own(m, s); d++) {
            const gpusym_table_row_t sent = rows[s][d], taken = rows[d][s]; /* their owners may overwrite them */
            add_pair(m, s, d, &sent, &taken);
        }
    }
}

bool coll_gpusym_lead_possible(const coll_gpusym_task_t *task)
{
    const unsigned coll = coll_gpusym_task_coll(task);
    const bool alltoall = COLL_GPUSYM_P_ALLTOALL == coll_gpusym_facts[coll].pattern;
    const uint32_t may = coll_gpusym_blocks_has(coll) ? 0 : task->read.all; /* places are swapped where all want that */
    return coll_gpusym_zero_copy_led(task) && (!alltoall || 0 == (task->read.any & ~may & GPUSYM_POST_IN_PLACE));
}

/* Whether pieces of a rank that has a buffer lie in it: at off, and up to `steps` steps behind. */
static bool has_room(const void *at, uint64_t room, uint64_t off, uint64_t step, uint64_t steps, uint64_t bytes)
{
    uint64_t last, end;
    return NULL == at || (!__builtin_mul_overflow(step, steps, &last) && !__builtin_add_overflow(last, off, &last) &&
                          !__builtin_add_overflow(last, bytes, &end) && end <= room);
}

/* Finds a rank whose buffer is shorter than a job has it; -1: none is. */
static int find_short(const maker_t *m, const gpusym_job_t *job)
{
    const coll_gpusym_led_buffers_t *all = m->all;
    const bool swap = GPUSYM_JOB_SWAP == job->form;
    for (uint32_t s = job->src_first; s < job->src_end; s++) {
        if (!has_room(swap ? all->out[s] : all->in[s], swap ? all->out_room[s] : all->in_room[s], job->in_off,
                      job->in_step, job->dst_end - 1u, job->bytes)) {
            return (int) s;
        }
    }
    for (uint32_t d = job->dst_first; d < job->dst_end; d++) {
        if (!has_room(all->out[d], all->out_room[d], job->out_off, job->out_step, job->src_end - 1u, job->bytes)) {
            return (int) d;
        }
    }
    return -1;
}

static void check_jobs(maker_t *m)
{
    for (uint32_t i = 0; i < m->njobs && m->corrupt < 0 && m->n > 1; i++) { /* a rank alone has its own buffers */
        m->corrupt = find_short(m, &m->job[i]);
    }
}

/* Puts addresses and jobs into the descriptor, or into a list. */
static bool place_jobs(const maker_t *m, const coll_gpusym_led_buffers_t *all, coll_gpusym_lead_plan_t *p)
{
    gpusym_work_t *w = &p->work;
    w->lead.packs = gpusym_jobs_plan(m->job, m->njobs);
    w->lead.njobs = m->njobs;
    w->lead.nranks = (uint16_t) m->n;
    w->rank = 0; /* whose ticket it is */
    if (m->n <= GPUSYM_TEAM_MAX && m->njobs <= GPUSYM_JOBS_MAX) {
        w->nranks = m->n;
        memcpy(w->peer_in, all->in, m->n * sizeof *all->in);
        memcpy(w->peer_out, all->out, m->n * sizeof *all->out);
        memcpy(w->job, m->job, m->njobs * sizeof *m->job);
        return true;
    }
    w->nranks = 1;
    p->jobs_off = 2 * m->n * sizeof(void *);
    p->list_bytes = p->jobs_off + m->njobs * sizeof *m->job;
    p->list = malloc(p->list_bytes);
    if (NULL == p->list) {
        return false;
    }
    memcpy(p->list, all->in, m->n * sizeof *all->in);
    memcpy((char *) p->list + m->n * sizeof *all->in, all->out, m->n * sizeof *all->out);
    memcpy((char *) p->list + p->jobs_off, m->job, m->njobs * sizeof *m->job);
    return true;
}

/* Blocks, threads, and how many of these go by themselves. */
static void set_geometry(const maker_t *m, gpusym_work_t *w)
{
    const coll_gpusym_params_t *c = &coll_gpusym_params;
    const gpusym_tuning_forced_t forced = {
        .algorithm = -1, .blocks = (uint32_t) c->blocks, .threads = (uint32_t) c->threads};
    gpusym_tuning_choice_t choice;
    gpusym_tuning_lead(w->lead.packs, m->team->host.sm_count, gpusym_current.dev->simulated, &forced, &choice);
    w->lead.group =
        (uint16_t) gpusym_tuning_lead_group(w->lead.packs, 0 != m->njobs ? m->job[0].bytes : 0, &forced, &choice);
    w->nblocks = choice.blocks;
    w->nthreads = choice.threads;
}

bool coll_gpusym_lead_make(const coll_gpusym_task_t *task, const coll_gpusym_led_buffers_t *all,
                           coll_gpusym_lead_plan_t *p, int *corrupt)
{
    static void (*const plan[COLL_GPUSYM_PATTERNS])(maker_t *) = {
        [COLL_GPUSYM_P_ALLREDUCE] = plan_allreduce, [COLL_GPUSYM_P_ROOTED] = plan_rooted,
        [COLL_GPUSYM_P_ALLGATHER] = plan_allgather, [COLL_GPUSYM_P_REDUCE_SCATTER] = plan_reduce_scatter,
        [COLL_GPUSYM_P_ALLTOALL] = plan_alltoall,   [COLL_GPUSYM_P_GATHER] = plan_gather,
        [COLL_GPUSYM_P_SCATTER] = plan_scatter,     [COLL_GPUSYM_P_SCAN] = plan_scan,
    };
    const coll_gpusym_segments_t *k = task->segments;
    const coll_gpusym_team_t *t = k->team;
    const unsigned family = coll_gpusym_facts[k->args->coll].reduces ? GPUSYM_F_LEAD_R : GPUSYM_F_LEAD;
    maker_t m = {.task = task,
                 .team = t,
                 .args = k->args,
                 .n = t->host.nranks,
                 .me = t->host.rank,
                 .bytes = task->read.max_bytes,
                 .all = all,
                 .corrupt = -1,
                 .room = GPUSYM_JOBS_MAX,
                 .job = malloc(GPUSYM_JOBS_MAX * sizeof(gpusym_job_t))};

    const unsigned pattern = coll_gpusym_facts[k->args->coll].pattern;
    const bool alike = COLL_GPUSYM_P_ALLGATHER == pattern && task->read.same_layout && NULL == task->sizes;
    const bool by_table = coll_gpusym_zero_copy_led_by_table(task) && !alike;

    p->list = NULL;
    p->kernel = gpusym_kernel_find(family, k->op, k->type);
    memset(&p->work, 0, sizeof p->work);
    p->work.peer[0] = t->host.ticket;
    p->work.op = k->op;
    p->work.type = k->type;
    bool made = NULL != m.job;
    if (made) {
        if (by_table) {
            plan_pairs(&m);
        } else {
            plan[pattern](&m);
            check_jobs(&m);
        }
        made = !m.failed && m.corrupt < 0 && place_jobs(&m, all, p);
    }
    *corrupt = m.corrupt;
    if (made) {
        set_geometry(&m, &p->work);
    }
    free(m.job);
    return made;
}

void coll_gpusym_lead_free(coll_gpusym_lead_plan_t *p)
{
    free(p->list);
    p->list = NULL;
}
