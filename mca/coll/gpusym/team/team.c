/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Teams: their making, their first step (bootstrap), and their end.
 *
 * Every step is: decide locally, tell all, decide alike.  A step that fails on one rank fails on all, which
 * then stage every call of the communicator and say so once at verbose level.
 */
#include "mca/coll/gpusym/team/team.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/exchange.h"
#include "mca/coll/gpusym/team/hosts.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/coll/gpusym/team/part.h"
#include "mca/coll/gpusym/team/rails.h"
#include "mca/coll/gpusym/team/tuner.h"
#include "mca/common/gpusym/agree/tokens.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/shm/fd.h"
#include "ompi/request/request.h"

/* What ranks tell each other in the first step. */
typedef struct {
    gpusym_pages_id_t pages;
    uint64_t line_off;
    int32_t error; /* errno of what this rank could not open: it has no line, perhaps; 0: nothing */
    uint8_t has_line, has_device, threads, pad; /* threads: MPI_THREAD_MULTIPLE */
} address_t;

static void describe_process(coll_gpusym_team_t *t, address_t *h)
{
    memset(h, 0, sizeof *h);
    h->has_device = NULL != gpusym_device_need();
    h->threads = coll_gpusym_params.multiple;
    errno = 0;
    t->host.has_line =
        GPUSYM_SUCCESS == gpusym_pages_open(&h->pages) && GPUSYM_SUCCESS == gpusym_pages_alloc(&t->host.line_off);
    if (!t->host.has_line && 0 == h->error) {
        h->error = 0 != errno ? errno : ENOMEM;
    }
    h->has_line = t->host.has_line;
    h->line_off = t->host.line_off;
}

/* Ranks of the communicator. */
static uint32_t count_ranks(const coll_gpusym_team_t *t)
{
    return (uint32_t) ompi_comm_size(t->fallback->comm);
}

/* Of the addresses of all ranks, that of a member of the team. */
static const address_t *address_of(const coll_gpusym_team_t *t, const address_t *all, uint32_t member)
{
    return &all[coll_gpusym_team_member(t, member)];
}

/* Calls take launch tokens where a process may be in several at once. False if there is no memory. */
static bool prepare_tokens(coll_gpusym_team_t *t, const address_t *all)
{
    uint32_t *order = calloc(t->host.nranks, sizeof *order);
    if (NULL == order) {
        return false;
    }
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        t->host.threads = t->host.threads || address_of(t, all, r)->threads;
    }
    gpusym_tokens_init(&t->host.rc, order, address_of(t, all, 0)->line_off);
    return true;
}

/* Maps every peer's line. 0, or errno of one that cannot be. */
static int map_lines(coll_gpusym_team_t *t, const address_t *all)
{
    t->host.rc.rank = t->host.rank;
    t->host.rc.line = calloc(t->host.nranks, sizeof *t->host.rc.line);
    t->host.rc.peer = calloc(t->host.nranks, sizeof *t->host.rc.peer);
    t->host.rc.generation = calloc(t->host.nranks, sizeof *t->host.rc.generation);
    if (NULL == t->host.rc.line || NULL == t->host.rc.peer || NULL == t->host.rc.generation) {
        return ENOMEM;
    }
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        const address_t *address = address_of(t, all, r);
        errno = 0;
        if (GPUSYM_SUCCESS != gpusym_pages_peer(&address->pages, &t->host.rc.peer[r])) {
            return 0 != errno ? errno : ENOMEM;
        }
        t->host.rc.line[r] = gpusym_peer_line(t->host.rc.peer[r], address->line_off);
        if (NULL == t->host.rc.line[r]) { /* no line can stand where it says */
            return EINVAL;
        }
        t->host.rc.generation[r] = gpusym_line_generation(t->host.rc.line[r]); /* it waits for our vote */
    }
    t->host.rc.nranks = t->host.nranks; /* last: while we wait, the lines of that many ranks are polled */
    return prepare_tokens(t, all) ? 0 : ENOMEM;
}

/* Rank r of the communicator could not open or map something: the reason, and the words for it. */
static int failed_to_open(uint32_t r, int error, char *detail, size_t size)
{
    snprintf(detail, size, "rank %u: %s", r, strerror(error));
    return gpusym_fd_is_lack(error) ? COLL_GPUSYM_R_NO_FD : COLL_GPUSYM_R_NO_PAGE;
}

