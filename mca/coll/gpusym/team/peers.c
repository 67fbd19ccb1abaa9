/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which processes have gpusym: see team/peers.h.
 *
 * What makes all ranks decide alike: a process publishes before MPI_Init ends, Open MPI's fence or a question to
 * another host brings what is published there, and the processes of one mpirun on one host ask one server. So either
 * all ranks find all others' cards, and compare the same ones; or every rank misses one, or sees one of another mpirun,
 * and needs no more. Where Open MPI 4's fence does not collect, no card of another host counts.
 */
#include "mca/coll/gpusym/team/peers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/shm/host.h"
#include "mca/common/gpusym/topo/subnets.h"
#include "opal/util/proc.h"

#include "config.h"

/* What is compared, and shown. */
static const char version[32] = GPUSYM_VERSION;

/* The modex key. What stands under it may be of another version: a card begins with its version for ever. */
#define KEY "gpusym.card"

/* Parameters that must be alike, apart from the collectives' algorithms: kernels of ranks that see different values
 * would wait for each other in different plans, or a rank would not be there at all. */
#define ALIKE_NUMBERS(X) \
    X(priority)          \
    X(oneshot_max)       \
    X(blocks)            \
    X(threads)           \
    X(chunk)             \
    X(zero_copy)         \
    X(zero_copy_min)     \
    X(piece)             \
    X(node_size)         \
    X(net_size)          \
    X(reproducible)

enum {
#define ALIKE_ENUM(name) ALIKE_##name,
    ALIKE_NUMBERS(ALIKE_ENUM) ALIKE_heap_size,
    ALIKE_device,
    ALIKE_algorithms,
    ALIKE_COUNT = ALIKE_algorithms + COLL_GPUSYM_NATIVES
};

/* What a process publishes: plain bytes. */
typedef struct {
    char version[sizeof(version)];
    gpusym_host_t host;
    gpusym_process_id_t process;
    char node[64]; /* the host's name */
    gpusym_subnets_t subnets;
    int64_t value[ALIKE_COUNT];
    int64_t summary; /* it takes part in the summary at the end */
} card_t;

struct coll_gpusym_peer {
    opal_process_name_t name;
    bool found; /* it has published a card of our version */
    bool other; /* a card of another version: only that is valid */
    card_t card;
    gpusym_process_t process;
    struct coll_gpusym_peer *next;
};

static struct {
    pthread_mutex_t lock; /* of the list, and of the checks of its processes */
    coll_gpusym_peer_t *first;
    card_t card;    /* ours */
    bool published; /* that */
    bool warned;    /* a mistake has been reported to the user */
    uint32_t *here; /* [nhere] the processes of our job on this host: vpids, rising; owned, NULL: not known yet */
    unsigned nhere;
} peers = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- ours ---- */

/* auto is cuda where there is a GPU, and finds out later: cuda and auto go together. */
static int device_kind(int choice)
{
    return GPUSYM_DEVICE_AUTO == choice ? GPUSYM_DEVICE_CUDA : choice;
}

static void fill_card(card_t *card)
{
    const coll_gpusym_params_t *c = &coll_gpusym_params;

    memset(card, 0, sizeof(*card));
    memcpy(card->version, version, sizeof(version));
    gpusym_host_self(&card->host);
    gpusym_process_self(&card->process);
    snprintf(card->node, sizeof(card->node), "%s", opal_process_info.nodename);
    unsigned n;
    gpusym_interface_t *interface = gpusym_interfaces_find(&n);
    card->subnets = gpusym_subnets_of(interface, n);
    free(interface);
#define ALIKE_VALUE(name) card->value[ALIKE_##name] = (int64_t) c->name;
    ALIKE_NUMBERS(ALIKE_VALUE)
    card->summary = c->summary;
    card->value[ALIKE_heap_size] = (int64_t) gpusym_params.heap_size;
    card->value[ALIKE_device] = device_kind(gpusym_params.device);
    for (int i = 0; i < (int) COLL_GPUSYM_NATIVES; i++) {
        card->value[ALIKE_algorithms + i] = c->algorithm[i];
    }
}

void coll_gpusym_peers_publish(void)
{
    fill_card(&peers.card);
    peers.published = gpusym_modex_put(KEY, &peers.card, sizeof(peers.card), false);
}

