/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Groups of calls on streams (gpusym_group_start): what a thread notes until the group's end.
 */
#ifndef GPUSYM_API_GROUP_H
#define GPUSYM_API_GROUP_H

#include <mpi.h>
#include <stdbool.h>

#include "mca/common/gpusym/streams.h"

/* Whether the calling thread is between start and end. */
bool api_group_is_open(void);
void api_group_start(void);
/* Ends the innermost open group; the end of the outermost one queues what has been noted, and returns the group's first
 * error, for which a handler has been called. */
int api_group_end(void);
/* Notes a call of the open group, whose arguments are right; its arrays, of `ranks` numbers or NULL, are copied.
 * Returns MPI_SUCCESS or MPI_ERR_NO_MEM. */
int api_group_note(MPI_Comm comm, const gpusym_stream_call_t *call, void *stream, int ranks);
/* Returns rc, the result of a call. In a group an error becomes the group's, if it is the first one. */
int api_group_result(int rc);

#endif
