/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Peers' memory: exported by an IPC handle or a descriptor, and mapped here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mca/common/gpusym/device/cuda/cuda_internal.h"
#include "mca/common/gpusym/shm/fd.h"

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

/* Something that mem_import() returned and mem_unimport() has not ended yet. */
typedef struct mapping {
    struct mapping *next;
    void *p;
    gpusym_gpu_t *gpu;
    bool own;    /* memory of this process: nothing was mapped */
    size_t size; /* of addresses that cuMemMap filled; 0: it was opened by IPC */
} mapping_t;

static mapping_t *mappings;    /* under cuda_state.lock */
static uint64_t process_nonce; /* tells this process from others of the same id elsewhere (containers) */

static uint64_t make_nonce(void)
{
    struct timespec now;
    uint64_t nonce;

    if (gpusym_random(&nonce, sizeof(nonce))) {
        return nonce;
    }
    (void) timespec_get(&now, TIME_UTC);
    return ((uint64_t) now.tv_sec << 32 ^ (uint64_t) now.tv_nsec << 8) ^ (uintptr_t) &cuda_state;
}

void cuda_peers_open(void)
{
    process_nonce = make_nonce();
}

/* ---- export ---- */

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
        rc = cuda_fail(GPUSYM_ERR_UNREACHABLE, "the memory is not on GPU %d", gpu->info.ordinal);
    }
    return rc;
}

int cuda_share(const gpusym_gpu_t *gpu, CUmemGenericAllocationHandle memory, int *fd)
{
    int rc =
        CU(gpu->info.ordinal, cuMemExportToShareableHandle, fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (GPUSYM_SUCCESS != gpusym_fd_share(*fd)) {
        rc = cuda_fail(GPUSYM_ERR_UNREACHABLE, "peers could not fetch descriptor %d: %s", *fd, strerror(errno));
        close(*fd);
        return rc;
    }
    (void) fcntl(*fd, F_SETFD, FD_CLOEXEC); /* a program that this one starts would keep the memory */
    return GPUSYM_SUCCESS;
}

/* For mapped memory: a descriptor that peers fetch. They map the memory from its start on, so mine->base must be the
 * base of the range. gpu is current. */
static int export_fd(gpusym_gpu_t *gpu, const gpusym_range_t *range, cuda_handle_t *mine)
{
    const int n = gpu->info.ordinal;
    CUmemGenericAllocationHandle memory = 0;
    int fd = -1;

    if ((uintptr_t) range->base != mine->base) {
        return cuda_fail(GPUSYM_ERR_UNREACHABLE, "the address is not the start of a mapping");
    }
    int rc = CU(n, cuMemRetainAllocationHandle, &memory, (void *) (uintptr_t) mine->base);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = memory_check(gpu, memory);
    if (GPUSYM_SUCCESS == rc) {
        rc = cuda_share(gpu, memory, &fd);
    }
    if (GPUSYM_SUCCESS != rc) {
        (void) cu.cuMemRelease(memory);
        return rc;
    }
    mine->size = range->size;
    mine->by_fd.memory = memory;
    mine->by_fd.fd = fd;
    return GPUSYM_SUCCESS;
}

int cuda_mem_export(gpusym_gpu_t *gpu, void *p, gpusym_handle_t *handle)
{
    cuda_handle_t mine = {.nonce = process_nonce, .base = (uintptr_t) p, .pid = getpid()};
    gpusym_range_t range;
    cuda_entered_t entered;

    int rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = cuda_mem_range(p, &range);
    if (GPUSYM_SUCCESS == rc) {
        rc = 0 != (range.id & CUDA_MAPPED_ID)
                 ? export_fd(gpu, &range, &mine)
                 : CU(gpu->info.ordinal, cuIpcGetMemHandle, &mine.ipc, (CUdeviceptr) (uintptr_t) p);
    }
    cuda_ctx_leave(&entered);
    if (GPUSYM_SUCCESS != rc) {
        return GPUSYM_ERR_NO_MEMORY == rc ? rc : GPUSYM_ERR_UNREACHABLE;
    }
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &mine, sizeof(mine));
    return GPUSYM_SUCCESS;
}

int cuda_mem_unexport(gpusym_gpu_t *gpu, const gpusym_handle_t *handle)
{
    cuda_handle_t mine;
    cuda_entered_t entered;

    memcpy(&mine, handle, sizeof(mine));
    if (0 == mine.size) {
        return GPUSYM_SUCCESS;
    }
    close(mine.by_fd.fd);
    int rc = cuda_ctx_enter_living(gpu, &entered);
    if (GPUSYM_SUCCESS == rc) {
        rc = CU(gpu->info.ordinal, cuMemRelease, mine.by_fd.memory);
        cuda_ctx_leave(&entered);
    }
    return rc;
}

/* ---- import ---- */

