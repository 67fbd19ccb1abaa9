/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The way through host memory: device buffers are copied to bounce buffers, the fallback works there, and the results
 * are copied back. Here the message is not divided: ranks with host buffers call the fallback with the whole of it.
 * Where there are none, it may be (segmentation.h).
 *
 * A bounce buffer stands for all bytes from the first to the last that the call touches, so that counts, displacements
 * and datatypes stay as they are. Elements that lie in several allocations, perhaps in host memory too, may be
 * terabytes apart, more than Open MPI finds memory for: they are packed. Copied are only the
 * datatypes' own bytes: what lies between them may be part of another call in flight, or not be memory at all
 * (MPI_BOTTOM).
 */
#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/fallback/bounce.h"
#include "mca/common/gpusym/gpusym.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mca/common/gpusym/exec/staged.h"
#include "mca/common/gpusym/memory/pinned.h"
#include "mca/common/ompi/layout.h"

/* Bounce buffers keep the place of their buffers' bytes within a line of this many, so that what was aligned is. */
#define LINE 64u
/* Ordinary memory of more bytes is address space alone, of which only what is touched becomes memory. */
#define HEAP_MAX (64ull << 20)
/* Pinned chunks through which copies of STAGED_MIN bytes and more go to and from ordinary memory, in bytes. */
#define CHUNK (2ull << 20)
#define STAGED_MIN (256ull << 10)

/* ---- host memory ---- */

/* Ordinary memory. NULL: there is none. */
static char *plain_get(size_t size)
{
    void *p = NULL;
    if (size <= HEAP_MAX) {
        return 0 == posix_memalign(&p, LINE, size) ? p : NULL;
    }
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return MAP_FAILED == p ? NULL : p;
}

/* A bounce buffer of `bytes` bytes that begin at address `at`; ordinary memory if there is no GPU. False if there is no
 * memory. */
static bool get_buffer(coll_gpusym_bounce_buffer_t *r, gpusym_gpu_t *gpu, uintptr_t at, size_t bytes)
{
    const size_t off = at % LINE;
    r->size = off + bytes;
    char *base = NULL != gpu ? gpusym_pinned_get(gpusym_current.dev, gpu, r->size) : NULL;
    r->pinned = NULL != base;
    base = r->pinned ? base : plain_get(r->size);
    r->p = NULL != base ? base + off : NULL;
    return NULL != r->p;
}

static void free_packed(coll_gpusym_bounce_packed_t *packed)
{
    for (size_t i = 0; i < packed->types; i++) {
        if (NULL != packed->dtypes[i]) {
            (void) ompi_datatype_destroy(&packed->dtypes[i]);
        }
    }
    free(packed->dtypes);
    free(packed->displs);
    memset(packed, 0, sizeof *packed);
}

static void put_buffer(coll_gpusym_bounce_buffer_t *r)
{
    free_packed(&r->packed);
    if (NULL == r->p) {
        return;
    }
    char *base = r->p - (uintptr_t) r->p % LINE;
    if (r->pinned) {
        gpusym_pinned_put(base);
    } else if (r->size <= HEAP_MAX) {
        free(base);
    } else {
        munmap(base, r->size);
    }
    r->p = NULL;
}

/* ---- sides ---- */

static const coll_gpusym_buffer_t *side_of(const coll_gpusym_buffers_t *b, coll_gpusym_side_t side)
{
    return COLL_GPUSYM_SENT == side ? &b->send : &b->recv;
}

static const void *buf_of(const coll_gpusym_buffers_t *b, coll_gpusym_side_t side)
{
    return COLL_GPUSYM_SENT == side ? b->args->sbuf : b->args->rbuf;
}

/* The address of the first byte that the call touches. */
static uintptr_t first_byte(const coll_gpusym_buffers_t *b, coll_gpusym_side_t side)
{
    return (uintptr_t) buf_of(b, side) + (uintptr_t) side_of(b, side)->span.lo;
}

/* ---- copies ---- */

/* Copies between a buffer and its bounce buffer. */
typedef struct {
    gpusym_gpu_t *gpu;
    uintptr_t buf;    /* the buffer's address */
    uintptr_t bounce; /* the address that stands for it in the bounce buffer */
    bool to_host;
    bool pinned;         /* the bounce buffer is */
    gpusym_lane_t *lane; /* copies are queued on its stream; NULL: each is waited for */
} copier_t;

