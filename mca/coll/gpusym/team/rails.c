/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * This rank's ends of rails: see rails.h.
 */
#include "mca/coll/gpusym/team/rails.h"

#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/part.h"
#include "mca/common/gpusym/exec/copier.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/p2p/send_desc.h"
#include "tuning/resident.h"
#include "tuning/tree.h"

/* ---- opening ---- */

/* The rank at a place of a rail between the islands, or among all ranks. */
static uint32_t rank_at(const coll_gpusym_team_t *t, uint32_t rail, uint32_t pos)
{
    const uint32_t rails = coll_gpusym_hosts_rails(t);
    if (rail == rails) {
        return pos;
    }
    return gpusym_island_member(&t->islands, pos, gpusym_rail_owner(gpusym_island_size(&t->islands, pos), rail, rails));
}

static int get_between(void *arg, uint32_t pos, gpusym_rail_peer_t *peer)
{
    const coll_gpusym_place_t *place = arg;
    return coll_gpusym_part_get(place->hosts, rank_at(place->hosts->team, place->rail, pos), peer);
}

/* Bytes of rings of a rail between the islands, with pieces of so many bytes: on paths those to two neighbours;
 * directly to all, of islands that are few enough for that, else to those beside it in a tree. */
static uint64_t ring_bytes(const coll_gpusym_team_t *t, uint64_t piece)
{
    const uint32_t n = t->islands.nislands;
    const uint64_t paths = n > 2 ? 2 : 1,
                   direct = n <= GPUSYM_RAIL_DIRECT_MAX ? n - 1 : 1 + gpusym_tuning_tree_degree(n);
    return GPUSYM_RAIL_PIECES * piece * (paths * GPUSYM_RAIL_CHANNELS) + direct * (GPUSYM_RAIL_PIECES * piece / 4);
}

/* Bytes of rings, and of send buffers, of this rank's rails between the islands. */
static uint64_t rail_bytes(const coll_gpusym_team_t *t, uint64_t piece)
{
    uint32_t first, end;
    coll_gpusym_hosts_own(t, &first, &end);
    return (end - first) * (GPUSYM_RAIL_SEND_BYTES(piece) + ring_bytes(t, piece));
}

static uint64_t direct_bytes(const coll_gpusym_team_t *t, uint64_t piece)
{
    return ((uint64_t) ompi_comm_size(t->fallback->comm) - 1) * (GPUSYM_RAIL_PIECES * piece / 4);
}

/* The shortest pieces, and of the rail among all ranks the part of the memory that its rings take at most with longer
 * ones: with 256 ranks pieces are a quarter as long as with 64. */
#define PIECE_MIN 4096u
#define ALL_PART 4u

/* The pieces of the rail among all ranks, the same on all of them, where the other rails have such pieces. */
static uint32_t piece_among_all(const coll_gpusym_team_t *t, uint32_t piece)
{
    while (piece >= 2 * PIECE_MIN && direct_bytes(t, piece) > coll_gpusym_params.net_size / ALL_PART) {
        piece = piece / 2 / 1024 * 1024;
    }
    return piece;
}

static uint64_t all_bytes(const coll_gpusym_team_t *t, uint32_t piece)
{
    return rail_bytes(t, piece) + direct_bytes(t, piece_among_all(t, piece));
}

uint32_t coll_gpusym_hosts_propose(const coll_gpusym_team_t *t)
{
    gpusym_worker_t *w = coll_gpusym_worker_open(t->all, (uint32_t) ompi_comm_size(t->fallback->comm));
    if (NULL == w) {
        return 0;
    }
    uint32_t piece = gpusym_worker_piece_bytes(w);
    gpusym_worker_enter_wait(w);
    const uint64_t share = coll_gpusym_worker_share();
    gpusym_worker_leave(w);
    while (!coll_gpusym_params.reproducible && piece >= 2 * PIECE_MIN && all_bytes(t, piece) > share) {
        piece /= 2;
    }
    return piece;
}

