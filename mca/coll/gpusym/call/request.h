/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI requests of nonblocking and persistent calls, and their progress.
 */
#ifndef MCA_COLL_GPUSYM_CALL_REQUEST_H
#define MCA_COLL_GPUSYM_CALL_REQUEST_H

#include "mca/coll/gpusym/call/call.h"

#include "ompi/mca/coll/base/coll_base_util.h"
#include "ompi/request/request.h"

/* What has become of a call on a stream of the program. */
typedef struct {
    bool any;          /* it has been queued; else there is nothing to do */
    bool captured;     /* into a graph: it has no number */
    bool tells;        /* the host is told once it has ended */
    uint32_t number;   /* exec/on_stream.h */
    void *handle;      /* of the stream, */
    gpusym_gpu_t *gpu; /* which is of this GPU */
} coll_gpusym_queued_t;

/* Of a class made from ompi_coll_base_nbc_request_t: MPI's own layer keeps the datatypes and the operation of a call in
 * there (ompi_coll_base_retain_op), and puts itself before req_complete_cb or req_free. */
typedef struct coll_gpusym_request {
    ompi_coll_base_nbc_request_t super;
    coll_gpusym_call_t call;
    coll_gpusym_args_t on_host;  /* staged: the call on bounce buffers */
    coll_gpusym_plan_t *plan;    /* persistent, owned */
    void *kept;                  /* the arrays of the arguments, owned */
    bool alone;                  /* persistent: without peers, nothing to agree on */
    uint64_t started_ns;         /* when it was started; 0: it has been polled since */
    bool on_stream;              /* it was last started on a stream of the program, */
    coll_gpusym_queued_t queued; /* which that call is */
    enum {
        COLL_GPUSYM_REQUEST_IDLE,   /* the fallback has nothing to do with it, or not yet */
        COLL_GPUSYM_REQUEST_FILLS,  /* copies to `bounce` are under way */
        COLL_GPUSYM_REQUEST_CALLED, /* the fallback works on it */
        COLL_GPUSYM_REQUEST_DRAINS, /* copies back are under way */
        COLL_GPUSYM_REQUEST_QUEUED  /* the fallback has nothing to do with it: it is on a stream of the program */
    } step;
    coll_gpusym_bounce_t bounce;      /* staged: its buffers */
    ompi_request_t *forwarded;        /* the fallback's, in flight; NULL: none */
    ompi_request_t *inner;            /* persistent, apart: the fallback's, on bounce's buffers, owned; NULL: none */
    struct coll_gpusym_request *next; /* in the list of what is free, forwarded, or over */
} coll_gpusym_request_t;

static inline ompi_request_t *coll_gpusym_mpi_request(coll_gpusym_request_t *r)
{
    return &r->super.super;
}

/* Returns a request of the communicator, and registers progress; NULL: no memory. */
coll_gpusym_request_t *coll_gpusym_request_get(coll_gpusym_engine_t *e, bool persistent);
/* Frees a request that has nothing in flight, and what it owns. */
void coll_gpusym_request_put(coll_gpusym_request_t *r);

/* Starts a call that has a team: MPI's request is active, and progress drives it. The lock is not held. */
void coll_gpusym_request_start(coll_gpusym_request_t *r);
/* Calls the fallback, on bounce buffers if call.run.reason is set. The caller then calls coll_gpusym_request_fly(). */
void coll_gpusym_request_forward(coll_gpusym_request_t *r);
/* Hands a forwarded request, which is in no list, to progress. MPI's request is active. */
void coll_gpusym_request_fly(coll_gpusym_request_t *r);

/* The request of the component that an MPI request is, if it is persistent; NULL: it is another one. */
coll_gpusym_request_t *coll_gpusym_request_find(ompi_request_t *q);
/* An inactive request is active, by a call on a stream of the program, which has been queued. It is complete for MPI
 * once that call has ended; at once, with an error, where a graph has the call. */
void coll_gpusym_request_queued(coll_gpusym_request_t *r, const coll_gpusym_queued_t *queued);
/* The call by which it is active; NULL: it is not, or by another start. */
const coll_gpusym_queued_t *coll_gpusym_request_on_stream(coll_gpusym_request_t *r);
/* Makes it inactive, whatever becomes of the call. */
void coll_gpusym_request_waited(coll_gpusym_request_t *r);

/* Frees cached requests and ends progress. No request exists any more. */
void coll_gpusym_requests_fini(void);

#endif