/* Waits until all is copied that is queued. MPI error code. */
static int await_copies(const gpusym_lane_t *lane)
{
    return gpusym_lane_await(lane) < 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

/* Copies between the GPU and ordinary memory by chunks, and waits for it. False: there is no pinned memory for it, and
 * nothing has been copied. */
static bool copy_staged(const copier_t *c, char *buf, char *bounce, size_t bytes, int *rv)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_staged_t staged = {.dev = dev,
                              .gpu = c->gpu,
                              .on_gpu = buf,
                              .on_host = bounce,
                              .bytes = bytes,
                              .chunks = gpusym_pinned_get(dev, c->gpu, gpusym_staged_room(bytes, CHUNK)),
                              .chunk = CHUNK,
                              .to_host = c->to_host,
                              .engine = true};
    int done = 0;
    if (NULL == staged.chunks) {
        return false;
    }
    gpusym_staged_start(&staged);
    while (0 == (done = gpusym_staged_poll(&staged))) {
        if (dev->simulated) {
            sched_yield(); /* its streams are threads of this host */
        }
    }
    gpusym_pinned_put(staged.chunks);
    *rv = 0 < done ? MPI_SUCCESS : MPI_ERR_OTHER;
    return true;
}

static int copy_run(const copier_t *c, ptrdiff_t off, size_t bytes)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    void *buf = (void *) (c->buf + (uintptr_t) off), *bounce = (void *) (c->bounce + (uintptr_t) off);
    int staged;
    if (!c->pinned && NULL == c->lane && bytes >= STAGED_MIN && copy_staged(c, buf, bounce, bytes, &staged)) {
        return staged;
    }
    void *to = c->to_host ? bounce : buf;
    const void *from = c->to_host ? buf : bounce;
    const int rv =
        NULL != c->lane ? dev->copy_async(c->lane->stream, to, from, bytes) : dev->copy(c->gpu, to, from, bytes);
    return GPUSYM_SUCCESS == rv ? MPI_SUCCESS : MPI_ERR_OTHER;
}

static int copy_one_run(void *arg, ptrdiff_t off, size_t bytes)
{
    return copy_run(arg, off, bytes);
}

/* Copies all the runs of elements that are not one, and begin disp bytes behind the buffer's address. Many small copies
 * are queued, and waited for together. */
static int copy_runs(const copier_t *c, const gpusym_layout_t *elements, ptrdiff_t disp)
{
    copier_t queued = *c;
    if (NULL == c->lane && GPUSYM_SUCCESS != gpusym_lane_get(gpusym_current.dev, c->gpu, &queued.lane)) {
        queued.lane = NULL;
    }
    const int rv = gpusym_layout_runs(elements, disp, copy_one_run, &queued);
    int ended = MPI_SUCCESS;
    if (NULL == c->lane && NULL != queued.lane) {
        ended = await_copies(queued.lane);
        gpusym_lane_put(queued.lane);
    }
    return MPI_SUCCESS == rv ? ended : rv;
}

/* A predefined type that is is_padded inside (MPI_DOUBLE_INT): nothing else uses the padding, and skipping it would be
 * slow. */
static bool is_padded(const coll_gpusym_block_t *b)
{
    return ompi_datatype_is_predefined(b->dtype);
}

/* Copies a side's blocks; only_padded: of these, to keep what their padding holds. */
static int copy_side(const coll_gpusym_buffers_t *b, coll_gpusym_side_t side, bool only_padded, copier_t *c)
{
    coll_gpusym_layout_t l;
    coll_gpusym_block_t block;
    gpusym_layout_t elements;
    int rv = MPI_SUCCESS;

    coll_gpusym_layout(b->comm, b->args, side, &l);
    for (size_t i = 0; MPI_SUCCESS == rv && i < l.blocks; i++) {
        coll_gpusym_block(&l, i, &block);
        if (0 == block.count) {
            continue;
        }
        gpusym_layout_find(block.count, block.dtype, &elements);
        const bool run = GPUSYM_LAYOUT_RUN == elements.kind;
        if (0 == elements.bytes || (only_padded && (run || !is_padded(&block)))) {
            continue;
        }
        rv = run || is_padded(&block) ? copy_run(c, block.disp + elements.lo, elements.span)
                                      : copy_runs(c, &elements, block.disp);
    }
    return rv;
}

