/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The hosts in a time of their own: see model.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "test/scale/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mca/common/gpusym/exec/copier.h"
#include "mca/common/gpusym/rail/rail.h"

/* Address space of a host: rings for streams to so many others. Nearly nothing is written there. */
#define RINGS_PEERS 34u

/* The copier of a GPU, once it has been launched. */
typedef struct {
    const uint64_t *doorbell; /* NULL: there is none */
    uint64_t *done;
    uint32_t seq;         /* of its last command */
    double waits_ns;      /* for an answer, at most */
    gpusym_exchange_t *x; /* the exchange under way; NULL: none */
    uint32_t says;        /* of it: GPUSYM_EXCHANGE_COMMAND */
    bool answered;        /* the answer is on its way to the outputs, or comes too late */
} copier_t;

typedef struct {
    gpusym_net_params_t net; /* of the streams */
    gpusym_net_streams_t *streams;
    gpusym_rail_t *rail;
    gpusym_net_peer_t **peer; /* [hosts] */
    char *memory;
    double egress, ingress; /* when the interface, each way, is free ... */
    double up, down;        /* ... and the GPU's bus, from it and to it */
    double sent;            /* bytes in this call */
    double ended_at;
    bool ended;
    gpusym_net_counters_t counters;
    copier_t copier;
} host_t;

struct gpusym_net_peer {
    uint32_t from, to;
};

/* What will happen. */
enum { ARRIVES, LANDS, SENT, KERNEL, LINES, LATE };
typedef struct {
    double at;
    uint64_t order; /* of events at one time: as they were made */
    uint32_t what, host;
    gpusym_net_head_t head;   /* ARRIVES, LANDS */
    uint32_t *sent;           /* SENT */
    uint64_t *done, done_seq; /* KERNEL; LINES, LATE: done_seq */
} event_t;

static struct {
    scale_net_t net;
    uint32_t n;
    host_t *host;
    double now;
    event_t *heap;
    size_t events, room;
    uint64_t made;
    size_t memory; /* bytes of a host */
} world;

static void die(const char *what)
{
    fprintf(stderr, "scale: %s\n", what);
    exit(1);
}

/* ---- events: a binary heap ---- */

static bool is_before(const event_t *a, const event_t *b)
{
    return a->at < b->at || (!(a->at > b->at) && a->order < b->order);
}

static void swap_events(size_t a, size_t b)
{
    const event_t e = world.heap[a];
    world.heap[a] = world.heap[b];
    world.heap[b] = e;
}

static void add_event(event_t e)
{
    if (world.events == world.room) {
        world.room = 0 == world.room ? 1024 : 2 * world.room;
        world.heap = realloc(world.heap, world.room * sizeof *world.heap);
        if (NULL == world.heap) {
            die("out of memory");
        }
    }
    size_t i = world.events++;
    e.order = world.made++;
    world.heap[i] = e;
    for (; i > 0 && is_before(&world.heap[i], &world.heap[(i - 1) / 2]); i = (i - 1) / 2) {
        swap_events(i, (i - 1) / 2);
    }
}

static event_t take_event(void)
{
    const event_t first = world.heap[0];
    world.heap[0] = world.heap[--world.events];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t c = 2 * i + 1; c <= 2 * i + 2 && c < world.events; c++) {
            least = is_before(&world.heap[c], &world.heap[least]) ? c : least;
        }
        if (least == i) {
            return first;
        }
        swap_events(i, least);
        i = least;
    }
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* ---- the net: a net is its host ---- */

static int open_net(const gpusym_net_params_t *params, gpusym_net_t **net, const char **why)
{
    uint32_t i = 0;
    (void) why;
    while (NULL != world.host[i].net.user.place) {
        i++; /* they are opened in their order */
    }
    world.host[i].net = *params;
    *net = (gpusym_net_t *) (void *) &world.host[i];
    return GPUSYM_SUCCESS;
}

static void close_net(gpusym_net_t *net)
{
    (void) net;
}

static int send_message(gpusym_net_peer_t *peer, const gpusym_net_head_t *head, const void *data, uint32_t *sent)
{
    host_t *from = &world.host[peer->from];
    const double bytes = sizeof *head + (double) head->bytes;
    const double begins = later(world.now, from->egress) + world.net.overhead;
    (void) data;
    from->egress = begins + bytes / world.net.wire_gbs;
    from->sent += bytes;
    add_event((event_t){.at = from->egress, .what = SENT, .host = peer->from, .sent = sent});
    add_event((event_t){.at = begins + world.net.latency, .what = ARRIVES, .host = peer->to, .head = *head});
    return GPUSYM_SUCCESS;
}

