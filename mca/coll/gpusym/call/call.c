/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call in flight: roll-call, set-up, launch, completion; and what is done when a peer or a GPU fails.
 */
#include "mca/coll/gpusym/call/call.h"

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/counters.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/plan/plan.h"
#include "mca/coll/gpusym/plan/zero_copy.h"
#include "mca/coll/gpusym/team/hosts.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/coll/gpusym/team/team.h"
#include "mca/common/gpusym/agree/tokens.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/shm/fd.h"
#include "ompi/runtime/mpiruntime.h"

/* How much longer than the kernel's own limit the host waits for a kernel to retire. */
#define GRACE_NS 5000000000ull

uint32_t coll_gpusym_in_flight;

/* The label of the call's communicator, in buf. */
static const char *label_of(const coll_gpusym_call_t *call, char *buf, size_t size)
{
    return gpusym_comm_label(call->engine->fallback->comm, buf, size);
}

static const char *name_of(const coll_gpusym_call_t *call)
{
    return coll_gpusym_mpi_name(call->args.coll);
}

static gpusym_rollcall_t *rollcall_of(const coll_gpusym_call_t *call)
{
    return &call->engine->team->host.rc;
}

/* The number of the call, the first of its communicator that is not over; also before it is posted. */
static uint64_t number_of(const coll_gpusym_call_t *call)
{
    return rollcall_of(call)->seq + (COLL_GPUSYM_CALL_NEW == call->state);
}

/* The call has ended: it had launch tokens, or was waiting for them, perhaps. */
static void end_call(coll_gpusym_call_t *call)
{
    if (call->has_tokens) {
        gpusym_tokens_give(rollcall_of(call), MPI_SUCCESS != call->error);
        call->has_tokens = false;
    }
    if (call->led && MPI_SUCCESS != call->error) { /* a leader may still load and store there: it is not used again */
        coll_gpusym_zero_copy_lose(&call->task);
        coll_gpusym_scratch_lose(&call->launch);
    }
    coll_gpusym_zero_copy_withdraw(&call->task);
    coll_gpusym_scratch_put(&call->launch);
    coll_gpusym_rails_end(&call->rails);
    coll_gpusym_move_free(call->move);
    call->move = NULL;
    coll_gpusym_cut_free(call->pieces);
    call->pieces = NULL;
    if (MPI_SUCCESS == call->error && coll_gpusym_sizes_truncated(call->sizes)) {
        call->error = MPI_ERR_TRUNCATE; /* of this rank alone: the call has ended well */
    }
    coll_gpusym_sizes_free(call->sizes);
    call->sizes = NULL;
    call->task.sizes = NULL;
    call->state = COLL_GPUSYM_CALL_ENDED;
}

/* Whether a buffer of this rank is GPU memory. */
static bool has_gpu_buffer(const coll_gpusym_call_t *call)
{
    return call->device && !call->on_host && coll_gpusym_on_gpu(&call->segments.where);
}

/* Makes a kernel of the call's retire, and waits for that: it may be using the user's buffers. */
static void drain_kernel(coll_gpusym_call_t *call)
{
    __atomic_store_n(&call->launch.lane->host->abort, 1u, __ATOMIC_RELEASE);
    call->state = COLL_GPUSYM_CALL_DRAINING;
    call->since_ns = gpusym_now_ns();
}

/* Agreed, or known to be so on all ranks: the fallback does it. */
static void leave_to_fallback(coll_gpusym_call_t *call, int reason)
{
    const bool ours = has_gpu_buffer(call);
    if (NULL != call->launch.lane) { /* a resident kernel has the command already */
        call->launch.resident.recalled = true;
        call->reason = reason;
        drain_kernel(call);
        return;
    }
    coll_gpusym_sizes_free(call->sizes); /* the fallback finds out by itself */
    call->sizes = NULL;
    end_call(call);
    call->reason = ours ? reason : -1;
    call->state = COLL_GPUSYM_CALL_FALLBACK;
}

/* Ends the call with an error, or, while a kernel runs, makes it retire and waits for that. The peers are notified. */
static void give_up(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->engine->team;
    coll_gpusym_team_abort(t, number_of(call));
    coll_gpusym_hosts_abort(t);
    t->broken = true;
    t->open = false;
    call->error = MPI_ERR_OTHER;
    if (NULL != call->rails.plan) { /* its kernels end by themselves, its messages are being sent */
        call->state = COLL_GPUSYM_CALL_DRAINING;
        return;
    }
    if (NULL == call->launch.lane) {
        end_call(call);
        return;
    }
    call->launch.resident.recalled = false;
    drain_kernel(call);
}

/* The communicator's rank of a member of the team, for messages; negative: none. */
static int rank_of(const coll_gpusym_call_t *call, int member)
{
    return member < 0 ? member : (int) coll_gpusym_team_member(call->engine->team, (uint32_t) member);
}

static void stage_call(coll_gpusym_call_t *call, int reason);

/* No kernel runs any more. */
static void end_drained(coll_gpusym_call_t *call)
{
    if (call->launch.resident.recalled) {
        stage_call(call, call->reason);
    } else {
        end_call(call);
    }
}

static void fail_gpu(coll_gpusym_call_t *call, const char *text)
{
    const coll_gpusym_team_t *t = call->engine->team;
    char label[GPUSYM_COMM_LABEL_MAX];
    coll_gpusym_help("gpu-error", (int) coll_gpusym_team_rank(t),
                     '\0' != t->host.gpu_text[0] ? t->host.gpu_text : "of the buffer",
                     label_of(call, label, sizeof label), name_of(call), text);
    give_up(call);
}

static bool is_part(const coll_gpusym_call_t *call)
{
    return coll_gpusym_team_is_part(call->engine->team);
}

/* A rank of another island is lost. */
static void fail_lost(coll_gpusym_call_t *call, int rank, const char *why)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    coll_gpusym_help("lost-rank", (int) coll_gpusym_team_rank(call->engine->team), label_of(call, label, sizeof label),
                     name_of(call), rank, coll_gpusym_peer_host(call->engine->team->all[rank]), why);
    coll_gpusym_hosts_blame(call->engine->team, (uint32_t) rank);
    give_up(call);
}

static void fail_timeout(coll_gpusym_call_t *call, int peer)
{
    const coll_gpusym_team_t *t = call->engine->team;
    char label[GPUSYM_COMM_LABEL_MAX];
    coll_gpusym_help("timeout", (int) coll_gpusym_team_rank(t), t->host.gpu_text, label_of(call, label, sizeof label),
                     name_of(call), rank_of(call, peer), coll_gpusym_params.timeout);
    give_up(call);
}

/* A rank's line, or what it lists, was overwritten. */
static void fail_corrupt(coll_gpusym_call_t *call, int other)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    coll_gpusym_help("corrupt", (int) coll_gpusym_team_rank(call->engine->team), label_of(call, label, sizeof label),
                     name_of(call), rank_of(call, other));
    give_up(call);
}

/* The ranks are not in the same call. The lower rank first: both say the same. */
static void fail_mismatch(coll_gpusym_call_t *call)
{
    const gpusym_rollcall_read_t *read = &call->task.read;
    const int rank[] = {(int) coll_gpusym_team_rank(call->engine->team), rank_of(call, read->mismatch_rank)};
    const uint32_t coll[] = {call->args.coll,
                             gpusym_rollcall_what(rollcall_of(call), (uint32_t) read->mismatch_rank, read->seq)};
    const size_t bytes[] = {(size_t) call->segments.bytes, (size_t) read->mismatch_bytes};
    const int low = rank[0] < rank[1] ? 0 : 1, high = 1 - low;
    char label[GPUSYM_COMM_LABEL_MAX];
    coll_gpusym_help("mismatch", label_of(call, label, sizeof label), (unsigned long long) read->seq, rank[low],
                     coll_gpusym_mpi_name(coll[low]), bytes[low], rank[high], coll_gpusym_mpi_name(coll[high]),
                     bytes[high], coll[0] == coll[1] && bytes[0] == bytes[1] ? " (operation, datatype or root)" : "");
    give_up(call);
}

