/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPU memory that a program requests from MPI by the info key "mpool_hints": shared by mpool/gpusym (MPI_Alloc_mem) and
 * osc/gpusym (MPI_Win_allocate).
 */
#ifndef GPUSYM_COMMON_MEMORY_POOL_H
#define GPUSYM_COMMON_MEMORY_POOL_H

#include "mca/common/gpusym/device/device.h"

/* Open MPI's info key that names a memory pool. */
#define GPUSYM_POOL_KEY "mpool_hints"

/* Returns whether "mpool=gpusym" is one of the comma-separated hints.  hints NULL: no hints. */
bool gpusym_pool_asked(const char *hints);

/*
 * size bytes (more than 0), undefined, of the GPU that is current in the calling thread: 256-byte aligned, of a kind
 * that peers can map. dev NULL: there is no device. The caller frees it by gpusym_pool_free, before the device is
 * closed. GPUSYM_ERR_NOT_AVAILABLE, GPUSYM_ERR_NO_MEMORY or GPUSYM_ERR, and *why says it in words, until this thread's
 * next call of the device.
 */
int gpusym_pool_alloc(const gpusym_device_t *dev, size_t size, void **p, const char **why);
/* The same errors; nothing to do where the device has been closed (dev NULL). */
int gpusym_pool_free(const gpusym_device_t *dev, void *p, const char **why);

#endif
