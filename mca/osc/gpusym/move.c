/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Put and get: see move.h.
 *
 * Runs of bytes are copied by the GPU, which a later call that completes them waits for. What has gaps on one side is
 * packed, or unpacked, on its way; on both sides it goes through packed memory. That ends before the call returns, and
 * so do the calls with requests.
 */
#include "mca/osc/gpusym/move.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ompi/request/request.h"
#include "opal/util/output.h"

#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/gpusym/gpus.h"
#include "mca/osc/gpusym/attach.h"
#include "mca/osc/gpusym/remote.h"
#include "mca/osc/gpusym/report.h"
#include "mca/osc/gpusym/wait.h"

int osc_gpusym_refuse(const char *call, const char *why)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&told)) {
        opal_output(0,
                    "gpusym: %s on a window of GPU memory is refused: %s.\n"
                    "  Use collectives or kernels on it, or allocate it otherwise.",
                    call, why);
    }
    return MPI_ERR_UNSUPPORTED_OPERATION;
}

/* ---- the two sides ---- */

/* Whether an epoch permits access to a target; a fence's is then in use. */
static bool permitted(osc_gpusym_window_t *w, int target)
{
    pthread_mutex_lock(&w->lock);
    const bool other = OSC_GPUSYM_UNLOCKED != w->lock_all || OSC_GPUSYM_UNLOCKED != w->held[target] ||
                       (w->started && w->in_start[target]);
    const bool may = other || w->fence;
    w->fence_used = w->fence_used || (may && !other);
    pthread_mutex_unlock(&w->lock);
    return may;
}

/* Of a dynamic window displacements are addresses. */
static int find_attached(osc_gpusym_window_t *w, int target, ptrdiff_t disp, osc_gpusym_elements_t *e)
{
    char *first;

    if (!osc_gpusym_attached(w, target, (uint64_t) disp + (uint64_t) e->layout.lo, e->layout.span, &first, &e->gpu)) {
        return MPI_ERR_RMA_RANGE;
    }
    e->far = NULL == first;
    e->gpu = e->gpu && !e->far;
    e->at = (uint64_t) disp;
    e->buf = e->far ? NULL : first - e->layout.lo;
    return OMPI_SUCCESS;
}

int osc_gpusym_target(osc_gpusym_window_t *w, const char *call, int target, ptrdiff_t disp, size_t count,
                      struct ompi_datatype_t *type, osc_gpusym_elements_t *e)
{
    const osc_gpusym_part_t *part = &w->part[target];
    ptrdiff_t at, first;

    if (!w->served) {
        return osc_gpusym_refuse(call, OSC_GPUSYM_NOT_SERVED);
    }
    osc_gpusym_window_progress(w);
    if (!permitted(w, target)) {
        return MPI_ERR_RMA_SYNC;
    }
    gpusym_layout_find(count, type, &e->layout);
    e->gpu = part->gpu;
    e->far = false;
    e->owner = target;
    e->buf = NULL;
    if (0 == e->layout.bytes) {
        return OMPI_SUCCESS;
    }
    if (w->dynamic && !osc_gpusym_is_near(w, target)) { /* its owner knows what is attached */
        e->far = true;
        e->gpu = false;
        e->at = (uint64_t) disp;
        return OMPI_SUCCESS;
    }
    if (w->dynamic) {
        return find_attached(w, target, disp, e);
    }
    if (__builtin_mul_overflow(disp, (ptrdiff_t) part->unit, &at) || __builtin_add_overflow(at, e->layout.lo, &first) ||
        first < 0 || (uint64_t) first > part->bytes || e->layout.span > part->bytes - (uint64_t) first) {
        return MPI_ERR_RMA_RANGE;
    }
    e->far = !part->reached;
    e->gpu = e->gpu && !e->far;
    e->at = (uint64_t) at;
    e->buf = e->far ? NULL : part->base + at;
    return OMPI_SUCCESS;
}

/* ---- copies under way ---- */

/* Takes the copies that have ended from the list; returns whether one of the target's is left. */
static bool poll_copies(osc_gpusym_window_t *w, int target)
{
    bool left = false;

    pthread_mutex_lock(&w->lock);
    for (osc_gpusym_copy_t **at = &w->copies; NULL != *at;) {
        osc_gpusym_copy_t *c = *at;
        const int done = gpusym_copy_poll(&c->copy);
        if (0 == done) {
            left = left || target < 0 || target == c->target;
            at = &c->next;
            continue;
        }
        w->error = done < 0 ? osc_gpusym_class(w->comm, w->dev, done) : w->error;
        *at = c->next;
        free(c);
    }
    pthread_mutex_unlock(&w->lock);
    return left;
}

