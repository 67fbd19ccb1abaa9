/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Flows: slots of memory that one process fills and another one empties, over and over, in one order.  Each side tells
 * by a word in shared memory, which it alone writes, how far it has come:
 *
 *     taken           filled                            taken + slots
 *       |  may be read  |  being filled, or may be filled  |            both only rise; slot n is the n % slots'th
 *
 * A side tells what it has done once its copies are seen to have ended, and asks before it starts the next ones.  So a
 * slot is filled before it is read, and read before it is filled again; telling is a release, asking an acquire.  Where
 * several readers read the same slots each has a word of its own, and the least counts.  The unit of both words and of
 * `slots` is the user's: pieces, or bytes.
 *
 * A word that the other side does not write, as it has told before, or cannot have reached yet, is GPUSYM_ERR_CORRUPT.
 */
#ifndef GPUSYM_COMMON_SHM_FLOW_H
#define GPUSYM_COMMON_SHM_FLOW_H

#include "mca/common/gpusym/common.h"

/* One side of a flow. */
typedef struct {
    uint64_t *filled, *taken; /* the writer's word, and the reader's; 64 bits in shared memory, zeroes at first */
    uint64_t slots;           /* 0: not known yet */
    uint64_t told, seen;      /* what this side's word says; what the other side's said when it was read last */
} gpusym_flow_t;

/* In `taken`, where a user wants that: the reader does not look at the flow any more.  The user asks for it itself. */
#define GPUSYM_FLOW_OVER UINT64_MAX

/* ---- the writer's ---- */

/* begun: slots that it has begun to fill.  Returns how many more it may, by what it has seen: as a rule too few. */
static inline uint64_t gpusym_flow_room_seen(const gpusym_flow_t *flow, uint64_t begun)
{
    return flow->slots - (begun - flow->seen);
}

/* Returns how many more it may, if that is what has been taken, or GPUSYM_ERR_CORRUPT. */
static inline int64_t gpusym_flow_room_by(gpusym_flow_t *flow, uint64_t begun, uint64_t taken)
{
    if (taken < flow->seen || taken > flow->told) {
        return GPUSYM_ERR_CORRUPT;
    }
    flow->seen = taken;
    return (int64_t) gpusym_flow_room_seen(flow, begun);
}

/* The same by the reader's word. */
static inline int64_t gpusym_flow_room(gpusym_flow_t *flow, uint64_t begun)
{
    return gpusym_flow_room_by(flow, begun, __atomic_load_n(flow->taken, __ATOMIC_ACQUIRE));
}

/* So many slots have been filled. */
static inline void gpusym_flow_publish(gpusym_flow_t *flow, uint64_t filled)
{
    flow->told = filled;
    __atomic_store_n(flow->filled, filled, __ATOMIC_RELEASE);
}

/* ---- a reader's ---- */

/* Returns whether any slot has been filled: then all that the writer wrote before is there, say the number of slots. */
static inline bool gpusym_flow_has_begun(const gpusym_flow_t *flow)
{
    return 0 != __atomic_load_n(flow->filled, __ATOMIC_ACQUIRE);
}

/* begun: slots that it has begun to read.  Returns how many more it may, or GPUSYM_ERR_CORRUPT. */
static inline int64_t gpusym_flow_ready(gpusym_flow_t *flow, uint64_t begun)
{
    const uint64_t filled = __atomic_load_n(flow->filled, __ATOMIC_ACQUIRE);
    if (filled < flow->seen || filled - flow->told > flow->slots) {
        return GPUSYM_ERR_CORRUPT;
    }
    flow->seen = filled;
    return (int64_t) (filled - begun);
}

/* So many slots have been read; or GPUSYM_FLOW_OVER. */
static inline void gpusym_flow_take(gpusym_flow_t *flow, uint64_t taken)
{
    flow->told = taken;
    __atomic_store_n(flow->taken, taken, __ATOMIC_RELEASE);
}

/* ---- the same by messages: 32 bits, which wrap around, and credits that overtake each other ---- */

/* Returns how many pieces more may be sent. */
static inline uint32_t gpusym_flow_left(uint32_t slots, uint32_t sent, uint32_t credit)
{
    return slots - (sent - credit);
}

/* Returns whether a credit is the same as or newer than the one that is known, and none of pieces never sent. */
static inline bool gpusym_flow_credits(uint32_t sent, uint32_t known, uint32_t credit)
{
    return credit - known <= sent - known;
}

#endif
