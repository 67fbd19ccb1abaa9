/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The work of examples/jacobi on the GPU: each kernel of jacobi_kernels.h over its elements, and the sum (sums.h).
 */
#include "examples/jacobi_kernels.h"
#include "examples/sums.h"

#define JACOBI_KERNEL(id, name, elements)                                                                    \
    extern "C" __global__ void __launch_bounds__(JACOBI_THREADS) jacobi_kernel_##name(const jacobi_args_t a) \
    {                                                                                                        \
        const unsigned count = (unsigned) elements(&a), threads = gridDim.x * JACOBI_THREADS;                \
        double sum[1] = {0};                                                                                 \
                                                                                                             \
        for (unsigned e = blockIdx.x * JACOBI_THREADS + threadIdx.x; e < count; e += threads) {              \
            jacobi_##name(&a, e, sum);                                                                       \
        }                                                                                                    \
        if (JACOBI_SWEEP == JACOBI_##id && 0 != (a.flags & JACOBI_SUM)) {                                    \
            all_blocks_sum<1, JACOBI_THREADS>(jacobi_scratch(&a), jacobi_own(&a), sum);                      \
        }                                                                                                    \
    }
JACOBI_KERNELS
#undef JACOBI_KERNEL
