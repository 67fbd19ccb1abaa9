/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What an origin requests of ranks of other hosts: see remote.h.
 */
#include "mca/osc/gpusym/remote.h"

#include <stdlib.h>
#include <string.h>

#include "ompi/request/request.h"

#include "mca/common/ompi/pieces.h"
#include "mca/common/ompi/tags.h"
#include "mca/osc/gpusym/report.h"
#include "mca/osc/gpusym/wait.h"

#define ORDERS 4u /* with data, under way */

/* A request and its answer. */
typedef struct order {
    ompi_request_t *send, *receive; /* NULL: not started, or ended */
    osc_gpusym_message_t *m;
    osc_gpusym_answer_t *a;
    osc_gpusym_window_t *w;
    int target;
    bool kept;  /* somebody waits for it, and puts it back; else it ends by itself */
    bool used;  /* one of those with data */
    bool owned; /* allocated, with request and answer without data behind it */
    int rc;
    uint32_t ended;      /* atomic */
    uint64_t off, bytes; /* of the elements, packed */
    struct order *next;
} order_t;

struct osc_gpusym_remote {
    pthread_mutex_t lock; /* of what follows */
    osc_gpusym_area_t area;
    order_t order[ORDERS];
    order_t *under_way;
    uint32_t id;
};

/* ---- orders ---- */

static bool has_id(const struct osc_gpusym_remote *r, uint32_t id)
{
    const order_t *o = r->under_way;

    while (NULL != o && o->m->id != id) {
        o = o->next;
    }
    return NULL != o;
}

/* The order is not in use. The lock is held. */
static void enter(struct osc_gpusym_remote *r, order_t *o)
{
    do {
        r->id = (r->id + 1) % GPUSYM_TAG_WINDOW_ANSWERS;
    } while (has_id(r, r->id));
    memset(o->m, 0, sizeof *o->m);
    o->m->id = r->id;
    o->send = o->receive = NULL;
    o->kept = false;
    o->rc = OMPI_SUCCESS;
    o->ended = 0;
    o->next = r->under_way;
    r->under_way = o;
}

/* An order with data, or NULL: all are in use. */
static order_t *find_order(osc_gpusym_window_t *w)
{
    struct osc_gpusym_remote *r = w->remote;
    order_t *found = NULL;

    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; NULL == found && i < ORDERS; i++) {
        found = r->order[i].used ? NULL : &r->order[i];
    }
    if (NULL != found) {
        found->used = true;
        enter(r, found);
    }
    pthread_mutex_unlock(&r->lock);
    return found;
}

/* An order without data. NULL: there is no memory. */
static order_t *new_order(osc_gpusym_window_t *w)
{
    order_t *o = calloc(1, sizeof *o + sizeof *o->a + sizeof *o->m);

    if (NULL != o) {
        o->a = (osc_gpusym_answer_t *) (void *) (o + 1);
        o->m = (osc_gpusym_message_t *) (void *) (o->a + 1);
        o->w = w;
        o->owned = true;
        pthread_mutex_lock(&w->remote->lock);
        enter(w->remote, o);
        pthread_mutex_unlock(&w->remote->lock);
    }
    return o;
}

/* The lock is held. */
static void put_order(order_t *o)
{
    o->used = false;
    if (o->owned) {
        free(o);
    }
}

static void put_kept(order_t *o)
{
    struct osc_gpusym_remote *r = o->w->remote;

    pthread_mutex_lock(&r->lock);
    put_order(o);
    pthread_mutex_unlock(&r->lock);
}

/* Takes an order from the list. The lock is held. */
static void leave(struct osc_gpusym_remote *r, const order_t *o)
{
    order_t **at = &r->under_way;

    while (o != *at) {
        at = &(*at)->next;
    }
    *at = o->next;
}

/* Sends an order; the receive of its answer is posted before. After an error it is gone, and the PML may still receive
 * into it: the window is lost. */
