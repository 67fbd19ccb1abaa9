/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Benchmark: MPI_Allreduce on GPU memory beside what a user has otherwise: NCCL, with ordinary buffers and with
 * symmetric windows, and staging through pinned host memory.  One rank a GPU, one run, the same sizes and inputs.
 *
 *     mpirun -n 4 --bind-to core --mca coll gpusym bench/allreduce_nccl --csv table.csv
 *
 * Every time is that of a blocking call: the median of batches on each rank, the maximum over the ranks.  Every
 * result is compared element by element.  bench/README.md says how to read the table.
 *
 * Needs neither CUDA's nor NCCL's headers: memory is test/mpi/mem.c's, the few functions of the driver and of NCCL
 * are declared here and found by dlopen.  Without NCCL, or on the simulator, those columns show "-".
 */
#include <mpi.h>
#include <dlfcn.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/mpi/mem.h"

#define USAGE                                                                                                \
    "allreduce_nccl [--device cuda|sim] [--min BYTES] [--max BYTES] [--step FACTOR] [--type float|double]\n" \
    "               [--batches N] [--no-nccl] [--no-staged] [--csv FILE]\n"                                  \
    "       allreduce_nccl --sweep --bytes LIST [--algorithms LIST] [--blocks LIST] [--threads LIST] ...\n"  \
    "numbers may end in k, m or g; lists are separated by commas"

#define MAX_CUDA ((size_t) 1 << 30)    /* default of --max, bytes */
#define MAX_OTHER ((size_t) 1 << 20)   /* the simulator computes on the CPU */
#define STAGED_MAX ((size_t) 64 << 20) /* bytes; beyond it staging only gets slower */
#define BATCH_SECONDS 0.01             /* a batch takes about so long */
#define WARM_UP_SECONDS 0.2            /* before the first row */
#define CALLS_MIN 2                    /* calls of a batch */
#define CALLS_MAX 200
#define BATCHES_MIN 7
#define BATCHES_MAX 101
#define PIECE ((size_t) 1 << 20) /* bytes made or verified at once on the host */
#define LIST_MAX 64
#define NOT_SETTABLE 3 /* exit status: MPI_T refuses to set the parameters */

static int rank, nranks;
/* Of this program's own exchanges, which use no MPI_Allreduce: nothing of gpusym is set up before it is measured. */
static MPI_Comm world;

static struct {
    const char *device, *csv;
    size_t min, max, step;
    int batches;
    bool is_double, no_nccl, no_staged, sweep;
    size_t bytes[LIST_MAX];
    const char *algorithms[LIST_MAX]; /* NULL: as the MCA parameter says, likewise -1 below */
    int blocks[LIST_MAX], threads[LIST_MAX];
    int nbytes, nalgorithms, nblocks, nthreads;
} opt = {.device = "cuda",
         .min = 8,
         .step = 4,
         .batches = 9,
         .algorithms = {NULL},
         .blocks = {-1},
         .threads = {-1},
         .nalgorithms = 1,
         .nblocks = 1,
         .nthreads = 1};

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fprintf(stderr, "rank %d: ", rank);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    MPI_Abort(MPI_COMM_WORLD, 2);
    abort(); /* MPI_Abort does not return */
}

static double max_of_all(double value)
{
    double max;

    MPI_Reduce(&value, &max, 1, MPI_DOUBLE, MPI_MAX, 0, world);
    MPI_Bcast(&max, 1, MPI_DOUBLE, 0, world);
    return max;
}

static bool all_agree(bool yes)
{
    return max_of_all(yes ? 0 : 1) < 1;
}

/* ---- output: a table on stdout, the same rows as CSV ------------------------------------------------------------ */

static FILE *csv; /* rank 0's, NULL without --csv */

/* A comment line, in both. */
__attribute__((format(printf, 1, 2))) static void comment(const char *format, ...)
{
    char text[1024];
    va_list ap;

    if (0 != rank) {
        return;
    }
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    printf("# %s\n", text);
    fflush(stdout);
    if (NULL != csv) {
        fprintf(csv, "# %s\n", text);
        fflush(csv);
    }
}

/* A cell of the table and of the CSV file; a negative value is one that was not measured. */
static void cell(int width, int digits, double value, bool last)
{
    if (value < 0) {
        printf("%*s%s", width, "-", last ? "\n" : " ");
    } else {
        printf("%*.*f%s", width, digits, value, last ? "\n" : " ");
    }
    if (NULL != csv && value >= 0) {
        fprintf(csv, "%.*f", digits, value);
    }
    if (NULL != csv) {
        fputc(last ? '\n' : ',', csv);
        fflush(csv);
    }
    fflush(stdout);
}

static void word(int width, const char *text)
{
    printf("%*s ", width, '\0' == *text ? "-" : text);
    if (NULL != csv) {
        fprintf(csv, "%s,", text);
    }
}

/* ---- the CUDA driver: what mem.h does not offer ------------------------------------------------------------------ */

