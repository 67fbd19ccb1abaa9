/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One checked call of any MPI collective, see coll.h.
 */
#include "test/mpi/coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/persistent.h"

#define ALIGN 256        /* of a buffer with offset 0 */
#define STORED 24        /* buffers that a store keeps */
#define FAILURES_SHOWN 8 /* a rank and check_t; the rest are only counted */

/* ---- the calls themselves ---- */

static int call_blocking(enum coll_id id, coll_args_t *a)
{
    switch (id) {
#define COLL(id, Name, name, what, ...) \
    case COLL_##id:                     \
        return MPI_##Name(__VA_ARGS__);
#define COLL_LOCAL COLL
#include "test/mpi/colls.def"
    default:
        return MPI_ERR_OTHER;
    }
}

static int call_nonblocking(enum coll_id id, coll_args_t *a, MPI_Request *request)
{
    switch (id) {
#define COLL(id, Name, name, what, ...) \
    case COLL_##id:                     \
        return MPI_I##name(__VA_ARGS__, request);
#include "test/mpi/colls.def"
    default:
        return MPI_ERR_OTHER;
    }
}

static int call_init(enum coll_id id, coll_args_t *a, MPI_Request *request)
{
    switch (id) {
#define COLL(id, Name, name, what, ...) \
    case COLL_##id:                     \
        return PERSISTENT_INIT(Name)(__VA_ARGS__, MPI_INFO_NULL, request);
#include "test/mpi/colls.def"
    default:
        return MPI_ERR_OTHER;
    }
}

/* ---- what can be called ---- */

/* Valid by the MPI standard. */
static bool valid(const coll_call_t *call)
{
    unsigned what = coll_what(call->coll);
    const coll_comm_t *c = call->comm;

    if (what & COLL_IS_LOCAL) {
        return COLL_BLOCKING == call->mode && !call->in_place;
    }
    if ((c->inter && !(what & COLL_IS_INTER)) || (what & COLL_IS_NEIGHBOR && !c->topology)) {
        return false;
    }
    return !call->in_place || (what & COLL_IS_IN_PLACE && !c->inter);
}

/* What Open MPI, 4.1.4 at least, does wrong on host memory. Any call may end there, so these are left out. */
static bool library_wrong(const coll_call_t *call)
{
    /* Its datatype engine unpacks an element that was cut between two fragments by way of 16 bytes on the stack. */
    return REF_COMPLEX == call->type->cls && REF_LD == call->type->value &&
           !(coll_what(call->coll) & COLL_IS_REDUCTION);
}

/* Between hosts (test/mpi/hosts.sh) coll/han serves blocking calls since Open MPI 5. That of 5.0.7 at least gathers
 * elements with gaps wrongly, where a host has several ranks. */
static bool han_wrong(const coll_call_t *call)
{
#if OMPI_MAJOR_VERSION >= 5
    return NULL != getenv("GPUSYM_HOSTS_SWITCH") && COLL_BLOCKING == call->mode && REF_USER_GAPS == call->type->cls &&
           (COLL_GATHER == call->coll || COLL_ALLGATHER == call->coll);
#else
    (void) call;
    return false;
#endif
}

/* Descriptions of the same data that Open MPI cannot do with. */
static void library_types(coll_call_t *call)
{
    if (call->comm->inter) { /* the ranks of a group are gathered by the types and counts of its rank 0 */
        call->sflat = call->rflat = call->seed & 1;
    }
    if (COLL_ALLGATHERV ==
        call->coll) { /* every rank chooses the algorithm from its own send type and receive counts */
        call->sflat = call->rflat;
    }
}

bool coll_possible(coll_call_t *call)
{
    ref_case_t c = {.type = call->type, .op = call->op};

    if (!valid(call) || library_wrong(call) || han_wrong(call)) {
        return false;
    }
    if (!(coll_what(call->coll) & COLL_IS_REDUCTION)) {
        call->overflow = true;
        return REF_PLACED == call->type->cls || ref_allowed(call->type, call->op);
    }
    if (!ref_allowed(call->type, call->op) || !check_prepare(&c, false)) {
        return false;
    }
    call->overflow = c.overflow;
    return true;
}

