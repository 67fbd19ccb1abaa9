/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A clock for the two times that delay a call (exec/traced.h): the processor's time-stamp counter, where the kernel
 * keeps time by it, so that it is the same on all cores; elsewhere gpusym_now_ns(), which takes twice as long.
 */
#ifndef MCA_COLL_GPUSYM_TRACE_TICKS_H
#define MCA_COLL_GPUSYM_TRACE_TICKS_H

#include <stdbool.h>

#include "mca/common/gpusym/common.h"

extern struct coll_gpusym_ticks {
    bool counted; /* else they are nanoseconds */
    double ns;    /* of one */
} coll_gpusym_ticks;

/* Decides which clock it is, before the first tick is read; takes some milliseconds. */
void coll_gpusym_ticks_start(void);

static inline uint64_t coll_gpusym_ticks_now(void)
{
#ifdef __x86_64__
    if (__builtin_expect(coll_gpusym_ticks.counted, 1)) {
        return __builtin_ia32_rdtsc();
    }
#endif
    return gpusym_now_ns();
}

/* Compares both clocks: the base of ticks that are read soon, or were read lately. */
uint64_t coll_gpusym_ticks_base(void);

/* When ticks were read, by gpusym_now_ns(). Of what is between them and their base it may miss 1 in 10000. */
static inline uint64_t coll_gpusym_ticks_ns(uint64_t base, uint64_t ticks)
{
    return base + (uint64_t) ((double) (int64_t) ticks * coll_gpusym_ticks.ns);
}

#endif
