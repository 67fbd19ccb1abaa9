/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of kernels.def for streams of the program (prim/stream.h), of the same code. A fatbin of their own, so
 * that the others neither carry what only these need nor take longer for it, and that only programs that have such
 * calls have them in their GPU's memory.
 */
#define GS_STREAM_UNIT

#include "kernels/kernels.h"
#include "kernels/kernels_cuda.h"

/* How a family cuts a message. */
enum gs_family_plan {
#define GPUSYM_FAMILY(id, next, reduces, protocol, multicast, zero_copy, plan) GS_PLAN_##id = GPUSYM_PLAN_##plan,
#include "kernels/kernels.def"
};

/* Whether its threads load what they send first while the count is loaded. */
#define GS_LOADS_AHEAD(family) (GPUSYM_F_AGXLL_R == GPUSYM_F_##family)

/* Each line of the descriptor comes from afar, to each of the caches that the two kinds of loads of constants have.
 * Those that all use are fetched before the kernel ahead has ended: of the first peers, and behind those. What is found
 * there does not matter. */
#define GS_LINE 8u /* words */
#define GS_FIRST_LINE (GPUSYM_WORK_RANKS / GS_LINE)
#define GS_WARM(arg)                                                                                               \
    do {                                                                                                           \
        const uint32_t at_ = threadIdx.x / GS_WARP * 2 % (sizeof(arg) / 64);                                       \
        uint64_t found_ = (arg).words[0] ^ (arg).words[GS_LINE * at_] ^ (arg).words[GS_LINE * at_ + GS_LINE];      \
        GS_UNROLL                                                                                                  \
        for (uint32_t i_ = GS_FIRST_LINE; i_ < GS_FIRST_LINE + 4; i_++) {                                          \
            found_ ^= (arg).words[GS_LINE * i_];                                                                   \
        }                                                                                                          \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.u64 p, %0, 0x67707579;\n\t@p membar.cta;\n\t}" ::"l"(found_)); \
    } while (0);

/* The epoch is the GPU's. */
#define GS_STREAM_KERNEL(symbol, family, op, type)                                                                  \
    extern "C" __global__ void __launch_bounds__(GPUSYM_THREADS_MAX, 1)                                             \
        symbol(const __grid_constant__ gs_arg_##family arg)                                                         \
    {                                                                                                               \
        const gs_ctx_t c = {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x};                                        \
        const gpusym_work_t *const w = (const gpusym_work_t *) (const void *) &arg;                                 \
        gs_count_t count;                                                                                           \
        gs_pack_t ahead = {{0, 0}};                                                                                 \
        const bool sized = !GS_REDUCES_##family && gs_is_sized(w), loads = GS_LOADS_AHEAD(family);                  \
        GS_WARM(arg)                                                                                                \
        const uint32_t status = gs_stream_begin(c, w, GS_PLAN_##family, sized, &count, loads ? &ahead : NULL);      \
        const gs_kernel_t kernel = {w,     op,    type, GS_REDUCES_##family, count.epoch, gs_stream_entries(count), \
                                    loads, ahead, false};                                                           \
        if (GPUSYM_STATUS_OK == status) {                                                                           \
            GS_RUN_##family(c, kernel);                                                                             \
        } else {                                                                                                    \
            gs_stream_end(c, w, status);                                                                            \
        }                                                                                                           \
    }

#define GPUSYM_STREAM_FAMILY(id) GS_STREAM_KERNEL(gpusym_stream_##id##_ANY, id, GS_ANY, GS_ANY)
#include "kernels/kernels.def"

#define GPUSYM_STREAM_KERNEL(f, o, t) GS_STREAM_KERNEL(gpusym_stream_##f##_##o##_##t, f, GPUSYM_OP_##o, GPUSYM_T_##t)
#include "kernels/kernels.def"
