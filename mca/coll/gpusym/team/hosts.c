/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What ranks of several islands share: see hosts.h.
 *
 * Leaders exchange records over streams of their own; each process has one more stream to each process that it shares a
 * rail with. The two ends of a stream know it by numbers that both make of the random tokens of their cards.
 */
#include "mca/coll/gpusym/team/hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/rail/worker.h"

/* ---- the process's end of the net ---- */

static struct {
    pthread_mutex_t lock;
    gpusym_worker_t *worker; /* NULL: not open */
    bool failed;             /* it could not be opened; said once */
    uint64_t reserved;       /* bytes of its memory that communicators have taken; with the worker's lock held */
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

/* The process's worker; NULL: it has none. Any thread. */
static gpusym_worker_t *need_worker(void)
{
    pthread_mutex_lock(&net.lock);
    if (NULL == net.worker && !net.failed) {
        open_worker();
    }
    gpusym_worker_t *w = net.worker;
    pthread_mutex_unlock(&net.lock);
    return w;
}

/* ---- a communicator's part of it ---- */

typedef struct coll_gpusym_hosts hosts_t;

/* A rail, for gpusym_rail_params_t. */
typedef struct {
    hosts_t *hosts;
    uint32_t rail;
} place_t;

struct coll_gpusym_hosts {
    coll_gpusym_team_t *team; /* NULL: it was freed, and the rest is used up or answers still */
    gpusym_worker_t *worker;  /* the process's */
    uint32_t nranks, rank;    /* of the communicator */
    uint32_t nislands, island;
    coll_gpusym_host_card_t *card; /* [nranks]; owned */
    gpusym_worker_peer_t **peer;   /* [nranks]; NULL: not open; owned */
    uint32_t *leader;              /* [nislands] ranks; owned */

    /* Of a leader. */
    gpusym_records_t *records;
    gpusym_worker_task_t task; /* added: of a leader, or where something is left to be closed */
    bool has_task;
    bool used; /* closed: all ranks had opened it, so that leaders leave each other */
    /* What the helper thread answers by: the calls that this rank has posted, and the last of them that was not on host
     * memory. */
    const uint64_t *seq; /* in the roll-call; of a communicator that was freed: last_seq */
    uint64_t last_seq;
    uint64_t entered;
    uint64_t posted; /* the call whose record this leader has posted last; 0: none */
    bool watches;    /* a call has been native: leaders watch each other */
    uint64_t blamed; /* 1 + a rank that is lost, for which this island gives up; 0: none is known */

