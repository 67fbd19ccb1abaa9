/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What an accumulate does to its target: target = origin op target.
 */
#ifndef OSC_GPUSYM_COMBINE_H
#define OSC_GPUSYM_COMBINE_H

#include "mca/osc/gpusym/move.h"
#include "ompi/op/op.h"

/* Both have the same bytes, more than 0, of elements of one basic type, for which the operation, not MPI_REPLACE nor
 * MPI_NO_OP, is defined. The caller has the target's lock. Complete on return. MPI error code; the target is then
 * undefined. */
int osc_gpusym_combine(osc_gpusym_window_t *w, const osc_gpusym_elements_t *target, const osc_gpusym_elements_t *origin,
                       ompi_datatype_t *basic, struct ompi_op_t *op);

#endif
