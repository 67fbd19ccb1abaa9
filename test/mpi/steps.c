/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * No step waits for a peer: MPI_Test returns while the other ranks, which have started the call, make no call of MPI.
 * Run with coll_gpusym_epoch_first near the end of the counter, so that a call clears the slots. What ranks tell each
 * other here goes by shared memory, without MPI.
 *
 * --copies: nor does it wait for a copy. Run with coll_gpusym_sim_delay, of more than SLOW_MS.
 */
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/mpi/check.h"
#include "test/mpi/mem.h"

enum { COUNT = 16, CALLS = 24, TESTS = 2000 };
/* --copies: integers, calls of each kind, tests of each, and how long they take if they wait for a copy. */
enum { LONG = 60000, SLOW_CALLS = 3, SLOW_TESTS = 10, SLOW_MS = 250 };

/* In memory that all ranks share: how many ranks have started call i; the calls that rank 0 has tested. */
typedef struct {
    uint32_t started[CALLS], tested;
} shared_t;

static shared_t *share(MPI_Win *win)
{
    int rank, unit;
    MPI_Aint size;
    void *p;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_allocate_shared(0 == rank ? sizeof(shared_t) : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &p, win);
    MPI_Win_shared_query(*win, 0, &size, &unit, &p);
    if (0 == rank) {
        *(shared_t *) p = (shared_t){.tested = 0};
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return p;
}

static void await(const uint32_t *word, uint32_t value)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) {
        sched_yield();
    }
}

/* Starts call i on all ranks; rank 0, the last one to start it, tests it while the others do nothing. */
static void start_and_test(shared_t *all, int i, const check_t *t, const void *in, void *out, MPI_Request *r)
{
    int done = 0;
    if (0 == t->rank) {
        await(&all->started[i], (uint32_t) t->nranks - 1);
    }
    MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, r);
    __atomic_fetch_add(&all->started[i], 1, __ATOMIC_RELEASE);
    if (0 != t->rank) {
        await(&all->tested, (uint32_t) i + 1);
        return;
    }
    for (int n = 0; n < TESTS && !done; n++) {
        MPI_Test(r, &done, MPI_STATUS_IGNORE);
    }
    __atomic_store_n(&all->tested, (uint32_t) i + 1, __ATOMIC_RELEASE);
}

/* Whether each number is the sum of call i's. */
static bool is_sum(const int *numbers, int i, int nranks)
{
    bool right = true;
    for (int k = 0; k < COUNT; k++) {
        right = right && numbers[k] == nranks * (i + k) + nranks * (nranks - 1) / 2;
    }
    return right;
}

static void make_calls(check_t *t, shared_t *all, int *in, int *out)
{
    int numbers[COUNT] = {0};
    for (int i = 0; i < CALLS; i++) {
        MPI_Request r;
        for (int k = 0; k < COUNT; k++) {
            numbers[k] = i + k + t->rank;
        }
        mem_write(in, numbers, sizeof numbers);
        start_and_test(all, i, t, in, out, &r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        mem_read(numbers, out, sizeof numbers);
        check_result(t, is_sum(numbers, i, t->nranks));
    }
}

static void add(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n; i++) {
        ((int *) inout)[i] += ((int *) in)[i];
    }
}

typedef int start_t(const int *in, int *out, MPI_Op op, MPI_Request *r);

static int start_reduce(const int *in, int *out, MPI_Op op, MPI_Request *r)
{
    return MPI_Iallreduce(in, out, LONG, MPI_INT, op, MPI_COMM_WORLD, r);
}

static int start_move(const int *in, int *out, MPI_Op op, MPI_Request *r)
{
    (void) in;
    (void) op;
    return MPI_Ibcast(out, LONG, MPI_INT, 0, MPI_COMM_WORLD, r);
}

/* A call is posted, and tested a few times. Returns how long that took, in s. */
static double start_slowly(start_t *start, const int *in, int *out, MPI_Op op)
{
    MPI_Request r;
    int done = 0;
    const double begin = MPI_Wtime();
    start(in, out, op, &r);
    for (int i = 0; i < SLOW_TESTS && !done; i++) {
        MPI_Test(&r, &done, MPI_STATUS_IGNORE);
    }
    const double took = MPI_Wtime() - begin;
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    return took;
}

/* The quickest of some calls: the machine may be busy. */
static void check_copies(check_t *t, start_t *start, const char *what, int *in, int *out, int *numbers, MPI_Op op)
{
    double quickest = 1e9;
    bool right = true;
    for (int call = 0; call < SLOW_CALLS; call++) {
        for (int i = 0; i < LONG; i++) {
            numbers[i] = call + i % 1000;
        }
        mem_write(in, numbers, LONG * sizeof *in);
        mem_write(out, numbers, LONG * sizeof *in);
        const double took = start_slowly(start, in, out, op);
        quickest = took < quickest ? took : quickest;
        mem_read(numbers, out, LONG * sizeof *in);
        for (int i = 0; i < LONG; i++) {
            right = right && numbers[i] == (start_reduce == start ? t->nranks : 1) * (call + i % 1000);
        }
    }
    if (quickest * 1000 >= SLOW_MS) {
        printf("steps: rank %d: %d tests of %s took %.0f ms at least\n", t->rank, SLOW_TESTS, what, quickest * 1000);
    }
    check_result(t, right && quickest * 1000 < SLOW_MS);
}

static void make_slow_calls(check_t *t)
{
    int *in = mem_alloc(MEM_DEVICE, LONG * sizeof *in), *out = mem_alloc(MEM_DEVICE, LONG * sizeof *out);
    int *numbers = malloc(LONG * sizeof *numbers);
    MPI_Op op;
    MPI_Op_create(add, 1, &op);
    check_copies(t, start_reduce, "MPI_Iallreduce", in, out, numbers, op);
    check_copies(t, start_move, "MPI_Ibcast", in, out, numbers, op);
    MPI_Op_free(&op);
    free(numbers);
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
}

int main(int argc, char **argv)
{
    check_t t;
    MPI_Win win;

    check_init(&argc, &argv, "steps", MPI_THREAD_SINGLE);
    const bool copies = check_flag("--copies");
    check_arguments_end("[--copies]");
    check_start(&t, "steps", MPI_COMM_WORLD);
    shared_t *all = share(&win);
    int *in = mem_alloc(MEM_DEVICE, COUNT * sizeof *in), *out = mem_alloc(MEM_DEVICE, COUNT * sizeof *out);
    MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD); /* sets up */
    if (copies) {
        make_slow_calls(&t);
    } else {
        make_calls(&t, all, in, out);
    }
    check_collect(&t);
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    MPI_Win_free(&win);
    const long failed = check_end(&t);
    check_print("steps", t.passed, t.failed);
    return check_fini(failed);
}
