/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions of packed host memory by the CPU, with MPI's operations.
 */
#ifndef OSC_GPUSYM_REDUCE_H
#define OSC_GPUSYM_REDUCE_H

#include "mca/common/ompi/layout.h"
#include "ompi/op/op.h"

/* Sets inout to in op inout: packed elements of a basic type, `bytes` bytes in all, a multiple of its size. MPI error
 * code: MPI_ERR_NO_MEM: elements of the type have gaps, for which there is no memory; nothing has been done. */
int osc_gpusym_reduce(struct ompi_op_t *op, ompi_datatype_t *basic, char *in, char *inout, size_t bytes);

#endif
