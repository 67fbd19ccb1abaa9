/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The reader of rules, by jansson: libgpusym_rules.so (rules.h).  The keys are those of Open MPI's coll/tuned from 6.0
 * on where they mean the same (docs/tuning-apps/collectives/tuned.rst there); gpu, link, type, op, blocks, threads and
 * resident_max are ours.  What a file must not have is an error, so that no word of it is without effect.
 */
#include "mca/common/gpusym/rules/rules.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

#define VERSION 3 /* of the format, as coll/tuned counts */
#define CHUNK_MAX ((json_int_t) 64 << 20)

/* The only symbol of the library. */
__attribute__((visibility("default"))) gpusym_rules_reader_t gpusym_rules_json;

typedef struct {
    const char *path;
    char place[160]; /* "collectives.allreduce[0]", of what is being read; "": the whole */
    char *why;
    size_t size;
    bool single_host; /* by the file's own comm_rank_distribution */
    gpusym_rules_file_t *file;
} reading_t;

/* Says what is wrong with a key of the place; NULL: with the place itself. Returns false. */
__attribute__((format(printf, 3, 4))) static bool fail(const reading_t *r, const char *key, const char *format, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    const bool both = '\0' != *r->place && NULL != key;
    snprintf(r->why, r->size, "%s: %s%s%s%s%s", r->path, r->place, both ? "." : "", NULL == key ? "" : key,
             '\0' != *r->place || NULL != key ? ": " : "", text);
    return false;
}

/* ---- values ---- */

/* A comment, or the name of a schema, may stand anywhere. */
static bool is_known(const char *key, const char *const *keys)
{
    bool known = 0 == strcmp(key, "$schema") || 0 == strcmp(key, "comment");

    for (; NULL != *keys && !known; keys++) {
        known = 0 == strcmp(key, *keys);
    }
    return known;
}

/* Whether it is an object with no other keys than these, NULL behind them. */
static bool check_object(const reading_t *r, json_t *object, const char *const *keys)
{
    char list[300] = "";
    const char *key;
    json_t *value;

    if (!json_is_object(object)) {
        return fail(r, NULL, "this must be an object, {...}");
    }
    json_object_foreach(object, key, value)
    {
        if (is_known(key, keys)) {
            continue;
        }
        for (size_t used = 0; NULL != *keys && used < sizeof list; keys++) {
            used += (size_t) snprintf(list + used, sizeof list - used, "%s%s", 0 == used ? "" : ", ", *keys);
        }
        return fail(r, key, "there is no such key here; those that there are: %s", list);
    }
    return true;
}

/* A number of an object, from least to most; *value stays where there is none. */
static bool read_number(const reading_t *r, json_t *object, const char *key, json_int_t least, json_int_t most,
                        json_int_t *value)
{
    json_t *number = json_object_get(object, key);

    if (NULL == number) {
        return true;
    }
    if (!json_is_integer(number) || json_integer_value(number) < least || json_integer_value(number) > most) {
        return fail(r, key, "this must be a whole number from %lld to %lld", (long long) least, (long long) most);
    }
    *value = json_integer_value(number);
    return true;
}

/* A range <key>_min to <key>_max, of which the end may be "inf": *max is most then, and where nothing is said. */
static bool read_range(const reading_t *r, json_t *object, const char *key, json_int_t most, json_int_t *min,
                       json_int_t *max)
{
    char name[32];

    *min = 0;
    *max = most;
    snprintf(name, sizeof name, "%s_min", key);
    if (!read_number(r, object, name, 0, most, min)) {
        return false;
    }
    snprintf(name, sizeof name, "%s_max", key);
    const char *word = json_string_value(json_object_get(object, name));
    if (NULL != word && 0 != strcmp(word, "inf")) {
        return fail(r, name, "this must be a whole number, or \"inf\"");
    }
    if (NULL == word && !read_number(r, object, name, 0, most, max)) {
        return false;
    }
    return *min <= *max || fail(r, name, "this is less than %s_min", key);
}

