/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Lines, and what they tell of a process: see line.h.
 */
#include "mca/common/gpusym/agree/line.h"

#include <stdio.h>

void gpusym_line_stamp(gpusym_line_t *line)
{
    __atomic_store_n(&line->stamp, gpusym_coarse_ns(), __ATOMIC_RELAXED);
}

void gpusym_line_name(gpusym_line_t *line, uint64_t key, const char *label, uint32_t rank, uint32_t size)
{
    line->rank = rank;
    line->size = size;
    __atomic_store_n(&line->status.seq, 0, __ATOMIC_RELAXED); /* of the line's last communicator */
    snprintf(line->label, sizeof line->label, "%s", label);
    gpusym_line_stamp(line);
    __atomic_store_n(&line->end.key, key, __ATOMIC_RELEASE);
}

void gpusym_line_step(gpusym_line_t *line, uint32_t step, uint32_t tried)
{
    __atomic_store_n(&line->step, tried * GPUSYM_LINE_STEPS + step, __ATOMIC_RELEASE);
}

void gpusym_line_abort(gpusym_line_t *line, uint64_t first)
{
    if (0 == first) {
        __atomic_store_n(&line->abort, GPUSYM_LINE_NEVER, __ATOMIC_RELEASE);
    } else if (gpusym_line_serves(__atomic_load_n(&line->abort, __ATOMIC_RELAXED), first)) {
        __atomic_store_n(&line->abort, GPUSYM_LINE_FROM | (uint16_t) first, __ATOMIC_RELEASE);
    }
}

void gpusym_line_say(gpusym_line_t *line, uint64_t mark)
{
    __atomic_store_n(&line->said, mark, __ATOMIC_RELEASE);
}

/* The last entry's `what`: their sequences rise, modulo 2^16. -1: none has been posted. */
static int line_last(const gpusym_line_t *line)
{
    uint16_t last = 0;
    int what = -1;
    for (unsigned i = 0; i < GPUSYM_AGREEMENT_HISTORY; i++) {
        const uint64_t word = __atomic_load_n(&line->entry[i].word, __ATOMIC_ACQUIRE);
        const uint16_t seq = (uint16_t) (word >> 48);
        if (0 != word && (what < 0 || (int16_t) (uint16_t) (seq - last) > 0)) {
            last = seq;
            what = (uint8_t) (word >> 32);
        }
    }
    return what;
}

void gpusym_peer_seen(gpusym_peer_t *peer, uint64_t key, gpusym_seen_t *seen)
{
    const uint64_t lines = gpusym_peer_lines(peer), now = gpusym_coarse_ns();
    uint64_t latest = 0;

    *seen = (gpusym_seen_t){.what = -1};
    for (uint64_t i = 0; i < lines; i++) {
        const gpusym_line_t *line = gpusym_peer_line_at(peer, i);
        const uint64_t stamp = __atomic_load_n(&line->stamp, __ATOMIC_RELAXED);
        if (0 != key && __atomic_load_n(&line->end.key, __ATOMIC_ACQUIRE) == key) {
            seen->begun = true;
            seen->step = gpusym_line_at_step(line);
            seen->said = __atomic_load_n(&line->said, __ATOMIC_ACQUIRE);
        }
        if (0 != stamp && stamp >= latest) { /* the younger line of those of one tick */
            latest = stamp;
            seen->what = line_last(line);
            snprintf(seen->label, sizeof seen->label, "%.*s", (int) sizeof line->label, line->label);
        }
    }
    seen->age_ns = now > latest ? now - latest : 0;
}
