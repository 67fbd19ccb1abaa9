/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Example: Jacobi's iteration for Laplace's equation in two dimensions, float64; n x n points per rank, whose rows are
 * one below the other. Fields and residuals stay in GPU memory. Before each sweep a rank gets a row of each neighbour;
 * with every K-th one the ranks add up the residual's norm.
 *
 *     mpirun -n 4 --bind-to core --mca coll gpusym examples/jacobi --n 1024
 *     mpirun -n 4 --mca coll gpusym --mca coll_gpusym_device sim examples/jacobi --device sim --check
 *
 * The same in five forms (jacobi_forms.c): `classic`, MPI_Isend, MPI_Irecv and MPI_Allreduce, which wait for the
 * kernels on the host; `streams`, gpusym's collectives queued between the kernels on their stream; `graph`, GRAPH_LEAST
 * or more iterations of that captured, and replayed; `nccl` and `nccl-graph`, the last two by NCCL, with --device cuda.
 *
 * The fields of all forms must have the same bits, and with --check those of a serial computation on the host; the
 * residuals must be equal but for rounding, and have the same bits where the sums are taken in the same order. The
 * table has the time of an iteration, all included: median of some solves, of the slowest rank.
 */
#include <getopt.h>
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/counters.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "examples/jacobi_device.h"
#include "examples/jacobi_forms.h"
#include "examples/stream.h"
#include "test/mpi/gpu_stream.h"
#include "test/mpi/mem.h"

#define USAGE                                                                                            \
    "jacobi [--device cuda|sim|host] [--n N] [--iterations N] [--every K] [--form LIST] [--repeats N]\n" \
    "       [--check] [--csv FILE] [--json FILE]\n"                                                      \
    "--n: rows, and columns, of a rank; --iterations: rounded up to whole graphs\n"                      \
    "--every: sweeps from one sum to the next\n"                                                         \
    "--form: classic, streams, graph, nccl, nccl-graph; --check: compute all of it on every rank's CPU, too"

#define N_CUDA 1024
#define N_OTHER 12 /* the simulator computes on the CPU */
#define N_MOST 16384
#define ITERATIONS_CUDA 1000
#define ITERATIONS_OTHER 20
#define ITERATIONS_MOST 10000000
#define GRAPH_LEAST 10u
#define REPEATS_MAX 101
#define CHECKED_POINTS ((size_t) 1 << 26)
#define TOLERANCE 1e-10 /* of squared residuals, relative: they are sums of so many numbers in another order */

static struct {
    bench_common_t common; /* device, files */
    const char *forms[BENCH_LIST_MAX];
    int nforms; /* 0: all */
    size_t n, iterations, every, repeats;
    bool check;
} opt = {.common = {.device = "cuda"}, .every = 1, .repeats = 3};

/* ---- the solver -------------------------------------------------------------------------------------------------- */

/* Iterations of a graph: behind them the present field is the first one again, and a sum has been taken. */
static size_t in_graph(void)
{
    const size_t least = opt.every % 2 ? 2 * opt.every : opt.every;

    return (GRAPH_LEAST + least - 1) / least * least;
}

static void iterate(const jacobi_form_t *form, const jacobi_args_t *a, size_t i)
{
    jacobi_args_t now = *a;

    now.flags = (i % 2 ? JACOBI_SECOND : 0) | (0 == i % opt.every ? JACOBI_KEEPS : 0) |
                (opt.every - 1 == i % opt.every ? JACOBI_SUM : 0);
    form->exchange(&now);
    jacobi_launch(JACOBI_SWEEP, &now);
    if (0 != (now.flags & JACOBI_SUM)) {
        form->reduce(&now);
    }
}

/* NULL: none, in this form. What first calls set up has been set up. */
static void *make_graph(const jacobi_form_t *form, const jacobi_args_t *a)
{
    if (!form->graph) {
        return NULL;
    }
    gpu_capture_begin(stream_handle());
    for (size_t i = 0; i < in_graph(); i++) {
        iterate(form, a, i);
    }
    return gpu_capture_end(stream_handle());
}

