/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of tuning/rules.c: which rule holds for a call, and what comes of it.  A seed as the argument repeats a
 * run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/memory/heap.h"
#include "tuning/resident.h"
#include "tuning/rules.h"
#include "test/unit/random.h"

enum { RULES_MAX = 40 };

static const char gpu[] = "NVIDIA H200";

/* For any call of a collective; says nothing. */
static gpusym_rule_t any_rule(unsigned coll)
{
    return (gpusym_rule_t){.coll = coll,
                           .ranks_max = UINT32_MAX,
                           .single_host = true,
                           .bytes_max = UINT64_MAX,
                           .op = -1,
                           .type = -1,
                           .zero_copy = -1,
                           .algorithm = -1};
}

/* A call of 4 ranks that all algorithms but multicast can serve, in a slot of 1 MiB. */
static gpusym_tuning_call_t make_call(gpusym_work_t *slot, unsigned coll, uint64_t bytes)
{
    gpusym_tuning_call_t call = {.coll = coll,
                                 .bytes = bytes,
                                 .op = GPUSYM_OP_SUM,
                                 .type = GPUSYM_T_F32,
                                 .nranks = 4,
                                 .sm_count = 132,
                                 .zero_copy = true,
                                 .all_reach = true,
                                 .ll128 = true,
                                 .copies = true};
    *slot = (gpusym_work_t){.nranks = 4};
    call.max_blocks = gpusym_slot_layout(1 << 20, 4, gpusym_tuning_max_blocks(132, false), slot);
    call.ll_payload = slot->ll_bytes / 2;
    return call;
}

static gpusym_rules_t *make_rules(gpusym_rule_t *rule, unsigned n, bool nvlink)
{
    char path[] = "some.json";
    gpusym_rules_t *rules = gpusym_rules_make(&(gpusym_rules_file_t){path, rule, n}, 4, gpu);

    if (NULL != rules) {
        gpusym_rules_settle(rules, nvlink);
        assert_string_equal(gpusym_rules_path(rules), path);
    }
    return rules;
}

/* ---- against a search of all rules ---- */

static int draw_algorithm(unsigned coll)
{
    unsigned algorithm = (unsigned) (next_random() % GPUSYM_ALG_COUNT);

    while (gpusym_algorithm_collective(algorithm) != coll) {
        algorithm = (algorithm + 1) % GPUSYM_ALG_COUNT;
    }
    return (int) algorithm;
}

static uint64_t draw_bytes(void)
{
    return next_random() % (2ull << next_random() % 30);
}

/* Of three collectives, of groups for three numbers of ranks and any link: many are for the same call. */
static unsigned draw_rules(gpusym_rule_t rule[RULES_MAX])
{
    static const unsigned colls[] = {GPUSYM_COLL_ALLREDUCE, GPUSYM_COLL_ALLTOALL, GPUSYM_COLL_SCAN};
    const unsigned n = 1 + (unsigned) (next_random() % RULES_MAX);
    uint32_t group = 0;

    for (unsigned i = 0; i < n; i++) {
        gpusym_rule_t *r = &rule[i];
        *r = any_rule(colls[next_random() % 3]);
        group += 0 == next_random() % 8;
        r->group = group;
        r->item = i;
        r->ranks_min = 2 + group % 3;
        r->ranks_max = r->ranks_min + group % 2;
        r->link = (enum gpusym_rule_link)(group % 3);
        r->bytes_min = draw_bytes();
        r->bytes_max = 0 == next_random() % 4 ? UINT64_MAX : r->bytes_min + draw_bytes();
        r->op = 0 == next_random() % 4 ? GPUSYM_OP_MAX : -1;
        r->type = 0 == next_random() % 4 ? GPUSYM_T_F32 : -1;
        r->algorithm = 0 == next_random() % 4 ? -1 : draw_algorithm(r->coll);
    }
    return n;
}

static bool is_candidate(const gpusym_rule_t *r, const gpusym_tuning_call_t *call, bool nvlink)
{
    return r->coll == call->coll && r->ranks_min <= call->nranks && call->nranks <= r->ranks_max &&
           (GPUSYM_RULE_LINK_ANY == r->link || nvlink == (GPUSYM_RULE_LINK_NVLINK == r->link));
}

