/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The copier: see copier.h.
 */
#include "mca/common/gpusym/exec/copier.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/pinned.h"
#include "mca/common/gpusym/shm/gauges.h"
#include "mca/common/gpusym/trace.h"
#include "tuning/copy.h"
#include "tuning/resident.h"

/* Polls of a copy after which the stream is asked: it alone tells of the GPU's errors. */
#define STREAM_POLLS 1024u

struct gpusym_copier {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
    unsigned number;    /* among the copiers */
    uint64_t linger_ns; /* atomic; 0: none */
    bool judge;
    bool busy;           /* atomic: who sets it has all the rest, but for `unwanted`, until the copy has ended */
    bool unwanted;       /* atomic: the kernel is to leave */
    gpusym_lane_t *lane; /* while a kernel may be there; NULL: none */
    bool no_kernels;     /* they cannot be loaded */
    uint32_t blocks;     /* of the kernel; atomic */
    /* Of the kernel: */
    bool commanded;  /* the copy under way, not launched */
    uint32_t served; /* copies beside the one that it was launched for */
    uint64_t lingers;
    gpusym_tuning_resident_t worth;
    /* Of the copy under way: */
    gpusym_copier_run_t run;
    uint32_t polls;
    bool launches;          /* it may launch a kernel */
    gpusym_box_run_t *list; /* pinned: GPUSYM_LIST_MAX of a list under way; NULL: not got yet */
    struct gpusym_copier *next;
};

static struct {
    pthread_mutex_t lock;   /* covers changes of the list */
    gpusym_copier_t *first; /* read without it */
} copiers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static gpusym_copier_t *find_copier(const gpusym_device_t *dev, const gpusym_gpu_t *gpu)
{
    gpusym_copier_t *c = __atomic_load_n(&copiers.first, __ATOMIC_ACQUIRE);
    while (NULL != c && (c->gpu != gpu || c->dev != dev)) {
        c = c->next;
    }
    return c;
}

static bool take(gpusym_copier_t *c)
{
    return !__atomic_exchange_n(&c->busy, true, __ATOMIC_ACQUIRE);
}

static void leave(gpusym_copier_t *c)
{
    __atomic_store_n(&c->busy, false, __ATOMIC_RELEASE);
}

/* Where its state is told. */
static gpusym_kernel_status_t *told(const gpusym_copier_t *c)
{
    static gpusym_kernel_status_t nobody;
    return c->number < GPUSYM_GAUGES_COPIERS ? gpusym_gauges_copier(c->number) : &nobody;
}

/* ---- the kernel; the caller is who has taken the copier ---- */

/* Whether the kernel, which has ended its last copy, has left by itself. */
static bool has_left(const gpusym_copier_t *c)
{
    uint32_t status;
    return gpusym_lane_done(c->lane, &status) && 0 != (status & GPUSYM_STATUS_RETIRED);
}

/* Ends with the kernel, if there is one, and with its lane. */
static void dismiss_kernel(gpusym_copier_t *c)
{
    if (NULL == c->lane) {
        return;
    }
    if (gpusym_lane_alive(c->lane)) {
        const bool left = has_left(c);
        gpusym_tuning_resident_ended(&c->worth, c->served, c->lingers,
                                     left ? GPUSYM_RESIDENT_EXPIRED : GPUSYM_RESIDENT_RETIRED);
        if (!left) {
            gpusym_lane_retire(c->lane);
        }
    }
    gpusym_lane_put(c->lane);
    c->lane = NULL;
    gpusym_kernel_told_end(told(c), GPUSYM_KERNEL_GONE);
}

/* Whether the kernel can be commanded. */
static bool is_here(const gpusym_copier_t *c)
{
    return NULL != c->lane && c->served < GPUSYM_RESIDENT_SERVED_MAX && !has_left(c) &&
           !__atomic_load_n(&c->unwanted, __ATOMIC_RELAXED);
}

static void tell_launch(const gpusym_copier_t *c)
{
    gpusym_kernel_status_t *s = told(c);
    gpusym_gpu_info_t info;
    c->dev->gpu_info(c->gpu, &info);
    s->what = (uint32_t) info.place.number;
    s->linger_ns = c->lingers;
    gpusym_kernel_told_busy(s, 0, gpusym_coarse_ns());
}

