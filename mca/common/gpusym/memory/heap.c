/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The slab of a process, its peers' mappings and the slots: see heap.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/memory/heap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/alloc.h"
#include "mca/common/gpusym/shm/pages.h"

typedef struct {
    uint8_t nonce[16];
    void *base;
} mapping_t;

struct gpusym_heap {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
    void *base;
    uint64_t size;
    gpusym_heap_id_t id;
    pthread_mutex_t lock; /* of what follows */
    uint64_t *slot;       /* [slots of all size classes], in the order of their offsets: who has it */
    mapping_t *peers;
    size_t npeers, room;
    uint32_t epoch_floor;
};

/* ---- slots: sizes and places, pure ---- */

#define SLOT_ALIGN 4096u
/* The smallest slot, in bytes. */
#define SLOT_LEAST (64u << 10)

/* Slots of a size class: 1 / part of the slab each. The last class divides the rest into the smallest slots. */
static const struct {
    uint32_t part, count;
} size_classes[GPUSYM_SLOT_CLASSES] = {{2, 1}, {8, 2}, {64, 8}, {0, 0}};

uint64_t gpusym_slot_size(uint64_t heap_size, unsigned size_class)
{
    if (size_class >= GPUSYM_SLOT_CLASSES) {
        return 0;
    }
    if (0 == size_classes[size_class].part) {
        return SLOT_LEAST;
    }
    const uint64_t size = heap_size / size_classes[size_class].part / SLOT_ALIGN * SLOT_ALIGN;
    return size > SLOT_LEAST ? size : 0;
}

/* The offset of the first slot of a size class. */
static uint64_t class_off(uint64_t heap_size, unsigned size_class)
{
    uint64_t off = 0;
    for (unsigned c = 0; c < size_class; c++) {
        off += gpusym_slot_count(heap_size, c) * gpusym_slot_size(heap_size, c);
    }
    return off;
}

uint32_t gpusym_slot_count(uint64_t heap_size, unsigned size_class)
{
    if (size_class >= GPUSYM_SLOT_CLASSES || 0 == gpusym_slot_size(heap_size, size_class)) {
        return 0;
    }
    if (0 != size_classes[size_class].count) {
        return size_classes[size_class].count;
    }
    return (uint32_t) ((heap_size - class_off(heap_size, size_class)) / SLOT_LEAST);
}

bool gpusym_slot_is(uint64_t heap_size, unsigned size_class, uint64_t off)
{
    const uint64_t size = gpusym_slot_size(heap_size, size_class), first = class_off(heap_size, size_class);
    return 0 != size && off >= first && 0 == (off - first) % size &&
           (off - first) / size < gpusym_slot_count(heap_size, size_class);
}

static uint32_t count_slots(uint64_t heap_size)
{
    uint32_t n = 0;
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        n += gpusym_slot_count(heap_size, c);
    }
    return n;
}

int gpusym_heap_create(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t size, gpusym_heap_t **heap)
{
    int rc = GPUSYM_ERR_NO_MEMORY;
    gpusym_heap_t *h = calloc(1, sizeof *h);
    if (NULL == h) {
        gpusym_log_no_memory("the symmetric heap");
        return rc;
    }
    h->dev = dev;
    h->gpu = gpu;
    h->size = size;
    h->epoch_floor = 1;
    if (!gpusym_random(h->id.nonce, sizeof h->id.nonce)) {
        goto free_heap;
    }
    h->slot = calloc(count_slots(size) + 1, sizeof *h->slot);
    if (NULL == h->slot) {
        gpusym_log_no_memory("the slots of the symmetric heap");
        goto free_heap;
    }
    rc = gpusym_mem_alloc(dev, gpu, size, &h->base);
    if (GPUSYM_SUCCESS != rc) {
        goto free_slots;
    }
    rc = dev->mem_zero(gpu, h->base, size);
    if (GPUSYM_SUCCESS == rc) {
        rc = dev->mem_export(gpu, h->base, &h->id.handle);
    }
    if (GPUSYM_SUCCESS != rc) {
        goto free_slab;
    }
    pthread_mutex_init(&h->lock, NULL);
    *heap = h;
    return GPUSYM_SUCCESS;

free_slab:
    dev->mem_free(gpu, h->base);
free_slots:
    free(h->slot);
free_heap:
    free(h);
    return rc;
}

void gpusym_heap_destroy(gpusym_heap_t *heap)
{
    if (NULL == heap) {
        return;
    }
    for (size_t i = 0; i < heap->npeers; i++) {
        heap->dev->mem_unimport(heap->gpu, heap->peers[i].base);
    }
    heap->dev->mem_free(heap->gpu, heap->base);
    free(heap->slot);
    pthread_mutex_destroy(&heap->lock);
    free(heap->peers);
    free(heap);
}

gpusym_gpu_t *gpusym_heap_gpu(const gpusym_heap_t *heap)
{
    return heap->gpu;
}

void gpusym_heap_id(const gpusym_heap_t *heap, gpusym_heap_id_t *id)
{
    *id = heap->id;
}

/* Finds or makes the mapping of a peer's slab. With the lock held. */
static int map_peer(gpusym_heap_t *heap, const gpusym_heap_id_t *id, void **base)
{
    for (size_t i = 0; i < heap->npeers; i++) {
        if (0 == memcmp(heap->peers[i].nonce, id->nonce, sizeof id->nonce)) {
            *base = heap->peers[i].base;
            return GPUSYM_SUCCESS;
        }
    }
    if (heap->npeers == heap->room) {
        const size_t room = heap->room ? 2 * heap->room : 8;
        mapping_t *more = realloc(heap->peers, room * sizeof *more);
        if (NULL == more) {
            gpusym_log_no_memory("the mappings of peers' heaps");
            return GPUSYM_ERR_NO_MEMORY;
        }
        heap->peers = more;
        heap->room = room;
    }
    const int rc = heap->dev->mem_import(heap->gpu, &id->handle, base);
    if (GPUSYM_SUCCESS == rc) {
        memcpy(heap->peers[heap->npeers].nonce, id->nonce, sizeof id->nonce);
        heap->peers[heap->npeers++].base = *base;
    }
    return rc;
}

