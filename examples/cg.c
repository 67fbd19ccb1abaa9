/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Example: conjugate gradients for a Poisson problem on a cube, cut in slabs over the ranks; vectors, sums and
 * residuals stay in GPU memory, the ranks' sums are plain MPI_Allreduce and MPI_Iallreduce on it, their halos messages.
 *
 *     mpirun -n 4 --bind-to core --mca coll gpusym examples/cg --n 128
 *     mpirun -n 4 --mca coll gpusym --mca coll_gpusym_device sim examples/cg --device sim
 *
 * Two solvers: the classic one, with two sums of one double an iteration, and the pipelined one, with one sum of two
 * doubles behind the matrix product. Each is run in several ways (cg_ways.c): `gpusym`; `staged`, by copies and MPI on
 * host memory; `nccl`, written by hand on a stream; `streams`, by gpusym's collectives on that stream (cg_streams.c);
 * `nccl-graph` and `graph`, the same two with LOOK_EVERY iterations in a CUDA graph that is replayed; and `ordered`,
 * staged with sums in the order of the ranks, which is gpusym's: the residuals of the two must have the same bits in
 * every iteration. Each is checked against the known solution. The table has the time of an iteration, all included:
 * median of some solves, of the slowest rank. Graphs and NCCL are there with --device cuda.
 */
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/counters.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "examples/cg_device.h"
#include "examples/cg_ways.h"
#include "examples/stream.h"
#include "test/mpi/gpu_stream.h"
#include "test/mpi/mem.h"

#define USAGE                                                                                                    \
    "cg [--device cuda|sim|host] [--n N] [--solver classic|pipelined|all] [--reduce LIST] [--iterations MOST]\n" \
    "   [--repeats N] [--csv FILE] [--json FILE]\n"                                                              \
    "--n: unknowns per side of the cube; --reduce: ordered, gpusym, staged, nccl, nccl-graph, streams, graph"

#define TOLERANCE 1e-9   /* of the residual, relative: then a solve ends */
#define ERROR_LIMIT 1e-5 /* of any unknown; the solution is in [0, 1) */
#define LOOK_EVERY 10u   /* iterations between two looks at the residual */
#define N_CUDA 128
#define N_OTHER 20 /* the simulator computes on the CPU */
#define REPEATS_MAX 101

static struct {
    bench_common_t common; /* device, files */
    const char *solver;
    const char *ways[BENCH_LIST_MAX];
    int nways; /* 0: all */
    unsigned n, iterations, repeats;
} opt = {.common = {.device = "cuda"}, .solver = "all", .repeats = 3};

/* ---- the solvers ------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    void (*begin)(const cg_way_t *way, cg_args_t *a);
    void (*iterate)(const cg_way_t *way, cg_args_t *a); /* a->iteration */
} solver_t;

static void launch_matrix(const cg_args_t *a, int in, int out, bool with_sums, bool with_faces)
{
    cg_args_t product = *a;

    product.in = in;
    product.out = out;
    product.with_sums = with_sums;
    product.with_faces = with_faces;
    cg_launch(CG_MATRIX, &product);
}

static void launch(int id, const cg_args_t *a, bool with_sums)
{
    cg_args_t work = *a;

    work.with_sums = with_sums;
    cg_launch(id, &work);
}

static void classic_begin(const cg_way_t *way, cg_args_t *a)
{
    a->classic = 1;
    launch(CG_START, a, true);
    way->reduce(cg_sums(a), &cg_item(a, 0)[CG_GAMMA], 1);
}

static void classic_iterate(const cg_way_t *way, cg_args_t *a)
{
    way->halo(a);
    launch_matrix(a, CG_P, CG_Q, true, false);
    way->reduce(&cg_sums(a)[1], &cg_item(a, a->iteration)[CG_DELTA], 1);
    launch(CG_UPDATE, a, true);
    way->reduce(cg_sums(a), &cg_item(a, a->iteration + 1)[CG_GAMMA], 1);
    launch(CG_DIRECT, a, false);
}

static void pipelined_begin(const cg_way_t *way, cg_args_t *a)
{
    a->classic = 0;
    launch(CG_START, a, true);
    way->halo(a);
    launch_matrix(a, CG_R, CG_W, true, true);
}

/* The halo first: NCCL does what a communicator is given in order, so behind the sum it would wait for that. */
static void pipelined_iterate(const cg_way_t *way, cg_args_t *a)
{
    way->halo(a);
    way->begin(cg_sums(a), &cg_item(a, a->iteration)[CG_GAMMA], 2);
    launch_matrix(a, CG_W, CG_Q, false, false);
    way->end();
    launch(CG_STEP, a, true);
}