const char *coll_text(const coll_call_t *call, char *buf, size_t size)
{
    const coll_comm_t *c = call->comm;

    snprintf(buf, size, "%s %s on %s (%d of %d%s%d), %s%s%s count %zu root %d.%d%s, %s+%zu to %s+%zu%s%s, seed %llu",
             coll_mode_name(call->mode), coll_name(call->coll), c->name, c->me, c->n, c->inter ? " with " : " of ",
             c->peers, call->type->name, coll_what(call->coll) & COLL_IS_REDUCTION ? " " : "",
             coll_what(call->coll) & COLL_IS_REDUCTION ? call->op->name : "", call->count, call->root_group, call->root,
             call->in_place ? " in place" : "", mem_name(call->skind), call->soff, mem_name(call->rkind), call->roff,
             call->sflat ? " sflat" : "", call->rflat ? " rflat" : "", (unsigned long long) call->seed);
    return buf;
}

/* ---- memory ---- */

typedef struct {
    unsigned char *p;
    size_t size;
    int kind;
} memory_t;

struct coll_store {
    memory_t free[STORED];
    int n;
};

static void *need(size_t size)
{
    void *p = malloc(0 == size ? 1 : size);

    if (NULL == p) {
        fprintf(stderr, "no memory for %zu bytes\n", size);
        MPI_Abort(MPI_COMM_WORLD, 99);
        exit(99);
    }
    return p;
}

coll_store_t *coll_store_new(void)
{
    coll_store_t *store = need(sizeof(*store));

    store->n = 0;
    return store;
}

void coll_store_forget(coll_store_t *store)
{
    while (store->n > 0) {
        store->n--;
        mem_free(store->free[store->n].kind, store->free[store->n].p);
    }
}

void coll_store_free(coll_store_t *store)
{
    coll_store_forget(store);
    free(store);
}

