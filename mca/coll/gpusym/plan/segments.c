/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What each collective is in the kernels' terms: which bytes go from where to where, and what is reduced.
 *
 * Three forms: the message as a whole (all-reduce, reduce, bcast), and segments, one for each pair of ranks, that are
 * placed or reduced.  Nothing here depends on what the peers have; what must be alike on all ranks is compared by the
 * roll-call.
 */
#include "mca/coll/gpusym/plan/segments.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/plan.h"
#include "mca/coll/gpusym/args/facts.h"
#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/args/types.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/gpusym/topo/paths.h"
#include "mca/common/ompi/layout.h"

/* n elements of a type are contiguous. */
static bool is_flat(struct ompi_datatype_t *type, size_t n)
{
    return 0 == n || ompi_datatype_is_contiguous_memory_layout(type, n > 1 ? 2 : 1);
}

static uint64_t bytes_of(struct ompi_datatype_t *type, size_t n)
{
    return (uint64_t) n * type->super.size;
}

/* From an element to the n-th behind it: with the padding that some pairs have, which kernels reduce too. */
static uint64_t extent_of(struct ompi_datatype_t *type, size_t n)
{
    return (uint64_t) n * (uint64_t) (type->super.ub - type->super.lb);
}

static bool is_in_place(const coll_gpusym_args_t *a)
{
    return MPI_IN_PLACE == a->sbuf;
}

static const coll_gpusym_facts_t *facts_of(const coll_gpusym_args_t *a)
{
    return &coll_gpusym_facts[a->coll];
}

/* Where the first block begins that is not empty, in bytes behind the buffer's address: before it, perhaps. Segments
 * count from there. */
static ptrdiff_t lowest_v(gpusym_counts_t counts, gpusym_displs_t displs, struct ompi_datatype_t *type, uint32_t n)
{
    ptrdiff_t low = 0;
    bool any = false;
    for (uint32_t p = 0; p < n; p++) {
        if (0 != gpusym_count_at(counts, p) && (!any || gpusym_displ_at(displs, p) < low)) {
            low = gpusym_displ_at(displs, p);
            any = true;
        }
    }
    return low * (ptrdiff_t) extent_of(type, 1);
}

/* The segments of a buffer described by counts and displacements; packed: of their bytes alone, one behind the
 * other. */
static void segs_v(gpusym_counts_t counts, gpusym_displs_t displs, struct ompi_datatype_t *type, uint32_t n,
                   bool packed, gpusym_seg_t *segs)
{
    const uint64_t extent = extent_of(type, 1), low = (uint64_t) lowest_v(counts, displs, type, n);
    uint64_t before = 0;
    for (uint32_t p = 0; p < n; p++) {
        const uint64_t bytes = bytes_of(type, (size_t) gpusym_count_at(counts, p));
        segs[p] = (gpusym_seg_t){packed ? before : (uint64_t) gpusym_displ_at(displs, p) * extent - low, bytes};
        segs[p].off = 0 == bytes ? 0 : segs[p].off;
        before += bytes;
    }
}

/* The segments of a buffer of equal blocks; packed: of their bytes alone. */
static void segs_blocks(struct ompi_datatype_t *type, size_t count, uint32_t n, bool packed, gpusym_seg_t *segs)
{
    for (uint32_t p = 0; p < n; p++) {
        segs[p] = (gpusym_seg_t){p * (packed ? bytes_of(type, count) : extent_of(type, count)), bytes_of(type, count)};
    }
}

/* The call in short, and its segments. */
typedef struct {
    const coll_gpusym_args_t *a;
    uint32_t me, n, root;
    gpusym_seg_t *send, *recv; /* [n], zeroed */
    uint64_t *remote;          /* [n]: gpusym_work_t.remote_off */
    bool in_packed, out_packed;
} pairs_t;

/* What goes to or comes from each rank, of a buffer that has a block for each. */
static void segment_sent(const pairs_t *s)
{
    const coll_gpusym_args_t *a = s->a;
    if (COLL_GPUSYM_L_BLOCKS_V == facts_of(a)->sent) {
        segs_v(a->scounts, a->sdispls, a->sdtype, s->n, s->in_packed, s->send);
    } else {
        segs_blocks(a->sdtype, a->scount, s->n, s->in_packed, s->send);
    }
}

static void segment_written(const pairs_t *s)
{
    const coll_gpusym_args_t *a = s->a;
    if (COLL_GPUSYM_L_BLOCKS_V == facts_of(a)->written) {
        segs_v(a->rcounts, a->rdispls, a->rdtype, s->n, s->out_packed, s->recv);
    } else {
        segs_blocks(a->rdtype, a->rcount, s->n, s->out_packed, s->recv);
    }
}

static void segment_allgather(const pairs_t *s)
{
    segment_written(s);
    for (uint32_t p = 0; p < s->n; p++) {
        s->send[p] = (gpusym_seg_t){0, s->recv[s->me].bytes};
        s->remote[p] = s->recv[s->me].off;
    }
}

static void segment_reduce_scatter(const pairs_t *s)
{
    const coll_gpusym_args_t *a = s->a;
    uint64_t off = 0;
    for (uint32_t p = 0; p < s->n; p++) {
        const size_t count =
            COLL_GPUSYM_L_PART == facts_of(a)->written ? (size_t) gpusym_count_at(a->rcounts, p) : a->rcount;
        s->send[p] = (gpusym_seg_t){off, extent_of(a->rdtype, count)};
        off += s->send[p].bytes;
    }
    s->recv[s->me] = (gpusym_seg_t){0, s->send[s->me].bytes};
    for (uint32_t p = 0; p < s->n; p++) {
        s->remote[p] = s->send[s->me].off;
    }
}

