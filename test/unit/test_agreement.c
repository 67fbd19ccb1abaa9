/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/agree/agreement.c: ranks are threads of this process, or processes forked from it.
 * What a rank posts in a call follows from seed, call and rank, so that every reader knows what it must find. A seed as
 * the argument repeats a run.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mca/common/gpusym/agree/table.h"
#include "mca/common/gpusym/agree/tokens.h"
#include "test/hang.h"
#include "test/unit/random.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)
#define RANKS_MAX 6

/* splitmix64's mixing */
static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

/* Lets others run; whether the time for waiting is up. */
static bool patience_ends(uint64_t end)
{
    sched_yield();
    return now_ns() > end;
}

static uint64_t patience(void)
{
    return now_ns() + hang_s() * 1000000000ull;
}

/* ---- a script: what each rank posts ---- */

enum mode { ALL_NATIVE, RANDOM, HOST_RUNS_AHEAD, MISMATCHES };

typedef struct {
    enum mode mode;
    uint64_t calls;
} script_t;

/* What differs in a call's posts only where own has that number: one in ten each, so that some calls have none. */
enum { ODD_HOST, ODD_WHAT, ODD_HASH, ODD_BYTES, ODD_HIGH_BYTES, ODD_LAYOUT, ODD_COUNT = 10 };

static void script_spoil(gpusym_post_t *p, uint64_t own)
{
    const uint64_t odd = own % ODD_COUNT;
    p->kind = ODD_HOST == odd ? GPUSYM_KIND_HOST : p->kind;
    p->what = (uint8_t) (p->what + (ODD_WHAT == odd));
    p->hash += ODD_HASH == odd;
    p->bytes += ODD_BYTES == odd ? 1 : ODD_HIGH_BYTES == odd ? 1ull << 32 : 0;
    p->layout += ODD_LAYOUT == odd;
}

/* Every other call is exact; in the others every rank has a length of its own. */
static gpusym_post_t script_post(const script_t *s, uint64_t call, uint32_t rank)
{
    const uint64_t all = mix(seed ^ mix(call)), own = mix(all ^ mix(rank + 1)), where = mix(own);
    const bool exact = 0 != (all >> 40 & 1);
    gpusym_post_t p = {.kind = GPUSYM_KIND_NATIVE,
                       .what = (uint8_t) all,
                       .hash = (uint32_t) (all >> 8),
                       .exact = exact,
                       .bytes = mix(exact ? all : own) >> 8,
                       .flags = (uint32_t) (all >> 41 & 1 ? all >> 42 : own >> 42) & 31,
                       .layout = (uint32_t) (all >> 20),
                       .in_key = (uint32_t) where,
                       .out_key = (uint32_t) (where >> 32),
                       .in_off = mix(where),
                       .out_off = mix(where + 1)};
    switch (s->mode) {
    case RANDOM:
        p.kind = (uint8_t) (0 == all % 3 ? own % 4 : p.kind); /* else all are native */
        break;
    case HOST_RUNS_AHEAD:
        p.kind = 0 == rank ? GPUSYM_KIND_HOST : (uint8_t) (1 + own % 2);
        break;
    case MISMATCHES:
        script_spoil(&p, own);
        break;
    default:
        break;
    }
    return p;
}

/* What rank, which has device buffers, must read in that call. */
static gpusym_agreement_read_t script_expected(const script_t *s, uint32_t nranks, uint32_t rank, uint64_t call)
{
    const gpusym_post_t own = script_post(s, call, rank);
    gpusym_agreement_read_t e = {
        .bounce = -1, .bounce_rank = -1, .mismatch_rank = -1, .all = UINT32_MAX, .same_layout = true};
    for (uint32_t r = 0; r < nranks; r++) {
        const gpusym_post_t p = script_post(s, call, r);
        if (GPUSYM_KIND_HOST == p.kind) {
            e.host = true;
            continue;
        }
        if (e.bounce < 0 && p.kind >= GPUSYM_KIND_BOUNCE) {
            e.bounce = p.kind;
            e.bounce_rank = (int) r;
        }
        const bool as_long = !own.exact || p.bytes == own.bytes;
        if (e.mismatch_rank < 0 && (p.what != own.what || p.hash != own.hash || !as_long)) {
            e.mismatch_rank = (int) r;
            e.mismatch_bytes = p.bytes;
        }
        e.max_bytes = p.bytes > e.max_bytes ? p.bytes : e.max_bytes;
        e.all &= p.flags;
        e.any |= p.flags;
        e.same_layout = e.same_layout && p.layout == own.layout;
    }
    return e;
}

/* Whether rank's entry is what it posted. */
static bool entry_right(const gpusym_agreement_t *rc, uint32_t rank, uint64_t call, const gpusym_post_t *p)
{
    const gpusym_entry_t *e = gpusym_agreement_entry(rc, rank, call);
    return e->bytes == p->bytes && e->flags == p->flags && e->layout == p->layout && e->in_key == p->in_key &&
           e->out_key == p->out_key && e->in_off == p->in_off && e->out_off == p->out_off &&
           gpusym_entry_intact(e, call);
}

static bool script_right(const script_t *s, const gpusym_agreement_t *rc, const gpusym_agreement_read_t *read)
{
    const gpusym_agreement_read_t e = script_expected(s, rc->nranks, rc->rank, read->seq);
    for (uint32_t r = 0; r < rc->nranks; r++) {
        const gpusym_post_t p = script_post(s, read->seq, r);
        if (GPUSYM_KIND_HOST != p.kind && !entry_right(rc, r, read->seq, &p)) {
            return false;
        }
    }
    return read->corrupt_rank < 0 && read->host == e.host && read->bounce == e.bounce &&
           read->bounce_rank == e.bounce_rank && read->mismatch_rank == e.mismatch_rank &&
           (e.mismatch_rank < 0 || read->mismatch_bytes == e.mismatch_bytes) && read->max_bytes == e.max_bytes &&
           read->all == e.all && read->any == e.any && read->same_layout == e.same_layout;
}

static bool script_vote(uint64_t call, uint32_t rank)
{
    return 0 != mix(seed + mix(call) + rank) % 5;
}

static const gpusym_agreement_read_t none; /* no call waits */

/* The second word on a call, where somebody has a fresh key; then the launch. */
static bool script_agree(gpusym_agreement_t *rc, uint64_t call, uint64_t end, bool vote)
{
    if (vote) {
        int votes, expected = 1;
        for (uint32_t r = 0; r < rc->nranks; r++) {
            expected = script_vote(call, r) ? expected : -1;
        }
        gpusym_agreement_vote(rc, call, script_vote(call, rc->rank));
        while (0 == (votes = gpusym_agreement_votes(rc, call))) {
            if (gpusym_agreement_corrupt(rc, &none) >= 0 || patience_ends(end)) {
                return false;
            }
        }
        if (votes != expected) {
            return false;
        }
    }
    gpusym_agreement_launched(rc, call);
    while (0 == call % 8 && !gpusym_agreement_all_launched(rc, call)) {
        if (patience_ends(end)) {
            return false;
        }
    }
    return true;
}

/* Host ranks have a shorter way too: every other call of theirs goes by that. */
static bool script_say(gpusym_agreement_t *rc, uint64_t call, const gpusym_post_t *p, gpusym_agreement_read_t *read)
{
    return GPUSYM_KIND_HOST == p->kind && 0 != (mix(call) & 1) ? gpusym_agreement_post_host(rc, p->what)
                                                               : gpusym_agreement_post(rc, p, read);
}

/* One rank's way through a script. Host ranks post and go on; device ranks read, waiting for all; if all have device
 * memory that a kernel can serve they go on to a vote and a launch. 0: all was right; else the number of the call that
 * was not, from 1. */
static uint64_t script_walk(const script_t *s, gpusym_agreement_t *rc)
{
    const uint64_t end = patience();
    for (uint64_t call = 1; call <= s->calls; call++) {
        const gpusym_post_t p = script_post(s, call, rc->rank);
        gpusym_agreement_read_t read;
        while (!script_say(rc, call, &p, &read)) {
            if (gpusym_agreement_corrupt(rc, &none) >= 0 || patience_ends(end)) {
                return call;
            }
        }
        if (GPUSYM_KIND_HOST == p.kind) {
            continue;
        }
        while (!gpusym_agreement_read(rc, &read)) {
            if (gpusym_agreement_corrupt(rc, &read) >= 0 || patience_ends(end)) {
                return call;
            }
        }
        if (gpusym_agreement_corrupt(rc, &read) >= 0 || read.seq != call || !script_right(s, rc, &read)) {
            return call;
        }
        if (!read.host && read.bounce < 0 && !script_agree(rc, call, end, 0 != (read.any & GPUSYM_POST_NEW_KEY))) {
            return call;
        }
    }
    return 0;
}

/* ---- ranks as threads ---- */

typedef struct {
    uint32_t nranks;
    uint64_t off[RANKS_MAX];
    gpusym_line_t *line[RANKS_MAX];
    gpusym_peer_t *peer[RANKS_MAX];
    gpusym_agreement_t rc[RANKS_MAX];
} team_t;

static void team_make(team_t *team, uint32_t nranks)
{
    gpusym_pages_id_t id;
    OK(gpusym_pages_open(&id));
    team->nranks = nranks;
    for (uint32_t r = 0; r < nranks; r++) {
        OK(gpusym_pages_alloc(&team->off[r]));
        OK(gpusym_pages_peer(&id, &team->peer[r]));
        team->line[r] = gpusym_peer_line(team->peer[r], team->off[r]);
        team->rc[r] = (gpusym_agreement_t){.nranks = nranks, .rank = r, .line = team->line, .peer = team->peer};
    }
}

static void team_free(team_t *team)
{
    for (uint32_t r = 0; r < team->nranks; r++) {
        gpusym_pages_free(team->off[r]);
    }
}

typedef struct {
    const script_t *script;
    gpusym_agreement_t *rc;
    uint64_t wrong;
} walker_t;

static void *walk(void *arg)
{
    walker_t *w = arg;
    w->wrong = script_walk(w->script, w->rc);
    return NULL;
}