/* The same, where all the bytes of the span are the call's: one copy. */
static int copy_span(const coll_gpusym_buffers_t *b, coll_gpusym_side_t side, copier_t *c)
{
    const coll_gpusym_span_t *span = &side_of(b, side)->span;
    /* In place what is written may be a part of what is read (reduce-scatter). */
    const bool part = COLL_GPUSYM_WRITTEN == side && span->read;
    const bool whole = span->dense && !part;
    return whole ? copy_run(c, span->lo, span->bytes) : copy_side(b, side, false, c);
}

/* ---- packed ---- */

/* Whether the blocks can be described packed: displacements and sizes of elements fit. *bytes: of all. */
static bool can_pack(const coll_gpusym_layout_t *l, size_t *bytes)
{
    const bool in_elements = NULL == l->dtypes;
    coll_gpusym_block_t b;
    size_t elements = 0;
    *bytes = 0;
    for (size_t i = 0; i < l->blocks; i++) {
        coll_gpusym_block(l, i, &b);
        if (b.count > 0) {
            elements += b.count;
            *bytes += b.count * b.dtype->super.size;
        }
        if (b.count > 0 && b.dtype->super.size > INT_MAX) {
            return false;
        }
    }
    const size_t last = in_elements ? elements : *bytes;
    return !l->vector || l->by_aint || (size_t) (gpusym_displ_element_t) last == last;
}

/* Whether a side's blocks are to be packed: they are not of one allocation. */
static bool is_packed(const coll_gpusym_buffers_t *b, coll_gpusym_side_t side, coll_gpusym_layout_t *l, size_t *bytes)
{
    const coll_gpusym_span_t *span = &side_of(b, side)->span;
    if (coll_gpusym_facts[b->args->coll].reduces || !span->used) {
        return false;
    }
    coll_gpusym_layout(b->comm, b->args, side, l);
    return l->blocks > 0 && (l->vector || !ompi_datatype_is_predefined(l->one.dtype)) && can_pack(l, bytes) &&
           !gpusym_memory_together(gpusym_current.dev, first_byte(b, side), span->bytes);
}

bool coll_gpusym_bounce_packs(coll_gpusym_buffers_t *b)
{
    coll_gpusym_layout_t l;
    size_t bytes;
    if (coll_gpusym_facts[b->args->coll].reduces) { /* asked of each native call */
        return false;
    }
    coll_gpusym_buffers_measure(b);
    return is_packed(b, COLL_GPUSYM_SENT, &l, &bytes) || is_packed(b, COLL_GPUSYM_WRITTEN, &l, &bytes);
}

/* As many bytes as an element has without its gaps. NULL: no memory. */
static struct ompi_datatype_t *make_packed_type(const struct ompi_datatype_t *dtype)
{
    struct ompi_datatype_t *made;
    if (MPI_SUCCESS !=
        ompi_datatype_create_contiguous(NULL != dtype ? (int) dtype->super.size : 0, &ompi_mpi_byte.dt, &made)) {
        return NULL;
    }
    (void) ompi_datatype_commit(&made);
    return made;
}

/* Describes packed blocks. False: no memory; free_packed() is due all the same. */
static bool make_packed(const coll_gpusym_layout_t *l, coll_gpusym_bounce_packed_t *packed)
{
    coll_gpusym_block_t b;
    size_t at = 0; /* of a block: in elements, or bytes */

    packed->vector = l->vector;
    packed->by_aint = l->by_aint;
    packed->dtypes = calloc(l->blocks, sizeof *packed->dtypes);
    packed->displs = calloc(l->blocks, sizeof(ptrdiff_t));
    if (NULL == packed->dtypes || NULL == packed->displs) {
        return false;
    }
    for (size_t i = 0; i < l->blocks; i++) {
        coll_gpusym_block(l, i, &b);
        if (NULL != l->dtypes || 0 == i) {
            packed->types++;
            packed->dtypes[i] = make_packed_type(!l->vector || NULL != l->dtypes ? b.dtype : l->dtype);
            if (NULL == packed->dtypes[i]) {
                return false;
            }
        }
        if (l->by_aint) {
            ((gpusym_adispl_element_t *) packed->displs)[i] = (gpusym_adispl_element_t) at;
        } else {
            ((gpusym_displ_element_t *) packed->displs)[i] = (gpusym_displ_element_t) at;
        }
        at += 0 == b.count ? 0 : NULL == l->dtypes ? b.count : b.count * b.dtype->super.size;
    }
    return true;
}

