/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Benchmark: collectives between hosts that share one clock, as test/mpi/hosts.sh makes them. bench/hosts.sh runs it.
 *
 *     test/mpi/hosts.sh 4 2 --rate 100mbit --mtu 9000 -- bench/wire --device host --coll allreduce --bytes 32m
 *
 * All ranks begin a call at one moment of that clock, so that a call of one network step takes one delay and not what a
 * barrier leaves of it. Beside the times stand the bytes that an interface has carried, and the least that any
 * algorithm must move: bench/README.md.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/collectives.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "bench/timing.h"
#include "bench/wire_rail.h"

#define USAGE                                                                                                          \
    "wire [--device cuda|sim|host] [--coll LIST] [--bytes LIST] [--calls N] [--interface NAME] [--rail] [--csv FILE] " \
    "[--json FILE]\n"                                                                                                  \
    "sizes accept the suffixes k, m and g; --calls: calls to measure, after one that is not; --interface: where "      \
    "bytes are counted\n"                                                                                              \
    "--rail: by the engine between hosts alone, without MPI; one rank per host"

#define LEAD_S 0.3     /* from the agreement on the moment at which a call begins: longer than that takes to arrive */
#define CALLS_MAX 1001 /* of a measurement */

static struct {
    bench_common_t common;
    char *colls, *bytes;
    const char *interface;
    int calls;
    bool rail;
} opt = {.colls = NULL, .bytes = NULL, .interface = "eth0", .calls = 5};

/* Where this rank is. */
static struct {
    int hosts, here, first; /* hosts; ranks on this one; whether this rank is the first of them */
} place;

static void find_place(void)
{
    MPI_Comm host;
    int rank;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_size(host, &place.here);
    MPI_Comm_free(&host);
    place.first = 0 == rank;
    place.hosts = (int) bench_sum(place.first);
}

/* ---- what must be moved, at least ---------------------------------------------------------------------------------
 */

/* Bytes that a message of so many makes necessary on this host: in the busier direction of its interface, and those
 * that it sends, on average over the hosts. False: no bound is known here. A host's ranks combine what they send, and
 * share what they receive. */
static bool least_bytes(const bench_coll_t *c, double bytes, double *busiest, double *sent)
{
    const char *name = bench_coll_name(c);
    const double others = (double) (bench_ranks - place.here) / bench_ranks;

    if (0 == strcmp(name, "allreduce")) {
        *busiest = *sent = 2.0 * (place.hosts - 1) / place.hosts * bytes;
    } else if (0 == strncmp(name, "allgather", 9) || 0 == strncmp(name, "reduce_scatter", 14)) {
        *busiest = *sent = others * bytes;
    } else if (0 == strcmp(name, "bcast")) {
        *busiest = place.hosts > 1 ? bytes : 0;
        *sent = bytes * (place.hosts - 1) / place.hosts;
    } else if (0 == strncmp(name, "alltoall", 8)) {
        *busiest = *sent = place.here * others * bytes;
    } else {
        return false;
    }
    return true;
}

/* ---- the interface ------------------------------------------------------------------------------------------------
 */

typedef struct {
    double received, sent;
} copied_t;

/* What this host's interface has carried so far. */
static copied_t read_interface(void)
{
    FILE *f = fopen("/proc/self/net/dev", "r");
    char line[512], name[64];
    copied_t c = {-1, -1};

    while (NULL != f && NULL != fgets(line, sizeof(line), f)) {
        double received, sent;
        if (3 == sscanf(line, " %63[^:]: %lf %*s %*s %*s %*s %*s %*s %*s %lf", name, &received, &sent) &&
            0 == strcmp(name, opt.interface)) {
            c = (copied_t){received, sent};
        }
    }
    if (NULL != f) {
        fclose(f);
    }
    if (c.sent < 0) {
        bench_die("there is no interface %s", opt.interface);
    }
    return c;
}

/* ---- one measurement ----------------------------------------------------------------------------------------------
 */

typedef struct {
    double us[CALLS_MAX];
    double busiest, sent; /* bytes of a call: of the busiest interface, its busier direction; sent by all hosts */
    double load;          /* processes that ran or could have: the machine's average over a minute */
    double wrong;         /* elements, of all ranks */
} measured_t;

static double read_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

/* Sleeps until the moment that rank 0 names, and returns it. */
static double begin_together(void)
{
    double moment = read_clock() + LEAD_S;

    bench_share(&moment, sizeof(moment));
    const struct timespec t = {(time_t) moment, (long) (1e9 * (moment - (double) (time_t) moment))};
    while (EINTR == clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) {
    }
    return moment;
}

/* Microseconds until the last rank has its result. */
static double time_call(bench_call_t *call)
{
    const double begun = begin_together();

    if (opt.rail) {
        wire_rail_call(call);
    } else {
        bench_call_by_mpi(call);
    }
    const double took = read_clock() - begun;
    if (opt.rail) {
        wire_rail_settle();
    }
    return 1e6 * bench_max(took);
}

static double read_load(void)
{
    double load = 0;

    (void) !getloadavg(&load, 1);
    return load;
}

static void measure(bench_call_t *call, measured_t *m)
{
    bench_prepare(call);
    (void) time_call(call); /* connections, scratch memory */
    m->wrong = bench_sum((double) bench_wrong(call));
    const copied_t before = read_interface();
    for (int i = 0; i < opt.calls; i++) {
        if (opt.calls - 1 == i) {
            bench_prepare(call);
        }
        m->us[i] = time_call(call);
    }
    const copied_t after = read_interface();
    const double received = after.received - before.received, sent = after.sent - before.sent;
    m->busiest = bench_max(received > sent ? received : sent) / opt.calls;
    m->sent = bench_sum(place.first ? sent : 0) / opt.calls;
    m->load = read_load();
    m->wrong += bench_sum((double) bench_wrong(call));
}

