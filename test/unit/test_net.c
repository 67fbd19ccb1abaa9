/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/net/stream.c and net.c over a net in which everything happens by chance
 * (net_fake.h).  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "mca/common/gpusym/net/stream.h"
#include "test/unit/net_fake.h"
#include "test/unit/random.h"

enum {
    PIECES = 8,
    PIECE = 256,
    LONG = 2 * PIECE, /* of several buffers */
    MEMORY = 64 << 10,
    GUARD = 4096, /* behind the memory of an end */
    FUZZ = 100000
};

/* An end, and what is sent from it. */
typedef struct {
    gpusym_net_streams_t *streams;
    gpusym_net_peer_t *peer;
    gpusym_net_stream_t *stream;
    gpusym_net_message_t message[2 * PIECES]; /* in turns, once sent */
    unsigned char data[2 * PIECES][LONG];
    uint32_t sent, read, in_use; /* pieces of this generation; those read and not released */
    uint64_t all_read;
    uint16_t generation;
    unsigned notes, losses;
    uint64_t ring; /* bytes of memory that the ring took */
    gpusym_net_head_t note;
    _Alignas(4096) unsigned char memory[MEMORY + GUARD];
} end_t;

static end_t end[2];
static const uint64_t token[2] = {0x1122334455667788u, 0x99aabbccddeeff00u}; /* of what each end gets */
static int owner[2];
static uint32_t part_bytes;      /* of the net; 0: pieces are sent as a whole */
static uint32_t longest = PIECE; /* piece; LONG: some take several buffers, and numbers are skipped */

static void on_note(void *arg, void *of, const gpusym_net_head_t *head)
{
    end_t *e = arg;
    assert_ptr_equal(of, &owner[e - end]);
    e->notes++;
    e->note = *head;
}

static void on_lost(void *arg, void *of, const char *why)
{
    end_t *e = arg;
    assert_ptr_equal(of, e);
    assert_non_null(why);
    e->losses++;
}

static void open_end(unsigned i)
{
    const char *why;
    end_t *e = &end[i];
    const gpusym_net_streams_params_t params = {.transport = &net_fake,
                                                .piece_bytes = LONG,
                                                .memory = e->memory,
                                                .bytes = MEMORY,
                                                .arg = e,
                                                .note = on_note,
                                                .lost = on_lost};
    memset(e, 0, sizeof *e);
    memset(e->memory, 0xdd, sizeof e->memory);
    for (unsigned k = 0; k < 2 * PIECES; k++) {
        e->message[k].sent = 1;
    }
    assert_int_equal(gpusym_net_streams_open(&params, &e->streams, &why), GPUSYM_SUCCESS);
}

static void meet(void)
{
    for (unsigned i = 0; i < 2; i++) {
        size_t bytes;
        const void *address = net_fake.address(gpusym_net_streams_net(end[1 - i].streams), &bytes);
        assert_int_equal(
            net_fake.peer_open(gpusym_net_streams_net(end[i].streams), address, bytes, false, &end[i], &end[i].peer),
            GPUSYM_SUCCESS);
    }
}

static gpusym_net_stream_params_t stream_params(unsigned i)
{
    return (gpusym_net_stream_params_t){.peer = end[i].peer,
                                        .token_in = token[i],
                                        .token_out = token[1 - i],
                                        .channel = 3,
                                        .generation = end[i].generation,
                                        .pieces_in = PIECES,
                                        .pieces_out = PIECES,
                                        .bytes_in = PIECE,
                                        .bytes_out = PIECE,
                                        .owner = &owner[i]};
}

static void open_stream(unsigned i)
{
    const gpusym_net_stream_params_t params = stream_params(i);
    assert_int_equal(gpusym_net_stream_open(end[i].streams, &params, &end[i].stream), GPUSYM_SUCCESS);
    end[i].ring = PIECES * PIECE;
}

