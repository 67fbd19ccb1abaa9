/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives on streams: see gpusym.h. The arguments are checked here as MPI checks those of its own calls; all else
 * is the component's.
 */
#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/component.h"
#include "api/gpusym.h"
#include "api/group.h"
#include "api/raise.h"
#include "kernels/kernels.h"

/* What a collective has, besides a receive buffer. */
enum { HAS_OP = 1, HAS_ROOT = 2, HAS_SEND_TYPE = 4, HAS_COUNTS = 8, HAS_DISPLS = 16, HAS_SEND_COUNTS = 32 };

static const unsigned has[GPUSYM_COLL_COUNT] = {
    [GPUSYM_COLL_ALLREDUCE] = HAS_OP,
    [GPUSYM_COLL_ALLGATHER] = HAS_SEND_TYPE,
    [GPUSYM_COLL_ALLGATHERV] = HAS_SEND_TYPE | HAS_COUNTS | HAS_DISPLS,
    [GPUSYM_COLL_REDUCE_SCATTER] = HAS_OP | HAS_COUNTS,
    [GPUSYM_COLL_REDUCE_SCATTER_BLOCK] = HAS_OP,
    [GPUSYM_COLL_BCAST] = HAS_ROOT,
    [GPUSYM_COLL_REDUCE] = HAS_OP | HAS_ROOT,
    [GPUSYM_COLL_ALLTOALL] = HAS_SEND_TYPE,
    [GPUSYM_COLL_ALLTOALLV] = HAS_SEND_TYPE | HAS_SEND_COUNTS | HAS_COUNTS | HAS_DISPLS,
    [GPUSYM_COLL_GATHER] = HAS_SEND_TYPE | HAS_ROOT,
    [GPUSYM_COLL_GATHERV] = HAS_SEND_TYPE | HAS_ROOT | HAS_COUNTS | HAS_DISPLS,
    [GPUSYM_COLL_SCATTER] = HAS_SEND_TYPE | HAS_ROOT,
    [GPUSYM_COLL_SCATTERV] = HAS_SEND_TYPE | HAS_SEND_COUNTS | HAS_ROOT,
    [GPUSYM_COLL_SCAN] = HAS_OP,
    [GPUSYM_COLL_EXSCAN] = HAS_OP,
};

/* Whether so many elements of each rank have a length in bytes. */
static bool has_length(size_t count, MPI_Datatype dtype, int ranks)
{
    MPI_Aint lb, extent;

    MPI_Type_get_extent(dtype, &lb, &extent);
    return 0 == extent || count <= (size_t) PTRDIFF_MAX / (size_t) ranks / (size_t) (extent < 0 ? -extent : extent);
}

/* Negative counts have become large ones. */
static int check_count_and_type(size_t count, void *dtype, int ranks)
{
    if (count > PTRDIFF_MAX) {
        return MPI_ERR_COUNT;
    }
    if ((void *) MPI_DATATYPE_NULL == dtype) {
        return MPI_ERR_TYPE;
    }
    return count <= INT_MAX || has_length(count, dtype, ranks) ? MPI_SUCCESS : MPI_ERR_COUNT;
}

/* has_displs: they are needed. */
static int check_counts(const int *counts, const int *displs, bool has_displs, int ranks)
{
    if (NULL == counts || (NULL == displs && has_displs)) {
        return MPI_ERR_ARG;
    }
    for (int i = 0; i < ranks; i++) {
        if (counts[i] < 0) {
            return MPI_ERR_COUNT;
        }
    }
    return MPI_SUCCESS;
}

/* In place, a rank has one buffer: the root of a scatter that of what is sent, all others that of what is received.
 * Where a collective has a root, no other rank may be in place. */
static int check_in_place(const gpusym_stream_call_t *c, bool at_root, bool scatter)
{
    if (MPI_IN_PLACE == c->rbuf && !(scatter && at_root)) {
        return MPI_ERR_BUFFER;
    }
    if (MPI_IN_PLACE == c->sbuf && (scatter || (!at_root && 0 != (has[c->coll] & HAS_ROOT)))) {
        return MPI_ERR_BUFFER;
    }
    return MPI_SUCCESS;
}

/* What counts on this rank: what only the root has is not looked at elsewhere, what is in place nowhere. */
typedef struct {
    int ranks;
    bool at_root, scatter, sends, receives;
} sides_t;

