/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows of Open MPI's components: see wrap.h.
 *
 * A call's bounce buffers join the window's list when the component has accepted the call. A call that closes
 * operations ends those behind the component's function that were there before it: another thread may begin further
 * ones meanwhile. A buffer leaves the list when its data are in GPU memory, so that a thread whose calls another one
 * has closed does not go on before.
 */
#include "mca/osc/gpusym/wrap.h"

#include <stdint.h>
#include <stdlib.h>

#include "ompi/op/op.h"
#include "ompi/request/request.h"
#include "opal/util/output.h"

#include "mca/common/gpusym/device/plain.h"
#include "mca/common/gpusym/lock.h"
#include "mca/common/gpusym/memory/pool.h"
#include "mca/osc/gpusym/bounce.h"
#include "mca/osc/gpusym/sync.h"

/* Bounce buffers of a window from which on calls are flushed, in bytes, where the epoch is such that they can be. */
#define BOUNCE_MAX (64u << 20)

/* A window. Never freed while others may look for theirs, but used again. */
typedef struct wrap {
    struct wrap *next;            /* of the same bucket; does not change */
    const struct ompi_win_t *win; /* atomic; NULL: free */
    ompi_osc_base_module_t host;  /* the component's functions */
    pthread_mutex_t lock;
    osc_gpusym_bounce_t *first; /* of calls that are not closed; guarded by lock */
    uint64_t bytes;             /* of these */
    uint64_t number;            /* of the last one that joined them */
} wrap_t;

/* Windows by their address. */
#define BUCKETS 64u
static struct {
    pthread_mutex_t lock; /* for changes */
    wrap_t *bucket[BUCKETS];
} wraps = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline wrap_t **bucket_of(const struct ompi_win_t *win)
{
    const uintptr_t at = (uintptr_t) win;
    return &wraps.bucket[(at >> 4 ^ at >> 10) % BUCKETS];
}

/* The one of a window that is open. */
static inline wrap_t *find(const struct ompi_win_t *win)
{
    wrap_t *w = __atomic_load_n(bucket_of(win), __ATOMIC_ACQUIRE);

    while (win != __atomic_load_n(&w->win, __ATOMIC_ACQUIRE)) {
        w = w->next;
    }
    return w;
}

/* ---- the list ---- */

/* Adds a list to the window's. */
static void add(wrap_t *w, osc_gpusym_bounce_t *list)
{
    gpusym_lock(&w->lock);
    while (NULL != list) {
        osc_gpusym_bounce_t *b = list;
        list = b->next;
        b->next = w->first;
        b->number = ++w->number;
        w->bytes += b->bytes;
        __atomic_store_n(&w->first, b, __ATOMIC_RELAXED);
    }
    gpusym_unlock(&w->lock);
}

/* Before a function that closes calls: the last buffer that it may close; 0: there is none. */
static uint64_t closing(wrap_t *w)
{
    if (NULL == __atomic_load_n(&w->first, __ATOMIC_ACQUIRE)) {
        return 0;
    }
    gpusym_lock(&w->lock);
    const uint64_t last = w->number;
    gpusym_unlock(&w->lock);
    return last;
}

/* Behind it: the buffers of calls to a target end, unless it has failed; target -1: of all; MPI_PROC_NULL has none. */
static int closed(wrap_t *w, uint64_t last, int target, int rc)
{
    if (OMPI_SUCCESS != rc || 0 == last) {
        return rc;
    }
    gpusym_lock(&w->lock);
    for (osc_gpusym_bounce_t **at = &w->first; NULL != *at;) {
        osc_gpusym_bounce_t *b = *at;
        if (b->number > last || (-1 != target && target != b->target)) {
            at = &b->next;
            continue;
        }
        const int copied = osc_gpusym_bounce_back(b);
        rc = OMPI_SUCCESS == rc ? copied : rc;
        w->bytes -= b->bytes;
        __atomic_store_n(at, b->next, __ATOMIC_RELEASE);
        osc_gpusym_bounce_free(b);
    }
    gpusym_unlock(&w->lock);
    return rc;
}

/* Behind a call to a target, of these buffers. */
static int called(wrap_t *w, struct ompi_win_t *win, osc_gpusym_bounce_t *list, int target, int rc)
{
    if (NULL == list) {
        return rc;
    }
    if (OMPI_SUCCESS != rc) {
        (void) osc_gpusym_bounces_end(list, false);
        return rc;
    }
    for (osc_gpusym_bounce_t *b = list; NULL != b; b = b->next) {
        b->target = target;
    }
    add(w, list);
    gpusym_lock(&w->lock);
    const bool much = w->bytes > BOUNCE_MAX;
    gpusym_unlock(&w->lock);
    if (much) { /* an error says that this epoch cannot be flushed: they stay */
        const uint64_t last = closing(w);
        const int flushed = w->host.osc_flush_all(win);
        rc = closed(w, last, -1, flushed);
        rc = OMPI_SUCCESS != flushed ? OMPI_SUCCESS : rc;
    }
    return rc;
}

