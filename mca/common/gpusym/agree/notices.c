/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Notices: see notices.h.
 */
#include "mca/common/gpusym/agree/notices.h"

#include <stdlib.h>
#include <string.h>

/* Time between two searches for ranks that have not come; it doubles, as one may never come. */
#define LOOK_MIN_NS 1000000u
#define LOOK_MAX_NS 1000000000u

/* A board. Its owner writes it. */
typedef struct {
    uint64_t count; /* records written so far, the last in record[(count - 1) % 2]; written last */
    uint64_t pad[7];
    unsigned char record[2][GPUSYM_NOTICE_MAX];
} board_t;

int gpusym_notices_open(gpusym_notices_t *n, uint32_t nranks, uint32_t rank, uint64_t key, gpusym_line_t *line,
                        const int32_t *pid)
{
    *n = (gpusym_notices_t){.nranks = nranks, .rank = rank, .key = key};
    n->ranks = calloc(nranks, sizeof *n->ranks);
    if (NULL == n->ranks || GPUSYM_SUCCESS != gpusym_pages_alloc_table(sizeof(board_t), &n->off)) {
        free(n->ranks);
        *n = (gpusym_notices_t){0};
        return GPUSYM_ERR_NO_MEMORY;
    }
    for (uint32_t r = 0; r < nranks; r++) {
        n->ranks[r].pid = pid[r];
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

/* Whether a line is that of the communicator. What has been read of its board before is the rank's if it still is. */
static bool is_there(const gpusym_notices_t *n, const gpusym_line_t *line)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&line->end.key, __ATOMIC_ACQUIRE) == n->key;
}

/* Looks for a rank's pages, and the communicator's line in them. */
static bool find_rank(gpusym_notices_t *n, gpusym_notices_peer_t *r)
{
    gpusym_peer_t *peer;
    if (GPUSYM_SUCCESS != gpusym_pages_find(r->pid, &peer)) {
        return false;
    }
    const uint64_t lines = gpusym_peer_lines(peer);
    for (uint64_t i = 0; i < lines; i++) {
        const gpusym_line_t *line = gpusym_peer_line_at(peer, i);
        if (is_there(n, line)) {
            r->line = line;
            r->peer = peer;
            return true;
        }
    }
    return false;
}

/* The same, unless a rank has been looked for just now. */
static bool look_for(gpusym_notices_t *n, gpusym_notices_peer_t *r)
{
    const uint64_t now = gpusym_now_ns();
    if (NULL != r->peer) {
        return true;
    }
    if (now - n->looked_ns < n->wait_ns) {
        return false;
    }
    const bool found = find_rank(n, r);
    n->looked_ns = found ? 0 : now;
    n->wait_ns = found                      ? 0
                 : n->wait_ns < LOOK_MIN_NS ? LOOK_MIN_NS
                 : n->wait_ns < LOOK_MAX_NS ? 2 * n->wait_ns
                                            : n->wait_ns;
    return found;
}

/* Copies the record of a rank. False: it is not there yet. */
static bool copy_record(const gpusym_notices_t *n, const gpusym_notices_peer_t *r, void *record, uint32_t bytes)
{
    const uint64_t off = __atomic_load_n(&r->line->notices, __ATOMIC_ACQUIRE);
    const board_t *board = gpusym_peer_table(r->peer, off, sizeof(board_t));
    if (NULL == board || __atomic_load_n(&board->count, __ATOMIC_ACQUIRE) - n->count > 1) {
        return false; /* it is a record ahead of us at most */
    }
    memcpy(record, board->record[(n->count - 1) % 2], bytes);
    return is_there(n, r->line);
}

bool gpusym_notices_read(gpusym_notices_t *n, void *all, uint32_t bytes)
{
    while (n->next < n->nranks) {
        gpusym_notices_peer_t *r = &n->ranks[n->next];
        if (!look_for(n, r) || !copy_record(n, r, (char *) all + (size_t) n->next * bytes, bytes)) {
            return false;
        }
        n->next++;
    }
    return true;
}

void gpusym_notices_close(gpusym_notices_t *n)
{
    if (0 != n->off) {
        gpusym_pages_free_table(n->off);
    }
    free(n->ranks);
    *n = (gpusym_notices_t){0};
}
