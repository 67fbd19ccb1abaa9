/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The multicast object of a team: see multicast.h.
 *
 * Where the user asks for multicast each kernel is tried before any call has it: by operations and types whose
 * instructions differ, on small numbers, whose sums are exact in any order.  A kernel may not begin before all ranks
 * have ended the last one (kernels/work.h), and a vote lies between any two.  Ranks that have all been in one trial do
 * not repeat it in another communicator: their processes, GPUs and switch are the same.
 */
#include "mca/coll/gpusym/team/multicast.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/plan.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/epochs.h"
#include "mca/coll/gpusym/team/exchange.h"
#include "mca/common/gpusym/device/multicast.h"
#include "mca/common/gpusym/exec/lane.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/scratch.h"

/* What rank 0 tells: whether it has made the object; for whole slabs, not for slots alone; and a random number for the
 * object and its trial, 0: none, they are for this team alone. */
typedef struct {
    gpusym_handle_t handle;
    uint64_t made, whole, id;
} mc_address_t;
_Static_assert(sizeof(mc_address_t) <= GPUSYM_NOTICE_MAX, "ranks of an island tell each other by notices");

/* Bytes of an all-reduce that is tried, and of a segment of a rank: whole packs and elements, no whole blocks. */
#define MESSAGE 4144u
#define SEGMENT 1040u
#define BLOCKS 2u
#define THREADS 128u
/* How long a kernel waits at most for the ranks that launch it later; and, when all have, for what a switch does not
 * bring: so many times as long as the slowest one before it has taken, at least so long (they take microseconds on a
 * GPU, milliseconds on the simulator), and not longer than for ranks. Then as long again until it ends. */
#define RANKS_NS UINT64_C(10000000000)
#define SWITCH_TIMES 20u
#define SWITCH_LEAST_NS UINT64_C(2000000000)

typedef struct coll_gpusym_mc_trial {
    gpusym_lane_t *lane;
    char *in, *out;                   /* memory of the GPU; what `in` begins is all of it */
    uint64_t in_bytes, out_bytes;     /* of the kernel that is tried */
    uint8_t *source[GPUSYM_TEAM_MAX]; /* host memory: the inputs of all ranks, */
    uint8_t *expected, *got;          /* ... the output as it should be, and as it is */
    uint8_t *host;                    /* all of that */
    unsigned family, op, type;        /* which kernel is tried */
    gpusym_work_t work;
    uint64_t epochs;                 /* that it takes */
    uint64_t launch_ns, together_ns; /* when it was launched here; and by all ranks, as far as is known: 0: not yet */
    uint64_t slowest_ns;             /* of those before it: from then to its end */
    uint64_t end_ns;                 /* when it is told to end */
    char text[64];                   /* for why */
    bool launched;                   /* here */
    bool running;                    /* ... and has not ended */
    const char *why;                 /* it has not; NULL: the device says it */
    bool right;                      /* it has given the right bits here */
    bool given_up;                   /* a rank could not launch it */
    bool waited;                     /* it has not run through here, perhaps because of another rank */
} trial_t;

/* ---- which kernels are tried, and on what ---- */

/* Kernels that have the switch reduce: each operation, and each type in sums. */
static bool is_tried(const trial_t *x)
{
    if (!gpusym_family_multicast(x->family)) {
        return false;
    }
    if (!gpusym_family_reduces(x->family)) {
        return GPUSYM_OP_SUM == x->op && GPUSYM_T_U8 == x->type;
    }
    return (GPUSYM_OP_SUM == x->op || GPUSYM_T_U32 == x->type) &&
           gpusym_family_valid(GPUSYM_F_RSXLDMC_AGXSTMC, x->op, x->type);
}

/* Goes on to the next kernel. False: there is none. */
static bool go_on(trial_t *x)
{
    do {
        x->type = (x->type + 1) % GPUSYM_T_COUNT;
        x->op = 0 == x->type ? (x->op + 1) % GPUSYM_OP_COUNT : x->op;
        x->family += 0 == x->type && 0 == x->op;
    } while (x->family < GPUSYM_F_COUNT && !is_tried(x));
    return x->family < GPUSYM_F_COUNT;
}

