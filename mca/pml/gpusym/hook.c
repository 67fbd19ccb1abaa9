/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The functions that are put into mca_pml, and their life. A message of host memory goes on to the PML at the cost of a
 * few instructions: a test of its address, and a jump.
 */
#include "mca/pml/gpusym/pml_gpusym.h"

#include "ompi/mca/pml/base/base.h"
#include "ompi/mca/pml/base/pml_base_request.h"

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/ompi/tags.h"
#include "mca/pml/gpusym/bounce.h"
#include "mca/pml/gpusym/counters.h"
#include "mca/common/gpusym/gpus.h"
#include "mca/pml/gpusym/host.h"
#include "mca/pml/gpusym/host_recv.h"
#include "mca/pml/gpusym/pack.h"
#include "mca/pml/gpusym/params.h"
#include "mca/pml/gpusym/peers.h"
#include "mca/pml/gpusym/probe.h"
#include "mca/pml/gpusym/recv.h"
#include "mca/pml/gpusym/request.h"
#include "mca/pml/gpusym/send.h"
#include "tuning/copy.h"

#define host pml_gpusym_host

/* Functions of their own, so that the hooks need no stack frame on the way to the PML: a test and a jump. */
#define SLOW_PATH __attribute__((noinline))

/* ---- sends ---- */

/* Whether a message may go by RTS though it is host memory: it has the size of one, or it is long, and some peer
 * receives such ones into GPU memory. */
static inline bool is_special(size_t bytes)
{
    return OPAL_UNLIKELY(GPUSYM_RTS == bytes || (bytes > GPUSYM_FROM_HOST_ABOVE &&
                                                 0 != __atomic_load_n(pml_gpusym_any_into_gpu, __ATOMIC_RELAXED)));
}

/* Whether a message is Open MPI's own. Its buffers are host memory, since collectives on device memory are staged above
 * it, but while one says otherwise: functions apart look at that, so that the program's messages take no instruction
 * for it. */
static inline bool is_internal(int tag)
{
    return OPAL_UNLIKELY(tag < MPI_ANY_TAG);
}

/* Whether a message is certainly the PML's: from the heap, and nothing special. */
static inline bool is_plain_send(const void *buf, size_t count, const struct ompi_datatype_t *dtype)
{
    return OPAL_LIKELY(pml_gpusym_is_heap(buf, dtype) && !is_special(count * dtype->super.size));
}

/* Which functions serve a message. */
typedef enum { BY_PML, AS_HOST, AS_DEVICE } way_t;

static inline way_t find_send(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                              mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm,
                              pml_gpusym_memory_t *memory)
{
    if (!pml_gpusym_is_heap(buf, dtype) && pml_gpusym_ask_device(buf, count, dtype, memory)) {
        return AS_DEVICE;
    }
    return is_special(count * dtype->super.size) &&
                   pml_gpusym_send_takes_host(count, dtype, dst, tag, mode, comm, false)
               ? AS_HOST
               : BY_PML;
}

static SLOW_PATH int send_other(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                                mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm)
{
    pml_gpusym_memory_t memory;
    const way_t way = find_send(buf, count, dtype, dst, tag, mode, comm, &memory);
    return BY_PML == way ? host.pml_send(buf, count, dtype, dst, tag, mode, comm)
                         : pml_gpusym_send(buf, count, dtype, dst, tag, mode, comm, AS_DEVICE == way ? &memory : NULL);
}

static SLOW_PATH int send_internal(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                                   mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm)
{
    return gpusym_tags_exchanging(tag) ? send_other(buf, count, dtype, dst, tag, mode, comm)
                                       : host.pml_send(buf, count, dtype, dst, tag, mode, comm);
}

static int hook_send(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                     mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm)
{
    if (is_internal(tag)) {
        return send_internal(buf, count, dtype, dst, tag, mode, comm);
    }
    return is_plain_send(buf, count, dtype) ? host.pml_send(buf, count, dtype, dst, tag, mode, comm)
                                            : send_other(buf, count, dtype, dst, tag, mode, comm);
}

