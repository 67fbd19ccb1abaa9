/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls by rails: see wire_rail.h.
 */
#include "bench/wire_rail.h"

#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "bench/output.h"
#include "bench/ranks.h"
#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/rail/rail.h"

enum { PIECE = 256 << 10, ADDRESS_MAX = 1024 };
#define IDLE_S 60.0 /* without an end of a call */
/* Up to here direct pieces are faster than a ring, which takes a step for each rank. */
#define DIRECT_MAX ((size_t) PIECE / 4)
/* From here on a chain, which sends every byte once from each, beats a tree. */
#define CHAIN_MIN ((size_t) 1 << 20)

typedef struct {
    uint32_t bytes;
    unsigned char address[ADDRESS_MAX];
} card_t;

static struct {
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu;
    const gpusym_transport_t *transport;
    gpusym_net_streams_t *streams;
    gpusym_rail_t *rail;
    gpusym_net_peer_t **peer; /* [ranks] */
    card_t *cards;            /* [ranks] */
    void *host;
    uint32_t calls;
    uint64_t part; /* bytes of a rank's block */
    bool closing;
} way;

static void lost(void *arg, void *owner, const char *why)
{
    (void) arg;
    (void) owner;
    if (!way.closing) {
        bench_die("a rank is lost: %s", why);
    }
}

static int find_peer(void *arg, uint32_t pos, gpusym_rail_peer_t *peer)
{
    const card_t *card = &way.cards[pos];
    (void) arg;
    if (NULL == way.peer[pos]) {
        const int rc = way.transport->peer_open(gpusym_net_streams_net(way.streams), card->address, card->bytes, false,
                                                NULL, &way.peer[pos]);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
    }
    *peer = (gpusym_rail_peer_t){.net = way.peer[pos],
                                 .token_in = 1 + (uint64_t) pos * (uint64_t) bench_ranks + (uint64_t) bench_rank,
                                 .token_out = 1 + (uint64_t) bench_rank * (uint64_t) bench_ranks + pos};
    return GPUSYM_SUCCESS;
}

static void open_device(const char *name)
{
    const char *why = "";
    way.dev = gpusym_device_select(0 == strcmp(name, "sim") ? GPUSYM_DEVICE_SIM : GPUSYM_DEVICE_CUDA, &why);
    if (NULL == way.dev || GPUSYM_SUCCESS != way.dev->gpu_open(NULL, &way.gpu) ||
        GPUSYM_SUCCESS != way.dev->kernels_load(way.gpu, &why)) {
        bench_die("rails require a GPU or the simulator: %s", why);
    }
}

static void tell_address(void)
{
    card_t mine = {0};
    size_t bytes;
    const void *address = way.transport->address(gpusym_net_streams_net(way.streams), &bytes);
    if (bytes > ADDRESS_MAX) {
        bench_die("an address of %zu bytes", bytes);
    }
    mine.bytes = (uint32_t) bytes;
    memcpy(mine.address, address, bytes);
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, way.cards, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
}

bool wire_rail_open(const char *device, const char *interface)
{
    const uint64_t send = GPUSYM_RAIL_SEND_BYTES(PIECE);
    const uint64_t rings = (uint64_t) bench_ranks * GPUSYM_RAIL_RING_BYTES(PIECE);
    const char *why = "";
    void *device_side;

    way.transport = gpusym_transport_ucx(&why);
    if (!bench_agree(NULL != way.transport)) {
        bench_comment("no rails here: %s", why);
        return false;
    }
    open_device(device);
    way.peer = calloc((size_t) bench_ranks, sizeof(gpusym_net_peer_t *));
    way.cards = calloc((size_t) bench_ranks, sizeof *way.cards);
    if (NULL == way.peer || NULL == way.cards ||
        GPUSYM_SUCCESS != way.dev->host_alloc(way.gpu, send + rings, &way.host, &device_side)) {
        bench_die("no memory");
    }
    const gpusym_net_streams_params_t net = {.transport = way.transport,
                                             .devices.only = interface,
                                             .piece_bytes = PIECE,
                                             .memory = way.host,
                                             .bytes = rings,
                                             .lost = lost};
    if (GPUSYM_SUCCESS != gpusym_net_streams_open(&net, &way.streams, &why)) {
        bench_die("%s", why);
    }
    tell_address();
    const gpusym_rail_params_t rail = {.dev = way.dev,
                                       .gpu = way.gpu,
                                       .streams = way.streams,
                                       .host = way.host,
                                       .device = device_side,
                                       .send = (char *) way.host + rings,
                                       .piece_bytes = PIECE,
                                       .n = (uint32_t) bench_ranks,
                                       .pos = (uint32_t) bench_rank,
                                       .peer = find_peer};
    if (GPUSYM_SUCCESS != gpusym_rail_open(&rail, &way.rail)) {
        bench_die("no rail");
    }
    return true;
}

