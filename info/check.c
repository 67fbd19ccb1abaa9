/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The check of a job's GPUs and links: see check.h.
 *
 * Pairs of ranks exchange messages in rounds, in each of which every rank has one partner: so a job of n ranks takes n
 * rounds. By plain MPI on GPU memory, as a program would.
 */
#include "info/check.h"

#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/job.h"
#include "bench/memory.h"
#include "bench/timing.h"
#include "info/machine.h"
#include "mca/common/gpusym/gpusym.h"
#include "test/mpi/mem.h"

enum { TAG = 3, SHORT = 64 /* bytes of a short message */, REPEATS = 3, ALL_PAIRS_MAX = 8 /* ranks */ };
/* Bytes of a long message, which copy engines move, and of a long all-reduce. */
#define LONG_BYTES (32u << 20)
#define LONG_BYTES_SIM (6u << 20)
/* A link is slow if it has less than this share of what it can do, or of the median of its kind. Host bridges and
 * networks are shared by the pairs of a round, now by more and now by fewer. The simulator's links are threads of a
 * machine that may be busy. */
#define SLOW 0.5
#define SLOW_SHARED 0.1
#define SLOW_SIM 0.02

/* A rank, as the others need to know it. */
typedef struct {
    char host[MPI_MAX_PROCESSOR_NAME];
    gpusym_gpu_info_t gpu;
} member_t;

/* What a rank has found of messages from another. */
typedef struct {
    uint64_t wrong; /* words */
    double gbs;
    uint32_t class; /* of the link; NETWORK: between hosts */
} pair_t;
enum { NETWORK = 256 };

static struct {
    bool simulated;
    size_t bytes;
    member_t *member; /* [ranks] */
    pair_t *from;     /* [ranks]; rank 0: [ranks][ranks], the receivers' rows */
    uint32_t *host;   /* bytes */
    void *send, *receive;
    double median[NETWORK + 1]; /* by class, once asked for; rank 0 */
} check;

static void *host_memory(size_t n, size_t bytes)
{
    void *p = calloc(n, bytes);

    if (NULL == p) {
        bench_die("no host memory");
    }
    return p;
}

/* ---- one message ---- */

/* What a word of a message between two ranks is. */
static uint32_t word(int from, int to, size_t i)
{
    return (uint32_t) (i * 2654435761u) ^ (uint32_t) (from << 16) ^ (uint32_t) to;
}

static void fill(int to)
{
    for (size_t i = 0; i < check.bytes / 4; i++) {
        check.host[i] = word(bench_rank, to, i);
    }
    mem_write(check.send, check.host, check.bytes);
}

static uint64_t count_wrong(int from, size_t bytes)
{
    uint64_t wrong = 0;

    mem_read(check.host, check.receive, bytes);
    for (size_t i = 0; i < bytes / 4; i++) {
        wrong += word(from, bench_rank, i) != check.host[i];
    }
    return wrong;
}

/* Messages from one rank to another; both come here. The receiver notes what it finds: the short message begins the
 * long one, so that both have the same words. */
static void exchange(int from, int to)
{
    pair_t *pair = &check.from[from];
    double best = 0;

    if (bench_rank == from) {
        fill(to);
        MPI_Send(check.send, SHORT, MPI_BYTE, to, TAG, bench_world);
        for (int i = 0; i < REPEATS; i++) {
            MPI_Recv(NULL, 0, MPI_BYTE, to, TAG, bench_world, MPI_STATUS_IGNORE);
            MPI_Send(check.send, (int) check.bytes, MPI_BYTE, to, TAG, bench_world);
        }
        return;
    }
    memset(check.host, 0, check.bytes);
    mem_write(check.receive, check.host, check.bytes);
    MPI_Recv(check.receive, SHORT, MPI_BYTE, from, TAG, bench_world, MPI_STATUS_IGNORE);
    pair->wrong = count_wrong(from, SHORT);
    for (int i = 0; i < REPEATS; i++) {
        const double start = MPI_Wtime();
        MPI_Send(NULL, 0, MPI_BYTE, from, TAG, bench_world);
        MPI_Recv(check.receive, (int) check.bytes, MPI_BYTE, from, TAG, bench_world, MPI_STATUS_IGNORE);
        const double gbs = (double) check.bytes / (MPI_Wtime() - start) / 1e9;
        best = gbs > best ? gbs : best;
    }
    pair->wrong += count_wrong(from, check.bytes);
    pair->gbs = best;
}

