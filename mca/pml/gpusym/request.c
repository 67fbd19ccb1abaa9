/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests of messages of device memory, and their progress.
 */
#include "mca/pml/gpusym/request.h"

#include <sched.h>

#include "mca/common/gpusym/exec/copy.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/lock.h"
#include "mca/common/gpusym/sanitizers.h"
#include "mca/common/ompi/complete.h"
#include "mca/common/gpusym/gpus.h"
#include "mca/pml/gpusym/pack.h"
#include "mca/pml/gpusym/report.h"
#include "opal/runtime/opal_progress.h"

/* The requests whose steps one progress runs. */
#define STEPS 16u
/* How often a request checks whether its peer lives, in ns. */
#define LIFE_CHECK 100000000u
/* Polls of a request between two looks at the clock. */
#define LIFE_POLLS 64u

typedef pml_gpusym_request_t request_t;

static void request_construct(request_t *r);
static void request_destruct(request_t *r)
{
    (void) r;
}
OBJ_CLASS_INSTANCE(pml_gpusym_request_t, mca_pml_base_request_t, request_construct, request_destruct);

static struct {
    pthread_mutex_t lock;
    request_t *free;
    request_t *first, **last; /* to be run by progress, oldest first; `first` is read without the lock */
    bool registered;
    bool busy;    /* a thread is in progress() */
    uint64_t now; /* when this round of it began to ask, in ns; 0: not yet; atomic */
} requests = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = &requests.first};

/* ---- the list ---- */

/* With the lock held. */
static void append_request(request_t *r)
{
    r->next = NULL;
    __atomic_store_n(requests.last, r, __ATOMIC_RELAXED);
    requests.last = &r->next;
}

void pml_gpusym_request_enlist(request_t *r, pml_gpusym_step_t *step)
{
    gpusym_lock(&requests.lock);
    r->step = step;
    append_request(r);
    gpusym_unlock(&requests.lock);
}

bool pml_gpusym_requests_idle(void)
{
    return NULL == __atomic_load_n(&requests.first, __ATOMIC_RELAXED);
}

/* Takes the oldest requests, STEPS at most, out of the list. Returns the first of them. */
static request_t *take_requests(void)
{
    gpusym_lock(&requests.lock);
    request_t *first = requests.first, *last = first;
    for (unsigned i = 1; NULL != last && i < STEPS && NULL != last->next; i++) {
        last = last->next;
    }
    if (NULL != last) {
        __atomic_store_n(&requests.first, last->next, __ATOMIC_RELAXED);
        requests.last = NULL == last->next ? &requests.first : requests.last;
        last->next = NULL;
    }
    gpusym_unlock(&requests.lock);
    return first;
}

/* Runs the steps of the oldest requests; those that stay go to the end. */
static int run_steps(void)
{
    int events = 0;
    request_t *first = NULL, **last = &first; /* which stay */

    for (request_t *r = take_requests(), *next; NULL != r; r = next) {
        next = r->next;
        if (r->step(r)) {
            *last = r;
            last = &r->next;
        } else {
            events++;
        }
    }
    if (NULL != first) {
        *last = NULL;
        gpusym_lock(&requests.lock);
        __atomic_store_n(requests.last, first, __ATOMIC_RELAXED);
        requests.last = last;
        gpusym_unlock(&requests.lock);
    }
    return events;
}

uint32_t pml_gpusym_awaited;

uint64_t pml_gpusym_request_now(void)
{
    uint64_t now = __atomic_load_n(&requests.now, __ATOMIC_RELAXED);
    if (0 == now) {
        now = gpusym_now_ns();
        __atomic_store_n(&requests.now, now, __ATOMIC_RELAXED);
    }
    return now;
}

static int make_progress(void)
{
    if (OPAL_LIKELY(NULL == __atomic_load_n(&requests.first, __ATOMIC_RELAXED))) {
        return 0;
    }
    if (__atomic_exchange_n(&requests.busy, true, __ATOMIC_ACQUIRE)) {
        return 0; /* another thread, or a callback of this one that polls */
    }
    __atomic_store_n(&requests.now, 0, __ATOMIC_RELAXED);
    pml_gpusym_pack_poll();
    const int events = run_steps();
    gpusym_copy_flush(0 != __atomic_load_n(&pml_gpusym_awaited, __ATOMIC_RELAXED)); /* what the steps have started */
    __atomic_store_n(&requests.busy, false, __ATOMIC_RELEASE);
    return events;
}

