/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Receives into host memory from processes that may send RTS messages.
 *
 * The PML calls req_complete_cb before it completes a request, and does not complete one whose callback returns 1
 * (ompi_request_complete in ompi/request/request.h): so an RTS is held until its data are there. It calls it only
 * for requests that MPI_Request_free has not freed, hence the function in their req_free. Both belong to the object,
 * which the PML uses again, so both are put back.
 */
#include "mca/pml/gpusym/host_recv.h"

#include <stdlib.h>

#include "ompi/mca/pml/base/pml_base_request.h"

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/sanitizers.h"
#include "mca/pml/gpusym/fetch.h"
#include "mca/pml/gpusym/report.h"
#include "mca/pml/gpusym/request.h"

/* The PML's own functions in its receive requests: the same in all. */
static ompi_request_free_fn_t pml_free;
static ompi_request_start_fn_t pml_start;

/* ---- RTS messages ---- */

static size_t first_length(const gpusym_layout_t *l)
{
    return l->bytes < GPUSYM_RTS ? l->bytes : GPUSYM_RTS;
}

pml_gpusym_first_t pml_gpusym_gather_first(const void *buf, size_t count, struct ompi_datatype_t *dtype)
{
    pml_gpusym_first_t first = 0;
    gpusym_layout_t l;
    gpusym_layout_find(count, dtype, &l);
    if (0 != l.bytes) {
        (void) gpusym_layout_gather(&l, buf, &first, first_length(&l));
    }
    return first;
}

/* Makes the request that fetches for a receive into host memory, of which an RTS has arrived, in place of the
 * first bytes. NULL: no memory. */
static pml_gpusym_request_t *fetch_to_host(void *buf, size_t count, struct ompi_datatype_t *dtype,
                                           struct ompi_communicator_t *comm, pml_gpusym_first_t first,
                                           const ompi_status_public_t *status, pml_gpusym_peer_t *peer,
                                           ompi_request_t *outer)
{
    uint8_t rts[GPUSYM_RTS];
    pml_gpusym_request_t *r =
        pml_gpusym_request_get(buf, count, dtype, status->MPI_SOURCE, status->MPI_TAG, comm, false, NULL);

    if (NULL == r) {
        return NULL;
    }
    const size_t length = first_length(&r->layout);
    if (0 != length) {
        (void) gpusym_layout_gather(&r->layout, buf, rts, length);
        (void) gpusym_layout_scatter(&r->layout, buf, &first, length);
    }
    r->base.req_type = MCA_PML_REQUEST_RECV;
    r->on_host = true;
    r->peer = peer;
    r->outer = outer;
    pml_gpusym_request_begin(r);
    pml_gpusym_fetch(r, status, rts, (unsigned) length);
    return r;
}

int pml_gpusym_host_received(void *buf, size_t count, struct ompi_datatype_t *dtype, struct ompi_communicator_t *comm,
                             pml_gpusym_first_t first, ompi_status_public_t *status, int rv)
{
    pml_gpusym_peer_t *peer;

    if (!pml_gpusym_is_rts(comm, status, &peer)) {
        return rv;
    }
    pml_gpusym_request_t *r = fetch_to_host(buf, count, dtype, comm, first, status, peer, NULL);
    return NULL == r ? MPI_ERR_NO_MEM : pml_gpusym_request_wait(r, status);
}

/* Whether the request is held: its message is an RTS. */
static bool hold_rts(ompi_request_t *q, pml_gpusym_first_t first)
{
    const mca_pml_base_request_t *b = (const mca_pml_base_request_t *) q;
    pml_gpusym_peer_t *peer;

    if (!pml_gpusym_is_rts(b->req_comm, &q->req_status, &peer)) {
        return false;
    }
    if (NULL ==
        fetch_to_host(b->req_addr, b->req_count, b->req_datatype, b->req_comm, first, &q->req_status, peer, q)) {
        q->req_status.MPI_ERROR = MPI_ERR_NO_MEM;
        return false;
    }
    return true;
}

/* ---- freed before they are complete ---- */

static bool step_orphan(pml_gpusym_request_t *r)
{
    if (!REQUEST_COMPLETE(r->inner)) {
        return true;
    }
    pml_gpusym_request_free_inner(r);
    pml_gpusym_request_put(r);
    return false;
}

/* MPI_Request_free of a request that is active: it ends as any other, and is freed then. */
static int free_later(ompi_request_t **request)
{
    ompi_request_t *q = *request;
    struct ompi_communicator_t *comm = q->req_mpi_object.comm;
    pml_gpusym_request_t *r = pml_gpusym_request_get(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, false, NULL);

    if (NULL == r) {
        return MPI_ERR_NO_MEM;
    }
    r->inner = q;
    pml_gpusym_request_enlist(r, step_orphan);
    *request = MPI_REQUEST_NULL;
    return OMPI_SUCCESS;
}

/* ---- nonblocking ---- */

/* The request is about to complete: from now on MPI_Request_free is the PML's. */
static int release(ompi_request_t *q)
{
    q->req_free = __atomic_load_n(&pml_free, __ATOMIC_RELAXED);
    GPUSYM_RELEASE(q);
    return 0;
}

/* The data of the callback are the buffer's first bytes. */
_Static_assert(sizeof(void *) >= sizeof(pml_gpusym_first_t), "a pointer has room for them");

static void keep_first(ompi_request_t *q, pml_gpusym_first_t first)
{
    q->req_complete_cb_data = (void *) (uintptr_t) first;
}