static void segment_alltoall(const pairs_t *s)
{
    const coll_gpusym_args_t *a = s->a;
    const bool v = COLL_GPUSYM_L_BLOCKS_V == facts_of(a)->written;
    segment_written(s);
    for (uint32_t p = 0; p < s->n; p++) {
        s->remote[p] = v ? 0 : s->me * extent_of(a->rdtype, a->rcount);
    }
    if (!is_in_place(a)) {
        segment_sent(s);
    } else {
        memcpy(s->send, s->recv, s->n * sizeof *s->send);
        s->send[s->me] = s->recv[s->me] = (gpusym_seg_t){0, 0};
    }
}

static void segment_gather(const pairs_t *s)
{
    const coll_gpusym_args_t *a = s->a;
    if (s->me == s->root) {
        segment_written(s);
        if (is_in_place(a)) {
            s->recv[s->me] = (gpusym_seg_t){0, 0};
        } else {
            s->send[s->root] = (gpusym_seg_t){0, s->recv[s->me].bytes};
        }
        return;
    }
    s->send[s->root] = (gpusym_seg_t){0, bytes_of(a->sdtype, a->scount)};
    /* Push: the root's blocks are as long as ours, and lie one after the other (only then is its buffer one
     * segment). */
    s->remote[s->root] = s->me * s->send[s->root].bytes;
}

static void segment_scatter(const pairs_t *s)
{
    const coll_gpusym_args_t *a = s->a;
    if (s->me == s->root) {
        segment_sent(s);
        if (MPI_IN_PLACE == a->rbuf) {
            s->send[s->me] = (gpusym_seg_t){0, 0};
            return;
        }
    } else {
        s->recv[s->root] = (gpusym_seg_t){0, bytes_of(a->rdtype, a->rcount)};
        return;
    }
    s->recv[s->root] = (gpusym_seg_t){0, s->send[s->me].bytes};
}

static void segment_scan(const pairs_t *s)
{
    const coll_gpusym_args_t *a = s->a;
    const gpusym_seg_t whole = {0, extent_of(a->rdtype, a->rcount)};
    const uint32_t own = COLL_GPUSYM_RANKS_LATER == facts_of(a)->to ? 1 : 0;
    for (uint32_t p = s->me + own; p < s->n; p++) {
        s->send[p] = whole;
    }
    if (s->me >= own) {
        s->recv[s->me] = whole;
    }
}

/* The forms of bcast and reduce that go by segments. */
static void segment_rooted(const pairs_t *s)
{
    const coll_gpusym_args_t *a = s->a;
    const bool reduce = facts_of(a)->reduces;
    const gpusym_seg_t whole = {0, reduce ? extent_of(a->rdtype, a->rcount) : bytes_of(a->rdtype, a->rcount)};
    if (reduce) {
        s->send[s->root] = whole;
        if (s->me == s->root) {
            s->recv[s->me] = whole;
        }
    } else if (s->me != s->root) {
        s->recv[s->root] = whole;
    } else {
        for (uint32_t p = 0; p < s->n; p++) {
            if (p != s->root) {
                s->send[p] = whole;
            }
        }
    }
}

/* All-reduce has no segments. */
static void segment_call(const pairs_t *s)
{
    static void (*const segment[COLL_GPUSYM_PATTERNS])(const pairs_t *) = {
        [COLL_GPUSYM_P_ROOTED] = segment_rooted,
        [COLL_GPUSYM_P_ALLGATHER] = segment_allgather,
        [COLL_GPUSYM_P_REDUCE_SCATTER] = segment_reduce_scatter,
        [COLL_GPUSYM_P_ALLTOALL] = segment_alltoall,
        [COLL_GPUSYM_P_GATHER] = segment_gather,
        [COLL_GPUSYM_P_SCATTER] = segment_scatter,
        [COLL_GPUSYM_P_SCAN] = segment_scan,
    };
    const unsigned pattern = facts_of(s->a)->pattern;
    if (NULL != segment[pattern]) {
        segment[pattern](s);
    }
}

/* The segments of a call, by this rank's arguments. */
static void find_segments(const coll_gpusym_segments_t *k, const pairs_t *s)
{
    if (coll_gpusym_blocks_has(s->a->coll)) {
        const coll_gpusym_blocks_t from = coll_gpusym_segments_blocks(k, COLL_GPUSYM_SENT);
        const coll_gpusym_blocks_t to = coll_gpusym_segments_blocks(k, COLL_GPUSYM_WRITTEN);
        coll_gpusym_place_t place;
        (void) coll_gpusym_blocks_find(&from, s->send, &place);
        (void) coll_gpusym_blocks_find(&to, s->recv, &place);
    } else {
        segment_call(s);
    }
}

/* The bytes that this rank sends and takes where segment_call() has it from the other side, as MPI says it must be
 * alike. */
static void set_own_lengths(const pairs_t *s)
{
    const coll_gpusym_args_t *a = s->a;
    switch (facts_of(a)->pattern) {
    case COLL_GPUSYM_P_ALLGATHER:
        for (uint32_t p = 0; p < s->n && !is_in_place(a); p++) {
            s->send[p].bytes = bytes_of(a->sdtype, a->scount);
        }
        break;
    case COLL_GPUSYM_P_GATHER:
        if (s->me == s->root && !is_in_place(a)) {
            s->send[s->me].bytes = bytes_of(a->sdtype, a->scount);
        }
        break;
    case COLL_GPUSYM_P_SCATTER:
        if (s->me == s->root && MPI_IN_PLACE != a->rbuf) {
            s->recv[s->me].bytes = bytes_of(a->rdtype, a->rcount);
        }
        break;
    default:
        break;
    }
}