static void start(net_fake_params_t chances)
{
    chances.seed = next_random();
    chances.part_bytes = part_bytes;
    net_fake_start(&chances);
    open_end(0);
    open_end(1);
    meet();
    open_stream(0);
    open_stream(1);
}

/* The bytes behind what the ring takes are as they were. */
static void check_guards(void)
{
    for (unsigned i = 0; i < 2; i++) {
        for (uint64_t k = end[i].ring; k < sizeof end[i].memory; k++) {
            assert_int_equal(end[i].memory[k], 0xdd);
        }
    }
}

static void close_ends(void)
{
    check_guards();
    for (unsigned i = 0; i < 2; i++) {
        gpusym_net_streams_close(end[i].streams);
    }
}

static void progress(void)
{
    while (gpusym_net_streams_progress(end[0].streams) || gpusym_net_streams_progress(end[1].streams)) {
    }
}

static const gpusym_net_counters_t *counters(unsigned i)
{
    return net_fake.counters(gpusym_net_streams_net(end[i].streams));
}

/* What a piece holds: by its end, generation and number alone. */
static uint64_t mix(unsigned from, uint16_t generation, uint32_t number)
{
    uint64_t z = seed ^ from ^ (uint64_t) generation << 8 ^ (uint64_t) number << 24;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    return z ^ z >> 31;
}

static uint32_t bytes_of(uint64_t what)
{
    return (uint32_t) (what >> 16) % (longest + 1);
}

static unsigned char byte_of(uint64_t what, uint32_t at)
{
    return (unsigned char) (what + at);
}

/* Sends a piece if there is room, and memory that is free. */
static bool send_piece(unsigned i)
{
    end_t *e = &end[i];
    const unsigned k = e->sent % (2 * PIECES);
    const uint64_t what = mix(i, e->generation, e->sent);

    if (0 == gpusym_net_stream_room_for(e->stream, bytes_of(what)) || 1 != e->message[k].sent) {
        return false;
    }
    for (uint32_t n = 0; n < longest; n++) {
        e->data[k][n] = byte_of(what, n);
    }
    e->message[k].head = (gpusym_net_head_t){.call = (uint32_t) (what >> 8), .record = {what, ~what}, .stage = 2};
    const int rc = gpusym_net_stream_send(e->stream, &e->message[k], e->data[k], bytes_of(what));
    assert_true(GPUSYM_SUCCESS == rc || GPUSYM_ERR_NO_MEMORY == rc);
    e->sent += GPUSYM_SUCCESS == rc;
    return GPUSYM_SUCCESS == rc;
}

/* Reads a piece, which must be the next one of its generation. */
static bool read_piece(unsigned i)
{
    end_t *e = &end[i];
    const uint64_t what = mix(1 - i, e->generation, e->read);
    const gpusym_net_head_t *head;
    const void *data;

    if (!gpusym_net_stream_read(e->stream, &head, &data)) {
        return false;
    }
    assert_true(LONG == longest ? head->number >= e->read : head->number == e->read);
    assert_true(head->generation == e->generation && head->token == token[i]);
    assert_true(head->call == (uint32_t) (what >> 8) && head->record[0] == what && head->record[1] == ~what);
    assert_int_equal(head->bytes, bytes_of(what));
    for (uint32_t k = 0; k < head->bytes; k++) {
        assert_int_equal(((const unsigned char *) data)[k], byte_of(what, k));
    }
    e->read++;
    e->all_read++;
    e->in_use++;
    assert_true(e->in_use <= PIECES);
    return true;
}

static void release(unsigned i, uint32_t pieces)
{
    gpusym_net_stream_release(end[i].stream, pieces);
    end[i].in_use -= pieces;
}

/* Both ends send, read and release by chance, then time goes on. False: nothing will happen any more. */
static bool turn(void)
{
    for (unsigned i = 0; i < 2; i++) {
        for (uint64_t n = next_random() % 6; n > 0 && send_piece(i); n--) {
        }
        for (uint64_t n = next_random() % 6; n > 0 && read_piece(i); n--) {
        }
        if (0 != end[i].in_use) {
            release(i, (uint32_t) (next_random() % (end[i].in_use + 1)));
        }
    }
    const bool later = net_fake_step();
    progress();
    return later;
}

