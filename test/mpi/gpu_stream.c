/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams, graphs and events for the test programs: see gpu_stream.h.  The CUDA driver is declared by hand, as in
 * mem.c.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/device.h"
#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/device/sim/sim.h"
#include "test/mpi/gpu_stream.h"
#include "test/mpi/mem.h"

static bool cuda; /* set by gpu_stream_init; else the simulator */

/* ---- CUDA ---- */

/* DRIVER(name, parameters): entry points, as the driver exports them. */
#define DRIVER_LIST                                                                           \
    DRIVER(cuGetErrorName, (int result, const char **name))                                   \
    DRIVER(cuCtxGetCurrent, (void **ctx))                                                     \
    DRIVER(cuCtxSetCurrent, (void *ctx))                                                      \
    DRIVER(cuStreamCreate, (void **stream, unsigned flags))                                   \
    DRIVER(cuStreamDestroy_v2, (void *stream))                                                \
    DRIVER(cuStreamSynchronize, (void *stream))                                               \
    DRIVER(cuStreamQuery, (void *stream))                                                     \
    DRIVER(cuStreamWaitEvent, (void *stream, void *event, unsigned flags))                    \
    DRIVER(cuMemcpyAsync, (uintptr_t dst, uintptr_t src, size_t size, void *stream))          \
    DRIVER(cuLaunchHostFunc, (void *stream, void (*function)(void *), void *argument))        \
    DRIVER(cuEventCreate, (void **event, unsigned flags))                                     \
    DRIVER(cuEventDestroy_v2, (void *event))                                                  \
    DRIVER(cuEventRecord, (void *event, void *stream))                                        \
    DRIVER(cuEventQuery, (void *event))                                                       \
    DRIVER(cuStreamBeginCapture_v2, (void *stream, int mode))                                 \
    DRIVER(cuStreamEndCapture, (void *stream, void **graph))                                  \
    DRIVER(cuGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags)) \
    DRIVER(cuGraphDestroy, (void *graph))                                                     \
    DRIVER(cuGraphLaunch, (void *exec, void *stream))                                         \
    DRIVER(cuGraphExecDestroy, (void *exec))

/* Constants of the driver's interface. */
enum {
    STREAM_DEFAULT = 0,       /* CU_STREAM_DEFAULT: it and the legacy stream wait for each other */
    EVENT_DISABLE_TIMING = 2, /* CU_EVENT_DISABLE_TIMING */
    CAPTURE_GLOBAL = 0,       /* CU_STREAM_CAPTURE_MODE_GLOBAL */
    NOT_READY = 600,          /* CUDA_ERROR_NOT_READY */
};

static struct {
#define DRIVER(name, parameters) int(*name) parameters;
    DRIVER_LIST
#undef DRIVER
    void *ctx;
} cu;

/* Prints what failed; whether nothing did. */
static bool cu_good(const char *call, int result)
{
    const char *name = NULL;

    if (0 != result) {
        cu.cuGetErrorName(result, &name);
        fprintf(stderr, "gpu_stream: %s: %s\n", call, NULL == name ? "unknown error" : name);
    }
    return 0 == result;
}

/* The same of a question; an error ends the process. */
static bool cu_ready(const char *call, int result)
{
    if (NOT_READY != result && !cu_good(call, result)) {
        exit(EXIT_FAILURE);
    }
    return NOT_READY != result;
}

/* Makes the GPU's context current. */
static void cu_bind(void)
{
    void *now = NULL;

    if (0 != cu.cuCtxGetCurrent(&now) || (now != cu.ctx && !cu_good("cuCtxSetCurrent", cu.cuCtxSetCurrent(cu.ctx)))) {
        exit(EXIT_FAILURE);
    }
}

/* A call that must not fail. */
#define CU(name, ...) (cu_bind(), (void) cu_ready(#name, cu.name(__VA_ARGS__)))

