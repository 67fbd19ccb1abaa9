/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym_bench: MPI's collectives on GPU memory, blocking, nonblocking and persistent, beside what a user has
 * otherwise: NCCL, with ordinary buffers and with symmetric windows, and staging through pinned host memory. One rank a
 * GPU, one run, the same sizes and inputs.
 *
 *     mpirun -n 4 --bind-to core --mca coll gpusym gpusym_bench --coll all --csv table.csv
 *     gpusym_bench plot table.csv
 *     mpirun -n 2 --bind-to core --mca coll gpusym gpusym_bench p2p --csv p2p.csv
 *
 * Every time is the median of batches on each rank, the maximum over the ranks. Every result is compared element by
 * element. bench/README.md says how to read the table.
 *
 * Needs neither CUDA's nor NCCL's headers: memory is test/mpi/mem.c's, the few functions of the driver and of NCCL
 * are declared by hand and found by dlopen. Without NCCL, or on the simulator, those columns show "-".
 */
#include <getopt.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/brief.h"
#include "bench/collectives.h"
#include "bench/counters.h"
#include "bench/job.h"
#include "bench/p2p.h"
#include "bench/plot.h"
#include "bench/sweep.h"
#include "bench/timing.h"
#include "bench/usage.h"
#include "bench/ways.h"

#define MAX_CUDA ((size_t) 1 << 30)  /* default of --max, bytes */
#define MAX_OTHER ((size_t) 1 << 20) /* the simulator computes on the CPU */
#define SIZES_MAX 64

static const char *const mode_names[COLL_MODES] = {"blocking", "nonblocking", "persistent"};

static struct {
    bench_common_t common; /* max 0: by the device */
    const bench_coll_t *colls[BENCH_LIST_MAX];
    int ncolls;
    enum coll_mode modes[COLL_MODES];
    int nmodes;
    size_t root;
    bool no_nccl, no_staged, no_in_place, sweep;
    bool brief; /* no arguments */
    bench_sweep_t lists;
} opt = {.common = {.min = 8, .step = 4, .batches = BENCH_BATCHES},
         .nmodes = 1,
         .lists = {.algorithms = {NULL},
                   .blocks = {-1},
                   .threads = {-1},
                   .lingers = {-1},
                   .gaps = {0},
                   .nalgorithms = 1,
                   .nblocks = 1,
                   .nthreads = 1,
                   .nlingers = 1,
                   .ngaps = 1}};

/* ---- the table ------------------------------------------------------------------------------------------------------
 */

typedef struct {
    bench_result_t ways[BENCH_WAYS]; /* BENCH_GPUSYM: out of place */
    bench_result_t in_place;         /* gpusym */
} row_t;

static double find_faster(double a, double b)
{
    return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}

static void print_head(void)
{
    char line[256];

    snprintf(line, sizeof(line), "%11s %10s %6s %4s %4s %10s %8s %8s %6s %10s %8s %8s %6s %9s %10s %9s %9s %6s %s",
             "bytes", "count", "type", "op", "root", "us", "algbw", "busbw", "wrong", "us in pl.", "algbw", "busbw",
             "wrong", "start us", "staged us", "NCCL us", "NCCLsym", "ratio", "algorithm");
    bench_head(line,
               "collective,bytes,count,type,op,root,mode,us,algbw_GBs,busbw_GBs,wrong,in_place_us,in_place_algbw_GBs,"
               "in_place_busbw_GBs,in_place_wrong,start_us,staged_us,nccl_us,nccl_symmetric_us,"
               "best_nccl_over_gpusym,algorithm,first_us,wrong_of_others");
}

/* Time, bandwidths and errors of gpusym, out of place or in place. */
static void print_result(const bench_coll_t *c, size_t bytes, const bench_result_t *r)
{
    const bool there = r->us >= 0;

    bench_cell(10, 2, r->us, false);
    bench_cell(8, 3, there ? (double) bytes / r->us / 1e3 : -1, false);
    bench_cell(8, 3, there ? bench_coll_bus_bandwidth(c, bytes, r->us) : -1, false);
    bench_cell(6, 0, there ? (double) r->wrong : -1, false);
}

