/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Tables: see table.h.
 */
#include "mca/common/gpusym/agree/table.h"

/* In a line, in place of the offset: there is no memory for a table. No table begins there. */
#define LACK 1u

/* A table: for which call each half was filled, written last; then the rows of both halves, [2][nranks]. */
typedef struct {
    uint64_t seq[2];
    uint64_t pad[6];
    gpusym_table_row_t row[];
} table_t;
_Static_assert(64 == sizeof(table_t), "rows begin at a cache line");

static uint64_t table_bytes(const gpusym_agreement_t *rc)
{
    return sizeof(table_t) + 2ull * rc->nranks * sizeof(gpusym_table_row_t);
}

static table_t *own_table(const gpusym_agreement_t *rc)
{
    return gpusym_pages_line(rc->table.off); /* of this process's slab */
}

int gpusym_table_make(gpusym_agreement_t *rc)
{
    uint64_t off;
    if (0 != rc->table.off || rc->table.lacking) {
        return rc->table.lacking ? GPUSYM_ERR_NO_MEMORY : GPUSYM_SUCCESS;
    }
    const int rv = gpusym_pages_alloc_table(table_bytes(rc), &off);
    rc->table.lacking = GPUSYM_SUCCESS != rv; /* for good: a peer that comes late must find what the others found */
    if (GPUSYM_SUCCESS == rv) {
        rc->table.off = off;
        /* Release: it is zeroed. */
        __atomic_store_n(&rc->line[rc->rank]->table, off, __ATOMIC_RELEASE);
    }
    return rv;
}

void gpusym_table_lack(gpusym_agreement_t *rc)
{
    __atomic_store_n(&rc->line[rc->rank]->table, LACK, __ATOMIC_RELEASE);
}

/* The half for call seq: that which has it already, or the older one. */
static unsigned half_of(const gpusym_agreement_t *rc, uint64_t seq)
{
    return seq == rc->table.last[1] || (seq != rc->table.last[0] && rc->table.last[1] < rc->table.last[0]);
}

/* Whether rank r has not posted a call behind `last`, 0: none. It has, if we have posted as many more as lines hold. */
static bool may_read(const gpusym_agreement_t *rc, uint32_t r, uint64_t last)
{
    return 0 != last && last + GPUSYM_AGREEMENT_HISTORY > rc->seq && r != rc->rank &&
           !gpusym_agreement_has_posted(rc, r, last + 1);
}

bool gpusym_table_awaits(const gpusym_agreement_t *rc, uint32_t r)
{
    return may_read(rc, r, rc->table.last[half_of(rc, rc->seq + 1)]);
}

gpusym_table_row_t *gpusym_table_rows(const gpusym_agreement_t *rc, uint64_t seq)
{
    const unsigned half = half_of(rc, seq);
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (seq != rc->table.last[half] && may_read(rc, r, rc->table.last[half])) {
            return NULL;
        }
    }
    return own_table(rc)->row + (uint64_t) half * rc->nranks;
}

void gpusym_table_publish(gpusym_agreement_t *rc, uint64_t seq)
{
    const unsigned half = half_of(rc, seq);
    rc->table.last[half] = seq;
    /* Release: the rows are filled. */
    __atomic_store_n(&own_table(rc)->seq[half], seq, __ATOMIC_RELEASE);
}

gpusym_table_state_t gpusym_table_find(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq,
                                       const gpusym_table_row_t **rows)
{
    const uint64_t off = __atomic_load_n(&rc->line[r]->table, __ATOMIC_ACQUIRE);
    if (0 == off) {
        return GPUSYM_TABLE_WAITING;
    }
    if (LACK == off) {
        return GPUSYM_TABLE_LACKING;
    }
    const table_t *table = gpusym_peer_table(rc->peer[r], off, table_bytes(rc));
    if (NULL == table) {
        return GPUSYM_TABLE_CORRUPT;
    }
    for (unsigned half = 0; half < 2; half++) {
        const uint64_t there = __atomic_load_n(&table->seq[half], __ATOMIC_ACQUIRE);
        if (there == seq) {
            *rows = table->row + (uint64_t) half * rc->nranks;
            return GPUSYM_TABLE_THERE;
        }
        if (there > seq + GPUSYM_AGREEMENT_HISTORY) { /* no rank is that far ahead */
            return GPUSYM_TABLE_CORRUPT;
        }
    }
    return GPUSYM_TABLE_WAITING;
}
