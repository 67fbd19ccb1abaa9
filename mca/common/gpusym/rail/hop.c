/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams, pieces and kernels of a rail: see hop.h.
 */
#include "mca/common/gpusym/rail/hop.h"

#include <string.h>

#include "mca/common/gpusym/log.h"

/* ---- streams ---- */

int gpusym_rail_stream(gpusym_rail_t *r, uint32_t number, uint32_t pos, gpusym_net_stream_t **stream)
{
    gpusym_net_stream_t **place = &r->stream[number * r->params.n + pos];
    gpusym_rail_peer_t peer;
    if (NULL == *place) {
        const uint32_t bytes = number < GPUSYM_RAIL_CHANNELS ? r->params.piece_bytes : r->params.piece_bytes / 4;
        int rc = r->params.peer(r->params.arg, pos, &peer);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
        const gpusym_net_stream_params_t p = {.peer = peer.net,
                                              .token_in = peer.token_in,
                                              .token_out = peer.token_out,
                                              .channel = (uint16_t) (r->params.first_stream + number),
                                              .pieces_in = GPUSYM_RAIL_PIECES,
                                              .pieces_out = GPUSYM_RAIL_PIECES,
                                              .bytes_in = bytes,
                                              .bytes_out = bytes,
                                              .owner = peer.owner};
        rc = gpusym_net_stream_open(r->params.streams, &p, place);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
    }
    *stream = *place;
    return GPUSYM_SUCCESS;
}

int gpusym_rail_send(gpusym_rail_t *r, gpusym_net_stream_t *stream, gpusym_net_message_t *message, const void *data,
                     uint32_t bytes)
{
    message->head.call = r->call.call;
    message->head.stage = r->call.stage;
    const int rc = gpusym_net_stream_send(stream, message, data, bytes);
    if (GPUSYM_SUCCESS == rc) {
        r->counters.pieces++;
        r->counters.bytes += bytes;
    }
    return rc;
}

int gpusym_rail_read(gpusym_rail_t *r, gpusym_net_stream_t *stream, uint64_t bytes, const char **piece)
{
    const gpusym_net_head_t *head;
    const void *data;
    do {
        if (!gpusym_net_stream_read(stream, &head, &data)) {
            return 0;
        }
        *piece = data;
        if (head->call == r->call.call && head->stage == r->call.stage && head->bytes == bytes) {
            return 1;
        }
        if ((int32_t) (head->call - r->call.call) < 0) { /* of a call that was given up: nothing of this one came yet */
            gpusym_net_stream_release(stream, 1);
        }
    } while ((int32_t) (head->call - r->call.call) < 0);
    GPUSYM_LOG(2, "between hosts: a piece of call %u, stage %u, %u bytes, in call %u, stage %u, instead of %llu",
               head->call, head->stage, head->bytes, r->call.call, r->call.stage, (unsigned long long) bytes);
    return GPUSYM_ERR_CORRUPT;
}

/* ---- inputs and outputs ---- */

bool gpusym_rail_in_place(const gpusym_rail_t *r)
{
    for (uint32_t i = 0; i < r->nin; i++) {
        for (uint32_t o = 0; o < r->nout; o++) {
            if (r->in[i] == r->out[o]) {
                return true;
            }
        }
    }
    return false;
}

uint32_t gpusym_rail_inputs(const gpusym_rail_t *r, uint64_t off, const void **src)
{
    for (uint32_t i = 0; i < r->nin; i++) {
        src[i] = r->in[i] + off;
    }
    return r->nin;
}

uint32_t gpusym_rail_outputs(const gpusym_rail_t *r, uint64_t off, const void *const *src, uint32_t nsrc, void **dst)
{
    uint32_t ndst = 0;
    for (uint32_t o = 0; o < r->nout; o++) {
        if (1 != nsrc || src[0] != r->out[o] + off) {
            dst[ndst++] = r->out[o] + off;
        }
    }
    return ndst;
}

/* ---- kernels ---- */

char *gpusym_rail_device(const gpusym_rail_t *r, const void *host)
{
    return r->params.device + ((const char *) host - r->params.host);
}

static int launch_job(gpusym_rail_t *r, uint32_t lane, const void *const *src, void *const *dst,
                      const gpusym_job_t *job, gpusym_rail_work_t *work)
{
    void *ticket = (char *) r->ticket + lane * GPUSYM_JOB_TICKET_BYTES;
    int rc = NULL == r->lane[lane] ? gpusym_lane_get(r->params.dev, r->params.gpu, &r->lane[lane]) : GPUSYM_SUCCESS;
    if (GPUSYM_SUCCESS == rc) {
        rc = gpusym_job_launch(r->lane[lane], ticket, r->sm_count, r->call.op, r->call.type, src, dst, job);
        *work = (gpusym_rail_work_t){lane, r->lane[lane]->seq, false};
        r->counters.launches++;
    }
    return rc;
}

int gpusym_rail_launch(gpusym_rail_t *r, uint32_t lane, const void *const *src, uint32_t nsrc, void *const *dst,
                       uint32_t ndst, uint64_t bytes, gpusym_rail_work_t *work)
{
    const gpusym_job_t job = {.form = nsrc > 1 ? GPUSYM_JOB_REDUCE : GPUSYM_JOB_SPREAD,
                              .bytes = bytes,
                              .src_end = (uint16_t) nsrc,
                              .dst_end = (uint16_t) ndst};
    return launch_job(r, lane, src, dst, &job, work);
}

int gpusym_rail_launch_scan(gpusym_rail_t *r, uint32_t lane, const void *const *src, void *const *dst, uint32_t n,
                            bool exclusive, uint64_t bytes, gpusym_rail_work_t *work)
{
    const gpusym_job_t job = {.form = exclusive ? GPUSYM_JOB_EXSCAN : GPUSYM_JOB_SCAN,
                              .bytes = bytes,
                              .src_end = (uint16_t) n,
                              .dst_end = (uint16_t) n};
    return launch_job(r, lane, src, dst, &job, work);
}

bool gpusym_rail_ended(const gpusym_rail_t *r, const gpusym_rail_work_t *work)
{
    const uint64_t done = work->is_copy ? 0 : __atomic_load_n(&r->lane[work->lane]->host->done, __ATOMIC_ACQUIRE);
    return (int32_t) ((work->is_copy ? r->copies.ended : (uint32_t) (done >> 32)) - work->seq) >= 0;
}
