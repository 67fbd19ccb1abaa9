/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Launches: see launch.h.
 */
#include "mca/coll/gpusym/exec/launch.h"

#include <stdio.h>
#include <stdlib.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/trace/record.h"
#include "mca/common/gpusym/sanitizers.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/exec/copies.h"
#include "mca/common/gpusym/memory/scratch.h"
#include "mca/common/gpusym/memory/staging_buffer.h"

/* This device cannot make graphs; blocks of a launch cannot be a cluster. Written once, to true, by the thread that
 * finds out. */
static bool graphs_unavailable, clusters_unavailable;

bool coll_gpusym_scratch_get(coll_gpusym_launch_t *l, coll_gpusym_segments_t *k)
{
    const uint64_t bytes = coll_gpusym_segments_scratch_bytes(k);
    const gpusym_device_t *dev = gpusym_current.dev;
    void *p;
    if (0 == bytes || NULL != l->scratch) {
        return true;
    }
    if (GPUSYM_SUCCESS != dev->gpu_open(&k->where, &l->scratch_gpu) ||
        GPUSYM_SUCCESS != gpusym_scratch_get(dev, l->scratch_gpu, bytes, &p)) {
        return false;
    }
    l->scratch = p;
    coll_gpusym_segments_scratch(k, p);
    return true;
}

void coll_gpusym_scratch_put(coll_gpusym_launch_t *l)
{
    if (NULL != l->scratch) {
        gpusym_scratch_put(gpusym_current.dev, l->scratch_gpu, l->scratch);
        l->scratch = NULL;
    }
    if (NULL != l->list) {
        gpusym_scratch_put(gpusym_current.dev, l->scratch_gpu, l->list);
        free(l->list_from);
        l->list = l->list_from = NULL;
    }
}

void coll_gpusym_scratch_lose(coll_gpusym_launch_t *l)
{
    l->scratch = NULL;
}

void coll_gpusym_launch_put_streams(coll_gpusym_launch_t *l)
{
    if (NULL != l->streams) {
        gpusym_copies_put(l->streams);
        l->streams = NULL;
    }
}

void coll_gpusym_launch_put_lane(coll_gpusym_launch_t *l)
{
    gpusym_lane_put(l->lane);
    l->lane = NULL;
}

void coll_gpusym_launch_abandon(coll_gpusym_launch_t *l)
{
    l->lane = NULL;
    l->streams = NULL;
}

bool coll_gpusym_launch_unpack(coll_gpusym_launch_t *l, const coll_gpusym_segments_t *k)
{
    uint32_t words;
    const int rc = coll_gpusym_segments_copy(k, COLL_GPUSYM_WRITTEN, l->lane, true, &words);
    l->words = (uint8_t) words;
    return GPUSYM_SUCCESS == rc;
}

/* Queues, before the kernel, what brings the input to scratch memory, if the call has any; and the output, of which the
 * kernel might not write all. */
static bool queue_pack(const coll_gpusym_launch_t *l, const coll_gpusym_task_t *task)
{
    const coll_gpusym_segments_t *k = task->segments;
    const bool keep = k->keep || NULL != task->sizes;
    uint32_t words;
    return NULL == l->scratch ||
           (GPUSYM_SUCCESS == coll_gpusym_segments_copy(k, COLL_GPUSYM_SENT, l->lane, false, &words) &&
            (!keep || GPUSYM_SUCCESS == coll_gpusym_segments_copy(k, COLL_GPUSYM_WRITTEN, l->lane, false, &words)));
}

bool coll_gpusym_launch_clusters(void)
{
    return !__atomic_load_n(&clusters_unavailable, __ATOMIC_RELAXED);
}

/* Queues a kernel of independent blocks. */
static bool queue_blocks(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task, unsigned kernel, gpusym_work_t *w,
                         gpusym_graph_t **graph)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    char name[GPUSYM_COMM_LABEL_MAX];

    if (!coll_gpusym_params.graph || NULL == dev->graph_launch ||
        __atomic_load_n(&graphs_unavailable, __ATOMIC_RELAXED)) {
        return GPUSYM_SUCCESS == gpusym_lane_launch(l->lane, kernel, w);
    }
    if (GPUSYM_SUCCESS == gpusym_lane_launch_graph(l->lane, kernel, w, graph)) {
        return true;
    }
    if (NULL != *graph) {
        return false;
    }
    __atomic_store_n(&graphs_unavailable, true, __ATOMIC_RELAXED);
    GPUSYM_LOG(2, "%s: %s and all later calls are launched without a graph: %s",
               gpusym_comm_label(coll_gpusym_task_team(task)->fallback->comm, name, sizeof name),
               coll_gpusym_mpi_name(coll_gpusym_task_coll(task)), dev->error());
    return GPUSYM_SUCCESS == gpusym_lane_launch(l->lane, kernel, w);
}

