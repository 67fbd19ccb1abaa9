/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How long a call takes: the median of batches on each rank, the maximum over the ranks. A batch is MPI_Barrier, then
 * as many calls as take about 10 ms.
 */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

#define BENCH_BATCHES_MIN 7
#define BENCH_BATCHES_MAX 101
#define BENCH_BATCHES 9 /* unless requested otherwise */

typedef struct {
    void (*call)(void *arg);        /* what is timed; collective */
    void (*before_last)(void *arg); /* before the last batch, not timed: poisons outputs, so that a check afterwards
                                     * sees what timed calls have written; NULL: nothing */
    void *arg;
    double *part; /* seconds that call() adds up for a part of itself; NULL: none */
} bench_timed_t;

typedef struct {
    double us;      /* of one call */
    double part_us; /* of that part; 0 without */
} bench_time_t;

/* Collective, on bench_world; the same result on every rank. batches: BENCH_BATCHES_MIN to _MAX. */
bench_time_t bench_time(const bench_timed_t *t, int batches);

/* Of n numbers, 1 at least, which it sorts. */
double bench_median(double *values, int n);

/* Before anything is measured: calls it for a while, so that clocks and caches come out of idleness and the first row
 * does not pay for that. Collective. */
void bench_warm_up(const bench_timed_t *t);

#endif
