/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Segments: sealed memory files that a process shares with others of this host, user and pid namespace, found by the
 * process id and a descriptor, and identified by a random number at their start.  Nothing remains of them when
 * processes die.
 */
#ifndef GPUSYM_COMMON_SHM_SEGMENT_H
#define GPUSYM_COMMON_SHM_SEGMENT_H

#include "mca/common/gpusym/common.h"

/* Identifies a segment to peers. Plain bytes, to be sent to them. */
typedef struct {
    uint64_t nonce[2]; /* random; also at the start of the segment, to detect a wrong one */
    int32_t pid, fd;
    uint64_t bytes;
} gpusym_segment_id_t;

/* What a segment begins with. The rest is its user's, and zero at first. */
typedef struct {
    uint64_t magic, nonce[2];
} gpusym_segment_head_t;

/* Makes a segment and maps it. magic: of its use.  The caller ends it by gpusym_segment_free.  It is sparse.  Errors,
 * with errno: GPUSYM_ERR_NOT_AVAILABLE, GPUSYM_ERR_NO_MEMORY. */
int gpusym_segment_make(const char *name, uint64_t magic, uint64_t bytes, gpusym_segment_id_t *id, void **base);
/* Unmaps and closes an own segment. */
void gpusym_segment_free(const gpusym_segment_id_t *id, void *base);
/* Maps another process's segment of that magic and size; the caller ends it by munmap(). GPUSYM_ERR_UNREACHABLE, with
 * errno: the process is gone, or of another user or pid namespace, or the segment is not sealed, or another one. */
int gpusym_segment_map(const gpusym_segment_id_t *id, uint64_t magic, uint64_t bytes, void **base);
/* Returns whether two ids are of the same segment. */
static inline bool gpusym_segment_same(const gpusym_segment_id_t *a, const gpusym_segment_id_t *b)
{
    return a->nonce[0] == b->nonce[0] && a->nonce[1] == b->nonce[1];
}

#endif
