/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of our buffers and the mappings of our peers': see reg.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/memory/reg.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mca/common/gpusym/lock.h"
#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/shm/gauges.h"
#include "mca/common/gpusym/trace.h"

unsigned gpusym_reg_limit = GPUSYM_REG_MAX;
bool gpusym_reg_parts = true;

bool gpusym_reg_allows(const gpusym_range_t *range)
{
    return range->shareable && (gpusym_reg_parts || !range->part);
}

/* ---- the table, in shared pages ---- */

/* An entry. Its owner writes it, peers read it. Whole cache lines. */
typedef struct {
    uint64_t generation; /* 0: the entry is empty. Else unique among all entries of all processes; written last */
    uint64_t size;       /* bytes of the allocation */
    gpusym_handle_t handle;
    uint64_t check; /* of all fields above, see check_of */
    uint8_t pad[8];
} entry_t;

typedef struct {
    uint64_t changes; /* counts removed entries: peers search the table only when it has changed */
    uint8_t pad[120];
    entry_t entry[GPUSYM_REG_MAX];
} table_t;
_Static_assert(GPUSYM_AREA_REG + sizeof(table_t) <= GPUSYM_AREA_REG_LAST + 1u, "the table does not fit into its place");
_Static_assert(0 == sizeof(entry_t) % 64, "entries do not share cache lines");

/* FNV-1a of an entry's fields: peers map nothing by an overwritten entry. */
static uint64_t check_of(uint64_t generation, uint64_t size, const gpusym_handle_t *handle)
{
    uint64_t check = ((0xcbf29ce484222325ull ^ generation) * 0x100000001b3ull ^ size) * 0x100000001b3ull;
    for (size_t i = 0; i < sizeof handle->bytes; i++) {
        check = (check ^ handle->bytes[i]) * 0x100000001b3ull;
    }
    return check;
}

/* A key: the low 24 bits of the generation, not all zero, and 8 of the index. Generations are compared in full. */
#define KEY_INDEX 0xffu
#define KEY_BITS 24
_Static_assert(GPUSYM_REG_MAX == KEY_INDEX + 1, "a key has room for every index, and each is one");

static uint32_t key_make(uint64_t generation, unsigned index)
{
    return (uint32_t) (generation << 8) | index;
}

static bool key_fits(uint32_t key, uint64_t generation)
{
    return 0 != generation && key >> 8 == (generation & ((1u << KEY_BITS) - 1));
}

static bool key_valid(uint32_t key)
{
    return 0 != key >> 8;
}

/* ---- the owner's side ---- */

/* The owner's record of an entry. */
typedef struct {
    bool live;           /* in the table. Not live, but pinned: the buffer is gone, uses remain */
    bool exported;       /* as handle, until mem_unexport, which waits until the record is neither live nor pinned */
    uint32_t pins;       /* uses between gpusym_reg_get and gpusym_reg_put */
    uint64_t generation; /* of its key */
    uint64_t used;       /* the time of its last use, in uses */
    void *base;
    uint64_t size;
    gpusym_gpu_t *gpu;
    gpusym_handle_t handle;
} record_t;

/* Entries that a new buffer checks for freed allocations: about 0.2 us each. */
#define CHECKS 64u
/* Number of hints. */
#define HINTS 512u

/* Number of allocations remembered that could not be exported, so that calls do not retry them. */
#define REFUSED 8u

static struct {
    pthread_mutex_t lock; /* covers all of this, and writes to the table */
    uint64_t generation;  /* the last one used; 0: none yet */
    uint64_t uses;
    uint8_t hint[HINTS];         /* by hint_of(id): the entry that a search tries first */
    unsigned next_check;         /* the entry at which the next search for freed buffers begins */
    uint64_t id[GPUSYM_REG_MAX]; /* of the allocations, close together for the search; valid where live */
    record_t record[GPUSYM_REG_MAX];
    uint64_t refused[REFUSED];
    unsigned nrefused;
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};

static table_t *own_table(void)
{
    return gpusym_pages_area(GPUSYM_AREA_REG);
}

/* Returns the next generation. The first one is random, so that a peer that still knows a table from before
 * gpusym_pages_close, or of an earlier process, mistakes no entry of this table for one of those. */
static uint64_t generation_next(void)
{
    if (0 == own.generation && !gpusym_random(&own.generation, sizeof own.generation)) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        own.generation = (uint64_t) now.tv_sec << 32 ^ (uint64_t) now.tv_nsec;
    }
    do {
        own.generation++;
    } while (0 == (own.generation & ((1u << KEY_BITS) - 1)));
    return own.generation;
}

