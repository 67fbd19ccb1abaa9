/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which algorithm, and why: see why.h. What decides is tuning/; the question is filled as plan/plan.c does for a call.
 */
#include "info/why.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "info/machine.h"
#include "info/param.h"
#include "kernels/plan.h"
#include "mca/common/gpusym/device/multicast.h"
#include "mca/common/gpusym/memory/heap.h"
#include "mca/common/gpusym/rules/rules.h"
#include "mca/common/gpusym/rules/tuner.h"
#include "mca/common/gpusym/topo/rings.h"
#include "tuning/model.h"
#include "tuning/why.h"

#include "config.h"

/* Where there is no GPU: an NVIDIA H200, NVLink to all. */
enum {
    H200_MULTIPROCESSORS = 132,
    H200_NVLINKS = 18,
    H200_CC = 90,
    STAGED = -2 /* of coll_gpusym_<collective>_algorithm */
};

/* The question: all of it but the bytes. */
typedef struct {
    gpusym_tuning_call_t call;
    gpusym_work_t slot;
    uint64_t bytes, zero_copy_min; /* UINT64_MAX: no zero copy */
    bool flags, reduces;
    const char *staged; /* why no kernel can serve any call; NULL: kernels can */
    const char *name;   /* of the collective */
    char gpu[64];       /* name and compute capability */
    int cc;
    gpusym_rules_t *rules; /* owned; NULL: none */
    const char *tuner;     /* the plug-in that has answered; NULL: none */
    gpusym_rule_t answer;
} asked_t;

/* ---- the user's words ---- */

static char wrong[512];

__attribute__((format(printf, 1, 2))) static bool refuse(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(wrong, sizeof(wrong), format, ap);
    va_end(ap);
    return false;
}

static bool take_collective(const char *word, asked_t *a)
{
    for (unsigned coll = 0; coll < GPUSYM_COLL_COUNT; coll++) {
        if (0 == strcasecmp(word, gpusym_collective_name(coll))) {
            a->call.coll = coll;
            a->name = gpusym_collective_name(coll);
            return true;
        }
    }
    return refuse("\"%s\" is no collective that has kernels (allreduce, allgather, bcast, ...)", word);
}

static bool take_bytes(const char *word, asked_t *a)
{
    static const char units[] = "kmg";
    char *end;

    a->bytes = isdigit((unsigned char) word[0]) ? strtoull(word, &end, 10) : 0;
    const char *unit = 0 == a->bytes || '\0' == *end ? NULL : strchr(units, tolower((unsigned char) *end));
    const unsigned shift = NULL == unit ? 0 : 10 * (unsigned) (unit - units + 1);
    if (0 == a->bytes || '\0' != end[NULL != unit] || a->bytes > GPUSYM_TUNING_BYTES_MAX >> shift) {
        return refuse("\"%s\" is no number of bytes from 1 to 1024g (8, 64k, 1m)", word);
    }
    a->bytes <<= shift;
    return true;
}

static bool take_type(const char *word, asked_t *a)
{
    static const char *const other_names[][2] = {
        {"float", "f32"},     {"double", "f64"},   {"int", "i32"},    {"long", "i64"},  {"half", "f16"},
        {"bfloat16", "bf16"}, {"char", "i8"},      {"int8", "i8"},    {"uint8", "u8"},  {"int16", "i16"},
        {"uint16", "u16"},    {"int32", "i32"},    {"uint32", "u32"}, {"int64", "i64"}, {"uint64", "u64"},
        {"complex", "c32"},   {"dcomplex", "c64"}, {"byte", "u8"}};

    for (size_t i = 0; i < sizeof(other_names) / sizeof(other_names[0]); i++) {
        word = 0 == strcasecmp(word, other_names[i][0]) ? other_names[i][1] : word;
    }
    for (unsigned type = 0; type < GPUSYM_T_COUNT; type++) {
        if (0 == strcasecmp(word, gpusym_type_name(type))) {
            a->call.type = type;
            return true;
        }
    }
    return refuse("\"%s\" is no type that kernels know (float, double, int8 to uint64, half, bfloat16, ...)", word);
}

static bool take_ranks(const char *word, asked_t *a)
{
    char *end;
    const unsigned long n = strtoul(word, &end, 10);

    if (!isdigit((unsigned char) word[0]) || '\0' != *end || n < 2 || n > GPUSYM_TEAM_MAX) {
        return refuse("\"%s\" is no number of ranks of a host from 2 to %d", word, GPUSYM_TEAM_MAX);
    }
    a->call.nranks = (uint32_t) n;
    return true;
}

