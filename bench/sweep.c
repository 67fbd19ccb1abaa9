/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Algorithms x blocks x threads x how long kernels linger x gaps between calls: see sweep.h.
 */
#include <stdio.h>
#include <string.h>

#include "bench/counters.h"
#include "bench/sweep.h"
#include "bench/variable.h"
#include "bench/ways.h"

enum { ALGORITHM, BLOCKS, THREADS, LINGER, VARIABLES };

/* One combination; of numbers -1: as the MCA parameter says. */
typedef struct {
    const char *algorithm; /* NULL: as the MCA parameter says */
    int blocks, threads, linger, gap;
} row_t;

void bench_sweep_head(void)
{
    char line[160];

    snprintf(line, sizeof(line), "%20s %11s %12s %12s %6s %7s %6s %6s %10s %9s %6s", "collective", "bytes", "asked",
             "ran", "blocks", "threads", "linger", "gap", "us", "GB/s", "wrong");
    bench_head(line, "collective,bytes,asked,ran,blocks,threads,linger_us,gap_us,us,busbw_GBs,wrong");
}

/* Where no algorithm was requested, the one that ran is shown. */
static unsigned long long measure(const row_t *row, const bench_coll_t *c, size_t count, int batches)
{
    const size_t bytes = bench_coll_bytes(c, count);
    const bench_what_t what = {c, COLL_BLOCKING, bench_coll_only_in_place(c), count};
    bench_result_t r = bench_way_measure(&bench_ways[BENCH_GPUSYM], &what, batches, row->gap);

    if (0 == bench_rank) {
        bench_word(20, bench_coll_name(c));
        bench_cell(11, 0, (double) bytes, false);
        bench_word(12, NULL == row->algorithm ? "" : row->algorithm);
        bench_word(12, r.ran);
        bench_cell(6, 0, row->blocks, false);
        bench_cell(7, 0, row->threads, false);
        bench_cell(6, 0, row->linger, false);
        bench_cell(6, 0, row->gap, false);
        bench_cell(10, 2, r.us, false);
        bench_cell(9, 2, bench_coll_bus_bandwidth(c, bytes, r.us), false);
        bench_cell(6, 0, (double) r.wrong, true);
        if (NULL != row->algorithm && 0 != strcmp(row->algorithm, "auto") && NULL == strstr(r.ran, row->algorithm)) {
            bench_comment("requested: %s, but %s ran", row->algorithm, '\0' == *r.ran ? "none that is counted" : r.ran);
        }
    }
    return r.wrong;
}

static int find_setting(int value)
{
    return value < 0 ? BENCH_AS_IT_IS : value;
}

/* Combination number i of all; the gap changes fastest. */
static row_t get_combination(const bench_sweep_t *s, int i)
{
    row_t row;

    row.gap = s->gaps[i % s->ngaps];
    i /= s->ngaps;
    row.linger = s->lingers[i % s->nlingers];
    i /= s->nlingers;
    row.threads = s->threads[i % s->nthreads];
    i /= s->nthreads;
    row.blocks = s->blocks[i % s->nblocks];
    row.algorithm = s->algorithms[i / s->nblocks];
    return row;
}

/* All combinations at one size. Algorithms that this collective does not have are left out. */
static bool sweep_size(const bench_sweep_t *s, const bench_variable_t *v, const bench_coll_t *c, size_t count,
                       int batches, unsigned long long *wrong)
{
    bench_ways_fill(c, count);
    for (int i = 0; i < s->nalgorithms * s->nblocks * s->nthreads * s->nlingers * s->ngaps; i++) {
        const row_t row = get_combination(s, i);
        int value = BENCH_AS_IT_IS;

        if (NULL != row.algorithm && !bench_variable_choice(&v[ALGORITHM], row.algorithm, &value)) {
            continue;
        }
        if (!bench_variable_set(&v[ALGORITHM], value) || !bench_variable_set(&v[BLOCKS], find_setting(row.blocks)) ||
            !bench_variable_set(&v[THREADS], find_setting(row.threads)) ||
            !bench_variable_set(&v[LINGER], find_setting(row.linger))) {
            return false;
        }
        *wrong += measure(&row, c, count, batches);
    }
    return true;
}

/* One line of those that were requested and are left out. */
static void tell_missing(const bench_sweep_t *s, const bench_variable_t *v)
{
    char text[512] = "";
    size_t used = 0;
    int value;

    for (int i = 0; i < s->nalgorithms && used < sizeof(text); i++) {
        if (NULL != s->algorithms[i] && !bench_variable_choice(v, s->algorithms[i], &value)) {
            used += (size_t) snprintf(text + used, sizeof(text) - used, " %s", s->algorithms[i]);
        }
    }
    if (used > 0) {
        bench_comment("%s has no%s", v->name, text);
    }
}

bool bench_sweep(const bench_sweep_t *s, const bench_coll_t *c, int batches, unsigned long long *wrong)
{
    bench_variable_t v[VARIABLES] = {[BLOCKS] = {.name = "coll_gpusym_blocks"},
                                     [THREADS] = {.name = "coll_gpusym_threads"},
                                     [LINGER] = {.name = "coll_gpusym_linger"}};
    bool done = true;

    snprintf(v[ALGORITHM].name, sizeof(v[ALGORITHM].name), "coll_gpusym_%s_algorithm", bench_coll_name(c));
    for (int i = 0; i < VARIABLES; i++) {
        bench_variable_open(&v[i]);
    }
    tell_missing(s, &v[ALGORITHM]);
    bench_counters_of(bench_coll_name(c));
    bench_way_warm_up(&bench_ways[BENCH_GPUSYM], c);
    for (int i = 0; i < s->nbytes && done; i++) {
        done = sweep_size(s, v, c, bench_coll_count(c, s->bytes[i]), batches, wrong);
    }
    for (int i = 0; i < VARIABLES; i++) {
        bench_variable_close(&v[i]);
    }
    return done;
}
