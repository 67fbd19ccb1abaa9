/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/shm/flow.h: a writer and a reader that copy pieces, in all interleavings of their
 * steps, for rings of a few slots, and with faults that must be found; words that were overwritten, in all states; two
 * processes, by fork; the arithmetic of credits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mca/common/gpusym/shm/flow.h"

/* ---- all interleavings ---- */

enum { SLOTS_MAX = 3, PIECES_MAX = 5, STATES_MAX = 1 << 16 };

/* What a slot holds: a piece's number from 1 on, 0 for none; HALF while it is being filled. */
enum { HALF = 0x80 };

/* A side: what it may begin, by what it has been told, what it has begun, and what has ended; it tells that. */
typedef struct {
    uint8_t may, begun, ended;
} side_t;

/* All that there is, but for the addresses of the words. */
typedef struct {
    uint64_t filled, taken;
    uint64_t told[2], seen[2]; /* of both sides' flows */
    side_t side[2];
    uint8_t slot[SLOTS_MAX];
    uint8_t reading[SLOTS_MAX]; /* the piece that is being read; 0: none */
    uint8_t pad[4];             /* zeroes: worlds are compared as bytes */
} world_t;
enum { WRITER, READER };

/* What a writer or a reader does wrong. */
typedef enum {
    RIGHT,
    PUBLISHES_EARLY, /* before its copies have ended */
    TAKES_EARLY,
    FILLS_ONE_MORE, /* than there is room for */
    READS_ONE_MORE,
    FILLS_ONE_LESS,
    NEVER_TAKES,
    FAULTS
} fault_t;

static struct {
    fault_t fault;
    unsigned slots, pieces;
    world_t now;
    gpusym_flow_t flow[2];
    unsigned wrong;   /* steps that spoiled something */
    unsigned refused; /* words that were found corrupt */
    world_t *seen;    /* STATES_MAX, by their hash */
    uint8_t *is_seen; /* likewise */
    unsigned states, ends, stuck;
} all;

/* The world is what counts; the flows are as it says. */
static void enter(const world_t *world)
{
    all.now = *world;
    for (unsigned i = 0; i < 2; i++) {
        all.flow[i] = (gpusym_flow_t){.filled = &all.now.filled,
                                      .taken = &all.now.taken,
                                      .slots = all.slots,
                                      .told = world->told[i],
                                      .seen = world->seen[i]};
    }
}

static void leave(world_t *world)
{
    for (unsigned i = 0; i < 2; i++) {
        all.now.told[i] = all.flow[i].told;
        all.now.seen[i] = all.flow[i].seen;
    }
    *world = all.now;
}

/* One load. */
static void ask(unsigned who)
{
    side_t *s = &all.now.side[who];
    int64_t more =
        WRITER == who ? gpusym_flow_room(&all.flow[who], s->begun) : gpusym_flow_ready(&all.flow[who], s->begun);
    all.refused += more < 0;
    more = more < 0 ? 0 : more;
    more += FILLS_ONE_MORE == all.fault && WRITER == who;
    more += READS_ONE_MORE == all.fault && READER == who;
    more -= FILLS_ONE_LESS == all.fault && WRITER == who && more > 0;
    const uint64_t may = s->begun + (uint64_t) more;
    s->may = (uint8_t) (may < all.pieces ? may : all.pieces);
}

/* A copy begins. */
static void begin(unsigned who)
{
    side_t *s = &all.now.side[who];
    if (s->begun == s->may) {
        return;
    }
    const unsigned i = s->begun % all.slots, piece = ++s->begun;
    if (WRITER == who) {
        /* It holds nothing that has not been read, and is not in use. */
        all.wrong +=
            0 != all.now.reading[i] || 0 != (all.now.slot[i] & HALF) || all.now.slot[i] > all.now.side[READER].ended;
        all.now.slot[i] = (uint8_t) (HALF | piece);
    } else {
        all.wrong += all.now.slot[i] != piece || 0 != all.now.reading[i];
        all.now.reading[i] = (uint8_t) piece;
    }
}

/* The oldest copy ends. */
static void end(unsigned who)
{
    side_t *s = &all.now.side[who];
    if (s->ended == s->begun) {
        return;
    }
    const unsigned i = s->ended % all.slots, piece = ++s->ended;
    if (WRITER == who) {
        all.wrong += all.now.slot[i] != (HALF | piece);
        all.now.slot[i] = (uint8_t) piece;
    } else {
        all.wrong += all.now.slot[i] != piece;
        all.now.reading[i] = 0;
    }
}

