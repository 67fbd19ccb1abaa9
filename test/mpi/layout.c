/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: layouts of datatypes (mca/common/ompi/layout.h). Random datatypes, nested, resized, with negative
 * strides and overlaps; counts; a part of the bytes: packed from and unpacked to device memory, and on the host. What
 * is right is told by MPI_Pack on host memory: it says of each packed byte where in the elements it comes from. Gaps,
 * and what lies around the elements, must stay as they are.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/ompi/layout.h"
#include "mca/common/ompi/pieces.h"
#include "test/mpi/check.h"

#define USAGE "[--seed N] [--n TYPES]"
#define GUARD 64          /* bytes around the elements, and around packed memory, that must stay as they are */
#define SIZE_MOST 3000    /* bytes of an element, at most */
#define EXTENT_MOST 60000 /* of an element in memory */
#define BYTES_MOST 40000  /* of a call */
#define SPAN_MOST 1000000 /* of a call in memory */
#define DEPTH_MOST 3

static uint64_t state; /* of the random numbers */

static uint64_t draw(void)
{
    return ref_mix(++state);
}

/* From low to high, both included. */
static int pick(int low, int high)
{
    return low + (int) (draw() % (uint64_t) (high - low + 1));
}

static void *need(void *p)
{
    if (NULL == p) {
        fprintf(stderr, "layout: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
        exit(99);
    }
    return p;
}

/* ---- the device, counted ---- */

static gpusym_device_t dev; /* the process's, with these in front of some of its functions */
static const gpusym_device_t *real_dev;
static gpusym_gpu_t *gpu;
static struct {
    long copies; /* of rows, or of one run; of what kernels read */
    long launches;
    long queries;
    bool fail_launches, fail_kernels; /* launches, and what is loaded before them */
    bool fail_resources;              /* no streams, no pinned memory */
    long fail_copy;                   /* the copy that fails, counted down; 0: none */
    uintptr_t border;                 /* here two allocations meet, which the device takes for one; 0: nowhere */
} counted;

static int copy_failed(void)
{
    counted.copies++;
    return counted.fail_copy > 0 && 0 == --counted.fail_copy;
}

/* Whether memory lies on both sides of the border, which a driver refuses. */
static bool crosses(const void *p, size_t size)
{
    return (uintptr_t) p < counted.border && counted.border < (uintptr_t) p + size;
}

static int divided_mem_range(const void *p, gpusym_range_t *range)
{
    const int rv = real_dev->mem_range(p, range);
    if (GPUSYM_SUCCESS == rv && crosses(range->base, range->size)) {
        const uintptr_t base = (uintptr_t) range->base, end = base + range->size;
        const bool low = (uintptr_t) p < counted.border;
        range->base = (void *) (low ? base : counted.border);
        range->size = low ? counted.border - base : end - counted.border;
    }
    return rv;
}

static int counted_copy(gpusym_gpu_t *on, void *dst, const void *src, size_t size)
{
    return copy_failed() || crosses(dst, size) || crosses(src, size) ? GPUSYM_ERR : real_dev->copy(on, dst, src, size);
}

static int counted_copy_async(gpusym_stream_t *stream, void *dst, const void *src, size_t size)
{
    return copy_failed() || crosses(dst, size) || crosses(src, size) ? GPUSYM_ERR
                                                                     : real_dev->copy_async(stream, dst, src, size);
}

static int counted_copy2d_async(gpusym_stream_t *stream, void *dst, size_t dpitch, const void *src, size_t spitch,
                                size_t width, size_t height)
{
    const size_t to = (height - 1) * dpitch + width, from = (height - 1) * spitch + width;
    return copy_failed() || crosses(dst, to) || crosses(src, from)
               ? GPUSYM_ERR
               : real_dev->copy2d_async(stream, dst, dpitch, src, spitch, width, height);
}

static void counted_query(const void *p, gpusym_mem_t *mem)
{
    counted.queries++;
    real_dev->query(p, mem);
}

static int counted_launch(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    counted.launches++;
    return counted.fail_launches || 0 != counted.border ? GPUSYM_ERR : real_dev->launch(stream, kernel, w);
}

static int counted_kernels_load(gpusym_gpu_t *on, const char **why)
{
    return counted.fail_kernels ? GPUSYM_ERR_NOT_AVAILABLE : real_dev->kernels_load(on, why);
}

static int counted_stream_create(gpusym_gpu_t *on, gpusym_stream_t **stream)
{
    return counted.fail_resources ? GPUSYM_ERR_NO_MEMORY : real_dev->stream_create(on, stream);
}

static int counted_host_alloc(gpusym_gpu_t *on, size_t size, void **host, void **seen)
{
    return counted.fail_resources ? GPUSYM_ERR_NO_MEMORY : real_dev->host_alloc(on, size, host, seen);
}

static void device_open(void)
{
    real_dev = gpusym_device_need();
    if (NULL == real_dev || GPUSYM_SUCCESS != real_dev->gpu_open(NULL, &gpu)) {
        fprintf(stderr, "layout: there is no GPU\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    dev = *real_dev;
    dev.query = counted_query;
    dev.mem_range = divided_mem_range;
    dev.copy = counted_copy;
    dev.copy_async = counted_copy_async;
    dev.copy2d_async = counted_copy2d_async;
    dev.launch = counted_launch;
    dev.kernels_load = counted_kernels_load;
    dev.stream_create = counted_stream_create;
    dev.host_alloc = counted_host_alloc;
}

/* ---- datatypes ---- */

/* None with bytes that a copy of its value may leave out (MPI_LONG_DOUBLE). */
static MPI_Datatype random_base(void)
{
    const MPI_Datatype bases[] = {MPI_BYTE,       MPI_SHORT,     MPI_INT, MPI_DOUBLE, MPI_C_DOUBLE_COMPLEX,
                                  MPI_DOUBLE_INT, MPI_SHORT_INT, MPI_2INT};
    MPI_Datatype made;
    MPI_Type_dup(bases[pick(0, (int) (sizeof bases / sizeof bases[0]) - 1)], &made);
    return made;
}

static MPI_Datatype random_subarray(MPI_Datatype of)
{
    const int dims = pick(1, 3);
    int sizes[3], part[3], from[3];
    MPI_Datatype made;
    for (int i = 0; i < dims; i++) {
        sizes[i] = pick(1, 6);
        part[i] = pick(1, sizes[i]);
        from[i] = pick(0, sizes[i] - part[i]);
    }
    MPI_Type_create_subarray(dims, sizes, part, from, pick(0, 1) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, of, &made);
    return made;
}

/* Blocks of one type, or of it and another one, anywhere. */
static MPI_Datatype random_blocks(MPI_Datatype of, MPI_Aint extent, bool two)
{
    enum { BLOCKS = 6 };
    const int n = pick(1, BLOCKS);
    int lengths[BLOCKS];
    MPI_Aint at[BLOCKS], next = pick(-100, 100);
    MPI_Datatype types[BLOCKS], made, other = random_base();
    for (int i = 0; i < n; i++) {
        lengths[i] = pick(0, 3);
        at[i] = next;
        types[i] = two && pick(0, 1) ? other : of;
        next += pick(0, 9) ? lengths[i] * (extent > 32 ? extent : 32) + (pick(0, 1) ? pick(0, 40) : 0) : pick(-200, 0);
    }
    if (two) {
        MPI_Type_create_struct(n, lengths, at, types, &made);
    } else {
        MPI_Type_create_hindexed(n, lengths, at, of, &made);
    }
    MPI_Type_free(&other);
    return made;
}

static MPI_Datatype random_indexed(MPI_Datatype of)
{
    enum { BLOCKS = 8 };
    const int n = pick(1, BLOCKS), regular = pick(0, 4);
    int lengths[BLOCKS], at[BLOCKS], next = pick(0, 3);
    MPI_Datatype made;
    for (int i = 0; i < n; i++) {
        lengths[i] = pick(0, 2);
        at[i] = next;
        next += regular > 0 ? 1 + regular : lengths[i] + pick(0, 3);
    }
    if (pick(0, 1)) {
        MPI_Type_create_indexed_block(n, pick(1, 2), at, of, &made);
    } else {
        MPI_Type_indexed(n, lengths, at, of, &made);
    }
    return made;
}

/* A type around another one, which is freed. */
static MPI_Datatype wrap(MPI_Datatype of)
{
    MPI_Datatype made;
    MPI_Aint lb, extent;
    MPI_Type_get_extent(of, &lb, &extent);
    switch (pick(0, 9)) {
    case 0:
        MPI_Type_contiguous(pick(0, 5), of, &made);
        break;
    case 1:
    case 2:
        MPI_Type_vector(pick(1, 7), pick(1, 4), pick(-6, 6), of, &made);
        break;
    case 3:
        MPI_Type_create_hvector(pick(1, 7), pick(1, 3), pick(-3, 4) * extent + pick(0, 1) * pick(-9, 9), of, &made);
        break;
    case 4:
        made = random_indexed(of);
        break;
    case 5:
        made = random_blocks(of, extent, false);
        break;
    case 6:
        made = random_blocks(of, extent, true);
        break;
    case 7:
        MPI_Type_create_resized(of, lb + pick(-16, 16), pick(0, 3) ? extent + pick(0, 64) : pick(-200, 200), &made);
        break;
    default:
        made = random_subarray(of);
        break;
    }
    MPI_Type_free(&of);
    return made;
}

/* Whether calls with the type stay small enough. */
static bool is_small(MPI_Datatype type, size_t count)
{
    MPI_Aint lb, extent, true_lb, true_extent;
    int size;
    MPI_Type_size(type, &size);
    MPI_Type_get_extent(type, &lb, &extent);
    MPI_Type_get_true_extent(type, &true_lb, &true_extent);
    const size_t apart = (size_t) (extent < 0 ? -extent : extent);
    return size >= 0 && size <= SIZE_MOST && true_extent >= 0 && true_extent <= EXTENT_MOST && apart <= EXTENT_MOST &&
           count * (size_t) size <= BYTES_MOST && count * apart + (size_t) true_extent <= SPAN_MOST;
}

static bool is_empty(MPI_Datatype type)
{
    int size;
    MPI_Type_size(type, &size);
    return 0 == size;
}

static MPI_Datatype random_type(void)
{
    MPI_Datatype type = random_base();
    for (int depth = pick(0, DEPTH_MOST); depth > 0; depth--) {
        MPI_Datatype before, larger;
        MPI_Type_dup(type, &before);
        larger = wrap(type);
        if (!is_small(larger, 1)) {
            MPI_Type_free(&larger);
            type = before;
            break;
        }
        MPI_Type_free(&before);
        type = larger;
        if (is_empty(type)) { /* Open MPI takes what has one in it for contiguous, whatever its extent is */
            break;
        }
    }
    return type;
}

/* ---- one case ---- */

typedef struct {
    MPI_Datatype type;
    size_t count, bytes;
    ptrdiff_t lo;     /* first byte of the elements, from the buffer's address */
    size_t span;      /* from there to the last */
    size_t *from;     /* of each packed byte, where it lies in the span */
    bool overlapping; /* some bytes are packed more than once: not to be received */
    gpusym_layout_t layout;
} case_t;

/* Packs by MPI: memory where each byte of the span says a part of its own place. Packed memory is at an odd address:
 * where both are aligned, Open MPI 5.0 takes each stride for a multiple of the basic type's size. */
static void find_places(case_t *c)
{
    unsigned char *memory = need(malloc(c->span + 1)), *room = need(malloc(c->bytes + 1));
    unsigned char *const packed = room + 1;
    unsigned char *seen = need(calloc(c->span + 1, 1));
    for (unsigned shift = 0; shift < 32; shift += 8) {
        int at = 0;
        for (size_t i = 0; i < c->span; i++) {
            memory[i] = (unsigned char) (i >> shift);
        }
        MPI_Pack((void *) ((uintptr_t) memory - (uintptr_t) c->lo), (int) c->count, c->type, packed, (int) c->bytes,
                 &at, MPI_COMM_SELF);
        for (size_t i = 0; i < c->bytes; i++) {
            c->from[i] |= (size_t) packed[i] << shift;
        }
    }
    for (size_t i = 0; i < c->bytes; i++) {
        c->overlapping = c->overlapping || seen[c->from[i]];
        seen[c->from[i]] = 1;
    }
    free(seen);
    free(room);
    free(memory);
}

static void case_start(case_t *c, MPI_Datatype type, size_t count)
{
    MPI_Aint lb, extent, true_lb, true_extent;
    int size;
    MPI_Type_size(type, &size);
    MPI_Type_get_extent(type, &lb, &extent);
    MPI_Type_get_true_extent(type, &true_lb, &true_extent);
    *c = (case_t){.type = type, .count = count, .bytes = count * (size_t) size};
    if (c->bytes > 0) {
        const ptrdiff_t last = (ptrdiff_t) (count - 1) * extent;
        c->lo = true_lb + (last < 0 ? last : 0);
        c->span = (size_t) (true_extent + (last < 0 ? -last : last));
    }
    c->from = need(calloc(c->bytes + 1, sizeof *c->from));
    find_places(c);
    gpusym_layout_find(count, type, &c->layout);
}

static void case_end(case_t *c)
{
    free(c->from);
}

static bool fail(const case_t *c, const char *what, size_t at)
{
    fprintf(stderr, "layout: FAIL: %s, at byte %zu of %zu; %zu elements, kind %d, %zu rows of %zu by %zu\n", what, at,
            c->bytes, c->count, (int) c->layout.kind, c->layout.rows, c->layout.width, c->layout.pitch);
    return false;
}

/* What the layout says of itself. */
static bool found_right(const case_t *c)
{
    const gpusym_layout_t *l = &c->layout;
    if (l->bytes != c->bytes || l->count != c->count || l->dtype != c->type || (c->bytes > 0 && l->lo != c->lo) ||
        l->span != c->span) {
        fprintf(stderr, "layout: from %td, %zu bytes from first to last; %td and %zu are due\n", l->lo, l->span, c->lo,
                c->span);
        return fail(c, "the layout has other bytes", 0);
    }
    if (GPUSYM_LAYOUT_RUNS == l->kind) {
        return true;
    }
    if (l->rows * l->width != c->bytes || (GPUSYM_LAYOUT_ROWS == l->kind && (l->pitch <= l->width || l->rows < 2))) {
        return fail(c, "the layout has other rows", 0);
    }
    for (size_t i = 0; i < c->bytes; i++) {
        if (c->from[i] != i / l->width * l->pitch + i % l->width) {
            return fail(c, "the layout has its rows elsewhere", i);
        }
    }
    return true;
}

typedef struct {
    const case_t *c;
    size_t at;      /* packed bytes so far */
    ptrdiff_t next; /* behind the last run */
} run_t;

/* 1: not the run that is due. */
static int take_run(void *arg, ptrdiff_t off, size_t bytes)
{
    run_t *r = arg;
    if (0 == bytes || r->at + bytes > r->c->bytes || (r->at > 0 && off == r->next)) {
        return 1;
    }
    for (size_t i = 0; i < bytes; i++) {
        if ((ptrdiff_t) r->c->from[r->at + i] + r->c->lo + 1000 != off + (ptrdiff_t) i) {
            return 1;
        }
    }
    r->at += bytes;
    r->next = off + (ptrdiff_t) bytes;
    return 0;
}

static bool runs_right(const case_t *c)
{
    run_t r = {.c = c};
    if (!gpusym_pieces_confirmed(c->type)) {
        return fail(c, "the convertor has other runs", 0);
    }
    return (0 == gpusym_layout_runs(&c->layout, 1000, take_run, &r) && r.at == c->bytes) || fail(c, "other runs", r.at);
}

/* ---- packing and unpacking ---- */

/* A buffer of some kind of memory, with GUARD bytes on either side. */
typedef struct {
    int kind;
    size_t size; /* of it all */
    unsigned char *mem;
} buffer_t;

static buffer_t buffer_make(int kind, size_t bytes)
{
    buffer_t b = {.kind = kind, .size = bytes + 2 * GUARD};
    b.mem = need(mem_alloc(kind, b.size));
    return b;
}

static void buffer_free(buffer_t *b)
{
    mem_free(b->kind, b->mem);
}

static unsigned char *make_image(size_t size)
{
    unsigned char *image = need(malloc(size));
    for (size_t i = 0; i < size; i++) {
        image[i] = (unsigned char) draw();
    }
    return image;
}

static bool holds(const case_t *c, const buffer_t *b, const unsigned char *image, const char *what)
{
    unsigned char *got = need(malloc(b->size));
    size_t i = 0;
    mem_read(got, b->mem, b->size);
    while (i < b->size && got[i] == image[i]) {
        i++;
    }
    free(got);
    return i == b->size || fail(c, what, i - GUARD);
}

enum way { NOW, QUEUED, ON_HOST, SHARED };

static int drain(gpusym_stream_t *stream, int rv)
{
    int idle;
    do {
        idle = dev.stream_poll(stream);
    } while (0 == idle);
    dev.stream_destroy(stream);
    return idle < 0 ? idle : rv;
}

/* Others that share a launch with a layout, SPARE_STEP bytes apart. */
enum { SPARES = 9, SPARE_BYTES = 33, SPARE_STEP = 64 };
static unsigned char *spare; /* their elements, and behind those what is packed */
static unsigned long shared; /* layouts that shared the only launch of a queue */

/* Packs all of a layout, or (back) unpacks it, with some others before it and behind it. */
static int move_shared(const gpusym_layout_t *l, void *buf, void *packed, bool back)
{
    gpusym_layout_queue_t q = {.back = back};
    const int n = (int) pick(0, SPARES), mine = (int) pick(0, n);
    gpusym_layout_t run;
    int rv = gpusym_lane_get(&dev, gpu, &q.lane), idle;

    if (GPUSYM_SUCCESS != rv) {
        return rv;
    }
    gpusym_lane_skip(q.lane); /* its words tell of this */
    gpusym_layout_find(SPARE_BYTES, MPI_BYTE, &run);
    for (int i = 0; GPUSYM_SUCCESS == rv && i <= n; i++) {
        unsigned char *at = spare + (i - (i > mine)) * SPARE_STEP;
        rv = i == mine ? gpusym_layout_queue_add(&q, l, buf, packed)
                       : gpusym_layout_queue_add(&q, &run, at, at + SPARES * SPARE_STEP);
    }
    rv = GPUSYM_SUCCESS == rv ? gpusym_layout_queue_end(&q) : rv;
    idle = gpusym_lane_await(q.lane);
    if (0 != q.words) {
        shared++;
        rv = gpusym_lane_parts_done(q.lane, q.words) ? rv : GPUSYM_ERR_LATE;
    }
    gpusym_lane_put(q.lane);
    return idle < 0 ? idle : rv;
}

static int pack_by(enum way way, const gpusym_layout_t *l, void *packed, const void *buf, size_t bytes)
{
    gpusym_stream_t *stream;
    if (NOW == way) {
        return gpusym_layout_pack(&dev, gpu, l, packed, buf, bytes);
    }
    if (ON_HOST == way) {
        return gpusym_layout_gather(l, buf, packed, bytes);
    }
    if (SHARED == way) {
        return move_shared(l, (void *) (uintptr_t) buf, packed, false);
    }
    const int rv = real_dev->stream_create(gpu, &stream);
    return GPUSYM_SUCCESS != rv ? rv
                                : drain(stream, gpusym_layout_pack_async(&dev, gpu, stream, l, packed, buf, bytes));
}

static int unpack_by(enum way way, const gpusym_layout_t *l, void *buf, const void *packed, size_t bytes)
{
    gpusym_stream_t *stream;
    if (NOW == way) {
        return gpusym_layout_unpack(&dev, gpu, l, buf, packed, bytes);
    }
    if (ON_HOST == way) {
        return gpusym_layout_scatter(l, buf, packed, bytes);
    }
    if (SHARED == way) {
        return move_shared(l, buf, (void *) (uintptr_t) packed, true);
    }
    const int rv = real_dev->stream_create(gpu, &stream);
    return GPUSYM_SUCCESS != rv ? rv
                                : drain(stream, gpusym_layout_unpack_async(&dev, gpu, stream, l, buf, packed, bytes));
}

/* Packs and unpacks the first `bytes` bytes between memory of two kinds; every byte of both is checked. bottom: the
 * datatype has the address in it. */
static bool moves_right(case_t *c, enum way way, int kind, int packed_kind, size_t bytes, bool bottom)
{
    buffer_t elements = buffer_make(kind, c->span), packed = buffer_make(packed_kind, c->bytes);
    unsigned char *memory = make_image(elements.size), *image = make_image(packed.size);
    void *buf = (void *) ((uintptr_t) elements.mem + GUARD - (uintptr_t) c->lo);
    gpusym_layout_t layout = c->layout;
    MPI_Datatype there = MPI_DATATYPE_NULL;
    bool right = true;

    if (bottom) {
        const MPI_Aint at = (MPI_Aint) (uintptr_t) buf;
        MPI_Datatype all;
        MPI_Type_contiguous((int) c->count, c->type, &all);
        MPI_Type_create_hindexed(1, (int[]){1}, &at, all, &there);
        MPI_Type_free(&all);
        MPI_Type_commit(&there);
        gpusym_layout_find(1, there, &layout);
        buf = MPI_BOTTOM;
    }
    mem_write(elements.mem, memory, elements.size);
    mem_write(packed.mem, image, packed.size);
    if (GPUSYM_SUCCESS != pack_by(way, &layout, packed.mem + GUARD, buf, bytes)) {
        right = fail(c, "pack fails", bytes);
    }
    for (size_t i = 0; i < bytes; i++) {
        image[GUARD + i] = memory[GUARD + c->from[i]];
    }
    right = right && holds(c, &elements, memory, "pack writes the elements") && holds(c, &packed, image, "packed");
    if (right && !c->overlapping) {
        for (size_t i = 0; i < bytes; i++) {
            image[GUARD + i] = (unsigned char) draw();
            memory[GUARD + c->from[i]] = image[GUARD + i];
        }
        mem_write(packed.mem, image, packed.size);
        if (GPUSYM_SUCCESS != unpack_by(way, &layout, buf, packed.mem + GUARD, bytes)) {
            right = fail(c, "unpack fails", bytes);
        }
        right =
            right && holds(c, &packed, image, "unpack writes packed memory") && holds(c, &elements, memory, "unpacked");
    }
    if (bottom) {
        MPI_Type_free(&there);
    }
    free(image);
    free(memory);
    buffer_free(&packed);
    buffer_free(&elements);
    return right;
}

static size_t random_part(const case_t *c)
{
    const size_t element = c->count > 0 ? c->bytes / c->count : 0;
    size_t n = (size_t) draw() % (c->bytes + 1);
    switch (pick(0, 4)) {
    case 0:
        return c->bytes;
    case 1: /* about the end of an element */
        n = element > 0 ? n / element * element + (size_t) pick(0, 2) : 0;
        return n > 0 && n - 1 <= c->bytes ? n - 1 : c->bytes;
    case 2:
        return n < 9 ? n : (size_t) pick(0, 9);
    default:
        return n;
    }
}

static const int device_kinds[] = {MEM_DEVICE, MEM_VMM, MEM_MANAGED, MEM_PIECES, MEM_ASYNC};

static int random_kind(void)
{
    const int kind = device_kinds[pick(0, 4)];
    return pick(0, 1) || !mem_have(kind) ? MEM_DEVICE : kind;
}

static bool random_case(void)
{
    static const int packed_kinds[] = {MEM_DEVICE, MEM_REGISTERED, MEM_HOST};
    MPI_Datatype type = random_type();
    size_t count = (size_t) (pick(0, 2) ? pick(0, 9) : pick(10, 300));
    case_t c;

    while (!is_small(type, count)) {
        count /= 2;
    }
    MPI_Type_commit(&type);
    case_start(&c, type, count);
    bool right = found_right(&c) && runs_right(&c);
    for (int i = 0; right && i < 3; i++) {
        right = moves_right(&c, NOW, random_kind(), packed_kinds[i], random_part(&c), 0 == pick(0, 3)) &&
                moves_right(&c, SHARED, random_kind(), MEM_DEVICE, c.bytes, 0 == pick(0, 3)) &&
                moves_right(&c, QUEUED, random_kind(), packed_kinds[pick(0, 1)], random_part(&c), false) &&
                moves_right(&c, ON_HOST, MEM_HOST, MEM_HOST, random_part(&c), 0 == pick(0, 3));
    }
    case_end(&c);
    MPI_Type_free(&type);
    return right;
}

/* ---- cases of which the way is known ---- */

/* The type, which is freed, in `count` elements, has this kind; to pack or to unpack takes one launch, or so many
 * copies at most where no kernel can be launched. */
static bool takes(MPI_Datatype type, size_t count, gpusym_layout_kind_t kind, long most)
{
    case_t c;
    MPI_Type_commit(&type);
    case_start(&c, type, count);
    bool right = found_right(&c) && runs_right(&c);
    if (right && kind != c.layout.kind) {
        right = fail(&c, "another kind is due", 0);
    }
    counted.launches = 0;
    right = right && moves_right(&c, QUEUED, MEM_DEVICE, MEM_DEVICE, c.bytes, false);
    if (right && counted.launches != (GPUSYM_LAYOUT_RUN == kind ? 0 : 2)) {
        fprintf(stderr, "layout: FAIL: %ld launches\n", counted.launches);
        right = false;
    }
    counted.copies = 0;
    counted.fail_launches = true;
    right = right && moves_right(&c, QUEUED, MEM_DEVICE, MEM_DEVICE, c.bytes, false);
    counted.fail_launches = false;
    if (right && counted.copies > 2 * most) {
        fprintf(stderr, "layout: FAIL: %ld copies, at most %ld are due\n", counted.copies, 2 * most);
        right = false;
    }
    case_end(&c);
    MPI_Type_free(&type);
    return right;
}

static MPI_Datatype make_struct(void)
{
    MPI_Datatype made, larger;
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 12}, (MPI_Datatype[]){MPI_DOUBLE, MPI_INT}, &made);
    MPI_Type_create_resized(made, 0, 24, &larger);
    MPI_Type_free(&made);
    return larger;
}

static MPI_Datatype make_vector(int count, int length, int stride)
{
    MPI_Datatype made;
    MPI_Type_vector(count, length, stride, MPI_INT, &made);
    return made;
}

static MPI_Datatype make_subarray(int dims)
{
    MPI_Datatype made;
    MPI_Type_create_subarray(dims, (int[]){7, 8, 9}, (int[]){5, 4, 3}, (int[]){1, 2, 3}, MPI_ORDER_C, MPI_FLOAT, &made);
    return made;
}

static MPI_Datatype make_flat_subarray(void)
{
    MPI_Datatype made;
    MPI_Type_create_subarray(3, (int[]){7, 8, 9}, (int[]){2, 4, 3}, (int[]){1, 2, 3}, MPI_ORDER_C, MPI_FLOAT, &made);
    return made;
}

/* n runs of an int each, of no regular distance. */
static MPI_Datatype make_irregular(int n)
{
    int *at = need(malloc((size_t) n * sizeof *at));
    MPI_Datatype made;
    for (int i = 0, next = 0; i < n; i++) {
        at[i] = next;
        next += 2 + (int) (draw() % 3);
    }
    MPI_Type_create_indexed_block(n, 1, at, MPI_INT, &made);
    free(at);
    return made;
}

static MPI_Datatype contiguous(int n, MPI_Datatype of)
{
    MPI_Datatype made;
    MPI_Type_contiguous(n, of, &made);
    MPI_Type_free(&of);
    return made;
}

static MPI_Datatype backwards(void)
{
    MPI_Datatype made;
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){4, 0}, (MPI_Datatype[]){MPI_INT, MPI_INT}, &made);
    return made;
}