/* An island is in another call. */
static void fail_other_call(coll_gpusym_call_t *call, int rank)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    coll_gpusym_help("other-island", (int) coll_gpusym_team_rank(call->engine->team),
                     label_of(call, label, sizeof label), name_of(call), (size_t) call->segments.bytes, rank,
                     coll_gpusym_peer_host(call->engine->team->all[rank]));
    give_up(call);
}

/* What came from another island is not of this call. */
static void fail_net(coll_gpusym_call_t *call)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    coll_gpusym_help("net-error", (int) coll_gpusym_team_rank(call->engine->team), label_of(call, label, sizeof label),
                     name_of(call));
    give_up(call);
}

/* Whether a rank of another island is lost, or has given up; then the call ends. */
static bool fail_if_island_lost(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->engine->team;
    const char *why;
    const int lost = coll_gpusym_hosts_lost(t, &why);
    if (lost >= 0) {
        fail_lost(call, lost, why);
    }
    return lost >= 0;
}

/* Whether a peer has died or given up, or a line was overwritten; then the call ends. */
static bool fail_if_peer_lost(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->engine->team;
    char label[GPUSYM_COMM_LABEL_MAX];
    const int dead = t->host.joined ? gpusym_rollcall_dead(&t->host.rc) : coll_gpusym_team_dead(t);
    if (dead >= 0) {
        coll_gpusym_help("dead-rank", (int) coll_gpusym_team_rank(t), label_of(call, label, sizeof label),
                         opal_process_info.nodename, rank_of(call, dead), coll_gpusym_peer_process(t->host.peers[dead]),
                         name_of(call));
        if (is_part(call)) {
            coll_gpusym_hosts_blame(t, (uint32_t) rank_of(call, dead));
        }
        give_up(call);
        return true;
    }
    const int corrupt = gpusym_rollcall_corrupt(&t->host.rc, &call->task.read);
    if (corrupt >= 0) {
        fail_corrupt(call, corrupt);
        return true;
    }
    if (is_part(call) && fail_if_island_lost(call)) { /* what this rank knows by itself says more */
        return true;
    }
    const int quitter = gpusym_rollcall_aborted(&t->host.rc, number_of(call));
    const int lost = quitter >= 0 && NULL != t->hosts ? coll_gpusym_hosts_blamed(t, quitter) : -1;
    if (lost >= 0) {
        fail_lost(call, lost, "another rank of this host has reported it");
        return true;
    }
    if (quitter >= 0) {
        coll_gpusym_help("aborted", (int) coll_gpusym_team_rank(t), label_of(call, label, sizeof label), name_of(call),
                         rank_of(call, quitter));
        give_up(call);
        return true;
    }
    return false;
}

/* A poll of a call that waits for ranks to come: are they there, and for how long has it waited? */
static void check_peers(coll_gpusym_call_t *call, coll_gpusym_wait_for_t what)
{
    if (coll_gpusym_health_due(&call->health) && !fail_if_peer_lost(call) &&
        coll_gpusym_wait_note(&call->wait, call->engine->team, call->args.coll, call->task.read.seq, what,
                              call->health.gap_ns)) {
        give_up(call);
    }
}

/* ---- roll-call ---- */

/* The arguments and what belongs to all starts are kept by name; all else is reset. */
void coll_gpusym_call_reset(coll_gpusym_call_t *call)
{
    *call = (coll_gpusym_call_t){.engine = call->engine,
                                 .args = call->args,
                                 .segments = call->segments,
                                 .device = call->device,
                                 .on_host = call->on_host,
                                 .blocking = call->blocking,
                                 .agreed = call->agreed,
                                 .settled = call->settled,
                                 .reason_settled = call->reason_settled,
                                 .plan = call->plan,
                                 .bounce = call->bounce,
                                 .state = COLL_GPUSYM_CALL_NEW,
                                 .reason = -1,
                                 .error = MPI_SUCCESS,
                                 .task = {.segments = &call->segments,
                                          .cache = call->engine->cache,
                                          .plan = call->plan,
                                          .blocking = call->blocking},
                                 .launch = {.algorithm = -1}};
}

void coll_gpusym_call_init_apart(coll_gpusym_call_t *call, coll_gpusym_engine_t *e, const coll_gpusym_args_t *args,
                                 int reason)
{
    *call = (coll_gpusym_call_t){.engine = e, .args = *args, .reason = reason};
}

void coll_gpusym_call_init(coll_gpusym_call_t *call, coll_gpusym_engine_t *e, const coll_gpusym_args_t *args,
                           const gpusym_mem_t *smem, const gpusym_mem_t *rmem, bool blocking)
{
    *call = (coll_gpusym_call_t){
        .engine = e,
        .args = *args,
        .segments = {.args = &call->args, .team = e->team, .where = coll_gpusym_on_gpu(rmem) ? *rmem : *smem},
        .device = !coll_gpusym_both_host(smem, rmem),
        .blocking = blocking,
        .state = COLL_GPUSYM_CALL_NEW,
        .reason = -1,
        .task = {.segments = &call->segments, .cache = e->cache, .blocking = blocking},
        .launch = {.algorithm = -1}};
    if (call->device && coll_gpusym_has_kernels(args->coll)) {
        coll_gpusym_segments_init(&call->segments, smem, rmem);
    }
}

/* In `what`: that the call is not made yet, see agree_only. */
#define AGREE_ONLY 0x80u

/* What the ranks compare of a call that is staged, to find out whether they can move it or cut it alike. */
static void describe_staged(const coll_gpusym_call_t *call, gpusym_post_t *p)
{
    uint64_t bytes;
    uint32_t element;
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[call->args.coll];
    p->flags |= !gpusym_window_is_worn() && coll_gpusym_segments_may_move(&call->segments) ? GPUSYM_POST_MOVE : 0;
    if (!coll_gpusym_cut_may(call->engine->fallback->comm, &call->args, &bytes, &element) ||
        (has_gpu_buffer(call) && coll_gpusym_bounce_packs(call->engine->fallback->comm, &call->args))) {
        return;
    }
    if (p->kind < GPUSYM_KIND_BOUNCE && !f->reduces) {
        return; /* a broadcast's types need not be alike, and this post does not tell their elements */
    }
    if (call->on_host && call->segments.in_place && COLL_GPUSYM_P_REDUCE_SCATTER == f->pattern) {
        return; /* it has no bounce buffers, by which pieces are out of place */
    }
    p->flags |= GPUSYM_POST_CUT;
    if (p->kind >= GPUSYM_KIND_BOUNCE) {
        p->bytes = bytes;
        p->layout = element;
    }
}

/* The call's name in posts and records. */
static uint8_t name_posted(const coll_gpusym_call_t *call)
{
    return (uint8_t) ((uint8_t) call->args.coll | (call->agree_only ? AGREE_ONLY : 0));
}

/* What this rank with device buffers, or none, has to post. */
static void describe_native(coll_gpusym_call_t *call, gpusym_post_t *p)
{
    coll_gpusym_segments_t *k = &call->segments;
    const int agreed = call->engine->team->reason; /* for good */
    k->reason = agreed >= 0 ? agreed : k->reason;
    if (k->reason < 0 && is_part(call) && !coll_gpusym_rails_may(&call->args)) {
        k->reason = COLL_GPUSYM_R_BETWEEN;
    }
    if (k->reason < 0 && !call->agree_only && !coll_gpusym_scratch_get(&call->launch, k)) {
        k->reason = COLL_GPUSYM_R_NO_MEMORY;
    }
    p->kind = (uint8_t) (k->reason < 0 ? GPUSYM_KIND_NATIVE : GPUSYM_KIND_BOUNCE + k->reason);
    p->exact = k->exact;
    p->bytes = k->bytes;
    p->balance = k->balance;
    p->hash = call->task.hash = coll_gpusym_plan_hash(k);
    p->layout = k->layout;
    p->flags = k->in_place ? GPUSYM_POST_IN_PLACE : 0;
    /* While a nonblocking call is in flight more may be started. */
    p->flags |=
        call->blocking && 0 == __atomic_load_n(&coll_gpusym_in_flight, __ATOMIC_RELAXED) ? GPUSYM_POST_QUIET : 0;
    if (!k->team->host.led && !k->team->host.mps && coll_gpusym_team_crowded(k->team)) {
        p->flags |= GPUSYM_POST_CROWDED;
    }
    if (k->reason < 0 && !call->agree_only) {
        coll_gpusym_zero_copy_offer(&call->task, p);
    }
    if (!is_part(call)) { /* else only the ranks of this island would agree on it */
        describe_staged(call, p);
    }
}

