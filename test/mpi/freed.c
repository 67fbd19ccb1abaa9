/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: buffers that the program has freed keep no GPU memory. Peers map them for zero copy; once a communicator
 * is freed, the owners have noticed, and once the next one is, no peer maps them any more.
 */
#include <mpi.h>
#include <stdio.h>

#include "mca/common/gpusym/trace.h"
#include "test/mpi/check.h"
#include "test/mpi/mpit.h"

#define USAGE ""
#define BYTES ((size_t) 8 << 20)
#define BUFFERS 3

static long mapped; /* of peers' buffers, here */

static void count(gpusym_trace_event_t event, uint64_t a, uint64_t b)
{
    (void) a;
    if (GPUSYM_TRACE_MAP == event && 1 == b) {
        __atomic_fetch_add(&mapped, 1, __ATOMIC_RELAXED);
    } else if (GPUSYM_TRACE_UNMAP == event) {
        __atomic_fetch_sub(&mapped, 1, __ATOMIC_RELAXED);
    }
}

static void free_a_communicator(void)
{
    MPI_Comm comm;
    int in = 1, out;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&comm);
    MPI_Barrier(MPI_COMM_WORLD); /* all ranks have */
}

int main(int argc, char **argv)
{
    float *in[BUFFERS], *out[BUFFERS];
    check_t t;
    long failed;

    check_init(&argc, &argv, "freed", MPI_THREAD_SINGLE);
    check_arguments_end(USAGE);
    check_start(&t, "freed", MPI_COMM_WORLD);
    const unsigned long long before = mpit_count("allreduce", "zero_copy");
    __atomic_store_n(&gpusym_trace_hook, count, __ATOMIC_RELEASE);
    for (int i = 0; i < BUFFERS; i++) {
        in[i] = mem_alloc(MEM_DEVICE, BYTES);
        out[i] = mem_alloc(MEM_DEVICE, BYTES);
        if (NULL == in[i] || NULL == out[i]) {
            MPI_Abort(MPI_COMM_WORLD, 99);
        }
        if (0 == i) { /* the communicator's first call sets it up, and maps nothing */
            MPI_Allreduce(in[i], out[i], 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        MPI_Allreduce(in[i], out[i], (int) (BYTES / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    check_result(&t, mpit_count("allreduce", "zero_copy") - before == BUFFERS);
    const long most = mapped;
    check_result(&t, most >= BUFFERS * (t.nranks - 1));
    MPI_Barrier(MPI_COMM_WORLD);
    free_a_communicator();
    free_a_communicator();
    check_result(&t, most == mapped); /* what the program has is left alone */
    for (int i = 0; i < BUFFERS; i++) {
        mem_free(MEM_DEVICE, in[i]);
        mem_free(MEM_DEVICE, out[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free_a_communicator();
    free_a_communicator();
    check_result(&t, 0 == mapped);
    printf("freed: rank %d: %ld mappings of peers' buffers, %ld after these were freed\n", t.rank, most, mapped);
    failed = check_end(&t);
    check_print("freed", t.passed, t.failed);
    return check_fini(failed);
}
