/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a stream runs: kernels, copies, flags and the like, whose pointers are translated and pinned when they are
 * queued.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mca/common/gpusym/device/sim/sim_internal.h"

/* ---- marks ---- */

struct sim_mark {
    unsigned refs; /* atomic */
    bool reached;  /* atomic */
};

sim_mark_t *sim_mark_new(void)
{
    sim_mark_t *mark = calloc(1, sizeof(*mark));
    if (NULL != mark) {
        mark->refs = 1;
    }
    return mark;
}

void sim_mark_keep(sim_mark_t *mark)
{
    __atomic_fetch_add(&mark->refs, 1, __ATOMIC_RELAXED);
}

void sim_mark_drop(sim_mark_t *mark)
{
    if (1 == __atomic_fetch_sub(&mark->refs, 1, __ATOMIC_ACQ_REL)) {
        free(mark);
    }
}

bool sim_mark_reached(const sim_mark_t *mark)
{
    return __atomic_load_n(&mark->reached, __ATOMIC_ACQUIRE);
}

/* ---- items ---- */

void sim_nap(unsigned tries)
{
    static const struct timespec nap = {0, 20000};
    if (tries < 16) {
        sched_yield();
    } else {
        nanosleep(&nap, NULL);
    }
}

void sim_item_unpin(sim_item_t *item)
{
    for (unsigned i = 0; i < item->npins; i++) {
        sim_region_unpin(item->pin[i]);
    }
    item->npins = 0;
    if (NULL != item->mark) {
        sim_mark_drop(item->mark);
        item->mark = NULL;
    }
}

/* sim_reach(), with the pin kept in the item. */
static int item_reach(sim_item_t *item, const void *p, size_t size, unsigned how, void **at)
{
    sim_region_t *pin;
    int rc = sim_reach(p, size, how, at, &pin);
    if (NULL != pin) {
        item->pin[item->npins++] = pin;
    }
    return rc;
}

/* A wait ends with its stream too: what it waits for may never come once a peer has failed. */
static void flags_run(const sim_item_t *item, const bool *quit)
{
    for (unsigned i = 0; i < item->nflags; i++) {
        const gpusym_stream_flag_t *f = &item->flag[i];
        if (!f->wait) {
            __atomic_store_n(f->at, f->value, __ATOMIC_RELEASE);
            continue;
        }
        /* written by the rank that the caller of stream_flags() waits for */
        for (unsigned tries = 0; (int32_t) (__atomic_load_n(f->at, __ATOMIC_ACQUIRE) - f->value) < 0 &&
                                 !__atomic_load_n(quit, __ATOMIC_RELAXED);
             tries++) {
            sim_nap(tries);
        }
    }
}

/* The same of what another stream has to reach. */
static void mark_wait(const sim_mark_t *mark, const bool *quit)
{
    for (unsigned tries = 0; !sim_mark_reached(mark) && !__atomic_load_n(quit, __ATOMIC_RELAXED); tries++) {
        sim_nap(tries);
    }
}

/* gpusym_sim_params.delay, of work that a stream runs. */
static void delay_work(const sim_item_t *item, const bool *quit)
{
    const int us = __atomic_load_n(&gpusym_sim_params.delay, __ATOMIC_RELAXED);
    const struct timespec nap = {us / 1000000, us % 1000000 * 1000};
    if (0 != us && NULL != quit && item->what < SIM_ITEM_FLAGS) {
        nanosleep(&nap, NULL); /* workers block all signals */
    }
}

void sim_item_run(const sim_item_t *item, const bool *quit)
{
    delay_work(item, quit);
    switch (item->what) {
    case SIM_ITEM_KERNEL:
        for (uint32_t block = 0; block < item->work.nblocks; block++) {
            gpusym_kernel_sim(item->kernel, &item->work, block);
        }
        break;
    case SIM_ITEM_COPY:
        memmove(item->dst, item->src, item->size);
        if (item->spoils) {
            ((char *) item->dst)[item->size / 2] ^= 1;
        }
        break;
    case SIM_ITEM_COPY2D:
        for (size_t row = 0; row < item->rows; row++) {
            memcpy((char *) item->dst + row * item->dpitch, (const char *) item->src + row * item->spitch, item->size);
        }
        break;
    case SIM_ITEM_CALL:
        item->function(item->argument);
        break;
    case SIM_ITEM_NOTHING: /* an injected hang: its completion word is not written */
        break;
    case SIM_ITEM_STALL:
        for (unsigned tries = 0; !__atomic_load_n(quit, __ATOMIC_RELAXED); tries++) {
            sim_nap(tries);
        }
        break;
    case SIM_ITEM_FLAGS:
        flags_run(item, quit);
        break;
    case SIM_ITEM_RECORD:
        __atomic_store_n(&item->mark->reached, true, __ATOMIC_RELEASE);
        break;
    case SIM_ITEM_WAIT:
        mark_wait(item->mark, quit);
        break;
    }
}