void coll_gpusym_peers_fini(void)
{
    pthread_mutex_lock(&peers.lock);
    while (NULL != peers.first) {
        coll_gpusym_peer_t *peer = peers.first;
        peers.first = peer->next;
        gpusym_process_forget(&peer->process);
        free(peer);
    }
    free(peers.here);
    peers.here = NULL;
    peers.nhere = 0;
    peers.warned = peers.published = false;
    pthread_mutex_unlock(&peers.lock);
}

/* ---- nodes ---- */

/* The processes of our job on one host, at most. */
#define HERE_MAX 4096u

static int compare_vpids(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;
    return (x > y) - (x < y);
}

/* With the lock held: who of our job is on this host. */
static void list_here(void)
{
    peers.here = NULL == peers.here ? malloc(HERE_MAX * sizeof(*peers.here)) : peers.here;
    if (NULL != peers.here && 0 == peers.nhere) {
        peers.nhere = gpusym_local_peers(peers.here, HERE_MAX);
        qsort(peers.here, peers.nhere, sizeof(*peers.here), compare_vpids);
    }
}

/* With the lock held: whether a process is on this node. */
static bool is_near(const opal_process_name_t *name)
{
    list_here();
    if (OPAL_PROC_MY_NAME.jobid == name->jobid && 0 != peers.nhere) {
        const uint32_t vpid = (uint32_t) name->vpid;
        return NULL != bsearch(&vpid, peers.here, peers.nhere, sizeof(vpid), compare_vpids);
    }
    const opal_proc_t *proc = opal_proc_for_name(*name);
    return NULL != proc && OPAL_PROC_ON_LOCAL_NODE(proc->proc_flags);
}

/* ---- others' ---- */

static bool same_name(const opal_process_name_t *a, const opal_process_name_t *b)
{
    return a->jobid == b->jobid && a->vpid == b->vpid;
}

/* With the lock held: the cached process, or a new one with its card. NULL: no memory. */
static coll_gpusym_peer_t *get_peer(const opal_process_name_t *name)
{
    coll_gpusym_peer_t *p;

    for (p = peers.first; NULL != p; p = p->next) {
        if (same_name(&p->name, name)) {
            return p;
        }
    }
    p = calloc(1, sizeof(*p));
    if (NULL == p) {
        return NULL;
    }
    p->name = *name;
    const size_t bytes = is_near(name) ? gpusym_modex_get(KEY, name, &p->card, sizeof(p->card))
                                       : gpusym_modex_fetch(KEY, name, &p->card, sizeof(p->card));
    p->card.version[sizeof(p->card.version) - 1] = '\0';
    p->card.node[sizeof(p->card.node) - 1] = '\0';
    p->found = sizeof(p->card) == bytes && 0 == strcmp(p->card.version, version);
    p->other = !p->found && bytes > 0;
    p->process.id = p->card.process;
    p->next = peers.first;
    peers.first = p;
    return p;
}

/* A number for a host, for gpusym_islands_of_t. */
static uint64_t number_host(const gpusym_host_t *host)
{
    return (host->key[0] ^ host->key[1] >> 31) * 0x9e3779b97f4a7c15ull + host->key[1];
}

/* ---- what is compared ---- */

/* Whether both have a card, with the same i-th value. */
static bool are_alike(const coll_gpusym_peer_t *a, const coll_gpusym_peer_t *b, unsigned i)
{
    return a->found && b->found && a->card.value[i] == b->card.value[i];
}

static const char *device_text(long value)
{
    switch (value) {
    case GPUSYM_DEVICE_NONE:
        return "none";
    case GPUSYM_DEVICE_SIM:
        return "sim";
    default:
        return "auto or cuda"; /* see device_kind() */
    }
}

static const char *algorithm_text(long value)
{
    switch (value) {
    case COLL_GPUSYM_ALG_AUTO:
        return "auto";
    case COLL_GPUSYM_ALG_STAGED:
        return "staged";
    default:
        return value >= 0 && value < (long) GPUSYM_ALG_COUNT ? gpusym_algorithm_name((unsigned) value)
                                                             : "of another build";
    }
}

