/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/exec/copy.c, queue.h and staged.h on the simulated GPU: every way to copy, by sizes,
 * alignments and rows, beside each other, in order, and with what the device cannot do.
 * A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/exec/copier.h"
#include "mca/common/gpusym/memory/pinned.h"
#include "mca/common/gpusym/exec/queue.h"
#include "mca/common/gpusym/exec/staged.h"
#include "test/unit/clock.h"
#include "test/unit/random.h"
#include "tuning/copy.h"
#include "tuning/resident.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

enum { ROOM = 5 << 20, MARGIN = 64 };
#define LINGER_NS 200000u       /* by the tests' own clock (test/unit/clock.h) */
#define FOR_EVER_NS 1000000000u /* as long as no time passes */
static gpusym_device_t dev;     /* the simulator, less what a test takes away */
static gpusym_gpu_t *gpu;
static char *from, *to; /* of the GPU */
static unsigned char *sent, *got, *expected;
static unsigned launches, copies, stays; /* stays: launches of kernels that stay */
static gpusym_stream_t *launched;        /* the stream of the last kernel */
static unsigned copy_fails;              /* the n-th copy of a copy engine from now on; 0: none */
static bool driver_fails;                /* to make up for it */

static int launch_counted(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    assert_true(GPUSYM_F_COPY == kernel || GPUSYM_F_BOXES == kernel);
    __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&stays, 0 != w->linger_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&launched, stream, __ATOMIC_RELAXED);
    return gpusym_device_sim.graph_launch(graph, stream, kernel, w);
}

static int copy_counted(gpusym_stream_t *stream, void *dst, const void *src, size_t size)
{
    __atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED);
    if (0 != copy_fails && 0 == --copy_fails) {
        driver_fails = true;
        return GPUSYM_ERR;
    }
    return gpusym_device_sim.copy_async(stream, dst, src, size);
}

static int copy_at_once(gpusym_gpu_t *on, void *dst, const void *src, size_t size)
{
    const bool fails = driver_fails;
    driver_fails = false;
    return fails ? GPUSYM_ERR : gpusym_device_sim.copy(on, dst, src, size);
}

static int setup(void **state)
{
    const char *why = "";
    (void) state;
    dev = gpusym_device_sim;
    dev.graph_launch = launch_counted;
    dev.copy_async = copy_counted;
    dev.copy = copy_at_once;
    launches = copies = stays = 0;
    OK(dev.open(&why));
    OK(dev.gpu_open(NULL, &gpu));
    OK(dev.mem_alloc(gpu, ROOM, (void **) &from));
    OK(dev.mem_alloc(gpu, ROOM, (void **) &to));
    OK(dev.copy(gpu, from, sent, ROOM));
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    gpusym_copy_queues_close();
    gpusym_lanes_close();
    OK(dev.mem_free(gpu, from));
    OK(dev.mem_free(gpu, to));
    gpusym_pinned_close(&dev);
    dev.close();
    gpusym_sim_params.fail = NULL;
    return 0;
}

/* Opens the device anew, with such faults (sim.h). */
static void open_failing(const char *faults)
{
    const char *why;
    gpusym_copy_queues_close();
    gpusym_lanes_close();
    gpusym_pinned_close(&dev);
    dev.close();
    gpusym_sim_params.fail = faults;
    OK(dev.open(&why));
    OK(dev.gpu_open(NULL, &gpu));
    OK(dev.mem_alloc(gpu, ROOM, (void **) &from));
    OK(dev.mem_alloc(gpu, ROOM, (void **) &to));
    OK(dev.copy(gpu, from, sent, ROOM));
}

static int finish(gpusym_copy_t *copy)
{
    int rc;
    while (0 == (rc = gpusym_copy_poll(copy))) {
        sched_yield();
    }
    assert_int_equal(gpusym_copy_poll(copy), 1); /* it stays ended */
    return rc;
}

/* Copies rows that begin at `at` and `src`, and compares the whole destination. */
static void copy_rows(uint64_t at, uint64_t src, uint64_t width, uint64_t height, uint64_t to_pitch,
                      uint64_t from_pitch)
{
    const gpusym_copy_rows_t rows = {.dst = to + at,
                                     .src = from + src,
                                     .width = width,
                                     .height = height,
                                     .to_pitch = to_pitch,
                                     .from_pitch = from_pitch};
    gpusym_copy_t copy;
    memset(expected, 0xee, ROOM);
    OK(dev.copy(gpu, to, expected, ROOM));
    for (uint64_t row = 0; row < height; row++) {
        memcpy(expected + at + row * to_pitch, sent + src + row * from_pitch, width);
    }
    OK(gpusym_copy_start_rows(&dev, gpu, &rows, &copy));
    assert_int_equal(finish(&copy), 1);
    OK(dev.copy(gpu, got, to, ROOM));
    if (0 != memcmp(got, expected, ROOM)) {
        fail_msg("%lu rows of %lu bytes at %lu + %lu from %lu + %lu", (unsigned long) height, (unsigned long) width,
                 (unsigned long) at, (unsigned long) to_pitch, (unsigned long) src, (unsigned long) from_pitch);
    }
}

static void runs_of_any_length_and_alignment(void **state)
{
    static const uint64_t sizes[] = {1, 2, 7, 15, 16, 17, 31, 100, 4095, 8192, 8193, 70001, 1 << 20, (4 << 20) + 1};
    (void) state;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (unsigned j = 0; j < 6; j++) {
            copy_rows(next_random() % MARGIN, next_random() % MARGIN, sizes[i], 1, 0, 0);
        }
        const uint64_t same = next_random() % MARGIN; /* off a pack by as much */
        copy_rows(same, same + 16, sizes[i], 1, 0, 0);
        copy_rows(0, 0, sizes[i], 1, 0, 0);
    }
    assert_true(launches > 0 && copies > 0);
}

static void rows_of_any_length_and_pitch(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 150; i++) {
        const uint64_t unit = 1u << next_random() % 5, width = unit * (1 + next_random() % (200 >> next_random() % 8));
        const uint64_t more = unit * (next_random() % 5), less = unit * (next_random() % 5);
        const uint64_t most = (ROOM - 2 * MARGIN) / (width + 80) >> next_random() % 12;
        const uint64_t height = 1 + next_random() % (1 + most);
        copy_rows(unit * (next_random() % 3), unit * (next_random() % 3), width, height, width + more, width + less);
    }
    const unsigned by_kernel = launches;
    copy_rows(1, 2, 5000, 900, 5001, 5002); /* long rows of much: a copy engine */
    assert_int_equal(launches, by_kernel);
    copy_rows(1, 2, 5000, 900, 5000, 5000); /* one run */
    copy_rows(3, 4, 8, 200000, 16, 24);     /* short ones of much: a kernel */
    assert_int_equal(launches, by_kernel + 1);
    assert_true(copies > 0);
}

static void nothing_is_at_once(void **state)
{
    gpusym_copy_t copy;
    (void) state;
    OK(gpusym_copy_start(&dev, gpu, NULL, NULL, 0, &copy));
    assert_int_equal(gpusym_copy_poll(&copy), 1);
    assert_int_equal(launches + copies, 0);
}

static void pinned_memory_is_copied(void **state)
{
    void *host, *dev_host;
    gpusym_copy_t copy;
    (void) state;
    OK(dev.host_alloc(gpu, ROOM, &host, &dev_host));
    for (uint64_t bytes = 100; bytes < ROOM; bytes *= 200) {
        OK(gpusym_copy_start(&dev, gpu, dev_host, from + 1, bytes, &copy));
        assert_int_equal(finish(&copy), 1);
        assert_memory_equal(host, sent + 1, bytes);
        memset(host, (int) bytes, bytes);
        OK(gpusym_copy_start(&dev, gpu, to, dev_host, bytes, &copy));
        assert_int_equal(finish(&copy), 1);
        OK(dev.copy(gpu, got, to, bytes));
        assert_memory_equal(got, host, bytes);
    }
    OK(dev.host_free(gpu, host));
}