/* Whether it is no copy: GPUSYM_COPY_EXCHANGES or GPUSYM_COPY_COMBINES. */
static bool is_special(const gpusym_copier_run_t *run)
{
    return GPUSYM_COPY_EXCHANGES == (run->does & GPUSYM_COPY_EXCHANGES);
}

/* What a command says of the copy under way; the launch of a kernel says the same. */
static void describe(const gpusym_copier_t *c, uint32_t *bytes, uint32_t *does)
{
    const gpusym_copier_run_t *run = &c->run;
    const bool packs = !is_special(run) && run->bytes > gpusym_tuning_copy_resident_max();
    *bytes = packs ? run->bytes / GPUSYM_PACK : run->bytes;
    *does = run->does | (packs ? GPUSYM_COPY_PACKS : 0);
}

static int launch_blocks(gpusym_copier_t *c, uint32_t blocks)
{
    const gpusym_device_t *dev = c->dev;
    gpusym_graph_t **graph = blocks > 1 ? &c->lane->clusters : &c->lane->graph;
    gpusym_work_t w = {.run = {{.in = c->run.src, .out = c->run.dst, .signal = c->run.signal}},
                       .nranks = 1,
                       .nblocks = blocks,
                       .nthreads = gpusym_tuning_copy_threads(),
                       .enter_ns = gpusym_tuning_copy_wait_ns(c->dev->simulated),
                       .out_local = 1, /* what goes elsewhere has a fence of its own: GPUSYM_COPY_FAR */
                       .rows = {.runs = 1},
                       .linger_ns = c->lingers};
    uint32_t does;
    describe(c, &w.run[0].bytes, &does);
    w.run[0].does = (uint16_t) does;
    if (NULL != dev->graph_launch) {
        const int rc = gpusym_lane_launch_graph(c->lane, GPUSYM_F_COPY, &w, graph);
        if (GPUSYM_SUCCESS == rc || NULL != *graph) {
            return rc;
        }
    }
    return gpusym_lane_launch(c->lane, GPUSYM_F_COPY, &w);
}

/* Launches a kernel in the copier's lane, which does the copy and stays: of one block, where no cluster can be. */
static int launch_kernel(gpusym_copier_t *c)
{
    const uint32_t blocks = c->blocks;
    c->commanded = false;
    c->served = 0;
    tell_launch(c);
    int rc = launch_blocks(c, blocks);
    if (GPUSYM_SUCCESS != rc && blocks > 1 && NULL == c->lane->clusters) {
        GPUSYM_LOG(2, "copies of messages stay with one block of a kernel: %s", c->dev->error());
        __atomic_store_n(&c->blocks, 1, __ATOMIC_RELAXED);
        rc = launch_blocks(c, 1);
    }
    return rc;
}

/* Gets a lane for a new kernel, if it is worth it. */
static int prepare_lane(gpusym_copier_t *c)
{
    const char *why = "";
    dismiss_kernel(c);
    __atomic_store_n(&c->unwanted, false, __ATOMIC_RELAXED);
    c->lingers = __atomic_load_n(&c->linger_ns, __ATOMIC_RELAXED);
    if (0 == c->lingers || c->no_kernels ||
        (c->judge && !gpusym_tuning_resident_allow(&c->worth, c->lingers, gpusym_now_ns()))) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    c->no_kernels = GPUSYM_SUCCESS != c->dev->kernels_load(c->gpu, &why);
    if (c->no_kernels) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    const int rc = gpusym_lane_get(c->dev, c->gpu, &c->lane);
    c->lane = GPUSYM_SUCCESS == rc ? c->lane : NULL;
    return rc;
}

/* Ends the copy with an error: the lane is not used again, since the kernel may still be there. */
static int lose_lane(gpusym_copier_t *c, int rc)
{
    c->lane = NULL;
    gpusym_kernel_told_end(told(c), GPUSYM_KERNEL_LOST);
    leave(c);
    return rc;
}

/* ---- copies ---- */

