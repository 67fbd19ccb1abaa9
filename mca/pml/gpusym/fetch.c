/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The receiver's side of a message that was announced by an RTS.
 *
 * The data are in the sender's entry; or in its GPU memory, which is mapped and copied from, or which the sender
 * pushes, as it does from pinned host memory; or they come through a pipeline, for which this process asks if it cannot
 * map that memory; or they follow as a message of the PML. Mapping may wait for the GPU: for kernels of collectives,
 * say. Those have been called by all ranks, and hold the launch tokens of all, so they end whatever this process waits
 * for.
 */
#include "mca/pml/gpusym/fetch.h"

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/ompi/complete.h"
#include "mca/common/ompi/tags.h"
#include "mca/pml/gpusym/counters.h"
#include "mca/common/gpusym/gpus.h"
#include "mca/pml/gpusym/host.h"
#include "mca/pml/gpusym/pack.h"
#include "mca/pml/gpusym/params.h"
#include "mca/pml/gpusym/report.h"
#include "tuning/copy.h"

typedef pml_gpusym_request_t request_t;

/* ---- RTS messages ---- */

bool pml_gpusym_is_rts(struct ompi_communicator_t *comm, const ompi_status_public_t *status, pml_gpusym_peer_t **peer)
{
    if (GPUSYM_RTS != status->_ucount || status->_cancelled || MPI_ANY_TAG == status->MPI_TAG) {
        return false;
    }
    *peer = pml_gpusym_peer(comm, status->MPI_SOURCE);
    return NULL != *peer && gpusym_send_descs_from((*peer)->pages);
}

/* No entry has this index. */
#define FOLLOWS 0xffffu

void pml_gpusym_follow_write(uint8_t rts[GPUSYM_RTS], uint32_t number)
{
    const uint16_t index = FOLLOWS;
    memcpy(rts, &index, sizeof index);
    memcpy(rts + 2, &number, sizeof number);
    rts[6] = 0;
}

bool pml_gpusym_follow_read(const uint8_t rts[GPUSYM_RTS], uint32_t *number)
{
    uint16_t index;
    memcpy(&index, rts, sizeof index);
    memcpy(number, rts + 2, sizeof *number);
    return FOLLOWS == index;
}

/* Messages between two ranks that follow at the same time have different tags: there is no room in memory for 2^29 of
 * them. */
int pml_gpusym_follow_tag(uint32_t number)
{
    return GPUSYM_TAG_FOLLOW_FIRST + (int) (number % GPUSYM_TAG_FOLLOW_NUMBERS);
}

/* ---- the end ---- */

static ompi_status_public_t *status_of(request_t *r)
{
    return NULL != r->outer ? &r->outer->req_status : &pml_gpusym_mpi_request(r)->req_status;
}

/* Receives of messages so large that they may be pushed, under way. Of several, some would be pushed and others pulled:
 * windows in both directions fell to 240 GB/s each way (64 MiB, 2 x H100), and all pulled reach 360. Atomic. */
static uint32_t large;

/* Ends the request with an MPI error code. */
static void end_receive(request_t *r, int rv)
{
    ompi_status_public_t *status = status_of(r);

    if (r->large) {
        r->large = false;
        __atomic_fetch_sub(&large, 1, __ATOMIC_RELAXED);
    }
    status->_ucount = r->desc.offer.bytes;
    status->MPI_ERROR = MPI_SUCCESS == rv && r->desc.offer.bytes > r->layout.bytes ? MPI_ERR_TRUNCATE : rv;
    if (NULL == r->outer) {
        pml_gpusym_request_complete(r);
        return;
    }
    ompi_request_t *outer = r->outer;
    pml_gpusym_request_free_inner(r);
    pml_gpusym_bounce_put(&r->bounce);
    pml_gpusym_request_put(r);
    gpusym_complete(outer);
}

/* Ends the send descriptor too. status: for the sender, an error of common.h. */
static void end_fetch(request_t *r, int status, int rv)
{
    gpusym_send_desc_end(&r->desc, status);
    end_receive(r, rv);
}

/* The bytes to be moved: what has been sent, if there is room for it. */
static size_t bytes_to_move(const request_t *r)
{
    return r->desc.offer.bytes < r->layout.bytes ? (size_t) r->desc.offer.bytes : r->layout.bytes;
}

