/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The arrays of a nonblocking call's arguments, kept.  MPI wants a program to keep them until the call has completed,
 * but other MPIs read them before the call returns, and programs have come to free them then (mpi4py's
 * Ireduce_scatter).
 */
#include "mca/coll/gpusym/args/keep.h"

#include <stdlib.h>

#include "mca/coll/gpusym/args/facts.h"
#include "ompi/communicator/communicator.h"

/* All but one fit into words of eight bytes, whatever this Open MPI's counts are. */
typedef struct {
    uint64_t *words; /* what is left; NULL: only count them */
    size_t used;     /* words */
} room_t;

static void *take_words(room_t *room, size_t n)
{
    void *p = NULL != room->words ? room->words + room->used : NULL;
    room->used += n;
    return p;
}

static void keep_counts(room_t *room, gpusym_counts_t *counts, size_t n)
{
    void *to = take_words(room, n);
    if (NULL != to) {
        *counts = gpusym_counts_copy(to, *counts, n);
    }
}

static void keep_types(room_t *room, struct ompi_datatype_t *const **types, size_t n)
{
    struct ompi_datatype_t **to = take_words(room, n);
    for (size_t i = 0; NULL != to && i < n; i++) {
        to[i] = (*types)[i];
    }
    *types = NULL != to ? to : *types;
}

/* One side's arrays of n elements. */
static void keep_side(room_t *room, bool by_aint, size_t n, gpusym_counts_t *counts, gpusym_displs_t *displs,
                      gpusym_adispls_t *adispls, struct ompi_datatype_t *const **types)
{
    keep_counts(room, counts, n);
    void *to = take_words(room, n);
    if (NULL != to && by_aint) {
        *adispls = gpusym_adispls_copy(to, *adispls, n);
    } else if (NULL != to) {
        *displs = gpusym_displs_copy(to, *displs, n);
    }
    if (NULL != *types) {
        keep_types(room, types, n);
    }
}

/* Counts what is to be kept, or, with room for it, keeps it. */
static void keep_arrays(struct ompi_communicator_t *comm, coll_gpusym_args_t *a, room_t *room)
{
    coll_gpusym_layout_t sent, written;

    if (COLL_GPUSYM_L_PART == coll_gpusym_facts[a->coll].written) {
        keep_counts(room, &a->rcounts, (size_t) ompi_comm_size(comm));
        return;
    }
    coll_gpusym_layout(comm, a, COLL_GPUSYM_SENT, &sent);
    coll_gpusym_layout(comm, a, COLL_GPUSYM_WRITTEN, &written);
    if (sent.vector && sent.blocks > 0) {
        keep_side(room, sent.by_aint, sent.blocks, &a->scounts, &a->sdispls, &a->sadispls, &a->sdtypes);
    }
    if (written.vector && written.blocks > 0) {
        keep_side(room, written.by_aint, written.blocks, &a->rcounts, &a->rdispls, &a->radispls, &a->rdtypes);
    }
}

bool coll_gpusym_args_keep(struct ompi_communicator_t *comm, coll_gpusym_args_t *a, void **kept)
{
    room_t room = {NULL, 0};
    *kept = NULL;
    keep_arrays(comm, a, &room);
    if (0 == room.used) {
        return true;
    }
    room = (room_t){malloc(room.used * sizeof(uint64_t)), 0};
    if (NULL == room.words) {
        return false;
    }
    *kept = room.words;
    keep_arrays(comm, a, &room);
    return true;
}
