/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The multicast policy: the only way to multicast objects of any device.
 */
#ifndef GPUSYM_COMMON_DEVICE_MULTICAST_H
#define GPUSYM_COMMON_DEVICE_MULTICAST_H

#include <stdbool.h>
#include <stddef.h>

#include "mca/common/gpusym/device/device.h"

/* Returns whether a multicast object may be created: `param` (the parameter multicast) is true, and the environment has
 * none of the vetoes NCCL_NVLS_ENABLE=0, NVSHMEM_DISABLE_NVLS=1, TORCH_SYMM_MEM_DISABLE_MULTICAST=1.  *why names the
 * veto. */
bool gpusym_multicast_allowed(bool param, const char **why);
/* Creates a multicast object, as mc_create (device.h).  GPUSYM_ERR_NOT_AVAILABLE: forbidden, or the device has none. */
int gpusym_multicast_create(const gpusym_device_t *dev, bool param, gpusym_gpu_t *gpu, unsigned members, size_t size,
                            gpusym_mc_t **mc, gpusym_handle_t *handle);

#endif