static bool take_op(const char *word, asked_t *a)
{
    for (unsigned op = 0; op < GPUSYM_OP_COUNT; op++) {
        if (0 == strcasecmp(word, gpusym_op_name(op))) {
            a->call.op = op;
            return !a->reduces || gpusym_op_valid(op, a->call.type) ||
                   refuse("no kernel applies %s to %s: the call would be staged through host memory",
                          gpusym_op_name(op), gpusym_type_name(a->call.type));
        }
    }
    return refuse("\"%s\" is no operation that kernels know (sum, prod, min, max, ...)", word);
}

static bool take_words(const info_why_t *words, asked_t *a)
{
    if (!take_collective(words->coll, a) || !take_bytes(words->bytes, a) || !take_type(words->type, a) ||
        !take_ranks(words->ranks, a)) {
        return false;
    }
    a->reduces = gpusym_collective_reduces(a->call.coll);
    if (!a->reduces && NULL != words->op) {
        return refuse("%s has no operation", a->name);
    }
    return take_op(NULL == words->op ? "sum" : words->op, a);
}

/* ---- the question ---- */

static gpusym_tuning_call_t call_of(const void *arg, uint64_t bytes)
{
    const asked_t *a = arg;
    gpusym_tuning_call_t call = a->call;

    call.bytes = bytes;
    call.zero_copy = bytes >= a->zero_copy_min;
    call.copies = a->flags && gpusym_copies_fit(a->reduces ? GPUSYM_F_CE_R : GPUSYM_F_CE, &a->slot,
                                                gpusym_collective_whole(call.coll), bytes);
    return call;
}

/* The links between n GPUs, as a team agrees on them: the smaller of both directions. */
static void take_links(asked_t *a, const info_machine_t *m, uint32_t n)
{
    uint8_t link[GPUSYM_TEAM_MAX * GPUSYM_TEAM_MAX];
    uint32_t order[GPUSYM_TEAM_MAX];

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n; k++) {
            const uint8_t class = m->link[i][k] < m->link[k][i] ? m->link[i][k] : m->link[k][i];
            link[i * n + k] = class;
            a->call.ll128 = a->call.ll128 && (GPUSYM_LINK_NONE == class || class > GPUSYM_LINK_NVLINK);
        }
    }
    a->call.all_reach = n < 2 || gpusym_team_all_reach(link, n);
    if (!a->call.all_reach && 0 == gpusym_team_rings(link, n, 1, order)) {
        a->staged = "not every rank reaches every other, and there is no ring over all";
    }
}

/* Whether the ranks would have a multicast object, as a team agrees on it; has: their GPUs have such objects. */
static void take_multicast(asked_t *a, bool has)
{
    const int setting = (int) info_param_number("coll_gpusym_multicast", -1);

    a->call.multicast = has && a->call.nranks > 2 && a->call.all_reach &&
                        (a->call.simulated || 0 != info_param_number("coll_gpusym_heap_vmm", 0)) &&
                        gpusym_multicast_allowed(setting, a->call.simulated, NULL);
    a->call.mc_requested = setting > 0;
}

/* The GPUs of the ranks. Adds what had to be assumed. */
static void take_gpus(asked_t *a, info_item_t *assumed)
{
    info_machine_t *m = calloc(1, sizeof(*m));

    a->call.sm_count = H200_MULTIPROCESSORS;
    a->cc = H200_CC;
    snprintf(a->gpu, sizeof(a->gpu), "NVIDIA H200");
    a->call.all_reach = a->call.ll128 = a->call.clusters = a->flags = true;
    if (NULL == m) {
        return;
    }
    info_machine_find(m, a->call.nranks);
    const uint32_t n = m->n < a->call.nranks ? m->n : a->call.nranks;
    if (0 == n) {
        info_text(assumed, NULL,
                  "there is no GPU here (%s): each rank has an NVIDIA H200 of %d multiprocessors, NV%d to all others",
                  m->why, H200_MULTIPROCESSORS, H200_NVLINKS);
        take_multicast(a, true);
        free(m);
        return;
    }
    if (n < a->call.nranks) {
        info_text(assumed, NULL, "there are only %u GPUs here: each rank has one like these, linked alike", n);
    }
    if (!m->simulated && !GPUSYM_HAVE_KERNELS) {
        a->staged = "this build has no kernels for GPUs (configure it --with-cuda-arch)";
    }
    a->call.simulated = m->simulated;
    a->flags = m->flags;
    a->call.sm_count = (uint32_t) m->gpu[0].sm_count;
    a->call.clusters = m->gpu[0].clusters;
    a->cc = m->gpu[0].cc;
    snprintf(a->gpu, sizeof(a->gpu), "%s", m->gpu[0].name);
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t sm_count = (uint32_t) m->gpu[i].sm_count;
        a->call.sm_count = sm_count < a->call.sm_count ? sm_count : a->call.sm_count;
        a->call.clusters = a->call.clusters && m->gpu[i].clusters;
    }
    take_links(a, m, n);
    take_multicast(a, m->multicast);
    free(m);
}

