/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Notices: what ranks of one host tell each other while they set up a communicator, by their pages alone.  Every rank
 * writes one record after the other into a board of its own, which its peers find by the key of its line.  So no
 * message goes to a rank that may not answer it, and none is left over where a communicator is freed meanwhile.
 *
 * A rank writes its next record once it has read the last one of all ranks.  So a peer reads at most one record behind
 * the last, and a board holds two.
 */
#ifndef GPUSYM_COMMON_AGREE_NOTICES_H
#define GPUSYM_COMMON_AGREE_NOTICES_H

#include "mca/common/gpusym/agree/line.h"

/* Bytes of a record, at most. */
#define GPUSYM_NOTICE_MAX 512u

/* What is known of a rank's board. */
typedef struct {
    int32_t pid;               /* of its process */
    gpusym_peer_t *peer;       /* NULL: its pages, or its line in them, have not been found yet */
    const gpusym_line_t *line; /* in these pages; whether it still is the rank's, its key tells */
} gpusym_notices_peer_t;

/* The exchange of a communicator's records. */
typedef struct {
    uint32_t nranks, rank;
    uint64_t key;                 /* of the ranks' lines */
    uint64_t off;                 /* of our board in our pages; 0: there is none */
    uint64_t count;               /* records that we have written */
    uint32_t next;                /* ranks below have been read since the last one */
    uint64_t looked_ns;           /* when a rank was last looked for in vain; 0: not yet */
    uint64_t wait_ns;             /* until it is looked for again */
    gpusym_notices_peer_t *ranks; /* [nranks]; owned */
} gpusym_notices_t;

/* Makes this rank's board, and tells of it in its line, which is named afterwards (gpusym_line_name). pid: [nranks] the
 * ranks' processes. The caller ends it by gpusym_notices_close. GPUSYM_ERR_NO_MEMORY. */
int gpusym_notices_open(gpusym_notices_t *n, uint32_t nranks, uint32_t rank, uint64_t key, gpusym_line_t *line,
                        const int32_t *pid);
/* Writes the next record, of at most GPUSYM_NOTICE_MAX bytes. The last one of all ranks has been read. */
void gpusym_notices_write(gpusym_notices_t *n, const void *record, uint32_t bytes);
/* Reads the ranks' records as far as they are there, each of `bytes` bytes, into all[nranks]. True once all have been
 * read, this rank's included. A rank that never comes, or is gone, is never read. Never waits; a rank whose pages are
 * not known yet is looked for about every millisecond, which takes 100 us. */
bool gpusym_notices_read(gpusym_notices_t *n, void *all, uint32_t bytes);
/* Frees the board. This rank's line has been freed or retired, so that peers find it gone. Zeroed notices are fine. */
void gpusym_notices_close(gpusym_notices_t *n);

#endif