/* The memory of the GPU on which this rank's buffers in host memory are worked on; false: it uses none. */
static bool find_gpu(const coll_gpusym_team_t *t, gpusym_mem_t *mem)
{
    const bool known = NULL != t->host.gpu;
    *mem = (gpusym_mem_t){.kind = GPUSYM_MEM_DEVICE,
                          .gpu = known ? t->host.mem_gpu : gpusym_current.dev->gpu_current(),
                          .context = known ? t->host.mem_context : NULL};
    return mem->gpu >= 0;
}

/* This rank's buffers are host memory, and other ranks' lately were not: it takes part, if it can. */
static void take_part(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->engine->team;
    gpusym_mem_t smem, rmem;
    if (call->device || call->agree_only || !t->host.rc.looks || t->reason >= 0 ||
        !find_gpu(t, &call->segments.where)) {
        return;
    }
    coll_gpusym_where(call->engine->fallback->comm, gpusym_current.dev, &call->args, &smem, &rmem);
    coll_gpusym_segments_init(&call->segments, &smem, &rmem);
    call->device = call->on_host = call->segments.reason < 0;
}

/* From this call on, on all ranks: they have found so in one before. */
static void begin_to_lead(coll_gpusym_engine_t *e)
{
    e->team->host.leads_next = false;
    coll_gpusym_team_lead(e->team);
    coll_gpusym_residents_end(e->residents);
}

/* Posts, if the peers are near enough. */
static void post_call(coll_gpusym_call_t *call)
{
    gpusym_post_t p = {.kind = GPUSYM_KIND_HOST, .what = name_posted(call)};
    call->joins = COLL_GPUSYM_STEP_DONE != call->engine->team->boot.step;

    if (call->engine->team->host.leads_next) {
        begin_to_lead(call->engine);
    }
    take_part(call);
    if (call->device) {
        describe_native(call, &p);
        p.flags |= call->on_host ? GPUSYM_POST_HOST : has_gpu_buffer(call) ? GPUSYM_POST_GPU : 0;
    }
    if (is_part(call) && (GPUSYM_KIND_HOST != p.kind || call->agree_only)) {
        coll_gpusym_hosts_enter(call->engine->team, rollcall_of(call)->seq + 1);
    }
    if (!coll_gpusym_zero_copy_tell(&call->task, &p) ||
        !gpusym_rollcall_post(rollcall_of(call), &p, &call->task.read)) {
        coll_gpusym_zero_copy_withdraw(&call->task);
        return;
    }
    if (GPUSYM_KIND_HOST == p.kind && !call->agree_only) {
        leave_to_fallback(call, -1);
    } else {
        call->state = COLL_GPUSYM_CALL_ROLLCALL;
        /* If ranks then leave it to the fallback, one at least is on the host, and has not commanded: so no kernel has
         * done it. */
        if (GPUSYM_KIND_NATIVE == p.kind && !call->agree_only && has_gpu_buffer(call)) {
            coll_gpusym_resident_command_early(call->engine->residents, &call->task, &call->launch);
        }
    }
}

static void begin_call(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->engine->team;
    const int bootstrapped = t->broken ? -1 : coll_gpusym_team_bootstrap(t);

    if (bootstrapped < 0) { /* the failure has been reported */
        call->error = MPI_ERR_OTHER;
        end_call(call);
    } else if (0 == bootstrapped) {
        check_peers(call, COLL_GPUSYM_WAIT_POST);
    } else if (t->none) {
        leave_to_fallback(call, -1);
    } else if (call->settled && !t->host.joined) {
        leave_to_fallback(call, call->reason_settled);
    } else if (!coll_gpusym_has_kernels(call->args.coll)) {
        leave_to_fallback(call, COLL_GPUSYM_R_NO_NATIVE);
    } else if (t->reason >= 0 && !t->host.joined) { /* agreed for good, and no lines to agree on more by */
        leave_to_fallback(call, t->reason);
    } else {
        post_call(call);
        if (COLL_GPUSYM_CALL_NEW == call->state) {
            check_peers(call, COLL_GPUSYM_WAIT_POST);
        }
    }
}

/* ---- agreed: native ---- */

/* Agreed: staged. Whether all ranks cut it, in pieces that are alike: no rank is on the host, where it has gone on. */
static bool is_cut(const coll_gpusym_call_t *call)
{
    const gpusym_rollcall_read_t *read = &call->task.read;
    return !read->host && 0 != (read->all & GPUSYM_POST_CUT) && read->mismatch_rank < 0 && read->same_layout &&
           0 != coll_gpusym_params.piece && read->max_bytes > coll_gpusym_params.piece;
}

/* Agreed: staged. Whether all ranks move it through their windows. */
static bool is_moved(const coll_gpusym_call_t *call)
{
    const gpusym_rollcall_read_t *read = &call->task.read;
    const int windows = call->engine->windows.agreed;
    const bool has_voted = COLL_GPUSYM_CALL_VOTE == call->state; /* on something else, and a call has one vote */
    return !read->host && 0 != (read->all & GPUSYM_POST_MOVE) && !read->other_call && windows >= 0 &&
           (windows > 0 || !has_voted);
}

static void move_data(coll_gpusym_call_t *call)
{
    uint32_t rank = 0;
    switch (coll_gpusym_move_poll(call->move, &rank)) {
    case COLL_GPUSYM_MOVE_TRUNCATED:
        call->error = MPI_ERR_TRUNCATE; /* of this rank alone: the call has ended well */
        /* fall through */
    case COLL_GPUSYM_MOVE_ENDED:
        call->moved = true;
        end_call(call);
        break;
    case COLL_GPUSYM_MOVE_GPU_ERROR:
        fail_gpu(call, gpusym_current.dev->error());
        break;
    case COLL_GPUSYM_MOVE_CORRUPT:
        fail_corrupt(call, (int) rank);
        break;
    default:
        if (coll_gpusym_health_due(&call->health)) {
            fail_if_peer_lost(call);
        }
        break;
    }
}

/* The windows of all ranks are mapped everywhere. */
static void begin_move(coll_gpusym_call_t *call)
{
    coll_gpusym_engine_t *e = call->engine;
    char label[GPUSYM_COMM_LABEL_MAX];
    call->move = coll_gpusym_move_begin(&call->segments, rollcall_of(call), &e->windows, call->task.read.seq);
    if (NULL == call->move) {
        coll_gpusym_help("no-memory", (int) coll_gpusym_team_rank(e->team), label_of(call, label, sizeof label),
                         name_of(call), sizeof(gpusym_table_row_t), "host memory for staging");
        give_up(call);
        return;
    }
    call->state = COLL_GPUSYM_CALL_MOVING;
    move_data(call);
}

/* The first move of a communicator finds the windows. */
static void find_windows(coll_gpusym_call_t *call)
{
    coll_gpusym_windows_t *w = &call->engine->windows;
    char label[GPUSYM_COMM_LABEL_MAX];
    call->state = COLL_GPUSYM_CALL_WINDOWS;
    if (0 == w->agreed) {
        coll_gpusym_windows_poll(w, rollcall_of(call), call->task.read.seq);
    }
    if (w->agreed > 0) {
        begin_move(call);
    } else if (w->agreed < 0) {
        GPUSYM_LOG(2,
                   "%s: staged data go through the other components: a rank has no window, or cannot map a "
                   "peer's",
                   label_of(call, label, sizeof label));
        leave_to_fallback(call, call->reason);
    } else {
        check_peers(call, COLL_GPUSYM_WAIT_VOTE);
    }
}

/* A nonblocking call in pieces keeps its place before later calls until it is over. After an error the ranks are not at
 * the same piece. */
static void cut_pieces(coll_gpusym_call_t *call)
{
    int rv;
    if (!coll_gpusym_cut_poll(call->pieces, &rv)) {
        if (coll_gpusym_health_due(&call->health)) {
            fail_if_peer_lost(call);
        }
    } else if (MPI_SUCCESS == rv) {
        end_call(call);
    } else {
        give_up(call);
    }
}

