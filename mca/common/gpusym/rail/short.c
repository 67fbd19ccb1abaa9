/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Short pieces: see short.h.
 */
#include "mca/common/gpusym/rail/short.h"

#include <string.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/exec/exchange.h"
#include "tuning/copy.h"

/* Destinations of a copy at most: the copier takes 2 us for each, a launch 9 for all. */
#define TARGETS_MAX 2u
/* Bytes of all inputs together that the CPU reduces at most: in the 5 us that a launch takes longer than a copy, of
 * types and operations that it is fast at, and of others. */
#define REDUCE_MAX (64u << 10)
#define REDUCE_MAX_SLOW (2u << 10)

/* Whether the CPU reduces n inputs of the call. */
static bool reduces_on_cpu(const gpusym_rail_t *r, uint32_t n)
{
    return n * r->call.bytes <=
           (gpusym_kernel_reduces_fast_on_cpu(r->call.op, r->call.type) ? REDUCE_MAX : REDUCE_MAX_SLOW);
}

bool gpusym_rail_short_reduces(const gpusym_rail_t *r)
{
    return r->call.reduces && r->params.n > 1 && (GPUSYM_RAIL_TREE == r->call.form || reduces_on_cpu(r, r->params.n));
}

/* Whether an address of the GPU is in a send buffer, which is all that is filled but outputs. */
static bool is_pinned(const gpusym_rail_t *r, const void *p)
{
    const char *at = p, *send = gpusym_rail_device(r, r->params.send);
    return at >= send && at < send + GPUSYM_RAIL_SEND_BYTES(r->params.piece_bytes);
}

/* ---- exchanges ---- */

_Static_assert(0 == sizeof(gpusym_exchange_t) % 16, "lines are where the kernels load them whole");

/* At the end of the send buffers, of which a call that reduces uses the first. */
static gpusym_exchange_t *exchange_area(const gpusym_rail_t *r)
{
    return (gpusym_exchange_t *) (void *) (r->params.send + GPUSYM_RAIL_SEND_BYTES(r->params.piece_bytes) -
                                           sizeof(gpusym_exchange_t));
}

/* Begins an exchange of the inputs for the outputs. False: a copy is to move the inputs. */
static bool begin_exchange(gpusym_rail_t *r, const void *const *src, uint32_t nsrc, char *to)
{
    gpusym_rail_copies_t *c = &r->copies;
    gpusym_exchange_t *x = exchange_area(r);
    const uint64_t bytes = r->call.bytes;
    if (!r->params.copier || !gpusym_rail_short_reduces(r) || 0 == bytes || bytes > GPUSYM_EXCHANGE_MAX || 0 == nsrc ||
        nsrc > GPUSYM_EXCHANGE_BUFFERS || 0 == r->nout || r->nout > GPUSYM_EXCHANGE_BUFFERS ||
        !reduces_on_cpu(r, nsrc) || c->queued != c->ended) {
        return false;
    }
    memcpy(x->in, src, nsrc * sizeof *src);
    memcpy(x->out, r->out, r->nout * sizeof *r->out);
    gpusym_exchange_clear(x, nsrc, (uint32_t) bytes);
    const gpusym_copier_run_t run = {.dst = gpusym_rail_device(r, (const char *) x),
                                     .src = src[0],
                                     .bytes = GPUSYM_EXCHANGE_COMMAND(bytes, nsrc, r->nout),
                                     .does =
                                         GPUSYM_COPY_EXCHANGES | (r->call.own && 1 == r->nout ? 0u : GPUSYM_COPY_FAR)};
    c->exchange = (gpusym_rail_exchange_t){.to = to};
    if (GPUSYM_SUCCESS != gpusym_copier_start(r->params.dev, r->params.gpu, &run, &c->exchange.copier)) {
        c->exchange.copier = NULL;
        return false;
    }
    c->queued++;
    return true;
}

/* If the inputs have all come, reduces them to where they go. */
static bool take_inputs(gpusym_rail_t *r, uint32_t number)
{
    gpusym_rail_copies_t *c = &r->copies;
    char in[GPUSYM_EXCHANGE_BUFFERS][GPUSYM_EXCHANGE_MAX];
    const void *src[GPUSYM_EXCHANGE_BUFFERS];
    if (!gpusym_exchange_inputs(exchange_area(r), r->nin, (uint32_t) r->call.bytes, number, in)) {
        return false;
    }
    for (uint32_t q = 0; q < r->nin; q++) {
        src[q] = in[q];
    }
    if (1 == r->nin) {
        memcpy(c->exchange.to, in[0], r->call.bytes);
    } else {
        gpusym_kernel_reduce_on_cpu(r->call.op, r->call.type, src, r->nin, c->exchange.to, r->call.bytes);
    }
    c->ended++;
    r->counters.copies++;
    return true;
}

