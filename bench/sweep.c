/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Algorithms x blocks x threads: see sweep.h.
 */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "bench/counters.h"
#include "bench/sweep.h"
#include "bench/ways.h"

enum { ALGORITHM, BLOCKS, THREADS, VARIABLES };

typedef struct {
    char name[128];
    MPI_T_cvar_handle handle;
    MPI_T_enum choices;
} variable_t;

/* Sets *value to that of a name in an enumerated variable; false if it has no such name. */
static bool choice_value(MPI_T_enum choices, const char *wanted, int *value)
{
    char name[128];
    int n, length;

    if (MPI_T_ENUM_NULL == choices || MPI_SUCCESS != MPI_T_enum_get_info(choices, &n, NULL, &(int){0})) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        length = sizeof(name);
        if (MPI_SUCCESS == MPI_T_enum_get_item(choices, i, value, name, &length) && 0 == strcmp(name, wanted)) {
            return true;
        }
    }
    return false;
}

static void variable_open(variable_t *v)
{
    char name[128];
    int index, length = sizeof(name), verbosity, bind, scope, count;
    MPI_Datatype type;

    if (MPI_SUCCESS != MPI_T_cvar_get_index(v->name, &index) ||
        MPI_SUCCESS !=
            MPI_T_cvar_get_info(index, name, &length, &verbosity, &type, &v->choices, NULL, NULL, &bind, &scope) ||
        MPI_SUCCESS != MPI_T_cvar_handle_alloc(index, NULL, &v->handle, &count)) {
        bench_die("there is no control variable %s", v->name);
    }
    if (MPI_INT != type) {
        bench_die("%s is not of type int", v->name);
    }
}

/* Left as it is: choices of an algorithm may be negative. */
#define AS_IT_IS INT_MIN

/* On every rank. Returns whether MPI_T has set it, and reads it back to see. */
static bool variable_set(const variable_t *v, int value)
{
    int now = ~value, rc;

    if (AS_IT_IS == value) {
        return true;
    }
    rc = MPI_T_cvar_write(v->handle, &value);
    if (MPI_SUCCESS == rc) {
        rc = MPI_T_cvar_read(v->handle, &now);
    }
    if (!bench_agree(MPI_SUCCESS == rc && now == value)) {
        bench_comment("%s cannot be set by MPI_T here (error %d): give --mca parameters, a run for each combination",
                      v->name, rc);
        return false;
    }
    return true;
}

void bench_sweep_head(void)
{
    char line[160];

    snprintf(line, sizeof(line), "%20s %11s %12s %12s %6s %7s %10s %9s %6s", "collective", "bytes", "asked", "ran",
             "blocks", "threads", "us", "GB/s", "wrong");
    bench_head(line, "collective,bytes,asked,ran,blocks,threads,us,busbw_GBs,wrong");
}

/* Where no algorithm was asked for, what ran is shown. */
static unsigned long long row(const bench_coll_t *c, size_t count, int batches, const char *algorithm, int blocks,
                              int threads)
{
    const size_t bytes = bench_coll_bytes(c, count);
    const bench_what_t what = {c, COLL_BLOCKING, bench_coll_only_in_place(c), count};
    bench_result_t r = bench_way_measure(&bench_ways[BENCH_GPUSYM], &what, batches);

    if (0 == bench_rank) {
        bench_word(20, bench_coll_name(c));
        bench_cell(11, 0, (double) bytes, false);
        bench_word(12, NULL == algorithm ? "" : algorithm);
        bench_word(12, r.ran);
        bench_cell(6, 0, blocks, false);
        bench_cell(7, 0, threads, false);
        bench_cell(10, 2, r.us, false);
        bench_cell(9, 2, bench_coll_bus_bandwidth(c, bytes, r.us), false);
        bench_cell(6, 0, (double) r.wrong, true);
        if (NULL != algorithm && 0 != strcmp(algorithm, "auto") && NULL == strstr(r.ran, algorithm)) {
            bench_comment("asked for %s, but %s ran", algorithm, '\0' == *r.ran ? "none that is counted" : r.ran);
        }
    }
    return r.wrong;
}

/* All combinations at one size. Algorithms that this collective does not have are left out. */
static bool one_size(const bench_sweep_t *s, const variable_t *v, const bench_coll_t *c, size_t count, int batches,
                     unsigned long long *wrong)
{
    bench_ways_fill(c, count);
    for (int i = 0; i < s->nalgorithms * s->nblocks * s->nthreads; i++) {
        const char *algorithm = s->algorithms[i / (s->nblocks * s->nthreads)];
        int blocks = s->blocks[i / s->nthreads % s->nblocks], threads = s->threads[i % s->nthreads];
        int value = AS_IT_IS;

        if (NULL != algorithm && !choice_value(v[ALGORITHM].choices, algorithm, &value)) {
            continue;
        }
        if (!variable_set(&v[ALGORITHM], value) || !variable_set(&v[BLOCKS], blocks < 0 ? AS_IT_IS : blocks) ||
            !variable_set(&v[THREADS], threads < 0 ? AS_IT_IS : threads)) {
            return false;
        }
        *wrong += row(c, count, batches, algorithm, blocks, threads);
    }
    return true;
}

/* One line of those that were asked for and are left out. */
static void tell_missing(const bench_sweep_t *s, const variable_t *v)
{
    char text[512] = "";
    size_t used = 0;
    int value;

    for (int i = 0; i < s->nalgorithms && used < sizeof(text); i++) {
        if (NULL != s->algorithms[i] && !choice_value(v->choices, s->algorithms[i], &value)) {
            used += (size_t) snprintf(text + used, sizeof(text) - used, " %s", s->algorithms[i]);
        }
    }
    if (used > 0) {
        bench_comment("%s has no%s", v->name, text);
    }
}

bool bench_sweep(const bench_sweep_t *s, const bench_coll_t *c, int batches, unsigned long long *wrong)
{
    variable_t v[VARIABLES] = {[BLOCKS] = {.name = "coll_gpusym_blocks"}, [THREADS] = {.name = "coll_gpusym_threads"}};
    bool done = true;

    snprintf(v[ALGORITHM].name, sizeof(v[ALGORITHM].name), "coll_gpusym_%s_algorithm", bench_coll_name(c));
    for (int i = 0; i < VARIABLES; i++) {
        variable_open(&v[i]);
    }
    tell_missing(s, &v[ALGORITHM]);
    bench_counters_of(bench_coll_name(c));
    bench_way_warm_up(&bench_ways[BENCH_GPUSYM], c);
    for (int i = 0; i < s->nbytes && done; i++) {
        done = one_size(s, v, c, bench_coll_count(c, s->bytes[i]), batches, wrong);
    }
    for (int i = 0; i < VARIABLES; i++) {
        MPI_T_cvar_handle_free(&v[i].handle);
    }
    return done;
}
