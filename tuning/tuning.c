/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The choice: tables of thresholds.  Constants have their unit and where they come from.
 */
#include "tuning/tuning.h"

#include "kernels/plan.h"
#include "tuning/resident.h"

/* Zero copy: up to so many bytes of message loads with one barrier beat stores with two, by ranks: 2, up to 4, more. On
 * 2 x H200 24.7 us for 4 MiB in place of 27.7, 37.7 for 8 in place of 38.7, but 62.6 for 16 in place of 61.5 (on
 * another machine 26.3 and 26.0, 38.7 and 38.5: no difference; 63.4 and 61.5); the others were measured on 4, by slower
 * code. */
static const uint64_t pull_max[3] = {8ull << 20, 2ull << 20, 2ull << 20};
/* ... measured on 4 x H200: up to so many the root of a bcast serves all by itself, for the same reason. Of a reduce,
 * by ranks: with more than two it is slower than slices wherever there is zero copy (4 x H200: 256 KiB 20.0 us in place
 * of 16.9). */
#define ROOT_MAX (1ull << 20)
static const uint64_t reduce_root_max[3] = {ROOT_MAX, 0, 0};
/* Where GPUs reach each other along rings only: largest message in bytes by LL, by LL128 (where it may be), then
 * Simple. */
#define RING_LL_MAX (64ull << 10)
#define RING_LL128_MAX (4ull << 20)

/* The LL and the other unicast algorithm of a collective, and how large a message, or segment, goes by LL lines: in
 * bytes, by ranks: 2, up to 4, more. LL lines are twice as long as their data but need no barrier. Not in the table: no
 * LL beyond that. Between these two, where links keep LL128 lines whole: the two-shot by those, up to how large a
 * message; 0: never. From how large a segment on copy engines send, with zero copy; 0: never. */
typedef struct {
    int ll, st;
    uint32_t ll_max[3];
    int ll128;
    uint32_t ll128_max[3];
    int ce;
    uint32_t ce_min[3];
} row_t;

