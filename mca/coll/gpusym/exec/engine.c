/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine of a communicator: see engine.h.
 */
#include "mca/coll/gpusym/exec/engine.h"

#include <stdlib.h>

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

void coll_gpusym_engine_end(coll_gpusym_engine_t *e)
{
    if (NULL != e->residents) {
        coll_gpusym_residents_end(e->residents);
    }
    coll_gpusym_on_stream_end(e->on_stream);
    e->on_stream = NULL;
    coll_gpusym_staging_buffers_free(&e->staging_buffers);
    coll_gpusym_team_free(e->team);
    e->team = NULL;
    coll_gpusym_wishes_free(e->wish);
    e->wish = NULL;
    free_states(e);
}
