/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * RSxLL128_AGxLL128: the two-shot all-reduce by LL128 lines (lines.h), without a barrier.  Each rank owns a slice of
 * the message: all store their parts of it into its lines; it reduces them, and stores the result into everybody's
 * lines.  For messages of middle size: beside one-shot LL a rank sends little, 1/15 of it flags, and beside the other
 * two-shots nobody waits for a fence. Source: the scheme of NCCL's symmetric kernels (RSxLD_AGxST) with the lines of
 * its LL128, as described in "Demystifying NCCL", arXiv 2507.04786.
 *
 * Bytes sent by a rank: 2 * (n - 1) / n * bytes * 16 / 15.
 * Order of summation: ranks rising, from 0.
 *
 * Streams: w->nthreads / 32 a block, each a warp, which wait for nobody but the stream of their number on the other
 * ranks. (On the simulator one thread does them one after the other.)  A slice (w->span packs) is cut into units of
 * w->chunk packs; stream t of T has units t, t + T, ... of every slice, one a round.  Of each round a stream does three
 * things:
 *   scatter  sends its unit of every other slice to that one's owner
 *   reduce   takes what all others sent of its own slice's unit, reduces it, sends the result to all
 *   gather   takes the other owners' results
 * in this order, and the scatter of a round stands before the reduce of the round before: data are on their way while a
 * stream waits.
 *
 * Slot: the LL128 area is [2 parities][T streams][2: scattered, results][n - 1 writers] buffers of w->stage_bytes, a
 * unit's lines.  Round k uses parity k % 2, and its lines have flag w->epoch + k, above all that the slot has had
 * before. Why a buffer is never overwritten before it has been read (rounds of one stream):
 *   scattered  s scatters k + 1 to d after it has gathered k - 1 from d, which d sent after it had taken what s
 *              scattered in k - 1, the last to use that buffer;
 *   results    d sends k to r after it has taken what r scattered in k, which r sent after it had gathered k - 2, the
 *              last to use that buffer.
 * A slice that has ended earlier than others has no unit in any later round: a stream that waits for nothing overwrites
 * nothing. With one round only the first parity is used, and may take all the room.  Launches follow each other as
 * work.h says.
 *
 * In place: a unit of the input is read by its rank before anybody can have its result.
 */
#ifndef GPUSYM_KERNELS_SYMM_LL128_H
#define GPUSYM_KERNELS_SYMM_LL128_H

#include "kernels/prim/lines.h"
#include "kernels/prim/move.h"
#include "kernels/prim/stream.h"

/* Groups of a unit that a warp takes at a time, of each of GS_RANKS ranks: 8 loads of a lane in flight, in 128
 * registers. */
#define GS_BATCH 2u

#define GS_SCATTERED 0u
#define GS_RESULTS 1u

/* A stream in one of its rounds. */
typedef struct {
    uint32_t stream, round;
    uint32_t epoch; /* of the first round */
    uint64_t at;    /* first pack of its unit in every slice */
} gs_unit_t;

/* Up to GS_BATCH groups of a unit, and with which rank. */
typedef struct {
    uint32_t rank;
    uint32_t packs; /* there; 0: nothing goes to, or comes from, this rank */
    uint64_t first; /* in the message */
    char *lines;
} gs_batch_t;

GS_FN uint32_t gs_streams(const gpusym_work_t *w)
{
    return GPUSYM_LL128_STREAMS(w->nthreads) * w->nblocks;
}

/* Where rank `from` writes a unit's lines in the slot of rank `to`. */
GS_FN char *gs_unit_lines(const gpusym_work_t *w, const gs_unit_t *x, uint32_t what, uint32_t to, uint32_t from)
{
    const uint32_t row = ((x->round & 1) * gs_streams(w) + x->stream) * 2 + what;
    const uint64_t buffer = (uint64_t) row * (w->nranks - 1) + from - (from > to);
    return (char *) w->peer[to] + w->ll128_off + buffer * w->stage_bytes;
}

/* The groups from pack g of a unit on, in the slice of rank `owner`; lines: where the unit's are. */
GS_FN gs_batch_t gs_batch(const gpusym_work_t *w, const gs_unit_t *x, uint32_t g, uint32_t owner, uint32_t rank,
                          char *lines)
{
    const uint64_t packs = (w->bytes + 15) / 16, slice = owner * w->span, unit = slice + x->at;
    const uint64_t end = gs_min64(gs_min64(slice + w->span, packs), unit + w->chunk);
    gs_batch_t b;
    b.rank = rank;
    b.first = unit + g;
    b.packs = b.first < end ? (uint32_t) (end - b.first) : 0;
    b.lines = lines + g / GPUSYM_LL128_PACKS * GPUSYM_LL128_BYTES;
    return b;
}

