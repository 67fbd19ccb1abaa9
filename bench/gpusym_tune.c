/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym_tune: measures which algorithms, blocks and threads are best on the machine that it runs on, and writes a file
 * of rules (docs/algorithms.md), for this number of ranks on such GPUs.
 *
 *     mpirun -n 4 --bind-to core --mca coll gpusym gpusym_tune --out rules.json
 *
 * Parameters are set by MPI_T between calls. In the end each size is measured again, by the table and by the rules.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/counters.h"
#include "bench/job.h"
#include "bench/timing.h"
#include "bench/tune.h"
#include "bench/ways.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/rules/rules.h"
#include "mca/common/gpusym/topo/links.h"

#include "config.h"

#define MAX_CUDA ((size_t) 64 << 20) /* default of --max, bytes */
#define MAX_SIM ((size_t) 256 << 10)
#define POINTS_MAX 1024u
#define AGAIN_SHARE 0.15 /* of the time, for measuring again */

static const char usage[] =
#define TUNE_LINE(arguments, text) "gpusym_tune " arguments "\n       "
#include "bench/options.def"
    "gpusym_tune --help, --version";

static struct {
    bench_common_t common; /* max 0: by the device */
    const bench_coll_t *colls[BENCH_LIST_MAX];
    int ncolls;
    const char *out; /* NULL: by GPU and ranks */
    size_t margin;   /* percent */
    size_t seconds;
} opt = {.common = {.min = 8, .step = 4, .batches = BENCH_BATCHES}, .margin = 3, .seconds = 600};

static bench_gpus_t gpus;

static bench_point_t points[POINTS_MAX];
static unsigned npoints;

/* ---- options ---- */

static void read_colls(char *list)
{
    const char *items[BENCH_LIST_MAX];

    opt.ncolls = bench_cut(list, items, usage);
    for (int i = 0; i < opt.ncolls; i++) {
        opt.colls[i] = bench_coll_find(items[i]);
        if (NULL == opt.colls[i]) {
            bench_refuse("--coll %s: no such collective\nusage: %s", items[i], usage);
        }
    }
}

static void read_option(int c, char *value)
{
    switch (c) {
    case 'o':
        opt.out = value;
        break;
    case 'C':
        read_colls(value);
        break;
    case 't':
        if (!bench_set_type(value)) {
            bench_refuse("--type %s: %s", value, bench_type_names + 1);
        }
        break;
    case 'p':
        if (0 == strcmp(value, "user") || !bench_set_op(value)) {
            bench_refuse("--op %s: sum, prod, max or min", value);
        }
        break;
    case 'g':
        opt.margin = bench_number(value, usage);
        break;
    case 'l':
        opt.seconds = bench_number(value, usage);
        break;
    default:
        bench_refuse("usage: %s", usage);
    }
}

static void check_options(void)
{
    const size_t e = bench_type()->bytes;
    const bool sim = 0 == strcmp(opt.common.device, "sim");

    if (!sim && 0 != strcmp(opt.common.device, "cuda")) {
        bench_refuse("there is no GPU to tune for: coll_gpusym_device is none");
    }
    if (0 == opt.common.max) {
        opt.common.max = sim ? MAX_SIM : MAX_CUDA;
    }
    opt.common.min = opt.common.min < e ? e : opt.common.min;
    if (!bench_common_good(&opt.common, e) || 0 != opt.common.max % e) {
        bench_refuse("sizes must be multiples of %zu bytes, --max at least --min, --step at least 2", e);
    }
    if (bench_ranks < 2 || bench_ranks > GPUSYM_TEAM_MAX || bench_ranks > COLL_PEERS) {
        bench_refuse("kernels serve 2 to %d ranks of a host", GPUSYM_TEAM_MAX);
    }
    if (!GPUSYM_HAVE_JANSSON) {
        bench_refuse("this gpusym was built without jansson: it could not read rules");
    }
}

static void read_options(int argc, char **argv)
{
    static const struct option all[] = {
#define TUNE BENCH_GETOPT
#include "bench/options.def"
        {NULL, 0, NULL, 0}};

    for (; NULL != bench_coll(opt.ncolls); opt.ncolls++) {
        opt.colls[opt.ncolls] = bench_coll(opt.ncolls);
    }
    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        if (!(NULL != strchr("dmMs", c) && bench_common_option(&opt.common, c, optarg, usage))) {
            read_option(c, optarg);
        }
    }
    if (optind < argc) {
        bench_refuse("unexpected argument %s\nusage: %s", argv[optind], usage);
    }
    check_options();
}

/* ---- points ---- */

/* The sizes of a collective, of which the largest is always one; small ones may be the same. */
static void add_points(const bench_coll_t *coll)
{
    const unsigned first = npoints;
    size_t bytes = opt.common.min;

    for (bool last = false; !last;) {
        last = bytes >= opt.common.max;
        const size_t count = bench_coll_count(coll, last ? opt.common.max : bytes);
        if (POINTS_MAX == npoints) {
            bench_die("more than %u sizes", POINTS_MAX);
        }
        if (npoints == first || points[npoints - 1].count != count) {
            points[npoints++] = (bench_point_t){.coll = coll, .count = count, .bytes = bench_coll_bytes(coll, count)};
        }
        bytes = last || bytes > opt.common.max / opt.common.step ? opt.common.max : bytes * opt.common.step;
    }
}

