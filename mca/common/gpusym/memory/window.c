/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows: see window.h.
 */
#include "mca/common/gpusym/memory/window.h"

#include <errno.h>
#include <pthread.h>

#define WINDOW_FILE (GPUSYM_SHARE_FIRST + GPUSYM_WINDOW_BYTES)

/* The area in every slab that names the window of its process. */
typedef struct {
    gpusym_segment_id_t id;
    uint32_t made; /* not 0: id is there; written last, once */
} sign_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool worn; /* atomic: a range is lost */
static gpusym_shares_t windows = {
    .name = "gpusym-window", .magic = 0x677077696e646f77ull, .bytes = WINDOW_FILE, .what = "staged data go through"};

/* Makes the own window, and tells the peers. With the lock held. */
static int make_own(void)
{
    sign_t *sign = gpusym_pages_area(GPUSYM_AREA_WINDOW);
    if (NULL == sign) {
        errno = ENODEV;
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    const int rc = gpusym_shares_make(&windows);
    if (GPUSYM_SUCCESS == rc && 0 == sign->made) {
        sign->id = windows.own->id;
        __atomic_store_n(&sign->made, 1, __ATOMIC_RELEASE);
    }
    return rc;
}

int gpusym_window_own(gpusym_window_t **window)
{
    pthread_mutex_lock(&lock);
    const int rc = NULL != windows.own ? GPUSYM_SUCCESS : make_own();
    *window = windows.own;
    pthread_mutex_unlock(&lock);
    return rc;
}

int gpusym_window_of(gpusym_peer_t *peer, gpusym_window_t **window)
{
    const sign_t *sign = gpusym_peer_area(peer, GPUSYM_AREA_WINDOW);
    if (0 == __atomic_load_n(&sign->made, __ATOMIC_ACQUIRE)) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    const gpusym_segment_id_t id = sign->id;
    if (id.pid != gpusym_peer_pid(peer)) { /* overwritten: not even a window that happens to be of this magic */
        errno = EINVAL;
        return GPUSYM_ERR_UNREACHABLE;
    }
    pthread_mutex_lock(&lock);
    const int rc = gpusym_shares_map(&windows, &id, window);
    pthread_mutex_unlock(&lock);
    return rc;
}

int gpusym_window_register(gpusym_window_t *window, const gpusym_device_t *dev, gpusym_gpu_t *gpu, void **at)
{
    pthread_mutex_lock(&lock);
    const int rc = gpusym_share_register(&windows, window, dev, gpu);
    *at = window->dev;
    pthread_mutex_unlock(&lock);
    return rc;
}

void *gpusym_window_at(const gpusym_window_t *window, uint64_t off, uint64_t bytes)
{
    const bool inside = off >= GPUSYM_SHARE_FIRST && off <= WINDOW_FILE && bytes <= WINDOW_FILE - off;
    return inside ? window->base + off : NULL;
}

uint64_t gpusym_window_room(const gpusym_window_t *window, uint64_t off)
{
    return NULL != gpusym_window_at(window, off, 0) ? WINDOW_FILE - off : 0;
}

int gpusym_window_get(uint64_t bytes, uint64_t *off)
{
    pthread_mutex_lock(&lock);
    const int rc = gpusym_shares_get(&windows, bytes, off);
    pthread_mutex_unlock(&lock);
    return rc;
}

void gpusym_window_put(uint64_t off)
{
    pthread_mutex_lock(&lock);
    gpusym_shares_put(&windows, off);
    pthread_mutex_unlock(&lock);
}

void gpusym_window_lose(void)
{
    __atomic_store_n(&worn, true, __ATOMIC_RELAXED);
}

bool gpusym_window_is_worn(void)
{
    return __atomic_load_n(&worn, __ATOMIC_RELAXED);
}

void gpusym_windows_close(const gpusym_device_t *dev)
{
    pthread_mutex_lock(&lock);
    worn = false;
    gpusym_shares_close(&windows, dev);
    pthread_mutex_unlock(&lock);
}
