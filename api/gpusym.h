/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym's own functions, in libgpusym: collectives of MPI on CUDA streams, for C and C++. A program that uses them
 * runs with gpusym (mpirun --mca coll gpusym); all others need neither this header nor the library. docs/streams.md has
 * the rules and an example.
 */
#ifndef GPUSYM_H
#define GPUSYM_H

#include <mpi.h>

/* The version of this header; functions are added by minor versions. */
#define GPUSYM_VERSION_MAJOR 0
#define GPUSYM_VERSION_MINOR 1

#ifdef __cplusplus
extern "C" {
#endif

/** gpusym_stream_prepare - makes a communicator ready for collectives on streams
 *
 * Collective over `comm`, and waits for all its ranks.
 * Loads the kernels and takes the memory that collectives on streams need; the communicator's ordinary calls stay as
 * they are.
 * Without it, the first collective on a stream does this, and waits; under stream capture that call returns an error,
 * so prepare a communicator before its calls are captured.
 * A second call does nothing.
 * What is taken is returned when the communicator is freed.
 *
 * `info` is reserved: pass `MPI_INFO_NULL`.
 *
 * Returns `MPI_SUCCESS`, or an error alike on all ranks, as **gpusym_allreduce_on_stream**(3gpusym) does.
 */
int gpusym_stream_prepare(MPI_Comm comm, MPI_Info info);

/** gpusym_allreduce_on_stream - a collective of MPI, queued on a CUDA stream
 *
 * Each function queues the collective of its name on `stream` and returns; the CPU waits for no rank and for no GPU.
 * The arguments before `stream` are those of the MPI function, `MPI_IN_PLACE` included.
 * `stream` is a `cudaStream_t` or `CUstream` of the GPU that the rank's communicator uses; null is the legacy default
 * stream.
 *
 * **Order.**
 * The collective begins when all work that was queued on the stream before has ended, and work queued behind it begins
 * when its result is there.
 * It ends on no rank before all ranks have begun it.
 * All ranks must queue the same calls of a communicator in the same order, and calls of communicators that share ranks
 * in one order too.
 * Different streams may be used for calls of one communicator; these run one behind the other.
 * The first call that is captured on another stream than the last one waits on the CPU until the calls before it have
 * ended.
 *
 * **Buffers** are memory of the rank's GPU, or pinned host memory; other host memory is refused.
 * They belong to the collective until the stream has passed it: until then the receive buffer must not be read or
 * written, the send buffer must not be written, and neither may be freed.
 * Counts and displacements are read before the function returns.
 * Datatypes must be predefined ones, or contiguous; operations must be predefined ones; reduce-scatters must not be in
 * place.
 *
 * **Capture.**
 * In a stream that is being captured the collective becomes a node of the graph, which can be launched any number of
 * times.
 * All ranks must then capture it and launch their graphs equally often, or queue as many calls without a graph.
 * The buffers belong to the graph as long as it may be launched.
 *
 * **Ordinary MPI calls** on the communicator begin once the collectives that were queued on streams before have ended.
 * They do not wait for graphs: synchronize with a graph's launch before its results are used in such a call.
 *
 * **Errors.**
 * The functions return `MPI_SUCCESS` or an MPI error code, for which the communicator's error handler is called first
 * (by default it ends the job).
 * `MPI_Error_string` says what to do, and `MPI_Error_class` tells:
 *
 * - `MPI_ERR_UNSUPPORTED_OPERATION`: gpusym is not loaded, a buffer is host memory, the stream is another GPU's, there
 *   is no kernel for the datatype and operation, or the communicator's ranks are not processes of one host with a GPU
 *   each.
 * - `MPI_ERR_ARG`: the stream, or another argument, is invalid.
 *   Arguments that MPI's own functions check have their own classes, as there: `MPI_ERR_COMM`, `MPI_ERR_COUNT`,
 *   `MPI_ERR_TYPE`, `MPI_ERR_OP`, `MPI_ERR_ROOT`, `MPI_ERR_BUFFER`.
 * - `MPI_ERR_OTHER`: a collective that was queued on this communicator has failed, or MPI is not initialized; then no
 *   error handler is called.
 *
 * After an error nothing is queued.
 * A collective that fails on the GPU, later, is told by **gpusym_stream_error**(3gpusym) and by the next call.
 *
 * The functions may be called by several threads at once, under MPI_THREAD_MULTIPLE; those of one communicator must be
 * ordered by the program.
 *
 * All-to-all, gather and scatter with counts (`gpusym_alltoallv_on_stream` and the like), whose ranks do not know all
 * sizes, must be queued by every rank, also by one that neither sends nor receives.
 * What is received where two ranks do not agree on a size is undefined.
 *
 * Functions whose names end in `_c` take counts as `MPI_Count` and displacements as `MPI_Aint`, as those of MPI 4 do.
 * A count may be more than an `int` holds; one in an array, or a displacement, may not: that is an error of class
 * `MPI_ERR_COUNT`.
 *
 * There are no functions for MPI_Alltoallw and neighbourhood collectives.
 */
int gpusym_allreduce_on_stream(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                               MPI_Comm comm, void *stream);
int gpusym_allgather_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                               MPI_Datatype recvtype, MPI_Comm comm, void *stream);
int gpusym_allgatherv_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                                const int recvcounts[], const int displs[], MPI_Datatype recvtype, MPI_Comm comm,
                                void *stream);