static void run_threads(enum mode mode, uint64_t calls, uint32_t nranks)
{
    const script_t script = {mode, calls};
    team_t team;
    walker_t walker[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    team_make(&team, nranks);
    for (uint32_t r = 0; r < nranks; r++) {
        walker[r] = (walker_t){&script, &team.rc[r], 0};
        assert_int_equal(pthread_create(&thread[r], NULL, walk, &walker[r]), 0);
    }
    for (uint32_t r = 0; r < nranks; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
    }
    for (uint32_t r = 0; r < nranks; r++) {
        if (0 != walker[r].wrong) {
            print_error("mode %d, rank %u of %u: wrong, or stuck, in call %lu\n", mode, r, nranks,
                        (unsigned long) walker[r].wrong);
            fail();
        }
        assert_int_equal(team.rc[r].seq, calls);
    }
    team_free(&team);
}

/* ---- tables ---- */

/* What rank has for a peer in a call, and takes from it. */
static gpusym_table_row_t row_of(uint64_t call, uint32_t rank, uint32_t peer)
{
    const uint64_t x = mix(seed ^ mix(call) ^ mix(100 * rank + peer));
    return (gpusym_table_row_t){x, mix(x), mix(x + 1), mix(x + 2)};
}

/* Some calls have tables; in some of the others rank 0 has host buffers, and goes on at once. */
static bool has_table(uint64_t call)
{
    return 0 != mix(seed + call) % 3;
}

static bool fill_table(gpusym_agreement_t *rc, uint64_t call, uint64_t end)
{
    gpusym_table_row_t *rows;
    while (NULL == (rows = gpusym_table_rows(rc, call))) {
        if (patience_ends(end)) {
            return false;
        }
    }
    for (uint32_t p = 0; p < rc->nranks; p++) {
        rows[p] = row_of(call, rc->rank, p);
    }
    gpusym_table_publish(rc, call);
    return true;
}

static bool tables_right(const gpusym_agreement_t *rc, uint64_t call)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        const gpusym_table_row_t *rows, row = row_of(call, r, rc->rank);
        if (GPUSYM_TABLE_THERE != gpusym_table_find(rc, r, call, &rows) ||
            0 != memcmp(&rows[rc->rank], &row, sizeof row)) {
            return false;
        }
    }
    return true;
}

static void *walk_tables(void *arg)
{
    walker_t *w = arg;
    const uint64_t end = patience();
    gpusym_agreement_read_t read;
    for (uint64_t call = 1; call <= w->script->calls; call++) {
        const bool host = !has_table(call) && 0 == w->rc->rank;
        const gpusym_post_t post = {.kind = host ? GPUSYM_KIND_HOST : GPUSYM_KIND_NATIVE};
        w->wrong = call;
        if (has_table(call) && !fill_table(w->rc, call, end)) {
            return NULL;
        }
        while (!gpusym_agreement_post(w->rc, &post, &read)) {
            if (patience_ends(end)) {
                return NULL;
            }
        }
        while (!host && !gpusym_agreement_read(w->rc, &read)) {
            if (patience_ends(end)) {
                return NULL;
            }
        }
        if (has_table(call) && !tables_right(w->rc, call)) {
            return NULL;
        }
    }
    w->wrong = 0;
    return NULL;
}

static void tables_hold_while_they_are_read(void **state)
{
    (void) state;
    const script_t script = {ALL_NATIVE, 20000};
    team_t team;
    walker_t walker[3];
    pthread_t thread[3];
    team_make(&team, 3);
    for (uint32_t r = 0; r < 3; r++) {
        walker[r] = (walker_t){&script, &team.rc[r], 0};
        OK(gpusym_table_make(&team.rc[r]));
    }
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(pthread_create(&thread[r], NULL, walk_tables, &walker[r]), 0);
    }
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
    }
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(walker[r].wrong, 0);
    }
    team_free(&team);
}

/* A peer that is not there yet, one without memory, and one whose line or table was overwritten. */
static void what_a_table_says(void **state)
{
    (void) state;
    const gpusym_table_row_t *rows;
    team_t team;
    team_make(&team, 2);
    gpusym_agreement_t *rc = &team.rc[1];
    assert_int_equal(gpusym_table_find(&team.rc[0], 1, 1, &rows), GPUSYM_TABLE_WAITING);
    OK(gpusym_table_make(rc));
    assert_int_equal(gpusym_table_find(&team.rc[0], 1, 1, &rows), GPUSYM_TABLE_WAITING);
    assert_non_null(gpusym_table_rows(rc, 1));
    gpusym_table_publish(rc, 1);
    assert_int_equal(gpusym_table_find(&team.rc[0], 1, 1, &rows), GPUSYM_TABLE_THERE);
    assert_int_equal(gpusym_table_find(&team.rc[0], 1, 2, &rows), GPUSYM_TABLE_WAITING);
    team.line[1]->table += 32;
    assert_int_equal(gpusym_table_find(&team.rc[0], 1, 1, &rows), GPUSYM_TABLE_CORRUPT);
    team.line[1]->table = UINT64_MAX - 63;
    assert_int_equal(gpusym_table_find(&team.rc[0], 1, 1, &rows), GPUSYM_TABLE_CORRUPT);
    gpusym_table_lack(rc);
    assert_int_equal(gpusym_table_find(&team.rc[0], 1, 1, &rows), GPUSYM_TABLE_LACKING);
    team_free(&team);
}

/* A half is overwritten in the next call but one, and not before the peer has posted the call between. */
static void a_half_waits_for_its_readers(void **state)
{
    (void) state;
    const gpusym_post_t post = {.kind = GPUSYM_KIND_HOST};
    gpusym_agreement_read_t read;
    team_t team;
    team_make(&team, 2);
    gpusym_agreement_t *rc = &team.rc[0];
    OK(gpusym_table_make(rc));
    for (uint64_t call = 1; call <= 2; call++) {
        assert_non_null(gpusym_table_rows(rc, call));
        gpusym_table_publish(rc, call);
        assert_true(gpusym_agreement_post(rc, &post, &read));
    }
    assert_null(gpusym_table_rows(rc, 3));
    assert_true(gpusym_table_awaits(rc, 1));
    assert_true(gpusym_agreement_post(&team.rc[1], &post, &read)); /* call 1, in which it still is */
    assert_null(gpusym_table_rows(rc, 3));
    assert_true(gpusym_agreement_post(&team.rc[1], &post, &read));
    assert_false(gpusym_table_awaits(rc, 1));
    gpusym_table_row_t *rows = gpusym_table_rows(rc, 3);
    assert_non_null(rows);
    gpusym_table_publish(rc, 3);
    assert_ptr_equal(gpusym_table_rows(rc, 3), rows); /* of the call in flight */
    assert_null(gpusym_table_rows(rc, 4));
    team_free(&team);
}

static void all_native(void **state)
{
    (void) state;
    run_threads(ALL_NATIVE, 3000, 1);
    run_threads(ALL_NATIVE, 3000, 2);
    run_threads(ALL_NATIVE, 2000, 5);
}

static void kinds_are_mixed(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= RANKS_MAX; n++) {
        run_threads(RANDOM, 4000, n);
    }
}

static void host_ranks_run_ahead(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= 4; n++) {
        run_threads(HOST_RUNS_AHEAD, 20000, n);
    }
}

static void mismatches_are_told(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= 4; n++) {
        run_threads(MISMATCHES, 4000, n);
    }
}

/* The sequence in an entry has 16 bits. */
static void the_sequence_wraps(void **state)
{
    (void) state;
    run_threads(RANDOM, 140000, 2);
    run_threads(HOST_RUNS_AHEAD, 70000, 3);
}

/* ---- one call, step by step ---- */

static void post_one(gpusym_agreement_t *rc, uint8_t kind, gpusym_agreement_read_t *read)
{
    const gpusym_post_t p = {.kind = kind, .what = 9, .hash = 100, .bytes = 100};
    assert_true(gpusym_agreement_post(rc, &p, read));
}

static void reading_waits_for_every_rank(void **state)
{
    (void) state;
    team_t team;
    gpusym_agreement_read_t read[3];
    team_make(&team, 3);
    for (unsigned call = 0; call < 100; call++) {
        const uint32_t first = call % 3, second = (call + 1 + call / 3 % 2) % 3, last = 3 - first - second;
        post_one(&team.rc[first], GPUSYM_KIND_NATIVE, &read[first]);
        assert_false(gpusym_agreement_read(&team.rc[first], &read[first]));
        post_one(&team.rc[second], GPUSYM_KIND_BOUNCE + 5, &read[second]);
        assert_false(gpusym_agreement_read(&team.rc[first], &read[first]));
        assert_false(gpusym_agreement_read(&team.rc[second], &read[second]));
        post_one(&team.rc[last], GPUSYM_KIND_BOUNCE + 7, &read[last]);
        for (uint32_t r = 0; r < 3; r++) {
            assert_true(gpusym_agreement_read(&team.rc[r], &read[r]));
            assert_true(gpusym_agreement_read(&team.rc[r], &read[r])); /* and again */
            assert_false(read[r].host);
            assert_int_equal(read[r].bounce_rank, second < last ? second : last);
            assert_int_equal(read[r].bounce, GPUSYM_KIND_BOUNCE + (second < last ? 5 : 7));
            assert_int_equal(read[r].mismatch_rank, -1);
        }
    }
    team_free(&team);
}

/* Posts for all ranks of a team, and reads as rank 1 of them. */
static gpusym_agreement_read_t call_of(team_t *team, const gpusym_post_t *post)
{
    gpusym_agreement_read_t read[RANKS_MAX];
    for (uint32_t r = 0; r < team->nranks; r++) {
        assert_true(gpusym_agreement_post(&team->rc[r], &post[r], &read[r]));
    }
    for (uint32_t r = 0; r < team->nranks; r++) {
        assert_true(gpusym_agreement_read(&team->rc[r], &read[r]));
    }
    return read[1];
}

static void lengths_matter_where_they_are_exact(void **state)
{
    (void) state;
    team_t team;
    team_make(&team, 3);
    gpusym_post_t post[3] = {{.kind = GPUSYM_KIND_NATIVE, .what = 4, .hash = 5, .bytes = 1ull << 40}};
    post[1] = post[2] = post[0];
    post[2].bytes += 1ull << 33;
    gpusym_agreement_read_t read = call_of(&team, post);
    assert_int_equal(read.mismatch_rank, -1);
    assert_int_equal(read.max_bytes, post[2].bytes);
    post[0].exact = post[1].exact = post[2].exact = true;
    read = call_of(&team, post);
    assert_int_equal(read.mismatch_rank, 2);
    assert_int_equal(read.mismatch_bytes, post[2].bytes);
    post[2].bytes = post[0].bytes;
    read = call_of(&team, post);
    assert_int_equal(read.mismatch_rank, -1);
    assert_int_equal(read.max_bytes, post[0].bytes);
    post[1].bytes = 0; /* the reader's own */
    assert_int_equal(call_of(&team, post).mismatch_rank, 0);
    post[0].kind = post[2].kind = GPUSYM_KIND_HOST; /* they have nothing to compare, nor to add */
    read = call_of(&team, post);
    assert_int_equal(read.mismatch_rank, -1);
    assert_int_equal(read.max_bytes, 0);
    assert_true(read.host);
    team_free(&team);
}