static MPI_Datatype duplicate(MPI_Datatype of)
{
    MPI_Datatype made;
    MPI_Type_dup(of, &made);
    return made;
}

static void check_ways(check_t *t)
{
    check_result(t, takes(duplicate(MPI_INT), 0, GPUSYM_LAYOUT_RUN, 1));
    check_result(t, takes(duplicate(MPI_INT), 1000, GPUSYM_LAYOUT_RUN, 1));
    check_result(t, takes(contiguous(5, duplicate(MPI_DOUBLE)), 7, GPUSYM_LAYOUT_RUN, 1));
    check_result(t, takes(make_vector(3, 4, 4), 7, GPUSYM_LAYOUT_RUN, 1));
    check_result(t, takes(duplicate(MPI_DOUBLE_INT), 1, GPUSYM_LAYOUT_RUN, 1));
    check_result(t, takes(duplicate(MPI_DOUBLE_INT), 100, GPUSYM_LAYOUT_ROWS, 1));
    check_result(t, takes(make_vector(100, 3, 7), 1, GPUSYM_LAYOUT_ROWS, 1));
    check_result(t, takes(make_subarray(2), 1, GPUSYM_LAYOUT_ROWS, 1));
    check_result(t, takes(make_subarray(3), 1, GPUSYM_LAYOUT_RUNS, 5));     /* its planes, or its rows of all planes */
    check_result(t, takes(make_flat_subarray(), 1, GPUSYM_LAYOUT_RUNS, 2)); /* its planes */
    check_result(t, takes(make_vector(2, 3, 5), 2, GPUSYM_LAYOUT_RUNS, 2));
    check_result(t, takes(make_vector(2, 3, 5), 500, GPUSYM_LAYOUT_RUNS, 2)); /* its rows, of all elements each */
    check_result(t, takes(make_struct(), 1, GPUSYM_LAYOUT_RUNS, 2));
    check_result(t, takes(make_struct(), 500, GPUSYM_LAYOUT_RUNS, 2));
    check_result(t, takes(contiguous(500, make_struct()), 1, GPUSYM_LAYOUT_RUNS, 8)); /* Open MPI 6 unrolls loops */
    check_result(t, takes(backwards(), 1, GPUSYM_LAYOUT_RUNS, 2));
    check_result(t, takes(backwards(), 500, GPUSYM_LAYOUT_RUNS, 2));
    check_result(t, takes(make_irregular(300), 40, GPUSYM_LAYOUT_RUNS, 300));
}

