/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * All-reduces that Open MPI itself calls while it creates a communicator.
 */
#ifndef MCA_COLL_GPUSYM_CALL_INTERNAL_H
#define MCA_COLL_GPUSYM_CALL_INTERNAL_H

#include "mca/coll/gpusym/exec/engine.h"

/* The address from which MPI_Iallreduce calls a module, once seen: calls from there are the program's. */
extern const void *coll_gpusym_iallreduce_caller __attribute__((visibility("hidden")));
/* Whether an iallreduce on comm, called from `caller`, is Open MPI's own: a few integers in host memory. The same on
 * all ranks; but where functions have no names, not of a program's call on host memory of some ranks only. */
bool coll_gpusym_is_internal(const void *in, const void *out, size_t count, struct ompi_datatype_t *dtype,
                             struct ompi_op_t *op, struct ompi_communicator_t *comm, const void *caller);
/* Starts such a call, of MPI_INT in host memory: by the fallback where not all ranks have the same gpusym. MPI error
 * code. *req is completed by Open MPI's progress, and the caller's to free; until then `out` and the communicator must
 * exist. Any thread. */
int coll_gpusym_internal_iallreduce(coll_gpusym_engine_t *e, const void *in, void *out, size_t count,
                                    struct ompi_op_t *op, struct ompi_request_t **req);
/* Ends progress on these calls. None is in flight. */
void coll_gpusym_internal_fini(void);

#endif
