/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/rail/: all processes of a rail in this one, on a simulated GPU, over a net that
 * delays and reorders messages in a time of its own.  Results are compared element by element; the net's time tells how
 * many one-way delays a call takes, its counters how many bytes it sends.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/rail/hop.h"
#include "mca/common/gpusym/rail/rail.h"
#include "test/unit/net_fake.h"
#include "test/unit/random.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

enum {
    PLACES = 32,
    PIECE = 4096,
    ROOM = 1 << 20,   /* of a buffer */
    RINGS = 24 << 20, /* of a process; not touched but for what streams use */
};

static gpusym_device_t dev;
static gpusym_gpu_t *gpu;

/* A process. */
typedef struct {
    gpusym_net_streams_t *streams;
    gpusym_rail_t *rail;
    gpusym_net_peer_t *peer[PLACES];
    char *host, *device; /* pinned */
    char *in, *out;      /* of the GPU */
    int ended;
    bool lost;
} place_t;

static place_t place[PLACES];
static uint32_t n;
static unsigned char *input[PLACES], *got, *want; /* of the host */

static void note_lost(void *arg, void *owner, const char *why)
{
    (void) owner;
    (void) why;
    ((place_t *) arg)->lost = true;
}

static int find_peer(void *arg, uint32_t pos, gpusym_rail_peer_t *peer)
{
    const uint32_t me = (uint32_t) ((place_t *) arg - place);
    if (NULL == place[me].peer[pos]) {
        size_t bytes;
        const void *address = net_fake.address(gpusym_net_streams_net(place[pos].streams), &bytes);
        const int rc = net_fake.peer_open(gpusym_net_streams_net(place[me].streams), address, bytes, false, arg,
                                          &place[me].peer[pos]);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
    }
    *peer = (gpusym_rail_peer_t){.net = place[me].peer[pos],
                                 .token_in = 1000 + PLACES * pos + me,
                                 .token_out = 1000 + PLACES * me + pos,
                                 .owner = arg};
    return GPUSYM_SUCCESS;
}

static void open_place(place_t *p)
{
    const char *why = "";
    void *host, *device;
    OK(dev.host_alloc(gpu, RINGS + GPUSYM_RAIL_SEND_BYTES(PIECE), &host, &device));
    p->host = host;
    p->device = device;
    p->lost = false;
    memset(p->peer, 0, sizeof p->peer);
    const gpusym_net_streams_params_t net = {
        .transport = &net_fake, .piece_bytes = PIECE, .memory = host, .bytes = RINGS, .arg = p, .lost = note_lost};
    OK(gpusym_net_streams_open(&net, &p->streams, &why));
    const gpusym_rail_params_t rail = {.dev = &dev,
                                       .gpu = gpu,
                                       .streams = p->streams,
                                       .host = p->host,
                                       .device = p->device,
                                       .send = p->host + RINGS,
                                       .piece_bytes = PIECE,
                                       .n = n,
                                       .pos = (uint32_t) (p - place),
                                       .peer = find_peer,
                                       .arg = p};
    OK(gpusym_rail_open(&rail, &p->rail));
}

static void open_places(uint32_t count, uint32_t jitter)
{
    const net_fake_params_t params = {.seed = next_random(), .jitter = jitter, .slow = 0 != jitter ? 100 : 0};
    n = count;
    net_fake_start(&params);
    for (uint32_t p = 0; p < n; p++) {
        open_place(&place[p]);
    }
}

/* dead: one that was killed, or n. */
static void close_places(uint32_t dead)
{
    for (uint32_t p = 0; p < n; p++) {
        while (p != dead && !gpusym_rail_close(place[p].rail)) {
            for (uint32_t q = 0; q < n; q++) {
                (void) gpusym_net_streams_progress(place[q].streams);
            }
            (void) net_fake_step();
        }
    }
    for (uint32_t p = 0; p < n; p++) {
        gpusym_net_streams_close(place[p].streams);
        gpusym_rail_free(p == dead ? place[p].rail : NULL);
        OK(dev.host_free(gpu, place[p].host));
    }
}

