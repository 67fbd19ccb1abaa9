/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What gpusym_trace makes of a trace that has been merged.
 */
#ifndef INFO_TRACE_PRINT_H
#define INFO_TRACE_PRINT_H

#include <stdio.h>

#include "info/trace/read.h"

/* Prints the tables: by collective and size, by rank, why calls were staged, and the slowest rank. */
void trace_print_tables(const trace_t *t);
/* Writes the events of Chrome's trace viewer and of Perfetto, as JSON. */
void trace_print_events(const trace_t *t, FILE *out);
/* Draws, as SVG, up to `calls` collectives that follow each other: from number `first` on; 0: with the one in the
 * middle in which a rank has waited for longest. */
void trace_print_picture(const trace_t *t, unsigned first, unsigned calls, FILE *out);

/* "MPI_Allreduce" of "allreduce", in a buffer of the caller. */
const char *trace_mpi_name(const char *coll, char *name, size_t size);

#endif
