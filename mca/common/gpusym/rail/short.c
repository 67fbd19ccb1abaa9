/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Short pieces: see short.h.
 */
#include "mca/common/gpusym/rail/short.h"

#include "kernels/kernels.h"
#include "tuning/carry.h"

/* Destinations of a copy at most: the copier takes 2 us for each, a launch 9 for all. */
#define TARGETS_MAX 2u
/* Bytes of all inputs together that the CPU reduces at most: in the 5 us that a launch takes longer than a copy, of
 * types and operations that it is fast at, and of others. */
#define REDUCE_MAX (64u << 10)
#define REDUCE_MAX_SLOW (2u << 10)

bool gpusym_rail_short_reduces(const gpusym_rail_t *r)
{
    const bool fast = r->call.reduces && gpusym_kernel_reduces_fast_on_cpu(r->call.op, r->call.type);
    return r->call.reduces && r->params.n > 1 && r->params.n * r->call.bytes <= (fast ? REDUCE_MAX : REDUCE_MAX_SLOW);
}

/* Whether an address of the GPU is in a send buffer, which is all that is filled but outputs. */
static bool is_pinned(const gpusym_rail_t *r, const void *p)
{
    const char *at = p, *send = gpusym_rail_device(r, r->params.send);
    return at >= send && at < send + GPUSYM_RAIL_SEND_BYTES(r->params.piece_bytes);
}

int gpusym_rail_short_move(gpusym_rail_t *r, uint32_t lane, const void *const *src, uint32_t nsrc, void *const *dst,
                           uint32_t ndst, uint64_t bytes, gpusym_rail_work_t *work)
{
    gpusym_rail_copies_t *c = &r->copies;
    if (!r->params.copier || 1 != nsrc || 0 == bytes || ndst > TARGETS_MAX ||
        bytes > gpusym_tuning_carry_resident_max() || c->queued - c->ended + ndst > GPUSYM_RAIL_COPIES) {
        return gpusym_rail_launch(r, lane, src, nsrc, dst, ndst, bytes, work);
    }
    const uint32_t does = r->call.own && !is_pinned(r, dst[0]) ? 0 : GPUSYM_COPY_TO_HOST;
    for (uint32_t i = 0; i < ndst; i++) {
        c->run[c->queued++ % GPUSYM_RAIL_COPIES] =
            (gpusym_copier_run_t){.dst = dst[i], .src = src[0], .bytes = (uint32_t) bytes, .does = does};
    }
    *work = (gpusym_rail_work_t){GPUSYM_RAIL_COPY_LANE, c->queued, true};
    return gpusym_rail_short_poll(r);
}

bool gpusym_rail_short_ended(const gpusym_rail_t *r)
{
    return r->copies.ended == r->copies.queued;
}

/* Begins the next copy: by a launch if the copier is busy, or has left and does not come back. */
static int begin_copy(gpusym_rail_t *r)
{
    gpusym_rail_copies_t *c = &r->copies;
    const gpusym_copier_run_t *run = &c->run[c->ended % GPUSYM_RAIL_COPIES];
    if (GPUSYM_SUCCESS == gpusym_copier_start(r->params.dev, r->params.gpu, run, &c->copier)) {
        return GPUSYM_SUCCESS;
    }
    c->copier = NULL;
    const int rc = gpusym_rail_launch(r, GPUSYM_RAIL_COPY_LANE, &run->src, 1, &run->dst, 1, run->bytes, &c->launched);
    c->by_launch = GPUSYM_SUCCESS == rc;
    return rc;
}

/* 1: the copy that was begun has ended; 0: it has not; or an error. */
static int poll_copy(gpusym_rail_t *r)
{
    gpusym_rail_copies_t *c = &r->copies;
    if (c->by_launch) {
        return gpusym_rail_ended(r, &c->launched);
    }
    return gpusym_copier_poll(c->copier);
}

int gpusym_rail_short_poll(gpusym_rail_t *r)
{
    gpusym_rail_copies_t *c = &r->copies;
    int rc = 1;
    while (1 == rc && c->ended != c->queued && GPUSYM_SUCCESS == c->error) {
        if (NULL == c->copier && !c->by_launch) {
            c->error = begin_copy(r);
        }
        rc = GPUSYM_SUCCESS == c->error ? poll_copy(r) : 0;
        if (0 != rc) {
            r->counters.copies += 1 == rc && !c->by_launch;
            c->copier = NULL;
            c->by_launch = false;
            c->error = rc < 0 ? rc : GPUSYM_SUCCESS;
            c->ended += 1 == rc;
        }
    }
    return c->error;
}

bool gpusym_rail_short_drop(gpusym_rail_t *r)
{
    gpusym_rail_copies_t *c = &r->copies;
    c->queued = c->ended + (NULL != c->copier || c->by_launch);
    return GPUSYM_SUCCESS != gpusym_rail_short_poll(r) || c->ended == c->queued;
}
