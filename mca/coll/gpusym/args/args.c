/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which memory a call touches on this rank: MPI's rules about roots, intercommunicators, MPI_IN_PLACE and neighbours,
 * all in this file.
 */
#include "mca/coll/gpusym/args/args.h"

#include <string.h>

#include "mca/common/ompi/layout.h"
#include "ompi/communicator/communicator.h"
#include "ompi/mca/topo/topo.h"

/* ---- ranks ---- */

/* What a rank is in a rooted collective. */
typedef struct {
    bool root;   /* has the data of all ranks */
    bool member; /* has a part of them: every rank; of an intercommunicator, those of the group without the root */
} role_t;

static role_t find_role(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a)
{
    if (OMPI_COMM_IS_INTER(comm)) { /* MPI_ROOT and MPI_PROC_NULL are negative */
        return (role_t){MPI_ROOT == a->root, a->root >= 0};
    }
    return (role_t){ompi_comm_rank(comm) == a->root, true};
}

/* Whether this rank is one of COLL_GPUSYM_RANKS_. */
static bool is_one_of(unsigned ranks, struct ompi_communicator_t *comm, const coll_gpusym_args_t *a)
{
    switch (ranks) {
    case COLL_GPUSYM_RANKS_MEMBERS:
        return find_role(comm, a).member;
    case COLL_GPUSYM_RANKS_ROOT:
        return find_role(comm, a).root;
    case COLL_GPUSYM_RANKS_OTHERS:
        return find_role(comm, a).member && !find_role(comm, a).root;
    case COLL_GPUSYM_RANKS_LATER:
        return ompi_comm_rank(comm) > 0;
    default:
        return true;
    }
}

/* Neighbours that this rank receives from, and sends to. */
static void count_neighbors(struct ompi_communicator_t *comm, size_t *in, size_t *out)
{
    *in = *out = 0;
    if (OMPI_COMM_IS_CART(comm)) {
        *in = *out = 2 * (size_t) comm->c_topo->mtc.cart->ndims;
    } else if (OMPI_COMM_IS_GRAPH(comm)) {
        const int *end = comm->c_topo->mtc.graph->index; /* of each rank's edges, counted through */
        const int rank = ompi_comm_rank(comm);
        *in = *out = (size_t) (end[rank] - (rank > 0 ? end[rank - 1] : 0));
    } else if (OMPI_COMM_IS_DIST_GRAPH(comm)) {
        *in = (size_t) comm->c_topo->mtc.dist_graph->indegree;
        *out = (size_t) comm->c_topo->mtc.dist_graph->outdegree;
    }
}

size_t coll_gpusym_count_peers(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_side_t side)
{
    size_t in, out;
    switch (coll_gpusym_facts[a->coll].pattern) {
    case COLL_GPUSYM_P_LOCAL:
        return 1;
    case COLL_GPUSYM_P_NEIGHBORS:
        count_neighbors(comm, &in, &out);
        return COLL_GPUSYM_SENT == side ? out : in;
    default:
        return (size_t) (OMPI_COMM_IS_INTER(comm) ? ompi_comm_remote_size(comm) : ompi_comm_size(comm));
    }
}

/* ---- layouts ---- */

static void set_block(coll_gpusym_layout_t *l, size_t count, struct ompi_datatype_t *dtype)
{
    l->blocks = count > 0 ? 1 : 0;
    l->one = (coll_gpusym_block_t){0, count, dtype};
}

/* A block for each peer, by the arrays of a side. */
static inline void set_vector(coll_gpusym_layout_t *l, size_t peers, const coll_gpusym_args_t *a,
                              coll_gpusym_side_t side)
{
    const bool send = COLL_GPUSYM_SENT == side;
    l->blocks = peers;
    l->vector = true;
    l->counts = send ? a->scounts : a->rcounts;
    l->displs = send ? a->sdispls : a->rdispls;
    l->adispls = send ? a->sadispls : a->radispls;
    l->dtype = send ? a->sdtype : a->rdtype;
    l->dtypes = send ? a->sdtypes : a->rdtypes;
    l->by_aint = COLL_GPUSYM_NEIGHBOR_ALLTOALLW == a->coll;
}