/* ---- many at a time ---- */

enum { PIECE = 4096, AT_A_TIME = 64, PIECES = ROOM / PIECE };

/* Copies pieces [first, end), some at a time, in random order of polls. */
static void copy_pieces(unsigned first, unsigned end, uint64_t random)
{
    gpusym_copy_t copy[AT_A_TIME] = {{0}};
    bool busy[AT_A_TIME] = {false};
    unsigned under_way = 0;
    while (first < end || 0 != under_way) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        const unsigned i = random >> 33 & (AT_A_TIME - 1), n = 1 + (random >> 45) % 8;
        if (!busy[i] && first < end) {
            const unsigned pieces = n < end - first ? n : end - first;
            const uint64_t off = (uint64_t) first * PIECE;
            busy[i] = GPUSYM_SUCCESS == gpusym_copy_start(&dev, gpu, to + off, from + off, pieces * PIECE, &copy[i]);
            first += pieces;
            under_way += busy[i];
        } else if (busy[i] && 0 != gpusym_copy_poll(&copy[i])) {
            busy[i] = false;
            under_way--;
        }
    }
}

static void *copy_half(void *half)
{
    const unsigned first = NULL == half ? 0 : PIECES / 2;
    copy_pieces(first, first + PIECES / 2, seed + first);
    return NULL;
}

static void many_go_beside_each_other(void **state)
{
    pthread_t other;
    (void) state;
    for (unsigned round = 0; round < 20; round++) {
        memset(got, (int) round, ROOM);
        OK(dev.copy(gpu, to, got, ROOM));
        assert_int_equal(pthread_create(&other, NULL, copy_half, to), 0);
        copy_half(NULL);
        pthread_join(other, NULL);
        OK(dev.copy(gpu, got, to, ROOM));
        assert_memory_equal(got, sent, ROOM);
    }
}

/* What has been copied is there as soon as a copy says so, whatever else is in the lane. */
static void each_tells_its_own_end(void **state)
{
    enum { N = 24 };
    gpusym_copy_t copy[N];
    (void) state;
    for (unsigned round = 0; round < 30; round++) {
        memset(got, 0xee, ROOM);
        OK(dev.copy(gpu, to, got, ROOM));
        for (unsigned i = 0; i < N; i++) {
            OK(gpusym_copy_start(&dev, gpu, to + i * 200000, from + i * 200000, 1 + next_random() % 200000, &copy[i]));
        }
        for (unsigned i = N; i-- > 0;) {
            assert_int_equal(finish(&copy[i]), 1);
            OK(dev.copy(gpu, got, to + i * 200000, 1));
            assert_int_equal(got[0], sent[i * 200000]);
        }
    }
}

/* ---- copies that share a launch ---- */

enum { SHARERS = 20, PLACE = 200 << 10 };

/* The launches of n copies that wait for one another. */
static unsigned launches_of(const uint64_t *bytes, unsigned n)
{
    unsigned all = n > 0, runs = 0;
    uint64_t sum = 0;
    for (unsigned i = 0; i < n; i++, runs++) {
        if (!gpusym_tuning_copy_joins(runs, sum)) {
            all++;
            runs = 0;
            sum = 0;
        }
        sum += bytes[i];
    }
    return all;
}

static void copies_share_launches(void **state)
{
    gpusym_copy_t copy[SHARERS];
    uint64_t bytes[SHARERS], at[SHARERS], src[SHARERS];
    (void) state;
    for (unsigned round = 0; round < 60; round++) {
        const unsigned n = 1 + next_random() % SHARERS, before = launches;
        memset(expected, 0xee, ROOM);
        OK(dev.copy(gpu, to, expected, ROOM));
        for (unsigned i = 0; i < n; i++) {
            bytes[i] = 1 + (next_random() % (PLACE - 2 * MARGIN) >> next_random() % 18);
            at[i] = (uint64_t) i * PLACE + next_random() % MARGIN;
            src[i] = (uint64_t) i * PLACE + next_random() % MARGIN;
            memcpy(expected + at[i], sent + src[i], bytes[i]);
            const gpusym_copy_rows_t run = {
                .dst = to + at[i], .src = from + src[i], .width = bytes[i], .height = 1, .local = true, .shared = true};
            OK(gpusym_copy_start_rows(&dev, gpu, &run, &copy[i]));
        }
        if (0 == round % 2) {
            gpusym_copy_flush(true); /* else the first poll launches */
            gpusym_copy_flush(true);
        }
        for (unsigned i = n; i-- > 0;) {
            assert_int_equal(finish(&copy[i]), 1);
        }
        assert_int_equal(launches - before, launches_of(bytes, n));
        OK(dev.copy(gpu, got, to, ROOM));
        assert_memory_equal(got, expected, ROOM);
    }
    assert_int_equal(copies, 0);
}

/* ---- boxes ---- */

/* A box of the product of four counts, of units: the first `inner` of them are its rows. Distances with gaps. Returns
 * the bytes from its first to its last. */
static uint64_t random_box(const uint32_t count[4], uint32_t unit, unsigned inner, gpusym_box_t *box)
{
    uint32_t n[3] = {1, 1, 1};
    uint64_t extent;
    *box = (gpusym_box_t){.bytes = unit};
    for (unsigned i = 0; i < 4; i++) {
        if (i < inner) {
            box->bytes *= count[i];
        } else {
            n[i - inner] = count[i];
        }
    }
    extent = box->bytes;
    for (unsigned d = 0; d < 3; d++) {
        box->stride[d] = 1 == n[d] ? 0 : (uint32_t) extent + unit * (next_random() % 3);
        extent += (uint64_t) (n[d] - 1) * box->stride[d];
    }
    box->n[0] = n[0];
    box->n[1] = n[1];
    return extent;
}

/* Where a packed byte of a box lies. */
static uint64_t place_of(const gpusym_box_t *box, uint64_t at)
{
    const uint64_t row = at / box->bytes, plane = row / box->n[0];
    return at % box->bytes + row % box->n[0] * box->stride[0] + plane % box->n[1] * box->stride[1] +
           plane / box->n[1] * box->stride[2];
}

/* Copies some boxes at once; what is not of a box stays. */
static void copy_boxes(unsigned n)
{
    enum { BOX_PLACE = ROOM / SHARERS };
    gpusym_copy_t copy[SHARERS];
    memset(expected, 0xee, ROOM);
    OK(dev.copy(gpu, to, expected, ROOM));
    for (unsigned i = 0; i < n; i++) {
        const uint32_t unit = 1u << next_random() % 6;
        uint32_t count[4];
        gpusym_box_run_t run;
        uint64_t most;
        do {
            for (unsigned d = 0; d < 4; d++) {
                count[d] = 1 + next_random() % (next_random() % 2 ? 4 : 17);
            }
            const uint64_t one = random_box(count, unit, 1 + next_random() % 4, &run.from);
            const uint64_t other = random_box(count, unit, 1 + next_random() % 4, &run.to);
            most = one > other ? one : other;
        } while (most + MARGIN > BOX_PLACE);
        const uint64_t src = (uint64_t) i * BOX_PLACE + next_random() % MARGIN;
        const uint64_t dst = (uint64_t) i * BOX_PLACE + next_random() % MARGIN;
        run.in = from + src;
        run.out = to + dst;
        run.bytes = unit * count[0] * count[1] * count[2] * count[3];
        run.bytes = next_random() % 4 ? run.bytes : 1 + next_random() % run.bytes; /* a part */
        for (uint64_t at = 0; at < run.bytes; at++) {
            expected[dst + place_of(&run.to, at)] = sent[src + place_of(&run.from, at)];
        }
        OK(gpusym_copy_start_box(&dev, gpu, &run, &copy[i]));
    }
    for (unsigned i = n; i-- > 0;) {
        assert_int_equal(finish(&copy[i]), 1);
    }
    OK(dev.copy(gpu, got, to, ROOM));
    assert_memory_equal(got, expected, ROOM);
}

