/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls on streams of the program: see on_stream.h.
 */
#include "mca/coll/gpusym/exec/on_stream.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/plan.h"
#include "mca/coll/gpusym/conf/counters.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/plan/plan.h"
#include "mca/coll/gpusym/team/team.h"
#include "mca/common/gpusym/gpusym.h"
#include "opal/runtime/opal_progress.h"
#include "tuning/stream.h"
#include "tuning/tuning.h"

/* How often ranks and GPU are looked at, while calls are under way. */
#define CHECK_NS 100000000ull
/* Segments whose lengths the ranks do not know of each other get the blocks of such ones. Not measured. */
#define SIZED_BYTES (1ull << 20)
/* The shortest chunk of one. */
#define SIZED_CHUNK_MIN 4096u
/* How long kernels have to end once they are told to. */
#define GRACE_NS 5000000000ull

/* Communicators of this process whose kernels may wait on the GPU: they share its room. */
static unsigned prepared; /* atomic */

/* ---- preparing ---- */

coll_gpusym_on_stream_t *coll_gpusym_on_stream_create(coll_gpusym_team_t *t, struct ompi_communicator_t *comm)
{
    coll_gpusym_on_stream_t *s = calloc(1, sizeof *s);
    if (NULL != s) {
        s->team = t;
        s->comm = comm;
        __atomic_fetch_add(&prepared, 1, __ATOMIC_RELAXED);
    }
    return s;
}

/* Gets a lane; no call has been queued. A device's error. */
static int open_lane(coll_gpusym_on_stream_t *s, gpusym_gpu_t *gpu)
{
    const int rc = gpusym_lane_get(gpusym_current.dev, gpu, &s->lane);
    if (GPUSYM_SUCCESS != rc) {
        s->lane = NULL;
        return rc;
    }
    (void) gpusym_lane_await(s->lane); /* a resident kernel that had it before may be about to retire */
    s->queued = s->lane->seq;
    s->ended = s->telling = s->queued;
    s->lane->host->done = (uint64_t) s->queued << 32;
    s->lane->host->doorbell[0] = 0;
    s->lane->host->abort = 0;
    return rc;
}

coll_gpusym_on_stream_t *coll_gpusym_on_stream_create_alone(gpusym_gpu_t *gpu)
{
    coll_gpusym_on_stream_t *s = calloc(1, sizeof *s);
    if (NULL != s && GPUSYM_SUCCESS == open_lane(s, gpu)) {
        s->ready = true;
        return s;
    }
    free(s);
    return NULL;
}

void coll_gpusym_on_stream_offer(coll_gpusym_on_stream_t *s, coll_gpusym_on_stream_offer_t *mine)
{
    const coll_gpusym_team_t *t = s->team;
    const gpusym_device_t *dev = gpusym_current.dev;
    const char *cause;
    *mine = (coll_gpusym_on_stream_offer_t){.slot_off = t->host.slot_off, .reason = -1};
    gpusym_heap_slot_offer_of(gpusym_heap(), t->host.slot_slab, &mine->slots);
    mine->threads =
        gpusym_tuning_stream_threads(t->host.sm_count, __atomic_load_n(&prepared, __ATOMIC_RELAXED), dev->simulated);
    if (GPUSYM_SUCCESS != dev->stream_kernels_load(t->host.gpu, &cause)) {
        GPUSYM_LOG(2, "rank %u has no kernels for streams: %s", coll_gpusym_team_rank(t), cause);
        mine->reason = COLL_GPUSYM_R_NO_KERNELS;
        return;
    }
    if (GPUSYM_SUCCESS != open_lane(s, t->host.gpu)) {
        mine->reason = COLL_GPUSYM_R_NO_MEMORY;
    }
}

