/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * This process's end of the net: see worker.h.
 */
#include "mca/coll/gpusym/team/worker.h"

#include <pthread.h>
#include <string.h>

#include "mca/coll/gpusym/conf/params.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/topo/links.h"

static struct {
    pthread_mutex_t lock;
    gpusym_worker_t *worker; /* NULL: not open */
    bool failed;             /* it could not be opened; said once */
    /* Bytes of its memory that communicators have; that they were promised, and do not have yet. With its lock held. */
    uint64_t taken, promised;
} net = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Looks at the GPU that is current, or the only one that there is; no context is made. False: it is not known yet. */
static bool find_gpu(gpusym_gpu_info_t *gpu)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    int count = 0, ordinal = NULL != dev ? dev->gpu_current() : -1;
    if (NULL != dev && ordinal < 0 && GPUSYM_SUCCESS == dev->gpu_count(&count) && 1 == count) {
        ordinal = 0;
    }
    return ordinal >= 0 && GPUSYM_SUCCESS == dev->gpu_look(ordinal, gpu);
}

/* The RDMA devices nearest to this process's GPU, if the parameter leaves them to us. */
static void find_nearest(gpusym_topo_nics_t *nics)
{
    gpusym_gpu_info_t gpu;
    *nics = (gpusym_topo_nics_t){.why = "this process has several GPUs, of which none is current, or none"};
    if (COLL_GPUSYM_NET_UCX == coll_gpusym_params.net_choice) {
        strcpy(nics->why, "coll_gpusym_net_devices is ucx");
    } else if (find_gpu(&gpu)) {
        gpusym_topo_nics(&gpu.place, nics);
    }
    if ('\0' != nics->devices[0]) {
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD, GPU %s: the RDMA devices nearest to it: %s (%s)",
                   coll_gpusym_params.world_rank, gpu.where, nics->devices, nics->why);
    } else {
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD leaves the choice of RDMA devices to UCX: %s",
                   coll_gpusym_params.world_rank, nics->why);
    }
}

static void open_worker(void)
{
    const char *why = NULL;
    gpusym_topo_nics_t nics = {.devices = ""};
    gpusym_worker_params_t p = {.nearest = nics.devices, .bytes = coll_gpusym_params.net_size};
    if (COLL_GPUSYM_NET_NAMED == coll_gpusym_params.net_choice) {
        p.devices = coll_gpusym_params.net_devices;
    } else if (COLL_GPUSYM_NET_NONE != coll_gpusym_params.net_choice) {
        find_nearest(&nics);
    }
    if (COLL_GPUSYM_NET_NONE == coll_gpusym_params.net_choice) {
        why = "coll_gpusym_net_devices is none";
    } else {
        p.transport = gpusym_transport_ucx(&why);
    }
    if (NULL == p.transport || GPUSYM_SUCCESS != gpusym_worker_open(&p, &net.worker, &why)) {
        net.worker = NULL;
        net.failed = true;
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD has no network between islands: %s", coll_gpusym_params.world_rank,
                   why);
    }
}

gpusym_worker_t *coll_gpusym_worker(void)
{
    pthread_mutex_lock(&net.lock);
    if (NULL == net.worker && !net.failed) {
        open_worker();
    }
    gpusym_worker_t *w = net.worker;
    pthread_mutex_unlock(&net.lock);
    return w;
}

void coll_gpusym_worker_fini(void)
{
    gpusym_worker_close(net.worker);
    net.worker = NULL;
    net.failed = false;
    net.taken = net.promised = 0;
}

/* Records take the rest: a page of a leader for each other one. */
static uint64_t left(void)
{
    const uint64_t bytes = gpusym_worker_bytes(net.worker), most = bytes - bytes / 16;
    return most > net.taken ? most - net.taken : 0;
}

uint64_t coll_gpusym_worker_share(void)
{
    const uint64_t all = left(), rest = all > net.promised ? all - net.promised : 0;
    const uint64_t parts = 0 == net.taken + net.promised ? 2 : 4;
    return (rest > all / 2 ? rest : all / 2) / parts;
}

void coll_gpusym_worker_promise(uint64_t bytes)
{
    net.promised += bytes;
}

void coll_gpusym_worker_forgo(uint64_t bytes)
{
    net.promised -= bytes;
}

bool coll_gpusym_worker_take(uint64_t bytes)
{
    if (bytes > left()) {
        return false;
    }
    net.taken += bytes;
    return true;
}

void coll_gpusym_worker_give(uint64_t bytes)
{
    net.taken -= bytes;
}

void coll_gpusym_worker_describe(coll_gpusym_host_card_t *card)
{
    gpusym_worker_t *w = coll_gpusym_worker();
    size_t bytes;
    if (NULL == w || !gpusym_random(&card->token, sizeof card->token)) {
        return;
    }
    const void *address = gpusym_worker_address(w, &bytes);
    if (bytes <= sizeof card->address) {
        memcpy(card->address, address, bytes);
        card->bytes = (uint32_t) bytes;
    } else {
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD: its network address has %zu bytes, more than %u",
                   coll_gpusym_params.world_rank, bytes, COLL_GPUSYM_ADDRESS_MAX);
    }
}
