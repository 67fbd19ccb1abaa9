/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank that cannot stage a call: the other ranks, who are in it, must not wait for it for ever.
 *
 *     stagefail MODE [--right | --one | --mixed | --inter | --full]
 *
 * MODE: blocking, nonblocking or persistent. Run with copies that fail on rank 1 (coll_gpusym_sim_fail=copy:3@1,...):
 * staged calls, by an operation of the user's, on communicators of their own. No rank takes a wrong result for a right
 * one, and none succeeds behind a failed call. --right: nor does any fail.
 *
 * --one, --mixed, --inter, --full (with coll_gpusym_sim_host=1): one call, which fails on all ranks, and the next one
 * too (of several islands); rank 0 has host buffers, and looks at no mark; on an intercommunicator there is none; there
 * is no memory left on rank 1. Another communicator goes on.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/mem.h"
#include "test/mpi/persistent.h"

enum { COUNT = 90000, LONG = 6000000, ROUNDS = 48 };

typedef enum { ALLREDUCE, REDUCE, SCAN, SCATTER, CALLS } call_t;

static int rank, nranks, passed, failed;
static const char *mode;
static MPI_Op users; /* adds integers */

static void expect(bool good, const char *what)
{
    int mine = good, all;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    passed += all;
    failed += !all;
    if (!all && 0 == rank) {
        printf("FAILED: %s: %s\n", mode, what);
    }
}

static void add(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n; i++) {
        ((int *) inout)[i] += ((int *) in)[i];
    }
}

static int call_blocking(call_t call, const int *in, int *out, int n, MPI_Comm comm)
{
    switch (call) {
    case ALLREDUCE:
        return MPI_Allreduce(in, out, n, MPI_INT, users, comm);
    case REDUCE:
        return MPI_Reduce(in, out, n, MPI_INT, users, 0, comm);
    case SCAN:
        return MPI_Scan(in, out, n, MPI_INT, users, comm);
    default:
        return MPI_Reduce_scatter_block(in, out, n / nranks, MPI_INT, users, comm);
    }
}

static int call_nonblocking(call_t call, const int *in, int *out, int n, MPI_Comm comm, MPI_Request *r)
{
    switch (call) {
    case ALLREDUCE:
        return MPI_Iallreduce(in, out, n, MPI_INT, users, comm, r);
    case REDUCE:
        return MPI_Ireduce(in, out, n, MPI_INT, users, 0, comm, r);
    case SCAN:
        return MPI_Iscan(in, out, n, MPI_INT, users, comm, r);
    default:
        return MPI_Ireduce_scatter_block(in, out, n / nranks, MPI_INT, users, comm, r);
    }
}

static int call_init(call_t call, const int *in, int *out, int n, MPI_Comm comm, MPI_Request *r)
{
    switch (call) {
    case ALLREDUCE:
        return PERSISTENT_INIT(Allreduce)(in, out, n, MPI_INT, users, comm, MPI_INFO_NULL, r);
    case REDUCE:
        return PERSISTENT_INIT(Reduce)(in, out, n, MPI_INT, users, 0, comm, MPI_INFO_NULL, r);
    case SCAN:
        return PERSISTENT_INIT(Scan)(in, out, n, MPI_INT, users, comm, MPI_INFO_NULL, r);
    default:
        return PERSISTENT_INIT(Reduce_scatter_block)(in, out, n / nranks, MPI_INT, users, comm, MPI_INFO_NULL, r);
    }
}

/* One call, in the mode that is tried. Its MPI error code. */
static int make(call_t call, const int *in, int *out, int n, MPI_Comm comm)
{
    MPI_Request r = MPI_REQUEST_NULL;
    int rc;
    if (0 == strcmp("blocking", mode)) {
        return call_blocking(call, in, out, n, comm);
    }
    if (0 == strcmp("nonblocking", mode)) {
        rc = call_nonblocking(call, in, out, n, comm, &r);
        return MPI_SUCCESS == rc ? MPI_Wait(&r, MPI_STATUS_IGNORE) : rc;
    }
    rc = call_init(call, in, out, n, comm, &r);
    if (MPI_SUCCESS != rc) {
        return rc;
    }
    rc = MPI_Start(&r);
    rc = MPI_SUCCESS == rc ? MPI_Wait(&r, MPI_STATUS_IGNORE) : rc;
    MPI_Request_free(&r);
    return rc;
}

/* Whether out is the result; rank r has r + i at place i. */
static bool is_right(call_t call, const int *out)
{
    const int n = SCATTER == call ? COUNT / nranks : REDUCE == call && 0 != rank ? 0 : COUNT;
    const int ranks = SCAN == call ? rank + 1 : nranks, first = SCATTER == call ? rank * n : 0;
    bool right = true;
    for (int i = 0; i < n; i++) {
        right = right && out[i] == ranks * (first + i) + ranks * (ranks - 1) / 2;
    }
    return right;
}

