/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Packing and unpacking datatypes: by a kernel or by copy engines, and with how many threads.  Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_TUNING_PACK_H
#define GPUSYM_TUNING_PACK_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a kernel packs or unpacks `rows` rows of `width` bytes on average, for which copy engines would need so many
 * `copies`. on_gpu: packed memory is a GPU's; else pinned memory of the host. */
bool gpusym_tuning_pack_by_kernel(uint64_t rows, uint64_t width, uint64_t copies, bool on_gpu);
/* Whether a message of rows of so many bytes is unpacked by a launch of its own; else as messages of one run are
 * (tuning/copy.h), by fewer blocks, and sooner. */
bool gpusym_tuning_pack_message(uint64_t bytes);
/* Whether so many bytes, in rows of `width`, are copied from box to box: a message by one kernel of the receiver, else
 * the sender packs it; a collective's block by a launch that others share. by_link: the rows are another GPU's. */
bool gpusym_tuning_pack_box(uint64_t bytes, uint64_t width, bool by_link);
/* Longest piece in bytes, a power of two, into which nodes are cut that have `bytes` bytes in all. */
uint64_t gpusym_tuning_pack_piece(uint64_t nodes, uint64_t bytes);
/* Threads for a piece of so many bytes on average: a power of two, at most those of a block. */
uint32_t gpusym_tuning_pack_lanes(uint64_t bytes);
/* Blocks and threads of a kernel that moves so many bytes, in pieces for so many threads (0: it cuts them itself), on a
 * GPU of that many multiprocessors. */
uint32_t gpusym_tuning_pack_blocks(uint64_t bytes, uint64_t pieces, uint32_t sm_count);
uint32_t gpusym_tuning_pack_threads(void);

#endif