/* Runs kernels that were queued to their end: they take none of the net's time. */
static void end_kernels(void)
{
    for (uint32_t p = 0; p < n; p++) {
        for (uint32_t i = 0; i < GPUSYM_RAIL_CHANNELS; i++) {
            gpusym_lane_t *lane = place[p].rail->lane[i];
            if (NULL != lane && 0 == place[p].ended) {
                assert_int_equal(gpusym_lane_await(lane), 1);
            }
        }
    }
}

/* Polls all until nothing changes at this time of the net. Returns how many have not ended. */
static uint32_t poll_all(void)
{
    uint32_t left, still = 0;
    do {
        uint64_t before = 0, after = 0;
        bool moved = false;
        left = 0;
        for (uint32_t p = 0; p < n; p++) {
            before += place[p].rail->counters.launches + place[p].rail->counters.pieces;
            moved = gpusym_net_streams_progress(place[p].streams) || moved;
            if (0 == place[p].ended) {
                place[p].ended = gpusym_rail_poll(place[p].rail);
                moved = moved || 0 != place[p].ended;
                left += 0 == place[p].ended;
            }
            after += place[p].rail->counters.launches + place[p].rail->counters.pieces;
        }
        still = moved || before != after ? 0 : still + 1;
        end_kernels();
    } while (still < 4); /* a kernel ends, a poll opens a stream, or releases a piece, the next progress tells */
    return left;
}

/* Does a call on all processes. Returns the one-way delays that it took. */
static double run(const gpusym_rail_call_t *calls)
{
    const uint64_t begin = net_fake_now();
    for (uint32_t p = 0; p < n; p++) {
        place[p].ended = 0;
        OK(gpusym_rail_start(place[p].rail, &calls[p]));
    }
    while (0 != poll_all()) {
        assert_true(net_fake_step());
    }
    for (uint32_t p = 0; p < n; p++) {
        assert_int_equal(place[p].ended, 1);
    }
    return (double) (net_fake_now() - begin) / NET_FAKE_DELAY;
}

/* ---- data ---- */

/* Any values; bytes beyond a call's, which must stay. */
static void fill_buffers(void)
{
    for (uint32_t p = 0; p < n; p++) {
        for (uint32_t i = 0; i < ROOM; i += 8) {
            const uint64_t x = next_random();
            memcpy(input[p] + i, &x, 8);
        }
        memset(got, 0xa5, ROOM);
        OK(dev.copy(gpu, place[p].in, input[p], ROOM));
        OK(dev.copy(gpu, place[p].out, got, ROOM));
    }
}

/* Adds 32-bit words modulo 2^32: any order gives the same. */
static void add(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 4) {
        uint32_t a, b;
        memcpy(&a, to + i, 4);
        memcpy(&b, from + i, 4);
        a += b;
        memcpy(to + i, &a, 4);
    }
}

static void sum_all(uint64_t off, uint64_t bytes)
{
    memset(want, 0, bytes);
    for (uint32_t p = 0; p < n; p++) {
        add(want, input[p] + off, bytes);
    }
}

/* Compares the first bytes of a process's output with want, and all behind with what was there. */
static void compare(uint32_t p, const char *out, uint64_t bytes)
{
    static unsigned char still[ROOM];
    OK(dev.copy(gpu, got, out, ROOM));
    assert_memory_equal(got, want, bytes);
    if (out == place[p].out) {
        memset(still, 0xa5, sizeof still);
        assert_memory_equal(got + bytes, still, ROOM - bytes);
    }
}

static void make_calls(gpusym_rail_call_t *calls, const gpusym_rail_call_t *like)
{
    static uint32_t number;
    number++;
    for (uint32_t p = 0; p < n; p++) {
        calls[p] = *like;
        calls[p].op = GPUSYM_OP_SUM;
        calls[p].type = GPUSYM_T_U32;
        calls[p].in = place[p].in;
        calls[p].out = place[p].out;
        calls[p].call = number;
    }
}

/* ---- paths ---- */

static uint64_t sent_bytes(void)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < n; p++) {
        bytes += gpusym_rail_counters(place[p].rail)->bytes;
    }
    return bytes;
}