/* What is kept of freed datatypes is freed: of so many there would be no room for all. */
static void check_freed(check_t *t)
{
    for (int i = 0; i < 60; i++) {
        MPI_Datatype type = make_irregular(1 << 17);
        case_t c = {.type = type};
        MPI_Type_commit(&type);
        gpusym_layout_find(1, type, &c.layout);
        unsigned char *mem = need(mem_alloc(MEM_DEVICE, c.layout.span));
        const bool by_gpu = gpusym_layout_by_gpu(&dev, gpu, &c.layout, mem - c.layout.lo);
        check_result(t, by_gpu || fail(&c, "no kernel packs it", 0));
        mem_free(MEM_DEVICE, mem);
        MPI_Type_free(&type);
    }
}

/* Counts that no 31 or 32 bits hold; only the first bytes are there. */
static bool many_right(MPI_Datatype type, size_t pitch, size_t width)
{
    const size_t count = ((size_t) 5 << 31) + 3, bytes = 1000, span = (bytes / width + 1) * pitch;
    gpusym_layout_t l;
    MPI_Type_commit(&type);
    gpusym_layout_find(count, type, &l);
    bool right = l.bytes == count * width && l.span == (count - 1) * pitch + width &&
                 (pitch == width || (l.rows == count && l.width == width && l.pitch == pitch));
    unsigned char *image = make_image(span), packed[1000];
    unsigned char *mem = need(mem_alloc(MEM_DEVICE, span));
    mem_write(mem, image, span);
    right = right && GPUSYM_SUCCESS == gpusym_layout_pack(&dev, gpu, &l, packed, mem, bytes);
    for (size_t i = 0; right && i < bytes; i++) {
        right = packed[i] == image[i / width * pitch + i % width];
    }
    if (!right) {
        fprintf(stderr, "layout: FAIL: %zu elements of %zu bytes, %zu apart\n", count, width, pitch);
    }
    mem_free(MEM_DEVICE, mem);
    free(image);
    MPI_Type_free(&type);
    return right;
}

