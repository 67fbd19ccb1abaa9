/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The device and the heap of the process: see gpusym.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/gpusym.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/shm/fd.h"
#include "mca/common/gpusym/shm/pages.h"
#include "mca/common/gpusym/exec/copy.h"
#include "mca/common/gpusym/exec/lane.h"
#include "mca/common/gpusym/memory/left.h"
#include "mca/common/gpusym/memory/pinned.h"
#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/gpusym/memory/staging_buffer.h"
#include "mca/common/gpusym/p2p/send_desc.h"
#include "mca/common/gpusym/p2p/pipeline.h"
#include "mca/common/gpusym/topo/links.h"

#define NO_DEVICE                                                                   \
    "coll_gpusym_device requests the device \"%s\", which is not available here:\n" \
    "    %s\n"                                                                      \
    "\n"                                                                            \
    "The process continues without it: collectives on host memory work as usual,\n" \
    "GPU pointers are not recognised.  For \"cuda\", check that the driver is\n"    \
    "installed and that a GPU is visible (nvidia-smi, CUDA_VISIBLE_DEVICES).\n"     \
    "\"auto\" uses a GPU if there is one.\n"

gpusym_config_t gpusym_params;
gpusym_current_t gpusym_current;

/* `lock` covers the rest, and the writing of gpusym_current. */
static struct {
    pthread_mutex_t lock;
    unsigned opens;
    gpusym_config_t config; /* while opens > 0; the strings are ours */
    gpusym_heap_t *heap;    /* read without the lock by gpusym_heap() */
    bool heap_tried;
    gpusym_lack_t heap_lack; /* why there is none, where it was tried */
    bool collectives;        /* read without the lock */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- open and close ---- */

static void config_free(gpusym_config_t *config)
{
    free((char *) (uintptr_t) config->sim_fail);
    free((char *) (uintptr_t) config->sim_links);
    memset(config, 0, sizeof *config);
}

static int config_copy(gpusym_config_t *to, const gpusym_config_t *from)
{
    *to = *from;
    to->sim_fail = strdup(NULL != from->sim_fail ? from->sim_fail : "");
    to->sim_links = strdup(NULL != from->sim_links ? from->sim_links : "");
    if (NULL == to->sim_fail || NULL == to->sim_links) {
        config_free(to);
        return GPUSYM_ERR_NO_MEMORY;
    }
    return GPUSYM_SUCCESS;
}

int gpusym_open(const gpusym_config_t *config)
{
    int rc = GPUSYM_SUCCESS;
    pthread_mutex_lock(&process.lock);
    if (0 == process.opens) {
        rc = config_copy(&process.config, config);
        if (GPUSYM_SUCCESS == rc) {
            gpusym_log_to(config->print, config->verbose);
        }
    } else {
        gpusym_log_raise(config->verbose);
        if (process.config.local_rank < 0) {
            process.config.local_rank = config->local_rank;
            process.config.world_rank = config->world_rank;
        }
    }
    process.opens += GPUSYM_SUCCESS == rc ? 1 : 0;
    pthread_mutex_unlock(&process.lock);
    return rc;
}

/* With the lock held: all that is made on the device, and the device. */
static void free_device(void)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    if (NULL != dev) {
        gpusym_pinned_close(dev);
        gpusym_copy_queues_close();
        gpusym_pipelines_close(dev);
        gpusym_staging_buffers_close(dev);
        gpusym_lanes_close();
        gpusym_reg_close(dev);
        gpusym_scratch_close(dev);
        gpusym_heap_destroy(process.heap);
    }
    gpusym_topo_close();
    gpusym_send_descs_close();
    gpusym_pages_close();
    gpusym_device_close();
    __atomic_store_n(&process.heap, NULL, __ATOMIC_RELEASE);
    process.heap_tried = false;
    process.heap_lack = GPUSYM_LACK_NOTHING;
    gpusym_current = (gpusym_current_t){.dev = NULL};
}

void gpusym_close(void)
{
    pthread_mutex_lock(&process.lock);
    if (0 != process.opens && 0 == --process.opens) {
        free_device();
        config_free(&process.config);
        gpusym_log_to(NULL, 0);
    }
    pthread_mutex_unlock(&process.lock);
}

/* ---- the device ---- */

static const char *choice_name(int choice)
{
    switch (choice) {
    case GPUSYM_DEVICE_CUDA:
        return "cuda";
    case GPUSYM_DEVICE_SIM:
        return "sim";
    case GPUSYM_DEVICE_NONE:
        return "none";
    default:
        return "auto";
    }
}

