/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The stream of an example: see stream.h.
 */
#include "api/gpusym.h"
#include "bench/memory.h"
#include "bench/output.h"
#include "bench/ranks.h"
#include "examples/stream.h"
#include "test/mpi/gpu_stream.h"
#include "test/mpi/mem.h"

static void *queue; /* NULL: not on the simulator */

void stream_open(void)
{
    if (MEM_DEVICE == bench_memory_kind() && 0 != gpu_stream_init()) {
        bench_die("no streams");
    }
    if (MEM_DEVICE == bench_memory_kind() && !bench_cu.there) {
        queue = gpu_stream_create();
    }
}

void stream_close(void)
{
    if (NULL != queue) {
        gpu_stream_destroy(queue);
    }
}

void *stream_handle(void)
{
    return bench_cu.there ? bench_cu.stream : queue;
}

void stream_wait(void)
{
    if (NULL != stream_handle()) {
        gpu_stream_synchronize(stream_handle());
    }
}

bool stream_is_ready(MPI_Comm comm)
{
    char why[MPI_MAX_ERROR_STRING] = "";
    int length, rc = MPI_SUCCESS;

    if (MPI_COMM_NULL != comm) {
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        rc = gpusym_stream_prepare(comm, MPI_INFO_NULL);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    }
    if (MPI_SUCCESS != rc) {
        MPI_Error_string(rc, why, &length);
    }
    if (bench_agree(MPI_SUCCESS == rc)) {
        return true;
    }
    bench_comment("no collectives on streams: %s", MPI_SUCCESS == rc ? "another rank is refused" : why);
    return false;
}

void stream_check(MPI_Comm comm)
{
    int error, rank;

    gpusym_stream_error(comm, &error, &rank);
    if (MPI_SUCCESS != error) {
        bench_die("rank %d: a collective on a stream has failed, because of rank %d", bench_rank, rank);
    }
}