/* ---- what a rank knows before the roll-call ---- */

bool coll_gpusym_segments_moves(unsigned coll)
{
    return !coll_gpusym_facts[coll].reduces;
}

/* Whether any two ranks may have a length of their own. */
static bool has_pairs(const coll_gpusym_facts_t *f)
{
    return COLL_GPUSYM_P_NEIGHBORS == f->pattern || COLL_GPUSYM_L_BLOCKS_W == f->sent;
}

/* Whether each rank knows by itself how much goes between any two: no length is in an array that not all ranks pass. */
static bool is_exact(const coll_gpusym_facts_t *f)
{
    return COLL_GPUSYM_L_BLOCKS_V != f->sent && !has_pairs(f) &&
           (COLL_GPUSYM_L_BLOCKS_V != f->written || COLL_GPUSYM_RANKS_ALL == f->to);
}

/* An odd number for what rank a sends to rank b, by which other pairs' differences do not make up for its own. */
static uint64_t weigh_pair(uint32_t a, uint32_t b)
{
    uint64_t x = (uint64_t) (a * GPUSYM_TEAM_MAX + b + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 32) | 1;
}

/* What this rank sends less what it takes, so that the sum over all ranks is 0 where every rank takes what is sent to
 * it. Where all lengths are one number, the ranks' `bytes` are compared, and only a rank's own two lengths are left. */
static uint64_t sum_balance(const pairs_t *s)
{
    const coll_gpusym_facts_t *f = facts_of(s->a);
    uint64_t sum = 0;
    if (f->reduces || gpusym_collective_whole(s->a->coll)) {
        return 0;
    }
    if (!has_pairs(f) && !coll_gpusym_has_arrays(f->sent) && !coll_gpusym_has_arrays(f->written)) {
        return s->send[s->me].bytes != s->recv[s->me].bytes;
    }
    for (uint32_t p = 0; p < s->n; p++) {
        sum += weigh_pair(s->me, p) * s->send[p].bytes - weigh_pair(p, s->me) * s->recv[p].bytes;
    }
    return sum;
}

/* A buffer of this rank: NULL if it has none. */
typedef struct {
    const void *buf;
    struct ompi_datatype_t *type;
    size_t count;  /* elements in a row; 0: blocks with displacements of their own, */
    ptrdiff_t low; /* the first of which begins there, in bytes behind buf */
} side_t;

/* From where its segments count: the first byte of the first element. NULL: it has none. */
static char *first_byte(const side_t *s)
{
    return NULL == s->type ? NULL : (char *) (uintptr_t) s->buf + s->type->super.true_lb + s->low;
}

/* Elements in a row of a buffer. */
static size_t count_row(unsigned layout, size_t count, uint32_t n)
{
    switch (layout) {
    case COLL_GPUSYM_L_BLOCKS:
        return count * n;
    case COLL_GPUSYM_L_BLOCKS_V:
        return 0;
    default:
        return count;
    }
}

/* The buffers; in place, in is out, or a part of it that find_extents() finds. Where both are one, the root too has
 * out. */
static void find_sides(const coll_gpusym_args_t *a, uint32_t me, uint32_t n, side_t *in, side_t *out)
{
    const coll_gpusym_facts_t *f = facts_of(a);
    const bool root = me == (uint32_t) a->root;

    *in = *out = (side_t){NULL, NULL, 0, 0};
    if (!is_in_place(a) && (root || COLL_GPUSYM_RANKS_ROOT != f->from)) {
        *in = (side_t){a->sbuf, a->sdtype, count_row(f->sent, a->scount, n), 0};
        in->low = COLL_GPUSYM_L_BLOCKS_V == f->sent ? lowest_v(a->scounts, a->sdispls, a->sdtype, n) : 0;
    }
    if (MPI_IN_PLACE != a->rbuf && (root || COLL_GPUSYM_RANKS_ROOT != f->to)) {
        *out = (side_t){a->rbuf, a->rdtype, count_row(f->written, a->rcount, n), 0};
        out->low = COLL_GPUSYM_L_BLOCKS_V == f->written ? lowest_v(a->rcounts, a->rdispls, a->rdtype, n) : 0;
    }
}

/* The blocks of a side that has counts and displacements, one by one. False: there is none behind those before p. */
static bool next_block(const coll_gpusym_layout_t *all, const void *buf, size_t *p, gpusym_layout_t *l, void **at)
{
    coll_gpusym_block_t block;
    while (*p < all->blocks) {
        coll_gpusym_block(all, (*p)++, &block);
        if (0 != block.count) {
            gpusym_layout_find(block.count, block.dtype, l);
            *at = (char *) (uintptr_t) buf + block.disp;
            return true;
        }
    }
    return false;
}

