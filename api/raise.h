/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Errors of libgpusym: MPI's classes, with texts of our own, through error handlers.
 */
#ifndef GPUSYM_API_RAISE_H
#define GPUSYM_API_RAISE_H

#include <mpi.h>
#include <stdbool.h>

/* Whether MPI may be called: MPI_Init was, MPI_Finalize was not. */
bool api_mpi_is_up(void);

/* Calls the error handler of comm (MPI_COMM_NULL: the one that MPI takes for errors without a communicator) with an
 * error of that class, whose MPI_Error_string is `text` (NULL: MPI's own). Returns the error's code. Where MPI may not
 * be called, returns MPI_ERR_OTHER. */
int api_raise(MPI_Comm comm, int error_class, const char *text);

#endif
