/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The work descriptor: everything one kernel launch needs, passed by value.
 * Shared by the host (which fills it), the kernels (which read it) and the
 * simulator (which translates its pointers).  Includes nothing of mca/.
 */
#ifndef GPUSYM_KERNELS_WORK_H
#define GPUSYM_KERNELS_WORK_H

#include <stdint.h>

#include "kernels/schedule.h"

/* Largest team one kernel serves: bounded by the 4 KiB of kernel parameters and by what one
 * host holds; larger communicators are staged. */
#define GPUSYM_TEAM_MAX 32
/* Ranks that a descriptor has room for. CUDA takes the longer to launch a kernel the more bytes its parameters have (by
 * a graph, on H200, 0.4 us for each KiB, on a busy host twice that), so the kernels of kernels_few.cu are compiled with
 * a descriptor of fewer: gpusym_work_few() of few.h makes it. */
#define GPUSYM_FEW_RANKS 8
#ifndef GPUSYM_WORK_RANKS
#define GPUSYM_WORK_RANKS GPUSYM_TEAM_MAX
#endif
/* As many others as have room beside the arrays for these ranks, of n for GPUSYM_TEAM_MAX. */
#define GPUSYM_WORK_PART(n) ((n) *GPUSYM_WORK_RANKS / GPUSYM_TEAM_MAX)
/* Most blocks a launch may use: one flag row of the slot header each. */
#define GPUSYM_BLOCKS_MAX 256
/* Threads of a block at most (__launch_bounds__ of every kernel). */
#define GPUSYM_THREADS_MAX 512

/* Most paths of a launch: different rings; of trees there are two. */
#define GPUSYM_PATHS_MAX 8
/* Most channels of a launch of rings, chains, trees: a block, and two flag rows of the slot header each. */
#define GPUSYM_CHANNELS_MAX 64

/* Data move through the heap in packs of 16 bytes; no element straddles one. */
#define GPUSYM_PACK 16

/* Where a kernel ends: low byte of the status in the completion word. */
enum gpusym_status {
    GPUSYM_STATUS_OK = 0,
    GPUSYM_STATUS_ABORTED = 1,      /* the host set the abort word */
    GPUSYM_STATUS_TIMEOUT = 2,      /* a wait outlasted limit_ns; bits 8..15: the team rank waited for */
    GPUSYM_STATUS_NO_MULTICAST = 3, /* a multicast kernel where there are no multimem instructions (before sm_90) */
    GPUSYM_STATUS_MISMATCH = 4,     /* on a stream: a rank is in another call; bits 8..15: which */
    GPUSYM_STATUS_PEER = 5,         /* on a stream: a rank's kernels have failed; bits 8..15: which */
};
/* In a status: a resident kernel has retired, and this call was its last. Nothing has been done of a later one. */
#define GPUSYM_STATUS_RETIRED (1u << 31)
/* In the status of a commanded call that is timed and OK, bits 8..30: how long it took, in units of 32 ns, rounded up;
 * the largest number: at least so long. In others: 0. */
#define GPUSYM_STATUS_TOOK(status) ((status) >> 8 & GPUSYM_TOOK_MAX)
#define GPUSYM_TOOK_MAX 0x7fffffu
#define GPUSYM_TOOK_NS 32u

/* A segment of a user's buffer, in bytes: of `in` what goes to one rank, of `out` what comes from one rank. */
typedef struct gpusym_seg {
    uint64_t off, bytes;
} gpusym_seg_t;

/*
 * The doorbell of a resident kernel: the host writes a whole command into two words of one 16-byte line.  Each half has
 * the number of the call, so that they may arrive in any order.
 *   [0]  input << 16 | bits 0 to 7 of bytes << 8 | bits 0 and 1 of skip << 6 | early << 5 | low 5 bits of the call's
 *        done_seq
 *   [1]  output << 16 | bits 8 to 15 of bytes << 8 | bits 2 and 3 of skip << 6 | bits 16 and 17 of bytes << 4 | low 4
 *        bits of the call's done_seq
 * skip: epochs between the last call's and this one's.  early: this rank's peers may not be in the call, so the kernel
 * waits for them for gpusym_work_t.linger_ns, and then retires.  bytes 0: retire.  Addresses have 48 bits, and messages
 * up to 256 KiB - 1.
 */
