/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The rules of a communicator: see team/rules.h.
 */
#include "mca/coll/gpusym/team/rules.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"

/* What was reported last: once, however many communicators there are. */
static struct {
    pthread_mutex_t lock;
    char why[512];   /* a file could not be read */
    char ranks[128]; /* that had other rules than rank 0 */
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_news(const char *text, char *last, size_t size)
{
    pthread_mutex_lock(&told.lock);
    const bool news = 0 != strcmp(last, text);
    snprintf(last, size, "%s", text);
    pthread_mutex_unlock(&told.lock);
    return news;
}

uint64_t coll_gpusym_rules_open(coll_gpusym_team_t *t, const char *gpu, int cc)
{
    char name[GPUSYM_COMM_LABEL_MAX], why[512];
    const char *where = NULL != coll_gpusym_params.rules ? coll_gpusym_params.rules : "";

    t->host.rules = gpusym_rules_open(where, t->host.nranks, gpu, cc, why, sizeof why);
    if ('\0' != *why) {
        (void) gpusym_comm_label(t->fallback->comm, name, sizeof name);
        GPUSYM_LOG(2, "%s: rank %u: no rules: %s", name, coll_gpusym_team_rank(t), why);
        if (0 == t->host.rank && is_news(why, told.why, sizeof told.why)) {
            coll_gpusym_help("bad-rules", 0, name, why);
        }
    }
    return gpusym_rules_hash(t->host.rules);
}

static const uint64_t *hash_of(const uint64_t *hash, size_t stride, uint32_t r)
{
    return (const uint64_t *) (const void *) ((const char *) (const void *) hash + r * stride);
}

void coll_gpusym_rules_agree(coll_gpusym_team_t *t, const uint64_t *hash, size_t stride)
{
    char name[GPUSYM_COMM_LABEL_MAX], ranks[128] = "";
    size_t used = 0;

    for (uint32_t r = 1; r < t->host.nranks; r++) {
        if (*hash_of(hash, stride, r) != *hash && used < sizeof ranks) {
            used += (size_t) snprintf(ranks + used, sizeof ranks - used, "%s%u%s", 0 == used ? "" : ", ", r,
                                      0 == *hash_of(hash, stride, r) ? " (none)" : "");
        }
    }
    if (0 == used) {
        return;
    }
    gpusym_rules_free(t->host.rules);
    t->host.rules = NULL;
    if (0 == t->host.rank && is_news(ranks, told.ranks, sizeof told.ranks)) {
        coll_gpusym_help("other-rules", gpusym_comm_label(t->fallback->comm, name, sizeof name), ranks);
    }
}

void coll_gpusym_rules_settle(coll_gpusym_team_t *t)
{
    char name[GPUSYM_COMM_LABEL_MAX];

    if (NULL != t->host.rules) {
        gpusym_rules_settle(t->host.rules, t->host.ll128);
        GPUSYM_LOG(2, "%s: rank %u: %u rules of %s", gpusym_comm_label(t->fallback->comm, name, sizeof name),
                   coll_gpusym_team_rank(t), gpusym_rules_count(t->host.rules), gpusym_rules_path(t->host.rules));
    }
}
