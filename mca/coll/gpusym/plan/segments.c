/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What each collective is in the kernels' terms: which bytes go from where to where, and what is reduced.
 *
 * Three forms: the message as a whole (all-reduce, reduce, bcast), and segments, one for each pair of ranks, that are
 * placed or reduced.  Nothing here depends on what the peers have; what must be alike on all ranks is compared by the
 * call agreement.
 */
#include "mca/coll/gpusym/plan/segments.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/plan.h"
#include "mca/coll/gpusym/args/facts.h"
#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/coll/gpusym/team/peers.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/gpusym/topo/paths.h"
#include "mca/common/ompi/layout.h"
#include "mca/common/ompi/types.h"

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

/* What is found once of an array of counts. Zeroed before its first use. */
typedef struct {
    uint32_t next; /* one behind the other, block `next` begins at off */
    uint64_t off;
    bool has_low;
    ptrdiff_t low; /* lowest_v() */
} cursor_t;

/* Where block p begins, of blocks one behind the other whose elements take `each` bytes. Quick where p rises. */
static uint64_t find_offset(cursor_t *c, gpusym_counts_t counts, uint64_t each, uint32_t p)
{
    if (p < c->next) {
        c->next = 0;
        c->off = 0;
    }
    for (; c->next < p; c->next++) {
        c->off += each * (uint64_t) gpusym_count_at(counts, c->next);
    }
    return c->off;
}

/* Segment p of n of a buffer described by counts and displacements; packed: of its bytes alone, behind those before
 * it. */
static gpusym_seg_t seg_v(gpusym_counts_t counts, gpusym_displs_t displs, struct ompi_datatype_t *type, uint32_t p,
                          uint32_t n, bool packed, cursor_t *c)
{
    gpusym_seg_t s = {0, bytes_of(type, (size_t) gpusym_count_at(counts, p))};
    if (0 == s.bytes) {
        return s;
    }
    if (packed) {
        s.off = find_offset(c, counts, bytes_of(type, 1), p);
        return s;
    }
    c->low = c->has_low ? c->low : lowest_v(counts, displs, type, n);
    c->has_low = true;
    s.off = (uint64_t) gpusym_displ_at(displs, p) * extent_of(type, 1) - (uint64_t) c->low;
    return s;
}

/* Segment p of a buffer of equal blocks; packed: of their bytes alone. */
static gpusym_seg_t seg_block(struct ompi_datatype_t *type, size_t count, uint32_t p, bool packed)
{
    const gpusym_seg_t s = {p * (packed ? bytes_of(type, count) : extent_of(type, count)), bytes_of(type, count)};
    return s;
}

/* The call in short, for the segments of any pair of its communicator's ranks. */
typedef struct {
    const coll_gpusym_args_t *a;
    uint32_t me, n, root;
    bool in_packed, out_packed;
    cursor_t in, out;
    gpusym_seg_t mine;             /* this rank's own block or part, where the other side's offsets depend on it */
    const gpusym_seg_t *from, *to; /* [n] of a collective that has blocks, which are found all at once; NULL: others */
} pairs_t;

/* What goes between this rank and rank p. */
typedef struct {
    gpusym_seg_t send, recv;
    uint64_t remote; /* gpusym_work_t.remote_off */
} pair_t;

/* Blocks of a buffer of all ranks: with counts and displacements, or equal ones. */
static gpusym_seg_t seg_written(pairs_t *s, uint32_t p)
{
    const coll_gpusym_args_t *a = s->a;
    return COLL_GPUSYM_L_BLOCKS_V == facts_of(a)->written
               ? seg_v(a->rcounts, a->rdispls, a->rdtype, p, s->n, s->out_packed, &s->out)
               : seg_block(a->rdtype, a->rcount, p, s->out_packed);
}

static gpusym_seg_t seg_sent(pairs_t *s, uint32_t p)
{
    const coll_gpusym_args_t *a = s->a;
    return COLL_GPUSYM_L_BLOCKS_V == facts_of(a)->sent
               ? seg_v(a->scounts, a->sdispls, a->sdtype, p, s->n, s->in_packed, &s->in)
               : seg_block(a->sdtype, a->scount, p, s->in_packed);
}