/* Reads and releases all there is until nothing more comes. */
static void drain(void)
{
    do {
        progress();
        for (unsigned i = 0; i < 2; i++) {
            while (read_piece(i)) {
            }
            release(i, end[i].in_use);
        }
        for (unsigned n = 0; n < 20; n++) { /* what the net has refused is tried again */
            progress();
        }
    } while (net_fake_step());
}

/* ---- the tests ---- */

static void pieces_come_in_their_order(void **state)
{
    (void) state;
    start((net_fake_params_t){.jitter = 5 * NET_FAKE_DELAY, .slow = 100, .refuse = 50});
    while (end[0].all_read < 50000 || end[1].all_read < 50000) {
        turn();
    }
    drain();
    assert_int_equal(end[0].read, end[1].sent);
    assert_int_equal(end[1].read, end[0].sent);
    assert_int_equal(counters(0)->dropped + counters(1)->dropped, 0);
    assert_int_equal(counters(0)->landed, counters(1)->sent);
    assert_true(gpusym_net_stream_room(end[0].stream) > PIECES / 2); /* less than half is not told */
    close_ends();
}

static void doubled_messages_are_dropped(void **state)
{
    (void) state;
    start((net_fake_params_t){.jitter = 5 * NET_FAKE_DELAY, .twice = 200, .slow = 100});
    while (end[0].all_read < 20000) {
        turn();
    }
    drain();
    assert_int_equal(end[0].read, end[1].sent);
    assert_int_equal(end[1].read, end[0].sent);
    assert_true(counters(0)->dropped > 1000 && counters(1)->dropped > 1000);
    close_ends();
}

/* One way to say hello, one for a piece; credits come back in time. */
static void times_are_one_way_each(void **state)
{
    (void) state;
    start((net_fake_params_t){.jitter = 0});
    progress();
    assert_int_equal(gpusym_net_stream_room(end[0].stream), 0);
    assert_true(net_fake_step());
    progress();
    assert_int_equal(net_fake_now(), NET_FAKE_DELAY);
    assert_int_equal(gpusym_net_stream_room(end[0].stream), PIECES);
    while (net_fake_step()) { /* the answers */
        progress();
    }
    const uint64_t before = net_fake_now();
    while (send_piece(0)) {
    }
    assert_int_equal(end[0].sent, PIECES);
    assert_true(net_fake_step());
    progress();
    for (unsigned k = 0; k < PIECES; k++) {
        assert_true(read_piece(1));
    }
    assert_int_equal(net_fake_now() - before, NET_FAKE_DELAY);
    assert_false(net_fake_step());
    release(1, PIECES / 2 - 1); /* too few to be told */
    progress();
    assert_false(net_fake_step());
    release(1, 1);
    progress();
    assert_int_equal(gpusym_net_stream_room(end[0].stream), 0);
    assert_true(net_fake_step());
    progress();
    assert_int_equal(net_fake_now() - before, 2 * NET_FAKE_DELAY);
    assert_int_equal(gpusym_net_stream_room(end[0].stream), PIECES / 2);
    release(1, 1);
    assert_true(send_piece(1)); /* the rest is told by whatever goes there */
    assert_true(net_fake_step());
    progress();
    assert_int_equal(gpusym_net_stream_room(end[0].stream), PIECES / 2 + 1);
    close_ends();
}

static void an_end_may_open_later(void **state)
{
    (void) state;
    net_fake_start(&(net_fake_params_t){.seed = next_random()});
    open_end(0);
    open_end(1);
    meet();
    open_stream(0);
    do {
        progress();
    } while (net_fake_step());
    assert_int_equal(counters(1)->dropped, 1);
    assert_int_equal(gpusym_net_stream_room(end[0].stream), 0);
    open_stream(1);
    for (unsigned n = 0; n < 10; n++) { /* nothing but the answer to its hello comes to the later one */
        progress();
        while (send_piece(1)) {
        }
        net_fake_step();
    }
    progress();
    while (read_piece(0)) {
    }
    assert_int_equal(end[0].read, PIECES);
    close_ends();
}

