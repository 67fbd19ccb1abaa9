/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests of messages of device memory, and their progress.
 *
 * The program gets a request of this class; `inner` is the PML's own request behind it. Requests that have something to
 * do are in one list; progress takes some of them at a time and runs their step, so that its cost does not grow with
 * what is in flight.
 */
#ifndef MCA_PML_GPUSYM_REQUEST_H
#define MCA_PML_GPUSYM_REQUEST_H

#include "mca/common/ompi/ompi_compat.h"

#include "ompi/mca/pml/base/pml_base_request.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/request/request.h"

#include "mca/common/gpusym/p2p/send_desc.h"
#include "mca/common/gpusym/p2p/pipeline.h"
#include "mca/common/ompi/layout.h"
#include "mca/pml/gpusym/bounce.h"
#include "mca/pml/gpusym/host.h"
#include "mca/pml/gpusym/move.h"
#include "mca/pml/gpusym/peers.h"

typedef struct pml_gpusym_request pml_gpusym_request_t;

/* In the flags of an offer: the data are host memory. */
#define PML_GPUSYM_OFFER_FROM_HOST 1u
#define PML_GPUSYM_OFFER_BOX 2u /* mapped memory is a box, which the note tells */
#define PML_GPUSYM_OFFER_FILLING \
    4u /* mapped memory is being filled: gpusym_send_desc_is_filled tells when it has the data */

/* What a request does next. Progress calls it, one thread at a time. Returns whether the request stays in the list;
 * if not, it has been completed, or something else will put it into the list again. */
typedef bool pml_gpusym_step_t(pml_gpusym_request_t *r);

struct pml_gpusym_request {
    mca_pml_base_request_t base; /* Open MPI's own layer reads its fields: peer, tag, communicator */
    pml_gpusym_request_t *next;  /* in the list of active or of free ones */
    pml_gpusym_step_t *step;
    int (*start)(pml_gpusym_request_t *r); /* begins one use of a persistent request; returns an MPI error code */
    ompi_request_t *inner;                 /* the PML's; NULL: none. Owned */
    bool freed;                            /* MPI_Request_free has been called before it was complete */
    mca_pml_base_send_mode_t mode;         /* of a send */
    gpusym_gpu_t *gpu;                     /* of the buffer */
    gpusym_mem_t mem;                      /* the same, as the device said when the request was made */
    uint64_t id;                           /* of the buffer's allocation, for this use; 0: ask again */
    bool uses, known; /* it is a user of GPU memory; of that in host.h, so that its buffer lies in one allocation */
    gpusym_layout_t layout;     /* of the buffer, base.req_addr */
    pml_gpusym_bounce_t bounce; /* what the PML sends from or receives to */

    /* Of a message that is fetched by its receiver. */
    pml_gpusym_peer_t *peer; /* the process at the other end */
    uint8_t rts[GPUSYM_RTS]; /* a send: what the PML sends. It stays until `inner` is complete */
    uint32_t index;          /* a send: of its send descriptor */
    uint32_t key;            /* a send: of its memory, if the send descriptor is mapped; else 0 */
    uint64_t since;          /* when the peer's life was checked last, in ns */
    uint32_t polls;          /* since it began */
    uint64_t offered;        /* a send: when, in ns */
    bool eager;              /* a send: it is buffered if nobody receives it */
    const char *source;      /* a send: its data, packed, in GPU memory; NULL: they are a box there */
    gpusym_pipeline_buffer_t
        buffer;                 /* a send: shared memory from which the receiver takes it; host NULL: none. Owned */
    bool filling;               /* a send: move.copy copies the data into `scratch` */
    void *scratch;              /* GPU memory that stands for the buffer, packed; NULL: none. Owned */
    gpusym_send_desc_t desc;    /* a receive: what it has claimed */
    gpusym_pipeline_t pipeline; /* the half of this side, of a message that goes through a pipeline */
    pml_gpusym_move_t move;     /* a receive: of its data */
    int claim;                  /* a receive: what the claim returned */
    bool on_host;               /* a receive: the buffer is host memory */
    bool large;                 /* a receive: it counts among those of large messages (fetch.c) */
    bool completes_early;       /* a send: complete although the receiver has not ended it */
    ompi_request_t *outer;      /* a receive into host memory: the PML's own request, which waits for the data */
};
OBJ_CLASS_DECLARATION(pml_gpusym_request_t);