/* Writes 1, 2, 3 or 4 as an element of a type. */
static void write_number(unsigned type, unsigned number, uint8_t *to)
{
    static const uint16_t f16[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400}, bf16[] = {0, 0x3f80, 0x4000, 0x4040, 0x4080};
    const float f32 = (float) number;
    const double f64 = number;
    const uint64_t whole = number; /* the low bytes come first */
    const void *from = GPUSYM_T_F16 == type    ? (const void *) &f16[number]
                       : GPUSYM_T_BF16 == type ? (const void *) &bf16[number]
                       : GPUSYM_T_F32 == type  ? (const void *) &f32
                       : GPUSYM_T_F64 == type  ? (const void *) &f64
                                               : (const void *) &whole;
    memcpy(to, from, gpusym_type_bytes(type));
}

/* Fills in the inputs of all ranks, and the output of this one. */
static void expect(trial_t *x)
{
    const gpusym_work_t *w = &x->work;
    const uint64_t size = gpusym_type_bytes(x->type);
    const void *part[GPUSYM_TEAM_MAX];
    for (uint32_t r = 0; r < w->nranks; r++) {
        for (uint64_t i = 0; i < x->in_bytes / size; i++) {
            write_number(x->type, 1 + (unsigned) (3 * r + i + i / 7) % 4, x->source[r] + i * size);
        }
        part[r] = x->source[r] + (GPUSYM_F_XLDMC_R == x->family ? w->rank * SEGMENT : 0);
        if (!gpusym_family_reduces(x->family)) {
            memcpy(x->expected + r * SEGMENT, x->source[r], SEGMENT);
        }
    }
    if (gpusym_family_reduces(x->family)) {
        gpusym_kernel_reduce_on_cpu(x->op, x->type, part, w->nranks, x->expected, x->out_bytes);
    }
}

/* Describes the launch, but for its epoch. */
static void describe(const coll_gpusym_team_t *t, trial_t *x)
{
    gpusym_work_t *w = &x->work;
    const bool whole = MESSAGE == x->in_bytes;
    *w = t->host.work;
    w->in = x->in;
    w->out = x->out;
    w->bytes = whole ? MESSAGE : SEGMENT;
    w->op = x->op;
    w->type = x->type;
    w->src_end = w->dst_end = w->nranks;
    w->nblocks = BLOCKS < t->host.max_blocks ? BLOCKS : t->host.max_blocks;
    w->nthreads = THREADS;
    w->out_local = true;
    w->limit_ns = 0 != w->limit_ns && w->limit_ns < RANKS_NS ? w->limit_ns : RANKS_NS;
    for (uint32_t p = 0; p < w->nranks && !whole; p++) {
        const gpusym_seg_t first = {0, SEGMENT}, its = {p * SEGMENT, SEGMENT};
        w->send[p] = gpusym_family_reduces(x->family) ? its : first;
        w->recv[p] = gpusym_family_reduces(x->family) ? first : its;
    }
    x->epochs = gpusym_kernel_plan(x->family, w, 0);
}

/* ---- trials ---- */

static void trial_free(trial_t *x)
{
    if (NULL != x->in) {
        gpusym_scratch_put(gpusym_current.dev, x->lane->gpu, x->in);
    }
    if (NULL != x->lane) {
        gpusym_lane_put(x->lane);
    }
    free(x->host);
    free(x);
}

/* Gets all that trials need. NULL: that is not there. */
static trial_t *trial_new(const coll_gpusym_team_t *t)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const uint64_t n = t->host.nranks, most = n * SEGMENT > MESSAGE ? n * SEGMENT : MESSAGE;
    trial_t *x = calloc(1, sizeof *x);
    void *memory = NULL;
    if (NULL == x) {
        return NULL;
    }
    x->host = malloc((n + 2) * most);
    if (NULL == x->host || GPUSYM_SUCCESS != gpusym_lane_get(dev, t->host.gpu, &x->lane)) {
        x->lane = NULL;
    } else if (GPUSYM_SUCCESS == gpusym_scratch_get(dev, t->host.gpu, 2 * (most + 256), &memory)) {
        x->in = memory;
        x->out = x->in + (most + 255) / 256 * 256;
    }
    if (NULL == x->in) {
        trial_free(x);
        return NULL;
    }
    for (uint32_t r = 0; r < n; r++) {
        x->source[r] = x->host + r * most;
    }
    x->expected = x->host + n * most;
    x->got = x->expected + most;
    return x;
}

