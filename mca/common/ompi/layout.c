/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Layouts: see layout.h.
 */
#include "mca/common/ompi/layout.h"

#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/exec/pack.h"
#include "mca/common/gpusym/exec/staged.h"
#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/pinned.h"
#include "mca/common/ompi/nodes.h"
#include "mca/common/ompi/pieces.h"
#include "tuning/pack.h"

/* Bytes of a chunk of pinned memory through which packed data go to or from ordinary host memory. */
#define CHUNK ((size_t) 1 << 20)
/* Bytes of elements, gaps included, that are packed on the host at a time. */
#define SPAN_MAX ((size_t) 4 << 20)
/* Bytes that come to the host, over PCIe, in the time that it takes to queue one copy: 2.5 us at 13 GB/s. */
#define BYTES_PER_COPY ((size_t) 32 << 10)
/* Copies below which the host does not pack: waiting for the GPU twice takes as long. */
#define COPIES_MIN 16

/* ---- what a datatype is ---- */

typedef struct {
    gpusym_piece_t piece;
    unsigned pieces;
} first_t;

static int keep_first(void *arg, const gpusym_piece_t *piece)
{
    first_t *f = arg;
    f->piece = *piece;
    return ++f->pieces > 1;
}

static void set_rows(gpusym_layout_t *l, gpusym_layout_kind_t kind, size_t rows, size_t width, size_t pitch)
{
    l->kind = kind;
    l->rows = rows;
    l->width = width;
    l->pitch = pitch;
}

/* Two elements tell what all are. */
void gpusym_layout_find_gaps(gpusym_layout_t *l)
{
    const opal_datatype_t *d = &l->dtype->super;
    const size_t some = l->count < 2 ? 1 : 2;
    first_t first = {.pieces = 0};
    ptrdiff_t hi;

    gpusym_layout_range(l->count, l->dtype, &l->lo, &hi);
    l->span = (size_t) (hi - l->lo);
    const bool one = 0 == gpusym_pieces_visit(some, l->dtype, 0, some * d->size, false, keep_first, &first);
    if (!one || 1 != first.pieces || 0 != first.piece.rows % (1 == first.piece.rows ? 1 : some)) {
        set_rows(l, GPUSYM_LAYOUT_RUNS, 0, 0, 0);
    } else if (1 == first.piece.rows) {
        set_rows(l, GPUSYM_LAYOUT_RUN, 1, l->bytes, l->bytes);
    } else {
        set_rows(l, GPUSYM_LAYOUT_ROWS, first.piece.rows / some * l->count, first.piece.width, first.piece.pitch);
    }
}

/* ---- where it lies ---- */

/* Addresses of one page are of one memory. The smallest page that there is. */
#define PAGE 4096u

typedef struct {
    const gpusym_device_t *dev;
    const void *buf;
    gpusym_mem_t *mem;
    uintptr_t page; /* that has been asked last */
} where_t;

/* Asks about an address. Returns 1 if it is device memory, which ends the search. */
static int ask_address(where_t *w, uintptr_t at)
{
    gpusym_mem_t mem;
    if (at / PAGE == w->page) {
        return 0;
    }
    w->page = at / PAGE;
    w->dev->query((const void *) at, &mem);
    if (GPUSYM_MEM_DEVICE == mem.kind || (GPUSYM_MEM_MANAGED == mem.kind && GPUSYM_MEM_MANAGED != w->mem->kind)) {
        *w->mem = mem;
    }
    return GPUSYM_MEM_DEVICE == mem.kind;
}

/* Rows at one distance in one buffer: the first and the last. By addresses, all. */
static int ask_piece(void *arg, const gpusym_piece_t *p)
{
    where_t *w = arg;
    const size_t step = MPI_BOTTOM == w->buf || p->rows < 2 ? 1 : p->rows - 1;
    int found = 0;
    for (size_t row = 0; 0 == found && row < p->rows; row += step) {
        const uintptr_t at = (uintptr_t) w->buf + (uintptr_t) p->off + row * p->pitch;
        found = ask_address(w, at);
        w->page = (at + p->width - 1) / PAGE;
    }
    return found;
}

