/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The CUDA driver: its entry points, its errors in words, and contexts made current.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/cuda/driver.h"

cuda_driver_t cu;

cuda_state_t cuda_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- errors ---- */

static _Thread_local char error_text[320] = "no error";

const char *cuda_error(void)
{
    return error_text;
}

int cuda_fail(int code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(error_text, sizeof(error_text), format, args);
    va_end(args);
    return code;
}

void cuda_error_add(const char *format, ...)
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

int cuda_no_host_memory(void)
{
    return cuda_fail(GPUSYM_ERR_NO_MEMORY, "out of host memory");
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

int cuda_failed(int gpu, const char *call, CUresult result)
{
    return cuda_fail(result_code(result), "%s on GPU %d: %s (%s)", call, gpu, result_string(result),
                     result_name(result));
}

/* ---- contexts ---- */

/*
 * cudaDeviceReset (cuDevicePrimaryCtxReset) destroys a primary context with all that is in it, although it is retained.
 * So does the end of the process: the driver is shut down before the last handlers of atexit. No handle of such a
 * context may be given to the driver, which follows them, and its pinned memory is not mapped any more: an access is a
 * segmentation fault. These three calls tell. The id is compared because the next primary context of a GPU may have the
 * address of the last one.
 */
bool cuda_context_lives(const gpusym_gpu_t *gpu)
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

int cuda_ctx_enter_spared(const gpusym_gpu_t *gpu, cuda_entered_t *entered)
{
    const int rc = cuda_ctx_enter(gpu, entered);
    if (GPUSYM_SUCCESS == rc) {
        cuda_capture_spare(entered);
    }
    return rc;
}

int cuda_ctx_enter_living(const gpusym_gpu_t *gpu, cuda_entered_t *entered)
{
    if (cuda_context_lives(gpu)) {
        return cuda_ctx_enter_spared(gpu, entered);
    }
    *entered = (cuda_entered_t){.pushed = false};
    return cuda_fail(GPUSYM_ERR_NOT_AVAILABLE, "the context on GPU %d has been destroyed", gpu->info.ordinal);
}

/* ---- loading and starting ---- */

int cuda_driver_load(void)
{
    if (NULL != cuda_state.lib) {
        return GPUSYM_SUCCESS;
    }
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (NULL == lib) {
        snprintf(cuda_state.why, sizeof(cuda_state.why), "no NVIDIA driver is installed (%s)", dlerror());
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
        snprintf(cuda_state.why, sizeof(cuda_state.why),
                 "the NVIDIA driver is too old: its libcuda.so.1 has no %s; install a driver for CUDA 12 or newer",
                 missing);
        dlclose(lib);
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    cuda_state.lib = lib;
    return GPUSYM_SUCCESS;
}

int cuda_driver_start(void)
{
    if (0 < cuda_state.count) {
        return GPUSYM_SUCCESS;
    }
    CUresult result = cu.cuInit(0);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    cuda_state.count = 0;
    if (CUDA_SUCCESS == result) {
        result = cu.cuDeviceGetCount(&cuda_state.count);
    }
    if (CUDA_ERROR_NO_DEVICE == result || (CUDA_SUCCESS == result && 0 >= cuda_state.count)) {
        snprintf(cuda_state.why, sizeof(cuda_state.why),
                 "the NVIDIA driver shows this process no GPU (CUDA_VISIBLE_DEVICES is %s%.100s%s)",
                 NULL == visible ? "not set" : "\"", NULL == visible ? "" : visible, NULL == visible ? "" : "\"");
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    if (CUDA_SUCCESS != result) {
        cuda_state.count = 0;
        snprintf(cuda_state.why, sizeof(cuda_state.why), "the NVIDIA driver does not start: %s (%s, %d)",
                 result_string(result), result_name(result), (int) result);
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    return GPUSYM_SUCCESS;
}
