/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pinned buffers: see pinned.h.
 */
#include "mca/common/gpusym/memory/pinned.h"

#include <pthread.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/left.h"
#include "mca/common/gpusym/shm/gauges.h"

/* The smallest buffer, in bytes; others are twice as large, and so on, until they are multiples of PINNED_STEP. */
#define PINNED_MIN (64ull << 10)
#define PINNED_STEP (8ull << 20)
/* Buffers that are kept: as many as are often in use at once. */
#define PINNED_SLOTS 8

uint64_t gpusym_pinned_max = 256ull << 20;

static struct {
    pthread_mutex_t lock; /* of all the rest; never held while data are copied */
    uint64_t bytes;       /* of all buffers */
    size_t refused;       /* the smallest buffer that could not be pinned; 0: none */
    struct {
        gpusym_gpu_t *gpu;
        void *buf; /* NULL: none */
        size_t size;
        bool taken;
    } slot[PINNED_SLOTS];
} pinned = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock held: whether slot i has a buffer that serves. */
static bool slot_serves(int i, const gpusym_gpu_t *gpu, size_t size)
{
    return NULL != pinned.slot[i].buf && pinned.slot[i].gpu == gpu && pinned.slot[i].size >= size;
}

/* With the lock held: the free slot to take, the smallest that serves if possible, else the smallest; -1: none. */
static int slot_choose(const gpusym_gpu_t *gpu, size_t size)
{
    int best = -1;
    for (int i = 0; i < PINNED_SLOTS; i++) {
        if (pinned.slot[i].taken) {
            continue;
        }
        const bool serves = slot_serves(i, gpu, size), served = best >= 0 && slot_serves(best, gpu, size);
        if (best < 0 || (serves == served ? pinned.slot[i].size < pinned.slot[best].size : serves)) {
            best = i;
        }
    }
    return best;
}

/* With the lock held. */
static void slot_free(const gpusym_device_t *dev, int i)
{
    if (NULL != pinned.slot[i].buf) {
        dev->host_free(pinned.slot[i].gpu, pinned.slot[i].buf);
        pinned.bytes -= pinned.slot[i].size;
        gpusym_gauge_add(GPUSYM_GAUGE_PINNED, -(int64_t) pinned.slot[i].size);
    }
    pinned.slot[i].buf = NULL;
    pinned.slot[i].size = 0;
}

/* The size of the buffer for so many bytes. */
static size_t round_size(size_t size)
{
    size_t room = PINNED_MIN;
    while (room < size && room < PINNED_STEP) {
        room *= 2;
    }
    return room >= size ? room : (size + PINNED_STEP - 1) / PINNED_STEP * PINNED_STEP;
}

/* With the lock held: whether there may be `room` bytes more if all buffers that nobody uses are freed. */
static bool is_room(size_t room)
{
    uint64_t taken = 0;
    for (int i = 0; i < PINNED_SLOTS; i++) {
        taken += pinned.slot[i].taken ? pinned.slot[i].size : 0;
    }
    return taken + room <= gpusym_pinned_max;
}

/* With the lock held: frees some of them, until all buffers have at most so many bytes. */
static void free_unused(const gpusym_device_t *dev, uint64_t bytes)
{
    for (int i = 0; i < PINNED_SLOTS && pinned.bytes > bytes; i++) {
        if (!pinned.slot[i].taken) {
            slot_free(dev, i);
        }
    }
}

/* With the lock held. Of each size one line: a call that has none goes through ordinary memory, and the next one tries
 * again. */
static void note_refused(const gpusym_device_t *dev, size_t room)
{
    char limits[GPUSYM_LIMITS_TEXT];
    if (0 == pinned.refused || room < pinned.refused) {
        pinned.refused = room;
        GPUSYM_LOG(2, "%zu bytes for staging are not pinned, beside %lu: the GPU copies them more slowly: %s%s", room,
                   (unsigned long) pinned.bytes, dev->error(), gpusym_memory_limits(limits));
    }
}

/* With the lock held: gives slot i a buffer that serves. False: there is no memory. */
static bool slot_fit(const gpusym_device_t *dev, int i, gpusym_gpu_t *gpu, size_t size)
{
    void *host, *seen;
    const size_t room = round_size(size);
    if (slot_serves(i, gpu, size)) {
        return true;
    }
    if (!is_room(room)) {
        return false;
    }
    slot_free(dev, i);
    free_unused(dev, gpusym_pinned_max - room);
    if (GPUSYM_SUCCESS != dev->host_alloc(gpu, room, &host, &seen)) {
        note_refused(dev, room);
        return false;
    }
    pinned.slot[i].gpu = gpu;
    pinned.slot[i].buf = host;
    pinned.slot[i].size = room;
    pinned.bytes += room;
    gpusym_gauge_add(GPUSYM_GAUGE_PINNED, (int64_t) room);
    return true;
}

void *gpusym_pinned_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, size_t bytes)
{
    void *buf = NULL;
    if (bytes > gpusym_pinned_max) {
        return NULL;
    }
    pthread_mutex_lock(&pinned.lock);
    const int i = slot_choose(gpu, bytes);
    if (i >= 0 && slot_fit(dev, i, gpu, bytes)) {
        pinned.slot[i].taken = true;
        buf = pinned.slot[i].buf;
    }
    pthread_mutex_unlock(&pinned.lock);
    return buf;
}

void gpusym_pinned_put(const void *buf)
{
    pthread_mutex_lock(&pinned.lock);
    for (int i = 0; i < PINNED_SLOTS; i++) {
        if (pinned.slot[i].buf == buf) {
            pinned.slot[i].taken = false;
        }
    }
    pthread_mutex_unlock(&pinned.lock);
}

void gpusym_pinned_trim(const gpusym_device_t *dev)
{
    pthread_mutex_lock(&pinned.lock);
    free_unused(dev, 0);
    pthread_mutex_unlock(&pinned.lock);
}

void gpusym_pinned_close(const gpusym_device_t *dev)
{
    pthread_mutex_lock(&pinned.lock);
    for (int i = 0; i < PINNED_SLOTS; i++) {
        slot_free(dev, i);
        pinned.slot[i].taken = false;
    }
    pthread_mutex_unlock(&pinned.lock);
}