/* Prepares the kernel that is tried next. Whether its input is where it should be. */
static bool trial_prepare(const coll_gpusym_team_t *t, trial_t *x)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const uint64_t n = t->host.nranks;
    const bool allreduce = GPUSYM_PLAN_EXCHANGE != gpusym_family_plan(x->family) && GPUSYM_F_XLLMC != x->family;
    x->in_bytes = allreduce ? MESSAGE : gpusym_family_reduces(x->family) ? n * SEGMENT : SEGMENT;
    x->out_bytes = allreduce ? MESSAGE : gpusym_family_reduces(x->family) ? SEGMENT : n * SEGMENT;
    x->launched = x->running = false;
    x->together_ns = 0;
    x->why = NULL;
    describe(t, x);
    expect(x);
    return GPUSYM_SUCCESS == dev->copy(t->host.gpu, x->in, x->source[t->host.rank], x->in_bytes) &&
           GPUSYM_SUCCESS == dev->mem_zero(t->host.gpu, x->out, x->out_bytes);
}

/* The kernel has ended. Whether its output is right. */
static bool is_right(const coll_gpusym_team_t *t, trial_t *x)
{
    return GPUSYM_SUCCESS == gpusym_current.dev->copy(t->host.gpu, x->got, x->out, x->out_bytes) &&
           0 == memcmp(x->got, x->expected, x->out_bytes);
}

/* Whether a rank could not launch the kernel that is tried. */
static bool is_missing(const coll_gpusym_team_t *t)
{
    uint32_t r = 0;
    while (r < t->host.nranks && COLL_GPUSYM_STEP_MC_FAILED != gpusym_line_at_step(t->host.rc.line[r])) {
        r++;
    }
    return r < t->host.nranks;
}

/* Whether all ranks have launched it. */
static bool is_everywhere(const coll_gpusym_team_t *t)
{
    uint32_t r = 0;
    while (r < t->host.nranks && gpusym_line_tried(t->host.rc.line[r]) >= t->boot.launched) {
        r++;
    }
    return r == t->host.nranks;
}

/* How long it has for what needs the switch alone. */
static uint64_t switch_ns(const trial_t *x)
{
    const uint64_t ns = SWITCH_TIMES * x->slowest_ns;
    return ns < SWITCH_LEAST_NS ? SWITCH_LEAST_NS : ns < RANKS_NS ? ns : RANKS_NS;
}

/* The kernel that is tried has not ended: whether it still may run. Tells it to end when it is late. */
static bool may_run(const coll_gpusym_team_t *t, trial_t *x)
{
    const uint64_t now = gpusym_now_ns();
    if (0 == x->together_ns && is_everywhere(t)) {
        x->together_ns = now;
        x->end_ns = now + switch_ns(x) < x->end_ns ? now + switch_ns(x) : x->end_ns;
    }
    if (!x->given_up && is_missing(t)) {
        x->given_up = true;
        x->end_ns = now < x->end_ns ? now : x->end_ns;
    }
    if (now >= x->end_ns) {
        __atomic_store_n(&x->lane->host->abort, 1u, __ATOMIC_RELAXED);
    }
    if (gpusym_current.dev->stream_poll(x->lane->stream) < 0) {
        return false;
    }
    if (now > x->end_ns + switch_ns(x)) {
        snprintf(x->text, sizeof x->text, "a kernel does not end, after %.1f s", 1e-9 * (double) (now - x->launch_ns));
        x->why = x->text;
        return false;
    }
    return true;
}

