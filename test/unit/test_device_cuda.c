/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The CUDA filling of the device table, against a driver of the test's own (fake_libcuda.h).  It
 * includes device/cuda itself, to hand it that driver and to look into its handles.  What a real
 * driver does is tested on GPUs; here it is what we must get right with any driver: contexts,
 * errors on every path, and what is held and let go of.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#undef GPUSYM_HAVE_KERNELS
#define GPUSYM_HAVE_KERNELS 1 /* the fake driver has kernels */

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void *fake_dlopen(const char *name, int flags);
static void *fake_dlsym(void *lib, const char *name);
static int fake_dlclose(void *lib);
static char *fake_dlerror(void);
#define dlopen fake_dlopen
#define dlsym fake_dlsym
#define dlclose fake_dlclose
#define dlerror fake_dlerror
#include "mca/common/gpusym/device/cuda/cuda_device.c"
#include "mca/common/gpusym/device/cuda/driver.c"
#include "mca/common/gpusym/device/cuda/gpu.c"
#include "mca/common/gpusym/device/cuda/kernel.c"
#include "mca/common/gpusym/device/cuda/memory.c"
#include "mca/common/gpusym/device/cuda/multicast.c"
#include "mca/common/gpusym/device/cuda/peer.c"
#include "mca/common/gpusym/device/cuda/stream.c"
#include "mca/common/gpusym/exec/lane.h"
#include "mca/common/gpusym/memory/heap.h"
#include "test/unit/fake_libcuda.h"

const unsigned char gpusym_fatbin[] = "not a fatbin", gpusym_few_fatbin[] = "nor this",
                    gpusym_stream_fatbin[] = "nor is this";

/* What a program makes, for GPU ordinal; types: CU_MEM_HANDLE_TYPE_*. */
static CUmemGenericAllocationHandle fake_mem_create(size_t size, int ordinal, unsigned types)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = (CUmemAllocationHandleType) types,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal}};
    CUmemGenericAllocationHandle memory = 0;

    assert_int_equal(cuMemCreate(&memory, size, &prop, 0), CUDA_SUCCESS);
    return memory;
}

/* Memory of GPU ordinal as a program maps it, at addresses of its own. */
static char *fake_mapping(size_t size, int ordinal, unsigned types)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemGenericAllocationHandle memory = fake_mem_create(size, ordinal, types);
    CUdeviceptr p = 0;

    assert_int_equal(cuMemAddressReserve(&p, size, 0, 0, 0), CUDA_SUCCESS);
    fake.reserved--; /* not ours */
    assert_int_equal(cuMemMap(p, size, 0, memory, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(memory), CUDA_SUCCESS); /* the mapping keeps it */
    assert_int_equal(cuMemSetAccess(p, size, &access, 1), CUDA_SUCCESS);
    return (char *) (uintptr_t) p;
}

static void fake_mapping_end(char *p)
{
    const size_t size = fake_region((uintptr_t) p)->size;

    assert_int_equal(cuMemUnmap((uintptr_t) p, size), CUDA_SUCCESS);
    fake.reserved++;
    assert_int_equal(cuMemAddressFree((uintptr_t) p, size), CUDA_SUCCESS);
}

/* A fresh driver with two GPUs, and a table that has not seen it yet. */
static int setup(void **unused)
{
    (void) unused;
    memset(&fake, 0, sizeof(fake));
    fake.gpus = 2;
    fake.fail_with = CUDA_ERROR_UNKNOWN;
    fake.granularity = fake.mc_granularity = (size_t) 2 << 20;
    fake.descriptors = fake_open_descriptors();
    for (int i = 0; i < FAKE_GPUS; i++) {
        fake_primary[i] = (struct CUctx_st){.dev = i, .primary = true};
        fake_other[i] = (struct CUctx_st){.dev = i};
    }
    for (int i = 0; i < FAKE_REGIONS; i++) { /* of a test whose driver was to fail at freeing them */
        if (0 != fake_ranges[i].base) {
            munmap((void *) fake_ranges[i].base, fake_ranges[i].size);
            fake_ranges[i].base = 0;
        }
    }
    fake_depth = 0;
    fake_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    cuda_state.lib = NULL;
    return 0;
}

/* After close() nothing of ours may be left, and the caller's contexts are untouched. */
static int teardown(void **unused)
{
    (void) unused;
    fake.fail_at = 0;
    cuda.close();
    fake.captures = false;
    for (int i = 0; i < FAKE_REGIONS; i++) {
        if (NULL != fake_regions[i].base && 0 != fake_regions[i].memory) {
            fake_mapping_end(fake_regions[i].base);
        }
        free(fake_regions[i].base);
        fake_regions[i].base = NULL;
    }
    if (fake.descriptors != fake_open_descriptors()) {
        return 1;
    }
    return 0 != fake.graphs || 0 != fake.execs || 0 != fake.handles || 0 != fake.reserved || 0 != fake.bound ||
           0 != fake.streams || 0 != fake.events || 0 != fake.modules || 0 != fake.pinned || 0 != fake.allocations ||
           0 != fake.ipc || 0 != fake.mistakes;
}

static void open_cuda(void)
{
    const char *why = NULL;

    assert_int_equal(cuda.open(&why), GPUSYM_SUCCESS);
}

static gpusym_gpu_t *open_gpu(int ordinal, CUcontext ctx)
{
    gpusym_mem_t mem = {.kind = GPUSYM_MEM_DEVICE, .gpu = ordinal, .context = ctx};
    gpusym_gpu_t *gpu = NULL;

    assert_int_equal(cuda.gpu_open(&mem, &gpu), GPUSYM_SUCCESS);
    assert_non_null(gpu);
    return gpu;
}

static void refused(const char *words)
{
    const char *why = NULL;

    assert_int_equal(cuda.open(&why), GPUSYM_ERR_NOT_AVAILABLE);
    assert_non_null(why);
    assert_non_null(strstr(why, words));
}

/* ---- open ---- */

static void test_open_says_why(void **unused)
{
    (void) unused;
    fake.no_library = true;
    refused("no NVIDIA driver");
    fake.no_library = false;
    open_cuda();
    open_cuda();
}

/* The driver is started by the first gpu_open(), not by open(). */
static void no_gpu(const char *words)
{
    gpusym_gpu_t *gpu;

    assert_int_equal(cuda.gpu_open(NULL, &gpu), GPUSYM_ERR_NOT_AVAILABLE);
    assert_non_null(strstr(cuda.error(), words));
}

static void test_gpu_open_says_why(void **unused)
{
    (void) unused;
    fake.init = CUDA_ERROR_OUT_OF_MEMORY;
    open_cuda();
    no_gpu("out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)");
    fake.init = CUDA_ERROR_NO_DEVICE;
    no_gpu("CUDA_VISIBLE_DEVICES");
    fake.init = CUDA_SUCCESS;
    fake.gpus = 0;
    no_gpu("CUDA_VISIBLE_DEVICES");
    fake.gpus = 1;
    open_gpu(0, NULL);
}

static void test_open_names_missing_symbol(void **unused)
{
    static const char *const required[] = {
#define X(name) SYMBOL(name),
        DRIVER_REQUIRED(X)
#undef X
    };

    (void) unused;
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
        fake.missing = required[i];
        refused(required[i]);
    }
    fake.missing = "cuFuncLoad"; /* an older driver, and good enough */
    open_cuda();
    const char *why = NULL;
    assert_int_equal(cuda.kernels_load(open_gpu(0, NULL), &why), GPUSYM_SUCCESS);
}

static void test_open_makes_no_context(void **unused)
{
    (void) unused;
    open_cuda();
    assert_int_equal(fake_primary[0].refs + fake_primary[1].refs, 0);
    assert_int_equal(fake.pushes, 0);
    assert_null(fake_current());
}

/* ---- query ---- */

static void expect_kind(const void *p, gpusym_mem_kind_t kind, int gpu, void *context)
{
    gpusym_mem_t mem, looked;

    memset(&mem, 0xff, sizeof(mem));
    cuda.look(p, &looked);
    cuda.query(p, &mem);
    assert_int_equal(mem.kind, kind);
    assert_int_equal(mem.gpu, gpu);
    assert_ptr_equal(mem.context, context);
    assert_true(looked.kind == kind && looked.gpu == gpu && looked.context == context && looked.id == mem.id);
}

static void test_query(void **unused)
{
    int local = 0;

    (void) unused;
    open_cuda();
    char *device = fake_region_add(64, CU_MEMORYTYPE_DEVICE, false, 1, &fake_primary[1])->base;
    char *pool = fake_region_add(64, CU_MEMORYTYPE_DEVICE, false, 1, NULL)->base;
    char *managed = fake_region_add(64, CU_MEMORYTYPE_DEVICE, true, 0, &fake_primary[0])->base;
    char *migrated = fake_region_add(64, CU_MEMORYTYPE_HOST, true, 0, &fake_primary[0])->base;
    char *registered = fake_region_add(64, CU_MEMORYTYPE_HOST, false, 0, &fake_primary[0])->base;
    expect_kind(&local, GPUSYM_MEM_HOST, -1, NULL);
    expect_kind(NULL, GPUSYM_MEM_HOST, -1, NULL);
    expect_kind(device + 63, GPUSYM_MEM_DEVICE, 1, &fake_primary[1]);
    expect_kind(pool, GPUSYM_MEM_DEVICE, 1, NULL);
    expect_kind(managed, GPUSYM_MEM_MANAGED, 0, &fake_primary[0]);
    expect_kind(migrated, GPUSYM_MEM_MANAGED, 0, &fake_primary[0]);
    expect_kind(registered, GPUSYM_MEM_REGISTERED, 0, &fake_primary[0]);
    fake.fail_name = "cuPointerGetAttributes"; /* as before the program's first use of CUDA */
    fake.fail_with = CUDA_ERROR_NOT_INITIALIZED;
    fake.fail_at = 1;
    gpusym_mem_t mem;
    cuda.query(device, &mem);
    assert_true(GPUSYM_MEM_HOST == mem.kind && -1 == mem.gpu && NULL == mem.context);
}

/* An allocation is marked when it is first seen, and what is under way then is waited for; no context is left. */
static void test_query_marks_memory_synchronous(void **unused)
{
    (void) unused;
    open_cuda();
    fake_region_t *device = fake_region_add(64, CU_MEMORYTYPE_DEVICE, false, 1, &fake_other[1]);
    char *pool = fake_region_add(64, CU_MEMORYTYPE_DEVICE, false, 1, NULL)->base;
    expect_kind(device->base, GPUSYM_MEM_DEVICE, 1, &fake_other[1]);
    assert_int_equal(device->synchronous, 1);
    assert_int_equal(fake.legacy_waits, 1);
    expect_kind(device->base + 5, GPUSYM_MEM_DEVICE, 1, &fake_other[1]);
    expect_kind(pool, GPUSYM_MEM_DEVICE, 1, NULL);
    assert_int_equal(fake.legacy_waits, 1);
    assert_int_equal(fake.pushes, 1);
    assert_null(fake_current());
}

