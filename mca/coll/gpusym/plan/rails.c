/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls of several islands: see rails.h.
 */
#include "mca/coll/gpusym/plan/rails.h"

#include <stdlib.h>
#include <string.h>

#include "mca/coll/gpusym/team/rails.h"

/* Slices of a message are not shorter, unless it is cut in two at most. */
#define SLICE_MIN (64u << 10)
/* Short messages that go directly, in one step, to up to GPUSYM_RAIL_DIRECT_MAX islands; beyond, and a little longer
 * ones, along a tree. In direct pieces: what an island sends to all others. */
#define DIRECT_PIECES 8u

static const coll_gpusym_facts_t *facts_of(const coll_gpusym_task_t *task)
{
    return &coll_gpusym_facts[coll_gpusym_task_coll(task)];
}

static bool is_among_all(unsigned pattern)
{
    return COLL_GPUSYM_P_ALLTOALL == pattern || COLL_GPUSYM_P_GATHER == pattern || COLL_GPUSYM_P_SCATTER == pattern ||
           COLL_GPUSYM_P_NEIGHBORS == pattern;
}

bool coll_gpusym_rails_may(const coll_gpusym_args_t *a)
{
    switch (coll_gpusym_facts[a->coll].pattern) {
    case COLL_GPUSYM_P_ALLREDUCE:
    case COLL_GPUSYM_P_ROOTED:
    case COLL_GPUSYM_P_ALLGATHER:
    case COLL_GPUSYM_P_REDUCE_SCATTER:
    case COLL_GPUSYM_P_GATHER:
    case COLL_GPUSYM_P_SCATTER:
    case COLL_GPUSYM_P_ALLTOALL:
    case COLL_GPUSYM_P_NEIGHBORS:
    case COLL_GPUSYM_P_SCAN:
        return true;
    default:
        return false;
    }
}

/* Whether the members of each island are ranks one behind the other, and so the islands in rank order. */
static bool are_in_order(const gpusym_islands_t *islands)
{
    bool ordered = true;
    for (uint32_t i = 0; i < islands->nislands; i++) {
        const uint32_t size = gpusym_island_size(islands, i);
        ordered =
            ordered && gpusym_island_member(islands, i, size - 1) - gpusym_island_member(islands, i, 0) == size - 1;
    }
    return ordered;
}

bool coll_gpusym_rails_can(const coll_gpusym_task_t *task)
{
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    const unsigned pattern = facts_of(task)->pattern;
    if (is_among_all(pattern)) {
        return 0 != (t->rails & COLL_GPUSYM_HOSTS_ALL);
    }
    if (COLL_GPUSYM_P_SCAN == pattern) {
        return are_in_order(&t->islands);
    }
    /* Blocks of other islands have one place in all outputs of this one. */
    return COLL_GPUSYM_P_ALLGATHER != pattern || task->read.same_layout;
}

/* ---- parts ---- */

/* The rank on an island whose own data go by a rail; -1: none. */
static int rank_by(const coll_gpusym_team_t *t, uint32_t rail, uint32_t island)
{
    const uint32_t size = gpusym_island_size(&t->islands, island), rails = coll_gpusym_hosts_rails(t);
    const uint32_t owner = gpusym_rail_owner(size, rail, rails);
    return rail == gpusym_rail_first(size, owner, rails) ? (int) gpusym_island_member(&t->islands, island, owner) : -1;
}

static gpusym_rail_part_t part_received(const void *arg, uint32_t pos)
{
    const coll_gpusym_leg_t *leg = arg;
    const int rank = rank_by(leg->plan->team, leg->rail, pos);
    const gpusym_table_row_t *row = rank >= 0 ? &leg->plan->row[rank] : NULL;
    return NULL != row ? (gpusym_rail_part_t){row->recv_off, row->recv_bytes} : (gpusym_rail_part_t){0, 0};
}

static gpusym_rail_part_t part_sent(const void *arg, uint32_t pos)
{
    const coll_gpusym_leg_t *leg = arg;
    const int rank = rank_by(leg->plan->team, leg->rail, pos);
    const gpusym_table_row_t *row = rank >= 0 ? &leg->plan->row[rank] : NULL;
    return NULL != row ? (gpusym_rail_part_t){row->send_off, row->send_bytes} : (gpusym_rail_part_t){0, 0};
}

static gpusym_rail_part_t part_for_rank(const void *arg, uint32_t rank)
{
    const gpusym_table_row_t *row = &((const coll_gpusym_leg_t *) arg)->plan->row[rank];
    return (gpusym_rail_part_t){row->send_off, row->send_bytes};
}

static gpusym_rail_part_t part_from_rank(const void *arg, uint32_t rank)
{
    const gpusym_table_row_t *row = &((const coll_gpusym_leg_t *) arg)->plan->row[rank];
    return (gpusym_rail_part_t){row->recv_off, row->recv_bytes};
}

