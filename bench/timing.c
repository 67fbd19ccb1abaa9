/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Batches and medians: see timing.h.
 */
#include <mpi.h>
#include <stdlib.h>

#include "bench/ranks.h"
#include "bench/timing.h"

#define BATCH_SECONDS 0.01  /* a batch takes about so long */
#define WARM_UP_SECONDS 0.2 /* before the first row */
#define CALLS_MIN 2         /* calls of a batch */
#define CALLS_MAX 200

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}

double bench_median(double *values, int n)
{
    qsort(values, (size_t) n, sizeof(double), compare_doubles);
    return values[n / 2];
}

/* Seconds of n calls, after a barrier. */
static double time_batch(const bench_timed_t *t, int n)
{
    double start;

    MPI_Barrier(bench_world);
    start = MPI_Wtime();
    for (int i = 0; i < n; i++) {
        t->call(t->arg);
    }
    return MPI_Wtime() - start;
}

/* Calls of a batch, from the time of a few; alike on every rank. */
static int find_batch_calls(const bench_timed_t *t)
{
    double seconds = bench_max(time_batch(t, CALLS_MIN)) / CALLS_MIN;
    double calls = BATCH_SECONDS / (seconds > 1e-9 ? seconds : 1e-9);

    return calls < CALLS_MIN ? CALLS_MIN : calls > CALLS_MAX ? CALLS_MAX : (int) calls;
}

bench_time_t bench_time(const bench_timed_t *t, int batches)
{
    const int calls = find_batch_calls(t);
    double seconds[BENCH_BATCHES_MAX] = {0}, part[BENCH_BATCHES_MAX] = {0};
    bench_time_t time;

    for (int b = 0; b < batches; b++) {
        if (batches - 1 == b && NULL != t->before_last) {
            t->before_last(t->arg);
        }
        if (NULL != t->part) {
            *t->part = 0;
        }
        seconds[b] = time_batch(t, calls) / calls;
        part[b] = NULL == t->part ? 0 : *t->part / calls;
    }
    time.us = bench_max(bench_median(seconds, batches)) * 1e6;
    time.part_us = bench_max(bench_median(part, batches)) * 1e6;
    return time;
}

void bench_warm_up(const bench_timed_t *t)
{
    const double start = MPI_Wtime();

    while (bench_max(MPI_Wtime() - start) < WARM_UP_SECONDS) {
        time_batch(t, CALLS_MAX);
    }
}
