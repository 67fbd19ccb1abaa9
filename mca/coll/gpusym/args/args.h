/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call's arguments, one struct for all collectives: what the wrappers make of MPI's parameters, what the
 * fallback is called with again, and which memory a call touches on this rank.
 */
#ifndef MCA_COLL_GPUSYM_ARGS_H
#define MCA_COLL_GPUSYM_ARGS_H

#include "ompi_config.h" /* always first */

#include "mpi.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/op/op.h"

#include "mca/coll/gpusym/args/facts.h"
#include "mca/common/gpusym/device/device.h"
#include "mca/common/ompi/ompi_compat.h"

/*
 * One call.  Nothing is owned or copied: until the call has completed (persistent: until its request is freed), MPI
 * forbids changes to the arrays, and keeps datatypes and operations whose handles are freed.
 *
 *   One count, one datatype (reductions, bcast): rcount and rdtype, and the same in scount and sdtype; reduce_scatter:
 *   rcounts; reduce_scatter_block: rcount; both are a rank's part.
 *   bcast: one buffer, in sbuf and rbuf; the root's is sent, the others' is received.
 *   sbuf, and at the root of a scatter rbuf, may be MPI_IN_PLACE.
 *   Arguments that a collective does not have, or that are not significant on this rank, are undefined.
 */
typedef struct {
    enum coll_gpusym_coll coll;
    const void *sbuf;
    void *rbuf;
    size_t scount, rcount;
    gpusym_counts_t scounts, rcounts;
    gpusym_displs_t sdispls, rdispls;    /* in extents; alltoallw: in bytes */
    gpusym_adispls_t sadispls, radispls; /* neighbor_alltoallw: in bytes */
    struct ompi_datatype_t *sdtype, *rdtype;
    struct ompi_datatype_t *const *sdtypes; /* alltoallw, neighbor_alltoallw */
    struct ompi_datatype_t *const *rdtypes;
    struct ompi_op_t *op;
    int root; /* intercommunicators: or MPI_ROOT, MPI_PROC_NULL */
} coll_gpusym_args_t;

/*
 * The collectives' parameters in their order, without communicator and what follows it; F(type, field), which
 * brings the comma behind it.
 * With COLL_GPUSYM_PARAM they are a function's parameters, with COLL_GPUSYM_ARG the arguments to give it of an `a`,
 * with COLL_GPUSYM_INIT what makes an `a` of them.
 */
#define COLL_GPUSYM_PARAM(type, field) type field,
#define COLL_GPUSYM_ARG(type, field) (type) a->field,
#define COLL_GPUSYM_INIT(type, field) .field = field,

/* The formatter finds no stable form of these lists. */
/* clang-format off */
#define COLL_GPUSYM_F_SEND_ONE(F) \
    F(const void *, sbuf) F(gpusym_count_t, scount) F(struct ompi_datatype_t *, sdtype)
#define COLL_GPUSYM_F_SEND_V(F) \
    F(const void *, sbuf) F(gpusym_counts_t, scounts) F(gpusym_displs_t, sdispls) F(struct ompi_datatype_t *, sdtype)
#define COLL_GPUSYM_F_RECV_ONE(F) \
    F(void *, rbuf) F(gpusym_count_t, rcount) F(struct ompi_datatype_t *, rdtype)
#define COLL_GPUSYM_F_RECV_V(F) \
    F(void *, rbuf) F(gpusym_counts_t, rcounts) F(gpusym_displs_t, rdispls) F(struct ompi_datatype_t *, rdtype)
#define COLL_GPUSYM_F_NONE(F)
#define COLL_GPUSYM_F_ROOT(F) F(int, root)

