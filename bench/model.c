/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The model of tuning/model.h and the measurements of bench/results:
 *
 *     model FOLDER            fits the constants of tuning/model.def to the files that it names, in FOLDER, and
 *                             prints them
 *     model FOLDER --errors   prints the errors of the predictions with the constants that are there, as a table of
 *                             docs/performance.md
 *
 * The fit is by least squares of the relative errors, with no constant below 0; large errors weigh less (by
 * reweighting), since single measurements are far off. Needs no MPI and no GPU.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/plan.h"
#include "mca/common/gpusym/memory/heap.h"
#include "tuning/model.h"
#include "tuning/tuning.h"

enum {
    ROWS_MAX = 1024,
    COLUMNS_MAX = 32,
    REWEIGHTINGS = 40,
    SWEEPS = 4000,
    CC = 90,
    MULTIPROCESSORS = 132,
    FEW_THREADS = 8192, /* with which the fit begins */
    MOST = 8            /* ranks */
};
#define HEAP_SIZE (56ull << 20)

/* One measured call. */
typedef struct {
    gpusym_tuning_call_t call;
    gpusym_tuning_choice_t choice;
    double ns, part[GPUSYM_MODEL_PARTS];
    bool slowed; /* in the fit: by few threads, not by the wire */
} row_t;
static row_t row[ROWS_MAX];
static unsigned rows;

static const struct {
    const char *name;
    bool clusters;
} files[] = {
#define GPUSYM_MODEL_FILE(name, clusters) {name, clusters},
#include "tuning/model.def"
};
static const struct {
    const char *id, *unit;
} parts[GPUSYM_MODEL_PARTS] = {
#define GPUSYM_MODEL(ID, value, unit, doc) {#ID, unit},
#include "tuning/model.def"
};

/* ---- the files ---- */

static int find_algorithm(unsigned coll, const char *name)
{
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; a++) {
        if (gpusym_algorithm_collective(a) == coll && 0 == strcmp(name, gpusym_algorithm_name(a))) {
            return (int) a;
        }
    }
    return -1;
}

static unsigned find_collective(const char *name)
{
    unsigned coll = 0;
    while (coll < GPUSYM_COLL_COUNT && 0 != strcmp(name, gpusym_collective_name(coll))) {
        coll++;
    }
    return coll;
}

/* A call as the component describes it, of float and sum, of buffers that peers can map. */
static bool add_row(const char *coll, uint32_t nranks, uint64_t bytes, const char *algorithm,
                    gpusym_tuning_forced_t forced, double us, bool linger, bool clusters)
{
    row_t *r = &row[rows];
    gpusym_work_t slot = {.nranks = nranks};
    const unsigned c = find_collective(coll);
    const int a = c < GPUSYM_COLL_COUNT ? find_algorithm(c, algorithm) : -1;
    if (a < 0 || us <= 0 || ROWS_MAX == rows) {
        return false;
    }
    *r = (row_t){.call = {.coll = c,
                          .bytes = bytes / gpusym_tuning_parts(c, nranks),
                          .op = GPUSYM_OP_SUM,
                          .type = GPUSYM_T_F32,
                          .nranks = nranks,
                          .sm_count = MULTIPROCESSORS,
                          .all_reach = true,
                          .ll128 = true,
                          .copies = true,
                          .clusters = clusters},
                 .ns = us * 1000};
    r->call.zero_copy = r->call.bytes >= gpusym_tuning_zero_copy_min(nranks, false);
    r->call.max_blocks = gpusym_slot_layout(gpusym_slot_size(HEAP_SIZE, 0), nranks,
                                            gpusym_tuning_max_blocks(MULTIPROCESSORS, false), &slot);
    r->call.ll_payload = gpusym_ll_payload(slot.ll_bytes);
    forced.algorithm = a;
    gpusym_tuning_choose_in(&slot, &r->call, &forced, &r->choice);
    r->choice.resident = linger ? r->choice.resident : 0;
    if (a != r->choice.algorithm) {
        return false;
    }
    gpusym_model_count(&r->call, &r->choice, r->part);
    if ((0 != forced.blocks || 0 != forced.threads) && r->part[GPUSYM_MODEL_THREAD] <= 0) {
        return false;
    }
    r->slowed = r->part[GPUSYM_MODEL_THREAD] > 0 && r->choice.blocks * r->choice.threads < FEW_THREADS;
    rows++;
    return true;
}

