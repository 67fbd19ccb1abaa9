/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Registered memory: see regions.h.
 */
#include "mca/coll/gpusym/exec/regions.h"

#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/reg.h"

enum {
    WELL,
    FAILED = COLL_GPUSYM_REGION_FAILED,
    NO_DEVICE_MEMORY,
    OTHER_GPU,
    NOT_ONE,
    NOT_SHAREABLE,
    NO_PLACE,
    NO_EXPORT
};

const char *coll_gpusym_region_why(int32_t why)
{
    static const char *const texts[] = {
        [WELL] = "",
        [FAILED] = "an earlier call of the communicator on a stream has failed",
        [NO_DEVICE_MEMORY] = "it is not GPU memory (nor is managed memory): use cudaMalloc",
        [OTHER_GPU] = "it is memory of another GPU than the rank's",
        [NOT_ONE] = "it does not lie in one allocation",
        [NOT_SHAREABLE] = "it is memory that cannot be exported, as that of cudaMallocAsync: use cudaMalloc",
        [NO_PLACE] = "too many buffers are registered in the process (coll_gpusym_reg_limit)",
        [NO_EXPORT] = "the driver does not export it"};
    return why >= 0 && why < (int32_t) (sizeof texts / sizeof texts[0]) ? texts[why] : "unknown";
}

coll_gpusym_region_t *coll_gpusym_regions_add(coll_gpusym_regions_t *all)
{
    for (unsigned i = 0; i < COLL_GPUSYM_REGIONS_MAX; i++) {
        if (0 == all->region[i].number) {
            all->region[i] = (coll_gpusym_region_t){.number = ++all->registered};
            return &all->region[i];
        }
    }
    return NULL;
}

/* Pins it. Returns what is in the way. */
static int32_t offer(coll_gpusym_region_t *region, coll_gpusym_team_t *t, uint64_t *off)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_range_t range;
    gpusym_mem_t mem;
    uint64_t at;
    dev->look(region->base, &mem);
    if (GPUSYM_MEM_DEVICE != mem.kind) {
        return NO_DEVICE_MEMORY;
    }
    if (!coll_gpusym_team_owns(t, &mem)) {
        return OTHER_GPU;
    }
    if (GPUSYM_SUCCESS != dev->mem_range(region->base, &range)) {
        return NOT_SHAREABLE;
    }
    at = (uint64_t) ((uintptr_t) region->base - (uintptr_t) range.base);
    if (region->bytes > range.size - at) {
        return NOT_ONE;
    }
    if (!gpusym_reg_allows(&range)) {
        return NOT_SHAREABLE;
    }
    region->id = range.id;
    const int rc = gpusym_reg_get(dev, t->host.gpu, region->base, region->bytes, &region->key, off);
    if (GPUSYM_SUCCESS != rc) {
        region->key = 0;
        return GPUSYM_ERR_NOT_AVAILABLE == rc ? NO_PLACE : NO_EXPORT;
    }
    return WELL;
}

void coll_gpusym_region_offer(coll_gpusym_region_t *region, coll_gpusym_team_t *t, const void *base, uint64_t bytes,
                              coll_gpusym_region_offer_t *mine)
{
    *mine = (coll_gpusym_region_offer_t){.why = WELL};
    if (0 != bytes && coll_gpusym_params.zero_copy) { /* else no buffer is found in it */
        region->base = base;
        region->bytes = bytes;
        mine->why = offer(region, t, &mine->off);
        mine->bytes = bytes;
        mine->key = region->key;
    }
}

uint32_t coll_gpusym_region_map(coll_gpusym_region_t *region, const coll_gpusym_team_t *t,
                                const coll_gpusym_region_offer_t *offers)
{
    region->least = UINT64_MAX;
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        void *base;
        uint64_t size;
        region->least = offers[r].bytes < region->least ? offers[r].bytes : region->least;
        if (0 == offers[r].key) {
            continue;
        }
        if (GPUSYM_SUCCESS !=
                gpusym_reg_map(gpusym_current.dev, t->host.gpu, t->host.rc.peer[r], offers[r].key, &base, &size) ||
            offers[r].off > size || offers[r].bytes > size - offers[r].off) {
            return r + 1;
        }
        region->at[r] = (char *) base + offers[r].off;
    }
    return 0;
}

coll_gpusym_region_t *coll_gpusym_regions_get(coll_gpusym_regions_t *all, uint32_t number)
{
    for (unsigned i = 0; i < COLL_GPUSYM_REGIONS_MAX && 0 != number; i++) {
        if (all->region[i].number == number) {
            return &all->region[i];
        }
    }
    return NULL;
}

coll_gpusym_region_t *coll_gpusym_regions_find(coll_gpusym_regions_t *all, const void *p, uint64_t bytes, uint64_t id,
                                               uint64_t least)
{
    coll_gpusym_region_t *first = NULL;
    for (unsigned i = 0; i < COLL_GPUSYM_REGIONS_MAX; i++) {
        coll_gpusym_region_t *region = &all->region[i];
        const uint64_t at = (uint64_t) ((uintptr_t) p - (uintptr_t) region->base);
        if (0 != region->number && least <= region->least && at <= region->bytes && bytes <= region->bytes - at &&
            (0 == id || id == region->id) && (NULL == first || region->number < first->number)) {
            first = region;
        }
    }
    return first;
}

void coll_gpusym_region_end(coll_gpusym_region_t *region, bool unused)
{
    if (0 != region->key && unused) {
        gpusym_reg_put(region->key);
    }
    *region = (coll_gpusym_region_t){.number = 0};
}
