/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rails: see rail.h.
 */
#include "mca/common/gpusym/rail/rail.h"

#include <stdlib.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/alloc.h"
#include "mca/common/gpusym/rail/direct.h"
#include "mca/common/gpusym/rail/path.h"
#include "mca/common/gpusym/rail/short.h"
#include "mca/common/gpusym/rail/tree.h"

#define TICKETS_BYTES (GPUSYM_RAIL_CHANNELS * GPUSYM_JOB_TICKET_BYTES)
/* Polls without an end between two looks whether the GPU reports an error. */
#define LOOK_POLLS 4096u

/* ---- opening ---- */

static void put_lanes(gpusym_rail_t *r)
{
    for (uint32_t i = 0; i < GPUSYM_RAIL_CHANNELS; i++) {
        if (NULL != r->lane[i]) {
            gpusym_lane_put(r->lane[i]);
            r->lane[i] = NULL;
        }
    }
}

void gpusym_rail_free(gpusym_rail_t *r)
{
    if (NULL == r) {
        return;
    }
    while (!gpusym_rail_short_drop(r)) {
    }
    for (uint32_t i = 0; i < GPUSYM_RAIL_CHANNELS; i++) {
        if (NULL != r->lane[i]) {
            (void) gpusym_lane_await(r->lane[i]);
        }
    }
    put_lanes(r);
    if (NULL != r->ticket && r->params.dev->gpu_alive(r->params.gpu)) {
        (void) r->params.dev->mem_free(r->params.gpu, r->ticket);
    }
    free(r->stream);
    free(r->pair);
    free(r);
}

int gpusym_rail_open(const gpusym_rail_params_t *params, gpusym_rail_t **rail)
{
    gpusym_gpu_info_t info;
    gpusym_rail_t *r = calloc(1, sizeof *r);
    if (NULL == r) {
        goto no_memory;
    }
    r->params = *params;
    r->stream = calloc((size_t) GPUSYM_RAIL_STREAMS * params->n, sizeof(gpusym_net_stream_t *));
    r->pair = calloc(params->n, sizeof *r->pair);
    if (NULL == r->stream || NULL == r->pair) {
        goto no_memory;
    }
    int rc = gpusym_mem_alloc(params->dev, params->gpu, TICKETS_BYTES, &r->ticket);
    if (GPUSYM_SUCCESS == rc) {
        rc = params->dev->mem_zero(params->gpu, r->ticket, TICKETS_BYTES);
    }
    if (GPUSYM_SUCCESS != rc) {
        gpusym_rail_free(r);
        return rc;
    }
    params->dev->gpu_info(params->gpu, &info);
    r->sm_count = (uint32_t) info.sm_count;
    *rail = r;
    return GPUSYM_SUCCESS;

no_memory:
    gpusym_log_no_memory("a rail between hosts");
    gpusym_rail_free(r);
    return GPUSYM_ERR_NO_MEMORY;
}

/* 1: all kernels have ended; 0: they have not; or the device's error. */
static int poll_lanes(const gpusym_rail_t *r)
{
    for (uint32_t i = 0; i < GPUSYM_RAIL_CHANNELS; i++) {
        const int idle = NULL != r->lane[i] ? r->lane[i]->dev->stream_poll(r->lane[i]->stream) : 1;
        if (1 != idle) {
            return idle;
        }
    }
    return 1;
}

bool gpusym_rail_idle(gpusym_rail_t *r)
{
    if (!gpusym_rail_short_drop(r)) {
        return false;
    }
    for (uint32_t i = 0; i < GPUSYM_RAIL_CHANNELS; i++) {
        if (NULL != r->lane[i] && 0 == r->lane[i]->dev->stream_poll(r->lane[i]->stream)) {
            return false;
        }
    }
    return true;
}