static void begin_cut(coll_gpusym_call_t *call, int reason)
{
    call->reason = has_gpu_buffer(call) ? reason : -1;
    call->pieces = coll_gpusym_cut_begin(call->engine->fallback, &call->args, coll_gpusym_params.piece);
    if (NULL == call->pieces) {
        give_up(call);
        return;
    }
    call->cut = true;
    call->state = COLL_GPUSYM_CALL_CUTTING;
    cut_pieces(call);
}

/* All ranks have found that the call is staged. Once more if a resident kernel had to be recalled. */
static void stage_call(coll_gpusym_call_t *call, int reason)
{
    if (!call->agree_only && NULL == call->launch.lane && is_moved(call)) {
        call->reason = reason;
        find_windows(call);
        return;
    }
    const bool cut = !call->agree_only && is_cut(call);
    if (cut && !call->blocking && NULL == call->launch.lane) {
        begin_cut(call, reason);
        return;
    }
    leave_to_fallback(call, reason);
    call->cut = cut;
}

/* Ranks share GPUs, as this call has found: it is posted again, the same on all ranks, now with what leaders want. */
static void post_again(coll_gpusym_call_t *call)
{
    coll_gpusym_zero_copy_withdraw(&call->task);
    coll_gpusym_sizes_free(call->sizes);
    call->sizes = NULL;
    call->task.sizes = NULL;
    call->state = COLL_GPUSYM_CALL_NEW;
}

/* Votes on whether this rank has mapped the buffers that are new to it. corrupt: the rank whose post is, or -1. */
static void vote_mapped(coll_gpusym_call_t *call, bool mapped, int corrupt)
{
    const coll_gpusym_team_t *t = call->engine->team;
    char label[GPUSYM_COMM_LABEL_MAX];
    if (corrupt >= 0) {
        fail_corrupt(call, corrupt);
        return;
    }
    if (!mapped) {
        GPUSYM_LOG(2, "%s: rank %u cannot map a peer's buffer: %s%s", label_of(call, label, sizeof label),
                   coll_gpusym_team_rank(t), gpusym_current.dev->error(),
                   gpusym_fd_lack() ? " (no file descriptor is left)" : "");
    }
    gpusym_rollcall_vote(rollcall_of(call), call->task.read.seq, mapped);
    call->state = COLL_GPUSYM_CALL_VOTE;
}

/* ---- several islands ---- */

/* A rail has failed. */
static void fail_rails(coll_gpusym_call_t *call, int rc)
{
    if (GPUSYM_ERR_CORRUPT == rc) {
        fail_net(call);
    } else if (!fail_if_peer_lost(call)) {
        fail_gpu(call, GPUSYM_ERR_UNREACHABLE == rc ? "a rank of another island is lost"
                       : GPUSYM_ERR_BAD_PARAM == rc ? "the engine between hosts does not support this call"
                       : GPUSYM_ERR_NO_MEMORY == rc ? "there is no memory for messages between hosts"
                                                    : gpusym_current.dev->error());
    }
}

/* All ranks of this island know what it does with the call: natively (-1), or staged for a reason. The others are to
 * know it, and it what they do. */
static void ask_islands(coll_gpusym_call_t *call, int reason)
{
    const bool leader = 0 == call->engine->team->host.rank;
    call->island_reason = reason;
    if (reason >= 0 && !leader) {
        leave_to_fallback(call, reason);
        return;
    }
    call->told = !leader;
    call->state = COLL_GPUSYM_CALL_ISLANDS;
}

/* Not all ranks of this island can do it natively, as all of them find. */
static void stage_or_ask(coll_gpusym_call_t *call, int reason)
{
    if (is_part(call)) {
        ask_islands(call, reason);
    } else {
        stage_call(call, reason);
    }
}

static void begin_led(coll_gpusym_call_t *call);
static void poll_rails(coll_gpusym_call_t *call);

/* A short call begins on rails while the islands agree, where they have agreed on the last one: it takes one network
 * step then. It writes no output before they have. A long one is planned meanwhile. Where inputs are still to be
 * brought to where they are loaded, or there is no memory for the plan, nothing is done yet. */
static void begin_early(coll_gpusym_call_t *call)
{
    coll_gpusym_led_buffers_t all;
    int corrupt;
    if (!call->engine->team->hopes || 0 != (call->task.read.any & GPUSYM_POST_FILLS) || 0 == call->segments.bytes ||
        !coll_gpusym_zero_copy_map_led(&call->task, &all, true, &corrupt)) {
        return;
    }
    call->rails = (coll_gpusym_rails_t){.plan = coll_gpusym_rails_make(&call->task, &all)};
    call->rails.held = NULL != call->rails.plan && call->rails.plan->direct;
}

/* What has begun early is over. */
static void await_dropped(coll_gpusym_call_t *call)
{
    if (!coll_gpusym_rails_drop(&call->rails)) {
        return;
    }
    coll_gpusym_rails_end(&call->rails);
    if (call->verdict < 0) {
        end_call(call);
    } else {
        leave_to_fallback(call, call->verdict);
    }
}

/* Not native: -1: the call ends, for it is empty; else a reason. */
static void give_up_early(coll_gpusym_call_t *call, int reason)
{
    call->verdict = reason;
    call->state = COLL_GPUSYM_CALL_DROPPING;
    if (NULL != call->rails.plan) {
        await_dropped(call);
    } else if (reason < 0) {
        end_call(call);
    } else {
        leave_to_fallback(call, reason);
    }
}

/* All islands do it natively. */
static void go_on_native(coll_gpusym_call_t *call)
{
    if (call->agree_only) {
        call->agreed = true;
        end_call(call);
    } else if (NULL != call->rails.plan) {
        call->led = true;
        call->since_ns = 0;
        call->task.zero_copy.used = true;
        coll_gpusym_rails_release(&call->rails);
        call->state = COLL_GPUSYM_CALL_RAILS;
        poll_rails(call);
    } else {
        begin_led(call);
    }
}

/* All islands have told what they do. */
static void take_verdict(coll_gpusym_call_t *call, const coll_gpusym_verdict_t *v)
{
    call->engine->team->hopes = COLL_GPUSYM_VERDICT_NATIVE == v->kind;
    switch (v->kind) {
    case COLL_GPUSYM_VERDICT_NATIVE:
        go_on_native(call);
        break;
    case COLL_GPUSYM_VERDICT_EMPTY:
        call->agreed = call->agree_only;
        give_up_early(call, -1);
        break;
    case COLL_GPUSYM_VERDICT_UNSET:
        call->engine->team->wanted = true;
        give_up_early(call, COLL_GPUSYM_R_BETWEEN);
        break;
    case COLL_GPUSYM_VERDICT_MISMATCH:
        fail_other_call(call, (int) v->rank);
        break;
    default:
        give_up_early(call, (int) (v->kind - COLL_GPUSYM_VERDICT_STAGED));
        break;
    }
}

/* Moves on what has begun early. False: it has failed. */
static bool poll_early(coll_gpusym_call_t *call)
{
    const int rc = call->rails.held ? coll_gpusym_rails_poll(&call->rails) : 0;
    if (rc < 0) {
        fail_rails(call, rc);
    }
    return rc >= 0;
}

/* Of several islands: no member of this one has a buffer, and a GPU is opened for it only once others have data on
 * theirs. All members find the same. */
static bool is_unset(const coll_gpusym_call_t *call)
{
    return call->joins && !call->agree_only && 0 == (call->task.read.any & GPUSYM_POST_GPU) &&
           !call->engine->team->wanted;
}

static void await_islands(coll_gpusym_call_t *call)
{
    const gpusym_rollcall_read_t *read = &call->task.read;
    coll_gpusym_team_t *t = call->engine->team;
    coll_gpusym_verdict_t verdict;
    int rc = 1;
    if (!poll_early(call)) {
        return;
    }
    if (!call->told) {
        const coll_gpusym_island_record_t record = {.reason = call->island_reason,
                                                    .hash = call->task.hash,
                                                    .what = name_posted(call),
                                                    .unset = is_unset(call),
                                                    .bytes = read->max_bytes,
                                                    .balance = read->balance};
        rc = coll_gpusym_hosts_post(t, read->seq, &record);
        call->told = 1 == rc;
    }
    if (call->told && call->island_reason >= 0) {
        leave_to_fallback(call, call->island_reason);
        return;
    }
    if (1 == rc) {
        rc = coll_gpusym_hosts_poll(t, read->seq, call->segments.exact, &verdict);
    }
    if (1 == rc) {
        take_verdict(call, &verdict);
    } else if (0 == rc) {
        check_peers(call, COLL_GPUSYM_WAIT_ISLANDS);
    } else if (!fail_if_peer_lost(call)) {
        fail_net(call);
    }
}