/* Returns the MPI error code for one of the device, which is reported. */
static int code_of(request_t *r, int rc)
{
    const ompi_status_public_t *status = status_of(r);
    return GPUSYM_SUCCESS == rc ? MPI_SUCCESS
                                : pml_gpusym_report_gpu(r->base.req_comm, status->MPI_SOURCE, status->MPI_TAG);
}

/* Puts packed data in host memory into the buffer. Returns an MPI error code. */
static int put_data(request_t *r, const void *packed)
{
    const size_t bytes = bytes_to_move(r);
    void *buf = r->base.req_addr;

    if (0 == bytes) {
        return MPI_SUCCESS;
    }
    if (NULL == r->gpu || r->on_host) {
        return GPUSYM_SUCCESS == gpusym_layout_scatter(&r->layout, buf, packed, bytes) ? MPI_SUCCESS : MPI_ERR_OTHER;
    }
    gpusym_p2p_gpu_review(r->gpu);
    return code_of(r, pml_gpusym_unpack(r->gpu, &r->layout, buf, packed, bytes));
}

/* The same of packed data in r->scratch. */
static int put_scratch(request_t *r)
{
    return code_of(r, gpusym_layout_unpack(gpusym_current.dev, r->gpu, &r->layout, r->base.req_addr, r->scratch,
                                           bytes_to_move(r)));
}

/* ---- data that follow ---- */

static bool step_follow(request_t *r)
{
    const ompi_status_public_t *status = status_of(r);

    if (!REQUEST_COMPLETE(r->inner) && !pml_gpusym_peer_lives(r)) {
        (void) r->inner->req_cancel(r->inner, true);
        pml_gpusym_request_abandon(r);
        end_receive(r, pml_gpusym_report_dead(r->base.req_comm, status->MPI_SOURCE, status->MPI_TAG,
                                              gpusym_peer_pid(r->peer->pages)));
        return false;
    }
    if (!REQUEST_COMPLETE(r->inner)) {
        return true;
    }
    const int rv = r->inner->req_status.MPI_ERROR;
    r->bounce.used = r->bounce.size;
    end_receive(r, MPI_SUCCESS == rv ? put_data(r, r->bounce.p) : rv);
    return false;
}

/* The data come as a message of the PML. */
static bool receive_following(request_t *r)
{
    const ompi_status_public_t *status = status_of(r);
    const size_t bytes = r->desc.offer.bytes;

    pml_gpusym_bounce_put(&r->bounce); /* it held the RTS */
    pml_gpusym_request_free_inner(r);
    if (!pml_gpusym_bounce_reserve(&r->bounce, bytes)) {
        end_receive(r, pml_gpusym_report_memory(r->base.req_comm, status->MPI_SOURCE, status->MPI_TAG, bytes));
        return false;
    }
    const int rv =
        pml_gpusym_host.pml_irecv(r->bounce.p, bytes, MPI_BYTE, status->MPI_SOURCE,
                                  pml_gpusym_follow_tag((uint32_t) r->desc.number), r->base.req_comm, &r->inner);
    if (OMPI_SUCCESS != rv) {
        r->inner = NULL;
        end_receive(r, rv);
        return false;
    }
    pml_gpusym_count(PML_GPUSYM_RECEIVED_STAGED);
    r->since = 0;
    r->step = step_follow;
    return true;
}

/* ---- data that come in pieces ---- */

/* Whether the pieces are put together in the buffer. */
static bool is_assembled(const request_t *r)
{
    return r->on_host ? GPUSYM_LAYOUT_RUN == r->layout.kind
                      : gpusym_layout_is_one(gpusym_current.dev, &r->layout, r->base.req_addr);
}

/* Where the pieces are put together: the buffer, or memory that stands for it. Sets *gpu; NULL: host memory. Returns
 * NULL if there is no memory. */
static char *find_assembly(request_t *r, gpusym_gpu_t **gpu)
{
    *gpu = r->on_host ? NULL : r->gpu;
    if (is_assembled(r)) {
        return (char *) r->base.req_addr + r->layout.lo;
    }
    pml_gpusym_bounce_put(&r->bounce);
    if (NULL != *gpu) {
        if (GPUSYM_SUCCESS == gpusym_scratch_get(gpusym_current.dev, *gpu, bytes_to_move(r), &r->scratch)) {
            return r->scratch;
        }
        GPUSYM_LOG(2, "point-to-point: no GPU memory for the pieces of a message: they go to host memory: %s",
                   gpusym_current.dev->error());
        r->scratch = NULL;
        *gpu = NULL;
    }
    const bool there = pml_gpusym_bounce_reserve(&r->bounce, bytes_to_move(r));
    r->bounce.used = r->bounce.size;
    return there ? r->bounce.p : NULL;
}

