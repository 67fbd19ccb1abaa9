/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call in flight: roll-call, set-up, launch, completion; and what is done when a peer or a GPU fails.
 */
#include "mca/coll/gpusym/call/call.h"
#include "kernels/plan.h"
#include "mca/common/gpusym/exec/copies.h"
#include "mca/common/gpusym/shm/fd.h"
#include "mca/common/gpusym/memory/scratch.h"

#include <stdlib.h>
#include <string.h>

/* How often a waiting rank looks after its peers and its GPU. In nanoseconds. */
#define HEALTH_NS 10000000ull
/* How much longer than the kernel's own limit the host waits for a kernel that was told to end. */
#define GRACE_NS 5000000000ull

static const char *comm_name(const coll_gpusym_call_t *call, char *buf, size_t size)
{
    return coll_gpusym_comm_name(call->module->comm, buf, size);
}

/* Takes back what was offered for zero copy. */
static void withdraw(coll_gpusym_call_t *call)
{
    if (0 != call->in_key) {
        gpusym_reg_put(call->in_key);
    }
    if (0 != call->out_key) {
        gpusym_reg_put(call->out_key);
    }
    call->in_key = call->out_key = 0;
}

/* GPU memory for what is packed or unpacked. False if there is none. */
static bool scratch_get(coll_gpusym_call_t *call)
{
    const uint64_t bytes = coll_gpusym_native_scratch_bytes(&call->native);
    const gpusym_device_t *dev = gpusym_current.dev;
    void *p;
    if (0 == bytes || NULL != call->scratch) {
        return true;
    }
    if (GPUSYM_SUCCESS != dev->gpu_open(&call->where, &call->scratch_gpu) ||
        GPUSYM_SUCCESS != gpusym_scratch_get(dev, call->scratch_gpu, bytes, &p)) {
        return false;
    }
    call->scratch = p;
    coll_gpusym_native_scratch(call, p);
    return true;
}

static void scratch_put(coll_gpusym_call_t *call)
{
    if (NULL != call->scratch) {
        gpusym_scratch_put(gpusym_current.dev, call->scratch_gpu, call->scratch);
        call->scratch = NULL;
    }
}

/* The call has ended: it was our communicator's turn, or we were waiting for it, perhaps. */
static void end(coll_gpusym_call_t *call)
{
    if (call->has_turn) {
        gpusym_tokens_give(&call->module->team->rc, MPI_SUCCESS != call->error);
        call->has_turn = false;
    }
    withdraw(call);
    scratch_put(call);
    if (MPI_SUCCESS == call->error && coll_gpusym_sizes_truncated(call->sizes)) {
        call->error = MPI_ERR_TRUNCATE; /* of this rank alone: the call has ended well */
    }
    coll_gpusym_sizes_free(call->sizes);
    call->sizes = NULL;
    call->state = COLL_GPUSYM_CALL_ENDED;
}

/* Makes a kernel of the call's leave, and waits for that: it may be using the user's buffers. */
static void drain(coll_gpusym_call_t *call)
{
    __atomic_store_n(&call->lane->host->abort, 1u, __ATOMIC_RELEASE);
    call->state = COLL_GPUSYM_CALL_DRAINING;
    call->since_ns = coll_gpusym_now_ns();
}

/* Agreed, or known to be so on all ranks: the previous module does it. */
static void to_previous(coll_gpusym_call_t *call, int reason)
{
    const bool ours = call->device && coll_gpusym_on_gpu(&call->where);
    if (NULL != call->lane) { /* it has rung already */
        call->taken_back = true;
        call->reason = reason;
        drain(call);
        return;
    }
    coll_gpusym_sizes_free(call->sizes); /* the previous module finds out by itself */
    call->sizes = NULL;
    end(call);
    call->reason = ours ? reason : -1;
    call->state = COLL_GPUSYM_CALL_PREVIOUS;
}

/* Ends the call with an error, or, while a kernel runs, tells that to leave and waits for it. The peers are told. */
static void give_up(coll_gpusym_call_t *call)
{
    coll_gpusym_team_abort(call->module->team);
    call->module->team->broken = true;
    call->module->team->open = false;
    call->error = MPI_ERR_OTHER;
    if (NULL == call->lane) {
        end(call);
        return;
    }
    call->taken_back = false;
    drain(call);
}

/* No kernel runs any more. */
static void drained(coll_gpusym_call_t *call)
{
    if (call->taken_back) {
        to_previous(call, call->reason);
    } else {
        end(call);
    }
}

static void fail_gpu(coll_gpusym_call_t *call, const char *text)
{
    const coll_gpusym_team_t *t = call->module->team;
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    coll_gpusym_help("gpu-error", (int)t->rank, t->gpu_text, comm_name(call, name, sizeof name),
                     coll_gpusym_mpi_name(call->args.coll), text);
    give_up(call);
}

