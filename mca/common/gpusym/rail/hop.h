/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One hop: streams to the other processes of a rail, pieces sent and read, kernels; the state of the call under way.
 */
#ifndef GPUSYM_COMMON_RAIL_HOP_H
#define GPUSYM_COMMON_RAIL_HOP_H

#include "mca/common/gpusym/exec/copier.h"
#include "mca/common/gpusym/exec/job.h"
#include "mca/common/gpusym/rail/call.h"
#include "tuning/tree.h"

/* Steps of a channel under way. */
#define GPUSYM_RAIL_FLIGHTS (2u * GPUSYM_RAIL_PIECES)

/* What moves data of the call: a kernel that was launched, or a copy. */
typedef struct {
    uint32_t lane, seq; /* of the kernel; seq: of the copy */
    bool is_copy;
} gpusym_rail_work_t;

/* A step that has begun. */
typedef struct {
    gs_step_t step;
    uint64_t bytes;                         /* 0: it has nothing to do */
    uint32_t unsent;                        /* links on which the piece is still to be sent */
    uint32_t unread;                        /* links whose piece has not landed */
    bool found;                             /* step and bytes are known */
    bool launched;                          /* filled, work: */
    bool forwards;                          /* what has landed is sent as it is, from its ring */
    gpusym_rail_work_t filled;              /* the kernel behind which the send buffer is filled */
    gpusym_rail_work_t work;                /* its last kernel, on the same lane */
    int buffer;                             /* the send buffer that it holds; -1: none */
    const char *piece[GS_LINKS];            /* that have landed */
    gpusym_net_message_t message[GS_LINKS]; /* being sent */
} gpusym_rail_flight_t;

/* A part of a message on its path. */
typedef struct {
    gs_schedule_t schedule;
    uint32_t steps; /* in all */
    gpusym_net_stream_t *stream[GS_LINKS];
    uint64_t from, to, chunk; /* the channel's bytes of the message, or of a part; of a step */
    uint32_t begun, ended;    /* steps */
    gpusym_rail_flight_t flight[GPUSYM_RAIL_FLIGHTS];
    char *send; /* buffers, GPUSYM_RAIL_PIECES if they have piece_bytes */
    uint32_t buffer_bytes;
    uint32_t free_buffers; /* as bits */
} gpusym_rail_channel_t;

/* What goes directly to a process, and comes from it. */
typedef struct {
    gpusym_net_stream_t *stream; /* NULL: nothing does */
    uint64_t begun, sent;        /* bytes of its part: that pieces were begun for, handed to the stream */
    uint64_t landed;             /* bytes that have come from there */
    const char *piece;           /* the last of them */
} gpusym_rail_pair_t;

/* Direct pieces under way to others: of the send buffers, at most. */
#define GPUSYM_RAIL_SENDING GPUSYM_RAIL_FLIGHTS

/* A direct piece on its way to one process, or to all others. */
typedef struct {
    bool busy;
    uint32_t pos, count; /* the process; copies */
    uint64_t first;      /* byte of its part */
    uint32_t bytes;
    gpusym_rail_work_t filled; /* the buffer */
    uint32_t unsent;           /* copies that are still to be sent, as bits */
    char *data;                /* the buffer */
    gpusym_net_message_t message[GPUSYM_RAIL_DIRECT_MAX];
} gpusym_rail_piece_t;

/* What has landed from `pos` is stored. */
typedef struct {
    uint32_t pos;
    gpusym_rail_work_t work;
} gpusym_rail_store_t;

typedef struct {
    gpusym_rail_piece_t sending[GPUSYM_RAIL_SENDING];
    bool swaps;        /* what goes to a process makes room for what comes from it */
    uint32_t distance; /* rounds before that are over: all that is for their processes has been sent */
    gpusym_rail_store_t store[GPUSYM_RAIL_FLIGHTS];
    uint32_t storing, stored; /* begun, ended */
    bool own_begun;           /* the own part, or the sum */
    bool own_stores;          /* it goes to outputs: */
    gpusym_rail_work_t own;
} gpusym_rail_direct_t;

/* A tree; blocks are numbered as tree.c has them. */
typedef struct {
    uint32_t degree, children;         /* children: of this process */
    uint32_t unread;                   /* children, as bits, whose data are to come from below */
    uint32_t told;                     /* ... that have the result, or to which it is being sent */
    bool gathered;                     /* what goes up is there */
    bool rises, falls;                 /* it is still to be sent; the result is still to come */
    bool rose;                         /* it was sent */
    bool finishing;                    /* the outputs are being stored */
    uint32_t result;                   /* the block of what goes up, then of the result */
    gpusym_rail_work_t filled, stored; /* the own block; the outputs */
    uint32_t telling;                  /* children to which it is or was being sent */
    gpusym_net_message_t up, down[GPUSYM_TREE_DEGREE_MAX];
} gpusym_rail_tree_t;