/* The longest part of a rail. */
static uint64_t longest_of(const coll_gpusym_leg_t *leg, gpusym_rail_part_t (*part)(const void *arg, uint32_t pos))
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < leg->plan->team->islands.nislands; i++) {
        const uint64_t bytes = part(leg, i).bytes;
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

/* ---- legs ---- */

static coll_gpusym_leg_t *add_leg(coll_gpusym_rails_plan_t *p, const coll_gpusym_task_t *task, uint32_t rail)
{
    coll_gpusym_leg_t *leg = &p->leg[p->nlegs++];
    const coll_gpusym_segments_t *k = task->segments;
    leg->plan = p;
    leg->rail = rail;
    leg->call = (gpusym_rail_call_t){.op = k->op,
                                     .type = k->type,
                                     .arg = leg,
                                     .call = (uint32_t) task->read.seq,
                                     .reduces = false,
                                     .own = k->out_local && 1 == p->team->host.nranks};
    return leg;
}

static char *behind(const void *p, uint64_t off)
{
    return NULL != p ? (char *) (uintptr_t) p + off : NULL;
}

/* Gives a leg all members' buffers, `off` bytes behind their beginnings: the list of further ones has all, with those
 * that are not there, where the order of the members counts. */
static void set_buffers(coll_gpusym_rails_plan_t *p, coll_gpusym_leg_t *leg, uint64_t off)
{
    const size_t i = (size_t) (leg - p->leg);
    gpusym_rail_call_t *c = &leg->call;
    c->nin = p->nin;
    c->nout = p->nout;
    c->more_in = p->more_in[i];
    c->more_out = p->more_out[i];
    for (uint32_t m = 0; m < c->nin; m++) {
        p->more_in[i][m] = behind(p->in[m], off);
    }
    for (uint32_t m = 0; m < c->nout; m++) {
        p->more_out[i][m] = behind(p->out[m], off);
    }
}

/* Whether a tree does the leg, and then what a tree wants. */
static bool goes_by_tree(coll_gpusym_leg_t *leg, bool reduces)
{
    const coll_gpusym_team_t *t = leg->plan->team;
    leg->call.reduces = reduces;
    leg->call.rooted = !reduces;
    return gpusym_rail_tree_fits(&leg->call, t->islands.nislands, coll_gpusym_hosts_piece(t));
}

/* The bytes of a message that goes to all or is reduced as one: by several rails, by one if it is short. */
static void plan_whole(coll_gpusym_rails_plan_t *p, const coll_gpusym_task_t *task)
{
    const coll_gpusym_team_t *t = p->team;
    const coll_gpusym_args_t *a = task->segments->args;
    const bool reduces = facts_of(task)->reduces, rooted = COLL_GPUSYM_P_ROOTED == facts_of(task)->pattern;
    const bool scans = COLL_GPUSYM_P_SCAN == facts_of(task)->pattern;
    const uint64_t bytes = task->segments->bytes, rails = coll_gpusym_hosts_rails(t), parts = bytes / SLICE_MIN;
    const uint64_t used = parts < 1 ? 1 : parts < rails ? parts : rails;
    const uint64_t span = ((bytes + used - 1) / used + 127) / 128 * 128;
    const uint32_t n = t->islands.nislands;
    const uint32_t root = scans ? n - 1 : rooted ? gpusym_islands_find(&t->islands, (uint32_t) a->root) : 0;
    const uint64_t piece = GPUSYM_RAIL_DIRECT_BYTES(coll_gpusym_hosts_piece(t));
    const bool direct = !scans && bytes <= piece && n <= GPUSYM_RAIL_DIRECT_MAX && n * bytes <= DIRECT_PIECES * piece;
    uint32_t first, end;
    coll_gpusym_hosts_own(t, &first, &end);
    for (uint32_t r = first; r < end && r < used && r * span < bytes; r++) {
        coll_gpusym_leg_t *leg = add_leg(p, task, r);
        const uint64_t left = bytes - r * span;
        set_buffers(p, leg, r * span);
        leg->call.bytes = left < span ? left : span;
        leg->call.root = root;
        if (direct) {
            leg->call.form = GPUSYM_RAIL_DIRECT;
            leg->call.spread = true;
            leg->call.reduces = reduces;
            leg->call.rooted = rooted && !reduces;
        } else if (!scans && goes_by_tree(leg, reduces)) {
            leg->call.form = GPUSYM_RAIL_TREE;
        } else if (scans) {
            leg->call.form = GPUSYM_RAIL_PATH;
            leg->call.schedule = GS_CHAIN_REDUCE;
            leg->call.scan = COLL_GPUSYM_EXSCAN == a->coll ? GPUSYM_RAIL_EXSCAN : GPUSYM_RAIL_SCAN;
        } else {
            leg->call.form = GPUSYM_RAIL_PATH;
            leg->call.schedule = !rooted ? GS_RING_ALLREDUCE : reduces ? GS_CHAIN_REDUCE : GS_CHAIN_BCAST;
        }
    }
}

/* Each rank's block, or its part of what is reduced, by the rail of that rank. */
static void plan_parts(coll_gpusym_rails_plan_t *p, const coll_gpusym_task_t *task,
                       const coll_gpusym_led_buffers_t *all)
{
    const coll_gpusym_team_t *t = p->team;
    const uint32_t me = t->host.rank;
    const bool reduces = facts_of(task)->reduces;
    uint32_t first, end;
    coll_gpusym_hosts_own(t, &first, &end);
    for (uint32_t r = first; r < end; r++) {
        coll_gpusym_leg_t *leg = add_leg(p, task, r);
        gpusym_rail_call_t *c = &leg->call;
        set_buffers(p, leg, 0);
        c->form = GPUSYM_RAIL_PATH;
        if (reduces) {
            c->schedule = GS_RING_REDUCE_SCATTER;
            c->part = part_sent;
            c->out = r == first ? all->out[me] : NULL;
            c->nout = 0;
        } else {
            c->schedule = GS_RING_ALLGATHER;
            c->part = part_received;
            c->in = r == first ? all->in[me] : NULL;
            c->nin = 0;
        }
        c->bytes = longest_of(leg, c->part);
        const bool direct = !reduces && t->islands.nislands <= GPUSYM_RAIL_DIRECT_MAX &&
                            c->bytes <= GPUSYM_RAIL_DIRECT_BYTES(coll_gpusym_hosts_piece(t));
        if (direct) {
            c->form = GPUSYM_RAIL_DIRECT;
            c->spread = true;
            c->from = part_received;
            c->bytes = part_received(leg, t->island).bytes;
        }
        p->nlegs -= 0 == c->bytes && !direct;
    }
}

/* From each rank to each. */
static void plan_among_all(coll_gpusym_rails_plan_t *p, const coll_gpusym_task_t *task,
                           const coll_gpusym_led_buffers_t *all)
{
    const uint32_t me = p->team->host.rank;
    if (NULL == all->in[me] && NULL == all->out[me]) { /* nothing is sent from here, or to here */
        return;
    }
    coll_gpusym_leg_t *leg = add_leg(p, task, coll_gpusym_hosts_rails(p->team));
    leg->call.form = GPUSYM_RAIL_DIRECT;
    leg->call.in = all->in[me];
    leg->call.out = all->out[me];
    leg->call.part = part_for_rank;
    leg->call.from = part_from_rank;
}

/* The members' buffers, in their order. */
static void list_buffers(coll_gpusym_rails_plan_t *p, const coll_gpusym_task_t *task,
                         const coll_gpusym_led_buffers_t *all)
{
    const coll_gpusym_team_t *t = p->team;
    const bool bcast = COLL_GPUSYM_BCAST == coll_gpusym_task_coll(task);
    const bool scans = COLL_GPUSYM_P_SCAN == facts_of(task)->pattern;
    const uint32_t root = (uint32_t) task->segments->args->root;
    for (uint32_t m = 0; m < t->host.nranks; m++) {
        const bool is_root = bcast && coll_gpusym_team_member(t, m) == root;
        if (scans || (NULL != all->in[m] && (!bcast || is_root))) {
            p->in[p->nin++] = all->in[m];
        }
        if (scans || (NULL != all->out[m] && !is_root)) {
            p->out[p->nout++] = all->out[m];
        }
    }
}

/* Whether no leg is a path: all begin before the islands have agreed. */
static bool is_direct(const coll_gpusym_rails_plan_t *p)
{
    for (uint32_t i = 0; i < p->nlegs; i++) {
        if (GPUSYM_RAIL_PATH == p->leg[i].call.form) {
            return false;
        }
    }
    return true;
}

coll_gpusym_rails_plan_t *coll_gpusym_rails_make(const coll_gpusym_task_t *task, const coll_gpusym_led_buffers_t *all)
{
    const unsigned pattern = facts_of(task)->pattern;
    const bool whole =
        COLL_GPUSYM_P_ALLREDUCE == pattern || COLL_GPUSYM_P_ROOTED == pattern || COLL_GPUSYM_P_SCAN == pattern;
    const coll_gpusym_segments_t *k = task->segments;
    coll_gpusym_rails_plan_t *p = malloc(sizeof *p); /* most of its 24 KiB is not used */
    if (NULL == p) {
        return NULL;
    }
    p->team = coll_gpusym_task_team(task);
    p->nlegs = p->nin = p->nout = 0;
    p->row = whole ? NULL : malloc(k->nranks * sizeof *p->row);
    if (!whole && NULL == p->row) {
        free(p);
        return NULL;
    }
    list_buffers(p, task, all);
    if (!whole) {
        coll_gpusym_segments_rows(k, p->row);
    }
    if (whole) {
        plan_whole(p, task);
    } else if (is_among_all(pattern)) {
        plan_among_all(p, task, all);
    } else {
        plan_parts(p, task, all);
    }
    p->direct = is_direct(p);
    return p;
}

void coll_gpusym_rails_free(coll_gpusym_rails_plan_t *plan)
{
    if (NULL != plan) {
        free(plan->row);
        free(plan);
    }
}