static void flags_and_layouts_are_gathered(void **state)
{
    (void) state;
    team_t team;
    team_make(&team, 3);
    gpusym_post_t post[3] = {
        {.kind = GPUSYM_KIND_NATIVE, .flags = GPUSYM_POST_QUIET | GPUSYM_POST_CAN_IN, .layout = 8}};
    post[1] = post[2] = post[0];
    post[2].kind = GPUSYM_KIND_BOUNCE + 1;
    post[2].flags = GPUSYM_POST_CAN_IN | GPUSYM_POST_NEW_KEY;
    gpusym_agreement_read_t read = call_of(&team, post);
    assert_int_equal(read.all, GPUSYM_POST_CAN_IN);
    assert_int_equal(read.any, GPUSYM_POST_QUIET | GPUSYM_POST_CAN_IN | GPUSYM_POST_NEW_KEY);
    assert_true(read.same_layout);
    post[2].layout = 9; /* which is no mistake */
    read = call_of(&team, post);
    assert_false(read.same_layout);
    assert_int_equal(read.mismatch_rank, -1);
    post[2].kind = GPUSYM_KIND_HOST; /* host ranks say nothing of this */
    read = call_of(&team, post);
    assert_int_equal(read.all, post[0].flags);
    assert_int_equal(read.any, post[0].flags);
    assert_true(read.same_layout);
    team_free(&team);
}

/* Every rank sees the same sum; other bytes are not another call. */
static void balances_are_added_up(void **state)
{
    (void) state;
    enum { RANKS = 3 };
    team_t team;
    gpusym_agreement_read_t read[RANKS];
    const uint64_t balance[2][RANKS] = {{7, (uint64_t) -5, (uint64_t) -2}, {7, (uint64_t) -5, (uint64_t) -3}};
    team_make(&team, RANKS);
    for (unsigned call = 0; call < 2; call++) {
        for (uint32_t r = 0; r < RANKS; r++) {
            const gpusym_post_t post = {.kind = GPUSYM_KIND_NATIVE,
                                        .what = 1,
                                        .hash = 2,
                                        .exact = 1 == call,
                                        .bytes = 8 + r,
                                        .balance = balance[call][r]};
            assert_true(gpusym_agreement_post(&team.rc[r], &post, &read[r]));
        }
        for (uint32_t r = 0; r < RANKS; r++) {
            assert_true(gpusym_agreement_read(&team.rc[r], &read[r]));
            assert_true(read[r].balance == (0 == call ? 0 : (uint64_t) -1));
            assert_false(read[r].other_call);
            assert_int_equal(read[r].mismatch_rank, 0 == call ? -1 : 0 == r ? 1 : 0);
        }
    }
    team_free(&team);
}

/* They cost one store: of an entry they change the word alone. */
static void host_ranks_write_the_word_only(void **state)
{
    (void) state;
    team_t team;
    gpusym_agreement_read_t read;
    const gpusym_post_t native = {GPUSYM_KIND_NATIVE, 1, 2, false, 3, 4, 5, 6, 7, 8, 9, 10};
    const gpusym_post_t host = {GPUSYM_KIND_HOST, 11, 12, true, 13, 14, 15, 16, 17, 18, 19, 20};
    team_make(&team, 1);
    for (unsigned call = 0; call < GPUSYM_AGREEMENT_HISTORY; call++) {
        assert_true(gpusym_agreement_post(&team.rc[0], &native, &read));
        gpusym_agreement_vote(&team.rc[0], read.seq, true);
    }
    for (unsigned call = 0; call < GPUSYM_AGREEMENT_HISTORY; call++) {
        gpusym_entry_t before = *gpusym_agreement_entry(&team.rc[0], 0, team.rc[0].seq + 1), after;
        if (0 == call % 2) {
            assert_true(gpusym_agreement_post_host(&team.rc[0], host.what));
        } else {
            assert_true(gpusym_agreement_post(&team.rc[0], &host, &read));
            assert_true(gpusym_agreement_read(&team.rc[0], &read) && read.host);
        }
        after = *gpusym_agreement_entry(&team.rc[0], 0, team.rc[0].seq);
        assert_int_equal(after.word >> 32, team.rc[0].seq % 65536 << 16 | GPUSYM_KIND_HOST << 8 | host.what);
        before.word = after.word;
        assert_memory_equal(&before, &after, sizeof before);
    }
    team_free(&team);
}

/* A rank cannot run ahead for ever: no later than after HISTORY calls it is told so, at once, with nothing posted. */
static void nobody_runs_out_of_history(void **state)
{
    (void) state;
    const gpusym_post_t host = {.kind = GPUSYM_KIND_HOST, .what = 9, .hash = 100, .bytes = 100};
    team_t team;
    gpusym_agreement_read_t mine, read;
    gpusym_line_t before;
    unsigned ahead = 0;
    team_make(&team, 3);
    post_one(&team.rc[1], GPUSYM_KIND_NATIVE, &read);
    post_one(&team.rc[2], GPUSYM_KIND_HOST, &mine);
    while (gpusym_agreement_post(&team.rc[0], &host, &mine)) {
        assert_true(++ahead <= GPUSYM_AGREEMENT_HISTORY);
    }
    assert_true(ahead >= GPUSYM_AGREEMENT_HISTORY / 2);
    before = *team.line[0];
    for (unsigned i = 0; i < 1000; i++) {
        assert_false(gpusym_agreement_post(&team.rc[0], &host, &mine));
        assert_false(gpusym_agreement_post_host(&team.rc[0], host.what));
    }
    assert_int_equal(team.rc[0].seq, ahead);
    assert_memory_equal(&before, team.line[0], sizeof before);
    /* it goes on, where it was refused, once both others have come nearer */
    while (team.rc[1].seq + GPUSYM_AGREEMENT_HISTORY / 2 <= ahead) {
        assert_true(gpusym_agreement_read(&team.rc[1], &read)); /* all that was posted is still there */
        post_one(&team.rc[1], GPUSYM_KIND_NATIVE, &read);
        assert_false(gpusym_agreement_post(&team.rc[0], &host, &mine));
        post_one(&team.rc[2], GPUSYM_KIND_HOST, &mine);
    }
    while (gpusym_agreement_post(&team.rc[0], &host, &mine)) {
        assert_true(team.rc[0].seq <= team.rc[1].seq + GPUSYM_AGREEMENT_HISTORY);
    }
    assert_true(team.rc[0].seq > ahead);
    /* nor has it overwritten what the slow ones come to only now */
    while (team.rc[1].seq < ahead) {
        assert_true(gpusym_agreement_read(&team.rc[1], &read));
        assert_true(read.host);
        post_one(&team.rc[2], GPUSYM_KIND_HOST, &mine);
        post_one(&team.rc[1], GPUSYM_KIND_NATIVE, &read);
    }
    team_free(&team);
}

/* ---- votes and launches ---- */

static bool in_turn(unsigned pattern, uint32_t rank)
{
    return 0 != (pattern >> rank & 1);
}

/* Every pattern of yes and no, in calls of which only some are voted on; the votes of a call long ago, in the same
 * entries, are not taken for its own. */
static void votes_are_counted(void **state)
{
    (void) state;
    enum { N = 4 };
    team_t team;
    gpusym_agreement_read_t read;
    team_make(&team, N);
    for (unsigned call = 1; call <= 8 * GPUSYM_AGREEMENT_HISTORY; call++) {
        const unsigned pattern = (call & 1 ? mix(seed + call) : UINT64_MAX) % (1u << N);
        for (uint32_t r = 0; r < N; r++) {
            post_one(&team.rc[r], GPUSYM_KIND_NATIVE, &read);
        }
        if (0 == mix(seed ^ call) % 3) {
            continue;
        }
        bool refused = false;
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t r = (i + call) % N;
            for (uint32_t q = 0; q < N; q++) {
                assert_int_equal(gpusym_agreement_votes(&team.rc[q], call), 0); /* even after a no */
                assert_int_equal(gpusym_agreement_refused(&team.rc[q], call), refused);
            }
            gpusym_agreement_vote(&team.rc[r], call, in_turn(pattern, r));
            refused = refused || !in_turn(pattern, r);
        }
        for (uint32_t q = 0; q < N; q++) {
            assert_int_equal(gpusym_agreement_votes(&team.rc[q], call), (1u << N) - 1 == pattern ? 1 : -1);
        }
    }
    team_free(&team);
}

/* The rank that has seen a mix looks at once, and tells it at the next multiples of HISTORY / 2, for HISTORY calls;
 * from the next multiple on, all look. */
static void a_mix_makes_ranks_look(void **state)
{
    (void) state;
    enum { N = 3, HALF = GPUSYM_AGREEMENT_HISTORY / 2 };
    team_t team;
    gpusym_agreement_read_t read;
    uint64_t seen[N] = {0};
    bool told = false, looks[N] = {false}; /* told: at the last multiple */
    team_make(&team, N);
    for (uint64_t call = 1; call <= 20 * GPUSYM_AGREEMENT_HISTORY; call++) {
        const bool turn = 0 == call % HALF, was_told = told;
        told = turn ? false : told;
        for (uint32_t r = 0; r < N; r++) {
            const bool own = 0 != seen[r] && seen[r] + GPUSYM_AGREEMENT_HISTORY > call;
            /* The short path of host buffers is for ranks that do not look, and leaves a call where they are to. */
            if (looks[r] || !gpusym_agreement_post_host(&team.rc[r], 9)) {
                post_one(&team.rc[r], GPUSYM_KIND_HOST, &read);
                told = told || (turn && own);
            }
            looks[r] = turn && call > HALF ? was_told : looks[r];
            assert_int_equal(team.rc[r].looks, looks[r]);
        }
        if (0 == mix(seed ^ call) % 50) {
            seen[mix(call) % N] = call;
            looks[mix(call) % N] = true;
            gpusym_agreement_mixed(&team.rc[mix(call) % N], call);
        }
    }
    team_free(&team);
}

/* A rank that has posted the next call does not hide what it said in the call before. */
static void votes_outlast_the_next_call(void **state)
{
    (void) state;
    team_t team;
    gpusym_agreement_read_t read;
    team_make(&team, 2);
    for (uint64_t call = 1; call <= 3 * GPUSYM_AGREEMENT_HISTORY; call++) {
        post_one(&team.rc[0], GPUSYM_KIND_NATIVE, &read);
        if (call > 1) { /* rank 1 comes later */
            assert_int_equal(gpusym_agreement_votes(&team.rc[0], call - 1), 1);
            assert_int_equal(gpusym_agreement_votes(&team.rc[1], call - 1), 1);
        }
        post_one(&team.rc[1], GPUSYM_KIND_NATIVE, &read);
        gpusym_agreement_vote(&team.rc[1], call, true);
        assert_int_equal(gpusym_agreement_votes(&team.rc[1], call), 0);
        gpusym_agreement_vote(&team.rc[0], call, true);
    }
    team_free(&team);
}