/* Packs a side's elements, or (back) unpacks them. MPI error code. */
static int copy_packed(const coll_gpusym_buffers_t *b, coll_gpusym_side_t side, const coll_gpusym_bounce_t *s,
                       bool back)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    char *p = COLL_GPUSYM_SENT == side ? s->send.p : s->recv.p;
    coll_gpusym_layout_t l;
    coll_gpusym_block_t block;
    gpusym_layout_t elements;
    int rc = GPUSYM_SUCCESS;

    coll_gpusym_layout(b->comm, b->args, side, &l);
    for (size_t i = 0; GPUSYM_SUCCESS == rc && i < l.blocks; i++) {
        coll_gpusym_block(&l, i, &block);
        if (0 == block.count) {
            continue;
        }
        void *at = (void *) ((uintptr_t) buf_of(b, side) + (uintptr_t) block.disp);
        gpusym_layout_find(block.count, block.dtype, &elements);
        rc = back ? gpusym_layout_unpack(dev, s->gpu, &elements, at, p, elements.bytes)
                  : gpusym_layout_pack(dev, s->gpu, &elements, p, at, elements.bytes);
        p += elements.bytes;
    }
    return GPUSYM_SUCCESS == rc ? MPI_SUCCESS : MPI_ERR_OTHER;
}

/* ---- bounces ---- */

int coll_gpusym_bounce_report(const coll_gpusym_buffers_t *b, const char *topic, size_t bytes)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    const char *call = coll_gpusym_mpi_name(b->args->coll);
    const int rank = ompi_comm_rank(b->comm);
    gpusym_comm_label(b->comm, name, sizeof name);
    if (0 == strcmp("no-memory", topic)) {
        coll_gpusym_help(topic, rank, name, call, bytes, "host memory for staging");
        return MPI_ERR_NO_MEM;
    }
    coll_gpusym_help(topic, rank, "of the buffer", name, call, gpusym_current.dev->error());
    return MPI_ERR_OTHER;
}

/* The copier of a buffer and its bounce buffer. */
static copier_t make_copier(const coll_gpusym_buffers_t *b, coll_gpusym_side_t side, const coll_gpusym_bounce_t *s,
                            bool to_host)
{
    const coll_gpusym_bounce_buffer_t *r = COLL_GPUSYM_SENT == side ? &s->send : &s->recv;
    return (copier_t){.gpu = s->gpu,
                      .buf = (uintptr_t) buf_of(b, side),
                      .bounce = (uintptr_t) r->p - (uintptr_t) side_of(b, side)->span.lo,
                      .to_host = to_host,
                      .pinned = r->pinned,
                      .lane = s->lane};
}

/* Fills the bounce buffers with what the call reads, or must leave as it is. */
static int copy_in(const coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s)
{
    const bool read = b->recv.span.read;
    int rv = MPI_SUCCESS;
    if (s->send.packed.types > 0) {
        rv = copy_packed(b, COLL_GPUSYM_SENT, s, false);
    } else if (s->send.on_gpu) {
        copier_t c = make_copier(b, COLL_GPUSYM_SENT, s, true);
        rv = copy_span(b, COLL_GPUSYM_SENT, &c);
    }
    if (MPI_SUCCESS == rv && s->recv.packed.types > 0) {
        rv = read ? copy_packed(b, COLL_GPUSYM_WRITTEN, s, false) : MPI_SUCCESS;
    } else if (MPI_SUCCESS == rv && s->recv.on_gpu) {
        copier_t c = make_copier(b, COLL_GPUSYM_WRITTEN, s, true);
        rv = read ? copy_span(b, COLL_GPUSYM_TAKEN, &c) : copy_side(b, COLL_GPUSYM_WRITTEN, true, &c);
    }
    return MPI_SUCCESS == rv ? rv : coll_gpusym_bounce_report(b, "gpu-error", 0);
}