#define GPUSYM_COMMAND_BYTES_MAX 0x3ffffu
#define GPUSYM_COMMAND_ADDRESS_BITS 48
#define GPUSYM_COMMAND_NUMBER 0x1fu
#define GPUSYM_COMMAND_NUMBER_AGAIN 0xfu /* of [1] */
#define GPUSYM_COMMAND_SKIP_MAX 15u
#define GPUSYM_COMMAND_EARLY 16u /* beside skip, of commands to kernels of exchanges */

/* A path of channels, as one rank sees it; links as in kernels/schedule.h. */
typedef struct gpusym_path {
    uint8_t pos, links;             /* gs_schedule_t */
    uint8_t peer[GS_LINKS];         /* the rank at the other end, of links that are there */
    uint8_t peer_link[GS_LINKS];    /* which of that rank's links it is */
    uint8_t order[GPUSYM_TEAM_MAX]; /* ring: the rank at each place */
} gpusym_path_t;

/* What a kernel has to do with its GPU's copy engines (symm_ce.h). Masks are of ranks: 1 << rank. */
typedef struct gpusym_copies_work {
    uint32_t whole; /* for gpusym_kernel_plan: the message is one, in slices for the owners; else there are segments */
    uint32_t last;  /* epoch of the call's last chunk */
    uint32_t arrived; /* ranks whose chunks must have arrived, delivered: in our output; up to w->epoch */
    uint32_t delivered;
    uint32_t sent; /* ranks to which our own streams must have sent, up to sent_epoch */
    uint32_t sent_epoch;
    uint64_t off, step; /* of the chunks that arrived, in our slot: of rank p at off + (p - (p > rank)) * step */
} gpusym_copies_t;

/* A copy may end with a signal, and may wait for one: of a copy of another process into memory that the two share. The
 * signal lies behind the data, at the next address of a pack, in LL lines that its number marks. So it needs no memory
 * that was initialized, and what was there before is not taken for it: but for a signal of the same number. */
#define GPUSYM_SIGNAL_LINES 32u /* a lane of a warp each */
#define GPUSYM_SIGNAL_BYTES (GPUSYM_SIGNAL_LINES * 16u)
#define GPUSYM_SIGNAL_OFF(bytes) (((bytes) + 15u) & ~(uint64_t) 15u)

/* What a copy does (gpusym_run_t.does; and in a command the epochs that it skips, of which copies have none): */
#define GPUSYM_COPY_FAR 1u     /* commands: to host memory, or another GPU's */
#define GPUSYM_COPY_PACKS 2u   /* commands: of packs, between addresses of packs; their number in place of bytes */
#define GPUSYM_COPY_SIGNALS 4u /* behind the data it stores the signal: `out` is an address of a pack */
/* It waits for the signal behind the data at `in`, for gpusym_work_t.enter_ns at most. If that does not come it copies
 * nothing, and its status is GPUSYM_STATUS_TIMEOUT. */
#define GPUSYM_COPY_WAITS 8u

/* In place of a copy: inputs go to the host, and the host's answer to outputs; `out` is a gpusym_exchange_t, in pinned
 * host memory, and so says `bytes`: GPUSYM_EXCHANGE_COMMAND. For a kernel of one block that stays. */
#define GPUSYM_COPY_EXCHANGES (GPUSYM_COPY_SIGNALS | GPUSYM_COPY_WAITS)
/* Bytes of an input, and inputs and outputs, at most. */
#define GPUSYM_EXCHANGE_MAX 512u
#define GPUSYM_EXCHANGE_BUFFERS 8u
#define GPUSYM_EXCHANGE_LINES (2u * (GPUSYM_EXCHANGE_MAX / GPUSYM_PACK)) /* two of a pack */
#define GPUSYM_EXCHANGE_COMMAND(bytes, nin, nout) ((uint32_t) (bytes) | ((nin) -1u) << 10 | ((nout) -1u) << 13)

/* An LL line as the host sees it: each half has 4 bytes of data, and above them the number that marks it. */
typedef struct gpusym_ll_line {
    uint64_t half[2];
} gpusym_ll_line_t;

/* Each line is marked by the number of the kernel's command. The kernel waits for the answer for
 * gpusym_work_t.enter_ns at most; what has not come by then it does not store, and marks `late`. */
