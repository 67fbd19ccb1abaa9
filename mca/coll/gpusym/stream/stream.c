/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The face to libgpusym: see stream.h.
 */
#include "mca/coll/gpusym/stream/stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/call/entry.h"
#include "mca/coll/gpusym/call/list.h"
#include "mca/coll/gpusym/call/request.h"
#include "mca/coll/gpusym/coll_gpusym.h"
#include "mca/coll/gpusym/conf/counters.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/gpusym/streams.h"

/* ---- errors ---- */

static _Thread_local char why[512];

static const char *tell_why(void)
{
    return why;
}

/* Sets why a call fails. Returns the error code. */
static int fail(int rv, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(int rv, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    return rv;
}

/* The same of a call on a communicator. */
static int fail_on(coll_gpusym_engine_t *e, int rv, const char *what, const char *cause)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    struct ompi_communicator_t *comm = e->fallback->comm;
    return fail(rv, "gpusym: rank %d of %s, %s: %s", ompi_comm_rank(comm), gpusym_comm_label(comm, name, sizeof name),
                what, cause);
}

static int fail_device(coll_gpusym_engine_t *e, const char *what)
{
    return fail_on(e, MPI_ERR_OTHER, what, gpusym_current.dev->error());
}

/* ---- the communicator ---- */

/* The engine of a communicator that our module serves; NULL: why says the reason. */
static coll_gpusym_engine_t *find_engine(struct ompi_communicator_t *comm)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    if (OMPI_COMM_IS_INTER(comm)) {
        (void) fail(MPI_ERR_COMM, "gpusym: %s is an intercommunicator: calls on streams need an intracommunicator",
                    gpusym_comm_label(comm, name, sizeof name));
        return NULL;
    }
    if (coll_gpusym_allreduce != comm->c_coll->coll_allreduce) {
        (void) fail(MPI_ERR_UNSUPPORTED_OPERATION,
                    "gpusym: another component serves MPI_Allreduce on %s: run with --mca coll gpusym, or raise "
                    "coll_gpusym_priority",
                    gpusym_comm_label(comm, name, sizeof name));
        return NULL;
    }
    return &((mca_coll_gpusym_module_t *) comm->c_coll->coll_allreduce_module)->engine;
}

/* ---- preparing ---- */

/* Sets up team and GPUs by an ordinary call on GPU memory, behind those that are in flight. mem: of the GPU to be used;
 * NULL: the thread's current one. */
static int set_up_team(coll_gpusym_engine_t *e, const gpusym_mem_t *mem)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_gpu_t *gpu;
    void *word;
    if (GPUSYM_SUCCESS != dev->gpu_open(mem, &gpu) || GPUSYM_SUCCESS != gpusym_scratch_get(dev, gpu, 256, &word)) {
        return fail_device(e, "preparing for streams");
    }
    int rv = GPUSYM_SUCCESS == dev->mem_zero(gpu, word, 256) ? MPI_SUCCESS : fail_device(e, "preparing for streams");
    if (MPI_SUCCESS == rv) {
        const coll_gpusym_args_t a = {.coll = COLL_GPUSYM_ALLREDUCE,
                                      .sbuf = MPI_IN_PLACE,
                                      .rbuf = word,
                                      .scount = 1,
                                      .rcount = 1,
                                      .sdtype = MPI_UNSIGNED,
                                      .rdtype = MPI_UNSIGNED,
                                      .op = MPI_MAX};
        rv = coll_gpusym_blocking(e, &a);
        rv = MPI_SUCCESS == rv ? rv : fail_on(e, rv, "preparing for streams", "the ranks could not be set up");
    }
    gpusym_scratch_put(dev, gpu, word); /* which frees none: that would wait for kernels of other communicators */
    return rv;
}