/* Streams are left midway again and again, by either end first; the other one follows some time later. */
static void late_pieces_of_a_generation_are_dropped(void **state)
{
    (void) state;
    start((net_fake_params_t){.jitter = 20 * NET_FAKE_DELAY, .twice = 50, .slow = 300});
    for (unsigned round = 1; round <= 2000; round++) {
        const unsigned first = next_random() % 2;
        for (unsigned k = 0; k < 2; k++) {
            end_t *e = &end[k ^ first];
            for (uint64_t n = next_random() % 40; n > 0; n--) {
                turn();
            }
            e->generation++;
            e->sent = e->read = e->in_use = 0;
            gpusym_net_stream_reset(e->stream, e->generation);
        }
        if (0 == next_random() % 4) { /* the stream still flows, both ways */
            for (unsigned n = 0; n < 60; n++) {
                turn();
            }
            drain();
            assert_true(0 != end[0].read && 0 != end[1].read);
            assert_int_equal(end[0].read, end[1].sent);
            assert_int_equal(end[1].read, end[0].sent);
        }
    }
    assert_true(counters(0)->dropped > 1000 && end[0].all_read > (0 == part_bytes ? 5000 : 1000));
    close_ends();
}

/* What gets lost stops a stream, and does no more harm; a new generation goes on. */
static void a_lost_piece_stops_the_stream(void **state)
{
    (void) state;
    start((net_fake_params_t){.jitter = NET_FAKE_DELAY, .loss = 20});
    for (unsigned round = 0; round < 200; round++) {
        for (unsigned n = 0; n < 200; n++) {
            turn();
        }
        drain();
        assert_true(end[1].sent - end[0].read <= PIECES && end[0].sent - end[1].read <= PIECES);
        for (unsigned i = 0; i < 2; i++) {
            end[i].generation++;
            end[i].sent = end[i].read = 0;
            gpusym_net_stream_reset(end[i].stream, end[i].generation);
        }
    }
    assert_true(end[0].all_read > 1000);
    close_ends();
}

static void a_cut_link_holds_all_back(void **state)
{
    (void) state;
    start((net_fake_params_t){.jitter = NET_FAKE_DELAY});
    for (unsigned n = 0; n < 100; n++) {
        turn();
    }
    net_fake_cut(gpusym_net_streams_net(end[0].streams), gpusym_net_streams_net(end[1].streams), true);
    while (turn()) {
    }
    const uint32_t stuck = end[0].sent;
    assert_true(stuck - end[1].read <= PIECES);
    for (unsigned n = 0; n < 100; n++) {
        turn();
    }
    assert_true(end[0].sent - end[1].read <= PIECES && end[0].losses + end[1].losses == 0);
    net_fake_cut(gpusym_net_streams_net(end[0].streams), gpusym_net_streams_net(end[1].streams), false);
    while (end[1].read < stuck + 1000) {
        turn();
    }
    drain();
    assert_int_equal(end[1].read, end[0].sent);
    close_ends();
}

static void a_killed_peer_is_lost_once_and_frees_what_is_sent(void **state)
{
    (void) state;
    start((net_fake_params_t){.jitter = NET_FAKE_DELAY, .slow = 500});
    for (unsigned n = 0; n < 1000; n++) {
        turn();
    }
    while (send_piece(0)) {
    }
    const uint64_t before = net_fake_now();
    net_fake_kill(gpusym_net_streams_net(end[1].streams));
    while (0 == end[0].losses && net_fake_step()) {
        gpusym_net_streams_progress(end[0].streams);
    }
    assert_int_equal(net_fake_now() - before, NET_FAKE_DELAY);
    for (unsigned k = 0; k < 2 * PIECES; k++) {
        assert_int_equal(end[0].message[k].sent, 1);
    }
    gpusym_net_message_t note = {.head = {.call = 1}};
    assert_int_equal(gpusym_net_stream_note(end[0].stream, &note), GPUSYM_ERR_UNREACHABLE);
    assert_true(gpusym_net_stream_close(end[0].stream));
    gpusym_net_streams_progress(end[0].streams);
    assert_int_equal(end[0].losses, 1);
    close_ends();
}