/* Returns MPI_SUCCESS or an error class, here and in what follows. */
static int find_sides(MPI_Comm comm, const gpusym_stream_call_t *c, sides_t *s)
{
    const bool rooted = 0 != (has[c->coll] & HAS_ROOT);
    const bool gather = GPUSYM_COLL_GATHER == c->coll || GPUSYM_COLL_GATHERV == c->coll;
    int rank;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &s->ranks);
    s->scatter = GPUSYM_COLL_SCATTER == c->coll || GPUSYM_COLL_SCATTERV == c->coll;
    s->at_root = rooted && c->root == rank;
    s->sends = (s->at_root || !s->scatter) && MPI_IN_PLACE != c->sbuf;
    s->receives = (s->at_root || !gather) && !(s->at_root && MPI_IN_PLACE == c->rbuf);
    return rooted && (c->root < 0 || c->root >= s->ranks) ? MPI_ERR_ROOT : MPI_SUCCESS;
}

static int check_arguments(MPI_Comm comm, const gpusym_stream_call_t *c)
{
    sides_t s;
    int rc = find_sides(comm, c, &s);

    if (MPI_SUCCESS == rc && 0 != (has[c->coll] & HAS_OP) && (void *) MPI_OP_NULL == c->op) {
        rc = MPI_ERR_OP;
    }
    if (MPI_SUCCESS == rc && s.sends && 0 != (has[c->coll] & HAS_SEND_TYPE)) {
        rc = check_count_and_type(c->scount, c->sdtype, s.ranks);
    }
    if (MPI_SUCCESS == rc && s.sends && 0 != (has[c->coll] & HAS_SEND_COUNTS)) {
        rc = check_counts(c->scounts, c->sdispls, true, s.ranks);
    }
    if (MPI_SUCCESS == rc && s.receives) {
        rc = check_count_and_type(c->rcount, c->rdtype, s.ranks);
    }
    if (MPI_SUCCESS == rc && s.receives && 0 != (has[c->coll] & HAS_COUNTS)) {
        rc = check_counts(c->rcounts, c->rdispls, 0 != (has[c->coll] & HAS_DISPLS), s.ranks);
    }
    return MPI_SUCCESS == rc ? check_in_place(c, s.at_root, s.scatter) : rc;
}

static int check_comm(MPI_Comm comm)
{
    int inter;

    if (!api_mpi_is_up()) {
        return MPI_ERR_OTHER;
    }
    if (MPI_COMM_NULL == comm) {
        return MPI_ERR_COMM;
    }
    MPI_Comm_test_inter(comm, &inter);
    return inter ? MPI_ERR_COMM : MPI_SUCCESS;
}

/* The component's functions, for a call whose arguments have been checked with that result. NULL: *rc has become the
 * error to return. */
static const gpusym_streams_t *need_component(MPI_Comm comm, int *rc)
{
    const gpusym_streams_t *streams = NULL;
    const char *why = NULL;

    if (MPI_SUCCESS == *rc) {
        streams = api_component(&why);
        *rc = NULL == streams ? MPI_ERR_UNSUPPORTED_OPERATION : MPI_SUCCESS;
    }
    if (MPI_SUCCESS != *rc) {
        *rc = api_raise(comm, *rc, why);
    }
    return streams;
}

/* ---- the functions ----------------------------------------------------------------------------------------------- */

int gpusym_stream_prepare(MPI_Comm comm, MPI_Info info)
{
    int rc = check_comm(comm);
    const gpusym_streams_t *streams = need_component(comm, &rc);

    (void) info;
    return NULL == streams ? rc : api_result(comm, streams, streams->prepare(comm));
}

int gpusym_stream_error(MPI_Comm comm, int *error, int *rank)
{
    const gpusym_streams_t *streams;
    int rc = check_comm(comm);

    if (MPI_SUCCESS == rc && (NULL == error || NULL == rank)) {
        rc = MPI_ERR_ARG;
    }
    streams = need_component(comm, &rc);
    return NULL == streams ? rc : api_result(comm, streams, streams->failed(comm, error, rank));
}

int gpusym_mem_register(MPI_Comm comm, void *base, MPI_Aint bytes, int *handle)
{
    const gpusym_streams_t *streams;
    int rc = check_comm(comm);

    if (MPI_SUCCESS == rc && (bytes < 0 || (NULL == base && bytes > 0) || NULL == handle)) {
        rc = MPI_ERR_ARG;
    }
    streams = need_component(comm, &rc);
    return NULL == streams ? rc
                           : api_result(comm, streams, streams->register_memory(comm, base, (size_t) bytes, handle));
}

