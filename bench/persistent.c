/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Benchmark: MPI_Allreduce on GPU memory called three ways: blocking, nonblocking (MPI_Iallreduce, MPI_Wait),
 * persistent (MPI_Start, MPI_Wait); and what the starting call alone takes of a nonblocking and of a persistent one.
 *
 *     mpirun -n 4 --bind-to core --mca coll gpusym bench/persistent --csv persistent.csv
 *
 * bench/README.md says how to read the table.
 */
#include <getopt.h>
#include <limits.h>
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#include <stdio.h>
#include <string.h>

#include "bench/collectives.h"
#include "bench/counters.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "bench/timing.h"

/* Open MPI 4.1 has MPI-4's persistent collectives under another name. */
#if defined(OMPI_HAVE_MPI_EXT_PCOLLREQ) && OMPI_HAVE_MPI_EXT_PCOLLREQ
#define ALLREDUCE_INIT MPIX_Allreduce_init
#else
#define ALLREDUCE_INIT MPI_Allreduce_init
#endif

#define USAGE                                                                                                      \
    "persistent [--device cuda|sim|host] [--min BYTES] [--max BYTES] [--step FACTOR] [--batches N] [--csv FILE]\n" \
    "numbers may end in k, m or g"

static struct {
    bench_common_t common;
} opt = {.common = {.device = "cuda", .min = 8, .max = (size_t) 1 << 20, .step = 8, .batches = BENCH_BATCHES}};

typedef struct {
    const bench_coll_t *coll; /* allreduce */
    const void *in;
    void *out;
    size_t count;
    MPI_Request request; /* persistent, made before it is timed */
    double starting;     /* seconds in the starting calls */
} call_t;

static void blocking(void *arg)
{
    const call_t *c = arg;

    MPI_Allreduce(c->in, c->out, (int) c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void nonblocking(void *arg)
{
    call_t *c = arg;
    MPI_Request request;
    const double start = MPI_Wtime();

    MPI_Iallreduce(c->in, c->out, (int) c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    c->starting += MPI_Wtime() - start;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void persistent(void *arg)
{
    call_t *c = arg;
    const double start = MPI_Wtime();

    MPI_Start(&c->request);
    c->starting += MPI_Wtime() - start;
    MPI_Wait(&c->request, MPI_STATUS_IGNORE);
}

static void poison(void *arg)
{
    const call_t *c = arg;

    bench_poison(c->coll, c->in, c->out, c->count);
}

static bench_time_t measure(void (*call)(void *arg), call_t *c, unsigned long long *wrong)
{
    const bench_time_t time = bench_time(&(bench_timed_t){call, poison, c, &c->starting}, opt.common.batches);

    *wrong += bench_wrong(c->coll, c->out, c->count);
    return time;
}

static unsigned long long one_size(call_t *c)
{
    bench_time_t b, n, p;
    unsigned long long wrong = 0;
    char ran[128];

    bench_fill(c->coll, (void *) c->in, c->count, (unsigned) c->count);
    bench_counters_start();
    b = measure(blocking, c, &wrong);
    n = measure(nonblocking, c, &wrong);
    ALLREDUCE_INIT(c->in, c->out, (int) c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &c->request);
    p = measure(persistent, c, &wrong);
    MPI_Request_free(&c->request);
    bench_counters_say(ran, sizeof(ran));
    wrong = (unsigned long long) bench_sum((double) wrong);
    if (0 == bench_rank) {
        bench_cell(11, 0, (double) (c->count * sizeof(float)), false);
        bench_cell(12, 2, b.us, false);
        bench_cell(14, 2, n.us, false);
        bench_cell(13, 2, p.us, false);
        bench_cell(14, 2, n.part_us, false);
        bench_cell(10, 2, p.part_us, false);
        bench_word(12, ran);
        bench_cell(6, 0, (double) wrong, true);
    }
    return wrong;
}

static void options(int argc, char **argv)
{
    static const struct option all[] = {BENCH_COMMON_OPTIONS, {NULL, 0, NULL, 0}};
    const size_t e = sizeof(float);

    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        if (!bench_common_option(&opt.common, c, optarg, USAGE)) {
            bench_die("usage: %s", USAGE);
        }
    }
    if (optind < argc || !bench_common_good(&opt.common, e)) {
        bench_die("--min is a multiple of %zu, --step at least 2, --batches %d to %d\nusage: %s", e, BENCH_BATCHES_MIN,
                  BENCH_BATCHES_MAX, USAGE);
    }
}

static int run(void)
{
    call_t c = {.coll = bench_coll_find("allreduce"),
                .in = bench_alloc(opt.common.max),
                .out = bench_alloc(opt.common.max),
                .count = 1};
    unsigned long long wrong = 0;
    char line[160];

    bench_content_open();
    bench_fill(c.coll, (void *) c.in, c.count, 1);
    bench_warm_up(&(bench_timed_t){.call = blocking, .arg = &c});
    snprintf(line, sizeof(line), "%11s %12s %14s %13s %14s %10s %12s %6s", "bytes", "blocking us", "nonblocking us",
             "persistent us", "Iallreduce us", "Start us", "algorithm", "wrong");
    bench_head(line, "bytes,blocking_us,nonblocking_us,persistent_us,iallreduce_call_us,start_call_us,algorithm,wrong");
    for (size_t bytes = opt.common.min; bytes <= opt.common.max; bytes *= opt.common.step) {
        c.count = bytes / sizeof(float);
        wrong += one_size(&c);
    }
    bench_comment("%s", 0 == wrong ? "every element of every result is right" : "WRONG RESULTS");
    bench_content_close();
    bench_free(c.out);
    bench_free((void *) c.in);
    return 0 == wrong ? 0 : 1;
}

int main(int argc, char **argv)
{
    int status;

    bench_init(&argc, &argv);
    options(argc, argv);
    bench_counters_open();
    bench_counters_of("allreduce");
    bench_start("persistent", opt.common.device, opt.common.csv,
                "MPI_Allreduce of float32 sums: blocking, nonblocking, persistent");
    status = run();
    bench_counters_close();
    bench_end();
    return status;
}
