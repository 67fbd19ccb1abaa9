/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The second step of a team: see join.h.
 *
 * Every step is: decide locally, tell all, decide alike.  A peer's memory that a rank cannot map is a link that is not
 * there, and rings may go round it.
 */
#include "mca/coll/gpusym/team/join.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/plan.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/exchange.h"
#include "mca/coll/gpusym/team/hosts.h"
#include "mca/coll/gpusym/team/multicast.h"
#include "mca/coll/gpusym/team/rails.h"
#include "mca/coll/gpusym/team/rules.h"
#include "mca/coll/gpusym/team/tuner.h"
#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/p2p/send_desc.h"
#include "mca/common/gpusym/shm/fd.h"
#include "mca/common/gpusym/topo/links.h"
#include "mca/common/gpusym/topo/rings.h"
#include "tuning/geometry.h"
#include "tuning/tuning.h"

/* What ranks tell each other of their GPUs. */
typedef struct {
    gpusym_heap_id_t heap;
    gpusym_slot_offer_t slots;
    uint64_t heap_size;
    uint8_t uuid[16];
    gpusym_place_t place;
    uint32_t epoch, sm_count, clusters; /* clusters: gpusym_gpu_info_t's */
    uint32_t crowded;                   /* another process uses its GPU */
    uint64_t mps[2];                    /* device and inode of the folder of its MPS daemon; 0, 0: it uses none */
    uint32_t multicast;                 /* enum coll_gpusym_mc */
    coll_gpusym_mc_passed_t passed;
    uint64_t mc;    /* id of the multicast object of the slab of its slots; 0: it has none */
    uint64_t rules; /* hash of its rules; 0: it has none */
    uint64_t tuner; /* hash of its tuner plug-in's name; 0: it has none */
    int32_t reason; /* why this rank cannot; -1: it can */
    uint32_t rails; /* of several islands: coll_gpusym_hosts_reserve() */
} gpu_address_t;

_Static_assert(sizeof(gpu_address_t) <= GPUSYM_NOTICE_MAX,
               "ranks of an island tell each other of their GPUs by notices");

/* Makes sure of the process's heap on gpu. Returns a reason, or -1. */
static int need_heap(gpusym_gpu_t *gpu)
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

/* Another process uses this process's GPU: set once, for good. */
static bool crowded;

static void note_crowded(gpusym_gpu_t *gpu)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    __atomic_store_n(&crowded, true, __ATOMIC_RELAXED);
    if (NULL != dev->gpu_crowded) {
        dev->gpu_crowded(gpu);
    }
}

/* Calls between two looks at which GPUs the processes of this host use. */
#define LOOK_CALLS 64u

bool coll_gpusym_team_crowded(coll_gpusym_team_t *t)
{
    gpusym_gpu_info_t info;
    if (!__atomic_load_n(&crowded, __ATOMIC_RELAXED) && NULL != t->host.gpu && t->host.rc.seq >= t->host.look_at) {
        t->host.look_at = t->host.rc.seq + LOOK_CALLS;
        gpusym_current.dev->gpu_info(t->host.gpu, &info);
        if (gpusym_send_descs_gpu_shared(info.uuid)) {
            note_crowded(t->host.gpu);
        }
    }
    return __atomic_load_n(&crowded, __ATOMIC_RELAXED);
}

/* Names the MPS daemon of this process by its folder. */
static void name_mps(const gpusym_gpu_info_t *info, uint64_t *mps)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct stat st;
    int rv;
    if (!info->mps || gpusym_current.dev->simulated) {
        mps[1] = info->mps; /* of a simulated daemon there is one */
        return;
    }
    GPUSYM_RESTART(rv, stat(NULL != folder ? folder : "/tmp/nvidia-mps", &st));
    if (0 == rv) {
        mps[0] = (uint64_t) st.st_dev;
        mps[1] = (uint64_t) st.st_ino;
    }
}

/* Ranks that share a GPU by MPS take no more memory for each communicator, since kernels do short calls only. */
static void offer_slots(gpu_address_t *h)
{
    gpusym_heap_t *heap = gpusym_heap();
    gpusym_heap_mc_t mc;
    if (h->crowded && 0 != h->mps[1]) {
        gpusym_heap_slot_offer_sparing(heap, &h->slots);
    } else {
        gpusym_heap_slot_offer(heap, &h->slots);
    }
    gpusym_heap_id(heap, (unsigned) h->slots.slab, &h->heap);
    gpusym_heap_mc_get(heap, h->slots.slab, &mc);
    h->mc = mc.id;
    h->epoch = gpusym_heap_epoch_floor(heap);
    if (h->epoch < coll_gpusym_params.epoch_first) {
        h->epoch = coll_gpusym_params.epoch_first;
    }
}

