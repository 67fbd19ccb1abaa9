/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Benchmark: how much of an MPI_Iallreduce on GPU memory is hidden behind a compute kernel of the same GPU.
 *
 *     mpirun -n 4 --bind-to core --mca coll gpusym bench/overlap --csv overlap.csv
 *
 * The kernel multiplies and adds in registers, in blocks of some microseconds, and is made about as long as the
 * all-reduce of that size (--ratio for another length). It hardly touches memory: what it shares with the all-reduce is
 * the multiprocessors. bench/README.md says how to read the table. Without a GPU the program ends with status 77.
 */
#include <getopt.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/collectives.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "bench/timing.h"
#include "test/mpi/mem.h"

#define USAGE                                                                                               \
    "overlap [--device cuda] [--min BYTES] [--max BYTES] [--step FACTOR] [--ratio PERCENT] [--batches N]\n" \
    "        [--csv FILE] [--json FILE]\n"                                                                  \
    "numbers may end in k, m or g; --ratio: length of the kernel, in percent of the all-reduce's"

#define THREADS 256u      /* of a block of the kernel */
#define ROUNDS_MIN 256u   /* of a thread: a block then takes a few microseconds, so that others get their turn */
#define BLOCKS_MAX 65536u /* more work than that: more rounds */
#define PROBE_BLOCKS 8192u
#define PROBE_ROUNDS 1024u

static struct {
    bench_common_t common;
    size_t ratio;
} opt = {.common = {.min = 64, .max = (size_t) 256 << 20, .step = 8, .batches = BENCH_BATCHES}, .ratio = 100};

/* y[i] = y[i] * a + b, rounds times; a thread an element. With a = b = 1 it counts the rounds. */
static const char ptx[] =
    ".version 7.0\n"
    ".target sm_80\n"
    ".address_size 64\n"
    ".visible .entry compute(.param .u64 py, .param .u32 prounds, .param .f32 pa, .param .f32 pb)\n"
    "{\n"
    "    .reg .pred %more;\n"
    "    .reg .u32 %block, %size, %thread, %i, %left;\n"
    "    .reg .u64 %y, %at;\n"
    "    .reg .f32 %v, %a, %b;\n"
    "    ld.param.u64 %y, [py];\n"
    "    ld.param.u32 %left, [prounds];\n"
    "    ld.param.f32 %a, [pa];\n"
    "    ld.param.f32 %b, [pb];\n"
    "    cvta.to.global.u64 %y, %y;\n"
    "    mov.u32 %block, %ctaid.x;\n"
    "    mov.u32 %size, %ntid.x;\n"
    "    mov.u32 %thread, %tid.x;\n"
    "    mad.lo.u32 %i, %block, %size, %thread;\n"
    "    mul.wide.u32 %at, %i, 4;\n"
    "    add.u64 %at, %y, %at;\n"
    "    ld.global.f32 %v, [%at];\n"
    "again:\n"
    "    fma.rn.f32 %v, %v, %a, %b;\n"
    "    sub.u32 %left, %left, 1;\n"
    "    setp.ne.u32 %more, %left, 0;\n"
    "    @%more bra again;\n"
    "    st.global.f32 [%at], %v;\n"
    "    ret;\n"
    "}\n";

/* ---- the kernel ---------------------------------------------------------------------------------------------------
 */

static struct {
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **parameters, void **extra);
    void *module, *function;
    float *y; /* BLOCKS_MAX x THREADS */
    unsigned blocks, rounds;
} kernel;

static void kernel_open(void)
{
    int (*load)(void **module, const void *image), (*find)(void **function, void *module, const char *name);

    *(void **) &load = bench_cu_function("cuModuleLoadData");
    *(void **) &find = bench_cu_function("cuModuleGetFunction");
    *(void **) &kernel.launch = bench_cu_function("cuLaunchKernel");
    bench_cu_check("cuModuleLoadData", load(&kernel.module, ptx));
    bench_cu_check("cuModuleGetFunction", find(&kernel.function, kernel.module, "compute"));
    kernel.y = bench_alloc(BLOCKS_MAX * THREADS * sizeof(float));
}

static void kernel_close(void)
{
    int (*unload)(void *module);

    *(void **) &unload = bench_cu_function("cuModuleUnload");
    bench_cu_check("cuModuleUnload", unload(kernel.module));
    bench_free(kernel.y);
}