/* Fills the empty entry i for peers. */
static void publish_entry(unsigned i, uint64_t generation, uint64_t size, const gpusym_handle_t *handle)
{
    entry_t *entry = &own_table()->entry[i];
    entry->size = size;
    entry->handle = *handle;
    entry->check = check_of(generation, size, handle);
    /* Release: a peer that reads the generation reads the fields that belong to it. */
    __atomic_store_n(&entry->generation, generation, __ATOMIC_RELEASE);
}

/* Empties entry i. Its record stays while it is pinned, which keeps the index from reuse. */
static void retire_entry(unsigned i)
{
    table_t *table = own_table();
    own.record[i].live = false;
    if (NULL == table) {
        return;
    }
    __atomic_store_n(&table->entry[i].generation, 0, __ATOMIC_RELAXED);
    /* A peer that copies the entry meanwhile sees it empty before it is filled again. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&table->changes, table->changes + 1, __ATOMIC_RELEASE);
}

/* Ends the export of a record; the device's errors are ignored. Returns how many exports ended: 0 or 1. */
static unsigned unexport_entry(const gpusym_device_t *dev, unsigned i)
{
    record_t *record = &own.record[i];
    if (!record->exported) {
        return 0;
    }
    record->exported = false;
    dev->mem_unexport(record->gpu, &record->handle);
    return 1;
}

/* Ends the exports of records that are neither live nor pinned. Returns how many. */
static unsigned unexport_retired(const gpusym_device_t *dev)
{
    unsigned ended = 0;
    for (unsigned i = 0; i < GPUSYM_REG_MAX; i++) {
        if (!own.record[i].live && 0 == own.record[i].pins) {
            ended += unexport_entry(dev, i);
        }
    }
    return ended;
}

/* Returns whether record i is of allocation id. range: as the device describes it now, NULL: not known. The same memory
 * may be mapped at another address than before, or at several. */
static bool entry_matches(unsigned i, uint64_t id, const gpusym_range_t *range)
{
    const record_t *record = &own.record[i];
    return own.id[i] == id && record->live &&
           (NULL == range || (record->base == range->base && record->size == range->size));
}

/* Returns where the index of an allocation's entry is noted. Ids are counted or addresses of whole pages. */
static uint8_t *hint_of(uint64_t id)
{
    return &own.hint[(id * 0x9e3779b97f4a7c15ull >> 32) % HINTS];
}

/* Returns the live entry of allocation id, or GPUSYM_REG_MAX. */
static unsigned find_entry(uint64_t id, const gpusym_range_t *range)
{
    const unsigned hint = *hint_of(id);
    if (entry_matches(hint, id, range)) {
        return hint;
    }
    for (unsigned i = 0; i < GPUSYM_REG_MAX; i++) {
        if (entry_matches(i, id, range)) {
            return i;
        }
    }
    return GPUSYM_REG_MAX;
}

/* Drops the entries whose allocation is gone, except those in use: a program that frees a buffer during a call is
 * erroneous, and its peers' mappings stay. checks: of how many live entries, from the one on at which the last search
 * ended. Returns how many exports ended. */
static unsigned drop_freed(const gpusym_device_t *dev, unsigned checks)
{
    for (unsigned n = 0; n < GPUSYM_REG_MAX && 0 != checks; n++) {
        gpusym_range_t now;
        const unsigned i = own.next_check;
        own.next_check = (i + 1) % GPUSYM_REG_MAX;
        checks -= own.record[i].live ? 1 : 0;
        if (own.record[i].live && 0 == own.record[i].pins &&
            (GPUSYM_SUCCESS != dev->mem_range(own.record[i].base, &now) || !entry_matches(i, now.id, &now))) {
            retire_entry(i);
        }
    }
    return unexport_retired(dev);
}

/* Drops entries that overlap a new one: their memory has been freed, in use or not. */
static void drop_overlapping(const gpusym_range_t *range)
{
    const uintptr_t start = (uintptr_t) range->base, end = start + range->size;
    for (unsigned i = 0; i < GPUSYM_REG_MAX; i++) {
        const uintptr_t base = (uintptr_t) own.record[i].base;
        if (own.record[i].live && base < end && start < base + own.record[i].size) {
            retire_entry(i);
        }
    }
}

/* Returns an index for a new entry, within the limit; GPUSYM_REG_MAX: all are in use. */
static unsigned make_room(void)
{
    const unsigned limit = gpusym_reg_limit < GPUSYM_REG_MAX ? gpusym_reg_limit : GPUSYM_REG_MAX;
    for (;;) {
        unsigned taken = 0, oldest = GPUSYM_REG_MAX, empty = GPUSYM_REG_MAX;
        for (unsigned i = 0; i < GPUSYM_REG_MAX; i++) {
            const record_t *record = &own.record[i];
            if (!record->live && 0 == record->pins) {
                empty = i < empty ? i : empty;
                continue;
            }
            taken++;
            if (0 == record->pins && (GPUSYM_REG_MAX == oldest || record->used < own.record[oldest].used)) {
                oldest = i;
            }
        }
        if (taken < limit) {
            return empty;
        }
        if (GPUSYM_REG_MAX == oldest) {
            return GPUSYM_REG_MAX;
        }
        retire_entry(oldest);
    }
}

static bool is_refused(uint64_t id)
{
    for (unsigned i = 0; i < own.nrefused && i < REFUSED; i++) {
        if (own.refused[i] == id) {
            return true;
        }
    }
    return false;
}

/* Makes an entry for a buffer that has none, and gets its index. */
static int make_entry(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_range_t *range, unsigned *index)
{
    gpusym_handle_t handle;
    if (is_refused(range->id)) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    (void) drop_freed(dev, CHECKS);
    drop_overlapping(range);
    const unsigned i = make_room();
    if (GPUSYM_REG_MAX == i) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    (void) unexport_entry(dev, i);
    const int rc = dev->mem_export(gpu, range->base, &handle);
    GPUSYM_TRACE(EXPORT, range->size, GPUSYM_SUCCESS == rc);
    if (GPUSYM_SUCCESS != rc) {
        if (GPUSYM_ERR_UNREACHABLE == rc) {
            own.refused[own.nrefused++ % REFUSED] = range->id;
        }
        return rc;
    }
    own.id[i] = range->id;
    own.record[i] = (record_t){.live = true,
                               .exported = true,
                               .generation = generation_next(),
                               .base = range->base,
                               .size = range->size,
                               .gpu = gpu,
                               .handle = handle};
    publish_entry(i, own.record[i].generation, range->size, &handle);
    *index = i;
    return GPUSYM_SUCCESS;
}

int gpusym_reg_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const void *p, uint64_t bytes, uint32_t *key,
                   uint64_t *off)
{
    gpusym_range_t range;
    if (0 == gpusym_reg_limit || NULL == own_table()) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    int rc = dev->mem_range(p, &range);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    *off = (uint64_t) ((uintptr_t) p - (uintptr_t) range.base);
    if (!gpusym_reg_allows(&range) || *off > range.size || bytes > range.size - *off) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    gpusym_lock(&own.lock);
    unsigned i = find_entry(range.id, &range);
    if (GPUSYM_REG_MAX == i) {
        rc = make_entry(dev, gpu, &range, &i);
    }
    if (GPUSYM_SUCCESS == rc) {
        *hint_of(range.id) = (uint8_t) i;
        own.record[i].pins++;
        own.record[i].used = ++own.uses;
        *key = key_make(own.record[i].generation, i);
    }
    gpusym_unlock(&own.lock);
    return rc;
}

