/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The vector work of examples/cg on the GPU: each kernel of cg_kernels.h over its elements, and the sums. Sums are
 * taken in an order that depends on nothing but the size: within a thread, in a tree over the threads of a block, and
 * by the last block over all blocks. So a solve has the same bits whenever it is repeated.
 */
#include "examples/cg_kernels.h"

/* Adds up the block's values; thread 0 has the result. */
static __device__ void block_sum(double sum[2])
{
    __shared__ double values[2][CG_THREADS];
    const unsigned t = threadIdx.x;

    values[0][t] = sum[0];
    values[1][t] = sum[1];
    for (unsigned half = CG_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) {
            values[0][t] += values[0][t + half];
            values[1][t] += values[1][t + half];
        }
    }
    sum[0] = values[0][0];
    sum[1] = values[1][0];
    __syncthreads();
}

/* Whether this block is the last of the launch to come here; what all have stored before is then to be seen. */
static __device__ bool is_last(unsigned *counter)
{
    __shared__ bool last;

    if (0 == threadIdx.x) {
        __threadfence();
        last = gridDim.x - 1 == atomicInc(counter, gridDim.x - 1); /* back to 0 for the next launch */
        __threadfence();
    }
    __syncthreads();
    return last;
}

static __device__ void all_blocks_sum(const cg_args_t *a, double sum[2])
{
    volatile double *parts = cg_scratch(a);

    block_sum(sum);
    if (0 == threadIdx.x) {
        parts[2 * blockIdx.x] = sum[0];
        parts[2 * blockIdx.x + 1] = sum[1];
    }
    if (!is_last((unsigned *) (cg_scratch(a) + 2 * CG_BLOCKS))) {
        return;
    }
    sum[0] = sum[1] = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += CG_THREADS) {
        sum[0] += parts[2 * b];
        sum[1] += parts[2 * b + 1];
    }
    block_sum(sum);
    if (0 == threadIdx.x) {
        cg_sums(a)[0] = sum[0];
        cg_sums(a)[1] = sum[1];
    }
}

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
            all_blocks_sum(&a, sum);                                                                       \
        }                                                                                                  \
    }
CG_KERNELS
#undef CG_KERNEL