/* ---- their life ---- */

void pml_gpusym_request_free_inner(request_t *r)
{
    if (NULL != r->inner) {
        const ompi_request_free_fn_t give_back = r->inner->req_free;
        GPUSYM_RELEASE(r->inner); /* the PML uses the object again, in any thread */
        give_back(&r->inner);
        r->inner = NULL;
    }
}

void pml_gpusym_request_put(request_t *r)
{
    ompi_request_t *q = pml_gpusym_mpi_request(r);

    OMPI_REQUEST_FINI(q);
    OBJ_RELEASE(r->base.req_datatype);
    OBJ_RELEASE(r->base.req_comm);
    gpusym_lock(&requests.lock);
    r->next = requests.free;
    requests.free = r;
    gpusym_unlock(&requests.lock);
}

static bool is_active(request_t *r)
{
    return OMPI_REQUEST_ACTIVE == pml_gpusym_mpi_request(r)->req_state && !REQUEST_COMPLETE(pml_gpusym_mpi_request(r));
}

/* The program may free the buffer. */
static void end_use(request_t *r)
{
    if (r->uses) {
        pml_gpusym_memory_unuse(r->known);
        r->uses = r->known = false;
    }
}

/* MPI_Request_free, and the end of MPI_Wait. */
static int request_free(ompi_request_t **req)
{
    request_t *r = (request_t *) *req;

    gpusym_lock(&requests.lock);
    const bool active = is_active(r);
    r->freed = active;
    r->base.req_free_called = active;
    if (active) {
        end_use(r); /* the program may learn from others when it ends */
    }
    gpusym_unlock(&requests.lock);
    if (!active) {
        GPUSYM_ACQUIRE(r);
        pml_gpusym_request_put(r);
    }
    *req = MPI_REQUEST_NULL;
    return OMPI_SUCCESS;
}

/* Receives that have not been matched: the PML's request is cancelled, and ends as any other. It has its callback until
 * it is matched; later ones, for data that follow, have none. Progress is kept out, since it replaces them. Sends are
 * not cancelled, as in Open MPI. */
static int request_cancel(ompi_request_t *req, int flag)
{
    request_t *r = (request_t *) req;
    int rv = OMPI_SUCCESS;

    while (__atomic_exchange_n(&requests.busy, true, __ATOMIC_ACQUIRE)) {
        sched_yield();
    }
    if (MCA_PML_REQUEST_RECV == r->base.req_type && NULL != r->inner && NULL != r->inner->req_complete_cb) {
        rv = r->inner->req_cancel(r->inner, flag);
    }
    __atomic_store_n(&requests.busy, false, __ATOMIC_RELEASE);
    return rv;
}

static int request_start(size_t n, ompi_request_t **reqs)
{
    int rv = OMPI_SUCCESS;
    for (size_t i = 0; OMPI_SUCCESS == rv && i < n; i++) {
        request_t *r = (request_t *) reqs[i];
        gpusym_await_legacy_stream((const char *) r->base.req_addr + r->layout.lo);
        pml_gpusym_request_begin(r);
        rv = r->start(r);
    }
    return rv;
}

bool pml_gpusym_request_is(const ompi_request_t *request)
{
    return request_start == request->req_start;
}

static void request_construct(request_t *r)
{
    ompi_request_t *q = pml_gpusym_mpi_request(r);

    q->req_type = OMPI_REQUEST_PML;
    q->req_start = request_start;
    q->req_free = request_free;
    q->req_cancel = request_cancel;
    r->inner = NULL;
}

static request_t *take_free(void)
{
    gpusym_lock(&requests.lock);
    if (!requests.registered) {
        requests.registered = OPAL_SUCCESS == opal_progress_register(make_progress);
    }
    const bool ok = requests.registered;
    request_t *r = ok ? requests.free : NULL;
    if (NULL != r) {
        requests.free = r->next;
    }
    gpusym_unlock(&requests.lock);
    return NULL == r && ok ? OBJ_NEW(pml_gpusym_request_t) : r;
}

