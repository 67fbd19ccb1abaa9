/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Statuses: see status.h.
 */
#include "mca/common/gpusym/agree/status.h"

#include <string.h>

/* Attempts to copy a status that does not change meanwhile: it changes every 10 ms. */
#define ATTEMPTS 100
enum { WORDS = sizeof(gpusym_status_t) / sizeof(uint64_t) };

void gpusym_status_tell(gpusym_line_t *line, const gpusym_status_t *status)
{
    uint64_t word[WORDS], *to = (uint64_t *) (void *) &line->status;
    gpusym_status_t s = *status;

    if (s.seq == line->status.seq && 0 != line->status.seq) {
        s.since_ns = line->status.since_ns;
    }
    memcpy(word, &s, sizeof word);
    const uint64_t turn = line->status_turn;
    __atomic_store_n(&line->status_turn, turn + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the odd number is seen before any of what follows */
    for (unsigned i = 0; i < WORDS; i++) {
        __atomic_store_n(&to[i], word[i], __ATOMIC_RELAXED);
    }
    __atomic_store_n(&line->status_turn, turn + 2, __ATOMIC_RELEASE);
}

/* The number that tells whether the status changes. */
static bool read_turn(const gpusym_look_t *look, uint64_t i, uint64_t *turn)
{
    return gpusym_look_line(look, i, offsetof(gpusym_line_t, status_turn), sizeof *turn, turn);
}

/* What is beyond the bounds of its type was not written by gpusym_status_tell. */
static bool is_sane(const gpusym_line_t *line)
{
    const gpusym_status_t *s = &line->status;
    return 0 != line->end.key && line->rank < line->size && s->state < GPUSYM_STATUS_STATES &&
           s->awaits < GPUSYM_STATUS_AWAITS && s->nawaited <= GPUSYM_STATUS_AWAITED;
}

bool gpusym_status_look(const gpusym_look_t *look, uint64_t i, gpusym_line_t *line)
{
    uint64_t before, after;

    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (!read_turn(look, i, &before) || !gpusym_look_line(look, i, 0, sizeof *line, line) ||
            !read_turn(look, i, &after)) {
            return false;
        }
        if (before == after && 0 == before % 2) {
            line->label[sizeof line->label - 1] = '\0';
            line->status.way[sizeof line->status.way - 1] = '\0';
            return is_sane(line);
        }
    }
    return false;
}

bool gpusym_status_last(const gpusym_line_t *line, uint16_t *seq, const gpusym_entry_t **entry)
{
    *entry = NULL;
    for (unsigned i = 0; i < GPUSYM_AGREEMENT_HISTORY; i++) {
        const uint16_t number = (uint16_t) (line->entry[i].word >> 48);
        if (0 != line->entry[i].word && (NULL == *entry || (int16_t) (uint16_t) (number - *seq) > 0)) {
            *seq = number;
            *entry = &line->entry[i];
        }
    }
    return NULL != *entry;
}
