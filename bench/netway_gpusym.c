/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym's streams as a way of gpusym_netperf: a message is cut into pieces, which are checked where they land.
 */
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>

#include "bench/netways.h"
#include "bench/ranks.h"
#include "mca/common/gpusym/net/stream.h"

/* As the four channels of a communicator have together, by default. Each piece takes two buffers, as on rings. */
enum { PIECES = 8, PIECE = 256 << 10, BUFFERS = 2 * PIECES, BUFFER = PIECE / 2 };
#define IDLE_S 60.0   /* without any progress */
#define IDLE_CALLS 64 /* of netway_idle: the clock and sched_yield cost more than an idle progress in shared memory */

static struct {
    const gpusym_transport_t *transport;
    gpusym_net_streams_t *streams;
    gpusym_net_peer_t *peer;
    gpusym_net_stream_t *stream;
    gpusym_net_message_t message[PIECES];
    unsigned next; /* message */
    void *memory;
    bool closing; /* the other process may close first, which looks like a loss */
} way;

void netway_fill(unsigned char *data, size_t bytes, unsigned salt)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char) (salt + i + (i >> 8) * 7);
    }
}

bool netway_right(const unsigned char *data, size_t offset, size_t bytes, unsigned salt)
{
    for (size_t i = 0; i < bytes; i++) {
        const size_t at = offset + i;
        if (data[i] != (unsigned char) (salt + at + (at >> 8) * 7)) {
            return false;
        }
    }
    return true;
}

void netway_idle(double *since)
{
    static unsigned calls;

    if (0 != ++calls % IDLE_CALLS) {
        return;
    }
    const double now = MPI_Wtime();
    if (0 == *since) {
        *since = now;
    } else if (now - *since > IDLE_S) {
        bench_die("no data for %.0f s: check that the other process runs, and that no firewall is in the way", IDLE_S);
    }
    sched_yield();
}

static void progress(double *since)
{
    if (gpusym_net_streams_progress(way.streams)) {
        *since = 0;
    } else {
        netway_idle(since);
    }
}

static void lost(void *arg, void *owner, const char *why)
{
    (void) arg;
    (void) owner;
    if (!way.closing) {
        bench_die("the other process is lost: %s", why);
    }
}

static void open_way(const char *devices)
{
    const char *why = "";

    if (NULL == (way.transport = gpusym_transport_ucx(&why))) {
        bench_die("%s", why);
    }
    if (0 != posix_memalign(&way.memory, 4096, (size_t) PIECES * PIECE)) {
        bench_die("out of memory");
    }
    const gpusym_net_streams_params_t params = {.transport = way.transport,
                                                .devices.only = devices,
                                                .piece_bytes = PIECE,
                                                .memory = way.memory,
                                                .bytes = (uint64_t) PIECES * PIECE,
                                                .lost = lost};
    if (GPUSYM_SUCCESS != gpusym_net_streams_open(&params, &way.streams, &why)) {
        bench_die("%s", why);
    }
}

static void close_way(void)
{
    gpusym_net_streams_close(way.streams);
    free(way.memory);
}

static const void *address(size_t *bytes)
{
    return way.transport->address(gpusym_net_streams_net(way.streams), bytes);
}

static void connect_way(const void *to, size_t bytes, bool inside, bool lower)
{
    gpusym_net_stream_params_t params = {.token_in = lower ? 1 : 2,
                                         .token_out = lower ? 2 : 1,
                                         .pieces_in = BUFFERS,
                                         .pieces_out = BUFFERS,
                                         .bytes_in = BUFFER,
                                         .bytes_out = BUFFER};
    double since = 0;

    if (GPUSYM_SUCCESS !=
        way.transport->peer_open(gpusym_net_streams_net(way.streams), to, bytes, inside, NULL, &way.peer)) {
        bench_die("UCX cannot reach the other process; UCX_LOG_LEVEL=info prints more");
    }
    params.peer = way.peer;
    way.closing = false;
    if (GPUSYM_SUCCESS != gpusym_net_stream_open(way.streams, &params, &way.stream)) {
        bench_die("no stream");
    }
    for (unsigned i = 0; i < PIECES; i++) {
        way.message[i].sent = 1;
    }
    while (0 == gpusym_net_stream_room(way.stream)) {
        progress(&since);
    }
}

static void move_on(void)
{
    (void) gpusym_net_streams_progress(way.streams);
}

static void disconnect(void)
{
    double since = 0;

    way.closing = true;
    while (!gpusym_net_stream_close(way.stream)) {
        progress(&since);
    }
    way.transport->peer_close(way.peer);
}

/* Sends the piece of a message that begins at *at, if it can be sent now. Returns whether it was. */
static bool send_piece(const unsigned char *data, size_t bytes, size_t *at)
{
    gpusym_net_message_t *message = &way.message[way.next % PIECES];
    const size_t piece = bytes - *at < PIECE ? bytes - *at : PIECE;

    if (*at == bytes || 1 != message->sent || 0 == gpusym_net_stream_room_for(way.stream, (uint32_t) piece)) {
        return false;
    }
    const int rc = gpusym_net_stream_send(way.stream, message, data + *at, (uint32_t) piece);
    if (GPUSYM_ERR_NO_MEMORY == rc) {
        return false;
    }
    if (GPUSYM_SUCCESS != rc) {
        bench_die("a message cannot be sent");
    }
    way.next++;
    *at += piece;
    return true;
}

/* Reads the piece of a message that begins at *at, if it is there. Returns whether it was. */
static bool read_piece(size_t bytes, size_t *at, bool check, unsigned salt, bool *right)
{
    const gpusym_net_head_t *head;
    const void *data;

    if (*at == bytes || !gpusym_net_stream_read(way.stream, &head, &data)) {
        return false;
    }
    if (0 == head->bytes) {
        bench_die("an empty piece");
    }
    *right = *right && (!check || netway_right(data, *at, head->bytes, salt));
    *at += head->bytes;
    gpusym_net_stream_release(way.stream, 1);
    return true;
}

static void send_message(const unsigned char *data, size_t bytes)
{
    size_t at = 0;
    double since = 0;

    while (at < bytes) {
        if (!send_piece(data, bytes, &at)) {
            progress(&since);
        }
    }
}

static void flush(void)
{
    double since = 0;

    for (unsigned i = 0; i < PIECES; i++) {
        while (1 != way.message[i].sent) {
            progress(&since);
        }
    }
}

static bool receive(size_t bytes, bool check, unsigned salt)
{
    size_t at = 0;
    double since = 0;
    bool right = true;

    while (at < bytes) {
        if (!read_piece(bytes, &at, check, salt, &right)) {
            progress(&since);
        }
    }
    return right;
}

static bool exchange(const unsigned char *data, size_t bytes, bool check, unsigned salt)
{
    size_t sent = 0, got = 0;
    double since = 0;
    bool right = true;

    while (sent < bytes || got < bytes) {
        const bool one = send_piece(data, bytes, &sent);
        if (!read_piece(bytes, &got, check, salt, &right) && !one) {
            progress(&since);
        }
    }
    return right;
}

static void describe(char *text, size_t size)
{
    way.transport->describe(way.peer, text, size);
}

const netway_t netway_gpusym = {"gpusym",   open_way,     close_way, address, connect_way, move_on,
                                disconnect, send_message, flush,     receive, exchange,    describe};