request_t *pml_gpusym_request_get(const void *buf, size_t count, struct ompi_datatype_t *dtype, int peer, int tag,
                                  struct ompi_communicator_t *comm, bool persistent, const pml_gpusym_memory_t *memory)
{
    gpusym_gpu_t *gpu = NULL;
    if (NULL != memory && GPUSYM_SUCCESS != gpusym_p2p_gpu_open(&memory->mem, &gpu)) {
        pml_gpusym_report_gpu(comm, peer, tag);
        return NULL;
    }
    request_t *r = take_free();
    if (NULL == r) {
        pml_gpusym_report_memory(comm, peer, tag, sizeof *r);
        return NULL;
    }
    ompi_request_t *q = pml_gpusym_mpi_request(r);
    OMPI_REQUEST_INIT(q, persistent);
    q->req_mpi_object.comm = comm;
    q->req_start = request_start; /* MPI's own layer may have put itself there */
    q->req_free = request_free;
    r->base.req_free_called = 0;
    r->base.req_pml_complete = 1;
    r->base.req_comm = comm;
    r->base.req_datatype = dtype;
    r->base.req_addr = (void *) (uintptr_t) buf;
    r->base.req_count = count;
    r->base.req_peer = peer;
    r->base.req_tag = tag;
    r->base.req_proc = NULL;
    OBJ_RETAIN(comm);
    OBJ_RETAIN(dtype);
    r->freed = r->on_host = false;
    r->gpu = gpu;
    r->mem = NULL != memory ? memory->mem : (gpusym_mem_t){.kind = GPUSYM_MEM_HOST, .gpu = -1};
    r->uses = r->known = false;
    r->bounce.p = NULL;
    r->peer = NULL;
    r->scratch = NULL;
    r->buffer.host = NULL;
    r->outer = NULL;
    if (NULL != memory) {
        r->layout = memory->layout;
    } else {
        gpusym_layout_find(count, dtype, &r->layout);
    }
    return r;
}

request_t *pml_gpusym_request_copy(const request_t *r)
{
    const mca_pml_base_request_t *b = &r->base;
    request_t *copy = pml_gpusym_request_get(NULL, 0, MPI_BYTE, b->req_peer, b->req_tag, b->req_comm, false, NULL);

    if (NULL != copy) {
        copy->peer = r->peer;
        copy->index = r->index;
        copy->since = 0;
        copy->eager = false;
        copy->polls = 0;
    }
    return copy;
}

static unsigned abandoned; /* atomic */

static bool step_abandoned(request_t *r)
{
    const bool complete = pml_gpusym_inner_is_complete(r);
    if (!complete && pml_gpusym_peer_lives(r)) {
        return true;
    }
    __atomic_fetch_sub(&abandoned, 1, __ATOMIC_RELAXED);
    if (!complete) {
        return false; /* to a dead process: the PML may keep it for good, and what it sends with it */
    }
    pml_gpusym_request_free_inner(r);
    pml_gpusym_bounce_put(&r->bounce);
    pml_gpusym_request_put(r);
    return false;
}

void pml_gpusym_request_abandon(request_t *r)
{
    request_t *rest = pml_gpusym_request_copy(r);
    if (NULL != rest) {
        rest->inner = r->inner;
        rest->bounce = r->bounce;
        __atomic_fetch_add(&abandoned, 1, __ATOMIC_RELAXED);
        pml_gpusym_request_enlist(rest, step_abandoned);
    }
    r->inner = NULL; /* without memory for the rest it is lost */
    r->bounce.p = NULL;
}

unsigned pml_gpusym_requests_abandoned(void)
{
    return __atomic_load_n(&abandoned, __ATOMIC_RELAXED);
}

bool pml_gpusym_pipeline_is_judged(const request_t *r)
{
    return GPUSYM_ERR_UNREACHABLE != r->pipeline.status || r->pipeline.alone || !gpusym_peer_alive(r->peer->pages) ||
           gpusym_now_ns() > r->since + LIFE_CHECK;
}