static void fail_timeout(coll_gpusym_call_t *call, int peer)
{
    const coll_gpusym_team_t *t = call->module->team;
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    coll_gpusym_help("timeout", (int)t->rank, t->gpu_text, comm_name(call, name, sizeof name),
                     coll_gpusym_mpi_name(call->args.coll), peer, mca_coll_gpusym_component.timeout);
    give_up(call);
}

/* A rank's line, or what it lists, was overwritten. */
static void fail_corrupt(coll_gpusym_call_t *call, int other)
{
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    coll_gpusym_help("corrupt", (int) call->module->team->rank, comm_name(call, name, sizeof name),
                     coll_gpusym_mpi_name(call->args.coll), other);
    give_up(call);
}

/* Whether a peer has died or given up, or a line was overwritten; then the call ends. */
static bool peers_lost(coll_gpusym_call_t *call)
{
    const coll_gpusym_team_t *t = call->module->team;
    const gpusym_rollcall_t *rc = &t->rc;
    const char *what = coll_gpusym_mpi_name(call->args.coll);
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    const int dead = t->joined ? gpusym_rollcall_dead(rc) : coll_gpusym_team_dead(t);
    if (dead >= 0) {
        coll_gpusym_help("dead-rank", (int) t->rank, comm_name(call, name, sizeof name), opal_process_info.nodename,
                         dead, coll_gpusym_peer_process(t->peers[dead]), what);
        give_up(call);
        return true;
    }
    const int corrupt = gpusym_rollcall_corrupt(rc, &call->read);
    if (corrupt >= 0) {
        fail_corrupt(call, corrupt);
        return true;
    }
    const int quitter = gpusym_rollcall_aborted(rc);
    if (quitter >= 0) {
        coll_gpusym_help("aborted", (int) t->rank, comm_name(call, name, sizeof name), what, quitter);
        give_up(call);
        return true;
    }
    return false;
}

/* Once in HEALTH_NS. */
static bool time_to_look(coll_gpusym_call_t *call)
{
    if (0 != ++call->polls % 256) {
        return false;
    }
    const uint64_t now = coll_gpusym_now_ns();
    if (now - call->looked_ns < HEALTH_NS) {
        return false;
    }
    call->gap_ns = 0 != call->looked_ns ? now - call->looked_ns : 0;
    call->looked_ns = now;
    return true;
}

/* A poll of a call that waits for ranks to come: are they there, and for how long has it waited? */
static void look_for_peers(coll_gpusym_call_t *call)
{
    if (time_to_look(call) && !peers_lost(call) && coll_gpusym_wait_note(call, call->gap_ns)) {
        give_up(call);
    }
}

/* ---- roll-call ---- */

void coll_gpusym_call_again(coll_gpusym_call_t *call)
{
    call->state = COLL_GPUSYM_CALL_NEW;
    call->reason = -1;
    call->error = MPI_SUCCESS;
    call->algorithm = -1;
    call->lane = NULL;
    call->streams = NULL;
    call->sizes = NULL;
    call->zero_copy = call->zero_copied = call->has_turn = false;
    call->stays = call->rang = call->late = call->taken_back = false;
    call->in_key = call->out_key = 0;
    call->polls = 0;
    call->looked_ns = call->since_ns = call->gap_ns = 0;
    call->waited_ns = 0;
    call->waits_in = call->said = 0;
    call->below = NULL;
    call->next = NULL;
}

void coll_gpusym_call_init(coll_gpusym_call_t *call, mca_coll_gpusym_module_t *module, const coll_gpusym_args_t *args)
{
    gpusym_mem_t smem, rmem;

    *call = (coll_gpusym_call_t){.module = module, .args = *args, .blocking = true};
    coll_gpusym_call_again(call);
    coll_gpusym_where(module, args, &smem, &rmem);
    call->device = coll_gpusym_on_gpu(&smem) || coll_gpusym_on_gpu(&rmem) ||
                   (GPUSYM_MEM_NONE == smem.kind && GPUSYM_MEM_NONE == rmem.kind);
    call->where = coll_gpusym_on_gpu(&rmem) ? rmem : smem;
    if (call->device && coll_gpusym_has_kernels(args->coll)) {
        coll_gpusym_native(call, &smem, &rmem);
    }
}

/* What must be alike on all ranks, in one word: the call, and the user's tuning: ranks that see different parameters would
 * launch different plans. */
static uint32_t hash_of(const coll_gpusym_call_t *call)
{
    const mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    const uint32_t words[] = {call->native.op,
                              call->native.type,
                              (uint32_t)call->args.root,
                              call->native.counts,
                              (uint32_t)(c->algorithm[call->args.coll] - COLL_GPUSYM_ALG_AUTO),
                              c->oneshot_max,
                              (uint32_t)c->blocks,
                              (uint32_t)c->threads,
                              c->chunk,
                              c->zero_copy_min,
                              (uint32_t)c->reproducible << 1 | c->zero_copy};
    uint32_t hash = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        hash = (hash ^ words[i]) * 2654435761u;
    }
    return hash;
}

