/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The simulated GPU: fills the device table on a machine without one.
 *
 * Device memory is a memfd.  Where the program sees it, it is mapped PROT_NONE, so that a CPU that
 * touches a device pointer faults, as it must; a second, read-write mapping (the alias) is for
 * kernels and copies only.  Peers map each other's memfd.  A stream is a worker thread with a
 * queue; kernels are their CPU instantiations.  Faults can be injected by gpusym_sim_params.fail.
 *
 * Only this folder and the kernels' simulator primitives (by gpusym_sim_mc_members) see an alias.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim_internal.h"
#include "mca/common/gpusym/shm/fd.h"

/* ---- open, close ---- */

/* The same number in every process of this host for the same text and seed (FNV-1a). */
static uint64_t hash_text(const char *text, uint64_t seed)
{
    uint64_t value = UINT64_C(14695981039346656037) ^ seed;
    for (; '\0' != *text; text++) {
        value = (value ^ (uint8_t) *text) * UINT64_C(1099511628211);
    }
    return value;
}

/* A text that only the processes of this host, since it was started, have in common. */
static void host_text(char *text, size_t size)
{
    struct utsname names;
    if (!gpusym_file_line("/proc/sys/kernel/random/boot_id", text, size)) { /* hidden in this container */
        snprintf(text, size, "%s", 0 == uname(&names) ? names.nodename : "");
    }
}

static int gpu_fill(gpusym_gpu_info_t *info)
{
    memset(info, 0, sizeof(*info));
    snprintf(info->name, sizeof(info->name), "simulated GPU");
    info->sm_count = 16;
    info->multicast = true;
    info->clusters = true;
    info->mps = gpusym_sim_params.mps;
    info->place.number = 0 == gpusym_sim_params.gpus ? gpusym_sim_params.local_rank
                                                     : gpusym_sim_params.local_rank % gpusym_sim_params.gpus;
    info->bytes = (uint64_t) sysconf(_SC_PHYS_PAGES) * sim_page_size();
    if (0 == gpusym_sim_params.gpus) { /* one of our own */
        int32_t pid = (int32_t) getpid();
        snprintf(info->where, sizeof(info->where), "pid %d", (int) pid);
        memcpy(info->uuid, &pid, sizeof(pid));
        size_t rest = sizeof(info->uuid) - sizeof(pid);
        return gpusym_random(info->uuid + sizeof(pid), rest) ? GPUSYM_SUCCESS : GPUSYM_ERR;
    }
    char text[128];
    int number = info->place.number;
    snprintf(info->where, sizeof(info->where), "number %d of %d", number, gpusym_sim_params.gpus);
    host_text(text, sizeof(text));
    uint64_t half[2] = {hash_text(text, (uint64_t) number), hash_text(text, ~(uint64_t) number)};
    memcpy(info->uuid, half, sizeof(half));
    return GPUSYM_SUCCESS;
}

/* gpusym_kernel_sim_late */
static bool command_is_late(void)
{
    return sim_fault_due(SIM_FAULT_DOORBELL);
}

/* gpusym_kernel_sim_leaves */
static bool entry_fails(void)
{
    return sim_fault_due(SIM_FAULT_ENTRY);
}