static void print_row(const bench_call_t *call, measured_t *m)
{
    const bench_coll_t *coll = call->what.coll;
    const double bytes = (double) bench_coll_bytes(coll, call->what.count);
    double busiest = -1, sent = -1;

    if (least_bytes(coll, bytes, &busiest, &sent)) {
        busiest = bench_max(busiest);
        sent = bench_sum(place.first ? sent : 0);
    }
    if (0 == bench_rank) {
        const double median = bench_median(m->us, opt.calls); /* sorts them */
        bench_word(-22, bench_coll_name(coll));
        bench_cell(6, 0, place.hosts, false);
        bench_cell(6, 0, bench_ranks, false);
        bench_cell(10, 0, bytes, false);
        bench_cell(12, 0, m->us[0], false);
        bench_cell(12, 0, median, false);
        bench_cell(12, 0, m->us[opt.calls - 1], false);
        bench_cell(12, 0, m->busiest, false);
        bench_cell(12, 0, busiest, false);
        bench_cell(12, 0, m->sent, false);
        bench_cell(12, 0, sent, false);
        bench_cell(6, 1, m->load, false);
        bench_cell(6, 0, m->wrong, true);
    }
}

static double measure_size(const bench_coll_t *coll, size_t bytes)
{
    const bench_what_t what = {coll, COLL_BLOCKING, false, bench_coll_count(coll, bytes)};
    void *in = bench_alloc(bench_coll_bytes(coll, what.count)), *out = bench_alloc(bench_coll_bytes(coll, what.count));
    measured_t m;
    bench_call_t call;

    bench_fill(coll, in, what.count, (unsigned) what.count);
    bench_call_make(&call, &what, in, out, NULL, NULL);
    measure(&call, &m);
    print_row(&call, &m);
    bench_call_drop(&call);
    bench_free(out);
    bench_free(in);
    return m.wrong;
}

/* ---- options and the whole ----------------------------------------------------------------------------------------
 */

static void read_options(int argc, char **argv)
{
    static const struct option all[] = {{"device", 1, NULL, 'd'},    {"csv", 1, NULL, 'c'},   {"json", 1, NULL, 'j'},
                                        {"coll", 1, NULL, 'C'},      {"bytes", 1, NULL, 'b'}, {"calls", 1, NULL, 'N'},
                                        {"interface", 1, NULL, 'i'}, {"rail", 0, NULL, 'r'},  {NULL, 0, NULL, 0}};

    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        if ('C' == c) {
            opt.colls = optarg;
        } else if ('b' == c) {
            opt.bytes = optarg;
        } else if ('N' == c) {
            opt.calls = (int) bench_number(optarg, USAGE);
        } else if ('i' == c) {
            opt.interface = optarg;
        } else if ('r' == c) {
            opt.rail = true;
        } else if (!bench_common_option(&opt.common, c, optarg, USAGE)) {
            bench_refuse("usage: %s", USAGE);
        }
    }
    if (optind < argc || opt.calls < 1 || opt.calls > CALLS_MAX) {
        bench_refuse("--calls 1 to %d\nusage: %s", CALLS_MAX, USAGE);
    }
}

static void print_head(void)
{
    char line[200];

    snprintf(line, sizeof(line), "%-22s %6s %6s %10s %12s %12s %12s %12s %12s %12s %12s %6s %6s", "collective", "hosts",
             "ranks", "bytes", "best us", "median us", "worst us", "busiest B", "at least", "all sent B", "at least",
             "load", "wrong");
    bench_head(line,
               "collective,hosts,ranks,bytes,best_us,median_us,worst_us,busiest_bytes,busiest_bytes_least,sent_bytes,"
               "sent_bytes_least,load,wrong");
}

static double run(void)
{
    char all_colls[] = "allreduce", all_bytes[] = "8";
    const char *colls[BENCH_LIST_MAX], *sizes[BENCH_LIST_MAX];
    const int ncolls = bench_cut(NULL == opt.colls ? all_colls : opt.colls, colls, USAGE);
    const int nsizes = bench_cut(NULL == opt.bytes ? all_bytes : opt.bytes, sizes, USAGE);
    double wrong = 0;

    for (int i = 0; i < ncolls; i++) {
        const bench_coll_t *coll = bench_coll_find(colls[i]);
        if (NULL == coll) {
            bench_refuse("no collective %s\nusage: %s", colls[i], USAGE);
        }
        for (int k = 0; k < nsizes; k++) {
            wrong += measure_size(coll, bench_number(sizes[k], USAGE));
        }
    }
    return wrong;
}

int main(int argc, char **argv)
{
    bench_init(&argc, &argv);
    opt.common.device = bench_device();
    read_options(argc, argv);
    bench_start("wire", &opt.common, "collectives between hosts with one clock");
    bench_content_open();
    find_place();
    if (opt.rail && !wire_rail_open(opt.common.device, opt.interface)) {
        bench_content_close();
        bench_end();
        return BENCH_SKIP;
    }
    print_head();
    const double wrong = run();
    bench_comment("%s", wrong > 0 ? "WRONG RESULTS" : "every element of every result is right");
    if (opt.rail) {
        wire_rail_close();
    }
    bench_content_close();
    bench_end();
    return wrong > 0;
}
