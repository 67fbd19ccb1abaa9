/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages, persistent messages, a neighbourhood collective, gpusym on streams, NCCL: see halo_forms.h.
 *
 * What all that use MPI have in common:
 *   - MPI takes pointers to GPU memory, as if it were the host's. It does not know the stream of the kernels:
 *     halo_wait() before a call that sends what a kernel writes, or receives into what a kernel reads. When MPI says
 *     that a message has arrived, every kernel launched from then on sees it.
 *   - Receives are posted first.
 *   - A message's tag is the face that it is sent from. Two ranks can be each other's lower and upper neighbour, and a
 *     rank its own: there the source alone does not say which face a message is.
 */
#include <stdlib.h>

#include "api/gpusym.h"
#include "bench/memory.h"
#include "bench/nccl.h"
#include "bench/output.h"
#include "bench/ranks.h"
#include "examples/halo_device.h"
#include "examples/halo_forms.h"
#include "examples/stream.h"

enum { REQUESTS = 2 * HALO_FACES };

static struct {
    MPI_Comm grid;
    int neighbour[HALO_FACES];
    int points; /* of a face */
    /* Faces where they are in a field: our outer points, and the halo. */
    MPI_Datatype outer[HALO_FACES], halo[HALO_FACES];
} faces;

/* What a rank sends from its lower face is the upper halo of the one below. */
static int opposite(int face)
{
    return face ^ 1;
}

/* The points of a face at `layer` in a direction, as a part of a field. */
static MPI_Datatype face_type(int n, int direction, int layer)
{
    int whole[HALO_DIRECTIONS] = {n + 2, n + 2, n + 2}, part[HALO_DIRECTIONS] = {n, n, n};
    int start[HALO_DIRECTIONS] = {1, 1, 1};
    MPI_Datatype type;

    part[direction] = 1;
    start[direction] = layer;
    MPI_Type_create_subarray(HALO_DIRECTIONS, whole, part, start, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void faces_open(const halo_args_t *a, MPI_Comm grid)
{
    const int n = (int) a->n;

    faces.grid = grid;
    faces.points = n * n;
    for (int d = 0; d < HALO_DIRECTIONS; d++) {
        MPI_Cart_shift(grid, d, 1, &faces.neighbour[2 * d], &faces.neighbour[2 * d + 1]);
        faces.halo[2 * d] = face_type(n, d, 0);
        faces.outer[2 * d] = face_type(n, d, 1);
        faces.outer[2 * d + 1] = face_type(n, d, n);
        faces.halo[2 * d + 1] = face_type(n, d, n + 1);
    }
}

static void faces_close(void)
{
    for (int f = 0; f < HALO_FACES; f++) {
        MPI_Type_free(&faces.outer[f]);
        MPI_Type_free(&faces.halo[f]);
    }
}

static bool always(void)
{
    return true;
}

static void nothing_to_open(const halo_args_t *a)
{
    (void) a;
}

static void nothing_to_close(void)
{
}

/* ---- isend: messages straight from and to the field, by datatypes ------------------------------------------------ */

static void isend_exchange(const halo_args_t *a)
{
    double *field = a->field[a->in];
    MPI_Request requests[REQUESTS];

    halo_wait();
    for (int f = 0; f < HALO_FACES; f++) {
        MPI_Irecv(field, 1, faces.halo[f], faces.neighbour[f], opposite(f), faces.grid, &requests[f]);
    }
    for (int f = 0; f < HALO_FACES; f++) {
        MPI_Isend(field, 1, faces.outer[f], faces.neighbour[f], f, faces.grid, &requests[HALO_FACES + f]);
    }
    MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);
}

/* ---- packed: our kernels pack and unpack ------------------------------------------------------------------------- */

static void packed_exchange(const halo_args_t *a)
{
    MPI_Request requests[REQUESTS];

    halo_launch(HALO_PACK, a);
    halo_wait(); /* also until the kernel before it has unpacked what is received into */
    for (int f = 0; f < HALO_FACES; f++) {
        MPI_Irecv(a->receive[f], faces.points, MPI_DOUBLE, faces.neighbour[f], opposite(f), faces.grid, &requests[f]);
    }
    for (int f = 0; f < HALO_FACES; f++) {
        MPI_Isend(a->send[f], faces.points, MPI_DOUBLE, faces.neighbour[f], f, faces.grid, &requests[HALO_FACES + f]);
    }
    MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);
    halo_launch(HALO_UNPACK, a);
}

