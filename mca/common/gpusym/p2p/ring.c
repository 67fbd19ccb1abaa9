/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rings: see ring.h.
 */
#include "mca/common/gpusym/p2p/ring.h"

#include <string.h>

/* What lies in front of the room.  Each side writes a cache line of its own. */
struct gpusym_ring {
    uint64_t tail;    /* the writer's: end of the last record; what the flow has filled */
    uint32_t written; /* the writer's: 1 once it has begun */
    uint32_t pad0[29];
    uint64_t head; /* the reader's: begin of the oldest record; what it has taken */
    uint64_t pad1[15];
};
_Static_assert(sizeof(gpusym_ring_t) == GPUSYM_RING_HEAD, "the room begins behind it");

/* What lies in front of a record's data. */
typedef struct {
    uint32_t tag, bytes;
    uint64_t skip; /* 1: there are no data, and the next record is at the beginning of the room */
} record_t;
_Static_assert(sizeof(record_t) == GPUSYM_RING_RECORD, "data are aligned like records");

static record_t *record_at(gpusym_ring_t *ring, uint64_t room, uint64_t position)
{
    return (record_t *) ((char *) ring + GPUSYM_RING_HEAD + position % room);
}

/* Bytes that a record takes. */
static uint64_t record_size(uint64_t bytes)
{
    return (sizeof(record_t) + bytes + GPUSYM_RING_RECORD - 1) / GPUSYM_RING_RECORD * GPUSYM_RING_RECORD;
}

static gpusym_flow_t flow_of(gpusym_ring_t *ring, uint64_t room)
{
    return (gpusym_flow_t){.filled = &ring->tail, .taken = &ring->head, .slots = room};
}

void gpusym_ring_open_writer(gpusym_ring_writer_t *writer, void *memory, uint64_t room)
{
    *writer = (gpusym_ring_writer_t){.ring = memory, .flow = flow_of(memory, room)};
    __atomic_store_n(&writer->ring->written, 1, __ATOMIC_RELEASE);
}

/* Whether `size` bytes are free. Reads the reader's cache line only where they are not for sure. */
static int find_room(gpusym_ring_writer_t *writer, uint64_t size)
{
    const uint64_t tail = writer->flow.told;
    if (size <= gpusym_flow_room_seen(&writer->flow, tail)) {
        return 1;
    }
    const int64_t room = gpusym_flow_room(&writer->flow, tail);
    return room < 0 ? (int) room : size <= (uint64_t) room;
}

int gpusym_ring_write(gpusym_ring_writer_t *writer, uint32_t tag, const void *data, uint32_t bytes)
{
    const uint64_t room = writer->flow.slots, tail = writer->flow.told;
    const uint64_t size = record_size(bytes), rest = room - tail % room;
    const uint64_t skip = size > rest ? rest : 0;
    const int found = find_room(writer, skip + size);

    if (1 != found) {
        return found;
    }
    if (0 != skip) {
        *record_at(writer->ring, room, tail) = (record_t){.skip = 1};
    }
    record_t *record = record_at(writer->ring, room, tail + skip);
    *record = (record_t){.tag = tag, .bytes = bytes};
    memcpy(record + 1, data, bytes);
    gpusym_flow_publish(&writer->flow, tail + skip + size);
    return 1;
}

void gpusym_ring_open_reader(gpusym_ring_reader_t *reader, void *memory, uint64_t room)
{
    *reader = (gpusym_ring_reader_t){.ring = memory, .flow = flow_of(memory, room)};
}

bool gpusym_ring_is_written(const gpusym_ring_reader_t *reader)
{
    return 0 != __atomic_load_n(&reader->ring->written, __ATOMIC_ACQUIRE);
}

int gpusym_ring_read(gpusym_ring_reader_t *reader, uint32_t *tag, void **data, uint32_t *bytes)
{
    const uint64_t room = reader->flow.slots, head = reader->flow.told;
    const int64_t ready = gpusym_flow_ready(&reader->flow, head);

    if (0 == ready) {
        return 0;
    }
    if (ready < 0 || 0 != ready % GPUSYM_RING_RECORD) {
        return GPUSYM_ERR_CORRUPT;
    }
    uint64_t used = (uint64_t) ready, rest = room - head % room;
    record_t record = *record_at(reader->ring, room, head);
    uint64_t skip = 0;
    if (0 != record.skip) {
        if (rest >= used) {
            return GPUSYM_ERR_CORRUPT;
        }
        skip = rest;
        rest = room;
        used -= skip;
        record = *record_at(reader->ring, room, head + skip);
    }
    const uint64_t size = record_size(record.bytes);
    if (0 != record.skip || size > used || size > rest) {
        return GPUSYM_ERR_CORRUPT;
    }
    *tag = record.tag;
    *data = record_at(reader->ring, room, head + skip) + 1;
    *bytes = record.bytes;
    reader->taken = skip + size;
    return 1;
}

void gpusym_ring_end_read(gpusym_ring_reader_t *reader)
{
    gpusym_flow_take(&reader->flow, reader->flow.told + reader->taken);
    reader->taken = 0;
}