/* Why the ranks' kernels cannot wait for each other; NULL: they can. The same on all ranks, once the team is set up. */
static const char *find_obstacle(const coll_gpusym_engine_t *e)
{
    const coll_gpusym_team_t *t = e->team;
    if (e->apart || NULL == t) {
        return coll_gpusym_reason_doc((unsigned) e->reason_apart);
    }
    if (t->broken) {
        return "an earlier call on the communicator has failed";
    }
    if (coll_gpusym_team_is_part(t)) {
        return "the communicator spans several islands (hosts, or parts of one): calls on streams stay within one";
    }
    if (t->host.led || t->host.beside) {
        return "ranks share a GPU, and kernels of theirs would wait for each other: start one rank for each GPU";
    }
    if (t->reason >= 0 || !t->host.has_slot || COLL_GPUSYM_STEP_DONE != t->boot.step) {
        return coll_gpusym_reason_doc(t->reason >= 0 ? (unsigned) t->reason : (unsigned) COLL_GPUSYM_R_NO_DEVICE);
    }
    return t->host.all_reach ? NULL : "not all GPUs of the communicator reach each other";
}

/* An exchange of host memory between all ranks, as the team's set-up makes: no call is in flight. */
static int exchange(const coll_gpusym_engine_t *e, const void *mine, void *all, size_t bytes)
{
    const coll_gpusym_fallback_t *f = e->fallback;
    return f->saved.allgather(mine, (gpusym_count_t) bytes, MPI_BYTE, all, (gpusym_count_t) bytes, MPI_BYTE, f->comm,
                              f->saved.allgather_module);
}

/* Slots and memory of all ranks. */
static int set_up_slots(coll_gpusym_engine_t *e, coll_gpusym_on_stream_t *s)
{
    const uint32_t n = e->team->host.nranks;
    coll_gpusym_on_stream_offer_t mine, *all = malloc(n * sizeof *all);
    uint8_t ready, *votes = malloc(n);
    int rv = NULL != all && NULL != votes ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    if (MPI_SUCCESS == rv) {
        coll_gpusym_on_stream_offer(s, &mine);
        rv = exchange(e, &mine, all, sizeof mine);
    }
    if (MPI_SUCCESS == rv) {
        ready = coll_gpusym_on_stream_settle(s, all);
        rv = exchange(e, &ready, votes, 1);
    }
    for (uint32_t r = 0; r < n && MPI_SUCCESS == rv; r++) {
        char text[160];
        snprintf(text, sizeof text, "rank %u has no room in its heap (coll_gpusym_heap_size), or no memory", r);
        rv = votes[r] ? rv : fail_on(e, MPI_ERR_NO_MEM, "preparing for streams", text);
    }
    free(all);
    free(votes);
    return rv;
}

/* Collective. */
static int prepare_engine(coll_gpusym_engine_t *e, const gpusym_mem_t *mem)
{
    if (e->alone || NULL != e->on_stream) {
        return MPI_SUCCESS;
    }
    int rv = set_up_team(e, mem);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    const char *obstacle = find_obstacle(e);
    if (NULL != obstacle) {
        return fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, "calls on streams", obstacle);
    }
    coll_gpusym_on_stream_t *s = coll_gpusym_on_stream_create(e->team, e->fallback->comm);
    rv = NULL != s ? set_up_slots(e, s) : fail_on(e, MPI_ERR_NO_MEM, "preparing for streams", "no host memory");
    if (MPI_SUCCESS != rv) {
        coll_gpusym_on_stream_end(s);
        return rv;
    }
    s->ready = true;
    e->on_stream = s;
    return rv;
}

static int prepare(void *comm)
{
    coll_gpusym_engine_t *e = find_engine(comm);
    if (NULL == e) {
        return MPI_ERR_UNSUPPORTED_OPERATION;
    }
    if (NULL == gpusym_device_need()) {
        return fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, "calls on streams", "there is no GPU");
    }
    return prepare_engine(e, NULL);
}

/* ---- calls ---- */