/* Round r of a tournament of n ranks (an even number, at least as many as there are): who is our partner. The last one
 * stands, the others go round it. */
static int partner_of(int rank, int r, int n)
{
    const int others = n - 1;

    if (rank == others) {
        return r * (n / 2) % others;
    }
    const int partner = (r + others - rank) % others;
    return partner == rank ? others : partner;
}

static void exchange_all(void)
{
    const int n = bench_ranks + bench_ranks % 2;

    for (int r = 0; r < n - 1; r++) {
        const int partner = partner_of(bench_rank, r, n);
        const int low = bench_rank < partner ? bench_rank : partner, high = bench_rank < partner ? partner : bench_rank;
        if (high < bench_ranks && low != high) {
            exchange(low, high);
            exchange(high, low);
        }
    }
}

/* ---- who is there ---- */

static uint32_t link_to(int rank)
{
    const member_t *us = &check.member[bench_rank], *they = &check.member[rank];
    gpusym_gpu_t *gpu;

    if (0 != strcmp(us->host, they->host)) {
        return NETWORK;
    }
    if (!check.simulated) {
        return gpusym_topo_link(&us->gpu.place, &they->gpu.place);
    }
    return GPUSYM_SUCCESS == gpusym_current.dev->gpu_open(NULL, &gpu)
               ? (uint32_t) gpusym_current.dev->gpu_link(gpu, &they->gpu.place)
               : GPUSYM_LINK_NONE;
}

static void meet(void)
{
    member_t us;
    int length;

    memset(&us, 0, sizeof(us));
    MPI_Get_processor_name(us.host, &length);
    const gpusym_device_t *dev = gpusym_device_need();
    if (NULL == dev || GPUSYM_SUCCESS != dev->gpu_look(mem_gpu(), &us.gpu)) {
        bench_die("gpusym does not see the GPU of this rank: see gpusym_info without arguments");
    }
    check.simulated = dev->simulated;
    check.bytes = check.simulated ? LONG_BYTES_SIM : LONG_BYTES;
    check.member = host_memory((size_t) bench_ranks, sizeof(us));
    check.from = host_memory((size_t) bench_ranks * (0 == bench_rank ? (size_t) bench_ranks : 1), sizeof(pair_t));
    MPI_Allgather(&us, (int) sizeof(us), MPI_BYTE, check.member, (int) sizeof(us), MPI_BYTE, bench_world);
    for (int r = 0; r < bench_ranks; r++) {
        check.from[r].class = r == bench_rank ? GPUSYM_LINK_SELF : link_to(r);
    }
    check.host = host_memory(1, check.bytes);
    check.send = bench_alloc(check.bytes);
    check.receive = bench_alloc(check.bytes);
}

static void part(void)
{
    bench_free(check.send);
    bench_free(check.receive);
    free(check.host);
    free(check.from);
    free(check.member);
}

/* ---- what is told, on rank 0 ---- */

static const pair_t *pair_of(int from, int to)
{
    return &check.from[(size_t) to * (size_t) bench_ranks + (size_t) from];
}

static const char *link_name(uint32_t class)
{
    return NETWORK == class ? "network" : GPUSYM_LINK_SELF == class ? "same GPU" : info_link_name((uint8_t) class);
}

/* The bandwidth of the pairs of a kind that half of them reach. */
static double median_of(uint32_t class)
{
    int n = 0;

    if (check.median[class] > 0) {
        return check.median[class];
    }
    double *gbs = host_memory((size_t) bench_ranks * (size_t) bench_ranks, sizeof(*gbs));

    for (int from = 0; from < bench_ranks; from++) {
        for (int to = 0; to < bench_ranks; to++) {
            if (from != to && pair_of(from, to)->class == class) {
                gbs[n++] = pair_of(from, to)->gbs;
            }
        }
    }
    check.median[class] = 0 == n ? 0 : bench_median(gbs, n);
    free(gbs);
    return check.median[class];
}

