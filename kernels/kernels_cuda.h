/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the units of kernels for GPUs have in common.
 */
#ifndef GPUSYM_KERNELS_CUDA_H
#define GPUSYM_KERNELS_CUDA_H

#include <stddef.h>

#include "kernels/families.h"

/* What a family takes of the descriptor. */
#define GPUSYM_FAMILY(id, next, ...)                                      \
    typedef struct {                                                      \
        uint64_t words[offsetof(gpusym_work_t, next) / sizeof(uint64_t)]; \
    } gs_arg_##id;
#include "kernels/kernels.def"

/* The descriptor stays in the constant bank (__grid_constant__): indexing peer[] makes no local copy. */
#define GS_KERNEL(symbol, family, op, type)                                                                 \
    extern "C" __global__ void __launch_bounds__(GPUSYM_THREADS_MAX, 1)                                     \
        symbol(const __grid_constant__ gs_arg_##family arg)                                                 \
    {                                                                                                       \
        const gs_ctx_t c = {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x};                                \
        const gpusym_work_t *const w = (const gpusym_work_t *) (const void *) &arg;                         \
        const gs_kernel_t kernel = {w, op, type, GS_REDUCES_##family, w->epoch, 0, false, {{0, 0}}, false}; \
        if (0 == c.block && 0 == c.thread) {                                                                \
            gs_time(w, GPUSYM_TIME_BEGIN, w->done_seq);                                                     \
        }                                                                                                   \
        if (GPUSYM_EARLY_ENTERS != w->early || gs_enter(c, w)) {                                            \
            GS_RUN_##family(c, kernel);                                                                     \
        }                                                                                                   \
    }

#endif