static void pair_allgather(pairs_t *s, uint32_t p, pair_t *x)
{
    x->recv = seg_written(s, p);
    x->send = (gpusym_seg_t){0, s->mine.bytes};
    x->remote = s->mine.off;
}

/* Part p of the input. */
static gpusym_seg_t seg_part(pairs_t *s, uint32_t p)
{
    const coll_gpusym_args_t *a = s->a;
    const uint64_t each = extent_of(a->rdtype, 1);
    if (COLL_GPUSYM_L_PART != facts_of(a)->written) {
        return (gpusym_seg_t){p * each * a->rcount, each * a->rcount};
    }
    return (gpusym_seg_t){find_offset(&s->in, a->rcounts, each, p), each * gpusym_count_at(a->rcounts, p)};
}

static void pair_reduce_scatter(pairs_t *s, uint32_t p, pair_t *x)
{
    x->send = seg_part(s, p);
    x->recv.bytes = p == s->me ? s->mine.bytes : 0;
    x->remote = s->mine.off;
}

static void pair_alltoall(pairs_t *s, uint32_t p, pair_t *x)
{
    const coll_gpusym_args_t *a = s->a;
    const bool v = COLL_GPUSYM_L_BLOCKS_V == facts_of(a)->written;
    x->remote = v ? 0 : s->me * extent_of(a->rdtype, a->rcount);
    if (is_in_place(a) && p == s->me) {
        return;
    }
    x->recv = seg_written(s, p);
    x->send = is_in_place(a) ? x->recv : seg_sent(s, p);
}

static void pair_gather(pairs_t *s, uint32_t p, pair_t *x)
{
    const coll_gpusym_args_t *a = s->a;
    if (s->me == s->root) {
        if (p == s->me && is_in_place(a)) {
            return;
        }
        x->recv = seg_written(s, p);
        x->send.bytes = p == s->me ? x->recv.bytes : 0;
    } else if (p == s->root) {
        x->send = (gpusym_seg_t){0, bytes_of(a->sdtype, a->scount)};
        /* Push: the root's blocks are as long as ours, and lie one after the other (only then is its buffer one
         * segment). */
        x->remote = s->me * x->send.bytes;
    }
}

static void pair_scatter(pairs_t *s, uint32_t p, pair_t *x)
{
    const coll_gpusym_args_t *a = s->a;
    if (s->me == s->root) {
        if (p == s->me && MPI_IN_PLACE == a->rbuf) {
            return;
        }
        x->send = seg_sent(s, p);
        x->recv.bytes = p == s->me ? x->send.bytes : 0;
    } else if (p == s->root) {
        x->recv = (gpusym_seg_t){0, bytes_of(a->rdtype, a->rcount)};
    }
}

static void pair_scan(pairs_t *s, uint32_t p, pair_t *x)
{
    const coll_gpusym_args_t *a = s->a;
    const gpusym_seg_t whole = {0, extent_of(a->rdtype, a->rcount)};
    const uint32_t own = COLL_GPUSYM_RANKS_LATER == facts_of(a)->to ? 1 : 0;
    if (p >= s->me + own) {
        x->send = whole;
    }
    if (p == s->me && s->me >= own) {
        x->recv = whole;
    }
}

/* The forms of bcast and reduce that go by segments. */
static void pair_rooted(pairs_t *s, uint32_t p, pair_t *x)
{
    const coll_gpusym_args_t *a = s->a;
    const bool reduce = facts_of(a)->reduces;
    const gpusym_seg_t whole = {0, reduce ? extent_of(a->rdtype, a->rcount) : bytes_of(a->rdtype, a->rcount)};
    if (reduce) {
        x->send = p == s->root ? whole : x->send;
        x->recv = p == s->root && s->me == s->root ? whole : x->recv;
    } else if (s->me != s->root) {
        x->recv = p == s->root ? whole : x->recv;
    } else if (p != s->root) {
        x->send = whole;
    }
}

/* The segments between this rank and rank p of the communicator, of which there may be any number. All-reduce has
 * none. */
