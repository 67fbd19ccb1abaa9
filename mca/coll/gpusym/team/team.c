/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Teams: how a communicator's ranks find each other.
 *
 * Every step is: decide locally, tell all, decide alike.  A step that fails on one rank fails on all, which
 * then stage every call of the communicator and say so once at verbose level; but a peer's memory that a rank cannot map is
 * a link that is not there, and may be gone round.  Ranks tell each other by the previous
 * module's nonblocking allgather, which is polled.
 */
#include "mca/coll/gpusym/team/team.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/multicast.h"
#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/common/gpusym/agree/tokens.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/shm/fd.h"
#include "mca/common/gpusym/topo/links.h"
#include "mca/common/gpusym/topo/rings.h"
#include "ompi/request/request.h"
#include "ompi/runtime/mpiruntime.h"
#include "tuning/tuning.h"

/* Where set-up is; an exchange is in flight in all but NEW, MET and DONE. */
enum { STEP_NEW = 0, STEP_HELLO, STEP_HELLO_VOTE, STEP_MET, STEP_GPU, STEP_GPU_LINKS, STEP_MC, STEP_MC_VOTE, STEP_DONE };

/* What ranks tell each other in the first step. */
typedef struct {
    gpusym_pages_id_t pages;
    uint64_t line_off;
    int32_t error; /* errno of what this rank could not open: it has no line, perhaps; 0: nothing */
    uint8_t has_line, has_device, threads, pad; /* threads: MPI_THREAD_MULTIPLE */
} hello_t;

/* ... and in the second. */
typedef struct {
    gpusym_heap_id_t heap;
    gpusym_slot_offer_t slots;
    uint64_t heap_size;
    uint8_t uuid[16];
    gpusym_place_t place;
    uint32_t epoch, sm_count;
    uint32_t share_gpu; /* what this rank's parameter says */
    uint32_t multicast; /* whether this rank may and can */
    int32_t reason; /* why this rank cannot; -1: it can */
} gpu_hello_t;

/* ... and in the last: the multicast object, made by rank 0. */
typedef struct {
    gpusym_handle_t handle;
    uint64_t made;
} mc_hello_t;

/* Begins to tell all ranks `size` bytes. MPI error code. */
static int exchange_start(coll_gpusym_team_t *t, const void *mine, void *all, size_t size)
{
    const coll_gpusym_fallback_t *f = t->fallback;
    return f->saved.iallgather(mine, (gpusym_count_t)size, MPI_BYTE, all, (gpusym_count_t)size, MPI_BYTE, f->comm,
                               &t->exchange, f->saved.iallgather_module);
}

/* 1: all have spoken; 0: not yet; negative: failed. Never waits. */
static int exchange_poll(coll_gpusym_team_t *t)
{
    if (!REQUEST_COMPLETE(t->exchange)) {
        return 0;
    }
    return MPI_SUCCESS == ompi_request_wait(&t->exchange, MPI_STATUS_IGNORE) ? 1 : OMPI_ERROR;
}

/* What a rank votes: yes; or that it failed, 0 or errno and that. */
#define VOTE_YES 1u

/* Begins to ask all ranks whether they agree. error: errno why not, 0: yes. */
static int vote_error_start(coll_gpusym_team_t *t, int error)
{
    t->my_vote = (uint8_t)(VOTE_YES + (unsigned)error);
    return exchange_start(t, &t->my_vote, t->votes, 1);
}

static int vote_start(coll_gpusym_team_t *t, bool mine)
{
    t->my_vote = mine ? VOTE_YES : 0;
    return exchange_start(t, &t->my_vote, t->votes, 1);
}

static bool vote_result(const coll_gpusym_team_t *t)
{
    bool all = true;
    for (uint32_t r = 0; r < t->nranks; r++) {
        all = all && VOTE_YES == t->votes[r];
    }
    return all;
}

/* Buffers for what all ranks say, `size` bytes each; zeroed. False if there is no memory. */
static bool words_alloc(coll_gpusym_team_t *t, size_t size)
{
    t->mine = calloc(1, size);
    t->all = calloc(t->nranks, size);
    return NULL != t->mine && NULL != t->all;
}

static void words_free(coll_gpusym_team_t *t)
{
    free(t->mine);
    free(t->all);
    t->mine = t->all = NULL;
}

