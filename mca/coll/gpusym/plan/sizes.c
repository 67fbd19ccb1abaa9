/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls of which not all that is sent is taken: an error of the program, which the roll-call finds (see gpusym_post_t),
 * the same on all ranks.  Kernels take the two sides of a pair to agree, so the ranks first tell each other all sizes,
 * by the fallback's nonblocking allgather; then what goes between two ranks is the smaller of both sides.  A rank that
 * gets less than was sent ends with MPI_ERR_TRUNCATE; no rank's memory is written past what it gave, and the
 * communicator works on.
 */
#include "mca/coll/gpusym/plan/sizes.h"

#include <stdlib.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "ompi/request/request.h"

/* words: of this rank, then of all ranks: what it sends to each, then what it takes from each, [2][n] each. */
struct coll_gpusym_sizes {
    const coll_gpusym_segments_t *segments; /* not owned */
    struct ompi_request_t *exchange;        /* in flight; NULL: none */
    bool truncated;
    coll_gpusym_pair_sizes_t agreed;
    uint64_t words[];
};

/* What rank a sends to rank b, as a says, and what b takes. */
static uint64_t size_sent(const coll_gpusym_sizes_t *s, uint32_t a, uint32_t b)
{
    const uint32_t n = s->segments->team->host.nranks;
    return s->words[2 * n * (1 + a) + b];
}

static uint64_t size_taken(const coll_gpusym_sizes_t *s, uint32_t a, uint32_t b)
{
    const uint32_t n = s->segments->team->host.nranks;
    return s->words[2 * n * (1 + b) + n + a];
}

static uint64_t size_moved(const coll_gpusym_sizes_t *s, uint32_t a, uint32_t b)
{
    const uint64_t sent = size_sent(s, a, b), taken = size_taken(s, a, b);
    return sent < taken ? sent : taken;
}

bool coll_gpusym_sizes_start(const coll_gpusym_segments_t *k, coll_gpusym_sizes_t **sizes)
{
    const coll_gpusym_fallback_t *f = k->team->fallback;
    const uint32_t n = k->team->host.nranks;
    const gpusym_count_t bytes = (gpusym_count_t) (2 * n * sizeof(uint64_t));
    coll_gpusym_sizes_t *s = calloc(1, sizeof *s + (size_t) 2 * n * (n + 1) * sizeof(uint64_t));
    *sizes = s;
    if (NULL == s) {
        return false;
    }
    s->segments = k;
    coll_gpusym_segments_sizes(k, s->words, s->words + n);
    return MPI_SUCCESS == f->saved.iallgather(s->words, bytes, MPI_BYTE, s->words + 2 * n, bytes, MPI_BYTE, f->comm,
                                              &s->exchange, f->saved.iallgather_module);
}

/* The verbose line of what is cut off here. */
static void report_truncation(const coll_gpusym_sizes_t *s, uint32_t from)
{
    const coll_gpusym_team_t *t = s->segments->team;
    char name[GPUSYM_COMM_LABEL_MAX];
    COLL_GPUSYM_VERBOSE(1, "%s: rank %u, %s: rank %u sends %llu bytes, of which %llu are received",
                        gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_team_rank(t),
                        coll_gpusym_mpi_name(s->segments->args->coll), from,
                        (unsigned long long) size_sent(s, from, t->host.rank),
                        (unsigned long long) size_taken(s, from, t->host.rank));
}

static uint64_t agree_sizes(coll_gpusym_sizes_t *s)
{
    const coll_gpusym_team_t *t = s->segments->team;
    const uint32_t n = t->host.nranks, me = t->host.rank;
    uint64_t max_bytes = 0;

    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = 0; b < n; b++) {
            const uint64_t bytes = size_moved(s, a, b);
            max_bytes = bytes > max_bytes ? bytes : max_bytes;
        }
    }
    for (uint32_t p = 0; p < n; p++) {
        s->agreed.send[p] = size_moved(s, me, p);
        s->agreed.recv[p] = size_moved(s, p, me);
        if (size_sent(s, p, me) > size_taken(s, p, me)) {
            s->truncated = true;
            report_truncation(s, p);
        }
    }
    return max_bytes;
}

int coll_gpusym_sizes_poll(coll_gpusym_sizes_t *s, uint64_t *max_bytes)
{
    if (!REQUEST_COMPLETE(s->exchange)) {
        return 0;
    }
    const int rv = ompi_request_wait(&s->exchange, MPI_STATUS_IGNORE);
    s->exchange = NULL;
    if (MPI_SUCCESS != rv) {
        return OMPI_ERROR;
    }
    *max_bytes = agree_sizes(s);
    return 1;
}

const coll_gpusym_pair_sizes_t *coll_gpusym_sizes_agreed(const coll_gpusym_sizes_t *s)
{
    return NULL != s ? &s->agreed : NULL;
}

bool coll_gpusym_sizes_truncated(const coll_gpusym_sizes_t *s)
{
    return NULL != s && s->truncated;
}

void coll_gpusym_sizes_free(coll_gpusym_sizes_t *s)
{
    if (NULL != s && NULL == s->exchange) { /* else a peer has died meanwhile, and Open MPI may still write there */
        free(s);
    }
}
