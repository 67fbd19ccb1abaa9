/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: MPI_THREAD_MULTIPLE.  Several threads a rank, each with a communicator of its own, call
 * MPI_Allreduce at the same time with different types and sizes; the threads start in another order on every
 * rank.  Exits with 77 where the MPI library does not give MPI_THREAD_MULTIPLE.
 *
 * Before, MPI_T is initialized for a single thread, as tools do it: Open MPI then forgets the level that MPI has.
 *
 *   --alike    nonblocking calls instead, each thread's of one kind, on GPU memory, with pauses: kernels are launched
 *              early
 *   --tokens   kernels must be launched with the launch token of the process (agree/tokens.h)
 *   --native   only what kernels do: what goes on to Open MPI's own components crashes, stands still or is wrong among
 *              threads in some of its versions, without gpusym too (docs/guide.md, Limits)
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/shm/pages.h"
#include "mca/common/gpusym/trace.h"
#include "test/mpi/check.h"
#include "test/mpi/mpit.h"

#define USAGE "[--seed N] [--kinds LIST] [--threads N] [--n CALLS] [--alike] [--tokens] [--native]"
#define THREADS_MAX 16
#define CASES_MAX 512
#define ALIKE 16384 /* elements of a call */

/* What may be called, prepared before the threads start. */
typedef struct {
    ref_case_t c;
    int kind;
} prepared_t;

static prepared_t prepared[CASES_MAX];
static unsigned nprepared;

typedef struct {
    pthread_t id;
    int number;
    uint64_t seed;
    size_t calls;
    MPI_Comm comm;
    check_t t;
} worker_t;

static const uint64_t *token; /* of this process */
static long launched, bare;   /* kernels; those without it */

static void watch(gpusym_trace_event_t event, uint64_t a, uint64_t b)
{
    (void) a;
    (void) b;
    if (GPUSYM_TRACE_LAUNCH == event) {
        __atomic_fetch_add(&launched, 1, __ATOMIC_RELAXED);
        if (0 == __atomic_load_n(token, __ATOMIC_ACQUIRE)) {
            __atomic_fetch_add(&bare, 1, __ATOMIC_RELAXED);
        }
    }
}