/* This rank's part: GPU, heap, slot. A failure is sent to all ranks. */
static void describe_gpu(coll_gpusym_team_t *t, const gpusym_mem_t *where, gpu_address_t *h)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_gpu_info_t info;
    gpusym_gpu_t *gpu;

    memset(h, 0, sizeof *h);
    if (GPUSYM_SUCCESS != dev->gpu_open(where, &gpu)) {
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD cannot use its GPU: %s", coll_gpusym_params.world_rank, dev->error());
        h->reason = gpusym_fd_lack() ? COLL_GPUSYM_R_NO_FD : COLL_GPUSYM_R_NO_DEVICE;
        return;
    }
    __atomic_store_n(&t->host.gpu, gpu, __ATOMIC_RELEASE); /* the next call's thread may be describing that */
    dev->gpu_info(gpu, &info);
    snprintf(t->host.gpu_text, sizeof t->host.gpu_text, "%s, %s", info.name, info.where);
    gpusym_send_descs_use_gpu(info.uuid);
    if (gpusym_send_descs_gpu_shared(info.uuid)) {
        note_crowded(gpu);
    }
    h->crowded = __atomic_load_n(&crowded, __ATOMIC_RELAXED);
    name_mps(&info, h->mps);
    h->reason = need_heap(t->host.gpu);
    if (h->reason < 0 && coll_gpusym_team_is_part(t)) {
        h->rails = coll_gpusym_hosts_reserve(t);
    } else if (h->reason < 0) {
        offer_slots(h);
        h->heap_size = gpusym_heap_size(gpusym_heap());
        h->rules = coll_gpusym_rules_open(t, info.name, info.cc);
        h->tuner = coll_gpusym_tuner_open(t, info.name, info.cc);
    }
    h->sm_count = (uint32_t) info.sm_count;
    h->clusters = info.clusters;
    h->multicast = coll_gpusym_mc_offer(t, info.multicast);
    coll_gpusym_mc_passed(&h->passed);
    memcpy(h->uuid, info.uuid, sizeof h->uuid);
    h->place = info.place;
}

/* Notes whether another rank uses this rank's GPU. Returns whether leaders are to do all calls, since a rank's GPU is
 * crowded; the same on all ranks. */
static bool note_crowd(coll_gpusym_team_t *t, const gpu_address_t *all)
{
    const gpu_address_t *mine = &all[t->host.rank];
    uint32_t a, b;
    bool any = false;
    t->host.mps = 0 != all[0].mps[1];
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        any = any || all[r].crowded;
        t->host.mps = t->host.mps && 0 == memcmp(all[r].mps, all[0].mps, sizeof all[0].mps);
        if (&all[r] != mine && NULL != t->host.gpu && 0 == memcmp(all[r].uuid, mine->uuid, sizeof mine->uuid)) {
            note_crowded(t->host.gpu);
        }
    }
    const bool shared = gpusym_team_shared_gpu(all[0].uuid, sizeof *all, t->host.nranks, &a, &b);
    t->host.beside = shared && t->host.mps;
    return !t->host.mps && (any || shared);
}

/* What the ranks' GPUs forbid, the same on every rank; -1: nothing. */
static int judge_gpus(const coll_gpusym_team_t *t, const gpu_address_t *all, char *detail, size_t size)
{
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        if (all[r].reason >= 0) {
            snprintf(detail, size, "rank %u", coll_gpusym_team_member(t, r));
            return all[r].reason;
        }
    }
    return -1;
}

/* The smallest slot that a rank has offered, for its ticket; -1: none. */
static int find_ticket_class(const gpu_address_t *h)
{
    int class = (int) GPUSYM_SLOT_CLASSES - 1;
    while (class >= 0 && GPUSYM_SLOT_NONE == h->slots.off[class]) {
        class --;
    }
    return class;
}

/* Finds each rank's leader: the lowest rank of its GPU. Returns a reason, the same on every rank, or -1. */
static int find_leaders(coll_gpusym_team_t *t, const gpu_address_t *all, char *detail, size_t size)
{
    uint16_t *leader = t->host.leader;
    uint32_t ranks[COLL_GPUSYM_LED_MAX] = {0}; /* of each leader's GPU */
    t->host.nleaders = t->host.per_gpu = 0;
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        uint32_t l = 0;
        while (0 != memcmp(all[l].uuid, all[r].uuid, sizeof all[r].uuid)) {
            l++;
        }
        leader[r] = (uint16_t) l;
        ranks[l]++;
        t->host.per_gpu = ranks[l] > t->host.per_gpu ? ranks[l] : t->host.per_gpu;
        if (l != r) {
            continue;
        }
        if (r == t->host.rank) {
            t->host.leader_index = t->host.nleaders;
        }
        t->host.nleaders++;
        if (find_ticket_class(&all[r]) < 0) {
            snprintf(detail, size, "rank %u", coll_gpusym_team_member(t, r));
            return COLL_GPUSYM_R_NO_MEMORY;
        }
    }
    if (leader[t->host.rank] != t->host.rank) {
        t->host.leader_index = t->host.nleaders;
    }
    return -1;
}

