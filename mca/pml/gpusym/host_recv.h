/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Receives into host memory from processes that may send envelopes. The program gets the PML's own requests; one whose
 * message turns out to be an envelope completes when its data have been fetched. The parameters, and the results, are
 * those of the PML's functions (ompi/mca/pml/pml.h).
 */
#ifndef MCA_PML_GPUSYM_HOST_RECV_H
#define MCA_PML_GPUSYM_HOST_RECV_H

#include "mca/pml/gpusym/host.h"

#include "ompi/request/request.h"

int pml_gpusym_host_irecv(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                          struct ompi_communicator_t *comm, struct ompi_request_t **request);
int pml_gpusym_host_irecv_init(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                               struct ompi_communicator_t *comm, struct ompi_request_t **request);
/* Goes on with a blocking receive of 7 bytes that has returned rv. */
int pml_gpusym_host_received(void *buf, size_t count, struct ompi_datatype_t *dtype, struct ompi_communicator_t *comm,
                             ompi_status_public_t *status, int rv);
/* Whether a request is a persistent one from here: start it by its own function. */
bool pml_gpusym_host_is_persistent(const struct ompi_request_t *request);

#endif
