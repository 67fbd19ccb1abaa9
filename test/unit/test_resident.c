/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of resident kernels: lanes (mca/common/gpusym/exec/lane.h), the doorbell (kernels/work.h) and
 * gs_agxll_r_resident() (kernels/symm/resident.h) on the simulator.  Host and kernel must neither lose a command nor do
 * one twice, whenever the host rings, above all at the moment at which the kernel leaves; also where it rings before
 * the peers are there.  A model of that, hosts, kernels and lines, is run through all its states.  Ranks are lanes of
 * this process, driven by one thread, as the component does it.
 *
 * Rank 0 sums in place, so that a command that is lost or done twice shows: a += b1 + b2 + ...; the others have their
 * sum elsewhere, and their input never changes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/plan.h"
#include "kernels/symm/symm_ll.h"
#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/memory/heap.h"
#include "mca/common/gpusym/exec/lane.h"
#include "test/unit/clock.h"
#include "test/unit/random.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)
#define RANKS_MAX 3u
#define SLOT_BYTES (14u << 20)
/* Elements of a message at most: 128 KiB, as the component has it. */
#define COUNT_MAX 16384u
/* By the tests' own clock (test/unit/clock.h): of a kernel that is to be there for as long as a test wants, and of one
 * that leaves when a test lets so much pass. */
#define FOR_EVER_NS UINT64_C(0x7fffffffffffffff)
#define LINGER_NS 20000u
/* Calls at the edge. */
#define RINGS 12000u

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
    uint32_t skip;          /* epochs that no call had, before it */
    rank_t rank[RANKS_MAX];
    uint64_t sum[COUNT_MAX];  /* what rank 0 has */
    uint64_t each[COUNT_MAX]; /* what the others add to that each time */
    uint64_t served, late, between, left, dismissed;
} team_t;

static uint32_t below(uint32_t n)
{
    return (uint32_t) (next_random() % n);
}

/* So much real time passes, with the core left to the kernels: there may be but one. */
static void pause_ns(uint64_t ns)
{
    struct timespec t;
    uint64_t now, until = 0;
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC_RAW, &t);
        now = (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
        until = 0 == until ? now + ns : until;
    } while (now < until);
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
    static uint64_t values[COUNT_MAX];
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
        me->work.nblocks = 0 == below(2) ? 1 : GPUSYM_CLUSTER_BLOCKS;
        me->work.nthreads = 32;
        me->work.out_local = 1;
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
    return gpusym_lane_done(lane, &status) && 0 != (status & GPUSYM_STATUS_RETIRED);
}

/* Time passes until it leaves: it counts from when it begins to wait. */
static void let_leave(const gpusym_lane_t *lane)
{
    while (!has_left(lane)) {
        clock_go_on(LINGER_NS + 1);
        sched_yield();
    }
}

