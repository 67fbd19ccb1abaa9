/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The legacy default stream of CUDA: see legacy.h.
 */
#include "mca/common/gpusym/device/cuda/legacy.h"

bool gpusym_cuda_wait_legacy_stream;
