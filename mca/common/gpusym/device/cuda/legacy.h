/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The legacy default stream of CUDA.
 */
#ifndef GPUSYM_COMMON_DEVICE_CUDA_LEGACY_H
#define GPUSYM_COMMON_DEVICE_CUDA_LEGACY_H

#include <stdbool.h>

/* Whether query() waits for what is queued on the legacy stream of the memory's context, or if it has none of the
 * thread's: for programs that call MPI without having waited themselves. Changes before a device is selected only. */
extern bool gpusym_cuda_wait_legacy_stream;

#endif