/* Lanes whose kernels have not left are given back too: that is what a communicator that is freed does. */
static void team_close(team_t *t)
{
    for (uint32_t r = 0; r < t->nranks; r++) {
        if (!has_left(t->rank[r].lane)) {
            gpusym_lane_retire(t->rank[r].lane);
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
    gpusym_lane_command(me->lane, me->in, me->out, count * sizeof(uint64_t), t->skip);
}

/* Whether rank r has ended the call, which is launched where the kernel had left before. */
static bool poll(team_t *t, uint32_t r, uint32_t count)
{
    rank_t *me = &t->rank[r];
    uint32_t status;
    if (!gpusym_lane_done(me->lane, &status)) {
        if (me->rang && gpusym_lane_retired(me->lane)) {
            t->late++;
            launch(t, r, count);
        }
        return false;
    }
    assert_int_equal(status & 0xff, GPUSYM_STATUS_OK); /* it may have left since, having done it */
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
    t->skip = 0;
    t->epoch++;
}

/* Calls that are not made by kernels: they have epochs too. */
static void pass_by(team_t *t, uint32_t n)
{
    t->skip += n;
    t->epoch += n;
}

static void finish_all(team_t *t, uint32_t count)
{
    uint32_t ended = 0; /* a bit a rank */
    while (ended + 1 != 1u << t->nranks) {
        for (uint32_t r = 0; r < t->nranks; r++) { /* one that waits, waits for the others */
            ended |= 0 == (ended >> r & 1) && poll(t, r, count) ? 1u << r : 0;
        }
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
        const uint32_t bytes = 1 + below(GPUSYM_COMMAND_BYTES_MAX), other = below(GPUSYM_COMMAND_NUMBER + 1);
        const uint32_t skips = below(2 * GPUSYM_COMMAND_SKIP_MAX + 2);
        uint32_t heard = UINT32_MAX;
        gs_message_t m;
        paper_t p;
        paper_start(&p, seq);
        gpusym_lane_command(&p.lane, (const void *) (uintptr_t) in, (void *) (uintptr_t) out, bytes, skips);
        assert_int_equal(p.lane.seq, (uint32_t) (seq + 1));
        assert_int_equal(gs_command_read(p.line.doorbell, seq, &m, &heard), 1);
        assert_int_equal(heard, skips);
        assert_int_equal((uintptr_t) m.in, in);
        assert_int_equal((uintptr_t) m.out, out);
        assert_int_equal(m.bytes, bytes);
        assert_int_equal(gs_command_read(p.line.doorbell, seq + 1, &m, &heard), 0); /* it has done that */
        if (other != (seq & GPUSYM_COMMAND_NUMBER) && other != ((seq + 1) & GPUSYM_COMMAND_NUMBER)) {
            assert_int_equal(gs_command_read(p.line.doorbell, other, &m, &heard),
                             -1); /* not its own: it is too late for it */
        }
        paper_start(&p, seq);
        gpusym_lane_retire(&p.lane);
        assert_int_equal(gs_command_read(p.line.doorbell, seq, &m, &heard), -1);
        assert_int_equal(gs_command_read(p.line.doorbell, seq + 1, &m, &heard),
                         0); /* what is launched next is not told to leave */
    }
}

/* Torn bells say nothing: halves of two that follow each other, or of a lane that was given back, with some between. */
static void bell_torn(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 100000; i++) {
        const uint32_t seq = (uint32_t) next_random(), more = 1 + below(3);
        uint32_t heard;
        gs_message_t m;
        paper_t p;
        paper_start(&p, seq - 1);
        gpusym_lane_command(&p.lane, (void *) 4096, (void *) 8192, 1 + below(GPUSYM_COMMAND_BYTES_MAX),
                            below(2 * GPUSYM_COMMAND_SKIP_MAX + 2));
        const uint64_t old[2] = {p.line.doorbell[0], p.line.doorbell[1]};
        for (uint32_t k = 0; k < more; k++) {
            gpusym_lane_command(&p.lane, (void *) 4096, (void *) 8192, below(GPUSYM_COMMAND_BYTES_MAX + 1),
                                below(2 * GPUSYM_COMMAND_SKIP_MAX + 2));
        }
        const uint64_t torn[2][2] = {{old[0], p.line.doorbell[1]}, {p.line.doorbell[0], old[1]}};
        for (uint32_t at = seq - 2; at != seq + more + 2; at++) {
            assert_int_equal(gs_command_read(torn[0], at, &m, &heard), 0);
            assert_int_equal(gs_command_read(torn[1], at, &m, &heard), 0);
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
            gpusym_lane_command(&p.lane, t.rank[r].in, t.rank[r].out, count * sizeof(uint64_t), 0);
            __atomic_store_n(&lane->host->doorbell[first], p.line.doorbell[first], __ATOMIC_RELEASE);
            pause_ns(below(200000));
            uint32_t status;
            assert_true(gpusym_lane_done(lane, &status)); /* it has neither begun anything, nor left */
            assert_int_equal(status, GPUSYM_STATUS_OK);
            lane->seq++;
            __atomic_store_n(&lane->host->doorbell[1 - first], p.line.doorbell[1 - first], __ATOMIC_RELEASE);
            t.rank[r].rang = true;
        }
        finish_all(&t, count);
    }
    assert_int_equal(t.late, 0);
    team_close(&t);
}

/* What a bell says that is neither the last call's nor the next one's, however it came there: leave, and touch
 * nothing. */
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
            paper_start(&p, lane->seq + 1 +
                                below(GPUSYM_COMMAND_NUMBER - 1)); /* the ring counts one more: all but the two */
            gpusym_lane_command(&p.lane, t.rank[r].in, t.rank[r].out, 40, 0);
            __atomic_store_n(&lane->host->doorbell[0], p.line.doorbell[0], __ATOMIC_RELEASE);
            __atomic_store_n(&lane->host->doorbell[1], p.line.doorbell[1], __ATOMIC_RELEASE);
        }
        for (uint32_t r = 0; r < t.nranks; r++) {
            while (!has_left(t.rank[r].lane)) {
                sched_yield();
            }
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
            gpusym_lane_retire(t.rank[r].lane);
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
            while (!has_left(t.rank[r].lane)) {
                sched_yield();
            }
        }
    }
    assert_int_equal(t.served, 40);
    team_close(&t);
}

