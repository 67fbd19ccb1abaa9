/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Packing and unpacking: between the elements of a datatype, which its nodes describe (gpusym_node_t), and packed
 * memory.  The kernel waits for nothing, and writes no completion word: what its stream does next finds the data.
 *
 *   ROWS    all threads of the launch take the units of one node in turns.
 *   PIECES  a few neighbouring threads take a node.  On both sides they run along the packed order: good where a row is
 *           at least a sector of 32 bytes, or has no neighbours.
 *   STICKS  rows of one short unit whose neighbours are other nodes: a line of a plane, say, of which each element
 *           begins a stick through all planes.  A tile of the sticks goes through shared memory, so that the threads
 *           run along neighbouring sticks on one side, and along the stick on the other.
 *
 * 64 MiB of sticks of 16 bytes, H200: in packed order 52 us, and 146 to unpack, which writes parts of sectors; by tiles
 * 40, as long as a copy.
 */
#ifndef GPUSYM_KERNELS_SYMM_PACK_H
#define GPUSYM_KERNELS_SYMM_PACK_H

#include "kernels/prim/prim.h"

/* Memory of the elements, and packed memory. */
typedef struct {
    char *user, *packed;
} gs_sides_t;

GS_FN gs_sides_t gs_pack_sides(const gpusym_work_t *w)
{
    gs_sides_t s;
    s.user = (w->pack.unpack ? (char *) w->out : (char *) (uintptr_t) w->in) - w->pack.lo;
    s.packed = (w->pack.unpack ? (char *) (uintptr_t) w->in : (char *) w->out) - w->pack.from;
    return s;
}

/* Loads and stores of 1, 2, 4, 8 or 16 bytes, to whose multiple the address belongs; a constant to the compiler. */
GS_FN gs_pack_t gs_ld_unit(const char *p, uint32_t unit)
{
    gs_pack_t v = {{0, 0}};
    if (16 == unit) {
        return gs_ld16(p);
    }
    v.w[0] = 8 == unit   ? *(const uint64_t *) p
             : 4 == unit ? *(const uint32_t *) p
             : 2 == unit ? *(const uint16_t *) p
                         : *(const uint8_t *) p;
    return v;
}

GS_FN void gs_st_unit(char *p, uint32_t unit, gs_pack_t v)
{
    if (16 == unit) {
        gs_st16(p, v);
    } else if (8 == unit) {
        *(uint64_t *) p = v.w[0];
    } else if (4 == unit) {
        *(uint32_t *) p = (uint32_t) v.w[0];
    } else if (2 == unit) {
        *(uint16_t *) p = (uint16_t) v.w[0];
    } else {
        *(uint8_t *) p = (uint8_t) v.w[0];
    }
}

/* ---- rows and pieces ---- */

/* Rows of `columns` units each: unit i lies at packed + i * unit. */
typedef struct {
    char *user, *packed;
    int64_t stride;
    uint64_t columns;
} gs_strip_t;

/* Quotient and remainder; a division of 32 bits takes a GPU a fifth of one of 64. */
GS_FN uint64_t gs_divide(uint64_t a, uint64_t b, uint64_t *rest)
{
    if (a < b) {
        *rest = a;
        return 0;
    }
    if (0 == (a | b) >> 32) {
        *rest = (uint32_t) a % (uint32_t) b;
        return (uint32_t) a / (uint32_t) b;
    }
    *rest = a % b;
    return a / b;
}