static void print_row(const bench_what_t *what, const row_t *row)
{
    const bench_coll_t *c = what->coll;
    const size_t bytes = bench_coll_bytes(c, what->count);
    const bench_result_t *main_one = row->ways[BENCH_GPUSYM].us >= 0 ? &row->ways[BENCH_GPUSYM] : &row->in_place;
    const double best = find_faster(row->ways[BENCH_NCCL_CLASSIC].us, row->ways[BENCH_NCCL_SYMMETRIC].us);
    unsigned long long others = 0;

    for (int w = BENCH_GPUSYM + 1; w < BENCH_WAYS; w++) {
        others += row->ways[w].wrong;
    }
    bench_word(0, bench_coll_name(c));
    bench_cell(11, 0, (double) bytes, false);
    bench_cell(10, 0, (double) what->count, false);
    bench_word(6, bench_type()->name);
    bench_word(4, bench_coll_reduces(c) ? bench_op()->name : "");
    bench_cell(4, 0, bench_coll_has_root(c) ? bench_root() : -1, false);
    bench_word(0, mode_names[what->mode]);
    print_result(c, bytes, &row->ways[BENCH_GPUSYM]);
    print_result(c, bytes, &row->in_place);
    bench_cell(9, 2, main_one->starting_us, false);
    bench_cell(10, 2, row->ways[BENCH_STAGED].us, false);
    bench_cell(9, 2, row->ways[BENCH_NCCL_CLASSIC].us, false);
    bench_cell(9, 2, row->ways[BENCH_NCCL_SYMMETRIC].us, false);
    bench_cell(6, 2, best < 0 ? -1 : best / main_one->us, false);
    bench_word(-1, main_one->ran);
    bench_cell(0, 2, main_one->first_us, false);
    bench_cell(0, 0, (double) others, true);
}

static bench_result_t measure(int way, const bench_what_t *what)
{
    if (bench_ways[way].max > 0) {
        bench_progress("%s, %s, %zu bytes%s: %s", bench_coll_name(what->coll), mode_names[what->mode],
                       bench_coll_bytes(what->coll, what->count), what->in_place ? " in place" : "",
                       bench_ways[way].name);
    }
    return bench_way_measure(&bench_ways[way], what, opt.common.batches, 0);
}

/* Returns the wrong elements of every way. `row` has what the others took, if they were measured: they have no modes.
 */
static unsigned long long measure_size(bench_what_t what, row_t *row, bool with_others)
{
    unsigned long long wrong;
    const bool one_buffer = bench_coll_only_in_place(what.coll);

    bench_ways_fill(what.coll, what.count);
    row->ways[BENCH_GPUSYM] = measure(BENCH_GPUSYM, &what);
    what.in_place = one_buffer;
    for (int w = BENCH_GPUSYM + 1; w < BENCH_WAYS && with_others; w++) {
        row->ways[w] = measure(w, &what);
    }
    what.in_place = true;
    row->in_place = opt.no_in_place && !one_buffer ? (bench_result_t){.us = -1, .starting_us = -1, .first_us = -1}
                                                   : measure(BENCH_GPUSYM, &what);
    if (0 == bench_rank) {
        print_row(&what, row);
    }
    wrong = row->in_place.wrong;
    for (int w = 0; w < BENCH_WAYS; w++) {
        wrong += w == BENCH_GPUSYM || with_others ? row->ways[w].wrong : 0;
    }
    return wrong;
}

/* One more, of a message of so many bytes. */
static void add_count(const bench_coll_t *c, size_t bytes, size_t counts[SIZES_MAX], int *n)
{
    const size_t count = bench_coll_count(c, bytes);

    if (*n < SIZES_MAX &&
        (0 == *n || count != counts[*n - 1])) { /* small ones may be the same when they are cut in blocks */
        counts[(*n)++] = count;
    }
}

/* The counts of the requested sizes, of which the largest is always one; returns how many. */
static int find_counts(const bench_coll_t *c, size_t counts[SIZES_MAX])
{
    size_t bytes = opt.common.min;
    int n = 0;

    for (int i = 0; i < opt.lists.nbytes; i++) {
        add_count(c, opt.lists.bytes[i], counts, &n);
    }
    for (bool last = opt.lists.nbytes > 0; !last && n < SIZES_MAX;) {
        last = bytes >= opt.common.max;
        add_count(c, last ? opt.common.max : bytes, counts, &n);
        bytes = last || bytes > opt.common.max / opt.common.step ? opt.common.max : bytes * opt.common.step;
    }
    return n;
}

/* The rows of one collective. */
static unsigned long long measure_collective(const bench_coll_t *c)
{
    static row_t rows[SIZES_MAX];
    size_t counts[SIZES_MAX];
    const int n = find_counts(c, counts);
    unsigned long long wrong = 0;

    bench_counters_of(bench_coll_name(c));
    for (int w = 0; w < BENCH_WAYS; w++) {
        bench_progress("%s, warming up: %s", bench_coll_name(c), bench_ways[w].name);
        bench_way_warm_up(&bench_ways[w], c);
    }
    for (int m = 0; m < opt.nmodes; m++) {
        bench_title("%s, %s", bench_coll_name(c), mode_names[opt.modes[m]]);
        for (int i = 0; i < n; i++) {
            wrong += measure_size((bench_what_t){c, opt.modes[m], false, counts[i]}, &rows[i], 0 == m);
        }
    }
    return wrong;
}

