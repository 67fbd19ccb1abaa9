/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/rail/records.c: the leaders of all islands in this process, over a net that delays
 * and reorders messages in a time of its own (net_fake.h), which tells how many one-way delays an agreement takes.  A
 * seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/rail/records.h"
#include "test/unit/net_fake.h"
#include "test/unit/random.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

enum {
    ISLANDS = 33,
    CHANNEL = 7,
    PAGE = 4096,
    MEMORY = ISLANDS * PAGE, /* of an island; a ring takes a page */
    BLOCK = 2000,            /* calls for which an island is of one sort */
    STUCK = 10000,           /* turns in which nothing happens: pauses are shorter */
    FUZZ = 20000
};

/* The calls of a run count from here: their low 32 bits wrap around. */
#define FIRST ((1ull << 32) - 500)

/* An island, as its leader knows it. */
typedef struct {
    gpusym_net_streams_t *streams;
    gpusym_records_t *records;
    gpusym_net_peer_t *peer[ISLANDS];
    int losses;
    uint64_t next;  /* call */
    bool waits;     /* for the records of `next` */
    uint64_t known; /* calls beyond `next` that it can answer: its other ranks are ahead of the leader */
    uint64_t pause; /* turns that it does nothing */
    uint32_t speed; /* calls in a turn, at most */
    int rc;
    bool open;
} island_t;

static island_t island[ISLANDS];
static gpusym_net_stream_t *forged; /* what the test has in place of island 1, or NULL */
static _Alignas(PAGE) unsigned char memory[ISLANDS][MEMORY];
static uint32_t n, refuse_peer;
static uint64_t salt, last;                                  /* of a run */
static uint64_t early, late, ahead_most, compared, answered; /* what has happened in it */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = salt + a * 0x9e3779b97f4a7c15ull + b * 0xd1b54a32d192ed03ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* An island's calls of a block are on host memory, on GPU memory, or mixed. */
static bool is_on_host(uint32_t pos, uint64_t call)
{
    const uint64_t sort = mix(pos, call / BLOCK) % 4;
    return 0 == sort || (sort > 1 && 0 == mix(pos, ~call) % 2);
}

static gpusym_record_t record_of(uint32_t pos, uint64_t call)
{
    const uint64_t x = mix(pos + 100, call);
    return (gpusym_record_t){.call = call,
                             .bytes = x,
                             .balance = ~x,
                             .hash = (uint32_t) x,
                             .flags = (uint32_t) (x >> 8),
                             .what = (uint32_t) (x >> 16),
                             .layout = (uint32_t) (x >> 24),
                             .kind = (uint16_t) (1 + x % 5)};
}

/* ---- islands ---- */

static void note_lost(void *arg, void *owner, const char *why)
{
    (void) owner;
    assert_non_null(why);
    ((island_t *) arg)->losses++;
}

static int find_peer(void *arg, uint32_t pos, gpusym_rail_peer_t *peer)
{
    const uint32_t me = (uint32_t) ((island_t *) arg - island);
    size_t bytes;
    const void *address = net_fake.address(gpusym_net_streams_net(island[pos].streams), &bytes);
    if (pos == refuse_peer) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    OK(net_fake.peer_open(gpusym_net_streams_net(island[me].streams), address, bytes, false, arg,
                          &island[me].peer[pos]));
    *peer = (gpusym_rail_peer_t){.net = island[me].peer[pos],
                                 .token_in = 1000 + ISLANDS * pos + me,
                                 .token_out = 1000 + ISLANDS * me + pos,
                                 .owner = arg};
    return GPUSYM_SUCCESS;
}

/* What an island has behind it is known. It has posted what it does on GPU memory, and no true leader asks again. */
static int answer(void *arg, uint64_t call)
{
    const island_t *is = arg;
    const bool host = is_on_host((uint32_t) (is - island), call);
    assert_true(host || call >= is->next || NULL != forged);
    late += call < is->next;
    early += call >= is->next;
    answered += host && call < is->next + is->known;
    return host && call < is->next + is->known;
}

static void open_net(island_t *is, uint64_t bytes)
{
    const char *why = "";
    memset(is, 0, sizeof *is);
    is->next = FIRST;
    const gpusym_net_streams_params_t params = {.transport = &net_fake,
                                                .piece_bytes = GPUSYM_RECORD_BYTES,
                                                .memory = memory[is - island],
                                                .bytes = bytes,
                                                .arg = is,
                                                .lost = note_lost};
    OK(gpusym_net_streams_open(&params, &is->streams, &why));
}

