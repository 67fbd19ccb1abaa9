/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of tuning/tuning.c: whatever the call, of whatever collective, the choice can be launched, is the same on
 * every rank, and is what the user forces.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/p2p/pipeline.h"
#include "tuning/copy.h"
#include "tuning/pack.h"
#include "tuning/resident.h"
#include "tuning/tree.h"
#include "tuning/tuning.h"
#include "test/unit/random.h"

static const gpusym_tuning_forced_t nothing = {.algorithm = -1};

static unsigned family_of(int algorithm)
{
    return gpusym_algorithm_family((unsigned) algorithm);
}

static bool is_multicast(int algorithm)
{
    return gpusym_family_multicast(family_of(algorithm));
}

/* The families of LL lines say so in their names: AGXLL_R, XLLMC. */
static bool is_ll(int algorithm)
{
    return NULL != strstr(gpusym_family_name(family_of(algorithm)), "XLL") &&
           !gpusym_family_ll128(family_of(algorithm));
}

static void say(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced,
                const gpusym_tuning_choice_t *choice)
{
    print_error("%s, %lu bytes, %s of %s, %u ranks, %u SMs, simulated %d, zero copy %d, multicast %d, reproducible %d, "
                "all reach %d, LL128 %d, LL payload %lu, %u blocks at most; forced %d %lu %u %u %u: algorithm %d, "
                "%u blocks of %u threads, chunk %u, zero copy %d\n",
                gpusym_collective_name(call->coll), (unsigned long) call->bytes, gpusym_op_name(call->op),
                gpusym_type_name(call->type), call->nranks, call->sm_count, call->simulated, call->zero_copy,
                call->multicast, call->reproducible, call->all_reach, call->ll128, (unsigned long) call->ll_payload,
                call->max_blocks, forced->algorithm, (unsigned long) forced->oneshot_max, forced->blocks,
                forced->threads, forced->chunk, choice->algorithm, choice->blocks, choice->threads, choice->chunk,
                choice->zero_copy);
}

static bool within_bounds(const gpusym_tuning_call_t *call, const gpusym_tuning_choice_t *c)
{
    return c->algorithm >= 0 && c->algorithm < GPUSYM_ALG_COUNT &&
           gpusym_algorithm_collective((unsigned) c->algorithm) == call->coll && c->blocks >= 1 &&
           c->blocks <= call->max_blocks && c->threads >= 32 && c->threads <= GPUSYM_THREADS_MAX &&
           0 == c->threads % 32;
}

static bool has_schedule(int algorithm)
{
    return gpusym_algorithm_schedule((unsigned) algorithm) >= 0;
}

/* Whether an algorithm goes along neighbours on a ring alone. */
static bool is_ring(int algorithm)
{
    return has_schedule(algorithm) && NULL == strstr(gpusym_algorithm_name((unsigned) algorithm), "dbtree");
}

/* Of copy engines; and those that send into users' outputs. */
static bool is_copies(int algorithm)
{
    return gpusym_family_copies(family_of(algorithm));
}

static bool is_reduce_scatter(int algorithm)
{
    const unsigned coll = gpusym_algorithm_collective((unsigned) algorithm);
    return GPUSYM_COLL_REDUCE_SCATTER == coll || GPUSYM_COLL_REDUCE_SCATTER_BLOCK == coll;
}

static bool copies_out(int algorithm)
{
    return is_copies(algorithm) && !is_reduce_scatter(algorithm);
}

/* Whether an algorithm can serve the call. */
static bool can_serve(const gpusym_tuning_call_t *call, int algorithm)
{
    const unsigned family = family_of(algorithm);
    return (!is_multicast(algorithm) || (call->multicast && gpusym_family_valid(family, call->op, call->type))) &&
           (!call->reproducible || gpusym_algorithm_reproducible((unsigned) algorithm)) &&
           (call->all_reach || is_ring(algorithm)) && (call->ll128 || !gpusym_family_ll128(family)) &&
           (!is_copies(algorithm) || call->copies) && (!copies_out(algorithm) || call->zero_copy) &&
           !(call->overwrites && (is_copies(algorithm) || has_schedule(algorithm)));
}

/* Whether there is any. */
static bool can_be_served(const gpusym_tuning_call_t *call)
{
    for (int algorithm = 0; algorithm < GPUSYM_ALG_COUNT; algorithm++) {
        if (gpusym_algorithm_collective((unsigned) algorithm) == call->coll && can_serve(call, algorithm)) {
            return true;
        }
    }
    return false;
}

static bool algorithm_as_forced(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *f, int chosen)
{
    if (f->algorithm >= 0 && can_serve(call, f->algorithm)) {
        return chosen == f->algorithm;
    }
    if (!can_serve(call, chosen)) {
        return false;
    }
    if (!call->all_reach) {
        return true;
    }
    /* by name only; multicast on request, too */
    return (!is_multicast(chosen) || call->mc_requested) && !has_schedule(chosen) &&
           (0 == f->oneshot_max || is_ll(chosen) == (call->bytes <= f->oneshot_max));
}