int coll_gpusym_mc_poll(coll_gpusym_team_t *t)
{
    trial_t *x = t->boot.trial;
    uint32_t status;
    if (!x->running) {
        const int taken = coll_gpusym_team_epochs(t, x->epochs, &x->work.epoch);
        if (1 != taken) {
            return taken;
        }
        t->host.epoch_base++; /* the call's number stays the same */
        x->running =
            x->right &&
            GPUSYM_SUCCESS == gpusym_lane_launch(x->lane, gpusym_kernel_find(x->family, x->op, x->type), &x->work);
        x->right = x->launched = x->running;
        x->launch_ns = gpusym_now_ns();
        x->end_ns = x->launch_ns + x->work.limit_ns;
        if (x->running) {
            t->boot.launched++;
            coll_gpusym_team_step(t, t->boot.step); /* peers read how many */
        }
        return x->running ? 0 : 1;
    }
    if (!gpusym_lane_done(x->lane, &status)) {
        x->right = may_run(t, x);
        return x->right ? 0 : 1;
    }
    if (0 != x->together_ns && gpusym_now_ns() - x->together_ns > x->slowest_ns) {
        x->slowest_ns = gpusym_now_ns() - x->together_ns;
    }
    x->right = GPUSYM_STATUS_OK == status && is_right(t, x);
    x->waited = GPUSYM_STATUS_ABORTED == (uint8_t) status || GPUSYM_STATUS_TIMEOUT == (uint8_t) status;
    x->why = GPUSYM_STATUS_OK == status ? "a kernel gives wrong bits"
             : x->given_up              ? "a kernel has not run on another rank"
             : x->waited                ? "a kernel has waited in vain"
                                        : "a kernel cannot run";
    x->running = false;
    return 1;
}

/* ---- trials of this process ---- */

static struct {
    pthread_mutex_t lock;
    coll_gpusym_mc_passed_t passed;
    unsigned next; /* place of the next one that is passed */
    bool failed;   /* one, here or on a peer: there will be no other */
} trials = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* All ranks of a trial call this with the same, so that they know alike what need not be tried, or must not be. */
static void remember_trial(uint64_t id, bool right)
{
    pthread_mutex_lock(&trials.lock);
    if (right) {
        trials.passed.id[trials.next++ % COLL_GPUSYM_MC_TRIALS] = id;
    } else {
        __atomic_store_n(&trials.failed, true, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&trials.lock);
}

void coll_gpusym_mc_passed(coll_gpusym_mc_passed_t *passed)
{
    pthread_mutex_lock(&trials.lock);
    *passed = trials.passed;
    pthread_mutex_unlock(&trials.lock);
}

static bool has_passed(const coll_gpusym_mc_passed_t *passed, uint64_t id)
{
    unsigned i = 0;
    while (i < COLL_GPUSYM_MC_TRIALS && (0 == id || passed->id[i] != id)) {
        i++;
    }
    return i < COLL_GPUSYM_MC_TRIALS;
}

bool coll_gpusym_mc_passed_one(const coll_gpusym_mc_passed_t *first, size_t stride, uint32_t n)
{
    bool all = false;
    for (unsigned i = 0; !all && i < COLL_GPUSYM_MC_TRIALS; i++) {
        uint32_t r = 0;
        while (r < n && has_passed((const void *) ((const char *) first + r * stride), first->id[i])) {
            r++;
        }
        all = r == n;
    }
    return all;
}

/* ---- the steps ---- */

uint32_t coll_gpusym_mc_offer(const coll_gpusym_team_t *t, bool has)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    const char *why = "its GPU, or the GPU's driver, has no multicast objects";
    const bool allowed = gpusym_multicast_allowed(gpusym_params.multicast, gpusym_current.dev->simulated, &why);
    if (__atomic_load_n(&trials.failed, __ATOMIC_RELAXED)) {
        why = "a trial of its kernels has failed";
    } else if (allowed && has) {
        return gpusym_params.multicast < 0 ? COLL_GPUSYM_MC_USED : COLL_GPUSYM_MC_TRIED;
    }
    if (gpusym_params.multicast > 0) {
        GPUSYM_LOG(2, "%s: rank %u: no multicast: %s", gpusym_comm_label(t->fallback->comm, name, sizeof name),
                   coll_gpusym_team_rank(t), why);
    }
    return COLL_GPUSYM_MC_NOT;
}

bool coll_gpusym_mc_take(coll_gpusym_team_t *t, bool requested, uint64_t id)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    gpusym_heap_mc_t its;
    gpusym_heap_mc_get(gpusym_heap(), t->host.slot_slab, &its);
    if (its.id != id || its.members != t->host.nranks) {
        return false;
    }
    t->host.mc_requested = requested;
    t->host.work.mc = (char *) its.mp + t->host.slot_off;
    GPUSYM_LOG(2, "%s: multicast is used: by the object that its ranks have",
               gpusym_comm_label(t->fallback->comm, name, sizeof name));
    return true;
}