/* FUNCTION(name, parameters); CUdeviceptr is an integer as wide as a pointer, a result of 0 is success. */
#define DRIVER_LIST                                                          \
    FUNCTION(cuCtxGetDevice, (int *device))                                  \
    FUNCTION(cuDeviceGetName, (char *name, int length, int device))          \
    FUNCTION(cuDriverGetVersion, (int *version))                             \
    FUNCTION(cuMemGetInfo_v2, (size_t * available, size_t * total))          \
    FUNCTION(cuMemHostAlloc, (void **p, size_t size, unsigned flags))        \
    FUNCTION(cuMemFreeHost, (void *p))                                       \
    FUNCTION(cuMemcpyDtoH_v2, (void *dst, uintptr_t src, size_t size))       \
    FUNCTION(cuMemcpyHtoD_v2, (uintptr_t dst, const void *src, size_t size)) \
    FUNCTION(cuStreamCreate, (void **stream, unsigned flags))                \
    FUNCTION(cuStreamDestroy_v2, (void *stream))                             \
    FUNCTION(cuStreamSynchronize, (void *stream))

#define STREAM_NON_BLOCKING 1 /* CU_STREAM_NON_BLOCKING */

static struct {
    bool there;
#define FUNCTION(name, parameters) int(*name) parameters;
    DRIVER_LIST
#undef FUNCTION
    void *stream;
} cu;