static void launches_are_told(void **state)
{
    (void) state;
    team_t team;
    gpusym_agreement_read_t read;
    team_make(&team, 3);
    for (uint64_t call = 1; call <= 100; call++) {
        for (uint32_t r = 0; r < 3; r++) {
            post_one(&team.rc[r], GPUSYM_KIND_NATIVE, &read);
        }
        if (0 == call % 5) { /* a call that is staged has no kernel */
            continue;
        }
        for (uint32_t i = 0; i < 3; i++) {
            assert_false(gpusym_agreement_all_launched(&team.rc[call % 3], call));
            gpusym_agreement_launched(&team.rc[(call + i) % 3], call);
        }
        for (uint32_t r = 0; r < 3; r++) {
            assert_true(gpusym_agreement_all_launched(&team.rc[r], call));
            assert_true(gpusym_agreement_all_launched(&team.rc[r], call - 1)); /* it was, since it has ended */
            assert_false(gpusym_agreement_all_launched(&team.rc[r], call + 1));
        }
    }
    team_free(&team);
}

/* Ranks that bring their input tell when it is there; leaders tell when they have done a call. */
static void leaders_are_told_and_tell(void **state)
{
    (void) state;
    const gpusym_post_t fills = {.kind = GPUSYM_KIND_NATIVE, .bytes = 64, .flags = GPUSYM_POST_FILLS};
    const gpusym_post_t fills_not = {.kind = GPUSYM_KIND_NATIVE, .bytes = 64};
    team_t team;
    team_make(&team, 2);
    for (uint64_t call = 1; call <= 3 * GPUSYM_AGREEMENT_HISTORY; call++) {
        gpusym_agreement_read_t read[2];
        assert_true(gpusym_agreement_post(&team.rc[0], &fills_not, &read[0]));
        assert_true(gpusym_agreement_post(&team.rc[1], call % 2 ? &fills : &fills_not, &read[1]));
        assert_true(gpusym_agreement_read(&team.rc[0], &read[0]) && gpusym_agreement_read(&team.rc[1], &read[1]));
        assert_true(gpusym_agreement_is_ready(&team.rc[0], 0, call));
        assert_int_equal(gpusym_agreement_is_ready(&team.rc[0], 1, call), 0 == call % 2);
        assert_false(gpusym_agreement_has_staged(&team.rc[0], 1, call));
        assert_false(gpusym_agreement_all_staged(&team.rc[0], call));
        gpusym_agreement_ready(&team.rc[1], call);
        assert_true(gpusym_agreement_has_staged(&team.rc[0], 1, call));
        assert_true(gpusym_agreement_is_ready(&team.rc[0], 1, call));
        assert_false(gpusym_agreement_is_done(&team.rc[1], 0, call));
        gpusym_agreement_done(&team.rc[0], call);
        assert_true(gpusym_agreement_is_done(&team.rc[1], 0, call) &&
                    !gpusym_agreement_is_done(&team.rc[1], 0, call + 1));
    }
    team_free(&team);
}

/* The first rank that asks decides on a call, for all; who is in a later call went on with this one. */
static void a_call_is_decided_once(void **state)
{
    (void) state;
    team_t team;
    team_make(&team, 3);
    for (uint64_t call = 1; call < 20; call += 2) {
        const uint32_t first = (uint32_t) (call % 3);
        const bool yes = 0 != call % 4 / 2;
        assert_int_equal(gpusym_agreement_decide(&team.rc[first], call, yes), yes);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(gpusym_agreement_decide(&team.rc[r], call, !yes), yes);
            assert_true(gpusym_agreement_decide(&team.rc[r], call - 1, false));
        }
    }
    team_free(&team);
}

typedef struct {
    const gpusym_agreement_t *rc;
    pthread_barrier_t *start;
    bool yes; /* what it wants in every call */
    bool decided[2000];
} decider_t;

static void *decide_calls(void *arg)
{
    decider_t *d = arg;
    for (uint64_t i = 0; i < sizeof d->decided / sizeof d->decided[0]; i++) {
        pthread_barrier_wait(d->start);
        d->decided[i] = gpusym_agreement_decide(d->rc, i + 1, d->yes);
    }
    return NULL;
}

static void ranks_decide_alike(void **state)
{
    (void) state;
    static decider_t decider[3];
    pthread_barrier_t start;
    pthread_t thread[3];
    team_t team;
    team_make(&team, 3);
    assert_int_equal(pthread_barrier_init(&start, NULL, 3), 0);
    for (uint32_t r = 0; r < 3; r++) {
        decider[r] = (decider_t){.rc = &team.rc[r], .start = &start, .yes = 0 != r};
        assert_int_equal(pthread_create(&thread[r], NULL, decide_calls, &decider[r]), 0);
    }
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
        assert_memory_equal(decider[r].decided, decider[0].decided, sizeof decider[0].decided);
    }
    pthread_barrier_destroy(&start);
    team_free(&team);
}

static void an_abort_is_seen(void **state)
{
    (void) state;
    team_t team;
    team_make(&team, 3);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(gpusym_agreement_aborted(&team.rc[r], 1), -1);
        assert_int_equal(gpusym_agreement_dead(&team.rc[r]), -1);
    }
    gpusym_line_abort(team.line[2], 1);
    assert_int_equal(gpusym_agreement_aborted(&team.rc[0], 1), 2);
    assert_int_equal(gpusym_agreement_aborted(&team.rc[1], 1), 2);
    assert_int_equal(gpusym_agreement_aborted(&team.rc[2], 1), -1); /* it knows */
    gpusym_line_abort(team.line[1], 1);
    assert_int_equal(gpusym_agreement_aborted(&team.rc[0], 1), 1);
    assert_int_equal(gpusym_agreement_aborted(&team.rc[2], 1), 1);
    team_free(&team);
    team_make(&team, 3); /* most likely the same lines: nothing is left of it */
    assert_int_equal(gpusym_agreement_quitter(&team.rc[0]), -1);
    team_free(&team);
}

/* A rank that gave up still takes part in earlier calls: one that is late in such a call goes on with it. */
static void an_abort_is_of_a_call(void **state)
{
    (void) state;
    for (uint64_t first = 65530; first < 65542; first++) { /* the mark has 16 bits of it */
        team_t team;
        team_make(&team, 2);
        gpusym_line_abort(team.line[1], first);
        assert_int_equal(gpusym_agreement_quitter(&team.rc[0]), 1);
        for (uint64_t seq = first - 20; seq < first; seq++) {
            assert_int_equal(gpusym_agreement_aborted(&team.rc[0], seq), -1);
            assert_int_equal(gpusym_agreement_aborted(&team.rc[0], seq + 20), 1);
        }
        gpusym_line_abort(team.line[1], first + 1); /* it had said more before */
        assert_int_equal(gpusym_agreement_aborted(&team.rc[0], first), 1);
        gpusym_line_abort(team.line[1], first - 1);
        assert_int_equal(gpusym_agreement_aborted(&team.rc[0], first - 1), 1);
        gpusym_line_abort(team.line[1], 0);
        assert_int_equal(gpusym_agreement_aborted(&team.rc[0], first - 20), 1);
        team_free(&team);
    }
}

/* ---- pages ---- */

static unsigned descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (NULL != readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

static unsigned mappings(void)
{
    unsigned n = 0;
    int c;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (EOF != (c = fgetc(maps))) {
        n += '\n' == c;
    }
    fclose(maps);
    return n;
}

static bool all_are(unsigned char value, const void *memory, size_t bytes)
{
    const unsigned char *p = memory;
    for (size_t i = 0; i < bytes; i++) {
        if (value != p[i]) {
            return false;
        }
    }
    return true;
}

static void lines_are_zeroed_and_apart(void **state)
{
    (void) state;
    enum { LINES = 1000 };
    static uint64_t off[LINES];
    gpusym_pages_id_t id, again;
    gpusym_peer_t *self, *same;
    OK(gpusym_pages_open(&id));
    OK(gpusym_pages_open(&again));
    assert_memory_equal(&id, &again, sizeof id);
    assert_int_equal(id.pid, getpid());
    OK(gpusym_pages_peer(&id, &self));
    OK(gpusym_pages_peer(&id, &same));
    assert_ptr_equal(self, same);
    assert_int_equal(gpusym_peer_pid(self), getpid());
    assert_true(gpusym_peer_alive(self));
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < LINES; i++) {
            OK(gpusym_pages_alloc(&off[i]));
            gpusym_line_t *line = gpusym_peer_line(self, off[i]);
            assert_true(off[i] + sizeof *line <= id.bytes);
            assert_int_equal((uintptr_t) line % 64, 0); /* ranks' lines share no cache line */
            assert_true((char *) line >= (char *) gpusym_pages_area(GPUSYM_AREA_REG) + (size_t) GPUSYM_AREAS_BYTES);
            assert_true(all_are(0, line, offsetof(gpusym_line_t, end.generation)));
            assert_int_not_equal(gpusym_line_generation(line), 0);
            memset(line, (int) (1 + i % 255), sizeof *line);
        }
        for (unsigned i = 0; i < LINES; i++) { /* none lies over another */
            const unsigned char *p = (const unsigned char *) gpusym_peer_line(self, off[i]);
            assert_int_equal(p[0], 1 + i % 255);
            assert_int_equal(p[sizeof(gpusym_line_t) - 1], 1 + i % 255);
        }
        for (unsigned i = 0; i < LINES; i++) {
            gpusym_pages_free(off[(i * 7 + 3) % LINES]);
        }
    }
}

/* Two ranks of a communicator, here of one process: neither's line is used again while the other may read it. */
static void a_line_left_waits_for_the_peers(void **state)
{
    (void) state;
    gpusym_pages_id_t id;
    gpusym_peer_t *self;
    gpusym_agreement_t rc[2];
    uint64_t off[2], life[2], other, again[2];
    gpusym_pages_close();
    OK(gpusym_pages_open(&id));
    OK(gpusym_pages_peer(&id, &self));
    for (unsigned r = 0; r < 2; r++) {
        OK(gpusym_pages_alloc(&off[r]));
        life[r] = gpusym_line_generation(gpusym_peer_line(self, off[r]));
    }
    for (unsigned r = 0; r < 2; r++) { /* each has arrays of its own, which it loses by leaving */
        rc[r] = (gpusym_agreement_t){.nranks = 2, .rank = r};
        rc[r].line = calloc(2, sizeof *rc->line);
        rc[r].generation = calloc(2, sizeof *rc->generation);
        assert_true(NULL != rc[r].line && NULL != rc[r].generation);
        for (unsigned i = 0; i < 2; i++) {
            rc[r].line[i] = gpusym_peer_line(self, off[i]);
            rc[r].generation[i] = life[i];
        }
    }
    gpusym_agreement_retire(&rc[0], off[0], 0);
    assert_null(rc[0].line);
    assert_null(rc[0].generation);
    OK(gpusym_pages_alloc(&other));
    assert_true(other != off[0] && other != off[1]);
    gpusym_agreement_retire(&rc[1], off[1], 0);
    OK(gpusym_pages_alloc(&again[0]));
    OK(gpusym_pages_alloc(&again[1]));
    assert_true((again[0] == off[0] && again[1] == off[1]) || (again[0] == off[1] && again[1] == off[0]));
    for (unsigned r = 0; r < 2; r++) { /* who has not looked yet sees that they have left all the same */
        const gpusym_line_t *line = gpusym_peer_line(self, again[r]);
        assert_true(gpusym_line_generation(line) > life[0] + 1 && gpusym_line_generation(line) > life[1] + 1);
    }
    gpusym_pages_close();
}