/* Zero copy: by another family, or, of rings, chains and trees, by Simple, where there are results to hand on. */
static bool zero_copy_right(const gpusym_tuning_call_t *call, const gpusym_tuning_choice_t *c)
{
    const unsigned family = family_of(c->algorithm);
    if (is_copies(c->algorithm)) {
        return c->family == family && c->zero_copy == copies_out(c->algorithm);
    }
    if (!call->zero_copy || !has_schedule(c->algorithm)) {
        return c->zero_copy == (c->family != family) && (call->zero_copy || c->family == family);
    }
    switch (gpusym_algorithm_schedule((unsigned) c->algorithm)) {
    case GS_RING_REDUCE_SCATTER:
    case GS_CHAIN_REDUCE:
    case GS_TREE_REDUCE:
        return c->family == family && !c->zero_copy;
    default:
        return c->family == family &&
               c->zero_copy == (NULL != strstr(gpusym_algorithm_name((unsigned) c->algorithm), "_simple"));
    }
}

static bool as_forced(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *f,
                      const gpusym_tuning_choice_t *c)
{
    const uint32_t threads = f->threads > GPUSYM_THREADS_MAX ? GPUSYM_THREADS_MAX : f->threads;
    return algorithm_as_forced(call, f, c->algorithm) && (0 == f->chunk || c->chunk == f->chunk) &&
           c->family < GPUSYM_F_COUNT && zero_copy_right(call, c) &&
           (0 == f->blocks || c->blocks == (f->blocks < call->max_blocks ? f->blocks : call->max_blocks)) &&
           (0 == f->threads || (c->threads >= threads && c->threads < threads + 32));
}

static bool same(const gpusym_tuning_choice_t *a, const gpusym_tuning_choice_t *b)
{
    return a->algorithm == b->algorithm &&
           (a->algorithm < 0 || (a->family == b->family && a->blocks == b->blocks && a->threads == b->threads &&
                                 a->chunk == b->chunk && a->zero_copy == b->zero_copy));
}

static gpusym_tuning_choice_t choose(const gpusym_tuning_call_t *call, const gpusym_tuning_forced_t *forced)
{
    gpusym_tuning_choice_t first, again;
    memset(&first, 0x11, sizeof first);
    memset(&again, 0x22, sizeof again);
    gpusym_tuning_choose(call, forced, &first);
    gpusym_tuning_choose(call, forced, &again);
    const bool right = first.algorithm < 0 ? !call->all_reach && !can_be_served(call)
                                           : within_bounds(call, &first) && as_forced(call, forced, &first);
    if (!right || !same(&first, &again)) {
        say(call, forced, &first);
        fail();
    }
    return first;
}

/* 0, then every power of two with its neighbours and a random size, up to 2^34. */
static unsigned sizes(uint64_t *size)
{
    unsigned n = 0;
    size[n++] = 0;
    for (unsigned b = 0; b <= 33; b++) {
        size[n++] = (1ull << b) - (b > 0);
        size[n++] = 1ull << b;
        size[n++] = (1ull << b) + 1;
        size[n++] = (1ull << b) + next_random() % (1ull << b);
    }
    return n;
}
#define SIZES (1 + 4 * 34)

/* Any collective, and an operation on a type that the kernels know. */
static void draw_what(gpusym_tuning_call_t *call)
{
    call->coll = (unsigned) (next_random() % GPUSYM_COLL_COUNT);
    do {
        call->op = (unsigned) (next_random() % GPUSYM_OP_COUNT);
        call->type = (unsigned) (next_random() % GPUSYM_T_COUNT);
    } while (!gpusym_op_valid(call->op, call->type));
}

static gpusym_tuning_call_t draw_call(uint64_t bytes)
{
    gpusym_tuning_call_t call = {.bytes = bytes,
                                 .nranks = 1 + (uint32_t) (next_random() % GPUSYM_TEAM_MAX),
                                 .sm_count = 1 + (uint32_t) (next_random() % 200),
                                 .simulated = next_random() % 2,
                                 .zero_copy = next_random() % 2,
                                 .multicast = next_random() % 2,
                                 .mc_requested = next_random() % 2,
                                 .reproducible = 0 == next_random() % 4,
                                 .overwrites = 0 == next_random() % 4,
                                 .all_reach = 0 != next_random() % 4,
                                 .ll128 = next_random() % 2,
                                 .copies = next_random() % 2,
                                 .ll_payload = 16 + next_random() % 100000,
                                 .max_blocks = 1 + (uint32_t) (next_random() % GPUSYM_BLOCKS_MAX)};
    draw_what(&call);
    return call;
}

/* A call as there are many: sums of floats in a team of GPUs of 132 multiprocessors. */
static gpusym_tuning_call_t usual_call(unsigned coll, uint32_t nranks, uint64_t bytes)
{
    return (gpusym_tuning_call_t){.coll = coll,
                                  .bytes = bytes,
                                  .op = GPUSYM_OP_SUM,
                                  .type = GPUSYM_T_F32,
                                  .nranks = nranks,
                                  .sm_count = 132,
                                  .all_reach = true,
                                  .ll128 = true,
                                  .ll_payload = 64 << 10,
                                  .max_blocks = 128};
}

