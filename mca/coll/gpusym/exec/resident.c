/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Resident kernels: after a small collective its one block, or the few of a cluster, linger on the GPU, so that the
 * communicator's next one costs no launch (kernels/symm/ has the other side, kernels/work.h the doorbell). Of this rank
 * alone: whether a peer launches or commands makes no difference.
 *
 * A communicator may have two, one for all-reduce and one for another collective. A kernel belongs to the communicator,
 * with its lane, until it has retired. It serves calls of the same kernel, and if it is not all-reduce's of the same
 * segments; for another that wants its place, or a call that wants more blocks, it is dismissed, all else is launched
 * beside it.
 *
 * A program that synchronises its GPU between some of its calls waits for the kernel each time. So it must be worth
 * that: where it retires by itself, having stayed for longer after its last call than it had saved by those before,
 * calls go without for a while. If these have such pauses too, it is not the kernel that makes them, and it may go on.
 * It must be worth it as well where it retires to make place. All that unless the user has set how long kernels remain.
 *
 * A call that is like the last one is commanded as soon as this rank has posted it, if it can be done again
 * (coll_gpusym_early_begins): the GPU begins while the host still reads what the peers have posted. If they are not in
 * the same call, the kernel finds out by itself: lines of the call's epoch do not come from all of them. It then
 * retires, after a while or because it is told to, and the call goes on as all have agreed. A kernel that waits for no
 * peer may have done its part then: it has stored nothing that is not stored again.
 */
#include "mca/coll/gpusym/exec/resident.h"

#include <string.h>

#include "kernels/plan.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/lock.h"

/* The kernels that keep a lane, and where the next one stands: of all communicators. A call of one may dismiss the
 * kernel of another, whose thread is elsewhere: the lock covers these, and the lane of each kernel that no call has. */
static pthread_mutex_t keeper_lock = PTHREAD_MUTEX_INITIALIZER;
static coll_gpusym_resident_t *keeper[GPUSYM_RESIDENT_MAX];
static unsigned keeper_next;

uint64_t coll_gpusym_resident_linger_ns(void)
{
    const coll_gpusym_params_t *c = &coll_gpusym_params;
    return 1000ull * (c->linger >= 0 ? (uint64_t) c->linger : gpusym_tuning_linger_us(gpusym_current.dev->simulated));
}

static bool address_fits(const void *p)
{
    return 0 == (uint64_t) (uintptr_t) p >> GPUSYM_COMMAND_ADDRESS_BITS;
}

static bool addresses_fit(const coll_gpusym_segments_t *k)
{
    return address_fits(k->in) && address_fits(k->out);
}

static bool is_packed(const coll_gpusym_task_t *task)
{
    return 0 != coll_gpusym_segments_scratch_bytes(task->segments);
}

static bool is_allreduce(const coll_gpusym_task_t *task)
{
    return COLL_GPUSYM_ALLREDUCE == coll_gpusym_task_coll(task);
}

/* The place of a call's kernel. */
static coll_gpusym_resident_t *find_place(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task)
{
    return &all->kernel[is_allreduce(task) ? COLL_GPUSYM_RESIDENT_ALLREDUCE : COLL_GPUSYM_RESIDENT_OTHER];
}

bool coll_gpusym_resident_may(const coll_gpusym_task_t *task, const coll_gpusym_plan_t *p)
{
    coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    const coll_gpusym_params_t *c = &coll_gpusym_params;
    const unsigned family = gpusym_algorithm_family((unsigned) p->algorithm);
    return (GPUSYM_F_AGXLL_R == family || GPUSYM_F_XLL == family || GPUSYM_F_XLL_R == family) && NULL == task->sizes &&
           1 == p->epochs && 0 != p->work.bytes && p->work.bytes <= GPUSYM_COMMAND_BYTES_MAX && 0 != p->resident &&
           (1 == p->resident || coll_gpusym_launch_clusters()) && c->blocks <= 1 && !is_packed(task) &&
           (t->host.mps || !coll_gpusym_team_crowded(t)) && /* it would take other processes' time on the GPU */
           addresses_fit(task->segments) && 0 != coll_gpusym_resident_linger_ns();
}

/* Whether a command to a resident kernel can carry that epoch. */
static bool epoch_near(const coll_gpusym_team_t *t, const coll_gpusym_resident_t *s)
{
    const uint64_t epoch = coll_gpusym_team_epoch(t);
    return epoch > s->epoch && epoch - s->epoch - 1 <= GPUSYM_COMMAND_SKIP_MAX && epoch < GPUSYM_EPOCH_MAX;
}

