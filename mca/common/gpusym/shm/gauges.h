/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Gauges: what a process tells of its memory, of its resident kernels and of one-sided calls that wait, for whoever
 * asks (gpusym_info --job). They are an area of the pages (pages.h) as long as there are pages. The process writes
 * them by plain stores and never reads them to decide anything.
 */
#ifndef GPUSYM_COMMON_SHM_GAUGES_H
#define GPUSYM_COMMON_SHM_GAUGES_H

#include <stdbool.h>
#include <string.h>

#include "mca/common/gpusym/common.h"

typedef enum {
    GPUSYM_GAUGE_HEAP,      /* bytes of the symmetric heap */
    GPUSYM_GAUGE_HEAP_USED, /* of these: bytes of slots that communicators have */
    GPUSYM_GAUGE_PINNED,    /* bytes of pinned host memory: bounce buffers, shares, messages between hosts */
    GPUSYM_GAUGE_MAPPINGS,  /* mappings of peers' GPU memory */
    GPUSYM_GAUGE_MAPPED,    /* their bytes */
    GPUSYM_GAUGES_COUNT
} gpusym_gauge_t;

typedef enum {
    GPUSYM_KERNEL_NONE, /* none has been launched */
    GPUSYM_KERNEL_BUSY, /* launched or commanded, and not known to have ended */
    GPUSYM_KERNEL_IDLE, /* it waits for a command, or has left by itself after linger_ns */
    GPUSYM_KERNEL_GONE, /* it has been told to leave, or is known to have left */
    GPUSYM_KERNEL_LOST, /* it did not end, or ended with an error */
    GPUSYM_KERNEL_STATES
} gpusym_kernel_state_t;

/* A resident kernel. since_ns: CLOCK_MONOTONIC, to some milliseconds: of its last launch or command, or when it was
 * known to be gone or lost. */
typedef struct {
    uint32_t state;  /* gpusym_kernel_state_t */
    uint32_t what;   /* whose it is: of a copier, the number of its GPU */
    uint64_t served; /* operations since its launch, without the first */
    uint64_t since_ns, linger_ns;
} gpusym_kernel_status_t;

/* Copiers that are told of: those of the first GPUs that a process uses. */
#define GPUSYM_GAUGES_COPIERS 8u

/* Ranks that a wait names. */
#define GPUSYM_WINDOW_AWAITED 8
/* A wait of a one-sided call that has taken 10 ms. Whole words. */
typedef struct {
    uint64_t since_ns, polled_ns; /* CLOCK_MONOTONIC: when it began, about, and when it was last polled */
    uint32_t rank, size;          /* of the window */
    uint32_t target;              /* what `what` is about */
    uint8_t what;                 /* gpusym_window_for_t */
    uint8_t nawaited, more;       /* ranks that it waits for and that are named; whether there are more */
    uint8_t pad;
    uint32_t awaited[GPUSYM_WINDOW_AWAITED];
    int32_t pid[GPUSYM_WINDOW_AWAITED]; /* of each; 0: of another host */
    char label[88];                     /* the window's communicator, cut, with a final 0 */
} gpusym_window_status_t;
_Static_assert(0 == sizeof(gpusym_window_status_t) % 8, "a status is copied by words");

/* One-sided calls that are told of: those of the first threads that wait. */
#define GPUSYM_GAUGES_WINDOWS 8u

typedef struct {
    uint64_t value[GPUSYM_GAUGES_COUNT];
    gpusym_kernel_status_t copier[GPUSYM_GAUGES_COPIERS];
    struct {
        uint64_t turn; /* odd while the status changes; 0: there is none */
        gpusym_window_status_t status;
    } window[GPUSYM_GAUGES_WINDOWS];
} gpusym_gauges_t;

/* Adds to a gauge. Takes a lock: for places that call the driver anyway. Thread-safe. */
void gpusym_gauge_add(gpusym_gauge_t gauge, int64_t change);
/* Returns what has been added up. For tests. Thread-safe. */
uint64_t gpusym_gauge_sum(gpusym_gauge_t gauge);
/* Moves the gauges to *to, with their values; NULL: back to this process's own memory. No kernel may be there. */
void gpusym_gauges_move(gpusym_gauges_t *to);
/* Returns the state of the i-th copier, i < GPUSYM_GAUGES_COPIERS; valid until the gauges are moved. */
gpusym_kernel_status_t *gpusym_gauges_copier(unsigned i);