/* What the addresses alone forbid, the same on every rank; -1: nothing. */
static int judge_addresses(const coll_gpusym_team_t *t, const address_t *all, char *detail, size_t size)
{
    detail[0] = '\0';
    for (uint32_t r = 0; r < count_ranks(t); r++) {
        if (!all[r].has_line) {
            return failed_to_open(r, all[r].error, detail, size);
        }
    }
    for (uint32_t r = 0; r < count_ranks(t); r++) {
        if (!all[r].has_device) {
            snprintf(detail, size, "rank %u", r);
            return COLL_GPUSYM_R_NO_DEVICE;
        }
    }
    return -1;
}

static bool has_any_device(const coll_gpusym_team_t *t, const address_t *all)
{
    for (uint32_t r = 0; r < count_ranks(t); r++) {
        if (all[r].has_device) {
            return true;
        }
    }
    return false;
}

/* Tells all ranks of the communicator, of several islands, the errno of what this rank could not map, or 0; how long
 * its pieces may be; and its address in the net, of `room` bytes at most. MPI error code. */
static int tell_card(coll_gpusym_team_t *t, int error, uint32_t piece, uint32_t room)
{
    const size_t bytes = sizeof(coll_gpusym_host_card_t) + room;
    coll_gpusym_exchange_free(t);
    if (!coll_gpusym_exchange_alloc(t, bytes)) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    coll_gpusym_host_card_t *mine = t->boot.mine;
    mine->error = error;
    mine->piece = piece;
    mine->room = room;
    coll_gpusym_worker_describe(mine);
    return coll_gpusym_exchange_start(t, mine, t->boot.all, bytes);
}

/* Tells all ranks of the communicator the errno of what this rank could not map, or 0. MPI error code. */
static int tell_mapped(coll_gpusym_team_t *t, int error)
{
    return coll_gpusym_team_is_part(t) ? tell_card(t, error, coll_gpusym_hosts_propose(t), COLL_GPUSYM_ADDRESS_ROOM)
                                       : coll_gpusym_vote_start_error(t, error);
}

/* With all addresses: what the team can do. Returns the next step, or a negative error. */
static int judge_bootstrap(coll_gpusym_team_t *t, const address_t *all)
{
    char detail[96], name[GPUSYM_COMM_LABEL_MAX];

    if (!has_any_device(t, all)) {
        t->none = true;
        GPUSYM_LOG(2, "%s: no rank has a GPU: every call is forwarded",
                   gpusym_comm_label(t->fallback->comm, name, sizeof name));
        return COLL_GPUSYM_STEP_BOOTSTRAPPED;
    }
    const int reason = judge_addresses(t, all, detail, sizeof detail);
    if (reason >= 0) {
        coll_gpusym_team_settle(t, reason, detail);
        return COLL_GPUSYM_STEP_BOOTSTRAPPED;
    }
    return MPI_SUCCESS == tell_mapped(t, map_lines(t, all)) ? COLL_GPUSYM_STEP_LINES_VOTE : OMPI_ERROR;
}

static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        h = (h ^ ((const unsigned char *) bytes)[i]) * 0x100000001b3ull;
    }
    return h;
}

uint64_t coll_gpusym_team_key(struct ompi_communicator_t *comm)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    /* The name before it may be another on every rank. */
    const char *id = strrchr(gpusym_comm_label(comm, label, sizeof label), '(');
    uint64_t h = hash_bytes(0xcbf29ce484222325ull, id, strlen(id));
    for (int r = 0; r < ompi_comm_size(comm); r++) {
        const opal_process_name_t name = ompi_group_get_proc_name(comm->c_local_group, r);
        h = hash_bytes(h, &name, sizeof name);
    }
    return h | 1;
}

/* The parameter divides what could be one island. */
static bool is_divided(const coll_gpusym_team_t *t)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    if (0 == coll_gpusym_params.node_size || t->host.nranks <= (uint32_t) coll_gpusym_params.node_size) {
        return false;
    }
    GPUSYM_LOG(2, "%s: divided into islands of %d ranks (coll_gpusym_node_size)",
               gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_params.node_size);
    return true;
}

