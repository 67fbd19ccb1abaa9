/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Blocks of edges: see blocks.h.
 *
 * The k-th edge from a rank to another in the order in which the sender packs them is the k-th in that in which the
 * receiver unpacks them. In graphs both orders are those of the lists of neighbours. In a grid, what goes to the lower
 * neighbour of a dimension arrives at that as what comes from its upper one. Where both are one rank, in a ring of one
 * or two, the sender's order must be the other way round.
 */
#include "mca/coll/gpusym/plan/blocks.h"

#include <string.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/team/peers.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "ompi/communicator/communicator.h"
#include "ompi/mca/topo/topo.h"

bool coll_gpusym_blocks_has(unsigned coll)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[coll];
    return COLL_GPUSYM_P_NEIGHBORS == f->pattern || COLL_GPUSYM_L_BLOCKS_W == f->sent;
}

/* ---- edges ---- */

static bool is_in_place(const coll_gpusym_blocks_t *b)
{
    return MPI_IN_PLACE == b->args->sbuf;
}

static bool is_neighbors(const coll_gpusym_blocks_t *b)
{
    return COLL_GPUSYM_P_NEIGHBORS == coll_gpusym_facts[b->args->coll].pattern;
}

/* Neighbour i of this rank in a grid: the lower one of dimension i / 2, or the upper one. Negative: none. */
static int grid_neighbor(struct ompi_communicator_t *comm, size_t i)
{
    const mca_topo_base_comm_cart_t *grid = comm->c_topo->mtc.cart;
    const int d = (int) (i / 2), size = grid->dims[d];
    int to = grid->coords[d] + (0 == i % 2 ? -1 : 1), stride = 1;
    if (to < 0 || to >= size) {
        if (!grid->periods[d]) {
            return MPI_PROC_NULL;
        }
        to = (to + size) % size;
    }
    for (int k = d + 1; k < grid->ndims; k++) {
        stride *= grid->dims[k];
    }
    return ompi_comm_rank(comm) + (to - grid->coords[d]) * stride;
}

/* The rank at the other end of edge i. Negative: there is none. */
static int edge_rank(const coll_gpusym_blocks_t *b, size_t i)
{
    struct ompi_communicator_t *comm = b->comm;
    if (!is_neighbors(b)) {
        return (int) i;
    }
    if (OMPI_COMM_IS_CART(comm)) {
        return grid_neighbor(comm, i);
    }
    if (OMPI_COMM_IS_GRAPH(comm)) {
        const mca_topo_base_comm_graph_t *graph = comm->c_topo->mtc.graph;
        const int rank = ompi_comm_rank(comm);
        return graph->edges[(size_t) (rank > 0 ? graph->index[rank - 1] : 0) + i];
    }
    const mca_topo_base_comm_dist_graph_t *graph = comm->c_topo->mtc.dist_graph;
    return COLL_GPUSYM_SENT == b->side ? graph->out[i] : graph->in[i];
}

/* Which edge is the k-th that is packed. */
static size_t edge_at(const coll_gpusym_blocks_t *b, size_t k)
{
    return is_neighbors(b) && COLL_GPUSYM_SENT == b->side && OMPI_COMM_IS_CART(b->comm) ? k ^ 1 : k;
}

/* The blocks of a side, one by one. */
typedef struct {
    const coll_gpusym_blocks_t *b;
    coll_gpusym_layout_t all;
    size_t edges, k; /* the next is the k-th */
    bool one;        /* the same block for every edge */
    bool equal;      /* blocks of one count and type, one behind the other */
    char *buf;
} walk_t;

/* What one edge has: bytes > 0. */
typedef struct {
    uint32_t rank;
    char *buf; /* the elements' address */
    size_t count;
    struct ompi_datatype_t *dtype;
    uint64_t bytes; /* packed */
} block_t;

static walk_t begin_walk(const coll_gpusym_blocks_t *b)
{
    const coll_gpusym_args_t *a = b->args;
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[a->coll];
    const bool sent = COLL_GPUSYM_SENT == b->side, own = sent && !is_in_place(b);
    const unsigned layout = sent ? f->sent : f->written;
    walk_t w = {.b = b,
                .one = COLL_GPUSYM_L_BLOCK == layout,
                .equal = COLL_GPUSYM_L_BLOCKS == layout,
                .buf = (char *) (uintptr_t) (own ? a->sbuf : a->rbuf)};
    coll_gpusym_layout(b->comm, a, own ? COLL_GPUSYM_SENT : COLL_GPUSYM_WRITTEN, &w.all);
    w.edges = coll_gpusym_count_peers(b->comm, a, b->side);
    return w;
}