/* The largest class of slots that all ranks have offered; -1: none. */
static int agree_class(const coll_gpusym_team_t *t, const coll_gpusym_on_stream_offer_t *all)
{
    for (unsigned c = 0; c < GPUSYM_SLOT_CLASSES; c++) {
        uint32_t r = 0;
        while (r < t->host.nranks && GPUSYM_SLOT_NONE != all[r].slots.off[c]) {
            r++;
        }
        if (r == t->host.nranks) {
            return (int) c;
        }
    }
    return -1;
}

/* Clears flags and lines of our slot, and sets its head: nobody writes there before all ranks have told that they are
 * ready. */
static bool clear_slot(coll_gpusym_on_stream_t *s)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_gpu_t *gpu = s->team->host.gpu;
    char *slot = s->work.peer[s->work.rank];
    const gpusym_slot_head_t head = {.number = s->queued, .epoch = coll_gpusym_params.epoch_first};
    return GPUSYM_SUCCESS == dev->mem_zero(gpu, slot, s->work.stage_off) &&
           GPUSYM_SUCCESS == dev->copy(gpu, slot, &head, sizeof head);
}

bool coll_gpusym_on_stream_settle(coll_gpusym_on_stream_t *s, const coll_gpusym_on_stream_offer_t *all)
{
    coll_gpusym_team_t *t = s->team;
    gpusym_work_t *w = &s->work;
    const int class = agree_class(t, all);
    const uint64_t heap = gpusym_heap_size(gpusym_heap());
    bool able = class >= 0;

    gpusym_heap_slot_settle(gpusym_heap(), &all[t->host.rank].slots, class);
    if (class >= 0) {
        t->host.has_stream_slot = true;
        t->host.stream_slot_off = all[t->host.rank].slots.off[class];
    }
    *w = t->host.work;
    w->mc = NULL;
    s->threads = UINT32_MAX;
    for (uint32_t r = 0; r < t->host.nranks && able; r++) {
        able = all[r].reason < 0 && gpusym_slot_is(heap, (unsigned) class, all[r].slots.off[class]) &&
               NULL != t->host.work.peer[r];
        w->peer[r] = (char *) t->host.work.peer[r] - all[r].slot_off + all[r].slots.off[class];
        s->threads = all[r].threads < s->threads ? all[r].threads : s->threads;
    }
    if (!able) {
        return false;
    }
    w->failed = s->lane->line->doorbell;
    w->abort = &s->lane->line->abort;
    s->max_blocks = gpusym_slot_layout(gpusym_slot_size(heap, (unsigned) class), w->nranks, t->host.max_blocks, w);
    return 0 != s->max_blocks && clear_slot(s);
}

/* ---- what has become of them ---- */

/* Once that is set, lost_rank is. */
static uint32_t find_lost(const coll_gpusym_on_stream_t *s)
{
    return __atomic_load_n(&s->lost, __ATOMIC_ACQUIRE);
}

/* Whether the GPU reports an error. */
static bool gpu_has_failed(const gpusym_lane_t *lane)
{
    return lane->dev->stream_poll(lane->stream) < 0;
}

/* The rank that has died; REVOKED; -1: neither is. */
static int find_dead(const coll_gpusym_on_stream_t *s)
{
    if (NULL == s->team) {
        return -1;
    }
    return gpusym_ft_revoked(s->comm) ? COLL_GPUSYM_ON_STREAM_REVOKED : coll_gpusym_team_dead(s->team);
}

/* A rank that has died sends nothing any more, and one that knows of a revoked communicator nothing on it: kernels that
 * wait for them are told. A GPU with an error ends none. */
static void check(coll_gpusym_on_stream_t *s)
{
    const uint64_t now = gpusym_now_ns();
    if (now - __atomic_load_n(&s->checked_ns, __ATOMIC_RELAXED) < CHECK_NS || 0 != find_lost(s)) {
        return;
    }
    __atomic_store_n(&s->checked_ns, now, __ATOMIC_RELAXED);
    const int dead = find_dead(s);
    if (-1 != dead || gpu_has_failed(s->lane)) {
        __atomic_store_n(&s->lost_rank, dead, __ATOMIC_RELAXED);
        __atomic_store_n(&s->lost, (uint32_t) GPUSYM_STATUS_ABORTED, __ATOMIC_RELEASE);
        __atomic_store_n(&s->lane->host->abort, 1u, __ATOMIC_RELEASE);
    }
}