static void settle(coll_gpusym_team_t *t, int reason, const char *detail)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    t->reason = reason;
    COLL_GPUSYM_VERBOSE(1, "%s: device buffers are staged through the host: %s%s%s",
                        gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_reason_doc((unsigned)reason),
                        NULL != detail ? ": " : "", NULL != detail ? detail : "");
}

/* ---- first step ---- */

static void hello_fill(coll_gpusym_team_t *t, const char *label, hello_t *h)
{
    memset(h, 0, sizeof *h);
    h->has_device = NULL != gpusym_device_need();
    h->threads = ompi_mpi_thread_multiple;
    errno = 0;
    t->has_line = GPUSYM_SUCCESS == gpusym_pages_open(&h->pages) && GPUSYM_SUCCESS == gpusym_pages_alloc(&t->line_off);
    if (!t->has_line && 0 == h->error) {
        h->error = 0 != errno ? errno : ENOMEM;
    }
    h->has_line = t->has_line;
    h->line_off = t->line_off;
    if (t->has_line) {
        gpusym_line_name(gpusym_pages_line(t->line_off), t->key, label);
    }
}

/* How far we are, for peers that wait for us. */
static void step_to(coll_gpusym_team_t *t, int step)
{
    t->step = step;
    if (t->has_line) {
        gpusym_line_step(gpusym_pages_line(t->line_off), (uint32_t) step);
    }
}

/* Calls take turns where a process may be in several at once. False if there is no memory. */
static bool turns_prepare(coll_gpusym_team_t *t, const hello_t *all)
{
    uint32_t *order = calloc(t->nranks, sizeof *order);
    if (NULL == order) {
        return false;
    }
    for (uint32_t r = 0; r < t->nranks; r++) {
        t->threads = t->threads || all[r].threads;
    }
    gpusym_tokens_init(&t->rc, order, all[0].line_off);
    return true;
}

/* Maps every peer's line. 0, or errno of one that cannot be. */
static int lines_map(coll_gpusym_team_t *t, const hello_t *all)
{
    t->rc.rank = t->rank;
    t->rc.line = calloc(t->nranks, sizeof *t->rc.line);
    t->rc.peer = calloc(t->nranks, sizeof *t->rc.peer);
    t->rc.generation = calloc(t->nranks, sizeof *t->rc.generation);
    if (NULL == t->rc.line || NULL == t->rc.peer || NULL == t->rc.generation) {
        return ENOMEM;
    }
    for (uint32_t r = 0; r < t->nranks; r++) {
        errno = 0;
        if (GPUSYM_SUCCESS != gpusym_pages_peer(&all[r].pages, &t->rc.peer[r])) {
            return 0 != errno ? errno : ENOMEM;
        }
        t->rc.line[r] = gpusym_peer_line(t->rc.peer[r], all[r].line_off);
        if (NULL == t->rc.line[r]) { /* no line can stand where it says */
            return EINVAL;
        }
        t->rc.generation[r] = gpusym_line_generation(t->rc.line[r]); /* it waits for our vote */
    }
    t->rc.nranks = t->nranks; /* last: while we wait, the lines of so many ranks are looked at */
    return turns_prepare(t, all) ? 0 : ENOMEM;
}

/* Rank r could not open or map something: the reason, and the words for it. */
static int failed_to_open(uint32_t r, int error, char *detail, size_t size)
{
    snprintf(detail, size, "rank %u: %s", r, strerror(error));
    return gpusym_fd_is_lack(error) ? COLL_GPUSYM_R_NO_FD : COLL_GPUSYM_R_NO_PAGE;
}

/* What the hellos alone forbid, the same on every rank; -1: nothing. */
static int hello_reason(const coll_gpusym_team_t *t, const hello_t *all, char *detail, size_t size)
{
    detail[0] = '\0';
    for (uint32_t r = 0; r < t->nranks; r++) {
        if (!all[r].has_line) {
            return failed_to_open(r, all[r].error, detail, size);
        }
    }
    for (uint32_t r = 0; r < t->nranks; r++) {
        if (!all[r].has_device) {
            snprintf(detail, size, "rank %u", r);
            return COLL_GPUSYM_R_NO_DEVICE;
        }
    }
    return -1;
}

static bool any_device(const coll_gpusym_team_t *t, const hello_t *all)
{
    for (uint32_t r = 0; r < t->nranks; r++) {
        if (all[r].has_device) {
            return true;
        }
    }
    return false;
}