/* With the answers of this island's ranks. */
static void judge_island(coll_gpusym_call_t *call)
{
    const gpusym_rollcall_read_t *read = &call->task.read;
    if (read->host || 0 != (read->any & GPUSYM_POST_HOST)) {
        ask_islands(call, COLL_GPUSYM_R_MIXED);
    } else if (read->bounce >= 0) {
        ask_islands(call, read->bounce - GPUSYM_KIND_BOUNCE);
    } else if (read->mismatch_rank >= 0 && (read->other_call || !coll_gpusym_segments_moves(call->args.coll))) {
        fail_mismatch(call);
    } else if (read->mismatch_rank >= 0) { /* the fallback finds out who takes less than is sent */
        ask_islands(call, COLL_GPUSYM_R_BETWEEN);
    } else if (call->agree_only || is_unset(call)) {
        ask_islands(call, -1);
    } else {
        call->state = COLL_GPUSYM_CALL_SETUP;
    }
}

static void poll_rails(coll_gpusym_call_t *call)
{
    const int rc = coll_gpusym_rails_poll(&call->rails);
    if (1 == rc) {
        coll_gpusym_rails_end(&call->rails);
        gpusym_rollcall_done(rollcall_of(call), call->task.read.seq);
        call->state = COLL_GPUSYM_CALL_LED;
    } else if (rc < 0) {
        fail_rails(call, rc);
    } else if (coll_gpusym_health_due(&call->health)) {
        fail_if_peer_lost(call);
    }
}

/* All are in the call, and inputs are where the owners of rails load them. */
static void launch_rails(coll_gpusym_call_t *call, const coll_gpusym_led_buffers_t *all)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    call->rails = (coll_gpusym_rails_t){.plan = coll_gpusym_rails_make(&call->task, all)};
    if (NULL == call->rails.plan) {
        coll_gpusym_help("no-memory", (int) coll_gpusym_team_rank(call->engine->team),
                         label_of(call, label, sizeof label), name_of(call), sizeof *call->rails.plan,
                         "host memory for the plan of a call between hosts");
        give_up(call);
        return;
    }
    call->state = COLL_GPUSYM_CALL_RAILS;
    poll_rails(call);
}

/* Ranks share GPUs: can leaders do it, and is there anything new for them to map? */
static void find_led_way(coll_gpusym_call_t *call)
{
    const coll_gpusym_team_t *t = call->engine->team;
    coll_gpusym_task_t *task = &call->task;
    coll_gpusym_led_buffers_t all;
    int corrupt = -1;

    if (call->joins && is_part(call)) { /* what is posted again would count as another call here alone */
        ask_islands(call, COLL_GPUSYM_R_BETWEEN);
        return;
    }
    if (call->joins) {
        post_again(call);
        return;
    }
    if (!coll_gpusym_lead_possible(task) || (is_part(call) && !coll_gpusym_rails_can(task))) {
        stage_or_ask(call, is_part(call) ? COLL_GPUSYM_R_BETWEEN : COLL_GPUSYM_R_SHARED_GPU);
        return;
    }
    if (0 == (task->read.any & GPUSYM_POST_NEW_KEY)) {
        call->state = COLL_GPUSYM_CALL_TOKENS;
        return;
    }
    const bool mapped =
        t->host.leader_index >= t->host.nleaders || coll_gpusym_zero_copy_map_led(task, &all, false, &corrupt);
    vote_mapped(call, mapped, corrupt);
}

/* All are on GPUs and have a team: how the data go. */
static void find_way(coll_gpusym_call_t *call)
{
    coll_gpusym_task_t *task = &call->task;
    gpusym_work_t w;
    int corrupt;

    if (call->engine->team->host.led) {
        find_led_way(call);
        return;
    }
    /* Another process has come to a rank's GPU, as all ranks find. This call is done yet as any: a resident kernel may
     * have done it already. */
    call->engine->team->host.leads_next = 0 != (task->read.any & GPUSYM_POST_CROWDED) && !call->joins;
    task->zero_copy.agreed = coll_gpusym_zero_copy_possible(task);
    task->cache->longest[call->args.coll] = task->read.max_bytes;
    if (!task->zero_copy.agreed || 0 == (task->read.any & GPUSYM_POST_NEW_KEY)) {
        call->state = COLL_GPUSYM_CALL_TOKENS;
        return;
    }
    const bool mapped = coll_gpusym_zero_copy_map(task, &w, false, &corrupt);
    vote_mapped(call, mapped, corrupt);
}

static void count_votes(coll_gpusym_call_t *call)
{
    coll_gpusym_task_t *task = &call->task;
    char label[GPUSYM_COMM_LABEL_MAX];
    const int votes = gpusym_rollcall_votes(rollcall_of(call), task->read.seq);

    if (0 == votes) {
        return;
    }
    if (votes > 0) {
        coll_gpusym_zero_copy_mapped(task);
    } else {
        task->zero_copy.agreed = false;
        task->cache->refused = true;
        GPUSYM_LOG(2, "%s: zero copy is disabled from now on: a rank could not map a peer's buffer",
                   label_of(call, label, sizeof label));
        if (call->engine->team->host.led) {
            stage_or_ask(call, COLL_GPUSYM_R_SHARED_GPU);
            return;
        }
    }
    call->state = COLL_GPUSYM_CALL_TOKENS;
}

/* The ranks' sizes are there? */
static void await_sizes(coll_gpusym_call_t *call)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    int rank;
    switch (coll_gpusym_sizes_poll(call->sizes, &call->task.read.max_bytes, &rank)) {
    case COLL_GPUSYM_SIZES_AGREED:
        if (0 == call->task.read.max_bytes) {
            end_call(call);
        } else {
            call->state = COLL_GPUSYM_CALL_SETUP;
        }
        break;
    case COLL_GPUSYM_SIZES_LACKING: /* all ranks find that */
        GPUSYM_LOG(2, "%s: %s goes through the host: rank %d has no memory for a table of sizes",
                   label_of(call, label, sizeof label), name_of(call), rank_of(call, rank));
        stage_call(call, COLL_GPUSYM_R_NO_MEMORY);
        break;
    case COLL_GPUSYM_SIZES_CORRUPT:
        fail_corrupt(call, rank);
        break;
    default:
        check_peers(call, COLL_GPUSYM_WAIT_SIZES);
        break;
    }
}

/* Not all that is sent is taken; agreed. */
static void compare_sizes(coll_gpusym_call_t *call)
{
    char label[GPUSYM_COMM_LABEL_MAX];
    call->sizes = coll_gpusym_sizes_create(&call->segments, call->task.read.seq);
    if (NULL == call->sizes) {
        coll_gpusym_help("no-memory", (int) coll_gpusym_team_rank(call->engine->team),
                         label_of(call, label, sizeof label), name_of(call), sizeof(uint64_t),
                         "host memory for the ranks' sizes");
        give_up(call);
        return;
    }
    call->task.sizes = coll_gpusym_sizes_agreed(call->sizes);
    call->state = COLL_GPUSYM_CALL_SIZES;
    await_sizes(call);
}

