/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives on streams: what the component offers to libgpusym (api/), which is linked with MPI alone and finds the
 * component's instance of this library in the process.
 *
 * Handles of MPI are passed as what they are in Open MPI, addresses. All functions return an MPI error code, and after
 * an error why() tells the calling thread what was wrong and what to do.
 */
#ifndef GPUSYM_COMMON_STREAMS_H
#define GPUSYM_COMMON_STREAMS_H

#include <stddef.h>
#include <stdint.h>

/* Of this layout. A library and a component of different versions do not work together. */
#define GPUSYM_STREAMS_VERSION 4u

/* A call. Arguments that its collective does not have are 0; of one count and one datatype, they are rcount and
 * rdtype; bcast has its buffer in rbuf. sbuf, and at the root of a scatter rbuf, may be MPI_IN_PLACE. */
typedef struct gpusym_stream_call {
    unsigned coll; /* GPUSYM_COLL_... of kernels/kernels.h */
    const void *sbuf;
    void *rbuf;
    size_t scount, rcount;
    const int *scounts, *sdispls, *rcounts, *rdispls; /* read before the call returns */
    void *sdtype, *rdtype, *op;
    int root;
} gpusym_stream_call_t;

typedef struct gpusym_streams {
    uint32_t version, bytes; /* GPUSYM_STREAMS_VERSION, sizeof(gpusym_streams_t) */
    /* Collective: makes the communicator ready for calls on streams; waits for its ranks, once. */
    int (*prepare)(void *comm);
    /* Queues a collective on a stream of the device (CUDA: a CUstream). Collective in the sense that all ranks queue
     * the same calls in the same order. Waits for nothing, but the first on a communicator that is not prepared. */
    int (*call)(void *comm, const gpusym_stream_call_t *call, void *stream);
    /* Whether `call` would queue that, as far as can be told before; queues nothing. Makes the communicator ready, as
     * `call` does, and waits for its ranks then. */
    int (*check)(void *comm, const gpusym_stream_call_t *call, void *stream);
    /* A number by which all ranks of communicators sort these alike. */
    uint64_t (*place)(void *comm);
    /* The same of a persistent request, which is active then. *comm becomes its communicator, where it is one of the
     * component's. MPI_ERR_REQUEST: it is none, or it is active. */
    int (*start)(void *request, void *stream, void **comm);
    /* What the stream gets from now on waits for that call, and the request is inactive. */
    int (*wait)(void *request, void *stream, void **comm);
    /* Sets *error to the MPI error code with which a queued call has failed, and *rank to the rank that is the cause,
     * -1: unknown; MPI_SUCCESS: none has. Never waits. Returns an MPI error code. */
    int (*failed)(void *comm, int *error, int *rank);
    /* Collective: registers a region of each rank's memory for zero copy, perhaps of 0 bytes; waits for all ranks, and
     * prepares the communicator. *handle: the same on all ranks. */
    int (*register_memory)(void *comm, void *base, size_t bytes, int *handle);
    /* Collective: ends that, once the queued calls have ended. */
    int (*deregister_memory)(void *comm, int handle);
    const char *(*why)(void);
} gpusym_streams_t;

/* Component: offers its functions, which stay valid; NULL takes the offer back. */
void gpusym_streams_offer(const gpusym_streams_t *streams);
/* Returns what is offered; NULL: nothing. Any thread. */
const gpusym_streams_t *gpusym_streams(void);

#endif