typedef struct gpusym_exchange {
    void *in[GPUSYM_EXCHANGE_BUFFERS]; /* the host writes these before the command; the first is the command's */
    void *out[GPUSYM_EXCHANGE_BUFFERS];
    gpusym_ll_line_t late;
    gpusym_ll_line_t answer[GPUSYM_EXCHANGE_LINES];
    gpusym_ll_line_t sent[GPUSYM_EXCHANGE_BUFFERS * GPUSYM_EXCHANGE_LINES]; /* of each input as many as it needs */
} gpusym_exchange_t;

/* In place of a copy: the elements at `out`, of `bytes` bytes, are combined with others, and what they were goes to a
 * result; `in` is a gpusym_combine_t, in pinned host memory, 1 to GPUSYM_COMBINE_MAX bytes. For a kernel of one block
 * that stays. It waits for nobody, and is not atomic: who has it done sees to it that nobody else writes `out`. */
#define GPUSYM_COPY_COMBINES (GPUSYM_COPY_EXCHANGES | GPUSYM_COPY_PACKS)
#define GPUSYM_COMBINE_MAX 16384u

/* What it does beside the operations of kernels.def, which are that of `out` and then of the given elements. */
enum gpusym_combine_op {
    GPUSYM_COMBINE_REPLACE = 0x100, /* the given elements go to `out` */
    GPUSYM_COMBINE_COMPARE,         /* the same, if all bytes at `out` are as those to compare with: a pack at most */
};

/* The host writes it before the command, all but `found`. Addresses are those of the GPU. */
typedef struct gpusym_combine {
    const void *given;    /* NULL: `value` has them */
    void *result;         /* NULL: none is wanted. May be `found` */
    const void *compared; /* NULL: `compare` has them, and zeros behind them */
    uint32_t op, type;    /* of kernels.def; or enum gpusym_combine_op, of any type */
    uint64_t compare[GPUSYM_PACK / 8];
    char value[GPUSYM_COMBINE_MAX], found[GPUSYM_COMBINE_MAX];
} gpusym_combine_t;
#define GPUSYM_COMBINE_WORDS 6u /* of 8 bytes, before `value` */

/* With more bytes than a combination has, COMBINES is a list of copies: `in` is an array of gpusym_box_run_t, in pinned
 * host memory, of 1 to GPUSYM_LIST_MAX, and so says `bytes`; `out` is that of the first. Outputs do not overlap. The
 * threads of the block are dealt out to them evenly. */
#define GPUSYM_LIST_MAX 16u
#define GPUSYM_LIST_COMMAND(n) (GPUSYM_COMBINE_MAX + (uint32_t) (n))

/* Blocks of a resident kernel, if they can be a cluster: those beside the first one help with copies of more packs than
 * this, two loads of eight by each thread of a block, and with collectives of more lines than a block has threads. */
#define GPUSYM_CLUSTER_BLOCKS 8u
#define GPUSYM_COPIER_ALONE 4096u

/* Blocks of a copy at most: each has a completion word in gpusym_work_t.done, and, so many words behind it, one that it
 * writes if it has not waited long enough. */
#define GPUSYM_COPY_BLOCKS 64u

/* One of the runs of bytes that a launch copies (symm/copy.h), with blocks of its own. */
typedef struct gpusym_run {
    const void *in;
    void *out;
    uint32_t bytes;
    uint32_t span;         /* packs for a block; from gpusym_run_plan() */
    uint32_t signal;       /* its number */
    uint8_t first, blocks; /* its blocks of the launch; those of runs follow each other */
    uint16_t does;         /* GPUSYM_COPY_SIGNALS, GPUSYM_COPY_WAITS */
} gpusym_run_t;
/* Runs of a launch at most: as many as stand in the room of gpusym_work_t.peer_in and peer_out. */
#define GPUSYM_RUNS_MAX 16u

/* Bytes that lie at up to three distances: n[0] rows of `bytes` bytes stride[0] apart, n[1] of those stride[1] apart,
 * and of those as many as there are stride[2] apart; in packed order. What is not there: n 1, stride 0. Vectors, and
 * subarrays of up to four dimensions. */
typedef struct gpusym_box {
    uint32_t bytes, n[2], stride[3];
} gpusym_box_t;