/* The rule that holds, found in the simplest way; -1: none. */
static int find_rule(const gpusym_rule_t *rule, unsigned n, const gpusym_tuning_call_t *call, const gpusym_work_t *slot,
                     bool nvlink)
{
    const uint64_t message = call->bytes * (GPUSYM_COLL_ALLTOALL == call->coll ? call->nranks : 1);
    int64_t group = -1;

    for (unsigned i = 0; i < n; i++) {
        const gpusym_rule_t *r = &rule[i];
        if (!is_candidate(r, call, nvlink) || (group >= 0 && r->group != group)) {
            continue;
        }
        group = r->group;
        if (r->bytes_min <= message && message <= r->bytes_max && (r->op < 0 || (unsigned) r->op == call->op) &&
            (r->type < 0 || (unsigned) r->type == call->type) &&
            (r->algorithm < 0 ||
             GPUSYM_TUNING_LACKS_NOTHING == gpusym_tuning_lacks_in(slot, call, (unsigned) r->algorithm))) {
            return (int) i;
        }
    }
    return -1;
}

/* A length that is as long as a rule's first or last one, or one byte off; or any. */
static uint64_t draw_length(const gpusym_rule_t *rule, unsigned n)
{
    const gpusym_rule_t *r = &rule[next_random() % n];
    const uint64_t end = 0 == next_random() % 2 ? r->bytes_min : r->bytes_max, parts = 0 == next_random() % 2 ? 1 : 4;

    return 0 == next_random() % 3 || UINT64_MAX == end ? draw_bytes() : end / parts + next_random() % 3 - (end > parts);
}

static void the_first_that_can_holds(void **state)
{
    unsigned holds = 0;
    (void) state;
    for (unsigned i = 0; i < 3000; i++) {
        gpusym_rule_t rule[RULES_MAX];
        gpusym_work_t slot;
        const unsigned n = draw_rules(rule);
        const bool nvlink = next_random() % 2;
        gpusym_rules_t *rules = make_rules(rule, n, nvlink);
        for (unsigned k = 0; k < 40; k++) {
            gpusym_tuning_call_t call = make_call(&slot, rule[next_random() % n].coll, draw_length(rule, n));
            gpusym_tuning_forced_t forced = {.algorithm = -1};
            call.ll128 = next_random() % 2;
            call.op = 0 == next_random() % 2 ? GPUSYM_OP_MAX : GPUSYM_OP_SUM;
            call.type = 0 == next_random() % 2 ? GPUSYM_T_F32 : GPUSYM_T_I32;
            const int expected = find_rule(rule, n, &call, &slot, nvlink);
            const gpusym_rule_t *got = NULL == rules ? NULL : gpusym_rules_apply(rules, &slot, &call, &forced);
            assert_int_equal(expected, NULL == got ? -1 : (int) got->item);
            assert_int_equal(forced.algorithm, NULL == got ? -1 : got->algorithm);
            holds += NULL != got;
        }
        gpusym_rules_free(rules);
    }
    assert_in_range(holds, 10000, 110000); /* of 120000: both come up */
}

/* ---- what comes of a rule ---- */

static gpusym_tuning_choice_t choose(const gpusym_rules_t *rules, gpusym_tuning_forced_t forced, unsigned coll,
                                     uint64_t bytes)
{
    gpusym_tuning_choice_t choice;
    gpusym_work_t slot;
    gpusym_tuning_call_t call = make_call(&slot, coll, bytes);

    if (NULL != rules) {
        (void) gpusym_rules_apply(rules, &slot, &call, &forced);
    }
    gpusym_tuning_choose_in(&slot, &call, &forced, &choice);
    return choice;
}