static void make_args(const gpusym_stream_call_t *call, coll_gpusym_args_t *a)
{
    *a = (coll_gpusym_args_t){.coll = (enum coll_gpusym_coll) call->coll,
                              .sbuf = call->sbuf,
                              .rbuf = call->rbuf,
                              .scount = call->scount,
                              .rcount = call->rcount,
                              .scounts = GPUSYM_INT_COUNTS_OF(call->scounts),
                              .sdispls = GPUSYM_INT_DISPLS_OF(call->sdispls),
                              .rcounts = GPUSYM_INT_COUNTS_OF(call->rcounts),
                              .rdispls = GPUSYM_INT_DISPLS_OF(call->rdispls),
                              .sdtype = call->sdtype,
                              .rdtype = call->rdtype,
                              .op = call->op,
                              .root = call->root};
    if (NULL == a->sdtype) {
        a->sdtype = a->rdtype;
        a->scount = a->rcount;
    }
    if (COLL_GPUSYM_BCAST == a->coll) {
        a->sbuf = a->rbuf;
    }
}

/* Finds the memory of a call, which must be GPU memory. */
static int find_memory(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, coll_gpusym_buffers_t *b)
{
    const char *name = coll_gpusym_mpi_name(a->coll);
    gpusym_device_t looking = *gpusym_current.dev; /* at pointers, without an effect on them */
    looking.query = looking.look;
    if (!coll_gpusym_counts_valid(e->fallback->comm, a)) {
        return fail_on(e, MPI_ERR_COUNT, name, "a count is negative");
    }
    coll_gpusym_buffers_find(b, e->fallback->comm, &looking, a);
    if (GPUSYM_MEM_HOST == b->send.mem.kind || GPUSYM_MEM_HOST == b->recv.mem.kind) {
        return fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, name,
                       "a buffer is host memory: calls on streams take GPU memory, or pinned memory");
    }
    return MPI_SUCCESS;
}

/* Takes the stream of a handle for a call. */
static int take_stream(coll_gpusym_engine_t *e, const char *name, gpusym_gpu_t *gpu, void *handle, bool *captured)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    if (!coll_gpusym_on_stream_take(e->on_stream, gpu, handle)) {
        return fail_on(e, MPI_ERR_ARG, name, dev->error());
    }
    return GPUSYM_SUCCESS == dev->stream_captured(e->on_stream->stream, captured) ? MPI_SUCCESS : fail_device(e, name);
}

/* Whether a handle is a stream of that GPU, and captured. */
static int look_at_stream(coll_gpusym_engine_t *e, const char *name, gpusym_gpu_t *gpu, void *handle, bool *captured)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_stream_t *stream;
    if (GPUSYM_SUCCESS != dev->stream_wrap(gpu, handle, &stream)) {
        return fail_on(e, MPI_ERR_ARG, name, dev->error());
    }
    const bool known = GPUSYM_SUCCESS == dev->stream_captured(stream, captured);
    dev->stream_unwrap(stream);
    return known ? MPI_SUCCESS : fail_device(e, name);
}

/* A communicator of one rank: a copy, which may be of nothing, but has its place in the stream's order. queued: NULL
 * checks only, here and in what follows. */
static int call_alone(coll_gpusym_engine_t *e, const coll_gpusym_buffers_t *b, void *handle,
                      coll_gpusym_queued_t *queued)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const char *name = coll_gpusym_mpi_name(b->args->coll);
    coll_gpusym_copy_t copy;
    gpusym_gpu_t *gpu;
    bool captured;
    int rv;
    if (!coll_gpusym_segments_alone_run(b, &copy, &rv)) {
        return fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, name, coll_gpusym_reason_doc(COLL_GPUSYM_R_TYPE));
    }
    if (MPI_SUCCESS != rv || (0 == copy.bytes && !coll_gpusym_buffers_on_gpu(b))) {
        return MPI_SUCCESS != rv ? fail_on(e, rv, name, "more is sent than received") : rv;
    }
    if (GPUSYM_SUCCESS != dev->gpu_open(coll_gpusym_buffers_where(b), &gpu)) {
        return fail_device(e, name);
    }
    if (NULL == queued) {
        return look_at_stream(e, name, gpu, handle, &captured);
    }
    if (NULL == e->on_stream) {
        e->on_stream = coll_gpusym_on_stream_create_alone(gpu);
        e->host_only = false;
    }
    if (NULL == e->on_stream) {
        return fail_on(e, MPI_ERR_NO_MEM, name, "no memory");
    }
    rv = take_stream(e, name, gpu, handle, &queued->captured);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    if (GPUSYM_SUCCESS != coll_gpusym_on_stream_copy(e->on_stream, b->args->coll, &copy, queued->captured)) {
        return fail_device(e, name);
    }
    queued->any = true;
    return MPI_SUCCESS;
}