static void find_points(void)
{
    for (int i = 0; i < opt.ncolls; i++) {
        add_points(opt.colls[i]);
    }
}

static size_t find_most_bytes(void)
{
    size_t most = (size_t) bench_ranks * bench_type()->bytes;

    for (unsigned i = 0; i < npoints; i++) {
        most = points[i].bytes > most ? points[i].bytes : most;
    }
    return most;
}

/* ---- the job ---- */

/* Rules for the communicators that are set up from now on. */
static void set_rules(const char *where)
{
    MPI_T_cvar_handle handle;
    int index, count;
    char name[] = "coll_gpusym_rules";

    if (MPI_SUCCESS != MPI_T_cvar_get_index(name, &index) ||
        MPI_SUCCESS != MPI_T_cvar_handle_alloc(index, NULL, &handle, &count)) {
        bench_die("there is no control variable %s: this is another gpusym", name);
    }
    const int rc = MPI_T_cvar_write(handle, where);
    MPI_T_cvar_handle_free(&handle);
    if (MPI_SUCCESS != rc) {
        bench_die("MPI_T cannot set %s", name);
    }
}

/* Whether each rank's GPU has NVLinks to each other one, or is that one. */
static bool find_nvlinks(gpusym_gpu_t *own, const gpusym_place_t *place)
{
    gpusym_place_t *all = malloc((size_t) bench_ranks * sizeof(*all));
    double lacks = 0;

    if (NULL == all) {
        bench_die("no memory for the links");
    }
    MPI_Allgather(place, sizeof(*place), MPI_BYTE, all, sizeof(*place), MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < bench_ranks; r++) {
        int class = r == bench_rank ? (int) GPUSYM_LINK_SELF : gpusym_current.dev->gpu_link(own, &all[r]);
        class = class >= 0 ? class : gpusym_topo_link(place, &all[r]);
        lacks = class > (int) GPUSYM_LINK_NVLINK ? lacks : 1;
    }
    free(all);
    return 0 == bench_max(lacks);
}

/* The name is rank 0's. */
static void find_gpus(void)
{
    gpusym_gpu_info_t info = {.cc = 0};
    gpusym_gpu_t *own;

    if (NULL == gpusym_device_need() || GPUSYM_SUCCESS != gpusym_current.dev->gpu_open(NULL, &own)) {
        bench_die("the GPU cannot be opened");
    }
    gpusym_current.dev->gpu_info(own, &info);
    snprintf(gpus.name, sizeof(gpus.name), "%.63s", info.name);
    gpus.cc = info.cc;
    bench_share(&gpus, sizeof(gpus));
    gpus.nvlink = find_nvlinks(own, &info.place);
}

/* "3 min", "20 s" */
static const char *time_text(double seconds, char text[32])
{
    if (seconds >= 120) {
        snprintf(text, 32, "%.0f min", seconds / 60);
    } else {
        snprintf(text, 32, "%.0f s", seconds);
    }
    return text;
}

static void print_point(const bench_point_t *p)
{
    const bench_setting_t *s = &p->best;
    const bool table = 0 == memcmp(s, &bench_table, sizeof(*s));

    if (0 != bench_rank) {
        return;
    }
    bench_word(20, bench_coll_name(p->coll));
    bench_cell(11, 0, (double) p->bytes, false);
    bench_cell(10, 2, p->table_us, false);
    bench_cell(10, 2, p->us, false);
    bench_word(18, table ? "as the table" : s->algorithm < 0 ? "auto" : gpusym_algorithm_name((unsigned) s->algorithm));
    bench_cell(6, 0, s->blocks, false);
    bench_cell(7, 0, s->threads, false);
    bench_cell(8, 0, s->resident_max, true);
}

/* In place of the collective that is open; NULL: none. GPUs leave their idleness before it is measured. */
static void open_coll(const bench_coll_t **open, const bench_coll_t *next)
{
    if (NULL != *open && *open != next) {
        bench_tune_close();
    }
    if (NULL != next && *open != next) {
        bench_tune_open(next);
        bench_way_warm_up(&bench_ways[BENCH_GPUSYM], next);
    }
    *open = next;
}

