/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit test: entry of early launches (kernels/symm/enter.h). Ranks are threads, which come at random times, or not at
 * all, wait for a short while or a long one, and have one signature or another: those that come all go on, or none; and
 * all do if all have come in time with one signature.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/prim/reduce.h" /* prim.h needs it */
#include "kernels/symm/enter.h"

enum { RANKS = 3, BLOCKS = 3, ROUNDS = 20000, LONG_NS = 2000000000 };

typedef struct {
    gpusym_work_t work;
    bool comes, goes_on;
    unsigned delay; /* polls before it comes */
    unsigned went;  /* blocks that went on */
} rank_t;

static _Alignas(128) char slot[RANKS][GPUSYM_FLAGS_OFF];
static uint64_t done[RANKS];
static uint32_t aborted;

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void *run_rank(void *arg)
{
    rank_t *r = arg;
    for (unsigned i = 0; i < r->delay; i++) {
        sched_yield();
    }
    r->went = 0;
    for (uint32_t b = 0; b < BLOCKS; b++) { /* one after the other, as the simulator runs them */
        r->went += gs_enter((gs_ctx_t){0, 1, b, BLOCKS}, &r->work);
    }
    return NULL;
}

static void prepare(rank_t *r, uint32_t me, uint32_t n, uint32_t round, uint32_t *state)
{
    memset(&r->work, 0, sizeof r->work);
    for (uint32_t p = 0; p < n; p++) {
        r->work.peer[p] = slot[p];
    }
    r->work.rank = me;
    r->work.nranks = n;
    r->work.nblocks = BLOCKS;
    r->work.done = &done[me];
    r->work.done_seq = 2 * round + 2;
    r->work.abort = &aborted;
    r->work.epoch = round + 1;
    r->work.early = GPUSYM_EARLY_ENTERS;
    r->work.enter_set = round % 2;
    r->work.enter_sig = 0 == next_random(state) % 8 ? 7 : 5;
    r->work.enter_ns = 0 == next_random(state) % 3 ? next_random(state) % 20000 : LONG_NS;
    r->comes = 0 != next_random(state) % 8;
    r->delay = next_random(state) % 4 * (next_random(state) % 20);
}

/* Returns the number of ranks that have gone on. */
static unsigned run_round(rank_t *rank, uint32_t n)
{
    pthread_t thread[RANKS];
    unsigned went = 0;
    for (uint32_t r = 0; r < n; r++) {
        if (rank[r].comes) {
            assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &rank[r]), 0);
        }
    }
    for (uint32_t r = 0; r < n; r++) {
        if (rank[r].comes) {
            (void) pthread_join(thread[r], NULL);
            assert_true(0 == rank[r].went || BLOCKS == rank[r].went);
            went += BLOCKS == rank[r].went;
            /* Who leaves tells the host so. */
            const uint64_t left = (uint64_t) (rank[r].work.done_seq - 1) << 32 | GPUSYM_STATUS_RETIRED;
            assert_true((0 == rank[r].went) == (left == done[r]));
        }
    }
    return went;
}

static void check_ranks(uint32_t n)
{
    rank_t rank[RANKS];
    unsigned all = 0, none = 0;
    uint32_t state = 1;
    memset(slot, 0, sizeof slot);
    for (uint32_t round = 0; round < ROUNDS / n; round++) {
        bool come = true, alike = true, patient = true;
        for (uint32_t r = 0; r < n; r++) {
            prepare(&rank[r], r, n, round, &state);
            come = come && rank[r].comes;
            alike = alike && rank[0].work.enter_sig == rank[r].work.enter_sig;
            patient = patient && LONG_NS == rank[r].work.enter_ns;
        }
        for (uint32_t r = 0; r < n && !come; r++) { /* who waits for a rank that does not come does not wait for long */
            rank[r].work.enter_ns %= 50000;
        }
        const unsigned went = run_round(rank, n);
        assert_true(0 == went || n == went);
        assert_true(0 == went || (come && alike));
        assert_true(n == went || !come || !alike || !patient);
        all += n == went;
        none += 0 == went;
    }
    assert_true(all > 100 && none > 100);
}

static void two_ranks(void **state)
{
    (void) state;
    check_ranks(2);
}

static void three_ranks(void **state)
{
    (void) state;
    check_ranks(3);
}

/* A call that has failed: who waits for a word that does not come leaves. */
static void abort_ends_the_wait(void **state)
{
    uint32_t random = 1;
    rank_t r;
    (void) state;
    memset(slot, 0, sizeof slot);
    prepare(&r, 0, 2, 0, &random);
    r.work.enter_sig = 5;
    r.work.enter_ns = LONG_NS;
    r.delay = 0;
    gs_ll_st(gs_enter_line(&r.work, 0, 1, r.work.enter_set, GS_ENTRY), 5,
             r.work.epoch); /* the peer's entry, and no word */
    aborted = 1;
    (void) run_rank(&r);
    aborted = 0;
    assert_int_equal(r.went, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(three_ranks),
        cmocka_unit_test(abort_ends_the_wait),
    };
    return cmocka_run_group_tests_name("enter", tests, NULL, NULL);
}
