/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The way by staged copies: see staged_copies.h.
 */
#include "mca/coll/gpusym/exec/traced.h"

#include "mca/common/gpusym/gpusym.h"

static void offer(coll_gpusym_run_t *run, gpusym_post_t *post)
{
    post->flags |= !gpusym_staging_buffer_is_worn() && coll_gpusym_segments_may_stage(run->task.segments)
                       ? GPUSYM_POST_STAGED_COPIES
                       : 0;
}

/* A call has one vote: where it has been cast on something else, the staging buffers are to be known. */
static bool possible(const coll_gpusym_run_t *run)
{
    const gpusym_agreement_read_t *read = &run->task.read;
    const int agreed = run->engine->staging_buffers.agreed;
    return COLL_GPUSYM_AGREES != run->mode && !read->host && 0 != (read->all & GPUSYM_POST_STAGED_COPIES) &&
           !read->other_call && agreed >= 0 && (agreed > 0 || !run->voted);
}

/* The first such call of a communicator finds the staging buffers. */
static coll_gpusym_turn_t agree(coll_gpusym_run_t *run)
{
    coll_gpusym_staging_buffers_t *w = &run->engine->staging_buffers;
    char label[GPUSYM_COMM_LABEL_MAX];
    if (0 == w->agreed) {
        coll_gpusym_staging_buffers_poll(w, coll_gpusym_run_agreement(run), run->task.read.seq);
    }
    if (w->agreed < 0) {
        GPUSYM_LOG(2,
                   "%s: staged data go through the other components: a rank has no staging buffer, or cannot map a "
                   "peer's",
                   gpusym_comm_label(run->engine->fallback->comm, label, sizeof label));
        return COLL_GPUSYM_TURN_REFUSED;
    }
    return w->agreed > 0 ? COLL_GPUSYM_TURN_DONE : coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_VOTE);
}

static coll_gpusym_turn_t poll(coll_gpusym_run_t *run)
{
    uint32_t rank = 0;
    if (NULL == run->is.copies) {
        coll_gpusym_traced_launched(run, 0);
        run->is.copies =
            coll_gpusym_staged_copies_begin(run->task.segments, run->buffers, coll_gpusym_run_agreement(run),
                                            &run->engine->staging_buffers, run->task.read.seq);
    }
    if (NULL == run->is.copies) {
        (void) coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_MEMORY, -1, "host memory for staging");
        run->failure.bytes = sizeof(gpusym_table_row_t);
        return COLL_GPUSYM_TURN_FAILED;
    }
    switch (coll_gpusym_staged_copies_poll(run->is.copies, &rank)) {
    case COLL_GPUSYM_STAGED_COPIES_TRUNCATED:
        run->error = MPI_ERR_TRUNCATE; /* of this rank alone: the call has ended well */
        return COLL_GPUSYM_TURN_DONE;
    case COLL_GPUSYM_STAGED_COPIES_ENDED:
        return COLL_GPUSYM_TURN_DONE;
    case COLL_GPUSYM_STAGED_COPIES_GPU_ERROR:
        return coll_gpusym_run_gpu_failed(run);
    case COLL_GPUSYM_STAGED_COPIES_CORRUPT:
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_CORRUPT, (int) rank, NULL);
    default:
        return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE);
    }
}

static bool stop(coll_gpusym_run_t *run, bool recalled, bool due)
{
    (void) recalled;
    (void) due;
    return NULL == run->is.copies || coll_gpusym_staged_copies_stop(run->is.copies);
}

static void end(coll_gpusym_run_t *run)
{
    coll_gpusym_staged_copies_free(run->is.copies);
    run->is.copies = NULL;
}

static void count(const coll_gpusym_run_t *run, coll_gpusym_counters_t *counters)
{
    if (MPI_SUCCESS == run->error || MPI_ERR_TRUNCATE == run->error) {
        coll_gpusym_count(&counters->staged);
        coll_gpusym_count(&counters->reason[run->reason]);
        coll_gpusym_count(&counters->staged_copies);
    }
}

static const coll_gpusym_way_t *const instead[] = {&coll_gpusym_way_whole, NULL};

const coll_gpusym_way_t coll_gpusym_way_staged_copies = {
    .name = "staged_copies",
    .instead = instead,
    .offer = offer,
    .possible = possible,
    .agree = agree,
    .poll = poll,
    .stop = stop,
    .end = end,
    .count = count,
};
