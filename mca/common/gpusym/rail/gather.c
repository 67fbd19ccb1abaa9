/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Gathers of short blocks in ceil(log2 n) steps: see rail.h.  Source: Bruck et al., Efficient algorithms for all-to-all
 * communications in multiport message-passing systems, IEEE TPDS 8 (1997).
 *
 * The blocks stand in the send buffers, own one first, then those of the next places.  In step s a process has 2^s of
 * them, sends them to the process 2^s places before, and appends what comes from the one 2^s places further on.  So
 * what is sent stays where it is, and the CPU copies what has landed.
 */
#include "mca/common/gpusym/rail/gather.h"

#include <string.h>

#include "kernels/kernels.h"
#include "mca/common/gpusym/rail/short.h"

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static char *block_at(const gpusym_rail_t *r, uint32_t i)
{
    return r->params.send + i * r->call.bytes;
}

int gpusym_rail_gather_start(gpusym_rail_t *r)
{
    gpusym_rail_gather_t *g = &r->gather;
    const void *src[GPUSYM_TEAM_MAX];
    memset(g, 0, sizeof *g);
    g->have = 1;
    if (r->params.n > GPUSYM_RAIL_DIRECT_MAX || (0 == r->nin && 0 != r->call.bytes) ||
        r->call.bytes * r->params.n > 2 * GPUSYM_RAIL_DIRECT_BYTES(r->params.piece_bytes)) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    if (0 == r->call.bytes) {
        return GPUSYM_SUCCESS;
    }
    const uint32_t nsrc = gpusym_rail_inputs(r, 0, src);
    const int rc = gpusym_rail_short_fill(r, 0, src, nsrc, r->params.send, r->call.bytes, &g->filled);
    g->stored = g->filled; /* where there is no output */
    return rc;
}

/* Sends what this step has to send, reads what it is to receive.  1: both are done. */
static int do_step(gpusym_rail_t *r)
{
    gpusym_rail_gather_t *g = &r->gather;
    const uint32_t n = r->params.n, distance = g->have, count = min_u32(distance, n - distance);
    gpusym_net_stream_t *to, *from;
    const char *piece;
    int rc = gpusym_rail_stream(r, GPUSYM_RAIL_CHANNELS, (r->params.pos + n - distance) % n, &to);
    if (GPUSYM_SUCCESS == rc) {
        rc = gpusym_rail_stream(r, GPUSYM_RAIL_CHANNELS, (r->params.pos + distance) % n, &from);
    }
    if (GPUSYM_SUCCESS == rc && g->sent == g->step && 0 != gpusym_net_stream_room(to)) {
        g->message[g->step] = (gpusym_net_message_t){.sent = 0};
        rc = gpusym_rail_send(r, to, &g->message[g->step], r->params.send, (uint32_t) (count * r->call.bytes));
        g->sent += GPUSYM_SUCCESS == rc;
        rc = GPUSYM_ERR_NO_MEMORY == rc ? GPUSYM_SUCCESS : rc; /* later */
    }
    if (GPUSYM_SUCCESS == rc && g->read == g->step) {
        rc = gpusym_rail_read(r, from, count * r->call.bytes, &piece);
        if (1 == rc) {
            memcpy(block_at(r, distance), piece, count * r->call.bytes);
            gpusym_net_stream_release(from, 1);
            g->read++;
            rc = GPUSYM_SUCCESS;
        }
    }
    return GPUSYM_SUCCESS != rc ? rc : g->sent > g->step && g->read > g->step;
}

/* All blocks are here: reduces them in rising order of the processes, or stores each where it belongs. */
static int finish(gpusym_rail_t *r)
{
    gpusym_rail_gather_t *g = &r->gather;
    const void *src[GPUSYM_RAIL_DIRECT_MAX];
    void *dst[GPUSYM_TEAM_MAX];
    const bool by_cpu = gpusym_rail_short_reduces(r);
    int rc = GPUSYM_SUCCESS;
    if (0 == r->nout) {
        return GPUSYM_SUCCESS;
    }
    for (uint32_t p = 0; p < r->params.n; p++) {
        const char *block = block_at(r, (p + r->params.n - r->params.pos) % r->params.n);
        src[p] = by_cpu ? block : gpusym_rail_device(r, block);
    }
    if (by_cpu) {
        char *sum = block_at(r, r->params.n);
        gpusym_kernel_reduce_on_cpu(r->call.op, r->call.type, src, r->params.n, sum, r->call.bytes);
        src[0] = gpusym_rail_device(r, sum);
        const uint32_t ndst = gpusym_rail_outputs(r, 0, src, 1, dst);
        return gpusym_rail_short_move(r, 0, src, 1, dst, ndst, r->call.bytes, &g->stored);
    }
    if (r->call.reduces) {
        const uint32_t ndst = gpusym_rail_outputs(r, 0, src, r->params.n, dst);
        return gpusym_rail_short_move(r, 0, src, r->params.n, dst, ndst, r->call.bytes, &g->stored);
    }
    for (uint32_t p = 0; p < r->params.n && GPUSYM_SUCCESS == rc; p++) {
        const uint32_t ndst = gpusym_rail_outputs(r, r->call.from(r->call.arg, p).off, &src[p], 1, dst);
        rc = gpusym_rail_short_move(r, 0, &src[p], 1, dst, ndst, r->call.bytes, &g->stored);
    }
    return rc;
}

int gpusym_rail_gather_poll(gpusym_rail_t *r)
{
    gpusym_rail_gather_t *g = &r->gather;
    int rc = 1;
    if (0 == r->call.bytes) {
        return 1;
    }
    if (!gpusym_rail_ended(r, &g->filled)) {
        return 0;
    }
    while (g->have < r->params.n && 1 == (rc = do_step(r))) {
        g->have += min_u32(g->have, r->params.n - g->have);
        g->step++;
    }
    if (g->have < r->params.n) {
        return rc;
    }
    if (r->call.held) {
        return 0;
    }
    if (!g->finishing) {
        g->finishing = true;
        rc = finish(r);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
    }
    return gpusym_rail_ended(r, &g->stored) && gpusym_rail_short_ended(r) && gpusym_rail_gather_quiet(r);
}

bool gpusym_rail_gather_quiet(const gpusym_rail_t *r)
{
    for (uint32_t s = 0; s < r->gather.sent; s++) {
        if (0 == __atomic_load_n(&r->gather.message[s].sent, __ATOMIC_ACQUIRE)) {
            return false;
        }
    }
    return true;
}
