/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Benchmark: MPI's collectives on GPU memory beside what a user has otherwise: NCCL, with ordinary buffers and with
 * symmetric windows, and staging through pinned host memory.  One rank a GPU, one run, the same sizes and inputs.
 *
 *     mpirun -n 4 --bind-to core --mca coll gpusym bench/collectives_nccl --coll all --csv table.csv
 *
 * Every time is that of a blocking call: the median of batches on each rank, the maximum over the ranks.  Every
 * result is compared element by element.  bench/README.md says how to read the table.
 *
 * Needs neither CUDA's nor NCCL's headers: memory is test/mpi/mem.c's, the few functions of the driver and of NCCL
 * are declared by hand and found by dlopen.  Without NCCL, or on the simulator, those columns show "-".
 */
#include <getopt.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "bench/collectives.h"
#include "bench/counters.h"
#include "bench/job.h"
#include "bench/sweep.h"
#include "bench/timing.h"
#include "bench/ways.h"

#define USAGE                                                                                                   \
    "collectives_nccl [--coll LIST|all] [--device cuda|sim|host] [--min BYTES] [--max BYTES] [--step FACTOR]\n" \
    "               [--type float|double] [--batches N] [--no-nccl] [--no-staged] [--csv FILE]\n"               \
    "       collectives_nccl --sweep --bytes LIST [--algorithms LIST] [--blocks LIST] [--threads LIST] ...\n"   \
    "numbers may end in k, m or g; lists are separated by commas"

#define MAX_CUDA ((size_t) 1 << 30)  /* default of --max, bytes */
#define MAX_OTHER ((size_t) 1 << 20) /* the simulator computes on the CPU */

static struct {
    bench_common_t common; /* max 0: by the device */
    const bench_coll_t *colls[BENCH_LIST_MAX];
    int ncolls;
    bool is_double, no_nccl, no_staged, sweep;
    bench_sweep_t lists;
} opt = {
    .common = {.device = "cuda", .min = 8, .step = 4, .batches = BENCH_BATCHES},
    .lists = {.algorithms = {NULL}, .blocks = {-1}, .threads = {-1}, .nalgorithms = 1, .nblocks = 1, .nthreads = 1}};

/* ---- the table ------------------------------------------------------------------------------------------------------
 */

static double faster(double a, double b)
{
    return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}

static void table_head(void)
{
    char line[200];

    snprintf(line, sizeof(line), "%14s %11s %10s %9s %10s %10s %11s %6s %12s %6s", "collective", "bytes", "gpusym us",
             "GB/s", "NCCL us", "NCCLsym us", "staged us", "ratio", "algorithm", "wrong");
    bench_head(line, "collective,bytes,gpusym_us,gpusym_busbw_GBs,nccl_us,nccl_symmetric_us,staged_us,"
                     "best_nccl_over_gpusym,algorithm,wrong");
}

/* Returns the wrong elements of every way. */
static unsigned long long one_size(const bench_coll_t *c, size_t count)
{
    const size_t bytes = bench_coll_bytes(c, count);
    bench_result_t r[BENCH_WAYS];
    unsigned long long wrong = 0;
    double best;

    bench_ways_fill(c, count);
    for (int w = 0; w < BENCH_WAYS; w++) {
        r[w] = bench_way_measure(&bench_ways[w], c, count, opt.common.batches);
        wrong += r[w].wrong;
    }
    if (0 == bench_rank) {
        best = faster(r[BENCH_NCCL_CLASSIC].us, r[BENCH_NCCL_SYMMETRIC].us);
        bench_word(14, bench_coll_name(c));
        bench_cell(11, 0, (double) bytes, false);
        bench_cell(10, 2, r[BENCH_GPUSYM].us, false);
        bench_cell(9, 2, bench_coll_bus_bandwidth(c, bytes, r[BENCH_GPUSYM].us), false);
        bench_cell(10, 2, r[BENCH_NCCL_CLASSIC].us, false);
        bench_cell(10, 2, r[BENCH_NCCL_SYMMETRIC].us, false);
        bench_cell(11, 2, r[BENCH_STAGED].us, false);
        bench_cell(6, 2, best < 0 ? -1 : best / r[BENCH_GPUSYM].us, false);
        bench_word(12, r[BENCH_GPUSYM].ran);
        bench_cell(6, 0, (double) r[BENCH_GPUSYM].wrong, true);
    }
    return wrong;
}

