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

static struct {
    pthread_mutex_t lock;
    gpusym_worker_t *worker; /* NULL: not open */
    bool failed;             /* it could not be opened; said once */
    uint64_t taken;          /* bytes of its memory that communicators have; with the worker's lock held */
} net = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void open_worker(void)
{
    const char *why = NULL;
    gpusym_worker_params_t p = {.devices = coll_gpusym_params.net_devices, .bytes = coll_gpusym_params.net_size};
    if (0 == strcmp(p.devices, "none")) {
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
    net.taken = 0;
}

bool coll_gpusym_worker_take(uint64_t bytes)
{
    if (net.taken + bytes > gpusym_worker_bytes(net.worker)) {
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