static pair_t find_pair(pairs_t *s, uint32_t p)
{
    static void (*const find[COLL_GPUSYM_PATTERNS])(pairs_t *, uint32_t, pair_t *) = {
        [COLL_GPUSYM_P_ROOTED] = pair_rooted,
        [COLL_GPUSYM_P_ALLGATHER] = pair_allgather,
        [COLL_GPUSYM_P_REDUCE_SCATTER] = pair_reduce_scatter,
        [COLL_GPUSYM_P_ALLTOALL] = pair_alltoall,
        [COLL_GPUSYM_P_GATHER] = pair_gather,
        [COLL_GPUSYM_P_SCATTER] = pair_scatter,
        [COLL_GPUSYM_P_SCAN] = pair_scan,
    };
    const unsigned pattern = facts_of(s->a)->pattern;
    pair_t x = {{0, 0}, {0, 0}, 0};
    if (NULL != s->from) {
        x.send = s->from[p];
        x.recv = s->to[p];
    } else if (NULL != find[pattern]) {
        find[pattern](s, p, &x);
    }
    return x;
}

/* The bytes that this rank sends to rank p and takes from it where find_pair() has it from the other side, as MPI says
 * it must be alike. */
static void set_own_lengths(const pairs_t *s, uint32_t p, pair_t *x)
{
    const coll_gpusym_args_t *a = s->a;
    switch (facts_of(a)->pattern) {
    case COLL_GPUSYM_P_ALLGATHER:
        x->send.bytes = is_in_place(a) ? x->send.bytes : bytes_of(a->sdtype, a->scount);
        break;
    case COLL_GPUSYM_P_GATHER:
        if (p == s->me && s->me == s->root && !is_in_place(a)) {
            x->send.bytes = bytes_of(a->sdtype, a->scount);
        }
        break;
    case COLL_GPUSYM_P_SCATTER:
        if (p == s->me && s->me == s->root && MPI_IN_PLACE != a->rbuf) {
            x->recv.bytes = bytes_of(a->rdtype, a->rcount);
        }
        break;
    default:
        break;
    }
}

static pair_t find_own_pair(pairs_t *s, uint32_t p)
{
    pair_t x = find_pair(s, p);
    set_own_lengths(s, p, &x);
    return x;
}

/* Segments of blocks, of both sides; of as many ranks as there are. */
typedef struct {
    gpusym_seg_t from[COLL_GPUSYM_RANKS_MAX], to[COLL_GPUSYM_RANKS_MAX];
} blocks_t;

/* The pairs of any call but one that has blocks. */
static pairs_t make_pairs(const coll_gpusym_args_t *a, uint32_t me, uint32_t n, bool in_packed, bool out_packed)
{
    pairs_t s = {
        .a = a, .me = me, .n = n, .root = (uint32_t) a->root, .in_packed = in_packed, .out_packed = out_packed};
    const unsigned pattern = facts_of(a)->pattern;
    if (COLL_GPUSYM_P_ALLGATHER == pattern) {
        s.mine = seg_written(&s, me);
    } else if (COLL_GPUSYM_P_REDUCE_SCATTER == pattern) {
        s.mine = seg_part(&s, me);
    }
    return s;
}

/* The pairs of a call, by this rank's arguments. blocks: lives as long. */
static pairs_t find_pairs(const coll_gpusym_segments_t *k, blocks_t *blocks)
{
    pairs_t s = make_pairs(k->args, k->rank, k->nranks, 0 != k->pack.bytes, 0 != k->unpack.bytes);
    if (coll_gpusym_blocks_has(k->args->coll)) {
        const coll_gpusym_blocks_t from = coll_gpusym_segments_blocks(k, COLL_GPUSYM_SENT);
        const coll_gpusym_blocks_t to = coll_gpusym_segments_blocks(k, COLL_GPUSYM_WRITTEN);
        coll_gpusym_blocks_segments(&from, k->from.packed, blocks->from);
        coll_gpusym_blocks_segments(&to, k->to.packed, blocks->to);
        s.from = blocks->from;
        s.to = blocks->to;
    }
    return s;
}

/* ---- what a rank knows before the call agreement ---- */

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
    uint64_t x = ((uint64_t) a << 32 | (b + 1)) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 32) | 1;
}

/* Whether a call has a balance: what this rank sends less what it takes, so that the sum over all ranks is 0 where
 * every rank takes what is sent to it. */
