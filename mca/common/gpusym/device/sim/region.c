/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Regions: what the simulator knows of memory, by address.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim_internal.h"
#include "mca/common/gpusym/sanitizers.h"

/* ---- one region ---- */

sim_region_t *sim_region_new(sim_region_kind_t kind, size_t size)
{
    sim_region_t *region = calloc(1, sizeof(*region));
    if (NULL == region) {
        sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
        return NULL;
    }
    static uint64_t numbers; /* atomic */
    region->kind = kind;
    region->pins = 1;
    region->number = 1 + __atomic_fetch_add(&numbers, 1, __ATOMIC_RELAXED);
    region->size = size;
    region->fd = -1;
    return region;
}

/* Bytes between the region's end and its last page's. */
static size_t tail_size(const sim_region_t *region)
{
    return sim_round_up(region->size, sim_page_size()) - region->size;
}

static void region_pin(sim_region_t *region)
{
    __atomic_fetch_add(&region->pins, 1, __ATOMIC_RELAXED);
}

void sim_region_unpin(sim_region_t *region)
{
    if (1 != __atomic_fetch_sub(&region->pins, 1, __ATOMIC_ACQ_REL)) {
        return;
    }
    if (NULL != region->release) {
        region->release(region);
    }
    if ((SIM_REGION_HOST == region->kind || SIM_REGION_MANAGED == region->kind) && NULL != region->base) {
        GPUSYM_UNPOISON(region->base + region->size, tail_size(region));
        free(region->base);
    }
    if (SIM_REGION_OWN == region->kind || SIM_REGION_VMM == region->kind || SIM_REGION_POOL == region->kind) {
        sim_bytes_give(region->size);
    }
    if (NULL != region->map) {
        if (NULL != region->alias) {
            GPUSYM_UNPOISON(region->alias + region->size, tail_size(region));
        }
        munmap(region->map, region->map_size);
    }
    if (region->fd >= 0) {
        close(region->fd);
    }
    free(region);
}

int sim_region_reserve(sim_region_t *region, bool alias)
{
    size_t half = sim_round_up(region->size, sim_page_size()) + sim_page_size();
    size_t all = alias && !region->placed ? 2 * half : half;
    void *map = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (MAP_FAILED == map) {
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "mapping %zu bytes: %s", all, strerror(errno));
    }
    region->map = map;
    region->map_size = all;
    region->alias = alias ? region->map + (all - half) : NULL;
    if (!region->placed) {
        region->base = map;
    }
    return GPUSYM_SUCCESS;
}

/* Under ASan, what lies between the region's end and its last page's is
 * poisoned, so that a kernel that runs over the end is found. */
int sim_region_map(sim_region_t *region, int fd)
{
    size_t page = sim_page_size(), length = sim_round_up(region->size, page);
    int rc = sim_region_reserve(region, true);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (MAP_FAILED == mmap(region->base, length, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, (off_t) page) ||
        MAP_FAILED == mmap(region->alias, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t) page)) {
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "mapping %zu bytes: %s", region->size, strerror(errno));
    }
    GPUSYM_POISON(region->alias + region->size, tail_size(region));
    return GPUSYM_SUCCESS;
}

int sim_region_import(const sim_handle_t *handle, sim_region_t **out)
{
    int fd;
    int rc = sim_shared_open(handle, &fd);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    sim_region_t *region = sim_region_new(SIM_REGION_IMPORTED, handle->id.size);
    rc = NULL == region ? GPUSYM_ERR_NO_MEMORY : sim_region_map(region, fd);
    close(fd);
    if (GPUSYM_SUCCESS != rc) {
        if (NULL != region) {
            sim_region_unpin(region);
        }
        return rc;
    }
    *out = region;
    return GPUSYM_SUCCESS;
}

/* ---- the table of regions ---- */

struct entry {
    uintptr_t start, end; /* [start, end) */
    sim_region_t *region;
};

/* Regions by address, ascending. */
static struct {
    pthread_rwlock_t lock; /* covers the rest; held for a look-up or a change, never for a wait */
    struct entry *entry;
    size_t n, room;
} table = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* The index of the first entry that starts after p. */
static size_t table_after(uintptr_t p)
{
    size_t low = 0, high = table.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table.entry[middle].start <= p) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The region that p lies in, or NULL; the caller holds the lock. */
static sim_region_t *table_find(const void *p)
{
    size_t i = table_after((uintptr_t) p);
    return 0 != i && (uintptr_t) p < table.entry[i - 1].end ? table.entry[i - 1].region : NULL;
}

sim_region_t *sim_table_pin(const void *p)
{
    pthread_rwlock_rdlock(&table.lock);
    sim_region_t *region = table_find(p);
    if (NULL != region) {
        region_pin(region);
    }
    pthread_rwlock_unlock(&table.lock);
    return region;
}

