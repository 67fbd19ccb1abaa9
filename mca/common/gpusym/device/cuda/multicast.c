/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Multicast objects (NVLS) over memory of cuMemCreate, shared by a descriptor.
 *
 * None of this has run on GPUs: it follows the manual, and a driver of the tests that holds it to that.  An object has
 * no name: a process that is killed leaves none.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/device/cuda/cuda_internal.h"
#include "mca/common/gpusym/device/multicast.h"

/* CUmulticastObjectProp, which headers before CUDA 12.1 do not have. */
typedef struct {
    unsigned devices;
    size_t size;
    unsigned long long types, flags;
} prop_t;
#if CUDA_VERSION >= 12010
_Static_assert(sizeof(prop_t) == sizeof(CUmulticastObjectProp) &&
                   offsetof(prop_t, types) == offsetof(CUmulticastObjectProp, handleTypes),
               "as the driver has it");
#endif
/* CU_MULTICAST_GRANULARITY_MINIMUM */
#define MINIMUM 0u

struct gpusym_mc {
    gpusym_mc_t *next; /* of all; under cuda_state.lock */
    gpusym_gpu_t *gpu;
    CUmemGenericAllocationHandle object;
    size_t size, unit; /* of the object; all sizes and offsets are multiples of unit */
    size_t bound;      /* bytes that this GPU has bound, from the object's start on; 0: none */
    CUdeviceptr at;    /* where as many are mapped; 0: nowhere */
    int fd;            /* by which the others open it, until all have; -1: none */
};

/* What a gpusym_handle_t holds. */
typedef struct {
    int64_t pid;
    uint64_t size, unit;
    int32_t fd; /* of that process */
} mc_handle_t;
_Static_assert(sizeof(mc_handle_t) <= sizeof(gpusym_handle_t), "the handle does not fit");

static gpusym_mc_t *objects; /* under cuda_state.lock */

bool cuda_mc_known(void)
{
#define X(name, type) &&NULL != cu.name
    return true DRIVER_MULTICAST(X);
#undef X
}

/* Gives up all that an object holds here. What fails is kept by the driver until the context ends. */
static void object_end(gpusym_mc_t *mc)
{
    cuda_entered_t entered;

    if (mc->fd >= 0) {
        close(mc->fd);
    }
    if (GPUSYM_SUCCESS == cuda_ctx_enter_living(mc->gpu, &entered)) {
        if (0 != mc->at) {
            (void) cuda_map_end(mc->gpu, mc->at, mc->bound);
        }
        if (0 != mc->bound) {
            (void) cu.cuMulticastUnbind(mc->object, mc->gpu->dev, 0, mc->bound);
        }
        (void) cu.cuMemRelease(mc->object);
        cuda_ctx_leave(&entered);
    }
    free(mc);
}

static int object_new(gpusym_gpu_t *gpu, gpusym_mc_t **mc)
{
    *mc = calloc(1, sizeof(**mc));
    if (NULL == *mc) {
        return cuda_no_host_memory();
    }
    (*mc)->gpu = gpu;
    (*mc)->fd = -1;
    return GPUSYM_SUCCESS;
}

static void object_list(gpusym_mc_t *mc)
{
    pthread_mutex_lock(&cuda_state.lock);
    mc->next = objects;
    objects = mc;
    pthread_mutex_unlock(&cuda_state.lock);
}

/* The only function that has a driver make an object: nobody else knows the call. gpu is current. */
static int object_make(gpusym_gpu_t *gpu, int setting, unsigned members, gpusym_mc_t *mc)
{
    const char *why;
    prop_t prop = {.devices = members, .size = mc->size, .types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUresult (*create)(CUmemGenericAllocationHandle * object, const void *prop);

    if (!gpusym_multicast_allowed(setting, false, &why)) {
        return cuda_fail(GPUSYM_ERR_NOT_AVAILABLE, "%s", why);
    }
    *(void **) &create = dlsym(cuda_state.lib, "cuMulticastCreate");
    if (NULL == create || !gpu->info.multicast) {
        return cuda_fail(GPUSYM_ERR_NOT_AVAILABLE, "GPU %d, or its driver, has no multicast objects",
                         gpu->info.ordinal);
    }
    int rc = CU(gpu->info.ordinal, cuMulticastGetGranularity, &mc->unit, &prop, MINIMUM);
    if (GPUSYM_SUCCESS == rc && (0 == mc->unit || mc->size > SIZE_MAX - 2 * mc->unit)) {
        rc = cuda_fail(GPUSYM_ERR_BAD_PARAM, "no multicast object has %zu bytes", mc->size);
    }
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    /* What is bound may begin and end within a unit. */
    prop.size = mc->size = (mc->size + mc->unit - 1) / mc->unit * mc->unit + mc->unit;
    return cuda_check(gpu->info.ordinal, "cuMulticastCreate", create(&mc->object, &prop));
}

int cuda_mc_create(gpusym_gpu_t *gpu, int setting, unsigned members, size_t size, gpusym_mc_t **mc,
                   gpusym_handle_t *handle)
{
    gpusym_mc_t *made;
    cuda_entered_t entered;

    int rc = object_new(gpu, &made);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    made->size = size;
    rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS == rc) {
        rc = object_make(gpu, setting, members, made);
        if (GPUSYM_SUCCESS == rc) {
            rc = cuda_share(gpu, made->object, &made->fd);
            if (GPUSYM_SUCCESS != rc) {
                made->fd = -1;
                (void) cu.cuMemRelease(made->object);
            }
        }
        cuda_ctx_leave(&entered);
    }
    if (GPUSYM_SUCCESS != rc) {
        free(made);
        return rc;
    }
    const mc_handle_t ours = {.pid = getpid(), .size = made->size, .unit = made->unit, .fd = made->fd};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &ours, sizeof(ours));
    object_list(made);
    *mc = made;
    return GPUSYM_SUCCESS;
}

