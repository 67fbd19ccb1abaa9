/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Scratch memory: see scratch.h.
 */
#include "mca/common/gpusym/memory/scratch.h"

#include <pthread.h>
#include <stdlib.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/alloc.h"
#include "mca/common/gpusym/shm/arena.h"

/* Buffers are multiples of this, in bytes: blocks of the driver's. */
#define UNIT (2ull << 20)
/* Short buffers are parts of slabs of this size, of which a process has so many at most: many messages are under way at
 * a time, and peers map few allocations. */
#define SLAB (8ull << 20)
#define SLABS 32u
#define PART_MAX (SLAB / 2)

uint64_t gpusym_scratch_max = 256ull << 20;

typedef struct {
    gpusym_gpu_t *gpu; /* NULL: there is none */
    char *p;
    uint64_t id; /* of the allocation; 0: not known */
    gpusym_arena_t *arena;
    unsigned parts; /* lent */
} slab_t;

typedef struct buffer {
    gpusym_gpu_t *gpu;
    void *p;
    uint64_t bytes;
    slab_t *slab; /* that it is part of; NULL: an allocation of its own */
    struct buffer *next;
} buffer_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static buffer_t *lent, **lent_last = &lent; /* under the lock; the oldest first, which mostly returns first */
static buffer_t *kept;                      /* under the lock; at most one */
static slab_t slabs[SLABS];                 /* under the lock */

/* ---- slabs ---- */

static void free_slab(const gpusym_device_t *dev, slab_t *slab)
{
    if (NULL != slab->gpu) {
        dev->mem_free(slab->gpu, slab->p);
        gpusym_arena_destroy(slab->arena);
        *slab = (slab_t){.gpu = NULL};
    }
}

static void free_idle_slabs(const gpusym_device_t *dev)
{
    for (unsigned i = 0; i < SLABS; i++) {
        if (0 == slabs[i].parts) {
            free_slab(dev, &slabs[i]);
        }
    }
}

static bool make_slab(const gpusym_device_t *dev, gpusym_gpu_t *gpu, slab_t *slab)
{
    void *p;
    slab->arena = gpusym_arena_create(SLAB, 256);
    if (NULL == slab->arena || GPUSYM_SUCCESS != gpusym_mem_alloc(dev, gpu, SLAB, &p)) {
        gpusym_arena_destroy(slab->arena);
        slab->arena = NULL;
        return false;
    }
    gpusym_range_t range;
    slab->gpu = gpu;
    slab->p = p;
    slab->id = GPUSYM_SUCCESS == dev->mem_range(p, &range) ? range.id : 0;
    return true;
}

/* Makes a buffer part of a slab. False: none has room. */
static bool take_part(const gpusym_device_t *dev, buffer_t *buffer)
{
    uint64_t off;
    for (unsigned i = 0; i < SLABS && (i + 1) * SLAB <= gpusym_scratch_max; i++) {
        slab_t *slab = &slabs[i];
        if (NULL == slab->gpu && !make_slab(dev, buffer->gpu, slab)) {
            return false;
        }
        if (slab->gpu == buffer->gpu && GPUSYM_SUCCESS == gpusym_arena_alloc(slab->arena, buffer->bytes, &off)) {
            slab->parts++;
            buffer->slab = slab;
            buffer->p = slab->p + off;
            return true;
        }
    }
    return false;
}

static void give_part(buffer_t *buffer)
{
    slab_t *slab = buffer->slab;
    (void) gpusym_arena_free(slab->arena, (uint64_t) ((char *) buffer->p - slab->p));
    slab->parts--;
    free(buffer);
}

/* ---- buffers of their own ---- */

/* buffer: NULL is allowed. */
static void free_buffer(const gpusym_device_t *dev, buffer_t *buffer)
{
    if (NULL != buffer) {
        dev->mem_free(buffer->gpu, buffer->p);
        free(buffer);
    }
}

