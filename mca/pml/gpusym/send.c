/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Sends from device memory, and from host memory to a receiver of device memory.
 *
 * Direct: the data stay where they are until the receiver has copied them. An RTS goes by the PML and does the
 * matching (p2p/send_desc.h). Data in host memory are sent in pieces, or pushed if they are pinned.
 * Staged: the data are packed into host memory, which the PML sends as bytes. So the message is an ordinary one, for
 * receivers of any kind, with gpusym or without it. One from host memory is left to the PML as it is.
 */
#include "mca/pml/gpusym/send.h"

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/ompi/tags.h"
#include "mca/pml/gpusym/counters.h"
#include "mca/pml/gpusym/fetch.h"
#include "mca/common/gpusym/gpus.h"
#include "mca/pml/gpusym/pack.h"
#include "mca/pml/gpusym/params.h"
#include "mca/pml/gpusym/report.h"
#include "mca/pml/gpusym/request.h"
#include "tuning/copy.h"
#include "tuning/pack.h"

typedef pml_gpusym_request_t request_t;

/* Messages up to this size, in bytes, are buffered if nobody receives them. Large ones wait, as in the PML. */
#define EAGER_MAX 8192u
/* How long nobody has received them then, in ns. One that the PML has, and does not send eagerly, needs the sender once
 * more when its receiver has acknowledged it: the sender should not have left MPI by then. */
#define BUFFER_AFTER 10000u
#define BUFFER_LONG_AFTER 100000u
/* Sends that may wait for such an acknowledgement: ob1 of Open MPI 5.0.7 stands still with 20,000. */
#define BUFFERED_LONG_MAX 64u
/* Messages that go through pipelines to a peer that could not map our memory, before one tries that again. */
#define PIPED 16u
/* Messages of memory that peers cannot map, up to this size, are copied once more on the GPU, into memory that they can
 * map. Longer ones, and those for which no such memory is left, go through pipelines, whose pieces are copied while
 * others are fetched. */
#define COPIED_MAX (4u << 20)
/* Up to this size the receiver's GPU waits for that copy: of longer ones what that saves is little, and with a signal
 * behind them a slab of scratch memory has room for one in place of two. */
#define SIGNALLED_MAX (2u << 20)

/* What has become of a message that goes by RTS. */
typedef enum {
    DONE,   /* it is in flight or complete, or will end in a step */
    STAGE,  /* it is to be staged: its receiver knows nothing of it */
    FAILED, /* with an MPI error code: its receiver knows nothing of it, and nothing is held for it */
} outcome_t;

/* Ends a send with an MPI error code. */
static void end_send(request_t *r, int rv)
{
    ompi_status_public_t *status = &pml_gpusym_mpi_request(r)->req_status;

    status->MPI_SOURCE = ompi_comm_rank(r->base.req_comm);
    status->MPI_TAG = r->base.req_tag;
    status->MPI_ERROR = rv;
    status->_ucount = r->layout.bytes;
    pml_gpusym_request_complete(r);
}

/* ---- failures ---- */

/* Open MPI has told of one on another host. */
static int report_dead(const request_t *r)
{
    const mca_pml_base_request_t *b = &r->base;
    return NULL == r->peer
               ? GPUSYM_ERR_PROC_FAILED
               : pml_gpusym_report_dead(b->req_comm, b->req_peer, b->req_tag, gpusym_peer_pid(r->peer->pages));
}

/* Whether the PML has sent the RTS. It never will where the receiver has died with its queue full: it keeps that
 * request, and what becomes of the message is up to us. */
static bool rts_is_out(request_t *r)
{
    if (!pml_gpusym_inner_is_complete(r) && !pml_gpusym_peer_lives(r)) {
        pml_gpusym_request_abandon(r);
    }
    return pml_gpusym_inner_is_complete(r);
}

/* Of a send that has completed: whether the PML still sends, or the receiver still needs the entry. */
static bool step_rest(request_t *rest)
{
    int status;
    const int state = gpusym_send_desc_state(rest->index, &status);

    if (!rts_is_out(rest) || (state >= 0 && GPUSYM_SEND_DESC_DONE != state && pml_gpusym_peer_lives(rest))) {
        return true;
    }
    gpusym_send_desc_free(rest->index);
    gpusym_pipeline_buffer_put(&rest->buffer);
    pml_gpusym_request_free_inner(rest);
    pml_gpusym_bounce_put(&rest->bounce);
    pml_gpusym_request_put(rest);
    return false;
}

static gpusym_offer_t make_offer(const request_t *r)
{
    return (gpusym_offer_t){.context = gpusym_comm_context(r->base.req_comm),
                            .tag = r->base.req_tag,
                            .to = r->peer->slot,
                            .bytes = r->layout.bytes,
                            .gpu = -1};
}

