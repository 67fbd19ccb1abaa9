/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: calls of all ranks on device memory take turns with the same on host memory on one rank. Islands that
 * have just agreed on a native call begin the next one before they agree: what has begun is given up, and a rank that
 * has gone on to the previous module's function is in no call of ours by which it would take what was sent to it.
 */
#include <mpi.h>
#include <string.h>

#include "test/mpi/check.h"

#define USAGE "[--n CALLS]"
enum { COUNT = 8000, RANKS_MAX = 64 };
static const int counts[] = {1, 1000, COUNT};

static int image[RANKS_MAX * COUNT];

static void fill(const check_t *t, int *in, int count)
{
    for (int i = 0; i < t->nranks * count; i++) {
        image[i] = t->rank * RANKS_MAX + i;
    }
    mem_write(in, image, (size_t) (t->nranks * count) * sizeof *in);
}

/* Whether block p is what rank p has at its index `at`. */
static bool is_right(const check_t *t, const int *out, int count, int at)
{
    bool right = true;
    mem_read(image, out, (size_t) (t->nranks * count) * sizeof *out);
    for (int k = 0; k < t->nranks * count; k++) {
        right = right && k / count * RANKS_MAX + at + k % count == image[k];
    }
    return right;
}

static void one_call(check_t *t, bool gathers, int *in, int *out, int count)
{
    fill(t, in, count);
    if (gathers) {
        MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD);
    } else {
        MPI_Alltoall(in, count, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD);
    }
    check_result(t, is_right(t, out, count, gathers ? 0 : t->rank * count));
}

int main(int argc, char **argv)
{
    static int host_in[RANKS_MAX * COUNT], host_out[RANKS_MAX * COUNT];
    check_t t;

    check_init(&argc, &argv, "turns", MPI_THREAD_SINGLE);
    const int calls = (int) check_number("--n", 2);
    check_arguments_end(USAGE);
    check_start(&t, "turns", MPI_COMM_WORLD);
    int *in = mem_alloc(MEM_DEVICE, sizeof *in * (size_t) t.nranks * COUNT);
    int *out = mem_alloc(MEM_DEVICE, sizeof *out * (size_t) t.nranks * COUNT);
    for (int k = 0; k < calls * (int) (sizeof counts / sizeof *counts) * t.nranks; k++) {
        const int count = counts[k % (int) (sizeof counts / sizeof *counts)], odd = k % t.nranks;
        for (int gathers = 0; gathers < 2; gathers++) {
            one_call(&t, gathers, in, out, count);
            one_call(&t, gathers, odd == t.rank ? host_in : in, odd == t.rank ? host_out : out, count);
        }
    }
    check_collect(&t);
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    const long failed = check_end(&t);
    check_print("turns", t.passed, t.failed);
    return check_fini(failed);
}
