/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun program of test/trace.sh: calls on GPU memory, for a trace whose contents are known.
 *
 *     traced --late R --us U     MPI_Allreduce, before each of which rank R sleeps
 *     traced --what forms        MPI_Allreduce in all three forms, and a persistent MPI_Bcast, each --n times; on two
 *                                communicators, one after the other, that have the same id and ranks
 *     traced --what ways         a native one; staged ones: of a user-defined operation, and of buffers of which some
 *                                are on the host; one that ends in an error on all ranks, at last
 *     traced --what many         --n nonblocking calls, which rank 0 has all in flight before rank 1 begins
 *     traced --what away         MPI_Allreduce, after the program has gone to another folder
 *     traced --what parts        a call of one float; --n of two, with coll_gpusym_trace_calls=0; then, with 1, calls
 *                                of three until one of them is in the file of each rank
 *     traced --what threads      --n calls in each of four threads, each on its communicator; 77 without
 *                                MPI_THREAD_MULTIPLE
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/mpi/check.h"
#include "test/mpi/mem.h"
#include "test/mpi/mpit.h"
#include "test/mpi/persistent.h"

#define USAGE "[--what forms|ways|many|away|parts|threads] [--n CALLS] [--bytes N] [--late RANK] [--us N]"
#define THREADS 4

static int rank, calls, count;
static float *in, *out;

static void later(int late, useconds_t us)
{
    for (int i = 0; i < calls; i++) {
        if (rank == late) {
            usleep(us);
        }
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
}

static void forms_on(MPI_Comm comm)
{
    MPI_Request request[2];
    PERSISTENT_INIT(Allreduce)(in, out, count, MPI_FLOAT, MPI_SUM, comm, MPI_INFO_NULL, &request[0]);
    PERSISTENT_INIT(Bcast)(in, count, MPI_FLOAT, 1, comm, MPI_INFO_NULL, &request[1]);
    for (int i = 0; i < calls; i++) {
        MPI_Request started;
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, comm);
        MPI_Iallreduce(in, out, count, MPI_FLOAT, MPI_SUM, comm, &started);
        MPI_Wait(&started, MPI_STATUS_IGNORE);
        for (int k = 0; k < 2; k++) {
            MPI_Start(&request[k]);
            MPI_Wait(&request[k], MPI_STATUS_IGNORE);
        }
    }
    MPI_Request_free(&request[0]);
    MPI_Request_free(&request[1]);
}

static void forms(void)
{
    for (int i = 0; i < 2; i++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        forms_on(comm);
        MPI_Comm_free(&comm);
    }
}

static void largest(void *a, void *b, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n; i++) {
        ((float *) b)[i] = ((float *) a)[i] > ((float *) b)[i] ? ((float *) a)[i] : ((float *) b)[i];
    }
}

/* The ranks are not in the same call: all get an error. */
static long fail(MPI_Comm comm)
{
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return MPI_SUCCESS == (0 == rank ? MPI_Bcast(in, count, MPI_FLOAT, 0, comm)
                                     : MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, comm));
}

static long ways(void)
{
    float *host = malloc((size_t) count * sizeof *host);
    MPI_Datatype gaps;
    MPI_Comm comm;
    MPI_Op op;
    MPI_Type_vector(4, 1, 8, MPI_FLOAT, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Op_create(largest, 1, &op);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    memset(host, 0, (size_t) count * sizeof *host);
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, comm);
    MPI_Allreduce(in, out, count, MPI_FLOAT, op, comm);
    MPI_Bcast(0 == rank ? host : in, count, MPI_FLOAT, 0, comm);
    MPI_Bcast(in, 1, gaps, 0, comm);
    MPI_Reduce_local(in, out, count, MPI_FLOAT, MPI_SUM);
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_SELF);
    const long failed = fail(comm);
    MPI_Op_free(&op);
    MPI_Type_free(&gaps);
    MPI_Comm_free(&comm);
    free(host);
    return failed;
}

static void many(void)
{
    MPI_Request *request = malloc((size_t) calls * sizeof *request);
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (1 == rank) {
        MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < calls; i++) {
        MPI_Iallreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request[i]);
    }
    if (0 == rank) {
        MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD);
    }
    MPI_Waitall(calls, request, MPI_STATUSES_IGNORE);
    free(request);
}

static void call_on_floats(int n)
{
    MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Whether that text is in this rank's file; the file is short. */
static bool has_written(const char *text)
{
    static char line[4096];
    char name[1024];
    bool found = false;
    snprintf(name, sizeof name, "%s.%d", getenv("OMPI_MCA_coll_gpusym_trace"), rank);
    FILE *f = fopen(name, "r");
    while (NULL != f && !found && NULL != fgets(line, sizeof line, f)) {
        found = NULL != strstr(line, text);
    }
    if (NULL != f) {
        fclose(f);
    }
    return found;
}

static void parts(void)
{
    int all = 0;
    call_on_floats(1);
    mpit_need("coll_gpusym_trace_calls", 0);
    for (int i = 0; i < calls; i++) {
        call_on_floats(2);
    }
    mpit_need("coll_gpusym_trace_calls", 1);
    while (0 == all) {
        call_on_floats(3);
        usleep(20000);
        const int mine = has_written("\"bytes\":12,");
        MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    MPI_T_finalize(); /* else the file has no end */
}

static void *call_some(void *comm)
{
    for (int i = 0; i < calls; i++) {
        MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_MAX, *(MPI_Comm *) comm);
    }
    return NULL;
}

/* All threads have the same output: what they write is what is there. */
static void threads(void)
{
    pthread_t thread[THREADS];
    MPI_Comm comm[THREADS];
    for (int i = 0; i < THREADS; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&thread[i], NULL, call_some, &comm[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        MPI_Comm_free(&comm[i]);
    }
}

int main(int argc, char **argv)
{
    const bool threaded = argc > 2 && 0 == strcmp(argv[2], "threads");
    const int level = threaded ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    const int given = check_init(&argc, &argv, "traced", level);
    const char *what = check_option("--what");
    long failed = 0;
    calls = (int) check_number("--n", 20);
    count = (int) check_number("--bytes", 4096) / (int) sizeof(float);
    const int late = (int) check_number("--late", 0);
    const useconds_t us = (useconds_t) check_number("--us", 0);
    check_arguments_end(USAGE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    in = mem_alloc(MEM_DEVICE, (size_t) count * sizeof *in);
    out = mem_alloc(MEM_DEVICE, (size_t) count * sizeof *out);
    if (NULL == what || (0 == strcmp(what, "away") && 0 == chdir("/"))) {
        later(late, us);
    } else if (0 == strcmp(what, "forms")) {
        forms();
    } else if (0 == strcmp(what, "ways")) {
        failed = ways();
    } else if (0 == strcmp(what, "many")) {
        many();
    } else if (0 == strcmp(what, "parts")) {
        parts();
    } else if (given < level) {
        return check_fini(0) ? 1 : CHECK_SKIPPED;
    } else {
        threads();
    }
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    return check_fini(failed);
}
