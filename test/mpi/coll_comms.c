/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The communicators of the tests of all collectives, see coll_comms.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/coll_comms.h"
#include "test/mpi/ref.h"

void coll_comm_of(coll_comm_t *c, MPI_Comm comm, const char *name)
{
    int inter;

    memset(c, 0, sizeof(*c));
    c->comm = comm;
    c->name = name;
    if (MPI_COMM_NULL == comm) {
        return;
    }
    MPI_Comm_rank(comm, &c->me);
    MPI_Comm_size(comm, &c->n);
    MPI_Comm_test_inter(comm, &inter);
    c->inter = inter;
    c->peers = c->n;
    if (inter) {
        MPI_Comm_remote_size(comm, &c->peers);
    }
    if (c->n > COLL_PEERS || c->peers > COLL_PEERS) {
        fprintf(stderr, "the tests of collectives are written for %d ranks at most\n", COLL_PEERS);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
}

void coll_comm_dup(coll_comm_t *c, MPI_Comm base)
{
    MPI_Comm comm;

    MPI_Comm_dup(base, &comm);
    coll_comm_of(c, comm, "a duplicate");
}

void coll_comm_split(coll_comm_t *c, MPI_Comm base, int color, int key, const char *name)
{
    MPI_Comm comm;

    MPI_Comm_split(base, color, key, &comm);
    coll_comm_of(c, comm, name);
    c->salt = ref_mix((uint64_t) color);
}

void coll_comm_reversed(coll_comm_t *c, MPI_Comm base)
{
    int rank;

    MPI_Comm_rank(base, &rank);
    coll_comm_split(c, base, 0, -rank, "the ranks reversed");
}

void coll_comm_inter(coll_comm_t *c, MPI_Comm base, int first)
{
    MPI_Comm local, comm;
    int rank;

    MPI_Comm_rank(base, &rank);
    MPI_Comm_split(base, rank < first ? 0 : 1, rank, &local);
    MPI_Intercomm_create(local, 0, base, rank < first ? first : 0, 7, &comm);
    MPI_Comm_free(&local);
    coll_comm_of(c, comm, "an intercommunicator");
    c->group = rank < first ? 0 : 1;
}

void coll_comm_cart(coll_comm_t *c, MPI_Comm base, bool periodic, bool plane)
{
    int dims[2], periods[2] = {periodic, 0}, n, ndims;
    MPI_Comm comm;

    MPI_Comm_size(base, &n);
    plane = plane && n >= 4 && 0 == n % 2;
    dims[0] = plane ? n / 2 : n;
    dims[1] = 2;
    periods[0] = periodic && dims[0] >= 3; /* of two, both neighbours would be the same rank */
    ndims = plane ? 2 : 1;
    MPI_Cart_create(base, ndims, dims, periods, 0, &comm);
    coll_comm_of(c, comm, plane ? "a Cartesian plane" : periods[0] ? "a Cartesian ring" : "a Cartesian line");
    c->topology = true;
    c->nfrom = c->nto = 2 * ndims;
    for (int d = 0; d < ndims; d++) {
        MPI_Cart_shift(comm, d, 1, &c->from[2 * d], &c->from[2 * d + 1]);
        c->to[2 * d] = c->from[2 * d];
        c->to[2 * d + 1] = c->from[2 * d + 1];
    }
}

static bool edge(uint64_t seed, int from, int to)
{
    uint64_t x = ref_mix(seed + (uint64_t) from * 1000 + (uint64_t) to);

    return 0 == x % 2 && 0 != ref_mix(seed + 1000000 + (uint64_t) from) % 4 &&
           0 != ref_mix(seed + 2000000 + (uint64_t) to) % 4;
}

void coll_comm_graph(coll_comm_t *c, MPI_Comm base, uint64_t seed)
{
    int from[COLL_PEERS] = {0}, to[COLL_PEERS] = {0}, nfrom = 0, nto = 0, rank, n;
    int weights[COLL_PEERS] = {0};
    MPI_Comm comm;

    MPI_Comm_rank(base, &rank);
    MPI_Comm_size(base, &n);
    for (int i = 0; i < n && i < COLL_PEERS; i++) {
        int other = (i + (int) (ref_mix(seed + (uint64_t) rank) % (uint64_t) n)) % n; /* any order of neighbours */

        if (edge(seed, other, rank)) {
            from[nfrom++] = other;
        }
        if (edge(seed, rank, n - 1 - other)) {
            to[nto++] = n - 1 - other;
        }
    }
    MPI_Dist_graph_create_adjacent(base, nfrom, from, weights, nto, to, weights, MPI_INFO_NULL, 0, &comm);
    coll_comm_of(c, comm, "a graph");
    c->topology = true;
    c->nfrom = nfrom;
    c->nto = nto;
    memcpy(c->from, from, sizeof(from));
    memcpy(c->to, to, sizeof(to));
}

void coll_comm_free(coll_comm_t *c)
{
    if (MPI_COMM_NULL != c->comm && MPI_COMM_WORLD != c->comm && MPI_COMM_SELF != c->comm) {
        MPI_Comm_free(&c->comm);
    }
    c->comm = MPI_COMM_NULL;
}