int coll_gpusym_bounce_find(const coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s)
{
    memset(s, 0, sizeof *s);
    s->send.on_gpu = coll_gpusym_on_gpu(&b->send.mem);
    s->recv.on_gpu = coll_gpusym_on_gpu(&b->recv.mem);
    if (!coll_gpusym_buffers_on_gpu(b)) {
        return MPI_SUCCESS;
    }
    if (GPUSYM_SUCCESS != gpusym_current.dev->gpu_open(coll_gpusym_buffers_where(b), &s->gpu)) {
        s->gpu = NULL;
        return coll_gpusym_bounce_report(b, "gpu-error", 0);
    }
    return MPI_SUCCESS;
}

/* A bounce buffer for a side that is on a GPU. False if there is no memory. */
static bool make_buffer(const coll_gpusym_buffers_t *b, coll_gpusym_side_t side, const coll_gpusym_bounce_t *s,
                        coll_gpusym_bounce_buffer_t *r)
{
    coll_gpusym_layout_t l;
    size_t bytes;
    if (!is_packed(b, side, &l, &bytes)) {
        return get_buffer(r, s->gpu, first_byte(b, side), side_of(b, side)->span.bytes);
    }
    return make_packed(&l, &r->packed) && get_buffer(r, s->gpu, 0, bytes);
}

/* Bounce buffers for what is on a GPU. */
static int make_buffers(const coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s)
{
    const int rv = coll_gpusym_bounce_find(b, s);
    if ((s->send.on_gpu && !make_buffer(b, COLL_GPUSYM_SENT, s, &s->send)) ||
        (s->recv.on_gpu && !make_buffer(b, COLL_GPUSYM_WRITTEN, s, &s->recv))) {
        return coll_gpusym_bounce_report(b, "no-memory", b->send.span.bytes + b->recv.span.bytes);
    }
    return rv;
}

/* What stands for a buffer's address. */
static char *stands_for(const coll_gpusym_bounce_buffer_t *r, const coll_gpusym_span_t *span)
{
    return r->packed.types > 0 ? r->p : (char *) ((uintptr_t) r->p - (uintptr_t) span->lo);
}

/* One side's arguments. */
static void describe_packed(const coll_gpusym_bounce_packed_t *packed, struct ompi_datatype_t **dtype,
                            struct ompi_datatype_t *const **dtypes, gpusym_displs_t *displs, gpusym_adispls_t *adispls)
{
    *dtype = packed->dtypes[0];
    *dtypes = packed->dtypes;
    if (packed->vector && packed->by_aint) {
        *adispls = GPUSYM_ADISPLS_OF((gpusym_adispl_element_t *) packed->displs);
    } else if (packed->vector) {
        *displs = GPUSYM_DISPLS_OF((gpusym_displ_element_t *) packed->displs);
    }
}

/* The same call on the bounce buffers. */
static void make_on_host(const coll_gpusym_buffers_t *b, const coll_gpusym_bounce_t *s, coll_gpusym_args_t *on_host)
{
    *on_host = *b->args;
    if (s->send.on_gpu) {
        on_host->sbuf = stands_for(&s->send, &b->send.span);
        if (s->send.packed.types > 0) {
            describe_packed(&s->send.packed, &on_host->sdtype, &on_host->sdtypes, &on_host->sdispls,
                            &on_host->sadispls);
        }
    }
    if (s->recv.on_gpu) {
        on_host->rbuf = stands_for(&s->recv, &b->recv.span);
        if (s->recv.packed.types > 0) {
            describe_packed(&s->recv.packed, &on_host->rdtype, &on_host->rdtypes, &on_host->rdispls,
                            &on_host->radispls);
        }
    }
    if (COLL_GPUSYM_BCAST ==
        on_host->coll) { /* one buffer: the root's bounces as a send buffer, the others' as a receive buffer */
        on_host->rbuf = s->send.on_gpu ? (void *) (uintptr_t) on_host->sbuf : on_host->rbuf;
        on_host->rdtype = s->send.on_gpu ? on_host->sdtype : on_host->rdtype;
        on_host->sbuf = on_host->rbuf;
    }
}