#define CU(name, ...)                                        \
    do {                                                     \
        int result_ = cu.name(__VA_ARGS__);                  \
        if (0 != result_) {                                  \
            die("%s failed: CUDA error %d", #name, result_); \
        }                                                    \
    } while (0)

/* After mem_init: the context is current. */
static void driver_open(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (NULL == lib) {
        die("no CUDA driver: %s", dlerror());
    }
#define FUNCTION(name, parameters)                           \
    if (NULL == (*(void **) &cu.name = dlsym(lib, #name))) { \
        die("the CUDA driver has no %s", #name);             \
    }
    DRIVER_LIST
#undef FUNCTION
    CU(cuStreamCreate, &cu.stream, STREAM_NON_BLOCKING);
    cu.there = true;
}

static size_t free_memory(void)
{
    size_t available = 0, total;

    if (cu.there) {
        CU(cuMemGetInfo_v2, &available, &total);
    }
    return available;
}

/* Host memory, pinned where there is a GPU. */
static void *host_alloc(size_t size)
{
    void *p = NULL;

    if (cu.there) {
        CU(cuMemHostAlloc, &p, size, 0);
    } else {
        p = malloc(size);
    }
    if (NULL == p) {
        die("no host memory for %zu bytes", size);
    }
    return p;
}

static void host_free(void *p)
{
    if (cu.there) {
        CU(cuMemFreeHost, p);
    } else {
        free(p);
    }
}

static void *device_alloc(size_t size)
{
    void *p = mem_alloc(MEM_DEVICE, size);

    if (NULL == p) {
        die("no device memory for %zu bytes", size);
    }
    return p;
}

/* ---- NCCL ------------------------------------------------------------------------------------------------------ */

typedef struct {
    char internal[128];
} nccl_id_t;

/* A result of 0 is success; communicators and windows are opaque pointers. */
#define NCCL_LIST                                                                                                  \
    FUNCTION(ncclGetVersion, (int *version))                                                                       \
    FUNCTION(ncclGetUniqueId, (nccl_id_t * id))                                                                    \
    FUNCTION(ncclCommInitRank, (void **comm, int ranks, nccl_id_t id, int number))                                 \
    FUNCTION(ncclAllReduce, (const void *in, void *out, size_t count, int type, int op, void *comm, void *stream)) \
    FUNCTION(ncclCommDestroy, (void *comm))
/* Since NCCL 2.27. */
#define NCCL_WINDOW_LIST                                                                        \
    FUNCTION(ncclMemAlloc, (void **p, size_t size))                                             \
    FUNCTION(ncclMemFree, (void *p))                                                            \
    FUNCTION(ncclCommWindowRegister, (void *comm, void *p, size_t size, void **win, int flags)) \
    FUNCTION(ncclCommWindowDeregister, (void *comm, void *win))

enum { NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8, NCCL_SUM = 0, NCCL_SYMMETRIC = 1 /* NCCL_WIN_COLL_SYMMETRIC */ };

static struct {
#define FUNCTION(name, parameters) int(*name) parameters;
    NCCL_LIST
    NCCL_WINDOW_LIST
#undef FUNCTION
    bool there, windows; /* alike on every rank */
    int version;
    void *comm;
    void *in, *out, *in_window, *out_window; /* symmetric buffers */
} nccl;

static bool nccl_load(void)
{
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    bool found = NULL != lib;

    if (!found) {
        return false;
    }
#define FUNCTION(name, parameters) found = NULL != (*(void **) &nccl.name = dlsym(lib, #name)) && found;
    NCCL_LIST
    if (!found || 0 != nccl.ncclGetVersion(&nccl.version)) {
        return false;
    }
    NCCL_WINDOW_LIST
#undef FUNCTION
    nccl.windows = found;
    return true;
}

/* A communicator and its first call, timed; collective. Says so where NCCL refuses. */
static void nccl_first(const void *in, void *out)
{
    nccl_id_t id;
    size_t before;
    double start, init = 0, first = 0;
    int rc;

    memset(&id, 0, sizeof(id));
    MPI_Barrier(world);
    before = free_memory();
    MPI_Barrier(world);
    start = MPI_Wtime();
    rc = 0 == rank ? nccl.ncclGetUniqueId(&id) : 0;
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, world);
    nccl.there = all_agree(0 == rc);
    if (nccl.there) {
        rc = nccl.ncclCommInitRank(&nccl.comm, nranks, id, rank);
        init = MPI_Wtime() - start;
        nccl.there = all_agree(0 == rc);
    }
    if (nccl.there) {
        start = MPI_Wtime();
        rc = nccl.ncclAllReduce(in, out, 2, NCCL_FLOAT32, NCCL_SUM, nccl.comm, cu.stream);
        CU(cuStreamSynchronize, cu.stream);
        first = MPI_Wtime() - start;
        nccl.there = all_agree(0 == rc);
    }
    if (!nccl.there) {
        comment("NCCL cannot be used: it ended with its error %.0f", max_of_all(rc));
        return;
    }
    MPI_Barrier(world);
    init = max_of_all(init) * 1e3;
    first = max_of_all(first) * 1e3;
    comment("NCCL: ncclCommInitRank %.1f ms + first call %.1f ms = %.1f ms, GPU memory taken %.1f MiB a GPU", init,
            first, init + first, max_of_all(((double) before - (double) free_memory()) / 1048576));
}

/* Buffers in windows; without them the column stays empty. */
static void nccl_windows_open(size_t size)
{
    bool ok = all_agree(nccl.windows);

    ok = ok && all_agree(0 == nccl.ncclMemAlloc(&nccl.in, size));
    ok = ok && all_agree(0 == nccl.ncclMemAlloc(&nccl.out, size));
    ok = ok && all_agree(0 == nccl.ncclCommWindowRegister(nccl.comm, nccl.in, size, &nccl.in_window, NCCL_SYMMETRIC));
    ok = ok && all_agree(0 == nccl.ncclCommWindowRegister(nccl.comm, nccl.out, size, &nccl.out_window, NCCL_SYMMETRIC));
    nccl.windows = ok && all_agree(NULL != nccl.in_window && NULL != nccl.out_window);
    if (!nccl.windows) {
        comment("this NCCL has no symmetric windows, or refuses them here");
    }
}

static void nccl_open(const void *in, void *out, size_t size)
{
    bool wanted = cu.there && !opt.no_nccl;

    nccl.there = wanted && all_agree(nccl_load());
    if (!nccl.there) {
        nccl.windows = false;
        comment("NCCL: %s", wanted ? "libnccl.so.2 was not found" : "not asked for, or no GPU");
        return;
    }
    comment("NCCL version %d", nccl.version);
    nccl_first(in, out);
    if (nccl.there) {
        nccl_windows_open(size);
    } else {
        nccl.windows = false;
    }
}

static void nccl_close(void)
{
    if (nccl.windows) {
        nccl.ncclCommWindowDeregister(nccl.comm, nccl.in_window);
        nccl.ncclCommWindowDeregister(nccl.comm, nccl.out_window);
        nccl.ncclMemFree(nccl.in);
        nccl.ncclMemFree(nccl.out);
    }
    if (nccl.there) {
        nccl.ncclCommDestroy(nccl.comm);
    }
}

/* ---- gpusym's performance variables: which algorithm ran ----------------------------------------------------------
 */

#define PREFIX "coll_gpusym_allreduce_"
#define COUNTERS_MAX 64

static struct {
    char name[128]; /* behind PREFIX */
    MPI_T_pvar_handle handle;
    unsigned long long before;
} counters[COUNTERS_MAX];
static int ncounters;
static MPI_T_pvar_session session;

static void counters_open(void)
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
            0 == strncmp(name, PREFIX, strlen(PREFIX)) && MPI_UNSIGNED_LONG_LONG == type &&
            MPI_SUCCESS == MPI_T_pvar_handle_alloc(session, i, NULL, &counters[ncounters].handle, &count)) {
            snprintf(counters[ncounters].name, sizeof(counters[ncounters].name), "%s", name + strlen(PREFIX));
            ncounters++;
        }
    }
}

static void counters_start(void)
{
    for (int i = 0; i < ncounters; i++) {
        MPI_T_pvar_read(session, counters[i].handle, &counters[i].before);
    }
}

/* What has risen since counters_start: "agxll_r", "staged:mixed", several with + between them. */
static void counters_say(char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < ncounters && used < size; i++) {
        unsigned long long now = counters[i].before;
        const char *name = counters[i].name;
        bool staged = 0 == strncmp(name, "staged_", 7);

        MPI_T_pvar_read(session, counters[i].handle, &now);
        if (now > counters[i].before && (staged || 0 == strncmp(name, "native_", 7))) {
            used += (size_t) snprintf(text + used, size - used, "%s%s%s", used > 0 ? "+" : "", staged ? "staged:" : "",
                                      name + 7);
        }
    }
}