void coll_gpusym_hosts_settle_pieces(coll_gpusym_team_t *t)
{
    coll_gpusym_hosts_t *h = t->hosts;
    char name[GPUSYM_COMM_LABEL_MAX];
    h->piece = gpusym_worker_piece_bytes(h->worker);
    for (uint32_t r = 0; r < h->nranks; r++) {
        const uint32_t piece = coll_gpusym_card(h->cards, r)->piece;
        h->piece = piece < h->piece ? piece : h->piece;
    }
    h->promised = all_bytes(t, h->piece);
    coll_gpusym_worker_promise(h->promised);
    GPUSYM_LOG(2, "%s: rank %u: pieces of %u bytes between islands, %lu bytes in all",
               gpusym_comm_label(t->fallback->comm, name, sizeof name), h->rank, h->piece, (unsigned long) h->promised);
}

void coll_gpusym_hosts_forgo(coll_gpusym_hosts_t *h)
{
    coll_gpusym_worker_forgo(h->promised);
    h->promised = 0;
}

/* Takes part of the worker's memory. */
static bool take_memory(coll_gpusym_hosts_t *h, uint64_t bytes)
{
    const bool taken = coll_gpusym_worker_take(bytes);
    h->taken += taken ? bytes : 0;
    return taken;
}

/* Whether the copier of this rank's GPU, which it gets here, may serve the rails. */
static bool get_copier(coll_gpusym_team_t *t)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const int set = coll_gpusym_params.linger;
    const uint64_t us = set < 0 ? gpusym_tuning_linger_us(dev->simulated) : (uint64_t) set;
    gpusym_gpu_info_t info;
    dev->gpu_info(t->host.gpu, &info);
    if (0 == us || t->host.led || (gpusym_send_descs_gpu_shared(info.uuid) && !info.mps)) {
        return false;
    }
    gpusym_copier_linger(dev, t->host.gpu, 1000 * us, set < 0);
    return true;
}

static int open_rail(coll_gpusym_team_t *t, uint32_t rail, char *host, char *device, char *send)
{
    coll_gpusym_hosts_t *h = t->hosts;
    const uint32_t rails = coll_gpusym_hosts_rails(t);
    h->place[rail] = (coll_gpusym_place_t){h, rail};
    const gpusym_rail_params_t p = {.dev = gpusym_current.dev,
                                    .gpu = t->host.gpu,
                                    .copier = get_copier(t),
                                    .streams = gpusym_worker_streams(h->worker),
                                    .host = host,
                                    .device = device,
                                    .send = send,
                                    .piece_bytes = rail == rails ? piece_among_all(t, h->piece) : h->piece,
                                    .n = rail == rails ? h->nranks : h->nislands,
                                    .pos = rail == rails ? h->rank : h->island,
                                    .first_stream = (uint16_t) (rail * GPUSYM_RAIL_STREAMS),
                                    .peer = get_between,
                                    .arg = &h->place[rail]};
    const int rc = gpusym_rail_open(&p, &h->rail[rail]);
    if (GPUSYM_SUCCESS != rc) {
        h->rail[rail] = NULL;
    }
    return rc;
}

