/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of tuning/model.c: what it counts of some calls; that more bytes, and more ranks, never cost less by the
 * same algorithm; that it says nothing where it knows nothing; that of LL lines and plain stores the table takes the
 * better one by the model, for any number of ranks, and multicast where it is requested and faster.  A seed as the
 * argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/plan.h"
#include "mca/common/gpusym/memory/heap.h"
#include "tuning/model.h"
#include "tuning/tuning.h"
#include "test/unit/random.h"

#define CC 90
#define MIB (1ull << 20)

/* Of the calls: whether the ranks have a multicast object, and since the user asks for it. */
static bool multicast, mc_requested;

/* A call by an algorithm, as NVIDIA H200 serve it; -1: it cannot. */
static int serve(gpusym_tuning_call_t *call, gpusym_tuning_choice_t *choice, unsigned coll, uint64_t bytes, uint32_t n,
                 int algorithm)
{
    gpusym_work_t slot = {.nranks = n};
    *call = (gpusym_tuning_call_t){.coll = coll,
                                   .bytes = bytes,
                                   .op = GPUSYM_OP_SUM,
                                   .type = GPUSYM_T_F32,
                                   .nranks = n,
                                   .sm_count = 132,
                                   .multicast = multicast,
                                   .mc_requested = mc_requested,
                                   .all_reach = true,
                                   .ll128 = true,
                                   .copies = true,
                                   .zero_copy = bytes >= gpusym_tuning_zero_copy_min(n, false)};
    call->max_blocks = gpusym_slot_layout(8 * MIB, n, gpusym_tuning_max_blocks(132, false), &slot);
    call->ll_payload = gpusym_ll_payload(slot.ll_bytes);
    gpusym_tuning_choose_in(&slot, call, &(gpusym_tuning_forced_t){.algorithm = algorithm}, choice);
    return choice->algorithm;
}

static void expect(unsigned coll, uint64_t bytes, uint32_t n, int algorithm, unsigned of, double count)
{
    gpusym_tuning_call_t call;
    gpusym_tuning_choice_t choice;
    double part[GPUSYM_MODEL_PARTS];
    assert_int_equal(serve(&call, &choice, coll, bytes, n, algorithm), algorithm);
    gpusym_model_count(&call, &choice, part);
    assert_true(part[of] > count - 1e-9 && part[of] < count + 1e-9);
}

static void parts_are_counted(void **state)
{
    (void) state;
    expect(GPUSYM_COLL_ALLREDUCE, 8, 2, GPUSYM_ALG_ALLREDUCE_AGXLL_R, GPUSYM_MODEL_COMMAND, 1);
    expect(GPUSYM_COLL_ALLREDUCE, 8, 2, GPUSYM_ALG_ALLREDUCE_AGXLL_R, GPUSYM_MODEL_LAUNCH, 0);
    expect(GPUSYM_COLL_ALLREDUCE, 8, 2, GPUSYM_ALG_ALLREDUCE_AGXLL_R, GPUSYM_MODEL_MOVE, 0);
    expect(GPUSYM_COLL_BCAST, 8, 5, GPUSYM_ALG_BCAST_LL, GPUSYM_MODEL_MOVE, 1);
    expect(GPUSYM_COLL_BCAST, 8, 5, GPUSYM_ALG_BCAST_LL, GPUSYM_MODEL_PEER, 3);
    expect(GPUSYM_COLL_ALLREDUCE, MIB, 4, GPUSYM_ALG_ALLREDUCE_AGXLL_R, GPUSYM_MODEL_LINES, 3);
    expect(GPUSYM_COLL_ALLREDUCE, MIB, 4, GPUSYM_ALG_ALLREDUCE_AGXLL_R, GPUSYM_MODEL_LAUNCH, 1);
    expect(GPUSYM_COLL_ALLREDUCE, 4 * MIB, 4, GPUSYM_ALG_ALLREDUCE_RSXST_AGXST, GPUSYM_MODEL_WIRE, 6);
    expect(GPUSYM_COLL_ALLREDUCE, 4 * MIB, 4, GPUSYM_ALG_ALLREDUCE_RSXST_AGXST, GPUSYM_MODEL_BARRIER, 3);
    expect(GPUSYM_COLL_ALLREDUCE, 4 * MIB, 4, GPUSYM_ALG_ALLREDUCE_RSXST_AGXST, GPUSYM_MODEL_COPIED, 0);
    expect(GPUSYM_COLL_ALLREDUCE, 4 * MIB, 4, GPUSYM_ALG_ALLREDUCE_RSXLL128_AGXLL128, GPUSYM_MODEL_LINES128, 6);
    expect(GPUSYM_COLL_ALLGATHER, MIB, 3, GPUSYM_ALG_ALLGATHER_ST, GPUSYM_MODEL_WIRE, 2);
    expect(GPUSYM_COLL_ALLGATHER, 65536, 3, GPUSYM_ALG_ALLGATHER_ST, GPUSYM_MODEL_COPIED, 6.0 / 16);
    expect(GPUSYM_COLL_ALLGATHER, MIB, 3, GPUSYM_ALG_ALLGATHER_ST, GPUSYM_MODEL_REDUCED, 0);
    expect(GPUSYM_COLL_ALLREDUCE, MIB, 5, GPUSYM_ALG_ALLREDUCE_RING_LL, GPUSYM_MODEL_HOP_LL, 8);
    expect(GPUSYM_COLL_ALLREDUCE, MIB, 5, GPUSYM_ALG_ALLREDUCE_RING_LL, GPUSYM_MODEL_PATH_LL, 1.6);
    expect(GPUSYM_COLL_ALLREDUCE, MIB, 5, GPUSYM_ALG_ALLREDUCE_DBTREE_SIMPLE, GPUSYM_MODEL_HOP_SIMPLE, 6);
    expect(GPUSYM_COLL_BCAST, MIB, 8, GPUSYM_ALG_BCAST_DBTREE_LL128, GPUSYM_MODEL_HOP_LL128, 3);
    expect(GPUSYM_COLL_BCAST, MIB, 8, GPUSYM_ALG_BCAST_CHAIN_LL128, GPUSYM_MODEL_HOP_LL128, 7);
    expect(GPUSYM_COLL_ALLTOALL, 32 * MIB, 2, GPUSYM_ALG_ALLTOALL_CE, GPUSYM_MODEL_ENGINE, 32);
    expect(GPUSYM_COLL_ALLTOALL, 32 * MIB, 2, GPUSYM_ALG_ALLTOALL_CE, GPUSYM_MODEL_LAUNCH, 0);
}

