/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a rail is made of, and what its calls are: see rail.h.
 */
#ifndef GPUSYM_COMMON_RAIL_CALL_H
#define GPUSYM_COMMON_RAIL_CALL_H

#include "kernels/schedule.h"
#include "mca/common/gpusym/device/device.h"
#include "mca/common/gpusym/net/stream.h"

/* Parts of a message that go their own way: the wire has some while the GPU has others. As docs/scale.md
 * simulates it, two hosts reach 0.76 of 400 Gbit/s with 2, 0.94 with 4, and no more with 8. */
#define GPUSYM_RAIL_CHANNELS 4u
/* Pieces of a stream on the wire, and send buffers of a channel. */
#define GPUSYM_RAIL_PIECES GS_STEPS
/* Pieces on rings take two buffers of a stream, if the message is long enough; unless they would be longer than this:
 * as docs/scale.md simulates it, 8 MiB between two hosts then take 9 % longer. */
#define GPUSYM_RAIL_LONG_MAX (512u << 10)
#define GPUSYM_RAIL_LONG_BYTES(piece_bytes) \
    (2u * (piece_bytes) <= GPUSYM_RAIL_LONG_MAX ? 2u * (piece_bytes) : (piece_bytes))
/* Bytes of a direct piece, at most. */
#define GPUSYM_RAIL_DIRECT_BYTES(piece_bytes) ((uint64_t) (piece_bytes) / 4)
/* Processes of a rail whose pieces are reduced at once, at most: what a launch has room for. */
#define GPUSYM_RAIL_DIRECT_MAX GPUSYM_TEAM_MAX

/* This process's place on a rail. */
typedef struct gpusym_rail gpusym_rail_t;

/* A process on the rail, as gpusym_net_stream_params_t wants it. */
typedef struct {
    gpusym_net_peer_t *net;
    uint64_t token_in, token_out;
    void *owner;
} gpusym_rail_peer_t;

typedef struct {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;             /* whose kernels move the data; its kernels are loaded */
    bool copier;                   /* short ones may be moved by its copier */
    gpusym_net_streams_t *streams; /* whose pieces have up to GPUSYM_RAIL_LONG_BYTES(piece_bytes) */
    /* Pinned memory in which the streams have their rings, and `send` lies: for the CPU, and for the GPU. */
    char *host, *device;
    char *send;            /* GPUSYM_RAIL_SEND_BYTES(piece_bytes), for this rail alone */
    uint32_t piece_bytes;  /* of a buffer for paths; a multiple of 1024, the same on all processes */
    uint32_t n, pos;       /* processes of the rail, and which of them this one is */
    uint16_t first_stream; /* GPUSYM_RAIL_STREAMS numbers of channels, from this one on, are the rail's */
    /* Gets a process by its place.  Called before the first piece to or from it.  An error ends the call. */
    int (*peer)(void *arg, uint32_t pos, gpusym_rail_peer_t *peer);
    void *arg;
} gpusym_rail_params_t;

/* Streams of a rail to one process: of the channels of paths, and of direct pieces, which are a quarter as long. */
#define GPUSYM_RAIL_STREAMS (GPUSYM_RAIL_CHANNELS + 1u)
#define GPUSYM_RAIL_SEND_BYTES(piece_bytes) ((uint64_t) GPUSYM_RAIL_CHANNELS * GPUSYM_RAIL_PIECES * (piece_bytes))
/* Bytes of rings for one process, at most. */
#define GPUSYM_RAIL_RING_BYTES(piece_bytes)                                \
    ((uint64_t) GPUSYM_RAIL_PIECES * (piece_bytes) *GPUSYM_RAIL_CHANNELS + \
     (uint64_t) GPUSYM_RAIL_PIECES * (piece_bytes) / 4)

/* How the data go. */
typedef enum {
    GPUSYM_RAIL_PATH,   /* along rings, chains or trees: schedule.h */
    GPUSYM_RAIL_DIRECT, /* from each process to each, in one step */
    GPUSYM_RAIL_TREE,   /* along a tree, of at most one direct piece, reduced by the CPU */
} gpusym_rail_form_t;

