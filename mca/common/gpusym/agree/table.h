/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Tables: what each rank of a communicator sends to every other in a call and takes from it, and where in its buffers
 * that lies. Each rank writes its own, and its peers read it, without a message.
 *
 * A table lies in the pages of its rank and has two halves, used in turn. It is made when the communicator first needs
 * one. A half is overwritten once every rank has posted a call behind the one that the half was filled for, and so has
 * ended that one.
 */
#ifndef GPUSYM_COMMON_AGREE_TABLE_H
#define GPUSYM_COMMON_AGREE_TABLE_H

#include "mca/common/gpusym/agree/agreement.h"

/* What a rank has for one peer, and takes from it. In bytes; offsets count from the buffers that the rank posts. */
typedef struct {
    uint64_t send_off, send_bytes, recv_off, recv_bytes;
} gpusym_table_row_t;

/* Makes this rank's table, if it has none. GPUSYM_ERR_NO_MEMORY: there is none, nor will there be. */
int gpusym_table_make(gpusym_agreement_t *rc);
/* Tells the peers that this rank has no memory for a table. */
void gpusym_table_lack(gpusym_agreement_t *rc);

/* Returns this rank's rows for call seq, [nranks], to be filled; NULL: a peer may still read what they hold. seq: of
 * the call in flight, or of the next one. The table is made. */
gpusym_table_row_t *gpusym_table_rows(const gpusym_agreement_t *rc, uint64_t seq);
/* Returns whether peer r may still read what the next call's rows hold: why gpusym_table_rows() returns NULL. */
bool gpusym_table_awaits(const gpusym_agreement_t *rc, uint32_t r);
/* Publishes these rows. Does not wait. A peer that has read this rank's entry of a later post finds them. */
void gpusym_table_publish(gpusym_agreement_t *rc, uint64_t seq);

/* What a peer's table says of a call. */
typedef enum {
    GPUSYM_TABLE_WAITING, /* the rank has not filled it for that call, and may do so yet */
    GPUSYM_TABLE_THERE,
    GPUSYM_TABLE_LACKING, /* the rank has no memory for a table */
    GPUSYM_TABLE_CORRUPT, /* no rank writes that */
} gpusym_table_state_t;
/* Finds rank r's rows for call seq, [nranks], set if they are there. They hold until this rank has posted a later
 * call. */
gpusym_table_state_t gpusym_table_find(const gpusym_agreement_t *rc, uint32_t r, uint64_t seq,
                                       const gpusym_table_row_t **rows);

#endif