static SLOW_PATH int isend_other(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                                 mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm,
                                 struct ompi_request_t **request)
{
    pml_gpusym_memory_t memory;
    const way_t way = find_send(buf, count, dtype, dst, tag, mode, comm, &memory);
    return BY_PML == way
               ? host.pml_isend(buf, count, dtype, dst, tag, mode, comm, request)
               : pml_gpusym_isend(buf, count, dtype, dst, tag, mode, comm, AS_DEVICE == way ? &memory : NULL, request);
}

static SLOW_PATH int isend_internal(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                                    mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm,
                                    struct ompi_request_t **request)
{
    return gpusym_tags_exchanging(tag) ? isend_other(buf, count, dtype, dst, tag, mode, comm, request)
                                       : host.pml_isend(buf, count, dtype, dst, tag, mode, comm, request);
}

static int hook_isend(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                      mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, struct ompi_request_t **request)
{
    if (is_internal(tag)) {
        return isend_internal(buf, count, dtype, dst, tag, mode, comm, request);
    }
    return is_plain_send(buf, count, dtype) ? host.pml_isend(buf, count, dtype, dst, tag, mode, comm, request)
                                            : isend_other(buf, count, dtype, dst, tag, mode, comm, request);
}

static int hook_isend_init(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                           mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm,
                           struct ompi_request_t **request)
{
    pml_gpusym_memory_t memory;
    if (is_internal(tag)) {
        return host.pml_isend_init(buf, count, dtype, dst, tag, mode, comm, request);
    }
    if (pml_gpusym_ask_device(buf, count, dtype, &memory)) {
        return pml_gpusym_isend_init(buf, count, dtype, dst, tag, mode, comm, &memory, request);
    }
    return pml_gpusym_send_takes_host(count, dtype, dst, tag, mode, comm, true)
               ? pml_gpusym_isend_init(buf, count, dtype, dst, tag, mode, comm, NULL, request)
               : host.pml_isend_init(buf, count, dtype, dst, tag, mode, comm, request);
}

/* ---- receives ---- */

static inline bool is_device(const void *buf, size_t count, struct ompi_datatype_t *dtype, pml_gpusym_memory_t *memory)
{
    return OPAL_UNLIKELY(!pml_gpusym_is_heap(buf, dtype)) && pml_gpusym_ask_device(buf, count, dtype, memory);
}

/* Whether what is received may be an RTS. */
static inline bool may_be_rts(void)
{
    return 0 != pml_gpusym_npeers;
}

/* What is needed of a blocking receive when it has returned and its message was an RTS. */
typedef struct {
    void *buf;
    size_t count;
    struct ompi_datatype_t *dtype;
    struct ompi_communicator_t *comm;
    pml_gpusym_first_t first;
} posted_t;

static SLOW_PATH int settle_recv(const posted_t *posted, ompi_status_public_t *status, int rv)
{
    return may_be_rts() ? pml_gpusym_host_received(posted->buf, posted->count, posted->dtype, posted->comm,
                                                   posted->first, status, rv)
                        : rv;
}

static inline int recv_host(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                            struct ompi_communicator_t *comm, ompi_status_public_t *status, pml_gpusym_first_t first)
{
    ompi_status_public_t own;
    posted_t posted = {buf, count, dtype, comm, first};

    /* In memory from here on: registers need not be saved and restored, 13 instructions fewer for a message. */
    __asm__ volatile("" : : "r"(&posted) : "memory");
    status = MPI_STATUS_IGNORE == status ? &own : status;
    const int rv = host.pml_recv(buf, count, dtype, src, tag, comm, status);
    return OPAL_LIKELY(GPUSYM_RTS != status->_ucount) ? rv : settle_recv(&posted, status, rv);
}

static SLOW_PATH int recv_short(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                                struct ompi_communicator_t *comm, ompi_status_public_t *status)
{
    return recv_host(buf, count, dtype, src, tag, comm, status, pml_gpusym_read_first(buf, count, dtype));
}

static SLOW_PATH int recv_other(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                                struct ompi_communicator_t *comm, ompi_status_public_t *status)
{
    pml_gpusym_memory_t memory;
    return pml_gpusym_ask_device(buf, count, dtype, &memory)
               ? pml_gpusym_recv(buf, count, dtype, src, tag, comm, &memory, status)
               : recv_short(buf, count, dtype, src, tag, comm, status);
}

