/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Staging: device buffers are mirrored in host memory, the previous module works there, the results are copied back.  The
 * message is not cut: ranks with host buffers call the previous module with the whole of it.
 *
 * A mirror stands for all bytes from the first to the last that the call touches, so that counts, displacements and
 * datatypes stay as they are. Copied are only the datatypes' own bytes: what lies between them may be part of
 * another call in flight, or not be memory at all (MPI_BOTTOM).
 */
#include "mca/coll/gpusym/coll_gpusym.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mca/common/gpusym/exec/lane.h"
#include "mca/common/gpusym/memory/pinned.h"

/* Mirrors keep the place of their buffers' bytes within a line of this many, so that what was aligned is. */
#define LINE 64u

/* ---- host memory ---- */

/* Ordinary memory. Large: address space alone, of which only what is touched becomes memory. NULL if there is none. */
static char *plain_get(size_t size)
{
    void *p = NULL;
    if (size <= GPUSYM_PINNED_MAX) {
        return 0 == posix_memalign(&p, LINE, size) ? p : NULL;
    }
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return MAP_FAILED == p ? NULL : p;
}

/* A mirror of `bytes` bytes that begin at address `at`. False if there is no memory. */
static bool mirror_get(coll_gpusym_mirror_t *r, gpusym_gpu_t *gpu, uintptr_t at, size_t bytes)
{
    const size_t off = at % LINE;
    r->size = off + bytes;
    char *base = gpusym_pinned_get(gpusym_current.dev, gpu, r->size);
    r->pinned = NULL != base;
    base = r->pinned ? base : plain_get(r->size);
    r->p = NULL != base ? base + off : NULL;
    return NULL != r->p;
}

static void mirror_put(coll_gpusym_mirror_t *r)
{
    if (NULL == r->p) {
        return;
    }
    char *base = r->p - (uintptr_t)r->p % LINE;
    if (r->pinned) {
        gpusym_pinned_put(base);
    } else if (r->size <= GPUSYM_PINNED_MAX) {
        free(base);
    } else {
        munmap(base, r->size);
    }
    r->p = NULL;
}

/* ---- copies ---- */

/* Copies between a buffer and its mirror. */
typedef struct {
    gpusym_gpu_t *gpu;
    uintptr_t buf;        /* the buffer's address */
    uintptr_t mirror;     /* what would be the mirror's */
    bool to_host;
    gpusym_lane_t *lane;  /* many small copies are queued on its stream; NULL: each is waited for */
} copier_t;

static int copy_run(const copier_t *c, ptrdiff_t off, size_t bytes)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    void *buf = (void *)(c->buf + (uintptr_t)off), *mirror = (void *)(c->mirror + (uintptr_t)off);
    void *to = c->to_host ? mirror : buf;
    const void *from = c->to_host ? buf : mirror;
    const int rv = NULL != c->lane ? dev->copy_async(c->lane->stream, to, from, bytes) : dev->copy(c->gpu, to, from, bytes);
    return GPUSYM_SUCCESS == rv ? MPI_SUCCESS : MPI_ERR_OTHER;
}

static int copy_piece(void *arg, ptrdiff_t off, size_t bytes)
{
    return copy_run(arg, off, bytes);
}

/* Copies all the runs of a block that is not one. */
static int copy_pieces(copier_t *c, const coll_gpusym_block_t *b)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    int idle = 1;
    if (GPUSYM_SUCCESS != gpusym_lane_get(dev, c->gpu, &c->lane)) {
        c->lane = NULL;
    }
    int rv = coll_gpusym_pieces(b, copy_piece, c);
    if (NULL != c->lane) {
        do { /* the GPU's copy engine ends what is queued */
            idle = dev->stream_poll(c->lane->stream);
        } while (0 == idle);
        gpusym_lane_put(c->lane);
        c->lane = NULL;
    }
    return MPI_SUCCESS == rv && idle < 0 ? MPI_ERR_OTHER : rv;
}

