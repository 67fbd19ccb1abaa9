/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: MPI_Alltoallv and MPI_Gatherv of device memory in which the last --idle ranks have no buffers at all,
 * as ranks without a part of the mesh. Where these are an island of their own, it is set up once the others' data have
 * been seen, and the calls are native from then on.
 */
#include <mpi.h>
#include <string.h>

#include "test/mpi/check.h"

#define USAGE "[--idle RANKS] [--n CALLS]"
enum { COUNT = 300, RANKS_MAX = 64 };

static int value(int call, int from, int to, int i)
{
    return ((call * RANKS_MAX + from) * RANKS_MAX + to) * COUNT + i;
}

/* One call of each. Whether this rank has got what it must. */
static bool once(int call, int rank, int busy, int *in, int *out)
{
    static int image[RANKS_MAX * COUNT];
    int counts[RANKS_MAX] = {0}, displs[RANKS_MAX] = {0};
    bool right = true;

    for (int p = 0; p < busy && rank < busy; p++) {
        counts[p] = COUNT;
        displs[p] = p * COUNT;
        for (int i = 0; i < COUNT; i++) {
            image[p * COUNT + i] = value(call, rank, p, i);
        }
    }
    if (rank < busy) {
        mem_write(in, image, (size_t) busy * COUNT * sizeof *in);
    }
    MPI_Alltoallv(in, counts, displs, MPI_INT, out, counts, displs, MPI_INT, MPI_COMM_WORLD);
    if (rank < busy) {
        mem_read(image, out, (size_t) busy * COUNT * sizeof *out);
        for (int k = 0; k < busy * COUNT; k++) {
            right = right && value(call, k / COUNT, rank, k % COUNT) == image[k];
        }
    }
    MPI_Gatherv(in, rank < busy ? COUNT : 0, MPI_INT, out, counts, displs, MPI_INT, 0, MPI_COMM_WORLD);
    if (0 == rank) {
        mem_read(image, out, (size_t) busy * COUNT * sizeof *out);
        for (int k = 0; k < busy * COUNT; k++) {
            right = right && value(call, k / COUNT, 0, k % COUNT) == image[k];
        }
    }
    return right;
}

int main(int argc, char **argv)
{
    check_t t;
    int *in = NULL, *out = NULL;

    check_init(&argc, &argv, "idle", MPI_THREAD_SINGLE);
    const int idle = (int) check_number("--idle", 1), calls = (int) check_number("--n", 20);
    check_arguments_end(USAGE);
    check_start(&t, "idle", MPI_COMM_WORLD);
    const int busy = t.nranks > idle ? t.nranks - idle : 0;
    if (t.rank < busy) {
        in = mem_alloc(MEM_DEVICE, sizeof *in * RANKS_MAX * COUNT);
        out = mem_alloc(MEM_DEVICE, sizeof *out * RANKS_MAX * COUNT);
    }
    for (int call = 0; call < calls; call++) {
        check_result(&t, once(call, t.rank, busy, in, out));
    }
    check_collect(&t);
    if (t.rank < busy) {
        mem_free(MEM_DEVICE, in);
        mem_free(MEM_DEVICE, out);
    }
    const long failed = check_end(&t);
    check_print("idle", t.passed, t.failed);
    return check_fini(failed);
}