/* The same of one that has done nothing of its command. */
static void let_leave_undone(const gpusym_lane_t *lane)
{
    while (!gpusym_lane_retired(lane)) {
        clock_go_on(LINGER_NS + 1);
        sched_yield();
    }
}

/* What the host knows of the times of rank 0's last call; it began no earlier than from. Returns its end. */
static uint64_t check_times(const team_t *t, uint64_t from)
{
    const uint64_t slack = 2 * GPUSYM_TOOK_NS; /* of a begin that is told by how long the call took */
    uint64_t words[3], times[2];
    gpusym_lane_words(t->rank[0].lane, words);
    gpusym_lane_times(words, times);
    assert_true(times[0] != 0 && times[0] <= times[1] && times[0] + slack >= from);
    return times[1];
}

/* Launched calls and commanded ones tell when they began and ended; also behind the kernel's leave. */
static void times_told(void **state)
{
    (void) state;
    uint64_t words[3], none[2];
    team_t t;
    team_open(&t, 2, LINGER_NS, 7);
    launch_all(&t, 1);
    gpusym_lane_words(t.rank[0].lane, words);
    gpusym_lane_times(words, none);
    assert_true(0 == none[0] && 0 == none[1]);
    let_leave(t.rank[0].lane);
    let_leave(t.rank[1].lane);
    t.rank[0].work.timed = t.rank[1].work.timed = 1;
    launch_all(&t, 1);
    uint64_t end = check_times(&t, 1);
    for (uint32_t k = 0; k < 200; k++) {
        if (0 == below(4)) {
            clock_go_on(below(LINGER_NS / 4));
        }
        ring_all(&t, 1 + below(COUNT_MAX));
        end = check_times(&t, end);
    }
    let_leave(t.rank[0].lane);
    assert_int_equal(check_times(&t, 1), end);
    team_close(&t);
}

/* A rank's command for which a peer does not come: the kernel leaves by its time, or is told to, with nothing done,
 * though all other ranks have sent their lines. The call is made again, or not at all: then another one with the next
 * epoch. */
static void taken_back(void **state)
{
    (void) state;
    for (uint32_t k = 0; k < 60; k++) {
        const uint32_t nranks = 2 + k % 2, late = below(nranks),
                       count = 0 == below(2) ? 1 + below(4) : 1 + below(COUNT_MAX);
        const bool told = 0 == below(2), again = 0 == below(2);
        team_t t;
        team_open(&t, nranks, told ? FOR_EVER_NS : LINGER_NS, UINT32_MAX - 30);
        t.rank[late].work.linger_ns = FOR_EVER_NS;
        launch_all(&t, 4);
        for (uint32_t r = 0; r < nranks; r++) {
            if (r != late) {
                ring(&t, r, count);
            }
        }
        pause_ns(below(300000));
        for (uint32_t r = 0; r < nranks; r++) {
            if (r != late) {
                if (told) {
                    __atomic_store_n(&t.rank[r].lane->host->abort, 1u, __ATOMIC_RELEASE);
                }
                let_leave_undone(t.rank[r].lane);
            }
        }
        const uint32_t then = again ? count : 1 + below(COUNT_MAX);
        if (!again) {
            pass_by(&t, 1);
        }
        for (uint32_t r = 0; r < nranks; r++) {
            if (r == late) {
                ring(&t, r, then);
            } else {
                launch(&t, r, then);
            }
        }
        finish_all(&t, then);
        team_close(&t);
    }
}

