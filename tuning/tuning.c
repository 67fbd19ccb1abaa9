/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The choice: the defaults of defaults.json, and which kernels do it.  Constants have their unit and where they come
 * from.
 */
#include "tuning/tuning.h"

#include "kernels/plan.h"
#include "tuning/resident.h"

/* Zero copy: up to so many bytes of message loads with one barrier beat stores with two, by ranks: 2, up to 4, more. On
 * 2 x H200 24.7 us for 4 MiB in place of 27.7, 37.7 for 8 in place of 38.7, but 62.6 for 16 in place of 61.5 (on
 * another machine 26.3 and 26.0, 38.7 and 38.5: no difference; 63.4 and 61.5); the others were measured on 4, by slower
 * code. */
static const uint64_t pull_max[3] = {8ull << 20, 2ull << 20, 2ull << 20};
/* ... up to so many the root of a bcast serves all by itself, for the same reason (8 x H200: 128 KiB by it 22.3 us, by
 * slices 19.0, 1 MiB 40.2 and 21.5; 4 x: 128 KiB 18.4 and 18.6, 1 MiB 26.0 and 22.1); that of a reduce, which with more
 * than two ranks is slower than slices wherever there is zero copy (4 x H200: 256 KiB 20.0 us in place of 16.9). */
static const uint64_t bcast_root_max[3] = {1ull << 20, 128ull << 10, 0}, reduce_root_max[3] = {1ull << 20, 0, 0};

/* What algorithm serves calls of a collective where no rule of a file holds (rules.h): the first that can. */
typedef struct {
    int algorithm;
    uint32_t ranks_min, ranks_max;
    uint64_t bytes_min, bytes_max; /* of a message, or of a segment: */
    bool segment;
    int zero_copy;            /* whether it is for zero copy; -1: either */
    uint32_t blocks, threads; /* 0: of geometry.c */
} default_t;

/* Made of tuning/defaults.json. */
#include "tuning/defaults.inc"

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
        return call->bytes <= bcast_root_max[gpusym_tuning_by_ranks(call->nranks)] ? GPUSYM_F_XST_Z
                                                                                   : GPUSYM_F_RSXLD_AGXST_Z;
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
    if (call->overwrites && !gpusym_algorithm_in_step(algorithm)) {
        return GPUSYM_TUNING_LACKS_STEP;
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

uint32_t gpusym_tuning_parts(unsigned coll, uint32_t nranks)
{
    switch (coll) {
    case GPUSYM_COLL_SCAN: /* a segment is the whole message of a rank */
    case GPUSYM_COLL_EXSCAN:
    case GPUSYM_COLL_NEIGHBOR_ALLGATHER: /* ranks may have any number of neighbors */
    case GPUSYM_COLL_NEIGHBOR_ALLGATHERV:
    case GPUSYM_COLL_NEIGHBOR_ALLTOALL:
    case GPUSYM_COLL_NEIGHBOR_ALLTOALLV:
    case GPUSYM_COLL_NEIGHBOR_ALLTOALLW:
        return 1;
    default:
        return gpusym_collective_whole(coll) ? 1 : nranks;
    }
}

/* Whether a default is for a call of that length. The user's limit replaces that of LL lines, where all reach all. */
static bool is_for(const default_t *d, const gpusym_tuning_call_t *call, uint64_t forced_max)
{
    const uint64_t parts = d->segment ? 1 : gpusym_tuning_parts(call->coll, call->nranks), bytes = call->bytes * parts;
    if (0 != forced_max && GPUSYM_PLAN_LINES == gpusym_family_plan(gpusym_algorithm_family((unsigned) d->algorithm))) {
        return call->bytes <= forced_max;
    }
    return bytes >= d->bytes_min && bytes <= d->bytes_max;
}

/* Multicast has not been measured: the defaults have it, by published figures, where the user asks for it. */
static bool is_offered(const gpusym_tuning_call_t *call, int algorithm)
{
    return call->mc_requested || !gpusym_family_multicast(gpusym_algorithm_family((unsigned) algorithm));
}

/* The default of a call; by that algorithm, unless it is -1. NULL: none. */
static const default_t *find_default(const gpusym_tuning_call_t *call, uint64_t forced_max, int algorithm)
{
    for (unsigned i = 0; i < defaults[call->coll].n; i++) {
        const default_t *d = &defaults[call->coll].rule[i];
        if (call->nranks >= d->ranks_min && call->nranks <= d->ranks_max && is_for(d, call, forced_max) &&
            (d->zero_copy < 0 || call->zero_copy == (0 != d->zero_copy)) &&
            (algorithm < 0 || algorithm == d->algorithm) && is_offered(call, d->algorithm) &&
            GPUSYM_TUNING_LACKS_NOTHING == gpusym_tuning_lacks(call, (unsigned) d->algorithm)) {
            return d;
        }
    }
    return NULL;
}

/* The algorithm of a call; -1: none. Where all reach all, rings and trees are used only where they are forced: they
 * were slower. */
static int choose_algorithm(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced)
{
    if (forced->algorithm >= 0 &&
        GPUSYM_TUNING_LACKS_NOTHING == gpusym_tuning_lacks(call, (unsigned) forced->algorithm)) {
        return forced->algorithm;
    }
    const default_t *d = find_default(call, forced->oneshot_max, -1);
    return NULL != d ? d->algorithm : -1;
}

/* Blocks and threads: what is forced, else what the defaults say of the algorithm, else by its kernel. */
static void choose_geometry(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                            gpusym_tuning_choice_t *choice)
{
    const default_t *d = 0 == forced->blocks ? find_default(call, forced->oneshot_max, choice->algorithm) : NULL;
    gpusym_tuning_forced_t said = *forced;
    if (NULL != d) {
        said.blocks = d->blocks;
        said.threads = 0 == forced->threads ? d->threads : forced->threads;
    }
    gpusym_tuning_geometry(call, &said, choice);
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

/* Blocks of the resident kernel that may serve a call; 0: none may. */
static uint32_t resident_blocks(unsigned family, const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced)
{
    const bool clusters = call->clusters && 0 == forced->threads && 1 != forced->blocks;
    const uint64_t most = gpusym_tuning_resident_max(call->nranks, clusters ? GPUSYM_CLUSTER_BLOCKS : 1);
    const uint64_t below = 0 != forced->resident_below ? forced->resident_below : most + 1;
    return call->bytes < below ? gpusym_tuning_resident_blocks(family, call->nranks, call->bytes, clusters) : 0;
}

void gpusym_tuning_choose(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                          gpusym_tuning_choice_t *choice)
{
    choice->algorithm = choose_algorithm(call, forced);
    choice->resident = 0;
    choice->own_threads = 0 != forced->threads;
    if (choice->algorithm >= 0) {
        choose_family(call, choice);
        choice->resident = resident_blocks(choice->family, call, forced);
        choose_geometry(call, forced, choice);
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

/* A new buffer costs one import per peer (about 0.1 ms), once; then a check of its allocation in each call. Two ranks
 * take LL lines up to 128 KiB. */
uint64_t gpusym_tuning_zero_copy_min(uint32_t nranks, bool simulated)
{
    return simulated ? 32u << 10 : (128u << 10) + (nranks <= 2);
}
