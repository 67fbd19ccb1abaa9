/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pointers, the GPU's own memory, and pinned host memory.
 */
#include <string.h>

#include "mca/common/gpusym/device/cuda/cuda_internal.h"
#include "mca/common/gpusym/device/cuda/legacy.h"

/*
 * The driver packs smaller allocations into blocks of 2 MiB and shares whole blocks: a peer also maps the neighbours of
 * what is exported. So mem_alloc allocates whole blocks, and smaller allocations of the program are `part`.
 *
 * Tried with driver 580: the handle of a part opens at that part, the first of a block in 2 ms, others in 3 us; a part
 * that is freed and allocated again has another id and the same handle, and what peers have mapped there is the new
 * one; a block whose parts are all freed while a peer maps it is not released, and memory that then gets its addresses
 * has another handle.
 */
#define SHARED_BLOCK ((size_t) 2 << 20)

/* ---- pointers ---- */

/*
 * Waits for what the legacy stream of the current context has. Not by its handle: to wait for the legacy stream, or to
 * ask it, makes the capture of any stream invalid that is not a non-blocking one, whatever thread captures it and in
 * whatever mode (tried with driver 580). A new stream that is not non-blocking comes behind the legacy stream as soon
 * as it has work, and is never captured: 5 us, where the legacy stream itself took 0.7. The thread's stream takes 0.9,
 * but may be captured by the program.
 */
static void await_legacy(void)
{
    CUstream behind = NULL;
    CUevent event = NULL;

    if (CUDA_SUCCESS == cu.cuStreamCreateWithPriority(&behind, CU_STREAM_DEFAULT, 0) &&
        CUDA_SUCCESS == cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) &&
        CUDA_SUCCESS == cu.cuEventRecord(event, behind)) {
        (void) cu.cuEventSynchronize(event);
    }
    if (NULL != event) {
        (void) cu.cuEventDestroy_v2(event);
    }
    if (NULL != behind) {
        (void) cu.cuStreamDestroy_v2(behind);
    }
}

/*
 * cudaMemset, copies on the device and short copies from pageable memory return before the GPU has done them, and a
 * program rightly takes memory for written once they have returned: our streams, which do not wait for the
 * default stream, would read it too early. So each allocation, when it is first seen, is marked to make such calls
 * wait (as other MPI libraries do), and what is under way by then is waited for. Memory of a pool cannot be marked:
 * it is used in stream order, which its program must end before it calls MPI. No capture of the program's ends by it.
 */
static void __attribute__((noinline)) mark_synchronous(const void *p, CUcontext ctx)
{
    cuda_entered_t entered = {.pushed = true};
    unsigned one = 1;

    if (CUDA_SUCCESS != cu.cuCtxPushCurrent_v2(ctx)) {
        return;
    }
    cuda_capture_spare(&entered);
    if (CUDA_SUCCESS == cu.cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr) (uintptr_t) p)) {
        await_legacy();
    }
    cuda_ctx_leave(&entered);
}

/* The same of a program that does not wait before it calls MPI. ctx: NULL: the thread's. At every call: by the legacy
 * stream's own handle, which is cheap. */
static void __attribute__((noinline)) wait_legacy(CUcontext ctx)
{
    CUcontext ours;

    if (NULL != ctx && CUDA_SUCCESS != cu.cuCtxPushCurrent_v2(ctx)) {
        return;
    }
    (void) cu.cuStreamSynchronize(CU_STREAM_LEGACY);
    if (NULL != ctx) {
        (void) cu.cuCtxPopCurrent_v2(&ours);
    }
}

/* Needs no current context. One call, so that the driver looks the pointer up once. For a pointer that it
 * does not know this form answers success and zeros (memory types begin at 1); memory of a pool or of
 * the virtual memory interface has no context. Before the program's own first use of CUDA all is host. */