static bool has_balance(const coll_gpusym_facts_t *f, unsigned coll)
{
    return !f->reduces && !gpusym_collective_whole(coll);
}

/* What rank p adds to it. Where all lengths are one number, the ranks' `bytes` are compared, and only a rank's own two
 * lengths are left. */
static uint64_t balance_of(const pairs_t *s, uint32_t p, const pair_t *x)
{
    const coll_gpusym_facts_t *f = facts_of(s->a);
    if (!has_pairs(f) && !coll_gpusym_has_arrays(f->sent) && !coll_gpusym_has_arrays(f->written)) {
        return p == s->me && x->send.bytes != x->recv.bytes;
    }
    return weigh_pair(s->me, p) * x->send.bytes - weigh_pair(p, s->me) * x->recv.bytes;
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

/* Whether blocks with displacements follow each other in the order of the ranks. */
static bool is_in_order(gpusym_counts_t counts, gpusym_displs_t displs, uint32_t n)
{
    ptrdiff_t next = 0;
    bool any = false;
    for (uint32_t p = 0; p < n; p++) {
        const ptrdiff_t count = (ptrdiff_t) gpusym_count_at(counts, p), at = gpusym_displ_at(displs, p);
        if (0 != count && any && at != next) {
            return false;
        }
        next = 0 != count ? at + count : next;
        any = any || 0 != count;
    }
    return true;
}

/* Of several islands: whether the output is packed so that blocks of other islands stand in the same place for all
 * members of this one. */
static bool is_put_in_order(const coll_gpusym_segments_t *k, uint32_t n)
{
    const coll_gpusym_args_t *a = k->args;
    return NULL != k->team && coll_gpusym_team_is_part(k->team) && COLL_GPUSYM_P_ALLGATHER == facts_of(a)->pattern &&
           COLL_GPUSYM_L_BLOCKS_V == facts_of(a)->written && !is_in_order(a->rcounts, a->rdispls, n);
}

/* Whether the elements in a row of a side are one run of several allocations. */
static bool is_split(const side_t *s)
{
    gpusym_layout_t l;
    if (NULL == s->type || 0 == s->count || ompi_datatype_is_predefined(s->type)) {
        return false;
    }
    gpusym_layout_find(s->count, s->type, &l);
    return GPUSYM_LAYOUT_RUN == l.kind && !gpusym_layout_together(gpusym_current.dev, &l, s->buf);
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
        if (((!in_flat || host_in || is_split(&in)) && !find_part(comm, k, COLL_GPUSYM_SENT, &in, &k->pack)) ||
            ((!out_flat || host_out || is_split(&out) || is_put_in_order(k, n)) &&
             !find_part(comm, k, COLL_GPUSYM_WRITTEN, &out, &k->unpack))) {
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
    const coll_gpusym_blocks_t from = coll_gpusym_segments_blocks(k, COLL_GPUSYM_SENT);
    const coll_gpusym_blocks_t to = coll_gpusym_segments_blocks(k, COLL_GPUSYM_WRITTEN);
    if (!coll_gpusym_blocks_find(&from, &k->from) || !coll_gpusym_blocks_find(&to, &k->to)) {
        return false;
    }
    k->in = k->from.base;
    k->out = k->to.base;
    return true;
}

/* The end of the last segment so far, and the length of the longest. */
static void extend_to(const gpusym_seg_t *seg, uint64_t *end, uint64_t *longest)
{
    if (0 != seg->bytes) {
        const uint64_t to = seg->off + seg->bytes;
        *end = to > *end ? to : *end;
        *longest = seg->bytes > *longest ? seg->bytes : *longest;
    }
}

static uint32_t hash_seg(uint32_t h, const gpusym_seg_t *seg)
{
    return (h ^ (uint32_t) seg->off ^ (uint32_t) (seg->off >> 32)) * 2654435761u;
}

/* Lengths of a call of segments: of what is read, of what is written, of the longest; and hashes of where they lie. */
static void measure_pairs(coll_gpusym_segments_t *k, uint32_t *sent, uint32_t *written)
{
    const coll_gpusym_facts_t *f = facts_of(k->args);
    const bool balanced = has_balance(f, k->args->coll);
    blocks_t blocks;
    pairs_t s = find_pairs(k, &blocks);
    k->bytes = k->in_bytes = k->out_bytes = k->balance = 0;
    *sent = *written = 0;
    for (uint32_t p = 0; p < s.n; p++) {
        const pair_t x = find_own_pair(&s, p);
        extend_to(&x.send, &k->in_bytes, &k->bytes);
        extend_to(&x.recv, &k->out_bytes, &k->bytes);
        *sent = hash_seg(*sent, &x.send);
        *written = hash_seg(*written, &x.recv);
        k->balance += balanced ? balance_of(&s, p, &x) : 0;
    }
    if (COLL_GPUSYM_P_ALLGATHER == f->pattern && is_in_place(k->args)) {
        k->in_off = s.mine.off;
        k->in = (char *) k->out + k->in_off;
    }
}

/* Bytes of a buffer of a reduction that go through scratch memory, with the padding of its elements. */
static coll_gpusym_part_t make_run(void *buf, uint64_t bytes)
{
    return (coll_gpusym_part_t){.bytes = bytes, .buf = buf, .layout = {.kind = GPUSYM_LAYOUT_RUN, .bytes = bytes}};
}

/* Whether the parts of a reduce-scatter all have one length. */
static bool is_even(const coll_gpusym_segments_t *k)
{
    blocks_t blocks;
    pairs_t s = find_pairs(k, &blocks);
    bool even = true;
    for (uint32_t p = 0; p < s.n && even; p++) {
        even = k->bytes == find_own_pair(&s, p).send.bytes;
    }
    return even;
}

/* Lengths: of what is read, of what is written, of the longest segment. */
static void find_extents(coll_gpusym_segments_t *k)
{
    const coll_gpusym_args_t *a = k->args;
    const coll_gpusym_facts_t *f = facts_of(a);
    uint32_t sent, written;

    if (gpusym_collective_whole(a->coll)) {
        k->bytes = f->reduces ? extent_of(a->rdtype, a->rcount) : bytes_of(a->rdtype, a->rcount);
        k->in_bytes = NULL != k->in ? k->bytes : 0;
        k->out_bytes = NULL != k->out ? k->bytes : 0;
        return;
    }
    measure_pairs(k, &sent, &written);
    if (COLL_GPUSYM_L_PART == f->written) {
        k->counts = sent;
    }
    if (COLL_GPUSYM_P_REDUCE_SCATTER == f->pattern && is_in_place(a) && 0 != k->out_bytes) {
        /* The result would overwrite input that another block, or a peer, has still to read. */
        k->even = is_even(k);
        k->unpack = make_run(k->out, k->out_bytes);
    }
    /* A rank that pushes into a peer's buffer takes it to be laid out like its own, or reads the peer's table; see
     * pair_gather() for the root's. */
    if (COLL_GPUSYM_MAPS_OUT == f->maps && COLL_GPUSYM_RANKS_ALL == f->to) {
        k->layout = written;
    } else if (COLL_GPUSYM_GATHER == a->coll && k->rank == (uint32_t) a->root) {
        k->layout = !is_flat(a->rdtype, 2);
    }
}

/* Scratch memory that stands for host memory, in bytes: longer buffers are staged. */
#define HOST_MAX (32ull << 20)

/* With the extents: a buffer is host memory, or both are, and goes through scratch memory. In place, the input is
 * too. */
static void bring_host(coll_gpusym_segments_t *k, bool host_in, bool host_out)
{
    if (facts_of(k->args)->reduces) {
        host_in = host_in || is_in_place(k->args);
        k->pack = host_in ? make_run((void *) (uintptr_t) k->in, k->in_bytes) : k->pack;
        k->unpack = host_out ? make_run(k->out, k->out_bytes) : k->unpack;
    }
    k->out_local = k->out_local || host_out;
    k->even = false;
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
    if (COLL_GPUSYM_ALG_STAGED == coll_gpusym_params.algorithm[a->coll] &&
        !(team->has_settings && COLL_GPUSYM_UNSET != team->settings.value[a->coll])) { /* call/call.c asks these */
        return COLL_GPUSYM_R_FORCED;
    }
    if (facts_of(a)->reduces) {
        const int op = gpusym_mpi_op(a->op), type = gpusym_mpi_type(a->rdtype);
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
    if (coll_gpusym_blocks_has(a->coll) && k->nranks > COLL_GPUSYM_RANKS_MAX) {
        return COLL_GPUSYM_R_BETWEEN;
    }
    const bool host_in = is_host(smem), host_out = is_host(rmem);
    if ((host_in || host_out) && coll_gpusym_blocks_has(a->coll)) {
        return COLL_GPUSYM_R_MIXED;
    }
    if (coll_gpusym_blocks_has(a->coll)
            ? !find_places(k)
            : !find_buffers(team->fallback->comm, k->rank, k->nranks, k, host_in, host_out)) {
        return host_in || host_out ? COLL_GPUSYM_R_MIXED : COLL_GPUSYM_R_TYPE;
    }
    if (are_apart(smem, rmem) || (GPUSYM_MEM_NONE != rmem->kind && !host_out && !coll_gpusym_team_owns(team, rmem)) ||
        (GPUSYM_MEM_NONE != smem->kind && !host_in && !coll_gpusym_team_owns(team, smem))) {
        return COLL_GPUSYM_R_OTHER_GPU;
    }
    return -1;
}

void coll_gpusym_segments_init(coll_gpusym_segments_t *k, const coll_gpusym_buffers_t *b)
{
    const gpusym_mem_t *smem = &b->send.mem, *rmem = &b->recv.mem;
    const coll_gpusym_args_t *a = k->args;
    struct ompi_communicator_t *comm = k->team->fallback->comm;

    k->nranks = (uint32_t) ompi_comm_size(comm);
    k->rank = (uint32_t) ompi_comm_rank(comm);
    k->where = coll_gpusym_buffers_on_gpu(b) ? *coll_gpusym_buffers_where(b) : k->where;
    k->out_local = GPUSYM_MEM_DEVICE == rmem->kind;
    k->reason = find_reason(k, smem, rmem);
    k->exact = is_exact(facts_of(a));
    k->out_id = k->to.packed ? 0 : rmem->id;
    k->in_id = GPUSYM_MEM_NONE != smem->kind && !is_in_place(a) ? smem->id : rmem->id;
    k->in_place = is_in_place(a);
    if (k->reason < 0) {
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

/* A call of one rank, as a copy. */
typedef struct {
    coll_gpusym_segments_t k;
    char *from, *to;
    uint64_t bytes; /* 0: there is nothing to do */
} alone_t;

/* False: a copy cannot do it. */
static bool find_alone(const coll_gpusym_buffers_t *b, alone_t *x, int *rv)
{
    const coll_gpusym_args_t *a = b->args;
    coll_gpusym_segments_t *k = &x->k;
    *k = (coll_gpusym_segments_t){.args = a, .where = *coll_gpusym_buffers_where(b)};
    if (!coll_gpusym_has_kernels(a->coll) ||
        (facts_of(a)->reduces && gpusym_mpi_type(a->rdtype) < 0 && !is_flat(a->rdtype, 2)) ||
        !find_buffers(b->comm, 0, 1, k, false, false)) {
        return false;
    }
    pairs_t s = make_pairs(a, 0, 1, false, false);
    const pair_t pair = find_own_pair(&s, 0);
    gpusym_seg_t send = pair.send, recv = pair.recv;
    if (COLL_GPUSYM_ALLREDUCE == a->coll) {
        send.bytes = extent_of(a->rdtype, a->rcount);
    }
    x->from = (char *) (uintptr_t) k->in + send.off;
    x->to = (char *) k->out + recv.off;
    *rv = MPI_SUCCESS;
    if (!facts_of(a)->reduces && COLL_GPUSYM_BCAST != a->coll && send.bytes > recv.bytes) {
        *rv = MPI_ERR_TRUNCATE;
        send.bytes = recv.bytes;
    }
    const bool nothing = NULL == k->in || NULL == k->out || x->from == x->to || COLL_GPUSYM_EXSCAN == a->coll;
    x->bytes = nothing ? 0 : send.bytes;
    return true;
}

bool coll_gpusym_segments_alone(const coll_gpusym_buffers_t *b, int *rv)
{
    const coll_gpusym_args_t *a = b->args;
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_gpu_t *gpu;
    alone_t x;

    if (coll_gpusym_blocks_has(a->coll)) {
        return coll_gpusym_blocks_alone(b, rv);
    }
    if (!find_alone(b, &x, rv)) {
        return false;
    }
    if (0 == x.bytes) {
        return true;
    }
    const elements_t in = find_elements(b->comm, &x.k, COLL_GPUSYM_SENT, x.from, x.bytes);
    const elements_t out = find_elements(b->comm, &x.k, COLL_GPUSYM_WRITTEN, x.to, x.bytes);
    if (!is_reached(&in) || !is_reached(&out)) {
        return false;
    }
    if (GPUSYM_SUCCESS != dev->gpu_open(&x.k.where, &gpu) || GPUSYM_SUCCESS != copy_elements(gpu, &out, &in, x.bytes)) {
        coll_gpusym_help("gpu-error", 0, "of the buffer", "of one rank", coll_gpusym_mpi_name(a->coll), dev->error());
        *rv = MPI_ERR_OTHER;
    }
    return true;
}

bool coll_gpusym_segments_alone_run(const coll_gpusym_buffers_t *b, coll_gpusym_copy_t *copy, int *rv)
{
    alone_t x;
    if (coll_gpusym_blocks_has(b->args->coll) || !find_alone(b, &x, rv) || 0 != x.k.pack.bytes ||
        0 != x.k.unpack.bytes) {
        return false;
    }
    *copy = (coll_gpusym_copy_t){.to = x.to, .from = x.from, .bytes = x.bytes};
    return true;
}

/* ---- scratch memory ---- */

void coll_gpusym_segments_settle(coll_gpusym_segments_t *k, bool over)
{
    k->unpack.bytes = over ? 0 : k->out_bytes;
    k->out = k->unpack.buf;
}

void coll_gpusym_segments_scratch(coll_gpusym_segments_t *k, char *scratch)
{
    if (coll_gpusym_blocks_has(k->args->coll)) {
        k->in = k->from.packed ? scratch : k->in;
        k->out = k->to.packed ? scratch + k->from.bytes : k->out;
        return;
    }
    char *out = scratch + coll_gpusym_part_room(&k->pack);
    const bool root_bcast = coll_gpusym_segments_root_bcast(k);
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
static int copy_part(const coll_gpusym_part_t *part, const coll_gpusym_layout_t *all, gpusym_layout_queue_t *q,
                     char *packed)
{
    gpusym_layout_t l = part->layout;
    int rc = GPUSYM_SUCCESS;
    void *at = part->buf;
    size_t p = 0;
    bool more = !part->blocks || next_block(all, part->buf, &p, &l, &at);
    while (more && GPUSYM_SUCCESS == rc) {
        rc = gpusym_layout_queue_add(q, &l, at, packed);
        packed += l.bytes;
        more = part->blocks && next_block(all, part->buf, &p, &l, &at);
    }
    return rc;
}

int coll_gpusym_segments_copy(const coll_gpusym_segments_t *k, coll_gpusym_side_t side, gpusym_lane_t *lane, bool back,
                              uint32_t *words)
{
    const bool sent = COLL_GPUSYM_SENT == side;
    const coll_gpusym_part_t *part = sent ? &k->pack : &k->unpack;
    const bool blocks = sent ? k->from.packed : k->to.packed;
    char *scratch = (char *) (uintptr_t) (sent ? k->in : k->out);
    gpusym_layout_queue_t q;
    coll_gpusym_layout_t all;
    int rc;
    *words = 0;
    if (!blocks && 0 == part->bytes) {
        return GPUSYM_SUCCESS;
    }
    q.lane = lane;
    q.back = back;
    q.n = q.queued = q.words = 0;
    q.known = (gpusym_range_t){.size = 0};
    if (blocks) {
        const coll_gpusym_blocks_t b = coll_gpusym_segments_blocks(k, side);
        rc = coll_gpusym_blocks_copy(&b, &q, scratch);
    } else {
        coll_gpusym_layout(k->team->fallback->comm, k->args, side, &all);
        rc = copy_part(part, &all, &q, scratch);
    }
    rc = GPUSYM_SUCCESS == rc ? gpusym_layout_queue_end(&q) : rc;
    *words = q.words;
    return rc;
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

bool coll_gpusym_segments_alike(unsigned coll, const gpusym_agreement_read_t *read)
{
    const bool own = coll_gpusym_segments_in_table(coll) && COLL_GPUSYM_P_ALLGATHER != coll_gpusym_facts[coll].pattern;
    return read->same_layout && !own;
}

bool coll_gpusym_segments_zero_copy(unsigned coll, const gpusym_agreement_read_t *read)
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

/* A table's row of what this rank has for another. */
static gpusym_table_row_t make_row(pairs_t *s, uint32_t p)
{
    const pair_t x = find_own_pair(s, p);
    return (gpusym_table_row_t){x.send.off, x.send.bytes, x.recv.off, x.recv.bytes};
}

void coll_gpusym_segments_rows(const coll_gpusym_segments_t *k, gpusym_table_row_t *rows)
{
    blocks_t blocks;
    pairs_t s = find_pairs(k, &blocks);
    for (uint32_t r = 0; r < k->nranks; r++) {
        rows[r] = make_row(&s, r);
    }
}

/* Whether a side's blocks are contiguous, and lie in one buffer. */
static bool is_one_run(const side_t *s, unsigned layout)
{
    const bool arrays = coll_gpusym_has_arrays(layout);
    return NULL == s->type || (0 == s->count && !arrays) ||
           (MPI_BOTTOM != s->buf && is_flat(s->type, arrays ? 2 : s->count));
}

bool coll_gpusym_segments_may_stage(const coll_gpusym_segments_t *k)
{
    const coll_gpusym_args_t *a = k->args;
    const coll_gpusym_facts_t *f = facts_of(a);
    side_t in, out;
    if (f->reduces || coll_gpusym_blocks_has(a->coll)) {
        return false;
    }
    find_sides(a, k->rank, k->nranks, &in, &out);
    return is_one_run(&in, f->sent) && is_one_run(&out, f->written);
}

void coll_gpusym_segments_stage(const coll_gpusym_segments_t *k, gpusym_table_row_t *rows, const char **in, char **out)
{
    const coll_gpusym_args_t *a = k->args;
    const coll_gpusym_team_t *t = k->team;
    pairs_t s = make_pairs(a, k->rank, k->nranks, false, false);
    side_t from, to;
    for (uint32_t i = 0; i < t->host.nranks; i++) {
        rows[i] = make_row(&s, coll_gpusym_team_member(t, i));
    }
    find_sides(a, k->rank, k->nranks, &from, &to);
    *out = first_byte(&to);
    *in = first_byte(&from);
    if (is_in_place(a) && COLL_GPUSYM_P_ALLGATHER == facts_of(a)->pattern) {
        *in = *out + s.mine.off;
    } else if (is_in_place(a) && COLL_GPUSYM_P_ALLTOALL == facts_of(a)->pattern) {
        *in = *out;
    }
}

/* Fills in the segments of the team's ranks, as kernels number them. */
static void fill_segments(const coll_gpusym_segments_t *k, const coll_gpusym_pair_sizes_t *sizes, gpusym_work_t *w)
{
    blocks_t blocks;
    if (COLL_GPUSYM_P_ALLREDUCE == facts_of(k->args)->pattern) { /* it has none */
        return;
    }
    pairs_t s = find_pairs(k, &blocks);
    for (uint32_t i = 0; i < w->nranks; i++) {
        const pair_t x = find_pair(&s, coll_gpusym_team_member(k->team, i));
        w->send[i] = x.send;
        w->recv[i] = x.recv;
        w->remote_off[i] = x.remote;
        if (NULL != sizes) {
            w->send[i].bytes = sizes->send[i];
            w->recv[i].bytes = sizes->recv[i];
        }
    }
}

void coll_gpusym_segments_work(const coll_gpusym_segments_t *k, uint64_t bytes, const coll_gpusym_pair_sizes_t *sizes,
                               gpusym_work_t *w)
{
    const coll_gpusym_args_t *a = k->args;
    const uint32_t me = w->rank, n = w->nranks, root = (uint32_t) a->root;

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
    fill_segments(k, sizes, w);
    if (NULL != sizes) {
        return;
    }
    if (COLL_GPUSYM_BCAST == a->coll) {
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