static void boxes_share_launches(void **state)
{
    (void) state;
    for (unsigned round = 0; round < 60; round++) {
        const unsigned n = 1 + next_random() % SHARERS, before = launches;
        copy_boxes(n);
        assert_int_equal(launches - before, (n + GPUSYM_BOXES_MAX - 1) / GPUSYM_BOXES_MAX);
    }
    const gpusym_box_run_t none = {.bytes = 0};
    gpusym_copy_t copy;
    OK(gpusym_copy_start_box(&dev, gpu, &none, &copy));
    assert_int_equal(gpusym_copy_poll(&copy), 1);
}

/* ---- the copier ---- */

/* One short copy into memory of the GPU, and what is left around it. */
static void copy_short(uint64_t at, uint64_t src, uint64_t bytes)
{
    const gpusym_copy_rows_t run = {.dst = to + at, .src = from + src, .width = bytes, .height = 1, .local = true};
    gpusym_copy_t copy;
    memset(expected, 0xee, bytes + 64);
    OK(dev.copy(gpu, to + at - 32, expected, bytes + 64));
    memcpy(expected + 32, sent + src, bytes);
    OK(gpusym_copy_start_rows(&dev, gpu, &run, &copy));
    assert_int_equal(finish(&copy), 1);
    OK(dev.copy(gpu, got, to + at - 32, bytes + 64));
    assert_memory_equal(got, expected, bytes + 64);
}

/* Time passes until the copier's kernel has left. */
static void let_leave(void)
{
    while (1 != dev.stream_poll(launched)) {
        clock_go_on(LINGER_NS + 1);
        sched_yield();
    }
}

/* It leaves now, before the next copy or behind it. */
static void leave_now(void)
{
    clock_go_on(LINGER_NS + 1);
    for (uint64_t i = next_random() % 8; i > 0; i--) {
        sched_yield();
    }
}

static void random_short_copy(void)
{
    copy_short(32 + next_random() % 100, next_random() % 100, 1 + (next_random() % 16384 >> next_random() % 14));
}

static void a_copier_serves_without_launches(void **state)
{
    (void) state;
    gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
    for (unsigned i = 0; i < 1000; i++) {
        random_short_copy();
    }
    /* a kernel serves 256 copies beside its first */
    assert_int_equal(launches, 4);
    copy_rows(1, 2, 1000, 1, 0, 0); /* not said to be local: launched */
    copy_rows(1, 2, 20000, 1, 0, 0);
    copy_rows(1, 2, 10, 100, 20, 30);
    assert_int_equal(launches, 7);
    gpusym_copiers_dismiss();
    copy_short(32, 1, 100);
    assert_int_equal(launches, 8);
    copy_short(32, 1, 100);
    assert_int_equal(launches, 8);
    gpusym_copier_linger(&dev, gpu, 0, false);
    copy_short(32, 1, 100);
    copy_short(32, 1, 100);
    assert_int_equal(launches, 10);
}

/* Whole packs between addresses of packs are served up to a longer length; not beside a launch that others share. */
static void a_copier_serves_long_copies_of_packs(void **state)
{
    const uint64_t most = gpusym_tuning_copy_resident_packs_max(GPUSYM_CLUSTER_BLOCKS);
    const gpusym_copy_rows_t shared = {.dst = to, .src = from, .width = 200000, .height = 1, .shared = true};
    gpusym_copy_t copy;
    (void) state;
    assert_true(most <= ROOM / 2 && most > gpusym_tuning_copy_resident_max());
    gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
    copy_short(64, 0, most);
    assert_int_equal(launches, 1);
    for (unsigned i = 0; i < 100; i++) {
        copy_short(64, 16 * (next_random() % 8), 16 * (1 + next_random() % (most / 16)));
        random_short_copy();
    }
    copy_short(64, 32, most);
    assert_int_equal(launches, 1);
    copy_short(64, 33, 20000);
    copy_short(68, 32, 20000);
    copy_short(64, 32, 20001);
    copy_short(64, 32, most + 16);
    assert_int_equal(launches, 5);
    OK(gpusym_copy_start_rows(&dev, gpu, &shared, &copy));
    copy_short(ROOM / 2, 32, 20000);
    assert_int_equal(launches, 6);
    while (0 == gpusym_copy_poll(&copy)) {
    }
    assert_int_equal(launches, 7);
    copy_short(64, 32, 20000);
    assert_int_equal(launches, 7);
    gpusym_copiers_dismiss();
}

static unsigned clusters; /* launches of several blocks that stay */

static int launch_no_cluster(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    const bool cluster = 0 != w->linger_ns && w->nblocks > 1;
    clusters += cluster;
    return cluster ? GPUSYM_ERR : gpusym_device_sim.launch(stream, kernel, w);
}

static int graph_no_cluster(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    return 0 != w->linger_ns && w->nblocks > 1 ? GPUSYM_ERR : launch_counted(graph, stream, kernel, w);
}

static void without_clusters_told(gpusym_gpu_t *which, gpusym_gpu_info_t *info)
{
    gpusym_device_sim.gpu_info(which, info);
    info->clusters = false;
}

/* Where the GPU has no clusters, or none can be launched, which is found out once, one block stays, for shorter
 * copies. */
static void a_copier_without_a_cluster_has_one_block(void **state)
{
    const uint64_t most = gpusym_tuning_copy_resident_packs_max(1);
    (void) state;
    assert_true(most < gpusym_tuning_copy_resident_packs_max(GPUSYM_CLUSTER_BLOCKS));
    for (unsigned told = 0; told < 2; told++) {
        launches = clusters = 0;
        dev.graph_launch = 0 == told ? graph_no_cluster : launch_counted;
        dev.launch = launch_no_cluster;
        dev.gpu_info = 0 == told ? gpusym_device_sim.gpu_info : without_clusters_told;
        gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
        assert_int_equal(gpusym_copier_blocks(&dev, gpu), 0 == told ? GPUSYM_CLUSTER_BLOCKS : 1);
        for (unsigned i = 0; i < 10; i++) {
            copy_short(64, 32, most);
        }
        assert_int_equal(gpusym_copier_blocks(&dev, gpu), 1);
        assert_int_equal(clusters, 0 == told);
        assert_int_equal(launches, 1);
        copy_short(64, 32, most + 16);
        assert_int_equal(launches, 2);
        gpusym_copiers_close();
    }
}

/* A commanded copy from GPU memory to pinned host memory, or back; false: no kernel is there. */
static bool command(unsigned char *in_host, bool to_host, uint64_t at, uint64_t bytes)
{
    gpusym_copier_t *copier;
    int done;

    memset(in_host, 0xee, bytes + 64);
    if (!to_host) {
        memcpy(in_host + 32, sent + 1000 + at, bytes);
    }
    const gpusym_copier_run_t run = {.dst = to_host ? (char *) in_host + 32 : to + at,
                                     .src = to_host ? from + at : (char *) in_host + 32,
                                     .bytes = (uint32_t) bytes,
                                     .does = to_host ? GPUSYM_COPY_FAR : 0};
    const int rc = gpusym_copier_command(&dev, gpu, &run, &copier);
    if (GPUSYM_SUCCESS != rc) {
        assert_int_equal(rc, GPUSYM_ERR_NOT_AVAILABLE);
        return false;
    }
    while (0 == (done = gpusym_copier_poll(copier))) {
    }
    assert_int_equal(done, 1);
    if (to_host) {
        assert_memory_equal(in_host + 32, sent + at, bytes);
        assert_int_equal(in_host[31], 0xee);
        assert_int_equal(in_host[32 + bytes], 0xee);
    } else {
        OK(dev.copy(gpu, got, to + at, bytes));
        assert_memory_equal(got, sent + 1000 + at, bytes);
    }
    return true;
}

