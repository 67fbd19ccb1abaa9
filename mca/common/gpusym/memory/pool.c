/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU memory that a program asks MPI for: see pool.h.
 */
#include "mca/common/gpusym/memory/pool.h"

#include <string.h>

#include "mca/common/gpusym/memory/alloc.h"

bool gpusym_pool_requested(const char *hints)
{
    static const char ours[] = "mpool=gpusym";

    while (NULL != hints && '\0' != *hints) {
        const size_t length = strcspn(hints, ",");
        if (sizeof(ours) - 1 == length && 0 == memcmp(hints, ours, length)) {
            return true;
        }
        hints += length + (',' == hints[length]);
    }
    return false;
}

int gpusym_pool_alloc(const gpusym_device_t *dev, size_t size, void **p, const char **why)
{
    gpusym_gpu_t *gpu;
    int rc;

    if (NULL == dev) {
        *why = "coll/gpusym has no device";
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    rc = dev->gpu_open(NULL, &gpu);
    if (GPUSYM_SUCCESS == rc) {
        rc = gpusym_mem_alloc(dev, gpu, size, p);
    }
    if (GPUSYM_SUCCESS != rc) {
        *why = dev->error();
    }
    return rc;
}

int gpusym_pool_free(const gpusym_device_t *dev, void *p, const char **why)
{
    gpusym_gpu_t *gpu;
    gpusym_mem_t mem;
    int rc;

    if (NULL == dev) {
        return GPUSYM_SUCCESS;
    }
    dev->query(p, &mem);
    rc = dev->gpu_open(&mem, &gpu);
    if (GPUSYM_SUCCESS == rc) {
        rc = dev->mem_free(gpu, p);
    }
    if (GPUSYM_SUCCESS != rc) {
        *why = dev->error();
    }
    return rc;
}
