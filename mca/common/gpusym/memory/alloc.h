/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU memory of the library and of the pool.
 */
#ifndef GPUSYM_COMMON_MEMORY_ALLOC_H
#define GPUSYM_COMMON_MEMORY_ALLOC_H

#include "mca/common/gpusym/device/device.h"

/* As the device's mem_alloc. If there is no memory, gives back what freed buffers still keep (gpusym_reg_sweep) and tries
 * again. May wait for work that runs on the GPU: no such work may wait for the caller. */
int gpusym_mem_alloc(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p);

#endif