int gpusym_mem_deregister(MPI_Comm comm, int handle)
{
    int rc = check_comm(comm);
    const gpusym_streams_t *streams = need_component(comm, &rc);

    return NULL == streams ? rc : api_result(comm, streams, streams->deregister_memory(comm, handle));
}

/* ---- persistent requests ---- */

/* The component's functions, for a request that is not null. NULL: *rc is the error. */
static const gpusym_streams_t *need_request(const MPI_Request *request, int *rc)
{
    if (api_mpi_is_up() && (NULL == request || MPI_REQUEST_NULL == *request)) {
        *rc = api_raise(MPI_COMM_NULL, MPI_ERR_REQUEST, "gpusym: there is no request: it is null");
        return NULL;
    }
    if (api_group_is_open()) {
        *rc =
            api_group_result(api_raise(MPI_COMM_NULL, MPI_ERR_UNSUPPORTED_OPERATION,
                                       "gpusym: persistent requests are not started, nor waited for, in a group: do it "
                                       "before gpusym_group_start or behind gpusym_group_end"));
        return NULL;
    }
    *rc = api_mpi_is_up() ? MPI_SUCCESS : MPI_ERR_OTHER;
    return need_component(MPI_COMM_NULL, rc);
}

int gpusym_start_on_stream(MPI_Request *request, void *stream)
{
    int rc;
    const gpusym_streams_t *streams = need_request(request, &rc);
    void *comm = MPI_COMM_NULL;

    if (NULL == streams) {
        return rc;
    }
    rc = streams->start(*request, stream, &comm);
    return api_result(comm, streams, rc);
}

/* As of an inactive request. */
static void empty_status(MPI_Status *status)
{
    status->MPI_SOURCE = MPI_ANY_SOURCE;
    status->MPI_TAG = MPI_ANY_TAG;
    status->MPI_ERROR = MPI_SUCCESS;
    MPI_Status_set_elements(status, MPI_BYTE, 0);
    MPI_Status_set_cancelled(status, 0);
}

int gpusym_wait_on_stream(MPI_Request *request, MPI_Status *status, void *stream)
{
    int rc;
    const gpusym_streams_t *streams = need_request(request, &rc);
    void *comm = MPI_COMM_NULL;

    if (NULL == streams) {
        return rc;
    }
    rc = streams->wait(*request, stream, &comm);
    if (MPI_SUCCESS == rc && MPI_STATUS_IGNORE != status) {
        empty_status(status);
    }
    return api_result(comm, streams, rc);
}

/* ---- collectives ---- */

int gpusym_group_start(void)
{
    if (!api_mpi_is_up()) {
        return MPI_ERR_OTHER;
    }
    api_group_start();
    return MPI_SUCCESS;
}

int gpusym_group_end(void)
{
    return api_group_is_open()
               ? api_group_end()
               : api_raise(MPI_COMM_NULL, MPI_ERR_OTHER,
                           "gpusym_group_end: this thread has no open group: call gpusym_group_start before");
}

/* Notes a call for the end of the group. */
static int note(MPI_Comm comm, const gpusym_stream_call_t *call, void *stream)
{
    gpusym_stream_call_t c = *call;
    sides_t s;
    int rc = find_sides(comm, call, &s);

    if (!s.sends) {
        c.scounts = c.sdispls = NULL;
    }
    if (!s.receives) {
        c.rcounts = c.rdispls = NULL;
    }
    rc = MPI_SUCCESS == rc ? api_group_note(comm, &c, stream, s.ranks) : rc;
    return MPI_SUCCESS == rc ? rc : api_raise(comm, rc, NULL);
}

static int queue(MPI_Comm comm, const gpusym_stream_call_t *call, void *stream)
{
    const gpusym_streams_t *streams;
    int rc = check_comm(comm);

    if (MPI_SUCCESS == rc) {
        rc = check_arguments(comm, call);
    }
    streams = need_component(comm, &rc);
    if (NULL != streams) {
        rc = api_group_is_open() ? note(comm, call, stream)
                                 : api_result(comm, streams, streams->call(comm, call, stream));
    }
    return api_group_result(rc);
}

/* ---- arrays of large counts, which Open MPI's collectives take as arrays of int ---- */

typedef struct {
    const MPI_Count *scounts, *rcounts;
    const MPI_Aint *sdispls, *rdispls;
} wide_t;