static void check_allreduce(enum gs_schedule_kind schedule, uint64_t bytes, bool in_place)
{
    gpusym_rail_call_t calls[PLACES];
    fill_buffers();
    make_calls(calls, &(gpusym_rail_call_t){.form = GPUSYM_RAIL_PATH, .schedule = schedule, .bytes = bytes});
    for (uint32_t p = 0; p < n && in_place; p++) {
        calls[p].out = place[p].in;
    }
    const uint64_t before = sent_bytes();
    (void) run(calls);
    sum_all(0, bytes);
    for (uint32_t p = 0; p < n; p++) {
        compare(p, calls[p].out, bytes);
    }
    /* Of each rank 2 (n - 1) / n of the message, whichever way it goes. */
    assert_int_equal(sent_bytes() - before, 2 * (uint64_t) (n - 1) * bytes);
}

static uint64_t random_bytes(void)
{
    static const uint64_t most[] = {64, 5000, 20000, 300000};
    return 4 * (1 + next_random() % (most[next_random() % 4] / 4));
}

static void allreduce_rings_and_trees(void **state)
{
    (void) state;
    for (uint32_t count = 2; count <= 9; count++) {
        open_places(count, 3 * NET_FAKE_DELAY);
        for (uint32_t k = 0; k < 6; k++) {
            check_allreduce(GS_RING_ALLREDUCE, random_bytes(), 0 != (k & 1));
            check_allreduce(GS_TREE_ALLREDUCE, random_bytes(), 0 != (k & 1));
        }
        close_places(n);
    }
}

static void rooted(void **state)
{
    static const enum gs_schedule_kind kinds[] = {GS_CHAIN_BCAST, GS_CHAIN_REDUCE, GS_TREE_BCAST, GS_TREE_REDUCE};
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    for (uint32_t k = 0; k < 60; k++) {
        const enum gs_schedule_kind kind = kinds[k % 4];
        const bool reduces = GS_CHAIN_REDUCE == kind || GS_TREE_REDUCE == kind;
        const uint64_t bytes = random_bytes();
        if (0 == k % 4) {
            open_places(2 + (uint32_t) (next_random() % 7), NET_FAKE_DELAY);
        }
        const uint32_t root = (uint32_t) (next_random() % n);
        fill_buffers();
        make_calls(calls,
                   &(gpusym_rail_call_t){.form = GPUSYM_RAIL_PATH, .schedule = kind, .root = root, .bytes = bytes});
        (void) run(calls);
        if (reduces) {
            sum_all(0, bytes);
            compare(root, place[root].out, bytes);
        } else {
            memcpy(want, input[root], bytes);
            for (uint32_t p = 0; p < n; p++) {
                compare(p, place[p].out, bytes);
            }
        }
        if (3 == k % 4) {
            close_places(n);
        }
    }
}

/* Parts of any length, some of none. */
static gpusym_rail_part_t parts[PLACES];

static gpusym_rail_part_t part_of(const void *arg, uint32_t pos)
{
    (void) arg;
    return parts[pos];
}

static uint64_t make_parts(void)
{
    uint64_t off = 0, longest = 0;
    for (uint32_t p = 0; p < n; p++) {
        off += 4 * (next_random() % 16);
        parts[p].off = off;
        parts[p].bytes = 0 == next_random() % 4 ? 0 : 4 * (next_random() % 8000);
        longest = parts[p].bytes > longest ? parts[p].bytes : longest;
        off += parts[p].bytes;
    }
    assert_true(off <= ROOM);
    return longest;
}

static void gather_and_scatter(void **state)
{
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    for (uint32_t count = 2; count <= 8; count++) {
        open_places(count, 2 * NET_FAKE_DELAY);
        for (uint32_t k = 0; k < 4; k++) {
            const bool gathers = 0 == k % 2;
            const uint64_t longest = make_parts();
            fill_buffers();
            make_calls(calls, &(gpusym_rail_call_t){.form = GPUSYM_RAIL_PATH,
                                                    .schedule = gathers ? GS_RING_ALLGATHER : GS_RING_REDUCE_SCATTER,
                                                    .bytes = longest,
                                                    .part = part_of});
            (void) run(calls);
            for (uint32_t p = 0; p < n; p++) {
                if (!gathers) {
                    sum_all(parts[p].off, parts[p].bytes);
                    compare(p, place[p].out, parts[p].bytes);
                    continue;
                }
                memset(want, 0xa5, ROOM);
                for (uint32_t q = 0; q < n; q++) {
                    memcpy(want + parts[q].off, input[q], parts[q].bytes);
                }
                compare(p, place[p].out, ROOM);
            }
        }
        close_places(n);
    }
}

