/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * This process's end of the net: see worker.h.
 */
#include "mca/coll/gpusym/team/worker.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "mca/coll/gpusym/conf/params.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/topo/links.h"

static struct {
    pthread_mutex_t lock;
    gpusym_worker_t *worker; /* NULL: not open */
    bool failed;             /* it could not be opened; said once */
    gpusym_place_t place;    /* of the GPU whose nearest devices it has; "": of none */
    /* Bytes of its memory that communicators have; that they were promised, and do not have yet. With its lock held. */
    uint64_t taken, promised;
} net = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The GPU that is current, or that will be if the program does as most: many programs call collectives, for the ranks
 * on their host say, before they choose one. The driver is not started for this. False: no GPU. */
static bool find_gpu(gpusym_place_t *place, const char **how)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const int ordinal = NULL != dev ? dev->gpu_current() : -1;
    gpusym_gpu_info_t gpu;
    *how = "which is current";
    if (ordinal >= 0 && GPUSYM_SUCCESS == dev->gpu_look(ordinal, &gpu)) {
        *place = gpu.place;
        return true;
    }
    *how = "by its rank on the host, since none is current yet";
    return NULL != dev && gpusym_topo_guess(coll_gpusym_params.local_rank, place);
}

/* The RDMA devices nearest to this process's GPU, if the parameter leaves them to us. */
static void find_nearest(gpusym_topo_nics_t *nics)
{
    const char *how = "";
    net.place = (gpusym_place_t){.number = -1};
    *nics = (gpusym_topo_nics_t){.why = "no GPU is current"};
    if (COLL_GPUSYM_NET_UCX == coll_gpusym_params.net_choice) {
        strcpy(nics->why, "coll_gpusym_net_devices is ucx");
    } else if (!gpusym_topo_has_nics()) {
        strcpy(nics->why, "this host has no RDMA device");
    } else if (find_gpu(&net.place, &how)) {
        gpusym_topo_nics(&net.place, nics);
    }
    if ('\0' != nics->devices[0]) {
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD, GPU %s (%s): the RDMA devices nearest to it: %s (%s)",
                   coll_gpusym_params.world_rank, net.place.pci, how, nics->devices, nics->why);
    } else {
        net.place.pci[0] = '\0';
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD leaves the choice of RDMA devices to UCX: %s",
                   coll_gpusym_params.world_rank, nics->why);
    }
}

/* The interfaces that lead to none of the other hosts, if the parameter leaves that to us; the caller frees the list.
 * NULL: none is known. */
static char *find_astray(coll_gpusym_peer_t *const *peer, uint32_t n)
{
    char *list = COLL_GPUSYM_NET_AUTO == coll_gpusym_params.net_choice ? coll_gpusym_peers_astray(peer, n) : NULL;
    if (NULL != list && '\0' != list[0]) {
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD does not use the network interfaces that lead to no other host: %s",
                   coll_gpusym_params.world_rank, list);
    }
    return list;
}

static void open_worker(coll_gpusym_peer_t *const *peer, uint32_t n)
{
    const char *why = NULL;
    char *astray = NULL;
    gpusym_topo_nics_t nics = {.devices = ""};
    gpusym_worker_params_t p = {.devices.nearest = nics.devices, .bytes = coll_gpusym_params.net_size};
    if (COLL_GPUSYM_NET_NAMED == coll_gpusym_params.net_choice) {
        p.devices.only = coll_gpusym_params.net_devices;
    } else if (COLL_GPUSYM_NET_NONE != coll_gpusym_params.net_choice) {
        find_nearest(&nics);
        p.devices.astray = astray = find_astray(peer, n);
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
    free(astray);
}

gpusym_worker_t *coll_gpusym_worker_open(coll_gpusym_peer_t *const *peer, uint32_t n)
{
    pthread_mutex_lock(&net.lock);
    if (NULL == net.worker && !net.failed) {
        open_worker(peer, n);
    }
    gpusym_worker_t *w = net.worker;
    pthread_mutex_unlock(&net.lock);
    return w;
}

gpusym_worker_t *coll_gpusym_worker(void)
{
    pthread_mutex_lock(&net.lock);
    gpusym_worker_t *w = net.worker;
    pthread_mutex_unlock(&net.lock);
    return w;
}

void coll_gpusym_worker_used_by(const gpusym_gpu_info_t *gpu)
{
    if ('\0' != net.place.pci[0] && 0 != strcasecmp(net.place.pci, gpu->place.pci)) {
        GPUSYM_LOG(2,
                   "rank %d of MPI_COMM_WORLD uses GPU %s, but its network devices were chosen for GPU %s, which was "
                   "expected in its first collective: make a GPU current before that",
                   coll_gpusym_params.world_rank, gpu->place.pci, net.place.pci);
        net.place.pci[0] = '\0'; /* once */
    }
}

void coll_gpusym_worker_fini(void)
{
    gpusym_worker_close(net.worker);
    net.worker = NULL;
    net.failed = false;
    net.place.pci[0] = '\0';
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
    if (bytes <= COLL_GPUSYM_ADDRESS_MAX) {
        memcpy(card->address, address, bytes <= card->room ? bytes : 0);
        card->bytes = (uint32_t) bytes;
    } else {
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD: its network address has %zu bytes, more than %u",
                   coll_gpusym_params.world_rank, bytes, COLL_GPUSYM_ADDRESS_MAX);
    }
}
