/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pinned host memory for bounce buffers.  A few buffers are kept for the next call, because pinning memory is slow.
 */
#ifndef GPUSYM_COMMON_MEMORY_PINNED_H
#define GPUSYM_COMMON_MEMORY_PINNED_H

#include "mca/common/gpusym/device/device.h"

/* The largest size that is pinned, in bytes: pinning more costs more than it gains. */
#define GPUSYM_PINNED_MAX (64ull << 20)

/* Gets a buffer of at least `bytes` bytes, undefined, page-aligned, which gpu copies fast.  Return it by
 * gpusym_pinned_put. NULL: none is available; use ordinary memory.  Thread-safe. */
void *gpusym_pinned_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, size_t bytes);
/* Returns a buffer.  Makes no call to the device. */
void gpusym_pinned_put(const void *buf);
/* Frees all buffers. None may be in use. Idempotent. */
void gpusym_pinned_close(const gpusym_device_t *dev);

#endif
