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

/* Buffers are multiples of this, in bytes: peers can map no smaller one. */
#define UNIT (2ull << 20)

uint64_t gpusym_scratch_max = 256ull << 20;

typedef struct buffer {
    gpusym_gpu_t *gpu;
    void *p;
    uint64_t bytes;
    struct buffer *next;
} buffer_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static buffer_t *lent, *kept; /* under the lock; at most one is kept */

/* buffer: NULL is allowed. */
static void free_buffer(const gpusym_device_t *dev, buffer_t *buffer)
{
    if (NULL != buffer) {
        dev->mem_free(buffer->gpu, buffer->p);
        free(buffer);
    }
}

int gpusym_scratch_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p)
{
    int rc = GPUSYM_SUCCESS;
    pthread_mutex_lock(&lock);
    buffer_t *buffer = kept;
    if (NULL != buffer && buffer->gpu == gpu && buffer->bytes >= bytes) {
        kept = NULL;
    } else if (NULL == (buffer = calloc(1, sizeof *buffer))) {
        gpusym_log_no_memory("scratch memory of a GPU");
        rc = GPUSYM_ERR_NO_MEMORY;
    } else {
        buffer->gpu = gpu;
        buffer->bytes = (bytes + UNIT - 1) / UNIT * UNIT;
        rc = gpusym_mem_alloc(dev, gpu, buffer->bytes, &buffer->p);
        if (GPUSYM_ERR_NO_MEMORY == rc && NULL != kept) { /* what is kept is too small, and may be in the way */
            free_buffer(dev, kept);
            kept = NULL;
            rc = gpusym_mem_alloc(dev, gpu, buffer->bytes, &buffer->p);
        }
    }
    if (GPUSYM_SUCCESS == rc) {
        buffer->next = lent;
        lent = buffer;
        *p = buffer->p;
    } else {
        free(buffer);
    }
    pthread_mutex_unlock(&lock);
    return rc;
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
        if (buffer->bytes <= gpusym_scratch_max && (NULL == kept || kept->bytes < buffer->bytes)) {
            buffer_t *smaller = kept;
            kept = buffer;
            buffer = smaller;
        }
        free_buffer(dev, buffer);
    }
    pthread_mutex_unlock(&lock);
}

void gpusym_scratch_close(const gpusym_device_t *dev)
{
    pthread_mutex_lock(&lock);
    free_buffer(dev, kept);
    kept = NULL;
    pthread_mutex_unlock(&lock);
}
