/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU memory: see alloc.h.
 */
#include "mca/common/gpusym/memory/alloc.h"

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/trace.h"

/* at: NULL: anywhere, and then *p says where. */
static int get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void *at, void **p)
{
    return NULL != at ? dev->vmm_map(gpu, at, bytes) : dev->mem_alloc(gpu, bytes, p);
}

static int get_or_sweep(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void *at, void **p)
{
    int rc = get(dev, gpu, bytes, at, p);
    if (GPUSYM_SUCCESS != rc) {
        GPUSYM_LOG(2, "no GPU memory: %llu bytes: %s", (unsigned long long) bytes, dev->error());
    }
    if (GPUSYM_ERR_NO_MEMORY == rc && gpusym_reg_sweep(dev) > 0) {
        rc = get(dev, gpu, bytes, at, p);
    }
    GPUSYM_TRACE(ALLOC, bytes, GPUSYM_SUCCESS == rc);
    return rc;
}

int gpusym_mem_alloc(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p)
{
    return get_or_sweep(dev, gpu, bytes, NULL, p);
}

int gpusym_mem_map(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void *at)
{
    return get_or_sweep(dev, gpu, bytes, at, NULL);
}
