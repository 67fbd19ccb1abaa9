/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rules: see rules.h. There is an index for each collective, so that a call looks only at the rules for its
 * length: where the lengths of rules begin and end, and which rules are for those in between.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tuning/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

/* Lengths from start[i] on, up to the next one, are for the rules candidate[first[i]] to candidate[first[i + 1] - 1].
 */
typedef struct {
    uint32_t n;          /* 0: no rule holds */
    uint64_t *start;     /* [n], of the message or a segment, as gpusym_tuning_call_t.bytes; rising, the first is 0 */
    uint32_t *first;     /* [n + 1] */
    uint16_t *candidate; /* numbers of rules, rising; what is allocated for an index */
} index_t;

/* What holds with these links. */
typedef struct {
    unsigned count; /* rules */
    index_t index[GPUSYM_COLL_COUNT];
} settled_t;

struct gpusym_rules {
    gpusym_rules_file_t kept; /* those that ranks and GPUs allow */
    uint32_t nranks;
    settled_t settled[2]; /* [whether each two have an NVLink] */
    bool nvlink;
};

void gpusym_rules_file_free(gpusym_rules_file_t *file)
{
    free(file->path);
    free(file->rule);
    *file = (gpusym_rules_file_t){NULL, NULL, 0};
}

/* ---- the index ---- */

/* The shortest and the longest message, or segment, that a rule is for. False: for none. */
static bool find_lengths(const gpusym_rule_t *rule, uint32_t nranks, uint64_t *from, uint64_t *to)
{
    const uint64_t parts = rule->segment ? 1 : gpusym_tuning_parts(rule->coll, nranks);

    *from = rule->bytes_min / parts + (0 != rule->bytes_min % parts);
    *to = UINT64_MAX == rule->bytes_max ? UINT64_MAX : rule->bytes_max / parts;
    return *from <= *to;
}

static bool links_allow(const gpusym_rule_t *rule, bool nvlink)
{
    return GPUSYM_RULE_LINK_ANY == rule->link || (GPUSYM_RULE_LINK_NVLINK == rule->link) == nvlink;
}

/* The group of a collective's rules that holds: the first one that the links allow; -1: none. */
static int64_t find_group(const gpusym_rules_t *rules, unsigned coll, bool nvlink)
{
    for (unsigned i = 0; i < rules->kept.n; i++) {
        if (rules->kept.rule[i].coll == coll && links_allow(&rules->kept.rule[i], nvlink)) {
            return rules->kept.rule[i].group;
        }
    }
    return -1;
}

/* What an index is made of: the rules of one group of a collective. */
typedef struct {
    const gpusym_rules_t *rules;
    unsigned coll;
    int64_t group;
} source_t;

/* Returns rule i, if it is one of these and for some length, which it sets. */
static const gpusym_rule_t *take_rule(const source_t *s, unsigned i, uint64_t *from, uint64_t *to)
{
    const gpusym_rule_t *r = &s->rules->kept.rule[i];
    return r->coll == s->coll && r->group == s->group && find_lengths(r, s->rules->nranks, from, to) ? r : NULL;
}

static int compare_lengths(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;
    return (x > y) - (x < y);
}

/* Sets the lengths at which rules begin, and those behind which they end. */
static uint32_t list_starts(const source_t *s, uint64_t *start)
{
    uint32_t n = 0, kept = 0;
    uint64_t from, to;

    start[n++] = 0;
    for (unsigned i = 0; i < s->rules->kept.n; i++) {
        if (NULL != take_rule(s, i, &from, &to)) {
            start[n++] = from;
            start[n] = to + 1;
            n += UINT64_MAX != to;
        }
    }
    qsort(start, n, sizeof *start, compare_lengths);
    for (uint32_t i = 0; i < n; i++) {
        if (0 == i || start[i] != start[kept - 1]) {
            start[kept++] = start[i];
        }
    }
    return kept;
}

/* How many rules are for exactly so many bytes; and their numbers, where there is room for them. */
static uint32_t list_candidates(const source_t *s, uint64_t bytes, uint16_t *candidate)
{
    uint32_t n = 0;
    uint64_t from, to;

    for (unsigned i = 0; i < s->rules->kept.n; i++) {
        if (NULL != take_rule(s, i, &from, &to) && from <= bytes && bytes <= to) {
            if (NULL != candidate) {
                candidate[n] = (uint16_t) i;
            }
            n++;
        }
    }
    return n;
}