static void kernel_launch(void)
{
    float one = 1;
    void *parameters[] = {&kernel.y, &kernel.rounds, &one, &one};

    bench_cu_check("cuLaunchKernel", kernel.launch(kernel.function, kernel.blocks, 1, 1, THREADS, 1, 1, 0,
                                                   bench_cu.stream, parameters, NULL));
}

static void kernel_wait(void)
{
    BENCH_CU(cuStreamSynchronize, bench_cu.stream);
}

/* ---- what is timed: arg is a bench_call_t
 * -------------------------------------------------------------------------------
 */

static MPI_Request start(const bench_call_t *c)
{
    MPI_Request request;

    MPI_Iallreduce(c->in, c->out, (int) c->what.count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    return request;
}

static void compute(void *arg)
{
    (void) arg;
    kernel_launch();
    kernel_wait();
}

static void allreduce(void *arg)
{
    bench_call_by_mpi(arg);
}

static void run_serially(void *arg)
{
    allreduce(arg);
    compute(arg);
}

/* Both at once; the host waits in MPI. */
static void overlap_wait(void *arg)
{
    MPI_Request request = start(arg);

    kernel_launch();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    kernel_wait();
}

/* Both at once; the host looks now and then. */
static void overlap_test(void *arg)
{
    MPI_Request request = start(arg);
    int done = 0;

    kernel_launch();
    while (0 == done) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    kernel_wait();
}

/* Both at once; the host is not in MPI before the kernel has ended. */
static void overlap_late(void *arg)
{
    MPI_Request request = start(arg);

    kernel_launch();
    kernel_wait();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void poison_output(void *arg)
{
    bench_prepare(arg);
}

/* ---- one size -----------------------------------------------------------------------------------------------------
 */

static double measure_us(void (*call)(void *arg), bench_call_t *c)
{
    return bench_time(&(bench_timed_t){call, poison_output, c, NULL}, opt.common.batches).us;
}

static double kernel_us(unsigned blocks, unsigned rounds, bench_call_t *c)
{
    kernel.blocks = blocks;
    kernel.rounds = rounds;
    return measure_us(compute, c);
}

/* Sets blocks and rounds for a kernel of about so long; alike on every rank, since times are. */
static void kernel_fit(double us, bench_call_t *c)
{
    static double launch, round; /* microseconds: of an empty kernel; of a round of a block, when the GPU is full */
    double work;

    if (0 == round) {
        launch = kernel_us(1, 1, c);
        round = (kernel_us(PROBE_BLOCKS, PROBE_ROUNDS, c) - launch) / PROBE_BLOCKS / PROBE_ROUNDS;
    }
    work = round > 0 && us > launch ? (us - launch) / round : 0;
    kernel.rounds = ROUNDS_MIN;
    while (work / kernel.rounds > BLOCKS_MAX && kernel.rounds < 1u << 20) {
        kernel.rounds *= 2;
    }
    work /= kernel.rounds;
    kernel.blocks = work < 1 ? 1 : work > BLOCKS_MAX ? BLOCKS_MAX : (unsigned) work;
}

/* Elements that the kernel, run once from zeros beside an all-reduce, has not counted right. */
static unsigned long long kernel_wrong(bench_call_t *c)
{
    const size_t n = (size_t) kernel.blocks * THREADS;
    float *host = calloc(n, sizeof(float));
    unsigned long long wrong = 0;

    if (NULL == host) {
        bench_die("no host memory");
    }
    mem_write(kernel.y, host, n * sizeof(float));
    MPI_Barrier(bench_world);
    overlap_wait(c);
    mem_read(host, kernel.y, n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        wrong += !(host[i] == (float) kernel.rounds);
    }
    free(host);
    return wrong;
}

/* Of the shorter of the two, how much is hidden: 0 as if one after the other, 100 as if it were not there. */
static void print_overlap(double us, double computing, double reducing)
{
    const double shorter = computing < reducing ? computing : reducing, hidden = (computing + reducing - us) / shorter;

    bench_cell(10, 2, us, false);
    bench_cell(6, 0, hidden < 0 ? 0 : 100 * hidden, false);
}

static unsigned long long measure_size(bench_call_t *c)
{
    static void (*const ways[])(void *arg) = {run_serially, overlap_wait, overlap_test, overlap_late};
    enum { WAYS = sizeof(ways) / sizeof(ways[0]) };
    double reducing, computing, us[WAYS];
    unsigned long long wrong = 0;

    bench_fill(c->what.coll, c->in, c->what.count, (unsigned) c->what.count);
    reducing = measure_us(allreduce, c);
    wrong += bench_wrong(c);
    kernel_fit(reducing * (double) opt.ratio / 100, c);
    computing = measure_us(compute, c);
    for (int w = 0; w < WAYS; w++) {
        us[w] = measure_us(ways[w], c);
        wrong += bench_wrong(c);
    }
    wrong += kernel_wrong(c);
    wrong = (unsigned long long) bench_sum((double) wrong);
    if (0 == bench_rank) {
        bench_cell(11, 0, (double) (c->what.count * sizeof(float)), false);
        bench_cell(10, 2, computing, false);
        bench_cell(12, 2, reducing, false);
        bench_cell(10, 2, us[0], false);
        for (int w = 1; w < WAYS; w++) {
            print_overlap(us[w], computing, reducing);
        }
        bench_cell(6, 0, (double) wrong, true);
    }
    return wrong;
}

/* ---- options and the whole ----------------------------------------------------------------------------------------
 */

static void read_options(int argc, char **argv)
{
    static const struct option all[] = {
#define BENCH_COMMON BENCH_GETOPT
#include "bench/options.def"
        {"ratio", 1, NULL, 'r'}, {NULL, 0, NULL, 0}};
    const size_t e = sizeof(float);

    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        if ('r' == c) {
            opt.ratio = bench_number(optarg, USAGE);
        } else if (!bench_common_option(&opt.common, c, optarg, USAGE)) {
            bench_refuse("usage: %s", USAGE);
        }
    }
    if (optind < argc || !bench_common_good(&opt.common, e) || 0 == opt.ratio) {
        bench_refuse(
            "--min must be a multiple of %zu, --step at least 2, --ratio at least 1, --batches %d to %d\nusage: %s", e,
            BENCH_BATCHES_MIN, BENCH_BATCHES_MAX, USAGE);
    }
}

static void print_head(void)
{
    char line[160];

    snprintf(line, sizeof(line), "%11s %10s %12s %10s %10s %6s %10s %6s %10s %6s %6s", "bytes", "kernel us",
             "allreduce us", "serial us", "wait us", "%", "test us", "%", "late us", "%", "wrong");
    bench_head(line, "bytes,kernel_us,allreduce_us,serial_us,overlapped_wait_us,wait_percent,overlapped_test_us,"
                     "test_percent,overlapped_late_us,late_percent,wrong");
}

static int run(void)
{
    bench_what_t what = {bench_coll_find("allreduce"), COLL_BLOCKING, false, 1};
    bench_call_t c;
    void *in = bench_alloc(opt.common.max), *out = bench_alloc(opt.common.max);
    unsigned long long wrong = 0;

    bench_content_open();
    kernel_open();
    kernel.blocks = kernel.rounds = 1;
    bench_fill(what.coll, in, what.count, 1);
    bench_call_make(&c, &what, in, out, NULL, NULL);
    bench_warm_up(&(bench_timed_t){.call = run_serially, .arg = &c});
    print_head();
    for (size_t bytes = opt.common.min; bytes <= opt.common.max; bytes *= opt.common.step) {
        what.count = bytes / sizeof(float);
        bench_call_make(&c, &what, in, out, NULL, NULL);
        wrong += measure_size(&c);
    }
    bench_comment("%s", 0 == wrong ? "every element of every result is right" : "WRONG RESULTS");
    kernel_close();
    bench_content_close();
    bench_free(out);
    bench_free(in);
    return 0 == wrong ? 0 : 1;
}

int main(int argc, char **argv)
{
    int status;

    bench_init(&argc, &argv);
    opt.common.device = bench_device();
    read_options(argc, argv);
    if (0 != strcmp(opt.common.device, "cuda")) {
        if (0 == bench_rank) {
            printf("overlap: skipped, it requires a GPU\n");
        }
        MPI_Finalize();
        return BENCH_SKIP;
    }
    bench_start("overlap", &opt.common, "MPI_Iallreduce of float32 sums beside a kernel that computes");
    status = run();
    bench_end();
    return status;
}
