/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The work of examples/halo on the GPU: each kernel of halo_kernels.h over its elements.
 */
#include "examples/halo_kernels.h"

#define HALO_KERNEL(id, name, elements)                                                                \
    extern "C" __global__ void __launch_bounds__(HALO_THREADS) halo_kernel_##name(const halo_args_t a) \
    {                                                                                                  \
        const unsigned count = (unsigned) elements(&a), threads = gridDim.x * HALO_THREADS;            \
                                                                                                       \
        for (unsigned e = blockIdx.x * HALO_THREADS + threadIdx.x; e < count; e += threads) {          \
            halo_##name(&a, e);                                                                        \
        }                                                                                              \
    }
HALO_KERNELS
#undef HALO_KERNEL
