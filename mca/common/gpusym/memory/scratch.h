/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Scratch memory of a GPU for one call: data that are packed for a kernel, or results that must not reach their final
 * place before the kernel has ended.  Short buffers, of messages say, of which many are under way, are parts of a few
 * allocations that are kept; of longer ones one is kept for the next call.  So a program's calls of one kind allocate
 * once, and peers map that once (reg.h).
 */
#ifndef GPUSYM_COMMON_MEMORY_SCRATCH_H
#define GPUSYM_COMMON_MEMORY_SCRATCH_H

#include "mca/common/gpusym/device/device.h"

/* Bytes that are kept of short buffers, and of the longer one, at most. May change at any time. */
extern uint64_t gpusym_scratch_max;

/* Gets `bytes` bytes on gpu, undefined, 256-byte aligned.  Return them by gpusym_scratch_put.  Errors as of mem_alloc.
 * Thread-safe. */
int gpusym_scratch_get(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p);
/* The same of a part of what is allocated already, or of another such allocation: for one of many buffers, whose user
 * has another way. GPUSYM_ERR_NOT_AVAILABLE: so many are lent, or it is too long. */
int gpusym_scratch_get_part(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t bytes, void **p);
/* Returns the id of the allocation that a buffer is part of (gpusym_range_t), for gpusym_reg_find; 0: not known. */
uint64_t gpusym_scratch_id(const void *p);
/* Returns a buffer.  Its work must have ended.  Of longer buffers, the larger of it and the one that is kept is kept,
 * if it is not too large. */
void gpusym_scratch_put(const gpusym_device_t *dev, gpusym_gpu_t *gpu, void *p);
/* Frees what is kept. */
void gpusym_scratch_close(const gpusym_device_t *dev);

#endif