/* Offers one buffer for zero copy: pinned until end(). Sets key and off; whether it can be mapped, or there is none. */
static bool offer(coll_gpusym_call_t *call, uint64_t id, const void *p, uint64_t bytes, uint32_t *pinned,
                  uint32_t *key, uint64_t *off, uint32_t *flags)
{
    coll_gpusym_team_t *t = call->module->team;
    if (NULL == p || 0 == bytes) {
        return true;
    }
    if (GPUSYM_MEM_DEVICE != call->where.kind || NULL == t->gpu) {
        return false;
    }
    if (!gpusym_reg_find(id, p, bytes, pinned, off) &&
        GPUSYM_SUCCESS != gpusym_reg_get(gpusym_current.dev, t->gpu, p, bytes, pinned, off)) {
        *pinned = 0;
        return false;
    }
    *key = *pinned;
    if (t->key_mapped[*key % GPUSYM_REG_MAX] != *key) {
        *flags |= GPUSYM_POST_NEW_KEY;
    }
    return true;
}

static void offer_buffers(coll_gpusym_call_t *call, gpusym_post_t *post)
{
    const mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    const coll_gpusym_native_t *k = &call->native;
    const uint64_t least = 0 != c->zero_copy_min ? c->zero_copy_min : gpusym_tuning_zero_copy_min(gpusym_current.dev->simulated);
    bool in, out;

    coll_gpusym_native_shares(call, &in, &out);
    /* A rank that has no part in it follows the others; one whose part is small keeps all from it. */
    if (!c->zero_copy || call->module->team->no_zero_copy || (0 < k->bytes && k->bytes < least)) {
        return;
    }
    if (!in || offer(call, k->in_id, k->in, k->in_bytes, &call->in_key, &post->in_key, &post->in_off, &post->flags)) {
        post->flags |= GPUSYM_POST_CAN_IN;
    }
    if (!out || offer(call, k->out_id, k->out, k->out_bytes, &call->out_key, &post->out_key, &post->out_off, &post->flags)) {
        post->flags |= GPUSYM_POST_CAN_OUT;
    }
}

/* In `what`: that the call is not made yet, see agree_only. */
#define AGREE_ONLY 0x80u

/* Posts, if the peers are near enough. */
static void post(coll_gpusym_call_t *call)
{
    gpusym_rollcall_t *rc = &call->module->team->rc;
    const coll_gpusym_native_t *k = &call->native;
    gpusym_post_t p = {.kind = GPUSYM_KIND_HOST, .what = (uint8_t)call->args.coll};

    if (call->device) {
        if (call->native.reason < 0 && !call->agree_only && !scratch_get(call)) {
            call->native.reason = COLL_GPUSYM_R_NO_MEMORY;
        }
        p.kind = (uint8_t)(k->reason < 0 ? GPUSYM_KIND_NATIVE : GPUSYM_KIND_BOUNCE + k->reason);
        p.exact = k->exact;
        p.bytes = k->bytes;
        p.balance = k->balance;
        p.hash = call->hash = hash_of(call);
        p.layout = k->layout;
        p.flags = k->in_place ? GPUSYM_POST_IN_PLACE : 0;
        /* While a nonblocking call is in flight more may be started. */
        p.flags |= call->blocking && 0 == __atomic_load_n(&coll_gpusym_in_flight, __ATOMIC_RELAXED) ? GPUSYM_POST_QUIET : 0;
        if (k->reason < 0 && !call->agree_only && NULL == call->scratch) {
            offer_buffers(call, &p);
        }
    }
    if (call->agree_only) {
        p.what |= AGREE_ONLY;
    }
    if (!gpusym_rollcall_post(rc, &p, &call->read)) {
        withdraw(call);
        return;
    }
    if (GPUSYM_KIND_HOST == p.kind && !call->agree_only) {
        to_previous(call, -1);
    } else if (p.kind >= GPUSYM_KIND_BOUNCE) { /* that settles it: no need to know the others */
        to_previous(call, p.kind - GPUSYM_KIND_BOUNCE);
    } else {
        call->state = COLL_GPUSYM_CALL_ROLLCALL;
        coll_gpusym_stay_early(call);
    }
}

static void begin(coll_gpusym_call_t *call)
{
    mca_coll_gpusym_module_t *m = call->module;
    coll_gpusym_team_t *t = m->team;
    const int met = t->broken ? -1 : coll_gpusym_team_meet(m);

    if (met < 0) { /* what went wrong has been said */
        call->error = MPI_ERR_OTHER;
        end(call);
    } else if (0 == met) {
        look_for_peers(call);
    } else if (t->none) {
        to_previous(call, -1);
    } else if (call->settled) {
        to_previous(call, call->reason_settled);
    } else if (!coll_gpusym_has_kernels(call->args.coll)) {
        to_previous(call, COLL_GPUSYM_R_NO_NATIVE);
    } else if (t->reason >= 0) { /* agreed for good: staged and passed calls meet in the previous module */
        to_previous(call, t->reason);
    } else {
        post(call);
        if (COLL_GPUSYM_CALL_NEW == call->state) {
            look_for_peers(call);
        }
    }
}

