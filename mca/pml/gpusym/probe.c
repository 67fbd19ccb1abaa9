/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Probes, where messages may be RTS messages.
 *
 * A matching probe receives the RTS and claims its send descriptor: what it matched is then certain. The other probes
 * leave the RTS with the PML, which tells its source and tag; the size is that of the oldest send descriptor of that
 * source and tag that has not been claimed. That is exact unless another thread receives with the same source and tag
 * at the same time: its message may be the one that is told, as MPI allows for such a program.
 */
#include "mca/pml/gpusym/probe.h"

#include <pthread.h>
#include <stdlib.h>

#include "mca/pml/gpusym/fetch.h"
#include "mca/pml/gpusym/report.h"

/* ---- probes that match nothing ---- */

static void tell_size(struct ompi_communicator_t *comm, ompi_status_public_t *status)
{
    pml_gpusym_peer_t *peer;
    uint64_t bytes;

    if (pml_gpusym_is_rts(comm, status, &peer) &&
        GPUSYM_SUCCESS ==
            gpusym_send_desc_oldest_bytes(peer->pages, gpusym_comm_context(comm), status->MPI_TAG, &bytes)) {
        status->_ucount = bytes;
    }
}

int pml_gpusym_iprobe(int src, int tag, struct ompi_communicator_t *comm, int *matched, ompi_status_public_t *status)
{
    const int rv = pml_gpusym_host.pml_iprobe(src, tag, comm, matched, status);
    if (OMPI_SUCCESS == rv && *matched && MPI_STATUS_IGNORE != status) {
        tell_size(comm, status);
    }
    return rv;
}

int pml_gpusym_probe(int src, int tag, struct ompi_communicator_t *comm, ompi_status_public_t *status)
{
    const int rv = pml_gpusym_host.pml_probe(src, tag, comm, status);
    if (OMPI_SUCCESS == rv && MPI_STATUS_IGNORE != status) {
        tell_size(comm, status);
    }
    return rv;
}

/* ---- matching probes ---- */

/* An RTS that a matching probe has received: what req_ptr of its message points to. */
typedef struct matched {
    uint8_t rts[GPUSYM_RTS];
    bool follows; /* it names no send descriptor */
    pml_gpusym_peer_t *peer;
    ompi_status_public_t status;
    gpusym_send_desc_t desc;
    struct matched *next;
} matched_t;