int gpusym_heap_peer(gpusym_heap_t *heap, const gpusym_heap_id_t *id, void **base)
{
    if (0 == memcmp(heap->id.nonce, id->nonce, sizeof id->nonce)) {
        *base = heap->base;
        return GPUSYM_SUCCESS;
    }
    pthread_mutex_lock(&heap->lock);
    const int rc = map_peer(heap, id, base);
    pthread_mutex_unlock(&heap->lock);
    return rc;
}

/* ---- slots: owners ---- */

/* Who has a slot: nobody; a communicator; else nobody once all peers have retired the line at that offset. */
#define SLOT_FREE 0u
#define SLOT_TAKEN UINT64_MAX

/* Marks the first free slot of a size class as taken and returns its offset. With the lock held. */
static uint64_t reserve_slot(gpusym_heap_t *heap, unsigned size_class)
{
    const uint64_t size = gpusym_slot_size(heap->size, size_class);
    const uint64_t off = class_off(heap->size, size_class);
    uint64_t *slot = heap->slot;
    for (unsigned c = 0; c < size_class; c++) {
        slot += gpusym_slot_count(heap->size, c);
    }
    for (uint32_t i = 0; i < gpusym_slot_count(heap->size, size_class); i++) {
        if (SLOT_FREE == slot[i] || (SLOT_TAKEN != slot[i] && !gpusym_pages_is_retired(slot[i]))) {
            slot[i] = SLOT_TAKEN;
            return off + i * size;
        }
    }
    return GPUSYM_SLOT_NONE;
}

/* Finds who has the slot at off; NULL: no slot begins there. */
static uint64_t *slot_at(gpusym_heap_t *heap, uint64_t off)
{
    uint64_t at = 0;
    uint64_t *slot = heap->slot;
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        for (uint32_t i = 0; i < gpusym_slot_count(heap->size, c); i++, at += gpusym_slot_size(heap->size, c), slot++) {
            if (at == off) {
                return slot;
            }
        }
    }
    return NULL;
}

static void release_slot(gpusym_heap_t *heap, uint64_t off, uint64_t line)
{
    uint64_t *slot = slot_at(heap, off);
    if (NULL != slot) {
        *slot = line;
    }
}

void gpusym_heap_slot_offer(gpusym_heap_t *heap, gpusym_slot_offer_t *offer)
{
    pthread_mutex_lock(&heap->lock);
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        offer->off[c] = reserve_slot(heap, c);
    }
    pthread_mutex_unlock(&heap->lock);
}

void gpusym_heap_slot_settle(gpusym_heap_t *heap, const gpusym_slot_offer_t *offer, int keep)
{
    pthread_mutex_lock(&heap->lock);
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        if ((int) c != keep && GPUSYM_SLOT_NONE != offer->off[c]) {
            release_slot(heap, offer->off[c], SLOT_FREE);
        }
    }
    pthread_mutex_unlock(&heap->lock);
}

void gpusym_heap_slot_free(gpusym_heap_t *heap, uint64_t off, uint32_t epoch, uint64_t line)
{
    pthread_mutex_lock(&heap->lock);
    release_slot(heap, off, line);
    if (epoch > heap->epoch_floor) {
        heap->epoch_floor = epoch;
    }
    pthread_mutex_unlock(&heap->lock);
}

uint32_t gpusym_heap_epoch_floor(gpusym_heap_t *heap)
{
    pthread_mutex_lock(&heap->lock);
    const uint32_t floor = heap->epoch_floor;
    pthread_mutex_unlock(&heap->lock);
    return floor;
}

uint64_t gpusym_heap_size(const gpusym_heap_t *heap)
{
    return heap->size;
}

/* ---- slots: inside ---- */

/* A flag row for every 8 KiB of a slot: small slots have few blocks rather than tiny buffers. */
#define BYTES_PER_BLOCK (8u << 10)

uint32_t gpusym_slot_layout(uint64_t size, uint32_t nranks, uint32_t max_blocks, gpusym_work_t *w)
{
    /* Borders: from the size alone. */
    const uint64_t rows = size / BYTES_PER_BLOCK < GPUSYM_BLOCKS_MAX ? size / BYTES_PER_BLOCK : GPUSYM_BLOCKS_MAX;
    const uint64_t ll_off = (GPUSYM_FLAGS_OFF + rows * GPUSYM_FLAG_ROW + 255) / 256 * 256;
    const uint64_t ll128_off = ll_off + size / 8 / 256 * 256;
    const uint64_t stage_off = ll128_off + size / 16 * 3 / 512 * 512;
    /* Inside them: two parities of nranks sources in whole line pairs; four buffers of at least a pack a rank. */
    const uint64_t ll = size / 8 / 256 * 256 / (2 * nranks) / 32 * 32;
    if (0 == rows || 0 == ll || stage_off + 4 * 16ull * nranks > size) {
        return 0;
    }
    w->ll_off = ll_off;
    w->ll_bytes = (uint32_t) ll;
    w->ll128_off = ll128_off;
    w->ll128_room = stage_off - ll128_off;
    w->flag_rows = (uint32_t) rows;
    w->stage_off = stage_off;
    w->stage_room = size - stage_off;
    return rows < max_blocks ? (uint32_t) rows : max_blocks;
}
