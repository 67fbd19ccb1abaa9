/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit test: kernels on streams of the program (kernels/prim/stream.h). Ranks are threads, each of which runs its
 * kernels one after the other, as a stream does, and knows nothing of the others: calls of all kinds in a random order,
 * some of them straight between the ranks' buffers, with every result compared; epochs that begin anew; ranks that are
 * in different calls, have failed, or do not come.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/plan.h"
#include "mca/common/gpusym/memory/heap.h"
#include "test/unit/rig_gpu.h"

enum { RANKS_MAX = 3, BLOCKS_MAX = 3, CALLS = 3000, BYTES_MAX = 40000, SLOT = 256 << 10, SHIFT_MAX = 9 };
#define WORDS_MAX (BYTES_MAX / sizeof(uint32_t))

typedef struct {
    uint32_t rank, n;
    gpusym_work_t slot; /* what all its launches have alike */
    uint64_t done[2];   /* as the host reads it */
    /* What the peers know; the buffers of a call begin somewhere there: in and out. */
    uint32_t in_region[WORDS_MAX * RANKS_MAX + SHIFT_MAX], out_region[WORDS_MAX * RANKS_MAX + SHIFT_MAX];
    uint32_t *in, *out;
    unsigned wrong;
    pthread_t thread;
} rank_t;

typedef enum {
    SUM_LINES,
    SUM_STAGED,
    SUM_LL128,
    BCAST,
    TO_ALL,
    TO_SOME,    /* of lengths that only the two ranks know */
    SUM_LOADED, /* from here on by zero copy */
    SUM_SCATTERED,
    BCAST_LOADED,
    BCAST_STORED,
    TO_ALL_STORED, /* each rank has what comes in an order of its own, */
    PARTS_LOADED,  /* what it sends */
    KINDS
} kind_t;

/* A call, alike on all ranks. */
typedef struct {
    kind_t kind;
    uint32_t words, root, blocks;
    bool repeated; /* as by a graph: it tells the host of failures only */
} call_t;

static uint32_t *aborted;
static call_t calls[CALLS];

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static uint32_t element(uint32_t rank, uint32_t call, uint32_t i)
{
    return (rank + 1) * 1000003u + call * 7919u + i;
}

static void make_calls(uint32_t seed, uint32_t n)
{
    for (uint32_t c = 0; c < CALLS; c++) {
        const bool tiny = 0 != next_random(&seed) % 4;
        calls[c] = (call_t){.kind = (kind_t) (next_random(&seed) % KINDS),
                            .words = 1 + next_random(&seed) % (tiny ? 40 : WORDS_MAX),
                            .root = next_random(&seed) % n,
                            .blocks = 1 + next_random(&seed) % BLOCKS_MAX,
                            .repeated = 0 == next_random(&seed) % 2};
    }
}

static bool is_to_all(const call_t *call)
{
    return TO_ALL == call->kind || TO_ALL_STORED == call->kind || TO_SOME == call->kind;
}

/* Words that rank `from` has for rank `to`; of TO_SOME often none, in some calls none for anyone. */
static uint32_t words_between(const call_t *call, uint32_t from, uint32_t to)
{
    uint32_t state = call->words * 31 + call->root * 7 + from * 5 + to;
    const bool none = 0 == call->words % 8 || 0 == next_random(&state) % 3;
    if (TO_SOME != call->kind) {
        return call->words;
    }
    return none ? 0 : next_random(&state) % (call->words + 1);
}

/* Where rank r has a segment from or for rank p, in words. */
static uint32_t place_of(const call_t *call, uint32_t r, uint32_t p, uint32_t n)
{
    return (TO_ALL_STORED <= call->kind ? (p + r) % n : p) * call->words;
}