/* By the same algorithm and kernel, by as many threads, and as resident. */
static void more_costs_more(void **state)
{
    (void) state;
    unsigned compared = 0;
    for (unsigned i = 0; i < 20000; i++) {
        const unsigned algorithm = (unsigned) (next_random() % GPUSYM_ALG_COUNT);
        const unsigned coll = gpusym_algorithm_collective(algorithm);
        const uint64_t bytes = 1 + next_random() % (1ull << next_random() % 30);
        const uint32_t n = 2 + (uint32_t) (next_random() % (GPUSYM_TEAM_MAX - 2));
        gpusym_tuning_call_t call, other;
        gpusym_tuning_choice_t choice, more;
        const bool longer = next_random() % 2;
        if ((int) algorithm != serve(&call, &choice, coll, bytes, n, (int) algorithm) ||
            (int) algorithm !=
                serve(&other, &more, coll, longer ? 2 * bytes : bytes, longer ? n : n + 1, (int) algorithm) ||
            choice.family != more.family || choice.resident != more.resident || choice.zero_copy != more.zero_copy ||
            choice.blocks * choice.threads != more.blocks * more.threads) {
            continue;
        }
        const double ns = gpusym_model_predict(&call, &choice, CC);
        assert_true(ns > 1000 && gpusym_model_predict(&other, &more, CC) >= ns);
        compared++;
    }
    assert_true(compared > 10000);
}

/* Enough threads are as fast as the wire; few are slower by how few they are. */
static void few_threads_cost_more(void **state)
{
    const uint32_t blocks[3] = {4, 8, 128};
    gpusym_tuning_call_t call;
    gpusym_tuning_choice_t choice;
    double ns[3];
    (void) state;
    assert_int_equal(serve(&call, &choice, GPUSYM_COLL_ALLREDUCE, 512 * MIB, 2, GPUSYM_ALG_ALLREDUCE_RSXST_AGXST),
                     GPUSYM_ALG_ALLREDUCE_RSXST_AGXST);
    for (unsigned i = 0; i < 3; i++) {
        choice.blocks = blocks[i];
        ns[i] = gpusym_model_predict(&call, &choice, CC);
    }
    assert_true(ns[0] > 1.9 * ns[1] && ns[1] > 1.9 * ns[2]);
    choice.blocks = 64;
    assert_true(gpusym_model_predict(&call, &choice, CC) == ns[2]);
}

