/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Example: MPI_Allreduce of floats in GPU memory, an ordinary MPI program.
 *
 *     mpirun -n 4 --mca coll gpusym examples/allreduce                                     (GPUs)
 *     mpirun -n 4 --mca coll gpusym --mca coll_gpusym_device sim examples/allreduce        (no GPU: the simulator)
 *
 * Prints for each size which algorithm ran, the time of a blocking call (median, of the slowest rank), the bus
 * bandwidth bytes * 2 (n - 1) / n / time, and whether every element of the result is right.
 *
 * The memory comes from test/mpi/mem.h, so that one program serves GPUs and the simulator; in a CUDA program
 * mem_alloc is cudaMalloc, mem_write and mem_read are cudaMemcpy, and nothing else changes.
 */
#include <mpi.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/mem.h"

#define COUNTERS_MAX 64
#define PREFIX "coll_gpusym_allreduce_" /* of gpusym's performance variables */

static const size_t sizes[] = {8, 64, 512, 4096, 32768, 262144, 1048576, 4194304, 16777216};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define SIM_LAST 1048576 /* the simulator's largest size in bytes: it computes on the CPU */

/* ---- the calls themselves ------------------------------------------------------------------------------------ */

/* Small whole numbers: their sum over the ranks is exact in float. */
static float input(size_t i, int rank)
{
    return (float) (i % 1000 + 1) * (float) (rank + 1);
}

static bool verified(const float *result, size_t n, int nranks)
{
    for (size_t i = 0; i < n; i++) {
        if (result[i] != input(i, 0) * (float) (nranks * (nranks + 1) / 2)) {
            return false;
        }
    }
    return true;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}