/* One of the copies from box to box of a launch (symm/box.h), with blocks of its own. */
typedef struct gpusym_box_run {
    const void *in;
    void *out;
    uint32_t bytes;        /* the first so many packed bytes of both boxes */
    uint8_t first, blocks; /* its blocks of the launch; those of runs follow each other. Not of a list */
    uint16_t unit;         /* bytes that a thread moves at a time: the largest power of two, up to 16, for both boxes */
    gpusym_box_t from, to;
} gpusym_box_run_t;
/* Boxes of a launch at most: as many as stand there. */
#define GPUSYM_BOXES_MAX 7u

/* A copy of `runs` runs, of w->run or w->box; or, if that is 0, of rows: row i begins at in + i * from_pitch and goes
 * to out + i * to_pitch. */
typedef struct gpusym_rows {
    uint64_t runs;
    uint64_t height; /* rows of w->bytes bytes each */
    uint64_t to_pitch, from_pitch;
} gpusym_rows_t;

/* Rows of bytes, as a datatype has them: row i of `bytes` bytes begins at disp + i * stride; packed, the rows follow
 * each other from `packed` on. The GPU reads arrays of these (symm/pack.h). */
typedef struct gpusym_node {
    int64_t disp, stride;
    uint32_t count, bytes;
    uint64_t packed;
} gpusym_node_t;

/* How the threads go about the nodes of a datatype (symm/pack.h). */
enum gpusym_pack_form {
    GPUSYM_PACK_ROWS,   /* one node, which stands in the descriptor */
    GPUSYM_PACK_STICKS, /* nodes of `unit` bytes a row, as many rows each, at one stride, in rising order of disp */
    GPUSYM_PACK_PIECES, /* any others; the shorter each is, the more even is the work */
};
/* A tile of sticks takes so many bytes of a block's shared memory, 8 or 16 for a row of a stick; so many rows high. */
#define GPUSYM_TILE_LOG_BYTES 14u
#define GPUSYM_TILE_LOG_ROWS_MIN 3u
#define GPUSYM_TILE_LOG_ROWS_MAX 5u
#define GPUSYM_TILE_BYTES (1u << GPUSYM_TILE_LOG_BYTES)
#define GPUSYM_TILE_ROWS_MIN (1u << GPUSYM_TILE_LOG_ROWS_MIN)

/* Packs the bytes [from, to) of `elements` elements, or unpacks them: element e has all nodes, e * extent further in
 * memory, and e * size further packed. One side of w->in and w->out is memory of the elements, the address of the byte
 * at displacement `lo`; the other one is packed memory, the address of the packed byte `from`. */
typedef struct gpusym_pack {
    const gpusym_node_t *nodes; /* [nnodes], memory of this GPU; ROWS: NULL */
    gpusym_node_t node;         /* ROWS: the only one */
    uint64_t nnodes, elements;
    int64_t extent, lo;
    uint64_t size, from, to;
    uint32_t form;   /* enum gpusym_pack_form */
    uint32_t unit;   /* STICKS: 4, 8 or 16; a divisor of all addresses, strides and of from and to */
    uint32_t lanes;  /* PIECES: threads for a node, a power of two that divides w->nthreads */
    uint32_t unpack; /* 0: pack */
} gpusym_pack_t;

/* What a job of a leader's launch (symm/lead.h) does with ranks' inputs and outputs. */
enum gpusym_job_form {
    GPUSYM_JOB_MOVE,   /* a piece for each source and destination: in[s] + in_off + d * in_step goes to
                        * out[d] + out_off + s * out_step */
    GPUSYM_JOB_SPREAD, /* a piece for each source, which goes to all destinations: in_step is 0 */
    GPUSYM_JOB_SWAP,   /* a piece for each pair s < d: what stands at out[s] + in_off + d * in_step and at
                        * out[d] + out_off + s * out_step changes places */
    GPUSYM_JOB_REDUCE, /* one piece: the sources' inputs, reduced in rising order, go to all destinations; no steps */
    GPUSYM_JOB_REDUCE_EACH, /* a piece for each destination d: in[s] + in_off + d * in_step, of all sources, goes
                             * reduced to d alone; out_step is 0 */
    GPUSYM_JOB_SCAN,        /* one piece: to out[s] goes what the sources up to s are reduced to */
    GPUSYM_JOB_EXSCAN,      /* ... up to s - 1; the first source's output is not written */
};

