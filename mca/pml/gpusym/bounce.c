/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bounce buffers of the PML's messages.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/pml/gpusym/bounce.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/pinned.h"

/* Up to this size, in bytes, memory of malloc is as good as pinned memory, of which there is little. */
#define HEAP_MAX 16384u
/* Above this size, in bytes, a buffer that may not be used is address space only. */
#define RESERVE_MIN 65536u
/* Reserved buffers that are kept for the next message, one of each power of two. */
#define CLASSES 48u

static struct {
    pthread_mutex_t lock;
    void *kept[CLASSES]; /* of 1 << class bytes */
} reserved = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned class_of(size_t bytes)
{
    return 64u - (unsigned) __builtin_clzll((unsigned long long) bytes - 1);
}

static bool get_reserved(pml_gpusym_bounce_t *b, size_t bytes)
{
    const unsigned class = class_of(bytes);
    void *p = NULL;

    if (class >= CLASSES) {
        return false;
    }
    pthread_mutex_lock(&reserved.lock);
    p = reserved.kept[class];
    reserved.kept[class] = NULL;
    pthread_mutex_unlock(&reserved.lock);
    if (NULL == p) {
        p = mmap(NULL, (size_t) 1 << class, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    *b = (pml_gpusym_bounce_t){MAP_FAILED == p ? NULL : p, (size_t) 1 << class, PML_GPUSYM_BOUNCE_RESERVED};
    return NULL != b->p;
}

/* Keeps the buffer without the memory behind it, except its first pages. */
static void put_reserved(const pml_gpusym_bounce_t *b)
{
    const unsigned class = class_of(b->size);
    void *p = b->p;

    (void) madvise(b->p + RESERVE_MIN, b->size - RESERVE_MIN, MADV_DONTNEED);
    pthread_mutex_lock(&reserved.lock);
    if (NULL == reserved.kept[class]) {
        reserved.kept[class] = p;
        p = NULL;
    }
    pthread_mutex_unlock(&reserved.lock);
    if (NULL != p) {
        munmap(p, b->size);
    }
}

static bool get_heap(pml_gpusym_bounce_t *b, size_t bytes)
{
    *b = (pml_gpusym_bounce_t){malloc(bytes), bytes, PML_GPUSYM_BOUNCE_HEAP};
    return NULL != b->p;
}

bool pml_gpusym_bounce_pin(pml_gpusym_bounce_t *b, gpusym_gpu_t *gpu, size_t bytes)
{
    void *p = bytes <= GPUSYM_PINNED_MAX ? gpusym_pinned_get(gpusym_current.dev, gpu, bytes) : NULL;
    *b = (pml_gpusym_bounce_t){p, bytes, PML_GPUSYM_BOUNCE_PINNED};
    return NULL != p;
}

bool pml_gpusym_bounce_get(pml_gpusym_bounce_t *b, gpusym_gpu_t *gpu, size_t bytes)
{
    return bytes <= HEAP_MAX ? get_heap(b, bytes) : pml_gpusym_bounce_pin(b, gpu, bytes) || get_reserved(b, bytes);
}

bool pml_gpusym_bounce_reserve(pml_gpusym_bounce_t *b, gpusym_gpu_t *gpu, size_t bytes)
{
    return bytes > RESERVE_MIN ? get_reserved(b, bytes) : pml_gpusym_bounce_get(b, gpu, bytes);
}

void pml_gpusym_bounce_put(pml_gpusym_bounce_t *b)
{
    if (NULL == b->p) {
        return;
    }
    switch (b->kind) {
    case PML_GPUSYM_BOUNCE_HEAP:
        free(b->p);
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
        if (NULL != reserved.kept[class]) {
            munmap(reserved.kept[class], (size_t) 1 << class);
            reserved.kept[class] = NULL;
        }
    }
}