static bool progress_net(gpusym_net_t *net)
{
    (void) net;
    return false;
}

static const gpusym_transport_t transport = {
    .name = "model", .open = open_net, .close = close_net, .send = send_message, .progress = progress_net};

/* ---- the GPUs: a GPU is its host ---- */

struct gpusym_stream {
    host_t *host;
    double free; /* when its last kernel has ended */
};

static int create_stream(gpusym_gpu_t *gpu, gpusym_stream_t **stream)
{
    *stream = malloc(sizeof **stream);
    if (NULL == *stream) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    **stream = (gpusym_stream_t){(host_t *) (void *) gpu, 0};
    return GPUSYM_SUCCESS;
}

static void destroy_stream(gpusym_stream_t *stream)
{
    free(stream);
}

static int poll_stream(gpusym_stream_t *stream)
{
    return stream->free <= world.now;
}

static bool is_pinned(const host_t *host, const void *p)
{
    return (const char *) p >= host->memory && (const char *) p < host->memory + world.memory;
}

static uint32_t number_of(const host_t *host)
{
    return (uint32_t) (host - world.host);
}

static void end_command(host_t *host, double at)
{
    add_event((event_t){.at = at,
                        .what = KERNEL,
                        .host = number_of(host),
                        .done = host->copier.done,
                        .done_seq = (uint64_t) host->copier.seq << 32});
}

static double exchange_half(uint32_t says)
{
    return world.net.exchange / 2 + (says & 0x3ffu) / world.net.exchange_gbs / 2;
}

/* Begins the command of the copier's number: does is of GPUSYM_COPY_.... */
static void begin_command(host_t *host, uint32_t does, void *out, uint32_t bytes, double at)
{
    copier_t *c = &host->copier;
    if (GPUSYM_COPY_EXCHANGES != (does & GPUSYM_COPY_EXCHANGES)) {
        end_command(host, at + world.net.copy + bytes / world.net.copy_gbs);
        return;
    }
    c->x = out;
    c->says = bytes;
    c->answered = false;
    add_event((event_t){.at = at + exchange_half(bytes), .what = LINES, .host = number_of(host), .done_seq = c->seq});
    add_event((event_t){.at = at + c->waits_ns, .what = LATE, .host = number_of(host), .done_seq = c->seq});
}

static void launch_copier(host_t *host, const gpusym_work_t *w)
{
    host->copier = (copier_t){.doorbell = w->doorbell, .done = w->done, .seq = w->done_seq, .waits_ns = w->enter_ns};
    begin_command(host, w->run[0].does, w->run[0].out, w->run[0].bytes, world.now + world.net.launch);
}

/* A line that carries no data. */
static void mark_line(gpusym_ll_line_t *line, uint32_t number)
{
    line->half[0] = line->half[1] = (uint64_t) number << 32;
}

static uint32_t lines_of(uint32_t says)
{
    return 2 * (((says & 0x3ffu) + GPUSYM_PACK - 1) / GPUSYM_PACK);
}

static void send_inputs(copier_t *c)
{
    const uint32_t lines = (1 + (c->says >> 10 & 7u)) * lines_of(c->says);
    for (uint32_t i = 0; i < lines; i++) {
        mark_line(&c->x->sent[i], c->seq);
    }
}

/* What the CPU has written for the copier: an answer, a command. */
static void look_at_host(host_t *host)
{
    copier_t *c = &host->copier;
    if (NULL == c->doorbell) {
        return;
    }
    if (NULL != c->x && !c->answered) {
        const gpusym_ll_line_t *last = &c->x->answer[lines_of(c->says) - 1];
        c->answered = last->half[0] >> 32 == c->seq && last->half[1] >> 32 == c->seq;
        if (c->answered) {
            end_command(host, world.now + exchange_half(c->says));
        }
    }
    const uint64_t in = c->doorbell[0], out = c->doorbell[1];
    if ((in & GPUSYM_COMMAND_NUMBER_AGAIN) == (out & GPUSYM_COMMAND_NUMBER_AGAIN) &&
        (in & GPUSYM_COMMAND_NUMBER) == ((c->seq + 1) & GPUSYM_COMMAND_NUMBER)) {
        const uint32_t bytes = (uint32_t) ((in >> 8 & 0xffu) | (out & 0xff00u) | (out << 12 & 0x30000u));
        c->seq++;
        c->x = NULL;
        if (0 == bytes) {
            c->doorbell = NULL; /* it retires */
        } else {
            begin_command(host, (uint32_t) ((in >> 6 & 3u) | (out >> 4 & 12u)), (void *) (uintptr_t) (out >> 16), bytes,
                          world.now);
        }
    }
}

