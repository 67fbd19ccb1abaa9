/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of a window whose ranks are on several hosts: an origin sends a request to the rank that owns the memory,
 * the owner, which carries it out in its progress function (serve.h) and answers. They go by the PML, on the window's
 * own communicator. An owner carries out the requests of an origin in the order in which they were sent; answers may
 * overtake each other, so each has a tag of its own.
 */
#ifndef OSC_GPUSYM_MESSAGE_H
#define OSC_GPUSYM_MESSAGE_H

#include "mca/osc/gpusym/window.h"

#include "ompi/op/op.h"

/* Pieces of a request, and bytes of data of a request or an answer, at most. */
#define OSC_GPUSYM_MESSAGE_PIECES 256u
#define OSC_GPUSYM_MESSAGE_DATA (256u << 10)

/* What a request is for. Data are packed. */
typedef enum {
    OSC_GPUSYM_READ,     /* answered with data */
    OSC_GPUSYM_WRITE,    /* has data */
    OSC_GPUSYM_COMBINE,  /* has data */
    OSC_GPUSYM_FETCH,    /* COMBINE that is answered with what was there; for MPI_NO_OP it has no data */
    OSC_GPUSYM_SWAP,     /* has the new element, and behind it the one to compare with; answered with what was there */
    OSC_GPUSYM_LOCK,     /* answered once the lock is held */
    OSC_GPUSYM_TURN,     /* answered once the sender is the first of those that wait for the lock */
    OSC_GPUSYM_PASS,     /* the sender is not the first of them any more */
    OSC_GPUSYM_TRY_LOCK, /* answered at once; MPI_ERR_RMA_CONFLICT: the lock is not to be had now */
    OSC_GPUSYM_UNLOCK,
    OSC_GPUSYM_POST,     /* the sender has posted for the receiver */
    OSC_GPUSYM_COMPLETE, /* the sender has completed at the receiver */
    OSC_GPUSYM_LOST,     /* a rank has died; it is not answered */
    OSC_GPUSYM_KINDS
} osc_gpusym_kind_t;

/* Rows of one width, at one distance, which follow each other when packed. */
typedef struct {
    uint64_t at; /* of the first one: from the owner's part on; in a dynamic window the address */
    uint64_t width, rows, pitch;
} osc_gpusym_rows_t;

/* A request. Its pieces follow it, and its data follow these. Plain bytes. */
typedef struct {
    uint32_t kind, id; /* id: of its answer's tag */
    uint32_t pieces;
    uint32_t held;  /* of LOCK, TRY_LOCK and UNLOCK: osc_gpusym_held_t; of LOST: the rank */
    uint32_t ahead; /* of LOCK and TRY_LOCK: 1: of those that wait (osc_gpusym_try_lock) */
    uint32_t pad;
    int32_t op, type; /* of COMBINE and FETCH: indices of the predefined operation and basic type */
    uint64_t bytes;   /* of all pieces */
    uint64_t sent;    /* of the data that follow */
    uint64_t pads[2];
} osc_gpusym_message_t;

/* An answer. Its data follow it. */
typedef struct {
    int32_t rc; /* MPI's class */
    uint32_t pad;
    uint64_t bytes; /* of the data that follow */
    uint64_t pads[6];
} osc_gpusym_answer_t;

#define OSC_GPUSYM_MESSAGE_HEAD (sizeof(osc_gpusym_message_t) + OSC_GPUSYM_MESSAGE_PIECES * sizeof(osc_gpusym_rows_t))
#define OSC_GPUSYM_MESSAGE_BYTES (OSC_GPUSYM_MESSAGE_HEAD + OSC_GPUSYM_MESSAGE_DATA)
#define OSC_GPUSYM_ANSWER_BYTES (sizeof(osc_gpusym_answer_t) + OSC_GPUSYM_MESSAGE_DATA)

static inline osc_gpusym_rows_t *osc_gpusym_message_rows(osc_gpusym_message_t *m)
{
    return (osc_gpusym_rows_t *) (void *) (m + 1);
}
static inline char *osc_gpusym_message_data(osc_gpusym_message_t *m)
{
    return (char *) (osc_gpusym_message_rows(m) + m->pieces);
}
static inline size_t osc_gpusym_message_bytes(const osc_gpusym_message_t *m)
{
    return sizeof *m + m->pieces * sizeof(osc_gpusym_rows_t) + m->sent;
}

/* Host memory for messages, which the window's GPU copies fast if it is pinned. */
typedef struct {
    char *base; /* NULL: there is none. Owned */
    bool pinned;
} osc_gpusym_area_t;
/* False: there is no memory. */
bool osc_gpusym_area_get(const osc_gpusym_window_t *w, size_t bytes, osc_gpusym_area_t *area);
void osc_gpusym_area_free(const osc_gpusym_window_t *w, osc_gpusym_area_t *area);

/* Start a message to a rank, or (rank MPI_ANY_SOURCE, too) from one. MPI error code. */
int osc_gpusym_send(const osc_gpusym_window_t *w, const void *buf, size_t bytes, int rank, int tag,
                    struct ompi_request_t **request);
int osc_gpusym_receive(const osc_gpusym_window_t *w, void *buf, size_t bytes, int rank, int tag,
                       struct ompi_request_t **request);
/* Whether a message has ended. */
bool osc_gpusym_message_ended(const struct ompi_request_t *request);
/* Frees the request of a message that has ended. MPI error code of the message. */
int osc_gpusym_message_end(struct ompi_request_t **request);

/* Predefined operations and basic types by their indices, which all processes have alike. NULL: there is none. */
struct ompi_op_t *osc_gpusym_op_at(int index);
ompi_datatype_t *osc_gpusym_type_at(int index);

#endif