#define COLL_GPUSYM_F_ONE_ONE(F) COLL_GPUSYM_F_SEND_ONE(F) COLL_GPUSYM_F_RECV_ONE(F)
#define COLL_GPUSYM_F_ONE_V(F) COLL_GPUSYM_F_SEND_ONE(F) COLL_GPUSYM_F_RECV_V(F)
#define COLL_GPUSYM_F_V_V(F) COLL_GPUSYM_F_SEND_V(F) COLL_GPUSYM_F_RECV_V(F)
#define COLL_GPUSYM_F_ONE_ONE_ROOT(F) COLL_GPUSYM_F_ONE_ONE(F) COLL_GPUSYM_F_ROOT(F)
#define COLL_GPUSYM_F_ONE_V_ROOT(F) COLL_GPUSYM_F_ONE_V(F) COLL_GPUSYM_F_ROOT(F)
#define COLL_GPUSYM_F_V_ONE_ROOT(F) COLL_GPUSYM_F_SEND_V(F) COLL_GPUSYM_F_RECV_ONE(F) COLL_GPUSYM_F_ROOT(F)
#define COLL_GPUSYM_F_BCAST(F) COLL_GPUSYM_F_RECV_ONE(F) COLL_GPUSYM_F_ROOT(F)
#define COLL_GPUSYM_F_REDUCTION(F) F(const void *, sbuf) COLL_GPUSYM_F_RECV_ONE(F) F(struct ompi_op_t *, op)
#define COLL_GPUSYM_F_REDUCTION_ROOT(F) COLL_GPUSYM_F_REDUCTION(F) COLL_GPUSYM_F_ROOT(F)
#define COLL_GPUSYM_F_REDUCTION_V(F) \
    F(const void *, sbuf) F(void *, rbuf) F(gpusym_counts_t, rcounts) F(struct ompi_datatype_t *, rdtype) \
        F(struct ompi_op_t *, op)
#define COLL_GPUSYM_F_W_W(F) \
    F(const void *, sbuf) F(gpusym_counts_t, scounts) F(gpusym_displs_t, sdispls) \
        F(struct ompi_datatype_t *const *, sdtypes) F(void *, rbuf) F(gpusym_counts_t, rcounts) \
        F(gpusym_displs_t, rdispls) F(struct ompi_datatype_t *const *, rdtypes)
#define COLL_GPUSYM_F_NEIGHBOR_W_W(F) \
    F(const void *, sbuf) F(gpusym_counts_t, scounts) F(gpusym_adispls_t, sadispls) \
        F(struct ompi_datatype_t *const *, sdtypes) F(void *, rbuf) F(gpusym_counts_t, rcounts) \
        F(gpusym_adispls_t, radispls) F(struct ompi_datatype_t *const *, rdtypes)
/* clang-format on */

/* ---- args/args.c: which memory a call touches on this rank ---- */

/* What a call does to a buffer. */
typedef enum {
    COLL_GPUSYM_SENT,    /* of sbuf: read */
    COLL_GPUSYM_TAKEN,   /* of rbuf: read before it is written; or kept, since the call might not write it */
    COLL_GPUSYM_WRITTEN, /* of rbuf */
} coll_gpusym_side_t;

/* count elements of a type, which begin disp bytes behind the buffer's address. */
typedef struct {
    ptrdiff_t disp;
    size_t count;
    struct ompi_datatype_t *dtype;
} coll_gpusym_block_t;

/* A side's blocks. Filled by coll_gpusym_layout(), valid as long as the arguments. */
typedef struct {
    size_t blocks; /* 0: nothing; 1 without counts: `one` */
    coll_gpusym_block_t one;
    bool vector;
    gpusym_counts_t counts; /* where vector: a block each */
    gpusym_displs_t displs;
    gpusym_adispls_t adispls;
    struct ompi_datatype_t *dtype;
    struct ompi_datatype_t *const
        *dtypes; /* NULL: dtype, displs in extents; else displs or (by_aint) adispls in bytes */
    bool by_aint;
} coll_gpusym_layout_t;

/* Whether no count that is significant on this rank is negative. Open MPI does not check this everywhere
 * (MPI_Allgatherv of an intracommunicator), nor with mpi_param_check 0. */
bool coll_gpusym_counts_valid(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a);

/* Returns the number of ranks that this one sends to, or receives from: of neighbours, each as often as it is one. */
size_t coll_gpusym_count_peers(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_side_t side);
/* Finds the blocks of a side, by MPI's rules about roots, intercommunicators, MPI_IN_PLACE and neighbours. */
void coll_gpusym_layout(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_side_t side,
                        coll_gpusym_layout_t *l);