static bool make_index(const source_t *s, index_t *x)
{
    x->start = calloc(2 * (size_t) s->rules->kept.n + 2, sizeof *x->start);
    if (NULL == x->start) {
        return false;
    }
    const uint32_t n = list_starts(s, x->start);
    x->first = calloc((size_t) n + 1, sizeof *x->first);
    if (NULL == x->first) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        x->first[i + 1] = x->first[i] + list_candidates(s, x->start[i], NULL);
    }
    x->candidate = calloc((size_t) x->first[n] + 1, sizeof *x->candidate);
    if (NULL == x->candidate) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        (void) list_candidates(s, x->start[i], x->candidate + x->first[i]);
    }
    x->n = n;
    return true;
}

/* For either links: nothing can fail later. */
static bool make_indexes(gpusym_rules_t *rules, bool nvlink)
{
    settled_t *settled = &rules->settled[nvlink];

    for (unsigned coll = 0; coll < GPUSYM_COLL_COUNT; coll++) {
        const source_t s = {rules, coll, find_group(rules, coll, nvlink)};
        if (s.group >= 0 && !make_index(&s, &settled->index[coll])) {
            return false;
        }
        for (unsigned i = 0; i < rules->kept.n; i++) {
            settled->count += rules->kept.rule[i].coll == coll && rules->kept.rule[i].group == s.group;
        }
    }
    return true;
}

/* ---- which rules are for a communicator ---- */

static bool is_for(const gpusym_rule_t *rule, uint32_t nranks, const char *gpu)
{
    return rule->single_host && nranks >= rule->ranks_min && nranks <= rule->ranks_max &&
           ('\0' == *rule->gpu || NULL != strcasestr(gpu, rule->gpu));
}

gpusym_rules_t *gpusym_rules_make(const gpusym_rules_file_t *file, uint32_t nranks, const char *gpu)
{
    gpusym_rules_t *rules = calloc(1, sizeof *rules);

    if (NULL == rules) {
        return NULL;
    }
    rules->nranks = nranks;
    rules->kept.path = strdup(file->path);
    rules->kept.rule = calloc(0 != file->n ? file->n : 1, sizeof *file->rule);
    for (unsigned i = 0; i < file->n && NULL != rules->kept.path && NULL != rules->kept.rule; i++) {
        if (is_for(&file->rule[i], nranks, gpu)) {
            rules->kept.rule[rules->kept.n++] = file->rule[i];
        }
    }
    if (0 == rules->kept.n || !make_indexes(rules, false) || !make_indexes(rules, true)) {
        gpusym_rules_free(rules);
        return NULL;
    }
    return rules;
}

void gpusym_rules_free(gpusym_rules_t *rules)
{
    if (NULL == rules) {
        return;
    }
    for (unsigned i = 0; i < 2 * GPUSYM_COLL_COUNT; i++) {
        index_t *x = &rules->settled[i % 2].index[i / 2];
        free(x->start);
        free(x->first);
        free(x->candidate);
    }
    gpusym_rules_file_free(&rules->kept);
    free(rules);
}

void gpusym_rules_settle(gpusym_rules_t *rules, bool nvlink)
{
    rules->nvlink = nvlink;
}

static uint64_t hash_word(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

uint64_t gpusym_rules_hash(const gpusym_rules_t *rules)
{
    uint64_t h = 0xcbf29ce484222325ull;

    for (unsigned i = 0; NULL != rules && i < rules->kept.n; i++) {
        const gpusym_rule_t *r = &rules->kept.rule[i];
        const uint64_t words[] = {r->coll,
                                  r->group,
                                  r->link,
                                  r->bytes_min,
                                  r->bytes_max,
                                  r->segment,
                                  (uint64_t) r->op,
                                  (uint64_t) r->type,
                                  (uint64_t) r->algorithm,
                                  r->blocks,
                                  r->threads,
                                  r->chunk,
                                  r->resident_below,
                                  (uint64_t) r->zero_copy};
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++) {
            h = hash_word(h, words[k]);
        }
    }
    return NULL != rules ? h | 1 : 0;
}

const char *gpusym_rules_path(const gpusym_rules_t *rules)
{
    return rules->kept.path;
}

unsigned gpusym_rules_count(const gpusym_rules_t *rules)
{
    return rules->settled[rules->nvlink].count;
}

