/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The entries of all collectives: blocking, nonblocking, persistent; MPI requests and their progress.
 *
 * Calls of a communicator that are not over stand in its team's list, in MPI's order, and only the first is polled; what the
 * previous module then does with it goes on beside the list.  progress() polls the first call of each communicator, and a
 * few of the previous module's requests at a time: so the cost of progress does not grow with what is in flight.
 */
#include "mca/coll/gpusym/call/call.h"

#include <pthread.h>
#include <sched.h>

#include "ompi/mca/coll/base/coll_base_util.h"
#include "ompi/request/request.h"
#include "opal/runtime/opal_progress.h"

#include "mca/common/gpusym/sanitizers.h"

/* Looks at a completion word before the CPU is shared: about 20 us, more than a small all-reduce takes. */
#define SPINS 1000u
/* The previous module's requests that one progress() looks at. */
#define BELOW_POLLS 64u

uint32_t coll_gpusym_in_flight;

/* Of a class that MPI's own layer can keep a call's datatypes and operation in. */
typedef struct request {
    ompi_coll_base_nbc_request_t super;
    coll_gpusym_call_t call;
    coll_gpusym_args_t on_host; /* staged: the call on mirrors */
    coll_gpusym_plan_t *plan;   /* persistent, owned */
    void *kept;                 /* the arrays of the arguments, owned */
    bool alone;                 /* persistent: without peers, nothing to agree on */
    bool staged;                /* call.stage is to be ended */
    ompi_request_t *inner;      /* persistent, apart: the previous module's, on call.stage's mirrors, owned; NULL: none */
    struct request *next;       /* in the list of what is free, `below`, or over */
} request_t;

static void request_construct(request_t *r);
static void request_destruct(request_t *r)
{
    (void)r;
}
OBJ_CLASS_INSTANCE(request_t, ompi_coll_base_nbc_request_t, request_construct, request_destruct);

/* `lock` covers the teams' lists and what is here; held by one thread at a time while it makes progress. */
static struct {
    pthread_mutex_t lock;
    request_t *free; /* for the next calls (not opal_free_list: some compilers want libatomic for it) */
    bool registered;
    coll_gpusym_team_t *active; /* teams whose lists progress() polls */
    /* Requests of which the previous module has one, oldest first; `look`: the link of the next one to be looked at. */
    request_t *below, **below_last, **look;
    uint32_t nbelow;
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER, .below_last = &engine.below, .look = &engine.below};

static ompi_request_t *mpi_request(request_t *r)
{
    return &r->super.super;
}

/* ---- a call and the previous module ---- */

/* Whether it is known to all ranks, without asking, that there is nothing to do. */
static bool nothing(const coll_gpusym_args_t *a)
{
    switch (a->coll) {
    case COLL_GPUSYM_ALLREDUCE:
    case COLL_GPUSYM_REDUCE:
    case COLL_GPUSYM_BCAST:
    case COLL_GPUSYM_SCAN:
    case COLL_GPUSYM_EXSCAN:
    case COLL_GPUSYM_REDUCE_SCATTER_BLOCK:
        return 0 == a->rcount;
    default:
        return false;
    }
}

/* Whether calls of this communicator are in flight. Only this thread may add one now: MPI wants a communicator's collectives
 * one after the other. */
static bool list_empty(coll_gpusym_team_t *t)
{
    return NULL == __atomic_load_n(&t->first, __ATOMIC_ACQUIRE);
}

/* A barrier has no buffers to agree on. It is ours only for its place behind the calls in flight: the previous module tells the
 * ranks' calls apart by counting them, so they must come to it in one order. */
static bool passes_at_once(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a)
{
    return coll_gpusym_passes(m) || (COLL_GPUSYM_BARRIER == a->coll && (NULL == m->team || list_empty(m->team)));
}

/* Whether there are peers to agree with: else each rank stages its own buffers as it finds them. */
static bool has_team(const mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a)
{
    return COLL_GPUSYM_REDUCE_LOCAL != a->coll && !m->apart;
}

/* Before the first call that may want a team: who the ranks are. MPI error code. */
static int team_ready(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a)
{
    return NULL == m->team && has_team(m, a) ? coll_gpusym_team_create(m) : MPI_SUCCESS;
}

/* Nothing to do, and no rank that calls the previous module all the same: one without gpusym does, and that module tells
 * calls apart by counting them. */