static SLOW_PATH int recv_internal(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                                   struct ompi_communicator_t *comm, ompi_status_public_t *status)
{
    return gpusym_tags_exchanging(tag) ? recv_other(buf, count, dtype, src, tag, comm, status)
                                       : host.pml_recv(buf, count, dtype, src, tag, comm, status);
}

static int hook_recv(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                     struct ompi_communicator_t *comm, ompi_status_public_t *status)
{
    if (is_internal(tag)) {
        return recv_internal(buf, count, dtype, src, tag, comm, status);
    }
    if (OPAL_UNLIKELY(!pml_gpusym_is_heap(buf, dtype))) {
        return recv_other(buf, count, dtype, src, tag, comm, status);
    }
    return pml_gpusym_first_is_load(count, dtype)
               ? recv_host(buf, count, dtype, src, tag, comm, status, pml_gpusym_load_first(buf, dtype))
               : recv_short(buf, count, dtype, src, tag, comm, status);
}

static SLOW_PATH int irecv_other(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                                 struct ompi_communicator_t *comm, struct ompi_request_t **request)
{
    pml_gpusym_memory_t memory;
    if (pml_gpusym_ask_device(buf, count, dtype, &memory)) {
        return pml_gpusym_irecv(buf, count, dtype, src, tag, comm, &memory, request);
    }
    return may_be_rts() ? pml_gpusym_host_irecv(buf, count, dtype, src, tag, comm, request)
                        : host.pml_irecv(buf, count, dtype, src, tag, comm, request);
}

static SLOW_PATH int irecv_internal(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                                    struct ompi_communicator_t *comm, struct ompi_request_t **request)
{
    return gpusym_tags_exchanging(tag) ? irecv_other(buf, count, dtype, src, tag, comm, request)
                                       : host.pml_irecv(buf, count, dtype, src, tag, comm, request);
}

static int hook_irecv(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                      struct ompi_communicator_t *comm, struct ompi_request_t **request)
{
    if (is_internal(tag)) {
        return irecv_internal(buf, count, dtype, src, tag, comm, request);
    }
    if (OPAL_UNLIKELY(!may_be_rts() || !pml_gpusym_is_heap(buf, dtype))) {
        return irecv_other(buf, count, dtype, src, tag, comm, request);
    }
    return pml_gpusym_host_irecv(buf, count, dtype, src, tag, comm, request);
}

static int hook_irecv_init(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                           struct ompi_communicator_t *comm, struct ompi_request_t **request)
{
    pml_gpusym_memory_t memory;
    if (!is_internal(tag) && is_device(buf, count, dtype, &memory)) {
        return pml_gpusym_irecv_init(buf, count, dtype, src, tag, comm, &memory, request);
    }
    return !is_internal(tag) && may_be_rts() ? pml_gpusym_host_irecv_init(buf, count, dtype, src, tag, comm, request)
                                             : host.pml_irecv_init(buf, count, dtype, src, tag, comm, request);
}

static int hook_imrecv(void *buf, size_t count, struct ompi_datatype_t *dtype, struct ompi_message_t **message,
                       struct ompi_request_t **request)
{
    pml_gpusym_memory_t memory;
    pml_gpusym_request_t *r;
    int rv;
    const bool device = is_device(buf, count, dtype, &memory);
    if (pml_gpusym_matched(buf, count, dtype, message, device ? &memory : NULL, &r, &rv)) {
        *request = OMPI_SUCCESS == rv ? pml_gpusym_mpi_request(r) : MPI_REQUEST_NULL;
        return rv;
    }
    return device ? pml_gpusym_imrecv(buf, count, dtype, message, &memory, request)
                  : host.pml_imrecv(buf, count, dtype, message, request);
}

static int hook_mrecv(void *buf, size_t count, struct ompi_datatype_t *dtype, struct ompi_message_t **message,
                      ompi_status_public_t *status)
{
    pml_gpusym_memory_t memory;
    pml_gpusym_request_t *r;
    int rv;
    const bool device = is_device(buf, count, dtype, &memory);
    if (pml_gpusym_matched(buf, count, dtype, message, device ? &memory : NULL, &r, &rv)) {
        return OMPI_SUCCESS == rv ? pml_gpusym_request_wait(r, status) : rv;
    }
    return device ? pml_gpusym_mrecv(buf, count, dtype, message, &memory, status)
                  : host.pml_mrecv(buf, count, dtype, message, status);
}