static int open_records(island_t *is)
{
    const gpusym_records_params_t params = {.streams = is->streams,
                                            .n = n,
                                            .pos = (uint32_t) (is - island),
                                            .stream = CHANNEL,
                                            .peer = find_peer,
                                            .answer = answer,
                                            .arg = is};
    return gpusym_records_open(&params, &is->records);
}

static void open_nets(uint32_t count, net_fake_params_t chances)
{
    chances.seed = next_random();
    salt = next_random();
    n = count;
    refuse_peer = UINT32_MAX;
    net_fake_start(&chances);
    for (uint32_t p = 0; p < n; p++) {
        open_net(&island[p], MEMORY);
    }
}

static void open_islands(uint32_t count, net_fake_params_t chances)
{
    open_nets(count, chances);
    for (uint32_t p = 0; p < n; p++) {
        OK(open_records(&island[p]));
    }
}

/* dead: an island that was killed, or n. */
static void close_islands(uint32_t dead)
{
    for (uint32_t p = 0; p < n; p++) {
        while (p != dead && !gpusym_records_close(island[p].records)) {
            (void) net_fake_step();
            for (uint32_t q = 0; q < n; q++) {
                (void) gpusym_net_streams_progress(island[q].streams);
            }
        }
        assert_true(p == dead || 0 == gpusym_net_streams_used(island[p].streams));
    }
    for (uint32_t p = 0; p < n; p++) {
        gpusym_net_streams_close(island[p].streams);
        gpusym_records_free(p == dead ? island[p].records : NULL);
    }
}

/* Polls all until nothing changes at this time of the net. */
static void poll_all(void)
{
    for (uint32_t still = 0; still < 3; still++) {
        for (uint32_t p = 0; p < n; p++) {
            still = gpusym_net_streams_progress(island[p].streams) ? 0 : still;
            if (NULL != island[p].records) {
                island[p].open = gpusym_records_poll(island[p].records, &island[p].rc);
            }
        }
    }
}

/* Goes on until nothing is under way. */
static void settle(void)
{
    do {
        poll_all();
    } while (net_fake_step());
    poll_all();
}

/* ---- runs ---- */

static void compare(const island_t *is, const gpusym_record_t *all)
{
    for (uint32_t q = 0; q < n; q++) {
        const gpusym_record_t want =
            is_on_host(q, is->next) ? (gpusym_record_t){.call = is->next} : record_of(q, is->next);
        assert_memory_equal(&all[q], &want, sizeof want);
    }
    compared++;
}

/* Does a call, or a part of it. False: it waits. */
static bool take_step(island_t *is)
{
    const gpusym_record_t *all;
    const uint32_t pos = (uint32_t) (is - island);
    if (is->waits) {
        const int rc = gpusym_records_read(is->records, is->next, &all);
        assert_true(rc >= 0);
        if (1 == rc) {
            compare(is, all);
            is->next++;
        }
        is->waits = 1 != rc;
        return 1 == rc;
    }
    if (is_on_host(pos, is->next)) {
        is->next++;
        return true;
    }
    const gpusym_record_t mine = record_of(pos, is->next);
    OK(gpusym_records_post(is->records, is->next, &mine));
    is->waits = true;
    return true;
}

static void take_turn(island_t *is)
{
    static const uint32_t speeds[] = {1, 5, 400};
    if (0 == next_random() % 500) {
        is->pause = next_random() % 300;
    }
    if (0 != is->pause) {
        is->pause--;
        return;
    }
    for (uint32_t k = 0; k < is->speed && is->next < last && take_step(is); k++) {
    }
    is->speed = 0 == next_random() % 100 ? speeds[next_random() % 3] : is->speed;
    is->known = 0 == next_random() % 100 ? next_random() % 20 : is->known;
}

static void turn_all(void)
{
    uint64_t first = UINT64_MAX, most = 0;
    for (uint32_t p = 0; p < n; p++) {
        take_turn(&island[p]);
        (void) gpusym_net_streams_progress(island[p].streams);
        if (0 != next_random() % 4) { /* a program that computes does not poll */
            island[p].open = gpusym_records_poll(island[p].records, &island[p].rc);
            OK(island[p].rc);
        }
        first = island[p].next < first ? island[p].next : first;
        most = island[p].next > most ? island[p].next : most;
    }
    ahead_most = most - first > ahead_most ? most - first : ahead_most;
}

