/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Benchmark: collectives of which one rank is late.
 *
 *     mpirun -n 2 --bind-to core --mca coll gpusym bench/late --csv late.csv
 *
 * Calls follow one another. The last rank lets a time pass before each tenth of them; in these the others wait for it,
 * and what they wait beyond that time is what being late costs. The nine calls between show whether a rank that has
 * waited is late itself in the next call, and so on. bench/README.md says how to read the table.
 */
#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/collectives.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "bench/timing.h"

#define USAGE                                                                                         \
    "late [--device cuda|sim] [--min BYTES] [--max BYTES] [--step FACTOR] [--calls N] [--csv FILE]\n" \
    "     [--json FILE]"

#define EVERY 10 /* so many calls, one is late */
#define CALLS_CUDA 1500
#define CALLS_SIM 100
#define CALLS_MAX 1000000

static struct {
    bench_common_t common;
    size_t calls; /* 0: by the device */
} opt = {.common = {.min = 8, .max = 128 << 10, .step = 4, .batches = BENCH_BATCHES}};

static const char *const names[] = {"allreduce", "allgather", "alltoall", "bcast"};
static const struct {
    const char *name;
    enum coll_mode mode;
} forms[] = {{"blocking", COLL_BLOCKING}, {"nonblocking", COLL_NONBLOCKING}};
static const double lateness[] = {0, 10, 30, 60, 200, 1000}; /* us */

static struct {
    double *late, *other; /* us of calls: of which a rank is late, beyond that; and of the others */
    int lates, others;
} took;

static bool is_late_rank(void)
{
    return bench_ranks - 1 == bench_rank;
}

static double now_us(void)
{
    return MPI_Wtime() * 1e6;
}

static void call_mpi(void *call)
{
    bench_call_by_mpi(call);
}

static void pass(double us)
{
    for (const double since = now_us(); now_us() - since < us;) {
    }
}

/* The first calls, whose buffers and kernels are new, do not count. */
static void time_calls(bench_call_t *c, double us)
{
    took.lates = took.others = 0;
    MPI_Barrier(bench_world);
    for (size_t i = 0; i < opt.calls + 10 * EVERY; i++) {
        const bool late = EVERY / 2 == i % EVERY, counts = i >= 10 * EVERY;
        if (late && is_late_rank()) {
            pass(us);
        }
        const double begin = now_us();
        bench_call_by_mpi(c);
        const double took_us = now_us() - begin;
        if (late && counts) {
            took.late[took.lates++] = took_us - us;
        } else if (counts) {
            took.other[took.others++] = took_us;
        }
    }
}

/* The value that so many of a hundred sorted ones do not exceed, of the rank that counts where it is largest; 0 if it
 * is less, since a rank may have begun to be late before another began to wait. */
static double percentile(const double *sorted, int n, int percent, bool counts)
{
    const double value = counts ? sorted[(size_t) (n - 1) * (size_t) percent / 100] : 0;
    return bench_max(value > 0 ? value : 0);
}

static unsigned long long measure_row(bench_call_t *c, const char *form, double us)
{
    double late[2], other[2];
    unsigned long long wrong;

    bench_prepare(c);
    time_calls(c, us);
    wrong = (unsigned long long) bench_sum((double) bench_wrong(c));
    (void) bench_median(took.late, took.lates);
    (void) bench_median(took.other, took.others);
    late[0] = percentile(took.late, took.lates, 50, !is_late_rank());
    late[1] = percentile(took.late, took.lates, 90, !is_late_rank());
    other[0] = percentile(took.other, took.others, 50, true);
    other[1] = percentile(took.other, took.others, 99, true);
    if (0 == bench_rank) {
        bench_word(-10, bench_coll_name(c->what.coll));
        bench_word(12, form);
        bench_cell(9, 0, (double) bench_coll_bytes(c->what.coll, c->what.count), false);
        bench_cell(8, 0, us, false);
        bench_cell(9, 1, late[0], false);
        bench_cell(9, 1, late[1], false);
        bench_cell(9, 1, other[0], false);
        bench_cell(9, 1, other[1], false);
        bench_cell(6, 0, (double) wrong, true);
    }
    return wrong;
}

