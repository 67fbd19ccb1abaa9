/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Tables: see print.h.
 */
#include "info/trace/print.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Times, in ns. */
typedef struct {
    int64_t *ns;
    size_t n;
} sample_t;

/* Calls of one collective, form and size. */
typedef struct {
    const trace_call_t *like;
    uint64_t bytes, collectives;
    sample_t time, waited; /* of each call */
    sample_t moving;       /* of each collective of which it is known */
    sample_t gpu;          /* of each call whose kernel has told */
    uint64_t *last;        /* [files] how often each rank came last */
    uint64_t lasts;
    bool ways_differ;
} row_t;

/* A rank. */
typedef struct {
    uint64_t last, of;       /* of so many collectives of several ranks it came last */
    double waited_for;       /* ns, sum over the other ranks */
    double waited, in_calls; /* ns */
} rank_t;

const char *trace_mpi_name(const char *coll, char *name, size_t size)
{
    snprintf(name, size, "MPI_%s", coll);
    if (strlen(name) > 4) {
        name[4] = (char) toupper((unsigned char) name[4]);
    }
    return name;
}

/* How it was carried out, in a word. */
static const char *way_of(const trace_call_t *c)
{
    return '\0' != c->algorithm[0]                                   ? c->algorithm
           : 0 != strcmp(c->way, "whole") && 0 != strcmp(c->way, "") ? c->way
           : '\0' != c->reason[0]                                    ? "staged"
           : '\0' != c->way[0]                                       ? "forwarded"
                                                                     : "-";
}

/* ---- by collective and size ---- */

typedef struct {
    row_t *row;
    size_t rows;
} table_t;

static row_t *find_row(table_t *table, const trace_t *t, const trace_call_t *c, uint64_t bytes)
{
    for (size_t i = 0; i < table->rows; i++) {
        row_t *r = &table->row[i];
        if (bytes == r->bytes && 0 == strcmp(c->coll, r->like->coll) && 0 == strcmp(c->form, r->like->form)) {
            return r;
        }
    }
    table->row = trace_memory(table->row, (table->rows + 1) * sizeof *table->row);
    table->row[table->rows] =
        (row_t){.like = c, .bytes = bytes, .last = trace_memory(NULL, t->files * sizeof(uint64_t))};
    return &table->row[table->rows++];
}

static void add_time(sample_t *s, int64_t ns)
{
    if (0 == (s->n & (s->n - 1))) {
        s->ns = trace_memory(s->ns, (0 == s->n ? 1 : 2 * s->n) * sizeof *s->ns);
    }
    s->ns[s->n++] = ns;
}

static void add_group(table_t *table, const trace_t *t, const trace_group_t *g)
{
    row_t *r = find_row(table, t, &t->call[g->first], g->bytes);
    r->collectives++;
    for (size_t i = g->first; i < g->first + g->n; i++) {
        const trace_call_t *c = &t->call[i];
        if (0 != c->at.returned) {
            add_time(&r->time, c->at.returned - c->at.entered);
        }
        if (0 != c->at.gpu_begin) {
            add_time(&r->gpu, c->at.gpu_end - c->at.gpu_begin);
        }
        if (g->whole) {
            add_time(&r->waited, trace_waited(g, c));
        }
        r->ways_differ = r->ways_differ || 0 != strcmp(way_of(c), way_of(r->like));
    }
    if (g->whole && 0 != g->moving) {
        add_time(&r->moving, g->moving);
    }
    if (g->whole && g->n > 1) {
        r->last[t->call[g->first + g->last].file]++;
        r->lasts++;
    }
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *) a, y = *(const int64_t *) b;
    return (x > y) - (x < y);
}

/* The median, in us; a minus sign where there are no times. Frees them. */
static void put_median(sample_t *s, char *text, size_t size, int64_t *median)
{
    *median = 0;
    snprintf(text, size, "-");
    if (s->n > 0) {
        qsort(s->ns, s->n, sizeof *s->ns, by_number);
        *median = s->ns[s->n / 2];
        snprintf(text, size, "%.1f", (double) *median / 1e3);
    }
    free(s->ns);
}