/* ---- zero copy ---- */

/* Where off in rank r's allocation of that key is mapped here. which: 0 its input, 1 its output. As gpusym_reg_map().
 */
static int peer_at(coll_gpusym_team_t *t, uint32_t r, unsigned which, uint32_t key, uint64_t off, char **at)
{
    void *base;
    uint64_t size;
    if (t->met[r][which].key != key) {
        const int rc = gpusym_reg_map(gpusym_current.dev, t->gpu, t->rc.peer[r], key, &base, &size);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
        t->met[r][which].key = key;
        t->met[r][which].base = base;
        t->met[r][which].size = size;
    }
    *at = (char *) t->met[r][which].base + off;
    return off < t->met[r][which].size ? GPUSYM_SUCCESS : GPUSYM_ERR_CORRUPT;
}

/* Maps what rank r offers. */
static int map_peer(coll_gpusym_call_t *call, gpusym_work_t *w, uint32_t r, bool in, bool out)
{
    coll_gpusym_team_t *t = call->module->team;
    const gpusym_entry_t *e = gpusym_rollcall_entry(&t->rc, r, call->read.seq);
    int rc = GPUSYM_SUCCESS;
    char *at;

    if (0 != (e->in_key | e->out_key) && !gpusym_entry_intact(e, call->read.seq)) {
        return GPUSYM_ERR_CORRUPT;
    }
    if (in && 0 != e->in_key) {
        rc = peer_at(t, r, 0, e->in_key, e->in_off, &at);
        w->peer_in[r] = GPUSYM_SUCCESS == rc ? at : NULL;
    }
    if (GPUSYM_SUCCESS == rc && out && 0 != e->out_key) {
        rc = peer_at(t, r, 1, e->out_key, e->out_off, &at);
        w->peer_out[r] = GPUSYM_SUCCESS == rc ? at : NULL;
    }
    return rc;
}

/* Maps all that the peers offer. voted: all ranks have done so before, and its owners keep it. False: it cannot be
 * mapped; or, and then the call has failed, a peer cannot have offered it. */
static bool map_peers(coll_gpusym_call_t *call, gpusym_work_t *w, bool voted)
{
    coll_gpusym_team_t *t = call->module->team;
    bool in, out;

    coll_gpusym_native_shares(call, &in, &out);
    for (uint32_t r = 0; r < t->nranks; r++) {
        const int rc = map_peer(call, w, r, in, out);
        if (GPUSYM_ERR_CORRUPT == rc || GPUSYM_ERR_BAD_PARAM == rc || (voted && GPUSYM_ERR_UNREACHABLE == rc)) {
            fail_corrupt(call, (int) r);
        }
        if (GPUSYM_SUCCESS != rc) {
            return false;
        }
    }
    return true;
}

/* All are on GPUs and have a team: how the data go. */
static void ready(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    gpusym_work_t w;

    call->zero_copy = !t->no_zero_copy && NULL == call->sizes && coll_gpusym_native_zero_copy(call);
    if (!call->zero_copy || 0 == (call->read.any & GPUSYM_POST_NEW_KEY)) {
        call->state = COLL_GPUSYM_CALL_TURN;
        return;
    }
    const bool mapped = map_peers(call, &w, false);
    if (MPI_SUCCESS != call->error) {
        return;
    }
    if (!mapped) {
        char name[COLL_GPUSYM_COMM_NAME_MAX];
        COLL_GPUSYM_VERBOSE(1, "%s: rank %u cannot map a peer's buffer: %s%s", comm_name(call, name, sizeof name), t->rank,
                            gpusym_current.dev->error(), gpusym_fd_lack() ? " (no file descriptor is left)" : "");
    }
    gpusym_rollcall_vote(&t->rc, call->read.seq, mapped);
    call->state = COLL_GPUSYM_CALL_VOTE;
}

/* key: of ours; 0: none, which must not take the place of one. */
static void all_have_mapped(coll_gpusym_team_t *t, uint32_t key)
{
    if (0 != key) {
        t->key_mapped[key % GPUSYM_REG_MAX] = key;
    }
}

static void count_votes(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    const int votes = gpusym_rollcall_votes(&t->rc, call->read.seq);

    if (0 == votes) {
        return;
    }
    if (votes > 0) {
        all_have_mapped(t, call->in_key);
        all_have_mapped(t, call->out_key);
    } else {
        call->zero_copy = false;
        t->no_zero_copy = true;
        COLL_GPUSYM_VERBOSE(1, "%s: zero copy is disabled from now on: a rank could not map a peer's buffer",
                            comm_name(call, name, sizeof name));
    }
    call->state = COLL_GPUSYM_CALL_TURN;
}

/* Not all that is sent is taken; agreed. */
static void compare_sizes(coll_gpusym_call_t *call)
{
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    call->state = COLL_GPUSYM_CALL_SIZES;
    if (!coll_gpusym_sizes_start(call)) {
        coll_gpusym_help("no-memory", (int)call->module->team->rank, comm_name(call, name, sizeof name),
                         coll_gpusym_mpi_name(call->args.coll), sizeof(uint64_t), "host memory for the ranks' sizes");
        give_up(call);
    }
}