static void describe_segments(const rank_t *r, const call_t *call, gpusym_work_t *w)
{
    const uint64_t bytes = call->words * sizeof(uint32_t);
    for (uint32_t p = 0; p < r->n; p++) {
        const bool to_all = is_to_all(call);
        const uint64_t at = place_of(call, r->rank, p, r->n) * sizeof(uint32_t);
        if (PARTS_LOADED == call->kind) {
            w->send[p] = (gpusym_seg_t){at, bytes};
            w->recv[p].bytes = p == r->rank ? bytes : 0;
            continue;
        }
        if (to_all || (r->rank == call->root && p != r->rank)) {
            w->send[p] = (gpusym_seg_t){to_all ? p * bytes : 0, words_between(call, r->rank, p) * sizeof(uint32_t)};
        }
        if (to_all || (r->rank != call->root && p == call->root)) {
            w->recv[p] = (gpusym_seg_t){to_all ? at : 0, words_between(call, p, r->rank) * sizeof(uint32_t)};
        }
    }
}

static uint64_t longest_segment(const gpusym_work_t *w)
{
    uint64_t longest = 0;
    for (uint32_t p = 0; p < w->nranks; p++) {
        longest = w->send[p].bytes > longest ? w->send[p].bytes : longest;
        longest = w->recv[p].bytes > longest ? w->recv[p].bytes : longest;
    }
    return longest;
}

/* Launches a call: its blocks one after the other, as the simulator does. */
static void launch(rank_t *r, const call_t *call, uint32_t number, uint64_t sig)
{
    static const unsigned families[KINDS] = {[SUM_LINES] = GPUSYM_F_AGXLL_R,
                                             [SUM_STAGED] = GPUSYM_F_RSXST_AGXST,
                                             [SUM_LL128] = GPUSYM_F_RSXLL128_AGXLL128,
                                             [BCAST] = GPUSYM_F_XLL,
                                             [TO_ALL] = GPUSYM_F_XST,
                                             [TO_SOME] = GPUSYM_F_XST,
                                             [SUM_LOADED] = GPUSYM_F_RSXLD_AGXST_Z,
                                             [SUM_SCATTERED] = GPUSYM_F_RSXST_AGXST_Z,
                                             [BCAST_LOADED] = GPUSYM_F_RSXLD_AGXST_Z,
                                             [BCAST_STORED] = GPUSYM_F_XST_Z,
                                             [TO_ALL_STORED] = GPUSYM_F_XST_Z,
                                             [PARTS_LOADED] = GPUSYM_F_XLD_R_Z};
    unsigned family = families[call->kind];
    gpusym_work_t w = r->slot;
    w.in = r->in;
    w.out = r->out;
    w.bytes = call->words * sizeof(uint32_t);
    w.op = GPUSYM_OP_SUM;
    w.type = GPUSYM_T_U32;
    w.src_end = w.dst_end = r->n;
    if (BCAST_LOADED == call->kind) {
        w.src_first = call->root;
        w.src_end = call->root + 1;
    }
    w.nblocks = call->blocks;
    w.nthreads = rig_on_gpu() ? 32 * (1 + number % 16) : 32;
    w.out_local = !rig_on_gpu(); /* where it is pinned memory */
    describe_segments(r, call, &w);
    w.bytes = TO_SOME == call->kind ? longest_segment(&w) : w.bytes;
    if (TO_SOME == call->kind) {
        family = gpusym_kernel_sized_family(&w);
        w.epochs = gpusym_kernel_plan_sized(&w, 256);
    } else {
        w.epochs = gpusym_kernel_plan(family, &w, 0);
        w.early = GPUSYM_PROTOCOL_LL == gpusym_family_protocol(family) && 1 == w.epochs ? GPUSYM_STREAM_BEGINS
                                                                                        : GPUSYM_STREAM_WAITS;
    }
    w.enter_sig = TO_SOME == call->kind ? sig << 32 : sig;
    w.done_seq = call->repeated ? 0 : number;
    const unsigned kernel = gpusym_kernel_find_stream(family, w.op, w.type);
    if (rig_on_gpu()) {
        rig_gpu_run(r->rank, kernel, &w);
    }
    for (uint32_t b = 0; b < w.nblocks && !rig_on_gpu(); b++) {
        gpusym_kernel_sim(kernel, &w, b);
    }
}

