/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A call in flight: roll-call, launch, completion; and what is done when a peer or a GPU fails.
 */
#include "coll_gpusym_team.h"

#include <sched.h>
#include <time.h>

#include "opal/runtime/opal_progress.h"
#include "tuning/tuning.h"

/* How often a waiting rank looks after its peers and its GPU. In nanoseconds. */
#define HEALTH_NS 10000000ull
/* How much longer than the kernel's own limit the host waits for a kernel that was told to end. */
#define GRACE_NS 5000000000ull
/* Looks at a completion word before the CPU is shared: about 20 us, more than a small all-reduce takes. */
#define SPINS 1000u

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const char *comm_name(const coll_gpusym_call_t *call, char *buf, size_t size)
{
    return coll_gpusym_comm_name(call->module->comm, buf, size);
}

/* The call has ended: it was our communicator's turn, or we were waiting for it, perhaps. */
static void end(coll_gpusym_call_t *call)
{
    if (call->has_turn) {
        gpusym_turns_give(&call->module->team->rc, MPI_SUCCESS != call->error);
        call->has_turn = false;
    }
    call->state = COLL_GPUSYM_CALL_ENDED;
}

/* Ends the call with an error, or, while a kernel runs, tells that to leave and waits for it. The peers are told. */
static void give_up(coll_gpusym_call_t *call)
{
    gpusym_rollcall_abort(&call->module->team->rc);
    call->module->team->broken = true;
    call->error = MPI_ERR_OTHER;
    if (NULL == call->lane) {
        end(call);
        return;
    }
    __atomic_store_n(&call->lane->host->abort, 1u, __ATOMIC_RELEASE);
    call->state = COLL_GPUSYM_CALL_DRAINING;
    call->since_ns = now_ns();
}

static void fail_gpu(coll_gpusym_call_t *call, const char *text)
{
    const coll_gpusym_team_t *t = call->module->team;
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    coll_gpusym_help("gpu-error", (int)t->rank, t->gpu_text, comm_name(call, name, sizeof name), call->name, text);
    give_up(call);
}

static void fail_timeout(coll_gpusym_call_t *call, int peer)
{
    const coll_gpusym_team_t *t = call->module->team;
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    coll_gpusym_help("timeout", (int)t->rank, t->gpu_text, comm_name(call, name, sizeof name), call->name, peer,
                     mca_coll_gpusym_component.timeout);
    give_up(call);
}

