/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The slabs of a process, its peers' mappings and the slots: see heap.h.
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
#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/shm/gauges.h"
#include "mca/common/gpusym/shm/pages.h"

typedef struct {
    uint8_t nonce[16];
    void *base;
    uint64_t size; /* bytes that are known to be there */
    size_t users;  /* calls of gpusym_heap_peer that have not been taken back */
} mapping_t;

typedef struct {
    void *base; /* NULL: its memory has been freed */
    bool exported;
    gpusym_heap_id_t id;
    uint64_t *slot; /* [slots of all size classes], in the order of their offsets: who has it */
    gpusym_heap_mc_t mc;
} slab_t;

/* A multicast object whose slot is not free yet. */
typedef struct left {
    struct left *next;
    gpusym_mc_t *mc;
    uint64_t line;
} left_t;

struct gpusym_heap {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
    uint64_t size;        /* of a slab */
    unsigned most;        /* slabs, from the first one on */
    pthread_mutex_t lock; /* of what follows; a slab that is there stays as it is, but for the owners of its slots */
    slab_t slab[GPUSYM_SLABS_MAX];
    unsigned nslabs; /* read without the lock, too */
    unsigned first;  /* slots are offered of this slab and later ones: those before are on memory that was refused */
    bool vmm;        /* slabs are made on memory of vmm_map */
    char *range;     /* reserved addresses for slabs, by their numbers, `step` bytes apart; NULL: there are none */
    size_t step;
    unsigned places; /* slabs that range has addresses for */
    mapping_t *peers;
    size_t npeers, room;
    left_t *left;
    uint64_t used; /* bytes of slots that communicators have */
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

/* ---- slabs ---- */

/* Gives the reserved addresses back, if no slab lies there nor will. */
static void release_range(gpusym_heap_t *heap)
{
    bool used = heap->vmm || NULL == heap->range;
    for (unsigned i = 0; i < heap->nslabs && !used; i++) {
        used = NULL != heap->slab[i].base && heap->slab[i].id.vmm;
    }
    if (!used) {
        heap->dev->vmm_release(heap->gpu, heap->range, heap->step, heap->places);
        heap->range = NULL;
    }
}

static void free_memory(gpusym_heap_t *heap, slab_t *slab)
{
    if (0 != slab->mc.id) {
        heap->dev->mc_free(slab->mc.mc);
        slab->mc.id = 0;
    }
    if (slab->id.vmm && slab->exported) {
        heap->dev->mem_unexport(heap->gpu, &slab->id.handle);
    }
    if (NULL != slab->base && slab->id.vmm) {
        heap->dev->vmm_unmap(heap->gpu, slab->base, heap->step);
    } else if (NULL != slab->base) {
        heap->dev->mem_free(heap->gpu, slab->base);
    }
    if (NULL != slab->base) {
        gpusym_gauge_add(GPUSYM_GAUGE_HEAP, -(int64_t) heap->size);
    }
    slab->base = NULL;
    slab->exported = false;
}

static void free_slab(gpusym_heap_t *heap, slab_t *slab)
{
    free_memory(heap, slab);
    free(slab->slot);
    *slab = (slab_t){.base = NULL};
}

/* Maps memory at the addresses of the next slab. */
static int map_memory(gpusym_heap_t *heap, slab_t *slab)
{
    void *range = NULL;
    int rc = GPUSYM_SUCCESS;
    if (NULL == heap->range) {
        heap->step = heap->size;
        heap->places = heap->most;
        rc = heap->dev->vmm_reserve(heap->gpu, &heap->step, heap->places, &range);
        heap->range = GPUSYM_SUCCESS == rc ? range : NULL;
    }
    char *at = NULL != heap->range ? heap->range + heap->nslabs * heap->step : NULL;
    rc = GPUSYM_SUCCESS == rc ? gpusym_mem_map(heap->dev, heap->gpu, heap->step, at) : rc;
    slab->base = GPUSYM_SUCCESS == rc ? at : NULL;
    return rc;
}

/* After an error the caller frees what there is. */
static int fill_memory(gpusym_heap_t *heap, slab_t *slab)
{
    void *base = NULL;
    slab->id.vmm = heap->vmm;
    int rc = heap->vmm ? map_memory(heap, slab) : gpusym_mem_alloc(heap->dev, heap->gpu, heap->size, &base);
    slab->base = heap->vmm ? slab->base : GPUSYM_SUCCESS == rc ? base : NULL;
    if (GPUSYM_SUCCESS == rc) {
        gpusym_gauge_add(GPUSYM_GAUGE_HEAP, (int64_t) heap->size);
        rc = heap->dev->mem_zero(heap->gpu, slab->base, heap->size);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = heap->dev->mem_export(heap->gpu, slab->base, &slab->id.handle);
        slab->exported = GPUSYM_SUCCESS == rc;
    }
    return rc;
}

static int fill_slab(gpusym_heap_t *heap, slab_t *slab)
{
    if (!gpusym_random(slab->id.nonce, sizeof slab->id.nonce)) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    slab->slot = calloc(count_slots(heap->size) + 1, sizeof *slab->slot);
    if (NULL == slab->slot) {
        gpusym_log_no_memory("the slots of the symmetric heap");
        return GPUSYM_ERR_NO_MEMORY;
    }
    int rc = fill_memory(heap, slab);
    if (GPUSYM_SUCCESS != rc && heap->vmm) {
        GPUSYM_LOG(2, "the symmetric heap is not made of virtual memory, but of memory of cudaMalloc: %s",
                   heap->dev->error());
        heap->vmm = false;
        free_memory(heap, slab);
        release_range(heap);
        rc = fill_memory(heap, slab);
    }
    return rc;
}

/* With the lock held, or before others know of the heap. On error nothing has changed. */
static int add_slab(gpusym_heap_t *heap)
{
    slab_t *slab = &heap->slab[heap->nslabs];
    const int rc = fill_slab(heap, slab);
    if (GPUSYM_SUCCESS != rc) {
        free_slab(heap, slab);
        return rc;
    }
    __atomic_store_n(&heap->nslabs, heap->nslabs + 1, __ATOMIC_RELEASE);
    return GPUSYM_SUCCESS;
}

unsigned gpusym_heap_slabs(gpusym_heap_t *heap)
{
    return __atomic_load_n(&heap->nslabs, __ATOMIC_ACQUIRE);
}

int gpusym_heap_create(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t size, unsigned most, bool vmm,
                       gpusym_heap_t **heap)
{
    gpusym_heap_t *h = calloc(1, sizeof *h);
    if (NULL == h) {
        gpusym_log_no_memory("the symmetric heap");
        return GPUSYM_ERR_NO_MEMORY;
    }
    h->dev = dev;
    h->gpu = gpu;
    h->size = size;
    h->most = most;
    h->vmm = vmm && NULL != dev->vmm_reserve;
    h->epoch_floor = 1;
    const int rc = add_slab(h);
    if (GPUSYM_SUCCESS != rc) {
        free(h);
        return rc;
    }
    pthread_mutex_init(&h->lock, NULL);
    *heap = h;
    return GPUSYM_SUCCESS;
}

static void unmap_peer(gpusym_heap_t *heap, const mapping_t *peer)
{
    heap->dev->mem_unimport(heap->gpu, peer->base);
    gpusym_gauge_add(GPUSYM_GAUGE_MAPPINGS, -1);
    gpusym_gauge_add(GPUSYM_GAUGE_MAPPED, -(int64_t) peer->size);
}

/* Who has a slot: nobody; a communicator; else nobody once all peers have retired the line at that offset. */
#define SLOT_FREE 0u
#define SLOT_TAKEN UINT64_MAX

static bool is_free(uint64_t slot)
{
    return SLOT_FREE == slot || (SLOT_TAKEN != slot && !gpusym_pages_is_in_use(slot));
}

/* Frees the multicast objects that no kernel uses any more, or all. With the lock held. */
static void free_left(gpusym_heap_t *heap, bool all)
{
    left_t **link = &heap->left, *left;
    while (NULL != (left = *link)) {
        if (!all && !is_free(left->line)) {
            link = &left->next;
            continue;
        }
        heap->dev->mc_free(left->mc);
        *link = left->next;
        free(left);
    }
}

void gpusym_heap_destroy(gpusym_heap_t *heap)
{
    if (NULL == heap) {
        return;
    }
    free_left(heap, true);
    for (size_t i = 0; i < heap->npeers; i++) {
        unmap_peer(heap, &heap->peers[i]);
    }
    gpusym_gauge_add(GPUSYM_GAUGE_HEAP_USED, -(int64_t) heap->used);
    for (unsigned i = 0; i < heap->nslabs; i++) {
        free_slab(heap, &heap->slab[i]);
    }
    heap->vmm = false;
    release_range(heap);
    pthread_mutex_destroy(&heap->lock);
    free(heap->peers);
    free(heap);
}

gpusym_gpu_t *gpusym_heap_gpu(const gpusym_heap_t *heap)
{
    return heap->gpu;
}

void gpusym_heap_id(const gpusym_heap_t *heap, unsigned slab, gpusym_heap_id_t *id)
{
    *id = heap->slab[slab].id;
}

/* The mapping of a peer's slab; NULL: there is none. With the lock held. */
static mapping_t *find_peer(gpusym_heap_t *heap, const gpusym_heap_id_t *id)
{
    for (size_t i = 0; i < heap->npeers; i++) {
        if (0 == memcmp(heap->peers[i].nonce, id->nonce, sizeof id->nonce)) {
            return &heap->peers[i];
        }
    }
    return NULL;
}

/* Finds or makes the mapping of a peer's slab. With the lock held. */
static int map_peer(gpusym_heap_t *heap, const gpusym_heap_id_t *id, uint64_t size, void **base)
{
    mapping_t *peer = find_peer(heap, id);
    if (NULL != peer && size > peer->size) {
        return GPUSYM_ERR_CORRUPT;
    }
    if (NULL != peer) {
        peer->users++;
        *base = peer->base;
        return GPUSYM_SUCCESS;
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
    int rc = heap->dev->mem_import(heap->gpu, &id->handle, base);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = gpusym_reg_check(heap->dev, *base, size);
    if (GPUSYM_SUCCESS != rc) {
        heap->dev->mem_unimport(heap->gpu, *base);
        return rc;
    }
    peer = &heap->peers[heap->npeers++];
    *peer = (mapping_t){.base = *base, .size = size, .users = 1};
    memcpy(peer->nonce, id->nonce, sizeof id->nonce);
    gpusym_gauge_add(GPUSYM_GAUGE_MAPPINGS, 1);
    gpusym_gauge_add(GPUSYM_GAUGE_MAPPED, (int64_t) size);
    return GPUSYM_SUCCESS;
}

int gpusym_heap_peer(gpusym_heap_t *heap, const gpusym_heap_id_t *id, uint64_t size, void **base)
{
    for (unsigned i = 0; i < gpusym_heap_slabs(heap); i++) {
        if (0 == memcmp(heap->slab[i].id.nonce, id->nonce, sizeof id->nonce)) {
            *base = heap->slab[i].base;
            return size <= heap->size ? GPUSYM_SUCCESS : GPUSYM_ERR_CORRUPT;
        }
    }
    pthread_mutex_lock(&heap->lock);
    const int rc = map_peer(heap, id, size, base);
    pthread_mutex_unlock(&heap->lock);
    return rc;
}

void gpusym_heap_unpeer(gpusym_heap_t *heap, const gpusym_heap_id_t *id)
{
    pthread_mutex_lock(&heap->lock);
    mapping_t *peer = find_peer(heap, id);
    if (NULL != peer && 0 == --peer->users) {
        unmap_peer(heap, peer);
        *peer = heap->peers[--heap->npeers];
    }
    pthread_mutex_unlock(&heap->lock);
}

/* ---- slots: owners ---- */

/* Finds the first free slot of a size class, and its offset; NULL: there is none. With the lock held. */
static uint64_t *find_free(gpusym_heap_t *heap, const slab_t *slab, unsigned size_class, uint64_t *off)
{
    uint64_t *slot = slab->slot;
    for (unsigned c = 0; c < size_class; c++) {
        slot += gpusym_slot_count(heap->size, c);
    }
    for (uint32_t i = 0; i < gpusym_slot_count(heap->size, size_class); i++) {
        if (is_free(slot[i])) {
            *off = class_off(heap->size, size_class) + i * gpusym_slot_size(heap->size, size_class);
            return &slot[i];
        }
    }
    return NULL;
}

/* The largest class of which a slab has a free slot; GPUSYM_SLOT_CLASSES: none. With the lock held. */
static unsigned find_largest(gpusym_heap_t *heap, const slab_t *slab)
{
    uint64_t off;
    unsigned c = 0;
    while (c < GPUSYM_SLOT_CLASSES && NULL == find_free(heap, slab, c, &off)) {
        c++;
    }
    return c;
}

/* The largest class that a slab has at all. */
static unsigned top_class(uint64_t heap_size)
{
    unsigned c = 0;
    while (c < GPUSYM_SLOT_CLASSES && 0 == gpusym_slot_count(heap_size, c)) {
        c++;
    }
    return c;
}

/* Frees the memory of slabs that are not offered any more, where nobody has a slot of it. With the lock held. */
static void free_refused(gpusym_heap_t *heap)
{
    for (unsigned i = 0; i < heap->first; i++) {
        uint32_t s = 0, n = count_slots(heap->size);
        while (s < n && is_free(heap->slab[i].slot[s])) {
            s++;
        }
        if (s == n) {
            free_memory(heap, &heap->slab[i]);
        }
    }
    release_range(heap);
}

void gpusym_heap_refuse_vmm(gpusym_heap_t *heap)
{
    pthread_mutex_lock(&heap->lock);
    heap->vmm = false;
    for (unsigned i = heap->first; i < heap->nslabs; i++) {
        heap->first = heap->slab[i].id.vmm ? i + 1 : heap->first;
    }
    free_refused(heap);
    pthread_mutex_unlock(&heap->lock);
}

/* Returns the number of slabs if none is left. spares: another slab is made only where none has a slot. With the lock
 * held. */
static unsigned choose_slab(gpusym_heap_t *heap, bool spares)
{
    const unsigned least = spares ? GPUSYM_SLOT_CLASSES - 1 : top_class(heap->size);
    unsigned best = heap->nslabs, class = GPUSYM_SLOT_CLASSES + 1;
    free_refused(heap);
    for (unsigned i = heap->first; i < heap->nslabs; i++) {
        const unsigned c = find_largest(heap, &heap->slab[i]);
        if (c < class) {
            class = c;
            best = i;
        }
    }
    if (class > least && heap->nslabs - heap->first < heap->most && heap->nslabs < GPUSYM_SLABS_MAX) {
        if (GPUSYM_SUCCESS == add_slab(heap)) {
            return heap->nslabs - 1;
        }
        GPUSYM_LOG(2, "the symmetric heap cannot have %u slabs of %lu bytes: %s", heap->nslabs + 1,
                   (unsigned long) heap->size, heap->dev->error());
        heap->most = heap->nslabs - heap->first;
    }
    return best;
}

static void count_used(gpusym_heap_t *heap, int64_t bytes)
{
    heap->used += (uint64_t) bytes;
    gpusym_gauge_add(GPUSYM_GAUGE_HEAP_USED, bytes);
}

/* Finds who has the slot at off, and its size; NULL: no slot begins there. */
static uint64_t *slot_at(gpusym_heap_t *heap, uint64_t slab, uint64_t off, uint64_t *size)
{
    uint64_t at = 0;
    uint64_t *slot = heap->slab[slab].slot;
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        for (uint32_t i = 0; i < gpusym_slot_count(heap->size, c); i++, at += gpusym_slot_size(heap->size, c), slot++) {
            if (at == off) {
                *size = gpusym_slot_size(heap->size, c);
                return slot;
            }
        }
    }
    return NULL;
}

static void release_slot(gpusym_heap_t *heap, uint64_t slab, uint64_t off, uint64_t line)
{
    uint64_t size, *slot = slot_at(heap, slab, off, &size);
    if (NULL != slot) {
        *slot = line;
        count_used(heap, -(int64_t) size);
    }
}

/* With the lock held. */
static void reserve(gpusym_heap_t *heap, uint64_t slab, gpusym_slot_offer_t *offer)
{
    const bool there = slab < heap->nslabs;
    offer->slab = there ? slab : 0;
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        uint64_t *slot = there ? find_free(heap, &heap->slab[slab], c, &offer->off[c]) : NULL;
        if (NULL == slot) {
            offer->off[c] = GPUSYM_SLOT_NONE;
        } else {
            *slot = SLOT_TAKEN;
            count_used(heap, (int64_t) gpusym_slot_size(heap->size, c));
        }
    }
}

