/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The device table for NVIDIA GPUs, by the CUDA driver API.  libcuda.so.1 is opened at run time,
 * so that one binary loads on machines with and without a driver.  The only file of the library
 * that includes the toolkit's cuda.h; a build without that header has no table.
 *
 * Contexts.  Memory belongs to a context, most often the primary context of its GPU (which the
 * CUDA runtime uses).  A gpusym_gpu_t is one (GPU, context); primary contexts are retained while
 * we use them, any other belongs to the program, which must keep it until close().  What needs a
 * context current runs between ctx_enter() and ctx_leave(), which leave the caller's as it was.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "mca/common/gpusym/device/cuda/cuda_device.h"

#if GPUSYM_HAVE_CUDA

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mca/common/gpusym/shm/fd.h"

/* ---- The driver ---- */

/* Every entry point that we need, by the name that the driver exports: a plain name may be an
 * older interface than the one which cuda.h declares. */
#define DRIVER_REQUIRED(X)                    \
    X(cuInit)                                 \
    X(cuGetErrorName)                         \
    X(cuGetErrorString)                       \
    X(cuDeviceGetCount)                       \
    X(cuDeviceGet)                            \
    X(cuDeviceGetName)                        \
    X(cuDeviceGetUuid_v2)                     \
    X(cuDeviceGetPCIBusId)                    \
    X(cuDeviceGetByPCIBusId)                  \
    X(cuDeviceGetP2PAttribute)                \
    X(cuDeviceGetAttribute)                   \
    X(cuDeviceTotalMem_v2)                    \
    X(cuDevicePrimaryCtxGetState)             \
    X(cuDevicePrimaryCtxRetain)               \
    X(cuDevicePrimaryCtxRelease_v2)           \
    X(cuCtxGetCurrent)                        \
    X(cuCtxPushCurrent_v2)                    \
    X(cuCtxPopCurrent_v2)                     \
    X(cuCtxGetDevice)                         \
    X(cuCtxGetApiVersion)                     \
    X(cuCtxGetStreamPriorityRange)            \
    X(cuCtxEnablePeerAccess)                  \
    X(cuPointerGetAttributes)                 \
    X(cuPointerSetAttribute)                  \
    X(cuMemAlloc_v2)                          \
    X(cuMemFree_v2)                           \
    X(cuMemHostAlloc)                         \
    X(cuMemFreeHost)                          \
    X(cuMemHostGetDevicePointer_v2)           \
    X(cuMemsetD8Async)                        \
    X(cuMemcpyAsync)                          \
    X(cuMemcpy2DAsync_v2)                     \
    X(cuIpcGetMemHandle)                      \
    X(cuIpcOpenMemHandle_v2)                  \
    X(cuIpcCloseMemHandle)                    \
    X(cuMemRetainAllocationHandle)            \
    X(cuMemGetAllocationPropertiesFromHandle) \
    X(cuMemExportToShareableHandle)           \
    X(cuMemImportFromShareableHandle)         \
    X(cuMemRelease)                           \
    X(cuMemAddressReserve)                    \
    X(cuMemAddressFree)                       \
    X(cuMemMap)                               \
    X(cuMemUnmap)                             \
    X(cuMemSetAccess)                         \
    X(cuStreamCreateWithPriority)             \
    X(cuStreamDestroy_v2)                     \
    X(cuStreamQuery)                          \
    X(cuStreamSynchronize)                    \
    X(cuStreamBatchMemOp_v2)                  \
    X(cuModuleLoadData)                       \
    X(cuModuleUnload)                         \
    X(cuModuleGetFunction)                    \
    X(cuLaunchKernel)                         \
    X(cuGraphCreate)                          \
    X(cuGraphAddKernelNode)                   \
    X(cuGraphInstantiateWithFlags)            \
    X(cuGraphExecKernelNodeSetParams)         \
    X(cuGraphLaunch)                          \
    X(cuGraphExecDestroy)                     \
    X(cuGraphDestroy)

/* Those we can do without; typed by hand, since an older cuda.h does not declare them. */
#define DRIVER_OPTIONAL(X)                                      \
    X(cuFuncLoad, CUresult (*)(CUfunction)) /* driver 12.4 */ \
    X(cuCtxGetId, CUresult (*)(CUcontext, unsigned long long *)) /* driver 12.0 */

/* Where cuda.h makes a macro of a name above, the symbol changes together with the type: nodes of graphs have other
 * parameters, and names with _v2, from CUDA 12 on. */
#define SYMBOL(name) SYMBOL_TEXT(name)
#define SYMBOL_TEXT(name) #name

static struct {
#define X(name) __typeof__(&name) name;
    DRIVER_REQUIRED(X)
#undef X
#define X(name, type) __typeof__((type) 0) name;
    DRIVER_OPTIONAL(X)
#undef X
} cu;

/* ---- What this process holds ---- */

struct gpusym_stream {
    gpusym_gpu_t *gpu;
    CUstream stream;
};

struct gpusym_gpu {
    gpusym_gpu_t *next;
    CUcontext ctx;
    CUdevice dev;
    bool primary;    /* ctx is the primary context, and we have retained it */
    bool has_id;     /* id is the context's: no other has had it, or will, while the process lives */
    unsigned long long id;
    CUstream copies; /* of copy() and mem_zero(): never the default stream, which waits for the program's work */
    gpusym_gpu_info_t info;

    /* Under state.lock until kernels_load() has returned success, constant from then on. */
    CUmodule module;
    CUfunction kernels[GPUSYM_K_COUNT];
    char why[256]; /* why the kernels could not be loaded */
};

/* Something that mem_import() returned and mem_unimport() has not ended yet. */
typedef struct mapping {
    struct mapping *next;
    void *p;
    gpusym_gpu_t *gpu;
    bool own;    /* memory of this process: nothing was mapped */
    size_t size; /* of addresses that cuMemMap filled; 0: it was opened by IPC */
} mapping_t;

