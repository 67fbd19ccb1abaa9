/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: processes of different communicators come to the same GPUs, one after the other. Two ranks reduce on
 * their own at first, and go on when two others do so too, each pair in a communicator of its own: to be run with 4
 * ranks on 2 simulated GPUs, where each pair has a rank on each. No two ranks of a communicator share a GPU, and none
 * has all ranks. From soon after then on, leaders do the calls of both.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"
#include "test/mpi/mem.h"

#define USAGE "[--seed N] [--n CALLS]"
#define COUNT 1000u /* integers of a call */

/* One all-reduce of numbers that follow from `call`. */
static bool reduce_right(MPI_Comm comm, int rank, int nranks, int *in, int *out, unsigned call)
{
    static int sent[COUNT], got[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        sent[i] = (int) (i * (unsigned) (rank + 1) + call);
    }
    mem_write(in, sent, sizeof sent);
    if (MPI_SUCCESS != MPI_Allreduce(in, out, (int) COUNT, MPI_INT, MPI_SUM, comm)) {
        return false;
    }
    mem_read(got, out, sizeof got);
    for (unsigned i = 0; i < COUNT; i++) {
        const int want = (int) (i * (unsigned) (nranks * (nranks + 1) / 2) + (unsigned) nranks * call);
        if (want != got[i]) {
            fprintf(stderr, "crowd: call %u, element %u: got %d, want %d\n", call, i, got[i], want);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    unsigned long long staged = 0, native = 0;
    MPI_Comm pair;
    check_t t;
    int rank, nranks;
    bool right = true;

    check_init(&argc, &argv, "crowd", MPI_THREAD_SINGLE);
    const unsigned n = (unsigned) check_number("n", 300);
    (void) check_seed();
    check_arguments_end(USAGE);
    check_start(&t, "crowd", MPI_COMM_WORLD);
    (void) check_counter(CHECK_STAGED, &staged); /* counts from its first look on */
    (void) check_counter(CHECK_NATIVE, &native);
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK"); /* the simulator deals out GPUs by it */
    const int color = (NULL != local ? atoi(local) : t.rank) / 2;
    MPI_Comm_split(MPI_COMM_WORLD, color, t.rank, &pair);
    MPI_Comm_rank(pair, &rank);
    MPI_Comm_size(pair, &nranks);
    int *in = mem_alloc(MEM_DEVICE, COUNT * sizeof(int)), *out = mem_alloc(MEM_DEVICE, COUNT * sizeof(int));
    for (unsigned call = 0; call < n && 0 == color; call++) {
        right = reduce_right(pair, rank, nranks, in, out, call) && right;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    right = reduce_right(pair, rank, nranks, in, out, n) && right; /* now all have come to their GPUs */
    MPI_Barrier(MPI_COMM_WORLD);
    for (unsigned call = 0; call < n; call++) {
        right = reduce_right(pair, rank, nranks, in, out, call) && right;
    }
    if (check_counter(CHECK_STAGED, &staged) && check_counter(CHECK_NATIVE, &native)) {
        const bool counted = 0 == staged && native >= n;
        if (!counted) {
            fprintf(stderr, "crowd: rank %d: %llu calls native, %llu staged\n", t.rank, native, staged);
        }
        right = counted && right;
    }
    check_result(&t, right);
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    MPI_Comm_free(&pair);
    const long failed = check_end(&t);
    check_print("crowd", 0 == failed, failed);
    return check_fini(failed);
}
