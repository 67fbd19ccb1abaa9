/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rules: what a file says of the choice, in place of the table (tuning.h).  Pure C, no MPI, no CUDA.
 *
 * A file has groups of rules for each collective. Of a communicator holds the first group of a collective whose
 * conditions it fulfils; of a call, the first rule of that group whose conditions the call fulfils, and whose algorithm
 * can serve it. What a rule leaves open is the table's; what the user forces goes before any rule.
 */
#ifndef GPUSYM_TUNING_RULES_H
#define GPUSYM_TUNING_RULES_H

#include <stddef.h>

#include "tuning/tuning.h"

/* Links between the GPUs of a communicator: each two by NVLink, or not. */
enum gpusym_rule_link { GPUSYM_RULE_LINK_ANY, GPUSYM_RULE_LINK_NVLINK, GPUSYM_RULE_LINK_PCI };

/* One rule, with the conditions of its group. */
typedef struct {
    uint32_t group, item; /* collectives.<coll>[group].rules[item] of its file; both rise */
    unsigned coll;        /* enum gpusym_collective */

    /* Of the communicator. */
    uint32_t ranks_min, ranks_max;
    bool single_host; /* else no communicator fulfils it: kernels serve ranks of one host */
    enum gpusym_rule_link link;
    char gpu[64]; /* is part of the GPUs' name, whatever the case; "": any */

    /* Of the call. */
    uint64_t bytes_min, bytes_max; /* of the message: gpusym_tuning_parts() times gpusym_tuning_call_t.bytes */
    bool segment;                  /* ... of a segment: just these */
    int op, type;                  /* enum gpusym_op, gpusym_type; -1: any */
    int zero_copy;                 /* whether the ranks have mapped each other's buffers; -1: either */

    /* What it says; -1, or 0 for any other: nothing. Alike on all ranks. */
    int algorithm;
    uint32_t blocks, threads, chunk;
    uint64_t resident_below; /* as in gpusym_tuning_forced_t */
} gpusym_rule_t;

/* The rules of a file, in its order. */
typedef struct {
    char *path;          /* owned */
    gpusym_rule_t *rule; /* [n]; owned */
    unsigned n;
} gpusym_rules_file_t;

/* Frees what a file has, and empties it. */
void gpusym_rules_file_free(gpusym_rules_file_t *file);

/* The rules that may hold for a communicator; and, once they are settled, those that do. */
typedef struct gpusym_rules gpusym_rules_t;

/* Keeps the rules of a file for a communicator of so many ranks of one host on GPUs of that name. Returns NULL if no
 * rule is for it, or there is no memory. */
gpusym_rules_t *gpusym_rules_make(const gpusym_rules_file_t *file, uint32_t nranks, const char *gpu);
/* NULL is fine. */
void gpusym_rules_free(gpusym_rules_t *rules);

/* Returns a hash of what the rules say, whatever the name of their file: ranks with the same make the same choices. Not
 * 0; 0 of NULL. */
uint64_t gpusym_rules_hash(const gpusym_rules_t *rules);

/* Tells of the links, before the first choice: nvlink: each two GPUs have one. */
void gpusym_rules_settle(gpusym_rules_t *rules, bool nvlink);

/* The file; how many rules of it hold, settled. */
const char *gpusym_rules_path(const gpusym_rules_t *rules);
unsigned gpusym_rules_count(const gpusym_rules_t *rules);

/* Adds what the rules say of a call, in such a slot, to what the user forces. Returns the rule that holds; NULL:
 * none. */
const gpusym_rule_t *gpusym_rules_apply(const gpusym_rules_t *rules, const gpusym_work_t *slot,
                                        const gpusym_tuning_call_t *call, gpusym_tuning_forced_t *forced);

/* The same with one rule, whatever its lengths. Returns whether it holds. */
bool gpusym_rule_apply(const gpusym_rule_t *rule, const gpusym_work_t *slot, const gpusym_tuning_call_t *call,
                       gpusym_tuning_forced_t *forced);

/* Why a rule does not hold for a call whose length it is for. */
typedef enum {
    GPUSYM_RULE_HOLDS,
    GPUSYM_RULE_OTHER_CALL, /* is for another operation or type, or for other buffers */
    GPUSYM_RULE_FORCED,     /* the user forces another algorithm, or coll_gpusym_oneshot_max */
    GPUSYM_RULE_LACKS       /* its algorithm lacks something */
} gpusym_rule_verdict_t;

/* Returns the i-th rule for messages as long as the call's, in their order, and what comes of it; NULL: there are no
 * more. lack: set for GPUSYM_RULE_LACKS. */
const gpusym_rule_t *gpusym_rules_look(const gpusym_rules_t *rules, const gpusym_work_t *slot,
                                       const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                                       unsigned i, gpusym_rule_verdict_t *verdict, gpusym_tuning_lack_t *lack);

/* Writes where a rule stands in its file, "collectives.allreduce[0].rules[2]". Returns text. */
const char *gpusym_rule_place(const gpusym_rule_t *rule, char *text, size_t size);

#endif
