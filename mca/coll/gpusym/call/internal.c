/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The all-reduces that Open MPI runs by itself to make a communicator of another one.
 *
 * MPI_Comm_idup and its kin agree on an id by MPI_Iallreduce on the old communicator (ompi/communicator/comm_cid.c),
 * called from opal_progress: at another place among the program's own calls on every rank.  So such a call can have no
 * place in the order of the communicator's calls: not in ours, which the call agreement counts, nor in that of Open
 * MPI's nonblocking collectives (coll/libnbc), which are told apart by counting them too.  It goes by messages of its
 * own instead, with a tag that nothing else has: up a binomial tree to rank 0, and down again.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include "mca/coll/gpusym/call/internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "mca/coll/gpusym/call/wait.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/team/peers.h"
#include "ompi/mca/coll/base/coll_base_util.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/request/request.h"
#include "opal/runtime/opal_progress.h"

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/sanitizers.h"
#include "mca/common/ompi/complete.h"
#include "mca/common/ompi/tags.h"

/* Open MPI's own have one integer. */
#define COUNT_MAX 8

const void *coll_gpusym_iallreduce_caller;

typedef struct internal {
    ompi_coll_base_nbc_request_t super;
    coll_gpusym_engine_t
        *engine; /* not retained, nor is comm: the caller, which makes a communicator of it, holds it */
    struct ompi_communicator_t *comm;
    struct ompi_op_t *op;
    int count;
    int *out;             /* the caller's */
    int sum[COUNT_MAX];   /* of this rank and those that it has heard of */
    int heard[COUNT_MAX]; /* what a child sends */
    int bit;              /* of the rank: the child or parent that the message in flight comes from or goes to */
    enum { UP, PARENT, DOWN } step;
    struct ompi_request_t *message; /* in flight; NULL: none */
    coll_gpusym_peer_t **peers;     /* [ranks], the array is owned */
    coll_gpusym_health_t health;    /* when it was last checked whether they live */
    int error;
    struct internal *next;
} internal_t;

static int internal_free(ompi_request_t **req)
{
    internal_t *r = (internal_t *) *req;
    GPUSYM_ACQUIRE(r);
    if (!REQUEST_COMPLETE(*req)) {
        return MPI_ERR_REQUEST;
    }
    OMPI_REQUEST_FINI(*req);
    if (NULL == r->message) { /* else it has been given up, and a message may still come to where it is */
        OBJ_RELEASE(r);
    }
    *req = MPI_REQUEST_NULL;
    return OMPI_SUCCESS;
}

static int internal_cancel(ompi_request_t *req, int flag)
{
    (void) req;
    (void) flag;
    return MPI_ERR_REQUEST; /* MPI: collectives cannot be cancelled */
}

static void internal_destruct(internal_t *r)
{
    free(r->peers);
}

static void internal_construct(internal_t *r)
{
    memset((char *) r + sizeof(r->super), 0, sizeof(*r) - sizeof(r->super));
    r->super.super.req_type = OMPI_REQUEST_COLL;
    r->super.super.req_status._cancelled = 0;
    r->super.super.req_free = internal_free;
    r->super.super.req_cancel = internal_cancel;
}

static OBJ_CLASS_INSTANCE(internal_t, ompi_coll_base_nbc_request_t, internal_construct, internal_destruct);

/* In flight, oldest first. `lock` covers the list; `busy`: a thread polls what it has taken out of it. */
static struct {
    pthread_mutex_t lock;
    bool registered, busy;
    internal_t *first, **last;
} internals = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = &internals.first};

static bool send_to(internal_t *r, int rank)
{
    r->error = MCA_PML_CALL(isend(r->sum, (size_t) r->count, MPI_INT, rank, GPUSYM_TAG_INTERNAL,
                                  MCA_PML_BASE_SEND_STANDARD, r->comm, &r->message));
    return OMPI_SUCCESS == r->error;
}

static bool receive_from(internal_t *r, int rank, int *into)
{
    r->error = MCA_PML_CALL(irecv(into, (size_t) r->count, MPI_INT, rank, GPUSYM_TAG_INTERNAL, r->comm, &r->message));
    return OMPI_SUCCESS == r->error;
}

/* Starts the next message. False: there is none, or it failed. */
static bool next_message(internal_t *r)
{
    const int me = ompi_comm_rank(r->comm), n = ompi_comm_size(r->comm);

    for (; UP == r->step && r->bit < n; r->bit <<= 1) {
        if (0 != (me & r->bit)) {
            r->step = PARENT;
            return send_to(r, me - r->bit);
        }
        if (me + r->bit < n) {
            return receive_from(r, me + r->bit, r->heard);
        }
    }
    if (PARENT == r->step) {
        r->step = DOWN;
        return receive_from(r, me - r->bit, r->sum);
    }
    for (r->step = DOWN, r->bit >>= 1; r->bit > 0; r->bit >>= 1) {
        if (me + r->bit < n) {
            return send_to(r, me + r->bit);
        }
    }
    return false;
}