unsigned coll_gpusym_hosts_open_rails(coll_gpusym_team_t *t)
{
    coll_gpusym_hosts_t *h = t->hosts;
    const uint32_t rails = coll_gpusym_hosts_rails(t);
    const uint64_t each = GPUSYM_RAIL_SEND_BYTES(h->piece);
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_gpu_info_t gpu;
    char *host, *device;
    uint32_t first, end;
    coll_gpusym_hosts_own(t, &first, &end);
    const uint64_t own = end - first;
    coll_gpusym_hosts_forgo(h);
    if (GPUSYM_SUCCESS != gpusym_worker_map(h->worker, dev, t->host.gpu, &host, &device)) {
        return 0;
    }
    dev->gpu_info(t->host.gpu, &gpu);
    coll_gpusym_worker_used_by(&gpu);
    if (!take_memory(h, rail_bytes(t, h->piece)) ||
        GPUSYM_SUCCESS != gpusym_worker_alloc(h->worker, own * each, &h->send)) {
        return COLL_GPUSYM_HOSTS_PINNED;
    }
    h->send_bytes = own * each;
    for (uint32_t r = first; r < end; r++) {
        if (GPUSYM_SUCCESS != open_rail(t, r, host, device, h->send + (r - first) * each)) {
            return COLL_GPUSYM_HOSTS_PINNED;
        }
    }
    /* The rail among all ranks sends from the same memory: a call uses the one or the others. */
    return COLL_GPUSYM_HOSTS_PINNED | COLL_GPUSYM_HOSTS_RAILS |
           (take_memory(h, direct_bytes(t, piece_among_all(t, h->piece))) &&
                    GPUSYM_SUCCESS == open_rail(t, rails, host, device, h->send)
                ? COLL_GPUSYM_HOSTS_ALL
                : 0u);
}

/* ---- closing ---- */

bool coll_gpusym_hosts_close_rails(coll_gpusym_hosts_t *h)
{
    bool closed = true;
    for (uint32_t r = 0; r <= GPUSYM_TEAM_MAX; r++) {
        if (NULL != h->rail[r] && gpusym_rail_close(h->rail[r])) {
            h->rail[r] = NULL;
        }
        closed = closed && NULL == h->rail[r];
    }
    if (!closed) {
        return false;
    }
    if (NULL != h->send) {
        gpusym_worker_free(h->worker, h->send, h->send_bytes);
        h->send = NULL;
    }
    coll_gpusym_worker_give(h->taken);
    h->taken = 0;
    return true;
}

void coll_gpusym_hosts_free_rails(coll_gpusym_hosts_t *h)
{
    for (uint32_t r = 0; r <= GPUSYM_TEAM_MAX; r++) {
        gpusym_rail_free(h->rail[r]);
    }
}

bool coll_gpusym_hosts_stop(const coll_gpusym_team_t *t)
{
    const coll_gpusym_hosts_t *h = t->hosts;
    bool idle = true;
    if (!gpusym_worker_enter(h->worker)) {
        return false;
    }
    (void) coll_gpusym_hosts_close_rails(t->hosts);
    for (uint32_t r = 0; r <= GPUSYM_TEAM_MAX; r++) {
        idle = idle && (NULL == h->rail[r] || gpusym_rail_idle(h->rail[r]));
    }
    gpusym_worker_leave(h->worker);
    return idle;
}

/* ---- what calls use ---- */

gpusym_rail_t *coll_gpusym_hosts_rail(const coll_gpusym_team_t *t, uint32_t rail)
{
    return t->hosts->rail[rail];
}

uint32_t coll_gpusym_hosts_piece(const coll_gpusym_team_t *t)
{
    return t->hosts->piece;
}

bool coll_gpusym_hosts_quiet(const coll_gpusym_team_t *t)
{
    const coll_gpusym_hosts_t *h = t->hosts;
    gpusym_rail_t *all = h->rail[coll_gpusym_hosts_rails(t)]; /* sends from the same memory */
    bool quiet = NULL == all || gpusym_rail_quiet(all);
    uint32_t first, end;
    coll_gpusym_hosts_own(t, &first, &end);
    for (uint32_t r = first; r < end; r++) {
        quiet = quiet && gpusym_rail_quiet(h->rail[r]);
    }
    return quiet;
}

bool coll_gpusym_hosts_lock(const coll_gpusym_team_t *t)
{
    return gpusym_worker_enter(t->hosts->worker);
}

void coll_gpusym_hosts_unlock(const coll_gpusym_team_t *t)
{
    gpusym_worker_leave(t->hosts->worker);
}