static int cuda_init(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (NULL == lib) {
        fprintf(stderr, "gpu_stream: no CUDA driver: %s\n", dlerror());
        return -1;
    }
#define DRIVER(name, parameters)                                           \
    if (NULL == (cu.name = (int(*) parameters) dlsym(lib, #name))) {       \
        fprintf(stderr, "gpu_stream: the CUDA driver has no %s\n", #name); \
        return -1;                                                         \
    }
    DRIVER_LIST
#undef DRIVER
    return cu_good("cuCtxGetCurrent", cu.cuCtxGetCurrent(&cu.ctx)) ? 0 : -1;
}

/* The graph in its executable form, which is all that is kept of it. */
static void *cuda_capture_end(void *stream)
{
    void *graph = NULL, *exec = NULL;

    CU(cuStreamEndCapture, stream, &graph);
    CU(cuGraphInstantiateWithFlags, &exec, graph, 0);
    CU(cuGraphDestroy, graph);
    return exec;
}

/* ---- the simulator ---- */

static bool sim_good(const char *call, int rc)
{
    gpusym_sim_faults_hold(false);
    if (0 > rc) {
        fprintf(stderr, "gpu_stream: %s on the simulator: %s\n", call, gpusym_device()->error());
    }
    return 0 <= rc;
}

/* A call that must not fail; what it returns. */
static int sim_must(const char *call, int rc)
{
    if (!sim_good(call, rc)) {
        exit(EXIT_FAILURE);
    }
    return rc;
}

#define SIM(name, ...) (gpusym_sim_faults_hold(true), sim_must(#name, name(__VA_ARGS__)))

/* ---- either ---- */

int gpu_stream_init(void)
{
    const char *device = mem_device();

    cuda = NULL != device && 0 == strcmp(device, "cuda");
    if (cuda) {
        return cuda_init();
    }
    if (NULL == device || 0 != strcmp(device, "sim")) {
        fprintf(stderr, "gpu_stream: device \"%s\" has no streams\n", NULL == device ? "" : device);
        return -1;
    }
    return 0;
}

void *gpu_stream_create(void)
{
    gpusym_stream_t *stream = NULL;
    void *custream = NULL;

    if (cuda) {
        CU(cuStreamCreate, &custream, STREAM_DEFAULT);
        return custream;
    }
    SIM(gpusym_sim_stream_create, &stream);
    return stream;
}

void gpu_stream_destroy(void *stream)
{
    if (cuda) {
        CU(cuStreamSynchronize, stream);
        CU(cuStreamDestroy_v2, stream);
    } else {
        SIM(gpusym_sim_stream_destroy, stream);
    }
}

void gpu_stream_synchronize(void *stream)
{
    if (cuda) {
        CU(cuStreamSynchronize, stream);
    } else {
        SIM(gpusym_sim_stream_synchronize, stream);
    }
}

bool gpu_stream_done(void *stream)
{
    if (cuda) {
        cu_bind();
        return cu_ready("cuStreamQuery", cu.cuStreamQuery(stream));
    }
    return 0 != SIM(gpusym_sim_stream_query, stream);
}

void gpu_stream_copy(void *stream, void *dst, const void *src, size_t size)
{
    if (cuda) {
        CU(cuMemcpyAsync, (uintptr_t) dst, (uintptr_t) src, size, stream);
    } else {
        SIM(gpusym_sim_stream_copy, stream, dst, src, size);
    }
}

void gpu_stream_call(void *stream, void (*function)(void *), void *argument)
{
    if (cuda) {
        CU(cuLaunchHostFunc, stream, function, argument);
    } else {
        SIM(gpusym_sim_stream_call, stream, function, argument);
    }
}

void gpu_stream_wait(void *stream, void *event)
{
    if (cuda) {
        CU(cuStreamWaitEvent, stream, event, 0);
    } else {
        SIM(gpusym_sim_stream_wait, stream, event);
    }
}

void *gpu_event_create(void)
{
    gpusym_sim_event_t *event = NULL;
    void *cuevent = NULL;

    if (cuda) {
        CU(cuEventCreate, &cuevent, EVENT_DISABLE_TIMING);
        return cuevent;
    }
    SIM(gpusym_sim_event_create, &event);
    return event;
}

void gpu_event_destroy(void *event)
{
    if (cuda) {
        CU(cuEventDestroy_v2, event);
    } else {
        gpusym_sim_event_destroy(event);
    }
}

void gpu_event_record(void *event, void *stream)
{
    if (cuda) {
        CU(cuEventRecord, event, stream);
    } else {
        SIM(gpusym_sim_event_record, event, stream);
    }
}

bool gpu_event_reached(void *event)
{
    if (cuda) {
        cu_bind();
        return cu_ready("cuEventQuery", cu.cuEventQuery(event));
    }
    return 0 != SIM(gpusym_sim_event_query, event);
}

void gpu_capture_begin(void *stream)
{
    if (cuda) {
        CU(cuStreamBeginCapture_v2, stream, CAPTURE_GLOBAL);
    } else {
        SIM(gpusym_sim_stream_capture, stream);
    }
}

void *gpu_capture_end(void *stream)
{
    gpusym_sim_graph_t *graph = NULL;

    if (cuda) {
        return cuda_capture_end(stream);
    }
    SIM(gpusym_sim_stream_capture_end, stream, &graph);
    return graph;
}

bool gpu_graph_launch(void *graph, void *stream)
{
    if (cuda) {
        cu_bind();
        return cu_good("cuGraphLaunch", cu.cuGraphLaunch(graph, stream));
    }
    return sim_good("gpusym_sim_graph_launch", gpusym_sim_graph_launch(graph, stream));
}

void gpu_graph_destroy(void *graph)
{
    if (cuda) {
        CU(cuGraphExecDestroy, graph);
    } else {
        gpusym_sim_graph_destroy(graph);
    }
}