static struct {
    pthread_mutex_t lock; /* guards all of this but what cu holds and the nonce, constant after open() */
    void *lib;
    bool open;
    int count;      /* GPUs; 0: the driver has not been started */
    uint64_t nonce; /* tells this process from others of the same id elsewhere (containers) */
    gpusym_gpu_t *gpus;
    mapping_t *mappings;
    char why[256]; /* why open() or driver_start() failed */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What a gpusym_handle_t holds. */
typedef struct {
    uint64_t nonce; /* of the exporting process */
    uint64_t base;  /* the allocation as that process sees it */
    int64_t pid;
    uint64_t size; /* bytes of memory that is shared by a descriptor; 0: it is shared by IPC */
    union {
        CUipcMemHandle ipc;
        struct {
            CUmemGenericAllocationHandle memory; /* held until mem_unexport; the exporter's */
            int fd;                              /* of the exporter, open until mem_unexport */
        } by_fd;
    };
} cuda_handle_t;
_Static_assert(sizeof(cuda_handle_t) <= sizeof(gpusym_handle_t), "the handle does not fit");
_Static_assert(sizeof(gpusym_work_t) <= 4096, "the descriptor does not fit into a kernel's parameters");

/* ---- Errors ---- */

static _Thread_local char error_text[320] = "no error";

static const char *cuda_error(void)
{
    return error_text;
}

/* Appends to the calling thread's error text. */
static void __attribute__((format(printf, 1, 2))) error_add(const char *format, ...)
{
    size_t used = strlen(error_text);
    va_list args;

    va_start(args, format);
    vsnprintf(error_text + used, sizeof(error_text) - used, format, args);
    va_end(args);
}

static const char *result_string(CUresult result)
{
    const char *text = NULL;

    return CUDA_SUCCESS == cu.cuGetErrorString(result, &text) && NULL != text ? text : "unknown error";
}

static const char *result_name(CUresult result)
{
    const char *text = NULL;

    return CUDA_SUCCESS == cu.cuGetErrorName(result, &text) && NULL != text ? text : "no name";
}

static int no_host_memory(void)
{
    snprintf(error_text, sizeof(error_text), "out of host memory");
    return GPUSYM_ERR_NO_MEMORY;
}

static int result_code(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return GPUSYM_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return GPUSYM_ERR_NO_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        return GPUSYM_ERR_NOT_AVAILABLE;
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_TOO_MANY_PEERS:
    case CUDA_ERROR_MAP_FAILED:
        return GPUSYM_ERR_UNREACHABLE;
    default:
        return GPUSYM_ERR;
    }
}

static int __attribute__((cold, noinline)) failed(int gpu, const char *call, CUresult result)
{
    snprintf(error_text, sizeof(error_text), "%s on GPU %d: %s (%s)", call, gpu, result_string(result),
             result_name(result));
    return result_code(result);
}

static inline int check(int gpu, const char *call, CUresult result)
{
    return CUDA_SUCCESS == result ? GPUSYM_SUCCESS : failed(gpu, call, result);
}

/* Calls the driver; an error is put into words and returned as one of ours. */
#define CU(gpu, name, ...) check(gpu, SYMBOL(name), cu.name(__VA_ARGS__))

/* ---- Contexts ---- */

/* Makes gpu's context current unless it is. *pushed is for ctx_leave(), needed only after success. */
static inline int ctx_enter(const gpusym_gpu_t *gpu, bool *pushed)
{
    CUcontext now = NULL;
    int rc;

    *pushed = false;
    if (CUDA_SUCCESS == cu.cuCtxGetCurrent(&now) && now == gpu->ctx) {
        return GPUSYM_SUCCESS;
    }
    rc = CU(gpu->info.ordinal, cuCtxPushCurrent_v2, gpu->ctx);
    *pushed = GPUSYM_SUCCESS == rc;
    return rc;
}

/*
 * Whether gpu's context is still the one that we took. cudaDeviceReset (cuDevicePrimaryCtxReset) destroys it with all that is in
 * it whoever has retained it, as the end of the process does: the driver is shut down before the last handlers of atexit.
 * Of such a context no handle may be given to the driver, which follows them, and pinned memory is not mapped any more: a look
 * at it is a segmentation fault. These three calls say so instead; the id, since the next primary context of a GPU may stand
 * where the last one was.
 */
static bool context_lives(const gpusym_gpu_t *gpu)
{
    unsigned long long id;
    unsigned version, flags;
    int active;

    if (gpu->primary && (CUDA_SUCCESS != cu.cuDevicePrimaryCtxGetState(gpu->dev, &flags, &active) || !active)) {
        return false;
    }
    return gpu->has_id ? CUDA_SUCCESS == cu.cuCtxGetId(gpu->ctx, &id) && id == gpu->id
                       : CUDA_SUCCESS == cu.cuCtxGetApiVersion(gpu->ctx, &version);
}

/* ctx_enter() to let go of something, which has gone already where the context has. */
static int ctx_enter_living(const gpusym_gpu_t *gpu, bool *pushed)
{
    if (context_lives(gpu)) {
        return ctx_enter(gpu, pushed);
    }
    *pushed = false;
    snprintf(error_text, sizeof(error_text), "the context on GPU %d has been destroyed", gpu->info.ordinal);
    return GPUSYM_ERR_NOT_AVAILABLE;
}

/* Puts back what was current before ctx_enter(). */
static inline void ctx_leave(bool pushed)
{
    CUcontext ours;

    if (pushed) {
        (void) cu.cuCtxPopCurrent_v2(&ours);
    }
}

/* ---- open, close ---- */