void gpusym_layout_where(const gpusym_device_t *dev, const gpusym_layout_t *l, const void *buf, gpusym_mem_t *mem)
{
    const uintptr_t first = (uintptr_t) buf + (uintptr_t) l->lo, last = first + l->span - 1;
    where_t w = {.dev = dev, .buf = buf, .mem = mem, .page = first / PAGE};
    dev->query((const void *) first, mem);
    if (GPUSYM_LAYOUT_RUN == l->kind || GPUSYM_MEM_DEVICE == mem->kind || 1 == ask_address(&w, last) ||
        last / PAGE == first / PAGE || (GPUSYM_LAYOUT_ROWS == l->kind && MPI_BOTTOM != buf)) {
        return;
    }
    (void) gpusym_pieces_visit(1, l->dtype, 0, l->dtype->super.size, false, ask_piece, &w);
}

/* ---- runs ---- */

typedef struct {
    ptrdiff_t off;
    size_t bytes; /* of a run that may still grow; 0: none */
    ptrdiff_t at;
    int (*run)(void *arg, ptrdiff_t off, size_t bytes);
    void *arg;
} runs_t;

static int add_rows(void *arg, const gpusym_piece_t *p)
{
    runs_t *r = arg;
    int rv = 0;
    for (size_t row = 0; 0 == rv && row < p->rows; row++) {
        const ptrdiff_t off = r->at + p->off + (ptrdiff_t) (row * p->pitch);
        if (r->bytes > 0 && r->off + (ptrdiff_t) r->bytes == off) {
            r->bytes += p->width;
            continue;
        }
        if (r->bytes > 0) {
            rv = r->run(r->arg, r->off, r->bytes);
        }
        r->off = off;
        r->bytes = p->width;
    }
    return rv;
}

int gpusym_layout_runs(const gpusym_layout_t *l, ptrdiff_t at, int (*run)(void *arg, ptrdiff_t off, size_t bytes),
                       void *arg)
{
    runs_t r = {.bytes = 0, .at = at, .run = run, .arg = arg};
    if (0 == l->bytes) {
        return 0;
    }
    if (GPUSYM_LAYOUT_RUN == l->kind) {
        return run(arg, at + l->lo, l->bytes);
    }
    const int rv = gpusym_pieces_visit(l->count, l->dtype, 0, l->bytes, false, add_rows, &r);
    return 0 == rv && r.bytes > 0 ? run(arg, r.off, r.bytes) : rv;
}

/* ---- host memory ---- */

/* Copies pieces between elements and packed memory by the CPU. */
typedef struct {
    uintptr_t buf, packed;
    bool pack;
} mover_t;

/* With a width that the compiler knows, each row is a load and a store. */
static inline void move_rows(char *dst, size_t dpitch, const char *src, size_t spitch, size_t width, size_t rows)
{
    for (size_t row = 0; row < rows; row++) {
        memcpy(dst + row * dpitch, src + row * spitch, width);
    }
}

static int move_piece(void *arg, const gpusym_piece_t *p)
{
    const mover_t *m = arg;
    char *at = (char *) (m->buf + (uintptr_t) p->off), *packed = (char *) (m->packed + p->at);
    char *dst = m->pack ? packed : at;
    const char *src = m->pack ? at : packed;
    const size_t dpitch = m->pack ? p->step : p->pitch, spitch = m->pack ? p->pitch : p->step;
    switch (p->width) {
    case 4:
        move_rows(dst, dpitch, src, spitch, 4, p->rows);
        break;
    case 8:
        move_rows(dst, dpitch, src, spitch, 8, p->rows);
        break;
    case 16:
        move_rows(dst, dpitch, src, spitch, 16, p->rows);
        break;
    default:
        move_rows(dst, dpitch, src, spitch, p->width, p->rows);
        break;
    }
    return 0;
}

static int move_all(mover_t *m, const gpusym_layout_t *l, size_t bytes)
{
    return gpusym_pieces_visit(l->count, l->dtype, 0, bytes < l->bytes ? bytes : l->bytes, false, move_piece, m);
}