/* All ranks of the communicator as one island. */
static int find_all(coll_gpusym_team_t *t, int *reason)
{
    struct ompi_communicator_t *comm = t->fallback->comm;
    t->host.nranks = (uint32_t) ompi_comm_size(comm);
    t->host.rank = (uint32_t) ompi_comm_rank(comm);
    t->host.peers = calloc(t->host.nranks, sizeof *t->host.peers);
    const int rv =
        NULL != t->host.peers ? coll_gpusym_peers_find(comm, t->host.peers, reason) : OMPI_ERR_OUT_OF_RESOURCE;
    if (MPI_SUCCESS == rv && *reason < 0 && is_divided(t)) {
        *reason = COLL_GPUSYM_R_BETWEEN;
    }
    return rv;
}

/* The ranks of this rank's island, of several. */
static int find_members(coll_gpusym_team_t *t, int *reason)
{
    struct ompi_communicator_t *comm = t->fallback->comm;
    const uint32_t n = count_ranks(t), me = (uint32_t) ompi_comm_rank(comm);
    t->all = calloc(n, sizeof *t->all);
    const int rv =
        NULL != t->all ? coll_gpusym_peers_islands(comm, &t->islands, t->all, reason) : OMPI_ERR_OUT_OF_RESOURCE;
    if (MPI_SUCCESS != rv || *reason >= 0) {
        return rv;
    }
    t->island = gpusym_islands_find(&t->islands, me);
    t->host.nranks = gpusym_island_size(&t->islands, t->island);
    t->host.rank = gpusym_islands_number(&t->islands, me);
    t->host.peers = calloc(t->host.nranks, sizeof *t->host.peers);
    for (uint32_t r = 0; NULL != t->host.peers && r < t->host.nranks; r++) {
        t->host.peers[r] = t->all[coll_gpusym_team_member(t, r)];
    }
    return NULL != t->host.peers ? MPI_SUCCESS : OMPI_ERR_OUT_OF_RESOURCE;
}

/* find: finds the team's ranks. */
static int create_team(coll_gpusym_fallback_t *f, coll_gpusym_team_t **team, int *reason,
                       int (*find)(coll_gpusym_team_t *t, int *reason))
{
    coll_gpusym_team_t *t = calloc(1, sizeof *t);
    *team = NULL;
    *reason = -1;
    if (NULL == t) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    t->fallback = f;
    t->reason = -1;
    t->host.mem_gpu = -1;
    int rv = find(t, reason);
    if (MPI_SUCCESS == rv && *reason < 0) {
        t->host.key = coll_gpusym_team_key(f->comm);
        t->boot.votes = calloc(count_ranks(t), 1); /* no fewer than a team has */
        rv = NULL != t->boot.votes ? MPI_SUCCESS : OMPI_ERR_OUT_OF_RESOURCE;
    }
    if (MPI_SUCCESS == rv && *reason < 0) {
        *team = t;
        return rv;
    }
    free(t->host.peers);
    free(t->all);
    gpusym_islands_free(&t->islands);
    free(t);
    return rv;
}

int coll_gpusym_team_create(coll_gpusym_fallback_t *f, coll_gpusym_team_t **team, int *reason)
{
    const int rv = create_team(f, team, reason, find_all);
    return COLL_GPUSYM_R_BETWEEN == *reason ? create_team(f, team, reason, find_members) : rv;
}

bool coll_gpusym_team_find_gpu(const coll_gpusym_team_t *t, gpusym_mem_t *mem)
{
    const bool known = NULL != t->host.gpu;
    *mem = (gpusym_mem_t){.kind = GPUSYM_MEM_DEVICE,
                          .gpu = known ? t->host.mem_gpu : gpusym_current.dev->gpu_current(),
                          .context = known ? t->host.mem_context : NULL};
    return mem->gpu >= 0;
}

int coll_gpusym_team_dead(const coll_gpusym_team_t *t)
{
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        if (r != t->host.rank && !coll_gpusym_peer_lives(t->host.peers[r])) {
            return (int) r;
        }
    }
    return -1;
}

bool coll_gpusym_team_bootstrapping(const coll_gpusym_team_t *t)
{
    return t->boot.step < COLL_GPUSYM_STEP_BOOTSTRAPPED;
}

void coll_gpusym_team_abort(coll_gpusym_team_t *t, uint64_t first)
{
    if (t->host.has_line) {
        gpusym_line_abort(gpusym_pages_line(t->host.line_off), first);
    }
}

