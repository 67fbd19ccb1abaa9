/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI requests and their progress.
 *
 * progress() polls the first call of each communicator (list.h), and a few of the fallback's requests at a time: so the
 * cost of progress does not grow with what is in flight.
 */
#include "mca/coll/gpusym/call/request.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "mca/coll/gpusym/call/list.h"
#include "mca/coll/gpusym/exec/traced.h"
#include "mca/coll/gpusym/exec/whole.h"
#include "mca/coll/gpusym/plan/plan.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/sanitizers.h"
#include "mca/common/ompi/complete.h"
#include "opal/runtime/opal_progress.h"

/* What lies between the start of a call and its first poll, if the program waits for it at once, in ns at most. */
#define OVERLAP_NS 3000u
/* The fallback's requests that one progress() polls. */
#define FORWARDED_POLLS 64u

typedef coll_gpusym_request_t request_t;

static void request_construct(request_t *r);
static void request_destruct(request_t *r)
{
    (void) r;
}
OBJ_CLASS_INSTANCE(coll_gpusym_request_t, ompi_coll_base_nbc_request_t, request_construct, request_destruct);

/* Under the lock of list.h. */
static struct {
    request_t *free; /* for the next calls (not opal_free_list: some compilers want libatomic for it) */
    bool registered;
    /* Requests of which the fallback has one, oldest first; `poll`: the link of the next one to be polled. */
    request_t *forwarded, **forwarded_last, **poll;
    uint32_t nforwarded;
} requests = {.forwarded_last = &requests.forwarded, .poll = &requests.forwarded};

/* While the communicator is there: the fallback keeps its things at it. */
static void free_inner(request_t *r)
{
    if (NULL != r->inner) {
        ompi_request_free(&r->inner);
        coll_gpusym_bounce_close(&r->bounce);
        r->inner = NULL;
    }
}

void coll_gpusym_request_put(request_t *r)
{
    coll_gpusym_plan_free(r->plan);
    free(r->kept);
    r->plan = NULL;
    r->kept = NULL;
    OMPI_REQUEST_FINI(coll_gpusym_mpi_request(r));
    coll_gpusym_mpi_request(r)->req_state = OMPI_REQUEST_INVALID;
    coll_gpusym_list_lock();
    r->next = requests.free;
    requests.free = r;
    coll_gpusym_list_unlock();
}

static int request_free(ompi_request_t **req)
{
    request_t *r = (request_t *) *req;
    if (!REQUEST_COMPLETE(*req)) {
        return MPI_ERR_REQUEST;
    }
    GPUSYM_ACQUIRE(r);
    free_inner(r);
    if (coll_gpusym_mpi_request(r)->req_persistent && NULL != r->call.run.engine) {
        /* OBJ_RELEASE writes to it, and the engine may go. */
        struct ompi_communicator_t *comm = r->call.run.engine->fallback->comm;
        OBJ_RELEASE(comm);
    }
    coll_gpusym_request_put(r);
    *req = MPI_REQUEST_NULL;
    return OMPI_SUCCESS;
}

static int request_cancel(ompi_request_t *req, int flag)
{
    (void) req;
    (void) flag;
    return MPI_ERR_REQUEST; /* MPI: collectives cannot be cancelled */
}

static void request_construct(request_t *r)
{
    ompi_request_t *q = coll_gpusym_mpi_request(r);
    q->req_type = OMPI_REQUEST_COLL;
    q->req_status._cancelled = 0;
    q->req_free = request_free;
    q->req_cancel = request_cancel;
    r->plan = NULL;
    r->kept = NULL;
    r->inner = NULL;
    r->call.run.engine = NULL;
    r->forwarded = NULL;
    r->bounce = (coll_gpusym_bounce_t){0};
}

static int make_progress(void);

request_t *coll_gpusym_request_get(coll_gpusym_engine_t *e, bool persistent)
{
    coll_gpusym_list_lock();
    if (!requests.registered) {
        requests.registered = OPAL_SUCCESS == opal_progress_register(make_progress);
    }
    request_t *r = requests.registered ? requests.free : NULL;
    if (NULL != r) {
        requests.free = r->next;
    }
    const bool ok = requests.registered;
    coll_gpusym_list_unlock();
    r = NULL == r && ok ? OBJ_NEW(coll_gpusym_request_t) : r;
    if (NULL == r) {
        return NULL;
    }
    OMPI_REQUEST_INIT(coll_gpusym_mpi_request(r), persistent);
    coll_gpusym_mpi_request(r)->req_mpi_object.comm = e->fallback->comm;
    coll_gpusym_mpi_request(r)->req_free = request_free; /* MPI's own layer may have put itself there, see the struct */
    r->step = COLL_GPUSYM_REQUEST_IDLE;
    r->alone = false;
    r->started_ns = 0;
    r->on_stream = false;
    return r;
}

