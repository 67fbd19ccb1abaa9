/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Packing by a kernel: see pack.h.
 */
#include "mca/common/gpusym/exec/pack.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/alloc.h"
#include "mca/common/gpusym/shm/arena.h"
#include "tuning/copy.h"
#include "tuning/pack.h"

/* Bits of a digit by which nodes are sorted. */
#define DIGIT_BITS 11u
#define DIGITS (1u << DIGIT_BITS)

/* GPU memory for the nodes of several datatypes: the device allocates no less. */
#define SLAB_UNIT ((size_t) 2 << 20)
#define SLAB_ALIGN 256u
typedef struct slab {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
    void *base;
    size_t bytes;
    gpusym_arena_t *arena;
    unsigned users; /* ranges */
    struct slab *next;
} slab_t;

/* Nodes in the memory of a GPU. */
typedef struct copy {
    slab_t *slab;
    uint64_t off;
    struct copy *next;
} copy_t;

struct gpusym_nodes {
    gpusym_node_t *node; /* [n], arranged; those of the host */
    size_t n;
    enum gpusym_pack_form form;
    uint64_t low;                 /* all displacements, strides and lengths, by bitwise or */
    uint64_t copies, rows, bytes; /* of the nodes that they were made of */
    gpusym_box_t box;             /* of one element; bytes 0: it has none */
    uint64_t planes;              /* of that box, of the last distance; 1: it has no such */
    copy_t *copy;                 /* under the lock; read without it, the first is the last made */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* covers all nodes' copies, and: */
static slab_t *slabs;
static size_t bytes_used; /* of GPU memory */

/* ---- arranging ---- */

/* Counts what nodes have in all; whether they are sticks, which are alike but for where they lie. */
static bool measure(gpusym_nodes_t *t, const gpusym_node_t *node, size_t n)
{
    bool alike = node->count >= GPUSYM_TILE_ROWS_MIN && (4 == node->bytes || 8 == node->bytes || 16 == node->bytes);
    for (size_t i = 0; i < n; i++) {
        t->copies += node[i].stride < 0 ? node[i].count : 1; /* a copy engine takes no rows backwards */
        t->rows += node[i].count;
        t->bytes += (uint64_t) node[i].count * node[i].bytes;
        t->low |= (uint64_t) node[i].disp | (uint64_t) node[i].stride | node[i].bytes | node[i].packed;
        alike = alike && node[i].count == node->count && node[i].bytes == node->bytes && node[i].stride == node->stride;
    }
    return alike && 0 == (t->low & (node->bytes - 1));
}

/* Whether a distance suits a box. */
static bool fits_box(int64_t stride, uint64_t count)
{
    return count <= UINT32_MAX && (1 == count || (0 < stride && stride <= (int64_t) UINT32_MAX));
}

/* Finds the box of nodes that are alike: those of a plane follow each other at one distance, and the planes at
 * another. */
static void find_box(gpusym_nodes_t *t, const gpusym_node_t *node, size_t n)
{
    size_t plane = 1;
    const int64_t step = n > 1 ? node[1].disp - node->disp : 0;
    while (plane < n && node[plane].disp - node[plane - 1].disp == step) {
        plane++;
    }
    const uint64_t planes = n / plane;
    const int64_t far = planes > 1 ? node[plane].disp - node->disp : 0;
    if (0 != n % plane || !fits_box(node->stride, node->count) || !fits_box(step, plane) || !fits_box(far, planes)) {
        return;
    }
    for (size_t i = 1; i < n; i++) {
        if (node[i].count != node->count || node[i].bytes != node->bytes || node[i].stride != node->stride ||
            node[i].disp != node->disp + (int64_t) (i / plane) * far + (int64_t) (i % plane) * step) {
            return;
        }
    }
    t->planes = planes;
    t->box = (gpusym_box_t){node->bytes,
                            {node->count, (uint32_t) plane},
                            {1 == node->count ? 0 : (uint32_t) node->stride, (uint32_t) step, (uint32_t) far}};
}

bool gpusym_nodes_box(const gpusym_nodes_t *t, uint64_t count, ptrdiff_t extent, gpusym_box_t *box)
{
    *box = t->box;
    if (1 != count && (1 != t->planes || !fits_box(extent, count))) {
        return false;
    }
    if (1 != count) {
        box->stride[2] = (uint32_t) extent;
    }
    return 0 != box->bytes;
}

static bool is_sorted(const gpusym_node_t *node, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (node[i].disp < node[i - 1].disp) {
            return false;
        }
    }
    return true;
}