typedef struct {
    osc_gpusym_window_t *w;
    int target;
} wait_t;

static bool copies_ended(void *arg)
{
    const wait_t *wait = arg;
    gpusym_copy_flush(false);
    return !poll_copies(wait->w, wait->target);
}

int osc_gpusym_end_copies(osc_gpusym_window_t *w, int target)
{
    wait_t wait = {w, target};

    osc_gpusym_window_progress(w);
    /* Copies wait for no process: they are waited for even if one has died. */
    while (!copies_ended(&wait)) {
    }
    const int flushed = osc_gpusym_spans_hosts(w) ? osc_gpusym_remote_flush(w, target) : OMPI_SUCCESS;
    pthread_mutex_lock(&w->lock);
    const int rc = OMPI_SUCCESS != w->error ? w->error : flushed;
    w->error = OMPI_SUCCESS;
    pthread_mutex_unlock(&w->lock);
    atomic_thread_fence(memory_order_seq_cst);
    return rc;
}

/* Starts the copy of one run of bytes, to a target or (gets) from it. */
static int start_copy(osc_gpusym_window_t *w, int target, const osc_gpusym_elements_t *to,
                      const osc_gpusym_elements_t *from, bool gets)
{
    osc_gpusym_copy_t *c = calloc(1, sizeof *c);
    const gpusym_copy_rows_t run = {.dst = to->buf + to->layout.lo,
                                    .src = from->buf + from->layout.lo,
                                    .width = to->layout.bytes,
                                    .height = 1,
                                    .local = gets && to->gpu,
                                    .far = !gets && to->gpu,
                                    .engine = !to->gpu || !from->gpu,
                                    .shared = true};

    if (NULL == c) {
        return MPI_ERR_NO_MEM;
    }
    c->target = target;
    gpusym_p2p_gpu_review(w->gpu);
    pthread_mutex_lock(&w->lock);
    const int rc = gpusym_copy_start_rows(w->dev, w->gpu, &run, &c->copy);
    if (GPUSYM_SUCCESS == rc) {
        c->next = w->copies;
        w->copies = c;
    }
    pthread_mutex_unlock(&w->lock);
    if (GPUSYM_SUCCESS != rc) {
        free(c);
    }
    return osc_gpusym_class(w->comm, w->dev, rc);
}

/* ---- from elements to elements ---- */

/* Host memory of this process that is packed as it stands; NULL: it is none. */
static char *packed_here(const osc_gpusym_elements_t *e)
{
    return GPUSYM_LAYOUT_RUN == e->layout.kind && !e->gpu && !e->far ? e->buf + e->layout.lo : NULL;
}

/* Through packed memory: of the GPU, or of the host. */
static int move_packed(osc_gpusym_window_t *w, const osc_gpusym_elements_t *to, const osc_gpusym_elements_t *from)
{
    const size_t bytes = to->layout.bytes;
    char *const out = packed_here(from), *const in = packed_here(to);
    void *packed = NULL;
    int rc;

    if (NULL != out) {
        return osc_gpusym_scatter(w, to, out);
    }
    if (NULL != in) {
        return osc_gpusym_gather(w, from, in);
    }
    if (to->gpu && from->gpu && GPUSYM_SUCCESS == gpusym_scratch_get(w->dev, w->gpu, bytes, &packed)) {
        rc = osc_gpusym_pack(w, from, packed);
        rc = OMPI_SUCCESS == rc ? osc_gpusym_unpack(w, to, packed) : rc;
        gpusym_scratch_put(w->dev, w->gpu, packed);
        return rc;
    }
    packed = malloc(bytes);
    rc = NULL != packed ? osc_gpusym_gather(w, from, packed) : MPI_ERR_NO_MEM;
    rc = OMPI_SUCCESS == rc ? osc_gpusym_scatter(w, to, packed) : rc;
    free(packed);
    return rc;
}

/* One side is a run, which is packed memory. */
static int move_run(const osc_gpusym_window_t *w, const osc_gpusym_elements_t *to, const osc_gpusym_elements_t *from)
{
    const bool unpack = GPUSYM_LAYOUT_RUN == from->layout.kind;
    const gpusym_layout_t *l = unpack ? &to->layout : &from->layout;
    char *const run = unpack ? from->buf + from->layout.lo : to->buf + to->layout.lo;

    if (!to->gpu && !from->gpu) {
        return osc_gpusym_class(w->comm, w->dev,
                                unpack ? gpusym_layout_scatter(l, to->buf, run, l->bytes)
                                       : gpusym_layout_gather(l, from->buf, run, l->bytes));
    }
    return osc_gpusym_class(w->comm, w->dev,
                            unpack ? gpusym_layout_unpack(w->dev, w->gpu, l, to->buf, run, l->bytes)
                                   : gpusym_layout_pack(w->dev, w->gpu, l, run, from->buf, l->bytes));
}

