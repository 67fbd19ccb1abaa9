/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: both sides of a ring (p2p/ring.h) whose memory the other process writes.
 */
#include "mca/common/gpusym/p2p/ring.h"
#include "test/fuzz/fuzz.h"

enum { ROOM = 512, BYTES = GPUSYM_RING_HEAD + ROOM, STEPS = 64 };

/* Reads all bytes of a record, which lie in the room. */
static void use_record(const unsigned char *memory, const unsigned char *data, uint32_t bytes)
{
    volatile unsigned char sum = 0;

    MUST(data >= memory + GPUSYM_RING_HEAD && bytes <= ROOM && data + bytes <= memory + BYTES);
    for (uint32_t i = 0; i < bytes; i++) {
        sum ^= data[i];
    }
}

static void read_some(gpusym_ring_reader_t *reader, const unsigned char *memory)
{
    uint32_t tag, bytes;
    void *data;

    for (unsigned i = 0; i <= ROOM / GPUSYM_RING_RECORD; i++) {
        if (1 != gpusym_ring_read(reader, &tag, &data, &bytes)) {
            return;
        }
        use_record(memory, data, bytes);
        gpusym_ring_end_read(reader);
    }
    MUST(!"a ring has more records than room");
}

/* Each step: the peer writes a word of the head, or bytes of the room; then this process reads, or writes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    unsigned char *memory = aligned_alloc(64, BYTES), record[GPUSYM_RING_MOST(ROOM)] = {0};
    gpusym_ring_reader_t reader;
    gpusym_ring_writer_t writer;

    MUST(NULL != memory);
    memset(memory, 0, BYTES);
    gpusym_ring_open_reader(&reader, memory, ROOM);
    gpusym_ring_open_writer(&writer, memory, ROOM);
    for (unsigned step = 0; step < STEPS && in.left > 0; step++) {
        const unsigned what = (unsigned) fuzz_number(&in, 1) % 5;
        if (what < 2) { /* tail, head: by little, or anything */
            const uint64_t value = fuzz_number(&in, fuzz_number(&in, 1) % 2 ? 8 : 2);
            memcpy(memory + 128 * what, &value, sizeof value);
        } else if (2 == what) {
            const size_t at = fuzz_number(&in, 2) % (ROOM / 16) * 16;
            fuzz_take(&in, memory + GPUSYM_RING_HEAD + at, 16);
        } else if (3 == what) {
            read_some(&reader, memory);
        } else {
            (void) gpusym_ring_write(&writer, step, record, (uint32_t) fuzz_number(&in, 1) % (sizeof record + 1));
        }
    }
    read_some(&reader, memory);
    free(memory);
    return 0;
}
