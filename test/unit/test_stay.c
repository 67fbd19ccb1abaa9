/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of kernels that stay: lanes (mca/common/gpusym/lane.h), the bell (kernels/work.h) and gs_stay()
 * (kernels/symm_ll.h) on the simulator.  Host and kernel must neither lose a command nor do one twice, whenever the host
 * rings, above all at the moment at which the kernel leaves.  Ranks are lanes of this process, driven by one thread, as the
 * component does it.
 *
 * Rank 0 sums in place, so that a command that is lost or done twice shows: a += b1 + b2 + ...; the others have their sum
 * elsewhere, and their input never changes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kernels/symm_ll.h"
#include "mca/common/gpusym/heap.h"
#include "mca/common/gpusym/lane.h"
#include "test/unit/random.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)
#define RANKS_MAX 3u
#define SLOT_BYTES (4u << 20)
/* Elements of a message at most: 16 KiB, as the component has it. */
#define COUNT_MAX 2048u
/* Of a wait that nothing should make long: a hang becomes a failure. */
#define PATIENCE_NS 20000000000ull
/* Of a kernel that is to be there for as long as a test wants. */
#define FOR_EVER_NS 60000000000ull
/* Rings at the edge; of them must come to either end, at least. */
#define RINGS 24000u
#define EACH_WAY 500u
/* By so much changes the pause between two calls: it follows the edge, where the machine's load puts that. */
#define STEP_NS 250u

static const gpusym_device_t *const dev = &gpusym_device_sim;
static gpusym_gpu_t *gpu;

/* One rank: what the component keeps of a team's kernel. */
typedef struct {
    gpusym_lane_t *lane;
    gpusym_work_t work;
    uint64_t *in, *out; /* device memory */
    bool rang;          /* the call in flight was not launched */
} rank_t;

typedef struct {
    uint32_t nranks, epoch; /* epoch: of the next call */
    rank_t rank[RANKS_MAX];
    uint64_t sum[COUNT_MAX];  /* what rank 0 has */
    uint64_t each[COUNT_MAX]; /* what the others add to that each time */
    uint64_t served, late, left, dismissed;
} team_t;