/* A predefined type that is padded inside (MPI_DOUBLE_INT): nobody else uses the padding; to go round it would be slow. */
static bool padded(const coll_gpusym_block_t *b)
{
    return ompi_datatype_is_predefined(b->dtype);
}

/* Copies a side's blocks; only_padded: of these, to keep what their padding holds. */
static int copy_side(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, coll_gpusym_side_t side, bool only_padded,
                     copier_t *c)
{
    coll_gpusym_layout_t l;
    coll_gpusym_block_t b;
    ptrdiff_t off;
    size_t bytes;
    int rv = MPI_SUCCESS;

    coll_gpusym_layout(m, a, side, &l);
    for (size_t i = 0; MPI_SUCCESS == rv && i < l.blocks; i++) {
        coll_gpusym_block(&l, i, &b);
        const bool run = coll_gpusym_block_is_run(&b, &off, &bytes);
        if (0 == bytes || (only_padded && (run || !padded(&b)))) {
            continue;
        }
        rv = run || padded(&b) ? copy_run(c, off, bytes) : copy_pieces(c, &b);
    }
    return rv;
}

/* The same, where all the bytes of the span are the call's: one copy. */
static int copy_span(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, coll_gpusym_side_t side,
                     const coll_gpusym_span_t *span, copier_t *c)
{
    /* In place what is written may be a part of what is read (reduce-scatter). */
    const bool part = COLL_GPUSYM_WRITTEN == side && span->read;
    const bool whole = span->dense && !part;
    return whole ? copy_run(c, span->lo, span->bytes) : copy_side(m, a, side, false, c);
}

/* ---- stages ---- */

static int fail(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, const char *topic, size_t bytes)
{
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    const gpusym_device_t *dev = gpusym_current.dev;
    coll_gpusym_comm_name(m->comm, name, sizeof name);
    if (0 == strcmp("no-memory", topic)) {
        coll_gpusym_help(topic, ompi_comm_rank(m->comm), name, coll_gpusym_mpi_name(a->coll), bytes,
                         "host memory for staging");
    } else {
        coll_gpusym_help(topic, ompi_comm_rank(m->comm), "of the buffer", name, coll_gpusym_mpi_name(a->coll), dev->error());
    }
    return MPI_ERR_OTHER;
}

static void release(coll_gpusym_stage_t *s)
{
    mirror_put(&s->send);
    mirror_put(&s->recv);
}

/* The copier of a mirror and its buffer. */
static copier_t copier(const coll_gpusym_stage_t *s, const coll_gpusym_mirror_t *r, const void *buf,
                       const coll_gpusym_span_t *span, bool to_host)
{
    return (copier_t){.gpu = s->gpu,
                      .buf = (uintptr_t)buf,
                      .mirror = (uintptr_t)r->p - (uintptr_t)span->lo,
                      .to_host = to_host,
                      .lane = NULL};
}

/* Fills the mirrors with what the call reads, or must leave as it is. */
static int copy_in(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, coll_gpusym_stage_t *s,
                   const coll_gpusym_span_t *send, const coll_gpusym_span_t *recv)
{
    int rv = MPI_SUCCESS;
    if (NULL != s->send.p) {
        copier_t c = copier(s, &s->send, a->sbuf, send, true);
        rv = copy_span(m, a, COLL_GPUSYM_SENT, send, &c);
    }
    if (MPI_SUCCESS == rv && NULL != s->recv.p) {
        copier_t c = copier(s, &s->recv, a->rbuf, recv, true);
        rv = recv->read ? copy_span(m, a, COLL_GPUSYM_TAKEN, recv, &c) : copy_side(m, a, COLL_GPUSYM_WRITTEN, true, &c);
    }
    return MPI_SUCCESS == rv ? rv : fail(m, a, "gpu-error", 0);
}