/* The rules, as a communicator of these ranks would have them, or why there are none. */
static void take_rules(asked_t *a, info_item_t *assumed)
{
    char why[512];

    a->rules = gpusym_rules_open(info_param_text("coll_gpusym_rules"), a->call.nranks, a->gpu, a->cc, why, sizeof(why));
    if ('\0' != *why) {
        info_text(assumed, NULL, "no rules: %s", why);
    }
    if (NULL != a->rules) {
        gpusym_rules_settle(a->rules, a->call.ll128);
    }
}

/* The tuner plug-in's answer, as rank 0 of a communicator of these ranks would get it, or why there is none. */
static void take_tuner(asked_t *a, info_item_t *assumed)
{
    const char *path = info_param_text("coll_gpusym_tuner");
    const gpusym_tuner_comm_t comm = {.name = "gpusym_info",
                                      .gpu = a->gpu,
                                      .ranks = a->call.nranks,
                                      .compute_capability = (uint32_t) a->cc,
                                      .multiprocessors = a->call.sm_count,
                                      .nvlink = a->call.ll128,
                                      .max_blocks = a->call.max_blocks};
    const unsigned op = a->reduces ? a->call.op : GPUSYM_OP_BOR, type = a->reduces ? a->call.type : GPUSYM_T_U8;
    const gpusym_tuner_key_t key = gpusym_tuner_key(a->call.coll, op, type, a->bytes, a->call.nranks);
    void *context = NULL;
    char why[512];

    if (NULL == path || '\0' == *path) {
        return;
    }
    const gpusym_tuner_t *tuner = gpusym_tuner_load(path, why, sizeof(why));
    const int error = NULL != tuner && NULL != tuner->init ? tuner->init(&comm, &context) : 0;
    if (NULL == tuner || 0 != error) {
        info_text(assumed, NULL, "no tuner: %s", NULL == tuner ? why : "its init failed");
        return;
    }
    if (gpusym_tuner_ask(tuner, context, &key, a->call.max_blocks, &a->answer, why, sizeof(why))) {
        a->tuner = tuner->name;
    } else {
        info_text(assumed, NULL, "no answer of the tuner: %s", why);
    }
    if (NULL != tuner->finalize) {
        tuner->finalize(context);
    }
}

/* What is asked of the first communicator of a job. */
static void make_question(asked_t *a, info_item_t *assumed)
{
    const uint64_t heap_size = (uint64_t) info_param_number("coll_gpusym_heap_size", 56 << 20);
    const double min = info_param_number("coll_gpusym_zero_copy_min", 0);

    take_gpus(a, assumed);
    a->call.reproducible = 0 != info_param_number("coll_gpusym_reproducible", 0);
    a->zero_copy_min = min > 0 ? (uint64_t) min : gpusym_tuning_zero_copy_min(a->call.nranks, a->call.simulated);
    if (0 == info_param_number("coll_gpusym_zero_copy", 1) || !a->call.all_reach) {
        a->zero_copy_min = UINT64_MAX;
    }
    a->slot.nranks = a->call.nranks;
    a->call.max_blocks = gpusym_slot_layout(gpusym_slot_size(heap_size, 0), a->call.nranks,
                                            gpusym_tuning_max_blocks(a->call.sm_count, a->call.simulated), &a->slot);
    a->call.ll_payload = gpusym_ll_payload(a->slot.ll_bytes);
    take_rules(a, assumed);
    take_tuner(a, assumed);
    info_text(assumed, NULL,
              "buffers of cudaMalloc, which peers can map, input and output apart, the same on all ranks");
}

