/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Notices: what the members of an island tell each other while they set up a communicator, by their pages alone.  Every
 * rank writes one record after the other into a board of its own, which its line names.  So no message goes to a rank
 * that may not answer it, and none is left over where a communicator is freed meanwhile.
 *
 * A rank writes its next record once it has read the last one of all ranks.  So a peer reads at most one record behind
 * the last, and a board holds two.  It may read the last one when this rank has long left the communicator: the board
 * stays as long as the line does (gpusym_agreement_retire).
 */
#ifndef GPUSYM_COMMON_AGREE_NOTICES_H
#define GPUSYM_COMMON_AGREE_NOTICES_H

#include "mca/common/gpusym/agree/line.h"

/* Bytes of a record, at most. */
#define GPUSYM_NOTICE_MAX 512u

/* The exchange of a communicator's records. */
typedef struct {
    uint32_t nranks;
    uint32_t next;  /* ranks below have been read since the last one */
    uint64_t off;   /* of our board in our pages; 0: there is none */
    uint64_t count; /* records that we have written */
} gpusym_notices_t;

/* Makes this rank's board, and tells of it in its line, before peers know that. The board is freed with the line, by
 * gpusym_agreement_retire, or by gpusym_pages_free_table. GPUSYM_ERR_NO_MEMORY. */
int gpusym_notices_open(gpusym_notices_t *n, uint32_t nranks, gpusym_line_t *line);
/* Writes the next record, of at most GPUSYM_NOTICE_MAX bytes. The last one of all ranks has been read. */
void gpusym_notices_write(gpusym_notices_t *n, const void *record, uint32_t bytes);
/* Reads the ranks' records as far as they are there, each of `bytes` bytes, into all[nranks]; line[nranks] and
 * peer[nranks]: their lines, ours included, and whose they are; retired ones too, if ours is not. True once all have
 * been read. A rank that never comes is never read. Never waits. */
bool gpusym_notices_read(gpusym_notices_t *n, gpusym_line_t *const *line, gpusym_peer_t *const *peer, void *all,
                         uint32_t bytes);

#endif