/* Elements of the whole vector that a reduce-scatter reduces. */
static size_t count_parts(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a)
{
    const size_t n = (size_t) ompi_comm_size(comm);
    size_t sum = 0;
    if (COLL_GPUSYM_L_PART != coll_gpusym_facts[a->coll].written) {
        return n * a->rcount;
    }
    for (size_t i = 0; i < n; i++) {
        sum += gpusym_count_at(a->rcounts, i);
    }
    return sum;
}

/* What lies in a side's buffer. */
static inline void set_layout(coll_gpusym_layout_t *l, unsigned layout, struct ompi_communicator_t *comm,
                              const coll_gpusym_args_t *a, coll_gpusym_side_t side)
{
    const bool send = COLL_GPUSYM_SENT == side;
    const size_t count = send ? a->scount : a->rcount;
    struct ompi_datatype_t *const dtype = send ? a->sdtype : a->rdtype;
    switch (layout) {
    case COLL_GPUSYM_L_BLOCK:
        set_block(l, coll_gpusym_count_peers(comm, a, side) > 0 ? count : 0, dtype);
        break;
    case COLL_GPUSYM_L_BLOCKS:
        set_block(l, count * coll_gpusym_count_peers(comm, a, side), dtype);
        break;
    case COLL_GPUSYM_L_BLOCKS_V:
    case COLL_GPUSYM_L_BLOCKS_W:
        set_vector(l, coll_gpusym_count_peers(comm, a, side), a, side);
        break;
    case COLL_GPUSYM_L_PARTS:
        set_block(l, count_parts(comm, a), a->rdtype);
        break;
    case COLL_GPUSYM_L_PART:
        set_block(l, gpusym_count_at(a->rcounts, (size_t) ompi_comm_rank(comm)), a->rdtype);
        break;
    default:
        break;
    }
}

static void find_sent(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_layout_t *l)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[a->coll];
    if (COLL_GPUSYM_RANKS_ALL == f->from || is_one_of(f->from, comm, a)) {
        set_layout(l, f->sent, comm, a, COLL_GPUSYM_SENT);
    }
}

static void find_written(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_layout_t *l)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[a->coll];
    if (COLL_GPUSYM_RANKS_ALL == f->to || is_one_of(f->to, comm, a)) {
        set_layout(l, f->written, comm, a, COLL_GPUSYM_WRITTEN);
    }
}

/* In place, the receive buffer holds the input, on ranks that receive nothing too. */
static void find_input_in_place(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_layout_t *l)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[a->coll];
    if (COLL_GPUSYM_L_PARTS == f->sent) {
        set_block(l, count_parts(comm, a), a->rdtype);
    } else if (COLL_GPUSYM_RANKS_LATER == f->to) {
        set_block(l, a->rcount, a->rdtype);
    } else {
        find_written(comm, a, l);
    }
}

static void find_taken(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_layout_t *l)
{
    switch (coll_gpusym_facts[a->coll].pattern) {
    case COLL_GPUSYM_P_NEIGHBORS: /* a neighbour that is MPI_PROC_NULL, at the border of a grid, sends nothing */
        if (!OMPI_COMM_IS_DIST_GRAPH(comm)) {
            find_written(comm, a, l);
        }
        break;
    case COLL_GPUSYM_P_LOCAL:
        find_written(comm, a, l);
        break;
    default:
        if (MPI_IN_PLACE == a->sbuf) {
            find_input_in_place(comm, a, l);
        }
        break;
    }
}

void coll_gpusym_layout(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_side_t side,
                        coll_gpusym_layout_t *l)
{
    memset(l, 0, sizeof *l);
    if (MPI_IN_PLACE == (COLL_GPUSYM_SENT == side ? a->sbuf : a->rbuf)) {
        return;
    }
    if (COLL_GPUSYM_SENT == side) {
        find_sent(comm, a, l);
    } else if (COLL_GPUSYM_WRITTEN == side) {
        find_written(comm, a, l);
    } else {
        find_taken(comm, a, l);
    }
}

void coll_gpusym_block(const coll_gpusym_layout_t *l, size_t i, coll_gpusym_block_t *b)
{
    if (!l->vector) {
        *b = l->one;
        return;
    }
    b->count = gpusym_count_at(l->counts, i);
    b->dtype = NULL;
    b->disp = 0;
    if (0 == b->count) { /* the rest may be anything */
        return;
    }
    if (NULL == l->dtypes) {
        b->dtype = l->dtype;
        b->disp = gpusym_displ_at(l->displs, i) * (b->dtype->super.ub - b->dtype->super.lb);
    } else {
        b->dtype = l->dtypes[i];
        b->disp = l->by_aint ? gpusym_adispl_at(l->adispls, i) : gpusym_displ_at(l->displs, i);
    }
}