int gpusym_layout_gather(const gpusym_layout_t *l, const void *buf, void *packed, size_t bytes)
{
    mover_t m = {.buf = (uintptr_t) buf, .packed = (uintptr_t) packed, .pack = true};
    return move_all(&m, l, bytes);
}

int gpusym_layout_scatter(const gpusym_layout_t *l, void *buf, const void *packed, size_t bytes)
{
    mover_t m = {.buf = (uintptr_t) buf, .packed = (uintptr_t) packed, .pack = false};
    return move_all(&m, l, bytes);
}

/* ---- copies ---- */

/* Copies between elements and packed memory. */
typedef struct {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
    gpusym_stream_t *stream; /* NULL: there is none; each row is waited for */
    uintptr_t buf, packed;   /* packed: the address of packed byte 0 */
    bool pack;
    bool together;               /* the elements lie in one allocation */
    bool kernel;                 /* by a kernel */
    const gpusym_nodes_t *nodes; /* which it reads; NULL: the layout is ROWS */
} copier_t;

/* Bytes from an address on to the end of its allocation. 0: the device knows no allocation there. */
static size_t room_at(const gpusym_device_t *dev, uintptr_t at)
{
    gpusym_range_t range;
    return GPUSYM_SUCCESS == dev->mem_range((const void *) at, &range) && (uintptr_t) range.base <= at
               ? range.size - (at - (uintptr_t) range.base)
               : 0;
}

bool gpusym_memory_together(const gpusym_device_t *dev, uintptr_t at, size_t bytes)
{
    return bytes <= room_at(dev, at);
}

bool gpusym_layout_together(const gpusym_device_t *dev, const gpusym_layout_t *l, const void *buf)
{
    return gpusym_memory_together(dev, (uintptr_t) buf + (uintptr_t) l->lo, l->span);
}

/* Whether no two bytes of an element are one, as far as Open MPI tells: else unpacking them in any order would give any
 * result. MPI forbids to receive into such elements, and Open MPI 4 and 5 never set the flag. */
static bool is_disjoint(const gpusym_layout_t *l)
{
    return 0 == (l->dtype->super.flags & OPAL_DATATYPE_FLAG_OVERLAP);
}

/* The nodes of a layout of RUNS, in GPU memory. NULL: there are none. */
static gpusym_nodes_t *find_nodes(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_layout_t *l)
{
    gpusym_nodes_t *nodes = gpusym_nodes_of(l->dtype);
    return NULL != nodes && GPUSYM_SUCCESS == gpusym_nodes_upload(nodes, dev, gpu) ? nodes : NULL;
}

bool gpusym_layout_by_gpu(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_layout_t *l, const void *buf)
{
    if (GPUSYM_LAYOUT_RUN == l->kind) {
        return true;
    }
    return gpusym_layout_together(dev, l, buf) &&
           (GPUSYM_LAYOUT_ROWS == l->kind || (is_disjoint(l) && NULL != find_nodes(dev, gpu, l)));
}

/* Decides whether a kernel does it. kind: of the memory from or to which the packed bytes are copied. */
static void choose_way(copier_t *c, const gpusym_layout_t *l, gpusym_mem_kind_t kind)
{
    const bool on_gpu = GPUSYM_MEM_REGISTERED != kind;
    uint64_t copies = 1, rows = l->rows, bytes;
    c->together = gpusym_layout_together(c->dev, l, (const void *) c->buf);
    if (GPUSYM_MEM_HOST == kind || rows > UINT32_MAX || (!c->pack && !is_disjoint(l)) ||
        (GPUSYM_LAYOUT_ROWS == l->kind && !gpusym_tuning_pack_by_kernel(rows, l->width, 1, on_gpu)) || !c->together) {
        return;
    }
    if (GPUSYM_LAYOUT_RUNS == l->kind) {
        gpusym_nodes_t *nodes = find_nodes(c->dev, c->gpu, l);
        if (NULL == nodes) {
            return;
        }
        c->nodes = nodes;
        gpusym_nodes_count(nodes, &copies, &rows, &bytes);
        copies *= l->count;
        rows *= l->count;
    }
    c->kernel = gpusym_tuning_pack_by_kernel(rows, l->bytes / rows, copies, on_gpu);
}

