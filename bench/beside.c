/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Benchmark: what a kernel that is resident after a small MPI_Allreduce costs others: a kernel bound by the GPU's
 * memory that runs beside it, and a program that waits for its GPU. Or, with --message, what one costs the former that
 * is resident after a message of so many bytes.
 *
 *     mpirun -n 4 --bind-to core --mca coll gpusym bench/beside --csv beside.csv
 *     mpirun -n 2 --bind-to core --mca coll gpusym bench/beside --message 512k --max 4m
 *
 * The kernel is y = a x + y on two vectors of 128 MiB, launched as soon as the all-reduce has returned, and timed by
 * events of its stream. Waiting is timed by itself, right behind an all-reduce, and as programs do it that have two
 * all-reduces in an iteration and wait for the GPU once. coll_gpusym_linger is set by MPI_T. bench/README.md says how
 * to read the table. On the
 * simulator, which has no such kernels, the host does the sum, and nothing can be waited for: only the program is
 * tried.
 */
#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/collectives.h"
#include "bench/counters.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "bench/timing.h"
#include "bench/variable.h"
#include "test/mpi/mem.h"

#define USAGE                                                                                               \
    "beside [--device cuda|sim] [--max BYTES] [--message BYTES] [--repeats N] [--csv FILE] [--json FILE]\n" \
    "--max: bytes of a vector"

#define THREADS 256u /* of a block */
#define ELEMENTS 4u  /* of a thread: one load of 16 bytes of each vector */
#define LONGER 1000  /* microseconds: longer than the launches and two of these kernels */
#define REPEATS 101
#define REPEATS_MAX 1001
#define REPEATS_SIM 7
#define BYTES_CUDA ((size_t) 128 << 20)
#define BYTES_SIM ((size_t) 1 << 20)
#define AUTOMATIC (-1) /* coll_gpusym_linger: by the tuning table */

static struct {
    bench_common_t common; /* device, files; max: bytes of a vector, 0: by the device */
    size_t repeats;        /* 0: by the device */
    size_t message;        /* bytes; 0: all-reduces */
} opt = {.common = {.min = sizeof(float), .step = 2, .batches = BENCH_BATCHES}};

/* y[i] = x[i] * a + y[i], four elements a thread. */
static const char ptx[] = ".version 7.0\n"
                          ".target sm_80\n"
                          ".address_size 64\n"
                          ".visible .entry axpy(.param .u64 px, .param .u64 py, .param .f32 pa)\n"
                          "{\n"
                          "    .reg .u32 %block, %size, %thread, %i;\n"
                          "    .reg .u64 %x, %y, %at;\n"
                          "    .reg .f32 %a, %x0, %x1, %x2, %x3, %y0, %y1, %y2, %y3;\n"
                          "    ld.param.u64 %x, [px];\n"
                          "    ld.param.u64 %y, [py];\n"
                          "    ld.param.f32 %a, [pa];\n"
                          "    cvta.to.global.u64 %x, %x;\n"
                          "    cvta.to.global.u64 %y, %y;\n"
                          "    mov.u32 %block, %ctaid.x;\n"
                          "    mov.u32 %size, %ntid.x;\n"
                          "    mov.u32 %thread, %tid.x;\n"
                          "    mad.lo.u32 %i, %block, %size, %thread;\n"
                          "    mul.wide.u32 %at, %i, 16;\n"
                          "    add.u64 %x, %x, %at;\n"
                          "    add.u64 %y, %y, %at;\n"
                          "    ld.global.v4.f32 {%x0, %x1, %x2, %x3}, [%x];\n"
                          "    ld.global.v4.f32 {%y0, %y1, %y2, %y3}, [%y];\n"
                          "    fma.rn.f32 %y0, %x0, %a, %y0;\n"
                          "    fma.rn.f32 %y1, %x1, %a, %y1;\n"
                          "    fma.rn.f32 %y2, %x2, %a, %y2;\n"
                          "    fma.rn.f32 %y3, %x3, %a, %y3;\n"
                          "    st.global.v4.f32 [%y], {%y0, %y1, %y2, %y3};\n"
                          "    ret;\n"
                          "}\n";

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