static void await_sizes(coll_gpusym_call_t *call)
{
    const int rv = coll_gpusym_sizes_poll(call);
    if (rv < 0) {
        give_up(call); /* Open MPI has said why */
    } else if (rv > 0 && 0 == call->read.max_bytes) {
        end(call);
    } else if (rv > 0) {
        call->state = COLL_GPUSYM_CALL_SETUP;
    } else if (time_to_look(call)) {
        peers_lost(call);
    }
}

/* All have answered: what to do. */
static void answered(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    char name[COLL_GPUSYM_COMM_NAME_MAX];

    if (call->read.corrupt_rank >= 0) {
        fail_corrupt(call, call->read.corrupt_rank);
    } else if (call->read.bounce >= GPUSYM_KIND_BOUNCE + (int) COLL_GPUSYM_REASONS) {
        fail_corrupt(call, call->read.bounce_rank);
    } else if (call->read.host || call->read.bounce >= 0) {
        to_previous(call, call->read.bounce >= 0 ? call->read.bounce - GPUSYM_KIND_BOUNCE : COLL_GPUSYM_R_MIXED);
    } else if (call->read.mismatch_rank >= 0 &&
               (call->read.other_call || !coll_gpusym_native_moves(call->args.coll))) {
        coll_gpusym_help("mismatch", (int)t->rank, comm_name(call, name, sizeof name),
                         coll_gpusym_mpi_name(call->args.coll), call->read.mismatch_rank, (size_t)call->native.bytes,
                         (size_t)call->read.mismatch_bytes);
        give_up(call);
    } else if (call->agree_only) {
        call->agreed = true;
        end(call);
    } else if (call->read.mismatch_rank >= 0 || 0 != call->read.balance) {
        compare_sizes(call);
    } else if (0 == call->read.max_bytes) { /* nothing from anyone to anyone */
        end(call);
    } else {
        call->state = COLL_GPUSYM_CALL_SETUP;
    }
}

/* Collectives with kernels have the same numbers in both lists. */
#define GPUSYM_COLLECTIVE(id, ...) _Static_assert((int)COLL_GPUSYM_##id == (int)GPUSYM_COLL_##id, #id);
#include "kernels/kernels.def"
_Static_assert((int)COLL_GPUSYM_NATIVES == (int)GPUSYM_COLL_COUNT, "and there are as many");

/* The algorithm and its shape: from nothing that only this rank knows. */
static void choose(coll_gpusym_call_t *call, gpusym_tuning_choice_t *plan)
{
    coll_gpusym_team_t *t = call->module->team;
    const mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    const bool sized = NULL != call->sizes; /* between any two ranks another length: an all-to-all of segments */
    gpusym_tuning_call_t what = {.coll = sized ? (unsigned)GPUSYM_COLL_ALLTOALLV : (unsigned)call->args.coll,
                                       .bytes = call->read.max_bytes,
                                       .op = call->native.op,
                                       .type = call->native.type,
                                       .nranks = t->nranks,
                                       .sm_count = t->sm_count,
                                       .simulated = gpusym_current.dev->simulated,
                                       .zero_copy = call->zero_copy,
                                       .multicast = NULL != t->mc && !sized,
                                       .reproducible = c->reproducible,
                                       .all_reach = t->all_reach,
                                       .ll128 = t->ll128,
                                       .copies = !sized && NULL != gpusym_current.dev->stream_flags &&
                                                 coll_gpusym_native_copies(call, &t->work),
                                       .ll_payload = gpusym_ll_payload(t->work.ll_bytes),
                                       .max_blocks = t->max_blocks};
    const gpusym_tuning_forced_t forced = {sized ? COLL_GPUSYM_ALG_AUTO : c->algorithm[call->args.coll], c->oneshot_max,
                                           (uint32_t)c->blocks, (uint32_t)c->threads, c->chunk};
    gpusym_tuning_choose(&what, &forced, plan);
    if (plan->algorithm >= 0 && gpusym_family_ll128(plan->family) && !coll_gpusym_native_channels(plan, &t->work)) {
        what.ll128 = false; /* the slot is too small */
        gpusym_tuning_choose(&what, &forced, plan);
    }
    if (forced.algorithm >= 0 && plan->algorithm != forced.algorithm && !t->said_unicast) {
        t->said_unicast = true;
        COLL_GPUSYM_VERBOSE(1,
                            "%s: %s is not available here (no multicast, not for this operation and type, not reproducible, "
                            "or no such links): %s instead",
                            comm_name(call, name, sizeof name), gpusym_algorithm_name((unsigned)forced.algorithm),
                            plan->algorithm >= 0 ? gpusym_algorithm_name((unsigned)plan->algorithm) : "the previous module");
    }
}