/* The mirrors of what is on a GPU. */
static int mirrors_make(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, coll_gpusym_stage_t *s,
                        const coll_gpusym_span_t *send, const coll_gpusym_span_t *recv)
{
    gpusym_mem_t smem, rmem;
    coll_gpusym_where(m, a, &smem, &rmem);
    const bool from = coll_gpusym_on_gpu(&smem), to = coll_gpusym_on_gpu(&rmem);
    if (!from && !to) {
        return MPI_SUCCESS;
    }
    const bool by_send = !to || (from && GPUSYM_MEM_DEVICE != rmem.kind); /* managed memory names no GPU */
    if (GPUSYM_SUCCESS != gpusym_current.dev->gpu_open(by_send ? &smem : &rmem, &s->gpu)) {
        return fail(m, a, "gpu-error", 0);
    }
    if ((from && !mirror_get(&s->send, s->gpu, (uintptr_t)a->sbuf + (uintptr_t)send->lo, send->bytes)) ||
        (to && !mirror_get(&s->recv, s->gpu, (uintptr_t)a->rbuf + (uintptr_t)recv->lo, recv->bytes))) {
        return fail(m, a, "no-memory", send->bytes + recv->bytes);
    }
    return MPI_SUCCESS;
}

int coll_gpusym_stage_open(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, coll_gpusym_stage_t *s,
                           coll_gpusym_args_t *on_host)
{
    coll_gpusym_span_t send, recv;
    int rv;

    memset(s, 0, sizeof *s);
    *on_host = *a;
    coll_gpusym_spans(m, a, &send, &recv);
    rv = mirrors_make(m, a, s, &send, &recv);
    if (MPI_SUCCESS != rv) {
        release(s);
        return rv;
    }
    if (NULL != s->send.p) {
        on_host->sbuf = (const void *)((uintptr_t)s->send.p - (uintptr_t)send.lo);
    }
    if (NULL != s->recv.p) {
        on_host->rbuf = (void *)((uintptr_t)s->recv.p - (uintptr_t)recv.lo);
    }
    if (COLL_GPUSYM_BCAST == a->coll) { /* one buffer: the root's has a send mirror, the others' a receive mirror */
        on_host->rbuf = NULL != s->send.p ? (void *)(uintptr_t)on_host->sbuf : on_host->rbuf;
        on_host->sbuf = on_host->rbuf;
    }
    return MPI_SUCCESS;
}

int coll_gpusym_stage_in(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, coll_gpusym_stage_t *s)
{
    coll_gpusym_span_t send, recv;
    coll_gpusym_spans(m, a, &send, &recv);
    return copy_in(m, a, s, &send, &recv);
}

int coll_gpusym_stage_begin(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, coll_gpusym_stage_t *s,
                            coll_gpusym_args_t *on_host)
{
    int rv = coll_gpusym_stage_open(m, a, s, on_host);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    rv = coll_gpusym_stage_in(m, a, s);
    if (MPI_SUCCESS != rv) {
        release(s);
    }
    return rv;
}

int coll_gpusym_stage_out(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, coll_gpusym_stage_t *s, int rv)
{
    coll_gpusym_span_t send, recv;
    if (MPI_SUCCESS != rv || NULL == s->recv.p) {
        return rv;
    }
    coll_gpusym_spans(m, a, &send, &recv);
    if (!recv.written) {
        return rv;
    }
    copier_t c = copier(s, &s->recv, a->rbuf, &recv, false);
    return MPI_SUCCESS == copy_span(m, a, COLL_GPUSYM_WRITTEN, &recv, &c) ? rv : fail(m, a, "gpu-error", 0);
}

int coll_gpusym_stage_end(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, coll_gpusym_stage_t *s, int rv)
{
    rv = coll_gpusym_stage_out(m, a, s, rv);
    release(s);
    return rv;
}

void coll_gpusym_stage_close(coll_gpusym_stage_t *s)
{
    release(s);
}

int coll_gpusym_stage_blocking(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a)
{
    coll_gpusym_stage_t s;
    coll_gpusym_args_t on_host;
    const int rv = coll_gpusym_stage_begin(m, a, &s, &on_host);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    return coll_gpusym_stage_end(m, a, &s, coll_gpusym_previous(m, &on_host));
}
