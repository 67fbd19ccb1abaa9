/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: resident kernels (coll_gpusym_linger) are left just as the next call comes. Small all-reduces, most of
 * them in place, where one that is done twice, or not at all, shows in the sum; between them pauses of up to twice as
 * long as a kernel stays, on every rank another; on several communicators, and with other calls between: of other
 * collectives, now and then, or some of one kind and length that a kernel of theirs can serve, of which some end on one
 * rank before the others have begun; and in the host's memory, of all ranks or of one: others may have rung for those
 * before they knew. --pause: in place of coll_gpusym_linger; --served: kernels stay for longer than this runs, so some
 * calls must have been served. --multiple: under MPI_THREAD_MULTIPLE. --mode: of all calls; without it most are
 * blocking; mixed: each as often. --large: longer messages, which no resident kernel serves, and some work between a
 * call and the wait for it. --middle: the same, of other collectives alone, and of a length that one would serve.
 * --wide: of all lengths that one of several blocks serves, and none longer; --most: of longer ones, too. --in-place:
 * all calls are.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "test/mpi/coll.h"
#include "test/mpi/mpit.h"

#define USAGE                                                                                         \
    "[--seed N] [--kinds KIND] [--n CALLS] [--pause US] [--served] [--multiple] [--mode MODE|mixed] " \
    "[--large|--middle|--wide|--most] [--in-place]"
#define COMMS 3
/* Calls one after the other that may be of one other collective; and so many, of which a kernel of theirs must have
 * served some. */
#define RUN 12
#define MANY 1000

typedef struct {
    check_t t;
    coll_store_t *store;
    coll_comm_t comm[COMMS];
    uint64_t seed;
    int kind;
    const char *mode; /* NULL: most are blocking */
    bool large, middle, wide, most, in_place;
} linger_t;

/* Not a sleep, which is too coarse. */
static void pause_us(double us)
{
    const double until = MPI_Wtime() + 1e-6 * us;
    while (MPI_Wtime() < until) {
    }
}

/* Where this rank's buffers of a call are. */
static int kind_of(const linger_t *l, uint64_t x)
{
    const bool host = 0 == x % 37 || (0 == x % 31 && (int) (x / 64 % (uint64_t) l->t.nranks) == l->t.rank);
    return host ? MEM_HOST : l->kind;
}

static enum coll_mode mode_of(const linger_t *l, uint64_t x)
{
    static const enum coll_mode modes[] = {COLL_BLOCKING, COLL_NONBLOCKING, COLL_PERSISTENT};
    if (NULL == l->mode) {
        return 0 == x % 53 ? COLL_NONBLOCKING : COLL_BLOCKING;
    }
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (0 == strcmp(coll_mode_name(modes[i]), l->mode)) {
            return modes[i];
        }
    }
    return modes[x / 53 % 3];
}

static const struct {
    enum coll_id id;
    const char *name;
} others[] = {{COLL_ALLGATHER, "allgather"},
              {COLL_BCAST, "bcast"},
              {COLL_REDUCE, "reduce"},
              {COLL_ALLTOALLV, "alltoallv"},
              {COLL_SCATTER, "scatter"},
              {COLL_REDUCE_SCATTER_BLOCK, "reduce_scatter_block"},
              {COLL_SCAN, "scan"}};
#define OTHERS (sizeof others / sizeof others[0])

/* The i-th call: the same on all ranks. Mostly of one type and operation, which one kernel serves, and of one
 * length: it is rung for at once. */
static void one(linger_t *l, uint64_t i)
{
    const uint64_t x = ref_mix(l->seed + i), y = ref_mix(l->seed + 1000000 + i / RUN); /* y: the same in a run */
    const bool run = l->middle || (0 == y % 3 && 0 != x % 4), other = run || 0 == x % 7;
    const int kind = kind_of(l, x);
    const char *const types[] = {"MPI_DOUBLE", "MPI_INT"};
    coll_call_t call = {.comm = &l->comm[x / 64 % 8 < 6 ? 0 : x / 64 % COMMS],
                        .coll = !other ? COLL_ALLREDUCE : others[(run ? y / 3 : x / 7) % OTHERS].id,
                        .mode = mode_of(l, x),
                        .type = ref_type_find(types[0 == x / 512 % 16]),
                        .op = ref_op_find(0 == x / 8192 % 32 ? "MPI_MAX" : "MPI_SUM"),
                        .count = 0 == x % 41 ? 20000 : 1 + (size_t) ((0 == x % 5 ? x / 262144 : l->seed) % 300),
                        .root = (int) ((run ? y : x) / 5 % 64),
                        .in_place = 0 != x % 3,
                        .skind = kind,
                        .rkind = kind,
                        .seed = x};
    if (run) {
        call.comm = &l->comm[0];
        call.type = ref_type_find("MPI_DOUBLE");
        call.op = ref_op_find("MPI_SUM");
        call.count = 1 + (size_t) (y / 64 % (l->large ? 30000 : 0 == y % 2 ? 20 : 300));
        call.in_place = 0 != y % 5 % 2;
        call.seed = COLL_ALLTOALLV == call.coll ? y : x; /* it has the counts */
    }
    if (l->most && 0 == x % 3) {
        call.count = 1 + y / 64 % 70000;
    } else if (l->wide || l->most) { /* doubles of up to 128 KiB: a warp's, a block's, or those of several blocks */
        call.count = 0 == x % 4 ? 1 + x / 262144 % 600 : (size_t) (1024 + (0 == x % 5 ? x : y) / 64 % 15361);
    } else if (l->middle) {
        call.count = 1024 + y / 64 % 1000; /* 8 KiB and more */
    } else if (l->large && !other) {
        call.count = 17000 + l->seed % 10000;
    }
    call.in_place = l->in_place ? 0 != (coll_what(call.coll) & COLL_IS_IN_PLACE) : call.in_place;
    if (coll_possible(&call)) {
        coll_once(&l->t, l->store, &call, 1 + x % 3);
    }
}