static bool all_have_ended(void)
{
    for (uint32_t p = 0; p < n; p++) {
        if (island[p].next < last) {
            return false;
        }
    }
    return true;
}

static uint64_t count_posts(uint64_t from, uint64_t to)
{
    uint64_t posts = 0;
    for (uint32_t p = 0; p < n; p++) {
        for (uint64_t call = from; call < to; call++) {
            posts += is_on_host(p, call) ? 0 : 1;
        }
    }
    return posts;
}

/* Of all islands. */
static uint64_t count_steps(void)
{
    uint64_t steps = 0;
    for (uint32_t p = 0; p < n; p++) {
        steps += island[p].next + island[p].waits;
    }
    return steps;
}

static void run(uint32_t count, uint64_t calls, net_fake_params_t chances)
{
    open_islands(count, chances);
    last = FIRST + calls;
    compared = answered = 0;
    for (uint32_t p = 0; p < n; p++) {
        island[p].speed = 1;
    }
    for (uint32_t still = 0; !all_have_ended(); still++) {
        const uint64_t before = count_steps();
        turn_all();
        still = net_fake_step() || before != count_steps() ? 0 : still;
        assert_true(still < STUCK);
    }
    settle();
    assert_int_equal(compared, count_posts(FIRST, last));
    for (uint32_t p = 0; p < n; p++) {
        OK(island[p].rc);
        assert_false(island[p].open);
        const gpusym_net_counters_t *c = net_fake.counters(gpusym_net_streams_net(island[p].streams));
        assert_int_equal(c->dropped, 0);
    }
    close_islands(n);
}

static void run_all(const uint32_t *counts, const uint64_t *calls, uint32_t runs)
{
    early = late = ahead_most = 0;
    for (uint32_t k = 0; k < runs; k++) {
        run(counts[k], calls[k] / 2, (net_fake_params_t){.jitter = 3 * NET_FAKE_DELAY, .slow = 100, .refuse = 50});
        run(counts[k], calls[k] / 2, (net_fake_params_t){.jitter = 20 * NET_FAKE_DELAY, .refuse = 400});
    }
    assert_true(early > 1000 && late > 1000 && ahead_most > 1000);
}

static void islands_agree(void **state)
{
    static const uint32_t counts[] = {2, 3, 5, 8, 33};
    static const uint64_t calls[] = {40000, 30000, 20000, 9600, 400};
    (void) state;
    run_all(counts, calls, sizeof counts / sizeof *counts);
}

/* ---- steps ---- */

static void post(uint32_t p, uint64_t call)
{
    const gpusym_record_t mine = record_of(p, call);
    island[p].next = call;
    OK(gpusym_records_post(island[p].records, call, &mine));
}

static int read_call(uint32_t p, uint64_t call)
{
    const gpusym_record_t *all;
    return gpusym_records_read(island[p].records, call, &all);
}

/* The next call from `call` on that the islands of `hosts`, as bits, do on host memory, and the others do not. */
static uint64_t find_call(uint64_t call, uint64_t hosts)
{
    for (uint64_t found = UINT64_MAX; found != hosts; call++) {
        found = 0;
        for (uint32_t p = 0; p < n; p++) {
            found |= (uint64_t) is_on_host(p, call) << p;
        }
        if (found == hosts) {
            return call;
        }
    }
    return call;
}

static uint64_t sent(void)
{
    uint64_t all = 0;
    for (uint32_t p = 0; p < n; p++) {
        all += net_fake.counters(gpusym_net_streams_net(island[p].streams))->sent_bytes;
    }
    return all / GPUSYM_RECORD_BYTES;
}

/* Goes on until an island has the records of a call. Returns the one-way delays that this takes. */
static uint64_t delays_until(uint32_t p, uint64_t call)
{
    const uint64_t begin = net_fake_now();
    for (poll_all(); 0 == read_call(p, call); poll_all()) {
        assert_true(net_fake_step());
    }
    assert_int_equal(read_call(p, call), 1);
    return (net_fake_now() - begin) / NET_FAKE_DELAY;
}