/* The piece that every slab has: where peers look for it, zero at first, touched by no line. */
static void the_area_keeps_its_place(void **state)
{
    (void) state;
    enum { LINES = 100 };
    gpusym_pages_id_t id;
    gpusym_peer_t *self;
    uint64_t off[LINES];
    gpusym_pages_close();
    OK(gpusym_pages_open(&id));
    unsigned char *area = gpusym_pages_area(GPUSYM_AREA_REG);
    assert_non_null(area);
    assert_int_equal((uintptr_t) area % 64, 0);
    assert_true(all_are(0, area, (size_t) GPUSYM_AREAS_BYTES));
    memset(area, 0x5a, (size_t) GPUSYM_AREAS_BYTES);
    OK(gpusym_pages_peer(&id, &self));
    assert_ptr_equal(gpusym_peer_area(self, GPUSYM_AREA_REG), area);
    for (unsigned i = 0; i < LINES; i++) {
        OK(gpusym_pages_alloc(&off[i]));
        memset(gpusym_peer_line(self, off[i]), 0xff, sizeof(gpusym_line_t));
    }
    for (unsigned i = 0; i < LINES; i++) {
        gpusym_pages_free(off[i]);
    }
    OK(gpusym_pages_open(&id));
    assert_ptr_equal(gpusym_pages_area(GPUSYM_AREA_REG), area);
    assert_true(all_are(0x5a, area, (size_t) GPUSYM_AREAS_BYTES));
    gpusym_pages_close();
    assert_null(gpusym_pages_area(GPUSYM_AREA_REG));
    OK(gpusym_pages_open(&id));
    assert_true(all_are(0, gpusym_pages_area(GPUSYM_AREA_REG), (size_t) GPUSYM_AREAS_BYTES)); /* nothing is left */
}

static void lines_do_not_leak(void **state)
{
    (void) state;
    gpusym_pages_id_t id;
    gpusym_peer_t *self;
    uint64_t off[3], base, last = 0;
    OK(gpusym_pages_open(&id));
    OK(gpusym_pages_peer(&id, &self));
    OK(gpusym_pages_alloc(&base));
    gpusym_pages_free(base);
    const unsigned fds = descriptors(), maps = mappings();
    for (unsigned i = 0; i < 10000; i++) {
        for (unsigned k = 0; k < 3; k++) {
            OK(gpusym_pages_alloc(&off[k]));
            last = off[k] > last ? off[k] : last;
        }
        for (unsigned k = 0; k < 3; k++) {
            gpusym_pages_free(off[k]);
        }
        OK(gpusym_pages_peer(&id, &self));
    }
    assert_true(last <= base + 3 * sizeof(gpusym_line_t)); /* the same few lines again and again */
    assert_int_equal(descriptors(), fds);
    assert_in_range(mappings(), 0, maps + 1); /* malloc may have taken one */
}

static void closing_lets_go_of_everything(void **state)
{
    (void) state;
    gpusym_pages_id_t id, next;
    gpusym_peer_t *self;
    uint64_t off;
    gpusym_pages_close();
    const unsigned fds = descriptors();
    assert_int_not_equal(gpusym_pages_alloc(&off), GPUSYM_SUCCESS); /* not open */
    assert_null(gpusym_pages_area(GPUSYM_AREA_REG));
    for (unsigned i = 0; i < 20; i++) {
        OK(gpusym_pages_open(&id));
        OK(gpusym_pages_peer(&id, &self));
        OK(gpusym_pages_alloc(&off));
        assert_int_equal(descriptors(), fds + 1);
        gpusym_pages_close();
        assert_int_equal(descriptors(), fds);
        gpusym_pages_close(); /* twice is fine */
    }
    OK(gpusym_pages_open(&next));
    assert_memory_not_equal(&id.nonce, &next.nonce, sizeof id.nonce);
    assert_int_equal(gpusym_pages_peer(&id, &self), GPUSYM_ERR_UNREACHABLE); /* the old one is no more */
}

/* ---- ranks as processes ---- */

/* What a child tells of itself. */
typedef struct {
    gpusym_pages_id_t id;
    uint64_t off;
} card_t;

typedef struct {
    pid_t pid;
    int to, from; /* pipes */
} child_t;