/* The rows of one collective. */
static unsigned long long table(const bench_coll_t *c)
{
    unsigned long long wrong = 0;
    size_t last = 0;

    bench_counters_of(bench_coll_gpusym_name(c));
    for (int w = 0; w < BENCH_WAYS; w++) {
        bench_way_warm_up(&bench_ways[w], c);
    }
    for (size_t bytes = opt.common.min; bytes <= opt.common.max;) {
        size_t count = bench_coll_count(c, bytes);

        if (count != last) { /* small messages may be the same when they are cut in blocks */
            wrong += one_size(c, count);
        }
        last = count;
        if (bytes < opt.common.max &&
            bytes > opt.common.max / opt.common.step) { /* the largest asked for is always measured */
            bytes = opt.common.max;
        } else {
            bytes *= opt.common.step;
        }
    }
    return wrong;
}

/* ---- options ------------------------------------------------------------------------------------------------------
 */

static int numbers(char *list, int values[BENCH_LIST_MAX])
{
    const char *items[BENCH_LIST_MAX];
    int n = bench_cut(list, items, USAGE);

    for (int i = 0; i < n; i++) {
        size_t value = bench_number(items[i], USAGE);

        if (value > INT_MAX) {
            bench_die("%s is too large", items[i]);
        }
        values[i] = (int) value;
    }
    return n;
}

static void byte_list(char *list)
{
    const char *items[BENCH_LIST_MAX];

    opt.lists.nbytes = bench_cut(list, items, USAGE);
    for (int i = 0; i < opt.lists.nbytes; i++) {
        opt.lists.bytes[i] = bench_number(items[i], USAGE);
        opt.common.max = opt.lists.bytes[i] > opt.common.max ? opt.lists.bytes[i] : opt.common.max;
    }
}

static void coll_list(char *list)
{
    const char *items[BENCH_LIST_MAX];
    int n;

    opt.ncolls = 0;
    if (0 == strcmp(list, "all")) {
        for (; NULL != bench_coll(opt.ncolls); opt.ncolls++) {
            opt.colls[opt.ncolls] = bench_coll(opt.ncolls);
        }
        return;
    }
    n = bench_cut(list, items, USAGE);
    for (; opt.ncolls < n; opt.ncolls++) {
        opt.colls[opt.ncolls] = bench_coll_find(items[opt.ncolls]);
        if (NULL == opt.colls[opt.ncolls]) {
            bench_die("--coll %s: allreduce, allgather, reduce_scatter, bcast, reduce, alltoall, or all",
                      items[opt.ncolls]);
        }
    }
}

static void element_type(const char *name)
{
    opt.is_double = 0 == strcmp(name, "double");
    if (!opt.is_double && 0 != strcmp(name, "float")) {
        bench_die("--type %s: float or double", name);
    }
    bench_elements(opt.is_double);
}

static void option(int c, char *value)
{
    switch (c) {
    case 'C':
        coll_list(value);
        break;
    case 'N':
        opt.no_nccl = true;
        break;
    case 'H':
        opt.no_staged = true;
        break;
    case 'S':
        opt.sweep = true;
        break;
    case 'b':
        byte_list(value);
        break;
    case 'a':
        opt.lists.nalgorithms = bench_cut(value, opt.lists.algorithms, USAGE);
        break;
    case 'B':
        opt.lists.nblocks = numbers(value, opt.lists.blocks);
        break;
    case 'T':
        opt.lists.nthreads = numbers(value, opt.lists.threads);
        break;
    case 't':
        element_type(value);
        break;
    default:
        bench_die("usage: %s", USAGE);
    }
}

