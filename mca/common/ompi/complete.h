/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The completion of requests of ours that a program, or Open MPI, waits for.
 */
#ifndef GPUSYM_COMMON_OMPI_COMPLETE_H
#define GPUSYM_COMMON_OMPI_COMPLETE_H

#include "mca/common/gpusym/sanitizers.h"
#include "mca/common/ompi/ompi_compat.h"
#include "ompi/request/request.h"

/* Completes a request and wakes who waits for it. From then on it may be gone. Open MPI orders what this thread did
 * before what another one does that saw the request complete; and the lock that it takes here may stand on the stack of
 * a thread that waits. */
static inline void gpusym_complete(ompi_request_t *request)
{
    GPUSYM_RELEASE(request);
    GPUSYM_IGNORE_BEGIN();
    ompi_request_complete(request, true);
    GPUSYM_IGNORE_END();
}

#endif
