/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pools: see pool.h.
 */
#include "mca/btl/gpunvl/pool.h"

#include <stdlib.h>

struct pool_record {
    pool_record_t *next;
};

void *btl_gpunvl_pool_get(btl_gpunvl_pool_t *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool_record_t *record = pool->idle;
    if (NULL != record) {
        pool->idle = record->next;
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL != record ? (void *) record : calloc(1, pool->size);
}

void btl_gpunvl_pool_put(btl_gpunvl_pool_t *pool, void *record)
{
    pool_record_t *r = record;

    pthread_mutex_lock(&pool->lock);
    r->next = pool->idle;
    pool->idle = r;
    pthread_mutex_unlock(&pool->lock);
}

void btl_gpunvl_pool_close(btl_gpunvl_pool_t *pool)
{
    for (pool_record_t *r = pool->idle, *next; NULL != r; r = next) {
        next = r->next;
        free(r);
    }
    pool->idle = NULL;
}