static void any_call_can_be_launched(void **state)
{
    (void) state;
    uint64_t size[SIZES];
    const unsigned n = sizes(size);
    for (uint32_t sm = 1; sm <= 200; sm++) {
        for (uint32_t ranks = 1; ranks <= GPUSYM_TEAM_MAX; ranks++) {
            for (unsigned k = 0; k < 2 * n; k++) {
                gpusym_tuning_call_t call = {.bytes = size[k / 2],
                                             .nranks = ranks,
                                             .sm_count = sm,
                                             .simulated = k % 2,
                                             .zero_copy = next_random() % 2,
                                             .multicast = next_random() % 2,
                                             .mc_requested = next_random() % 2,
                                             .all_reach = 0 != next_random() % 4,
                                             .ll128 = next_random() % 2,
                                             .copies = next_random() % 2,
                                             .ll_payload = 16ull << next_random() % 20};
                draw_what(&call);
                call.max_blocks = gpusym_tuning_max_blocks(sm, call.simulated);
                if (0 == next_random() % 4) { /* a small slot has room for fewer */
                    call.max_blocks = 1 + (uint32_t) (next_random() % call.max_blocks);
                }
                choose(&call, &nothing);
            }
        }
    }
}

/* An algorithm of that collective, or -1. */
static int draw_algorithm(unsigned coll)
{
    int algorithm;
    if (0 == next_random() % 4) {
        return -1;
    }
    do {
        algorithm = (int) (next_random() % GPUSYM_ALG_COUNT);
    } while (gpusym_algorithm_collective((unsigned) algorithm) != coll);
    return algorithm;
}

static void what_is_forced_is_taken(void **state)
{
    (void) state;
    static const uint32_t threads[] = {0, 32, 64, 256, 512, 1, 33, 500, 1024, UINT32_MAX};
    static const uint32_t blocks[] = {0, 1, 2, 3, 7, 32, 64, 128, 256, UINT32_MAX};
    static const uint32_t chunks[] = {0, 1, 16, 65536, UINT32_MAX};
    uint64_t size[SIZES];
    const unsigned n = sizes(size);
    for (unsigned i = 0; i < 300000; i++) {
        const gpusym_tuning_call_t call = draw_call(size[next_random() % n]);
        const gpusym_tuning_forced_t forced = {.algorithm = draw_algorithm(call.coll),
                                               .oneshot_max = next_random() % 2 ? 0 : size[next_random() % n],
                                               .blocks = blocks[next_random() % 10],
                                               .threads = threads[next_random() % 10],
                                               .chunk = chunks[next_random() % 5]};
        choose(&call, &forced);
    }
}

/* Every algorithm of the list can be had by its name, in every call that it can serve. */
static void every_algorithm_can_be_forced(void **state)
{
    (void) state;
    for (int algorithm = 0; algorithm < GPUSYM_ALG_COUNT; algorithm++) {
        for (unsigned simulated = 0; simulated < 2; simulated++) {
            for (uint64_t bytes = 1; bytes <= 1ull << 32; bytes *= 256) {
                gpusym_tuning_call_t call = usual_call(gpusym_algorithm_collective((unsigned) algorithm), 4, bytes);
                call.op = GPUSYM_OP_BAND;
                call.type = GPUSYM_T_U32; /* which a switch can do as well */
                call.multicast = true;
                call.simulated = simulated;
                call.copies = true;
                call.zero_copy = copies_out(algorithm);
                const gpusym_tuning_forced_t forced = {.algorithm = algorithm};
                assert_int_equal(choose(&call, &forced).algorithm, algorithm);
            }
        }
    }
}

/* Multicast only by name; where there is none, or not for this operation and type, as if nothing had been forced. */
static void multicast_is_requested(void **state)
{
    (void) state;
    unsigned taken = 0, refused = 0;
    for (int algorithm = 0; algorithm < GPUSYM_ALG_COUNT; algorithm++) {
        for (unsigned k = 0; is_multicast(algorithm) && k < 2000; k++) {
            gpusym_tuning_call_t call = draw_call(1ull << next_random() % 30);
            call.coll = gpusym_algorithm_collective((unsigned) algorithm);
            call.mc_requested = false;
            const gpusym_tuning_forced_t forced = {.algorithm = algorithm};
            const gpusym_tuning_choice_t with = choose(&call, &forced), without = choose(&call, &nothing);
            assert_false(without.algorithm >= 0 && is_multicast(without.algorithm));
            if (can_serve(&call, algorithm)) {
                assert_int_equal(with.algorithm, algorithm);
                taken++;
            } else {
                assert_true(same(&with, &without));
                refused++;
            }
        }
    }
    assert_true(taken > 0 && refused > 0);
    /* no switch multiplies, nor takes the maximum of doubles; to send, any will do */
    gpusym_tuning_call_t call = usual_call(GPUSYM_COLL_ALLREDUCE, 4, 1 << 20);
    gpusym_tuning_forced_t forced = {.algorithm = GPUSYM_ALG_ALLREDUCE_RSXLDMC_AGXSTMC};
    call.multicast = true;
    assert_int_equal(choose(&call, &forced).algorithm, forced.algorithm);
    call.op = GPUSYM_OP_PROD;
    assert_int_not_equal(choose(&call, &forced).algorithm, forced.algorithm);
    call.op = GPUSYM_OP_MAX;
    call.type = GPUSYM_T_F64;
    assert_int_not_equal(choose(&call, &forced).algorithm, forced.algorithm);
    forced.algorithm = GPUSYM_ALG_ALLREDUCE_AGXLLMC_R;
    assert_int_equal(choose(&call, &forced).algorithm, forced.algorithm);
    call.multicast = false;
    assert_int_not_equal(choose(&call, &forced).algorithm, forced.algorithm);
}

