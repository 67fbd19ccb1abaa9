/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory and the CUDA driver: see memory.h.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/memory.h"
#include "bench/ranks.h"
#include "test/mpi/mem.h"

bench_driver_t bench_cu;

static void *driver; /* dlopen's handle; stays open until the process ends */
static int kind;     /* of the measured memory */

void bench_cu_check(const char *call, int result)
{
    if (0 != result) {
        bench_die("%s failed: CUDA error %d", call, result);
    }
}

void *bench_cu_function(const char *name)
{
    void *function = dlsym(driver, name);

    if (NULL == function) {
        bench_die("the CUDA driver has no %s", name);
    }
    return function;
}

/* After mem_init: the context is current. */
static void driver_open(void)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (NULL == driver) {
        bench_die("no CUDA driver: %s", dlerror());
    }
#define BENCH_DRIVER(name, parameters) *(void **) &bench_cu.name = bench_cu_function(#name);
    BENCH_DRIVER_LIST
#undef BENCH_DRIVER
    BENCH_CU(cuStreamCreate, &bench_cu.stream, BENCH_STREAM_NON_BLOCKING);
    bench_cu.there = true;
}

void bench_memory_open(const char *device, int local_rank)
{
    kind = 0 == strcmp(device, "host") ? MEM_HOST : MEM_DEVICE;
    if (0 != mem_init(device, local_rank) || !mem_have(kind)) {
        bench_die("no device \"%s\" here (--device cuda, sim or host)", device);
    }
    if (0 == strcmp(device, "cuda")) {
        driver_open();
    }
}

void bench_memory_close(void)
{
    if (bench_cu.there) {
        BENCH_CU(cuStreamDestroy_v2, bench_cu.stream);
        bench_cu.there = false;
    }
    mem_fini();
}

void bench_gpu(char *name, size_t size, int *cuda)
{
    int device;

    *cuda = 0;
    snprintf(name, size, "none (%s)", MEM_HOST == kind ? "host memory" : "simulator");
    if (bench_cu.there) {
        BENCH_CU(cuCtxGetDevice, &device);
        BENCH_CU(cuDeviceGetName, name, (int) size, device);
        BENCH_CU(cuDriverGetVersion, cuda);
    }
}

size_t bench_free_memory(void)
{
    size_t available = 0, total;

    if (bench_cu.there) {
        BENCH_CU(cuMemGetInfo_v2, &available, &total);
    }
    return available;
}

int bench_memory_kind(void)
{
    return kind;
}

void *bench_alloc(size_t size)
{
    void *p = mem_alloc(kind, size);

    if (NULL == p) {
        bench_die("no memory for %zu bytes", size);
    }
    return p;
}

void bench_free(void *p)
{
    mem_free(kind, p);
}

void *bench_host_alloc(size_t size)
{
    void *p = NULL;

    if (bench_cu.there) {
        BENCH_CU(cuMemHostAlloc, &p, size, 0);
    } else {
        p = malloc(size);
    }
    if (NULL == p) {
        bench_die("no host memory for %zu bytes", size);
    }
    return p;
}

void bench_host_free(void *p)
{
    if (bench_cu.there) {
        BENCH_CU(cuMemFreeHost, p);
    } else {
        free(p);
    }
}

void bench_to_host(void *host, const void *p, size_t size)
{
    if (bench_cu.there) {
        BENCH_CU(cuMemcpyDtoH_v2, host, (uintptr_t) p, size);
    } else {
        mem_read(host, p, size);
    }
}

void bench_from_host(void *p, const void *host, size_t size)
{
    if (bench_cu.there) {
        BENCH_CU(cuMemcpyHtoD_v2, (uintptr_t) p, host, size);
    } else {
        mem_write(p, host, size);
    }
}
