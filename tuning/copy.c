/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages between two processes: see copy.h. Measured on 2 x H200.
 */
#include "tuning/copy.h"

/* Largest copy in bytes by a kernel. A message of 2 MiB takes 14.4 us by a kernel and 15.1 by a copy engine, one of
 * 4 MiB 21.2 and 20.7; but copy engines lose 4 us between two copies. */
#define KERNEL_MAX (4u << 20)
/* Rows shorter than this, in bytes, are a kernel's whatever they amount to: a copy engine takes them one by one. */
#define SHORT_ROW 512u
/* What a block copies, in bytes, until there are GPUSYM_COPY_BLOCKS: a load of 16 bytes for each thread. */
#define BLOCK_BYTES 8192u
#define BLOCKS_MAX 32u
/* The same of boxes, which often move by 8 bytes a thread. An estimate. */
#define BOX_BLOCK_BYTES 4096u
#define THREADS 512u
/* A launch takes the CPU 2.5 us, and ends 5 us later. What is copied in that time keeps the link busy. */
#define GATHER_MAX (256u << 10)
/* Runs of a launch if they have so many bytes: of more each would get too few blocks. */
#define RUNS_LONG 8u
/* Longest copy of a resident kernel, in bytes: two loads of each thread of its one block. */
#define RESIDENT_MAX 16384u
/* The same of whole packs, of which each thread has eight loads under way. A message of 32 KiB, 64, 128 and 256 KiB
 * takes 5.9, 6.5, 8.6 and 11.9 us, and by a launch 9.3, 9.8, 9.8 and 9.9. */
#define RESIDENT_PACKS_MAX (128u << 10)
/* The same of a cluster: 128, 256 and 512 KiB take 6.7, 7.1 and 8.1 us, 1 MiB by a launch 12.6. */
#define RESIDENT_CLUSTER_MAX (1u << 20)
/* Copies that one block does by one command: each thread moves so many units of the longest at once, and all no more
 * than so many bytes. One face of 4 KiB, 529 units, takes 9.6 us by a command and 11.7 by a launch; six of them, with
 * eight units a thread, 21.8 and 18.7; a window of 64 messages of 8 bytes 62 and 72. */
#define LIST_UNITS (4u * THREADS)
#define LIST_BYTES (48u << 10)
/* A copy of 4 MiB on a GPU with nothing else to do ends 12 us after it has been queued. An estimate. */
#define WAIT_NS 50000u
#define WAIT_NS_SIM 20000000u /* processes share cores */
/* Two copy engines that write each other's memory reach 383 GB/s each way, two that read 365; one alone 390 either way.
 * The request may cost 20 us. */
#define PUSH_MIN (64u << 20)
/* Pieces of a pipeline, in bytes: as many as there are slots, so that both sides copy at the same time, but not so
 * short that the start of a copy takes longer than the copy. */
#define PIECE_MIN (64u << 10)
#define PIECE_MAX (512u << 10)
/* Of 256 MiB with 8 slots: pieces of 1 MiB 243 GB/s, of 2 MiB 300, of 4 MiB 318. */
#define PIECE_MAX_GPU (3u << 20)
/* Messages from this on go through GPU memory. */
#define BY_GPU_MIN (64u << 10)

/* Chunks on the way to host memory, in bytes. While the CPU copies one the next one comes, so there are two at least:
 * but the start of each takes the CPU about 3 us, in which it copies 32 KiB itself. Of 64 MiB in chunks of 256 KiB 0.90
 * of the rate of a memcpy is reached, in longer ones more than 1. */
#define HOST_CHUNK_MIN (128u << 10)
#define HOST_CHUNK_MAX (512u << 10)
#define HOST_CHUNK_STEP (64u << 10)

bool gpusym_tuning_copy_by_kernel(uint64_t width, uint64_t height)
{
    return (height > 1 && width < SHORT_ROW) || width <= KERNEL_MAX / height;
}

uint32_t gpusym_tuning_copy_blocks(uint64_t bytes)
{
    const uint64_t blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    return blocks < 1 ? 1 : blocks < BLOCKS_MAX ? (uint32_t) blocks : BLOCKS_MAX;
}

uint32_t gpusym_tuning_box_blocks(uint64_t bytes)
{
    const uint64_t blocks = (bytes + BOX_BLOCK_BYTES - 1) / BOX_BLOCK_BYTES;
    return blocks < 1 ? 1 : blocks < GPUSYM_COPY_BLOCKS ? (uint32_t) blocks : GPUSYM_COPY_BLOCKS;
}

uint32_t gpusym_tuning_copy_threads(void)
{
    return THREADS;
}

bool gpusym_tuning_copy_gathers(uint64_t bytes)
{
    return bytes < GATHER_MAX;
}

bool gpusym_tuning_copy_joins(uint32_t runs, uint64_t bytes)
{
    return runs < GPUSYM_RUNS_MAX && (runs < RUNS_LONG || bytes < GATHER_MAX);
}

bool gpusym_tuning_copy_list(uint32_t copies, uint32_t units, uint64_t bytes)
{
    return (uint64_t) copies * units <= LIST_UNITS && bytes <= LIST_BYTES;
}

uint32_t gpusym_tuning_copy_resident_max(void)
{
    return RESIDENT_MAX;
}

uint32_t gpusym_tuning_copy_resident_packs_max(uint32_t blocks)
{
    return blocks > 1 ? RESIDENT_CLUSTER_MAX : RESIDENT_PACKS_MAX;
}

uint32_t gpusym_tuning_copy_wait_ns(bool simulated)
{
    return simulated ? WAIT_NS_SIM : WAIT_NS;
}

uint64_t gpusym_tuning_pipeline_piece(uint64_t bytes, bool by_gpu)
{
    const uint64_t even = (bytes / GPUSYM_PIPELINE_SLOTS + PIECE_MIN - 1) / PIECE_MIN * PIECE_MIN;
    const uint64_t most = by_gpu ? PIECE_MAX_GPU : PIECE_MAX;
    return even < PIECE_MIN ? PIECE_MIN : even < most ? even : most;
}

bool gpusym_tuning_pipeline_by_gpu(uint64_t bytes)
{
    return bytes >= BY_GPU_MIN;
}

uint64_t gpusym_tuning_host_chunk(uint64_t bytes)
{
    const uint64_t half = (bytes / 2 + HOST_CHUNK_STEP - 1) / HOST_CHUNK_STEP * HOST_CHUNK_STEP;
    return half < HOST_CHUNK_MIN ? HOST_CHUNK_MIN : half < HOST_CHUNK_MAX ? half : HOST_CHUNK_MAX;
}

uint64_t gpusym_tuning_push_min(void)
{
    return PUSH_MIN;
}