/* Median of `calls` blocking calls in seconds; in and out are device pointers. */
static double median_time(const float *in, float *out, size_t n, int calls)
{
    double seconds[100] = {0};

    for (int i = 0; i < calls; i++) {
        seconds[i] = -MPI_Wtime();
        MPI_Allreduce(in, out, (int) n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        seconds[i] += MPI_Wtime();
    }
    qsort(seconds, (size_t) calls, sizeof(double), ascending);
    return seconds[calls / 2];
}

/* ---- what gpusym counted: MPI_T performance variables ------------------------------------------------------------ */

static struct {
    char name[128]; /* behind PREFIX */
    MPI_T_pvar_handle handle;
    unsigned long long before;
} counters[COUNTERS_MAX];
static int ncounters;
static MPI_T_pvar_session session;

static void find_counters(void)
{
    int provided, all;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_get_num(&all);
    for (int i = 0; i < all && ncounters < COUNTERS_MAX; i++) {
        char name[128];
        int length = sizeof(name), verbosity, class, bind, readonly, continuous, atomic, count;
        MPI_Datatype type;
        MPI_T_enum set;

        if (MPI_SUCCESS == MPI_T_pvar_get_info(i, name, &length, &verbosity, &class, &type, &set, NULL, NULL, &bind,
                                               &readonly, &continuous, &atomic) &&
            0 == strncmp(name, PREFIX, strlen(PREFIX)) &&
            MPI_SUCCESS == MPI_T_pvar_handle_alloc(session, i, NULL, &counters[ncounters].handle, &count)) {
            snprintf(counters[ncounters].name, sizeof(name), "%s", name + strlen(PREFIX));
            ncounters++;
        }
    }
}

static void start_counting(void)
{
    for (int i = 0; i < ncounters; i++) {
        MPI_T_pvar_read(session, counters[i].handle, &counters[i].before);
    }
}

/* How often a counter has risen since start_counting. */
static unsigned long long counted(int i)
{
    unsigned long long now = counters[i].before;

    MPI_T_pvar_read(session, counters[i].handle, &now);
    return now - counters[i].before;
}

/* The counters "KIND_something" that have risen, "something, something", into buf. */
static const char *which(const char *kind, char *buf, size_t size)
{
    size_t n = strlen(kind);

    buf[0] = '\0';
    for (int i = 0; i < ncounters; i++) {
        if (0 == strncmp(counters[i].name, kind, n) && '_' == counters[i].name[n] && counted(i) > 0) {
            size_t used = strlen(buf);

            snprintf(buf + used, size - used, "%s%s", used > 0 ? ", " : "", counters[i].name + n + 1);
        }
    }
    return buf;
}

static bool rose(const char *name)
{
    for (int i = 0; i < ncounters; i++) {
        if (0 == strcmp(counters[i].name, name)) {
            return counted(i) > 0;
        }
    }
    return false;
}

/* Whether gpusym serves MPI_COMM_WORLD: it counts a call on host memory as forwarded. */
static bool gpusym_in_use(void)
{
    int one = 1, sum;

    start_counting();
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return rose("forwarded") || rose("native") || rose("staged");
}

/* ---- which device ---------------------------------------------------------------------------------------------- */

/* The name of the first GPU, "" without one. */
static const char *gpu_name(void)
{
    static char name[100];
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = NULL;
    int (*get_name)(char *, int, int) = NULL;

    if (NULL != cuda) {
        *(void **) &init = dlsym(cuda, "cuInit");
        *(void **) &get_name = dlsym(cuda, "cuDeviceGetName");
    }
    if (NULL == init || NULL == get_name || 0 != init(0) || 0 != get_name(name, sizeof(name) - 1, 0)) {
        name[0] = '\0';
    }
    return name;
}

/* --device NAME, else GPUSYM_TEST_DEVICE, else a GPU where there is one. */
static const char *device_name(int argc, char **argv)
{
    const char *device = getenv("GPUSYM_TEST_DEVICE");

    for (int i = 1; i + 1 < argc; i++) {
        if (0 == strcmp(argv[i], "--device")) {
            device = argv[i + 1];
        }
    }
    if (NULL == device || '\0' == device[0]) {
        device = '\0' == gpu_name()[0] ? "sim" : "cuda";
    }
    return device;
}

static int rank_on_host(void)
{
    MPI_Comm host;
    int rank;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_free(&host);
    return rank;
}

/* ---- one size ---------------------------------------------------------------------------------------------------- */

/* True if the result is right on every rank. */
static bool one_size(size_t bytes, int rank, int nranks, bool *staged)
{
    size_t n = bytes / sizeof(float);
    int calls = bytes <= 65536 ? 50 : 10, right, all_right;
    float *host = malloc(bytes);
    float *in = mem_alloc(MEM_DEVICE, bytes), *out = mem_alloc(MEM_DEVICE, bytes);
    double seconds, slowest;
    char native[256], why[256];

    if (NULL == host || NULL == in || NULL == out) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (size_t i = 0; i < n; i++) {
        host[i] = input(i, rank);
    }
    mem_write(in, host, bytes);
    memset(host, 0xff, bytes); /* NaNs: what is not written cannot look right */
    mem_write(out, host, bytes);

    start_counting();
    MPI_Allreduce(in, out, (int) n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    mem_read(host, out, bytes);
    right = verified(host, n, nranks);
    seconds = median_time(in, out, n, calls);
    mem_read(host, out, bytes);
    right = right && verified(host, n, nranks);
    which("native", native, sizeof(native));
    which("staged", why, sizeof(why));
    *staged = '\0' != why[0];

    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&right, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (0 == rank) {
        printf("%10zu  %10.1f  %8.2f  %-8s  %s%s%s%s\n", bytes, slowest * 1e6,
               (double) bytes * 2 * (nranks - 1) / nranks / slowest / 1e9, all_right ? "yes" : "NO", native,
               *staged ? "staged (" : "", why, *staged ? ")" : "");
        fflush(stdout);
    }
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    free(host);
    return all_right;
}

int main(int argc, char **argv)
{
    int rank, nranks;
    bool all_right = true, any_staged = false, staged, sim;
    const char *device;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    device = device_name(argc, argv);
    sim = 0 == strcmp(device, "sim");
    if (0 != mem_init(device, rank_on_host()) || !mem_have(MEM_DEVICE)) {
        fprintf(stderr, "rank %d: no device \"%s\" here (--device cuda or --device sim)\n", rank, device);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    find_counters();
    if (!gpusym_in_use()) {
        if (0 == rank) {
            printf("gpusym is not selected: add --mca coll gpusym, and check that it is in the component path "
                   "(ompi_info --param coll gpusym)\n");
        }
        MPI_Finalize();
        return 1;
    }
    if (0 == rank) {
        printf("MPI_Allreduce, float, sum, %d ranks, device memory\ndevice: %s\n", nranks,
               sim ? "simulator" : gpu_name());
        printf("%10s  %10s  %8s  %-8s  %s\n", "bytes", "us", "GB/s", "verified", "algorithm");
    }
    for (size_t i = 0; i < SIZES; i++) {
        if (!sim || sizes[i] <= SIM_LAST) {
            all_right = one_size(sizes[i], rank, nranks, &staged) && all_right;
            any_staged = any_staged || staged;
        }
    }
    if (0 == rank) {
        printf("verified: %s, every element of every result%s\n", all_right ? "yes" : "NO",
               any_staged ? "; some calls were staged through host memory, --mca coll_gpusym_verbose 2 prints why"
                          : "");
    }
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    mem_fini();
    MPI_Finalize();
    return all_right ? 0 : 1;
}