static void check_sizes(void)
{
    size_t e = bench_element_bytes();

    opt.common.max =
        0 == opt.common.max ? (0 == strcmp(opt.common.device, "cuda") ? MAX_CUDA : MAX_OTHER) : opt.common.max;
    if (!bench_common_good(&opt.common, e) || 0 != opt.common.max % e) {
        bench_die("sizes are multiples of %zu bytes, --min at least one, --max at least --min and at most %d elements; "
                  "--step is at least 2, --batches %d to %d",
                  e, INT_MAX, BENCH_BATCHES_MIN, BENCH_BATCHES_MAX);
    }
    for (int i = 0; i < opt.lists.nbytes; i++) {
        if (0 == opt.lists.bytes[i] || 0 != opt.lists.bytes[i] % e) {
            bench_die("--bytes: multiples of %zu", e);
        }
    }
    if (opt.sweep != (opt.lists.nbytes > 0)) {
        bench_die("--sweep and --bytes go together\nusage: %s", USAGE);
    }
}

static void options(int argc, char **argv)
{
    static const struct option all[] = {
        BENCH_COMMON_OPTIONS,         {"type", 1, NULL, 't'},   {"no-nccl", 0, NULL, 'N'},
        {"no-staged", 0, NULL, 'H'},  {"sweep", 0, NULL, 'S'},  {"bytes", 1, NULL, 'b'},
        {"algorithms", 1, NULL, 'a'}, {"blocks", 1, NULL, 'B'}, {"threads", 1, NULL, 'T'},
        {"coll", 1, NULL, 'C'},       {NULL, 0, NULL, 0}};

    opt.colls[0] = bench_coll(0);
    opt.ncolls = 1;
    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        if (!bench_common_option(&opt.common, c, optarg, USAGE)) {
            option(c, optarg);
        }
    }
    if (optind < argc) {
        bench_die("what is %s?\nusage: %s", argv[optind], USAGE);
    }
    check_sizes();
}

/* ---- the whole ----------------------------------------------------------------------------------------------------
 */

/* Bytes that every message asked for fits into: a block of one element a rank is the least. */
static size_t buffer_bytes(void)
{
    size_t least = (size_t) bench_ranks * bench_element_bytes();

    return opt.common.max < least ? least : opt.common.max;
}

/* All measurements; returns the exit status. */
static int run(void)
{
    unsigned long long wrong = 0;
    bool done = true;

    bench_ways_open(buffer_bytes(), !opt.no_nccl && !opt.sweep, !opt.no_staged && !opt.sweep);
    (opt.sweep ? bench_sweep_head : table_head)();
    for (int i = 0; i < opt.ncolls && done; i++) {
        if (opt.sweep) {
            done = bench_sweep(&opt.lists, opt.colls[i], opt.common.batches, &wrong);
        } else {
            wrong += table(opt.colls[i]);
        }
    }
    bench_comment("%s", !done ? "not done" : 0 == wrong ? "every element of every result is right" : "WRONG RESULTS");
    bench_ways_close();
    return !done ? BENCH_NOT_SETTABLE : 0 == wrong ? 0 : 1;
}

int main(int argc, char **argv)
{
    int status;

    bench_init(&argc, &argv);
    options(argc, argv);
    bench_counters_open();
    if (0 == bench_counters_of("allreduce") && 0 != strcmp(opt.common.device, "host")) {
        bench_die(
            "gpusym was not selected by this mpirun: add --mca coll gpusym, and see that it is in the component path");
    }
    bench_start("collectives_nccl", opt.common.device, opt.common.csv,
                opt.is_double ? "float64, sums, out of place (bcast in place), blocking"
                              : "float32, sums, out of place (bcast in place), blocking");
    status = run();
    bench_counters_close();
    bench_end();
    return status;
}
