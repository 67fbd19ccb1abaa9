/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank's part of the net: see part.h.
 *
 * Leaders exchange records over streams of their own; each process has one more stream to each process that it shares a
 * rail with. The two ends of a stream know it by numbers that both make of the random tokens of their cards.
 */
#include "mca/coll/gpusym/team/part.h"

#include <stdlib.h>

#include "mca/common/gpusym/log.h"

coll_gpusym_hosts_t *coll_gpusym_part_create(coll_gpusym_team_t *t, coll_gpusym_host_card_t *cards)
{
    coll_gpusym_hosts_t *h = calloc(1, sizeof *h);
    if (NULL == h) {
        free(cards);
        return NULL;
    }
    h->team = t;
    h->worker = coll_gpusym_worker();
    h->nranks = (uint32_t) ompi_comm_size(t->fallback->comm);
    h->rank = coll_gpusym_team_rank(t);
    h->nislands = t->islands.nislands;
    h->island = t->island;
    h->cards = cards;
    h->unreached = -1;
    h->peer = calloc(h->nranks, sizeof(gpusym_worker_peer_t *));
    h->leader = calloc(h->nislands, sizeof *h->leader);
    h->seq = &t->host.rc.seq;
    if (NULL == h->peer || NULL == h->leader || NULL == h->worker) {
        coll_gpusym_part_free(h);
        return NULL;
    }
    for (uint32_t i = 0; i < h->nislands; i++) {
        h->leader[i] = gpusym_island_member(&t->islands, i, 0);
    }
    return h;
}

void coll_gpusym_part_free(coll_gpusym_hosts_t *h)
{
    free(h->cards);
    free(h->peer);
    free(h->leader);
    free(h);
}

/* Of a stream from rank a to rank b: no other communicator has it, and whoever has not seen their cards does not know
 * it. */
static uint64_t token_of(const coll_gpusym_hosts_t *h, uint32_t a, uint32_t b)
{
    uint64_t x = coll_gpusym_card(h->cards, a)->token * 0x9e3779b97f4a7c15ull + coll_gpusym_card(h->cards, b)->token;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

int coll_gpusym_part_get(coll_gpusym_hosts_t *h, uint32_t rank, gpusym_rail_peer_t *peer)
{
    const coll_gpusym_team_t *t = h->team;
    if (NULL == h->peer[rank]) {
        const coll_gpusym_host_card_t *card = coll_gpusym_card(h->cards, rank);
        const bool inside = coll_gpusym_peers_near(t->all[rank], t->all[h->rank]);
        const int rc = gpusym_worker_peer_get(h->worker, card->address, card->bytes, inside, &h->peer[rank]);
        if (GPUSYM_SUCCESS != rc) {
            h->peer[rank] = NULL;
            h->unreached = (int) rank;
            GPUSYM_LOG(2, "rank %u: the network does not reach rank %u", h->rank, rank);
            return rc;
        }
    }
    *peer = (gpusym_rail_peer_t){.net = gpusym_worker_peer_net(h->peer[rank]),
                                 .token_in = token_of(h, rank, h->rank),
                                 .token_out = token_of(h, h->rank, rank),
                                 .owner = h->peer[rank]};
    return GPUSYM_SUCCESS;
}

void coll_gpusym_part_put(coll_gpusym_hosts_t *h)
{
    for (uint32_t r = 0; r < h->nranks; r++) {
        if (NULL != h->peer[r]) {
            gpusym_worker_peer_put(h->peer[r]);
        }
    }
}
