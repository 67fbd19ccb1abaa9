/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: rank 1 dies while rank 0 has a message of device memory for it, which nobody receives. Rank 0 must not
 * wait for ever. To be run below test/outlive.sh.
 */
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include "test/mpi/check.h"

#define BYTES (1 << 20)

int main(int argc, char **argv)
{
    int rank;

    check_init(&argc, &argv, "killed", MPI_THREAD_SINGLE);
    check_arguments_end("");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    void *p = mem_alloc(MEM_DEVICE, BYTES);
    if (1 == rank) {
        kill(getpid(), SIGKILL);
    }
    MPI_Send(p, BYTES, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    mem_free(MEM_DEVICE, p);
    return check_fini(0);
}