/* Whether a peer has died or given up; then the call ends. */
static bool peers_lost(coll_gpusym_call_t *call)
{
    const gpusym_rollcall_t *rc = &call->module->team->rc;
    char name[COLL_GPUSYM_COMM_NAME_MAX];
    const int dead = gpusym_rollcall_dead(rc);
    if (dead >= 0) {
        coll_gpusym_help("dead-rank", (int)rc->rank, comm_name(call, name, sizeof name), opal_process_info.nodename,
                         dead, gpusym_peer_pid(rc->peer[dead]), call->name);
        give_up(call);
        return true;
    }
    const int quitter = gpusym_rollcall_aborted(rc);
    if (quitter >= 0) {
        coll_gpusym_help("aborted", (int)rc->rank, comm_name(call, name, sizeof name), call->name, quitter);
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
    const uint64_t now = now_ns();
    if (now - call->looked_ns < HEALTH_NS) {
        return false;
    }
    call->looked_ns = now;
    return true;
}

/* ---- roll-call ---- */

/* Passed to the roll-call, which calls it while a peer is too far behind. */
static int throttled(void *arg)
{
    coll_gpusym_call_t *call = arg;
    opal_progress();
    sched_yield();
    return time_to_look(call) && peers_lost(call) ? 1 : 0;
}

/* The user's tuning in one word, 0 if there is none: ranks that see different parameters would launch different plans,
 * so it is compared together with the size of the message. */
static uint32_t tuning_word(void)
{
    const mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    const uint32_t forced[] = {(uint32_t)(c->allreduce_algorithm - COLL_GPUSYM_ALG_AUTO), c->oneshot_max,
                               (uint32_t)c->blocks, (uint32_t)c->threads, c->chunk};
    uint32_t word = 0;
    for (size_t i = 0; i < sizeof forced / sizeof forced[0]; i++) {
        word = (word ^ forced[i]) * 2654435761u;
    }
    return word;
}

static uint8_t what(const coll_gpusym_call_t *call, uint8_t kind)
{
    return GPUSYM_KIND_NATIVE == kind ? (uint8_t)(call->op * GPUSYM_T_COUNT + call->type) : 0xff;
}

void coll_gpusym_call_start(coll_gpusym_call_t *call, uint8_t kind)
{
    call->state = COLL_GPUSYM_CALL_ROLLCALL;
    call->error = MPI_SUCCESS;
    call->lane = NULL;
    call->has_turn = false;
    call->polls = 0;
    call->looked_ns = 0;
    if (0 != gpusym_rollcall_post(&call->module->team->rc, kind, what(call, kind), call->bytes ^ tuning_word(), throttled, call,
                                  &call->read)) {
        return; /* peers_lost() has ended the call */
    }
    if (kind >= GPUSYM_KIND_STAGE) { /* that settles it: no need to know the others */
        call->reason = kind - GPUSYM_KIND_STAGE;
        call->state = COLL_GPUSYM_CALL_STAGE;
    }
}

int coll_gpusym_call_pass(mca_coll_gpusym_module_t *module, const char *name, uint64_t bytes)
{
    coll_gpusym_call_t call = {.module = module, .name = name};
    return 0 == gpusym_rollcall_post(&module->team->rc, GPUSYM_KIND_HOST, 0xff, bytes, throttled, &call, &call.read)
               ? MPI_SUCCESS
               : call.error;
}

/* All have answered: what to do. */
static void answered(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    char name[COLL_GPUSYM_COMM_NAME_MAX];

    if (call->read.host || call->read.stage >= 0) {
        call->reason = call->read.stage >= 0 ? call->read.stage - GPUSYM_KIND_STAGE : COLL_GPUSYM_R_MIXED;
        call->state = COLL_GPUSYM_CALL_STAGE;
        return;
    }
    if (call->read.mismatch_rank >= 0) {
        coll_gpusym_help("mismatch", (int)t->rank, comm_name(call, name, sizeof name), call->name,
                         call->read.mismatch_rank, (size_t)call->bytes, (size_t)((uint32_t)call->read.mismatch_bytes ^ tuning_word()));
        give_up(call);
        return;
    }
    if (!t->gpu_tried) {
        const int rv = coll_gpusym_team_gpu(call->module, &call->where);
        if (MPI_SUCCESS != rv) {
            give_up(call);
            return;
        }
    }
    if (t->reason >= 0) {
        call->reason = t->reason;
        call->state = COLL_GPUSYM_CALL_STAGE;
        return;
    }
    call->state = COLL_GPUSYM_CALL_TURN;
}

/* ---- kernel ---- */

/* Chooses and launches. The plan depends on nothing that only this rank knows. */
static void launch(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    const mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    const gpusym_tuning_call_t what = {call->bytes, t->nranks, t->sm_count, c->dev->simulated,
                                       gpusym_ll_payload(t->work.ll_bytes), t->max_blocks};
    const gpusym_tuning_forced_t forced = {c->allreduce_algorithm, c->oneshot_max, (uint32_t)c->blocks,
                                           (uint32_t)c->threads, c->chunk};
    gpusym_tuning_choice_t plan;
    gpusym_work_t w = t->work;

    gpusym_tuning_allreduce(&what, &forced, &plan);
    w.in = call->in;
    w.out = call->out;
    w.out_local = call->out_local;
    w.bytes = call->bytes;
    w.op = call->op;
    w.type = call->type;
    w.nblocks = plan.blocks;
    w.nthreads = plan.threads;
    call->algorithm = plan.algorithm;
    call->error = coll_gpusym_team_epochs(call->module, gpusym_kernel_plan((unsigned)plan.algorithm, &w, plan.chunk), &w.epoch);
    if (MPI_SUCCESS != call->error) {
        give_up(call);
        return;
    }
    call->state = COLL_GPUSYM_CALL_RUNNING;
    if (GPUSYM_SUCCESS != gpusym_lane_get(c->dev, t->gpu, &call->lane)) {
        call->lane = NULL;
        fail_gpu(call, c->dev->error());
        return;
    }
    call->since_ns = 0;
    if (GPUSYM_SUCCESS !=
        gpusym_lane_launch(call->lane, gpusym_kernel_find((unsigned)plan.algorithm, call->op, call->type), &w)) {
        gpusym_lane_put(call->lane); /* nothing was queued */
        call->lane = NULL;
        fail_gpu(call, c->dev->error());
    }
}

/* The kernel has written its completion word. */
static void completed(coll_gpusym_call_t *call, uint32_t status)
{
    const bool draining = COLL_GPUSYM_CALL_DRAINING == call->state;
    gpusym_lane_put(call->lane);
    call->lane = NULL;
    if (draining || GPUSYM_STATUS_OK == (status & 0xff)) {
        end(call);
    } else if (GPUSYM_STATUS_TIMEOUT == (status & 0xff)) {
        fail_timeout(call, (int)(status >> 8));
    } else {
        fail_gpu(call, "the kernel was aborted");
    }
}

/* While a kernel runs, now and then: are the peers there, is the GPU well? */
static void look_after(coll_gpusym_call_t *call)
{
    const gpusym_device_t *dev = mca_coll_gpusym_component.dev;
    const double timeout = mca_coll_gpusym_component.timeout;
    uint32_t status;
    if (0 == call->since_ns) {
        call->since_ns = call->looked_ns;
    }
    if (COLL_GPUSYM_CALL_RUNNING == call->state && peers_lost(call)) {
        return;
    }
    const int idle = dev->stream_poll(call->lane->stream);
    if (0 != idle && !gpusym_lane_done(call->lane, &status)) { /* ended, but not by its last line */
        call->lane = NULL;                                      /* not used again */
        if (COLL_GPUSYM_CALL_DRAINING == call->state) {
            end(call);
        } else {
            fail_gpu(call, idle < 0 ? dev->error() : "the kernel ended without completing");
        }
        return;
    }
    const uint64_t waited = call->looked_ns - call->since_ns;
    if (COLL_GPUSYM_CALL_DRAINING == call->state) {
        if (waited > GRACE_NS) {
            call->lane = NULL;
            end(call);
        }
    } else if (timeout > 0 && (double)waited > timeout * 1e9 + (double)GRACE_NS) {
        fail_gpu(call, "the kernel does not end");
    }
}

bool coll_gpusym_call_poll(coll_gpusym_call_t *call)
{
    uint32_t status;
    switch (call->state) {
    case COLL_GPUSYM_CALL_ROLLCALL:
        if (gpusym_rollcall_read(&call->module->team->rc, &call->read)) {
            answered(call);
        } else if (time_to_look(call)) {
            peers_lost(call);
        }
        if (COLL_GPUSYM_CALL_TURN != call->state) {
            break;
        }
        /* fall through */
    case COLL_GPUSYM_CALL_TURN:
        call->has_turn = true; /* or a part of it */
        if (gpusym_turns_take(&call->module->team->rc, call->read.seq)) {
            launch(call);
        } else if (time_to_look(call) && !peers_lost(call)) {
            gpusym_turns_rescue(&call->module->team->rc);
        }
        break;
    case COLL_GPUSYM_CALL_RUNNING:
    case COLL_GPUSYM_CALL_DRAINING:
        if (gpusym_lane_done(call->lane, &status)) {
            completed(call, status);
        } else if (time_to_look(call)) {
            look_after(call);
        }
        break;
    default:
        break;
    }
    return COLL_GPUSYM_CALL_STAGE == call->state || COLL_GPUSYM_CALL_ENDED == call->state;
}

void coll_gpusym_call_wait(coll_gpusym_call_t *call)
{
    /* The simulator's kernels run on the same cores: let them. */
    uint32_t spins = mca_coll_gpusym_component.dev->simulated ? SPINS : 0;
    while (!coll_gpusym_call_poll(call)) {
        if (spins < SPINS) {
            spins++;
            opal_atomic_rmb();
            continue;
        }
        opal_progress();
        sched_yield();
    }
}
