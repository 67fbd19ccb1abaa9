/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: MPI_THREAD_MULTIPLE and one-sided calls. Threads of each rank access, at the same time, one window that
 * is locked as a whole, one window of which each thread locks another target, and windows of their own. The last rank's
 * memory is the host's, which its owner copies. With --host all windows have host memory, and are another component's;
 * what is put, and where it is got to, is then GPU memory. Exits with 77 where the MPI library does not give
 * MPI_THREAD_MULTIPLE.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/mpi/check.h"

#define USAGE "[--threads N] [--n ROUNDS] [--host]"
#define THREADS_MAX 16
#define BLOCK 256 /* ints that a thread puts at a time */

/* A rank's part: counters, then a block of each thread of each rank. */
enum { ALL, FETCHED, COUNTERS = 2 + THREADS_MAX };

static int nranks, rank, threads, rounds;
static MPI_Win all, targets;
static bool host;

typedef struct {
    pthread_t id;
    int number;
    MPI_Win own;
    long wrong;
} worker_t;

static void expect(worker_t *w, int right, const char *what)
{
    if (!right && 0 == w->wrong++) {
        fprintf(stderr, "rank %d, thread %d: %s\n", rank, w->number, what);
    }
}

/* Adds 1 to a counter by get and put, which only the lock makes one step. */
static void count_locked(worker_t *w, MPI_Win win, int target, int counter)
{
    int v = -1;

    expect(w, MPI_SUCCESS == MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win), "MPI_Win_lock");
    expect(w, MPI_SUCCESS == MPI_Get(&v, 1, MPI_INT, target, counter, 1, MPI_INT, win), "MPI_Get");
    expect(w, MPI_SUCCESS == MPI_Win_flush(target, win), "MPI_Win_flush");
    v++;
    expect(w, MPI_SUCCESS == MPI_Put(&v, 1, MPI_INT, target, counter, 1, MPI_INT, win), "MPI_Put");
    expect(w, MPI_SUCCESS == MPI_Win_unlock(target, win), "MPI_Win_unlock");
}

static void one_round(worker_t *w, int round, int *put, int *got)
{
    int image[BLOCK];
    const int target = (rank + w->number + round) % nranks, one = 1;
    const int place = COUNTERS + (rank * threads + w->number) * BLOCK;
    int old = -1, same = 1;

    for (int i = 0; i < BLOCK; i++) {
        image[i] = (rank * threads + w->number) * 1000000 + round * 1000 + i;
    }
    mem_write(put, image, sizeof image);
    expect(w, MPI_SUCCESS == MPI_Put(put, BLOCK, MPI_INT, target, place, BLOCK, MPI_INT, all), "MPI_Put");
    expect(w, MPI_SUCCESS == MPI_Win_flush(target, all), "MPI_Win_flush");
    expect(w, MPI_SUCCESS == MPI_Get(got, BLOCK, MPI_INT, target, place, BLOCK, MPI_INT, all), "MPI_Get");
    expect(w, MPI_SUCCESS == MPI_Win_flush_all(all), "MPI_Win_flush_all");
    mem_read(image, got, sizeof image);
    for (int i = 0; i < BLOCK; i++) {
        same = same && (rank * threads + w->number) * 1000000 + round * 1000 + i == image[i];
    }
    expect(w, same, "what was put is not what was got");
    for (int t = 0; t < nranks; t++) {
        expect(w, MPI_SUCCESS == MPI_Accumulate(&one, 1, MPI_INT, t, ALL, 1, MPI_INT, MPI_SUM, all), "MPI_Accumulate");
    }
    expect(w, MPI_SUCCESS == MPI_Fetch_and_op(&one, &old, MPI_INT, nranks - 1, FETCHED, MPI_SUM, all),
           "MPI_Fetch_and_op");
    expect(w, old >= round && old < nranks * threads * rounds, "what MPI_Fetch_and_op has fetched");
    count_locked(w, w->own, target, ALL);
    if (w->number < nranks) {
        count_locked(w, targets, w->number, 2 + w->number);
    }
}

static void *run(void *arg)
{
    worker_t *w = arg;
    const int kind = host ? MEM_DEVICE : MEM_HOST;
    int *put = mem_alloc(kind, BLOCK * sizeof(int)), *got = mem_alloc(kind, BLOCK * sizeof(int));

    for (int i = 0; i < rounds; i++) {
        one_round(w, i, put, got);
    }
    mem_free(kind, put);
    mem_free(kind, got);
    return NULL;
}

static int *open_window(MPI_Win *win, int kind, int ints)
{
    const MPI_Aint bytes = (MPI_Aint) ints * (MPI_Aint) sizeof(int);
    int *p, *zero = calloc((size_t) ints, sizeof(int));

    if (host) {
        MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &p, win);
    } else {
        p = mem_alloc(kind, (size_t) bytes);
        MPI_Win_create(p, bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, win);
    }
    mem_write(p, zero, (size_t) bytes);
    free(zero);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_set_errhandler(*win, MPI_ERRORS_RETURN);
    return p;
}

static int counted(const int *p, int counter)
{
    int v;

    mem_read(&v, p + counter, sizeof v);
    return v;
}

int main(int argc, char **argv)
{
    static worker_t worker[THREADS_MAX];
    int *part[2 + THREADS_MAX], sum = 0, own = 0;
    check_t t;

    if (MPI_THREAD_MULTIPLE != check_init(&argc, &argv, "threads_rma", MPI_THREAD_MULTIPLE)) {
        fprintf(stderr, "threads_rma: no MPI_THREAD_MULTIPLE\n");
        check_fini(0);
        return CHECK_SKIPPED;
    }
    threads = (int) check_number("--threads", 3);
    rounds = (int) check_number("--n", 50);
    host = check_flag("--host");
    check_arguments_end(USAGE);
    check_start(&t, "threads_rma", MPI_COMM_WORLD);
    rank = t.rank, nranks = t.nranks;
    if (threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "usage: threads_rma " USAGE ", at most %d threads\n", THREADS_MAX);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const int kind = nranks > 1 && rank == nranks - 1 ? MEM_HOST : MEM_DEVICE;
    part[0] = open_window(&all, kind, COUNTERS + nranks * threads * BLOCK);
    part[1] = open_window(&targets, kind, COUNTERS);
    for (int i = 0; i < threads; i++) {
        worker[i].number = i;
        part[2 + i] = open_window(&worker[i].own, kind, COUNTERS);
    }
    MPI_Win_lock_all(0, all);
    for (int i = 0; i < threads; i++) {
        pthread_create(&worker[i].id, NULL, run, &worker[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(worker[i].id, NULL);
        check_result(&t, 0 == worker[i].wrong);
    }
    MPI_Win_unlock_all(all);
    MPI_Barrier(MPI_COMM_WORLD);
    check_result(&t, nranks * threads * rounds == counted(part[0], ALL));
    check_result(&t, rank < nranks - 1 || nranks * threads * rounds == counted(part[0], FETCHED));
    check_result(&t, rank >= threads || nranks * rounds == counted(part[1], 2 + rank));
    for (int i = 0; i < threads; i++) {
        own += counted(part[2 + i], ALL);
    }
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_result(&t, nranks * threads * rounds == sum);
    MPI_Win_free(&all);
    MPI_Win_free(&targets);
    for (int i = 0; i < threads; i++) {
        MPI_Win_free(&worker[i].own);
    }
    for (int i = 0; i < 2 + threads && !host; i++) {
        mem_free(kind, part[i]);
    }
    const long failed = check_end(&t);
    check_print("threads_rma", t.passed, failed);
    return check_fini(failed);
}
