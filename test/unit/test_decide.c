/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/coll/gpusym/call/decide.c: all combinations of what it looks at, against two functions that say the
 * same by cases, as the call once did: one for a communicator on one host, one for an island of several.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "mca/coll/gpusym/args/facts.h"
#include "mca/coll/gpusym/call/decide.h"

static coll_gpusym_decision_t is(coll_gpusym_decided_t kind, int reason, int rank)
{
    return (coll_gpusym_decision_t){kind, reason, rank};
}

static coll_gpusym_decision_t judge_island(const coll_gpusym_question_t *q)
{
    const gpusym_agreement_read_t *read = q->read;
    if (read->host || 0 != (read->any & GPUSYM_POST_HOST)) {
        return is(COLL_GPUSYM_DECIDED_STAGE, COLL_GPUSYM_R_MIXED, -1);
    } else if (read->bounce >= 0) {
        return is(COLL_GPUSYM_DECIDED_STAGE, read->bounce - GPUSYM_KIND_BOUNCE, -1);
    } else if (read->mismatch_rank >= 0 && (read->other_call || !q->moves)) {
        return is(COLL_GPUSYM_DECIDED_MISMATCH, -1, -1);
    } else if (read->mismatch_rank >= 0) {
        return is(COLL_GPUSYM_DECIDED_STAGE, COLL_GPUSYM_R_BETWEEN, -1);
    } else if (q->agree_only || q->unset) {
        return is(COLL_GPUSYM_DECIDED_AGREED, -1, -1);
    }
    return is(COLL_GPUSYM_DECIDED_GO, -1, -1);
}

static coll_gpusym_decision_t judge_host(const coll_gpusym_question_t *q)
{
    const gpusym_agreement_read_t *read = q->read;
    const bool any_host = read->host || 0 != (read->any & GPUSYM_POST_HOST);
    if (any_host && 0 == (read->any & GPUSYM_POST_GPU)) {
        return is(COLL_GPUSYM_DECIDED_FORWARD, -1, -1);
    } else if (read->host || read->bounce >= 0) {
        return is(COLL_GPUSYM_DECIDED_STAGE,
                  read->bounce >= 0 ? read->bounce - GPUSYM_KIND_BOUNCE : COLL_GPUSYM_R_MIXED, -1);
    } else if (read->mismatch_rank >= 0 && (read->other_call || !q->moves)) {
        return is(COLL_GPUSYM_DECIDED_MISMATCH, -1, -1);
    } else if (q->agree_only) {
        return is(COLL_GPUSYM_DECIDED_AGREED, -1, -1);
    } else if (read->mismatch_rank >= 0 || 0 != read->balance) {
        return is(COLL_GPUSYM_DECIDED_SIZES, -1, -1);
    } else if (0 == read->max_bytes) {
        return is(COLL_GPUSYM_DECIDED_EMPTY, -1, -1);
    }
    return is(COLL_GPUSYM_DECIDED_GO, -1, -1);
}

static coll_gpusym_decision_t judge(const coll_gpusym_question_t *q)
{
    if (q->read->corrupt_rank >= 0) {
        return is(COLL_GPUSYM_DECIDED_CORRUPT, -1, q->read->corrupt_rank);
    } else if (q->read->bounce >= GPUSYM_KIND_BOUNCE + (int) COLL_GPUSYM_REASONS) {
        return is(COLL_GPUSYM_DECIDED_CORRUPT, -1, q->read->bounce_rank);
    }
    return q->takes_host ? judge_host(q) : judge_island(q);
}

/* The next of the digits of a number, in a mixed base. */
static unsigned take(unsigned *number, unsigned base)
{
    const unsigned digit = *number % base;
    *number /= base;
    return digit;
}

/* Which combination; false: there are no more. */
static bool make_question(unsigned number, gpusym_agreement_read_t *read, coll_gpusym_question_t *q)
{
    /* None, each reason, one too many, and a kind that no rank has. */
    const unsigned bounces = COLL_GPUSYM_REASONS + 3, bounce = take(&number, bounces);
    *read = (gpusym_agreement_read_t){.bounce_rank = 3, .same_layout = true};
    read->bounce = 0 == bounce             ? -1
                   : bounces - 1 == bounce ? GPUSYM_KIND_MIXED - 1
                                           : GPUSYM_KIND_BOUNCE + (int) bounce - 1;
    read->corrupt_rank = take(&number, 2) ? 2 : -1;
    read->host = take(&number, 2);
    read->any =
        (take(&number, 2) ? GPUSYM_POST_HOST : 0u) | (take(&number, 2) ? GPUSYM_POST_GPU : 0u) | GPUSYM_POST_QUIET;
    read->mismatch_rank = take(&number, 2) ? 1 : -1;
    read->other_call = take(&number, 2);
    read->balance = take(&number, 2) ? UINT64_MAX : 0;
    read->max_bytes = take(&number, 2) ? 64 : 0;
    *q = (coll_gpusym_question_t){.read = read};
    q->agree_only = take(&number, 2);
    q->moves = take(&number, 2);
    q->takes_host = take(&number, 2);
    q->unset = take(&number, 2) && !q->takes_host; /* of islands alone */
    return 0 == number;
}

static void all_combinations(void **state)
{
    (void) state;
    unsigned made = 0, kinds[COLL_GPUSYM_DECIDED_GO + 1] = {0};
    gpusym_agreement_read_t read;
    coll_gpusym_question_t q;
    for (; make_question(made, &read, &q); made++) {
        const coll_gpusym_decision_t d = coll_gpusym_decide(&q), expected = judge(&q);
        if (d.kind != expected.kind || d.reason != expected.reason || d.rank != expected.rank) {
            fail_msg("combination %u: %d, reason %d, rank %d; not %d, %d, %d", made, d.kind, d.reason, d.rank,
                     expected.kind, expected.reason, expected.rank);
        }
        kinds[d.kind]++;
    }
    assert_int_equal(made, (COLL_GPUSYM_REASONS + 3) << 12);
    for (unsigned k = 0; k <= COLL_GPUSYM_DECIDED_GO; k++) {
        assert_true(kinds[k] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_combinations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