/* Whether the team has all processes of the job on this host, for which objects are made that others can use. */
static bool is_whole(const coll_gpusym_team_t *t)
{
    return t->host.nranks == (uint32_t) opal_process_info.num_local_peers + 1;
}

int coll_gpusym_mc_start(coll_gpusym_team_t *t, bool requested, bool tried)
{
    coll_gpusym_exchange_free(t);
    if (!coll_gpusym_exchange_alloc(t, sizeof(mc_address_t))) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    t->host.mc_requested = requested;
    t->boot.mc_tried = tried;
    mc_address_t *mine = t->boot.mine;
    if (0 == t->host.rank) {
        mine->whole = is_whole(t);
        mine->id = gpusym_random(&mine->id, sizeof mine->id) ? mine->id : 0;
        mine->made = GPUSYM_SUCCESS ==
                     gpusym_current.dev->mc_create(t->host.gpu, gpusym_params.multicast, t->host.nranks,
                                                   mine->whole ? gpusym_heap_size(gpusym_heap()) : t->host.slot_size,
                                                   &t->host.mc, &mine->handle);
    }
    return MPI_SUCCESS == coll_gpusym_exchange_start(t, t->boot.mine, t->boot.all, sizeof(mc_address_t))
               ? COLL_GPUSYM_STEP_MC
               : OMPI_ERROR;
}

/* Votes, and tells why not. why: NULL: the device says it. */
static int vote(coll_gpusym_team_t *t, bool mine, const char *why, int step)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    if (!mine) {
        GPUSYM_LOG(2, "%s: rank %u: no multicast: %s", gpusym_comm_label(t->fallback->comm, name, sizeof name),
                   coll_gpusym_team_rank(t), NULL != why ? why : gpusym_current.dev->error());
    }
    const int rv = NULL != t->boot.trial && t->boot.trial->waited ? coll_gpusym_vote_start_error(t, ECANCELED)
                                                                  : coll_gpusym_vote_start(t, mine);
    return MPI_SUCCESS == rv ? step : OMPI_ERROR;
}

/* Rank 0 has made the object, or not: the others open it, and all add their GPUs. */
static int add_gpu(coll_gpusym_team_t *t, const mc_address_t *all)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const bool made = 0 != all[0].made;
    const bool there =
        made && (0 == t->host.rank || GPUSYM_SUCCESS == dev->mc_import(t->host.gpu, &all[0].handle, &t->host.mc));
    return vote(t, there && GPUSYM_SUCCESS == dev->mc_add(t->host.mc),
                made || 0 == t->host.rank ? NULL : "rank 0 has made no object", COLL_GPUSYM_STEP_MC_ADDED);
}

/* All have added their GPUs. */
static int bind_memory(coll_gpusym_team_t *t, const mc_address_t *all)
{
    char *slot = t->host.work.peer[t->host.rank];
    const uint64_t before = 0 != all[0].whole ? t->host.slot_off : 0; /* of the slot, in what is bound */
    void *mp = NULL;
    const bool bound =
        GPUSYM_SUCCESS ==
        gpusym_current.dev->mc_bind(t->host.mc, t->host.rank, slot - before,
                                    0 != all[0].whole ? gpusym_heap_size(gpusym_heap()) : t->host.slot_size, &mp);
    t->host.work.mc = bound ? (char *) mp + before : NULL;
    if (bound && t->boot.mc_tried) {
        t->boot.trial = trial_new(t);
    }
    return vote(t, bound && (!t->boot.mc_tried || NULL != t->boot.trial),
                bound ? "there is no memory to try its kernels" : NULL, COLL_GPUSYM_STEP_MC_BOUND);
}

/* Tries the next kernel. */
static int try_next(coll_gpusym_team_t *t)
{
    if (!go_on(t->boot.trial)) {
        return COLL_GPUSYM_STEP_DONE;
    }
    t->boot.trial->right = trial_prepare(t, t->boot.trial);
    return COLL_GPUSYM_STEP_MC_RUN;
}

