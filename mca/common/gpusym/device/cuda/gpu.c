/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * GPUs in use: one per (GPU, context).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/cuda/cuda_internal.h"

static gpusym_gpu_t *gpus; /* under cuda_state.lock */

/* The ordinal of the GPU of the current context, which there is. *ordinal stays if the driver has no such GPU. */
static int current_ordinal(int *ordinal)
{
    CUdevice dev, other;
    int rc = CU(-1, cuCtxGetDevice, &dev);

    for (int i = 0; GPUSYM_SUCCESS == rc && i < cuda_state.count; i++) {
        if (CUDA_SUCCESS == cu.cuDeviceGet(&other, i) && other == dev) {
            *ordinal = i;
        }
    }
    return rc;
}

/* The GPU and the context (NULL: its primary one) that own mem, or the calling thread's. */
static int gpu_wanted(const gpusym_mem_t *mem, int *ordinal, CUcontext *ctx)
{
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
    return current_ordinal(ordinal);
}

/* Finds out whether ctx (NULL: take the primary one) is the primary context of gpu->dev, and retains it if so.
 * A primary context that is not active is not created where ctx is given: ctx is another one then. */
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

/* Of HBM and GDDR, which move data twice a clock. */
static unsigned memory_gbs(int khz, int bits)
{
    return (unsigned) (2.0 * khz * 1000.0 * bits / 8 / 1e9);
}

/* CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which older headers do not have; drivers that do not know it answer an error. */
#define MPS_ENABLED ((CUdevice_attribute) 133)

/* CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, likewise. */
#define MULTICAST_SUPPORTED ((CUdevice_attribute) 132)

/* Compute capability of GPUs whose blocks can be a cluster. */
#define CLUSTER_CC 90

/* Fills info but for its ordinal; needs no context. */
static int gpu_describe(int n, CUdevice dev, gpusym_gpu_info_t *info)
{
    int major = 0, minor = 0, khz = 0, bits = 0, mps = 0, mc = 0, rc;
    size_t bytes = 0;
    CUuuid uuid;

    if ((rc = CU(n, cuDeviceGetName, info->name, sizeof(info->name), dev)) ||
        (rc = CU(n, cuDeviceGetUuid_v2, &uuid, dev)) ||
        (rc = CU(n, cuDeviceGetPCIBusId, info->where, sizeof(info->where), dev)) ||
        (rc = CU(n, cuDeviceTotalMem_v2, &bytes, dev)) ||
        (rc = CU(n, cuDeviceGetAttribute, &info->sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev)) ||
        (rc = CU(n, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev)) ||
        (rc = CU(n, cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev))) {
        return rc;
    }
    if (CUDA_SUCCESS == cu.cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, dev) &&
        CUDA_SUCCESS == cu.cuDeviceGetAttribute(&bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, dev)) {
        info->gbs = memory_gbs(khz, bits);
    }
    info->mps = CUDA_SUCCESS == cu.cuDeviceGetAttribute(&mps, MPS_ENABLED, dev) && 0 != mps;
    info->multicast =
        cuda_mc_known() && CUDA_SUCCESS == cu.cuDeviceGetAttribute(&mc, MULTICAST_SUPPORTED, dev) && 0 != mc;
    memcpy(info->uuid, uuid.bytes, sizeof(info->uuid));
    snprintf(info->place.pci, sizeof(info->place.pci), "%.19s", info->where);
    info->place.number = -1;
    info->cc = 10 * major + minor;
    info->clusters = info->cc >= CLUSTER_CC && NULL != cu.cuLaunchKernelEx && NULL != cu.cuGraphKernelNodeSetAttribute;
    info->bytes = bytes;
    return GPUSYM_SUCCESS;
}

/* Fills info and makes the copy stream; gpu's context is current. */
static int gpu_set_up(gpusym_gpu_t *gpu)
{
    int rc = gpu_describe(gpu->info.ordinal, gpu->dev, &gpu->info);

    return GPUSYM_SUCCESS != rc
               ? rc
               : CU(gpu->info.ordinal, cuStreamCreateWithPriority, &gpu->copies, CU_STREAM_NON_BLOCKING, 0);
}

/* Releases a GPU. Errors are ignored: the program may have reset the GPU already, and with it what was retained. */
static void gpu_release(gpusym_gpu_t *gpu)
{
    const bool lives = cuda_context_lives(gpu);
    cuda_entered_t entered;

    if (lives && GPUSYM_SUCCESS == cuda_ctx_enter_spared(gpu, &entered)) {
        for (unsigned m = 0; m < CUDA_MODULES; m++) {
            if (NULL != gpu->module[m]) {
                (void) cu.cuModuleUnload(gpu->module[m]);
            }
        }
        if (NULL != gpu->copies) {
            (void) cu.cuStreamDestroy_v2(gpu->copies);
        }
        cuda_ctx_leave(&entered);
    }
    if (lives && gpu->primary) {
        (void) cu.cuDevicePrimaryCtxRelease_v2(gpu->dev);
    }
    free(gpu);
}

/* Takes a (GPU, context) into use and adds it to the list; cuda_state.lock is held. */
static int gpu_make(int ordinal, CUcontext ctx, gpusym_gpu_t **made)
{
    gpusym_gpu_t *gpu = calloc(1, sizeof(*gpu));
    cuda_entered_t entered;

    if (NULL == gpu) {
        return cuda_no_host_memory();
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
    rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS == rc) {
        rc = gpu_set_up(gpu);
        cuda_ctx_leave(&entered);
    }
    if (GPUSYM_SUCCESS != rc) {
        gpu_release(gpu);
        return rc;
    }
    gpu->next = gpus;
    __atomic_store_n(&gpus, gpu, __ATOMIC_RELEASE);
    *made = gpu;
    return GPUSYM_SUCCESS;
}