/* What the link between two ranks can do, in 10^9 bytes a second; NAN: not known. */
static double can_do(int from, int to)
{
    const uint32_t class = pair_of(from, to)->class;

    if (NETWORK == class) {
        return NAN;
    }
    const double a = info_link_gbs((uint8_t) class, &check.member[from].gpu);
    const double b = info_link_gbs((uint8_t) class, &check.member[to].gpu);
    return fmin(a, b);
}

/* NULL: nothing is wrong with it. */
static const char *verdict_of(int from, int to)
{
    const pair_t *pair = pair_of(from, to);
    const bool own = pair->class > GPUSYM_LINK_HOST && NETWORK != pair->class;
    const double share = check.simulated ? SLOW_SIM : own ? SLOW : SLOW_SHARED;

    if (0 != pair->wrong) {
        return "wrong data";
    }
    if (own && pair->gbs < share * can_do(from, to)) {
        return "slow";
    }
    return pair->gbs < share * median_of(pair->class) ? "slow" : NULL;
}

static void member_text(int rank, char *text, size_t size)
{
    const member_t *member = &check.member[rank];

    snprintf(text, size, "rank %d (%s, %s, host %s)", rank, member->gpu.name, member->gpu.where, member->host);
}

static void tell_members(info_item_t *root)
{
    info_item_t *list = info_list(root, "ranks");

    for (int r = 0; r < bench_ranks; r++) {
        const member_t *member = &check.member[r];
        info_item_t *row = info_group(list, NULL);
        info_number(row, "rank", r);
        info_text(row, "host", "%s", member->host);
        info_text(row, "gpu", "%s", member->gpu.name);
        info_text(row, "address", "%s", member->gpu.where);
    }
}

static void tell_pair(info_item_t *list, int from, int to, const char *verdict)
{
    const pair_t *pair = pair_of(from, to);
    info_item_t *row = info_group(list, NULL);

    info_number(row, "from", from);
    info_number(row, "to", to);
    info_text(row, "link", "%s", link_name(pair->class));
    info_number(row, "gb_per_s", (double) (int) (pair->gbs * 100) / 100);
    info_number(row, "link_gb_per_s", can_do(from, to));
    info_text(row, "verdict", "%s", NULL == verdict ? "right" : verdict);
}

static void tell_bad_pair(info_item_t *bad, int from, int to, const char *verdict)
{
    const pair_t *pair = pair_of(from, to);
    char a[512], b[512];

    member_text(from, a, sizeof(a));
    member_text(to, b, sizeof(b));
    info_note(bad, NULL, "%s from %s to %s: %llu of %zu words wrong, %.2f GB/s (such links: %.2f)", verdict, a, b,
              (unsigned long long) pair->wrong, check.bytes / sizeof(*check.host), pair->gbs, median_of(pair->class));
}

/* The pairs, all or, of many ranks, those that are bad; and the bad ones in words, with GPUs all of whose pairs are.
 * Returns how many are bad. */
static unsigned tell_pairs(info_item_t *root, info_item_t *bad)
{
    info_item_t *list = info_list(root, "pairs");
    unsigned *of = host_memory((size_t) bench_ranks, sizeof(*of)), n = 0; /* bad pairs of each rank */
    char text[512];

    for (int i = 0; i < bench_ranks * bench_ranks; i++) {
        const int from = i / bench_ranks, to = i % bench_ranks;
        const char *verdict = from == to ? NULL : verdict_of(from, to);
        if (from != to && (NULL != verdict || bench_ranks <= ALL_PAIRS_MAX)) {
            tell_pair(list, from, to, verdict);
        }
        if (NULL != verdict) {
            tell_bad_pair(bad, from, to, verdict);
            of[from]++;
            of[to]++;
            n++;
        }
    }
    for (int r = 0; r < bench_ranks && bench_ranks > 2; r++) {
        if (of[r] == 2 * (unsigned) (bench_ranks - 1) && of[r] == n) {
            member_text(r, text, sizeof(text));
            info_note(bad, NULL, "all bad pairs, and all pairs of its GPU, are those of %s", text);
        }
    }
    free(of);
    return n;
}

/* ---- all-reduce ---- */