/* Tells the receiver, by an RTS without data, that a message will not come. Nothing of it has been sent. */
static void tell_failure(request_t *r)
{
    request_t *rest = NULL != r->peer ? pml_gpusym_request_copy(r) : NULL;
    const mca_pml_base_request_t *b = &r->base;

    if (NULL == rest) {
        return;
    }
    gpusym_offer_t o = make_offer(r);
    o.kind = GPUSYM_SEND_DESC_FAILED;
    if (GPUSYM_SUCCESS != gpusym_send_desc_offer(&o, NULL, &rest->index, rest->rts)) {
        pml_gpusym_request_put(rest);
        return;
    }
    if (OMPI_SUCCESS != pml_gpusym_host.pml_isend(rest->rts, GPUSYM_RTS, MPI_BYTE, b->req_peer, b->req_tag,
                                                  MCA_PML_BASE_SEND_STANDARD, b->req_comm, &rest->inner)) {
        rest->inner = NULL;
        (void) gpusym_send_desc_withdraw(rest->index);
        pml_gpusym_request_put(rest);
        return;
    }
    pml_gpusym_request_enlist(rest, step_rest);
}

/* ---- through host memory ---- */

/* Whether a send may complete before its receiver has the data. */
static bool can_buffer(const request_t *r)
{
    return r->layout.bytes <= EAGER_MAX && MCA_PML_BASE_SEND_SYNCHRONOUS != r->mode;
}

/* Since it was offered, and since the receiver, who takes one message after the other, has ended another one. */
static bool is_time(const request_t *r, uint64_t after)
{
    const uint64_t active = NULL != r->peer ? __atomic_load_n(&r->peer->active, __ATOMIC_RELAXED) : 0;
    return pml_gpusym_request_now() > (active > r->offered ? active : r->offered) + after;
}

/* Whether the PML still sends. */
static bool step_staged(request_t *r)
{
    const bool complete = pml_gpusym_inner_is_complete(r);

    if (!complete && !pml_gpusym_peer_lives(r)) {
        pml_gpusym_request_abandon(r);
        end_send(r, report_dead(r));
        return false;
    }
    if (complete) {
        end_send(r, r->inner->req_status.MPI_ERROR);
        return false;
    }
    if (r->eager && is_time(r, BUFFER_LONG_AFTER) && pml_gpusym_requests_abandoned() < BUFFERED_LONG_MAX) {
        pml_gpusym_request_abandon(r); /* the data are no longer in the buffer */
        end_send(r, MPI_SUCCESS);
        return false;
    }
    return true;
}

/* Packs the data into host memory, and has the PML send them by a tag. Returns an MPI error code. */
static int send_bytes(request_t *r, int tag, mca_pml_base_send_mode_t mode)
{
    const mca_pml_base_request_t *b = &r->base;

    if (!pml_gpusym_bounce_get(&r->bounce, r->gpu, r->layout.bytes)) {
        tell_failure(r);
        return pml_gpusym_report_memory(b->req_comm, b->req_peer, b->req_tag, r->layout.bytes);
    }
    if (GPUSYM_SUCCESS != pml_gpusym_pack(r->gpu, &r->layout, r->bounce.p, b->req_addr, r->layout.bytes)) {
        tell_failure(r);
        return pml_gpusym_report_gpu(b->req_comm, b->req_peer, b->req_tag);
    }
    const int rv = pml_gpusym_host.pml_isend(r->bounce.p, r->layout.bytes, MPI_BYTE, b->req_peer, tag, mode,
                                             b->req_comm, &r->inner);
    if (OMPI_SUCCESS != rv) {
        r->inner = NULL;
        return rv;
    }
    pml_gpusym_count(PML_GPUSYM_SENT_STAGED);
    return MPI_SUCCESS;
}

/* Has the PML send a message of host memory as it is. Returns an MPI error code. */
static int send_ordinary(request_t *r)
{
    const mca_pml_base_request_t *b = &r->base;
    const int rv = pml_gpusym_host.pml_isend(b->req_addr, b->req_count, b->req_datatype, b->req_peer, b->req_tag,
                                             r->mode, b->req_comm, &r->inner);
    r->inner = OMPI_SUCCESS == rv ? r->inner : NULL;
    return rv;
}

/* Returns an MPI error code; on success the request is in flight or complete. */
static int send_staged(request_t *r)
{
    const bool from_host = NULL == r->gpu;
    const int rv = from_host ? send_ordinary(r) : send_bytes(r, r->base.req_tag, r->mode);

    r->eager = !from_host && can_buffer(r);
    r->offered = r->eager ? gpusym_now_ns() : 0;
    if (MPI_SUCCESS == rv && step_staged(r)) {
        pml_gpusym_request_enlist(r, step_staged);
    }
    return rv;
}

/* ---- fetched by the receiver ---- */

/* Whether the copy into scratch memory is under way. When it has ended, the receiver is told. */
static bool is_filling(request_t *r)
{
    const int done = r->filling ? gpusym_copy_poll(&r->move.copy) : 1;

    if (r->filling && 0 != done) {
        r->filling = false;
        gpusym_send_desc_filled(r->index, done < 0 ? done : GPUSYM_SUCCESS);
    }
    return r->filling;
}