void coll_gpusym_team_lead(coll_gpusym_team_t *t)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    t->host.led = true;
    t->host.beside = false;
    GPUSYM_LOG(2, "%s: rank %u: another process uses the GPU of a rank: no kernel waits from now on",
               gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_team_rank(t));
}

/* The longest call that is short, in bytes. */
static uint64_t find_short(const coll_gpusym_team_t *t)
{
    const uint64_t most = gpusym_tuning_beside_max(t->host.nranks, t->host.max_blocks);
    const uint64_t lines = gpusym_ll_payload(t->host.work.ll_bytes); /* of one epoch */
    return most < lines ? most : lines;
}

bool coll_gpusym_team_is_short(const coll_gpusym_team_t *t, uint64_t bytes)
{
    return bytes <= find_short(t);
}

/* Once. */
static void tell_ignored(void)
{
    static bool told;
    if (coll_gpusym_params.share_gpu && !__atomic_exchange_n(&told, true, __ATOMIC_RELAXED)) {
        GPUSYM_LOG(2, "rank %d of MPI_COMM_WORLD: coll_gpusym_share_gpu is ignored: leaders run the kernels",
                   coll_gpusym_params.world_rank);
    }
}

/* Ranks share a GPU: a leader keeps a slot, the others keep none. Nothing can fail here on one rank alone. */
static void settle_leaders(coll_gpusym_team_t *t, const gpu_address_t *all)
{
    const gpu_address_t *mine = &all[t->host.rank];
    char name[GPUSYM_COMM_LABEL_MAX];
    const int class = t->host.leader_index < t->host.nleaders ? find_ticket_class(mine) : -1;

    tell_ignored();
    gpusym_heap_slot_settle(gpusym_heap(), &mine->slots, class);
    t->host.led = t->host.all_reach = true;
    t->host.beside = false;
    t->host.sm_count = mine->sm_count;
    t->host.epoch_base = 1 - t->host.rc.seq;
    if (class >= 0) {
        void *base = NULL;
        (void) gpusym_heap_peer(gpusym_heap(), &mine->heap, mine->heap_size, &base); /* our own: it is there */
        t->host.has_slot = true;
        t->host.slot_slab = mine->slots.slab;
        t->host.slot_off = mine->slots.off[class];
        t->host.ticket = (char *) base + t->host.slot_off;
    }
    GPUSYM_LOG(2, "%s: rank %u: ranks share GPUs: its leader is rank %u, one of %u leaders",
               gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_team_rank(t),
               coll_gpusym_team_member(t, t->host.leader[t->host.rank]), t->host.nleaders);
}

/* The largest class of slots that all ranks have offered; -1: none. */
static int agree_slot_class(const coll_gpusym_team_t *t, const gpu_address_t *all)
{
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        uint32_t r = 0;
        while (r < t->host.nranks && GPUSYM_SLOT_NONE != all[r].slots.off[c] && all[r].heap_size == all[0].heap_size) {
            r++;
        }
        if (r == t->host.nranks) {
            return (int) c;
        }
    }
    return -1;
}

/* Takes a slot of the agreed class and divides it. False if there is none, or it is too small. */
static bool take_slot(coll_gpusym_team_t *t, const gpu_address_t *all, int class)
{
    t->host.sm_count = all[0].sm_count;
    t->host.clusters = true;
    uint32_t epoch = all[0].epoch;
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        t->host.sm_count = all[r].sm_count < t->host.sm_count ? all[r].sm_count : t->host.sm_count;
        t->host.clusters = t->host.clusters && 0 != all[r].clusters;
        epoch = all[r].epoch > epoch ? all[r].epoch : epoch;
    }
    t->host.epoch_base = epoch - t->host.rc.seq; /* all ranks are in the same call */
    gpusym_heap_slot_settle(gpusym_heap(), &all[t->host.rank].slots, class);
    if (class < 0) {
        return false;
    }
    t->host.has_slot = true;
    t->host.slot_class = class;
    t->host.slot_slab = all[t->host.rank].slots.slab;
    t->host.slot_off = all[t->host.rank].slots.off[class];
    t->host.slot_size = gpusym_slot_size(all[0].heap_size, (unsigned) class);
    t->host.work.rank = t->host.rank;
    t->host.work.nranks = t->host.nranks;
    t->host.work.limit_ns = (uint64_t) (coll_gpusym_params.timeout * 1e9);
    t->host.max_blocks =
        gpusym_slot_layout(t->host.slot_size, t->host.nranks,
                           gpusym_tuning_max_blocks(t->host.sm_count, gpusym_current.dev->simulated), &t->host.work);
    if (t->host.beside) {
        const uint32_t most = gpusym_tuning_beside_blocks(t->host.sm_count, t->host.per_gpu);
        t->host.max_blocks = most < t->host.max_blocks ? most : t->host.max_blocks;
    }
    t->host.clusters =
        t->host.clusters && (!t->host.mps || (t->host.beside && t->host.max_blocks >= GPUSYM_CLUSTER_BLOCKS));
    return 0 != t->host.max_blocks;
}