/* With everybody's hello: who may do what. Returns the next step, or a negative error. */
static int team_join(coll_gpusym_team_t *t, const hello_t *all)
{
    char detail[96], name[GPUSYM_COMM_LABEL_MAX];

    if (!any_device(t, all)) {
        t->none = true;
        COLL_GPUSYM_VERBOSE(1, "%s: no rank has a GPU: every call is forwarded",
                            gpusym_comm_label(t->fallback->comm, name, sizeof name));
        return STEP_MET;
    }
    const int reason = hello_reason(t, all, detail, sizeof detail);
    if (reason >= 0) {
        settle(t, reason, detail);
        return STEP_MET;
    }
    return MPI_SUCCESS == vote_error_start(t, lines_map(t, all)) ? STEP_HELLO_VOTE : OMPI_ERROR;
}

static uint64_t hash(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        h = (h ^ ((const unsigned char *) bytes)[i]) * 0x100000001b3ull;
    }
    return h;
}

/* Of a communicator: the same on all of its ranks, and no other's in any of its processes: its id and its ranks. */
static uint64_t comm_key(struct ompi_communicator_t *comm, const char *label)
{
    const char *id = strrchr(label, '('); /* the name before it may be another on every rank */
    uint64_t h = hash(0xcbf29ce484222325ull, id, strlen(id));
    for (int r = 0; r < ompi_comm_size(comm); r++) {
        const opal_process_name_t name = ompi_group_get_proc_name(comm->c_local_group, r);
        h = hash(h, &name, sizeof name);
    }
    return h | 1;
}

int coll_gpusym_team_create(coll_gpusym_fallback_t *f, coll_gpusym_team_t **team, int *reason)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    int rv = OMPI_ERR_OUT_OF_RESOURCE;
    coll_gpusym_team_t *t = calloc(1, sizeof *t);
    *team = NULL;
    *reason = -1;
    if (NULL == t) {
        return rv;
    }
    t->fallback = f;
    t->nranks = (uint32_t)ompi_comm_size(f->comm);
    t->rank = (uint32_t)ompi_comm_rank(f->comm);
    t->reason = -1;
    t->mem_gpu = -1;
    t->key = comm_key(f->comm, gpusym_comm_label(f->comm, label, sizeof label));
    t->votes = calloc(t->nranks, 1);
    t->peers = calloc(t->nranks, sizeof *t->peers);
    if (NULL != t->votes && NULL != t->peers) {
        rv = coll_gpusym_peers_look(f->comm, t->peers, reason);
    }
    if (MPI_SUCCESS == rv && *reason < 0) {
        *team = t;
        return rv;
    }
    free(t->votes);
    free(t->peers);
    free(t);
    return rv;
}

int coll_gpusym_team_dead(const coll_gpusym_team_t *t)
{
    for (uint32_t r = 0; r < t->nranks; r++) {
        if (r != t->rank && !coll_gpusym_peer_lives(t->peers[r])) {
            return (int) r;
        }
    }
    return -1;
}

bool coll_gpusym_team_meeting(const coll_gpusym_team_t *t)
{
    return t->step < STEP_MET;
}

void coll_gpusym_team_abort(coll_gpusym_team_t *t)
{
    if (t->has_line) {
        gpusym_line_abort(gpusym_pages_line(t->line_off));
    }
}

static int hello_start(coll_gpusym_team_t *t)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    if (!words_alloc(t, sizeof(hello_t))) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    hello_fill(t, gpusym_comm_label(t->fallback->comm, label, sizeof label), t->mine);
    return MPI_SUCCESS == exchange_start(t, t->mine, t->all, sizeof(hello_t)) ? STEP_HELLO : OMPI_ERROR;
}

/* Not all have mapped all lines. */
static void settle_unmapped(coll_gpusym_team_t *t)
{
    char detail[96];
    uint32_t r = 0;
    while (VOTE_YES == t->votes[r]) {
        r++;
    }
    const int reason = failed_to_open(r, t->votes[r] - (int)VOTE_YES, detail, sizeof detail);
    settle(t, reason, detail);
}

