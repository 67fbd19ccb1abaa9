/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls of which not all that is sent is taken: an error of the program, which the roll-call finds (see gpusym_post_t),
 * the same on all ranks.  Kernels take the two sides of a pair to agree, so the ranks first tell each other all sizes,
 * by the previous module's nonblocking allgather; then what goes between two ranks is the smaller of both sides.  Who
 * gets less than was sent ends with MPI_ERR_TRUNCATE; nobody's memory is written past what he gave, and the
 * communicator works on.
 */
#include "mca/coll/gpusym/call/call.h"

#include <stdlib.h>

#include "ompi/request/request.h"

/* words: of this rank, then of all ranks: what it sends to each, then what it takes from each, [2][n] each. */
struct coll_gpusym_sizes {
    struct ompi_request_t *exchange; /* in flight; NULL: none */
    bool truncated;
    uint64_t send[GPUSYM_TEAM_MAX], recv[GPUSYM_TEAM_MAX]; /* agreed */
    uint64_t words[];
};

/* What rank a sends to rank b, as a says, and what b takes. */
static uint64_t sent(const coll_gpusym_sizes_t *s, uint32_t n, uint32_t a, uint32_t b)
{
    return s->words[2 * n * (1 + a) + b];
}

static uint64_t taken(const coll_gpusym_sizes_t *s, uint32_t n, uint32_t a, uint32_t b)
{
    return s->words[2 * n * (1 + b) + n + a];
}

static uint64_t goes(const coll_gpusym_sizes_t *s, uint32_t n, uint32_t a, uint32_t b)
{
    const uint64_t there = sent(s, n, a, b), here = taken(s, n, a, b);
    return there < here ? there : here;
}

bool coll_gpusym_sizes_start(coll_gpusym_call_t *call)
{
    mca_coll_gpusym_module_t *m = call->module;
    const uint32_t n = m->team->nranks;
    const gpusym_count_t bytes = (gpusym_count_t) (2 * n * sizeof(uint64_t));
    coll_gpusym_sizes_t *s = calloc(1, sizeof *s + (size_t) 2 * n * (n + 1) * sizeof(uint64_t));
    if (NULL == s) {
        return false;
    }
    call->sizes = s;
    coll_gpusym_native_sizes(call, s->words, s->words + n);
    return MPI_SUCCESS == m->saved.iallgather(s->words, bytes, MPI_BYTE, s->words + 2 * n, bytes, MPI_BYTE, m->comm,
                                              &s->exchange, m->saved.iallgather_module);
}

/* The verbose line of what is cut off here. */
static void say(const coll_gpusym_call_t *call, uint32_t from)
{
    const coll_gpusym_team_t *t = call->module->team;
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    COLL_GPUSYM_VERBOSE(1, "%s: rank %u, %s: rank %u sends %llu bytes, of which %llu are received",
                        coll_gpusym_comm_name(call->module->comm, name, sizeof name), t->rank,
                        coll_gpusym_mpi_name(call->args.coll), from,
                        (unsigned long long) sent(call->sizes, t->nranks, from, t->rank),
                        (unsigned long long) taken(call->sizes, t->nranks, from, t->rank));
}

static void agree(coll_gpusym_call_t *call)
{
    const coll_gpusym_team_t *t = call->module->team;
    coll_gpusym_sizes_t *s = call->sizes;
    const uint32_t n = t->nranks, me = t->rank;

    call->read.max_bytes = 0;
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = 0; b < n; b++) {
            const uint64_t bytes = goes(s, n, a, b);
            call->read.max_bytes = bytes > call->read.max_bytes ? bytes : call->read.max_bytes;
        }
    }
    for (uint32_t p = 0; p < n; p++) {
        s->send[p] = goes(s, n, me, p);
        s->recv[p] = goes(s, n, p, me);
        if (sent(s, n, p, me) > taken(s, n, p, me)) {
            s->truncated = true;
            say(call, p);
        }
    }
}

int coll_gpusym_sizes_poll(coll_gpusym_call_t *call)
{
    coll_gpusym_sizes_t *s = call->sizes;
    if (!REQUEST_COMPLETE(s->exchange)) {
        return 0;
    }
    const int rv = ompi_request_wait(&s->exchange, MPI_STATUS_IGNORE);
    s->exchange = NULL;
    if (MPI_SUCCESS != rv) {
        return OMPI_ERROR;
    }
    agree(call);
    return 1;
}

bool coll_gpusym_sizes_truncated(const coll_gpusym_sizes_t *s)
{
    return NULL != s && s->truncated;
}

void coll_gpusym_sizes_set(const coll_gpusym_sizes_t *s, uint32_t n, gpusym_seg_t *send, gpusym_seg_t *recv)
{
    for (uint32_t p = 0; p < n; p++) {
        send[p].bytes = s->send[p];
        recv[p].bytes = s->recv[p];
    }
}

void coll_gpusym_sizes_free(coll_gpusym_sizes_t *s)
{
    if (NULL != s && NULL == s->exchange) { /* else a peer has died meanwhile, and Open MPI may still write there */
        free(s);
    }
}
