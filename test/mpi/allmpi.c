/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * All collectives of MPI on host buffers: blocking, nonblocking and persistent; on MPI_COMM_WORLD,
 * MPI_COMM_SELF, a duplicate, a split and an intercommunicator; neighbourhood collectives on a
 * Cartesian grid; every result checked.  What "mpirun --mca coll gpusym" must leave working.
 * Any number of ranks (intercommunicators from 2 on).
 *
 * Prints "allmpi: N passed, M failed" and exits with 1 if a check failed on any rank.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/persistent.h"

enum { BLOCKING, NONBLOCKING, PERSISTENT, MODES };
static const char *const mode_name[] = {"blocking", "nonblocking", "persistent"};

#define COUNT 3        /* elements a rank has for another */
#define ROOM (1 << 16) /* elements of a buffer: COUNT * 2 * ranks^2 must fit */
#define POISON (-77)
#define TESTS_MAX 4096

static int in[ROOM], out[ROOM];
static int counts[1024], displs[1024], counts2[1024], displs2[1024];
static MPI_Datatype types[1024];

static int world_rank, world_size;
static unsigned char failed[TESTS_MAX];
static int tests;

/* A communicator as the tests see it.  On an intracommunicator a rank's peers are its own group. */
typedef struct {
    const char *name;
    MPI_Comm comm;
    bool inter;
    int group;      /* 0 or 1; always 0 on an intracommunicator */
    int me, n;      /* in the local group */
    int peers;      /* size of the group that this rank's data go to and come from */
    int peer_group; /* its number */
    int mode;
} ctx_t;

/* Calls a collective in the mode of the context; prep fills the buffers and precedes every start. */
#define DO(prep, Name, Iname, ...)                                    \
    do {                                                              \
        MPI_Request req_;                                             \
        prep;                                                         \
        if (BLOCKING == c->mode) {                                    \
            MPI_##Name(__VA_ARGS__);                                  \
        } else if (NONBLOCKING == c->mode) {                          \
            MPI_##Iname(__VA_ARGS__, &req_);                          \
            MPI_Wait(&req_, MPI_STATUS_IGNORE);                       \
        } else {                                                      \
            PERSISTENT_INIT(Name)(__VA_ARGS__, MPI_INFO_NULL, &req_); \
            for (int start_ = 0; start_ < 2; ++start_) {              \
                prep;                                                 \
                MPI_Start(&req_);                                     \
                MPI_Wait(&req_, MPI_STATUS_IGNORE);                   \
            }                                                         \
            MPI_Request_free(&req_);                                  \
        }                                                             \
    } while (0)

/* What rank `from` of a group sends as its i-th element to rank `to`. */
static int value(int group, int from, int to, int i)
{
    return 1 + group * 100000 + from * 1000 + to * 10 + i;
}

/* in: COUNT elements for each of `to` ranks; out: poison. */
static void fill(const ctx_t *c, int to)
{
    for (int t = 0; t < to; ++t) {
        for (int i = 0; i < COUNT; ++i) {
            in[t * COUNT + i] = value(c->group, c->me, t, i);
        }
    }
    for (int i = 0; i < ROOM; ++i) {
        out[i] = POISON;
    }
}

/* Whether out holds at offset `at` what `from` of the peers sent to `to`. */
static bool got(const ctx_t *c, int at, int from, int to)
{
    for (int i = 0; i < COUNT; ++i) {
        if (out[at + i] != value(c->peer_group, from, to, i)) {
            return false;
        }
    }
    return true;
}

static bool untouched(int from, int to)
{
    for (int i = from; i < to; ++i) {
        if (POISON != out[i]) {
            return false;
        }
    }
    return true;
}

/* The sum over ranks [first, last) of the peers of element i of what they have for `to`. */
static int sum(const ctx_t *c, int first, int last, int to, int i)
{
    int s = 0;

    for (int r = first; r < last; ++r) {
        s += value(c->peer_group, r, to, i);
    }
    return s;
}

/* Rooted collectives: the root is rank `r` of group 0; on an intercommunicator the leaves are group 1. */
static int root_arg(const ctx_t *c, int r)
{
    if (!c->inter || 1 == c->group) {
        return r;
    }
    return c->me == r ? MPI_ROOT : MPI_PROC_NULL;
}

static bool is_root(const ctx_t *c, int r)
{
    return 0 == c->group && c->me == r;
}

static bool is_leaf(const ctx_t *c)
{
    return !c->inter || 1 == c->group;
}

