/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's point-to-point messages on GPU memory, beside ncclSend and ncclRecv: every pair of ranks in turn, the same
 * buffers, one run. bench/README.md says how to read the table.
 */
#include <getopt.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/content.h"
#include "bench/counters.h"
#include "bench/exchange.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "bench/nccl.h"
#include "bench/p2p.h"
#include "bench/p2p_rows.h"
#include "bench/process.h"
#include "bench/timing.h"
#include "bench/usage.h"
#include "bench/variable.h"
#include "test/mpi/mem.h"

#define MIB ((size_t) 1 << 20)
#define MAX_CUDA (256 * MIB)
#define MAX_OTHER ((size_t) 64 << 10)   /* the simulator copies by the CPU */
#define FIRST_BYTES ((size_t) 64 << 10) /* too long to be buffered: the first message maps the sender's memory */
#define WINDOW_BYTES MIB
#define HOST_BYTES (64 * MIB)
#define HOST_WINDOW_BYTES (4 * MIB) /* a window of these is 256 MiB */
#define GROWN_BYTES 8
#define MESSAGES_CUDA 200000
#define MESSAGES_OTHER 2000
#define SIZES_MAX 64
#define LINGER "coll_gpusym_p2p_linger"

/* What is measured, by the names of --only. */
enum { FIRST, PINGPONG, WINDOW, ONEWAY, BOTH, ASYNC, TO_HOST, FROM_HOST, GROWN, PARTS };
static const char *const part_names[PARTS] = {"first", "pingpong", "window",    "oneway", "both",
                                              "async", "to_host",  "from_host", "grown"};

static struct {
    bench_common_t common; /* max 0: by the device */
    size_t bytes[BENCH_LIST_MAX];
    int nbytes;
    size_t messages; /* 0: by the device */
    bool only[PARTS], no_nccl;
} opt = {.common = {.min = 8, .step = 2, .batches = BENCH_BATCHES}};

static char *out, *in;           /* this rank's, in the measured memory */
static unsigned long long wrong; /* bytes, so far */

/* ---- one row ----------------------------------------------------------------------------------------------------- */

static size_t find_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void add_row(const bench_p2p_row_t *row)
{
    const unsigned long long more = bench_p2p_print(row);

    wrong += more;
    if (more > 0 && 0 == bench_rank) {
        fprintf(stderr, "WRONG: %s, %zu bytes from rank %d to rank %d: %llu bytes\n", row->what, row->bytes, row->from,
                row->to, more);
    }
}

/* Rank 0 gets a text of another rank; the others are not concerned. */
static void fetch_text(int owner, char text[BENCH_P2P_WAY_BYTES])
{
    if (0 != owner && bench_rank == owner) {
        MPI_Send(text, BENCH_P2P_WAY_BYTES, MPI_CHAR, 0, 0, bench_world);
    } else if (0 != owner && 0 == bench_rank) {
        MPI_Recv(text, BENCH_P2P_WAY_BYTES, MPI_CHAR, owner, 0, bench_world, MPI_STATUS_IGNORE);
    }
}

/* How `from` counted what it sent, and `to` what it received, since bench_counters_start(). */
static void find_way(bench_p2p_row_t *row)
{
    char sent[BENCH_P2P_WAY_BYTES] = "", received[BENCH_P2P_WAY_BYTES] = "";

    bench_counters_say(bench_rank == row->from ? sent : received, BENCH_P2P_WAY_BYTES);
    fetch_text(row->from, sent);
    fetch_text(row->to, received);
    snprintf(row->way, sizeof(row->way), "%s/%s", '\0' == *sent ? "-" : sent, '\0' == *received ? "-" : received);
}

/* By MPI, and by NCCL where memory of both kinds is the GPU's. */
static void measure(bench_p2p_row_t *row, bench_exchange_t e, int ways)
{
    bench_counters_of_messages(bench_rank == row->from ? "sent" : "received");
    bench_counters_start();
    for (int by = 0; by < ways; by++) {
        e.by = (bench_by_t) by;
        bench_progress("%s, %zu bytes, %d-%d, way %d", row->what, row->bytes, row->from, row->to, by);
        row->speeds[by] = bench_exchange_measure(&e, opt.common.batches);
        if (BENCH_BY_MPI == by) {
            find_way(row);
        }
    }
}

