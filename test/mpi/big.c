/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: one very long MPI_Allreduce of doubles, out of place and in place, every element verified.
 * --bytes 2400000000 goes beyond 2^31 bytes; the default is small enough for a machine without a GPU, where a
 * small heap (coll_gpusym_heap_size) makes the same many rounds.
 *
 * Element i of rank r is v(i) * 4^(r mod 12), v a hash of 20 bits: sums are exact in every order, and no rank's
 * part can stand in for another's.
 */
#include <mpi.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"

#define USAGE "[--bytes N] [--kinds LIST]"
#define CHUNK ((size_t) 1 << 20) /* elements made or verified at once */
#define GUARD 8                  /* elements on both sides */
#define EXTRA 1021               /* elements beyond the requested size: an odd count */

static double value(size_t i)
{
    return (double) (((uint64_t) i * 0x9e3779b97f4a7c15u + 0x1234567u) >> 44);
}

static double weight(int rank)
{
    return (double) (UINT64_C(1) << (2 * (rank % 12)));
}

/* Element i of a buffer with guards: v(i) * factor inside, -1 outside. */
static double element(size_t i, size_t count, double factor)
{
    return i < GUARD || i >= GUARD + count ? -1.0 : value(i - GUARD) * factor;
}

static void fill(double *mem, size_t count, double factor, double *chunk)
{
    size_t all = count + 2 * GUARD;

    for (size_t at = 0; at < all; at += CHUNK) {
        size_t n = all - at < CHUNK ? all - at : CHUNK;

        for (size_t i = 0; i < n; i++) {
            chunk[i] = element(at + i, count, factor);
        }
        mem_write(mem + at, chunk, n * sizeof(double));
    }
}

static bool holds(const double *mem, size_t count, double factor, double *chunk, const char *what, int rank)
{
    size_t all = count + 2 * GUARD;

    for (size_t at = 0; at < all; at += CHUNK) {
        size_t n = all - at < CHUNK ? all - at : CHUNK;

        mem_read(chunk, mem + at, n * sizeof(double));
        for (size_t i = 0; i < n; i++) {
            double want = element(at + i, count, factor);

            if (!(chunk[i] == want)) {
                fprintf(stderr, "big: FAIL on rank %d: %s: element %ld of %zu: got %.17g, want %.17g\n", rank, what,
                        (long) (at + i) - GUARD, count, chunk[i], want);
                return false;
            }
        }
    }
    return true;
}

static double sum_of_weights(int nranks)
{
    double sum = 0;

    for (int r = 0; r < nranks; r++) {
        sum += weight(r);
    }
    return sum;
}

static void *need(int kind, size_t bytes)
{
    void *p = mem_alloc(kind, bytes);

    if (NULL == p) {
        fprintf(stderr, "mem_alloc(%s, %zu) failed\n", mem_name(kind), bytes);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    return p;
}

static void run(check_t *t, int kind, size_t count, double *chunk)
{
    size_t bytes = (count + 2 * GUARD) * sizeof(double);
    double *in = need(kind, bytes), *out = need(kind, bytes);
    double own = weight(t->rank), sum = sum_of_weights(t->nranks), start;
    bool right;

    fill(in, count, own, chunk);
    fill(out, count, -7.0, chunk);
    start = MPI_Wtime();
    MPI_Allreduce(in + GUARD, out + GUARD, (int) count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    start = MPI_Wtime() - start;
    right = holds(out, count, sum, chunk, "out of place", t->rank);
    right = holds(in, count, own, chunk, "input changed", t->rank) && right;
    check_result(t, right);
    mem_free(kind, out);

    MPI_Allreduce(MPI_IN_PLACE, in + GUARD, (int) count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check_result(t, holds(in, count, sum, chunk, "in place", t->rank));
    mem_free(kind, in);
    if (0 == t->rank) {
        printf("%s memory: %zu bytes, %.3f s out of place\n", mem_name(kind), count * sizeof(double), start);
    }
}

int main(int argc, char **argv)
{
    check_t t;
    int kinds[CHECK_KINDS], n;
    size_t count;
    double *chunk;
    long failed;

    check_init(&argc, &argv, "big", MPI_THREAD_SINGLE);
    count = check_number("--bytes", (uint64_t) 32 << 20) / sizeof(double) + EXTRA;
    n = check_kinds(kinds);
    check_arguments_end(USAGE);
    chunk = malloc(CHUNK * sizeof(double));
    if (NULL == chunk || count > INT_MAX) {
        fprintf(stderr, "big: --bytes too large, or no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    check_start(&t, "big", MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) {
        if (1 == n || MEM_HOST != kinds[i]) {
            run(&t, kinds[i], count, chunk);
        }
    }
    free(chunk);
    failed = check_end(&t);
    check_print("big", t.passed, t.failed);
    return check_fini(failed);
}