/* Where the user asks for multicast the defaults have it; but not where there is none, the order of summation counts,
 * no switch can do it, a parameter or a rule names another algorithm, or the limit of LL lines is higher. */
static void requested_multicast_is_taken(void **state)
{
    (void) state;
    const int mc = GPUSYM_ALG_ALLREDUCE_RSXLDMC_AGXSTMC;
    gpusym_tuning_forced_t forced = {.algorithm = GPUSYM_ALG_ALLREDUCE_RSXST_AGXST};
    for (uint32_t ranks = 5; ranks <= GPUSYM_TEAM_MAX; ranks++) {
        gpusym_tuning_call_t call = usual_call(GPUSYM_COLL_ALLREDUCE, ranks, 16 << 20);
        call.multicast = call.mc_requested = true;
        call.zero_copy = ranks % 2;
        assert_int_equal(choose(&call, &nothing).algorithm, mc);
        assert_int_equal(choose(&call, &forced).algorithm, forced.algorithm);
        assert_int_not_equal(
            choose(&call, &(gpusym_tuning_forced_t){.algorithm = -1, .oneshot_max = 16 << 20}).algorithm, mc);
        call.mc_requested = false;
        assert_int_not_equal(choose(&call, &nothing).algorithm, mc);
        call.mc_requested = call.reproducible = true;
        assert_int_not_equal(choose(&call, &nothing).algorithm, mc);
        call.reproducible = call.multicast = false;
        assert_int_not_equal(choose(&call, &nothing).algorithm, mc);
        call.multicast = true;
        call.op = GPUSYM_OP_PROD;
        assert_int_not_equal(choose(&call, &nothing).algorithm, mc);
    }
}

/* Where not all reach all, rings serve what has them, in the order of the ranks if that is wanted: small messages by
 * LL, then, where links are fit for it, by LL128, large ones by Simple. The others are for the previous module. */
static void rings_serve_where_not_all_reach(void **state)
{
    (void) state;
    unsigned served = 0, refused = 0;
    for (unsigned i = 0; i < GPUSYM_COLL_COUNT * (GPUSYM_TEAM_MAX - 1) * 4; i++) {
        gpusym_tuning_call_t call = usual_call(i % GPUSYM_COLL_COUNT, 2 + i / GPUSYM_COLL_COUNT / 4, 1);
        bool seen[3] = {false, false, false};
        unsigned last = 0;
        call.all_reach = false;
        call.ll128 = i / GPUSYM_COLL_COUNT % 2;
        call.reproducible = i / GPUSYM_COLL_COUNT / 2 % 2;
        for (; can_be_served(&call) && call.bytes < 1ull << 33; call.bytes += 1 + call.bytes / 4) {
            const gpusym_tuning_choice_t c = choose(&call, &nothing);
            const char *name = gpusym_algorithm_name((unsigned) c.algorithm);
            const unsigned protocol = NULL != strstr(name, "_simple") ? 2 : NULL != strstr(name, "_ll128") ? 1 : 0;
            assert_true(protocol >= last);
            seen[last = protocol] = true;
        }
        served += seen[0];
        assert_true(seen[0] == can_be_served(&call) && seen[2] == seen[0] && seen[1] == (seen[0] && call.ll128));
        if (!seen[0]) {
            refused++;
            assert_int_equal(choose(&call, &nothing).algorithm, -1);
        }
    }
    assert_true(served > 0 && refused > 0);
}

/* The largest message that goes by LL lines; all smaller ones do, and no larger one. */
static uint64_t ll_limit(const gpusym_tuning_call_t *like, const gpusym_tuning_forced_t *forced)
{
    gpusym_tuning_call_t call = *like;
    uint64_t limit = 0, above = 0;
    for (call.bytes = 1; call.bytes < 1ull << 33; call.bytes += 1 + call.bytes / 16) {
        const bool ll = is_ll(choose(&call, forced).algorithm);
        assert_false(ll && 0 != above);
        limit = ll ? call.bytes : limit;
        above = ll || 0 != above ? above : call.bytes;
    }
    assert_true(above > limit);
    while (above - limit > 1) {
        call.bytes = limit + (above - limit) / 2;
        *(is_ll(choose(&call, forced).algorithm) ? &limit : &above) = call.bytes;
    }
    return limit;
}

/* For every collective: LL lines for the small, none for the large, and the more ranks, the smaller what is small. It
 * does not hang on the GPU, on whether buffers are mapped, nor on how many blocks there is room for. */