/* Counts and displacements with gaps: COUNT elements for each, one element apart. */
#define GAP (COUNT + 1)
static void spread(int *count, int *displ, int n)
{
    for (int i = 0; i < n; ++i) {
        count[i] = COUNT;
        displ[i] = i * GAP;
    }
}

/* ---- the 17 collectives; each returns whether this rank's result is right ---------------------- */

static bool test_barrier(const ctx_t *c)
{
    DO((void) 0, Barrier, Ibarrier, c->comm);
    return true;
}

static bool test_bcast(const ctx_t *c)
{
    const int root = c->inter || 1 == c->n ? 0 : 1;

    DO((fill(c, 1), is_root(c, root) ? (void) memcpy(out, in, sizeof(int) * COUNT) : (void) 0), Bcast, Ibcast, out,
       COUNT, MPI_INT, root_arg(c, root), c->comm);
    if (!is_leaf(c)) {
        return is_root(c, root) || untouched(0, COUNT);
    }
    return got(c, 0, root, 0) && untouched(COUNT, COUNT + 8);
}

static bool test_gather(const ctx_t *c)
{
    bool ok = true;

    DO(fill(c, 1), Gather, Igather, in, COUNT, MPI_INT, out, COUNT, MPI_INT, root_arg(c, 0), c->comm);
    for (int r = 0; is_root(c, 0) && r < c->peers; ++r) {
        ok = ok && got(c, r * COUNT, r, 0);
    }
    return ok;
}

static bool test_gatherv(const ctx_t *c)
{
    bool ok = true;

    spread(counts, displs, c->peers);
    DO(fill(c, 1), Gatherv, Igatherv, in, COUNT, MPI_INT, out, counts, displs, MPI_INT, root_arg(c, 0), c->comm);
    for (int r = 0; is_root(c, 0) && r < c->peers; ++r) {
        ok = ok && got(c, r * GAP, r, 0) && untouched(r * GAP + COUNT, r * GAP + GAP);
    }
    return ok;
}

static bool test_scatter(const ctx_t *c)
{
    DO(fill(c, c->peers), Scatter, Iscatter, in, COUNT, MPI_INT, out, COUNT, MPI_INT, root_arg(c, 0), c->comm);
    return !is_leaf(c) || (got(c, 0, 0, c->me) && untouched(COUNT, COUNT + 8));
}

static bool test_scatterv(const ctx_t *c)
{
    spread(counts, displs, c->peers);
    for (int r = 0; r < c->peers; ++r) {
        displs[r] = r * COUNT;
    }
    DO(fill(c, c->peers), Scatterv, Iscatterv, in, counts, displs, MPI_INT, out, COUNT, MPI_INT, root_arg(c, 0),
       c->comm);
    return !is_leaf(c) || (got(c, 0, 0, c->me) && untouched(COUNT, COUNT + 8));
}

static bool test_allgather(const ctx_t *c)
{
    bool ok = true;

    DO(fill(c, 1), Allgather, Iallgather, in, COUNT, MPI_INT, out, COUNT, MPI_INT, c->comm);
    for (int r = 0; r < c->peers; ++r) {
        ok = ok && got(c, r * COUNT, r, 0);
    }
    return ok;
}

static bool test_allgatherv(const ctx_t *c)
{
    bool ok = true;

    spread(counts, displs, c->peers);
    DO(fill(c, 1), Allgatherv, Iallgatherv, in, COUNT, MPI_INT, out, counts, displs, MPI_INT, c->comm);
    for (int r = 0; r < c->peers; ++r) {
        ok = ok && got(c, r * GAP, r, 0) && untouched(r * GAP + COUNT, r * GAP + GAP);
    }
    return ok;
}

static bool test_alltoall(const ctx_t *c)
{
    bool ok = true;

    DO(fill(c, c->peers), Alltoall, Ialltoall, in, COUNT, MPI_INT, out, COUNT, MPI_INT, c->comm);
    for (int r = 0; r < c->peers; ++r) {
        ok = ok && got(c, r * COUNT, r, c->me);
    }
    return ok;
}

static bool test_alltoallv(const ctx_t *c)
{
    bool ok = true;

    spread(counts, displs, c->peers);
    spread(counts2, displs2, c->peers);
    for (int r = 0; r < c->peers; ++r) {
        displs[r] = r * COUNT;
    }
    DO(fill(c, c->peers), Alltoallv, Ialltoallv, in, counts, displs, MPI_INT, out, counts2, displs2, MPI_INT, c->comm);
    for (int r = 0; r < c->peers; ++r) {
        ok = ok && got(c, r * GAP, r, c->me) && untouched(r * GAP + COUNT, r * GAP + GAP);
    }
    return ok;
}

