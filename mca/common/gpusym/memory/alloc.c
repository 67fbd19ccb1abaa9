/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU memory: see alloc.h.
 */
#include "mca/common/gpusym/memory/alloc.h"

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/trace.h"

int gpusym_mem_alloc(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p)
{
    int rc = dev->mem_alloc(gpu, bytes, p);
    if (GPUSYM_SUCCESS != rc) {
        GPUSYM_LOG(2, "out of GPU memory: %llu bytes: %s", (unsigned long long) bytes, dev->error());
    }
    if (GPUSYM_ERR_NO_MEMORY == rc && gpusym_reg_sweep(dev) > 0) {
        rc = dev->mem_alloc(gpu, bytes, p);
    }
    GPUSYM_TRACE(ALLOC, bytes, GPUSYM_SUCCESS == rc);
    return rc;
}