/* Starts the driver. */
static int driver_need(void)
{
    pthread_mutex_lock(&cuda_state.lock);
    int rc = cuda_driver_start();
    pthread_mutex_unlock(&cuda_state.lock);
    return GPUSYM_SUCCESS == rc ? rc : cuda_fail(rc, "%s", cuda_state.why);
}

int cuda_gpu_count(int *count)
{
    int rc = driver_need();

    *count = GPUSYM_SUCCESS == rc ? cuda_state.count : 0;
    return rc;
}

/* Starts no driver: before the program has, no GPU is current. */
int cuda_gpu_current(void)
{
    CUcontext ctx = NULL;
    int ordinal = -1;

    if (CUDA_SUCCESS == cu.cuCtxGetCurrent(&ctx) && NULL != ctx && GPUSYM_SUCCESS == driver_need()) {
        (void) current_ordinal(&ordinal);
    }
    return ordinal;
}

/* Threads that have no context yet may belong to a program that has: its primary ones tell. */
bool cuda_gpu_in_use(void)
{
    CUcontext ctx = NULL;
    int count = 0, active = 0;
    unsigned flags;
    CUdevice dev;

    if (CUDA_SUCCESS != cu.cuCtxGetCurrent(&ctx) || CUDA_SUCCESS != cu.cuDeviceGetCount(&count)) {
        return false; /* the program has not started the driver */
    }
    for (int i = 0; NULL == ctx && !active && i < count; i++) {
        if (CUDA_SUCCESS != cu.cuDeviceGet(&dev, i) ||
            CUDA_SUCCESS != cu.cuDevicePrimaryCtxGetState(dev, &flags, &active)) {
            active = 0;
        }
    }
    return NULL != ctx || active;
}

/* The driver's name of a GPU. */
static int find_device(int ordinal, CUdevice *dev)
{
    int rc = driver_need();

    if (GPUSYM_SUCCESS == rc && (ordinal < 0 || ordinal >= cuda_state.count)) {
        rc = cuda_fail(GPUSYM_ERR_BAD_PARAM, "there is no GPU %d", ordinal);
    }
    return GPUSYM_SUCCESS == rc ? CU(ordinal, cuDeviceGet, dev, ordinal) : rc;
}

int cuda_gpu_look(int ordinal, gpusym_gpu_info_t *info)
{
    CUdevice dev;
    int rc = find_device(ordinal, &dev);

    *info = (gpusym_gpu_info_t){.ordinal = ordinal};
    return GPUSYM_SUCCESS == rc ? gpu_describe(ordinal, dev, info) : rc;
}

int cuda_gpu_reaches(int from, int to, bool *reaches)
{
    CUdevice ours, theirs;
    int yes = 1;
    int rc = find_device(from, &ours);

    if (GPUSYM_SUCCESS == rc) {
        rc = find_device(to, &theirs);
    }
    if (GPUSYM_SUCCESS == rc && from != to) {
        rc = CU(from, cuDeviceCanAccessPeer, &yes, ours, theirs);
    }
    *reaches = GPUSYM_SUCCESS == rc && 0 != yes;
    return rc;
}

int cuda_gpu_open(const gpusym_mem_t *mem, gpusym_gpu_t **gpu)
{
    gpusym_gpu_t *g;
    CUcontext ctx = NULL;
    int ordinal = 0;

    for (g = __atomic_load_n(&gpus, __ATOMIC_ACQUIRE); NULL != g && NULL != mem; g = g->next) {
        if (0 <= mem->gpu && NULL != mem->context && g->ctx == mem->context) { /* each message asks: no lock */
            *gpu = g;
            return GPUSYM_SUCCESS;
        }
    }
    pthread_mutex_lock(&cuda_state.lock);
    int rc = cuda_driver_start();
    if (GPUSYM_SUCCESS != rc) {
        rc = cuda_fail(rc, "%s", cuda_state.why);
    } else {
        rc = gpu_wanted(mem, &ordinal, &ctx);
    }
    if (GPUSYM_SUCCESS != rc) {
        pthread_mutex_unlock(&cuda_state.lock);
        return rc;
    }
    for (g = gpus; NULL != g; g = g->next) {
        if (NULL != ctx ? g->ctx == ctx : g->primary && g->info.ordinal == ordinal) {
            break;
        }
    }
    if (NULL == g) {
        rc = gpu_make(ordinal, ctx, &g);
    }
    pthread_mutex_unlock(&cuda_state.lock);
    if (GPUSYM_SUCCESS == rc) {
        *gpu = g;
    }
    return rc;
}

void cuda_gpus_close(void)
{
    while (NULL != gpus) {
        gpusym_gpu_t *gpu = gpus;
        gpus = gpu->next;
        gpu_release(gpu);
    }
}

bool cuda_gpu_alive(gpusym_gpu_t *gpu)
{
    return cuda_context_lives(gpu);
}

void cuda_gpu_info(gpusym_gpu_t *gpu, gpusym_gpu_info_t *info)
{
    *info = gpu->info;
}

void cuda_gpu_crowded(gpusym_gpu_t *gpu)
{
    __atomic_store_n(&gpu->crowded, true, __ATOMIC_RELAXED);
}

/* A GPU's atomics on another's memory go over NVLink and over nothing else; rank 0 is that of the best links here. Of
 * GPUs that CUDA_VISIBLE_DEVICES hides the driver says nothing. */
int cuda_gpu_link(gpusym_gpu_t *gpu, const gpusym_place_t *peer)
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