/* Calls on communicators of their own. Returns in how many of them some call failed, on this rank. */
static int try_calls(const int *in, int *out, int *image, bool *lied, bool *recovered)
{
    int errors = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const call_t call = (call_t) (round % CALLS);
        MPI_Comm comm;
        bool broken = false;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        for (int i = 0; i < 2; i++) {
            memset(image, 0xff, COUNT * sizeof *image);
            mem_write(out, image, COUNT * sizeof *image);
            const int rc = make(call, in, out, COUNT, comm);
            mem_read(image, out, COUNT * sizeof *image);
            *lied = *lied || (MPI_SUCCESS == rc && !is_right(call, image));
            *recovered = *recovered || (MPI_SUCCESS == rc && broken);
            broken = broken || MPI_SUCCESS != rc;
        }
        errors += broken;
        MPI_Comm_free(&comm);
    }
    return errors;
}

static void fail_calls(bool right)
{
    static int image[COUNT];
    bool lied = false, recovered = false;
    if (0 != mem_init("sim", rank)) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int *in = mem_alloc(MEM_DEVICE, sizeof image), *out = mem_alloc(MEM_DEVICE, sizeof image);
    if (NULL == in || NULL == out) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 0; i < COUNT; i++) {
        image[i] = rank + i;
    }
    mem_write(in, image, sizeof image);
    const int errors = try_calls(in, out, image, &lied, &recovered);
    expect(!lied, "no call succeeds with a wrong result");
    expect(!recovered, "no call succeeds after a failed one");
    expect(right ? 0 == errors : errors > 0 && errors < ROUNDS, right ? "no call fails" : "some calls fail");
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    mem_fini();
}

/* A communicator for one call: of all ranks, or from rank 0 to the others. */
static MPI_Comm make_comm(bool inter)
{
    MPI_Comm comm, mine;
    if (!inter) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    } else {
        MPI_Comm_split(MPI_COMM_WORLD, 0 == rank, rank, &mine);
        MPI_Intercomm_create(mine, 0, MPI_COMM_WORLD, 0 == rank ? 1 : 0, 5, &comm);
        MPI_Comm_free(&mine);
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return comm;
}

/* Whether a call on a communicator succeeds, with the right result. */
static bool goes_on(const int *in, int *out, MPI_Comm comm)
{
    static int image[COUNT];
    const bool good = MPI_SUCCESS == make(ALLREDUCE, in, out, COUNT, comm);
    mem_read(image, out, sizeof image);
    return good && is_right(ALLREDUCE, image);
}

static void fail_one(const char *what)
{
    static int image[COUNT];
    const bool inter = 0 == strcmp("--inter", what), full = 0 == strcmp("--full", what);
    const int kind = inter || 0 == strcmp("--one", what) || (!full && 0 != rank) ? MEM_DEVICE : MEM_HOST,
              n = full ? LONG : COUNT;
    if (0 != mem_init(full ? "host" : "sim", rank)) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int *in = mem_alloc(kind, (size_t) n * sizeof *in), *out = mem_alloc(kind, (size_t) n * sizeof *out);
    if (NULL == in || NULL == out) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (full) {
        memset(in, 0, (size_t) n * sizeof *in);
        memset(out, 0, (size_t) n * sizeof *out);
    }
    for (int i = 0; i < COUNT; i++) {
        image[i] = rank + i;
    }
    mem_write(in, image, sizeof image);
    MPI_Comm comm = make_comm(inter), other = make_comm(false);
    if (full && 1 == rank && !mem_limit(4u << 20)) {
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    expect(MPI_SUCCESS != make(ALLREDUCE, in, out, n, comm), "the call fails");
    expect(MPI_SUCCESS != make(ALLREDUCE, in, out, n, comm), "so does the next one");
    expect(goes_on(in, out, other), "another communicator goes on");
    MPI_Comm_free(&other);
    MPI_Comm_free(&comm);
    mem_free(kind, in);
    mem_free(kind, out);
    mem_fini();
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "";
    int one = 1, sum = 0;
    mode = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* Open MPI 4 takes this one's in MPI_Wait */
    MPI_Op_create(add, 1, &users);
    if ('\0' == what[0] || 0 == strcmp("--right", what)) {
        fail_calls('\0' != what[0]);
    } else if (0 == strcmp("--full", what) && !mem_limit((size_t) 1 << 40)) {
        MPI_Finalize();
        return 77; /* cannot run here */
    } else {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); /* opens the device */
        fail_one(what);
    }
    MPI_Op_free(&users);
    if (0 == rank) {
        printf("stagefail: %d passed, %d failed\n", passed, failed);
    }
    MPI_Finalize();
    return 0 != failed;
}