/* `iterations`, a multiple of in_graph(), from the initial field; returns the seconds of this rank. */
static double solve(const jacobi_form_t *form, const jacobi_args_t *a, void *graph, size_t iterations)
{
    double seconds;

    jacobi_launch(JACOBI_START, a);
    stream_wait();
    MPI_Barrier(bench_world);
    seconds = -MPI_Wtime();
    for (size_t i = 0; i < iterations; i += NULL == graph ? 1 : in_graph()) {
        if (NULL == graph) {
            iterate(form, a, i);
        } else if (!gpu_graph_launch(graph, stream_handle())) {
            bench_die("a graph cannot be launched");
        }
    }
    jacobi_launch(JACOBI_KEEP, a);
    stream_wait();
    seconds += MPI_Wtime();
    jacobi_forms_check();
    return seconds;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

/* What is to come out, by a serial computation or by the first form: this rank's points; and squared residuals. */
static double *points, *residuals;
static bool referred; /* they are there */

/* The squared residuals of each form that has been run; NULL: not. */
static double *histories[JACOBI_FORMS];

static double *host_doubles(size_t n)
{
    double *p = calloc(n, sizeof(double));

    if (NULL == p) {
        bench_die("no host memory");
    }
    return p;
}

static void read_points(const jacobi_args_t *a, double *to)
{
    double *field = host_doubles(jacobi_array(a));

    mem_read(field, jacobi_field(a, 0), jacobi_array(a) * sizeof(double));
    for (unsigned row = 0; row < a->n; row++) {
        memcpy(to + (size_t) row * a->n, field + jacobi_at(a, row + 1, 1), a->n * sizeof(double));
    }
    free(field);
}

/* One sweep of the whole grid; the sum of squared residuals. */
static double serial_sweep(const jacobi_args_t *a, const double *in, double *out)
{
    double sum = 0;

    for (unsigned row = 1; row <= a->whole; row++) {
        for (unsigned column = 1; column <= a->n; column++) {
            const size_t at = jacobi_at(a, row, column);
            const double neighbours = jacobi_neighbours(in + at, a->n + 2), residual = neighbours - 4 * in[at];

            out[at] = 0.25 * neighbours;
            sum += residual * residual;
        }
    }
    return sum;
}

static void compute_serially(const jacobi_args_t *a)
{
    const size_t all = (size_t) (a->whole + 2) * (a->n + 2);
    double *field[2] = {host_doubles(all), host_doubles(all)};

    for (size_t i = 0; i < all; i++) {
        field[0][i] = field[1][i] = jacobi_initial((unsigned) (i / (a->n + 2)), (unsigned) (i % (a->n + 2)));
    }
    for (size_t i = 0; i < opt.iterations; i++) {
        const double sum = serial_sweep(a, field[i % 2], field[(i + 1) % 2]);

        if (opt.every - 1 == i % opt.every) {
            residuals[1 + i / opt.every] = sum;
        }
    }
    for (unsigned row = 0; row < a->n; row++) {
        memcpy(points + (size_t) row * a->n, field[0] + jacobi_at(a, a->first + row + 1, 1), a->n * sizeof(double));
    }
    free(field[1]);
    free(field[0]);
    referred = true;
}

/* Whether the field has the reference's bits; says where it has not. */
static bool same_points(const jacobi_form_t *form, const jacobi_args_t *a)
{
    double *is = host_doubles(jacobi_points(a));
    size_t i = 0;

    read_points(a, is);
    while (i < jacobi_points(a) && 0 == memcmp(&is[i], &points[i], sizeof(double))) {
        i++;
    }
    if (i < jacobi_points(a)) {
        fprintf(stderr, "%s: rank %d has %.17g at row %zu, column %zu, which should be %.17g\n", form->name, bench_rank,
                is[i], i / a->n, i % a->n, points[i]);
    }
    free(is);
    return i == jacobi_points(a);
}

static bool similar_residuals(const jacobi_form_t *form, const jacobi_args_t *a, const double *history)
{
    for (unsigned i = 0; i < a->items; i++) {
        if (!(fabs(history[i] - residuals[i]) <= TOLERANCE * residuals[i])) { /* nor is a NaN */
            fprintf(stderr, "%s: rank %d has %.17g as squared residual %u, which should be %.17g\n", form->name,
                    bench_rank, history[i], i, residuals[i]);
            return false;
        }
    }
    return true;
}

/* Compares a form's result with the reference, or makes it that. Collective. */
static bool check(const jacobi_form_t *form, const jacobi_args_t *a, const double *history)
{
    bool right = true;

    if (referred) {
        right = same_points(form, a) && similar_residuals(form, a, history);
    } else {
        read_points(a, points);
        memcpy(residuals, history, a->items * sizeof(double));
        referred = true;
    }
    return bench_agree(right);
}

/* ---- one form ---------------------------------------------------------------------------------------------------- */

typedef struct {
    double us;               /* of an iteration */
    double residual;         /* the last one, relative to the first */
    char sums[64], rows[64]; /* what gpusym ran for them */
    char bits[24];           /* of the residuals */
    bool right, exact;       /* in bits, too, if it must be */
} result_t;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}

