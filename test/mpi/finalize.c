/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI_Finalize at odd times and with things left over, after collectives of every way on device memory: no crash, no
 * hang.
 *
 *     finalize MODE
 *
 * atexit: from a handler of atexit; destructor: from one of the program; thread: from another thread, after the one
 * that made the calls has ended; never: not at all; left: with MPI_Alloc_mem's memory, a window and an inactive
 * persistent request; reset: after cuDevicePrimaryCtxReset, which is cudaDeviceReset; reset-again: and the program has
 * a context again. The last two only differ from plain on a GPU.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/mem.h"
#include "test/mpi/persistent.h"

enum { COUNT = 4000, LARGE = 400000 };

static int rank, n;
static const char *mode;

static bool is(const char *what)
{
    return 0 == strcmp(mode, what);
}

static void finish(void)
{
    MPI_Finalize();
    if (0 == rank) {
        printf("finalize: %s: 1 passed, 0 failed\n", mode);
        fflush(stdout);
    }
}

static void __attribute__((destructor)) at_the_end(void)
{
    if (NULL != mode && is("destructor")) {
        finish();
    }
}

static void need(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "finalize: FAIL on rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void sum(int *in, int *out, int count)
{
    int first = rank, got = -1;
    mem_write(in, &first, sizeof first);
    need(MPI_SUCCESS == MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
    mem_read(&got, out, sizeof got);
    need(got == n * (n - 1) / 2, "a wrong sum");
}

/* Outside of the function: left to MPI_Finalize it is in use, not leaked. */
static MPI_Request request;

/* Lanes, a resident kernel, graphs, mapped buffers, scratch and pinned memory: what close has to let go of. */
static void *calls(void *unused)
{
    int *in = mem_alloc(MEM_DEVICE, LARGE * sizeof(int)), *out = mem_alloc(MEM_DEVICE, LARGE * sizeof(int));
    MPI_Datatype rows, types[64];
    int counts[64], displs[64];

    (void) unused;
    need(NULL != in && NULL != out && n <= 64, "no memory");
    sum(in, out, LARGE);
    MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Type_vector(100, 3, 7, MPI_INT, &rows);
    MPI_Type_commit(&rows);
    MPI_Bcast(in, 1, rows, 0, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) { /* staged */
        counts[i] = 1;
        displs[i] = 4 * i;
        types[i] = MPI_INT;
    }
    MPI_Alltoallw(in, counts, displs, types, out, counts, displs, types, MPI_COMM_WORLD);
    PERSISTENT_INIT(Allreduce)(in, out, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int i = 0; i < 3; i++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (!is("left")) {
        MPI_Request_free(&request);
        MPI_Type_free(&rows);
    }
    for (int i = 0; i < 20; i++) {
        sum(in, out, 8);
    }
    if (!is("left") && !is("never")) {
        mem_free(MEM_DEVICE, in);
        mem_free(MEM_DEVICE, out);
    }
    return NULL;
}

static void leave(void)
{
    MPI_Info info;
    MPI_Win win;
    void *p, *q;

    MPI_Info_create(&info);
    MPI_Info_set(info, "mpool_hints", "mpool=gpusym");
    MPI_Alloc_mem(1 << 20, info, &p);
    MPI_Win_allocate(1 << 16, 1, info, MPI_COMM_WORLD, &q, &win);
    MPI_Info_free(&info);
}

/* The program's own end of its primary context, and of all that is in it. */
static void reset(bool again)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    int (*device_get)(int *, int), (*device_reset)(int), (*retain)(void **, int), dev;
    void *ctx;

    if (NULL == lib) {
        return; /* the simulator */
    }
    *(void **) &device_get = dlsym(lib, "cuDeviceGet");
    *(void **) &device_reset = dlsym(lib, "cuDevicePrimaryCtxReset_v2");
    *(void **) &retain = dlsym(lib, "cuDevicePrimaryCtxRetain");
    need(NULL != device_get && NULL != device_reset && NULL != retain, "an entry point of the driver");
    need(0 == device_get(&dev, mem_gpu()) && 0 == device_reset(dev), "cuDevicePrimaryCtxReset");
    need(!again || 0 == retain(&ctx, dev), "cuDevicePrimaryCtxRetain");
}

static void *finish_in_thread(void *unused)
{
    (void) unused;
    finish();
    return NULL;
}

int main(int argc, char **argv)
{
    const char *device = getenv("GPUSYM_TEST_DEVICE");
    pthread_t thread;
    int level;

    mode = argc > 1 ? argv[1] : "plain";
    MPI_Init_thread(&argc, &argv, is("thread") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    need(NULL != device && 0 == mem_init(device, rank), "no such device");
    if (is("thread")) {
        need(0 == pthread_create(&thread, NULL, calls, NULL) && 0 == pthread_join(thread, NULL), "a thread");
    } else {
        calls(NULL);
    }
    if (is("left")) {
        leave();
    }
    if (is("reset") || is("reset-again")) {
        MPI_Barrier(MPI_COMM_WORLD); /* no peer uses our memory any more */
        if (0 == strcmp("cuda", device)) {
            reset(is("reset-again"));
        }
    } else if (!is("left") && !is("never")) {
        mem_fini();
    }
    if (is("atexit")) {
        need(0 == atexit(finish), "atexit");
    } else if (is("thread")) {
        need(0 == pthread_create(&thread, NULL, finish_in_thread, NULL) && 0 == pthread_join(thread, NULL), "a thread");
    } else if (!is("destructor") && !is("never")) {
        finish();
    }
    return 0;
}