#define KIB(n) ((n) << 10)
#define MIB(n) ((n) << 20)
#define CE(algorithm, bytes) .ce = (algorithm), .ce_min = {(bytes), 0, 0} /* on 2 ranks, where it was measured */
static const row_t rows[GPUSYM_COLL_COUNT] = {
    /* measured on 4 and 2 x H200 */
    [GPUSYM_COLL_ALLREDUCE] = {GPUSYM_ALG_ALLREDUCE_AGXLL_R,
                               GPUSYM_ALG_ALLREDUCE_RSXST_AGXST,
                               {KIB(128), KIB(128), KIB(64)},
                               GPUSYM_ALG_ALLREDUCE_RSXLL128_AGXLL128,
                               /* 512 KiB: 13.1 us in place of 13.8 by ST, 16.9 by LL; measured on 2 only */
                               {MIB(1), 0, 0}},
    /* the same traffic as the one-shot all-reduce of a message as long as a segment; ce: 64 MiB in all 105.6 us in
     * place of 107.8, 256 MiB 365 in place of 388; measured on 2 only */
    [GPUSYM_COLL_ALLGATHER] = {GPUSYM_ALG_ALLGATHER_LL,
                               GPUSYM_ALG_ALLGATHER_ST,
                               {KIB(128), KIB(64), KIB(32)},
                               CE(GPUSYM_ALG_ALLGATHER_CE, MIB(32))},
    [GPUSYM_COLL_ALLGATHERV] = {GPUSYM_ALG_ALLGATHERV_LL,
                                GPUSYM_ALG_ALLGATHERV_ST,
                                {KIB(128), KIB(64), KIB(32)},
                                CE(GPUSYM_ALG_ALLGATHERV_CE, MIB(32))},
    [GPUSYM_COLL_REDUCE_SCATTER] = {GPUSYM_ALG_REDUCE_SCATTER_LL,
                                    GPUSYM_ALG_REDUCE_SCATTER_ST,
                                    {KIB(256), KIB(128), KIB(64)}},
    [GPUSYM_COLL_REDUCE_SCATTER_BLOCK] = {GPUSYM_ALG_REDUCE_SCATTER_BLOCK_LL,
                                          GPUSYM_ALG_REDUCE_SCATTER_BLOCK_ST,
                                          {KIB(256), KIB(128), KIB(64)}},
    [GPUSYM_COLL_ALLTOALL] = {GPUSYM_ALG_ALLTOALL_LL,
                              GPUSYM_ALG_ALLTOALL_ST,
                              {KIB(128), KIB(64), KIB(32)},
                              CE(GPUSYM_ALG_ALLTOALL_CE, MIB(32))},
    [GPUSYM_COLL_ALLTOALLV] = {GPUSYM_ALG_ALLTOALLV_LL,
                               GPUSYM_ALG_ALLTOALLV_ST,
                               {KIB(128), KIB(64), KIB(32)},
                               CE(GPUSYM_ALG_ALLTOALLV_CE, MIB(32))},
    [GPUSYM_COLL_GATHER] = {GPUSYM_ALG_GATHER_LL, GPUSYM_ALG_GATHER_ST, {KIB(128), KIB(64), KIB(32)}},
    [GPUSYM_COLL_GATHERV] = {GPUSYM_ALG_GATHERV_LL, GPUSYM_ALG_GATHERV_ST, {KIB(128), KIB(64), KIB(32)}},
    [GPUSYM_COLL_SCATTER] = {GPUSYM_ALG_SCATTER_LL, GPUSYM_ALG_SCATTER_ST, {KIB(128), KIB(64), KIB(32)}},
    [GPUSYM_COLL_SCATTERV] = {GPUSYM_ALG_SCATTERV_LL, GPUSYM_ALG_SCATTERV_ST, {KIB(128), KIB(64), KIB(32)}},
    [GPUSYM_COLL_SCAN] = {GPUSYM_ALG_SCAN_LL, GPUSYM_ALG_SCAN_ST, {KIB(128), KIB(64), KIB(32)}},
    [GPUSYM_COLL_EXSCAN] = {GPUSYM_ALG_EXSCAN_LL, GPUSYM_ALG_EXSCAN_ST, {KIB(128), KIB(64), KIB(32)}},
    /* as alltoallv; not measured by themselves. No copy engines: their streams do not wait for what is packed */
    [GPUSYM_COLL_ALLTOALLW] = {GPUSYM_ALG_ALLTOALLW_LL, GPUSYM_ALG_ALLTOALLW_ST, {KIB(128), KIB(64), KIB(32)}},
    [GPUSYM_COLL_NEIGHBOR_ALLGATHER] = {GPUSYM_ALG_NEIGHBOR_ALLGATHER_LL,
                                        GPUSYM_ALG_NEIGHBOR_ALLGATHER_ST,
                                        {KIB(128), KIB(64), KIB(32)}},
    [GPUSYM_COLL_NEIGHBOR_ALLGATHERV] = {GPUSYM_ALG_NEIGHBOR_ALLGATHERV_LL,
                                         GPUSYM_ALG_NEIGHBOR_ALLGATHERV_ST,
                                         {KIB(128), KIB(64), KIB(32)}},
    [GPUSYM_COLL_NEIGHBOR_ALLTOALL] = {GPUSYM_ALG_NEIGHBOR_ALLTOALL_LL,
                                       GPUSYM_ALG_NEIGHBOR_ALLTOALL_ST,
                                       {KIB(128), KIB(64), KIB(32)}},
    [GPUSYM_COLL_NEIGHBOR_ALLTOALLV] = {GPUSYM_ALG_NEIGHBOR_ALLTOALLV_LL,
                                        GPUSYM_ALG_NEIGHBOR_ALLTOALLV_ST,
                                        {KIB(128), KIB(64), KIB(32)}},
    [GPUSYM_COLL_NEIGHBOR_ALLTOALLW] = {GPUSYM_ALG_NEIGHBOR_ALLTOALLW_LL,
                                        GPUSYM_ALG_NEIGHBOR_ALLTOALLW_ST,
                                        {KIB(128), KIB(64), KIB(32)}},
    /* all of it through one GPU's port; ce: 256 MiB 712 us in place of 745, but 16 MiB 71 in place of 62 */
    [GPUSYM_COLL_BCAST] = {GPUSYM_ALG_BCAST_LL,
                           GPUSYM_ALG_BCAST_ST,
                           {KIB(128), KIB(64), KIB(32)},
                           CE(GPUSYM_ALG_BCAST_CE, MIB(256))},
    [GPUSYM_COLL_REDUCE] = {GPUSYM_ALG_REDUCE_LL, GPUSYM_ALG_REDUCE_ST, {KIB(128), KIB(64), KIB(32)}},
};
#undef KIB
#undef MIB
#undef CE

/* Reduce-scatter by copy engines stores to heaps only: it needs no user's output mapped. */
static bool is_reduce_scatter(unsigned coll)
{
    return GPUSYM_COLL_REDUCE_SCATTER == coll || GPUSYM_COLL_REDUCE_SCATTER_BLOCK == coll;
}

