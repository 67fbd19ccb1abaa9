/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/rules/: what stands in a file of rules is read as it is meant, what must not stand
 * there is refused with its place; which file a communicator gets; the defaults.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/memory/heap.h"
#include "mca/common/gpusym/rules/rules.h"
#include "test/unit/random.h"

#include "config.h"

static char folder[] = "/tmp/gpusym_rules_XXXXXX";
static char path[PATH_MAX];
static char why[512];

static void write_file(const char *text)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

#define HEAD "{\"rule_file_version\": 3, \"module\": \"gpusym\", \"collectives\": {"
#define ONE(rule) HEAD "\"allreduce\": [{\"rules\": [" rule "]}]}}"

#if GPUSYM_HAVE_JANSSON

/* A file, and what is said of it behind its name. */
static void what_is_wrong_is_refused(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", ":1:0: "},
        {"{\n\"rule_file_version\": 3,\n\"module\" \"gpusym\"}", ":3:17: "},
        {"{\"module\": \"gpusym\",\n\"module\": \"gpusym\"}", ":2:8: duplicate object key"},
        {"[]", ": this must be an object"},
        {"{\"rule_file_version\": 2, \"module\": \"gpusym\", \"collectives\": {}}",
         ": rule_file_version: this must be 3"},
        {"{\"rule_file_version\": 3, \"collectives\": {}}", ": module: this must be \"gpusym\""},
        {"{\"rule_file_version\": 3, \"module\": \"tuned\", \"collectives\": {}}",
         ": module: this must be \"gpusym\": the file is for coll/tuned"},
        {"{\"rule_file_version\": 3, \"module\": \"gpusym\"}", ": collectives: this must be there"},
        {"{\"rule_file_version\": 3, \"module\": \"gpusym\", \"colectives\": {}}",
         ": colectives: there is no such key here; those that there are: rule_file_version, module, "},
        {HEAD "\"barrier\": []}}", ": collectives.barrier: this is no collective that has kernels"},
        {HEAD "\"allreduce\": {}}}", ": collectives.allreduce: this must be a list"},
        {HEAD "\"allreduce\": [{\"comm_size_min\": 4, \"comm_size_max\": 2, \"rules\": []}]}}",
         ": collectives.allreduce[0].comm_size_max: this is less than comm_size_min"},
        {HEAD "\"allreduce\": [{\"rules\": []}, {\"comm_size_max\": \"all\", \"rules\": []}]}}",
         ": collectives.allreduce[1].comm_size_max: this must be a whole number, or \"inf\""},
        {HEAD "\"bcast\": [{\"comm_rank_distribution\": \"near\", \"rules\": []}]}}",
         ": collectives.bcast[0].comm_rank_distribution: \"near\" is none of any, single-node, one-per-node"},
        {HEAD "\"bcast\": [{\"link\": \"ethernet\", \"rules\": []}]}}",
         ": collectives.bcast[0].link: \"ethernet\" is none of any, nvlink, pci"},
        {HEAD "\"bcast\": [{\"gpu\": 200, \"rules\": []}]}}", ": collectives.bcast[0].gpu: this must be a text"},
        {HEAD "\"bcast\": [{\"gpu\": \"a\"}]}}", ": collectives.bcast[0].rules: this must be there, a list"},
        {ONE("3"), ": collectives.allreduce[0].rules[0]: this must be an object"},
        {ONE("{\"alg\": \"ring_ll\"}, {}"), ": collectives.allreduce[0].rules[1]: this says nothing"},
        {ONE("{\"alg\": 3}"), ": collectives.allreduce[0].rules[0].alg: this must be a text"},
        {ONE("{\"alg\": \"st\"}"),
         ": collectives.allreduce[0].rules[0].alg: \"st\" is no algorithm of allreduce; those that there are: auto, "
         "agxll_r, "},
        {ONE("{\"alg\": \"ring_ll\", \"block\": 3}"),
         ": collectives.allreduce[0].rules[0].block: there is no such key here; those that there are: msg_size_min, "},
        {ONE("{\"blocks\": 0}"), ": collectives.allreduce[0].rules[0].blocks: this must be a whole number from 1 to "},
        {ONE("{\"blocks\": 2.5}"), ": collectives.allreduce[0].rules[0].blocks: this must be a whole number from 1 "},
        {ONE("{\"threads\": 100}"), ": collectives.allreduce[0].rules[0].threads: this must be a multiple of 32"},
        {ONE("{\"threads\": 2048}"), ": collectives.allreduce[0].rules[0].threads: this must be a whole number "},
        {ONE("{\"blocks\": 1, \"zero_copy\": 1}"),
         ": collectives.allreduce[0].rules[0].zero_copy: this must be true or false"},
        {ONE("{\"resident_max\": -1}"), ": collectives.allreduce[0].rules[0].resident_max: this must be a whole "},
        {ONE("{\"seg_size\": 134217728}"), ": collectives.allreduce[0].rules[0].seg_size: this must be a whole "},
        {ONE("{\"blocks\": 1, \"msg_size_min\": -8}"), ": collectives.allreduce[0].rules[0].msg_size_min: this must "},
        {ONE("{\"blocks\": 1, \"msg_size_max\": 8, \"block_size_min\": 8}"),
         ": collectives.allreduce[0].rules[0]: this has both msg_size and block_size"},
        {ONE("{\"blocks\": 1, \"op\": \"plus\"}"), ": collectives.allreduce[0].rules[0].op: \"plus\" is none of sum, "},
        {ONE("{\"blocks\": 1, \"type\": \"float\"}"),
         ": collectives.allreduce[0].rules[0].type: \"float\" is none of "},
        {HEAD "\"bcast\": [{\"rules\": [{\"blocks\": 1, \"op\": \"sum\"}]}]}}",
         ": collectives.bcast[0].rules[0].op: bcast does not reduce"},
    };
    (void) state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gpusym_rules_file_t file;
        write_file(cases[i].text);
        assert_false(gpusym_rules_read(path, &file, why, sizeof why));
        if (0 != strncmp(why, path, strlen(path)) ||
            0 != strncmp(why + strlen(path), cases[i].said, strlen(cases[i].said))) {
            fail_msg("case %zu: %s", i, why);
        }
        assert_null(file.path);
    }
}