/* Whether there are kernels for a team of which not all reach all: the same on all ranks. */
static bool reaches(coll_gpusym_call_t *call)
{
    gpusym_tuning_choice_t choice;
    if (call->module->team->all_reach) {
        return true;
    }
    choose(call, &choice);
    return choice.algorithm >= 0;
}

static void set_up(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    const int rv = coll_gpusym_team_gpu(call->module, &call->where);
    if (rv < 0) {
        give_up(call);
    } else if (rv > 0 && t->reason >= 0) {
        to_previous(call, t->reason);
    } else if (rv > 0 && !reaches(call)) {
        to_previous(call, COLL_GPUSYM_R_UNREACHABLE);
    } else if (rv > 0) {
        ready(call);
    } else {
        look_for_peers(call);
    }
}

/* ---- kernel ---- */

/* Everything of a launch but its epoch. False: a peer's buffer could not be mapped. */
static bool plan_make(coll_gpusym_call_t *call, coll_gpusym_plan_t *p)
{
    coll_gpusym_team_t *t = call->module->team;
    gpusym_tuning_choice_t choice;

    choose(call, &choice);
    p->work = t->work;
    coll_gpusym_native_work(call, &p->work);
    p->work.nblocks = choice.blocks;
    p->work.nthreads = choice.threads;
    p->work.limit_ns = call->blocking ? t->work.limit_ns : 0; /* a peer may compute before it comes back: see look_after() */
    p->algorithm = choice.algorithm;
    p->kernel = gpusym_kernel_find(choice.family, call->native.op, call->native.type);
    p->zero_copy = choice.zero_copy;
    p->copies = gpusym_family_copies(choice.family);
    p->reduces = gpusym_family_reduces(choice.family);
    p->work.copies.whole = coll_gpusym_native_whole(call->args.coll);
    coll_gpusym_native_paths(call, gpusym_algorithm_schedule((unsigned)choice.algorithm), &p->work);
    p->work.direct = choice.zero_copy;
    if (p->zero_copy && !map_peers(call, &p->work, true)) {
        return false;
    }
    p->epochs = gpusym_kernel_plan(choice.family, &p->work, choice.chunk);
    p->valid = NULL == call->scratch; /* which another call may have the next time */
    p->offered = call->zero_copy;
    return true;
}

/* A plan for this start: a persistent call's own, in which only peers' buffers may have moved (mapped anew), or a new
 * one. */
static bool plan_get(coll_gpusym_call_t *call, coll_gpusym_plan_t *p)
{
    if (p != call->plan || !p->valid || p->offered != call->zero_copy || NULL != call->scratch) {
        return plan_make(call, p);
    }
    return !p->zero_copy || map_peers(call, &p->work, true);
}

static bool copy_rows(const coll_gpusym_call_t *call, const coll_gpusym_rows_t *r, const void *scratch, bool back)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    char *p = (char *)(uintptr_t)scratch;
    return 0 == r->rows ||
           GPUSYM_SUCCESS == (back ? dev->copy2d_async(call->lane->stream, r->first, r->pitch, p, r->width, r->width, r->rows)
                                   : dev->copy2d_async(call->lane->stream, p, r->width, r->first, r->pitch, r->width, r->rows));
}

/* Queues, before the kernel, what brings the input to scratch memory; and the output, of which the kernel might not write all. */
static bool pack(const coll_gpusym_call_t *call)
{
    const coll_gpusym_native_t *k = &call->native;
    const bool keep = k->keep || NULL != call->sizes;
    return copy_rows(call, &k->pack, k->in, false) && (!keep || copy_rows(call, &k->unpack, k->out, false));
}

void coll_gpusym_plan_free(coll_gpusym_plan_t *plan)
{
    if (NULL != plan && NULL != plan->graph) {
        gpusym_current.dev->graph_destroy(plan->graph);
    }
    free(plan);
}

/* Queues what copy engines do. *queued: the completion word will come. */
static bool launch_copies(coll_gpusym_call_t *call, const coll_gpusym_plan_t *p, bool *queued)
{
    coll_gpusym_team_t *t = call->module->team;
    const gpusym_device_t *dev = gpusym_current.dev;
    *queued = false;
    if (GPUSYM_SUCCESS != gpusym_copies_get(dev, t->gpu, t->nranks, &call->streams)) {
        call->streams = NULL;
        return false;
    }
    return GPUSYM_SUCCESS ==
           gpusym_copies_queue(call->streams, call->lane, p->kernel, GPUSYM_F_CE, p->reduces, &p->work, queued);
}

/* What the call had for itself can be used by others. */
static void streams_put(coll_gpusym_call_t *call)
{
    if (NULL != call->streams) {
        gpusym_copies_put(call->streams);
        call->streams = NULL;
    }
}

/* Queues the kernel: by a graph, where there are such; a persistent call has its own. That is made here, in the call's turn:
 * no kernel of this process waits for a peer, so the driver may wait for what runs. */