static void a_rule_sets_the_choice(void **state)
{
    gpusym_rule_t rule = any_rule(GPUSYM_COLL_ALLREDUCE);
    const gpusym_tuning_forced_t nothing = {.algorithm = -1};
    (void) state;
    rule.algorithm = GPUSYM_ALG_ALLREDUCE_RING_LL;
    rule.blocks = 3;
    rule.threads = 64;
    rule.chunk = 4096;
    gpusym_rules_t *rules = make_rules(&rule, 1, true);
    gpusym_tuning_choice_t c = choose(rules, nothing, GPUSYM_COLL_ALLREDUCE, 1024);
    assert_int_equal(c.algorithm, GPUSYM_ALG_ALLREDUCE_RING_LL);
    assert_int_equal(c.blocks, 3);
    assert_int_equal(c.threads, 64);
    assert_int_equal(c.chunk, 4096);
    assert_false(c.resident); /* more than one block */
    assert_int_equal(choose(NULL, nothing, GPUSYM_COLL_BCAST, 1024).algorithm,
                     choose(rules, nothing, GPUSYM_COLL_BCAST, 1024).algorithm);
    gpusym_rules_free(rules);
}

/* What the user forces goes first, also in part; another algorithm than the rule's, or one by its length, leaves the
 * rule out. */
static void the_user_goes_first(void **state)
{
    gpusym_rule_t rule = any_rule(GPUSYM_COLL_ALLREDUCE);
    (void) state;
    rule.algorithm = GPUSYM_ALG_ALLREDUCE_RING_LL;
    rule.blocks = 3;
    rule.threads = 64;
    gpusym_rules_t *rules = make_rules(&rule, 1, true);
    gpusym_tuning_forced_t user = {.algorithm = -1, .threads = 128};
    gpusym_tuning_choice_t c = choose(rules, user, GPUSYM_COLL_ALLREDUCE, 1024);
    assert_true(GPUSYM_ALG_ALLREDUCE_RING_LL == c.algorithm && 3 == c.blocks && 128 == c.threads);
    user = (gpusym_tuning_forced_t){.algorithm = GPUSYM_ALG_ALLREDUCE_RING_LL, .blocks = 5};
    c = choose(rules, user, GPUSYM_COLL_ALLREDUCE, 1024);
    assert_true(GPUSYM_ALG_ALLREDUCE_RING_LL == c.algorithm && 5 == c.blocks && 64 == c.threads);
    user = (gpusym_tuning_forced_t){.algorithm = GPUSYM_ALG_ALLREDUCE_RSXST_AGXST};
    c = choose(rules, user, GPUSYM_COLL_ALLREDUCE, 1 << 20);
    const gpusym_tuning_choice_t plain = choose(NULL, user, GPUSYM_COLL_ALLREDUCE, 1 << 20);
    assert_true(GPUSYM_ALG_ALLREDUCE_RSXST_AGXST == c.algorithm && plain.blocks == c.blocks &&
                plain.threads == c.threads);
    user = (gpusym_tuning_forced_t){.algorithm = -1, .oneshot_max = 4096};
    assert_int_equal(choose(rules, user, GPUSYM_COLL_ALLREDUCE, 4096).algorithm, GPUSYM_ALG_ALLREDUCE_AGXLL_R);
    gpusym_rules_free(rules);
}

/* The lengths of a rule are of the whole message, 4 segments here. */
static void lengths_are_of_the_message(void **state)
{
    static const struct {
        uint64_t min, max, segment;
        bool holds;
    } cases[] = {
        {1000, 2000, 249, false}, {1000, 2000, 250, true}, {1000, 2000, 500, true},          {1000, 2000, 501, false},
        {1001, 2003, 250, false}, {1001, 2003, 500, true}, {1001, 2003, 501, false},         {0, 3, 0, true},
        {0, 3, 1, false},         {1, 3, 0, false},        {5, UINT64_MAX, 1ull << 40, true}};
    (void) state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        gpusym_rule_t rule = any_rule(GPUSYM_COLL_ALLTOALL);
        rule.bytes_min = cases[i].min;
        rule.bytes_max = cases[i].max;
        rule.blocks = 7;
        gpusym_rules_t *rules = make_rules(&rule, 1, true);
        gpusym_tuning_forced_t forced = {.algorithm = -1};
        gpusym_work_t slot;
        const gpusym_tuning_call_t call = make_call(&slot, GPUSYM_COLL_ALLTOALL, cases[i].segment);
        assert_int_equal(NULL != gpusym_rules_apply(rules, &slot, &call, &forced), cases[i].holds);
        gpusym_rules_free(rules);
    }
}