static void what_is_right_is_read(void **state)
{
    gpusym_rules_file_t file;
    const gpusym_rule_t *r;
    (void) state;
    write_file(HEAD
               "\"bcast\": [{\"comm_size_min\": 2, \"comm_size_max\": \"inf\", \"rules\": []},"
               "            {\"comm_rank_distribution\": \"one-per-node\", \"rules\": [{\"alg\": \"auto\"}]}],"
               "\"allreduce\": [{\"comment\": \"x\", \"comm_size_max\": 8, \"gpu\": \"H200\", \"link\": \"nvlink\","
               "  \"rules\": [{\"msg_size_min\": 8, \"msg_size_max\": 4096, \"alg\": \"ring_ll\", \"op\": \"max\","
               "               \"zero_copy\": true, \"type\": \"f64\", \"blocks\": 3, \"threads\": 96, \"seg_size\": "
               "512, \"resident_max\": 0},"
               "              {\"msg_size_max\": \"inf\", \"resident_max\": 7},"
               "              {\"zero_copy\": false, \"blocks\": 7}]}]}}");
    assert_true(gpusym_rules_read(path, &file, why, sizeof why));
    assert_string_equal(file.path, path);
    assert_int_equal(file.n, 4);
    r = &file.rule[0];
    assert_true(GPUSYM_COLL_BCAST == r->coll && 1 == r->group && 0 == r->item && !r->single_host && -1 == r->algorithm);
    r = &file.rule[1];
    assert_true(GPUSYM_COLL_ALLREDUCE == r->coll && 0 == r->ranks_min && 8 == r->ranks_max && r->single_host);
    assert_string_equal(r->gpu, "H200");
    assert_true(GPUSYM_RULE_LINK_NVLINK == r->link && 8 == r->bytes_min && 4096 == r->bytes_max);
    assert_true(GPUSYM_OP_MAX == r->op && GPUSYM_T_F64 == r->type && 1 == r->zero_copy &&
                GPUSYM_ALG_ALLREDUCE_RING_LL == r->algorithm);
    assert_true(3 == r->blocks && 96 == r->threads && 512 == r->chunk && 1 == r->resident_below);
    r = &file.rule[2];
    assert_true(0 == r->group && 1 == r->item && 0 == r->bytes_min && UINT64_MAX == r->bytes_max);
    assert_true(-1 == r->op && -1 == r->type && -1 == r->algorithm && 0 == r->blocks && 8 == r->resident_below);
    assert_int_equal(r->zero_copy, -1);
    r = &file.rule[3];
    assert_true(0 == r->zero_copy && 7 == r->blocks);
    gpusym_rules_file_free(&file);
}

