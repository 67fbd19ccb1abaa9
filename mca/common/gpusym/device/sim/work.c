/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the table queues on streams: kernels, copies and flags.
 */
#include <stdlib.h>

#include "mca/common/gpusym/device/sim/sim_internal.h"

int sim_launch(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    if (kernel >= GPUSYM_K_COUNT || 0 == w->nranks || w->nranks > GPUSYM_TEAM_MAX || 0 == w->nblocks ||
        w->nblocks > GPUSYM_BLOCKS_MAX || 0 == w->nthreads || w->nthreads > GPUSYM_THREADS_MAX) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "kernel %u cannot be launched for %u ranks with %u blocks of %u threads",
                        kernel, (unsigned) w->nranks, (unsigned) w->nblocks, (unsigned) w->nthreads);
    }
    const sim_item_t asked = {.what = SIM_ITEM_KERNEL, .kernel = kernel, .work = *w};
    return sim_stream_queue(stream, &asked, 1);
}

/* The last launch made by it, from which the next may differ. */
struct gpusym_graph {
    unsigned kernel;
    gpusym_work_t work;
};

int sim_graph_launch(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    if (NULL == *graph) {
        if (sim_fault_due(SIM_FAULT_GRAPH)) {
            return GPUSYM_ERR;
        }
        *graph = malloc(sizeof(**graph));
        if (NULL == *graph) {
            return sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
        }
    }
    **graph = (struct gpusym_graph){.kernel = kernel, .work = *w};
    return sim_launch(stream, (*graph)->kernel, &(*graph)->work);
}

void sim_graph_destroy(gpusym_graph_t *graph)
{
    free(graph);
}

int sim_copy(gpusym_gpu_t *gpu, void *dst, const void *src, size_t size)
{
    const sim_item_t asked = {.what = SIM_ITEM_COPY, .dst = dst, .src = src, .size = size};
    sim_item_t item;
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc || 0 == size) {
        return rc;
    }
    rc = sim_item_prepare(&item, &asked);
    if (GPUSYM_SUCCESS == rc) {
        sim_item_run(&item, NULL);
        sim_item_unpin(&item);
    }
    return rc;
}

int sim_copy_async(gpusym_stream_t *stream, void *dst, const void *src, size_t size)
{
    const sim_item_t asked = {.what = SIM_ITEM_COPY, .dst = dst, .src = src, .size = size};
    return 0 == size ? GPUSYM_SUCCESS : sim_stream_queue(stream, &asked, 1);
}

int sim_copy2d_async(gpusym_stream_t *stream, void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                     size_t height)
{
    const sim_item_t asked = {.what = SIM_ITEM_COPY2D,
                              .dst = dst,
                              .src = src,
                              .size = width,
                              .dpitch = dpitch,
                              .spitch = spitch,
                              .rows = height};
    return 0 == width || 0 == height ? GPUSYM_SUCCESS : sim_stream_queue(stream, &asked, 1);
}

int sim_stream_flags(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n)
{
    int rc = GPUSYM_SUCCESS;
    while (n > 0 && GPUSYM_SUCCESS == rc) {
        sim_item_t asked = {.what = SIM_ITEM_FLAGS};
        for (; n > 0 && asked.nflags < SIM_FLAGS_MAX; n--) {
            asked.flag[asked.nflags++] = *flags++;
        }
        rc = sim_stream_queue(stream, &asked, 1);
    }
    return rc;
}
