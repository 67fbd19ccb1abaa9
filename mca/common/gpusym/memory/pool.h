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
bool gpusym_pool_requested(const char *hints);

/*
 * Allocates size bytes (more than 0), undefined, 256-byte aligned, on the GPU that is current in the calling thread, of
 * a kind that peers can map.  The caller frees them by gpusym_pool_free, before the device is closed.  dev NULL: there
 * is no device.  Errors: GPUSYM_ERR_NOT_AVAILABLE, GPUSYM_ERR_NO_MEMORY, GPUSYM_ERR; *why then describes the error,
 * until this thread's next call of the device.
 */
int gpusym_pool_alloc(const gpusym_device_t *dev, size_t size, void **p, const char **why);
/* Frees memory from gpusym_pool_alloc, with the same errors.  dev NULL: the device has been closed; has no effect. */
int gpusym_pool_free(const gpusym_device_t *dev, void *p, const char **why);

#endif
