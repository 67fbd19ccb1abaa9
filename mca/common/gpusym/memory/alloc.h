/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU memory of the library and of the pool.
 */
#ifndef GPUSYM_COMMON_MEMORY_ALLOC_H
#define GPUSYM_COMMON_MEMORY_ALLOC_H

#include "mca/common/gpusym/device/device.h"

/* Allocates `bytes` bytes on gpu as the device's mem_alloc does, with the same errors. If there is no memory, releases
 * what freed buffers still hold (gpusym_reg_sweep) and tries again. The caller frees *p by the device's mem_free. May
 * wait for work that runs on the GPU: no such work may wait for the caller. */
int gpusym_mem_alloc(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p);
/* The same at reserved addresses, as the device's vmm_map. The caller frees it by vmm_unmap. */
int gpusym_mem_map(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void *at);

#endif