coll_gpusym_request_t *coll_gpusym_request_find(ompi_request_t *q)
{
    const opal_object_t *object = (const opal_object_t *) q;
    return OBJ_CLASS(coll_gpusym_request_t) == object->obj_class && q->req_persistent ? (request_t *) q : NULL;
}

/* ---- in flight ---- */

/* With the lock held: from now on progress polls the fallback's request. */
static void append_forwarded(request_t *r)
{
    r->next = NULL;
    *requests.forwarded_last = r;
    requests.forwarded_last = &r->next;
    requests.nforwarded++;
}

void coll_gpusym_request_fly(request_t *r)
{
    coll_gpusym_list_lock();
    append_forwarded(r);
    __atomic_fetch_add(&coll_gpusym_in_flight, 1, __ATOMIC_RELAXED);
    coll_gpusym_list_unlock();
}

static bool is_staged(const request_t *r)
{
    return r->call.run.reason >= 0;
}

/* goes_on: there are other ranks in the call, if this one has an error. */
static void call_fallback(request_t *r, bool goes_on)
{
    coll_gpusym_run_t *run = &r->call.run;
    r->step = COLL_GPUSYM_REQUEST_CALLED;
    r->forwarded = NULL;
    if (goes_on) {
        const int rv = coll_gpusym_forward_nonblocking(run->engine->fallback, is_staged(r) ? &r->on_host : run->args,
                                                       &r->forwarded);
        r->forwarded = MPI_SUCCESS == rv ? r->forwarded : NULL;
        coll_gpusym_whole_forwarded(run, rv);
    }
}

void coll_gpusym_request_forward(request_t *r)
{
    call_fallback(r, !is_staged(r) || coll_gpusym_whole_stage(&r->call.run, &r->bounce, &r->on_host));
}

/* The same without waiting for copies: poll_fill() calls the fallback. */
static void begin_forward(request_t *r)
{
    coll_gpusym_run_t *run = &r->call.run;
    if (!is_staged(r)) {
        call_fallback(r, true);
        return;
    }
    if (coll_gpusym_whole_take(run, &r->bounce, &r->on_host)) {
        call_fallback(r, true);
        return;
    }
    const bool goes_on = coll_gpusym_whole_open(run, &r->bounce, &r->on_host);
    if (MPI_SUCCESS != run->error) {
        call_fallback(r, goes_on);
        return;
    }
    coll_gpusym_bounce_queue(&r->bounce);
    (void) coll_gpusym_whole_fill(run, &r->bounce);
    r->step = COLL_GPUSYM_REQUEST_FILLS;
}

/* Whether queued copies have ended. */
static bool poll_copies(request_t *r)
{
    coll_gpusym_run_t *run = &r->call.run;
    int rv;
    if (!coll_gpusym_bounce_poll(run->buffers, &r->bounce, &rv)) {
        return false;
    }
    coll_gpusym_bounce_end_queue(&r->bounce);
    coll_gpusym_whole_copied(run, rv);
    return true;
}

/* Whether the fallback has been called. */
static bool poll_fill(request_t *r)
{
    if (COLL_GPUSYM_REQUEST_FILLS == r->step) {
        if (!poll_copies(r)) {
            return false;
        }
        call_fallback(r, coll_gpusym_whole_goes_on(&r->call.run));
    }
    return true;
}

/* Whether the fallback is done with the call. Then what it left is being copied back. */
static bool poll_fallback(request_t *r)
{
    coll_gpusym_run_t *run = &r->call.run;
    if (NULL != r->forwarded) {
        if (!REQUEST_COMPLETE(r->forwarded)) {
            return false;
        }
        coll_gpusym_whole_forwarded(run, ompi_request_wait(&r->forwarded, MPI_STATUS_IGNORE));
        r->forwarded = NULL;
    }
    r->step = COLL_GPUSYM_REQUEST_DRAINS;
    if (is_staged(r)) {
        coll_gpusym_bounce_queue(&r->bounce);
        coll_gpusym_whole_drain(run, &r->bounce);
    }
    return true;
}

