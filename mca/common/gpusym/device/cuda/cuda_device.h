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

/* Whether query() waits for what is queued on the legacy stream of the memory's context, or if it has none of the
 * thread's: for programs that call MPI without having waited themselves. Changes before a device is selected only. */
extern bool gpusym_cuda_wait_legacy_stream;

#endif