/* A call of 2 to 32 ranks, about as long as some limit of the defaults. */
static gpusym_tuning_call_t draw_call(gpusym_work_t *slot)
{
    gpusym_tuning_call_t call = {.coll = (unsigned) (next_random() % GPUSYM_COLL_COUNT),
                                 .op = GPUSYM_OP_SUM,
                                 .type = GPUSYM_T_F32,
                                 .nranks = 2 + (uint32_t) (next_random() % (GPUSYM_TEAM_MAX - 1)),
                                 .sm_count = 132,
                                 .zero_copy = next_random() % 2,
                                 .reproducible = next_random() % 2,
                                 .all_reach = next_random() % 2,
                                 .ll128 = next_random() % 2,
                                 .copies = next_random() % 2};
    call.multicast = call.mc_requested = next_random() % 2;
    *slot = (gpusym_work_t){.nranks = call.nranks};
    call.max_blocks = gpusym_slot_layout(8 << 20, call.nranks, gpusym_tuning_max_blocks(132, false), slot);
    call.ll_payload = slot->ll_bytes / 2;
    call.bytes = (1ull << next_random() % 30) / (0 == next_random() % 2 ? 1 : call.nranks) + next_random() % 3 - 1;
    return call;
}

/* The defaults choose the same as rules of a file as they do as C, which is made of it. */
static void the_defaults_are_rules(void **state)
{
    gpusym_rules_file_t file;
    gpusym_rules_t *rules[GPUSYM_TEAM_MAX + 1];
    unsigned none = 0, exceptions = 0;
    (void) state;
    assert_true(gpusym_rules_read(DEFAULTS, &file, why, sizeof why));
    for (uint32_t n = 2; n <= GPUSYM_TEAM_MAX; n++) {
        rules[n] = gpusym_rules_make(&file, n, "");
        assert_non_null(rules[n]);
    }
    for (unsigned i = 0; i < 200000; i++) {
        gpusym_tuning_choice_t by_table = {.algorithm = -1};
        gpusym_tuning_forced_t forced = {.algorithm = -1};
        gpusym_work_t slot;
        gpusym_tuning_call_t call = draw_call(&slot);
        const gpusym_rule_t *rule = gpusym_rules_apply(rules[call.nranks], &slot, &call, &forced);
        gpusym_tuning_choose_in(&slot, &call, &(gpusym_tuning_forced_t){.algorithm = -1}, &by_table);
        assert_int_equal(by_table.algorithm, forced.algorithm);
        gpusym_tuning_choice_t by_file = {.algorithm = -1};
        gpusym_tuning_choose_in(&slot, &call, &forced, &by_file);
        assert_true(by_table.blocks == by_file.blocks && by_table.threads == by_file.threads);
        exceptions += NULL != rule && 0 != rule->blocks;
        none += NULL == rule;
    }
    assert_in_range(none, 1, 100000); /* not all have rings */
    assert_in_range(exceptions, 100, 100000);
    for (uint32_t n = 2; n <= GPUSYM_TEAM_MAX; n++) {
        gpusym_rules_free(rules[n]);
    }
    gpusym_rules_file_free(&file);
}