/* Sets *b to the i-th of l->blocks; count 0: it has no bytes. */
void coll_gpusym_block(const coll_gpusym_layout_t *l, size_t i, coll_gpusym_block_t *b);

/* Whether the CPU must not access the memory, or only slowly. */
static inline bool coll_gpusym_on_gpu(const gpusym_mem_t *mem)
{
    return GPUSYM_MEM_DEVICE == mem->kind || GPUSYM_MEM_MANAGED == mem->kind;
}

/* ---- buffers: which memory they are, and which bytes of it a call touches; asked once, and kept ---- */

/* All that a call touches of a buffer. */
typedef struct {
    ptrdiff_t lo; /* first byte, from the buffer's address */
    size_t bytes; /* from there to the last; 0 where nothing is touched */
    bool used;    /* bytes > 0 */
    bool dense;   /* every byte in there belongs to the call's elements: no gaps */
    bool read;    /* the call reads what is there: a send buffer; a receive buffer in place, or accumulated */
    bool written; /* the call writes there */
    bool known;   /* the rest has been found */
} coll_gpusym_span_t;

typedef struct {
    /* The memory of its first block (MPI_BOTTOM: of the first block in device memory, else of one in managed memory,
     * else of the last), as gpusym_layout_where() finds it. GPUSYM_MEM_NONE where nothing is touched. */
    gpusym_mem_t mem;
    coll_gpusym_span_t span; /* see coll_gpusym_buffers_measure() */
} coll_gpusym_buffer_t;

/* Plain data. Valid as long as the arguments, which are not owned, and as the memory. */
typedef struct {
    struct ompi_communicator_t *comm;
    const coll_gpusym_args_t *args;
    coll_gpusym_buffer_t send, recv; /* sbuf, rbuf */
} coll_gpusym_buffers_t;

/* The bytes of the elements in this rank's larger buffer, without gaps: a pass over the blocks of all ranks. */
uint64_t coll_gpusym_args_bytes(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a);

/* Finds the memory of both buffers. dev: NULL where this process has no device; all memory is host memory then. */
void coll_gpusym_buffers_find(coll_gpusym_buffers_t *b, struct ompi_communicator_t *comm, const gpusym_device_t *dev,
                              const coll_gpusym_args_t *args);
/* The same of a call on a part of the elements, in the same memory. */
void coll_gpusym_buffers_part(const coll_gpusym_buffers_t *whole, const coll_gpusym_args_t *part,
                              coll_gpusym_buffers_t *b);
/* Finds both spans, if they are not known yet: a pass over the blocks of all ranks, which native calls do without. */
void coll_gpusym_buffers_measure(coll_gpusym_buffers_t *b);

/* Whether one of the buffers is GPU memory. */
static inline bool coll_gpusym_buffers_on_gpu(const coll_gpusym_buffers_t *b)
{
    return coll_gpusym_on_gpu(&b->send.mem) || coll_gpusym_on_gpu(&b->recv.mem);
}

/* Whether the call touches memory, and all of it is host memory. */
static inline bool coll_gpusym_buffers_on_host(const coll_gpusym_buffers_t *b)
{
    return !coll_gpusym_buffers_on_gpu(b) &&
           !(GPUSYM_MEM_NONE == b->send.mem.kind && GPUSYM_MEM_NONE == b->recv.mem.kind);
}

/* Returns the memory whose GPU works on the call, if one of the buffers is GPU memory. Managed memory names no GPU. */
static inline const gpusym_mem_t *coll_gpusym_buffers_where(const coll_gpusym_buffers_t *b)
{
    const bool by_recv = GPUSYM_MEM_DEVICE == b->recv.mem.kind ||
                         (GPUSYM_MEM_MANAGED == b->recv.mem.kind && GPUSYM_MEM_DEVICE != b->send.mem.kind);
    return by_recv ? &b->recv.mem : &b->send.mem;
}

#endif
