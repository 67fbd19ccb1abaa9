/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call between islands that has begun on GPU memory is dropped, as it is not native after all: the last rank, an
 * island of its own, passes host memory, and is late, outside of MPI.  What has begun on rank 0 may never end there
 * (coll_gpusym_sim_fail=freeze:7@0 with 2 ranks: the first launch of that call): the call must fail once
 * coll_gpusym_timeout is over, or else, without the fault, be right.  The job ends by MPI_Abort after a failure.
 */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

#include "test/mpi/check.h"

#define USAGE "[--native CALLS] [--late MS]"
enum { COUNT = 1000 };

int main(int argc, char **argv)
{
    static int image[COUNT];
    int in_host[COUNT], out_host[COUNT];
    check_t t;

    check_init(&argc, &argv, "dropped", MPI_THREAD_SINGLE);
    const int native = (int) check_number("--native", 3);
    const uint64_t ms = check_number("--late", 300);
    const struct timespec late = {.tv_sec = (time_t) (ms / 1000), .tv_nsec = (long) (ms % 1000 * 1000000)};
    check_arguments_end(USAGE);
    check_start(&t, "dropped", MPI_COMM_WORLD);
    int *in = mem_alloc(MEM_DEVICE, sizeof image), *out = mem_alloc(MEM_DEVICE, sizeof image);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int call = 0; call <= native; call++) {
        const bool on_host = call == native && t.rank == t.nranks - 1;
        bool right = true;
        for (int i = 0; i < COUNT; i++) {
            in_host[i] = image[i] = call + t.rank + i;
        }
        mem_write(in, image, sizeof image);
        if (on_host) {
            nanosleep(&late, NULL); /* the others have begun */
        }
        const int rc =
            MPI_Allreduce(on_host ? in_host : in, on_host ? out_host : out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (MPI_SUCCESS != rc) {
            printf("dropped: rank %d, call %d of %d: an error\n", t.rank, call, native);
            fflush(stdout);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        mem_read(image, out, sizeof image);
        for (int i = 0; i < COUNT; i++) {
            right =
                right && (on_host ? out_host[i] : image[i]) == t.nranks * (call + i) + t.nranks * (t.nranks - 1) / 2;
        }
        check_result(&t, right);
    }
    check_collect(&t);
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    const long failed = check_end(&t);
    check_print("dropped", t.passed, t.failed);
    return check_fini(failed);
}