/* All have answered: what to do. */
static void judge_answers(coll_gpusym_call_t *call)
{
    const gpusym_rollcall_read_t *read = &call->task.read;
    const bool any_host = read->host || 0 != (read->any & GPUSYM_POST_HOST);

    if (any_host && has_gpu_buffer(call) && !is_part(call)) {
        gpusym_rollcall_mixed(rollcall_of(call), read->seq);
    }
    if (read->corrupt_rank >= 0) {
        fail_corrupt(call, read->corrupt_rank);
    } else if (read->bounce >= GPUSYM_KIND_BOUNCE + (int) COLL_GPUSYM_REASONS) {
        fail_corrupt(call, read->bounce_rank);
    } else if (is_part(call)) {
        judge_island(call);
    } else if (any_host && 0 == (read->any & GPUSYM_POST_GPU)) { /* no rank has memory of a GPU */
        leave_to_fallback(call, -1);
    } else if (read->host || read->bounce >= 0) {
        stage_call(call, read->bounce >= 0 ? read->bounce - GPUSYM_KIND_BOUNCE : COLL_GPUSYM_R_MIXED);
    } else if (read->mismatch_rank >= 0 && (read->other_call || !coll_gpusym_segments_moves(call->args.coll))) {
        fail_mismatch(call);
    } else if (call->agree_only) {
        call->agreed = true;
        end_call(call);
    } else if (read->mismatch_rank >= 0 || 0 != read->balance) {
        compare_sizes(call);
    } else if (0 == read->max_bytes) { /* nothing from anyone to anyone */
        end_call(call);
    } else {
        call->state = COLL_GPUSYM_CALL_SETUP;
    }
}

static void set_up(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->engine->team;
    const int rv = coll_gpusym_team_join(t, &call->segments.where);
    if (rv < 0) {
        give_up(call);
    } else if (rv > 0 && t->reason >= 0) {
        stage_or_ask(call, t->reason);
    } else if (rv > 0 && !coll_gpusym_plan_reaches(&call->task)) {
        stage_call(call, COLL_GPUSYM_R_UNREACHABLE);
    } else if (rv > 0) {
        find_way(call);
    } else {
        check_peers(call, COLL_GPUSYM_WAIT_SETUP);
    }
}

/* ---- kernel ---- */

/* Plans the launch, and takes its epochs. False: they are not there yet, or the call has failed. */
static bool plan_launch(coll_gpusym_call_t *call, coll_gpusym_plan_t *p)
{
    int corrupt;
    if (!coll_gpusym_plan_get(&call->task, p, &corrupt)) {
        if (corrupt >= 0) {
            fail_corrupt(call, corrupt);
        } else {
            fail_gpu(call, gpusym_current.dev->error());
        }
        return false;
    }
    call->launch.algorithm = p->algorithm;
    call->task.zero_copy.used = p->zero_copy;
    const int taken = coll_gpusym_team_epochs(call->engine->team, p->epochs, &p->work.epoch);
    if (taken < 0) {
        fail_gpu(call, "the flags of its kernels cannot be cleared");
    } else if (0 == taken) {
        call->state = COLL_GPUSYM_CALL_CLEARING;
    }
    return 1 == taken;
}

/* Fills the descriptor and launches; or commands a resident kernel. */
static void launch_planned(coll_gpusym_call_t *call)
{
    coll_gpusym_engine_t *e = call->engine;
    const coll_gpusym_task_t *task = &call->task;
    coll_gpusym_launch_t *l = &call->launch;
    coll_gpusym_plan_t once, *p = NULL != call->plan && NULL == call->sizes ? call->plan : &once;

    if (!plan_launch(call, p)) {
        return;
    }
    call->state = COLL_GPUSYM_CALL_RUNNING;
    p->work.linger_ns = 0;
    if (coll_gpusym_resident_may(task, p)) {
        if (coll_gpusym_resident_command(e->residents, task, l, p)) {
            return;
        }
        coll_gpusym_resident_prepare(e->residents, task, l, p);
    } else {
        coll_gpusym_resident_make_room(e->residents, e->team, p);
    }
    if (!coll_gpusym_launch_plan(l, task, p)) {
        fail_gpu(call, gpusym_current.dev->error());
        return;
    }
    if (!call->blocking) {
        gpusym_rollcall_launched(&e->team->host.rc, task->read.seq);
    }
}

/* The call may be launched: a resident kernel may have its command already, or take that of the last call. */
static void launch_call(coll_gpusym_call_t *call)
{
    call->since_ns = 0;
    if (call->launch.resident.commanded ||
        coll_gpusym_resident_command_same(call->engine->residents, &call->task, &call->launch)) {
        call->state = COLL_GPUSYM_CALL_RUNNING;
    } else {
        launch_planned(call);
    }
}

/* All ranks are in the call, and clear their flags. */
static void await_cleared(coll_gpusym_call_t *call)
{
    launch_planned(call);
    if (COLL_GPUSYM_CALL_CLEARING == call->state && coll_gpusym_health_due(&call->health)) {
        fail_if_peer_lost(call);
    }
}

/* ---- ranks that share GPUs ---- */

static bool is_leader(const coll_gpusym_call_t *call)
{
    const coll_gpusym_team_t *t = call->engine->team;
    return t->host.leader_index < t->host.nleaders;
}

/* Launches what this leader has to do. */
static void launch_lead(coll_gpusym_call_t *call)
{
    coll_gpusym_task_t *task = &call->task;
    coll_gpusym_led_buffers_t all;
    coll_gpusym_lead_plan_t p;
    int corrupt;

    if (!coll_gpusym_zero_copy_map_led(task, &all, true, &corrupt)) {
        if (corrupt >= 0) {
            fail_corrupt(call, corrupt);
        } else {
            fail_gpu(call, gpusym_current.dev->error());
        }
        return;
    }
    if (is_part(call)) {
        launch_rails(call, &all);
        return;
    }
    const bool made = coll_gpusym_lead_make(task, &all, &p, &corrupt);
    if (!made && corrupt >= 0) {
        fail_corrupt(call, corrupt);
    } else if (!made) {
        fail_gpu(call, "no host memory for a leader's list of jobs");
    } else if (0 == p.work.lead.packs) {
        gpusym_rollcall_done(rollcall_of(call), task->read.seq);
        call->state = COLL_GPUSYM_CALL_LED;
    } else if (coll_gpusym_launch_lead(&call->launch, task, &p)) {
        call->state = COLL_GPUSYM_CALL_RUNNING;
    } else {
        fail_gpu(call, gpusym_current.dev->error());
    }
    coll_gpusym_lead_free(&p);
}

/* A leader, once all inputs are where it loads them. */
static void await_ready(coll_gpusym_call_t *call)
{
    const gpusym_rollcall_t *rc = rollcall_of(call);
    uint32_t r = 0;
    while (r < rc->nranks &&
           (0 == (call->task.read.any & GPUSYM_POST_FILLS) || gpusym_rollcall_is_ready(rc, r, call->task.read.seq))) {
        r++;
    }
    if (r == rc->nranks) {
        launch_lead(call);
    } else {
        check_peers(call, COLL_GPUSYM_WAIT_READY);
    }
}

/* This rank's input is where leaders load it. */
static void go_on_led(coll_gpusym_call_t *call)
{
    call->state = is_leader(call) ? COLL_GPUSYM_CALL_READY : COLL_GPUSYM_CALL_LED;
    if (is_leader(call)) {
        await_ready(call);
    }
}

/* All ranks are in the call, and leaders reach all buffers. */
static void begin_led(coll_gpusym_call_t *call)
{
    call->since_ns = 0;
    call->led = true;
    call->task.zero_copy.used = !call->task.zero_copy.in_window && !call->task.zero_copy.out_window;
    if (!call->task.zero_copy.fills) {
        go_on_led(call);
    } else if (coll_gpusym_launch_fill(&call->launch, &call->task)) {
        call->state = COLL_GPUSYM_CALL_FILLING;
    } else {
        fail_gpu(call, gpusym_current.dev->error());
    }
}

static void await_filled(coll_gpusym_call_t *call)
{
    const int idle = gpusym_current.dev->stream_poll(call->launch.lane->stream);
    if (0 == idle) {
        return;
    }
    coll_gpusym_launch_put_lane(&call->launch);
    if (idle < 0) {
        fail_gpu(call, gpusym_current.dev->error());
        return;
    }
    gpusym_rollcall_ready(rollcall_of(call), call->task.read.seq);
    go_on_led(call);
}