/* A text of an object; *text is NULL where there is none. */
static bool read_text(const reading_t *r, json_t *object, const char *key, const char **text)
{
    json_t *value = json_object_get(object, key);

    *text = json_string_value(value);
    return NULL == value || NULL != *text || fail(r, key, "this must be a text, \"...\"");
}

/* One of the words that `name` has by numbers from 0 on; *value stays where there is none. */
static bool read_word(const reading_t *r, json_t *object, const char *key, const char *(*name)(unsigned), int *value)
{
    char list[300] = "";
    const char *text;
    size_t used = 0;

    if (!read_text(r, object, key, &text) || NULL == text) {
        return NULL == json_object_get(object, key);
    }
    for (unsigned i = 0; NULL != name(i); i++) {
        if (0 == strcmp(text, name(i))) {
            *value = (int) i;
            return true;
        }
        if (used < sizeof list) {
            used += (size_t) snprintf(list + used, sizeof list - used, "%s%s", 0 == used ? "" : ", ", name(i));
        }
    }
    return fail(r, key, "\"%s\" is none of %s", text, list);
}

static const char *link_name(unsigned i)
{
    static const char *const names[] = {
        [GPUSYM_RULE_LINK_ANY] = "any", [GPUSYM_RULE_LINK_NVLINK] = "nvlink", [GPUSYM_RULE_LINK_PCI] = "pci"};
    return i < sizeof names / sizeof *names ? names[i] : NULL;
}

enum { DISTRIBUTION_APART = 2 };
static const char *distribution_name(unsigned i)
{
    static const char *const names[] = {"any", "single-node", [DISTRIBUTION_APART] = "one-per-node"};
    return i < sizeof names / sizeof *names ? names[i] : NULL;
}

static bool read_distribution(const reading_t *r, json_t *object, bool *single_host)
{
    int value = *single_host ? 0 : DISTRIBUTION_APART;

    if (!read_word(r, object, "comm_rank_distribution", distribution_name, &value)) {
        return false;
    }
    *single_host = DISTRIBUTION_APART != value;
    return true;
}

/* ---- rules ---- */

static bool read_algorithm(const reading_t *r, json_t *object, gpusym_rule_t *rule)
{
    char list[300] = "auto";
    size_t used = strlen(list);
    const char *text;

    if (!read_text(r, object, "alg", &text)) {
        return false;
    }
    if (NULL == text || 0 == strcmp(text, "auto")) {
        return true;
    }
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; a++) {
        if (gpusym_algorithm_collective(a) != rule->coll) {
            continue;
        }
        if (0 == strcmp(text, gpusym_algorithm_name(a))) {
            rule->algorithm = (int) a;
            return true;
        }
        if (used < sizeof list) {
            used += (size_t) snprintf(list + used, sizeof list - used, ", %s", gpusym_algorithm_name(a));
        }
    }
    return fail(r, "alg", "\"%s\" is no algorithm of %s; those that there are: %s", text,
                gpusym_collective_name(rule->coll), list);
}

/* The operation and type, which only collectives that reduce have. */
static bool read_operation(const reading_t *r, json_t *object, gpusym_rule_t *rule)
{
    static const char *const keys[] = {"op", "type"};

    for (unsigned i = 0; i < 2; i++) {
        if (NULL != json_object_get(object, keys[i]) && !gpusym_collective_reduces(rule->coll)) {
            return fail(r, keys[i], "%s does not reduce", gpusym_collective_name(rule->coll));
        }
    }
    return read_word(r, object, "op", gpusym_op_name, &rule->op) &&
           read_word(r, object, "type", gpusym_type_name, &rule->type);
}

/* Whether it is for zero copy alone, or for the rest. */
static bool read_zero_copy(const reading_t *r, json_t *object, gpusym_rule_t *rule)
{
    json_t *value = json_object_get(object, "zero_copy");

    if (NULL != value && !json_is_boolean(value)) {
        return fail(r, "zero_copy", "this must be true or false");
    }
    rule->zero_copy = NULL != value ? json_is_true(value) : -1;
    return true;
}