/* Resolves the driver's entry points; state.why says what is missing. */
static int driver_load(void)
{
    if (NULL != state.lib) {
        return GPUSYM_SUCCESS;
    }
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (NULL == lib) {
        snprintf(state.why, sizeof(state.why), "no NVIDIA driver is installed (%s)", dlerror());
        return GPUSYM_ERR_NOT_AVAILABLE;
    }

    const char *missing = NULL;
#define X(name)                                               \
    cu.name = (__typeof__(cu.name)) dlsym(lib, SYMBOL(name)); \
    missing = NULL == cu.name && NULL == missing ? SYMBOL(name) : missing;
    DRIVER_REQUIRED(X)
#undef X
#define X(name, type) cu.name = (type) dlsym(lib, #name);
    DRIVER_OPTIONAL(X)
#undef X
    if (NULL != missing) {
        snprintf(state.why, sizeof(state.why),
                 "the NVIDIA driver is too old: its libcuda.so.1 has no %s; install a driver for CUDA 12 or newer",
                 missing);
        dlclose(lib);
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    state.lib = lib;
    return GPUSYM_SUCCESS;
}

/* Starts the driver, once; state.lock is held. */
static int driver_start(void)
{
    if (0 < state.count) {
        return GPUSYM_SUCCESS;
    }
    CUresult result = cu.cuInit(0);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    state.count = 0;
    if (CUDA_SUCCESS == result) {
        result = cu.cuDeviceGetCount(&state.count);
    }
    if (CUDA_ERROR_NO_DEVICE == result || (CUDA_SUCCESS == result && 0 >= state.count)) {
        snprintf(state.why, sizeof(state.why),
                 "the NVIDIA driver shows this process no GPU (CUDA_VISIBLE_DEVICES is %s%.100s%s)",
                 NULL == visible ? "not set" : "\"", NULL == visible ? "" : visible, NULL == visible ? "" : "\"");
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    if (CUDA_SUCCESS != result) {
        state.count = 0;
        snprintf(state.why, sizeof(state.why), "the NVIDIA driver does not start: %s (%s, %d)", result_string(result),
                 result_name(result), (int) result);
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    return GPUSYM_SUCCESS;
}

static uint64_t make_nonce(void)
{
    struct timespec now;
    uint64_t nonce;

    if (gpusym_random(&nonce, sizeof(nonce))) {
        return nonce;
    }
    (void) timespec_get(&now, TIME_UTC);
    return ((uint64_t) now.tv_sec << 32 ^ (uint64_t) now.tv_nsec << 8) ^ (uintptr_t) &state;
}

/* Loads the driver but does not start it: cuInit() takes a tenth of a second, which a program that never uses a GPU
 * need not pay, and reads CUDA_VISIBLE_DEVICES, which it may still set. Until the program starts it, no
 * pointer is the GPU's; gpu_open() comes after that. */
static int cuda_open(const char **why)
{
    int rc = GPUSYM_SUCCESS;

    pthread_mutex_lock(&state.lock);
    if (!state.open) {
        rc = driver_load();
        if (GPUSYM_SUCCESS == rc) {
            state.nonce = make_nonce();
            state.open = true;
        }
    }
    if (GPUSYM_SUCCESS != rc && NULL != why) {
        *why = state.why;
    }
    pthread_mutex_unlock(&state.lock);
    return rc;
}

/* Lets go of a GPU. Errors are of no use here: the program may have reset the GPU already, and with it what we had retained. */
static void gpu_release(gpusym_gpu_t *gpu)
{
    const bool lives = context_lives(gpu);
    bool pushed;

    if (lives && GPUSYM_SUCCESS == ctx_enter(gpu, &pushed)) {
        if (NULL != gpu->module) {
            (void) cu.cuModuleUnload(gpu->module);
        }
        if (NULL != gpu->copies) {
            (void) cu.cuStreamDestroy_v2(gpu->copies);
        }
        ctx_leave(pushed);
    }
    if (lives && gpu->primary) {
        (void) cu.cuDevicePrimaryCtxRelease_v2(gpu->dev);
    }
    free(gpu);
}

/* Gives back addresses that cuMemMap has filled. gpu is current. */
static int addresses_free(gpusym_gpu_t *gpu, CUdeviceptr p, size_t size)
{
    int rc = CU(gpu->info.ordinal, cuMemUnmap, p, size);

    return GPUSYM_SUCCESS == rc ? CU(gpu->info.ordinal, cuMemAddressFree, p, size) : rc;
}

static int mapping_end(mapping_t *mapping)
{
    gpusym_gpu_t *gpu = mapping->gpu;
    bool pushed;
    int rc = GPUSYM_SUCCESS;

    if (!mapping->own) {
        rc = ctx_enter_living(gpu, &pushed);
        if (GPUSYM_SUCCESS == rc) {
            const CUdeviceptr p = (CUdeviceptr) (uintptr_t) mapping->p;
            rc = 0 == mapping->size ? CU(gpu->info.ordinal, cuIpcCloseMemHandle, p)
                                    : addresses_free(gpu, p, mapping->size);
            ctx_leave(pushed);
        }
    }
    free(mapping);
    return rc;
}

/* Ends mappings and contexts. Streams and memory that callers did not free go with the context.
 * The driver itself stays loaded: it has threads and thread-exit handlers of its own. */
static void cuda_close(void)
{
    pthread_mutex_lock(&state.lock);
    while (NULL != state.mappings) {
        mapping_t *mapping = state.mappings;
        state.mappings = mapping->next;
        (void) mapping_end(mapping);
    }
    while (NULL != state.gpus) {
        gpusym_gpu_t *gpu = state.gpus;
        state.gpus = gpu->next;
        gpu_release(gpu);
    }
    state.open = false;
    state.count = 0;
    pthread_mutex_unlock(&state.lock);
}

/* ---- Pointers ---- */

/*
 * cudaMemset, copies on the device and short copies from pageable memory return before the GPU has done them, and a
 * program rightly takes memory for written once they have returned: our streams, which do not wait for the
 * default stream, would read it too early. So each allocation, when it is first seen, is marked to make such calls
 * wait (as other MPI libraries do), and what is under way by then is waited for. Memory of a pool cannot be marked:
 * it is used in stream order, which its program must end before it calls MPI.
 */
static void __attribute__((noinline)) mark_synchronous(const void *p, CUcontext ctx)
{
    unsigned one = 1;
    CUcontext ours;

    if (CUDA_SUCCESS != cu.cuCtxPushCurrent_v2(ctx)) {
        return;
    }
    if (CUDA_SUCCESS == cu.cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr) (uintptr_t) p)) {
        (void) cu.cuStreamSynchronize(CU_STREAM_LEGACY);
    }
    (void) cu.cuCtxPopCurrent_v2(&ours);
}

/* Needs no current context. In one call: the driver looks the pointer up once. For a pointer that it
 * does not know this form answers success and zeros (memory types begin at 1); memory of a pool or of
 * the virtual memory interface has no context. Before the program's own first use of CUDA all is host. */
static void cuda_query(const void *p, gpusym_mem_t *mem)
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
        if (0 == synchronous && NULL != ctx) {
            mark_synchronous(p, ctx);
        }
    }
    mem->gpu = 0 <= ordinal ? ordinal : -1;
    mem->context = ctx;
    mem->id = NULL != ctx ? id : 0; /* without a context: see MAPPED_ID */
}

/* The driver packs smaller allocations into blocks of 2 MiB and shares whole blocks, so that a peer
 * would see the neighbours of what we export: ours are whole blocks, and users' smaller ones are not exported. */
#define SHARED_BLOCK ((size_t) 2 << 20)

/* Set in the ids of mapped memory: no BUFFER_ID of other memory is one of them. */
#define MAPPED_ID (UINT64_C(1) << 63)

/*
 * Memory of cuMemCreate, the piece of it that cuMemMap has put at p: of a reservation of addresses, any part may have
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
            .base = (void *) (uintptr_t) base, .size = size, .id = memory | MAPPED_ID, .shareable = true};
    }
    return rc;
}

/* Needs no current context, and for memory of cudaMalloc one call, as cuda_query(). Attributes that a pointer has not
 * are zero. */
static int cuda_mem_range(const void *p, gpusym_range_t *range)
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
    range->shareable = plain && 0 != ipc && SHARED_BLOCK <= size;
    if (plain && 0 == ipc) {
        rc = mapped_range(p, range);
    }
    if (GPUSYM_SUCCESS == rc && 0 == range->size) {
        snprintf(error_text, sizeof(error_text), "%p lies in no allocation that the driver knows", p);
        rc = GPUSYM_ERR_NOT_AVAILABLE;
    }
    return rc;
}

/* ---- GPUs ---- */

