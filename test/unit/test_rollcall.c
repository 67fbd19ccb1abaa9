/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/rollcall.c: ranks are threads of this process, or processes forked from it.  What a
 * rank posts in a call follows from seed, call and rank, so that every reader knows what it must find.
 * A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mca/common/gpusym/rollcall.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)
#define RANKS_MAX 6
/* Seconds after which a wait in these tests has failed. */
#define PATIENCE_S 30

static uint64_t seed;

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

/* Gives up once the time at arg has come. */
static int patience(void *arg)
{
    sched_yield();
    return now_ns() > *(const uint64_t *) arg ? -77 : 0;
}

/* ---- a script: what each rank posts ---- */

enum mode { ALL_NATIVE, RANDOM, HOST_RUNS_AHEAD, MISMATCHES };

typedef struct {
    enum mode mode;
    uint64_t calls;
} script_t;

typedef struct {
    uint8_t kind, what;
    uint64_t bytes;
} posted_t;

static posted_t script_post(const script_t *s, uint64_t call, uint32_t rank)
{
    const uint64_t all = mix(seed ^ mix(call)), own = mix(all ^ mix(rank + 1));
    posted_t p = {GPUSYM_KIND_NATIVE, (uint8_t) all, all >> 8 & 0xffffffffffull};
    switch (s->mode) {
    case RANDOM:
        if (0 == all % 3) { /* else all are native */
            p.kind = (uint8_t) (own % 4);
        }
        return p;
    case HOST_RUNS_AHEAD:
        p.kind = 0 == rank ? GPUSYM_KIND_HOST : (uint8_t) (1 + own % 2);
        return p;
    case MISMATCHES:
        p.kind = (uint8_t) (0 == own % 8 ? GPUSYM_KIND_HOST : GPUSYM_KIND_NATIVE);
        p.what = (uint8_t) (p.what + (1 == own % 8));
        p.bytes += 2 == own % 8 ? 1 : 3 == own % 8 ? 1ull << 32 : 0; /* the last is beyond what is compared */
        return p;
    default:
        return p;
    }
}

/* What rank must read in that call. */
static bool script_right(const script_t *s, uint32_t nranks, uint32_t rank, uint64_t call,
                         const gpusym_rollcall_read_t *read)
{
    const posted_t own = script_post(s, call, rank);
    bool host = false;
    int stage = -1, stage_rank = -1, mismatch = -1;
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < nranks; r++) {
        const posted_t p = script_post(s, call, r);
        if (GPUSYM_KIND_HOST == p.kind) {
            host = true;
            continue;
        }
        if (stage < 0 && p.kind >= GPUSYM_KIND_STAGE) {
            stage = p.kind;
            stage_rank = (int) r;
        }
        if (mismatch < 0 && (p.what != own.what || (uint32_t) p.bytes != (uint32_t) own.bytes)) {
            mismatch = (int) r;
            bytes = (uint32_t) p.bytes;
        }
    }
    return read->mine == own.kind && read->host == host && read->stage == stage &&
           (stage < 0 || read->stage_rank == stage_rank) && read->mismatch_rank == mismatch &&
           (mismatch < 0 || read->mismatch_bytes == bytes);
}

/* One rank's way through a script. Host ranks post and go on; device ranks read, waiting for all. 0: all was right;
 * else the number of the call that was not, from 1. */