/* A scan among islands whose ranks stand one behind the other: along GS_CHAIN_REDUCE, to the last process. */
typedef enum {
    GPUSYM_RAIL_NO_SCAN,
    GPUSYM_RAIL_SCAN,   /* to each output what the inputs up to its own are reduced to */
    GPUSYM_RAIL_EXSCAN, /* ... before its own */
} gpusym_rail_scan_t;

/* What of a message belongs to the process at `pos`, in bytes. */
typedef struct {
    uint64_t off, bytes;
} gpusym_rail_part_t;

/* A call, the same on all processes but for the addresses, and what of DIRECT says so. */
typedef struct {
    gpusym_rail_form_t form;
    enum gs_schedule_kind schedule; /* PATH */
    uint32_t root;                  /* PATH: of a broadcast or reduction; DIRECT: with `rooted`; TREE */
    /* PATH, GS_CHAIN_REDUCE, root n - 1.  Outputs are in the order of the inputs, as many, all of them in more_in and
     * more_out; NULL: that rank has none, which is so of the last input of the last process, and any output. */
    gpusym_rail_scan_t scan;
    bool spread;       /* DIRECT: all of `in` goes to each process; at most GPUSYM_RAIL_DIRECT_MAX of them */
    bool rooted;       /* DIRECT with spread, not with `reduces`: a broadcast: only the process at `root` sends, and
                       * `bytes` of its input come at the start of each output; `from` is not looked at.  TREE: the
                       * same; and only that */
    bool reduces;      /* DIRECT with spread: what comes from all, and the own input, goes reduced to out, in rising
                       * order of the processes; at most one direct piece.  TREE: the same, in the tree's order; without
                       * it, `rooted` */
    uint32_t op, type; /* kernels.h; not looked at by what moves only */
    /* Memory that the GPU reaches.  NULL: this process has none, or only further ones.  An input may be an output, but
     * not of a reduce-scatter; of DIRECT without spread on all processes or none, and where `part` and `from` are the
     * same. */
    const void *in;
    void *out;
    /* Further inputs and outputs of this process, as of the other ranks of its island; other processes may have other
     * numbers of them.  None is NULL.  gpusym_rail_start alone reads the arrays.  Inputs are laid out as `in` is; where
     * the call reduces, all are reduced, in the order in, more_in[0], ...: DIRECT, TREE: before anything else, PATH:
     * with what has come on the path; where it does not, there is one in all.  Outputs each get what `out` gets.  With
     * in and out at most GPUSYM_TEAM_MAX of each; PATH: of inputs two fewer on trees, one fewer on rings and chains, of
     * outputs one fewer. */
    uint32_t nin, nout;
    const void *const *more_in; /* [nin] */
    void *const *more_out;      /* [nout] */
    uint64_t bytes;             /* PATH: of the message, or of the longest part */
    /* PATH: the part of the process at pos in the output of an all-gather, or in the input of a reduce-scatter, whose
     * output, or input, is at out, or in.  DIRECT: what of `in` goes to pos; not with `spread`. */
    gpusym_rail_part_t (*part)(const void *arg, uint32_t pos);
    /* DIRECT: where in `out` comes what pos sends, as long as it is there; not with `reduces`. */
    gpusym_rail_part_t (*from)(const void *arg, uint32_t pos);
    const void *arg;
    bool own;      /* the outputs are memory of the rail's GPU */
    bool held;     /* DIRECT, TREE: no output is written before gpusym_rail_release */
    uint32_t call; /* in the heads: what comes of another call is an error */
    uint8_t stage;
} gpusym_rail_call_t;

/* Whether TREE is a form for a call between n processes, by its bytes, and what it reduces: the same on all of them. */
bool gpusym_rail_tree_fits(const gpusym_rail_call_t *call, uint32_t n, uint32_t piece_bytes);

/* What calls have done, in all. */
typedef struct {
    uint64_t launches, copies, pieces, bytes; /* copies: by the copier; pieces and bytes: sent */
} gpusym_rail_counters_t;

#endif