/* ---- inputs and results: whole numbers -8..7, so that sums are exact in any order ------------------------------ */

static uint32_t input_seed; /* another one for every size */
static void *piece;         /* PIECE bytes of host memory */

static size_t element_bytes(void)
{
    return opt.is_double ? sizeof(double) : sizeof(float);
}

/* 32 random bits of element i: 4 for each rank of a group of eight. */
static uint32_t bits_of(size_t i, int group)
{
    uint32_t h = ((uint32_t) i + (uint32_t) group * 0x51ed270bu) * 0x9e3779b1u + input_seed;

    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    return h ^ (h >> 16);
}

static int nibble(uint32_t bits, int r)
{
    return (int) (bits >> (4 * (r % 8)) & 15) - 8;
}

static int input_of(size_t i, int r)
{
    return nibble(bits_of(i, r / 8), r);
}

static int sum_of(size_t i)
{
    uint32_t bits = 0;
    int sum = 0;

    for (int r = 0; r < nranks; r++) {
        bits = 0 == r % 8 ? bits_of(i, r / 8) : bits;
        sum += nibble(bits, r);
    }
    return sum;
}

static void fill(char *in, size_t bytes)
{
    const size_t most = PIECE / element_bytes(), all = bytes / element_bytes();

    for (size_t first = 0, n; first < all; first += n) {
        n = all - first < most ? all - first : most;
        for (size_t i = 0; i < n; i++) {
            if (opt.is_double) {
                ((double *) piece)[i] = input_of(first + i, rank);
            } else {
                ((float *) piece)[i] = (float) input_of(first + i, rank);
            }
        }
        mem_write(in + first * element_bytes(), piece, n * element_bytes());
    }
}

/* NaNs everywhere: what is not written cannot look right. */
static void poison(char *out, size_t bytes)
{
    memset(piece, 0xff, PIECE);
    for (size_t at = 0; at < bytes; at += PIECE) {
        mem_write(out + at, piece, bytes - at < PIECE ? bytes - at : PIECE);
    }
}

/* Elements on this rank that are not what they must be. */
static unsigned long long count_wrong(const char *out, size_t bytes)
{
    const size_t most = PIECE / element_bytes(), all = bytes / element_bytes();
    unsigned long long wrong = 0;

    for (size_t first = 0, n; first < all; first += n) {
        n = all - first < most ? all - first : most;
        mem_read(piece, out + first * element_bytes(), n * element_bytes());
        for (size_t i = 0; i < n; i++) {
            double got = opt.is_double ? ((const double *) piece)[i] : (double) ((const float *) piece)[i];
            wrong += !(got == sum_of(first + i));
        }
    }
    return wrong;
}

/* ---- the four ways ----------------------------------------------------------------------------------------------- */

static void *host_in, *host_out; /* of staging, STAGED_MAX bytes or less */

