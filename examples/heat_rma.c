/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Example: heat conduction in two dimensions, whose halo is exchanged by one-sided calls; n x n points per rank, whose
 * rows are one below the other, in GPU memory that is a window. Before each step a rank puts its outer rows into the
 * neighbours' fields.
 *
 *     mpirun -n 4 --bind-to core --mca coll gpusym examples/heat_rma --n 1024
 *     mpirun -n 4 --mca coll gpusym --mca coll_gpusym_device sim examples/heat_rma --device sim --check
 *
 * The step is explicit, of the largest length that is stable: a point's next value is the mean of its neighbours', as
 * in a sweep of examples/jacobi, whose kernels and memory this program uses.
 *
 * The same in four forms: `messages`, MPI_Isend and MPI_Irecv; `fence`, MPI_Put and MPI_Win_fence; `post`, MPI_Put
 * between MPI_Win_start and MPI_Win_complete; `flush`, MPI_Put and MPI_Win_flush in one epoch of MPI_Win_lock_all, and
 * then the step's number to the neighbour, by MPI_Accumulate to a second window, of host memory. The ranks are on one
 * host.
 *
 * The fields of all forms must have the same bits, and with --check those of a serial computation on the host. The
 * table has the time of a step, all included: median of some runs, of the slowest rank.
 */
#include <getopt.h>
#include <mpi.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/job.h"
#include "bench/memory.h"
#include "examples/jacobi_device.h"
#include "examples/stream.h"
#include "test/mpi/mem.h"

#define USAGE                                                                                                    \
    "heat_rma [--device cuda|sim|host] [--n N] [--steps N] [--form LIST] [--repeats N] [--check] [--csv FILE]\n" \
    "         [--json FILE]\n"                                                                                   \
    "--n: rows, and columns, of a rank; --form: messages, fence, post, flush\n"                                  \
    "--check: compute all of it on every rank's CPU, too"

#define N_CUDA 1024
#define N_OTHER 12 /* the simulator computes on the CPU */
#define N_MOST 16384
#define STEPS_CUDA 1000
#define STEPS_OTHER 20
#define STEPS_MOST 10000000
#define REPEATS_MAX 101
#define CHECKED_POINTS ((size_t) 1 << 26)
#define TAG 7

static struct {
    bench_common_t common; /* device, files */
    const char *forms[BENCH_LIST_MAX];
    int nforms; /* 0: all */
    size_t n, steps, repeats;
    bool check;
} opt = {.common = {.device = "cuda"}, .repeats = 3};

/* ---- the halo ---------------------------------------------------------------------------------------------------- */

static MPI_Win fields;    /* all that a rank has on the GPU, by doubles */
static MPI_Win steps;     /* int64_t[2] of each rank: the number of the step whose row a neighbour has put; by side */
static MPI_Group friends; /* the neighbours */

/* Rank that has the rows below ours in number (side 0) or above (side 1); MPI_PROC_NULL at the grid's edges. */
static int neighbour(int side)
{
    const int r = bench_rank + (0 == side ? -1 : 1);

    return r < 0 || r >= bench_ranks ? MPI_PROC_NULL : r;
}

/* The outer row that goes to a neighbour, and where its own goes: from column 1 on, n doubles. */
static double *row_to(const jacobi_args_t *a, int side)
{
    return jacobi_present(a) + jacobi_at(a, 0 == side ? 1 : a->n, 1);
}

static double *row_from(const jacobi_args_t *a, int side)
{
    return jacobi_present(a) + jacobi_at(a, 0 == side ? 0 : a->n + 1, 1);
}

