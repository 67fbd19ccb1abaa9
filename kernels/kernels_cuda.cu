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
#define GS_KERNEL(symbol, family, op, type)                                         \
    extern "C" __global__ void __launch_bounds__(GPUSYM_THREADS_MAX, 1)             \
        symbol(const __grid_constant__ gs_arg_##family arg)                         \
    {                                                                               \
        const gs_ctx_t c = {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x};        \
        const gpusym_work_t *const w = (const gpusym_work_t *) (const void *) &arg; \
        const gs_kernel_t kernel = {w, op, type, GS_REDUCES_##family, w->epoch};    \
        if (GPUSYM_EARLY_ENTERS != w->early || gs_enter(c, w)) {                    \
            GS_RUN_##family(c, kernel);                                             \
        }                                                                           \
    }

#define GPUSYM_FAMILY(id, ...) GS_KERNEL(gpusym_##id##_ANY, id, GS_ANY, GS_ANY)
#include "kernels/kernels.def"

#define GPUSYM_KERNEL(f, o, t) GS_KERNEL(gpusym_##f##_##o##_##t, f, GPUSYM_OP_##o, GPUSYM_T_##t)
#include "kernels/kernels.def"

/* On streams of the program: the epoch is the GPU's. */
#define GS_STREAM_KERNEL(symbol, family, op, type)                                  \
    extern "C" __global__ void __launch_bounds__(GPUSYM_THREADS_MAX, 1)             \
        symbol(const __grid_constant__ gs_arg_##family arg)                         \
    {                                                                               \
        const gs_ctx_t c = {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x};        \
        const gpusym_work_t *const w = (const gpusym_work_t *) (const void *) &arg; \
        uint32_t epoch;                                                             \
        const uint32_t status = gs_stream_begin(c, w, &epoch);                      \
        const gs_kernel_t kernel = {w, op, type, GS_REDUCES_##family, epoch};       \
        if (GPUSYM_STATUS_OK == status) {                                           \
            GS_RUN_##family(c, kernel);                                             \
        } else {                                                                    \
            gs_stream_end(c, w, status);                                            \
        }                                                                           \
    }

#define GPUSYM_STREAM_FAMILY(id) GS_STREAM_KERNEL(gpusym_stream_##id##_ANY, id, GS_ANY, GS_ANY)
#include "kernels/kernels.def"

#define GPUSYM_STREAM_KERNEL(f, o, t) GS_STREAM_KERNEL(gpusym_stream_##f##_##o##_##t, f, GPUSYM_OP_##o, GPUSYM_T_##t)
#include "kernels/kernels.def"
