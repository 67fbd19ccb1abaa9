/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Accumulates of a few elements: see swap.h.
 */
#include "mca/osc/gpusym/swap.h"

#include <sched.h>
#include <string.h>

#include "opal/runtime/opal_progress.h"

#include "mca/common/gpusym/exec/copier.h"
#include "mca/common/gpusym/gpus.h"
#include "mca/common/gpusym/memory/left.h"
#include "mca/osc/gpusym/counters.h"
#include "mca/osc/gpusym/report.h"

_Static_assert(8 == offsetof(gpusym_combine_t, result) && 16 == offsetof(gpusym_combine_t, compared) &&
                   24 == offsetof(gpusym_combine_t, op) && 28 == offsetof(gpusym_combine_t, type) &&
                   32 == offsetof(gpusym_combine_t, compare) &&
                   8 * GPUSYM_COMBINE_WORDS == offsetof(gpusym_combine_t, value) &&
                   0 == offsetof(gpusym_combine_t, value) % 16,
               "as the kernel reads them");

/* Polls of a command after which it takes longer than a copier that is there: a kernel is launched for it. */
#define LATE_POLLS 1024u

/* Whether the copier of the window's GPU reaches the elements, as one run, or they are in host memory. */
static bool is_run(const osc_gpusym_elements_t *e)
{
    return GPUSYM_LAYOUT_RUN == e->layout.kind && e->own;
}

static char *run_at(const osc_gpusym_elements_t *e)
{
    return e->buf + e->layout.lo;
}

static bool fits(const osc_gpusym_swap_t *swap)
{
    const osc_gpusym_elements_t *target = swap->target;
    const size_t most = GPUSYM_COMBINE_COMPARE == swap->op ? GPUSYM_PACK : GPUSYM_COMBINE_MAX;

    return target->gpu && !target->far && GPUSYM_LAYOUT_RUN == target->layout.kind && target->layout.bytes <= most &&
           is_run(swap->given) && (NULL == swap->compared || is_run(swap->compared)) &&
           (NULL == swap->result || is_run(swap->result));
}

/* Pinned memory, made at the first accumulate. The caller has w->reducing. */
static gpusym_combine_t *get_area(osc_gpusym_window_t *w)
{
    char limits[GPUSYM_LIMITS_TEXT];
    void *host, *dev;

    if (NULL == w->combine && !w->combine_tried) {
        w->combine_tried = true;
        if (GPUSYM_SUCCESS == w->dev->host_alloc(w->gpu, sizeof *w->combine, &host, &dev)) {
            w->combine = host;
            w->combine_dev = dev;
        } else {
            OSC_GPUSYM_VERBOSE("short accumulates take longer, without pinned memory: %s%s", w->dev->error(),
                               gpusym_memory_limits(limits));
        }
    }
    return w->combine;
}

/* Elements that are not GPU memory go to `value`. Returns where the GPU finds them; NULL: there. */
static const void *give(const osc_gpusym_elements_t *e, void *value, size_t bytes)
{
    if (e->gpu) {
        return run_at(e);
    }
    memcpy(value, run_at(e), bytes);
    return NULL;
}

static void describe(const osc_gpusym_window_t *w, const osc_gpusym_swap_t *swap)
{
    gpusym_combine_t *x = w->combine;
    const size_t bytes = swap->target->layout.bytes;

    x->op = swap->op;
    x->type = swap->type;
    x->given = give(swap->given, x->value, bytes);
    if (NULL != swap->compared) {
        memset(x->compare, 0, sizeof x->compare);
        x->compared = give(swap->compared, x->compare, bytes);
    }
    x->result = NULL == swap->result ? NULL
                : swap->result->gpu  ? run_at(swap->result)
                                     : (char *) w->combine_dev + offsetof(gpusym_combine_t, found);
}

/* GPUSYM_SUCCESS: it is done. GPUSYM_ERR_NOT_AVAILABLE, GPUSYM_ERR_LATE: nothing is. Another one: the device's. */
static int command(osc_gpusym_window_t *w, const osc_gpusym_swap_t *swap)
{
    const gpusym_copier_run_t run = {.dst = run_at(swap->target),
                                     .src = w->combine_dev,
                                     .bytes = (uint32_t) swap->target->layout.bytes,
                                     .does = GPUSYM_COPY_COMBINES | GPUSYM_COPY_FAR};
    gpusym_copier_t *copier;

    gpusym_p2p_gpu_review(w->gpu);
    int rc = gpusym_copier_start(w->dev, w->gpu, &run, &copier);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    for (uint32_t polls = 1; 0 == (rc = gpusym_copier_poll(copier)); polls++) {
        if (w->dev->simulated || 0 == polls % LATE_POLLS) { /* its GPUs are threads of this host */
            opal_progress();
            sched_yield();
        }
    }
    return 1 == rc ? GPUSYM_SUCCESS : rc;
}

bool osc_gpusym_swap(osc_gpusym_window_t *w, const osc_gpusym_swap_t *swap, int *rc)
{
    int done = GPUSYM_ERR_NOT_AVAILABLE;

    if (!fits(swap)) {
        return false;
    }
    pthread_mutex_lock(&w->reducing);
    if (NULL != get_area(w)) {
        describe(w, swap);
        done = command(w, swap);
    }
    if (GPUSYM_SUCCESS == done && NULL != swap->result && !swap->result->gpu) {
        memcpy(run_at(swap->result), w->combine->found, swap->target->layout.bytes);
    }
    pthread_mutex_unlock(&w->reducing);
    if (GPUSYM_ERR_NOT_AVAILABLE == done || GPUSYM_ERR_LATE == done) {
        return false;
    }
    if (GPUSYM_SUCCESS == done) {
        osc_gpusym_count(OSC_GPUSYM_BY_COMMAND);
    }
    *rc = osc_gpusym_class(w->comm, w->dev, done);
    return true;
}