/* The first number that an int does not hold. */
typedef struct {
    const char *what; /* NULL: there is none */
    int rank;
    long long number;
} misfit_t;

static int narrow(long long number, const char *what, int rank, misfit_t *misfit)
{
    if ((number < INT_MIN || number > INT_MAX) && NULL == misfit->what) {
        *misfit = (misfit_t){what, rank, number};
    }
    return (int) number;
}

/* The same numbers at *at, which is then behind them; NULL of NULL. */
static const int *narrow_counts(const MPI_Count *counts, const char *what, int ranks, int **at, misfit_t *misfit)
{
    const int *to = NULL != counts ? *at : NULL;

    for (int i = 0; i < ranks && NULL != counts; i++) { /* what is negative, check_counts() refuses */
        *(*at)++ = narrow(counts[i] < 0 ? -1 : counts[i], what, i, misfit);
    }
    return to;
}

static const int *narrow_displs(const MPI_Aint *displs, const char *what, int ranks, int **at, misfit_t *misfit)
{
    const int *to = NULL != displs ? *at : NULL;

    for (int i = 0; i < ranks && NULL != displs; i++) {
        *(*at)++ = narrow(displs[i], what, i, misfit);
    }
    return to;
}

static int raise_misfit(MPI_Comm comm, const misfit_t *misfit)
{
    char text[MPI_MAX_ERROR_STRING];

    snprintf(text, sizeof(text),
             "gpusym: the %s for rank %d is %lld, which an int does not hold: use a larger datatype, of "
             "MPI_Type_contiguous",
             misfit->what, misfit->rank, misfit->number);
    return api_raise(comm, MPI_ERR_COUNT, text);
}

/* Fills in those arrays of a call that count on this rank, in memory that the caller frees. */
static int narrow_arrays(MPI_Comm comm, gpusym_stream_call_t *c, const wide_t *w, int **memory)
{
    sides_t s;
    misfit_t misfit = {NULL, 0, 0};
    int rc = find_sides(comm, c, &s), *at;

    if (MPI_SUCCESS != rc) {
        return api_raise(comm, rc, NULL);
    }
    *memory = at = malloc(4 * (size_t) s.ranks * sizeof(*at));
    if (NULL == at) {
        return api_raise(comm, MPI_ERR_NO_MEM, NULL);
    }
    if (s.sends) {
        c->scounts = narrow_counts(w->scounts, "send count", s.ranks, &at, &misfit);
        c->sdispls = narrow_displs(w->sdispls, "send displacement", s.ranks, &at, &misfit);
    }
    if (s.receives) {
        c->rcounts = narrow_counts(w->rcounts, "receive count", s.ranks, &at, &misfit);
        c->rdispls = narrow_displs(w->rdispls, "receive displacement", s.ranks, &at, &misfit);
    }
    return NULL == misfit.what ? MPI_SUCCESS : raise_misfit(comm, &misfit);
}

static int queue_wide(MPI_Comm comm, gpusym_stream_call_t *call, const wide_t *w, void *stream)
{
    int rc = check_comm(comm), *memory = NULL;

    rc = MPI_SUCCESS == rc ? narrow_arrays(comm, call, w, &memory) : api_raise(comm, rc, NULL);
    rc = MPI_SUCCESS == rc ? queue(comm, call, stream) : rc;
    free(memory);
    return api_group_result(rc);
}

/* ---- each in both forms ---- */

/* A call of collective `id`, whose other arguments are those named. */
#define QUEUE(id, ...)                                                              \
    do {                                                                            \
        const gpusym_stream_call_t call_ = {.coll = GPUSYM_COLL_##id, __VA_ARGS__}; \
        return queue(comm, &call_, stream);                                         \
    } while (0)
#define OF_ONE_TYPE .sbuf = sendbuf, .rbuf = recvbuf, .rcount = (size_t) count, .rdtype = datatype
#define OF_TWO_TYPES                                                                                                  \
    .sbuf = sendbuf, .scount = (size_t) sendcount, .sdtype = sendtype, .rbuf = recvbuf, .rcount = (size_t) recvcount, \
    .rdtype = recvtype

int gpusym_allreduce_on_stream_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                                 MPI_Comm comm, void *stream)
{
    QUEUE(ALLREDUCE, OF_ONE_TYPE, .op = op);
}

int gpusym_allreduce_on_stream(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                               MPI_Comm comm, void *stream)
{
    return gpusym_allreduce_on_stream_c(sendbuf, recvbuf, count, datatype, op, comm, stream);
}