int osc_gpusym_move(osc_gpusym_window_t *w, int target, const osc_gpusym_elements_t *to,
                    const osc_gpusym_elements_t *from, const osc_gpusym_elements_t *origin)
{
    const bool run_to = GPUSYM_LAYOUT_RUN == to->layout.kind, run_from = GPUSYM_LAYOUT_RUN == from->layout.kind;

    if (to->layout.bytes < from->layout.bytes) {
        return MPI_ERR_TRUNCATE;
    }
    if (0 == from->layout.bytes) {
        return OMPI_SUCCESS;
    }
    if (to->layout.bytes != from->layout.bytes) {
        osc_gpusym_elements_t part = *to; /* fewer than there is room for */
        osc_gpusym_cut(&part, from->layout.bytes);
        return osc_gpusym_move(w, target, &part, from, to == origin ? &part : origin);
    }
    if ((to->far || from->far) && !osc_gpusym_is_near(w, target)) {
        const osc_gpusym_access_t access = {.kind = to->far ? OSC_GPUSYM_WRITE : OSC_GPUSYM_READ,
                                            .target = target,
                                            .at = to->far ? to : from,
                                            .from = to->far ? from : NULL,
                                            .to = to->far ? NULL : to};
        return osc_gpusym_remote_access(w, &access);
    }
    if (to->far || from->far) {
        return move_packed(w, to, from);
    }
    if (run_to && run_from && (to->gpu || from->gpu) && origin->own &&
        gpusym_layout_is_one(w->dev, &origin->layout, origin->buf)) {
        return start_copy(w, target, to, from, to == origin);
    }
    /* A side that only the CPU reaches, with gaps, is packed by it, on its way to or from the GPU. */
    if ((run_to && (from->gpu || !to->gpu)) || (run_from && (to->gpu || !from->gpu))) {
        return move_run(w, to, from);
    }
    return move_packed(w, to, from);
}

static int put(const char *call, const void *origin, size_t origin_count, struct ompi_datatype_t *origin_type,
               int target, ptrdiff_t disp, size_t count, struct ompi_datatype_t *type, struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);
    osc_gpusym_elements_t to, from;

    if (MPI_PROC_NULL == target) {
        return OMPI_SUCCESS;
    }
    const int rc = osc_gpusym_target(w, call, target, disp, count, type, &to);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    osc_gpusym_origin(w, origin, origin_count, origin_type, &from);
    return osc_gpusym_move(w, target, &to, &from, &from);
}

static int get(const char *call, void *origin, size_t origin_count, struct ompi_datatype_t *origin_type, int target,
               ptrdiff_t disp, size_t count, struct ompi_datatype_t *type, struct ompi_win_t *win)
{
    osc_gpusym_window_t *w = osc_gpusym_window(win);
    osc_gpusym_elements_t to, from;

    if (MPI_PROC_NULL == target) {
        return OMPI_SUCCESS;
    }
    const int rc = osc_gpusym_target(w, call, target, disp, count, type, &from);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    osc_gpusym_origin(w, origin, origin_count, origin_type, &to);
    return osc_gpusym_move(w, target, &to, &from, &to);
}

/* ---- the functions of the module ---- */

int osc_gpusym_put(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                   ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win)
{
    return put("MPI_Put", origin, (size_t) origin_count, origin_type, target, disp, (size_t) count, type, win);
}

int osc_gpusym_get(void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                   ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win)
{
    return get("MPI_Get", origin, (size_t) origin_count, origin_type, target, disp, (size_t) count, type, win);
}

int osc_gpusym_rput(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                    ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win,
                    struct ompi_request_t **request)
{
    int rc = put("MPI_Rput", origin, (size_t) origin_count, origin_type, target, disp, (size_t) count, type, win);

    rc = OMPI_SUCCESS == rc && target >= 0 ? osc_gpusym_end_copies(osc_gpusym_window(win), target) : rc;
    *request = &ompi_request_empty;
    return rc;
}

int osc_gpusym_rget(void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type, int target,
                    ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type, struct ompi_win_t *win,
                    struct ompi_request_t **request)
{
    int rc = get("MPI_Rget", origin, (size_t) origin_count, origin_type, target, disp, (size_t) count, type, win);

    rc = OMPI_SUCCESS == rc && target >= 0 ? osc_gpusym_end_copies(osc_gpusym_window(win), target) : rc;
    *request = &ompi_request_empty;
    return rc;
}
