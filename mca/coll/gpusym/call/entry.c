/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The entries of all collectives: see entry.h.
 */
#include "mca/coll/gpusym/call/entry.h"

#include <stdlib.h>

#include "mca/coll/gpusym/args/facts.h"
#include "mca/coll/gpusym/args/keep.h"
#include "mca/coll/gpusym/call/list.h"
#include "mca/coll/gpusym/call/request.h"
#include "mca/coll/gpusym/conf/counters.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/exec/traced.h"
#include "mca/coll/gpusym/exec/whole.h"
#include "mca/coll/gpusym/trace/ranges.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/sanitizers.h"
#include "opal/runtime/opal_progress.h"

/* ---- a call and the fallback ---- */

/* Whether it is known to all ranks, without a message, that there is nothing to do. */
static bool is_nothing(const coll_gpusym_args_t *a)
{
    return coll_gpusym_facts[a->coll].one_count && 0 == a->rcount;
}

/* Whether the call belongs to a communicator; MPI_Reduce_local belongs to none. */
static bool has_comm(const coll_gpusym_args_t *a)
{
    return COLL_GPUSYM_P_LOCAL != coll_gpusym_facts[a->coll].pattern;
}

/* A barrier has no buffers to agree on. It is ours only for its place behind the calls in flight: the fallback tells
 * the ranks' calls apart by counting them, so they must come to it in one order. */
static bool forwards_at_once(const coll_gpusym_engine_t *e, const coll_gpusym_args_t *a)
{
    return coll_gpusym_forwards_all(e->fallback) || (COLL_GPUSYM_BARRIER == a->coll && coll_gpusym_list_empty(e));
}

static void count_forwarded(const coll_gpusym_args_t *a)
{
    coll_gpusym_count(&coll_gpusym_counters[a->coll].forwarded);
}

/* For the summary: adds the bytes of a call that has a buffer on a GPU. Returns its counters; NULL: it has none, or it
 * is one of the fallback's own. */
static coll_gpusym_counters_t *note_amount(const coll_gpusym_engine_t *e, const coll_gpusym_args_t *a)
{
    coll_gpusym_counters_t *counters = &coll_gpusym_counters[a->coll];
    coll_gpusym_buffers_t b;

    if ((e->fallback->forwarding && has_comm(a)) || !coll_gpusym_counts_valid(e->fallback->comm, a)) {
        return NULL;
    }
    coll_gpusym_buffers_find(&b, e->fallback->comm, gpusym_device_need(), a);
    if (!coll_gpusym_buffers_on_gpu(&b)) {
        return NULL;
    }
    coll_gpusym_buffers_measure(&b);
    __atomic_fetch_add(&counters->bytes, b.send.span.bytes > b.recv.span.bytes ? b.send.span.bytes : b.recv.span.bytes,
                       __ATOMIC_RELAXED);
    return counters;
}

/* Whether there are peers to agree with: else each rank stages its own buffers as it finds them. */
static bool has_team(const coll_gpusym_engine_t *e, const coll_gpusym_args_t *a)
{
    return has_comm(a) && !e->apart;
}

/* Of a call in any form that is not forwarded at once: looks at its counts, then finds the ranks before the first call
 * that may want a team. MPI error code. */
static int prepare_call(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a)
{
    if (!coll_gpusym_counts_valid(e->fallback->comm, a)) {
        return MPI_ERR_COUNT;
    }
    return NULL == e->team && has_team(e, a) ? coll_gpusym_engine_find_team(e) : MPI_SUCCESS;
}

/* Nothing to do, and no rank that calls the fallback all the same: one without gpusym does, and the fallback tells
 * calls apart by counting them. */
static bool can_skip(const coll_gpusym_engine_t *e, const coll_gpusym_args_t *a)
{
    return is_nothing(a) && (e->alone || has_team(e, a));
}

/* Without a device: the call is the fallback's, and so are all later ones of an intracommunicator. */
static void forward_without_device(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, bool inter)
{
    if (!inter && has_comm(a)) {
        coll_gpusym_forward_all(e->fallback); /* the device has been looked for: there will be none */
    }
    count_forwarded(a);
}

/* Without a team: true if the fallback is to do it, staged for *reason unless that is -1: then *b is set; else it is
 * done, with *rv. */