/* A layout of RUNS begins with its first node, if it has a box: distances rise. */
static bool find_box(const gpusym_layout_t *l, gpusym_box_t *box)
{
    const opal_datatype_t *d = &l->dtype->super;
    const gpusym_nodes_t *nodes = GPUSYM_LAYOUT_RUNS == l->kind ? gpusym_nodes_of(l->dtype) : NULL;
    switch (l->kind) {
    case GPUSYM_LAYOUT_RUN:
        *box = (gpusym_box_t){(uint32_t) l->bytes, {1, 1}, {0, 0, 0}};
        return true;
    case GPUSYM_LAYOUT_ROWS:
        *box = (gpusym_box_t){(uint32_t) l->width, {(uint32_t) l->rows, 1}, {(uint32_t) l->pitch, 0, 0}};
        return l->pitch <= UINT32_MAX;
    default:
        return NULL != nodes && gpusym_nodes_box(nodes, l->count, d->ub - d->lb, box);
    }
}

bool gpusym_layout_box(const gpusym_layout_t *l, gpusym_box_t *box)
{
    return 0 != l->bytes && l->bytes <= UINT32_MAX && is_disjoint(l) && find_box(l, box);
}

/* Queues a kernel for the packed bytes [from, to). */
static int queue_kernel(const copier_t *c, const gpusym_layout_t *l, size_t from, size_t to)
{
    const opal_datatype_t *d = &l->dtype->super;
    const gpusym_pack_call_t call = {
        .rows = {.disp = l->lo,
                 .stride = (int64_t) l->pitch,
                 .count = (uint32_t) l->rows,
                 .bytes = (uint32_t) l->width},
        .size = d->size,
        .extent = d->ub - d->lb,
        .lo = l->lo,
        .from = from,
        .to = to,
        .user = (const void *) c->buf,
        .packed = (const void *) (c->packed + from),
        .unpack = !c->pack,
    };
    return gpusym_pack_queue(c->dev, c->gpu, c->stream, c->nodes, &call);
}

static int copy_rows(const copier_t *c, void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                     size_t rows)
{
    int rv = GPUSYM_SUCCESS;
    if (NULL == c->stream) {
        for (size_t row = 0; GPUSYM_SUCCESS == rv && row < rows; row++) {
            rv = c->dev->copy(c->gpu, (char *) dst + row * dpitch, (const char *) src + row * spitch, width);
        }
        return rv;
    }
    return 1 == rows ? c->dev->copy_async(c->stream, dst, src, width)
                     : c->dev->copy2d_async(c->stream, dst, dpitch, src, spitch, width, rows);
}

/* Copies rows of a piece, of one memory: the first lies at `at`, and at `packed`. */
static int copy_part_rows(const copier_t *c, const gpusym_piece_t *p, uintptr_t at, uintptr_t packed, size_t width,
                          size_t rows)
{
    return c->pack ? copy_rows(c, (void *) packed, p->step, (const void *) at, p->pitch, width, rows)
                   : copy_rows(c, (void *) at, p->pitch, (const void *) packed, p->step, width, rows);
}

/* Copies a piece whose rows may lie in several allocations, on several GPUs, and in host memory: by the rows of each,
 * which may lie at one distance by chance (two arrays of one size). A row that goes on in the next allocation is cut.
 * */
static int copy_divided(const copier_t *c, const gpusym_piece_t *p)
{
    int rv = GPUSYM_SUCCESS;
    for (size_t row = 0, done = 0; GPUSYM_SUCCESS == rv && row < p->rows;) {
        const uintptr_t at = c->buf + (uintptr_t) p->off + row * p->pitch + done;
        const uintptr_t packed = c->packed + p->at + row * p->step + done;
        const size_t room = room_at(c->dev, at), left = p->width - done;
        const size_t width = 0 != room && room < left ? room : left;
        size_t rows = 1;
        if (0 == done && room >= left) {
            const size_t more = (room - left) / p->pitch; /* rows behind this one */
            rows += more < p->rows - row - 1 ? more : p->rows - row - 1;
        }
        rv = copy_part_rows(c, p, at, packed, width, rows);
        row += width == left ? rows : 0;
        done = width == left ? 0 : done + width;
    }
    return rv;
}