static bool launch_plan(coll_gpusym_call_t *call, coll_gpusym_plan_t *p)
{
    const mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    static bool no_graph; /* this device cannot make one; written once, to true, by whoever finds out */
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    gpusym_graph_t **graph = p == call->plan ? &p->graph : &call->lane->graph;

    if (!c->graph || NULL == gpusym_current.dev->graph_launch || __atomic_load_n(&no_graph, __ATOMIC_RELAXED)) {
        return GPUSYM_SUCCESS == gpusym_lane_launch(call->lane, p->kernel, &p->work);
    }
    if (GPUSYM_SUCCESS == gpusym_lane_launch_graph(call->lane, p->kernel, &p->work, graph)) {
        return true;
    }
    if (NULL != *graph) {
        return false;
    }
    __atomic_store_n(&no_graph, true, __ATOMIC_RELAXED);
    COLL_GPUSYM_VERBOSE(1, "%s: %s and all later calls are launched without a graph: %s", comm_name(call, name, sizeof name),
                        coll_gpusym_mpi_name(call->args.coll), gpusym_current.dev->error());
    return GPUSYM_SUCCESS == gpusym_lane_launch(call->lane, p->kernel, &p->work);
}

/* Fills the descriptor and launches. */
static void launch(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    coll_gpusym_plan_t once, *p = NULL != call->plan && NULL == call->sizes ? call->plan : &once;

    call->since_ns = 0;
    if (call->rang || coll_gpusym_stay_same(call)) {
        call->state = COLL_GPUSYM_CALL_RUNNING;
        return;
    }
    if (!plan_get(call, p)) {
        if (MPI_SUCCESS == call->error) {
            fail_gpu(call, gpusym_current.dev->error());
        }
        return;
    }
    call->algorithm = p->algorithm;
    call->zero_copied = p->zero_copy;
    call->error = coll_gpusym_team_epochs(call->module, p->epochs, &p->work.epoch);
    if (MPI_SUCCESS != call->error) {
        give_up(call);
        return;
    }
    call->state = COLL_GPUSYM_CALL_RUNNING;
    p->work.linger_ns = 0;
    if (coll_gpusym_stay_may(call, p)) {
        if (coll_gpusym_stay_ring(call, p)) {
            return;
        }
        coll_gpusym_stay_prepare(call, p);
    } else {
        coll_gpusym_stay_beside(t, p);
    }
    if (GPUSYM_SUCCESS != gpusym_lane_get(gpusym_current.dev, t->gpu, &call->lane)) {
        call->lane = NULL;
        fail_gpu(call, gpusym_current.dev->error());
        return;
    }
    bool queued = false;
    if (!pack(call) || !(p->copies ? launch_copies(call, p, &queued) : launch_plan(call, p))) {
        if (!queued && NULL != call->streams) { /* they may wait for ever: not used again, nor is the lane */
            call->streams = NULL;
            call->lane = NULL;
        } else if (!queued) {
            gpusym_lane_put(call->lane); /* nothing was */
            call->lane = NULL;
        }
        fail_gpu(call, gpusym_current.dev->error());
        return;
    }
    if (!call->blocking) {
        gpusym_rollcall_launched(&t->rc, call->read.seq);
    }
}

/* The call may be launched once its processes have no other in flight, where they may have. */
static void take_turn(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    if (!t->threads && 0 != (call->read.all & GPUSYM_POST_QUIET)) {
        launch(call);
        return;
    }
    call->has_turn = true; /* or a part of it */
    if (gpusym_tokens_take(&t->rc, call->read.seq)) {
        launch(call);
    } else if (time_to_look(call) && !peers_lost(call)) {
        const int corrupt = gpusym_tokens_rescue(&t->rc);
        if (corrupt >= 0) {
            fail_corrupt(call, corrupt);
        }
    }
}

/* The kernel has written its completion word. */
static void completed(coll_gpusym_call_t *call, uint32_t status)
{
    const bool draining = COLL_GPUSYM_CALL_DRAINING == call->state, left = 0 != (status & GPUSYM_STATUS_RETIRED);
    status &= ~GPUSYM_STATUS_RETIRED;
    if (!draining && GPUSYM_STATUS_OK == (status & 0xff) && 0 != call->native.unpack.rows) {
        call->state = COLL_GPUSYM_CALL_UNPACKING;
        streams_put(call);
        if (!copy_rows(call, &call->native.unpack, call->native.out, true)) {
            fail_gpu(call, gpusym_current.dev->error());
        }
        return;
    }
    streams_put(call);
    if (call->stays) {
        coll_gpusym_stay_done(call, !draining && !left);
    } else {
        gpusym_lane_put(call->lane);
    }
    call->lane = NULL;
    if (draining) {
        drained(call);
    } else if (GPUSYM_STATUS_OK == (status & 0xff)) {
        end(call);
    } else if (GPUSYM_STATUS_TIMEOUT == (status & 0xff)) {
        fail_timeout(call, (int)(status >> 8));
    } else {
        fail_gpu(call, "the kernel was aborted");
    }
}