/* Once all leaders have done their part. A rank with a nonblocking call may wait for long: a leader may compute. */
static void await_led(coll_gpusym_call_t *call)
{
    const coll_gpusym_team_t *t = call->engine->team;
    const double timeout = coll_gpusym_params.timeout;
    uint32_t r = 0;
    while (r < t->host.nranks &&
           (t->host.leader[r] != r || gpusym_rollcall_is_done(&t->host.rc, r, call->task.read.seq))) {
        r++;
    }
    if (r == t->host.nranks && !coll_gpusym_launch_drains(&call->task)) {
        end_call(call);
    } else if (r == t->host.nranks) {
        call->state = COLL_GPUSYM_CALL_UNPACKING;
        if (!coll_gpusym_launch_drain(&call->launch, &call->task)) {
            fail_gpu(call, gpusym_current.dev->error());
        }
    } else if (coll_gpusym_health_due(&call->health) && !fail_if_peer_lost(call)) {
        call->since_ns = 0 == call->since_ns ? call->health.checked_ns : call->since_ns;
        const bool limited = call->blocking && !is_part(call); /* what goes between hosts may take long */
        if (!limited && coll_gpusym_wait_note(&call->wait, call->engine->team, call->args.coll, call->task.read.seq,
                                              COLL_GPUSYM_WAIT_LED, call->health.gap_ns)) {
            give_up(call);
        } else if (limited && timeout > 0 &&
                   (double) (call->health.checked_ns - call->since_ns) > timeout * 1e9 + 2 * (double) GRACE_NS) {
            fail_timeout(call, (int) r);
        }
    }
}

/* The call may be launched once its processes have no other in flight, where they may have. */
static void take_tokens(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->engine->team;
    if (is_part(call)) {
        ask_islands(call, -1);
        begin_early(call);
        await_islands(call);
        return;
    }
    if (t->host.led) { /* its kernels wait for nobody: they need no order */
        begin_led(call);
        return;
    }
    if (!t->host.threads && 0 != (call->task.read.all & GPUSYM_POST_QUIET)) {
        launch_call(call);
        return;
    }
    if (!call->has_tokens && !call->launch.resident.commanded) {
        coll_gpusym_resident_command_sender(call->engine->residents, &call->task, &call->launch);
    }
    call->has_tokens = true; /* or some of them */
    if (gpusym_tokens_take(&t->host.rc, call->task.read.seq)) {
        launch_call(call);
    } else if (coll_gpusym_health_due(&call->health) && !fail_if_peer_lost(call)) {
        const int corrupt = gpusym_tokens_rescue(&t->host.rc);
        if (corrupt >= 0) {
            fail_corrupt(call, corrupt);
        }
    }
}

/* The kernel has written its completion word. */
static void complete_kernel(coll_gpusym_call_t *call, uint32_t status)
{
    coll_gpusym_launch_t *l = &call->launch;
    const bool draining = COLL_GPUSYM_CALL_DRAINING == call->state, retired = 0 != (status & GPUSYM_STATUS_RETIRED);
    status &= ~GPUSYM_STATUS_RETIRED;
    coll_gpusym_launch_put_streams(l);
    if (!draining && call->led && GPUSYM_STATUS_OK == (status & 0xff)) {
        coll_gpusym_launch_put_lane(l);
        gpusym_rollcall_done(rollcall_of(call), call->task.read.seq);
        call->state = COLL_GPUSYM_CALL_LED;
        await_led(call);
        return;
    }
    if (!draining && GPUSYM_STATUS_OK == (status & 0xff) && coll_gpusym_segments_unpacks(&call->segments)) {
        call->state = COLL_GPUSYM_CALL_UNPACKING;
        if (!coll_gpusym_launch_unpack(l, &call->segments)) {
            fail_gpu(call, gpusym_current.dev->error());
        }
        return;
    }
    if (l->resident.remains) {
        coll_gpusym_resident_done(call->engine->residents, &call->task, l, !draining && !retired);
    } else {
        coll_gpusym_launch_put_lane(l);
    }
    if (draining) {
        end_drained(call);
    } else if (GPUSYM_STATUS_OK == (status & 0xff)) {
        end_call(call);
    } else if (GPUSYM_STATUS_TIMEOUT == (status & 0xff)) {
        fail_timeout(call, (int) (status >> 8));
    } else {
        fail_gpu(call, "the kernel was aborted");
    }
}

/* The kernel was sent the command, but had retired. A call that is given up is not launched: that would take back the
 * abort. */
static void relaunch_call(coll_gpusym_call_t *call)
{
    if (COLL_GPUSYM_CALL_DRAINING == call->state) {
        complete_kernel(call, GPUSYM_STATUS_ABORTED);
    } else if (!coll_gpusym_resident_relaunch(call->engine->residents, &call->task, &call->launch)) {
        fail_gpu(call, gpusym_current.dev->error());
    }
}

/* The kernel has ended; the copies behind it? */
static void await_unpacked(coll_gpusym_call_t *call)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const int idle = dev->stream_poll(call->launch.lane->stream);
    if (0 == idle) {
        return;
    }
    coll_gpusym_launch_put_lane(&call->launch);
    if (idle < 0) {
        fail_gpu(call, dev->error());
    } else {
        end_call(call);
    }
}

/* The kernel will not write its completion word. */
static void lose_kernel(coll_gpusym_call_t *call, const char *text)
{
    coll_gpusym_launch_abandon(&call->launch);
    if (COLL_GPUSYM_CALL_DRAINING == call->state) {
        end_drained(call);
    } else {
        fail_gpu(call, text);
    }
}

/* While a kernel runs, now and then: are the peers there, is the GPU well? */
static void check_kernel(coll_gpusym_call_t *call)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const double timeout = coll_gpusym_params.timeout;
    coll_gpusym_launch_t *l = &call->launch;
    uint32_t status;
    /* The time of a nonblocking call counts from when all have launched: before, a peer may be busy elsewhere. */
    if (0 == call->since_ns &&
        (call->blocking || gpusym_rollcall_all_launched(rollcall_of(call), call->task.read.seq))) {
        call->since_ns = call->health.checked_ns;
    }
    if (COLL_GPUSYM_CALL_RUNNING == call->state && fail_if_peer_lost(call)) {
        return;
    }
    const int idle = dev->stream_poll(l->lane->stream);
    if (0 != idle && !gpusym_lane_done(l->lane, &status) &&
        !coll_gpusym_resident_retired(l)) { /* not by its last line */
        lose_kernel(call, idle < 0 ? dev->error() : "the kernel ended without completing");
        return;
    }
    const uint64_t waited = 0 != call->since_ns ? call->health.checked_ns - call->since_ns : 0;
    if (COLL_GPUSYM_CALL_DRAINING == call->state) {
        if (waited > GRACE_NS) {
            lose_kernel(call, NULL);
        }
    } else if (timeout > 0 && (double) waited > timeout * 1e9 + (double) GRACE_NS) {
        fail_gpu(call, "the kernel does not end");
    }
}

/* While a kernel of the call runs, or is to end. */
static void poll_kernel(coll_gpusym_call_t *call)
{
    uint32_t status;
    if (NULL != call->rails.plan) { /* draining */
        if (coll_gpusym_hosts_stop(call->engine->team)) {
            end_call(call);
        }
    } else if (gpusym_lane_done(call->launch.lane, &status)) {
        complete_kernel(call, status);
    } else if (coll_gpusym_resident_retired(&call->launch)) {
        relaunch_call(call);
    } else if (coll_gpusym_health_due(&call->health)) {
        check_kernel(call);
    }
}

/* ---- the fallback ---- */

/* Whether no other rank is in the call. */
static bool is_alone(const coll_gpusym_call_t *call)
{
    return call->engine->alone || COLL_GPUSYM_P_LOCAL == coll_gpusym_facts[call->args.coll].pattern;
}

/* Whether all ranks of a staged call look at this one's line once it is over. Those with host buffers have not been
 * told that it is staged; other islands hear of a mark later than of the data; without a roll-call nobody looks. */
static bool all_look(const coll_gpusym_call_t *call)
{
    const gpusym_rollcall_read_t *read = &call->task.read;
    return 0 != read->seq && !read->host && !is_part(call);
}

/* This rank failed with a staged call, or knows of one that did. It takes part in the calls that it has posted, in none
 * behind them: ranks that still agree on this call go on with it. */
static void leave_communicator(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->engine->team;
    if (NULL != t && !is_alone(call)) {
        coll_gpusym_team_abort(t, rollcall_of(call)->seq + 1);
        t->broken = true;
        t->open = false;
        __atomic_store_n(&call->engine->host_only, false, __ATOMIC_RELAXED); /* calls behind it are to find out */
    }
}