/* Returns the memory that a receiver may have fetched the message from. */
static void release_memory(request_t *r)
{
    while (r->filling && 0 == gpusym_copy_poll(&r->move.copy)) {
    }
    r->filling = false;
    if (0 != r->key) {
        gpusym_reg_put(r->key);
        r->key = 0;
    }
    if (NULL != r->scratch) {
        gpusym_scratch_put(gpusym_current.dev, r->gpu, r->scratch);
        r->scratch = NULL;
    }
}

static void release_desc(request_t *r)
{
    gpusym_send_desc_free(r->index);
    gpusym_pipeline_buffer_put(&r->buffer);
    release_memory(r);
}

/* Completes a send whose data are no longer in the buffer, although the receiver does not have them yet. The rest is
 * left to a request of its own. False: there is no memory for it, so that the receiver ends the send. */
static bool end_early(request_t *r)
{
    request_t *rest = pml_gpusym_request_copy(r);

    if (NULL == rest) {
        return false;
    }
    rest->inner = r->inner;
    rest->bounce = r->bounce;
    rest->buffer = r->buffer;
    memcpy(rest->rts, r->rts, sizeof rest->rts);
    r->inner = NULL;
    r->bounce.p = NULL;
    r->buffer.host = NULL;
    pml_gpusym_request_enlist(rest, step_rest);
    end_send(r, MPI_SUCCESS);
    return true;
}

static bool step_offered(request_t *r);
static const char *find_source(request_t *r);

/* Packs the data, and changes the offer: they are in the entry, or in shared memory. Returns an error of common.h;
 * GPUSYM_ERR_NOT_AVAILABLE: there is no room. */
static int change_offer(request_t *r)
{
    const gpusym_offer_t inside = {.kind = GPUSYM_SEND_DESC_INLINE, .gpu = -1};
    const bool in_entry = r->layout.bytes <= GPUSYM_SEND_DESC_ROOM - GPUSYM_SEND_DESC_NOTE;
    char data[GPUSYM_SEND_DESC_ROOM];

    int rc =
        in_entry ? GPUSYM_SUCCESS : gpusym_pipeline_buffer_get(gpusym_current.dev, NULL, r->layout.bytes, &r->buffer);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = pml_gpusym_pack(r->gpu, &r->layout, in_entry ? data : r->buffer.host, r->base.req_addr, r->layout.bytes);
    if (GPUSYM_SUCCESS == rc) {
        rc = in_entry ? gpusym_send_desc_change(r->index, &inside, data)
                      : gpusym_pipeline_buffer_change(r->index, &r->buffer);
    }
    if (GPUSYM_SUCCESS != rc) {
        gpusym_pipeline_buffer_put(&r->buffer);
    }
    return rc;
}

/* A small message that nobody has claimed for a while becomes one that is buffered, so that two processes may send to
 * each other before they receive. Whether the send goes on. */
static bool buffer_data(request_t *r)
{
    const int rc = change_offer(r);

    if (GPUSYM_ERR_NOT_AVAILABLE == rc) {
        r->offered = pml_gpusym_request_now(); /* other messages have all the room: it is tried again */
        return true;
    }
    r->eager = false; /* tried once */
    if (GPUSYM_SUCCESS != rc) {
        return true; /* the receiver has claimed it, or the GPU reports an error, which it will find */
    }
    release_memory(r);
    pml_gpusym_count(PML_GPUSYM_SENT_BUFFERED);
    r->completes_early = true;
    return !end_early(r);
}

/* A pipeline has ended. */
static bool step_pipeline_ended(request_t *r)
{
    if (!pml_gpusym_pipeline_is_judged(r)) {
        return true;
    }
    end_send(r, GPUSYM_SUCCESS == r->pipeline.status
                    ? MPI_SUCCESS
                    : pml_gpusym_report_pipeline(r, r->base.req_peer, r->base.req_tag));
    return false;
}

/* Whether the message is still on its way through a pipeline. */
static bool step_piped(request_t *r)
{
    int status;

    if (!rts_is_out(r)) {
        return true;
    }
    if (!pml_gpusym_peer_lives(r)) {
        gpusym_pipeline_fail(&r->pipeline, GPUSYM_ERR_UNREACHABLE);
    }
    if (!gpusym_pipeline_poll(&r->pipeline, &status)) {
        return true;
    }
    release_desc(r);
    r->since = gpusym_now_ns();
    r->step = step_pipeline_ended;
    return step_pipeline_ended(r);
}

/* Packs what was offered as a box. Returns the GPU that has the data; NULL: the host. *status: an error, which the
 * pipeline will tell both sides. */
