/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: the answers of tuner plug-ins (rules/tuner.h), the choices by them, and the launches that these make.
 */
#include "mca/common/gpusym/rules/tuner.h"

#include "kernels/kernels.h"
#include "kernels/plan.h"
#include "mca/common/gpusym/memory/heap.h"
#include "test/fuzz/fuzz.h"

enum { ANSWERS = 16, SLOT = 1 << 20, LONGEST = 30 };

static fuzz_input_t *input;
static char *named; /* an answer's algorithm, which ends where its memory does */

static const char *algorithm_of(const gpusym_tuner_call_t *call)
{
    const size_t what = fuzz_number(input, 1), bytes = what / 8;
    size_t n = 0;

    switch (what % 8) {
    case 0:
        return NULL;
    case 1: /* any text */
        free(named);
        named = malloc(bytes + 1);
        MUST(NULL != named);
        fuzz_take(input, named, bytes);
        named[bytes] = '\0';
        return named;
    default:
        while (NULL != call->algorithms[n]) {
            n++;
        }
        return 0 == n ? NULL : call->algorithms[bytes % n];
    }
}

static int choose(void *context, const gpusym_tuner_call_t *call, gpusym_tuner_choice_t *choice)
{
    const unsigned how = (unsigned) fuzz_number(input, 1);

    MUST(NULL == context && call->bytes_min <= call->bytes_max && NULL != call->collective && NULL != call->type);
    choice->algorithm = algorithm_of(call);
    choice->blocks = (uint32_t) fuzz_number(input, how & 1 ? 4 : 1);
    choice->threads = (uint32_t) (how & 2 ? fuzz_number(input, 4) : fuzz_number(input, 1) * 32);
    choice->chunk = (uint32_t) fuzz_number(input, how & 4 ? 4 : 3);
    return 0 == how / 8 ? (int) fuzz_number(input, 4) : 0;
}

/* What the kernels get. */
static void plan(const gpusym_work_t *slot, const gpusym_tuning_call_t *call, const gpusym_tuning_choice_t *choice)
{
    const int schedule = gpusym_algorithm_schedule((unsigned) choice->algorithm);
    gpusym_work_t w = *slot;

    MUST(choice->blocks >= 1 && choice->blocks <= call->max_blocks);
    MUST(choice->threads >= 32 && choice->threads <= GPUSYM_THREADS_MAX && 0 == choice->threads % 32);
    w.bytes = call->bytes;
    w.nblocks = choice->blocks;
    w.nthreads = choice->threads;
    w.schedule = schedule < 0 ? 0 : (uint32_t) schedule;
    w.src_end = w.dst_end = call->nranks;
    w.copies.whole = gpusym_collective_whole(call->coll);
    MUST(gpusym_kernel_plan(choice->family, &w, choice->chunk) >= 1);
    MUST(w.nblocks >= 1 && w.nblocks <= choice->blocks && w.chunk >= 1);
}

static void apply(const gpusym_rule_t *rule, gpusym_tuning_call_t *call, const gpusym_work_t *slot)
{
    gpusym_tuning_forced_t forced = {.algorithm = -1};
    gpusym_tuning_choice_t choice;

    (void) gpusym_rule_apply(rule, slot, call, &forced);
    gpusym_tuning_choose_in(slot, call, &forced, &choice);
    MUST(choice.algorithm >= -1 && choice.algorithm < (int) GPUSYM_ALG_COUNT);
    if (choice.algorithm >= 0) {
        MUST(gpusym_algorithm_collective((unsigned) choice.algorithm) == call->coll);
        plan(slot, call, &choice);
    }
}

static void ask(fuzz_input_t *in)
{
    static const gpusym_tuner_t tuner = {.version = GPUSYM_TUNER_VERSION, .name = "fuzz", .choose = choose};
    const uint32_t nranks = 2 + (uint32_t) fuzz_number(in, 1) % (GPUSYM_TEAM_MAX - 1);
    const unsigned how = (unsigned) fuzz_number(in, 1);
    const uint64_t bytes = 1 + fuzz_number(in, 4) % ((uint64_t) 1 << fuzz_number(in, 1) % LONGEST);
    gpusym_work_t slot = {.nranks = nranks};
    gpusym_tuning_call_t call = {.coll = (unsigned) fuzz_number(in, 1) % GPUSYM_COLL_COUNT,
                                 .op = (unsigned) fuzz_number(in, 1) % GPUSYM_OP_COUNT,
                                 .type = (unsigned) fuzz_number(in, 1) % GPUSYM_T_COUNT,
                                 .bytes = bytes,
                                 .nranks = nranks,
                                 .sm_count = 132,
                                 .simulated = how & 1,
                                 .zero_copy = how & 2,
                                 .all_reach = how & 4,
                                 .ll128 = how & 8,
                                 .reproducible = how & 16};
    gpusym_rule_t rule;
    char why[512] = "";

    call.max_blocks = gpusym_slot_layout(SLOT, nranks, gpusym_tuning_max_blocks(call.sm_count, call.simulated), &slot);
    call.ll_payload = gpusym_ll_payload(slot.ll_bytes);
    MUST(0 != call.max_blocks);
    input = in;
    const gpusym_tuner_key_t key = gpusym_tuner_key(call.coll, call.op, call.type, bytes, nranks);
    const bool good = gpusym_tuner_ask(&tuner, NULL, &key, call.max_blocks, &rule, why, sizeof why);
    MUST(good == ('\0' == *why) && rule.blocks <= call.max_blocks && rule.threads <= GPUSYM_THREADS_MAX);
    MUST(rule.coll == call.coll && (good || (rule.algorithm < 0 && 0 == rule.blocks + rule.threads + rule.chunk)));
    apply(&rule, &call, &slot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};

    for (unsigned i = 0; i < ANSWERS && in.left > 0; i++) {
        ask(&in);
    }
    free(named);
    named = NULL;
    return 0;
}