static void check_many(check_t *t)
{
    MPI_Datatype apart;
    MPI_Type_create_resized(MPI_INT, 0, 24, &apart);
    check_result(t, many_right(duplicate(MPI_DOUBLE), 8, 8));
    check_result(t, many_right(apart, 24, 4));
}

/* copies: of gpusym_layout_pack to host memory, at most, with kernels or without. */
static bool large_right(MPI_Datatype type, size_t count, bool kernels, long copies)
{
    case_t c;
    MPI_Type_commit(&type);
    case_start(&c, type, count);
    buffer_t b = buffer_make(MEM_DEVICE, c.span);
    unsigned char *packed = need(malloc(c.bytes));
    counted.copies = 0;
    counted.fail_kernels = !kernels;
    bool right = GPUSYM_SUCCESS == gpusym_layout_pack(&dev, gpu, &c.layout, packed, b.mem + GUARD - c.lo, c.bytes) &&
                 counted.copies <= copies;
    counted.fail_kernels = false;
    right = right ? moves_right(&c, NOW, MEM_DEVICE, MEM_HOST, c.bytes - 3, false)
                  : fail(&c, "pack fails, or takes many copies", (size_t) counted.copies);
    free(packed);
    buffer_free(&b);
    case_end(&c);
    MPI_Type_free(&type);
    return right;
}