static int copy_piece(void *arg, const gpusym_piece_t *p)
{
    const copier_t *c = arg;
    return c->together ? copy_part_rows(c, p, c->buf + (uintptr_t) p->off, c->packed + p->at, p->width, p->rows)
                       : copy_divided(c, p);
}

/* Copies the first bytes of a RUN, or queues that. It may be arrays that touch, in several allocations: that is found
 * out when the device refuses the copy. */
static int copy_run(const copier_t *c, const gpusym_layout_t *l, size_t bytes)
{
    const gpusym_piece_t run = {l->lo, 0, bytes, 1, bytes, bytes};
    const int rv = copy_part_rows(c, &run, c->buf + (uintptr_t) l->lo, c->packed, bytes, 1);
    return GPUSYM_SUCCESS == rv || gpusym_layout_together(c->dev, l, (const void *) c->buf) ? rv
                                                                                            : copy_divided(c, &run);
}

/* Copies the packed bytes [from, to), or queues that. */
static int copy_part(copier_t *c, const gpusym_layout_t *l, size_t from, size_t to)
{
    if (c->kernel && NULL != c->stream && from < to && GPUSYM_SUCCESS == queue_kernel(c, l, from, to)) {
        return GPUSYM_SUCCESS;
    }
    return gpusym_pieces_visit(l->count, l->dtype, from, to, GPUSYM_LAYOUT_RUNS == l->kind, copy_piece, c);
}

/* The same, complete on return. */
static int copy_part_now(copier_t *c, const gpusym_layout_t *l, size_t from, size_t to)
{
    const int rv = copy_part(c, l, from, to);
    int idle = 1;
    if (NULL != c->stream) {
        do { /* the copy engine ends what is queued, after an error too */
            idle = c->dev->stream_poll(c->stream);
        } while (0 == idle);
    }
    return GPUSYM_SUCCESS == rv && idle < 0 ? idle : rv;
}

/* A staged copy of elements: chunks on lanes of their own, as far as there are lanes. */
typedef struct {
    copier_t *c;
    const gpusym_layout_t *l;
    gpusym_lane_t *lane[GPUSYM_STAGED_CHUNKS];
    uint32_t lanes;
} chunks_t;

static int start_chunk(void *user, uint32_t i, char *chunk, size_t at, size_t length)
{
    const chunks_t *s = user;
    s->c->stream = s->lane[i % s->lanes]->stream;
    s->c->packed = (uintptr_t) chunk - at;
    return copy_part(s->c, s->l, at, at + length);
}

static int poll_chunk(void *user, uint32_t i)
{
    const chunks_t *s = user;
    return s->c->dev->stream_poll(s->lane[i % s->lanes]->stream);
}

/* Copies through pinned memory, `chunks`: copy engines reach no ordinary memory row by row. lane: the first. */
static int copy_staged(copier_t *c, const gpusym_layout_t *l, size_t bytes, char *chunks, gpusym_lane_t *lane)
{
    chunks_t of = {.c = c, .l = l, .lane = {lane}, .lanes = 1};
    gpusym_staged_t s = {.on_host = (char *) c->packed,
                         .bytes = bytes,
                         .chunks = chunks,
                         .chunk = CHUNK,
                         .to_host = c->pack,
                         .start = start_chunk,
                         .poll = poll_chunk,
                         .user = &of};
    int done = 0;
    while (of.lanes < GPUSYM_STAGED_CHUNKS && of.lanes * CHUNK < bytes &&
           GPUSYM_SUCCESS == gpusym_lane_get(c->dev, c->gpu, &of.lane[of.lanes])) {
        of.lanes++;
    }
    gpusym_staged_start(&s);
    while (0 == done) {
        done = gpusym_staged_poll(&s);
    }
    for (uint32_t i = 0; i < of.lanes; i++) { /* after an error copies may still be queued */
        (void) gpusym_lane_await(of.lane[i]);
    }
    while (of.lanes > 1) {
        gpusym_lane_put(of.lane[--of.lanes]);
    }
    return done < 0 ? done : GPUSYM_SUCCESS;
}