static gpusym_gpu_t *pack_box(request_t *r, int *status)
{
    r->source = find_source(r);
    if (NULL != r->source) {
        return r->gpu;
    }
    *status = pml_gpusym_bounce_get(&r->bounce, r->gpu, r->layout.bytes) ? GPUSYM_SUCCESS : GPUSYM_ERR_NO_MEMORY;
    if (GPUSYM_SUCCESS == *status) {
        *status = pml_gpusym_pack(r->gpu, &r->layout, r->bounce.p, r->base.req_addr, r->layout.bytes);
        r->source = r->bounce.p;
    }
    return NULL;
}

/* Starts the pipeline that the receiver has asked for. Whether the send goes on. */
static bool start_pipeline(request_t *r)
{
    int status = GPUSYM_SUCCESS;
    gpusym_gpu_t *gpu = NULL == r->source ? pack_box(r, &status) : r->gpu;
    gpusym_pipeline_send(&r->pipeline, gpusym_current.dev, gpu, r->source, r->layout.bytes, r->index, true);
    r->pipeline.status = status;
    r->step = step_piped;
    return step_piped(r);
}

/* The receiver cannot map the memory; or not yet, since it has used no GPU so far. The next messages go through
 * pipelines without being asked for. Or it is host memory, which nobody can map. Whether the send goes on. */
static bool begin_pipeline(request_t *r)
{
    if (GPUSYM_SUCCESS != gpusym_send_desc_take_pipeline(r->index)) {
        return true;
    }
    if (NULL == r->gpu) {
        return start_pipeline(r);
    }
    __atomic_store_n(&r->peer->piped, PIPED, __ATOMIC_RELAXED);
    if (!r->peer->told) {
        r->peer->told = true;
        GPUSYM_LOG(2, "point-to-point: rank %d of %s cannot map this rank's memory: messages to it are sent in pieces",
                   r->base.req_peer, r->base.req_comm->c_name);
    }
    pml_gpusym_count(PML_GPUSYM_SENT_PIPED);
    pml_gpusym_count(PML_GPUSYM_UNMAPPED);
    return start_pipeline(r);
}

/* Tells the receiver how a push has ended, and goes on as before. */
static bool end_push(request_t *r, int status)
{
    gpusym_send_desc_pushed(r->index, status);
    r->step = step_offered;
    return true;
}

static bool step_pushing(request_t *r)
{
    const int done = gpusym_copy_poll(&r->move.copy);
    return 0 == done ? true : end_push(r, done < 0 ? done : GPUSYM_SUCCESS);
}

/* The receiver asks for the data to be copied into its memory. If that cannot be mapped, it copies them itself. */
static bool begin_push(request_t *r)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    gpusym_gpu_t *gpu = NULL != r->gpu ? r->gpu : gpusym_p2p_gpu_last();
    gpusym_push_t push;
    void *base;
    uint64_t size;

    int rc = gpusym_send_desc_take_push(r->index, &push);
    if (GPUSYM_ERR_NOT_AVAILABLE == rc) {
        return true; /* taken back */
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = gpusym_reg_map(dev, gpu, r->peer->pages, push.key, &base, &size);
    }
    if (GPUSYM_SUCCESS == rc && (push.bytes > size || push.off > size - push.bytes)) {
        rc = GPUSYM_ERR_CORRUPT;
    }
    if (GPUSYM_SUCCESS == rc) {
        const gpusym_copy_rows_t run = {
            .dst = (char *) base + push.off, .src = r->source, .width = push.bytes, .height = 1, .shared = true};
        rc = gpusym_copy_start_rows(dev, gpu, &run, &r->move.copy);
    }
    if (GPUSYM_SUCCESS != rc) {
        return end_push(r, rc);
    }
    pml_gpusym_count(PML_GPUSYM_SENT_PUSHED);
    r->step = step_pushing;
    return true;
}

/* Whether the receiver has not ended the send descriptor yet. */
static bool step_offered(request_t *r)
{
    int status;

    if (is_filling(r) || !rts_is_out(r)) {
        return true;
    }
    const int state = gpusym_send_desc_state(r->index, &status);
    if (state < 0) {
        release_desc(r);
        end_send(r, pml_gpusym_report_corrupt(r->base.req_comm, r->base.req_peer, r->base.req_tag));
        return false;
    }
    if (GPUSYM_SEND_DESC_PIPELINE_ASKED == state) {
        return begin_pipeline(r);
    }
    if (GPUSYM_SEND_DESC_PUSH_ASKED == state) {
        return begin_push(r);
    }
    if (GPUSYM_SEND_DESC_DONE == state) {
        __atomic_store_n(&r->peer->active, pml_gpusym_request_now(), __ATOMIC_RELAXED);
        release_desc(r);
        end_send(r, GPUSYM_SUCCESS == status
                        ? MPI_SUCCESS
                        : pml_gpusym_report_peer(r->base.req_comm, r->base.req_peer, r->base.req_tag,
                                                 gpusym_peer_pid(r->peer->pages)));
        return false;
    }
    if (r->completes_early && end_early(r)) {
        return false;
    }
    if (r->eager && GPUSYM_SEND_DESC_OFFERED == state && is_time(r, BUFFER_AFTER)) {
        return buffer_data(r);
    }
    if (!pml_gpusym_peer_lives(r)) {
        release_desc(r);
        end_send(r, report_dead(r));
        return false;
    }
    return true;
}

