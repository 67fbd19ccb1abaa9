/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Send descriptors: the messages that a process offers to its peers on this host.
 *
 * A sender puts a message into an entry of its table, which lies in its pages (shm/pages.h), and sends an RTS of 7
 * bytes, which names the entry, by MPI.  The RTS does the matching.  The receiver claims the entry, moves the data
 * (from the entry itself, from the sender's GPU memory, or through a pipeline), and ends the send descriptor.  The
 * sender sees that by its entry.  No function waits.
 *
 *     sender      offer          change, withdraw        take_push    pushed                     free
 *     state       OFFERED  ---------------------> CLAIMED <-> PUSH_ASKED -> PUSHING -> PUSHED -> DONE
 *     receiver                claim                   ask_push, take_back               end
 *
 * Where the receiver cannot map the memory, it asks for a pipeline instead: CLAIMED -> PIPELINE_ASKED -> PIPELINING ->
 * DONE, by ask_pipe, take_pipe and end.  It may do so after a push that failed: PUSHED -> PIPELINE_ASKED.  If a
 * pipeline is what is offered, it begins that: CLAIMED -> PIPELINING, by begin_pipe.
 *
 * Whoever makes a transition owns the entry until the next one; where both sides may make one, one of them wins.
 *
 * Both sides agree, without a message, whether a 7-byte message is an RTS.  At its start, every process attaches
 * the tables of its peers, and sets a flag for itself in each.  A sender decides by this flag, once, whether that peer
 * gets RTS messages, and notes the decision in its own table before it sends the first one.  A receiver takes 7 bytes
 * for an RTS if it has attached the sender, and the sender has decided so.
 *
 * Values that a peer wrote are checked: they lead to GPUSYM_ERR_CORRUPT, never to an access out of bounds. All
 * functions are thread-safe; one thread at a time uses an entry or a send descriptor.
 */
#ifndef GPUSYM_COMMON_P2P_SEND_DESC_H
#define GPUSYM_COMMON_P2P_SEND_DESC_H

#include "mca/common/gpusym/shm/pages.h"

/* Messages that a process can offer at a time. */
#define GPUSYM_SEND_DESC_MAX 4096u
/* Slots: a process's number among those of its job on this host is below. */
#define GPUSYM_SEND_DESC_SLOTS 1024u
/* Bytes of an RTS: index of the entry (2), low bytes of its number (4), a check (1). */
#define GPUSYM_RTS 7u
/* Bytes that an entry has room for: data, or the flow of a pipeline. Whole cache lines. */
#define GPUSYM_SEND_DESC_ROOM 384u
/* Of them, at the end, what a MAPPED message's note to its receiver takes. */
#define GPUSYM_SEND_DESC_NOTE 32u

/* ---- set-up ---- */

/* Opens the table of this process. slot: its number on this host.  Pages must be open.  Idempotent.
 * GPUSYM_ERR_NOT_AVAILABLE: there are no pages, the slot is too large, or the table is open with another slot. */
int gpusym_send_descs_open(unsigned slot);
/* Forgets the table and all attached peers, which are told. Call it before gpusym_pages_close.  Idempotent. */
void gpusym_send_descs_close(void);

/* Attaches a peer's table: from now on the peer may decide to send RTS messages here.  peer_slot: the peer's number,
 * which its table must tell too.  The own process is a peer as well.  GPUSYM_ERR_NOT_AVAILABLE: our table or the peer's
 * is not open, or of another version; GPUSYM_ERR_CORRUPT: the table is another slot's. */
int gpusym_send_descs_attach(gpusym_peer_t *peer, unsigned peer_slot);

/* Sender: returns whether the peer in that slot has attached this table. */
bool gpusym_send_descs_attached_by(unsigned slot);
/* Sender: returns whether that slot gets RTS messages.  The first call decides, for ever.  About 1 ns later on. */
bool gpusym_send_descs_decide(unsigned slot);
/* Receiver: returns whether 7-byte messages from a peer to us are RTS messages.  Call it when a message has arrived. */
bool gpusym_send_descs_from(gpusym_peer_t *peer);

/* Receiver: tells a peer whether messages that it sends from host memory are received into GPU memory here.  A few ns
 * where it has been told so already.  Any thread. */
void gpusym_send_descs_tell_gpu(gpusym_peer_t *peer, bool into_gpu);
/* Sender: returns whether the peer in that slot has told so.  Until it tells, it does not receive into GPU memory. */
bool gpusym_send_descs_into_gpu(unsigned slot);
/* Sender: returns a word, valid until gpusym_send_descs_close, that is 0 as long as no peer has told so.  NULL: the
 * table is not open. */
const uint32_t *gpusym_send_descs_any_into_gpu(void);

/* Tells the peers that this process uses the GPU of this uuid; at most GPUSYM_SEND_DESC_GPUS count.  Any thread. */
#define GPUSYM_SEND_DESC_GPUS 4u
void gpusym_send_descs_use_gpu(const uint8_t uuid[16]);
/* Returns whether an attached peer has told so too, as far as is known now.  About 20 ns for each peer. */
bool gpusym_send_descs_gpu_shared(const uint8_t uuid[16]);

/* ---- what is offered ---- */

typedef enum {
    GPUSYM_SEND_DESC_INLINE = 1, /* the data are in the entry */
    GPUSYM_SEND_DESC_MAPPED,     /* they are in the sender's memory that has this key (memory/reg.h), at this offset */
    GPUSYM_SEND_DESC_PIPELINE,   /* they come through a pipeline (pipeline.h), whose flow the entry holds */
    GPUSYM_SEND_DESC_PINNED, /* they are in the sender's host memory, from where it pushes them if it is asked to, or
                               * sends them through a pipeline */
    GPUSYM_SEND_DESC_FAILED, /* there are none: the sender could not read them */
} gpusym_send_desc_kind_t;

/* A message. */
typedef struct {
    uint64_t context; /* of the communicator, alike on both sides */
    int32_t tag;
    uint32_t to;    /* the receiver's slot */
    uint64_t bytes; /* of the message */
    /* Where the data are; fields that the kind does not use are 0. */
    uint32_t kind;  /* gpusym_send_desc_kind_t */
    uint32_t key;   /* MAPPED: see gpusym_reg_map */
    uint64_t off;   /* MAPPED: in that memory, in bytes */
    int32_t gpu;    /* the sender's number of its GPU, for messages; -1: host memory */
    uint32_t flags; /* the user's */
} gpusym_offer_t;

/* States of an entry, as both sides see them. */
typedef enum {
    GPUSYM_SEND_DESC_OFFERED = 1,
    GPUSYM_SEND_DESC_CLAIMED,        /* the receiver moves the data */
    GPUSYM_SEND_DESC_PUSH_ASKED,     /* the receiver asks the sender to move them; it may take that back */
    GPUSYM_SEND_DESC_PIPELINE_ASKED, /* the receiver asks the sender to send them through a pipeline */
    GPUSYM_SEND_DESC_PIPELINING,     /* it does, or should begin to */
    GPUSYM_SEND_DESC_PUSHING,        /* the sender moves them */
    GPUSYM_SEND_DESC_PUSHED,         /* the sender has moved them, or failed */
    GPUSYM_SEND_DESC_DONE,           /* the receiver has ended the send descriptor */
} gpusym_send_desc_state_t;

/* Where a receiver wants its data pushed. */
typedef struct {
    uint32_t key; /* of the receiver's memory */
    uint64_t off; /* in that memory, in bytes */
    uint64_t bytes;
} gpusym_push_t;

/* ---- the sender's side ---- */

/*
 * Offers a message. Gets the index of its entry, and the RTS to send.  data: o->bytes bytes of host memory,
 * copied into the entry, where o->kind is INLINE.  With PIPELINE, the flow to begin with, GPUSYM_SEND_DESC_ROOM bytes,
 * or NULL: zeroes.  With MAPPED, a note for the receiver, GPUSYM_SEND_DESC_NOTE bytes, or NULL.  Else NULL.  The caller
 * calls gpusym_send_desc_free, or gpusym_send_desc_withdraw where the RTS could not be sent. About 0.1 us.
 * GPUSYM_ERR_NOT_AVAILABLE: the table is full; GPUSYM_ERR_BAD_PARAM: more bytes than an entry holds, no such slot, no
 * such kind.
 */
int gpusym_send_desc_offer(const gpusym_offer_t *o, const void *data, uint32_t *index, uint8_t rts[GPUSYM_RTS]);
/* Returns the state of an entry. *status: with PUSHED and DONE what was told there, else 0. GPUSYM_ERR_CORRUPT: the
 * entry holds what neither side writes. */
int gpusym_send_desc_state(uint32_t index, int *status);
/* Changes where the data of a message are, while nobody has claimed it: the receiver sees the old place or the new one.
 * o: kind, key, off, gpu and flags; the kind was MAPPED before.  data: as for gpusym_send_desc_offer; not so
 * much that it reaches the place of a note that there was.
 * GPUSYM_ERR_NOT_AVAILABLE: it is claimed; GPUSYM_ERR_BAD_PARAM. */
int gpusym_send_desc_change(uint32_t index, const gpusym_offer_t *o, const void *data);
/* Takes back an offer whose RTS was not sent, and frees the entry. GPUSYM_ERR_NOT_AVAILABLE: it is claimed. */
int gpusym_send_desc_withdraw(uint32_t index);
/* Takes on a push that the receiver asks for. GPUSYM_ERR_NOT_AVAILABLE: it does not ask, or no longer;
 * GPUSYM_ERR_CORRUPT: it asks for more than the message has. */
int gpusym_send_desc_take_push(uint32_t index, gpusym_push_t *push);
/* Tells the receiver that the push has ended: status 0 or an error of common.h. */
void gpusym_send_desc_pushed(uint32_t index, int status);
/* Takes on a pipeline that the receiver asks for, of a message that it cannot map: the room is then a flow, zeroed. The
 * caller goes on with gpusym_pipeline_send. GPUSYM_ERR_NOT_AVAILABLE: it does not ask; GPUSYM_ERR_CORRUPT. */
int gpusym_send_desc_take_pipeline(uint32_t index);
/* Tells the receiver that the memory that was offered holds the data by now, where the flags of the offer say that it
 * may not yet; or that it never will: status 0 or an error of common.h. Once an offer. */
void gpusym_send_desc_filled(uint32_t index, int status);
/* Returns the room of an entry, GPUSYM_SEND_DESC_ROOM bytes, 64-byte aligned: a pipeline's flow, which both sides
 * write. */
void *gpusym_send_desc_room(uint32_t index);
/* Frees an entry that is DONE, or whose receiver is dead. */
void gpusym_send_desc_free(uint32_t index);
/* Returns the number of entries in use. */
unsigned gpusym_send_descs_live(void);

/* ---- the receiver's side ---- */

/* A claimed send descriptor. */
typedef struct {
    gpusym_peer_t *peer;  /* the sender */
    uint32_t index;       /* of its entry */
    uint64_t number;      /* of the offer, among all of that sender */
    gpusym_offer_t offer; /* what it says; key and off are checked where they are used */
    /* INLINE: the data; PIPELINE: the flow; MAPPED: the note, at its end.  In the sender's pages, valid until
     * gpusym_send_desc_end. */
    void *room;
} gpusym_send_desc_t;

/*
 * Claims the send descriptor that an RTS names. GPUSYM_ERR_CORRUPT: the peer has sent no such RTS, it has been claimed
 * and ended, or the entry is damaged; GPUSYM_ERR_NOT_AVAILABLE: another thread of this process has claimed it, for an
 * RTS that was cut to less than 2 bytes (see below).
 */
int gpusym_send_desc_claim(gpusym_peer_t *peer, const uint8_t rts[GPUSYM_RTS], gpusym_send_desc_t *p);
/*
 * Claims the oldest send descriptor from peer to us in that context and with that tag whose RTS begins with these
 * bytes: what a receive of less than GPUSYM_RTS bytes leaves of it.  Two bytes name it exactly.
 * GPUSYM_ERR_NOT_AVAILABLE: there is none; GPUSYM_ERR_CORRUPT: it is damaged.
 */
int gpusym_send_desc_claim_oldest(gpusym_peer_t *peer, uint64_t context, int32_t tag, const uint8_t *rts,
                                  unsigned length, gpusym_send_desc_t *p);
/* For probes: gets the bytes of the oldest send descriptor from peer to us that nobody has claimed.  Where several
 * threads receive in that context with that tag, it may be another message's. GPUSYM_ERR_NOT_AVAILABLE: there is none.
 */
int gpusym_send_desc_oldest_bytes(gpusym_peer_t *peer, uint64_t context, int32_t tag, uint64_t *bytes);

/* Returns the state of a claimed send descriptor, and with PUSHED the status. GPUSYM_ERR_CORRUPT: the entry is no
 * longer that send descriptor's. */
int gpusym_send_desc_state_of(const gpusym_send_desc_t *p, int *status);
/* Returns 1 if the memory holds the data (gpusym_send_desc_filled), 0 if not yet, GPUSYM_ERR if it never will. */
int gpusym_send_desc_is_filled(const gpusym_send_desc_t *p);
/* Asks the sender to push. push->bytes: at most the message's. */
int gpusym_send_desc_ask_push(gpusym_send_desc_t *p, const gpusym_push_t *push);
/* Takes that back. GPUSYM_ERR_NOT_AVAILABLE: the sender pushes or has pushed. */
int gpusym_send_desc_take_back(gpusym_send_desc_t *p);
/* Asks the sender for a pipeline, also after a push that failed; gpusym_pipeline_receive does. */
int gpusym_send_desc_ask_pipeline(gpusym_send_desc_t *p);
/* Begins the pipeline that is offered, or whose data the flow names; gpusym_pipeline_receive does. */
int gpusym_send_desc_begin_pipeline(gpusym_send_desc_t *p);
/* Ends a send descriptor that is CLAIMED, PIPELINING or PUSHED: the data have been received, or it failed.  status: 0
 * or an error of common.h, which the sender gets. */
void gpusym_send_desc_end(gpusym_send_desc_t *p, int status);

#endif