/* Some ranks ring for a call that is not made then, others for the next one before these have been told to leave. */
static void overtaken(void **state)
{
    (void) state;
    for (uint32_t k = 0; k < 200; k++) {
        team_t t;
        team_open(&t, 2, FOR_EVER_NS, 0);
        launch_all(&t, 4);
        ring(&t, 0, 4); /* a call that rank 1 has on the host */
        pass_by(&t, 1);
        ring(&t, 1, 4); /* its next one */
        pause_ns(below(100000));
        __atomic_store_n(&t.rank[0].lane->host->abort, 1u, __ATOMIC_RELEASE);
        let_leave_undone(t.rank[0].lane);
        launch(&t, 0, 4);
        finish_all(&t, 4);
        team_close(&t);
    }
}

/* ---- a model of ringing early, all of whose states are visited ---- */

/*
 * Ranks make a few in-place all-reduces of one line, each rank of each call on the GPU or on the host; whatever order
 * hosts, kernels and lines arrive in. Hosts ring before they have read, or after, or launch; a kernel may leave
 * whenever that is not forbidden. Some calls are of another kind instead, made by another kernel beside the one that
 * stays: rank 0 sends the others a line of each parity, and waits for nobody. Every call on GPUs must end with the
 * right result on all ranks, and all calls must end.
 */
#define MODEL_RANKS 3
#define MODEL_CALLS 4
#define MODEL_TABLE (1u << 22)

/* What is left out, to see that it is missed. */
enum { MODEL_WHOLE, MODEL_ANY_PARITY, MODEL_ONE_EPOCH, MODEL_STORES_FIRST, MODEL_NEVER_ALONE };
/* Where the host of a rank is in its call, and its kernel. */
enum { HOST_POST, HOST_READ, HOST_LAUNCH, HOST_RUN, HOST_DRAIN };
enum { KERNEL_GONE, KERNEL_IDLE, KERNEL_WORKS };

typedef struct {
    uint8_t call, host, rang;      /* rang: in this call */
    uint8_t kernel, last;          /* last: epoch of its last call */
    uint8_t doorbell, leave;       /* doorbell: the epoch commanded and not taken yet; leave: it is told to retire */
    uint8_t works, launched, sent; /* the epoch of its call, made by a launch, and to whom it has sent its line */
    uint8_t done, left;            /* the completion word: the epoch done, or left undone; 0: not yet */
    uint8_t epoch;                 /* MODEL_ONE_EPOCH: of the next call on GPUs */
    uint8_t beside, beside_sent;   /* the epoch at which the other kernel is, and to whom it has sent that line */
    uint8_t not_alone;             /* it was launched since the call before */
    uint8_t value;                 /* in the user's buffer */
    struct {
        uint8_t epoch, value;
    } line[MODEL_RANKS][2]; /* by source and parity */
} model_rank_t;

typedef struct {
    model_rank_t rank[MODEL_RANKS];
} model_state_t;

typedef struct {
    uint32_t nranks, ncalls, broken;
    uint8_t host[MODEL_CALLS];  /* a bit a rank: it has this call's buffer on the host */
    bool other[MODEL_CALLS];    /* it is of another kind, on GPUs */
    uint8_t first[MODEL_CALLS]; /* its first epoch */
    uint8_t want[MODEL_CALLS];  /* what all have after it */
    bool wrong;
    model_state_t *seen, *todo;
    uint32_t nseen, ntodo;
    uint8_t *used;
} model_t;