GS_FN gs_batch_t gs_no_batch(void)
{
    const gs_batch_t b = {0, 0, 0, NULL};
    return b;
}

/* Whether group u of a batch is there, and whether a lane has a pack in it. */
GS_FN bool gs_batch_group(const gs_batch_t *b, uint32_t u)
{
    return u * GPUSYM_LL128_PACKS < b->packs;
}

GS_FN bool gs_batch_pack(const gs_batch_t *b, uint32_t u, uint32_t lane)
{
    const uint32_t i = gs_ll128_pack(lane);
    return i < GPUSYM_LL128_PACKS && u * GPUSYM_LL128_PACKS + i < b->packs;
}

/* Packs of a batch, of one lane. */
typedef struct {
    gs_pack_t v[GS_BATCH];
} gs_packs_t;

/* A lane's packs of a batch, from the user's input, and to the output: of any alignment and end. Out of line, and once
 * for a batch: it would swell every loop. */
GS_OUTLINE gs_packs_t gs_batch_load_unaligned(const void *in, uint64_t bytes, gs_batch_t b, uint32_t lane)
{
    gs_packs_t x = {{{{0, 0}}}};
    GS_UNROLL
    for (uint32_t u = 0; u < GS_BATCH; u++) {
        if (gs_batch_pack(&b, u, lane)) {
            x.v[u] = gs_ld_unaligned(in, gs_align(in), bytes, b.first + u * GPUSYM_LL128_PACKS + gs_ll128_pack(lane));
        }
    }
    return x;
}

GS_OUTLINE void gs_batch_store_unaligned(void *out, uint64_t bytes, gs_batch_t b, uint32_t lane, gs_packs_t x)
{
    GS_UNROLL
    for (uint32_t u = 0; u < GS_BATCH; u++) {
        if (gs_batch_pack(&b, u, lane)) {
            gs_st_unaligned(out, gs_align(out), bytes, b.first + u * GPUSYM_LL128_PACKS + gs_ll128_pack(lane), x.v[u]);
        }
    }
}

/* Whether a batch has no packs but whole and aligned ones in a buffer. */
GS_FN bool gs_batch_aligned(const gpusym_work_t *w, const void *buffer, const gs_batch_t *b)
{
    return 16 == gs_align(buffer) && 16 * (b->first + GS_BATCH * GPUSYM_LL128_PACKS) <= w->bytes;
}

GS_FN gs_packs_t gs_batch_load(const gpusym_work_t *w, const gs_batch_t *b, uint32_t lane)
{
    gs_packs_t x = {{{{0, 0}}}};
    if (0 != b->packs && !gs_batch_aligned(w, w->in, b)) {
        return gs_batch_load_unaligned(w->in, w->bytes, *b, lane);
    }
    const char *p = (const char *) w->in + 16 * (b->first + gs_ll128_pack(lane));
    GS_UNROLL
    for (uint32_t u = 0; u < GS_BATCH; u++) {
        if (gs_batch_pack(b, u, lane)) {
            x.v[u] = gs_ld16(p + u * 16ull * GPUSYM_LL128_PACKS);
        }
    }
    return x;
}

GS_FN void gs_batch_store(const gpusym_work_t *w, const gs_batch_t *b, uint32_t lane, const gs_packs_t *x)
{
    if (0 != b->packs && !gs_batch_aligned(w, w->out, b)) {
        gs_batch_store_unaligned(w->out, w->bytes, *b, lane, *x);
        return;
    }
    char *p = (char *) w->out + 16 * (b->first + gs_ll128_pack(lane));
    GS_UNROLL
    for (uint32_t u = 0; u < GS_BATCH; u++) {
        if (gs_batch_pack(b, u, lane)) {
            gs_st16(p + u * 16ull * GPUSYM_LL128_PACKS, x->v[u]);
        }
    }
}

/* Takes a lane's packs of GS_RANKS batches, when all are there; each is written by its rank. Called by all lanes of a
 * warp; all loads go out together. */
