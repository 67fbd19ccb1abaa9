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

/* Largest piece that is kept, in bytes: all of gpusym is to take little of a GPU. */
#define KEEP_MAX (4ull << 20)

typedef struct piece {
    gpusym_gpu_t *gpu;
    void *p;
    uint64_t bytes;
    struct piece *next;
} piece_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static piece_t *lent, *kept; /* under the lock; at most one is kept */

int gpusym_scratch_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p)
{
    int rc = GPUSYM_SUCCESS;
    pthread_mutex_lock(&lock);
    piece_t *piece = kept;
    if (NULL != piece && piece->gpu == gpu && piece->bytes >= bytes) {
        kept = NULL;
    } else if (NULL == (piece = calloc(1, sizeof *piece))) {
        gpusym_log_no_memory("scratch memory of a GPU");
        rc = GPUSYM_ERR_NO_MEMORY;
    } else {
        piece->gpu = gpu;
        piece->bytes = bytes;
        rc = gpusym_mem_alloc(dev, gpu, bytes, &piece->p);
    }
    if (GPUSYM_SUCCESS == rc) {
        piece->next = lent;
        lent = piece;
        *p = piece->p;
    } else {
        free(piece);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

void gpusym_scratch_put(const gpusym_device_t *dev, gpusym_gpu_t *gpu, void *p)
{
    pthread_mutex_lock(&lock);
    piece_t **link = &lent;
    while (NULL != *link && ((*link)->gpu != gpu || (*link)->p != p)) {
        link = &(*link)->next;
    }
    piece_t *piece = *link;
    if (NULL != piece) {
        *link = piece->next;
        if (NULL == kept && piece->bytes <= KEEP_MAX) {
            kept = piece;
        } else {
            dev->mem_free(gpu, p);
            free(piece);
        }
    }
    pthread_mutex_unlock(&lock);
}

void gpusym_scratch_close(const gpusym_device_t *dev)
{
    pthread_mutex_lock(&lock);
    if (NULL != kept) {
        dev->mem_free(kept->gpu, kept->p);
        free(kept);
        kept = NULL;
    }
    pthread_mutex_unlock(&lock);
}