/* A job: pieces of so many bytes, of the sources [src_first, src_end) and the destinations [dst_first, dst_end).
 * Addresses are those of the launch, offsets are in bytes. A rank without an input or an output is passed over, and so
 * is a piece that is where it goes. */
typedef struct gpusym_job {
    uint64_t first; /* packs of the jobs before it; from gpusym_jobs_plan() */
    uint64_t bytes; /* of a piece */
    uint64_t in_off, in_step, out_off, out_step;
    uint16_t src_first, src_end, dst_first, dst_end;
    uint64_t form; /* enum gpusym_job_form */
} gpusym_job_t;
/* Jobs that stand in the descriptor: as many as there is room for in that of gpusym_work_t.send. */
#define GPUSYM_JOBS_MAX 8u

/* A leader's launch. More ranks than GPUSYM_TEAM_MAX, or more jobs than GPUSYM_JOBS_MAX, stand in memory of the GPU. */
typedef struct gpusym_lead {
    void *const *at;          /* [2][nranks]: inputs, outputs; NULL: they are in peer_in and peer_out */
    const gpusym_job_t *jobs; /* NULL: they are in w->job */
    uint64_t packs;           /* of all jobs */
    uint32_t njobs;
    uint16_t nranks;
    uint16_t group; /* threads that take pieces by themselves, which are short: 1, 2, 4 ... 32; 0: all of a block */
} gpusym_lead_t;

/*
 * One launch.  All pointers are device pointers as this rank's GPU sees them.
 *
 * A slot is a part of every rank's symmetric heap that belongs to one communicator:
 *   [0, GPUSYM_ENTER_OFF)      the owner's own: gpusym_slot_head_t; and at GPUSYM_SENT_OFF
 *                              uint32_t [GPUSYM_TEAM_MAX], written by its copy engines (symm_ce.h)
 *   [GPUSYM_ENTER_OFF, GPUSYM_FLAGS_OFF) entry of launches: symm/enter.h, prim/stream.h
 *   [GPUSYM_FLAGS_OFF, ll_off) flags: uint32_t [blocks][GPUSYM_TEAM_MAX]; row b, column r is written by
 *                              block b of rank r only
 *   [ll_off, ll128_off)        LL lines: two parities x nranks sources x ll_bytes
 *   [ll128_off, stage_off)     LL128 lines: ll128_room bytes, which hold nothing else, ever
 *   [stage_off, + stage_room)  staging; how a kernel divides it is said with the kernel
 *
 * The host launches on a slot only when all ranks have ended the launch before (they post the call, which they do when
 * they have the completion word of the last).  So buffers are reused within one launch only: at its
 * start nobody reads anything in a slot, and flags and LL lines hold epochs below w->epoch (but for a one-shot
 * all-reduce, which a peer may have commanded early: symm/symm_ll.h; then LL lines may have its epoch).  The zero-copy
 * kernels rely on the same: once a rank runs, all ranks' buffers are there to be read and written.
 */
/* The owner's own words at the beginning of a slot. */
typedef struct gpusym_slot_head {
    uint32_t ended, worst; /* the ticket of a launch: blocks that have ended, their worst status */
    uint32_t number;       /* done_seq of the last call on a stream, in no graph, that is at its end (prim/stream.h) */
    uint32_t unused;
    /* Calls on streams (prim/stream.h): the first epoch of the next one; how many there were; whether the last one took
     * several epochs; the status with which the first failed one ended. */
    uint32_t epoch, calls, longer, failed;
} gpusym_slot_head_t;

enum gpusym_early {
    GPUSYM_EARLY_NOT,     /* all ranks have posted the call that a kernel is launched for */
    GPUSYM_EARLY_STAYS,   /* perhaps not: it does that call as a commanded one (symm/resident.h), and remains */
    GPUSYM_EARLY_RETIRES, /* the same, but it retires behind the call */
    GPUSYM_EARLY_ENTERS,  /* any kernel: it begins once the kernels of all ranks have found that all are in the call */
    /* A call on a stream of the program (prim/stream.h), of a kernel made for that: it begins at once, or once all
     * ranks are known to have ended the call before. */
    GPUSYM_STREAM_BEGINS,
    GPUSYM_STREAM_WAITS,
    GPUSYM_STREAM_SIZED_BEGINS, /* XLL, XST: the same of segments whose lengths only the two ranks know between which */
    GPUSYM_STREAM_SIZED_WAITS   /* they go; each rank takes the kernel that its own want */
};
/* Of a call on a stream, bits: there is room on the GPU for its kernel beside that of the call before, and for that of
 * the next one beside its own. */