/* Larger than what is staged or packed on the host at a time. */
static void check_large(check_t *t)
{
    check_result(t, large_right(make_vector(5000, 300, 301), 1, false, 18));
    check_result(t, large_right(make_vector(15000, 300, 301), 1, false, 54)); /* than all chunks under way, too */
    check_result(t, large_right(make_irregular(3000), 400, false, 12));
    check_result(t, large_right(make_irregular(3000), 400, true, 1)); /* of the nodes */
}

/* Without streams and pinned memory, which only the first call of the process can lack. */
static void check_without(check_t *t)
{
    counted.fail_resources = true;
    check_result(t, large_right(make_vector(50, 3, 5), 2, true, 101)); /* and the nodes */
    check_result(t, large_right(make_irregular(300), 1, true, 3));     /* there and back, and the nodes */
    counted.fail_resources = false;
}

/* Elements of which the first `at` bytes from first to last are of one allocation, and the others of the next. */
static bool divided_right(MPI_Datatype type, size_t count, size_t at)
{
    case_t c;
    MPI_Type_commit(&type);
    case_start(&c, type, count);
    buffer_t elements = buffer_make(MEM_DEVICE, c.span), packed = buffer_make(MEM_DEVICE, c.bytes);
    unsigned char *memory = make_image(elements.size), *image = make_image(packed.size);
    void *buf = elements.mem + GUARD - c.lo;
    bool right = true;
    for (enum way way = NOW; right && way <= QUEUED; way++) {
        mem_write(elements.mem, memory, elements.size);
        mem_write(packed.mem, image, packed.size);
        counted.border = (uintptr_t) elements.mem + GUARD + at;
        right = (!gpusym_layout_together(&dev, &c.layout, buf) && !gpusym_layout_is_one(&dev, &c.layout, buf) &&
                 (GPUSYM_LAYOUT_RUN == c.layout.kind || !gpusym_layout_by_gpu(&dev, gpu, &c.layout, buf))) ||
                fail(&c, "one copy is to go over two allocations", at);
        if (right && GPUSYM_SUCCESS != pack_by(way, &c.layout, packed.mem + GUARD, buf, c.bytes)) {
            right = fail(&c, "pack fails between allocations", at);
        }
        counted.border = 0;
        for (size_t i = 0; i < c.bytes; i++) {
            image[GUARD + i] = memory[GUARD + c.from[i]];
        }
        right = right && holds(&c, &packed, image, "packed of two allocations");
        for (size_t i = 0; i < c.bytes; i++) {
            image[GUARD + i] = (unsigned char) draw();
            memory[GUARD + c.from[i]] = image[GUARD + i];
        }
        mem_write(packed.mem, image, packed.size);
        counted.border = (uintptr_t) elements.mem + GUARD + at;
        if (right && GPUSYM_SUCCESS != unpack_by(way, &c.layout, buf, packed.mem + GUARD, c.bytes)) {
            right = fail(&c, "unpack fails between allocations", at);
        }
        counted.border = 0;
        right = right && holds(&c, &elements, memory, "unpacked to two allocations");
    }
    free(memory);
    free(image);
    buffer_free(&packed);
    buffer_free(&elements);
    case_end(&c);
    MPI_Type_free(&type);
    return right;
}