/* Whoever asks is told that a kernel has been launched, or gets a command. The call, which was posted just now, has
 * left the time in the line. */
static void tell_busy(const coll_gpusym_resident_t *s, const gpusym_line_t *line)
{
    gpusym_kernel_told_busy(s->told, s->served, __atomic_load_n(&line->stamp, __ATOMIC_RELAXED));
}

static gpusym_line_t *line_of(const coll_gpusym_task_t *task)
{
    return gpusym_pages_line(coll_gpusym_task_team(task)->host.line_off);
}

static void tell_launch(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task)
{
    coll_gpusym_resident_t *s = find_place(all, task);
    gpusym_line_t *line = line_of(task);
    s->told = &line->kernel[s - all->kernel];
    s->told->what = coll_gpusym_task_coll(task);
    s->told->linger_ns = s->work.linger_ns;
    tell_busy(s, line);
}

/* The kernel has retired, or is dismissed; displaced: by one that wants its place. */
static void dismiss_kernel(coll_gpusym_resident_t *s, bool displaced)
{
    enum gpusym_resident_end why = displaced ? GPUSYM_RESIDENT_DISPLACED : GPUSYM_RESIDENT_RETIRED;
    uint32_t status;
    if (NULL == s->lane) {
        return;
    }
    const bool by_itself = gpusym_lane_done(s->lane, &status) && 0 != (status & GPUSYM_STATUS_RETIRED);
    gpusym_tuning_resident_ended(&s->worth, s->served, s->work.linger_ns, by_itself ? GPUSYM_RESIDENT_EXPIRED : why);
    if (!by_itself) {
        gpusym_lane_retire(s->lane);
    }
    gpusym_lane_put(s->lane);
    s->lane = NULL;
    gpusym_kernel_told_end(s->told, GPUSYM_KERNEL_GONE);
}

/* The kernel keeps its lane; if need be, the one that has been among the keepers for longest gives its own back. */
static void keep_lane(coll_gpusym_resident_t *s)
{
    for (unsigned i = 0; i < GPUSYM_RESIDENT_MAX; i++) {
        if (s == keeper[i]) {
            return;
        }
    }
    if (NULL != keeper[keeper_next]) {
        dismiss_kernel(keeper[keeper_next], false);
    }
    keeper[keeper_next] = s;
    keeper_next = (keeper_next + 1) % GPUSYM_RESIDENT_MAX;
}

/* Whether the kernel is still here, to the communicator's knowledge, and may serve one more. */
static bool is_here(const coll_gpusym_resident_t *s)
{
    uint32_t status;
    return s->served < GPUSYM_RESIDENT_SERVED_MAX && gpusym_lane_done(s->lane, &status) &&
           0 == (status & GPUSYM_STATUS_RETIRED);
}

/* A kernel of the communicator gets a call: the others are not alone any more. */
static void note_call(coll_gpusym_residents_t *all, const coll_gpusym_resident_t *its)
{
    for (unsigned i = 0; i < COLL_GPUSYM_RESIDENTS; i++) {
        all->kernel[i].alone = its == &all->kernel[i];
    }
}

/* early: its peers may not be in the call. */
static void send_command(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l,
                         uint64_t bytes, bool early)
{
    coll_gpusym_resident_t *s = find_place(all, task);
    const uint32_t epoch = (uint32_t) coll_gpusym_team_epoch(coll_gpusym_task_team(task)), skip = epoch - s->epoch - 1;
    l->lane = s->lane;
    l->resident.remains = true;
    l->resident.how = COLL_GPUSYM_COMMANDED;
    l->algorithm = s->algorithm;
    s->lane = NULL;
    s->epoch = epoch;
    s->served++;
    s->bytes = bytes;
    s->hash = task->hash;
    tell_busy(s, line_of(task));
    note_call(all, s);
    gpusym_lane_command(l->lane, task->segments->in, task->segments->out, bytes,
                        skip | (early ? GPUSYM_COMMAND_EARLY : 0));
}

/* Whether a kernel does what a call wants done with its elements, and waits as long for peers where it is not sent the
 * command early: those of a nonblocking call may compute before they come back. A commanded all-reduce has another
 * limit (symm/symm_ll.h). */
static bool is_kind(const coll_gpusym_task_t *task, const coll_gpusym_resident_t *s)
{
    const coll_gpusym_segments_t *k = task->segments;
    return k->op == s->work.op && k->type == s->work.type && k->out_local == (0 != s->work.out_local) &&
           (is_allreduce(task) || coll_gpusym_task_limit_ns(task) == s->work.limit_ns);
}