/* A rank's block, as long as all are. */
static gpusym_rail_part_t block_of(const void *arg, uint32_t pos)
{
    (void) arg;
    return (gpusym_rail_part_t){pos * way.part, way.part};
}

static void describe_call(const bench_call_t *call, gpusym_rail_call_t *c)
{
    const char *name = bench_coll_name(call->what.coll);
    const size_t bytes = bench_coll_bytes(call->what.coll, call->what.count);
    way.part = bytes / (size_t) bench_ranks;
    *c = (gpusym_rail_call_t){.form = GPUSYM_RAIL_PATH,
                              .op = GPUSYM_OP_SUM,
                              .type = GPUSYM_T_F32,
                              .in = call->in,
                              .out = call->out,
                              .bytes = bytes,
                              .root = (uint32_t) bench_root(),
                              .part = block_of,
                              .from = block_of,
                              .call = ++way.calls};
    if (0 == strcmp(name, "allreduce")) {
        c->schedule = GS_RING_ALLREDUCE;
        c->spread = c->reduces = bytes <= DIRECT_MAX && bench_ranks <= 8;
        c->form = c->reduces ? GPUSYM_RAIL_DIRECT : GPUSYM_RAIL_PATH;
    } else if (0 == strcmp(name, "bcast")) {
        c->schedule = bytes < CHAIN_MIN ? GS_TREE_BCAST : GS_CHAIN_BCAST;
        c->in = call->out;
    } else if (0 == strcmp(name, "allgather") || 0 == strcmp(name, "reduce_scatter_block")) {
        c->schedule = 0 == strcmp(name, "allgather") ? GS_RING_ALLGATHER : GS_RING_REDUCE_SCATTER;
        c->bytes = way.part;
    } else if (0 == strcmp(name, "alltoall")) {
        c->form = GPUSYM_RAIL_DIRECT;
    } else {
        bench_die("rails do not support %s here", name);
    }
}

void wire_rail_call(const bench_call_t *call)
{
    const double begun = MPI_Wtime();
    gpusym_rail_call_t c;
    describe_call(call, &c);
    int rc = gpusym_rail_start(way.rail, &c);
    if (GPUSYM_SUCCESS == rc) {
        while (0 == (rc = gpusym_rail_poll(way.rail))) {
            if (!gpusym_net_streams_progress(way.streams)) {
                if (MPI_Wtime() - begun > IDLE_S) {
                    bench_die("a call has not ended in %.0f s", IDLE_S);
                }
                sched_yield();
            }
        }
    }
    if (1 != rc) {
        bench_die("a call has failed: error %d, %s", rc, way.dev->error());
    }
}

/* What UCX has taken may still lie in its buffers: only progress sends it. */
void wire_rail_settle(void)
{
    MPI_Request barrier;
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
    while (!done) {
        (void) gpusym_net_streams_progress(way.streams);
        MPI_Test(&barrier, &done, MPI_STATUS_IGNORE);
    }
}

void wire_rail_close(void)
{
    way.closing = true;
    while (!gpusym_rail_close(way.rail)) {
        (void) gpusym_net_streams_progress(way.streams);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    gpusym_net_streams_close(way.streams);
    (void) way.dev->host_free(way.gpu, way.host);
    free(way.cards);
    free(way.peer);
}