int main(int argc, char **argv)
{
    static linger_t l;
    int kinds[CHECK_KINDS];
    unsigned linger = 0, pause;
    bool served;
    unsigned long long resident, early, late, elsewhere = 0;
    uint64_t n;
    long failed;
    int level = MPI_THREAD_SINGLE;

    for (int i = 1; i < argc; i++) { /* what check_init wants to know */
        level = 0 == strcmp(argv[i], "--multiple") ? MPI_THREAD_MULTIPLE : level;
    }
    if (check_init(&argc, &argv, "linger", level) < level) {
        check_fini(0);
        return CHECK_SKIPPED;
    }
    (void) check_flag("--multiple");
    l.seed = check_seed();
    n = check_number("--n", 3000);
    pause = (unsigned) check_number("--pause", 0);
    served = check_flag("--served");
    l.mode = check_option("--mode");
    l.large = check_flag("--large");
    l.middle = check_flag("--middle");
    l.wide = check_flag("--wide");
    l.most = check_flag("--most");
    l.in_place = check_flag("--in-place");
    coll_work(l.large || l.middle ? 20 : 0);
    (void) check_kinds(kinds);
    check_arguments_end(USAGE);
    l.kind = MEM_DEVICE;
    if (!check_native(l.kind) || !mpit_get("coll_gpusym_linger", &linger)) {
        check_fini(0);
        return CHECK_SKIPPED;
    }
    pause = 0 != pause ? pause : linger > 1000000 ? 50 : linger; /* -1: the table's */
    check_start(&l.t, "linger", MPI_COMM_WORLD);
    l.store = coll_store_new();
    for (int c = 0; c < COMMS; c++) {
        coll_comm_dup(&l.comm[c], MPI_COMM_WORLD);
    }
    (void) mpit_count("allreduce", "resident"); /* from here on */
    (void) mpit_count("allreduce", "early");
    (void) mpit_count("allreduce", "late");
    for (size_t k = 0; k < OTHERS; k++) {
        (void) mpit_count(others[k].name, "resident");
        (void) mpit_count(others[k].name, "early");
        (void) mpit_count(others[k].name, "late");
    }
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t x = ref_mix(l.seed + i * 31 + (uint64_t) l.t.rank);
        if (0 == x % 4) { /* close to when a kernel leaves */
            pause_us(pause * (0.8 + 0.4 * (double) (x / 4 % 1024) / 1024));
        } else if (1 == x % 4) {
            pause_us(2.0 * pause * (double) (x / 4 % 1024) / 1024);
        }
        one(&l, i);
    }
    check_collect(&l.t);
    resident = mpit_count("allreduce", "resident");
    early = mpit_count("allreduce", "early");
    late = mpit_count("allreduce", "late");
    if (0 == l.t.rank) {
        printf("rank 0: %llu calls of resident kernels, %llu launched early, %llu whose kernel had left;", resident,
               early, late);
    }
    for (size_t k = 0; k < OTHERS; k++) {
        const unsigned long long n_served = mpit_count(others[k].name, "resident");
        const unsigned long long n_early = mpit_count(others[k].name, "early");
        const unsigned long long n_late = mpit_count(others[k].name, "late");
        elsewhere += n_served;
        if (0 == l.t.rank) {
            printf(" %llu resident %llu early %llu late %s%s", n_served, n_early, n_late, others[k].name,
                   k + 1 < OTHERS ? "," : "\n");
        }
    }
    check_result(&l.t, !served || resident > 0);
    check_result(&l.t, !served || n < MANY || elsewhere > 0);
    for (int c = 0; c < COMMS; c++) {
        coll_comm_free(&l.comm[c]);
    }
    coll_store_free(l.store);
    failed = check_end(&l.t);
    check_print("linger", l.t.passed, l.t.failed);
    return check_fini(failed);
}