/* The same behind a call with a request: with buffers it ends here. */
static int requested(osc_gpusym_bounce_t *list, struct ompi_request_t **request, int rc)
{
    if (NULL == list) {
        return rc;
    }
    rc = OMPI_SUCCESS == rc ? ompi_request_wait(request, MPI_STATUS_IGNORE) : rc;
    const int ended = osc_gpusym_bounces_end(list, OMPI_SUCCESS == rc);
    *request = &ompi_request_empty;
    return OMPI_SUCCESS != rc ? rc : ended;
}

/* ---- put and get ---- */

#define MOST SIZE_MAX

static int put(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
               ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    osc_gpusym_buffer_t from = {(void *) (uintptr_t) origin, (size_t) origin_count, origin_type};
    osc_gpusym_bounce_t *list = NULL;
    int rc = osc_gpusym_bounce(&from, OSC_GPUSYM_READS, MOST, false, &list);

    rc = OMPI_SUCCESS == rc
             ? w->host.osc_put(from.p, (gpusym_count_t) from.count, from.type, target, disp, count, type, win)
             : rc;
    return called(w, win, list, target, rc);
}

static int rput(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win,
                struct ompi_request_t **request)
{
    const wrap_t *w = find(win);
    osc_gpusym_buffer_t from = {(void *) (uintptr_t) origin, (size_t) origin_count, origin_type};
    osc_gpusym_bounce_t *list = NULL;
    int rc = osc_gpusym_bounce(&from, OSC_GPUSYM_READS, MOST, false, &list);

    rc = OMPI_SUCCESS == rc
             ? w->host.osc_rput(from.p, (gpusym_count_t) from.count, from.type, target, disp, count, type, win, request)
             : rc;
    return requested(list, request, rc);
}

/* The origin of a get may be longer than what is got. */
static int get(void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
               ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    osc_gpusym_buffer_t to = {origin, (size_t) origin_count, origin_type};
    osc_gpusym_bounce_t *list = NULL;
    int rc = osc_gpusym_bounce(&to, OSC_GPUSYM_WRITES, (size_t) count * type->super.size, false, &list);

    rc = OMPI_SUCCESS == rc ? w->host.osc_get(to.p, (gpusym_count_t) to.count, to.type, target, disp, count, type, win)
                            : rc;
    return called(w, win, list, target, rc);
}

static int rget(void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win,
                struct ompi_request_t **request)
{
    const wrap_t *w = find(win);
    osc_gpusym_buffer_t to = {origin, (size_t) origin_count, origin_type};
    osc_gpusym_bounce_t *list = NULL;
    int rc = osc_gpusym_bounce(&to, OSC_GPUSYM_WRITES, (size_t) count * type->super.size, false, &list);

    rc = OMPI_SUCCESS == rc
             ? w->host.osc_rget(to.p, (gpusym_count_t) to.count, to.type, target, disp, count, type, win, request)
             : rc;
    return requested(list, request, rc);
}

/* ---- accumulates ---- */

/* Of MPI_NO_OP the origin may be anything, but components look at it. */
static osc_gpusym_use_t use_of(const struct ompi_op_t *op)
{
    return &ompi_mpi_op_no_op.op == op ? OSC_GPUSYM_IGNORES : OSC_GPUSYM_READS;
}

/* fetched: bytes. The result may be longer. */
static int bounce_both(osc_gpusym_buffer_t *from, osc_gpusym_buffer_t *to, size_t fetched, const struct ompi_op_t *op,
                       osc_gpusym_bounce_t **list)
{
    const int rc = osc_gpusym_bounce(from, use_of(op), MOST, true, list);
    return OMPI_SUCCESS == rc ? osc_gpusym_bounce(to, OSC_GPUSYM_WRITES, fetched, true, list) : rc;
}

static int accumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                      ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_op_t *op,
                      struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    osc_gpusym_buffer_t from = {(void *) (uintptr_t) origin, (size_t) origin_count, origin_type};
    osc_gpusym_bounce_t *list = NULL;
    int rc = osc_gpusym_bounce(&from, use_of(op), MOST, true, &list);

    rc = OMPI_SUCCESS == rc ? w->host.osc_accumulate(from.p, (gpusym_count_t) from.count, from.type, target, disp,
                                                     count, type, op, win)
                            : rc;
    return called(w, win, list, target, rc);
}