/* Writes a parameter and its value: "coll_gpusym_blocks 4". */
static void format_value(const card_t *card, unsigned i, char *buf, size_t size)
{
    static const char *const names[] = {
#define ALIKE_NAME(name) #name,
        ALIKE_NUMBERS(ALIKE_NAME) "heap_size"};
    const long value = (long) card->value[i];

    if (ALIKE_device == i) {
        snprintf(buf, size, "coll_gpusym_device %s", device_text(value));
    } else if (i >= ALIKE_algorithms) {
        snprintf(buf, size, "coll_gpusym_%s_algorithm %s", coll_gpusym_name(i - ALIKE_algorithms),
                 algorithm_text(value));
    } else {
        snprintf(buf, size, "coll_gpusym_%s %ld", names[i], value);
    }
}

/* Of two ranks that differ, the one that fewer ranks agree with. */
static int find_odd_rank(coll_gpusym_peer_t *const *peer, int n, int a, int b, unsigned i)
{
    int with_a = 0, with_b = 0;

    for (int r = 0; r < n; r++) {
        with_a += NULL != peer[r] && are_alike(peer[r], peer[a], i);
        with_b += NULL != peer[r] && are_alike(peer[r], peer[b], i);
    }
    return with_a < with_b ? a : b;
}

/* Describes the first value in which ranks differ; leaves `why` as "" where there is none. */
static void find_difference(coll_gpusym_peer_t *const *peer, int n, char *why, size_t size)
{
    char odd_value[96], value[96];
    int first = 0;

    while (NULL == peer[first]) { /* not one of those that are compared: we are */
        first++;
    }
    for (unsigned i = 0; i < ALIKE_COUNT; i++) {
        for (int r = first + 1; r < n; r++) {
            if (NULL != peer[r] && !are_alike(peer[first], peer[r], i)) {
                const int odd = find_odd_rank(peer, n, first, r, i), other = first == odd ? r : first;
                format_value(&peer[odd]->card, i, odd_value, sizeof(odd_value));
                format_value(&peer[other]->card, i, value, sizeof(value));
                snprintf(why, size, "rank %d has %s, rank %d has %s", odd, odd_value, other, value);
                return;
            }
        }
    }
}

/* All ranks of a communicator, and what was found. */
typedef struct {
    coll_gpusym_peer_t **peer; /* [n], this process too; NULL: behind one of another host without a card */
    int n, rank;
    bool mistake; /* likely */
    char why[256];
} survey_t;

/* Ranks without a card of ours. Returns a reason, or -1. */
static int find_missing(survey_t *survey)
{
    for (int r = 0; r < survey->n; r++) {
        const coll_gpusym_peer_t *p = survey->peer[r];
        if (NULL != p && p->other) {
            snprintf(survey->why, sizeof(survey->why), "rank %d has gpusym %s, rank %d has %s%s", r, p->card.version,
                     survey->rank, version, 0 == strcmp(p->card.version, version) ? ", another build" : "");
            survey->mistake = true;
            return COLL_GPUSYM_R_PEERS;
        }
    }
    for (int r = 0; r < survey->n; r++) {
        if (NULL != survey->peer[r] && !survey->peer[r]->found) {
            const bool here = is_near(&survey->peer[r]->name);
            snprintf(survey->why, sizeof(survey->why),
                     here ? "rank %d has no gpusym"
                          : "rank %d is on another host, which its published data have not reached",
                     r);
            survey->mistake = here;
            return here ? COLL_GPUSYM_R_PEERS : COLL_GPUSYM_R_BETWEEN;
        }
    }
    return -1;
}

/* Whether the ranks' versions and parameters are alike. Returns a reason, or -1. */
static int check_values(survey_t *survey)
{
    find_difference(survey->peer, survey->n, survey->why, sizeof(survey->why));
    survey->mistake = '\0' != survey->why[0];
    return survey->mistake ? COLL_GPUSYM_R_PEERS : -1;
}

/* With the cards of all ranks. Returns a reason, or -1. */
static int check_cards(survey_t *survey)
{
    int reason = find_missing(survey);

    for (int r = 1; reason < 0 && r < survey->n; r++) {
        if (0 != memcmp(&survey->peer[r]->card.host, &survey->peer[0]->card.host, sizeof(gpusym_host_t))) {
            snprintf(survey->why, sizeof(survey->why), "rank %d is not on the host of rank 0", r);
            return COLL_GPUSYM_R_BETWEEN;
        }
    }
    return reason < 0 ? check_values(survey) : reason;
}