static void model_visit(model_t *m, const model_state_t *s)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *s; i++) {
        h = (h ^ ((const uint8_t *) s)[i]) * 1099511628211u;
    }
    uint32_t at = (uint32_t) (h >> 20) % MODEL_TABLE;
    while (m->used[at]) {
        if (0 == memcmp(&m->seen[at], s, sizeof *s)) {
            return;
        }
        at = (at + 1) % MODEL_TABLE;
    }
    assert_true(++m->nseen < MODEL_TABLE / 4 * 3);
    m->used[at] = 1;
    m->seen[at] = *s;
    m->todo[m->ntodo++] = *s;
}

static bool model_all_on_gpus(const model_t *m, uint32_t call)
{
    return 0 == m->host[call];
}

static bool model_all_posted(const model_t *m, const model_state_t *s, uint32_t call)
{
    for (uint32_t r = 0; r < m->nranks; r++) {
        const model_rank_t *k = &s->rank[r];
        if (k->call < call || (k->call == call && HOST_POST == k->host)) {
            return false;
        }
    }
    return true;
}

static uint8_t model_epoch(const model_t *m, const model_rank_t *k)
{
    return MODEL_ONE_EPOCH == m->broken ? k->epoch : m->first[k->call];
}

static void model_next_call(model_rank_t *k, bool made)
{
    k->call++;
    k->host = HOST_POST;
    k->rang = k->done = k->left = 0;
    k->epoch = (uint8_t) (k->epoch + made);
}

static void model_ring(const model_t *m, model_rank_t *k, uint8_t host)
{
    k->rang = 1;
    k->doorbell = model_epoch(m, k);
    k->host = host;
}

/* One rank's host goes a step, each way it can. Whether it can. */
static bool model_host(model_t *m, const model_state_t *s, uint32_t r)
{
    model_state_t n = *s;
    model_rank_t *k = &n.rank[r];
    if (k->call == m->ncalls) {
        return false;
    }
    if (HOST_POST == k->host) {
        if (0 != (m->host[k->call] >> r & 1)) {
            model_next_call(k, false);
            model_visit(m, &n);
            return true;
        }
        k->host = HOST_READ;
        model_visit(m, &n);
        if (KERNEL_IDLE == k->kernel && !k->leave && !m->other[k->call] &&
            (MODEL_NEVER_ALONE == m->broken || !k->not_alone) &&
            (MODEL_ANY_PARITY == m->broken || 0 != (model_epoch(m, k) - k->last) % 2)) {
            model_ring(m, k, HOST_READ);
            model_visit(m, &n);
        }
        return true;
    }
    if (HOST_READ == k->host) {
        if (!model_all_posted(m, s, k->call)) {
            return false;
        }
        if (m->other[k->call]) {
            k->beside = model_epoch(m, k);
            k->not_alone = 1;
            k->host = HOST_RUN;
            model_visit(m, &n);
        } else if (k->rang) {
            k->host = model_all_on_gpus(m, k->call) ? HOST_RUN : HOST_DRAIN;
            k->leave = HOST_DRAIN == k->host;
            model_visit(m, &n);
        } else if (!model_all_on_gpus(m, k->call)) {
            model_next_call(k, false);
            model_visit(m, &n);
        } else {
            k->host = HOST_LAUNCH;
            k->leave = 1; /* whatever is there */
            model_visit(m, &n);
            if (KERNEL_IDLE == k->kernel && !s->rank[r].leave) {
                k->leave = 0;
                model_ring(m, k, HOST_RUN);
                model_visit(m, &n);
            }
        }
        return true;
    }
    if (HOST_LAUNCH == k->host) {
        if (KERNEL_GONE != k->kernel) {
            return false; /* it is queued behind the one that is told to leave */
        }
        k->kernel = KERNEL_WORKS;
        k->works = model_epoch(m, k);
        k->launched = 1;
        k->sent = k->doorbell = k->leave = k->done = k->left = 0;
        k->host = HOST_RUN;
    } else if (HOST_RUN == k->host && m->other[k->call]) {
        if (0 != k->beside) {
            return false;
        }
        m->wrong = m->wrong || k->value != m->want[k->call];
        model_next_call(k, true);
    } else if (HOST_RUN == k->host) {
        if (0 == k->done && 0 == k->left) {
            return false;
        }
        if (0 != k->left) {
            k->host = HOST_LAUNCH;
        } else {
            m->wrong = m->wrong || k->value != m->want[k->call];
            k->not_alone = 0;
            model_next_call(k, true);
        }
    } else { /* HOST_DRAIN */
        if (KERNEL_GONE != k->kernel) {
            return false;
        }
        m->wrong = m->wrong || 0 != k->done; /* nobody may have made this call */
        k->leave = 0;
        model_next_call(k, false);
    }
    model_visit(m, &n);
    return true;
}