int cuda_mc_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, gpusym_mc_t **mc)
{
    mc_handle_t theirs;
    gpusym_mc_t *made;
    cuda_entered_t entered;

    memcpy(&theirs, handle, sizeof(theirs));
    if (0 == theirs.unit || 0 == theirs.size || 0 != theirs.size % theirs.unit) {
        return cuda_fail(GPUSYM_ERR_BAD_PARAM, "this is no handle of a multicast object");
    }
    if (!gpu->info.multicast) {
        return cuda_fail(GPUSYM_ERR_NOT_AVAILABLE, "GPU %d, or its driver, has no multicast objects",
                         gpu->info.ordinal);
    }
    int rc = object_new(gpu, &made);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    made->size = theirs.size;
    made->unit = theirs.unit;
    rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS == rc) {
        rc = cuda_fetch(gpu, theirs.pid, theirs.fd, &made->object);
        cuda_ctx_leave(&entered);
    }
    if (GPUSYM_SUCCESS != rc) {
        free(made);
        return rc;
    }
    object_list(made);
    *mc = made;
    return GPUSYM_SUCCESS;
}

int cuda_mc_add(gpusym_mc_t *mc)
{
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_spared(mc->gpu, &entered);
    if (GPUSYM_SUCCESS == rc) {
        rc = CU(mc->gpu->info.ordinal, cuMulticastAddDevice, mc->object, mc->gpu->dev);
        cuda_ctx_leave(&entered);
    }
    return rc;
}

/* Binds the units of a mapping that bytes at offset `off` of it lie in, and maps as many. gpu is current. */
static int bind_units(gpusym_mc_t *mc, const gpusym_range_t *range, size_t off, size_t size)
{
    const int n = mc->gpu->info.ordinal;
    const size_t from = off / mc->unit * mc->unit, to = (off + size + mc->unit - 1) / mc->unit * mc->unit;
    CUmemGenericAllocationHandle memory = 0;

    if (to > range->size || to - from > mc->size) {
        return cuda_fail(GPUSYM_ERR_BAD_PARAM,
                         "%zu bytes at offset %zu of %llu have no whole units of %zu for a multicast object of %zu",
                         size, off, (unsigned long long) range->size, mc->unit, mc->size);
    }
    int rc = CU(n, cuMemRetainAllocationHandle, &memory, range->base);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = CU(n, cuMulticastBindMem, mc->object, 0, memory, from, to - from, 0);
    (void) cu.cuMemRelease(memory); /* the object keeps it */
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    mc->bound = to - from;
    CUdeviceptr at = 0;
    rc = cuda_map_new(mc->gpu, mc->bound, mc->unit, mc->object, &at);
    mc->at = GPUSYM_SUCCESS == rc ? at : 0;
    return rc;
}

/* All have opened the object by now, and the descriptor is not needed any more. The driver tells members by their
 * GPUs. */
int cuda_mc_bind(gpusym_mc_t *mc, unsigned member, void *p, size_t size, void **mp)
{
    gpusym_range_t range;
    cuda_entered_t entered;

    (void) member;
    if (mc->fd >= 0) {
        close(mc->fd);
        mc->fd = -1;
    }
    int rc = cuda_ctx_enter_spared(mc->gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = cuda_mem_range(p, &range);
    if (GPUSYM_SUCCESS == rc && 0 == (range.id & CUDA_MAPPED_ID)) {
        rc = cuda_fail(GPUSYM_ERR_NOT_AVAILABLE, "%p is no memory of cuMemCreate, which multicast objects bind", p);
    }
    const size_t off = GPUSYM_SUCCESS == rc ? (size_t) ((char *) p - (char *) range.base) : 0;
    if (GPUSYM_SUCCESS == rc && (0 != mc->bound || 0 == size || size > range.size - off)) {
        rc = cuda_fail(GPUSYM_ERR_BAD_PARAM, "%zu bytes at %p cannot be bound", size, p);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = bind_units(mc, &range, off, size);
    }
    cuda_ctx_leave(&entered);
    if (GPUSYM_SUCCESS == rc) {
        *mp = (void *) (uintptr_t) (mc->at + off % mc->unit);
    }
    return rc;
}

void cuda_mc_free(gpusym_mc_t *mc)
{
    pthread_mutex_lock(&cuda_state.lock);
    gpusym_mc_t **link = &objects;
    while (NULL != *link && *link != mc) {
        link = &(*link)->next;
    }
    if (NULL != *link) {
        *link = mc->next;
    }
    pthread_mutex_unlock(&cuda_state.lock);
    object_end(mc);
}

void cuda_mcs_close(void)
{
    while (NULL != objects) {
        gpusym_mc_t *mc = objects;
        objects = mc->next;
        object_end(mc);
    }
}