/* Whether a GPU's error keeps the kernels from ending; those that wait for other ranks end. */
static bool never_end(coll_gpusym_on_stream_t *s)
{
    check(s);
    return 0 != find_lost(s) && -1 == __atomic_load_n(&s->lost_rank, __ATOMIC_RELAXED);
}

/* The number of the last call that has ended and told so. */
static uint32_t last_told(const coll_gpusym_on_stream_t *s)
{
    return (uint32_t) (__atomic_load_n(&s->lane->host->done, __ATOMIC_ACQUIRE) >> 32);
}

static bool is_known(const coll_gpusym_on_stream_t *s, uint32_t number)
{
    return (int32_t) (last_told(s) - number) >= 0 ||
           (int32_t) (__atomic_load_n(&s->ended, __ATOMIC_RELAXED) - number) >= 0;
}

/* Where the kernels of all calls leave their numbers at their end, in the GPU's memory. */
static uint32_t *number_at(const coll_gpusym_on_stream_t *s)
{
    return &((gpusym_slot_head_t *) s->work.peer[s->work.rank])->number;
}

static bool find_number(const coll_gpusym_on_stream_t *s, uint32_t *number)
{
    return GPUSYM_SUCCESS == gpusym_current.dev->copy(s->team->host.gpu, number, number_at(s), sizeof *number);
}

/* Asks the GPU, twice: what the kernel had stored when its number was found is there when the second copy has been made
 * (kernels/prim/stream.h). */
static void ask_gpu(coll_gpusym_on_stream_t *s)
{
    uint32_t number, again;
    if (NULL != s->team && find_number(s, &number) && number != s->ended && find_number(s, &again)) {
        __atomic_store_n(&s->ended, number, __ATOMIC_RELAXED);
    }
}

bool coll_gpusym_on_stream_ended(coll_gpusym_on_stream_t *s)
{
    const uint32_t queued = __atomic_load_n(&s->queued, __ATOMIC_RELAXED);
    if (!is_known(s, queued) && s->telling != queued) {
        ask_gpu(s);
    }
    return is_known(s, queued) || never_end(s);
}

/* Waits until all that is queued has ended. False: it does not. */
static bool await_end(coll_gpusym_on_stream_t *s)
{
    const double limit = coll_gpusym_params.timeout;
    const uint64_t start = gpusym_now_ns();
    uint64_t waited = 0;
    while (!coll_gpusym_on_stream_ended(s) && (0 == limit || (double) waited < 1e9 * limit)) {
        opal_progress();
        waited = gpusym_now_ns() - start;
    }
    if (!coll_gpusym_on_stream_ended(s)) {
        __atomic_store_n(&s->lane->host->abort, 1u, __ATOMIC_RELEASE);
    }
    const uint64_t told = gpusym_now_ns();
    while (!coll_gpusym_on_stream_ended(s) && gpusym_now_ns() - told < GRACE_NS) {
        opal_progress();
    }
    return coll_gpusym_on_stream_ended(s);
}

/* What nobody has used: not all ranks became ready. */
static void give_back(coll_gpusym_on_stream_t *s)
{
    coll_gpusym_host_team_t *host = &s->team->host;
    if (host->has_stream_slot) {
        gpusym_heap_slot_free(gpusym_heap(), host->slot_slab, host->stream_slot_off, 1, 0);
        host->has_stream_slot = false;
    }
    if (NULL != s->lane) {
        gpusym_lane_put(s->lane);
    }
}

/* For the slot's next owner: finds the first epoch that has not been used, and clears what may look like a later one,
 * where peers told of their buffers. */