static bool address_fits(const void *p)
{
    return 0 == (uint64_t) (uintptr_t) p >> GPUSYM_COMMAND_ADDRESS_BITS;
}

/* Takes the copier for a copy. NULL: there is none, or it is busy. */
static gpusym_copier_t *begin(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_copier_run_t *run)
{
    gpusym_copier_t *c = find_copier(dev, gpu);
    if (NULL == c || 0 == __atomic_load_n(&c->linger_ns, __ATOMIC_RELAXED) || !address_fits(run->dst) ||
        !address_fits(run->src) || !take(c)) {
        return NULL;
    }
    c->run = *run;
    c->polls = 0;
    c->launches = true;
    return c;
}

static void command_kernel(gpusym_copier_t *c)
{
    const gpusym_copier_run_t *run = &c->run;
    uint32_t bytes, does;
    describe(c, &bytes, &does);
    c->commanded = true;
    c->served++;
    gpusym_kernel_told_busy(told(c), c->served, gpusym_coarse_ns());
    if (!is_special(run) && 0 != (run->does & (GPUSYM_COPY_SIGNALS | GPUSYM_COPY_WAITS))) {
        gpusym_lane_signal(c->lane, run->signal); /* else no store more to the line that the kernel polls */
    }
    gpusym_lane_command(c->lane, run->src, run->dst, bytes, does);
}

/* Commands the kernel, or launches one. */
static int start(gpusym_copier_t *c)
{
    if (is_here(c)) {
        command_kernel(c);
        return GPUSYM_SUCCESS;
    }
    int rc = prepare_lane(c);
    if (GPUSYM_SUCCESS == rc) {
        rc = launch_kernel(c);
        if (GPUSYM_SUCCESS != rc) { /* nothing is queued */
            gpusym_lane_put(c->lane);
            c->lane = NULL;
            gpusym_kernel_told_end(told(c), GPUSYM_KERNEL_GONE);
        }
    }
    if (GPUSYM_SUCCESS != rc) {
        leave(c);
    }
    return rc;
}

int gpusym_copier_start(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_copier_run_t *run,
                        gpusym_copier_t **copier)
{
    gpusym_copier_t *c = begin(dev, gpu, run);
    if (NULL == c) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    *copier = c;
    return start(c);
}

