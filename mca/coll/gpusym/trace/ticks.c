/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The clock of a call's two ends: see ticks.h.
 */
#include "mca/coll/gpusym/trace/ticks.h"

#include <string.h>

/* How long it is measured beside the other clock. */
#define MEASURE_NS 4000000u
/* Both are read within so many ticks, or, by a thread that is interrupted each time, within as few as it can. */
#define NEAR 1000u
#define TRIES 8u

struct coll_gpusym_ticks coll_gpusym_ticks = {.ns = 1};

/* Reads both clocks at one time. */
static void read_both(uint64_t *ticks, uint64_t *ns)
{
    uint64_t least = UINT64_MAX;
    for (unsigned tries = 0; tries < TRIES && least > NEAR; tries++) {
        const uint64_t before = coll_gpusym_ticks_now(), now = gpusym_now_ns();
        const uint64_t took = coll_gpusym_ticks_now() - before;
        if (took < least) {
            least = took;
            *ticks = before + took / 2;
            *ns = now;
        }
    }
}

uint64_t coll_gpusym_ticks_base(void)
{
    uint64_t ticks = 0, ns = 0;
    if (!coll_gpusym_ticks.counted) {
        return 0;
    }
    read_both(&ticks, &ns);
    return ns - coll_gpusym_ticks_ns(0, ticks);
}

void coll_gpusym_ticks_start(void)
{
#ifdef __x86_64__
    char source[32];
    uint64_t first, last, begin, end;
    if (!gpusym_file_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source) ||
        0 != strcmp(source, "tsc")) {
        return;
    }
    coll_gpusym_ticks.counted = true;
    read_both(&first, &begin);
    do {
        read_both(&last, &end);
    } while (end - begin < MEASURE_NS);
    coll_gpusym_ticks.ns = (double) (end - begin) / (double) (last - first);
#endif
}
