/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * After a failure.  Run with coll_gpusym_sim_host=1, so that ordinary memory goes to the kernels, and a fault that
 * breaks some call on one rank (coll_gpusym_sim_fail=launch:10@1), on 3 ranks: from then on every call on that
 * communicator must report an error on every rank, none may succeed with a wrong result, and other communicators must
 * work on.  With --threads under MPI_THREAD_MULTIPLE, where a failed call must also give its turn back.  With --host,
 * without coll_gpusym_sim_host, calls on host buffers too: their short path must end with the failure.  With --segments
 * the calls are nonblocking, by an operation of the user's, and fail in the midst of their segments; with
 * --blocking-segments they are blocking.  Also here: data
 * whose first byte lies elsewhere than the buffer argument.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/mem.h"

enum { COUNT = 100000, CALLS = 12, SPREAD = 16 };

static int rank, nranks, passed, failed;
static MPI_Op users = MPI_OP_NULL; /* with segments: adds integers */
static bool blocking;

static void expect(bool good, const char *what)
{
    int mine = good, all;
    MPI_Reduce(&mine, &all, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    if (0 == rank) {
        passed += all;
        failed += !all;
        if (!all) {
            printf("FAILED: %s\n", what);
        }
    }
}

static void add(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n; i++) {
        ((int *) inout)[i] += ((int *) in)[i];
    }
}

/* The sum of all ranks' integers: its MPI error code. */
static int sum_up(const int *in, int *out, MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    if (blocking) {
        return MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_OP_NULL == users ? MPI_SUM : users, comm);
    }
    const int rc = MPI_Iallreduce(in, out, COUNT, MPI_INT, users, comm, &request);
    return MPI_SUCCESS == rc ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
}

/* One call: its MPI error code, and whether the result is right. */
static int call(int *in, int *out, MPI_Comm comm, int round, bool *right)
{
    for (int i = 0; i < COUNT; i++) {
        in[i] = 1000 * round + rank + i;
    }
    memset(out, 0xff, COUNT * sizeof *out);
    const int rc = sum_up(in, out, comm);
    *right = true;
    for (int i = 0; i < COUNT; i++) {
        *right = *right && out[i] == nranks * (1000 * round + i) + nranks * (nranks - 1) / 2;
    }
    return rc;
}

static void after_a_failure(int *in, int *out)
{
    MPI_Comm bad, good;
    bool right, lied = false, recovered = false;
    int errors = 0, rc;

    MPI_Comm_dup(MPI_COMM_WORLD, &bad);
    MPI_Comm_dup(MPI_COMM_WORLD, &good);
    MPI_Comm_set_errhandler(bad, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* Open MPI 4 takes this one's in MPI_Wait */
    for (int round = 0; round < CALLS; round++) {
        rc = call(in, out, bad, round, &right);
        lied = lied || (MPI_SUCCESS == rc && !right);
        recovered = recovered || (MPI_SUCCESS == rc && errors > 0);
        errors += MPI_SUCCESS != rc;
    }
    expect(errors > 0, "the injected fault is reported on every rank");
    expect(!lied, "no call succeeds with a wrong result");
    expect(!recovered, "no call succeeds after a failed one");
    for (int round = 0; round < 3; round++) {
        rc = call(in, out, good, round, &right);
        expect(MPI_SUCCESS == rc && right, "another communicator works on");
    }
    MPI_Comm_free(&bad);
    rc = call(in, out, good, 7, &right);
    expect(MPI_SUCCESS == rc && right, "also when the failed one has been freed");
    MPI_Comm_free(&good);
}

/* A nonblocking call on device memory, in place; what it computes does not matter. */
static int call_device(int *device, MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = MPI_Iallreduce(MPI_IN_PLACE, device, COUNT, MPI_INT, MPI_MAX, comm, &request);
    const int end = MPI_SUCCESS == rc ? MPI_Wait(&request, MPI_STATUS_IGNORE) : MPI_SUCCESS;
    return MPI_SUCCESS == rc ? end : rc;
}

/* Host buffers between device buffers, on one communicator: the first call on host buffers opens the short path for
 * those behind it. */
static void host_after_a_failure(int *in, int *out)
{
    int *device = mem_alloc(MEM_DEVICE, COUNT * sizeof *device);
    MPI_Comm bad;
    bool right, lied = false, recovered = false;
    int errors = 0;

    if (NULL == device) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &bad);
    MPI_Comm_set_errhandler(bad, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* Open MPI 4 takes this one's in MPI_Wait */
    for (int round = 0; round < CALLS; round++) {
        errors += MPI_SUCCESS != call_device(device, bad);
        for (int i = 0; i < 3; i++) {
            const int rc = call(in, out, bad, 3 * round + i, &right);
            lied = lied || (MPI_SUCCESS == rc && !right);
            recovered = recovered || (MPI_SUCCESS == rc && errors > 0) || (MPI_SUCCESS != rc && 0 == errors);
        }
    }
    expect(errors > 0, "the injected fault is reported on every rank");
    expect(!lied, "no call on host buffers succeeds with a wrong result");
    expect(!recovered, "calls on host buffers succeed before the failed call, and none behind it");
    MPI_Comm_free(&bad);
    mem_free(MEM_DEVICE, device);
}

static void sum(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n * SPREAD; i++) {
        ((int *) inout)[i] += ((int *) in)[i];
    }
}