bool gpusym_rail_quiet(gpusym_rail_t *r)
{
    return gpusym_rail_idle(r) && gpusym_rail_path_quiet(r) && gpusym_rail_direct_quiet(r) && gpusym_rail_tree_quiet(r);
}

bool gpusym_rail_close(gpusym_rail_t *r)
{
    bool closed = true;
    if (NULL == r) {
        return true;
    }
    if (!gpusym_rail_quiet(r)) {
        return false;
    }
    for (uint32_t i = 0; NULL != r->stream && i < GPUSYM_RAIL_STREAMS * r->params.n; i++) {
        if (NULL != r->stream[i] && gpusym_net_stream_close(r->stream[i])) {
            r->stream[i] = NULL;
        }
        closed = closed && NULL == r->stream[i];
    }
    if (closed) {
        gpusym_rail_free(r);
    }
    return closed;
}

/* ---- calls ---- */

typedef struct {
    int (*start)(gpusym_rail_t *rail);
    int (*poll)(gpusym_rail_t *rail);
} form_t;

static const form_t forms[] = {
    [GPUSYM_RAIL_PATH] = {gpusym_rail_path_start, gpusym_rail_path_poll},
    [GPUSYM_RAIL_DIRECT] = {gpusym_rail_direct_start, gpusym_rail_direct_poll},
    [GPUSYM_RAIL_TREE] = {gpusym_rail_tree_start, gpusym_rail_tree_poll},
};

static bool reduces(const gpusym_rail_call_t *call)
{
    if (GPUSYM_RAIL_PATH != call->form) {
        return call->reduces;
    }
    switch (call->schedule) {
    case GS_RING_ALLGATHER:
    case GS_CHAIN_BCAST:
    case GS_TREE_BCAST:
        return false;
    default:
        return true;
    }
}

/* Lists the inputs and outputs of the call that are there.  False: they are too many. */
static bool list_buffers(gpusym_rail_t *r)
{
    const gpusym_rail_call_t *call = &r->call;
    r->nin = r->nout = 0;
    if (call->nin > GPUSYM_TEAM_MAX - (NULL != call->in ? 1u : 0u) ||
        call->nout > GPUSYM_TEAM_MAX - (NULL != call->out ? 1u : 0u)) {
        return false;
    }
    if (NULL != call->in) {
        r->in[r->nin++] = call->in;
    }
    if (NULL != call->out) {
        r->out[r->nout++] = call->out;
    }
    for (uint32_t i = 0; i < call->nin; i++) {
        r->in[r->nin++] = call->more_in[i];
    }
    for (uint32_t o = 0; o < call->nout; o++) {
        r->out[r->nout++] = call->more_out[o];
    }
    return true;
}

int gpusym_rail_start(gpusym_rail_t *r, const gpusym_rail_call_t *call)
{
    if (call->held && GPUSYM_RAIL_PATH == call->form) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    r->call = *call;
    r->polls = 0;
    r->copies = (gpusym_rail_copies_t){.queued = 0};
    if (!list_buffers(r) || (r->nin > 1 && !reduces(call))) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    return forms[call->form].start(r);
}

int gpusym_rail_poll(gpusym_rail_t *r)
{
    int rc = gpusym_rail_short_poll(r);
    rc = GPUSYM_SUCCESS == rc ? forms[r->call.form].poll(r) : rc;
    if (0 == rc && 0 == ++r->polls % LOOK_POLLS) {
        const int idle = poll_lanes(r);
        rc = idle < 0 ? idle : 0;
    }
    if (1 == rc) {
        put_lanes(r);
    }
    return rc;
}

void gpusym_rail_release(gpusym_rail_t *r)
{
    r->call.held = false;
}

bool gpusym_rail_drop(gpusym_rail_t *r)
{
    if (!gpusym_rail_idle(r)) {
        return false;
    }
    put_lanes(r);
    return true;
}

const gpusym_rail_counters_t *gpusym_rail_counters(const gpusym_rail_t *r)
{
    return &r->counters;
}
