/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Tuner plug-ins: see tuner.h.
 */
#include "mca/common/gpusym/rules/tuner.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"

#define SYMBOL "gpusym_tuner"
#define CHUNK_MAX (64u << 20)

const gpusym_tuner_t *gpusym_tuner_load(const char *path, char *why, size_t size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* once more: counted */
    const gpusym_tuner_t *tuner = NULL != library ? dlsym(library, SYMBOL) : NULL;

    if (NULL == library) {
        const char *error = dlerror();
        snprintf(why, size, "%s", NULL != error ? error : path);
        return NULL;
    }
    if (NULL == tuner) {
        snprintf(why, size, "%s: it defines no " SYMBOL, path);
    } else if (GPUSYM_TUNER_VERSION != tuner->version) {
        snprintf(why, size, "%s: it is of version %u of gpusym_tuner.h, not %u", path, tuner->version,
                 GPUSYM_TUNER_VERSION);
        tuner = NULL;
    } else if (NULL == tuner->name || NULL == tuner->choose) {
        snprintf(why, size, "%s: its " SYMBOL " has no %s", path, NULL == tuner->name ? "name" : "choose");
        tuner = NULL;
    }
    return tuner;
}

gpusym_tuner_key_t gpusym_tuner_key(unsigned coll, unsigned op, unsigned type, uint64_t bytes, uint32_t nranks)
{
    const uint64_t message = bytes * gpusym_tuning_parts(coll, nranks);
    return (gpusym_tuner_key_t){coll, op, type, 63u - (unsigned) __builtin_clzll(message | 1)};
}

/* The algorithm of a collective by its name; -1: there is none. */
static int find_algorithm(unsigned coll, const char *name)
{
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; a++) {
        if (gpusym_algorithm_collective(a) == coll && 0 == strcmp(gpusym_algorithm_name(a), name)) {
            return (int) a;
        }
    }
    return -1;
}

/* What is wrong with an answer; an empty text: nothing. */
static void judge(const gpusym_tuner_choice_t *c, unsigned coll, uint32_t max_blocks, char *why, size_t size)
{
    *why = '\0';
    if (NULL != c->algorithm && find_algorithm(coll, c->algorithm) < 0) {
        snprintf(why, size, "%.64s is no algorithm of %s", c->algorithm, gpusym_collective_name(coll));
    } else if (c->blocks > max_blocks) {
        snprintf(why, size, "%u blocks, of %u at most", c->blocks, max_blocks);
    } else if (c->threads > GPUSYM_THREADS_MAX || 0 != c->threads % 32) {
        snprintf(why, size, "%u threads, which is no multiple of 32 up to %u", c->threads, GPUSYM_THREADS_MAX);
    } else if (c->chunk > CHUNK_MAX) {
        snprintf(why, size, "a chunk of %u bytes, of %u at most", c->chunk, CHUNK_MAX);
    }
}

bool gpusym_tuner_ask(const gpusym_tuner_t *tuner, void *context, const gpusym_tuner_key_t *key, uint32_t max_blocks,
                      gpusym_rule_t *rule, char *why, size_t size)
{
    const char *names[GPUSYM_ALG_COUNT + 1];
    gpusym_tuner_choice_t choice = {.algorithm = NULL};
    const uint64_t least = 1ull << key->class;
    const gpusym_tuner_call_t call = {.collective = gpusym_collective_name(key->coll),
                                      .type = gpusym_type_name(key->type),
                                      .op = gpusym_collective_reduces(key->coll) ? gpusym_op_name(key->op) : NULL,
                                      .bytes_min = least,
                                      .bytes_max = least + (least - 1),
                                      .algorithms = names};
    char wrong[160];
    unsigned n = 0;

    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; a++) {
        if (gpusym_algorithm_collective(a) == key->coll) {
            names[n++] = gpusym_algorithm_name(a);
        }
    }
    names[n] = NULL;
    *rule = (gpusym_rule_t){.coll = key->coll, .op = -1, .type = -1, .zero_copy = -1, .algorithm = -1};
    const int error = tuner->choose(context, &call, &choice);
    if (0 != error) {
        snprintf(wrong, sizeof wrong, "error %d", error);
    } else {
        judge(&choice, key->coll, max_blocks, wrong, sizeof wrong);
    }
    if ('\0' != *wrong) {
        snprintf(why, size, "%s, of %s, %llu to %llu bytes of %s: %s", tuner->name, call.collective,
                 (unsigned long long) call.bytes_min, (unsigned long long) call.bytes_max, call.type, wrong);
        return false;
    }
    rule->algorithm = NULL != choice.algorithm ? find_algorithm(key->coll, choice.algorithm) : -1;
    rule->blocks = choice.blocks;
    rule->threads = choice.threads;
    rule->chunk = choice.chunk;
    return true;
}