/* One pass of a radix sort by displacement: by the digit that begins at bit `shift` of the distance from `lowest`. */
static void sort_digit(const gpusym_node_t *from, gpusym_node_t *to, size_t n, int64_t lowest, unsigned shift)
{
    size_t start[DIGITS] = {0}, at = 0;
    for (size_t i = 0; i < n; i++) {
        start[(uint64_t) (from[i].disp - lowest) >> shift & (DIGITS - 1)]++;
    }
    for (size_t d = 0; d < DIGITS; d++) {
        const size_t count = start[d];
        start[d] = at;
        at += count;
    }
    for (size_t i = 0; i < n; i++) {
        to[start[(uint64_t) (from[i].disp - lowest) >> shift & (DIGITS - 1)]++] = from[i];
    }
}

/* Sorts nodes by displacement. 32,768 in 0.3 ms; qsort takes 3. False: no memory. */
static bool sort(gpusym_node_t **node, size_t n)
{
    gpusym_node_t *other;
    int64_t lowest = (*node)->disp, highest = lowest;
    if (is_sorted(*node, n)) {
        return true;
    }
    other = malloc(n * sizeof *other);
    if (NULL == other) {
        return false;
    }
    for (size_t i = 1; i < n; i++) {
        lowest = (*node)[i].disp < lowest ? (*node)[i].disp : lowest;
        highest = (*node)[i].disp > highest ? (*node)[i].disp : highest;
    }
    for (unsigned shift = 0; shift < 64 && 0 != (uint64_t) (highest - lowest) >> shift; shift += DIGIT_BITS) {
        gpusym_node_t *sorted = other;
        sort_digit(*node, sorted, n, lowest, shift);
        other = *node;
        *node = sorted;
    }
    free(other);
    return true;
}

/* Cuts a node into pieces: of whole rows, or of parts of one. Returns how many they are; to: where they go, or NULL. */
static size_t cut(const gpusym_node_t *node, uint64_t piece, gpusym_node_t *to)
{
    const uint64_t rows = node->bytes < piece ? piece / node->bytes : 1;
    const uint64_t width = node->bytes < piece ? node->bytes : piece;
    size_t n = 0;
    for (uint64_t row = 0; row < node->count; row += rows) {
        for (uint64_t at = 0; at < node->bytes; at += width, n++) {
            if (NULL != to) {
                to[n] = (gpusym_node_t){
                    .disp = node->disp + (int64_t) row * node->stride + (int64_t) at,
                    .stride = node->stride,
                    .count = (uint32_t) (rows < node->count - row ? rows : node->count - row),
                    .bytes = (uint32_t) (width < node->bytes - at ? width : node->bytes - at),
                    .packed = node->packed + row * node->bytes + at,
                };
            }
        }
    }
    return n;
}

static bool cut_all(gpusym_nodes_t *t, const gpusym_node_t *node, size_t n)
{
    const uint64_t piece = gpusym_tuning_pack_piece(n, t->bytes);
    for (size_t i = 0; i < n; i++) {
        t->n += cut(&node[i], piece, NULL);
    }
    t->node = malloc(t->n * sizeof *t->node);
    if (NULL == t->node) {
        return false;
    }
    t->n = 0;
    for (size_t i = 0; i < n; i++) {
        t->n += cut(&node[i], piece, t->node + t->n);
    }
    return true;
}

