/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The CUDA driver: its entry points, what this process holds of it, its errors in words, and contexts made current.
 * This is the library's one door to the toolkit's cuda.h.
 */
#ifndef GPUSYM_COMMON_DEVICE_CUDA_DRIVER_H
#define GPUSYM_COMMON_DEVICE_CUDA_DRIVER_H

#include <cuda.h>
#include <pthread.h>

#include "mca/common/gpusym/device/device.h"

#pragma GCC visibility push(hidden)

/* ---- entry points ---- */

/* Every entry point that is needed, by the name that the driver exports: a plain name may be an
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
    X(cuDeviceCanAccessPeer)                  \
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
    X(cuMemHostRegister_v2)                   \
    X(cuMemHostUnregister)                    \
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
    X(cuMemGetAllocationGranularity)          \
    X(cuMemCreate)                            \
    X(cuMemRelease)                           \
    X(cuMemAddressReserve)                    \
    X(cuMemAddressFree)                       \
    X(cuMemMap)                               \
    X(cuMemUnmap)                             \
    X(cuMemSetAccess)                         \
    X(cuStreamCreateWithPriority)             \
    X(cuStreamDestroy_v2)                     \
    X(cuStreamQuery)                          \
    X(cuStreamGetCtx)                         \
    X(cuStreamIsCapturing)                    \
    X(cuThreadExchangeStreamCaptureMode)      \
    X(cuStreamSynchronize)                    \
    X(cuStreamBatchMemOp_v2)                  \
    X(cuEventCreate)                          \
    X(cuEventRecord)                          \
    X(cuEventSynchronize)                     \
    X(cuEventDestroy_v2)                      \
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

/* Entry points that may be missing; typed by hand, since an older cuda.h does not declare them. */
#define DRIVER_OPTIONAL(X)                                                                                \
    X(cuFuncLoad, CUresult (*)(CUfunction))                                             /* driver 12.4 */ \
    X(cuCtxGetId, CUresult (*)(CUcontext, unsigned long long *))                        /* driver 12.0 */ \
    X(cuLaunchKernelEx, CUresult (*)(const void *config, CUfunction, void **, void **)) /* driver 11.8 */ \
    X(cuGraphKernelNodeSetAttribute, CUresult (*)(CUgraphNode, unsigned id, const void *value))           \
    DRIVER_MULTICAST(X)
/* Driver 12.1. The call that makes an object is not here: multicast.c alone finds it. */
#define DRIVER_MULTICAST(X)                                                                                          \
    X(cuMulticastGetGranularity, CUresult (*)(size_t *, const void *prop, unsigned option))                          \
    X(cuMulticastAddDevice, CUresult (*)(CUmemGenericAllocationHandle, CUdevice))                                    \
    X(cuMulticastBindMem,                                                                                            \
      CUresult (*)(CUmemGenericAllocationHandle object, size_t at, CUmemGenericAllocationHandle memory, size_t from, \
                   size_t size, unsigned long long flags))                                                           \
    X(cuMulticastUnbind, CUresult (*)(CUmemGenericAllocationHandle, CUdevice, size_t at, size_t size))

/* Where cuda.h makes a macro of a name above, the symbol changes together with the type: nodes of graphs have other
 * parameters, and names with _v2, from CUDA 12 on. */
#define SYMBOL(name) SYMBOL_TEXT(name)
#define SYMBOL_TEXT(name) #name

typedef struct {
#define X(name) __typeof__(&name) name;
    DRIVER_REQUIRED(X)
#undef X
#define X(name, type) __typeof__((type) 0) name;
    DRIVER_OPTIONAL(X)
#undef X
} cuda_driver_t;
extern cuda_driver_t cu;

/* Resolves the entry points; GPUSYM_ERR_NOT_AVAILABLE, with cuda_state.why, if there is no driver or it is too old. */
int cuda_driver_load(void);
/* Starts the driver, once; cuda_state.lock is held. GPUSYM_ERR_NOT_AVAILABLE with cuda_state.why. */
int cuda_driver_start(void);

/* ---- what this process holds ---- */

struct gpusym_stream {
    gpusym_gpu_t *gpu;
    CUstream stream;
};

/* Modules of kernels: the second has some of the first for few ranks, and comes with it; those for streams of the
 * program are loaded when they are wanted. */
typedef enum { CUDA_KERNELS, CUDA_FEW_KERNELS, CUDA_STREAM_KERNELS, CUDA_MODULES } cuda_module_t;