static gpusym_tuning_forced_t find_forced(const asked_t *a)
{
    char name[96];

    snprintf(name, sizeof(name), "coll_gpusym_%s_algorithm", a->name);
    return (gpusym_tuning_forced_t){.algorithm = (int) info_param_number(name, -1),
                                    .oneshot_max = (uint64_t) info_param_number("coll_gpusym_oneshot_max", 0),
                                    .blocks = (uint32_t) info_param_number("coll_gpusym_blocks", 0),
                                    .threads = (uint32_t) info_param_number("coll_gpusym_threads", 0),
                                    .chunk = (uint32_t) info_param_number("coll_gpusym_chunk", 0),
                                    .resident_below =
                                        (uint64_t) (info_param_number("coll_gpusym_resident_max", -1) + 1)};
}

/* ---- the answer ---- */

/* "64k"; plain if it is no multiple. */
static const char *bytes_text(uint64_t bytes, char text[32])
{
    static const char units[] = "\0kmgt";
    unsigned unit = 0;

    while (0 != bytes && 0 == bytes % 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 32, "%llu%.1s", (unsigned long long) bytes, &units[unit]);
    return text;
}

/* For which messages the table takes an algorithm. */
static void range_text(const gpusym_tuning_range_t *range, unsigned n, int algorithm, char *text, size_t size)
{
    size_t used = 0;
    char from[32], to[32];

    text[0] = '\0';
    for (unsigned i = 0; i < n && used < size; i++) {
        if (range[i].algorithm != algorithm) {
            continue;
        }
        used += (size_t) snprintf(text + used, size - used, "%s", 0 == used ? "" : "; ");
        if (range[i].from > 1 && used < size) {
            used += (size_t) snprintf(text + used, size - used, "above %s ", bytes_text(range[i].from - 1, from));
        }
        if (range[i].to < GPUSYM_TUNING_BYTES_MAX && used < size) {
            used += (size_t) snprintf(text + used, size - used, "up to %s", bytes_text(range[i].to, to));
        }
    }
    used = strlen(text);
    if (used > 0 && ' ' == text[used - 1]) {
        text[used - 1] = '\0';
    }
}

/* The rule that holds; NULL: none. And those before it, for messages of that length, and why they do not. */
static const gpusym_rule_t *tell_rules(info_item_t *root, const gpusym_tuning_question_t *question, uint64_t bytes)
{
    const gpusym_tuning_call_t call = question->call(question->arg, bytes);
    const gpusym_rule_t *rule = NULL;
    gpusym_rule_verdict_t verdict;
    gpusym_tuning_lack_t lack;
    info_item_t *list;
    char place[64];

    if (NULL == question->rules) {
        return NULL;
    }
    list = info_list(root, "rules");
    for (unsigned i = 0; NULL != (rule = gpusym_rules_look(question->rules, question->slot, &call, &question->forced, i,
                                                           &verdict, &lack));
         i++) {
        static const char *const words[] = {[GPUSYM_RULE_HOLDS] = "it is the first that can",
                                            [GPUSYM_RULE_OTHER_CALL] =
                                                "it is for another operation or type, or for other buffers",
                                            [GPUSYM_RULE_FORCED] = "the parameters name another algorithm"};
        info_item_t *row = info_group(list, NULL);
        info_text(row, "rule", "%s", gpusym_rule_place(rule, place, sizeof(place)));
        info_text(row, "algorithm", "%s",
                  rule->algorithm < 0 ? "auto" : gpusym_algorithm_name((unsigned) rule->algorithm));
        info_text(row, "verdict", "%s", GPUSYM_RULE_HOLDS == verdict ? "holds" : "passed over");
        info_text(row, "why", "%s", GPUSYM_RULE_LACKS == verdict ? gpusym_tuning_lack_words(lack) : words[verdict]);
        if (GPUSYM_RULE_HOLDS == verdict) {
            return rule;
        }
    }
    return NULL;
}

/* To what the model can tell: 0.01 us. */
static double as_us(double ns)
{
    return round(ns / 10) / 100;
}

/* Microseconds of the call by an algorithm, as the model has it; NAN: it has none, or the algorithm is impossible. */
static double predict_us(const asked_t *a, const gpusym_tuning_question_t *question, unsigned algorithm)
{
    gpusym_tuning_question_t forced = *question;
    forced.forced.algorithm = (int) algorithm;
    forced.rules = NULL;
    forced.answer = NULL;
    const gpusym_tuning_call_t call = question->call(question->arg, a->bytes);
    const gpusym_tuning_choice_t choice = gpusym_tuning_ask(&forced, a->bytes);
    const double ns = choice.algorithm == (int) algorithm ? gpusym_model_predict(&call, &choice, a->cc) : 0;
    return ns > 0 ? as_us(ns) : NAN;
}