/* Queues a resident kernel of several blocks, or else, as all later ones, of one. */
static bool queue_cluster(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task, unsigned kernel, gpusym_work_t *w)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    char name[GPUSYM_COMM_LABEL_MAX], why[256];
    if (GPUSYM_SUCCESS == (coll_gpusym_params.graph && NULL != dev->graph_launch
                               ? gpusym_lane_launch_graph(l->lane, kernel, w, &l->lane->clusters)
                               : gpusym_lane_launch(l->lane, kernel, w))) {
        return true;
    }
    snprintf(why, sizeof why, "%s", dev->error());
    w->nblocks = 1;
    if (!queue_blocks(l, task, kernel, w, &l->lane->graph)) {
        return false;
    }
    __atomic_store_n(&clusters_unavailable, true, __ATOMIC_RELAXED);
    GPUSYM_LOG(2, "%s: the kernels of %s and all later calls that stay on the GPU have one block: %s",
               gpusym_comm_label(coll_gpusym_task_team(task)->fallback->comm, name, sizeof name),
               coll_gpusym_mpi_name(coll_gpusym_task_coll(task)), why);
    return true;
}

/* Queues the kernel: by a graph, where there are such; a persistent call has its own, *graph. That is made here, where
 * the call has the launch tokens: no kernel of this process waits for a peer, so the driver may wait for what runs. */
static bool queue_kernel(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task, unsigned kernel, gpusym_work_t *w,
                         gpusym_graph_t **graph)
{
    w->timed = GPUSYM_FLAG(coll_gpusym_trace_written);
    return 0 != w->linger_ns && w->nblocks > 1 ? queue_cluster(l, task, kernel, w)
                                               : queue_blocks(l, task, kernel, w, graph);
}

bool coll_gpusym_launch_kernel(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task, unsigned kernel,
                               gpusym_work_t *w)
{
    return queue_kernel(l, task, kernel, w, &l->lane->graph);
}

/* ---- where ranks share GPUs ---- */

bool coll_gpusym_launch_drains(const coll_gpusym_task_t *task)
{
    return coll_gpusym_segments_unpacks(task->segments) || task->zero_copy.out_staging;
}

/* Copies between bytes of a buffer and those of our staging buffer that stand for them. */
static bool copy_staging(const coll_gpusym_launch_t *l, const coll_gpusym_team_t *t, uint64_t off, const void *buffer,
                         uint64_t bytes, bool back)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    char *user = (char *) (uintptr_t) buffer, *at;
    gpusym_staging_buffer_t *staging;
    void *unused;
    if (GPUSYM_SUCCESS != gpusym_staging_buffer_own(&staging)) {
        return false;
    }
    (void) gpusym_staging_buffer_register(staging, dev, t->host.gpu, &unused); /* else it is slow */
    at = gpusym_staging_buffer_at(staging, off, bytes);
    return NULL != at && GPUSYM_SUCCESS == (back ? dev->copy_async(l->lane->stream, user, at, bytes)
                                                 : dev->copy_async(l->lane->stream, at, user, bytes));
}

/* Copies one side of the call to our staging buffer, or (back) from there. Only its bytes: what lies between blocks
 * with displacements may be another call's, or no memory. */
static bool copy_side_staging(const coll_gpusym_launch_t *l, const coll_gpusym_task_t *task, coll_gpusym_side_t side,
                              bool back)
{
    const coll_gpusym_segments_t *k = task->segments;
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[k->args->coll];
    const bool out = COLL_GPUSYM_WRITTEN == side;
    const uint64_t off = out ? task->zero_copy.out_off : task->zero_copy.in_off;
    const char *buffer = out ? k->out : k->in;
    if (f->reduces || (!coll_gpusym_blocks_has(k->args->coll) && !coll_gpusym_has_arrays(out ? f->written : f->sent))) {
        return copy_staging(l, t, off, buffer, out ? k->out_bytes : k->in_bytes, back);
    }
    gpusym_table_row_t *rows = malloc(k->nranks * sizeof *rows);
    bool copied = NULL != rows;
    if (copied) {
        coll_gpusym_segments_rows(k, rows);
    }
    for (uint32_t p = 0; p < k->nranks && copied; p++) {
        const uint64_t at = out ? rows[p].recv_off : rows[p].send_off;
        const uint64_t bytes = out ? rows[p].recv_bytes : rows[p].send_bytes;
        copied = 0 == bytes || copy_staging(l, t, off + at, buffer + at, bytes, back);
    }
    free(rows);
    return copied;
}

