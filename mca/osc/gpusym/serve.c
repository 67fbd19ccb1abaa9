/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What an owner does for ranks of other hosts: see serve.h.
 *
 * A few receives are posted, from any rank; requests are taken in the order of the receives, which is that in which an
 * origin has sent them. One that must wait (for its turn among accumulates, for a buffer of its answer) keeps those
 * behind it waiting: what it waits for needs none of them. Requests for locks wait aside, each with a ticket of the
 * page, as those of this host's ranks do.
 *
 * Only processes of one host see that one of them has died. They tell the other hosts.
 */
#include "mca/osc/gpusym/serve.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "ompi/request/request.h"
#include "opal/runtime/opal_progress.h"

#include "mca/common/gpusym/gpus.h"
#include "mca/common/ompi/layout.h"
#include "mca/common/ompi/tags.h"
#include "mca/osc/gpusym/attach.h"
#include "mca/osc/gpusym/reduce.h"
#include "mca/osc/gpusym/report.h"
#include "mca/osc/gpusym/wait.h"

#define RECEIVES 4u /* posted */
#define ANSWERS 4u  /* with data, under way */
/* Polls of a copy between two times that other threads may run. */
#define YIELD_POLLS 64u
/* Between two looks whether the ranks of this host live. */
#define LOOK_NS 100000000u

/* A receive. */
typedef struct {
    ompi_request_t *receive; /* NULL: it failed */
    osc_gpusym_message_t *m;
    bool ticketed; /* it has a ticket for accumulates */
    uint32_t ticket;
} slot_t;

/* An answer under way. */
typedef struct reply {
    ompi_request_t *send;
    osc_gpusym_answer_t *a;
    bool used;  /* of those with room for data */
    bool owned; /* allocated, with an answer without data behind it */
    struct reply *next;
} reply_t;

/* A request for a lock, or for a turn. */
typedef struct {
    int origin;
    uint32_t id;
    bool turn, exclusive;
    bool ahead; /* it has no ticket */
    uint32_t ticket;
    reply_t *reply;
} waiting_t;

struct osc_gpusym_serve {
    osc_gpusym_area_t area;
    char *work; /* OSC_GPUSYM_MESSAGE_DATA bytes: what is at an accumulate's target */
    slot_t slot[RECEIVES];
    uint32_t first; /* the slot whose receive was posted first */
    reply_t reply[ANSWERS];
    reply_t *under_way;
    waiting_t *waiting; /* [n]: a rank waits for one lock of this rank at a time */
    uint32_t nwaiting;
    uint64_t looked;             /* time */
    osc_gpusym_message_t *notes; /* [n], of a death; NULL: none are sent. The PML may use them for ever. Owned */
};

/* ---- this rank's memory ---- */

/* Where rows are. */
typedef struct {
    char *at;
    bool gpu;
    gpusym_gpu_t *by; /* whose memory it is */
} place_t;

/* False: they do not lie in this rank's memory. */
static bool find_place(osc_gpusym_window_t *w, const osc_gpusym_rows_t *r, place_t *place)
{
    const osc_gpusym_part_t *part = &w->part[w->rank];
    gpusym_mem_t mem = {.kind = GPUSYM_MEM_HOST};
    uint64_t span;
    bool gpu;

    *place = (place_t){.by = w->gpu};
    if (0 == r->rows || __builtin_mul_overflow(r->rows - 1, r->pitch, &span) ||
        __builtin_add_overflow(span, r->width, &span)) {
        return false;
    }
    if (!w->dynamic) {
        place->at = part->base + r->at;
        place->gpu = part->gpu;
        return r->at <= part->bytes && span <= part->bytes - r->at;
    }
    if (!osc_gpusym_attached(w, (int) w->rank, r->at, span, &place->at, &gpu)) {
        return false;
    }
    w->dev->query(place->at, &mem);
    place->gpu = GPUSYM_MEM_DEVICE == mem.kind;
    return !place->gpu || GPUSYM_SUCCESS == w->dev->gpu_open(&mem, &place->by);
}