int coll_gpusym_team_meet(coll_gpusym_team_t *t)
{
    if (t->step >= STEP_MET) {
        return 1;
    }
    while (t->step < STEP_MET) {
        int next = STEP_NEW != t->step ? exchange_poll(t) : 1;
        if (1 != next) {
            return next;
        }
        if (STEP_NEW == t->step) {
            next = hello_start(t);
        } else if (STEP_HELLO == t->step) {
            next = team_join(t, t->all);
        } else {
            next = STEP_MET;
            t->joined = vote_result(t);
            if (!t->joined) {
                settle_unmapped(t);
            }
        }
        if (next < 0) {
            return next;
        }
        step_to(t, next);
    }
    words_free(t);
    coll_gpusym_peers_forget(t->peers, t->nranks); /* the roll-call watches by descriptors of its own */
    t->open = !t->none;
    return 1;
}

/* ---- second step ---- */

/* Makes sure of the process's heap on gpu. Returns a reason, or -1. */
static int heap_get(gpusym_gpu_t *gpu)
{
    static const int reasons[] = {
        [GPUSYM_LACK_NOTHING] = -1,
        [GPUSYM_LACK_MEMORY] = COLL_GPUSYM_R_NO_MEMORY,
        [GPUSYM_LACK_KERNELS] = COLL_GPUSYM_R_NO_KERNELS,
        [GPUSYM_LACK_DESCRIPTORS] = COLL_GPUSYM_R_NO_FD,
        [GPUSYM_LACK_OTHER_GPU] = COLL_GPUSYM_R_OTHER_GPU,
    };

    return reasons[gpusym_heap_need(gpu)];
}

/* Our part: GPU, heap, slot. What fails is told to all. */
static void gpu_hello_fill(coll_gpusym_team_t *t, const gpusym_mem_t *where, gpu_hello_t *h)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_gpu_info_t info;
    gpusym_gpu_t *gpu;

    memset(h, 0, sizeof *h);
    if (GPUSYM_SUCCESS != dev->gpu_open(where, &gpu)) {
        COLL_GPUSYM_VERBOSE(1, "rank %d of MPI_COMM_WORLD cannot use its GPU: %s",
                            coll_gpusym_params.world_rank, dev->error());
        h->reason = gpusym_fd_lack() ? COLL_GPUSYM_R_NO_FD : COLL_GPUSYM_R_NO_DEVICE;
        return;
    }
    __atomic_store_n(&t->gpu, gpu, __ATOMIC_RELEASE); /* the next call's thread may be describing that */
    dev->gpu_info(gpu, &info);
    snprintf(t->gpu_text, sizeof t->gpu_text, "%s, %s", info.name, info.where);
    h->reason = heap_get(t->gpu);
    if (h->reason < 0) {
        gpusym_heap_slot_offer(gpusym_heap(), &h->slots);
        h->heap_size = gpusym_heap_size(gpusym_heap());
        gpusym_heap_id(gpusym_heap(), &h->heap);
        h->epoch = gpusym_heap_epoch_floor(gpusym_heap());
        if (h->epoch < coll_gpusym_params.epoch_first) {
            h->epoch = coll_gpusym_params.epoch_first;
        }
    }
    h->sm_count = (uint32_t)info.sm_count;
    h->share_gpu = coll_gpusym_params.share_gpu;
    h->multicast = NULL != dev->mc_create && gpusym_multicast_allowed(gpusym_params.multicast, NULL);
    memcpy(h->uuid, info.uuid, sizeof h->uuid);
    h->place = info.place;
}

/* What the hellos forbid, the same on every rank; -1: nothing. */
static int gpu_hello_reason(const coll_gpusym_team_t *t, const gpu_hello_t *all, char *detail, size_t size)
{
    uint32_t a, b;
    bool share = true;
    for (uint32_t r = 0; r < t->nranks; r++) {
        if (all[r].reason >= 0) {
            snprintf(detail, size, "rank %u", r);
            return all[r].reason;
        }
        share = share && all[r].share_gpu;
    }
    if (!share && gpusym_team_shared_gpu(all[0].uuid, sizeof *all, t->nranks, &a, &b)) {
        snprintf(detail, size, "ranks %u and %u", a, b);
        return COLL_GPUSYM_R_SHARED_GPU;
    }
    return -1;
}

/* The largest class of slots that all ranks have offered; -1: none. */
static int slot_class(const coll_gpusym_team_t *t, const gpu_hello_t *all)
{
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        uint32_t r = 0;
        while (r < t->nranks && GPUSYM_SLOT_NONE != all[r].slots.off[c] && all[r].heap_size == all[0].heap_size) {
            r++;
        }
        if (r == t->nranks) {
            return (int)c;
        }
    }
    return -1;
}