/* The kernel was told of the call, but had left. What is given up is not launched: that would take back the abort. */
static void left(coll_gpusym_call_t *call)
{
    if (COLL_GPUSYM_CALL_DRAINING == call->state) {
        completed(call, GPUSYM_STATUS_ABORTED);
    } else if (!coll_gpusym_stay_again(call)) {
        fail_gpu(call, gpusym_current.dev->error());
    }
}

/* The kernel has ended; the copies behind it? */
static void unpacking(coll_gpusym_call_t *call)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const int idle = dev->stream_poll(call->lane->stream);
    if (0 == idle) {
        return;
    }
    gpusym_lane_put(call->lane);
    call->lane = NULL;
    if (idle < 0) {
        fail_gpu(call, dev->error());
    } else {
        end(call);
    }
}

/* While a kernel runs, now and then: are the peers there, is the GPU well? */
static void look_after(coll_gpusym_call_t *call)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const double timeout = mca_coll_gpusym_component.timeout;
    uint32_t status;
    /* The time of a nonblocking call counts from when all have launched: before, a peer may be busy elsewhere. */
    if (0 == call->since_ns &&
        (call->blocking || gpusym_rollcall_all_launched(&call->module->team->rc, call->read.seq))) {
        call->since_ns = call->looked_ns;
    }
    if (COLL_GPUSYM_CALL_RUNNING == call->state && peers_lost(call)) {
        return;
    }
    const int idle = dev->stream_poll(call->lane->stream);
    if (0 != idle && !gpusym_lane_done(call->lane, &status) && !coll_gpusym_stay_left(call)) { /* not by its last line */
        call->lane = NULL; /* not used again, nor are the streams */
        call->streams = NULL;
        if (COLL_GPUSYM_CALL_DRAINING == call->state) {
            drained(call);
        } else {
            fail_gpu(call, idle < 0 ? dev->error() : "the kernel ended without completing");
        }
        return;
    }
    const uint64_t waited = 0 != call->since_ns ? call->looked_ns - call->since_ns : 0;
    if (COLL_GPUSYM_CALL_DRAINING == call->state) {
        if (waited > GRACE_NS) {
            call->lane = NULL;
            call->streams = NULL;
            drained(call);
        }
    } else if (timeout > 0 && (double)waited > timeout * 1e9 + (double)GRACE_NS) {
        fail_gpu(call, "the kernel does not end");
    }
}

bool coll_gpusym_call_poll(coll_gpusym_call_t *call)
{
    uint32_t status;
    switch (call->state) {
    case COLL_GPUSYM_CALL_NEW:
        begin(call);
        if (COLL_GPUSYM_CALL_ROLLCALL != call->state) {
            break;
        }
        /* fall through */
    case COLL_GPUSYM_CALL_ROLLCALL:
        if (gpusym_rollcall_read(&call->module->team->rc, &call->read)) {
            answered(call);
        } else {
            look_for_peers(call);
        }
        if (COLL_GPUSYM_CALL_SETUP != call->state) {
            break;
        }
        /* fall through */
    case COLL_GPUSYM_CALL_SETUP:
        set_up(call);
        if (COLL_GPUSYM_CALL_TURN == call->state) {
            take_turn(call);
        }
        break;
    case COLL_GPUSYM_CALL_SIZES:
        await_sizes(call);
        break;
    case COLL_GPUSYM_CALL_VOTE:
        count_votes(call);
        if (COLL_GPUSYM_CALL_VOTE == call->state) {
            look_for_peers(call);
        }
        break;
    case COLL_GPUSYM_CALL_TURN:
        take_turn(call);
        break;
    case COLL_GPUSYM_CALL_UNPACKING:
        unpacking(call);
        break;
    case COLL_GPUSYM_CALL_RUNNING:
    case COLL_GPUSYM_CALL_DRAINING:
        if (gpusym_lane_done(call->lane, &status)) {
            completed(call, status);
        } else if (coll_gpusym_stay_left(call)) {
            left(call);
        } else if (time_to_look(call)) {
            look_after(call);
        }
        break;
    default:
        break;
    }
    return COLL_GPUSYM_CALL_PREVIOUS == call->state || COLL_GPUSYM_CALL_ENDED == call->state;
}

void coll_gpusym_call_count(const coll_gpusym_call_t *call)
{
    coll_gpusym_counters_t *counters = &coll_gpusym_counters[call->args.coll];
    if (COLL_GPUSYM_CALL_ENDED != call->state) {
        if (call->reason < 0) {
            coll_gpusym_count(&counters->forwarded);
        } else {
            coll_gpusym_count(&counters->staged);
            coll_gpusym_count(&counters->reason[call->reason]);
        }
    } else if (MPI_SUCCESS == call->error) {
        coll_gpusym_count(&counters->native);
        if (call->algorithm >= 0) {
            coll_gpusym_count(&counters->algorithm[call->algorithm]);
            if (call->zero_copied) {
                coll_gpusym_count(&counters->zero_copy);
            }
            if (call->rang) {
                coll_gpusym_count(&counters->resident);
            } else if (call->late) {
                coll_gpusym_count(&counters->late);
            }
        }
    }
}