/* Compares residuals' bits with those of the form that this one is like, if that was run. Two numbers have one sum. */
static void compare_bits(int f, const jacobi_args_t *a, result_t *r)
{
    const jacobi_form_t *form = &jacobi_forms[f];
    unsigned i = 0;
    int like = 0;

    while (0 != strcmp(jacobi_forms[like].name, form->like)) {
        like++;
    }
    r->exact = true;
    r->bits[0] = '\0';
    if (like == f || NULL == histories[like]) {
        return;
    }
    while (i < a->items && 0 == memcmp(&histories[f][i], &histories[like][i], sizeof(double))) {
        i++;
    }
    snprintf(r->bits, sizeof(r->bits), i < a->items ? "from %u" : "same", i);
    r->exact = bench_agree(i == a->items || (bench_ranks > 2 && !form->exact));
}

static result_t measure(int f, const jacobi_args_t *a)
{
    const jacobi_form_t *form = &jacobi_forms[f];
    double seconds[REPEATS_MAX] = {0};
    result_t r = {.right = true};
    void *graph;

    if (NULL == form->rows) {
        bench_counters_of_messages("sent");
    } else {
        bench_counters_of(form->rows);
    }
    bench_counters_start();
    solve(form, a, NULL, in_graph()); /* what a first call sets up is not timed */
    bench_counters_say(r.rows, sizeof(r.rows));
    graph = make_graph(form, a);
    bench_counters_of("allreduce");
    bench_counters_start();
    for (size_t i = 0; i < opt.repeats; i++) {
        seconds[i] = solve(form, a, graph, opt.iterations);
    }
    bench_counters_say(r.sums, sizeof(r.sums));
    if (NULL != graph) {
        gpu_graph_destroy(graph);
    }
    qsort(seconds, opt.repeats, sizeof(double), ascending);
    r.us = bench_max(seconds[opt.repeats / 2]) / (double) opt.iterations * 1e6;
    histories[f] = host_doubles(a->items);
    mem_read(histories[f], jacobi_history(a), a->items * sizeof(double));
    r.residual = sqrt(histories[f][a->items - 1] / histories[f][1]);
    r.right = check(form, a, histories[f]);
    compare_bits(f, a, &r);
    return r;
}

/* True if it is right. */
static bool one(int f, const jacobi_args_t *a)
{
    const result_t r = measure(f, a);
    char residual[16];

    if (0 == bench_rank) {
        snprintf(residual, sizeof(residual), "%.3e", r.residual);
        bench_word(10, jacobi_forms[f].name);
        bench_cell(10, 0, (double) opt.iterations, false);
        bench_word(10, residual);
        bench_word(7, r.right ? "right" : "WRONG");
        bench_word(9, r.bits);
        bench_word(14, r.sums);
        bench_word(14, r.rows);
        bench_cell(12, 1, r.us, true);
    }
    if (!r.exact) {
        bench_comment("WRONG: the residuals must have the bits of form %s", jacobi_forms[f].like);
    }
    return r.right && r.exact;
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

        for (int f = 0; f < JACOBI_FORMS; f++) {
            found = found || 0 == strcmp(opt.forms[i], jacobi_forms[f].name);
        }
        if (!found) {
            bench_refuse("there is no form %s\nusage: %s", opt.forms[i], USAGE);
        }
    }
    opt.n = 0 != opt.n ? opt.n : cuda ? N_CUDA : N_OTHER;
    opt.iterations = 0 != opt.iterations ? opt.iterations : cuda ? ITERATIONS_CUDA : ITERATIONS_OTHER;
    if (opt.n > N_MOST || opt.iterations > ITERATIONS_MOST || opt.every < 1 || opt.every > opt.iterations ||
        opt.repeats < 1 || opt.repeats > REPEATS_MAX) {
        bench_refuse("--n must be at most %d, --iterations %d, --every 1 to --iterations, --repeats 1 to %d\nusage: %s",
                     N_MOST, ITERATIONS_MOST, REPEATS_MAX, USAGE);
    }
    if (opt.check && opt.n * opt.n * (size_t) bench_ranks > CHECKED_POINTS) {
        bench_refuse("--check computes on the CPU: at most %zu points of all ranks", CHECKED_POINTS);
    }
    opt.iterations = (opt.iterations + in_graph() - 1) / in_graph() * in_graph();
}

