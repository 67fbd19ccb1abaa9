/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Receives into device memory.
 *
 * The PML receives into a bounce buffer, packed. When it has, the data are copied to the GPU.
 */
#include "mca/pml/gpusym/recv.h"

#include "mca/pml/gpusym/counters.h"
#include "mca/pml/gpusym/fetch.h"
#include "mca/common/gpusym/gpus.h"
#include "mca/pml/gpusym/pack.h"
#include "mca/pml/gpusym/report.h"
#include "mca/pml/gpusym/request.h"
#include "tuning/copy.h"

typedef pml_gpusym_request_t request_t;

/* Longer messages of host memory should come by RTS: the sender learns that they go to GPU memory. */
static void tell_sender(const request_t *r, const ompi_status_public_t *status)
{
    pml_gpusym_peer_t *peer = pml_gpusym_peer(r->base.req_comm, status->MPI_SOURCE);
    if (NULL != peer && status->_ucount > GPUSYM_FROM_HOST_ABOVE) {
        gpusym_send_descs_tell_gpu(peer->pages, true);
    }
}

/* Copies what has been received to the GPU. Returns an MPI error code. */
static int unpack(request_t *r, const ompi_status_public_t *status)
{
    const mca_pml_base_request_t *b = &r->base;
    const bool cut = status->_ucount > r->layout.bytes;
    const size_t bytes = cut ? r->layout.bytes : status->_ucount;

    r->bounce.used = bytes > r->bounce.used ? bytes : r->bounce.used;
    if (bytes > 0) {
        gpusym_p2p_gpu_review(r->gpu);
    }
    if (bytes > 0 && GPUSYM_SUCCESS != pml_gpusym_unpack(r->gpu, &r->layout, b->req_addr, r->bounce.p, bytes)) {
        return pml_gpusym_report_gpu(b->req_comm, status->MPI_SOURCE, status->MPI_TAG);
    }
    pml_gpusym_count(PML_GPUSYM_RECEIVED_STAGED);
    tell_sender(r, status);
    return cut ? MPI_ERR_TRUNCATE : status->MPI_ERROR;
}

/* The PML's request has ended, or is about to. */
static bool step_receive(request_t *r)
{
    ompi_status_public_t *status = &pml_gpusym_mpi_request(r)->req_status;

    if (!REQUEST_COMPLETE(r->inner)) {
        return true;
    }
    const int given = status->MPI_ERROR;
    *status = r->inner->req_status;
    if (status->_cancelled && (GPUSYM_ERR_PROC_FAILED == given || GPUSYM_ERR_REVOKED == given)) { /* by Open MPI */
        status->MPI_ERROR = given;
        status->_cancelled = 0;
    } else if (!status->_cancelled && (MPI_SUCCESS == status->MPI_ERROR || MPI_ERR_TRUNCATE == status->MPI_ERROR)) {
        status->MPI_ERROR = unpack(r, status);
    }
    pml_gpusym_request_complete(r);
    return false;
}

/* Called by the PML, at the completion of its request. The work is left to progress; an RTS is claimed at once, so
 * that probes find the next one. */
static int inner_complete(ompi_request_t *inner)
{
    request_t *r = inner->req_complete_cb_data;

    __atomic_fetch_sub(&pml_gpusym_awaited, 1, __ATOMIC_RELAXED);
    if (pml_gpusym_is_rts(r->base.req_comm, &inner->req_status, &r->peer)) {
        pml_gpusym_fetch(r, &inner->req_status, (const uint8_t *) r->bounce.p, GPUSYM_RTS);
    } else {
        pml_gpusym_request_enlist(r, step_receive);
    }
    return 0;
}

/* The bytes that the PML may receive: an RTS needs room even where the message has less. */
static size_t room_of(const request_t *r)
{
    return r->layout.bytes < GPUSYM_RTS ? GPUSYM_RTS : r->layout.bytes;
}

static void fail_receive(request_t *r, int rv)
{
    ompi_status_public_t *status = &pml_gpusym_mpi_request(r)->req_status;

    status->MPI_SOURCE = r->base.req_peer;
    status->MPI_TAG = r->base.req_tag;
    status->MPI_ERROR = rv;
    status->_ucount = 0;
    pml_gpusym_request_complete(r);
}

