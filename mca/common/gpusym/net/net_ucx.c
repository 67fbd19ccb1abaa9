/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * UCX as a transport: active messages, and nothing else.  A library of its own, which is opened at first need, so that
 * a machine without UCX still loads the rest.
 *
 * UCX's other operations do not fit.  A put needs a flush or a fence before its flag, both of which may wait, and UCX's
 * TCP executes every put that arrives, wherever it points to.  Tags are slower.
 *
 * How a message goes depends on the lanes to the peer.  UCX puts an eager message that its transport carries in several
 * fragments together in memory that it allocates for it, from where it is copied once more: that halves the bandwidth.
 * Through shared memory all but short messages go by rendezvous, which copies the fragments to where they belong.  By
 * TCP that costs system calls, and on a slow wire a round trip: there messages go eager, and should be no longer than a
 * fragment (part_bytes).  Where a lane has RDMA, UCX chooses.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/net/net.h"

#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/log.h"

#if UCP_API_VERSION < UCP_VERSION(1, 13)
#error "UCX is older than 1.13"
#endif

/* The active message that all of ours are. Others on the same worker there are none. */
enum { AM_ID = 1 };
/* How long close() waits for peers of this host that may have ended. */
#define CLOSE_NS 100000000u
/* A fragment of UCX's TCP has 64 KiB, with all headers. */
#define TCP_PART_BYTES ((64u << 10) - 256u)
/* Longer messages through shared memory go by rendezvous; shorter ones would be later by its round trip. */
#define SHARED_EAGER_BYTES (64u << 10)

/* A message that lands by rendezvous: UCX writes it, from place() to landed(). */
typedef struct landing landing_t;
struct landing {
    landing_t *next, *prev;
    gpusym_net_t *net;
    gpusym_net_head_t head;
};

struct gpusym_net_peer {
    gpusym_net_peer_t *next, *prev; /* in the list of peers, or of those that are closing */
    gpusym_net_t *net;
    ucp_ep_h ep;
    void *request; /* of its closing */
    void *owner;
    bool inside, lost;
    uint32_t eager_bytes; /* messages of up to so many bytes go eager, longer ones as `longer` says */
    uint32_t longer;      /* UCP_AM_SEND_FLAG_RNDV; 0: UCX chooses */
    uint32_t part_bytes;
    char way[96];
};

struct gpusym_net {
    gpusym_net_user_t user;
    gpusym_net_counters_t counters;
    uint32_t bytes_max;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    bool advised; /* it has the devices that it was advised to use */
    gpusym_net_peer_t *peers, *closing;
    landing_t *landings;
    unsigned unfinished; /* messages whose request UCX has */
};

static char open_error[256];

/* ---- what arrives ---- */

static void count_landed(gpusym_net_t *net, const gpusym_net_head_t *head, bool whole)
{
    net->counters.landed += whole ? 1 : 0;
    net->counters.landed_bytes += whole ? head->bytes : 0;
    net->user.landed(net->user.arg, head, whole);
}

static void end_landing(landing_t *landing, bool whole)
{
    gpusym_net_t *net = landing->net;

    if (NULL != landing->prev) {
        landing->prev->next = landing->next;
    } else {
        net->landings = landing->next;
    }
    if (NULL != landing->next) {
        landing->next->prev = landing->prev;
    }
    count_landed(net, &landing->head, whole);
    free(landing);
}

static void landing_done(void *request, ucs_status_t status, size_t length, void *arg)
{
    landing_t *landing = arg;

    end_landing(landing, UCS_OK == status && length == landing->head.bytes);
    if (NULL != request) {
        ucp_request_free(request);
    }
}

/* A rendezvous: fetches the data. What has no memory to be noted in is dropped. */
static ucs_status_t fetch(gpusym_net_t *net, const gpusym_net_head_t *head, void *to, void *description)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = landing_done,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    landing_t *landing = malloc(sizeof *landing);

    if (NULL == landing) {
        gpusym_log_no_memory("a message that lands");
        count_landed(net, head, false);
        return UCS_OK;
    }
    *landing = (landing_t){.net = net, .head = *head, .next = net->landings};
    if (NULL != landing->next) {
        landing->next->prev = landing;
    }
    net->landings = landing;
    ucp_request_param_t with_user = param;
    with_user.user_data = landing;
    void *request = ucp_am_recv_data_nbx(net->worker, description, to, head->bytes, &with_user);
    if (UCS_PTR_IS_ERR(request)) {
        end_landing(landing, false);
        return UCS_OK;
    }
    return UCS_INPROGRESS;
}

