/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's datatypes and operations in the kernels' terms.
 */
#ifndef GPUSYM_OMPI_TYPES_H
#define GPUSYM_OMPI_TYPES_H

#include "ompi_config.h" /* always first */

#include "ompi/datatype/ompi_datatype.h"
#include "ompi/op/op.h"

/* The kernels' type (enum gpusym_type) or operation (enum gpusym_op) for MPI's; -1: kernels have none. Any thread. */
int gpusym_mpi_type(struct ompi_datatype_t *dtype);
int gpusym_mpi_op(struct ompi_op_t *op);

#endif