static void model_leaves(model_rank_t *k, uint8_t undone)
{
    k->left = undone;
    k->kernel = KERNEL_GONE;
    k->works = k->sent = k->launched = k->doorbell = 0;
}

static bool model_kernel(model_t *m, const model_state_t *s, uint32_t r)
{
    const model_rank_t *was = &s->rank[r];
    model_state_t n = *s;
    model_rank_t *k = &n.rank[r];
    if (KERNEL_GONE == was->kernel) {
        return false;
    }
    if (KERNEL_IDLE == was->kernel) {
        model_leaves(k, was->doorbell); /* by its time, or told to, rung for or not */
        model_visit(m, &n);
        if (0 != was->doorbell) {
            n = *s;
            k->kernel = KERNEL_WORKS;
            k->works = was->doorbell;
            k->doorbell = k->launched = k->sent = 0;
            model_visit(m, &n);
        }
        return true;
    }
    bool can = false, all = true;
    uint8_t sum = was->value;
    for (uint32_t p = 0; p < m->nranks; p++) {
        if (p == r) {
            continue;
        }
        if (0 == (was->sent >> p & 1)) {
            n = *s;
            n.rank[p].line[r][was->works & 1].epoch = was->works;
            n.rank[p].line[r][was->works & 1].value = was->value;
            k->sent = (uint8_t) (k->sent | 1u << p);
            model_visit(m, &n);
            can = true;
        }
        all = all && 0 != (was->sent >> p & 1) && was->line[p][was->works & 1].epoch == was->works;
        sum = (uint8_t) (sum + was->line[p][was->works & 1].value);
    }
    if (!was->launched) {
        n = *s;
        k->value = MODEL_STORES_FIRST == m->broken ? (uint8_t) (was->value + 1) : was->value; /* a part of the result */
        model_leaves(k, was->works);
        model_visit(m, &n);
        can = true;
    }
    if (all) {
        n = *s;
        k->value = sum;
        k->done = k->last = was->works;
        k->kernel = KERNEL_IDLE;
        k->works = k->sent = k->launched = 0;
        model_visit(m, &n);
        can = true;
    }
    return can;
}

/* The other kernel, a line at a time: of the call's first epoch, then of its second, which has rank 0's value. */
static bool model_beside(model_t *m, const model_state_t *s, uint32_t r)
{
    const model_rank_t *was = &s->rank[r];
    const uint8_t first = m->first[was->call < m->ncalls ? was->call : 0], epoch = was->beside;
    bool can = false;
    if (0 == epoch) {
        return false;
    }
    for (uint32_t p = 1; p < m->nranks && 0 == r; p++) {
        if (0 == (was->beside_sent >> p & 1)) {
            model_state_t n = *s;
            n.rank[p].line[0][epoch & 1].epoch = epoch;
            n.rank[p].line[0][epoch & 1].value = was->value;
            n.rank[0].beside_sent = (uint8_t) (was->beside_sent | 1u << p);
            model_visit(m, &n);
            can = true;
        }
    }
    if (0 == r ? was->beside_sent + 2u == 1u << m->nranks : was->line[0][epoch & 1].epoch == epoch) {
        model_state_t n = *s;
        n.rank[r].value = 0 == r ? was->value : was->line[0][epoch & 1].value;
        n.rank[r].beside = epoch == first ? (uint8_t) (epoch + 1) : 0;
        n.rank[r].beside_sent = 0;
        model_visit(m, &n);
        can = true;
    }
    return can;
}

