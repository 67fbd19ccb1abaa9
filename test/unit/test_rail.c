/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/rail/: all processes of a rail in this one, on a simulated GPU, over a net that
 * delays and reorders messages in a time of its own.  Results are compared element by element; the net's time tells how
 * many one-way delays a call takes, its counters how many bytes it sends.  Calls are done with one input and one output
 * of each process, and again with several, as many as chance has it.  A seed as the argument repeats a run.
 */
#include <sched.h>
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

#define LINGER_NS 2000000u
#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

enum {
    PLACES = 32,
    PIECE = 4096,
    MOST = 3,         /* inputs, and outputs, of a process */
    ROOM = 320 << 10, /* of a buffer */
    RINGS = 24 << 20, /* of a process; not touched but for what streams use */
};

static gpusym_device_t dev;
static gpusym_gpu_t *gpu;
static uint64_t copied; /* by the copier */

/* A process. */
typedef struct {
    gpusym_net_streams_t *streams;
    gpusym_rail_t *rail;
    gpusym_net_peer_t *peer[PLACES];
    char *host, *device;              /* pinned */
    char *in[MOST], *out[MOST];       /* memory of the GPU */
    uint32_t nin, nout;               /* of the call */
    void *input[MOST], *output[MOST]; /* [nin], [nout]: the call's */
    int ended;
    bool lost;
} place_t;

static place_t place[PLACES];
static uint32_t n;
static uint32_t most;                                   /* 1 or MOST */
static unsigned char *input[PLACES][MOST], *got, *want; /* of the host */

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
    const gpusym_net_streams_params_t net = {.transport = &net_fake,
                                             .piece_bytes = GPUSYM_RAIL_LONG_BYTES(PIECE),
                                             .memory = host,
                                             .bytes = RINGS,
                                             .arg = p,
                                             .lost = note_lost};
    OK(gpusym_net_streams_open(&net, &p->streams, &why));
    const gpusym_rail_params_t rail = {.dev = &dev,
                                       .gpu = gpu,
                                       .copier = place == p, /* all have the same GPU */
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
    copied += place[0].rail->counters.copies;
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
        bool moved = false, copies = false;
        left = 0;
        for (uint32_t p = 0; p < n; p++) {
            before += place[p].rail->counters.launches + place[p].rail->counters.pieces;
            moved = gpusym_net_streams_progress(place[p].streams) || moved;
            if (0 == place[p].ended) {
                place[p].ended = gpusym_rail_poll(place[p].rail);
                moved = moved || 0 != place[p].ended;
                left += 0 == place[p].ended;
            }
            const bool copying = place[p].rail->copies.queued != place[p].rail->copies.ended;
            assert_false(1 == place[p].ended && copying);
            copies = copies || (0 == place[p].ended && copying);
            after += place[p].rail->counters.launches + place[p].rail->counters.pieces;
        }
        still = moved || copies || before != after ? 0 : still + 1;
        end_kernels();
        if (copies) {
            sched_yield(); /* to the copier */
        }
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
    memset(got, 0xa5, ROOM);
    for (uint32_t k = 0; k < n * most; k++) {
        const uint32_t p = k / most, i = k % most;
        for (uint32_t b = 0; b < ROOM; b += 8) {
            const uint64_t x = next_random();
            memcpy(input[p][i] + b, &x, 8);
        }
        OK(dev.copy(gpu, place[p].in[i], input[p][i], ROOM));
        OK(dev.copy(gpu, place[p].out[i], got, ROOM));
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
        for (uint32_t i = 0; i < place[p].nin; i++) {
            add(want, input[p][i] + off, bytes);
        }
    }
}

/* Compares the first bytes of a process's outputs with want, and all behind with what was there. */
static void compare(uint32_t p, uint64_t bytes)
{
    static unsigned char still[ROOM];
    memset(still, 0xa5, sizeof still);
    for (uint32_t o = 0; o < place[p].nout; o++) {
        const bool in_place = place[p].output[o] == place[p].in[o];
        OK(dev.copy(gpu, got, place[p].output[o], ROOM));
        assert_memory_equal(got, want, bytes);
        assert_memory_equal(got + bytes, (in_place ? input[p][o] : still) + bytes, ROOM - bytes);
    }
}

static bool is_path(const gpusym_rail_call_t *c, enum gs_schedule_kind kind)
{
    return GPUSYM_RAIL_PATH == c->form && kind == c->schedule;
}