static void by_mpi(const void *in, void *out, size_t count)
{
    MPI_Allreduce(in, out, (int) count, opt.is_double ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void by_nccl(const void *in, void *out, size_t count)
{
    int rc =
        nccl.ncclAllReduce(in, out, count, opt.is_double ? NCCL_FLOAT64 : NCCL_FLOAT32, NCCL_SUM, nccl.comm, cu.stream);

    if (0 != rc) {
        die("ncclAllReduce failed: NCCL error %d", rc);
    }
    CU(cuStreamSynchronize, cu.stream);
}

static void by_host(const void *in, void *out, size_t count)
{
    size_t bytes = count * element_bytes();

    if (cu.there) {
        CU(cuMemcpyDtoH_v2, host_in, (uintptr_t) in, bytes);
    } else {
        mem_read(host_in, in, bytes);
    }
    by_mpi(host_in, host_out, count);
    if (cu.there) {
        CU(cuMemcpyHtoD_v2, (uintptr_t) out, host_out, bytes);
    } else {
        mem_write(out, host_out, bytes);
    }
}

enum { GPUSYM, NCCL, NCCL_WINDOWS, STAGED, WAYS };

typedef struct {
    void (*call)(const void *in, void *out, size_t count);
    const char *name;
    void *in, *out;
    size_t max; /* bytes; 0: not available */
} way_t;

typedef struct {
    double us;                /* of one call; -1: not measured */
    unsigned long long wrong; /* elements, both checks, all ranks */
    char ran[128];            /* gpusym's algorithm, as rank 0 counted */
} result_t;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}

/* Before anything is measured: clocks and caches come out of idleness, else the first row pays for that. */
static void warm_up(const way_t *w)
{
    const double start = MPI_Wtime();

    while (max_of_all(MPI_Wtime() - start) < WARM_UP_SECONDS) {
        for (int i = 0; i < CALLS_MAX; i++) {
            w->call(w->in, w->out, 1);
        }
    }
}

/* Calls of a batch, from the time of a few; alike on every rank. */
static int calls_of_a_batch(const way_t *w, size_t count)
{
    double seconds, calls;

    MPI_Barrier(world);
    seconds = MPI_Wtime();
    for (int i = 0; i < CALLS_MIN; i++) {
        w->call(w->in, w->out, count);
    }
    seconds = max_of_all(MPI_Wtime() - seconds) / CALLS_MIN;
    calls = BATCH_SECONDS / (seconds > 1e-9 ? seconds : 1e-9);
    return calls < CALLS_MIN ? CALLS_MIN : calls > CALLS_MAX ? CALLS_MAX : (int) calls;
}

/* Median over the batches of the time of one call, in seconds.  The output is poisoned before the last batch, so
 * that the check that follows sees what timed calls have written. */
static double timed(const way_t *w, size_t bytes)
{
    const size_t count = bytes / element_bytes();
    const int calls = calls_of_a_batch(w, count);
    double seconds[BATCHES_MAX] = {0};

    for (int b = 0; b < opt.batches; b++) {
        if (opt.batches - 1 == b) {
            poison(w->out, bytes);
        }
        MPI_Barrier(world);
        seconds[b] = MPI_Wtime();
        for (int i = 0; i < calls; i++) {
            w->call(w->in, w->out, count);
        }
        seconds[b] = (MPI_Wtime() - seconds[b]) / calls;
    }
    qsort(seconds, (size_t) opt.batches, sizeof(double), ascending);
    return seconds[opt.batches / 2];
}

/* Collective.  The input is in w->in. */
static result_t measure(const way_t *w, size_t bytes)
{
    result_t result = {.us = -1};
    unsigned long long wrong;

    if (bytes > w->max) {
        return result;
    }
    poison(w->out, bytes);
    MPI_Barrier(world);
    counters_start();
    w->call(w->in, w->out, bytes / element_bytes());
    wrong = count_wrong(w->out, bytes);
    result.us = max_of_all(timed(w, bytes)) * 1e6;
    counters_say(result.ran, sizeof(result.ran));
    wrong += count_wrong(w->out, bytes);
    MPI_Reduce(&wrong, &result.wrong, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, world);
    MPI_Bcast(&result.wrong, 1, MPI_UNSIGNED_LONG_LONG, 0, world);
    if (result.wrong > 0 && 0 == rank) {
        fprintf(stderr, "WRONG: %s, %zu bytes: %llu elements\n", w->name, bytes, result.wrong);
    }
    return result;
}

/* GB/s that every GPU must move at least, as NCCL's tests count. */
static double bus_bandwidth(size_t bytes, double us)
{
    return (double) bytes * 2 * (nranks - 1) / nranks / us / 1e3;
}

/* ---- the table ----------------------------------------------------------------------------------------------------
 */

static double faster(double a, double b)
{
    return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}

/* Returns the wrong elements of every way. */
static unsigned long long one_size(const way_t *ways, size_t bytes)
{
    result_t r[WAYS];
    unsigned long long wrong = 0;
    double best;

    input_seed = (uint32_t) (bytes * 2654435761u) ^ 0x2545f491u;
    fill(ways[GPUSYM].in, bytes);
    if (bytes <= ways[NCCL_WINDOWS].max) {
        mem_write(ways[NCCL_WINDOWS].in, ways[GPUSYM].in, bytes);
    }
    for (int w = 0; w < WAYS; w++) {
        r[w] = measure(&ways[w], bytes);
        wrong += r[w].wrong;
    }
    if (0 == rank) {
        best = faster(r[NCCL].us, r[NCCL_WINDOWS].us);
        cell(11, 0, (double) bytes, false);
        cell(10, 2, r[GPUSYM].us, false);
        cell(9, 2, bus_bandwidth(bytes, r[GPUSYM].us), false);
        cell(10, 2, r[NCCL].us, false);
        cell(10, 2, r[NCCL_WINDOWS].us, false);
        cell(11, 2, r[STAGED].us, false);
        cell(6, 2, best < 0 ? -1 : best / r[GPUSYM].us, false);
        word(12, r[GPUSYM].ran);
        cell(6, 0, (double) r[GPUSYM].wrong, true);
    }
    return wrong;
}

static unsigned long long table(const way_t *ways)
{
    unsigned long long wrong = 0;

    if (0 == rank) {
        printf("%11s %10s %9s %10s %10s %11s %6s %12s %6s\n", "bytes", "gpusym us", "GB/s", "NCCL us", "NCCLsym us",
               "staged us", "ratio", "algorithm", "wrong");
        if (NULL != csv) {
            fputs("bytes,gpusym_us,gpusym_busbw_GBs,nccl_us,nccl_symmetric_us,staged_us,best_nccl_over_gpusym,"
                  "algorithm,wrong\n",
                  csv);
        }
    }
    for (int w = 0; w < WAYS; w++) {
        if (ways[w].max > 0) {
            warm_up(&ways[w]);
        }
    }
    for (size_t bytes = opt.min; bytes <= opt.max;) {
        wrong += one_size(ways, bytes);
        if (bytes < opt.max && bytes > opt.max / opt.step) { /* the largest asked for is always measured */
            bytes = opt.max;
        } else {
            bytes *= opt.step;
        }
    }
    return wrong;
}

/* ---- the sweep ------------------------------------------------------------------------------------------------------
 */

enum { ALGORITHM, BLOCKS, THREADS, VARIABLES };
static const char *const variable_names[VARIABLES] = {"coll_gpusym_allreduce_algorithm", "coll_gpusym_blocks",
                                                      "coll_gpusym_threads"};

static struct {
    MPI_T_cvar_handle handle;
    MPI_T_enum choices;
} variables[VARIABLES];

/* The value of a name in an enumerated variable; -1 if it has no such value. */
static bool choice_value(MPI_T_enum choices, const char *wanted, int *value)
{
    char name[128];
    int n, length;

    if (MPI_T_ENUM_NULL == choices || MPI_SUCCESS != MPI_T_enum_get_info(choices, &n, NULL, &(int){0})) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        length = sizeof(name);
        if (MPI_SUCCESS == MPI_T_enum_get_item(choices, i, value, name, &length) && 0 == strcmp(name, wanted)) {
            return true;
        }
    }
    return false;
}