static void all_post_in_one_step(void **state)
{
    (void) state;
    for (uint32_t count = 1; count <= 5; count++) {
        open_islands(count, (net_fake_params_t){.jitter = 0});
        settle();
        uint64_t call = FIRST;
        for (uint32_t k = 0; k < 50; k++) {
            call = find_call(call + 1, 0);
            const uint64_t before = sent();
            for (uint32_t p = 0; p < n; p++) {
                post(p, call);
            }
            const uint64_t begin = net_fake_now();
            for (uint32_t p = 0; p < n; p++) {
                assert_int_equal(delays_until(p, call), 0 == p && 1 != n);
            }
            assert_int_equal(net_fake_now() - begin, 1 == n ? 0 : NET_FAKE_DELAY);
            assert_int_equal(sent() - before, n * (n - 1));
        }
        close_islands(n);
    }
}

/* One way to ask, one back. An island that has not got there yet is open until it does. */
static void answers_go_back_at_once(void **state)
{
    (void) state;
    open_islands(3, (net_fake_params_t){.jitter = 0});
    settle();
    const uint64_t call = find_call(FIRST, 2);
    island[1].next = call + 1;
    post(0, call);
    post(2, call);
    assert_int_equal(delays_until(0, call), 2);
    assert_int_equal(delays_until(2, call), 0);
    settle();
    assert_int_equal(sent(), 6);

    const uint64_t later = find_call(call + 1, 6);
    post(0, later);
    settle();
    assert_int_equal(read_call(0, later), 0);
    assert_true(island[1].open && island[2].open && !island[0].open);
    island[1].next = later + 1;
    settle();
    assert_true(!island[1].open && island[2].open);
    assert_int_equal(read_call(0, later), 0);
    island[2].next = later + 1;
    assert_int_equal(delays_until(0, later), 1);
    assert_false(island[2].open);
    close_islands(n);
}

/* An island answers a call for one leader, then posts it: the others get the post, the one has the answer. */
static void an_answered_call_may_be_posted(void **state)
{
    (void) state;
    open_islands(3, (net_fake_params_t){.jitter = 0});
    settle();
    const uint64_t call = find_call(FIRST, 2);
    island[1].next = call + 1;
    post(0, call);
    settle();
    const gpusym_record_t mine = {.bytes = 5};
    OK(gpusym_records_post(island[1].records, call, &mine));
    post(2, call);
    settle();
    for (uint32_t p = 0; p < n; p++) {
        const gpusym_record_t *all, first = record_of(0, call), third = record_of(2, call);
        assert_int_equal(gpusym_records_read(island[p].records, call, &all), 1);
        assert_memory_equal(&all[0], &first, sizeof first);
        assert_memory_equal(&all[2], &third, sizeof third);
        assert_true(0 == all[1].kind && call == all[1].call && all[1].bytes == (0 == p ? 0 : 5));
        OK(island[p].rc);
    }
    assert_int_equal(sent(), 6);
    close_islands(n);
}

