/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: many nonblocking all-reduces in flight, on host and on device memory, begun by every rank before any is
 * waited for; each must be right. What they cost together must not grow with the square of their number: the test's
 * time limit (test/run.sh) is a fraction of what that would take.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/mpi/check.h"

#define USAGE "[--n CALLS] [--kinds LIST]"

static void *need(void *p)
{
    if (NULL == p) {
        fprintf(stderr, "deep: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    return p;
}

static void run(check_t *t, int kind, int calls)
{
    const size_t bytes = (size_t) calls * sizeof(int);
    int *host = need(malloc(bytes)), *in = need(mem_alloc(kind, bytes)), *out = need(mem_alloc(kind, bytes));
    MPI_Request *requests = need(malloc((size_t) calls * sizeof(*requests)));
    bool right = true;

    for (int i = 0; i < calls; i++) {
        host[i] = i + t->rank;
    }
    mem_write(in, host, bytes);
    for (int i = 0; i < calls; i++) {
        MPI_Iallreduce(in + i, out + i, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(calls, requests, MPI_STATUSES_IGNORE);
    mem_read(host, out, bytes);
    for (int i = 0; i < calls; i++) {
        right = right && host[i] == t->nranks * i + t->nranks * (t->nranks - 1) / 2;
    }
    if (!right) {
        fprintf(stderr, "deep: FAIL on rank %d: %s memory\n", t->rank, mem_name(kind));
    }
    check_result(t, right);
    mem_free(kind, in);
    mem_free(kind, out);
    free(host);
    free(requests);
}

int main(int argc, char **argv)
{
    int kinds[CHECK_KINDS], nkinds, calls;
    check_t t;
    long failed;

    check_init(&argc, &argv, "deep", MPI_THREAD_SINGLE);
    calls = (int) check_number("--n", 20000);
    nkinds = check_kinds(kinds);
    check_arguments_end(USAGE);
    check_start(&t, "deep", MPI_COMM_WORLD);
    for (int i = 0; i < nkinds; i++) {
        run(&t, kinds[i], calls);
    }
    failed = check_end(&t);
    check_print("deep", t.passed, failed);
    return check_fini(failed);
}