static bool keep_sticks(gpusym_nodes_t *t, const gpusym_node_t *node, size_t n)
{
    t->n = n;
    t->node = malloc(n * sizeof *node);
    if (NULL == t->node) {
        return false;
    }
    memcpy(t->node, node, n * sizeof *node);
    return sort(&t->node, n);
}

int gpusym_nodes_make(const gpusym_node_t *nodes, size_t n, gpusym_nodes_t **made)
{
    gpusym_nodes_t *t = calloc(1, sizeof *t);
    bool arranged = false;
    if (NULL != t) {
        t->form = measure(t, nodes, n) ? GPUSYM_PACK_STICKS : GPUSYM_PACK_PIECES;
        find_box(t, nodes, n);
        arranged = GPUSYM_PACK_STICKS == t->form ? keep_sticks(t, nodes, n) : cut_all(t, nodes, n);
    }
    if (!arranged) {
        gpusym_log_no_memory("the nodes of a datatype");
        gpusym_nodes_free(t);
        return GPUSYM_ERR_NO_MEMORY;
    }
    *made = t;
    return GPUSYM_SUCCESS;
}

void gpusym_nodes_count(const gpusym_nodes_t *t, uint64_t *copies, uint64_t *rows, uint64_t *bytes)
{
    *copies = t->copies;
    *rows = t->rows;
    *bytes = t->bytes;
}

/* ---- GPU memory ---- */

/* With the lock held. NULL: none has room for that, and there is none for another one; *rc says why. */
static slab_t *make_slab(const gpusym_device_t *dev, gpusym_gpu_t *gpu, size_t bytes, int *rc)
{
    const size_t whole = (bytes + SLAB_UNIT - 1) / SLAB_UNIT * SLAB_UNIT;
    slab_t *slab = calloc(1, sizeof *slab);
    *rc = GPUSYM_ERR_NOT_AVAILABLE;
    if (bytes_used + whole > GPUSYM_NODES_BYTES_MAX) {
        GPUSYM_LOG(2, "copies pack and unpack a datatype: the memory for datatypes is full");
        goto free_slab;
    }
    *rc = GPUSYM_ERR_NO_MEMORY;
    if (NULL == slab || NULL == (slab->arena = gpusym_arena_create(whole, SLAB_ALIGN))) {
        gpusym_log_no_memory("the nodes of a datatype");
        goto free_slab;
    }
    *rc = gpusym_mem_alloc(dev, gpu, whole, &slab->base);
    if (GPUSYM_SUCCESS != *rc) {
        goto destroy_arena;
    }
    slab->dev = dev;
    slab->gpu = gpu;
    slab->bytes = whole;
    slab->next = slabs;
    slabs = slab;
    bytes_used += whole;
    return slab;

destroy_arena:
    gpusym_arena_destroy(slab->arena);
free_slab:
    free(slab);
    return NULL;
}

/* Takes a range of GPU memory. With the lock held. */
static int take_range(const gpusym_device_t *dev, gpusym_gpu_t *gpu, size_t bytes, copy_t *copy)
{
    slab_t *slab = slabs;
    int rc = GPUSYM_SUCCESS;
    while (NULL != slab && (slab->gpu != gpu || slab->dev != dev ||
                            GPUSYM_SUCCESS != gpusym_arena_alloc(slab->arena, bytes, &copy->off))) {
        slab = slab->next;
    }
    if (NULL == slab) {
        slab = make_slab(dev, gpu, bytes, &rc);
        if (NULL == slab) {
            return rc;
        }
        (void) gpusym_arena_alloc(slab->arena, bytes, &copy->off); /* it is empty */
    }
    slab->users++;
    copy->slab = slab;
    return GPUSYM_SUCCESS;
}