static void wrong_posts_are_refused(void **state)
{
    (void) state;
    open_islands(2, (net_fake_params_t){.jitter = 0});
    const gpusym_record_t mine = {.kind = 1};
    const uint64_t call = find_call(FIRST, 0);
    assert_int_equal(read_call(0, call), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(read_call(0, 0), GPUSYM_ERR_BAD_PARAM);
    post(0, call);
    assert_int_equal(read_call(0, call + 1), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_records_post(island[0].records, call + 1, &mine), GPUSYM_ERR_BAD_PARAM);
    post(1, call);
    assert_int_equal(delays_until(0, call), 2); /* and one to say hello */
    assert_int_equal(gpusym_records_post(island[0].records, call, &mine), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_records_post(island[0].records, call - 1, &mine), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(read_call(0, call), 1);
    OK(gpusym_records_post(island[0].records, call + 1, &mine));
    close_islands(n);
}

/* ---- errors ---- */

/* Island 1 is a stream of the test. */
static void open_forged(uint32_t count)
{
    gpusym_rail_peer_t peer;
    open_nets(count, (net_fake_params_t){.jitter = 0});
    for (uint32_t p = 0; p < n; p++) {
        if (1 != p) {
            OK(open_records(&island[p]));
        }
    }
    OK(find_peer(&island[1], 0, &peer));
    const gpusym_net_stream_params_t params = {.peer = peer.net,
                                               .token_in = peer.token_in,
                                               .token_out = peer.token_out,
                                               .channel = CHANNEL,
                                               .pieces_in = 8,
                                               .pieces_out = 8,
                                               .bytes_in = 64,
                                               .bytes_out = 64};
    OK(gpusym_net_stream_open(island[1].streams, &params, &forged));
    settle();
}

static void close_forged(void)
{
    while (!gpusym_net_stream_close(forged)) {
        assert_true(net_fake_step());
        poll_all();
    }
    forged = NULL;
    close_islands(n);
}

enum { POST, ANSWER };

/* Sends a piece from there, and waits until it has come. */
static void forge(uint32_t head_call, uint8_t stage, uint64_t call, uint16_t kind, uint32_t bytes)
{
    const gpusym_record_t record = {.call = call, .kind = kind};
    gpusym_net_message_t message = {.head = {.call = head_call, .stage = stage}};
    OK(gpusym_net_stream_send(forged, &message, &record, bytes));
    settle();
    assert_int_equal(message.sent, 1);
}

/* A right one. */
static void forge_right(uint8_t stage, uint64_t call)
{
    OK(island[0].rc);
    forge((uint32_t) call, stage, call, POST == stage, GPUSYM_RECORD_BYTES);
    OK(island[0].rc);
}

/* The state in which wrong pieces come. */
typedef enum { FRESH, POSTED, ASKED, ANSWERED, READ, STATES } forged_state_t;

static uint64_t forged_call;

static void reach(forged_state_t s)
{
    open_forged(2);
    forged_call = find_call(FIRST, 0);
    if (ASKED == s) {
        forge_right(POST, forged_call);
        assert_true(island[0].open);
    }
    if (ANSWERED == s) {
        forged_call = find_call(FIRST, 3);
        island[0].next = forged_call + 1;
        forge_right(POST, forged_call);
        assert_false(island[0].open);
    }
    if (POSTED == s || READ == s) {
        post(0, forged_call);
        settle();
    }
    if (READ == s) {
        forge_right(ANSWER, forged_call);
        assert_int_equal(read_call(0, forged_call), 1);
    }
}

static void wrong_records_are_errors(void **state)
{
    static const struct {
        forged_state_t at;
        uint8_t stage;
        int64_t call; /* from forged_call on */
        uint16_t kind;
        uint32_t bytes;
        uint32_t head; /* differs from the record's call by */
    } wrong[] = {
        {FRESH, POST, 0, 1, 63, 0},     {FRESH, POST, 0, 1, 0, 0},       {FRESH, POST, 0, 1, 64, 1},
        {FRESH, 5, 0, 1, 64, 0},        {FRESH, 255, 0, 0, 64, 0},       {FRESH, ANSWER, 0, 0, 64, 0},
        {POSTED, ANSWER, 0, 1, 64, 0},  {POSTED, ANSWER, 1, 0, 64, 0},   {POSTED, ANSWER, 1ll << 32, 0, 64, 0},
        {POSTED, ANSWER, 0, 0, 56, 0},  {ASKED, POST, 0, 1, 64, 0},      {ASKED, POST, 1, 1, 64, 0},
        {ASKED, POST, -1, 1, 64, 0},    {ASKED, ANSWER, 0, 0, 64, 0},    {ANSWERED, POST, 0, 1, 64, 0},
        {ANSWERED, POST, -1, 1, 64, 0}, {ANSWERED, ANSWER, 0, 0, 64, 0}, {READ, ANSWER, 0, 0, 64, 0},
        {READ, POST, 0, 1, 64, 0},
    };
    (void) state;
    for (uint32_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        reach(wrong[k].at);
        OK(island[0].rc);
        const uint64_t call = forged_call + (uint64_t) wrong[k].call;
        forge((uint32_t) call + wrong[k].head, wrong[k].stage, call, wrong[k].kind, wrong[k].bytes);
        assert_int_equal(island[0].rc, GPUSYM_ERR_CORRUPT);
        assert_false(island[0].open);
        if (POSTED == wrong[k].at) {
            assert_int_equal(read_call(0, forged_call), GPUSYM_ERR_CORRUPT);
        }
        settle();
        assert_int_equal(island[0].rc, GPUSYM_ERR_CORRUPT);
        close_forged();
    }
}

/* A leader that goes on without the answers, which it never reads, is stopped once they fill its ring. */
static void answers_are_bounded(void **state)
{
    uint32_t posts = 0;
    (void) state;
    open_forged(2);
    island[0].next = UINT64_MAX;
    for (uint64_t call = FIRST; GPUSYM_SUCCESS == island[0].rc && posts < 100; call++) {
        call = find_call(call, 1);
        forge((uint32_t) call, POST, call, 1, GPUSYM_RECORD_BYTES);
        posts++;
    }
    assert_int_equal(island[0].rc, GPUSYM_ERR_CORRUPT);
    assert_int_equal(posts, 8 + 4 + 1);
    close_forged();
}

/* An error of one leader keeps no other one from its answers. */
static void others_are_still_served(void **state)
{
    (void) state;
    open_forged(3);
    const uint64_t call = find_call(FIRST, 1);
    forge(0, 9, 0, 0, 3);
    assert_int_equal(island[0].rc, GPUSYM_ERR_CORRUPT);
    OK(island[2].rc);
    post(2, call);
    settle();
    assert_true(island[0].open);
    const uint64_t before = net_fake.counters(gpusym_net_streams_net(island[2].streams))->landed_bytes;
    island[0].next = call + 1;
    settle();
    assert_int_equal(net_fake.counters(gpusym_net_streams_net(island[2].streams))->landed_bytes - before,
                     GPUSYM_RECORD_BYTES);
    assert_false(island[0].open);
    close_forged();
}

/* A leader that gives up is known to all; records are left once all leaders have left. */
static void leaders_give_up_and_leave(void **state)
{
    uint32_t pos;
    (void) state;
    open_islands(3, (net_fake_params_t){.jitter = 0});
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t why = 0;
        assert_false(gpusym_records_aborted(island[i].records, &pos, &why));
        assert_false(gpusym_records_left(island[i].records));
    }
    gpusym_records_abort(island[1].records, 77);
    gpusym_records_abort(island[1].records, 78);
    settle();
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t why = 0;
        assert_int_equal(gpusym_records_aborted(island[i].records, &pos, &why), 1 != i);
        assert_int_equal(why, 1 != i ? 77 : 0);
        assert_int_equal(pos, 1 != i ? 1 : 3);
        OK(island[i].rc);
    }
    for (uint32_t i = 0; i < 3; i++) {
        gpusym_records_leave(island[i].records);
        settle();
        for (uint32_t k = 0; k < 3; k++) {
            assert_int_equal(gpusym_records_left(island[k].records), 2 == i);
        }
    }
    close_islands(3);
}

