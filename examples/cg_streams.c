/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives on streams: see cg_streams.h.
 *
 * Faces go to neighbours only, and there is no MPI_Alltoallv on a stream, whose ranks would not know each other's
 * sizes. So two neighbours have a communicator of their own, and gather their faces to both. First rank 0 exchanges
 * with 1, 2 with 3 and so on, then 1 with 2, 3 with 4: all ranks queue these calls in one order, and none waits for
 * more than one other.
 */
#include <mpi.h>

#include "api/gpusym.h"
#include "bench/output.h"
#include "bench/ranks.h"
#include "examples/cg_streams.h"
#include "examples/stream.h"

/* In a pair, rank 0 is the lower one, whose upper face (side 1) the other needs. In one array behind each other: the
 * faces, the halo, two planes each (cg_kernels.h). */
typedef struct {
    MPI_Comm comm;
    int counts[2], at[2]; /* doubles: a plane of each rank, from the faces on */
} pair_t;

static struct {
    bool there;
    MPI_Comm world;
    pair_t pairs[2];
} streams;

static pair_t make_pair(const cg_args_t *a, int first)
{
    const int plane = (int) cg_plane(a), lower = (bench_rank - first) % 2 ? bench_rank - 1 : bench_rank;
    const int side = bench_rank == lower; /* where the neighbour is */
    pair_t pair = {MPI_COMM_NULL, {plane, plane}, {0, 0}};

    MPI_Comm_split(streams.world, lower < 0 || lower + 1 >= bench_ranks ? MPI_UNDEFINED : lower, bench_rank,
                   &pair.comm);
    pair.at[1 - side] = side * plane;
    pair.at[side] = (2 + side) * plane;
    return pair;
}

void cg_streams_open(const cg_args_t *a, bool wanted)
{
    streams.there = false;
    streams.world = streams.pairs[0].comm = streams.pairs[1].comm = MPI_COMM_NULL;
    if (!wanted || NULL == stream_handle()) {
        bench_comment("collectives on streams: not requested, or no device");
        return;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &streams.world);
    streams.pairs[0] = make_pair(a, 0);
    streams.pairs[1] = make_pair(a, 1);
    streams.there = stream_is_ready(streams.world) && stream_is_ready(streams.pairs[0].comm) &&
                    stream_is_ready(streams.pairs[1].comm);
}

void cg_streams_close(void)
{
    MPI_Comm *const all[] = {&streams.pairs[0].comm, &streams.pairs[1].comm, &streams.world};

    for (int i = 0; i < 3; i++) {
        if (MPI_COMM_NULL != *all[i]) {
            MPI_Comm_free(all[i]);
        }
    }
}

bool cg_streams_there(void)
{
    return streams.there;
}

void cg_streams_halo(const cg_args_t *a, void *stream)
{
    for (int i = 0; i < 2; i++) {
        const pair_t *p = &streams.pairs[i];

        if (MPI_COMM_NULL != p->comm) {
            gpusym_allgatherv_on_stream(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, cg_faces(a), p->counts, p->at, MPI_DOUBLE,
                                        p->comm, stream);
        }
    }
}

void cg_streams_sum(double *own, double *all, int n, void *stream)
{
    gpusym_allreduce_on_stream(own, all, n, MPI_DOUBLE, MPI_SUM, streams.world, stream);
}
