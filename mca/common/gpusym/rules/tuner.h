/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Tuner plug-ins (tuning/gpusym_tuner.h): loading, and questions whose answers are rules.  Any thread.
 */
#ifndef GPUSYM_COMMON_RULES_TUNER_H
#define GPUSYM_COMMON_RULES_TUNER_H

#include "tuning/gpusym_tuner.h"
#include "tuning/rules.h"

/* Loads a plug-in, which stays loaded. Returns NULL, and in why the reason, if there is none of this version. */
const gpusym_tuner_t *gpusym_tuner_load(const char *path, char *why, size_t size);

/* Calls that have one answer. Segments of `bytes` are of the class of their message. */
typedef struct {
    unsigned coll, op, type; /* enum gpusym_collective, gpusym_op, gpusym_type */
    unsigned class;          /* the message has 2^class bytes at least, and less than twice as many */
} gpusym_tuner_key_t;
gpusym_tuner_key_t gpusym_tuner_key(unsigned coll, unsigned op, unsigned type, uint64_t bytes, uint32_t nranks);

/* Asks for calls of that key. Sets *rule to the answer, of algorithm -1 and otherwise 0 where it leaves all open.
 * False: it was an error, or cannot be, and why says so; rule leaves all open. */
bool gpusym_tuner_ask(const gpusym_tuner_t *tuner, void *context, const gpusym_tuner_key_t *key, uint32_t max_blocks,
                      gpusym_rule_t *rule, char *why, size_t size);

#endif