/* A child does not outlive a test program that fails, nor keep its output open. */
static pid_t fork_child(void)
{
    const pid_t pid = fork();
    if (0 == pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

static void say(int fd, const void *p, size_t n)
{
    assert_int_equal(write(fd, p, n), n);
}

static bool hear(int fd, void *p, size_t n)
{
    char *at = p;
    while (n > 0) {
        const ssize_t got = read(fd, at, n);
        if (got <= 0) {
            return false;
        }
        at += got;
        n -= (size_t) got;
    }
    return true;
}

/* In a child: makes its pages, exchanges cards with the others by way of the parent, and returns a rank's call
 * agreement. Ends the process where that fails. */
static void child_team(int to, int from, uint32_t rank, uint32_t nranks, team_t *team)
{
    card_t card[RANKS_MAX];
    gpusym_pages_close(); /* what came with the fork is the parent's */
    if (GPUSYM_SUCCESS != gpusym_pages_open(&card[rank].id) || GPUSYM_SUCCESS != gpusym_pages_alloc(&card[rank].off) ||
        sizeof card[rank] != write(to, &card[rank], sizeof card[rank]) || !hear(from, card, nranks * sizeof *card)) {
        _exit(2);
    }
    for (uint32_t r = 0; r < nranks; r++) {
        if (GPUSYM_SUCCESS != gpusym_pages_peer(&card[r].id, &team->peer[r])) {
            _exit(3);
        }
        team->line[r] = gpusym_peer_line(team->peer[r], card[r].off);
    }
    team->rc[rank] = (gpusym_agreement_t){.nranks = nranks, .rank = rank, .line = team->line, .peer = team->peer};
}

static void child_run(int to, int from, uint32_t rank, uint32_t nranks, const script_t *script)
{
    team_t team;
    char byte;
    memset(&team, 0, sizeof team);
    child_team(to, from, rank, nranks, &team);
    const uint64_t wrong = script_walk(script, &team.rc[rank]);
    /* none leaves before all are done: a process that has ended cannot be told from one that died */
    if (1 != write(to, &(char){0 == wrong}, 1)) {
        _exit(4);
    }
    (void) hear(from, &byte, 1); /* or the parent has gone */
    _exit(0 == wrong ? 0 : 5);
}

static void children_start(child_t *child, uint32_t nranks, const script_t *script)
{
    card_t card[RANKS_MAX];
    for (uint32_t r = 0; r < nranks; r++) {
        int down[2], up[2];
        assert_int_equal(pipe(down), 0);
        assert_int_equal(pipe(up), 0);
        child[r].pid = fork_child();
        assert_true(child[r].pid >= 0);
        if (0 == child[r].pid) {
            close(down[1]);
            close(up[0]);
            for (uint32_t q = 0; q < r; q++) {
                close(child[q].to);
                close(child[q].from);
            }
            child_run(up[1], down[0], r, nranks, script);
        }
        close(down[0]);
        close(up[1]);
        child[r].to = down[1];
        child[r].from = up[0];
    }
    for (uint32_t r = 0; r < nranks; r++) {
        assert_true(hear(child[r].from, &card[r], sizeof card[r]));
    }
    for (uint32_t r = 0; r < nranks; r++) {
        say(child[r].to, card, nranks * sizeof *card);
    }
}

static int child_end(const child_t *child)
{
    int status;
    close(child->to);
    close(child->from);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    return status;
}

static void ranks_are_processes(void **state)
{
    (void) state;
    static const script_t scripts[] = {{ALL_NATIVE, 2000}, {RANDOM, 5000}, {HOST_RUNS_AHEAD, 5000}, {MISMATCHES, 1000}};
    for (size_t s = 0; s < sizeof scripts / sizeof scripts[0]; s++) {
        child_t child[4];
        char good;
        children_start(child, 4, &scripts[s]);
        for (uint32_t r = 0; r < 4; r++) {
            good = 0;
            assert_true(hear(child[r].from, &good, 1));
            assert_int_equal(good, 1);
        }
        for (uint32_t r = 0; r < 4; r++) {
            assert_int_equal(child_end(&child[r]), 0);
        }
    }
}

/* ---- the area of a peer ---- */

/* In a child, whenever told to: every byte of its area becomes the parent's, turned over. */
static void child_mirrors(int to, int from, const gpusym_pages_id_t *parent)
{
    card_t card = {.off = 0};
    gpusym_peer_t *peer;
    unsigned char go;
    gpusym_pages_close();
    if (GPUSYM_SUCCESS != gpusym_pages_open(&card.id) || GPUSYM_SUCCESS != gpusym_pages_peer(parent, &peer) ||
        !all_are(0, gpusym_pages_area(GPUSYM_AREA_REG), (size_t) GPUSYM_AREAS_BYTES) ||
        sizeof card != write(to, &card, sizeof card)) {
        _exit(2);
    }
    while (hear(from, &go, 1)) {
        const unsigned char *theirs = gpusym_peer_area(peer, GPUSYM_AREA_REG);
        unsigned char *ours = gpusym_pages_area(GPUSYM_AREA_REG);
        for (size_t i = 0; i < (size_t) GPUSYM_AREAS_BYTES; i++) {
            ours[i] = (unsigned char) ~theirs[i];
        }
        if (1 != write(to, &go, 1)) {
            _exit(3);
        }
    }
    _exit(0);
}

static void areas_are_seen_by_peers(void **state)
{
    (void) state;
    gpusym_pages_id_t id;
    gpusym_peer_t *peer;
    card_t card;
    unsigned char go = 0;
    int down[2], up[2];
    OK(gpusym_pages_open(&id));
    unsigned char *ours = gpusym_pages_area(GPUSYM_AREA_REG);
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    child_t child = {.pid = fork_child(), .to = down[1], .from = up[0]};
    assert_true(child.pid >= 0);
    if (0 == child.pid) {
        close(down[1]);
        close(up[0]);
        child_mirrors(up[1], down[0], &id);
    }
    close(down[0]);
    close(up[1]);
    assert_true(hear(child.from, &card, sizeof card));
    OK(gpusym_pages_peer(&card.id, &peer));
    const unsigned char *theirs = gpusym_peer_area(peer, GPUSYM_AREA_REG);
    assert_ptr_not_equal(theirs, ours);
    assert_true(all_are(0, theirs, (size_t) GPUSYM_AREAS_BYTES));
    for (unsigned round = 0; round < 5; round++) {
        for (size_t i = 0; i < (size_t) GPUSYM_AREAS_BYTES; i++) {
            ours[i] = (unsigned char) mix(seed + round + 8 * i);
        }
        say(child.to, &go, 1);
        assert_true(hear(child.from, &go, 1));
        for (size_t i = 0; i < (size_t) GPUSYM_AREAS_BYTES; i++) {
            assert_int_equal(theirs[i], (unsigned char) ~ours[i]);
        }
    }
    assert_int_equal(child_end(&child), 0);
    gpusym_pages_close();
}

/* A child that only has pages, and waits to be killed. */
static child_t child_with_pages(card_t *card)
{
    child_t child;
    int up[2];
    assert_int_equal(pipe(up), 0);
    child.pid = fork_child();
    assert_true(child.pid >= 0);
    if (0 == child.pid) {
        gpusym_pages_close();
        if (GPUSYM_SUCCESS != gpusym_pages_open(&card->id) || GPUSYM_SUCCESS != gpusym_pages_alloc(&card->off) ||
            sizeof *card != write(up[1], card, sizeof *card)) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    close(up[1]);
    child.from = up[0];
    child.to = -1;
    assert_true(hear(child.from, card, sizeof *card));
    return child;
}

/* Killed, and its parent (this process) has not looked yet. */
static void the_dead_are_noticed(void **state)
{
    (void) state;
    card_t card[3];
    child_t child[3];
    gpusym_peer_t *peer[4];
    gpusym_line_t *line[4];
    gpusym_pages_id_t id;
    uint64_t off;
    for (unsigned i = 0; i < 3; i++) {
        child[i] = child_with_pages(&card[i]);
    }
    OK(gpusym_pages_open(&id));
    OK(gpusym_pages_alloc(&off));
    OK(gpusym_pages_peer(&id, &peer[0]));
    line[0] = gpusym_peer_line(peer[0], off);
    for (unsigned i = 0; i < 3; i++) {
        OK(gpusym_pages_peer(&card[i].id, &peer[i + 1]));
        assert_int_equal(gpusym_peer_pid(peer[i + 1]), child[i].pid);
        line[i + 1] = gpusym_peer_line(peer[i + 1], card[i].off);
    }
    gpusym_agreement_t rc = {.nranks = 4, .rank = 0, .line = line, .peer = peer};
    assert_int_equal(gpusym_agreement_dead(&rc), -1);
    assert_int_equal(kill(child[1].pid, SIGKILL), 0);
    const uint64_t end = now_ns() + hang_s() * 1000000000ull;
    while (gpusym_peer_alive(peer[2]) && now_ns() < end) {
        sched_yield();
    }
    assert_false(gpusym_peer_alive(peer[2]));
    assert_true(gpusym_peer_alive(peer[1]) && gpusym_peer_alive(peer[3]));
    assert_int_equal(gpusym_agreement_dead(&rc), 2);
    line[2]->abort = 0; /* its memory is still there */
    for (unsigned i = 0; i < 3; i++) {
        int status;
        kill(child[i].pid, SIGKILL);
        assert_int_equal(waitpid(child[i].pid, &status, 0), child[i].pid);
        close(child[i].from);
    }
    assert_false(gpusym_peer_alive(peer[2])); /* reaped now */
    assert_int_equal(gpusym_agreement_dead(&rc), 1);
    gpusym_pages_free(off);
    gpusym_pages_close();
}

static void a_wrong_id_is_refused(void **state)
{
    (void) state;
    card_t card;
    gpusym_pages_id_t id;
    gpusym_peer_t *peer;
    int status;
    child_t child = child_with_pages(&card);
    const unsigned fds = descriptors();
    id = card.id;
    id.nonce[1] ^= 1;
    assert_int_equal(gpusym_pages_peer(&id, &peer), GPUSYM_ERR_UNREACHABLE);
    id = card.id;
    id.nonce[0] += 1;
    assert_int_equal(gpusym_pages_peer(&id, &peer), GPUSYM_ERR_UNREACHABLE);
    id = card.id;
    id.fd = 1000000;
    assert_int_equal(gpusym_pages_peer(&id, &peer), GPUSYM_ERR_UNREACHABLE);
    id.fd = 1; /* a pipe, a terminal or a file: not the slab */
    assert_int_equal(gpusym_pages_peer(&id, &peer), GPUSYM_ERR_UNREACHABLE);
    id = card.id;
    id.bytes *= 2;
    assert_int_equal(gpusym_pages_peer(&id, &peer), GPUSYM_ERR_UNREACHABLE);
    id = card.id;
    id.pid = getpid();
    assert_int_equal(gpusym_pages_peer(&id, &peer), GPUSYM_ERR_UNREACHABLE);
    assert_int_equal(descriptors(), fds);
    OK(gpusym_pages_peer(&card.id, &peer)); /* the right one can still be had */
    assert_true(gpusym_peer_alive(peer));
    assert_int_equal(kill(child.pid, SIGKILL), 0);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    close(child.from);
    gpusym_pages_close();
    assert_int_equal(gpusym_pages_peer(&card.id, &peer), GPUSYM_ERR_UNREACHABLE); /* gone */
}

/* ---- signals ---- */

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
    (void) number;
    signals = signals + 1;
}

static void storm(long us, int flags)
{
    const struct sigaction action = {.sa_handler = count_signal, .sa_flags = flags};
    const struct itimerval timer = {{0, us}, {0, us}};
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

static void lives_and_dies_in_a_storm(int flags)
{
    card_t card;
    gpusym_peer_t *peer;
    gpusym_pages_id_t id;
    int status = -1;
    child_t child = child_with_pages(&card);
    const uint64_t end = now_ns() + 300000000, late = patience();
    signals = 0;
    storm(120, flags);
    gpusym_pages_close();
    OK(gpusym_pages_open(&id));
    OK(gpusym_pages_peer(&card.id, &peer));
    while (now_ns() < end || signals < 500) {
        assert_true(gpusym_peer_alive(peer));
        assert_true(now_ns() < late);
    }
    assert_int_equal(kill(child.pid, SIGKILL), 0);
    while (gpusym_peer_alive(peer)) {
        assert_true(now_ns() < late);
    }
    storm(0, 0);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    assert_true(WIFSIGNALED(status));
    assert_false(gpusym_peer_alive(peer)); /* reaped */
    close(child.from);
    gpusym_pages_close();
    signal(SIGALRM, SIG_DFL);
}

static void signals_kill_nobody(void **state)
{
    (void) state;
    lives_and_dies_in_a_storm(0);
    lives_and_dies_in_a_storm(SA_RESTART);
}

/* A program that closes descriptors it does not know takes our eyes, not the peer's life. */
static void a_lost_descriptor_is_no_death(void **state)
{
    (void) state;
    card_t card;
    gpusym_peer_t *peer;
    child_t child = child_with_pages(&card);
    int status;
    OK(gpusym_pages_peer(&card.id, &peer));
    for (int fd = 3; fd < 64; fd++) {
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) > 0 && NULL != strstr(target, "pidfd")) {
            close(fd);
        }
    }
    assert_true(gpusym_peer_alive(peer));
    assert_int_equal(kill(child.pid, SIGKILL), 0);
    for (const uint64_t end = patience(); gpusym_peer_alive(peer);) {
        assert_false(patience_ends(end));
    }
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    close(child.from);
    gpusym_pages_close();
}

/* ---- memory that was overwritten ---- */

static void a_slab_keeps_its_size(void **state)
{
    (void) state;
    gpusym_pages_id_t id;
    gpusym_pages_close();
    OK(gpusym_pages_open(&id));
    assert_int_equal(ftruncate(id.fd, 0), -1);
    assert_int_equal(ftruncate(id.fd, 4096), -1);
    assert_int_equal(ftruncate(id.fd, (off_t) (2 * id.bytes)), -1);
    assert_int_equal(fcntl(id.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    memset(gpusym_pages_area(GPUSYM_AREA_REG), 1, (size_t) GPUSYM_AREAS_BYTES);
    gpusym_pages_close();
}

/* A copy of our slab's head, with another nonce, in a memfd of that size and those seals. */
static int map_copy(uint64_t bytes, int seals)
{
    static uint64_t n;
    gpusym_pages_id_t id;
    gpusym_peer_t *peer;
    unsigned char head[4096];
    OK(gpusym_pages_open(&id));
    memcpy(head, (const char *) gpusym_pages_area(GPUSYM_AREA_REG) - sizeof head, sizeof head);
    id.nonce[1] = mix(seed + ++n);
    memcpy(head + 16, &id.nonce[1], sizeof id.nonce[1]); /* magic, nonce, nonce */
    id.fd = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    id.bytes = bytes;
    assert_int_equal(ftruncate(id.fd, (off_t) bytes), 0);
    assert_int_equal(pwrite(id.fd, head, sizeof head, 0), sizeof head);
    assert_true(0 == seals || 0 == fcntl(id.fd, F_ADD_SEALS, seals));
    const int rc = gpusym_pages_peer(&id, &peer);
    close(id.fd);
    return rc;
}

static void what_can_shrink_is_not_mapped(void **state)
{
    (void) state;
    enum { ALL = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
    gpusym_pages_id_t id;
    gpusym_pages_close();
    OK(gpusym_pages_open(&id));
    OK(map_copy(id.bytes, ALL));
    assert_int_equal(map_copy(id.bytes, 0), GPUSYM_ERR_UNREACHABLE);
    assert_int_equal(map_copy(id.bytes, F_SEAL_GROW | F_SEAL_SEAL), GPUSYM_ERR_UNREACHABLE);
    assert_int_equal(map_copy(4096, ALL), GPUSYM_ERR_UNREACHABLE); /* no room for area and lines */
    assert_int_equal(map_copy(2 * id.bytes, ALL), GPUSYM_ERR_UNREACHABLE);
    gpusym_pages_close();
}

static void lines_lie_in_the_slab(void **state)
{
    (void) state;
    gpusym_pages_id_t id;
    gpusym_peer_t *self;
    uint64_t off, tables;
    gpusym_pages_close();
    OK(gpusym_pages_open(&id));
    OK(gpusym_pages_peer(&id, &self));
    OK(gpusym_pages_alloc(&off));
    OK(gpusym_pages_alloc_table(64, &tables)); /* the first: tables lie behind all lines */
    const char *start = (const char *) gpusym_peer_line(self, off) - off;
    const uint64_t last = tables - sizeof(gpusym_line_t);
    assert_non_null(gpusym_peer_line(self, off));
    assert_non_null(gpusym_peer_line(self, last));
    const uint64_t bad[] = {
        0, 64, 4096, off + 1, off + 32, last + 64, id.bytes, id.bytes + 64, UINT64_MAX, UINT64_MAX - 63, 1ull << 63};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_null(gpusym_peer_line(self, bad[i]));
    }
    for (unsigned i = 0; i < 100000; i++) {
        const uint64_t any = mix(seed + i) >> i % 64;
        const char *line = (const char *) gpusym_peer_line(self, any);
        assert_true(NULL == line ||
                    (line == start + any && any <= last && 0 == any % 64 &&
                     line >= (const char *) gpusym_pages_area(GPUSYM_AREA_REG) + (size_t) GPUSYM_AREAS_BYTES));
    }
    gpusym_pages_free(off);
}

/* All ranks of a team post a call of that kind; rank 0 reads it afterwards. */
static void post_all(team_t *team, const gpusym_post_t *p, gpusym_agreement_read_t *read)
{
    for (uint32_t r = 0; r < team->nranks; r++) {
        assert_true(gpusym_agreement_post(&team->rc[r], p, &read[r]));
    }
}

/* Each field of rank 1's line, on its own, with bits that no rank writes there: rank 0 is told of rank 1. */
static void garbage_names_its_rank(void **state)
{
    (void) state;
    enum { FIELDS = 11, SEEN_BY_CORRUPT = 8 };
    const gpusym_post_t p = {.kind = GPUSYM_KIND_NATIVE, .bytes = 4096, .in_key = 0x100, .in_off = 64};
    for (unsigned round = 0; round < 200 * FIELDS; round++) {
        const uint64_t calls = 1 + mix(seed + round) % 100, any = mix(seed ^ mix(round)) | 1ull << 62;
        gpusym_agreement_read_t read[3];
        uint64_t life[3];
        team_t team;
        team_make(&team, 3);
        for (uint32_t r = 0; r < 3; r++) {
            life[r] = gpusym_line_generation(team.line[r]);
            team.rc[r].generation = life;
        }
        for (uint64_t call = 0; call < calls; call++) {
            post_all(&team, &p, read);
        }
        gpusym_entry_t *e = &team.line[1]->entry[calls % GPUSYM_AGREEMENT_HISTORY];
        assert_int_equal(gpusym_agreement_corrupt(&team.rc[0], &read[0]), -1);
        switch (round % FIELDS) {
        case 0: /* another call's number: of no call that could stand there */
            e->word ^= (1 + any % 65535) << 48;
            if (0 == (e->word >> 48 ^ calls) % 32 && (uint16_t) ((e->word >> 48) - calls + 64) <= 96) {
                e->word ^= 1ull << 48;
            }
            break;
        case 1:
            team.line[1]->vote[calls % GPUSYM_AGREEMENT_HISTORY] = any;
            break;
        case 2:
            team.line[1]->end.generation ^= any;
            break;
        case 3:
            team.line[1]->abort = (uint32_t) (any | 0x20000);
            break;
        case 4:
            team.line[1]->go = any;
            break;
        case 5:
            team.line[1]->launched = any;
            break;
        case 6:
            team.line[1]->ready = any;
            break;
        case 7:
            team.line[1]->done = any;
            break;
        case 8:
            e->bytes = any;
            break;
        case 9:
            e->flags |= (uint32_t) GPUSYM_POST_FLAGS_END << any % (1 + (unsigned) __builtin_clz(GPUSYM_POST_FLAGS_END));
            break;
        default: /* keys and places */
            *(any & 1 ? &e->in_off : &e->out_off) ^= any;
            e->in_key ^= (uint32_t) (any >> 8);
            assert_false(gpusym_entry_intact(e, calls));
            break;
        }
        const bool all = gpusym_agreement_read(&team.rc[0], &read[0]);
        if (round % FIELDS < SEEN_BY_CORRUPT) {
            assert_int_equal(gpusym_agreement_corrupt(&team.rc[0], &read[0]), 1);
            assert_true(0 != round % FIELDS || (!all && 1 == gpusym_agreement_corrupt(&team.rc[1], &read[1])));
        } else {
            assert_true(all);
            assert_int_equal(read[0].corrupt_rank, round % FIELDS < FIELDS - 1 ? 1 : -1);
        }
        team_free(&team);
    }
}

/* What a rank itself posted is not there any more: it notices, whatever else stands there. */
static void a_rank_knows_its_own_line(void **state)
{
    (void) state;
    const gpusym_post_t p = {.kind = GPUSYM_KIND_NATIVE, .bytes = 4096};
    gpusym_agreement_read_t read[2];
    team_t team;
    team_make(&team, 2);
    post_all(&team, &p, read);
    memset(team.line[1]->entry, 0, sizeof team.line[1]->entry); /* as if it had not posted yet */
    assert_false(gpusym_agreement_read(&team.rc[0], &read[0]));
    assert_int_equal(gpusym_agreement_corrupt(&team.rc[0], &read[0]), -1);
    assert_int_equal(gpusym_agreement_corrupt(&team.rc[1], &read[1]), 1);
    team_free(&team);
}

/* Any bytes all over a line: nothing crashes, all is told. */
static void garbage_all_over(void **state)
{
    (void) state;
    for (unsigned round = 0; round < 2000; round++) {
        const gpusym_post_t p = {.kind = (uint8_t) (1 + round % 2), .bytes = round};
        const uint64_t calls = 1 + mix(seed + round) % 70;
        gpusym_agreement_read_t read[3];
        uint64_t life[3];
        team_t team;
        team_make(&team, 3);
        for (uint32_t r = 0; r < 3; r++) {
            life[r] = gpusym_line_generation(team.line[r]);
            team.rc[r].generation = life;
        }
        for (uint64_t call = 0; call < calls; call++) {
            post_all(&team, &p, read);
        }
        unsigned char *bytes = (unsigned char *) team.line[1];
        for (size_t i = 0; i < sizeof(gpusym_line_t); i++) {
            bytes[i] = (unsigned char) mix(seed ^ mix(round) ^ i);
        }
        for (unsigned r = 0; r < 3; r++) {
            assert_false(gpusym_agreement_read(&team.rc[r], &read[r]) && read[r].corrupt_rank < 0 &&
                         read[r].mismatch_rank < 0 && 1 != r);
            (void) gpusym_agreement_votes(&team.rc[r], calls);
            (void) gpusym_agreement_near_enough(&team.rc[r], calls + 1);
            (void) gpusym_agreement_all_launched(&team.rc[r], calls);
            assert_int_equal(gpusym_agreement_corrupt(&team.rc[r], &read[r]), 1);
        }
        team_free(&team);
    }
}

/* ---- turns ---- */

/* Processes, which have turns to give, and do nothing else; ranks of several communicators on them, all played by this
 * process, with lines in its own slab. */
#define HOSTS 3

typedef struct {
    child_t child[HOSTS];
    gpusym_peer_t *peer[HOSTS];
} hosts_t;

/* A communicator: team, and where its ranks are. */
typedef struct {
    team_t team;
    uint32_t host[HOSTS], order[HOSTS][HOSTS];
} comm_t;

static void hosts_start(hosts_t *hosts)
{
    for (unsigned i = 0; i < HOSTS; i++) {
        card_t card;
        hosts->child[i] = child_with_pages(&card);
        OK(gpusym_pages_peer(&card.id, &hosts->peer[i]));
    }
}

static void host_kill(hosts_t *hosts, unsigned i)
{
    int status;
    assert_int_equal(kill(hosts->child[i].pid, SIGKILL), 0);
    assert_int_equal(waitpid(hosts->child[i].pid, &status, 0), hosts->child[i].pid);
    close(hosts->child[i].from);
    hosts->child[i].pid = 0;
}

static void hosts_end(hosts_t *hosts)
{
    for (unsigned i = 0; i < HOSTS; i++) {
        if (0 != hosts->child[i].pid) {
            host_kill(hosts, i);
        }
    }
    gpusym_pages_close();
}

static void comm_make(comm_t *comm, const hosts_t *hosts, uint32_t nranks, const uint32_t *host)
{
    team_make(&comm->team, nranks);
    for (uint32_t r = 0; r < nranks; r++) {
        comm->host[r] = host[r];
        comm->team.peer[r] = hosts->peer[host[r]];
    }
    for (uint32_t r = 0; r < nranks; r++) {
        gpusym_tokens_init(&comm->team.rc[r], comm->order[r], comm->team.off[0]);
    }
}

static int take(comm_t *comm, uint32_t rank, uint64_t seq)
{
    return gpusym_tokens_take(&comm->team.rc[rank], seq);
}

static void give_all(comm_t *comm)
{
    for (uint32_t r = 0; r < comm->team.nranks; r++) {
        gpusym_tokens_give(&comm->team.rc[r], false);
    }
}

/* What stands everywhere else on it: no two communicators take the same turns in different orders. */
static void turns_are_taken_in_one_order(void **state)
{
    (void) state;
    static const uint32_t member[][HOSTS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static comm_t comm[6];
    uint32_t place[HOSTS];
    hosts_t hosts;
    hosts_start(&hosts);
    for (unsigned c = 0; c < 6; c++) {
        const uint32_t n = c < 3 ? HOSTS : HOSTS - 1; /* some have not all of them */
        comm_make(&comm[c], &hosts, n, member[c]);
        for (uint32_t i = 0; 0 == c && i < n; i++) {
            place[comm[0].host[comm[0].order[0][i]]] = i;
        }
        for (uint32_t r = 0; r < n; r++) {
            assert_memory_equal(comm[c].order[r], comm[c].order[0], n * sizeof(uint32_t)); /* the same on all ranks */
            assert_ptr_equal(comm[c].team.rc[r].order, comm[c].order[r]);
            assert_int_equal(comm[c].team.rc[r].holder, comm[c].team.rc[0].holder);
            assert_int_not_equal(comm[c].team.rc[r].holder, 0);
        }
        for (uint32_t i = 1; i < n; i++) {
            assert_true(place[comm[c].host[comm[c].order[0][i - 1]]] < place[comm[c].host[comm[c].order[0][i]]]);
        }
        for (unsigned b = 0; b < c; b++) {
            assert_int_not_equal(comm[c].team.rc[0].holder, comm[b].team.rc[0].holder);
        }
    }
    for (unsigned c = 0; c < 6; c++) {
        team_free(&comm[c].team);
    }
    hosts_end(&hosts);
}

static void turns_keep_calls_apart(void **state)
{
    (void) state;
    static comm_t a, b, c;
    hosts_t hosts;
    hosts_start(&hosts);
    comm_make(&a, &hosts, 3, (const uint32_t[]){0, 1, 2});
    comm_make(&b, &hosts, 3, (const uint32_t[]){2, 1, 0});
    comm_make(&c, &hosts, 2, (const uint32_t[]){1, 2});
    /* rank 0 takes, and says go for this call */
    assert_int_equal(take(&a, 1, 5), 0);
    assert_int_equal(take(&a, 0, 5), 1);
    assert_int_equal(take(&a, 1, 5), 1);
    assert_int_equal(take(&a, 2, 5), 1);
    assert_int_equal(take(&a, 1, 6), 0);
    /* until all its ranks have ended the call no other begins, nor its own next one */
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(take(&b, 0, 1), 0);
        gpusym_tokens_give(&a.team.rc[r], false);
    }
    assert_int_equal(take(&b, 0, 1), 1);
    assert_int_equal(take(&a, 0, 6), 0);
    assert_int_equal(take(&c, 0, 1), 0);
    give_all(&b);
    assert_int_equal(take(&c, 0, 1), 1);
    assert_int_equal(take(&c, 1, 1), 1);
    assert_int_equal(take(&a, 0, 6), 0); /* it has that of one process now, perhaps */
    assert_int_equal(take(&b, 0, 2), 0);
    give_all(&c);
    assert_int_equal(take(&a, 0, 6), 1);
    gpusym_tokens_give(&a.team.rc[0], false);
    gpusym_tokens_give(&a.team.rc[1], false);
    assert_int_equal(take(&a, 0, 7), 0);
    assert_int_equal(take(&a, 1, 7), 0);
    gpusym_tokens_give(&a.team.rc[2], false);
    assert_int_equal(take(&a, 0, 7), 1);
    assert_int_equal(take(&a, 2, 7), 1);
    give_all(&a);
    team_free(&a.team);
    team_free(&b.team);
    team_free(&c.team);
    hosts_end(&hosts);
}

/* Rank 0 of a call that failed does not wait for the others to give theirs; what they do later harms nobody. */
static void a_failed_call_gives_all_turns_back(void **state)
{
    (void) state;
    static comm_t a, b;
    hosts_t hosts;
    hosts_start(&hosts);
    comm_make(&a, &hosts, 3, (const uint32_t[]){0, 1, 2});
    comm_make(&b, &hosts, 3, (const uint32_t[]){1, 2, 0});
    for (unsigned held = 0; held < 2; held++) { /* of a, all turns; or those that b did not have */
        const uint64_t seq = 10 * (held + 1);
        if (0 == held) {
            assert_int_equal(take(&a, 0, seq), 1);
        } else {
            gpusym_tokens_give(&b.team.rc[b.order[0][0]], false); /* a gets the first, b has the others */
            assert_int_equal(take(&a, 0, seq), 0);
            assert_int_equal(a.team.rc[0].tokens, 1);
            for (uint32_t i = 1; i < 3; i++) {
                gpusym_tokens_give(&b.team.rc[b.order[0][i]], false);
            }
        }
        assert_int_equal(take(&b, 0, seq), 0);
        gpusym_tokens_give(&a.team.rc[1 == a.order[0][0] ? 2 : 1], true); /* its own only */
        assert_int_equal(take(&b, 0, seq), 0);
        gpusym_tokens_give(&a.team.rc[0], true);
        assert_int_equal(take(&b, 0, seq), 1);
        gpusym_tokens_give(&a.team.rc[1], true);
        gpusym_tokens_give(&a.team.rc[2], true);
        gpusym_tokens_give(&a.team.rc[0], true);
        assert_int_equal(take(&a, 0, seq + 1), 0); /* b has them */
        assert_int_equal(a.team.rc[0].tokens, 0);
    }
    give_all(&b);
    assert_int_equal(take(&a, 0, 30), 1);
    give_all(&a);
    team_free(&a.team);
    team_free(&b.team);
    hosts_end(&hosts);
}

static void turns_of_the_dead_are_freed(void **state)
{
    (void) state;
    static comm_t a, b;
    hosts_t hosts;
    hosts_start(&hosts);
    comm_make(&a, &hosts, 3, (const uint32_t[]){0, 1, 2});
    comm_make(&b, &hosts, 2, (const uint32_t[]){2, 1});
    gpusym_tokens_rescue(&b.team.rc[0]); /* nobody has one: fine */
    assert_int_equal(take(&a, 0, 1), 1);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(take(&b, 0, 1), 0);
        gpusym_tokens_rescue(&b.team.rc[0]); /* the holder lives */
    }
    host_kill(&hosts, 0);
    for (unsigned i = 0; i < 5; i++) {
        gpusym_tokens_rescue(&b.team.rc[1]); /* it is rank 0 that takes */
        assert_int_equal(take(&b, 0, 1), 0);
    }
    gpusym_tokens_rescue(&b.team.rc[0]);
    assert_int_equal(take(&b, 0, 1), 0); /* one of the two */
    gpusym_tokens_rescue(&b.team.rc[0]);
    assert_int_equal(take(&b, 0, 1), 1);
    gpusym_tokens_rescue(&b.team.rc[0]); /* which has all now, and keeps them */
    assert_int_equal(take(&b, 1, 1), 1);
    assert_int_equal(take(&b, 0, 1), 1);
    give_all(&b);
    team_free(&a.team);
    team_free(&b.team);
    hosts_end(&hosts);
}

/* A turn that nobody can have taken is nobody's who died. */
static void a_turn_overwritten_is_told(void **state)
{
    (void) state;
    const uint64_t bad[] = {
        1,     1ull << 32, 1ull << 32 | 64, (1ull << 32) + (1ull << 31), 1ull << 63 | 1ull << 32 | 32768,
        32768, UINT64_MAX};
    comm_t a;
    hosts_t hosts;
    hosts_start(&hosts);
    comm_make(&a, &hosts, 3, (const uint32_t[]){0, 1, 2});
    const uint32_t first = a.order[0][0];
    uint64_t *turn = (uint64_t *) (void *) ((char *) gpusym_peer_area(a.team.peer[first], GPUSYM_AREA_REG) - 4096 + 24);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        *turn = bad[i];
        assert_int_equal(take(&a, 0, 1), 0);
        assert_int_equal(gpusym_tokens_rescue(&a.team.rc[0]), first);
        assert_int_equal(take(&a, 0, 1), 0);
    }
    *turn = 0;
    assert_int_equal(gpusym_tokens_rescue(&a.team.rc[0]), -1);
    assert_int_equal(take(&a, 0, 1), 1);
    give_all(&a);
    team_free(&a.team);
    hosts_end(&hosts);
}

/* Whose call a process is in, as the threads of the next test see it: 0 is nobody's. */
static unsigned inside[HOSTS];

typedef struct {
    comm_t comm;
    unsigned name;
    bool wrong;
} caller_t;

static void *call_in_turns(void *arg)
{
    caller_t *c = arg;
    const uint64_t end = patience();
    for (uint64_t seq = 1; seq <= 3000 && !c->wrong; seq++) {
        while (!take(&c->comm, 0, seq)) {
            if (patience_ends(end)) {
                c->wrong = true;
                return NULL;
            }
        }
        for (uint32_t r = 0; r < c->comm.team.nranks; r++) {
            c->wrong |= !take(&c->comm, r, seq);
            c->wrong |= 0 != __atomic_exchange_n(&inside[c->comm.host[r]], c->name, __ATOMIC_RELAXED);
        }
        sched_yield();
        for (uint32_t i = 0; i < c->comm.team.nranks; i++) {
            const uint32_t r = (uint32_t) (i + seq) % c->comm.team.nranks;
            c->wrong |= c->name != __atomic_exchange_n(&inside[c->comm.host[r]], 0, __ATOMIC_RELAXED);
            gpusym_tokens_give(&c->comm.team.rc[r], 0 == r && 0 == seq % 7 && i + 1 == c->comm.team.nranks);
        }
    }
    return NULL;
}

/* Communicators that overlap, with rank 0 on any process: never two in one process, and none waits for ever. */
static void overlapping_communicators_take_turns(void **state)
{
    (void) state;
    static const uint32_t member[][HOSTS] = {{0, 1, 2}, {2, 1, 0}, {1, 2}, {2, 0}, {0, 1}};
    enum { N = 5 };
    static caller_t caller[N];
    pthread_t thread[N];
    hosts_t hosts;
    hosts_start(&hosts);
    for (unsigned c = 0; c < N; c++) {
        comm_make(&caller[c].comm, &hosts, c < 2 ? 3 : 2, member[c]);
        caller[c].name = c + 1;
    }
    for (unsigned c = 0; c < N; c++) {
        assert_int_equal(pthread_create(&thread[c], NULL, call_in_turns, &caller[c]), 0);
    }
    for (unsigned c = 0; c < N; c++) {
        assert_int_equal(pthread_join(thread[c], NULL), 0);
    }
    for (unsigned c = 0; c < N; c++) {
        assert_false(caller[c].wrong);
        team_free(&caller[c].comm.team);
    }
    hosts_end(&hosts);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        /* those that fork come first, while there is one thread */
        cmocka_unit_test(ranks_are_processes),
        cmocka_unit_test(the_dead_are_noticed),
        cmocka_unit_test(signals_kill_nobody),
        cmocka_unit_test(a_lost_descriptor_is_no_death),
        cmocka_unit_test(a_wrong_id_is_refused),
        cmocka_unit_test(areas_are_seen_by_peers),
        cmocka_unit_test(turns_are_taken_in_one_order),
        cmocka_unit_test(turns_keep_calls_apart),
        cmocka_unit_test(a_failed_call_gives_all_turns_back),
        cmocka_unit_test(turns_of_the_dead_are_freed),
        cmocka_unit_test(a_turn_overwritten_is_told),
        cmocka_unit_test(overlapping_communicators_take_turns),
        cmocka_unit_test(closing_lets_go_of_everything),
        cmocka_unit_test(lines_are_zeroed_and_apart),
        cmocka_unit_test(a_line_left_waits_for_the_peers),
        cmocka_unit_test(the_area_keeps_its_place),
        cmocka_unit_test(lines_do_not_leak),
        cmocka_unit_test(a_slab_keeps_its_size),
        cmocka_unit_test(what_can_shrink_is_not_mapped),
        cmocka_unit_test(lines_lie_in_the_slab),
        cmocka_unit_test(garbage_names_its_rank),
        cmocka_unit_test(a_rank_knows_its_own_line),
        cmocka_unit_test(garbage_all_over),
        cmocka_unit_test(reading_waits_for_every_rank),
        cmocka_unit_test(lengths_matter_where_they_are_exact),
        cmocka_unit_test(flags_and_layouts_are_gathered),
        cmocka_unit_test(balances_are_added_up),
        cmocka_unit_test(host_ranks_write_the_word_only),
        cmocka_unit_test(nobody_runs_out_of_history),
        cmocka_unit_test(votes_are_counted),
        cmocka_unit_test(a_mix_makes_ranks_look),
        cmocka_unit_test(votes_outlast_the_next_call),
        cmocka_unit_test(launches_are_told),
        cmocka_unit_test(leaders_are_told_and_tell),
        cmocka_unit_test(a_call_is_decided_once),
        cmocka_unit_test(ranks_decide_alike),
        cmocka_unit_test(an_abort_is_seen),
        cmocka_unit_test(an_abort_is_of_a_call),
        cmocka_unit_test(tables_hold_while_they_are_read),
        cmocka_unit_test(what_a_table_says),
        cmocka_unit_test(a_half_waits_for_its_readers),
        cmocka_unit_test(all_native),
        cmocka_unit_test(kinds_are_mixed),
        cmocka_unit_test(host_ranks_run_ahead),
        cmocka_unit_test(mismatches_are_told),
        cmocka_unit_test(the_sequence_wraps),
    };
    random_start(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    const int failed = cmocka_run_group_tests_name("agreement", tests, NULL, NULL);
    gpusym_pages_close();
    return failed;
}
