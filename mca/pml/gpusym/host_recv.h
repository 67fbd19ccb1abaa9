/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Receives into host memory from processes that may send RTS messages. The program gets the PML's own requests; one
 * whose message turns out to be an RTS completes when its data have been fetched. The parameters, and the results, are
 * those of the PML's functions (ompi/mca/pml/pml.h).
 *
 * The PML writes an RTS into the buffer, and a message may be shorter: what stood there must stay behind it. So
 * the first bytes of every buffer are kept from the post of its receive on, and are put back when an RTS has come.
 */
#ifndef MCA_PML_GPUSYM_HOST_RECV_H
#define MCA_PML_GPUSYM_HOST_RECV_H

#include "mca/pml/gpusym/host.h"

#include "mca/common/gpusym/p2p/send_desc.h"
#include "ompi/request/request.h"

/* The first bytes of a buffer, packed: as many as an RTS has, or all. */
typedef uint64_t pml_gpusym_first_t;
_Static_assert(GPUSYM_RTS <= sizeof(pml_gpusym_first_t), "an RTS replaces no more");

/* Those of a buffer with gaps. 0.1 us. */
pml_gpusym_first_t pml_gpusym_gather_first(const void *buf, size_t count, struct ompi_datatype_t *dtype);

/* Whether reading them is a load. */
static inline bool pml_gpusym_first_is_load(size_t count, const struct ompi_datatype_t *dtype)
{
    return OPAL_LIKELY(count >= sizeof(pml_gpusym_first_t) && (dtype->super.flags & OPAL_DATATYPE_FLAG_NO_GAPS) &&
                       0 != dtype->super.size);
}

static inline pml_gpusym_first_t pml_gpusym_load_first(const void *buf, const struct ompi_datatype_t *dtype)
{
    pml_gpusym_first_t first;
    memcpy(&first, (const char *) buf + dtype->super.true_lb, sizeof first);
    return first;
}

static inline pml_gpusym_first_t pml_gpusym_read_first(const void *buf, size_t count, struct ompi_datatype_t *dtype)
{
    const size_t bytes = count * dtype->super.size;
    pml_gpusym_first_t first = 0;
    if (OPAL_UNLIKELY(0 == (dtype->super.flags & OPAL_DATATYPE_FLAG_NO_GAPS))) {
        return pml_gpusym_gather_first(buf, count, dtype);
    }
    if (OPAL_LIKELY(bytes >= sizeof first)) {
        return pml_gpusym_load_first(buf, dtype);
    }
    for (size_t i = 0; i < bytes; i++) {
        ((char *) &first)[i] = ((const char *) buf + dtype->super.true_lb)[i];
    }
    return first;
}

int pml_gpusym_host_irecv(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                          struct ompi_communicator_t *comm, struct ompi_request_t **request);
int pml_gpusym_host_irecv_init(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                               struct ompi_communicator_t *comm, struct ompi_request_t **request);
/* Goes on with a blocking receive of 7 bytes that has returned rv. first: as when it was called. */
int pml_gpusym_host_received(void *buf, size_t count, struct ompi_datatype_t *dtype, struct ompi_communicator_t *comm,
                             pml_gpusym_first_t first, ompi_status_public_t *status, int rv);
/* Whether a request is a persistent one from here: start it by its own function. */
bool pml_gpusym_host_is_persistent(const struct ompi_request_t *request);

#endif