static bool test_alltoallw(const ctx_t *c)
{
    bool ok = true;

    spread(counts, displs, c->peers);
    spread(counts2, displs2, c->peers);
    for (int r = 0; r < c->peers; ++r) {
        displs[r] = r * COUNT * (int) sizeof(int);
        displs2[r] *= (int) sizeof(int);
        types[r] = MPI_INT;
    }
    DO(fill(c, c->peers), Alltoallw, Ialltoallw, in, counts, displs, types, out, counts2, displs2, types, c->comm);
    for (int r = 0; r < c->peers; ++r) {
        ok = ok && got(c, r * GAP, r, c->me) && untouched(r * GAP + COUNT, r * GAP + GAP);
    }
    return ok;
}

/* out[i] against the sum over ranks [first, last) */
static bool summed(const ctx_t *c, int first, int last)
{
    for (int i = 0; i < COUNT; ++i) {
        if (out[i] != sum(c, first, last, 0, i)) {
            return false;
        }
    }
    return untouched(COUNT, COUNT + 8);
}

static bool test_reduce(const ctx_t *c)
{
    DO(fill(c, 1), Reduce, Ireduce, in, out, COUNT, MPI_INT, MPI_SUM, root_arg(c, 0), c->comm);
    return !is_root(c, 0) || summed(c, 0, c->peers);
}

static bool test_allreduce(const ctx_t *c)
{
    DO(fill(c, 1), Allreduce, Iallreduce, in, out, COUNT, MPI_INT, MPI_SUM, c->comm);
    return summed(c, 0, c->peers);
}

/* Each rank of a group gets per elements; on an intercommunicator per * n is the same in both groups. */
static bool scattered(const ctx_t *c, int per)
{
    for (int i = 0; i < per; ++i) {
        const int e = c->me * per + i; /* of the reduced vector */

        if (out[i] != sum(c, 0, c->peers, e / COUNT, e % COUNT)) {
            return false;
        }
    }
    return untouched(per, per + 8);
}

static bool test_reduce_scatter(const ctx_t *c)
{
    const int per = 2 * c->peers;

    for (int r = 0; r < c->n; ++r) {
        counts[r] = per;
    }
    DO(fill(c, per * c->n / COUNT + 1), Reduce_scatter, Ireduce_scatter, in, out, counts, MPI_INT, MPI_SUM, c->comm);
    return scattered(c, per);
}

static bool test_reduce_scatter_block(const ctx_t *c)
{
    const int per = 2 * c->peers;

    DO(fill(c, per * c->n / COUNT + 1), Reduce_scatter_block, Ireduce_scatter_block, in, out, per, MPI_INT, MPI_SUM,
       c->comm);
    return scattered(c, per);
}

static bool test_scan(const ctx_t *c)
{
    DO(fill(c, 1), Scan, Iscan, in, out, COUNT, MPI_INT, MPI_SUM, c->comm);
    return summed(c, 0, c->me + 1);
}

static bool test_exscan(const ctx_t *c)
{
    DO(fill(c, 1), Exscan, Iexscan, in, out, COUNT, MPI_INT, MPI_SUM, c->comm);
    return 0 == c->me || summed(c, 0, c->me);
}

/* ---- variants of what we replace -------------------------------------------------------------- */

static bool test_allreduce_in_place(const ctx_t *c)
{
    DO((fill(c, 1), memcpy(out, in, sizeof(int) * COUNT)), Allreduce, Iallreduce, MPI_IN_PLACE, out, COUNT, MPI_INT,
       MPI_SUM, c->comm);
    return summed(c, 0, c->peers);
}

static void add_user(void *a, void *b, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n; ++i) {
        ((int *) b)[i] += ((const int *) a)[i];
    }
}

static bool test_allreduce_user_op(const ctx_t *c)
{
    MPI_Op op;

    MPI_Op_create(add_user, 1, &op);
    DO(fill(c, 1), Allreduce, Iallreduce, in, out, COUNT, MPI_INT, op, c->comm);
    MPI_Op_free(&op);
    return summed(c, 0, c->peers);
}

/* A derived type with a gap, user operation over its elements. */
static void add_every_other(void *a, void *b, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n; ++i) {
        ((int *) b)[2 * i] += ((const int *) a)[2 * i];
    }
}

