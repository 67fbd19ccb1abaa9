/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The way by messages: the fallback does a blocking neighbourhood collective on the users' buffers, as messages of GPU
 * memory (pml). It is the faster one where elements do not lie side by side: a message goes from datatype to datatype
 * by one copy, where kernels of the collective need the data packed before and unpacked behind them. Nonblocking ones
 * are not left to the fallback: coll/libnbc of Open MPI 4.1 confuses two neighbours that are the same rank.
 */
#include "mca/coll/gpusym/exec/whole.h"

#include "mca/coll/gpusym/args/facts.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/settings.h"
#include "mca/common/ompi/tags.h"

static void offer(coll_gpusym_run_t *run, gpusym_post_t *post)
{
    if (COLL_GPUSYM_BLOCKING == run->mode && coll_gpusym_params.messages &&
        COLL_GPUSYM_P_NEIGHBORS == coll_gpusym_facts[run->args->coll].pattern) {
        post->flags |= GPUSYM_POST_MESSAGES;
        post->flags |= 0 != coll_gpusym_segments_scratch_bytes(run->task.segments) ? GPUSYM_POST_GAPS : 0;
    }
}

/* The user has chosen no algorithm. No rank is on the host and has gone on: its messages would be of host memory. */
static bool possible(const coll_gpusym_run_t *run)
{
    const gpusym_agreement_read_t *read = &run->task.read;
    return !read->host && 0 != (read->all & GPUSYM_POST_MESSAGES) &&
           COLL_GPUSYM_ALG_AUTO == coll_gpusym_setting(run->engine->team, run->args->coll, COLL_GPUSYM_ALG_AUTO);
}

bool coll_gpusym_messages_suit(const coll_gpusym_run_t *run)
{
    return 0 != (run->task.read.any & GPUSYM_POST_GAPS) && possible(run);
}

static coll_gpusym_turn_t poll(coll_gpusym_run_t *run)
{
    run->reason = -1; /* nothing is staged */
    return COLL_GPUSYM_TURN_HANDED;
}

static int finish(coll_gpusym_run_t *run)
{
    gpusym_tags_exchange();
    coll_gpusym_whole_forwarded(run, coll_gpusym_forward(run->engine->fallback, run->args));
    gpusym_tags_exchanged();
    return run->error;
}

static void count(const coll_gpusym_run_t *run, coll_gpusym_counters_t *counters)
{
    if (run->ours) {
        coll_gpusym_count(&counters->native);
        coll_gpusym_count(&counters->messages);
    } else {
        coll_gpusym_count(&counters->forwarded);
    }
}

const coll_gpusym_way_t coll_gpusym_way_messages = {
    .name = "messages",
    .offer = offer,
    .possible = possible,
    .poll = poll,
    .finish = finish,
    .count = count,
};