/* Kernels of several streams run side by side, and share the bus. */
static int launch_kernel(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    host_t *host = stream->host;
    const double begins = later(world.now + world.net.launch, stream->free);
    const double takes = (double) w->job[0].bytes / world.net.kernel_gbs;
    double ends = begins;
    if (GPUSYM_F_COPY == kernel) {
        launch_copier(host, w);
        return GPUSYM_SUCCESS;
    }
    for (uint32_t i = 0; i < w->nranks; i++) {
        if (is_pinned(host, w->peer_in[i])) {
            ends = later(ends, host->down = later(begins, host->down) + takes);
        }
        if (is_pinned(host, w->peer_out[i])) {
            ends = later(ends, host->up = later(begins, host->up) + takes);
        }
    }
    stream->free = ends;
    add_event((event_t){.at = ends + world.net.kernel,
                        .what = KERNEL,
                        .host = (uint32_t) (host - world.host),
                        .done = w->done,
                        .done_seq = (uint64_t) w->done_seq << 32});
    return GPUSYM_SUCCESS;
}

static int allocate(gpusym_gpu_t *gpu, size_t size, void **p)
{
    (void) gpu;
    *p = calloc(1, size);
    return NULL != *p ? GPUSYM_SUCCESS : GPUSYM_ERR_NO_MEMORY;
}

static int free_memory(gpusym_gpu_t *gpu, void *p)
{
    (void) gpu;
    free(p);
    return GPUSYM_SUCCESS;
}

static int allocate_pinned(gpusym_gpu_t *gpu, size_t size, void **host, void **device)
{
    const int rc = allocate(gpu, (size + 63) / 64 * 64, host);
    *device = *host;
    return rc;
}

static int zero(gpusym_gpu_t *gpu, void *p, size_t size)
{
    (void) gpu;
    memset(p, 0, size);
    return GPUSYM_SUCCESS;
}

static bool is_alive(gpusym_gpu_t *gpu)
{
    (void) gpu;
    return true;
}

static int load_kernels(gpusym_gpu_t *gpu, const char **why)
{
    (void) gpu;
    (void) why;
    return GPUSYM_SUCCESS;
}

static void describe_gpu(gpusym_gpu_t *gpu, gpusym_gpu_info_t *info)
{
    (void) gpu;
    memset(info, 0, sizeof *info);
    info->sm_count = 132;
}

static const gpusym_device_t device = {.name = "model",
                                       .gpu_alive = is_alive,
                                       .gpu_info = describe_gpu,
                                       .mem_alloc = allocate,
                                       .mem_free = free_memory,
                                       .mem_zero = zero,
                                       .host_alloc = allocate_pinned,
                                       .host_free = free_memory,
                                       .stream_create = create_stream,
                                       .stream_destroy = destroy_stream,
                                       .stream_poll = poll_stream,
                                       .kernels_load = load_kernels,
                                       .launch = launch_kernel};

/* ---- hosts ---- */

static void lose(void *arg, void *owner, const char *why)
{
    (void) arg;
    (void) owner;
    die(why);
}

static int find_peer(void *arg, uint32_t pos, gpusym_rail_peer_t *peer)
{
    host_t *host = arg;
    const uint32_t me = (uint32_t) (host - world.host);
    if (NULL == host->peer[pos]) {
        host->peer[pos] = malloc(sizeof *host->peer[pos]);
        if (NULL == host->peer[pos]) {
            return GPUSYM_ERR_NO_MEMORY;
        }
        *host->peer[pos] = (gpusym_net_peer_t){me, pos};
    }
    *peer = (gpusym_rail_peer_t){.net = host->peer[pos],
                                 .token_in = 1 + (uint64_t) pos * world.n + me,
                                 .token_out = 1 + (uint64_t) me * world.n + pos};
    return GPUSYM_SUCCESS;
}

