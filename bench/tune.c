/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Tuning of one message: see tune.h. Algorithms first, with the table's blocks and threads; then blocks of the best
 * ones; then threads, and resident kernels or not, of the best of these: each time by successive halving. In the end
 * the winner beside the table, in turns.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "bench/counters.h"
#include "bench/output.h"
#include "bench/ranks.h"
#include "bench/timing.h"
#include "bench/tune.h"
#include "bench/ways.h"
#include "kernels/kernels.h"
#include "tuning/halving.h"

#define FIRST_SECONDS 0.001 /* of a candidate's first measurement, at about, after CALLS_AHEAD */
#define CALLS_MIN 2u
#define CALLS_MAX 40u
#define CALLS_AHEAD 2 /* not timed: a plan that has changed is made anew */
#define SIDE_SECONDS 0.005
#define SIDE_CALLS_MAX 400u
#define SIDES 9         /* measurements of each of two, in turns */
#define FINALISTS 2     /* algorithms whose blocks are varied */
#define RULES_GOOD 0.98 /* of the table's speed, where it is measured again */

const bench_setting_t bench_table = {-1, -1, -1, -1};

enum { ALGORITHM, BLOCKS, THREADS, RESIDENT, VARIABLES };
static bench_variable_t variable[VARIABLES];

void bench_tune_open(const bench_coll_t *coll)
{
    snprintf(variable[ALGORITHM].name, sizeof(variable[ALGORITHM].name), "coll_gpusym_%s_algorithm",
             bench_coll_name(coll));
    snprintf(variable[BLOCKS].name, sizeof(variable[BLOCKS].name), "coll_gpusym_blocks");
    snprintf(variable[THREADS].name, sizeof(variable[THREADS].name), "coll_gpusym_threads");
    snprintf(variable[RESIDENT].name, sizeof(variable[RESIDENT].name), "coll_gpusym_resident_max");
    for (int i = 0; i < VARIABLES; i++) {
        bench_variable_open(&variable[i]);
    }
    bench_counters_of(bench_coll_name(coll));
}

void bench_tune_close(void)
{
    for (int i = 0; i < VARIABLES; i++) {
        bench_variable_close(&variable[i]);
    }
}

static void force(const bench_setting_t *s)
{
    if (!bench_variable_set(&variable[ALGORITHM], s->algorithm) ||
        !bench_variable_set(&variable[BLOCKS], s->blocks < 0 ? 0 : s->blocks) ||
        !bench_variable_set(&variable[THREADS], s->threads < 0 ? 0 : s->threads) ||
        !bench_variable_set(&variable[RESIDENT], s->resident_max)) {
        bench_die("MPI_T cannot set the parameters of this gpusym");
    }
}

/* ---- calls ---- */

/* A call that is measured, and its candidates. */
typedef struct {
    bench_call_t call;
    const bench_setting_t *candidate;
} tuned_t;

static void make_call(bench_call_t *call, const bench_point_t *p, MPI_Comm comm)
{
    const bench_what_t what = {p->coll, COLL_BLOCKING, bench_coll_only_in_place(p->coll), p->count};

    bench_call_make(call, &what, bench_ways[BENCH_GPUSYM].in, bench_ways[BENCH_GPUSYM].out, NULL, NULL);
    call->args.comm = comm;
}

/* Seconds of one of n calls, on the slowest rank. */
static double time_calls(bench_call_t *call, unsigned n)
{
    MPI_Barrier(bench_world);
    const double start = MPI_Wtime();
    for (unsigned i = 0; i < n; i++) {
        bench_call_by_mpi(call);
    }
    return bench_max(MPI_Wtime() - start) / n;
}

static unsigned count_calls(double seconds, double one, unsigned most)
{
    const double n = seconds / (one > 1e-9 ? one : 1e-9);
    return n < CALLS_MIN ? CALLS_MIN : n > most ? most : (unsigned) n;
}

/* Makes the calls that are not timed. Returns whether all ranks made them by the algorithm; -1: by any. */
static bool run_ahead(bench_call_t *call, int algorithm)
{
    char ran[128];

    bench_counters_start();
    for (int i = 0; i < CALLS_AHEAD; i++) {
        bench_call_by_mpi(call);
    }
    bench_counters_say(ran, sizeof(ran));
    return bench_agree(algorithm < 0 || 0 == strcmp(ran, gpusym_algorithm_name((unsigned) algorithm)));
}

/* One that cannot serve the call is not measured: another one runs in its place. */
static double measure(void *arg, unsigned i, unsigned calls)
{
    tuned_t *t = arg;

    force(&t->candidate[i]);
    return run_ahead(&t->call, t->candidate[i].algorithm) ? time_calls(&t->call, calls) : -1;
}

/* ---- candidates ---- */

/* A list of them, and how they came off. */
typedef struct {
    bench_setting_t setting[GPUSYM_TUNING_CANDIDATES_MAX];
    unsigned order[GPUSYM_TUNING_CANDIDATES_MAX];
    unsigned n, can;
} round_t;

static void add(round_t *r, bench_setting_t setting)
{
    if (r->n < GPUSYM_TUNING_CANDIDATES_MAX) {
        r->setting[r->n++] = setting;
    }
}

static void run_round(round_t *r, tuned_t *t, unsigned calls)
{
    t->candidate = r->setting;
    r->can = gpusym_tuning_halve(r->n, calls, measure, t, r->order);
}

static const bench_setting_t *place(const round_t *r, unsigned i)
{
    return &r->setting[r->order[i]];
}

static void add_algorithms(round_t *r, const bench_coll_t *coll)
{
    for (unsigned a = 0; a < GPUSYM_ALG_COUNT; a++) {
        if (0 == strcmp(gpusym_collective_name(gpusym_algorithm_collective(a)), bench_coll_name(coll))) {
            add(r, (bench_setting_t){(int) a, -1, -1, -1});
        }
    }
}

