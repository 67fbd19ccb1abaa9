/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The schedule checker: runs the step lists of rings, chains and trees (kernels/schedule.h, over the paths of
 * mca/common/gpusym/topo/rings.h) for any number of ranks, and prints a table of what was run.  For every case: all
 * ranks end; no buffer is written before it was read, or read before it was written; every result has every
 * contribution in it once; ranks send as much as the theory says.  First it sees to it that schedules that are broken
 * on purpose are found.
 *
 *     check [--from N] [--to N] [--threads N] [--seed N] [--report FILE]
 *
 * With --from or --to: every number of ranks in that range (2 .. 4096, whichever is not given).  Without: all of 2 ..
 * 128, and of the others powers of two, their neighbours and some primes; of chains and trees all to 1024.  The table
 * goes to standard output, and to FILE.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "test/schedule/machine.h"

#define MIN_RANKS 2u
#define MAX_RANKS 4096u
#define ALL_ROOTS 16u      /* up to so many ranks: every root, both ways of running, every number of loops to some */
#define ALL_TO 128u        /* without --from and --to: all to so many ranks, and chosen ones above */
#define ALL_TREES_TO 1024u /* the same for chains and trees, whose steps are few */
#define TREE_LOOPS 20u     /* of trees and chains: the buffers of a stream are used more than twice */
#define BROKEN_RANKS 9u    /* of the schedules that are broken on purpose */
#define MAX_THREADS 256u

static const char *const names[GS_SCHEDULES] = {
    [GS_RING_ALLREDUCE] = "ring all-reduce",
    [GS_RING_ALLGATHER] = "ring all-gather",
    [GS_RING_REDUCE_SCATTER] = "ring reduce-scatter",
    [GS_CHAIN_BCAST] = "chain broadcast",
    [GS_CHAIN_REDUCE] = "chain reduce",
    [GS_TREE_ALLREDUCE] = "two trees, all-reduce",
    [GS_TREE_BCAST] = "two trees, broadcast",
    [GS_TREE_REDUCE] = "two trees, reduce",
};

typedef struct {
    uint32_t sizes, from, to; /* numbers of ranks that were run: how many, the least, the most */
    uint64_t cases, steps;
    uint32_t wrong;
    char first[300]; /* of what was wrong */
} row_t;

/* Shared by the threads; lock: whose turn it is. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t next_n, first_n; /* the next number of ranks to run: from the most down to first_n */
static bool every;               /* n of the range, not just chosen ones */
static uint64_t seed;
static row_t rows[GS_SCHEDULES];

static bool has_root(uint32_t kind)
{
    return GS_CHAIN_BCAST == kind || GS_CHAIN_REDUCE == kind || GS_TREE_BCAST == kind || GS_TREE_REDUCE == kind;
}

static bool is_tree(uint32_t kind)
{
    return GS_TREE_ALLREDUCE == kind || GS_TREE_BCAST == kind || GS_TREE_REDUCE == kind;
}

/* ---- how much is sent ---- */

/*
 * In chunks a loop, by one rank, over all paths of the algorithm (two trees, of which each takes half the message; one
 * ring; one chain): at least, at most.  A message is n chunks of a ring, 2 of two trees, one of a chain.
 */
static void sends_of(const schedule_case_t *c, uint32_t r, uint32_t *least, uint32_t *most)
{
    const uint32_t place = NULL == c->order ? r : c->order[r]; /* orders that are used here are their own inverse */
    const uint32_t root = NULL == c->order ? c->root : c->order[c->root];
    switch (c->kind) {
    case GS_RING_ALLREDUCE: /* 2 (n - 1) / n of the message */
        *least = *most = 2 * (c->n - 1);
        break;
    case GS_RING_ALLGATHER: /* (n - 1) / n of the message */
    case GS_RING_REDUCE_SCATTER:
        *least = *most = c->n - 1;
        break;
    case GS_CHAIN_BCAST: /* the message; the last sends nothing */
        *least = *most = (root + c->n - 1) % c->n == place ? 0 : 1;
        break;
    case GS_CHAIN_REDUCE:
        *least = *most = root == place ? 0 : 1;
        break;
    case GS_TREE_ALLREDUCE: /* at most twice the message */
        *least = 2;
        *most = 4;
        break;
    case GS_TREE_BCAST: /* at most the message; the root just that */
        *least = c->root == r ? 2 : 0;
        *most = 2;
        break;
    default: /* the message; the root nothing */
        *least = *most = c->root == r ? 0 : 2;
        break;
    }
}

