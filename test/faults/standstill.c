/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A job that stands still, for test/job.sh: MPI_Allreduce on MPI_COMM_WORLD, on ordinary memory, which goes to the
 * kernels with coll_gpusym_sim_host=1.
 *   standstill late FILE   the last rank does not make call 5 before FILE is there
 *   standstill calm FILE   no rank calls MPI after call 4 before FILE is there
 * Ends after 120 s at the latest.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 1000, CALLS = 6, LATE = 4, PATIENCE_MS = 120000 };

static int in[COUNT], out[COUNT];

int main(int argc, char **argv)
{
    int rank, nranks, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    if (3 != argc) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int call = 0; call < CALLS; call++) {
        const int sleeps = LATE == call && (nranks - 1 == rank || 0 == strcmp(argv[1], "calm"));
        for (int ms = 0; sleeps && ms < PATIENCE_MS && 0 != access(argv[2], F_OK); ms += 10) {
            usleep(10000);
        }
        for (int i = 0; i < COUNT; i++) {
            in[i] = call + i + rank;
        }
        MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < COUNT; i++) {
            wrong += out[i] != nranks * (call + i) + nranks * (nranks - 1) / 2;
        }
    }
    if (0 == rank) {
        printf("standstill: %s\n", 0 == wrong ? "right" : "wrong");
    }
    MPI_Finalize();
    return 0 != wrong;
}