static bool is_bcast(const gpusym_rail_call_t *c)
{
    return is_path(c, GS_CHAIN_BCAST) || is_path(c, GS_TREE_BCAST) || c->rooted;
}

static bool is_reduction(const gpusym_rail_call_t *c)
{
    return !is_bcast(c) && !is_path(c, GS_RING_ALLGATHER) && (GPUSYM_RAIL_PATH == c->form || c->reduces);
}

/* Whether a process need have an output: to the other ones of a reduction nothing comes. */
static bool is_destination(const gpusym_rail_call_t *c, uint32_t p)
{
    return p == c->root || !(is_path(c, GS_CHAIN_REDUCE) || is_path(c, GS_TREE_REDUCE));
}

/* Describes a process's inputs and outputs, with none before the further ones at times. */
static void tell_buffers(const place_t *p, gpusym_rail_call_t *c)
{
    const uint32_t first_in = 0 == p->nin || (most > 1 && 0 == next_random() % 4) ? 0 : 1;
    const uint32_t first_out = 0 == p->nout || (most > 1 && 0 == next_random() % 4) ? 0 : 1;
    c->in = 0 != first_in ? p->input[0] : NULL;
    c->out = 0 != first_out ? p->output[0] : NULL;
    c->nin = p->nin - first_in;
    c->nout = p->nout - first_out;
    c->more_in = (const void *const *) (p->input + first_in);
    c->more_out = (void *const *) (p->output + first_out);
}