enum gpusym_soon { GPUSYM_SOON_THIS = 1, GPUSYM_SOON_NEXT = 2 };
/* Of such a call: bytes of the longest segment that goes in LL lines, where the slot's lines hold as many; longer ones
 * are stored. examples/jacobi in graphs on 2 x H200, us a sweep: rows of 8 KiB 21.6 by lines, 25.7 stored. */
#define GPUSYM_SIZED_LINES_MAX (16u << 10)
#define GPUSYM_SIZED_LINES(w) ((w)->ll_bytes / 2 < GPUSYM_SIZED_LINES_MAX ? (w)->ll_bytes / 2 : GPUSYM_SIZED_LINES_MAX)
/* The lower half of its entry for a rank: the sender's epochs, and so many bits of a hash of the bytes that it has for
 * that rank. */
#define GPUSYM_SIZED_HASH_BITS 12u
#define GPUSYM_SIZED_HASH(bytes) ((uint32_t) ((bytes) *0x9e3779b97f4a7c15ull >> (64 - GPUSYM_SIZED_HASH_BITS)))
/* A time of the GPU's clock, as it stands behind the completion word: which operation it is of, and nanoseconds. */
#define GPUSYM_TIME(seq, ns) ((uint64_t) ((seq) &0xffffu) << 48 | ((ns) &0xffffffffffffu))
enum { GPUSYM_TIME_END = 1, GPUSYM_TIME_BEGIN = 2 }; /* words behind w->done; BEGIN: of launches alone */