static bool leave_slot(coll_gpusym_on_stream_t *s)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    coll_gpusym_host_team_t *host = &s->team->host;
    char *slot = s->work.peer[s->work.rank];
    gpusym_slot_head_t head;
    if (GPUSYM_SUCCESS != dev->copy(host->gpu, &head, slot, sizeof head) ||
        (0 != s->regions.registered &&
         GPUSYM_SUCCESS != dev->mem_zero(host->gpu, slot + GPUSYM_ENTER_OFF, GPUSYM_ENTER_LINES))) {
        return false;
    }
    host->stream_epoch = head.epoch;
    return true;
}

/* Returns the slot and the lane of a communicator whose calls have ended, or have not. */
static void end_team(coll_gpusym_on_stream_t *s, bool ended)
{
    coll_gpusym_team_t *t = s->team;
    char name[GPUSYM_COMM_LABEL_MAX];
    __atomic_fetch_sub(&prepared, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < COLL_GPUSYM_REGIONS_MAX; i++) {
        coll_gpusym_region_end(&s->regions.region[i], ended && !s->captured);
    }
    if (!s->ready) {
        give_back(s);
    } else if (!ended || s->captured || !leave_slot(s)) {
        /* a graph may write there yet, or a kernel that does not end */
        GPUSYM_LOG(2, "%s: what its calls on streams use is not used again%s",
                   gpusym_comm_label(t->fallback->comm, name, sizeof name), s->captured ? ": graphs hold some" : "");
        t->host.has_stream_slot = false;
    } else {
        s->lane->host->done = (uint64_t) s->queued << 32; /* the last one may not have told */
        s->lane->seq = s->queued;
        gpusym_lane_put(s->lane);
    }
}

void coll_gpusym_on_stream_end(coll_gpusym_on_stream_t *s)
{
    int rank;
    if (NULL == s) {
        return;
    }
    const bool ended =
        s->ready && gpusym_lane_alive(s->lane) && await_end(s) && 0 == coll_gpusym_on_stream_failed(s, &rank);
    if (NULL != s->team) {
        end_team(s, ended);
    } else if (ended) { /* a graph's copy writes no word */
        s->lane->seq = s->queued;
        gpusym_lane_put(s->lane);
    }
    if (NULL != s->stream) {
        gpusym_current.dev->stream_unwrap(s->stream);
    }
    free(s);
}

/* ---- calls ---- */

/* Waits until all calls have ended, but those of graphs. */
static void await_calls(coll_gpusym_on_stream_t *s)
{
    while (!coll_gpusym_on_stream_ended(s)) {
        opal_progress();
    }
}

void coll_gpusym_on_stream_deregister(coll_gpusym_on_stream_t *s, coll_gpusym_region_t *region)
{
    int rank;
    await_calls(s); /* a call ends behind a barrier: then the peers access its buffers no more, either */
    coll_gpusym_region_end(region, 0 == coll_gpusym_on_stream_failed(s, &rank));
}

/* Where calls that tell the host leave theirs: in the upper half of `done`. */
static uint32_t *done_at(const coll_gpusym_on_stream_t *s)
{
    return (uint32_t *) (void *) &s->lane->line->done + 1;
}

/* Queues that the stream waits for a call, or tells that it has ended, by its number. */
static bool queue_flag(gpusym_stream_t *stream, bool wait, uint32_t *at, uint32_t number)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const gpusym_stream_flag_t flag = {.wait = wait, .at = at, .value = number};
    return NULL != dev->stream_flags && GPUSYM_SUCCESS == dev->stream_flags(stream, &flag, 1);
}

void coll_gpusym_on_stream_follow(coll_gpusym_on_stream_t *s, gpusym_stream_t *stream, uint32_t number)
{
    if (coll_gpusym_on_stream_told(s, number) || queue_flag(stream, true, done_at(s), number)) {
        return;
    }
    while (!coll_gpusym_on_stream_told(s, number)) {
        opal_progress();
    }
}