/* Classes of this rank's links, [nranks], as far as they matter: equal NVLinks have one class, from whichever source.
 * So no rank loads the topology where the driver alone shows that all are equal (NVSwitch), or where there are two
 * ranks. */
static void find_links(const coll_gpusym_team_t *t, const gpu_address_t *all, uint8_t *link)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    uint8_t least = GPUSYM_LINK_SELF, most = GPUSYM_LINK_NONE; /* of links to other GPUs */
    bool known = true;                                         /* the driver knows all classes */
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        const int class = r == t->host.rank ? (int) GPUSYM_LINK_SELF : dev->gpu_link(t->host.gpu, &all[r].place);
        known = known && class >= 0;
        link[r] = class >= 0 ? (uint8_t) class : GPUSYM_LINK_NUMA;
    }
    for (uint32_t r = 0; !known && t->host.nranks > 2 && r < t->host.nranks; r++) {
        const uint8_t class = gpusym_topo_link(&all[t->host.rank].place, &all[r].place);
        link[r] = class > link[r] ? class : link[r];
    }
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        if (GPUSYM_LINK_SELF != link[r]) {
            least = link[r] < least ? link[r] : least;
            most = link[r] > most ? link[r] : most;
        }
    }
    for (uint32_t r = 0; least == most && least > GPUSYM_LINK_NVLINK && r < t->host.nranks; r++) {
        link[r] = GPUSYM_LINK_SELF != link[r] ? GPUSYM_LINK_NVLINK + 1 : GPUSYM_LINK_SELF;
    }
}

/* "255 4 4 0": classes of links, for messages. */
static const char *describe_links(const coll_gpusym_team_t *t, const uint8_t *link, char *text, size_t size)
{
    size_t used = 0;
    for (uint32_t r = 0; r < t->host.nranks && used < size; r++) {
        used += (size_t) snprintf(text + used, size - used, "%s%u", 0 == r ? "" : " ", link[r]);
    }
    return text;
}

/* The class of a rank's link to itself where it lacks a link to a peer because it has no file descriptor left. */
#define LINK_NO_FD GPUSYM_LINK_NONE

/* ... and where it cannot map virtual memory of one. */
#define LINK_NO_VMM (GPUSYM_LINK_SELF - 1u)

/* Returns the first rank with LINK_NO_FD; -1: none. Resets these links to GPUSYM_LINK_SELF. */
static int find_lack(coll_gpusym_team_t *t)
{
    int first = -1;
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        if (LINK_NO_FD == t->host.link[r][r]) {
            t->host.link[r][r] = GPUSYM_LINK_SELF;
            first = first < 0 ? (int) r : first;
        }
    }
    return first;
}

/* Maps the peers' slots. What cannot be is no link. */
static void map_slots(coll_gpusym_team_t *t, const gpu_address_t *all)
{
    char text[4 * GPUSYM_TEAM_MAX + 1];
    const uint64_t start = gpusym_now_ns();
    bool lack = false, no_vmm = false;
    find_links(t, all, t->boot.my_link);
    GPUSYM_LOG(5, "rank %u: links to the team's GPUs: %s (%.1f ms)", coll_gpusym_team_rank(t),
               describe_links(t, t->boot.my_link, text, sizeof text), 1e-6 * (double) (gpusym_now_ns() - start));
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        void *base;
        if (!gpusym_slot_is(all[r].heap_size, (unsigned) t->host.slot_class, all[r].slots.off[t->host.slot_class])) {
            GPUSYM_LOG(2, "rank %u: rank %u offers no slot at %lu", coll_gpusym_team_rank(t),
                       coll_gpusym_team_member(t, r), (unsigned long) all[r].slots.off[t->host.slot_class]);
            t->boot.my_link[r] = GPUSYM_LINK_NONE;
            continue;
        }
        const int rc = gpusym_heap_peer(gpusym_heap(), &all[r].heap, all[r].heap_size, &base);
        if (GPUSYM_SUCCESS == rc) {
            t->host.work.peer[r] = (char *) base + all[r].slots.off[t->host.slot_class];
            t->host.ticket = r == t->host.rank ? t->host.work.peer[r] : t->host.ticket;
        } else {
            GPUSYM_LOG(2, "rank %u cannot map the memory of rank %u: %s", coll_gpusym_team_rank(t),
                       coll_gpusym_team_member(t, r),
                       GPUSYM_ERR_CORRUPT == rc ? "there is less than the rank says" : gpusym_current.dev->error());
            t->boot.my_link[r] = GPUSYM_LINK_NONE;
            lack = lack || gpusym_fd_lack();
            no_vmm = no_vmm || all[r].heap.vmm;
        }
    }
    if (no_vmm || lack) {
        t->boot.my_link[t->host.rank] = no_vmm ? LINK_NO_VMM : LINK_NO_FD;
    }
}