static void block_of(const walk_t *w, size_t i, coll_gpusym_block_t *block)
{
    if (!w->one && !w->equal) {
        coll_gpusym_block(&w->all, i, block);
        return;
    }
    *block = w->all.one;
    if (0 == w->all.blocks) {
        block->count = 0;
    } else if (w->equal) {
        block->count = w->all.one.count / w->edges;
        block->disp = (ptrdiff_t) (i * block->count) * (block->dtype->super.ub - block->dtype->super.lb);
    }
}

/* The next block that is not empty. False: there is none. */
static bool next_block(walk_t *w, block_t *block)
{
    while (w->k < w->edges) {
        const size_t i = edge_at(w->b, w->k++);
        const int rank = edge_rank(w->b, i);
        coll_gpusym_block_t of;
        block_of(w, i, &of);
        if (rank < 0 || 0 == of.count || (is_in_place(w->b) && rank == ompi_comm_rank(w->b->comm))) {
            continue;
        }
        *block = (block_t){.rank = (uint32_t) rank,
                           .buf = (char *) ((uintptr_t) w->buf + (uintptr_t) of.disp),
                           .count = of.count,
                           .dtype = of.dtype,
                           .bytes = of.count * of.dtype->super.size};
        if (0 != block->bytes) {
            return true;
        }
    }
    return false;
}

/* What lies there: 0.2 us where there are gaps, so only for who copies it, or is to find that out. */
static gpusym_layout_t layout_of(const block_t *block)
{
    gpusym_layout_t l;
    gpusym_layout_find(block->count, block->dtype, &l);
    return l;
}

/* ---- segments ---- */

/* Segments in the user's buffer, their offsets counted from `base`, the first byte of the first. False: the blocks of a
 * rank do not lie one behind the other, or have gaps; the segments are undefined. */
static bool find_in_buffer(const coll_gpusym_blocks_t *b, gpusym_seg_t *seg, char **base)
{
    const uint32_t n = (uint32_t) ompi_comm_size(b->comm);
    uint64_t first = UINT64_MAX;
    walk_t w = begin_walk(b);
    block_t block;
    memset(seg, 0, n * sizeof *seg);
    while (next_block(&w, &block)) {
        gpusym_seg_t *s = &seg[block.rank];
        const gpusym_layout_t l = layout_of(&block);
        const uint64_t at = (uint64_t) (uintptr_t) block.buf + (uint64_t) l.lo;
        if (!gpusym_layout_is_one(gpusym_current.dev, &l, block.buf) || (0 != s->bytes && at != s->off + s->bytes)) {
            return false;
        }
        s->off = 0 != s->bytes ? s->off : at;
        s->bytes += block.bytes;
        first = at < first ? at : first;
    }
    for (uint32_t p = 0; p < n; p++) {
        seg[p].off = 0 != seg[p].bytes ? seg[p].off - first : 0;
    }
    *base = UINT64_MAX != first ? (char *) (uintptr_t) first : NULL;
    return true;
}

bool coll_gpusym_packed_at_once(const gpusym_mem_t *where, const gpusym_layout_t *l, const void *buf)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_gpu_t *gpu;
    return GPUSYM_LAYOUT_RUNS != l->kind ||
           (GPUSYM_SUCCESS == dev->gpu_open(where, &gpu) && gpusym_layout_by_gpu(dev, gpu, l, buf));
}

/* Lays segments, whose bytes are set, one behind the other. Returns the bytes of all. */
static uint64_t place_segments(gpusym_seg_t *seg, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < n; p++) {
        seg[p].off = bytes;
        bytes += (seg[p].bytes + 255) / 256 * 256;
    }
    return bytes;
}

/* Segments in scratch memory. Returns the bytes of that. */
static uint64_t find_in_scratch(const coll_gpusym_blocks_t *b, gpusym_seg_t *seg)
{
    walk_t w = begin_walk(b);
    block_t block;
    memset(seg, 0, (size_t) ompi_comm_size(b->comm) * sizeof *seg);
    while (next_block(&w, &block)) {
        seg[block.rank].bytes += block.bytes;
    }
    return place_segments(seg, (uint32_t) ompi_comm_size(b->comm));
}

/* Whether a kernel packs each of the blocks. */
static bool is_packed_at_once(const coll_gpusym_blocks_t *b)
{
    walk_t w = begin_walk(b);
    block_t block;
    while (next_block(&w, &block)) {
        const gpusym_layout_t l = layout_of(&block);
        if (!coll_gpusym_packed_at_once(b->where, &l, block.buf)) {
            return false;
        }
    }
    return true;
}