/* Whether the calls always go well. */
static bool model_holds(model_t *m)
{
    model_state_t first;
    uint8_t value = 0, root = 1, epoch = 1;
    memset(&first, 0, sizeof first);
    memset(m->used, 0, MODEL_TABLE);
    m->nseen = m->ntodo = 0;
    m->wrong = false;
    for (uint32_t r = 0; r < m->nranks; r++) {
        first.rank[r].value = (uint8_t) (1 + 2 * r);
        first.rank[r].epoch = 1;
        value = (uint8_t) (value + first.rank[r].value);
    }
    for (uint32_t c = 0; c < m->ncalls; c++) {
        if (m->other[c]) {
            value = (uint8_t) (root * m->nranks);
        } else if (model_all_on_gpus(m, c)) {
            root = value;
            value = (uint8_t) (value * m->nranks);
        }
        m->want[c] = root;
        m->first[c] = epoch;
        epoch = (uint8_t) (epoch + 1 + m->other[c]);
    }
    model_visit(m, &first);
    while (m->ntodo > 0 && !m->wrong) {
        const model_state_t s = m->todo[--m->ntodo];
        bool can = false, over = true;
        for (uint32_t r = 0; r < m->nranks; r++) {
            can = model_host(m, &s, r) || can;
            can = model_kernel(m, &s, r) || can;
            can = model_beside(m, &s, r) || can;
            over = over && s.rank[r].call == m->ncalls;
        }
        m->wrong = m->wrong || (!can && !over); /* all wait for each other */
    }
    return !m->wrong;
}

/* Kinds of a call: which ranks have it on the host, a bit a rank; or the other kind. */
static uint32_t model_kinds(const model_t *m)
{
    return (1u << m->nranks) + 1;
}

static uint32_t model_cases(const model_t *m)
{
    uint32_t n = 1;
    for (uint32_t c = 0; c < m->ncalls; c++) {
        n *= model_kinds(m);
    }
    return n;
}

/* The calls whose kinds are the digits of `which`. */
static bool model_run(model_t *m, uint32_t which)
{
    for (uint32_t c = 0; c < m->ncalls; c++) {
        const uint32_t kind = which % model_kinds(m);
        which /= model_kinds(m);
        m->other[c] = model_kinds(m) - 1 == kind;
        m->host[c] = (uint8_t) (m->other[c] ? 0 : kind);
    }
    return model_holds(m);
}

static void model(void **state)
{
    static const struct {
        uint32_t nranks, ncalls, stride; /* every so many of all cases */
    } sizes[] = {{2, 4, 1}, {3, 3, 11}};
    model_t m = {.broken = MODEL_WHOLE};
    uint64_t visited = 0;
    (void) state;
    m.seen = malloc(MODEL_TABLE * sizeof *m.seen);
    m.todo = malloc(MODEL_TABLE * sizeof *m.todo);
    m.used = malloc(MODEL_TABLE);
    assert_true(NULL != m.seen && NULL != m.todo && NULL != m.used);
    for (uint32_t i = 0; i < 2; i++) {
        m.nranks = sizes[i].nranks;
        m.ncalls = sizes[i].ncalls;
        for (uint32_t which = 0; which < model_cases(&m); which += sizes[i].stride) {
            assert_true(model_run(&m, which));
            visited += m.nseen;
        }
    }
    print_message("%lu states\n", (unsigned long) visited);
    m.nranks = 2;
    m.ncalls = 4;
    for (m.broken = MODEL_ANY_PARITY; m.broken <= MODEL_NEVER_ALONE; m.broken++) {
        uint32_t found = 0;
        for (uint32_t which = 0; which < model_cases(&m); which++) {
            found += !model_run(&m, which);
        }
        print_message("left out %u: %u of %u cases go wrong\n", m.broken, found, model_cases(&m));
        assert_true(found > 0);
    }
    free(m.seen);
    free(m.todo);
    free(m.used);
}

/* ---- the edge ---- */