bool gpusym_reg_find(uint64_t id, const void *p, uint64_t bytes, uint32_t *key, uint64_t *off)
{
    bool found = false;
    if (0 == id || 0 == gpusym_reg_limit) {
        return false;
    }
    gpusym_lock(&own.lock);
    const unsigned i = find_entry(id, NULL);
    if (GPUSYM_REG_MAX != i) {
        record_t *record = &own.record[i];
        *off = (uint64_t) ((uintptr_t) p - (uintptr_t) record->base);
        found = *off <= record->size && bytes <= record->size - *off;
        if (found) {
            record->pins++;
            record->used = ++own.uses;
            *key = key_make(record->generation, i);
        }
    }
    gpusym_unlock(&own.lock);
    return found;
}

void gpusym_reg_put(uint32_t key)
{
    record_t *record = &own.record[key & KEY_INDEX];
    gpusym_lock(&own.lock);
    if (key_valid(key) && key_fits(key, record->generation) && 0 != record->pins) {
        record->pins--;
    }
    gpusym_unlock(&own.lock);
}

/* Gets the memory of an own key. False: the table has no such entry for that GPU. */
static bool own_base(gpusym_gpu_t *gpu, uint32_t key, void **base, uint64_t *size)
{
    const record_t *record = &own.record[key & KEY_INDEX];
    gpusym_lock(&own.lock);
    const bool found = record->live && key_fits(key, record->generation) && record->gpu == gpu;
    if (found) {
        *base = record->base;
        *size = record->size;
    }
    gpusym_unlock(&own.lock);
    return found;
}