/* The others would wait for ever, or take any data for a result. */
static void abort_job(const coll_gpusym_call_t *call)
{
    struct ompi_communicator_t *comm = call->engine->fallback->comm;
    char label[GPUSYM_COMM_LABEL_MAX];
    coll_gpusym_help("cannot-stage", ompi_comm_rank(comm), label_of(call, label, sizeof label), name_of(call));
    /* Open MPI 4.1 and intercommunicators: it looks for the local group's ranks in the remote one, and crashes. */
    (void) ompi_mpi_abort(OMPI_COMM_IS_INTER(comm) ? &ompi_mpi_comm_world.comm : comm, call->error);
}

/* Before a staged call. Whether the fallback is to be called whatever call->error is, for other ranks are in it, on any
 * data: they look at this rank's mark afterwards. */
static bool goes_on(coll_gpusym_call_t *call)
{
    if (MPI_SUCCESS == call->error) {
        return true;
    }
    if (is_alone(call)) {
        return false;
    }
    if (MPI_ERR_NO_MEM == call->error || !all_look(call)) {
        abort_job(call);
    }
    leave_communicator(call);
    return true;
}

bool coll_gpusym_call_open(coll_gpusym_call_t *call, coll_gpusym_args_t *on_host)
{
    call->error = coll_gpusym_bounce_open(call->engine->fallback->comm, &call->args, &call->bounce, on_host);
    return goes_on(call);
}

bool coll_gpusym_call_fill(coll_gpusym_call_t *call)
{
    call->error = coll_gpusym_bounce_in(call->engine->fallback->comm, &call->args, &call->bounce);
    return goes_on(call);
}

bool coll_gpusym_call_stage(coll_gpusym_call_t *call, coll_gpusym_args_t *on_host)
{
    const bool opened = coll_gpusym_call_open(call, on_host);
    return MPI_SUCCESS == call->error ? coll_gpusym_call_fill(call) : opened;
}

void coll_gpusym_call_forwarded(coll_gpusym_call_t *call, int rv)
{
    call->error = MPI_SUCCESS == call->error ? rv : call->error;
}

void coll_gpusym_call_drain(coll_gpusym_call_t *call)
{
    const int rv = call->error;
    call->error = coll_gpusym_bounce_out(call->engine->fallback->comm, &call->args, &call->bounce, rv);
    if (MPI_SUCCESS == rv && MPI_SUCCESS != call->error) {
        leave_communicator(call);
    }
}

void coll_gpusym_call_look(coll_gpusym_call_t *call)
{
    const gpusym_rollcall_read_t *read = &call->task.read;
    char label[GPUSYM_COMM_LABEL_MAX];
    if (MPI_SUCCESS != call->error || 0 == read->seq) {
        return;
    }
    const int quitter = gpusym_rollcall_aborted(rollcall_of(call), read->seq + 1);
    if (quitter >= 0) {
        coll_gpusym_help("aborted", (int) coll_gpusym_team_rank(call->engine->team),
                         label_of(call, label, sizeof label), name_of(call), rank_of(call, quitter));
        leave_communicator(call);
        call->error = MPI_ERR_OTHER;
    }
}

int coll_gpusym_call_staged(coll_gpusym_call_t *call)
{
    coll_gpusym_args_t on_host;
    if (coll_gpusym_call_stage(call, &on_host)) {
        coll_gpusym_call_forwarded(call, coll_gpusym_forward(call->engine->fallback, &on_host));
    }
    coll_gpusym_call_drain(call);
    coll_gpusym_bounce_close(&call->bounce);
    coll_gpusym_call_look(call);
    return call->error;
}

static void fail_cut(void *arg, int error)
{
    coll_gpusym_call_t *call = arg;
    call->error = error;
    (void) goes_on(call);
}

int coll_gpusym_call_cut(coll_gpusym_call_t *call)
{
    const int rv =
        coll_gpusym_cut_blocking(call->engine->fallback, &call->args, coll_gpusym_params.piece, fail_cut, call);
    coll_gpusym_call_forwarded(call, rv);
    coll_gpusym_call_look(call);
    return call->error;
}

bool coll_gpusym_call_poll(coll_gpusym_call_t *call)
{
    switch (call->state) {
    case COLL_GPUSYM_CALL_NEW:
        begin_call(call);
        if (COLL_GPUSYM_CALL_ROLLCALL != call->state) {
            break;
        }
        /* fall through */
    case COLL_GPUSYM_CALL_ROLLCALL:
        if (gpusym_rollcall_read(rollcall_of(call), &call->task.read)) {
            judge_answers(call);
        } else {
            check_peers(call, COLL_GPUSYM_WAIT_ROLLCALL);
        }
        if (COLL_GPUSYM_CALL_SETUP != call->state) {
            break;
        }
        /* fall through */
    case COLL_GPUSYM_CALL_SETUP:
        set_up(call);
        if (COLL_GPUSYM_CALL_TOKENS == call->state) {
            take_tokens(call);
        }
        break;
    case COLL_GPUSYM_CALL_WINDOWS:
        find_windows(call);
        break;
    case COLL_GPUSYM_CALL_MOVING:
        move_data(call);
        break;
    case COLL_GPUSYM_CALL_CUTTING:
        cut_pieces(call);
        break;
    case COLL_GPUSYM_CALL_SIZES:
        await_sizes(call);
        break;
    case COLL_GPUSYM_CALL_VOTE:
        count_votes(call);
        if (COLL_GPUSYM_CALL_VOTE == call->state) {
            check_peers(call, COLL_GPUSYM_WAIT_VOTE);
        }
        break;
    case COLL_GPUSYM_CALL_ISLANDS:
        await_islands(call);
        break;
    case COLL_GPUSYM_CALL_TOKENS:
        take_tokens(call);
        break;
    case COLL_GPUSYM_CALL_CLEARING:
        await_cleared(call);
        break;
    case COLL_GPUSYM_CALL_DROPPING:
        await_dropped(call);
        break;
    case COLL_GPUSYM_CALL_RAILS:
        poll_rails(call);
        break;
    case COLL_GPUSYM_CALL_FILLING:
        await_filled(call);
        break;
    case COLL_GPUSYM_CALL_READY:
        await_ready(call);
        break;
    case COLL_GPUSYM_CALL_LED:
        await_led(call);
        break;
    case COLL_GPUSYM_CALL_UNPACKING:
        await_unpacked(call);
        break;
    case COLL_GPUSYM_CALL_RUNNING:
    case COLL_GPUSYM_CALL_DRAINING:
        poll_kernel(call);
        break;
    default:
        break;
    }
    return COLL_GPUSYM_CALL_FALLBACK == call->state || COLL_GPUSYM_CALL_ENDED == call->state;
}

/* Of a call that kernels have done. */
static void count_native(const coll_gpusym_call_t *call, coll_gpusym_counters_t *counters)
{
    const coll_gpusym_launch_t *l = &call->launch;
    coll_gpusym_count(&counters->native);
    if (call->led) {
        coll_gpusym_count(is_part(call) ? &counters->rails : &counters->led);
        if (call->task.zero_copy.used) {
            coll_gpusym_count(&counters->zero_copy);
        }
        return;
    }
    if (l->algorithm < 0) { /* nothing was to be moved */
        return;
    }
    coll_gpusym_count(&counters->algorithm[l->algorithm]);
    if (call->task.zero_copy.used) {
        coll_gpusym_count(&counters->zero_copy);
    }
    if (l->resident.commanded) {
        coll_gpusym_count(&counters->resident);
    } else if (l->resident.late) {
        coll_gpusym_count(&counters->late);
    }
}

void coll_gpusym_call_count(const coll_gpusym_call_t *call)
{
    coll_gpusym_counters_t *counters = &coll_gpusym_counters[call->args.coll];
    if (COLL_GPUSYM_CALL_ENDED == call->state && !call->moved && !call->cut) {
        if (MPI_SUCCESS == call->error) {
            count_native(call, counters);
        }
    } else if (call->reason < 0) {
        coll_gpusym_count(&counters->forwarded);
    } else {
        coll_gpusym_count(&counters->staged);
        coll_gpusym_count(&counters->reason[call->reason]);
        if (call->cut || call->moved) {
            coll_gpusym_count(call->cut ? &counters->cut : &counters->moved);
        }
    }
}