/* What has become of the calls so far. */
static int find_failure(coll_gpusym_engine_t *e, const char *what)
{
    static const char *const texts[] = {
        [GPUSYM_STATUS_ABORTED] = "a rank has died, or the GPU reports an error",
        [GPUSYM_STATUS_TIMEOUT] = "its kernel has waited for a rank for longer than coll_gpusym_timeout",
        [GPUSYM_STATUS_NO_MULTICAST] = "a kernel cannot run on this GPU",
        [GPUSYM_STATUS_MISMATCH] =
            "a rank has queued another call, one of other lengths, or one on memory that is not registered as this "
            "rank's is: all ranks queue the same calls in the same order",
        [GPUSYM_STATUS_PEER] = "a rank has failed before"};
    char text[384];
    int rank;
    const uint32_t status = coll_gpusym_on_stream_failed(e->on_stream, &rank);
    const int rv = coll_gpusym_on_stream_code(e->on_stream, status, rank);
    if (MPI_SUCCESS == rv || COLL_GPUSYM_ON_STREAM_REVOKED == rank) {
        return MPI_SUCCESS == rv ? rv : fail_on(e, rv, what, "the communicator has been revoked");
    }
    snprintf(text, sizeof text,
             "an earlier call on a stream has failed, and with it all later ones of the communicator: "
             "%s",
             status < sizeof texts / sizeof texts[0] ? texts[status] : "the GPU's word is not valid");
    if (rank >= 0) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, " (rank %d)", rank);
    }
    return fail_on(e, rv, what, text);
}

/* Queues a call of several ranks. */
static int call_team(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, const coll_gpusym_buffers_t *b, void *handle,
                     coll_gpusym_queued_t *queued)
{
    const char *name = coll_gpusym_mpi_name(a->coll);
    coll_gpusym_segments_t k = {.args = a, .team = e->team, .where = *coll_gpusym_buffers_where(b)};
    bool captured;
    int rv = find_failure(e, name);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    coll_gpusym_segments_init(&k, b);
    if (k.reason >= 0) {
        return fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, name, coll_gpusym_reason_doc((unsigned) k.reason));
    }
    if (!coll_gpusym_on_stream_serves(&k)) {
        return fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, name, "there are no kernels for it on streams");
    }
    if (k.even) {
        coll_gpusym_segments_settle(&k, true);
    }
    if (0 != coll_gpusym_segments_scratch_bytes(&k)) {
        return fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, name,
                       "the elements have gaps, or are reduced and scattered in place in parts of different lengths: "
                       "calls on streams take them contiguous, and such parts out of place");
    }
    if (0 == k.bytes && k.exact) { /* on all ranks */
        return MPI_SUCCESS;
    }
    if (NULL == queued) {
        return look_at_stream(e, name, e->team->host.gpu, handle, &captured);
    }
    rv = take_stream(e, name, e->team->host.gpu, handle, &queued->captured);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    if (GPUSYM_SUCCESS != coll_gpusym_on_stream_queue(e->on_stream, &k, queued->captured, queued->tells)) {
        return fail_device(e, name);
    }
    queued->any = true;
    return MPI_SUCCESS;
}

