/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym_netperf: latency and bandwidth between two processes, by the transport that gpusym uses between hosts, beside
 * UCX's active messages as they are.  Host memory; no GPU is used.  bench/README.md says how to read the table.
 *
 * Both ways are measured in turns, batch by batch, so that both see the same machine.  Before the batches of a size,
 * one message of each way is checked byte by byte.
 */
#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/job.h"
#include "bench/netways.h"
#include "bench/timing.h"

#define USAGE "usage: gpusym_netperf [OPTION]...\n       gpusym_netperf --help, --version"

enum { TAG = 7, BATCHES_MAX = 101, ROUNDS = 200 /* of a batch of latency */ };
#define LATENCY_MAX 4096u               /* bytes; longer messages count for bandwidth */
#define BANDWIDTH_MIN (64u << 10)       /* bytes */
#define BATCH_BYTES ((size_t) 32 << 20) /* of a batch of bandwidth */
#define SIZE_S 6.0                      /* at most, after three batches */

static struct {
    bool pairs, between;
    const char *devices, *csv, *json;
    size_t min, max;
    int batches;
} opt = {.min = 8, .max = NETWAY_BYTES_MAX, .batches = 9};

static const netway_t *const ways[] = {&netway_gpusym, &netway_ucx};
enum { WAYS = sizeof ways / sizeof *ways };

/* What is being measured: rank `from` sends, `to` answers. */
static int from, to;
static unsigned char *message;
static unsigned salt;
static unsigned long long wrong;

static int other(void)
{
    return bench_rank == from ? to : from;
}

static void meet(void)
{
    char none = 0, got;
    MPI_Sendrecv(&none, 1, MPI_BYTE, other(), TAG, &got, 1, MPI_BYTE, other(), TAG, bench_world, MPI_STATUS_IGNORE);
}

/* ---- a batch: seconds on rank `from` ---- */

/* One message to and fro. */
static void ping(const netway_t *way, size_t bytes, bool check)
{
    for (int turn = 0; turn < 2; turn++) {
        if ((0 == turn) == (bench_rank == from)) {
            if (check) {
                netway_fill(message, bytes, salt + (unsigned) turn);
            }
            way->send(message, bytes);
            way->flush();
        } else if (!way->receive(bytes, check, salt + (unsigned) turn)) {
            wrong++;
        }
    }
}

/* Half of a round trip. */
static double latency(const netway_t *way, size_t bytes)
{
    const double start = MPI_Wtime();

    for (int i = 0; i < ROUNDS; i++) {
        ping(way, bytes, false);
    }
    return (MPI_Wtime() - start) / ROUNDS / 2;
}

static size_t messages_of(size_t bytes)
{
    return bytes < BATCH_BYTES ? BATCH_BYTES / bytes : 1;
}

/* A message of many, of which the last one is answered by a short one. */
static double bandwidth(const netway_t *way, size_t bytes)
{
    const size_t n = messages_of(bytes);
    const double start = MPI_Wtime();

    for (size_t i = 0; i < n; i++) {
        if (bench_rank == from) {
            way->send(message, bytes);
        } else {
            way->receive(bytes, false, 0);
        }
    }
    if (bench_rank == from) {
        way->receive(1, false, 0);
        way->flush();
    } else {
        way->send(message, 1);
        way->flush();
    }
    return (MPI_Wtime() - start) / (double) n;
}

/* A message of many that both send. */
static double bandwidth_both(const netway_t *way, size_t bytes)
{
    const size_t n = messages_of(bytes);
    const double start = MPI_Wtime();

    for (size_t i = 0; i < n; i++) {
        way->exchange(message, bytes, false, 0);
    }
    way->exchange(message, 1, false, 0);
    way->flush();
    return (MPI_Wtime() - start) / (double) n;
}

/* One message of each of the two, checked. */
static void check_both(const netway_t *way, size_t bytes)
{
    const unsigned mine = bench_rank == from;

    netway_fill(message, bytes, salt + mine);
    if (!way->exchange(message, bytes, true, salt + 1 - mine)) {
        wrong++;
    }
    way->flush();
}

/* ---- a row ---- */

typedef struct {
    double median, best; /* seconds */
} result_t;

