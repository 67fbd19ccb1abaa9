/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * libgpusym_mpi: MPIX_Query_cuda_support(), which Open MPI 4.1 answers by how it was built.  From 5.0 on Open MPI asks
 * the accelerator component.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include <dlfcn.h>
#include <stddef.h>

#include "mca/common/gpusym/gpusym.h"

int MPIX_Query_cuda_support(void);

/* 1: coll/gpusym is loaded, serves messages too, and has found a device.  Otherwise Open MPI's own answer, as before
 * MPI_Init and behind MPI_Finalize.  It has no name by which the profiling interface would call it. */
int MPIX_Query_cuda_support(void)
{
    int (*own)(void);

    if (GPUSYM_P2P_OFF != gpusym_params.p2p && NULL != gpusym_device_for_memory()) {
        return 1;
    }
    own = (__typeof__(own)) dlsym(RTLD_NEXT, "MPIX_Query_cuda_support");
    return NULL != own ? own() : 0;
}
