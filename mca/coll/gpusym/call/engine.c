/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine of a communicator: see engine.h.
 */
#include "mca/coll/gpusym/call/engine.h"

#include <stdlib.h>

#include "mca/coll/gpusym/conf/params.h"

void coll_gpusym_engine_init(coll_gpusym_engine_t *e, coll_gpusym_fallback_t *fallback)
{
    struct ompi_communicator_t *comm = fallback->comm;
    e->fallback = fallback;
    e->alone = !OMPI_COMM_IS_INTER(comm) && 1 == ompi_comm_size(comm);
    e->apart = e->alone || OMPI_COMM_IS_INTER(comm); /* others: found by coll_gpusym_engine_find_team() */
    e->reason_apart = e->alone ? COLL_GPUSYM_R_NO_NATIVE : COLL_GPUSYM_R_INTER;
    e->last = &e->first;
}

static void free_states(coll_gpusym_engine_t *e)
{
    free(e->residents);
    free(e->cache);
    e->residents = NULL;
    e->cache = NULL;
}

int coll_gpusym_engine_find_team(coll_gpusym_engine_t *e)
{
    int reason = -1;
    e->residents = calloc(1, sizeof *e->residents);
    e->cache = calloc(1, sizeof *e->cache);
    const int rv = NULL != e->residents && NULL != e->cache ? coll_gpusym_team_create(e->fallback, &e->team, &reason)
                                                            : OMPI_ERR_OUT_OF_RESOURCE;
    if (NULL == e->team) {
        free_states(e);
        e->apart = MPI_SUCCESS == rv;
        e->reason_apart = reason;
    }
    return rv;
}

void coll_gpusym_engine_meet(coll_gpusym_engine_t *e, const gpusym_mem_t *where)
{
    int reason;
    /* Calls do not use islands yet. Their teams would take memory of the heap from communicators that use it. */
    if (COLL_GPUSYM_R_BETWEEN != e->reason_apart || 0 == coll_gpusym_params.node_size) {
        return;
    }
    if (!e->island_found) {
        if (NULL == where) {
            return; /* a later call will have a buffer on the GPU */
        }
        e->island_found = MPI_SUCCESS == coll_gpusym_team_create_island(e->fallback, &e->island, &reason);
        e->reason_apart = e->island_found && reason >= 0 ? reason : e->reason_apart;
    }
    if (NULL != e->island) {
        coll_gpusym_team_meet(e->island, where);
    }
}

void coll_gpusym_engine_end(coll_gpusym_engine_t *e)
{
    if (NULL != e->residents) {
        coll_gpusym_residents_end(e->residents);
    }
    coll_gpusym_windows_free(&e->windows);
    coll_gpusym_team_free(e->team);
    coll_gpusym_team_free(e->island);
    e->team = e->island = NULL;
    free_states(e);
}