/* Checks that need no card, and come out the same on every rank. Returns a reason, or -1. */
static int check_names(struct ompi_communicator_t *comm, survey_t *survey)
{
    if (!peers.published || !gpusym_modex_complete()) {
        snprintf(survey->why, sizeof(survey->why), "%s",
                 peers.published ? "MPI_Init does not wait for all (async_mpi_init)" : "there is no PMIx server");
        return COLL_GPUSYM_R_PEERS;
    }
    for (int r = 0; r < survey->n; r++) {
        const opal_process_name_t name = ompi_group_get_proc_name(comm->c_local_group, r);
        if (!gpusym_same_mpirun(&name, &OPAL_PROC_MY_NAME)) {
            snprintf(survey->why, sizeof(survey->why), "rank %d belongs to another mpirun than rank %d", r,
                     survey->rank);
            return COLL_GPUSYM_R_PEERS;
        }
    }
    return -1;
}

/* Whether this rank reports to the user: the first of those that have gpusym with the highest priority. Ranks of
 * different versions cannot read each other's priority: rank 0 reports. */
static bool is_speaker(const survey_t *survey)
{
    int speaker = -1;

    for (int r = 0; r < survey->n; r++) {
        const coll_gpusym_peer_t *p = survey->peer[r];
        if (NULL == p) {
            continue;
        }
        if (p->other) {
            return 0 == survey->rank;
        }
        const bool serves = p->found && GPUSYM_DEVICE_NONE != p->card.value[ALIKE_device];
        if (serves &&
            (speaker < 0 || p->card.value[ALIKE_priority] > survey->peer[speaker]->card.value[ALIKE_priority])) {
            speaker = r;
        }
    }
    return survey->rank == speaker;
}

/* Reports why there is no agreement. With the lock held. */
static void report_reason(struct ompi_communicator_t *comm, const survey_t *survey, int reason)
{
    char name[GPUSYM_COMM_LABEL_MAX];

    gpusym_comm_label(comm, name, sizeof(name));
    GPUSYM_LOG(2, "%s: each rank stages its own device buffers: %s: %s", name,
               coll_gpusym_reason_doc((unsigned) reason), survey->why);
    if (survey->mistake && !peers.warned && gpusym_params.warn > 0 && is_speaker(survey)) {
        peers.warned = true;
        coll_gpusym_help("other-peers", name, survey->why, survey->rank);
    }
}

/* With the lock held: fills survey->peer, as far as the first process of another host without a card: that
 * takes seconds to find out. False: no memory. */
static bool get_cards(struct ompi_communicator_t *comm, const survey_t *survey)
{
    bool found = true;
    for (int r = 0; found && r < survey->n; r++) {
        const opal_process_name_t name = ompi_group_get_proc_name(comm->c_local_group, r);
        survey->peer[r] = get_peer(&name);
        if (NULL == survey->peer[r]) {
            return false;
        }
        found = survey->peer[r]->found || is_near(&name);
    }
    return true;
}

int coll_gpusym_peers_find(struct ompi_communicator_t *comm, coll_gpusym_peer_t **peer, int *reason)
{
    survey_t survey = {.peer = peer, .n = ompi_comm_size(comm), .rank = ompi_comm_rank(comm)};
    int rv = MPI_SUCCESS;

    if (survey.n > GPUSYM_TEAM_MAX) { /* a likely mistake is found where the islands are */
        *reason = COLL_GPUSYM_R_BETWEEN;
        return rv;
    }
    *reason = check_names(comm, &survey);
    pthread_mutex_lock(&peers.lock);
    if (*reason < 0) {
        rv = get_cards(comm, &survey) ? MPI_SUCCESS : OMPI_ERR_OUT_OF_RESOURCE;
        *reason = MPI_SUCCESS == rv ? check_cards(&survey) : -1;
    }
    if (*reason >= 0 && COLL_GPUSYM_R_BETWEEN != *reason) { /* that is for coll_gpusym_peers_islands() to find out */
        report_reason(comm, &survey, *reason);
    }
    pthread_mutex_unlock(&peers.lock);
    return rv;
}

/* ---- islands ---- */