static int allocate(const gpusym_device_t *dev, buffer_t *buffer)
{
    buffer->bytes = (buffer->bytes + UNIT - 1) / UNIT * UNIT;
    int rc = gpusym_mem_alloc(dev, buffer->gpu, buffer->bytes, &buffer->p);
    if (GPUSYM_ERR_NO_MEMORY == rc) { /* what is kept may be in the way */
        free_buffer(dev, kept);
        kept = NULL;
        free_idle_slabs(dev);
        rc = gpusym_mem_alloc(dev, buffer->gpu, buffer->bytes, &buffer->p);
    }
    return rc;
}

/* Gets the buffer that is kept, if it serves. */
static buffer_t *take_kept(const gpusym_gpu_t *gpu, uint64_t bytes)
{
    buffer_t *buffer = kept;
    if (NULL == buffer || buffer->gpu != gpu || buffer->bytes < bytes) {
        return NULL;
    }
    kept = NULL;
    return buffer;
}

/* ---- both ---- */

static int get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, bool part, buffer_t **made)
{
    buffer_t *buffer = bytes > PART_MAX && !part ? take_kept(gpu, bytes) : NULL;
    if (NULL != buffer) {
        *made = buffer;
        return GPUSYM_SUCCESS;
    }
    buffer = calloc(1, sizeof *buffer);
    if (NULL == buffer) {
        gpusym_log_no_memory("scratch memory of a GPU");
        return GPUSYM_ERR_NO_MEMORY;
    }
    buffer->gpu = gpu;
    buffer->bytes = bytes;
    const bool taken = 0 != bytes && bytes <= PART_MAX && take_part(dev, buffer);
    const int rc = taken ? GPUSYM_SUCCESS : part ? GPUSYM_ERR_NOT_AVAILABLE : allocate(dev, buffer);
    if (GPUSYM_SUCCESS != rc) {
        free(buffer);
        return rc;
    }
    *made = buffer;
    return rc;
}

static int lend(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, bool part, void **p)
{
    buffer_t *buffer;
    pthread_mutex_lock(&lock);
    const int rc = get(dev, gpu, bytes, part, &buffer);
    if (GPUSYM_SUCCESS == rc) {
        buffer->next = NULL;
        *lent_last = buffer;
        lent_last = &buffer->next;
        *p = buffer->p;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int gpusym_scratch_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p)
{
    return lend(dev, gpu, bytes, false, p);
}

int gpusym_scratch_get_part(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p)
{
    return lend(dev, gpu, bytes, true, p);
}

uint64_t gpusym_scratch_id(const void *p)
{
    const uintptr_t at = (uintptr_t) p;
    uint64_t id = 0;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < SLABS && 0 == id; i++) {
        const uintptr_t begin = (uintptr_t) slabs[i].p;
        id = NULL != slabs[i].gpu && at >= begin && at < begin + SLAB ? slabs[i].id : 0;
    }
    pthread_mutex_unlock(&lock);
    return id;
}

/* Keeps a buffer in place of a smaller one, or frees it. */
static void keep(const gpusym_device_t *dev, buffer_t *buffer)
{
    if (buffer->bytes <= gpusym_scratch_max && (NULL == kept || kept->bytes < buffer->bytes)) {
        buffer_t *smaller = kept;
        kept = buffer;
        buffer = smaller;
    }
    free_buffer(dev, buffer);
}

void gpusym_scratch_put(const gpusym_device_t *dev, gpusym_gpu_t *gpu, void *p)
{
    pthread_mutex_lock(&lock);
    buffer_t **link = &lent;
    while (NULL != *link && ((*link)->gpu != gpu || (*link)->p != p)) {
        link = &(*link)->next;
    }
    buffer_t *buffer = *link;
    if (NULL != buffer) {
        *link = buffer->next;
        lent_last = NULL == buffer->next ? link : lent_last;
        if (NULL != buffer->slab) {
            give_part(buffer);
        } else {
            keep(dev, buffer);
        }
    }
    pthread_mutex_unlock(&lock);
}

void gpusym_scratch_close(const gpusym_device_t *dev)
{
    pthread_mutex_lock(&lock);
    free_buffer(dev, kept);
    kept = NULL;
    free_idle_slabs(dev);
    pthread_mutex_unlock(&lock);
}
