/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Shares: see share.h.
 */
#include "mca/common/gpusym/memory/share.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/left.h"
#include "mca/common/gpusym/shm/gauges.h"

/* NULL: no memory. */
static gpusym_share_t *add(gpusym_shares_t *all, const gpusym_segment_id_t *id, void *base)
{
    gpusym_share_t *share = calloc(1, sizeof *share);
    if (NULL == share) {
        gpusym_log_no_memory("memory that processes share");
        errno = ENOMEM;
        return NULL;
    }
    share->id = *id;
    share->base = base;
    share->next = all->first;
    all->first = share;
    return share;
}

static int make_own(gpusym_shares_t *all)
{
    gpusym_segment_id_t id;
    void *base;
    const int rc = gpusym_segment_make(all->name, all->magic, all->bytes, &id, &base);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    all->arena = gpusym_arena_create(all->bytes - GPUSYM_SHARE_FIRST, GPUSYM_SHARE_FIRST);
    all->own = NULL != all->arena ? add(all, &id, base) : NULL;
    if (NULL == all->own) {
        gpusym_arena_destroy(all->arena);
        all->arena = NULL;
        gpusym_segment_free(&id, base);
        errno = ENOMEM;
        return GPUSYM_ERR_NO_MEMORY;
    }
    return GPUSYM_SUCCESS;
}

int gpusym_shares_make(gpusym_shares_t *all)
{
    if (NULL == all->own && GPUSYM_SUCCESS == all->refused) {
        all->refused = make_own(all);
        all->error = errno;
    }
    if (GPUSYM_SUCCESS != all->refused) {
        errno = all->error;
    }
    return all->refused;
}

int gpusym_shares_map(gpusym_shares_t *all, const gpusym_segment_id_t *id, gpusym_share_t **share)
{
    void *base;
    for (gpusym_share_t *s = all->first; NULL != s; s = s->next) {
        if (gpusym_segment_same(&s->id, id)) {
            *share = s;
            return GPUSYM_SUCCESS;
        }
    }
    const int rc = gpusym_segment_map(id, all->magic, all->bytes, &base);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    *share = add(all, id, base);
    if (NULL == *share) {
        munmap(base, all->bytes);
        errno = ENOMEM;
        return GPUSYM_ERR_NO_MEMORY;
    }
    return GPUSYM_SUCCESS;
}

int gpusym_share_register(const gpusym_shares_t *all, gpusym_share_t *share, const gpusym_device_t *dev,
                          gpusym_gpu_t *gpu)
{
    char limits[GPUSYM_LIMITS_TEXT];
    void *at;
    if (!share->tried) {
        share->tried = true;
        share->refused = dev->host_register(gpu, share->base, all->bytes, &at);
        if (GPUSYM_SUCCESS == share->refused) {
            share->dev = at;
            share->gpu = gpu;
            gpusym_gauge_add(GPUSYM_GAUGE_PINNED, (int64_t) all->bytes);
        } else {
            GPUSYM_LOG(2, "%s pageable host memory, which is slower: %s%s", all->what, dev->error(),
                       gpusym_memory_limits(limits));
        }
    }
    return share->refused;
}

int gpusym_shares_get(gpusym_shares_t *all, uint64_t bytes, uint64_t *off)
{
    const int rc = NULL != all->arena ? gpusym_arena_alloc(all->arena, bytes, off) : GPUSYM_ERR_NOT_AVAILABLE;
    *off += GPUSYM_SUCCESS == rc ? GPUSYM_SHARE_FIRST : 0;
    return rc;
}

void gpusym_shares_put(gpusym_shares_t *all, uint64_t off)
{
    if (NULL != all->arena) {
        (void) gpusym_arena_free(all->arena, off - GPUSYM_SHARE_FIRST);
    }
}

void gpusym_shares_close(gpusym_shares_t *all, const gpusym_device_t *dev)
{
    while (NULL != all->first) {
        gpusym_share_t *share = all->first;
        all->first = share->next;
        if (NULL != share->dev) {
            dev->host_unregister(share->gpu, share->base);
            gpusym_gauge_add(GPUSYM_GAUGE_PINNED, -(int64_t) all->bytes);
        }
        if (share == all->own) {
            gpusym_segment_free(&share->id, share->base);
        } else {
            munmap(share->base, all->bytes);
        }
        free(share);
    }
    gpusym_arena_destroy(all->arena);
    all->arena = NULL;
    all->own = NULL;
    all->refused = GPUSYM_SUCCESS;
}