/* Short copies to pinned host memory launch a copier as others do, which then serves both. */
static void a_copier_serves_the_host_too(void **state)
{
    unsigned char *host;
    void *seen;

    (void) state;
    OK(dev.host_alloc(gpu, 16384, (void **) &host, &seen));
    gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
    for (unsigned i = 0; i < 200; i++) {
        const uint64_t bytes = 1 + (next_random() % 16384 >> next_random() % 14);
        const gpusym_copy_rows_t run = {.dst = seen, .src = from + i, .width = bytes, .height = 1, .far = true};
        gpusym_copy_t copy;

        memset(host, 0, bytes);
        OK(gpusym_copy_start_rows(&dev, gpu, &run, &copy));
        assert_int_equal(finish(&copy), 1);
        assert_memory_equal(host, sent + i, bytes);
        copy_short(32, 1, 100);
    }
    assert_int_equal(launches, 2); /* each serves 256 copies beside its first */
    gpusym_copiers_dismiss();
    OK(dev.host_free(gpu, host));
}

/* Commands to a kernel that is there, to host memory too, launch nothing, whatever it does meanwhile. */
static void a_command_launches_nothing(void **state)
{
    void *host, *dev_host;

    (void) state;
    OK(dev.host_alloc(gpu, 8192, &host, &dev_host));
    assert_false(command(host, true, 0, 4));
    gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
    assert_false(command(host, true, 0, 4));
    copy_short(32, 1, 100);
    for (unsigned i = 0; i < 200; i++) {
        assert_true(command(host, 0 != i % 3, next_random() % 100, 1 + (next_random() % 4096 >> next_random() % 12)));
    }
    assert_int_equal(launches, 1);
    gpusym_copiers_dismiss();
    assert_false(command(host, false, 0, 4));
    gpusym_copier_linger(&dev, gpu, LINGER_NS, false);
    for (unsigned i = 0; i < 600; i++) {
        copy_short(32, 1, 100);
        const unsigned before = launches;
        if (0 == i % 3) {
            let_leave();
        } else if (1 == i % 3) {
            leave_now();
        }
        const bool served = command(host, 0 != i % 2, next_random() % 100, 4);
        assert_int_equal(launches, before);
        assert_true(1 == i % 3 || (2 == i % 3) == served);
    }
    gpusym_copiers_dismiss();
    OK(dev.host_free(gpu, host));
}

/* The kernel leaves just when the next copy comes, or before, or after. */
static void a_copier_that_leaves_loses_nothing(void **state)
{
    (void) state;
    gpusym_copier_linger(&dev, gpu, LINGER_NS, false);
    for (unsigned i = 0; i < 1500; i++) {
        random_short_copy();
        if (0 == i % 3) {
            leave_now();
        }
        if (0 == i % 50) {
            gpusym_copiers_dismiss();
        }
    }
    assert_true(launches < 1000);
}

/* It cannot reach what a command names, and leaves. */
static void a_copier_that_cannot_is_launched_anew(void **state)
{
    (void) state;
    gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
    copy_short(32, 1, 100);
    open_failing("doorbell:2");
    gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
    launches = 0;
    for (unsigned i = 0; i < 20; i++) {
        random_short_copy();
    }
    assert_int_equal(launches, 2);
}

/* Where pauses are longer than the copier waits, it stays away after a while. */
static void a_copier_that_is_not_worth_it_stays_away(void **state)
{
    (void) state;
    gpusym_copier_linger(&dev, gpu, LINGER_NS, true);
    for (unsigned i = 0; i < GPUSYM_RESIDENT_MISSES + GPUSYM_RESIDENT_SKIP_FIRST; i++) {
        copy_short(32, 1, 100);
        let_leave();
    }
    assert_int_equal(launches, GPUSYM_RESIDENT_MISSES + GPUSYM_RESIDENT_SKIP_FIRST);
    assert_int_equal(stays, GPUSYM_RESIDENT_MISSES);
}

/* ---- lists ---- */

/* Short copies of runs at once, of which the copier does the first one, and has the rest in lists. */
static void copy_runs(unsigned n)
{
    gpusym_copy_t copy[GPUSYM_RUNS_MAX];
    memset(expected, 0xee, ROOM);
    OK(dev.copy(gpu, to, expected, ROOM));
    for (unsigned i = 0; i < n; i++) {
        const uint64_t unit = 1u << next_random() % 5, most = 3000 / unit < 120 ? 3000 / unit : 120;
        const uint64_t at = (uint64_t) i * PLACE + unit * (next_random() % (MARGIN / 16));
        const uint64_t src = (uint64_t) i * PLACE + unit * (next_random() % (MARGIN / 16));
        const uint64_t bytes = unit * (1 + next_random() % most);
        const gpusym_copy_rows_t run = {
            .dst = to + at, .src = from + src, .width = bytes, .height = 1, .local = true, .shared = true};
        memcpy(expected + at, sent + src, bytes);
        OK(gpusym_copy_start_rows(&dev, gpu, &run, &copy[i]));
    }
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(finish(&copy[i]), 1);
    }
    OK(dev.copy(gpu, got, to, ROOM));
    assert_memory_equal(got, expected, ROOM);
}

static void copy_some(unsigned round)
{
    if (0 == round % 3) {
        copy_boxes(1 + next_random() % SHARERS);
    } else {
        copy_runs(1 + next_random() % GPUSYM_RUNS_MAX);
    }
}

static void a_copier_does_lists(void **state)
{
    enum { ROUNDS = 60 };
    (void) state;
    gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
    for (unsigned round = 0; round < ROUNDS; round++) {
        copy_runs(GPUSYM_RUNS_MAX);
    }
    assert_int_equal(launches, 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        copy_some(round); /* of the boxes some are too long for it */
    }
}

static void lists_are_whole_whenever_the_copier_leaves(void **state)
{
    (void) state;
    gpusym_copier_linger(&dev, gpu, LINGER_NS, false);
    for (unsigned round = 0; round < 120; round++) {
        copy_some(round);
        if (0 == round % 2) {
            leave_now();
        }
        if (0 == round % 20) {
            gpusym_copiers_dismiss();
        }
    }
}

/* While it is busy, others go by lanes; two threads use it. */
static void *copy_many(void *arg)
{
    const uint64_t first = NULL == arg ? 0 : ROOM / 2;
    uint64_t random = seed + first;
    unsigned wrong = 0;
    for (unsigned i = 0; i < 2000; i++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        const uint64_t off = first + i * 256, bytes = 1 + (random >> 40) % 256;
        const gpusym_copy_rows_t run = {.dst = to + off, .src = from + off, .width = bytes, .height = 1, .local = true};
        gpusym_copy_t copy;
        int rc = 0;
        if (GPUSYM_SUCCESS == gpusym_copy_start_rows(&dev, gpu, &run, &copy)) {
            while (0 == (rc = gpusym_copy_poll(&copy))) {
                sched_yield();
            }
        }
        unsigned char byte = (unsigned char) ~sent[off];
        wrong += 1 != rc || GPUSYM_SUCCESS != dev.copy(gpu, &byte, to + off, 1) || byte != sent[off];
    }
    return wrong ? &copies : NULL;
}