/* The first epoch that no call has used yet. */
static uint32_t epoch_next(const coll_gpusym_team_t *t)
{
    const uint64_t epoch = t->epoch_base + t->rc.seq + 1;
    return epoch < GPUSYM_EPOCH_MAX ? (uint32_t)epoch : GPUSYM_EPOCH_MAX;
}

/* Takes a slot of the agreed class and divides it. False if there is none, or it is too small. */
static bool slot_take(coll_gpusym_team_t *t, const gpu_hello_t *all, int class)
{
    t->sm_count = all[0].sm_count;
    uint32_t epoch = all[0].epoch;
    for (uint32_t r = 0; r < t->nranks; r++) {
        t->sm_count = all[r].sm_count < t->sm_count ? all[r].sm_count : t->sm_count;
        epoch = all[r].epoch > epoch ? all[r].epoch : epoch;
    }
    t->epoch_base = epoch - t->rc.seq; /* all ranks are in the same call */
    gpusym_heap_slot_settle(gpusym_heap(), &all[t->rank].slots, class);
    if (class < 0) {
        return false;
    }
    t->has_slot = true;
    t->slot_class = class;
    t->slot_off = all[t->rank].slots.off[class];
    t->slot_size = gpusym_slot_size(all[0].heap_size, (unsigned)class);
    t->work.rank = t->rank;
    t->work.nranks = t->nranks;
    t->work.limit_ns = (uint64_t)(coll_gpusym_params.timeout * 1e9);
    t->max_blocks = gpusym_slot_layout(t->slot_size, t->nranks,
                                       gpusym_tuning_max_blocks(t->sm_count, gpusym_current.dev->simulated),
                                       &t->work);
    return 0 != t->max_blocks;
}

/* Classes of this rank's links, [nranks], as far as they matter: NVLinks that are alike count as one, whoever says so. So
 * where the driver alone tells that they are (NVSwitch), or there are but two ranks, nobody loads the topology. */
static void links_find(const coll_gpusym_team_t *t, const gpu_hello_t *all, uint8_t *link)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    uint8_t least = GPUSYM_LINK_SELF, most = GPUSYM_LINK_NONE; /* of links to other GPUs */
    bool told = true;
    for (uint32_t r = 0; r < t->nranks; r++) {
        const int class = r == t->rank ? (int)GPUSYM_LINK_SELF : dev->gpu_link(t->gpu, &all[r].place);
        told = told && class >= 0;
        link[r] = class >= 0 ? (uint8_t)class : GPUSYM_LINK_NUMA;
    }
    for (uint32_t r = 0; !told && t->nranks > 2 && r < t->nranks; r++) {
        const uint8_t class = gpusym_topo_link(&all[t->rank].place, &all[r].place);
        link[r] = class > link[r] ? class : link[r];
    }
    for (uint32_t r = 0; r < t->nranks; r++) {
        if (GPUSYM_LINK_SELF != link[r]) {
            least = link[r] < least ? link[r] : least;
            most = link[r] > most ? link[r] : most;
        }
    }
    for (uint32_t r = 0; least == most && least > GPUSYM_LINK_NVLINK && r < t->nranks; r++) {
        link[r] = GPUSYM_LINK_SELF != link[r] ? GPUSYM_LINK_NVLINK + 1 : GPUSYM_LINK_SELF;
    }
}

/* "255 4 4 0": classes of links, for messages. */
static const char *links_text(const coll_gpusym_team_t *t, const uint8_t *link, char *text, size_t size)
{
    size_t used = 0;
    for (uint32_t r = 0; r < t->nranks && used < size; r++) {
        used += (size_t)snprintf(text + used, size - used, "%s%u", 0 == r ? "" : " ", link[r]);
    }
    return text;
}

/* What a rank says of its link to itself: it has none to somebody, for want of a descriptor. */
#define LINK_NO_FD GPUSYM_LINK_NONE

/* The first rank that says so; -1: nobody. Makes these links what they are. */
static int links_lack(coll_gpusym_team_t *t)
{
    int first = -1;
    for (uint32_t r = 0; r < t->nranks; r++) {
        if (LINK_NO_FD == t->link[r][r]) {
            t->link[r][r] = GPUSYM_LINK_SELF;
            first = first < 0 ? (int)r : first;
        }
    }
    return first;
}

