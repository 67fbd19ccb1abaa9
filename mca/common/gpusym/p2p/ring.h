/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rings: records from one process to another, in order, through memory of the reader that the writer has mapped.
 *
 * A record is a tag and some bytes.  The writer adds records behind the last one as long as there is room; the reader
 * takes the oldest one, in place, and then gives its room back.  No function waits.  One thread of each process at a
 * time uses its side.
 *
 *     head                       tail
 *     | record | record | record |   room   |      both only rise; their places are those of head and tail % room
 *
 * Records are contiguous: one that does not fit before the end begins at the beginning, behind a record that says so.
 * Values that the other process wrote are checked: they lead to GPUSYM_ERR_CORRUPT, never to an access out of bounds.
 */
#ifndef GPUSYM_COMMON_P2P_RING_H
#define GPUSYM_COMMON_P2P_RING_H

#include "mca/common/gpusym/shm/flow.h"

/* Bytes that a ring takes in front of its room. */
#define GPUSYM_RING_HEAD 256u
/* Bytes that a record takes in front of its data, which are 16-byte aligned; its size is rounded up to as many. */
#define GPUSYM_RING_RECORD 16u
/* Most bytes of data of a record in a ring of that room: the writer then always finds room in the end. */
#define GPUSYM_RING_MOST(room) ((room) / 2u - GPUSYM_RING_RECORD)

/* A ring in shared memory, 64-byte aligned: zeroes at first. Only these functions use it. */
typedef struct gpusym_ring gpusym_ring_t;

/* The writer's side. */
typedef struct {
    gpusym_ring_t *ring;
    gpusym_flow_t flow; /* of bytes */
} gpusym_ring_writer_t;

/* The reader's side. */
typedef struct {
    gpusym_ring_t *ring;
    gpusym_flow_t flow; /* of bytes */
    uint64_t taken;     /* bytes of the record that is being read; 0: none is */
} gpusym_ring_reader_t;

/* Begins to write to a ring of GPUSYM_RING_HEAD + room bytes, once in its life, and tells the reader so.  room: bytes,
 * a multiple of GPUSYM_RING_RECORD, the same on both sides. */
void gpusym_ring_open_writer(gpusym_ring_writer_t *writer, void *memory, uint64_t room);
/* Writes a record of at most GPUSYM_RING_MOST(room) bytes.  Returns 1, 0 if there is no room now, or
 * GPUSYM_ERR_CORRUPT.  About 20 ns for a short one. */
int gpusym_ring_write(gpusym_ring_writer_t *writer, uint32_t tag, const void *data, uint32_t bytes);

/* Begins to read from a ring of this process.  The memory is zeroed, or new. */
void gpusym_ring_open_reader(gpusym_ring_reader_t *reader, void *memory, uint64_t room);
/* Returns whether the writer has begun. */
bool gpusym_ring_is_written(const gpusym_ring_reader_t *reader);
/* Gets the oldest record, in the ring.  Returns 1, 0 if there is none, or GPUSYM_ERR_CORRUPT.  After 1 the caller calls
 * gpusym_ring_end_read, and only then reads the next one.  About 1 ns if there is none. */
int gpusym_ring_read(gpusym_ring_reader_t *reader, uint32_t *tag, void **data, uint32_t *bytes);
/* Gives the room of the record back to the writer. */
void gpusym_ring_end_read(gpusym_ring_reader_t *reader);

#endif