typedef struct gpusym_work {
    union {
        void *peer[GPUSYM_WORK_RANKS]; /* base of the slot in every rank's heap; [rank] is our own */
        gpusym_pack_t pack;            /* packing and unpacking (symm/pack.h), which have no slot */
    };
    const void *in;        /* user's input, any alignment; may equal out */
    void *out;             /* user's output, any alignment */
    uint64_t bytes;        /* two-shot and one-shot all-reduce, reduce, bcast: the message.
                            * Exchange kernels: the longest segment that any rank has for any; the same on all */
    uint64_t ll_off;       /* offset of the LL area in the slot */
    uint64_t ll128_off;    /* offset of the LL128 area in the slot */
    uint64_t stage_off;    /* offset of the staging area in the slot */
    uint64_t limit_ns;     /* longest wait for one peer in nanoseconds; 0: no limit */
    uint64_t *done;        /* pinned host memory: {sequence << 32 | status}, written last. A call on a stream: NULL
                            * where the host is not told */
    const uint32_t *abort; /* pinned host memory: not 0 makes every wait end */
    uint32_t done_seq;     /* the sequence to write there */
    uint32_t ll_bytes;     /* LL lines of one source in bytes: twice the payload of an epoch */
    uint64_t stage_room;   /* bytes of the staging area, for all blocks of a launch */
    uint32_t timed;        /* not 0: times of the launch, or of each command, go behind `done`: GPUSYM_TIME */
    /* From gpusym_kernel_plan(): */
    uint32_t chunk; /* packs of a chunk: of a block (staged; exchange: of a segment), of an epoch (LL) */
    union {
        uint64_t span;  /* packs of the message, or of a segment, for a block */
        uint64_t lines; /* SIZED_WAITS: of the longest segment that goes in LL lines */
    };
    uint32_t stage_bytes;  /* bytes of one staging buffer of a block */
    uint32_t owners, skip; /* two-shot: ranks that own a slice: all but rank `skip` (nranks: all own one) */
    uint32_t slice;        /* and packs of a slice of a whole chunk */
    uint32_t epoch;        /* first epoch of this call; gpusym_kernel_plan() says how many it uses */
    uint32_t rank, nranks;
    uint32_t op, type; /* enum gpusym_op, enum gpusym_type (kernels/kernels.h) */
    uint32_t nblocks, nthreads;
    uint32_t out_local; /* out is memory of this rank's GPU: it need be visible only there at completion */

    /* Ranks whose inputs are reduced, in rising order: [src_first, src_end); and, for the two-shot kernels, ranks
     * that get the result: [dst_first, dst_end). All-reduce: 0, nranks for both. Reduce: one dst; the others' out may
     * be NULL. Bcast: one src (type: one that is not widened, U8 say); the others' in may be NULL, and the source's out
     * is written by itself, if it is not its in. One-shot and multicast all-reduce: all, whatever stands here.
     * Exchange-and-reduce kernels: the sources of this rank, the ranks that have a send segment for us (scan: the ranks
     * up to us); empty: nothing is stored. The result goes to recv[rank]. */
    uint32_t src_first, src_end, dst_first, dst_end;
    /* enum gpusym_early: a resident kernel of one-shot all-reduce may be launched before the peers have posted its
     * first call; any kernel, before they are known to have posted theirs (symm/enter.h). */
    uint32_t early;
    union {
        uint32_t enter_set; /* ENTERS: 0 or 1, of calls in turns */
        uint32_t soon;      /* on a stream: GPUSYM_SOON_ */
    };
    uint64_t enter_sig; /* what must be alike on all ranks; SIZED: the upper half */
    union {
        uint64_t enter_ns; /* how long it waits for them; a copy: for a signal */
        uint64_t epochs; /* on a stream: of the call; SIZED: that this rank's segments take, another's may take more */
    };

    /* A resident kernel (symm/resident.h): the doorbell by which the host commands the next call, in pinned memory, and
     * how long the kernel waits for that. 0 ns: it is not resident. */
    union {
        const uint64_t *doorbell; /* [2]; of copies [3]: the last one has the number of the command's signal */
        uint64_t *failed;         /* a call on a stream: pinned memory, as done, of a call that has failed */
    };
    uint64_t linger_ns;

    union {
        gpusym_copies_t copies; /* kernels that work with copy engines (symm_ce.h) */
        gpusym_rows_t rows;     /* copies (symm/copy.h) */
        gpusym_lead_t lead;     /* a leader's launch (symm/lead.h) */
    };

    /* The slot's multicast address: a store reaches all ranks' slots, multimem loads reduce over them. NULL without;
     * then no MC kernel is launched. All ranks' slots have the same offset in their heaps then. */
    void *mc;

    /* Kernels take the descriptor up to what they use (kernels.def): fewer bytes to send with a launch. So `mc` and all
     * before it are for every kernel, the next two for zero copy, what follows for exchanges, of which those with zero
     * copy alone need remote_off, and what is behind that for channels. */

    union {
        struct {
            /* Zero copy: every rank's in (peer_in) or out (peer_out) as mapped here; [rank] is our own. Used by the
             * kernels that say so; all ranks have them or none. On a stream: memory in which these lie somewhere; the
             * kernels tell each other where (prim/stream.h). */
            const void *peer_in[GPUSYM_WORK_RANKS];
            void *peer_out[GPUSYM_WORK_RANKS];
        };
        gpusym_run_t run[GPUSYM_WORK_PART(GPUSYM_RUNS_MAX)];      /* copies (symm/copy.h), which have no peers */
        gpusym_box_run_t box[GPUSYM_WORK_PART(GPUSYM_BOXES_MAX)]; /* the same from box to box (symm/box.h) */
    };
    /* Exchange kernels: of `in`, what goes to rank p; of `out`, what comes from rank p. A segment of no bytes is
     * nothing; send[p] here is as long as recv[rank] there (with reduction: recv[p], p's result). send[rank] is our own
     * share, as long as recv[rank], which may be the same memory. remote_off[p]: where, in bytes, our segment stands
     * in p's out (zero copy, push), or p's segment for us in p's in (zero copy, pull; [rank]: send[rank].off); on
     * a stream 0: the kernels tell each other where segments are (prim/stream.h).
     * In place: a received segment may overlap a sent one only if both start at the same place and are as long as one
     * another, and in the kernels with Z not at all, but for send[rank] and recv[rank]. Multicast: all send[p] are
     * the same one. */
    union {
        gpusym_seg_t send[GPUSYM_WORK_RANKS];
        gpusym_job_t job[GPUSYM_WORK_PART(GPUSYM_JOBS_MAX)]; /* a leader's launch */
    };
    gpusym_seg_t recv[GPUSYM_WORK_RANKS];
    uint64_t remote_off[GPUSYM_WORK_RANKS];

    /* Channels (channel.h): block b is channel b. bytes as for the two-shot kernels, or, where ranks have segments
     * (all-gather, reduce-scatter), as for exchanges. */
    uint64_t ll128_room; /* of the slot's LL128 area, in multiples of 128, as its offset is */
    uint32_t flag_rows;  /* of the slot: a channel has two */
    uint32_t schedule;   /* enum gs_schedule_kind */
    uint32_t npaths;     /* channel b takes path b % npaths */
    uint32_t direct;     /* Simple: what is the result goes straight to peer_out, which all ranks have */
    /* From gpusym_kernel_plan(): */
    uint32_t fifo_links;          /* streams that come in at a rank, at most */
    uint64_t fifo_off, fifo_step; /* of the FIFOs in the slot; bytes of one of their buffers */
    gpusym_path_t path[GPUSYM_PATHS_MAX];
    uint64_t end; /* no field: what follows the last */
} gpusym_work_t;