static void two_threads_share_a_copier(void **state)
{
    pthread_t other;
    void *wrong;
    (void) state;
    gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
    assert_int_equal(pthread_create(&other, NULL, copy_many, to), 0);
    assert_null(copy_many(NULL));
    pthread_join(other, &wrong);
    assert_null(wrong);
    assert_true(launches < 4000);
}

/* ---- combinations ---- */

enum { COMBINES = 24, AT = 4096 }; /* of a type and an operation; where the target's elements are */

static gpusym_combine_t *combine, *combine_at; /* pinned; the same for the GPU */

static int combine_setup(void **state)
{
    const int rc = setup(state);
    OK(dev.host_alloc(gpu, sizeof *combine, (void **) &combine, (void **) &combine_at));
    gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
    return rc;
}

static int combine_teardown(void **state)
{
    gpusym_copiers_dismiss();
    OK(dev.host_free(gpu, combine));
    return teardown(state);
}

/* By a command of its own, what is described. */
static int run_combine(char *target, uint32_t bytes)
{
    const gpusym_copier_run_t run = {
        .dst = target, .src = combine_at, .bytes = bytes, .does = GPUSYM_COPY_COMBINES | GPUSYM_COPY_FAR};
    gpusym_copier_t *copier;
    int rc;
    OK(gpusym_copier_start(&dev, gpu, &run, &copier));
    while (0 == (rc = gpusym_copier_poll(copier))) {
        sched_yield();
    }
    return rc;
}

/* What is to be at the target: as the other kernels reduce. */
static void expect(uint32_t op, uint32_t type, const unsigned char *there, const unsigned char *given,
                   const unsigned char *compared, uint32_t bytes, unsigned char *next)
{
    const void *const src[2] = {there, given};
    if (GPUSYM_COMBINE_COMPARE == op) {
        memcpy(next, 0 == memcmp(there, compared, bytes) ? given : there, bytes);
    } else if (GPUSYM_COMBINE_REPLACE == op) {
        memcpy(next, given, bytes);
    } else {
        gpusym_kernel_reduce_on_cpu(op, type, src, 2, next, bytes);
    }
}

/* One of `bytes` bytes: given elements and those to compare with on the host or on the GPU, the result likewise or
 * none, all at addresses that are drawn; what is around them stays. */
static void combine_once(uint32_t op, uint32_t type, uint32_t bytes)
{
    static unsigned char there[GPUSYM_COMBINE_MAX + 64], given[GPUSYM_COMBINE_MAX], next[GPUSYM_COMBINE_MAX];
    unsigned char compared[GPUSYM_PACK];
    const bool on_gpu = 0 == next_random() % 2, compared_on_gpu = 0 == next_random() % 2;
    const unsigned result = next_random() % 3; /* 0: none */
    char *const target = to + AT + next_random() % 32, *const out = to + ROOM / 2 + AT + next_random() % 32;
    char *const source = to + 3 * (ROOM / 4) + next_random() % 32;
    for (uint32_t i = 0; i < bytes + 64; i++) {
        there[i] = (unsigned char) (next_random() % 5);
    }
    for (uint32_t i = 0; i < bytes; i++) {
        given[i] = (unsigned char) (next_random() % 5);
    }
    memcpy(compared, there + 32, bytes < GPUSYM_PACK ? bytes : GPUSYM_PACK);
    compared[bytes < GPUSYM_PACK ? bytes - 1 : 0] ^= next_random() % 2;
    OK(dev.copy(gpu, target - 32, there, bytes + 64));
    memset(expected, 0xee, bytes + 64);
    OK(dev.copy(gpu, out - 32, expected, bytes + 64));
    memset(combine, 0x77, sizeof *combine); /* of the last one */
    combine->op = op;
    combine->type = type;
    combine->given = on_gpu ? source : NULL;
    combine->result = 0 == result ? NULL : 1 == result ? (void *) out : combine_at->found;
    OK(on_gpu ? dev.copy(gpu, source, given, bytes) : GPUSYM_SUCCESS);
    memcpy(combine->value, given, on_gpu ? 0 : bytes);
    if (GPUSYM_COMBINE_COMPARE == op) {
        combine->compared = compared_on_gpu ? source + 2 * GPUSYM_COMBINE_MAX : NULL;
        OK(compared_on_gpu ? dev.copy(gpu, source + 2 * GPUSYM_COMBINE_MAX, compared, bytes) : GPUSYM_SUCCESS);
        memset(combine->compare, 0, sizeof combine->compare);
        memcpy(combine->compare, compared, compared_on_gpu ? 0 : bytes);
    }
    expect(op, type, there + 32, given, compared, bytes, next);
    assert_int_equal(run_combine(target, bytes), 1);
    if (1 == result) {
        memcpy(expected + 32, there + 32, bytes);
    } else if (2 == result) {
        assert_memory_equal(combine->found, there + 32, bytes);
    }
    OK(dev.copy(gpu, got, out - 32, bytes + 64));
    assert_memory_equal(got, expected, bytes + 64);
    memcpy(there + 32, next, bytes);
    OK(dev.copy(gpu, got, target - 32, bytes + 64));
    assert_memory_equal(got, there, bytes + 64);
}

/* Elements, few or many. */
static uint32_t draw_bytes(uint32_t each)
{
    const uint32_t most = (uint32_t) (0 == next_random() % 4 ? GPUSYM_COMBINE_MAX : 64);
    return each * (1 + (uint32_t) next_random() % (most / each));
}

static void a_copier_combines(void **state)
{
    unsigned done = 0;
    (void) state;
    for (uint32_t op = 0; op < GPUSYM_OP_COUNT; op++) {
        for (uint32_t type = 0; type < GPUSYM_T_COUNT; type++) {
            for (unsigned i = 0; i < COMBINES && gpusym_op_valid(op, type); i++) {
                combine_once(op, type, draw_bytes((uint32_t) gpusym_type_bytes(type)));
                done++;
            }
        }
    }
    for (unsigned i = 0; i < 8 * COMBINES; i++) {
        combine_once(GPUSYM_COMBINE_REPLACE, GPUSYM_T_COUNT, draw_bytes(1));
        combine_once(GPUSYM_COMBINE_COMPARE, GPUSYM_T_COUNT, 1 + (uint32_t) next_random() % GPUSYM_PACK);
        random_short_copy();
        done += 3;
    }
    assert_true(launches > 0 && launches <= done / 257 + 1); /* a kernel serves 256 beside its first */
}

/* Adds 1 again and again, where kernels leave before, beside and behind a command, cannot be launched, and are
 * dismissed: each addition is done once, or is told not to have been done. */
static void add_ones(unsigned times, bool dismisses)
{
    uint64_t sum = 0, one = 1, late = 0;
    OK(dev.copy(gpu, to, &sum, sizeof sum));
    for (unsigned i = 0; i < times; i++) {
        memset(combine, 0, offsetof(gpusym_combine_t, value));
        combine->op = GPUSYM_OP_SUM;
        combine->type = GPUSYM_T_U64;
        combine->result = combine_at->found;
        memcpy(combine->value, &one, sizeof one);
        const int rc = run_combine(to, sizeof one);
        if (GPUSYM_ERR_LATE == rc) {
            late++;
        } else {
            assert_int_equal(rc, 1);
            assert_memory_equal(combine->found, &sum, sizeof sum);
            sum++;
        }
        if (0 == i % 3) {
            leave_now();
        }
        if (dismisses && 0 == i % 50) {
            gpusym_copiers_dismiss();
        }
    }
    OK(dev.copy(gpu, &one, to, sizeof one));
    assert_int_equal(one, sum);
    assert_int_equal(sum + late, times);
}

static void a_combination_is_done_once(void **state)
{
    (void) state;
    gpusym_copier_linger(&dev, gpu, LINGER_NS, false);
    add_ones(1500, true);
    assert_true(launches > 1 && launches < 1500);
}