/* Whether its segments are those of a call. All-reduce has none: the command carries its length. */
static bool has_segments(const coll_gpusym_task_t *task, const coll_gpusym_resident_t *s, const gpusym_work_t *w)
{
    const gpusym_work_t *mine = &s->work;
    return is_allreduce(task) ||
           (coll_gpusym_task_coll(task) == s->coll && w->bytes == mine->bytes && w->src_first == mine->src_first &&
            w->src_end == mine->src_end && 0 == memcmp(w->send, mine->send, mine->nranks * sizeof *w->send) &&
            0 == memcmp(w->recv, mine->recv, mine->nranks * sizeof *w->recv));
}

/* Whether a call, which has been posted, is like the last one of a kernel. With the same hash and bytes the plan would
 * be the same; kind and segments are compared themselves, so that what the kernel does is right whatever the hash. */
static bool is_like(const coll_gpusym_task_t *task, const coll_gpusym_resident_t *s, uint64_t bytes)
{
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    gpusym_work_t w; /* only in part */
    if (task->hash != s->hash || bytes != s->bytes || is_packed(task) || !is_kind(task, s) ||
        !addresses_fit(task->segments)) {
        return false;
    }
    if (!is_allreduce(task)) {
        w.rank = t->host.rank;
        w.nranks = t->host.nranks;
        memset(w.send, 0, t->host.nranks * sizeof *w.send);
        memset(w.recv, 0, t->host.nranks * sizeof *w.recv);
        coll_gpusym_segments_work(task->segments, bytes, NULL, &w);
    }
    return has_segments(task, s, &w);
}

/* The same of a kernel that is here. */
static bool is_same(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, uint64_t bytes)
{
    const coll_gpusym_resident_t *s = find_place(all, task);
    return NULL != s->lane && is_like(task, s, bytes) && epoch_near(coll_gpusym_task_team(task), s) &&
           0 != coll_gpusym_resident_linger_ns() && is_here(s);
}

/* Whether this rank only sends: nothing is written to its receive buffer, so its kernel waits for no other. */
static bool only_sends(const coll_gpusym_task_t *task)
{
    const unsigned to = coll_gpusym_facts[coll_gpusym_task_coll(task)].to;
    const bool is_root = (uint32_t) task->segments->args->root == coll_gpusym_task_team(task)->host.rank;
    return (COLL_GPUSYM_RANKS_ROOT == to && !is_root) || (COLL_GPUSYM_RANKS_OTHERS == to && is_root);
}

static bool command_same(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l)
{
    if (NULL != task->sizes || !is_same(all, task, task->read.max_bytes) ||
        coll_gpusym_early_prefers(&all->early, task, coll_gpusym_resident_linger_ns())) {
        return false;
    }
    send_command(all, task, l, task->read.max_bytes, false);
    return true;
}

bool coll_gpusym_resident_command_same(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task,
                                       coll_gpusym_launch_t *l)
{
    gpusym_lock(&keeper_lock);
    const bool sent = command_same(all, task, l);
    gpusym_unlock(&keeper_lock);
    return sent;
}

void coll_gpusym_resident_command_sender(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task,
                                         coll_gpusym_launch_t *l)
{
    if (only_sends(task)) {
        (void) coll_gpusym_resident_command_same(all, task, l);
    }
}

/*
 * LL lines of one parity must not be overwritten before all have read them. A peer may still be in the last call that
 * this kernel served: only the other parity's lines are free, since all had ended the calls before when they posted
 * that one. If it was another kernel's call, any of its lines may still be read. And what is offered to peers may need
 * a vote first.
 */
static bool may_begin(const coll_gpusym_resident_t *s, const coll_gpusym_task_t *task)
{
    return coll_gpusym_early_begins(task) && s->alone &&
           0 != (coll_gpusym_team_epoch(coll_gpusym_task_team(task)) - s->epoch) % 2 && 0 == task->zero_copy.in_key &&
           0 == task->zero_copy.out_key && task->alone;
}

/* Fills in what a kernel like the last one takes of a call. */
static void describe_call(coll_gpusym_resident_t *s, const coll_gpusym_task_t *task, uint64_t bytes, unsigned early)
{
    gpusym_work_t *w = &s->work;
    w->in = task->segments->in;
    w->out = task->segments->out;
    w->bytes = bytes;
    w->epoch = s->epoch;
    w->limit_ns = coll_gpusym_task_limit_ns(task);
    w->early = early;
    (void) gpusym_kernel_plan(gpusym_algorithm_family((unsigned) s->algorithm), w, 0);
}