int sim_table_insert(sim_region_t *region)
{
    int rc = GPUSYM_SUCCESS;
    pthread_rwlock_wrlock(&table.lock);
    if (table.n == table.room) {
        size_t room = 0 == table.room ? 64 : 2 * table.room;
        struct entry *entry = realloc(table.entry, room * sizeof(*entry));
        if (NULL == entry) {
            rc = sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
            goto unlock;
        }
        table.entry = entry;
        table.room = room;
    }
    uintptr_t start = (uintptr_t) region->base;
    size_t i = table_after(start);
    memmove(&table.entry[i + 1], &table.entry[i], (table.n - i) * sizeof(table.entry[0]));
    table.entry[i] = (struct entry){.start = start, .end = start + region->size, .region = region};
    table.n++;
unlock:
    pthread_rwlock_unlock(&table.lock);
    return rc;
}

int sim_table_remove(const void *base, sim_region_kind_t kind)
{
    pthread_rwlock_wrlock(&table.lock);
    size_t i = table_after((uintptr_t) base);
    sim_region_t *region = 0 == i ? NULL : table.entry[i - 1].region;
    if (NULL == region || region->base != base || region->kind != kind) {
        pthread_rwlock_unlock(&table.lock);
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "%p is not the start of memory that could be freed this way", base);
    }
    memmove(&table.entry[i - 1], &table.entry[i], (table.n - i) * sizeof(table.entry[0]));
    table.n--;
    pthread_rwlock_unlock(&table.lock);
    sim_region_unpin(region);
    return GPUSYM_SUCCESS;
}

void sim_table_clear(void)
{
    pthread_rwlock_wrlock(&table.lock);
    struct entry *entry = table.entry;
    size_t n = table.n;
    table.entry = NULL;
    table.n = table.room = 0;
    pthread_rwlock_unlock(&table.lock);
    for (size_t i = 0; i < n; i++) {
        sim_region_unpin(entry[i].region);
    }
    free(entry);
}

/* ---- pointers ---- */

void sim_query(const void *p, gpusym_mem_t *mem)
{
    static const gpusym_mem_kind_t kinds[] = {
        [SIM_REGION_OWN] = GPUSYM_MEM_DEVICE,       [SIM_REGION_VMM] = GPUSYM_MEM_DEVICE,
        [SIM_REGION_POOL] = GPUSYM_MEM_DEVICE,      [SIM_REGION_IMPORTED] = GPUSYM_MEM_DEVICE,
        [SIM_REGION_HOST] = GPUSYM_MEM_REGISTERED,  [SIM_REGION_MANAGED] = GPUSYM_MEM_MANAGED,
        [SIM_REGION_MULTICAST] = GPUSYM_MEM_DEVICE, [SIM_REGION_REGISTERED] = GPUSYM_MEM_REGISTERED,
    };
    *mem = (gpusym_mem_t){.kind = GPUSYM_MEM_HOST, .gpu = -1, .context = NULL};
    if (NULL == p || !__atomic_load_n(&sim.opened, __ATOMIC_ACQUIRE)) {
        return;
    }
    if (sim.host) {
        mem->kind = GPUSYM_MEM_DEVICE;
        mem->gpu = 0;
        return;
    }
    pthread_rwlock_rdlock(&table.lock);
    const sim_region_t *region = table_find(p);
    if (NULL != region) {
        mem->kind = kinds[region->kind];
        mem->gpu = 0;
        mem->id = SIM_REGION_OWN == region->kind ? region->number : 0;
    }
    pthread_rwlock_unlock(&table.lock);
}

/* Under sim_params.host, memory that is not the simulator's is device memory, but in no allocation that is known. */
int sim_mem_range(const void *p, gpusym_range_t *range)
{
    pthread_rwlock_rdlock(&table.lock);
    const sim_region_t *region = table_find(p);
    if (NULL != region) {
        *range = (gpusym_range_t){.base = region->base,
                                  .size = region->size,
                                  .id = region->number,
                                  .shareable = SIM_REGION_OWN == region->kind || SIM_REGION_VMM == region->kind};
    }
    pthread_rwlock_unlock(&table.lock);
    return NULL != region ? GPUSYM_SUCCESS
                          : sim_fail(GPUSYM_ERR_NOT_AVAILABLE, "%p lies in no allocation that the simulator knows", p);
}

int sim_reach(const void *p, size_t size, unsigned how, void **at, sim_region_t **pin)
{
    *pin = sim_table_pin(p);
    *at = (void *) (uintptr_t) p;
    if (NULL == *pin) {
        if (NULL == p || 0 == (how & SIM_REACH_HOST)) {
            return sim_fail(GPUSYM_ERR_BAD_PARAM, "%p is not memory that a GPU can reach", p);
        }
        return GPUSYM_SUCCESS;
    }
    size_t offset = (size_t) ((const char *) p - (*pin)->base);
    if (size > (*pin)->size - offset) {
        sim_fail(GPUSYM_ERR_BAD_PARAM, "%zu bytes at %p reach past the end of their allocation (%zu are left)", size, p,
                 (*pin)->size - offset);
        goto unpin;
    }
    if (NULL != (*pin)->alias) {
        *at = (*pin)->alias + offset;
    } else if (0 == (how & SIM_REACH_MULTICAST)) {
        sim_fail(GPUSYM_ERR_BAD_PARAM, "%p is a multicast pointer, which only kernels can use", p);
        goto unpin;
    }
    return GPUSYM_SUCCESS;
unpin:
    sim_region_unpin(*pin);
    *pin = NULL;
    return GPUSYM_ERR_BAD_PARAM;
}