static int start(order_t *o, int target, bool kept)
{
    osc_gpusym_window_t *w = o->w;
    const bool data = !o->owned;
    ompi_request_t *receive, *send;

    o->target = target;
    o->kept = kept;
    int rc = osc_gpusym_receive(w, o->a, data ? OSC_GPUSYM_ANSWER_BYTES : sizeof *o->a, target,
                                GPUSYM_TAG_WINDOW_ANSWER + (int) o->m->id, &receive);
    rc = OMPI_SUCCESS == rc
             ? osc_gpusym_send(w, o->m, osc_gpusym_message_bytes(o->m), target, GPUSYM_TAG_WINDOW_REQUEST, &send)
             : rc;
    pthread_mutex_lock(&w->remote->lock);
    if (OMPI_SUCCESS == rc) {
        o->receive = receive;
        o->send = send;
    } else {
        leave(w->remote, o);
    }
    pthread_mutex_unlock(&w->remote->lock);
    return OMPI_SUCCESS == rc ? rc : MPI_ERR_OTHER;
}

static void note_error(osc_gpusym_window_t *w, int rc)
{
    if (OMPI_SUCCESS != rc) {
        pthread_mutex_lock(&w->lock);
        w->error = rc;
        pthread_mutex_unlock(&w->lock);
    }
}

/* Ends an order whose messages have ended. The lock is held. */
static void end_order(order_t *o)
{
    const int sent = osc_gpusym_message_end(&o->send), received = osc_gpusym_message_end(&o->receive);

    o->rc = OMPI_SUCCESS != sent ? sent : OMPI_SUCCESS != received ? received : o->a->rc;
    if (OMPI_SUCCESS == o->rc && o->a->bytes > OSC_GPUSYM_MESSAGE_DATA) { /* none of ours has sent that */
        o->rc = MPI_ERR_INTERN;
    }
    o->send = o->receive = NULL;
    if (o->kept) {
        __atomic_store_n(&o->ended, 1, __ATOMIC_RELEASE);
        return;
    }
    note_error(o->w, o->rc);
    put_order(o);
}

/* Takes the orders that have ended from the list; returns whether one of the target's is left. */
static bool poll_orders(osc_gpusym_window_t *w, int target)
{
    struct osc_gpusym_remote *r = w->remote;
    bool left = false;

    pthread_mutex_lock(&r->lock);
    for (order_t **at = &r->under_way; NULL != *at;) {
        order_t *o = *at;
        if (NULL == o->receive || !osc_gpusym_message_ended(o->receive) || !osc_gpusym_message_ended(o->send)) {
            left = left || target < 0 || target == o->target;
            at = &o->next;
            continue;
        }
        *at = o->next;
        end_order(o);
    }
    pthread_mutex_unlock(&r->lock);
    return left;
}

static bool order_ended(void *arg)
{
    order_t *o = arg;

    (void) poll_orders(o->w, -1);
    return 0 != __atomic_load_n(&o->ended, __ATOMIC_ACQUIRE);
}

static bool order_is_for(void *arg, uint32_t rank)
{
    const order_t *o = arg;
    return rank == (uint32_t) o->target;
}

/* Waits for a kept order. After an error of the wait it stays where it is. */
static int wait_for_order(order_t *o)
{
    return osc_gpusym_window_wait(o->w,
                                  &(osc_gpusym_wait_t){order_ended, order_is_for, o, GPUSYM_WINDOW_FOR_ANSWER, 0});
}

/* ---- flushes ---- */

typedef struct {
    osc_gpusym_window_t *w;
    int target;
} flush_t;

static bool is_flushed(void *arg)
{
    const flush_t *f = arg;
    return !poll_orders(f->w, f->target);
}

static bool is_to_answer(void *arg, uint32_t rank)
{
    const flush_t *f = arg;
    return (f->target < 0 || rank == (uint32_t) f->target) && poll_orders(f->w, (int) rank);
}

int osc_gpusym_remote_flush(osc_gpusym_window_t *w, int target)
{
    flush_t f = {w, target};
    return osc_gpusym_window_wait(w, &(osc_gpusym_wait_t){is_flushed, is_to_answer, &f, GPUSYM_WINDOW_FOR_ANSWER, 0});
}

