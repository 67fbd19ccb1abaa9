/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows: see window.h.
 */
#include "mca/common/gpusym/memory/window.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/shm/arena.h"
#include "mca/common/gpusym/shm/segment.h"

#define WINDOW_MAGIC 0x677077696e646f77ull
/* Ranges are whole pages; the segment's head has the first one. */
#define WINDOW_PAGE 4096u
#define WINDOW_FILE (WINDOW_PAGE + GPUSYM_WINDOW_BYTES)

/* The area in every slab that names the window of its process. */
typedef struct {
    gpusym_segment_id_t id;
    uint32_t made; /* not 0: id is there; written last, once */
} sign_t;

struct gpusym_window {
    gpusym_segment_id_t id;
    char *base;
    gpusym_gpu_t *gpu; /* by which it is registered */
    void *dev;         /* base for the GPU; NULL: it is not registered */
    int refused;       /* why it cannot be: an error of host_register; GPUSYM_SUCCESS: it can, or has not been tried */
    struct gpusym_window *next;
};

static struct {
    pthread_mutex_t lock;   /* covers all of this */
    gpusym_window_t *first; /* all that are mapped here */
    gpusym_window_t *own;   /* one of them; NULL: none yet */
    gpusym_arena_t *arena;  /* of the own one, behind its first page */
    int refused;            /* why there is no own one; GPUSYM_SUCCESS: it has not been tried */
    int error;              /* errno of that */
} windows = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock held. NULL: no memory. */
static gpusym_window_t *window_add(const gpusym_segment_id_t *id, void *base)
{
    gpusym_window_t *window = calloc(1, sizeof *window);
    if (NULL == window) {
        gpusym_log_no_memory("a window");
        errno = ENOMEM;
        return NULL;
    }
    window->id = *id;
    window->base = base;
    window->next = windows.first;
    windows.first = window;
    return window;
}

/* Makes the own window, and tells the peers. With the lock held. */
static int window_make(void)
{
    gpusym_segment_id_t id;
    void *base;
    sign_t *sign = gpusym_pages_area(GPUSYM_AREA_WINDOW);
    if (NULL == sign) {
        errno = ENODEV;
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    const int rc = gpusym_segment_make("gpusym-window", WINDOW_MAGIC, WINDOW_FILE, &id, &base);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    windows.arena = gpusym_arena_create(GPUSYM_WINDOW_BYTES, WINDOW_PAGE);
    windows.own = NULL != windows.arena ? window_add(&id, base) : NULL;
    if (NULL == windows.own) {
        gpusym_arena_destroy(windows.arena);
        windows.arena = NULL;
        gpusym_segment_free(&id, base);
        errno = ENOMEM;
        return GPUSYM_ERR_NO_MEMORY;
    }
    sign->id = id;
    __atomic_store_n(&sign->made, 1, __ATOMIC_RELEASE);
    return GPUSYM_SUCCESS;
}

int gpusym_window_own(gpusym_window_t **window)
{
    pthread_mutex_lock(&windows.lock);
    if (NULL == windows.own && GPUSYM_SUCCESS == windows.refused) {
        windows.refused = window_make();
        windows.error = errno;
    }
    const int rc = windows.refused, error = windows.error;
    *window = windows.own;
    pthread_mutex_unlock(&windows.lock);
    if (GPUSYM_SUCCESS != rc) {
        errno = error;
    }
    return rc;
}

/* Finds a window, or maps it. With the lock held. */
static int window_map(const gpusym_segment_id_t *id, gpusym_window_t **window)
{
    void *base;
    for (gpusym_window_t *w = windows.first; NULL != w; w = w->next) {
        if (gpusym_segment_same(&w->id, id)) {
            *window = w;
            return GPUSYM_SUCCESS;
        }
    }
    const int rc = gpusym_segment_map(id, WINDOW_MAGIC, WINDOW_FILE, &base);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    *window = window_add(id, base);
    if (NULL == *window) {
        munmap(base, WINDOW_FILE);
        errno = ENOMEM;
        return GPUSYM_ERR_NO_MEMORY;
    }
    return GPUSYM_SUCCESS;
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
    pthread_mutex_lock(&windows.lock);
    const int rc = window_map(&id, window);
    pthread_mutex_unlock(&windows.lock);
    return rc;
}

int gpusym_window_register(gpusym_window_t *window, const gpusym_device_t *dev, gpusym_gpu_t *gpu, void **at)
{
    pthread_mutex_lock(&windows.lock);
    if (NULL == window->dev && GPUSYM_SUCCESS == window->refused) {
        window->refused = dev->host_register(gpu, window->base, WINDOW_FILE, &window->dev);
        window->gpu = gpu;
        if (GPUSYM_SUCCESS != window->refused) {
            window->dev = NULL;
            GPUSYM_LOG(1, "host memory that processes share is not pinned, and is copied slowly: %s", dev->error());
        }
    }
    *at = window->dev;
    const int rc = window->refused;
    pthread_mutex_unlock(&windows.lock);
    return rc;
}

void *gpusym_window_at(const gpusym_window_t *window, uint64_t off, uint64_t bytes)
{
    const bool inside = off >= WINDOW_PAGE && off <= WINDOW_FILE && bytes <= WINDOW_FILE - off;
    return inside ? window->base + off : NULL;
}

uint64_t gpusym_window_room(const gpusym_window_t *window, uint64_t off)
{
    return NULL != gpusym_window_at(window, off, 0) ? WINDOW_FILE - off : 0;
}

int gpusym_window_get(uint64_t bytes, uint64_t *off)
{
    pthread_mutex_lock(&windows.lock);
    const int rc = NULL != windows.arena ? gpusym_arena_alloc(windows.arena, bytes, off) : GPUSYM_ERR_NOT_AVAILABLE;
    pthread_mutex_unlock(&windows.lock);
    *off += GPUSYM_SUCCESS == rc ? WINDOW_PAGE : 0;
    return rc;
}

void gpusym_window_put(uint64_t off)
{
    pthread_mutex_lock(&windows.lock);
    if (NULL != windows.arena) {
        (void) gpusym_arena_free(windows.arena, off - WINDOW_PAGE);
    }
    pthread_mutex_unlock(&windows.lock);
}

void gpusym_windows_close(const gpusym_device_t *dev)
{
    pthread_mutex_lock(&windows.lock);
    while (NULL != windows.first) {
        gpusym_window_t *window = windows.first;
        windows.first = window->next;
        if (NULL != window->dev) {
            dev->host_unregister(window->gpu, window->base);
        }
        if (window == windows.own) {
            gpusym_segment_free(&window->id, window->base);
        } else {
            munmap(window->base, WINDOW_FILE);
        }
        free(window);
    }
    gpusym_arena_destroy(windows.arena);
    windows.arena = NULL;
    windows.own = NULL;
    windows.refused = GPUSYM_SUCCESS;
    pthread_mutex_unlock(&windows.lock);
}
