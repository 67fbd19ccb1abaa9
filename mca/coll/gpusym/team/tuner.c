/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The tuner plug-in of a communicator: see team/tuner.h.
 */
#include "mca/coll/gpusym/team/tuner.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/exchange.h"
#include "mca/common/gpusym/rules/tuner.h"

/* An answer, and for which calls. */
typedef struct answer {
    struct answer *next;
    gpusym_tuner_key_t key;
    gpusym_rule_t rule;
} answer_t;

struct coll_gpusym_tuner {
    const gpusym_tuner_t *plugin;
    char gpu[64];
    uint32_t cc;
    bool works; /* rank 0: init has succeeded */
    void *context;
    answer_t *made;                      /* before the exchange: for what is asked; owned */
    answer_t *answer[GPUSYM_COLL_COUNT]; /* owned; the last ones first */
};

/* What rank 0 tells, and the others: only whether they have memory to keep it. */
typedef struct {
    int32_t algorithm;
    uint32_t blocks, threads, chunk;
    uint32_t has_memory;
} told_t;

/* What was reported last: of the plug-in; of ranks that had none, or another. */
static char told_why[512], told_ranks[128];

static void report(const coll_gpusym_team_t *t, const char *why)
{
    char name[GPUSYM_COMM_LABEL_MAX];

    if (coll_gpusym_is_news(why, told_why, sizeof told_why)) {
        coll_gpusym_help("bad-tuner", (int) coll_gpusym_team_rank(t),
                         gpusym_comm_label(t->fallback->comm, name, sizeof name), why);
    }
}

static uint64_t hash_text(const char *text)
{
    uint64_t h = 0xcbf29ce484222325ull;

    for (; '\0' != *text; text++) {
        h = (h ^ (unsigned char) *text) * 0x100000001b3ull;
    }
    return h | 1;
}

uint64_t coll_gpusym_tuner_open(coll_gpusym_team_t *t, const char *gpu, int cc)
{
    const char *path = coll_gpusym_params.tuner;
    char why[512];

    if (NULL == path || '\0' == *path) {
        return 0;
    }
    const gpusym_tuner_t *plugin = gpusym_tuner_load(path, why, sizeof why);
    if (NULL == plugin) {
        report(t, why);
        return 0;
    }
    coll_gpusym_tuner_t *tuner = calloc(1, sizeof *tuner);
    if (NULL == tuner) {
        return 0;
    }
    tuner->plugin = plugin;
    snprintf(tuner->gpu, sizeof tuner->gpu, "%s", gpu);
    tuner->cc = (uint32_t) cc;
    t->host.tuner = tuner;
    return hash_text(plugin->name);
}

void coll_gpusym_tuner_agree(coll_gpusym_team_t *t, const uint64_t *hash, size_t stride)
{
    char name[GPUSYM_COMM_LABEL_MAX], ranks[128];
    const bool others = coll_gpusym_list_others(t, hash, stride, ranks, sizeof ranks);

    if (!others && 0 != *hash) {
        return;
    }
    coll_gpusym_tuner_free(t->host.tuner);
    t->host.tuner = NULL;
    if (others && 0 == t->host.rank && coll_gpusym_is_news(ranks, told_ranks, sizeof told_ranks)) {
        coll_gpusym_help("other-tuner", gpusym_comm_label(t->fallback->comm, name, sizeof name),
                         0 == *hash ? "Rank 0 has none" : "Rank 0 has one", ranks);
    }
}

void coll_gpusym_tuner_settle(coll_gpusym_team_t *t)
{
    coll_gpusym_tuner_t *tuner = t->host.tuner;
    char name[GPUSYM_COMM_LABEL_MAX], why[128];

    if (NULL == tuner || 0 != t->host.rank) {
        return;
    }
    const gpusym_tuner_comm_t comm = {.name = gpusym_comm_label(t->fallback->comm, name, sizeof name),
                                      .gpu = tuner->gpu,
                                      .ranks = t->host.nranks,
                                      .compute_capability = tuner->cc,
                                      .multiprocessors = t->host.sm_count,
                                      .nvlink = t->host.ll128,
                                      .max_blocks = t->host.max_blocks};
    const int error = NULL != tuner->plugin->init ? tuner->plugin->init(&comm, &tuner->context) : 0;
    tuner->works = 0 == error;
    if (0 != error) {
        snprintf(why, sizeof why, "%.64s: error %d of init", tuner->plugin->name, error);
        report(t, why);
    } else {
        GPUSYM_LOG(2, "%s: tuner %s", comm.name, tuner->plugin->name);
    }
}

/* ---- answers ---- */

static const answer_t *find_answer(const coll_gpusym_tuner_t *tuner, const gpusym_tuner_key_t *key)
{
    const answer_t *a = tuner->answer[key->coll];

    while (NULL != a && (a->key.class != key->class || a->key.type != key->type || a->key.op != key->op)) {
        a = a->next;
    }
    return a;
}

