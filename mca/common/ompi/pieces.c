/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pieces of datatypes: see pieces.h.
 *
 * A description is a list of entries. An entry is rows of bytes, or begins a loop, whose body and end entry follow.
 * Offsets in a loop are those of its first iteration.
 */
#include "mca/common/ompi/pieces.h"

#include <pthread.h>

#include "mpi.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/datatype/opal_datatype_internal.h"

#include "mca/common/gpusym/log.h"
#include "mca/common/ompi/ompi_compat.h"

/* Runs that the convertor is asked for at a time. */
#define RAW_RUNS 64

/* Rows as a description has them: their pitch may be anything. */
typedef struct {
    ptrdiff_t off;
    size_t width, rows;
    ptrdiff_t pitch;
    size_t entries; /* of the description */
} rows_t;

/* A loop of a description; the outermost one is over the elements. */
typedef struct {
    const dt_elem_desc_t *body;
    size_t entries; /* of the body */
    size_t loops;
    ptrdiff_t extent; /* from iteration to iteration */
    size_t size;      /* bytes of one */
} loop_t;

typedef struct {
    size_t from, to; /* the packed bytes to visit */
    bool free_order;
    gpusym_piece_visit_t *visit;
    void *arg;
    gpusym_piece_t open; /* may still grow; no rows: none */
} walk_t;

/* ---- pieces ---- */

static int flush(walk_t *w)
{
    const gpusym_piece_t piece = w->open;
    w->open.rows = 0;
    return 0 == piece.rows ? 0 : w->visit(w->arg, &piece);
}

/* Continues the open piece with p, if it can. */
static bool extend(gpusym_piece_t *open, const gpusym_piece_t *p)
{
    const ptrdiff_t next = p->off - open->off; /* from the open piece's first row */
    if (0 == open->rows || open->at + open->rows * open->width != p->at) {
        return false;
    }
    if (1 == open->rows && 1 == p->rows && next == (ptrdiff_t) open->width) {
        open->width += p->width;
        return true;
    }
    if (open->width != p->width || next < (ptrdiff_t) p->width) {
        return false;
    }
    const size_t pitch = open->rows > 1 ? open->pitch : (size_t) next;
    if ((size_t) next != open->rows * pitch || (p->rows > 1 && p->pitch != pitch)) {
        return false;
    }
    open->pitch = pitch;
    open->rows += p->rows;
    return true;
}

/* Adds rows whose pitch is at least their width. */
static int add(walk_t *w, ptrdiff_t off, size_t at, size_t width, size_t rows, size_t pitch)
{
    gpusym_piece_t p = {.off = off, .at = at, .width = width, .rows = rows, .pitch = pitch};
    if (pitch == width) {
        p.width *= rows;
        p.rows = 1;
    }
    if (extend(&w->open, &p)) {
        w->open.step = w->open.width;
        return 0;
    }
    const int rv = flush(w);
    p.step = p.width;
    w->open = p;
    return rv;
}

/* Adds rows of any pitch. */
static int add_any(walk_t *w, ptrdiff_t off, size_t at, size_t width, size_t rows, ptrdiff_t pitch)
{
    int rv = 0;
    if (rows <= 1 || pitch >= (ptrdiff_t) width) {
        return 0 == rows || 0 == width ? 0 : add(w, off, at, width, rows, rows > 1 ? (size_t) pitch : width);
    }
    for (size_t r = 0; 0 == rv && r < rows; r++) { /* they overlap, or go backwards */
        rv = add(w, off + (ptrdiff_t) r * pitch, at + r * width, width, 1, width);
    }
    return rv;
}

/* Adds those bytes of rows that are to be visited: the end of a row, whole rows, the beginning of a row. */
static int add_cut(walk_t *w, ptrdiff_t off, size_t at, size_t width, size_t rows, ptrdiff_t pitch)
{
    const size_t end = w->to < at + width * rows ? w->to : at + width * rows;
    size_t pos = w->from > at ? w->from : at;
    int rv = 0;

    if (pos >= end) {
        return 0;
    }
    size_t row = (pos - at) / width;
    const size_t skip = (pos - at) % width;
    if (skip > 0) {
        const size_t n = width - skip < end - pos ? width - skip : end - pos;
        rv = add_any(w, off + (ptrdiff_t) row * pitch + (ptrdiff_t) skip, pos, n, 1, 0);
        pos += n;
        row++;
    }
    const size_t whole = (end - pos) / width;
    if (0 == rv) {
        rv = add_any(w, off + (ptrdiff_t) row * pitch, pos, width, whole, pitch);
        pos += whole * width;
        row += whole;
    }
    return 0 == rv ? add_any(w, off + (ptrdiff_t) row * pitch, pos, end - pos, 1, 0) : rv;
}

/* ---- descriptions ---- */

