/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: files of rules (rules/rules_json.c), and choices by the rules that they have (tuning/rules.h); and that any
 * GPU's name can stand in a file that gpusym_tune writes.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/rules/rules.h"

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "test/fuzz/fuzz.h"

#include "bench/tune_file.c"

extern gpusym_rules_reader_t gpusym_rules_json;

static void apply(gpusym_rules_t *rules)
{
    const gpusym_work_t slot = {.nranks = 4};
    gpusym_tuning_lack_t lack;
    gpusym_rule_verdict_t verdict;

    MUST(0 != gpusym_rules_hash(rules));
    gpusym_rules_settle(rules, true);
    for (unsigned coll = 0; coll < GPUSYM_COLL_COUNT; coll++) {
        for (uint64_t bytes = 1; bytes < (uint64_t) 1 << 40; bytes *= 32) {
            const gpusym_tuning_call_t call = {.coll = coll, .nranks = 4, .bytes = bytes};
            gpusym_tuning_forced_t forced = {.algorithm = -1};
            (void) gpusym_rules_apply(rules, &slot, &call, &forced);
            MUST(forced.algorithm >= -1 && forced.algorithm < (int) GPUSYM_ALG_COUNT);
            for (unsigned i = 0; NULL != gpusym_rules_look(rules, &slot, &call, &forced, i, &verdict, &lack); i++) {
                MUST(i < GPUSYM_RULES_MAX);
            }
        }
    }
}

/* ---- the file that gpusym_tune writes ---- */

int bench_ranks = 4;
const bench_setting_t bench_table = {-1, -1, -1, -1};

const char *bench_coll_name(const bench_coll_t *c)
{
    (void) c;
    return "allreduce";
}

const bench_type_t *bench_type(void)
{
    static const bench_type_t type = {.name = "float"};
    return &type;
}

/* A file with the name of that GPU is read, and names it. */
static void write_and_read(int fd, const char *path, const uint8_t *data, size_t size)
{
    const bench_point_t point = {.bytes = 1024, .measured = true, .best = {0, 1, -1, -1}, .table_us = 2, .us = 1};
    bench_gpus_t gpus = {.nvlink = true};
    char why[600] = "";
    gpusym_rules_file_t file;
    FILE *f = fdopen(dup(fd), "w");

    memcpy(gpus.name, data, size < sizeof gpus.name ? size : sizeof gpus.name - 1);
    MUST(NULL != f && 0 == ftruncate(fd, 0) && 0 == lseek(fd, 0, SEEK_SET));
    MUST(1 == write_all(f, &point, 1, &gpus) && 0 == fclose(f));
    MUST(gpusym_rules_json(path, &file, why, sizeof why) && 1 == file.n);
    MUST(strlen(gpus.name) == strlen(file.rule[0].gpu));
    for (const char *c = gpus.name, *is = file.rule[0].gpu; '\0' != *c; c++, is++) {
        MUST(*is == (*c < ' ' || *c > '~' ? '?' : *c));
    }
    gpusym_rules_file_free(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[40];
    char why[600] = "";
    gpusym_rules_file_t file;

    if (fd < 0) {
        fd = memfd_create("rules", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    write_and_read(fd, path, data, size);
    MUST(fd >= 0 && 0 == ftruncate(fd, 0) && (ssize_t) size == pwrite(fd, data, size, 0));
    if (!gpusym_rules_json(path, &file, why, sizeof why)) {
        MUST(NULL == file.rule && NULL == file.path && '\0' != *why);
        return 0;
    }
    MUST(file.n <= GPUSYM_RULES_MAX);
    gpusym_rules_t *rules = gpusym_rules_make(&file, 4, "NVIDIA H100 80GB HBM3");
    if (NULL != rules) {
        apply(rules);
        gpusym_rules_free(rules);
    }
    gpusym_rules_file_free(&file);
    return 0;
}
