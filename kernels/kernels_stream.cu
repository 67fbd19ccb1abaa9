/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of kernels.def for streams of the program (prim/stream.h), of the same code. A fatbin of their own, so
 * that the others neither carry what only these need nor take longer for it, and that only programs that have such
 * calls have them in their GPU's memory.
 */
#define GS_STREAM_UNIT

#include "kernels/kernels_cuda.h"

/* How a family cuts a message. */
enum gs_family_plan {
#define GPUSYM_FAMILY(id, next, reduces, protocol, multicast, zero_copy, plan) GS_PLAN_##id = GPUSYM_PLAN_##plan,
#include "kernels/kernels.def"
};

/* The epoch is the GPU's. */
#define GS_STREAM_KERNEL(symbol, family, op, type)                                      \
    extern "C" __global__ void __launch_bounds__(GPUSYM_THREADS_MAX, 1)                 \
        symbol(const __grid_constant__ gs_arg_##family arg)                             \
    {                                                                                   \
        const gs_ctx_t c = {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x};            \
        const gpusym_work_t *const w = (const gpusym_work_t *) (const void *) &arg;     \
        uint32_t epoch;                                                                 \
        const bool sized = !GS_REDUCES_##family && gs_is_sized(w);                      \
        const uint32_t status = gs_stream_begin(c, w, GS_PLAN_##family, sized, &epoch); \
        const gs_kernel_t kernel = {w, op, type, GS_REDUCES_##family, epoch};           \
        if (GPUSYM_STATUS_OK == status) {                                               \
            GS_RUN_##family(c, kernel);                                                 \
        } else {                                                                        \
            gs_stream_end(c, w, status);                                                \
        }                                                                               \
    }

#define GPUSYM_STREAM_FAMILY(id) GS_STREAM_KERNEL(gpusym_stream_##id##_ANY, id, GS_ANY, GS_ANY)
#include "kernels/kernels.def"

#define GPUSYM_STREAM_KERNEL(f, o, t) GS_STREAM_KERNEL(gpusym_stream_##f##_##o##_##t, f, GPUSYM_OP_##o, GPUSYM_T_##t)
#include "kernels/kernels.def"