/* ---- persistent: the same messages, described once --------------------------------------------------------------- */

static MPI_Request packed_requests[REQUESTS];

static void persistent_open(const halo_args_t *a)
{
    for (int f = 0; f < HALO_FACES; f++) {
        MPI_Recv_init(a->receive[f], faces.points, MPI_DOUBLE, faces.neighbour[f], opposite(f), faces.grid,
                      &packed_requests[f]);
        MPI_Send_init(a->send[f], faces.points, MPI_DOUBLE, faces.neighbour[f], f, faces.grid,
                      &packed_requests[HALO_FACES + f]);
    }
}

static void persistent_exchange(const halo_args_t *a)
{
    halo_launch(HALO_PACK, a);
    halo_wait();
    MPI_Startall(REQUESTS, packed_requests);
    MPI_Waitall(REQUESTS, packed_requests, MPI_STATUSES_IGNORE);
    halo_launch(HALO_UNPACK, a);
}

static void persistent_close(void)
{
    for (int r = 0; r < REQUESTS; r++) {
        MPI_Request_free(&packed_requests[r]);
    }
}

/* ---- persistent_subarray: those of isend, described once for each of the two fields ------------------------------ */

static MPI_Request field_requests[2][REQUESTS];

static void persistent_subarray_open(const halo_args_t *a)
{
    for (int in = 0; in < 2; in++) {
        for (int f = 0; f < HALO_FACES; f++) {
            MPI_Recv_init(a->field[in], 1, faces.halo[f], faces.neighbour[f], opposite(f), faces.grid,
                          &field_requests[in][f]);
            MPI_Send_init(a->field[in], 1, faces.outer[f], faces.neighbour[f], f, faces.grid,
                          &field_requests[in][HALO_FACES + f]);
        }
    }
}

static void persistent_subarray_exchange(const halo_args_t *a)
{
    halo_wait();
    MPI_Startall(REQUESTS, field_requests[a->in]);
    MPI_Waitall(REQUESTS, field_requests[a->in], MPI_STATUSES_IGNORE);
}

static void persistent_subarray_close(void)
{
    for (int in = 0; in < 2; in++) {
        for (int r = 0; r < REQUESTS; r++) {
            MPI_Request_free(&field_requests[in][r]);
        }
    }
}

/* ---- neighbour: one call ----------------------------------------------------------------------------------------- */

/* MPI orders the neighbours of a grid as we do the faces: by direction, the lower one first. */
static void neighbour_exchange(const halo_args_t *a)
{
    static const int counts[HALO_FACES] = {1, 1, 1, 1, 1, 1};
    static const MPI_Aint at[HALO_FACES] = {0}; /* the types say where a face is */
    double *field = a->field[a->in];

    halo_wait();
    MPI_Neighbor_alltoallw(field, counts, at, faces.outer, field, counts, at, faces.halo, faces.grid);
}

/* ---- streams: packed, one collective of gpusym on our stream: nobody waits on the host --------------------------- */

static struct {
    bool there;
    MPI_Comm comm;
    double *send, *receive;   /* [HALO_FACES] faces: those of a rank one behind the other, in its order of sending */
    int *counts, *displs;     /* by rank, in doubles: what goes there, and as much comes */
    int sent[HALO_FACES];     /* places of our faces, */
    int received[HALO_FACES]; /* and of our halos, in faces */
} streams;

static bool streams_there(void)
{
    return streams.there;
}

static void streams_find(MPI_Comm grid)
{
    MPI_Comm_dup(grid, &streams.comm);
    streams.there = NULL != stream_handle() && stream_is_ready(streams.comm);
}