/* With what all ranks say of their links: which ranks reach which, the smaller of both directions, the same on all. */
static void agree_links(coll_gpusym_team_t *t)
{
    uint8_t link[GPUSYM_TEAM_MAX * GPUSYM_TEAM_MAX] = {0}; /* [n][n] */
    uint32_t order[GPUSYM_PATHS_MAX * GPUSYM_TEAM_MAX];
    const uint32_t n = t->host.nranks;

    t->host.ll128 = true;
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = 0; b < n; b++) {
            const uint8_t class = t->host.link[a][b] < t->host.link[b][a] ? t->host.link[a][b] : t->host.link[b][a];
            t->host.link[a][b] = t->host.link[b][a] = link[a * n + b] = link[b * n + a] = class;
            t->host.ll128 = t->host.ll128 && (GPUSYM_LINK_NONE == class || class > GPUSYM_LINK_NVLINK);
        }
        if (GPUSYM_LINK_NONE == t->host.link[t->host.rank][a]) {
            t->host.work.peer[a] = NULL; /* perhaps it could not map ours */
        }
    }
    t->host.all_reach = gpusym_team_all_reach(link, n);
    t->host.nrings = gpusym_team_rings(link, n, GPUSYM_PATHS_MAX, order);
    for (uint32_t i = 0; i < t->host.nrings * n; i++) {
        t->host.ring[i / n][i % n] = (uint8_t) order[i];
    }
}

/* Some ranks offer slots on virtual memory and others do not; the same on all ranks. */
static bool offers_differ(const coll_gpusym_team_t *t, const gpu_address_t *all)
{
    bool differ = false;
    for (uint32_t r = 1; r < t->host.nranks; r++) {
        differ = differ || all[r].heap.vmm != all[0].heap.vmm;
    }
    return differ;
}

/* The first rank that cannot map a peer's virtual memory; -1: none. */
static int find_unmapped(const coll_gpusym_team_t *t)
{
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        if (LINK_NO_VMM == t->host.link[r][r]) {
            return (int) r;
        }
    }
    return -1;
}

/* All ranks have given their slots back, and offer others, none of which is on virtual memory: so this is done once. */
static int offer_again(coll_gpusym_team_t *t)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    GPUSYM_LOG(2, "%s: rank %u: a rank cannot make or map virtual memory: the symmetric heap is made without it",
               gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_team_rank(t));
    gpusym_heap_refuse_vmm(gpusym_heap());
    offer_slots(t->boot.mine);
    coll_gpusym_team_step(t, COLL_GPUSYM_STEP_GPU);
    return MPI_SUCCESS == coll_gpusym_exchange_start(t, t->boot.mine, t->boot.all, sizeof(gpu_address_t))
               ? COLL_GPUSYM_STEP_GPU
               : OMPI_ERROR;
}

/* Nobody has launched anything yet: slot and mappings are given back as if they had not been. */
static void leave_slots(coll_gpusym_team_t *t, const gpu_address_t *all)
{
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        if (NULL != t->host.work.peer[r]) {
            gpusym_heap_unpeer(gpusym_heap(), &all[r].heap);
        }
        t->host.work.peer[r] = NULL;
    }
    t->host.ticket = NULL;
    gpusym_heap_slot_free(gpusym_heap(), t->host.slot_slab, t->host.slot_off, coll_gpusym_team_next_epoch(t), 0);
    t->host.has_slot = false;
}

/* An island among others: its members do their calls as leaders do those of a shared GPU, each for its rails. No member
 * keeps a slot. */