/* From MPI_BOTTOM, blocks may lie in several allocations, and in several kinds of memory. */
static bool is_one_buffer(const coll_gpusym_blocks_t *b)
{
    walk_t w = begin_walk(b);
    block_t block;
    return MPI_BOTTOM != w.buf || !next_block(&w, &block) || !next_block(&w, &block);
}

bool coll_gpusym_blocks_find(const coll_gpusym_blocks_t *b, coll_gpusym_place_t *place)
{
    gpusym_seg_t seg[COLL_GPUSYM_RANKS_MAX];
    *place = (coll_gpusym_place_t){NULL, false, 0};
    if (!is_one_buffer(b)) {
        return false;
    }
    if (find_in_buffer(b, seg, &place->base)) {
        return true;
    }
    place->packed = true;
    place->bytes = find_in_scratch(b, seg);
    return is_packed_at_once(b);
}

void coll_gpusym_blocks_segments(const coll_gpusym_blocks_t *b, bool packed, gpusym_seg_t *seg)
{
    char *base;
    if (packed) {
        (void) find_in_scratch(b, seg);
    } else {
        (void) find_in_buffer(b, seg, &base);
    }
}

/* ---- packing ---- */

int coll_gpusym_blocks_copy(const coll_gpusym_blocks_t *b, gpusym_layout_queue_t *q, char *scratch)
{
    gpusym_seg_t seg[COLL_GPUSYM_RANKS_MAX];
    int rc = GPUSYM_SUCCESS;
    walk_t w = begin_walk(b);
    block_t block;

    (void) find_in_scratch(b, seg);
    for (int p = 0; p < ompi_comm_size(b->comm); p++) {
        seg[p].bytes = 0;
    }
    while (GPUSYM_SUCCESS == rc && next_block(&w, &block)) {
        gpusym_seg_t *s = &seg[block.rank];
        const gpusym_layout_t l = layout_of(&block);
        rc = gpusym_layout_queue_add(q, &l, block.buf, scratch + s->off + s->bytes);
        s->bytes += block.bytes;
    }
    return rc;
}

/* ---- one rank ---- */

static uint64_t sum_blocks(const coll_gpusym_blocks_t *b)
{
    uint64_t sum = 0;
    walk_t w = begin_walk(b);
    block_t block;
    while (next_block(&w, &block)) {
        sum += block.bytes;
    }
    return sum;
}

/* Packs the blocks, up to `bytes` of them, one behind the other; or (back) unpacks them. */
static int copy_alone(const coll_gpusym_blocks_t *b, gpusym_gpu_t *gpu, char *packed, uint64_t bytes, bool back)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    int rc = GPUSYM_SUCCESS;
    walk_t w = begin_walk(b);
    block_t block;
    while (GPUSYM_SUCCESS == rc && 0 != bytes && next_block(&w, &block)) {
        const uint64_t n = block.bytes < bytes ? block.bytes : bytes;
        const gpusym_layout_t l = layout_of(&block);
        rc = back ? gpusym_layout_unpack(dev, gpu, &l, block.buf, packed, n)
                  : gpusym_layout_pack(dev, gpu, &l, packed, block.buf, n);
        packed += n;
        bytes -= n;
    }
    return rc;
}

bool coll_gpusym_blocks_alone(const coll_gpusym_buffers_t *b, int *rv)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const coll_gpusym_blocks_t from = {b->args, b->comm, COLL_GPUSYM_SENT, NULL},
                               to = {b->args, b->comm, COLL_GPUSYM_WRITTEN, NULL};
    const uint64_t sent = sum_blocks(&from), room = sum_blocks(&to), bytes = sent < room ? sent : room;
    gpusym_gpu_t *gpu;
    void *packed;
    int rc;

    *rv = sent > room ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
    if (0 == bytes) {
        return true;
    }
    if (!coll_gpusym_on_gpu(&b->send.mem) || !coll_gpusym_on_gpu(&b->recv.mem) || !is_one_buffer(&from) ||
        !is_one_buffer(&to) || GPUSYM_SUCCESS != dev->gpu_open(coll_gpusym_buffers_where(b), &gpu) ||
        GPUSYM_SUCCESS != gpusym_scratch_get(dev, gpu, bytes, &packed)) {
        return false;
    }
    rc = copy_alone(&from, gpu, packed, bytes, false);
    rc = GPUSYM_SUCCESS == rc ? copy_alone(&to, gpu, packed, bytes, true) : rc;
    gpusym_scratch_put(dev, gpu, packed);
    if (GPUSYM_SUCCESS != rc) {
        coll_gpusym_help("gpu-error", 0, "of the buffer", "of one rank", coll_gpusym_mpi_name(b->args->coll),
                         dev->error());
        *rv = MPI_ERR_OTHER;
    }
    return true;
}
