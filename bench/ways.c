/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym, NCCL, staging: see ways.h.
 */
#include <mpi.h>
#include <stdio.h>

#include "bench/counters.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "bench/nccl.h"
#include "bench/timing.h"
#include "bench/ways.h"
#include "test/mpi/mem.h"

#define STAGED_MAX ((size_t) 64 << 20) /* bytes; beyond it staging only gets slower */

bench_way_t bench_ways[BENCH_WAYS];

static void *host_in, *host_out; /* of staging */

static void by_host(const bench_coll_t *c, const void *in, void *out, size_t count)
{
    bench_coll_by_host(c, in, out, count, host_in, host_out);
}

/* The first call on device memory: it sets up all that gpusym needs. */
static void first_call(const void *in, void *out)
{
    size_t before;
    double seconds;

    MPI_Barrier(MPI_COMM_WORLD);
    before = bench_free_memory();
    MPI_Barrier(bench_world);
    seconds = MPI_Wtime();
    MPI_Allreduce(in, out, 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    seconds = bench_max(MPI_Wtime() - seconds);
    MPI_Barrier(bench_world);
    bench_comment("gpusym: first call %.1f ms, GPU memory taken %.1f MiB a GPU", seconds * 1e3,
                  bench_max(((double) before - (double) bench_free_memory()) / 1048576));
}

void bench_ways_open(size_t bytes, bool with_nccl, bool with_staged)
{
    const size_t staged = !with_staged ? 0 : bytes < STAGED_MAX ? bytes : STAGED_MAX;
    void *in = bench_alloc(bytes), *out = bench_alloc(bytes);

    bench_content_open();
    host_in = bench_host_alloc(staged + 1);
    host_out = bench_host_alloc(staged + 1);
    bench_fill(bench_coll(0), in, bench_coll_count(bench_coll(0), 8), 1); /* two numbers for the first calls */
    first_call(in, out);
    bench_nccl_open(in, out, bytes, with_nccl);
    bench_ways[BENCH_GPUSYM] = (bench_way_t){bench_coll_by_mpi, "gpusym", in, out, bytes};
    bench_ways[BENCH_NCCL_CLASSIC] = (bench_way_t){bench_coll_by_nccl, "NCCL", in, out, bench_nccl.there ? bytes : 0};
    bench_ways[BENCH_NCCL_SYMMETRIC] = (bench_way_t){bench_coll_by_nccl, "NCCL symmetric", bench_nccl.in,
                                                     bench_nccl.out, bench_nccl.windows ? bytes : 0};
    bench_ways[BENCH_STAGED] = (bench_way_t){by_host, "staged", in, out, staged};
}

void bench_ways_close(void)
{
    bench_nccl_close();
    bench_host_free(host_out);
    bench_host_free(host_in);
    bench_content_close();
    bench_free(bench_ways[BENCH_GPUSYM].out);
    bench_free(bench_ways[BENCH_GPUSYM].in);
}

void bench_ways_fill(const bench_coll_t *c, size_t count)
{
    const unsigned seed = (unsigned) (bench_coll_bytes(c, count) * 2654435761u) ^ 0x2545f491u;

    bench_fill(c, bench_ways[BENCH_GPUSYM].in, count, seed);
    if (bench_coll_bytes(c, count) <= bench_ways[BENCH_NCCL_SYMMETRIC].max) {
        mem_write(bench_ways[BENCH_NCCL_SYMMETRIC].in, bench_ways[BENCH_GPUSYM].in, bench_coll_in_bytes(c, count));
    }
}

typedef struct {
    const bench_way_t *way;
    const bench_coll_t *coll;
    size_t count;
} timed_t;

static void timed_call(void *arg)
{
    const timed_t *t = arg;

    t->way->call(t->coll, t->way->in, t->way->out, t->count);
}

static void timed_poison(void *arg)
{
    const timed_t *t = arg;

    bench_poison(t->coll, t->way->in, t->way->out, t->count);
}

void bench_way_warm_up(const bench_way_t *w, const bench_coll_t *c)
{
    timed_t t = {w, c, 1};

    if (w->max >= bench_coll_bytes(c, 1)) {
        bench_warm_up(&(bench_timed_t){.call = timed_call, .arg = &t});
    }
}

bench_result_t bench_way_measure(const bench_way_t *w, const bench_coll_t *c, size_t count, int batches)
{
    timed_t t = {w, c, count};
    bench_result_t result = {.us = -1};
    unsigned long long wrong;

    if (bench_coll_bytes(c, count) > w->max) {
        return result;
    }
    timed_poison(&t);
    MPI_Barrier(bench_world);
    bench_counters_start();
    timed_call(&t);
    wrong = bench_wrong(c, w->out, count);
    result.us = bench_time(&(bench_timed_t){timed_call, timed_poison, &t, NULL}, batches).us;
    bench_counters_say(result.ran, sizeof(result.ran));
    wrong += bench_wrong(c, w->out, count);
    result.wrong = (unsigned long long) bench_sum((double) wrong);
    if (result.wrong > 0 && 0 == bench_rank) {
        fprintf(stderr, "WRONG: %s of %s, %zu bytes: %llu elements\n", bench_coll_name(c), w->name,
                bench_coll_bytes(c, count), result.wrong);
    }
    return result;
}