/* Maps the peers' slots. What cannot be is no link. */
static void slots_map(coll_gpusym_team_t *t, const gpu_hello_t *all)
{
    char text[4 * GPUSYM_TEAM_MAX + 1];
    const uint64_t start = gpusym_now_ns();
    bool lack = false;
    links_find(t, all, t->my_link);
    COLL_GPUSYM_VERBOSE(5, "rank %u: links to the team's GPUs: %s (%.1f ms)", t->rank,
                        links_text(t, t->my_link, text, sizeof text), 1e-6 * (double)(gpusym_now_ns() - start));
    for (uint32_t r = 0; r < t->nranks; r++) {
        void *base;
        if (!gpusym_slot_is(all[r].heap_size, (unsigned) t->slot_class, all[r].slots.off[t->slot_class])) {
            COLL_GPUSYM_VERBOSE(1, "rank %u: rank %u offers no slot at %lu", t->rank, r,
                                (unsigned long) all[r].slots.off[t->slot_class]);
            t->my_link[r] = GPUSYM_LINK_NONE;
        } else if (GPUSYM_SUCCESS == gpusym_heap_peer(gpusym_heap(), &all[r].heap, &base)) {
            t->work.peer[r] = (char *)base + all[r].slots.off[t->slot_class];
        } else {
            COLL_GPUSYM_VERBOSE(1, "rank %u cannot map the memory of rank %u: %s", t->rank, r,
                                gpusym_current.dev->error());
            t->my_link[r] = GPUSYM_LINK_NONE;
            lack = lack || gpusym_fd_lack();
        }
    }
    if (lack) {
        t->my_link[t->rank] = LINK_NO_FD;
    }
}

/* With what all ranks say of their links: who reaches whom, the smaller of both directions, the same on all. */
static void links_agree(coll_gpusym_team_t *t)
{
    uint8_t link[GPUSYM_TEAM_MAX * GPUSYM_TEAM_MAX] = {0}; /* [n][n] */
    uint32_t order[GPUSYM_PATHS_MAX * GPUSYM_TEAM_MAX];
    const uint32_t n = t->nranks;

    t->ll128 = true;
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = 0; b < n; b++) {
            const uint8_t class = t->link[a][b] < t->link[b][a] ? t->link[a][b] : t->link[b][a];
            t->link[a][b] = t->link[b][a] = link[a * n + b] = link[b * n + a] = class;
            t->ll128 = t->ll128 && (GPUSYM_LINK_NONE == class || class > GPUSYM_LINK_NVLINK);
        }
        if (GPUSYM_LINK_NONE == t->link[t->rank][a]) {
            t->work.peer[a] = NULL; /* perhaps it could not map ours */
        }
    }
    t->all_reach = gpusym_team_all_reach(link, n);
    t->nrings = gpusym_team_rings(link, n, GPUSYM_PATHS_MAX, order);
    for (uint32_t i = 0; i < t->nrings * n; i++) {
        t->ring[i / n][i % n] = (uint8_t)order[i];
    }
}

/* With everybody's GPU. Returns the next step, or a negative error. */
static int gpu_join(coll_gpusym_team_t *t, const gpu_hello_t *all)
{
    char detail[64] = "";
    int reason = gpu_hello_reason(t, all, detail, sizeof detail);
    const bool offered = all[t->rank].reason < 0;

    if (reason < 0 && !slot_take(t, all, slot_class(t, all))) {
        reason = COLL_GPUSYM_R_NO_MEMORY;
    } else if (reason >= 0 && offered) {
        gpusym_heap_slot_settle(gpusym_heap(), &all[t->rank].slots, -1);
    }
    if (reason >= 0) {
        settle(t, reason, detail);
        return STEP_DONE;
    }
    slots_map(t, all);
    return MPI_SUCCESS == exchange_start(t, t->my_link, t->link, sizeof t->my_link) ? STEP_GPU_LINKS : OMPI_ERROR;
}

static int gpu_start(coll_gpusym_team_t *t, const gpusym_mem_t *where)
{
    if (!words_alloc(t, sizeof(gpu_hello_t))) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    gpu_hello_fill(t, where, t->mine);
    return MPI_SUCCESS == exchange_start(t, t->mine, t->all, sizeof(gpu_hello_t)) ? STEP_GPU : OMPI_ERROR;
}

