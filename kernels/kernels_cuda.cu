/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of kernels.def for GPUs.  Compiled to a fatbin; holds no host code.
 */
#include <stddef.h>

#include "kernels/families.h"

/* What a family takes of the descriptor. */
#define GPUSYM_FAMILY(id, next, ...)                                      \
    typedef struct {                                                      \
        uint64_t words[offsetof(gpusym_work_t, next) / sizeof(uint64_t)]; \
    } gs_arg_##id;
#include "kernels/kernels.def"

/* The descriptor stays in the constant bank (__grid_constant__): indexing peer[] makes no local copy. */
#define GS_KERNEL(symbol, family, op, type)                                                                      \
    extern "C" __global__ void __launch_bounds__(GPUSYM_THREADS_MAX, 1)                                          \
        symbol(const __grid_constant__ gs_arg_##family arg)                                                      \
    {                                                                                                            \
        const gs_ctx_t c = {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x};                                     \
        const gs_kernel_t kernel = {(const gpusym_work_t *) (const void *) &arg, op, type, GS_REDUCES_##family}; \
        if (GPUSYM_EARLY_ENTERS != kernel.w->early || gs_enter(c, kernel.w)) {                                   \
            GS_RUN_##family(c, kernel);                                                                          \
        }                                                                                                        \
    }

#define GPUSYM_FAMILY(id, ...) GS_KERNEL(gpusym_##id##_ANY, id, GS_ANY, GS_ANY)
#include "kernels/kernels.def"

#define GPUSYM_KERNEL(f, o, t) GS_KERNEL(gpusym_##f##_##o##_##t, f, GPUSYM_OP_##o, GPUSYM_T_##t)
#include "kernels/kernels.def"