/* Owner of a kernel: it gets its next operation. */
static inline void gpusym_kernel_told_busy(gpusym_kernel_status_t *s, uint64_t served, uint64_t now_ns)
{
    __atomic_store_n(&s->state, GPUSYM_KERNEL_BUSY, __ATOMIC_RELAXED);
    __atomic_store_n(&s->served, served, __ATOMIC_RELAXED);
    __atomic_store_n(&s->since_ns, now_ns, __ATOMIC_RELAXED);
}
/* Owner: its operation has ended, and it remains. */
static inline void gpusym_kernel_told_idle(gpusym_kernel_status_t *s)
{
    __atomic_store_n(&s->state, GPUSYM_KERNEL_IDLE, __ATOMIC_RELAXED);
}
/* Owner: it is gone, or lost. */
static inline void gpusym_kernel_told_end(gpusym_kernel_status_t *s, gpusym_kernel_state_t how)
{
    __atomic_store_n(&s->since_ns, gpusym_coarse_ns(), __ATOMIC_RELAXED);
    __atomic_store_n(&s->state, how, __ATOMIC_RELAXED);
}

/* Attempts of a reader to copy a status that does not change meanwhile: it changes every 10 ms. */
#define GPUSYM_TOLD_ATTEMPTS 100
/* Copies a status, whole words, to where others read it. *turn: odd while it changes; one thread at a time. */
static inline void gpusym_told_publish(uint64_t *turn, void *at, const void *status, size_t bytes)
{
    const uint64_t before = *turn;
    uint64_t word, *to = at;
    __atomic_store_n(turn, before + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the odd number is seen before any of what follows */
    for (size_t i = 0; i < bytes / sizeof word; i++) {
        memcpy(&word, (const char *) status + i * sizeof word, sizeof word);
        __atomic_store_n(&to[i], word, __ATOMIC_RELAXED);
    }
    __atomic_store_n(turn, before + 2, __ATOMIC_RELEASE);
}

/* What a one-sided call waits for others to do, and that in words; true: of the target. */
#define GPUSYM_WINDOW_FOR(FOR)                                \
    FOR(POST, "call MPI_Win_post", false)                     \
    FOR(COMPLETE, "call MPI_Win_complete", false)             \
    FOR(BARRIER, "call MPI_Win_fence or MPI_Win_free", false) \
    FOR(LOCK, "release the lock of rank ", true)              \
    FOR(ACCUMULATE, "end an accumulate to rank ", true)       \
    FOR(ANSWER, "answer, in a call of MPI there (when asked for a lock: once that is free)", false)
typedef enum {
#define GPUSYM_WINDOW_FOR_ENUM(name, ...) GPUSYM_WINDOW_FOR_##name,
    GPUSYM_WINDOW_FOR(GPUSYM_WINDOW_FOR_ENUM) GPUSYM_WINDOW_FORS
#undef GPUSYM_WINDOW_FOR_ENUM
} gpusym_window_for_t;
/* Appends the words for it to a text, as gpusym_append(). */
void gpusym_window_append_for(char *text, size_t size, size_t *used, gpusym_window_for_t what, uint32_t target);

/* Publishes the status of a one-sided call. slot: what it returned before for the same wait, or -1. Returns -1 if more
 * threads wait than can be told of. Any thread. */
int gpusym_window_tell(int slot, const gpusym_window_status_t *status);
/* The wait has ended. slot: as above, -1 included. */
void gpusym_window_tell_end(int slot);
/* Another program, with two copies of a process's gauges, one made after the other: copies the i-th status, i <
 * GPUSYM_GAUGES_WINDOWS. False: there is none, or it changed meanwhile (*changed), or it holds values that no process
 * writes. Texts end with a 0. */
bool gpusym_window_look(const gpusym_gauges_t copy[2], unsigned i, gpusym_window_status_t *status, bool *changed);

#endif
