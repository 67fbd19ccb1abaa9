/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * All-reduces between up to thousands of hosts, simulated: the engine itself in the time of a model (model.h).
 *
 *     test/scale/scale [--net NAME] [--hosts LIST] [--bytes LIST]
 *
 * Prints the time of each way beside a lower bound.  The exit status says whether every call has ended, in no less than
 * the bound, and whether no host has sent more than the way has to send.  docs/scale.md has its tables.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/scale/model.h"
#include "tuning/tree.h"

#define LIST_MAX 16

static const scale_net_t nets[] = {
    {.name = "slow",
     .what = "100 Mbit/s at MTU 9000, simulated GPUs on two cores: what bench/hosts.sh measures",
     .latency = 60e3,
     .overhead = 10e3,
     .wire_gbs = 0.0125 / 1.007,
     .launch = 50e3,
     .kernel = 20e3,
     .kernel_gbs = 2,
     .piece_bytes = 256 << 10},
    {.name = "far",
     .what = "20 ms from host to host: what bench/hosts.sh measures",
     .latency = 20e6,
     .overhead = 10e3,
     .wire_gbs = 0.5,
     .launch = 50e3,
     .kernel = 20e3,
     .kernel_gbs = 2,
     .piece_bytes = 256 << 10},
    {.name = "ndr",
     .what = "400 Gbit/s, 2 us from host to host; H200: a launch and its completion word 7.8 us, kernels 48 GB/s to "
             "pinned memory; 2 x H100: the copier (bench/results/2026-11-27-2xh100-hosts-short.csv, -exchange.csv)",
     .latency = 2e3,
     .overhead = 0.4e3,
     .wire_gbs = 50,
     .launch = 4e3,
     .kernel = 3.8e3,
     .kernel_gbs = 48,
     /* All-reduces of 8 B take 13.2 us by two copies, 3.2 of them outside of the copies, and 11.6 by an exchange;
      * 16 KiB 10.3 us more than 8 B, 2.6 of them outside; 512 B by an exchange 1.6 us more. */
     .copy = 5e3,
     .copy_gbs = 4.2,
     .exchange = 8.4e3,
     .exchange_gbs = 0.33,
     .piece_bytes = 512 << 10},
};

/* The ways of an all-reduce. */
enum { DIRECT, TREE, TREES, RING, WAYS };
static const char *const way_names[WAYS] = {"direct", "tree", "two trees", "ring"};

static double bound_of(const scale_net_t *net, uint32_t n, double bytes)
{
    return net->latency + 2.0 * (n - 1) / n * bytes / net->wire_gbs;
}

/* What a host has to send of that way at most, in bytes of data. */
static double to_send(int way, uint32_t n, double bytes)
{
    if (DIRECT == way || TREE == way) {
        return (DIRECT == way ? n - 1 : 1 + gpusym_tuning_tree_degree(n)) * bytes;
    }
    return TREES == way ? 2 * bytes : 2.0 * (n - 1) / n * bytes;
}

static bool may(int way, const scale_net_t *net, uint32_t n, uint64_t bytes)
{
    if (DIRECT == way) {
        return n <= GPUSYM_RAIL_DIRECT_MAX && bytes <= GPUSYM_RAIL_DIRECT_BYTES(net->piece_bytes);
    }
    if (TREE == way) {
        return bytes <= GPUSYM_RAIL_DIRECT_BYTES(net->piece_bytes);
    }
    return RING != way || bytes >= 16ull * n; /* shorter ones leave most hosts nothing to own */
}

