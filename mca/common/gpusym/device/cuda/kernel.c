/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels: loaded once, launched by themselves or as graphs of one node.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/few.h"
#include "mca/common/gpusym/device/cuda/cuda_internal.h"

_Static_assert(sizeof(gpusym_work_t) <= 4096, "the descriptor does not fit into a kernel's parameters");

/* ---- loading ---- */

#if GPUSYM_HAVE_KERNELS

/* The kernels for all GPUs that the build was made for (kernels/kernels_fatbin.c). */
extern const unsigned char gpusym_fatbin[], gpusym_few_fatbin[], gpusym_stream_fatbin[];

/* One of the modules. */
typedef struct {
    const unsigned char *image;
    unsigned first, end; /* its kernels */
    const char *(*symbol)(unsigned kernel);
} image_t;
static const image_t images[CUDA_MODULES] = {
    [CUDA_KERNELS] = {gpusym_fatbin, 0, GPUSYM_K_FIRST_STREAM, gpusym_kernel_symbol},
    [CUDA_FEW_KERNELS] = {gpusym_few_fatbin, 0, GPUSYM_K_FIRST_STREAM, gpusym_kernel_few_symbol},
    [CUDA_STREAM_KERNELS] = {gpusym_stream_fatbin, GPUSYM_K_FIRST_STREAM, GPUSYM_K_COUNT, gpusym_kernel_symbol}};

/* Where the functions of a module are kept. */
static CUfunction *functions_of(gpusym_gpu_t *gpu, cuda_module_t which)
{
    return CUDA_FEW_KERNELS == which ? gpu->few : gpu->kernels;
}

/*
 * Loads every kernel now, not at its first launch. A driver that loads lazily (the default since CUDA
 * 12.2) fetches a kernel's code in cuModuleGetFunction (or finishes that in cuFuncLoad, 12.4) and may wait
 * there for all that runs in the context. At a first launch that could be a kernel of ours that spins for
 * a peer, which in turn waits for the one that is about to be launched: two communicators, used in another
 * order on two ranks, would deadlock. So the list in kernels.def is kept short.
 */
static int kernels_get(gpusym_gpu_t *gpu, const image_t *image, CUfunction *functions, CUmodule module)
{
    for (unsigned k = image->first; k < image->end; k++) {
        const char *symbol = image->symbol(k);
        if (NULL == symbol) {
            continue;
        }
        int rc = CU(gpu->info.ordinal, cuModuleGetFunction, &functions[k], module, symbol);
        if (GPUSYM_SUCCESS == rc && NULL != cu.cuFuncLoad) {
            rc = CU(gpu->info.ordinal, cuFuncLoad, functions[k]);
        }
        if (GPUSYM_SUCCESS != rc) {
            cuda_error_add(", kernel %s", symbol);
            return rc;
        }
    }
    return GPUSYM_SUCCESS;
}

/* Loads a module and its kernels; gpu's context is current, cuda_state.lock is held. */
static int module_load(gpusym_gpu_t *gpu, cuda_module_t which)
{
    const image_t *image = &images[which];
    CUfunction *functions = functions_of(gpu, which);
    CUmodule module = NULL;

    CUresult result = cu.cuModuleLoadData(&module, image->image);
    int rc = cuda_check(gpu->info.ordinal, "cuModuleLoadData", result);
    if (GPUSYM_SUCCESS == rc) {
        rc = kernels_get(gpu, image, functions, module);
        if (GPUSYM_SUCCESS == rc) {
            gpu->module[which] = module;
            return rc;
        }
        memset(&functions[image->first], 0, (image->end - image->first) * sizeof(functions[0]));
        (void) cu.cuModuleUnload(module);
    }
    if (CUDA_ERROR_NO_BINARY_FOR_GPU == result || CUDA_ERROR_UNSUPPORTED_PTX_VERSION == result) {
        snprintf(gpu->why, sizeof(gpu->why),
                 "gpusym was built without kernels for GPU %d (%s, compute capability %d.%d) and its driver; "
                 "configure it with --with-cuda-arch=%d",
                 gpu->info.ordinal, gpu->info.name, gpu->info.cc / 10, gpu->info.cc % 10, gpu->info.cc);
    } else {
        snprintf(gpu->why, sizeof(gpu->why), "the kernels could not be loaded: %.200s", cuda_error());
    }
    return GPUSYM_ERR_NOT_AVAILABLE;
}