/* Prepares a communicator at its first call, which waits for its ranks; not while the stream is captured. */
static int prepare_late(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, const coll_gpusym_buffers_t *b,
                        void *handle)
{
    const char *name = coll_gpusym_mpi_name(a->coll);
    gpusym_gpu_t *gpu;
    bool captured;
    if (GPUSYM_SUCCESS != gpusym_current.dev->gpu_open(coll_gpusym_buffers_where(b), &gpu)) {
        return fail_device(e, name);
    }
    const int rv = look_at_stream(e, name, gpu, handle, &captured);
    if (MPI_SUCCESS != rv) {
        return rv;
    }
    return captured
               ? fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, name,
                         "the communicator's first call on a stream is captured: call gpusym_stream_prepare before")
               : prepare_engine(e, coll_gpusym_buffers_where(b));
}

/* Queues a call on the stream of a handle, or checks it. *queued: what has become of it. */
static int queue_call(coll_gpusym_engine_t *e, const coll_gpusym_args_t *a, void *handle, coll_gpusym_queued_t *queued)
{
    coll_gpusym_buffers_t b;
    if (NULL == gpusym_device_need()) {
        return fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, coll_gpusym_mpi_name(a->coll), "there is no GPU");
    }
    int rv = find_memory(e, a, &b);
    if (MPI_SUCCESS == rv && !e->alone && NULL == e->on_stream) {
        rv = prepare_late(e, a, &b, handle);
    }
    if (MPI_SUCCESS == rv) {
        rv = e->alone ? call_alone(e, &b, handle, queued) : call_team(e, a, &b, handle, queued);
    }
    if (NULL != queued && queued->any) {
        queued->number = e->on_stream->queued;
        queued->gpu = e->on_stream->gpu;
    }
    return rv;
}

/* Both of `call` and of `check`. */
static int take_call(void *comm, const gpusym_stream_call_t *c, void *stream, coll_gpusym_queued_t *queued)
{
    coll_gpusym_engine_t *e = find_engine(comm);
    coll_gpusym_args_t a;
    if (NULL == e) {
        return MPI_ERR_UNSUPPORTED_OPERATION;
    }
    if (c->coll >= GPUSYM_COLL_COUNT) {
        return fail_on(e, MPI_ERR_ARG, "a call on a stream", "there is no such collective");
    }
    make_args(c, &a);
    return queue_call(e, &a, stream, queued);
}

static int call(void *comm, const gpusym_stream_call_t *c, void *stream)
{
    coll_gpusym_queued_t queued = {.handle = stream};
    return take_call(comm, c, stream, &queued);
}

static int check(void *comm, const gpusym_stream_call_t *c, void *stream)
{
    return take_call(comm, c, stream, NULL);
}

static uint64_t place(void *comm)
{
    return gpusym_comm_context(comm);
}

/* ---- persistent requests ---- */

/* One of ours, *comm: its communicator. NULL: why says the reason. */
static coll_gpusym_request_t *find_request(void *request, const char *what, void **comm)
{
    coll_gpusym_request_t *r = coll_gpusym_request_find(request);
    if (NULL == r) {
        (void) fail(MPI_ERR_REQUEST,
                    "%s: the request is not a persistent collective that gpusym serves: make it by MPI_Allreduce_init "
                    "or one of its kind, of GPU memory, with --mca coll gpusym",
                    what);
        return NULL;
    }
    *comm = r->call.run.engine->fallback->comm;
    return r;
}

static int start(void *request, void *stream, void **comm)
{
    static const char what[] = "gpusym_start_on_stream";
    coll_gpusym_request_t *r = find_request(request, what, comm);
    coll_gpusym_queued_t queued = {.tells = true, .handle = stream};
    if (NULL == r) {
        return MPI_ERR_REQUEST;
    }
    coll_gpusym_engine_t *e = r->call.run.engine;
    if (OMPI_REQUEST_INACTIVE != coll_gpusym_mpi_request(r)->req_state) {
        return fail_on(e, MPI_ERR_REQUEST, what, "the request is active: wait for it before it is started again");
    }
    const int rv = queue_call(e, &r->call.args, stream, &queued);
    if (MPI_SUCCESS == rv) {
        coll_gpusym_request_queued(r, &queued);
    }
    return rv;
}