/* id: of the allocation; 0: not known. */
static bool register_memory(request_t *r, uint64_t id, const void *at, gpusym_offer_t *o, uint64_t bytes)
{
    return (0 != id && gpusym_reg_find(id, at, bytes, &o->key, &o->off)) ||
           GPUSYM_SUCCESS == gpusym_reg_get(gpusym_current.dev, r->gpu, at, bytes, &o->key, &o->off);
}

/* Offers a buffer with gaps as it is, as a box that the receiver reads. False: it is to be packed. */
static bool offer_box(request_t *r, gpusym_offer_t *o, gpusym_box_t *box)
{
    const char *at = (const char *) ((uintptr_t) r->base.req_addr + (uintptr_t) r->layout.lo);
    if (GPUSYM_LAYOUT_RUN == r->layout.kind || 0 != __atomic_load_n(&r->peer->piped, __ATOMIC_RELAXED) ||
        !gpusym_layout_box(&r->layout, box) ||
        !gpusym_tuning_pack_box(r->layout.bytes, box->bytes, !pml_gpusym_peer_is_self(r->peer)) ||
        !register_memory(r, r->id, at, o, r->layout.span)) {
        return false;
    }
    o->kind = GPUSYM_SEND_DESC_MAPPED;
    o->flags = PML_GPUSYM_OFFER_BOX;
    r->key = o->key;
    r->source = NULL;
    return true;
}

static outcome_t stage(const request_t *r, enum pml_gpusym_counter reason)
{
    if (NULL != r->gpu) {
        pml_gpusym_count(reason);
    }
    return STAGE;
}

/* Where the packed data are on the GPU: the buffer itself, or scratch memory into which they are packed. NULL: there is
 * none, so the message is staged. */
static const char *find_source(request_t *r)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    if (gpusym_layout_is_one(dev, &r->layout, r->base.req_addr)) {
        return (const char *) r->base.req_addr + r->layout.lo;
    }
    if (GPUSYM_SUCCESS != gpusym_scratch_get(dev, r->gpu, r->layout.bytes, &r->scratch)) {
        r->scratch = NULL;
        return NULL;
    }
    if (GPUSYM_SUCCESS != gpusym_layout_pack(dev, r->gpu, &r->layout, r->scratch, r->base.req_addr, r->layout.bytes)) {
        gpusym_scratch_put(dev, r->gpu, r->scratch);
        r->scratch = NULL;
        return NULL;
    }
    return r->scratch;
}

/* Begins to copy the data into scratch memory, with a signal behind them if it is not 0. False: they stay where they
 * are. */
static bool begin_filling(request_t *r, uint32_t signal)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const uint64_t room = 0 != signal ? GPUSYM_SIGNAL_OFF(r->layout.bytes) + GPUSYM_SIGNAL_BYTES : r->layout.bytes;

    if (NULL != r->scratch || r->layout.bytes > COPIED_MAX) {
        return false;
    }
    if (GPUSYM_SUCCESS != gpusym_scratch_get_part(dev, r->gpu, room, &r->scratch)) {
        r->scratch = NULL;
        return false;
    }
    const gpusym_copy_rows_t rows = {.dst = r->scratch,
                                     .src = r->source,
                                     .width = r->layout.bytes,
                                     .height = 1,
                                     .local = true,
                                     .shared = true,
                                     .does = 0 != signal ? GPUSYM_COPY_SIGNALS : 0,
                                     .signal = signal};
    gpusym_p2p_gpu_review(r->gpu);
    if (GPUSYM_SUCCESS != gpusym_copy_start_rows(dev, r->gpu, &rows, &r->move.copy)) {
        gpusym_scratch_put(dev, r->gpu, r->scratch);
        r->scratch = NULL;
        return false;
    }
    r->filling = true;
    return true;
}

/* Returns the number of a signal: not 0, and another one each time, for as many as there are. */
static uint32_t next_signal(void)
{
    static uint32_t last; /* atomic */
    const uint32_t signal = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return 0 != signal ? signal : next_signal();
}

/* Offers a copy of the data, which is being made: the receiver, which gets the RTS meanwhile, waits for it. */
static bool offer_copy(request_t *r, gpusym_offer_t *o, pml_gpusym_note_t *note)
{
    note->signal = r->layout.bytes <= SIGNALLED_MAX ? next_signal() : 0;
    if (!begin_filling(r, note->signal)) {
        return false;
    }
    if (!register_memory(r, gpusym_scratch_id(r->scratch), r->scratch, o, r->layout.bytes)) {
        release_memory(r);
        return false;
    }
    o->flags = PML_GPUSYM_OFFER_FILLING;
    return true;
}

/* Fills the place of the data in an offer: memory that the peer can map, their own or a copy, or else a pipeline.
 * False: the message is staged, since a small one is buffered if nobody receives it. */