static uint32_t below(uint32_t n)
{
    return (uint32_t) (next_random() % n);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

/* Waits, with the core left to the kernels: there may be but one. */
static void pause_until(uint64_t ns)
{
    while (now_ns() < ns) {
        sched_yield();
    }
}

/* ---- teams ---- */

static uint64_t *device_array(void)
{
    void *p = NULL;
    OK(dev->mem_alloc(gpu, COUNT_MAX * sizeof(uint64_t), &p));
    return p;
}

static void fill(uint64_t *at, uint64_t *values)
{
    for (uint32_t i = 0; i < COUNT_MAX; i++) {
        values[i] = next_random();
    }
    OK(dev->copy(gpu, at, values, COUNT_MAX * sizeof(uint64_t)));
}

/* seq: of the lanes, so that they may wrap. */
static void team_open(team_t *t, uint32_t nranks, uint64_t linger_ns, uint32_t seq)
{
    uint64_t values[COUNT_MAX];
    gpusym_work_t shape = {.nranks = nranks};
    memset(t, 0, sizeof *t);
    t->nranks = nranks;
    t->epoch = 1;
    OK(dev->open(NULL));
    OK(dev->gpu_open(NULL, &gpu));
    assert_int_not_equal(gpusym_slot_layout(SLOT_BYTES, nranks, 1, &shape), 0);
    assert_true(gpusym_ll_payload(shape.ll_bytes) >= COUNT_MAX * sizeof(uint64_t));
    for (uint32_t r = 0; r < nranks; r++) {
        OK(dev->mem_alloc(gpu, SLOT_BYTES, &shape.peer[r]));
        OK(dev->mem_zero(gpu, shape.peer[r], SLOT_BYTES));
    }
    for (uint32_t r = 0; r < nranks; r++) {
        rank_t *me = &t->rank[r];
        me->work = shape;
        me->work.rank = r;
        me->work.op = GPUSYM_OP_SUM;
        me->work.type = GPUSYM_T_U64;
        me->work.nblocks = 1;
        me->work.nthreads = 32;
        me->work.out_local = 1;
        me->work.limit_ns = PATIENCE_NS;
        me->work.linger_ns = linger_ns;
        OK(gpusym_lane_get(dev, gpu, &me->lane));
        me->lane->seq = seq;
        me->in = device_array();
        me->out = 0 == r ? me->in : device_array();
        fill(me->in, 0 == r ? t->sum : values);
        for (uint32_t i = 0; 0 != r && i < COUNT_MAX; i++) {
            t->each[i] += values[i];
        }
    }
}

static bool has_left(const gpusym_lane_t *lane)
{
    uint32_t status;
    return gpusym_lane_done(lane, &status) && 0 != (status & GPUSYM_STATUS_LEFT);
}

static void await_left(const gpusym_lane_t *lane)
{
    const uint64_t until = now_ns() + PATIENCE_NS;
    while (!has_left(lane)) {
        assert_true(now_ns() < until);
        sched_yield();
    }
}

/* Lanes whose kernels have not left are given back too: that is what a communicator that is freed does. */
static void team_close(team_t *t)
{
    for (uint32_t r = 0; r < t->nranks; r++) {
        if (!has_left(t->rank[r].lane)) {
            gpusym_lane_dismiss(t->rank[r].lane);
        }
        gpusym_lane_put(t->rank[r].lane);
    }
    gpusym_lanes_close();
    dev->close();
}

static void launch(team_t *t, uint32_t r, uint32_t count)
{
    rank_t *me = &t->rank[r];
    me->rang = false;
    me->work.in = me->in;
    me->work.out = me->out;
    me->work.bytes = count * sizeof(uint64_t);
    me->work.epoch = t->epoch;
    assert_int_equal(gpusym_kernel_plan(GPUSYM_F_AGXLL_R, &me->work, 0), 1);
    OK(gpusym_lane_launch(me->lane, gpusym_kernel_find(GPUSYM_F_AGXLL_R, GPUSYM_OP_SUM, GPUSYM_T_U64), &me->work));
}

static void ring(team_t *t, uint32_t r, uint32_t count)
{
    rank_t *me = &t->rank[r];
    me->rang = true;
    gpusym_lane_ring(me->lane, me->in, me->out, count * sizeof(uint64_t));
}

/* Whether rank r has ended the call, which is launched where the kernel had left before. */
static bool poll(team_t *t, uint32_t r, uint32_t count)
{
    rank_t *me = &t->rank[r];
    uint32_t status;
    if (!gpusym_lane_done(me->lane, &status)) {
        if (me->rang && gpusym_lane_left(me->lane)) {
            t->late++;
            launch(t, r, count);
        }
        return false;
    }
    assert_int_equal(status & ~GPUSYM_STATUS_LEFT, GPUSYM_STATUS_OK); /* it may have left since, having done it */
    t->served += me->rang;
    return true;
}

/* All ranks have ended the call: rank 0 has its sum, and so have the others; beyond its end nothing has changed. */
static void check_sums(team_t *t, uint32_t count)
{
    static uint64_t got[COUNT_MAX];
    for (uint32_t i = 0; i < count; i++) {
        t->sum[i] += t->each[i];
    }
    const uint32_t upto = 0 == t->epoch % 16 ? COUNT_MAX : count;
    OK(dev->copy(gpu, got, t->rank[0].out, upto * sizeof(uint64_t)));
    assert_memory_equal(got, t->sum, upto * sizeof(uint64_t));
    for (uint32_t r = 1; r < t->nranks; r++) {
        OK(dev->copy(gpu, got, t->rank[r].out, count * sizeof(uint64_t)));
        assert_memory_equal(got, t->sum, count * sizeof(uint64_t));
    }
    t->epoch++;
}

static void finish_all(team_t *t, uint32_t count)
{
    const uint64_t until = now_ns() + 2 * PATIENCE_NS; /* a kernel that waits in vain says so before */
    uint32_t ended = 0;                                /* a bit a rank */
    while (ended + 1 != 1u << t->nranks) {
        for (uint32_t r = 0; r < t->nranks; r++) { /* one that waits, waits for the others */
            ended |= 0 == (ended >> r & 1) && poll(t, r, count) ? 1u << r : 0;
        }
        assert_true(now_ns() < until);
        sched_yield();
    }
    check_sums(t, count);
}

static void launch_all(team_t *t, uint32_t count)
{
    for (uint32_t r = 0; r < t->nranks; r++) {
        launch(t, r, count);
    }
    finish_all(t, count);
}

static void ring_all(team_t *t, uint32_t count)
{
    for (uint32_t r = 0; r < t->nranks; r++) {
        ring(t, r, count);
    }
    finish_all(t, count);
}

/* ---- the bell itself ---- */

/* A lane without a device: what it writes. */
typedef struct {
    gpusym_lane_line_t line;
    gpusym_lane_t lane;
} paper_t;

static void paper_start(paper_t *p, uint32_t seq)
{
    memset(p, 0, sizeof *p);
    p->lane.host = &p->line;
    p->lane.seq = seq;
}

static void bell_says(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 100000; i++) {
        const uint32_t seq = 0 == below(2) ? (uint32_t) next_random() : (below(2) ? UINT32_MAX : 0xffu);
        const uint64_t in = next_random() >> 16, out = next_random() >> 16;
        const uint32_t bytes = 1 + below(GPUSYM_BELL_BYTES_MAX), other = below(256);
        gs_message_t m;
        paper_t p;
        paper_start(&p, seq);
        gpusym_lane_ring(&p.lane, (const void *) (uintptr_t) in, (void *) (uintptr_t) out, bytes);
        assert_int_equal(p.lane.seq, (uint32_t) (seq + 1));
        assert_int_equal(gs_bell_says(p.line.bell, seq, &m), 1);
        assert_int_equal((uintptr_t) m.in, in);
        assert_int_equal((uintptr_t) m.out, out);
        assert_int_equal(m.bytes, bytes);
        assert_int_equal(gs_bell_says(p.line.bell, seq + 1, &m), 0); /* it has done that */
        if (other != (seq & 0xff) && other != ((seq + 1) & 0xff)) {
            assert_int_equal(gs_bell_says(p.line.bell, other, &m), -1); /* not its own: it is too late for it */
        }
        paper_start(&p, seq);
        gpusym_lane_dismiss(&p.lane);
        assert_int_equal(gs_bell_says(p.line.bell, seq, &m), -1);
        assert_int_equal(gs_bell_says(p.line.bell, seq + 1, &m), 0); /* what is launched next is not told to leave */
    }
}