/* As many points as there is time for; each has its share of what is left. */
static void measure_points(double start, double limit)
{
    const bench_coll_t *open = NULL;
    unsigned done = 0, served = 0;
    char left[32];

    for (unsigned i = 0; i < npoints; i++) {
        bench_point_t *p = &points[i];
        const double elapsed = bench_max(MPI_Wtime() - start);
        if (elapsed >= limit) {
            break;
        }
        bench_progress("%s, %zu bytes: %u of %u, about %s left", bench_coll_name(p->coll), p->bytes, i + 1, npoints,
                       time_text(0 == i ? limit : elapsed / i * (npoints - i), left));
        open_coll(&open, p->coll);
        bench_tune_point(p, (double) opt.margin / 100, MPI_Wtime() + (limit - elapsed) / (npoints - i));
        print_point(p);
        done++;
        served += p->served;
    }
    open_coll(&open, NULL);
    if (0 == served && done > 0) {
        bench_comment("kernels serve none of these calls: are there several hosts, or do ranks share GPUs?");
    }
    if (done < npoints) {
        bench_comment("there was no time for %u of %u sizes: --time-limit", npoints - done, npoints);
    }
}

/* That this gpusym will be able to read what it writes. */
static void check_reader(void)
{
    gpusym_rules_file_t file;
    char why[512];

    if (0 == bench_rank && !gpusym_rules_read(opt.out, &file, why, sizeof(why))) {
        bench_die("%s", why);
    }
    if (0 == bench_rank) {
        gpusym_rules_file_free(&file);
    }
}

static int write_rules(void)
{
    int n = 0 == bench_rank ? bench_tune_write(opt.out, points, npoints, &gpus) : 0;

    if (n < 0) {
        bench_die("%s: %s", opt.out, strerror(errno));
    }
    bench_share(&n, sizeof(n));
    return n;
}

/* By a communicator that has read the file. Returns how many rules do not hold what they promise, which are dropped. */
static unsigned measure_again(double start)
{
    const bench_coll_t *open = NULL;
    MPI_Comm ruled;
    unsigned dropped = 0;
    double worst = 1e9;

    set_rules(opt.out);
    MPI_Comm_dup(MPI_COMM_WORLD, &ruled);
    for (unsigned i = 0; i < npoints; i++) {
        bench_point_t *p = &points[i];
        if (!p->measured || bench_max(MPI_Wtime() - start) >= (double) opt.seconds) {
            continue;
        }
        bench_progress("%s, %zu bytes: again, %u of %u", bench_coll_name(p->coll), p->bytes, i + 1, npoints);
        open_coll(&open, p->coll);
        const bool good = bench_tune_again(p, ruled), rule = 0 != memcmp(&p->best, &bench_table, sizeof(p->best));
        bench_comment("again: %s, %zu bytes: table %.2f us, rules %.2f us, %.3f%s", bench_coll_name(p->coll), p->bytes,
                      p->table_again, p->rules_again, p->table_again / p->rules_again,
                      !rule  ? ", no rule"
                      : good ? ""
                             : ": the rule is dropped");
        if (rule && !good) {
            p->best = bench_table;
            dropped++;
        } else if (rule && p->table_again / p->rules_again < worst) {
            worst = p->table_again / p->rules_again;
        }
    }
    open_coll(&open, NULL);
    MPI_Comm_free(&ruled);
    if (worst < 1e9) {
        bench_comment("measured again, rules are at least %.3f times as fast as the table", worst);
    }
    return dropped;
}

static void run(void)
{
    const double start = MPI_Wtime();
    char name[64];

    set_rules("none"); /* MPI_COMM_WORLD is set up by the first call */
    find_points();
    bench_ways_open(find_most_bytes(), false, false);
    find_gpus();
    gpusym_rules_name(name, sizeof(name), gpus.cc, (uint32_t) bench_ranks);
    opt.out = NULL == opt.out ? name : opt.out;
    (void) write_rules(); /* without any: that it can be written, and read, is known at once */
    check_reader();
    bench_head("          collective       bytes   table us    best us          algorithm blocks threads resident",
               "collective,bytes,table_us,best_us,algorithm,blocks,threads,resident_max");
    measure_points(start, (1 - AGAIN_SHARE) * (double) opt.seconds);
    int n = write_rules();
    if (0 != measure_again(start)) {
        n = write_rules();
    }
    bench_ways_close();
    bench_comment("%d rules for %d ranks on %s: %s", n, bench_ranks, gpus.name, opt.out);
}

static void help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (0 != strcmp(argv[i], "--help")) {
            continue;
        }
        puts("usage:");
#define TUNE_LINE(arguments, text) puts("  gpusym_tune " arguments "\n      " text);
#include "bench/options.def"
        puts("\nOptions:");
#define BENCH_INFO BENCH_PRINT
#define TUNE BENCH_PRINT
#include "bench/options.def"
        exit(0);
    }
}

int main(int argc, char **argv)
{
    bench_version("gpusym_tune", argc, argv);
    help(argc, argv);
    bench_init(&argc, &argv);
    opt.common.device = bench_device();
    read_options(argc, argv);
    bench_counters_open();
    if (0 == bench_counters_of("allreduce")) {
        bench_refuse("gpusym is not selected: add --mca coll gpusym, and check that it is in the component path");
    }
    bench_start("gpusym_tune", &opt.common, "algorithms, blocks and threads");
    run();
    bench_counters_close();
    bench_end();
    return 0;
}