/* ---- options ------------------------------------------------------------------------------------------------------
 */

static int read_numbers(char *list, int values[BENCH_LIST_MAX])
{
    const char *items[BENCH_LIST_MAX];
    int n = bench_cut(list, items, bench_usage);

    for (int i = 0; i < n; i++) {
        size_t value = bench_number(items[i], bench_usage);

        if (value > INT_MAX) {
            bench_refuse("%s is too large", items[i]);
        }
        values[i] = (int) value;
    }
    return n;
}

static void read_bytes(char *list)
{
    const char *items[BENCH_LIST_MAX];

    opt.lists.nbytes = bench_cut(list, items, bench_usage);
    for (int i = 0; i < opt.lists.nbytes; i++) {
        opt.lists.bytes[i] = bench_number(items[i], bench_usage);
        opt.common.max = opt.lists.bytes[i] > opt.common.max ? opt.lists.bytes[i] : opt.common.max;
    }
}

static void refuse_collective(const char *name)
{
    char text[512] = "";

    for (int i = 0; NULL != bench_coll(i); i++) {
        size_t used = strlen(text);

        snprintf(text + used, sizeof(text) - used, "%s, ", bench_coll_name(bench_coll(i)));
    }
    bench_refuse("--coll %s: %sor all", name, text);
}

static void read_colls(char *list)
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
    n = bench_cut(list, items, bench_usage);
    for (; opt.ncolls < n; opt.ncolls++) {
        opt.colls[opt.ncolls] = bench_coll_find(items[opt.ncolls]);
        if (NULL == opt.colls[opt.ncolls]) {
            refuse_collective(items[opt.ncolls]);
        }
    }
}

/* In the order of mode_names, each once. */
static void read_modes(char *list)
{
    const bool everything = 0 == strcmp(list, "all");
    const char *items[BENCH_LIST_MAX];
    int n = bench_cut(list, items, bench_usage), found = 0;

    opt.nmodes = 0;
    for (int m = 0; m < COLL_MODES; m++) {
        bool requested = everything;

        for (int i = 0; i < n; i++) {
            requested = requested || 0 == strcmp(items[i], mode_names[m]);
            found += 0 == strcmp(items[i], mode_names[m]);
        }
        if (requested) {
            opt.modes[opt.nmodes++] = (enum coll_mode) m;
        }
    }
    if (!everything && found != n) {
        bench_refuse("--mode: blocking, nonblocking, persistent, or all");
    }
}

static void read_option(int c, char *value)
{
    switch (c) {
    case 'C':
        read_colls(value);
        break;
    case 'O':
        read_modes(value);
        break;
    case 't':
        if (!bench_set_type(value)) {
            bench_refuse("--type %s: %s", value, bench_type_names + 1);
        }
        break;
    case 'o':
        if (!bench_set_op(value)) {
            bench_refuse("--op %s: %s", value, bench_op_names + 1);
        }
        break;
    case 'r':
        opt.root = bench_number(value, bench_usage);
        break;
    case 'N':
        opt.no_nccl = true;
        break;
    case 'H':
        opt.no_staged = true;
        break;
    case 'I':
        opt.no_in_place = true;
        break;
    case 'P':
        bench_progress_always();
        break;
    case 'S':
        opt.sweep = true;
        break;
    case 'b':
        read_bytes(value);
        break;
    case 'a':
        opt.lists.nalgorithms = bench_cut(value, opt.lists.algorithms, bench_usage);
        break;
    case 'B':
        opt.lists.nblocks = read_numbers(value, opt.lists.blocks);
        break;
    case 'T':
        opt.lists.nthreads = read_numbers(value, opt.lists.threads);
        break;
    case 'L':
        opt.lists.nlingers = read_numbers(value, opt.lists.lingers);
        break;
    case 'G':
        opt.lists.ngaps = read_numbers(value, opt.lists.gaps);
        break;
    default:
        bench_refuse("usage: %s", bench_usage);
    }
}

static bool has_gpu(void)
{
    return 0 == strcmp(opt.common.device, "cuda");
}