/* What stands for a side in scratch memory. False: no kernel packs it, or it may lie in different kinds of memory. */
static bool find_part(struct ompi_communicator_t *comm, const coll_gpusym_segments_t *k, coll_gpusym_side_t side,
                      const side_t *s, coll_gpusym_part_t *part)
{
    coll_gpusym_layout_t all;
    gpusym_layout_t l;
    size_t p = 0;
    void *at;
    if (MPI_BOTTOM == s->buf) {
        return false;
    }
    *part = (coll_gpusym_part_t){.buf = (void *) (uintptr_t) s->buf};
    if (0 != s->count) {
        gpusym_layout_find(s->count, s->type, &part->layout);
        part->bytes = part->layout.bytes;
        return coll_gpusym_packed_at_once(&k->where, &part->layout, part->buf);
    }
    part->blocks = true;
    coll_gpusym_layout(comm, k->args, side, &all);
    while (next_block(&all, s->buf, &p, &l, &at)) {
        if (!coll_gpusym_packed_at_once(&k->where, &l, at)) {
            return false;
        }
        part->bytes += l.bytes;
    }
    return true;
}

/* Sets in and out. Buffers whose elements are not contiguous are packed. False: no kernel packs them. host_in,
 * host_out: that buffer is host memory; then it must be contiguous, and is copied as what is packed. */
static bool find_buffers(struct ompi_communicator_t *comm, uint32_t me, uint32_t n, coll_gpusym_segments_t *k,
                         bool host_in, bool host_out)
{
    const coll_gpusym_args_t *a = k->args;
    side_t in, out;
    find_sides(a, me, n, &in, &out);
    k->in = first_byte(&in);
    k->out = first_byte(&out);
    if (!facts_of(a)->reduces) { /* types that kernels reduce are flat */
        const bool in_flat = NULL == in.type || is_flat(in.type, 0 == in.count ? 2 : in.count);
        const bool out_flat = NULL == out.type || is_flat(out.type, 0 == out.count ? 2 : out.count);
        if ((host_in && !in_flat) || (host_out && !out_flat)) {
            return false;
        }
        if (((!in_flat || host_in) && !find_part(comm, k, COLL_GPUSYM_SENT, &in, &k->pack)) ||
            ((!out_flat || host_out) && !find_part(comm, k, COLL_GPUSYM_WRITTEN, &out, &k->unpack))) {
            return false;
        }
    }
    if (COLL_GPUSYM_BCAST == a->coll && me == (uint32_t) a->root) {
        k->unpack.bytes = 0; /* it has the result */
    }
    k->keep = is_in_place(a) && 0 != k->unpack.bytes;
    const unsigned pattern = facts_of(a)->pattern;
    if (is_in_place(a) && COLL_GPUSYM_P_ALLGATHER != pattern && COLL_GPUSYM_P_GATHER != pattern) {
        k->in = k->out;
    }
    return true;
}

/* The same of a collective that has a block for each edge. */
static bool find_places(coll_gpusym_segments_t *k)
{
    gpusym_seg_t seg[GPUSYM_TEAM_MAX] = {{0, 0}};
    const coll_gpusym_blocks_t from = coll_gpusym_segments_blocks(k, COLL_GPUSYM_SENT);
    const coll_gpusym_blocks_t to = coll_gpusym_segments_blocks(k, COLL_GPUSYM_WRITTEN);
    if (k->team->host.nranks > GPUSYM_TEAM_MAX) { /* a reason of the team's */
        return true;
    }
    if (!coll_gpusym_blocks_find(&from, seg, &k->from)) {
        return false;
    }
    memset(seg, 0, sizeof seg);
    if (!coll_gpusym_blocks_find(&to, seg, &k->to)) {
        return false;
    }
    k->in = k->from.base;
    k->out = k->to.base;
    return true;
}

/* The end of the last segment, and the length of the longest. */
static uint64_t segs_end(const gpusym_seg_t *segs, uint32_t n, uint64_t *longest)
{
    uint64_t end = 0;
    for (uint32_t p = 0; p < n; p++) {
        if (0 == segs[p].bytes) {
            continue;
        }
        const uint64_t to = segs[p].off + segs[p].bytes;
        end = to > end ? to : end;
        *longest = segs[p].bytes > *longest ? segs[p].bytes : *longest;
    }
    return end;
}

static uint32_t hash_segs(const gpusym_seg_t *segs, uint32_t n)
{
    uint32_t h = 0;
    for (uint32_t p = 0; p < n; p++) {
        h = (h ^ (uint32_t) segs[p].off ^ (uint32_t) (segs[p].off >> 32)) * 2654435761u;
    }
    return h;
}

/* Lengths: of what is read, of what is written, of the longest segment. */
static void find_extents(coll_gpusym_segments_t *k)
{
    const coll_gpusym_args_t *a = k->args;
    const coll_gpusym_facts_t *f = facts_of(a);
    const uint32_t me = k->team->host.rank, n = k->team->host.nranks;

    if (gpusym_collective_whole(a->coll)) {
        k->bytes = f->reduces ? extent_of(a->rdtype, a->rcount) : bytes_of(a->rdtype, a->rcount);
        k->in_bytes = NULL != k->in ? k->bytes : 0;
        k->out_bytes = NULL != k->out ? k->bytes : 0;
        return;
    }

    gpusym_seg_t send[GPUSYM_TEAM_MAX] = {{0, 0}}, recv[GPUSYM_TEAM_MAX] = {{0, 0}};
    uint64_t remote[GPUSYM_TEAM_MAX] = {0};
    const pairs_t s = {a, me, n, (uint32_t) a->root, send, recv, remote, 0 != k->pack.bytes, 0 != k->unpack.bytes};
    find_segments(k, &s);
    set_own_lengths(&s);
    k->balance = sum_balance(&s);
    k->bytes = 0;
    k->in_bytes = segs_end(send, n, &k->bytes);
    k->out_bytes = segs_end(recv, n, &k->bytes);
    if (COLL_GPUSYM_P_ALLGATHER == f->pattern && is_in_place(a)) {
        k->in = (char *) k->out + recv[me].off;
        k->in_off = recv[me].off;
    }
    if (COLL_GPUSYM_L_PART == f->written) {
        k->counts = hash_segs(send, n);
    }
    if (COLL_GPUSYM_P_REDUCE_SCATTER == f->pattern && is_in_place(a) && 0 != k->out_bytes) {
        /* The result would overwrite input that another block, or a peer, has still to read. */
        k->unpack = (coll_gpusym_part_t){
            .bytes = k->out_bytes, .buf = k->out, .layout = {.kind = GPUSYM_LAYOUT_RUN, .bytes = k->out_bytes}};
    }
    /* A rank that pushes into a peer's buffer takes it to be laid out like its own, or reads the peer's table; see
     * segment_gather() for the root's. */
    if (COLL_GPUSYM_MAPS_OUT == f->maps && COLL_GPUSYM_RANKS_ALL == f->to) {
        k->layout = hash_segs(recv, n);
    } else if (COLL_GPUSYM_GATHER == a->coll && me == s.root) {
        k->layout = !is_flat(a->rdtype, 2);
    }
}

