/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * For LD_PRELOAD, by suites.sh: each dynamic window is one of GPU memory.
 */
#include <mpi.h>

int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
    MPI_Info own;

    if (MPI_INFO_NULL == info) {
        MPI_Info_create(&own);
    } else {
        MPI_Info_dup(info, &own);
    }
    MPI_Info_set(own, "mpool_hints", "mpool=gpusym");
    const int rc = PMPI_Win_create_dynamic(own, comm, win);
    MPI_Info_free(&own);
    return rc;
}