int pml_gpusym_report_pipeline(request_t *r, int peer, int tag)
{
    const int status = r->pipeline.status;
    struct ompi_communicator_t *comm = r->base.req_comm;
    const int pid = gpusym_peer_pid(r->peer->pages);
    if (r->pipeline.alone || (GPUSYM_ERR_UNREACHABLE == status && !gpusym_peer_alive(r->peer->pages))) {
        return pml_gpusym_report_dead(comm, peer, tag, pid);
    }
    if (r->pipeline.theirs) {
        return pml_gpusym_report_peer(comm, peer, tag, pid);
    }
    switch (status) {
    case GPUSYM_ERR_UNREACHABLE:
        return pml_gpusym_report_unreachable(comm, peer, tag, pid);
    case GPUSYM_ERR_CORRUPT:
        return pml_gpusym_report_corrupt(comm, peer, tag);
    default:
        return pml_gpusym_report_gpu(comm, peer, tag);
    }
}

bool pml_gpusym_peer_lives(request_t *r)
{
    if (NULL == r->peer) {
        return !gpusym_ft_is_dead(r->base.req_comm, r->base.req_peer);
    }
    if (0 != ++r->polls % LIFE_POLLS) {
        return true;
    }
    const uint64_t now = gpusym_now_ns();
    if (now < r->since + LIFE_CHECK) {
        return true;
    }
    const bool first = 0 == r->since;
    r->since = now;
    return first || gpusym_peer_alive(r->peer->pages);
}

void pml_gpusym_request_begin(request_t *r)
{
    ompi_request_t *q = pml_gpusym_mpi_request(r);

    q->req_complete = REQUEST_PENDING;
    q->req_state = OMPI_REQUEST_ACTIVE;
    q->req_status._cancelled = 0;
    q->req_status.MPI_ERROR = MPI_SUCCESS;
    r->completes_early = r->eager = r->large = r->filling = false;
    r->key = 0;
    r->since = 0;
    r->polls = 0;
    r->base.req_pml_complete = 0;
    r->uses = GPUSYM_MEM_DEVICE == r->mem.kind;
    r->known = r->uses && pml_gpusym_memory_use(&r->mem, &r->layout, r->base.req_addr);
    r->id = r->known || !q->req_persistent ? r->mem.id : 0;
}

/* Calls what Open MPI's own layer (one-sided communication) wants to be called at completion, as the PML does before it
 * completes a request. Not with the lock, since it may free the request. Whether it is completed then. */
static bool call_back(request_t *r)
{
    ompi_request_t *q = pml_gpusym_mpi_request(r);

    gpusym_lock(&requests.lock);
    const ompi_request_complete_fn_t call = r->freed ? NULL : q->req_complete_cb;
    q->req_complete_cb = NULL;
    gpusym_unlock(&requests.lock);
    return NULL == call || 0 == call(q);
}

void pml_gpusym_request_complete(request_t *r)
{
    ompi_request_t *q = pml_gpusym_mpi_request(r);

    pml_gpusym_request_free_inner(r);
    pml_gpusym_bounce_put(&r->bounce);
    r->base.req_pml_complete = 1;
    gpusym_lock(&requests.lock);
    end_use(r);
    gpusym_unlock(&requests.lock);
    const bool completes = NULL == q->req_complete_cb || call_back(r);
    /* With the lock, so that request_free() of another thread sees it either active or no longer touched. */
    gpusym_lock(&requests.lock);
    const bool freed = r->freed;
    if (!freed && completes) {
        gpusym_complete(q);
    }
    gpusym_unlock(&requests.lock);
    if (freed) {
        pml_gpusym_request_put(r);
    }
}

int pml_gpusym_request_wait(request_t *r, ompi_status_public_t *status)
{
    ompi_request_t *q = pml_gpusym_mpi_request(r);

    ompi_request_wait_completion(q);
    GPUSYM_ACQUIRE(r);
    const int rv = q->req_status.MPI_ERROR;
    if (MPI_STATUS_IGNORE != status) {
        OMPI_COPY_STATUS(status, q->req_status, false);
    }
    ompi_request_free(&q);
    return rv;
}

void pml_gpusym_requests_close(void)
{
    if (requests.registered) {
        (void) opal_progress_unregister(make_progress);
        requests.registered = false;
    }
    for (request_t *r = requests.free; NULL != r; r = requests.free) {
        requests.free = r->next;
        OBJ_RELEASE(r);
    }
}