/* ---- packing on the host ---- */

typedef struct {
    size_t pieces, most;
} count_t;

static int count_piece(void *arg, const gpusym_piece_t *piece)
{
    count_t *n = arg;
    (void) piece;
    return ++n->pieces > n->most;
}

/* Whether so many pieces are to be copied that it is faster to copy all that lies between them too. */
static bool is_scattered(const gpusym_device_t *dev, const gpusym_layout_t *l, const void *buf, size_t bytes)
{
    count_t n = {.pieces = 0, .most = COPIES_MIN + l->span / BYTES_PER_COPY};
    return GPUSYM_LAYOUT_RUNS == l->kind && bytes / n.most > 0 &&
           0 != gpusym_pieces_visit(l->count, l->dtype, 0, bytes, true, count_piece, &n) &&
           gpusym_layout_together(dev, l, buf);
}

/* Elements whose bytes, gaps included, are SPAN_MAX at most; at least one. */
static size_t count_batch(const gpusym_layout_t *l)
{
    const opal_datatype_t *d = &l->dtype->super;
    const size_t one = (size_t) (d->true_ub - d->true_lb);
    const size_t extent = (size_t) (d->ub < d->lb ? d->lb - d->ub : d->ub - d->lb);
    const size_t step = extent > d->size ? extent : d->size; /* so that the packed ones are no more either */
    const size_t n = one < SPAN_MAX ? 1 + (SPAN_MAX - one) / step : 1;
    return n < l->count ? n : l->count;
}

/* Packs elements by way of `host`, memory for their bytes with gaps, and behind it for the packed ones. */
static int pack_batch(const copier_t *c, const gpusym_layout_t *l, ptrdiff_t off, size_t at, size_t bytes, char *host)
{
    void *packed = (void *) (c->packed + at);
    const void *from = (const void *) (c->buf + (uintptr_t) off + (uintptr_t) l->lo);
    const void *elements = (const void *) ((uintptr_t) host - (uintptr_t) l->lo);
    const int rv = c->dev->copy(c->gpu, host, from, l->span);
    if (GPUSYM_SUCCESS != rv) {
        return rv;
    }
    (void) gpusym_layout_gather(l, elements, host + l->span, bytes);
    return c->dev->copy(c->gpu, packed, host + l->span, bytes);
}

/* Packs on the host. GPUSYM_ERR_NO_MEMORY: nothing has been done. */
static int pack_on_host(const copier_t *c, const gpusym_layout_t *l, size_t bytes)
{
    const opal_datatype_t *d = &l->dtype->super;
    const size_t batch = count_batch(l);
    gpusym_layout_t part;
    int rv = GPUSYM_SUCCESS;

    gpusym_layout_find(batch, l->dtype, &part);
    char *pinned = gpusym_pinned_get(c->dev, c->gpu, part.span + part.bytes);
    char *host = NULL != pinned ? pinned : malloc(part.span + part.bytes);
    if (NULL == host) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    for (size_t i = 0; GPUSYM_SUCCESS == rv && i < l->count && i * d->size < bytes; i += batch) {
        const size_t left = bytes - i * d->size;
        gpusym_layout_find(batch < l->count - i ? batch : l->count - i, l->dtype, &part);
        rv = pack_batch(c, &part, (ptrdiff_t) i * (d->ub - d->lb), i * d->size, left < part.bytes ? left : part.bytes,
                        host);
    }
    if (NULL != pinned) {
        gpusym_pinned_put(pinned);
    } else {
        free(host);
    }
    return rv;
}