static void open_host(uint32_t i)
{
    host_t *host = &world.host[i];
    const uint64_t rings = RINGS_PEERS * GPUSYM_RAIL_RING_BYTES(world.net.piece_bytes);
    const char *why = "";
    world.memory = rings + GPUSYM_RAIL_SEND_BYTES(world.net.piece_bytes);
    host->peer = calloc(world.n, sizeof(gpusym_net_peer_t *));
    host->memory = mmap(NULL, world.memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (NULL == host->peer || MAP_FAILED == (void *) host->memory) {
        die("out of memory");
    }
    const gpusym_net_streams_params_t net = {.transport = &transport,
                                             .piece_bytes = GPUSYM_RAIL_LONG_BYTES(world.net.piece_bytes),
                                             .memory = host->memory,
                                             .bytes = rings,
                                             .lost = lose};
    if (GPUSYM_SUCCESS != gpusym_net_streams_open(&net, &host->streams, &why)) {
        die(why);
    }
    const gpusym_rail_params_t rail = {.dev = &device,
                                       .gpu = (gpusym_gpu_t *) (void *) host,
                                       .copier = world.net.copy > 0,
                                       .streams = host->streams,
                                       .host = host->memory,
                                       .device = host->memory,
                                       .send = host->memory + rings,
                                       .piece_bytes = world.net.piece_bytes,
                                       .n = world.n,
                                       .pos = i,
                                       .peer = find_peer,
                                       .arg = host};
    if (GPUSYM_SUCCESS != gpusym_rail_open(&rail, &host->rail)) {
        die("no rail");
    }
    if (rail.copier) {
        gpusym_copier_linger(&device, rail.gpu, UINT32_MAX, false);
    }
}

void scale_open(const scale_net_t *net, uint32_t hosts)
{
    memset(&world, 0, sizeof world);
    world.net = *net;
    world.n = hosts;
    world.host = calloc(hosts, sizeof *world.host);
    if (NULL == world.host) {
        die("out of memory");
    }
    for (uint32_t i = 0; i < hosts; i++) {
        open_host(i);
    }
}

void scale_close(void)
{
    for (uint32_t i = 0; i < world.n; i++) {
        host_t *host = &world.host[i];
        gpusym_net_streams_close(host->streams);
        gpusym_rail_free(host->rail);
        for (uint32_t p = 0; p < world.n; p++) {
            free(host->peer[p]);
        }
        free(host->peer);
        (void) munmap(host->memory, world.memory);
    }
    gpusym_copiers_close();
    gpusym_lanes_close();
    free(world.host);
    free(world.heap);
}

/* ---- time ---- */

/* Lets a host do what it can now. */
static void poll_host(host_t *host)
{
    bool moved;
    do {
        if (!host->ended) {
            const int rc = gpusym_rail_poll(host->rail);
            if (rc < 0) {
                die("a call has failed");
            }
            host->ended = 1 == rc;
            host->ended_at = world.now;
        }
        moved = gpusym_net_streams_progress(host->streams);
    } while (moved);
    look_at_host(host);
}

/* The copier gives up an exchange whose answer has not come, so many ns after its command. */
static void end_wait(host_t *host, uint64_t seq)
{
    copier_t *c = &host->copier;
    if (NULL != c->x && seq == c->seq && !c->answered) {
        mark_line(&c->x->late, c->seq);
        c->answered = true;
        end_command(host, world.now + world.net.exchange / 2);
    }
}

static void happen(const event_t *e)
{
    host_t *host = &world.host[e->host];
    world.now = e->at;
    if (ARRIVES == e->what) { /* its first byte: behind what else comes in there */
        event_t lands = *e;
        lands.what = LANDS;
        lands.at = host->ingress =
            later(world.now, host->ingress) + (sizeof e->head + (double) e->head.bytes) / world.net.wire_gbs;
        add_event(lands);
        return;
    }
    if (SENT == e->what) {
        *e->sent = 1;
    } else if (KERNEL == e->what) {
        *e->done = e->done_seq;
    } else if (LINES == e->what) {
        if (NULL != host->copier.x && e->done_seq == host->copier.seq) {
            send_inputs(&host->copier);
        }
    } else if (LATE == e->what) {
        end_wait(host, e->done_seq);
    } else if (NULL != host->net.user.place(host->net.user.arg, &e->head)) {
        host->net.user.landed(host->net.user.arg, &e->head, true);
    }
    poll_host(host);
}

double scale_run(const gpusym_rail_call_t *call)
{
    const double begin = world.now;
    double end = begin;
    world.made = 0;
    for (uint32_t i = 0; i < world.n; i++) {
        world.host[i].ended = false;
        world.host[i].sent = 0;
        if (GPUSYM_SUCCESS != gpusym_rail_start(world.host[i].rail, call)) {
            die("a call cannot be started");
        }
    }
    for (uint32_t i = 0; i < world.n; i++) {
        poll_host(&world.host[i]);
    }
    while (0 != world.events) {
        const event_t e = take_event();
        happen(&e);
    }
    for (uint32_t i = 0; i < world.n; i++) {
        if (!world.host[i].ended) {
            return -1;
        }
        end = later(end, world.host[i].ended_at);
    }
    return end - begin;
}

double scale_sent(void)
{
    double most = 0;
    for (uint32_t i = 0; i < world.n; i++) {
        most = later(most, world.host[i].sent);
    }
    return most;
}

uint64_t scale_events(void)
{
    return world.made;
}