static void messages(const jacobi_args_t *a, int64_t step)
{
    MPI_Request requests[4];

    (void) step;
    for (int side = 0; side < 2; side++) {
        MPI_Irecv(row_from(a, side), (int) a->n, MPI_DOUBLE, neighbour(side), TAG, MPI_COMM_WORLD, &requests[side]);
    }
    for (int side = 0; side < 2; side++) {
        MPI_Isend(row_to(a, side), (int) a->n, MPI_DOUBLE, neighbour(side), TAG, MPI_COMM_WORLD, &requests[2 + side]);
    }
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

/* Our row lies on the other side of the neighbour's field, whose rows are as many as ours. */
static void put_row(const jacobi_args_t *a, int side)
{
    MPI_Put(row_to(a, side), (int) a->n, MPI_DOUBLE, neighbour(side), row_from(a, 1 - side) - a->base, (int) a->n,
            MPI_DOUBLE, fields);
}

/* A rank may put the row of the next step as soon as it has this step's: the neighbour computes from the other field.
 * So the forms below wait for neighbours once in a step. */

static void fence(const jacobi_args_t *a, int64_t step)
{
    (void) step;
    put_row(a, 0);
    put_row(a, 1);
    MPI_Win_fence(0, fields);
}

static void post(const jacobi_args_t *a, int64_t step)
{
    (void) step;
    MPI_Win_post(friends, 0, fields);
    MPI_Win_start(friends, 0, fields);
    put_row(a, 0);
    put_row(a, 1);
    MPI_Win_complete(fields);
    MPI_Win_wait(fields);
}

static void flush(const jacobi_args_t *a, int64_t step)
{
    for (int side = 0; side < 2; side++) {
        put_row(a, side);
    }
    for (int side = 0; side < 2; side++) {
        if (MPI_PROC_NULL != neighbour(side)) {
            MPI_Win_flush(neighbour(side), fields); /* the row is there */
            MPI_Accumulate(&step, 1, MPI_INT64_T, neighbour(side), 1 - side, 1, MPI_INT64_T, MPI_REPLACE, steps);
            MPI_Win_flush(neighbour(side), steps);
        }
    }
    for (int side = 0; side < 2; side++) {
        int64_t seen = MPI_PROC_NULL == neighbour(side) ? step : 0, none = 0;

        while (seen < step) {
            MPI_Fetch_and_op(&none, &seen, MPI_INT64_T, bench_rank, side, MPI_NO_OP, steps);
            MPI_Win_flush(bench_rank, steps);
            if (seen < step) {
                MPI_Win_sync(fields); /* a neighbour on another host may wait for this rank */
                sched_yield();
            }
        }
    }
    MPI_Win_sync(fields);
}

static void open_nothing(void)
{
}

static void open_fence(void)
{
    MPI_Win_fence(MPI_MODE_NOPRECEDE, fields);
}

static void close_fence(void)
{
    MPI_Win_fence(MPI_MODE_NOSUCCEED, fields);
}

static void lock(void)
{
    MPI_Win_lock_all(0, fields);
    MPI_Win_lock_all(0, steps);
}

static void unlock(void)
{
    MPI_Win_unlock_all(steps);
    MPI_Win_unlock_all(fields);
}

static const struct {
    const char *name;
    void (*open)(void), (*close)(void); /* epochs of a run */
    void (*exchange)(const jacobi_args_t *a, int64_t step);
} forms[] = {{"messages", open_nothing, open_nothing, messages},
             {"fence", open_fence, close_fence, fence},
             {"post", open_nothing, open_nothing, post},
             {"flush", lock, unlock, flush}};
enum { FORMS = sizeof(forms) / sizeof(*forms) };

static void open_windows(const jacobi_args_t *a)
{
    const int ranks[2] = {neighbour(0), neighbour(1)}, first = MPI_PROC_NULL == ranks[0];
    int64_t *words;
    MPI_Group all;

    MPI_Win_create(a->base, (MPI_Aint) (jacobi_doubles(a) * sizeof(double)), sizeof(double), MPI_INFO_NULL,
                   MPI_COMM_WORLD, &fields);
    MPI_Win_allocate_shared(2 * sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &words, &steps);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, bench_rank, 0, steps);
    words[0] = words[1] = 0;
    MPI_Win_unlock(bench_rank, steps);
    MPI_Win_get_group(fields, &all);
    MPI_Group_incl(all, !first + (MPI_PROC_NULL != ranks[1]), ranks + first, &friends);
    MPI_Group_free(&all);
}