/* Reads the rows of an entry. False: it is a loop around several. */
static bool read_rows(const dt_elem_desc_t *d, rows_t *r)
{
    if (d->elem.common.flags & OPAL_DATATYPE_FLAG_DATA) {
        const size_t size = opal_datatype_basicDatatypes[d->elem.common.type]->size;
        *r = (rows_t){d->elem.disp, d->elem.blocklen * size, d->elem.count, d->elem.extent, 1};
        return true;
    }
    if (d->loop.common.flags & OPAL_DATATYPE_FLAG_CONTIGUOUS) { /* its body is one run */
        const ddt_endloop_desc_t *end = &d[d->loop.items].end_loop;
        *r = (rows_t){end->first_elem_disp, end->size, d->loop.loops, d->loop.extent, (size_t) d->loop.items + 1};
        return true;
    }
    return false;
}

static loop_t read_loop(const dt_elem_desc_t *d)
{
    return (loop_t){d + 1, (size_t) d->loop.items - 1, d->loop.loops, d->loop.extent, d[d->loop.items].end_loop.size};
}

/* Makes a loop around one entry an entry, if its rows are at one pitch in all. */
static bool join_rows(const loop_t *l, rows_t *r)
{
    if (0 == l->entries || !read_rows(l->body, r) || r->entries != l->entries) {
        return false;
    }
    if (1 == l->loops) {
        return true;
    }
    if (1 == r->rows) {
        r->pitch = l->extent;
    } else if ((ptrdiff_t) r->rows * r->pitch != l->extent) {
        return false;
    }
    r->rows *= l->loops;
    return true;
}

/*
 * Whether n iterations are fewer pieces column by column: a piece for each row of the body, which has a row for each
 * iteration. A struct of two members with a gap is two pieces, however many there are.
 */
static bool columns_pay(const loop_t *l, size_t n)
{
    size_t columns = 0, entries = 0;
    rows_t r;
    for (size_t i = 0; i < l->entries; i += r.entries) {
        if (!read_rows(l->body + i, &r) || l->extent < (ptrdiff_t) r.width) {
            return false;
        }
        columns += r.rows;
        entries++;
    }
    return columns < n * entries;
}

/* The iterations [first, end), column by column. */
static int visit_columns(walk_t *w, const loop_t *l, ptrdiff_t off, size_t at, size_t first, size_t end)
{
    int rv = flush(w);
    rows_t r;
    off += (ptrdiff_t) first * l->extent;
    at += first * l->size;
    for (size_t i = 0; i < l->entries; i += r.entries) {
        read_rows(l->body + i, &r);
        for (size_t row = 0; 0 == rv && r.width > 0 && row < r.rows; row++) {
            const gpusym_piece_t p = {
                off + r.off + (ptrdiff_t) row * r.pitch, at, r.width, end - first, (size_t) l->extent, l->size};
            rv = w->visit(w->arg, &p);
            at += r.width;
        }
    }
    return rv;
}

static int walk_loop(walk_t *w, const loop_t *l, ptrdiff_t off, size_t at);

static int walk_body(walk_t *w, const loop_t *l, ptrdiff_t off, size_t at)
{
    int rv = 0;
    for (size_t i = 0; 0 == rv && i < l->entries && at < w->to;) {
        const dt_elem_desc_t *d = l->body + i;
        rows_t r;
        if (read_rows(d, &r)) {
            rv = add_cut(w, off + r.off, at, r.width, r.rows, r.pitch);
            at += r.width * r.rows;
            i += r.entries;
        } else {
            const loop_t inner = read_loop(d);
            rv = walk_loop(w, &inner, off, at);
            at += inner.size * inner.loops;
            i += inner.entries + 2;
        }
    }
    return rv;
}

static int walk_iteration(walk_t *w, const loop_t *l, ptrdiff_t off, size_t at, size_t i)
{
    return walk_body(w, l, off + (ptrdiff_t) i * l->extent, at + i * l->size);
}

static int walk_loop(walk_t *w, const loop_t *l, ptrdiff_t off, size_t at)
{
    rows_t r;
    int rv = 0;

    if (0 == l->size || at >= w->to || at + l->size * l->loops <= w->from) {
        return 0;
    }
    if (join_rows(l, &r)) {
        return add_cut(w, off + r.off, at, r.width, r.rows, r.pitch);
    }
    size_t i = w->from > at ? (w->from - at) / l->size : 0;
    const size_t whole = i + (at + i * l->size < w->from ? 1 : 0);                            /* the first one */
    const size_t end = (w->to - at) / l->size < l->loops ? (w->to - at) / l->size : l->loops; /* of the whole ones */
    if (w->free_order && end > whole + 1 && columns_pay(l, end - whole)) {
        rv = i < whole ? walk_iteration(w, l, off, at, i) : 0;
        if (0 == rv) {
            rv = visit_columns(w, l, off, at, whole, end);
        }
        i = end;
    }
    for (; 0 == rv && i < l->loops && at + i * l->size < w->to; i++) {
        rv = walk_iteration(w, l, off, at, i);
    }
    return rv;
}

static int walk_description(walk_t *w, size_t count, const opal_datatype_t *d)
{
    const dt_type_desc_t *desc = NULL != d->opt_desc.desc && d->opt_desc.used > 0 ? &d->opt_desc : &d->desc;
    const loop_t elements = {desc->desc, desc->used, count, d->ub - d->lb, d->size};
    const int rv = walk_loop(w, &elements, 0, 0);
    return 0 == rv ? flush(w) : rv;
}

