/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of set-up: see exchange.h.
 */
#include "mca/coll/gpusym/team/exchange.h"

#include <stdio.h>
#include <stdlib.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "ompi/request/request.h"

/* Whether the ranks are those of an island among others, which exchange by notices what only concerns them. */
static bool is_among_members(const coll_gpusym_team_t *t)
{
    return coll_gpusym_team_is_part(t) && t->boot.step >= COLL_GPUSYM_STEP_BOOTSTRAPPED;
}

/* Ranks of an exchange. */
static uint32_t count_ranks(const coll_gpusym_team_t *t)
{
    return is_among_members(t) ? t->host.nranks : (uint32_t) ompi_comm_size(t->fallback->comm);
}

int coll_gpusym_exchange_start(coll_gpusym_team_t *t, const void *mine, void *all, size_t size)
{
    const coll_gpusym_fallback_t *f = t->fallback;
    if (is_among_members(t)) {
        t->boot.into = all;
        t->boot.bytes = (uint32_t) size;
        gpusym_notices_write(&t->boot.notices, mine, (uint32_t) size);
        return MPI_SUCCESS;
    }
    return f->saved.iallgather(mine, (gpusym_count_t) size, MPI_BYTE, all, (gpusym_count_t) size, MPI_BYTE, f->comm,
                               &t->boot.exchange, f->saved.iallgather_module);
}

int coll_gpusym_exchange_poll(coll_gpusym_team_t *t)
{
    if (is_among_members(t)) {
        return gpusym_notices_read(&t->boot.notices, t->host.rc.line, t->host.rc.peer, t->boot.into, t->boot.bytes);
    }
    if (!REQUEST_COMPLETE(t->boot.exchange)) {
        return 0;
    }
    return MPI_SUCCESS == ompi_request_wait(&t->boot.exchange, MPI_STATUS_IGNORE) ? 1 : OMPI_ERROR;
}

int coll_gpusym_vote_start_error(coll_gpusym_team_t *t, int error)
{
    t->boot.my_vote = (uint8_t) (COLL_GPUSYM_VOTE_YES + (unsigned) error);
    return coll_gpusym_exchange_start(t, &t->boot.my_vote, t->boot.votes, 1);
}

int coll_gpusym_vote_start(coll_gpusym_team_t *t, bool mine)
{
    t->boot.my_vote = mine ? COLL_GPUSYM_VOTE_YES : 0;
    return coll_gpusym_exchange_start(t, &t->boot.my_vote, t->boot.votes, 1);
}

bool coll_gpusym_vote_result(const coll_gpusym_team_t *t)
{
    bool all = true;
    for (uint32_t r = 0; r < count_ranks(t); r++) {
        all = all && COLL_GPUSYM_VOTE_YES == t->boot.votes[r];
    }
    return all;
}

bool coll_gpusym_exchange_alloc(coll_gpusym_team_t *t, size_t size)
{
    t->boot.mine = calloc(1, size);
    t->boot.all = calloc(count_ranks(t), size);
    return NULL != t->boot.mine && NULL != t->boot.all;
}

void coll_gpusym_exchange_free(coll_gpusym_team_t *t)
{
    free(t->boot.mine);
    free(t->boot.all);
    t->boot.mine = t->boot.all = NULL;
}

bool coll_gpusym_list_others(const coll_gpusym_team_t *t, const uint64_t *hash, size_t stride, char *ranks, size_t size)
{
    size_t used = 0;

    *ranks = '\0';
    for (uint32_t r = 1; r < t->host.nranks; r++) {
        const char *its = (const char *) (const void *) hash + r * stride;
        const uint64_t other = *(const uint64_t *) (const void *) its;
        if (other != *hash && used < size) {
            used += (size_t) snprintf(ranks + used, size - used, "%s%u%s", 0 == used ? "" : ", ", r,
                                      0 == other ? " (none)" : "");
        }
    }
    return 0 != used;
}

void coll_gpusym_team_settle(coll_gpusym_team_t *t, int reason, const char *detail)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    t->reason = reason;
    GPUSYM_LOG(2, "%s: device buffers are staged through the host: %s%s%s",
               gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_reason_doc((unsigned) reason),
               NULL != detail ? ": " : "", NULL != detail ? detail : "");
}

void coll_gpusym_team_step(coll_gpusym_team_t *t, int step)
{
    t->boot.step = step;
    if (t->host.has_line) {
        gpusym_line_step(gpusym_pages_line(t->host.line_off), (uint32_t) step, t->boot.launched);
    }
}
