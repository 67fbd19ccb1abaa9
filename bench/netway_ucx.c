/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * UCX's active messages as they are, as a way of gpusym_netperf: a message is one active message, by the protocol that
 * UCX chooses, and lands in one buffer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucp/api/ucp.h>

#include "bench/netways.h"
#include "bench/ranks.h"

enum { AM_ID = 1, UNDER_WAY = 16 /* sends, as gpusym has pieces */ };

static struct {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    ucp_ep_h ep;
    void *request[UNDER_WAY];
    unsigned next;
    unsigned char *landing; /* [NETWAY_BYTES_MAX] */
    unsigned long landed, received;
    size_t bytes; /* of the last one */
} raw;

static void need(ucs_status_t status, const char *what)
{
    if (UCS_OK != status) {
        bench_die("UCX: %s: %s", what, ucs_status_string(status));
    }
}

static void progress(double *since)
{
    if (0 != ucp_worker_progress(raw.worker)) {
        *since = 0;
    } else {
        netway_idle(since);
    }
}

static void fetched(void *request, ucs_status_t status, size_t length, void *arg)
{
    (void) arg;
    need(status, "a message");
    raw.bytes = length;
    raw.landed++;
    ucp_request_free(request);
}

static ucs_status_t arrive(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
                           const ucp_am_recv_param_t *param)
{
    const ucp_request_param_t fetch = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                       .cb.recv_am = fetched};
    (void) arg;
    (void) header;
    (void) header_bytes;
    if (bytes > NETWAY_BYTES_MAX) {
        bench_die("a message of %zu bytes", bytes);
    }
    if (0 != (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        void *request = ucp_am_recv_data_nbx(raw.worker, data, raw.landing, bytes, &fetch);
        if (UCS_PTR_IS_ERR(request)) {
            need(UCS_PTR_STATUS(request), "a message");
        }
        return UCS_INPROGRESS;
    }
    memcpy(raw.landing, data, bytes);
    raw.bytes = bytes;
    raw.landed++;
    return UCS_OK;
}

static void open_way(const char *devices)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_CB,
        .id = AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = arrive};
    ucp_config_t *config;

    if (NULL == (raw.landing = malloc(NETWAY_BYTES_MAX))) {
        bench_die("out of memory");
    }
    memset(raw.landing, 0, NETWAY_BYTES_MAX); /* pages are there before anything is timed */
    need(ucp_config_read("GPUSYM", NULL, &config), "GPUSYM_UCX_... in the environment");
    if (NULL != devices) {
        need(ucp_config_modify(config, "NET_DEVICES", devices), "devices");
    }
    need(ucp_init(&params, config, &raw.context), "no context");
    ucp_config_release(config);
    need(ucp_worker_create(raw.context, &worker, &raw.worker), "no worker");
    need(ucp_worker_set_am_recv_handler(raw.worker, &handler), "no handler");
    need(ucp_worker_get_address(raw.worker, &raw.address, &raw.address_bytes), "no address");
}

static void close_way(void)
{
    ucp_worker_release_address(raw.worker, raw.address);
    ucp_worker_destroy(raw.worker);
    ucp_cleanup(raw.context);
    free(raw.landing);
}

static const void *address(size_t *bytes)
{
    *bytes = raw.address_bytes;
    return raw.address;
}

static void connect_way(const void *to, size_t bytes, bool inside, bool lower)
{
    const ucp_ep_params_t params = {.field_mask =
                                        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                                    .address = to,
                                    .err_mode = inside ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER};
    (void) bytes;
    (void) lower;
    need(ucp_ep_create(raw.worker, &params, &raw.ep), "no way to the other process");
}

/* Waits for the oldest sends of those that have this slot. */
static void end_send(unsigned slot)
{
    double since = 0;

    if (NULL == raw.request[slot]) {
        return;
    }
    while (UCS_INPROGRESS == ucp_request_check_status(raw.request[slot])) {
        progress(&since);
    }
    need(ucp_request_check_status(raw.request[slot]), "a send");
    ucp_request_free(raw.request[slot]);
    raw.request[slot] = NULL;
}

static void flush(void)
{
    for (unsigned i = 0; i < UNDER_WAY; i++) {
        end_send(i);
    }
}

static void move_on(void)
{
    (void) ucp_worker_progress(raw.worker);
}

static void disconnect(void)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    double since = 0;

    flush();
    void *request = ucp_ep_close_nbx(raw.ep, &param);
    if (UCS_PTR_IS_PTR(request)) {
        while (UCS_INPROGRESS == ucp_request_check_status(request)) {
            progress(&since);
        }
        ucp_request_free(request);
    }
}

static void send_message(const unsigned char *data, size_t bytes)
{
    static const char header[8];
    const ucp_request_param_t param = {.op_attr_mask = 0};
    const unsigned slot = raw.next++ % UNDER_WAY;

    end_send(slot);
    void *request = ucp_am_send_nbx(raw.ep, AM_ID, header, sizeof header, data, bytes, &param);
    if (UCS_PTR_IS_ERR(request)) {
        need(UCS_PTR_STATUS(request), "a send");
    }
    raw.request[slot] = request;
}

static bool receive(size_t bytes, bool check, unsigned salt)
{
    double since = 0;

    while (raw.landed == raw.received) {
        progress(&since);
    }
    raw.received++;
    return !check || (bytes == raw.bytes && netway_right(raw.landing, 0, bytes, salt));
}

/* What arrives lands while the send is under way. */
static bool exchange(const unsigned char *data, size_t bytes, bool check, unsigned salt)
{
    send_message(data, bytes);
    return receive(bytes, check, salt);
}

static void describe(char *text, size_t size)
{
    snprintf(text, size, "UCX %s", ucp_get_version_string());
}

const netway_t netway_ucx = {"UCX",      open_way,     close_way, address, connect_way, move_on,
                             disconnect, send_message, flush,     receive, exchange,    describe};