/* ---- the watch ---- */

enum { LIMIT = 100000, LOOK = LIMIT / 100 }; /* in the net's time */

/* Lets so much time pass, in which the islands of a set of bits look. */
static void watch_for(uint64_t ns, uint64_t looking)
{
    static uint64_t clock = 1;
    for (uint64_t t = 0; t < ns; t += LOOK, clock += LOOK) {
        for (uint32_t p = 0; p < n; p++) {
            if (0 != (looking >> p & 1)) {
                gpusym_records_watch(island[p].records, clock, LIMIT);
            }
        }
        settle();
    }
}

static bool is_silent(uint32_t p, uint32_t other)
{
    uint32_t pos;
    return gpusym_records_silent(island[p].records, &pos) && other == pos;
}

static void expect_no_silence(void)
{
    uint32_t pos;
    for (uint32_t p = 0; p < n; p++) {
        assert_false(gpusym_records_silent(island[p].records, &pos));
        OK(island[p].rc);
    }
}

/* Beats go to two neighbours, five in the limit; as long as they come, nobody is lost. */
static void beats_go_round_the_ring(void **state)
{
    (void) state;
    for (uint32_t count = 1; count <= 6; count++) {
        open_islands(count, (net_fake_params_t){.jitter = 0});
        settle();
        const uint64_t before = sent();
        watch_for(20 * LIMIT, ~0ull);
        const uint64_t beats = (sent() - before) / (1 == n ? 1 : 2 == n ? 2 : 2 * n);
        assert_true(1 == n ? 0 == beats : beats >= 99 && beats <= 101);
        expect_no_silence();
        const uint64_t call = find_call(FIRST, 0);
        for (uint32_t p = 0; p < n; p++) {
            post(p, call);
        }
        settle();
        for (uint32_t p = 0; p < n; p++) {
            assert_int_equal(read_call(p, call), 1);
            assert_false(island[p].open);
            gpusym_records_leave(island[p].records);
        }
        settle();
        for (uint32_t p = 0; p < n; p++) {
            assert_true(gpusym_records_left(island[p].records));
        }
        const uint64_t rest = sent();
        watch_for(2 * LIMIT, ~0ull);
        assert_int_equal(sent(), rest);
        expect_no_silence();
        close_islands(n);
    }
}

static void cut_island(uint32_t island_cut, bool cut)
{
    for (uint32_t p = 0; p < n; p++) {
        if (p != island_cut) {
            net_fake_cut(gpusym_net_streams_net(island[p].streams), gpusym_net_streams_net(island[island_cut].streams),
                         cut);
        }
    }
}