/* Cuts a line at its commas. Returns the number of fields. */
static unsigned split(char *line, char *field[COLUMNS_MAX])
{
    unsigned n = 0;
    line[strcspn(line, "\r\n")] = '\0';
    for (char *at = line; NULL != at && n < COLUMNS_MAX;) {
        field[n++] = at;
        at = strchr(at, ',');
        if (NULL != at) {
            *at++ = '\0';
        }
    }
    return n;
}

/* The text of a column, by its name in the head; "" if there is none. */
static const char *column(char *head[], unsigned heads, char *field[], unsigned fields, const char *name)
{
    for (unsigned i = 0; i < heads && i < fields; i++) {
        if (0 == strcmp(head[i], name)) {
            return field[i];
        }
    }
    return "";
}

/* Two kinds of tables: of gpusym_bench, and of its --sweep. Of that the rows without pauses between calls. */
static void take_line(char *head[], unsigned heads, char *field[], unsigned fields, uint32_t nranks, bool clusters)
{
#define COLUMN(name) column(head, heads, field, fields, name)
    const char *algorithm = '\0' != *COLUMN("ran") ? COLUMN("ran") : COLUMN("algorithm");
    const char *us = '\0' != *COLUMN("us") ? COLUMN("us") : COLUMN("in_place_us"), *mode = COLUMN("mode");
    if (('\0' == *mode || 0 == strcmp(mode, "blocking")) && atof(COLUMN("gap_us")) <= 0) {
        const char *linger = COLUMN("linger_us");
        const gpusym_tuning_forced_t forced = {.blocks = (uint32_t) atoi(COLUMN("blocks")),
                                               .threads = (uint32_t) atoi(COLUMN("threads"))};
        (void) add_row(COLUMN("collective"), nranks, strtoull(COLUMN("bytes"), NULL, 10), algorithm, forced, atof(us),
                       '\0' == *linger || 0 != strcmp(linger, "0"), clusters);
    }
#undef COLUMN
}

static bool read_file(const char *folder, const char *name, bool clusters)
{
    static char head_line[4096], line[4096];
    char path[4096], *head[COLUMNS_MAX], *field[COLUMNS_MAX];
    unsigned heads = 0, nranks = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    const unsigned before = rows;
    while (NULL != f && NULL != fgets(line, sizeof line, f)) {
        const char *ranks = strstr(line, "one call after the other, ");
        if ('#' == line[0]) {
            nranks = NULL != ranks ? (unsigned) atoi(ranks + strlen("one call after the other, ")) : nranks;
        } else if (0 == strncmp(line, "collective,", 11)) {
            memcpy(head_line, line, sizeof line);
            heads = split(head_line, head);
        } else if (nranks >= 2) {
            take_line(head, heads, field, split(line, field), nranks, clusters);
        }
    }
    if (NULL != f) {
        fclose(f);
    }
    if (before == rows) {
        fprintf(stderr, "model: %s: cannot be read, or has no row that the model knows\n", path);
    }
    return before < rows;
}

/* ---- the fit ---- */

/* How often a call has a part in the fit, which is linear: of the wire and of the threads just the one that counts. */
static double part_of(const row_t *r, unsigned k)
{
    return (r->slowed ? GPUSYM_MODEL_WIRE : GPUSYM_MODEL_THREAD) == k ? 0 : r->part[k];
}

static double predict(const row_t *r, const double value[])
{
    double sum = 0;
    for (unsigned k = 0; k < GPUSYM_MODEL_PARTS; k++) {
        sum += part_of(r, k) * value[k];
    }
    return sum;
}

/* One pass over the constants: each is the best with the others as they are. */
static void sweep(double value[], const double weight[])
{
    for (unsigned k = 0; k < GPUSYM_MODEL_PARTS; k++) {
        double square = 0, along = 0;
        for (unsigned i = 0; i < rows; i++) {
            const double x = part_of(&row[i], k) / row[i].ns;
            square += weight[i] * x * x;
            along += weight[i] * x * (1 - (predict(&row[i], value) - part_of(&row[i], k) * value[k]) / row[i].ns);
        }
        value[k] = square > 0 && along > 0 ? along / square : 0;
    }
}