/* Epochs are below this: streams wait for a difference of 32 bits with a sign, so that an old flag must not be half of
 * all numbers behind. */
#define GPUSYM_EPOCH_MAX 0x7fffffffu
/* A call on a stream that finds its epoch above this begins anew, at 1, when all flags and lines have been wiped. */
#define GPUSYM_STREAM_EPOCH_MAX 0x40000000u
/* Most chunks that copy engines send to a rank in a call: what a GPU's queue holds, so that the host does not wait for
 * the GPU in the driver, where it cannot check its peers. */
#define GPUSYM_COPIES_MAX 128u
/* Buffers for the chunks that a rank is sent: chunks under way. */
#define GPUSYM_COPIES_BUFFERS 2u

/* Packs of a chunk at most: so that loops over one count in 32 bits. */
#define GPUSYM_CHUNK_MAX (1u << 30)
/* Packs of one part of many, `even` being its even share (rounded up): in units of `unit`,
 * and in whole lines of 128 bytes where that hardly matters to how even it is.  Rises with even.  Host and kernels
 * agree. */
#define GPUSYM_SPAN_ROUND(x, unit) (((x) + (unit) -1) / (unit) * (unit))
#define GPUSYM_SPAN(even, unit) GPUSYM_SPAN_ROUND(even, (even) > 64 * (unit) ? 8 * (unit) : (unit))

/* Packs of each owner's slice of a chunk, of which `even` is each one's even share (rounded up): not beyond what the
 * owner has room for, that of a chunk of `room` packs. */
#define GPUSYM_SLICE(even, owners, room) \
    ((uint64_t) GPUSYM_SPAN(even, 1u) * (owners) <= (room) ? GPUSYM_SPAN(even, 1u) : (even))

/* Packs that a thread of a GPU moves at a time: loads in flight. */
#define GPUSYM_MOVE_PACKS 4u
/* A group of LL128 lines: four, with their flags, and the packs that they hold (lines.h). */
#define GPUSYM_LL128_BYTES 512u
#define GPUSYM_LL128_PACKS 30u
/* Streams of a block of so many threads, a warp each (symm_ll128.h); and groups of a unit, where nobody asks for
 * others: as many as a warp of a GPU takes at a time. */
#define GPUSYM_LL128_STREAMS(nthreads) ((nthreads) < 64u ? 1u : (nthreads) / 32u)
#define GPUSYM_LL128_UNIT 4u

#define GPUSYM_SENT_OFF 128u
#define GPUSYM_ENTER_OFF 256u
#define GPUSYM_ENTER_LINES (GPUSYM_BLOCKS_MAX * 4u) /* behind a word for each block */
#define GPUSYM_FLAGS_OFF (GPUSYM_ENTER_OFF + GPUSYM_ENTER_LINES + 2u * GPUSYM_TEAM_MAX * 2u * 16u)
#define GPUSYM_FLAG_ROW (GPUSYM_TEAM_MAX * 4u)

#endif
