/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of kernels.def for GPUs.  Compiled to a fatbin; holds no host code. Those for streams of the program:
 * kernels_stream.cu.
 */
#include "kernels/kernels_cuda.h"

#define GPUSYM_FAMILY(id, ...) GS_KERNEL(gpusym_##id##_ANY, id, GS_ANY, GS_ANY)
#include "kernels/kernels.def"

#define GPUSYM_KERNEL(f, o, t) GS_KERNEL(gpusym_##f##_##o##_##t, f, GPUSYM_OP_##o, GPUSYM_T_##t)
#include "kernels/kernels.def"