static void notes_need_no_room(void **state)
{
    gpusym_net_message_t note = {.head = {.call = 77, .record = {5, 6}, .stage = 9}};

    (void) state;
    start((net_fake_params_t){.jitter = 0});
    assert_int_equal(gpusym_net_stream_room(end[0].stream), 0);
    assert_int_equal(gpusym_net_stream_note(end[0].stream, &note), GPUSYM_SUCCESS);
    assert_int_equal(note.sent, 0);
    assert_true(net_fake_step());
    progress();
    assert_int_equal(note.sent, 1);
    assert_int_equal(end[1].notes, 1);
    assert_true(77 == end[1].note.call && 5 == end[1].note.record[0] && 6 == end[1].note.record[1]);
    assert_int_equal(end[1].note.stage, 9);
    close_ends();
}

/* A head that differs from those that may come now in at least one way that must be found. */
static gpusym_net_head_t wrong_head(const gpusym_net_head_t *right, uint32_t *bytes)
{
    gpusym_net_head_t head = *right;

    *bytes = head.bytes;
    switch (next_random() % 13) {
    case 0:
        head.token ^= 1ull << next_random() % 64;
        break;
    case 1:
        head.token = token[0];
        break;
    case 2:
        head.channel ^= (uint16_t) (1u << next_random() % 16);
        break;
    case 3:
        head.generation ^= (uint16_t) (1u << next_random() % 16);
        break;
    case 4:
        head.number += PIECES + (uint32_t) (next_random() % (UINT32_MAX - 2 * PIECES));
        break;
    case 5:
        head.mark ^= (uint16_t) (1u << next_random() % 16);
        break;
    case 6:
        head.kind = (uint8_t) (GPUSYM_NET_KINDS + next_random() % (256 - GPUSYM_NET_KINDS));
        break;
    case 7:
        head.part = (uint8_t) (1 + next_random() % UINT8_MAX);
        break;
    case 8:
        head.parts = next_random() % 2 ? 0 : (uint8_t) (2 + next_random() % (UINT8_MAX - 2)); /* of shorter ones */
        break;
    case 9:
        head.whole ^= 1u << next_random() % 32;
        break;
    case 10:
        head.buffers = next_random() % 2 ? 0 : (uint8_t) (PIECES + 1 + next_random() % (UINT8_MAX - PIECES));
        break;
    case 11:
        head.skipped = (uint8_t) (1 + next_random() % UINT8_MAX);
        break;
    default:
        head.bytes = *bytes = (uint32_t) (PIECE + 1 + next_random() % PIECE);
        *bytes -= (uint32_t) (next_random() % 2); /* perhaps not what came */
        break;
    }
    return head;
}

