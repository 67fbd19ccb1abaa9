/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a collective is in the kernels' terms: buffers, segments per pair of ranks, what is reduced.
 */
#ifndef MCA_COLL_GPUSYM_PLAN_SEGMENTS_H
#define MCA_COLL_GPUSYM_PLAN_SEGMENTS_H

#include "mca/coll/gpusym/args/args.h"
#include "mca/coll/gpusym/plan/blocks.h"
#include "mca/coll/gpusym/team/state.h"
#include "mca/common/gpusym/agree/table.h"
#include "mca/common/ompi/layout.h"
#include "tuning/tuning.h"

/* A side of a call whose elements have gaps, and which scratch memory stands for. bytes 0: none. */
typedef struct {
    uint64_t bytes; /* packed */
    bool blocks;    /* with displacements of their own; packed, they follow each other */
    void *buf;      /* else the address of the elements, */
    gpusym_layout_t layout;
} coll_gpusym_part_t;

/* A call in the kernels' terms, from what this rank knows. */
typedef struct {
    const coll_gpusym_args_t *args; /* not owned, nor is team: both outlive it */
    coll_gpusym_team_t *team;
    uint32_t nranks, rank; /* of the communicator: arguments are by its ranks, kernels by the team's members */
    gpusym_mem_t where;    /* a buffer on our GPU */
    bool out_local;        /* the output is memory of our GPU, neither managed nor the host's */
    int reason;            /* enum coll_gpusym_reason: why this rank wants the call staged; -1: it does not */
    const void *in;
    void *out;
    uint64_t in_id, out_id;       /* of their allocations, gpusym_mem_t.id */
    uint64_t in_bytes, out_bytes; /* extents of what is read and written there */
    uint64_t bytes;               /* as gpusym_work_t.bytes, before all ranks have posted theirs */
    uint64_t balance;             /* gpusym_post_t.balance */
    uint32_t counts;              /* reduce_scatter: a hash of the ranks' parts, which all ranks must pass alike */
    bool exact;                   /* ... which must be the same on all ranks */
    bool in_place;                /* in and out may overlap */
    unsigned op, type;            /* of kernels.def; bytes are moved as GPUSYM_T_U8 */
    uint32_t layout;              /* hash of what zero copy wants alike on all ranks, or else in tables */
    /* What goes through scratch memory: in, out are in that then, once it is there (coll_gpusym_segments_scratch). */
    coll_gpusym_part_t pack;   /* packed there before the kernel */
    coll_gpusym_part_t unpack; /* unpacked from there after it */
    uint64_t in_off;           /* where in out the input is, in place */
    /* Collectives that have a block for each edge (blocks.h): where the segments lie that are sent, and received. */
    coll_gpusym_place_t from, to;
    bool keep; /* `unpack` is packed there before the kernel too: it writes not all of that, or reads it */
    bool even; /* a reduce-scatter in place of GPU memory, whose parts are all of one length */
} coll_gpusym_segments_t;

/* Bytes that go between this rank and each rank, agreed, where what is sent and what is received differ (sizes.h). */
typedef struct {
    uint64_t send[GPUSYM_TEAM_MAX], recv[GPUSYM_TEAM_MAX];
} coll_gpusym_pair_sizes_t;

/* Whether kernels.def has algorithms of a collective. */
static inline bool coll_gpusym_has_kernels(enum coll_gpusym_coll coll)
{
    return (int) coll < (int) COLL_GPUSYM_NATIVES;
}

/* Fills in what the kernels need, k->args and k->team set and the rest zeroed. If no buffer is GPU memory, k->where
 * names the GPU that is to be used. Local; sets k->reason where the call must be staged. */
void coll_gpusym_segments_init(coll_gpusym_segments_t *k, const coll_gpusym_buffers_t *b);

/* Of a call that is `even`, before each start, while it has no scratch memory. over: kernels store the result over the
 * input; else it goes through scratch memory. */
void coll_gpusym_segments_settle(coll_gpusym_segments_t *k, bool over);