/* Torn bells say nothing: halves of two that follow each other, or of a lane that was given back, with some between. */
static void bell_torn(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 100000; i++) {
        const uint32_t seq = (uint32_t) next_random(), more = 1 + below(3);
        gs_message_t m;
        paper_t p;
        paper_start(&p, seq - 1);
        gpusym_lane_ring(&p.lane, (void *) 4096, (void *) 8192, 1 + below(GPUSYM_BELL_BYTES_MAX));
        const uint64_t old[2] = {p.line.bell[0], p.line.bell[1]};
        for (uint32_t k = 0; k < more; k++) {
            gpusym_lane_ring(&p.lane, (void *) 4096, (void *) 8192, below(GPUSYM_BELL_BYTES_MAX + 1));
        }
        const uint64_t torn[2][2] = {{old[0], p.line.bell[1]}, {p.line.bell[0], old[1]}};
        for (uint32_t at = seq - 2; at != seq + more + 2; at++) {
            assert_int_equal(gs_bell_says(torn[0], at, &m), 0);
            assert_int_equal(gs_bell_says(torn[1], at, &m), 0);
        }
    }
}

/* ---- kernels ---- */

/* The host writes one half of the bell, pauses, and writes the other: the kernel does it once, with both. */
static void torn_rings(void **state)
{
    (void) state;
    team_t t;
    team_open(&t, 2, FOR_EVER_NS, 0);
    launch_all(&t, 3);
    for (uint32_t k = 0; k < 600; k++) {
        const uint32_t count = 1 + below(COUNT_MAX), first = below(2);
        for (uint32_t r = 0; r < t.nranks; r++) {
            gpusym_lane_t *lane = t.rank[r].lane;
            paper_t p;
            paper_start(&p, lane->seq);
            gpusym_lane_ring(&p.lane, t.rank[r].in, t.rank[r].out, count * sizeof(uint64_t));
            __atomic_store_n(&lane->host->bell[first], p.line.bell[first], __ATOMIC_RELEASE);
            pause_until(now_ns() + below(200000));
            uint32_t status;
            assert_true(gpusym_lane_done(lane, &status)); /* it has neither begun anything, nor left */
            assert_int_equal(status, GPUSYM_STATUS_OK);
            lane->seq++;
            __atomic_store_n(&lane->host->bell[1 - first], p.line.bell[1 - first], __ATOMIC_RELEASE);
            t.rank[r].rang = true;
        }
        finish_all(&t, count);
    }
    assert_int_equal(t.late, 0);
    team_close(&t);
}

