/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels that stay: after a small all-reduce its one block lingers on the GPU, so that the communicator's next one costs
 * no launch (kernels/symm_ll.h has the other side, kernels/work.h the bell). Of this rank alone: what a peer does, launch or
 * ring, makes no difference.
 *
 * The kernel belongs to the team, with its lane, until it has left. It serves calls of the same kernel; for another that could
 * stay it is told to leave, all else is launched beside it.
 *
 * A program that synchronises its GPU between some of its calls waits for the kernel each time. So it must be worth that:
 * where it leaves by itself, having stayed for longer after its last call than it had saved by those before, calls
 * go without for a while, unless the user has said how long kernels are to stay.
 *
 * A call that is like the last one is rung for as soon as this rank has posted it: the GPU begins while the host still reads
 * what the peers have posted. If they are not in the same call, the kernel finds out by itself: lines of the call's epoch do
 * not come from all of them. It then leaves, with nothing done, after a while or because it is told to
 * (gs_agxll_r_rung), and the call goes on as all have agreed.
 */
#include "coll_gpusym_call.h"

/* The teams that keep a lane, and where the next one stands. Only of processes without MPI_THREAD_MULTIPLE. */
static coll_gpusym_team_t *keeper[GPUSYM_STAY_KEEPERS_MAX];
static unsigned keeper_next;

static uint64_t linger_ns(void)
{
    const mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    return 1000ull * (c->linger >= 0 ? (uint64_t)c->linger : gpusym_tuning_linger_us(c->dev->simulated));
}

static bool address_fits(const void *p)
{
    return 0 == (uint64_t)(uintptr_t)p >> GPUSYM_BELL_ADDRESS_BITS;
}

bool coll_gpusym_stay_may(const coll_gpusym_call_t *call, const coll_gpusym_plan_t *p)
{
    const coll_gpusym_team_t *t = call->module->team;
    const mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    return GPUSYM_ALG_ALLREDUCE_AGXLL_R == p->algorithm && call->blocking && !t->threads && p != call->plan &&
           1 == p->epochs && p->work.bytes <= gpusym_tuning_stay_max(t->nranks) && c->blocks <= 1 &&
           !c->share_gpu && /* it would take other ranks' time on the GPU */
           address_fits(call->native.in) && address_fits(call->native.out) && 0 != linger_ns();
}

/* The epoch of a team's call in flight, if it takes one only. */
static uint64_t epoch_of(const coll_gpusym_team_t *t)
{
    return t->epoch_base + t->rc.seq;
}

/* Whether the kernel that stays can be told of that epoch. */
static bool epoch_near(const coll_gpusym_team_t *t)
{
    const uint64_t epoch = epoch_of(t);
    return epoch > t->stay.epoch && epoch - t->stay.epoch - 1 <= GPUSYM_BELL_SKIP_MAX && epoch < GPUSYM_EPOCH_MAX;
}

/* The kernel, which has served so many, is gone: by itself, or told to, so that nobody has waited for it. */
static void account(coll_gpusym_team_t *t, uint32_t served, bool by_itself)
{
    if ((uint64_t)served * GPUSYM_STAY_GAIN_NS >= t->stay.work.linger_ns) {
        t->stay.misses = 0;
    } else if (by_itself) {
        t->stay.misses++;
    }
}

/* The kernel has left, or is told to. */
static void let_go(coll_gpusym_team_t *t)
{
    uint32_t status;
    if (NULL == t->stay.lane) {
        return;
    }
    const bool by_itself = gpusym_lane_done(t->stay.lane, &status) && 0 != (status & GPUSYM_STATUS_LEFT);
    account(t, t->stay.served, by_itself);
    if (!by_itself) {
        gpusym_lane_dismiss(t->stay.lane);
    }
    gpusym_lane_put(t->stay.lane);
    t->stay.lane = NULL;
}

/* The team keeps its lane; if need be, the one that has been among the keepers for longest gives its own back. */
static void keep(coll_gpusym_team_t *t)
{
    for (unsigned i = 0; i < GPUSYM_STAY_KEEPERS_MAX; i++) {
        if (t == keeper[i]) {
            return;
        }
    }
    if (NULL != keeper[keeper_next]) {
        let_go(keeper[keeper_next]);
    }
    keeper[keeper_next] = t;
    keeper_next = (keeper_next + 1) % GPUSYM_STAY_KEEPERS_MAX;
}

/* Whether the team's kernel is still here, to its knowledge, and may serve one more. */
static bool is_here(const coll_gpusym_team_t *t)
{
    uint32_t status;
    return t->stay.served < GPUSYM_STAY_SERVED_MAX && gpusym_lane_done(t->stay.lane, &status) &&
           0 == (status & GPUSYM_STATUS_LEFT);
}

static void ring(coll_gpusym_call_t *call, uint64_t bytes)
{
    coll_gpusym_team_t *t = call->module->team;
    const uint32_t epoch = (uint32_t)epoch_of(t), skip = epoch - t->stay.epoch - 1;
    call->lane = t->stay.lane;
    call->stays = call->rang = true;
    call->algorithm = GPUSYM_ALG_ALLREDUCE_AGXLL_R;
    call->zero_copied = false;
    t->stay.lane = NULL;
    t->stay.alone = true;
    t->stay.epoch = epoch;
    t->stay.served++;
    t->stay.bytes = bytes;
    t->stay.hash = call->hash;
    gpusym_lane_ring(call->lane, call->native.in, call->native.out, bytes, skip);
}

