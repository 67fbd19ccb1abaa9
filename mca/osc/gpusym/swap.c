/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Accumulates of a few bytes: see swap.h.
 */
#include "mca/osc/gpusym/swap.h"

#include <string.h>

#include "mca/common/gpusym/exec/exchange.h"
#include "mca/common/gpusym/gpus.h"
#include "mca/common/gpusym/memory/left.h"

/* The target's elements are the first input and the first output. */
typedef struct {
    const void *in[1 + OSC_GPUSYM_SWAP_GIVEN];
    void *out[2];
    uint32_t nin, nout, bytes;
    uint32_t input[OSC_GPUSYM_SWAP_GIVEN]; /* which input brings those given; 0: they are in host memory */
} swap_work_t;

/* Whether the copier of the window's GPU reaches the elements, as one run. */
static bool is_run(const osc_gpusym_elements_t *e)
{
    return GPUSYM_LAYOUT_RUN == e->layout.kind && e->own;
}

static void *run_at(const osc_gpusym_elements_t *e)
{
    return e->buf + e->layout.lo;
}

/* False: it is not for such elements. */
static bool plan_swap(const osc_gpusym_swap_t *swap, swap_work_t *work)
{
    const osc_gpusym_elements_t *target = swap->target, *result = swap->result;

    if (!target->gpu || target->far || GPUSYM_LAYOUT_RUN != target->layout.kind ||
        target->layout.bytes > OSC_GPUSYM_SWAP_MAX || (NULL != result && !is_run(result))) {
        return false;
    }
    *work = (swap_work_t){
        .in = {run_at(target)}, .out = {run_at(target)}, .nin = 1, .nout = 1, .bytes = (uint32_t) target->layout.bytes};
    for (uint32_t i = 0; i < swap->ngiven; i++) {
        const osc_gpusym_elements_t *e = swap->given[i];
        if (!is_run(e)) {
            return false;
        }
        if (e->gpu) {
            work->input[i] = work->nin;
            work->in[work->nin++] = run_at(e);
        }
    }
    if (NULL != result && result->gpu) {
        work->out[work->nout++] = run_at(result);
    }
    return true;
}

/* Pinned memory for exchanges, made at the first. The caller has w->reducing. */
static gpusym_exchange_t *get_area(osc_gpusym_window_t *w)
{
    char limits[GPUSYM_LIMITS_TEXT];
    void *host, *dev;

    if (NULL == w->exchange && !w->exchange_tried) {
        w->exchange_tried = true;
        if (GPUSYM_SUCCESS == w->dev->host_alloc(w->gpu, sizeof *w->exchange, &host, &dev)) {
            w->exchange = host;
            w->exchange_dev = dev;
        } else {
            OSC_GPUSYM_VERBOSE("short accumulates take longer, without pinned memory: %s%s", w->dev->error(),
                               gpusym_memory_limits(limits));
        }
    }
    return w->exchange;
}

/* What has come of the target's elements and of those given, and what is to become of them; aligned for any type. */
typedef struct {
    _Alignas(GPUSYM_PACK) char in[GPUSYM_EXCHANGE_BUFFERS][GPUSYM_EXCHANGE_MAX];
    char next[OSC_GPUSYM_SWAP_MAX];
} values_t;

static void compute(const osc_gpusym_swap_t *swap, const swap_work_t *work, values_t *v)
{
    char *given[OSC_GPUSYM_SWAP_GIVEN] = {NULL};

    for (uint32_t i = 0; i < swap->ngiven; i++) {
        given[i] = 0 != work->input[i] ? v->in[work->input[i]] : run_at(swap->given[i]);
    }
    swap->fn(swap->arg, v->in[0], given, v->next, work->bytes);
}

/* Takes the inputs once they are there, and answers. */
static bool answer(const osc_gpusym_swap_t *swap, const swap_work_t *work, gpusym_exchange_t *x, uint32_t number,
                   values_t *v)
{
    if (!gpusym_exchange_inputs(x, work->nin, work->bytes, number, v->in)) {
        return false;
    }
    compute(swap, work, v);
    gpusym_exchange_answer(x, 0, v->next, work->bytes, number);
    if (2 == work->nout) {
        gpusym_exchange_answer(x, 1, v->in[0], work->bytes, number);
    }
    return true;
}

/* GPUSYM_SUCCESS: the inputs have come; *stored: and the outputs are stored. Another one: the device's. */
static int exchange(osc_gpusym_window_t *w, const osc_gpusym_swap_t *swap, const swap_work_t *work, values_t *v,
                    bool *stored)
{
    gpusym_exchange_t *x = get_area(w);
    gpusym_copier_t *copier;
    const gpusym_copier_run_t run = {.dst = w->exchange_dev,
                                     .src = work->in[0],
                                     .bytes = GPUSYM_EXCHANGE_COMMAND(work->bytes, work->nin, work->nout),
                                     .does = GPUSYM_COPY_EXCHANGES | GPUSYM_COPY_FAR | GPUSYM_COPY_PACKS};

    *stored = false;
    if (NULL == x) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    memcpy(x->in, work->in, sizeof work->in);
    memcpy(x->out, work->out, sizeof work->out);
    gpusym_exchange_clear(x, work->nin, work->nout, work->bytes);
    gpusym_p2p_gpu_review(w->gpu);
    int rc = gpusym_copier_start(w->dev, w->gpu, &run, &copier);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    bool answered = false;
    uint32_t number;
    do {
        number = gpusym_copier_number(copier); /* another one, if it had to be launched again */
        answered = answered || answer(swap, work, x, number, v);
        rc = gpusym_copier_poll(copier);
    } while (0 == rc);
    if (rc < 0 && GPUSYM_ERR_LATE != rc) {
        return rc;
    }
    *stored = answered && 1 == rc && !gpusym_exchange_late(x, number);
    return answered || answer(swap, work, x, number, v) ? GPUSYM_SUCCESS : GPUSYM_ERR_NOT_AVAILABLE;
}

bool osc_gpusym_swap(osc_gpusym_window_t *w, const osc_gpusym_swap_t *swap, int *rc)
{
    swap_work_t work;
    values_t v;
    bool stored;

    if (!plan_swap(swap, &work)) {
        return false;
    }
    pthread_mutex_lock(&w->reducing);
    const int done = exchange(w, swap, &work, &v, &stored);
    pthread_mutex_unlock(&w->reducing);
    if (GPUSYM_ERR_NOT_AVAILABLE == done) {
        return false;
    }
    *rc = GPUSYM_SUCCESS == done ? OMPI_SUCCESS : MPI_ERR_OTHER;
    if (OMPI_SUCCESS == *rc && !stored) { /* the GPU has not waited for the answer, or not stored all of it */
        *rc = osc_gpusym_scatter(w, swap->target, v.next);
    }
    if (OMPI_SUCCESS == *rc && NULL != swap->result && (!stored || !swap->result->gpu)) {
        *rc = osc_gpusym_scatter(w, swap->result, v.in[0]);
    }
    return true;
}