/* A cut is found by the neighbours, not before the limit; a shorter one by nobody, however often. */
static void a_cut_is_found(void **state)
{
    (void) state;
    open_islands(5, (net_fake_params_t){.jitter = 0});
    settle();
    watch_for(LIMIT, ~0ull);
    for (uint32_t k = 0; k < 5; k++) {
        cut_island(3, true);
        watch_for(LIMIT * 7 / 10, ~0ull);
        cut_island(3, false);
        watch_for(LIMIT / 2, ~0ull);
        expect_no_silence();
    }
    cut_island(3, true);
    watch_for(LIMIT * 7 / 10, ~0ull);
    expect_no_silence();
    watch_for(LIMIT / 2, ~0ull);
    assert_true(is_silent(2, 3) && is_silent(4, 3) && is_silent(3, 2));
    assert_false(is_silent(0, 3) || is_silent(1, 3));
    cut_island(3, false);
    settle();
    close_islands(n);
}

/* Beats that nobody reads fill the ring, and no more: the post behind them comes. */
static void beats_wait_for_nobody(void **state)
{
    (void) state;
    open_islands(2, (net_fake_params_t){.jitter = 0});
    settle();
    gpusym_records_t *asleep = island[1].records;
    island[1].records = NULL;
    watch_for(LIMIT * 9 / 10, 1);
    for (uint64_t k = 0; k < 100; k++) { /* a beat is due at every look */
        gpusym_records_watch(island[0].records, (k + 1000) * LIMIT, LIMIT);
        settle();
    }
    assert_true(sent() <= 8);
    const uint64_t call = find_call(FIRST, 0);
    post(0, call);
    settle();
    OK(island[0].rc);
    island[1].records = asleep;
    post(1, call);
    settle();
    assert_true(1 == read_call(0, call) && 1 == read_call(1, call));
    OK(island[1].rc);
    close_islands(n);
}

/* A process that was stopped has heard nobody meanwhile, and loses nobody for that. */
static void who_was_stopped_loses_nobody(void **state)
{
    (void) state;
    open_islands(2, (net_fake_params_t){.jitter = 0});
    settle();
    for (uint64_t k = 1; k < 10; k++) {
        gpusym_records_watch(island[0].records, k * 50 * LIMIT, LIMIT);
        gpusym_records_watch(island[1].records, k * 50 * LIMIT, LIMIT);
        expect_no_silence();
        settle();
    }
    for (uint64_t k = 0; k < 19; k++) {
        gpusym_records_watch(island[0].records, (500 + k * 50) * LIMIT, LIMIT);
    }
    expect_no_silence();
    close_islands(n);
}

/* Any pieces in any order: an error, or what the protocol has; nothing is read or written elsewhere. */
static void random_records_do_no_harm(void **state)
{
    uint64_t corrupt = 0, taken = 0, call = 0;
    (void) state;
    for (uint32_t k = 0; k < FUZZ; k++) {
        if (0 == call) {
            reach((forged_state_t) (next_random() % STATES));
            call = forged_call;
        }
        call += next_random() % 3 - (0 == next_random() % 4);
        island[0].next += 0 == next_random() % 3;
        if (0 == next_random() % 4) {
            (void) gpusym_records_post(island[0].records, call + next_random() % 2, &(gpusym_record_t){.kind = 1});
        }
        const uint32_t bytes = 0 == next_random() % 8 ? (uint32_t) (next_random() % 65) : GPUSYM_RECORD_BYTES;
        forge((uint32_t) call + (0 == next_random() % 8), (uint8_t) (next_random() % 9 / 4), call,
              (uint16_t) (next_random() % 2), bytes);
        taken += GPUSYM_SUCCESS == island[0].rc;
        if (GPUSYM_SUCCESS != island[0].rc) {
            assert_int_equal(island[0].rc, GPUSYM_ERR_CORRUPT);
            corrupt++;
            call = 0;
            close_forged();
        }
    }
    if (0 != call) {
        close_forged();
    }
    assert_true(corrupt > 100 && taken > 100);
}