static bool do_without_team(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, coll_gpusym_buffers_t *b, int *reason,
                            int *rv)
{
    coll_gpusym_counters_t *counters = &coll_gpusym_counters[a->coll];
    struct ompi_communicator_t *comm = e->fallback->comm;
    const bool inter = has_comm(a) && OMPI_COMM_IS_INTER(comm);

    *reason = -1;
    if (inter) {
        coll_gpusym_forward_local_group(comm);
    }
    while (has_comm(a) && !coll_gpusym_engine_streams_ended(e)) {
        opal_progress();
    }
    const gpusym_device_t *dev = gpusym_device_need();
    if (NULL == dev) {
        forward_without_device(e, a, inter);
        return true;
    }
    coll_gpusym_buffers_find(b, comm, dev, a);
    const bool host = !coll_gpusym_buffers_on_gpu(b);
    if (has_comm(a)) {                                         /* else any thread may be in that */
        e->host_only = host && !inter && NULL == e->on_stream; /* the short path does not know remote ranks */
    }
    if (host) {
        count_forwarded(a);
        return true;
    }
    if (e->alone && has_comm(a) && coll_gpusym_segments_alone(b, rv)) {
        coll_gpusym_count(&counters->native);
        coll_gpusym_count(&counters->copied);
        coll_gpusym_traced_alone(e, b, *rv);
        return false;
    }
    *reason = has_comm(a) ? e->reason_apart : COLL_GPUSYM_R_NO_NATIVE;
    coll_gpusym_count(&counters->staged);
    coll_gpusym_count(&counters->reason[*reason]);
    return true;
}

/* With a team: whether a call on host buffers depends on no other rank. */
static bool depends_on_none(const coll_gpusym_engine_t *e)
{
    /* The list first: whichever thread ended its last call wrote `open` before. */
    return coll_gpusym_list_empty(e) && e->team->open && coll_gpusym_engine_streams_ended(e);
}

/* With a team: finds the buffers. Host memory, nothing in flight before the call, and the peers know all they have to:
 * true, and the call is the fallback's. Else it takes its place among the communicator's calls. */
static bool forwards_host(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, coll_gpusym_buffers_t *b)
{
    coll_gpusym_buffers_find(b, e->fallback->comm, gpusym_device_need(), a);
    if (!coll_gpusym_buffers_on_host(b) || !depends_on_none(e) || e->team->host.rc.looks ||
        !coll_gpusym_team_post_host(e->team, a->coll)) {
        return false;
    }
    e->host_only = NULL == e->on_stream;
    count_forwarded(a);
    return true;
}

/* ---- blocking ---- */

/* The call is over, or the fallback's: in the latter case runs it. */
static int finish_blocking(coll_gpusym_call_t *call)
{
    coll_gpusym_engine_t *e = call->run.engine;
    const bool handed = COLL_GPUSYM_CALL_FALLBACK == call->state;
    coll_gpusym_call_count(call);
    e->host_only = handed && call->run.reason < 0 && !call->run.ours && NULL == e->on_stream && depends_on_none(e) &&
                   !e->team->host.rc.looks;
    const int rv = handed ? call->way->finish(&call->run) : call->run.error;
    coll_gpusym_traced_end(&call->run, call->way);
    return rv;
}

static int block_with_team(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a)
{
    coll_gpusym_call_t call;
    coll_gpusym_buffers_t b;
    coll_gpusym_traced_enter(e, COLL_GPUSYM_FORM_BLOCKING);
    if (forwards_host(e, a, &b)) {
        return coll_gpusym_forward(e->fallback, a);
    }
    coll_gpusym_call_init(&call, e, &b, COLL_GPUSYM_BLOCKING);
    coll_gpusym_traced_begin_posting(&call.run);
    coll_gpusym_list_wait(&call);
    return finish_blocking(&call);
}

/* Staged, without a team. */
static int block_apart(coll_gpusym_engine_t *e, coll_gpusym_buffers_t *b, int reason)
{
    coll_gpusym_run_t run;
    coll_gpusym_whole_init(&run, e, b, reason);
    coll_gpusym_traced_begin(&run);
    const int rv = coll_gpusym_way_whole.finish(&run);
    coll_gpusym_traced_end(&run, &coll_gpusym_way_whole);
    return rv;
}

static int block(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a)
{
    coll_gpusym_fallback_t *f = e->fallback;
    coll_gpusym_buffers_t b;
    int reason, rv;

    if (f->forwarding && has_comm(a)) {
        return coll_gpusym_forward(f, a);
    }
    if (forwards_at_once(e, a)) {
        count_forwarded(a);
        return coll_gpusym_forward(f, a);
    }
    rv = prepare_call(e, a);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    if (can_skip(e, a)) {
        return MPI_SUCCESS;
    }
    if (!has_team(e, a)) {
        if (has_comm(a)) { /* else any thread may be in that */
            coll_gpusym_traced_enter(e, COLL_GPUSYM_FORM_BLOCKING);
        }
        if (!do_without_team(e, a, &b, &reason, &rv)) {
            return rv;
        }
        return reason < 0 ? coll_gpusym_forward(f, a) : block_apart(e, &b, reason);
    }
    return block_with_team(e, a);
}

