/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Benchmark: all-reduce on a stream, for which the host does not wait: queued one behind the other, and in a graph.
 *
 *     mpirun -n 2 --bind-to core --mca coll gpusym bench/on_stream --csv on_stream.csv
 *
 * Both with ordinary buffers and with registered ones (gpusym_mem_register), and beside NCCL in the same forms, with
 * ordinary buffers and with those of its symmetric windows. A number is the
 * time of one call, of CALLS that are queued before the stream is synchronized; of a graph that holds NODES of them.
 * bench/README.md says how to read the table. Without a GPU the program ends with status 77.
 */
#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/gpusym.h"
#include "bench/collectives.h"
#include "bench/job.h"
#include "bench/memory.h"
#include "bench/nccl.h"
#include "bench/timing.h"
#include "test/mpi/gpu_stream.h"

#define USAGE                                                                               \
    "on_stream [--device cuda] [--min BYTES] [--max BYTES] [--step FACTOR] [--batches N]\n" \
    "          [--csv FILE] [--json FILE]\n"                                                \
    "numbers may end in k, m or g"

enum { CALLS = 100, NODES = 10 };

static bench_common_t opt = {.min = 8, .max = (size_t) 64 << 20, .step = 8, .batches = BENCH_BATCHES};

typedef enum { OURS, OURS_REGISTERED, NCCL, NCCL_WINDOWS, MAKERS } maker_t;

/* What is timed. */
typedef struct {
    maker_t maker;
    bench_call_t call;
    void *stream, *graph;
    void *in, *out; /* of opt.max bytes, in which the call's are */
} timed_t;

static void check_mpi(int rv)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (MPI_SUCCESS != rv) {
        MPI_Error_string(rv, text, &length);
        bench_die("%s", text);
    }
}

static bool is_ours(maker_t maker)
{
    return OURS == maker || OURS_REGISTERED == maker;
}

static void queue_one(const timed_t *t)
{
    const bench_call_t *c = &t->call;
    const void *in = NCCL_WINDOWS == t->maker ? bench_nccl.in : c->in;
    void *out = NCCL_WINDOWS == t->maker ? bench_nccl.out : c->out;
    if (is_ours(t->maker)) {
        check_mpi(
            gpusym_allreduce_on_stream(in, out, (int) c->what.count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, t->stream));
    } else {
        bench_nccl_check("ncclAllReduce", bench_nccl.ncclAllReduce(in, out, c->what.count, BENCH_NCCL_FLOAT32,
                                                                   BENCH_NCCL_SUM, bench_nccl.comm, t->stream));
    }
}

static void queue_all(void *arg)
{
    const timed_t *t = arg;
    for (int i = 0; i < CALLS; i++) {
        queue_one(t);
    }
    gpu_stream_synchronize(t->stream);
}

static void launch_all(void *arg)
{
    const timed_t *t = arg;
    for (int i = 0; i < CALLS / NODES; i++) {
        if (!gpu_graph_launch(t->graph, t->stream)) {
            bench_die("a graph cannot be launched");
        }
    }
    gpu_stream_synchronize(t->stream);
}

static void poison_output(void *arg)
{
    timed_t *t = arg;
    bench_prepare(&t->call);
}

static double measure_us(void (*call)(void *arg), timed_t *t)
{
    return bench_time(&(bench_timed_t){call, poison_output, t, NULL}, opt.batches).us / CALLS;
}

/* Queued, and in a graph: us[0], us[1]. */
static unsigned long long measure_maker(timed_t *t, double us[2])
{
    unsigned long long wrong = 0;
    int handle[2];
    if (OURS_REGISTERED == t->maker) {
        check_mpi(gpusym_mem_register(MPI_COMM_WORLD, t->in, (MPI_Aint) opt.max, &handle[0]));
        check_mpi(gpusym_mem_register(MPI_COMM_WORLD, t->out, (MPI_Aint) opt.max, &handle[1]));
    }
    us[0] = measure_us(queue_all, t);
    wrong += is_ours(t->maker) ? bench_wrong(&t->call) : 0;
    gpu_capture_begin(t->stream);
    for (int i = 0; i < NODES; i++) {
        queue_one(t);
    }
    t->graph = gpu_capture_end(t->stream);
    us[1] = measure_us(launch_all, t);
    wrong += is_ours(t->maker) ? bench_wrong(&t->call) : 0;
    gpu_graph_destroy(t->graph);
    for (int i = 0; i < 2 && OURS_REGISTERED == t->maker; i++) {
        check_mpi(gpusym_mem_deregister(MPI_COMM_WORLD, handle[i]));
    }
    return wrong;
}