/* Gets a lane. */
static bool get_lane(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task)
{
    if (GPUSYM_SUCCESS != gpusym_lane_get(gpusym_current.dev, coll_gpusym_task_team(task)->host.gpu, &l->lane)) {
        l->lane = NULL;
    }
    return NULL != l->lane;
}

bool coll_gpusym_launch_fill(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task)
{
    if (!get_lane(l, task)) {
        return false;
    }
    if (queue_pack(l, task) && (!task->zero_copy.in_staging || copy_side_staging(l, task, COLL_GPUSYM_SENT, false)) &&
        (!coll_gpusym_zero_copy_keeps(task) || copy_side_staging(l, task, COLL_GPUSYM_WRITTEN, false))) {
        return true;
    }
    coll_gpusym_launch_abandon(l);
    return false;
}

bool coll_gpusym_launch_drain(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task)
{
    if (!get_lane(l, task)) {
        return false;
    }
    if ((!task->zero_copy.out_staging || copy_side_staging(l, task, COLL_GPUSYM_WRITTEN, true)) &&
        coll_gpusym_launch_unpack(l, task->segments)) {
        l->words = 0; /* the lane's operation is another one */
        return true;
    }
    coll_gpusym_launch_abandon(l);
    return false;
}

/* Queues the copy of a plan's list to memory of the GPU. */
static bool place_list(coll_gpusym_launch_t *l, const coll_gpusym_team_t *t, coll_gpusym_lead_plan_t *p)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    void *at;
    if (NULL == p->list) {
        return true;
    }
    if (GPUSYM_SUCCESS != gpusym_scratch_get(dev, t->host.gpu, p->list_bytes, &at)) {
        return false;
    }
    l->scratch_gpu = t->host.gpu; /* where l->scratch is, if there is any */
    l->list = at;
    l->list_from = p->list;
    p->list = NULL;
    p->work.lead.at = at;
    p->work.lead.jobs = (const gpusym_job_t *) (const void *) (l->list + p->jobs_off);
    return GPUSYM_SUCCESS == dev->copy_async(l->lane->stream, at, l->list_from, p->list_bytes);
}

bool coll_gpusym_launch_lead(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task, coll_gpusym_lead_plan_t *p)
{
    if (!get_lane(l, task)) {
        return false;
    }
    if (!place_list(l, coll_gpusym_task_team(task), p)) {
        coll_gpusym_launch_put_lane(l);
        return false;
    }
    if (queue_kernel(l, task, p->kernel, &p->work, &l->lane->graph)) {
        return true;
    }
    coll_gpusym_launch_put_lane(l);
    return false;
}

/* ---- plans ---- */

/* Queues what copy engines do. *queued: the completion word will come. */
static bool queue_copies(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task, const coll_gpusym_plan_t *p,
                         bool *queued)
{
    const coll_gpusym_team_t *t = coll_gpusym_task_team(task);
    if (GPUSYM_SUCCESS != gpusym_copies_get(gpusym_current.dev, t->host.gpu, t->host.nranks, &l->streams)) {
        l->streams = NULL;
        return false;
    }
    return GPUSYM_SUCCESS == gpusym_copies_queue(l->streams, l->lane, p->kernel, GPUSYM_F_CE, p->reduces,
                                                 NULL != l->scratch, &p->work, queued);
}

bool coll_gpusym_launch_plan(coll_gpusym_launch_t *l, const coll_gpusym_task_t *task, coll_gpusym_plan_t *p)
{
    bool queued = false;
    if (GPUSYM_SUCCESS != gpusym_lane_get(gpusym_current.dev, coll_gpusym_task_team(task)->host.gpu, &l->lane)) {
        l->lane = NULL;
        return false;
    }
    gpusym_graph_t **graph = p == task->plan ? &p->graph : &l->lane->graph;
    if (queue_pack(l, task) &&
        (p->copies ? queue_copies(l, task, p, &queued) : queue_kernel(l, task, p->kernel, &p->work, graph))) {
        l->unpacks =
            !p->copies && coll_gpusym_segments_unpacks(task->segments) && coll_gpusym_launch_unpack(l, task->segments);
        return true;
    }
    if (!queued && NULL != l->streams) {
        coll_gpusym_launch_abandon(l);
    } else if (!queued) {
        coll_gpusym_launch_put_lane(l); /* nothing was */
    }
    return false;
}