int coll_gpusym_bounce_open(coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s, coll_gpusym_args_t *on_host)
{
    coll_gpusym_buffers_measure(b);
    const int rv = make_buffers(b, s);
    if (MPI_ERR_NO_MEM != rv) {
        make_on_host(b, s, on_host);
    }
    return rv;
}

/* Bytes that a bounce buffer takes of memory that begins anywhere. */
static size_t room_of(const coll_gpusym_bounce_buffer_t *r, const coll_gpusym_span_t *span)
{
    return r->on_gpu ? span->bytes + 2 * (size_t) LINE : 0;
}

/* Puts a bounce buffer into memory of room_of(). Returns the memory behind it. */
static char *place_buffer(const coll_gpusym_buffers_t *b, coll_gpusym_side_t side, coll_gpusym_bounce_buffer_t *r,
                          char *memory)
{
    const uintptr_t line = ((uintptr_t) memory + LINE - 1) / LINE * LINE;
    r->p = r->on_gpu ? (char *) line + first_byte(b, side) % LINE : NULL;
    return memory + room_of(r, &side_of(b, side)->span);
}

size_t coll_gpusym_bounce_room(coll_gpusym_buffers_t *b, const coll_gpusym_bounce_t *s)
{
    coll_gpusym_buffers_measure(b);
    return room_of(&s->send, &b->send.span) + room_of(&s->recv, &b->recv.span);
}

void coll_gpusym_bounce_place(coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s, char *memory,
                              coll_gpusym_args_t *on_host)
{
    coll_gpusym_buffers_measure(b);
    memory = place_buffer(b, COLL_GPUSYM_SENT, &s->send, memory);
    (void) place_buffer(b, COLL_GPUSYM_WRITTEN, &s->recv, memory);
    make_on_host(b, s, on_host);
}

int coll_gpusym_bounce_in(coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s)
{
    if (NULL == s->gpu && (s->send.on_gpu || s->recv.on_gpu)) {
        return MPI_ERR_OTHER; /* reported, as it could not be opened */
    }
    coll_gpusym_buffers_measure(b);
    return copy_in(b, s);
}

int coll_gpusym_bounce_out(coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s, int rv)
{
    if (MPI_SUCCESS != rv || !s->recv.on_gpu) {
        return rv;
    }
    coll_gpusym_buffers_measure(b);
    if (!b->recv.span.written) {
        return rv;
    }
    copier_t c = make_copier(b, COLL_GPUSYM_WRITTEN, s, false);
    const int copied =
        s->recv.packed.types > 0 ? copy_packed(b, COLL_GPUSYM_WRITTEN, s, true) : copy_span(b, COLL_GPUSYM_WRITTEN, &c);
    return MPI_SUCCESS == copied ? rv : coll_gpusym_bounce_report(b, "gpu-error", 0);
}

/* Ordinary memory is copied at once: the driver would copy it synchronously too, and slower. */
void coll_gpusym_bounce_queue(coll_gpusym_bounce_t *s)
{
    const bool pinned = (NULL == s->send.p || s->send.pinned) && (NULL == s->recv.p || s->recv.pinned);
    if (NULL == s->gpu || !pinned || GPUSYM_SUCCESS != gpusym_lane_get(gpusym_current.dev, s->gpu, &s->lane)) {
        s->lane = NULL;
    }
}

bool coll_gpusym_bounce_poll(const coll_gpusym_buffers_t *b, coll_gpusym_bounce_t *s, int *rv)
{
    const int idle = NULL == s->lane ? 1 : gpusym_current.dev->stream_poll(s->lane->stream);
    *rv = idle >= 0 ? MPI_SUCCESS : coll_gpusym_bounce_report(b, "gpu-error", 0);
    return 0 != idle;
}

void coll_gpusym_bounce_end_queue(coll_gpusym_bounce_t *s)
{
    if (NULL != s->lane) {
        gpusym_lane_put(s->lane);
        s->lane = NULL;
    }
}

void coll_gpusym_bounce_close(coll_gpusym_bounce_t *s)
{
    put_buffer(&s->send);
    put_buffer(&s->recv);
}
