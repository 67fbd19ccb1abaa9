/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * This process's end of the net between hosts, which all of its communicators share.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_WORKER_H
#define MCA_COLL_GPUSYM_TEAM_WORKER_H

#include "mca/coll/gpusym/team/peers.h"
#include "mca/common/gpusym/rail/worker.h"

/* Opens it at the first call, which takes 20 to 100 ms, with devices that lead to the hosts of n processes. Returns as
 * below. Any thread. */
gpusym_worker_t *coll_gpusym_worker_open(coll_gpusym_peer_t *const *peer, uint32_t n);
/* Returns it; NULL: it is not open, or this process has none. Any thread. */
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

/* Bytes for the addresses of processes in the net with which cards are exchanged first; multiples of 8. That of a
 * process with dozens of network interfaces is longer, and cards are exchanged once more then. */
#define COLL_GPUSYM_ADDRESS_ROOM 1000u
#define COLL_GPUSYM_ADDRESS_MAX (64u << 10)
/* What a rank tells all ranks of the communicator at the end of the bootstrap. */
typedef struct {
    uint64_t token; /* random */
    int32_t error;  /* errno of what it could not map in its island; 0: nothing */
    uint32_t bytes; /* of the address; 0: it has no net */
    uint32_t piece; /* bytes of the longest pieces that its rails have memory for */
    uint32_t room;  /* bytes for the address, on all ranks as many */
    char address[]; /* if there is room for it */
} coll_gpusym_host_card_t;
/* Of the cards of all ranks. */
static inline coll_gpusym_host_card_t *coll_gpusym_card(coll_gpusym_host_card_t *cards, uint32_t rank)
{
    return (coll_gpusym_host_card_t *) (void *) ((char *) cards + rank * (sizeof *cards + cards->room));
}
/* Fills in this rank's token and, if there is room, its address. */
void coll_gpusym_worker_describe(coll_gpusym_host_card_t *card);

#endif