/* Measures a size by both ways, in turns; both: in both directions at once. */
static void measure(size_t bytes, bool both, result_t result[WAYS])
{
    double seconds[WAYS][BATCHES_MAX], start = MPI_Wtime();
    int n = 0, more = 1;

    for (int w = 0; w < WAYS; w++) {
        salt++;
        if (both) {
            check_both(ways[w], bytes);
        } else {
            ping(ways[w], bytes, true); /* every byte; and all that is set up by the first message */
        }
    }
    while (0 != more) {
        for (int w = 0; w < WAYS; w++) {
            meet();
            seconds[w][n] = (both ? bandwidth_both : bytes <= LATENCY_MAX ? latency : bandwidth)(ways[w], bytes);
        }
        n++;
        more = n < opt.batches && (n < 3 || MPI_Wtime() - start < SIZE_S);
        if (bench_rank == from) { /* who decides for both */
            MPI_Send(&more, 1, MPI_INT, to, TAG, bench_world);
        } else {
            MPI_Recv(&more, 1, MPI_INT, from, TAG, bench_world, MPI_STATUS_IGNORE);
        }
    }
    for (int w = 0; w < WAYS; w++) {
        result[w].median = bench_median(seconds[w], n); /* sorts */
        result[w].best = seconds[w][0];
    }
}

static double unit(size_t bytes, double seconds)
{
    return bytes <= LATENCY_MAX ? seconds * 1e6 : (double) bytes / seconds / 1e6;
}

/* Rank 0 prints what rank `from` has measured. */
static void print_row(size_t bytes, bool both, result_t result[WAYS])
{
    if (0 != from && bench_rank == from) {
        MPI_Send(result, (int) (WAYS * sizeof *result), MPI_BYTE, 0, TAG, bench_world);
    } else if (0 != from && 0 == bench_rank) {
        MPI_Recv(result, (int) (WAYS * sizeof *result), MPI_BYTE, from, TAG, bench_world, MPI_STATUS_IGNORE);
    }
    if (0 != bench_rank) {
        return;
    }
    bench_cell(4, 0, from, false);
    bench_cell(4, 0, to, false);
    bench_cell(10, 0, (double) bytes, false);
    bench_word(5, both ? "both" : bytes <= LATENCY_MAX ? "us" : "MB/s");
    for (int w = 0; w < WAYS; w++) {
        bench_cell(10, 2, unit(bytes, result[w].median), false);
        bench_cell(10, 2, unit(bytes, result[w].best), false);
    }
    bench_cell(6, 2, result[0].median / result[1].median, true);
}

/* ---- a pair ---- */

static bool on_one_host(void)
{
    char name[MPI_MAX_PROCESSOR_NAME] = "", theirs[MPI_MAX_PROCESSOR_NAME];
    int length;

    MPI_Get_processor_name(name, &length);
    MPI_Sendrecv(name, sizeof name, MPI_BYTE, other(), TAG, theirs, sizeof theirs, MPI_BYTE, other(), TAG, bench_world,
                 MPI_STATUS_IGNORE);
    return 0 == strcmp(name, theirs);
}

/* Waits for the other process to come here, and answers it meanwhile. */
static void settle(const netway_t *way)
{
    MPI_Request request[2];
    char mine = 0, theirs;
    int met = 0;

    MPI_Irecv(&theirs, 1, MPI_BYTE, other(), TAG, bench_world, &request[0]);
    MPI_Isend(&mine, 1, MPI_BYTE, other(), TAG, bench_world, &request[1]);
    while (!met) {
        way->progress();
        MPI_Testall(2, request, &met, MPI_STATUSES_IGNORE);
    }
}

