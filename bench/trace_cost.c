/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Benchmark: what the trace costs a small collective.
 *
 *     mpirun -n 2 --bind-to core --mca coll gpusym --mca coll_gpusym_trace /tmp/trace bench/trace_cost --csv cost.csv
 *
 * Calls with the trace and without it take turns within one job, by coll_gpusym_trace_calls: two jobs differ by more
 * than it costs. In each turn every form of every collective is called some hundred times. A resident kernel looks for
 * its command once in a round trip across PCIe: a program that makes calls one behind the other has each command come
 * at the same time of that, and a delay of 50 ns costs it nothing, or half of the round trip. So the ranks let a random
 * time pass before each call, which is not counted. --gap 0: none. bench/README.md says how to read the table.
 */
#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/collectives.h"
#include "bench/counters.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "bench/timing.h"
#include "bench/variable.h"

#define USAGE                                                                                  \
    "trace_cost [--device cuda|sim] [--min BYTES] [--max BYTES] [--step FACTOR] [--turns N]\n" \
    "           [--gap US] [--delay NS] [--csv FILE] [--json FILE]"

#define SETTLE_NS 200000000 /* records are switched on and off ten times a second */
#define CALLS_CUDA 500      /* of a turn */
#define CALLS_SIM 5
#define TURNS_CUDA 41
#define TURNS_SIM 3
#define TURNS_MAX 401
#define CELLS_MAX 64
#define GAP_US 2 /* more than a round trip across PCIe */

static struct {
    bench_common_t common;
    size_t turns;      /* 0: by the device */
    double gap, delay; /* seconds before each call: at most, not counted; and in place of a trace, counted */
} opt = {.common = {.min = 8, .max = 4096, .step = 512, .batches = BENCH_BATCHES}, .gap = GAP_US * 1e-6};

static const char *const names[] = {"allreduce", "alltoall"};
static const struct {
    const char *name;
    enum coll_mode mode;
} forms[] = {{"blocking", COLL_BLOCKING}, {"nonblocking", COLL_NONBLOCKING}, {"persistent", COLL_PERSISTENT}};

/* What a row is about, and its times. */
static struct cell {
    bench_call_t call;
    const char *form;
    double us[2][TURNS_MAX]; /* of a call: without, with */
} cells[CELLS_MAX];
static size_t ncells;

/* ---- cells ------------------------------------------------------------------------------------------------------- */

static void make_cells(void)
{
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        const bench_coll_t *coll = bench_coll_find(names[n]);
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
            for (size_t bytes = opt.common.min; bytes <= opt.common.max; bytes *= opt.common.step) {
                if (CELLS_MAX == ncells) {
                    bench_die("more than %d sizes and forms", CELLS_MAX);
                }
                struct cell *c = &cells[ncells++];
                const bench_what_t what = {coll, forms[f].mode, false, bench_coll_count(coll, bytes)};
                const size_t room = bench_coll_bytes(coll, what.count);
                void *in = bench_alloc(room), *out = bench_alloc(room);
                c->form = forms[f].name;
                bench_fill(coll, in, what.count, 1);
                bench_call_make(&c->call, &what, in, out, NULL, NULL);
                bench_prepare(&c->call);
            }
        }
    }
}