static void ll_is_for_the_small(void **state)
{
    (void) state;
    for (unsigned coll = 0; coll < GPUSYM_COLL_COUNT; coll++) {
        uint64_t before = UINT64_MAX;
        for (uint32_t ranks = 2; ranks <= GPUSYM_TEAM_MAX; ranks++) {
            gpusym_tuning_call_t call = usual_call(coll, ranks, 0);
            const uint64_t limit = ll_limit(&call, &nothing);
            if (limit < 8 || limit > before) {
                print_error("%s, %u ranks: limit %lu\n", gpusym_collective_name(coll), ranks, (unsigned long) limit);
                fail();
            }
            before = limit;
            call.sm_count = 1 + (uint32_t) (next_random() % 200);
            call.max_blocks = 1 + (uint32_t) (next_random() % GPUSYM_BLOCKS_MAX);
            call.zero_copy = call.multicast = next_random() % 2;
            call.bytes = limit;
            assert_true(is_ll(choose(&call, &nothing).algorithm));
            call.bytes = limit + 1;
            assert_false(is_ll(choose(&call, &nothing).algorithm));
        }
    }
}

static void the_limit_of_ll_can_be_forced(void **state)
{
    (void) state;
    for (unsigned coll = 0; coll < GPUSYM_COLL_COUNT; coll++) {
        for (unsigned i = 0; i < 20; i++) {
            const gpusym_tuning_call_t call = usual_call(coll, 2 + i, 0);
            const gpusym_tuning_forced_t forced = {.algorithm = -1,
                                                   .oneshot_max = 8 + next_random() % (1ull << (4 + i))};
            assert_int_equal(ll_limit(&call, &forced), forced.oneshot_max);
        }
    }
}

/* More bytes never get fewer threads from the same algorithm, and a large message gets many. */
static void larger_messages_get_more_threads(void **state)
{
    (void) state;
    for (int algorithm = 0; algorithm < GPUSYM_ALG_COUNT; algorithm++) {
        const gpusym_tuning_forced_t forced = {.algorithm = algorithm};
        uint64_t threads = 0;
        gpusym_tuning_call_t call = usual_call(gpusym_algorithm_collective((unsigned) algorithm), 4, 0);
        call.multicast = call.copies = true;
        call.zero_copy = copies_out(algorithm);
        call.ll_payload = 1 << 20;
        for (call.bytes = 1; call.bytes < 1ull << 33; call.bytes += 1 + call.bytes / 16) {
            const gpusym_tuning_choice_t c = choose(&call, &forced);
            assert_true((uint64_t) c.blocks * c.threads >= threads);
            threads = (uint64_t) c.blocks * c.threads;
        }
        assert_true(threads >= 64 * 64);
    }
}

/* A slot is divided for this many: no more than flag rows, and no less for a larger GPU. */
static void blocks_fit_the_flag_rows(void **state)
{
    (void) state;
    for (int simulated = 0; simulated < 2; simulated++) {
        uint32_t before = 1;
        for (uint32_t sm = 0; sm <= 1000; sm++) {
            const uint32_t most = gpusym_tuning_max_blocks(sm, simulated);
            assert_in_range(most, before, GPUSYM_BLOCKS_MAX);
            before = most;
        }
    }
}

/* The simulator's is smaller, so that tests need no large messages; neither maps buffers for a few packs. */
static void small_messages_are_not_mapped(void **state)
{
    (void) state;
    for (uint32_t nranks = 2; nranks <= GPUSYM_TEAM_MAX; nranks++) {
        const uint64_t gpu = gpusym_tuning_zero_copy_min(nranks, false);
        const uint64_t simulated = gpusym_tuning_zero_copy_min(nranks, true);
        assert_in_range(simulated, 64 * GPUSYM_PACK, gpu);
        assert_in_range(gpu, simulated, 64 << 20);
        assert_true(gpu > gpusym_tuning_resident_max(nranks, GPUSYM_CLUSTER_BLOCKS));
    }
}

/* A resident kernel is sent commands for messages of so many bytes, and they are such as its algorithm is taken for. */
static void resident_kernels_are_one_shot(void **state)
{
    (void) state;
    for (uint32_t i = 0; i < 2 * GPUSYM_TEAM_MAX; i++) {
        const uint32_t nranks = 1 + i / 2, blocks = 0 == i % 2 ? 1 : GPUSYM_CLUSTER_BLOCKS;
        const gpusym_tuning_call_t call = {.coll = GPUSYM_COLL_ALLREDUCE,
                                           .bytes = gpusym_tuning_resident_max(nranks, blocks),
                                           .op = GPUSYM_OP_SUM,
                                           .type = GPUSYM_T_F32,
                                           .nranks = nranks,
                                           .all_reach = true,
                                           .clusters = blocks > 1,
                                           .ll_payload = 1 << 20,
                                           .max_blocks = 1};
        gpusym_tuning_choice_t choice;
        gpusym_tuning_choose(&call, &nothing, &choice);
        assert_int_equal(choice.algorithm, GPUSYM_ALG_ALLREDUCE_AGXLL_R);
        assert_int_equal(choice.resident, blocks);
        assert_in_range(call.bytes, 1, GPUSYM_COMMAND_BYTES_MAX);
    }
}