/* When a rank's kernel leaves, as its host comes with the next call. */
enum edge { STAYS, BEFORE, BETWEEN, JUST_NOW, EDGES };

/* What the host does there, on one rank, for the next call of all. Where the kernel leaves between the host's look and
 * its ring, nobody has rung: the caller knows. */
static void next_call(team_t *t, uint32_t r, enum edge edge, uint32_t count)
{
    rank_t *me = &t->rank[r];
    if (BEFORE == edge) {
        let_leave(me->lane);
    }
    const bool gone = has_left(me->lane);
    t->left += gone;
    if (0 ==
        below(24)) { /* of another kind, it may be: this one is not wanted any more; or the communicator is freed */
        t->dismissed += !gone;
        if (!gone) {
            pause_ns(below(2000));
            gpusym_lane_retire(me->lane);
        }
        gpusym_lane_put(me->lane);
        OK(gpusym_lane_get(dev, gpu, &me->lane));
        launch(t, r, count);
    } else if (gone) {
        launch(t, r, count);
    } else {
        if (BETWEEN == edge) {
            let_leave(me->lane);
            t->between++;
        } else if (JUST_NOW == edge) {
            clock_go_on(LINGER_NS + 1);
            pause_ns(below(4000));
        }
        ring(t, r, count);
    }
}

/* Calls `rings` times; kernels leave at any moment of the next call, between ranks too: one that has been rung for
 * waits for the lines of a rank that has not as long as it stays. */
static void hammer(team_t *t, uint32_t rings)
{
    launch_all(t, 1);
    for (uint32_t k = 0; k < rings; k++) {
        const uint32_t count = 0 == below(32) ? COUNT_MAX : 1 + below(8), first = below(t->nranks);
        const uint64_t late = t->late, between = t->between, served = t->served;
        const enum edge edge = (enum edge) below(EDGES);
        uint32_t rung = 0;
        pass_by(t, 0 == below(8) ? 1 + below(GPUSYM_COMMAND_SKIP_MAX) : 0);
        for (uint32_t i = 0; i < t->nranks; i++) {
            const uint32_t r = (first + i) % t->nranks;
            next_call(t, r, 0 == i || 0 == below(16) ? edge : STAYS, count);
            rung += t->rank[r].rang;
        }
        finish_all(t, count);
        /* Who was rung for is served, or has just left, as the first one has where it left between. */
        assert_int_equal(t->served - served + (t->late - late), rung);
        assert_true(t->late - late >= t->between - between);
        assert_true(STAYS != edge || t->late == late);
    }
    print_message(
        "%u ranks, %u calls: %lu served, %lu launched late, %lu of them between look and ring, %lu when it was "
        "known, %lu dismissed\n",
        t->nranks, rings, (unsigned long) t->served, (unsigned long) t->late, (unsigned long) t->between,
        (unsigned long) t->left, (unsigned long) t->dismissed);
}

static void edge(void **state)
{
    (void) state;
    team_t t;
    team_open(&t, 2, LINGER_NS, UINT32_MAX - RINGS / 2);
    hammer(&t, RINGS);
    assert_true(t.served > 0 && t.between > 0 && t.late > t.between && t.left > 0 && t.dismissed > 0);
    team_close(&t);
}

static void edge_of_three(void **state)
{
    (void) state;
    team_t t;
    team_open(&t, 3, LINGER_NS, 0);
    hammer(&t, RINGS / 4);
    assert_true(t.served > 0 && t.between > 0 && t.late > t.between);
    team_close(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bell_says),   cmocka_unit_test(bell_torn),     cmocka_unit_test(torn_rings),
        cmocka_unit_test(stale_bells), cmocka_unit_test(given_back),    cmocka_unit_test(abort_idle),
        cmocka_unit_test(model),       cmocka_unit_test(taken_back),    cmocka_unit_test(overtaken),
        cmocka_unit_test(edge),        cmocka_unit_test(edge_of_three), cmocka_unit_test(times_told),
    };
    random_start(argc, argv);
    clock_hold();
    return cmocka_run_group_tests_name("resident", tests, NULL, NULL);
}