/* The time of a call whose streams are open; -1: something is wrong, and said. */
static double measure(int way, const scale_net_t *net, uint32_t n, uint64_t bytes)
{
    static char memory[1];
    static uint32_t number;
    gpusym_rail_call_t call = {.form = DIRECT == way ? GPUSYM_RAIL_DIRECT
                                       : TREE == way ? GPUSYM_RAIL_TREE
                                                     : GPUSYM_RAIL_PATH,
                               .schedule = TREES == way ? GS_TREE_ALLREDUCE : GS_RING_ALLREDUCE,
                               .spread = DIRECT == way,
                               .reduces = true,
                               .op = GPUSYM_OP_SUM,
                               .type = GPUSYM_T_F32,
                               .in = memory,
                               .out = memory,
                               .own = true,
                               .bytes = bytes};
    scale_open(net, n);
    double ns = -1;
    for (int i = 0; i < 2; i++) {
        call.call = ++number;
        ns = scale_run(&call);
    }
    const double heads = 0.01 * (double) bytes + 8192 + 64.0 * n * n;
    if (ns < 0) {
        printf("# %s, %u hosts, %llu bytes, %s: it does not end\n", net->name, n, (unsigned long long) bytes,
               way_names[way]);
    } else if (ns < bound_of(net, n, (double) bytes)) {
        printf("# %s, %u hosts, %llu bytes, %s: %.0f ns, less than possible\n", net->name, n,
               (unsigned long long) bytes, way_names[way], ns);
        ns = -1;
    } else if (scale_sent() > to_send(way, n, (double) bytes) + heads) {
        printf("# %s, %u hosts, %llu bytes, %s: a host has sent %.0f bytes, and had to send %.0f\n", net->name, n,
               (unsigned long long) bytes, way_names[way], scale_sent(), to_send(way, n, (double) bytes));
        ns = -1;
    }
    scale_close();
    return ns;
}

/* One row. False: something is wrong. */
static bool print_row(const scale_net_t *net, uint32_t n, uint64_t bytes)
{
    const double bound = bound_of(net, n, (double) bytes);
    double best = -1;
    bool right = true;
    printf("%-5s %6u %10llu %12.1f", net->name, n, (unsigned long long) bytes, bound / 1e3);
    for (int way = 0; way < WAYS; way++) {
        if (!may(way, net, n, bytes)) {
            printf(" %12s", "-");
            continue;
        }
        const double ns = measure(way, net, n, bytes);
        printf(" %12.1f", ns / 1e3);
        right = right && ns >= 0;
        best = best < 0 || ns < best ? ns : best;
    }
    printf(" %8.3f\n", best / bound);
    fflush(stdout);
    return right;
}

/* Numbers of a list, which may end in k or m. Returns how many. */
static int read_list(char *text, uint64_t *list)
{
    int n = 0;
    for (char *end, *t = strtok(text, ","); NULL != t && n < LIST_MAX; t = strtok(NULL, ",")) {
        list[n] = strtoull(t, &end, 10);
        list[n++] <<= 'k' == *end ? 10 : 'm' == *end ? 20 : 0;
    }
    return n;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"net", 1, NULL, 'n'}, {"hosts", 1, NULL, 'h'}, {"bytes", 1, NULL, 'b'}, {NULL, 0, NULL, 0}};
    char all_hosts[] = "2,3,4,8,32,64", all_bytes[] = "8,4k,64k,1m,32m";
    char *hosts = all_hosts, *bytes = all_bytes;
    const char *name = NULL;
    uint64_t host[LIST_MAX], size[LIST_MAX];
    bool right = true;

    for (int c; - 1 != (c = getopt_long(argc, argv, "", options, NULL));) {
        name = 'n' == c ? optarg : name;
        hosts = 'h' == c ? optarg : hosts;
        bytes = 'b' == c ? optarg : bytes;
        if ('?' == c) {
            fprintf(stderr, "usage: scale [--net slow|far|ndr] [--hosts LIST] [--bytes LIST]\n");
            return 2;
        }
    }
    const int nhosts = read_list(hosts, host), nsizes = read_list(bytes, size);
    printf("# simulated: one GPU and one interface a host, microseconds\n");
    printf("%-5s %6s %10s %12s", "net", "hosts", "bytes", "bound");
    for (int way = 0; way < WAYS; way++) {
        printf(" %12s", way_names[way]);
    }
    printf(" %8s\n", "best");
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        for (int h = 0; h < nhosts && (NULL == name || 0 == strcmp(name, nets[i].name)); h++) {
            for (int s = 0; s < nsizes; s++) {
                right = print_row(&nets[i], (uint32_t) host[h], size[s]) && right;
            }
        }
    }
    printf("# %s\n", right ? "every call has ended, in no less than its bound" : "WRONG");
    return !right;
}
