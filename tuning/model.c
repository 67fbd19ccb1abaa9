/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The model: see model.h.
 */
#include "tuning/model.h"

#include <string.h>

#include "kernels/kernels.h"
#include "kernels/schedule.h"

#define MIB 1048576.0

/* Barriers of kernels that store: before they store, and when all is there; between the halves of two-shot too. */
enum { ONE_SHOT_BARRIERS = 2, TWO_SHOT_BARRIERS = 3 };

/* Whether a rank has the message, or a segment, of each other rank to send or to receive: one-shot. Else two-shot. */
static bool is_one_shot(unsigned plan)
{
    return GPUSYM_PLAN_LINES == plan || GPUSYM_PLAN_EXCHANGE == plan || GPUSYM_PLAN_SEGMENTS == plan;
}

/* MiB that the busiest rank sends or receives. */
static double busiest(const gpusym_tuning_call_t *call, bool one_shot)
{
    const double n = call->nranks, mib = (double) call->bytes / MIB;
    if (one_shot || !gpusym_collective_whole(call->coll)) {
        return mib * (n - 1);
    }
    /* Who has all the input, or gets all the result, owns no slice: no port carries more than the message. */
    const bool rooted = GPUSYM_COLL_BCAST == call->coll || GPUSYM_COLL_REDUCE == call->coll;
    return rooted ? mib : 2 * mib * (n - 1) / n;
}

/* Levels of a binary tree over n ranks, less one. */
static double depth(uint32_t n)
{
    double levels = 0;
    for (uint32_t reached = 1; reached < n; reached *= 2) {
        levels++;
    }
    return levels;
}

/* Steps of a schedule that wait for each other, and MiB that a rank forwards. */
static void count_path(const gpusym_tuning_call_t *call, int schedule, double *hops, double *mib)
{
    const double n = call->nranks, whole = (double) call->bytes / MIB;
    switch (schedule) {
    case GS_RING_ALLREDUCE:
        *hops = 2 * (n - 1);
        *mib = 2 * whole * (n - 1) / n;
        break;
    case GS_RING_ALLGATHER:
    case GS_RING_REDUCE_SCATTER: /* the bytes are a segment's */
        *hops = n - 1;
        *mib = whole * (n - 1);
        break;
    case GS_TREE_ALLREDUCE:
        *hops = 2 * depth(call->nranks);
        *mib = 2 * whole;
        break;
    case GS_TREE_BCAST:
    case GS_TREE_REDUCE:
        *hops = depth(call->nranks);
        *mib = whole;
        break;
    default: /* chains */
        *hops = n - 1;
        *mib = whole;
        break;
    }
}

static void count_channels(const gpusym_tuning_call_t *call, const gpusym_tuning_choice_t *choice, double *part)
{
    static const struct {
        enum gpusym_model_part hop, path;
    } of[] = {[GPUSYM_PROTOCOL_LL] = {GPUSYM_MODEL_HOP_LL, GPUSYM_MODEL_PATH_LL},
              [GPUSYM_PROTOCOL_LL128] = {GPUSYM_MODEL_HOP_LL128, GPUSYM_MODEL_PATH_LL128},
              [GPUSYM_PROTOCOL_SIMPLE] = {GPUSYM_MODEL_HOP_SIMPLE, GPUSYM_MODEL_PATH_SIMPLE}};
    const enum gpusym_protocol protocol = gpusym_family_protocol(choice->family);
    count_path(call, gpusym_algorithm_schedule((unsigned) choice->algorithm), &part[of[protocol].hop],
               &part[of[protocol].path]);
}

/* MiB that a port carries one way by multicast. A slice that the switch reduces leaves every GPU once, its owner's too;
 * what is stored to all comes to every GPU, the one that stores it too. */
static double switched(const gpusym_tuning_call_t *call)
{
    const double n = call->nranks, mib = (double) call->bytes / MIB;
    return gpusym_collective_whole(call->coll) ? mib * (n + 1) / n : mib * n;
}