static pml_gpusym_first_t kept_first(const ompi_request_t *q)
{
    return (uintptr_t) q->req_complete_cb_data;
}

static int received(ompi_request_t *q)
{
    if (OPAL_UNLIKELY(GPUSYM_RTS == q->req_status._ucount)) {
        q->req_complete_cb = release; /* when the data are there */
        if (hold_rts(q, kept_first(q))) {
            return 1;
        }
        q->req_complete_cb = NULL;
    }
    return release(q);
}

static inline int post(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                       struct ompi_communicator_t *comm, struct ompi_request_t **request, pml_gpusym_first_t first)
{
    const int rv = pml_gpusym_host.pml_irecv_init(buf, count, dtype, src, tag, comm, request);
    if (OPAL_UNLIKELY(OMPI_SUCCESS != rv)) {
        return rv;
    }
    /* The callback is there before the request can complete. */
    ompi_request_t *q = *request;
    GPUSYM_ACQUIRE(q); /* it may have been another thread's */
    __atomic_store_n(&pml_free, q->req_free, __ATOMIC_RELAXED);
    q->req_free = free_later;
    q->req_persistent = false;
    q->req_complete_cb = received;
    keep_first(q, first);
    return pml_gpusym_host.pml_start(1, request);
}

/* A function of its own: the other way needs no more registers than it has. */
static __attribute__((noinline)) int irecv_other(void *buf, size_t count, struct ompi_datatype_t *dtype, int src,
                                                 int tag, struct ompi_communicator_t *comm,
                                                 struct ompi_request_t **request)
{
    return post(buf, count, dtype, src, tag, comm, request, pml_gpusym_read_first(buf, count, dtype));
}

int pml_gpusym_host_irecv(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                          struct ompi_communicator_t *comm, struct ompi_request_t **request)
{
    return pml_gpusym_first_is_load(count, dtype)
               ? post(buf, count, dtype, src, tag, comm, request, pml_gpusym_load_first(buf, dtype))
               : irecv_other(buf, count, dtype, src, tag, comm, request);
}

/* ---- persistent ---- */

/* A callback that someone else has put into a request before it is started (one-sided communication does). */
typedef struct {
    ompi_request_complete_fn_t call;
    void *data;
    pml_gpusym_first_t first;
} chained_t;

/* call: NULL, or the other callback. */
static int settle_persistent(ompi_request_t *q, pml_gpusym_first_t first, ompi_request_complete_fn_t call)
{
    if (GPUSYM_RTS == q->req_status._ucount) {
        q->req_complete_cb = call; /* called when the data are there */
        if (hold_rts(q, first)) {
            return 1;
        }
        q->req_complete_cb = NULL;
    }
    return NULL != call ? call(q) : 0;
}

static int received_persistent(ompi_request_t *q)
{
    return settle_persistent(q, kept_first(q), NULL);
}

static int free_persistent(ompi_request_t **request);

static int received_chained(ompi_request_t *q)
{
    chained_t *at = q->req_complete_cb_data;
    const chained_t chained = *at;

    q->req_free = free_persistent;
    q->req_complete_cb_data = chained.data;
    free(at);
    return settle_persistent(q, chained.first, chained.call);
}

/* osc/pt2pt takes its callback out of a receive that it cancels. */
static int free_chained(ompi_request_t **request)
{
    if (NULL == (*request)->req_complete_cb) {
        free((*request)->req_complete_cb_data);
        (*request)->req_complete_cb_data = NULL;
    }
    return free_persistent(request);
}

static int start_persistent(size_t n, ompi_request_t **requests)
{
    int rv = OMPI_SUCCESS;
    for (size_t i = 0; OMPI_SUCCESS == rv && i < n; i++) {
        ompi_request_t *q = requests[i];
        const mca_pml_base_request_t *b = (const mca_pml_base_request_t *) q;
        const pml_gpusym_first_t first = pml_gpusym_read_first(b->req_addr, b->req_count, b->req_datatype);
        if (NULL != q->req_complete_cb) {
            chained_t *chained = malloc(sizeof *chained);
            if (NULL == chained) {
                return MPI_ERR_NO_MEM;
            }
            *chained = (chained_t){q->req_complete_cb, q->req_complete_cb_data, first};
            q->req_complete_cb = received_chained;
            q->req_complete_cb_data = chained;
            q->req_free = free_chained;
        } else {
            q->req_complete_cb = received_persistent;
            keep_first(q, first);
        }
        rv = pml_start(1, &requests[i]);
    }
    return rv;
}

static int free_persistent(ompi_request_t **request)
{
    ompi_request_t *q = *request;

    q->req_start = pml_start;
    q->req_free = pml_free;
    return OMPI_REQUEST_ACTIVE == q->req_state && !REQUEST_COMPLETE(q) ? free_later(request) : pml_free(request);
}

int pml_gpusym_host_irecv_init(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                               struct ompi_communicator_t *comm, struct ompi_request_t **request)
{
    const int rv = pml_gpusym_host.pml_irecv_init(buf, count, dtype, src, tag, comm, request);
    if (OMPI_SUCCESS == rv) {
        GPUSYM_ACQUIRE(*request);
        __atomic_store_n(&pml_free, (*request)->req_free, __ATOMIC_RELAXED);
        __atomic_store_n(&pml_start, (*request)->req_start, __ATOMIC_RELAXED);
        (*request)->req_free = free_persistent;
        (*request)->req_start = start_persistent;
    }
    return rv;
}

bool pml_gpusym_host_is_persistent(const struct ompi_request_t *request)
{
    return start_persistent == request->req_start;
}