static inline __attribute__((always_inline)) void pointer_ask(const void *p, gpusym_mem_t *mem, bool mark)
{
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
                                  CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,    CU_POINTER_ATTRIBUTE_BUFFER_ID};
    unsigned long long id = 0;
    unsigned type = 0, managed = 0, synchronous = 0; /* the driver may write fewer bytes than these have */
    int ordinal = -1;
    CUcontext ctx = NULL;
    void *where[] = {&type, &managed, &ordinal, &ctx, &synchronous, &id};

    *mem = (gpusym_mem_t){.kind = GPUSYM_MEM_HOST, .gpu = -1};
    if (CUDA_SUCCESS != cu.cuPointerGetAttributes(6, what, where, (CUdeviceptr) (uintptr_t) p) || 0 == type) {
        return;
    }
    if (managed || CU_MEMORYTYPE_UNIFIED == type) {
        mem->kind = GPUSYM_MEM_MANAGED;
    } else if (CU_MEMORYTYPE_HOST == type) {
        mem->kind = GPUSYM_MEM_REGISTERED;
    } else {
        mem->kind = GPUSYM_MEM_DEVICE;
        if (mark && 0 == synchronous && NULL != ctx) {
            mark_synchronous(p, ctx);
        }
    }
    if (mark && __builtin_expect(gpusym_cuda_wait_legacy_stream, 0)) {
        wait_legacy(ctx);
    }
    mem->gpu = 0 <= ordinal ? ordinal : -1;
    mem->context = ctx;
    mem->id = NULL != ctx ? id : 0; /* without a context: see CUDA_MAPPED_ID */
}

void cuda_query(const void *p, gpusym_mem_t *mem)
{
    pointer_ask(p, mem, true);
}

void cuda_look(const void *p, gpusym_mem_t *mem)
{
    pointer_ask(p, mem, false);
}

/*
 * Memory of cuMemCreate, as much of it as cuMemMap has mapped at p: of a reservation of addresses, any part may have
 * memory of its own. What is mapped there may change, and of the driver's BUFFER_ID it is not said that it then does.
 * So the memory is told by its handle, which the manual promises to be the one it was mapped with; as long as a buffer
 * is exported we hold that, so that it is no other memory's. (Where in its memory a mapping begins is no question: at
 * its start, says the manual, and nowhere else.) *range is left as it is where this is no such memory, or a descriptor
 * cannot name it.
 */
static int mapped_range(const void *p, gpusym_range_t *range)
{
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
                                  CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned long long types = 0; /* the driver may write fewer bytes than this has */
    unsigned type = 0;
    void *where[] = {&base, &size, &types, &type};

    int rc = CU(-1, cuPointerGetAttributes, 4, what, where, (CUdeviceptr) (uintptr_t) p);
    if (GPUSYM_SUCCESS != rc || 0 == size || CU_MEMORYTYPE_DEVICE != type ||
        0 == (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        return rc;
    }
    rc = CU(-1, cuMemRetainAllocationHandle, &memory, (void *) (uintptr_t) p);
    if (GPUSYM_SUCCESS == rc) {
        (void) cu.cuMemRelease(memory);
        *range = (gpusym_range_t){
            .base = (void *) (uintptr_t) base, .size = size, .id = memory | CUDA_MAPPED_ID, .shareable = true};
    }
    return rc;
}

/* Needs no current context, and for memory of cudaMalloc one call, as cuda_query(). Attributes that a pointer has not
 * are zero. */
int cuda_mem_range(const void *p, gpusym_range_t *range)
{
    CUpointer_attribute what[] = {
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_BUFFER_ID,        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned long long id = 0;
    unsigned ipc = 0, managed = 0; /* the driver may write fewer bytes than these have */
    CUmemoryPool pool = NULL;
    void *where[] = {&base, &size, &id, &ipc, &managed, &pool};

    int rc = CU(-1, cuPointerGetAttributes, 6, what, where, (CUdeviceptr) (uintptr_t) p);
    if (GPUSYM_SUCCESS != rc) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    const bool plain = 0 == managed && NULL == pool;
    *range = (gpusym_range_t){.base = (void *) (uintptr_t) base, .size = size, .id = id};
    range->shareable = plain && 0 != ipc;
    range->part = range->shareable && SHARED_BLOCK > size;
    if (plain && 0 == ipc) {
        rc = mapped_range(p, range);
    }
    if (GPUSYM_SUCCESS == rc && 0 == range->size) {
        rc = cuda_fail(GPUSYM_ERR_NOT_AVAILABLE, "%p lies in no allocation that the driver knows", p);
    }
    return rc;
}

/* ---- memory of the GPU ---- */

int cuda_mem_alloc(gpusym_gpu_t *gpu, size_t size, void **p)
{
    CUdeviceptr base = 0;
    cuda_entered_t entered;

    if (0 == size || SIZE_MAX - SHARED_BLOCK < size) {
        return cuda_fail(GPUSYM_ERR_BAD_PARAM, "an allocation of %zu bytes was requested", size);
    }
    int rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemAlloc_v2, &base, (size + SHARED_BLOCK - 1) / SHARED_BLOCK * SHARED_BLOCK);
    cuda_ctx_leave(&entered);
    if (GPUSYM_SUCCESS != rc) {
        cuda_error_add("; %zu bytes were requested", size);
        return rc;
    }
    *p = (void *) (uintptr_t) base;
    return GPUSYM_SUCCESS;
}

int cuda_mem_free(gpusym_gpu_t *gpu, void *p)
{
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_living(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemFree_v2, (CUdeviceptr) (uintptr_t) p);
    cuda_ctx_leave(&entered);
    return rc;
}

int cuda_mem_zero(gpusym_gpu_t *gpu, void *p, size_t size)
{
    cuda_entered_t entered;

    if (0 == size) {
        return GPUSYM_SUCCESS;
    }
    int rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemsetD8Async, (CUdeviceptr) (uintptr_t) p, 0, size, gpu->copies);
    if (GPUSYM_SUCCESS == rc) {
        rc = CU(gpu->info.ordinal, cuStreamSynchronize, gpu->copies);
    }
    cuda_ctx_leave(&entered);
    return rc;
}