/* Between rows, in a row, in a gap, at the first row and at the last; in a run. */
static void check_divided(check_t *t)
{
    for (size_t at = 4; at < 40; at += 4) {
        check_result(t, divided_right(contiguous(5, duplicate(MPI_INT)), 2, at));
    }
    check_result(t, divided_right(make_vector(2, 600, 1000), 1, 2400));
    check_result(t, divided_right(make_vector(2, 600, 1000), 1, 3000));
    check_result(t, divided_right(make_vector(2, 600, 1000), 1, 4000));
    check_result(t, divided_right(make_vector(2, 600, 1000), 1, 1200));
    check_result(t, divided_right(make_vector(2, 600, 1000), 1, 6396));
    for (size_t at = 4; at < 320; at += 4) {
        check_result(t, divided_right(make_vector(8, 3, 11), 1, at));
        check_result(t, divided_right(make_irregular(30), 3, at));
        check_result(t, divided_right(make_struct(), 14, at));
    }
}

/* Arrays of 64 ints, each in a memory of its own; by_address: MPI_BOTTOM, not the first one, is passed. */
static bool where_right(int n, void *const arrays[], bool by_address, int kind, const void *of)
{
    const int lengths[] = {64, 48, 32, 16};
    MPI_Aint at[4];
    MPI_Datatype type;
    gpusym_layout_t l;
    gpusym_mem_t mem, due;
    for (int i = 0; i < n; i++) {
        MPI_Get_address(arrays[i], &at[i]);
        at[i] -= by_address ? 0 : (MPI_Aint) arrays[0];
    }
    MPI_Type_create_hindexed(n, lengths, at, MPI_INT, &type);
    MPI_Type_commit(&type);
    gpusym_layout_find(1, type, &l);
    gpusym_layout_where(&dev, &l, by_address ? MPI_BOTTOM : arrays[0], &mem);
    real_dev->query(of, &due);
    MPI_Type_free(&type);
    if ((int) mem.kind != kind || mem.id != due.id) {
        fprintf(stderr, "layout: FAIL: memory of kind %d is due, there is %d\n", kind, (int) mem.kind);
        return false;
    }
    return true;
}