/* The smallest that fits and is not four times too large, or a new one. */
static memory_t take(coll_store_t *store, int kind, size_t size)
{
    memory_t m = {.kind = kind, .size = size + size / 4 + 1024};
    int best = -1;

    for (int i = 0; i < store->n; i++) {
        const memory_t *f = &store->free[i];

        if (f->kind == kind && f->size >= size && f->size / 4 <= m.size &&
            (best < 0 || f->size < store->free[best].size)) {
            best = i;
        }
    }
    if (best >= 0) {
        m = store->free[best];
        store->free[best] = store->free[--store->n];
        return m;
    }
    m.p = mem_alloc(kind, m.size);
    if (NULL == m.p) {
        fprintf(stderr, "mem_alloc(%s, %zu) failed\n", mem_name(kind), m.size);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    return m;
}

static void give(coll_store_t *store, memory_t m)
{
    if (NULL == m.p) {
        return;
    }
    if (STORED == store->n) {
        mem_free(store->free[0].kind, store->free[0].p);
        store->free[0] = store->free[--store->n];
    }
    store->free[store->n++] = m;
}

/* ---- a call ---- */

/* One buffer. The images hold [lo - CHECK_GUARD, hi + CHECK_GUARD) of it. */
typedef struct {
    coll_side_t layout;
    memory_t mem;        /* p: NULL: none, MPI gets NULL */
    unsigned char *at;   /* the address that MPI gets */
    size_t size;         /* of an image */
    unsigned char *want; /* before the call: what was written; coll_check makes of it what must be read */
    unsigned char *any;  /* bytes whose value is not compared: 1 */
    unsigned char *got;
} buffer_t;

struct coll_run {
    coll_call_t call;
    coll_store_t *store;
    coll_args_t args;
    buffer_t send, recv;
    ref_case_t data[2];     /* of the groups */
    unsigned char *scratch; /* elements of the longest piece */
    long double *tol;       /* two numbers an element of it */
    int starts, ret;
    MPI_Request request;
};

static unsigned char poison(size_t i)
{
    return (unsigned char) (0xa5 ^ (i * 31) ^ (i >> 8));
}

static unsigned char *image_at(const buffer_t *b, unsigned char *image, ptrdiff_t at)
{
    return image + CHECK_GUARD + (at - b->layout.lo);
}

/* Elements of a piece, as they stand in memory without gaps between them, to scratch. */
static void expect(coll_run_t *run, const coll_piece_t *p)
{
    ref_expect_ranks(&run->data[p->group], p->from, p->to, p->first, p->count, run->scratch, run->tol);
}

/* Data bytes of the piece's elements: from scratch to want, and their `any`: `padding` bytes 1, the others 0. */
static void lay(coll_run_t *run, const buffer_t *b, const coll_piece_t *p)
{
    const ref_type_t *type = run->call.type;
    ptrdiff_t at = p->at + (p->flat ? 0 : type->lb);
    unsigned char *want = image_at(b, b->want, at), *any = image_at(b, b->any, at);
    size_t n = 0;

    for (size_t i = 0; i < p->count * type->bytes; i++) {
        unsigned char what = type->map[i % type->bytes];

        if (REF_GAP != what) {
            size_t to = p->flat ? n : i;

            want[to] = run->scratch[i];
            any[to] = REF_PADDING == what;
            n++;
        }
    }
}

static void poison_fill(buffer_t *b)
{
    for (size_t i = 0; i < b->size; i++) {
        b->want[i] = poison(i);
    }
    memset(b->any, 0, b->size);
}

static void fill(coll_run_t *run, buffer_t *b)
{
    if (NULL == b->mem.p) {
        return;
    }
    poison_fill(b);
    for (int i = 0; i < b->layout.nbefore; i++) {
        memset(run->scratch, 0, b->layout.before[i].count * run->call.type->bytes);
        expect(run, &b->layout.before[i]);
        lay(run, b, &b->layout.before[i]);
    }
    mem_write(b->at + b->layout.lo - CHECK_GUARD, b->want, b->size);
}

static size_t longest(const coll_side_t *s)
{
    size_t n = 0;

    for (int i = 0; i < s->nbefore; i++) {
        n = s->before[i].count > n ? s->before[i].count : n;
    }
    for (int i = 0; i < s->nafter; i++) {
        n = s->after[i].count > n ? s->after[i].count : n;
    }
    return n;
}

/* A buffer that is not significant is there nevertheless, and must stay as it is; or there is none. */
static void make_buffer(coll_run_t *run, buffer_t *b, int kind, size_t offset, bool none)
{
    coll_side_t *s = &b->layout;
    uintptr_t at;

    if (none) {
        return;
    }
    if (!s->significant) {
        s->hi = 64;
    }
    b->size = (size_t) (s->hi - s->lo) + 2 * CHECK_GUARD;
    b->mem = take(run->store, kind, b->size + 2 * ALIGN + offset);
    at = (uintptr_t) b->mem.p + CHECK_GUARD + (size_t) -s->lo;
    b->at = (unsigned char *) ((at + ALIGN - 1) / ALIGN * ALIGN + offset);
    b->want = need(3 * b->size);
    b->any = b->want + b->size;
    b->got = b->any + b->size;
}

coll_run_t *coll_make(coll_store_t *store, const coll_call_t *call)
{
    coll_run_t *run = need(sizeof(*run));
    uint64_t mine = ref_mix(call->seed + (uint64_t) call->comm->me);
    unsigned what = coll_what(call->coll);
    size_t n, m;

    memset(run, 0, sizeof(*run));
    run->call = *call;
    run->store = store;
    run->request = MPI_REQUEST_NULL;
    library_types(&run->call);
    coll_layout(&run->call, &run->send.layout, &run->recv.layout, &run->args);
    make_buffer(run, &run->send, call->skind, call->soff,
                MPI_IN_PLACE == run->args.sbuf || what & COLL_IS_ONE_BUFFER ||
                    (!run->send.layout.significant && mine & 2));
    make_buffer(run, &run->recv, call->rkind, call->roff,
                MPI_IN_PLACE == run->args.rbuf || (!run->recv.layout.significant && mine & 4));
    if (MPI_IN_PLACE != run->args.sbuf) {
        run->args.sbuf = run->send.at;
    }
    if (MPI_IN_PLACE != run->args.rbuf) {
        run->args.rbuf = run->recv.at;
    }
    n = longest(&run->send.layout);
    m = longest(&run->recv.layout);
    n = m > n ? m : n;
    run->scratch = need(n * call->type->bytes);
    run->tol = need(n * 2 * sizeof(*run->tol));
    return run;
}

/* New data in the buffers. */
static void refill(coll_run_t *run)
{
    const coll_call_t *call = &run->call;

    for (int g = 0; g < 2; g++) {
        run->data[g] = (ref_case_t){.type = call->type,
                                    .op = call->op,
                                    .overflow = call->overflow,
                                    .nranks = coll_group_size(call, g),
                                    .seed = ref_mix(call->seed + call->comm->salt + (uint64_t) (2 * run->starts + g))};
    }
    run->starts++;
    fill(run, &run->send);
    fill(run, &run->recv);
}

void coll_init(coll_run_t *run)
{
    if (COLL_PERSISTENT == run->call.mode && MPI_REQUEST_NULL == run->request) {
        run->ret = call_init(run->call.coll, &run->args, &run->request);
    }
}

void coll_start(coll_run_t *run)
{
    enum coll_id id = run->call.coll;

    refill(run);
    switch (run->call.mode) {
    case COLL_BLOCKING:
        run->ret = call_blocking(id, &run->args);
        break;
    case COLL_NONBLOCKING:
        run->ret = call_nonblocking(id, &run->args, &run->request);
        break;
    default:
        coll_init(run);
        if (MPI_SUCCESS == run->ret) {
            run->ret = MPI_Start(&run->request);
        }
    }
}

void coll_startall(coll_run_t **runs, int n)
{
    MPI_Request *requests = need((size_t) n * sizeof(MPI_Request));
    int ret;

    for (int i = 0; i < n; i++) {
        refill(runs[i]);
        requests[i] = runs[i]->request;
    }
    ret = MPI_Startall(n, requests);
    for (int i = 0; i < n; i++) {
        runs[i]->request = requests[i];
        runs[i]->ret = ret;
    }
    free(requests);
}

MPI_Request *coll_request(coll_run_t *run)
{
    return &run->request;
}

/* ---- what came out ---- */

/* Says whether a failure is to be printed, and counts it. */
static bool show(check_t *t, const coll_run_t *run, const char *what)
{
    char text[512];

    if (t->printed++ >= FAILURES_SHOWN) {
        return false;
    }
    fprintf(stderr, "%s: FAIL on rank %d: %s, start %d: %s", t->name, t->rank,
            coll_text(&run->call, text, sizeof(text)), run->starts, what);
    return true;
}

/* A reduction's elements, which need not be exact, against scratch and tol; they are then nobody else's to compare. */
static bool near_enough(check_t *t, coll_run_t *run, const buffer_t *b, const coll_piece_t *p)
{
    const ref_type_t *type = run->call.type;
    ptrdiff_t at = p->at + type->lb;
    const unsigned char *got = image_at(b, b->got, at);
    unsigned char *any = image_at(b, b->any, at);
    char x[128], y[128];

    for (size_t i = 0; i < p->count; i++) {
        const unsigned char *want = run->scratch + i * type->bytes;

        if (!ref_same(type, got + i * type->bytes, want, run->tol + 2 * i)) {
            if (show(t, run, "element")) {
                fprintf(stderr, " %zu: got %s, want %s\n", i, ref_text(type, got + i * type->bytes, x, sizeof(x)),
                        ref_text(type, want, y, sizeof(y)));
            }
            return false;
        }
        for (size_t k = 0; k < type->bytes; k++) {
            any[i * type->bytes + k] = REF_GAP != type->map[k];
        }
    }
    return true;
}

static bool exact(const coll_run_t *run, const coll_piece_t *p)
{
    enum ref_class cls = run->call.type->cls;

    return p->to == p->from + 1 || (REF_FLOAT != cls && REF_COMPLEX != cls);
}

static bool bytes_right(check_t *t, const coll_run_t *run, const buffer_t *b, const char *name)
{
    for (size_t i = 0; i < b->size; i++) {
        if (b->got[i] != b->want[i] && !b->any[i]) {
            if (show(t, run, name)) {
                fprintf(stderr, ", byte %ld of [%ld, %ld): got 0x%02x, want 0x%02x%s\n",
                        (long) i - CHECK_GUARD + (long) b->layout.lo, (long) b->layout.lo, (long) b->layout.hi,
                        b->got[i], b->want[i], b->got[i] == poison(i) ? " (got the poison)" : "");
            }
            return false;
        }
    }
    return true;
}

/* Bytes of the elements that the call may leave with any value. */
static void let_go(const coll_run_t *run, const buffer_t *b)
{
    const ref_type_t *type = run->call.type;

    for (int i = 0; b->layout.unspecified && i < b->layout.nbefore; i++) {
        const coll_piece_t *p = &b->layout.before[i];
        unsigned char *any = image_at(b, b->any, p->at + type->lb);

        for (size_t k = 0; k < p->count * type->bytes; k++) {
            any[k] = REF_GAP != type->map[k % type->bytes];
        }
    }
}

static bool check_buffer(check_t *t, coll_run_t *run, buffer_t *b, const char *name)
{
    if (NULL == b->mem.p) {
        return true;
    }
    mem_read(b->got, b->at + b->layout.lo - CHECK_GUARD, b->size);
    let_go(run, b);
    for (int i = 0; i < b->layout.nafter; i++) {
        const coll_piece_t *p = &b->layout.after[i];

        memset(run->scratch, 0, p->count * run->call.type->bytes);
        expect(run, p);
        if (exact(run, p)) {
            lay(run, b, p);
        } else if (!near_enough(t, run, b, p)) {
            return false;
        }
    }
    return bytes_right(t, run, b, name);
}

bool coll_check(check_t *t, coll_run_t *run)
{
    if (MPI_SUCCESS != run->ret) {
        if (show(t, run, "MPI returned")) {
            fprintf(stderr, " %d\n", run->ret);
        }
        return false;
    }
    return check_buffer(t, run, &run->recv, "receive buffer") && check_buffer(t, run, &run->send, "send buffer");
}

void coll_drop(coll_run_t *run)
{
    if (MPI_REQUEST_NULL != run->request) {
        MPI_Request_free(&run->request);
    }
    give(run->store, run->send.mem);
    give(run->store, run->recv.mem);
    free(run->send.want);
    free(run->recv.want);
    free(run->scratch);
    free(run->tol);
    free(run);
}

static double work_us; /* between the start of a call and the wait for it */

void coll_work(double us)
{
    work_us = us;
}

void coll_once(check_t *t, coll_store_t *store, const coll_call_t *call, int starts)
{
    coll_run_t *run = coll_make(store, call);
    char text[512];

    if (check_trace()) {
        fprintf(stderr, "%s: rank %d: %s\n", t->name, t->rank, coll_text(call, text, sizeof(text)));
    }
    for (int i = 0; i < (COLL_PERSISTENT == call->mode ? starts : 1); i++) {
        coll_start(run);
        for (const double until = MPI_Wtime() + 1e-6 * work_us; MPI_Wtime() < until;) {
        }
        MPI_Wait(coll_request(run), MPI_STATUS_IGNORE);
        check_result(t, coll_check(t, run));
    }
    coll_drop(run);
}