/* Moves the units first, first + step, ... before end. unit: a constant to the compiler. */
GS_FN void gs_pack_strip(const gs_strip_t *s, uint64_t first, uint64_t end, uint64_t step, uint32_t unit, bool unpack)
{
    uint64_t column, more;
    if (first >= end) {
        return;
    }
    uint64_t row = gs_divide(first, s->columns, &column);
    const uint64_t rows = gs_divide(step, s->columns, &more);
    GS_NO_UNROLL
    for (uint64_t i = first; i < end; i += GS_PACKS * step) {
        gs_pack_t v[GS_PACKS] = {{{0, 0}}};
        char *at[GS_PACKS] = {NULL};
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * step < end) {
                at[u] = s->user + (int64_t) row * s->stride + column * unit;
                v[u] = gs_ld_unit(unpack ? s->packed + (i + u * step) * unit : at[u], unit);
            }
            column += more; /* no division for each */
            row += rows + (column >= s->columns);
            column -= column >= s->columns ? s->columns : 0;
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (i + u * step < end) {
                gs_st_unit(unpack ? at[u] : s->packed + (i + u * step) * unit, unit, v[u]);
            }
        }
    }
}

/* Moves the packed bytes [from, to) of one node by threads `lane` of `lanes`, in the largest units that suit it. node:
 * `user` and `packed` are its first byte's addresses; from and to count from there. */
GS_FN void gs_pack_node(gs_sides_t at, const gpusym_node_t *node, uint64_t from, uint64_t to, uint64_t lane,
                        uint64_t lanes, bool unpack)
{
    const bool run = 1 == node->count;
    const uint64_t low = (uintptr_t) at.user | (uintptr_t) at.packed | from | to | 16 |
                         (run ? 0 : (uint64_t) node->stride | node->bytes);
    const uint32_t unit = (uint32_t) (low & (0 - low));
    gs_strip_t s;
    s.user = at.user;
    s.packed = at.packed;
    s.stride = node->stride;
    s.columns = run ? UINT64_MAX : node->bytes / unit;
    const uint64_t first = from / unit + lane, end = to / unit;
    if (16 == unit) {
        gs_pack_strip(&s, first, end, lanes, 16, unpack);
    } else if (8 == unit) {
        gs_pack_strip(&s, first, end, lanes, 8, unpack);
    } else if (4 == unit) {
        gs_pack_strip(&s, first, end, lanes, 4, unpack);
    } else if (2 == unit) {
        gs_pack_strip(&s, first, end, lanes, 2, unpack);
    } else {
        gs_pack_strip(&s, first, end, lanes, 1, unpack);
    }
}

GS_FN void gs_pack_rows(gs_ctx_t c, const gpusym_work_t *w)
{
    gs_sides_t at = gs_pack_sides(w);
    at.user += w->pack.node.disp;
    gs_pack_node(at, &w->pack.node, w->pack.from, w->pack.to, (uint64_t) c.block * c.nthreads + c.thread,
                 (uint64_t) c.nblocks * c.nthreads, 0 != w->pack.unpack);
}

GS_FN gpusym_node_t gs_ld_node(const gpusym_node_t *p)
{
    const gs_pack_t a = gs_ld16(p), b = gs_ld16((const char *) p + 16);
    gpusym_node_t node;
    node.disp = (int64_t) a.w[0];
    node.stride = (int64_t) a.w[1];
    node.count = (uint32_t) b.w[0];
    node.bytes = (uint32_t) (b.w[0] >> 32);
    node.packed = b.w[1];
    return node;
}

GS_FN void gs_pack_pieces(gs_ctx_t c, const gpusym_work_t *w)
{
    const gpusym_pack_t *const p = &w->pack;
    const gs_sides_t at = gs_pack_sides(w);
    const uint32_t lanes = p->lanes < c.nthreads ? p->lanes : c.nthreads, each = c.nthreads / lanes;
    const uint64_t groups = (uint64_t) c.nblocks * each, first = (uint64_t) c.block * each + c.thread / lanes;
    uint64_t i, more;
    uint64_t element = gs_divide(first, p->nnodes, &i);
    const uint64_t elements = gs_divide(groups, p->nnodes, &more);
    GS_NO_UNROLL
    while (element < p->elements) {
        const gpusym_node_t node = gs_ld_node(p->nodes + i);
        const uint64_t packed = element * p->size + node.packed, bytes = (uint64_t) node.count * node.bytes;
        const uint64_t from = p->from > packed ? p->from - packed : 0;
        const uint64_t to = p->to < packed + bytes ? p->to - packed : bytes; /* p->to < packed: nothing, below */
        gs_sides_t here;
        here.user = at.user + (int64_t) element * p->extent + node.disp;
        here.packed = at.packed + packed;
        if (p->to > packed && from < to) {
            gs_pack_node(here, &node, from, to, c.thread % lanes, lanes, 0 != p->unpack);
        }
        i += more;
        element += elements + (i >= p->nnodes);
        i -= i >= p->nnodes ? p->nnodes : 0;
    }
}

