/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of kernels.def for GPUs.  Compiled to a fatbin; holds no host code.
 */
#include "kernels/families.h"

/* The descriptor stays in the constant bank (__grid_constant__): indexing peer[] makes no local copy. */
#define GS_KERNEL(symbol) \
    extern "C" __global__ void __launch_bounds__(GPUSYM_THREADS_MAX, 1) symbol(const __grid_constant__ gpusym_work_t w)
#define GS_CTX {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x}

#define GPUSYM_FAMILY(id, reduces)              \
    GS_KERNEL(gpusym_##id##_ANY)                \
    {                                           \
        const gs_ctx_t c = GS_CTX;              \
        GS_RUN_##id(c, &w, GS_ANY, GS_ANY);     \
    }
#include "kernels/kernels.def"

#define GPUSYM_KERNEL(a, o, t)                                      \
    GS_KERNEL(gpusym_##a##_##o##_##t)                               \
    {                                                               \
        const gs_ctx_t c = GS_CTX;                                  \
        GS_RUN_##a(c, &w, GPUSYM_OP_##o, GPUSYM_T_##t);             \
    }
#include "kernels/kernels.def"
