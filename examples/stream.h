/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The stream of an example, on which its kernels and copies are queued, and gpusym's collectives (api/gpusym.h).
 */
#ifndef EXAMPLES_STREAM_H
#define EXAMPLES_STREAM_H

#include <mpi.h>
#include <stdbool.h>

/* After bench_start(). Ends the job where the device has no streams. */
void stream_open(void);
void stream_close(void);

/* bench_cu.stream on a GPU, one of its own on the simulator; NULL with host memory. */
void *stream_handle(void);
/* Until all that was queued is done: MPI knows nothing of our stream. */
void stream_wait(void);

/* Whether a communicator, or none (MPI_COMM_NULL), is ready for collectives on streams; alike on all ranks. Where
 * gpusym refuses, says why in a comment line. Collective over all ranks. */
bool stream_is_ready(MPI_Comm comm);
/* Ends the job if a collective of that communicator on a stream has failed. The stream has ended. */
void stream_check(MPI_Comm comm);

#endif