/* Work that the stream gets from now on waits for a call. */
static int queue_wait(coll_gpusym_engine_t *e, const char *what, const coll_gpusym_queued_t *queued, void *handle)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_stream_t *stream;
    bool captured;
    int rv = MPI_SUCCESS;
    if (GPUSYM_SUCCESS != dev->stream_wrap(queued->gpu, handle, &stream)) {
        return fail_on(e, MPI_ERR_ARG, what, dev->error());
    }
    if (GPUSYM_SUCCESS != dev->stream_captured(stream, &captured)) {
        rv = fail_device(e, what);
    } else if (captured != queued->captured || (captured && handle != queued->handle)) {
        rv = fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, what,
                     "a start that is captured is waited for in its stream, in the same capture, and no other is "
                     "waited for in a capture");
    } else if (handle != queued->handle) {
        coll_gpusym_on_stream_follow(e->on_stream, stream, queued->number);
    }
    dev->stream_unwrap(stream);
    return rv;
}

static int wait(void *request, void *stream, void **comm)
{
    static const char what[] = "gpusym_wait_on_stream";
    coll_gpusym_request_t *r = find_request(request, what, comm);
    int rv = MPI_SUCCESS;
    if (NULL == r) {
        return MPI_ERR_REQUEST;
    }
    coll_gpusym_engine_t *e = r->call.run.engine;
    const coll_gpusym_queued_t *queued = coll_gpusym_request_on_stream(r);
    if (NULL == queued) {
        return fail_on(e, MPI_ERR_REQUEST, what,
                       "the request has not been started by gpusym_start_on_stream, or has been waited for");
    }
    if (queued->any) {
        rv = queue_wait(e, what, queued, stream);
    }
    if (MPI_SUCCESS == rv) {
        coll_gpusym_request_waited(r);
        rv = queued->any ? find_failure(e, what) : rv;
    }
    return rv;
}

static int failed(void *comm, int *error, int *rank)
{
    coll_gpusym_engine_t *e = find_engine(comm);
    *error = MPI_SUCCESS;
    *rank = -1;
    if (NULL == e) {
        return MPI_ERR_UNSUPPORTED_OPERATION;
    }
    if (NULL != e->on_stream) {
        coll_gpusym_on_stream_listen();
        *error = find_failure(e, "a call on a stream");
        (void) coll_gpusym_on_stream_failed(e->on_stream, rank);
        *rank = *rank < 0 ? -1 : *rank;
    }
    return MPI_SUCCESS;
}

/* ---- registered memory ---- */

/* The ranks exchange what they offer, and whether they have mapped it. The same on all ranks. */
static int agree_region(coll_gpusym_engine_t *e, coll_gpusym_region_t *region, const void *base, uint64_t bytes)
{
    static const char what[] = "gpusym_mem_register";
    const uint32_t n = e->team->host.nranks;
    coll_gpusym_region_offer_t mine, *offers = malloc(n * sizeof *offers);
    uint32_t bad, *votes = malloc(n * sizeof *votes);
    char text[256];
    int cause, rv = NULL != offers && NULL != votes ? MPI_SUCCESS : fail_on(e, MPI_ERR_NO_MEM, what, "no host memory");
    if (MPI_SUCCESS == rv) {
        coll_gpusym_region_offer(region, e->team, base, bytes, &mine);
        mine.why = 0 != coll_gpusym_on_stream_failed(e->on_stream, &cause) ? COLL_GPUSYM_REGION_FAILED : mine.why;
        rv = exchange(e, &mine, offers, sizeof mine);
    }
    for (uint32_t r = 0; r < n && MPI_SUCCESS == rv; r++) {
        snprintf(text, sizeof text, "the memory of rank %u cannot be registered: %s", r,
                 coll_gpusym_region_why(offers[r].why));
        rv = 0 == offers[r].why ? rv : fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, what, text);
    }
    if (MPI_SUCCESS == rv) {
        bad = coll_gpusym_region_map(region, e->team, offers);
        rv = exchange(e, &bad, votes, sizeof bad);
    }
    for (uint32_t r = 0; r < n && MPI_SUCCESS == rv; r++) {
        snprintf(text, sizeof text, "rank %u cannot map the memory of rank %u", r, votes[r] - 1);
        rv = 0 == votes[r] ? rv : fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, what, text);
    }
    free(offers);
    free(votes);
    return rv;
}