/* What a bell says that is neither the last call's nor the next one's, however it came there: leave, and touch nothing. */
static void stale_bells(void **state)
{
    (void) state;
    team_t t;
    team_open(&t, 2, FOR_EVER_NS, 0xffffffc0u);
    for (uint32_t k = 0; k < 300; k++) {
        launch_all(&t, 5);
        for (uint32_t r = 0; r < t.nranks; r++) {
            gpusym_lane_t *lane = t.rank[r].lane;
            paper_t p;
            paper_start(&p, lane->seq + 1 + below(254)); /* and the ring counts one more: all but the two */
            gpusym_lane_ring(&p.lane, t.rank[r].in, t.rank[r].out, 40);
            __atomic_store_n(&lane->host->bell[0], p.line.bell[0], __ATOMIC_RELEASE);
            __atomic_store_n(&lane->host->bell[1], p.line.bell[1], __ATOMIC_RELEASE);
        }
        for (uint32_t r = 0; r < t.nranks; r++) {
            await_left(t.rank[r].lane);
        }
    }
    team_close(&t);
}

/* A lane that is given back with its kernel still there, and used at once: by the same ranks, or by the others. */
static void given_back(void **state)
{
    (void) state;
    team_t t;
    team_open(&t, 2, FOR_EVER_NS, 0xfffffe00u);
    launch_all(&t, 7);
    for (uint32_t k = 0; k < 2000; k++) {
        const uint32_t count = 1 + below(300);
        for (uint32_t r = 0; r < t.nranks; r++) {
            gpusym_lane_dismiss(t.rank[r].lane);
            gpusym_lane_put(t.rank[r].lane);
        }
        for (uint32_t r = 0; r < t.nranks; r++) { /* the last one first: so ranks change lanes */
            OK(gpusym_lane_get(dev, gpu, &t.rank[r].lane));
            launch(&t, r, count);
        }
        finish_all(&t, count);
        if (0 == below(3)) {
            ring_all(&t, count);
        }
    }
    assert_int_equal(t.late, 0);
    team_close(&t);
}

/* The abort word makes a kernel leave that waits for nobody but the host; it says that it has done its last call. */
static void abort_idle(void **state)
{
    (void) state;
    team_t t;
    team_open(&t, 2, FOR_EVER_NS, 0);
    for (uint32_t k = 0; k < 20; k++) {
        launch_all(&t, 11);
        ring_all(&t, 13);
        for (uint32_t r = 0; r < t.nranks; r++) {
            __atomic_store_n(&t.rank[r].lane->host->abort, 1u, __ATOMIC_RELEASE);
            await_left(t.rank[r].lane);
        }
    }
    assert_int_equal(t.served, 40);
    team_close(&t);
}

/* A command for which a peer does not come: in time out, or aborted. */
static void alone(void **state)
{
    (void) state;
    for (uint32_t k = 0; k < 8; k++) {
        const bool aborts = 0 != k % 2;
        team_t t;
        team_open(&t, 2, FOR_EVER_NS, 0);
        t.rank[0].work.limit_ns = aborts ? 0 : 3000000;
        launch_all(&t, 4);
        ring(&t, 0, 4);
        if (aborts) {
            pause_until(now_ns() + below(300000));
            __atomic_store_n(&t.rank[0].lane->host->abort, 1u, __ATOMIC_RELEASE);
        }
        const uint64_t until = now_ns() + PATIENCE_NS;
        uint32_t status;
        while (!gpusym_lane_done(t.rank[0].lane, &status) && !gpusym_lane_left(t.rank[0].lane)) {
            assert_true(now_ns() < until);
            sched_yield();
        }
        if (gpusym_lane_left(t.rank[0].lane)) { /* it had not seen the ring yet: nothing is done, and nobody will do it */
            assert_true(aborts);
        } else {
            assert_int_equal(status, GPUSYM_STATUS_LEFT |
                                         (aborts ? (uint32_t) GPUSYM_STATUS_ABORTED : GPUSYM_STATUS_TIMEOUT | 1u << 8));
        }
        team_close(&t);
    }
}

