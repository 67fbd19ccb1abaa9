/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The net: messages between processes of several hosts.  A transport is one table of functions: net/net_ucx.c has one
 * for UCX's active messages, the unit tests have one with delay, loss and other orders (test/unit/net_fake.h).  Streams
 * of pieces over a transport, with their memory and credits, are in net/stream.h.
 *
 * A message is a head of 56 bytes and the data that it names, in host memory.  Messages overtake each other.  None is
 * lost or doubled as long as the peer is not lost; a cut link loses nothing and delivers nothing, and no transport
 * reports it for minutes.
 *
 * No function waits.  One thread at a time uses a net and all of its peers; it need not be the same one each time.
 */
#ifndef GPUSYM_COMMON_NET_NET_H
#define GPUSYM_COMMON_NET_NET_H

#include "mca/common/gpusym/common.h"

/* What a message is for.  Streams send all of these (net/stream.h). */
typedef enum {
    GPUSYM_NET_DATA,   /* a piece or a part of one, which has its place in the receiver's ring */
    GPUSYM_NET_CREDIT, /* tells how far the receiver has released its ring; no data */
    GPUSYM_NET_HELLO,  /* begins a generation; no data */
    GPUSYM_NET_NOTE,   /* a head alone for the stream's user: a record, an abort; no data */
    GPUSYM_NET_KINDS
} gpusym_net_kind_t;

/* The mark of a head: its layout and its byte order. */
#define GPUSYM_NET_MARK 0x4701u

/* The head of a message, as it is on the wire.  The streams fill in what is marked with *; the rest is the user's. */
typedef struct {
    uint64_t token;      /* * names communicator, sender and receiver: random, told by MPI */
    uint64_t record[2];  /* of the agreement between hosts */
    uint32_t call;       /* of the communicator */
    uint32_t number;     /* * of the piece in its stream and generation, from 0, wraps around; a hello: 1: an answer */
    uint32_t credit;     /* * the sender of this head has released all pieces below this number */
    uint32_t bytes;      /* * of the data that follow */
    uint32_t whole;      /* * bytes of the piece that these are a part of */
    uint8_t part;        /* * which part of it, from 0, */
    uint8_t parts;       /* * of how many; no data: 0 */
    uint8_t buffers;     /* * of the ring that the piece takes: a power of two, of which `number` is a multiple */
    uint8_t skipped;     /* * numbers before this one that no piece has */
    uint16_t generation; /* * of the stream */
    uint16_t channel;    /* * of the streams that have the same token */
    uint16_t mark;       /* * GPUSYM_NET_MARK */
    uint8_t stage;       /* of the call's plan */
    uint8_t kind;        /* * gpusym_net_kind_t */
} gpusym_net_head_t;
_Static_assert(sizeof(gpusym_net_head_t) == 56, "no padding: the head is sent as it is");

/* The functions that a net calls, all from within progress() or, where that says so, from another function of the net.
 * They may call send(), and no other function of the net. */
typedef struct {
    void *arg; /* their first argument */
    /* Returns where the data of a message go: head->bytes bytes, which the net writes until it calls landed.  Without
     * data, any pointer accepts the message.  NULL: the message is dropped and counted.  The net has checked the mark,
     * the kind, and that the data are head->bytes bytes, none where the kind has none; all else may be any value. */
    void *(*place)(void *arg, const gpusym_net_head_t *head);
    /* Tells that a message has landed where place said, once for each; whole false: its data will never be complete,
     * and the net writes there no longer. */
    void (*landed)(void *arg, const gpusym_net_head_t *head, bool whole);
    /* Tells that a peer is lost, at most once: nothing more comes from or goes to it.  owner: as given to peer_open.
     * The user still closes it, later.  why: valid until the function returns. */
    void (*lost)(void *arg, void *owner, const char *why);
} gpusym_net_user_t;

/* Network devices, as the transport names them, separated by commas; NULL or "": none. */
typedef struct {
    const char *only; /* to use these; none: all */
    /* Advice where there are no such ones, which the transport does not follow if the user has told it which to use, or
     * if it lacks one of the nearest: */
    const char *nearest; /* of RDMA devices to use these only */
    const char *astray;  /* of interfaces with TCP not to use these */
} gpusym_net_devices_t;

typedef struct {
    gpusym_net_user_t user;
    uint32_t bytes_max; /* of a message's data; longer ones that arrive are dropped.  At most GPUSYM_NET_BYTES_MAX */
    gpusym_net_devices_t devices;
} gpusym_net_params_t;