/* Row by row, where rows may lie in several allocations. */
static int copy_apart(osc_gpusym_window_t *w, const osc_gpusym_rows_t *r, const place_t *p, char *packed, bool write)
{
    gpusym_layout_t l;
    int rc = GPUSYM_SUCCESS;

    gpusym_layout_find(r->width, &ompi_mpi_byte.dt, &l);
    for (uint64_t i = 0; GPUSYM_SUCCESS == rc && i < r->rows; i++) {
        char *at = p->at + i * r->pitch, *data = packed + i * r->width;
        if (!p->gpu) {
            memcpy(write ? at : data, write ? data : at, r->width);
        } else if (write) {
            rc = gpusym_layout_unpack(w->dev, p->by, &l, at, data, r->width);
        } else {
            rc = gpusym_layout_pack(w->dev, p->by, &l, data, at, r->width);
        }
    }
    return rc;
}

static int start_rows(osc_gpusym_window_t *w, const osc_gpusym_rows_t *r, const place_t *p, char *packed, bool pinned,
                      bool write, gpusym_copy_t *copy)
{
    const uint64_t span = (r->rows - 1) * r->pitch + r->width;

    *copy = (gpusym_copy_t){.queue = NULL};
    if (!p->gpu || !gpusym_memory_together(w->dev, (uintptr_t) p->at, span)) {
        return copy_apart(w, r, p, packed, write);
    }
    const gpusym_copy_rows_t rows = {.dst = write ? p->at : packed,
                                     .src = write ? packed : p->at,
                                     .width = r->width,
                                     .height = r->rows,
                                     .to_pitch = write ? r->pitch : r->width,
                                     .from_pitch = write ? r->width : r->pitch,
                                     .local = write,
                                     .far = !write,
                                     .engine = !pinned || p->by != w->gpu};
    return gpusym_copy_start_rows(w->dev, p->by, &rows, copy);
}

int osc_gpusym_own_copy(osc_gpusym_window_t *w, const osc_gpusym_rows_t *rows, uint32_t n, char *packed, bool pinned,
                        bool write)
{
    gpusym_copy_t copy[OSC_GPUSYM_MESSAGE_PIECES];
    uint32_t started = 0;
    int rc = OMPI_SUCCESS;
    place_t place;

    gpusym_p2p_gpu_review(w->gpu);
    while (OMPI_SUCCESS == rc && started < n) {
        const osc_gpusym_rows_t *r = &rows[started];
        rc = !find_place(w, r, &place)
                 ? MPI_ERR_RMA_RANGE
                 : osc_gpusym_class(w->comm, w->dev, start_rows(w, r, &place, packed, pinned, write, &copy[started]));
        started += OMPI_SUCCESS == rc ? 1 : 0;
        packed += r->rows * r->width;
    }
    for (uint32_t i = 0; i < started; i++) {
        int done = gpusym_copy_poll(&copy[i]);
        for (uint32_t polls = 1; 0 == done; polls++) {
            if (0 == polls % YIELD_POLLS) {
                sched_yield();
            }
            done = gpusym_copy_poll(&copy[i]);
        }
        rc = done < 0 && OMPI_SUCCESS == rc ? osc_gpusym_class(w->comm, w->dev, done) : rc;
    }
    return rc;
}

/* ---- answers ---- */

/* An answer with room for data, or for none. NULL: there is none now. */
static reply_t *get_reply(struct osc_gpusym_serve *s, bool data)
{
    if (!data) {
        reply_t *r = calloc(1, sizeof *r + sizeof(osc_gpusym_answer_t));
        if (NULL != r) {
            r->a = (osc_gpusym_answer_t *) (void *) (r + 1);
            r->owned = true;
        }
        return r;
    }
    for (uint32_t i = 0; i < ANSWERS; i++) {
        if (!s->reply[i].used) {
            s->reply[i].used = true;
            return &s->reply[i];
        }
    }
    return NULL;
}

static void put_reply(reply_t *r)
{
    r->used = false;
    if (r->owned) {
        free(r);
    }
}