/* One block for short ones; several, where there are clusters, for longer ones. */
static void resident_kernels_have_blocks(void **state)
{
    const unsigned all = GPUSYM_F_AGXLL_R, each = GPUSYM_F_XLL, sums = GPUSYM_F_XLL_R, kib = 1024;
    (void) state;
    assert_int_equal(gpusym_tuning_resident_blocks(all, 2, 32 * kib, false), 1);
    assert_int_equal(gpusym_tuning_resident_blocks(all, 2, 16 * kib, true), 1);
    assert_int_equal(gpusym_tuning_resident_blocks(all, 2, 16 * kib + 1, true), GPUSYM_CLUSTER_BLOCKS);
    assert_int_equal(gpusym_tuning_resident_blocks(all, 2, 64 * kib, true), GPUSYM_CLUSTER_BLOCKS);
    assert_int_equal(gpusym_tuning_resident_blocks(each, 2, 32 * kib, false), 1);
    assert_int_equal(gpusym_tuning_resident_blocks(each, 2, 8 * kib, true), 1);
    assert_int_equal(gpusym_tuning_resident_blocks(each, 2, 8 * kib + 1, true), GPUSYM_CLUSTER_BLOCKS);
    assert_int_equal(gpusym_tuning_resident_blocks(each, 2, 64 * kib, true), GPUSYM_CLUSTER_BLOCKS);
    assert_int_equal(gpusym_tuning_resident_blocks(each, 8, 9 * kib, true), GPUSYM_CLUSTER_BLOCKS);
    assert_int_equal(gpusym_tuning_resident_blocks(each, 5, 2 * kib, true), 1);
    assert_int_equal(gpusym_tuning_resident_blocks(each, 5, 2 * kib + 1, true), GPUSYM_CLUSTER_BLOCKS);
    assert_int_equal(gpusym_tuning_resident_blocks(sums, 5, 8 * kib, true), 1);
}

/* ---- whether resident kernels are worth it: programs on paper ---- */

/* A program: so many calls with so much between them, then a pause, in which it may wait for its GPU. In ns. */
typedef struct {
    unsigned burst;
    uint64_t between, pause;
    bool waits;
} program_t;

typedef struct {
    uint64_t ns;
    unsigned served;
} run_t;

#define PAPER_CALLS 40000u
#define PAPER_LINGER 100000u
#define PAPER_LAUNCHED 8900u
#define PAPER_SERVED (PAPER_LAUNCHED - GPUSYM_RESIDENT_GAIN_NS)

static run_t on_paper(const program_t *p, bool may_reside, gpusym_tuning_resident_t *worth)
{
    uint64_t now = 1, leaves = 0; /* 0: no kernel is there */
    unsigned served = 0;
    run_t run = {0, 0};
    for (unsigned i = 0; i < PAPER_CALLS; i++) {
        if (0 != leaves && now < leaves && served < GPUSYM_RESIDENT_SERVED_MAX) {
            now += PAPER_SERVED;
            leaves = now + PAPER_LINGER;
            served++;
            run.served++;
        } else {
            if (0 != leaves) {
                gpusym_tuning_resident_ended(worth, served, PAPER_LINGER,
                                             now < leaves ? GPUSYM_RESIDENT_RETIRED : GPUSYM_RESIDENT_EXPIRED);
            }
            const bool resides = may_reside && gpusym_tuning_resident_allow(worth, PAPER_LINGER, now);
            now += PAPER_LAUNCHED;
            leaves = resides ? now + PAPER_LINGER : 0;
            served = 0;
        }
        if (0 != (i + 1) % p->burst) {
            now += p->between;
            continue;
        }
        now = p->waits && now < leaves ? leaves : now;
        now += p->pause;
    }
    run.ns = now;
    return run;
}

/* Nobody is made slower by more than a little, and who gains from it has it. */
static void resident_kernels_are_worth_it(void **state)
{
    static const struct {
        program_t p;
        unsigned least; /* of 100 calls must be served */
        unsigned most;  /* may be */
    } programs[] = {
        {{1, 0, 20000, false}, 99, 100},      /* calls one after the other */
        {{2, 10000, 60000, false}, 95, 100},  /* a solver */
        {{20, 30000, 300000, false}, 80, 96}, /* ... that looks at its residual now and then */
        {{3, 10000, 900000, false}, 35, 67},  {{1, 0, 900000, false}, 0, 1},
        {{1, 0, 20000, true}, 0, 1}, /* cudaDeviceSynchronize before each call, each second, each tenth */
        {{2, 10000, 30000, true}, 0, 2},      {{10, 10000, 30000, true}, 0, 4},
        {{100, 10000, 30000, true}, 97, 99}, /* served by far more than it waits for */
    };
    (void) state;
    const unsigned n = sizeof programs / sizeof programs[0];
    for (unsigned i = 0; i < n * (n + 1); i++) { /* each by itself, then each behind each other */
        gpusym_tuning_resident_t worth = {.misses = 0}, nothing_known = {.misses = 0};
        if (i >= n) {
            (void) on_paper(&programs[i / n - 1].p, true, &worth);
        }
        const program_t *p = &programs[i % n].p;
        const run_t without = on_paper(p, false, &nothing_known), with = on_paper(p, true, &worth);
        const unsigned served = with.served * 100u / PAPER_CALLS, least = programs[i % n].least;
        if (served + (i < n ? 0 : 15) < least || served > programs[i % n].most ||
            with.ns > without.ns + without.ns / 50) {
            fail_msg("program %u behind %d: %u of 100 calls are served, %lu us in place of %lu", i % n,
                     (int) (i / n) - 1, served, (unsigned long) with.ns / 1000, (unsigned long) without.ns / 1000);
        }
    }
}

