/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPICH's names for communication on CUDA streams, in libgpusym, for programs that were written for these; others use
 * gpusym.h.
 */
#ifndef GPUSYM_MPIX_STREAM_H
#define GPUSYM_MPIX_STREAM_H

#include <mpi.h>

/* A handle; MPICH's is an integer. */
typedef struct gpusym_mpix_stream *MPIX_Stream;
#define MPIX_STREAM_NULL ((MPIX_Stream) 0)

#ifdef __cplusplus
extern "C" {
#endif

/** mpix_stream - MPICH's functions for communication on CUDA streams
 *
 * The functions have the names, arguments and meaning of MPICH's MPIX_Stream extension; only all-reduces are carried
 * out, by **gpusym_allreduce_on_stream**(3gpusym).
 *
 * - `MPIX_Info_set_hex` sets `key` to the `value_size` bytes at `value`, in hexadecimal digits.
 * - `MPIX_Stream_create` makes a handle of a stream of the program, by the keys `type`, which must be `cudaStream_t`,
 *   and `value`, which `MPIX_Info_set_hex` has set to it.
 *   The CUDA stream remains the program's.
 * - `MPIX_Stream_free` frees the handle.
 * - `MPIX_Stream_comm_create` is collective and makes a duplicate of `comm` that is prepared for collectives on
 *   `stream`.
 *   The ranks' streams may differ.
 *   With `MPIX_STREAM_NULL` it makes a duplicate and does no more.
 * - `MPIX_Comm_get_stream` sets `*stream` to the stream of such a communicator (`idx` must be 0), or to
 *   `MPIX_STREAM_NULL` if it has none.
 * - `MPIX_Allreduce_enqueue` is `gpusym_allreduce_on_stream` on the communicator's stream, and
 *   `MPIX_Allreduce_enqueue_c` is `gpusym_allreduce_on_stream_c`.
 * - `MPIX_Send_enqueue`, `MPIX_Recv_enqueue`, `MPIX_Isend_enqueue`, `MPIX_Irecv_enqueue`, `MPIX_Wait_enqueue` and
 *   `MPIX_Waitall_enqueue` return an error of class `MPI_ERR_UNSUPPORTED_OPERATION`.
 *
 * Differences from MPICH:
 *
 * - `MPIX_Stream_free` may be called while communicators use the stream; MPICH refuses that. The handle is then invalid
 *   for the program, and the communicators keep the stream.
 * - `MPIX_Stream_create` makes no streams of the CPU (`MPI_INFO_NULL`), and there is no
 *   `MPIX_Stream_comm_create_multiplex`.
 * - `MPIX_Allreduce_enqueue` uses neither host memory nor a host function, and may be captured in a graph.
 * - MPI_THREAD_MULTIPLE is not required, nor a synchronization before MPI_Finalize.
 *
 * Between **gpusym_group_start**(3gpusym) and `gpusym_group_end`, `MPIX_Allreduce_enqueue` is a call of the group, as
 * `gpusym_allreduce_on_stream` is; the error of any function whose name ends in `_enqueue` is the group's too, which
 * then queues nothing.
 * `MPIX_Stream_comm_create` makes its communicator at once, and waits for the ranks, as without a group.
 * The communicator, but not the handle of its stream, must be there until the group has ended.
 *
 * Other MPI calls on a communicator with a stream are ordinary calls.
 * A duplicate of such a communicator has its stream, too.
 *
 * Errors are returned as by **gpusym_allreduce_on_stream**(3gpusym); functions that have no communicator call the error
 * handler that MPI uses for such errors.
 */
int MPIX_Info_set_hex(MPI_Info info, const char *key, const void *value, int value_size);
int MPIX_Stream_create(MPI_Info info, MPIX_Stream *stream);
int MPIX_Stream_free(MPIX_Stream *stream);
int MPIX_Stream_comm_create(MPI_Comm comm, MPIX_Stream stream, MPI_Comm *newcomm);
int MPIX_Comm_get_stream(MPI_Comm comm, int idx, MPIX_Stream *stream);
int MPIX_Allreduce_enqueue(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                           MPI_Comm comm);
int MPIX_Allreduce_enqueue_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                             MPI_Comm comm);
int MPIX_Send_enqueue(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm);
int MPIX_Recv_enqueue(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                      MPI_Status *status);
int MPIX_Isend_enqueue(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                       MPI_Request *request);
int MPIX_Irecv_enqueue(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                       MPI_Request *request);
int MPIX_Wait_enqueue(MPI_Request *request, MPI_Status *status);
int MPIX_Waitall_enqueue(int count, MPI_Request array_of_requests[], MPI_Status array_of_statuses[]);

#ifdef __cplusplus
}
#endif

#endif
