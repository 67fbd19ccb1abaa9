/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The vector work of examples/cg on the GPU: each kernel of cg_kernels.h over its elements, and the sums (sums.h).
 */
#include "examples/cg_kernels.h"
#include "examples/sums.h"

#define CG_KERNEL(id, name)                                                                                \
    extern "C" __global__ void __launch_bounds__(CG_THREADS) cg_kernel_##name(const cg_args_t a)           \
    {                                                                                                      \
        const cg_scalars_t c = cg_##name##_scalars(&a);                                                    \
        const unsigned count = (unsigned) cg_count(&a);                                                    \
        double sum[2] = {0, 0};                                                                            \
                                                                                                           \
        for (unsigned i = blockIdx.x * CG_THREADS + threadIdx.x; i < count; i += gridDim.x * CG_THREADS) { \
            cg_##name(&a, &c, i, sum);                                                                     \
        }                                                                                                  \
        if (a.with_sums) {                                                                                 \
            all_blocks_sum<2, CG_THREADS>(cg_scratch(&a), cg_sums(&a), sum);                               \
        }                                                                                                  \
    }
CG_KERNELS
#undef CG_KERNEL