/* Messages between two processes: what is chosen can be launched, and a pipeline's pieces fit its memory. */
static void copies_can_be_launched(void **state)
{
    (void) state;
    assert_int_equal(gpusym_tuning_copy_threads() % 32, 0);
    assert_true(gpusym_tuning_copy_threads() <= GPUSYM_THREADS_MAX);
    assert_true(gpusym_tuning_copy_resident_max() <= GPUSYM_COMMAND_BYTES_MAX);
    for (uint32_t blocks = 1; blocks <= GPUSYM_CLUSTER_BLOCKS; blocks *= GPUSYM_CLUSTER_BLOCKS) {
        const uint32_t most = gpusym_tuning_copy_resident_packs_max(blocks);
        assert_true(most / GPUSYM_PACK <= GPUSYM_COMMAND_BYTES_MAX);
        assert_true(gpusym_tuning_copy_by_kernel(most, 1));
    }
    for (unsigned i = 0; i < 20000; i++) {
        const uint64_t bytes = next_random() >> next_random() % 64, rows = 1 + next_random() % 1000;
        const uint32_t blocks = gpusym_tuning_copy_blocks(bytes);
        assert_true(blocks >= 1 && blocks <= GPUSYM_COPY_BLOCKS &&
                    blocks <= gpusym_tuning_copy_blocks(bytes / 2 + 1) * 2);
        assert_true(gpusym_tuning_box_blocks(bytes) >= blocks && gpusym_tuning_box_blocks(bytes) <= GPUSYM_COPY_BLOCKS);
        assert_true(gpusym_tuning_copy_gathers(bytes / 2) || !gpusym_tuning_copy_gathers(bytes));
        assert_true(gpusym_tuning_copy_joins(i % 20, bytes) <= gpusym_tuning_copy_joins(i % 20 / 2, bytes / 2));
        assert_true(!gpusym_tuning_copy_joins(GPUSYM_RUNS_MAX, bytes / 2));
        assert_true(gpusym_tuning_copy_by_kernel(bytes / 2, rows) || !gpusym_tuning_copy_by_kernel(bytes, rows));
        const uint64_t chunk = gpusym_tuning_host_chunk(bytes);
        assert_true(chunk >= 128 << 10 && chunk <= 512 << 10 && 0 == chunk % 4096);
        assert_true(bytes < 256 << 10 || bytes > chunk); /* its copies overlap */
        for (unsigned by_gpu = 0; by_gpu < 2; by_gpu++) {
            const uint64_t piece = gpusym_tuning_pipeline_piece(bytes, by_gpu);
            assert_true(piece > 0 && 0 == piece % 4096);
            assert_true(GPUSYM_PIPELINE_SLOTS * piece <=
                        (by_gpu ? GPUSYM_PIPELINE_GPU_BYTES : GPUSYM_PIPELINE_BYTES / 4));
        }
    }
}

/* Packing: what is chosen can be launched, and pieces are neither too many nor much longer than the others. */
static void packing_can_be_launched(void **state)
{
    (void) state;
    const uint32_t threads = gpusym_tuning_pack_threads();
    assert_true(threads <= GPUSYM_THREADS_MAX && 0 == threads % 32);
    for (unsigned i = 0; i < 20000; i++) {
        const uint64_t bytes = 1 + (next_random() >> (8 + next_random() % 56)), nodes = 1 + next_random() % (1u << 20);
        const uint64_t piece = gpusym_tuning_pack_piece(nodes, bytes);
        const uint32_t lanes = gpusym_tuning_pack_lanes(bytes), sms = (uint32_t) (next_random() % 200);
        const uint32_t blocks = gpusym_tuning_pack_blocks(bytes, nodes * lanes, sms);
        assert_true(piece > 0 && 0 == (piece & (piece - 1)) && bytes / piece + nodes <= 2u << 20);
        assert_true(piece < 512 || piece / 8 <= bytes / nodes || bytes / (piece / 2) > 1u << 19);
        assert_true(lanes >= 1 && 0 == threads % lanes && lanes <= 2 * bytes);
        assert_true(blocks >= 1 && blocks <= 8 * (sms > 0 ? sms : 1));
        assert_true(gpusym_tuning_pack_by_kernel(2, bytes / 2, 2, true));
        assert_false(gpusym_tuning_pack_by_kernel(1, bytes, 1, true));
        const uint64_t width = 1 + next_random() % 100;
        for (int by_link = 0; by_link < 2; by_link++) {
            assert_true(gpusym_tuning_pack_box(bytes / 2, width, by_link) ||
                        !gpusym_tuning_pack_box(bytes, width, by_link));
            assert_true(gpusym_tuning_pack_box(bytes, 2 * width, by_link) ||
                        !gpusym_tuning_pack_box(bytes, width, by_link));
        }
        assert_true(gpusym_tuning_pack_box(bytes, width, false) || !gpusym_tuning_pack_box(bytes, width, true));
    }
    assert_true(gpusym_tuning_pack_box(65536, 8, true));
    assert_true(gpusym_tuning_pack_box(4u << 20, 8, false) && !gpusym_tuning_pack_box(4u << 20, 8, true));
}