/* How often the device is asked about elements in host memory. */
static bool asked_right(MPI_Datatype type, size_t count, const void *buf, long most)
{
    gpusym_layout_t l;
    gpusym_mem_t mem;
    MPI_Type_commit(&type);
    gpusym_layout_find(count, type, &l);
    counted.queries = 0;
    gpusym_layout_where(&dev, &l, buf, &mem);
    MPI_Type_free(&type);
    if (GPUSYM_MEM_HOST != mem.kind || counted.queries > most) {
        fprintf(stderr, "layout: FAIL: %ld queries, at most %ld are due\n", counted.queries, most);
        return false;
    }
    return true;
}

static void check_where(check_t *t)
{
    enum { SIZE = 1 << 20 };
    int on_stack[64];
    void *heap = need(malloc(256)), *large = need(malloc(SIZE)); /* a mapping */
    void *first = need(mem_alloc(MEM_DEVICE, 256)), *second = need(mem_alloc(MEM_DEVICE, 256));
    void *managed = need(mem_alloc(MEM_MANAGED, 256));
    for (int i = 0; i < 2; i++) {
        const bool by_address = 1 == i;
        check_result(t, where_right(1, (void *[]){heap}, by_address, GPUSYM_MEM_HOST, heap));
        check_result(t, where_right(2, (void *[]){heap, on_stack}, by_address, GPUSYM_MEM_HOST, heap));
        check_result(t, where_right(2, (void *[]){first, second}, by_address, GPUSYM_MEM_DEVICE,
                                    first < second ? first : second));
        check_result(t, where_right(2, (void *[]){heap, first}, by_address, GPUSYM_MEM_DEVICE, first));
        check_result(t, where_right(2, (void *[]){first, on_stack}, by_address, GPUSYM_MEM_DEVICE, first));
        check_result(t, where_right(3, (void *[]){heap, first, on_stack}, by_address, GPUSYM_MEM_DEVICE, first));
        check_result(t, where_right(3, (void *[]){on_stack, heap, first}, by_address, GPUSYM_MEM_DEVICE, first));
        check_result(t, where_right(4, (void *[]){heap, large, first, on_stack}, by_address, GPUSYM_MEM_DEVICE, first));
        check_result(t, where_right(3, (void *[]){heap, managed, on_stack}, by_address, GPUSYM_MEM_MANAGED, managed));
        check_result(t, where_right(3, (void *[]){managed, first, heap}, by_address, GPUSYM_MEM_DEVICE, first));
    }
    check_result(t, asked_right(duplicate(MPI_INT), 1000, large, 1));
    check_result(t, asked_right(make_vector(100, 3, 2000), 1, large, 2));
    check_result(t, asked_right(make_irregular(1000), 1, large, 6)); /* both ends, and its pages */
    check_result(t, asked_right(make_struct(), 10000, large, 3));
    mem_free(MEM_MANAGED, managed);
    mem_free(MEM_DEVICE, second);
    mem_free(MEM_DEVICE, first);
    free(large);
    free(heap);
}