/* ---- memory at reserved addresses ---- */

/* Memory of this GPU that peers can open by a descriptor. */
static CUmemAllocationProp shared_prop(const gpusym_gpu_t *gpu)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->info.ordinal},
    };
}

/* Whether the GPU has such memory, and the unit of its sizes and addresses. gpu is current. */
static int shared_unit(gpusym_gpu_t *gpu, size_t *unit)
{
    const CUmemAllocationProp prop = shared_prop(gpu);
    const int n = gpu->info.ordinal;
    int vmm = 0, fd = 0, rc;

    if ((rc = CU(n, cuDeviceGetAttribute, &vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, gpu->dev)) ||
        (rc = CU(n, cuDeviceGetAttribute, &fd, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                 gpu->dev))) {
        return rc;
    }
    if (0 == vmm || 0 == fd) {
        return cuda_fail(GPUSYM_ERR_NOT_AVAILABLE, "GPU %d has no virtual memory that peers open by a descriptor", n);
    }
    return CU(n, cuMemGetAllocationGranularity, unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

int cuda_vmm_reserve(gpusym_gpu_t *gpu, size_t *size, unsigned n, void **at)
{
    CUdeviceptr base = 0;
    size_t unit = 0;
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = shared_unit(gpu, &unit);
    if (GPUSYM_SUCCESS == rc && (0 == unit || 0 == *size || 0 == n || *size > SIZE_MAX / n - unit)) {
        rc = cuda_fail(GPUSYM_ERR_BAD_PARAM, "addresses for %u times %zu bytes were requested", n, *size);
    }
    if (GPUSYM_SUCCESS == rc) {
        const size_t whole = (*size + unit - 1) / unit * unit;
        rc = CU(gpu->info.ordinal, cuMemAddressReserve, &base, n * whole, unit, 0, 0);
        *size = whole;
    }
    cuda_ctx_leave(&entered);
    *at = (void *) (uintptr_t) base;
    return rc;
}

int cuda_vmm_release(gpusym_gpu_t *gpu, void *at, size_t size, unsigned n)
{
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_living(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemAddressFree, (CUdeviceptr) (uintptr_t) at, n * size);
    cuda_ctx_leave(&entered);
    return rc;
}

int cuda_map_at(gpusym_gpu_t *gpu, CUdeviceptr at, size_t size, CUmemGenericAllocationHandle memory)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->info.ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };

    int rc = CU(gpu->info.ordinal, cuMemMap, at, size, 0, memory, 0);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemSetAccess, at, size, &access, 1);
    if (GPUSYM_SUCCESS != rc) {
        (void) cu.cuMemUnmap(at, size);
    }
    return rc;
}

