/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Why an algorithm serves a call: for which messages the table takes which. Asks the choice itself (tuning.h), so that
 * both cannot differ. Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_TUNING_WHY_H
#define GPUSYM_TUNING_WHY_H

#include "tuning/rules.h"

/* A call of any length. */
typedef struct {
    gpusym_tuning_call_t (*call)(const void *arg, uint64_t bytes); /* describes the call for so many bytes */
    const void *arg;
    const gpusym_work_t *slot; /* of its team */
    gpusym_tuning_forced_t forced;
    const gpusym_rules_t *rules; /* of its communicator, settled; NULL: none */
    const gpusym_rule_t *answer; /* of a tuner plug-in, for these calls; NULL: none */
} gpusym_tuning_question_t;

/* Messages, or segments, of `from` to `to` bytes are served by one algorithm (-1: by none). */
typedef struct {
    uint64_t from, to;
    int algorithm;
} gpusym_tuning_range_t;

enum { GPUSYM_TUNING_RANGES_MAX = 16 };

/* The longest message that is looked at, in bytes. */
#define GPUSYM_TUNING_BYTES_MAX (1ull << 40)

/* Makes the choice for so many bytes, as a call does. */
gpusym_tuning_choice_t gpusym_tuning_ask(const gpusym_tuning_question_t *question, uint64_t bytes);

/* Returns what an algorithm lacks to serve the call for so many bytes, room in the slot included. */
gpusym_tuning_lack_t gpusym_tuning_ask_lack(const gpusym_tuning_question_t *question, uint64_t bytes,
                                            unsigned algorithm);

/* Finds the ranges, rising and without gaps, from 1 byte to GPUSYM_TUNING_BYTES_MAX. One that lies between two powers
 * of two may be missed. Returns their number. */
unsigned gpusym_tuning_ranges(const gpusym_tuning_question_t *question,
                              gpusym_tuning_range_t range[GPUSYM_TUNING_RANGES_MAX]);

/* The words of what an algorithm lacks. */
const char *gpusym_tuning_lack_words(gpusym_tuning_lack_t lack);

#endif