static bool refuses; /* launches */

static int launch_unless(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    return refuses ? GPUSYM_ERR : launch_counted(graph, stream, kernel, w);
}

/* No kernel can reach what a command names: each leaves. Then it is launched again, or the driver copies. */
static void lists_are_copied_where_no_copier_can(void **state)
{
    (void) state;
    open_failing("doorbell:1+");
    dev.graph_launch = launch_unless;
    gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
    for (unsigned round = 0; round < 30; round++) {
        refuses = false;
        copy_short(2000, 1, 100); /* a kernel is there */
        refuses = 0 == round % 2;
        copy_some(round);
    }
    refuses = false;
}

/* No kernel can reach what a command names: each leaves. Another one is launched, which does it, or cannot be launched,
 * and nothing is done. */
static void a_combination_that_cannot_is_not_done(void **state)
{
    const uint64_t one = 1;
    uint64_t sum = 0, got_sum;
    gpusym_copier_t *copier;
    int rc;

    (void) state;
    open_failing("doorbell:1+");
    OK(dev.host_alloc(gpu, sizeof *combine, (void **) &combine, (void **) &combine_at));
    dev.graph_launch = launch_unless;
    OK(dev.copy(gpu, to, &sum, sizeof sum));
    memset(combine, 0, sizeof *combine);
    combine->op = GPUSYM_OP_SUM;
    combine->type = GPUSYM_T_U64;
    memcpy(combine->value, &one, sizeof one);
    const gpusym_copier_run_t run = {
        .dst = to, .src = combine_at, .bytes = sizeof one, .does = GPUSYM_COPY_COMBINES | GPUSYM_COPY_FAR};
    gpusym_copier_linger(&dev, gpu, FOR_EVER_NS, false);
    for (unsigned i = 0; i < 20; i++) {
        refuses = false;
        copy_short(2000, 1, 100); /* a kernel is there */
        OK(gpusym_copier_start(&dev, gpu, &run, &copier));
        refuses = 0 == i % 2;
        while (0 == (rc = gpusym_copier_poll(copier))) {
            sched_yield();
        }
        assert_int_equal(rc, refuses ? GPUSYM_ERR_LATE : 1);
        sum += refuses ? 0 : 1;
        OK(dev.copy(gpu, &got_sum, to, sizeof got_sum));
        assert_int_equal(got_sum, sum);
    }
}

/* ---- staged ---- */

enum { CHUNK = 4096 };

/* What copies the chunks: kernels or copy engines, copy engines alone, or functions of the user's. */
enum by { BY_ANY, BY_ENGINES, BY_USER, BYS };

static gpusym_copy_t chunk_copy[GPUSYM_STAGED_CHUNKS];

static int start_chunk(void *user, uint32_t i, char *chunk, size_t at, size_t length)
{
    const gpusym_staged_t *s = user;
    const gpusym_copy_rows_t run = {.dst = s->to_host ? chunk : s->on_gpu + at,
                                    .src = s->to_host ? s->on_gpu + at : chunk,
                                    .width = length,
                                    .height = 1,
                                    .engine = true};
    assert_in_range(length, 1, CHUNK);
    return gpusym_copy_start_rows(&dev, gpu, &run, &chunk_copy[i]);
}

static int poll_chunk(void *user, uint32_t i)
{
    (void) user;
    return gpusym_copy_poll(&chunk_copy[i]);
}

/* One copy between `from` or `to` and ordinary memory. Returns what it returns; *moved: bytes that have come. */
static int copy_staged(size_t bytes, bool to_host, enum by by, size_t *moved)
{
    void *chunks, *seen;
    char *on_gpu = to_host ? from : to;
    unsigned char *on_host = to_host ? got : expected;
    int rc;
    memset(got, 0xee, bytes + MARGIN);
    memcpy(expected, sent, bytes);
    OK(dev.copy(gpu, to, got, bytes + MARGIN));
    OK(dev.host_alloc(gpu, gpusym_staged_room(bytes, CHUNK), &chunks, &seen));
    gpusym_staged_t s = {.dev = &dev,
                         .gpu = gpu,
                         .on_gpu = on_gpu,
                         .on_host = (char *) on_host,
                         .bytes = bytes,
                         .chunks = chunks,
                         .chunk = CHUNK,
                         .to_host = to_host,
                         .engine = BY_ENGINES == by,
                         .start = BY_USER == by ? start_chunk : NULL,
                         .poll = BY_USER == by ? poll_chunk : NULL,
                         .user = &s};
    gpusym_staged_start(&s);
    while (0 == (rc = gpusym_staged_poll(&s))) {
        sched_yield();
    }
    assert_int_equal(gpusym_staged_poll(&s), rc); /* it stays ended */
    OK(dev.host_free(gpu, chunks));               /* nothing uses them */
    if (!to_host) {
        OK(dev.copy(gpu, got, to, bytes + MARGIN));
    }
    for (*moved = bytes; 0 < *moved && 0xee == got[*moved - 1]; --*moved) {
    }
    for (unsigned i = 0; i < MARGIN; i++) {
        assert_int_equal(got[bytes + i], 0xee);
    }
    return rc;
}

static void staged_by_sizes(void **state)
{
    static const size_t sizes[] = {1,         CHUNK - 1,     CHUNK,         CHUNK + 1,     2 * CHUNK,
                                   4 * CHUNK, 4 * CHUNK + 1, 5 * CHUNK - 1, 11 * CHUNK + 5};
    size_t moved;
    (void) state;
    for (size_t i = 0; i < 2 * BYS * sizeof(sizes) / sizeof(sizes[0]); i++) {
        const size_t bytes = sizes[i / (2 * BYS)];
        assert_int_equal(copy_staged(bytes, i & 1, i / 2 % BYS, &moved), 1);
        assert_memory_equal(got, sent, bytes);
    }
}

/* The n-th copy cannot be started: the error is told once the others have ended, and none begins behind it. */
static void staged_fails_anywhere(void **state)
{
    enum { PARTS = 9 };
    size_t moved;
    (void) state;
    for (unsigned i = 0; i < 4 * (PARTS + 1); i++) {
        const unsigned n = copy_fails = 1 + i / 4;
        const int rc = copy_staged(PARTS * CHUNK, i & 1, i & 2 ? BY_ENGINES : BY_USER, &moved);
        assert_int_equal(rc, n <= PARTS ? GPUSYM_ERR : 1);
        assert_true(moved <= (n - 1) * CHUNK);
        copy_fails = 0;
    }
}

/* ---- signals ---- */

enum { WAITER = ROOM / 2 }; /* where a copy that waits puts what another one has put at `to` */

static void start_signal(uint64_t bytes, uint32_t signal, bool shared, gpusym_copy_t *copy)
{
    const gpusym_copy_rows_t run = {.dst = to,
                                    .src = from + 3,
                                    .width = bytes,
                                    .height = 1,
                                    .local = true,
                                    .shared = shared,
                                    .does = GPUSYM_COPY_SIGNALS,
                                    .signal = signal};
    OK(gpusym_copy_start_rows(&dev, gpu, &run, copy));
}

static int start_waiter(uint64_t at, uint64_t bytes, uint32_t signal, bool shared, gpusym_copy_t *copy)
{
    const gpusym_copy_rows_t run = {.dst = to + WAITER + at,
                                    .src = to,
                                    .width = bytes,
                                    .height = 1,
                                    .local = true,
                                    .shared = shared,
                                    .does = GPUSYM_COPY_WAITS,
                                    .signal = signal};
    return gpusym_copy_start_rows(&dev, gpu, &run, copy);
}