static bool skips(const mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a)
{
    return nothing(a) && (m->alone || has_team(m, a));
}

/* Without a team: true if the previous module is to do it, staged for *reason unless that is -1; else it is done, with *rv. */
static bool without_team(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, int *reason, int *rv)
{
    coll_gpusym_counters_t *counters = &coll_gpusym_counters[a->coll];
    const bool inter = COLL_GPUSYM_REDUCE_LOCAL != a->coll && OMPI_COMM_IS_INTER(m->comm);
    gpusym_mem_t smem, rmem;

    *reason = -1;
    if (inter) {
        coll_gpusym_pass_local(m->comm);
    }
    if (NULL == gpusym_device_need()) {
        if (!inter && COLL_GPUSYM_REDUCE_LOCAL != a->coll) {
            coll_gpusym_pass(m); /* the device has been looked for: there will be none */
        }
        coll_gpusym_count(&counters->forwarded);
        return true;
    }
    coll_gpusym_where(m, a, &smem, &rmem);
    const bool host = !coll_gpusym_on_gpu(&smem) && !coll_gpusym_on_gpu(&rmem);
    if (COLL_GPUSYM_REDUCE_LOCAL != a->coll) { /* any thread may be in that */
        m->host_lately = host && !inter; /* the short way knows no remote ranks */
    }
    if (host) {
        coll_gpusym_count(&counters->forwarded);
        return true;
    }
    if (m->alone && COLL_GPUSYM_REDUCE_LOCAL != a->coll &&
        coll_gpusym_native_alone(a, coll_gpusym_on_gpu(&rmem) ? &rmem : &smem, rv)) {
        coll_gpusym_count(&counters->native);
        coll_gpusym_count(&counters->copied);
        return false;
    }
    *reason = COLL_GPUSYM_REDUCE_LOCAL != a->coll ? m->reason_apart : COLL_GPUSYM_R_NO_NATIVE;
    coll_gpusym_count(&counters->staged);
    coll_gpusym_count(&counters->reason[*reason]);
    return true;
}

/* The call is over, or the previous module's: in the latter case runs it. */
static int finish_blocking(coll_gpusym_call_t *call)
{
    coll_gpusym_call_count(call);
    call->module->host_lately = COLL_GPUSYM_CALL_PREVIOUS == call->state && call->reason < 0;
    if (COLL_GPUSYM_CALL_ENDED == call->state) {
        return call->error;
    }
    return call->reason < 0 ? coll_gpusym_previous(call->module, &call->args)
                            : coll_gpusym_stage_blocking(call->module, &call->args);
}

/* ---- blocking ---- */

/* With the lock held. */
static void list_append(coll_gpusym_team_t *t, coll_gpusym_call_t *call)
{
    if (NULL == t->active_link) {
        t->active_next = engine.active;
        t->active_link = &engine.active;
        if (NULL != engine.active) {
            engine.active->active_link = &t->active_next;
        }
        engine.active = t;
    }
    __atomic_store_n(t->last, call, __ATOMIC_RELAXED); /* list_empty() reads it without the lock */
    t->last = &call->next;
}

/* The team's list is about to be empty: progress() need not look at it. With the lock held. */
static void deactivate(coll_gpusym_team_t *t)
{
    if (NULL != t->active_link) {
        *t->active_link = t->active_next;
        if (NULL != t->active_next) {
            t->active_next->active_link = t->active_link;
        }
        t->active_link = NULL;
    }
}

/* The list is about to be empty. Only now may later calls go to the previous module at once: they pass nobody. */
static void list_emptied(coll_gpusym_team_t *t, mca_coll_gpusym_module_t *m)
{
    t->last = &t->first;
    if (t->none) {
        coll_gpusym_pass(m);
    }
}

/* Takes the first call out; the next one, NULL: none. With the lock held. */
static coll_gpusym_call_t *list_pop(coll_gpusym_team_t *t)
{
    coll_gpusym_call_t *next = t->first->next;
    if (NULL == next) {
        list_emptied(t, t->first->module);
        deactivate(t);
    }
    /* Last, and release: who finds the list empty, without the lock, has what its calls have done, and may change it. */
    __atomic_store_n(&t->first, next, __ATOMIC_RELEASE);
    return next;
}