static int mapping_end(mapping_t *mapping)
{
    gpusym_gpu_t *gpu = mapping->gpu;
    cuda_entered_t entered;
    int rc = GPUSYM_SUCCESS;

    if (!mapping->own) {
        rc = cuda_ctx_enter_living(gpu, &entered);
        if (GPUSYM_SUCCESS == rc) {
            const CUdeviceptr p = (CUdeviceptr) (uintptr_t) mapping->p;
            rc = 0 == mapping->size ? CU(gpu->info.ordinal, cuIpcCloseMemHandle, p)
                                    : cuda_map_end(gpu, p, mapping->size);
            cuda_ctx_leave(&entered);
        }
    }
    free(mapping);
    return rc;
}

/* Memory of this very process. The driver refuses to open it again, and need not, since all contexts share one address
 * space. Access to another context's memory has to be enabled. gpu is current. */
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
    return cuda_check(gpu->info.ordinal, "cuCtxEnablePeerAccess", result);
}

/* Memory of another process that has an IPC handle. gpu is current. */
static int import_ipc(gpusym_gpu_t *gpu, const cuda_handle_t *theirs, mapping_t *mapping)
{
    CUdeviceptr base = 0;

    int rc = CU(gpu->info.ordinal, cuIpcOpenMemHandle_v2, &base, theirs->ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    mapping->p = (void *) (uintptr_t) base;
    return rc;
}

int cuda_fetch(const gpusym_gpu_t *gpu, int64_t pid, int theirs, CUmemGenericAllocationHandle *memory)
{
    int fd;

    if (GPUSYM_SUCCESS != gpusym_fd_fetch((pid_t) pid, theirs, &fd)) {
        return cuda_fail(GPUSYM_ERR_UNREACHABLE, "descriptor %d of process %d cannot be fetched: %s", theirs, (int) pid,
                         strerror(errno));
    }
    const int rc = CU(gpu->info.ordinal, cuMemImportFromShareableHandle, memory, (void *) (intptr_t) fd,
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    return rc;
}

/* Memory of another process that is shared by a descriptor. gpu is current. */
static int import_fd(gpusym_gpu_t *gpu, const cuda_handle_t *theirs, mapping_t *mapping)
{
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr base = 0;

    int rc = cuda_fetch(gpu, theirs->pid, theirs->by_fd.fd, &memory);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = cuda_map_new(gpu, theirs->size, 0, memory, &base);
    (void) cu.cuMemRelease(memory);
    mapping->p = (void *) (uintptr_t) base;
    mapping->size = theirs->size;
    return rc;
}

static int import_memory(gpusym_gpu_t *gpu, const cuda_handle_t *theirs, mapping_t *mapping)
{
    if (mapping->own) {
        return import_own(gpu, mapping->p);
    }
    return 0 != theirs->size ? import_fd(gpu, theirs, mapping) : import_ipc(gpu, theirs, mapping);
}

int cuda_mem_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, void **p)
{
    cuda_handle_t theirs;
    cuda_entered_t entered;

    memcpy(&theirs, handle, sizeof(theirs));
    mapping_t *mapping = calloc(1, sizeof(*mapping));
    if (NULL == mapping) {
        return cuda_no_host_memory();
    }
    mapping->gpu = gpu;
    mapping->own = theirs.nonce == process_nonce && theirs.pid == getpid();
    mapping->p = (void *) (uintptr_t) theirs.base;

    int rc = cuda_ctx_enter_spared(gpu, &entered);
    if (GPUSYM_SUCCESS == rc) {
        rc = import_memory(gpu, &theirs, mapping);
        cuda_ctx_leave(&entered);
    }
    if (GPUSYM_SUCCESS != rc) {
        free(mapping);
        return GPUSYM_ERR_NO_MEMORY == rc ? rc : GPUSYM_ERR_UNREACHABLE;
    }
    *p = mapping->p;
    pthread_mutex_lock(&cuda_state.lock);
    mapping->next = mappings;
    mappings = mapping;
    pthread_mutex_unlock(&cuda_state.lock);
    return GPUSYM_SUCCESS;
}

int cuda_mem_unimport(gpusym_gpu_t *gpu, void *p)
{
    mapping_t **link, *mapping;

    pthread_mutex_lock(&cuda_state.lock);
    for (link = &mappings; NULL != (mapping = *link); link = &mapping->next) {
        if (mapping->p == p && mapping->gpu == gpu) {
            *link = mapping->next;
            break;
        }
    }
    pthread_mutex_unlock(&cuda_state.lock);
    if (NULL == mapping) {
        return cuda_fail(GPUSYM_ERR_BAD_PARAM, "%p was not imported on GPU %d", p, gpu->info.ordinal);
    }
    return mapping_end(mapping);
}

void cuda_peers_close(void)
{
    while (NULL != mappings) {
        mapping_t *mapping = mappings;
        mappings = mapping->next;
        (void) mapping_end(mapping);
    }
}
