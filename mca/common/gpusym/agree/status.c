/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Statuses: see status.h.
 */
#include "mca/common/gpusym/agree/status.h"

#include <string.h>

void gpusym_status_tell(gpusym_line_t *line, const gpusym_status_t *status)
{
    gpusym_status_t s = *status;

    if (s.seq == line->status.seq && 0 != line->status.seq) {
        s.since_ns = line->status.since_ns;
    }
    gpusym_told_publish(&line->status_turn, &line->status, &s, sizeof s);
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

    for (int attempt = 0; attempt < GPUSYM_TOLD_ATTEMPTS; attempt++) {
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
