/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * NCCL's start and end: see nccl.h.
 */
#include <dlfcn.h>
#include <string.h>

#include "bench/memory.h"
#include "bench/nccl.h"
#include "bench/output.h"
#include "bench/ranks.h"

#define SYMMETRIC 1 /* NCCL_WIN_COLL_SYMMETRIC */

bench_nccl_t bench_nccl;

static void *in_window, *out_window;

void bench_nccl_check(const char *call, int result)
{
    if (0 != result) {
        bench_die("%s failed: NCCL error %d", call, result);
    }
}

/* Sets version; returns whether NCCL is there. */
static bool load_library(int *version)
{
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    bool found = NULL != lib;

    if (!found) {
        return false;
    }
#define BENCH_NCCL(name, parameters) found = NULL != (*(void **) &bench_nccl.name = dlsym(lib, #name)) && found;
    BENCH_NCCL_LIST
    if (!found || 0 != bench_nccl.ncclGetVersion(version)) {
        return false;
    }
    BENCH_NCCL_WINDOW_LIST
    bench_nccl.windows = found;
    BENCH_NCCL_NEW_LIST
#undef BENCH_NCCL
    return true;
}

/* Makes the communicator; seconds: how long that took. Returns NCCL's result, on any rank. */
static int make_communicator(double *seconds)
{
    const double start = MPI_Wtime();
    bench_nccl_id_t id;
    int rc;

    memset(&id, 0, sizeof(id));
    rc = 0 == bench_rank ? bench_nccl.ncclGetUniqueId(&id) : 0;
    bench_share(&id, sizeof(id));
    if (bench_agree(0 == rc)) {
        rc = bench_nccl.ncclCommInitRank(&bench_nccl.comm, bench_ranks, id, bench_rank);
        *seconds = MPI_Wtime() - start;
    }
    return (int) bench_max(rc);
}

static int time_first_call(const void *in, void *out, double *seconds)
{
    const double start = MPI_Wtime();
    int rc = bench_nccl.ncclAllReduce(in, out, 2, BENCH_NCCL_FLOAT32, BENCH_NCCL_SUM, bench_nccl.comm, bench_cu.stream);

    BENCH_CU(cuStreamSynchronize, bench_cu.stream);
    *seconds = MPI_Wtime() - start;
    return (int) bench_max(rc);
}

/* A communicator and its first call, timed. Says so where NCCL refuses. */
static void make_first_call(const void *in, void *out)
{
    size_t before;
    double init = 0, call = 0;
    int rc;

    MPI_Barrier(bench_world);
    before = bench_free_memory();
    MPI_Barrier(bench_world);
    rc = make_communicator(&init);
    if (0 == rc) {
        rc = time_first_call(in, out, &call);
    }
    bench_nccl.there = 0 == rc;
    if (!bench_nccl.there) {
        bench_comment("NCCL cannot be used: NCCL error %d", rc);
        return;
    }
    MPI_Barrier(bench_world);
    init = bench_max(init) * 1e3;
    call = bench_max(call) * 1e3;
    bench_fact("nccl_init_ms", init);
    bench_fact("nccl_first_call_ms", call);
    bench_fact("nccl_memory_MiB", bench_max(((double) before - (double) bench_free_memory()) / 1048576));
}

/* One buffer in a window; false where any rank has none. */
static bool make_window(void **buffer, void **win, size_t size)
{
    return bench_agree(0 == bench_nccl.ncclMemAlloc(buffer, size)) &&
           bench_agree(0 == bench_nccl.ncclCommWindowRegister(bench_nccl.comm, *buffer, size, win, SYMMETRIC)) &&
           bench_agree(NULL != *win);
}

void bench_nccl_open(const void *in, void *out, size_t size, bool wanted)
{
    int version = 0;

    wanted = bench_cu.there && wanted;
    bench_nccl.there = wanted && bench_agree(load_library(&version));
    if (!bench_nccl.there) {
        bench_nccl.windows = false;
        bench_comment("NCCL: %s", wanted ? "libnccl.so.2 was not found" : "not requested, or no GPU");
        return;
    }
    bench_comment("NCCL version %d%s", version,
                  NULL == bench_nccl.ncclAlltoAll ? ", alltoall by ncclSend and ncclRecv" : "");
    make_first_call(in, out);
    bench_nccl.windows = size > 0 && bench_nccl.there && bench_agree(bench_nccl.windows) &&
                         make_window(&bench_nccl.in, &in_window, size) &&
                         make_window(&bench_nccl.out, &out_window, size);
    if (size > 0 && bench_nccl.there && !bench_nccl.windows) {
        bench_comment("this NCCL has no symmetric windows, or refuses them here");
    }
}

void bench_nccl_close(void)
{
    if (bench_nccl.windows) {
        bench_nccl.ncclCommWindowDeregister(bench_nccl.comm, in_window);
        bench_nccl.ncclCommWindowDeregister(bench_nccl.comm, out_window);
        bench_nccl.ncclMemFree(bench_nccl.in);
        bench_nccl.ncclMemFree(bench_nccl.out);
    }
    if (bench_nccl.there) {
        bench_nccl.ncclCommDestroy(bench_nccl.comm);
    }
}