/* Behind others in its communicator's list. */
static void wait_queued(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    bool over = false;

    pthread_mutex_lock(&engine.lock);
    list_append(t, call);
    pthread_mutex_unlock(&engine.lock);
    while (!over) {
        opal_progress();
        pthread_mutex_lock(&engine.lock);
        if (t->first == call && coll_gpusym_call_poll(call)) {
            list_pop(t);
            over = true;
        }
        pthread_mutex_unlock(&engine.lock);
        if (!over) {
            sched_yield();
        }
    }
}

/* With nothing before it. It stands in the list, so that whatever is started meanwhile, by the progress that it makes, comes
 * behind it. The lock is not needed: only the thread that may make the communicator's next call changes the list, and
 * progress() leaves a blocking call alone. */
static void wait_alone(coll_gpusym_call_t *call)
{
    coll_gpusym_team_t *t = call->module->team;
    /* The simulator's kernels run on the same cores: let them. */
    uint32_t spins = NULL != gpusym_current.dev && !gpusym_current.dev->simulated ? 0 : SPINS;

    t->last = &call->next;
    __atomic_store_n(&t->first, call, __ATOMIC_RELEASE);
    while (!coll_gpusym_call_poll(call)) {
        if (spins < SPINS) {
            spins++;
            opal_atomic_rmb();
            continue;
        }
        opal_progress();
        sched_yield();
    }
    if (NULL == call->next) {
        list_emptied(t, call->module);
        __atomic_store_n(&t->first, NULL, __ATOMIC_RELEASE);
        return;
    }
    pthread_mutex_lock(&engine.lock);
    list_pop(t);
    pthread_mutex_unlock(&engine.lock);
}

static void wait_for(coll_gpusym_call_t *call)
{
    if (list_empty(call->module->team)) {
        wait_alone(call);
    } else {
        wait_queued(call);
    }
}

static int blocking(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, coll_gpusym_call_t *call)
{
    coll_gpusym_call_init(call, m, a);
    wait_for(call);
    return finish_blocking(call);
}

int coll_gpusym_blocking(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a)
{
    coll_gpusym_call_t call;
    int reason, rv;

    if (m->inside && COLL_GPUSYM_REDUCE_LOCAL != a->coll) {
        return coll_gpusym_previous(m, a);
    }
    if (passes_at_once(m, a)) {
        coll_gpusym_count(&coll_gpusym_counters[a->coll].forwarded);
        return coll_gpusym_previous(m, a);
    }
    if (!coll_gpusym_counts_valid(m, a)) {
        return MPI_ERR_COUNT;
    }
    rv = team_ready(m, a);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    if (skips(m, a)) {
        return MPI_SUCCESS;
    }
    if (!has_team(m, a)) {
        if (!without_team(m, a, &reason, &rv)) {
            return rv;
        }
        return reason < 0 ? coll_gpusym_previous(m, a) : coll_gpusym_stage_blocking(m, a);
    }
    return blocking(m, a, &call);
}

/* ---- requests ---- */

/* While the communicator is there: the previous module keeps its things at it. */
static void inner_free(request_t *r)
{
    if (NULL != r->inner) {
        ompi_request_free(&r->inner);
        coll_gpusym_stage_close(&r->call.stage);
        r->inner = NULL;
    }
}

/* Keeps it for another call. */
static void request_return(request_t *r)
{
    coll_gpusym_plan_free(r->plan);
    free(r->kept);
    r->plan = NULL;
    r->kept = NULL;
    OMPI_REQUEST_FINI(mpi_request(r));
    mpi_request(r)->req_state = OMPI_REQUEST_INVALID;
    pthread_mutex_lock(&engine.lock);
    r->next = engine.free;
    engine.free = r;
    pthread_mutex_unlock(&engine.lock);
}

static int request_free(ompi_request_t **req)
{
    request_t *r = (request_t *)*req;
    if (!REQUEST_COMPLETE(*req)) {
        return MPI_ERR_REQUEST;
    }
    GPUSYM_ACQUIRE(r);
    inner_free(r);
    if (mpi_request(r)->req_persistent && NULL != r->call.module) {
        struct ompi_communicator_t *comm = r->call.module->comm; /* OBJ_RELEASE writes to it, and the module may go */
        OBJ_RELEASE(comm);
    }
    request_return(r);
    *req = MPI_REQUEST_NULL;
    return OMPI_SUCCESS;
}

