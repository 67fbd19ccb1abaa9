/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The rig of the kernels' unit tests on a GPU (GPUSYM_TEST_DEVICE=cuda): all ranks' kernels run side by side on one, as
 * blocks of many threads, which they are not on the simulator. Each rank has a stream and a graph. Slots are managed
 * memory, all else is pinned host memory, so that the tests look at both as at their own.
 */
#ifndef TEST_UNIT_RIG_GPU_H
#define TEST_UNIT_RIG_GPU_H

#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/select.h"

/* All buffers of a script at a time. */
#define RIG_GPU_ARENA ((size_t) 1 << 30)
#define RIG_GPU_CLASSES 32u /* of sizes: powers of two */

static struct {
    const gpusym_device_t *dev; /* NULL: the simulator's kernels are functions of this process */
    gpusym_gpu_t *gpu;
    gpusym_stream_t *stream[GPUSYM_TEAM_MAX];
    gpusym_graph_t *graph[GPUSYM_TEAM_MAX];
    char *arena;
    size_t used;
    void *free[RIG_GPU_CLASSES]; /* the first word of each is the next one */
    int (*managed)(void **p, size_t bytes, unsigned flags);
    int (*release)(void *p);
} rig_gpu;

static bool rig_on_gpu(void)
{
    return NULL != rig_gpu.dev;
}

/* In tests of what takes its time, which the simulator's clock need not wait for, or of multicast. */
__attribute__((unused)) static void rig_simulated_only(void)
{
    if (rig_on_gpu()) {
        skip();
    }
}

static void rig_gpu_need(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s failed: %s\n", what, NULL != rig_gpu.dev ? rig_gpu.dev->error() : "no device");
        exit(1);
    }
}

/* Blocks of a rank's launch at most, of so many ranks: all run side by side, whatever else one has. */
__attribute__((unused)) static uint32_t rig_blocks(uint32_t nranks, uint32_t blocks)
{
    gpusym_gpu_info_t info = {.sm_count = 0};
    if (!rig_on_gpu()) {
        return blocks;
    }
    rig_gpu.dev->gpu_info(rig_gpu.gpu, &info);
    const uint32_t room = (uint32_t) info.sm_count / nranks;
    return blocks < room ? blocks : room;
}

/* A rank's launch, to its end. */
static void rig_gpu_run(uint32_t rank, unsigned kernel, const gpusym_work_t *w)
{
    int rc = rig_gpu.dev->graph_launch(&rig_gpu.graph[rank], rig_gpu.stream[rank], kernel, w);
    rig_gpu_need(GPUSYM_SUCCESS == rc, "graph_launch");
    while (0 == (rc = rig_gpu.dev->stream_poll(rig_gpu.stream[rank]))) {
        sched_yield();
    }
    rig_gpu_need(1 == rc, "the kernel");
}

/* The first launch of a graph waits for what runs on the GPU: so it is a copy of nothing. */
static void rig_gpu_first(uint32_t rank)
{
    gpusym_work_t w = {.nranks = 1, .nblocks = 1, .nthreads = 32, .bytes = GPUSYM_PACK};
    w.done = (uint64_t *) (void *) rig_gpu.arena;
    rig_gpu_run(rank, GPUSYM_F_COPY, &w);
}

/* Opens the GPU if the environment asks for one. */
__attribute__((unused)) static void rig_gpu_start(void)
{
    const char *wanted = getenv("GPUSYM_TEST_DEVICE"), *why = "";
    void *arena, *unused, *driver;
    if (NULL == wanted || 0 != strcmp("cuda", wanted)) {
        return;
    }
    (void) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1); /* streams that do not wait for each other */
    rig_gpu.dev = gpusym_device_select(GPUSYM_DEVICE_CUDA, &why);
    rig_gpu_need(NULL != rig_gpu.dev, why);
    rig_gpu_need(GPUSYM_SUCCESS == rig_gpu.dev->gpu_open(NULL, &rig_gpu.gpu), "gpu_open");
    rig_gpu_need(GPUSYM_SUCCESS == rig_gpu.dev->kernels_load(rig_gpu.gpu, &why), why);
    rig_gpu_need(GPUSYM_SUCCESS == rig_gpu.dev->stream_kernels_load(rig_gpu.gpu, &why), why);
    rig_gpu_need(GPUSYM_SUCCESS == rig_gpu.dev->host_alloc(rig_gpu.gpu, RIG_GPU_ARENA, &arena, &unused), "host_alloc");
    rig_gpu.arena = arena;
    for (unsigned r = 0; r < GPUSYM_TEAM_MAX; r++) {
        rig_gpu_need(GPUSYM_SUCCESS == rig_gpu.dev->stream_create(rig_gpu.gpu, &rig_gpu.stream[r]), "stream_create");
        rig_gpu_first(r);
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    rig_gpu_need(NULL != driver, "dlopen");
    int (*retain)(void **, int), (*current)(void *);
    void *context = NULL;
    *(void **) &retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **) &current = dlsym(driver, "cuCtxSetCurrent");
    *(void **) &rig_gpu.managed = dlsym(driver, "cuMemAllocManaged");
    *(void **) &rig_gpu.release = dlsym(driver, "cuMemFree_v2");
    rig_gpu_need(NULL != retain && NULL != current && NULL != rig_gpu.managed && NULL != rig_gpu.release, "dlsym");
    rig_gpu_need(0 == retain(&context, 0) && 0 == current(context), "cuCtxSetCurrent");
}

static unsigned rig_gpu_class(size_t bytes)
{
    unsigned class = 6;
    while (((size_t) 1 << class) < bytes) {
        class ++;
    }
    return class;
}

/* Zeroed memory that kernels and tests access, aligned to 64 bytes. The caller frees it by rig_free_memory(). */
static void *rig_memory(size_t bytes)
{
    const size_t size = (bytes + 63) / 64 * 64;
    if (!rig_on_gpu()) {
        void *p = aligned_alloc(64, size);
        rig_gpu_need(NULL != p, "aligned_alloc");
        return memset(p, 0, size);
    }
    const unsigned class = rig_gpu_class(size + 64);
    char *p = rig_gpu.free[class];
    if (NULL != p) {
        memcpy(&rig_gpu.free[class], p, sizeof(void *));
    } else {
        p = rig_gpu.arena + rig_gpu.used;
        rig_gpu.used += (size_t) 1 << class;
        rig_gpu_need(rig_gpu.used <= RIG_GPU_ARENA, "the arena is too small: it");
    }
    *(unsigned *) (void *) p = class;
    return memset(p + 64, 0, size);
}

static void rig_free_memory(void *memory)
{
    if (!rig_on_gpu()) {
        free(memory);
    } else if (NULL != memory) {
        char *p = (char *) memory - 64;
        const unsigned class = *(unsigned *) (void *) p;
        memcpy(p, &rig_gpu.free[class], sizeof(void *));
        rig_gpu.free[class] = p;
    }
}

/* The same for a slot: undefined, and freed by rig_free_slot(). */
static void *rig_slot(size_t bytes)
{
    void *p = NULL;
    if (rig_on_gpu()) {
        rig_gpu_need(0 == rig_gpu.managed(&p, bytes, 1 /* CU_MEM_ATTACH_GLOBAL */), "cuMemAllocManaged");
    } else {
        p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        rig_gpu_need(NULL != p, "aligned_alloc");
    }
    return p;
}

static void rig_free_slot(void *p)
{
    if (rig_on_gpu()) {
        rig_gpu_need(0 == rig_gpu.release(p), "cuMemFree");
    } else {
        free(p);
    }
}

#endif