static int settle_island(coll_gpusym_team_t *t, const gpu_address_t *all)
{
    char detail[96] = "", name[GPUSYM_COMM_LABEL_MAX];
    int reason = judge_gpus(t, all, detail, sizeof detail);
    unsigned rails = COLL_GPUSYM_HOSTS_RAILS | COLL_GPUSYM_HOSTS_ALL;
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        rails &= all[r].rails;
        t->host.leader[r] = (uint16_t) r;
        if (reason < 0 && 0 == (all[r].rails & COLL_GPUSYM_HOSTS_RAILS)) {
            snprintf(detail, sizeof detail, "rank %u: %s", coll_gpusym_team_member(t, r),
                     0 == (all[r].rails & COLL_GPUSYM_HOSTS_PINNED) ? "it cannot be pinned"
                                                                    : "coll_gpusym_net_size is too small");
            reason = COLL_GPUSYM_R_NO_NET_MEMORY;
        }
    }
    if (reason >= 0) {
        coll_gpusym_team_settle(t, reason, detail);
        return COLL_GPUSYM_STEP_DONE;
    }
    t->rails = rails;
    t->host.led = t->host.all_reach = true;
    t->host.nleaders = t->host.nranks;
    t->host.leader_index = t->host.rank;
    t->host.sm_count = all[t->host.rank].sm_count;
    t->host.epoch_base = 1 - t->host.rc.seq;
    GPUSYM_LOG(2, "%s: rank %u: island %u of %u, member %u of %u: it is set up",
               gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_team_rank(t), t->island,
               t->islands.nislands, t->host.rank, t->host.nranks);
    return COLL_GPUSYM_STEP_DONE;
}

/* With everybody's GPU. Returns the next step, or a negative error. */
static int join_gpus(coll_gpusym_team_t *t, const gpu_address_t *all)
{
    if (coll_gpusym_team_is_part(t)) {
        return settle_island(t, all);
    }
    char detail[64] = "";
    int reason = judge_gpus(t, all, detail, sizeof detail);
    const bool offered = all[t->host.rank].reason < 0;
    const bool led = note_crowd(t, all);

    if (reason < 0) {
        reason = find_leaders(t, all, detail, sizeof detail);
    }
    const int class = reason < 0 && !led ? agree_slot_class(t, all) : -1;
    if (reason < 0 && (led || (t->host.beside && class < 0))) {
        settle_leaders(t, all);
        return COLL_GPUSYM_STEP_DONE;
    }
    if (class >= 0 && offers_differ(t, all)) {
        gpusym_heap_slot_settle(gpusym_heap(), &all[t->host.rank].slots, -1);
        return offer_again(t);
    }
    if (reason < 0 && !take_slot(t, all, class)) {
        reason = COLL_GPUSYM_R_NO_MEMORY;
    } else if (reason >= 0 && offered) {
        gpusym_heap_slot_settle(gpusym_heap(), &all[t->host.rank].slots, -1);
    }
    if (reason >= 0) {
        coll_gpusym_team_settle(t, reason, detail);
        return COLL_GPUSYM_STEP_DONE;
    }
    coll_gpusym_rules_agree(t, &all->rules, sizeof *all);
    coll_gpusym_tuner_agree(t, &all->tuner, sizeof *all);
    map_slots(t, all);
    return MPI_SUCCESS == coll_gpusym_exchange_start(t, t->boot.my_link, t->host.link, sizeof t->boot.my_link)
               ? COLL_GPUSYM_STEP_GPU_LINKS
               : OMPI_ERROR;
}

static int start_gpus(coll_gpusym_team_t *t, const gpusym_mem_t *where)
{
    if (!coll_gpusym_exchange_alloc(t, sizeof(gpu_address_t))) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    describe_gpu(t, where, t->boot.mine);
    return MPI_SUCCESS == coll_gpusym_exchange_start(t, t->boot.mine, t->boot.all, sizeof(gpu_address_t))
               ? COLL_GPUSYM_STEP_GPU
               : OMPI_ERROR;
}

/* Multicast: with more than two ranks, where all may and can, and all slots have one offset in their heaps. Returns how
 * all do it, enum coll_gpusym_mc. */
static uint32_t agree_multicast(const coll_gpusym_team_t *t, const gpu_address_t *all)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    const char *lack = t->host.nranks <= 2                                  ? "there are fewer than 3 ranks"
                       : t->host.beside                                     ? "ranks share a GPU"
                       : !t->host.all_reach                                 ? "not all GPUs reach each other"
                       : !gpusym_current.dev->simulated && !all[0].heap.vmm ? "it needs coll_gpusym_heap_vmm=1"
                                                                            : NULL;
    uint32_t most = COLL_GPUSYM_MC_NOT, least = COLL_GPUSYM_MC_TRIED;
    for (uint32_t r = 0; r < t->host.nranks; r++) {
        most = all[r].multicast > most ? all[r].multicast : most;
        least = all[r].multicast < least ? all[r].multicast : least;
        if (NULL == lack && all[r].slots.off[t->host.slot_class] != all[0].slots.off[t->host.slot_class]) {
            lack = "the ranks' slots are at different places of their heaps";
        }
    }
    if (NULL == lack && COLL_GPUSYM_MC_NOT == least) {
        lack = "a rank may not, or its GPU or driver has none";
    }
    if (NULL != lack && COLL_GPUSYM_MC_TRIED == most) {
        GPUSYM_LOG(2, "%s: no multicast: %s", gpusym_comm_label(t->fallback->comm, name, sizeof name), lack);
    }
    return NULL != lack ? COLL_GPUSYM_MC_NOT : most;
}