static void check_options(void)
{
    const size_t e = bench_type()->bytes;

    if (0 == opt.common.max) {
        opt.common.max = opt.brief ? bench_brief_max(has_gpu()) : has_gpu() ? MAX_CUDA : MAX_OTHER;
    }
    opt.common.min = opt.common.min < e ? e : opt.common.min;
    if (!bench_common_good(&opt.common, e) || 0 != opt.common.max % e) {
        bench_refuse(
            "sizes are multiples of %zu bytes, --min at least one, --max at least --min and at most %d elements; "
            "--step is at least 2, --batches %d to %d",
            e, INT_MAX, BENCH_BATCHES_MIN, BENCH_BATCHES_MAX);
    }
    for (int i = 0; i < opt.lists.nbytes; i++) {
        if (0 == opt.lists.bytes[i] || 0 != opt.lists.bytes[i] % e) {
            bench_refuse("--bytes: multiples of %zu", e);
        }
    }
    if (opt.sweep && 0 == opt.lists.nbytes) {
        bench_refuse("--sweep wants --bytes\nusage: %s", bench_usage);
    }
    if (opt.root >= (size_t) bench_ranks || bench_ranks > COLL_PEERS) {
        bench_refuse("--root is a rank; there are at most %d", COLL_PEERS);
    }
    bench_set_root((int) opt.root);
}

static void read_options(int argc, char **argv)
{
    static const struct option all[] = {
#define BENCH_COMMON BENCH_GETOPT
#define BENCH_TABLES BENCH_GETOPT
#define BENCH_COLL BENCH_GETOPT
#define BENCH_SWEEP BENCH_GETOPT
#include "bench/options.def"
        {NULL, 0, NULL, 0}};

    opt.brief = 1 == argc;
    opt.colls[0] = bench_coll(0);
    opt.ncolls = 1;
    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        if (!bench_common_option(&opt.common, c, optarg, bench_usage)) {
            read_option(c, optarg);
        }
    }
    if (optind < argc) {
        bench_refuse("what is %s?\nusage: %s", argv[optind], bench_usage);
    }
    check_options();
}

/* ---- the whole ----------------------------------------------------------------------------------------------------
 */

/* Bytes that every requested message fits into: a block of one element a rank is the least. */
static size_t find_buffer_bytes(void)
{
    size_t least = (size_t) bench_ranks * bench_type()->bytes;

    return opt.common.max < least ? least : opt.common.max;
}

/* All measurements; returns the exit status. */
static int run(void)
{
    unsigned long long wrong = 0;
    bool done = true;

    bench_ways_open(find_buffer_bytes(), !opt.no_nccl && !opt.sweep, !opt.no_staged && !opt.sweep && !opt.brief);
    if (opt.brief) {
        wrong = bench_brief(has_gpu(), opt.common.batches);
    } else {
        (opt.sweep ? bench_sweep_head : print_head)();
    }
    for (int i = 0; i < opt.ncolls && done && !opt.brief; i++) {
        if (opt.sweep) {
            done = bench_sweep(&opt.lists, opt.colls[i], opt.common.batches, &wrong);
        } else {
            wrong += measure_collective(opt.colls[i]);
        }
    }
    bench_comment("%s", !done ? "not done" : 0 == wrong ? "every element of every result is right" : "WRONG RESULTS");
    bench_ways_close();
    return !done ? BENCH_NOT_SETTABLE : 0 == wrong ? 0 : 1;
}

/* What needs no MPI; returns if there is no such thing to do. */
static void run_other_commands(int argc, char **argv)
{
    if (argc > 1 && 0 == strcmp(argv[1], "plot")) {
        bench_plot(argv + 2);
    }
    for (int i = 1; i < argc; i++) {
        if (0 == strcmp(argv[i], "--help")) {
            bench_help();
            exit(0);
        }
    }
}

int main(int argc, char **argv)
{
    int status;

    bench_version("gpusym_bench", argc, argv);
    run_other_commands(argc, argv);
    if (argc > 1 && 0 == strcmp(argv[1], "p2p")) {
        return bench_p2p(argc, argv);
    }
    bench_init(&argc, &argv);
    opt.common.device = bench_device();
    read_options(argc, argv);
    bench_counters_open();
    if (0 == bench_counters_of("allreduce") && 0 != strcmp(opt.common.device, "host")) {
        bench_refuse(
            "gpusym was not selected by this mpirun: add --mca coll gpusym, and see that it is in the component path");
    }
    bench_start("gpusym_bench", &opt.common, "collectives on GPU memory, one call after the other");
    if (!has_gpu()) {
        bench_comment("NO GPU: %s; these times say nothing of one",
                      0 == strcmp(opt.common.device, "sim") ? "the simulator computes on the CPU" : "host memory");
    }
    status = run();
    bench_counters_close();
    bench_end();
    return status;
}