static bool offer_memory(request_t *r, gpusym_offer_t *o, pml_gpusym_note_t *note)
{
    if (NULL == r->source) {
        return false;
    }
    const uint32_t piped = __atomic_load_n(&r->peer->piped, __ATOMIC_RELAXED);
    if (0 != piped) {
        __atomic_store_n(&r->peer->piped, piped - 1, __ATOMIC_RELAXED); /* about right if several threads send */
    }
    const uint64_t id = NULL != r->scratch ? gpusym_scratch_id(r->scratch) : r->id;
    if (0 == piped && (register_memory(r, id, r->source, o, r->layout.bytes) || offer_copy(r, o, note))) {
        o->kind = GPUSYM_SEND_DESC_MAPPED;
        r->key = o->key;
        return true;
    }
    o->kind = GPUSYM_SEND_DESC_PIPELINE;
    return r->layout.bytes > EAGER_MAX;
}

/* Sends the RTS of an offer, and runs the first step. */
static outcome_t send_rts(request_t *r, pml_gpusym_step_t *step, int *rv)
{
    const mca_pml_base_request_t *b = &r->base;
    /* Synchronous: that the receiver ends the send descriptor is as good as the PML's acknowledgement. */
    const mca_pml_base_send_mode_t mode =
        MCA_PML_BASE_SEND_SYNCHRONOUS == r->mode ? MCA_PML_BASE_SEND_STANDARD : r->mode;
    *rv =
        pml_gpusym_host.pml_isend(r->rts, GPUSYM_RTS, MPI_BYTE, b->req_peer, b->req_tag, mode, b->req_comm, &r->inner);
    if (OMPI_SUCCESS != *rv) {
        r->inner = NULL;
        (void) gpusym_send_desc_withdraw(r->index);
        release_memory(r);
        return FAILED;
    }
    r->step = step;
    /* Of several messages the copies share launches. One alone is launched now, while its RTS is on its way, and
     * is in its place when this call returns: its receiver then needs this process no more. */
    if (r->filling && pml_gpusym_requests_idle()) {
        gpusym_copy_flush(false);
    }
    while (pml_gpusym_requests_idle() && is_filling(r)) {
    }
    if (step(r)) {
        pml_gpusym_request_enlist(r, r->step); /* the receiver may already have asked for another one */
    }
    return DONE;
}

/* Has the PML send the data, in r->bounce, that an RTS has announced. Their receiver waits for them: if the PML
 * does not take them now, the next step tries again, unless the receiver has died. Whether the send goes on. */
static bool step_announced(request_t *r)
{
    const mca_pml_base_request_t *b = &r->base;
    const mca_pml_base_send_mode_t mode =
        MCA_PML_BASE_SEND_SYNCHRONOUS == r->mode ? r->mode : MCA_PML_BASE_SEND_STANDARD;
    uint32_t number;

    (void) pml_gpusym_follow_read(r->rts, &number);
    if (OMPI_SUCCESS != pml_gpusym_host.pml_isend(r->bounce.p, GPUSYM_RTS, MPI_BYTE, b->req_peer,
                                                  pml_gpusym_follow_tag(number), mode, b->req_comm, &r->inner)) {
        r->inner = NULL;
        if (pml_gpusym_peer_lives(r)) {
            return true;
        }
        end_send(r, report_dead(r));
        return false;
    }
    r->step = step_staged;
    return step_staged(r);
}

/* The same once the PML has sent the RTS. */
static bool step_announcing(request_t *r)
{
    if (!rts_is_out(r)) {
        return true;
    }
    pml_gpusym_request_free_inner(r);
    r->step = step_announced;
    return step_announced(r);
}

/* The table is full: the RTS names no entry, and the data follow. */
static outcome_t send_following(request_t *r, const void *data, int *rv)
{
    static uint32_t numbers; /* atomic */
    const mca_pml_base_request_t *b = &r->base;
    const uint32_t number = __atomic_fetch_add(&numbers, 1, __ATOMIC_RELAXED);

    pml_gpusym_follow_write(r->rts, number);
    if (!pml_gpusym_bounce_get(&r->bounce, r->gpu, GPUSYM_RTS)) {
        *rv = pml_gpusym_report_memory(b->req_comm, b->req_peer, b->req_tag, GPUSYM_RTS);
        return FAILED;
    }
    memcpy(r->bounce.p, data, GPUSYM_RTS);
    *rv = pml_gpusym_host.pml_isend(r->rts, GPUSYM_RTS, MPI_BYTE, b->req_peer, b->req_tag, MCA_PML_BASE_SEND_STANDARD,
                                    b->req_comm, &r->inner);
    if (OMPI_SUCCESS != *rv) {
        r->inner = NULL;
        return FAILED;
    }
    r->eager = false;
    r->step = step_announcing;
    if (step_announcing(r)) {
        pml_gpusym_request_enlist(r, r->step);
    }
    return DONE;
}