/* The same of a call on a stream of the program. */
static bool poll_queued(request_t *r)
{
    coll_gpusym_on_stream_t *s = r->call.run.engine->on_stream;
    int rank;
    if (!coll_gpusym_on_stream_told(s, r->queued.number)) {
        return false;
    }
    r->step = COLL_GPUSYM_REQUEST_IDLE;
    const uint32_t status = coll_gpusym_on_stream_failed(s, &rank);
    r->call.run.error = coll_gpusym_on_stream_code(s, status, rank);
    return true;
}

/* Whether a forwarded call is over; then call.run.error is its result. */
static bool poll_forwarded(request_t *r)
{
    if (COLL_GPUSYM_REQUEST_QUEUED == r->step) {
        return poll_queued(r);
    }
    if ((COLL_GPUSYM_REQUEST_CALLED == r->step && !poll_fallback(r)) || !poll_copies(r)) {
        return false;
    }
    r->step = COLL_GPUSYM_REQUEST_IDLE;
    if (is_staged(r) && NULL == r->inner) {
        coll_gpusym_bounce_close(&r->bounce);
    }
    coll_gpusym_whole_look(&r->call.run);
    return true;
}

/* Requests that are over, to be completed once the lock is no longer held. */
typedef struct {
    request_t *first, **last;
    int n;
} over_t;

static void append_over(over_t *over, request_t *r)
{
    r->next = NULL;
    *over->last = r;
    over->last = &r->next;
    over->n++;
}

static request_t *request_of(coll_gpusym_call_t *call)
{
    return (request_t *) ((char *) call - offsetof(request_t, call));
}

/* Whether the program has done something else since it started the call, as far as its first poll tells. */
static void note_overlap(request_t *r)
{
    if (0 != r->started_ns) {
        r->call.run.task.overlaps = gpusym_now_ns() - r->started_ns > OVERLAP_NS;
        r->started_ns = 0;
    }
}

/* A communicator's calls, the first after the other, as far as they go. A blocking one is polled by the thread that
 * waits for it. Once the list is empty it is not touched: a blocking call of another thread may stand there, on its
 * stack. */
static void poll_engine(coll_gpusym_engine_t *e, over_t *over)
{
    coll_gpusym_call_t *call = e->first;
    while (NULL != call && COLL_GPUSYM_NONBLOCKING == call->run.mode) {
        request_t *r = request_of(call);
        note_overlap(r);
        if (!coll_gpusym_call_poll(call)) {
            return;
        }
        bool is_over = COLL_GPUSYM_CALL_ENDED == call->state;
        if (COLL_GPUSYM_REQUEST_IDLE == r->step) {
            coll_gpusym_call_count(call);
            if (!is_over) {
                begin_forward(r);
            }
        }
        /* Not before: a blocking call of another thread that finds the list empty goes to the fallback at once. */
        if (!is_over && !poll_fill(r)) {
            return;
        }
        call = coll_gpusym_list_pop(e);
        is_over = is_over || poll_forwarded(r);
        if (is_over) {
            append_over(over, r);
        } else {
            append_forwarded(r);
        }
    }
}

/* With the lock held: takes a request from there, whose link that is. */
static void remove_forwarded(request_t **link)
{
    request_t *r = *link;
    *link = r->next;
    if (NULL == r->next) {
        requests.forwarded_last = link;
    }
    requests.nforwarded--;
}

/* Some of the fallback's requests, one after the other. */
static void poll_some_forwarded(over_t *over)
{
    for (uint32_t polls = requests.nforwarded < FORWARDED_POLLS ? requests.nforwarded : FORWARDED_POLLS; polls > 0;
         polls--) {
        if (NULL == *requests.poll) {
            requests.poll = &requests.forwarded;
        }
        request_t *r = *requests.poll;
        if (!poll_forwarded(r)) {
            requests.poll = &r->next;
            continue;
        }
        remove_forwarded(requests.poll);
        append_over(over, r);
    }
}

