/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Epochs: see epochs.h.
 */
#include "mca/coll/gpusym/team/epochs.h"

#include "mca/coll/gpusym/team/exchange.h"
#include "mca/common/gpusym/gpusym.h"

/* The barriers before and behind the clearing of slots. */
#define BARRIERS 2u

/* Old flags would pass for new ones: clears the slots while no rank writes to them. 1: all have; 0: not yet; negative:
 * this one failed. */
static int clear_slots(coll_gpusym_team_t *t)
{
    const coll_gpusym_fallback_t *f = t->fallback;
    for (;;) {
        const int passed = 0 != t->host.barrier ? coll_gpusym_exchange_poll(t) : 1;
        if (1 != passed || BARRIERS == t->host.barrier) {
            return passed;
        }
        if (1 == t->host.barrier &&
            GPUSYM_SUCCESS !=
                gpusym_current.dev->mem_zero(t->host.gpu, t->host.work.peer[t->host.rank], t->host.slot_size)) {
            return OMPI_ERROR;
        }
        if (MPI_SUCCESS != f->saved.ibarrier(f->comm, &t->boot.exchange, f->saved.ibarrier_module)) {
            return OMPI_ERROR;
        }
        t->host.barrier++;
    }
}

int coll_gpusym_team_epochs(coll_gpusym_team_t *t, uint64_t epochs, uint32_t *first)
{
    if (t->host.epoch_base + t->host.rc.seq + epochs > GPUSYM_EPOCH_MAX) {
        const int cleared = clear_slots(t);
        if (1 != cleared) {
            return cleared;
        }
        t->host.barrier = 0;
        t->host.epoch_base = 1 - t->host.rc.seq;
    }
    *first = (uint32_t) (t->host.epoch_base + t->host.rc.seq);
    t->host.epoch_base += epochs - 1; /* the next call's number is one more */
    return 1;
}
