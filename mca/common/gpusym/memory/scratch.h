/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Scratch memory of a GPU for one call: what is packed for a kernel, or must not be written where it belongs before the
 * kernel has ended. One piece is kept for the next call, so that a program's calls of one kind allocate once.
 */
#ifndef GPUSYM_COMMON_MEMORY_SCRATCH_H
#define GPUSYM_COMMON_MEMORY_SCRATCH_H

#include "mca/common/gpusym/device/device.h"

/* `bytes` bytes on gpu, undefined, aligned to 256. What mem_alloc says if there are none. Thread-safe. */
int gpusym_scratch_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p);
/* Gives a piece back, whose work has ended. Kept if it is not large and none is kept. */
void gpusym_scratch_put(const gpusym_device_t *dev, gpusym_gpu_t *gpu, void *p);
/* Frees what is kept. */
void gpusym_scratch_close(const gpusym_device_t *dev);

#endif