/* Whether a kernel that is about to be launched may remain behind its call: it may if the user has set for how long. */
static bool may_remain(coll_gpusym_resident_t *s)
{
    return coll_gpusym_params.linger >= 0 ||
           gpusym_tuning_resident_allow(&s->worth, coll_gpusym_resident_linger_ns(), gpusym_now_ns());
}

/* Whether a call that may begin is to be launched, for no kernel is here. A blocking one gains nothing by it: this rank
 * waits. */
static bool may_launch(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task)
{
    coll_gpusym_resident_t *s = find_place(all, task);
    if (NULL != s->lane && !is_here(s)) {
        dismiss_kernel(s, false);
    }
    return NULL == s->lane && is_like(task, s, task->segments->bytes) &&
           coll_gpusym_team_epoch(coll_gpusym_task_team(task)) < GPUSYM_EPOCH_MAX &&
           coll_gpusym_early_may(&all->early, task, coll_gpusym_resident_linger_ns());
}

static void launch_early(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l)
{
    coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    coll_gpusym_resident_t *s = find_place(all, task);
    if (GPUSYM_SUCCESS != gpusym_lane_get(gpusym_current.dev, t->host.gpu, &l->lane)) {
        l->lane = NULL;
        return;
    }
    gpusym_lane_skip(l->lane);
    l->resident.remains = may_remain(s);
    s->epoch = (uint32_t) coll_gpusym_team_epoch(t);
    s->served = 0;
    s->work.linger_ns = coll_gpusym_resident_linger_ns();
    describe_call(s, task, task->segments->bytes, l->resident.remains ? GPUSYM_EARLY_STAYS : GPUSYM_EARLY_RETIRES);
    if (!coll_gpusym_launch_kernel(l, task, s->kernel, &s->work)) {
        coll_gpusym_launch_put_lane(l);
        l->resident.remains = false;
        return;
    }
    if (l->resident.remains) {
        tell_launch(all, task);
    }
    l->resident.how = COLL_GPUSYM_EARLY;
    l->algorithm = s->algorithm;
    note_call(all, s);
}

void coll_gpusym_resident_begin(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l)
{
    gpusym_lock(&keeper_lock);
    if (may_begin(find_place(all, task), task)) {
        if (is_same(all, task, task->segments->bytes)) {
            send_command(all, task, l, task->segments->bytes, true);
        } else if (may_launch(all, task)) {
            launch_early(all, task, l);
        }
    }
    gpusym_unlock(&keeper_lock);
}

static bool command(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l,
                    const coll_gpusym_plan_t *p)
{
    coll_gpusym_resident_t *s = find_place(all, task);
    if (NULL == s->lane) {
        return false;
    }
    const bool fits =
        p->kernel == s->kernel && p->resident <= s->work.nblocks && is_kind(task, s) && has_segments(task, s, &p->work);
    if (!fits || !epoch_near(coll_gpusym_task_team(task), s) || !is_here(s)) {
        dismiss_kernel(s, !fits);
        return false;
    }
    send_command(all, task, l, p->work.bytes, false);
    return true;
}

bool coll_gpusym_resident_command(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l,
                                  const coll_gpusym_plan_t *p)
{
    gpusym_lock(&keeper_lock);
    const bool sent = command(all, task, l, p);
    gpusym_unlock(&keeper_lock);
    return sent;
}

void coll_gpusym_resident_prepare(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l,
                                  coll_gpusym_plan_t *p)
{
    coll_gpusym_resident_t *s = find_place(all, task);
    coll_gpusym_resident_make_room(all, coll_gpusym_task_team(task), p);
    s->kernel = p->kernel;
    s->coll = coll_gpusym_task_coll(task);
    s->algorithm = p->algorithm;
    s->alone = true;
    s->epoch = p->work.epoch;
    s->served = 0;
    s->bytes = p->work.bytes;
    s->hash = task->hash;
    s->work = p->work;
    s->work.nblocks = p->resident;
    s->work.nthreads = p->own_threads ? p->work.nthreads : gpusym_tuning_resident_threads();
    s->work.linger_ns = coll_gpusym_resident_linger_ns();
    l->resident.remains = may_remain(s);
    if (l->resident.remains) {
        p->work = s->work;
        tell_launch(all, task);
    }
}