int gpusym_reduce_scatter_on_stream(const void *sendbuf, void *recvbuf, const int recvcounts[], MPI_Datatype datatype,
                                    MPI_Op op, MPI_Comm comm, void *stream);
int gpusym_reduce_scatter_block_on_stream(const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype datatype,
                                          MPI_Op op, MPI_Comm comm, void *stream);
int gpusym_bcast_on_stream(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm, void *stream);
int gpusym_reduce_on_stream(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root,
                            MPI_Comm comm, void *stream);
int gpusym_alltoall_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                              MPI_Datatype recvtype, MPI_Comm comm, void *stream);
int gpusym_alltoallv_on_stream(const void *sendbuf, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype,
                               void *recvbuf, const int recvcounts[], const int rdispls[], MPI_Datatype recvtype,
                               MPI_Comm comm, void *stream);
int gpusym_gatherv_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                             const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm,
                             void *stream);
int gpusym_scatterv_on_stream(const void *sendbuf, const int sendcounts[], const int displs[], MPI_Datatype sendtype,
                              void *recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                              void *stream);
int gpusym_gather_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                            MPI_Datatype recvtype, int root, MPI_Comm comm, void *stream);
int gpusym_scatter_on_stream(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                             MPI_Datatype recvtype, int root, MPI_Comm comm, void *stream);
int gpusym_scan_on_stream(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                          MPI_Comm comm, void *stream);
int gpusym_exscan_on_stream(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                            MPI_Comm comm, void *stream);
int gpusym_allreduce_on_stream_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                                 MPI_Comm comm, void *stream);
int gpusym_allgather_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                                 MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, void *stream);
int gpusym_allgatherv_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                                  const MPI_Count recvcounts[], const MPI_Aint displs[], MPI_Datatype recvtype,
                                  MPI_Comm comm, void *stream);
int gpusym_reduce_scatter_on_stream_c(const void *sendbuf, void *recvbuf, const MPI_Count recvcounts[],
                                      MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, void *stream);
int gpusym_reduce_scatter_block_on_stream_c(const void *sendbuf, void *recvbuf, MPI_Count recvcount,
                                            MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, void *stream);
int gpusym_bcast_on_stream_c(void *buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm,
                             void *stream);
int gpusym_reduce_on_stream_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                              int root, MPI_Comm comm, void *stream);
int gpusym_alltoall_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                                MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, void *stream);
int gpusym_alltoallv_on_stream_c(const void *sendbuf, const MPI_Count sendcounts[], const MPI_Aint sdispls[],
                                 MPI_Datatype sendtype, void *recvbuf, const MPI_Count recvcounts[],
                                 const MPI_Aint rdispls[], MPI_Datatype recvtype, MPI_Comm comm, void *stream);
int gpusym_gatherv_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                               const MPI_Count recvcounts[], const MPI_Aint displs[], MPI_Datatype recvtype, int root,
                               MPI_Comm comm, void *stream);