/* An error of the device comes back, and the next call is right. */
static bool error_right(int nth)
{
    MPI_Datatype type = make_subarray(3);
    case_t c;
    char packed[1000];
    MPI_Type_commit(&type);
    case_start(&c, type, 1);
    buffer_t b = buffer_make(MEM_DEVICE, c.span);
    counted.fail_kernels = true;
    counted.fail_copy = nth;
    void *buf = b.mem + GUARD - c.lo;
    bool right = GPUSYM_ERR == gpusym_layout_pack(&dev, gpu, &c.layout, packed, buf, c.bytes);
    counted.fail_copy = nth;
    right = right && GPUSYM_ERR == gpusym_layout_unpack(&dev, gpu, &c.layout, buf, packed, c.bytes);
    counted.fail_copy = 0;
    counted.fail_kernels = false;
    right = right ? moves_right(&c, NOW, MEM_DEVICE, MEM_HOST, c.bytes, false) : fail(&c, "no error comes back", 0);
    buffer_free(&b);
    case_end(&c);
    MPI_Type_free(&type);
    return right;
}

int main(int argc, char **argv)
{
    check_t t;
    check_init(&argc, &argv, "layout", MPI_THREAD_SINGLE);
    state = check_seed();
    const uint64_t n = check_number("--n", 400);
    check_arguments_end(USAGE);
    device_open();
    check_start(&t, "layout", MPI_COMM_WORLD);
    check_without(&t);
    check_ways(&t);
    check_many(&t);
    check_freed(&t);
    check_large(&t);
    check_divided(&t);
    check_where(&t);
    check_result(&t, error_right(1));
    check_result(&t, error_right(4));
    spare = need(mem_alloc(MEM_DEVICE, 2 * SPARES * SPARE_STEP));
    for (uint64_t i = 0; i < n; i++) {
        check_result(&t, random_case());
    }
    mem_free(MEM_DEVICE, spare);
    if (n >= 100 && shared < n) { /* of 6 n; the others have no box, or several launches */
        printf("layout: only %lu layouts have shared a launch\n", shared);
        check_result(&t, false);
    }
    const long failed = check_end(&t);
    check_print("layout", t.passed, t.failed);
    return check_fini(failed);
}
