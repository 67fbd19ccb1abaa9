/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The simulated GPU's memory, peers' memory, and host memory that the GPU reaches.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim_internal.h"
#include "mca/common/gpusym/sanitizers.h"
#include "mca/common/gpusym/shm/fd.h"

/* ---- memory of the GPU ---- */

/* Memory of the GPU, SIM_REGION_OWN, SIM_REGION_VMM or SIM_REGION_POOL. at: its addresses; NULL: any. */
static int memory_new(gpusym_gpu_t *gpu, sim_region_kind_t kind, size_t size, void *at, void **p)
{
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (0 == size) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "an allocation of 0 bytes");
    }
    if (sim_fault_due(SIM_FAULT_ALLOC)) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    if (!sim_bytes_take(size)) {
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "the simulated GPU has no %zu bytes left", size);
    }
    sim_region_t *region = sim_region_new(kind, size);
    if (NULL == region) {
        sim_bytes_give(size);
        return GPUSYM_ERR_NO_MEMORY;
    }
    region->placed = NULL != at;
    region->base = at;
    rc = sim_shared_create(SIM_REGION_VMM == kind ? SIM_MAGIC_VMM : SIM_MAGIC_MEMORY, size, &region->id, &region->fd);
    if (GPUSYM_SUCCESS == rc) {
        rc = sim_region_map(region, region->fd);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = sim_table_insert(region);
    }
    if (GPUSYM_SUCCESS != rc) {
        sim_region_unpin(region);
        return rc;
    }
    *p = region->base;
    return GPUSYM_SUCCESS;
}

int sim_mem_alloc(gpusym_gpu_t *gpu, size_t size, void **p)
{
    return memory_new(gpu, SIM_REGION_OWN, size, NULL, p);
}

int sim_mem_free(gpusym_gpu_t *gpu, void *p)
{
    int rc = sim_gpu_check(gpu);
    return GPUSYM_SUCCESS != rc ? rc : sim_table_remove(p, SIM_REGION_OWN);
}

int sim_mem_zero(gpusym_gpu_t *gpu, void *p, size_t size)
{
    void *at;
    sim_region_t *pin;
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc || 0 == size) {
        return rc;
    }
    rc = sim_reach(p, size, sim.host ? SIM_REACH_HOST : 0, &at, &pin);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    /* Whole pages of the file are given back, and read as zeroes. */
    if (0 != ((uintptr_t) at | size) % sim_page_size() || 0 != madvise(at, size, MADV_REMOVE)) {
        memset(at, 0, size);
    }
    if (NULL != pin) {
        sim_region_unpin(pin);
    }
    return GPUSYM_SUCCESS;
}

int gpusym_sim_vmm_alloc(size_t size, void **p)
{
    return memory_new(&sim.gpu, SIM_REGION_VMM, size, NULL, p);
}

int gpusym_sim_vmm_free(void *p)
{
    int rc = sim_gpu_check(&sim.gpu);
    return GPUSYM_SUCCESS != rc ? rc : sim_table_remove(p, SIM_REGION_VMM);
}

int gpusym_sim_pool_alloc(size_t size, void **p)
{
    return memory_new(&sim.gpu, SIM_REGION_POOL, size, NULL, p);
}

int gpusym_sim_pool_free(void *p)
{
    int rc = sim_gpu_check(&sim.gpu);
    return GPUSYM_SUCCESS != rc ? rc : sim_table_remove(p, SIM_REGION_POOL);
}

/* Addresses without memory, which nobody can touch. */
static int make_empty(void *at, size_t size, int fixed, void **p)
{
    *p = mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
    return MAP_FAILED != *p ? GPUSYM_SUCCESS
                            : sim_fail(GPUSYM_ERR_NO_MEMORY, "%zu bytes of addresses: %s", size, strerror(errno));
}

int sim_vmm_reserve(gpusym_gpu_t *gpu, size_t *size, unsigned n, void **at)
{
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (0 == *size || 0 == n || *size > SIZE_MAX / 4 / n) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "addresses for %u times %zu bytes", n, *size);
    }
    *size = sim_round_up(*size, sim_page_size());
    return sim_fault_due(SIM_FAULT_ALLOC) ? GPUSYM_ERR_NO_MEMORY : make_empty(NULL, n * *size, 0, at);
}

