/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams: pieces between two processes, both ways, over any transport (net/net.h).
 *
 * Each end has a ring of piece buffers, into which the other end sends.  Messages overtake each other, so a piece goes
 * to the buffer of its number, and the receiver reads those that have landed without a gap:
 *
 *     released        read           landed                released + pieces
 *        |  in use      |   ready      |  landed, or to come  |                    all rise
 *
 * A sender never has more pieces out than the ring has buffers: the receiver tells how far it has released the ring in
 * every head that goes back, and by a message of its own once half of the ring is released.  So whatever may come has
 * its place; what has none is dropped and counted.
 *
 * A stream that was left midway begins a new generation at both ends.  An end sends pieces once the other end has said
 * hello in the same generation, so that none comes too early; late ones of earlier generations are dropped.
 *
 * No function waits.  One thread at a time uses all streams of a net.
 */
#ifndef GPUSYM_COMMON_NET_STREAM_H
#define GPUSYM_COMMON_NET_STREAM_H

#include "mca/common/gpusym/net/net.h"

/* The streams of a process over one net, and the memory of their rings. */
typedef struct gpusym_net_streams gpusym_net_streams_t;
/* One end of a stream. */
typedef struct gpusym_net_stream gpusym_net_stream_t;

/* A message that is being sent.  The caller owns it, and sets what of the head is the user's (call, stage, record).  It
 * must stay as it is, with its data, until `sent` is 1. */
typedef struct {
    gpusym_net_head_t head;
    uint32_t sent; /* 1: the transport no longer needs the memory. Set by the stream */
} gpusym_net_message_t;

typedef struct {
    const gpusym_transport_t *transport;
    gpusym_net_devices_t devices;
    uint32_t piece_bytes; /* the longest piece of any stream */
    void *memory;         /* for rings and ranges, page-aligned, for example pinned; the caller's again after close */
    uint64_t bytes;       /* of it */
    void *arg;            /* the first argument of what follows, which progress and close call, and which may send */
    /* A note has come.  owner: the stream's.  Notes belong to no generation: the user looks at the call.  NULL: notes
     * are dropped. */
    void (*note)(void *arg, void *owner, const gpusym_net_head_t *head);
    /* As in gpusym_net_user_t; owner: the peer's. */
    void (*lost)(void *arg, void *owner, const char *why);
} gpusym_net_streams_params_t;

/* Opens a net with no stream.  On failure *why is a text that stays valid until the next open. */
int gpusym_net_streams_open(const gpusym_net_streams_params_t *params, gpusym_net_streams_t **streams,
                            const char **why);
/* Closes the net, then frees all streams.  What is being sent is the caller's again.  NULL is accepted. */
void gpusym_net_streams_close(gpusym_net_streams_t *streams);
/* Moves everything on.  Returns whether anything happened. */
bool gpusym_net_streams_progress(gpusym_net_streams_t *streams);
/* Returns the net, for its address, peers and counters. */
gpusym_net_t *gpusym_net_streams_net(gpusym_net_streams_t *streams);
/* Returns the bytes of the memory that rings and allocated ranges take, each in whole pages of 4 KiB. */
uint64_t gpusym_net_streams_used(const gpusym_net_streams_t *streams);
/* Allocates a range of the memory at *p, page-aligned, undefined, for what the caller sends.  GPUSYM_ERR_NO_MEMORY:
 * none of that size is free; GPUSYM_ERR_BAD_PARAM: bytes is 0.  The caller frees it with the same bytes, before close,
 * once nothing is being sent from it. */
int gpusym_net_streams_alloc(gpusym_net_streams_t *streams, uint64_t bytes, void **p);
void gpusym_net_streams_free(gpusym_net_streams_t *streams, void *p, uint64_t bytes);
/* Uses no more than the first `bytes` of the memory from now on.  GPUSYM_ERR_BAD_PARAM: more is used already. */
int gpusym_net_streams_cut(gpusym_net_streams_t *streams, uint64_t bytes);

/* Both ends know all of this: MPI tells it when the communicator is set up. */
typedef struct {
    gpusym_net_peer_t *peer;      /* not owned; open until the stream is closed */
    uint64_t token_in, token_out; /* of what comes and what goes; the other end has them the other way round */
    uint16_t channel;             /* of those with the same tokens */
    uint16_t generation;          /* the first one */
    uint32_t pieces_in;           /* buffers of the ring here: 0 or a power of two up to GPUSYM_NET_PIECES_MAX */
    uint32_t pieces_out;          /* of the ring at the other end */
    uint32_t bytes_in, bytes_out; /* of a buffer in these rings: a multiple of 64, at most piece_bytes */
    void *owner;                  /* is handed to note() */
} gpusym_net_stream_params_t;
#define GPUSYM_NET_PIECES_MAX 1024u

/* Opens an end of a stream; the other end may open later.  GPUSYM_ERR_NO_MEMORY: there is no room for the ring;
 * GPUSYM_ERR_BAD_PARAM: there is such a stream (the same token_in and channel), or a size is none. */
int gpusym_net_stream_open(gpusym_net_streams_t *streams, const gpusym_net_stream_params_t *params,
                           gpusym_net_stream_t **stream);
/* Closes an end.  False: a message is still landing or being sent; call it again after the next progress.  Messages
 * that come later are dropped. */
bool gpusym_net_stream_close(gpusym_net_stream_t *stream);
/* Begins another generation: nothing is out, nothing has landed.  The other end does the same, sooner or later; until
 * then there is no room.  What is being sent stays under way until its `sent`; no buffer of the ring may be in use. */
void gpusym_net_stream_reset(gpusym_net_stream_t *stream, uint16_t generation);

/* Returns how many pieces of at most bytes_out bytes can be sent now. */
uint32_t gpusym_net_stream_room(const gpusym_net_stream_t *stream);
/* Returns the same for pieces of so many bytes.  0 as well if that is too long: more than piece_bytes, or than the
 * buffers that a piece may take (2 of 4, 4 of 16, 8 of 32). */
uint32_t gpusym_net_stream_room_for(const gpusym_net_stream_t *stream, uint32_t bytes);
/* Sends a piece, for which there must be room.  One that is longer than bytes_out takes several buffers in a row, and
 * skips up to as many.  Errors as the transport's send: the stream is as it was. */
int gpusym_net_stream_send(gpusym_net_stream_t *stream, gpusym_net_message_t *message, const void *data,
                           uint32_t bytes);
/* Sends a head alone, which needs no room, and may come before the pieces sent earlier.  The receiver hands it to
 * note(). */
int gpusym_net_stream_note(gpusym_net_stream_t *stream, gpusym_net_message_t *message);

/* Gets the next piece, in the order in which they were sent: its head and data, in the ring.  False: it has not landed.
 * About 2 ns. */
bool gpusym_net_stream_read(gpusym_net_stream_t *stream, const gpusym_net_head_t **head, const void **data);
/* Gives the buffers of the oldest pieces that were read back to the sender.  The other end learns of it by the next
 * head, or by progress. */
void gpusym_net_stream_release(gpusym_net_stream_t *stream, uint32_t pieces);

#endif
