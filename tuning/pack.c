/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Packing and unpacking datatypes: see pack.h.
 */
#include "tuning/pack.h"

/* A 2-D copy of rows of 2 KiB takes twice the time of a kernel, of 64 bytes 3.6 times (64 MiB, H200). Rows from this on
 * fill a copy engine's bursts. An estimate. */
#define LONG_ROW (32u << 10)
/* The same across PCIe, which a copy engine fills with shorter rows. An estimate. */
#define LONG_ROW_HOST 512u
/* A message's kernel has 32 blocks, which take 8 us for this by NVLink; a launch of its own ends 4 us later. An
 * estimate. */
#define MESSAGE_MIN (1u << 20)
/* What NVLink carries of rows is sectors. An estimate. */
#define SECTOR 32u
#define BOX_MAX (4u << 20)
/* Pieces: at least so long, and at most. A thread moves 16 bytes at a time. */
#define PIECE_MIN 256u
#define PIECE_MAX 8192u
/* A piece may be so many times as long as the others: the threads of its neighbours wait for it. */
#define PIECE_SPREAD 4u
/* Nodes that cutting adds, at most: 16 MiB of GPU memory. */
#define PIECES_MAX (1u << 19)
#define THREADS 256u
#define LANES_MAX 128u
/* Blocks of a multiprocessor that are in its share at a time, and again as many, which replace them as they end. */
#define BLOCKS_PER_SM 8u

/* A copy takes the CPU as long as a launch: 2.5 us. */
bool gpusym_tuning_pack_by_kernel(uint64_t rows, uint64_t width, uint64_t copies, bool on_gpu)
{
    return copies > 1 || (rows > 1 && width < (on_gpu ? LONG_ROW : LONG_ROW_HOST));
}

bool gpusym_tuning_pack_message(uint64_t bytes)
{
    return bytes >= MESSAGE_MIN;
}

bool gpusym_tuning_pack_box(uint64_t bytes, uint64_t width, bool by_link)
{
    return bytes <= BOX_MAX && (!by_link || width >= SECTOR || bytes / width * SECTOR <= BOX_MAX);
}

uint64_t gpusym_tuning_pack_piece(uint64_t nodes, uint64_t bytes)
{
    const uint64_t most = PIECE_SPREAD * (bytes / nodes);
    uint64_t piece = PIECE_MIN;
    while ((piece < most && piece < PIECE_MAX) || bytes / piece > PIECES_MAX) {
        piece *= 2;
    }
    return piece;
}

uint32_t gpusym_tuning_pack_lanes(uint64_t bytes)
{
    uint32_t lanes = 1;
    while (lanes < LANES_MAX && 16 * lanes < bytes) {
        lanes *= 2;
    }
    return lanes;
}

uint32_t gpusym_tuning_pack_blocks(uint64_t bytes, uint64_t pieces, uint32_t sm_count)
{
    const uint64_t loads = bytes / 16 + 1, busy = loads > pieces ? loads : pieces;
    const uint64_t blocks = (busy + THREADS - 1) / THREADS,
                   most = (uint64_t) BLOCKS_PER_SM * (sm_count > 0 ? sm_count : 1);
    return (uint32_t) (blocks < most ? blocks : most);
}

uint32_t gpusym_tuning_pack_threads(void)
{
    return THREADS;
}