/* ---- counts ---- */

static bool is_negative(size_t count)
{
    return (ptrdiff_t) count < 0;
}

static bool any_negative(gpusym_counts_t counts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (is_negative(gpusym_count_at(counts, i))) {
            return true;
        }
    }
    return false;
}

static bool side_is_negative(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_side_t side)
{
    coll_gpusym_layout_t l;
    coll_gpusym_layout(comm, a, side, &l);
    return l.vector ? any_negative(l.counts, l.blocks) : l.blocks > 0 && is_negative(l.one.count);
}

bool coll_gpusym_counts_valid(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[a->coll];
    const bool arrays = coll_gpusym_has_arrays(f->sent) || coll_gpusym_has_arrays(f->written);
    if (COLL_GPUSYM_P_BARRIER == f->pattern || (!arrays && !is_negative(a->scount) && !is_negative(a->rcount))) {
        return true;
    }
    if (COLL_GPUSYM_L_PART == f->written) {
        return !any_negative(a->rcounts, (size_t) ompi_comm_size(comm));
    }
    return !side_is_negative(comm, a, COLL_GPUSYM_SENT) && !side_is_negative(comm, a, COLL_GPUSYM_WRITTEN);
}

/* ---- bytes ---- */

/* First byte of a block and the byte behind its last. False if it has none. */
static bool block_range(const coll_gpusym_block_t *b, ptrdiff_t *lo, ptrdiff_t *hi)
{
    if (0 == b->count || 0 == b->dtype->super.size) {
        return false;
    }
    gpusym_layout_range(b->count, b->dtype, lo, hi);
    *lo += b->disp;
    *hi += b->disp;
    return true;
}

/* Adds a side's blocks to a span; *sum: bytes of elements so far. */
static void span_add(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_side_t side,
                     coll_gpusym_span_t *s, size_t *sum)
{
    coll_gpusym_layout_t l;
    coll_gpusym_block_t b;
    ptrdiff_t lo, hi;

    coll_gpusym_layout(comm, a, side, &l);
    for (size_t i = 0; i < l.blocks; i++) {
        coll_gpusym_block(&l, i, &b);
        if (!block_range(&b, &lo, &hi)) {
            continue;
        }
        *sum += b.count * b.dtype->super.size;
        if (s->used) {
            const ptrdiff_t end = s->lo + (ptrdiff_t) s->bytes;
            lo = lo < s->lo ? lo : s->lo;
            hi = hi > end ? hi : end;
        }
        s->lo = lo;
        s->bytes = (size_t) (hi - lo);
        s->used = true;
        s->read = s->read || COLL_GPUSYM_WRITTEN != side;
        s->written = s->written || COLL_GPUSYM_WRITTEN == side;
    }
}

static void find_spans(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_span_t *send,
                       coll_gpusym_span_t *recv)
{
    size_t out = 0, in = 0, back = 0;
    memset(send, 0, sizeof *send);
    memset(recv, 0, sizeof *recv);
    span_add(comm, a, COLL_GPUSYM_SENT, send, &out);
    send->dense = out == send->bytes;
    span_add(comm, a, COLL_GPUSYM_WRITTEN, recv, &in);
    span_add(comm, a, COLL_GPUSYM_TAKEN, recv, &back);
    recv->dense = (in > back ? in : back) == recv->bytes; /* one lies in the other */
}

uint64_t coll_gpusym_args_bytes(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a)
{
    coll_gpusym_span_t unused = {.used = false};
    size_t sum[3] = {0, 0, 0}, most = 0;
    span_add(comm, a, COLL_GPUSYM_SENT, &unused, &sum[0]);
    span_add(comm, a, COLL_GPUSYM_WRITTEN, &unused, &sum[1]);
    span_add(comm, a, COLL_GPUSYM_TAKEN, &unused, &sum[2]);
    for (int i = 0; i < 3; i++) {
        most = sum[i] > most ? sum[i] : most;
    }
    return most;
}