/* ---- the convertor's runs ---- */

static int walk_raw(walk_t *w, size_t count, const opal_datatype_t *d)
{
    opal_convertor_t convertor;
    struct iovec runs[RAW_RUNS];
    uint32_t n = RAW_RUNS;
    size_t at = 0, bytes;
    int rv = 0, ended = 0;
    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, d, count, NULL, 0, &convertor);
    while (0 == rv && !ended && n > 0 && at < w->to) {
        n = RAW_RUNS;
        ended = opal_convertor_raw(&convertor, runs, &n, &bytes);
        for (uint32_t i = 0; 0 == rv && i < n; i++) {
            rv = add_cut(w, (ptrdiff_t) runs[i].iov_base, at, runs[i].iov_len, 1, 0);
            at += runs[i].iov_len;
        }
    }
    OBJ_DESTRUCT(&convertor);
    return 0 == rv ? flush(w) : rv;
}

/* Adds to a hash where each byte lies, in packed order. */
static int hash_piece(void *arg, const gpusym_piece_t *p)
{
    uint64_t *hash = arg;
    for (size_t i = 0; i < p->rows * p->width; i++) {
        const ptrdiff_t off = p->off + (ptrdiff_t) (i / p->width * p->pitch + i % p->width);
        *hash = (*hash ^ (uint64_t) off) * 0x9e3779b97f4a7c15u;
        *hash ^= *hash >> 29;
    }
    return 0;
}

bool gpusym_pieces_confirmed(const struct ompi_datatype_t *dtype)
{
    uint64_t read = 1, raw = 1;
    walk_t w = {.to = dtype->super.size, .visit = hash_piece, .arg = &read};
    walk_t v = {.to = dtype->super.size, .visit = hash_piece, .arg = &raw};
    if (0 == dtype->super.size) {
        return true;
    }
    (void) walk_description(&w, 1, &dtype->super);
    (void) walk_raw(&v, 1, &dtype->super);
    return read == raw;
}

static bool is_confirmed_once(ompi_datatype_t *type)
{
    (void) ompi_datatype_commit(&type);
    const bool confirmed = gpusym_pieces_confirmed(type);
    (void) ompi_datatype_destroy(&type);
    return confirmed;
}

/* Datatypes of each kind of description. Made by Open MPI's own functions: from 6.0 on, components are not linked with
 * MPI's. */
static bool are_confirmed(void)
{
    ompi_datatype_t *stick, *type[6], *of_double = &ompi_mpi_double.dt, *of_int = &ompi_mpi_int.dt;
    bool confirmed = true;
    (void) ompi_datatype_create_vector(5, 2, 7, of_double, &stick);
    (void) ompi_datatype_create_vector(4, 1, -3, of_int, &type[0]);
    (void) ompi_datatype_create_hindexed(3, GPUSYM_COUNTS_OF(((gpusym_count_element_t[]){1, 2, 1})),
                                         GPUSYM_ADISPLS_OF(((gpusym_adispl_element_t[]){900, 8, 1700})), stick,
                                         &type[1]);
    (void) ompi_datatype_create_subarray(3, GPUSYM_COUNTS_OF(((gpusym_count_element_t[]){4, 5, 6})),
                                         GPUSYM_COUNTS_OF(((gpusym_count_element_t[]){3, 2, 4})),
                                         GPUSYM_COUNTS_OF(((gpusym_count_element_t[]){1, 2, 1})), MPI_ORDER_C,
                                         &ompi_mpi_float.dt, &type[2]);
    (void) ompi_datatype_create_struct(3, GPUSYM_COUNTS_OF(((gpusym_count_element_t[]){1, 2, 3})),
                                       GPUSYM_ADISPLS_OF(((gpusym_adispl_element_t[]){0, 8, 40})),
                                       (ompi_datatype_t *[]){of_int, of_double, &ompi_mpi_char.dt}, &type[3]);
    (void) ompi_datatype_create_resized(type[3], -8, 64, &type[4]);
    (void) ompi_datatype_create_vector(3, 2, 5, type[4], &type[5]);
    (void) ompi_datatype_destroy(&stick);
    for (int i = 0; i < 6; i++) {
        confirmed = is_confirmed_once(type[i]) && confirmed;
    }
    return confirmed;
}

static bool take_raw; /* written once */

static void compare_once(void)
{
    take_raw = !are_confirmed();
    if (take_raw) {
        GPUSYM_LOG(2, "this Open MPI describes datatypes in an unexpected way: gpusym uses its convertor for "
                      "every run. Please report the version of Open MPI");
    }
}

int gpusym_pieces_visit(size_t count, const struct ompi_datatype_t *dtype, size_t from, size_t to, bool free_order,
                        gpusym_piece_visit_t *visit, void *arg)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    walk_t w = {.from = from, .to = to, .free_order = free_order, .visit = visit, .arg = arg};
    pthread_once(&once, compare_once);
    return take_raw ? walk_raw(&w, count, &dtype->super) : walk_description(&w, count, &dtype->super);
}