/* ---- pointers ---- */

/* Translates the two sides of a copy. */
static int copy_prepare(sim_item_t *item, const sim_item_t *asked, size_t dsize, size_t ssize, unsigned how)
{
    void *from = NULL;
    int rc = item_reach(item, asked->dst, dsize, how, &item->dst);
    if (GPUSYM_SUCCESS == rc) {
        rc = item_reach(item, asked->src, ssize, how, &from);
    }
    item->src = from;
    for (unsigned i = 0; i < item->npins; i++) {
        item->spoils = item->spoils || item->pin[i]->spoils;
    }
    return rc;
}

/* Bytes from the first to the end of the last of `rows` rows; false if 64 bits do not count them. */
static bool rows_extent(size_t width, size_t pitch, size_t rows, size_t *size)
{
    return !__builtin_mul_overflow(pitch, rows - 1, size) && !__builtin_add_overflow(*size, width, size);
}

static int copy2d_prepare(sim_item_t *item, const sim_item_t *asked)
{
    size_t dsize, ssize;
    if (!rows_extent(item->size, item->dpitch, item->rows, &dsize) ||
        !rows_extent(item->size, item->spitch, item->rows, &ssize) ||
        (item->rows > 1 && (item->dpitch < item->size || item->spitch < item->size))) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "%zu rows of %zu bytes cannot be %zu and %zu bytes apart", item->rows,
                        item->size, item->dpitch, item->spitch);
    }
    return copy_prepare(item, asked, dsize, ssize, sim.host ? SIM_REACH_HOST : 0);
}

static int flags_prepare(sim_item_t *item, const sim_item_t *asked)
{
    int rc = GPUSYM_SUCCESS;
    for (unsigned i = 0; i < asked->nflags && GPUSYM_SUCCESS == rc; i++) {
        void *at = NULL;
        rc = item_reach(item, asked->flag[i].at, sizeof(*asked->flag[i].at), 0, &at);
        item->flag[i].at = at;
    }
    return rc;
}

/* Translates one pointer of a descriptor; NULL stays NULL. */
static int work_reach(sim_item_t *item, const void *p, size_t size, void **at)
{
    *at = NULL;
    return NULL == p ? GPUSYM_SUCCESS
                     : item_reach(item, p, size, SIM_REACH_MULTICAST | (sim.host ? SIM_REACH_HOST : 0), at);
}

/* The same of a pointer to what is not written. */
static int work_reach_const(sim_item_t *item, const void *p, const void **at)
{
    void *there;
    int rc = work_reach(item, p, 1, &there);
    *at = there;
    return rc;
}

/* Translates the pointers that a descriptor has one of for every rank. */
static int work_prepare_peers(sim_item_t *item, const gpusym_work_t *w)
{
    int rc = GPUSYM_SUCCESS;
    for (uint32_t r = 0; r < w->nranks && GPUSYM_SUCCESS == rc; r++) {
        rc = work_reach(item, w->peer[r], 1, &item->work.peer[r]);
        if (GPUSYM_SUCCESS == rc) {
            rc = work_reach_const(item, w->peer_in[r], &item->work.peer_in[r]);
        }
        if (GPUSYM_SUCCESS == rc) {
            rc = work_reach(item, w->peer_out[r], 1, &item->work.peer_out[r]);
        }
    }
    return rc;
}

/* Translates the pointers of the runs of a copy. */
static int work_prepare_runs(sim_item_t *item, const gpusym_work_t *w)
{
    int rc = GPUSYM_SUCCESS;
    for (uint64_t i = 0; i < w->rows.runs && GPUSYM_SUCCESS == rc; i++) {
        rc = work_reach_const(item, w->run[i].in, &item->work.run[i].in);
        if (GPUSYM_SUCCESS == rc) {
            rc = work_reach(item, w->run[i].out, 1, &item->work.run[i].out);
        }
    }
    return rc;
}

/* The same of copies from box to box. */
static int work_prepare_boxes(sim_item_t *item, const gpusym_work_t *w)
{
    int rc = GPUSYM_SUCCESS;
    for (uint64_t i = 0; i < w->rows.runs && GPUSYM_SUCCESS == rc; i++) {
        rc = work_reach_const(item, w->box[i].in, &item->work.box[i].in);
        if (GPUSYM_SUCCESS == rc) {
            rc = work_reach(item, w->box[i].out, 1, &item->work.box[i].out);
        }
    }
    return rc;
}