static void nothing_is_said_of_others(void **state)
{
    gpusym_tuning_call_t call;
    gpusym_tuning_choice_t choice;
    (void) state;
    (void) serve(&call, &choice, GPUSYM_COLL_ALLREDUCE, MIB, 4, GPUSYM_ALG_ALLREDUCE_RING_LL);
    assert_true(gpusym_model_predict(&call, &choice, CC) > 0);
    assert_true(0 == gpusym_model_predict(&call, &choice, 80));
    call.simulated = true;
    assert_true(0 == gpusym_model_predict(&call, &choice, CC));
    call.simulated = false;
    call.ll128 = false;
    assert_true(0 == gpusym_model_predict(&call, &choice, CC));
    call.ll128 = true;
    assert_true(gpusym_model_predict(&call, &choice, CC) > 0);
    assert_int_equal(gpusym_model_gpus()[0], 'N');
}

/* By how much the table's choice may be worse by the model: more than what it was measured for, of 2, 4 and 8 ranks. */
#define WORSE_MOST 1.25

static double predict(unsigned coll, uint64_t bytes, uint32_t n, int algorithm, gpusym_tuning_choice_t *choice)
{
    gpusym_tuning_call_t call;
    (void) serve(&call, choice, coll, bytes, n, algorithm);
    return gpusym_model_predict(&call, choice, CC);
}

static void other_numbers_of_ranks_follow_the_model(void **state)
{
    static const struct {
        unsigned coll;
        int lines, stores;
    } pair[] = {
        {GPUSYM_COLL_ALLREDUCE, GPUSYM_ALG_ALLREDUCE_AGXLL_R, GPUSYM_ALG_ALLREDUCE_RSXST_AGXST},
        {GPUSYM_COLL_ALLGATHER, GPUSYM_ALG_ALLGATHER_LL, GPUSYM_ALG_ALLGATHER_ST},
        {GPUSYM_COLL_REDUCE_SCATTER_BLOCK, GPUSYM_ALG_REDUCE_SCATTER_BLOCK_LL, GPUSYM_ALG_REDUCE_SCATTER_BLOCK_ST},
        {GPUSYM_COLL_BCAST, GPUSYM_ALG_BCAST_LL, GPUSYM_ALG_BCAST_ST},
        {GPUSYM_COLL_REDUCE, GPUSYM_ALG_REDUCE_LL, GPUSYM_ALG_REDUCE_ST},
        {GPUSYM_COLL_ALLTOALL, GPUSYM_ALG_ALLTOALL_LL, GPUSYM_ALG_ALLTOALL_ST},
        {GPUSYM_COLL_GATHER, GPUSYM_ALG_GATHER_LL, GPUSYM_ALG_GATHER_ST},
        {GPUSYM_COLL_SCATTER, GPUSYM_ALG_SCATTER_LL, GPUSYM_ALG_SCATTER_ST}};
    gpusym_tuning_choice_t choice;
    uint32_t lines = 0, stores = 0;
    (void) state;
    for (uint32_t i = 0; i < sizeof pair / sizeof pair[0]; i++) {
        for (uint32_t n = 3; n <= GPUSYM_TEAM_MAX; n++) {
            for (uint64_t bytes = 8; bytes <= 16 * MIB; bytes += bytes / 32 * 8 + 8) {
                const double ll = predict(pair[i].coll, bytes, n, pair[i].lines, &choice);
                const double st = predict(pair[i].coll, bytes, n, pair[i].stores, &choice);
                const double best = ll < st ? ll : st, taken = predict(pair[i].coll, bytes, n, -1, &choice);
                if (choice.algorithm == pair[i].lines || choice.algorithm == pair[i].stores) {
                    assert_true(taken <= WORSE_MOST * best);
                    lines += choice.algorithm == pair[i].lines;
                    stores += choice.algorithm == pair[i].stores;
                }
            }
        }
    }
    assert_true(lines > 1000 && stores > 1000);
}