/* A pipeline has ended. */
static bool step_pipeline_ended(request_t *r)
{
    const ompi_status_public_t *status = status_of(r);
    int rv = MPI_SUCCESS;

    if (!pml_gpusym_pipeline_is_judged(r)) {
        return true;
    }
    if (GPUSYM_SUCCESS != r->pipeline.status) {
        rv = pml_gpusym_report_pipeline(r, status->MPI_SOURCE, status->MPI_TAG);
    } else if (!is_assembled(r)) {
        rv = NULL != r->scratch ? put_scratch(r) : put_data(r, r->bounce.p);
    }
    if (NULL != r->scratch) {
        gpusym_scratch_put(gpusym_current.dev, r->gpu, r->scratch);
        r->scratch = NULL;
    }
    end_receive(r, rv);
    return false;
}

static bool step_pipeline(request_t *r)
{
    int status;

    if (!pml_gpusym_peer_lives(r)) {
        gpusym_pipeline_fail(&r->pipeline, GPUSYM_ERR_UNREACHABLE);
    }
    if (!gpusym_pipeline_poll(&r->pipeline, &status)) {
        return true;
    }
    r->since = gpusym_now_ns();
    r->step = step_pipeline_ended;
    return step_pipeline_ended(r);
}

static bool fetch_pieces(request_t *r)
{
    const ompi_status_public_t *status = status_of(r);
    gpusym_gpu_t *gpu;
    char *to = 0 == bytes_to_move(r) ? (char *) r->base.req_addr : find_assembly(r, &gpu);

    if (0 == bytes_to_move(r)) {
        gpu = NULL;
    } else if (NULL == to) {
        end_fetch(r, GPUSYM_ERR_NO_MEMORY,
                  pml_gpusym_report_memory(r->base.req_comm, status->MPI_SOURCE, status->MPI_TAG, bytes_to_move(r)));
        return false;
    }
    if (NULL != gpu) {
        gpusym_p2p_gpu_review(gpu);
    }
    gpusym_pipeline_receive(&r->pipeline, gpusym_current.dev, gpu, to, bytes_to_move(r), &r->desc, true);
    pml_gpusym_count(PML_GPUSYM_RECEIVED_PIPED);
    r->since = 0;
    r->step = step_pipeline;
    return step_pipeline(r);
}

/* ---- data that are copied from the sender's memory ---- */

/* done: as the move said, not 0. */
static bool end_move(request_t *r, int done)
{
    const ompi_status_public_t *status = status_of(r);
    end_fetch(r, done < 0 ? done : GPUSYM_SUCCESS,
              done < 0 ? pml_gpusym_report_gpu(r->base.req_comm, status->MPI_SOURCE, status->MPI_TAG) : MPI_SUCCESS);
    return false;
}

static bool step_move(request_t *r)
{
    const int done = pml_gpusym_move_poll(&r->move);
    return 0 == done ? true : end_move(r, done);
}

static bool is_box(const request_t *r)
{
    return GPUSYM_SEND_DESC_MAPPED == r->desc.offer.kind && 0 != (r->desc.offer.flags & PML_GPUSYM_OFFER_BOX);
}

static pml_gpusym_note_t read_note(const request_t *r)
{
    pml_gpusym_note_t note;
    memcpy(&note, (const char *) r->desc.room + GPUSYM_SEND_DESC_ROOM - sizeof note, sizeof note);
    return note;
}

/* Reads what the sender says of its box. Returns the bytes from its first to its last; 0: it is none. */
static uint64_t read_box(const request_t *r, gpusym_box_t *box)
{
    uint64_t span;
    *box = read_note(r).box;
    if (0 == box->bytes || 0 == box->n[0] || 0 == box->n[1]) {
        return 0;
    }
    const uint64_t rows = (r->desc.offer.bytes + box->bytes - 1) / box->bytes;
    const uint64_t planes = (rows + box->n[0] - 1) / box->n[0], more = (planes + box->n[1] - 1) / box->n[1];
    const bool huge = more > UINT32_MAX ||
                      __builtin_add_overflow((uint64_t) (box->n[0] - 1) * box->stride[0],
                                             (uint64_t) (box->n[1] - 1) * box->stride[1], &span) ||
                      __builtin_add_overflow(span, (more - 1) * box->stride[2] + box->bytes, &span);
    return huge ? 0 : span;
}