static void measure_form(int part, bench_form_t form, int from, int to, size_t bytes)
{
    bench_p2p_row_t row = bench_p2p_row(part_names[part], from, to, bytes);

    row.from_kind = row.to_kind = bench_memory_kind();
    measure(&row, (bench_exchange_t){.form = form, .from = from, .to = to, .bytes = bytes, .out = out, .in = in},
            BENCH_BYS);
    add_row(&row);
}

/* ---- the first messages, and memory ------------------------------------------------------------------------------ */

static double count_mib(size_t before, size_t after)
{
    return bench_max(after < before ? (double) (before - after) / (double) MIB : 0);
}

static void add_amount(const char *what, double amount, const char *unit)
{
    bench_p2p_row_t row = bench_p2p_row(what, -1, -1, 0);

    row.amount = amount;
    row.unit = unit;
    add_row(&row);
}

/* A pair's first message, and the first one back. Pairs are in the order of their first rank: from rank 1 on, both have
 * had messages with others. */
typedef struct {
    bench_p2p_row_t there, back;
} firsts_t;

static void time_first(bench_p2p_row_t *row, bench_by_t by)
{
    row->speeds[by] = bench_exchange_once(&(bench_exchange_t){
        .form = BENCH_ONEWAY, .by = by, .from = row->from, .to = row->to, .bytes = row->bytes, .out = out, .in = in});
}

static void time_firsts(firsts_t *firsts, int pairs, bench_by_t by)
{
    for (int p = 0; p < pairs; p++) {
        time_first(&firsts[p].there, by);
        time_first(&firsts[p].back, by);
    }
}

/* Those of all pairs, empty; to be freed. */
static firsts_t *make_firsts(int *pairs)
{
    const size_t bytes = find_least(FIRST_BYTES, opt.common.max);
    const int kind = bench_memory_kind();
    firsts_t *firsts = calloc((size_t) (bench_ranks * bench_ranks), sizeof(*firsts));

    if (NULL == firsts) {
        bench_die("no host memory");
    }
    *pairs = 0;
    for (int from = 0; from < bench_ranks; from++) {
        for (int to = from + 1; to < bench_ranks; to++) {
            firsts_t *f = &firsts[(*pairs)++];

            f->there = bench_p2p_row(0 == from ? "first" : "further", from, to, bytes);
            f->back = bench_p2p_row("back", to, from, bytes);
            f->there.from_kind = f->there.to_kind = f->back.from_kind = f->back.to_kind = kind;
        }
    }
    return firsts;
}

/* What has been taken of the GPU's memory since so much was free. */
static void add_memory(const char *what, size_t before)
{
    size_t after;

    MPI_Barrier(bench_world);
    after = bench_free_memory();
    MPI_Barrier(bench_world);
    if (bench_cu.there) {
        add_amount(what, count_mib(before, after), "MiB");
    }
}

/* All pairs' first messages, and what they take of the GPU's memory; then a collective, and what all takes. Before
 * anything else was sent from GPU memory, and before NCCL is opened. */