/* ---- calls ---- */

/* The rules for so many bytes: *n of them. */
static const uint16_t *find_candidates(const index_t *x, uint64_t bytes, uint32_t *n)
{
    uint32_t low = 0, high = x->n; /* start[low] <= bytes < start[high] */

    *n = 0;
    if (0 == x->n) {
        return NULL;
    }
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        *(x->start[middle] <= bytes ? &low : &high) = middle;
    }
    *n = x->first[low + 1] - x->first[low];
    return x->candidate + x->first[low];
}

static gpusym_rule_verdict_t judge(const gpusym_rule_t *r, const gpusym_work_t *slot, const gpusym_tuning_call_t *call,
                                   const gpusym_tuning_forced_t *forced, gpusym_tuning_lack_t *lack)
{
    if ((r->op >= 0 && call->op != (unsigned) r->op) || (r->type >= 0 && call->type != (unsigned) r->type) ||
        (r->zero_copy >= 0 && call->zero_copy != (0 != r->zero_copy))) {
        return GPUSYM_RULE_OTHER_CALL;
    }
    if (r->algorithm < 0) {
        return GPUSYM_RULE_HOLDS;
    }
    if ((forced->algorithm >= 0 && forced->algorithm != r->algorithm) || 0 != forced->oneshot_max) {
        return GPUSYM_RULE_FORCED;
    }
    *lack = gpusym_tuning_lacks_in(slot, call, (unsigned) r->algorithm);
    return GPUSYM_TUNING_LACKS_NOTHING == *lack ? GPUSYM_RULE_HOLDS : GPUSYM_RULE_LACKS;
}

/* What the user leaves open. A resident kernel has one block: where the rule wants more, there is none, unless it says
 * so. */
static void add_rule(const gpusym_rule_t *r, gpusym_tuning_forced_t *forced)
{
    const uint64_t below = 0 == r->resident_below && r->blocks > 1 ? 1 : r->resident_below;

    forced->algorithm = forced->algorithm < 0 ? r->algorithm : forced->algorithm;
    forced->resident_below = 0 == forced->resident_below ? below : forced->resident_below;
    forced->blocks = 0 == forced->blocks ? r->blocks : forced->blocks;
    forced->threads = 0 == forced->threads ? r->threads : forced->threads;
    forced->chunk = 0 == forced->chunk ? r->chunk : forced->chunk;
}

bool gpusym_rule_apply(const gpusym_rule_t *r, const gpusym_work_t *slot, const gpusym_tuning_call_t *call,
                       gpusym_tuning_forced_t *forced)
{
    gpusym_tuning_lack_t lack;
    const bool holds = GPUSYM_RULE_HOLDS == judge(r, slot, call, forced, &lack);

    if (holds) {
        add_rule(r, forced);
    }
    return holds;
}

const gpusym_rule_t *gpusym_rules_apply(const gpusym_rules_t *rules, const gpusym_work_t *slot,
                                        const gpusym_tuning_call_t *call, gpusym_tuning_forced_t *forced)
{
    uint32_t n;
    const uint16_t *candidate = find_candidates(&rules->settled[rules->nvlink].index[call->coll], call->bytes, &n);

    for (uint32_t i = 0; i < n; i++) {
        const gpusym_rule_t *r = &rules->kept.rule[candidate[i]];
        if (gpusym_rule_apply(r, slot, call, forced)) {
            return r;
        }
    }
    return NULL;
}

const gpusym_rule_t *gpusym_rules_look(const gpusym_rules_t *rules, const gpusym_work_t *slot,
                                       const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                                       unsigned i, gpusym_rule_verdict_t *verdict, gpusym_tuning_lack_t *lack)
{
    uint32_t n;
    const uint16_t *candidate = find_candidates(&rules->settled[rules->nvlink].index[call->coll], call->bytes, &n);

    *lack = GPUSYM_TUNING_LACKS_NOTHING;
    if (i >= n) {
        return NULL;
    }
    *verdict = judge(&rules->kept.rule[candidate[i]], slot, call, forced, lack);
    return &rules->kept.rule[candidate[i]];
}

const char *gpusym_rule_place(const gpusym_rule_t *rule, char *text, size_t size)
{
    snprintf(text, size, "collectives.%s[%u].rules[%u]", gpusym_collective_name(rule->coll), rule->group, rule->item);
    return text;
}