int gpusym_copier_start_list(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_box_run_t *run, uint32_t n,
                             bool far, gpusym_copier_t **copier)
{
    gpusym_copier_run_t list = {
        .dst = run->out, .bytes = GPUSYM_LIST_COMMAND(n), .does = GPUSYM_COPY_COMBINES | (far ? GPUSYM_COPY_FAR : 0)};
    gpusym_copier_t *c = begin(dev, gpu, &list);
    if (NULL == c) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    if (NULL == c->list) {
        c->list = gpusym_pinned_get(dev, gpu, GPUSYM_LIST_MAX * sizeof *c->list);
    }
    if (NULL == c->list || !address_fits(c->list)) {
        leave(c);
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    memcpy(c->list, run, n * sizeof *run);
    c->run.src = c->list;
    *copier = c;
    return start(c);
}

uint32_t gpusym_copier_blocks(const gpusym_device_t *dev, const gpusym_gpu_t *gpu)
{
    const gpusym_copier_t *c = find_copier(dev, gpu);
    return NULL != c && 0 != __atomic_load_n(&c->linger_ns, __ATOMIC_RELAXED)
               ? __atomic_load_n(&c->blocks, __ATOMIC_RELAXED)
               : 0;
}

bool gpusym_copier_is_busy(const gpusym_device_t *dev, const gpusym_gpu_t *gpu)
{
    const gpusym_copier_t *c = find_copier(dev, gpu);
    return NULL != c && __atomic_load_n(&c->busy, __ATOMIC_RELAXED);
}

int gpusym_copier_command(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_copier_run_t *run,
                          gpusym_copier_t **copier)
{
    gpusym_copier_t *c = begin(dev, gpu, run);
    if (NULL == c) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    if (!is_here(c)) {
        leave(c);
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    *copier = c;
    c->launches = false;
    command_kernel(c);
    return GPUSYM_SUCCESS;
}

/* The kernel has left before it read the command: another one does the copy, or else the driver, if it is no more than
 * a copy. */
static int launch_again(gpusym_copier_t *c)
{
    gpusym_tuning_resident_ended(&c->worth, c->served - 1, c->lingers, GPUSYM_RESIDENT_EXPIRED);
    if (c->launches && GPUSYM_SUCCESS == launch_kernel(c)) {
        return 0;
    }
    gpusym_lane_put(c->lane);
    c->lane = NULL;
    gpusym_kernel_told_end(told(c), GPUSYM_KERNEL_GONE);
    const int rc = 0 != (c->run.does & GPUSYM_COPY_WAITS) ? GPUSYM_ERR_LATE
                                                          : c->dev->copy(c->gpu, c->run.dst, c->run.src, c->run.bytes);
    leave(c);
    return GPUSYM_SUCCESS == rc ? 1 : rc;
}

uint32_t gpusym_copier_number(const gpusym_copier_t *c)
{
    return c->lane->seq;
}

int gpusym_copier_poll(gpusym_copier_t *c)
{
    uint32_t status;
    if (gpusym_lane_done(c->lane, &status)) {
        gpusym_kernel_told_idle(told(c));
        if (__atomic_load_n(&c->unwanted, __ATOMIC_RELAXED)) {
            dismiss_kernel(c);
        }
        leave(c);
        return GPUSYM_STATUS_OK == (status & ~GPUSYM_STATUS_RETIRED) ? 1 : GPUSYM_ERR_LATE;
    }
    if (c->commanded && gpusym_lane_retired(c->lane)) {
        return launch_again(c);
    }
    if (0 != ++c->polls % STREAM_POLLS) {
        return 0;
    }
    const int idle = c->dev->stream_poll(c->lane->stream);
    if (idle < 0) {
        return lose_lane(c, idle);
    }
    if (1 == idle && !gpusym_lane_done(c->lane, &status) && !(c->commanded && gpusym_lane_retired(c->lane))) {
        return lose_lane(c, GPUSYM_ERR); /* the kernel has ended without its word */
    }
    return 0;
}

/* ---- set-up ---- */

static uint32_t blocks_on(const gpusym_device_t *dev, gpusym_gpu_t *gpu)
{
    gpusym_gpu_info_t info;
    dev->gpu_info(gpu, &info);
    return info.clusters ? GPUSYM_CLUSTER_BLOCKS : 1;
}

void gpusym_copier_linger(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t linger_ns, bool judge)
{
    pthread_mutex_lock(&copiers.lock);
    gpusym_copier_t *c = find_copier(dev, gpu);
    if (NULL == c && 0 != linger_ns) {
        c = calloc(1, sizeof *c);
        if (NULL == c) {
            gpusym_log_no_memory("the copier of a GPU");
        } else {
            c->dev = dev;
            c->gpu = gpu;
            c->blocks = blocks_on(dev, gpu);
            c->number = NULL != copiers.first ? copiers.first->number + 1 : 0;
            c->next = copiers.first;
            __atomic_store_n(&copiers.first, c, __ATOMIC_RELEASE);
        }
    }
    if (NULL != c) {
        c->judge = judge;
        __atomic_store_n(&c->linger_ns, linger_ns, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&copiers.lock);
    if (0 == linger_ns) {
        gpusym_copiers_dismiss();
    }
}

void gpusym_copiers_dismiss(void)
{
    for (gpusym_copier_t *c = __atomic_load_n(&copiers.first, __ATOMIC_ACQUIRE); NULL != c; c = c->next) {
        __atomic_store_n(&c->unwanted, true, __ATOMIC_RELAXED);
        if (take(c)) {
            dismiss_kernel(c);
            leave(c);
        }
    }
}

void gpusym_copiers_close(void)
{
    gpusym_copiers_dismiss();
    pthread_mutex_lock(&copiers.lock);
    while (NULL != copiers.first) {
        gpusym_copier_t *c = copiers.first;
        copiers.first = c->next;
        if (NULL != c->list) {
            gpusym_pinned_put(c->list);
        }
        free(c);
    }
    pthread_mutex_unlock(&copiers.lock);
}