/* Translates where a leader's list stands. What stands in it is translated as the kernel runs: see sim_kernel_reach. */
static int work_prepare_lead(sim_item_t *item, const gpusym_work_t *w)
{
    const void *at;
    int rc = work_prepare_peers(item, w);
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach_const(item, w->lead.at, &at);
        item->work.lead.at = at;
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach_const(item, w->lead.jobs, &at);
        item->work.lead.jobs = at;
    }
    return rc;
}

/* Translates the pointers that stand where other families have the ranks' slots, or behind them. */
static int work_prepare_family(sim_item_t *item, const gpusym_work_t *w)
{
    void *nodes;
    int rc;
    switch (gpusym_kernel_family(item->kernel)) {
    case GPUSYM_F_COPY:
        return work_prepare_runs(item, w);
    case GPUSYM_F_BOXES:
        return work_prepare_boxes(item, w);
    case GPUSYM_F_PACK:
        rc = work_reach(item, w->pack.nodes, w->pack.nnodes * sizeof(*w->pack.nodes), &nodes);
        item->work.pack.nodes = nodes;
        return rc;
    case GPUSYM_F_LEAD:
    case GPUSYM_F_LEAD_R:
        return work_prepare_lead(item, w);
    default:
        return work_prepare_peers(item, w);
    }
}

static int work_prepare(sim_item_t *item, const gpusym_work_t *w)
{
    void *done = NULL, *stop = NULL, *doorbell = NULL;
    int rc = work_prepare_family(item, w);
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach(item, w->out, 1, &item->work.out);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach_const(item, w->in, &item->work.in);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach(item, w->mc, 1, &item->work.mc); /* a multicast pointer is pinned, and not translated */
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach(item, w->done, sizeof(*w->done), &done);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach(item, w->abort, sizeof(*w->abort), &stop);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach(item, w->doorbell, 2 * sizeof(*w->doorbell), &doorbell);
    }
    item->work.doorbell = doorbell;
    item->work.done = done;
    item->work.abort = stop;
    return rc;
}

/* The faults that can hit it, now that it is to run. *hang: it will not come to an end. */
static bool item_fails(const sim_item_t *asked, bool *hang)
{
    switch (asked->what) {
    case SIM_ITEM_KERNEL:
        *hang = sim_fault_due(SIM_FAULT_HANG);
        return sim_fault_due(SIM_FAULT_LAUNCH) ||
               (0 != asked->work.linger_ns && asked->work.nblocks > 1 && sim_fault_due(SIM_FAULT_CLUSTER));
    case SIM_ITEM_COPY:
    case SIM_ITEM_COPY2D:
        return sim_fault_due(SIM_FAULT_COPY);
    default:
        return false;
    }
}

int sim_item_prepare(sim_item_t *item, const sim_item_t *asked)
{
    int rc = GPUSYM_SUCCESS;
    bool hang = false;
    if (item_fails(asked, &hang)) {
        return GPUSYM_ERR;
    }
    *item = *asked;
    if (NULL != item->mark) {
        sim_mark_keep(item->mark);
    }
    switch (asked->what) {
    case SIM_ITEM_KERNEL:
        rc = work_prepare(item, &asked->work);
        if (gpusym_family_multicast(gpusym_kernel_family(asked->kernel)) && sim_fault_due(SIM_FAULT_SWITCH)) {
            item->work.op = GPUSYM_OP_MAX == asked->work.op ? GPUSYM_OP_MIN : GPUSYM_OP_MAX;
        }
        break;
    case SIM_ITEM_COPY:
        rc = copy_prepare(item, asked, asked->size, asked->size, SIM_REACH_HOST);
        break;
    case SIM_ITEM_COPY2D:
        rc = copy2d_prepare(item, asked);
        break;
    case SIM_ITEM_FLAGS:
        rc = flags_prepare(item, asked);
        break;
    default:
        break;
    }
    if (hang) {
        item->what = SIM_ITEM_NOTHING;
    }
    if (GPUSYM_SUCCESS != rc) {
        sim_item_unpin(item);
    }
    return rc;
}

void *sim_kernel_reach(const void *p)
{
    sim_region_t *pin;
    void *at;
    if (GPUSYM_SUCCESS != sim_reach(p, 1, sim.host ? SIM_REACH_HOST : 0, &at, &pin)) {
        return NULL;
    }
    if (NULL != pin) {
        sim_region_unpin(pin);
    }
    return at;
}