/* What a stream gets from now on waits for the calls so far: by itself, but for one that is captured, whose graph would
 * keep the wait. */
static void follow_calls(coll_gpusym_on_stream_t *s, gpusym_stream_t *stream)
{
    bool captured;
    if (is_known(s, s->queued)) {
        return;
    }
    if (GPUSYM_SUCCESS != gpusym_current.dev->stream_captured(stream, &captured) || captured ||
        !queue_flag(stream, true, s->telling == s->queued ? done_at(s) : number_at(s), s->queued)) {
        await_calls(s);
    }
}

bool coll_gpusym_on_stream_take(coll_gpusym_on_stream_t *s, gpusym_gpu_t *gpu, void *handle)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_stream_t *stream;
    if (NULL != s->stream && handle == s->handle && gpu == s->gpu) {
        return true;
    }
    if (GPUSYM_SUCCESS != dev->stream_wrap(gpu, handle, &stream)) {
        return false;
    }
    follow_calls(s, stream); /* the communicator's calls come one after the other */
    if (NULL != s->stream) {
        dev->stream_unwrap(s->stream);
        s->several = true;
    }
    s->stream = stream;
    s->handle = handle;
    s->gpu = gpu;
    return true;
}

/* The regions of the buffers that peers access, for zero copy. NULL: there is none of them. */
typedef struct {
    coll_gpusym_region_t *in, *out;
} mapped_t;

/* The buffers that peers access in a call between registered ones: COLL_GPUSYM_MAPS_. Each rank has them, whatever its
 * part in the call: else it could not tell by its own whether those of the others are registered. */
static unsigned buffers_to_map(const coll_gpusym_segments_t *k)
{
    switch (k->args->coll) {
    case COLL_GPUSYM_ALLREDUCE:
        return COLL_GPUSYM_MAPS_BOTH;
    case COLL_GPUSYM_ALLGATHER:
    case COLL_GPUSYM_ALLGATHERV:
    case COLL_GPUSYM_BCAST: /* the root's, too: it has one buffer */
        return COLL_GPUSYM_MAPS_OUT;
    case COLL_GPUSYM_ALLTOALL: /* in place, what comes would overwrite what has still to go */
        return k->in_place ? COLL_GPUSYM_MAPS_NONE : COLL_GPUSYM_MAPS_OUT;
    case COLL_GPUSYM_REDUCE_SCATTER: /* in place, the result what peers have still to load */
    case COLL_GPUSYM_REDUCE_SCATTER_BLOCK:
        return k->in_place ? COLL_GPUSYM_MAPS_NONE : COLL_GPUSYM_MAPS_IN;
    default:
        return COLL_GPUSYM_MAPS_NONE;
    }
}

/* False: not all of these buffers are registered, or the call has no use for that. A buffer that peers do not access
 * has the region of the other one. */
static bool find_regions(coll_gpusym_on_stream_t *s, const coll_gpusym_segments_t *k, mapped_t *m)
{
    const unsigned maps = 0 != s->regions.registered ? buffers_to_map(k) : COLL_GPUSYM_MAPS_NONE;
    *m = (mapped_t){NULL, NULL};
    if (0 != (maps & COLL_GPUSYM_MAPS_IN)) {
        m->in = m->out = coll_gpusym_regions_find(&s->regions, k->in, k->in_bytes, k->in_id, k->bytes);
    }
    if (0 != (maps & COLL_GPUSYM_MAPS_OUT)) {
        m->out = coll_gpusym_regions_find(&s->regions, k->out, k->out_bytes, k->out_id, k->bytes);
        m->in = COLL_GPUSYM_MAPS_OUT == maps ? m->out : m->in;
    }
    return NULL != m->in && NULL != m->out;
}

/* The algorithm for a collective whose ranks do not know all lengths, and store; or of a rank that sends and gets LL
 * lines alone. -1: there is none. */
