/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Sums over the elements of a launch, for kernels of the examples on the GPU. They are taken in an order that depends
 * on nothing but the size of the launch: within a thread, in a tree over the threads of a block, and by the last block
 * over all blocks. So a kernel's sums have the same bits whenever it is repeated.
 */
#ifndef EXAMPLES_SUMS_H
#define EXAMPLES_SUMS_H

/* Adds up the N values of each of a block's THREADS threads, a power of two; thread 0 has the result. */
template <unsigned N, unsigned THREADS> static __device__ void block_sum(double sum[N])
{
    __shared__ double values[N][THREADS];
    const unsigned t = threadIdx.x;

    for (unsigned k = 0; k < N; k++) {
        values[k][t] = sum[k];
    }
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        for (unsigned k = 0; k < N && t < half; k++) {
            values[k][t] += values[k][t + half];
        }
    }
    for (unsigned k = 0; k < N; k++) {
        sum[k] = values[k][0];
    }
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

/* The sums over all blocks to out[N]. In `scratch`: the counter of blocks that are done, 8 bytes that are 0 between
 * launches, then N doubles a block. */
template <unsigned N, unsigned THREADS>
static __device__ void all_blocks_sum(double *scratch, double *out, double sum[N])
{
    volatile double *parts = scratch + 1;

    block_sum<N, THREADS>(sum);
    for (unsigned k = 0; k < N && 0 == threadIdx.x; k++) {
        parts[N * blockIdx.x + k] = sum[k];
    }
    if (!is_last((unsigned *) scratch)) {
        return;
    }
    for (unsigned k = 0; k < N; k++) {
        sum[k] = 0;
        for (unsigned b = threadIdx.x; b < gridDim.x; b += THREADS) {
            sum[k] += parts[N * b + k];
        }
    }
    block_sum<N, THREADS>(sum);
    for (unsigned k = 0; k < N && 0 == threadIdx.x; k++) {
        out[k] = sum[k];
    }
}

#endif