static void fill(rank_t *r, const call_t *call, uint32_t number)
{
    const uint32_t words = call->words * (is_to_all(call) || PARTS_LOADED == call->kind ? r->n : 1);
    r->in = r->in_region + (number + r->rank) % SHIFT_MAX;
    r->out = SUM_LOADED <= call->kind && BCAST_STORED > call->kind && 0 == number % 5
                 ? r->in /* in place */
                 : r->out_region + (number + 3 * r->rank) % SHIFT_MAX;
    for (uint32_t i = 0; i < words; i++) {
        r->out[i] = 0xdeadbeefu;
        r->in[i] = element(r->rank, number, i);
    }
}

static unsigned compare(const rank_t *r, const call_t *call, uint32_t number)
{
    unsigned wrong = 0;
    for (uint32_t i = 0; i < call->words; i++) {
        uint32_t sum = 0;
        for (uint32_t p = 0; p < r->n; p++) {
            sum += element(p, number, i);
        }
        switch (call->kind) {
        case BCAST_LOADED:
            wrong += r->out[i] != element(call->root, number, i);
            break;
        case BCAST:
        case BCAST_STORED:
            wrong += r->out[i] != (r->rank == call->root ? 0xdeadbeefu : element(call->root, number, i));
            break;
        case TO_ALL:
        case TO_SOME:
        case TO_ALL_STORED:
            for (uint32_t p = 0; p < r->n; p++) {
                const uint32_t sent = element(p, number, r->rank * call->words + i);
                const bool comes = i < words_between(call, p, r->rank);
                wrong += r->out[place_of(call, r->rank, p, r->n) + i] != (comes ? sent : 0xdeadbeefu);
            }
            break;
        case PARTS_LOADED:
            sum = 0;
            for (uint32_t p = 0; p < r->n; p++) {
                sum += element(p, number, place_of(call, p, r->rank, r->n) + i);
            }
            wrong += r->out[i] != sum;
            break;
        default:
            wrong += r->out[i] != sum;
            break;
        }
    }
    return wrong;
}

static void *run_all(void *arg)
{
    rank_t *r = arg;
    uint32_t state = r->rank;
    for (uint32_t c = 0; c < CALLS; c++) {
        for (uint32_t i = next_random(&state) % 8 * (next_random(&state) % 3); i > 0; i--) {
            sched_yield();
        }
        fill(r, &calls[c], c);
        launch(r, &calls[c], c + 1, 1000 + c);
        r->wrong += compare(r, &calls[c], c);
        r->wrong += !calls[c].repeated && r->done[0] != (uint64_t) (c + 1) << 32;
    }
    return NULL;
}

/* Ranks whose first call has that epoch. */
static rank_t *make_ranks(uint32_t n, uint32_t epoch)
{
    rank_t *rank = rig_memory(n * sizeof *rank);
    void *slot[RANKS_MAX];
    for (uint32_t r = 0; r < n; r++) {
        slot[r] = rig_slot(SLOT);
        memset(slot[r], 0, SLOT);
        *(gpusym_slot_head_t *) slot[r] = (gpusym_slot_head_t){.epoch = epoch};
    }
    for (uint32_t r = 0; r < n; r++) {
        rank[r].rank = rank[r].slot.rank = r;
        rank[r].n = rank[r].slot.nranks = n;
        rank[r].slot.done = rank[r].done;
        rank[r].slot.failed = rank[r].done + 1;
        rank[r].slot.abort = aborted;
        assert_true(BLOCKS_MAX <= gpusym_slot_layout(SLOT, n, BLOCKS_MAX, &rank[r].slot));
        for (uint32_t p = 0; p < n; p++) {
            rank[r].slot.peer[p] = slot[p];
            rank[r].slot.peer_in[p] = rank[p].in_region;
            rank[r].slot.peer_out[p] = rank[p].out_region;
        }
    }
    *aborted = 0;
    return rank;
}