/* ---- sticks ---- */

/* Where the first row of a stick lies: from the elements' displacement 0, and from the packed byte 0. */
typedef struct {
    int64_t user;
    uint64_t packed;
} gs_stick_t;

/* A tile: sticks [stick, stick + 2^log_sticks) by rows [row, row + 2^log_rows). In shared memory a stick has a place
 * more than rows, so that neither direction meets in one bank. */
typedef struct {
    const gs_stick_t *sticks;
    gs_pack_t *data;
    uint64_t stick, row;
    uint32_t log_sticks, log_rows;
} gs_tile_t;

/* A place is a pack, or a word for shorter units. */
GS_FN gs_pack_t gs_ld_place(const gs_pack_t *data, uint32_t i, uint32_t unit)
{
    gs_pack_t v = {{0, 0}};
    if (16 == unit) {
        return data[i];
    }
    v.w[0] = data[i / 2].w[i % 2];
    return v;
}

GS_FN void gs_st_place(gs_pack_t *data, uint32_t i, uint32_t unit, gs_pack_t v)
{
    if (16 == unit) {
        data[i] = v;
    } else {
        data[i / 2].w[i % 2] = v.w[0];
    }
}

GS_FN uint64_t gs_count_sticks(const gpusym_work_t *w)
{
    return w->pack.nnodes * w->pack.elements;
}

/* Moves the tile between one side and shared memory. along: the threads run along the sticks' rows, which is the packed
 * order; else from stick to stick. */
GS_FN void gs_move_tile(gs_ctx_t c, const gpusym_work_t *w, gs_sides_t at, const gs_tile_t *t, uint32_t unit,
                        bool packed, bool load)
{
    const uint64_t left = gs_count_sticks(w) - t->stick;
    const uint32_t slots = 1u << (t->log_sticks + t->log_rows);
    GS_NO_UNROLL
    for (uint32_t i = c.thread; i < slots; i += GS_PACKS * c.nthreads) {
        gs_pack_t v[GS_PACKS] = {{{0, 0}}};
        char *to[GS_PACKS] = {NULL};
        uint32_t place[GS_PACKS] = {0};
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            const uint32_t k = i + u * c.nthreads;
            const uint32_t stick = packed ? k >> t->log_rows : k & ((1u << t->log_sticks) - 1);
            const uint32_t row = packed ? k & ((1u << t->log_rows) - 1) : k >> t->log_sticks;
            if (k >= slots || stick >= left || t->row + row >= w->pack.node.count) {
                continue;
            }
            const uint64_t pos = t->sticks[stick].packed + (t->row + row) * unit;
            if (pos < w->pack.from || pos >= w->pack.to) {
                continue;
            }
            to[u] = packed ? at.packed + pos
                           : at.user + t->sticks[stick].user + (int64_t) (t->row + row) * w->pack.node.stride;
            place[u] = stick * ((1u << t->log_rows) + 1) + row;
            if (load) {
                v[u] = gs_ld_unit(to[u], unit);
            }
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_PACKS; u++) {
            if (NULL == to[u]) {
                continue;
            }
            if (load) {
                gs_st_place(t->data, place[u], unit, v[u]);
            } else {
                gs_st_unit(to[u], unit, gs_ld_place(t->data, place[u], unit));
            }
        }
    }
}

