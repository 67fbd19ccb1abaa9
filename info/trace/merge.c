/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The calls of all ranks by one clock, and what is known of each collective: see read.h.
 *
 * Processes of one host have one monotonic clock. Between hosts the collectives themselves tell how the clocks differ:
 * where each rank needs data of all others, none returns before the last one has come. Each such call bounds the
 * difference from one side on either host, to within the time that the shortest call takes. Where that tells nothing,
 * the hosts' clocks of the day are taken as they are.
 *
 * A GPU has a clock of its own. A kernel begins after this rank has posted the call, or all have, and ends before MPI
 * returns: a few calls that follow each other bound the difference from both sides, to some microseconds.
 */
#include "info/trace/read.h"

#include <stdlib.h>
#include <string.h>

static int by_collective(const void *a, const void *b)
{
    const trace_call_t *x = a, *y = b;
    const int id = strcmp(x->id, y->id);
    if (0 != id) {
        return id;
    }
    return x->seq != y->seq ? (x->seq > y->seq) - (x->seq < y->seq)
                            : (x->comm_rank > y->comm_rank) - (x->comm_rank < y->comm_rank);
}

static int by_time(const void *a, const void *b)
{
    const trace_group_t *x = a, *y = b;
    return x->came != y->came ? (x->came > y->came) - (x->came < y->came)
                              : (x->first > y->first) - (x->first < y->first);
}

/* ---- the clocks of GPUs ---- */

/* Calls that tell how a GPU's clock differs. */
#define GPU_CALLS 64u

/* The host's clock less that of the GPU: at least and at most. */
typedef struct {
    int64_t least, most;
} bounds_t;

static bool has_gpu_times(const trace_call_t *c)
{
    return 0 != c->at.gpu_begin && 0 != c->at.gpu_end && 0 != c->at.posted && 0 != c->at.returned;
}

/* No kernel begins before. */
static int64_t before_kernel(const trace_call_t *c)
{
    return 0 == strcmp(c->by, "launch") && 0 != c->at.there ? c->at.there : c->at.posted;
}

/* The times of the GPU in calls first to end - 1, of one file, by its host's clock. */
static void set_gpu_times(trace_t *t, size_t first, size_t end)
{
    bounds_t b = {INT64_MIN, INT64_MAX};
    for (size_t i = first; i < end; i++) {
        const trace_call_t *c = &t->call[i];
        if (has_gpu_times(c)) {
            const int64_t least = before_kernel(c) - c->at.gpu_begin, most = c->at.returned - c->at.gpu_end;
            b.least = least > b.least ? least : b.least;
            b.most = most < b.most ? most : b.most;
        }
    }
    for (size_t i = first; i < end; i++) {
        trace_times_t *at = &t->call[i].at;
        const bool told = has_gpu_times(&t->call[i]);
        const int64_t begin = told ? at->gpu_begin + b.least + (b.most - b.least) / 2 : 0;
        const int64_t finish = told ? at->gpu_end + b.least + (b.most - b.least) / 2 : 0;
        const bool known = begin > 0 && begin < TRACE_HOST_MAX && finish > 0 && finish < TRACE_HOST_MAX;
        at->gpu_begin = known ? begin : 0;
        at->gpu_end = known ? finish : 0;
    }
}

static void set_gpu_clocks(trace_t *t)
{
    for (size_t first = 0, i = 0, n = 0; i < t->calls; i++) {
        const bool ends = i + 1 == t->calls || t->call[i].file != t->call[i + 1].file;
        n += has_gpu_times(&t->call[i]);
        if (ends || GPU_CALLS == n) {
            set_gpu_times(t, first, i + 1);
            first = i + 1;
            n = 0;
        }
    }
}

/* ---- clocks of hosts ---- */

static void number_hosts(trace_t *t)
{
    for (uint32_t i = 0; i < t->files; i++) {
        uint32_t j = 0;
        while (j < i && 0 != strcmp(t->file[i].host, t->file[j].host)) {
            j++;
        }
        t->file[i].host_number = j == i ? t->hosts++ : t->file[j].host_number;
    }
}

/* Whether no rank can return before all have come. */
static bool needs_all(const trace_call_t *c)
{
    static const char *const names[] = {"allreduce", "allgather", "allgatherv", "alltoall", "reduce_scatter_block"};
    bool is = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        is = is || 0 == strcmp(names[i], c->coll);
    }
    return is && 0 == c->error && 0 != c->bytes;
}

/* bounds: the clock of a host less that of the first. */
static void bound(bounds_t *b, const trace_call_t *there, const trace_call_t *first)
{
    const int64_t least = trace_came(there) - first->at.returned, most = there->at.returned - trace_came(first);
    b->least = least > b->least ? least : b->least;
    b->most = most < b->most ? most : b->most;
}

static void bound_hosts(const trace_t *t, bounds_t *bounds)
{
    for (size_t g = 0; g < t->groups; g++) {
        const trace_group_t *group = &t->group[g];
        for (size_t i = 0; i < group->n * group->n && group->n > 1; i++) {
            const trace_call_t *a = &t->call[group->first + i / group->n], *b = &t->call[group->first + i % group->n];
            const uint32_t host = t->file[a->file].host_number;
            if (0 != host && 0 == t->file[b->file].host_number && needs_all(a) && 0 != a->at.returned &&
                0 != b->at.returned) {
                bound(&bounds[host], a, b);
            }
        }
    }
}