/* A message of the size of an RTS, from host memory, or that would be staged: a receiver takes it for one. The
 * data are in the entry. */
static outcome_t send_inline(request_t *r, int *rv)
{
    char data[GPUSYM_RTS];
    const mca_pml_base_request_t *b = &r->base;
    gpusym_offer_t o = make_offer(r);

    if (NULL == r->gpu) {
        gpusym_layout_gather(&r->layout, b->req_addr, data, sizeof data);
    } else if (GPUSYM_SUCCESS != pml_gpusym_pack(r->gpu, &r->layout, data, b->req_addr, sizeof data)) {
        tell_failure(r);
        *rv = pml_gpusym_report_gpu(b->req_comm, b->req_peer, b->req_tag);
        return FAILED;
    }
    o.kind = GPUSYM_SEND_DESC_INLINE;
    r->completes_early = MCA_PML_BASE_SEND_SYNCHRONOUS != r->mode;
    if (GPUSYM_SUCCESS != gpusym_send_desc_offer(&o, data, &r->index, r->rts)) {
        return send_following(r, data, rv);
    }
    return send_rts(r, step_offered, rv);
}

/* From host memory: pushed by this process's GPU if that reaches it, else in pieces. */
static outcome_t send_from_host(request_t *r, gpusym_offer_t *o, int *rv)
{
    r->source = (const char *) r->base.req_addr + r->layout.lo;
    /* short ones the receiver's copier takes out of a pipeline as soon */
    const bool pushed = r->layout.bytes > gpusym_tuning_copy_resident_max() && NULL != gpusym_p2p_gpu_last() &&
                        gpusym_p2p_gpu_reaches(r->source, r->layout.bytes);
    o->kind = pushed ? GPUSYM_SEND_DESC_PINNED : GPUSYM_SEND_DESC_PIPELINE;
    o->flags = PML_GPUSYM_OFFER_FROM_HOST;
    if (!gpusym_pipelines_ready() || GPUSYM_SUCCESS != gpusym_send_desc_offer(o, NULL, &r->index, r->rts)) {
        return STAGE;
    }
    gpusym_pipeline_send(&r->pipeline, gpusym_current.dev, NULL, r->source, r->layout.bytes, r->index, false);
    pml_gpusym_count(PML_GPUSYM_SENT_FROM_HOST);
    return send_rts(r, pushed ? step_offered : step_piped, rv);
}

/* Sends by RTS. Not to itself what is shorter than one: where the receive was posted first, ob1 cuts messages to
 * itself without telling so, and the RTS would not be recognized. */
static outcome_t send_direct(request_t *r, int *rv)
{
    gpusym_offer_t o = make_offer(r);
    pml_gpusym_note_t note = {.box = {0}};

    if (NULL == r->gpu && GPUSYM_RTS == r->layout.bytes) {
        return STAGE;
    }
    const bool is_short = r->layout.bytes < GPUSYM_RTS && pml_gpusym_peer_is_self(r->peer);
    if (is_short || MCA_PML_BASE_SEND_BUFFERED == r->mode) {
        return stage(r, is_short ? PML_GPUSYM_SHORT : PML_GPUSYM_BSEND);
    }
    if (NULL == r->gpu) {
        return send_from_host(r, &o, rv);
    }
    const bool is_box = offer_box(r, &o, &note.box);
    if (!is_box) {
        r->source = find_source(r);
    }
    if ((!is_box && !offer_memory(r, &o, &note)) ||
        GPUSYM_SUCCESS != gpusym_send_desc_offer(&o, 0 != o.flags ? &note : NULL, &r->index, r->rts)) {
        const bool unmapped = NULL != r->source && GPUSYM_SEND_DESC_PIPELINE == o.kind;
        release_memory(r);
        return stage(r, unmapped ? PML_GPUSYM_UNMAPPED : PML_GPUSYM_FULL);
    }
    if (GPUSYM_SEND_DESC_PIPELINE == o.kind) {
        gpusym_pipeline_send(&r->pipeline, gpusym_current.dev, r->gpu, r->source, r->layout.bytes, r->index, true);
        pml_gpusym_count(PML_GPUSYM_SENT_PIPED);
        pml_gpusym_count(PML_GPUSYM_UNMAPPED);
        return send_rts(r, step_piped, rv);
    }
    r->eager = can_buffer(r);
    r->offered = r->eager ? gpusym_now_ns() : 0;
    pml_gpusym_count(PML_GPUSYM_SENT_DIRECT);
    if (is_box) {
        pml_gpusym_count(PML_GPUSYM_SENT_UNPACKED);
    }
    return send_rts(r, step_offered, rv);
}

/* ---- entries ---- */

/* The peer, if it gets RTS messages. */
static pml_gpusym_peer_t *find_peer(int dst, int tag, struct ompi_communicator_t *comm)
{
    if ((tag < 0 && !gpusym_tags_exchanging(tag)) || GPUSYM_P2P_AUTO != gpusym_params.p2p) {
        return NULL;
    }
    pml_gpusym_peer_t *peer = pml_gpusym_peer(comm, dst);
    return NULL != peer && pml_gpusym_peer_decide(peer) ? peer : NULL;
}

