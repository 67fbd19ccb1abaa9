/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls on streams of the program: see stream.h.
 */
#include "tuning/stream.h"

#include "kernels/kernels.h"

/* Threads for which a multiprocessor has room, whatever the kernel: with 128 registers each. */
#define SM_THREADS 512u

/* The largest launch takes up to two thirds of a GPU; of the rest the first communicator gets half, the next one half
 * of what is left; none less than a block. */
uint32_t gpusym_tuning_stream_threads(uint32_t sm_count, unsigned nth, bool simulated)
{
    const uint32_t spare = (simulated ? 24 : sm_count) * SM_THREADS / 3;
    const uint32_t threads = nth < 32 ? spare >> (0 == nth ? 1 : nth) : 0;
    return threads < SM_THREADS ? SM_THREADS : threads;
}

/* One block does all of a short message: blocks that count themselves at the end take 0.4 us more. */
#define ONE_BLOCK_PACKS 1024u
/* All-reduces of two ranks that have no warp left for the entries in one block go by blocks of so many packs, up to so
 * many. In graphs of ten calls on 2 x H200, us, by one block and so: 4 KiB 2.77, 3.09; 8 KiB 3.39, 3.10; 16 KiB 4.60,
 * 3.15. 32 KiB by the table of other calls 3.29, so 3.25; 64 KiB 3.47, 3.66. */
#define BLOCK_PACKS 64u
#define BLOCKS_PACKS_MAX 1024u
/* The longest message of an all-reduce in LL lines, behind which are LL128 lines: there are fewer blocks than other
 * calls may have. 128 KiB 8.0 us by LL, 8.7 by LL128; 256 KiB 11.7, 9.3. And the longest segment of an exchange, behind
 * which it is stored: examples/cg in graphs, us an iteration, with faces of 8 KiB 27.9 by LL, 30.3 stored; 18 KiB 32.1,
 * 31.4; 32 KiB 35.1, 33.5; 128 KiB 67, 50. Measured on 2 x H200 only. */
#define LL_MAX (128ull << 10)
#define EXCHANGE_LL_MAX (16ull << 10)
/* Threads of a block of LL128 lines. 512 KiB by 256 threads 8.15 us, by 512 8.64; 768 KiB 10.6, 12.2. */
#define LL128_THREADS 256u
/* The longest message in such lines: 640 KiB 11.0 us, stored 14.9; 896 KiB 13.9, 15.6; 1 MiB, an epoch more, 22.5 and
 * 16.1. */
#define LL128_MAX (896ull << 10)

/* Registered buffers: from so many bytes of a message, or a segment, on they are not copied. All-reduces of 512 KiB, 1,
 * 2 and 8 MiB take 11.1, 12.7, 15.8 and 36.5 us in graphs on 2 x H200, and 10.5, 22.1, 22.4 and 58.8 from other
 * buffers. Up to ZERO_COPY_FEW they are faster by fewer blocks than there is room for, of so many threads: 11.9, 15.6
 * and 35.2 us for 1, 2 and 8 MiB, but 80 in place of 76 for 16. */
#define ZERO_COPY_MIN (768ull << 10)
#define SIM_ZERO_COPY_MIN (4ull << 10)
#define ZERO_COPY_FEW (8ull << 20)
#define ZERO_COPY_BLOCKS 32u
#define ZERO_COPY_THREADS 256u

/* A pack a thread, and a warp that meanwhile waits for the peers' entries, as far as there are threads. */
#define WARP 32u
static uint32_t threads_of(uint64_t packs)
{
    const uint64_t threads = (packs + WARP - 1) / WARP * WARP + WARP;
    return threads < GPUSYM_THREADS_MAX ? (uint32_t) threads : GPUSYM_THREADS_MAX;
}

uint32_t gpusym_tuning_stream_lines(uint64_t bytes, uint32_t nranks)
{
    return threads_of((bytes + GPUSYM_PACK - 1) / GPUSYM_PACK * (nranks - 1));
}

static bool is_exchange(unsigned coll)
{
    switch (coll) {
    case GPUSYM_COLL_ALLGATHER:
    case GPUSYM_COLL_ALLGATHERV:
    case GPUSYM_COLL_ALLTOALL:
    case GPUSYM_COLL_GATHER:
    case GPUSYM_COLL_SCATTER:
        return true;
    default:
        return false;
    }
}

/* The algorithm between registered buffers where it is not that of the defaults; -1: it is. Ranks load: by stores,
 * which the defaults prefer, data go through the heap. reduce_scatter_block on 2 x H200: segments of 1 MiB 13.6 us,
 * through the heap 13.8; 4 MiB 23.0, 33.3; 16 MiB 65, 125; 64 MiB 219, 466. */
static int straight_algorithm(unsigned coll)
{
    switch (coll) {
    case GPUSYM_COLL_REDUCE_SCATTER:
        return GPUSYM_ALG_REDUCE_SCATTER_LD;
    case GPUSYM_COLL_REDUCE_SCATTER_BLOCK:
        return GPUSYM_ALG_REDUCE_SCATTER_BLOCK_LD;
    default:
        return -1;
    }
}

void gpusym_tuning_stream(gpusym_tuning_call_t *call, uint64_t zero_copy_min, gpusym_tuning_forced_t *forced)
{
    const uint64_t table = call->simulated ? SIM_ZERO_COPY_MIN : ZERO_COPY_MIN;
    call->zero_copy = call->zero_copy && call->bytes >= (0 != zero_copy_min ? zero_copy_min : table);
    if (call->zero_copy && forced->algorithm < 0) { /* by no lines */
        call->ll128 = false;
        forced->oneshot_max = 0 == forced->oneshot_max ? 1 : forced->oneshot_max;
        forced->algorithm = straight_algorithm(call->coll);
    }
    const uint64_t packs = (call->bytes + GPUSYM_PACK - 1) / GPUSYM_PACK * (call->nranks - 1);
    const bool two = 2 == call->nranks, sums = two && GPUSYM_COLL_ALLREDUCE == call->coll && call->ll128;
    if (call->simulated || 0 != forced->blocks || 0 != forced->threads) {
        return;
    }
    if (call->zero_copy && two && GPUSYM_COLL_ALLREDUCE == call->coll && call->bytes <= ZERO_COPY_FEW) {
        forced->blocks = ZERO_COPY_BLOCKS;
        forced->threads = ZERO_COPY_THREADS;
    }
    if (packs <= (sums ? GPUSYM_THREADS_MAX - WARP : ONE_BLOCK_PACKS)) {
        forced->blocks = 1;
        forced->threads = threads_of(packs);
    } else if (sums && packs <= BLOCKS_PACKS_MAX) {
        forced->blocks = (uint32_t) ((packs + BLOCK_PACKS - 1) / BLOCK_PACKS);
        forced->threads = threads_of(BLOCK_PACKS);
    } else if (sums && call->bytes > LL_MAX && call->bytes <= LL128_MAX) {
        forced->threads = LL128_THREADS;
    }
    if (sums && call->bytes > LL128_MAX) {
        call->ll128 = false;
    }
    if (0 == forced->oneshot_max && (sums || (two && is_exchange(call->coll)))) {
        forced->oneshot_max = sums ? LL_MAX : EXCHANGE_LL_MAX;
    }
}