/* Whether there is a model of these GPUs and links. */
static bool is_predicted(const asked_t *a, const gpusym_tuning_question_t *question)
{
    for (unsigned algorithm = 0; algorithm < GPUSYM_ALG_COUNT; algorithm++) {
        if (gpusym_algorithm_collective(algorithm) == a->call.coll && !isnan(predict_us(a, question, algorithm))) {
            return true;
        }
    }
    return false;
}

/* A candidate, and what speaks for it or against it. rule: the one that holds. */
static void tell_candidate(info_item_t *list, unsigned algorithm, const gpusym_tuning_question_t *question,
                           const asked_t *a, int taken, const gpusym_rule_t *rule, const gpusym_tuning_range_t *range,
                           unsigned n)
{
    const gpusym_tuning_lack_t lack = gpusym_tuning_ask_lack(question, a->bytes, algorithm);
    char place[64];
    const bool by_tuner = NULL != question->answer && question->answer->algorithm == (int) algorithm;
    const bool chosen = taken == (int) algorithm, forced = question->forced.algorithm == (int) algorithm;
    info_item_t *row = info_group(list, NULL);
    char where[256];

    range_text(range, n, (int) algorithm, where, sizeof(where));
    info_text(row, "algorithm", "%s", gpusym_algorithm_name(algorithm));
    info_text(row, "verdict", "%s", chosen ? "taken" : GPUSYM_TUNING_LACKS_NOTHING == lack ? "possible" : "impossible");
    if (is_predicted(a, question)) {
        info_number(row, "predicted_us", predict_us(a, question, algorithm));
    }
    if (chosen && !forced && by_tuner) {
        info_text(row, "why", "the tuner plug-in says so%s%s", '\0' == where[0] ? "" : "; the table takes it ", where);
    } else if (chosen && !forced && NULL != rule && rule->algorithm == (int) algorithm) {
        info_text(row, "why", "%s says so%s%s", gpusym_rule_place(rule, place, sizeof(place)),
                  '\0' == where[0] ? "" : "; the table takes it ", where);
    } else if (chosen && forced) {
        info_text(row, "why", "coll_gpusym_algorithm names it%s%s", '\0' == where[0] ? "" : "; the table takes it ",
                  where);
    } else if (GPUSYM_TUNING_LACKS_NOTHING != lack) {
        info_text(row, "why", "%s%s", gpusym_tuning_lack_words(lack),
                  forced ? " (coll_gpusym_algorithm names it)" : "");
    } else if ('\0' != where[0]) {
        info_text(row, "why", "the table takes it %s", where);
    } else if (1 == n && range[0].algorithm == (int) algorithm) {
        info_text(row, "why", "the table takes it for any message");
    } else {
        info_text(row, "why", "the table never takes it here: it was slower, or has not been measured");
    }
    info_note(row, "meaning", "%s", gpusym_algorithm_doc(algorithm));
}

/* rule: the one that holds; NULL: none. */
static void tell_choice(info_item_t *root, const gpusym_tuning_choice_t *choice, const gpusym_rule_t *rule,
                        const char *tuner, const asked_t *a)
{
    char place[64];
    static const char *const protocols[] = {[GPUSYM_PROTOCOL_LL] = "LL",
                                            [GPUSYM_PROTOCOL_LL128] = "LL128",
                                            [GPUSYM_PROTOCOL_SIMPLE] = "Simple",
                                            [GPUSYM_PROTOCOL_COPIES] = "copy engines"};
    info_item_t *group = info_group(root, "choice");

    if (choice->algorithm < 0) {
        info_text(group, "algorithm", "staged");
        info_text(group, "because", "%s",
                  NULL != a->staged ? a->staged
                  : STAGED == choice->algorithm
                      ? "coll_gpusym_algorithm says staged"
                      : "not every rank reaches every other, and this collective has no ring");
        return;
    }
    info_text(group, "algorithm", "%s", gpusym_algorithm_name((unsigned) choice->algorithm));
    if (NULL != tuner) {
        info_text(group, "because", "the tuner plug-in %s says so", tuner);
    } else if (NULL != rule) {
        info_text(group, "because", "%s: %s", gpusym_rules_path(a->rules),
                  gpusym_rule_place(rule, place, sizeof(place)));
    }
    info_text(group, "meaning", "%s", gpusym_algorithm_doc((unsigned) choice->algorithm));
    info_text(group, "protocol", "%s", protocols[gpusym_family_protocol(choice->family)]);
    info_text(group, "kernel", "%s", gpusym_family_name(choice->family));
    info_number(group, "blocks", choice->blocks);
    info_number(group, "threads", choice->threads);
    if (0 != choice->chunk) { /* else what its buffers hold */
        info_number(group, "chunk_bytes", choice->chunk);
    }
    info_truth(group, "zero_copy", choice->zero_copy);
    info_truth(group, "within_resident_limit", 0 != choice->resident);
    const gpusym_tuning_call_t call = call_of(a, a->bytes);
    const double ns = gpusym_model_predict(&call, choice, a->cc);
    if (ns > 0) {
        info_number(group, "predicted_us", as_us(ns));
    }
}