/* ---- one number of ranks ---- */

typedef struct {
    machine_t *machine;
    uint32_t sends[MAX_RANKS]; /* of each rank, over the paths of an algorithm */
    uint32_t order[MAX_RANKS];
    row_t rows[GS_SCHEDULES];
} worker_t;

__attribute__((format(printf, 3, 4))) static void fail(worker_t *w, const schedule_case_t *c, const char *format, ...)
{
    row_t *row = &w->rows[c->kind];
    if (0 == row->wrong++) {
        va_list args;
        int at =
            snprintf(row->first, sizeof row->first,
                     "%s, %u ranks, %u loops, root %u, tree %u, %s, %s: ", names[c->kind], c->n, c->loops, c->root,
                     c->which, NULL == c->order ? "in order" : "other order", c->shuffled ? "shuffled" : "one by one");
        va_start(args, format);
        vsnprintf(row->first + at, sizeof row->first - (size_t) at, format, args);
        va_end(args);
    }
}

/* One algorithm: one ring or chain, or both trees. */
static void run_paths(worker_t *w, schedule_case_t *c)
{
    const uint32_t paths = is_tree(c->kind) ? 2 : 1;
    row_t *row = &w->rows[c->kind];
    uint64_t sum = 0;

    memset(w->sends, 0, sizeof w->sends);
    for (c->which = 0; c->which < paths; c->which++) {
        const char *wrong = machine_run(w->machine, c, &row->steps);
        row->cases++;
        if (NULL != wrong) {
            fail(w, c, "%s", wrong);
            return;
        }
        for (uint32_t r = 0; r < c->n; r++) {
            w->sends[r] += machine_sends(w->machine, r);
        }
    }
    c->which = 0;
    for (uint32_t r = 0; r < c->n; r++) {
        uint32_t least, most;
        sends_of(c, r, &least, &most);
        sum += w->sends[r];
        if (w->sends[r] < least * c->loops || w->sends[r] > most * c->loops) {
            fail(w, c, "rank %u sends %u chunks", r, w->sends[r]);
            return;
        }
    }
    /* Every link of a path is used once a loop by a chain, a broadcast or a reduce, twice by an all-reduce on trees. */
    const uint64_t links = (uint64_t) paths * (c->n - 1) * c->loops * (GS_TREE_ALLREDUCE == c->kind ? 2 : 1);
    if ((is_tree(c->kind) || has_root(c->kind)) && sum != links) {
        fail(w, c, "all ranks together send %llu chunks, not %llu", (unsigned long long) sum,
             (unsigned long long) links);
    }
}

/* Both ways of running; along another order, too, where there are few. */
static void run_orders(worker_t *w, schedule_case_t *c)
{
    c->order = NULL;
    c->shuffled = false;
    c->late = true; /* who waits longer: where that ends, the other does */
    run_paths(w, c);
    if (c->n <= ALL_TO) {
        c->late = false;
        run_paths(w, c);
    }
    if (c->n <= ALL_ROOTS) {
        c->shuffled = true;
        run_paths(w, c);
        c->shuffled = false;
    }
    if (c->n <= ALL_TO && !is_tree(c->kind)) {
        for (uint32_t i = 0; i < c->n; i++) { /* neighbours change places */
            w->order[i] = (i ^ 1u) < c->n ? i ^ 1u : i;
        }
        c->order = w->order;
        run_paths(w, c);
        c->order = NULL;
    }
}

