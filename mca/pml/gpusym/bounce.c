/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bounce buffers of the PML's messages.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/pml/gpusym/bounce.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/lock.h"
#include "mca/common/gpusym/memory/pinned.h"

/* Up to this size, in bytes, memory of malloc is as good as pinned memory, of which there is little. */
#define HEAP_MAX 16384u
#define HEAP_MIN 16u
/* Buffers that are kept for the next messages: so many of each power of two, in bytes. A window of receives would map
 * and unmap them for each message, or keep malloc busy for a tenth of its time. */
#define CLASSES 48u
#define KEPT 64u
/* What a kept buffer may hold of memory, in bytes: what RTS messages touch. One of each size may hold more, up to the
 * second limit, for messages from host memory. */
#define KEEP_MIN 4096u
#define KEEP_MAX (64u << 20)
/* From here on, in bytes, large pages are better: what is touched here belongs to a long message. */
#define LARGE_PAGE (2u << 20)

static struct {
    pthread_mutex_t lock;
    struct {
        void *p[KEPT]; /* of 1 << class bytes */
        unsigned n;
        bool warm; /* the last one holds memory */
    } kept[CLASSES];
} buffers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned class_of(size_t bytes)
{
    return 64u - (unsigned) __builtin_clzll((unsigned long long) bytes - 1);
}

static void *map_reserved(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (MAP_FAILED == p) {
        return NULL;
    }
    if (size >= 2 * (size_t) LARGE_PAGE) {
        (void) madvise((char *) p + LARGE_PAGE, size - LARGE_PAGE, MADV_HUGEPAGE);
    }
    return p;
}

static bool get_reserved(pml_gpusym_bounce_t *b, size_t bytes)
{
    const unsigned class = class_of(bytes);
    void *p = NULL;
    size_t used = 0;

    if (class >= CLASSES) {
        return false;
    }
    gpusym_lock(&buffers.lock);
    if (buffers.kept[class].n > 0) {
        p = buffers.kept[class].p[--buffers.kept[class].n];
        used = buffers.kept[class].warm ? (size_t) 1 << class : KEEP_MIN;
        buffers.kept[class].warm = false;
    }
    gpusym_unlock(&buffers.lock);
    p = NULL == p ? map_reserved((size_t) 1 << class) : p;
    *b = (pml_gpusym_bounce_t){p, (size_t) 1 << class, PML_GPUSYM_BOUNCE_RESERVED, used};
    return NULL != p;
}

/* Gives back the memory of a buffer that may have more than an RTS touches. */
static void cool(const pml_gpusym_bounce_t *b)
{
    if (b->used > KEEP_MIN) {
        (void) madvise(b->p + KEEP_MIN, b->size - KEEP_MIN, MADV_DONTNEED);
    }
}

/* Keeps the buffer: the last one of its size with its memory, since the next message may need it. */
static void put_reserved(const pml_gpusym_bounce_t *b)
{
    const unsigned class = class_of(b->size);
    const bool warm = b->used > KEEP_MIN && b->size <= KEEP_MAX;
    bool kept = false;

    if (!warm) {
        cool(b);
    }
    gpusym_lock(&buffers.lock);
    if (buffers.kept[class].n < KEPT && !(warm && buffers.kept[class].warm)) {
        unsigned at = buffers.kept[class].n++;
        if (!warm && buffers.kept[class].warm) { /* the one that holds memory stays the last */
            buffers.kept[class].p[at] = buffers.kept[class].p[at - 1];
            at--;
        }
        buffers.kept[class].p[at] = b->p;
        buffers.kept[class].warm = warm || buffers.kept[class].warm;
        kept = true;
    }
    gpusym_unlock(&buffers.lock);
    if (!kept) {
        munmap(b->p, b->size);
    }
}

static bool get_heap(pml_gpusym_bounce_t *b, size_t bytes)
{
    const unsigned class = class_of(bytes < HEAP_MIN ? HEAP_MIN : bytes);
    void *p = NULL;

    gpusym_lock(&buffers.lock);
    if (buffers.kept[class].n > 0) {
        p = buffers.kept[class].p[--buffers.kept[class].n];
    }
    gpusym_unlock(&buffers.lock);
    p = NULL == p ? malloc((size_t) 1 << class) : p;
    *b = (pml_gpusym_bounce_t){p, (size_t) 1 << class, PML_GPUSYM_BOUNCE_HEAP, 0};
    return NULL != p;
}

static void put_heap(const pml_gpusym_bounce_t *b)
{
    const unsigned class = class_of(b->size);
    bool kept = false;

    gpusym_lock(&buffers.lock);
    if (buffers.kept[class].n < KEPT) {
        buffers.kept[class].p[buffers.kept[class].n++] = b->p;
        kept = true;
    }
    gpusym_unlock(&buffers.lock);
    if (!kept) {
        free(b->p);
    }
}

bool pml_gpusym_bounce_pin(pml_gpusym_bounce_t *b, gpusym_gpu_t *gpu, size_t bytes)
{
    void *p = NULL != gpu ? gpusym_pinned_get(gpusym_current.dev, gpu, bytes) : NULL;
    *b = (pml_gpusym_bounce_t){p, bytes, PML_GPUSYM_BOUNCE_PINNED, 0};
    return NULL != p;
}

bool pml_gpusym_bounce_get(pml_gpusym_bounce_t *b, gpusym_gpu_t *gpu, size_t bytes)
{
    if (bytes <= HEAP_MAX || pml_gpusym_bounce_pin(b, gpu, bytes)) {
        return bytes <= HEAP_MAX ? get_heap(b, bytes) : true;
    }
    const bool there = get_reserved(b, bytes);
    b->used = b->size;
    return there;
}

bool pml_gpusym_bounce_reserve(pml_gpusym_bounce_t *b, size_t bytes)
{
    return bytes > HEAP_MAX ? get_reserved(b, bytes) : get_heap(b, bytes);
}

void pml_gpusym_bounce_put(pml_gpusym_bounce_t *b)
{
    if (NULL == b->p) {
        return;
    }
    switch (b->kind) {
    case PML_GPUSYM_BOUNCE_HEAP:
        put_heap(b);
        break;
    case PML_GPUSYM_BOUNCE_PINNED:
        gpusym_pinned_put(b->p);
        break;
    case PML_GPUSYM_BOUNCE_RESERVED:
        put_reserved(b);
        break;
    }
    b->p = NULL;
}

void pml_gpusym_bounces_close(void)
{
    for (unsigned class = 0; class < CLASSES; class ++) {
        while (buffers.kept[class].n > 0) {
            void *p = buffers.kept[class].p[--buffers.kept[class].n];
            if ((size_t) 1 << class <= HEAP_MAX) {
                free(p);
            } else {
                munmap(p, (size_t) 1 << class);
            }
        }
        buffers.kept[class].warm = false;
    }
}