static void options(int argc, char **argv)
{
    static const struct option all[] = {
        {"device", 1, NULL, 'd'}, {"csv", 1, NULL, 'c'},  {"json", 1, NULL, 'j'},       {"n", 1, NULL, 'n'},
        {"every", 1, NULL, 'e'},  {"form", 1, NULL, 'f'}, {"iterations", 1, NULL, 'i'}, {"repeats", 1, NULL, 'r'},
        {"check", 0, NULL, 'k'},  {NULL, 0, NULL, 0}};

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
        case 'e':
            opt.every = bench_number(optarg, USAGE);
            break;
        case 'f':
            opt.nforms = bench_cut(optarg, opt.forms, USAGE);
            break;
        case 'i':
            opt.iterations = bench_number(optarg, USAGE);
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

static void head(void)
{
    char line[160];

    snprintf(line, sizeof(line), "%10s %10s %10s %7s %9s %14s %14s %12s", "form", "iterations", "residual", "field",
             "bits", "sums", "rows", "us/iteration");
    bench_head(line, "form,iterations,residual,field,bits,allreduce,rows,us_per_iteration");
}

/* True if all is right; whether there was something to compare with. */
static bool run(bool *compared)
{
    const unsigned n = (unsigned) opt.n;
    jacobi_args_t a = {.n = n,
                       .first = (unsigned) bench_rank * n,
                       .whole = (unsigned) bench_ranks * n,
                       .items = (unsigned) (1 + opt.iterations / opt.every)};
    bool right = true;

    jacobi_device_open(&a);
    jacobi_forms_open(&a, wanted("nccl") || wanted("nccl-graph"), wanted("streams") || wanted("graph"));
    points = host_doubles(jacobi_points(&a));
    residuals = host_doubles(a.items);
    if (opt.check) {
        compute_serially(&a);
    }
    bench_comment("%u x %u points on each rank; a row has %zu bytes; a sum with every %zu. sweep; graphs of %zu sweeps",
                  n, n, n * sizeof(double), opt.every, in_graph());
    head();
    for (int f = 0; f < JACOBI_FORMS; f++) {
        if (wanted(jacobi_forms[f].name) && jacobi_forms[f].there()) {
            right = one(f, &a) && right;
        }
    }
    *compared = opt.check;
    for (int f = 0, forms = 0; f < JACOBI_FORMS; f++) {
        forms += NULL != histories[f];
        *compared = *compared || forms > 1;
        free(histories[f]);
    }
    free(residuals);
    free(points);
    jacobi_forms_close();
    jacobi_device_close(&a);
    return right;
}

int main(int argc, char **argv)
{
    bool right, compared;

    bench_init(&argc, &argv);
    options(argc, argv);
    bench_counters_open();
    bench_start("jacobi", &opt.common, "Jacobi's iteration, Laplace in two dimensions, float64");
    right = run(&compared);
    if (0 == bench_rank) {
        printf("verified: %s\n", !right      ? "NO"
                                 : opt.check ? "yes, every form's field and residuals, by a serial computation"
                                 : compared  ? "yes, fields and residuals, of the forms by each other"
                                             : "not requested (--check), and one form has no other to compare with");
    }
    bench_counters_close();
    bench_end();
    return right ? 0 : 1;
}
