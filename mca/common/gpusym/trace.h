/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Events for a tracer. There is none by default: an event then costs one load and one branch.
 */
#ifndef GPUSYM_COMMON_TRACE_H
#define GPUSYM_COMMON_TRACE_H

#include <stddef.h>
#include <stdint.h>

/* The events: name, and what its two numbers are. */
#define GPUSYM_TRACE_EVENTS(X)                                                          \
    X(ALLOC, "alloc", "GPU memory: bytes; 1: allocated, 0: failed")                     \
    X(EXPORT, "export", "a buffer is named for peers: bytes; 1: done, 0: failed")       \
    X(MAP, "map", "a peer's buffer is mapped: bytes; 1: done, 0: failed")               \
    X(UNMAP, "unmap", "a peer's buffer is unmapped: bytes; 0")                          \
    X(LAUNCH, "launch", "a kernel is launched: its number; the lane's sequence number") \
    X(COMMAND, "command", "a resident kernel gets a command: bytes; the lane's sequence number")

typedef enum {
#define GPUSYM_TRACE_ENUM(ID, name, doc) GPUSYM_TRACE_##ID,
    GPUSYM_TRACE_EVENTS(GPUSYM_TRACE_ENUM)
#undef GPUSYM_TRACE_ENUM
        GPUSYM_TRACE_COUNT
} gpusym_trace_event_t;

/* Takes an event. Any thread; may be called with locks of the library held, so it must not call the library. */
typedef void gpusym_trace_hook_t(gpusym_trace_event_t event, uint64_t a, uint64_t b);

/* NULL: no tracer. Set with __atomic_store_n. */
extern gpusym_trace_hook_t *gpusym_trace_hook;

#define GPUSYM_TRACE(ID, a, b)                                                                    \
    do {                                                                                          \
        gpusym_trace_hook_t *const hook_ = __atomic_load_n(&gpusym_trace_hook, __ATOMIC_RELAXED); \
        if (__builtin_expect(NULL != hook_, 0)) {                                                 \
            hook_(GPUSYM_TRACE_##ID, (uint64_t) (a), (uint64_t) (b));                             \
        }                                                                                         \
    } while (0)

/* The name of an event; "unknown". */
const char *gpusym_trace_name(gpusym_trace_event_t event);

#endif