/* Other teams of the same ranks can use an object over whole slabs. */
static void keep_object(coll_gpusym_team_t *t, const mc_address_t *all)
{
    const gpusym_heap_mc_t kept = {.mc = t->host.mc,
                                   .mp = (char *) t->host.work.mc - t->host.slot_off,
                                   .id = all[0].id,
                                   .members = t->host.nranks};
    if (0 != all[0].whole && gpusym_heap_mc_keep(gpusym_heap(), t->host.slot_slab, &kept)) {
        t->host.mc = NULL;
    }
}

static int settle_mc(coll_gpusym_team_t *t, const char *what)
{
    const mc_address_t *all = t->boot.all;
    char name[GPUSYM_COMM_LABEL_MAX];
    gpusym_comm_label(t->fallback->comm, name, sizeof name);
    if (NULL == what) {
        GPUSYM_LOG(2, "%s: multicast is used%s", name,
                   t->boot.mc_tried       ? ": all its kernels give the right bits"
                   : t->host.mc_requested ? ": its ranks have tried the kernels in another communicator"
                                          : "");
        if (t->boot.mc_tried) {
            remember_trial(all[0].id, true);
        }
        keep_object(t, all);
        return COLL_GPUSYM_STEP_DONE;
    }
    uint32_t first = 0; /* rank that could not; if any, one that has not waited for another */
    while (COLL_GPUSYM_VOTE_YES == t->boot.votes[first]) {
        first++;
    }
    for (uint32_t r = t->host.nranks; r-- > 0;) {
        first = 0 == t->boot.votes[r] ? r : first;
    }
    GPUSYM_LOG(2, "%s: no multicast: rank %u could not %s", name, first, what);
    if (COLL_GPUSYM_STEP_MC_RUN <= t->boot.step) {
        remember_trial(0, false);
    } else if (NULL != t->host.mc) { /* no kernel has used it */
        gpusym_current.dev->mc_free(t->host.mc);
        t->host.mc = NULL;
    }
    t->host.work.mc = NULL; /* a kernel of a trial may not have ended, here or on a peer: the object stays */
    return COLL_GPUSYM_STEP_DONE;
}

int coll_gpusym_mc_step(coll_gpusym_team_t *t)
{
    const trial_t *x = t->boot.trial;
    char what[96];
    int next;
    switch (t->boot.step) {
    case COLL_GPUSYM_STEP_MC:
        return add_gpu(t, t->boot.all);
    case COLL_GPUSYM_STEP_MC_ADDED:
        return coll_gpusym_vote_result(t) ? bind_memory(t, t->boot.all)
                                          : settle_mc(t, "make or open the object, or add its GPU");
    case COLL_GPUSYM_STEP_MC_RUN:
        return vote(t, x->right, x->why,
                    x->right || x->launched ? COLL_GPUSYM_STEP_MC_RAN : COLL_GPUSYM_STEP_MC_FAILED);
    case COLL_GPUSYM_STEP_MC_RAN:
    case COLL_GPUSYM_STEP_MC_FAILED:
        if (!coll_gpusym_vote_result(t)) {
            snprintf(what, sizeof what, "get the right bits of %s (%s, %s)", gpusym_family_name(x->family),
                     gpusym_op_name(x->op), gpusym_type_name(x->type));
            return settle_mc(t, what);
        }
        break;
    default:
        if (!coll_gpusym_vote_result(t)) {
            return settle_mc(t, "bind its memory, or has none for a trial");
        }
        break;
    }
    next = NULL != x ? try_next(t) : COLL_GPUSYM_STEP_DONE;
    return COLL_GPUSYM_STEP_DONE == next ? settle_mc(t, NULL) : next;
}

void coll_gpusym_mc_end(coll_gpusym_team_t *t)
{
    trial_t *x = t->boot.trial;
    if (NULL != x && x->running) { /* it keeps what it uses */
        __atomic_store_n(&x->lane->host->abort, 1u, __ATOMIC_RELAXED);
        t->runs_on = true;
        free(x->host);
        free(x);
    } else if (NULL != x) {
        trial_free(x);
    }
    t->boot.trial = NULL;
}

void coll_gpusym_mc_leave(coll_gpusym_team_t *t)
{
    if (NULL != t->host.mc && NULL != gpusym_heap() && !t->runs_on) { /* else until the device is closed */
        gpusym_heap_mc_free(gpusym_heap(), t->host.mc, t->host.line_off);
    }
    t->host.mc = NULL;
    t->host.work.mc = NULL;
}