int gpusym_scatterv_on_stream_c(const void *sendbuf, const MPI_Count sendcounts[], const MPI_Aint displs[],
                                MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
                                int root, MPI_Comm comm, void *stream);
int gpusym_gather_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                              MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, void *stream);
int gpusym_scatter_on_stream_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                               MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, void *stream);
int gpusym_scan_on_stream_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                            MPI_Comm comm, void *stream);
int gpusym_exscan_on_stream_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                              MPI_Comm comm, void *stream);

/** gpusym_group_start - queues several collectives on streams together
 *
 * Between `gpusym_group_start` and `gpusym_group_end` the functions of **gpusym_allreduce_on_stream**(3gpusym) check
 * their arguments and note the call; `gpusym_group_end` queues all that was noted, of one or several communicators and
 * streams.
 * A group is the calling thread's own.
 * Groups may be nested: the end of the outermost one queues.
 * A group may be captured, as its calls may.
 *
 * **Order.**
 * Calls on one stream, and those of one communicator, keep the order in which they were made.
 * All others are queued in the order of their communicators, which all ranks have: ranks may call on different
 * communicators in different order, where these have streams of their own, and may have not prepared them before
 * (**gpusym_stream_prepare**(3gpusym)).
 * Where communicators that share ranks have one stream, these ranks call in one order, as without a group.
 *
 * **Arguments.**
 * Arrays of counts and displacements may be changed once a call has returned.
 * Buffers, streams, communicators, datatypes and operations must be there until the group has ended, and what a call
 * reads from the send buffer is what the stream has there when the collective runs.
 * Work that the program itself queues on the streams between start and end comes before the group's calls.
 * `MPIX_Allreduce_enqueue` of **mpix_stream**(3gpusym) is noted as well.
 * Persistent requests are not started, nor waited for, in a group (`MPI_ERR_UNSUPPORTED_OPERATION`).
 *
 * **Errors.**
 * An error of an argument is returned by the call, and again by `gpusym_group_end`, which then queues nothing.
 * `gpusym_group_end` returns the first error of the group; the error handler is called once for each error, but the
 * checks that it makes before it queues end with one.
 * All calls are checked before the first is queued, so that either all or none are; only if the GPU refuses a launch,
 * those that were queued before it remain.
 * Other ranks do not learn of an error: they wait for this one, until `coll_gpusym_timeout`.
 * `gpusym_group_end` returns an error of class `MPI_ERR_OTHER` if there is no open group.
 * `gpusym_group_start` returns `MPI_SUCCESS`, or `MPI_ERR_OTHER` where MPI is not initialized.
 */
int gpusym_group_start(void);
int gpusym_group_end(void);

/** gpusym_start_on_stream - starts a persistent collective on a CUDA stream
 *
 * `gpusym_start_on_stream` starts an inactive persistent collective (`MPI_Allreduce_init` and its kind, of Open MPI 4.1
 * `MPIX_Allreduce_init`) as **gpusym_allreduce_on_stream**(3gpusym) queues the collective of its arguments: all that
 * page says of order, buffers, capture and errors holds.
 * The request is active then.
 *
 * `gpusym_wait_on_stream` makes `stream` wait for that start: work queued on it from now on begins when the result is
 * there.
 * It waits for nothing itself, and the request is inactive afterwards: it can be started again, on any stream or by
 * `MPI_Start`, or freed.
 * `stream` may be another stream of the same GPU than that of the start.
 * Where the start is captured, it must be the same one, in the same capture; other starts cannot be waited for in a
 * capture.
 * `*status` becomes an empty status, as of an inactive request; `MPI_STATUS_IGNORE` is allowed.
 *
 * `MPI_Wait`, `MPI_Test` and their kind may be used in place of `gpusym_wait_on_stream`: the request is complete once
 * the collective has ended on the GPU.
 * Of a start that was captured they return an error of class `MPI_ERR_REQUEST`; Open MPI frees a request of which it
 * returns an error.
 *
 * Persistent collectives need not be started on streams by all ranks: the others may queue the collective by
 * `gpusym_allreduce_on_stream` and its kind.
 *
 * Besides the errors of **gpusym_allreduce_on_stream**(3gpusym), both return `MPI_ERR_REQUEST` if `*request` is null,
 * or no persistent collective that gpusym serves (one whose buffers are empty or host memory on all ranks is none); of
 * `gpusym_start_on_stream`, if it is active; of `gpusym_wait_on_stream`, if it is not active by such a start.
 * `MPI_Error_string` tells which.
 */