/* The call of each process, on the buffers that it has there.  In place: its i-th output is its i-th input. */
static void make_calls(gpusym_rail_call_t *calls, const gpusym_rail_call_t *like, bool in_place)
{
    static uint32_t number;
    number++;
    for (uint32_t i = 0; i < n; i++) {
        place_t *p = &place[i];
        p->nin = is_reduction(like) ? 1 + (uint32_t) (next_random() % most) : 1;
        p->nout = 1 + (uint32_t) (next_random() % most);
        if (most > 1) { /* some have none */
            p->nin = is_bcast(like) && i != like->root ? 0 : p->nin;
            p->nout = 0 == next_random() % 8 || !is_destination(like, i) ? 0 : p->nout;
        }
        for (uint32_t k = 0; k < MOST; k++) {
            p->input[k] = p->in[k];
            p->output[k] = in_place && k < p->nin ? p->in[k] : p->out[k];
        }
        calls[i] = *like;
        calls[i].op = GPUSYM_OP_SUM;
        calls[i].type = 0 != like->type ? like->type : GPUSYM_T_U32;
        calls[i].call = number;
        tell_buffers(p, &calls[i]);
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
    make_calls(calls, &(gpusym_rail_call_t){.form = GPUSYM_RAIL_PATH, .schedule = schedule, .bytes = bytes}, in_place);
    const uint64_t before = sent_bytes();
    (void) run(calls);
    sum_all(0, bytes);
    for (uint32_t p = 0; p < n; p++) {
        compare(p, bytes);
    }
    /* Of each rank 2 (n - 1) / n of the message, whichever way it goes. */
    assert_int_equal(sent_bytes() - before, 2 * (uint64_t) (n - 1) * bytes);
}

static uint64_t random_bytes(void)
{
    static const uint64_t longest[] = {64, 5000, 20000, 300000};
    return 4 * (1 + next_random() % (longest[next_random() % 4] / 4));
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
                   &(gpusym_rail_call_t){.form = GPUSYM_RAIL_PATH, .schedule = kind, .root = root, .bytes = bytes},
                   0 != (k & 8));
        (void) run(calls);
        if (reduces) {
            sum_all(0, bytes);
            compare(root, bytes);
        } else {
            memcpy(want, input[root][0], bytes);
            for (uint32_t p = 0; p < n; p++) {
                compare(p, bytes);
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
            make_calls(calls,
                       &(gpusym_rail_call_t){.form = GPUSYM_RAIL_PATH,
                                             .schedule = gathers ? GS_RING_ALLGATHER : GS_RING_REDUCE_SCATTER,
                                             .bytes = longest,
                                             .part = part_of},
                       false);
            (void) run(calls);
            for (uint32_t p = 0; p < n; p++) {
                if (!gathers) {
                    sum_all(parts[p].off, parts[p].bytes);
                    compare(p, parts[p].bytes);
                    continue;
                }
                memset(want, 0xa5, ROOM);
                for (uint32_t q = 0; q < n; q++) {
                    memcpy(want + parts[q].off, input[q][0], parts[q].bytes);
                }
                compare(p, ROOM);
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
            make_calls(
                calls,
                &(gpusym_rail_call_t){.form = GPUSYM_RAIL_DIRECT, .spread = true, .reduces = true, .bytes = bytes},
                0 != k % 2);
            const double delays = run(calls);
            sum_all(0, bytes);
            for (uint32_t p = 0; p < n; p++) {
                compare(p, bytes);
            }
            if (k > 0) {
                assert_true(delays < 1.01);
            }
        }
        close_places(n);
    }
}

/* A launch of the copier's that is kept back. */
static struct {
    bool keeps, there;
    gpusym_stream_t *stream;
    gpusym_work_t work;
} kept;

static int keep_copy(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    if (!kept.keeps || GPUSYM_F_COPY != kernel) {
        return gpusym_device_sim.graph_launch(graph, stream, kernel, w);
    }
    assert_false(kept.there);
    kept.there = true;
    kept.stream = stream;
    kept.work = *w;
    return GPUSYM_SUCCESS;
}

/* In place, where the copier is slow to read the input that a process sends: what has come from the others does not
 * overwrite it before.  By kernels: the CPU is not fast at this operation. */
static void slow_copier(void **state)
{
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    open_places(3, 0);
    fill_buffers();
    make_calls(calls,
               &(gpusym_rail_call_t){.form = GPUSYM_RAIL_DIRECT, .spread = true, .reduces = true, .bytes = DIRECT},
               true);
    gpusym_copiers_dismiss();
    kept.keeps = true;
    kept.there = false;
    for (uint32_t p = 0; p < n; p++) {
        calls[p].op = GPUSYM_OP_BXOR;
        place[p].ended = 0;
        OK(gpusym_rail_start(place[p].rail, &calls[p]));
    }
    for (uint32_t k = 0; k < 200; k++) {
        for (uint32_t p = 0; p < n; p++) {
            (void) gpusym_net_streams_progress(place[p].streams);
            assert_int_equal(gpusym_rail_poll(place[p].rail), 0);
        }
        end_kernels();
        (void) net_fake_step();
    }
    assert_true(kept.there);
    kept.keeps = false;
    OK(gpusym_device_sim.launch(kept.stream, GPUSYM_F_COPY, &kept.work));
    while (0 != poll_all()) {
        assert_true(net_fake_step());
    }
    for (uint32_t b = 0; b < DIRECT; b++) {
        want[b] = input[0][0][b] ^ input[1][0][b] ^ input[2][0][b];
    }
    for (uint32_t p = 0; p < n; p++) {
        compare(p, DIRECT);
    }
    close_places(n);
}

/* Of a tree up and down, for any number of processes: reductions of any type that the CPU may be slow at, and
 * broadcasts from anywhere.  Its rings are those of its neighbours, whatever the root. */
static void tree(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 5, 8, 13, 18, 31, 32};
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    for (uint32_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        open_places(counts[k], k % 2 ? NET_FAKE_DELAY : 0);
        const uint32_t degree = gpusym_tuning_tree_degree(n), depth = gpusym_tuning_tree_depth(n, degree);
        for (uint32_t i = 0; i < 10; i++) {
            const uint64_t bytes = 4 * (1 + next_random() % (DIRECT / 4));
            const bool reduces = i % 2;
            const uint32_t root = (uint32_t) next_random() % n;
            fill_buffers();
            make_calls(
                calls,
                &(gpusym_rail_call_t){
                    .form = GPUSYM_RAIL_TREE, .reduces = reduces, .rooted = !reduces, .root = root, .bytes = bytes},
                3 == i);
            const double delays = run(calls);
            if (reduces) {
                sum_all(0, bytes);
            } else {
                memcpy(want, input[root][0], bytes);
            }
            for (uint32_t p = 0; p < n; p++) {
                compare(p, bytes);
            }
            assert_true(i < 2 || 0 != k % 2 || delays < 2 * depth + 0.01);
        }
        for (uint32_t p = 0; p < n; p++) {
            assert_true(gpusym_net_streams_used(place[p].streams) <= (1 + degree) * GPUSYM_RAIL_PIECES * DIRECT);
        }
        close_places(n);
    }
}