static void count_stores(const gpusym_tuning_call_t *call, const gpusym_tuning_choice_t *choice, double *part)
{
    const bool one_shot = is_one_shot(gpusym_family_plan(choice->family));
    const double own = (double) call->bytes / MIB * (gpusym_collective_whole(call->coll) ? 1 : call->nranks);
    part[GPUSYM_MODEL_BARRIER] = one_shot ? ONE_SHOT_BARRIERS : TWO_SHOT_BARRIERS;
    const bool multicast = gpusym_family_multicast(choice->family);
    const double moved = multicast ? switched(call) : busiest(call, one_shot);
    part[multicast ? GPUSYM_MODEL_SWITCH : GPUSYM_MODEL_WIRE] = moved;
    part[GPUSYM_MODEL_THREAD] = moved / ((double) choice->blocks * choice->threads);
    if (gpusym_collective_reduces(call->coll) && !multicast) {
        part[GPUSYM_MODEL_REDUCED] = one_shot ? own * (call->nranks - 1) : own;
    }
    if (!choice->zero_copy) {
        part[GPUSYM_MODEL_COPIED] = 2 * own;
    }
}

void gpusym_model_count(const gpusym_tuning_call_t *call, const gpusym_tuning_choice_t *choice,
                        double part[GPUSYM_MODEL_PARTS])
{
    const unsigned plan = gpusym_family_plan(choice->family);
    const bool resident =
        0 != choice->resident && GPUSYM_PLAN_LINES == plan && !gpusym_family_multicast(choice->family);
    memset(part, 0, GPUSYM_MODEL_PARTS * sizeof *part);
    part[GPUSYM_PLAN_COPIES == plan ? GPUSYM_MODEL_ENGINES : resident ? GPUSYM_MODEL_COMMAND : GPUSYM_MODEL_LAUNCH] = 1;
    part[GPUSYM_MODEL_MOVE] = GPUSYM_COLL_ALLREDUCE != call->coll;
    part[GPUSYM_MODEL_PEER] = (double) call->nranks - 2;
    switch (plan) {
    case GPUSYM_PLAN_LINES:
        part[GPUSYM_MODEL_CLUSTER] = resident && choice->resident > 1;
        part[!resident              ? GPUSYM_MODEL_LINES
             : choice->resident > 1 ? GPUSYM_MODEL_BLOCKS
                                    : GPUSYM_MODEL_BLOCK] = busiest(call, true);
        break;
    case GPUSYM_PLAN_LL128:
        part[GPUSYM_MODEL_LINES128] = busiest(call, false);
        break;
    case GPUSYM_PLAN_CHANNELS:
        count_channels(call, choice, part);
        break;
    case GPUSYM_PLAN_COPIES:
        part[GPUSYM_MODEL_ENGINE] = busiest(call, false);
        break;
    default:
        count_stores(call, choice, part);
        break;
    }
}

double gpusym_model_sum(const double part[GPUSYM_MODEL_PARTS], const double value[GPUSYM_MODEL_PARTS])
{
    const double wire = part[GPUSYM_MODEL_WIRE] * value[GPUSYM_MODEL_WIRE] +
                        part[GPUSYM_MODEL_SWITCH] * value[GPUSYM_MODEL_SWITCH]; /* one of them is 0 */
    const double threads = part[GPUSYM_MODEL_THREAD] * value[GPUSYM_MODEL_THREAD];
    double sum = wire > threads ? -threads : -wire;
    for (unsigned i = 0; i < GPUSYM_MODEL_PARTS; i++) {
        sum += part[i] * value[i];
    }
    return sum;
}

static const struct {
    int cc;
    const char *name;
} known =
#define GPUSYM_MODEL_GPU(cc, name) {cc, name};
#include "tuning/model.def"

    const char * gpusym_model_gpus(void)
{
    return known.name;
}

double gpusym_model_predict(const gpusym_tuning_call_t *call, const gpusym_tuning_choice_t *choice, int cc)
{
    static const double ns[GPUSYM_MODEL_PARTS] = {
#define GPUSYM_MODEL(ID, value, unit, doc) [GPUSYM_MODEL_##ID] = value,
#define GPUSYM_MODEL_PUBLISHED(ID, value, unit, source, doc) [GPUSYM_MODEL_##ID] = value,
#include "tuning/model.def"
    };
    double part[GPUSYM_MODEL_PARTS];
    if (cc != known.cc || call->simulated || !call->all_reach || !call->ll128 || call->nranks < 2) {
        return 0;
    }
    gpusym_model_count(call, choice, part);
    return gpusym_model_sum(part, ns);
}
