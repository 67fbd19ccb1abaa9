/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Sends from device memory; and of the messages of host memory that must not go as they are, since they have the size
 * of an RTS, or should not, since they are long and go to GPU memory. mem: what the device says of the buffer;
 * NULL: it is host memory. The other parameters, and the results, are those of the PML's functions
 * (ompi/mca/pml/pml.h).
 */
#ifndef MCA_PML_GPUSYM_SEND_H
#define MCA_PML_GPUSYM_SEND_H

#include "mca/pml/gpusym/host.h"

int pml_gpusym_send(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                    mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, const pml_gpusym_memory_t *memory);
int pml_gpusym_isend(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                     mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, const pml_gpusym_memory_t *memory,
                     struct ompi_request_t **request);
int pml_gpusym_isend_init(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                          mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm,
                          const pml_gpusym_memory_t *memory, struct ompi_request_t **request);

/* Whether a message of host memory is sent by these functions: it has the size of an RTS; or it is longer than
 * GPUSYM_FROM_HOST_ABOVE bytes, has no gaps, and its receiver has told that it receives into GPU memory. persistent: it
 * may tell that before a later start, which decides. */
bool pml_gpusym_send_takes_host(size_t count, const struct ompi_datatype_t *dtype, int dst, int tag,
                                mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, bool persistent);

#endif