static int raccumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                       ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_op_t *op,
                       struct ompi_win_t *win, struct ompi_request_t **request)
{
    const wrap_t *w = find(win);
    osc_gpusym_buffer_t from = {(void *) (uintptr_t) origin, (size_t) origin_count, origin_type};
    osc_gpusym_bounce_t *list = NULL;
    int rc = osc_gpusym_bounce(&from, use_of(op), MOST, true, &list);

    rc = OMPI_SUCCESS == rc ? w->host.osc_raccumulate(from.p, (gpusym_count_t) from.count, from.type, target, disp,
                                                      count, type, op, win, request)
                            : rc;
    return requested(list, request, rc);
}

static int get_accumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type,
                          void *result, gpusym_count_t result_count, struct ompi_datatype_t *result_type, int target,
                          ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_op_t *op,
                          struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    osc_gpusym_buffer_t from = {(void *) (uintptr_t) origin, (size_t) origin_count, origin_type};
    osc_gpusym_buffer_t to = {result, (size_t) result_count, result_type};
    osc_gpusym_bounce_t *list = NULL;
    int rc = bounce_both(&from, &to, (size_t) count * type->super.size, op, &list);

    rc = OMPI_SUCCESS == rc
             ? w->host.osc_get_accumulate(from.p, (gpusym_count_t) from.count, from.type, to.p,
                                          (gpusym_count_t) to.count, to.type, target, disp, count, type, op, win)
             : rc;
    return called(w, win, list, target, rc);
}

static int rget_accumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type,
                           void *result, gpusym_count_t result_count, struct ompi_datatype_t *result_type, int target,
                           ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_op_t *op,
                           struct ompi_win_t *win, struct ompi_request_t **request)
{
    const wrap_t *w = find(win);
    osc_gpusym_buffer_t from = {(void *) (uintptr_t) origin, (size_t) origin_count, origin_type};
    osc_gpusym_buffer_t to = {result, (size_t) result_count, result_type};
    osc_gpusym_bounce_t *list = NULL;
    int rc = bounce_both(&from, &to, (size_t) count * type->super.size, op, &list);

    rc = OMPI_SUCCESS == rc ? w->host.osc_rget_accumulate(from.p, (gpusym_count_t) from.count, from.type, to.p,
                                                          (gpusym_count_t) to.count, to.type, target, disp, count, type,
                                                          op, win, request)
                            : rc;
    return requested(list, request, rc);
}

static int fetch_and_op(const void *origin, void *result, struct ompi_datatype_t *type, int target, ptrdiff_t disp,
                        struct ompi_op_t *op, struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    osc_gpusym_buffer_t from = {(void *) (uintptr_t) origin, 1, type}, to = {result, 1, type};
    osc_gpusym_bounce_t *list = NULL;
    int rc = bounce_both(&from, &to, MOST, op, &list);

    rc = OMPI_SUCCESS == rc ? w->host.osc_fetch_and_op(from.p, to.p, type, target, disp, op, win) : rc;
    return called(w, win, list, target, rc);
}

static int compare_and_swap(const void *origin, const void *compare, void *result, struct ompi_datatype_t *type,
                            int target, ptrdiff_t disp, struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    osc_gpusym_buffer_t from = {(void *) (uintptr_t) origin, 1, type}, to = {result, 1, type};
    osc_gpusym_buffer_t old = {(void *) (uintptr_t) compare, 1, type};
    osc_gpusym_bounce_t *list = NULL;
    int rc = osc_gpusym_bounce(&old, OSC_GPUSYM_READS, MOST, true, &list);

    rc = OMPI_SUCCESS == rc ? osc_gpusym_bounce(&from, OSC_GPUSYM_READS, MOST, true, &list) : rc;
    rc = OMPI_SUCCESS == rc ? osc_gpusym_bounce(&to, OSC_GPUSYM_WRITES, MOST, true, &list) : rc;
    rc = OMPI_SUCCESS == rc ? w->host.osc_compare_and_swap(from.p, old.p, to.p, type, target, disp, win) : rc;
    return called(w, win, list, target, rc);
}

/* ---- calls that close others, and locks ---- */

static int fence(int assertion, struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    const uint64_t last = closing(w);
    return closed(w, last, -1, w->host.osc_fence(assertion, win));
}

static int complete(struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    const uint64_t last = closing(w);
    return closed(w, last, -1, w->host.osc_complete(win));
}

/* Behind a function that gets locks, or releases them. */
static int locked(int rc, bool got)
{
    if (OMPI_SUCCESS == rc) {
        osc_gpusym_count_lock(got);
    }
    return rc;
}

static int lock(int type, int target, int assertion, struct ompi_win_t *win)
{
    return locked(find(win)->host.osc_lock(type, target, assertion, win), true);
}

static int unlock(int target, struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    const uint64_t last = closing(w);
    return closed(w, last, target, locked(w->host.osc_unlock(target, win), false));
}