/* The multicast object of the slabs that the ranks' slots lie in, if it is one and the same; 0: it is not. */
static uint64_t find_common_mc(const coll_gpusym_team_t *t, const gpu_address_t *all)
{
    uint32_t r = 0;
    while (r < t->host.nranks && all[r].mc == all[0].mc) {
        r++;
    }
    return r == t->host.nranks ? all[0].mc : 0;
}

/* What comes behind the links: multicast, if all may and can. Returns the next step, or a negative error. */
static int start_multicast(coll_gpusym_team_t *t, const gpu_address_t *all)
{
    const uint32_t mc = agree_multicast(t, all);
    const uint64_t common = find_common_mc(t, all);
    const bool requested = COLL_GPUSYM_MC_TRIED == mc;
    if (COLL_GPUSYM_MC_NOT == mc || (0 != common && coll_gpusym_mc_take(t, requested, common))) {
        return COLL_GPUSYM_STEP_DONE;
    }
    return coll_gpusym_mc_start(t, requested,
                                requested && !coll_gpusym_mc_passed_one(&all->passed, sizeof *all, t->host.nranks));
}

/* Ranks share GPUs by MPS, and the links are known. */
static void settle_beside(coll_gpusym_team_t *t)
{
    char name[GPUSYM_COMM_LABEL_MAX], calls[64] = "all calls: not all ranks reach each other's memory";
    if (t->host.all_reach) {
        snprintf(calls, sizeof calls, "calls of more than %lu bytes", (unsigned long) find_short(t));
    }
    t->host.led = !t->host.all_reach;
    t->host.beside = t->host.all_reach;
    t->host.all_reach = true; /* leaders use buffers alone */
    GPUSYM_LOG(2, "%s: rank %u: ranks share GPUs by MPS: leaders do %s",
               gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_team_rank(t), calls);
}

/* All ranks have mapped what they can. Returns the next step, or a negative error. */
static int link_gpus(coll_gpusym_team_t *t)
{
    char name[GPUSYM_COMM_LABEL_MAX], detail[32];
    const gpu_address_t *all = t->boot.all;

    if (find_unmapped(t) >= 0) {
        leave_slots(t, all);
        return offer_again(t);
    }
    const int lack = find_lack(t);
    agree_links(t);
    if (t->host.beside) {
        settle_beside(t);
    }
    coll_gpusym_rules_settle(t);
    coll_gpusym_tuner_settle(t);
    if (!t->host.all_reach && 0 == t->host.nrings) {
        snprintf(detail, sizeof detail, "rank %u", lack >= 0 ? coll_gpusym_team_member(t, (uint32_t) lack) : 0);
        coll_gpusym_team_settle(t, lack >= 0 ? COLL_GPUSYM_R_NO_FD : COLL_GPUSYM_R_UNREACHABLE,
                                lack >= 0 ? detail : NULL);
        return COLL_GPUSYM_STEP_DONE;
    }
    if (!t->host.all_reach) {
        t->host.no_zero_copy = true;
        GPUSYM_LOG(2, "%s: not all GPUs reach each other: rings only (%u), no multicast, no zero copy",
                   gpusym_comm_label(t->fallback->comm, name, sizeof name), t->host.nrings);
    }
    GPUSYM_LOG(5, "%s: rank %u on GPU %s: slot of %lu bytes%s, up to %u blocks, first epoch %u, %u rings",
               gpusym_comm_label(t->fallback->comm, name, sizeof name), coll_gpusym_team_rank(t), t->host.gpu_text,
               (unsigned long) t->host.slot_size, all[t->host.rank].heap.vmm ? " of virtual memory" : "",
               t->host.max_blocks, coll_gpusym_team_next_epoch(t) - 1, t->host.nrings);
    return start_multicast(t, all);
}