/* The same while another thread captures a stream. */
static void test_query_spares_captures(void **unused)
{
    (void) unused;
    open_cuda();
    fake_region_t *device = fake_region_add(64, CU_MEMORYTYPE_DEVICE, false, 1, &fake_other[1]);
    fake.captures = true;
    expect_kind(device->base, GPUSYM_MEM_DEVICE, 1, &fake_other[1]);
    assert_int_equal(device->synchronous, 1);
    assert_int_equal(fake.legacy_waits, 1);
    assert_int_equal(fake.mistakes, 0);
    assert_int_equal(fake_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Where the user wants it, each question waits for the legacy stream: of the memory's context, or the thread's. */
static void test_query_waits_for_the_legacy_stream(void **unused)
{
    gpusym_mem_t mem;

    (void) unused;
    open_cuda();
    fake_region_t *device = fake_region_add(64, CU_MEMORYTYPE_DEVICE, false, 1, &fake_other[1]);
    char *pool = fake_region_add(64, CU_MEMORYTYPE_DEVICE, false, 1, NULL)->base;
    char *pinned = fake_region_add(64, CU_MEMORYTYPE_HOST, false, 1, &fake_other[1])->base;
    gpusym_cuda_wait_legacy_stream = true;
    expect_kind(device->base, GPUSYM_MEM_DEVICE, 1, &fake_other[1]);
    expect_kind(device->base + 5, GPUSYM_MEM_DEVICE, 1, &fake_other[1]);
    const unsigned waits = fake.legacy_waits;
    assert_true(waits >= 2);
    cuda.query(pinned, &mem);
    assert_int_equal(fake.legacy_waits, waits + 1);
    assert_null(fake_current());
    cuda.query(&mem, &mem); /* memory that no driver knows */
    cuda.look(device->base, &mem);
    assert_int_equal(fake.legacy_waits, waits + 1);
    CUcontext popped;
    cuCtxPushCurrent_v2(&fake_other[1]);
    cuda.query(pool, &mem);
    cuCtxPopCurrent_v2(&popped);
    assert_int_equal(fake.legacy_waits, waits + 2);
    gpusym_cuda_wait_legacy_stream = false;
    cuda.query(device->base, &mem);
    assert_int_equal(fake.legacy_waits, waits + 2);
}

/* A look leaves the memory as it is, and waits for nothing. */
static void test_look_marks_nothing(void **unused)
{
    gpusym_mem_t mem;

    (void) unused;
    open_cuda();
    fake_region_t *device = fake_region_add(64, CU_MEMORYTYPE_DEVICE, false, 1, &fake_other[1]);
    cuda.look(device->base, &mem);
    assert_true(GPUSYM_MEM_DEVICE == mem.kind && 1 == mem.gpu && device->id == mem.id);
    assert_int_equal(device->synchronous, 0);
    assert_int_equal(fake.pushes, 0);
    assert_int_equal(fake.legacy_waits, 0);
    cuda.query(device->base, &mem);
    assert_int_equal(device->synchronous, 1);
}

/* ---- mem_range ---- */

static void expect_range(const fake_region_t *region, bool shareable)
{
    const char *places[] = {region->base, region->base + 1, region->base + region->size - 1};
    gpusym_range_t range;

    for (int i = 0; i < 3; i++) {
        memset(&range, 0xff, sizeof(range));
        assert_int_equal(cuda.mem_range(places[i], &range), GPUSYM_SUCCESS);
        assert_ptr_equal(range.base, region->base);
        assert_true(range.size == region->size && range.id == region->id);
        assert_true(range.shareable == shareable && range.part == (shareable && range.size < 2 << 20));
    }
}

static void test_range(void **unused)
{
    const size_t block = 2 << 20;
    gpusym_range_t range;
    int local = 0;

    (void) unused;
    open_cuda();
    fake_region_t *user = fake_region_add(block, CU_MEMORYTYPE_DEVICE, false, 1, &fake_primary[1]);
    fake_region_t *small = fake_region_add(block - 1, CU_MEMORYTYPE_DEVICE, false, 1, &fake_primary[1]);
    fake_region_t *pool = fake_region_add(block, CU_MEMORYTYPE_DEVICE, false, 1, NULL);
    fake_region_t *managed = fake_region_add(block, CU_MEMORYTYPE_DEVICE, true, 0, &fake_primary[0]);
    fake_region_t *pinned = fake_region_add(block, CU_MEMORYTYPE_HOST, false, 0, &fake_primary[0]);
    expect_range(user, true);
    expect_range(small, true); /* peers map its whole block */
    expect_range(pool, false);
    expect_range(managed, false);
    expect_range(pinned, false);
    fake.lies = true; /* what has a pool or is managed is not exported, whatever the driver calls it */
    expect_range(pool, false);
    expect_range(managed, false);
    assert_int_equal(cuda.mem_range(&local, &range), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(cuda.mem_range(NULL, &range), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(cuda.mem_range(user->base + block, &range), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(fake.pushes, 0);
    fake.fail_name = "cuPointerGetAttributes"; /* as before the program's first use of CUDA */
    fake.fail_with = CUDA_ERROR_NOT_INITIALIZED;
    fake.fail_at = 1;
    assert_int_equal(cuda.mem_range(user->base, &range), GPUSYM_ERR_NOT_AVAILABLE);
}

#define BY_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
/* Declared by newer versions of cuda.h than we need. */
#define BY_FABRIC FAKE_TYPE_FABRIC
#define ON_NUMA_NODE ((CUmemLocationType) 3) /* CU_MEM_LOCATION_TYPE_HOST_NUMA */

/* Memory of cuMemCreate is known by its handle: other memory at the same addresses has another id. */
static void test_range_of_mapped_memory(void **unused)
{
    const size_t block = 2 << 20;
    gpusym_range_t range, again;
    gpusym_mem_t mem;

    (void) unused;
    open_cuda();
    fake.fabric = true;
    char *p = fake_mapping(block, 1, BY_FD), *unnamed = fake_mapping(block, 1, BY_FABRIC);
    fake.granularity = 4096;
    char *small = fake_mapping(4096, 1, BY_FD | BY_FABRIC);
    assert_int_equal(cuda.mem_range(p + block - 1, &range), GPUSYM_SUCCESS);
    assert_true(range.base == p && range.size == block && range.shareable);
    assert_int_equal(cuda.mem_range(p, &again), GPUSYM_SUCCESS);
    assert_memory_equal(&again, &range, sizeof(range));
    assert_int_equal(cuda.mem_range(unnamed, &again), GPUSYM_SUCCESS);
    assert_false(again.shareable);
    assert_int_equal(cuda.mem_range(small, &again), GPUSYM_SUCCESS);
    assert_true(again.shareable && again.id != range.id && 4096 == again.size);
    cuda.query(p, &mem);
    assert_true(GPUSYM_MEM_DEVICE == mem.kind && 1 == mem.gpu && 0 == mem.id);
    const CUmemGenericAllocationHandle other = fake_mem_create(block, 1, BY_FD);
    assert_int_equal(cuMemUnmap((uintptr_t) p, block), CUDA_SUCCESS);
    assert_int_equal(cuda.mem_range(p, &again), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(cuMemMap((uintptr_t) p, block, 0, other, 0), CUDA_SUCCESS);
    assert_int_equal(cuda.mem_range(p, &again), GPUSYM_SUCCESS);
    assert_true(again.base == p && again.shareable && again.id != range.id);
    fake.fail_name = "cuMemRetainAllocationHandle";
    fake.fail_at = 1;
    assert_int_equal(cuda.mem_range(p, &again), GPUSYM_ERR);
    assert_int_equal(cuMemRelease(other), CUDA_SUCCESS);
    assert_int_equal(fake.pushes, 0);
}

/* What the manual says of virtual memory, so that our use of it is held to that. */
static void test_driver_refuses(void **unused)
{
    const size_t unit = (size_t) 2 << 20;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = (CUmemAllocationHandleType) BY_FD,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle one = 0, other = 0;
    CUdeviceptr p = 0;
    size_t granularity = 0;
    int fd = -1;

    (void) unused;
    assert_int_equal(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM), 0);
    assert_int_equal(granularity, unit);
    assert_int_equal(cuMemCreate(&one, unit + 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemCreate(&one, unit, &prop, 1), CUDA_ERROR_INVALID_VALUE);
    prop.location.id = fake.gpus;
    assert_int_equal(cuMemCreate(&one, unit, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
    prop.location.id = 1;
    prop.requestedHandleTypes = (CUmemAllocationHandleType) BY_FABRIC;
    assert_int_equal(cuMemCreate(&one, unit, &prop, 0), CUDA_ERROR_NOT_PERMITTED);
    prop.requestedHandleTypes = (CUmemAllocationHandleType) 0;
    assert_int_equal(cuMemCreate(&one, unit, &prop, 0), CUDA_SUCCESS); /* with no handle for others */
    assert_int_equal(cuMemExportToShareableHandle(&fd, one, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     CUDA_ERROR_INVALID_VALUE);
    prop.requestedHandleTypes = (CUmemAllocationHandleType) BY_FD;
    assert_int_equal(cuMemCreate(&other, 2 * unit, &prop, 0), CUDA_SUCCESS);

    assert_int_equal(cuMemAddressReserve(&p, unit + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressReserve(&p, unit, 3 * unit, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressReserve(&p, 3 * unit, unit, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(p + 4096, unit, 0, one, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(p, 2 * unit, 0, one, 0), CUDA_ERROR_INVALID_VALUE);              /* it is smaller */
    assert_int_equal(cuMemMap(p, unit, unit, other, 0), CUDA_ERROR_INVALID_VALUE);             /* not from its start */
    assert_int_equal(cuMemMap(p + 2 * unit, 2 * unit, 0, other, 0), CUDA_ERROR_INVALID_VALUE); /* over the end */
    assert_int_equal(cuMemMap(p - unit, unit, 0, one, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(p + unit, 2 * unit, 0, other, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(p + 2 * unit, unit, 0, one, 0), CUDA_ERROR_INVALID_VALUE); /* something is there */
    assert_int_equal(cuMemMap(p, unit, 0, one, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemSetAccess(p, 3 * unit + 1, &access, 1), CUDA_ERROR_INVALID_VALUE);
    access.location.id = fake.gpus;
    assert_int_equal(cuMemSetAccess(p, unit, &access, 1), CUDA_ERROR_INVALID_DEVICE);

    assert_int_equal(cuMemRelease(one), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(other), CUDA_SUCCESS);
    assert_int_equal(cuMemRetainAllocationHandle(&one, (void *) (uintptr_t) (p + unit + 1)), CUDA_SUCCESS);
    assert_int_equal(one, other); /* the mapping keeps it */
    assert_int_equal(cuMemRelease(one), CUDA_SUCCESS);
    assert_int_equal(fake.mistakes, 0);
    assert_int_equal(cuMemAddressFree(p, 3 * unit), CUDA_ERROR_INVALID_VALUE); /* in use */
    assert_int_equal(cuMemUnmap(p + unit, unit), CUDA_ERROR_INVALID_VALUE);    /* a part */
    assert_int_equal(cuMemUnmap(p + unit, 2 * unit), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(p, unit), CUDA_SUCCESS);
    assert_int_equal(cuMemRetainAllocationHandle(&one, (void *) (uintptr_t) p), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(p, unit), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAddressFree(p, 3 * unit), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(other), CUDA_ERROR_INVALID_VALUE); /* once too often */
    assert_int_equal(fake.mistakes, 4);
    fake.mistakes = 0;
}

/* The program's own memory is exported and mapped as our own is. */
static void test_export_user_memory(void **unused)
{
    gpusym_handle_t handle, theirs;
    gpusym_range_t range;
    void *p = NULL;

    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(1, NULL);
    char *user = fake_region_add(4 << 20, CU_MEMORYTYPE_DEVICE, false, 1, &fake_primary[1])->base;
    assert_int_equal(cuda.mem_export(gpu, user + 1, &handle), GPUSYM_ERR_UNREACHABLE); /* not its base */
    assert_int_equal(cuda.mem_export(gpu, user, &handle), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_import(gpu, &handle, &p), GPUSYM_SUCCESS);
    assert_ptr_equal(p, user);
    cuda_handle_t other;
    memcpy(&other, &handle, sizeof(other));
    other.nonce++;
    theirs = handle;
    memcpy(&theirs, &other, sizeof(other));
    fake.foreign = true;
    assert_int_equal(cuda.mem_import(gpu, &theirs, &p), GPUSYM_SUCCESS);
    assert_int_equal(fake.ipc, 1);
    assert_int_equal(cuda.mem_range(p, &range), GPUSYM_SUCCESS); /* as much as is mapped here */
    assert_ptr_equal(range.base, p);
    assert_int_equal(range.size, 4 << 20);
    assert_int_equal(cuda.mem_unimport(gpu, p), GPUSYM_SUCCESS);
}

static cuda_handle_t look_into(const gpusym_handle_t *handle)
{
    cuda_handle_t inside;

    memcpy(&inside, handle, sizeof(inside));
    return inside;
}

static bool is_open(int fd)
{
    return -1 != fcntl(fd, F_GETFD);
}

static gpusym_handle_t another_process(const gpusym_handle_t *handle);

/* Mapped memory goes by a descriptor. What is exported is kept, freed or not; so is what is mapped. */
static void test_share_mapped_memory(void **unused)
{
    const size_t size = 4 << 20;
    gpusym_handle_t handle, theirs;
    gpusym_range_t range;
    void *there = NULL, *own = NULL, *late = NULL;

    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(1, NULL);
    char *p = fake_mapping(size, 1, BY_FD);
    p[size - 1] = 42;
    assert_int_equal(cuda.mem_export(gpu, p + 4096, &handle), GPUSYM_ERR_UNREACHABLE);
    assert_non_null(strstr(cuda.error(), "not the start"));
    assert_int_equal(cuda.mem_export(open_gpu(0, NULL), p, &handle), GPUSYM_ERR_UNREACHABLE);
    assert_non_null(strstr(cuda.error(), "not on GPU 0"));
    assert_int_equal(fake.handles, 0);
    assert_int_equal(cuda.mem_export(gpu, p, &handle), GPUSYM_SUCCESS);
    const int fd = look_into(&handle).by_fd.fd;
    assert_true(is_open(fd) && 0 != (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    assert_int_equal(cuda.mem_import(gpu, &handle, &own), GPUSYM_SUCCESS);
    assert_ptr_equal(own, p);
    theirs = another_process(&handle);
    assert_int_equal(cuda.mem_import(gpu, &theirs, &there), GPUSYM_SUCCESS);
    assert_int_equal(((char *) there)[size - 1], 42);
    assert_int_equal(cuda.mem_range(there, &range), GPUSYM_SUCCESS);
    assert_true(range.base == there && size == range.size);
    assert_int_equal(cuda.mem_range(p, &range), GPUSYM_SUCCESS);
    const uint64_t id = range.id;
    fake_mapping_end(p);
    char *other = fake_mapping(size, 1, BY_FD);
    assert_int_equal(cuda.mem_range(other, &range), GPUSYM_SUCCESS);
    assert_true(id != range.id); /* while the old one is exported */
    assert_int_equal(cuda.mem_import(gpu, &theirs, &late), GPUSYM_SUCCESS);
    assert_true(2 == fake.reserved && 1 == fake.handles);
    assert_int_equal(cuda.mem_unexport(gpu, &handle), GPUSYM_SUCCESS);
    assert_false(is_open(fd));
    assert_int_equal(fake.handles, 0);
    ((char *) late)[0] = 43;
    assert_int_equal(((char *) there)[0], 43);
    assert_int_equal(cuda.mem_unimport(gpu, there), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_unimport(gpu, own), GPUSYM_SUCCESS);
    assert_int_equal(fake.reserved, 1); /* which close() ends */
}

/* A multicast object is mapped too, and memory of the host; a peer may have ended, or its descriptor be another file.
 */
static void test_mapped_memory_refused(void **unused)
{
    gpusym_handle_t handle;
    void *there = NULL;

    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(1, NULL);
    char *p = fake_mapping(1 << 21, 1, BY_FD);
    CUmemAllocationProp *prop = &fake_memories[fake_region((uintptr_t) p)->memory - 1].prop;
    prop->type = (CUmemAllocationType) 0;
    assert_int_equal(cuda.mem_export(gpu, p, &handle), GPUSYM_ERR_UNREACHABLE);
    prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop->location.type = ON_NUMA_NODE;
    assert_int_equal(cuda.mem_export(gpu, p, &handle), GPUSYM_ERR_UNREACHABLE);
    prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    assert_int_equal(cuda.mem_export(gpu, p, &handle), GPUSYM_SUCCESS);
    for (int i = 0; i < 2; i++) {
        gpusym_handle_t theirs = another_process(&handle);
        cuda_handle_t inside = look_into(&theirs);
        inside.pid = 0 == i ? inside.pid : 0x7ffffff0;
        inside.by_fd.fd = 0 == i ? 1000 : inside.by_fd.fd;
        memcpy(&theirs, &inside, sizeof(inside));
        assert_int_equal(cuda.mem_import(gpu, &theirs, &there), GPUSYM_ERR_UNREACHABLE);
        assert_non_null(strstr(cuda.error(), "cannot be fetched"));
    }
    assert_int_equal(cuda.mem_unexport(gpu, &handle), GPUSYM_SUCCESS);
    assert_int_equal(fake.reserved, 0);
}

/* ---- memory at reserved addresses ---- */

static void test_reserved_addresses(void **unused)
{
    const size_t unit = (size_t) 2 << 20;
    size_t size = unit + 1;
    gpusym_range_t range;
    void *at = NULL;

    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(1, NULL);
    assert_int_equal(cuda.vmm_reserve(gpu, &size, 3, &at), GPUSYM_SUCCESS);
    assert_true(2 * unit == size && 0 == (uintptr_t) at % unit && 1 == fake.reserved && 0 == fake.handles);
    char *p = (char *) at + 2 * size;
    assert_int_equal(cuda.vmm_map(gpu, p, size), GPUSYM_SUCCESS);
    assert_int_equal(fake.handles, 0); /* the mapping keeps the memory */
    assert_int_equal(cuda.mem_range(p + size - 1, &range), GPUSYM_SUCCESS);
    assert_true(range.base == p && range.size == size && range.shareable);
    assert_int_equal(cuda.mem_zero(gpu, p, size), GPUSYM_SUCCESS);
    assert_int_equal(p[0] | p[size - 1], 0);
    assert_int_equal(cuda.vmm_map(gpu, p, size), GPUSYM_ERR);        /* it has memory */
    assert_int_equal(cuda.vmm_map(gpu, p + size, size), GPUSYM_ERR); /* not reserved */
    assert_int_equal(cuda.vmm_map(gpu, at, size), GPUSYM_SUCCESS);
    assert_int_equal(cuda.vmm_unmap(gpu, p, size), GPUSYM_SUCCESS);
    assert_int_equal(cuda.vmm_map(gpu, p, size), GPUSYM_SUCCESS); /* once more */
    assert_int_equal(cuda.vmm_unmap(gpu, p, size), GPUSYM_SUCCESS);
    assert_int_equal(cuda.vmm_unmap(gpu, at, size), GPUSYM_SUCCESS);
    assert_int_equal(cuda.vmm_release(gpu, at, size, 3), GPUSYM_SUCCESS);
    size = SIZE_MAX / 2;
    assert_int_equal(cuda.vmm_reserve(gpu, &size, 3, &at), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(fake.mistakes, 0);
}

/* GPUs, drivers and systems (WSL) that have it not, or only for themselves. */
static void test_no_virtual_memory(void **unused)
{
    gpusym_heap_t *heap;
    gpusym_heap_id_t id;
    size_t size = 1 << 20;
    void *at;

    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(1, NULL);
    for (int i = 0; i < 2; i++) {
        fake.no_vmm = 0 == i;
        fake.no_fd = 1 == i;
        assert_int_equal(cuda.vmm_reserve(gpu, &size, 1, &at), GPUSYM_ERR_NOT_AVAILABLE);
        assert_non_null(strstr(cuda.error(), "GPU 1 has no virtual memory that peers open by a descriptor"));
        assert_int_equal(gpusym_heap_create(&cuda, gpu, 1 << 20, 4, true, &heap), GPUSYM_SUCCESS);
        gpusym_heap_id(heap, 0, &id);
        assert_true(0 == id.vmm && 1 == fake.allocations && 0 == fake.reserved);
        gpusym_heap_destroy(heap);
    }
}

/* A heap of it, as its process and a peer see it. */
static void test_heap_of_virtual_memory(void **unused)
{
    const size_t size = 4 << 20;
    gpusym_heap_t *heap;
    gpusym_slot_offer_t offer[2];
    gpusym_heap_id_t id[2];
    gpusym_handle_t theirs;
    void *base[2], *there;

    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(1, NULL);
    assert_int_equal(gpusym_heap_create(&cuda, gpu, size, 2, true, &heap), GPUSYM_SUCCESS);
    for (unsigned i = 0; i < 2; i++) {
        gpusym_heap_slot_offer(heap, &offer[i]);
        gpusym_heap_slot_settle(heap, &offer[i], 0);
        gpusym_heap_id(heap, i, &id[i]);
        assert_int_equal(id[i].vmm, 1);
        assert_int_equal(gpusym_heap_peer(heap, &id[i], size, &base[i]), GPUSYM_SUCCESS);
    }
    assert_true(0 == fake.allocations && 1 == fake.reserved && 2 == fake.handles); /* one each, for the export */
    assert_true((char *) base[1] == (char *) base[0] + size && 0 == ((char *) base[1])[size - 1]);
    theirs = another_process(&id[1].handle);
    assert_int_equal(cuda.mem_import(open_gpu(0, NULL), &theirs, &there), GPUSYM_SUCCESS);
    ((char *) base[1])[size - 1] = 42;
    assert_int_equal(((char *) there)[size - 1], 42);
    gpusym_heap_destroy(heap);
    assert_int_equal(((char *) there)[size - 1], 42); /* the peer's mapping keeps it */
    assert_int_equal(cuda.mem_unimport(open_gpu(0, NULL), there), GPUSYM_SUCCESS);
}

/* ---- multicast ---- */

/* What the manual says of fabric handles and multicast objects. */
static void test_driver_refuses_multicast(void **unused)
{
    const size_t unit = fake.mc_granularity;
    CUmulticastObjectProp prop = {.numDevices = 2, .size = 2 * unit, .handleTypes = BY_FD | BY_FABRIC};
    CUmemGenericAllocationHandle object = 0, again = 0, memory, unshared;
    CUdeviceptr p = 0;
    size_t granularity = 0;
    char fabric[FAKE_FABRIC_BYTES];
    int fd;

    (void) unused;
    memory = fake_mem_create(2 * unit, 0, BY_FD);
    unshared = fake_mem_create(unit, 1, 0);
    assert_int_equal(cuMulticastCreate(&object, &prop), CUDA_ERROR_NOT_PERMITTED);
    fake.fabric = true;
    assert_int_equal(cuMulticastGetGranularity(&granularity, &prop, CU_MULTICAST_GRANULARITY_MINIMUM), 0);
    assert_int_equal(granularity, unit);
    prop.numDevices = 3;
    assert_int_equal(cuMulticastCreate(&object, &prop), CUDA_ERROR_INVALID_DEVICE);
    prop.numDevices = 2;
    prop.size = unit + 4096;
    assert_int_equal(cuMulticastCreate(&object, &prop), CUDA_ERROR_INVALID_VALUE);
    prop.size = 2 * unit;
    assert_int_equal(cuMulticastCreate(&object, &prop), CUDA_SUCCESS);
    assert_int_equal(fake.mc_created, 4);
    assert_int_equal(cuMemExportToShareableHandle(fabric, memory, (CUmemAllocationHandleType) BY_FABRIC, 0),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemExportToShareableHandle(fabric, object, (CUmemAllocationHandleType) BY_FABRIC, 0), 0);
    assert_int_equal(cuMemImportFromShareableHandle(&again, fabric, (CUmemAllocationHandleType) BY_FABRIC), 0);
    assert_int_equal(cuMemRelease(again), CUDA_SUCCESS);
    assert_int_equal(cuMemExportToShareableHandle(&fd, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), 0);
    close(fd);
    assert_int_equal(cuMulticastAddDevice(object, 10), CUDA_SUCCESS);
    assert_int_equal(cuMulticastAddDevice(object, 10), CUDA_ERROR_INVALID_VALUE); /* it has been added */
    assert_int_equal(cuMulticastAddDevice(object, 12), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuMulticastAddDevice(memory, 11), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMulticastBindMem(object, 0, memory, 0, unit, 0), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuMemAddressReserve(&p, unit, unit, 0, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(p, unit, 0, object, 0), CUDA_ERROR_NOT_READY);
    assert_int_equal(fake.mistakes, 2); /* those two would wait for ever */
    fake.mistakes = 0;
    assert_int_equal(cuMulticastAddDevice(object, 11), CUDA_SUCCESS);
    assert_int_equal(cuMulticastBindMem(object, 0, memory, 4096, unit, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMulticastBindMem(object, 0, memory, 2 * unit, unit, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMulticastBindMem(object, 2 * unit, memory, 0, unit, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMulticastBindMem(object, 0, unshared, 0, unit, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMulticastBindMem(object, 0, memory, unit, unit, 0), CUDA_SUCCESS);
    assert_int_equal(cuMulticastUnbind(object, 10, 0, 2 * unit), CUDA_ERROR_INVALID_VALUE); /* another size */
    assert_int_equal(cuMulticastUnbind(object, 11, 0, unit), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemRelease(memory), CUDA_SUCCESS); /* the object keeps it */
    assert_int_equal(cuMulticastUnbind(object, 10, 0, unit), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(p, unit), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(object), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(unshared), CUDA_SUCCESS);
    assert_int_equal(fake.mistakes, 2);
    fake.mistakes = 0;
}

enum { MC_RANKS = 3, MC_SLAB = 8 << 20, MC_AT = (3 << 20) + 4096, MC_SLOT = 64 << 10 };

/* Ranks that are one process, each with a GPU and a heap of virtual memory (or of cudaMalloc). */
static struct {
    gpusym_gpu_t *gpu;
    gpusym_heap_t *heap;
    char *slab;
    gpusym_mc_t *mc;
    void *mp;
} mc_rank[MC_RANKS];

static void mc_ranks(bool vmm)
{
    gpusym_heap_id_t id;
    void *base;

    memset(mc_rank, 0, sizeof(mc_rank));
    unsetenv("NCCL_NVLS_ENABLE"); /* the site's own */
    unsetenv("NVSHMEM_DISABLE_NVLS");
    unsetenv("TORCH_SYMM_MEM_DISABLE_MULTICAST");
    fake.gpus = MC_RANKS;
    open_cuda();
    for (int r = 0; r < MC_RANKS; r++) {
        mc_rank[r].gpu = open_gpu(r, NULL);
        assert_int_equal(gpusym_heap_create(&cuda, mc_rank[r].gpu, MC_SLAB, 1, vmm, &mc_rank[r].heap), GPUSYM_SUCCESS);
        gpusym_heap_id(mc_rank[r].heap, 0, &id);
        assert_int_equal(gpusym_heap_peer(mc_rank[r].heap, &id, MC_SLAB, &base), GPUSYM_SUCCESS);
        mc_rank[r].slab = base;
    }
}

static void mc_ranks_end(void)
{
    for (int r = 0; r < MC_RANKS; r++) {
        gpusym_heap_destroy(mc_rank[r].heap);
    }
}

/* The steps that ranks take together (team/multicast.c), over so many bytes at an offset of their slabs: none goes on
 * where one has failed. */
static int mc_join_at(int setting, size_t at, size_t size)
{
    gpusym_handle_t handle;
    int rc = cuda.mc_create(mc_rank[0].gpu, setting, MC_RANKS, size, &mc_rank[0].mc, &handle), all = rc;

    for (int r = 0; r < MC_RANKS && GPUSYM_SUCCESS == all; r++) {
        rc = 0 == r ? GPUSYM_SUCCESS : cuda.mc_import(mc_rank[r].gpu, &handle, &mc_rank[r].mc);
        rc = GPUSYM_SUCCESS == rc ? cuda.mc_add(mc_rank[r].mc) : rc;
        all = GPUSYM_SUCCESS == all ? rc : all;
    }
    if (GPUSYM_SUCCESS != all) {
        return all;
    }
    for (unsigned r = 0; r < MC_RANKS; r++) {
        rc = cuda.mc_bind(mc_rank[r].mc, r, mc_rank[r].slab + at, size, &mc_rank[r].mp);
        all = GPUSYM_SUCCESS == all ? rc : all;
    }
    return all;
}

static int mc_join(int setting)
{
    return mc_join_at(setting, MC_AT, MC_SLOT);
}

static void mc_leave(void)
{
    for (int r = 0; r < MC_RANKS; r++) {
        if (NULL != mc_rank[r].mc) {
            cuda.mc_free(mc_rank[r].mc);
        }
        mc_rank[r].mc = NULL;
    }
}

/* What is left, as numbers that may be compared. */
static void mc_count(unsigned counts[4])
{
    counts[0] = fake.handles;
    counts[1] = fake.reserved;
    counts[2] = fake.bound;
    counts[3] = fake_open_descriptors();
}

static void test_multicast(void **unused)
{
    const size_t unit = fake.mc_granularity;
    unsigned before[4], after[4];

    (void) unused;
    mc_ranks(true);
    mc_count(before);
    fake.captures = true; /* and no capture of the program's ends by it */
    assert_int_equal(mc_join(1), GPUSYM_SUCCESS);
    assert_true(1 == fake.mc_created && MC_RANKS == fake.bound && before[1] + MC_RANKS == fake.reserved);
    assert_int_equal(fake_open_descriptors(), before[3] + 1); /* the object itself, which is the driver's */
    for (int r = 0; r < MC_RANKS; r++) {                      /* the unit around the slot, and the slot's place in it */
        const fake_region_t *at = fake_region((uintptr_t) mc_rank[r].mp);
        const fake_memory_t *object = &fake_memories[at->memory - 1];
        assert_int_equal((uintptr_t) mc_rank[r].mp % unit, MC_AT % unit);
        assert_true(1u << r == at->access && unit == at->size && MC_RANKS == object->devices);
        assert_true(0 == object->bound[r].at && unit == object->bound[r].size && 2 * unit == object->size);
    }
    mc_leave();
    fake.captures = false;
    mc_count(after);
    assert_memory_equal(after, before, sizeof(before));
    assert_int_equal(mc_join(1), GPUSYM_SUCCESS);
    mc_ranks_end();
    cuda.close(); /* ends what is left */
    assert_int_equal(fake.bound, 0);
}

/* Over whole slabs, which keep it: one over slots beside it leaves it as it is, and nothing outlives the heaps. */
static void test_multicast_of_slabs(void **unused)
{
    unsigned none[4], before[4], after[4];

    (void) unused;
    mc_ranks(true);
    mc_ranks_end();
    mc_count(none);
    cuda.close();
    mc_ranks(true);
    assert_int_equal(mc_join_at(1, 0, MC_SLAB), GPUSYM_SUCCESS);
    for (int r = 0; r < MC_RANKS; r++) {
        const fake_region_t *at = fake_region((uintptr_t) mc_rank[r].mp);
        const gpusym_heap_mc_t kept = {.mc = mc_rank[r].mc, .mp = mc_rank[r].mp, .id = 7, .members = MC_RANKS};
        assert_true(at->size == MC_SLAB && (char *) mc_rank[r].mp == at->base);
        assert_true(gpusym_heap_mc_keep(mc_rank[r].heap, 0, &kept));
    }
    mc_count(before);
    assert_int_equal(mc_join(1), GPUSYM_SUCCESS);
    assert_int_equal(fake.bound, 2 * MC_RANKS);
    mc_leave();
    mc_count(after);
    assert_memory_equal(after, before, sizeof(before));
    mc_ranks_end();
    mc_count(after);
    assert_memory_equal(after, none, sizeof(none));
    assert_int_equal(fake.bound, 0);
}

/* Whichever call of the driver fails, at whichever rank, nothing is left when the ranks have given up. */
static void test_multicast_fails(void **unused)
{
    unsigned before[4], after[4], n = 0, failures = 0;

    (void) unused;
    mc_ranks(true);
    do {
        mc_count(before);
        fake.failed = NULL;
        fake.fail_at = ++n;
        const int rc = mc_join(1);
        fake.fail_at = 0;
        /* the context is made current then, and the thread's mode is not changed */
        const bool harmless = NULL == fake.failed || 0 == strcmp(fake.failed, "cuCtxGetCurrent") ||
                              0 == strcmp(fake.failed, "cuThreadExchangeStreamCaptureMode");
        if (harmless != (GPUSYM_SUCCESS == rc)) {
            print_error("call %u, %s, failed: %d\n", n, NULL == fake.failed ? "none" : fake.failed, rc);
            fail();
        }
        failures += GPUSYM_SUCCESS != rc;
        mc_leave();
        mc_count(after);
        assert_memory_equal(after, before, sizeof(before));
        assert_int_equal(fake.mistakes, 0);
    } while (NULL != fake.failed);
    assert_true(failures > 8 * MC_RANKS); /* as many calls as a rank needs at least */
    mc_ranks_end();
}

/* The same where the memory, GPUs or the driver have none. */
static void test_no_multicast(void **unused)
{
    static const char *const calls[] = {"cuMulticastCreate", "cuMulticastAddDevice", "cuMulticastBindMem"};
    gpusym_handle_t handle = {{0}};
    gpusym_gpu_info_t info;
    gpusym_mc_t *mc = NULL;

    (void) unused;
    mc_ranks(false);
    assert_int_equal(mc_join(1), GPUSYM_ERR_NOT_AVAILABLE);
    assert_non_null(strstr(cuda.error(), "no memory of cuMemCreate"));
    mc_leave();
    assert_int_equal(cuda.mc_import(mc_rank[0].gpu, &handle, &mc), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(cuda.mc_create(mc_rank[0].gpu, 1, MC_RANKS, SIZE_MAX - 4096, &mc, &handle), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(cuda.mc_create(mc_rank[0].gpu, 1, MC_RANKS, MC_SLOT, &mc, &handle), GPUSYM_SUCCESS);
    mc_handle_t theirs;
    memcpy(&theirs, &handle, sizeof(theirs));
    theirs.pid = 0x7ffffff0;
    memcpy(&handle, &theirs, sizeof(theirs));
    assert_int_equal(cuda.mc_import(mc_rank[1].gpu, &handle, &mc_rank[1].mc), GPUSYM_ERR_UNREACHABLE);
    cuda.mc_free(mc);
    mc_ranks_end();
    fake.mc_created = 0;
    for (int i = -1; i < (int) (sizeof(calls) / sizeof(calls[0])); i++) {
        cuda.close();
        cuda_state.lib = NULL;
        fake.no_multicast = i < 0;
        fake.missing = i < 0 ? NULL : calls[i];
        open_cuda();
        gpusym_gpu_t *gpu = open_gpu(0, NULL);
        cuda.gpu_info(gpu, &info);
        assert_int_equal(info.multicast, 0 == i); /* that one is not looked for before it is wanted */
        assert_int_equal(cuda.mc_create(gpu, 1, 2, MC_SLOT, &mc, &handle), GPUSYM_ERR_NOT_AVAILABLE);
        assert_non_null(strstr(cuda.error(), "no multicast objects"));
    }
    assert_int_equal(fake.mc_created, 0);
}

/* What forbids it does so before a driver is asked for an object; and by itself nobody asks. */
static void test_multicast_forbidden(void **unused)
{
    static const struct {
        const char *name, *value;
    } veto[] = {{"NCCL_NVLS_ENABLE", "0"}, {"NVSHMEM_DISABLE_NVLS", "1"}, {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"}};

    (void) unused;
    mc_ranks(true);
    for (size_t i = 0; i < sizeof(veto) / sizeof(veto[0]); i++) {
        setenv(veto[i].name, veto[i].value, 1);
        assert_int_equal(mc_join(1), GPUSYM_ERR_NOT_AVAILABLE);
        assert_non_null(strstr(cuda.error(), veto[i].name));
        unsetenv(veto[i].name);
    }
    assert_int_equal(mc_join(0), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(mc_join(-1), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(fake.mc_created, 0);
    mc_ranks_end();
}

/* ---- gpu_open ---- */

static void test_gpu_primary(void **unused)
{
    gpusym_gpu_info_t info;

    (void) unused;
    open_cuda();
    fake_primary[1].refs = 1; /* the program's */
    gpusym_gpu_t *gpu = open_gpu(1, &fake_primary[1]);
    assert_int_equal(fake_primary[1].refs, 2);
    assert_ptr_equal(open_gpu(1, NULL), gpu);
    assert_ptr_equal(open_gpu(1, &fake_primary[1]), gpu);
    assert_int_equal(fake_primary[1].refs, 2);
    cuda.gpu_info(gpu, &info);
    assert_int_equal(info.ordinal, 1);
    assert_int_equal(info.uuid[15], 11);
    assert_string_equal(info.name, "fake 1");
    assert_string_equal(info.where, "0000:0b:00.0");
    assert_string_equal(info.place.pci, "0000:0b:00.0");
    assert_int_equal(info.place.number, -1);
    assert_int_equal(info.sm_count, 132);
    assert_int_equal(info.cc, 90);
    assert_true((uint64_t) 1 << 37 == info.bytes);
    cuda.close();
    assert_int_equal(fake_primary[1].refs, 1);
    assert_null(fake_current());
}

static void test_gpus_without_opening_them(void **unused)
{
    gpusym_gpu_info_t info;
    bool reaches = false;
    int count = 0;

    (void) unused;
    open_cuda();
    assert_int_equal(cuda.gpu_current(), -1);
    assert_int_equal(cuda.gpu_count(&count), GPUSYM_SUCCESS);
    assert_int_equal(count, 2);
    assert_int_equal(cuda.gpu_look(1, &info), GPUSYM_SUCCESS);
    assert_int_equal(info.ordinal, 1);
    assert_string_equal(info.place.pci, "0000:0b:00.0");
    assert_int_equal(info.gbs, 3352);
    assert_int_equal(cuda.gpu_reaches(0, 1, &reaches), GPUSYM_SUCCESS);
    assert_false(reaches);
    fake.atomics = 1; /* NVLink */
    assert_int_equal(cuda.gpu_reaches(0, 1, &reaches), GPUSYM_SUCCESS);
    assert_true(reaches);
    fake.atomics = 0;
    assert_int_equal(cuda.gpu_reaches(1, 1, &reaches), GPUSYM_SUCCESS);
    assert_true(reaches);
    assert_int_equal(cuda.gpu_look(2, &info), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(cuda.gpu_reaches(0, 2, &reaches), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(cuda.gpu_reaches(-1, 0, &reaches), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(fake_primary[0].refs + fake_primary[1].refs, 0);
    assert_null(fake_current());
    cuda.close();
}

/* By any thread: a context that is current, or a primary one. */
static void test_gpu_in_use(void **unused)
{
    CUcontext popped;

    (void) unused;
    open_cuda();
    assert_false(cuda.gpu_in_use());
    cuCtxPushCurrent_v2(&fake_other[1]);
    assert_true(cuda.gpu_in_use());
    cuCtxPopCurrent_v2(&popped);
    assert_false(cuda.gpu_in_use());
    fake_primary[1].refs = 1;
    assert_true(cuda.gpu_in_use());
    fake.fail_name = "cuDeviceGetCount"; /* as before the program's first use of CUDA */
    fake.fail_with = CUDA_ERROR_NOT_INITIALIZED;
    fake.fail_at = 1;
    assert_false(cuda.gpu_in_use());
    fake_primary[1].refs = 0;
    assert_int_equal(fake.retains, 0);
    cuda.close();
}

static void test_gpu_link(void **unused)
{
    static const char *const calls[] = {"cuDeviceGetByPCIBusId", "cuDeviceGetP2PAttribute"};
    const gpusym_place_t self = {"0000:0b:00.0", -1}, peer = {"0000:0a:00.0", -1}, hidden = {"0000:4f:00.0", -1};

    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(1, NULL);
    fake.atomics = 1;
    assert_int_equal(cuda.gpu_link(gpu, &self), GPUSYM_LINK_SELF);
    assert_int_equal(cuda.gpu_link(gpu, &peer), GPUSYM_LINK_NVLINK + 1);
    assert_int_equal(cuda.gpu_link(gpu, &hidden), GPUSYM_ERR_NOT_AVAILABLE);
    fake.link_rank = 1; /* others have better ones */
    assert_int_equal(cuda.gpu_link(gpu, &peer), GPUSYM_ERR_NOT_AVAILABLE);
    fake.link_rank = 0;
    for (size_t i = 0; i < 2; i++) {
        fake.fail_name = calls[i];
        fake.fail_at = 1;
        assert_int_equal(cuda.gpu_link(gpu, &peer), GPUSYM_ERR_NOT_AVAILABLE);
        assert_string_equal(fake.failed, calls[i]);
    }
    fake.atomics = 0; /* PCI */
    assert_int_equal(cuda.gpu_link(gpu, &peer), GPUSYM_ERR_NOT_AVAILABLE);
    cuda.close();
}

static void test_gpu_other_context(void **unused)
{
    (void) unused;
    open_cuda();
    gpusym_gpu_t *other = open_gpu(0, &fake_other[0]);
    assert_int_equal(fake.retains, 0); /* no primary context is made that nobody uses */
    gpusym_gpu_t *primary = open_gpu(0, NULL);
    assert_ptr_not_equal(primary, other);
    assert_ptr_equal(open_gpu(0, &fake_other[0]), other);
    fake_primary[1].refs = 1;
    assert_ptr_not_equal(open_gpu(1, &fake_other[1]), open_gpu(1, NULL));
    assert_int_equal(fake_primary[1].refs, 2);
    cuda.close();
    assert_int_equal(fake_primary[0].refs, 0);
    assert_int_equal(fake_primary[1].refs, 1);
}

static void test_gpu_of_the_caller(void **unused)
{
    gpusym_mem_t host = {.kind = GPUSYM_MEM_HOST, .gpu = -1};
    gpusym_gpu_t *gpu = NULL, *same = NULL;
    gpusym_gpu_info_t info;

    (void) unused;
    open_cuda();
    assert_int_equal(cuda.gpu_open(NULL, &gpu), GPUSYM_SUCCESS);
    cuda.gpu_info(gpu, &info);
    assert_int_equal(info.ordinal, 0);
    fake_stack[fake_depth++] = &fake_other[1];
    assert_int_equal(cuda.gpu_open(NULL, &gpu), GPUSYM_SUCCESS);
    assert_int_equal(cuda.gpu_open(&host, &same), GPUSYM_SUCCESS);
    assert_ptr_equal(gpu, same);
    assert_ptr_equal(gpu->ctx, &fake_other[1]);
    cuda.gpu_info(gpu, &info);
    assert_int_equal(info.ordinal, 1);
    assert_ptr_equal(fake_current(), &fake_other[1]);
    gpusym_mem_t nowhere = {.kind = GPUSYM_MEM_DEVICE, .gpu = 7};
    assert_int_equal(cuda.gpu_open(&nowhere, &gpu), GPUSYM_ERR);
    assert_non_null(strstr(cuda.error(), "GPU 7"));
}

/* ---- Memory ---- */

static void test_memory(void **unused)
{
    unsigned char out[1000], in[1000];
    void *p = NULL, *host = NULL, *seen = NULL;
    gpusym_gpu_t *gpu;

    (void) unused;
    open_cuda();
    gpu = open_gpu(0, NULL);
    assert_int_equal(cuda.mem_alloc(gpu, 1000, &p), GPUSYM_SUCCESS);
    assert_int_equal(fake_region((uintptr_t) p)->size, 2 << 20);
    assert_int_equal(cuda.mem_zero(gpu, p, 1000), GPUSYM_SUCCESS);
    memset(out, 1, sizeof(out));
    assert_int_equal(cuda.copy(gpu, out, p, sizeof(out)), GPUSYM_SUCCESS);
    for (size_t i = 0; i < sizeof(out); i++) {
        assert_int_equal(out[i], 0);
        in[i] = (unsigned char) (i * 7);
    }
    assert_int_equal(cuda.copy(gpu, p, in, sizeof(in)), GPUSYM_SUCCESS);
    assert_int_equal(cuda.copy(gpu, out, p, sizeof(out)), GPUSYM_SUCCESS);
    assert_memory_equal(in, out, sizeof(in));
    assert_int_equal(cuda.copy(gpu, NULL, NULL, 0), GPUSYM_SUCCESS);
    assert_int_equal(cuda.host_alloc(gpu, sizeof(out), &host, &seen), GPUSYM_SUCCESS);
    memset(out, 0, sizeof(out));
    assert_memory_equal(host, out, sizeof(out));
    assert_ptr_equal(host, seen);
    assert_int_equal(cuda.host_free(gpu, host), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_free(gpu, p), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_free(gpu, p), GPUSYM_ERR);
    assert_int_equal(cuda.mem_alloc(gpu, 0, &p), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(cuda.mem_alloc(gpu, SIZE_MAX, &p), GPUSYM_ERR_BAD_PARAM);
}

static void test_errors_in_words(void **unused)
{
    void *p = NULL, *seen = NULL;
    gpusym_gpu_t *gpu;

    (void) unused;
    open_cuda();
    gpu = open_gpu(1, NULL);
    fake.fail_name = "cuMemAlloc_v2";
    fake.fail_with = CUDA_ERROR_OUT_OF_MEMORY;
    fake.fail_at = 1;
    assert_int_equal(cuda.mem_alloc(gpu, 12345, &p), GPUSYM_ERR_NO_MEMORY);
    assert_string_equal(cuda.error(), "cuMemAlloc_v2 on GPU 1: out of memory (CUDA_ERROR_OUT_OF_MEMORY); "
                                      "12345 bytes were requested");
    fake.fail_name = "cuMemHostAlloc";
    fake.fail_at = 1;
    assert_int_equal(cuda.host_alloc(gpu, 12345, &p, &seen), GPUSYM_ERR_NO_MEMORY);
    assert_non_null(strstr(cuda.error(), "12345 bytes of pinned host memory"));
}

/* ---- Peers ---- */

/* The handle as if another process, of the same id in another container, had made it. */
static gpusym_handle_t another_process(const gpusym_handle_t *handle)
{
    gpusym_handle_t changed = *handle;
    cuda_handle_t theirs;

    memcpy(&theirs, handle, sizeof(theirs));
    theirs.nonce++;
    memcpy(&changed, &theirs, sizeof(theirs));
    return changed;
}

static void test_import(void **unused)
{
    gpusym_handle_t handle, theirs;
    void *p = NULL, *first = NULL, *second = NULL;
    gpusym_gpu_t *gpu;

    (void) unused;
    open_cuda();
    gpu = open_gpu(0, NULL);
    assert_int_equal(cuda.mem_alloc(gpu, 1000, &p), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_export(gpu, p, &handle), GPUSYM_SUCCESS);

    assert_int_equal(cuda.mem_import(gpu, &handle, &first), GPUSYM_SUCCESS); /* our own: not opened */
    assert_ptr_equal(first, p);
    assert_int_equal(fake.peers, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuda.mem_import(open_gpu(1, NULL), &handle, &second), GPUSYM_SUCCESS);
        assert_ptr_equal(second, p);
        assert_int_equal(fake.peers, 1);
    }
    assert_int_equal(cuda.mem_unimport(gpu, first), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_unimport(gpu, first), GPUSYM_ERR_BAD_PARAM);

    theirs = another_process(&handle);
    assert_int_equal(cuda.mem_import(gpu, &theirs, &first), GPUSYM_ERR_UNREACHABLE);
    fake.foreign = true;
    assert_int_equal(cuda.mem_import(gpu, &theirs, &first), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_import(gpu, &theirs, &second), GPUSYM_SUCCESS);
    assert_int_equal(fake.ipc, 2);
    assert_int_equal(cuda.mem_unimport(gpu, first), GPUSYM_SUCCESS);
    assert_int_equal(fake.ipc, 1);
    fake.fail_name = "cuIpcOpenMemHandle_v2";
    fake.fail_with = CUDA_ERROR_OUT_OF_MEMORY;
    fake.fail_at = 1;
    assert_int_equal(cuda.mem_import(gpu, &theirs, &first), GPUSYM_ERR_NO_MEMORY);
    cuda.close(); /* ends the mapping that is left */
    assert_int_equal(fake.ipc, 0);
    open_cuda();
    assert_int_equal(cuda.mem_free(open_gpu(0, NULL), p), GPUSYM_SUCCESS);
}

static void test_export_pool_memory(void **unused)
{
    gpusym_handle_t handle;

    (void) unused;
    open_cuda();
    void *pool = fake_region_add(64, CU_MEMORYTYPE_DEVICE, false, 0, NULL)->base;
    assert_int_equal(cuda.mem_export(open_gpu(0, NULL), pool, &handle), GPUSYM_ERR_UNREACHABLE);
}

/* ---- Streams and kernels ---- */

static void test_stream(void **unused)
{
    gpusym_stream_t *stream = NULL;
    int from = 42, to = 0;

    (void) unused;
    open_cuda();
    assert_int_equal(cuda.stream_create(open_gpu(0, NULL), &stream), GPUSYM_SUCCESS);
    assert_int_equal(stream->stream->priority, -5);
    fake.busy = true;
    assert_int_equal(cuda.copy_async(stream, &to, &from, sizeof(to)), GPUSYM_SUCCESS);
    assert_int_equal(cuda.stream_poll(stream), 0);
    assert_int_equal(to, 0);
    fake.busy = false;
    assert_int_equal(cuda.stream_poll(stream), 1);
    assert_int_equal(to, 42);
    fake.fail_name = "cuStreamQuery";
    fake.fail_with = CUDA_ERROR_ILLEGAL_ADDRESS;
    fake.fail_at = 1;
    assert_int_equal(cuda.stream_poll(stream), GPUSYM_ERR);
    cuda.stream_destroy(stream);
}

static gpusym_stream_t *open_stream(void)
{
    gpusym_stream_t *stream = NULL;

    assert_int_equal(cuda.stream_create(open_gpu(0, NULL), &stream), GPUSYM_SUCCESS);
    return stream;
}

/* Two allocations that touch, as one run: the driver copies each alone. */
static void test_copy_across(void **unused)
{
    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(0, NULL);
    gpusym_stream_t *stream = open_stream();
    fake_region_t *first = fake_region_add(8192, CU_MEMORYTYPE_DEVICE, false, 0, NULL);
    fake_region_t *second = fake_region_add(8192, CU_MEMORYTYPE_DEVICE, false, 0, NULL);
    char *own = second->base, from[6000], to[6000];
    first->size = 4096;
    second->base = first->base + 4096;
    second->size = 4096;
    for (size_t i = 0; i < sizeof from; i++) {
        from[i] = (char) (i * 5 + 3);
    }
    assert_int_equal(cuda.copy_async(stream, first->base + 1000, from, sizeof from), GPUSYM_SUCCESS);
    assert_int_equal(stream->stream->ops, 2);
    assert_int_equal(cuda.stream_poll(stream), 1);
    assert_int_equal(cuda.copy(gpu, to, first->base + 1000, sizeof to), GPUSYM_SUCCESS);
    assert_memory_equal(to, from, sizeof to);
    assert_int_equal(cuda.copy(gpu, first->base + 4000, first->base + 100, 3000), GPUSYM_SUCCESS); /* from one to two */
    assert_memory_equal(first->base + 4900, from, 2100);
    assert_int_not_equal(cuda.copy(gpu, second->base - 8, from, 4096 + 9), GPUSYM_SUCCESS); /* behind the last one */
    second->base = own;
    cuda.stream_destroy(stream);
}

static void test_copy2d(void **unused)
{
    unsigned char from[7 * 9], to[5 * 9], want[5 * 9];
    (void) unused;
    open_cuda();
    gpusym_stream_t *stream = open_stream();
    for (size_t i = 0; i < sizeof(from); i++) {
        from[i] = (unsigned char) (i + 1);
    }
    for (size_t width = 1; width <= 5; width++) {
        memset(to, 0, sizeof(to));
        memset(want, 0, sizeof(want));
        for (size_t row = 0; row < 9; row++) {
            memcpy(want + 5 * row, from + 7 * row, width);
        }
        assert_int_equal(cuda.copy2d_async(stream, to, 5, from, 7, width, 9), GPUSYM_SUCCESS);
        assert_int_equal(stream->stream->ops, 1);
        assert_int_equal(cuda.stream_poll(stream), 1);
        assert_memory_equal(to, want, sizeof(to));
    }
    assert_int_equal(cuda.copy2d_async(stream, to, 5, from, 5, 5, 9), GPUSYM_SUCCESS); /* without gaps: one copy */
    assert_int_equal(stream->stream->op[0].rows, 1);
    assert_int_equal(cuda.stream_poll(stream), 1);
    assert_memory_equal(to, from, sizeof(to));
    assert_int_equal(cuda.copy2d_async(stream, to, 0, from, 0, 5, 1), GPUSYM_SUCCESS); /* one row has no pitch */
    assert_int_equal(cuda.copy2d_async(stream, NULL, 0, NULL, 0, 0, 9), GPUSYM_SUCCESS);
    assert_int_equal(cuda.copy2d_async(stream, NULL, 0, NULL, 0, 9, 0), GPUSYM_SUCCESS);
    assert_int_equal(cuda.copy2d_async(stream, to, 4, from, 7, 5, 2), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(cuda.copy2d_async(stream, to, 7, from, 4, 5, 2), GPUSYM_ERR_BAD_PARAM);
    assert_non_null(strstr(cuda.error(), "7 and 4 bytes apart"));
    assert_int_equal(cuda.copy2d_async(stream, to, SIZE_MAX, from, SIZE_MAX, SIZE_MAX, 2), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(cuda.stream_poll(stream), 1);
    cuda.stream_destroy(stream);
}

/* Where other processes use the GPU, small copies from the host are of two rows. */
static void test_crowded(void **unused)
{
    char *to;
    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(0, NULL);
    gpusym_stream_t *stream = NULL;
    assert_int_equal(cuda.stream_create(gpu, &stream), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_alloc(gpu, 64 << 10, (void **) &to), GPUSYM_SUCCESS);
    static char from[64 << 10], back[64 << 10];
    for (size_t i = 0; i < sizeof(from); i++) {
        from[i] = (char) (i * 7 + 1);
    }
    for (int crowded = 0; crowded < 2; crowded++) {
        static const size_t sizes[] = {1, 2, 3, 8, 1001, 32767, 32768, 40000};
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            const size_t n = sizes[i];
            const bool rows = crowded && n > 1 && n < 32768;
            assert_int_equal(cuda.copy_async(stream, to, from, n), GPUSYM_SUCCESS);
            assert_int_equal(stream->stream->ops, rows && n % 2 ? 2 : 1);
            for (unsigned k = 0; k < stream->stream->ops; k++) {
                assert_int_equal(stream->stream->op[k].rows, rows ? 2 : 1);
            }
            assert_int_equal(cuda.stream_poll(stream), 1);
            memset(back, 0, sizeof(back));
            assert_int_equal(cuda.copy_async(stream, back, to, n), GPUSYM_SUCCESS);
            assert_int_equal(stream->stream->ops, 1); /* to the host as ever */
            assert_int_equal(cuda.stream_poll(stream), 1);
            assert_memory_equal(back, from, n);
            assert_int_equal(cuda.copy(gpu, to, from + 1, n), GPUSYM_SUCCESS);
            assert_int_equal(cuda.copy(gpu, back, to, n), GPUSYM_SUCCESS);
            assert_memory_equal(back, from + 1, n);
        }
        cuda.gpu_crowded(gpu);
    }
    cuda.mem_free(gpu, to);
    cuda.stream_destroy(stream);
}

/* Rows farther apart than the driver takes are copied one by one. */
static void test_copy2d_far(void **unused)
{
    const size_t far = (size_t) 1 << 31;
    (void) unused;
    open_cuda();
    gpusym_stream_t *stream = open_stream();
    char *at = (char *) (uintptr_t) far; /* never looked at */
    assert_int_equal(cuda.copy2d_async(stream, at, 16, at, far, 8, 3), GPUSYM_SUCCESS);
    assert_int_equal(stream->stream->ops, 3);
    for (size_t row = 0; row < 3; row++) {
        assert_ptr_equal(stream->stream->op[row].dst, at + 16 * row);
        assert_ptr_equal(stream->stream->op[row].src, at + far * row);
        assert_int_equal(stream->stream->op[row].size, 8);
    }
    stream->stream->ops = 0;
    assert_int_equal(cuda.copy2d_async(stream, at, far - 1, at, far - 1, 8, 3), GPUSYM_SUCCESS);
    assert_int_equal(stream->stream->ops, 1);
    stream->stream->ops = 0;
    fake.fail_name = "cuMemcpyAsync";
    fake.fail_at = 2;
    assert_int_equal(cuda.copy2d_async(stream, at, far, at, 16, 8, 3), GPUSYM_ERR);
    assert_int_equal(stream->stream->ops, 1);
    stream->stream->ops = 0;
    cuda.stream_destroy(stream);
}

/* ---- streams of the program ---- */

/* A stream of the program's, by whatever handle, takes launches and copies, and stays as it is. */
static void test_wrapped_stream(void **unused)
{
    const CUstream handles[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, NULL};
    gpusym_work_t w = {.nblocks = 7, .nthreads = 384, .done_seq = 5};
    CUstream own = NULL;
    const char *why = NULL;
    int from = 42;

    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(1, NULL);
    assert_int_equal(cuda.kernels_load(gpu, &why), GPUSYM_SUCCESS);
    fake_stack[fake_depth++] = gpu->ctx;
    assert_int_equal(cuStreamCreateWithPriority(&own, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    fake.standard = own;
    for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
        gpusym_stream_t *stream = NULL;
        CUstream handle = 3 == i ? own : handles[i];
        int to = 0;
        fake_depth = 0 == i ? 0 : 1; /* from a thread without a context, too */
        assert_int_equal(cuda.stream_wrap(gpu, handle, &stream), GPUSYM_SUCCESS);
        assert_int_equal(cuda.launch(stream, 0, &w), GPUSYM_SUCCESS);
        assert_ptr_equal(fake.launched.stream, own);
        assert_int_equal(cuda.copy_async(stream, &to, &from, sizeof(to)), GPUSYM_SUCCESS);
        assert_int_equal(cuda.stream_poll(stream), 1);
        assert_int_equal(to, 42);
        cuda.stream_unwrap(stream);
    }
    assert_int_equal(fake.streams, 2); /* and that of copies */
    assert_int_equal(cuStreamDestroy_v2(own), CUDA_SUCCESS);
    fake_depth = 0;
}

/* Kernels for streams of the program come to the GPU soon, other kernels and after one failure all as ever. */
static void test_launched_soon(void **unused)
{
    gpusym_work_t w = {.nblocks = 3, .nthreads = 64, .early = GPUSYM_STREAM_BEGINS, .soon = GPUSYM_SOON_THIS};
    const gpusym_work_t ordinary = {.nblocks = 3, .nthreads = 64};
    const char *why = NULL;

    (void) unused;
    open_cuda();
    gpusym_stream_t *stream = open_stream();
    assert_int_equal(cuda.kernels_load(stream->gpu, &why), GPUSYM_SUCCESS);
    assert_int_equal(cuda.launch(stream, 0, &ordinary), GPUSYM_SUCCESS);
    assert_false(fake.launched.soon);
    assert_int_equal(cuda.launch(stream, 0, &w), GPUSYM_SUCCESS);
    assert_true(fake.launched.soon);
    assert_int_equal(fake.launched.blocks, 3);
    assert_int_equal(fake.launched.threads, 64);
    fake.fail_name = "cuLaunchKernelEx";
    fake.fail_at = 1;
    for (int i = 0; i < 2; i++) {
        fake.launched.blocks = 0;
        assert_int_equal(cuda.launch(stream, 0, &w), GPUSYM_SUCCESS);
        assert_int_equal(fake.launched.blocks, 3);
        assert_false(fake.launched.soon);
    }
    cuda.stream_destroy(stream);
}

/* Streams of other GPUs and contexts are not taken for the GPU's; nor are the default streams of another context. */
static void test_foreign_stream_refused(void **unused)
{
    const CUstream handles[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, NULL};
    gpusym_stream_t *stream = NULL;
    CUstream other = NULL;

    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(0, NULL);
    fake_stack[fake_depth++] = &fake_other[0];
    assert_int_equal(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
        assert_int_equal(cuda.stream_wrap(gpu, 3 == i ? other : handles[i], &stream), GPUSYM_ERR_BAD_PARAM);
        assert_non_null(strstr(cuda.error(), "belongs to another GPU or context"));
        assert_null(stream);
    }
    assert_ptr_equal(fake_current(), &fake_other[0]);
    assert_int_equal(cuStreamDestroy_v2(other), CUDA_SUCCESS);
    fake_depth = 0;
}

static void test_captured_stream(void **unused)
{
    gpusym_stream_t *legacy = NULL;
    bool captured = true;

    (void) unused;
    open_cuda();
    gpusym_stream_t *stream = open_stream();
    assert_int_equal(cuda.stream_captured(stream, &captured), GPUSYM_SUCCESS);
    assert_false(captured);
    stream->stream->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    assert_int_equal(cuda.stream_captured(stream, &captured), GPUSYM_SUCCESS);
    assert_true(captured);
    stream->stream->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    assert_int_equal(cuda.stream_captured(stream, &captured), GPUSYM_ERR);
    assert_non_null(strstr(cuda.error(), "end the capture first"));
    assert_false(captured);
    stream->stream->capture = CU_STREAM_CAPTURE_STATUS_NONE;
    fake.standard = stream->stream;
    fake.captures = true;
    assert_int_equal(cuda.stream_wrap(stream->gpu, CU_STREAM_LEGACY, &legacy), GPUSYM_SUCCESS);
    assert_int_equal(cuda.stream_captured(legacy, &captured), GPUSYM_ERR);
    assert_non_null(strstr(cuda.error(), "cuStreamIsCapturing"));
    cuda.stream_unwrap(legacy);
    cuda.stream_destroy(stream);
}

static void test_kernels(void **unused)
{
    gpusym_work_t w = {.nblocks = 7, .nthreads = 384, .bytes = 99, .done_seq = 5};
    gpusym_stream_t *stream = NULL;
    gpusym_gpu_t *gpu;
    const char *why = NULL;

    (void) unused;
    open_cuda();
    gpu = open_gpu(1, NULL);
    assert_int_equal(cuda.stream_create(gpu, &stream), GPUSYM_SUCCESS);
    assert_int_equal(cuda.launch(stream, 0, &w), GPUSYM_ERR_BAD_PARAM); /* not loaded yet */
    assert_int_equal(cuda.kernels_load(gpu, &why), GPUSYM_SUCCESS);
    assert_int_equal(cuda.kernels_load(gpu, &why), GPUSYM_SUCCESS);
    assert_int_equal(fake.modules, 2);
    assert_int_equal(cuda.launch(stream, GPUSYM_K_FIRST_STREAM, &w), GPUSYM_ERR_BAD_PARAM); /* of the other module */
    assert_int_equal(cuda.stream_kernels_load(gpu, &why), GPUSYM_SUCCESS);
    assert_int_equal(cuda.stream_kernels_load(gpu, &why), GPUSYM_SUCCESS);
    assert_int_equal(fake.modules, 3);
    for (unsigned k = 0; k < GPUSYM_K_COUNT; k++) {
        CUmodule module = gpu->module[k < GPUSYM_K_FIRST_STREAM ? CUDA_KERNELS : CUDA_STREAM_KERNELS];
        assert_true(module->functions[k].loaded);
        assert_int_equal(cuda.launch(stream, k, &w), GPUSYM_SUCCESS);
        assert_ptr_equal(fake.launched.function, &module->functions[k]);
        assert_ptr_equal(fake.launched.stream, stream->stream);
        assert_int_equal(fake.launched.blocks, 7);
        assert_int_equal(fake.launched.threads, 384);
        assert_memory_equal(&fake.launched.work, &w, sizeof(w));
    }
    assert_int_equal(cuda.launch(stream, GPUSYM_K_COUNT, &w), GPUSYM_ERR_BAD_PARAM);
    cuda.stream_destroy(stream);
}

/* One graph for launches that differ in everything. */
static void test_graph(void **unused)
{
    gpusym_work_t w = {.nblocks = 7, .nthreads = 384, .bytes = 99, .done_seq = 5};
    gpusym_stream_t *stream = NULL;
    gpusym_graph_t *graph = NULL, *made;
    const char *why = NULL;

    (void) unused;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(1, NULL);
    assert_int_equal(cuda.stream_create(gpu, &stream), GPUSYM_SUCCESS);
    assert_int_equal(cuda.graph_launch(&graph, stream, 0, &w), GPUSYM_ERR_BAD_PARAM); /* not loaded yet */
    assert_null(graph);
    assert_int_equal(cuda.kernels_load(gpu, &why), GPUSYM_SUCCESS);
    for (unsigned k = 0; k < 3; k++) {
        made = graph;
        assert_int_equal(cuda.graph_launch(&graph, stream, k, &w), GPUSYM_SUCCESS);
        assert_true(NULL != graph && (0 == k || made == graph));
        assert_ptr_equal(fake.launched.function, &gpu->module[CUDA_KERNELS]->functions[k]);
        assert_ptr_equal(fake.launched.stream, stream->stream);
        assert_int_equal(fake.launched.blocks, 7 + k);
        assert_int_equal(fake.launched.threads, 384);
        assert_memory_equal(&fake.launched.work, &w, sizeof(w));
        w.done_seq++;
        w.nblocks++;
    }
    assert_true(1 == fake.graphs && 1 == fake.execs);
    assert_null(fake_current());
    cuda.graph_destroy(graph);
    cuda.stream_destroy(stream);
}

/* Whether the descriptor that was launched, for few ranks, has the fields of w. */
static bool is_few_of(const gpusym_work_t *w)
{
    const gpusym_work_layout_t full = GPUSYM_WORK_LAYOUT, *const few = &gpusym_few_layout;
    const char *at = (const char *) &fake.launched.work, *from = (const char *) w;
    return 0 == memcmp(at, w->peer, GPUSYM_FEW_RANKS * sizeof(w->peer[0])) &&
           0 == memcmp(at + few->in, from + full.in, full.peer_in - full.in) &&
           0 == memcmp(at + few->peer_in, w->peer_in, GPUSYM_FEW_RANKS * sizeof(w->peer_in[0])) &&
           0 == memcmp(at + few->peer_out, w->peer_out, GPUSYM_FEW_RANKS * sizeof(w->peer_out[0])) &&
           0 == memcmp(at + few->send, w->send, GPUSYM_FEW_RANKS * sizeof(w->send[0])) &&
           0 == memcmp(at + few->recv, w->recv, GPUSYM_FEW_RANKS * sizeof(w->recv[0])) &&
           0 == memcmp(at + few->remote_off, w->remote_off, GPUSYM_FEW_RANKS * sizeof(w->remote_off[0]));
}

/* Graphs launch the kernels for few ranks where there are such, and no more ranks. */
static void test_few(void **unused)
{
    gpusym_stream_t *stream = NULL;
    gpusym_graph_t *graph = NULL;
    const char *why = NULL;
    gpusym_work_t w;
    unsigned n = 0;

    (void) unused;
    for (size_t i = 0; i < sizeof(w); i++) {
        ((unsigned char *) &w)[i] = (unsigned char) (i * 7 + i / 251);
    }
    w.nblocks = 7;
    w.nthreads = 384;
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(1, NULL);
    assert_int_equal(cuda.stream_create(gpu, &stream), GPUSYM_SUCCESS);
    assert_int_equal(cuda.kernels_load(gpu, &why), GPUSYM_SUCCESS);
    for (unsigned k = 0; k < GPUSYM_K_FIRST_STREAM; k++) {
        const bool has = NULL != gpusym_kernel_few_symbol(k);
        n += has;
        for (w.nranks = 1; w.nranks <= GPUSYM_TEAM_MAX; w.nranks++) {
            const bool few = has && w.nranks <= GPUSYM_FEW_RANKS;
            assert_int_equal(cuda.graph_launch(&graph, stream, k, &w), GPUSYM_SUCCESS);
            assert_ptr_equal(fake.launched.function,
                             few ? &gpu->module[CUDA_FEW_KERNELS]->few[k] : &gpu->module[CUDA_KERNELS]->functions[k]);
            assert_true(fake.launched.function->loaded);
            assert_true(few ? is_few_of(&w) : 0 == memcmp(&fake.launched.work, &w, sizeof(w)));
        }
    }
    assert_true(n > 0 && n < GPUSYM_K_FIRST_STREAM);
    assert_true(gpusym_few_layout.end < offsetof(gpusym_work_t, ll128_room) / 2);
    cuda.graph_destroy(graph);
    cuda.stream_destroy(stream);
}

/* The blocks of a resident kernel are a cluster, by a launch and by a graph, and nobody else's are. */
static void test_clusters(void **unused)
{
    static const char *const needed[] = {"cuLaunchKernelEx", "cuGraphKernelNodeSetAttribute"};
    gpusym_work_t one = {.nblocks = 1, .nthreads = 64, .linger_ns = 5}, w = {.nblocks = 8, .nthreads = 64};
    gpusym_graph_t *graph = NULL, *resident = NULL;
    gpusym_gpu_info_t info;
    const char *why = NULL;

    (void) unused;
    open_cuda();
    gpusym_stream_t *stream = open_stream();
    assert_int_equal(cuda.kernels_load(stream->gpu, &why), GPUSYM_SUCCESS);
    cuda.gpu_info(stream->gpu, &info);
    assert_true(info.clusters);
    assert_int_equal(cuda.launch(stream, 0, &w), GPUSYM_SUCCESS);
    assert_int_equal(fake.launched.cluster, 0);
    assert_int_equal(cuda.launch(stream, 0, &one), GPUSYM_SUCCESS);
    assert_int_equal(fake.launched.cluster, 0);
    assert_int_equal(cuda.graph_launch(&graph, stream, 0, &w), GPUSYM_SUCCESS);
    assert_int_equal(fake.launched.cluster, 0);
    w.linger_ns = 5;
    assert_int_equal(cuda.launch(stream, 0, &w), GPUSYM_SUCCESS);
    assert_int_equal(fake.launched.cluster, 8);
    for (int i = 0; i < 2; i++) { /* made, and then changed */
        assert_int_equal(cuda.graph_launch(&resident, stream, 0, &w), GPUSYM_SUCCESS);
        assert_int_equal(fake.launched.cluster, 8);
        assert_int_equal(fake.launched.work.linger_ns, w.linger_ns);
        w.linger_ns++;
    }
    w.nblocks = 9; /* more than a cluster has */
    assert_int_equal(cuda.launch(stream, 0, &w), GPUSYM_ERR);
    assert_non_null(strstr(cuda.error(), "a launch of a cluster"));
    cuda.graph_destroy(graph);
    cuda.graph_destroy(resident);
    cuda.stream_destroy(stream);
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        cuda.close();
        cuda_state.lib = NULL;
        fake.missing = needed[i];
        open_cuda();
        cuda.gpu_info(open_gpu(0, NULL), &info);
        assert_false(info.clusters);
    }
}

static void test_kernels_refused(void **unused)
{
    gpusym_work_t w = {.nblocks = 1, .nthreads = 32};
    gpusym_stream_t *stream = NULL;
    gpusym_gpu_t *gpu;
    const char *why = NULL;

    (void) unused;
    open_cuda();
    gpu = open_gpu(1, NULL);
    assert_int_equal(cuda.stream_create(gpu, &stream), GPUSYM_SUCCESS);
    fake.fail_name = "cuModuleLoadData";
    fake.fail_with = CUDA_ERROR_NO_BINARY_FOR_GPU;
    fake.fail_at = 1;
    assert_int_equal(cuda.kernels_load(gpu, &why), GPUSYM_ERR_NOT_AVAILABLE);
    assert_non_null(strstr(why, "--with-cuda-arch=90"));
    fake.fail_name = "cuModuleGetFunction";
    fake.fail_with = CUDA_ERROR_NOT_FOUND;
    fake.fail_at = 2;
    assert_int_equal(cuda.kernels_load(gpu, &why), GPUSYM_ERR_NOT_AVAILABLE);
    assert_non_null(strstr(why, gpusym_kernel_symbol(1)));
    assert_int_equal(fake.modules, 0);
    assert_int_equal(cuda.launch(stream, 0, &w), GPUSYM_ERR_BAD_PARAM); /* of an unloaded module */
    fake.fail_name = "cuModuleLoadData";
    fake.fail_with = CUDA_ERROR_OUT_OF_MEMORY;
    fake.fail_at = 2; /* that for few ranks */
    assert_int_equal(cuda.kernels_load(gpu, &why), GPUSYM_ERR_NOT_AVAILABLE);
    assert_int_equal(fake.modules, 1);
    assert_int_equal(cuda.kernels_load(gpu, &why), GPUSYM_SUCCESS);
    cuda.stream_destroy(stream);
}

/* ---- Every call fails once: contexts, errors, leaks ---- */

typedef struct {
    gpusym_gpu_t *gpu;
    gpusym_stream_t *stream;
    gpusym_handle_t own, theirs, own_fd, theirs_fd, made_handle;
    void *p, *mapped, *made, *seen;
    gpusym_stream_t *made_stream;
    gpusym_graph_t *graph;
    gpusym_gpu_t *made_gpu;
    gpusym_heap_t *heap;
    size_t size;
} world_t;

static int do_gpu_open(world_t *x)
{
    return cuda.gpu_open(NULL, &x->made_gpu);
}
static int do_gpu_open_mem(world_t *x)
{
    gpusym_mem_t mem = {.kind = GPUSYM_MEM_DEVICE, .gpu = 2, .context = &fake_primary[2]};

    fake_primary[2].refs = 1; /* the program's */
    return cuda.gpu_open(&mem, &x->made_gpu);
}
static int do_mem_alloc(world_t *x)
{
    return cuda.mem_alloc(x->gpu, 64, &x->made);
}
static int undo_mem_alloc(world_t *x)
{
    return cuda.mem_free(x->gpu, x->made);
}
static int do_mem_zero(world_t *x)
{
    return cuda.mem_zero(x->gpu, x->p, 64);
}
static int do_export(world_t *x)
{
    return cuda.mem_export(x->gpu, x->p, &x->own);
}
static int do_import_own(world_t *x)
{
    return cuda.mem_import(x->gpu, &x->own, &x->made);
}
static int do_import_theirs(world_t *x)
{
    return cuda.mem_import(x->gpu, &x->theirs, &x->made);
}
static int do_range_mapped(world_t *x)
{
    gpusym_range_t range;
    const int rc = cuda.mem_range(x->mapped, &range);

    assert_true(GPUSYM_SUCCESS != rc || range.shareable);
    return rc;
}
static int do_export_mapped(world_t *x)
{
    return cuda.mem_export(x->gpu, x->mapped, &x->made_handle);
}
static int undo_export_mapped(world_t *x)
{
    return cuda.mem_unexport(x->gpu, &x->made_handle);
}
static int do_import_fd(world_t *x)
{
    return cuda.mem_import(x->gpu, &x->theirs_fd, &x->made);
}
static int undo_import(world_t *x)
{
    return cuda.mem_unimport(x->gpu, x->made);
}
static int do_vmm_reserve(world_t *x)
{
    x->size = 64;
    return cuda.vmm_reserve(x->gpu, &x->size, 2, &x->made);
}
static int undo_vmm_reserve(world_t *x)
{
    return cuda.vmm_release(x->gpu, x->made, x->size, 2);
}
static int do_vmm_map(world_t *x)
{
    int rc = do_vmm_reserve(x);

    if (GPUSYM_SUCCESS == rc && GPUSYM_SUCCESS != (rc = cuda.vmm_map(x->gpu, x->made, x->size))) {
        assert_int_equal(undo_vmm_reserve(x), GPUSYM_SUCCESS);
    }
    return rc;
}
static int undo_vmm_map(world_t *x)
{
    const int rc = cuda.vmm_unmap(x->gpu, x->made, x->size);

    return GPUSYM_SUCCESS == rc ? undo_vmm_reserve(x) : rc;
}
/* With virtual memory or, where a call fails, without. */
static int do_heap(world_t *x)
{
    gpusym_heap_id_t id;
    const int rc = gpusym_heap_create(&cuda, x->gpu, 1 << 20, 2, true, &x->heap);

    assert_true(GPUSYM_SUCCESS == rc && 0 == fake.mistakes);
    gpusym_heap_id(x->heap, 0, &id);
    assert_true(id.vmm || NULL != fake.failed);
    return rc;
}
static int undo_heap(world_t *x)
{
    gpusym_heap_destroy(x->heap);
    return GPUSYM_SUCCESS;
}
static int do_host_alloc(world_t *x)
{
    return cuda.host_alloc(x->gpu, 64, &x->made, &x->seen);
}
static int undo_host_alloc(world_t *x)
{
    return cuda.host_free(x->gpu, x->made);
}
static char host_page[4096];
static int do_host_register(world_t *x)
{
    return cuda.host_register(x->gpu, host_page, sizeof(host_page), &x->seen);
}
static int undo_host_register(world_t *x)
{
    return cuda.host_unregister(x->gpu, host_page);
}
static int do_copy(world_t *x)
{
    char here[64];

    return cuda.copy(x->gpu, here, x->p, sizeof(here));
}
static int do_stream(world_t *x)
{
    return cuda.stream_create(x->gpu, &x->made_stream);
}
static int undo_stream(world_t *x)
{
    cuda.stream_destroy(x->made_stream);
    return GPUSYM_SUCCESS;
}
static int do_wrap(world_t *x)
{
    return cuda.stream_wrap(x->gpu, x->stream->stream, &x->made_stream);
}
static int undo_wrap(world_t *x)
{
    cuda.stream_unwrap(x->made_stream);
    return GPUSYM_SUCCESS;
}
static int do_captured(world_t *x)
{
    bool captured;

    return cuda.stream_captured(x->stream, &captured);
}
static int do_poll(world_t *x)
{
    int rc = cuda.stream_poll(x->stream);

    return 1 == rc ? GPUSYM_SUCCESS : rc;
}
static int do_copy_async(world_t *x)
{
    static char there[64];

    return cuda.copy_async(x->stream, there, x->p, sizeof(there));
}
static int do_copy2d(world_t *x)
{
    static char there[64];

    return cuda.copy2d_async(x->stream, there, 16, x->p, 32, 8, 2);
}
static int do_kernels(world_t *x)
{
    const char *why;

    return cuda.kernels_load(x->gpu, &why);
}
static int do_launch(world_t *x)
{
    gpusym_work_t w = {.nblocks = 1, .nthreads = 32};

    return cuda.launch(x->stream, 0, &w);
}

static int do_graph(world_t *x)
{
    gpusym_work_t w = {.nblocks = 1, .nthreads = 32};
    int rc = cuda.graph_launch(&x->graph, x->stream, 0, &w);

    return GPUSYM_SUCCESS == rc ? cuda.graph_launch(&x->graph, x->stream, 0, &w) : rc;
}

static const struct {
    const char *name;
    int (*act)(world_t *);
    int (*undo)(world_t *); /* NULL: nothing to undo, or close() does */
} acts[] = {
    {"gpu_open", do_gpu_open, NULL},
    {"gpu_open of memory", do_gpu_open_mem, NULL},
    {"mem_alloc", do_mem_alloc, undo_mem_alloc},
    {"mem_zero", do_mem_zero, NULL},
    {"mem_export", do_export, NULL},
    {"mem_import, own", do_import_own, undo_import},
    {"mem_import, foreign", do_import_theirs, undo_import},
    {"mem_range, mapped", do_range_mapped, NULL},
    {"mem_export, mapped", do_export_mapped, undo_export_mapped},
    {"mem_import, by descriptor", do_import_fd, undo_import},
    {"vmm_reserve", do_vmm_reserve, undo_vmm_reserve},
    {"vmm_map", do_vmm_map, undo_vmm_map},
    {"the heap", do_heap, undo_heap},
    {"host_alloc", do_host_alloc, undo_host_alloc},
    {"host_register", do_host_register, undo_host_register},
    {"copy", do_copy, NULL},
    {"stream_create", do_stream, undo_stream},
    {"stream_poll", do_poll, NULL},
    {"stream_wrap", do_wrap, undo_wrap},
    {"stream_captured", do_captured, NULL},
    {"copy_async", do_copy_async, NULL},
    {"copy2d_async", do_copy2d, NULL},
    {"kernels_load", do_kernels, NULL},
    {"launch", do_launch, NULL},
    {"graph_launch", do_graph, NULL},
};

static void world_make(world_t *x, CUcontext current)
{
    const char *why;

    setup(NULL);
    fake.gpus = 3;
    open_cuda();
    x->gpu = open_gpu(1, NULL);
    assert_int_equal(cuda.stream_create(x->gpu, &x->stream), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_alloc(x->gpu, 64, &x->p), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_export(x->gpu, x->p, &x->own), GPUSYM_SUCCESS);
    x->theirs = another_process(&x->own);
    x->mapped = fake_mapping(1 << 21, 1, BY_FD);
    assert_int_equal(cuda.mem_export(x->gpu, x->mapped, &x->own_fd), GPUSYM_SUCCESS);
    x->theirs_fd = another_process(&x->own_fd);
    fake.foreign = true;
    if (NULL != current) {
        fake_stack[fake_depth++] = current;
    }
    assert_int_equal(cuda.kernels_load(open_gpu(0, NULL), &why), GPUSYM_SUCCESS);
}

static void world_end(world_t *x)
{
    if (NULL != x->graph) {
        cuda.graph_destroy(x->graph);
    }
    cuda.stream_destroy(x->stream);
    assert_int_equal(cuda.mem_free(x->gpu, x->p), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_unexport(x->gpu, &x->own_fd), GPUSYM_SUCCESS);
    fake.fail_at = 0;
    fake_depth = 0;
    assert_int_equal(teardown(NULL), 0);
    assert_int_equal(fake_primary[0].refs + fake_primary[1].refs, 0);
    assert_in_range(fake_primary[2].refs, 0, 1); /* the program's */
}

/* One act with its n-th driver call failing; whether that many calls were made. */
static bool act_failing(size_t act, CUcontext current, unsigned n)
{
    world_t x = {0};
    bool was_reached;

    world_make(&x, current);
    if (do_launch == acts[act].act || do_graph == acts[act].act) {
        assert_int_equal(do_kernels(&x), GPUSYM_SUCCESS);
    }
    unsigned depth = fake_depth;
    snprintf(error_text, sizeof(error_text), "nothing");
    fake.fail_at = n;
    int rc = acts[act].act(&x);
    fake.fail_at = 0;
    was_reached = NULL != fake.failed;
    if (fake_depth != depth || fake_current() != current || (0 > rc && NULL == strstr(cuda.error(), fake.failed))) {
        print_error("%s: call %u (%s) failed: returned %d, depth %u of %u, error \"%s\"\n", acts[act].name, n,
                    was_reached ? fake.failed : "none", rc, fake_depth, depth, cuda.error());
        fail();
    }
    assert_true(was_reached || GPUSYM_SUCCESS == rc);
    if (GPUSYM_SUCCESS == rc && NULL != acts[act].undo) {
        assert_int_equal(acts[act].undo(&x), GPUSYM_SUCCESS);
        assert_true(fake_depth == depth && fake_current() == current);
    }
    world_end(&x);
    return was_reached;
}

static void test_every_call_fails(void **unused)
{
    (void) unused;
    for (size_t act = 0; act < sizeof(acts) / sizeof(acts[0]); act++) {
        CUcontext currents[] = {NULL, &fake_primary[1], &fake_other[0]};
        for (size_t i = 0; i < sizeof(currents) / sizeof(currents[0]); i++) {
            unsigned n = 1;
            while (act_failing(act, currents[i], n)) {
                n++;
            }
            assert_true(1 < n); /* each of them calls the driver */
        }
    }
}

/* Nothing is refused, and no capture ends, while another thread captures a stream in global mode; the mode that the
 * program has given this thread is its own again behind each. */
static void test_every_act_spares_captures(void **unused)
{
    (void) unused;
    for (size_t act = 0; act < sizeof(acts) / sizeof(acts[0]); act++) {
        world_t x = {0};
        world_make(&x, &fake_other[0]);
        fake.captures = true;
        fake_mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        if (do_launch == acts[act].act || do_graph == acts[act].act) {
            assert_int_equal(do_kernels(&x), GPUSYM_SUCCESS);
        }
        int rc = acts[act].act(&x);
        if (GPUSYM_SUCCESS == rc && NULL != acts[act].undo) {
            rc = acts[act].undo(&x);
        }
        if (GPUSYM_SUCCESS != rc || 0 != fake.mistakes) {
            print_error("%s returned %d: %s\n", acts[act].name, rc, cuda.error());
            fail();
        }
        assert_int_equal(fake_mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        world_end(&x);
    }
}

/* An undo that fails still gives back the context. */
static void test_undo_fails(void **unused)
{
    static const struct {
        const char *name;
        int (*act)(world_t *);
    } undo[] = {{"cuMemFree_v2", do_mem_alloc},
                {"cuMemFreeHost", do_host_alloc},
                {"cuMemHostUnregister", do_host_register},
                {"cuIpcCloseMemHandle", do_import_theirs},
                {"cuMemAddressFree", do_vmm_reserve},
                {"cuMemUnmap", do_vmm_map},
                {"cuMemUnmap", do_import_fd},
                {"cuMemAddressFree", do_import_fd}};
    world_t x = {0};

    (void) unused;
    for (size_t i = 0; i < sizeof(undo) / sizeof(undo[0]); i++) {
        size_t act = 0;
        world_make(&x, &fake_other[0]);
        while (acts[act].act != undo[i].act) {
            act++;
        }
        assert_int_equal(acts[act].act(&x), GPUSYM_SUCCESS);
        fake.fail_name = undo[i].name;
        fake.fail_at = 1;
        assert_int_equal(acts[act].undo(&x), GPUSYM_ERR);
        assert_string_equal(fake.failed, undo[i].name);
        assert_true(1 == fake_depth && fake_current() == &fake_other[0]);
        fake.fail_name = NULL;
        if (i < 3 || do_vmm_reserve == undo[i].act || do_vmm_map == undo[i].act) {
            assert_int_equal(acts[act].undo(&x), GPUSYM_SUCCESS);
        }
        fake.ipc = fake.reserved = 0; /* the driver kept it; we have let go */
        world_end(&x);
    }
}

/* ---- contexts that are gone ---- */

/* All that can be held of a GPU, and how it is let go of. */
typedef struct {
    world_t w;
    gpusym_lane_t *lane;
    void *host, *seen, *mapped;
} held_t;

static void hold(held_t *h)
{
    memset(h, 0, sizeof(*h));
    world_make(&h->w, NULL);
    assert_int_equal(do_kernels(&h->w), GPUSYM_SUCCESS);
    assert_int_equal(do_graph(&h->w), GPUSYM_SUCCESS);
    assert_int_equal(cuda.host_alloc(h->w.gpu, 64, &h->host, &h->seen), GPUSYM_SUCCESS);
    assert_int_equal(cuda.mem_import(h->w.gpu, &h->w.theirs, &h->mapped), GPUSYM_SUCCESS);
    assert_int_equal(gpusym_lane_get(&cuda, h->w.gpu, &h->lane), GPUSYM_SUCCESS);
}

/* The steps of closing, in some order; errors are not looked at, as nobody does there. */
static void let_go(held_t *h, unsigned step)
{
    switch (step) {
    case 0:
        gpusym_lane_put(h->lane);
        gpusym_lanes_close();
        break;
    case 1:
        cuda.graph_destroy(h->w.graph);
        break;
    case 2:
        cuda.stream_destroy(h->w.stream);
        break;
    case 3:
        (void) cuda.host_free(h->w.gpu, h->host);
        break;
    case 4:
        (void) cuda.mem_unimport(h->w.gpu, h->mapped);
        break;
    case 5:
        (void) cuda.mem_unexport(h->w.gpu, &h->w.own_fd);
        break;
    case 6:
        (void) cuda.mem_free(h->w.gpu, h->w.p);
        break;
    default:
        cuda.close();
        break;
    }
}
enum { STEPS = 8 };

/* What the driver still has is not ours to count: it went with the context. */
static void forget(void)
{
    fake.gone = CUDA_SUCCESS;
    fake_depth = 0;
    fake_take_back_all();
    (void) teardown(NULL);
    for (int i = 0; i < FAKE_REGIONS; i++) {
        if (0 != fake_memories[i].refs || 0 != fake_memories[i].maps) {
            close(fake_memories[i].fd);
            fake_memories[i] = (fake_memory_t){.refs = 0};
        }
    }
    setup(NULL);
}

static void test_contexts_go_while_closing(void **unused)
{
    static const CUresult how[] = {CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_CONTEXT_IS_DESTROYED,
                                   CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE};
    held_t h;

    (void) unused;
    for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
        for (unsigned from = 0; from < STEPS; from++) {
            hold(&h);
            fake.busy = true; /* whoever asks a stream waits for ever: but nobody must */
            for (unsigned step = 0; step < STEPS; step++) {
                fake.busy = step >= from;
                fake.gone = step >= from ? how[i] : CUDA_SUCCESS;
                assert_true(step == STEPS - 1 || cuda.gpu_alive(h.w.gpu) == (step < from));
                let_go(&h, step);
            }
            assert_int_equal(fake.stale, 0);
            forget();
        }
    }
}

/* cudaDeviceReset: the primary context is not active any more, or the program has made another at the same place. */
static void test_reset(void **unused)
{
    held_t h;

    (void) unused;
    for (unsigned reborn = 0; reborn < 2; reborn++) {
        hold(&h);
        assert_true(cuda.gpu_alive(h.w.gpu));
        fake_primary[1].refs = reborn;
        fake_primary[1].id++;
        assert_false(cuda.gpu_alive(h.w.gpu));
        const unsigned pushes = fake.pushes;
        for (unsigned step = 0; step < STEPS - 1; step++) {
            let_go(&h, step);
        }
        assert_int_equal(fake.pushes, pushes); /* nothing is done in either */
        cuda.close();
        assert_int_equal(fake_primary[1].refs, reborn); /* the other one is not ours to release */
        assert_int_equal(fake.mistakes, 0);
        forget();
    }
}

/* A driver of before the ids: what it says of the context is believed. */
static void test_gone_without_ids(void **unused)
{
    (void) unused;
    fake.missing = "cuCtxGetId";
    open_cuda();
    gpusym_gpu_t *gpu = open_gpu(1, NULL);
    assert_true(cuda.gpu_alive(gpu));
    fake.gone = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    assert_false(cuda.gpu_alive(gpu));
    cuda.close();
    assert_int_equal(fake.stale, 0);
    forget();
}

/* The hot path pushes nothing where the GPU's context is current already. */
static void test_no_push_when_current(void **unused)
{
    world_t x = {0};

    (void) unused;
    world_make(&x, &fake_primary[1]);
    assert_int_equal(do_kernels(&x), GPUSYM_SUCCESS);
    unsigned before = fake.pushes;
    assert_int_equal(do_launch(&x), GPUSYM_SUCCESS);
    assert_int_equal(do_poll(&x), GPUSYM_SUCCESS);
    assert_int_equal(do_copy(&x), GPUSYM_SUCCESS);
    assert_int_equal(fake.pushes, before);
    world_end(&x);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_open_says_why),
        TEST(test_gpu_open_says_why),
        TEST(test_open_names_missing_symbol),
        TEST(test_open_makes_no_context),
        TEST(test_query),
        TEST(test_query_marks_memory_synchronous),
        TEST(test_query_spares_captures),
        TEST(test_query_waits_for_the_legacy_stream),
        TEST(test_look_marks_nothing),
        TEST(test_range),
        TEST(test_range_of_mapped_memory),
        TEST(test_driver_refuses),
        TEST(test_export_user_memory),
        TEST(test_share_mapped_memory),
        TEST(test_mapped_memory_refused),
        TEST(test_reserved_addresses),
        TEST(test_no_virtual_memory),
        TEST(test_heap_of_virtual_memory),
        TEST(test_driver_refuses_multicast),
        TEST(test_multicast),
        TEST(test_multicast_of_slabs),
        TEST(test_multicast_fails),
        TEST(test_no_multicast),
        TEST(test_multicast_forbidden),
        TEST(test_gpu_primary),
        TEST(test_gpus_without_opening_them),
        TEST(test_gpu_in_use),
        TEST(test_gpu_link),
        TEST(test_gpu_other_context),
        TEST(test_gpu_of_the_caller),
        TEST(test_memory),
        TEST(test_errors_in_words),
        TEST(test_import),
        TEST(test_export_pool_memory),
        TEST(test_stream),
        TEST(test_copy_across),
        TEST(test_copy2d),
        TEST(test_copy2d_far),
        TEST(test_crowded),
        TEST(test_wrapped_stream),
        TEST(test_launched_soon),
        TEST(test_foreign_stream_refused),
        TEST(test_captured_stream),
        TEST(test_every_act_spares_captures),
        TEST(test_kernels),
        TEST(test_graph),
        TEST(test_clusters),
        TEST(test_few),
        TEST(test_kernels_refused),
        TEST(test_every_call_fails),
        TEST(test_undo_fails),
        TEST(test_no_push_when_current),
        TEST(test_contexts_go_while_closing),
        TEST(test_reset),
        TEST(test_gone_without_ids),
    };

    return cmocka_run_group_tests_name("device_cuda", tests, NULL, NULL);
}