/* ---- persistent requests ---- */

static bool is_ours(const struct ompi_request_t *request)
{
    return pml_gpusym_request_is(request) || pml_gpusym_host_is_persistent(request);
}

/* Open MPI's collectives start their requests by this function, not by req_start: all of them are the PML's. */
static int hook_start(size_t n, struct ompi_request_t **requests)
{
    int rv = OMPI_SUCCESS;
    size_t first = 0;

    while (first < n && !is_ours(requests[first])) {
        first++;
    }
    rv = first > 0 ? host.pml_start(first, requests) : OMPI_SUCCESS;
    for (size_t i = first; OMPI_SUCCESS == rv && i < n; i++) {
        rv = is_ours(requests[i]) ? requests[i]->req_start(1, &requests[i]) : host.pml_start(1, &requests[i]);
    }
    return rv;
}

/* ---- their life ---- */

int pml_gpusym_register(const mca_base_component_t *component)
{
    const int rv = pml_gpusym_params_register();
    return OMPI_SUCCESS == rv ? pml_gpusym_counters_register(component) : rv;
}

/* Not asked where the user wants none: another part of the process may select one for itself. */
static bool has_device(void)
{
    return GPUSYM_DEVICE_NONE != gpusym_params.device && NULL != gpusym_device_need();
}

void pml_gpusym_publish(void)
{
    if (GPUSYM_P2P_AUTO == gpusym_params.p2p && has_device()) {
        pml_gpusym_peers_publish();
    }
}

/* Whether the functions in mca_pml are those of a PML that is served. */
static bool is_served(void)
{
    const char *name = mca_pml_base_selected_component.pmlm_version.mca_component_name;
    if (0 == strcmp(name, "ob1") || 0 == strcmp(name, "monitoring")) {
        return true;
    }
    GPUSYM_LOG(2, "point-to-point: the PML %s is not supported; use --mca pml ob1", name);
    return false;
}

static bool met; /* the peers have been attached, as far as they can be */

/* From now on messages may be RTS messages. */
static void meet_peers(void)
{
    met = true;
    pml_gpusym_peers_attach();
    if (0 != pml_gpusym_npeers) {
        mca_pml.pml_probe = pml_gpusym_probe;
        mca_pml.pml_iprobe = pml_gpusym_iprobe;
        mca_pml.pml_mprobe = pml_gpusym_mprobe;
        mca_pml.pml_improbe = pml_gpusym_improbe;
    }
}

void pml_gpusym_install(void)
{
    if (GPUSYM_P2P_OFF == gpusym_params.p2p || hook_send == mca_pml.pml_send || !is_served() || !has_device()) {
        return;
    }
    host = mca_pml;
    mca_pml.pml_send = hook_send;
    mca_pml.pml_isend = hook_isend;
    mca_pml.pml_isend_init = hook_isend_init;
    mca_pml.pml_recv = hook_recv;
    mca_pml.pml_irecv = hook_irecv;
    mca_pml.pml_irecv_init = hook_irecv_init;
    mca_pml.pml_mrecv = hook_mrecv;
    mca_pml.pml_imrecv = hook_imrecv;
    mca_pml.pml_start = hook_start;
    if (!gpusym_modex_is_late()) {
        meet_peers();
    }
    GPUSYM_LOG(2, "point-to-point: served over the PML %s",
               mca_pml_base_selected_component.pmlm_version.mca_component_name);
}

void pml_gpusym_meet(void)
{
    if (OPAL_UNLIKELY(!met && hook_send == mca_pml.pml_send)) {
        meet_peers();
    }
}

bool pml_gpusym_serves(void)
{
    return hook_send == mca_pml.pml_send;
}

void pml_gpusym_close(void)
{
    if (hook_send == mca_pml.pml_send) {
        mca_pml = host;
    }
    met = false;
    pml_gpusym_requests_close();
    pml_gpusym_peers_close();
    gpusym_p2p_gpus_close();
    pml_gpusym_pack_close();
    pml_gpusym_bounces_close();
    pml_gpusym_counters_clear();
}