static uint64_t script_walk(const script_t *s, gpusym_rollcall_t *rc)
{
    uint64_t end = now_ns() + PATIENCE_S * 1000000000ull;
    for (uint64_t call = 1; call <= s->calls; call++) {
        const posted_t p = script_post(s, call, rc->rank);
        gpusym_rollcall_read_t read;
        if (0 != gpusym_rollcall_post(rc, p.kind, p.what, p.bytes, patience, &end, &read)) {
            return call;
        }
        while (GPUSYM_KIND_HOST != p.kind && 1 != gpusym_rollcall_read(rc, &read)) {
            if (0 != patience(&end)) {
                return call;
            }
        }
        if (GPUSYM_KIND_HOST != p.kind && !script_right(s, rc->nranks, rc->rank, call, &read)) {
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
    gpusym_rollcall_t rc[RANKS_MAX];
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
        team->rc[r] = (gpusym_rollcall_t){.nranks = nranks, .rank = r, .line = team->line, .peer = team->peer};
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
    gpusym_rollcall_t *rc;
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

static int give_up(void *arg)
{
    ++*(unsigned *) arg;
    return 42;
}

static void post_one(gpusym_rollcall_t *rc, uint8_t kind, gpusym_rollcall_read_t *read)
{
    unsigned asked = 0;
    assert_int_equal(gpusym_rollcall_post(rc, kind, 9, 100, give_up, &asked, read), 0);
    assert_int_equal(asked, 0);
}

static void reading_waits_for_every_rank(void **state)
{
    (void) state;
    team_t team;
    gpusym_rollcall_read_t read[3];
    team_make(&team, 3);
    for (unsigned call = 0; call < 100; call++) {
        const uint32_t first = call % 3, second = (call + 1 + call / 3 % 2) % 3, last = 3 - first - second;
        post_one(&team.rc[first], GPUSYM_KIND_NATIVE, &read[first]);
        assert_int_equal(gpusym_rollcall_read(&team.rc[first], &read[first]), 0);
        post_one(&team.rc[second], GPUSYM_KIND_STAGE + 5, &read[second]);
        assert_int_equal(gpusym_rollcall_read(&team.rc[first], &read[first]), 0);
        assert_int_equal(gpusym_rollcall_read(&team.rc[second], &read[second]), 0);
        post_one(&team.rc[last], GPUSYM_KIND_STAGE + 7, &read[last]);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(gpusym_rollcall_read(&team.rc[r], &read[r]), 1);
            assert_int_equal(gpusym_rollcall_read(&team.rc[r], &read[r]), 1); /* and again */
            assert_false(read[r].host);
            assert_int_equal(read[r].stage_rank, second < last ? second : last);
            assert_int_equal(read[r].stage, GPUSYM_KIND_STAGE + (second < last ? 5 : 7));
            assert_int_equal(read[r].mismatch_rank, -1);
        }
    }
    team_free(&team);
}

/* A rank cannot run ahead for ever: no later than after HISTORY calls it asks to go on, and may give up. */
static void nobody_runs_out_of_history(void **state)
{
    (void) state;
    team_t team;
    gpusym_rollcall_read_t mine, read;
    unsigned asked = 0, ahead = 0;
    team_make(&team, 2);
    post_one(&team.rc[1], GPUSYM_KIND_NATIVE, &read);
    while (0 == gpusym_rollcall_post(&team.rc[0], GPUSYM_KIND_HOST, 9, 100, give_up, &asked, &mine)) {
        assert_true(++ahead <= GPUSYM_ROLLCALL_HISTORY);
    }
    assert_int_equal(asked, 1);
    assert_true(ahead >= GPUSYM_ROLLCALL_HISTORY / 2);
    assert_int_equal(gpusym_rollcall_post(&team.rc[0], GPUSYM_KIND_HOST, 9, 100, give_up, &asked, &mine), 42);
    assert_int_equal(asked, 2);
    /* the slow rank still finds all that was posted */
    assert_int_equal(gpusym_rollcall_read(&team.rc[1], &read), 1);
    assert_true(read.host);
    for (unsigned call = 1; call < ahead; call++) {
        post_one(&team.rc[1], GPUSYM_KIND_NATIVE, &read);
        assert_int_equal(gpusym_rollcall_read(&team.rc[1], &read), 1);
        assert_true(read.host);
    }
    /* and the fast one goes on where it was refused */
    assert_int_equal(gpusym_rollcall_post(&team.rc[0], GPUSYM_KIND_HOST, 9, 100, give_up, &asked, &mine), 0);
    assert_int_equal(team.rc[0].seq, ahead + 1);
    team_free(&team);
}

static void an_abort_is_seen(void **state)
{
    (void) state;
    team_t team;
    team_make(&team, 3);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(gpusym_rollcall_aborted(&team.rc[r]), -1);
        assert_int_equal(gpusym_rollcall_dead(&team.rc[r]), -1);
    }
    gpusym_rollcall_abort(&team.rc[2]);
    assert_int_equal(gpusym_rollcall_aborted(&team.rc[0]), 2);
    assert_int_equal(gpusym_rollcall_aborted(&team.rc[1]), 2);
    assert_int_equal(gpusym_rollcall_aborted(&team.rc[2]), -1); /* it knows */
    gpusym_rollcall_abort(&team.rc[1]);
    assert_int_equal(gpusym_rollcall_aborted(&team.rc[0]), 1);
    assert_int_equal(gpusym_rollcall_aborted(&team.rc[2]), 1);
    team_free(&team);
    team_make(&team, 3); /* most likely the same lines: nothing is left of it */
    assert_int_equal(gpusym_rollcall_aborted(&team.rc[0]), -1);
    team_free(&team);
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

static bool all_zero(const gpusym_line_t *line)
{
    const unsigned char *p = (const unsigned char *) line;
    for (size_t i = 0; i < sizeof *line; i++) {
        if (0 != p[i]) {
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
            assert_true(all_zero(line));
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

static void lines_do_not_leak(void **state)
{
    (void) state;
    gpusym_pages_id_t id;
    gpusym_peer_t *self;
    uint64_t off[3], last = 0;
    OK(gpusym_pages_open(&id));
    OK(gpusym_pages_peer(&id, &self));
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
    assert_true(last <= 4 * sizeof(gpusym_line_t)); /* the same few lines again and again */
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

/* In a child: makes its pages, exchanges cards with the others by way of the parent, and returns a rank's roll-call.
 * Ends the process where that fails. */
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
    team->rc[rank] = (gpusym_rollcall_t){.nranks = nranks, .rank = rank, .line = team->line, .peer = team->peer};
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
    static const script_t scripts[] = {{RANDOM, 5000}, {HOST_RUNS_AHEAD, 5000}, {MISMATCHES, 1000}};
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
    gpusym_rollcall_t rc = {.nranks = 4, .rank = 0, .line = line, .peer = peer};
    assert_int_equal(gpusym_rollcall_dead(&rc), -1);
    assert_int_equal(kill(child[1].pid, SIGKILL), 0);
    const uint64_t end = now_ns() + PATIENCE_S * 1000000000ull;
    while (gpusym_peer_alive(peer[2]) && now_ns() < end) {
        sched_yield();
    }
    assert_false(gpusym_peer_alive(peer[2]));
    assert_true(gpusym_peer_alive(peer[1]) && gpusym_peer_alive(peer[3]));
    assert_int_equal(gpusym_rollcall_dead(&rc), 2);
    line[2]->abort = 0; /* its memory is still there */
    for (unsigned i = 0; i < 3; i++) {
        int status;
        kill(child[i].pid, SIGKILL);
        assert_int_equal(waitpid(child[i].pid, &status, 0), child[i].pid);
        close(child[i].from);
    }
    assert_false(gpusym_peer_alive(peer[2])); /* reaped now */
    assert_int_equal(gpusym_rollcall_dead(&rc), 1);
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        /* those that fork come first, while there is one thread and no slab */
        cmocka_unit_test(ranks_are_processes),
        cmocka_unit_test(the_dead_are_noticed),
        cmocka_unit_test(a_wrong_id_is_refused),
        cmocka_unit_test(closing_lets_go_of_everything),
        cmocka_unit_test(lines_are_zeroed_and_apart),
        cmocka_unit_test(lines_do_not_leak),
        cmocka_unit_test(reading_waits_for_every_rank),
        cmocka_unit_test(nobody_runs_out_of_history),
        cmocka_unit_test(an_abort_is_seen),
        cmocka_unit_test(all_native),
        cmocka_unit_test(kinds_are_mixed),
        cmocka_unit_test(host_ranks_run_ahead),
        cmocka_unit_test(mismatches_are_told),
        cmocka_unit_test(the_sequence_wraps),
    };
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t) time(NULL) << 16 ^ (uint64_t) getpid();
    print_message("seed %lu\n", (unsigned long) seed);
    signal(SIGPIPE, SIG_IGN);
    const int failed = cmocka_run_group_tests_name("rollcall", tests, NULL, NULL);
    gpusym_pages_close();
    return failed;
}