/* One process sends to all others, in one step where it is short. */
static void broadcast(void **state)
{
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    for (uint32_t count = 1; count <= 8; count++) {
        open_places(count, 0);
        for (uint32_t k = 0; k < 6; k++) {
            const bool one_piece = k < 3;
            const uint64_t bytes = 1 + next_random() % (one_piece ? DIRECT : 40 * DIRECT);
            const uint32_t root = 0 == k ? 0 : (uint32_t) (next_random() % n);
            fill_buffers();
            make_calls(calls,
                       &(gpusym_rail_call_t){
                           .form = GPUSYM_RAIL_DIRECT, .spread = true, .rooted = true, .root = root, .bytes = bytes},
                       0 != k % 2);
            const uint64_t before = sent_bytes(), of_root = gpusym_rail_counters(place[root].rail)->bytes;
            const double delays = run(calls);
            memcpy(want, input[root][0], bytes);
            for (uint32_t p = 0; p < n; p++) {
                compare(p, bytes);
            }
            assert_int_equal(gpusym_rail_counters(place[root].rail)->bytes - of_root, (n - 1) * bytes);
            assert_int_equal(sent_bytes() - before, (n - 1) * bytes);
            if (k > 0 && one_piece && 0 == root) { /* its streams are open */
                assert_true(delays < 1.01);
            }
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
            make_calls(
                calls,
                &(gpusym_rail_call_t){.form = GPUSYM_RAIL_DIRECT, .spread = same, .part = part_to, .from = part_from},
                false);
            for (uint32_t p = 0; p < n; p++) {
                calls[p].arg = &place[p];
                calls[p].bytes = to_part[p][p].bytes;
            }
            (void) run(calls);
            for (uint32_t q = 0; q < n; q++) {
                memset(want, 0xa5, ROOM);
                for (uint32_t p = 0; p < n; p++) {
                    memcpy(want + from_part[p][q].off, input[p][0] + to_part[p][q].off, to_part[p][q].bytes);
                }
                compare(q, ROOM);
            }
        }
        close_places(n);
    }
}

/* Exchanges in place: lengths are the same both ways; long ones that take more buffers than there are. */
static void exchange_in_place(void **state)
{
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    for (uint32_t k = 0; k < 10; k++) {
        uint64_t at[PLACES] = {0};
        open_places(k < 8 ? 1 + k : 3, 0 == k % 2 ? 2 * NET_FAKE_DELAY : 0);
        for (uint32_t q = 0; q < n * n; q++) {
            const uint32_t a = q / n, b = q % n;
            const uint64_t any = 0 == next_random() % 3 ? 0 : next_random() % (0 == k % 3 ? 30000 : 3000);
            const uint64_t bytes = b < a ? to_part[b][a].bytes : any;
            to_part[a][b] = from_part[b][a] = (gpusym_rail_part_t){at[a], bytes};
            at[a] += bytes + next_random() % 30;
        }
        fill_buffers();
        make_calls(calls, &(gpusym_rail_call_t){.form = GPUSYM_RAIL_DIRECT, .part = part_to, .from = part_from}, true);
        for (uint32_t p = 0; p < n; p++) {
            place[p].nout = 1;
            calls[p].in = calls[p].out = place[p].in[0];
            calls[p].nin = calls[p].nout = 0;
            calls[p].arg = &place[p];
        }
        (void) run(calls);
        for (uint32_t q = 0; q < n; q++) {
            memcpy(want, input[q][0], ROOM);
            for (uint32_t p = 0; p < n; p++) {
                memcpy(want + from_part[p][q].off, input[p][0] + to_part[p][q].off, to_part[p][q].bytes);
            }
            compare(q, ROOM);
        }
        close_places(n);
    }
}

/* ---- several inputs and outputs ---- */

/* Floats in all inputs, whose sum depends on the order. */
static void fill_floats(uint32_t count)
{
    fill_buffers();
    for (uint32_t k = 0; k < n * most; k++) {
        float *x = (float *) (void *) input[k / most][k % most];
        for (uint32_t i = 0; i < count; i++) {
            x[i] = (float) (int32_t) next_random() / (float) (1 + next_random() % 1000);
        }
        OK(dev.copy(gpu, place[k / most].in[k % most], x, ROOM));
    }
}