    /* Rails. */
    uint64_t reserved; /* bytes of the worker's memory */
    char *send;        /* send buffers of the own rails */
    uint64_t send_bytes;
    gpusym_rail_t *rail[GPUSYM_TEAM_MAX + 1]; /* at coll_gpusym_hosts_rails the one among all ranks; NULL: not owned */
    place_t place[GPUSYM_TEAM_MAX + 1];
    hosts_t *next; /* in `closed` */
};

/* Communicators that were freed, whose leaders still answer. With the worker's lock held. */
static hosts_t *closed;

/* Of a stream from rank a to rank b: no other communicator has it, and whoever has not seen their cards does not know
 * it. */
static uint64_t token_of(const hosts_t *h, uint32_t a, uint32_t b)
{
    uint64_t x = h->card[a].token * 0x9e3779b97f4a7c15ull + h->card[b].token;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Gets a rank for a rail or the records. With the worker's lock held. */
static int get_rank(hosts_t *h, uint32_t rank, gpusym_rail_peer_t *peer)
{
    const coll_gpusym_team_t *t = h->team;
    if (NULL == h->peer[rank]) {
        const coll_gpusym_host_card_t *card = &h->card[rank];
        const bool inside = coll_gpusym_peers_near(t->all[rank], t->all[h->rank]);
        const int rc = gpusym_worker_peer_get(h->worker, card->address, card->bytes, inside, &h->peer[rank]);
        if (GPUSYM_SUCCESS != rc) {
            h->peer[rank] = NULL;
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

/* ---- set-up ---- */

void coll_gpusym_hosts_describe(coll_gpusym_host_card_t *card)
{
    gpusym_worker_t *w = need_worker();
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

/* Streams of rails have numbers below. */
#define RECORDS_STREAM UINT16_MAX

static int get_leader(void *arg, uint32_t pos, gpusym_rail_peer_t *peer)
{
    hosts_t *h = arg;
    return get_rank(h, h->leader[pos], peer);
}

/* For the helper thread, or a thread of MPI that polls. What it reads belongs to the thread that makes the
 * communicator's calls, which writes `entered` before the roll-call's number. */
static int answer(void *arg, uint64_t call)
{
    const hosts_t *h = arg;
    const uint64_t seq = __atomic_load_n(h->seq, __ATOMIC_ACQUIRE);
    return seq >= call && __atomic_load_n(&h->entered, __ATOMIC_RELAXED) != call;
}

/* ---- records ---- */

/* Kinds of records. 0: the helper thread has answered that the island is on the host. */
enum { RECORD_HOST, RECORD_NATIVE, RECORD_STAGED /* + enum coll_gpusym_reason */ };
/* Flags of a native one. */
enum { RECORD_UNSET = 1 };

/* The word in a leader's line: call << 24 | rank of the communicator << 8 | kind. */
static uint64_t pack_verdict(uint64_t seq, const coll_gpusym_verdict_t *v)
{
    return seq << 24 | (uint64_t) v->rank << 8 | v->kind;
}
_Static_assert(COLL_GPUSYM_RANKS_MAX <= 1 << 16, "a rank fits in its bits");
_Static_assert(COLL_GPUSYM_VERDICT_STAGED + COLL_GPUSYM_REASONS <= 256, "a kind fits in its bits");

/* With all islands' records. */
static coll_gpusym_verdict_t judge_records(const hosts_t *h, const gpusym_record_t *all, bool exact)
{
    const gpusym_record_t *mine = &all[h->island];
    uint64_t balance = 0, most = 0;
    bool unset = false;
    for (uint32_t i = 0; i < h->nislands; i++) {
        if (RECORD_NATIVE != all[i].kind) {
            const unsigned reason =
                RECORD_HOST == all[i].kind ? (unsigned) COLL_GPUSYM_R_MIXED : (unsigned) all[i].kind - RECORD_STAGED;
            return (coll_gpusym_verdict_t){COLL_GPUSYM_VERDICT_STAGED + reason % COLL_GPUSYM_REASONS, 0};
        }
        balance += all[i].balance;
        most = all[i].bytes > most ? all[i].bytes : most;
        unset = unset || 0 != (all[i].flags & RECORD_UNSET);
    }
    for (uint32_t i = 0; i < h->nislands; i++) {
        if (all[i].what != mine->what || all[i].hash != mine->hash || (exact && all[i].bytes != mine->bytes)) {
            return (coll_gpusym_verdict_t){COLL_GPUSYM_VERDICT_MISMATCH, h->leader[i]};
        }
    }
    if (0 != balance) { /* not all that is sent is taken: the fallback tells who takes less */
        return (coll_gpusym_verdict_t){COLL_GPUSYM_VERDICT_STAGED + COLL_GPUSYM_R_BETWEEN, 0};
    }
    if (0 == most) {
        return (coll_gpusym_verdict_t){COLL_GPUSYM_VERDICT_EMPTY, 0};
    }
    return (coll_gpusym_verdict_t){unset ? COLL_GPUSYM_VERDICT_UNSET : COLL_GPUSYM_VERDICT_NATIVE, 0};
}

/* ---- the watch ---- */

/* With the lock held: hears the other islands, and tells them that this one is there, from the first native call on:
 * all leaders see at about the same time that it is. */
static void watch_islands(hosts_t *h)
{
    const gpusym_record_t *all;
    if (!h->watches && 0 != h->posted && 1 == gpusym_records_read(h->records, h->posted, &all)) {
        h->watches = COLL_GPUSYM_VERDICT_NATIVE == judge_records(h, all, false).kind;
    }
    if (h->watches && coll_gpusym_params.timeout > 0) {
        gpusym_records_watch(h->records, gpusym_now_ns(), (uint64_t) (coll_gpusym_params.timeout * 1e9));
    }
}

/* With the lock held, on a leader: a rank that its records tell to be lost, or whose island gave up; -1: none. */
static int find_lost_island(const hosts_t *h, const char **why)
{
    uint32_t island;
    uint64_t blamed;
    if (gpusym_records_silent(h->records, &island)) {
        *why = "nothing has come from its host for as long as coll_gpusym_timeout allows";
        return (int) h->leader[island];
    }
    if (!gpusym_records_aborted(h->records, &island, &blamed)) {
        return -1;
    }
    if (blamed > 0 && blamed <= h->nranks) {
        *why = "so says another host";
        return (int) blamed - 1;
    }
    *why = "its island gave up";
    return (int) h->leader[island];
}

/* Notes for this rank's island, which reads it once it gives up, that a rank is lost. */
static void blame(hosts_t *h, uint32_t rank)
{
    const gpusym_rollcall_t *rc = &h->team->host.rc;
    const coll_gpusym_verdict_t v = {COLL_GPUSYM_VERDICT_ABORTED, rank};
    h->blamed = (uint64_t) rank + 1;
    __atomic_store_n(&rc->line[rc->rank]->verdict, pack_verdict(0, &v), __ATOMIC_RELEASE);
}

int coll_gpusym_hosts_blamed(const coll_gpusym_team_t *t, int member)
{
    const uint64_t word = __atomic_load_n(&t->host.rc.line[member]->verdict, __ATOMIC_ACQUIRE);
    const uint64_t rank = word >> 8;
    return COLL_GPUSYM_VERDICT_ABORTED == (word & 0xff) && rank < t->hosts->nranks ? (int) rank : -1;
}

/* With the lock held, on a leader, which may do something else: a member gave up, or the islands are no longer all
 * there. The others get to know it. */
static void pass_on(hosts_t *h)
{
    coll_gpusym_team_t *t = h->team;
    const int quitter = gpusym_rollcall_quitter(&t->host.rc);
    const char *why;
    const int rank = quitter < 0 ? find_lost_island(h, &why) : coll_gpusym_hosts_blamed(t, quitter);
    if (rank >= 0 && 0 == h->blamed) {
        blame(h, (uint32_t) rank);
    }
    if (rank >= 0 || quitter >= 0) {
        gpusym_records_abort(h->records, h->blamed);
        gpusym_line_abort(t->host.rc.line[t->host.rank], 0);
    }
}

/* ---- closing ---- */

static void free_hosts(hosts_t *h)
{
    if (NULL != h) {
        free(h->card);
        free(h->peer);
        free(h->leader);
        free(h);
    }
}

static void close_rails(hosts_t *h, bool *left)
{
    for (uint32_t r = 0; r <= GPUSYM_TEAM_MAX; r++) {
        if (NULL != h->rail[r] && gpusym_rail_close(h->rail[r])) {
            h->rail[r] = NULL;
        }
        *left = *left || NULL != h->rail[r];
    }
    if (*left) {
        return;
    }
    if (NULL != h->send) {
        gpusym_worker_free(h->worker, h->send, h->send_bytes);
        h->send = NULL;
    }
    net.reserved -= h->reserved;
    h->reserved = 0;
}

/* Of a communicator that was freed: closes what can be. Whether that is all; it is freed then. */
static bool end_hosts(hosts_t *h)
{
    bool left = false;
    close_rails(h, &left);
    if (NULL != h->records && (!h->used || gpusym_records_left(h->records)) && gpusym_records_close(h->records)) {
        h->records = NULL;
    }
    if (left || NULL != h->records) {
        return false;
    }
    if (h->has_task) {
        gpusym_worker_remove_task(h->worker, &h->task);
    }
    for (uint32_t r = 0; r < h->nranks; r++) {
        if (NULL != h->peer[r]) {
            gpusym_worker_peer_put(h->peer[r]);
        }
    }
    for (hosts_t **at = &closed; NULL != *at; at = &(*at)->next) {
        if (*at == h) {
            *at = h->next;
            break;
        }
    }
    free_hosts(h);
    return true;
}

/* Of the helper thread. */
static bool poll_hosts(void *arg)
{
    hosts_t *h = arg;
    int rc;
    const bool open = NULL != h->records && gpusym_records_poll(h->records, &rc);
    if (NULL != h->records && NULL != h->team) {
        watch_islands(h);
        pass_on(h);
    }
    return NULL == h->team ? !end_hosts(h) || open : open;
}

/* Ends the communicators that were freed, as far as the others have left them: a program that makes many would have
 * many of them. With the lock held. */
static void sweep_closed(void)
{
    hosts_t *next;
    int rc;
    for (hosts_t *h = closed; NULL != h; h = next) {
        next = h->next;
        if (NULL != h->records) {
            (void) gpusym_records_poll(h->records, &rc);
        }
        (void) end_hosts(h);
    }
}

static int add_task(hosts_t *h)
{
    int rc = GPUSYM_SUCCESS;
    if (!h->has_task) {
        h->task = (gpusym_worker_task_t){.poll = poll_hosts, .arg = h};
        rc = gpusym_worker_add_task(h->worker, &h->task);
        h->has_task = GPUSYM_SUCCESS == rc;
    }
    return rc;
}

void coll_gpusym_hosts_close(coll_gpusym_team_t *t, bool used)
{
    hosts_t *h = t->hosts;
    if (NULL == h) {
        return;
    }
    gpusym_worker_t *w = h->worker;
    gpusym_worker_enter_wait(w); /* the helper thread reads what follows */
    t->hosts = NULL;
    h->last_seq = t->host.rc.seq;
    h->seq = &h->last_seq;
    h->team = NULL;
    h->used = used;
    if (NULL != h->records && used) {
        gpusym_records_leave(h->records);
    }
    h->next = closed;
    closed = h;
    if (!end_hosts(h)) {
        (void) add_task(h); /* without a thread, the next communicator of several islands closes it */
    }
    gpusym_worker_leave(w);
}

void coll_gpusym_hosts_fini(void)
{
    gpusym_worker_close(net.worker);
    while (NULL != closed) {
        hosts_t *h = closed;
        closed = h->next;
        for (uint32_t r = 0; r <= GPUSYM_TEAM_MAX; r++) {
            gpusym_rail_free(h->rail[r]);
        }
        gpusym_records_free(h->records);
        free_hosts(h);
    }
    net.worker = NULL;
    net.failed = false;
    net.reserved = 0;
}

/* ---- set-up: agreement ---- */

static int open_records(hosts_t *h)
{
    const gpusym_records_params_t p = {.streams = gpusym_worker_streams(h->worker),
                                       .n = h->nislands,
                                       .pos = h->island,
                                       .stream = RECORDS_STREAM,
                                       .peer = get_leader,
                                       .answer = answer,
                                       .arg = h};
    const int rc = gpusym_records_open(&p, &h->records);
    return GPUSYM_SUCCESS == rc ? add_task(h) : rc; /* a leader must answer while the program is elsewhere */
}

int coll_gpusym_hosts_open(coll_gpusym_team_t *t, coll_gpusym_host_card_t *card)
{
    hosts_t *h = calloc(1, sizeof *h);
    if (NULL == h) {
        free(card);
        return GPUSYM_ERR_NO_MEMORY;
    }
    h->team = t;
    h->worker = need_worker();
    h->nranks = (uint32_t) ompi_comm_size(t->fallback->comm);
    h->rank = coll_gpusym_team_rank(t);
    h->nislands = t->islands.nislands;
    h->island = t->island;
    h->card = card;
    h->peer = calloc(h->nranks, sizeof(gpusym_worker_peer_t *));
    h->leader = calloc(h->nislands, sizeof *h->leader);
    h->seq = &t->host.rc.seq;
    if (NULL == h->peer || NULL == h->leader || NULL == h->worker) { /* t->hosts stays NULL */
        free_hosts(h);
        return GPUSYM_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < h->nislands; i++) {
        h->leader[i] = gpusym_island_member(&t->islands, i, 0);
    }
    t->hosts = h;
    if (0 != t->host.rank) {
        return GPUSYM_SUCCESS;
    }
    gpusym_worker_enter_wait(h->worker);
    sweep_closed();
    const int rc = open_records(h);
    gpusym_worker_leave(h->worker);
    return rc;
}

/* ---- rails ---- */

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
    const place_t *place = arg;
    return get_rank(place->hosts, rank_at(place->hosts->team, place->rail, pos), peer);
}

/* Bytes of rings of a rail between the islands: on paths those to two neighbours, and directly to all. */
static uint64_t ring_bytes(const hosts_t *h)
{
    const uint64_t piece = gpusym_worker_piece_bytes(h->worker), paths = h->nislands > 2 ? 2 : 1;
    return GPUSYM_RAIL_PIECES * piece * (paths * GPUSYM_RAIL_CHANNELS) +
           (h->nislands - 1) * (GPUSYM_RAIL_PIECES * piece / 4);
}

static uint64_t direct_bytes(const hosts_t *h)
{
    return (h->nranks - 1) * (GPUSYM_RAIL_PIECES * (uint64_t) gpusym_worker_piece_bytes(h->worker) / 4);
}

/* Takes part of the worker's memory: a communicator that gets it never runs out of it in a call. */
static bool take_memory(hosts_t *h, uint64_t bytes)
{
    if (net.reserved + bytes > coll_gpusym_params.net_size) {
        return false;
    }
    net.reserved += bytes;
    h->reserved += bytes;
    return true;
}

static int open_rail(coll_gpusym_team_t *t, uint32_t rail, char *host, char *device, char *send)
{
    hosts_t *h = t->hosts;
    const uint32_t rails = coll_gpusym_hosts_rails(t);
    h->place[rail] = (place_t){h, rail};
    const gpusym_rail_params_t p = {.dev = gpusym_current.dev,
                                    .gpu = t->host.gpu,
                                    .streams = gpusym_worker_streams(h->worker),
                                    .host = host,
                                    .device = device,
                                    .send = send,
                                    .piece_bytes = gpusym_worker_piece_bytes(h->worker),
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

/* With the lock held. */
static unsigned open_rails(coll_gpusym_team_t *t)
{
    hosts_t *h = t->hosts;
    const uint32_t rails = coll_gpusym_hosts_rails(t);
    const uint64_t each = GPUSYM_RAIL_SEND_BYTES(gpusym_worker_piece_bytes(h->worker));
    char *host, *device;
    uint32_t first, end;
    coll_gpusym_hosts_own(t, &first, &end);
    const uint64_t own = end - first;
    if (GPUSYM_SUCCESS != gpusym_worker_map(h->worker, gpusym_current.dev, t->host.gpu, &host, &device) ||
        !take_memory(h, own * (each + ring_bytes(h))) ||
        GPUSYM_SUCCESS != gpusym_worker_alloc(h->worker, own * each, &h->send)) {
        return 0;
    }
    h->send_bytes = own * each;
    for (uint32_t r = first; r < end; r++) {
        if (GPUSYM_SUCCESS != open_rail(t, r, host, device, h->send + (r - first) * each)) {
            return 0;
        }
    }
    /* The rail among all ranks sends from the same memory: a call uses the one or the others. */
    return COLL_GPUSYM_HOSTS_RAILS |
           (take_memory(h, direct_bytes(h)) && GPUSYM_SUCCESS == open_rail(t, rails, host, device, h->send)
                ? COLL_GPUSYM_HOSTS_ALL
                : 0u);
}

unsigned coll_gpusym_hosts_reserve(coll_gpusym_team_t *t)
{
    gpusym_worker_enter_wait(t->hosts->worker);
    sweep_closed();
    const unsigned has = open_rails(t);
    gpusym_worker_leave(t->hosts->worker);
    return has;
}

gpusym_rail_t *coll_gpusym_hosts_rail(const coll_gpusym_team_t *t, uint32_t rail)
{
    return t->hosts->rail[rail];
}

bool coll_gpusym_hosts_stop(const coll_gpusym_team_t *t)
{
    bool left = false, idle = true;
    if (!gpusym_worker_enter(t->hosts->worker)) {
        return false;
    }
    close_rails(t->hosts, &left);
    for (uint32_t r = 0; r <= GPUSYM_TEAM_MAX; r++) {
        idle = idle && (NULL == t->hosts->rail[r] || gpusym_rail_idle(t->hosts->rail[r]));
    }
    gpusym_worker_leave(t->hosts->worker);
    return idle;
}

uint32_t coll_gpusym_hosts_piece(const coll_gpusym_team_t *t)
{
    return gpusym_worker_piece_bytes(t->hosts->worker);
}

bool coll_gpusym_hosts_lock(const coll_gpusym_team_t *t)
{
    return gpusym_worker_enter(t->hosts->worker);
}

void coll_gpusym_hosts_unlock(const coll_gpusym_team_t *t)
{
    gpusym_worker_leave(t->hosts->worker);
}

/* ---- agreement ---- */

void coll_gpusym_hosts_enter(coll_gpusym_team_t *t, uint64_t seq)
{
    __atomic_store_n(&t->hosts->entered, seq, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* before the roll-call's number */
}

int coll_gpusym_hosts_post(coll_gpusym_team_t *t, uint64_t seq, const coll_gpusym_island_record_t *record)
{
    hosts_t *h = t->hosts;
    const gpusym_record_t mine = {.bytes = record->bytes,
                                  .balance = record->balance,
                                  .hash = record->hash,
                                  .flags = record->unset ? RECORD_UNSET : 0,
                                  .what = record->what,
                                  .kind =
                                      (uint16_t) (record->reason < 0 ? RECORD_NATIVE : RECORD_STAGED + record->reason)};
    if (!gpusym_worker_enter(h->worker)) {
        return 0;
    }
    int rc;
    (void) gpusym_records_poll(h->records, &rc);
    rc = GPUSYM_SUCCESS == rc ? gpusym_records_post(h->records, seq, &mine) : rc;
    h->posted = GPUSYM_SUCCESS == rc ? seq : h->posted;
    gpusym_worker_leave(h->worker);
    return GPUSYM_SUCCESS == rc ? 1 : GPUSYM_ERR_BAD_PARAM == rc ? 0 : rc; /* records of the call before are missing */
}

/* On a leader. */
static int read_verdict(coll_gpusym_team_t *t, uint64_t seq, bool exact, coll_gpusym_verdict_t *v)
{
    hosts_t *h = t->hosts;
    const gpusym_record_t *all;
    int rc;
    if (!gpusym_worker_enter(h->worker)) {
        return 0;
    }
    (void) gpusym_records_poll(h->records, &rc);
    rc = GPUSYM_SUCCESS == rc ? gpusym_records_read(h->records, seq, &all) : rc;
    if (1 == rc) {
        *v = judge_records(h, all, exact);
        watch_islands(h); /* the next post takes the place of these records */
    }
    gpusym_worker_leave(h->worker);
    if (1 == rc) {
        gpusym_line_t *line = t->host.rc.line[t->host.rank];
        __atomic_store_n(&line->verdict, pack_verdict(seq, v), __ATOMIC_RELEASE);
    }
    return rc;
}

int coll_gpusym_hosts_poll(coll_gpusym_team_t *t, uint64_t seq, bool exact, coll_gpusym_verdict_t *v)
{
    if (0 == t->host.rank) {
        return read_verdict(t, seq, exact, v);
    }
    const uint64_t word = __atomic_load_n(&t->host.rc.line[0]->verdict, __ATOMIC_ACQUIRE);
    if (word >> 24 < seq) {
        return 0;
    }
    *v = (coll_gpusym_verdict_t){(unsigned) (word & 0xff), (uint32_t) (word >> 8 & 0xffff)};
    return word >> 24 == seq && v->rank < t->hosts->nranks ? 1 : GPUSYM_ERR_CORRUPT;
}

void coll_gpusym_hosts_missing(const coll_gpusym_team_t *t, char *text, size_t size)
{
    const hosts_t *h = t->hosts;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; 0 == t->host.rank && i < h->nislands && used < size; i++) {
        if (!gpusym_records_has(h->records, i)) {
            used += (size_t) snprintf(text + used, size - used, "%sthe island of rank %u", 0 == used ? "" : ", ",
                                      h->leader[i]);
        }
    }
    if (0 != t->host.rank) {
        snprintf(text, size, "rank %u, which agrees with the other islands", h->leader[h->island]);
    }
}

/* Of the processes of this host the system tells, of the others the network; of this island the roll-call. */
static int find_lost_process(const coll_gpusym_team_t *t, const char **why)
{
    const hosts_t *h = t->hosts;
    const uint32_t n = (uint32_t) ompi_comm_size(t->fallback->comm), rank = coll_gpusym_team_rank(t);
    for (uint32_t r = 0; r < n; r++) {
        *why = NULL != h && NULL != h->peer[r] ? gpusym_worker_peer_lost(h->peer[r]) : NULL;
        if (NULL == *why && t->island != gpusym_islands_find(&t->islands, r) &&
            coll_gpusym_peers_near(t->all[r], t->all[rank]) && !coll_gpusym_peer_lives(t->all[r])) {
            *why = "its process has ended";
        }
        if (NULL != *why) {
            return (int) r;
        }
    }
    return -1;
}

int coll_gpusym_hosts_lost(coll_gpusym_team_t *t, const char **why)
{
    hosts_t *h = t->hosts;
    int rc, rank = find_lost_process(t, why);
    if (rank >= 0 || NULL == h || NULL == h->records || !gpusym_worker_enter(h->worker)) {
        return rank;
    }
    (void) gpusym_records_poll(h->records, &rc);
    watch_islands(h);
    rank = find_lost_island(h, why);
    gpusym_worker_leave(h->worker);
    return rank;
}

void coll_gpusym_hosts_blame(coll_gpusym_team_t *t, uint32_t rank)
{
    hosts_t *h = t->hosts;
    if (NULL != h) {
        gpusym_worker_enter_wait(h->worker);
        blame(h, rank);
        gpusym_worker_leave(h->worker);
    }
}

void coll_gpusym_hosts_abort(coll_gpusym_team_t *t)
{
    hosts_t *h = t->hosts;
    if (NULL != h && NULL != h->records) {
        gpusym_worker_enter_wait(h->worker);
        gpusym_records_abort(h->records, h->blamed);
        gpusym_worker_leave(h->worker);
    }
}