static inline ompi_request_t *pml_gpusym_mpi_request(pml_gpusym_request_t *r)
{
    return &r->base.req_ompi;
}

/* Whether a request is of this class. */
bool pml_gpusym_request_is(const ompi_request_t *request);

/* Gets a request for a message, with communicator and datatype retained. mem: of its buffer; NULL: it
 * is host memory. NULL: no memory, or the GPU cannot be opened; the error has been reported. Any thread. */
pml_gpusym_request_t *pml_gpusym_request_get(const void *buf, size_t count, struct ompi_datatype_t *dtype, int peer,
                                             int tag, struct ompi_communicator_t *comm, bool persistent,
                                             const pml_gpusym_memory_t *memory);
/* Returns a request that is not active. */
void pml_gpusym_request_put(pml_gpusym_request_t *r);

/* Marks a request as active. */
void pml_gpusym_request_begin(pml_gpusym_request_t *r);
/* Puts a request into the list: its step will run. Any thread. */
void pml_gpusym_request_enlist(pml_gpusym_request_t *r, pml_gpusym_step_t *step);
/* Returns the time in ns, as it was when a step of this round of progress asked first. Any thread; outside of progress
 * it is that of the last round. */
uint64_t pml_gpusym_request_now(void);
/* Completes a request, whose status is set, after its inner request and its bounce buffer have been returned. */
void pml_gpusym_request_complete(pml_gpusym_request_t *r);
/* Waits for a blocking message, returns the request and an MPI error code. status may be MPI_STATUS_IGNORE. */
int pml_gpusym_request_wait(pml_gpusym_request_t *r, ompi_status_public_t *status);
/* Makes a request of its own that has the send descriptor, the peer and the communicator of one that is about to
 * complete. NULL: no memory. */
pml_gpusym_request_t *pml_gpusym_request_copy(const pml_gpusym_request_t *r);
/* Leaves the PML's request, which may never end, and its memory to a request of its own. */
void pml_gpusym_request_abandon(pml_gpusym_request_t *r);
/* Whether no request has anything to do. Any thread: another one may change that. */
bool pml_gpusym_requests_idle(void);
/* Returns how many such requests the PML has not ended. */
unsigned pml_gpusym_requests_abandoned(void);
/* Receives into GPU memory for which no message has come yet; atomic. Copies that share launches may wait for these. */
extern uint32_t pml_gpusym_awaited;
/* Whether it is known why the half of a pipeline has ended, at r->since: one whose memory cannot be mapped may have
 * died, as the system tells within 100 ms: who is killed closes its files first. */
bool pml_gpusym_pipeline_is_judged(const pml_gpusym_request_t *r);
/* Reports why it has ended with an error of common.h, and returns the MPI error code. peer, tag: of the message. */
int pml_gpusym_report_pipeline(pml_gpusym_request_t *r, int peer, int tag);
/* Whether the process at the other end lives, as far as a check every 100 ms tells; on another host, as far as Open MPI
 * knows. */
bool pml_gpusym_peer_lives(pml_gpusym_request_t *r);
/* Whether the PML has ended its request; true if there is none. */
static inline bool pml_gpusym_inner_is_complete(const pml_gpusym_request_t *r)
{
    return NULL == r->inner || REQUEST_COMPLETE(r->inner);
}
/* Frees the PML's request, which must be complete. */
void pml_gpusym_request_free_inner(pml_gpusym_request_t *r);

/* Frees all requests, none of which may be active. */
void pml_gpusym_requests_close(void);

#endif
