/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What becomes of a call: see decide.h.
 */
#include "mca/coll/gpusym/call/decide.h"

#include "mca/coll/gpusym/args/facts.h"

static coll_gpusym_decision_t decided(coll_gpusym_decided_t kind)
{
    return (coll_gpusym_decision_t){.kind = kind, .reason = -1, .rank = -1};
}

static coll_gpusym_decision_t corrupt(int rank)
{
    return (coll_gpusym_decision_t){.kind = COLL_GPUSYM_DECIDED_CORRUPT, .reason = -1, .rank = rank};
}

static coll_gpusym_decision_t staged(int reason)
{
    return (coll_gpusym_decision_t){.kind = COLL_GPUSYM_DECIDED_STAGE, .reason = reason, .rank = -1};
}

/* Ranks on the host, or that want it staged. GO: there are none, or they take part. */
static coll_gpusym_decision_t decide_memory(const coll_gpusym_question_t *q)
{
    const gpusym_agreement_read_t *read = q->read;
    const bool any_host = read->host || 0 != (read->any & GPUSYM_POST_HOST);
    if (!q->takes_host && any_host) {
        return staged(COLL_GPUSYM_R_MIXED);
    }
    if (q->takes_host && any_host && 0 == (read->any & GPUSYM_POST_GPU)) {
        return decided(COLL_GPUSYM_DECIDED_FORWARD);
    }
    if (read->bounce >= 0) {
        return staged(read->bounce - GPUSYM_KIND_BOUNCE);
    }
    return read->host ? staged(COLL_GPUSYM_R_MIXED) : decided(COLL_GPUSYM_DECIDED_GO);
}

coll_gpusym_decision_t coll_gpusym_decide(const coll_gpusym_question_t *q)
{
    const gpusym_agreement_read_t *read = q->read;
    if (read->corrupt_rank >= 0) {
        return corrupt(read->corrupt_rank);
    }
    if (read->bounce >= GPUSYM_KIND_BOUNCE + (int) COLL_GPUSYM_REASONS) {
        return corrupt(read->bounce_rank);
    }
    const coll_gpusym_decision_t memory = decide_memory(q);
    if (COLL_GPUSYM_DECIDED_GO != memory.kind) {
        return memory;
    }
    if (read->mismatch_rank >= 0 && (read->other_call || !q->moves)) {
        return decided(COLL_GPUSYM_DECIDED_MISMATCH);
    }
    if (!q->takes_host && read->mismatch_rank >= 0) { /* the fallback finds out who takes less than is sent */
        return staged(COLL_GPUSYM_R_BETWEEN);
    }
    if (q->agree_only || q->unset) {
        return decided(COLL_GPUSYM_DECIDED_AGREED);
    }
    if (q->takes_host && (read->mismatch_rank >= 0 || 0 != read->balance)) {
        return decided(COLL_GPUSYM_DECIDED_SIZES);
    }
    return decided(q->takes_host && 0 == read->max_bytes ? COLL_GPUSYM_DECIDED_EMPTY : COLL_GPUSYM_DECIDED_GO);
}