/* ---- the origin's memory ---- */

/* Packed elements, as one run. */
typedef struct {
    char *at;
    bool gpu;     /* the CPU must not touch it */
    char *packed; /* at, if it is a copy. Owned; NULL: it is the elements themselves */
} run_t;

/* e NULL: none. `bring`: a copy has the elements. MPI error code. */
static int run_get(osc_gpusym_window_t *w, run_t *run, const osc_gpusym_elements_t *e, bool bring)
{
    *run = (run_t){.at = NULL};
    if (NULL == e) {
        return OMPI_SUCCESS;
    }
    if (e->own && GPUSYM_LAYOUT_RUN == e->layout.kind &&
        (!e->gpu || gpusym_layout_is_one(w->dev, &e->layout, e->buf))) {
        run->at = e->buf + e->layout.lo;
        run->gpu = e->gpu;
        return OMPI_SUCCESS;
    }
    run->at = run->packed = malloc(e->layout.bytes);
    if (NULL == run->packed) {
        return MPI_ERR_NO_MEM;
    }
    return bring ? osc_gpusym_gather(w, e, run->packed) : OMPI_SUCCESS;
}

/* Copies part of a run to host memory, or back. */
static int run_copy(osc_gpusym_window_t *w, const run_t *run, uint64_t off, char *data, uint64_t bytes, bool back)
{
    gpusym_layout_t l;

    if (!run->gpu) {
        memcpy(back ? run->at + off : data, back ? data : run->at + off, bytes);
        return OMPI_SUCCESS;
    }
    gpusym_layout_find(bytes, &ompi_mpi_byte.dt, &l);
    return osc_gpusym_class(w->comm, w->dev,
                            back ? gpusym_layout_unpack(w->dev, w->gpu, &l, run->at + off, data, bytes)
                                 : gpusym_layout_pack(w->dev, w->gpu, &l, data, run->at + off, bytes));
}

/* ---- access ---- */

/* A call under way. */
typedef struct {
    osc_gpusym_window_t *w;
    const osc_gpusym_access_t *call;
    run_t from, to;
    bool waits;            /* for its answers */
    uint64_t unit;         /* no request ends within so many bytes */
    order_t *mine[ORDERS]; /* whose answers it waits for, in their order */
    uint32_t nmine;
} access_t;

typedef struct {
    osc_gpusym_message_t *m;
    uint64_t at;
} fill_t;

static int add_rows(void *arg, const gpusym_piece_t *p)
{
    const fill_t *f = arg;
    osc_gpusym_message_t *m = f->m;

    if (OSC_GPUSYM_MESSAGE_PIECES == m->pieces) {
        return 1;
    }
    osc_gpusym_message_rows(m)[m->pieces++] =
        (osc_gpusym_rows_t){f->at + (uint64_t) p->off, p->width, p->rows, p->pitch};
    m->bytes += p->width * p->rows;
    return 0;
}

/* Sets the pieces of a request to what the target has from a packed byte on up to another, as much as it takes. */
static void fill_pieces(const access_t *a, osc_gpusym_message_t *m, uint64_t off, uint64_t end)
{
    const gpusym_layout_t *l = &a->call->at->layout;
    const uint64_t most = OSC_GPUSYM_MESSAGE_DATA / a->unit * a->unit;
    uint64_t want = end - off < most ? end - off : most;
    fill_t f = {m, a->call->at->at};

    for (;;) {
        m->pieces = 0;
        m->bytes = 0;
        if (0 == gpusym_pieces_visit(l->count, l->dtype, off, off + want, false, add_rows, &f)) {
            return;
        }
        want = m->bytes / a->unit * a->unit; /* there are more pieces: at most so many bytes have room */
    }
}

/* Data of the origin behind a request. */
static int fill_data(const access_t *a, osc_gpusym_message_t *m, uint64_t off)
{
    m->sent = OSC_GPUSYM_SWAP == a->call->kind ? 2 * m->bytes : m->bytes;
    return run_copy(a->w, &a->from, off, osc_gpusym_message_data(m), m->sent, false);
}

