/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The entries of all collectives: one call on this rank, blocking, nonblocking or persistent.
 */
#ifndef MCA_COLL_GPUSYM_CALL_ENTRY_H
#define MCA_COLL_GPUSYM_CALL_ENTRY_H

#include "mca/coll/gpusym/exec/engine.h"

/* Runs a blocking collective. The buffers may be device memory, host memory or none. Returns an MPI error code. */
int coll_gpusym_blocking(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a);
/* Starts a nonblocking collective; *req: see request.h. */
int coll_gpusym_nonblocking(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, struct ompi_request_t **req);
/* Makes the inactive request *req of a persistent collective. info may be NULL. */
int coll_gpusym_persistent(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, struct ompi_info_t *info,
                           struct ompi_request_t **req);

#endif