static unsigned long long measure_size(timed_t *t)
{
    double us[MAKERS][2];
    unsigned long long wrong = 0;
    bench_fill(t->call.what.coll, t->call.in, t->call.what.count, (unsigned) t->call.what.count);
    for (int m = 0; m < MAKERS; m++) {
        us[m][0] = us[m][1] = -1;
        t->maker = (maker_t) m;
        if (is_ours((maker_t) m) || (NCCL == m && bench_nccl.there) || (NCCL_WINDOWS == m && bench_nccl.windows)) {
            wrong += measure_maker(t, us[m]);
        }
    }
    wrong = (unsigned long long) bench_sum((double) wrong);
    if (0 == bench_rank) {
        bench_cell(11, 0, (double) (t->call.what.count * sizeof(float)), false);
        for (int form = 0; form < 2; form++) {
            for (int m = 0; m < MAKERS; m++) {
                bench_cell(10, 2, us[m][form], false);
            }
        }
        bench_cell(6, 0, (double) wrong, true);
    }
    return wrong;
}

static void read_options(int argc, char **argv)
{
    static const struct option all[] = {
#define BENCH_COMMON BENCH_GETOPT
#include "bench/options.def"
        {NULL, 0, NULL, 0}};
    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        if (!bench_common_option(&opt, c, optarg, USAGE)) {
            bench_refuse("usage: %s", USAGE);
        }
    }
    if (optind < argc || !bench_common_good(&opt, sizeof(float))) {
        bench_refuse("--min must be a multiple of %zu, --step at least 2, --batches %d to %d\nusage: %s", sizeof(float),
                     BENCH_BATCHES_MIN, BENCH_BATCHES_MAX, USAGE);
    }
}

static void print_head(void)
{
    char line[200];
    snprintf(line, sizeof(line), "%11s %10s %10s %10s %10s %10s %10s %10s %10s %6s", "bytes", "queued us", "registered",
             "NCCL", "windows", "graph us", "registered", "NCCL", "windows", "wrong");
    bench_head(line, "bytes,queued_us,queued_registered_us,queued_nccl_us,queued_nccl_windows_us,graph_us,"
                     "graph_registered_us,graph_nccl_us,graph_nccl_windows_us,wrong");
}

static int run(void)
{
    void *in = bench_alloc(opt.max), *out = bench_alloc(opt.max);
    bench_what_t what = {bench_coll_find("allreduce"), COLL_BLOCKING, false, 2};
    unsigned long long wrong = 0;
    timed_t t = {.stream = gpu_stream_create(), .in = in, .out = out};

    bench_content_open();
    bench_fill(what.coll, in, what.count, 1);
    bench_nccl_open(in, out, opt.max, true);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check_mpi(gpusym_stream_prepare(MPI_COMM_WORLD, MPI_INFO_NULL));
    bench_call_make(&t.call, &what, in, out, NULL, NULL);
    bench_warm_up(&(bench_timed_t){.call = queue_all, .arg = &t});
    bench_call_drop(&t.call);
    print_head();
    for (size_t bytes = opt.min; bytes <= opt.max; bytes *= opt.step) {
        what.count = bytes / sizeof(float);
        bench_call_make(&t.call, &what, in, out, NULL, NULL);
        wrong += measure_size(&t);
        bench_call_drop(&t.call);
    }
    bench_comment("%s", 0 == wrong ? "every element of every result of gpusym is right" : "WRONG RESULTS");
    bench_nccl_close();
    gpu_stream_destroy(t.stream);
    bench_content_close();
    bench_free(in);
    bench_free(out);
    return 0 == wrong ? 0 : 1;
}

int main(int argc, char **argv)
{
    bench_init(&argc, &argv);
    opt.device = bench_device();
    read_options(argc, argv);
    if (0 != strcmp(opt.device, "cuda")) {
        if (0 == bench_rank) {
            printf("on_stream: skipped, it requires a GPU\n");
        }
        MPI_Finalize();
        return BENCH_SKIP;
    }
    bench_start("on_stream", &opt, "all-reduce of float32 sums on streams");
    const int status = 0 == gpu_stream_init() ? run() : BENCH_SKIP;
    bench_end();
    return status;
}