/* Packs on the host what is scattered. *rv: how that went. False: nothing has been done. */
static bool pack_scattered(const copier_t *c, const gpusym_layout_t *l, size_t bytes, int *rv)
{
    if (!c->pack || !is_scattered(c->dev, l, (const void *) c->buf, bytes)) {
        return false;
    }
    *rv = pack_on_host(c, l, bytes);
    return GPUSYM_ERR_NO_MEMORY != *rv;
}

/* ---- packing and unpacking ---- */

/* Copies the first `bytes` packed bytes of what is not one run. kind: of the packed memory. */
static int copy_all(copier_t *c, const gpusym_layout_t *l, size_t bytes, gpusym_mem_kind_t kind)
{
    gpusym_lane_t *lane = NULL;
    char *chunks = NULL;
    int rv;

    if (GPUSYM_MEM_HOST == kind) {
        chunks = gpusym_pinned_get(c->dev, c->gpu, gpusym_staged_room(bytes, CHUNK));
    }
    if ((GPUSYM_MEM_HOST != kind || NULL != chunks) && GPUSYM_SUCCESS == gpusym_lane_get(c->dev, c->gpu, &lane)) {
        c->stream = lane->stream;
    }
    if (NULL == c->stream && c->kernel && pack_scattered(c, l, bytes, &rv)) {
        GPUSYM_LOG(2, "no stream is available: the host packs a datatype");
    } else if (NULL != c->stream && NULL != chunks) {
        rv = copy_staged(c, l, bytes, chunks, lane);
    } else {
        rv = copy_part_now(c, l, 0, bytes);
    }
    if (NULL != lane) {
        gpusym_lane_put(lane);
    }
    if (NULL != chunks) {
        gpusym_pinned_put(chunks);
    }
    return rv;
}

static size_t at_most(const gpusym_layout_t *l, size_t bytes)
{
    return bytes < l->bytes ? bytes : l->bytes;
}

/* Finds the way of a copy that ends before the call returns, to which pinned memory serves in place of other host
 * memory. Returns the kind of the packed memory. */
static gpusym_mem_kind_t choose_way_now(copier_t *c, const gpusym_layout_t *l)
{
    gpusym_mem_t mem;
    c->dev->query((const void *) c->packed, &mem);
    choose_way(c, l, GPUSYM_MEM_HOST == mem.kind ? GPUSYM_MEM_REGISTERED : mem.kind);
    return mem.kind;
}

int gpusym_layout_pack(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_layout_t *l, void *packed,
                       const void *buf, size_t bytes)
{
    copier_t c = {.dev = dev, .gpu = gpu, .buf = (uintptr_t) buf, .packed = (uintptr_t) packed, .pack = true};
    bytes = at_most(l, bytes);
    if (GPUSYM_LAYOUT_RUN == l->kind) {
        return copy_run(&c, l, bytes);
    }
    const gpusym_mem_kind_t kind = choose_way_now(&c, l);
    int rv;
    if (!c.kernel && pack_scattered(&c, l, bytes, &rv)) {
        return rv;
    }
    return copy_all(&c, l, bytes, kind);
}

int gpusym_layout_unpack(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_layout_t *l, void *buf,
                         const void *packed, size_t bytes)
{
    copier_t c = {.dev = dev, .gpu = gpu, .buf = (uintptr_t) buf, .packed = (uintptr_t) packed, .pack = false};
    bytes = at_most(l, bytes);
    if (GPUSYM_LAYOUT_RUN == l->kind) {
        return copy_run(&c, l, bytes);
    }
    const gpusym_mem_kind_t kind = choose_way_now(&c, l);
    return copy_all(&c, l, bytes, kind);
}

int gpusym_layout_pack_async(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_stream_t *stream,
                             const gpusym_layout_t *l, void *packed, const void *buf, size_t bytes)
{
    copier_t c = {.dev = dev, .gpu = gpu, .stream = stream, .buf = (uintptr_t) buf, .packed = (uintptr_t) packed};
    gpusym_mem_t mem;
    c.pack = true;
    bytes = at_most(l, bytes);
    if (GPUSYM_LAYOUT_RUN == l->kind) {
        return copy_run(&c, l, bytes);
    }
    dev->query(packed, &mem);
    choose_way(&c, l, mem.kind);
    return copy_part(&c, l, 0, bytes);
}