/* A rule whose algorithm cannot serve the call is passed over, and says why. */
static void what_cannot_is_passed_over(void **state)
{
    gpusym_rule_t rule[3];
    gpusym_rule_verdict_t verdict;
    gpusym_tuning_lack_t lack;
    gpusym_tuning_forced_t forced = {.algorithm = -1};
    gpusym_work_t slot;
    char text[64];
    (void) state;
    rule[0] = rule[1] = rule[2] = any_rule(GPUSYM_COLL_ALLREDUCE);
    rule[0].algorithm = GPUSYM_ALG_ALLREDUCE_AGXLLMC_R;
    rule[1].op = GPUSYM_OP_MAX;
    rule[1].item = 1;
    rule[2].algorithm = GPUSYM_ALG_ALLREDUCE_RING_SIMPLE;
    rule[2].item = 2;
    gpusym_rules_t *rules = make_rules(rule, 3, true);
    const gpusym_tuning_call_t call = make_call(&slot, GPUSYM_COLL_ALLREDUCE, 8);
    assert_int_equal(gpusym_rules_count(rules), 3);
    assert_int_equal(gpusym_rules_look(rules, &slot, &call, &forced, 0, &verdict, &lack)->item, 0);
    assert_true(GPUSYM_RULE_LACKS == verdict && GPUSYM_TUNING_LACKS_MULTICAST == lack);
    assert_int_equal(gpusym_rules_look(rules, &slot, &call, &forced, 1, &verdict, &lack)->item, 1);
    assert_true(GPUSYM_RULE_OTHER_CALL == verdict && GPUSYM_TUNING_LACKS_NOTHING == lack);
    assert_int_equal(gpusym_rules_look(rules, &slot, &call, &forced, 2, &verdict, &lack)->item, 2);
    assert_int_equal(verdict, GPUSYM_RULE_HOLDS);
    assert_null(gpusym_rules_look(rules, &slot, &call, &forced, 3, &verdict, &lack));
    assert_int_equal(gpusym_rules_apply(rules, &slot, &call, &forced)->item, 2);
    assert_string_equal(gpusym_rule_place(&rule[2], text, sizeof text), "collectives.allreduce[0].rules[2]");
    forced = (gpusym_tuning_forced_t){.algorithm = GPUSYM_ALG_ALLREDUCE_AGXLL_R};
    (void) gpusym_rules_look(rules, &slot, &call, &forced, 2, &verdict, &lack);
    assert_int_equal(verdict, GPUSYM_RULE_FORCED);
    gpusym_rules_free(rules);
}

/* A rule for zero copy, and one for the rest. */
static void zero_copy_has_its_own(void **state)
{
    gpusym_rule_t rule[2];
    gpusym_rule_verdict_t verdict;
    gpusym_tuning_lack_t lack;
    gpusym_work_t slot;
    (void) state;
    for (unsigned i = 0; i < 2; i++) {
        rule[i] = any_rule(GPUSYM_COLL_ALLREDUCE);
        rule[i].item = i;
        rule[i].zero_copy = 0 == i;
        rule[i].blocks = 3 + i;
    }
    gpusym_rules_t *rules = make_rules(rule, 2, true);
    for (unsigned i = 0; i < 2; i++) {
        gpusym_tuning_call_t call = make_call(&slot, GPUSYM_COLL_ALLREDUCE, 8);
        gpusym_tuning_forced_t forced = {.algorithm = -1};
        call.zero_copy = 0 == i;
        assert_int_equal(gpusym_rules_apply(rules, &slot, &call, &forced)->item, i);
        assert_int_equal(forced.blocks, 3 + i);
        (void) gpusym_rules_look(rules, &slot, &call, &forced, 1 - i, &verdict, &lack);
        assert_int_equal(verdict, GPUSYM_RULE_OTHER_CALL);
    }
    gpusym_rules_free(rules);
}