/* Posts the receive to the PML. Returns an MPI error code. */
static int post_receive(request_t *r)
{
    const mca_pml_base_request_t *b = &r->base;

    if (!pml_gpusym_bounce_reserve(&r->bounce, room_of(r))) {
        return pml_gpusym_report_memory(b->req_comm, b->req_peer, b->req_tag, r->layout.bytes);
    }
    int rv = pml_gpusym_host.pml_irecv_init(r->bounce.p, room_of(r), MPI_BYTE, b->req_peer, b->req_tag, b->req_comm,
                                            &r->inner);
    if (OMPI_SUCCESS != rv) {
        r->inner = NULL;
        return rv;
    }
    /* The callback is there before the request can complete. */
    r->inner->req_persistent = false;
    r->inner->req_complete_cb = inner_complete;
    r->inner->req_complete_cb_data = r;
    __atomic_fetch_add(&pml_gpusym_awaited, 1, __ATOMIC_RELAXED);
    rv = pml_gpusym_host.pml_start(1, &r->inner);
    if (OMPI_SUCCESS != rv) {
        __atomic_fetch_sub(&pml_gpusym_awaited, 1, __ATOMIC_RELAXED);
    }
    return rv;
}

/* Begins one use of a request. */
static int start_receive(request_t *r)
{
    const int rv = post_receive(r);
    if (MPI_SUCCESS != rv) {
        fail_receive(r, rv);
    }
    return MPI_SUCCESS;
}

static request_t *make_request(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                               struct ompi_communicator_t *comm, bool persistent, const pml_gpusym_memory_t *memory)
{
    request_t *r = pml_gpusym_request_get(buf, count, dtype, src, tag, comm, persistent, memory);
    if (NULL != r) {
        r->base.req_type = MCA_PML_REQUEST_RECV;
        r->start = start_receive;
    }
    return r;
}

int pml_gpusym_recv(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                    struct ompi_communicator_t *comm, const pml_gpusym_memory_t *memory, ompi_status_public_t *status)
{
    request_t *r = make_request(buf, count, dtype, src, tag, comm, false, memory);
    if (NULL == r) {
        return MPI_ERR_OTHER;
    }
    pml_gpusym_request_begin(r);
    (void) start_receive(r);
    return pml_gpusym_request_wait(r, status);
}

int pml_gpusym_irecv(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                     struct ompi_communicator_t *comm, const pml_gpusym_memory_t *memory,
                     struct ompi_request_t **request)
{
    request_t *r = make_request(buf, count, dtype, src, tag, comm, false, memory);
    if (NULL == r) {
        return MPI_ERR_OTHER;
    }
    *request = pml_gpusym_mpi_request(r);
    pml_gpusym_request_begin(r);
    return start_receive(r);
}

int pml_gpusym_irecv_init(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                          struct ompi_communicator_t *comm, const pml_gpusym_memory_t *memory,
                          struct ompi_request_t **request)
{
    request_t *r = make_request(buf, count, dtype, src, tag, comm, true, memory);
    if (NULL == r) {
        return MPI_ERR_OTHER;
    }
    *request = pml_gpusym_mpi_request(r);
    return OMPI_SUCCESS;
}

/* Receives a message that has been matched. Its request has no callback while it starts, so progress polls it. */
static int start_matched(request_t *r, struct ompi_message_t **message)
{
    if (!pml_gpusym_bounce_reserve(&r->bounce, room_of(r))) {
        return pml_gpusym_report_memory(r->base.req_comm, r->base.req_peer, r->base.req_tag, r->layout.bytes);
    }
    const int rv = pml_gpusym_host.pml_imrecv(r->bounce.p, room_of(r), MPI_BYTE, message, &r->inner);
    if (OMPI_SUCCESS != rv) {
        r->inner = NULL;
        return rv;
    }
    pml_gpusym_request_enlist(r, step_receive);
    return MPI_SUCCESS;
}

int pml_gpusym_imrecv(void *buf, size_t count, struct ompi_datatype_t *dtype, struct ompi_message_t **message,
                      const pml_gpusym_memory_t *memory, struct ompi_request_t **request)
{
    request_t *r = make_request(buf, count, dtype, (*message)->peer, MPI_ANY_TAG, (*message)->comm, false, memory);
    if (NULL == r) {
        return MPI_ERR_OTHER;
    }
    *request = pml_gpusym_mpi_request(r);
    pml_gpusym_request_begin(r);
    const int rv = start_matched(r, message);
    if (MPI_SUCCESS != rv) {
        fail_receive(r, rv);
    }
    return OMPI_SUCCESS;
}

int pml_gpusym_mrecv(void *buf, size_t count, struct ompi_datatype_t *dtype, struct ompi_message_t **message,
                     const pml_gpusym_memory_t *memory, ompi_status_public_t *status)
{
    ompi_request_t *request;
    const int rv = pml_gpusym_imrecv(buf, count, dtype, message, memory, &request);
    return OMPI_SUCCESS == rv ? pml_gpusym_request_wait((request_t *) request, status) : rv;
}