/* The memory of a block that has gaps. */
static __attribute__((noinline)) void ask_gaps(const gpusym_device_t *dev, const void *at, const coll_gpusym_block_t *b,
                                               gpusym_mem_t *mem)
{
    gpusym_layout_t l;
    gpusym_layout_find(b->count, b->dtype, &l);
    gpusym_layout_where(dev, &l, at, mem);
}

/* The memory of one side, if it has any. */
static bool find_where(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a, coll_gpusym_side_t side,
                       const gpusym_device_t *dev, gpusym_mem_t *mem)
{
    const void *buf = COLL_GPUSYM_SENT == side ? a->sbuf : a->rbuf;
    coll_gpusym_layout_t l;
    coll_gpusym_block_t b;
    gpusym_mem_t one;
    bool found = false;

    coll_gpusym_layout(comm, a, side, &l);
    for (size_t i = 0; i < l.blocks; i++) {
        coll_gpusym_block(&l, i, &b);
        if (0 != b.count && 0 != b.dtype->super.size) {
            const uintptr_t at = (uintptr_t) buf + (uintptr_t) b.disp;
            if (b.dtype->super.flags & OPAL_DATATYPE_FLAG_NO_GAPS) {
                dev->query((const void *) (at + (uintptr_t) b.dtype->super.true_lb), &one);
            } else {
                ask_gaps(dev, (const void *) at, &b, &one);
            }
            *mem = !found || GPUSYM_MEM_DEVICE == one.kind || !coll_gpusym_on_gpu(mem) ? one : *mem;
            found = true;
            if (MPI_BOTTOM != buf || GPUSYM_MEM_DEVICE == mem->kind) {
                break;
            }
        }
    }
    return found;
}

/* ---- buffers ---- */

void coll_gpusym_buffers_measure(coll_gpusym_buffers_t *b)
{
    if (!b->send.span.known) {
        find_spans(b->comm, b->args, &b->send.span, &b->recv.span);
        b->send.span.known = b->recv.span.known = true;
    }
}

/* Whether both buffers of an all-reduce begin where their memory does that is asked for: a small one takes a few us. */
static inline bool is_short(const coll_gpusym_args_t *a)
{
    return COLL_GPUSYM_ALLREDUCE == a->coll && MPI_BOTTOM != a->sbuf && MPI_BOTTOM != a->rbuf && 0 != a->rcount &&
           0 != a->rdtype->super.size && 0 == a->rdtype->super.true_lb &&
           0 != (a->rdtype->super.flags & OPAL_DATATYPE_FLAG_NO_GAPS);
}

void coll_gpusym_buffers_find(coll_gpusym_buffers_t *b, struct ompi_communicator_t *comm, const gpusym_device_t *dev,
                              const coll_gpusym_args_t *args)
{
    b->comm = comm;
    b->args = args;
    b->send.mem = b->recv.mem = (gpusym_mem_t){.kind = GPUSYM_MEM_NONE, .gpu = -1};
    b->send.span.known = b->recv.span.known = false;
    if (NULL == dev) {
        coll_gpusym_buffers_measure(b);
        b->send.mem.kind = b->send.span.used ? GPUSYM_MEM_HOST : GPUSYM_MEM_NONE;
        b->recv.mem.kind = b->recv.span.used ? GPUSYM_MEM_HOST : GPUSYM_MEM_NONE;
    } else if (is_short(args)) {
        if (MPI_IN_PLACE != args->sbuf) {
            dev->query(args->sbuf, &b->send.mem);
        }
        dev->query(args->rbuf, &b->recv.mem);
    } else {
        find_where(comm, args, COLL_GPUSYM_SENT, dev, &b->send.mem);
        if (!find_where(comm, args, COLL_GPUSYM_WRITTEN, dev, &b->recv.mem)) {
            find_where(comm, args, COLL_GPUSYM_TAKEN, dev, &b->recv.mem);
        }
    }
}

void coll_gpusym_buffers_part(const coll_gpusym_buffers_t *whole, const coll_gpusym_args_t *part,
                              coll_gpusym_buffers_t *b)
{
    *b = (coll_gpusym_buffers_t){
        .comm = whole->comm, .args = part, .send.mem = whole->send.mem, .recv.mem = whole->recv.mem};
}