/* The family for an algorithm with zero copy. */
static unsigned zero_copy_family(const gpusym_tuning_call_t *call, unsigned algorithm)
{
    switch (algorithm) {
    case GPUSYM_ALG_ALLREDUCE_RSXST_AGXST:
        return call->bytes <= pull_max[gpusym_tuning_by_ranks(call->nranks)] ? GPUSYM_F_RSXLD_AGXST_Z
                                                                             : GPUSYM_F_RSXST_AGXST_Z;
    case GPUSYM_ALG_BCAST_ST:
        return call->bytes <= ROOT_MAX ? GPUSYM_F_XST_Z : GPUSYM_F_RSXLD_AGXST_Z;
    case GPUSYM_ALG_REDUCE_ST:
        return call->bytes <= reduce_root_max[gpusym_tuning_by_ranks(call->nranks)] ? GPUSYM_F_XLD_R_Z
                                                                                    : GPUSYM_F_RSXLD_AGXST_Z;
    case GPUSYM_ALG_REDUCE_SCATTER_ST: /* staged stores beat loads: 55 to 65 us for 16 MiB on 4 x H200 */
    case GPUSYM_ALG_REDUCE_SCATTER_BLOCK_ST:
        return GPUSYM_F_XST_R;
    case GPUSYM_ALG_GATHERV_ST: /* only the root knows where all lies */
        return GPUSYM_F_XLD_Z;
    default:
        return gpusym_family_zero_copy(gpusym_algorithm_family(algorithm));
    }
}

static int by_table(const gpusym_tuning_call_t *call, uint64_t forced_max)
{
    const row_t *row = &rows[call->coll];
    const unsigned n = gpusym_tuning_by_ranks(call->nranks);
    if (call->bytes <= (0 != forced_max ? forced_max : row->ll_max[n])) {
        return row->ll;
    }
    if (call->ll128 && call->bytes <= row->ll128_max[n]) {
        return row->ll128;
    }
    return call->copies && call->zero_copy && 0 != row->ce_min[n] && call->bytes >= row->ce_min[n] ? row->ce : row->st;
}

