/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Stand-in for the header of this name that Open MPI's ompi/op/op.h includes and that packages do not install.
 * Last on the include path (m4/gpusym_ompi.m4), so the real one is taken where it is there.  Names are
 * Open MPI's; only what ompi/op/op.h uses.
 */
#ifndef GPUSYM_COMPAT_FINT_2_INT_H
#define GPUSYM_COMPAT_FINT_2_INT_H

#include "mpi.h"

/* A C int as a Fortran INTEGER of whatever size that has. */
#define OMPI_INT_2_FINT(value) ((MPI_Fint) (value))

#endif