/* Sets want to the sums that the first process has, which are about right. */
static void check_floats(uint32_t count)
{
    OK(dev.copy(gpu, want, place[0].output[0], ROOM));
    for (uint32_t i = 0; i < count; i++) {
        double sum = 0, size = 0;
        for (uint32_t p = 0; p < n; p++) {
            for (uint32_t k = 0; k < place[p].nin; k++) {
                const double x = (double) ((const float *) (const void *) input[p][k])[i];
                sum += x;
                size += x < 0 ? -x : x;
            }
        }
        const double off = (double) ((const float *) (const void *) want)[i] - sum;
        assert_true((off < 0 ? -off : off) <= size * 1e-5);
    }
}

/* Sums of floats: whichever way they are reduced, all processes have the same bits. */
static void same_bits(void **state)
{
    static const gpusym_rail_call_t forms[] = {
        {.form = GPUSYM_RAIL_PATH, .schedule = GS_RING_ALLREDUCE},
        {.form = GPUSYM_RAIL_PATH, .schedule = GS_TREE_ALLREDUCE},
        {.form = GPUSYM_RAIL_DIRECT, .spread = true, .reduces = true},
        {.form = GPUSYM_RAIL_TREE, .reduces = true},
    };
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    for (uint32_t k = 0; k < 80; k++) {
        gpusym_rail_call_t like = forms[k % 4];
        const uint32_t count = 1 + (uint32_t) (next_random() % 64);
        if (0 == k % 4) {
            open_places(2 + (uint32_t) (next_random() % 7), NET_FAKE_DELAY);
        }
        like.type = GPUSYM_T_F32;
        like.bytes = count * sizeof(float);
        fill_floats(count);
        make_calls(calls, &like, 0 != (k & 8));
        place[0].nout = 0 == place[0].nout ? 1 : place[0].nout;
        tell_buffers(&place[0], &calls[0]);
        (void) run(calls);
        check_floats(count);
        for (uint32_t p = 0; p < n; p++) {
            compare(p, like.bytes);
        }
        if (3 == k % 4) {
            close_places(n);
        }
    }
}

/* Scans of floats, in place or not, of any number of ranks of each process: the bits of one sum in rank order. */
static void scan(void **state)
{
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    for (uint32_t k = 0; k < 12; k++) {
        const bool exclusive = 0 != k % 2, in_place = 0 != (k & 2);
        const uint64_t bytes = random_bytes();
        open_places(2 + k % 6, NET_FAKE_DELAY);
        fill_floats((uint32_t) (bytes / sizeof(float)));
        make_calls(calls,
                   &(gpusym_rail_call_t){.form = GPUSYM_RAIL_PATH,
                                         .schedule = GS_CHAIN_REDUCE,
                                         .root = n - 1,
                                         .scan = exclusive ? GPUSYM_RAIL_EXSCAN : GPUSYM_RAIL_SCAN,
                                         .type = GPUSYM_T_F32,
                                         .bytes = bytes},
                   in_place);
        for (uint32_t p = 0; p < n; p++) {
            place[p].nout = place[p].nin;
            if (exclusive && 0 == p) {
                place[p].output[0] = NULL;
            } else if (exclusive && p == n - 1) {
                place[p].input[place[p].nin - 1] = NULL;
            }
            calls[p].in = calls[p].out = NULL;
            calls[p].nin = calls[p].nout = place[p].nin;
            calls[p].more_in = (const void *const *) place[p].input;
            calls[p].more_out = (void *const *) place[p].output;
        }
        (void) run(calls);
        float *sum = (float *) (void *) want;
        for (uint32_t p = 0, rank = 0; p < n; p++) {
            for (uint32_t i = 0; i < place[p].nin; i++, rank++) {
                const float *x = (const float *) (const void *) input[p][i];
                if (NULL != place[p].output[i]) {
                    OK(dev.copy(gpu, got, place[p].output[i], ROOM));
                }
                for (uint32_t e = 0; e < bytes / sizeof(float); e++) {
                    const float before = sum[e];
                    sum[e] = 0 == rank ? x[e] : before + x[e];
                    if (exclusive && 0 != rank) {
                        assert_memory_equal(got + e * sizeof(float), &before, sizeof before);
                    } else if (!exclusive) {
                        assert_memory_equal(got + e * sizeof(float), &sum[e], sizeof before);
                    }
                }
            }
        }
        close_places(n);
    }
}