/* ---- direct ---- */

/* Longest direct piece. */
enum { DIRECT = PIECE / 4 };

/* One step among up to 8, once the streams are open. */
static void one_shot(void **state)
{
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    for (uint32_t count = 2; count <= 8; count++) {
        open_places(count, 0);
        for (uint32_t k = 0; k < 6; k++) {
            const uint64_t bytes = 0 == k ? 8 : 4 * (1 + next_random() % (DIRECT / 4));
            fill_buffers();
            make_calls(calls, &(gpusym_rail_call_t){
                                  .form = GPUSYM_RAIL_DIRECT, .spread = true, .reduces = true, .bytes = bytes});
            for (uint32_t p = 0; p < n && k % 2; p++) {
                calls[p].out = place[p].in;
            }
            const double delays = run(calls);
            sum_all(0, bytes);
            for (uint32_t p = 0; p < n; p++) {
                compare(p, calls[p].out, bytes);
            }
            if (k > 0) {
                assert_true(delays < 1.01);
            }
        }
        close_places(n);
    }
}

/* ceil(log2 n) steps, for any number of processes: reduced, and gathered. */
static void few_steps(void **state)
{
    static const uint32_t counts[] = {2, 3, 5, 8, 13, 16, 31, 32};
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    for (uint32_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        open_places(counts[k], 0);
        uint32_t steps = 0;
        while (1u << steps < n) {
            steps++;
        }
        for (uint32_t i = 0; i < 4; i++) {
            const uint64_t bytes = 4 * (1 + next_random() % (2 * DIRECT / n / 4));
            fill_buffers();
            make_calls(calls, &(gpusym_rail_call_t){
                                  .form = GPUSYM_RAIL_GATHER, .reduces = i % 2, .from = part_of, .bytes = bytes});
            memset(want, 0xa5, ROOM);
            for (uint32_t p = 0; p < n; p++) {
                parts[p] = (gpusym_rail_part_t){p * (bytes + 12), bytes};
                memcpy(want + parts[p].off, input[p], bytes);
            }
            const double delays = run(calls);
            if (i % 2) {
                sum_all(0, bytes);
            }
            for (uint32_t p = 0; p < n; p++) {
                compare(p, place[p].out, i % 2 ? bytes : ROOM);
            }
            assert_true(0 == i || delays < steps + 0.01);
        }
        close_places(n);
    }
}

/* What p sends to q, in p's input and in q's output. */
static gpusym_rail_part_t to_part[PLACES][PLACES], from_part[PLACES][PLACES];

static gpusym_rail_part_t part_to(const void *arg, uint32_t pos)
{
    return to_part[(const place_t *) arg - place][pos];
}

static gpusym_rail_part_t part_from(const void *arg, uint32_t pos)
{
    return from_part[pos][(const place_t *) arg - place];
}

static void make_pairs(bool same)
{
    uint64_t in[PLACES] = {0}, out[PLACES] = {0};
    for (uint32_t p = 0; p < n; p++) {
        const uint64_t all = next_random() % 9000;
        for (uint32_t q = 0; q < n; q++) {
            const uint64_t bytes = same ? all : 0 == next_random() % 3 ? 0 : next_random() % 9000;
            to_part[p][q] = (gpusym_rail_part_t){same ? 0 : in[p], bytes};
            from_part[p][q] = (gpusym_rail_part_t){out[q], bytes};
            in[p] += bytes;
            out[q] += bytes + next_random() % 30;
        }
    }
}