/* One store. */
static void tell(unsigned who)
{
    const side_t *s = &all.now.side[who];
    if (WRITER == who) {
        gpusym_flow_publish(&all.flow[who], PUBLISHES_EARLY == all.fault ? s->begun : s->ended);
    } else if (NEVER_TAKES != all.fault) {
        gpusym_flow_take(&all.flow[who], TAKES_EARLY == all.fault ? s->begun : s->ended);
    }
}

static void (*const steps[])(unsigned who) = {ask, begin, end, tell};
enum { STEPS = sizeof steps / sizeof *steps };

/* Returns whether a world is new, and notes it. */
static bool note_world(const world_t *world)
{
    const unsigned char *bytes = (const unsigned char *) world;
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < sizeof *world; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    }
    unsigned at = (unsigned) (hash % STATES_MAX);
    while (all.is_seen[at]) {
        if (0 == memcmp(&all.seen[at], world, sizeof *world)) {
            return false;
        }
        at = (at + 1) % STATES_MAX;
    }
    assert_true(++all.states < STATES_MAX / 2);
    all.is_seen[at] = true;
    all.seen[at] = *world;
    return true;
}

/* In this world every value of the other side's word that cannot be is found, and no other one. */
static void check_words(const world_t *world)
{
    for (uint64_t i = 0; i < 2 * PIECES_MAX + 4; i++) {
        const uint64_t v = i < 2 * PIECES_MAX ? i : GPUSYM_FLOW_OVER - (i - 2 * PIECES_MAX);
        enter(world);
        all.now.taken = v;
        const int64_t room = gpusym_flow_room(&all.flow[WRITER], world->side[WRITER].begun);
        const bool taken = v >= world->seen[WRITER] && v <= world->told[WRITER];
        assert_true(taken ? room >= 0 && room <= all.slots : GPUSYM_ERR_CORRUPT == room);
        enter(world);
        all.now.filled = v;
        const int64_t ready = gpusym_flow_ready(&all.flow[READER], world->side[READER].begun);
        const bool filled = v >= world->seen[READER] && v - world->told[READER] <= all.slots;
        assert_true(filled ? ready >= 0 && ready <= all.slots : GPUSYM_ERR_CORRUPT == ready);
        all.refused += !taken + !filled;
    }
}

/* Goes on from there in every way. `words`: what is overwritten is checked, too. */
static void walk(const world_t *world, bool words)
{
    bool goes_on = false;
    if (!note_world(world)) {
        return;
    }
    if (words) {
        check_words(world);
    }
    for (unsigned i = 0; i < 2 * STEPS && 0 == all.wrong + (words ? 0 : all.refused); i++) {
        world_t next;
        enter(world);
        steps[i / 2](i % 2);
        leave(&next);
        if (0 != memcmp(&next, world, sizeof next)) {
            goes_on = true;
            walk(&next, words);
        }
    }
    if (!goes_on && 0 == all.wrong) {
        const bool over = all.pieces == world->side[READER].ended && all.pieces == world->taken;
        all.ends += over;
        all.stuck += !over;
    }
}

static void walk_all(fault_t fault, unsigned slots, unsigned pieces, bool words)
{
    const world_t first = {.filled = 0};
    memset(all.is_seen, 0, STATES_MAX);
    all.fault = fault;
    all.slots = slots;
    all.pieces = pieces;
    all.wrong = all.refused = all.states = all.ends = all.stuck = 0;
    walk(&first, words);
}

static int make_room(void **state)
{
    (void) state;
    all.seen = calloc(STATES_MAX, sizeof *all.seen);
    all.is_seen = calloc(STATES_MAX, 1);
    assert_true(NULL != all.seen && NULL != all.is_seen);
    return 0;
}

static int free_room(void **state)
{
    (void) state;
    free(all.seen);
    free(all.is_seen);
    return 0;
}

/* No piece is lost or overwritten, none is read before it is there, and it never stands still. */
static void all_interleavings_are_right(void **state)
{
    (void) state;
    for (unsigned slots = 1; slots <= SLOTS_MAX; slots++) {
        for (unsigned pieces = 1; pieces <= PIECES_MAX; pieces++) {
            walk_all(RIGHT, slots, pieces, false);
            print_message("%u slots, %u pieces: %u states\n", slots, pieces, all.states);
            assert_int_equal(all.wrong + all.refused + all.stuck, 0);
            assert_int_equal(all.ends, 1);
            assert_true(all.states >= 10);
        }
    }
}