static void variable_open(int v)
{
    char name[128];
    int index, length = sizeof(name), verbosity, bind, scope, count;
    MPI_Datatype type;

    if (MPI_SUCCESS != MPI_T_cvar_get_index(variable_names[v], &index) ||
        MPI_SUCCESS != MPI_T_cvar_get_info(index, name, &length, &verbosity, &type, &variables[v].choices, NULL, NULL,
                                           &bind, &scope) ||
        MPI_SUCCESS != MPI_T_cvar_handle_alloc(index, NULL, &variables[v].handle, &count)) {
        die("there is no control variable %s", variable_names[v]);
    }
    if (MPI_INT != type) {
        die("%s is not of type int", variable_names[v]);
    }
}

/* On every rank; -1: left as it is.  Returns whether MPI_T has set it, and reads it back to see. */
static bool variable_set(int v, int value)
{
    int now = ~value, rc = MPI_T_cvar_write(variables[v].handle, &value);

    if (MPI_SUCCESS == rc) {
        rc = MPI_T_cvar_read(variables[v].handle, &now);
    }
    if (!all_agree(MPI_SUCCESS == rc && now == value)) {
        comment("%s cannot be set by MPI_T here (error %d): give --mca parameters, a run for each combination",
                variable_names[v], rc);
        return false;
    }
    return true;
}

static bool combination_set(const char *algorithm, int blocks, int threads)
{
    int value = 0;

    if (NULL != algorithm && !choice_value(variables[ALGORITHM].choices, algorithm, &value)) {
        die("%s has no value %s", variable_names[ALGORITHM], algorithm);
    }
    return (NULL == algorithm || variable_set(ALGORITHM, value)) && (blocks < 0 || variable_set(BLOCKS, blocks)) &&
           (threads < 0 || variable_set(THREADS, threads));
}

/* Where no algorithm was asked for, what ran is shown. */
static unsigned long long one_combination(const way_t *w, size_t bytes, const char *algorithm, int blocks, int threads)
{
    result_t r = measure(w, bytes);

    if (0 == rank) {
        cell(11, 0, (double) bytes, false);
        word(12, NULL == algorithm ? "" : algorithm);
        word(12, r.ran);
        cell(6, 0, blocks, false);
        cell(7, 0, threads, false);
        cell(10, 2, r.us, false);
        cell(9, 2, bus_bandwidth(bytes, r.us), false);
        cell(6, 0, (double) r.wrong, true);
        if (NULL != algorithm && 0 != strcmp(algorithm, "auto") && NULL == strstr(r.ran, algorithm)) {
            comment("asked for %s, but %s ran", algorithm, r.ran);
        }
    }
    return r.wrong;
}

/* Returns false where the parameters cannot be set. */
static bool sweep(const way_t *w, unsigned long long *wrong)
{
    for (int v = 0; v < VARIABLES; v++) {
        variable_open(v);
    }
    if (0 == rank) {
        printf("%11s %12s %12s %6s %7s %10s %9s %6s\n", "bytes", "asked", "ran", "blocks", "threads", "us", "GB/s",
               "wrong");
        if (NULL != csv) {
            fputs("bytes,asked,ran,blocks,threads,us,busbw_GBs,wrong\n", csv);
        }
    }
    warm_up(w);
    for (int i = 0; i < opt.nbytes; i++) {
        input_seed = (uint32_t) (opt.bytes[i] * 2654435761u) ^ 0x2545f491u;
        fill(w->in, opt.bytes[i]);
        for (int c = 0; c < opt.nalgorithms * opt.nblocks * opt.nthreads; c++) {
            const char *algorithm = opt.algorithms[c / (opt.nblocks * opt.nthreads)];
            int blocks = opt.blocks[c / opt.nthreads % opt.nblocks], threads = opt.threads[c % opt.nthreads];

            if (!combination_set(algorithm, blocks, threads)) {
                return false;
            }
            *wrong += one_combination(w, opt.bytes[i], algorithm, blocks, threads);
        }
    }
    return true;
}