/* From now on. */
static void watch_tokens(void)
{
    gpusym_pages_id_t id;
    gpusym_peer_t *self;

    if (GPUSYM_SUCCESS != gpusym_pages_open(&id) || GPUSYM_SUCCESS != gpusym_pages_peer(&id, &self)) {
        fprintf(stderr, "threads: no pages\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    token = gpusym_peer_token(self);
    __atomic_store_n(&gpusym_trace_hook, watch, __ATOMIC_RELEASE);
}

/* Whether all kernels had it. A rank alone launches none. */
static bool had_tokens(int rank, int nranks)
{
    const bool right = 0 == bare && (0 != launched || 1 == nranks);

    __atomic_store_n(&gpusym_trace_hook, NULL, __ATOMIC_RELEASE);
    if (!right) {
        fprintf(stderr, "threads: FAIL on rank %d: %ld kernels launched, %ld of them without the launch token\n", rank,
                launched, bare);
    }
    return right;
}

static void prepare(const int *kinds, int n, int nranks, bool only_native)
{
    for (int k = 0; k < n; k++) {
        bool native = check_native(kinds[k]);

        for (int i = 0; i < ref_ntypes(); i += 3) { /* a third of the types is plenty here */
            for (int j = 0; j < ref_nops(); j++) {
                ref_case_t c = {.type = ref_type(i), .op = ref_op(j), .nranks = nranks};

                if (ref_allowed(c.type, c.op) && check_prepare(&c, native) && nprepared < CASES_MAX &&
                    (!only_native || check_native_case(kinds[k], &c))) {
                    prepared[nprepared++] = (prepared_t){c, kinds[k]};
                }
            }
        }
    }
}

static void *work(void *arg)
{
    worker_t *w = arg;

    for (size_t i = 0; i < w->calls; i++) {
        uint64_t x = ref_mix(w->seed + ref_mix(i));
        const prepared_t *p = &prepared[x % nprepared];
        ref_case_t c = p->c;
        check_call_t k = {.comm = w->comm,
                          .c = &c,
                          .contribute = -1,
                          .first = i,
                          .count = (size_t) 1 << (x >> 32) % 14,
                          .in_place = (x >> 40) & 1,
                          .skind = p->kind,
                          .rkind = p->kind,
                          .soff = (x >> 41) & 15,
                          .roff = (x >> 45) & 15};

        c.seed = x;
        check_run(&w->t, &k);
    }
    return NULL;
}

/* The thread's contributions to its calls, of which each has other values, and what must come of them. */
static void fill_alike(const worker_t *w, size_t call, double *mine, double *sum)
{
    const double ranks = w->t.nranks, all = ranks * (ranks + 1) / 2;

    for (size_t i = 0; i < ALIKE; i++) {
        const double value = (double) ((w->seed + 31 * call + i) % 1000);
        mine[i] = (w->t.rank + 1) * value;
        sum[i] = all * value;
    }
}

/* So many nonblocking calls like the one before them, by which kernels are launched as soon as they are posted; others
 * are posted meanwhile by other threads, in another order on every rank. */
static void *work_alike(void *arg)
{
    static const size_t bytes = ALIKE * sizeof(double);
    worker_t *w = arg;
    double *mine = malloc(bytes), *sum = malloc(bytes), *found = malloc(bytes);
    void *in = mem_alloc(MEM_DEVICE, bytes), *out = mem_alloc(MEM_DEVICE, bytes);

    if (NULL == mine || NULL == sum || NULL == found || NULL == in || NULL == out) {
        fprintf(stderr, "threads: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (size_t i = 0; i < w->calls; i++) {
        const uint64_t x = ref_mix(w->seed + (uint64_t) w->t.rank + ref_mix(i));
        MPI_Request request;

        fill_alike(w, i, mine, sum);
        if (1 == x % 4) { /* the others' calls may have ended: no kernel is launched early beside one in flight */
            usleep((useconds_t) (x >> 8) % 4000);
        }
        mem_write(in, mine, bytes);
        MPI_Iallreduce(in, out, ALIKE, MPI_DOUBLE, MPI_SUM, w->comm, &request);
        if (0 == x % 4) {
            usleep((useconds_t) (x >> 8) % 1000);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        mem_read(found, out, bytes);
        const bool right = 0 == memcmp(found, sum, bytes);
        if (!right) {
            fprintf(stderr, "threads: FAIL on rank %d: thread %d, call %zu: wrong sums\n", w->t.rank, w->number, i);
        }
        check_result(&w->t, right);
    }
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    free(mine);
    free(sum);
    free(found);
    return NULL;
}

static void start(worker_t *w, void *(*does)(void *), int nthreads, int rank)
{
    for (int i = 0; i < nthreads; i++) {
        worker_t *next = &w[(i + rank) % nthreads]; /* another order on every rank */

        if (0 != pthread_create(&next->id, NULL, does, next)) {
            fprintf(stderr, "rank %d: pthread_create failed\n", rank);
            MPI_Abort(MPI_COMM_WORLD, 99);
        }
    }
}

int main(int argc, char **argv)
{
    static worker_t w[THREADS_MAX];
    int kinds[CHECK_KINDS], n, level, rank, nranks, nthreads;
    long passed = 0, failed = 0;
    uint64_t seed;
    size_t calls;
    bool alike, tokens, native;

    level = check_init(&argc, &argv, "threads", MPI_THREAD_MULTIPLE);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    if (level < MPI_THREAD_MULTIPLE) {
        if (0 == rank) {
            printf("threads: this MPI library gives no MPI_THREAD_MULTIPLE: skipped\n");
        }
        check_print("threads", 0, 0);
        check_fini(0);
        return CHECK_SKIPPED;
    }
    seed = check_seed();
    nthreads = (int) check_number("--threads", 4);
    calls = check_number("--n", 200);
    alike = check_flag("--alike");
    tokens = check_flag("--tokens");
    native = check_flag("--native");
    n = check_kinds(kinds);
    check_arguments_end(USAGE);
    if (nthreads < 1 || nthreads > THREADS_MAX) {
        fprintf(stderr, "--threads: 1 to %d\n", THREADS_MAX);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    prepare(kinds, n, nranks, native);
    if (0 == nprepared) {
        fprintf(stderr, "threads: FAIL: nothing is native\n");
        return check_fini(1);
    }
    for (int i = 0; i < nthreads; i++) {
        w[i].number = i;
        w[i].seed = ref_mix(seed + (uint64_t) i);
        w[i].calls = calls;
        MPI_Comm_dup(MPI_COMM_WORLD, &w[i].comm);
        check_start(&w[i].t, "threads", w[i].comm);
    }
    if (tokens) {
        watch_tokens();
    }
    if (alike) {
        (void) mpit_count("allreduce", "early"); /* from here on */
    }
    start(w, alike ? work_alike : work, nthreads, rank);
    for (int i = 0; i < nthreads; i++) {
        pthread_join(w[i].id, NULL);
    }
    if (tokens) {
        check_result(&w[0].t, had_tokens(rank, nranks));
    }
    if (alike) {
        const unsigned long long early = mpit_count("allreduce", "early");
        if (0 == rank) {
            printf("rank 0: %llu launched early\n", early);
        }
    }
    for (int i = 0; i < nthreads; i++) {
        failed += check_end(&w[i].t);
        passed += w[i].t.passed;
        MPI_Comm_free(&w[i].comm);
    }
    check_print("threads", passed, failed);
    MPI_T_finalize();
    return check_fini(failed);
}