static void random_messages_change_nothing(void **state)
{
    unsigned char junk[4 * PIECE], before[MEMORY];

    (void) state;
    start((net_fake_params_t){.jitter = NET_FAKE_DELAY});
    for (unsigned n = 0; n < 100; n++) {
        turn();
    }
    drain();
    memcpy(before, end[1].memory, MEMORY);
    const uint64_t dropped = counters(1)->dropped, landed = counters(1)->landed;
    const uint32_t room = gpusym_net_stream_room(end[1].stream);
    const gpusym_net_head_t right = {.token = token[1],
                                     .number = end[1].read,
                                     .bytes = PIECE,
                                     .whole = PIECE,
                                     .parts = 1,
                                     .buffers = 1,
                                     .generation = end[1].generation,
                                     .channel = 3,
                                     .mark = GPUSYM_NET_MARK,
                                     .kind = GPUSYM_NET_DATA};
    for (unsigned n = 0; n < FUZZ; n++) {
        for (unsigned k = 0; k < sizeof junk; k += 8) {
            const uint64_t r = next_random();
            memcpy(junk + k, &r, 8);
        }
        uint32_t bytes = (uint32_t) (next_random() % (2 * PIECE));
        if (0 == n % 2) {
            const gpusym_net_head_t head = wrong_head(&right, &bytes);
            net_fake_inject(gpusym_net_streams_net(end[1].streams), &head, sizeof head, junk, bytes);
        } else {
            net_fake_inject(gpusym_net_streams_net(end[1].streams), junk,
                            next_random() % 2 ? sizeof right : next_random() % 100, junk + 100, bytes);
        }
    }
    assert_int_equal(counters(1)->dropped - dropped, FUZZ);
    assert_int_equal(counters(1)->landed, landed);
    assert_memory_equal(before, end[1].memory, MEMORY);
    assert_int_equal(gpusym_net_stream_room(end[1].stream), room);
    assert_false(read_piece(1));
    const uint32_t sent = end[0].sent;
    while (end[1].read < sent + 100) {
        turn();
    }
    drain();
    assert_int_equal(end[1].read, end[0].sent);
    close_ends();
}

/* A credit for pieces that were never sent gives no room. */
static void wrong_credits_give_no_room(void **state)
{
    (void) state;
    start((net_fake_params_t){.jitter = 0});
    progress();
    while (net_fake_step()) {
        progress();
    }
    while (send_piece(0)) {
    }
    progress();
    gpusym_net_head_t head = {
        .token = token[0], .generation = 0, .channel = 3, .mark = GPUSYM_NET_MARK, .kind = GPUSYM_NET_CREDIT};
    for (unsigned n = 0; n < FUZZ; n++) {
        head.credit = PIECES + 1 + (uint32_t) (next_random() % (UINT32_MAX - PIECES));
        net_fake_inject(gpusym_net_streams_net(end[0].streams), &head, sizeof head, NULL, 0);
        assert_int_equal(gpusym_net_stream_room(end[0].stream), 0);
    }
    drain();
    assert_int_equal(gpusym_net_stream_room(end[0].stream), PIECES);
    close_ends();
}

static void memory_is_bounded_and_comes_back(void **state)
{
    gpusym_net_stream_t *streams[MEMORY / (PIECES * PIECE)], *more;
    gpusym_net_stream_params_t params;

    (void) state;
    start((net_fake_params_t){.jitter = NET_FAKE_DELAY, .slow = 1000});
    const uint64_t one = gpusym_net_streams_used(end[0].streams);
    assert_true(one >= PIECES * PIECE && one < PIECES * PIECE + 4096 && 0 == one % 4096); /* whole pages */
    unsigned n = 0;
    for (;; n++) {
        params = stream_params(0);
        params.channel = (uint16_t) (100 + n);
        const int rc = gpusym_net_stream_open(end[0].streams, &params, &streams[n]);
        if (GPUSYM_SUCCESS != rc) {
            assert_int_equal(rc, GPUSYM_ERR_NO_MEMORY);
            break;
        }
    }
    assert_true(n > 0 && gpusym_net_streams_used(end[0].streams) <= MEMORY);
    params.pieces_in = 0; /* without a ring there is always room */
    assert_int_equal(gpusym_net_stream_open(end[0].streams, &params, &more), GPUSYM_SUCCESS);
    assert_true(gpusym_net_stream_close(more)); /* nothing was sent yet */
    progress();
    for (unsigned k = 0; k < n; k++) {
        unsigned waits = 0;
        while (!gpusym_net_stream_close(streams[k])) { /* its hello is under way */
            waits++;
            assert_true(net_fake_step());
            progress();
        }
        assert_true(0 != k || 0 != waits);
    }
    assert_int_equal(gpusym_net_streams_used(end[0].streams), one);
    close_ends();
}