static void offer_slot(gpusym_heap_t *heap, bool spares, gpusym_slot_offer_t *offer)
{
    pthread_mutex_lock(&heap->lock);
    free_left(heap, false);
    reserve(heap, choose_slab(heap, spares), offer);
    pthread_mutex_unlock(&heap->lock);
}

void gpusym_heap_slot_offer(gpusym_heap_t *heap, gpusym_slot_offer_t *offer)
{
    offer_slot(heap, false, offer);
}

void gpusym_heap_slot_offer_sparing(gpusym_heap_t *heap, gpusym_slot_offer_t *offer)
{
    offer_slot(heap, true, offer);
}

void gpusym_heap_slot_offer_of(gpusym_heap_t *heap, uint64_t slab, gpusym_slot_offer_t *offer)
{
    pthread_mutex_lock(&heap->lock);
    reserve(heap, slab, offer);
    pthread_mutex_unlock(&heap->lock);
}

void gpusym_heap_slot_settle(gpusym_heap_t *heap, const gpusym_slot_offer_t *offer, int keep)
{
    pthread_mutex_lock(&heap->lock);
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        if ((int) c != keep && GPUSYM_SLOT_NONE != offer->off[c]) {
            release_slot(heap, offer->slab, offer->off[c], SLOT_FREE);
        }
    }
    pthread_mutex_unlock(&heap->lock);
}