static int sized_algorithm(unsigned coll, bool lines)
{
    switch (coll) {
    case COLL_GPUSYM_ALLTOALLV:
        return lines ? GPUSYM_ALG_ALLTOALLV_LL : GPUSYM_ALG_ALLTOALLV_ST;
    case COLL_GPUSYM_GATHERV:
        return lines ? GPUSYM_ALG_GATHERV_LL : GPUSYM_ALG_GATHERV_ST;
    case COLL_GPUSYM_SCATTERV:
        return lines ? GPUSYM_ALG_SCATTERV_LL : GPUSYM_ALG_SCATTERV_ST;
    default:
        return -1;
    }
}

bool coll_gpusym_on_stream_serves(const coll_gpusym_segments_t *k)
{
    return k->exact || sized_algorithm(k->args->coll, false) >= 0;
}

/* Algorithm and geometry: of those that have kernels for streams. */
static void choose(const coll_gpusym_on_stream_t *s, const coll_gpusym_segments_t *k, uint64_t bytes, bool mapped,
                   gpusym_tuning_choice_t *choice)
{
    const coll_gpusym_team_t *t = s->team;
    const coll_gpusym_params_t *c = &coll_gpusym_params;
    gpusym_tuning_call_t what = {.coll = k->args->coll,
                                 .bytes = bytes,
                                 .op = k->op,
                                 .type = k->type,
                                 .nranks = t->host.nranks,
                                 .sm_count = t->host.sm_count,
                                 .simulated = gpusym_current.dev->simulated,
                                 .reproducible = c->reproducible,
                                 .zero_copy = mapped,
                                 .overwrites = k->even,
                                 .all_reach = true,
                                 .scattered = true,
                                 .ll128 = t->host.ll128,
                                 .ll_payload = gpusym_ll_payload(s->work.ll_bytes),
                                 .max_blocks = s->max_blocks};
    gpusym_tuning_forced_t forced = {.algorithm = c->algorithm[k->args->coll], /* no rules: those are of other calls */
                                     .oneshot_max = c->oneshot_max,
                                     .blocks = (uint32_t) c->blocks,
                                     .threads = (uint32_t) c->threads,
                                     .chunk = c->chunk};
    if (forced.algorithm >= 0 &&
        GPUSYM_K_COUNT ==
            gpusym_kernel_find_stream(gpusym_algorithm_family((unsigned) forced.algorithm), k->op, k->type)) {
        forced.algorithm = COLL_GPUSYM_ALG_AUTO;
    }
    if (!k->exact) {
        forced.algorithm = sized_algorithm(k->args->coll, false);
    }
    gpusym_tuning_stream(&what, c->zero_copy_min, &forced);
    gpusym_tuning_choose_in(&s->work, &what, &forced, choice);
}

/* A call's lengths, which are alike on all ranks: of the longest segment; where there are counts, of all of them. */
static uint64_t sign_lengths(const coll_gpusym_segments_t *k, const gpusym_work_t *w)
{
    const bool received = COLL_GPUSYM_ALLGATHERV == k->args->coll, sent = COLL_GPUSYM_REDUCE_SCATTER == k->args->coll;
    uint64_t x = k->bytes;
    for (uint32_t p = 0; p < w->nranks && (received || sent); p++) {
        x = (x ^ (received ? w->recv[p].bytes : w->send[p].bytes)) * 0x9e3779b97f4a7c15ull;
        x ^= x >> 29;
    }
    return x;
}

