/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rank 1 (--all: every rank) has only --left N file descriptors left as the first collective comes: the result is
 * right, and where it was staged, that is the reason, on all ranks.  --native: that it was not.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "test/mpi/mem.h"
#include "test/mpi/mpit.h"

enum { COUNT = 5000 };

/* Leaves `left` descriptors. Numbers below `first` are not free, else it had been one of them. */
static void use_up(int left)
{
    struct rlimit limit;
    const int first = open("/dev/null", O_RDONLY);

    if (0 > first || 0 != getrlimit(RLIMIT_NOFILE, &limit)) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    limit.rlim_cur = (rlim_t) (first + left);
    if (0 != setrlimit(RLIMIT_NOFILE, &limit)) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    close(first);
}

/* One all-reduce. */
static void sum(int *in, int *out, int *host, int rank, int n, bool *right)
{
    for (int i = 0; i < COUNT; i++) {
        host[i] = rank + i;
    }
    mem_write(in, host, COUNT * sizeof *host);
    *right = MPI_SUCCESS == MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    mem_read(host, out, COUNT * sizeof *host);
    for (int i = 0; i < COUNT; i++) {
        *right = *right && host[i] == n * i + n * (n - 1) / 2;
    }
}

int main(int argc, char **argv)
{
    static int host[COUNT];
    const char *device = getenv("GPUSYM_TEST_DEVICE");
    int rank, n, left = 0, good, all_good;
    bool all = false, native = false, right;

    MPI_Init(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        left = 0 == strcmp("--left", argv[i]) && i + 1 < argc ? atoi(argv[i + 1]) : left;
        all = all || 0 == strcmp("--all", argv[i]);
        native = native || 0 == strcmp("--native", argv[i]);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (NULL == device || 0 != mem_init(device, rank)) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int *in = mem_alloc(MEM_DEVICE, sizeof host), *out = mem_alloc(MEM_DEVICE, sizeof host);
    if (NULL == in || NULL == out) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    (void) mpit_count("allreduce", "staged");
    (void) mpit_count("allreduce", "staged_no_fd");
    (void) mpit_count("allreduce", "native");
    for (int p = 0; p < n; p++) { /* Open MPI has its connections; a barrier is no call in which gpusym meets */
        MPI_Sendrecv(&rank, 1, MPI_INT, (rank + p) % n, 0, &good, 1, MPI_INT, (rank + n - p) % n, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (all || 1 == rank) {
        use_up(left);
    }
    sum(in, out, host, rank, n, &right);
    const unsigned long long staged = mpit_count("allreduce", "staged"), lack = mpit_count("allreduce", "staged_no_fd");
    good = right && staged == lack && (native ? 1 == mpit_count("allreduce", "native") : 1 == staged);
    if (!good) {
        fprintf(stderr, "descriptors: FAIL on rank %d: %s; %llu staged, %llu of these for want of a descriptor\n", rank,
                right ? "right" : "wrong", staged, lack);
    }
    MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (0 == rank) {
        printf("descriptors: %d passed, %d failed\n", all_good, !all_good);
    }
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    mem_fini();
    MPI_Finalize();
    return !all_good;
}
