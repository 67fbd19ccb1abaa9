/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The multicast policy: the one door to multicast objects of any device.
 */
#ifndef GPUSYM_COMMON_DEVICE_MULTICAST_H
#define GPUSYM_COMMON_DEVICE_MULTICAST_H

#include <stdbool.h>
#include <stddef.h>

#include "mca/common/gpusym/device/device.h"

/* Whether a multicast object may be made: `param` (our own parameter) and none of the sites' vetoes
 * NCCL_NVLS_ENABLE=0, NVSHMEM_DISABLE_NVLS=1, TORCH_SYMM_MEM_DISABLE_MULTICAST=1. *why names what forbids. */
bool gpusym_multicast_allowed(bool param, const char **why);
/* The one way to make a multicast object. GPUSYM_ERR_NOT_AVAILABLE where it is forbidden or not offered. */
int gpusym_multicast_create(const gpusym_device_t *dev, bool param, gpusym_gpu_t *gpu, unsigned members, size_t size,
                            gpusym_mc_t **mc, gpusym_handle_t *handle);

#endif