/* The end of the second step, well or not. */
static void end_join(coll_gpusym_team_t *t, bool failed)
{
    if (failed && COLL_GPUSYM_STEP_GPU == t->boot.step && NULL != t->boot.mine && !coll_gpusym_team_is_part(t) &&
        ((gpu_address_t *) t->boot.mine)->reason < 0) {
        gpusym_heap_slot_settle(gpusym_heap(), &((gpu_address_t *) t->boot.mine)->slots, -1);
    }
    coll_gpusym_mc_end(t);
    /* What has run on it leaves it to coll_gpusym_team_free_slot(). */
    if (t->host.has_slot && (failed || t->reason >= 0) && t->boot.step < COLL_GPUSYM_STEP_MC_RUN) {
        gpusym_heap_slot_free(gpusym_heap(), t->host.slot_slab, t->host.slot_off, coll_gpusym_team_next_epoch(t), 0);
        t->host.has_slot = false;
    }
    coll_gpusym_exchange_free(t);
}

/* What comes after the step at which set-up is, whose exchange has ended. The next step, or a negative error. */
static int take_step(coll_gpusym_team_t *t, const gpusym_mem_t *where)
{
    switch (t->boot.step) {
    case COLL_GPUSYM_STEP_BOOTSTRAPPED:
        return start_gpus(t, where);
    case COLL_GPUSYM_STEP_GPU:
        return join_gpus(t, t->boot.all);
    case COLL_GPUSYM_STEP_GPU_LINKS:
        return link_gpus(t);
    default:
        return coll_gpusym_mc_step(t);
    }
}

int coll_gpusym_team_join(coll_gpusym_team_t *t, const gpusym_mem_t *where)
{
    while (t->boot.step < COLL_GPUSYM_STEP_DONE) {
        int next = COLL_GPUSYM_STEP_BOOTSTRAPPED == t->boot.step ? 1
                   : COLL_GPUSYM_STEP_MC_RUN == t->boot.step     ? coll_gpusym_mc_poll(t)
                                                                 : coll_gpusym_exchange_poll(t);
        if (0 == next) {
            return 0;
        }
        if (1 == next) {
            next = take_step(t, where);
        }
        if (next < 0) {
            end_join(t, true);
            return next;
        }
        coll_gpusym_team_step(t, next);
        if (COLL_GPUSYM_STEP_DONE == next) {
            end_join(t, false);
        }
    }
    return 1;
}

bool coll_gpusym_team_owns(coll_gpusym_team_t *t, const gpusym_mem_t *mem)
{
    gpusym_gpu_t *gpu,
        *ours = __atomic_load_n(&t->host.gpu, __ATOMIC_ACQUIRE); /* another thread's progress may set it */
    if (mem->gpu == t->host.mem_gpu && mem->context == t->host.mem_context) {
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
    t->host.mem_gpu = mem->gpu;
    t->host.mem_context = mem->context;
    return true;
}

void coll_gpusym_team_leave(coll_gpusym_team_t *t)
{
    if (coll_gpusym_team_is_part(t) && !t->broken && t->boot.step > COLL_GPUSYM_STEP_BOOTSTRAPPED &&
        t->boot.step < COLL_GPUSYM_STEP_DONE) { /* it was never waited for */
        end_join(t, true);
    }
}

/* After a failure: how many epochs peers may be ahead of this rank, more than any call takes. */
#define EPOCHS_AHEAD (GPUSYM_EPOCH_MAX / 128)

/* Whether the slot may be used again, and by which epochs, once all peers have retired their lines. After a failure a
 * launch may have left its ticket as it was; and flags of calls that this rank has not launched may be there. */
static bool leave_slot(const coll_gpusym_team_t *t, uint32_t *epoch)
{
    *epoch = coll_gpusym_team_next_epoch(t);
    if (!t->broken) {
        return true;
    }
    void *slot = t->host.ticket;
    *epoch = *epoch < GPUSYM_EPOCH_MAX - EPOCHS_AHEAD ? *epoch + EPOCHS_AHEAD : GPUSYM_EPOCH_MAX;
    return !t->runs_on && NULL != slot &&
           GPUSYM_SUCCESS == gpusym_current.dev->mem_zero(t->host.gpu, slot, GPUSYM_ENTER_OFF);
}

void coll_gpusym_team_free_slot(coll_gpusym_team_t *t)
{
    uint32_t epoch;
    coll_gpusym_mc_leave(t);
    if (t->host.has_slot && NULL != gpusym_heap() && leave_slot(t, &epoch)) {
        gpusym_heap_slot_free(gpusym_heap(), t->host.slot_slab, t->host.slot_off, epoch, t->host.line_off);
    }
    if (t->host.has_stream_slot && NULL != gpusym_heap() && !t->broken) {
        gpusym_heap_slot_free(gpusym_heap(), t->host.slot_slab, t->host.stream_slot_off, t->host.stream_epoch,
                              t->host.line_off);
    }
}