static void send_reply(osc_gpusym_window_t *w, reply_t *r, int origin, uint32_t id, int rc, uint64_t bytes)
{
    r->a->rc = rc;
    r->a->bytes = OMPI_SUCCESS == rc ? bytes : 0;
    if (OMPI_SUCCESS !=
        osc_gpusym_send(w, r->a, sizeof *r->a + r->a->bytes, origin, GPUSYM_TAG_WINDOW_ANSWER + (int) id, &r->send)) {
        OSC_GPUSYM_VERBOSE("rank %d gets no answer: the PML accepts no message", origin);
        put_reply(r);
        return;
    }
    r->next = w->serve->under_way;
    w->serve->under_way = r;
}

/* Takes the answers that have arrived from the list. */
static void end_replies(struct osc_gpusym_serve *s)
{
    for (reply_t **at = &s->under_way; NULL != *at;) {
        reply_t *r = *at;
        if (!osc_gpusym_message_ended(r->send)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        (void) osc_gpusym_message_end(&r->send);
        put_reply(r);
    }
}

/* ---- locks ---- */

static osc_gpusym_queue_t *lockers(const osc_gpusym_window_t *w)
{
    return &w->words[w->rank].lockers;
}

/* Whether a request gets what it waits for. */
static bool grant(const osc_gpusym_window_t *w, const waiting_t *r)
{
    if (!r->ahead && !osc_gpusym_is_turn(lockers(w), r->ticket)) {
        return false;
    }
    if (r->turn) {
        return true;
    }
    if (!osc_gpusym_try_lock(w, w->rank, (uint32_t) r->origin, r->exclusive, true)) {
        return false;
    }
    if (!r->ahead) {
        osc_gpusym_next_turn(lockers(w));
    }
    return true;
}

/* Answers those that wait as far as they get it. */
static void grant_locks(osc_gpusym_window_t *w)
{
    struct osc_gpusym_serve *s = w->serve;
    uint32_t left = 0;

    for (uint32_t i = 0; i < s->nwaiting; i++) {
        const waiting_t r = s->waiting[i];
        if (grant(w, &r)) {
            send_reply(w, r.reply, r.origin, r.id, OMPI_SUCCESS, 0);
        } else {
            s->waiting[left++] = r;
        }
    }
    s->nwaiting = left;
}

static bool is_exclusive(const osc_gpusym_message_t *m)
{
    return OSC_GPUSYM_EXCLUSIVE == (osc_gpusym_held_t) m->held;
}

static void wait_for_lock(osc_gpusym_window_t *w, int origin, const osc_gpusym_message_t *m, reply_t *reply)
{
    struct osc_gpusym_serve *s = w->serve;
    const bool turn = OSC_GPUSYM_TURN == m->kind, ahead = !turn && 0 != m->ahead;

    s->waiting[s->nwaiting++] = (waiting_t){.origin = origin,
                                            .id = m->id,
                                            .turn = turn,
                                            .exclusive = is_exclusive(m),
                                            .ahead = ahead,
                                            .ticket = ahead ? 0 : osc_gpusym_take_ticket(lockers(w)),
                                            .reply = reply};
}

static int try_lock(osc_gpusym_window_t *w, int origin, const osc_gpusym_message_t *m)
{
    return osc_gpusym_try_lock(w, w->rank, (uint32_t) origin, is_exclusive(m), 0 != m->ahead) ? OMPI_SUCCESS
                                                                                              : MPI_ERR_RMA_CONFLICT;
}

/* ---- accumulates: this rank has the turn ---- */

static int combine(osc_gpusym_window_t *w, osc_gpusym_message_t *m, char *old)
{
    struct ompi_op_t *op = osc_gpusym_op_at(m->op);
    ompi_datatype_t *type = osc_gpusym_type_at(m->type);
    const osc_gpusym_rows_t *rows = osc_gpusym_message_rows(m);
    const bool pinned = w->serve->area.pinned;
    char *work = w->serve->work, *given = osc_gpusym_message_data(m);
    int rc = OMPI_SUCCESS;

    if (NULL == op || NULL == type || 0 != m->bytes % type->super.size ||
        m->sent != (&ompi_mpi_op_no_op.op == op ? 0 : m->bytes)) {
        return MPI_ERR_INTERN;
    }
    if (NULL != old) {
        rc = osc_gpusym_own_copy(w, rows, m->pieces, old, pinned, false);
    }
    if (OMPI_SUCCESS != rc || &ompi_mpi_op_no_op.op == op) {
        return rc;
    }
    if (&ompi_mpi_op_replace.op == op) {
        return osc_gpusym_own_copy(w, rows, m->pieces, given, pinned, true);
    }
    if (NULL != old) {
        memcpy(work, old, m->bytes);
    } else {
        rc = osc_gpusym_own_copy(w, rows, m->pieces, work, pinned, false);
    }
    rc = OMPI_SUCCESS == rc ? osc_gpusym_reduce(op, type, given, work, m->bytes) : rc;
    return OMPI_SUCCESS == rc ? osc_gpusym_own_copy(w, rows, m->pieces, work, pinned, true) : rc;
}

static int swap(osc_gpusym_window_t *w, osc_gpusym_message_t *m, char *old)
{
    const osc_gpusym_rows_t *rows = osc_gpusym_message_rows(m);
    const bool pinned = w->serve->area.pinned;
    char *given = osc_gpusym_message_data(m);

    if (m->sent != 2 * m->bytes) {
        return MPI_ERR_INTERN;
    }
    const int rc = osc_gpusym_own_copy(w, rows, m->pieces, old, pinned, false);
    if (OMPI_SUCCESS != rc || 0 != memcmp(old, given + m->bytes, m->bytes)) {
        return rc;
    }
    return osc_gpusym_own_copy(w, rows, m->pieces, given, pinned, true);
}

/* Takes a ticket, the first time. */
static bool has_turn(osc_gpusym_window_t *w, slot_t *slot)
{
    osc_gpusym_queue_t *q = &w->words[w->rank].accumulates;

    if (!slot->ticketed) {
        slot->ticket = osc_gpusym_take_ticket(q);
        slot->ticketed = true;
    }
    return osc_gpusym_is_turn(q, slot->ticket);
}

/* ---- deaths ---- */

/* Tells the ranks of other hosts, once. */
static void tell_death(osc_gpusym_window_t *w, uint32_t dead)
{
    struct osc_gpusym_serve *s = w->serve;
    ompi_request_t *request;

    s->notes = calloc(w->n, sizeof *s->notes);
    for (uint32_t i = 0; NULL != s->notes && i < w->n; i++) {
        s->notes[i].kind = OSC_GPUSYM_LOST;
        s->notes[i].held = dead;
        if (!w->part[i].here && i != dead) {
            (void) osc_gpusym_send(w, &s->notes[i], sizeof s->notes[i], (int) i, GPUSYM_TAG_WINDOW_REQUEST, &request);
        }
    }
}

static void watch(osc_gpusym_window_t *w)
{
    const uint64_t now = gpusym_now_ns();

    if (now - w->serve->looked >= LOOK_NS) {
        w->serve->looked = now;
        (void) osc_gpusym_window_look(w);
    }
    const uint32_t broken = __atomic_load_n(w->broken, __ATOMIC_RELAXED);
    if (0 != broken && NULL == w->serve->notes) {
        tell_death(w, broken - 1);
    }
}

/* ---- requests ---- */

/* It is answered when its time has come. */
static bool waits(const osc_gpusym_message_t *m)
{
    return OSC_GPUSYM_LOCK == m->kind || OSC_GPUSYM_TURN == m->kind;
}

/* Whether a message is what an origin sends: what it says of itself agrees with its length. */
static bool is_right(osc_gpusym_window_t *w, osc_gpusym_message_t *m, size_t bytes)
{
    uint64_t sum = 0;

    if (bytes < sizeof *m || m->kind >= OSC_GPUSYM_KINDS || m->pieces > OSC_GPUSYM_MESSAGE_PIECES ||
        m->id >= GPUSYM_TAG_WINDOW_ANSWERS || m->bytes > OSC_GPUSYM_MESSAGE_DATA || m->sent > OSC_GPUSYM_MESSAGE_DATA ||
        bytes != osc_gpusym_message_bytes(m)) {
        return false;
    }
    for (uint32_t i = 0; i < m->pieces; i++) {
        const osc_gpusym_rows_t *r = &osc_gpusym_message_rows(m)[i];
        if (r->width > m->bytes || (0 != r->width && r->rows > m->bytes / r->width)) {
            return false;
        }
        sum += r->width * r->rows;
    }
    return sum == m->bytes && (OSC_GPUSYM_WRITE != m->kind || m->sent == m->bytes) &&
           (!waits(m) || w->serve->nwaiting < w->n);
}

static int carry_out(osc_gpusym_window_t *w, int origin, osc_gpusym_message_t *m, char *answer)
{
    const bool pinned = w->serve->area.pinned;

    switch ((osc_gpusym_kind_t) m->kind) {
    case OSC_GPUSYM_READ:
        return osc_gpusym_own_copy(w, osc_gpusym_message_rows(m), m->pieces, answer, pinned, false);
    case OSC_GPUSYM_WRITE:
        return osc_gpusym_own_copy(w, osc_gpusym_message_rows(m), m->pieces, osc_gpusym_message_data(m), pinned, true);
    case OSC_GPUSYM_COMBINE:
        return combine(w, m, NULL);
    case OSC_GPUSYM_FETCH:
        return combine(w, m, answer);
    case OSC_GPUSYM_SWAP:
        return swap(w, m, answer);
    case OSC_GPUSYM_TRY_LOCK:
        return try_lock(w, origin, m);
    case OSC_GPUSYM_UNLOCK:
        osc_gpusym_release(w, w->rank, (osc_gpusym_held_t) m->held);
        return OMPI_SUCCESS;
    case OSC_GPUSYM_PASS:
        osc_gpusym_next_turn(lockers(w));
        return OMPI_SUCCESS;
    case OSC_GPUSYM_POST:
        __atomic_fetch_add(osc_gpusym_word(w, w->posted, (uint32_t) origin, w->rank), 1, __ATOMIC_SEQ_CST);
        return OMPI_SUCCESS;
    case OSC_GPUSYM_COMPLETE:
        __atomic_fetch_add(osc_gpusym_word(w, w->completed, w->rank, (uint32_t) origin), 1, __ATOMIC_SEQ_CST);
        return OMPI_SUCCESS;
    default:
        return MPI_ERR_INTERN;
    }
}

/* False: it must wait. */
static bool handle(osc_gpusym_window_t *w, slot_t *slot)
{
    osc_gpusym_message_t *m = slot->m;
    const int origin = slot->receive->req_status.MPI_SOURCE;
    const osc_gpusym_kind_t kind = (osc_gpusym_kind_t) m->kind;
    const bool atomic = OSC_GPUSYM_COMBINE == kind || OSC_GPUSYM_FETCH == kind || OSC_GPUSYM_SWAP == kind;
    const bool data = OSC_GPUSYM_READ == kind || OSC_GPUSYM_FETCH == kind || OSC_GPUSYM_SWAP == kind;

    if (!is_right(w, m, slot->receive->req_status._ucount)) {
        OSC_GPUSYM_VERBOSE("a message of rank %d is none of a window, and dropped", origin);
        return true;
    }
    if (OSC_GPUSYM_LOST == kind) {
        __atomic_store_n(w->broken, m->held % w->n + 1, __ATOMIC_RELAXED);
        return true;
    }
    if (atomic && !has_turn(w, slot)) {
        return false;
    }
    reply_t *r = get_reply(w->serve, data);
    if (NULL == r) {
        return false;
    }
    if (waits(m)) {
        wait_for_lock(w, origin, m, r);
        return true;
    }
    const int rc = carry_out(w, origin, m, (char *) (r->a + 1));
    if (atomic) {
        osc_gpusym_next_turn(&w->words[w->rank].accumulates);
    }
    send_reply(w, r, origin, m->id, rc, data ? m->bytes : 0);
    return true;
}

static int post_receive(osc_gpusym_window_t *w, slot_t *slot)
{
    slot->ticketed = false;
    return osc_gpusym_receive(w, slot->m, OSC_GPUSYM_MESSAGE_BYTES, MPI_ANY_SOURCE, GPUSYM_TAG_WINDOW_REQUEST,
                              &slot->receive);
}

/* Ends a request, and posts its receive again. */
static void next_request(osc_gpusym_window_t *w, slot_t *slot)
{
    if (OMPI_SUCCESS != osc_gpusym_message_end(&slot->receive) || OMPI_SUCCESS != post_receive(w, slot)) {
        slot->receive = NULL;
        OSC_GPUSYM_VERBOSE("rank %u of a window gets no more requests: a receive failed", (unsigned) w->rank);
    }
    w->serve->first = (w->serve->first + 1) % RECEIVES;
}

int osc_gpusym_serve(osc_gpusym_window_t *w)
{
    struct osc_gpusym_serve *s = w->serve;
    int n = 0;

    end_replies(s);
    for (slot_t *slot = &s->slot[s->first]; NULL != slot->receive && osc_gpusym_message_ended(slot->receive);
         slot = &s->slot[s->first]) {
        if (OMPI_SUCCESS == slot->receive->req_status.MPI_ERROR && !handle(w, slot)) {
            break;
        }
        next_request(w, slot);
        n++;
    }
    grant_locks(w);
    watch(w);
    return n;
}

/* ---- open and close ---- */

int osc_gpusym_serve_open(osc_gpusym_window_t *w)
{
    const size_t bytes = RECEIVES * OSC_GPUSYM_MESSAGE_BYTES + ANSWERS * OSC_GPUSYM_ANSWER_BYTES;
    struct osc_gpusym_serve *s = calloc(1, sizeof *s);
    int rc = OMPI_SUCCESS;

    if (NULL == s) {
        return MPI_ERR_NO_MEM;
    }
    w->serve = s;
    s->waiting = calloc(w->n, sizeof *s->waiting);
    if (NULL == s->waiting || !osc_gpusym_area_get(w, bytes + OSC_GPUSYM_MESSAGE_DATA, &s->area)) {
        return MPI_ERR_NO_MEM;
    }
    char *at = s->area.base;
    for (uint32_t i = 0; i < RECEIVES; i++, at += OSC_GPUSYM_MESSAGE_BYTES) {
        s->slot[i].m = (osc_gpusym_message_t *) (void *) at;
    }
    for (uint32_t i = 0; i < ANSWERS; i++, at += OSC_GPUSYM_ANSWER_BYTES) {
        s->reply[i].a = (osc_gpusym_answer_t *) (void *) at;
    }
    s->work = at;
    for (uint32_t i = 0; OMPI_SUCCESS == rc && i < RECEIVES; i++) {
        rc = post_receive(w, &s->slot[i]);
    }
    return rc;
}

void osc_gpusym_serve_close(osc_gpusym_window_t *w, bool failed)
{
    struct osc_gpusym_serve *s = w->serve;

    if (NULL == s) {
        return;
    }
    for (uint32_t i = 0; i < RECEIVES; i++) {
        ompi_request_t **receive = &s->slot[i].receive;
        if (NULL != *receive) {
            (void) ompi_request_cancel(*receive);
            (void) ompi_request_wait(receive, MPI_STATUS_IGNORE);
        }
    }
    if (failed) {
        return; /* the PML may still send from it */
    }
    while (NULL != s->under_way) { /* they have been received */
        opal_progress();
        end_replies(s);
    }
    osc_gpusym_area_free(w, &s->area);
    free(s->waiting);
    free(s->notes);
    free(s);
    w->serve = NULL;
}