static void measure_firsts(void)
{
    const size_t before = bench_free_memory();
    int pairs;
    firsts_t *firsts = make_firsts(&pairs);

    MPI_Barrier(bench_world);
    time_firsts(firsts, pairs, BENCH_BY_MPI);
    add_memory("memory", before);
    MPI_Allreduce(out, in, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    add_memory("memory_all", before);
    bench_nccl_open(out, in, 0, !opt.no_nccl);
    time_firsts(firsts, pairs, BENCH_BY_NCCL);
    for (int p = 0; p < pairs; p++) {
        add_row(&firsts[p].there);
        add_row(&firsts[p].back);
    }
    free(firsts);
}

/* ---- other memory ------------------------------------------------------------------------------------------------ */

/* Messages between memory of one kind, from, and of another, to; skipped where a device has not both. What is sent back
 * goes from `to` to `from`, kinds included. unit_gbs: of what the row is a multiple, in GB/s; 0: of nothing. */
static void measure_kinds(const char *what, bench_exchange_t e, int from_kind, int to_kind, double unit_gbs,
                          const char *unit)
{
    bench_p2p_row_t row = bench_p2p_row(what, e.from, e.to, e.bytes);
    const int kind = bench_rank == e.from ? from_kind : to_kind;
    const size_t size = bench_exchange_size(e.form, e.bytes);
    const bool by_nccl =
        MEM_HOST != from_kind && MEM_HOST != to_kind && MEM_REGISTERED != from_kind && MEM_REGISTERED != to_kind;

    if (!bench_agree(mem_have(from_kind) && mem_have(to_kind))) {
        return;
    }
    row.from_kind = from_kind;
    row.to_kind = to_kind;
    e.out = mem_alloc(kind, size);
    e.in = mem_alloc(kind, size);
    if (NULL == e.out || NULL == e.in) {
        bench_die("no memory for %zu bytes", size);
    }
    bench_exchange_fill(e.out, size);
    measure(&row, e, by_nccl ? BENCH_BYS : BENCH_BY_MPI + 1);
    if (unit_gbs > 0) {
        row.amount = row.speeds[BENCH_BY_MPI].gbs / unit_gbs;
        row.unit = unit;
    }
    add_row(&row);
    mem_free(kind, e.in);
    mem_free(kind, e.out);
}

/* One rank copies what no message between GPU and host can copy faster: the others wait. */
typedef struct {
    char *to, *from;
    size_t bytes;
    int rank; /* that copies */
} copy_t;

static void run_memcpy(void *arg)
{
    const copy_t *c = arg;

    if (bench_rank == c->rank) {
        memcpy(c->to, c->from, c->bytes);
        __asm__ volatile("" : : "r"(c->to) : "memory");
    }
}

static void run_to_host(void *arg)
{
    const copy_t *c = arg;

    if (bench_rank == c->rank) {
        bench_to_host(c->to, c->from, c->bytes);
    }
}

static void run_from_host(void *arg)
{
    const copy_t *c = arg;

    if (bench_rank == c->rank) {
        bench_from_host(c->to, c->from, c->bytes);
    }
}

/* In GB/s. Kinds: of the memory, as test/mpi/mem.h counts. */
static double measure_copy(const char *what, void (*run)(void *arg), int rank, int from_kind, int to_kind, size_t bytes)
{
    bench_p2p_row_t row = bench_p2p_row(what, rank, rank, bytes);
    copy_t c = {.bytes = bytes, .rank = rank};

    c.from = mem_alloc(from_kind, bytes);
    c.to = mem_alloc(to_kind, bytes);
    if (NULL == c.from || NULL == c.to) {
        bench_die("no memory for %zu bytes", bytes);
    }
    bench_exchange_fill(c.from, bytes);
    bench_exchange_fill(c.to, bytes);
    row.from_kind = from_kind;
    row.to_kind = to_kind;
    row.speeds[BENCH_BY_MPI].us = bench_time(&(bench_timed_t){.call = run, .arg = &c}, opt.common.batches).us;
    row.speeds[BENCH_BY_MPI].gbs = (double) bytes / row.speeds[BENCH_BY_MPI].us / 1e3;
    add_row(&row);
    mem_free(to_kind, c.to);
    mem_free(from_kind, c.from);
    return row.speeds[BENCH_BY_MPI].gbs;
}

/* Sizes of messages between GPU and host, in turn: those of --bytes, else some, the largest last. 0 behind it. */
static size_t find_host_size(int i)
{
    static const size_t sizes[] = {8 << 10, 64 << 10, 256 << 10, MIB, 4 * MIB, HOST_BYTES};
    const int n = (int) (sizeof(sizes) / sizeof(sizes[0]));

    if (opt.nbytes > 0) {
        return i < opt.nbytes ? opt.bytes[i] : 0;
    }
    return i < n && (0 == i || sizes[i] <= opt.common.max) ? find_least(sizes[i], opt.common.max) : 0;
}

/* What host memory of one kind is measured beside. */
typedef struct {
    int kind;
    const char *unit;
    double to_gbs, from_gbs; /* of the unit; 0: none */
} host_kind_t;

/* Blocking ones, and a window. */
static void measure_host_ways(const char *blocking, const char *window, bench_exchange_t e, int from_kind, int to_kind,
                              double unit_gbs, const char *unit)
{
    e.form = BENCH_ONEWAY;
    measure_kinds(blocking, e, from_kind, to_kind, unit_gbs, unit);
    if (e.bytes <= HOST_WINDOW_BYTES) {
        e.form = BENCH_WINDOW_OF;
        measure_kinds(window, e, from_kind, to_kind, unit_gbs, unit);
    }
}

static void measure_host_size(const host_kind_t *h, int from, int to, size_t bytes)
{
    const int gpu = bench_memory_kind();
    const bench_exchange_t e = {.form = BENCH_PINGPONG, .from = from, .to = to, .bytes = bytes};

    if (opt.only[TO_HOST]) {
        measure_host_ways("to_host", "to_host_win", e, gpu, h->kind, h->to_gbs, h->unit);
    }
    if (opt.only[FROM_HOST]) {
        measure_host_ways("from_host", "from_host_win", e, h->kind, gpu, h->from_gbs, h->unit);
        measure_kinds("host_pingpong", e, h->kind, gpu, 0, "");
    }
}

/* The yardsticks are long copies, whatever the messages: short ones stay in a cache. */
static void measure_host(int from, int to)
{
    const size_t bytes = bench_cu.there ? HOST_BYTES : find_least(HOST_BYTES, opt.common.max);
    const int gpu = bench_memory_kind();
    host_kind_t hosts[] = {{.kind = MEM_HOST, .unit = "memcpy"}, {.kind = MEM_REGISTERED, .unit = "bus"}};

    if (!opt.only[TO_HOST] && !opt.only[FROM_HOST]) {
        return;
    }
    hosts[0].to_gbs = hosts[0].from_gbs = measure_copy("memcpy", run_memcpy, to, MEM_HOST, MEM_HOST, bytes);
    if (bench_agree(mem_have(MEM_REGISTERED))) {
        hosts[1].to_gbs = measure_copy("bus_to_host", run_to_host, to, gpu, MEM_REGISTERED, bytes);
        hosts[1].from_gbs = measure_copy("bus_from_host", run_from_host, from, MEM_REGISTERED, gpu, bytes);
    }
    for (size_t h = 0; h < sizeof(hosts) / sizeof(hosts[0]); h++) {
        for (int i = 0; find_host_size(i) > 0; i++) {
            measure_host_size(&hosts[h], from, to, find_host_size(i));
        }
    }
}

/* ---- what many messages leave behind ----------------------------------------------------------------------------- */

typedef struct {
    size_t host, gpu, descriptors; /* bytes, free bytes of the GPU, number */
} holdings_t;

static holdings_t look(void)
{
    MPI_Barrier(bench_world);
    return (holdings_t){bench_resident_memory(), bench_free_memory(), bench_open_descriptors()};
}

static double find_growth(size_t before, size_t after)
{
    return bench_max(after > before ? (double) (after - before) : 0);
}

/* Small messages, after a tenth of as many, which touch all that is touched as it is used. */
static void measure_growth(int from, int to)
{
    bench_exchange_t e = {.form = BENCH_PINGPONG, .from = from, .to = to, .bytes = GROWN_BYTES, .out = out, .in = in};
    holdings_t before = look(), after; /* what looking itself takes is in the first one */

    bench_exchange_repeat(&e, opt.messages / 20 + 1);
    before = look();
    bench_exchange_repeat(&e, opt.messages / 2);
    after = look();
    bench_comment("%zu messages of %d bytes between ranks %d and %d have left in use:", opt.messages, GROWN_BYTES, from,
                  to);
    add_amount("grown_host", find_growth(before.host, after.host) / 1024, "KiB");
    if (bench_cu.there) {
        add_amount("grown_gpu", count_mib(before.gpu, after.gpu), "MiB");
    }
    add_amount("grown_fds", find_growth(before.descriptors, after.descriptors), "descriptors");
}

/* ---- a pair ------------------------------------------------------------------------------------------------------ */

/* Sizes in turn; the largest is always one. Returns 0 behind the last. */
static size_t find_size(int i)
{
    size_t bytes = opt.common.min;

    if (opt.nbytes > 0) {
        return i < opt.nbytes ? opt.bytes[i] : 0;
    }
    for (; i > 0 && bytes < opt.common.max; i--) {
        bytes = bytes > opt.common.max / opt.common.step ? opt.common.max : bytes * opt.common.step;
    }
    return 0 == i ? bytes : 0;
}

static void warm_up(int from, int to)
{
    for (int by = 0; by < BENCH_BYS; by++) {
        bench_exchange_warm_up(&(bench_exchange_t){.form = BENCH_PINGPONG,
                                                   .by = (bench_by_t) by,
                                                   .from = from,
                                                   .to = to,
                                                   .bytes = GROWN_BYTES,
                                                   .out = out,
                                                   .in = in});
    }
}

static void measure_pair(int from, int to)
{
    const size_t window = find_least(WINDOW_BYTES, opt.common.max);

    warm_up(from, to);
    for (int i = 0; opt.only[PINGPONG] && find_size(i) > 0; i++) {
        measure_form(PINGPONG, BENCH_PINGPONG, from, to, find_size(i));
    }
    if (opt.only[WINDOW]) {
        measure_form(WINDOW, BENCH_WINDOW_OF, from, to, window);
    }
    if (opt.only[ONEWAY]) {
        measure_form(ONEWAY, BENCH_ONEWAY, from, to, opt.common.max);
    }
    if (opt.only[BOTH]) {
        measure_form(BOTH, BENCH_BOTH, from, to, opt.common.max);
    }
    if (opt.only[ASYNC]) {
        measure_kinds("async",
                      (bench_exchange_t){.form = BENCH_ONEWAY, .from = from, .to = to, .bytes = opt.common.max},
                      MEM_ASYNC, MEM_ASYNC, 0, "");
    }
    measure_host(from, to);
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static void read_bytes(char *list)
{
    const char *items[BENCH_LIST_MAX];

    opt.nbytes = bench_cut(list, items, bench_usage);
    for (int i = 0; i < opt.nbytes; i++) {
        opt.bytes[i] = bench_number(items[i], bench_usage);
        opt.common.max = opt.bytes[i] > opt.common.max ? opt.bytes[i] : opt.common.max;
        if (0 == opt.bytes[i] || 0 != opt.bytes[i] % 4) {
            bench_refuse("--bytes: sizes must be multiples of 4");
        }
    }
}

static void read_parts(char *list)
{
    const char *items[BENCH_LIST_MAX];
    const int n = bench_cut(list, items, bench_usage);
    int found = 0;

    for (int p = 0; p < PARTS; p++) {
        opt.only[p] = false;
        for (int i = 0; i < n; i++) {
            found += 0 == strcmp(items[i], part_names[p]);
            opt.only[p] = opt.only[p] || 0 == strcmp(items[i], part_names[p]);
        }
    }
    if (found != n) {
        bench_refuse("--only: no such rows; gpusym_bench --help names all");
    }
}

static void read_option(int c, char *value)
{
    switch (c) {
    case 'b':
        read_bytes(value);
        break;
    case 'o':
        read_parts(value);
        break;
    case 'w':
        opt.messages = bench_number(value, bench_usage);
        break;
    case 'N':
        opt.no_nccl = true;
        break;
    case 'P':
        bench_progress_always();
        break;
    default:
        bench_refuse("usage: %s", bench_usage);
    }
}

static void check_options(void)
{
    const bool cuda = 0 == strcmp(opt.common.device, "cuda");

    if (0 == opt.common.max) {
        opt.common.max = cuda ? MAX_CUDA : MAX_OTHER;
    }
    if (0 == opt.messages) {
        opt.messages = cuda ? MESSAGES_CUDA : MESSAGES_OTHER;
    }
    if (!bench_common_good(&opt.common, 4) || 0 != opt.common.max % 4 || opt.common.max > INT_MAX) {
        bench_refuse("sizes must be multiples of 4 bytes, --max at least --min and below 2 GiB, --step at least 2, "
                     "--batches %d to %d",
                     BENCH_BATCHES_MIN, BENCH_BATCHES_MAX);
    }
    if (bench_ranks < 2) {
        bench_refuse("messages require two ranks");
    }
}

static void read_options(int argc, char **argv)
{
    static const struct option all[] = {
#define BENCH_COMMON BENCH_GETOPT
#define BENCH_TABLES BENCH_GETOPT
#define BENCH_P2P BENCH_GETOPT
#include "bench/options.def"
        {NULL, 0, NULL, 0}};

    for (int p = 0; p < PARTS; p++) {
        opt.only[p] = true;
    }
    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        if (!bench_common_option(&opt.common, c, optarg, bench_usage)) {
            read_option(c, optarg);
        }
    }
    if (optind < argc) {
        bench_refuse("unexpected argument %s\nusage: %s", argv[optind], bench_usage);
    }
    check_options();
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The goals are of NVIDIA H200. */
static void open_table(void)
{
    const int linger = bench_variable_value(LINGER, -1);
    char gpu[100];
    int cuda;

    bench_gpu(gpu, sizeof(gpu), &cuda);
    bench_comment(LINGER ": %d%s", linger, linger < 0 ? " (automatic, or no such parameter)" : "");
    bench_p2p_head(NULL != strstr(gpu, "H200"), 0 != linger);
}

static void open_buffers(void)
{
    const size_t window = bench_exchange_size(BENCH_WINDOW_OF, find_least(WINDOW_BYTES, opt.common.max));
    const size_t size = opt.common.max > window ? opt.common.max : window;

    bench_content_open();
    bench_content_seed(0x2545f491u);
    out = bench_alloc(size);
    in = bench_alloc(size);
    bench_exchange_fill(out, size);
}

static void close_buffers(void)
{
    bench_free(in);
    bench_free(out);
    bench_content_close();
}

static int run(void)
{
    open_buffers();
    open_table();
    if (opt.only[FIRST]) {
        measure_firsts();
    } else {
        bench_nccl_open(out, in, 0, !opt.no_nccl);
    }
    for (int from = 0; from < bench_ranks; from++) {
        for (int to = from + 1; to < bench_ranks; to++) {
            measure_pair(from, to);
        }
    }
    if (opt.only[GROWN]) {
        measure_growth(0, 1);
    }
    bench_comment("%s", 0 == wrong ? "every element of every result is right" : "WRONG RESULTS");
    bench_nccl_close();
    close_buffers();
    return 0 == wrong ? 0 : 1;
}

int bench_p2p(int argc, char **argv)
{
    int status;

    bench_init(&argc, &argv);
    opt.common.device = bench_device();
    read_options(argc - 1, argv + 1);
    bench_counters_open();
    if (0 == bench_counters_of_messages("sent") && 0 != strcmp(opt.common.device, "host")) {
        bench_refuse(
            "gpusym does not serve messages here: add --mca coll gpusym, and check that it is in the component "
            "path");
    }
    bench_start("gpusym_bench p2p", &opt.common, "messages on GPU memory between pairs of ranks");
    if (0 != strcmp(opt.common.device, "cuda")) {
        bench_comment("NO GPU: %s; these times say nothing about a GPU",
                      0 == strcmp(opt.common.device, "sim") ? "the simulator computes on the CPU" : "host memory");
    }
    status = run();
    bench_counters_close();
    bench_end();
    return status;
}