static int lock_all(int assertion, struct ompi_win_t *win)
{
    return locked(find(win)->host.osc_lock_all(assertion, win), true);
}

static int unlock_all(struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    const uint64_t last = closing(w);
    return closed(w, last, -1, locked(w->host.osc_unlock_all(win), false));
}

static int flush(int target, struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    const uint64_t last = closing(w);
    return closed(w, last, target, w->host.osc_flush(target, win));
}

static int flush_all(struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    const uint64_t last = closing(w);
    return closed(w, last, -1, w->host.osc_flush_all(win));
}

static int flush_local(int target, struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    const uint64_t last = closing(w);
    return closed(w, last, target, w->host.osc_flush_local(target, win));
}

static int flush_local_all(struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    const uint64_t last = closing(w);
    return closed(w, last, -1, w->host.osc_flush_local_all(win));
}

/* ---- windows ---- */

/* The component would access GPU memory by the CPU. */
static int attach(struct ompi_win_t *win, void *base, size_t bytes)
{
    const bool may_be_gpu = MPI_WIN_FLAVOR_DYNAMIC == win->w_flavor && 0 != bytes;
    const gpusym_device_t *dev = may_be_gpu ? gpusym_device_for_memory() : NULL;
    gpusym_mem_t mem = {.kind = GPUSYM_MEM_HOST, .gpu = -1};

    if (NULL != dev && !gpusym_plain(base)) {
        dev->query(base, &mem);
    }
    if (GPUSYM_MEM_DEVICE != mem.kind) {
        return find(win)->host.osc_win_attach(win, base, bytes);
    }
    opal_output(
        0,
        "gpusym: rank %d of a dynamic window cannot attach GPU memory to it (%zu bytes at %p, GPU %d): it is a\n"
        "  window for host memory. Make it when a rank uses a GPU already, without the info key " GPUSYM_POOL_KEY
        ",\n  or on some rank with " GPUSYM_POOL_KEY "=mpool=gpusym.",
        ompi_win_rank(win), bytes, base, mem.gpu);
    return MPI_ERR_RMA_ATTACH;
}

static int window_free(struct ompi_win_t *win)
{
    wrap_t *w = find(win);
    const int rc = w->host.osc_free(win);

    if (OMPI_SUCCESS == rc) {
        (void) osc_gpusym_bounces_end(w->first, false);
        w->first = NULL;
        w->bytes = 0;
        __atomic_store_n(&w->win, NULL, __ATOMIC_RELEASE);
    }
    return rc;
}

int osc_gpusym_wrap(struct ompi_win_t *win)
{
    ompi_osc_base_module_t *module = win->w_osc_module;
    wrap_t **bucket = bucket_of(win), *w;

    pthread_mutex_lock(&wraps.lock);
    for (w = *bucket; NULL != w && NULL != w->win; w = w->next) {
    }
    const bool new = NULL == w;
    w = new ? calloc(1, sizeof *w) : w;
    if (NULL == w) {
        pthread_mutex_unlock(&wraps.lock);
        return MPI_ERR_NO_MEM;
    }
    w->host = *module;
    __atomic_store_n(&w->win, win, __ATOMIC_RELEASE);
    if (new) {
        pthread_mutex_init(&w->lock, NULL);
        w->next = *bucket;
        __atomic_store_n(bucket, w, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&wraps.lock);
    module->osc_win_attach = attach;
    module->osc_free = window_free;
    module->osc_put = put;
    module->osc_get = get;
    module->osc_accumulate = accumulate;
    module->osc_compare_and_swap = compare_and_swap;
    module->osc_fetch_and_op = fetch_and_op;
    module->osc_get_accumulate = get_accumulate;
    module->osc_rput = rput;
    module->osc_rget = rget;
    module->osc_raccumulate = raccumulate;
    module->osc_rget_accumulate = rget_accumulate;
    module->osc_fence = fence;
    module->osc_complete = complete;
    module->osc_lock = lock;
    module->osc_lock_all = lock_all;
    module->osc_unlock = unlock;
    module->osc_unlock_all = unlock_all;
    module->osc_flush = flush;
    module->osc_flush_all = flush_all;
    module->osc_flush_local = flush_local;
    module->osc_flush_local_all = flush_local_all;
    return OMPI_SUCCESS;
}

void osc_gpusym_wraps_close(void)
{
    for (unsigned i = 0; i < BUCKETS; i++) {
        while (NULL != wraps.bucket[i]) {
            wrap_t *w = wraps.bucket[i];
            wraps.bucket[i] = w->next;
            (void) osc_gpusym_bounces_end(w->first, false);
            pthread_mutex_destroy(&w->lock);
            free(w);
        }
    }
}