/* Whether a call, which has been posted, is like the last one of a kernel that is here. With the same hash and bytes the
 * plan would be the same; operation and type are compared themselves, so that what the kernel does is right whatever the
 * hash. */
static bool is_same(const coll_gpusym_call_t *call, uint64_t bytes)
{
    const coll_gpusym_team_t *t = call->module->team;
    const coll_gpusym_native_t *k = &call->native;
    return NULL != t->stay.lane && COLL_GPUSYM_ALLREDUCE == call->args.coll && call->blocking && NULL == call->plan &&
           call->hash == t->stay.hash && bytes == t->stay.bytes && k->op == t->stay.work.op &&
           k->type == t->stay.work.type && call->out_local == (0 != t->stay.work.out_local) && epoch_near(t) &&
           address_fits(k->in) && address_fits(k->out) && 0 != linger_ns() && is_here(t);
}

bool coll_gpusym_stay_same(coll_gpusym_call_t *call)
{
    if (!is_same(call, call->read.max_bytes)) {
        return false;
    }
    ring(call, call->read.max_bytes);
    return true;
}

void coll_gpusym_stay_early(coll_gpusym_call_t *call)
{
    const coll_gpusym_team_t *t = call->module->team;
    /*
     * LL lines of one parity must not be overwritten before all have read them. A peer may still be in the last call that
     * this kernel served: only the other parity's lines are free, since all had ended the calls before when they sent
     * their lines of that one. If it was another kernel's call, any of its lines may still be read. And what is offered to
     * peers may need a vote first.
     */
    if (!call->agree_only && t->stay.alone && 0 != (epoch_of(t) - t->stay.epoch) % 2 && 0 == call->in_key && 0 == call->out_key &&
        0 != (call->read.all & GPUSYM_POST_QUIET) && is_same(call, call->native.bytes)) {
        ring(call, call->native.bytes);
    }
}

bool coll_gpusym_stay_ring(coll_gpusym_call_t *call, const coll_gpusym_plan_t *p)
{
    coll_gpusym_team_t *t = call->module->team;
    if (NULL == t->stay.lane) {
        return false;
    }
    if (p->kernel != t->stay.kernel || p->work.op != t->stay.work.op || p->work.type != t->stay.work.type ||
        p->work.out_local != t->stay.work.out_local || !epoch_near(t) || !is_here(t)) {
        let_go(t);
        return false;
    }
    ring(call, p->work.bytes);
    return true;
}

void coll_gpusym_stay_prepare(coll_gpusym_call_t *call, coll_gpusym_plan_t *p)
{
    coll_gpusym_team_t *t = call->module->team;
    if (t->stay.skip > 0 && mca_coll_gpusym_component.linger < 0) { /* the user may have said it since */
        t->stay.skip--;
        return;
    }
    if (t->stay.misses >= GPUSYM_STAY_MISSES && mca_coll_gpusym_component.linger < 0) {
        /* The next one that serves nobody makes it longer. */
        const uint32_t more = t->stay.misses - GPUSYM_STAY_MISSES;
        t->stay.skip = more > 5 ? GPUSYM_STAY_SKIP_MOST : GPUSYM_STAY_SKIP_FIRST << more;
    }
    p->work.nblocks = 1;
    p->work.nthreads = 0 != mca_coll_gpusym_component.threads ? p->work.nthreads : gpusym_tuning_stay_threads();
    p->work.linger_ns = linger_ns();
    call->stays = true;
    t->stay.kernel = p->kernel;
    t->stay.alone = true;
    t->stay.epoch = p->work.epoch;
    t->stay.served = 0;
    t->stay.bytes = p->work.bytes;
    t->stay.hash = call->hash;
    t->stay.work = p->work;
}

bool coll_gpusym_stay_left(const coll_gpusym_call_t *call)
{
    return call->rang && gpusym_lane_left(call->lane);
}

bool coll_gpusym_stay_again(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    gpusym_work_t *w = &t->stay.work;
    call->late = true;
    call->rang = false; /* that it has left says nothing of the one that is launched now */
    account(t, t->stay.served - 1, true);
    t->stay.served = 0; /* nor has that one served anybody yet */
    w->in = call->native.in;
    w->out = call->native.out;
    w->bytes = call->read.max_bytes;
    w->epoch = t->stay.epoch;
    (void)gpusym_kernel_plan(GPUSYM_F_AGXLL_R, w, 0);
    return GPUSYM_SUCCESS == gpusym_lane_launch(call->lane, t->stay.kernel, w);
}

void coll_gpusym_stay_done(coll_gpusym_call_t *call, bool well)
{
    coll_gpusym_team_t *t = call->module->team;
    t->stay.lane = call->lane;
    if (well) {
        keep(t);
    } else {
        let_go(t);
    }
    if (call->taken_back && mca_coll_gpusym_component.linger < 0) {
        t->stay.skip = GPUSYM_STAY_SKIP_FIRST; /* the next may be too */
    }
}

void coll_gpusym_stay_beside(coll_gpusym_team_t *t, const coll_gpusym_plan_t *p)
{
    t->stay.alone = false;
    if (NULL != t->stay.lane && (p->work.nblocks >= t->sm_count || !is_here(t))) {
        let_go(t);
    }
}

void coll_gpusym_stay_end(coll_gpusym_team_t *t)
{
    let_go(t);
    for (unsigned i = 0; i < GPUSYM_STAY_KEEPERS_MAX; i++) {
        if (t == keeper[i]) {
            keeper[i] = NULL;
        }
    }
}