int gpusym_allgather_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                                 MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, void *stream)
{
    QUEUE(ALLGATHER, OF_TWO_TYPES);
}

int gpusym_allgather_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                               MPI_Datatype recvtype, MPI_Comm comm, void *stream)
{
    return gpusym_allgather_on_stream_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, stream);
}

int gpusym_allgatherv_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                                const int recvcounts[], const int displs[], MPI_Datatype recvtype, MPI_Comm comm,
                                void *stream)
{
    QUEUE(ALLGATHERV, .sbuf = sendbuf, .scount = (size_t) sendcount, .sdtype = sendtype, .rbuf = recvbuf,
          .rcounts = recvcounts, .rdispls = displs, .rdtype = recvtype);
}

int gpusym_allgatherv_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                                  const MPI_Count recvcounts[], const MPI_Aint displs[], MPI_Datatype recvtype,
                                  MPI_Comm comm, void *stream)
{
    const wide_t wide = {.rcounts = recvcounts, .rdispls = displs};
    gpusym_stream_call_t call = {.coll = GPUSYM_COLL_ALLGATHERV,
                                 .sbuf = sendbuf,
                                 .scount = (size_t) sendcount,
                                 .sdtype = sendtype,
                                 .rbuf = recvbuf,
                                 .rdtype = recvtype};

    return queue_wide(comm, &call, &wide, stream);
}

int gpusym_reduce_scatter_on_stream(const void *sendbuf, void *recvbuf, const int recvcounts[], MPI_Datatype datatype,
                                    MPI_Op op, MPI_Comm comm, void *stream)
{
    QUEUE(REDUCE_SCATTER, .sbuf = sendbuf, .rbuf = recvbuf, .rcounts = recvcounts, .rdtype = datatype, .op = op);
}

int gpusym_reduce_scatter_on_stream_c(const void *sendbuf, void *recvbuf, const MPI_Count recvcounts[],
                                      MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, void *stream)
{
    const wide_t wide = {.rcounts = recvcounts};
    gpusym_stream_call_t call = {
        .coll = GPUSYM_COLL_REDUCE_SCATTER, .sbuf = sendbuf, .rbuf = recvbuf, .rdtype = datatype, .op = op};

    return queue_wide(comm, &call, &wide, stream);
}

int gpusym_reduce_scatter_block_on_stream_c(const void *sendbuf, void *recvbuf, MPI_Count recvcount,
                                            MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, void *stream)
{
    QUEUE(REDUCE_SCATTER_BLOCK, .sbuf = sendbuf, .rbuf = recvbuf, .rcount = (size_t) recvcount, .rdtype = datatype,
          .op = op);
}

int gpusym_reduce_scatter_block_on_stream(const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype datatype,
                                          MPI_Op op, MPI_Comm comm, void *stream)
{
    return gpusym_reduce_scatter_block_on_stream_c(sendbuf, recvbuf, recvcount, datatype, op, comm, stream);
}

int gpusym_bcast_on_stream_c(void *buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm,
                             void *stream)
{
    QUEUE(BCAST, .rbuf = buffer, .rcount = (size_t) count, .rdtype = datatype, .root = root);
}

int gpusym_bcast_on_stream(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm, void *stream)
{
    return gpusym_bcast_on_stream_c(buffer, count, datatype, root, comm, stream);
}

int gpusym_reduce_on_stream_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                              int root, MPI_Comm comm, void *stream)
{
    QUEUE(REDUCE, OF_ONE_TYPE, .op = op, .root = root);
}

int gpusym_reduce_on_stream(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root,
                            MPI_Comm comm, void *stream)
{
    return gpusym_reduce_on_stream_c(sendbuf, recvbuf, count, datatype, op, root, comm, stream);
}

int gpusym_alltoall_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                                MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, void *stream)
{
    QUEUE(ALLTOALL, OF_TWO_TYPES);
}

int gpusym_alltoall_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                              MPI_Datatype recvtype, MPI_Comm comm, void *stream)
{
    return gpusym_alltoall_on_stream_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, stream);
}

int gpusym_alltoallv_on_stream(const void *sendbuf, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype,
                               void *recvbuf, const int recvcounts[], const int rdispls[], MPI_Datatype recvtype,
                               MPI_Comm comm, void *stream)
{
    QUEUE(ALLTOALLV, .sbuf = sendbuf, .scounts = sendcounts, .sdispls = sdispls, .sdtype = sendtype, .rbuf = recvbuf,
          .rcounts = recvcounts, .rdispls = rdispls, .rdtype = recvtype);
}

