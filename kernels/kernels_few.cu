/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of kernels.def that are there for at most GPUSYM_FEW_RANKS ranks too, of the same code: their descriptor
 * has room for no more (few.h), which is less to send with a launch.
 */
#define GPUSYM_WORK_RANKS GPUSYM_FEW_RANKS

#include "kernels/kernels_cuda.h"

#define GPUSYM_FEW_FAMILY(id) GS_KERNEL(gpusym_few_##id##_ANY, id, GS_ANY, GS_ANY)
#include "kernels/kernels.def"

#define GPUSYM_FEW_KERNEL(f, o, t) GS_KERNEL(gpusym_few_##f##_##o##_##t, f, GPUSYM_OP_##o, GPUSYM_T_##t)
#include "kernels/kernels.def"