/* The GPU and the context (NULL: its primary one) that mem asks for, or the calling thread's. */
static int gpu_wanted(const gpusym_mem_t *mem, int *ordinal, CUcontext *ctx)
{
    CUdevice dev, other;

    *ordinal = 0;
    *ctx = NULL;
    if (NULL != mem && 0 <= mem->gpu) {
        *ordinal = mem->gpu;
        *ctx = mem->context;
        return GPUSYM_SUCCESS;
    }
    if (CUDA_SUCCESS != cu.cuCtxGetCurrent(ctx) || NULL == *ctx) {
        *ctx = NULL;
        return GPUSYM_SUCCESS;
    }
    int rc = CU(-1, cuCtxGetDevice, &dev);
    for (int i = 0; GPUSYM_SUCCESS == rc && i < state.count; i++) {
        if (CUDA_SUCCESS == cu.cuDeviceGet(&other, i) && other == dev) {
            *ordinal = i;
        }
    }
    return rc;
}

/* Finds out whether ctx (NULL: whatever it is) is the primary context of gpu->dev, and retains it if so.
 * A primary context that nobody uses is not made when ctx is given: ctx is another one then. */
static int gpu_take_context(gpusym_gpu_t *gpu, CUcontext ctx)
{
    CUcontext primary = NULL;
    unsigned flags;
    int active = 0;

    if (NULL != ctx) {
        int rc = CU(gpu->info.ordinal, cuDevicePrimaryCtxGetState, gpu->dev, &flags, &active);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
        gpu->ctx = ctx;
        if (!active) {
            return GPUSYM_SUCCESS;
        }
    }
    int rc = CU(gpu->info.ordinal, cuDevicePrimaryCtxRetain, &primary, gpu->dev);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (NULL != ctx && primary != ctx) {
        (void) cu.cuDevicePrimaryCtxRelease_v2(gpu->dev);
        return GPUSYM_SUCCESS;
    }
    gpu->ctx = primary;
    gpu->primary = true;
    return GPUSYM_SUCCESS;
}

/* Fills info and makes the copy stream; gpu's context is current. */
static int gpu_set_up(gpusym_gpu_t *gpu)
{
    gpusym_gpu_info_t *info = &gpu->info;
    int n = info->ordinal, major = 0, minor = 0, rc;
    size_t bytes = 0;
    CUuuid uuid;

    if ((rc = CU(n, cuDeviceGetName, info->name, sizeof(info->name), gpu->dev)) ||
        (rc = CU(n, cuDeviceGetUuid_v2, &uuid, gpu->dev)) ||
        (rc = CU(n, cuDeviceGetPCIBusId, info->where, sizeof(info->where), gpu->dev)) ||
        (rc = CU(n, cuDeviceTotalMem_v2, &bytes, gpu->dev)) ||
        (rc = CU(n, cuDeviceGetAttribute, &info->sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu->dev)) ||
        (rc = CU(n, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu->dev)) ||
        (rc = CU(n, cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu->dev)) ||
        (rc = CU(n, cuStreamCreateWithPriority, &gpu->copies, CU_STREAM_NON_BLOCKING, 0))) {
        return rc;
    }
    memcpy(info->uuid, uuid.bytes, sizeof(info->uuid));
    snprintf(info->place.pci, sizeof(info->place.pci), "%.19s", info->where);
    info->place.number = -1;
    info->cc = 10 * major + minor;
    info->bytes = bytes;
    return GPUSYM_SUCCESS;
}

/* Takes a (GPU, context) into use and adds it to the list; state.lock is held. */
static int gpu_make(int ordinal, CUcontext ctx, gpusym_gpu_t **made)
{
    gpusym_gpu_t *gpu = calloc(1, sizeof(*gpu));
    bool pushed;

    if (NULL == gpu) {
        return no_host_memory();
    }
    gpu->info.ordinal = ordinal;
    int rc = CU(ordinal, cuDeviceGet, &gpu->dev, ordinal);
    if (GPUSYM_SUCCESS == rc) {
        rc = gpu_take_context(gpu, ctx);
    }
    if (GPUSYM_SUCCESS != rc) {
        free(gpu);
        return rc;
    }
    gpu->has_id = NULL != cu.cuCtxGetId && CUDA_SUCCESS == cu.cuCtxGetId(gpu->ctx, &gpu->id);
    rc = ctx_enter(gpu, &pushed);
    if (GPUSYM_SUCCESS == rc) {
        rc = gpu_set_up(gpu);
        ctx_leave(pushed);
    }
    if (GPUSYM_SUCCESS != rc) {
        gpu_release(gpu);
        return rc;
    }
    gpu->next = state.gpus;
    state.gpus = gpu;
    *made = gpu;
    return GPUSYM_SUCCESS;
}

static int cuda_gpu_open(const gpusym_mem_t *mem, gpusym_gpu_t **gpu)
{
    gpusym_gpu_t *g;
    CUcontext ctx;
    int ordinal;

    pthread_mutex_lock(&state.lock);
    int rc = driver_start();
    if (GPUSYM_SUCCESS != rc) {
        snprintf(error_text, sizeof(error_text), "%s", state.why);
    } else {
        rc = gpu_wanted(mem, &ordinal, &ctx);
    }
    if (GPUSYM_SUCCESS != rc) {
        pthread_mutex_unlock(&state.lock);
        return rc;
    }
    for (g = state.gpus; NULL != g; g = g->next) {
        if (NULL != ctx ? g->ctx == ctx : g->primary && g->info.ordinal == ordinal) {
            break;
        }
    }
    if (NULL == g) {
        rc = gpu_make(ordinal, ctx, &g);
    }
    pthread_mutex_unlock(&state.lock);
    if (GPUSYM_SUCCESS == rc) {
        *gpu = g;
    }
    return rc;
}

static bool cuda_gpu_alive(gpusym_gpu_t *gpu)
{
    return context_lives(gpu);
}

static void cuda_gpu_info(gpusym_gpu_t *gpu, gpusym_gpu_info_t *info)
{
    *info = gpu->info;
}

/* A GPU's atomics on another's memory go over NVLink and over nothing else; rank 0 is that of the best links here. Of
 * GPUs that CUDA_VISIBLE_DEVICES hides the driver says nothing. */
static int cuda_gpu_link(gpusym_gpu_t *gpu, const gpusym_place_t *peer)
{
    CUdevice other;
    int atomics = 0, rank = -1;

    if (CUDA_SUCCESS != cu.cuDeviceGetByPCIBusId(&other, peer->pci)) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    if (other == gpu->dev) {
        return GPUSYM_LINK_SELF;
    }
    if (CUDA_SUCCESS !=
            cu.cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, gpu->dev, other) ||
        CUDA_SUCCESS != cu.cuDeviceGetP2PAttribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, gpu->dev, other)) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    return 0 != atomics && 0 == rank ? (int) GPUSYM_LINK_NVLINK + 1 : GPUSYM_ERR_NOT_AVAILABLE;
}

/* ---- GPU memory ---- */