/* ---- the peers' side ---- */

/* An entry of a peer's table as it is mapped here. */
typedef struct {
    uint64_t generation; /* 0: nothing is mapped */
    void *base;          /* NULL: it could not be mapped, and is not retried */
    uint64_t size;       /* bytes */
} mapping_t;

/* A peer's table as one of our GPUs uses it. */
typedef struct view {
    struct view *next;
    const gpusym_peer_t *peer;
    gpusym_gpu_t *gpu;
    table_t *table;   /* the peer's */
    uint64_t changes; /* its count of changes up to which no mapping here is outdated */
    mapping_t mapping[GPUSYM_REG_MAX];
} view_t;

static struct {
    pthread_mutex_t lock; /* covers all of this. Held while a buffer is mapped, so that each is mapped once */
    view_t *views;
} remote = {.lock = PTHREAD_MUTEX_INITIALIZER};

static view_t *view_find(const gpusym_peer_t *peer, const gpusym_gpu_t *gpu)
{
    view_t *view = remote.views;
    while (NULL != view && (view->peer != peer || view->gpu != gpu)) {
        view = view->next;
    }
    return view;
}

static view_t *view_make(gpusym_peer_t *peer, gpusym_gpu_t *gpu)
{
    view_t *view = calloc(1, sizeof *view);
    if (NULL == view) {
        gpusym_log_no_memory("the mappings of a peer's buffers");
    } else {
        view->peer = peer;
        view->gpu = gpu;
        view->table = gpusym_peer_area(peer, GPUSYM_AREA_REG);
        view->next = remote.views;
        remote.views = view;
    }
    return view;
}

/* Ends a mapping. Returns how many ended: 0 or 1. */
static unsigned unmap_entry(const gpusym_device_t *dev, const view_t *view, mapping_t *mapping)
{
    const bool mapped = NULL != mapping->base;
    if (mapped) {
        GPUSYM_TRACE(UNMAP, mapping->size, 0);
        gpusym_gauge_add(GPUSYM_GAUGE_MAPPINGS, -1);
        gpusym_gauge_add(GPUSYM_GAUGE_MAPPED, -(int64_t) mapping->size);
        dev->mem_unimport(view->gpu, mapping->base);
    }
    *mapping = (mapping_t){0, NULL, 0};
    return mapped ? 1 : 0;
}

/* Unmaps what a peer's table no longer lists; no call uses it. Returns how many mappings ended. */
static unsigned view_sweep(const gpusym_device_t *dev, view_t *view)
{
    unsigned ended = 0;
    const uint64_t changes = __atomic_load_n(&view->table->changes, __ATOMIC_ACQUIRE);
    if (changes == view->changes) {
        return 0;
    }
    for (unsigned i = 0; i < GPUSYM_REG_MAX; i++) {
        if (0 != view->mapping[i].generation &&
            view->mapping[i].generation != __atomic_load_n(&view->table->entry[i].generation, __ATOMIC_ACQUIRE)) {
            ended += unmap_entry(dev, view, &view->mapping[i]);
        }
    }
    view->changes = changes;
    return ended;
}

/* Does so for all peers: the driver may refuse a mapping while an outdated one has its place. */
static unsigned sweep_views(const gpusym_device_t *dev)
{
    unsigned ended = 0;
    for (view_t *view = remote.views; NULL != view; view = view->next) {
        ended += view_sweep(dev, view);
    }
    return ended;
}

/* Copies an entry that has this generation. GPUSYM_ERR_UNREACHABLE: it has changed meanwhile; GPUSYM_ERR_CORRUPT. */
static int entry_read(const entry_t *entry, uint64_t generation, gpusym_handle_t *handle, uint64_t *size)
{
    *handle = entry->handle;
    *size = entry->size;
    const uint64_t check = entry->check;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (__atomic_load_n(&entry->generation, __ATOMIC_RELAXED) != generation) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    return check_of(generation, *size, handle) == check ? GPUSYM_SUCCESS : GPUSYM_ERR_CORRUPT;
}

