/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Probes, where messages may be RTS messages: the status tells the size of the data. The parameters, and the results,
 * are those of the PML's functions (ompi/mca/pml/pml.h).
 */
#ifndef MCA_PML_GPUSYM_PROBE_H
#define MCA_PML_GPUSYM_PROBE_H

#include "mca/pml/gpusym/host.h"
#include "mca/pml/gpusym/request.h"

#include "ompi/message/message.h"

int pml_gpusym_iprobe(int src, int tag, struct ompi_communicator_t *comm, int *matched, ompi_status_public_t *status);
int pml_gpusym_probe(int src, int tag, struct ompi_communicator_t *comm, ompi_status_public_t *status);
int pml_gpusym_improbe(int src, int tag, struct ompi_communicator_t *comm, int *matched,
                       struct ompi_message_t **message, ompi_status_public_t *status);
int pml_gpusym_mprobe(int src, int tag, struct ompi_communicator_t *comm, struct ompi_message_t **message,
                      ompi_status_public_t *status);

/* Whether the message of a matching probe was an RTS: then *request receives it into a buffer, of device memory if
 * mem is not NULL, and the message is freed. rv: an Open MPI error code. */
bool pml_gpusym_matched(void *buf, size_t count, struct ompi_datatype_t *dtype, struct ompi_message_t **message,
                        const pml_gpusym_memory_t *memory, pml_gpusym_request_t **request, int *rv);

#endif