/* When all processes of a tree have the result, in times of what a message costs its sender and its receiver, of which
 * it is five more under way: each receives its children's one after the other, and sends so. */
static uint32_t finish_of(uint32_t n, uint32_t degree)
{
    static uint32_t up[2048], down[2048];
    uint32_t last = 0;
    memset(up, 0, sizeof up);
    for (uint32_t p = n - 1; p > 0; p--) {
        uint32_t *above = &up[(p - 1) / degree];
        *above = 1 + (*above > up[p] + 5 ? *above : up[p] + 5);
    }
    down[0] = up[0];
    for (uint32_t p = 1; p < n; p++) {
        down[p] = down[(p - 1) / degree] + (p - 1) % degree + 1 + 5;
        last = down[p] > last ? down[p] : last;
    }
    return last;
}

/* The degree of trees between hosts is about the best one; the depth is that of the last process. */
static void trees_are_quick(void **state)
{
    (void) state;
    for (uint32_t n = 2; n <= 2048; n++) {
        const uint32_t degree = gpusym_tuning_tree_degree(n);
        uint32_t best = UINT32_MAX, depth = 0;
        for (uint32_t p = n - 1; p > 0; p = (p - 1) / degree) {
            depth++;
        }
        assert_int_equal(gpusym_tuning_tree_depth(n, degree), depth);
        for (uint32_t k = 2; k <= GPUSYM_TREE_DEGREE_MAX; k++) {
            const uint32_t finish = finish_of(n, k);
            best = finish < best ? finish : best;
        }
        assert_true(degree >= 2 && degree <= GPUSYM_TREE_DEGREE_MAX);
        if (finish_of(n, degree) > best + best / 4) {
            fail_msg("%u processes: degree %u takes %u, another one %u", n, degree, finish_of(n, degree), best);
        }
    }
    assert_int_equal(gpusym_tuning_tree_depth(1, 2), 0);
}

/* A group is as in kernels/work.h; where that takes no more threads than a block has, each piece has one of its own. */
static void leaders_deal_out_pieces(void **state)
{
    static const gpusym_tuning_forced_t none = {.algorithm = -1};
    (void) state;
    for (unsigned i = 0; i < 20000; i++) {
        const uint64_t bytes = 1 + next_random() % 10000, piece = (bytes + GPUSYM_PACK - 1) / GPUSYM_PACK;
        const uint64_t packs = piece * (1 + next_random() % 300);
        gpusym_tuning_choice_t choice;
        gpusym_tuning_lead(packs, 132, false, &none, &choice);
        const uint32_t group = gpusym_tuning_lead_group(packs, bytes, &none, &choice);
        assert_true(0 != choice.threads && choice.threads <= GPUSYM_THREADS_MAX && 0 == choice.threads % 32);
        assert_true(group <= 32 && 0 == (group & (group - 1)));
        assert_true(packs > piece || 0 == group);
        if (packs > piece && packs <= 64 * piece && piece <= 8) {
            assert_true(0 != group && choice.blocks * choice.threads / group >= packs / piece);
        }
    }
}

/* Kernels that wait for each other fit on the GPU, several times over. */
static void kernels_side_by_side_have_room(void **state)
{
    (void) state;
    for (uint32_t sm = 1; sm <= 160; sm++) {
        for (uint32_t ranks = 2; ranks <= GPUSYM_TEAM_MAX; ranks++) {
            const uint32_t blocks = gpusym_tuning_beside_blocks(sm, ranks);
            assert_true(1 == blocks || blocks * ranks * 4 <= sm);
            assert_true(gpusym_tuning_beside_max(ranks, blocks) * ranks <=
                        (blocks >= GPUSYM_CLUSTER_BLOCKS ? 256u : 32u) << 10);
        }
    }
    assert_int_equal(gpusym_tuning_beside_blocks(132, 4), GPUSYM_CLUSTER_BLOCKS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_can_be_launched),
        cmocka_unit_test(what_is_forced_is_taken),
        cmocka_unit_test(every_algorithm_can_be_forced),
        cmocka_unit_test(multicast_is_requested),
        cmocka_unit_test(requested_multicast_is_taken),
        cmocka_unit_test(rings_serve_where_not_all_reach),
        cmocka_unit_test(ll_is_for_the_small),
        cmocka_unit_test(the_limit_of_ll_can_be_forced),
        cmocka_unit_test(larger_messages_get_more_threads),
        cmocka_unit_test(blocks_fit_the_flag_rows),
        cmocka_unit_test(small_messages_are_not_mapped),
        cmocka_unit_test(resident_kernels_are_one_shot),
        cmocka_unit_test(resident_kernels_have_blocks),
        cmocka_unit_test(resident_kernels_are_worth_it),
        cmocka_unit_test(trees_are_quick),
        cmocka_unit_test(leaders_deal_out_pieces),
        cmocka_unit_test(kernels_side_by_side_have_room),
        cmocka_unit_test(copies_can_be_launched),
        cmocka_unit_test(packing_can_be_launched),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests_name("tuning", tests, NULL, NULL);
}