static void give_answer(gpusym_rail_t *r, const char *answer)
{
    gpusym_exchange_answer(exchange_area(r), answer, (uint32_t) r->call.bytes,
                           gpusym_copier_number(r->copies.exchange.copier));
    r->copies.exchange.answer = answer;
}

/* What the exchange was to do, and has not done, by a copy or a launch. */
static int do_without(gpusym_rail_t *r)
{
    gpusym_rail_copies_t *c = &r->copies;
    const void *src[GPUSYM_TEAM_MAX];
    void *dst[GPUSYM_TEAM_MAX];
    uint32_t nsrc = 1, ndst = 1;
    if (NULL == c->exchange.answer) {
        nsrc = gpusym_rail_inputs(r, 0, src);
        dst[0] = gpusym_rail_device(r, c->exchange.to);
    } else if (1 == r->nout) {
        c->run[c->ended % GPUSYM_RAIL_COPIES] = (gpusym_copier_run_t){
            .dst = r->out[0],
            .src = gpusym_rail_device(r, c->exchange.answer),
            .bytes = (uint32_t) r->call.bytes,
            .does = r->call.own ? 0 : GPUSYM_COPY_FAR,
        };
        return GPUSYM_SUCCESS;
    } else {
        src[0] = gpusym_rail_device(r, c->exchange.answer);
        ndst = gpusym_rail_outputs(r, 0, src, 1, dst);
    }
    const int rc = gpusym_rail_launch(r, GPUSYM_RAIL_COPY_LANE, src, nsrc, dst, ndst, r->call.bytes, &c->launched);
    c->by_launch = GPUSYM_SUCCESS == rc;
    return rc;
}

/* Moves the exchange on that is under way; it waits for its answer for some time, and then it ends. */
static int poll_exchange(gpusym_rail_t *r)
{
    gpusym_rail_copies_t *c = &r->copies;
    const uint32_t number = gpusym_copier_number(c->exchange.copier);
    const bool wanted = c->ended != c->queued && NULL == c->exchange.answer;
    bool taken = wanted && take_inputs(r, number);
    const int rc = gpusym_copier_poll(c->exchange.copier);
    if (0 == rc) {
        return GPUSYM_SUCCESS;
    }
    c->exchange.copier = NULL;
    if (rc < 0 && GPUSYM_ERR_LATE != rc) {
        return rc;
    }
    taken = taken || (wanted && 1 == rc && take_inputs(r, number));
    if (c->ended != c->queued && NULL != c->exchange.answer && 1 == rc &&
        !gpusym_exchange_late(exchange_area(r), number)) {
        c->ended++;
        r->counters.copies++;
    }
    return c->ended != c->queued ? do_without(r) : GPUSYM_SUCCESS;
}

int gpusym_rail_short_fill(gpusym_rail_t *r, uint32_t lane, const void *const *src, uint32_t nsrc, char *to,
                           uint64_t bytes, gpusym_rail_work_t *work)
{
    void *dst = gpusym_rail_device(r, to);
    if (!begin_exchange(r, src, nsrc, to)) {
        return gpusym_rail_short_move(r, lane, src, nsrc, &dst, 1, bytes, work);
    }
    *work = (gpusym_rail_work_t){GPUSYM_RAIL_COPY_LANE, r->copies.queued, true};
    return GPUSYM_SUCCESS;
}

/* ---- copies ---- */

int gpusym_rail_short_move(gpusym_rail_t *r, uint32_t lane, const void *const *src, uint32_t nsrc, void *const *dst,
                           uint32_t ndst, uint64_t bytes, gpusym_rail_work_t *work)
{
    gpusym_rail_copies_t *c = &r->copies;
    if (NULL != c->exchange.copier) {
        give_answer(r, r->params.host + ((const char *) src[0] - r->params.device));
        *work = (gpusym_rail_work_t){GPUSYM_RAIL_COPY_LANE, ++c->queued, true};
        return GPUSYM_SUCCESS;
    }
    if (!r->params.copier || 1 != nsrc || 0 == bytes || ndst > TARGETS_MAX ||
        bytes > gpusym_tuning_copy_resident_max() || c->queued - c->ended + ndst > GPUSYM_RAIL_COPIES) {
        return gpusym_rail_launch(r, lane, src, nsrc, dst, ndst, bytes, work);
    }
    const uint32_t does = r->call.own && !is_pinned(r, dst[0]) ? 0 : GPUSYM_COPY_FAR;
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
    if (NULL != c->exchange.copier && GPUSYM_SUCCESS == c->error) {
        c->error = poll_exchange(r);
    }
    while (1 == rc && NULL == c->exchange.copier && c->ended != c->queued && GPUSYM_SUCCESS == c->error) {
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
    if (NULL != c->exchange.copier && 0 == gpusym_copier_poll(c->exchange.copier)) {
        return false;
    }
    c->exchange.copier = NULL;
    c->queued = c->ended + (NULL != c->copier || c->by_launch);
    return GPUSYM_SUCCESS != gpusym_rail_short_poll(r) || c->ended == c->queued;
}