/* The message has arrived or gone. */
static void message_over(internal_t *r)
{
    r->error = r->message->req_status.MPI_ERROR;
    const ompi_request_free_fn_t give_back = r->message->req_free;
    GPUSYM_RELEASE(r->message); /* the PML uses the object again, in any thread */
    give_back(&r->message);
    r->message = NULL;
    if (UP == r->step && MPI_SUCCESS == r->error) {
        ompi_op_reduce(r->op, r->heard, r->sum, (gpusym_count_t) r->count, MPI_INT);
        r->bit <<= 1;
    }
}

/* How such a call goes. REFUSED: a rank has died. Open MPI ignores the error of a request of its own, and would
 * try again and again unless the call itself fails. */
enum { BY_FALLBACK = 1, BY_MESSAGES, REFUSED };

/* Ends the call. */
static bool refuse(internal_t *r, int error)
{
    r->error = error;
    __atomic_store_n(&r->engine->internal, REFUSED, __ATOMIC_RELAXED);
    return true;
}

/* From time to time, checks whether a rank of this host has died. If so, reports it to the user and ends the call:
 * messages alone would wait for ever. Of other hosts Open MPI itself finds out. */
static bool is_rank_lost(internal_t *r)
{
    char name[GPUSYM_COMM_LABEL_MAX];
    const int me = ompi_comm_rank(r->comm), n = ompi_comm_size(r->comm);

    if (!coll_gpusym_health_due(&r->health)) {
        return false;
    }
    if (gpusym_ft_revoked(r->comm)) {
        return refuse(r, GPUSYM_ERR_REVOKED);
    }
    if (gpusym_ft_dead(r->comm) >= 0) {
        return refuse(r, GPUSYM_ERR_PROC_FAILED);
    }
    for (int i = 0; i < n; i++) {
        if (i != me && coll_gpusym_peers_near(r->peers[i], r->peers[me]) && !coll_gpusym_peer_lives(r->peers[i])) {
            if (gpusym_ft_tell(r->comm, i)) {
                coll_gpusym_help("dead-rank", me, gpusym_comm_label(r->comm, name, sizeof name),
                                 opal_process_info.nodename, i, coll_gpusym_peer_process(r->peers[i]),
                                 "the making of a communicator");
            }
            return refuse(r, GPUSYM_ERR_PROC_FAILED);
        }
    }
    return false;
}

/* Whether it is over: with `error`. Never waits. */
static bool internal_poll(internal_t *r)
{
    while (NULL == r->message || REQUEST_COMPLETE(r->message)) {
        if (NULL != r->message) {
            message_over(r);
        }
        if (MPI_SUCCESS != r->error || !next_message(r)) {
            return true;
        }
    }
    return is_rank_lost(r);
}

static void internal_complete(internal_t *r)
{
    if (MPI_SUCCESS == r->error) {
        memcpy(r->out, r->sum, (size_t) r->count * sizeof r->sum[0]);
    }
    r->super.super.req_status.MPI_ERROR = r->error;
    r->super.super.req_status._ucount = 0;
    gpusym_complete(&r->super.super);
}

/* All that are in flight, out of the list. */
static internal_t *take_requests(void)
{
    pthread_mutex_lock(&internals.lock);
    internal_t *all = internals.first;
    __atomic_store_n(&internals.first, NULL, __ATOMIC_RELAXED); /* progress reads it without the lock too */
    internals.last = &internals.first;
    pthread_mutex_unlock(&internals.lock);
    return all;
}

/* Puts those from `first` to the one whose link is `last` back, before what has been started meanwhile. */
static void put_requests_back(internal_t *first, internal_t **last)
{
    pthread_mutex_lock(&internals.lock);
    *last = internals.first;
    if (NULL == internals.first) {
        internals.last = last;
    }
    __atomic_store_n(&internals.first, first, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&internals.lock);
}

/* Called by Open MPI wherever it waits. No lock is held while messages are started: that may make progress in turn. */
static int internal_progress(void)
{
    internal_t *kept = NULL, **kept_last = &kept;
    int n = 0;

    if (NULL == __atomic_load_n(&internals.first, __ATOMIC_RELAXED) ||
        __atomic_exchange_n(&internals.busy, true, __ATOMIC_ACQUIRE)) {
        return 0;
    }
    for (internal_t *r = take_requests(), *next; NULL != r; r = next) {
        next = r->next;
        if (internal_poll(r)) {
            internal_complete(r);
            n++;
        } else {
            *kept_last = r;
            kept_last = &r->next;
        }
    }
    if (NULL != kept) {
        put_requests_back(kept, kept_last);
    }
    __atomic_store_n(&internals.busy, false, __ATOMIC_RELEASE);
    return n;
}

