/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * This process's end of the net between hosts, which all of its communicators share.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_WORKER_H
#define MCA_COLL_GPUSYM_TEAM_WORKER_H

#include "mca/common/gpusym/rail/worker.h"

/* Returns it, opened at the first call, which takes 20 to 100 ms; NULL: this process has none. Any thread. */
gpusym_worker_t *coll_gpusym_worker(void);
/* Closes it, if it is open: no other thread uses it, and no communicator is left. */
void coll_gpusym_worker_fini(void);

/* Takes part of its memory for a communicator, which then never runs out of it in a call; false: so much is not left.
 * With its lock held, as for giving it back. */
bool coll_gpusym_worker_take(uint64_t bytes);
void coll_gpusym_worker_give(uint64_t bytes);

/* Bytes of a process's address in the net, at most. */
#define COLL_GPUSYM_ADDRESS_MAX 1008u
/* What a rank tells all ranks of the communicator at the end of the bootstrap. */
typedef struct {
    uint64_t token; /* random */
    int32_t error;  /* errno of what it could not map in its island; 0: nothing */
    uint32_t bytes; /* of the address; 0: it has no net */
    char address[COLL_GPUSYM_ADDRESS_MAX];
} coll_gpusym_host_card_t;
/* Fills in this rank's card, but for `error`. */
void coll_gpusym_worker_describe(coll_gpusym_host_card_t *card);

#endif