/* Enough loops for a stream's buffers to be used again, more than once. */
static uint32_t loops_for(uint32_t kind, uint32_t n)
{
    if (GS_TREE_ALLREDUCE == kind) { /* more than a leaf sends up before it takes the first one down */
        uint32_t depth = 1;
        while (1u << depth < n) {
            depth++;
        }
        return depth * GS_TREE_LAG + TREE_LOOPS;
    }
    if (is_tree(kind) || has_root(kind)) {
        return TREE_LOOPS;
    }
    const uint32_t sends = gs_schedule_sends(kind, n), loops = (3 * GS_STEPS + sends - 1) / sends;
    return loops < 2 ? 2 : loops;
}

static void run_kind(worker_t *w, uint32_t kind, uint32_t n)
{
    schedule_case_t c = {.kind = kind, .n = n, .loops = loops_for(kind, n)};
    if (n > ALL_ROOTS) {
        /* The paths for other roots are the same, with other numbers. */
        for (c.root = 0; c.root < n; c.root += n - 1) {
            run_orders(w, &c);
            if (!has_root(kind)) {
                break;
            }
        }
        return;
    }
    for (c.root = 0; c.root < (has_root(kind) ? n : 1); c.root++) {
        for (uint32_t loops = 1; loops <= c.loops + GS_STEPS; loops++) {
            schedule_case_t few = c;
            few.loops = loops;
            run_orders(w, &few);
        }
    }
}

static bool chosen(uint32_t n)
{
    static const uint32_t primes[] = {131, 197, 307, 401, 599, 769, 1201, 1601, 3067};
    for (size_t i = 0; i < sizeof primes / sizeof primes[0]; i++) {
        if (primes[i] == n) {
            return true;
        }
    }
    return n <= ALL_TO || 0 == (n & (n - 1)) || 0 == (n & (n + 1)) || 0 == ((n - 1) & (n - 2));
}

static void run_ranks(worker_t *w, uint32_t n)
{
    for (uint32_t kind = 0; kind < GS_SCHEDULES; kind++) {
        row_t *row = &w->rows[kind];
        if (!every && !chosen(n) && !is_tree(kind) && !has_root(kind)) {
            continue;
        }
        run_kind(w, kind, n);
        row->sizes++;
        row->from = 0 == row->from || n < row->from ? n : row->from;
        row->to = n > row->to ? n : row->to;
    }
}

/* ---- broken on purpose ---- */

/* For each fault: where it is put, and what the machine says of it. */
static const struct {
    enum fault fault;
    uint32_t kind, rank, step;
    const char *says;
} broken[] = {
    {FAULT_CHUNK, GS_RING_ALLREDUCE, 3, 5, "sent were"},
    {FAULT_CHUNK, GS_RING_ALLGATHER, 0, 0, "is not the result"},
    {FAULT_CHUNK, GS_RING_REDUCE_SCATTER, 8, 8, "sent were"},
    {FAULT_LOOP, GS_CHAIN_BCAST, 4, 6, "sent were"},
    {FAULT_LOOP, GS_TREE_ALLREDUCE, 2, 7, "sent were"},
    {FAULT_LAG, GS_TREE_ALLREDUCE, 0, 2 * GS_STEPS + 1, "deadlock"},
    {FAULT_CREDIT, GS_CHAIN_BCAST, 0, 0, "not read"},
    {FAULT_CREDIT, GS_TREE_REDUCE, 1, 0, "not read"},
    {FAULT_CREDIT, GS_RING_ALLREDUCE, 1, 0, "not read"},
    {FAULT_DATA, GS_RING_REDUCE_SCATTER, 0, 0, "not written"},
    {FAULT_DATA, GS_TREE_BCAST, 5, 0, "not written"},
    {FAULT_TWICE, GS_RING_ALLREDUCE, 2, 8, "is not the result"},
    {FAULT_TWICE, GS_TREE_BCAST, 5, 3, "is not the result"},
    {FAULT_NO_INPUT, GS_CHAIN_REDUCE, 3, 2, "is not the result"},
    {FAULT_NO_INPUT, GS_TREE_ALLREDUCE, 3, 2, "is not the result"},
    {FAULT_NO_SEND, GS_RING_ALLGATHER, 6, 4, "sent were"},
    {FAULT_NO_SEND, GS_CHAIN_REDUCE, 6, TREE_LOOPS - 1, "deadlock"},
    {FAULT_NO_COPY, GS_RING_ALLGATHER, 1, 4, "has stored"},
    {FAULT_NO_COPY, GS_TREE_REDUCE, 0, 4, "has stored"},
    {FAULT_FINAL, GS_RING_ALLREDUCE, 4, 3, "is not the result"},
    {FAULT_FINAL, GS_CHAIN_BCAST, 4, 3, "final 0"},
    {FAULT_LANDED, GS_TREE_ALLREDUCE, 0, 2 * TREE_LOOPS - 1, "landed 0"},
    {FAULT_STEP, GS_RING_REDUCE_SCATTER, 4, 10, "sent were"},
    {FAULT_STEP, GS_TREE_BCAST, 1, TREE_LOOPS - 1, "has taken"},
    {FAULT_LINK, GS_CHAIN_REDUCE, 8, 1, "links"},
};