/* A buffer of a reduction that is host memory goes through scratch memory, with the padding of its elements. */
static coll_gpusym_part_t make_run(void *buf, uint64_t bytes)
{
    return (coll_gpusym_part_t){.bytes = bytes, .buf = buf, .layout = {.kind = GPUSYM_LAYOUT_RUN, .bytes = bytes}};
}

/* Scratch memory that stands for host memory, in bytes: longer buffers are staged. */
#define HOST_MAX (32ull << 20)

/* With the extents: a buffer is host memory, or both are. In place, the input is too. */
static void bring_host(coll_gpusym_segments_t *k, bool host_in, bool host_out)
{
    if (facts_of(k->args)->reduces) {
        host_in = host_in || is_in_place(k->args);
        k->pack = host_in ? make_run((void *) (uintptr_t) k->in, k->in_bytes) : k->pack;
        k->unpack = host_out ? make_run(k->out, k->out_bytes) : k->unpack;
    }
    k->out_local = k->out_local || host_out;
    if (coll_gpusym_segments_scratch_bytes(k) > HOST_MAX) {
        k->reason = COLL_GPUSYM_R_MIXED;
    }
}

/* Whether two buffers lie on different GPUs, or in different contexts of one. */
static bool are_apart(const gpusym_mem_t *a, const gpusym_mem_t *b)
{
    return GPUSYM_MEM_DEVICE == a->kind && GPUSYM_MEM_DEVICE == b->kind &&
           (a->gpu != b->gpu || (NULL != a->context && NULL != b->context && a->context != b->context));
}

/* Registered memory is none: kernels reach it. */
static bool is_host(const gpusym_mem_t *mem)
{
    return GPUSYM_MEM_HOST == mem->kind;
}

static int find_reason(coll_gpusym_segments_t *k, const gpusym_mem_t *smem, const gpusym_mem_t *rmem)
{
    const coll_gpusym_args_t *a = k->args;
    coll_gpusym_team_t *team = k->team;

    k->op = GPUSYM_OP_BOR; /* bytes are moved: any operation, never applied */
    k->type = GPUSYM_T_U8;
    if (COLL_GPUSYM_ALG_STAGED == coll_gpusym_params.algorithm[a->coll]) {
        return COLL_GPUSYM_R_FORCED;
    }
    if (facts_of(a)->reduces) {
        const int op = coll_gpusym_op(a->op), type = coll_gpusym_type(a->rdtype);
        if (op < 0) {
            return ompi_op_is_intrinsic(a->op) ? COLL_GPUSYM_R_OP : COLL_GPUSYM_R_USER_OP;
        }
        if (type < 0) {
            return COLL_GPUSYM_R_TYPE;
        }
        if (!gpusym_op_valid((unsigned) op, (unsigned) type)) {
            return COLL_GPUSYM_R_OP;
        }
        k->op = (unsigned) op;
        k->type = (unsigned) type;
    }
    const bool host_in = is_host(smem), host_out = is_host(rmem);
    if ((host_in || host_out) && coll_gpusym_blocks_has(a->coll)) {
        return COLL_GPUSYM_R_MIXED;
    }
    if (coll_gpusym_blocks_has(a->coll)
            ? !find_places(k)
            : !find_buffers(team->fallback->comm, team->host.rank, team->host.nranks, k, host_in, host_out)) {
        return host_in || host_out ? COLL_GPUSYM_R_MIXED : COLL_GPUSYM_R_TYPE;
    }
    if (are_apart(smem, rmem) || (GPUSYM_MEM_NONE != rmem->kind && !host_out && !coll_gpusym_team_owns(team, rmem)) ||
        (GPUSYM_MEM_NONE != smem->kind && !host_in && !coll_gpusym_team_owns(team, smem))) {
        return COLL_GPUSYM_R_OTHER_GPU;
    }
    return -1;
}