/* A call of as many inputs and outputs as a launch has room for, each of them some bytes of one buffer. */
static void as_many_as_fit(void **state)
{
    enum { BYTES = 200 };
    static const enum gs_schedule_kind kinds[] = {GS_RING_ALLREDUCE, GS_TREE_ALLREDUCE};
    gpusym_rail_call_t calls[PLACES];
    const void *in[GPUSYM_TEAM_MAX];
    void *out[GPUSYM_TEAM_MAX];
    (void) state;
    open_places(4, 0);
    for (uint32_t k = 0; k < 4; k++) {
        gpusym_rail_call_t like = {.form = 2 == k   ? GPUSYM_RAIL_DIRECT
                                           : 3 == k ? GPUSYM_RAIL_TREE
                                                    : GPUSYM_RAIL_PATH,
                                   .schedule = kinds[k % 2],
                                   .spread = 2 == k,
                                   .reduces = true,
                                   .bytes = BYTES};
        const uint32_t nin = GPUSYM_TEAM_MAX - (k < 2 ? 1 + k : 0), nout = GPUSYM_TEAM_MAX - (k < 2 ? 1 : 0);
        const uint32_t full = (uint32_t) (next_random() % n);
        fill_buffers();
        make_calls(calls, &like, false);
        for (uint32_t i = 0; i < GPUSYM_TEAM_MAX; i++) {
            in[i] = place[full].in[0] + i * BYTES;
            out[i] = place[full].out[0] + i * BYTES;
        }
        calls[full].in = NULL;
        calls[full].out = NULL;
        calls[full].more_in = in;
        calls[full].more_out = out;
        calls[full].nin = nin;
        calls[full].nout = nout;
        (void) run(calls);
        place[full].nin = 0;
        sum_all(0, BYTES);
        for (uint32_t i = 0; i < nin; i++) {
            add(want, input[full][0] + i * BYTES, BYTES);
        }
        OK(dev.copy(gpu, got, place[full].out[0], ROOM));
        for (uint32_t o = 0; o < nout; o++) {
            assert_memory_equal(got + o * BYTES, want, BYTES);
        }
        for (uint32_t p = 0; p < n; p++) {
            place[p].nout = p == full ? 0 : place[p].nout;
            compare(p, BYTES);
        }
    }
    close_places(n);
}

static gpusym_rail_part_t part_behind(const void *arg, uint32_t pos)
{
    const gpusym_rail_part_t part = part_of(arg, pos);
    return (gpusym_rail_part_t){part.off + 1, part.bytes};
}

static void refuse(gpusym_rail_call_t like, uint32_t nin, uint32_t nout, bool in_place)
{
    const void *in[GPUSYM_TEAM_MAX + 1];
    void *out[GPUSYM_TEAM_MAX + 1];
    for (uint32_t i = 0; i <= GPUSYM_TEAM_MAX; i++) {
        in[i] = place[0].in[0] + 256 * i;
        out[i] = in_place ? place[0].in[0] + 256 * i : place[0].out[0] + 256 * i;
    }
    like.op = GPUSYM_OP_SUM;
    like.type = GPUSYM_T_U32;
    like.in = 0 != nin ? in[0] : NULL;
    like.out = 0 != nout ? out[0] : NULL;
    like.more_in = in + 1;
    like.more_out = out + 1;
    like.nin = 0 != nin ? nin - 1 : 0;
    like.nout = 0 != nout ? nout - 1 : 0;
    like.bytes = 64;
    like.part = part_of;
    like.from = NULL != like.from ? like.from : part_of;
    assert_int_equal(gpusym_rail_start(place[0].rail, &like), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_rail_counters(place[0].rail)->launches, 0);
}