static unsigned long long drop_cells(void)
{
    unsigned long long wrong = 0;
    for (size_t i = 0; i < ncells; i++) {
        bench_call_t *call = &cells[i].call;
        wrong += bench_wrong(call);
        bench_call_drop(call);
        bench_free(call->out);
        bench_free(call->in);
    }
    return wrong;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* Returns when it has ended. */
static double spin(double seconds)
{
    const double start = MPI_Wtime();
    double now = start;
    while (now - start < seconds) {
        now = MPI_Wtime();
    }
    return now;
}

static void call_cell(struct cell *c, int calls, double delay, double *us)
{
    unsigned short seed[3] = {1, 2, 3}; /* of all ranks, which then enter a call together */
    double seconds = 0;
    for (int i = 0; i < calls / 5; i++) { /* the first launches a kernel, which then is resident */
        bench_call_by_mpi(&c->call);
    }
    MPI_Barrier(bench_world);
    for (int i = 0; i < calls; i++) {
        const double start = spin(opt.gap * erand48(seed));
        if (delay > 0) {
            (void) spin(delay);
        }
        bench_call_by_mpi(&c->call);
        seconds += MPI_Wtime() - start;
    }
    *us = seconds / calls * 1e6;
}

/* False: MPI_T cannot set it. */
static bool take_turns(const bench_variable_t *traced, int calls)
{
    static const struct timespec settle = {.tv_nsec = SETTLE_NS};
    for (size_t turn = 0; turn < opt.turns; turn++) {
        for (int on = 0; on < 2; on++) {
            if (!bench_variable_set(traced, on && opt.delay <= 0)) {
                return false;
            }
            nanosleep(&settle, NULL);
            bench_progress("turn %zu of %zu", turn + 1, opt.turns);
            for (size_t i = 0; i < ncells; i++) {
                call_cell(&cells[i], calls, on ? opt.delay : 0, &cells[i].us[on][turn]);
            }
        }
    }
    return true;
}

static void print_rows(void)
{
    for (size_t i = 0; i < ncells; i++) {
        const bench_what_t *what = &cells[i].call.what;
        double us[2];
        for (int on = 0; on < 2; on++) {
            us[on] = bench_max(bench_median(cells[i].us[on], (int) opt.turns));
        }
        if (0 == bench_rank) {
            bench_word(14, bench_coll_name(what->coll));
            bench_word(12, cells[i].form);
            bench_cell(10, 0, (double) bench_coll_bytes(what->coll, what->count), false);
            bench_cell(10, 2, us[0], false);
            bench_cell(10, 2, us[1], false);
            bench_cell(8, 3, us[1] / us[0], true);
        }
    }
}

/* ---- options and the whole --------------------------------------------------------------------------------------- */

static void read_options(int argc, char **argv)
{
    static const struct option all[] = {
#define BENCH_COMMON BENCH_GETOPT
#include "bench/options.def"
        {"turns", 1, NULL, 'T'}, {"gap", 1, NULL, 'G'}, {"delay", 1, NULL, 'D'}, {NULL, 0, NULL, 0}};

    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        if ('T' == c) {
            opt.turns = bench_number(optarg, USAGE);
        } else if ('G' == c) {
            opt.gap = (double) bench_number(optarg, USAGE) * 1e-6;
        } else if ('D' == c) {
            opt.delay = (double) bench_number(optarg, USAGE) * 1e-9;
        } else if (!bench_common_option(&opt.common, c, optarg, USAGE)) {
            bench_refuse("usage: %s", USAGE);
        }
    }
    if (0 == opt.turns) {
        opt.turns = 0 == strcmp(opt.common.device, "cuda") ? TURNS_CUDA : TURNS_SIM;
    }
    if (optind < argc || opt.turns > TURNS_MAX || !bench_common_good(&opt.common, sizeof(float))) {
        bench_refuse("--turns must be at most %d\nusage: %s", TURNS_MAX, USAGE);
    }
}

static int run(void)
{
    bench_variable_t traced = {.name = "coll_gpusym_trace_calls"};
    bench_content_open();
    bench_variable_open(&traced);
    make_cells();
    bench_head("    collective         form      bytes     off us      on us   ratio",
               "collective,form,bytes,off_us,on_us,ratio");
    const bool done = take_turns(&traced, bench_cu.there ? CALLS_CUDA : CALLS_SIM);
    if (done) {
        print_rows();
    }
    const unsigned long long wrong = (unsigned long long) bench_sum((double) drop_cells());
    bench_comment("%s", !done ? "not done" : 0 == wrong ? "every element of every result is right" : "WRONG RESULTS");
    bench_variable_close(&traced);
    bench_content_close();
    return !done ? BENCH_NOT_SETTABLE : 0 == wrong ? 0 : 1;
}

int main(int argc, char **argv)
{
    int status;

    bench_init(&argc, &argv);
    opt.common.device = bench_device();
    read_options(argc, argv);
    bench_counters_open();
    bench_start("trace_cost", &opt.common,
                opt.delay > 0 ? "collectives without and with that delay, in turns; medians, of the slowest rank"
                              : "collectives without and with the trace, in turns; medians, of the slowest rank");
    bench_comment("a random time of up to %.0f us before each call, a delay of %.0f ns in it", opt.gap * 1e6,
                  opt.delay * 1e9);
    if (opt.delay <= 0 && NULL == getenv("OMPI_MCA_coll_gpusym_trace")) {
        bench_comment("coll_gpusym_trace is not set by --mca: nothing is recorded");
    }
    status = run();
    bench_counters_close();
    bench_end();
    return status;
}