/* By their clocks of the day; 0 where these cannot be right. */
static int64_t by_day(const trace_t *t, uint32_t host)
{
    const trace_file_t *f = &t->file[0], *of = f;
    for (uint32_t i = 0; i < t->files; i++) {
        of = host == t->file[i].host_number ? &t->file[i] : of;
    }
    const int64_t by = (f->realtime[0] - f->monotonic[0]) - (of->realtime[0] - of->monotonic[0]);
    return by > -TRACE_HOST_MAX && by < TRACE_HOST_MAX ? by : 0;
}

static void shift(int64_t *time, int64_t by)
{
    *time -= 0 != *time ? by : 0;
}

static void set_clocks(trace_t *t)
{
    bounds_t *bounds = trace_memory(NULL, t->hosts * sizeof *bounds);
    int64_t *off = trace_memory(NULL, t->hosts * sizeof *off);
    for (uint32_t h = 0; h < t->hosts; h++) {
        bounds[h] = (bounds_t){INT64_MIN, INT64_MAX};
    }
    bound_hosts(t, bounds);
    t->clock_error = 0;
    for (uint32_t h = 1; h < t->hosts; h++) {
        const bounds_t *b = &bounds[h];
        const bool known = INT64_MIN != b->least && INT64_MAX != b->most && b->least <= b->most;
        const int64_t error = known ? (b->most - b->least) / 2 : -1;
        off[h] = known ? b->least + error : by_day(t, h);
        t->clock_error = error < 0 || t->clock_error < 0 ? -1 : error > t->clock_error ? error : t->clock_error;
    }
    for (size_t i = 0; i < t->calls; i++) {
        trace_times_t *at = &t->call[i].at;
        const int64_t by = off[t->file[t->call[i].file].host_number];
        int64_t *const all[] = {&at->entered,   &at->posted,  &at->there,   &at->launched,
                                &at->gpu_begin, &at->gpu_end, &at->returned};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
            shift(all[k], by);
        }
    }
    free(off);
    free(bounds);
}

/* ---- collectives ---- */

/* Calls of two ranks of one communicator, in their order. */
static bool is_same(const trace_call_t *a, const trace_call_t *b)
{
    return '\0' != a->id[0] && 0 == strcmp(a->id, b->id) && a->seq == b->seq && a->comm_rank < b->comm_rank;
}

static void sort(void *from, size_t n, size_t bytes, int (*compare)(const void *, const void *))
{
    if (n > 0) { /* else there may be no memory */
        qsort(from, n, bytes, compare);
    }
}

static void group_calls(trace_t *t)
{
    sort(t->call, t->calls, sizeof *t->call, by_collective);
    t->group = trace_memory(NULL, t->calls * sizeof *t->group);
    for (size_t i = 0; i < t->calls; i++) {
        if (0 == i || !is_same(&t->call[i - 1], &t->call[i])) {
            t->group[t->groups++] = (trace_group_t){.first = i};
        }
        t->group[t->groups - 1].n++;
    }
}

static void find_latest(const trace_t *t, trace_group_t *g)
{
    for (size_t i = g->first; i < g->first + g->n; i++) {
        const trace_call_t *c = &t->call[i];
        g->bytes = c->bytes > g->bytes ? c->bytes : g->bytes;
        if (0 == g->came || trace_came(c) > g->came) {
            g->came = trace_came(c);
            g->last = (uint32_t) (i - g->first);
        }
    }
}

static void judge_group(const trace_t *t, trace_group_t *g)
{
    const trace_call_t *first = &t->call[g->first];
    int64_t returned = 0;
    bool ended = true;
    g->whole = '\0' != first->id[0] && (int) g->n == first->comm_size;
    find_latest(t, g);
    for (size_t i = g->first; i < g->first + g->n; i++) {
        const trace_call_t *c = &t->call[i];
        const int64_t waited = trace_waited(g, c);
        g->waited += (double) waited;
        g->longest = waited > g->longest ? waited : g->longest;
        returned = c->at.returned > returned ? c->at.returned : returned;
        ended = ended && 0 != c->at.returned && 0 == c->error;
    }
    g->moving = ended && returned > g->came ? returned - g->came : 0;
}

void trace_merge(trace_t *t)
{
    number_hosts(t);
    set_gpu_clocks(t);
    group_calls(t);
    set_clocks(t);
    for (size_t i = 0; i < t->groups; i++) {
        judge_group(t, &t->group[i]);
    }
    sort(t->group, t->groups, sizeof *t->group, by_time);
    for (size_t i = 0; i < t->calls; i++) {
        const trace_call_t *c = &t->call[i];
        t->begin = 0 == i || c->at.entered < t->begin ? c->at.entered : t->begin;
        t->end = 0 == i || trace_end_of(c) > t->end ? trace_end_of(c) : t->end;
    }
}