static ucs_status_t arrive(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
                           const ucp_am_recv_param_t *param)
{
    gpusym_net_t *net = arg;
    gpusym_net_head_t head;
    void *to = NULL;

    if (gpusym_net_check(header, header_bytes, bytes, net->bytes_max, &head)) {
        to = net->user.place(net->user.arg, &head);
    }
    if (NULL == to) {
        net->counters.dropped++;
        return UCS_OK;
    }
    if (0 != (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        return fetch(net, &head, to, data);
    }
    memcpy(to, data, bytes);
    count_landed(net, &head, true);
    return UCS_OK;
}

/* ---- the devices of this host ---- */

typedef struct {
    void (*tell)(void *arg, const char *device, const char *way);
    void *arg;
} told_t;

static void tell_resources(uct_md_h md, const told_t *told)
{
    uct_tl_resource_desc_t *resource;
    unsigned n;

    if (UCS_OK != uct_md_query_tl_resources(md, &resource, &n)) {
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        if (UCT_DEVICE_TYPE_NET == resource[i].dev_type) {
            told->tell(told->arg, resource[i].dev_name, resource[i].tl_name);
        }
    }
    uct_release_tl_resource_list(resource);
}

/* only: a component's name; NULL: of any name. */
static void tell_component(uct_component_h component, const char *only, const told_t *told)
{
    uct_component_attr_t attr = {.field_mask =
                                     UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
    uct_md_config_t *config;
    uct_md_h md;

    if (UCS_OK != uct_component_query(component, &attr) || 0 == attr.md_resource_count ||
        (NULL != only && 0 != strcmp(attr.name, only))) {
        return;
    }
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = calloc(attr.md_resource_count, sizeof *attr.md_resources);
    if (NULL == attr.md_resources || UCS_OK != uct_component_query(component, &attr) ||
        UCS_OK != uct_md_config_read(component, NULL, NULL, &config)) {
        free(attr.md_resources);
        return;
    }
    for (unsigned i = 0; i < attr.md_resource_count; i++) {
        if (UCS_OK == uct_md_open(component, attr.md_resources[i].md_name, config, &md)) {
            tell_resources(md, told);
            uct_md_close(md);
        }
    }
    uct_config_release(config);
    free(attr.md_resources);
}

static void tell_components(const char *only, const told_t *told)
{
    uct_component_h *component;
    unsigned n;

    if (UCS_OK != uct_query_components(&component, &n)) {
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        tell_component(component[i], only, told);
    }
    uct_release_component_list(component);
}

static void ucx_devices(void (*tell)(void *arg, const char *device, const char *way), void *arg)
{
    const told_t told = {tell, arg};

    tell_components(NULL, &told);
}

/* ---- open and close ---- */

static int fail(const char *what, ucs_status_t status, const char **why)
{
    snprintf(open_error, sizeof open_error, "UCX: %s: %s", what, ucs_status_string(status));
    *why = open_error;
    return GPUSYM_ERR_NOT_AVAILABLE;
}

/* UCX's own description of something; the caller frees it. NULL: there is no memory. */
static char *described(const ucp_config_t *config, ucp_context_h context)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (NULL == f) {
        return NULL;
    }
    if (NULL != config) {
        ucp_config_print(config, f, NULL, UCS_CONFIG_PRINT_CONFIG);
    } else {
        ucp_context_print_info(context, f);
    }
    fclose(f);
    return text;
}

/* Whether the user has named devices to UCX: in the environment, or in a file of UCX's, which only the description of
 * the configuration shows. */
static bool user_has_named(const ucp_config_t *config)
{
    static const char name[] = "UCX_NET_DEVICES=", all[] = "all\n";
    char *text = described(config, NULL);
    const char *at = NULL != text ? strstr(text, name) : NULL;
    const bool named = NULL != at && 0 != strncmp(at + sizeof name - 1, all, sizeof all - 1);

    free(text);
    return named || NULL != getenv("UCX_NET_DEVICES") || NULL != getenv("GPUSYM_UCX_NET_DEVICES");
}

/* Whether the context has all devices of a list: its description has lines like
 *     #      resource 2  :  md 1  dev 2  flags -- tcp/eth0 */
static bool has_devices(ucp_context_h context, const char *devices)
{
    char *text = described(NULL, context), name[128];
    bool all = NULL != text;

    for (const char *at = devices; all && '\0' != *at; at += strspn(at, ",")) {
        const int length = (int) strcspn(at, ",");
        snprintf(name, sizeof name, "/%.*s\n", length, at);
        all = NULL != strstr(text, name);
        at += length;
    }
    free(text);
    return all;
}

static ucs_status_t init_context(gpusym_net_t *net, const ucp_config_t *config)
{
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME | UCP_PARAM_FIELD_REQUEST_SIZE,
        .features = UCP_FEATURE_AM,
        .name = "gpusym",
        .request_size = sizeof(gpusym_net_t *), /* of a message's: the net */
    };

    return ucp_init(&params, config, &net->context);
}

