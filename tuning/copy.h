/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages between two processes: by a kernel or by a copy engine, and with how many blocks.  Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_TUNING_COPY_H
#define GPUSYM_TUNING_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/work.h"

/* Streams of a process and GPU for copies at a time. */
#define GPUSYM_COPY_LANES 4u

/* Slots of a pipeline at most: pieces under way. */
#define GPUSYM_PIPELINE_SLOTS 8u

/* Messages from host memory into GPU memory above so many bytes go through memory that the GPU reaches. Up to here they
 * are ordinary ones, which may be sent before they are received. */
#define GPUSYM_FROM_HOST_ABOVE 8192u

/* Whether a kernel copies `height` rows of `width` bytes each (one run: height 1); else a copy engine does. */
bool gpusym_tuning_copy_by_kernel(uint64_t width, uint64_t height);
/* Blocks, at most GPUSYM_COPY_BLOCKS, and threads of the kernel for so many bytes, of runs and of boxes. */
uint32_t gpusym_tuning_copy_blocks(uint64_t bytes);
uint32_t gpusym_tuning_box_blocks(uint64_t bytes);
uint32_t gpusym_tuning_copy_threads(void);
/* Whether copies of so many bytes in all wait for others that may share their launch, while another is under way. */
bool gpusym_tuning_copy_gathers(uint64_t bytes);
/* Whether another copy may share the launch of so many runs, of so many bytes. */
bool gpusym_tuning_copy_joins(uint32_t runs, uint64_t bytes);
/* Whether so many copies, of so many units at most and so many bytes together, are for a resident kernel's first
 * block. */
bool gpusym_tuning_copy_list(uint32_t copies, uint32_t units, uint64_t bytes);
/* Longest copy in bytes of a resident kernel (resident.h); and of whole, aligned packs to GPU memory, of one of so many
 * blocks. */
uint32_t gpusym_tuning_copy_resident_max(void);
uint32_t gpusym_tuning_copy_resident_packs_max(uint32_t blocks);
/* How long a copy waits for the signal of another process's, in nanoseconds: that one is queued already. */
uint32_t gpusym_tuning_copy_wait_ns(bool simulated);
/* Bytes of a pipeline's pieces, for a message of so many bytes, through memory of the host or of a GPU. */
uint64_t gpusym_tuning_pipeline_piece(uint64_t bytes, bool by_gpu);
/* Whether it is worth it to ask the receiver to map GPU memory. */
bool gpusym_tuning_pipeline_by_gpu(uint64_t bytes);

/* Bytes of the chunks in which a message of so many bytes goes through pinned memory to other host memory. */
uint64_t gpusym_tuning_host_chunk(uint64_t bytes);

/* Smallest message in bytes that its receiver asks the sender to push, if it receives no other such message then. */
uint64_t gpusym_tuning_push_min(void);

#endif