/* With the lock held. */
static void give_range(const copy_t *copy)
{
    slab_t *slab = copy->slab, **link = &slabs;
    (void) gpusym_arena_free(slab->arena, copy->off);
    if (0 != --slab->users) {
        return;
    }
    while (*link != slab) {
        link = &(*link)->next;
    }
    *link = slab->next;
    bytes_used -= slab->bytes;
    if (slab->dev->gpu_alive(slab->gpu)) {
        (void) slab->dev->mem_free(slab->gpu, slab->base);
    }
    gpusym_arena_destroy(slab->arena);
    free(slab);
}

/* The nodes in the memory of a GPU; NULL: they are not there. */
static const copy_t *find_copy(const gpusym_nodes_t *t, const gpusym_device_t *dev, const gpusym_gpu_t *gpu)
{
    const copy_t *copy = __atomic_load_n(&t->copy, __ATOMIC_ACQUIRE);
    while (NULL != copy && (copy->slab->gpu != gpu || copy->slab->dev != dev)) {
        copy = copy->next;
    }
    return copy;
}

static void *copy_address(const copy_t *copy)
{
    return (char *) copy->slab->base + copy->off;
}

/* With the lock held. */
static int make_copy(gpusym_nodes_t *t, const gpusym_device_t *dev, gpusym_gpu_t *gpu)
{
    const size_t bytes = t->n * sizeof *t->node;
    const char *why = "";
    if (GPUSYM_SUCCESS != dev->kernels_load(gpu, &why)) {
        GPUSYM_LOG(2, "copies pack and unpack a datatype of %zu nodes: %s", t->n, why);
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    copy_t *copy = calloc(1, sizeof *copy);
    if (NULL == copy) {
        gpusym_log_no_memory("the nodes of a datatype");
        return GPUSYM_ERR_NO_MEMORY;
    }
    int rc = take_range(dev, gpu, bytes, copy);
    if (GPUSYM_SUCCESS != rc) {
        free(copy);
        return rc;
    }
    rc = dev->copy(gpu, copy_address(copy), t->node, bytes);
    if (GPUSYM_SUCCESS != rc) {
        give_range(copy);
        free(copy);
        return rc;
    }
    copy->next = t->copy;
    __atomic_store_n(&t->copy, copy, __ATOMIC_RELEASE);
    return rc;
}

int gpusym_nodes_upload(gpusym_nodes_t *t, const gpusym_device_t *dev, gpusym_gpu_t *gpu)
{
    int rc = GPUSYM_SUCCESS;
    if (NULL == find_copy(t, dev, gpu)) {
        pthread_mutex_lock(&lock);
        if (NULL == find_copy(t, dev, gpu)) {
            rc = make_copy(t, dev, gpu);
        }
        pthread_mutex_unlock(&lock);
    }
    return rc;
}

void gpusym_nodes_free(gpusym_nodes_t *t)
{
    if (NULL == t) {
        return;
    }
    pthread_mutex_lock(&lock);
    while (NULL != t->copy) {
        copy_t *copy = t->copy;
        t->copy = copy->next;
        give_range(copy);
        free(copy);
    }
    pthread_mutex_unlock(&lock);
    free(t->node);
    free(t);
}

/* ---- launch ---- */

/* Sets what depends on the nodes. Returns for how many threads there are pieces. */
static uint64_t set_nodes(gpusym_pack_t *p, const gpusym_nodes_t *t, const gpusym_node_t *there, uint64_t addresses)
{
    const gpusym_node_t *first = t->node;
    p->nodes = there;
    p->nnodes = t->n;
    p->form = (uint32_t) t->form;
    if (GPUSYM_PACK_STICKS == t->form && 0 == (addresses & (first->bytes - 1))) {
        p->node = *first;
        p->unit = first->bytes;
        return 0;
    }
    p->form = GPUSYM_PACK_PIECES;
    p->lanes = gpusym_tuning_pack_lanes(t->bytes / t->n);
    return p->nnodes * p->elements * p->lanes;
}

int gpusym_pack_queue(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_stream_t *stream, const gpusym_nodes_t *t,
                      const gpusym_pack_call_t *call)
{
    const copy_t *copy = NULL != t ? find_copy(t, dev, gpu) : NULL;
    gpusym_work_t w = {.nranks = 1, .nthreads = gpusym_tuning_pack_threads()};
    gpusym_pack_t *p = &w.pack;
    const char *base = (const char *) ((uintptr_t) call->user + (uintptr_t) call->lo), *why = "";
    gpusym_gpu_info_t info;
    uint64_t pieces = 0;

    if (NULL == t ? GPUSYM_SUCCESS != dev->kernels_load(gpu, &why) : NULL == copy) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    *p = (gpusym_pack_t){.elements = 1, .lo = call->lo, .from = call->from, .to = call->to, .unpack = call->unpack};
    if (NULL == t) {
        p->form = GPUSYM_PACK_ROWS;
        p->node = call->rows;
    } else { /* from the element on in which the range begins */
        const uint64_t first = call->from / call->size;
        p->elements = (call->to - 1) / call->size - first + 1;
        p->extent = call->extent;
        p->size = call->size;
        p->lo -= (int64_t) first * call->extent;
        p->from -= first * call->size;
        p->to -= first * call->size;
        pieces = set_nodes(p, t, copy_address(copy),
                           (uintptr_t) call->user | (uintptr_t) call->packed | (uint64_t) call->extent | call->size |
                               call->from | call->to);
    }
    w.in = call->unpack ? call->packed : base;
    w.out = (void *) (uintptr_t) (call->unpack ? base : call->packed);
    dev->gpu_info(gpu, &info);
    w.nblocks = gpusym_tuning_pack_blocks(call->to - call->from, pieces, (uint32_t) info.sm_count);
    return dev->launch(stream, GPUSYM_F_PACK, &w);
}

uint16_t gpusym_box_unit(const gpusym_box_run_t *box)
{
    uint32_t low = (uint32_t) (uintptr_t) box->in | (uint32_t) (uintptr_t) box->out | box->bytes | box->from.bytes |
                   box->to.bytes | GPUSYM_PACK;
    for (unsigned d = 0; d < 3; d++) {
        low |= box->from.stride[d] | box->to.stride[d];
    }
    return (uint16_t) (low & (0 - low));
}

void gpusym_boxes_plan(gpusym_work_t *w, const gpusym_box_run_t *box, uint32_t n)
{
    const uint32_t share = GPUSYM_COPY_BLOCKS / n;
    w->rows = (gpusym_rows_t){.runs = n};
    w->nblocks = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t wanted = gpusym_tuning_box_blocks(box[i].bytes), blocks = wanted < share ? wanted : share;
        w->box[i] = box[i];
        w->box[i].first = (uint8_t) w->nblocks;
        w->box[i].blocks = (uint8_t) blocks;
        w->box[i].unit = gpusym_box_unit(&box[i]);
        w->nblocks += blocks;
    }
}

int gpusym_boxes_queue(gpusym_lane_t *lane, const gpusym_box_run_t *box, uint32_t n, uint32_t *blocks)
{
    const char *why = "";
    gpusym_work_t w;
    if (GPUSYM_SUCCESS != lane->dev->kernels_load(lane->gpu, &why)) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    memset(&w, 0, offsetof(gpusym_work_t, send)); /* the kernel takes no more of it */
    w.nranks = 1;
    w.nthreads = gpusym_tuning_copy_threads();
    w.done = lane->line->part;
    w.done_seq = lane->seq;
    gpusym_boxes_plan(&w, box, n);
    *blocks = w.nblocks;
    return gpusym_lane_more(lane, GPUSYM_F_BOXES, &w);
}
