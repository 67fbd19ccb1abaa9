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
/* Tells which GPU its memory is mapped for: a verbose line, once, if its network devices are another one's. */
void coll_gpusym_worker_used_by(const gpusym_gpu_info_t *gpu);
/* Closes it, if it is open: no other thread uses it, and no communicator is left. */
void coll_gpusym_worker_fini(void);

/* With its lock held, as for the rest: how many bytes of its memory the next communicator should have at most: the
 * first half of it, others a quarter of what none has or was promised, but no less than an eighth of what none has. */
uint64_t coll_gpusym_worker_share(void);
/* Promises memory to a communicator, which shortens the shares of others until it is forgone. */
void coll_gpusym_worker_promise(uint64_t bytes);
void coll_gpusym_worker_forgo(uint64_t bytes);
/* Takes part of its memory for a communicator, which then never runs out of it in a call; false: so much is not
 * left. */
bool coll_gpusym_worker_take(uint64_t bytes);
void coll_gpusym_worker_give(uint64_t bytes);

/* Bytes of a process's address in the net, at most. */
#define COLL_GPUSYM_ADDRESS_MAX 1004u
/* What a rank tells all ranks of the communicator at the end of the bootstrap. */
typedef struct {
    uint64_t token; /* random */
    int32_t error;  /* errno of what it could not map in its island; 0: nothing */
    uint32_t bytes; /* of the address; 0: it has no net */
    uint32_t piece; /* bytes of the longest pieces that its rails have memory for */
    char address[COLL_GPUSYM_ADDRESS_MAX];
} coll_gpusym_host_card_t;
/* Fills in this rank's address and token. */
void coll_gpusym_worker_describe(coll_gpusym_host_card_t *card);

#endif