void coll_gpusym_segments_init(coll_gpusym_segments_t *k, const gpusym_mem_t *smem, const gpusym_mem_t *rmem)
{
    const coll_gpusym_args_t *a = k->args;

    if (coll_gpusym_on_gpu(rmem) && (GPUSYM_MEM_DEVICE == rmem->kind || GPUSYM_MEM_DEVICE != smem->kind)) {
        k->where = *rmem;
    } else if (coll_gpusym_on_gpu(smem)) {
        k->where = *smem;
    }
    k->out_local = GPUSYM_MEM_DEVICE == rmem->kind;
    k->reason = find_reason(k, smem, rmem);
    k->exact = is_exact(facts_of(a));
    k->out_id = k->to.packed ? 0 : rmem->id;
    k->in_id = GPUSYM_MEM_NONE != smem->kind && !is_in_place(a) ? smem->id : rmem->id;
    k->in_place = is_in_place(a);
    if (k->reason < 0 && k->team->host.nranks <= GPUSYM_TEAM_MAX) {
        find_extents(k);
        if (is_host(smem) || is_host(rmem)) {
            bring_host(k, is_host(smem), is_host(rmem));
        }
        k->in = 0 == k->in_bytes ? NULL : k->in; /* what is not touched may be any memory */
        k->out = 0 == k->out_bytes ? NULL : k->out;
    }
}

/* Elements, or the run that stands for them. */
typedef struct {
    gpusym_layout_t layout;
    char *buf;
} elements_t;

/* What one rank has on a side: its part, or a run from `at` on. */
static elements_t find_elements(struct ompi_communicator_t *comm, const coll_gpusym_segments_t *k,
                                coll_gpusym_side_t side, char *at, uint64_t bytes)
{
    const coll_gpusym_part_t *part = COLL_GPUSYM_SENT == side ? &k->pack : &k->unpack;
    elements_t e = {{.kind = GPUSYM_LAYOUT_RUN, .bytes = bytes}, at};
    coll_gpusym_layout_t all;
    void *buf = part->buf;
    size_t p = 0;
    if (0 != part->bytes) {
        e.layout = part->layout;
        coll_gpusym_layout(comm, k->args, side, &all);
        if (part->blocks) {
            (void) next_block(&all, part->buf, &p, &e.layout, &buf);
        }
        e.buf = buf;
    }
    return e;
}

/* Whether a GPU packs or unpacks the elements; a run may be any memory. */
static bool is_reached(const elements_t *e)
{
    gpusym_mem_t mem = {.kind = GPUSYM_MEM_DEVICE};
    if (GPUSYM_LAYOUT_RUN != e->layout.kind) {
        gpusym_current.dev->query(e->buf + e->layout.lo, &mem);
    }
    return GPUSYM_MEM_HOST != mem.kind;
}

static int copy_elements(gpusym_gpu_t *gpu, const elements_t *to, const elements_t *from, uint64_t bytes)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    void *packed;
    if (GPUSYM_LAYOUT_RUN == to->layout.kind) {
        return gpusym_layout_pack(dev, gpu, &from->layout, to->buf + to->layout.lo, from->buf, bytes);
    }
    if (GPUSYM_LAYOUT_RUN == from->layout.kind) {
        return gpusym_layout_unpack(dev, gpu, &to->layout, to->buf, from->buf + from->layout.lo, bytes);
    }
    int rc = gpusym_scratch_get(dev, gpu, bytes, &packed);
    if (GPUSYM_SUCCESS == rc) {
        rc = gpusym_layout_pack(dev, gpu, &from->layout, packed, from->buf, bytes);
        rc = GPUSYM_SUCCESS == rc ? gpusym_layout_unpack(dev, gpu, &to->layout, to->buf, packed, bytes) : rc;
        gpusym_scratch_put(dev, gpu, packed);
    }
    return rc;
}

bool coll_gpusym_segments_alone(struct ompi_communicator_t *comm, const coll_gpusym_args_t *a,
                                const gpusym_mem_t *where, int *rv)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    coll_gpusym_segments_t k = {.args = a, .where = *where};
    gpusym_seg_t send = {0, 0}, recv = {0, 0};
    uint64_t remote = 0;
    const pairs_t s = {a, 0, 1, 0, &send, &recv, &remote, false, false};
    gpusym_gpu_t *gpu;

    if (coll_gpusym_blocks_has(a->coll)) {
        return coll_gpusym_blocks_alone(comm, a, rv);
    }
    if (!coll_gpusym_has_kernels(a->coll) ||
        (facts_of(a)->reduces && coll_gpusym_type(a->rdtype) < 0 && !is_flat(a->rdtype, 2)) ||
        !find_buffers(comm, 0, 1, &k, false, false)) {
        return false;
    }
    segment_call(&s);
    set_own_lengths(&s);
    if (COLL_GPUSYM_ALLREDUCE == a->coll) {
        send.bytes = extent_of(a->rdtype, a->rcount);
    }
    char *from = (char *) (uintptr_t) k.in + send.off, *to = (char *) k.out + recv.off;
    *rv = MPI_SUCCESS;
    if (!facts_of(a)->reduces && COLL_GPUSYM_BCAST != a->coll && send.bytes > recv.bytes) {
        *rv = MPI_ERR_TRUNCATE;
        send.bytes = recv.bytes;
    }
    if (0 == send.bytes || NULL == k.in || NULL == k.out || from == to || COLL_GPUSYM_EXSCAN == a->coll) {
        return true;
    }
    const elements_t in = find_elements(comm, &k, COLL_GPUSYM_SENT, from, send.bytes);
    const elements_t out = find_elements(comm, &k, COLL_GPUSYM_WRITTEN, to, send.bytes);
    if (!is_reached(&in) || !is_reached(&out)) {
        return false;
    }
    if (GPUSYM_SUCCESS != dev->gpu_open(where, &gpu) || GPUSYM_SUCCESS != copy_elements(gpu, &out, &in, send.bytes)) {
        coll_gpusym_help("gpu-error", 0, "of the buffer", "of one rank", coll_gpusym_mpi_name(a->coll), dev->error());
        *rv = MPI_ERR_OTHER;
    }
    return true;
}