/* ---- options and the whole --------------------------------------------------------------------------------------- */

static size_t number(const char *text)
{
    char *end;
    size_t n = strtoull(text, &end, 10);

    if (end == text || NULL == strchr("kmg", '\0' == *end ? 'k' : *end) || ('\0' != *end && '\0' != end[1])) {
        die("%s is not a number\n%s", text, USAGE);
    }
    return 'k' == *end ? n << 10 : 'm' == *end ? n << 20 : 'g' == *end ? n << 30 : n;
}

/* Cuts a list at its commas, in place; returns how many. */
static int cut(char *list, const char *items[LIST_MAX])
{
    int n = 0;

    for (char *item = strtok(list, ","); NULL != item; item = strtok(NULL, ",")) {
        if (LIST_MAX == n) {
            die("more than %d items in a list", LIST_MAX);
        }
        items[n++] = item;
    }
    if (0 == n) {
        die("an empty list\n%s", USAGE);
    }
    return n;
}

static int numbers(char *list, int values[LIST_MAX])
{
    const char *items[LIST_MAX];
    int n = cut(list, items);

    for (int i = 0; i < n; i++) {
        size_t value = number(items[i]);
        if (value > INT_MAX) {
            die("%s is too large", items[i]);
        }
        values[i] = (int) value;
    }
    return n;
}

static void byte_list(char *list)
{
    const char *items[LIST_MAX];

    opt.nbytes = cut(list, items);
    for (int i = 0; i < opt.nbytes; i++) {
        opt.bytes[i] = number(items[i]);
        opt.max = opt.bytes[i] > opt.max ? opt.bytes[i] : opt.max;
    }
}

static void option(int c, char *value)
{
    switch (c) {
    case 'd':
        opt.device = value;
        break;
    case 'm':
        opt.min = number(value);
        break;
    case 'M':
        opt.max = number(value);
        break;
    case 's':
        opt.step = number(value);
        break;
    case 'n':
        opt.batches = (int) number(value);
        break;
    case 'N':
        opt.no_nccl = true;
        break;
    case 'H':
        opt.no_staged = true;
        break;
    case 'c':
        opt.csv = value;
        break;
    case 'S':
        opt.sweep = true;
        break;
    case 'b':
        byte_list(value);
        break;
    case 'a':
        opt.nalgorithms = cut(value, opt.algorithms);
        break;
    case 'B':
        opt.nblocks = numbers(value, opt.blocks);
        break;
    case 'T':
        opt.nthreads = numbers(value, opt.threads);
        break;
    case 't':
        opt.is_double = 0 == strcmp(value, "double");
        if (!opt.is_double && 0 != strcmp(value, "float")) {
            die("--type %s: float or double", value);
        }
        break;
    default:
        die("usage: %s", USAGE);
    }
}

static void check_sizes(void)
{
    size_t e = element_bytes();

    opt.max = 0 == opt.max ? (0 == strcmp(opt.device, "cuda") ? MAX_CUDA : MAX_OTHER) : opt.max;
    if (opt.min < e || opt.max < opt.min || 0 != opt.min % e || 0 != opt.max % e || opt.step < 2 ||
        opt.max / e > INT_MAX || opt.batches < BATCHES_MIN || opt.batches > BATCHES_MAX) {
        die("sizes are multiples of %zu bytes, --min at least one, --max at least --min and at most %d elements; "
            "--step "
            "is at least 2, --batches %d to %d",
            e, INT_MAX, BATCHES_MIN, BATCHES_MAX);
    }
    for (int i = 0; i < opt.nbytes; i++) {
        if (0 == opt.bytes[i] || 0 != opt.bytes[i] % e) {
            die("--bytes: multiples of %zu", e);
        }
    }
    if (opt.sweep != (opt.nbytes > 0)) {
        die("--sweep and --bytes go together\n%s", USAGE);
    }
}

static void options(int argc, char **argv)
{
    static const struct option all[] = {
        {"device", 1, NULL, 'd'}, {"min", 1, NULL, 'm'},     {"max", 1, NULL, 'M'},     {"step", 1, NULL, 's'},
        {"type", 1, NULL, 't'},   {"batches", 1, NULL, 'n'}, {"no-nccl", 0, NULL, 'N'}, {"no-staged", 0, NULL, 'H'},
        {"csv", 1, NULL, 'c'},    {"sweep", 0, NULL, 'S'},   {"bytes", 1, NULL, 'b'},   {"algorithms", 1, NULL, 'a'},
        {"blocks", 1, NULL, 'B'}, {"threads", 1, NULL, 'T'}, {NULL, 0, NULL, 0}};

    for (int c; - 1 != (c = getopt_long(argc, argv, "", all, NULL));) {
        option(c, optarg);
    }
    if (optind < argc) {
        die("what is %s?\nusage: %s", argv[optind], USAGE);
    }
    check_sizes();
}