static void free_ranks(rank_t *rank, uint32_t n)
{
    for (uint32_t p = 0; p < n; p++) {
        rig_free_slot(rank[0].slot.peer[p]);
    }
    rig_free_memory(rank);
}

static void check_calls(uint32_t n, uint32_t epoch)
{
    rank_t *rank = make_ranks(n, epoch);
    make_calls(n, n);
    for (uint32_t r = 0; r < n; r++) {
        assert_int_equal(pthread_create(&rank[r].thread, NULL, run_all, &rank[r]), 0);
    }
    for (uint32_t r = 0; r < n; r++) {
        (void) pthread_join(rank[r].thread, NULL);
        assert_int_equal(rank[r].wrong, 0);
        assert_int_equal(rank[r].done[1], 0);
        const gpusym_slot_head_t *head = (const gpusym_slot_head_t *) rank[r].slot.peer[r];
        assert_int_equal(head->failed, 0);
        assert_int_equal(head->calls, CALLS);
        assert_true(head->epoch < GPUSYM_STREAM_EPOCH_MAX || 1 == epoch);
    }
    free_ranks(rank, n);
}

static void two_ranks(void **state)
{
    (void) state;
    check_calls(2, 1);
}

static void three_ranks(void **state)
{
    (void) state;
    check_calls(3, 1);
}

static void epochs_begin_anew(void **state)
{
    (void) state;
    check_calls(2, GPUSYM_STREAM_EPOCH_MAX - 100);
    check_calls(3, GPUSYM_STREAM_EPOCH_MAX - 3);
}

/* ---- failures ---- */

typedef struct {
    rank_t *rank;
    kind_t kind;
    uint64_t sig;
    unsigned calls;
    uint32_t words;
} part_t;

static void *run_part(void *arg)
{
    const part_t *part = arg;
    const call_t call = {.kind = part->kind, .words = part->words, .blocks = 2};
    for (unsigned c = 0; c < part->calls; c++) {
        fill(part->rank, &call, c);
        launch(part->rank, &call, c + 1, part->sig);
    }
    return NULL;
}

/* Runs both parts, and returns with what the ranks' hosts find. */
static void run_both(const part_t part[2], uint32_t found[2])
{
    for (unsigned r = 0; r < 2; r++) {
        assert_int_equal(pthread_create(&part[r].rank->thread, NULL, run_part, (void *) (uintptr_t) &part[r]), 0);
    }
    for (unsigned r = 0; r < 2; r++) {
        (void) pthread_join(part[r].rank->thread, NULL);
        found[r] = (uint32_t) part[r].rank->done[1];
        if (0 != part[r].calls) {
            assert_int_equal(part[r].rank->done[0] >> 32, part[r].calls); /* also of calls behind a failure */
        }
    }
}

static void ranks_in_different_calls_find_out(void **state)
{
    static const kind_t kinds[][2] = {{SUM_LINES, BCAST},   {SUM_LINES, SUM_STAGED},  {SUM_STAGED, TO_ALL},
                                      {SUM_LINES, TO_SOME}, {SUM_STAGED, SUM_LOADED}, {TO_SOME, TO_SOME}};
    (void) state;
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        rank_t *rank = make_ranks(2, 1);
        uint32_t found[2];
        run_both((part_t[]){{&rank[0], kinds[i][0], 5, 3, 8}, {&rank[1], kinds[i][1], 7, 3, 8}}, found);
        /* one may have ended the first of them, in which it only sends */
        for (unsigned r = 0; r < 2; r++) {
            const uint32_t other = (1 - r) << 8;
            assert_true((GPUSYM_STATUS_MISMATCH | other) == found[r] || (GPUSYM_STATUS_PEER | other) == found[r]);
        }
        assert_true(GPUSYM_STATUS_MISMATCH == (found[0] & 0xff) || GPUSYM_STATUS_MISMATCH == (found[1] & 0xff));
        free_ranks(rank, 2);
    }
}