/* Starts the request from packed byte *off on, and sets it to the first one that is left. */
static int start_access(access_t *a, order_t *o, uint64_t *off)
{
    const osc_gpusym_access_t *call = a->call;
    const uint64_t given = NULL != call->from ? call->from->layout.bytes : 0, all = call->at->layout.bytes;
    const bool gives = *off < given;
    const struct ompi_op_t *op = OSC_GPUSYM_FETCH != call->kind || gives ? call->op : &ompi_mpi_op_no_op.op;

    o->m->kind = call->kind;
    o->m->op = NULL != op ? op->o_f_to_c_index : -1;
    o->m->type = NULL != call->basic ? call->basic->d_f_to_c_index : -1;
    fill_pieces(a, o->m, *off, gives && given < all ? given : all);
    o->off = *off;
    o->bytes = o->m->bytes;
    *off += o->bytes;
    int rc = gives ? fill_data(a, o->m, o->off) : OMPI_SUCCESS;
    if (OMPI_SUCCESS != rc) {
        pthread_mutex_lock(&a->w->remote->lock);
        leave(a->w->remote, o);
        o->used = false;
        pthread_mutex_unlock(&a->w->remote->lock);
        return rc;
    }
    if (a->waits) {
        a->mine[a->nmine++] = o;
    }
    rc = start(o, call->target, a->waits);
    a->nmine -= a->waits && OMPI_SUCCESS != rc ? 1 : 0;
    return rc;
}

/* Waits for the first of the call's requests, and takes what it brings. */
static int end_first(access_t *a)
{
    order_t *o = a->mine[0];
    int rc = wait_for_order(o);

    memmove(a->mine, a->mine + 1, --a->nmine * sizeof *a->mine);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    rc = o->rc;
    if (OMPI_SUCCESS == rc && NULL != a->call->to) {
        rc = o->a->bytes == o->bytes ? run_copy(a->w, &a->to, o->off, (char *) (o->a + 1), o->bytes, true)
                                     : MPI_ERR_INTERN;
    }
    put_kept(o);
    return rc;
}

static bool some_order_free(void *arg)
{
    osc_gpusym_window_t *w = arg;
    bool some = false;

    (void) poll_orders(w, -1);
    pthread_mutex_lock(&w->remote->lock);
    for (uint32_t i = 0; i < ORDERS; i++) {
        some = some || !w->remote->order[i].used;
    }
    pthread_mutex_unlock(&w->remote->lock);
    return some;
}

static int wait_for_any(osc_gpusym_window_t *w)
{
    return osc_gpusym_window_wait(w, &(osc_gpusym_wait_t){some_order_free, NULL, w, GPUSYM_WINDOW_FOR_ANSWER, 0});
}

static int access_all(access_t *a)
{
    const uint64_t bytes = a->call->at->layout.bytes;
    int rc = OMPI_SUCCESS, ended;

    for (uint64_t off = 0; OMPI_SUCCESS == rc && off < bytes;) {
        order_t *o = find_order(a->w);
        if (NULL != o) {
            rc = start_access(a, o, &off);
        } else {
            rc = a->nmine > 0 ? end_first(a) : wait_for_any(a->w);
        }
    }
    while (a->nmine > 0) {
        ended = end_first(a);
        rc = OMPI_SUCCESS == rc ? ended : rc;
    }
    return rc;
}

int osc_gpusym_remote_access(osc_gpusym_window_t *w, const osc_gpusym_access_t *call)
{
    access_t a = {.w = w,
                  .call = call,
                  .waits = NULL != call->to || w->dynamic,
                  .unit = OSC_GPUSYM_SWAP == call->kind ? call->at->layout.bytes
                          : NULL != call->basic         ? call->basic->super.size
                                                        : 1};
    int rc = run_get(w, &a.from, call->from, true);

    if (OMPI_SUCCESS == rc) {
        rc = run_get(w, &a.to, call->to, false);
        rc = OMPI_SUCCESS == rc ? access_all(&a) : rc;
        if (OMPI_SUCCESS == rc && NULL != a.to.packed) {
            rc = osc_gpusym_scatter(w, call->to, a.to.packed);
        }
        free(a.to.packed);
    }
    free(a.from.packed);
    return rc;
}