/* Bytes of scratch memory that the call needs; 0: none. */
static inline uint64_t coll_gpusym_part_room(const coll_gpusym_part_t *part)
{
    return (part->bytes + 255) / 256 * 256;
}
static inline uint64_t coll_gpusym_segments_scratch_bytes(const coll_gpusym_segments_t *k)
{
    return coll_gpusym_part_room(&k->pack) + coll_gpusym_part_room(&k->unpack) + k->from.bytes + k->to.bytes;
}
/* Whether this rank has a broadcast's data: one buffer, which it sends, and nothing is written. */
static inline bool coll_gpusym_segments_root_bcast(const coll_gpusym_segments_t *k)
{
    return COLL_GPUSYM_BCAST == k->args->coll && k->rank == (uint32_t) k->args->root;
}
/* Whether the kernel's output lies in scratch memory and is copied from there to the user. */
static inline bool coll_gpusym_segments_unpacks(const coll_gpusym_segments_t *k)
{
    return 0 != k->unpack.bytes || k->to.packed;
}
/* A side's blocks, of a collective that has them. */
static inline coll_gpusym_blocks_t coll_gpusym_segments_blocks(const coll_gpusym_segments_t *k, coll_gpusym_side_t side)
{
    return (coll_gpusym_blocks_t){k->args, k->team->fallback->comm, side, &k->where};
}
/* Queues the packing of a side into scratch memory, or (back) its unpacking from there. *words: so many parts of the
 * lane's operation tell its end; 0: only the stream does. Errors as of gpusym_layout_pack_async; some of it may be
 * queued then. */
int coll_gpusym_segments_copy(const coll_gpusym_segments_t *k, coll_gpusym_side_t side, gpusym_lane_t *lane, bool back,
                              uint32_t *words);
/* Points in and out into the scratch memory. */
void coll_gpusym_segments_scratch(coll_gpusym_segments_t *k, char *scratch);

/* Sets whether zero copy maps every rank's input, and its output, at the peers. */
void coll_gpusym_segments_maps(unsigned coll, bool *in, bool *out);
/* Whether peers read in a rank's table where it wants its data (agree/table.h), since only that rank knows. */
bool coll_gpusym_segments_in_table(unsigned coll);
/* Whether a rank finds its data's place in any output by its own arguments, since all outputs are laid out alike. All
 * entries have been read. */
bool coll_gpusym_segments_alike(unsigned coll, const gpusym_agreement_read_t *read);
/* Whether all ranks can do this collective by zero copy. All entries have been read. */
bool coll_gpusym_segments_zero_copy(unsigned coll, const gpusym_agreement_read_t *read);

/* Fills in the buffers, segments and ranks of the descriptor; w->rank and w->nranks are set. bytes: agreed by all
 * ranks. sizes: NULL where every rank receives all that is sent to it. */
void coll_gpusym_segments_work(const coll_gpusym_segments_t *k, uint64_t bytes, const coll_gpusym_pair_sizes_t *sizes,
                               gpusym_work_t *w);
/* Sets the paths that the channels of a schedule (enum gs_schedule_kind; -1: none) take. w->rank, w->nranks are set. */
void coll_gpusym_segments_paths(const coll_gpusym_segments_t *k, int schedule, gpusym_work_t *w);
/* Whether the slot has room for what copy engines need for a call of that many bytes. */
bool coll_gpusym_segments_copies(unsigned coll, uint64_t bytes, const gpusym_work_t *slot);
/* Fills rows [ranks of the communicator] with what goes between this rank and each, by its own arguments: where the
 * team is all of them, the rows of its table. */
void coll_gpusym_segments_rows(const coll_gpusym_segments_t *k, gpusym_table_row_t *rows);
/* Whether a call moves bytes that staging buffers can carry: contiguous ones. Local; k is described, whatever its
 * reason. */
bool coll_gpusym_segments_may_stage(const coll_gpusym_segments_t *k);
/* Sets what this rank sends to each rank, and takes from it, and the buffers that the offsets count from. rows:
 * [ranks of the team], of a call that may move. */
void coll_gpusym_segments_stage(const coll_gpusym_segments_t *k, gpusym_table_row_t *rows, const char **in, char **out);
/* Whether a collective moves bytes and reduces none. */
bool coll_gpusym_segments_moves(unsigned coll);

/* Does a call of a one-rank communicator by a copy; *rv is the MPI error code. False: a plain copy cannot do it. */
bool coll_gpusym_segments_alone(const coll_gpusym_buffers_t *b, int *rv);
/* The same as one run of bytes, for the caller to copy; bytes 0: there is nothing to do. */
typedef struct {
    void *to;
    const void *from;
    uint64_t bytes;
} coll_gpusym_copy_t;
bool coll_gpusym_segments_alone_run(const coll_gpusym_buffers_t *b, coll_gpusym_copy_t *copy, int *rv);

#endif
