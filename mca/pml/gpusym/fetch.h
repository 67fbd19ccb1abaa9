/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The receiver's side of a message that was announced by an RTS.
 */
#ifndef MCA_PML_GPUSYM_FETCH_H
#define MCA_PML_GPUSYM_FETCH_H

#include "mca/pml/gpusym/request.h"

/* Whether a message of the PML is an RTS: `bytes` of it arrived from a rank of comm. If so, *peer is its
 * sender. */
bool pml_gpusym_is_rts(struct ompi_communicator_t *comm, const ompi_status_public_t *status, pml_gpusym_peer_t **peer);

/*
 * Claims the send descriptor of an RTS for a request, which has peer and layout, and begins to fetch it into the
 * buffer. status: of the PML's message, whose source and tag it has. rts: what arrived of it, `length` bytes. When the
 * data are there, the request is completed, or its `outer` one if there is one. Errors complete it too. Any thread,
 * also from the PML's callbacks.
 */
void pml_gpusym_fetch(pml_gpusym_request_t *r, const ompi_status_public_t *status, const uint8_t *rts, unsigned length);
/* Begins to fetch a send descriptor that r has claimed. */
void pml_gpusym_fetch_claimed(pml_gpusym_request_t *r, const ompi_status_public_t *status);

/* An RTS that names no entry, since the table was full: its data follow as a message of their own, by this tag. Writes
 * it; tells whether one is such, and gets its number. */
int pml_gpusym_follow_tag(uint32_t number);
void pml_gpusym_follow_write(uint8_t rts[GPUSYM_RTS], uint32_t number);
bool pml_gpusym_follow_read(const uint8_t rts[GPUSYM_RTS], uint32_t *number);

/* The note of an offer with PML_GPUSYM_OFFER_BOX, or PML_GPUSYM_OFFER_FILLING. */
typedef union {
    gpusym_box_t box;
    uint32_t signal; /* of the copy that fills the memory (kernels/work.h); 0: it has none */
    unsigned char bytes[GPUSYM_SEND_DESC_NOTE];
} pml_gpusym_note_t;

#endif