/* ---- the edge ---- */

/* What the host does at the edge, on one rank, for the next call of all. */
static void next_call(team_t *t, uint32_t r, uint32_t count)
{
    rank_t *me = &t->rank[r];
    const bool gone = has_left(me->lane);
    t->left += gone;
    if (0 == below(24)) { /* of another kind, it may be: this one is not wanted any more; or the communicator is freed */
        t->dismissed += !gone;
        if (!gone) {
            pause_until(now_ns() + below(2000));
            gpusym_lane_dismiss(me->lane);
        }
        gpusym_lane_put(me->lane);
        OK(gpusym_lane_get(dev, gpu, &me->lane));
        launch(t, r, count);
    } else if (gone) {
        launch(t, r, count);
    } else {
        if (0 == below(2)) {
            pause_until(now_ns() + below(4000)); /* the kernel may leave between the host's look and its ring */
        }
        ring(t, r, count);
    }
}

/* Makes the pause longer, or shorter, so that as many kernels are there as are not. Where there is no such pause, since the
 * machine is busy with others, kernels stay longer. */
static void follow(team_t *t, uint64_t *pause, uint64_t gone, uint64_t there)
{
    if (gone < there) {
        *pause += STEP_NS;
    } else if (gone > there && *pause > STEP_NS) {
        *pause -= STEP_NS;
    } else if (gone > there) {
        for (uint32_t r = 0; r < t->nranks; r++) {
            t->rank[r].work.linger_ns += STEP_NS;
        }
    }
}

/* Calls `rings` times with pauses of about as long as the kernels stay. */
static void hammer(team_t *t, uint32_t rings)
{
    uint64_t pause = t->rank[0].work.linger_ns;
    launch_all(t, 1);
    for (uint32_t k = 0; k < rings; k++) {
        const uint32_t count = 0 == below(32) ? COUNT_MAX : 1 + below(8), first = below(t->nranks);
        const uint64_t gone = t->left + t->late, there = t->served;
        pause_until(now_ns() + pause + below(8000) - (pause > 4000 ? 4000 : 0));
        for (uint32_t i = 0; i < t->nranks; i++) {
            next_call(t, (first + i) % t->nranks, count);
        }
        finish_all(t, count);
        follow(t, &pause, t->left + t->late - gone, t->served - there);
    }
    print_message("%u ranks, %u calls: %lu served, %lu launched late, %lu when it was known, %lu dismissed; "
                  "pause %lu of %lu ns\n",
                  t->nranks, rings, (unsigned long) t->served, (unsigned long) t->late, (unsigned long) t->left,
                  (unsigned long) t->dismissed, (unsigned long) pause, (unsigned long) t->rank[0].work.linger_ns);
}

static void edge(void **state)
{
    (void) state;
    team_t t;
    team_open(&t, 2, 20000, UINT32_MAX - RINGS / 2);
    hammer(&t, RINGS);
    assert_true(t.served >= EACH_WAY);
    assert_true(t.late >= EACH_WAY);
    assert_true(t.left >= EACH_WAY);
    assert_true(t.dismissed > 0);
    team_close(&t);
}

static void edge_of_three(void **state)
{
    (void) state;
    team_t t;
    team_open(&t, 3, 50000, 0);
    hammer(&t, RINGS / 4);
    assert_true(t.served >= EACH_WAY / 8);
    assert_true(t.late >= EACH_WAY / 8);
    team_close(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bell_says),   cmocka_unit_test(bell_torn),  cmocka_unit_test(torn_rings),
        cmocka_unit_test(stale_bells), cmocka_unit_test(given_back), cmocka_unit_test(abort_idle),
        cmocka_unit_test(alone),       cmocka_unit_test(edge),       cmocka_unit_test(edge_of_three),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("stay", tests, NULL, NULL);
}