/* The largest piece. */
#define GPUSYM_NET_BYTES_MAX (1u << 30)

/* What a net has done. */
typedef struct {
    uint64_t sent, sent_bytes;     /* messages handed to the transport; bytes of their data */
    uint64_t landed, landed_bytes; /* messages that landed whole */
    uint64_t dropped;              /* messages that were not accepted, here or by place() */
    uint64_t lost;                 /* peers */
} gpusym_net_counters_t;

/* An open net: this process's end of it.  Owned by the transport. */
typedef struct gpusym_net gpusym_net_t;
/* A process that messages go to.  Owned by its net. */
typedef struct gpusym_net_peer gpusym_net_peer_t;

/* A transport.  Functions that can fail return GPUSYM_SUCCESS or a negative error. */
typedef struct {
    const char *name; /* "ucx" */

    /* Opens a net; the parameters are copied.  20 to 100 ms.  On failure *why is a text that stays valid until the next
     * open.  The caller closes the net. */
    int (*open)(const gpusym_net_params_t *params, gpusym_net_t **net, const char **why);
    /* Closes a net, and the peers that are left.  The memory of all sends is the caller's then; *sent of those under
     * way may stay 0.  Calls landed(whole false) for messages that are landing.  May take 0.1 s for peers of this host
     * that have ended.  NULL is accepted. */
    void (*close)(gpusym_net_t *net);

    /* Returns the address of this process, for peers: up to about 1 KiB, valid until close. */
    const void *(*address)(gpusym_net_t *net, size_t *bytes);

    /* Opens a peer by its address, which is copied.  inside: the peer is a process of this host, whose death the
     * caller finds out by itself (shm/process.h): lost() may never be called for it.  Does not wait until the peer is
     * there.  owner: is handed to lost().  GPUSYM_ERR_UNREACHABLE: no transport leads to this address. */
    int (*peer_open)(gpusym_net_t *net, const void *address, size_t bytes, bool inside, void *owner,
                     gpusym_net_peer_t **peer);
    /* Closes a peer.  Messages under way to it may be lost; their sends end now or in a later progress().  Of two
     * peers, the one that closes last sees the other one as lost: they agree on the end of their work before that.
     * Not from within callbacks. */
    void (*peer_close)(gpusym_net_peer_t *peer);

    /* Sends a head, and head->bytes bytes of data.  Head and data must stay as they are until *sent, which the caller
     * has set to 0, becomes 1: at once, or in a progress(), peer_close() or close().  1 tells that the memory is free,
     * not that the message has landed; the sends of a lost peer end too.  GPUSYM_ERR_UNREACHABLE: the peer is lost;
     * GPUSYM_ERR_NO_MEMORY: later, perhaps.  On failure nothing is sent and *sent stays as it is. */
    int (*send)(gpusym_net_peer_t *peer, const gpusym_net_head_t *head, const void *data, uint32_t *sent);

    /* Returns how many bytes of data a message to the peer should have at most: longer ones take longer than two.
     * UINT32_MAX: no limit.  NULL: the same. */
    uint32_t (*part_bytes)(gpusym_net_peer_t *peer);

    /* Moves everything on, as far as it goes without waiting.  Returns whether anything happened.  UCX: 0.01 us (shared
     * memory) to 2 us (TCP) if nothing did. */
    bool (*progress)(gpusym_net_t *net);

    /* Tells each network device of this host, once for each of its ways, by the names that params.devices takes:
     * "eth0", "tcp". Needs no open net.  NULL: the transport knows none. */
    void (*devices)(void (*tell)(void *arg, const char *device, const char *way), void *arg);

    /* Describes the way to a peer for verbose lines: "tcp/eth0, eager". */
    void (*describe)(gpusym_net_peer_t *peer, char *text, size_t size);
    /* Returns the counters, which count on until close. */
    const gpusym_net_counters_t *(*counters)(gpusym_net_t *net);
} gpusym_transport_t;

/* Returns UCX as a transport.  The first call opens the library that knows UCX, which stays loaded.  NULL: this machine
 * or this build has no UCX; *why is a static text.  The signal handlers of the program stay what they are.  Any
 * thread. */
const gpusym_transport_t *gpusym_transport_ucx(const char **why);

/* ---- for transports ---- */

/* Checks a message that has arrived: header_bytes bytes at header, which may be unaligned, and data_bytes bytes of
 * data.  Copies the head to *head.  False: it is none; drop it. */
bool gpusym_net_check(const void *header, size_t header_bytes, uint64_t data_bytes, uint32_t bytes_max,
                      gpusym_net_head_t *head);

#endif
