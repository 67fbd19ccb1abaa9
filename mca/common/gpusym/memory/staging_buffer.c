/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Staging buffers: see staging_buffer.h.
 */
#include "mca/common/gpusym/memory/staging_buffer.h"

#include <errno.h>
#include <pthread.h>

#define FILE_BYTES (GPUSYM_SHARE_FIRST + GPUSYM_STAGING_BUFFER_BYTES)

/* The area in every slab that names the staging buffer of its process. */
typedef struct {
    gpusym_segment_id_t id;
    uint32_t made; /* not 0: id is there; written last, once */
} sign_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool worn; /* atomic: a range is lost */
static gpusym_shares_t staging_buffers = {
    .name = "gpusym-staging", .magic = 0x677077696e646f77ull, .bytes = FILE_BYTES, .what = "staged data go through"};

/* Makes the own staging buffer, and tells the peers. With the lock held. */
static int make_own(void)
{
    sign_t *sign = gpusym_pages_area(GPUSYM_AREA_STAGING_BUFFER);
    if (NULL == sign) {
        errno = ENODEV;
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    const int rc = gpusym_shares_make(&staging_buffers);
    if (GPUSYM_SUCCESS == rc && 0 == sign->made) {
        sign->id = staging_buffers.own->id;
        __atomic_store_n(&sign->made, 1, __ATOMIC_RELEASE);
    }
    return rc;
}

int gpusym_staging_buffer_own(gpusym_staging_buffer_t **staging)
{
    pthread_mutex_lock(&lock);
    const int rc = NULL != staging_buffers.own ? GPUSYM_SUCCESS : make_own();
    *staging = staging_buffers.own;
    pthread_mutex_unlock(&lock);
    return rc;
}

int gpusym_staging_buffer_of(gpusym_peer_t *peer, gpusym_staging_buffer_t **staging)
{
    const sign_t *sign = gpusym_peer_area(peer, GPUSYM_AREA_STAGING_BUFFER);
    if (0 == __atomic_load_n(&sign->made, __ATOMIC_ACQUIRE)) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    const gpusym_segment_id_t id = sign->id;
    if (id.pid != gpusym_peer_pid(peer)) { /* overwritten: not even a staging buffer that happens to be of this magic */
        errno = EINVAL;
        return GPUSYM_ERR_UNREACHABLE;
    }
    pthread_mutex_lock(&lock);
    const int rc = gpusym_shares_map(&staging_buffers, &id, staging);
    pthread_mutex_unlock(&lock);
    return rc;
}

int gpusym_staging_buffer_register(gpusym_staging_buffer_t *staging, const gpusym_device_t *dev, gpusym_gpu_t *gpu,
                                   void **at)
{
    pthread_mutex_lock(&lock);
    const int rc = gpusym_share_register(&staging_buffers, staging, dev, gpu);
    *at = staging->dev;
    pthread_mutex_unlock(&lock);
    return rc;
}

void *gpusym_staging_buffer_at(const gpusym_staging_buffer_t *staging, uint64_t off, uint64_t bytes)
{
    const bool inside = off >= GPUSYM_SHARE_FIRST && off <= FILE_BYTES && bytes <= FILE_BYTES - off;
    return inside ? staging->base + off : NULL;
}

uint64_t gpusym_staging_buffer_room(const gpusym_staging_buffer_t *staging, uint64_t off)
{
    return NULL != gpusym_staging_buffer_at(staging, off, 0) ? FILE_BYTES - off : 0;
}

int gpusym_staging_buffer_get(uint64_t bytes, uint64_t *off)
{
    pthread_mutex_lock(&lock);
    const int rc = gpusym_shares_get(&staging_buffers, bytes, off);
    pthread_mutex_unlock(&lock);
    return rc;
}

void gpusym_staging_buffer_put(uint64_t off)
{
    pthread_mutex_lock(&lock);
    gpusym_shares_put(&staging_buffers, off);
    pthread_mutex_unlock(&lock);
}

void gpusym_staging_buffer_lose(void)
{
    __atomic_store_n(&worn, true, __ATOMIC_RELAXED);
}

bool gpusym_staging_buffer_is_worn(void)
{
    return __atomic_load_n(&worn, __ATOMIC_RELAXED);
}

void gpusym_staging_buffers_close(const gpusym_device_t *dev)
{
    pthread_mutex_lock(&lock);
    worn = false;
    gpusym_shares_close(&staging_buffers, dev);
    pthread_mutex_unlock(&lock);
}