static int start_addresses(coll_gpusym_team_t *t)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    if (!coll_gpusym_exchange_alloc(t, sizeof(address_t))) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    describe_process(t, t->boot.mine);
    address_t *mine = t->boot.mine;
    if (coll_gpusym_team_is_part(t) && t->host.has_line &&
        GPUSYM_SUCCESS != gpusym_notices_open(&t->boot.notices, t->host.nranks, gpusym_pages_line(t->host.line_off))) {
        mine->has_line = 0;
        mine->error = ENOMEM;
    }
    if (t->host.has_line) {
        gpusym_line_name(gpusym_pages_line(t->host.line_off), t->host.key,
                         gpusym_comm_label(t->fallback->comm, label, sizeof label), coll_gpusym_team_rank(t),
                         (uint32_t) ompi_comm_size(t->fallback->comm));
    }
    return MPI_SUCCESS == coll_gpusym_exchange_start(t, t->boot.mine, t->boot.all, sizeof(address_t))
               ? COLL_GPUSYM_STEP_ADDRESSES
               : OMPI_ERROR;
}

/* Not all have mapped all lines. */
static void settle_unmapped(coll_gpusym_team_t *t)
{
    char detail[96];
    uint32_t r = 0;
    while (COLL_GPUSYM_VOTE_YES == t->boot.votes[r]) {
        r++;
    }
    const int reason = failed_to_open(r, t->boot.votes[r] - (int) COLL_GPUSYM_VOTE_YES, detail, sizeof detail);
    coll_gpusym_team_settle(t, reason, detail);
}

/* Of several islands, with the cards of all ranks: whether all have mapped the lines of their islands, and have a net.
 * Settles it if not. */
static bool judge_cards(coll_gpusym_team_t *t, coll_gpusym_host_card_t *all)
{
    char detail[96];
    for (uint32_t r = 0; r < count_ranks(t); r++) {
        const int error = coll_gpusym_card(all, r)->error;
        if (0 != error) {
            coll_gpusym_team_settle(t, failed_to_open(r, error, detail, sizeof detail), detail);
            return false;
        }
    }
    for (uint32_t r = 0; r < count_ranks(t); r++) {
        const uint32_t bytes = coll_gpusym_card(all, r)->bytes;
        if (0 == bytes || bytes > COLL_GPUSYM_ADDRESS_MAX) {
            snprintf(detail, sizeof detail, "rank %u", r);
            coll_gpusym_team_settle(t, COLL_GPUSYM_R_NO_NET, detail);
            return false;
        }
    }
    return true;
}

/* Bytes that cards need for the longest address. */
static uint32_t room_for_all(const coll_gpusym_team_t *t, coll_gpusym_host_card_t *all)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < count_ranks(t); r++) {
        const uint32_t bytes = coll_gpusym_card(all, r)->bytes;
        most = bytes > most ? bytes : most;
    }
    return (most + 7u) & ~7u;
}

/* errno of what coll_gpusym_hosts_open() returns. */
static int error_of(int rc)
{
    switch (rc) {
    case GPUSYM_SUCCESS:
        return 0;
    case GPUSYM_ERR_UNREACHABLE:
        return EHOSTUNREACH;
    case GPUSYM_ERR_NO_MEMORY:
        return ENOMEM;
    default:
        return EAGAIN; /* no thread */
    }
}

/* All ranks have told whether they have mapped the lines. Returns the next step, or a negative error. */
static int judge_lines(coll_gpusym_team_t *t)
{
    if (!coll_gpusym_team_is_part(t)) {
        t->host.joined = coll_gpusym_vote_result(t);
        if (!t->host.joined) {
            settle_unmapped(t);
        }
        return COLL_GPUSYM_STEP_BOOTSTRAPPED;
    }
    if (!judge_cards(t, t->boot.all)) {
        return COLL_GPUSYM_STEP_BOOTSTRAPPED;
    }
    coll_gpusym_host_card_t *cards = t->boot.all, *mine = t->boot.mine;
    const uint32_t room = room_for_all(t, cards);
    if (room > cards->room) {
        return MPI_SUCCESS == tell_card(t, 0, mine->piece, room) ? COLL_GPUSYM_STEP_LINES_VOTE : OMPI_ERROR;
    }
    t->boot.all = NULL;
    const int error = error_of(coll_gpusym_hosts_open(t, cards));
    return MPI_SUCCESS == coll_gpusym_vote_start_error(t, error) ? COLL_GPUSYM_STEP_NET_VOTE : OMPI_ERROR;
}