/* The algorithm along rings and chains alone; -1: none. */
static int by_ring(const gpusym_tuning_call_t *call)
{
    static const int ring[GPUSYM_COLL_COUNT][3] = {
#define ROW(coll, shape)                                                                           \
    [GPUSYM_COLL_##coll] = {GPUSYM_ALG_##coll##_##shape##_LL, GPUSYM_ALG_##coll##_##shape##_LL128, \
                            GPUSYM_ALG_##coll##_##shape##_SIMPLE}
        ROW(ALLREDUCE, RING),
        ROW(ALLGATHER, RING),
        ROW(ALLGATHERV, RING),
        ROW(REDUCE_SCATTER, RING),
        ROW(REDUCE_SCATTER_BLOCK, RING),
        ROW(BCAST, CHAIN),
        ROW(REDUCE, CHAIN),
#undef ROW
    };
    const uint64_t bytes = call->bytes * (gpusym_collective_whole(call->coll) ? 1 : call->nranks);
    const int *row = ring[call->coll];
    if (row[0] == row[1] || (call->reproducible && !gpusym_algorithm_reproducible((unsigned) row[0]))) {
        return -1; /* not in the table, or not allowed */
    }
    if (bytes <= RING_LL_MAX) {
        return row[0];
    }
    return bytes <= RING_LL128_MAX && call->ll128 ? row[1] : row[2];
}

gpusym_tuning_lack_t gpusym_tuning_lacks(const gpusym_tuning_call_t *call, unsigned algorithm)
{
    const unsigned family = gpusym_algorithm_family(algorithm);
    const int schedule = gpusym_algorithm_schedule(algorithm);
    if (gpusym_family_multicast(family) && !call->multicast) {
        return GPUSYM_TUNING_LACKS_MULTICAST;
    }
    if (gpusym_family_multicast(family) && !gpusym_family_valid(family, call->op, call->type)) {
        return GPUSYM_TUNING_LACKS_MULTICAST_OP;
    }
    if (call->reproducible && !gpusym_algorithm_reproducible(algorithm)) {
        return GPUSYM_TUNING_LACKS_ORDER;
    }
    if (gpusym_family_copies(family) && !call->copies) {
        return GPUSYM_TUNING_LACKS_COPIES;
    }
    if (gpusym_family_copies(family) && !call->zero_copy && !is_reduce_scatter(call->coll)) {
        return GPUSYM_TUNING_LACKS_MAPPED;
    }
    if (!call->all_reach && (schedule < 0 || schedule >= GS_TREE_ALLREDUCE)) {
        return GPUSYM_TUNING_LACKS_REACH;
    }
    return call->ll128 || !gpusym_family_ll128(family) ? GPUSYM_TUNING_LACKS_NOTHING : GPUSYM_TUNING_LACKS_LL128;
}

/* The algorithm of a call; -1: none. Where all reach all, multicast, rings and trees are used only where they are
 * forced: the first has not been measured, the others were slower. */
static int choose_algorithm(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced)
{
    if (forced->algorithm >= 0 &&
        GPUSYM_TUNING_LACKS_NOTHING == gpusym_tuning_lacks(call, (unsigned) forced->algorithm)) {
        return forced->algorithm;
    }
    return call->all_reach ? by_table(call, forced->oneshot_max) : by_ring(call);
}

/* Whether a schedule by the Simple protocol forwards results, which may go straight into the next rank's output. */
static bool forwards_results(int schedule)
{
    return GS_RING_REDUCE_SCATTER != schedule && GS_CHAIN_REDUCE != schedule && GS_TREE_REDUCE != schedule;
}

/* Sets the family of a choice, and whether that uses the buffers that peers have mapped. */
static void choose_family(const gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice)
{
    const unsigned algorithm = (unsigned) choice->algorithm, family = gpusym_algorithm_family(algorithm);
    choice->family = family;
    switch (gpusym_family_plan(family)) {
    case GPUSYM_PLAN_CHANNELS:
        choice->zero_copy = call->zero_copy && !call->scattered &&
                            GPUSYM_PROTOCOL_SIMPLE == gpusym_family_protocol(family) &&
                            forwards_results(gpusym_algorithm_schedule(algorithm));
        break;
    case GPUSYM_PLAN_COPIES:
        choice->zero_copy = !is_reduce_scatter(call->coll);
        break;
    default:
        choice->family = call->zero_copy ? zero_copy_family(call, algorithm) : family;
        choice->zero_copy = choice->family != family;
        break;
    }
}

void gpusym_tuning_choose(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                          gpusym_tuning_choice_t *choice)
{
    const uint64_t below =
        0 != forced->resident_below ? forced->resident_below : gpusym_tuning_resident_max(call->nranks) + 1;

    choice->algorithm = choose_algorithm(call, forced);
    choice->resident = call->bytes < below;
    choice->own_threads = 0 != forced->threads;
    if (choice->algorithm >= 0) {
        choose_family(call, choice);
        gpusym_tuning_geometry(call, forced, choice);
    }
}

/* Whether the slot has room for a channel of the algorithm, or a stream of LL128 lines. */
static bool has_room(const gpusym_work_t *slot, unsigned algorithm, unsigned family)
{
    const int schedule = gpusym_algorithm_schedule(algorithm);
    if (GPUSYM_F_RSXLL128_AGXLL128 == family) {
        return gpusym_ll128_fits(slot);
    }
    return schedule < 0 || 0 != gpusym_channels_max(family, (unsigned) schedule, slot);
}

gpusym_tuning_lack_t gpusym_tuning_lacks_in(const gpusym_work_t *slot, const gpusym_tuning_call_t *call,
                                            unsigned algorithm)
{
    const unsigned family = gpusym_algorithm_family(algorithm);
    const gpusym_tuning_lack_t lack = gpusym_tuning_lacks(call, algorithm);
    return GPUSYM_TUNING_LACKS_NOTHING != lack || !gpusym_family_ll128(family) || has_room(slot, algorithm, family)
               ? lack
               : GPUSYM_TUNING_LACKS_LL128;
}

void gpusym_tuning_choose_in(const gpusym_work_t *slot, gpusym_tuning_call_t *call,
                             const gpusym_tuning_forced_t *forced, gpusym_tuning_choice_t *choice)
{
    gpusym_tuning_choose(call, forced, choice);
    if (choice->algorithm >= 0 && gpusym_family_ll128(choice->family) &&
        !has_room(slot, (unsigned) choice->algorithm, choice->family)) {
        call->ll128 = false;
        gpusym_tuning_choose(call, forced, choice);
    }
}

/* A new buffer costs one import per peer (about 0.1 ms), once; then a check of its allocation in each call. */
uint64_t gpusym_tuning_zero_copy_min(bool simulated)
{
    return simulated ? 32u << 10 : 128u << 10;
}