/* The peer, if it receives into GPU memory what comes from host memory here. */
static pml_gpusym_peer_t *find_gpu_peer(int dst, int tag, struct ompi_communicator_t *comm)
{
    const pml_gpusym_peer_t *peer = pml_gpusym_peer(comm, dst);
    return NULL != peer && gpusym_send_descs_into_gpu(peer->slot) ? find_peer(dst, tag, comm) : NULL;
}

/* Begins one use of a request. An error ends a nonblocking send at once: MPI_Wait returns it. */
static int start_send(request_t *r)
{
    int rv = MPI_SUCCESS;
    if (NULL == r->gpu && GPUSYM_RTS != r->layout.bytes) {
        r->peer = find_gpu_peer(r->base.req_peer, r->base.req_tag, r->base.req_comm);
    }
    /* Data that would follow an RTS have a tag of ours. */
    const bool direct = NULL != r->peer && !gpusym_ft_hurt(r->base.req_comm);
    outcome_t outcome = direct ? send_direct(r, &rv) : stage(r, PML_GPUSYM_AWAY);
    if (STAGE == outcome && NULL != r->peer && GPUSYM_RTS == r->layout.bytes) {
        outcome = send_inline(r, &rv);
    }
    if (STAGE == outcome) {
        rv = send_staged(r);
    }
    if (MPI_SUCCESS != rv) {
        end_send(r, rv);
    }
    return MPI_SUCCESS;
}

bool pml_gpusym_send_takes_host(size_t count, const struct ompi_datatype_t *dtype, int dst, int tag,
                                mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, bool persistent)
{
    const size_t bytes = count * dtype->super.size;
    if (GPUSYM_RTS == bytes) {
        return NULL != find_peer(dst, tag, comm);
    }
    if (bytes <= GPUSYM_FROM_HOST_ABOVE || 0 == (dtype->super.flags & OPAL_DATATYPE_FLAG_NO_GAPS) ||
        MCA_PML_BASE_SEND_BUFFERED == mode || (tag < 0 && !gpusym_tags_exchanging(tag)) ||
        GPUSYM_P2P_AUTO != gpusym_params.p2p) {
        return false;
    }
    return persistent ? NULL != pml_gpusym_peer(comm, dst) : NULL != find_gpu_peer(dst, tag, comm);
}

/* A message for which there is no request: its GPU has failed, or there is no memory. */
static void give_up(int dst, int tag, struct ompi_communicator_t *comm)
{
    request_t *r = pml_gpusym_request_get(NULL, 0, MPI_BYTE, dst, tag, comm, false, NULL);
    if (NULL != r) {
        r->peer = find_peer(dst, tag, comm);
        tell_failure(r);
        pml_gpusym_request_put(r);
    }
}

static request_t *make_request(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                               mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, bool persistent,
                               const pml_gpusym_memory_t *memory)
{
    request_t *r = pml_gpusym_request_get(buf, count, dtype, dst, tag, comm, persistent, memory);
    if (NULL == r && !persistent) {
        give_up(dst, tag, comm);
    }
    if (NULL != r) {
        r->base.req_type = MCA_PML_REQUEST_SEND;
        r->mode = mode;
        r->peer = NULL != memory || GPUSYM_RTS == r->layout.bytes ? find_peer(dst, tag, comm) : NULL;
        r->start = start_send;
    }
    return r;
}

int pml_gpusym_send(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                    mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, const pml_gpusym_memory_t *memory)
{
    request_t *r = make_request(buf, count, dtype, dst, tag, mode, comm, false, memory);
    if (NULL == r) {
        return MPI_ERR_OTHER;
    }
    pml_gpusym_request_begin(r);
    (void) start_send(r);
    return pml_gpusym_request_wait(r, MPI_STATUS_IGNORE);
}

int pml_gpusym_isend(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                     mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm, const pml_gpusym_memory_t *memory,
                     struct ompi_request_t **request)
{
    request_t *r = make_request(buf, count, dtype, dst, tag, mode, comm, false, memory);
    if (NULL == r) {
        return MPI_ERR_OTHER;
    }
    *request = pml_gpusym_mpi_request(r);
    pml_gpusym_request_begin(r);
    return start_send(r);
}

int pml_gpusym_isend_init(const void *buf, size_t count, struct ompi_datatype_t *dtype, int dst, int tag,
                          mca_pml_base_send_mode_t mode, struct ompi_communicator_t *comm,
                          const pml_gpusym_memory_t *memory, struct ompi_request_t **request)
{
    request_t *r = make_request(buf, count, dtype, dst, tag, mode, comm, true, memory);
    if (NULL == r) {
        return MPI_ERR_OTHER;
    }
    *request = pml_gpusym_mpi_request(r);
    return OMPI_SUCCESS;
}