/* Conditions of the communicator. */
static void a_communicator_has_its_own(void **state)
{
    gpusym_rule_t rule = any_rule(GPUSYM_COLL_ALLREDUCE);
    (void) state;
    rule.blocks = 1;
    strcpy(rule.gpu, "h200");
    gpusym_rules_t *rules = make_rules(&rule, 1, true);
    assert_non_null(rules);
    gpusym_rules_free(rules);
    strcpy(rule.gpu, "H100");
    assert_null(make_rules(&rule, 1, true));
    rule.gpu[0] = '\0';
    rule.single_host = false;
    assert_null(make_rules(&rule, 1, true));
    rule.single_host = true;
    rule.ranks_min = 5;
    assert_null(make_rules(&rule, 1, true));
    rule.ranks_min = 0;
    rule.ranks_max = 3;
    assert_null(make_rules(&rule, 1, true));
    rule.ranks_max = 4;
    rule.link = GPUSYM_RULE_LINK_PCI;
    rules = make_rules(&rule, 1, true);
    assert_int_equal(gpusym_rules_count(rules), 0);
    gpusym_rules_free(rules);
    rules = make_rules(&rule, 1, false);
    assert_int_equal(gpusym_rules_count(rules), 1);
    gpusym_rules_free(rules);
}

/* Which messages resident kernels serve: by the table, and by a rule. */
static void a_rule_limits_resident_kernels(void **state)
{
    const uint64_t table = gpusym_tuning_resident_max(4, 1);
    const gpusym_tuning_forced_t nothing = {.algorithm = -1};
    gpusym_rule_t rule = any_rule(GPUSYM_COLL_ALLREDUCE);
    (void) state;
    assert_true(choose(NULL, nothing, GPUSYM_COLL_ALLREDUCE, table).resident);
    assert_false(choose(NULL, nothing, GPUSYM_COLL_ALLREDUCE, table + 1).resident);
    rule.resident_below = table + 9;
    gpusym_rules_t *rules = make_rules(&rule, 1, true);
    assert_true(choose(rules, nothing, GPUSYM_COLL_ALLREDUCE, table + 8).resident);
    assert_false(choose(rules, nothing, GPUSYM_COLL_ALLREDUCE, table + 9).resident);
    const gpusym_tuning_forced_t user = {.algorithm = -1, .resident_below = 1};
    assert_false(choose(rules, user, GPUSYM_COLL_ALLREDUCE, 8).resident);
    gpusym_rules_free(rules);
}

/* Ranks with other rules are told apart; the name of the file does not matter, nor does what is not for them. */
static void the_hash_is_of_what_is_said(void **state)
{
    gpusym_rule_t rule[2] = {any_rule(GPUSYM_COLL_ALLREDUCE), any_rule(GPUSYM_COLL_ALLREDUCE)};
    char one[] = "one", other[] = "other";
    (void) state;
    rule[0].blocks = 1;
    rule[1].ranks_min = 9;
    gpusym_rules_t *a = gpusym_rules_make(&(gpusym_rules_file_t){one, rule, 2}, 4, gpu);
    gpusym_rules_t *b = gpusym_rules_make(&(gpusym_rules_file_t){other, rule, 1}, 4, gpu);
    assert_true(0 != gpusym_rules_hash(a) && gpusym_rules_hash(a) == gpusym_rules_hash(b));
    gpusym_rules_free(b);
    rule[0].blocks = 2;
    b = gpusym_rules_make(&(gpusym_rules_file_t){one, rule, 1}, 4, gpu);
    assert_true(gpusym_rules_hash(a) != gpusym_rules_hash(b));
    assert_true(0 == gpusym_rules_hash(NULL));
    gpusym_rules_free(a);
    gpusym_rules_free(b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_can_holds),    cmocka_unit_test(a_rule_sets_the_choice),
        cmocka_unit_test(the_user_goes_first),         cmocka_unit_test(lengths_are_of_the_message),
        cmocka_unit_test(what_cannot_is_passed_over),  cmocka_unit_test(zero_copy_has_its_own),
        cmocka_unit_test(a_communicator_has_its_own),  cmocka_unit_test(a_rule_limits_resident_kernels),
        cmocka_unit_test(the_hash_is_of_what_is_said),
    };

    random_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