/* All of them: how a message tells that it is from here. */
static struct {
    pthread_mutex_t lock;
    matched_t *first;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void add_matched(matched_t *m)
{
    pthread_mutex_lock(&all.lock);
    m->next = all.first;
    __atomic_store_n(&all.first, m, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&all.lock);
}

/* Takes it from the list; false: it is not there. */
static bool take_matched(const matched_t *m)
{
    bool found = false;
    pthread_mutex_lock(&all.lock);
    for (matched_t **link = &all.first; !found && NULL != *link; link = found ? link : &(*link)->next) {
        if (m == *link) {
            __atomic_store_n(link, m->next, __ATOMIC_RELEASE);
            found = true;
            break;
        }
    }
    pthread_mutex_unlock(&all.lock);
    return found;
}

/* A message of the program's. Not from Open MPI's free list, whose functions some compilers cannot inline. */
static ompi_message_t *make_message(struct ompi_communicator_t *comm, matched_t *m)
{
    ompi_message_t *message = OBJ_NEW(ompi_message_t);
    if (NULL != message) {
        message->comm = comm;
        message->req_ptr = m;
        message->peer = m->status.MPI_SOURCE;
        message->count = m->status._ucount;
    }
    return message;
}

static void free_message(struct ompi_message_t **message)
{
    if (MPI_UNDEFINED != (*message)->m_f_to_c_index) {
        opal_pointer_array_set_item(&ompi_message_f_to_c_table, (*message)->m_f_to_c_index, NULL);
    }
    OBJ_RELEASE(*message);
    *message = MPI_MESSAGE_NULL;
}

/* Receives the RTS that a probe has matched, and claims its send descriptor. */
static int take_rts(struct ompi_communicator_t *comm, struct ompi_message_t **message, matched_t *m)
{
    ompi_request_t *q;
    uint32_t number;
    int rv = pml_gpusym_host.pml_imrecv(m->rts, GPUSYM_RTS, MPI_BYTE, message, &q);

    if (OMPI_SUCCESS == rv) {
        rv = ompi_request_wait(&q, MPI_STATUS_IGNORE);
    }
    if (OMPI_SUCCESS != rv) {
        return rv;
    }
    m->follows = pml_gpusym_follow_read(m->rts, &number);
    if (!m->follows && GPUSYM_SUCCESS != gpusym_send_desc_claim(m->peer->pages, m->rts, &m->desc)) {
        return pml_gpusym_report_corrupt(comm, m->status.MPI_SOURCE, m->status.MPI_TAG);
    }
    m->status._ucount = m->follows ? GPUSYM_RTS : m->desc.offer.bytes;
    return OMPI_SUCCESS;
}

/* Goes on with a matching probe, whose status is `status`. */
static int settle_probe(struct ompi_communicator_t *comm, struct ompi_message_t **message, ompi_status_public_t *status)
{
    pml_gpusym_peer_t *peer;

    if (!pml_gpusym_is_rts(comm, status, &peer)) {
        return OMPI_SUCCESS;
    }
    matched_t *m = calloc(1, sizeof *m);
    if (NULL == m) {
        return pml_gpusym_report_memory(comm, status->MPI_SOURCE, status->MPI_TAG, sizeof *m);
    }
    m->peer = peer;
    m->status = *status;
    const int rv = take_rts(comm, message, m);
    ompi_message_t *ours = OMPI_SUCCESS == rv ? make_message(comm, m) : NULL;
    if (NULL == ours) {
        free(m);
        return OMPI_SUCCESS == rv ? MPI_ERR_NO_MEM : rv;
    }
    add_matched(m);
    *message = ours;
    status->_ucount = m->status._ucount;
    return OMPI_SUCCESS;
}

int pml_gpusym_improbe(int src, int tag, struct ompi_communicator_t *comm, int *matched,
                       struct ompi_message_t **message, ompi_status_public_t *status)
{
    ompi_status_public_t own;
    ompi_status_public_t *at = MPI_STATUS_IGNORE == status ? &own : status;
    const int rv = pml_gpusym_host.pml_improbe(src, tag, comm, matched, message, at);

    return OMPI_SUCCESS == rv && *matched ? settle_probe(comm, message, at) : rv;
}

int pml_gpusym_mprobe(int src, int tag, struct ompi_communicator_t *comm, struct ompi_message_t **message,
                      ompi_status_public_t *status)
{
    ompi_status_public_t own;
    ompi_status_public_t *at = MPI_STATUS_IGNORE == status ? &own : status;
    const int rv = pml_gpusym_host.pml_mprobe(src, tag, comm, message, at);

    return OMPI_SUCCESS == rv ? settle_probe(comm, message, at) : rv;
}

bool pml_gpusym_matched(void *buf, size_t count, struct ompi_datatype_t *dtype, struct ompi_message_t **message,
                        const pml_gpusym_memory_t *memory, pml_gpusym_request_t **request, int *rv)
{
    matched_t *m = (*message)->req_ptr;
    struct ompi_communicator_t *comm = (*message)->comm;

    if (OPAL_LIKELY(NULL == __atomic_load_n(&all.first, __ATOMIC_ACQUIRE)) || !take_matched(m)) {
        return false;
    }
    pml_gpusym_request_t *r =
        pml_gpusym_request_get(buf, count, dtype, m->status.MPI_SOURCE, m->status.MPI_TAG, comm, false, memory);
    *rv = NULL == r ? MPI_ERR_NO_MEM : OMPI_SUCCESS;
    if (NULL == r) {
        add_matched(m);
        return true;
    }
    r->base.req_type = MCA_PML_REQUEST_RECV;
    r->on_host = NULL == memory;
    r->peer = m->peer;
    pml_gpusym_request_begin(r);
    if (m->follows) {
        pml_gpusym_fetch(r, &m->status, m->rts, GPUSYM_RTS);
    } else {
        r->desc = m->desc;
        pml_gpusym_fetch_claimed(r, &m->status);
    }
    free_message(message);
    free(m);
    *request = r;
    return true;
}
