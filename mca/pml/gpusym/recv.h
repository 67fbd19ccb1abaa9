/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Receives into device memory. mem: what the device says of the buffer. The other parameters, and the results, are
 * those of the PML's functions (ompi/mca/pml/pml.h).
 */
#ifndef MCA_PML_GPUSYM_RECV_H
#define MCA_PML_GPUSYM_RECV_H

#include "mca/pml/gpusym/host.h"

#include "ompi/message/message.h"

int pml_gpusym_recv(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                    struct ompi_communicator_t *comm, const pml_gpusym_memory_t *memory, ompi_status_public_t *status);
int pml_gpusym_irecv(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                     struct ompi_communicator_t *comm, const pml_gpusym_memory_t *memory,
                     struct ompi_request_t **request);
int pml_gpusym_irecv_init(void *buf, size_t count, struct ompi_datatype_t *dtype, int src, int tag,
                          struct ompi_communicator_t *comm, const pml_gpusym_memory_t *memory,
                          struct ompi_request_t **request);
/* Of a message that has been matched by a probe. */
int pml_gpusym_mrecv(void *buf, size_t count, struct ompi_datatype_t *dtype, struct ompi_message_t **message,
                     const pml_gpusym_memory_t *memory, ompi_status_public_t *status);
int pml_gpusym_imrecv(void *buf, size_t count, struct ompi_datatype_t *dtype, struct ompi_message_t **message,
                      const pml_gpusym_memory_t *memory, struct ompi_request_t **request);

#endif