int cuda_map_new(gpusym_gpu_t *gpu, size_t size, size_t unit, CUmemGenericAllocationHandle memory, CUdeviceptr *at)
{
    int rc = CU(gpu->info.ordinal, cuMemAddressReserve, at, size, unit, 0, 0);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = cuda_map_at(gpu, *at, size, memory);
    if (GPUSYM_SUCCESS != rc) {
        (void) cu.cuMemAddressFree(*at, size);
    }
    return rc;
}

int cuda_map_end(gpusym_gpu_t *gpu, CUdeviceptr at, size_t size)
{
    int rc = CU(gpu->info.ordinal, cuMemUnmap, at, size);

    return GPUSYM_SUCCESS == rc ? CU(gpu->info.ordinal, cuMemAddressFree, at, size) : rc;
}

int cuda_vmm_map(gpusym_gpu_t *gpu, void *at, size_t size)
{
    const CUmemAllocationProp prop = shared_prop(gpu);
    CUmemGenericAllocationHandle memory = 0;
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemCreate, &memory, size, &prop, 0);
    if (GPUSYM_SUCCESS == rc) {
        rc = cuda_map_at(gpu, (CUdeviceptr) (uintptr_t) at, size, memory);
        (void) cu.cuMemRelease(memory);
    }
    cuda_ctx_leave(&entered);
    if (GPUSYM_SUCCESS != rc) {
        cuda_error_add("; %zu bytes were requested", size);
    }
    return rc;
}

int cuda_vmm_unmap(gpusym_gpu_t *gpu, void *at, size_t size)
{
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_living(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemUnmap, (CUdeviceptr) (uintptr_t) at, size);
    cuda_ctx_leave(&entered);
    return rc;
}

/* ---- pinned host memory ---- */

int cuda_host_alloc(gpusym_gpu_t *gpu, size_t size, void **host, void **dev)
{
    CUdeviceptr seen = 0;
    void *p = NULL;
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemHostAlloc, &p, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (GPUSYM_SUCCESS != rc) {
        cuda_error_add("; %zu bytes of pinned host memory were requested", size);
        goto leave;
    }
    rc = CU(gpu->info.ordinal, cuMemHostGetDevicePointer_v2, &seen, p, 0);
    if (GPUSYM_SUCCESS != rc) {
        (void) cu.cuMemFreeHost(p);
        goto leave;
    }
    memset(p, 0, size);
    *host = p;
    *dev = (void *) (uintptr_t) seen;
leave:
    cuda_ctx_leave(&entered);
    return rc;
}

int cuda_host_free(gpusym_gpu_t *gpu, void *host)
{
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_living(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemFreeHost, host);
    cuda_ctx_leave(&entered);
    return rc;
}

int cuda_host_register(gpusym_gpu_t *gpu, void *host, size_t size, void **dev)
{
    CUdeviceptr seen = 0;
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemHostRegister_v2, host, size,
            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (GPUSYM_SUCCESS != rc) {
        cuda_error_add("; %zu bytes of host memory were to be pinned", size);
        goto leave;
    }
    rc = CU(gpu->info.ordinal, cuMemHostGetDevicePointer_v2, &seen, host, 0);
    if (GPUSYM_SUCCESS != rc) {
        (void) cu.cuMemHostUnregister(host);
        goto leave;
    }
    *dev = (void *) (uintptr_t) seen;
leave:
    cuda_ctx_leave(&entered);
    return rc;
}

int cuda_host_unregister(gpusym_gpu_t *gpu, void *host)
{
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_living(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemHostUnregister, host);
    cuda_ctx_leave(&entered);
    return rc;
}
