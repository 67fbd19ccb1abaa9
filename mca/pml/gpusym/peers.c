/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which processes exchange messages of device memory directly.
 */
#include "mca/pml/gpusym/peers.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/shm/host.h"
#include "opal/util/proc.h"

#include "config.h"

/* The modex key. What stands under it begins with the version, for ever. */
#define KEY "gpusym.p2p"

/* What a process publishes: plain bytes. */
typedef struct {
    char version[32];
    gpusym_host_t host;
    gpusym_pages_id_t pages;
    uint32_t slot;
    uint32_t pad;
} card_t;

pml_gpusym_peer_t **pml_gpusym_peers;
uint32_t pml_gpusym_npeers;
static const uint32_t none_into_gpu;
const uint32_t *pml_gpusym_any_into_gpu = &none_into_gpu;

static card_t my_card;
static bool published;

void pml_gpusym_peers_publish(void)
{
    memset(&my_card, 0, sizeof my_card);
    strncpy(my_card.version, GPUSYM_VERSION, sizeof my_card.version - 1);
    gpusym_host_self(&my_card.host);
    my_card.slot = (uint32_t) opal_process_info.my_local_rank;
    int rc = gpusym_pages_open(&my_card.pages);
    if (GPUSYM_SUCCESS == rc) {
        rc = gpusym_send_descs_open(my_card.slot);
    }
    published = GPUSYM_SUCCESS == rc && gpusym_modex_put(KEY, &my_card, sizeof my_card, true);
    if (!published) {
        GPUSYM_LOG(2, "point-to-point: rank %u of MPI_COMM_WORLD cannot share pages: its messages are staged",
                   (unsigned) OPAL_PROC_MY_NAME.vpid);
    }
}

/* Attaches a process of this job that is on this host; NULL, with a verbose line: ordinary messages. */
static pml_gpusym_peer_t *attach_peer(uint32_t vpid)
{
    const opal_process_name_t name = {.jobid = OPAL_PROC_MY_NAME.jobid, .vpid = vpid};
    card_t card;
    gpusym_peer_t *pages;
    const char *why = "it has not published itself";

    const size_t bytes = gpusym_modex_get(KEY, &name, &card, sizeof card);
    if (bytes >= sizeof card.version && 0 != memcmp(card.version, my_card.version, sizeof card.version)) {
        why = "it has a different version of gpusym";
    } else if (sizeof card == bytes && 0 != memcmp(&card.host, &my_card.host, sizeof card.host)) {
        why = "it is in a different PID namespace";
    } else if (sizeof card == bytes) {
        why = "its pages cannot be mapped";
        pml_gpusym_peer_t *peer = malloc(sizeof *peer);
        if (NULL != peer && GPUSYM_SUCCESS == gpusym_pages_peer(&card.pages, &pages) &&
            GPUSYM_SUCCESS == gpusym_send_descs_attach(pages, card.slot)) {
            *peer = (pml_gpusym_peer_t){.pages = pages, .slot = card.slot};
            return peer;
        }
        free(peer);
    }
    GPUSYM_LOG(2, "point-to-point: messages with rank %u of MPI_COMM_WORLD are staged: %s", (unsigned) vpid, why);
    return NULL;
}

void pml_gpusym_peers_attach(void)
{
    uint32_t vpids[GPUSYM_SEND_DESC_SLOTS], last = 0;
    if (!published || NULL != pml_gpusym_peers) {
        return;
    }
    const unsigned n = gpusym_local_peers(vpids, GPUSYM_SEND_DESC_SLOTS);
    for (unsigned i = 0; i < n; i++) {
        last = vpids[i] > last ? vpids[i] : last;
    }
    pml_gpusym_peers = 0 == n ? NULL : calloc((size_t) last + 1, sizeof *pml_gpusym_peers);
    if (NULL == pml_gpusym_peers) {
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        pml_gpusym_peers[vpids[i]] = attach_peer(vpids[i]);
    }
    pml_gpusym_npeers = last + 1;
    const uint32_t *any = gpusym_send_descs_any_into_gpu();
    pml_gpusym_any_into_gpu = NULL != any ? any : &none_into_gpu;
}

/* A peer that cannot map our pages never attaches us. */
#define ATTACH_WAIT 1000000000u /* ns */

bool pml_gpusym_peer_decide(pml_gpusym_peer_t *peer)
{
    if (OPAL_UNLIKELY(!__atomic_load_n(&peer->waited, __ATOMIC_ACQUIRE))) {
        const uint64_t start = gpusym_now_ns();
        while (gpusym_modex_is_late() && !gpusym_send_descs_attached_by(peer->slot) &&
               gpusym_now_ns() - start < ATTACH_WAIT && gpusym_peer_alive(peer->pages)) {
            sched_yield(); /* it attaches us without our help */
        }
        __atomic_store_n(&peer->waited, true, __ATOMIC_RELEASE);
    }
    return gpusym_send_descs_decide(peer->slot);
}

void pml_gpusym_peers_close(void)
{
    for (uint32_t i = 0; i < pml_gpusym_npeers; i++) {
        free(pml_gpusym_peers[i]);
    }
    free(pml_gpusym_peers);
    pml_gpusym_peers = NULL;
    pml_gpusym_npeers = 0;
    pml_gpusym_any_into_gpu = &none_into_gpu;
    gpusym_send_descs_close();
    published = false;
}