static int request_cancel(ompi_request_t *req, int flag)
{
    (void)req;
    (void)flag;
    return MPI_ERR_REQUEST; /* MPI: collectives cannot be cancelled */
}

static int requests_start(size_t count, ompi_request_t **reqs);

static void request_construct(request_t *r)
{
    ompi_request_t *q = mpi_request(r);
    q->req_type = OMPI_REQUEST_COLL;
    q->req_status._cancelled = 0;
    q->req_free = request_free;
    q->req_cancel = request_cancel;
    q->req_start = requests_start;
    r->plan = NULL;
    r->kept = NULL;
    r->inner = NULL;
    r->call.module = NULL;
}

static int progress(void);

/* A request; NULL if there is no memory. Makes sure that progress is made. */
static request_t *request_get(mca_coll_gpusym_module_t *m, bool persistent)
{
    pthread_mutex_lock(&engine.lock);
    if (!engine.registered) {
        engine.registered = OPAL_SUCCESS == opal_progress_register(progress);
    }
    request_t *r = engine.registered ? engine.free : NULL;
    if (NULL != r) {
        engine.free = r->next;
    }
    const bool ok = engine.registered;
    pthread_mutex_unlock(&engine.lock);
    r = NULL == r && ok ? OBJ_NEW(request_t) : r;
    if (NULL == r) {
        return NULL;
    }
    OMPI_REQUEST_INIT(mpi_request(r), persistent);
    mpi_request(r)->req_mpi_object.comm = m->comm;
    mpi_request(r)->req_free = request_free; /* MPI's own layer may have put itself there, see the class */
    r->staged = r->alone = false;
    return r;
}

/* ---- in flight ---- */

/* With the lock held: from now on progress() looks for the end of its request. */
static void below_append(request_t *r)
{
    r->next = NULL;
    *engine.below_last = r;
    engine.below_last = &r->next;
    engine.nbelow++;
}

/* From now on progress() drives a request that go_below() was called for, and that is in no list. */
static void fly_below(request_t *r)
{
    pthread_mutex_lock(&engine.lock);
    below_append(r);
    __atomic_fetch_add(&coll_gpusym_in_flight, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&engine.lock);
}

/* The communicator's turn has come to call the previous module: staged or as it is. */
static void go_below(request_t *r)
{
    coll_gpusym_call_t *call = &r->call;
    const coll_gpusym_args_t *args = &call->args;

    if (call->reason >= 0) {
        call->error = coll_gpusym_stage_begin(call->module, args, &call->stage, &r->on_host);
        r->staged = MPI_SUCCESS == call->error;
        args = &r->on_host;
    }
    if (MPI_SUCCESS == call->error) {
        call->error = coll_gpusym_previous_i(call->module, args, &call->below);
    }
    if (MPI_SUCCESS != call->error) {
        call->below = NULL;
    }
    call->state = COLL_GPUSYM_CALL_BELOW;
}

/* Whether it is over; then `error` is its result. */
static bool below_over(request_t *r)
{
    coll_gpusym_call_t *call = &r->call;
    if (NULL != call->below) {
        if (!REQUEST_COMPLETE(call->below)) {
            return false;
        }
        call->error = ompi_request_wait(&call->below, MPI_STATUS_IGNORE);
    }
    if (r->staged) {
        r->staged = false;
        call->error = NULL == r->inner
                          ? coll_gpusym_stage_end(call->module, &call->args, &call->stage, call->error)
                          : coll_gpusym_stage_out(call->module, &call->args, &call->stage, call->error);
    }
    return true;
}

/* Requests that are over, to be completed once the lock is no longer held. */
typedef struct {
    request_t *first, **last;
    int n;
} over_t;

static void over_append(over_t *over, request_t *r)
{
    r->next = NULL;
    *over->last = r;
    over->last = &r->next;
    over->n++;
}

static request_t *request_of(coll_gpusym_call_t *call)
{
    return (request_t *)((char *)call - offsetof(request_t, call));
}

/* A team's calls, the first after the other, as far as they go. A blocking one is polled by who waits for it. Once the list
 * is empty it is not looked at: a blocking call of another thread may stand there, on its stack. */
