/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels that stay: after a small collective its one block lingers on the GPU, so that the communicator's next one costs
 * no launch (kernels/symm/resident.h has the other side, kernels/work.h the bell). Of this rank alone: what a peer
 * does, launch or ring, makes no difference.
 *
 * A team may have two, one for all-reduce and one for another collective. A kernel belongs to the team, with its lane, until
 * it has left. It serves calls of the same kernel, and if it is not all-reduce's of the same segments; for another that
 * wants its place it is told to leave, all else is launched beside it.
 *
 * A program that synchronises its GPU between some of its calls waits for the kernel each time. So it must be worth that:
 * where it leaves by itself, having stayed for longer after its last call than it had saved by those before, calls go
 * without for a while. If these have such pauses too, it is not the kernel that makes them, and it may go on. It must be
 * worth it as well where it leaves to make place. All that unless the user has said how long kernels are to stay.
 *
 * An all-reduce that is like the last one is rung for as soon as this rank has posted it: the GPU begins while the host still
 * reads what the peers have posted. If they are not in the same call, the kernel finds out by itself: lines of the call's
 * epoch do not come from all of them. It then leaves, with nothing done, after a while or because it is told to
 * (gs_agxll_r_command), and the call goes on as all have agreed.
 */
#include "mca/coll/gpusym/call/call.h"
#include "kernels/plan.h"

/* The kernels that keep a lane, and where the next one stands. Only of processes without MPI_THREAD_MULTIPLE. */
static coll_gpusym_stay_t *keeper[GPUSYM_RESIDENT_MAX];
static unsigned keeper_next;

static uint64_t linger_ns(void)
{
    const mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    return 1000ull * (c->linger >= 0 ? (uint64_t)c->linger : gpusym_tuning_linger_us(gpusym_current.dev->simulated));
}

static bool address_fits(const void *p)
{
    return 0 == (uint64_t)(uintptr_t)p >> GPUSYM_COMMAND_ADDRESS_BITS;
}

/* The place of a call's kernel. */
static coll_gpusym_stay_t *place_of(const coll_gpusym_call_t *call)
{
    const bool reduces_all = COLL_GPUSYM_ALLREDUCE == call->args.coll;
    return &call->module->team->stay[reduces_all ? COLL_GPUSYM_STAY_ALLREDUCE : COLL_GPUSYM_STAY_OTHER];
}

bool coll_gpusym_stay_may(const coll_gpusym_call_t *call, const coll_gpusym_plan_t *p)
{
    const coll_gpusym_team_t *t = call->module->team;
    const mca_coll_gpusym_component_t *c = &mca_coll_gpusym_component;
    const unsigned family = gpusym_algorithm_family((unsigned)p->algorithm);
    return (GPUSYM_F_AGXLL_R == family || GPUSYM_F_XLL == family || GPUSYM_F_XLL_R == family) && call->blocking &&
           NULL == call->sizes &&
           !t->threads && p != call->plan && 1 == p->epochs && 0 != p->work.bytes &&
           p->work.bytes <= gpusym_tuning_resident_max(t->nranks) && c->blocks <= 1 && NULL == call->scratch &&
           !c->share_gpu && /* it would take other ranks' time on the GPU */
           address_fits(call->native.in) && address_fits(call->native.out) && 0 != linger_ns();
}

/* The epoch of a team's call in flight, if it takes one only. */
static uint64_t epoch_of(const coll_gpusym_team_t *t)
{
    return t->epoch_base + t->rc.seq;
}

/* Whether the kernel that stays can be told of that epoch. */
static bool epoch_near(const coll_gpusym_team_t *t, const coll_gpusym_stay_t *s)
{
    const uint64_t epoch = epoch_of(t);
    return epoch > s->epoch && epoch - s->epoch - 1 <= GPUSYM_COMMAND_SKIP_MAX && epoch < GPUSYM_EPOCH_MAX;
}

/* The kernel has left, or is told to; displaced: by one that wants its place. */
static void let_go(coll_gpusym_stay_t *s, bool displaced)
{
    uint32_t status;
    if (NULL == s->lane) {
        return;
    }
    const bool by_itself = gpusym_lane_done(s->lane, &status) && 0 != (status & GPUSYM_STATUS_RETIRED);
    gpusym_tuning_resident_ended(&s->worth, s->served, s->work.linger_ns,
                            by_itself   ? GPUSYM_RESIDENT_EXPIRED
                            : displaced ? GPUSYM_RESIDENT_DISPLACED
                                        : GPUSYM_RESIDENT_RETIRED);
    if (!by_itself) {
        gpusym_lane_retire(s->lane);
    }
    gpusym_lane_put(s->lane);
    s->lane = NULL;
}