static void complete_request(request_t *r)
{
    ompi_request_t *q = coll_gpusym_mpi_request(r);
    struct ompi_communicator_t *comm = q->req_persistent ? NULL : r->call.run.engine->fallback->comm;
    coll_gpusym_traced_end(&r->call.run, NULL != r->call.way ? r->call.way : &coll_gpusym_way_whole);
    q->req_status.MPI_ERROR = r->call.run.error;
    q->req_status._ucount = 0;
    gpusym_complete(q);
    if (NULL != comm) {
        OBJ_RELEASE(comm);
    }
}

/* Called by Open MPI wherever it waits. */
static int make_progress(void)
{
    over_t over = {.last = &over.first};

    /* Another thread is at it, or this one: what is called in here may make progress of its own. */
    if (0 == __atomic_load_n(&coll_gpusym_in_flight, __ATOMIC_RELAXED) || !coll_gpusym_list_trylock()) {
        return 0;
    }
    for (coll_gpusym_engine_t *e = coll_gpusym_list_active(), *next; NULL != e; e = next) {
        next = e->active_next;
        poll_engine(e, &over);
    }
    poll_some_forwarded(&over);
    __atomic_fetch_sub(&coll_gpusym_in_flight, (uint32_t) over.n, __ATOMIC_RELAXED);
    coll_gpusym_list_unlock();
    while (NULL != over.first) {
        request_t *r = over.first;
        over.first = r->next;
        complete_request(r);
    }
    const gpusym_device_t *dev = gpusym_current.dev;
    if (0 == over.n && NULL != dev && dev->simulated) {
        sched_yield(); /* the simulator's kernels share the cores, and a rank that waits inside Open MPI never yields */
    }
    return over.n;
}

void coll_gpusym_request_start(request_t *r)
{
    ompi_request_t *q = coll_gpusym_mpi_request(r);
    q->req_state = OMPI_REQUEST_ACTIVE;
    q->req_complete = REQUEST_PENDING;
    coll_gpusym_list_lock();
    coll_gpusym_list_append(&r->call);
    __atomic_fetch_add(&coll_gpusym_in_flight, 1, __ATOMIC_RELAXED);
    coll_gpusym_list_unlock();
    make_progress(); /* post it now */
    r->started_ns = gpusym_now_ns();
}

/* ---- on streams of the program ---- */

void coll_gpusym_request_queued(request_t *r, const coll_gpusym_queued_t *queued)
{
    ompi_request_t *q = coll_gpusym_mpi_request(r);
    coll_gpusym_call_reset(&r->call);
    r->on_stream = true;
    r->queued = *queued;
    q->req_state = OMPI_REQUEST_ACTIVE;
    q->req_status._ucount = 0;
    if (!queued->any || queued->captured) {
        q->req_status.MPI_ERROR = queued->any ? MPI_ERR_REQUEST : MPI_SUCCESS;
        return;
    }
    q->req_complete = REQUEST_PENDING;
    r->step = COLL_GPUSYM_REQUEST_QUEUED;
    coll_gpusym_request_fly(r);
}

const coll_gpusym_queued_t *coll_gpusym_request_on_stream(request_t *r)
{
    return r->on_stream && OMPI_REQUEST_ACTIVE == coll_gpusym_mpi_request(r)->req_state ? &r->queued : NULL;
}

void coll_gpusym_request_waited(request_t *r)
{
    ompi_request_t *q = coll_gpusym_mpi_request(r);
    request_t **link = &requests.forwarded;
    coll_gpusym_list_lock();
    const bool polled = COLL_GPUSYM_REQUEST_QUEUED == r->step;
    if (polled) {
        while (r != *link) {
            link = &(*link)->next;
        }
        if (requests.poll == &r->next) {
            requests.poll = link;
        }
        remove_forwarded(link);
        r->step = COLL_GPUSYM_REQUEST_IDLE;
        q->req_complete = REQUEST_COMPLETED;
        __atomic_fetch_sub(&coll_gpusym_in_flight, 1, __ATOMIC_RELAXED);
    }
    coll_gpusym_list_unlock();
    while (!REQUEST_COMPLETE(q)) {
        sched_yield(); /* another thread completes it, in make_progress() */
    }
    r->on_stream = false;
    q->req_state = OMPI_REQUEST_INACTIVE;
}

void coll_gpusym_requests_fini(void)
{
    if (requests.registered) {
        opal_progress_unregister(make_progress);
        requests.registered = false;
    }
    while (NULL != requests.free) {
        request_t *r = requests.free;
        requests.free = r->next;
        OBJ_RELEASE(r);
    }
}