/* What a port carries by multicast, and what else there is. */
static void multicast_is_counted(void **state)
{
    (void) state;
    multicast = true;
    expect(GPUSYM_COLL_ALLREDUCE, 8 * MIB, 8, GPUSYM_ALG_ALLREDUCE_RSXLDMC_AGXSTMC, GPUSYM_MODEL_SWITCH, 9);
    expect(GPUSYM_COLL_ALLREDUCE, 8 * MIB, 8, GPUSYM_ALG_ALLREDUCE_RSXLDMC_AGXSTMC, GPUSYM_MODEL_WIRE, 0);
    expect(GPUSYM_COLL_ALLREDUCE, 8 * MIB, 8, GPUSYM_ALG_ALLREDUCE_RSXLDMC_AGXSTMC, GPUSYM_MODEL_REDUCED, 0);
    expect(GPUSYM_COLL_ALLREDUCE, 8 * MIB, 8, GPUSYM_ALG_ALLREDUCE_RSXLDMC_AGXSTMC, GPUSYM_MODEL_COPIED, 16);
    expect(GPUSYM_COLL_ALLREDUCE, 8 * MIB, 8, GPUSYM_ALG_ALLREDUCE_RSXLDMC_AGXSTMC, GPUSYM_MODEL_BARRIER, 3);
    expect(GPUSYM_COLL_ALLREDUCE, 8, 8, GPUSYM_ALG_ALLREDUCE_AGXLLMC_R, GPUSYM_MODEL_COMMAND, 0);
    expect(GPUSYM_COLL_ALLREDUCE, MIB, 8, GPUSYM_ALG_ALLREDUCE_AGXLLMC_R, GPUSYM_MODEL_LINES, 7);
    expect(GPUSYM_COLL_ALLGATHER, MIB, 8, GPUSYM_ALG_ALLGATHER_STMC, GPUSYM_MODEL_SWITCH, 8);
    expect(GPUSYM_COLL_REDUCE_SCATTER_BLOCK, MIB, 8, GPUSYM_ALG_REDUCE_SCATTER_BLOCK_LDMC, GPUSYM_MODEL_SWITCH, 8);
    multicast = false;
}

/* The publication that tuning/model.def names: GB/s of NCCL's all-reduce by NVLS, which hides its copies. */
static void multicast_is_as_fast_as_published(void **state)
{
    static const double busbw[] = {[4] = 370, 420, 440, 460, 480};
    (void) state;
    multicast = true;
    for (uint32_t n = 4; n <= 8; n++) {
        const uint64_t bytes = 4096 * MIB;
        gpusym_tuning_call_t call;
        gpusym_tuning_choice_t choice;
        assert_int_equal(serve(&call, &choice, GPUSYM_COLL_ALLREDUCE, bytes, n, GPUSYM_ALG_ALLREDUCE_RSXLDMC_AGXSTMC),
                         GPUSYM_ALG_ALLREDUCE_RSXLDMC_AGXSTMC);
        choice.zero_copy = true; /* to count no copies */
        const double ns = gpusym_model_predict(&call, &choice, CC);
        const double predicted = 2 * (double) bytes * (n - 1) / n / ns;
        assert_true(predicted > 0.97 * busbw[n] && predicted < 1.03 * busbw[n]);
    }
    multicast = false;
}

/* By how much the table may miss the faster one of multicast and of what it takes without a request, by the model. */
#define MISSED_MOST 1.125

/* With a multicast object the table takes it only on request, and then where it is faster; of what has no faster one,
 * never. */
static void requested_multicast_follows_the_model(void **state)
{
    uint32_t taken = 0, left = 0;
    (void) state;
    multicast = true;
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; a++) {
        const unsigned coll = gpusym_algorithm_collective(a);
        for (uint32_t n = 3; gpusym_family_multicast(gpusym_algorithm_family(a)) && n <= GPUSYM_TEAM_MAX; n++) {
            for (uint64_t bytes = 8; bytes <= 512 * MIB; bytes += bytes / 32 * 8 + 8) {
                gpusym_tuning_choice_t choice, before;
                mc_requested = false;
                const double without = predict(coll, bytes, n, -1, &before);
                assert_false(gpusym_family_multicast(before.family));
                const double with = predict(coll, bytes, n, (int) a, &choice);
                assert_int_equal(choice.algorithm, a);
                mc_requested = true;
                (void) predict(coll, bytes, n, -1, &choice);
                if (choice.algorithm == (int) a) {
                    assert_true(with < MISSED_MOST * without);
                    taken++;
                } else {
                    assert_true(choice.algorithm == before.algorithm || gpusym_family_multicast(choice.family));
                    assert_true(MISSED_MOST * with > without || gpusym_family_multicast(choice.family));
                    left++;
                }
            }
        }
    }
    multicast = mc_requested = false;
    assert_true(taken > 500 && left > 1000);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_counted),
        cmocka_unit_test(more_costs_more),
        cmocka_unit_test(few_threads_cost_more),
        cmocka_unit_test(nothing_is_said_of_others),
        cmocka_unit_test(other_numbers_of_ranks_follow_the_model),
        cmocka_unit_test(multicast_is_counted),
        cmocka_unit_test(multicast_is_as_fast_as_published),
        cmocka_unit_test(requested_multicast_follows_the_model),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