/* MPI_BOTTOM and a type with the absolute address: only the type says that this is device memory. The operation is
 * never called with such data (it would need the address too): one rank a communicator. */
static void displaced(void)
{
    int host[SPREAD], *in = mem_alloc(MEM_DEVICE, sizeof host);
    MPI_Datatype type;
    MPI_Op op;
    MPI_Aint where;
    int length = SPREAD;

    if (NULL == in) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 0; i < SPREAD; i++) {
        host[i] = rank + i;
    }
    mem_write(in, host, SPREAD * sizeof *host);
    MPI_Get_address(in, &where);
    MPI_Type_create_hindexed(1, &length, &where, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(sum, 1, &op);
    const int rc = MPI_Allreduce(MPI_IN_PLACE, MPI_BOTTOM, 1, type, op, MPI_COMM_SELF);
    memset(host, 0, SPREAD * sizeof *host);
    mem_read(host, in, SPREAD * sizeof *host);
    bool right = MPI_SUCCESS == rc;
    for (int i = 0; i < SPREAD; i++) {
        right = right && rank + i == host[i];
    }
    expect(right, "a type with absolute addresses");
    mem_free(MEM_DEVICE, in);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    const bool threads = argc > 1 && 0 == strcmp(argv[1], "--threads");
    const bool host = argc > 1 && 0 == strcmp(argv[1], "--host");
    const bool segments = argc > 1 && NULL != strstr(argv[1], "segments");
    int level;

    blocking = !segments || 0 == strcmp(argv[1], "--blocking-segments");
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    int *in = calloc(COUNT, sizeof *in), *out = malloc(COUNT * sizeof *out);
    if (NULL == in || NULL == out) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (segments) {
        MPI_Op_create(add, 1, &users);
    }
    if (host) {
        MPI_Allreduce(MPI_IN_PLACE, in, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD); /* opens the device */
    } else {
        after_a_failure(in, out);
    }
    if (0 != mem_init("sim", rank)) { /* not before the component has told the simulator which faults to inject */
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (host) {
        host_after_a_failure(in, out);
    }
    displaced();
    if (segments) {
        MPI_Op_free(&users);
    }
    free(in);
    free(out);
    mem_fini();
    MPI_Bcast(&failed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (0 == rank) {
        printf("broken: %d passed, %d failed\n", passed, failed);
    }
    MPI_Finalize();
    return 0 != failed;
}
