/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank that dies while calls on streams of the others wait for it: what test/faults/faults.sh runs, below
 * test/outlive.sh. All ranks queue calls of libgpusym, of which the last rank queues one less and dies. The others'
 * streams go on, gpusym_stream_error tells of the failure and of the rank, and so does the next call; the streams serve
 * a communicator without the dead rank.
 *   --graph   the calls are launched by a graph
 */
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/gpusym.h"
#include "test/faults/told.h"
#include "test/mpi/check.h"
#include "test/mpi/gpu_stream.h"
#include "test/mpi/mem.h"

enum { COUNT = 1000, CALLS = 3 };
#define BYTES (COUNT * sizeof(int))

static int rank, nranks, failed;
static int *gpu, *host; /* the call's buffer, and pinned memory for what goes in and comes out */

static void expect(bool good, const char *what)
{
    if (!good) {
        failed++;
        printf("FAILED on rank %d: %s\n", rank, what);
        fflush(stdout);
    }
}

static void behind(void *flag)
{
    __atomic_store_n((bool *) flag, true, __ATOMIC_RELEASE);
}

/* The sum of this rank's elements over the ranks of comm, by the stream. */
static int sum_up(MPI_Comm comm, void *stream)
{
    gpu_stream_copy(stream, gpu, host, BYTES);
    const int rc = gpusym_allreduce_on_stream(MPI_IN_PLACE, gpu, COUNT, MPI_INT, MPI_SUM, comm, stream);
    gpu_stream_copy(stream, host + COUNT, gpu, BYTES);
    return rc;
}

static void fill(int call)
{
    for (int i = 0; i < COUNT; i++) {
        host[i] = call + i + rank;
        host[COUNT + i] = -1;
    }
}

static bool right(int n, int call)
{
    for (int i = 0; i < COUNT; i++) {
        if (host[COUNT + i] != n * (call + i) + n * (n - 1) / 2) {
            return false;
        }
    }
    return true;
}

/* The class of a process that has died: Open MPI 4.1 has none of its own. */
#if OMPI_MAJOR_VERSION >= 5
#define DIED MPI_ERR_PROC_FAILED
#else
#define DIED MPI_ERR_OTHER
#endif

static void expect_error(int rc, int of)
{
    char text[MPI_MAX_ERROR_STRING] = "", name[32];
    int class = MPI_SUCCESS, length;
    MPI_Error_class(rc, &class);
    MPI_Error_string(rc, text, &length);
    snprintf(name, sizeof name, "(rank %d)", of);
    const bool good = DIED == class && NULL != strstr(text, "a rank has died, or the GPU reports an error") &&
                      NULL != strstr(text, name);
    expect(good, "the error of a later call");
    if (!good || 0 == rank) {
        printf("streams: class %d, %s\n", class, text);
    }
}

int main(int argc, char **argv)
{
    MPI_Comm comm, others;
    bool flag = false;
    int error = MPI_SUCCESS, who = -2;

    check_init(&argc, &argv, "streams", MPI_THREAD_SINGLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    const bool graph = check_flag("--graph"), dies = nranks - 1 == rank;
    check_arguments_end("[--graph]");
    if (0 != gpu_stream_init()) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    gpu = mem_alloc(MEM_DEVICE, BYTES);
    host = mem_alloc(MEM_REGISTERED, 2 * BYTES);
    void *stream = gpu_stream_create(), *calls = NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_split(MPI_COMM_WORLD, dies, rank, &others);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    expect(MPI_SUCCESS == gpusym_stream_prepare(comm, MPI_INFO_NULL), "gpusym_stream_prepare");
    if (!dies) {
        expect(MPI_SUCCESS == gpusym_stream_prepare(others, MPI_INFO_NULL), "gpusym_stream_prepare of the others");
    }
    if (graph) {
        gpu_capture_begin(stream);
        expect(MPI_SUCCESS == sum_up(comm, stream), "a captured call");
        calls = gpu_capture_end(stream);
    }
    for (int call = 0; call < CALLS; call++) {
        const bool fails = CALLS - 1 == call;
        if (fails && dies) {
            wait_for_told(nranks, nranks - 1);
            printf("streams: rank %d dies\n", rank);
            fflush(stdout);
            kill(getpid(), SIGKILL);
        }
        fill(call);
        expect(graph ? gpu_graph_launch(calls, stream) : MPI_SUCCESS == sum_up(comm, stream), "a call is queued");
        if (fails) {
            gpu_stream_call(stream, behind, &flag);
            expect(MPI_SUCCESS == gpusym_stream_error(comm, &error, &who) && MPI_SUCCESS == error,
                   "an error too early");
            tell(rank);
        }
        while (fails && MPI_SUCCESS == error) {
            usleep(1000);
            expect(MPI_SUCCESS == gpusym_stream_error(comm, &error, &who), "gpusym_stream_error");
        }
        gpu_stream_synchronize(stream);
        expect(fails || right(nranks, call), "a call before it");
    }
    expect(__atomic_load_n(&flag, __ATOMIC_ACQUIRE), "what is queued behind the call");
    expect(MPI_SUCCESS == gpusym_stream_error(comm, &error, &who) && MPI_SUCCESS != error && nranks - 1 == who,
           "gpusym_stream_error");
    for (int again = 0; again < 2; again++) {
        expect_error(sum_up(comm, stream), nranks - 1);
    }
    for (int call = 0; call < CALLS; call++) {
        gpu_stream_synchronize(stream);
        fill(call);
        expect(MPI_SUCCESS == sum_up(others, stream), "a call of the others");
        gpu_stream_synchronize(stream);
        expect(right(nranks - 1, call), "a call of the others is not right");
    }
    printf("streams: rank %d %s\n", rank, 0 == failed ? "as expected" : "failed");
    fflush(stdout);
    MPI_Barrier(others);
    MPI_Abort(MPI_COMM_WORLD, 3);
}