/* Rank r does not reach another host: it tells the user, and no other rank does so for a later communicator. */
static void tell_unreached(const coll_gpusym_team_t *t, uint32_t r)
{
    static bool told;
    char label[GPUSYM_COMM_LABEL_MAX];
    const bool first = !__atomic_exchange_n(&told, true, __ATOMIC_RELAXED);
    const int other = coll_gpusym_team_rank(t) == r && NULL != t->hosts ? t->hosts->unreached : -1;
    if (first && other >= 0 && gpusym_params.warn > 0) {
        coll_gpusym_help("unreached", (int) r, gpusym_comm_label(t->fallback->comm, label, sizeof label), other,
                         coll_gpusym_peer_host(t->all[other]));
    }
}

/* Of several islands: all ranks have told whether the network leads to the leaders of the others, and whether this rank
 * can answer them. */
static int judge_net(coll_gpusym_team_t *t)
{
    char detail[96];
    uint32_t r = 0;
    t->host.joined = coll_gpusym_vote_result(t);
    if (!t->host.joined) {
        while (COLL_GPUSYM_VOTE_YES == t->boot.votes[r]) {
            r++;
        }
        const int error = t->boot.votes[r] - (int) COLL_GPUSYM_VOTE_YES;
        snprintf(detail, sizeof detail, "rank %u: %s", r, strerror(error));
        coll_gpusym_team_settle(t, COLL_GPUSYM_R_NO_NET, detail);
        if (EHOSTUNREACH == error) {
            tell_unreached(t, r);
        }
        coll_gpusym_hosts_close(t, false);
    }
    return COLL_GPUSYM_STEP_BOOTSTRAPPED;
}

int coll_gpusym_team_bootstrap(coll_gpusym_team_t *t)
{
    if (t->boot.step >= COLL_GPUSYM_STEP_BOOTSTRAPPED) {
        return 1;
    }
    while (t->boot.step < COLL_GPUSYM_STEP_BOOTSTRAPPED) {
        int next = COLL_GPUSYM_STEP_NEW != t->boot.step ? coll_gpusym_exchange_poll(t) : 1;
        if (1 != next) {
            return next;
        }
        if (COLL_GPUSYM_STEP_NEW == t->boot.step) {
            next = start_addresses(t);
        } else if (COLL_GPUSYM_STEP_ADDRESSES == t->boot.step) {
            next = judge_bootstrap(t, t->boot.all);
        } else if (COLL_GPUSYM_STEP_LINES_VOTE == t->boot.step) {
            next = judge_lines(t);
        } else {
            next = judge_net(t);
        }
        if (next < 0) {
            return next;
        }
        coll_gpusym_team_step(t, next);
    }
    coll_gpusym_exchange_free(t);
    coll_gpusym_peers_forget(t->host.peers, t->host.nranks); /* the call agreement watches by descriptors of its own */
    t->open = !t->none;
    return 1;
}

/* ---- end ---- */

void coll_gpusym_team_free(coll_gpusym_team_t *t)
{
    if (NULL == t) {
        return;
    }
    coll_gpusym_team_leave(t);
    coll_gpusym_hosts_close(t, true);
    gpusym_sweep(); /* buffers that the program freed keep no memory at peers, nor theirs here */
    if (t->host.joined || (coll_gpusym_team_is_part(t) && 0 != t->host.rc.nranks)) {
        /* Peers may still be in our last call, or in the set-up that has ended here. A kernel of ours that may still
         * write to their slots keeps them. */
        if (!t->runs_on) {
            gpusym_agreement_retire(&t->host.rc, t->host.line_off, t->boot.notices.off);
        }
        coll_gpusym_team_free_slot(t);
    } else if (t->host.has_line && (!t->broken || coll_gpusym_team_is_part(t))) {
        gpusym_pages_free(t->host.line_off); /* known to all: no rank reads it. Broken: one that comes late does */
        if (0 != t->boot.notices.off) {
            gpusym_pages_free_table(t->boot.notices.off);
        }
    }
    gpusym_rules_free(t->host.rules);
    coll_gpusym_tuner_free(t->host.tuner);
    gpusym_islands_free(&t->islands);
    free(t->host.rc.line);
    free(t->host.rc.generation);
    free(t->host.rc.peer);
    free(t->host.rc.order);
    free(t->host.peers);
    free(t->all);
    if (NULL != t->boot.exchange && !REQUEST_COMPLETE(t->boot.exchange)) {
        return; /* a rank never came: the fallback may still read and write what is in there */
    }
    coll_gpusym_exchange_free(t);
    free(t->boot.votes);
    free(t);
}