static bool test_allreduce_derived(const ctx_t *c)
{
    MPI_Datatype type;
    MPI_Op op;
    bool ok = true;

    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &type);
    MPI_Type_commit(&type);
    MPI_Op_create(add_every_other, 1, &op);
    DO(fill(c, 2), Allreduce, Iallreduce, in, out, COUNT, type, op, c->comm);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    for (int i = 0; i < COUNT; ++i) {
        ok = ok && out[2 * i] == sum(c, 0, c->peers, 2 * i / COUNT, 2 * i % COUNT) && POISON == out[2 * i + 1];
    }
    return ok;
}

static bool test_allreduce_zero(const ctx_t *c)
{
    DO(fill(c, 1), Allreduce, Iallreduce, in, out, 0, MPI_INT, MPI_SUM, c->comm);
    return untouched(0, COUNT);
}

static bool test_reduce_local(const ctx_t *c)
{
    bool ok = true;

    fill(c, 1);
    for (int i = 0; i < COUNT; ++i) {
        out[i] = i;
    }
    MPI_Reduce_local(in, out, COUNT, MPI_INT, MPI_SUM);
    for (int i = 0; i < COUNT; ++i) {
        ok = ok && out[i] == in[i] + i;
    }
    return ok;
}

/* ---- neighbours on a line: rank - 1 and rank + 1, nobody beyond the ends ------------------------ */

/* What must lie at out[at] of the neighbour on side 0 or 1, sent to our side of him (to_side) or to all. */
static bool neighbour_got(const ctx_t *c, int at, int side, bool to_side)
{
    const int who = c->me + (0 == side ? -1 : 1);

    if (who < 0 || who >= c->n) {
        return untouched(at, at + COUNT);
    }
    return got(c, at, who, to_side ? 1 - side : 0);
}

static bool test_neighbor_allgather(const ctx_t *c)
{
    DO(fill(c, 1), Neighbor_allgather, Ineighbor_allgather, in, COUNT, MPI_INT, out, COUNT, MPI_INT, c->comm);
    return neighbour_got(c, 0, 0, false) && neighbour_got(c, COUNT, 1, false);
}

static bool test_neighbor_allgatherv(const ctx_t *c)
{
    spread(counts, displs, 2);
    DO(fill(c, 1), Neighbor_allgatherv, Ineighbor_allgatherv, in, COUNT, MPI_INT, out, counts, displs, MPI_INT,
       c->comm);
    return neighbour_got(c, 0, 0, false) && neighbour_got(c, GAP, 1, false);
}

static bool test_neighbor_alltoall(const ctx_t *c)
{
    DO(fill(c, 2), Neighbor_alltoall, Ineighbor_alltoall, in, COUNT, MPI_INT, out, COUNT, MPI_INT, c->comm);
    return neighbour_got(c, 0, 0, true) && neighbour_got(c, COUNT, 1, true);
}

static bool test_neighbor_alltoallv(const ctx_t *c)
{
    spread(counts, displs, 2);
    spread(counts2, displs2, 2);
    displs[1] = COUNT;
    DO(fill(c, 2), Neighbor_alltoallv, Ineighbor_alltoallv, in, counts, displs, MPI_INT, out, counts2, displs2, MPI_INT,
       c->comm);
    return neighbour_got(c, 0, 0, true) && neighbour_got(c, GAP, 1, true);
}

static bool test_neighbor_alltoallw(const ctx_t *c)
{
    const MPI_Aint from[2] = {0, COUNT * sizeof(int)};
    const MPI_Aint to[2] = {0, GAP * sizeof(int)};
    const MPI_Datatype ints[2] = {MPI_INT, MPI_INT};

    spread(counts, displs, 2);
    DO(fill(c, 2), Neighbor_alltoallw, Ineighbor_alltoallw, in, counts, from, ints, out, counts, to, ints, c->comm);
    return neighbour_got(c, 0, 0, true) && neighbour_got(c, GAP, 1, true);
}

/* ---- what runs where --------------------------------------------------------------------------- */

enum { INTRA = 1, INTER = 2, CART = 4, ALL = INTRA | INTER };

