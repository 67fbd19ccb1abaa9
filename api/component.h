/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The component's functions for collectives on streams. libgpusym is linked with MPI alone, so that a program that uses
 * it starts without gpusym as well.
 */
#ifndef GPUSYM_API_COMPONENT_H
#define GPUSYM_API_COMPONENT_H

#include <mpi.h>

#include "mca/common/gpusym/streams.h"

/* What the component offers in this process; NULL: nothing, and *why says what to do. Any thread. */
const gpusym_streams_t *api_component(const char **why);
/* Returns what a function of the component has returned, but raises an error, with the component's text, on comm. */
int api_result(MPI_Comm comm, const gpusym_streams_t *streams, int rc);

#endif
