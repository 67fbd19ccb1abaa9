/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Launch tokens: see tokens.h.
 */
#include "mca/common/gpusym/agree/tokens.h"

#include "mca/common/gpusym/shm/process.h"

static bool token_swap(gpusym_peer_t *peer, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(gpusym_peer_token(peer), &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static bool comes_before(const gpusym_peer_t *a, const gpusym_peer_t *b)
{
    const uint64_t *x = gpusym_peer_id(a)->nonce, *y = gpusym_peer_id(b)->nonce;
    return x[0] != y[0] ? x[0] < y[0] : x[1] < y[1];
}

void gpusym_tokens_init(gpusym_agreement_t *rc, uint32_t *order, uint64_t line_off)
{
    for (uint32_t r = 0; r < rc->nranks; r++) { /* by insertion: teams are small */
        uint32_t i = r;
        for (; i > 0 && comes_before(rc->peer[r], rc->peer[order[i - 1]]); i--) {
            order[i] = order[i - 1];
        }
        order[i] = r;
    }
    rc->order = order;
    /* The process of rank 0, and the line that it has for this communicator alone. */
    rc->holder = (uint64_t) (uint32_t) gpusym_peer_pid(rc->peer[0]) << 32 | (uint32_t) line_off;
}

int gpusym_tokens_take(gpusym_agreement_t *rc, uint64_t seq)
{
    if (0 != rc->rank) {
        if (__atomic_load_n(&rc->line[0]->go, __ATOMIC_ACQUIRE) != seq) {
            return 0;
        }
        gpusym_peer_token_prefetch(rc->peer[rc->rank]); /* for gpusym_tokens_give() */
        return 1;
    }
    for (; rc->tokens < rc->nranks; rc->tokens++) {
        if (!token_swap(rc->peer[rc->order[rc->tokens]], 0, rc->holder)) {
            return 0;
        }
    }
    __atomic_store_n(&rc->line[0]->go, seq, __ATOMIC_RELEASE);
    return 1;
}

void gpusym_tokens_give(gpusym_agreement_t *rc, bool failed)
{
    rc->tokens = 0;
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (r == rc->rank || (failed && 0 == rc->rank)) {
            token_swap(rc->peer[r], rc->holder, 0); /* does nothing where another communicator has it */
        }
    }
}

int gpusym_tokens_rescue(gpusym_agreement_t *rc)
{
    if (0 != rc->rank || rc->tokens >= rc->nranks) {
        return -1;
    }
    gpusym_peer_t *peer = rc->peer[rc->order[rc->tokens]];
    const uint64_t holder = __atomic_load_n(gpusym_peer_token(peer), __ATOMIC_ACQUIRE);
    if (0 != holder && (0 == holder >> 32 || 0 != holder >> 63 || !gpusym_line_fits((uint32_t) holder))) {
        return (int) rc->order[rc->tokens];
    }
    if (0 != holder && !gpusym_pid_alive((pid_t) (holder >> 32))) {
        token_swap(peer, holder, 0);
    }
    return -1;
}