/* What a waiter has written, and what is left around it. NULL: nothing. */
static void check_waiter(uint64_t at, uint64_t bytes, const unsigned char *written)
{
    memset(expected, 0xee, at + bytes + MARGIN);
    if (NULL != written) {
        memcpy(expected + at, written, bytes);
    }
    OK(dev.copy(gpu, got, to + WAITER, at + bytes + MARGIN));
    assert_memory_equal(got, expected, at + bytes + MARGIN);
}

/* Lets time pass until the copy has ended: its signal does not come. */
static int let_be_late(gpusym_copy_t *copy)
{
    int rc;
    while (0 == (rc = gpusym_copy_poll(copy))) {
        clock_go_on(gpusym_tuning_copy_wait_ns(true) + 1);
        sched_yield();
    }
    return rc;
}

/* One that waits begins before the other one, or behind it; or it comes late, and copies nothing. */
static void signal_once(uint64_t bytes, uint32_t signal, unsigned how)
{
    const bool shared = 0 != next_random() % 2;
    const uint64_t at = next_random() % 2 ? 0 : next_random() % MARGIN;
    gpusym_copy_t filler, waiter;
    memset(expected, 0xee, at + bytes + MARGIN);
    OK(dev.copy(gpu, to + WAITER, expected, at + bytes + MARGIN));
    if (0 == how) {
        start_signal(bytes, signal, shared, &filler);
        assert_int_equal(finish(&filler), 1);
    }
    OK(start_waiter(at, bytes, signal, shared, &waiter));
    if (0 != how) {
        for (unsigned i = 0; i < 64; i++) {
            assert_int_equal(gpusym_copy_poll(&waiter), 0);
            sched_yield();
        }
    }
    if (2 == how) {
        assert_int_equal(let_be_late(&waiter), GPUSYM_ERR_LATE);
        assert_int_equal(gpusym_copy_poll(&waiter), GPUSYM_ERR_LATE);
        check_waiter(at, bytes, NULL);
        OK(start_waiter(at, bytes, signal, shared, &waiter));
    }
    if (0 != how) {
        gpusym_copy_flush(false);
        start_signal(bytes, signal, shared, &filler);
        gpusym_copy_flush(false);
        assert_int_equal(finish(&filler), 1);
    }
    assert_int_equal(finish(&waiter), 1);
    check_waiter(at, bytes, sent + 3);
}

static void a_copy_waits_for_the_signal_of_another(void **state)
{
    static const uint64_t sizes[] = {1, 15, 16, 500, 513, 8192, 16384, 70001, 128 << 10, 1 << 20};
    uint32_t signal = 0xfffffff0u;
    (void) state;
    for (unsigned copier = 0; copier < 2; copier++) {
        gpusym_copier_linger(&dev, gpu, copier ? FOR_EVER_NS : 0, false);
        for (unsigned i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
            for (unsigned how = 0; how < 3; how++) { /* what the last one has left there is not taken for it */
                signal_once(sizes[i / 2], ++signal, how);
                signal += 0 == signal;
            }
        }
    }
    gpusym_copiers_dismiss();
}

/* Several copies of one launch, of which some are late. */
static void copies_of_a_launch_are_late_by_themselves(void **state)
{
    enum { N = 5, BYTES = 40000 };
    gpusym_copy_t filler, waiter[N], plain;
    const gpusym_copy_rows_t run = {.dst = to + ROOM - 2000, .src = from, .width = 1000, .height = 1, .shared = true};
    (void) state;
    start_signal(BYTES, 7, false, &filler);
    assert_int_equal(finish(&filler), 1);
    for (unsigned i = 0; i < N; i++) {
        OK(start_waiter((uint64_t) i * BYTES, BYTES, 6 + i % 2, true, &waiter[i]));
    }
    OK(gpusym_copy_start_rows(&dev, gpu, &run, &plain));
    gpusym_copy_flush(false);
    assert_int_equal(launches, 2);
    for (unsigned i = 0; i < N; i += 2) {
        assert_int_equal(let_be_late(&waiter[i]), GPUSYM_ERR_LATE);
    }
    for (unsigned i = 1; i < N; i += 2) {
        assert_int_equal(finish(&waiter[i]), 1);
        OK(dev.copy(gpu, got, to + WAITER + i * BYTES, BYTES));
        assert_memory_equal(got, sent + 3, BYTES);
    }
    assert_int_equal(finish(&plain), 1);
}

/* ---- what a device cannot do ---- */

static int kernels_refused(gpusym_gpu_t *which, const char **why)
{
    (void) which;
    *why = "the test wants none";
    return GPUSYM_ERR_NOT_AVAILABLE;
}

static int flags_refused(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n)
{
    (void) stream;
    (void) flags;
    (void) n;
    return GPUSYM_ERR;
}

static int graph_refused(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    (void) graph;
    (void) stream;
    (void) kernel;
    (void) w;
    return GPUSYM_ERR;
}

static void without_kernels_engines_copy(void **state)
{
    (void) state;
    dev.kernels_load = kernels_refused;
    copy_rows(1, 2, 1000, 1, 0, 0);
    copy_rows(1, 2, 10, 100, 20, 30);
    gpusym_copy_t copy;
    assert_int_equal(start_waiter(0, 100, 1, false, &copy), GPUSYM_ERR_LATE); /* engines do not wait */
    OK(start_waiter(0, 100, 1, true, &copy));
    assert_int_equal(let_be_late(&copy), GPUSYM_ERR_LATE);
    assert_int_equal(launches, 0);
}

static void without_flags_the_stream_tells(void **state)
{
    (void) state;
    dev.kernels_load = kernels_refused;
    dev.stream_flags = NULL;
    copy_rows(1, 2, 1000, 1, 0, 0);
    dev.stream_flags = flags_refused;
    copy_rows(1, 2, 3000, 1000, 3001, 3002);
}

static void without_graphs_kernels_are_launched(void **state)
{
    (void) state;
    dev.graph_launch = NULL;
    copy_rows(1, 2, 1000, 1, 0, 0);
    dev.graph_launch = graph_refused;
    copy_rows(1, 2, 1000, 1, 0, 0);
    assert_int_equal(copies, 0);
}

static int launch_refused(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    (void) stream;
    (void) kernel;
    (void) w;
    return GPUSYM_ERR_NO_MEMORY;
}

static int stream_refused(gpusym_gpu_t *which, gpusym_stream_t **stream)
{
    (void) which;
    (void) stream;
    return GPUSYM_ERR;
}

/* Nothing can be queued: no kernel, no copy, no stream at all. */
static void what_is_refused_the_driver_copies(void **state)
{
    (void) state;
    dev.graph_launch = NULL;
    dev.launch = launch_refused;
    copy_rows(1, 2, 1000, 1, 0, 0);
    copy_rows(1, 2, 10, 100, 20, 30);
    dev.launch = gpusym_device_sim.launch;
    gpusym_copy_queues_close();
    gpusym_lanes_close();
    dev.stream_create = stream_refused;
    copy_rows(1, 2, 1000, 1, 0, 0);
    copy_rows(1, 2, 10, 100, 20, 30);
    copy_boxes(1);
}

static int driver_refused(gpusym_gpu_t *which, void *dst, const void *src, size_t size)
{
    (void) which;
    (void) dst;
    (void) src;
    (void) size;
    return GPUSYM_ERR_NO_MEMORY;
}

static int engine_refused(gpusym_stream_t *stream, void *dst, const void *src, size_t size)
{
    (void) stream;
    return driver_refused(gpu, dst, src, size);
}