/* An answer that cannot be: the first one of this process is reported, all are logged. */
static void report_answer(const coll_gpusym_team_t *t, const char *why)
{
    static bool reported;
    char name[GPUSYM_COMM_LABEL_MAX];

    GPUSYM_LOG(2, "%s: no answer of the tuner: %s", gpusym_comm_label(t->fallback->comm, name, sizeof name), why);
    if (!__atomic_exchange_n(&reported, true, __ATOMIC_RELAXED)) {
        report(t, why);
    }
}

/* Rank 0 asks. */
static void ask(coll_gpusym_team_t *t, const gpusym_tuner_key_t *key, told_t *mine)
{
    coll_gpusym_tuner_t *tuner = t->host.tuner;
    gpusym_rule_t rule = {.algorithm = -1};
    char why[512];

    if (tuner->works &&
        !gpusym_tuner_ask(tuner->plugin, tuner->context, key, t->host.max_blocks, &rule, why, sizeof why)) {
        report_answer(t, why);
    }
    *mine = (told_t){rule.algorithm, rule.blocks, rule.threads, rule.chunk, mine->has_memory};
}

static void log_answer(const coll_gpusym_team_t *t, const answer_t *a)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    const gpusym_rule_t *r = &a->rule;

    GPUSYM_LOG(
        2, "%s: rank %u: tuner %s: %s from %llu bytes of %s: %s, blocks %u, threads %u, chunk %u (0: open)",
        gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_team_rank(t), t->host.tuner->plugin->name,
        gpusym_collective_name(a->key.coll), 1ull << a->key.class, gpusym_type_name(a->key.type),
        r->algorithm < 0 ? "auto" : gpusym_algorithm_name((unsigned) r->algorithm), r->blocks, r->threads, r->chunk);
}

/* All ranks know the answer. Where one has no memory to keep it none does: it is asked for again. */
static void keep_answer(coll_gpusym_team_t *t, const told_t *all)
{
    coll_gpusym_tuner_t *tuner = t->host.tuner;
    answer_t *made = tuner->made;
    bool all_have = true;

    for (uint32_t r = 0; r < t->host.nranks; r++) {
        all_have = all_have && 0 != all[r].has_memory;
    }
    tuner->made = NULL;
    if (!all_have) {
        free(made);
        return;
    }
    made->rule = (gpusym_rule_t){.coll = made->key.coll,
                                 .op = -1,
                                 .type = -1,
                                 .zero_copy = -1,
                                 .algorithm = all[0].algorithm,
                                 .blocks = all[0].blocks,
                                 .threads = all[0].threads,
                                 .chunk = all[0].chunk};
    made->next = tuner->answer[made->key.coll];
    tuner->answer[made->key.coll] = made;
    log_answer(t, made);
}

int coll_gpusym_tuner_need(coll_gpusym_team_t *t, unsigned coll, unsigned op, unsigned type, uint64_t bytes)
{
    coll_gpusym_tuner_t *tuner = t->host.tuner;
    const gpusym_tuner_key_t key = gpusym_tuner_key(coll, op, type, bytes, t->host.nranks);

    if (NULL == t->boot.all) {
        if (NULL != find_answer(tuner, &key)) {
            return 1;
        }
        if (!coll_gpusym_exchange_alloc(t, sizeof(told_t))) {
            return OMPI_ERR_OUT_OF_RESOURCE;
        }
        tuner->made = calloc(1, sizeof *tuner->made);
        told_t *mine = t->boot.mine;
        mine->has_memory = NULL != tuner->made;
        if (NULL != tuner->made) {
            tuner->made->key = key;
        }
        if (0 == t->host.rank) {
            ask(t, &key, mine);
        }
        if (MPI_SUCCESS != coll_gpusym_exchange_start(t, mine, t->boot.all, sizeof *mine)) {
            return OMPI_ERROR;
        }
    }
    const int ended = coll_gpusym_exchange_poll(t);
    if (1 == ended) {
        keep_answer(t, t->boot.all);
        coll_gpusym_exchange_free(t);
    }
    return ended;
}

void coll_gpusym_tuner_apply(const coll_gpusym_team_t *t, const gpusym_tuning_call_t *call,
                             gpusym_tuning_forced_t *forced)
{
    const gpusym_tuner_key_t key = gpusym_tuner_key(call->coll, call->op, call->type, call->bytes, call->nranks);
    const answer_t *a = find_answer(t->host.tuner, &key);

    if (NULL != a) {
        (void) gpusym_rule_apply(&a->rule, &t->host.work, call, forced);
    }
}

void coll_gpusym_tuner_free(coll_gpusym_tuner_t *tuner)
{
    if (NULL == tuner) {
        return;
    }
    if (tuner->works && NULL != tuner->plugin->finalize) {
        tuner->plugin->finalize(tuner->context);
    }
    for (unsigned coll = 0; coll < GPUSYM_COLL_COUNT; coll++) {
        for (answer_t *a = tuner->answer[coll], *next; NULL != a; a = next) {
            next = a->next;
            free(a);
        }
    }
    free(tuner->made);
    free(tuner);
}