int gpusym_alltoallv_on_stream_c(const void *sendbuf, const MPI_Count sendcounts[], const MPI_Aint sdispls[],
                                 MPI_Datatype sendtype, void *recvbuf, const MPI_Count recvcounts[],
                                 const MPI_Aint rdispls[], MPI_Datatype recvtype, MPI_Comm comm, void *stream)
{
    const wide_t wide = {.scounts = sendcounts, .sdispls = sdispls, .rcounts = recvcounts, .rdispls = rdispls};
    gpusym_stream_call_t call = {
        .coll = GPUSYM_COLL_ALLTOALLV, .sbuf = sendbuf, .sdtype = sendtype, .rbuf = recvbuf, .rdtype = recvtype};

    return queue_wide(comm, &call, &wide, stream);
}

int gpusym_gatherv_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                             const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm,
                             void *stream)
{
    QUEUE(GATHERV, .sbuf = sendbuf, .scount = (size_t) sendcount, .sdtype = sendtype, .rbuf = recvbuf,
          .rcounts = recvcounts, .rdispls = displs, .rdtype = recvtype, .root = root);
}

int gpusym_gatherv_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                               const MPI_Count recvcounts[], const MPI_Aint displs[], MPI_Datatype recvtype, int root,
                               MPI_Comm comm, void *stream)
{
    const wide_t wide = {.rcounts = recvcounts, .rdispls = displs};
    gpusym_stream_call_t call = {.coll = GPUSYM_COLL_GATHERV,
                                 .sbuf = sendbuf,
                                 .scount = (size_t) sendcount,
                                 .sdtype = sendtype,
                                 .rbuf = recvbuf,
                                 .rdtype = recvtype,
                                 .root = root};

    return queue_wide(comm, &call, &wide, stream);
}

int gpusym_scatterv_on_stream(const void *sendbuf, const int sendcounts[], const int displs[], MPI_Datatype sendtype,
                              void *recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                              void *stream)
{
    QUEUE(SCATTERV, .sbuf = sendbuf, .scounts = sendcounts, .sdispls = displs, .sdtype = sendtype, .rbuf = recvbuf,
          .rcount = (size_t) recvcount, .rdtype = recvtype, .root = root);
}

int gpusym_scatterv_on_stream_c(const void *sendbuf, const MPI_Count sendcounts[], const MPI_Aint displs[],
                                MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
                                int root, MPI_Comm comm, void *stream)
{
    const wide_t wide = {.scounts = sendcounts, .sdispls = displs};
    gpusym_stream_call_t call = {.coll = GPUSYM_COLL_SCATTERV,
                                 .sbuf = sendbuf,
                                 .sdtype = sendtype,
                                 .rbuf = recvbuf,
                                 .rcount = (size_t) recvcount,
                                 .rdtype = recvtype,
                                 .root = root};

    return queue_wide(comm, &call, &wide, stream);
}

int gpusym_gather_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                              MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, void *stream)
{
    QUEUE(GATHER, OF_TWO_TYPES, .root = root);
}

int gpusym_gather_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                            MPI_Datatype recvtype, int root, MPI_Comm comm, void *stream)
{
    return gpusym_gather_on_stream_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, stream);
}

int gpusym_scatter_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                               MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, void *stream)
{
    QUEUE(SCATTER, OF_TWO_TYPES, .root = root);
}

int gpusym_scatter_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                             MPI_Datatype recvtype, int root, MPI_Comm comm, void *stream)
{
    return gpusym_scatter_on_stream_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, stream);
}

int gpusym_scan_on_stream_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                            MPI_Comm comm, void *stream)
{
    QUEUE(SCAN, OF_ONE_TYPE, .op = op);
}

int gpusym_scan_on_stream(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                          MPI_Comm comm, void *stream)
{
    return gpusym_scan_on_stream_c(sendbuf, recvbuf, count, datatype, op, comm, stream);
}

int gpusym_exscan_on_stream_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                              MPI_Comm comm, void *stream)
{
    QUEUE(EXSCAN, OF_ONE_TYPE, .op = op);
}

int gpusym_exscan_on_stream(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                            MPI_Comm comm, void *stream)
{
    return gpusym_exscan_on_stream_c(sendbuf, recvbuf, count, datatype, op, comm, stream);
}