/* Maps the sender's memory. Returns the data in it; NULL: it cannot be mapped. box: set, if they are one. *size: bytes
 * of that memory. */
static const char *map_source(request_t *r, gpusym_box_t *box, uint64_t *size)
{
    const gpusym_offer_t *o = &r->desc.offer;
    const uint64_t span = is_box(r) ? read_box(r, box) : o->bytes;
    void *base;

    r->gpu = NULL == r->gpu ? gpusym_p2p_gpu_last() : r->gpu;
    if (NULL == r->gpu) {
        return NULL; /* a process that has used no GPU gets no context for a message to host memory */
    }
    if (GPUSYM_SUCCESS != gpusym_reg_map(gpusym_current.dev, r->gpu, r->desc.peer, o->key, &base, size) || 0 == span ||
        span > *size || o->off > *size - span) {
        return NULL;
    }
    return (const char *) base + o->off;
}

static pml_gpusym_route_t make_route(const request_t *r, const char *from, const gpusym_box_t *box)
{
    return (pml_gpusym_route_t){.gpu = r->gpu,
                                .layout = &r->layout,
                                .buf = r->base.req_addr,
                                .on_host = r->on_host,
                                .together = r->known,
                                .from = from,
                                .box = box,
                                .bytes = bytes_to_move(r)};
}

/* Copies from the sender's memory, which is mapped at `from`. box: NULL if it is packed. */
static bool pull(request_t *r, const char *from, const gpusym_box_t *box)
{
    const ompi_status_public_t *status = status_of(r);
    const pml_gpusym_route_t route = make_route(r, from, box);
    const int rc = pml_gpusym_move_start(&r->move, &route);

    if (NULL != box && GPUSYM_ERR_NOT_AVAILABLE == rc) {
        return fetch_pieces(r); /* which the sender packs */
    }
    if (GPUSYM_SUCCESS != rc) {
        end_fetch(r, rc, pml_gpusym_report_gpu(r->base.req_comm, status->MPI_SOURCE, status->MPI_TAG));
        return false;
    }
    pml_gpusym_count(r->on_host ? PML_GPUSYM_RECEIVED_TO_HOST : PML_GPUSYM_RECEIVED_DIRECT);
    r->step = step_move;
    return true;
}

/* ---- data that the sender is asked to push ---- */

/* How long the sender has time to take the request on, in ns: one that polls needs a few microseconds. */
#define PUSH_WAIT 20000u

/* The sender has pushed the data, failed, or not taken the request on. What cannot be pulled comes in pieces. */
static bool end_push(request_t *r, bool pushed)
{
    gpusym_reg_put(r->key);
    r->key = 0;
    if (pushed) {
        pml_gpusym_count(PML_GPUSYM_RECEIVED_PUSHED);
        end_fetch(r, GPUSYM_SUCCESS, MPI_SUCCESS);
        return false;
    }
    return NULL != r->source ? pull(r, r->source, NULL) : fetch_pieces(r);
}

static bool step_asked(request_t *r)
{
    const ompi_status_public_t *status = status_of(r);
    int pushed;
    const int state = gpusym_send_desc_state_of(&r->desc, &pushed);

    if (GPUSYM_SEND_DESC_PUSHED == state) {
        return end_push(r, GPUSYM_SUCCESS == pushed);
    }
    if (GPUSYM_SEND_DESC_PUSH_ASKED == state && NULL != r->source && gpusym_now_ns() > r->offered + PUSH_WAIT &&
        GPUSYM_SUCCESS == gpusym_send_desc_take_back(&r->desc)) {
        return end_push(r, false);
    }
    if (state < 0 || !pml_gpusym_peer_lives(r)) {
        gpusym_reg_put(r->key);
        r->key = 0;
        end_fetch(r, GPUSYM_ERR_CORRUPT,
                  state < 0 ? pml_gpusym_report_corrupt(r->base.req_comm, status->MPI_SOURCE, status->MPI_TAG)
                            : pml_gpusym_report_dead(r->base.req_comm, status->MPI_SOURCE, status->MPI_TAG,
                                                     gpusym_peer_pid(r->desc.peer)));
        return false;
    }
    return true;
}

static uint64_t push_min(void)
{
    return 0 != pml_gpusym_params.push_min ? pml_gpusym_params.push_min : gpusym_tuning_push_min();
}