static void errors_are_told(void **state)
{
    gpusym_copy_t copy;
    (void) state;
    dev.graph_launch = NULL;
    dev.launch = launch_refused;
    dev.copy = driver_refused;
    assert_int_equal(gpusym_copy_start(&dev, gpu, to, from, 100, &copy), GPUSYM_ERR_NO_MEMORY);
    assert_int_equal(gpusym_copy_poll(&copy), 1); /* nothing is under way */
    const gpusym_copy_rows_t run = {.dst = to, .src = from, .width = 100, .height = 1, .local = true, .shared = true};
    OK(gpusym_copy_start_rows(&dev, gpu, &run, &copy));
    assert_int_equal(finish(&copy), 1); /* by a copy engine */
    dev.copy_async = engine_refused;
    OK(gpusym_copy_start_rows(&dev, gpu, &run, &copy));
    int rc;
    while (0 == (rc = gpusym_copy_poll(&copy))) {
    }
    assert_int_equal(rc, GPUSYM_ERR_NO_MEMORY);
    dev.copy = gpusym_device_sim.copy;
    OK(gpusym_copy_start_rows(&dev, gpu, &run, &copy));
    assert_int_equal(finish(&copy), 1); /* by the driver */
    dev.copy_async = gpusym_device_sim.copy_async;
    dev.launch = gpusym_device_sim.launch;
    copy_rows(0, 0, 100, 1, 0, 0);
    gpusym_copy_queues_close();
    gpusym_lanes_close();
}

/* A kernel that ends without its words: its copy fails, those after it do not. */
static int launch_nothing(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    (void) stream;
    (void) kernel;
    (void) w;
    return GPUSYM_SUCCESS;
}

static void a_kernel_without_end_is_an_error(void **state)
{
    gpusym_copy_t copy;
    (void) state;
    dev.graph_launch = NULL;
    dev.launch = launch_nothing;
    OK(gpusym_copy_start(&dev, gpu, to, from, 100, &copy));
    assert_int_equal(finish(&copy), GPUSYM_ERR);
    dev.launch = gpusym_device_sim.launch;
    copy_rows(0, 0, 100, 1, 0, 0);
}

/* ---- queues ---- */

/* What a queue's copy does: a part of `to` for each tag. */
static gpusym_copy_rows_t run_of(uint32_t tag, bool host)
{
    const uint64_t part = ROOM / GPUSYM_QUEUE_MAX, at = tag % GPUSYM_QUEUE_MAX * part;
    const uint64_t bytes =
        0 == tag % GPUSYM_QUEUE_MAX ? part : 1 + tag * 7919u % (part >> tag % 13); /* long, shorter */
    return (gpusym_copy_rows_t){.dst = host ? (char *) got + at : to + at,
                                .src = host ? (char *) sent + tag % MARGIN : from + tag % MARGIN,
                                .width = bytes < part - MARGIN ? bytes : part - MARGIN,
                                .height = 1,
                                .local = tag & 1,
                                .engine = tag & 2,
                                .shared = tag & 4};
}

/* Of copies that end in any order, the ends come in theirs; a piece that has been told is there. */
static void a_queue_tells_ends_in_order(void **state)
{
    (void) state;
    for (unsigned host = 0; host < 2; host++) {
        gpusym_queue_t queue = {.dev = &dev, .gpu = host ? NULL : gpu};
        uint32_t started = 0, ended = 0, tag = 0;
        assert_int_equal(gpusym_queue_end(&queue, &tag), 0);
        while (ended < 400) {
            while (started < 400 && gpusym_queue_under_way(&queue) < 1 + next_random() % GPUSYM_QUEUE_MAX) {
                const gpusym_copy_rows_t run = run_of(started, host);
                OK(gpusym_queue_start(&queue, &run, started++));
            }
            gpusym_copy_flush(true);
            if (0 == gpusym_queue_end(&queue, &tag)) {
                sched_yield();
                continue;
            }
            assert_int_equal(tag, ended++);
            const gpusym_copy_rows_t run = run_of(tag, host);
            OK(dev.copy(gpu, expected, run.dst, run.width));
            assert_memory_equal(expected, sent + tag % MARGIN, run.width);
        }
        assert_true(gpusym_queue_drain(&queue));
    }
}

/* A copy that cannot be started is none; one that is lost ends with an error, at its turn. */
static void a_queue_tells_errors_in_order(void **state)
{
    const gpusym_copy_rows_t run = {.dst = to, .src = from, .width = 100, .height = 1},
                             other = {.dst = to + 200, .src = from, .width = ROOM / 2, .height = 1, .engine = true};
    gpusym_queue_t queue = {.dev = &dev, .gpu = gpu};
    uint32_t tag;
    int rc;
    (void) state;
    dev.graph_launch = NULL;
    OK(gpusym_queue_start(&queue, &other, 7));
    dev.copy_async = engine_refused;
    dev.copy = driver_refused;
    assert_int_equal(gpusym_queue_start(&queue, &other, 8), GPUSYM_ERR_NO_MEMORY);
    dev.copy_async = gpusym_device_sim.copy_async;
    dev.copy = gpusym_device_sim.copy;
    dev.launch = launch_nothing;
    OK(gpusym_queue_start(&queue, &run, 9));
    dev.launch = gpusym_device_sim.launch;
    OK(gpusym_queue_start(&queue, &run, 10));
    for (uint32_t i = 0; i < 3; i++) {
        static const struct {
            uint32_t tag;
            int rc;
        } ends[] = {{7, 1}, {9, GPUSYM_ERR}, {10, 1}};
        while (0 == (rc = gpusym_queue_end(&queue, &tag))) {
            sched_yield();
        }
        assert_int_equal(tag, ends[i].tag);
        assert_int_equal(rc, ends[i].rc);
    }
    OK(gpusym_queue_start(&queue, &other, 11));
    while (!gpusym_queue_drain(&queue)) {
        sched_yield();
    }
    assert_int_equal(gpusym_queue_end(&queue, &tag), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(runs_of_any_length_and_alignment, setup, teardown),
        cmocka_unit_test_setup_teardown(rows_of_any_length_and_pitch, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(pinned_memory_is_copied, setup, teardown),
        cmocka_unit_test_setup_teardown(many_go_beside_each_other, setup, teardown),
        cmocka_unit_test_setup_teardown(each_tells_its_own_end, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_share_launches, setup, teardown),
        cmocka_unit_test_setup_teardown(boxes_share_launches, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copier_serves_without_launches, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copier_serves_long_copies_of_packs, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copier_without_a_cluster_has_one_block, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copier_serves_the_host_too, setup, teardown),
        cmocka_unit_test_setup_teardown(a_command_launches_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copier_that_leaves_loses_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copier_that_cannot_is_launched_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copier_that_is_not_worth_it_stays_away, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copier_does_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_are_whole_whenever_the_copier_leaves, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_are_copied_where_no_copier_can, setup, teardown),
        cmocka_unit_test_setup_teardown(two_threads_share_a_copier, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copier_combines, combine_setup, combine_teardown),
        cmocka_unit_test_setup_teardown(a_combination_is_done_once, combine_setup, combine_teardown),
        cmocka_unit_test_setup_teardown(a_combination_that_cannot_is_not_done, combine_setup, combine_teardown),
        cmocka_unit_test_setup_teardown(staged_by_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(staged_fails_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copy_waits_for_the_signal_of_another, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_of_a_launch_are_late_by_themselves, setup, teardown),
        cmocka_unit_test_setup_teardown(without_kernels_engines_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(without_flags_the_stream_tells, setup, teardown),
        cmocka_unit_test_setup_teardown(without_graphs_kernels_are_launched, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_refused_the_driver_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_kernel_without_end_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(a_queue_tells_ends_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(a_queue_tells_errors_in_order, setup, teardown),
    };
    random_start(argc, argv);
    clock_hold();
    sent = malloc(ROOM);
    got = malloc(ROOM);
    expected = malloc(ROOM);
    if (NULL == sent || NULL == got || NULL == expected) {
        return 1;
    }
    for (unsigned i = 0; i < ROOM; i++) {
        sent[i] = (unsigned char) next_random();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