int coll_gpusym_peers_alike(struct ompi_communicator_t *comm, coll_gpusym_peer_t **peer, int *reason)
{
    survey_t survey = {.peer = peer, .n = ompi_comm_size(comm), .rank = ompi_comm_rank(comm)};
    bool ok = true;

    if (survey.n > COLL_GPUSYM_RANKS_MAX) {
        snprintf(survey.why, sizeof(survey.why), "it has %d ranks, more than the %d that are supported", survey.n,
                 COLL_GPUSYM_RANKS_MAX);
        *reason = COLL_GPUSYM_R_BETWEEN;
    } else {
        *reason = check_names(comm, &survey);
    }
    pthread_mutex_lock(&peers.lock);
    if (*reason < 0) {
        ok = get_cards(comm, &survey);
        *reason = ok ? find_missing(&survey) : -1;
        *reason = ok && *reason < 0 ? check_values(&survey) : *reason;
    }
    if (*reason >= 0) {
        report_reason(comm, &survey, *reason);
    }
    pthread_mutex_unlock(&peers.lock);
    return ok ? MPI_SUCCESS : OMPI_ERR_OUT_OF_RESOURCE;
}

int coll_gpusym_peers_islands(struct ompi_communicator_t *comm, gpusym_islands_t *islands, coll_gpusym_peer_t **peer,
                              int *reason)
{
    const uint32_t n = (uint32_t) ompi_comm_size(comm);
    const int rv = coll_gpusym_peers_alike(comm, peer, reason);

    *islands = (gpusym_islands_t){0};
    if (MPI_SUCCESS != rv || *reason >= 0) {
        return rv;
    }
    uint64_t *host = malloc(n * sizeof(*host));
    for (uint32_t r = 0; NULL != host && r < n; r++) {
        host[r] = number_host(&peer[r]->card.host);
    }
    const gpusym_islands_of_t of = {.nranks = n, .host = host, .node_size = (uint32_t) coll_gpusym_params.node_size};
    const bool ok = NULL != host && gpusym_islands_make(&of, islands);
    free(host);
    return ok ? MPI_SUCCESS : OMPI_ERR_OUT_OF_RESOURCE;
}

coll_gpusym_peer_t *coll_gpusym_peers_summed(struct ompi_communicator_t *comm, int rank)
{
    const opal_process_name_t name = ompi_group_get_proc_name(comm->c_local_group, rank);
    coll_gpusym_peer_t *peer = NULL;

    if (peers.published && gpusym_modex_complete()) {
        pthread_mutex_lock(&peers.lock);
        peer = get_peer(&name);
        pthread_mutex_unlock(&peers.lock);
    }
    return NULL != peer && peer->found && 0 != peer->card.summary ? peer : NULL;
}

bool coll_gpusym_peers_near(const coll_gpusym_peer_t *a, const coll_gpusym_peer_t *b)
{
    return 0 == memcmp(&a->card.host, &b->card.host, sizeof(a->card.host));
}

char *coll_gpusym_peers_astray(coll_gpusym_peer_t *const *peer, uint32_t n)
{
    const gpusym_subnets_t **others = calloc(n, sizeof *others);
    unsigned nothers = 0, ninterfaces;
    for (uint32_t r = 0; NULL != others && r < n; r++) {
        if (0 != memcmp(&peer[r]->card.host, &peers.card.host, sizeof peers.card.host)) {
            others[nothers++] = &peer[r]->card.subnets;
        }
    }
    gpusym_interface_t *interface = gpusym_interfaces_find(&ninterfaces);
    char *list = NULL != others ? gpusym_interfaces_astray(interface, ninterfaces, others, nothers) : NULL;
    free(interface);
    free(others);
    return list;
}

bool coll_gpusym_peer_lives(coll_gpusym_peer_t *peer)
{
    pthread_mutex_lock(&peers.lock);
    const bool alive = gpusym_process_alive(&peer->process);
    pthread_mutex_unlock(&peers.lock);
    return alive;
}

void coll_gpusym_peers_forget(coll_gpusym_peer_t *const *peer, uint32_t n)
{
    pthread_mutex_lock(&peers.lock);
    for (uint32_t r = 0; r < n; r++) {
        gpusym_process_forget(&peer[r]->process);
    }
    pthread_mutex_unlock(&peers.lock);
}

const char *coll_gpusym_peer_host(const coll_gpusym_peer_t *peer)
{
    return peer->card.node;
}

int coll_gpusym_peer_process(const coll_gpusym_peer_t *peer)
{
    return peer->card.process.pid;
}