/* What must be alike on all ranks. lengths: 0 where they do not know all of them. */
static uint64_t sign(const coll_gpusym_segments_t *k, uint64_t lengths, const mapped_t *m)
{
    const uint64_t regions = NULL == m->out ? 0 : (uint64_t) m->in->number << 32 | m->out->number;
    const uint64_t x = ((uint64_t) coll_gpusym_plan_hash(k) << 32 | k->args->coll) ^
                       (lengths ^ regions * 0xd6e8feb86659fd93ull) * 0x9e3779b97f4a7c15ull;
    return (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
}

/* What the kernels know of the ranks' buffers: where the regions are. The rest they tell each other. */
static void set_regions(const mapped_t *m, gpusym_work_t *w)
{
    memset(w->remote_off, 0, sizeof w->remote_off);
    for (uint32_t r = 0; r < w->nranks; r++) {
        w->peer_in[r] = m->in->at[r];
        w->peer_out[r] = m->out->at[r];
    }
}

/* Of the next call that no graph has. */
static uint32_t next_number(const coll_gpusym_on_stream_t *s)
{
    return UINT32_MAX == s->queued ? 1 : s->queued + 1;
}

/* A call has been queued, with that number, 0: into a graph. */
static void note_number(coll_gpusym_on_stream_t *s, uint32_t number, bool tells)
{
    if (0 != number) {
        s->telling = tells ? number : s->telling;
        __atomic_store_n(&s->queued, number, __ATOMIC_RELAXED);
    } else {
        s->captured = true;
    }
}

static void note_queued(coll_gpusym_on_stream_t *s, unsigned coll, const gpusym_tuning_choice_t *choice,
                        const gpusym_work_t *w)
{
    coll_gpusym_counters_t *counters = &coll_gpusym_counters[coll];
    coll_gpusym_count(&counters->native);
    coll_gpusym_count(&counters->algorithm[choice->algorithm]);
    if (choice->zero_copy) {
        coll_gpusym_count(&counters->zero_copy);
    }
    note_number(s, w->done_seq, NULL != w->done);
}

/* Launch geometry, within the room for the kernels. */
static void set_geometry(const coll_gpusym_on_stream_t *s, const gpusym_tuning_choice_t *choice, gpusym_work_t *w)
{
    const uint32_t room = s->threads / choice->threads;
    w->nblocks = choice->blocks < room ? choice->blocks : 0 != room ? room : 1;
    w->nthreads = choice->threads;
}

/* Which kernels there is room for beside each other, within that of the communicator. One that does not let the next
 * one come leaves all of it. On several streams the call before, and the next one, may be any. */
static uint32_t find_soon(const coll_gpusym_on_stream_t *s, const gpusym_work_t *w, bool captured)
{
    const uint32_t threads = w->nblocks * w->nthreads;
    const bool twice = 2 * threads <= s->threads;
    const bool fits = s->several ? twice : threads + s->ahead[captured] <= s->threads;
    return (fits ? GPUSYM_SOON_THIS : 0) | (twice ? GPUSYM_SOON_NEXT : 0);
}

/* A call whose lengths all ranks know. */
static void plan_exact(coll_gpusym_on_stream_t *s, const coll_gpusym_segments_t *k, gpusym_tuning_choice_t *choice,
                       gpusym_work_t *w)
{
    mapped_t m;
    choose(s, k, k->bytes, find_regions(s, k, &m), choice);
    if (choice->zero_copy) {
        set_regions(&m, w);
    } else {
        m = (mapped_t){NULL, NULL};
    }
    set_geometry(s, choice, w);
    w->epochs = gpusym_kernel_plan(choice->family, w, choice->chunk);
    w->early = GPUSYM_PROTOCOL_LL == gpusym_family_protocol(choice->family) && 1 == w->epochs ? GPUSYM_STREAM_BEGINS
                                                                                              : GPUSYM_STREAM_WAITS;
    w->enter_sig = sign(k, sign_lengths(k, w), &m);
}

/* One whose ranks know only their own: nothing but their number of epochs depends on these. */
static void plan_sized(const coll_gpusym_on_stream_t *s, const coll_gpusym_segments_t *k,
                       gpusym_tuning_choice_t *choice, gpusym_work_t *w)
{
    choose(s, k, SIZED_BYTES, false, choice);
    set_geometry(s, choice, w);
    w->epochs = gpusym_kernel_plan_sized(w, 0 != choice->chunk && choice->chunk < SIZED_CHUNK_MIN ? SIZED_CHUNK_MIN
                                                                                                  : choice->chunk);
    choice->family = gpusym_kernel_sized_family(w);
    if (GPUSYM_F_XLL == choice->family) {
        choice->algorithm = sized_algorithm(k->args->coll, true);
        choice->blocks = 1;
        choice->threads = gpusym_tuning_stream_lines(w->bytes, w->nranks);
        set_geometry(s, choice, w);
    }
    w->enter_sig = sign(k, 0, &(mapped_t){NULL, NULL}) >> 32 << 32;
}

int coll_gpusym_on_stream_queue(coll_gpusym_on_stream_t *s, const coll_gpusym_segments_t *k, bool captured, bool tells)
{
    gpusym_tuning_choice_t choice;
    gpusym_work_t w = s->work;

    coll_gpusym_segments_work(k, k->bytes, NULL, &w);
    if (k->exact) {
        plan_exact(s, k, &choice, &w);
    } else {
        plan_sized(s, k, &choice, &w);
    }
    w.soon = find_soon(s, &w, captured);
    w.done_seq = captured ? 0 : next_number(s);
    w.done = tells || s->several ? &s->lane->line->done : NULL;
    const int rc = gpusym_current.dev->launch(s->stream, gpusym_kernel_find_stream(choice.family, k->op, k->type), &w);
    if (GPUSYM_SUCCESS == rc) {
        note_queued(s, k->args->coll, &choice, &w);
        s->ahead[captured] = 0 != (w.soon & GPUSYM_SOON_NEXT) ? w.nblocks * w.nthreads : 0;
    }
    return rc;
}

int coll_gpusym_on_stream_copy(coll_gpusym_on_stream_t *s, unsigned coll, const coll_gpusym_copy_t *copy, bool captured)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const uint32_t number = captured ? 0 : next_number(s);
    const int rc = dev->copy_async(s->stream, copy->to, copy->from, copy->bytes);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    coll_gpusym_count(&coll_gpusym_counters[coll].native);
    coll_gpusym_count(&coll_gpusym_counters[coll].copied);
    note_number(s, number, true);
    if (!captured && !queue_flag(s->stream, false, done_at(s), number)) {
        while (0 == dev->stream_poll(s->stream)) {
            opal_progress();
        }
        __atomic_store_n(&s->lane->host->done, (uint64_t) number << 32, __ATOMIC_RELEASE);
    }
    return rc;
}

