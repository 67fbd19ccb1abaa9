/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI, gpusym on streams, NCCL: see jacobi_forms.h.
 */
#include <mpi.h>
#include <stdlib.h>

#include "api/gpusym.h"
#include "bench/memory.h"
#include "bench/nccl.h"
#include "bench/output.h"
#include "bench/ranks.h"
#include "examples/jacobi_forms.h"
#include "examples/stream.h"

#define TAG 7

/* Rank that has the rows below ours in number (side 0) or above (side 1); MPI_PROC_NULL at the grid's edges. */
static int neighbour(int side)
{
    const int r = bench_rank + (0 == side ? -1 : 1);

    return r < 0 || r >= bench_ranks ? MPI_PROC_NULL : r;
}

/* The outer row that goes to a neighbour, and where its own goes: from column 1 on, n doubles. */
static double *row_to(const jacobi_args_t *a, int side)
{
    return jacobi_present(a) + jacobi_at(a, 0 == side ? 1 : a->n, 1);
}

static double *row_from(const jacobi_args_t *a, int side)
{
    return jacobi_present(a) + jacobi_at(a, 0 == side ? 0 : a->n + 1, 1);
}

/* ---- classic: MPI on GPU memory. A call is made when what it sends is there: MPI does not know our stream -------- */

static bool always(void)
{
    return true;
}

static void classic_exchange(const jacobi_args_t *a)
{
    MPI_Request requests[4];

    stream_wait();
    for (int side = 0; side < 2; side++) {
        MPI_Irecv(row_from(a, side), (int) a->n, MPI_DOUBLE, neighbour(side), TAG, MPI_COMM_WORLD, &requests[side]);
    }
    for (int side = 0; side < 2; side++) {
        MPI_Isend(row_to(a, side), (int) a->n, MPI_DOUBLE, neighbour(side), TAG, MPI_COMM_WORLD, &requests[2 + side]);
    }
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void classic_reduce(const jacobi_args_t *a)
{
    stream_wait();
    MPI_Allreduce(jacobi_own(a), jacobi_total(a), 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* ---- streams: gpusym's collectives on our stream: nobody waits on the host --------------------------------------- */

static struct {
    bool there;
    MPI_Comm comm;
    int *counts, *to, *from; /* by rank, in doubles: 0 but for neighbours; from row_to(), row_from() of side 0 on */
} streams;

static void streams_open(const jacobi_args_t *a, bool wanted)
{
    streams.comm = MPI_COMM_NULL;
    streams.counts = calloc(3 * (size_t) bench_ranks, sizeof(int));
    if (NULL == streams.counts) {
        bench_die("no host memory");
    }
    streams.to = streams.counts + bench_ranks;
    streams.from = streams.to + bench_ranks;
    for (int side = 0; side < 2; side++) {
        if (MPI_PROC_NULL != neighbour(side)) {
            streams.counts[neighbour(side)] = (int) a->n;
            streams.to[neighbour(side)] = (int) (row_to(a, side) - row_to(a, 0));
            streams.from[neighbour(side)] = (int) (row_from(a, side) - row_from(a, 0));
        }
    }
    if (!wanted || NULL == stream_handle()) {
        bench_comment("collectives on streams: not requested, or no device");
        return;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &streams.comm);
    streams.there = stream_is_ready(streams.comm);
}

static void streams_close(void)
{
    if (MPI_COMM_NULL != streams.comm) {
        MPI_Comm_free(&streams.comm);
    }
    free(streams.counts);
}

static bool streams_there(void)
{
    return streams.there;
}

/* All ranks call it, also one without neighbours. */
static void streams_exchange(const jacobi_args_t *a)
{
    gpusym_alltoallv_on_stream(row_to(a, 0), streams.counts, streams.to, MPI_DOUBLE, row_from(a, 0), streams.counts,
                               streams.from, MPI_DOUBLE, streams.comm, stream_handle());
}

static void streams_reduce(const jacobi_args_t *a)
{
    gpusym_allreduce_on_stream(jacobi_own(a), jacobi_total(a), 1, MPI_DOUBLE, MPI_SUM, streams.comm, stream_handle());
}

void jacobi_forms_check(void)
{
    if (streams.there) {
        stream_check(streams.comm);
    }
}

/* ---- nccl -------------------------------------------------------------------------------------------------------- */

static bool nccl_there(void)
{
    return bench_nccl.there;
}

static void nccl_exchange(const jacobi_args_t *a)
{
    bench_nccl_check("ncclGroupStart", bench_nccl.ncclGroupStart());
    for (int side = 0; side < 2; side++) {
        if (MPI_PROC_NULL != neighbour(side)) {
            bench_nccl_check("ncclSend", bench_nccl.ncclSend(row_to(a, side), a->n, BENCH_NCCL_FLOAT64, neighbour(side),
                                                             bench_nccl.comm, bench_cu.stream));
            bench_nccl_check("ncclRecv", bench_nccl.ncclRecv(row_from(a, side), a->n, BENCH_NCCL_FLOAT64,
                                                             neighbour(side), bench_nccl.comm, bench_cu.stream));
        }
    }
    bench_nccl_check("ncclGroupEnd", bench_nccl.ncclGroupEnd());
}

static void nccl_reduce(const jacobi_args_t *a)
{
    bench_nccl_check("ncclAllReduce", bench_nccl.ncclAllReduce(jacobi_own(a), jacobi_total(a), 1, BENCH_NCCL_FLOAT64,
                                                               BENCH_NCCL_SUM, bench_nccl.comm, bench_cu.stream));
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* A graph repeats what gpusym has queued, also its choice of algorithms; NCCL may choose others in graphs. */
const jacobi_form_t jacobi_forms[JACOBI_FORMS] = {
    {"classic", "classic", true, false, NULL, always, classic_exchange, classic_reduce},
    {"streams", "classic", false, false, "alltoallv", streams_there, streams_exchange, streams_reduce},
    {"graph", "streams", true, true, "alltoallv", streams_there, streams_exchange, streams_reduce},
    {"nccl", "classic", false, false, NULL, nccl_there, nccl_exchange, nccl_reduce},
    {"nccl-graph", "nccl", false, true, NULL, nccl_there, nccl_exchange, nccl_reduce},
};

void jacobi_forms_open(const jacobi_args_t *a, bool with_nccl, bool with_streams)
{
    bench_nccl_open(jacobi_own(a), jacobi_field(a, 0), 0, with_nccl);
    streams_open(a, with_streams);
}

void jacobi_forms_close(void)
{
    streams_close();
    bench_nccl_close();
}