int gpusym_reg_check(const gpusym_device_t *dev, const void *base, uint64_t size)
{
    gpusym_range_t range;
    if (GPUSYM_SUCCESS != dev->mem_range(base, &range)) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    const uint64_t off = (uint64_t) ((uintptr_t) base - (uintptr_t) range.base);
    return off <= range.size && size <= range.size - off ? GPUSYM_SUCCESS : GPUSYM_ERR_CORRUPT;
}

/* Maps the entry that has this generation, in place of an outdated mapping. */
static int map_entry(const gpusym_device_t *dev, view_t *view, unsigned index, uint64_t generation)
{
    mapping_t *mapping = &view->mapping[index];
    gpusym_handle_t handle;
    void *base = NULL;
    uint64_t size;
    int rc = entry_read(&view->table->entry[index], generation, &handle, &size);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    (void) sweep_views(dev);
    (void) unmap_entry(dev, view, mapping);
    rc = dev->mem_import(view->gpu, &handle, &base);
    GPUSYM_TRACE(MAP, size, GPUSYM_SUCCESS == rc);
    if (GPUSYM_SUCCESS == rc) {
        gpusym_gauge_add(GPUSYM_GAUGE_MAPPINGS, 1);
        gpusym_gauge_add(GPUSYM_GAUGE_MAPPED, (int64_t) size);
        *mapping = (mapping_t){generation, base, size};
        rc = gpusym_reg_check(dev, base, size);
        if (GPUSYM_SUCCESS == rc) {
            return rc;
        }
        (void) unmap_entry(dev, view, mapping);
    }
    if (GPUSYM_ERR_CORRUPT == rc) {
        return rc;
    }
    if (GPUSYM_ERR_NO_MEMORY != rc) {
        *mapping = (mapping_t){generation, NULL, 0};
        rc = GPUSYM_ERR_UNREACHABLE;
    }
    return rc;
}

/* Finds or makes the mapping of a valid key. With the lock held. */
static int find_or_map(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_peer_t *peer, uint32_t key, void **base,
                       uint64_t *size)
{
    view_t *view = view_find(peer, gpu);
    if (NULL == view && NULL == (view = view_make(peer, gpu))) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    const unsigned index = key & KEY_INDEX;
    const uint64_t generation = __atomic_load_n(&view->table->entry[index].generation, __ATOMIC_ACQUIRE);
    if (!key_fits(key, generation)) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    if (view->mapping[index].generation != generation) {
        const int rc = map_entry(dev, view, index, generation);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
    }
    *base = view->mapping[index].base;
    *size = view->mapping[index].size;
    return NULL != *base ? GPUSYM_SUCCESS : GPUSYM_ERR_UNREACHABLE;
}

int gpusym_reg_map(const gpusym_device_t *dev, gpusym_gpu_t *gpu, gpusym_peer_t *peer, uint32_t key, void **base,
                   uint64_t *size)
{
    if (!key_valid(key)) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    if (gpusym_peer_area(peer, GPUSYM_AREA_REG) == own_table() && own_base(gpu, key, base, size)) {
        return GPUSYM_SUCCESS;
    }
    gpusym_lock(&remote.lock);
    const int rc = find_or_map(dev, gpu, peer, key, base, size);
    gpusym_unlock(&remote.lock);
    return rc;
}

/* ---- both ---- */

unsigned gpusym_reg_sweep(const gpusym_device_t *dev)
{
    gpusym_lock(&own.lock);
    unsigned ended = drop_freed(dev, GPUSYM_REG_MAX);
    gpusym_unlock(&own.lock);
    gpusym_lock(&remote.lock);
    ended += sweep_views(dev);
    gpusym_unlock(&remote.lock);
    return ended;
}

void gpusym_reg_close(const gpusym_device_t *dev)
{
    gpusym_lock(&own.lock);
    for (unsigned i = 0; i < GPUSYM_REG_MAX; i++) {
        if (own.record[i].live) {
            retire_entry(i);
        }
        (void) unexport_entry(dev, i);
        own.record[i] = (record_t){.live = false};
    }
    own.nrefused = 0;
    gpusym_unlock(&own.lock);

    gpusym_lock(&remote.lock);
    while (NULL != remote.views) {
        view_t *view = remote.views;
        remote.views = view->next;
        for (unsigned i = 0; i < GPUSYM_REG_MAX; i++) {
            (void) unmap_entry(dev, view, &view->mapping[i]);
        }
        free(view);
    }
    gpusym_unlock(&remote.lock);
}