static int cuda_mem_alloc(gpusym_gpu_t *gpu, size_t size, void **p)
{
    CUdeviceptr base = 0;
    bool pushed;

    if (0 == size || SIZE_MAX - SHARED_BLOCK < size) {
        snprintf(error_text, sizeof(error_text), "an allocation of %zu bytes was asked for", size);
        return GPUSYM_ERR_BAD_PARAM;
    }
    int rc = ctx_enter(gpu, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemAlloc_v2, &base, (size + SHARED_BLOCK - 1) / SHARED_BLOCK * SHARED_BLOCK);
    ctx_leave(pushed);
    if (GPUSYM_SUCCESS != rc) {
        error_add("; %zu bytes were asked for", size);
        return rc;
    }
    *p = (void *) (uintptr_t) base;
    return GPUSYM_SUCCESS;
}

static int cuda_mem_free(gpusym_gpu_t *gpu, void *p)
{
    bool pushed;

    int rc = ctx_enter_living(gpu, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemFree_v2, (CUdeviceptr) (uintptr_t) p);
    ctx_leave(pushed);
    return rc;
}

static int cuda_mem_zero(gpusym_gpu_t *gpu, void *p, size_t size)
{
    bool pushed;

    if (0 == size) {
        return GPUSYM_SUCCESS;
    }
    int rc = ctx_enter(gpu, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemsetD8Async, (CUdeviceptr) (uintptr_t) p, 0, size, gpu->copies);
    if (GPUSYM_SUCCESS == rc) {
        rc = CU(gpu->info.ordinal, cuStreamSynchronize, gpu->copies);
    }
    ctx_leave(pushed);
    return rc;
}

/* ---- Peers' memory ---- */

/* Whether it is memory of this GPU: a multicast object too is mapped, and has a handle. */
static int memory_check(gpusym_gpu_t *gpu, CUmemGenericAllocationHandle memory)
{
    CUmemAllocationProp prop = {0};

    int rc = CU(gpu->info.ordinal, cuMemGetAllocationPropertiesFromHandle, &prop, memory);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (CU_MEM_ALLOCATION_TYPE_PINNED != prop.type || CU_MEM_LOCATION_TYPE_DEVICE != prop.location.type ||
        gpu->info.ordinal != prop.location.id) {
        snprintf(error_text, sizeof(error_text), "the memory is not on GPU %d", gpu->info.ordinal);
        rc = GPUSYM_ERR_UNREACHABLE;
    }
    return rc;
}

/* For mapped memory: a descriptor that peers fetch. They map it from its start on, so mine->base must be that of the
 * range; gpu is current. */