/* Multicast: with more than two ranks, where all may and can, and all slots have one offset in their heaps. */
static bool multicast_wanted(const coll_gpusym_team_t *t, const gpu_hello_t *all)
{
    bool wanted = t->nranks > 2 && t->all_reach;
    for (uint32_t r = 0; r < t->nranks; r++) {
        wanted = wanted && all[r].multicast && all[r].slots.off[t->slot_class] == all[0].slots.off[t->slot_class];
    }
    return wanted;
}

/* All have mapped whom they can. Returns the next step, or a negative error. */
static int gpu_joined(coll_gpusym_team_t *t)
{
    char name[GPUSYM_COMM_LABEL_MAX], detail[32];
    mc_hello_t *mine;

    const int lack = links_lack(t);
    links_agree(t);
    if (!t->all_reach && 0 == t->nrings) {
        snprintf(detail, sizeof detail, "rank %d", lack);
        settle(t, lack >= 0 ? COLL_GPUSYM_R_NO_FD : COLL_GPUSYM_R_UNREACHABLE, lack >= 0 ? detail : NULL);
        return STEP_DONE;
    }
    if (!t->all_reach) {
        t->no_zero_copy = true;
        COLL_GPUSYM_VERBOSE(1, "%s: not all GPUs reach each other: rings only (%u), no multicast, no zero copy",
                            gpusym_comm_label(t->fallback->comm, name, sizeof name), t->nrings);
    }
    COLL_GPUSYM_VERBOSE(5, "%s: rank %u on GPU %s: slot of %lu bytes, up to %u blocks, first epoch %u, %u rings",
                        gpusym_comm_label(t->fallback->comm, name, sizeof name), t->rank, t->gpu_text,
                        (unsigned long)t->slot_size, t->max_blocks, epoch_next(t) - 1, t->nrings);
    if (!multicast_wanted(t, t->all)) {
        return STEP_DONE;
    }
    words_free(t);
    if (!words_alloc(t, sizeof(mc_hello_t))) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    mine = t->mine;
    if (0 == t->rank) {
        mine->made = GPUSYM_SUCCESS == gpusym_multicast_create(gpusym_current.dev, gpusym_params.multicast,
                                                               t->gpu, t->nranks, t->slot_size, &t->mc, &mine->handle);
    }
    return MPI_SUCCESS == exchange_start(t, t->mine, t->all, sizeof(mc_hello_t)) ? STEP_MC : OMPI_ERROR;
}

/* Rank 0 has made the object, or not: join it and bind our slot. Returns the next step, or a negative error. */
static int mc_join(coll_gpusym_team_t *t, const mc_hello_t *all)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    bool bound = 0 != all[0].made && (0 == t->rank || GPUSYM_SUCCESS == dev->mc_import(t->gpu, &all[0].handle, &t->mc));
    bound = bound && GPUSYM_SUCCESS == dev->mc_bind(t->mc, t->rank, t->work.peer[t->rank], t->slot_size, &t->work.mc);
    return MPI_SUCCESS == vote_start(t, bound) ? STEP_MC_VOTE : OMPI_ERROR;
}

static void mc_leave(coll_gpusym_team_t *t)
{
    if (NULL != t->mc) {
        gpusym_current.dev->mc_free(t->mc);
    }
    t->mc = NULL;
    t->work.mc = NULL;
}

static int mc_joined(coll_gpusym_team_t *t)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    const bool all = vote_result(t);
    if (!all) {
        mc_leave(t);
    }
    COLL_GPUSYM_VERBOSE(1, "%s: %s", gpusym_comm_label(t->fallback->comm, name, sizeof name),
                        all ? "multicast is used" : "no multicast: a rank could not make, join or bind the object");
    return STEP_DONE;
}

/* The end of the second step, well or not. */
static void gpu_settled(coll_gpusym_team_t *t, bool failed)
{
    if (failed && STEP_GPU == t->step && NULL != t->mine && ((gpu_hello_t *)t->mine)->reason < 0) {
        gpusym_heap_slot_settle(gpusym_heap(), &((gpu_hello_t *)t->mine)->slots, -1);
    }
    if (t->has_slot && (failed || t->reason >= 0)) {
        gpusym_heap_slot_free(gpusym_heap(), t->slot_off, epoch_next(t));
        t->has_slot = false;
    }
    words_free(t);
}