static int load(gpusym_gpu_t *gpu, cuda_module_t which, const char **why)
{
    cuda_entered_t entered;
    int rc = GPUSYM_SUCCESS;

    pthread_mutex_lock(&cuda_state.lock);
    if (NULL == gpu->module[which]) {
        rc = cuda_ctx_enter_spared(gpu, &entered);
        if (GPUSYM_SUCCESS == rc) {
            rc = module_load(gpu, which);
            cuda_ctx_leave(&entered);
        } else {
            snprintf(gpu->why, sizeof(gpu->why), "the kernels could not be loaded: %.200s", cuda_error());
            rc = GPUSYM_ERR_NOT_AVAILABLE;
        }
    }
    if (GPUSYM_SUCCESS != rc && NULL != why) {
        *why = gpu->why;
    }
    pthread_mutex_unlock(&cuda_state.lock);
    return rc;
}

#else

static int load(gpusym_gpu_t *gpu, cuda_module_t which, const char **why)
{
    (void) gpu;
    (void) which;
    if (NULL != why) {
        *why = "gpusym was built without nvcc, so it has no GPU kernels";
    }
    return GPUSYM_ERR_NOT_AVAILABLE;
}

#endif

int cuda_kernels_load(gpusym_gpu_t *gpu, const char **why)
{
    const int rc = load(gpu, CUDA_KERNELS, why);
    return GPUSYM_SUCCESS != rc ? rc : load(gpu, CUDA_FEW_KERNELS, why);
}

int cuda_stream_kernels_load(gpusym_gpu_t *gpu, const char **why)
{
    return load(gpu, CUDA_STREAM_KERNELS, why);
}

/* ---- launches ---- */

/* Makes gpu's context current, for a launch of a kernel that is there since kernels_load(): no lock, no allocation. */
static int launch_enter(gpusym_gpu_t *gpu, unsigned kernel, cuda_entered_t *entered)
{
    if (GPUSYM_K_COUNT <= kernel || NULL == gpu->kernels[kernel]) {
        return cuda_fail(GPUSYM_ERR_BAD_PARAM, "kernel %u is not loaded on GPU %d", kernel, gpu->info.ordinal);
    }
    return cuda_ctx_enter(gpu, entered);
}

/* A resident kernel of several blocks is a cluster. */
static bool is_cluster(const gpusym_work_t *w)
{
    return 0 != w->linger_ns && w->nblocks > 1;
}

#if CUDA_VERSION >= 11080
#define SOON_CC 90 /* compute capability of GPUs that can do so */

static bool soon_fails; /* atomic */

static CUresult launch_with(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w, void **parameters,
                            CUlaunchAttribute attribute)
{
    const CUlaunchConfig config = {.gridDimX = w->nblocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = w->nthreads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = stream->stream,
                                   .attrs = &attribute,
                                   .numAttrs = 1};
    return NULL == cu.cuLaunchKernelEx ? CUDA_ERROR_NOT_SUPPORTED
                                       : cu.cuLaunchKernelEx(&config, stream->gpu->kernels[kernel], parameters, NULL);
}

/* Queues a kernel of a stream of the program so that it may come to the GPU before what the stream does before it has
 * ended: it waits for that by itself (gs_stream_order() of kernels/prim/prim.h). False: it cannot be queued so; nothing
 * is. */
static bool launch_soon(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w, void **parameters)
{
    const CUlaunchAttribute soon = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                    .value.programmaticStreamSerializationAllowed = 1};
    if (stream->gpu->info.cc < SOON_CC || __atomic_load_n(&soon_fails, __ATOMIC_RELAXED)) {
        return false;
    }
    const bool queued = CUDA_SUCCESS == launch_with(stream, kernel, w, parameters, soon);
    if (!queued) {
        __atomic_store_n(&soon_fails, true, __ATOMIC_RELAXED); /* one attempt is enough */
    }
    return queued;
}

static CUresult launch_cluster(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w, void **parameters)
{
    const CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                       .value.clusterDim = {.x = w->nblocks, .y = 1, .z = 1}};
    return launch_with(stream, kernel, w, parameters, cluster);
}

/* Sets the node's cluster, before it is instantiated. */
static CUresult node_cluster(CUgraphNode node, uint32_t blocks)
{
    const CUlaunchAttributeValue value = {.clusterDim = {.x = blocks, .y = 1, .z = 1}};
    return NULL == cu.cuGraphKernelNodeSetAttribute
               ? CUDA_ERROR_NOT_SUPPORTED
               : cu.cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value);
}
#else
static bool launch_soon(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w, void **parameters)
{
    (void) stream, (void) kernel, (void) w, (void) parameters;
    return false;
}

