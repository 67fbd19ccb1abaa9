/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: a program of a user, that test/aware.sh compiles with mpicc: nothing of gpusym is included or linked.
 *
 *     aware 0|1      what MPIX_Query_cuda_support() has to answer
 *
 * Does as it is told: where MPI is said to accept GPU memory, MPI_Sendrecv_replace is called with it, in a ring.
 * Compiled with SUPPORT=0 or 1: what MPIX_CUDA_AWARE_SUPPORT has to be.
 */
#include <mpi.h>
#include <mpi-ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define N 20000
#define TAG 7

#if !defined(MPIX_CUDA_AWARE_SUPPORT) || MPIX_CUDA_AWARE_SUPPORT != SUPPORT
#error "MPIX_CUDA_AWARE_SUPPORT is not as expected"
#endif

/* Whether the CPU cannot read it: the system cannot either. */
static int is_device(const void *p)
{
    int pipes[2], readable;

    if (0 != pipe(pipes)) {
        return 0;
    }
    readable = 1 == write(pipes[1], p, 1);
    close(pipes[0]);
    close(pipes[1]);
    return !readable;
}

static int *device_memory(void)
{
    MPI_Info info;
    int *p = NULL;

    MPI_Info_create(&info);
    MPI_Info_set(info, "mpool_hints", "mpool=gpusym");
    MPI_Alloc_mem(N * (MPI_Aint) sizeof(int), info, &p);
    MPI_Info_free(&info);
    return p;
}

/* The number of elements that are not as they should be. */
static int exchange(void)
{
    static int host[N];
    int rank, size, left, wrong = 0;
    int *device = device_memory();

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    left = (rank + size - 1) % size;
    if (!is_device(device)) {
        printf("%d: MPI_Alloc_mem gave no device memory\n", rank);
        return 1;
    }
    for (int i = 0; i < N; i++) {
        host[i] = rank * N + i;
    }
    MPI_Sendrecv(host, N, MPI_INT, rank, TAG, device, N, MPI_INT, rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv_replace(device, N, MPI_INT, (rank + 1) % size, TAG, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(device, N, MPI_INT, rank, TAG, host, N, MPI_INT, rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < N; i++) {
        wrong += host[i] != left * N + i;
    }
    MPI_Free_mem(device);
    return wrong;
}

int main(int argc, char **argv)
{
    int expected, support, wrong = 0;

    MPI_Init(&argc, &argv);
    expected = argc > 1 ? atoi(argv[1]) : 1;
    support = MPIX_Query_cuda_support();
    if (support != expected) {
        printf("MPIX_Query_cuda_support() is %d\n", support);
        wrong = 1;
    } else if (support) {
        wrong = exchange();
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0 != wrong;
}