static void connect_way(const netway_t *way, bool inside)
{
    static char address[NETWAY_ADDRESS_MAX];
    size_t bytes;
    const void *mine = way->address(&bytes);
    MPI_Status status;
    int got;

    MPI_Sendrecv(mine, (int) bytes, MPI_BYTE, other(), TAG, address, sizeof address, MPI_BYTE, other(), TAG,
                 bench_world, &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
    way->connect(address, (size_t) got, inside, bench_rank < other());
    settle(way);
}

static size_t next_size(size_t bytes)
{
    const size_t next = bytes * (bytes < LATENCY_MAX ? 8 : 4);
    return bytes <= LATENCY_MAX && next > LATENCY_MAX && next < BANDWIDTH_MIN ? BANDWIDTH_MIN : next;
}

/* Both: all sizes of which bandwidth is measured. */
static void measure_sizes(bool takes_part, bool both)
{
    for (size_t bytes = opt.min; bytes <= opt.max; bytes = next_size(bytes)) {
        result_t result[WAYS];
        if (both && bytes <= LATENCY_MAX) {
            continue;
        }
        if (takes_part) {
            measure(bytes, both, result);
        }
        print_row(bytes, both, result);
    }
}

/* All sizes. On other ranks than these two only rank 0 does something: it prints. */
static void measure_pair(void)
{
    const bool takes_part = bench_rank == from || bench_rank == to;
    bool inside = false;

    salt = (unsigned) (31 * from + to); /* both count on from here */
    if (takes_part) {
        inside = on_one_host() && !opt.between;
        for (int w = 0; w < WAYS; w++) {
            connect_way(ways[w], inside);
        }
        if (bench_rank == from) {
            char way[2][128];
            for (int w = 0; w < WAYS; w++) {
                ways[w]->describe(way[w], sizeof way[w]);
            }
            fprintf(stderr, "ranks %d and %d, %s: %s (%s)\n", from, to, inside ? "of one host" : "as between hosts",
                    way[0], way[1]);
        }
    }
    measure_sizes(takes_part, false);
    measure_sizes(takes_part, true);
    if (takes_part) {
        meet();
        for (int w = 0; w < WAYS; w++) {
            ways[w]->disconnect();
            meet();
        }
    }
    MPI_Barrier(bench_world);
}

/* ---- the program ---- */

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {
#define NETPERF BENCH_GETOPT
#include "bench/options.def"
        {NULL, 0, NULL, 0}};
    int c;

    while (-1 != (c = getopt_long(argc, argv, "", options, NULL))) {
        switch (c) {
        case 'p':
            opt.pairs = true;
            break;
        case 'b':
            opt.between = true;
            break;
        case 'd':
            opt.devices = optarg;
            break;
        case 'c':
            opt.csv = optarg;
            break;
        case 'j':
            opt.json = optarg;
            break;
        case 'm':
            opt.min = bench_number(optarg, USAGE);
            break;
        case 'M':
            opt.max = bench_number(optarg, USAGE);
            break;
        case 'n':
            opt.batches = (int) bench_number(optarg, USAGE);
            break;
        default:
            bench_refuse("%s", USAGE);
        }
    }
    if (optind != argc || opt.min < 1 || opt.min > opt.max || opt.max > NETWAY_BYTES_MAX || opt.batches < 1 ||
        opt.batches > BATCHES_MAX) {
        bench_refuse("%s", USAGE);
    }
    if (bench_ranks < 2) {
        bench_refuse("at least two ranks are required\n%s", USAGE);
    }
}

static void print_help(void)
{
    puts("usage:");
#define NETPERF_LINE(arguments, text) puts("  gpusym_netperf " arguments "\n      " text);
#include "bench/options.def"
    puts("\nOptions:");
#define BENCH_INFO BENCH_PRINT
#define NETPERF BENCH_PRINT
#include "bench/options.def"
    puts("\nGPUSYM_UCX_... in the environment sets UCX's parameters for this alone (GPUSYM_UCX_TLS=tcp).");
}

int main(int argc, char **argv)
{
    bench_version("gpusym_netperf", argc, argv);
    for (int i = 1; i < argc; i++) {
        if (0 == strcmp(argv[i], "--help")) {
            print_help();
            return 0;
        }
    }
    bench_init(&argc, &argv);
    read_options(argc, argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &bench_world);
    bench_output_open(opt.csv, opt.json);
    message = malloc(opt.max);
    if (NULL == message) {
        bench_die("out of memory");
    }
    netway_fill(message, opt.max, 0);
    for (int w = 0; w < WAYS; w++) {
        ways[w]->open(opt.devices);
    }
    bench_comment(
        "latency: half a round trip; bandwidth of messages in a row: MB/s one way, \"both\": MB/s each way at "
        "once; median and best of up to %d batches",
        opt.batches);
    bench_head("from   to      bytes  unit     gpusym       best        UCX       best  ratio",
               "from,to,bytes,unit,gpusym,gpusym_best,ucx,ucx_best,time_ratio");
    for (from = 0; from < (opt.pairs ? bench_ranks : 1); from++) {
        for (to = from + 1; to < (opt.pairs ? bench_ranks : 2); to++) {
            measure_pair();
        }
    }
    const double all_wrong = bench_sum((double) wrong);
    bench_comment(0 == all_wrong ? "every byte of every checked message is right" : "%.0f messages are wrong",
                  all_wrong);
    bench_output_close();
    for (int w = 0; w < WAYS; w++) {
        ways[w]->close();
    }
    free(message);
    MPI_Comm_free(&bench_world);
    MPI_Finalize();
    return 0 == all_wrong ? 0 : 1;
}