/* What the figures were measured on: comment lines at the top. argc and argv as they were before getopt_long. */
static void describe(const char *command_line)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING], gpu[100] = "none (simulator)", driver[200] = "";
    time_t now = time(NULL);
    int n, device, cuda = 0;
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    const char *commit = getenv("GPUSYM_COMMIT");

    if (NULL != f) {
        if (NULL != fgets(driver, sizeof(driver), f)) {
            driver[strcspn(driver, "\n")] = '\0';
        }
        fclose(f);
    }
    if (cu.there) {
        CU(cuCtxGetDevice, &device);
        CU(cuDeviceGetName, gpu, (int) sizeof(gpu), device);
        CU(cuDriverGetVersion, &cuda);
    }
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", gmtime(&now));
    comment("allreduce_nccl: %s sum out of place, blocking, %d ranks", opt.is_double ? "float64" : "float32", nranks);
    comment("date: %s", text);
    comment("GPU of rank 0: %s", gpu);
    comment("driver: %s, CUDA %d.%d", '\0' == *driver ? "-" : driver, cuda / 1000, cuda % 1000 / 10);
    MPI_Get_library_version(text, &n);
    text[strcspn(text, "\n")] = '\0';
    comment("MPI: %s", text);
    comment("command line: %s", command_line);
    comment("commit: %s", NULL == commit || '\0' == *commit ? "-" : commit);
}

/* The first call on device memory: it sets up all that gpusym needs. */
static void first_call(const void *in, void *out)
{
    size_t before;
    double seconds;

    MPI_Barrier(MPI_COMM_WORLD);
    before = free_memory();
    MPI_Barrier(world);
    seconds = MPI_Wtime();
    MPI_Allreduce(in, out, 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    seconds = max_of_all(MPI_Wtime() - seconds);
    MPI_Barrier(world);
    comment("gpusym: first call %.1f ms, GPU memory taken %.1f MiB a GPU", seconds * 1e3,
            max_of_all(((double) before - (double) free_memory()) / 1048576));
}

static int rank_on_host(void)
{
    MPI_Comm host;
    int number_there;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &number_there);
    MPI_Comm_free(&host);
    return number_there;
}

/* All measurements; returns the exit status. */
static int run(const char *command_line)
{
    const size_t staged = opt.no_staged || opt.sweep ? 0 : opt.max < STAGED_MAX ? opt.max : STAGED_MAX;
    void *in = device_alloc(opt.max), *out = device_alloc(opt.max);
    unsigned long long wrong = 0;
    bool done = true;

    piece = host_alloc(PIECE);
    host_in = host_alloc(staged + 1);
    host_out = host_alloc(staged + 1);
    describe(command_line);
    fill(in, 8); /* two numbers for the first calls */
    first_call(in, out);
    if (!opt.sweep) {
        nccl_open(in, out, opt.max);
    }
    const way_t ways[WAYS] = {
        [GPUSYM] = {by_mpi, "gpusym", in, out, opt.max},
        [NCCL] = {by_nccl, "NCCL", in, out, nccl.there ? opt.max : 0},
        [NCCL_WINDOWS] = {by_nccl, "NCCL symmetric", nccl.in, nccl.out, nccl.windows ? opt.max : 0},
        [STAGED] = {by_host, "staged", in, out, staged},
    };
    if (opt.sweep) {
        done = sweep(&ways[GPUSYM], &wrong);
    } else {
        wrong = table(ways);
    }
    comment("%s", !done ? "not done" : 0 == wrong ? "every element of every result is right" : "WRONG RESULTS");
    nccl_close();
    host_free(host_out);
    host_free(host_in);
    host_free(piece);
    mem_free(MEM_DEVICE, out);
    mem_free(MEM_DEVICE, in);
    return !done ? NOT_SETTABLE : 0 == wrong ? 0 : 1;
}

int main(int argc, char **argv)
{
    char command_line[512] = "";
    int status;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    for (int i = 0; i < argc; i++) {
        const char *slash = 0 == i ? strrchr(argv[0], '/') : NULL;
        size_t used = strlen(command_line);
        snprintf(command_line + used, sizeof(command_line) - used, "%s%s", 0 == i ? "" : " ",
                 NULL == slash ? argv[i] : slash + 1);
    }
    options(argc, argv);
    if (0 != mem_init(opt.device, rank_on_host()) || !mem_have(MEM_DEVICE)) {
        die("no device \"%s\" here (--device cuda or --device sim)", opt.device);
    }
    if (0 == strcmp(opt.device, "cuda")) {
        driver_open();
    }
    if (0 == rank && NULL != opt.csv && NULL == (csv = fopen(opt.csv, "w"))) {
        die("%s cannot be written", opt.csv);
    }
    counters_open();
    if (0 == ncounters) {
        die("gpusym was not selected by this mpirun: add --mca coll gpusym, and see that it is in the component path");
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    status = run(command_line);
    if (NULL != csv) {
        fclose(csv);
    }
    MPI_Comm_free(&world);
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    if (cu.there) {
        CU(cuStreamDestroy_v2, cu.stream);
    }
    mem_fini();
    MPI_Finalize();
    return status;
}
