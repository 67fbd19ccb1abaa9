/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * No step waits for a peer: MPI_Test returns while the other ranks, which have started the call, make no call of MPI.
 * Run with coll_gpusym_epoch_first near the end of the counter, so that a call clears the slots. What ranks tell each
 * other here goes by shared memory, without MPI.
 */
#include <mpi.h>
#include <sched.h>
#include <stdint.h>

#include "test/mpi/check.h"
#include "test/mpi/mem.h"

enum { COUNT = 16, CALLS = 24, TESTS = 2000 };

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

int main(int argc, char **argv)
{
    check_t t;
    MPI_Win win;

    check_init(&argc, &argv, "steps", MPI_THREAD_SINGLE);
    check_arguments_end("");
    check_start(&t, "steps", MPI_COMM_WORLD);
    shared_t *all = share(&win);
    int *in = mem_alloc(MEM_DEVICE, COUNT * sizeof *in), *out = mem_alloc(MEM_DEVICE, COUNT * sizeof *out);
    MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD); /* sets up */
    make_calls(&t, all, in, out);
    check_collect(&t);
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    MPI_Win_free(&win);
    const long failed = check_end(&t);
    check_print("steps", t.passed, t.failed);
    return check_fini(failed);
}