/* The kernel keeps its lane; if need be, the one that has been among the keepers for longest gives its own back. */
static void keep(coll_gpusym_stay_t *s)
{
    for (unsigned i = 0; i < GPUSYM_RESIDENT_MAX; i++) {
        if (s == keeper[i]) {
            return;
        }
    }
    if (NULL != keeper[keeper_next]) {
        let_go(keeper[keeper_next], false);
    }
    keeper[keeper_next] = s;
    keeper_next = (keeper_next + 1) % GPUSYM_RESIDENT_MAX;
}

/* Whether the kernel is still here, to the team's knowledge, and may serve one more. */
static bool is_here(const coll_gpusym_stay_t *s)
{
    uint32_t status;
    return s->served < GPUSYM_RESIDENT_SERVED_MAX && gpusym_lane_done(s->lane, &status) && 0 == (status & GPUSYM_STATUS_RETIRED);
}

/* A kernel of the team gets a call: the other one is not alone any more. */
static void gets_call(coll_gpusym_team_t *t, const coll_gpusym_stay_t *who)
{
    for (unsigned i = 0; i < COLL_GPUSYM_STAYS; i++) {
        t->stay[i].alone = who == &t->stay[i];
    }
}

static void ring(coll_gpusym_call_t *call, uint64_t bytes)
{
    coll_gpusym_team_t *t = call->module->team;
    coll_gpusym_stay_t *s = place_of(call);
    const uint32_t epoch = (uint32_t)epoch_of(t), skip = epoch - s->epoch - 1;
    call->lane = s->lane;
    call->stays = call->rang = true;
    call->algorithm = s->algorithm;
    call->zero_copied = false;
    s->lane = NULL;
    s->epoch = epoch;
    s->served++;
    s->bytes = bytes;
    s->hash = call->hash;
    gets_call(t, s);
    gpusym_lane_command(call->lane, call->native.in, call->native.out, bytes, skip);
}

/* Whether a kernel does what a call wants done with its elements. */
static bool is_kind(const coll_gpusym_call_t *call, const coll_gpusym_stay_t *s)
{
    return call->native.op == s->work.op && call->native.type == s->work.type &&
           call->out_local == (0 != s->work.out_local);
}

/* Whether its segments are those of a call. All-reduce has none: its kernel is told of the length. */
static bool is_shape(const coll_gpusym_call_t *call, const coll_gpusym_stay_t *s, const gpusym_work_t *w)
{
    const gpusym_work_t *mine = &s->work;
    return COLL_GPUSYM_ALLREDUCE == call->args.coll ||
           (call->args.coll == s->coll && w->bytes == mine->bytes && w->src_first == mine->src_first &&
            w->src_end == mine->src_end && 0 == memcmp(w->send, mine->send, mine->nranks * sizeof *w->send) &&
            0 == memcmp(w->recv, mine->recv, mine->nranks * sizeof *w->recv));
}

/* Whether a call, which has been posted, is like the last one of a kernel that is here. With the same hash and bytes the
 * plan would be the same; kind, here, and shape are compared themselves, so that what the kernel does is right whatever the
 * hash. */
static bool is_same(const coll_gpusym_call_t *call, uint64_t bytes)
{
    const coll_gpusym_team_t *t = call->module->team;
    const coll_gpusym_native_t *k = &call->native;
    const coll_gpusym_stay_t *s = place_of(call);
    return NULL != s->lane && call->blocking && NULL == call->plan && call->hash == s->hash && bytes == s->bytes &&
           NULL == call->scratch && is_kind(call, s) && epoch_near(t, s) && address_fits(k->in) && address_fits(k->out) &&
           0 != linger_ns() && is_here(s);
}

bool coll_gpusym_stay_same(coll_gpusym_call_t *call)
{
    const coll_gpusym_team_t *t = call->module->team;
    gpusym_work_t w; /* only in part */
    if (NULL != call->sizes || !is_same(call, call->read.max_bytes)) {
        return false;
    }
    if (COLL_GPUSYM_ALLREDUCE != call->args.coll) {
        w.rank = t->rank;
        w.nranks = t->nranks;
        memset(w.send, 0, t->nranks * sizeof *w.send);
        memset(w.recv, 0, t->nranks * sizeof *w.recv);
        coll_gpusym_native_work(call, &w);
        if (!is_shape(call, place_of(call), &w)) {
            return false;
        }
    }
    ring(call, call->read.max_bytes);
    return true;
}

