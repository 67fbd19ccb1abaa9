/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun program of test/said.sh: calls whose summary, or whose error, is known.
 *
 *     said                    no call on GPU memory
 *     said --what sums        10 staged calls on all ranks but 0, 5 native ones on all
 *     said --what mismatch    rank 0 calls MPI_Bcast, the others MPI_Allreduce, of as many bytes: the fourth call
 */
#include <mpi.h>
#include <string.h>

#include "test/mpi/check.h"
#include "test/mpi/mem.h"

#define USAGE "[--what sums|mismatch]"
#define COUNT 1000

static void largest(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n; i++) {
        if (((const float *) in)[i] > ((float *) inout)[i]) {
            ((float *) inout)[i] = ((const float *) in)[i];
        }
    }
}

static void sums(int rank, float *in, float *out)
{
    MPI_Comm others;
    MPI_Op op;

    MPI_Op_create(largest, 1, &op);
    MPI_Comm_split(MPI_COMM_WORLD, 0 == rank ? MPI_UNDEFINED : 0, rank, &others);
    for (int i = 0; i < 10 && MPI_COMM_NULL != others; i++) {
        MPI_Allreduce(in, out, COUNT, MPI_FLOAT, op, others);
    }
    for (int i = 0; i < 5; i++) {
        MPI_Allreduce(in, out, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (MPI_COMM_NULL != others) {
        MPI_Comm_free(&others);
    }
    MPI_Op_free(&op);
}

/* Returns whether the call failed, as it should. */
static int mismatch(int rank, float *in, float *out)
{
    MPI_Comm comm;
    int rv;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < 3; i++) {
        MPI_Allreduce(in, out, 1, MPI_FLOAT, MPI_SUM, comm);
    }
    rv = 0 == rank ? MPI_Bcast(in, 2, MPI_FLOAT, 0, comm) : MPI_Allreduce(in, out, 2, MPI_FLOAT, MPI_SUM, comm);
    MPI_Comm_free(&comm);
    return MPI_SUCCESS != rv;
}

int main(int argc, char **argv)
{
    const char *what;
    float *in, *out;
    int rank, good = 1;

    check_init(&argc, &argv, "said", MPI_THREAD_SINGLE);
    what = check_option("--what");
    check_arguments_end(USAGE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    in = mem_alloc(MEM_DEVICE, COUNT * sizeof(float));
    out = mem_alloc(MEM_DEVICE, COUNT * sizeof(float));
    if (NULL == in || NULL == out) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    if (NULL != what && 0 == strcmp(what, "sums")) {
        sums(rank, in, out);
    } else if (NULL != what && 0 == strcmp(what, "mismatch")) {
        good = mismatch(rank, in, out);
    }
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    return check_fini(!good);
}
