/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym, staging, NCCL, gpusym on streams: see cg_ways.h.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "bench/memory.h"
#include "bench/nccl.h"
#include "bench/ranks.h"
#include "examples/cg_streams.h"
#include "examples/cg_ways.h"
#include "examples/stream.h"

#define TAG 7
#define EVENT_DISABLE_TIMING 2 /* CU_EVENT_DISABLE_TIMING */

static bool always(void)
{
    return true;
}

/* Rank that has the planes below (side 0) or above (side 1); MPI_PROC_NULL at the ends. */
static int neighbour(int side)
{
    int r = bench_rank + (0 == side ? -1 : 1);

    return r < 0 || r >= bench_ranks ? MPI_PROC_NULL : r;
}

/* ---- gpusym: MPI on GPU memory. A call is made when what it sends is there: MPI does not know our stream
 * ------------- */

static MPI_Request request;

static void gpusym_halo(const cg_args_t *a)
{
    const size_t plane = cg_plane(a);
    MPI_Request requests[4];

    stream_wait();
    for (int side = 0; side < 2; side++) {
        MPI_Irecv(cg_halo(a) + (size_t) side * plane, (int) plane, MPI_DOUBLE, neighbour(side), TAG, MPI_COMM_WORLD,
                  &requests[side]);
    }
    for (int side = 0; side < 2; side++) {
        MPI_Isend(cg_faces(a) + (size_t) side * plane, (int) plane, MPI_DOUBLE, neighbour(side), TAG, MPI_COMM_WORLD,
                  &requests[2 + side]);
    }
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void gpusym_reduce(double *own, double *all, int n)
{
    stream_wait();
    MPI_Allreduce(own, all, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void gpusym_begin(double *own, double *all, int n)
{
    stream_wait();
    MPI_Iallreduce(own, all, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
}

static void wait_for_request(void)
{
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* ---- staged: copy, MPI on host memory, copy ------------------------------------------------------------------------
 */

static struct {
    double *faces, *halo; /* two planes each */
    double *own, *all;    /* two sums */
    double *to;           /* where they go, in GPU memory */
    int n;
} host;

static void staged_halo(const cg_args_t *a)
{
    const size_t plane = cg_plane(a);
    MPI_Request requests[4];

    stream_wait();
    for (int side = 0; side < 2; side++) {
        MPI_Irecv(host.halo + (size_t) side * plane, (int) plane, MPI_DOUBLE, neighbour(side), TAG, bench_world,
                  &requests[side]);
    }
    bench_to_host(host.faces, cg_faces(a), 2 * plane * sizeof(double));
    for (int side = 0; side < 2; side++) {
        MPI_Isend(host.faces + (size_t) side * plane, (int) plane, MPI_DOUBLE, neighbour(side), TAG, bench_world,
                  &requests[2 + side]);
    }
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    bench_from_host(cg_halo(a), host.halo, 2 * plane * sizeof(double)); /* zeros stay zeros at the ends */
}

static void staged_reduce(double *own, double *all, int n)
{
    stream_wait();
    bench_to_host(host.own, own, (size_t) n * sizeof(double));
    MPI_Allreduce(host.own, host.all, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    bench_from_host(all, host.all, (size_t) n * sizeof(double));
}

static void staged_begin(double *own, double *all, int n)
{
    stream_wait();
    bench_to_host(host.own, own, (size_t) n * sizeof(double));
    host.to = all;
    host.n = n;
    MPI_Iallreduce(host.own, host.all, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
}

static void staged_end(void)
{
    wait_for_request();
    bench_from_host(host.to, host.all, (size_t) host.n * sizeof(double));
}

/* ---- ordered: staged, with sums in the order of the ranks, which is gpusym's. Not to be fast: to compare bits
 * ---------- */

static void ordered_reduce(double *own, double *all, int n)
{
    double *of_ranks = calloc((size_t) bench_ranks, (size_t) n * sizeof(double));

    if (NULL == of_ranks) {
        bench_die("no host memory");
    }
    stream_wait();
    bench_to_host(host.own, own, (size_t) n * sizeof(double));
    MPI_Allgather(host.own, n, MPI_DOUBLE, of_ranks, n, MPI_DOUBLE, MPI_COMM_WORLD);
    memcpy(host.all, of_ranks, (size_t) n * sizeof(double));
    for (int i = n; i < bench_ranks * n; i++) {
        host.all[i % n] += of_ranks[i];
    }
    bench_from_host(all, host.all, (size_t) n * sizeof(double));
    free(of_ranks);
}

static void nothing(void)
{
}

/* ---- NCCL, on our stream: nobody waits on the host
 * ------------------------------------------------------------------- */

static struct {
    int (*record)(void *event, void *stream), (*stream_wait)(void *stream, void *event, unsigned flags);
    void *stream, *event; /* of sums beside a kernel */
} beside;

static bool nccl_there(void)
{
    return bench_nccl.there;
}

static void nccl_halo(const cg_args_t *a)
{
    const size_t plane = cg_plane(a);

    bench_nccl_check("ncclGroupStart", bench_nccl.ncclGroupStart());
    for (int side = 0; side < 2; side++) {
        if (MPI_PROC_NULL != neighbour(side)) {
            bench_nccl_check("ncclSend",
                             bench_nccl.ncclSend(cg_faces(a) + (size_t) side * plane, plane, BENCH_NCCL_FLOAT64,
                                                 neighbour(side), bench_nccl.comm, bench_cu.stream));
            bench_nccl_check("ncclRecv",
                             bench_nccl.ncclRecv(cg_halo(a) + (size_t) side * plane, plane, BENCH_NCCL_FLOAT64,
                                                 neighbour(side), bench_nccl.comm, bench_cu.stream));
        }
    }
    bench_nccl_check("ncclGroupEnd", bench_nccl.ncclGroupEnd());
}

static void nccl_sum(double *own, double *all, int n, void *stream)
{
    bench_nccl_check("ncclAllReduce", bench_nccl.ncclAllReduce(own, all, (size_t) n, BENCH_NCCL_FLOAT64, BENCH_NCCL_SUM,
                                                               bench_nccl.comm, stream));
}

static void nccl_reduce(double *own, double *all, int n)
{
    nccl_sum(own, all, n, bench_cu.stream);
}

/* `stream` goes on when `other` has done what it was given so far. On the simulator there is one stream. */
static void after(void *stream, void *other)
{
    if (stream == other) {
        return;
    }
    bench_cu_check("cuEventRecord", beside.record(beside.event, other));
    bench_cu_check("cuStreamWaitEvent", beside.stream_wait(stream, beside.event, 0));
}

static void nccl_begin(double *own, double *all, int n)
{
    after(beside.stream, bench_cu.stream);
    nccl_sum(own, all, n, beside.stream);
}

static void join_beside(void)
{
    after(stream_handle(), beside.stream);
}

static void beside_open(void)
{
    int (*create)(void **event, unsigned flags);

    *(void **) &create = bench_cu_function("cuEventCreate");
    *(void **) &beside.record = bench_cu_function("cuEventRecord");
    *(void **) &beside.stream_wait = bench_cu_function("cuStreamWaitEvent");
    bench_cu_check("cuEventCreate", create(&beside.event, EVENT_DISABLE_TIMING));
    BENCH_CU(cuStreamCreate, &beside.stream, BENCH_STREAM_NON_BLOCKING);
}

static void beside_close(void)
{
    int (*destroy)(void *event);

    *(void **) &destroy = bench_cu_function("cuEventDestroy_v2");
    BENCH_CU(cuStreamDestroy_v2, beside.stream);
    bench_cu_check("cuEventDestroy", destroy(beside.event));
}

/* ---- gpusym, on our stream ---------------------------------------------------------------------------------------
 */

static void streams_halo(const cg_args_t *a)
{
    cg_streams_halo(a, stream_handle());
}

static void streams_reduce(double *own, double *all, int n)
{
    cg_streams_sum(own, all, n, stream_handle());
}

static void streams_begin(double *own, double *all, int n)
{
    after(beside.stream, stream_handle());
    cg_streams_sum(own, all, n, beside.stream);
}

/* The simulator's kernels are run by the CPU as they are launched, and cannot be captured. */
static bool graph_there(void)
{
    return bench_cu.there && cg_streams_there();
}

/* ---- all of them ---------------------------------------------------------------------------------------------------
 */

static const cg_way_t ways[] = {
    {"ordered", always, false, staged_halo, ordered_reduce, ordered_reduce, nothing},
    {"gpusym", always, false, gpusym_halo, gpusym_reduce, gpusym_begin, wait_for_request},
    {"staged", always, false, staged_halo, staged_reduce, staged_begin, staged_end},
    {"nccl", nccl_there, false, nccl_halo, nccl_reduce, nccl_begin, join_beside},
    {"nccl-graph", nccl_there, true, nccl_halo, nccl_reduce, nccl_begin, join_beside},
    {"streams", cg_streams_there, false, streams_halo, streams_reduce, streams_begin, join_beside},
    {"graph", graph_there, true, streams_halo, streams_reduce, streams_begin, join_beside},
};

const cg_way_t *cg_way(int number)
{
    return number < (int) (sizeof(ways) / sizeof(ways[0])) ? &ways[number] : NULL;
}

void cg_ways_open(const cg_args_t *a, bool with_nccl, bool with_streams)
{
    const size_t bytes = 2 * cg_plane(a) * sizeof(double);

    host.faces = bench_host_alloc(bytes);
    host.halo = bench_host_alloc(bytes);
    host.own = bench_host_alloc(2 * sizeof(double));
    host.all = bench_host_alloc(2 * sizeof(double));
    memset(host.halo, 0, bytes);
    bench_nccl_open(cg_faces(a), cg_halo(a), bytes, with_nccl);
    cg_streams_open(a, with_streams);
    beside.stream = stream_handle();
    if (bench_cu.there) {
        beside_open();
    }
}

void cg_ways_close(void)
{
    if (bench_cu.there) {
        beside_close();
    }
    cg_streams_close();
    bench_nccl_close();
    bench_host_free(host.all);
    bench_host_free(host.own);
    bench_host_free(host.halo);
    bench_host_free(host.faces);
}