static bool has_names(const char *list)
{
    return NULL != list && '\0' != *list;
}

static bool has_name(const char *list, const char *name)
{
    for (const char *at = list; has_names(at); at += strspn(at, ",")) {
        const size_t length = strcspn(at, ",");
        if (strlen(name) == length && 0 == strncmp(at, name, length)) {
            return true;
        }
        at += length;
    }
    return false;
}

/* Devices for a context: a list, as it is written. */
typedef struct {
    FILE *f;
    char *list;
    size_t size;
    const gpusym_net_devices_t *advice;
} chosen_t;

static void choose_device(void *arg, const char *device, const char *way)
{
    chosen_t *c = arg;
    const bool chosen = 0 == strcmp(way, "tcp") ? !has_name(c->advice->astray, device) : !has_names(c->advice->nearest);

    fflush(c->f);
    if (chosen && !has_name(c->list, device)) { /* it has other ways */
        fprintf(c->f, "%s%s", 0 != c->size ? "," : "", device);
    }
}

/* Opens a context with the devices that are advised. With the nearest RDMA devices it has those of TCP too: hosts that
 * the former do not lead to are reached as ever. False: it has no such context. */
static bool open_advised(gpusym_net_t *net, const gpusym_net_devices_t *advice)
{
    chosen_t c = {.advice = advice};
    const told_t told = {choose_device, &c};
    const char *nearest = has_names(advice->nearest) ? advice->nearest : "";
    ucp_config_t *config;

    c.f = open_memstream(&c.list, &c.size);
    if (NULL == c.f) {
        return false;
    }
    fputs(nearest, c.f);
    tell_components(NULL, &told);
    fclose(c.f);
    if ('\0' == *c.list) {
        free(c.list);
        return false;
    }
    ucs_status_t status = ucp_config_read("GPUSYM", NULL, &config);
    if (UCS_OK == status) {
        (void) ucp_config_modify(config, "WARN_INVALID_CONFIG", "n"); /* the user has not asked for these devices */
        status = ucp_config_modify(config, "NET_DEVICES", c.list);
        status = UCS_OK == status ? init_context(net, config) : status;
        ucp_config_release(config);
    }
    free(c.list);
    if (UCS_OK == status && !has_devices(net->context, nearest)) {
        ucp_cleanup(net->context);
        net->context = NULL;
    }
    return NULL != net->context;
}

/* Advice is not followed: the user has said otherwise, or UCX cannot. */
static void tell_unheeded(const gpusym_net_devices_t *advice, bool user)
{
    if (has_names(advice->nearest)) {
        GPUSYM_LOG(2, "net: not with %s alone: %s", advice->nearest,
                   user ? "UCX_NET_DEVICES is set" : "UCX does not use them here");
    } else {
        GPUSYM_LOG(2, "net: not without %s: %s", advice->astray,
                   user ? "UCX_NET_DEVICES is set" : "UCX uses no others here");
    }
}