static struct {
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **parameters, void **extra);
    int (*record)(void *event, void *stream);
    int (*elapsed)(float *ms, void *from, void *to);
    int (*synchronize)(void);
    void *module, *function, *from, *to; /* the last two are events */
    float *x, *y;                        /* GPU memory; without a GPU the host's */
    unsigned blocks;
    unsigned runs; /* so far: with x = 1, a = 1 and y = 0 at first, y counts them */
} kernel;

static void kernel_load(void)
{
    int (*load)(void **module, const void *image), (*find)(void **function, void *module, const char *name);
    int (*event)(void **event, unsigned flags);

    *(void **) &load = bench_cu_function("cuModuleLoadData");
    *(void **) &find = bench_cu_function("cuModuleGetFunction");
    *(void **) &event = bench_cu_function("cuEventCreate");
    *(void **) &kernel.launch = bench_cu_function("cuLaunchKernel");
    *(void **) &kernel.record = bench_cu_function("cuEventRecord");
    *(void **) &kernel.elapsed = bench_cu_function("cuEventElapsedTime");
    *(void **) &kernel.synchronize = bench_cu_function("cuCtxSynchronize");
    bench_cu_check("cuModuleLoadData", load(&kernel.module, ptx));
    bench_cu_check("cuModuleGetFunction", find(&kernel.function, kernel.module, "axpy"));
    bench_cu_check("cuEventCreate", event(&kernel.from, 0));
    bench_cu_check("cuEventCreate", event(&kernel.to, 0));
}

static size_t count_elements(void)
{
    return opt.common.max / sizeof(float);
}

static void kernel_open(void)
{
    float *values = malloc(opt.common.max);

    if (NULL == values) {
        bench_die("no host memory");
    }
    kernel.x = bench_cu.there ? bench_alloc(opt.common.max) : bench_host_alloc(opt.common.max);
    kernel.y = bench_cu.there ? bench_alloc(opt.common.max) : bench_host_alloc(opt.common.max);
    for (size_t i = 0; i < count_elements(); i++) {
        values[i] = 1;
    }
    mem_write(kernel.x, values, opt.common.max);
    memset(values, 0, opt.common.max);
    mem_write(kernel.y, values, opt.common.max);
    free(values);
    kernel.blocks = (unsigned) (count_elements() / ELEMENTS / THREADS);
    if (bench_cu.there) {
        kernel_load();
    }
}

static void kernel_close(void)
{
    int (*unload)(void *module), (*destroy)(void *event);

    if (!bench_cu.there) {
        bench_host_free(kernel.y);
        bench_host_free(kernel.x);
        return;
    }
    *(void **) &unload = bench_cu_function("cuModuleUnload");
    *(void **) &destroy = bench_cu_function("cuEventDestroy_v2");
    bench_cu_check("cuEventDestroy", destroy(kernel.from));
    bench_cu_check("cuEventDestroy", destroy(kernel.to));
    bench_cu_check("cuModuleUnload", unload(kernel.module));
    bench_free(kernel.y);
    bench_free(kernel.x);
}

static void kernel_launch(void)
{
    float a = 1;
    void *parameters[] = {&kernel.x, &kernel.y, &a};

    kernel.runs++;
    bench_cu_check("cuLaunchKernel", kernel.launch(kernel.function, kernel.blocks, 1, 1, THREADS, 1, 1, 0,
                                                   bench_cu.stream, parameters, NULL));
}

/* Microseconds of the GPU, from before its first block to behind its last. On a GPU of a second one right behind a
 * first: what the host takes for the launch is then not in it. */
static double axpy(void)
{
    float ms = 0;

    if (!bench_cu.there) {
        const double start = MPI_Wtime();

        for (size_t i = 0; i < count_elements(); i++) {
            kernel.y[i] += kernel.x[i];
        }
        kernel.runs++;
        return (MPI_Wtime() - start) * 1e6;
    }
    kernel_launch();
    bench_cu_check("cuEventRecord", kernel.record(kernel.from, bench_cu.stream));
    kernel_launch();
    bench_cu_check("cuEventRecord", kernel.record(kernel.to, bench_cu.stream));
    BENCH_CU(cuStreamSynchronize, bench_cu.stream);
    bench_cu_check("cuEventElapsedTime", kernel.elapsed(&ms, kernel.from, kernel.to));
    return ms * 1e3;
}