int coll_gpusym_team_gpu(coll_gpusym_team_t *t, const gpusym_mem_t *where)
{
    while (t->step < STEP_DONE) {
        int next = STEP_MET != t->step ? exchange_poll(t) : 1;
        if (0 == next) {
            return 0;
        }
        if (1 == next) {
            next = STEP_MET == t->step        ? gpu_start(t, where)
                   : STEP_GPU == t->step      ? gpu_join(t, t->all)
                   : STEP_GPU_LINKS == t->step ? gpu_joined(t)
                   : STEP_MC == t->step       ? mc_join(t, t->all)
                                              : mc_joined(t);
        }
        if (next < 0) {
            gpu_settled(t, true);
            return next;
        }
        step_to(t, next);
        if (STEP_DONE == next) {
            gpu_settled(t, false);
        }
    }
    return 1;
}

bool coll_gpusym_team_owns(coll_gpusym_team_t *t, const gpusym_mem_t *mem)
{
    gpusym_gpu_t *gpu, *ours = __atomic_load_n(&t->gpu, __ATOMIC_ACQUIRE); /* another thread's progress may set it */
    if (mem->gpu == t->mem_gpu && mem->context == t->mem_context) {
        return true;
    }
    if (GPUSYM_MEM_MANAGED == mem->kind || GPUSYM_MEM_REGISTERED == mem->kind) {
        return true; /* every GPU reaches them */
    }
    if (NULL == ours) {
        ours = NULL != gpusym_heap() ? gpusym_heap_gpu(gpusym_heap()) : NULL;
    }
    if (NULL == ours) {
        return true; /* the heap will be made where this memory is */
    }
    if (GPUSYM_SUCCESS != gpusym_current.dev->gpu_open(mem, &gpu) || gpu != ours) {
        return false;
    }
    t->mem_gpu = mem->gpu;
    t->mem_context = mem->context;
    return true;
}

int coll_gpusym_team_epochs(coll_gpusym_team_t *t, uint64_t epochs, uint32_t *first)
{
    const uint64_t epoch = t->epoch_base + t->rc.seq;
    if (epoch + epochs > GPUSYM_EPOCH_MAX) {
        /* Old flags would look like new ones: clear the slots while nobody writes to them. */
        const int arrived = t->fallback->saved.barrier(t->fallback->comm, t->fallback->saved.barrier_module);
        const int cleared = gpusym_current.dev->mem_zero(t->gpu, t->work.peer[t->rank], t->slot_size);
        const int left = t->fallback->saved.barrier(t->fallback->comm, t->fallback->saved.barrier_module); /* whatever failed: the others are in it */
        if (MPI_SUCCESS != arrived || GPUSYM_SUCCESS != cleared || MPI_SUCCESS != left) {
            return MPI_ERR_OTHER;
        }
        t->epoch_base = 1 - t->rc.seq;
    }
    *first = (uint32_t)(t->epoch_base + t->rc.seq);
    t->epoch_base += epochs - 1; /* the next call's number is one more */
    return MPI_SUCCESS;
}

/* ---- end ---- */

void coll_gpusym_team_free(coll_gpusym_team_t *t)
{
    if (NULL == t) {
        return;
    }
    mc_leave(t);
    gpusym_sweep(); /* buffers that the program freed keep no memory at peers, nor theirs here */
    /* The slot of a team that failed is not used again: a kernel may still write there, here or in a peer. */
    if (t->has_slot && NULL != gpusym_heap() && !t->broken) {
        gpusym_heap_slot_free(gpusym_heap(), t->slot_off, epoch_next(t));
    }
    if (t->joined) {
        gpusym_rollcall_retire(&t->rc, t->line_off); /* peers may still be in our last call */
    } else if (t->has_line && !t->broken) {         /* broken: who comes late reads that we gave up */
        gpusym_pages_free(t->line_off); /* known to all: nobody reads it */
    }
    free(t->rc.line);
    free(t->rc.generation);
    free(t->rc.peer);
    free(t->rc.order);
    free(t->peers);
    if (NULL != t->exchange && !REQUEST_COMPLETE(t->exchange)) {
        return; /* a rank never came: the previous module may still read and write what is in there */
    }
    words_free(t);
    free(t->votes);
    free(t);
}
