/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym, NCCL, staging: see ways.h.
 */
#include <mpi.h>
#include <stdio.h>

#include "bench/counters.h"
#include "bench/memory.h"
#include "bench/nccl.h"
#include "bench/output.h"
#include "bench/ranks.h"
#include "bench/timing.h"
#include "bench/ways.h"
#include "test/mpi/mem.h"

#define STAGED_MAX ((size_t) 64 << 20) /* bytes; beyond it staging only gets slower */
#define USUAL_CALLS 20                 /* of which the fastest is what a call takes anyway */

bench_way_t bench_ways[BENCH_WAYS];

static void *host_in, *host_out; /* of staging */

/* The first call on device memory: it sets up all that gpusym needs. Of two numbers; what they are does not matter. */
static void time_first_call(const void *in, void *out)
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
    bench_fact("gpusym_first_call_ms", seconds * 1e3);
    if (bench_cu.there) {
        bench_fact("gpusym_memory_MiB", bench_max(((double) before - (double) bench_free_memory()) / 1048576));
    }
}

static double time_allreduce(const void *in, void *out, MPI_Comm comm)
{
    double start;

    MPI_Barrier(bench_world);
    start = MPI_Wtime();
    MPI_Allreduce(in, out, 2, MPI_FLOAT, MPI_SUM, comm);
    return bench_max(MPI_Wtime() - start);
}

/* What another communicator costs at its first call, beyond what a call takes anyway; making it is MPI's own. */
static void time_second_communicator(const void *in, void *out)
{
    MPI_Comm second;
    size_t before;
    double first, least;

    MPI_Comm_dup(MPI_COMM_WORLD, &second);
    MPI_Barrier(bench_world);
    before = bench_free_memory();
    first = least = time_allreduce(in, out, second);
    for (int i = 0; i < USUAL_CALLS; i++) {
        const double seconds = time_allreduce(in, out, second);

        least = seconds < least ? seconds : least;
    }
    bench_fact("gpusym_second_communicator_ms", (first - least) * 1e3);
    if (bench_cu.there) {
        bench_fact("gpusym_second_communicator_MiB",
                   bench_max(((double) before - (double) bench_free_memory()) / 1048576));
    }
    MPI_Comm_free(&second);
}

void bench_ways_open(size_t bytes, bool with_nccl, bool with_staged)
{
    const size_t staged = !with_staged ? 0 : bytes < STAGED_MAX ? bytes : STAGED_MAX;
    void *in = bench_alloc(bytes), *out = bench_alloc(bytes);

    bench_content_open();
    host_in = bench_host_alloc(staged + 1);
    host_out = bench_host_alloc(staged + 1);
    bench_content_poison(in, 8);
    time_first_call(in, out);
    time_second_communicator(in, out);
    bench_nccl_open(in, out, bytes, with_nccl);
    bench_ways[BENCH_GPUSYM] = (bench_way_t){bench_call_by_mpi, "gpusym", in, out, bytes};
    bench_ways[BENCH_NCCL_CLASSIC] = (bench_way_t){bench_call_by_nccl, "NCCL", in, out, bench_nccl.there ? bytes : 0};
    bench_ways[BENCH_NCCL_SYMMETRIC] = (bench_way_t){bench_call_by_nccl, "NCCL symmetric", bench_nccl.in,
                                                     bench_nccl.out, bench_nccl.windows ? bytes : 0};
    bench_ways[BENCH_STAGED] = (bench_way_t){bench_call_by_host, "staged", in, out, staged};
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

/* ---- one measurement --------------------------------------------------------------------------------------------- */

typedef struct {
    const bench_way_t *way;
    bench_call_t call;
    double gap; /* seconds of work before each call */
} timed_t;

static void run_call(void *arg)
{
    timed_t *t = arg;

    if (t->gap > 0) {
        const double start = MPI_Wtime();

        while (MPI_Wtime() - start < t->gap) {
        }
    }
    t->way->call(&t->call);
}

static void prepare_call(void *arg)
{
    bench_prepare(&((timed_t *) arg)->call);
}

static bool can_measure(const bench_way_t *w, const bench_what_t *what)
{
    return w->max >= bench_coll_bytes(what->coll, what->count) &&
           what->in_place >= bench_coll_only_in_place(what->coll) &&
           (bench_call_by_nccl != w->call || bench_coll_in_nccl(what->coll));
}

void bench_way_warm_up(const bench_way_t *w, const bench_coll_t *c)
{
    timed_t t = {.way = w};
    const bench_what_t what = {c, COLL_BLOCKING, bench_coll_only_in_place(c), 1};

    if (can_measure(w, &what)) {
        bench_call_make(&t.call, &what, w->in, w->out, host_in, host_out);
        bench_warm_up(&(bench_timed_t){.call = run_call, .arg = &t});
        bench_call_drop(&t.call);
    }
}

/* One call, timed, and its check; adds the wrong elements of this rank. */
static double time_checked_call(timed_t *t, unsigned long long *wrong)
{
    double seconds;

    prepare_call(t);
    MPI_Barrier(bench_world);
    seconds = MPI_Wtime();
    run_call(t);
    seconds = MPI_Wtime() - seconds;
    *wrong += bench_wrong(&t->call);
    return seconds;
}

/* Out of place the second check sees what the last timed calls have written. In place each call takes the result of the
 * one before: the check is of one more call. */
static bench_result_t measure(timed_t *t, int batches)
{
    const bool again = t->call.what.in_place && !bench_coll_only_in_place(t->call.what.coll);
    const bool starts = COLL_BLOCKING != t->call.what.mode && bench_call_by_mpi == t->way->call;
    bench_result_t result = {.us = -1};
    bench_time_t time;

    bench_counters_start();
    result.first_us = bench_max(time_checked_call(t, &result.wrong)) * 1e6;
    time = bench_time(&(bench_timed_t){run_call, prepare_call, t, &t->call.starting}, batches);
    bench_counters_say(result.ran, sizeof(result.ran));
    if (again) {
        time_checked_call(t, &result.wrong);
    } else {
        result.wrong += bench_wrong(&t->call);
    }
    result.us = time.us - t->gap * 1e6;
    result.starting_us = starts ? time.part_us : -1;
    result.wrong = (unsigned long long) bench_sum((double) result.wrong);
    return result;
}

bench_result_t bench_way_measure(const bench_way_t *w, const bench_what_t *what, int batches, int gap_us)
{
    timed_t t = {.way = w, .gap = gap_us * 1e-6};
    bench_result_t result = {.us = -1, .starting_us = -1, .first_us = -1};

    if (!can_measure(w, what)) {
        return result;
    }
    bench_call_make(&t.call, what, w->in, w->out, host_in, host_out);
    result = measure(&t, batches);
    bench_call_drop(&t.call);
    if (result.wrong > 0 && 0 == bench_rank) {
        fprintf(stderr, "WRONG: %s of %s, %zu bytes%s: %llu elements\n", bench_coll_name(what->coll), w->name,
                bench_coll_bytes(what->coll, what->count), what->in_place ? ", in place" : "", result.wrong);
    }
    return result;
}