/* Asks the sender to push the message, if our memory can be mapped. Returns whether it is asked. */
static bool ask_push(request_t *r)
{
    gpusym_push_t push = {.bytes = bytes_to_move(r)};

    if (r->on_host || is_box(r) || GPUSYM_LAYOUT_RUN != r->layout.kind ||
        GPUSYM_SUCCESS != gpusym_reg_get(gpusym_current.dev, r->gpu, (char *) r->base.req_addr + r->layout.lo,
                                         push.bytes, &push.key, &push.off)) {
        return false;
    }
    r->key = push.key;
    r->offered = gpusym_now_ns();
    r->step = step_asked;
    if (GPUSYM_SUCCESS != gpusym_send_desc_ask_push(&r->desc, &push)) {
        gpusym_reg_put(r->key);
        r->key = 0;
        return false;
    }
    return true;
}

/* From r->source, where the data are. */
static bool fetch_source(request_t *r, const gpusym_box_t *box)
{
    r->large = bytes_to_move(r) >= push_min();
    const bool alone = r->large && 0 == __atomic_fetch_add(&large, 1, __ATOMIC_RELAXED);
    /* a little faster than to pull it */
    return alone && ask_push(r) ? true : pull(r, r->source, box);
}

/* ---- data that the sender's GPU is still copying there ---- */

/* Messages that the CPU waits for after one whose data came too late for the GPU to wait for them. */
#define LATE 64u

/* At most for microseconds, if nothing else fills that GPU. */
static bool step_filling(request_t *r)
{
    const ompi_status_public_t *status = status_of(r);
    const int filled = gpusym_send_desc_is_filled(&r->desc);

    if (0 != filled) {
        return filled < 0 ? fetch_pieces(r) : fetch_source(r, NULL);
    }
    if (!pml_gpusym_peer_lives(r)) {
        end_fetch(r, GPUSYM_ERR_UNREACHABLE,
                  pml_gpusym_report_dead(r->base.req_comm, status->MPI_SOURCE, status->MPI_TAG,
                                         gpusym_peer_pid(r->desc.peer)));
        return false;
    }
    return true;
}

/* Our GPU waits for the data, and copies them. */
static bool step_signal(request_t *r)
{
    const int done = pml_gpusym_move_poll(&r->move);

    if (0 == done) {
        return true;
    }
    if (GPUSYM_ERR_LATE == done) {
        __atomic_store_n(&r->peer->late, LATE, __ATOMIC_RELAXED);
        GPUSYM_LOG(2, "point-to-point: a copy of process %d came late: kernels do not wait for the next %u ones",
                   (int) gpusym_peer_pid(r->desc.peer), LATE);
        r->step = step_filling;
        return step_filling(r);
    }
    pml_gpusym_count(PML_GPUSYM_RECEIVED_DIRECT);
    pml_gpusym_count(PML_GPUSYM_RECEIVED_WAITED);
    return end_move(r, done);
}

/* Whether the signal of the sender's copy lies in the mapped memory, as its data do. */
static bool signal_fits(const request_t *r, uint64_t size)
{
    const uint64_t end = GPUSYM_SIGNAL_OFF(r->desc.offer.bytes) + GPUSYM_SIGNAL_BYTES;
    return end <= size && r->desc.offer.off <= size - end;
}

/* Has our GPU wait for the data, which lie at r->source in mapped memory of `size` bytes. False: it does not. */
static bool await_signal(request_t *r, uint64_t size)
{
    const uint32_t late = __atomic_load_n(&r->peer->late, __ATOMIC_RELAXED);
    pml_gpusym_route_t route = make_route(r, r->source, NULL);

    route.signal = read_note(r).signal;
    if (0 != late) {
        __atomic_store_n(&r->peer->late, late - 1, __ATOMIC_RELAXED); /* about right if several threads receive */
    }
    if (0 != late || 0 == route.signal || route.bytes != r->desc.offer.bytes || !signal_fits(r, size) ||
        pml_gpusym_peer_is_self(r->peer) || gpusym_p2p_gpu_takes_turns() || !pml_gpusym_move_can_wait(&route) ||
        GPUSYM_SUCCESS != pml_gpusym_move_start(&r->move, &route)) {
        return false;
    }
    r->step = step_signal;
    return true;
}