static int export_fd(gpusym_gpu_t *gpu, const gpusym_range_t *range, cuda_handle_t *mine)
{
    const int n = gpu->info.ordinal;
    CUmemGenericAllocationHandle memory = 0;
    int fd = -1;

    if ((uintptr_t) range->base != mine->base) {
        snprintf(error_text, sizeof(error_text), "the address is not the start of a mapping");
        return GPUSYM_ERR_UNREACHABLE;
    }
    int rc = CU(n, cuMemRetainAllocationHandle, &memory, (void *) (uintptr_t) mine->base);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = memory_check(gpu, memory);
    if (GPUSYM_SUCCESS == rc) {
        rc = CU(n, cuMemExportToShareableHandle, &fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    }
    if (GPUSYM_SUCCESS == rc && GPUSYM_SUCCESS != gpusym_fd_share(fd)) {
        snprintf(error_text, sizeof(error_text), "peers could not fetch descriptor %d: %s", fd, strerror(errno));
        close(fd);
        rc = GPUSYM_ERR_UNREACHABLE;
    }
    if (GPUSYM_SUCCESS != rc) {
        (void) cu.cuMemRelease(memory);
        return rc;
    }
    (void) fcntl(fd, F_SETFD, FD_CLOEXEC); /* a program that this one starts would keep the memory */
    mine->size = range->size;
    mine->by_fd.memory = memory;
    mine->by_fd.fd = fd;
    return GPUSYM_SUCCESS;
}

static int cuda_mem_export(gpusym_gpu_t *gpu, void *p, gpusym_handle_t *handle)
{
    cuda_handle_t mine = {.nonce = state.nonce, .base = (uintptr_t) p, .pid = getpid()};
    gpusym_range_t range;
    bool pushed;

    int rc = ctx_enter(gpu, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = cuda_mem_range(p, &range);
    if (GPUSYM_SUCCESS == rc) {
        rc = 0 != (range.id & MAPPED_ID)
                 ? export_fd(gpu, &range, &mine)
                 : CU(gpu->info.ordinal, cuIpcGetMemHandle, &mine.ipc, (CUdeviceptr) (uintptr_t) p);
    }
    ctx_leave(pushed);
    if (GPUSYM_SUCCESS != rc) {
        return GPUSYM_ERR_NO_MEMORY == rc ? rc : GPUSYM_ERR_UNREACHABLE;
    }
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &mine, sizeof(mine));
    return GPUSYM_SUCCESS;
}

static int cuda_mem_unexport(gpusym_gpu_t *gpu, const gpusym_handle_t *handle)
{
    cuda_handle_t mine;
    bool pushed;

    memcpy(&mine, handle, sizeof(mine));
    if (0 == mine.size) {
        return GPUSYM_SUCCESS;
    }
    close(mine.by_fd.fd);
    int rc = ctx_enter_living(gpu, &pushed);
    if (GPUSYM_SUCCESS == rc) {
        rc = CU(gpu->info.ordinal, cuMemRelease, mine.by_fd.memory);
        ctx_leave(pushed);
    }
    return rc;
}

/* Memory of this very process: the driver refuses to open it again, and need not, since all contexts
 * share one address space. Another context's needs leave to be accessed from ours. gpu is current. */
static int import_own(gpusym_gpu_t *gpu, void *base)
{
    gpusym_mem_t mem;

    cuda_query(base, &mem);
    if (NULL == mem.context || mem.context == gpu->ctx) {
        return GPUSYM_SUCCESS;
    }
    CUresult result = cu.cuCtxEnablePeerAccess(mem.context, 0);
    if (CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED == result) {
        return GPUSYM_SUCCESS;
    }
    return check(gpu->info.ordinal, "cuCtxEnablePeerAccess", result);
}

/* Memory of another process that has an IPC handle. gpu is current. */
static int import_ipc(gpusym_gpu_t *gpu, const cuda_handle_t *theirs, mapping_t *mapping)
{
    CUdeviceptr base = 0;

    int rc = CU(gpu->info.ordinal, cuIpcOpenMemHandle_v2, &base, theirs->ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    mapping->p = (void *) (uintptr_t) base;
    return rc;
}

/* Addresses of our own for memory that this GPU is to reach; they keep the memory when its handle is released. */
static int map_memory(gpusym_gpu_t *gpu, CUmemGenericAllocationHandle memory, size_t size, CUdeviceptr *base)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->info.ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    const int n = gpu->info.ordinal;

    int rc = CU(n, cuMemAddressReserve, base, size, 0, 0, 0);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(n, cuMemMap, *base, size, 0, memory, 0);
    if (GPUSYM_SUCCESS != rc) {
        (void) cu.cuMemAddressFree(*base, size);
        return rc;
    }
    rc = CU(n, cuMemSetAccess, *base, size, &access, 1);
    if (GPUSYM_SUCCESS != rc) {
        (void) cu.cuMemUnmap(*base, size);
        (void) cu.cuMemAddressFree(*base, size);
    }
    return rc;
}

/* Memory of another process that is shared by a descriptor. gpu is current. */
static int import_fd(gpusym_gpu_t *gpu, const cuda_handle_t *theirs, mapping_t *mapping)
{
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr base = 0;
    int fd;

    if (GPUSYM_SUCCESS != gpusym_fd_fetch((pid_t) theirs->pid, theirs->by_fd.fd, &fd)) {
        snprintf(error_text, sizeof(error_text), "descriptor %d of process %d cannot be fetched: %s", theirs->by_fd.fd,
                 (int) theirs->pid, strerror(errno));
        return GPUSYM_ERR_UNREACHABLE;
    }
    int rc = CU(gpu->info.ordinal, cuMemImportFromShareableHandle, &memory, (void *) (intptr_t) fd,
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = map_memory(gpu, memory, theirs->size, &base);
    (void) cu.cuMemRelease(memory);
    mapping->p = (void *) (uintptr_t) base;
    mapping->size = theirs->size;
    return rc;
}

static int import(gpusym_gpu_t *gpu, const cuda_handle_t *theirs, mapping_t *mapping)
{
    if (mapping->own) {
        return import_own(gpu, mapping->p);
    }
    return 0 != theirs->size ? import_fd(gpu, theirs, mapping) : import_ipc(gpu, theirs, mapping);
}

static int cuda_mem_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, void **p)
{
    cuda_handle_t theirs;
    bool pushed;

    memcpy(&theirs, handle, sizeof(theirs));
    mapping_t *mapping = calloc(1, sizeof(*mapping));
    if (NULL == mapping) {
        return no_host_memory();
    }
    mapping->gpu = gpu;
    mapping->own = theirs.nonce == state.nonce && theirs.pid == getpid();
    mapping->p = (void *) (uintptr_t) theirs.base;

    int rc = ctx_enter(gpu, &pushed);
    if (GPUSYM_SUCCESS == rc) {
        rc = import(gpu, &theirs, mapping);
        ctx_leave(pushed);
    }
    if (GPUSYM_SUCCESS != rc) {
        free(mapping);
        return GPUSYM_ERR_NO_MEMORY == rc ? rc : GPUSYM_ERR_UNREACHABLE;
    }
    *p = mapping->p;
    pthread_mutex_lock(&state.lock);
    mapping->next = state.mappings;
    state.mappings = mapping;
    pthread_mutex_unlock(&state.lock);
    return GPUSYM_SUCCESS;
}

static int cuda_mem_unimport(gpusym_gpu_t *gpu, void *p)
{
    mapping_t **link, *mapping;

    pthread_mutex_lock(&state.lock);
    for (link = &state.mappings; NULL != (mapping = *link); link = &mapping->next) {
        if (mapping->p == p && mapping->gpu == gpu) {
            *link = mapping->next;
            break;
        }
    }
    pthread_mutex_unlock(&state.lock);
    if (NULL == mapping) {
        snprintf(error_text, sizeof(error_text), "%p was not imported on GPU %d", p, gpu->info.ordinal);
        return GPUSYM_ERR_BAD_PARAM;
    }
    return mapping_end(mapping);
}

/* ---- Pinned host memory ---- */

static int cuda_host_alloc(gpusym_gpu_t *gpu, size_t size, void **host, void **dev)
{
    CUdeviceptr seen = 0;
    void *p = NULL;
    bool pushed;

    int rc = ctx_enter(gpu, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemHostAlloc, &p, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (GPUSYM_SUCCESS != rc) {
        error_add("; %zu bytes of pinned host memory were asked for", size);
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
    ctx_leave(pushed);
    return rc;
}

static int cuda_host_free(gpusym_gpu_t *gpu, void *host)
{
    bool pushed;

    int rc = ctx_enter_living(gpu, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuMemFreeHost, host);
    ctx_leave(pushed);
    return rc;
}

/* ---- Copies ---- */

/* Queues a copy; the context is current. One address space: the driver sees from the pointers what
 * kind of memory they are, pageable host memory too. */
static inline int copy_queue(gpusym_gpu_t *gpu, CUstream stream, void *dst, const void *src, size_t size)
{
    return CU(gpu->info.ordinal, cuMemcpyAsync, (CUdeviceptr) (uintptr_t) dst, (CUdeviceptr) (uintptr_t) src, size,
              stream);
}

/* Threads may share the copy stream: each waits for its own copy and, at worst, for some of another's. */
static int cuda_copy(gpusym_gpu_t *gpu, void *dst, const void *src, size_t size)
{
    bool pushed;

    if (0 == size) {
        return GPUSYM_SUCCESS;
    }
    int rc = ctx_enter(gpu, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = copy_queue(gpu, gpu->copies, dst, src, size);
    if (GPUSYM_SUCCESS == rc) {
        /* Waits for the copy engine, and for nothing that a peer writes. */
        rc = CU(gpu->info.ordinal, cuStreamSynchronize, gpu->copies);
    }
    ctx_leave(pushed);
    return rc;
}

static int cuda_copy_async(gpusym_stream_t *stream, void *dst, const void *src, size_t size)
{
    gpusym_gpu_t *gpu = stream->gpu;
    bool pushed;

    if (0 == size) {
        return GPUSYM_SUCCESS;
    }
    int rc = ctx_enter(gpu, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = copy_queue(gpu, stream->stream, dst, src, size);
    ctx_leave(pushed);
    return rc;
}

/* The longest distance of rows, in bytes, that the driver copies by: CU_DEVICE_ATTRIBUTE_MAX_PITCH of every GPU. */
#define PITCH_MAX (((size_t) 1 << 31) - 1)

static int copy2d_queue(gpusym_stream_t *stream, const CUDA_MEMCPY2D *copy)
{
    int n = stream->gpu->info.ordinal;
    int rc = GPUSYM_SUCCESS;

    if (copy->dstPitch <= PITCH_MAX && copy->srcPitch <= PITCH_MAX) {
        return CU(n, cuMemcpy2DAsync_v2, copy, stream->stream);
    }
    /* So far apart there are few rows: the GPU's memory holds no more. */
    for (size_t row = 0; row < copy->Height && GPUSYM_SUCCESS == rc; row++) {
        rc = CU(n, cuMemcpyAsync, copy->dstDevice + row * copy->dstPitch, copy->srcDevice + row * copy->srcPitch,
                copy->WidthInBytes, stream->stream);
    }
    return rc;
}

static int cuda_copy2d_async(gpusym_stream_t *stream, void *dst, size_t dpitch, const void *src, size_t spitch,
                             size_t width, size_t height)
{
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = (CUdeviceptr) (uintptr_t) src,
        .srcPitch = spitch,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = (CUdeviceptr) (uintptr_t) dst,
        .dstPitch = dpitch,
        .WidthInBytes = width,
        .Height = height,
    };
    bool pushed;

    if (0 == width || 0 == height) {
        return GPUSYM_SUCCESS;
    }
    if (1 < height && (dpitch < width || spitch < width)) {
        snprintf(error_text, sizeof(error_text), "rows of %zu bytes cannot be %zu and %zu bytes apart", width, dpitch,
                 spitch);
        return GPUSYM_ERR_BAD_PARAM;
    }
    if (1 == height || (dpitch == width && spitch == width)) {
        if (SIZE_MAX / height < width) {
            snprintf(error_text, sizeof(error_text), "%zu rows of %zu bytes are too many", height, width);
            return GPUSYM_ERR_BAD_PARAM;
        }
        return cuda_copy_async(stream, dst, src, width * height);
    }
    int rc = ctx_enter(stream->gpu, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = copy2d_queue(stream, &copy);
    ctx_leave(pushed);
    return rc;
}

/* ---- Streams ---- */

/* Of the highest priority: our few blocks should not queue behind the program's many, since other ranks
 * wait for them. */
static int cuda_stream_create(gpusym_gpu_t *gpu, gpusym_stream_t **stream)
{
    gpusym_stream_t *s = calloc(1, sizeof(*s));
    int least = 0, greatest = 0;
    bool pushed;

    if (NULL == s) {
        return no_host_memory();
    }
    s->gpu = gpu;
    int rc = ctx_enter(gpu, &pushed);
    if (GPUSYM_SUCCESS == rc) {
        rc = CU(gpu->info.ordinal, cuCtxGetStreamPriorityRange, &least, &greatest);
        if (GPUSYM_SUCCESS == rc) {
            rc = CU(gpu->info.ordinal, cuStreamCreateWithPriority, &s->stream, CU_STREAM_NON_BLOCKING, greatest);
        }
        ctx_leave(pushed);
    }
    if (GPUSYM_SUCCESS != rc) {
        free(s);
        return rc;
    }
    *stream = s;
    return GPUSYM_SUCCESS;
}

static void cuda_stream_destroy(gpusym_stream_t *stream)
{
    bool pushed;

    if (GPUSYM_SUCCESS == ctx_enter_living(stream->gpu, &pushed)) {
        (void) cu.cuStreamDestroy_v2(stream->stream);
        ctx_leave(pushed);
    }
    free(stream);
}

static int cuda_stream_poll(gpusym_stream_t *stream)
{
    bool pushed;

    int rc = ctx_enter(stream->gpu, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    CUresult result = cu.cuStreamQuery(stream->stream);
    ctx_leave(pushed);
    if (CUDA_ERROR_NOT_READY == result) {
        return 0;
    }
    rc = check(stream->gpu->info.ordinal, "cuStreamQuery", result);
    return GPUSYM_SUCCESS == rc ? 1 : rc;
}

/* ---- Kernels ---- */

#if GPUSYM_HAVE_KERNELS

/* The kernels for all GPUs that the build was made for (kernels/kernels_fatbin.c). */
extern const unsigned char gpusym_fatbin[];

/*
 * Loads every kernel now, not at its first launch. A driver that loads lazily (the default since CUDA
 * 12.2) fetches a kernel's code in cuModuleGetFunction (or finishes that in cuFuncLoad, 12.4) and may wait
 * there for all that runs in the context. At a first launch that could be a kernel of ours that spins for
 * a peer, which in turn waits for the one we are about to launch: two communicators, used in another
 * order on two ranks, would stand still. So the list in kernels.def is kept short.
 */
static int kernels_get(gpusym_gpu_t *gpu)
{
    for (unsigned k = 0; k < GPUSYM_K_COUNT; k++) {
        int rc = CU(gpu->info.ordinal, cuModuleGetFunction, &gpu->kernels[k], gpu->module, gpusym_kernel_symbol(k));
        if (GPUSYM_SUCCESS == rc && NULL != cu.cuFuncLoad) {
            rc = CU(gpu->info.ordinal, cuFuncLoad, gpu->kernels[k]);
        }
        if (GPUSYM_SUCCESS != rc) {
            error_add(", kernel %s", gpusym_kernel_symbol(k));
            return rc;
        }
    }
    return GPUSYM_SUCCESS;
}

/* Loads the module and its kernels; gpu's context is current, state.lock is held. */
static int module_load(gpusym_gpu_t *gpu)
{
    CUmodule module = NULL;

    CUresult result = cu.cuModuleLoadData(&module, gpusym_fatbin);
    int rc = check(gpu->info.ordinal, "cuModuleLoadData", result);
    if (GPUSYM_SUCCESS == rc) {
        gpu->module = module;
        rc = kernels_get(gpu);
        if (GPUSYM_SUCCESS == rc) {
            return rc;
        }
        gpu->module = NULL;
        memset(gpu->kernels, 0, sizeof(gpu->kernels));
        (void) cu.cuModuleUnload(module);
    }
    if (CUDA_ERROR_NO_BINARY_FOR_GPU == result || CUDA_ERROR_UNSUPPORTED_PTX_VERSION == result) {
        snprintf(gpu->why, sizeof(gpu->why),
                 "gpusym was built without kernels for GPU %d (%s, compute capability %d.%d) and its driver; "
                 "configure it with --with-cuda-arch=%d",
                 gpu->info.ordinal, gpu->info.name, gpu->info.cc / 10, gpu->info.cc % 10, gpu->info.cc);
    } else {
        snprintf(gpu->why, sizeof(gpu->why), "the kernels could not be loaded: %.200s", error_text);
    }
    return GPUSYM_ERR_NOT_AVAILABLE;
}

static int cuda_kernels_load(gpusym_gpu_t *gpu, const char **why)
{
    bool pushed;
    int rc = GPUSYM_SUCCESS;

    pthread_mutex_lock(&state.lock);
    if (NULL == gpu->module) {
        rc = ctx_enter(gpu, &pushed);
        if (GPUSYM_SUCCESS == rc) {
            rc = module_load(gpu);
            ctx_leave(pushed);
        } else {
            snprintf(gpu->why, sizeof(gpu->why), "the kernels could not be loaded: %.200s", error_text);
            rc = GPUSYM_ERR_NOT_AVAILABLE;
        }
    }
    if (GPUSYM_SUCCESS != rc && NULL != why) {
        *why = gpu->why;
    }
    pthread_mutex_unlock(&state.lock);
    return rc;
}

#else

static int cuda_kernels_load(gpusym_gpu_t *gpu, const char **why)
{
    (void) gpu;
    if (NULL != why) {
        *why = "gpusym was built without nvcc, so it has no GPU kernels";
    }
    return GPUSYM_ERR_NOT_AVAILABLE;
}

#endif

/* Makes gpu's context current, for a launch of a kernel that is there since kernels_load(): no lock, no allocation. */
static int launch_enter(gpusym_gpu_t *gpu, unsigned kernel, bool *pushed)
{
    if (GPUSYM_K_COUNT <= kernel || NULL == gpu->kernels[kernel]) {
        snprintf(error_text, sizeof(error_text), "kernel %u is not loaded on GPU %d", kernel, gpu->info.ordinal);
        return GPUSYM_ERR_BAD_PARAM;
    }
    return ctx_enter(gpu, pushed);
}

static int cuda_launch(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    gpusym_gpu_t *gpu = stream->gpu;
    void *parameters[] = {(void *) (uintptr_t) w}; /* read, and copied before the call returns */
    bool pushed;

    int rc = launch_enter(gpu, kernel, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(gpu->info.ordinal, cuLaunchKernel, gpu->kernels[kernel], w->nblocks, 1, 1, w->nthreads, 1, 1, 0,
            stream->stream, parameters, NULL);
    ctx_leave(pushed);
    return rc;
}

/* ---- Flags ---- */

/* Of one call to the driver, which takes them in their order. */
#define FLAGS_MAX 8

/* A write is preceded by a barrier of the whole system: what the stream copied before, to a peer too, can be read by who sees
 * the flag. */
static int flags_queue(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n)
{
    CUstreamBatchMemOpParams ops[FLAGS_MAX] = {{0}};
    for (unsigned i = 0; i < n; i++) {
        const CUdeviceptr at = (CUdeviceptr) (uintptr_t) flags[i].at;
        if (flags[i].wait) {
            ops[i].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
            ops[i].waitValue.address = at;
            ops[i].waitValue.value = flags[i].value;
            ops[i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
        } else {
            ops[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
            ops[i].writeValue.address = at;
            ops[i].writeValue.value = flags[i].value;
            ops[i].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
        }
    }
    return CU(stream->gpu->info.ordinal, cuStreamBatchMemOp_v2, stream->stream, n, ops, 0);
}

static int cuda_stream_flags(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n)
{
    bool pushed;

    int rc = ctx_enter(stream->gpu, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    while (n > 0 && GPUSYM_SUCCESS == rc) {
        const unsigned now = n < FLAGS_MAX ? n : FLAGS_MAX;
        rc = flags_queue(stream, flags, now);
        flags += now;
        n -= now;
    }
    ctx_leave(pushed);
    return rc;
}

/* ---- Graphs ---- */

/* Of one node, a kernel. */
struct gpusym_graph {
    gpusym_gpu_t *gpu;
    CUgraph graph; /* kept for its node, by which what is executed is changed */
    CUgraphNode node;
    CUgraphExec exec;
};

/* Errors are of no use here: the program may have reset the GPU already. gpu is current. */
static void graph_free(gpusym_graph_t *graph)
{
    if (NULL != graph->exec) {
        (void) cu.cuGraphExecDestroy(graph->exec);
    }
    if (NULL != graph->graph) {
        (void) cu.cuGraphDestroy(graph->graph);
    }
    free(graph);
}

/* gpu is current. */
static int graph_make(gpusym_gpu_t *gpu, const CUDA_KERNEL_NODE_PARAMS *node, gpusym_graph_t **made)
{
    const int n = gpu->info.ordinal;
    gpusym_graph_t *graph = calloc(1, sizeof(*graph));
    int rc;

    if (NULL == graph) {
        return no_host_memory();
    }
    graph->gpu = gpu;
    if ((rc = CU(n, cuGraphCreate, &graph->graph, 0)) ||
        (rc = CU(n, cuGraphAddKernelNode, &graph->node, graph->graph, NULL, 0, node)) ||
        (rc = CU(n, cuGraphInstantiateWithFlags, &graph->exec, graph->graph, 0))) {
        graph_free(graph);
        return rc;
    }
    *made = graph;
    return GPUSYM_SUCCESS;
}

/* Without CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY the kernel has the priority of the stream, as by cuda_launch.
 */
static int cuda_graph_launch(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    gpusym_gpu_t *gpu = stream->gpu;
    const int n = gpu->info.ordinal;
    void *parameters[] = {(void *) (uintptr_t) w}; /* read, and copied before the calls return */
    bool pushed;

    int rc = launch_enter(gpu, kernel, &pushed);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    const CUDA_KERNEL_NODE_PARAMS node = {.func = gpu->kernels[kernel],
                                          .gridDimX = w->nblocks,
                                          .gridDimY = 1,
                                          .gridDimZ = 1,
                                          .blockDimX = w->nthreads,
                                          .blockDimY = 1,
                                          .blockDimZ = 1,
                                          .kernelParams = parameters};
    rc = NULL == *graph ? graph_make(gpu, &node, graph)
                        : CU(n, cuGraphExecKernelNodeSetParams, (*graph)->exec, (*graph)->node, &node);
    if (GPUSYM_SUCCESS == rc) {
        rc = CU(n, cuGraphLaunch, (*graph)->exec, stream->stream);
    }
    ctx_leave(pushed);
    return rc;
}

static void cuda_graph_destroy(gpusym_graph_t *graph)
{
    bool pushed;

    if (GPUSYM_SUCCESS == ctx_enter_living(graph->gpu, &pushed)) {
        graph_free(graph);
        ctx_leave(pushed);
    } else {
        free(graph);
    }
}

/* ---- The table ---- */

static const gpusym_device_t cuda = {
    .name = "cuda",
    .simulated = false,
    .open = cuda_open,
    .close = cuda_close,
    .query = cuda_query,
    .mem_range = cuda_mem_range,
    .gpu_open = cuda_gpu_open,
    .gpu_alive = cuda_gpu_alive,
    .gpu_info = cuda_gpu_info,
    .gpu_link = cuda_gpu_link,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .mem_zero = cuda_mem_zero,
    .mem_export = cuda_mem_export,
    .mem_unexport = cuda_mem_unexport,
    .mem_import = cuda_mem_import,
    .mem_unimport = cuda_mem_unimport,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .copy = cuda_copy,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_poll = cuda_stream_poll,
    .kernels_load = cuda_kernels_load,
    .launch = cuda_launch,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
    .copy_async = cuda_copy_async,
    .stream_flags = cuda_stream_flags,
    .copy2d_async = cuda_copy2d_async,
    /* mc_*: NULL. A multicast object binds memory of cuMemCreate, which our slabs would have to be made of, with
     * handles that peers open by a descriptor; that has never been tried on hardware, and cudaMalloc's memory works
     * everywhere. So the multicast kernels run on the simulator only. */
    .error = cuda_error,
};

const gpusym_device_t *const gpusym_device_cuda = &cuda;

#else

const gpusym_device_t *const gpusym_device_cuda = NULL;

#endif /* GPUSYM_HAVE_CUDA */
