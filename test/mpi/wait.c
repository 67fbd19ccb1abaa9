/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Under ThreadSanitizer: the end of a request, as its waiter sees it.  Another thread may have completed it, and Open
 * MPI, built without the sanitizer, orders the two where it does not look; so MPI's functions are called from here, by
 * their other names, and then the sanitizer is told (call/request.c has the other half).  An MPI_Request is the
 * request's address.  In all other builds there is nothing here.
 */
#include "mca/common/gpusym/sanitizers.h"

#ifdef __SANITIZE_THREAD__
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

/* A copy, as MPI sets ended ones to MPI_REQUEST_NULL. */
static MPI_Request *noted(int n, const MPI_Request *req)
{
    MPI_Request *copy = malloc((size_t) (n > 0 ? n : 1) * sizeof *copy);
    if (NULL == copy) {
        abort();
    }
    memcpy(copy, req, (size_t) (n > 0 ? n : 0) * sizeof *copy);
    return copy;
}

/* rv, after telling; takes the copy back. */
static int told(int rv, int n, MPI_Request *copy)
{
    for (int i = 0; i < n; i++) {
        GPUSYM_ACQUIRE(copy[i]);
    }
    free(copy);
    return rv;
}

int MPI_Wait(MPI_Request *req, MPI_Status *status)
{
    MPI_Request *copy = noted(1, req);
    return told(PMPI_Wait(req, status), 1, copy);
}

int MPI_Waitall(int n, MPI_Request req[], MPI_Status status[])
{
    MPI_Request *copy = noted(n, req);
    return told(PMPI_Waitall(n, req, status), n, copy);
}

int MPI_Waitany(int n, MPI_Request req[], int *index, MPI_Status *status)
{
    MPI_Request *copy = noted(n, req);
    return told(PMPI_Waitany(n, req, index, status), n, copy);
}

int MPI_Waitsome(int n, MPI_Request req[], int *ended, int index[], MPI_Status status[])
{
    MPI_Request *copy = noted(n, req);
    return told(PMPI_Waitsome(n, req, ended, index, status), n, copy);
}

int MPI_Test(MPI_Request *req, int *flag, MPI_Status *status)
{
    MPI_Request *copy = noted(1, req);
    return told(PMPI_Test(req, flag, status), 1, copy);
}

int MPI_Testall(int n, MPI_Request req[], int *flag, MPI_Status status[])
{
    MPI_Request *copy = noted(n, req);
    return told(PMPI_Testall(n, req, flag, status), n, copy);
}

int MPI_Testany(int n, MPI_Request req[], int *index, int *flag, MPI_Status *status)
{
    MPI_Request *copy = noted(n, req);
    return told(PMPI_Testany(n, req, index, flag, status), n, copy);
}

int MPI_Testsome(int n, MPI_Request req[], int *ended, int index[], MPI_Status status[])
{
    MPI_Request *copy = noted(n, req);
    return told(PMPI_Testsome(n, req, ended, index, status), n, copy);
}
#endif
