/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Example: a halo exchange on GPU memory. The heat equation on a periodic grid in three dimensions, by the 7-point
 * stencil, float64; a cube of n x n x n points per rank, whose six faces go to the neighbours in every step.
 *
 *     mpirun -n 4 --bind-to core --mca coll gpusym examples/halo --face 1m --check
 *     mpirun -n 4 --mca coll gpusym --mca coll_gpusym_device sim examples/halo --device sim --check
 *
 * The exchange is written in several forms (halo_forms.c): messages by datatypes straight on the field, messages of
 * faces that a kernel packs, both as persistent requests, one neighbourhood collective, one collective of gpusym on the
 * stream of the kernels (api/gpusym.h), and NCCL. The table has the time of an exchange alone, with packing and
 * unpacking, and of a step with the stencil: medians, of the slowest rank.
 *
 * --check: some steps from a known field give what a serial computation on the host gives, bit for bit, before the
 * measurement and behind it.
 */
#include <getopt.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/counters.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "examples/halo_device.h"
#include "examples/halo_forms.h"
#include "examples/stream.h"
#include "test/mpi/mem.h"

#define USAGE                                                                                                      \
    "halo [--device cuda|sim|host] [--n N | --face BYTES] [--form LIST] [--iterations N] [--warmup N] [--check]\n" \
    "     [--csv FILE] [--json FILE]\n"                                                                            \
    "--n: points of a rank in each direction; --face: as many as make a face of at most BYTES\n"                   \
    "--form: isend, packed, persistent, persistent_subarray, neighbour, streams, nccl"

#define N_CUDA 362 /* faces of 1 MiB */
#define N_OTHER 12 /* the simulator computes on the CPU */
#define N_MOST 1288
#define ITERATIONS_CUDA 200
#define ITERATIONS_OTHER 10
#define BATCHES 5          /* of steps */
#define CHECKED_STEPS 4u   /* each of the two fields is read twice */
#define CHECKED_PLANES 16u /* of the reference, at a time */

static struct {
    bench_common_t common; /* device, files */
    const char *forms[BENCH_LIST_MAX];
    int nforms; /* 0: all */
    size_t n, face, iterations, warmup;
    bool warms, check;
} opt = {.common = {.device = "cuda"}};

/* ---- the computation --------------------------------------------------------------------------------------------- */

static void start(halo_args_t *a)
{
    a->in = 0;
    halo_launch(HALO_START, a);
}

static void step(const halo_form_t *form, halo_args_t *a)
{
    form->exchange(a);
    halo_launch(HALO_STENCIL, a);
    a->in = 1 - a->in;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

static double *reference; /* this rank's points after CHECKED_STEPS */

/* A point of the grid, `beyond` below the rank's first one plus i. */
static unsigned around(const halo_args_t *a, int direction, unsigned i, unsigned beyond)
{
    const unsigned whole = a->whole[direction];

    return (a->first[direction] + i + beyond * whole - beyond) % whole;
}

/* `planes` of the reference from plane `first` on: all points that have an influence, CHECKED_STEPS beyond on each
 * side, are computed from the initial field. Of these each step makes one layer more wrong, and leaves ours right. */
static void compute_reference(const halo_args_t *a, unsigned first, unsigned planes, double *box[2])
{
    const size_t side = a->n + 2 * CHECKED_STEPS, depth = planes + 2 * CHECKED_STEPS;
    double *initial = box[0];

    for (unsigned i = 0; i < depth; i++) {
        for (unsigned j = 0; j < side; j++) {
            const unsigned at_i = around(a, 0, first + i, CHECKED_STEPS), at_j = around(a, 1, j, CHECKED_STEPS);

            for (unsigned k = 0; k < side; k++) {
                *initial++ = halo_initial(at_i, at_j, around(a, 2, k, CHECKED_STEPS));
            }
        }
    }
    for (unsigned s = 0; s < CHECKED_STEPS; s++) {
        for (size_t at = side * side; at < (depth - 1) * side * side; at++) {
            box[(s + 1) % 2][at] = halo_step(&box[s % 2][at], side * side, side);
        }
    }
    for (size_t i = 0; i < planes; i++) {
        for (size_t j = 0; j < a->n; j++) {
            memcpy(&reference[((first + i) * a->n + j) * a->n],
                   &box[CHECKED_STEPS % 2][((i + CHECKED_STEPS) * side + j + CHECKED_STEPS) * side + CHECKED_STEPS],
                   a->n * sizeof(double));
        }
    }
}

static void check_open(const halo_args_t *a)
{
    const size_t side = a->n + 2 * CHECKED_STEPS, points = (CHECKED_PLANES + 2 * CHECKED_STEPS) * side * side;
    double *box[2] = {calloc(points, sizeof(double)), calloc(points, sizeof(double))};

    reference = malloc(halo_points(a) * sizeof(double));
    if (NULL == box[0] || NULL == box[1] || NULL == reference) {
        bench_die("no host memory");
    }
    for (unsigned first = 0; first < a->n; first += CHECKED_PLANES) {
        compute_reference(a, first, a->n - first < CHECKED_PLANES ? a->n - first : CHECKED_PLANES, box);
    }
    free(box[1]);
    free(box[0]);
}

/* Whether a plane of the present field has the reference's bits; says where it has not. */
static bool same_plane(const halo_form_t *form, const halo_args_t *a, unsigned i, double *plane)
{
    mem_read(plane, a->field[a->in] + halo_at(a, i + 1, 0, 0), halo_at(a, 1, 0, 0) * sizeof(double));
    for (unsigned j = 0; j < a->n; j++) {
        for (unsigned k = 0; k < a->n; k++) {
            const double *is = &plane[halo_at(a, 0, j + 1, k + 1)];
            const double *should = &reference[((size_t) i * a->n + j) * a->n + k];

            if (0 != memcmp(is, should, sizeof(double))) {
                fprintf(stderr, "%s: rank %d has %.17g at (%u, %u, %u) after %u steps, which should be %.17g\n",
                        form->name, bench_rank, *is, i, j, k, CHECKED_STEPS, *should);
                return false;
            }
        }
    }
    return true;
}

/* Collective. */
static bool check(const halo_form_t *form, halo_args_t *a)
{
    double *plane = malloc(halo_at(a, 1, 0, 0) * sizeof(double));
    bool right = true;

    if (NULL == plane) {
        bench_die("no host memory");
    }
    start(a);
    for (unsigned s = 0; s < CHECKED_STEPS; s++) {
        step(form, a);
    }
    halo_wait();
    for (unsigned i = 0; right && i < a->n; i++) {
        right = same_plane(form, a, i, plane);
    }
    free(plane);
    return bench_agree(right);
}

/* ---- one form ---------------------------------------------------------------------------------------------------- */

typedef struct {
    double exchange_us, step_us;
    char way[64]; /* what gpusym ran */
    bool right;
} result_t;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}