bool coll_gpusym_on_stream_told(coll_gpusym_on_stream_t *s, uint32_t number)
{
    return (int32_t) (last_told(s) - number) >= 0 || never_end(s);
}

uint32_t coll_gpusym_on_stream_failed(coll_gpusym_on_stream_t *s, int *rank)
{
    check(s);
    const uint32_t status = (uint32_t) __atomic_load_n(&s->lane->host->doorbell[0], __ATOMIC_ACQUIRE);
    const uint32_t what = status & 0xff;
    const uint32_t lost = find_lost(s);
    *rank = 0 != lost ? __atomic_load_n(&s->lost_rank, __ATOMIC_RELAXED) : -1;
    if (0 != lost) {
        return lost;
    }
    if (GPUSYM_STATUS_OK != what && GPUSYM_STATUS_ABORTED != what) {
        *rank = (int) (status >> 8 & 0xff);
    }
    return what;
}

void coll_gpusym_on_stream_listen(void)
{
    opal_progress();
}

int coll_gpusym_on_stream_code(const coll_gpusym_on_stream_t *s, uint32_t status, int rank)
{
    if (GPUSYM_STATUS_OK == status) {
        return MPI_SUCCESS;
    }
    if (COLL_GPUSYM_ON_STREAM_REVOKED == rank) {
        return GPUSYM_ERR_REVOKED;
    }
    if (0 == find_lost(s) || rank < 0) {
        return MPI_ERR_OTHER;
    }
    (void) gpusym_ft_tell(s->comm, rank);
    return GPUSYM_ERR_PROC_FAILED;
}