/* The parts of open; a failure is told in sim.why. */
static int open_locked(void)
{
    int rc = sim_faults_parse(gpusym_sim_params.fail);
    if (GPUSYM_SUCCESS == rc) {
        rc = sim_links_check();
    }
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (gpusym_sim_params.gpus < 0 || gpusym_sim_params.local_rank < 0) {
        snprintf(sim.why, sizeof(sim.why), "the simulator cannot have %d GPUs for local rank %d",
                 gpusym_sim_params.gpus, gpusym_sim_params.local_rank);
        return GPUSYM_ERR_BAD_PARAM;
    }
    int fd;
    if (GPUSYM_SUCCESS != gpusym_memfd_make("gpusym-device", sim_page_size(), &fd)) {
        snprintf(sim.why, sizeof(sim.why), "the simulator needs memfd_create, which fails here: %s", strerror(errno));
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    close(fd);
    if (GPUSYM_SUCCESS != gpu_fill(&sim.gpu.info)) {
        snprintf(sim.why, sizeof(sim.why), "the simulator needs getrandom, which fails here: %s", strerror(errno));
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    sim.host = gpusym_sim_params.host;
    sim_peak_reset();
    gpusym_kernel_sim_mc_members = gpusym_sim_mc_members;
    gpusym_kernel_sim_reach = sim_kernel_reach;
    gpusym_kernel_sim_leaves = entry_fails;
    gpusym_kernel_sim_late = command_is_late;
    return GPUSYM_SUCCESS;
}

static int sim_open(const char **why)
{
    int rc = GPUSYM_SUCCESS;
    pthread_mutex_lock(&sim.lock);
    if (!sim.opened) {
        rc = open_locked();
        if (GPUSYM_SUCCESS == rc) {
            __atomic_store_n(&sim.opened, true, __ATOMIC_RELEASE);
        } else if (NULL != why) {
            *why = sim.why;
        }
    }
    pthread_mutex_unlock(&sim.lock);
    return rc;
}

static void sim_close(void)
{
    pthread_mutex_lock(&sim.lock);
    __atomic_store_n(&sim.opened, false, __ATOMIC_RELEASE);
    __atomic_store_n(&sim.used, false, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&sim.lock);
    sim_streams_close();
    sim_table_clear();
}

/* ---- the GPU ---- */

static int sim_gpu_count(int *count)
{
    *count = 1;
    return sim_gpu_check(&sim.gpu);
}

static int sim_gpu_current(void)
{
    return GPUSYM_SUCCESS == sim_gpu_check(&sim.gpu) ? 0 : -1;
}

static bool sim_gpu_in_use(void)
{
    return sim.host || __atomic_load_n(&sim.used, __ATOMIC_RELAXED);
}

static int sim_gpu_look(int ordinal, gpusym_gpu_info_t *info)
{
    int rc = sim_gpu_check(&sim.gpu);
    if (GPUSYM_SUCCESS == rc && 0 != ordinal) {
        rc = sim_fail(GPUSYM_ERR_BAD_PARAM, "the simulator gives a process one GPU: there is no number %d", ordinal);
    }
    if (GPUSYM_SUCCESS == rc) {
        *info = sim.gpu.info;
    }
    return rc;
}

static int sim_gpu_reaches(int from, int to, bool *reaches)
{
    gpusym_gpu_info_t info;
    int rc = sim_gpu_look(from, &info);
    if (GPUSYM_SUCCESS == rc) {
        rc = sim_gpu_look(to, &info);
    }
    *reaches = GPUSYM_SUCCESS == rc;
    return rc;
}

static int sim_gpu_open(const gpusym_mem_t *mem, gpusym_gpu_t **gpu)
{
    int rc = sim_gpu_check(&sim.gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (sim_fault_due(SIM_FAULT_OPEN)) {
        return GPUSYM_ERR;
    }
    if (NULL != mem && mem->gpu > 0) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "the simulator gives a process one GPU: there is no number %d", mem->gpu);
    }
    __atomic_store_n(&sim.used, true, __ATOMIC_RELAXED);
    *gpu = &sim.gpu;
    return GPUSYM_SUCCESS;
}

static bool sim_gpu_alive(gpusym_gpu_t *gpu)
{
    return GPUSYM_SUCCESS == sim_gpu_check(gpu);
}

static void sim_gpu_info(gpusym_gpu_t *gpu, gpusym_gpu_info_t *info)
{
    *info = gpu->info;
}

static int sim_gpu_link(gpusym_gpu_t *gpu, const gpusym_place_t *peer)
{
    (void) gpu;
    return peer->number < 0 ? GPUSYM_ERR_NOT_AVAILABLE : sim_link_class(peer->number);
}

static int sim_kernels_load(gpusym_gpu_t *gpu, const char **why)
{
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc && NULL != why) {
        *why = "the simulator is not open";
    }
    return rc;
}

/* ---- the table ---- */

const gpusym_device_t gpusym_device_sim = {
    .name = "sim",
    .simulated = true,
    .open = sim_open,
    .close = sim_close,
    .query = sim_query,
    .look = sim_query,
    .mem_range = sim_mem_range,
    .gpu_count = sim_gpu_count,
    .gpu_current = sim_gpu_current,
    .gpu_in_use = sim_gpu_in_use,
    .gpu_look = sim_gpu_look,
    .gpu_reaches = sim_gpu_reaches,
    .gpu_open = sim_gpu_open,
    .gpu_info = sim_gpu_info,
    .gpu_link = sim_gpu_link,
    .mem_alloc = sim_mem_alloc,
    .mem_free = sim_mem_free,
    .mem_zero = sim_mem_zero,
    .vmm_reserve = sim_vmm_reserve,
    .vmm_release = sim_vmm_release,
    .vmm_map = sim_vmm_map,
    .vmm_unmap = sim_vmm_unmap,
    .mem_export = sim_mem_export,
    .mem_unexport = sim_mem_unexport,
    .mem_import = sim_mem_import,
    .mem_unimport = sim_mem_unimport,
    .host_alloc = sim_host_alloc,
    .host_free = sim_host_free,
    .host_register = sim_host_register,
    .host_unregister = sim_host_unregister,
    .copy = sim_copy,
    .stream_create = sim_stream_create,
    .stream_destroy = sim_stream_destroy,
    .stream_poll = sim_stream_poll,
    .stream_wrap = sim_stream_wrap,
    .stream_unwrap = sim_stream_unwrap,
    .stream_captured = sim_stream_captured,
    .gpu_alive = sim_gpu_alive,
    .kernels_load = sim_kernels_load,
    .stream_kernels_load = sim_kernels_load,
    .launch = sim_launch,
    .graph_launch = sim_graph_launch,
    .graph_destroy = sim_graph_destroy,
    .copy_async = sim_copy_async,
    .stream_flags = sim_stream_flags,
    .copy2d_async = sim_copy2d_async,
    .mc_create = sim_mc_create,
    .mc_import = sim_mc_import,
    .mc_add = sim_mc_add,
    .mc_bind = sim_mc_bind,
    .mc_free = sim_mc_free,
    .error = sim_error,
};
