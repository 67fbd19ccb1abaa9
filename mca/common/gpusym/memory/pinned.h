/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pinned host memory for bounce buffers.  A few buffers are kept for the next call, because pinning memory is slow.
 */
#ifndef GPUSYM_COMMON_MEMORY_PINNED_H
#define GPUSYM_COMMON_MEMORY_PINNED_H

#include "mca/common/gpusym/device/device.h"

/* Bytes that a process pins for buffers at most. Set before the first use. */
extern uint64_t gpusym_pinned_max;

/* Gets a buffer of at least `bytes` bytes, undefined, page-aligned, which gpu copies fast.  Return it by
 * gpusym_pinned_put. NULL: none is available; use ordinary memory.  Thread-safe. */
void *gpusym_pinned_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, size_t bytes);
/* Returns a buffer.  Makes no call to the device. */
void gpusym_pinned_put(const void *buf);
/* Frees the buffers that are not in use.  Thread-safe. */
void gpusym_pinned_trim(const gpusym_device_t *dev);
/* Frees all buffers. None may be in use. Idempotent. */
void gpusym_pinned_close(const gpusym_device_t *dev);

#endif