static const solver_t solvers[] = {
    {"classic", classic_begin, classic_iterate},
    {"pipelined", pipelined_begin, pipelined_iterate},
};

#define SOLVERS (sizeof(solvers) / sizeof(solvers[0]))

static double gamma_of(const cg_args_t *a, unsigned iteration)
{
    double gamma;

    stream_wait();
    mem_read(&gamma, &cg_item(a, iteration)[CG_GAMMA], sizeof(gamma));
    return gamma;
}

/* ---- iterations as a graph ---- */

/* What a graph reads and writes is at the same addresses whenever it is launched. So it has items of its own, behind
 * those of all iterations: that of the iteration before, LOOK_EVERY ones, and one whose gamma the last of these
 * writes. Around each launch they are copied from and to those of the iterations that it stands for. */
#define GRAPH_ITEMS (LOOK_EVERY + 2)

static unsigned graph_item(const cg_args_t *a)
{
    return a->items - GRAPH_ITEMS;
}

/* NULL: none, in this way. Where one of the solver's solves has been run before. */
static void *make_graph(const solver_t *s, const cg_way_t *way, const cg_args_t *a)
{
    cg_args_t in_graph = *a;

    if (!way->graphs) {
        return NULL;
    }
    gpu_capture_begin(stream_handle());
    for (unsigned i = 1; i <= LOOK_EVERY; i++) {
        in_graph.iteration = graph_item(a) + i;
        s->iterate(way, &in_graph);
    }
    return gpu_capture_end(stream_handle());
}

static void replay(void *graph, cg_args_t *a)
{
    const size_t bytes = CG_ITEM * sizeof(double);

    gpu_stream_copy(stream_handle(), cg_item(a, graph_item(a)), cg_item(a, a->iteration - 1), 2 * bytes);
    if (!gpu_graph_launch(graph, stream_handle())) {
        bench_die("a graph cannot be launched");
    }
    gpu_stream_copy(stream_handle(), cg_item(a, a->iteration), cg_item(a, graph_item(a) + 1), (LOOK_EVERY + 1) * bytes);
    a->iteration += LOOK_EVERY;
}

/* Up to `most` iterations, with a graph, if there is one, for all but the first LOOK_EVERY; returns how many, done when
 * it returns. The sums, and so the decision, are alike on all ranks. */
static unsigned solve(const solver_t *s, const cg_way_t *way, cg_args_t *a, void *graph, unsigned most)
{
    double enough = -1;

    s->begin(way, a);
    for (a->iteration = 0; a->iteration < most;) {
        if (NULL != graph && a->iteration >= LOOK_EVERY && most - a->iteration >= LOOK_EVERY) {
            replay(graph, a);
        } else {
            s->iterate(way, a);
            a->iteration++;
        }
        if (1 == a->iteration) {
            enough = TOLERANCE * TOLERANCE * gamma_of(a, 0);
        } else if (0 == a->iteration % LOOK_EVERY && gamma_of(a, a->iteration - 1) <= enough) {
            break;
        }
    }
    stream_wait();
    return a->iteration;
}

/* ---- one solver, one way --------------------------------------------------------------------------------------- */

typedef struct {
    unsigned iterations;
    double us;               /* of one */
    double residual, error;  /* relative; the largest of any unknown */
    char sums[64], halo[64]; /* what gpusym ran for them */
    unsigned differs;        /* first iteration whose sums have other bits than `ordered`; `iterations`: none */
} result_t;

/* All sums of a solve, CG_ITEM an iteration. */
static double *history, *ordered;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}

static double largest_error(const cg_args_t *a)
{
    const unsigned plane = a->n * a->n;
    double *x = malloc(cg_count(a) * sizeof(double)), most = 0;

    if (NULL == x) {
        bench_die("no host memory");
    }
    mem_read(x, cg_vector(a, CG_X), cg_count(a) * sizeof(double));
    for (unsigned i = 0; i < cg_count(a); i++) {
        double e = fabs(x[i] - cg_solution(a->n, i % plane % a->n, i % plane / a->n, (long) a->z0 + i / plane));

        most = e <= most ? most : e; /* a NaN stays */
    }
    free(x);
    return most <= ERROR_LIMIT ? bench_max(most) : bench_max(HUGE_VAL); /* a NaN would be lost there */
}