int sim_vmm_release(gpusym_gpu_t *gpu, void *at, size_t size, unsigned n)
{
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS == rc && 0 != munmap(at, n * size)) {
        rc = sim_fail(GPUSYM_ERR_BAD_PARAM, "%u times %zu bytes of addresses: %s", n, size, strerror(errno));
    }
    return rc;
}

int sim_vmm_map(gpusym_gpu_t *gpu, void *at, size_t size)
{
    void *p;
    sim_region_t *there = sim_table_pin(at);
    if (NULL != there || NULL == at || 0 != size % sim_page_size()) {
        if (NULL != there) {
            sim_region_unpin(there);
        }
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "%zu bytes cannot be mapped at %p", size, at);
    }
    int rc = memory_new(gpu, SIM_REGION_VMM, size, at, &p);
    if (GPUSYM_SUCCESS != rc) {
        (void) mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    return rc;
}

/* Work that still uses the memory reaches it by its alias. */
int sim_vmm_unmap(gpusym_gpu_t *gpu, void *at, size_t size)
{
    void *p;
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS == rc) {
        rc = sim_table_remove(at, SIM_REGION_VMM);
    }
    return GPUSYM_SUCCESS == rc ? make_empty(at, size, MAP_FIXED, &p) : rc;
}

/* ---- peers' memory ---- */

/* The descriptor that peers open: of SIM_REGION_VMM one of its own, which survives the free of the memory. */
static int exported_fd(const sim_region_t *region, int *fd)
{
    *fd = region->fd;
    if (SIM_REGION_VMM == region->kind) {
        GPUSYM_RESTART(*fd, fcntl(region->fd, F_DUPFD_CLOEXEC, 0));
        if (*fd < 0 || GPUSYM_SUCCESS != gpusym_fd_share(*fd)) {
            int rc = sim_fail(GPUSYM_ERR_UNREACHABLE, "a descriptor for peers: %s", strerror(errno));
            if (*fd >= 0) {
                close(*fd);
            }
            return rc;
        }
    }
    return GPUSYM_SUCCESS;
}

int sim_mem_export(gpusym_gpu_t *gpu, void *p, gpusym_handle_t *handle)
{
    sim_handle_t ours;
    int fd = -1, rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (sim_fault_due(SIM_FAULT_EXPORT)) {
        return GPUSYM_ERR;
    }
    sim_region_t *region = sim_table_pin(p);
    if (NULL != region && (SIM_REGION_OWN == region->kind || SIM_REGION_VMM == region->kind) && p == region->base) {
        rc = exported_fd(region, &fd);
    } else {
        rc = sim_fail(GPUSYM_ERR_BAD_PARAM, "%p is not the start of an allocation of this GPU", p);
    }
    if (GPUSYM_SUCCESS == rc) {
        sim_handle_put(&region->id, fd, &ours);
        memset(handle, 0, sizeof(*handle));
        memcpy(handle->bytes, &ours, sizeof(ours));
    }
    if (NULL != region) {
        sim_region_unpin(region);
    }
    return rc;
}

int sim_mem_unexport(gpusym_gpu_t *gpu, const gpusym_handle_t *handle)
{
    sim_handle_t ours;
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS == rc) {
        rc = sim_handle_get(handle, SIM_MAGIC_MEMORY, &ours);
    }
    if (GPUSYM_SUCCESS == rc && sim_is_vmm(&ours.id) && 0 != close(ours.fd) && EINTR != errno) { /* closed then too */
        rc = sim_fail(GPUSYM_ERR_BAD_PARAM, "descriptor %d for peers: %s", (int) ours.fd, strerror(errno));
    }
    return rc;
}