static int register_region(coll_gpusym_engine_t *e, const void *base, uint64_t bytes, int *handle)
{
    coll_gpusym_on_stream_t *s = e->on_stream;
    coll_gpusym_region_t *region = coll_gpusym_regions_add(&s->regions);
    char text[96];
    if (NULL == region) {
        snprintf(text, sizeof text, "a communicator has at most %d registrations at a time", COLL_GPUSYM_REGIONS_MAX);
        return fail_on(e, MPI_ERR_NO_MEM, "gpusym_mem_register", text);
    }
    coll_gpusym_list_drain(e);
    const int rv = agree_region(e, region, base, bytes);
    if (MPI_SUCCESS == rv) {
        *handle = (int) region->number;
    } else {
        coll_gpusym_region_end(region, true); /* no call has used it */
    }
    return rv;
}

static int register_memory(void *comm, void *base, size_t bytes, int *handle)
{
    coll_gpusym_engine_t *e = find_engine(comm);
    gpusym_mem_t mem = {.kind = GPUSYM_MEM_NONE};
    if (NULL == e) {
        return MPI_ERR_UNSUPPORTED_OPERATION;
    }
    if (NULL == gpusym_device_need()) {
        return fail_on(e, MPI_ERR_UNSUPPORTED_OPERATION, "gpusym_mem_register", "there is no GPU");
    }
    if (0 != bytes) {
        gpusym_current.dev->look(base, &mem);
    }
    *handle = 0;
    const int rv = prepare_engine(e, coll_gpusym_on_gpu(&mem) ? &mem : NULL);
    return MPI_SUCCESS == rv && !e->alone ? register_region(e, base, bytes, handle) : rv;
}

static int deregister_memory(void *comm, int handle)
{
    coll_gpusym_engine_t *e = find_engine(comm);
    coll_gpusym_region_t *region = NULL;
    if (NULL == e) {
        return MPI_ERR_UNSUPPORTED_OPERATION;
    }
    if (e->alone) { /* which registers nothing */
        return 0 == handle ? MPI_SUCCESS : fail_on(e, MPI_ERR_ARG, "gpusym_mem_deregister", "there is no such handle");
    }
    if (NULL != e->on_stream && handle > 0) {
        region = coll_gpusym_regions_get(&e->on_stream->regions, (uint32_t) handle);
    }
    if (NULL == region) {
        return fail_on(e, MPI_ERR_ARG, "gpusym_mem_deregister", "there is no such handle");
    }
    coll_gpusym_on_stream_deregister(e->on_stream, region);
    return MPI_SUCCESS;
}

static const gpusym_streams_t streams = {.version = GPUSYM_STREAMS_VERSION,
                                         .bytes = sizeof(gpusym_streams_t),
                                         .prepare = prepare,
                                         .call = call,
                                         .check = check,
                                         .place = place,
                                         .start = start,
                                         .wait = wait,
                                         .failed = failed,
                                         .register_memory = register_memory,
                                         .deregister_memory = deregister_memory,
                                         .why = tell_why};

void coll_gpusym_streams_open(void)
{
    gpusym_streams_offer(&streams);
}

void coll_gpusym_streams_close(void)
{
    gpusym_streams_offer(NULL);
}