int gpusym_start_on_stream(MPI_Request *request, void *stream);
int gpusym_wait_on_stream(MPI_Request *request, MPI_Status *status, void *stream);

/** gpusym_mem_register - registers memory for large collectives on streams
 *
 * Large collectives whose buffers are registered go straight from buffer to buffer; others are copied through memory of
 * gpusym's own.
 * `gpusym_mem_register` registers a region of each rank's GPU memory: `bytes` bytes at `base`, which lie in one
 * allocation.
 * Ranks may have regions of different lengths; one of 0 bytes holds no buffer.
 * It sets `*handle` to a number, the same on all ranks, by which `gpusym_mem_deregister` ends that.
 * A communicator has at most 16 registrations at a time.
 *
 * Both functions are collective over `comm`, and take their place in the order of its collectives.
 * `gpusym_mem_register` waits for all ranks, and prepares the communicator as **gpusym_stream_prepare**(3gpusym) does;
 * `gpusym_mem_deregister` waits until the collectives that were queued on streams before have ended.
 * Neither may be called while a stream is captured.
 *
 * **Collectives** that use it, from `coll_gpusym_zero_copy_min` bytes on (of a block, or the longest part, where ranks
 * have some for each other), are all-reduce, if the send and the receive buffer lie in registered regions, in one or in
 * two; broadcast, if the buffer does; all-gather, also with counts, and all-to-all (not in place), if the receive
 * buffer does; and reduce-scatters (not in place), if the send buffer does.
 * All ranks must then have theirs in the regions of the same handles, at any places there; otherwise the collective
 * fails, as if ranks had queued different ones.
 * A registration of which a rank has fewer bytes than that is used by no rank: data are copied.
 * Where regions overlap, the one that was registered first counts.
 *
 * **Memory** must be deregistered before it is freed, and what a graph accesses neither deregistered nor freed as long
 * as the graph may be launched.
 * What is registered when the communicator is freed is deregistered then.
 *
 * **gpusym_mem_register** returns `MPI_SUCCESS`, or an error alike on all ranks, after which nothing is registered:
 * `MPI_ERR_UNSUPPORTED_OPERATION` if the memory of a rank, which the text names, cannot be mapped by the others (host
 * memory, managed memory, memory of cudaMallocAsync); `MPI_ERR_NO_MEM` if there are too many registrations; or one of
 * **gpusym_stream_prepare**(3gpusym).
 * **gpusym_mem_deregister** returns `MPI_ERR_ARG` for a handle that is not registered.
 */
int gpusym_mem_register(MPI_Comm comm, void *base, MPI_Aint bytes, int *handle);
int gpusym_mem_deregister(MPI_Comm comm, int handle);

/** gpusym_stream_error - whether a collective on a stream has failed
 *
 * Sets `*error` to the MPI error code with which a collective that was queued on a stream, or replayed in a graph, has
 * failed on `comm`, and `*rank` to the rank of `comm` that is the cause, or to -1 if that is unknown; `*error` is
 * `MPI_SUCCESS` as long as none has failed.
 *
 * Never waits: ask once the stream has been synchronized.
 * A collective fails if ranks have queued different ones, if a rank has died or, having begun it, does not go on in
 * time (`coll_gpusym_timeout`), or by an error of the GPU.
 * The results of the failed collective and of all later ones are undefined, and so are the results of graphs; the
 * stream goes on.
 * All further calls on the communicator return an error; the program may free it and go on with another one.
 *
 * Returns `MPI_SUCCESS`, or an error of this call itself, as **gpusym_allreduce_on_stream**(3gpusym) does.
 */
int gpusym_stream_error(MPI_Comm comm, int *error, int *rank);

#ifdef __cplusplus
}
#endif

#endif
