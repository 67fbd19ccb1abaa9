/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the CUDA device share.  Only this folder includes it: this is the library's one door to the
 * toolkit's cuda.h.
 *
 * Calls go one way: cuda_device.c calls all others; peer.c calls memory.c; all call driver.c, which calls none.
 */
#ifndef GPUSYM_COMMON_DEVICE_CUDA_INTERNAL_H
#define GPUSYM_COMMON_DEVICE_CUDA_INTERNAL_H

#include <cuda.h>
#include <pthread.h>

#include "mca/common/gpusym/device/device.h"

#pragma GCC visibility push(hidden)

/* ---- driver.c: entry points ---- */

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

/* Entry points that may be missing; typed by hand, since an older cuda.h does not declare them. */
#define DRIVER_OPTIONAL(X)                                                         \
    X(cuFuncLoad, CUresult (*)(CUfunction))                      /* driver 12.4 */ \
    X(cuCtxGetId, CUresult (*)(CUcontext, unsigned long long *)) /* driver 12.0 */

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

/* ---- driver.c: what this process holds ---- */

struct gpusym_stream {
    gpusym_gpu_t *gpu;
    CUstream stream;
};

struct gpusym_gpu {
    gpusym_gpu_t *next;
    CUcontext ctx;
    CUdevice dev;
    bool primary; /* ctx is the primary context, retained */
    bool has_id;  /* id is the context's: no other has had it, or will, while the process lives */
    unsigned long long id;
    CUstream copies; /* of copy() and mem_zero(): never the default stream, which waits for the program's work */
    gpusym_gpu_info_t info;

    /* Under cuda_state.lock until kernels_load() has returned success, constant from then on. */
    CUmodule module;
    CUfunction kernels[GPUSYM_K_COUNT];
    char why[256]; /* why the kernels could not be loaded */
};

typedef struct {
    pthread_mutex_t lock; /* covers the rest, the GPUs in use and the mappings of peers' memory */
    void *lib;            /* libcuda.so.1 */
    bool open;
    int count;     /* GPUs; 0: the driver has not been started */
    char why[256]; /* why open() or cuda_driver_start() failed */
} cuda_state_t;
extern cuda_state_t cuda_state;

/* ---- driver.c: errors ---- */

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

/* ---- driver.c: contexts ---- */

/* Whether gpu's context is still the one that was taken into use, and not destroyed since. */
bool cuda_context_lives(const gpusym_gpu_t *gpu);

/* Makes gpu's context current unless it is. *pushed is for cuda_ctx_leave(), needed only after success. */
static inline int cuda_ctx_enter(const gpusym_gpu_t *gpu, bool *pushed)
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

/* cuda_ctx_enter() to free something, which is gone already where the context is: GPUSYM_ERR_NOT_AVAILABLE. */
int cuda_ctx_enter_living(const gpusym_gpu_t *gpu, bool *pushed);

/* Restores the context that was current before cuda_ctx_enter(). */
static inline void cuda_ctx_leave(bool pushed)
{
    CUcontext ours;

    if (pushed) {
        (void) cu.cuCtxPopCurrent_v2(&ours);
    }
}

/* ---- gpu.c ---- */

int cuda_gpu_open(const gpusym_mem_t *mem, gpusym_gpu_t **gpu);
bool cuda_gpu_alive(gpusym_gpu_t *gpu);
void cuda_gpu_info(gpusym_gpu_t *gpu, gpusym_gpu_info_t *info);
int cuda_gpu_link(gpusym_gpu_t *gpu, const gpusym_place_t *peer);
/* Releases all GPUs; cuda_state.lock is held. */
void cuda_gpus_close(void);

/* ---- memory.c ---- */

/* Set in the ids of mapped memory: no BUFFER_ID of other memory is one of them. */
#define CUDA_MAPPED_ID (UINT64_C(1) << 63)

void cuda_query(const void *p, gpusym_mem_t *mem);
int cuda_mem_range(const void *p, gpusym_range_t *range);
int cuda_mem_alloc(gpusym_gpu_t *gpu, size_t size, void **p);
int cuda_mem_free(gpusym_gpu_t *gpu, void *p);
int cuda_mem_zero(gpusym_gpu_t *gpu, void *p, size_t size);
int cuda_host_alloc(gpusym_gpu_t *gpu, size_t size, void **host, void **dev);
int cuda_host_free(gpusym_gpu_t *gpu, void *host);

/* ---- peer.c ---- */

/* Before the first export or import. */
void cuda_peers_open(void);
/* Ends all mappings; cuda_state.lock is held. */
void cuda_peers_close(void);
int cuda_mem_export(gpusym_gpu_t *gpu, void *p, gpusym_handle_t *handle);
int cuda_mem_unexport(gpusym_gpu_t *gpu, const gpusym_handle_t *handle);
int cuda_mem_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, void **p);
int cuda_mem_unimport(gpusym_gpu_t *gpu, void *p);

/* ---- stream.c ---- */

int cuda_copy(gpusym_gpu_t *gpu, void *dst, const void *src, size_t size);
int cuda_copy_async(gpusym_stream_t *stream, void *dst, const void *src, size_t size);
int cuda_copy2d_async(gpusym_stream_t *stream, void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                      size_t height);
int cuda_stream_create(gpusym_gpu_t *gpu, gpusym_stream_t **stream);
void cuda_stream_destroy(gpusym_stream_t *stream);
int cuda_stream_poll(gpusym_stream_t *stream);
int cuda_stream_flags(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n);

/* ---- kernel.c ---- */

int cuda_kernels_load(gpusym_gpu_t *gpu, const char **why);
int cuda_launch(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w);
int cuda_graph_launch(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w);
void cuda_graph_destroy(gpusym_graph_t *graph);

#pragma GCC visibility pop

#endif