/* Whether all are found, and there is one of each kind; *found: how many. Each that is not is named. */
static bool find_broken(machine_t *m, uint32_t *found)
{
    const uint32_t all = sizeof broken / sizeof broken[0];
    uint32_t kinds = 1u << FAULT_NONE;
    uint64_t steps = 0;

    *found = 0;
    for (uint32_t i = 0; i < all; i++) {
        const schedule_case_t c = {.kind = broken[i].kind,
                                   .n = BROKEN_RANKS,
                                   .loops = TREE_LOOPS,
                                   .fault = broken[i].fault,
                                   .fault_rank = broken[i].rank,
                                   .fault_step = broken[i].step};
        const char *wrong = machine_run(m, &c, &steps);
        if (NULL != wrong && NULL != strstr(wrong, broken[i].says)) {
            (*found)++;
            kinds |= 1u << c.fault;
        } else {
            fprintf(stderr, "fault %d in %s: %s\n", broken[i].fault, names[c.kind],
                    NULL == wrong ? "not found" : wrong);
        }
    }
    return all == *found && (1u << FAULTS) - 1 == kinds;
}

/* ---- all numbers of ranks ---- */

/* The next number of ranks for a worker, 0: there are no more.  The largest first, so that threads end together. */
static uint32_t take_n(void)
{
    uint32_t n = 0;
    pthread_mutex_lock(&lock);
    while (0 == n && next_n >= first_n) {
        if (every || chosen(next_n) || next_n <= ALL_TREES_TO) {
            n = next_n;
        }
        next_n--;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

static void *work(void *arg)
{
    worker_t *w = arg;
    for (uint32_t n = take_n(); 0 != n; n = take_n()) {
        run_ranks(w, n);
    }
    return NULL;
}

static void add_rows(const worker_t *w)
{
    for (uint32_t kind = 0; kind < GS_SCHEDULES; kind++) {
        const row_t *one = &w->rows[kind];
        row_t *row = &rows[kind];
        row->from = 0 == row->from || (0 != one->from && one->from < row->from) ? one->from : row->from;
        row->to = one->to > row->to ? one->to : row->to;
        row->sizes += one->sizes;
        row->cases += one->cases;
        row->steps += one->steps;
        if (0 == row->wrong) {
            memcpy(row->first, one->first, sizeof row->first);
        }
        row->wrong += one->wrong;
    }
}

static void run_all(uint32_t threads)
{
    const uint32_t most = next_n;
    pthread_t thread[MAX_THREADS];
    static worker_t workers[MAX_THREADS];
    uint32_t started = 0;

    for (; started < threads; started++) {
        workers[started].machine = machine_new(most, seed + started);
        if (0 != pthread_create(&thread[started], NULL, work, &workers[started])) {
            work(&workers[started]); /* all that the others do not */
            machine_free(workers[started].machine);
            add_rows(&workers[started]);
            break;
        }
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
        machine_free(workers[i].machine);
        add_rows(&workers[i]);
    }
}

/* ---- the table ---- */

__attribute__((format(printf, 2, 3))) static void print(FILE *report, const char *format, ...)
{
    FILE *const to[] = {stdout, report};
    for (size_t i = 0; i < 2 && NULL != to[i]; i++) {
        va_list args;
        va_start(args, format);
        vfprintf(to[i], format, args);
        va_end(args);
    }
}

/* Returns whether all was right. */
static bool print_rows(FILE *report)
{
    uint32_t wrong = 0;
    print(report, "%-22s %7s %16s %9s %17s  %s\n", "schedule", "sizes", "ranks", "cases", "steps", "result");
    for (uint32_t kind = 0; kind < GS_SCHEDULES; kind++) {
        const row_t *row = &rows[kind];
        char ranks[32];
        snprintf(ranks, sizeof ranks, "%u ... %u", row->from, row->to);
        print(report, "%-22s %7u %16s %9llu %17llu  %s\n", names[kind], row->sizes, ranks,
              (unsigned long long) row->cases, (unsigned long long) row->steps, 0 == row->wrong ? "ok" : "WRONG");
        wrong += row->wrong;
    }
    for (uint32_t kind = 0; kind < GS_SCHEDULES; kind++) {
        if (0 != rows[kind].wrong) {
            print(report, "%u cases wrong, the first: %s\n", rows[kind].wrong, rows[kind].first);
        }
    }
    return 0 == wrong;
}

/* ---- the program ---- */

typedef struct {
    uint32_t from, to, threads; /* from, to: 0 is not given */
    const char *report;
} options_t;

static void usage(void)
{
    fprintf(stderr,
            "usage: check [--from N] [--to N] [--threads N] [--seed N] [--report FILE]\n"
            "N ranks: %u ... %u; %u threads at most\n",
            MIN_RANKS, MAX_RANKS, MAX_THREADS);
    exit(2);
}

/* A number of an option, in least .. most. */
static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
    char *end;
    const unsigned long n = strtoul(text, &end, 10);
    if (end == text || '\0' != *end || n < least || n > most) {
        usage();
    }
    return (uint32_t) n;
}

static void parse(int argc, char **argv, options_t *o)
{
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (NULL == value) {
            usage();
        } else if (0 == strcmp(name, "--from")) {
            o->from = number(value, MIN_RANKS, MAX_RANKS);
        } else if (0 == strcmp(name, "--to")) {
            o->to = number(value, MIN_RANKS, MAX_RANKS);
        } else if (0 == strcmp(name, "--threads")) {
            o->threads = number(value, 1, MAX_THREADS);
        } else if (0 == strcmp(name, "--seed")) {
            seed = strtoull(value, NULL, 0);
        } else if (0 == strcmp(name, "--report")) {
            o->report = value;
        } else {
            usage();
        }
    }
}

