/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The ways to do a collective on GPU memory that are compared, and the measurement of one of them: time, and
 * every element of the result.
 */
#ifndef BENCH_WAYS_H
#define BENCH_WAYS_H

#include <stddef.h>

#include "bench/collectives.h"

/* bench_ways[]: */
enum { BENCH_GPUSYM, BENCH_NCCL_CLASSIC, BENCH_NCCL_SYMMETRIC, BENCH_STAGED, BENCH_WAYS };

typedef struct {
    void (*call)(bench_call_t *c);
    const char *name;
    void *in, *out;
    size_t max; /* bytes of the largest message; 0: not available */
} bench_way_t;

typedef struct {
    double us;                /* of one call; -1: not measured */
    double starting_us;       /* of the call that starts it; -1: not measured, or blocking */
    double first_us;          /* of the very first call of this size, alone */
    unsigned long long wrong; /* elements, both checks, all ranks */
    char ran[128];            /* gpusym's algorithm, as rank 0 counted */
} bench_result_t;

extern bench_way_t bench_ways[BENCH_WAYS];

/* Buffers for messages of up to `bytes` (staged: up to 64 MiB, or none), NCCL if wanted; says in comment lines what the
 * first calls cost, of the first and of a second communicator. Collective. */
void bench_ways_open(size_t bytes, bool with_nccl, bool with_staged);
void bench_ways_close(void);

/* Inputs of one size, another content for every size and collective, for all ways that serve it. */
void bench_ways_fill(const bench_coll_t *c, size_t count);
/* Before a collective's first row. */
void bench_way_warm_up(const bench_way_t *w, const bench_coll_t *c);
/* Collective; the inputs are there. Wrong elements are told on stderr too. Not measured (us < 0): what a way, or MPI,
 * does not have. gap_us: microseconds for which the host is busy before each call; they are not counted. */
bench_result_t bench_way_measure(const bench_way_t *w, const bench_what_t *what, int batches, int gap_us);

#endif
