/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Every combination of algorithms, blocks, threads, how long kernels linger, and the host's work between two calls, at
 * some sizes: gpusym's parameters, set by MPI_T between calls.
 */
#ifndef BENCH_SWEEP_H
#define BENCH_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/collectives.h"
#include "bench/job.h"

/* Lists; an algorithm NULL, or a number -1: as the MCA parameter says. */
typedef struct {
    const char *algorithms[BENCH_LIST_MAX];
    int blocks[BENCH_LIST_MAX], threads[BENCH_LIST_MAX];
    int lingers[BENCH_LIST_MAX]; /* microseconds that a kernel lingers */
    int gaps[BENCH_LIST_MAX];    /* microseconds of work on the host before each call, never -1 */
    size_t bytes[BENCH_LIST_MAX];
    int nalgorithms, nblocks, nthreads, nlingers, ngaps, nbytes;
} bench_sweep_t;

void bench_sweep_head(void);
/* The rows of one collective; adds wrong elements to *wrong. bench_ways are open. Collective. Returns false, with a
 * comment line, where MPI_T cannot set the parameters. */
bool bench_sweep(const bench_sweep_t *s, const bench_coll_t *c, int batches, unsigned long long *wrong);

#endif