/* No more than there is room for. */
static void many_are_too_many(void **state)
{
    static const char rule[] = "{\"blocks\": 1},";
    char *text = malloc((GPUSYM_RULES_MAX + 2) * sizeof rule + 200);
    gpusym_rules_file_t file;
    (void) state;
    for (unsigned n = GPUSYM_RULES_MAX; n <= GPUSYM_RULES_MAX + 1; n++) {
        size_t used = (size_t) sprintf(text, "%s", HEAD "\"allreduce\": [{\"rules\": [");
        for (unsigned i = 0; i < n; i++) {
            used += (size_t) sprintf(text + used, "%s", rule);
        }
        sprintf(text + used - 1, "]}]}}");
        write_file(text);
        assert_int_equal(gpusym_rules_read(path, &file, why, sizeof why), n == GPUSYM_RULES_MAX);
        gpusym_rules_file_free(&file);
    }
    assert_non_null(strstr(why, "there are more than 512 rules"));
    free(text);
}

/* Of a folder the file for the GPUs and the number of ranks, which need not be there; of a file that has changed what
 * stands there now. */
static void a_communicator_gets_its_file(void **state)
{
    gpusym_rules_t *rules;
    char name[64];
    (void) state;
    snprintf(path, sizeof path, "%s/sm90-4.json", folder);
    write_file(ONE("{\"blocks\": 1}"));
    gpusym_rules_name(name, sizeof name, 90, 4);
    assert_string_equal(name, "sm90-4.json");
    gpusym_rules_name(name, sizeof name, 0, 2);
    assert_string_equal(name, "sim-2.json");
    rules = gpusym_rules_open(folder, 4, "NVIDIA H200", 90, why, sizeof why);
    assert_non_null(rules);
    assert_string_equal(gpusym_rules_path(rules), path);
    const uint64_t before = gpusym_rules_hash(rules);
    gpusym_rules_free(rules);
    assert_null(gpusym_rules_open(folder, 2, "NVIDIA H200", 90, why, sizeof why));
    assert_string_equal(why, "");
    assert_null(gpusym_rules_open("none", 4, "NVIDIA H200", 90, why, sizeof why));
    assert_string_equal(why, "");
    assert_null(gpusym_rules_open("/nowhere/none.json", 4, "NVIDIA H200", 90, why, sizeof why));
    assert_string_equal(why, "/nowhere/none.json: No such file or directory");
    write_file(ONE("{\"blocks\": 10}"));
    rules = gpusym_rules_open(path, 4, "NVIDIA H200", 90, why, sizeof why);
    assert_true(NULL != rules && before != gpusym_rules_hash(rules));
    gpusym_rules_free(rules);
    write_file("{");
    assert_null(gpusym_rules_open(folder, 4, "NVIDIA H200", 90, why, sizeof why));
    assert_non_null(strstr(why, "sm90-4.json:1:"));
}

#else

static void without_jansson_it_says_so(void **state)
{
    gpusym_rules_file_t file;
    (void) state;
    write_file(ONE("{\"blocks\": 1}"));
    assert_false(gpusym_rules_read(path, &file, why, sizeof why));
    assert_non_null(strstr(why, "gpusym was built without jansson"));
    assert_null(gpusym_rules_open(path, 4, "NVIDIA H200", 90, why, sizeof why));
    assert_non_null(strstr(why, "gpusym was built without jansson"));
}

#endif

static int make_folder(void **state)
{
    (void) state;
    snprintf(path, sizeof path, "%s/rules.json", NULL != mkdtemp(folder) ? folder : "");
    return 0;
}

static int remove_folder(void **state)
{
    (void) state;
    snprintf(path, sizeof path, "%s/rules.json", folder);
    (void) unlink(path);
    snprintf(path, sizeof path, "%s/sm90-4.json", folder);
    (void) unlink(path);
    return rmdir(folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#if GPUSYM_HAVE_JANSSON
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(what_is_right_is_read),
        cmocka_unit_test(the_defaults_are_rules),
        cmocka_unit_test(many_are_too_many),
        cmocka_unit_test(a_communicator_gets_its_file),
#else
        cmocka_unit_test(without_jansson_it_says_so),
#endif
    };

    random_start(argc, argv);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