/* GPUSYM_UCX_... in the environment holds for this context alone, UCX_... for all of the process. */
static int open_context(gpusym_net_t *net, const gpusym_net_params_t *params, const char **why)
{
    const gpusym_net_devices_t *devices = &params->devices;
    const bool named = has_names(devices->only);
    const bool advised = !named && (has_names(devices->nearest) || has_names(devices->astray));
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read("GPUSYM", NULL, &config);

    if (UCS_OK != status) {
        return fail("GPUSYM_UCX_... in the environment", status, why);
    }
    if (named) {
        status = ucp_config_modify(config, "NET_DEVICES", devices->only);
    } else if (advised && user_has_named(config)) {
        tell_unheeded(devices, true);
    } else if (advised) {
        net->advised = open_advised(net, devices);
        if (!net->advised) {
            tell_unheeded(devices, false);
        }
    }
    if (UCS_OK == status && !net->advised) {
        status = init_context(net, config);
    }
    ucp_config_release(config);
    return UCS_OK == status ? GPUSYM_SUCCESS : fail("no context", status, why);
}

/* Whether UCX could send from and receive to memory of CUDA. */
static bool knows_cuda(ucp_context_h context)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

    return UCS_OK == ucp_context_query(context, &attr) && 0 != (attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA));
}

static int open_worker(gpusym_net_t *net, const char **why)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_am_handler_param_t handler = {.field_mask =
                                                UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                                                UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                            .id = AM_ID,
                                            .flags = UCP_AM_FLAG_WHOLE_MSG,
                                            .cb = arrive,
                                            .arg = net};
    ucs_status_t status = ucp_worker_create(net->context, &params, &net->worker);

    if (UCS_OK != status) {
        return fail("no worker", status, why);
    }
    status = ucp_worker_set_am_recv_handler(net->worker, &handler);
    if (UCS_OK == status) {
        status = ucp_worker_get_address(net->worker, &net->address, &net->address_bytes);
    }
    return UCS_OK == status ? GPUSYM_SUCCESS : fail("no address", status, why);
}

static void ucx_close(gpusym_net_t *net);

static int ucx_open(const gpusym_net_params_t *params, gpusym_net_t **net, const char **why)
{
    gpusym_net_t *n = calloc(1, sizeof *n);

    if (NULL == n) {
        *why = "out of host memory";
        return GPUSYM_ERR_NO_MEMORY;
    }
    n->user = params->user;
    n->bytes_max = params->bytes_max < GPUSYM_NET_BYTES_MAX ? params->bytes_max : GPUSYM_NET_BYTES_MAX;
    int rc = open_context(n, params, why);
    if (GPUSYM_SUCCESS == rc) {
        rc = open_worker(n, why);
    }
    if (GPUSYM_SUCCESS != rc) {
        GPUSYM_LOG(2, "no network between hosts: %s", *why);
        ucx_close(n);
        return rc;
    }
    const gpusym_net_devices_t *devices = &params->devices;
    const bool nearest = n->advised && has_names(devices->nearest), astray = n->advised && has_names(devices->astray);
    GPUSYM_LOG(2, "net: UCX %s, address of %zu bytes, devices: %s%s%s%s; CUDA memory: %s to UCX",
               ucp_get_version_string(), n->address_bytes,
               nearest                    ? devices->nearest
               : has_names(devices->only) ? devices->only
                                          : "all",
               nearest ? " and TCP" : "", astray ? " but " : "", astray ? devices->astray : "",
               knows_cuda(n->context) ? "known" : "not known");
    *net = n;
    return GPUSYM_SUCCESS;
}

static bool ucx_progress(gpusym_net_t *net)
{
    return 0 != ucp_worker_progress(net->worker);
}

static void ucx_peer_close(gpusym_net_peer_t *peer);

/* Closes all peers. Those that do not answer in time are given up: UCX forgets them with the worker, and would end the
 * process if it still had a request of ours. */
static void close_worker(gpusym_net_t *net)
{
    gpusym_net_peer_t *peer;

    while (NULL != net->peers) {
        ucx_peer_close(net->peers);
    }
    const uint64_t end = gpusym_now_ns() + CLOSE_NS;
    while (NULL != net->closing && gpusym_now_ns() < end) {
        ucp_worker_progress(net->worker);
    }
    for (peer = net->closing; NULL != peer; peer = peer->next) {
        ucp_request_free(peer->request); /* closed() is not called any more */
    }
    if (NULL != net->address) {
        ucp_worker_release_address(net->worker, net->address);
    }
    ucp_worker_destroy(net->worker);
    while (NULL != (peer = net->closing)) {
        net->closing = peer->next;
        free(peer);
    }
}