/* What a form does not do, each refusal for one reason. */
static void refused(void **state)
{
    const gpusym_rail_call_t ring = {.form = GPUSYM_RAIL_PATH, .schedule = GS_RING_ALLREDUCE},
                             tree = {.form = GPUSYM_RAIL_PATH, .schedule = GS_TREE_ALLREDUCE},
                             scatter = {.form = GPUSYM_RAIL_PATH, .schedule = GS_RING_REDUCE_SCATTER},
                             collect = {.form = GPUSYM_RAIL_PATH, .schedule = GS_RING_ALLGATHER},
                             bcast = {.form = GPUSYM_RAIL_PATH, .schedule = GS_CHAIN_BCAST},
                             one_shot = {.form = GPUSYM_RAIL_DIRECT, .spread = true, .reduces = true},
                             sum = {.form = GPUSYM_RAIL_TREE, .reduces = true},
                             spread = {.form = GPUSYM_RAIL_TREE, .rooted = true},
                             swap = {.form = GPUSYM_RAIL_DIRECT, .from = part_behind},
                             from_root = {.form = GPUSYM_RAIL_DIRECT, .spread = true, .rooted = true};
    gpusym_rail_call_t other;
    (void) state;
    open_places(2, 0);
    parts[0] = parts[1] = (gpusym_rail_part_t){0, 64};
    refuse(ring, GPUSYM_TEAM_MAX, 1, false);
    refuse(ring, 1, GPUSYM_TEAM_MAX, false);
    refuse(tree, GPUSYM_TEAM_MAX - 1, 1, false);
    refuse(one_shot, GPUSYM_TEAM_MAX + 1, 1, false);
    refuse(one_shot, 1, GPUSYM_TEAM_MAX + 1, false);
    refuse(collect, 2, 1, false);
    refuse(bcast, 2, 1, false);
    refuse(spread, 2, 1, false);
    refuse(from_root, 2, 1, false);
    refuse(ring, 0, 1, false);
    refuse(collect, 0, 1, false);
    refuse(bcast, 0, 1, false);
    refuse(one_shot, 0, 1, false);
    refuse(sum, 0, 1, false);
    refuse(spread, 0, 1, false);
    refuse(from_root, 0, 1, false);
    refuse(scatter, 2, 2, true);
    refuse(swap, 1, 2, true);
    other = from_root;
    other.reduces = true;
    refuse(other, 1, 1, false);
    other = from_root;
    other.spread = false;
    refuse(other, 1, 1, false);
    other = sum;
    other.rooted = true;
    refuse(other, 1, 1, false);
    other = ring;
    other.scan = GPUSYM_RAIL_SCAN;
    refuse(other, 1, 1, false);
    close_places(n);
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
        make_calls(calls,
                   &(gpusym_rail_call_t){.form = 0 == k % 2 ? GPUSYM_RAIL_PATH : GPUSYM_RAIL_DIRECT,
                                         .schedule = GS_RING_ALLREDUCE,
                                         .spread = true,
                                         .from = part_of,
                                         .bytes = 100000},
                   false);
        for (uint32_t p = 0; p < n; p++) {
            parts[p] = (gpusym_rail_part_t){100000 * p, 100000};
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
/* Starts a held call on the processes of a set; polls until the net is quiet; without `moves` the net stands still. No
 * output is written. */
static void hold(const gpusym_rail_call_t *calls, uint32_t set, bool moves)
{
    for (uint32_t p = 0; p < n; p++) {
        place[p].ended = 0 != (set >> p & 1) ? 0 : 1; /* 1: it does not take part */
        if (0 == place[p].ended) {
            OK(gpusym_rail_start(place[p].rail, &calls[p]));
        }
    }
    do {
        (void) poll_all();
    } while (moves && net_fake_step());
    memset(want, 0xa5, ROOM);
    for (uint32_t p = 0; p < n; p++) {
        for (uint32_t o = 0; o < place[p].nout; o++) {
            OK(dev.copy(gpu, got, place[p].output[o], ROOM));
            const bool in_place = place[p].output[o] == place[p].in[o];
            assert_memory_equal(got, in_place ? input[p][o] : want, ROOM);
        }
    }
}

static bool is_quiet(void)
{
    bool quiet = true;
    for (uint32_t p = 0; p < n; p++) {
        quiet = quiet && gpusym_rail_quiet(place[p].rail);
    }
    return quiet;
}

/* After a call was dropped: moves the net until no message of it is under way. */
static void quieten(void)
{
    while (!is_quiet()) {
        assert_true(net_fake_step());
        for (uint32_t q = 0; q < n; q++) {
            (void) gpusym_net_streams_progress(place[q].streams);
        }
    }
}

/* Held calls are released, or given up by all that had started them; later ones find nothing of those. */
/* Places whose exchange waits for its answer. */
static uint32_t exchanging(void)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < n; p++) {
        count += NULL != place[p].rail->copies.exchange.copier;
    }
    return count;
}

/* Waits until the GPU waits no longer for answers, which come later than that. */
static uint32_t let_exchanges_end(void)
{
    const uint32_t count = exchanging();
    while (0 != exchanging()) {
        (void) poll_all();
    }
    return count;
}

