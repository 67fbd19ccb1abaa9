/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Gauges: what a process tells of its memory and of its resident kernels, for whoever asks (gpusym_info --job). They
 * are an area of the pages (pages.h) as long as there are pages. The process writes them by plain stores and never
 * reads them to decide anything.
 */
#ifndef GPUSYM_COMMON_SHM_GAUGES_H
#define GPUSYM_COMMON_SHM_GAUGES_H

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

typedef struct {
    uint64_t value[GPUSYM_GAUGES_COUNT];
    gpusym_kernel_status_t copier[GPUSYM_GAUGES_COPIERS];
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

#endif