static void wrong_sizes_are_refused(void **state)
{
    gpusym_net_stream_t *stream;
    gpusym_net_stream_params_t params;

    (void) state;
    start((net_fake_params_t){.jitter = 0});
    params = stream_params(0);
    assert_int_equal(gpusym_net_stream_open(end[0].streams, &params, &stream), GPUSYM_ERR_BAD_PARAM); /* there is one */
    const struct {
        uint32_t pieces, bytes;
    } wrong[] = {{3, PIECE}, {2 * GPUSYM_NET_PIECES_MAX, 64}, {4, 0}, {4, 100}, {4, LONG + 64}};
    for (unsigned k = 0; k < 2 * sizeof wrong / sizeof *wrong; k++) {
        params = stream_params(0);
        params.channel = 4;
        *(k % 2 ? &params.pieces_in : &params.pieces_out) = wrong[k / 2].pieces;
        *(k % 2 ? &params.bytes_in : &params.bytes_out) = wrong[k / 2].bytes;
        assert_int_equal(gpusym_net_stream_open(end[0].streams, &params, &stream), GPUSYM_ERR_BAD_PARAM);
    }
    gpusym_net_message_t message = {.sent = 1};
    progress();
    assert_true(net_fake_step());
    progress();
    assert_int_equal(gpusym_net_stream_room_for(end[0].stream, LONG), PIECES / 2);
    assert_int_equal(gpusym_net_stream_room_for(end[0].stream, LONG + 1), 0);
    assert_int_equal(gpusym_net_stream_send(end[0].stream, &message, end[0].data, LONG + 1), GPUSYM_ERR_BAD_PARAM);
    close_ends();
}

static int whole_pieces(void **state)
{
    (void) state;
    part_bytes = 0;
    return 0;
}

static int long_pieces(void **state)
{
    longest = LONG;
    return whole_pieces(state);
}

static int pieces_in_parts(void **state)
{
    (void) state;
    part_bytes = 64;
    return 0;
}

static int long_pieces_in_parts(void **state)
{
    longest = LONG;
    return pieces_in_parts(state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_come_in_their_order),
        cmocka_unit_test(doubled_messages_are_dropped),
        cmocka_unit_test(times_are_one_way_each),
        cmocka_unit_test(an_end_may_open_later),
        cmocka_unit_test(late_pieces_of_a_generation_are_dropped),
        cmocka_unit_test(a_lost_piece_stops_the_stream),
        cmocka_unit_test(a_cut_link_holds_all_back),
        cmocka_unit_test(a_killed_peer_is_lost_once_and_frees_what_is_sent),
        cmocka_unit_test(notes_need_no_room),
        cmocka_unit_test(random_messages_change_nothing),
        cmocka_unit_test(wrong_credits_give_no_room),
        cmocka_unit_test(memory_is_bounded_and_comes_back),
        cmocka_unit_test(wrong_sizes_are_refused),
    };
    const struct CMUnitTest of_any_length[] = {
        cmocka_unit_test(pieces_come_in_their_order),
        cmocka_unit_test(doubled_messages_are_dropped),
        cmocka_unit_test(late_pieces_of_a_generation_are_dropped),
        cmocka_unit_test(a_lost_piece_stops_the_stream),
        cmocka_unit_test(a_cut_link_holds_all_back),
        cmocka_unit_test(a_killed_peer_is_lost_once_and_frees_what_is_sent),
    };
    random_start(argc, argv);
    int failed = cmocka_run_group_tests_name("whole pieces", tests, whole_pieces, NULL);
    failed |= cmocka_run_group_tests_name("pieces in parts", tests, pieces_in_parts, NULL);
    failed |= cmocka_run_group_tests_name("long pieces", of_any_length, long_pieces, NULL);
    failed |= cmocka_run_group_tests_name("long pieces in parts", of_any_length, long_pieces_in_parts, NULL);
    return failed;
}