/* Puts it behind the others, whose messages must not be overtaken. */
static int internal_start(internal_t *r)
{
    pthread_mutex_lock(&internals.lock);
    if (!internals.registered) {
        internals.registered = OPAL_SUCCESS == opal_progress_register(internal_progress);
    }
    const bool ok = internals.registered;
    if (ok) {
        __atomic_store_n(internals.last, r, __ATOMIC_RELAXED);
        internals.last = &r->next;
    }
    pthread_mutex_unlock(&internals.lock);
    return ok ? OMPI_SUCCESS : OMPI_ERR_OUT_OF_RESOURCE;
}

/* A rank without gpusym, or with another one, calls the fallback: then all do. The same on all ranks. With BY_MESSAGES
 * *peers is the ranks' processes, to be freed. 0: no memory. */
static int find_way(coll_gpusym_engine_t *e, coll_gpusym_peer_t ***peers)
{
    const int known = __atomic_load_n(&e->internal, __ATOMIC_RELAXED);
    int reason;

    *peers = NULL;
    if (0 != known) {
        return known;
    }
    *peers = calloc((size_t) ompi_comm_size(e->fallback->comm), sizeof(**peers));
    if (NULL == *peers || MPI_SUCCESS != coll_gpusym_peers_alike(e->fallback->comm, *peers, &reason)) {
        free(*peers);
        return 0;
    }
    if (reason < 0) {
        return BY_MESSAGES;
    }
    free(*peers);
    __atomic_store_n(&e->internal, BY_FALLBACK, __ATOMIC_RELAXED);
    return BY_FALLBACK;
}

static int go_by_messages(coll_gpusym_engine_t *e, coll_gpusym_peer_t **peers, const void *in, void *out, size_t count,
                          struct ompi_op_t *op, ompi_request_t **req)
{
    internal_t *r = OBJ_NEW(internal_t);
    if (NULL == r) {
        free(peers);
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    r->peers = peers;
    OMPI_REQUEST_INIT(&r->super.super, false);
    r->super.super.req_mpi_object.comm = e->fallback->comm;
    r->super.super.req_state = OMPI_REQUEST_ACTIVE;
    r->engine = e;
    r->comm = e->fallback->comm;
    r->op = op;
    r->count = (int) count;
    r->out = out;
    r->bit = 1;
    memcpy(r->sum, MPI_IN_PLACE == in ? out : in, count * sizeof r->sum[0]);
    const int rv = internal_start(r);
    if (OMPI_SUCCESS != rv) {
        OMPI_REQUEST_FINI(&r->super.super);
        OBJ_RELEASE(r);
        return rv;
    }
    *req = &r->super.super;
    return OMPI_SUCCESS;
}

int coll_gpusym_internal_iallreduce(coll_gpusym_engine_t *e, const void *in, void *out, size_t count,
                                    struct ompi_op_t *op, ompi_request_t **req)
{
    coll_gpusym_peer_t **peers;

    switch (find_way(e, &peers)) {
    case BY_MESSAGES:
        return go_by_messages(e, peers, in, out, count, op, req);
    case REFUSED:
        return GPUSYM_ERR_PROC_FAILED;
    case BY_FALLBACK:
        return e->fallback->saved.iallreduce(in, out, (gpusym_count_t) count, MPI_INT, op, e->fallback->comm, req,
                                             e->fallback->saved.iallreduce_module);
    default:
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
}

static bool is_host(const void *buf)
{
    const gpusym_device_t *dev = gpusym_device_need();
    gpusym_mem_t mem = {.kind = GPUSYM_MEM_HOST};
    if (NULL != dev && MPI_IN_PLACE != buf) {
        dev->query(buf, &mem);
    }
    return !coll_gpusym_on_gpu(&mem);
}

bool coll_gpusym_is_internal(const void *in, const void *out, size_t count, struct ompi_datatype_t *dtype,
                             struct ompi_op_t *op, struct ompi_communicator_t *comm, const void *caller)
{
    Dl_info info;

    /* MPI_Iallreduce, and what is called so in other languages' and ABIs' libraries. Open MPI's own callers have no
     * name: they are not exported. Where no function has one (linked statically), the program's calls are taken for
     * Open MPI's too, unless they are on GPU memory. */
    if (0 != dladdr(caller, &info) && NULL != info.dli_sname && NULL != strcasestr(info.dli_sname, "iallreduce")) {
        __atomic_store_n(&coll_gpusym_iallreduce_caller, caller, __ATOMIC_RELAXED);
        return false;
    }
    return MPI_INT == dtype && 0 < count && count <= COUNT_MAX && !OMPI_COMM_IS_INTER(comm) &&
           ompi_comm_size(comm) > 1 && ompi_op_is_commute(op) && is_host(in) && is_host(out);
}

void coll_gpusym_internal_fini(void)
{
    if (internals.registered) {
        opal_progress_unregister(internal_progress);
        internals.registered = false;
    }
}
