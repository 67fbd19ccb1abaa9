/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Scratch memory of a GPU for one call: data that are packed for a kernel, or results that must not reach their final
 * place before the kernel has ended.  One buffer is kept for the next call, so that a program's calls of one kind
 * allocate once, and peers map it once (reg.h).
 */
#ifndef GPUSYM_COMMON_MEMORY_SCRATCH_H
#define GPUSYM_COMMON_MEMORY_SCRATCH_H

#include "mca/common/gpusym/device/device.h"

/* Largest buffer that is kept, in bytes. May change at any time. */
extern uint64_t gpusym_scratch_max;

/* Gets `bytes` bytes on gpu, undefined, 256-byte aligned.  Return them by gpusym_scratch_put.  Errors as of mem_alloc.
 * Thread-safe. */
int gpusym_scratch_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p);
/* Returns a buffer.  Its work must have ended.  The larger of it and the one that is kept is kept, if it is
 * not too large. */
void gpusym_scratch_put(const gpusym_device_t *dev, gpusym_gpu_t *gpu, void *p);
/* Frees the kept buffer. */
void gpusym_scratch_close(const gpusym_device_t *dev);

#endif