/* Elements of this rank that have not been counted right. */
static unsigned long long count_axpy_wrong(void)
{
    float *values = malloc(opt.common.max);
    unsigned long long wrong = 0;

    if (NULL == values) {
        bench_die("no host memory");
    }
    mem_read(values, kernel.y, opt.common.max);
    for (size_t i = 0; i < count_elements(); i++) {
        wrong += !(values[i] == (float) kernel.runs);
    }
    free(values);
    return wrong;
}

/* Waits for all that runs on the GPU, as cudaDeviceSynchronize does; microseconds of the host. */
static double synchronize(void)
{
    const double start = MPI_Wtime();

    bench_cu_check("cuCtxSynchronize", kernel.synchronize());
    return (MPI_Wtime() - start) * 1e6;
}

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

static bench_call_t call; /* the all-reduce, of two numbers */

#define LINGERS_MAX 8

/* An iteration: two all-reduces, the second of which the resident kernel of the first may serve, and a wait. */
static double iterate(void)
{
    const double start = MPI_Wtime();

    bench_call_by_mpi(&call);
    bench_call_by_mpi(&call);
    bench_cu_check("cuCtxSynchronize", kernel.synchronize());
    return (MPI_Wtime() - start) * 1e6;
}

/* What is done, right behind an all-reduce if `behind`, with kernels that linger for so many microseconds: medians over
 * the repeats, of the slowest rank. The lingers take turns, so that clocks and neighbours change for all of them alike;
 * but where there is none before it, they come one after the other, as in a program. False where MPI_T cannot set the
 * parameter. */
static bool measure_lingers(const bench_variable_t *linger, double (*what)(void), bool behind, const int *lingers,
                            int n, double took[LINGERS_MAX])
{
    static double us[LINGERS_MAX][REPEATS_MAX];
    const size_t turns = behind ? opt.repeats : 1, each = opt.repeats / turns;

    for (size_t i = 0; i < turns; i++) {
        for (int l = 0; l < n; l++) {
            if (!bench_variable_set(linger, lingers[l])) {
                return false;
            }
            MPI_Barrier(bench_world);
            for (size_t k = 0; k < each; k++) {
                if (behind) {
                    bench_call_by_mpi(&call);
                }
                us[l][i * each + k] = what();
            }
        }
    }
    for (int l = 0; l < n; l++) {
        took[l] = bench_max(bench_median(us[l], (int) opt.repeats));
    }
    return true;
}

/* The rows of one thing; lingers[0] is 0. */
static bool measure_rows(const bench_variable_t *linger, const char *name, double (*what)(void), bool behind,
                         const int *lingers, int n)
{
    double took[LINGERS_MAX];
    const bool done = measure_lingers(linger, what, behind, lingers, n, took);

    for (int l = 0; l < n && done && 0 == bench_rank; l++) {
        char number[16] = "auto";

        if (AUTOMATIC != lingers[l]) {
            snprintf(number, sizeof(number), "%d", lingers[l]);
        }
        bench_word(14, name);
        bench_word(10, number);
        bench_cell(10, 2, took[l], false);
        bench_cell(14, 4, took[l] / took[0], true);
    }
    return done;
}

static struct {
    char *out, *in; /* GPU memory */
    int to, from;
} message;

static void exchange(void)
{
    MPI_Sendrecv(message.out, (int) opt.message, MPI_BYTE, message.to, 0, message.in, (int) opt.message, MPI_BYTE,
                 message.from, 0, bench_world, MPI_STATUS_IGNORE);
}

/* The kernel long after a message, and right behind one, in turns; the second of two, which finds a kernel there. */
static void measure_message(void)
{
    static double us[2][REPEATS_MAX];
    double took[2];

    message.out = bench_alloc(opt.message);
    message.in = bench_alloc(opt.message);
    message.to = (bench_rank + 1) % bench_ranks;
    message.from = (bench_rank + bench_ranks - 1) % bench_ranks;
    for (size_t i = 0; i < opt.repeats; i++) {
        usleep(2 * LONGER);
        MPI_Barrier(bench_world);
        us[0][i] = axpy();
        MPI_Barrier(bench_world);
        exchange();
        exchange();
        us[1][i] = axpy();
    }
    for (int k = 0; k < 2; k++) {
        took[k] = bench_max(bench_median(us[k], (int) opt.repeats));
        if (0 == bench_rank) {
            bench_word(14, "axpy");
            bench_word(10, 0 == k ? "none" : "message");
            bench_cell(10, 2, took[k], false);
            bench_cell(14, 4, took[k] / took[0], true);
        }
    }
    bench_free(message.in);
    bench_free(message.out);
}