static int by_size(const void *a, const void *b)
{
    const row_t *x = a, *y = b;
    const int coll = strcmp(x->like->coll, y->like->coll), form = strcmp(x->like->form, y->like->form);
    return 0 != coll ? coll : 0 != form ? form : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static void print_row(const trace_t *t, row_t *r)
{
    char name[64], last[48] = "-", time[16], waiting[16], moving[16], gpu[16], rate[16] = "-";
    int64_t median;
    uint32_t most = 0;
    for (uint32_t i = 0; i < t->files; i++) {
        most = r->last[i] > r->last[most] ? i : most;
    }
    if (r->lasts > 0) {
        snprintf(last, sizeof last, "%d (%.0f %%)", t->file[most].rank,
                 100.0 * (double) r->last[most] / (double) r->lasts);
    }
    put_median(&r->time, time, sizeof time, &median);
    put_median(&r->waited, waiting, sizeof waiting, &median);
    put_median(&r->gpu, gpu, sizeof gpu, &median);
    put_median(&r->moving, moving, sizeof moving, &median);
    if (median > 0) {
        snprintf(rate, sizeof rate, "%.2f", (double) r->bytes / (double) median);
    }
    printf("%-26s %-11s %11llu %8llu %10s %10s %10s %10s %8s  %-12s %s%s\n",
           trace_mpi_name(r->like->coll, name, sizeof name), r->like->form, (unsigned long long) r->bytes,
           (unsigned long long) r->collectives, time, waiting, moving, gpu, rate, last, way_of(r->like),
           r->ways_differ ? ", ..." : "");
}

static void print_sizes(const trace_t *t)
{
    table_t table = {0};
    for (size_t i = 0; i < t->groups; i++) {
        add_group(&table, t, &t->group[i]);
    }
    qsort(table.row, table.rows, sizeof *table.row, by_size);
    printf("%-26s %-11s %11s %8s %10s %10s %10s %10s %8s  %-12s %s\n", "collective", "form", "bytes", "calls", "us",
           "waiting us", "moving us", "GPU us", "GB/s", "last rank", "algorithm");
    for (size_t i = 0; i < table.rows; i++) {
        print_row(t, &table.row[i]);
        free(table.row[i].last);
    }
    free(table.row);
}

/* ---- by rank ---- */

static void add_ranks(const trace_t *t, rank_t *rank)
{
    for (size_t k = 0; k < t->groups; k++) {
        const trace_group_t *g = &t->group[k];
        for (size_t i = g->first; i < g->first + g->n; i++) {
            const trace_call_t *c = &t->call[i];
            rank_t *r = &rank[c->file];
            r->in_calls += 0 != c->at.returned ? (double) (c->at.returned - c->at.entered) : 0;
            r->waited += g->whole ? (double) trace_waited(g, c) : 0;
            r->of += g->whole && g->n > 1;
        }
        if (g->whole && g->n > 1) {
            rank[t->call[g->first + g->last].file].last++;
            rank[t->call[g->first + g->last].file].waited_for += g->waited;
        }
    }
}

static void print_ranks(const trace_t *t)
{
    rank_t *rank = trace_memory(NULL, t->files * sizeof *rank);
    uint32_t slowest = 0;
    add_ranks(t, rank);
    printf("\n%-6s %-20s %-34s %8s %10s %12s %12s %14s\n", "rank", "host", "GPU", "calls", "last in", "in calls ms",
           "waiting ms", "waited for ms");
    for (uint32_t i = 0; i < t->files; i++) {
        const trace_file_t *f = &t->file[i];
        printf("%-6d %-20s %-34s %8llu %8.0f %% %12.3f %12.3f %14.3f\n", f->rank, f->host,
               '\0' != f->gpu[0] ? f->gpu : "-", (unsigned long long) f->calls,
               rank[i].of > 0 ? 100.0 * (double) rank[i].last / (double) rank[i].of : 0.0, rank[i].in_calls / 1e6,
               rank[i].waited / 1e6, rank[i].waited_for / 1e6);
        slowest = rank[i].waited_for > rank[slowest].waited_for ? i : slowest;
    }
    if (rank[slowest].last > 0 && rank[slowest].waited_for > 0) {
        printf("\nslowest rank: %d, last in %llu of %llu collectives; the other ranks waited %.3f ms for it\n",
               t->file[slowest].rank, (unsigned long long) rank[slowest].last, (unsigned long long) rank[slowest].of,
               rank[slowest].waited_for / 1e6);
    }
    free(rank);
}

/* ---- what else there is to say ---- */

typedef struct {
    const char *reason;
    uint64_t calls;
} reason_t;

static void print_reasons(const trace_t *t)
{
    reason_t *reason = NULL;
    size_t reasons = 0;
    for (size_t i = 0; i < t->calls; i++) {
        size_t k = 0;
        if ('\0' == t->call[i].reason[0]) {
            continue;
        }
        while (k < reasons && 0 != strcmp(reason[k].reason, t->call[i].reason)) {
            k++;
        }
        if (k == reasons) {
            reason = trace_memory(reason, (reasons + 1) * sizeof *reason);
            reason[reasons++] = (reason_t){.reason = t->call[i].reason};
        }
        reason[k].calls++;
    }
    for (size_t k = 0; k < reasons; k++) {
        printf("%sstaged through the host: %llu calls, %s\n", 0 == k ? "\n" : "", (unsigned long long) reason[k].calls,
               reason[k].reason);
    }
    free(reason);
}

static void print_failures(const trace_t *t)
{
    char name[64];
    uint64_t failed = 0, open = 0;
    for (size_t i = 0; i < t->calls; i++) {
        const trace_call_t *c = &t->call[i];
        if (0 != c->error && failed++ < 8) {
            printf("%serror %d: rank %d, %s, call %llu of %s\n", 1 == failed ? "\n" : "", c->error,
                   t->file[c->file].rank, trace_mpi_name(c->coll, name, sizeof name), (unsigned long long) c->seq,
                   c->comm);
        }
        open += 0 == c->at.returned;
    }
    if (failed > 8) {
        printf("errors: %llu more\n", (unsigned long long) (failed - 8));
    }
    if (open > 0) {
        printf("%llu calls have not ended\n", (unsigned long long) open);
    }
}

static void print_files(const trace_t *t)
{
    for (uint32_t i = 0; i < t->files; i++) {
        const trace_file_t *f = &t->file[i];
        if (!f->ended) {
            printf("rank %d: the end is missing in %s: the process did not end MPI, or still uses it\n", f->rank,
                   f->path);
        }
        if (f->lost > 0) {
            printf("rank %d: %llu calls are not in the trace: too many others were in flight\n", f->rank,
                   (unsigned long long) f->lost);
        }
        if (f->bad > 0) {
            printf("rank %d: %llu lines of %s cannot be read\n", f->rank, (unsigned long long) f->bad, f->path);
        }
    }
    if (t->hosts > 1 && t->clock_error >= 0) {
        printf("clocks of the hosts agree within %.1f us\n", (double) t->clock_error / 1e3);
    } else if (t->hosts > 1) {
        printf("clocks of the hosts: as they were set; times of different hosts may not be comparable\n");
    }
}

void trace_print_tables(const trace_t *t)
{
    printf("%u rank%s on %u host%s, %zu calls of %zu collectives in %.3f ms\n\n", t->files, 1 == t->files ? "" : "s",
           t->hosts, 1 == t->hosts ? "" : "s", t->calls, t->groups, (double) (t->end - t->begin) / 1e6);
    if (t->calls > 0) {
        print_sizes(t);
        print_ranks(t);
    }
    print_reasons(t);
    print_failures(t);
    print_files(t);
}