/* ---- locks and notices ---- */

static int start_control(osc_gpusym_window_t *w, int target, osc_gpusym_kind_t kind, osc_gpusym_held_t held, bool ahead,
                         order_t **kept)
{
    order_t *o = new_order(w);

    if (NULL == o) {
        return MPI_ERR_NO_MEM;
    }
    o->m->kind = kind;
    o->m->held = held;
    o->m->ahead = ahead ? 1 : 0;
    if (NULL != kept) {
        *kept = o;
    }
    return start(o, target, NULL != kept);
}

int osc_gpusym_remote_tell(osc_gpusym_window_t *w, int target, osc_gpusym_kind_t kind, osc_gpusym_held_t held)
{
    (void) poll_orders(w, -1);
    return start_control(w, target, kind, held, false, NULL);
}

int osc_gpusym_remote_lock(osc_gpusym_window_t *w, int target, osc_gpusym_kind_t kind, osc_gpusym_held_t held,
                           bool ahead)
{
    order_t *o;
    int rc = start_control(w, target, kind, held, ahead, &o);

    rc = OMPI_SUCCESS == rc ? wait_for_order(o) : rc;
    if (OMPI_SUCCESS == rc) {
        rc = o->rc;
        put_kept(o);
    }
    return rc;
}

int osc_gpusym_remote_try_locks(osc_gpusym_window_t *w, int but, bool ahead, bool *got)
{
    order_t **order = calloc(w->n, sizeof *order);
    int rc = NULL != order ? OMPI_SUCCESS : MPI_ERR_NO_MEM;

    for (uint32_t i = 0; OMPI_SUCCESS == rc && i < w->n; i++) {
        if (!w->part[i].near && (int) i != but) {
            rc = start_control(w, (int) i, OSC_GPUSYM_TRY_LOCK, OSC_GPUSYM_SHARED, ahead, &order[i]);
            order[i] = OMPI_SUCCESS == rc ? order[i] : NULL;
        }
    }
    for (uint32_t i = 0; NULL != order && i < w->n; i++) {
        const int ended = NULL != order[i] ? wait_for_order(order[i]) : OMPI_SUCCESS;
        rc = OMPI_SUCCESS == rc ? ended : rc;
        if (NULL != order[i] && OMPI_SUCCESS == ended) {
            got[i] = OMPI_SUCCESS == order[i]->rc;
            put_kept(order[i]);
        }
    }
    free(order);
    return rc;
}

/* ---- open and close ---- */

int osc_gpusym_remote_open(osc_gpusym_window_t *w)
{
    struct osc_gpusym_remote *r = calloc(1, sizeof *r);

    if (NULL == r) {
        return MPI_ERR_NO_MEM;
    }
    pthread_mutex_init(&r->lock, NULL);
    w->remote = r;
    if (!osc_gpusym_area_get(w, ORDERS * (OSC_GPUSYM_MESSAGE_BYTES + OSC_GPUSYM_ANSWER_BYTES), &r->area)) {
        return MPI_ERR_NO_MEM;
    }
    char *at = r->area.base;
    for (uint32_t i = 0; i < ORDERS; i++) {
        r->order[i].w = w;
        r->order[i].m = (osc_gpusym_message_t *) (void *) at;
        r->order[i].a = (osc_gpusym_answer_t *) (void *) (at + OSC_GPUSYM_MESSAGE_BYTES);
        at += OSC_GPUSYM_MESSAGE_BYTES + OSC_GPUSYM_ANSWER_BYTES;
    }
    return OMPI_SUCCESS;
}

void osc_gpusym_remote_close(osc_gpusym_window_t *w, bool failed)
{
    struct osc_gpusym_remote *r = w->remote;

    if (NULL == r || failed) { /* the PML may still use its buffers */
        return;
    }
    osc_gpusym_area_free(w, &r->area);
    pthread_mutex_destroy(&r->lock);
    free(r);
    w->remote = NULL;
}
