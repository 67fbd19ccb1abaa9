/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The rules of a communicator: see team/rules.h.
 */
#include "mca/coll/gpusym/team/rules.h"

#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/exchange.h"

/* What was reported last: of a file that could not be read; of ranks that had other rules than rank 0. */
static char told_why[512], told_ranks[128];

uint64_t coll_gpusym_rules_open(coll_gpusym_team_t *t, const char *gpu, int cc)
{
    char name[GPUSYM_COMM_LABEL_MAX], why[512];
    const char *where = NULL != coll_gpusym_params.rules ? coll_gpusym_params.rules : "";

    t->host.rules = gpusym_rules_open(where, t->host.nranks, gpu, cc, why, sizeof why);
    if ('\0' != *why) {
        (void) gpusym_comm_label(t->fallback->comm, name, sizeof name);
        GPUSYM_LOG(2, "%s: rank %u: no rules: %s", name, coll_gpusym_team_rank(t), why);
        if (0 == t->host.rank && coll_gpusym_is_news(why, told_why, sizeof told_why)) {
            coll_gpusym_help("bad-rules", 0, name, why);
        }
    }
    return gpusym_rules_hash(t->host.rules);
}

void coll_gpusym_rules_agree(coll_gpusym_team_t *t, const uint64_t *hash, size_t stride)
{
    char name[GPUSYM_COMM_LABEL_MAX], ranks[128];

    if (!coll_gpusym_list_others(t, hash, stride, ranks, sizeof ranks)) {
        return;
    }
    gpusym_rules_free(t->host.rules);
    t->host.rules = NULL;
    if (0 == t->host.rank && coll_gpusym_is_news(ranks, told_ranks, sizeof told_ranks)) {
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