static void held(void **state)
{
    gpusym_rail_call_t calls[PLACES];
    uint32_t unquiet = 0, exchanged = 0, late = 0;
    (void) state;
    for (uint32_t count = 2; count <= 6; count++) {
        open_places(count, 0);
        for (uint32_t k = 0; k < 24; k++) {
            const uint64_t bytes = 4 * (1 + next_random() % (DIRECT / 16));
            const bool by_tree = 0 != k % 2, dropped = 0 != k % 3;
            const bool moves = !dropped || 0 != k % 5; /* a drop waits for kernels alone */
            const gpusym_rail_call_t like = {.form = by_tree ? GPUSYM_RAIL_TREE : GPUSYM_RAIL_DIRECT,
                                             .spread = !by_tree,
                                             .reduces = true,
                                             .held = true,
                                             .bytes = bytes};
            fill_buffers();
            make_calls(calls, &like, !by_tree && 0 != k % 4);
            hold(calls, dropped ? (uint32_t) next_random() : UINT32_MAX, moves);
            exchanged += exchanging();
            late += 0 == k % 6 ? let_exchanges_end() : 0;
            for (uint32_t p = 0; p < n; p++) {
                if (dropped) {
                    while (!gpusym_rail_drop(place[p].rail)) { /* its exchange waits for the answer */
                        sched_yield();
                    }
                } else {
                    gpusym_rail_release(place[p].rail);
                    place[p].ended = 0;
                }
            }
            if (dropped) {
                unquiet += !is_quiet();
                quieten();
                continue;
            }
            while (0 != poll_all()) {
                assert_true(net_fake_step());
            }
            sum_all(0, bytes);
            for (uint32_t p = 0; p < n; p++) {
                compare(p, bytes);
            }
        }
        close_places(n);
    }
    assert_true(0 != unquiet);
    assert_true(exchanged > late && late > 0);
}

static void wrong_call(void **state)
{
    gpusym_rail_call_t calls[PLACES];
    (void) state;
    open_places(2, 0);
    fill_buffers();
    make_calls(calls, &(gpusym_rail_call_t){.form = GPUSYM_RAIL_PATH, .schedule = GS_RING_ALLREDUCE, .bytes = 64},
               false);
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
    dev.graph_launch = keep_copy;
    OK(dev.open(&why));
    OK(dev.gpu_open(NULL, &gpu));
    OK(dev.kernels_load(gpu, &why));
    gpusym_copier_linger(&dev, gpu, LINGER_NS, false);
    for (uint32_t k = 0; k < PLACES * MOST; k++) {
        const uint32_t p = k / MOST, i = k % MOST;
        OK(dev.mem_alloc(gpu, ROOM, (void **) &place[p].in[i]));
        OK(dev.mem_alloc(gpu, ROOM, (void **) &place[p].out[i]));
        input[p][i] = malloc(ROOM);
    }
    got = malloc(ROOM);
    want = malloc(ROOM);
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    assert_true(copied > 0);
    gpusym_copiers_close();
    gpusym_lanes_close();
    for (uint32_t k = 0; k < PLACES * MOST; k++) {
        const uint32_t p = k / MOST, i = k % MOST;
        OK(dev.mem_free(gpu, place[p].in[i]));
        OK(dev.mem_free(gpu, place[p].out[i]));
        free(input[p][i]);
    }
    free(got);
    free(want);
    dev.close();
    return 0;
}

static int take_one(void **state)
{
    (void) state;
    most = 1;
    return 0;
}

static int take_several(void **state)
{
    (void) state;
    most = MOST;
    return 0;
}

#define ONE(test)                         \
    {                                     \
#test, test, take_one, NULL, NULL \
    }
#define SEVERAL(test)                                    \
    {                                                    \
#test "_several", test, take_several, NULL, NULL \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ONE(allreduce_rings_and_trees),
        SEVERAL(allreduce_rings_and_trees),
        ONE(rooted),
        SEVERAL(rooted),
        ONE(gather_and_scatter),
        SEVERAL(gather_and_scatter),
        ONE(one_shot),
        SEVERAL(one_shot),
        ONE(slow_copier),
        ONE(tree),
        SEVERAL(tree),
        ONE(broadcast),
        SEVERAL(broadcast),
        ONE(exchange),
        SEVERAL(exchange),
        ONE(exchange_in_place),
        ONE(scan),
        SEVERAL(scan),
        SEVERAL(same_bits),
        SEVERAL(as_many_as_fit),
        SEVERAL(refused),
        ONE(peer_dies),
        SEVERAL(peer_dies),
        ONE(held),
        SEVERAL(held),
        ONE(wrong_call),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
