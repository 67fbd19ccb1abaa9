/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Errors of messages of device memory, to the user. Each returns the MPI error code of the call.
 */
#ifndef MCA_PML_GPUSYM_REPORT_H
#define MCA_PML_GPUSYM_REPORT_H

#include "mca/common/ompi/ompi_compat.h"

/* peer: the rank in comm, or MPI_ANY_SOURCE. */
/* The GPU reports an error: the calling thread's last one. */
int pml_gpusym_report_gpu(struct ompi_communicator_t *comm, int peer, int tag);
/* There are no `bytes` bytes of host memory. */
int pml_gpusym_report_memory(struct ompi_communicator_t *comm, int peer, int tag, size_t bytes);
/* The memory by which two processes agree on a message holds what neither writes. */
int pml_gpusym_report_corrupt(struct ompi_communicator_t *comm, int peer, int tag);
/* The process of the other rank has told that it failed. */
int pml_gpusym_report_peer(struct ompi_communicator_t *comm, int peer, int tag, int pid);
/* Host memory that the process of the other rank shares cannot be mapped. */
int pml_gpusym_report_unreachable(struct ompi_communicator_t *comm, int peer, int tag, int pid);
/* The process of the other rank has died: MPI_ERR_PROC_FAILED where Open MPI has it. peer: not MPI_ANY_SOURCE. */
int pml_gpusym_report_dead(struct ompi_communicator_t *comm, int peer, int tag, int pid);

#endif