/* Finds the sticks of a tile. */
GS_FN void gs_find_sticks(gs_ctx_t c, const gpusym_work_t *w, const gs_tile_t *t, gs_stick_t *sticks)
{
    const gpusym_pack_t *const p = &w->pack;
    const uint64_t left = gs_count_sticks(w) - t->stick;
    const uint32_t n = left < 1u << t->log_sticks ? (uint32_t) left : 1u << t->log_sticks;
    GS_NO_UNROLL
    for (uint32_t s = c.thread; s < n; s += c.nthreads) {
        uint64_t i;
        const uint64_t element = gs_divide(t->stick + s, p->nnodes, &i);
        const gpusym_node_t node = gs_ld_node(p->nodes + i);
        sticks[s].user = node.disp + (int64_t) element * p->extent;
        sticks[s].packed = node.packed + element * p->size;
    }
}

/* The smallest power of two, as an exponent from `least` to `most`, that is n at least. */
GS_FN uint32_t gs_log_cover(uint64_t n, uint32_t least, uint32_t most)
{
    while (least < most && n > 1ull << least) {
        least++;
    }
    return least;
}

/* Shapes a tile of 2^log_places places: GPUSYM_TILE_ROWS_MIN to GPUSYM_TILE_ROWS_MAX rows, or more, if there are not
 * that many sticks. */
GS_FN void gs_shape_tile(gs_tile_t *t, uint64_t rows, uint64_t sticks, uint32_t log_places)
{
    t->log_sticks = gs_log_cover(sticks, 0, log_places - gs_log_cover(rows, 3, 5));
    t->log_rows = gs_log_cover(rows, 3, log_places - t->log_sticks);
}

GS_FN void gs_pack_tiles(gs_ctx_t c, const gpusym_work_t *w, gs_stick_t *sticks, gs_pack_t *data, uint32_t unit)
{
    const gs_sides_t at = gs_pack_sides(w);
    const bool unpack = 0 != w->pack.unpack;
    gs_tile_t t;
    t.sticks = sticks;
    t.data = data;
    gs_shape_tile(&t, w->pack.node.count, gs_count_sticks(w), 16 == unit ? 10 : 11);
    const uint64_t high = (w->pack.node.count + (1u << t.log_rows) - 1) >> t.log_rows;
    const uint64_t tiles = high * ((gs_count_sticks(w) + (1u << t.log_sticks) - 1) >> t.log_sticks);
    GS_NO_UNROLL
    for (uint64_t i = c.block; i < tiles; i += c.nblocks) {
        t.stick = gs_divide(i, high, &t.row) << t.log_sticks;
        t.row <<= t.log_rows;
        gs_block_sync(c); /* the last tile has been read */
        gs_find_sticks(c, w, &t, sticks);
        gs_block_sync(c);
        gs_move_tile(c, w, at, &t, unit, unpack, true);
        gs_block_sync(c);
        gs_move_tile(c, w, at, &t, unit, !unpack, false);
    }
}

/* The most sticks and places that a tile has. */
#define GS_TILE_STICKS (GPUSYM_TILE_BYTES / 8u / GPUSYM_TILE_ROWS_MIN)
#define GS_TILE_ROOM (GPUSYM_TILE_BYTES + GPUSYM_TILE_BYTES / GPUSYM_TILE_ROWS_MIN)

GS_FN void gs_pack_sticks(gs_ctx_t c, const gpusym_work_t *w)
{
    GS_SHARED gs_stick_t sticks[GS_TILE_STICKS];
    GS_SHARED gs_pack_t data[GS_TILE_ROOM / 16u];
    if (16 == w->pack.unit) {
        gs_pack_tiles(c, w, sticks, data, 16);
    } else if (8 == w->pack.unit) {
        gs_pack_tiles(c, w, sticks, data, 8);
    } else {
        gs_pack_tiles(c, w, sticks, data, 4);
    }
}

GS_FN void gs_pack_all(gs_ctx_t c, const gpusym_work_t *w)
{
    if (GPUSYM_PACK_ROWS == w->pack.form) {
        gs_pack_rows(c, w);
    } else if (GPUSYM_PACK_STICKS == w->pack.form) {
        gs_pack_sticks(c, w);
    } else {
        gs_pack_pieces(c, w);
    }
}

#endif