int gpusym_layout_unpack_async(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_stream_t *stream,
                               const gpusym_layout_t *l, void *buf, const void *packed, size_t bytes)
{
    copier_t c = {.dev = dev, .gpu = gpu, .stream = stream, .buf = (uintptr_t) buf, .packed = (uintptr_t) packed};
    gpusym_mem_t mem;
    bytes = at_most(l, bytes);
    if (GPUSYM_LAYOUT_RUN == l->kind) {
        return copy_run(&c, l, bytes);
    }
    dev->query(packed, &mem);
    choose_way(&c, l, mem.kind);
    return copy_part(&c, l, 0, bytes);
}

/* ---- several layouts ---- */

static int queue_one(gpusym_layout_queue_t *q, const gpusym_layout_t *l, void *buf, void *packed)
{
    q->queued++;
    q->words = 0;
    return q->back ? gpusym_layout_unpack_async(q->lane->dev, q->lane->gpu, q->lane->stream, l, buf, packed, l->bytes)
                   : gpusym_layout_pack_async(q->lane->dev, q->lane->gpu, q->lane->stream, l, packed, buf, l->bytes);
}

int gpusym_layout_queue_end(gpusym_layout_queue_t *q)
{
    const uint32_t n = q->n;
    uint32_t blocks;
    int rc = n > 1 ? gpusym_boxes_queue(q->lane, q->box, n, &blocks) : GPUSYM_ERR_NOT_AVAILABLE;
    q->n = 0;
    if (GPUSYM_SUCCESS == rc) {
        q->words = 0 == q->queued++ ? blocks : 0;
        return rc;
    }
    rc = GPUSYM_SUCCESS;
    for (uint32_t i = 0; GPUSYM_SUCCESS == rc && i < n; i++) {
        rc = queue_one(q, &q->part[i].layout, q->part[i].buf, q->part[i].packed);
    }
    return rc;
}

/* Whether so many bytes lie in one allocation: often in that of the last ones. */
static bool is_together(gpusym_layout_queue_t *q, const char *at, size_t bytes)
{
    const char *base = q->known.base;
    if (0 == q->known.size || at < base || at - base >= (ptrdiff_t) q->known.size) {
        if (GPUSYM_SUCCESS != q->lane->dev->mem_range(at, &q->known) || (const char *) q->known.base > at) {
            q->known.size = 0;
            return false;
        }
        base = q->known.base;
    }
    return bytes <= q->known.size - (size_t) (at - base);
}

int gpusym_layout_queue_add(gpusym_layout_queue_t *q, const gpusym_layout_t *l, void *buf, void *packed)
{
    gpusym_box_run_t *run = &q->box[q->n];
    const gpusym_box_t one = {(uint32_t) l->bytes, {1, 1}, {0, 0, 0}};
    gpusym_box_t box = one;
    char *at = (char *) ((uintptr_t) buf + (uintptr_t) l->lo);
    if (0 == l->bytes) {
        return GPUSYM_SUCCESS;
    }
    if (!gpusym_tuning_pack_box(l->bytes, l->bytes, false) ||
        (GPUSYM_LAYOUT_RUN != l->kind &&
         (!gpusym_layout_box(l, &box) || !gpusym_tuning_pack_box(l->bytes, box.bytes, false))) ||
        !is_together(q, at, GPUSYM_LAYOUT_RUN == l->kind ? l->bytes : l->span)) {
        return queue_one(q, l, buf, packed);
    }
    *run = (gpusym_box_run_t){.in = q->back ? packed : at,
                              .out = q->back ? at : packed,
                              .bytes = one.bytes,
                              .from = q->back ? one : box,
                              .to = q->back ? box : one};
    q->part[q->n].layout = *l;
    q->part[q->n].buf = buf;
    q->part[q->n].packed = packed;
    q->n++;
    return GPUSYM_BOXES_MAX == q->n ? gpusym_layout_queue_end(q) : GPUSYM_SUCCESS;
}