/* With the lock held. */
static void select_device(const gpusym_config_t *c)
{
    const char *why = "no reason given";

    gpusym_sim_params.host = c->sim_host;
    gpusym_sim_params.gpus = c->sim_gpus;
    gpusym_sim_params.mps = c->sim_mps;
    gpusym_sim_params.delay = c->sim_delay;
    gpusym_sim_params.fail = c->sim_fail;
    gpusym_sim_params.links = c->sim_links;
    gpusym_sim_params.local_rank = c->local_rank;
    gpusym_sim_params.world_rank = c->world_rank;
    gpusym_cuda_wait_legacy_stream = c->wait_legacy_stream;
    gpusym_reg_limit = (unsigned) c->reg_limit;
    gpusym_reg_parts = c->map_small;
    gpusym_pinned_max = c->pinned_max;
    gpusym_scratch_max = c->scratch_max;

    const gpusym_device_t *dev = gpusym_device_select((gpusym_device_choice_t) c->device, &why);
    if (NULL != dev) {
        GPUSYM_LOG(2, "device %s", dev->name);
    } else {
        GPUSYM_LOG(2, "no device (requested: %s): %s", choice_name(c->device), why);
    }
    if (NULL == dev && (GPUSYM_DEVICE_CUDA == c->device || GPUSYM_DEVICE_SIM == c->device)) {
        gpusym_help(NO_DEVICE, choice_name(c->device), why);
    }
    __atomic_store_n(&gpusym_current.dev, dev, __ATOMIC_RELEASE);
    __atomic_store_n(&gpusym_current.none, NULL == dev, __ATOMIC_RELAXED);
    __atomic_store_n(&gpusym_current.tried, true, __ATOMIC_RELEASE);
}

const gpusym_device_t *gpusym_device_need(void)
{
    if (__atomic_load_n(&gpusym_current.tried, __ATOMIC_ACQUIRE)) {
        return gpusym_current.dev;
    }
    pthread_mutex_lock(&process.lock);
    if (!gpusym_current.tried && 0 != process.opens && process.config.local_rank >= 0) {
        select_device(&process.config);
    }
    const gpusym_device_t *dev = gpusym_current.tried ? gpusym_current.dev : gpusym_device();
    pthread_mutex_unlock(&process.lock);
    return dev;
}

bool gpusym_device_there(const char **why)
{
    bool there = false;

    pthread_mutex_lock(&process.lock);
    if (0 == process.opens) {
        *why = "the library is not open";
    } else { /* the simulator depends on the ranks, so that it is selected later */
        there = GPUSYM_DEVICE_SIM == process.config.device ||
                NULL != gpusym_device_select((gpusym_device_choice_t) process.config.device, why);
    }
    pthread_mutex_unlock(&process.lock);
    return there;
}

void gpusym_collectives_serve(bool serve)
{
    __atomic_store_n(&process.collectives, serve, __ATOMIC_RELAXED);
}

bool gpusym_collectives_served(void)
{
    return __atomic_load_n(&process.collectives, __ATOMIC_RELAXED);
}

const gpusym_device_t *gpusym_device_for_memory(void)
{
    return gpusym_collectives_served() ? gpusym_device_need() : NULL;
}

/* ---- the heap ---- */

/* Zeroes of a configuration are valid. */
static unsigned heap_slabs(void)
{
    const int most = process.config.heap_slabs;
    return most < 1 ? 1 : most < (int) GPUSYM_SLABS_MAX ? (unsigned) most : GPUSYM_SLABS_MAX;
}

/* With the lock held: a stream with its pinned memory for the first call, the kernels, the slab. */
static gpusym_lack_t heap_make(const gpusym_device_t *dev, gpusym_gpu_t *gpu)
{
    const int rank = process.config.world_rank;
    const char *why = "";
    char limits[GPUSYM_LIMITS_TEXT];
    gpusym_lane_t *lane;

    if (GPUSYM_SUCCESS != gpusym_lane_get(dev, gpu, &lane)) {
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD has no stream or no pinned memory: %s%s", rank, dev->error(),
                   gpusym_memory_limits(limits));
        return GPUSYM_LACK_MEMORY;
    }
    gpusym_lane_put(lane);
    if (GPUSYM_SUCCESS != dev->kernels_load(gpu, &why)) {
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD cannot run kernels: %s", rank, why);
        return GPUSYM_LACK_KERNELS;
    }
    gpusym_heap_t *heap = NULL;
    if (GPUSYM_SUCCESS !=
        gpusym_heap_create(dev, gpu, process.config.heap_size, heap_slabs(), process.config.heap_vmm, &heap)) {
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD has no heap of %lu bytes: %s", rank, process.config.heap_size,
                   dev->error());
        return GPUSYM_LACK_MEMORY;
    }
    __atomic_store_n(&process.heap, heap, __ATOMIC_RELEASE);
    return GPUSYM_LACK_NOTHING;
}

gpusym_lack_t gpusym_heap_need(gpusym_gpu_t *gpu)
{
    pthread_mutex_lock(&process.lock);
    if (!process.heap_tried) {
        process.heap_tried = true;
        process.heap_lack = heap_make(gpusym_current.dev, gpu);
        if (GPUSYM_LACK_NOTHING != process.heap_lack && gpusym_fd_lack()) {
            process.heap_lack = GPUSYM_LACK_DESCRIPTORS;
        }
    }
    gpusym_lack_t lack = process.heap_lack;
    if (GPUSYM_LACK_NOTHING == lack && gpusym_heap_gpu(process.heap) != gpu) {
        lack = GPUSYM_LACK_OTHER_GPU;
    }
    pthread_mutex_unlock(&process.lock);
    return lack;
}

gpusym_heap_t *gpusym_heap(void)
{
    return __atomic_load_n(&process.heap, __ATOMIC_ACQUIRE);
}

void gpusym_sweep(void)
{
    const gpusym_device_t *dev = __atomic_load_n(&gpusym_current.dev, __ATOMIC_ACQUIRE);

    if (NULL != dev) {
        (void) gpusym_reg_sweep(dev);
    }
    if (NULL != gpusym_heap()) {
        gpusym_heap_mc_sweep(gpusym_heap());
    }
}