void gpusym_heap_slot_free(gpusym_heap_t *heap, uint64_t slab, uint64_t off, uint32_t epoch, uint64_t line)
{
    pthread_mutex_lock(&heap->lock);
    release_slot(heap, slab, off, line);
    if (epoch > heap->epoch_floor) {
        heap->epoch_floor = epoch;
    }
    pthread_mutex_unlock(&heap->lock);
}

void gpusym_heap_mc_free(gpusym_heap_t *heap, gpusym_mc_t *mc, uint64_t line)
{
    left_t *left = malloc(sizeof *left);
    pthread_mutex_lock(&heap->lock);
    if (NULL != left) { /* else it stays until the device is closed */
        *left = (left_t){.next = heap->left, .mc = mc, .line = line};
        heap->left = left;
    }
    pthread_mutex_unlock(&heap->lock);
}

void gpusym_heap_mc_sweep(gpusym_heap_t *heap)
{
    pthread_mutex_lock(&heap->lock);
    free_left(heap, false);
    pthread_mutex_unlock(&heap->lock);
}

bool gpusym_heap_mc_keep(gpusym_heap_t *heap, uint64_t slab, const gpusym_heap_mc_t *mc)
{
    pthread_mutex_lock(&heap->lock);
    const bool kept = 0 != mc->id && 0 == heap->slab[slab].mc.id;
    if (kept) {
        heap->slab[slab].mc = *mc;
    }
    pthread_mutex_unlock(&heap->lock);
    return kept;
}

void gpusym_heap_mc_get(gpusym_heap_t *heap, uint64_t slab, gpusym_heap_mc_t *mc)
{
    pthread_mutex_lock(&heap->lock);
    *mc = heap->slab[slab].mc;
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