/* Fits value[] to all rows but those of so many ranks; 0: to all. */
static void fit(double value[], uint32_t without)
{
    double weight[ROWS_MAX];
    memset(value, 0, GPUSYM_MODEL_PARTS * sizeof *value);
    for (unsigned i = 0; i < rows; i++) {
        weight[i] = without != row[i].call.nranks;
    }
    for (unsigned round = 0; round < REWEIGHTINGS; round++) {
        for (unsigned s = 0; s < SWEEPS / REWEIGHTINGS; s++) {
            sweep(value, weight);
        }
        for (unsigned i = 0; i < rows; i++) {
            row[i].slowed = row[i].part[GPUSYM_MODEL_THREAD] * value[GPUSYM_MODEL_THREAD] >
                            row[i].part[GPUSYM_MODEL_WIRE] * value[GPUSYM_MODEL_WIRE];
            weight[i] = (without != row[i].call.nranks) / (0.05 + fabs(predict(&row[i], value) / row[i].ns - 1));
        }
    }
}

/* ---- the errors ---- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

typedef bool select_t(const row_t *r, unsigned which);

static bool is_of_ranks(const row_t *r, unsigned n)
{
    return r->call.nranks == n;
}

static bool is_of_collective(const row_t *r, unsigned coll)
{
    return r->call.coll == coll;
}

static bool is_of_plan(const row_t *r, unsigned plan)
{
    return gpusym_family_plan(r->choice.family) == plan;
}

static bool is_any(const row_t *r, unsigned unused)
{
    (void) r;
    (void) unused;
    return true;
}

/* "| 2 ranks | 120 | 8 % | 21 % |". value: the constants; NULL: those that are there. */
static void print_errors(const char *what, select_t *selected, unsigned which, const double *value)
{
    double error[ROWS_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < rows; i++) {
        if (selected(&row[i], which)) {
            const double ns = NULL != value ? gpusym_model_sum(row[i].part, value)
                                            : gpusym_model_predict(&row[i].call, &row[i].choice, CC);
            error[n++] = fabs(ns / row[i].ns - 1);
        }
    }
    if (n > 0) {
        qsort(error, n, sizeof *error, compare);
        printf("| %s | %u | %.0f %% | %.0f %% |\n", what, n, 100 * error[n / 2], 100 * error[n * 9 / 10]);
    }
}

static void tell_constants(void)
{
    double value[GPUSYM_MODEL_PARTS];
    fit(value, 0);
    for (unsigned k = 0; k < GPUSYM_MODEL_PARTS; k++) {
        if (NULL != parts[k].id) { /* else it is published */
            printf("%s %.0f %s\n", parts[k].id, value[k], parts[k].unit);
        }
    }
}

static void tell_errors(void)
{
    static const struct {
        const char *what;
        unsigned plan;
    } plans[] = {{"LL lines", GPUSYM_PLAN_LINES},
                 {"LL128 lines", GPUSYM_PLAN_LL128},
                 {"rings, chains, trees", GPUSYM_PLAN_CHANNELS},
                 {"copy engines", GPUSYM_PLAN_COPIES}};
    double value[GPUSYM_MODEL_PARTS];
    char text[64];
    printf("| | measured | median error | nine of ten below |\n|---|---|---|---|\n");
    print_errors("all", is_any, 0, NULL);
    for (unsigned n = 2; n <= GPUSYM_TEAM_MAX; n++) {
        snprintf(text, sizeof text, "%u ranks", n);
        print_errors(text, is_of_ranks, n, NULL);
    }
    fit(value, MOST);
    snprintf(text, sizeof text, "%u ranks, by constants fitted to the others", MOST);
    print_errors(text, is_of_ranks, MOST, value);
    for (unsigned coll = 0; coll < GPUSYM_COLL_COUNT; coll++) {
        print_errors(gpusym_collective_name(coll), is_of_collective, coll, NULL);
    }
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        print_errors(plans[i].what, is_of_plan, plans[i].plan, NULL);
    }
}

int main(int argc, char **argv)
{
    const bool errors = 3 == argc && 0 == strcmp(argv[2], "--errors");
    if (argc != 2 && !errors) {
        fprintf(stderr, "usage: model FOLDER [--errors]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (!read_file(argv[1], files[i].name, files[i].clusters)) {
            return 1;
        }
    }
    if (errors) {
        tell_errors();
    } else {
        tell_constants();
    }
    return 0;
}