/* Two ranks that do not agree on what goes between them: none waits for what does not come. */
static void lengths_that_differ_are_found(void **state)
{
    static const uint32_t words[][2] = {{9, 10}, {9, 9000}, {9000, 9}, {9000, 9001}};
    (void) state;
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
        rank_t *rank = make_ranks(2, 1);
        uint32_t found[2];
        const call_t call[2] = {{.kind = TO_SOME, .words = words[i][0]}, {.kind = TO_SOME, .words = words[i][1]}};
        assert_true(words_between(&call[0], 0, 1) != words_between(&call[1], 0, 1) ||
                    words_between(&call[0], 1, 0) != words_between(&call[1], 1, 0));
        run_both((part_t[]){{&rank[0], TO_SOME, 5, 2, words[i][0]}, {&rank[1], TO_SOME, 5, 2, words[i][1]}}, found);
        for (unsigned r = 0; r < 2; r++) {
            assert_true(GPUSYM_STATUS_MISMATCH == (found[r] & 0xff) || GPUSYM_STATUS_PEER == (found[r] & 0xff));
        }
        free_ranks(rank, 2);
    }
}

static void a_rank_that_has_failed_says_so(void **state)
{
    rank_t *rank = make_ranks(2, 1);
    uint32_t found[2];
    (void) state;
    ((gpusym_slot_head_t *) rank[1].slot.peer[1])->failed = GPUSYM_STATUS_TIMEOUT;
    run_both((part_t[]){{&rank[0], SUM_LINES, 5, 2, 8}, {&rank[1], SUM_LINES, 5, 2, 8}}, found);
    assert_int_equal(found[0], GPUSYM_STATUS_PEER | 1 << 8);
    assert_int_equal(found[1], GPUSYM_STATUS_TIMEOUT);
    free_ranks(rank, 2);
}

static void the_abort_word_ends_waits(void **state)
{
    static const kind_t kinds[] = {SUM_LINES, SUM_STAGED, SUM_SCATTERED};
    (void) state;
    rig_simulated_only();
    for (unsigned i = 0; i < 3; i++) {
        rank_t *rank = make_ranks(2, 1);
        uint32_t found[2];
        *aborted = 1;
        run_both((part_t[]){{&rank[0], kinds[i], 5, 2, 8}, {&rank[1], kinds[i], 5, 0, 8}}, found);
        assert_int_equal(found[0] & 0xff, GPUSYM_STATUS_ABORTED);
        free_ranks(rank, 2);
    }
}

/* A rank that is in the call, and whose data do not come. */
static void time_counts_from_the_entry(void **state)
{
    rig_simulated_only();
    rank_t *rank = make_ranks(2, 1);
    const uint64_t entry[2] = {5 | (uint64_t) 1 << 32, (uint64_t) 1 << 32}; /* an LL line with the first epoch */
    uint32_t found[2];
    (void) state;
    rank[0].slot.limit_ns = 1000000;
    memcpy((char *) rank[0].slot.peer[0] + GPUSYM_ENTER_OFF + GPUSYM_ENTER_LINES + 2 * 16, entry, sizeof entry);
    run_both((part_t[]){{&rank[0], SUM_LINES, 5, 1, 8}, {&rank[1], SUM_LINES, 5, 0, 8}}, found);
    assert_int_equal(found[0], GPUSYM_STATUS_TIMEOUT | 1 << 8);
    free_ranks(rank, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(three_ranks),
        cmocka_unit_test(epochs_begin_anew),
        cmocka_unit_test(ranks_in_different_calls_find_out),
        cmocka_unit_test(lengths_that_differ_are_found),
        cmocka_unit_test(a_rank_that_has_failed_says_so),
        cmocka_unit_test(the_abort_word_ends_waits),
        cmocka_unit_test(time_counts_from_the_entry),
    };
    rig_gpu_start();
    aborted = rig_memory(sizeof *aborted);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
