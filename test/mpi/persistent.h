/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpi.h, and one name for what initialises a persistent collective: PERSISTENT_INIT(Bcast) is MPI_Bcast_init where MPI
 * has it (MPI 4, Open MPI 5.0), MPIX_Bcast_init of the extension where that is there (Open MPI 4.1).
 */
#ifndef TEST_MPI_PERSISTENT_H
#define TEST_MPI_PERSISTENT_H

#include <mpi.h>
#if MPI_VERSION < 4
#include <mpi-ext.h>
#endif

#if defined(OMPI_HAVE_MPI_EXT_PCOLLREQ) && OMPI_HAVE_MPI_EXT_PCOLLREQ
#define PERSISTENT_INIT(Name) MPIX_##Name##_init
#else
#define PERSISTENT_INIT(Name) MPI_##Name##_init
#endif

#endif