static void team_poll(coll_gpusym_team_t *t, over_t *over)
{
    coll_gpusym_call_t *call = t->first;
    while (NULL != call && !call->blocking && coll_gpusym_call_poll(call)) {
        request_t *r = request_of(call);
        bool is_over = COLL_GPUSYM_CALL_ENDED == call->state;
        coll_gpusym_call_count(call);
        if (!is_over) {
            go_below(r);
        }
        call = list_pop(t); /* not before: a blocking call of another thread that finds the list empty goes below at once */
        is_over = is_over || below_over(r);
        if (is_over) {
            over_append(over, r);
        } else {
            below_append(r);
        }
    }
}

/* Some of the previous module's requests, in turn. */
static void below_poll(over_t *over)
{
    for (uint32_t polls = engine.nbelow < BELOW_POLLS ? engine.nbelow : BELOW_POLLS; polls > 0; polls--) {
        if (NULL == *engine.look) {
            engine.look = &engine.below;
        }
        request_t *r = *engine.look;
        if (!below_over(r)) {
            engine.look = &r->next;
            continue;
        }
        *engine.look = r->next;
        if (NULL == r->next) {
            engine.below_last = engine.look;
        }
        engine.nbelow--;
        over_append(over, r);
    }
}

static void request_complete(request_t *r)
{
    ompi_request_t *q = mpi_request(r);
    struct ompi_communicator_t *comm = q->req_persistent ? NULL : r->call.module->comm;
    q->req_status.MPI_ERROR = r->call.error;
    q->req_status._ucount = 0;
    GPUSYM_RELEASE(r); /* Open MPI orders this before whatever another thread does that saw it complete */
    ompi_request_complete(q, true); /* from here on it may be gone */
    if (NULL != comm) {
        OBJ_RELEASE(comm);
    }
}

/* Called by Open MPI wherever it waits. */
static int progress(void)
{
    over_t over = {.last = &over.first};

    /* Another thread is at it, or we are: what is called in here may make progress of its own. */
    if (0 == __atomic_load_n(&coll_gpusym_in_flight, __ATOMIC_RELAXED) || 0 != pthread_mutex_trylock(&engine.lock)) {
        return 0;
    }
    for (coll_gpusym_team_t *t = engine.active, *next; NULL != t; t = next) {
        next = t->active_next;
        team_poll(t, &over);
    }
    below_poll(&over);
    __atomic_fetch_sub(&coll_gpusym_in_flight, (uint32_t)over.n, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&engine.lock);
    while (NULL != over.first) {
        request_t *r = over.first;
        over.first = r->next;
        request_complete(r);
    }
    if (0 == over.n && NULL != gpusym_current.dev && gpusym_current.dev->simulated) {
        sched_yield(); /* the simulator's kernels run on the same cores, and who waits inside Open MPI never yields */
    }
    return over.n;
}

/* ---- nonblocking ---- */

/* Starts what has a team: with the lock not held. */
static void start(request_t *r)
{
    ompi_request_t *q = mpi_request(r);
    q->req_state = OMPI_REQUEST_ACTIVE;
    q->req_complete = REQUEST_PENDING;
    pthread_mutex_lock(&engine.lock);
    list_append(r->call.module->team, &r->call);
    __atomic_fetch_add(&coll_gpusym_in_flight, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&engine.lock);
    progress(); /* post it now */
}

/* Host buffers, nothing in flight before it: said with one store, the rest is the previous module's. Whether that could be. */
static bool passed_at_once(coll_gpusym_call_t *call)
{
    if (call->device || !list_empty(call->module->team)) {
        return false;
    }
    return coll_gpusym_call_poll(call) && COLL_GPUSYM_CALL_PREVIOUS == call->state;
}