GS_FN void gs_batch_take(const gpusym_work_t *w, const gs_batch_t *b, uint32_t lane, uint32_t flag, gs_packs_t *x,
                         uint32_t *status)
{
    gs_wait_t wait = GS_WAIT_INIT;
    uint32_t mine = *status, missing; /* GPUSYM_STATUS_OK, in all lanes */
    do {
        gs_raw_t raw[GS_RANKS][GS_BATCH] = {0};
        missing = w->nranks;
        GS_UNROLL
        for (uint32_t i = 0; i < GS_RANKS * GS_BATCH; i++) {
            if (gs_batch_group(&b[i / GS_BATCH], i % GS_BATCH)) {
                raw[i / GS_BATCH][i % GS_BATCH] =
                    gs_ll128_ld(b[i / GS_BATCH].lines + i % GS_BATCH * GPUSYM_LL128_BYTES, lane);
            }
        }
        GS_UNROLL
        for (uint32_t i = 0; i < GS_RANKS * GS_BATCH; i++) {
            gs_raw_t *r = &raw[i / GS_BATCH][i % GS_BATCH];
            if (gs_batch_group(&b[i / GS_BATCH], i % GS_BATCH) && !gs_ll128_whole(r, lane, flag)) {
                missing = b[i / GS_BATCH].rank;
            }
            x[i / GS_BATCH].v[i % GS_BATCH] = r->v;
        }
        if (missing < w->nranks) {
            mine = gs_wait(w, &wait, missing);
        }
    } while (missing < w->nranks && GPUSYM_STATUS_OK == gs_warp_worst(mine));
    *status = gs_warp_worst(mine);
}

/* Sends the unit of every other rank's slice to that rank. */
GS_FN void gs_ll128_scatter(gs_ctx_t c, const gpusym_work_t *w, const gs_unit_t *x)
{
    GS_NO_UNROLL
    for (uint32_t g = 0; g < w->chunk; g += GS_BATCH * GPUSYM_LL128_PACKS) {
        GS_NO_UNROLL
        for (uint32_t q = 1; q < w->nranks; q += GS_RANKS) {
            uint64_t half[GS_RANKS][GS_BATCH] = {{0}}; /* of packs that two lanes share */
            gs_batch_t b[GS_RANKS];
            GS_UNROLL
            for (uint32_t r = 0; r < GS_RANKS; r++) {
                const uint32_t p = gs_nth(w, q + r < w->nranks ? q + r : 0);
                b[r] = p == w->rank ? gs_no_batch()
                                    : gs_batch(w, x, g, p, p, gs_unit_lines(w, x, GS_SCATTERED, p, w->rank));
            }
            GS_NO_UNROLL
            for (uint32_t lane = c.thread % GS_WARP; lane < 32; lane += GS_WARP) {
                gs_packs_t v[GS_RANKS];
                GS_UNROLL
                for (uint32_t r = 0; r < GS_RANKS; r++) {
                    v[r] = gs_batch_load(w, &b[r], lane);
                }
                GS_UNROLL
                for (uint32_t i = 0; i < GS_RANKS * GS_BATCH; i++) { /* a group to each rank, then the next */
                    const uint32_t r = i % GS_RANKS, u = i / GS_RANKS;
                    if (gs_batch_group(&b[r], u)) {
                        gs_ll128_st(b[r].lines + u * GPUSYM_LL128_BYTES, lane, v[r].v[u], x->epoch + x->round,
                                    &half[r][u]);
                    }
                }
            }
        }
    }
}

/* Reduces a lane's packs of a batch of our own slice over all ranks. */
GS_FN void gs_ll128_reduce_lane(gs_kernel_t kernel, const gs_unit_t *x, uint32_t g, uint32_t lane,
                                const gs_batch_t *own, gs_packs_t *result, uint32_t *status)
{
    const gpusym_work_t *const w = kernel.w;
    gs_acc_t acc[GS_BATCH] = {{{0, 0, 0, 0}}};
    const gs_packs_t input = gs_batch_load(w, own, lane);
    GS_NO_UNROLL
    for (uint32_t p0 = 0; p0 < w->nranks; p0 += GS_RANKS) {
        gs_packs_t v[GS_RANKS];
        gs_batch_t b[GS_RANKS];
        GS_UNROLL
        for (uint32_t r = 0; r < GS_RANKS; r++) {
            b[r] = p0 + r < w->nranks && p0 + r != w->rank
                       ? gs_batch(w, x, g, w->rank, p0 + r, gs_unit_lines(w, x, GS_SCATTERED, w->rank, p0 + r))
                       : gs_no_batch();
        }
        gs_batch_take(w, b, lane, x->epoch + x->round, v, status);
        if (GPUSYM_STATUS_OK != *status) {
            return;
        }
        GS_UNROLL
        for (uint32_t i = 0; i < GS_RANKS * GS_BATCH; i++) {
            const uint32_t r = i / GS_BATCH, u = i % GS_BATCH;
            const gs_pack_t one = p0 + r == w->rank ? input.v[u] : v[r].v[u];
            if (0 == r && 0 == p0) {
                acc[u] = gs_acc_start(gs_acc_type(kernel), one);
            } else if (p0 + r < w->nranks) {
                gs_acc_op(kernel, &acc[u], one);
            }
        }
    }
    GS_UNROLL
    for (uint32_t u = 0; u < GS_BATCH; u++) {
        result->v[u] = gs_acc_end(gs_acc_type(kernel), &acc[u]);
    }
}