static void ucx_close(gpusym_net_t *net)
{
    if (NULL == net) {
        return;
    }
    if (NULL != net->worker) {
        close_worker(net);
    }
    while (NULL != net->landings) { /* of peers that neither ended nor answered */
        end_landing(net->landings, false);
    }
    /* UCX ends the process here if a rendezvous has not ended, whose memory it still counts as in use: a peer was lost
     * in the midst of it (1.18), or has not answered. What the context holds is left to the end of the process then. */
    if (NULL != net->context && 0 == net->counters.lost && 0 == net->unfinished) {
        ucp_cleanup(net->context);
    }
    free(net);
}

static const void *ucx_address(gpusym_net_t *net, size_t *bytes)
{
    *bytes = net->address_bytes;
    return net->address;
}

static const gpusym_net_counters_t *ucx_counters(gpusym_net_t *net)
{
    return &net->counters;
}

/* ---- peers ---- */

static void add_peer(gpusym_net_peer_t **list, gpusym_net_peer_t *peer)
{
    peer->prev = NULL;
    peer->next = *list;
    if (NULL != peer->next) {
        peer->next->prev = peer;
    }
    *list = peer;
}

static void remove_peer(gpusym_net_peer_t **list, gpusym_net_peer_t *peer)
{
    *(NULL != peer->prev ? &peer->prev->next : list) = peer->next;
    if (NULL != peer->next) {
        peer->next->prev = peer->prev;
    }
}

static void lose(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    gpusym_net_peer_t *peer = arg;

    (void) ep;
    if (peer->lost) {
        return;
    }
    peer->lost = true;
    peer->net->counters.lost++;
    peer->net->user.lost(peer->net->user.arg, peer->owner, ucs_status_string(status));
}

/* What kind a lane is of; the last one decides. */
typedef enum { LANE_SHARED, LANE_TCP, LANE_OTHER } lane_t;

static lane_t lane_of(const char *name)
{
    static const char *const shared[] = {"posix/", "sysv/", "self/", "mm/"};

    for (unsigned i = 0; i < sizeof shared / sizeof *shared; i++) {
        if (0 == strncmp(name, shared[i], strlen(shared[i]))) {
            return LANE_SHARED;
        }
    }
    return 0 == strncmp(name, "tcp/", strlen("tcp/")) ? LANE_TCP : LANE_OTHER;
}

static void choose_protocols(gpusym_net_peer_t *peer, lane_t kind)
{
    peer->eager_bytes = LANE_SHARED == kind ? SHARED_EAGER_BYTES : LANE_TCP == kind ? UINT32_MAX : 0;
    peer->longer = LANE_SHARED == kind ? UCP_AM_SEND_FLAG_RNDV : 0;
    peer->part_bytes = LANE_TCP == kind ? TCP_PART_BYTES : UINT32_MAX;
}

/* Reads the transports of an endpoint from UCX's own description of it, whose lanes look like
 *     #   lane[0]:  2:tcp/eth0.0 md[1]  -> ...
 * Other ways to learn them begin with 1.14. */
static void find_way(gpusym_net_peer_t *peer)
{
    char *text = NULL, *line, *rest, *name;
    size_t size = 0, used = 0;
    lane_t kind = LANE_SHARED;
    FILE *f = open_memstream(&text, &size);

    choose_protocols(peer, LANE_OTHER);
    if (NULL == f) {
        return;
    }
    ucp_ep_print_info(peer->ep, f);
    fclose(f);
    for (line = strtok_r(text, "\n", &rest); NULL != line; line = strtok_r(NULL, "\n", &rest)) {
        unsigned lane, resource;
        int at = 0;
        if (NULL == (name = strstr(line, "lane[")) || 2 != sscanf(name, "lane[%u]: %u:%n", &lane, &resource, &at) ||
            0 == at) {
            continue;
        }
        kind = lane_of(name + at) > kind ? lane_of(name + at) : kind;
        const int length = (int) strcspn(name + at, " .");
        if (used < sizeof peer->way) {
            used += (size_t) snprintf(peer->way + used, sizeof peer->way - used, "%s%.*s", 0 == used ? "" : " ", length,
                                      name + at);
        }
    }
    free(text);
    choose_protocols(peer, kind);
}