int main(int argc, char **argv)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    options_t o = {.threads = cores < 1 ? 1 : cores > (long) MAX_THREADS ? MAX_THREADS : (uint32_t) cores};
    FILE *report = NULL;
    uint32_t found;

    seed = (uint64_t) time(NULL) << 16 ^ (uint64_t) getpid();
    parse(argc, argv, &o);
    if (NULL != o.report && NULL == (report = fopen(o.report, "w"))) {
        perror(o.report);
        return 2;
    }
    every = 0 != o.from || 0 != o.to;
    first_n = 0 != o.from ? o.from : MIN_RANKS;
    next_n = 0 != o.to ? o.to : MAX_RANKS;

    print(report, "seed %llu, %u threads\n", (unsigned long long) seed, o.threads);
    machine_t *m = machine_new(BROKEN_RANKS, seed);
    const bool all_found = find_broken(m, &found);
    machine_free(m);
    print(report, "broken on purpose: %u schedules, %u found\n", (uint32_t) (sizeof broken / sizeof broken[0]), found);
    run_all(o.threads);
    const bool right = print_rows(report) && all_found;
    print(report, "%s\n", right ? "all right" : "NOT RIGHT");
    if (NULL != report && 0 != fclose(report)) {
        perror(o.report);
        return 2;
    }
    return right ? 0 : 1;
}
