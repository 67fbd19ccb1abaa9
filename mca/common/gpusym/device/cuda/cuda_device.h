/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The device table for NVIDIA GPUs.  Needs no header of CUDA.
 */
#ifndef GPUSYM_COMMON_DEVICE_CUDA_H
#define GPUSYM_COMMON_DEVICE_CUDA_H

#include "mca/common/gpusym/device/device.h"

/* NULL in a build without CUDA. */
extern const gpusym_device_t *const gpusym_device_cuda;

#endif