static void close_windows(void)
{
    MPI_Group_free(&friends);
    MPI_Win_free(&steps);
    MPI_Win_free(&fields);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

/* All steps, from the initial field; returns the seconds of this rank. The numbers of steps go on from run to run. */
static double run_steps(int f, const jacobi_args_t *a)
{
    static int64_t step;
    jacobi_args_t now = *a;
    double seconds;

    now.flags = 0;
    jacobi_launch(JACOBI_START, &now);
    stream_wait();
    MPI_Barrier(bench_world);
    forms[f].open();
    seconds = -MPI_Wtime();
    for (size_t i = 0; i < opt.steps; i++) {
        now.flags = i % 2 ? JACOBI_SECOND : 0;
        forms[f].exchange(&now, ++step);
        jacobi_launch(JACOBI_SWEEP, &now);
        stream_wait(); /* MPI does not know our stream */
    }
    seconds += MPI_Wtime();
    forms[f].close();
    MPI_Barrier(bench_world);
    return seconds;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

/* What this rank's points are to be, by a serial computation or by the first form. */
static double *points;
static bool referred; /* they are there */

static double *host_doubles(size_t n)
{
    double *p = calloc(n, sizeof(double));

    if (NULL == p) {
        bench_die("no host memory");
    }
    return p;
}

static void copy_points(const jacobi_args_t *a, double *to, const double *field, unsigned first)
{
    for (unsigned row = 0; row < a->n; row++) {
        memcpy(to + (size_t) row * a->n, field + jacobi_at(a, first + row + 1, 1), a->n * sizeof(double));
    }
}

static void compute_serially(const jacobi_args_t *a)
{
    const size_t all = (size_t) (a->whole + 2) * (a->n + 2);
    double *field[2] = {host_doubles(all), host_doubles(all)};

    for (size_t i = 0; i < all; i++) {
        field[0][i] = field[1][i] = jacobi_initial((unsigned) (i / (a->n + 2)), (unsigned) (i % (a->n + 2)));
    }
    for (size_t i = 0; i < opt.steps; i++) {
        for (unsigned row = 1; row <= a->whole; row++) {
            for (unsigned column = 1; column <= a->n; column++) {
                const size_t at = jacobi_at(a, row, column);
                field[(i + 1) % 2][at] = 0.25 * jacobi_neighbours(field[i % 2] + at, a->n + 2);
            }
        }
    }
    copy_points(a, points, field[opt.steps % 2], a->first);
    free(field[1]);
    free(field[0]);
    referred = true;
}

/* Compares the field with the reference, or makes it that. Collective. */
static bool check(const char *form, const jacobi_args_t *a)
{
    double *field = host_doubles(jacobi_array(a)), *is = host_doubles(jacobi_points(a));
    size_t i = 0;

    mem_read(field, jacobi_field(a, 0 != opt.steps % 2), jacobi_array(a) * sizeof(double));
    copy_points(a, is, field, 0);
    if (!referred) {
        memcpy(points, is, jacobi_points(a) * sizeof(double));
        referred = true;
    }
    while (i < jacobi_points(a) && 0 == memcmp(&is[i], &points[i], sizeof(double))) {
        i++;
    }
    if (i < jacobi_points(a)) {
        fprintf(stderr, "%s: rank %d has %.17g at row %zu, column %zu, which should be %.17g\n", form, bench_rank,
                is[i], i / a->n, i % a->n, points[i]);
    }
    free(is);
    free(field);
    return bench_agree(i == jacobi_points(a));
}

/* ---- one form ---------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}

/* True if it is right. `messages_us`: of form messages; 0: not run. */
static bool one(int f, const jacobi_args_t *a, double *messages_us)
{
    double seconds[REPEATS_MAX] = {0};

    run_steps(f, a); /* what a first call sets up is not timed */
    for (size_t i = 0; i < opt.repeats; i++) {
        seconds[i] = run_steps(f, a);
    }
    qsort(seconds, opt.repeats, sizeof(double), ascending);
    const double us = bench_max(seconds[opt.repeats / 2]) / (double) opt.steps * 1e6;
    const bool right = check(forms[f].name, a);
    *messages_us = 0 == f ? us : *messages_us;
    if (0 == bench_rank) {
        bench_word(10, forms[f].name);
        bench_cell(10, 0, (double) opt.steps, false);
        bench_word(7, right ? "right" : "WRONG");
        bench_cell(12, 1, us, false);
        bench_cell(14, 2, *messages_us > 0 ? us / *messages_us : -1, true);
    }
    return right;
}

/* ---- options and the whole --------------------------------------------------------------------------------------- */

static bool wanted(const char *form)
{
    bool named = 0 == opt.nforms;

    for (int i = 0; i < opt.nforms; i++) {
        named = named || 0 == strcmp(form, opt.forms[i]);
    }
    return named;
}

static void check_options(void)
{
    const bool cuda = 0 == strcmp(opt.common.device, "cuda");

    for (int i = 0; i < opt.nforms; i++) {
        bool found = false;

        for (int f = 0; f < FORMS; f++) {
            found = found || 0 == strcmp(opt.forms[i], forms[f].name);
        }
        if (!found) {
            bench_refuse("there is no form %s\nusage: %s", opt.forms[i], USAGE);
        }
    }
    opt.n = 0 != opt.n ? opt.n : cuda ? N_CUDA : N_OTHER;
    opt.steps = 0 != opt.steps ? opt.steps : cuda ? STEPS_CUDA : STEPS_OTHER;
    if (opt.n > N_MOST || opt.steps > STEPS_MOST || opt.repeats < 1 || opt.repeats > REPEATS_MAX) {
        bench_refuse("--n must be at most %d, --steps %d, --repeats 1 to %d\nusage: %s", N_MOST, STEPS_MOST,
                     REPEATS_MAX, USAGE);
    }
    if (opt.check && opt.n * opt.n * (size_t) bench_ranks > CHECKED_POINTS) {
        bench_refuse("--check computes on the CPU: at most %zu points of all ranks", CHECKED_POINTS);
    }
}

static void options(int argc, char **argv)
{
    static const struct option all[] = {{"device", 1, NULL, 'd'},  {"csv", 1, NULL, 'c'},   {"json", 1, NULL, 'j'},
                                        {"n", 1, NULL, 'n'},       {"steps", 1, NULL, 's'}, {"form", 1, NULL, 'f'},
                                        {"repeats", 1, NULL, 'r'}, {"check", 0, NULL, 'k'}, {NULL, 0, NULL, 0}};

    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        switch (c) {
        case 'd':
            opt.common.device = optarg;
            break;
        case 'c':
            opt.common.csv = optarg;
            break;
        case 'j':
            opt.common.json = optarg;
            break;
        case 'n':
            opt.n = bench_number(optarg, USAGE);
            break;
        case 's':
            opt.steps = bench_number(optarg, USAGE);
            break;
        case 'f':
            opt.nforms = bench_cut(optarg, opt.forms, USAGE);
            break;
        case 'r':
            opt.repeats = bench_number(optarg, USAGE);
            break;
        case 'k':
            opt.check = true;
            break;
        default:
            bench_refuse("usage: %s", USAGE);
        }
    }
    if (optind < argc) {
        bench_refuse("unexpected argument %s\nusage: %s", argv[optind], USAGE);
    }
    check_options();
}

/* True if all is right; how many forms were run. */
static bool run(int *count)
{
    const unsigned n = (unsigned) opt.n;
    jacobi_args_t a = {.n = n, .first = (unsigned) bench_rank * n, .whole = (unsigned) bench_ranks * n, .items = 1};
    double messages_us = 0;
    char line[80];
    bool right = true;

    jacobi_device_open(&a);
    open_windows(&a);
    points = host_doubles(jacobi_points(&a));
    if (opt.check) {
        compute_serially(&a);
    }
    bench_comment("%u x %u points on each rank; a row has %zu bytes", n, n, n * sizeof(double));
    snprintf(line, sizeof(line), "%10s %10s %7s %12s %14s", "form", "steps", "field", "us/step", "of messages'");
    bench_head(line, "form,steps,field,us_per_step,of_messages");
    for (int f = 0; f < FORMS; f++) {
        if (wanted(forms[f].name)) {
            right = one(f, &a, &messages_us) && right;
            ++*count;
        }
    }
    free(points);
    close_windows();
    jacobi_device_close(&a);
    return right;
}

int main(int argc, char **argv)
{
    int count = 0;
    bool right;

    bench_init(&argc, &argv);
    options(argc, argv);
    bench_start("heat_rma", &opt.common, "heat conduction in two dimensions by one-sided calls, float64");
    right = run(&count);
    if (0 == bench_rank) {
        printf("verified: %s\n", !right      ? "NO"
                                 : opt.check ? "yes, every form's field, by a serial computation"
                                 : count > 1 ? "yes, the fields of the forms by each other"
                                             : "not requested (--check), and one form has no other to compare with");
    }
    bench_end();
    return right ? 0 : 1;
}
