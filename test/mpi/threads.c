/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: MPI_THREAD_MULTIPLE.  Several threads a rank, each with a communicator of its own, call
 * MPI_Allreduce at the same time with different types and sizes; the threads start in another order on every
 * rank.  Exits with 77 where the MPI library does not give MPI_THREAD_MULTIPLE.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/mpi/check.h"

#define USAGE "[--seed N] [--kinds LIST] [--threads N] [--n CALLS]"
#define THREADS_MAX 16
#define CASES_MAX 512

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

static void prepare(const int *kinds, int n, int nranks)
{
    for (int k = 0; k < n; k++) {
        bool native = check_native(kinds[k]);

        for (int i = 0; i < ref_ntypes(); i += 3) { /* a third of the types is plenty here */
            for (int j = 0; j < ref_nops(); j++) {
                ref_case_t c = {.type = ref_type(i), .op = ref_op(j), .nranks = nranks};

                if (ref_allowed(c.type, c.op) && check_prepare(&c, native) && nprepared < CASES_MAX) {
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

static void start(worker_t *w, int nthreads, int rank)
{
    for (int i = 0; i < nthreads; i++) {
        worker_t *next = &w[(i + rank) % nthreads]; /* another order on every rank */

        if (0 != pthread_create(&next->id, NULL, work, next)) {
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

    level = check_init(&argc, &argv, "threads", MPI_THREAD_MULTIPLE);
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
    n = check_kinds(kinds);
    check_arguments_end(USAGE);
    if (nthreads < 1 || nthreads > THREADS_MAX) {
        fprintf(stderr, "--threads: 1 to %d\n", THREADS_MAX);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    prepare(kinds, n, nranks);
    for (int i = 0; i < nthreads; i++) {
        w[i].number = i;
        w[i].seed = ref_mix(seed + (uint64_t) i);
        w[i].calls = calls;
        MPI_Comm_dup(MPI_COMM_WORLD, &w[i].comm);
        check_start(&w[i].t, "threads", w[i].comm);
    }
    start(w, nthreads, rank);
    for (int i = 0; i < nthreads; i++) {
        pthread_join(w[i].id, NULL);
    }
    for (int i = 0; i < nthreads; i++) {
        failed += check_end(&w[i].t);
        passed += w[i].t.passed;
        MPI_Comm_free(&w[i].comm);
    }
    check_print("threads", passed, failed);
    return check_fini(failed);
}
