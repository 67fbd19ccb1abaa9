/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The staged way in segments: see fallback/segmentation.h.
 */
#include "mca/coll/gpusym/exec/traced.h"
#include "mca/coll/gpusym/exec/whole.h"

#include "mca/coll/gpusym/args/facts.h"
#include "mca/coll/gpusym/conf/params.h"

/* What the ranks compare to find out whether they can divide the call alike. */
static void offer(coll_gpusym_run_t *run, gpusym_post_t *post)
{
    struct ompi_communicator_t *comm = run->engine->fallback->comm;
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[run->args->coll];
    uint64_t bytes;
    uint32_t element;
    if (post->kind < GPUSYM_KIND_BOUNCE && !f->reduces) {
        return; /* a broadcast's types need not be alike, and this post does not tell their elements */
    }
    if (!coll_gpusym_segmentation_may(comm, run->args, &bytes, &element) ||
        (run->ours && coll_gpusym_bounce_packs(run->buffers))) {
        return;
    }
    if (run->on_host && run->task.segments->in_place && COLL_GPUSYM_P_REDUCE_SCATTER == f->pattern) {
        return; /* it has no bounce buffers, by which segments are out of place */
    }
    post->flags |= GPUSYM_POST_SEGMENTS;
    if (post->kind >= GPUSYM_KIND_BOUNCE) {
        post->bytes = bytes;
        post->layout = element;
    }
}

/* No rank is on the host, where it would have gone on. */
static bool possible(const coll_gpusym_run_t *run)
{
    const gpusym_agreement_read_t *read = &run->task.read;
    return COLL_GPUSYM_AGREES != run->mode && !read->host && 0 != (read->all & GPUSYM_POST_SEGMENTS) &&
           read->mismatch_rank < 0 && read->same_layout && 0 != coll_gpusym_params.piece &&
           read->max_bytes > coll_gpusym_params.piece;
}

/* A nonblocking call keeps its place before later calls until it is over: after an error the ranks are not at the same
 * segment. A blocking one is handed over once all ranks have memory for it. */
static coll_gpusym_turn_t poll(coll_gpusym_run_t *run)
{
    coll_gpusym_segmented_t *is = &run->is.segmented;
    int rv;
    coll_gpusym_whole_settle(run);
    if (NULL == is->segmentation) {
        coll_gpusym_traced_launched(run, 0);
        is->segmentation =
            coll_gpusym_segmentation_begin(run->engine->fallback, run->buffers, coll_gpusym_params.piece, &run->error);
    }
    if (NULL == is->segmentation) {
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_REPORTED, -1, NULL);
    }
    if (COLL_GPUSYM_BLOCKING == run->mode) {
        return coll_gpusym_whole_await(run, &is->told);
    }
    if (!coll_gpusym_segmentation_poll(is->segmentation, &rv)) {
        return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
    }
    return MPI_SUCCESS == rv ? COLL_GPUSYM_TURN_DONE
                             : coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_REPORTED, -1, NULL);
}

static bool stop(coll_gpusym_run_t *run, bool recalled, bool due)
{
    (void) recalled;
    (void) due;
    return NULL == run->is.segmented.segmentation || coll_gpusym_segmentation_stopped(run->is.segmented.segmentation);
}

static void end(coll_gpusym_run_t *run)
{
    coll_gpusym_segmentation_free(run->is.segmented.segmentation);
    run->is.segmented.segmentation = NULL;
}

static void segment_failed(void *arg, int error)
{
    coll_gpusym_run_t *run = arg;
    run->error = error;
    (void) coll_gpusym_whole_goes_on(run);
}

static int finish(coll_gpusym_run_t *run)
{
    coll_gpusym_whole_forwarded(run,
                                coll_gpusym_segmentation_blocking(run->is.segmented.segmentation, segment_failed, run));
    end(run);
    coll_gpusym_whole_look(run);
    return run->error;
}

static void count(const coll_gpusym_run_t *run, coll_gpusym_counters_t *counters)
{
    coll_gpusym_whole_count(run, counters);
    if (run->ours) {
        coll_gpusym_count(&counters->segmented);
    }
}

const coll_gpusym_way_t coll_gpusym_way_segments = {
    .name = "segments",
    .offer = offer,
    .possible = possible,
    .poll = poll,
    .stop = stop,
    .end = end,
    .finish = finish,
    .count = count,
};