/* ---- scratch memory ---- */

void coll_gpusym_segments_scratch(coll_gpusym_segments_t *k, char *scratch)
{
    if (coll_gpusym_blocks_has(k->args->coll)) {
        k->in = k->from.packed ? scratch : k->in;
        k->out = k->to.packed ? scratch + k->from.bytes : k->out;
        return;
    }
    char *out = scratch + coll_gpusym_part_room(&k->pack);
    const bool root_bcast = COLL_GPUSYM_BCAST == k->args->coll && k->team->host.rank == (uint32_t) k->args->root;
    if (0 != k->unpack.bytes && k->keep && NULL != k->in) { /* in place: in is out, or a block of it */
        k->in = out + k->in_off;
    }
    if (0 != k->pack.bytes) {
        k->in = scratch;
        k->out = root_bcast ? scratch : k->out;
    }
    if (0 != k->unpack.bytes) {
        k->out = out;
    }
}

/* The bytes of a part follow each other in scratch memory. */
static int copy_part(const coll_gpusym_part_t *part, const coll_gpusym_layout_t *all, gpusym_gpu_t *gpu,
                     gpusym_stream_t *stream, char *packed, bool back)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_layout_t l = part->layout;
    int rc = GPUSYM_SUCCESS;
    void *at = part->buf;
    size_t p = 0;
    bool more = !part->blocks || next_block(all, part->buf, &p, &l, &at);
    while (more && GPUSYM_SUCCESS == rc) {
        rc = back ? gpusym_layout_unpack_async(dev, gpu, stream, &l, at, packed, l.bytes)
                  : gpusym_layout_pack_async(dev, gpu, stream, &l, packed, at, l.bytes);
        packed += l.bytes;
        more = part->blocks && next_block(all, part->buf, &p, &l, &at);
    }
    return rc;
}

int coll_gpusym_segments_copy(const coll_gpusym_segments_t *k, coll_gpusym_side_t side, gpusym_gpu_t *gpu,
                              gpusym_stream_t *stream, bool back)
{
    const bool sent = COLL_GPUSYM_SENT == side;
    const coll_gpusym_part_t *part = sent ? &k->pack : &k->unpack;
    char *scratch = (char *) (uintptr_t) (sent ? k->in : k->out);
    coll_gpusym_layout_t all;
    if (sent ? k->from.packed : k->to.packed) {
        const coll_gpusym_blocks_t b = coll_gpusym_segments_blocks(k, side);
        return coll_gpusym_blocks_copy(&b, gpu, stream, scratch, back);
    }
    if (0 == part->bytes) {
        return GPUSYM_SUCCESS;
    }
    coll_gpusym_layout(k->team->fallback->comm, k->args, side, &all);
    return copy_part(part, &all, gpu, stream, scratch, back);
}

/* ---- zero copy ---- */

void coll_gpusym_segments_maps(unsigned coll, bool *in, bool *out)
{
    *in = 0 != (coll_gpusym_facts[coll].maps & COLL_GPUSYM_MAPS_IN);
    *out = 0 != (coll_gpusym_facts[coll].maps & COLL_GPUSYM_MAPS_OUT);
}

bool coll_gpusym_segments_in_table(unsigned coll)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[coll];
    return COLL_GPUSYM_MAPS_OUT == f->maps && COLL_GPUSYM_RANKS_ALL == f->to &&
           (has_pairs(f) || coll_gpusym_has_arrays(f->written));
}

bool coll_gpusym_segments_alike(unsigned coll, const gpusym_rollcall_read_t *read)
{
    const bool own = coll_gpusym_segments_in_table(coll) && COLL_GPUSYM_P_ALLGATHER != coll_gpusym_facts[coll].pattern;
    return read->same_layout && !own;
}

bool coll_gpusym_segments_zero_copy(unsigned coll, const gpusym_rollcall_read_t *read)
{
    const bool apart = coll_gpusym_facts[coll].apart;
    uint32_t need = 0;
    bool in, out;
    coll_gpusym_segments_maps(coll, &in, &out);
    need |= in ? GPUSYM_POST_CAN_IN : 0;
    need |= out ? GPUSYM_POST_CAN_OUT : 0;
    return 0 != need && need == (read->all & need) && !(apart && 0 != (read->any & GPUSYM_POST_IN_PLACE)) &&
           (read->same_layout || coll_gpusym_segments_in_table(coll));
}

/* ---- the descriptor ---- */

void coll_gpusym_segments_rows(const coll_gpusym_segments_t *k, gpusym_table_row_t *rows)
{
    const coll_gpusym_team_t *t = k->team;
    gpusym_seg_t to[GPUSYM_TEAM_MAX] = {{0, 0}}, from[GPUSYM_TEAM_MAX] = {{0, 0}};
    uint64_t remote[GPUSYM_TEAM_MAX];
    const pairs_t s = {k->args, t->host.rank, t->host.nranks,     (uint32_t) k->args->root, to,
                       from,    remote,       0 != k->pack.bytes, 0 != k->unpack.bytes};
    find_segments(k, &s);
    set_own_lengths(&s);
    for (uint32_t p = 0; p < t->host.nranks; p++) {
        rows[p] = (gpusym_table_row_t){to[p].off, to[p].bytes, from[p].off, from[p].bytes};
    }
}

/* Whether a side's blocks are contiguous, and lie in one buffer. */
static bool is_one_run(const side_t *s, unsigned layout)
{
    const bool arrays = coll_gpusym_has_arrays(layout);
    return NULL == s->type || (0 == s->count && !arrays) ||
           (MPI_BOTTOM != s->buf && is_flat(s->type, arrays ? 2 : s->count));
}