static CUresult launch_cluster(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w, void **parameters)
{
    (void) stream, (void) kernel, (void) w, (void) parameters;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult node_cluster(CUgraphNode node, uint32_t blocks)
{
    (void) node, (void) blocks;
    return CUDA_ERROR_NOT_SUPPORTED;
}
#endif

int cuda_launch(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    gpusym_gpu_t *gpu = stream->gpu;
    void *parameters[] = {(void *) (uintptr_t) w}; /* read, and copied before the call returns */
    cuda_entered_t entered;

    int rc = launch_enter(gpu, kernel, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (is_cluster(w)) {
        rc = cuda_check(gpu->info.ordinal, "a launch of a cluster", launch_cluster(stream, kernel, w, parameters));
    } else if (w->early < GPUSYM_STREAM_BEGINS || 0 == (w->soon & GPUSYM_SOON_THIS) ||
               !launch_soon(stream, kernel, w, parameters)) {
        rc = CU(gpu->info.ordinal, cuLaunchKernel, gpu->kernels[kernel], w->nblocks, 1, 1, w->nthreads, 1, 1, 0,
                stream->stream, parameters, NULL);
    }
    cuda_ctx_leave(&entered);
    return rc;
}

/* ---- graphs ---- */

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

/* cluster: the node's blocks are one. gpu is current, and captures are spared. */
static int graph_make(gpusym_gpu_t *gpu, const CUDA_KERNEL_NODE_PARAMS *node, bool cluster, gpusym_graph_t **made)
{
    const int n = gpu->info.ordinal;
    gpusym_graph_t *graph = calloc(1, sizeof(*graph));
    int rc;

    if (NULL == graph) {
        return cuda_no_host_memory();
    }
    graph->gpu = gpu;
    if ((rc = CU(n, cuGraphCreate, &graph->graph, 0)) ||
        (rc = CU(n, cuGraphAddKernelNode, &graph->node, graph->graph, NULL, 0, node)) ||
        (cluster && (rc = cuda_check(n, "cuGraphKernelNodeSetAttribute", node_cluster(graph->node, node->gridDimX)))) ||
        (rc = CU(n, cuGraphInstantiateWithFlags, &graph->exec, graph->graph, 0))) {
        graph_free(graph);
        return rc;
    }
    *made = graph;
    return GPUSYM_SUCCESS;
}

/* The kernel to be launched: that for few ranks, and its parameter, where there is one and that is enough. */
static CUfunction few_or_all(const gpusym_gpu_t *gpu, unsigned kernel, const gpusym_work_t *w, gpusym_few_t *few,
                             void **parameter)
{
    if (kernel < GPUSYM_K_FIRST_STREAM && NULL != gpu->few[kernel] && w->nranks <= GPUSYM_FEW_RANKS) {
        gpusym_work_few(w, few);
        *parameter = few;
        return gpu->few[kernel];
    }
    *parameter = (void *) (uintptr_t) w;
    return gpu->kernels[kernel];
}

/* Without CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY the kernel has the priority of the stream, as by cuda_launch.
 */
int cuda_graph_launch(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    gpusym_gpu_t *gpu = stream->gpu;
    const int n = gpu->info.ordinal;
    void *parameters[1]; /* read, and copied before the calls return */
    gpusym_few_t few;
    cuda_entered_t entered;

    int rc = launch_enter(gpu, kernel, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    const CUDA_KERNEL_NODE_PARAMS node = {.func = few_or_all(gpu, kernel, w, &few, &parameters[0]),
                                          .gridDimX = w->nblocks,
                                          .gridDimY = 1,
                                          .gridDimZ = 1,
                                          .blockDimX = w->nthreads,
                                          .blockDimY = 1,
                                          .blockDimZ = 1,
                                          .kernelParams = parameters};
    if (NULL == *graph) {
        cuda_capture_spare(&entered);
        rc = graph_make(gpu, &node, is_cluster(w), graph);
    } else {
        rc = CU(n, cuGraphExecKernelNodeSetParams, (*graph)->exec, (*graph)->node, &node);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = CU(n, cuGraphLaunch, (*graph)->exec, stream->stream);
    }
    cuda_ctx_leave(&entered);
    return rc;
}

void cuda_graph_destroy(gpusym_graph_t *graph)
{
    cuda_entered_t entered;

    if (GPUSYM_SUCCESS == cuda_ctx_enter_living(graph->gpu, &entered)) {
        graph_free(graph);
        cuda_ctx_leave(&entered);
    } else {
        free(graph);
    }
}
