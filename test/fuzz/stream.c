/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: what arrives for streams (net/stream.h) from a network: heads and data of any kind, those with the right token
 * among them.
 */
#include "mca/common/gpusym/net/stream.h"
#include "test/fuzz/fuzz.h"
#include "test/unit/net_fake.h"

enum { PIECES = 8, PIECE = 256, LONG = 2 * PIECE, MEMORY = 64 << 10, GUARD = 4096, STEPS = 40 };

static const uint64_t token[2] = {0x1122334455667788u, 0x99aabbccddeeff00u};

typedef struct {
    gpusym_net_streams_t *streams;
    gpusym_net_peer_t *peer;
    gpusym_net_stream_t *stream;
    unsigned char *memory;
} end_t;

static void on_note(void *arg, void *owner, const gpusym_net_head_t *head)
{
    MUST(arg == owner && GPUSYM_NET_NOTE == head->kind);
}

static void open_streams(end_t *e)
{
    const char *why;

    e->memory = aligned_alloc(4096, MEMORY + GUARD);
    MUST(NULL != e->memory);
    memset(e->memory + MEMORY, 0xdd, GUARD);
    const gpusym_net_streams_params_t params = {
        .transport = &net_fake, .piece_bytes = LONG, .memory = e->memory, .bytes = MEMORY, .arg = e, .note = on_note};
    MUST(GPUSYM_SUCCESS == gpusym_net_streams_open(&params, &e->streams, &why));
}

static void open_stream(end_t *e, end_t *other, unsigned i)
{
    size_t bytes;
    const void *address = net_fake.address(gpusym_net_streams_net(other->streams), &bytes);

    MUST(GPUSYM_SUCCESS == net_fake.peer_open(gpusym_net_streams_net(e->streams), address, bytes, false, e, &e->peer));
    const gpusym_net_stream_params_t params = {.peer = e->peer,
                                               .token_in = token[i],
                                               .token_out = token[1 - i],
                                               .channel = 3,
                                               .pieces_in = PIECES,
                                               .pieces_out = PIECES,
                                               .bytes_in = PIECE,
                                               .bytes_out = PIECE,
                                               .owner = e};
    MUST(GPUSYM_SUCCESS == gpusym_net_stream_open(e->streams, &params, &e->stream));
}

/* A message from an input: mostly with the fields of a right one, but for those that follow. */
static void inject(end_t *e, fuzz_input_t *in)
{
    static unsigned char payload[2 * LONG];
    const unsigned how = (unsigned) fuzz_number(in, 1);
    unsigned char head[sizeof(gpusym_net_head_t) + 8] = {0};
    gpusym_net_head_t h = {.token = token[0], .mark = GPUSYM_NET_MARK, .channel = 3, .parts = 1, .buffers = 1};

    if (how & 1) {
        fuzz_take(in, &h, sizeof h);
        h.mark = how & 2 ? GPUSYM_NET_MARK : h.mark;
        h.token = how & 4 ? token[0] : h.token;
        h.channel = how & 8 ? 3 : h.channel;
    } else {
        h.kind = (uint8_t) (fuzz_number(in, 1) % GPUSYM_NET_KINDS);
        h.number = (uint32_t) (how & 2 ? fuzz_number(in, 1) % 16 : fuzz_number(in, 4));
        h.credit = (uint32_t) (how & 4 ? fuzz_number(in, 1) % 16 : fuzz_number(in, 4));
        h.bytes =
            GPUSYM_NET_DATA == h.kind ? (uint32_t) fuzz_number(in, how & 8 ? 4 : 2) % (how & 8 ? UINT32_MAX : LONG) : 0;
        h.whole = how & 16 ? h.bytes : (uint32_t) fuzz_number(in, 2);
        if (how & 32) {
            h.part = (uint8_t) fuzz_number(in, 1);
            h.parts = (uint8_t) fuzz_number(in, 1);
            h.buffers = (uint8_t) fuzz_number(in, 1);
            h.skipped = (uint8_t) fuzz_number(in, 1);
        }
        h.generation = (uint16_t) (how & 64 ? fuzz_number(in, 2) : 0);
    }
    memcpy(head, &h, sizeof h);
    net_fake_inject(gpusym_net_streams_net(e->streams), head,
                    how & 128 ? fuzz_number(in, 1) % (sizeof head + 1) : sizeof h, payload,
                    h.bytes <= sizeof payload ? h.bytes : (uint32_t) sizeof payload);
}

static void read_pieces(end_t *e)
{
    const gpusym_net_head_t *head;
    const void *data;
    volatile unsigned char sum = 0;

    for (unsigned n = 0; gpusym_net_stream_read(e->stream, &head, &data); n++) {
        const unsigned char *const at = data;
        MUST(n <= 2 * PIECES && at >= e->memory && head->whole <= LONG && at + head->whole <= e->memory + MEMORY);
        for (uint32_t i = 0; i < head->whole; i++) {
            sum ^= at[i];
        }
        gpusym_net_stream_release(e->stream, 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const net_fake_params_t world = {.seed = 1};
    fuzz_input_t in = {data, size};
    end_t end[2] = {{0}};

    net_fake_start(&world);
    open_streams(&end[0]);
    open_streams(&end[1]);
    open_stream(&end[0], &end[1], 0);
    open_stream(&end[1], &end[0], 1);
    for (unsigned step = 0; step < STEPS && in.left > 0; step++) {
        inject(&end[0], &in);
        (void) net_fake_step();
        (void) gpusym_net_streams_progress(end[0].streams);
        (void) gpusym_net_streams_progress(end[1].streams);
        MUST(gpusym_net_stream_room(end[0].stream) <= PIECES);
        MUST(gpusym_net_stream_room_for(end[0].stream, LONG) <= PIECES / 2);
        read_pieces(&end[0]);
        if (0 == fuzz_number(&in, 1) % 16) {
            gpusym_net_stream_reset(end[0].stream, (uint16_t) fuzz_number(&in, 2));
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        gpusym_net_streams_close(end[i].streams);
        for (size_t k = 0; k < GUARD; k++) {
            MUST(0xdd == end[i].memory[MEMORY + k]);
        }
        free(end[i].memory);
    }
    return 0;
}