static bool read_decision(const reading_t *r, json_t *object, gpusym_rule_t *rule)
{
    json_int_t blocks = 0, threads = 0, chunk = 0, resident = -1;

    if (!read_algorithm(r, object, rule) || !read_number(r, object, "blocks", 1, GPUSYM_BLOCKS_MAX, &blocks) ||
        !read_number(r, object, "threads", 32, GPUSYM_THREADS_MAX, &threads) ||
        !read_number(r, object, "seg_size", 1, CHUNK_MAX, &chunk) ||
        !read_number(r, object, "resident_max", 0, INT32_MAX, &resident)) {
        return false;
    }
    if (0 != threads % 32) {
        return fail(r, "threads", "this must be a multiple of 32");
    }
    if (NULL == json_object_get(object, "alg") && 0 == blocks && 0 == threads && 0 == chunk && resident < 0) {
        return fail(r, NULL, "this says nothing: it must have alg, blocks, threads, seg_size or resident_max");
    }
    rule->blocks = (uint32_t) blocks;
    rule->threads = (uint32_t) threads;
    rule->chunk = (uint32_t) chunk;
    rule->resident_below = (uint64_t) (resident + 1);
    return true;
}

static bool read_lengths(const reading_t *r, json_t *object, gpusym_rule_t *rule)
{
    json_int_t min, max, block_min, block_max;

    if (!read_range(r, object, "msg_size", INT64_MAX, &min, &max) ||
        !read_range(r, object, "block_size", INT64_MAX, &block_min, &block_max)) {
        return false;
    }
    rule->segment = 0 != block_min || INT64_MAX != block_max;
    if (rule->segment && (0 != min || INT64_MAX != max)) {
        return fail(r, NULL, "this has both msg_size and block_size");
    }
    min = rule->segment ? block_min : min;
    max = rule->segment ? block_max : max;
    rule->bytes_min = (uint64_t) min;
    rule->bytes_max = INT64_MAX == max ? UINT64_MAX : (uint64_t) max;
    return true;
}

/* group: what all of its rules have. */
static bool read_rule(reading_t *r, json_t *object, const gpusym_rule_t *group)
{
    static const char *const keys[] = {
        "msg_size_min", "msg_size_max", "block_size_min", "block_size_max", "alg",          "type", "op",
        "zero_copy",    "blocks",       "threads",        "seg_size",       "resident_max", NULL};
    gpusym_rule_t *rule = &r->file->rule[r->file->n];

    if (r->file->n >= GPUSYM_RULES_MAX) {
        return fail(r, NULL, "there are more than %u rules", GPUSYM_RULES_MAX);
    }
    *rule = *group;
    if (!check_object(r, object, keys) || !read_lengths(r, object, rule) || !read_operation(r, object, rule) ||
        !read_zero_copy(r, object, rule) || !read_decision(r, object, rule)) {
        return false;
    }
    r->file->n++;
    return true;
}

static bool read_gpu(const reading_t *r, json_t *object, gpusym_rule_t *group)
{
    const char *gpu;

    if (!read_text(r, object, "gpu", &gpu)) {
        return false;
    }
    if (NULL != gpu && strlen(gpu) >= sizeof group->gpu) {
        return fail(r, "gpu", "this has more than %zu letters", sizeof group->gpu - 1);
    }
    snprintf(group->gpu, sizeof group->gpu, "%s", NULL == gpu ? "" : gpu);
    return true;
}

