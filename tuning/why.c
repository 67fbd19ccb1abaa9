/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Why an algorithm serves a call: see why.h.
 */
#include "tuning/why.h"

gpusym_tuning_choice_t gpusym_tuning_ask(const gpusym_tuning_question_t *question, uint64_t bytes)
{
    gpusym_tuning_choice_t choice = {.algorithm = -1};
    gpusym_tuning_call_t call = question->call(question->arg, bytes);
    gpusym_tuning_forced_t forced = question->forced;

    if (NULL != question->answer) {
        (void) gpusym_rule_apply(question->answer, question->slot, &call, &forced);
    }
    if (NULL != question->rules) {
        (void) gpusym_rules_apply(question->rules, question->slot, &call, &forced);
    }
    gpusym_tuning_choose_in(question->slot, &call, &forced, &choice);
    return choice;
}

gpusym_tuning_lack_t gpusym_tuning_ask_lack(const gpusym_tuning_question_t *question, uint64_t bytes,
                                            unsigned algorithm)
{
    const gpusym_tuning_call_t call = question->call(question->arg, bytes);

    return gpusym_tuning_lacks_in(question->slot, &call, algorithm);
}

/* Ends a range before the first message of the next, which begins with it. Both lie between two that are known. */
static void find_border(const gpusym_tuning_question_t *question, gpusym_tuning_range_t *range, uint64_t other)
{
    uint64_t same = range->to;

    while (other - same > 1) {
        const uint64_t middle = same + (other - same) / 2;
        *(gpusym_tuning_ask(question, middle).algorithm == range->algorithm ? &same : &other) = middle;
    }
    range->to = same;
    range[1] = (gpusym_tuning_range_t){other, other, gpusym_tuning_ask(question, other).algorithm};
}

unsigned gpusym_tuning_ranges(const gpusym_tuning_question_t *question,
                              gpusym_tuning_range_t range[GPUSYM_TUNING_RANGES_MAX])
{
    unsigned n = 1;

    range[0] = (gpusym_tuning_range_t){1, 1, gpusym_tuning_ask(question, 1).algorithm};
    for (uint64_t bytes = 2; bytes <= GPUSYM_TUNING_BYTES_MAX; bytes *= 2) {
        const int last = gpusym_tuning_ask(question, bytes).algorithm;
        while (last != range[n - 1].algorithm && n < GPUSYM_TUNING_RANGES_MAX) {
            find_border(question, &range[n - 1], bytes);
            n++;
        }
        range[n - 1].to = bytes;
    }
    return n;
}

const char *gpusym_tuning_lack_words(gpusym_tuning_lack_t lack)
{
    static const char *const words[] = {
#define WORDS(id, text) text,
        GPUSYM_TUNING_LACKS(WORDS)
#undef WORDS
    };

    return words[lack];
}