static bool fetch_mapped(request_t *r)
{
    uint64_t size;
    if (0 == bytes_to_move(r)) {
        end_fetch(r, GPUSYM_SUCCESS, MPI_SUCCESS);
        return false;
    }
    gpusym_box_t box;
    r->source = map_source(r, &box, &size);
    if (NULL == r->source) {
        return fetch_pieces(r); /* which asks for them */
    }
    if (0 != (PML_GPUSYM_OFFER_FILLING & r->desc.offer.flags)) {
        if (0 == gpusym_send_desc_is_filled(&r->desc) && await_signal(r, size)) {
            return true;
        }
        r->step = step_filling;
        return step_filling(r);
    }
    return fetch_source(r, is_box(r) ? &box : NULL);
}

/* From pinned host memory of the sender, which only its GPU reaches. */
static bool fetch_pinned(request_t *r)
{
    r->source = NULL;
    return 0 != bytes_to_move(r) && ask_push(r) ? true : fetch_pieces(r);
}

/* ---- the beginning ---- */

static bool step_claimed(request_t *r)
{
    if (!pml_gpusym_inner_is_complete(r)) {
        return true; /* the RTS's, on its way out of its callback */
    }
    if (GPUSYM_SUCCESS != r->claim) {
        end_receive(r, pml_gpusym_report_corrupt(r->base.req_comm, status_of(r)->MPI_SOURCE, status_of(r)->MPI_TAG));
        return false;
    }
    if (0 != (PML_GPUSYM_OFFER_FROM_HOST & r->desc.offer.flags)) {
        gpusym_send_descs_tell_gpu(r->desc.peer, !r->on_host);
    }
    switch (r->desc.offer.kind) {
    case GPUSYM_SEND_DESC_INLINE: {
        const int rv = put_data(r, r->desc.room);
        end_fetch(r, MPI_SUCCESS == rv ? GPUSYM_SUCCESS : GPUSYM_ERR, rv);
        return false;
    }
    case GPUSYM_SEND_DESC_FAILED:
        end_fetch(r, GPUSYM_SUCCESS,
                  pml_gpusym_report_peer(r->base.req_comm, status_of(r)->MPI_SOURCE, status_of(r)->MPI_TAG,
                                         gpusym_peer_pid(r->desc.peer)));
        return false;
    case GPUSYM_SEND_DESC_MAPPED:
        return fetch_mapped(r);
    case GPUSYM_SEND_DESC_PINNED:
        return fetch_pinned(r);
    case GPUSYM_SEND_DESC_PIPELINE:
        return fetch_pieces(r);
    default:
        end_fetch(r, GPUSYM_ERR_CORRUPT,
                  pml_gpusym_report_corrupt(r->base.req_comm, status_of(r)->MPI_SOURCE, status_of(r)->MPI_TAG));
        return false;
    }
}

static bool step_full(request_t *r)
{
    if (!pml_gpusym_inner_is_complete(r)) {
        return true;
    }
    return receive_following(r);
}

/* With `error`, of the claim, set. */
static void begin_fetch(request_t *r, const ompi_status_public_t *from, pml_gpusym_step_t *step)
{
    ompi_status_public_t *status = status_of(r);

    status->MPI_SOURCE = from->MPI_SOURCE;
    status->MPI_TAG = from->MPI_TAG;
    status->_cancelled = 0;
    pml_gpusym_request_enlist(r, step);
}

void pml_gpusym_fetch_claimed(request_t *r, const ompi_status_public_t *from)
{
    r->claim = GPUSYM_SUCCESS;
    begin_fetch(r, from, step_claimed);
}

void pml_gpusym_fetch(request_t *r, const ompi_status_public_t *from, const uint8_t *rts, unsigned length)
{
    uint32_t number = 0;

    if (GPUSYM_RTS == length && pml_gpusym_follow_read(rts, &number)) {
        r->desc = (gpusym_send_desc_t){.number = number, .offer = {.bytes = GPUSYM_RTS}};
        begin_fetch(r, from, step_full);
        return;
    }
    if (GPUSYM_RTS == length) {
        r->claim = gpusym_send_desc_claim(r->peer->pages, rts, &r->desc);
    } else {
        r->claim = gpusym_send_desc_claim_oldest(r->peer->pages, gpusym_comm_context(r->base.req_comm), from->MPI_TAG,
                                                 rts, length, &r->desc);
    }
    if (GPUSYM_SUCCESS != r->claim) {
        r->desc = (gpusym_send_desc_t){.offer = {.bytes = 0}};
    }
    begin_fetch(r, from, step_claimed);
}