static bool read_group(reading_t *r, json_t *object, unsigned coll, unsigned number)
{
    static const char *const keys[] = {
        "comm_size_min", "comm_size_max", "comm_rank_distribution", "gpu", "link", "rules", NULL};
    json_t *rules = json_object_get(object, "rules");
    gpusym_rule_t group = {.group = number, .coll = coll, .op = -1, .type = -1, .zero_copy = -1, .algorithm = -1};
    json_int_t min, max;
    int link = GPUSYM_RULE_LINK_ANY;

    group.single_host = r->single_host;
    snprintf(r->place, sizeof r->place, "collectives.%s[%u]", gpusym_collective_name(coll), number);
    if (!check_object(r, object, keys) || !read_range(r, object, "comm_size", INT32_MAX, &min, &max) ||
        !read_distribution(r, object, &group.single_host) || !read_gpu(r, object, &group) ||
        !read_word(r, object, "link", link_name, &link)) {
        return false;
    }
    if (!json_is_array(rules)) {
        return fail(r, "rules", "this must be there, a list, [...]");
    }
    group.ranks_min = (uint32_t) min;
    group.ranks_max = (uint32_t) max;
    group.link = (enum gpusym_rule_link) link;
    for (size_t i = 0; i < json_array_size(rules); i++) {
        group.item = (uint32_t) i;
        (void) gpusym_rule_place(&group, r->place, sizeof r->place);
        if (!read_rule(r, json_array_get(rules, i), &group)) {
            return false;
        }
    }
    return true;
}

static bool read_collective(reading_t *r, const char *name, json_t *groups)
{
    unsigned coll = 0;

    while (coll < GPUSYM_COLL_COUNT && 0 != strcmp(name, gpusym_collective_name(coll))) {
        coll++;
    }
    if (GPUSYM_COLL_COUNT == coll) {
        return fail(r, name, "this is no collective that has kernels (allreduce, allgather, bcast, ...)");
    }
    if (!json_is_array(groups)) {
        return fail(r, name, "this must be a list, [...]");
    }
    for (size_t i = 0; i < json_array_size(groups); i++) {
        if (!read_group(r, json_array_get(groups, i), coll, (unsigned) i)) {
            return false;
        }
    }
    return true;
}

static bool read_root(reading_t *r, json_t *root)
{
    static const char *const keys[] = {"rule_file_version", "module", "comm_rank_distribution", "collectives", NULL};
    json_t *collectives = json_object_get(root, "collectives");
    const char *module, *name;
    json_int_t version = 0;
    json_t *groups;

    if (!check_object(r, root, keys) || !read_number(r, root, "rule_file_version", 0, INT32_MAX, &version) ||
        !read_text(r, root, "module", &module) || !read_distribution(r, root, &r->single_host)) {
        return false;
    }
    if (VERSION != version) {
        return fail(r, "rule_file_version", "this must be %d", VERSION);
    }
    if (NULL == module || 0 != strcmp(module, "gpusym")) {
        return fail(r, "module", "this must be \"gpusym\"%s",
                    NULL != module && 0 == strcmp(module, "tuned") ? ": the file is for coll/tuned" : "");
    }
    if (!json_is_object(collectives)) {
        return fail(r, "collectives", "this must be there, an object, {...}");
    }
    json_object_foreach(collectives, name, groups)
    {
        snprintf(r->place, sizeof r->place, "collectives");
        if (!read_collective(r, name, groups)) {
            return false;
        }
    }
    return true;
}

bool gpusym_rules_json(const char *path, gpusym_rules_file_t *file, char *why, size_t size)
{
    reading_t reading = {.path = path, .why = why, .size = size, .single_host = true, .file = file};
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);

    *file = (gpusym_rules_file_t){NULL, NULL, 0};
    if (NULL == root) {
        if (error.line > 0) {
            snprintf(why, size, "%s:%d:%d: %s", path, error.line, error.column, error.text);
        } else {
            snprintf(why, size, "%s: %s", path, error.text);
        }
        return false;
    }
    file->path = strdup(path);
    file->rule = calloc(GPUSYM_RULES_MAX, sizeof *file->rule);
    bool good = NULL != file->path && NULL != file->rule;
    if (!good) {
        snprintf(why, size, "%s: there is no memory", path);
    }
    good = good && read_root(&reading, root);
    json_decref(root);
    if (!good) {
        gpusym_rules_file_free(file);
    }
    return good;
}