static void tell_question(info_item_t *root, const asked_t *a)
{
    info_item_t *group = info_group(root, "question");

    info_text(group, "collective", "%s", a->name);
    info_number(group, "bytes", (double) a->bytes);
    info_text(group, "bytes_are_of", "%s",
              gpusym_collective_whole(a->call.coll) ? "the message" : "the longest block from one rank to another");
    info_text(group, "type", "%s", gpusym_type_name(a->call.type));
    if (a->reduces) {
        info_text(group, "operation", "%s", gpusym_op_name(a->call.op));
    }
    info_number(group, "ranks", a->call.nranks);
    info_number(group, "multiprocessors", a->call.sm_count);
    info_truth(group, "all_reach_all", a->call.all_reach);
    info_truth(group, "nvlink_between_all", a->call.ll128);
}

static bool says_anything(const gpusym_rule_t *r)
{
    return r->algorithm >= 0 || 0 != (r->blocks | r->threads | r->chunk);
}

static void answer(info_item_t *root, asked_t *a)
{
    gpusym_tuning_range_t range[GPUSYM_TUNING_RANGES_MAX];

    info_item_t *assumed = info_list(root, "assumed");
    make_question(a, assumed);
    gpusym_tuning_question_t question = {.call = call_of,
                                         .arg = a,
                                         .slot = &a->slot,
                                         .forced = find_forced(a),
                                         .rules = a->rules,
                                         .answer = NULL != a->tuner ? &a->answer : NULL};
    gpusym_tuning_question_t table = question;
    table.forced.algorithm = -1;
    table.rules = NULL;
    table.answer = NULL;
    const unsigned n = gpusym_tuning_ranges(&table, range);
    if (NULL == a->staged && is_predicted(a, &question)) {
        info_text(assumed, NULL,
                  "predicted_us is not measured here: a model says so, fitted to calls one after the other on %s; it "
                  "chooses nothing",
                  gpusym_model_gpus());
    }
    gpusym_tuning_choice_t choice = gpusym_tuning_ask(&question, a->bytes);
    if (STAGED == question.forced.algorithm || NULL != a->staged) {
        choice.algorithm = STAGED;
    }
    tell_question(root, a);
    /* It decides if the call can follow it; then rules say only what it leaves open. */
    gpusym_tuning_forced_t forced = question.forced;
    const gpusym_tuning_call_t call = call_of(a, a->bytes);
    const bool decided = NULL != a->tuner && STAGED != choice.algorithm &&
                         gpusym_rule_apply(&a->answer, &a->slot, &call, &forced) && says_anything(&a->answer);
    question.forced = decided ? forced : question.forced;
    const gpusym_rule_t *rule = STAGED == choice.algorithm ? NULL : tell_rules(root, &question, a->bytes);
    question.forced = find_forced(a);
    tell_choice(root, &choice, rule, decided ? a->tuner : NULL, a);
    info_item_t *list = info_list(root, "candidates");
    for (unsigned algorithm = 0; algorithm < GPUSYM_ALG_COUNT && NULL == a->staged; algorithm++) {
        if (gpusym_algorithm_collective(algorithm) == a->call.coll) {
            tell_candidate(list, algorithm, &question, a, choice.algorithm, rule, range, n);
        }
    }
    gpusym_rules_free(a->rules);
}

const char *info_why_tell(info_item_t *root, const info_why_t *words)
{
    asked_t asked = {.reduces = false};

    if (!take_words(words, &asked)) {
        return wrong;
    }
    answer(root, &asked);
    return NULL;
}