static void exchange(void **state)
{
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    for (uint32_t count = 1; count <= 9; count++) {
        open_places(count, 2 * NET_FAKE_DELAY);
        for (uint32_t k = 0; k < 6; k++) {
            const bool same = 0 == k % 3;
            make_pairs(same);
            fill_buffers();
            make_calls(calls, &(gpusym_rail_call_t){
                                  .form = GPUSYM_RAIL_DIRECT, .spread = same, .part = part_to, .from = part_from});
            for (uint32_t p = 0; p < n; p++) {
                calls[p].arg = &place[p];
                calls[p].bytes = to_part[p][p].bytes;
            }
            (void) run(calls);
            for (uint32_t q = 0; q < n; q++) {
                memset(want, 0xa5, ROOM);
                for (uint32_t p = 0; p < n; p++) {
                    memcpy(want + from_part[p][q].off, input[p] + to_part[p][q].off, to_part[p][q].bytes);
                }
                compare(q, place[q].out, ROOM);
            }
        }
        close_places(n);
    }
}

/* ---- failures ---- */

/* A process dies in the midst of a call: the others can close their rails. */
static void peer_dies(void **state)
{
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    for (uint32_t k = 0; k < 12; k++) {
        open_places(3, NET_FAKE_DELAY);
        fill_buffers();
        make_calls(calls, &(gpusym_rail_call_t){.form = 0 == k % 2 ? GPUSYM_RAIL_PATH : GPUSYM_RAIL_DIRECT,
                                                .schedule = GS_RING_ALLREDUCE,
                                                .spread = true,
                                                .from = part_of,
                                                .bytes = 300000});
        for (uint32_t p = 0; p < n; p++) {
            parts[p] = (gpusym_rail_part_t){300000 * p, 300000};
            place[p].ended = 0;
            OK(gpusym_rail_start(place[p].rail, &calls[p]));
        }
        for (uint64_t steps = next_random() % 60; steps > 0 && 0 != poll_all(); steps--) {
            (void) net_fake_step();
        }
        net_fake_kill(gpusym_net_streams_net(place[1].streams));
        place[1].ended = 1;
        do {
            (void) poll_all();
        } while (net_fake_step());
        (void) poll_all();
        assert_true(place[0].lost && place[2].lost);
        close_places(1);
    }
}

/* A process does another call: an error, not its data. */
static void wrong_call(void **state)
{
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    open_places(2, 0);
    fill_buffers();
    make_calls(calls, &(gpusym_rail_call_t){.form = GPUSYM_RAIL_PATH, .schedule = GS_RING_ALLREDUCE, .bytes = 64});
    calls[1].call++;
    for (uint32_t p = 0; p < n; p++) {
        place[p].ended = 0;
        OK(gpusym_rail_start(place[p].rail, &calls[p]));
    }
    while (2 == poll_all()) {
        assert_true(net_fake_step());
    }
    for (uint32_t p = 0; p < n; p++) { /* the other may wait for a piece that the first did not come to send */
        assert_true(0 == place[p].ended || GPUSYM_ERR_CORRUPT == place[p].ended);
    }
    close_places(n);
}

static int setup(void **state)
{
    const char *why = "";
    (void) state;
    dev = gpusym_device_sim;
    OK(dev.open(&why));
    OK(dev.gpu_open(NULL, &gpu));
    OK(dev.kernels_load(gpu, &why));
    for (uint32_t p = 0; p < PLACES; p++) {
        OK(dev.mem_alloc(gpu, ROOM, (void **) &place[p].in));
        OK(dev.mem_alloc(gpu, ROOM, (void **) &place[p].out));
        input[p] = malloc(ROOM);
    }
    got = malloc(ROOM);
    want = malloc(ROOM);
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    gpusym_lanes_close();
    for (uint32_t p = 0; p < PLACES; p++) {
        OK(dev.mem_free(gpu, place[p].in));
        OK(dev.mem_free(gpu, place[p].out));
        free(input[p]);
    }
    free(got);
    free(want);
    dev.close();
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allreduce_rings_and_trees),
        cmocka_unit_test(rooted),
        cmocka_unit_test(gather_and_scatter),
        cmocka_unit_test(one_shot),
        cmocka_unit_test(few_steps),
        cmocka_unit_test(exchange),
        cmocka_unit_test(peer_dies),
        cmocka_unit_test(wrong_call),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
