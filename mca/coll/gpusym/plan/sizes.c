/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls of which not all that is sent is taken: an error of the program, which the call agreement finds (see
 * gpusym_post_t), the same on all ranks.  Kernels take the two sides of a pair to agree, so the ranks first tell each
 * other all sizes, by their tables; then what goes between two ranks is the smaller of both sides.  A rank that gets
 * less than was sent ends with MPI_ERR_TRUNCATE; no rank's memory is written past what it gave, and the communicator
 * works on.
 */
#include "mca/coll/gpusym/plan/sizes.h"

#include <stdlib.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"

struct coll_gpusym_sizes {
    const coll_gpusym_segments_t *segments; /* not owned */
    uint64_t seq;
    bool told; /* our own are in our table, or we have none */
    bool truncated;
    coll_gpusym_pair_sizes_t agreed;
    const gpusym_table_row_t *rows[GPUSYM_TEAM_MAX]; /* of each rank, one for each peer */
};

coll_gpusym_sizes_t *coll_gpusym_sizes_create(const coll_gpusym_segments_t *k, uint64_t seq)
{
    coll_gpusym_sizes_t *s = calloc(1, sizeof *s);
    if (NULL != s) {
        s->segments = k;
        s->seq = seq;
    }
    return s;
}

static gpusym_agreement_t *agreement_of(const coll_gpusym_sizes_t *s)
{
    return &s->segments->team->host.rc;
}

/* Fills this rank's table, if the call has not done so before its post. False: a peer still reads what it holds. */
static bool tell_sizes(const coll_gpusym_sizes_t *s)
{
    gpusym_agreement_t *rc = agreement_of(s);
    const gpusym_table_row_t *there;
    if (GPUSYM_SUCCESS != gpusym_table_make(rc)) {
        gpusym_table_lack(rc);
        return true;
    }
    if (GPUSYM_TABLE_THERE == gpusym_table_find(rc, rc->rank, s->seq, &there)) {
        return true;
    }
    gpusym_table_row_t *rows = gpusym_table_rows(rc, s->seq);
    if (NULL == rows) {
        return false;
    }
    coll_gpusym_segments_rows(s->segments, rows);
    gpusym_table_publish(rc, s->seq);
    return true;
}

/* The bytes that go from rank a to rank b. */
static uint64_t size_moved(const coll_gpusym_sizes_t *s, uint32_t a, uint32_t b)
{
    const uint64_t sent = s->rows[a][b].send_bytes, taken = s->rows[b][a].recv_bytes;
    return sent < taken ? sent : taken;
}

/* The verbose line of what is cut off here. */
static void report_truncation(const coll_gpusym_sizes_t *s, uint32_t from)
{
    const coll_gpusym_team_t *t = s->segments->team;
    char name[GPUSYM_COMM_LABEL_MAX];
    GPUSYM_LOG(2, "%s: rank %u, %s: rank %u sends %llu bytes, of which %llu are received",
               gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_team_rank(t),
               coll_gpusym_mpi_name(s->segments->args->coll), coll_gpusym_team_member(t, from),
               (unsigned long long) s->rows[from][t->host.rank].send_bytes,
               (unsigned long long) s->rows[t->host.rank][from].recv_bytes);
}

/* With all tables: what this rank sends and receives. Returns the longest that goes between any two ranks. */
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
        if (s->rows[p][me].send_bytes > s->rows[me][p].recv_bytes) {
            s->truncated = true;
            report_truncation(s, p);
        }
    }
    return max_bytes;
}

/* Whether rank r may have written its rows. */
static bool are_plausible(const coll_gpusym_sizes_t *s, uint32_t r)
{
    uint64_t all = 0;
    for (uint32_t p = 0; p < s->segments->team->host.nranks; p++) {
        all |= s->rows[r][p].send_bytes | s->rows[r][p].recv_bytes;
    }
    return 0 == all >> GPUSYM_BYTES_BITS;
}

coll_gpusym_sizes_state_t coll_gpusym_sizes_poll(coll_gpusym_sizes_t *s, uint64_t *max_bytes, int *corrupt)
{
    static const coll_gpusym_sizes_state_t states[] = {
        [GPUSYM_TABLE_WAITING] = COLL_GPUSYM_SIZES_WAITING,
        [GPUSYM_TABLE_THERE] = COLL_GPUSYM_SIZES_AGREED,
        [GPUSYM_TABLE_LACKING] = COLL_GPUSYM_SIZES_LACKING,
        [GPUSYM_TABLE_CORRUPT] = COLL_GPUSYM_SIZES_CORRUPT,
    };
    s->told = s->told || tell_sizes(s);
    if (!s->told) {
        return COLL_GPUSYM_SIZES_WAITING;
    }
    for (uint32_t r = 0; r < s->segments->team->host.nranks; r++) {
        gpusym_table_state_t state = gpusym_table_find(agreement_of(s), r, s->seq, &s->rows[r]);
        if (GPUSYM_TABLE_THERE == state && !are_plausible(s, r)) {
            state = GPUSYM_TABLE_CORRUPT;
        }
        if (GPUSYM_TABLE_THERE != state) {
            *corrupt = (int) r;
            return states[state];
        }
    }
    *max_bytes = agree_sizes(s);
    return COLL_GPUSYM_SIZES_AGREED;
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
    free(s);
}