/* Errors are handled by UCX between hosts. Inside a host it would then refuse shared memory. */
static int ucx_peer_open(gpusym_net_t *net, const void *address, size_t bytes, bool inside, void *owner,
                         gpusym_net_peer_t **peer)
{
    gpusym_net_peer_t *p = calloc(1, sizeof *p);

    (void) bytes; /* UCX's addresses tell their own ends */
    if (NULL == p) {
        gpusym_log_no_memory("a peer on another host");
        return GPUSYM_ERR_NO_MEMORY;
    }
    *p = (gpusym_net_peer_t){.net = net, .owner = owner, .inside = inside};
    const ucp_ep_params_t params = {
        .field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = inside ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = lose, .arg = p},
    };
    const ucs_status_t status = ucp_ep_create(net->worker, &params, &p->ep);
    if (UCS_OK != status) {
        GPUSYM_LOG(2, "UCX cannot reach a peer: %s", ucs_status_string(status));
        free(p);
        return UCS_ERR_NO_MEMORY == status ? GPUSYM_ERR_NO_MEMORY : GPUSYM_ERR_UNREACHABLE;
    }
    find_way(p);
    add_peer(&net->peers, p);
    *peer = p;
    return GPUSYM_SUCCESS;
}

static void closed(void *request, ucs_status_t status, void *arg)
{
    gpusym_net_peer_t *peer = arg;

    (void) status;
    remove_peer(&peer->net->closing, peer);
    free(peer);
    ucp_request_free(request);
}

/* By force, where UCX handles errors: without, that is undefined. */
static void ucx_peer_close(gpusym_net_peer_t *peer)
{
    gpusym_net_t *net = peer->net;
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags = peer->inside ? 0 : UCP_EP_CLOSE_FLAG_FORCE,
        .cb.send = closed,
        .user_data = peer,
    };

    peer->lost = true; /* as of now nobody is told */
    remove_peer(&net->peers, peer);
    peer->request = ucp_ep_close_nbx(peer->ep, &param);
    if (UCS_PTR_IS_PTR(peer->request)) {
        add_peer(&net->closing, peer);
    } else {
        free(peer);
    }
}

static void ucx_describe(gpusym_net_peer_t *peer, char *text, size_t size)
{
    snprintf(text, size, "%s, %s", peer->way, UINT32_MAX == peer->eager_bytes ? "eager" : "eager or rendezvous");
}

static uint32_t ucx_part_bytes(gpusym_net_peer_t *peer)
{
    return peer->part_bytes;
}

/* ---- send ---- */

static void send_done(void *request, ucs_status_t status, void *arg)
{
    (void) status; /* of a peer that is lost: lost() tells that */
    __atomic_store_n((uint32_t *) arg, 1, __ATOMIC_RELEASE);
    (*(gpusym_net_t **) request)->unfinished--;
    ucp_request_free(request);
}

static int ucx_send(gpusym_net_peer_t *peer, const gpusym_net_head_t *head, const void *data, uint32_t *sent)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .flags = head->bytes <= peer->eager_bytes ? UCP_AM_SEND_FLAG_EAGER : peer->longer,
        .cb.send = send_done,
        .user_data = sent,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };

    if (peer->lost) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    void *request = ucp_am_send_nbx(peer->ep, AM_ID, head, sizeof *head, data, head->bytes, &param);
    if (UCS_PTR_IS_ERR(request)) {
        return UCS_ERR_NO_MEMORY == UCS_PTR_STATUS(request) ? GPUSYM_ERR_NO_MEMORY : GPUSYM_ERR_UNREACHABLE;
    }
    peer->net->counters.sent++;
    peer->net->counters.sent_bytes += head->bytes;
    if (NULL == request) {
        __atomic_store_n(sent, 1, __ATOMIC_RELEASE);
    } else { /* send_done() is called by a later progress */
        *(gpusym_net_t **) request = peer->net;
        peer->net->unfinished++;
    }
    return GPUSYM_SUCCESS;
}

__attribute__((visibility("default"))) const gpusym_transport_t gpusym_net_ucx = {
    .name = "ucx",
    .open = ucx_open,
    .close = ucx_close,
    .address = ucx_address,
    .peer_open = ucx_peer_open,
    .peer_close = ucx_peer_close,
    .send = ucx_send,
    .part_bytes = ucx_part_bytes,
    .progress = ucx_progress,
    .devices = ucx_devices,
    .describe = ucx_describe,
    .counters = ucx_counters,
};
