/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The device table for NVIDIA GPUs, by the CUDA driver API.  libcuda.so.1 is opened at run time,
 * so that one binary loads on machines with and without a driver.  Only this folder includes the
 * toolkit's cuda.h; of a build without that header this file is all, and has no table.
 *
 * Contexts.  Memory belongs to a context, most often the primary context of its GPU (which the
 * CUDA runtime uses).  A gpusym_gpu_t is one (GPU, context); primary contexts are retained while
 * we use them, any other belongs to the program, which must keep it until close().  What needs a
 * context current runs between cuda_ctx_enter() and cuda_ctx_leave(), which leave the caller's as it was.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "mca/common/gpusym/device/cuda/cuda_device.h"

#if GPUSYM_HAVE_CUDA

#include "mca/common/gpusym/device/cuda/cuda_internal.h"

/* ---- open, close ---- */

/* Loads the driver but does not start it: cuInit() takes a tenth of a second, which a program that never uses a GPU
 * need not pay, and reads CUDA_VISIBLE_DEVICES, which it may still set. Until the program starts it, no
 * pointer is the GPU's; gpu_open() comes after that. */
static int cuda_open(const char **why)
{
    int rc = GPUSYM_SUCCESS;

    pthread_mutex_lock(&cuda_state.lock);
    if (!cuda_state.open) {
        rc = cuda_driver_load();
        if (GPUSYM_SUCCESS == rc) {
            cuda_peers_open();
            cuda_state.open = true;
        }
    }
    if (GPUSYM_SUCCESS != rc && NULL != why) {
        *why = cuda_state.why;
    }
    pthread_mutex_unlock(&cuda_state.lock);
    return rc;
}

/* Ends mappings and contexts. Streams and memory that callers did not free go with the context.
 * The driver itself stays loaded: it has threads and thread-exit handlers of its own. */
static void cuda_close(void)
{
    pthread_mutex_lock(&cuda_state.lock);
    cuda_mcs_close();
    cuda_peers_close();
    cuda_gpus_close();
    cuda_state.open = false;
    cuda_state.count = 0;
    pthread_mutex_unlock(&cuda_state.lock);
}

/* ---- the table ---- */

static const gpusym_device_t cuda = {
    .name = "cuda",
    .simulated = false,
    .open = cuda_open,
    .close = cuda_close,
    .query = cuda_query,
    .look = cuda_look,
    .mem_range = cuda_mem_range,
    .gpu_count = cuda_gpu_count,
    .gpu_current = cuda_gpu_current,
    .gpu_in_use = cuda_gpu_in_use,
    .gpu_look = cuda_gpu_look,
    .gpu_reaches = cuda_gpu_reaches,
    .gpu_open = cuda_gpu_open,
    .gpu_alive = cuda_gpu_alive,
    .gpu_info = cuda_gpu_info,
    .gpu_crowded = cuda_gpu_crowded,
    .gpu_link = cuda_gpu_link,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .mem_zero = cuda_mem_zero,
    .vmm_reserve = cuda_vmm_reserve,
    .vmm_release = cuda_vmm_release,
    .vmm_map = cuda_vmm_map,
    .vmm_unmap = cuda_vmm_unmap,
    .mem_export = cuda_mem_export,
    .mem_unexport = cuda_mem_unexport,
    .mem_import = cuda_mem_import,
    .mem_unimport = cuda_mem_unimport,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .copy = cuda_copy,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_poll = cuda_stream_poll,
    .stream_wrap = cuda_stream_wrap,
    .stream_unwrap = cuda_stream_unwrap,
    .stream_captured = cuda_stream_captured,
    .kernels_load = cuda_kernels_load,
    .stream_kernels_load = cuda_stream_kernels_load,
    .launch = cuda_launch,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
    .copy_async = cuda_copy_async,
    .stream_flags = cuda_stream_flags,
    .copy2d_async = cuda_copy2d_async,
    .mc_create = cuda_mc_create,
    .mc_import = cuda_mc_import,
    .mc_add = cuda_mc_add,
    .mc_bind = cuda_mc_bind,
    .mc_free = cuda_mc_free,
    .error = cuda_error,
};

const gpusym_device_t *const gpusym_device_cuda = &cuda;

#else

const gpusym_device_t *const gpusym_device_cuda = NULL;

#endif /* GPUSYM_HAVE_CUDA */