static bool measure_all(void)
{
    static const int beside[] = {0, LONGER}, before[] = {0, 10, 20, 50, 100, 200, AUTOMATIC};
    bench_variable_t linger = {.name = "coll_gpusym_linger"};
    bool done;

    if (0 != opt.message) {
        measure_message();
        return true;
    }
    bench_variable_open(&linger);
    done = measure_rows(&linger, "axpy", axpy, true, beside, sizeof(beside) / sizeof(beside[0]));
    if (done && bench_cu.there) {
        done = measure_rows(&linger, "synchronize", synchronize, true, before, sizeof(before) / sizeof(before[0])) &&
               measure_rows(&linger, "iteration", iterate, false, before, sizeof(before) / sizeof(before[0]));
    }
    bench_variable_close(&linger);
    return done;
}

/* Clocks and caches come out of idleness. */
static void warm_up(void)
{
    for (size_t i = 0; i < opt.repeats; i++) {
        bench_call_by_mpi(&call);
        axpy();
    }
}

/* ---- options and the whole --------------------------------------------------------------------------------------- */

static void read_options(int argc, char **argv)
{
    static const struct option all[] = {
#define BENCH_COMMON BENCH_GETOPT
#include "bench/options.def"
        {"repeats", 1, NULL, 'R'}, {"message", 1, NULL, 'E'}, {NULL, 0, NULL, 0}};
    bool cuda;

    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        if ('R' == c) {
            opt.repeats = bench_number(optarg, USAGE);
        } else if ('E' == c) {
            opt.message = bench_number(optarg, USAGE);
        } else if (!bench_common_option(&opt.common, c, optarg, USAGE)) {
            bench_refuse("usage: %s", USAGE);
        }
    }
    cuda = 0 == strcmp(opt.common.device, "cuda");
    opt.common.max = 0 != opt.common.max ? opt.common.max : cuda ? BYTES_CUDA : BYTES_SIM;
    opt.repeats = 0 != opt.repeats ? opt.repeats : cuda ? REPEATS : REPEATS_SIM;
    if (optind < argc || 0 != opt.common.max % (THREADS * ELEMENTS * sizeof(float)) || opt.repeats > REPEATS_MAX) {
        bench_refuse("--max must be a multiple of %zu, --repeats at most %d\nusage: %s",
                     THREADS * ELEMENTS * sizeof(float), REPEATS_MAX, USAGE);
    }
}

static void print_head(void)
{
    char line[80];

    snprintf(line, sizeof(line), "%14s %10s %10s %14s", "what", "linger us", "us", "over linger 0");
    bench_head(line, "what,linger_us,us,over_linger_0");
}

static int run(void)
{
    const bench_what_t what = {bench_coll_find("allreduce"), COLL_BLOCKING, false, 2};
    const size_t bytes = bench_coll_bytes(what.coll, what.count);
    void *in = bench_alloc(bytes), *out = bench_alloc(bytes);
    unsigned long long wrong;
    bool done;

    bench_content_open();
    bench_fill(what.coll, in, what.count, 1);
    bench_call_make(&call, &what, in, out, NULL, NULL);
    bench_prepare(&call);
    kernel_open();
    warm_up();
    print_head();
    done = measure_all();
    wrong = (unsigned long long) bench_sum((double) (count_axpy_wrong() + bench_wrong(&call)));
    bench_comment("%s", !done ? "not done" : 0 == wrong ? "every element of every result is right" : "WRONG RESULTS");
    kernel_close();
    bench_call_drop(&call);
    bench_content_close();
    bench_free(out);
    bench_free(in);
    return !done ? BENCH_NOT_SETTABLE : 0 == wrong ? 0 : 1;
}

int main(int argc, char **argv)
{
    int status;

    bench_init(&argc, &argv);
    opt.common.device = bench_device();
    read_options(argc, argv);
    bench_counters_open();
    bench_start("beside", &opt.common,
                "a kernel beside one that is resident after an MPI_Allreduce, and waiting for the GPU");
    if (0 != strcmp(opt.common.device, "cuda")) {
        bench_comment(
            "NO GPU: the simulator: a loop on the host stands for the kernel; these times say nothing about a GPU");
    }
    status = run();
    bench_counters_close();
    bench_end();
    return status;
}