/* Of a leader to which something is to be sent; the records of the others still come. */
static void a_lost_leader_is_an_error(void **state)
{
    const gpusym_record_t mine = {.kind = 1};
    (void) state;
    for (uint32_t k = 0; k < 20; k++) {
        open_islands(3, (net_fake_params_t){.jitter = NET_FAKE_DELAY, .slow = 300});
        settle();
        const uint64_t call = find_call(FIRST, 0);
        if (0 == k % 2) { /* under way */
            OK(gpusym_records_post(island[0].records, call, &mine));
            (void) net_fake_step();
        }
        net_fake_kill(gpusym_net_streams_net(island[1].streams));
        settle();
        assert_true(1 == island[0].losses && 1 == island[2].losses);
        OK(island[0].rc); /* only waited for */
        OK(island[2].rc);
        if (1 == k % 2) {
            assert_int_equal(gpusym_records_post(island[0].records, call, &mine), GPUSYM_ERR_UNREACHABLE);
        }
        assert_int_equal(gpusym_records_post(island[2].records, call, &mine), GPUSYM_ERR_UNREACHABLE);
        settle();
        assert_int_equal(island[2].rc, GPUSYM_ERR_UNREACHABLE);
        assert_int_equal(read_call(2, call), GPUSYM_ERR_UNREACHABLE);
        assert_int_equal(island[0].rc, 0 == k % 2 ? GPUSYM_SUCCESS : GPUSYM_ERR_UNREACHABLE);
        assert_int_equal(net_fake.counters(gpusym_net_streams_net(island[0].streams))->landed_bytes,
                         GPUSYM_RECORD_BYTES);
        close_islands(1);
    }
}

/* Whatever fails, nothing stays open. */
static void opening_may_fail(void **state)
{
    (void) state;
    open_nets(5, (net_fake_params_t){.jitter = 0});
    refuse_peer = 3;
    assert_int_equal(open_records(&island[0]), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(gpusym_net_streams_used(island[0].streams), 0);
    refuse_peer = UINT32_MAX;
    gpusym_net_streams_close(island[0].streams);
    open_net(&island[0], 3 * PAGE);
    assert_int_equal(open_records(&island[0]), GPUSYM_ERR_NO_MEMORY);
    assert_int_equal(gpusym_net_streams_used(island[0].streams), 0);
    close_islands(n);
}

/* Messages under way hold the end of records up. */
static void closing_waits_for_messages(void **state)
{
    (void) state;
    open_islands(2, (net_fake_params_t){.jitter = 0});
    settle();
    post(0, find_call(FIRST, 0));
    assert_false(gpusym_records_close(island[0].records));
    assert_true(net_fake_step());
    (void) gpusym_net_streams_progress(island[1].streams);
    assert_true(gpusym_records_close(island[0].records));
    assert_int_equal(gpusym_net_streams_used(island[0].streams), 0);
    island[0].records = NULL;
    close_islands(n);
    assert_true(gpusym_records_close(NULL));
}

/* Some streams may be closed before others: who answers polls all the while. */
static void polled_while_it_closes(void **state)
{
    (void) state;
    for (unsigned round = 0; round < 100; round++) {
        bool closed = false;
        open_islands(4, (net_fake_params_t){.jitter = 6});
        (void) gpusym_net_streams_progress(island[0].streams); /* greets the others: under way, each for itself */
        while (!closed) {
            int rc;
            (void) gpusym_records_poll(island[0].records, &rc);
            closed = gpusym_records_close(island[0].records);
            (void) net_fake_step();
            for (uint32_t p = closed ? 1 : 0; p < n; p++) {
                (void) gpusym_net_streams_progress(island[p].streams);
            }
        }
        assert_int_equal(gpusym_net_streams_used(island[0].streams), 0);
        island[0].records = NULL;
        close_islands(n);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(islands_agree),
        cmocka_unit_test(all_post_in_one_step),
        cmocka_unit_test(answers_go_back_at_once),
        cmocka_unit_test(an_answered_call_may_be_posted),
        cmocka_unit_test(wrong_posts_are_refused),
        cmocka_unit_test(wrong_records_are_errors),
        cmocka_unit_test(answers_are_bounded),
        cmocka_unit_test(others_are_still_served),
        cmocka_unit_test(leaders_give_up_and_leave),
        cmocka_unit_test(beats_go_round_the_ring),
        cmocka_unit_test(a_cut_is_found),
        cmocka_unit_test(beats_wait_for_nobody),
        cmocka_unit_test(who_was_stopped_loses_nobody),
        cmocka_unit_test(random_records_do_no_harm),
        cmocka_unit_test(a_lost_leader_is_an_error),
        cmocka_unit_test(opening_may_fail),
        cmocka_unit_test(closing_waits_for_messages),
        cmocka_unit_test(polled_while_it_closes),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