static unsigned long long measure_size(const bench_what_t *what, const char *form)
{
    const size_t room = bench_coll_bytes(what->coll, what->count);
    void *in = bench_alloc(room), *out = bench_alloc(room);
    unsigned long long wrong = 0;
    bench_call_t c;

    bench_fill(what->coll, in, what->count, 1);
    bench_call_make(&c, what, in, out, NULL, NULL);
    bench_prepare(&c);
    bench_warm_up(&(bench_timed_t){.call = call_mpi, .arg = &c});
    for (size_t k = 0; k < sizeof lateness / sizeof lateness[0]; k++) {
        wrong += measure_row(&c, form, lateness[k]);
    }
    bench_call_drop(&c);
    bench_free(out);
    bench_free(in);
    return wrong;
}

static unsigned long long measure_all(void)
{
    unsigned long long wrong = 0;

    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        const bench_coll_t *coll = bench_coll_find(names[n]);
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
            for (size_t bytes = opt.common.min; bytes <= opt.common.max; bytes *= opt.common.step) {
                const bench_what_t what = {coll, forms[f].mode, bench_coll_only_in_place(coll),
                                           bench_coll_count(coll, bytes)};
                wrong += measure_size(&what, forms[f].name);
            }
        }
    }
    return wrong;
}

static void read_options(int argc, char **argv)
{
    static const struct option all[] = {
#define BENCH_COMMON BENCH_GETOPT
#include "bench/options.def"
        {"calls", 1, NULL, 'C'}, {NULL, 0, NULL, 0}};

    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        if ('C' == c) {
            opt.calls = bench_number(optarg, USAGE);
        } else if (!bench_common_option(&opt.common, c, optarg, USAGE)) {
            bench_refuse("usage: %s", USAGE);
        }
    }
    opt.calls = 0 != opt.calls ? opt.calls : 0 == strcmp(opt.common.device, "cuda") ? CALLS_CUDA : CALLS_SIM;
    if (optind < argc || bench_ranks < 2 || !bench_common_good(&opt.common, sizeof(float)) || opt.calls < EVERY ||
        opt.calls > CALLS_MAX) {
        bench_refuse("2 ranks or more; --min must be a multiple of %zu, --step at least 2, --calls %d to %d\nusage: %s",
                     sizeof(float), EVERY, CALLS_MAX, USAGE);
    }
}

static void print_head(void)
{
    char line[160];

    snprintf(line, sizeof(line), "%-10s %12s %9s %8s %9s %9s %9s %9s %6s", "collective", "mode", "bytes", "late us",
             "wait us", "90 %", "next us", "99 %", "wrong");
    bench_head(line, "collective,mode,bytes,late_us,wait_us,wait_90_us,next_us,next_99_us,wrong");
}

int main(int argc, char **argv)
{
    unsigned long long wrong;

    bench_init(&argc, &argv);
    opt.common.device = bench_device();
    read_options(argc, argv);
    bench_start("late", &opt.common, "collectives on GPU memory of which the last rank is late each tenth time");
    took.late = malloc((opt.calls + EVERY) * sizeof *took.late);
    took.other = malloc((opt.calls + EVERY) * sizeof *took.other);
    if (NULL == took.late || NULL == took.other) {
        bench_die("no host memory");
    }
    bench_content_open();
    bench_set_root(bench_ranks - 1);
    print_head();
    wrong = measure_all();
    bench_comment("%s", 0 == wrong ? "every element of every result is right" : "WRONG RESULTS");
    bench_content_close();
    free(took.late);
    free(took.other);
    bench_end();
    return 0 == wrong ? 0 : 1;
}
