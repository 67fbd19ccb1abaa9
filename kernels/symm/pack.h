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

/* Where the first row of a stick lies, from the elements' displacement 0 and from the packed byte 0; which of its rows
 * in the tile are to be moved. */
typedef struct {
    int64_t user;
    uint64_t packed;
    uint32_t rows_first, rows_end;
} gs_stick_t;

/* A tile: sticks [stick, stick + 2^log_sticks) by rows [row, row + 2^log_rows). In shared memory a stick has a place
 * more than rows, so that neither direction meets in one bank. */
typedef struct {
    const gs_stick_t *sticks;
    gs_pack_t *data;
    uint64_t stick, row;
    uint32_t log_sticks, log_rows;
    uint32_t sticks_end, rows_end; /* of those that there are */
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

/* How the threads run through a tile: `fast` first, by fast_step, and `slow`. Where there are threads enough, fast is
 * one number for each, and what is found by it is found once. */
typedef struct {
    uint32_t fast, fast_step, fast_end, slow, slow_step, slow_end;
} gs_turns_t;

GS_FN gs_turns_t gs_share_tile(gs_ctx_t c, uint32_t log_fast, uint32_t fast_end, uint32_t slow_end)
{
    gs_turns_t t;
    t.fast = c.thread & ((1u << log_fast) - 1);
    t.fast_step = c.nthreads < 1u << log_fast ? c.nthreads : 1u << log_fast;
    t.fast_end = fast_end;
    t.slow = c.thread >> log_fast;
    t.slow_step = c.nthreads < 1u << log_fast ? 1 : c.nthreads >> log_fast;
    t.slow_end = slow_end;
    return t;
}

/* Moves the tile between the elements and shared memory: neighbouring threads have neighbouring sticks. */
GS_FN void gs_move_strided(gs_ctx_t c, const gpusym_work_t *w, char *user, const gs_tile_t *t, uint32_t unit, bool load)
{
    const gs_turns_t turns = gs_share_tile(c, t->log_sticks, t->sticks_end, t->rows_end);
    const int64_t stride = w->pack.node.stride, step = stride * turns.slow_step;
    GS_NO_UNROLL
    for (uint32_t stick = turns.fast; stick < turns.fast_end; stick += turns.fast_step) {
        const gs_stick_t s = t->sticks[stick];
        const uint32_t place = stick * ((1u << t->log_rows) + 1);
        const uint32_t end = s.rows_end < turns.slow_end ? s.rows_end : turns.slow_end;
        char *at = user + s.user + (int64_t) (t->row + turns.slow) * stride;
        GS_NO_UNROLL
        for (uint32_t row = turns.slow; row < end; row += GS_PACKS * turns.slow_step) {
            gs_pack_t v[GS_PACKS] = {{{0, 0}}};
            GS_UNROLL
            for (uint32_t u = 0; u < GS_PACKS; u++) {
                const uint32_t r = row + u * turns.slow_step;
                if (load && r >= s.rows_first && r < end) {
                    v[u] = gs_ld_unit(at + u * step, unit);
                }
            }
            GS_UNROLL
            for (uint32_t u = 0; u < GS_PACKS; u++) {
                const uint32_t r = row + u * turns.slow_step;
                if (r < s.rows_first || r >= end) {
                    continue;
                }
                if (load) {
                    gs_st_place(t->data, place + r, unit, v[u]);
                } else {
                    gs_st_unit(at + u * step, unit, gs_ld_place(t->data, place + r, unit));
                }
            }
            at += GS_PACKS * step;
        }
    }
}

/* The same between packed and shared memory: neighbouring threads have neighbouring rows of a stick. */
GS_FN void gs_move_packed(gs_ctx_t c, char *packed, const gs_tile_t *t, uint32_t unit, bool load)
{
    const gs_turns_t turns = gs_share_tile(c, t->log_rows, t->rows_end, t->sticks_end);
    GS_NO_UNROLL
    for (uint32_t row = turns.fast; row < turns.fast_end; row += turns.fast_step) {
        char *at = packed + (t->row + row) * unit;
        GS_NO_UNROLL
        for (uint32_t stick = turns.slow; stick < turns.slow_end; stick += GS_PACKS * turns.slow_step) {
            gs_pack_t v[GS_PACKS] = {{{0, 0}}};
            char *to[GS_PACKS] = {NULL};
            GS_UNROLL
            for (uint32_t u = 0; u < GS_PACKS; u++) {
                const uint32_t i = stick + u * turns.slow_step;
                if (i < turns.slow_end && row >= t->sticks[i].rows_first && row < t->sticks[i].rows_end) {
                    to[u] = at + t->sticks[i].packed;
                    if (load) {
                        v[u] = gs_ld_unit(to[u], unit);
                    }
                }
            }
            GS_UNROLL
            for (uint32_t u = 0; u < GS_PACKS; u++) {
                const uint32_t place = (stick + u * turns.slow_step) * ((1u << t->log_rows) + 1) + row;
                if (NULL == to[u]) {
                    continue;
                }
                if (load) {
                    gs_st_place(t->data, place, unit, v[u]);
                } else {
                    gs_st_unit(to[u], unit, gs_ld_place(t->data, place, unit));
                }
            }
        }
    }
}

/* The row of a stick, of those of the tile, at which the packed byte `byte` begins, or the first behind it. */
GS_FN uint32_t gs_row_at(uint64_t byte, uint64_t packed, const gs_tile_t *t, uint32_t unit)
{
    const uint64_t first = packed + t->row * unit, row = byte > first ? (byte - first) / unit : 0;
    return row < t->rows_end ? (uint32_t) row : t->rows_end;
}

/* Finds the sticks of a tile, and their rows that are to be moved. */
GS_FN void gs_find_sticks(gs_ctx_t c, const gpusym_work_t *w, const gs_tile_t *t, gs_stick_t *sticks, uint32_t unit)
{
    const gpusym_pack_t *const p = &w->pack;
    GS_NO_UNROLL
    for (uint32_t s = c.thread; s < t->sticks_end; s += c.nthreads) {
        uint64_t i;
        const uint64_t element = gs_divide(t->stick + s, p->nnodes, &i);
        const gpusym_node_t node = gs_ld_node(p->nodes + i);
        const uint64_t packed = node.packed + element * p->size;
        sticks[s].user = node.disp + (int64_t) element * p->extent;
        sticks[s].packed = packed;
        sticks[s].rows_first = gs_row_at(p->from, packed, t, unit);
        sticks[s].rows_end = gs_row_at(p->to, packed, t, unit);
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

/* Shapes a tile of 2^log_places places: 2^GPUSYM_TILE_LOG_ROWS_MIN to 2^GPUSYM_TILE_LOG_ROWS_MAX rows, or more, if
 * there are not that many sticks. */
GS_FN void gs_shape_tile(gs_tile_t *t, uint64_t rows, uint64_t sticks, uint32_t log_places)
{
    t->log_sticks =
        gs_log_cover(sticks, 0, log_places - gs_log_cover(rows, GPUSYM_TILE_LOG_ROWS_MIN, GPUSYM_TILE_LOG_ROWS_MAX));
    t->log_rows = gs_log_cover(rows, GPUSYM_TILE_LOG_ROWS_MIN, log_places - t->log_sticks);
}

/* Those of 2^log_most that there are from `first` on. */
GS_FN uint32_t gs_count_left(uint64_t all, uint64_t first, uint32_t log_most)
{
    return all - first < 1ull << log_most ? (uint32_t) (all - first) : 1u << log_most;
}

GS_FN void gs_pack_tiles(gs_ctx_t c, const gpusym_work_t *w, gs_stick_t *sticks, gs_pack_t *data, uint32_t unit)
{
    const gs_sides_t at = gs_pack_sides(w);
    const bool unpack = 0 != w->pack.unpack;
    gs_tile_t t;
    t.sticks = sticks;
    t.data = data;
    gs_shape_tile(&t, w->pack.node.count, gs_count_sticks(w), GPUSYM_TILE_LOG_BYTES - (16 == unit ? 4 : 3));
    const uint64_t high = ((uint64_t) w->pack.node.count + (1u << t.log_rows) - 1) >> t.log_rows;
    const uint64_t tiles = high * ((gs_count_sticks(w) + (1u << t.log_sticks) - 1) >> t.log_sticks);
    GS_NO_UNROLL
    for (uint64_t i = c.block; i < tiles; i += c.nblocks) {
        t.stick = gs_divide(i, high, &t.row) << t.log_sticks;
        t.row <<= t.log_rows;
        t.sticks_end = gs_count_left(gs_count_sticks(w), t.stick, t.log_sticks);
        t.rows_end = gs_count_left(w->pack.node.count, t.row, t.log_rows);
        gs_block_sync(c); /* the last tile has been read */
        gs_find_sticks(c, w, &t, sticks, unit);
        gs_block_sync(c);
        if (unpack) {
            gs_move_packed(c, at.packed, &t, unit, true);
            gs_block_sync(c);
            gs_move_strided(c, w, at.user, &t, unit, false);
        } else {
            gs_move_strided(c, w, at.user, &t, unit, true);
            gs_block_sync(c);
            gs_move_packed(c, at.packed, &t, unit, false);
        }
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