/* Reduces our unit and sends the result to all. */
GS_FN void gs_ll128_reduce(gs_ctx_t c, gs_kernel_t kernel, const gs_unit_t *x, uint32_t *status)
{
    const gpusym_work_t *const w = kernel.w;
    GS_NO_UNROLL
    for (uint32_t g = 0; g < w->chunk; g += GS_BATCH * GPUSYM_LL128_PACKS) {
        const gs_batch_t own = gs_batch(w, x, g, w->rank, w->rank, NULL);
        uint64_t half[GS_BATCH] = {0};
        GS_NO_UNROLL
        for (uint32_t lane = c.thread % GS_WARP; lane < 32; lane += GS_WARP) {
            gs_packs_t v = {{{{0, 0}}}};
            gs_ll128_reduce_lane(kernel, x, g, lane, &own, &v, status);
            if (GPUSYM_STATUS_OK != *status) {
                return;
            }
            GS_NO_UNROLL
            for (uint32_t q = 1; q < w->nranks; q++) {
                const uint32_t p = gs_nth(w, q);
                char *lines = gs_unit_lines(w, x, GS_RESULTS, p, w->rank) + g / GPUSYM_LL128_PACKS * GPUSYM_LL128_BYTES;
                GS_UNROLL
                for (uint32_t u = 0; u < GS_BATCH; u++) {
                    if (gs_batch_group(&own, u)) {
                        gs_ll128_st(lines + u * GPUSYM_LL128_BYTES, lane, v.v[u], x->epoch + x->round, &half[u]);
                    }
                }
            }
            gs_batch_store(w, &own, lane, &v);
        }
    }
}

/* Takes the results of the other slices' units. */
GS_FN void gs_ll128_gather(gs_ctx_t c, const gpusym_work_t *w, const gs_unit_t *x, uint32_t *status)
{
    GS_NO_UNROLL
    for (uint32_t g = 0; g < w->chunk; g += GS_BATCH * GPUSYM_LL128_PACKS) {
        GS_NO_UNROLL
        for (uint32_t q = 1; q < w->nranks; q += GS_RANKS) {
            gs_batch_t b[GS_RANKS];
            GS_UNROLL
            for (uint32_t r = 0; r < GS_RANKS; r++) {
                const uint32_t p = gs_nth(w, q + r < w->nranks ? q + r : 0);
                b[r] =
                    p == w->rank ? gs_no_batch() : gs_batch(w, x, g, p, p, gs_unit_lines(w, x, GS_RESULTS, w->rank, p));
            }
            GS_NO_UNROLL
            for (uint32_t lane = c.thread % GS_WARP; lane < 32; lane += GS_WARP) {
                gs_packs_t v[GS_RANKS];
                gs_batch_take(w, b, lane, x->epoch + x->round, v, status);
                if (GPUSYM_STATUS_OK != *status) {
                    return;
                }
                GS_UNROLL
                for (uint32_t r = 0; r < GS_RANKS; r++) {
                    gs_batch_store(w, &b[r], lane, &v[r]);
                }
            }
        }
    }
}

/* All rounds of a stream. */
GS_FN uint32_t gs_ll128_stream(gs_ctx_t c, gs_kernel_t kernel, uint32_t stream)
{
    const gpusym_work_t *const w = kernel.w;
    const uint64_t step = (uint64_t) gs_streams(w) * w->chunk;
    uint32_t status = GPUSYM_STATUS_OK;
    gs_unit_t now = {stream, 0, kernel.epoch, 0}, next = {stream, 0, kernel.epoch, (uint64_t) stream * w->chunk};
    for (bool some = false; GPUSYM_STATUS_OK == status; some = true) {
        const bool more = next.at < w->span;
        if (more) {
            gs_ll128_scatter(c, w, &next);
        }
        if (some) {
            gs_ll128_reduce(c, kernel, &now, &status);
        }
        if (some && GPUSYM_STATUS_OK == status) {
            gs_ll128_gather(c, w, &now, &status);
        }
        if (!more) {
            break;
        }
        now = next;
        next.round++;
        next.at += step;
    }
    return status;
}

GS_FN void gs_rs_ag_ll128(gs_ctx_t c, gs_kernel_t kernel)
{
    const gpusym_work_t *const w = kernel.w;
    const uint32_t streams = GPUSYM_LL128_STREAMS(w->nthreads), first = c.block * streams;
    uint32_t status = GPUSYM_STATUS_OK;
    for (uint32_t s = c.thread / GS_WARP; s < streams && GPUSYM_STATUS_OK == status; s += c.nthreads / GS_WARP) {
        status = gs_ll128_stream(c, kernel, first + s);
    }
    gs_finish(c, w, status);
}

#endif