int sim_mem_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, void **p)
{
    sim_handle_t ours;
    sim_region_t *region;
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (sim_fault_due(SIM_FAULT_IMPORT)) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    rc = sim_handle_get(handle, SIM_MAGIC_MEMORY, &ours);
    if (GPUSYM_SUCCESS == rc && GPUSYM_LINK_NONE == sim_link_class(ours.gpu)) {
        rc = sim_fail(GPUSYM_ERR_UNREACHABLE, "simulated GPU %d does not reach GPU %d", (int) sim.gpu.info.place.number,
                      (int) ours.gpu);
    }
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = sim_region_import(&ours, &region);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    region->spoils = sim_link_spoils(ours.gpu);
    rc = sim_table_insert(region);
    if (GPUSYM_SUCCESS != rc) {
        sim_region_unpin(region);
        return rc;
    }
    *p = region->base;
    return GPUSYM_SUCCESS;
}

int sim_mem_unimport(gpusym_gpu_t *gpu, void *p)
{
    int rc = sim_gpu_check(gpu);
    return GPUSYM_SUCCESS != rc ? rc : sim_table_remove(p, SIM_REGION_IMPORTED);
}

/* ---- host memory ---- */

/* Zeroed memory that both CPU and kernels reach, in pages of its own, as the driver's is. From the heap, so that ASan
 * watches its ends. */
static int host_new(sim_region_kind_t kind, size_t size, void **p)
{
    void *memory = NULL;
    if (0 == size) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "an allocation of 0 bytes");
    }
    sim_region_t *region = sim_region_new(kind, size);
    if (NULL == region) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    int rc;
    const size_t page = sim_page_size(), whole = sim_round_up(size, page);
    if (size > sim.gpu.info.bytes || 0 != posix_memalign(&memory, page, whole)) {
        rc = sim_fail(GPUSYM_ERR_NO_MEMORY, "no %zu bytes of host memory", size);
    } else {
        memset(memory, 0, size);
        GPUSYM_POISON((char *) memory + size, whole - size);
        region->base = region->alias = memory;
        rc = sim_table_insert(region);
    }
    if (GPUSYM_SUCCESS != rc) {
        sim_region_unpin(region);
        return rc;
    }
    *p = memory;
    return GPUSYM_SUCCESS;
}

int sim_host_alloc(gpusym_gpu_t *gpu, size_t size, void **host, void **dev)
{
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (sim_fault_due(SIM_FAULT_HOSTALLOC)) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    rc = host_new(SIM_REGION_HOST, size, host);
    if (GPUSYM_SUCCESS == rc) {
        *dev = *host;
    }
    return rc;
}

int sim_host_free(gpusym_gpu_t *gpu, void *host)
{
    int rc = sim_gpu_check(gpu);
    return GPUSYM_SUCCESS != rc ? rc : sim_table_remove(host, SIM_REGION_HOST);
}

int sim_host_register(gpusym_gpu_t *gpu, void *host, size_t size, void **dev)
{
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (sim_fault_due(SIM_FAULT_HOSTALLOC)) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    if (NULL == host || 0 == size || 0 != (uintptr_t) host % sim_page_size()) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "%zu bytes at %p are not whole pages", size, host);
    }
    sim_region_t *region = sim_region_new(SIM_REGION_REGISTERED, size);
    if (NULL == region) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    region->base = region->alias = host;
    rc = sim_table_insert(region);
    if (GPUSYM_SUCCESS != rc) {
        sim_region_unpin(region);
        return rc;
    }
    *dev = host;
    return GPUSYM_SUCCESS;
}

int sim_host_unregister(gpusym_gpu_t *gpu, void *host)
{
    int rc = sim_gpu_check(gpu);
    return GPUSYM_SUCCESS != rc ? rc : sim_table_remove(host, SIM_REGION_REGISTERED);
}

int gpusym_sim_managed_alloc(size_t size, void **p)
{
    int rc = sim_gpu_check(&sim.gpu);
    return GPUSYM_SUCCESS != rc ? rc : host_new(SIM_REGION_MANAGED, size, p);
}

int gpusym_sim_managed_free(void *p)
{
    int rc = sim_gpu_check(&sim.gpu);
    return GPUSYM_SUCCESS != rc ? rc : sim_table_remove(p, SIM_REGION_MANAGED);
}