struct gpusym_gpu {
    gpusym_gpu_t *next;
    CUcontext ctx;
    CUdevice dev;
    bool primary; /* ctx is the primary context, retained */
    bool has_id;  /* id is the context's: no other has had it, or will, while the process lives */
    unsigned long long id;
    bool crowded;    /* other processes use it; atomic */
    CUstream copies; /* of copy() and mem_zero(): never the default stream, which waits for the program's work */
    gpusym_gpu_info_t info;

    /* Under cuda_state.lock until they have been loaded, constant from then on. */
    CUmodule module[CUDA_MODULES];
    CUfunction kernels[GPUSYM_K_COUNT];
    CUfunction
        few[GPUSYM_K_FIRST_STREAM]; /* those of kernels[] that there are for few ranks too; NULL: there is none */
    char why[256];                  /* why the kernels could not be loaded */
};

typedef struct {
    pthread_mutex_t lock; /* covers the rest, the GPUs in use and the mappings of peers' memory */
    void *lib;            /* libcuda.so.1 */
    bool open;
    int count;     /* GPUs; 0: the driver has not been started */
    char why[256]; /* why open() or cuda_driver_start() failed */
} cuda_state_t;
extern cuda_state_t cuda_state;

/* ---- errors ---- */

/* The calling thread's last error in words. */
const char *cuda_error(void);
/* Notes what went wrong for cuda_error() and returns code. */
int cuda_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends to the calling thread's error text. */
void cuda_error_add(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cuda_no_host_memory(void);
/* Notes an error of the driver and returns its GPUSYM_ERR code. gpu: its ordinal. */
int cuda_failed(int gpu, const char *call, CUresult result) __attribute__((cold));

static inline int cuda_check(int gpu, const char *call, CUresult result)
{
    return CUDA_SUCCESS == result ? GPUSYM_SUCCESS : cuda_failed(gpu, call, result);
}

/* Calls the driver; returns GPUSYM_SUCCESS, or notes the error and returns its GPUSYM_ERR code. */
#define CU(gpu, name, ...) cuda_check(gpu, SYMBOL(name), cu.name(__VA_ARGS__))

/* ---- contexts ---- */

/* Whether gpu's context is still the one that was taken into use, and not destroyed since. */
bool cuda_context_lives(const gpusym_gpu_t *gpu);

/* What the calling thread had before cuda_ctx_enter() and its like. */
typedef struct {
    bool pushed;              /* another context, or none */
    bool spared;              /* mode */
    CUstreamCaptureMode mode; /* by which the driver keeps it from calls that captures of streams do not bear */
} cuda_entered_t;

/* Makes gpu's context current unless it is. *entered is for cuda_ctx_leave(), needed only after success. For launches,
 * copies and flags on streams: the driver takes them beside a capture, and into one. */
static inline int cuda_ctx_enter(const gpusym_gpu_t *gpu, cuda_entered_t *entered)
{
    CUcontext now = NULL;
    int rc;

    *entered = (cuda_entered_t){.pushed = false};
    if (CUDA_SUCCESS == cu.cuCtxGetCurrent(&now) && now == gpu->ctx) {
        return GPUSYM_SUCCESS;
    }
    rc = CU(gpu->info.ordinal, cuCtxPushCurrent_v2, gpu->ctx);
    entered->pushed = GPUSYM_SUCCESS == rc;
    return rc;
}

/*
 * From here to cuda_capture_restore() the driver refuses the calling thread nothing because the program captures a
 * stream, in whatever thread and mode, and no capture ends by what the thread asks, but for the legacy stream. Of
 * entered, only what belongs to it is changed. Needs no context; 0.06 us each.
 */
static inline void cuda_capture_spare(cuda_entered_t *entered)
{
    entered->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    entered->spared = CUDA_SUCCESS == cu.cuThreadExchangeStreamCaptureMode(&entered->mode);
}

static inline void cuda_capture_restore(cuda_entered_t *entered)
{
    if (entered->spared) {
        (void) cu.cuThreadExchangeStreamCaptureMode(&entered->mode);
    }
}

/* cuda_ctx_enter() for all other calls: to allocate, free, pin, map, make and end streams, load, wait, and ask. */
int cuda_ctx_enter_spared(const gpusym_gpu_t *gpu, cuda_entered_t *entered);
/* The same to free something, which is gone already where the context is: GPUSYM_ERR_NOT_AVAILABLE. */
int cuda_ctx_enter_living(const gpusym_gpu_t *gpu, cuda_entered_t *entered);

/* Gives the thread what it had. */
static inline void cuda_ctx_leave(cuda_entered_t *entered)
{
    CUcontext ours;

    cuda_capture_restore(entered);
    if (entered->pushed) {
        (void) cu.cuCtxPopCurrent_v2(&ours);
    }
}

#pragma GCC visibility pop

#endif
