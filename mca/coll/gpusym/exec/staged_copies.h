/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Staged copies: a collective that moves bytes, through staging buffers, between buffers that kernels do not reach. The
 * sender copies segments of its data into its staging buffer (memory/staging_buffer.h), the receiver copies them out;
 * either buffer is GPU or host memory. Up to some segments of each pair of ranks are under way, so that copies in both
 * directions overlap. No message is sent, and nothing waits.
 *
 * What a rank sends is described by its board, in its staging buffer: one flow for each receiver, or one that all of
 * them read. A receiver acknowledges what it has copied, and at last that it will not read the board again.
 */
#ifndef MCA_COLL_GPUSYM_EXEC_STAGED_COPIES_H
#define MCA_COLL_GPUSYM_EXEC_STAGED_COPIES_H

#include "mca/coll/gpusym/plan/segments.h"
#include "mca/common/gpusym/memory/staging_buffer.h"

/* The staging buffers of a communicator's ranks. Zeroed before its first use. */
typedef struct {
    int agreed;                   /* 1: all ranks have mapped all; -1: some rank cannot; 0: not known yet */
    bool voted;                   /* this rank has, in the call that finds out */
    gpusym_staging_buffer_t **of; /* [ranks], owned; of[rank] is ours */
} coll_gpusym_staging_buffers_t;

/* Finds the staging buffers, in call seq, which all ranks have posted; makes ours. Never waits. Sets w->agreed once all
 * ranks know; until then it is 0. The call may be any in which all ranks do this. */
void coll_gpusym_staging_buffers_poll(coll_gpusym_staging_buffers_t *w, gpusym_agreement_t *rc, uint64_t seq);
/* Frees what is known of them. */
void coll_gpusym_staging_buffers_free(coll_gpusym_staging_buffers_t *w);

/* The staged copies of a call, in progress. */
typedef struct coll_gpusym_staged_copies coll_gpusym_staged_copies_t;

/* Begins this rank's part of call seq, which all ranks have posted and agreed to copy so; the staging buffers are
 * agreed. k, rc and w outlive it. b: of its arguments. NULL: no host memory. */
coll_gpusym_staged_copies_t *coll_gpusym_staged_copies_begin(const coll_gpusym_segments_t *k,
                                                             const coll_gpusym_buffers_t *b,
                                                             const gpusym_agreement_t *rc,
                                                             const coll_gpusym_staging_buffers_t *w, uint64_t seq);
typedef enum {
    COLL_GPUSYM_STAGED_COPIES_GOES_ON,
    COLL_GPUSYM_STAGED_COPIES_ENDED,
    COLL_GPUSYM_STAGED_COPIES_TRUNCATED, /* ended: more was sent to this rank than it has room for */
    COLL_GPUSYM_STAGED_COPIES_GPU_ERROR,
    COLL_GPUSYM_STAGED_COPIES_CORRUPT, /* rank *rank's board holds what no rank writes */
} coll_gpusym_staged_copies_state_t;
/* Does what can be done now. Never waits. */
coll_gpusym_staged_copies_state_t coll_gpusym_staged_copies_poll(coll_gpusym_staged_copies_t *m, uint32_t *rank);
/* Starts no more copies. Returns whether all have ended: call it until then if they have not ended. */
bool coll_gpusym_staged_copies_stop(coll_gpusym_staged_copies_t *m);
/* Frees what has ended, or was stopped. Memory of the staging buffer that a peer may still read, since
 * the call has failed, is not used again. NULL is fine. */
void coll_gpusym_staged_copies_free(coll_gpusym_staged_copies_t *m);

#endif
