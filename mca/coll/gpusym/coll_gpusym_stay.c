/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Kernels that stay: after a small all-reduce its one block lingers on the GPU, so that the communicator's next one costs
 * no launch (kernels/symm_ll.h has the other side, kernels/work.h the bell). Of this rank alone: what a peer does, launch or
 * ring, makes no difference.
 *
 * The kernel belongs to the team, with its lane, until it has left. It serves calls of the same kernel whose epoch
 * follows its last one's; for any other it is told to leave. A program that synchronises its GPU between its calls waits
 * for the kernel each time and gets nothing for it: where kernels leave without having served anyone, calls go without
 * for a while, unless the user has said how long they are to stay.
 */
#include "coll_gpusym_call.h"

/* Calls that one kernel serves at most: then it is launched anew, so that whoever waits for all of the GPU's kernels to end
 * (cudaFree of another thread), or is queued behind it, waits no longer than for these, even if the program never pauses.
 * They share the cost of the launch, about 5 us. */
#define SERVED_MAX 256u
/* Teams that keep a lane at a time. Each may have a block waiting on the GPU, whose hardware queues (8, unless
 * CUDA_DEVICE_MAX_CONNECTIONS says otherwise) are the program's too; and a program may have thousands of communicators. */
#define KEEPERS_MAX 4u
/* After so many in a row that served nobody; then so many calls without, twice as many each further time, up to the most. */
#define MISSES_ALLOWED 2u
#define SKIP_FIRST 64u
#define SKIP_MOST 4096u

/* Those teams, and where the next one stands. Only of processes without MPI_THREAD_MULTIPLE. */
static coll_gpusym_team_t *keeper[KEEPERS_MAX];
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
           1 == p->epochs && p->work.bytes <= gpusym_tuning_stay_max() && c->blocks <= 1 && !c->share_gpu && /* it would take other ranks' time on the GPU */
           address_fits(call->native.in) && address_fits(call->native.out) && 0 != linger_ns();
}

/* The kernel has left, or is told to. */
static void let_go(coll_gpusym_team_t *t)
{
    uint32_t status;
    if (NULL == t->stay.lane) {
        return;
    }
    if (0 != t->stay.served) {
        t->stay.misses = 0;
    }
    if (!gpusym_lane_done(t->stay.lane, &status) || 0 == (status & GPUSYM_STATUS_LEFT)) {
        gpusym_lane_dismiss(t->stay.lane);
    } else if (0 == t->stay.served) {
        t->stay.misses++;
    }
    gpusym_lane_put(t->stay.lane);
    t->stay.lane = NULL;
}

/* The team keeps its lane; if need be, the one that has been among the keepers for longest gives its own back. */
static void keep(coll_gpusym_team_t *t)
{
    for (unsigned i = 0; i < KEEPERS_MAX; i++) {
        if (t == keeper[i]) {
            return;
        }
    }
    if (NULL != keeper[keeper_next]) {
        let_go(keeper[keeper_next]);
    }
    keeper[keeper_next] = t;
    keeper_next = (keeper_next + 1) % KEEPERS_MAX;
}

/* Whether the team's kernel is still here, to its knowledge, and may serve one more. */
static bool is_here(const coll_gpusym_team_t *t)
{
    uint32_t status;
    return t->stay.served < SERVED_MAX && gpusym_lane_done(t->stay.lane, &status) && 0 == (status & GPUSYM_STATUS_LEFT);
}

static void ring(coll_gpusym_call_t *call, const void *in, void *out, uint64_t bytes)
{
    coll_gpusym_team_t *t = call->module->team;
    call->lane = t->stay.lane;
    call->stays = call->rang = true;
    t->stay.lane = NULL;
    t->stay.epoch++;
    t->stay.served++;
    t->stay.bytes = bytes;
    t->stay.hash = call->hash;
    gpusym_lane_ring(call->lane, in, out, bytes);
}

bool coll_gpusym_stay_same(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    const coll_gpusym_native_t *k = &call->native;
    /* With the same hash and bytes the plan would be the same; operation and type are compared themselves, so that what the
     * kernel does is right whatever the hash. */
    if (NULL == t->stay.lane || COLL_GPUSYM_ALLREDUCE != call->args.coll || !call->blocking || NULL != call->plan ||
        call->hash != t->stay.hash || call->read.max_bytes != t->stay.bytes || k->op != t->stay.work.op ||
        k->type != t->stay.work.type || call->out_local != (0 != t->stay.work.out_local) || t->epoch != t->stay.epoch ||
        UINT32_MAX == t->epoch || !address_fits(k->in) || !address_fits(k->out) || 0 == linger_ns() || !is_here(t)) {
        return false;
    }
    t->epoch++;
    call->algorithm = GPUSYM_ALG_ALLREDUCE_AGXLL_R;
    call->zero_copied = false;
    ring(call, k->in, k->out, call->read.max_bytes);
    return true;
}

bool coll_gpusym_stay_ring(coll_gpusym_call_t *call, const coll_gpusym_plan_t *p)
{
    coll_gpusym_team_t *t = call->module->team;
    if (NULL == t->stay.lane) {
        return false;
    }
    if (p->kernel != t->stay.kernel || p->work.op != t->stay.work.op || p->work.type != t->stay.work.type ||
        p->work.epoch != t->stay.epoch || p->work.out_local != t->stay.work.out_local || !is_here(t)) {
        let_go(t);
        return false;
    }
    ring(call, p->work.in, p->work.out, p->work.bytes);
    return true;
}

void coll_gpusym_stay_prepare(coll_gpusym_call_t *call, coll_gpusym_plan_t *p)
{
    coll_gpusym_team_t *t = call->module->team;
    if (t->stay.skip > 0) {
        t->stay.skip--;
        return;
    }
    if (t->stay.misses >= MISSES_ALLOWED && mca_coll_gpusym_component.linger < 0) {
        /* The next one that serves nobody makes it longer. */
        const uint32_t more = t->stay.misses - MISSES_ALLOWED;
        t->stay.skip = more > 5 ? SKIP_MOST : SKIP_FIRST << more;
    }
    p->work.nblocks = 1;
    p->work.nthreads = 0 != mca_coll_gpusym_component.threads ? p->work.nthreads : gpusym_tuning_stay_threads();
    p->work.linger_ns = linger_ns();
    call->stays = true;
    t->stay.kernel = p->kernel;
    t->stay.epoch = p->work.epoch + 1;
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
    t->stay.served = 0; /* nor has that one served anybody yet */
    w->in = call->native.in;
    w->out = call->native.out;
    w->bytes = call->read.max_bytes;
    w->epoch = t->stay.epoch - 1;
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
}

void coll_gpusym_stay_end(coll_gpusym_team_t *t)
{
    let_go(t);
    for (unsigned i = 0; i < KEEPERS_MAX; i++) {
        if (t == keeper[i]) {
            keeper[i] = NULL;
        }
    }
}
