/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pools: records of one size, which are kept for reuse.
 *
 * Open MPI's free lists need a compare-and-swap of 16 bytes, which not every compiler's defaults have.
 */
#ifndef BTL_GPUNVL_POOL_H
#define BTL_GPUNVL_POOL_H

#include <pthread.h>
#include <stddef.h>

typedef struct pool_record pool_record_t;
typedef struct {
    pthread_mutex_t lock;
    size_t size;         /* of a record, in bytes */
    pool_record_t *idle; /* covered by the lock */
} btl_gpunvl_pool_t;
#define BTL_GPUNVL_POOL(bytes)                             \
    {                                                      \
        .lock = PTHREAD_MUTEX_INITIALIZER, .size = (bytes) \
    }

/* Returns a record, 16-byte aligned, with contents of its last use, or zeroes. NULL: there is no memory. Any thread. */
void *btl_gpunvl_pool_get(btl_gpunvl_pool_t *pool);
/* Gives a record back, whose first pointer is overwritten. Any thread. */
void btl_gpunvl_pool_put(btl_gpunvl_pool_t *pool, void *record);
/* Frees the records that are not in use. */
void btl_gpunvl_pool_close(btl_gpunvl_pool_t *pool);

#endif