/* Sums of floats that are exact. */
static void fill_floats(float *host, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        host[i] = (float) (i % 1000 + (size_t) bench_rank);
    }
    mem_write(check.send, host, n * sizeof(*host));
}

static uint64_t count_wrong_floats(float *host, size_t n)
{
    const size_t ranks = (size_t) bench_ranks;
    uint64_t wrong = 0;

    mem_read(host, check.receive, n * sizeof(*host));
    for (size_t i = 0; i < n; i++) {
        wrong += host[i] != (float) (ranks * (i % 1000) + ranks * (ranks - 1) / 2);
    }
    return wrong;
}

/* One size; the ranks whose results are wrong are named. */
static bool allreduce(info_item_t *list, info_item_t *bad, size_t bytes)
{
    const size_t n = bytes / sizeof(float);
    uint64_t *wrong = host_memory((size_t) bench_ranks, sizeof(*wrong)), ours;
    double best = 1e9, all_wrong = 0;
    char text[512];

    fill_floats((float *) check.host, n);
    for (int i = 0; i < REPEATS; i++) {
        MPI_Barrier(bench_world);
        const double start = MPI_Wtime();
        MPI_Allreduce(check.send, check.receive, (int) n, MPI_FLOAT, MPI_SUM, bench_world);
        const double seconds = bench_max(MPI_Wtime() - start);
        best = seconds < best ? seconds : best;
    }
    ours = count_wrong_floats((float *) check.host, n);
    MPI_Allgather(&ours, 1, MPI_UINT64_T, wrong, 1, MPI_UINT64_T, bench_world);
    for (int r = 0; r < bench_ranks; r++) {
        all_wrong += (double) wrong[r];
        if (0 != wrong[r] && 0 == bench_rank) {
            member_text(r, text, sizeof(text));
            info_note(bad, NULL, "wrong data: an all-reduce of %zu bytes gives %s %llu wrong elements of %zu", bytes,
                      text, (unsigned long long) wrong[r], n);
        }
    }
    free(wrong);
    if (0 == bench_rank) {
        info_item_t *row = info_group(list, NULL);
        info_number(row, "bytes", (double) bytes);
        info_number(row, "us", (double) (int) (best * 1e7) / 10);
        info_number(row, "bus_gb_per_s",
                    (double) (int) (2e2 * (bench_ranks - 1) / bench_ranks * (double) bytes / best / 1e9) / 100);
        info_text(row, "verdict", "%s", 0 == all_wrong ? "right" : "wrong data");
    }
    return 0 == all_wrong;
}

/* ---- all of it ---- */

static bool check_job(info_item_t *root)
{
    const size_t sizes[] = {16, 64 << 10, check.bytes};
    const int row = (int) ((size_t) bench_ranks * sizeof(pair_t));
    info_item_t *bad = info_list(root, "bad"), *list;
    unsigned wrong = 0;

    exchange_all();
    MPI_Gather(0 == bench_rank ? MPI_IN_PLACE : check.from, row, MPI_BYTE, check.from, row, MPI_BYTE, 0, bench_world);
    if (0 == bench_rank) {
        tell_members(root);
        wrong = tell_pairs(root, bad);
    }
    list = info_list(root, "allreduce");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        wrong += !allreduce(list, bad, sizes[i]);
    }
    return bench_agree(0 == wrong);
}

bool info_check(info_item_t *root)
{
    bench_init(&(int){0}, &(char **){NULL});
    if (bench_ranks < 2) {
        bench_refuse("gpusym_info --check: two ranks or more are needed, one for each GPU: mpirun -n N");
    }
    const gpusym_device_t *dev = info_component_there() ? gpusym_device_need() : NULL;
    if (NULL == dev) {
        bench_die("gpusym_info --check: %s", info_component_there()
                                                 ? "there is no GPU here: gpusym_info without arguments says why"
                                                 : "this mpirun has not loaded gpusym (--mca coll gpusym)");
    }
    bench_memory_open(dev->name, bench_rank_on_host());
    MPI_Comm_dup(MPI_COMM_WORLD, &bench_world);
    meet();
    return check_job(root);
}

void info_check_end(void)
{
    part();
    bench_end();
}