bool coll_gpusym_segments_may_move(const coll_gpusym_segments_t *k)
{
    const coll_gpusym_args_t *a = k->args;
    const coll_gpusym_facts_t *f = facts_of(a);
    side_t in, out;
    if (f->reduces || coll_gpusym_blocks_has(a->coll) || (is_in_place(a) && COLL_GPUSYM_P_ALLTOALL == f->pattern)) {
        return false;
    }
    find_sides(a, k->team->host.rank, k->team->host.nranks, &in, &out);
    return is_one_run(&in, f->sent) && is_one_run(&out, f->written);
}

bool coll_gpusym_segments_move(const coll_gpusym_segments_t *k, gpusym_table_row_t *rows, const char **in, char **out)
{
    const coll_gpusym_args_t *a = k->args;
    const uint32_t me = k->team->host.rank, n = k->team->host.nranks;
    gpusym_seg_t *segs = calloc(n, 2 * sizeof *segs + sizeof(uint64_t));
    side_t from, to;
    if (NULL == segs) {
        return false;
    }
    const pairs_t s = {a, me, n, (uint32_t) a->root, segs, segs + n, (uint64_t *) (segs + 2 * n), false, false};
    segment_call(&s);
    set_own_lengths(&s);
    for (uint32_t p = 0; p < n; p++) {
        rows[p] = (gpusym_table_row_t){s.send[p].off, s.send[p].bytes, s.recv[p].off, s.recv[p].bytes};
    }
    find_sides(a, me, n, &from, &to);
    *out = first_byte(&to);
    *in = first_byte(&from);
    if (is_in_place(a) && COLL_GPUSYM_P_ALLGATHER == facts_of(a)->pattern) {
        *in = *out + rows[me].recv_off;
    }
    free(segs);
    return true;
}

void coll_gpusym_segments_work(const coll_gpusym_segments_t *k, uint64_t bytes, const coll_gpusym_pair_sizes_t *sizes,
                               gpusym_work_t *w)
{
    const coll_gpusym_args_t *a = k->args;
    const uint32_t me = w->rank, n = w->nranks, root = (uint32_t) a->root;
    const pairs_t s = {a, me, n, root, w->send, w->recv, w->remote_off, 0 != k->pack.bytes, 0 != k->unpack.bytes};

    w->in = k->in;
    w->out = k->out;
    w->out_local = k->out_local;
    w->bytes = bytes;
    w->op = k->op;
    w->type = k->type;
    w->src_first = 0;
    w->src_end = n;
    w->dst_first = 0;
    w->dst_end = n;
    find_segments(k, &s);
    if (NULL != sizes) {
        for (uint32_t p = 0; p < n; p++) {
            w->send[p].bytes = sizes->send[p];
            w->recv[p].bytes = sizes->recv[p];
        }
    } else if (COLL_GPUSYM_BCAST == a->coll) {
        w->src_first = root;
        w->src_end = root + 1;
    } else if (COLL_GPUSYM_REDUCE == a->coll) {
        w->dst_first = root;
        w->dst_end = root + 1;
    } else if (COLL_GPUSYM_SCAN == a->coll) {
        w->src_end = me + 1;
    } else if (COLL_GPUSYM_EXSCAN == a->coll) {
        w->src_end = me;
    }
}

void coll_gpusym_segments_paths(const coll_gpusym_segments_t *k, int schedule, gpusym_work_t *w)
{
    const coll_gpusym_team_t *t = k->team;
    const bool tree = schedule >= GS_TREE_ALLREDUCE;
    w->schedule = (uint32_t) schedule;
    w->npaths = tree ? 2 : t->host.nrings;
    if (schedule < 0) {
        w->npaths = 0;
    }
    for (uint32_t i = 0; i < w->npaths; i++) {
        gpusym_path_t *path = &w->path[i];
        uint32_t order[GPUSYM_TEAM_MAX];
        gpusym_team_path_t seen;
        for (uint32_t r = 0; r < w->nranks; r++) {
            path->order[r] = tree ? (uint8_t) r : t->host.ring[i][r];
            order[r] = path->order[r];
        }
        gpusym_team_path((uint32_t) schedule, w->nranks, tree ? NULL : order, i, w->rank, (uint32_t) k->args->root,
                         &seen);
        path->pos = (uint8_t) seen.pos;
        path->links = (uint8_t) seen.links;
        for (uint32_t l = 0; l < GS_LINKS; l++) {
            path->peer[l] = (uint8_t) seen.peer[l];
            path->peer_link[l] = (uint8_t) seen.peer_link[l];
        }
    }
}

bool coll_gpusym_segments_copies(unsigned coll, uint64_t bytes, const gpusym_work_t *slot)
{
    return gpusym_copies_fit(coll_gpusym_facts[coll].reduces ? GPUSYM_F_CE_R : GPUSYM_F_CE, slot,
                             gpusym_collective_whole(coll), bytes);
}

bool coll_gpusym_segments_channels(const gpusym_tuning_choice_t *choice, const gpusym_work_t *slot)
{
    const int schedule = gpusym_algorithm_schedule((unsigned) choice->algorithm);
    if (GPUSYM_F_RSXLL128_AGXLL128 == choice->family) {
        return gpusym_ll128_fits(slot);
    }
    return schedule < 0 || 0 != gpusym_channels_max(choice->family, (unsigned) schedule, slot);
}
