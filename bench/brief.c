/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * See brief.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/brief.h"
#include "bench/output.h"
#include "bench/ranks.h"

#define SIZES 5
#define WIDTH 15 /* of a column */

static const char *const names[] = {"allreduce", "allgather", "reduce_scatter_block", "bcast", "reduce", "alltoall"};
#define COLLECTIVES ((int) (sizeof(names) / sizeof(names[0])))

/* 0 ends a list. */
static const size_t gpu_sizes[SIZES + 1] = {8, 4 << 10, 128 << 10, 2 << 20, 32 << 20};
static const size_t other_sizes[SIZES + 1] = {8, 1 << 10, 32 << 10, 1 << 20};

static const size_t *sizes_of(bool with_gpu)
{
    return with_gpu ? gpu_sizes : other_sizes;
}

size_t bench_brief_max(bool with_gpu)
{
    size_t max = 0;

    for (const size_t *bytes = sizes_of(with_gpu); 0 != *bytes; bytes++) {
        max = *bytes > max ? *bytes : max;
    }
    return max;
}

/* The faster of NCCL's two, -1 without NCCL; adds their wrong elements. */
static double measure_nccl(const bench_what_t *what, int batches, unsigned long long *wrong)
{
    double best = -1;

    for (int w = BENCH_NCCL_CLASSIC; w <= BENCH_NCCL_SYMMETRIC; w++) {
        const bench_result_t r = bench_way_measure(&bench_ways[w], what, batches, 0);

        *wrong += r.wrong;
        best = r.us >= 0 && (best < 0 || r.us < best) ? r.us : best;
    }
    return best;
}

/* A row, with its cells so far. */
typedef struct {
    char text[256];
    size_t used;
} row_t;

__attribute__((format(printf, 2, 3))) static void add(row_t *row, const char *format, ...)
{
    va_list ap;
    int n;

    va_start(ap, format);
    n = vsnprintf(row->text + row->used, sizeof(row->text) - row->used, format, ap);
    va_end(ap);
    row->used += n > 0 && (size_t) n < sizeof(row->text) - row->used ? (size_t) n : 0;
}

/* Three significant digits, for the eye. */
static int digits_of(double us)
{
    return us < 10 ? 2 : us < 100 ? 1 : 0;
}

static void add_cell(row_t *row, double us, double nccl)
{
    row_t cell = {.used = 0};

    add(&cell, "%.*f", digits_of(us), us);
    if (nccl >= 0) {
        add(&cell, " (%.*f)", digits_of(nccl), nccl);
    }
    add(row, " %*s", WIDTH, cell.text);
}

static void print_head(void)
{
    row_t row = {.used = 0};

    bench_title("\nTime of a blocking call in us%s", bench_ways[BENCH_NCCL_CLASSIC].max > 0
                                                         ? "; in brackets NCCL's, the faster of its two kinds of buffer"
                                                         : "");
    add(&row, "%10s", "bytes");
    for (int i = 0; i < COLLECTIVES; i++) {
        add(&row, " %*s", WIDTH, 0 == strcmp(names[i], "reduce_scatter_block") ? "reduce_scatter" : names[i]);
    }
    bench_title("%s", row.text);
}

static void warm_up(void)
{
    for (int i = 0; i < COLLECTIVES; i++) {
        bench_progress("%s, warming up", names[i]);
        for (int w = BENCH_GPUSYM; w <= BENCH_NCCL_SYMMETRIC; w++) {
            bench_way_warm_up(&bench_ways[w], bench_coll_find(names[i]));
        }
    }
}

/* Returns the wrong elements. */
static unsigned long long measure_row(size_t bytes, int batches)
{
    unsigned long long wrong = 0;
    row_t row = {.used = 0};

    add(&row, "%10zu", bytes);
    for (int i = 0; i < COLLECTIVES; i++) {
        const bench_coll_t *c = bench_coll_find(names[i]);
        const bench_what_t what = {c, COLL_BLOCKING, bench_coll_only_in_place(c), bench_coll_count(c, bytes)};
        bench_result_t r;

        bench_progress("%s, %zu bytes", names[i], bytes);
        bench_ways_fill(c, what.count);
        r = bench_way_measure(&bench_ways[BENCH_GPUSYM], &what, batches, 0);
        wrong += r.wrong;
        add_cell(&row, r.us, measure_nccl(&what, batches, &wrong));
    }
    bench_title("%s", row.text);
    return wrong;
}

unsigned long long bench_brief(bool with_gpu, int batches)
{
    unsigned long long wrong = 0;

    warm_up();
    print_head();
    for (const size_t *bytes = sizes_of(with_gpu); 0 != *bytes; bytes++) {
        wrong += measure_row(*bytes, batches);
    }
    bench_title("\ngpusym_bench --coll LIST|all measures more; bandwidths, all columns, CSV: gpusym_bench --help\n");
    return wrong;
}