static int block_summed(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a)
{
    coll_gpusym_counters_t *counters = note_amount(e, a);
    const uint64_t since = gpusym_now_ns();
    const int rv = block(e, a);
    if (NULL != counters) {
        __atomic_fetch_add(&counters->ns, gpusym_now_ns() - since, __ATOMIC_RELAXED);
        coll_gpusym_count(&counters->timed);
    }
    return rv;
}

/* For a profiler. */
static void note_entry(const coll_gpusym_args_t *a)
{
    if (coll_gpusym_ranges_on) {
        coll_gpusym_range_push(a->coll);
    }
}

/* Behind that, when MPI returns; the call may go on. */
static void note_return(void)
{
    if (coll_gpusym_ranges_on) {
        coll_gpusym_range_pop();
    }
}

static int block_noted(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a)
{
    note_entry(a);
    const int rv = coll_gpusym_params.summary ? block_summed(e, a) : block(e, a);
    note_return();
    return rv;
}

int coll_gpusym_blocking(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a)
{
    return OPAL_LIKELY(!GPUSYM_FLAG(coll_gpusym_params.notes)) ? block(e, a) : block_noted(e, a);
}

/* ---- nonblocking ---- */

static int start_with_team(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, ompi_request_t **req)
{
    struct ompi_communicator_t *comm = e->fallback->comm;
    coll_gpusym_buffers_t b;
    coll_gpusym_traced_enter(e, COLL_GPUSYM_FORM_NONBLOCKING);
    /* Refused here, not by a request: Open MPI, as it makes a communicator out of this one, tries again and again while
     * all it gets is a request with an error. */
    if (e->team->broken) {
        return e->team->error;
    }
    if (forwards_host(e, a, &b)) {
        return coll_gpusym_forward_nonblocking(e->fallback, a, req);
    }
    coll_gpusym_request_t *r = coll_gpusym_request_get(e, false);
    if (NULL == r) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    coll_gpusym_call_init(&r->call, e, &b, COLL_GPUSYM_NONBLOCKING);
    if (!coll_gpusym_args_keep(comm, &r->call.args, &r->kept)) {
        coll_gpusym_request_put(r);
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    coll_gpusym_traced_begin_posting(&r->call.run);
    OBJ_RETAIN(comm);
    coll_gpusym_request_start(r);
    *req = coll_gpusym_mpi_request(r);
    return MPI_SUCCESS;
}

/* Nothing to agree on: at once. */
static int start_without_team(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, const coll_gpusym_buffers_t *b,
                              int reason, ompi_request_t **req)
{
    struct ompi_communicator_t *comm = e->fallback->comm;
    if (reason < 0) {
        return coll_gpusym_forward_nonblocking(e->fallback, a, req);
    }
    coll_gpusym_request_t *r = coll_gpusym_request_get(e, false);
    if (NULL == r) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    coll_gpusym_call_init_apart(&r->call, e, b, reason);
    if (!coll_gpusym_args_keep(comm, &r->call.args, &r->kept)) {
        coll_gpusym_request_put(r);
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    coll_gpusym_traced_begin(&r->call.run);
    OBJ_RETAIN(comm);
    coll_gpusym_request_forward(r);
    coll_gpusym_mpi_request(r)->req_state = OMPI_REQUEST_ACTIVE;
    coll_gpusym_request_fly(r);
    *req = coll_gpusym_mpi_request(r);
    return MPI_SUCCESS;
}

static void note_start(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a)
{
    note_entry(a);
    if (coll_gpusym_params.summary) {
        (void) note_amount(e, a);
    }
}

/* Notes a call, which then comes to the same function again: so the usual path keeps nothing over a call. */
static __attribute__((noinline)) int start_noted(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a,
                                                 ompi_request_t **req)
{
    note_start(e, a);
    e->noted = true;
    const int rv = coll_gpusym_nonblocking(e, a, req);
    e->noted = false;
    note_return();
    return rv;
}

int coll_gpusym_nonblocking(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, ompi_request_t **req)
{
    coll_gpusym_buffers_t b;
    int reason, rv;

    if (OPAL_UNLIKELY(GPUSYM_FLAG(coll_gpusym_params.notes)) && !e->noted) {
        return start_noted(e, a, req);
    }
    if (forwards_at_once(e, a)) {
        count_forwarded(a);
        return coll_gpusym_forward_nonblocking(e->fallback, a, req);
    }
    rv = prepare_call(e, a);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    if (can_skip(e, a)) {
        *req = &ompi_request_empty;
        return MPI_SUCCESS;
    }
    if (!has_team(e, a)) {
        coll_gpusym_traced_enter(e, COLL_GPUSYM_FORM_NONBLOCKING);
        if (!do_without_team(e, a, &b, &reason, &rv)) {
            *req = &ompi_request_empty;
            return rv;
        }
        return start_without_team(e, a, &b, reason, req);
    }
    return start_with_team(e, a, req);
}

/* ---- persistent ---- */

/* Starts the fallback's request, which the peers' requests have been made with. */
static void start_inner(coll_gpusym_request_t *r)
{
    coll_gpusym_run_t *run = &r->call.run;
    run->reason = run->engine->reason_apart;
    coll_gpusym_whole_count(run, &coll_gpusym_counters[run->args->coll]);
    (void) coll_gpusym_whole_fill(run, &r->bounce); /* there are other ranks */
    const int rv = r->inner->req_start(1, &r->inner);
    coll_gpusym_whole_forwarded(run, rv);
    r->step = COLL_GPUSYM_REQUEST_CALLED;
    r->forwarded = MPI_SUCCESS == rv ? r->inner : NULL;
}

static void start_again(coll_gpusym_request_t *r)
{
    coll_gpusym_call_t *call = &r->call;
    if (!r->alone && NULL == r->inner) {
        coll_gpusym_traced_begin_posting(&call->run);
        coll_gpusym_request_start(r);
        return;
    }
    int reason, rv = MPI_SUCCESS;
    ompi_request_t *q = coll_gpusym_mpi_request(r);
    q->req_state = OMPI_REQUEST_ACTIVE;
    q->req_complete = REQUEST_PENDING;
    if (NULL != r->inner) {
        coll_gpusym_traced_begin(&call->run);
        start_inner(r);
    } else if (do_without_team(call->run.engine, &call->args, &call->buffers, &reason, &rv)) {
        call->run.reason = reason;
        coll_gpusym_traced_begin(&call->run);
        coll_gpusym_request_forward(r);
    } else {
        call->run.error = rv;
        r->forwarded = NULL;
        r->step = COLL_GPUSYM_REQUEST_CALLED;
    }
    coll_gpusym_request_fly(r);
}

static void start_one(coll_gpusym_request_t *r)
{
    coll_gpusym_call_t *call = &r->call;
    GPUSYM_ACQUIRE(r); /* its last call */
    coll_gpusym_traced_enter(call->run.engine, COLL_GPUSYM_FORM_PERSISTENT);
    r->on_stream = false;
    coll_gpusym_call_reset(call);
    gpusym_await_legacy_stream(call->args.sbuf);
    gpusym_await_legacy_stream(call->args.rbuf);
    if (OPAL_LIKELY(!GPUSYM_FLAG(coll_gpusym_params.notes))) {
        start_again(r);
        return;
    }
    note_start(call->run.engine, &call->args);
    start_again(r);
    note_return();
}

static int start_requests(size_t count, ompi_request_t **reqs)
{
    for (size_t i = 0; i < count; i++) {
        if (NULL != reqs[i] && OMPI_REQUEST_COLL == reqs[i]->req_type) {
            start_one((coll_gpusym_request_t *) reqs[i]);
        }
    }
    return OMPI_SUCCESS;
}

/* How a persistent call will go, agreed by all ranks: it is collective, and may wait. */
typedef enum { FATE_HOST_ONLY, FATE_NATIVE, FATE_FORWARDED } fate_t;

/* Where the team will stage for good, or the collective has no kernel, there is no call agreement to agree by. */
static int agree_by_allgather(coll_gpusym_engine_t *e, bool device, fate_t *fate)
{
    const coll_gpusym_fallback_t *f = e->fallback;
    const int n = ompi_comm_size(f->comm);
    uint8_t mine = device, *all = malloc((size_t) n);
    int rv = OMPI_ERR_OUT_OF_RESOURCE;
    if (NULL == all) {
        return rv;
    }
    rv = f->saved.allgather(&mine, 1, MPI_BYTE, all, 1, MPI_BYTE, f->comm, f->saved.allgather_module);
    *fate = FATE_HOST_ONLY;
    for (int r = 0; MPI_SUCCESS == rv && r < n; r++) {
        *fate = all[r] ? FATE_FORWARDED : *fate;
    }
    free(all);
    return rv;
}

static int agree_on_fate(coll_gpusym_engine_t *e, coll_gpusym_call_t *call, fate_t *fate)
{
    coll_gpusym_list_wait(call);
    if (COLL_GPUSYM_CALL_ENDED == call->state) {
        *fate = FATE_NATIVE;
        return call->run.error;
    }
    if (e->team->none) {
        *fate = FATE_HOST_ONLY;
        return MPI_SUCCESS;
    }
    call->settled = call->run.reason;
    return agree_by_allgather(e, call->run.ours, fate);
}

static int init_with_team(coll_gpusym_engine_t *e, coll_gpusym_request_t *r, fate_t *fate)
{
    const int rv = agree_on_fate(e, &r->call, fate);
    if (MPI_SUCCESS == rv && FATE_NATIVE == *fate) {
        r->call.run.task.plan = r->plan = calloc(1, sizeof *r->plan); /* without it each start plans anew */
    }
    return rv;
}

/* Without agreement, with peers: a persistent request of the fallback on bounce buffers, as theirs are on what they
 * have. */
static int init_inner(coll_gpusym_engine_t *e, coll_gpusym_request_t *r, struct ompi_info_t *info)
{
    (void) coll_gpusym_whole_open(&r->call.run, &r->bounce, &r->on_host); /* there are other ranks */
    const int rv = coll_gpusym_forward_persistent(e->fallback, &r->on_host, info, &r->inner);
    if (MPI_SUCCESS != rv) {
        r->inner = NULL;
        coll_gpusym_bounce_close(&r->bounce);
    }
    return rv;
}

/* Makes the inactive request of a call that is not known to be the fallback's alone. *fate FATE_HOST_ONLY: it is, after
 * all, and r is unchanged but for the call. MPI error code. */
static int init_request(coll_gpusym_engine_t *e, coll_gpusym_request_t *r, const coll_gpusym_buffers_t *b,
                        struct ompi_info_t *info, fate_t *fate)
{
    const bool team = has_team(e, b->args);
    int rv = MPI_SUCCESS;
    *fate = FATE_FORWARDED;
    if (team) {
        coll_gpusym_call_init(&r->call, e, b, COLL_GPUSYM_AGREES);
        rv = init_with_team(e, r, fate);
    } else {
        coll_gpusym_call_init_apart(&r->call, e, b, -1);
        r->alone = e->alone;
    }
    r->call.run.mode = COLL_GPUSYM_NONBLOCKING;
    if (MPI_SUCCESS != rv || FATE_HOST_ONLY == *fate) {
        return rv;
    }
    if (!coll_gpusym_args_keep(e->fallback->comm, &r->call.args, &r->kept)) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    return team || r->alone ? MPI_SUCCESS : init_inner(e, r, info);
}

int coll_gpusym_persistent(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, struct ompi_info_t *info,
                           ompi_request_t **req)
{
    coll_gpusym_fallback_t *f = e->fallback;
    coll_gpusym_buffers_t b;
    fate_t fate;
    int rv;

    if (COLL_GPUSYM_BARRIER == a->coll) { /* nothing to agree on, but a place in the order; see forwards_at_once() */
        while (!forwards_at_once(e, a)) {
            opal_progress();
        }
    }
    if (forwards_at_once(e, a)) {
        return coll_gpusym_forward_persistent(f, a, info, req);
    }
    rv = prepare_call(e, a);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    coll_gpusym_buffers_find(&b, e->fallback->comm, gpusym_device_need(), a);
    if (!has_team(e, a) && !coll_gpusym_buffers_on_gpu(&b)) { /* nothing to agree on */
        return coll_gpusym_forward_persistent(f, a, info, req);
    }
    coll_gpusym_request_t *r = coll_gpusym_request_get(e, true);
    if (NULL == r) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    coll_gpusym_mpi_request(r)->req_start = start_requests;
    rv = init_request(e, r, &b, info, &fate);
    if (MPI_SUCCESS != rv || FATE_HOST_ONLY == fate) {
        coll_gpusym_request_put(r); /* nothing retained yet */
        return MPI_SUCCESS != rv ? rv : coll_gpusym_forward_persistent(f, a, info, req);
    }
    OBJ_RETAIN(f->comm);
    *req = coll_gpusym_mpi_request(r);
    return MPI_SUCCESS;
}
