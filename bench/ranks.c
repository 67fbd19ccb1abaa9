/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The ranks and their messages: see ranks.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/ranks.h"

#define TAG 1

int bench_rank, bench_ranks;
MPI_Comm bench_world = MPI_COMM_NULL;

void bench_die(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fprintf(stderr, "rank %d: ", bench_rank);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    MPI_Abort(MPI_COMM_WORLD, BENCH_USAGE);
    abort(); /* MPI_Abort does not return */
}

void bench_refuse(const char *format, ...)
{
    va_list ap;

    if (0 == bench_rank) {
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        fputc('\n', stderr);
        va_end(ap);
    }
    MPI_Finalize();
    exit(BENCH_USAGE);
}

void bench_share(void *data, int bytes)
{
    if (0 != bench_rank) {
        MPI_Recv(data, bytes, MPI_BYTE, 0, TAG, bench_world, MPI_STATUS_IGNORE);
        return;
    }
    for (int r = 1; r < bench_ranks; r++) {
        MPI_Send(data, bytes, MPI_BYTE, r, TAG, bench_world);
    }
}

/* Rank 0 combines and tells. */
static double combine(double value, bool sum)
{
    double other;

    if (0 != bench_rank) {
        MPI_Send(&value, 1, MPI_DOUBLE, 0, TAG, bench_world);
    }
    for (int r = 1; r < bench_ranks && 0 == bench_rank; r++) {
        MPI_Recv(&other, 1, MPI_DOUBLE, r, TAG, bench_world, MPI_STATUS_IGNORE);
        value = sum ? value + other : other > value ? other : value;
    }
    bench_share(&value, sizeof(value));
    return value;
}

double bench_max(double value)
{
    return combine(value, false);
}

double bench_sum(double value)
{
    return combine(value, true);
}

bool bench_agree(bool yes)
{
    return bench_max(yes ? 0 : 1) < 1;
}