/* The best ones so far, with other numbers of blocks. */
static void add_blocks(round_t *r, const round_t *algorithms)
{
    static const int blocks[] = {1, 2, 4, 8, 16, 32, 64, 128};

    for (unsigned k = 0; k < FINALISTS && k < algorithms->can; k++) {
        add(r, *place(algorithms, k));
        for (unsigned i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
            bench_setting_t s = *place(algorithms, k);
            s.blocks = blocks[i];
            add(r, s);
        }
    }
}

/* The best one so far with other numbers of threads; and, if it may have a resident kernel, with one and without. */
static void add_rest(round_t *r, const bench_setting_t *best, size_t bytes)
{
    static const int threads[] = {64, 128, 256, 512};

    add(r, *best);
    for (unsigned i = 0; i < sizeof(threads) / sizeof(*threads); i++) {
        bench_setting_t s = *best;
        s.threads = threads[i];
        add(r, s);
    }
    if (best->algorithm >= 0 && best->blocks <= 1 && bytes <= INT_MAX &&
        GPUSYM_PLAN_LINES == gpusym_family_plan(gpusym_algorithm_family((unsigned) best->algorithm))) {
        bench_setting_t s = *best;
        s.resident_max = 0;
        add(r, s);
        s.resident_max = (int) bytes;
        add(r, s);
    }
}

/* Whether it is later; the same on all ranks. */
static bool is_past(double deadline)
{
    return bench_max(0 == bench_rank ? MPI_Wtime() - deadline : -1e9) > 0;
}

/* Of one round after the other, as far as there is time. */
static bench_setting_t find_best(tuned_t *t, bench_point_t *p, double deadline)
{
    round_t algorithms = {.n = 0}, blocks = {.n = 0}, rest = {.n = 0};

    force(&bench_table);
    (void) run_ahead(&t->call, -1);
    const unsigned calls = count_calls(FIRST_SECONDS, time_calls(&t->call, CALLS_MIN), CALLS_MAX);
    add_algorithms(&algorithms, p->coll);
    run_round(&algorithms, t, calls);
    p->served = 0 != algorithms.can;
    if (!p->served) {
        return bench_table;
    }
    if (is_past(deadline)) {
        return *place(&algorithms, 0);
    }
    add_blocks(&blocks, &algorithms);
    run_round(&blocks, t, calls);
    if (0 == blocks.can || is_past(deadline)) {
        return *place(0 == blocks.can ? &algorithms : &blocks, 0);
    }
    add_rest(&rest, place(&blocks, 0), p->bytes);
    run_round(&rest, t, calls);
    return *place(0 == rest.can ? &blocks : &rest, 0);
}

/* ---- side by side ---- */

/* What measures one of two, in turns. */
typedef struct {
    bench_call_t *call;
    const bench_setting_t *setting;
} side_t;

/* Medians in us. */
static void compare(const side_t side[2], double us[2])
{
    double seconds[2][SIDES];
    unsigned calls[2];

    for (int i = 0; i < 2; i++) {
        force(side[i].setting);
        (void) run_ahead(side[i].call, -1);
        calls[i] = count_calls(SIDE_SECONDS, time_calls(side[i].call, CALLS_MIN), SIDE_CALLS_MAX);
    }
    for (int k = 0; k < SIDES; k++) {
        for (int i = 0; i < 2; i++) {
            force(side[i].setting);
            (void) run_ahead(side[i].call, -1);
            seconds[i][k] = time_calls(side[i].call, calls[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        us[i] = 1e6 * bench_median(seconds[i], SIDES);
    }
}

void bench_tune_point(bench_point_t *p, double margin, double deadline)
{
    tuned_t t = {.candidate = NULL};
    double us[2];

    bench_ways_fill(p->coll, p->count);
    make_call(&t.call, p, MPI_COMM_WORLD);
    p->best = find_best(&t, p, deadline);
    const side_t side[2] = {{&t.call, &bench_table}, {&t.call, &p->best}};
    compare(side, us);
    p->table_us = us[0];
    p->us = us[1];
    if (us[0] < us[1] * (1 + margin)) {
        p->best = bench_table;
    }
    p->measured = true;
    force(&bench_table);
    bench_call_drop(&t.call);
}

bool bench_tune_again(bench_point_t *p, MPI_Comm ruled)
{
    bench_call_t call[2];
    const side_t side[2] = {{&call[0], &bench_table}, {&call[1], &bench_table}};
    unsigned long long wrong;
    double us[2];

    bench_ways_fill(p->coll, p->count);
    make_call(&call[0], p, MPI_COMM_WORLD);
    make_call(&call[1], p, ruled);
    force(&bench_table);
    const bool ran = run_ahead(&call[1], p->best.algorithm);
    bench_prepare(&call[1]);
    bench_call_by_mpi(&call[1]);
    wrong = (unsigned long long) bench_sum((double) bench_wrong(&call[1]));
    compare(side, us);
    if (us[0] < RULES_GOOD * us[1]) { /* perhaps something else ran on the machine */
        compare(side, us);
    }
    p->again = true;
    p->table_again = us[0];
    p->rules_again = us[1];
    bench_call_drop(&call[0]);
    bench_call_drop(&call[1]);
    if (!ran || 0 != wrong) {
        bench_comment("%s, %zu bytes: %s", bench_coll_name(p->coll), p->bytes,
                      0 != wrong ? "WRONG RESULTS" : "the rule was not followed");
    }
    return ran && 0 == wrong && us[0] >= RULES_GOOD * us[1];
}