static unsigned first_difference(unsigned iterations)
{
    unsigned i = 0;

    while (i < iterations && 0 == memcmp(&history[i * CG_ITEM], &ordered[i * CG_ITEM], 2 * sizeof(double))) {
        i++;
    }
    return i;
}

/* Whether rank 0's sums must be those of `ordered`: two numbers have one sum; of more, gpusym's one-shot algorithm
 * promises the order of the ranks. */
static bool must_be_same(const cg_way_t *way, const result_t *r)
{
    return bench_ranks <= 2 || (0 == strcmp(way->name, "gpusym") && 0 == strcmp(r->sums, "agxll_r"));
}

static result_t measure(const solver_t *s, const cg_way_t *way, cg_args_t *a)
{
    double seconds[REPEATS_MAX] = {0};
    result_t r = {.us = 0};
    void *graph;

    bench_counters_of("alltoallv");
    bench_counters_start();
    solve(s, way, a, NULL, opt.iterations < 3 ? opt.iterations : 3); /* what a first call sets up is not timed */
    bench_counters_say(r.halo, sizeof(r.halo));
    graph = make_graph(s, way, a);
    bench_counters_of("allreduce");
    bench_counters_start();
    for (unsigned i = 0; i < opt.repeats; i++) {
        MPI_Barrier(bench_world);
        seconds[i] = -MPI_Wtime();
        r.iterations = solve(s, way, a, graph, opt.iterations);
        seconds[i] += MPI_Wtime();
    }
    bench_counters_say(r.sums, sizeof(r.sums));
    if (NULL != graph) {
        gpu_graph_destroy(graph);
    }
    qsort(seconds, opt.repeats, sizeof(double), ascending);
    r.us = bench_max(seconds[opt.repeats / 2]) / r.iterations * 1e6;
    mem_read(history, cg_item(a, 0), (size_t) r.iterations * CG_ITEM * sizeof(double));
    r.residual = sqrt(history[(size_t) (r.iterations - 1) * CG_ITEM] / history[0]);
    r.error = largest_error(a);
    return r;
}

static void row(const solver_t *s, const cg_way_t *way, const result_t *r)
{
    char residual[16], error[16], bits[24];

    if (0 != bench_rank) {
        return;
    }
    snprintf(residual, sizeof(residual), "%.1e", r->residual);
    snprintf(error, sizeof(error), "%.1e", r->error);
    snprintf(bits, sizeof(bits), r->differs < r->iterations ? "from %u" : "same", r->differs);
    bench_word(10, s->name);
    bench_word(10, way->name);
    bench_cell(10, 0, r->iterations, false);
    bench_word(9, residual);
    bench_word(9, error);
    bench_word(9, bits);
    bench_word(14, r->sums);
    bench_word(14, r->halo);
    bench_cell(12, 1, r->us, true);
}

/* True if it is right. */
static bool one(const solver_t *s, const cg_way_t *way, cg_args_t *a)
{
    result_t r = measure(s, way, a);
    bool right = r.residual <= TOLERANCE && r.error <= ERROR_LIMIT;

    if (0 == strcmp(way->name, "ordered")) {
        memcpy(ordered, history, (size_t) r.iterations * CG_ITEM * sizeof(double));
    }
    r.differs = first_difference(r.iterations);
    row(s, way, &r);
    if (!right) {
        bench_comment("WRONG: the residual must be at most %.0e, the error at most %.0e", TOLERANCE, ERROR_LIMIT);
    }
    if (r.differs < r.iterations && must_be_same(way, &r)) {
        bench_comment("WRONG: the bits differ from those of sums in rank order");
        right = false;
    }
    return right;
}

/* ---- options and the whole -----------------------------------------------------------------------------------------
 */

/* `ordered` is always there: the others are compared with it. */
static bool wanted(const char *way)
{
    bool named = 0 == opt.nways || 0 == strcmp(way, "ordered");

    for (int i = 0; i < opt.nways; i++) {
        named = named || 0 == strcmp(way, opt.ways[i]);
    }
    return named;
}