/* The median, of the slowest rank. Collective. */
static double slowest(double *seconds, size_t n)
{
    qsort(seconds, n, sizeof(double), ascending);
    return bench_max(seconds[n / 2]);
}

static double time_exchanges(const halo_form_t *form, const halo_args_t *a)
{
    double *seconds = calloc(opt.iterations, sizeof(double)), median;

    if (NULL == seconds) {
        bench_die("no host memory");
    }
    for (size_t i = 0; i < opt.warmup; i++) {
        form->exchange(a);
    }
    halo_wait();
    MPI_Barrier(bench_world);
    for (size_t i = 0; i < opt.iterations; i++) {
        seconds[i] = -MPI_Wtime();
        form->exchange(a);
        halo_wait();
        seconds[i] += MPI_Wtime();
    }
    median = slowest(seconds, opt.iterations);
    free(seconds);
    return median * 1e6;
}

/* Nothing but the form itself waits on the host between two steps. */
static double time_steps(const halo_form_t *form, halo_args_t *a)
{
    double seconds[BATCHES];

    for (size_t i = 0; i < opt.warmup; i++) {
        step(form, a);
    }
    for (int b = 0; b < BATCHES; b++) {
        halo_wait();
        MPI_Barrier(bench_world);
        seconds[b] = -MPI_Wtime();
        for (size_t i = 0; i < opt.iterations; i++) {
            step(form, a);
        }
        halo_wait();
        seconds[b] += MPI_Wtime();
    }
    return slowest(seconds, BATCHES) / (double) opt.iterations * 1e6;
}

static result_t measure(const halo_form_t *form, halo_args_t *a)
{
    result_t r = {.right = true};

    if (opt.check) {
        r.right = check(form, a);
    }
    if (NULL == form->collective) {
        bench_counters_of_messages("sent");
    } else {
        bench_counters_of(form->collective);
    }
    bench_counters_start();
    start(a);
    r.exchange_us = time_exchanges(form, a);
    bench_counters_say(r.way, sizeof(r.way));
    r.step_us = time_steps(form, a);
    if (opt.check) {
        r.right = check(form, a) && r.right;
    }
    return r;
}