bool coll_gpusym_resident_retired(const coll_gpusym_launch_t *l)
{
    return COLL_GPUSYM_ENTERS != l->resident.how && coll_gpusym_launch_retired(l);
}

bool coll_gpusym_resident_relaunch(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task,
                                   coll_gpusym_launch_t *l)
{
    coll_gpusym_resident_t *s = find_place(all, task);
    if (COLL_GPUSYM_EARLY == l->resident.how) {
        all->early.tells |= GPUSYM_POST_EARLY | GPUSYM_POST_LEFT;
    } else {
        gpusym_tuning_resident_ended(&s->worth, s->served - 1, s->work.linger_ns, GPUSYM_RESIDENT_EXPIRED);
    }
    l->resident.how = COLL_GPUSYM_LATE; /* that it has retired says nothing of the one that is launched now */
    s->served = 0;                      /* nor has that one served any call yet */
    s->work.linger_ns = l->resident.remains ? s->work.linger_ns : 0;
    describe_call(s, task, task->read.max_bytes, GPUSYM_EARLY_NOT);
    if (l->resident.remains) {
        tell_launch(all, task);
    }
    return coll_gpusym_launch_kernel(l, task, s->kernel, &s->work);
}

void coll_gpusym_resident_done(coll_gpusym_residents_t *all, const coll_gpusym_task_t *task, coll_gpusym_launch_t *l,
                               bool well)
{
    coll_gpusym_resident_t *s = find_place(all, task);
    gpusym_lock(&keeper_lock);
    if (COLL_GPUSYM_EARLY == l->resident.how) {
        all->early.tells |= GPUSYM_POST_EARLY;
    }
    if (!l->resident.remains) {
        coll_gpusym_launch_put_lane(l);
        gpusym_unlock(&keeper_lock);
        return;
    }
    s->lane = l->lane;
    l->lane = NULL;
    gpusym_kernel_told_idle(s->told);
    if (well) {
        keep_lane(s);
    } else {
        dismiss_kernel(s, false);
    }
    if (l->resident.recalled) {
        gpusym_tuning_resident_skip(&s->worth); /* the next may be too */
    }
    gpusym_unlock(&keeper_lock);
}

void coll_gpusym_resident_make_room(coll_gpusym_residents_t *all, const coll_gpusym_team_t *t,
                                    const coll_gpusym_plan_t *p)
{
    uint32_t blocks = p->work.nblocks;
    gpusym_lock(&keeper_lock);
    note_call(all, NULL);
    for (unsigned i = 0; i < GPUSYM_RESIDENT_MAX; i++) {
        blocks += NULL != keeper[i] && NULL != keeper[i]->lane ? keeper[i]->work.nblocks : 0;
    }
    for (unsigned i = 0; i < COLL_GPUSYM_RESIDENTS; i++) {
        coll_gpusym_resident_t *s = &all->kernel[i];
        if (NULL != s->lane && (blocks > t->host.sm_count || !is_here(s))) {
            blocks -= s->work.nblocks;
            dismiss_kernel(s, false);
        }
    }
    gpusym_unlock(&keeper_lock);
}

static void end_kernel(coll_gpusym_resident_t *s)
{
    if (NULL != s->lane && !gpusym_lane_alive(s->lane)) { /* MPI_Finalize after cudaDeviceReset */
        gpusym_lane_put(s->lane); /* the kernel is gone, and the line by which to dismiss_kernel it is not mapped */
        s->lane = NULL;
    }
    dismiss_kernel(s, false);
    for (unsigned k = 0; k < GPUSYM_RESIDENT_MAX; k++) {
        if (s == keeper[k]) {
            keeper[k] = NULL;
        }
    }
}

void coll_gpusym_residents_forget(coll_gpusym_residents_t *all)
{
    gpusym_lock(&keeper_lock);
    for (unsigned i = 0; i < COLL_GPUSYM_RESIDENTS; i++) {
        dismiss_kernel(&all->kernel[i], false);
        all->kernel[i].bytes = UINT64_MAX;
    }
    all->early.seq = 0;
    gpusym_unlock(&keeper_lock);
}

void coll_gpusym_residents_end(coll_gpusym_residents_t *all)
{
    gpusym_lock(&keeper_lock);
    for (unsigned i = 0; i < COLL_GPUSYM_RESIDENTS; i++) {
        end_kernel(&all->kernel[i]);
    }
    gpusym_unlock(&keeper_lock);
}
