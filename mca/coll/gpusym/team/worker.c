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
    /* Bytes of its memory that communicators have; that they were promised, and do not have yet. With its lock held. */
    uint64_t taken, promised;
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