static int nonblocking_team(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, ompi_request_t **req)
{
    /* Refused here, not by a request: Open MPI, as it makes a communicator out of this one, tries again and again while all
     * it gets is a request with an error. */
    if (m->team->broken) {
        return MPI_ERR_OTHER;
    }
    request_t *r = request_get(m, false);
    if (NULL == r) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    coll_gpusym_call_init(&r->call, m, a);
    r->call.blocking = false;
    m->host_lately = passed_at_once(&r->call);
    if (m->host_lately) {
        coll_gpusym_call_count(&r->call);
        request_return(r);
        return coll_gpusym_previous_i(m, a, req);
    }
    if (!coll_gpusym_args_keep(m, &r->call.args, &r->kept)) {
        request_return(r);
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    OBJ_RETAIN(m->comm);
    start(r);
    *req = mpi_request(r);
    return MPI_SUCCESS;
}

/* Nobody to agree with: at once. */
static int nonblocking_below(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, int reason, ompi_request_t **req)
{
    if (reason < 0) {
        return coll_gpusym_previous_i(m, a, req);
    }
    request_t *r = request_get(m, false);
    if (NULL == r) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    r->call = (coll_gpusym_call_t){.module = m, .args = *a, .reason = reason};
    if (!coll_gpusym_args_keep(m, &r->call.args, &r->kept)) {
        request_return(r);
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    OBJ_RETAIN(m->comm);
    go_below(r);
    mpi_request(r)->req_state = OMPI_REQUEST_ACTIVE;
    fly_below(r);
    *req = mpi_request(r);
    return MPI_SUCCESS;
}

int coll_gpusym_nonblocking(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, ompi_request_t **req)
{
    int reason, rv;

    if (passes_at_once(m, a)) {
        coll_gpusym_count(&coll_gpusym_counters[a->coll].forwarded);
        return coll_gpusym_previous_i(m, a, req);
    }
    rv = team_ready(m, a);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    if (skips(m, a)) {
        *req = &ompi_request_empty;
        return MPI_SUCCESS;
    }
    if (!coll_gpusym_counts_valid(m, a)) {
        return MPI_ERR_COUNT;
    }
    if (!has_team(m, a)) {
        if (!without_team(m, a, &reason, &rv)) {
            *req = &ompi_request_empty;
            return rv;
        }
        return nonblocking_below(m, a, reason, req);
    }
    return nonblocking_team(m, a, req);
}

/* ---- persistent ---- */

/* Starts the previous module's request, which the peers' requests have been made with. */
static void start_inner(request_t *r)
{
    coll_gpusym_call_t *call = &r->call;
    call->reason = call->module->reason_apart;
    coll_gpusym_call_count(call);
    call->error = coll_gpusym_stage_in(call->module, &call->args, &call->stage);
    r->staged = MPI_SUCCESS == call->error;
    if (r->staged) {
        call->error = r->inner->req_start(1, &r->inner);
    }
    call->below = MPI_SUCCESS == call->error ? r->inner : NULL;
    call->state = COLL_GPUSYM_CALL_BELOW;
}

static int start_one(request_t *r)
{
    coll_gpusym_call_t *call = &r->call;
    GPUSYM_ACQUIRE(r); /* its last call */
    coll_gpusym_call_again(call);
    if (!r->alone && NULL == r->inner) {
        start(r);
        return OMPI_SUCCESS;
    }
    int reason, rv = MPI_SUCCESS;
    ompi_request_t *q = mpi_request(r);
    q->req_state = OMPI_REQUEST_ACTIVE;
    q->req_complete = REQUEST_PENDING;
    if (NULL != r->inner) {
        start_inner(r);
    } else if (without_team(call->module, &call->args, &reason, &rv)) {
        call->reason = reason;
        go_below(r);
    } else {
        call->error = rv;
        call->state = COLL_GPUSYM_CALL_BELOW;
    }
    fly_below(r);
    return OMPI_SUCCESS;
}

static int requests_start(size_t count, ompi_request_t **reqs)
{
    for (size_t i = 0; i < count; i++) {
        if (NULL == reqs[i] || OMPI_REQUEST_COLL != reqs[i]->req_type) {
            continue;
        }
        const int rv = start_one((request_t *)reqs[i]);
        if (OMPI_SUCCESS != rv) {
            return rv;
        }
    }
    return OMPI_SUCCESS;
}

/* How a persistent call will go, agreed by all ranks: it is collective, and may wait. */
typedef enum { HOST_ONLY, NATIVE, BELOW } fate_t;

/* Where the team will stage for good, or the collective has no kernel, there is no roll-call to ask. */
static int ask_by_allgather(mca_coll_gpusym_module_t *m, bool device, fate_t *fate)
{
    const int n = ompi_comm_size(m->comm);
    uint8_t mine = device, *all = malloc((size_t)n);
    int rv = OMPI_ERR_OUT_OF_RESOURCE;
    if (NULL == all) {
        return rv;
    }
    rv = m->saved.allgather(&mine, 1, MPI_BYTE, all, 1, MPI_BYTE, m->comm, m->saved.allgather_module);
    *fate = HOST_ONLY;
    for (int r = 0; MPI_SUCCESS == rv && r < n; r++) {
        *fate = all[r] ? BELOW : *fate;
    }
    free(all);
    return rv;
}

static int ask_all(mca_coll_gpusym_module_t *m, coll_gpusym_call_t *call, fate_t *fate)
{
    call->agree_only = true;
    wait_for(call);
    call->agree_only = false;
    if (COLL_GPUSYM_CALL_ENDED == call->state) {
        *fate = NATIVE;
        return call->error;
    }
    if (m->team->none) {
        *fate = HOST_ONLY;
        return MPI_SUCCESS;
    }
    call->reason_settled = call->reason;
    call->settled = true;
    return ask_by_allgather(m, call->device && coll_gpusym_on_gpu(&call->where), fate);
}

static int persistent_team(mca_coll_gpusym_module_t *m, request_t *r, fate_t *fate)
{
    const int rv = ask_all(m, &r->call, fate);
    if (MPI_SUCCESS == rv && NATIVE == *fate) {
        r->call.plan = r->plan = calloc(1, sizeof *r->plan); /* without it each start plans anew */
    }
    return rv;
}

/* Without agreement, with peers: a persistent request of the previous module on mirrors, as theirs are on what they have. */
static int persistent_inner(mca_coll_gpusym_module_t *m, request_t *r, struct ompi_info_t *info)
{
    coll_gpusym_call_t *call = &r->call;
    int rv = coll_gpusym_stage_open(m, &call->args, &call->stage, &r->on_host);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    rv = coll_gpusym_previous_init(m, &r->on_host, info, &r->inner);
    if (MPI_SUCCESS != rv) {
        r->inner = NULL;
        coll_gpusym_stage_close(&call->stage);
    }
    return rv;
}

/* Whether a call without agreement has nothing for us to do: its buffers are host memory, as far as we know any other. */
static bool is_host(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a)
{
    gpusym_mem_t smem, rmem;
    if (NULL == gpusym_device_need()) {
        return true;
    }
    coll_gpusym_where(m, a, &smem, &rmem);
    return !coll_gpusym_on_gpu(&smem) && !coll_gpusym_on_gpu(&rmem);
}

int coll_gpusym_persistent(mca_coll_gpusym_module_t *m, const coll_gpusym_args_t *a, struct ompi_info_t *info,
                           ompi_request_t **req)
{
    fate_t fate = BELOW;
    request_t *r;
    int rv = MPI_SUCCESS;

    if (COLL_GPUSYM_BARRIER == a->coll) { /* nothing to agree on, but a place in the order; see passes_at_once() */
        while (!passes_at_once(m, a)) {
            opal_progress();
        }
    }
    rv = team_ready(m, a);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    if (passes_at_once(m, a) || (!has_team(m, a) && is_host(m, a))) {
        return coll_gpusym_previous_init(m, a, info, req);
    }
    if (!coll_gpusym_counts_valid(m, a)) {
        return MPI_ERR_COUNT;
    }
    r = request_get(m, true);
    if (NULL == r) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    if (has_team(m, a)) {
        coll_gpusym_call_init(&r->call, m, a);
        rv = persistent_team(m, r, &fate);
    } else {
        r->call = (coll_gpusym_call_t){.module = m, .args = *a};
        r->alone = m->alone;
    }
    r->call.blocking = false;
    if (MPI_SUCCESS != rv || HOST_ONLY == fate) {
        request_return(r); /* nothing retained yet */
        return MPI_SUCCESS != rv ? rv : coll_gpusym_previous_init(m, a, info, req);
    }
    rv = coll_gpusym_args_keep(m, &r->call.args, &r->kept) ? MPI_SUCCESS : OMPI_ERR_OUT_OF_RESOURCE;
    if (MPI_SUCCESS == rv && !has_team(m, a) && !r->alone) {
        rv = persistent_inner(m, r, info);
    }
    if (MPI_SUCCESS != rv) {
        request_return(r);
        return rv;
    }
    OBJ_RETAIN(m->comm);
    *req = mpi_request(r);
    return MPI_SUCCESS;
}

void coll_gpusym_requests_fini(void)
{
    if (engine.registered) {
        opal_progress_unregister(progress);
        engine.registered = false;
    }
    while (NULL != engine.free) {
        request_t *r = engine.free;
        engine.free = r->next;
        OBJ_RELEASE(r);
    }
}