static void check_options(void)
{
    bool known = 0 == strcmp(opt.solver, "all");

    for (size_t i = 0; i < SOLVERS; i++) {
        known = known || 0 == strcmp(opt.solver, solvers[i].name);
    }
    for (int i = 0; i < opt.nways; i++) {
        bool found = false;

        for (int w = 0; NULL != cg_way(w); w++) {
            found = found || 0 == strcmp(opt.ways[i], cg_way(w)->name);
        }
        known = known && found;
    }
    if (0 == opt.n) {
        opt.n = 0 == strcmp(opt.common.device, "cuda") ? N_CUDA : N_OTHER;
    }
    opt.iterations = 0 == opt.iterations ? 10 * opt.n : opt.iterations;
    if (!known) {
        bench_die("no such solver or reduction\nusage: %s", USAGE);
    }
    if (opt.n < (unsigned) bench_ranks || opt.n > 1290 || opt.repeats < 1 || opt.repeats > REPEATS_MAX) {
        bench_die("--n must be at least the number of ranks and at most 1290, --repeats 1 to %d\nusage: %s",
                  REPEATS_MAX, USAGE);
    }
}

static void options(int argc, char **argv)
{
    static const struct option all[] = {
        {"device", 1, NULL, 'd'},  {"csv", 1, NULL, 'c'},    {"json", 1, NULL, 'j'},
        {"n", 1, NULL, 'n'},       {"solver", 1, NULL, 's'}, {"iterations", 1, NULL, 'i'},
        {"repeats", 1, NULL, 'r'}, {"reduce", 1, NULL, 'w'}, {NULL, 0, NULL, 0}};

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
            opt.n = (unsigned) bench_number(optarg, USAGE);
            break;
        case 's':
            opt.solver = optarg;
            break;
        case 'i':
            opt.iterations = (unsigned) bench_number(optarg, USAGE);
            break;
        case 'r':
            opt.repeats = (unsigned) bench_number(optarg, USAGE);
            break;
        case 'w':
            opt.nways = bench_cut(optarg, opt.ways, USAGE);
            break;
        default:
            bench_die("usage: %s", USAGE);
        }
    }
    if (optind < argc) {
        bench_die("unexpected argument %s\nusage: %s", argv[optind], USAGE);
    }
    check_options();
}

static void head(void)
{
    char line[160];

    snprintf(line, sizeof(line), "%10s %10s %10s %9s %9s %9s %14s %14s %12s", "solver", "way", "iterations", "residual",
             "error", "bits", "sums", "halo", "us/iteration");
    bench_head(line, "solver,way,iterations,residual,error,bits,allreduce,alltoallv,us_per_iteration");
}

/* This rank's planes: as even as can be. */
static cg_args_t problem(void)
{
    const unsigned ranks = (unsigned) bench_ranks, rank = (unsigned) bench_rank;
    const unsigned least = opt.n / ranks, more = opt.n % ranks;

    return (cg_args_t){.n = opt.n,
                       .nz = least + (rank < more),
                       .z0 = rank * least + (rank < more ? rank : more),
                       .items = opt.iterations + 1 + GRAPH_ITEMS};
}

static bool run(void)
{
    const size_t items = (size_t) opt.iterations + 1, bytes = CG_ITEM * sizeof(double);
    cg_args_t a = problem();
    bool right = true;

    history = calloc(items, bytes);
    ordered = calloc(items, bytes); /* of fewer iterations than another way's, perhaps: the rest is compared, too */
    if (NULL == history || NULL == ordered) {
        bench_die("no host memory");
    }
    cg_device_open(&a);
    cg_ways_open(&a, wanted("nccl") || wanted("nccl-graph"), wanted("streams") || wanted("graph"));
    bench_comment("%u^3 unknowns, %u on rank 0; %.1f KiB of faces", a.n, (unsigned) cg_count(&a),
                  (double) cg_plane(&a) / 128);
    head();
    for (size_t s = 0; s < SOLVERS; s++) {
        for (int w = 0; NULL != cg_way(w); w++) {
            if ((0 == strcmp(opt.solver, "all") || 0 == strcmp(opt.solver, solvers[s].name)) &&
                wanted(cg_way(w)->name) && cg_way(w)->there()) {
                right = one(&solvers[s], cg_way(w), &a) && right;
            }
        }
    }
    cg_ways_close();
    cg_device_close(&a);
    free(ordered);
    free(history);
    return bench_agree(right);
}

int main(int argc, char **argv)
{
    bool right;

    bench_init(&argc, &argv);
    options(argc, argv);
    bench_counters_open();
    bench_start("cg", &opt.common, "conjugate gradients, Poisson on a cube, float64");
    right = run();
    if (0 == bench_rank) {
        printf("verified: %s, residuals, solutions, bits\n", right ? "yes" : "NO");
    }
    bench_counters_close();
    bench_end();
    return right ? 0 : 1;
}