void coll_gpusym_stay_early(coll_gpusym_call_t *call)
{
    const coll_gpusym_team_t *t = call->module->team;
    const coll_gpusym_stay_t *s = &t->stay[COLL_GPUSYM_STAY_ALLREDUCE];
    /*
     * LL lines of one parity must not be overwritten before all have read them. A peer may still be in the last call that
     * this kernel served: only the other parity's lines are free, since all had ended the calls before when they sent
     * their lines of that one. If it was another kernel's call, any of its lines may still be read. And what is offered to
     * peers may need a vote first.
     */
    if (NULL != s->lane && COLL_GPUSYM_ALLREDUCE == call->args.coll && !call->agree_only && s->alone &&
        0 != (epoch_of(t) - s->epoch) % 2 && 0 == call->in_key && 0 == call->out_key &&
        0 != (call->read.all & GPUSYM_POST_QUIET) && is_same(call, call->native.bytes)) {
        ring(call, call->native.bytes);
    }
}

bool coll_gpusym_stay_ring(coll_gpusym_call_t *call, const coll_gpusym_plan_t *p)
{
    coll_gpusym_stay_t *s = place_of(call);
    if (NULL == s->lane) {
        return false;
    }
    const bool fits = p->kernel == s->kernel && is_kind(call, s) && is_shape(call, s, &p->work);
    if (!fits || !epoch_near(call->module->team, s) || !is_here(s)) {
        let_go(s, !fits);
        return false;
    }
    ring(call, p->work.bytes);
    return true;
}

void coll_gpusym_stay_prepare(coll_gpusym_call_t *call, coll_gpusym_plan_t *p)
{
    coll_gpusym_stay_t *s = place_of(call);
    coll_gpusym_stay_beside(call->module->team, p);
    if (mca_coll_gpusym_component.linger < 0 && !gpusym_tuning_resident_allow(&s->worth, linger_ns(), coll_gpusym_now_ns())) {
        return; /* the user may say it later */
    }
    p->work.nblocks = 1;
    p->work.nthreads = 0 != mca_coll_gpusym_component.threads ? p->work.nthreads : gpusym_tuning_resident_threads();
    p->work.linger_ns = linger_ns();
    call->stays = true;
    s->kernel = p->kernel;
    s->coll = call->args.coll;
    s->algorithm = p->algorithm;
    s->alone = true;
    s->epoch = p->work.epoch;
    s->served = 0;
    s->bytes = p->work.bytes;
    s->hash = call->hash;
    s->work = p->work;
}

bool coll_gpusym_stay_left(const coll_gpusym_call_t *call)
{
    return call->rang && gpusym_lane_retired(call->lane);
}

bool coll_gpusym_stay_again(coll_gpusym_call_t *call)
{
    coll_gpusym_stay_t *s = place_of(call);
    gpusym_work_t *w = &s->work;
    call->late = true;
    call->rang = false; /* that it has left says nothing of the one that is launched now */
    gpusym_tuning_resident_ended(&s->worth, s->served - 1, w->linger_ns, GPUSYM_RESIDENT_EXPIRED);
    s->served = 0; /* nor has that one served anybody yet */
    w->in = call->native.in;
    w->out = call->native.out;
    w->bytes = call->read.max_bytes;
    w->epoch = s->epoch;
    (void)gpusym_kernel_plan(gpusym_algorithm_family((unsigned)s->algorithm), w, 0);
    return GPUSYM_SUCCESS == gpusym_lane_launch(call->lane, s->kernel, w);
}

void coll_gpusym_stay_done(coll_gpusym_call_t *call, bool well)
{
    coll_gpusym_stay_t *s = place_of(call);
    s->lane = call->lane;
    if (well) {
        keep(s);
    } else {
        let_go(s, false);
    }
    if (call->taken_back) {
        gpusym_tuning_resident_skip(&s->worth); /* the next may be too */
    }
}

void coll_gpusym_stay_beside(coll_gpusym_team_t *t, const coll_gpusym_plan_t *p)
{
    gets_call(t, NULL);
    for (unsigned i = 0; i < COLL_GPUSYM_STAYS; i++) {
        if (NULL != t->stay[i].lane && (p->work.nblocks + COLL_GPUSYM_STAYS > t->sm_count || !is_here(&t->stay[i]))) {
            let_go(&t->stay[i], false);
        }
    }
}

void coll_gpusym_stay_end(coll_gpusym_team_t *t)
{
    for (unsigned i = 0; i < COLL_GPUSYM_STAYS; i++) {
        if (NULL != t->stay[i].lane && !gpusym_lane_alive(t->stay[i].lane)) { /* MPI_Finalize after cudaDeviceReset */
            gpusym_lane_put(t->stay[i].lane); /* the kernel is gone, and the line that we would tell it by is not mapped */
            t->stay[i].lane = NULL;
        }
        let_go(&t->stay[i], false);
        for (unsigned k = 0; k < GPUSYM_RESIDENT_MAX; k++) {
            if (&t->stay[i] == keeper[k]) {
                keeper[k] = NULL;
            }
        }
    }
}