static const struct {
    const char *name;
    bool (*test)(const ctx_t *c);
    int where;
} list[] = {
    {"barrier", test_barrier, ALL},
    {"bcast", test_bcast, ALL},
    {"gather", test_gather, ALL},
    {"gatherv", test_gatherv, ALL},
    {"scatter", test_scatter, ALL},
    {"scatterv", test_scatterv, ALL},
    {"allgather", test_allgather, ALL},
    {"allgatherv", test_allgatherv, ALL},
    {"alltoall", test_alltoall, ALL},
    {"alltoallv", test_alltoallv, ALL},
    {"alltoallw", test_alltoallw, ALL},
    {"reduce", test_reduce, ALL},
    {"allreduce", test_allreduce, ALL},
    {"reduce_scatter", test_reduce_scatter, ALL},
    {"reduce_scatter_block", test_reduce_scatter_block, ALL},
    {"scan", test_scan, INTRA},
    {"exscan", test_exscan, INTRA},
    {"allreduce, in place", test_allreduce_in_place, INTRA},
    {"allreduce, user operation", test_allreduce_user_op, ALL},
    {"allreduce, derived type", test_allreduce_derived, ALL},
    {"allreduce, nothing", test_allreduce_zero, ALL},
    {"reduce_local", test_reduce_local, INTRA},
    {"neighbor_allgather", test_neighbor_allgather, CART},
    {"neighbor_allgatherv", test_neighbor_allgatherv, CART},
    {"neighbor_alltoall", test_neighbor_alltoall, CART},
    {"neighbor_alltoallv", test_neighbor_alltoallv, CART},
    {"neighbor_alltoallw", test_neighbor_alltoallw, CART},
};

/* Every test that runs on such a communicator, in every mode.  All ranks number the tests alike. */
static void run(const char *name, MPI_Comm comm, int where)
{
    ctx_t c = {.name = name, .comm = comm};
    int inter;

    MPI_Comm_test_inter(comm, &inter);
    MPI_Comm_rank(comm, &c.me);
    MPI_Comm_size(comm, &c.n);
    c.peers = c.n;
    c.inter = inter;
    if (inter) {
        MPI_Comm_remote_size(comm, &c.peers);
        c.group = world_rank % 2;
        c.peer_group = 1 - c.group;
    }
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); ++i) {
        for (c.mode = 0; 0 != (list[i].where & where) && c.mode < MODES; ++c.mode) {
            if (tests == TESTS_MAX) {
                fprintf(stderr, "allmpi: too many tests\n");
                MPI_Abort(MPI_COMM_WORLD, 2);
            }
            failed[tests] = !list[i].test(&c);
            if (failed[tests]) {
                fprintf(stderr, "allmpi: FAILED: %s, %s, on %s, rank %d of %d\n", list[i].name, mode_name[c.mode], name,
                        c.me, c.n);
            }
            ++tests;
        }
    }
}

/* Even and odd ranks of the world, as two groups that talk to each other. */
static void run_inter(void)
{
    MPI_Comm half, inter;

    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - world_rank % 2, 9, &inter);
    run("a split", half, INTRA);
    run("an intercommunicator", inter, INTER);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

static void run_cart(void)
{
    const int dims[1] = {world_size}, periods[1] = {0};
    MPI_Comm cart;

    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &cart);
    run("a Cartesian communicator", cart, CART | INTRA);
    MPI_Comm_free(&cart);
}

/* Rank 0 learns, without a collective, what failed anywhere; returns the number of failed tests. */
static int collect(void)
{
    static unsigned char theirs[TESTS_MAX];
    int n = 0;

    if (0 != world_rank) {
        MPI_Send(failed, TESTS_MAX, MPI_UNSIGNED_CHAR, 0, 1, MPI_COMM_WORLD);
        MPI_Recv(&n, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return n;
    }
    for (int r = 1; r < world_size; ++r) {
        MPI_Recv(theirs, TESTS_MAX, MPI_UNSIGNED_CHAR, r, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int t = 0; t < tests; ++t) {
            failed[t] |= theirs[t];
        }
    }
    for (int t = 0; t < tests; ++t) {
        n += failed[t];
    }
    for (int r = 1; r < world_size; ++r) {
        MPI_Send(&n, 1, MPI_INT, r, 2, MPI_COMM_WORLD);
    }
    return n;
}

int main(int argc, char **argv)
{
    MPI_Comm dup;
    int n;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (world_size > 64) {
        fprintf(stderr, "allmpi: at most 64 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    run("MPI_COMM_WORLD", MPI_COMM_WORLD, INTRA);
    run("MPI_COMM_SELF", MPI_COMM_SELF, INTRA);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    run("a duplicate", dup, INTRA);
    MPI_Comm_free(&dup);
    run_cart();
    if (world_size > 1) {
        run_inter();
    }
    n = collect();
    if (0 == world_rank) {
        printf("allmpi: %d passed, %d failed\n", tests - n, n);
    }
    MPI_Finalize();
    return 0 == n ? 0 : 1;
}
