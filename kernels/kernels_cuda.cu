/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of kernels.def for GPUs.  Compiled to a fatbin; holds no host code. Those for streams of the program:
 * kernels_stream.cu.
 */
#include "kernels/kernels_cuda.h"

/* The descriptor stays in the constant bank (__grid_constant__): indexing peer[] makes no local copy. */
#define GS_KERNEL(symbol, family, op, type)                                         \
    extern "C" __global__ void __launch_bounds__(GPUSYM_THREADS_MAX, 1)             \
        symbol(const __grid_constant__ gs_arg_##family arg)                         \
    {                                                                               \
        const gs_ctx_t c = {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x};        \
        const gpusym_work_t *const w = (const gpusym_work_t *) (const void *) &arg; \
        const gs_kernel_t kernel = {w, op, type, GS_REDUCES_##family, w->epoch};    \
        if (0 == c.block && 0 == c.thread) {                                        \
            gs_time(w, GPUSYM_TIME_BEGIN, w->done_seq);                             \
        }                                                                           \
        if (GPUSYM_EARLY_ENTERS != w->early || gs_enter(c, w)) {                    \
            GS_RUN_##family(c, kernel);                                             \
        }                                                                           \
    }

#define GPUSYM_FAMILY(id, ...) GS_KERNEL(gpusym_##id##_ANY, id, GS_ANY, GS_ANY)
#include "kernels/kernels.def"

#define GPUSYM_KERNEL(f, o, t) GS_KERNEL(gpusym_##f##_##o##_##t, f, GPUSYM_OP_##o, GPUSYM_T_##t)
#include "kernels/kernels.def"