/* Short copies that wait for the copier, or are being made, at most. */
#define GPUSYM_RAIL_COPIES 4u
/* The lane of those that are launched. */
#define GPUSYM_RAIL_COPY_LANE 2u

/* An exchange (kernels/work.h): one command of the copier in place of a copy to the host and another one back. */
typedef struct {
    gpusym_copier_t *copier; /* NULL: none is under way */
    char *to;                /* where the inputs go, reduced */
    const char *answer;      /* what goes to the outputs; NULL: it is not there yet */
} gpusym_rail_exchange_t;

typedef struct {
    gpusym_copier_run_t run[GPUSYM_RAIL_COPIES];
    uint32_t queued, ended;
    gpusym_rail_exchange_t exchange; /* makes the next one that ends; `copier` does not */
    gpusym_copier_t *copier;         /* makes the next one that ends; NULL: it does not */
    bool by_launch;                  /* a kernel does */
    gpusym_rail_work_t launched;
    int error;
} gpusym_rail_copies_t;

struct gpusym_rail {
    gpusym_rail_params_t params;
    gpusym_rail_call_t call;
    const char *in[GPUSYM_TEAM_MAX]; /* of the call: all inputs, all outputs */
    char *out[GPUSYM_TEAM_MAX];
    uint32_t nin, nout;
    /* Of the call under way, or that has failed: kernels of different lanes run side by side. NULL: not used yet. */
    gpusym_lane_t *lane[GPUSYM_RAIL_CHANNELS];
    uint32_t polls; /* of it */
    void *ticket;   /* GPU memory for launches of several blocks */
    uint32_t sm_count;
    gpusym_net_stream_t **stream; /* [GPUSYM_RAIL_STREAMS][n]; NULL: not open yet */
    gpusym_rail_channel_t channel[GPUSYM_RAIL_CHANNELS];
    uint32_t nchannels;
    gpusym_rail_direct_t direct;
    gpusym_rail_tree_t tree;
    gpusym_rail_copies_t copies;
    gpusym_rail_pair_t *pair; /* [n] */
    gpusym_rail_counters_t counters;
};

/* Gets the stream of a number to the process at pos; opens it first.  GPUSYM_SUCCESS or an error. */
int gpusym_rail_stream(gpusym_rail_t *rail, uint32_t number, uint32_t pos, gpusym_net_stream_t **stream);
/* Whether an input of the call is one of its outputs. */
bool gpusym_rail_in_place(const gpusym_rail_t *rail);
/* Sets src to the call's inputs, from byte off on.  Returns how many these are. */
uint32_t gpusym_rail_inputs(const gpusym_rail_t *rail, uint64_t off, const void **src);
/* Sets dst to the call's outputs, from byte off on, for a launch: where there is one source, it passes over that. */
uint32_t gpusym_rail_outputs(const gpusym_rail_t *rail, uint64_t off, const void *const *src, uint32_t nsrc,
                             void **dst);
/* Queues a kernel on a lane: the sources, reduced if there are several, go to all destinations.  All are addresses of
 * the GPU; at most GPUSYM_TEAM_MAX of each. */
int gpusym_rail_launch(gpusym_rail_t *rail, uint32_t lane, const void *const *src, uint32_t nsrc, void *const *dst,
                       uint32_t ndst, uint64_t bytes, gpusym_rail_work_t *work);
/* The same for a scan: to each destination go the n sources up to its own (exclusive: before it), reduced; the last
 * source may be NULL, and any destination. */
int gpusym_rail_launch_scan(gpusym_rail_t *rail, uint32_t lane, const void *const *src, void *const *dst, uint32_t n,
                            bool exclusive, uint64_t bytes, gpusym_rail_work_t *work);
/* Whether a kernel or a copy has ended. */
bool gpusym_rail_ended(const gpusym_rail_t *rail, const gpusym_rail_work_t *work);
/* The address for the GPU of a byte of the pinned memory. */
char *gpusym_rail_device(const gpusym_rail_t *rail, const void *host);
/* Sends a piece of the call; there is room. */
int gpusym_rail_send(gpusym_rail_t *rail, gpusym_net_stream_t *stream, gpusym_net_message_t *message, const void *data,
                     uint32_t bytes);
/* Reads the next piece of the call, of that many bytes.  1: it is there; 0: it has not landed; GPUSYM_ERR_CORRUPT. */
int gpusym_rail_read(gpusym_rail_t *rail, gpusym_net_stream_t *stream, uint64_t bytes, const char **piece);

#endif