/* A writer or reader that is wrong spoils a piece, is refused, or stands still, where there are enough pieces. */
static void faults_are_found(void **state)
{
    (void) state;
    for (unsigned fault = RIGHT + 1; fault < FAULTS; fault++) {
        for (unsigned slots = 1; slots <= SLOTS_MAX; slots++) {
            walk_all((fault_t) fault, slots, PIECES_MAX, false);
            const bool less = FILLS_ONE_LESS == fault, stands = less ? 1 == slots : NEVER_TAKES == fault;
            assert_true(less || stands || 0 != all.wrong);
            assert_true(!stands || 0 != all.stuck);
        }
    }
}

static void overwritten_words_are_found(void **state)
{
    (void) state;
    for (unsigned slots = 1; slots <= SLOTS_MAX; slots++) {
        walk_all(RIGHT, slots, PIECES_MAX, true);
        assert_int_equal(all.wrong + all.stuck, 0);
        assert_true(all.refused > all.states);
    }
}

/* ---- two processes ---- */

enum { WORDS = 16, LIMIT_S = 120 };

typedef struct {
    uint64_t filled;
    _Alignas(64) uint64_t taken;
    _Alignas(64) uint64_t slot[8][WORDS];
} shared_t;

/* With one slot the processes take turns at each piece, which is slow on a busy machine. */
static uint64_t pieces_of(unsigned slots)
{
    return 1 == slots ? 10000 : 100000;
}

/* Whether there is time left; lets others run. */
static bool wait_more(uint64_t since)
{
    sched_yield();
    return gpusym_now_ns() - since < LIMIT_S * 1000000000ull;
}

static bool write_all(shared_t *shared, unsigned slots)
{
    gpusym_flow_t flow = {.filled = &shared->filled, .taken = &shared->taken, .slots = slots};
    const uint64_t since = gpusym_now_ns(), pieces = pieces_of(slots);
    for (uint64_t n = 0; n < pieces;) {
        const int64_t room = gpusym_flow_room(&flow, n);
        if (room < 0 || (0 == room && !wait_more(since))) {
            return false;
        }
        for (const uint64_t end = n + (uint64_t) room; n < end && n < pieces; n++) {
            for (unsigned i = 0; i < WORDS; i++) {
                shared->slot[n % slots][i] = n * WORDS + i;
            }
        }
        gpusym_flow_publish(&flow, n);
    }
    return true;
}

/* Returns the words that were not what they should be. */
static uint64_t read_all(shared_t *shared, unsigned slots, bool *in_time)
{
    gpusym_flow_t flow = {.filled = &shared->filled, .taken = &shared->taken, .slots = slots};
    const uint64_t since = gpusym_now_ns(), pieces = pieces_of(slots);
    uint64_t wrong = 0;
    *in_time = true;
    for (uint64_t n = 0; n < pieces && *in_time && 0 == wrong;) {
        const int64_t ready = gpusym_flow_ready(&flow, n);
        wrong += ready < 0;
        *in_time = 0 != ready || wait_more(since);
        for (const uint64_t end = n + (uint64_t) (ready < 0 ? 0 : ready); n < end; n++) {
            for (unsigned i = 0; i < WORDS; i++) {
                wrong += shared->slot[n % slots][i] != n * WORDS + i;
            }
        }
        gpusym_flow_take(&flow, n);
    }
    return wrong;
}

static void two_processes_share_a_flow(void **state)
{
    (void) state;
    for (unsigned slots = 1; slots <= 7; slots = 2 * slots + 1) {
        bool in_time;
        int status;
        shared_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(MAP_FAILED != shared);
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (0 == pid) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(write_all(shared, slots) ? 0 : 1);
        }
        assert_int_equal(read_all(shared, slots, &in_time), 0);
        assert_true(in_time);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && 0 == WEXITSTATUS(status));
        assert_int_equal(munmap(shared, sizeof *shared), 0);
    }
}

/* ---- credits ---- */

/* From any number on, also where 32 bits wrap around: those from the known one to what was sent count. */
static void credits_wrap_around(void **state)
{
    (void) state;
    for (uint32_t first = UINT32_MAX - 20; first != 20; first++) {
        for (int out = 0; out <= 8; out++) {
            const uint32_t sent = first + (uint32_t) out;
            assert_int_equal(gpusym_flow_left(8, sent, first), 8 - out);
            for (int more = -20; more < 30; more++) {
                assert_int_equal(gpusym_flow_credits(sent, first, first + (uint32_t) more), more >= 0 && more <= out);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_interleavings_are_right, make_room, free_room),
        cmocka_unit_test_setup_teardown(faults_are_found, make_room, free_room),
        cmocka_unit_test_setup_teardown(overwritten_words_are_found, make_room, free_room),
        cmocka_unit_test(two_processes_share_a_flow),
        cmocka_unit_test(credits_wrap_around),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