/* True if it is right, or not checked. */
static bool one(const halo_form_t *form, halo_args_t *a)
{
    result_t r;

    form->open(a);
    r = measure(form, a);
    form->close();
    if (0 == bench_rank) {
        bench_word(20, form->name);
        bench_cell(6, 0, a->n, false);
        bench_cell(11, 0, (double) (halo_face(a) * sizeof(double)), false);
        bench_word(16, r.way);
        bench_word(7, !opt.check ? "" : r.right ? "right" : "WRONG");
        bench_cell(12, 1, r.exchange_us, false);
        bench_cell(12, 1, r.step_us, true);
    }
    return r.right;
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

        for (int f = 0; NULL != halo_form(f); f++) {
            found = found || 0 == strcmp(opt.forms[i], halo_form(f)->name);
        }
        if (!found) {
            bench_refuse("there is no form %s\nusage: %s", opt.forms[i], USAGE);
        }
    }
    while (0 != opt.face && (opt.n + 1) * (opt.n + 1) * sizeof(double) <= opt.face && opt.n <= N_MOST) {
        opt.n++;
    }
    if (0 == opt.n && 0 == opt.face) {
        opt.n = cuda ? N_CUDA : N_OTHER;
    }
    if (0 == opt.iterations) {
        opt.iterations = cuda ? ITERATIONS_CUDA : ITERATIONS_OTHER;
    }
    if (!opt.warms) {
        opt.warmup = opt.iterations / 5;
    }
    if (opt.n < 1 || opt.n > N_MOST) {
        bench_refuse("--n must be 1 to %d\nusage: %s", N_MOST, USAGE);
    }
}

static void options(int argc, char **argv)
{
    static const struct option all[] = {
        {"device", 1, NULL, 'd'}, {"csv", 1, NULL, 'c'},  {"json", 1, NULL, 'j'},       {"n", 1, NULL, 'n'},
        {"face", 1, NULL, 'b'},   {"form", 1, NULL, 'f'}, {"iterations", 1, NULL, 'i'}, {"warmup", 1, NULL, 'w'},
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
            opt.face = 0;
            break;
        case 'b':
            opt.face = bench_number(optarg, USAGE);
            opt.n = 0;
            break;
        case 'f':
            opt.nforms = bench_cut(optarg, opt.forms, USAGE);
            break;
        case 'i':
            opt.iterations = bench_number(optarg, USAGE);
            break;
        case 'w':
            opt.warmup = bench_number(optarg, USAGE);
            opt.warms = true;
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

/* The grid of ranks, as even as can be, and this rank's place in it. */
static MPI_Comm decompose(halo_args_t *a)
{
    int dims[HALO_DIRECTIONS] = {0}, place[HALO_DIRECTIONS];
    const int periodic[HALO_DIRECTIONS] = {1, 1, 1};
    MPI_Comm grid;

    MPI_Dims_create(bench_ranks, HALO_DIRECTIONS, dims);
    /* ranks stay where they are: each has chosen its GPU, and NCCL numbers them as MPI_COMM_WORLD does */
    MPI_Cart_create(MPI_COMM_WORLD, HALO_DIRECTIONS, dims, periodic, 0, &grid);
    MPI_Cart_coords(grid, bench_rank, HALO_DIRECTIONS, place);
    a->n = (unsigned) opt.n;
    for (int d = 0; d < HALO_DIRECTIONS; d++) {
        a->whole[d] = (unsigned) dims[d] * a->n;
        a->first[d] = (unsigned) place[d] * a->n;
    }
    bench_comment("%d x %d x %d ranks of %u^3 points; a face has %zu bytes", dims[0], dims[1], dims[2], a->n,
                  halo_face(a) * sizeof(double));
    return grid;
}

static void head(void)
{
    char line[160];

    snprintf(line, sizeof(line), "%20s %6s %11s %16s %7s %12s %12s", "form", "n", "face bytes", "way", "field",
             "exchange us", "step us");
    bench_head(line, "form,n,face_bytes,way,field,exchange_us,step_us");
}

static bool run(void)
{
    halo_args_t a = {.n = 0};
    MPI_Comm grid = decompose(&a);
    bool right = true;

    stream_open();
    halo_device_open(&a);
    halo_forms_open(&a, grid, wanted("nccl"), wanted("streams"));
    if (opt.check) {
        check_open(&a);
    }
    head();
    for (int f = 0; NULL != halo_form(f); f++) {
        if (wanted(halo_form(f)->name) && halo_form(f)->there()) {
            right = one(halo_form(f), &a) && right;
        }
    }
    free(reference);
    halo_forms_close();
    halo_device_close(&a);
    stream_close();
    MPI_Comm_free(&grid);
    return right;
}

int main(int argc, char **argv)
{
    bool right;

    bench_init(&argc, &argv);
    options(argc, argv);
    bench_counters_open();
    bench_start("halo", &opt.common, "a halo exchange in three dimensions, float64");
    right = run();
    if (0 == bench_rank) {
        printf("verified: %s\n", !right ? "NO" : opt.check ? "yes, every form's field" : "not requested (--check)");
    }
    bench_counters_close();
    bench_end();
    return right ? 0 : 1;
}