static void streams_open(const halo_args_t *a)
{
    int at = 0;

    streams.send = bench_alloc(HALO_FACES * halo_face(a) * sizeof(double));
    streams.receive = bench_alloc(HALO_FACES * halo_face(a) * sizeof(double));
    streams.counts = calloc(2 * (size_t) bench_ranks, sizeof(int));
    if (NULL == streams.counts) {
        bench_die("no host memory");
    }
    streams.displs = streams.counts + bench_ranks;
    for (int r = 0; r < bench_ranks; r++) {
        int sent = at, received = at;

        for (int f = 0; f < HALO_FACES; f++) {
            if (r == faces.neighbour[f]) {
                streams.sent[f] = sent++;
            }
            if (r == faces.neighbour[opposite(f)]) { /* it sends its face f to us */
                streams.received[opposite(f)] = received++;
            }
        }
        streams.displs[r] = at * faces.points;
        streams.counts[r] = (sent - at) * faces.points;
        at = sent;
    }
}

/* All ranks call it, also one whose faces all stay where they are. */
static void streams_exchange(const halo_args_t *a)
{
    halo_args_t here = *a;

    for (int f = 0; f < HALO_FACES; f++) {
        here.send[f] = streams.send + (size_t) streams.sent[f] * halo_face(a);
        here.receive[f] = streams.receive + (size_t) streams.received[f] * halo_face(a);
    }
    halo_launch(HALO_PACK, &here);
    gpusym_alltoallv_on_stream(streams.send, streams.counts, streams.displs, MPI_DOUBLE, streams.receive,
                               streams.counts, streams.displs, MPI_DOUBLE, streams.comm, stream_handle());
    halo_launch(HALO_UNPACK, &here);
}

static void streams_close(void)
{
    halo_wait();
    stream_check(streams.comm);
    free(streams.counts);
    bench_free(streams.receive);
    bench_free(streams.send);
}

/* ---- nccl: packed, on our stream: nobody waits on the host ------------------------------------------------------- */

static bool nccl_there(void)
{
    return bench_nccl.there;
}

/* No tags: between two ranks the first receive gets what was sent first. So receives are in the order in which the
 * other side sends. */
static void nccl_exchange(const halo_args_t *a)
{
    const size_t points = halo_face(a);

    halo_launch(HALO_PACK, a);
    bench_nccl_check("ncclGroupStart", bench_nccl.ncclGroupStart());
    for (int f = 0; f < HALO_FACES; f++) {
        const int halo = opposite(f); /* to it goes the other side's face f */

        bench_nccl_check("ncclSend", bench_nccl.ncclSend(a->send[f], points, BENCH_NCCL_FLOAT64, faces.neighbour[f],
                                                         bench_nccl.comm, bench_cu.stream));
        bench_nccl_check("ncclRecv", bench_nccl.ncclRecv(a->receive[halo], points, BENCH_NCCL_FLOAT64,
                                                         faces.neighbour[halo], bench_nccl.comm, bench_cu.stream));
    }
    bench_nccl_check("ncclGroupEnd", bench_nccl.ncclGroupEnd());
    halo_launch(HALO_UNPACK, a);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static const halo_form_t forms[] = {
    {"isend", NULL, always, nothing_to_open, nothing_to_close, isend_exchange},
    {"packed", NULL, always, nothing_to_open, nothing_to_close, packed_exchange},
    {"persistent", NULL, always, persistent_open, persistent_close, persistent_exchange},
    {"persistent_subarray", NULL, always, persistent_subarray_open, persistent_subarray_close,
     persistent_subarray_exchange},
    {"neighbour", "neighbor_alltoallw", always, nothing_to_open, nothing_to_close, neighbour_exchange},
    {"streams", "alltoallv", streams_there, streams_open, streams_close, streams_exchange},
    {"nccl", NULL, nccl_there, nothing_to_open, nothing_to_close, nccl_exchange},
};

const halo_form_t *halo_form(int number)
{
    return number < (int) (sizeof(forms) / sizeof(forms[0])) ? &forms[number] : NULL;
}

void halo_forms_open(const halo_args_t *a, MPI_Comm grid, bool with_nccl, bool with_streams)
{
    faces_open(a, grid);
    streams.comm = MPI_COMM_NULL;
    if (with_streams) {
        streams_find(grid);
    }
    bench_nccl_open(a->send[0], a->receive[0], 0, with_nccl);
}

void halo_forms_close(void)
{
    bench_nccl_close();
    if (MPI_COMM_NULL != streams.comm) {
        MPI_Comm_free(&streams.comm);
    }
    faces_close();
}
