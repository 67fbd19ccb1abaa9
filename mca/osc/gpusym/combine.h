/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What an accumulate does to its target: target = origin op target.
 */
#ifndef OSC_GPUSYM_COMBINE_H
#define OSC_GPUSYM_COMBINE_H

#include "mca/osc/gpusym/move.h"
#include "ompi/op/op.h"

/* Whether kernels have the operation, not MPI_REPLACE nor MPI_NO_OP, for elements of a basic type as they are in
 * memory: *kernel_op and *kernel_type are then theirs (kernels.def). */
bool osc_gpusym_kernels_have(struct ompi_op_t *op, ompi_datatype_t *basic, uint32_t *kernel_op, uint32_t *kernel_type);
/* Both have the same bytes, more than 0, of elements of one basic type, for which the operation, not MPI_REPLACE nor
 * MPI_NO_OP, is defined. The caller has the target's lock. Complete on return. MPI error code; the target is then
 * undefined. */
int osc_gpusym_combine(osc_gpusym_window_t *w, const osc_gpusym_elements_t *target, const osc_gpusym_elements_t *origin,
                       ompi_datatype_t *basic, struct ompi_op_t *op);

#endif
