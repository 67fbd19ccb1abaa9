/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Notices: see notices.h.
 */
#include "mca/common/gpusym/agree/notices.h"

#include <string.h>

/* A board. Its owner writes it. */
typedef struct {
    uint64_t count; /* records written so far, the last in record[(count - 1) % 2]; written last */
    uint64_t pad[7];
    unsigned char record[2][GPUSYM_NOTICE_MAX];
} board_t;

int gpusym_notices_open(gpusym_notices_t *n, uint32_t nranks, gpusym_line_t *line)
{
    *n = (gpusym_notices_t){.nranks = nranks};
    if (GPUSYM_SUCCESS != gpusym_pages_alloc_table(sizeof(board_t), &n->off)) {
        n->off = 0;
        return GPUSYM_ERR_NO_MEMORY;
    }
    __atomic_store_n(&line->notices, n->off, __ATOMIC_RELEASE);
    return GPUSYM_SUCCESS;
}

void gpusym_notices_write(gpusym_notices_t *n, const void *record, uint32_t bytes)
{
    board_t *board = gpusym_pages_line(n->off);
    memcpy(board->record[n->count % 2], record, bytes);
    n->next = 0;
    n->count++;
    __atomic_store_n(&board->count, n->count, __ATOMIC_RELEASE);
}

/* Copies the record of a rank. False: it is not there yet. */
static bool copy_record(const gpusym_notices_t *n, const gpusym_line_t *line, gpusym_peer_t *peer, void *record,
                        uint32_t bytes)
{
    const uint64_t off = __atomic_load_n(&line->notices, __ATOMIC_ACQUIRE);
    const board_t *board = gpusym_peer_table(peer, off, sizeof(board_t));
    if (NULL == board || __atomic_load_n(&board->count, __ATOMIC_ACQUIRE) - n->count > 1) {
        return false; /* it is a record ahead of us at most */
    }
    memcpy(record, board->record[(n->count - 1) % 2], bytes);
    return true;
}

bool gpusym_notices_read(gpusym_notices_t *n, gpusym_line_t *const *line, gpusym_peer_t *const *peer, void *all,
                         uint32_t bytes)
{
    while (n->next < n->nranks) {
        if (!copy_record(n, line[n->next], peer[n->next], (char *) all + (size_t) n->next * bytes, bytes)) {
            return false;
        }
        n->next++;
    }
    return true;
}
