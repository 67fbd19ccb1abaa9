/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Neighbourhood collectives on device memory, where it is not enough to know which rank is whose neighbour: rings of
 * one and two ranks, grids with such dimensions, borders without a neighbour, ranks that are their own neighbours, and
 * repeated neighbours in graphs. All five collectives, blocking, nonblocking and persistent; every byte of the output
 * is compared, those between the blocks and of neighbours that are not there too. With two ranks or more, every call
 * must have been made by kernels, or by messages of GPU memory; with --messages some must have been by these. At last
 * calls in which a rank sends more than its neighbour takes, or less.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"
#include "test/mpi/mpit.h"
#include "test/mpi/persistent.h"

#define USAGE "usage: neighbors [--most COUNT] [--messages]"
enum { EDGES_MAX = 16, GAP = 3, POISON = -77 };

enum { ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW, COLLS };
static const char *const names[] = {"neighbor_allgather", "neighbor_allgatherv", "neighbor_alltoall",
                                    "neighbor_alltoallv", "neighbor_alltoallw"};
enum { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };
static const char *const forms[] = {"blocking", "nonblocking", "persistent"};
enum { RING, LINE, THIN, PAIRS, LISTS, OLD_GRAPH, TOPOLOGIES };
static const char *const topologies[] = {"a ring",          "a line",  "a grid of one column",
                                         "a grid of pairs", "a graph", "a graph by MPI_Graph_create"};

/* An edge as one of its ranks sees it. number: which it is of those from the one to the other. */
typedef struct {
    int rank, number;
} edge_t;

typedef struct {
    check_t t;
    int me, n, topology, coll, form;
    int most; /* elements of a block at most */
    MPI_Comm comm;
    edge_t from[EDGES_MAX], to[EDGES_MAX];
    int nfrom, nto;
    int *in, *out;     /* device memory, `room` elements each */
    int *image, *want; /* host memory, as much */
    size_t room;
    MPI_Datatype every_other;
} neighbors_t;

/* ---- topologies ---- */

/* Down: towards the lower rank of a dimension. What goes down comes from the upper neighbour. */
static void list_grid(neighbors_t *k, int ndims)
{
    for (int d = 0; d < ndims; d++) {
        int lower, upper;
        MPI_Cart_shift(k->comm, d, 1, &lower, &upper);
        k->to[2 * d] = (edge_t){lower, 2 * d};
        k->to[2 * d + 1] = (edge_t){upper, 2 * d + 1};
        k->from[2 * d] = (edge_t){lower, 2 * d + 1};
        k->from[2 * d + 1] = (edge_t){upper, 2 * d};
    }
    k->nfrom = k->nto = 2 * ndims;
}

static void add_edge(edge_t *list, int *n, int rank)
{
    int number = 0;
    for (int i = 0; i < *n; i++) {
        number += list[i].rank == rank;
    }
    list[(*n)++] = (edge_t){rank, number};
}

static void make_grid(neighbors_t *k, int rows, int columns, bool periodic)
{
    const int dims[2] = {rows, columns}, periods[2] = {periodic, periodic};
    const int ndims = 0 == columns ? 1 : 2;
    MPI_Cart_create(MPI_COMM_WORLD, ndims, dims, periods, 0, &k->comm);
    list_grid(k, ndims);
}

/* Where rank r sends: twice to the next rank, to itself, and to the one behind the next. */
static int list_targets(const neighbors_t *k, int r, int *to)
{
    to[0] = to[2] = (r + 1) % k->n;
    to[1] = r;
    to[3] = (r + 2) % k->n;
    return 4;
}

static void make_lists(neighbors_t *k)
{
    int to[EDGES_MAX], from[EDGES_MAX], weights[EDGES_MAX] = {0};
    const int nto = list_targets(k, k->me, to);
    for (int i = 0; i < nto; i++) {
        add_edge(k->to, &k->nto, to[i]);
    }
    for (int s = k->n - 1; s >= 0; s--) {
        int its[EDGES_MAX];
        const int n = list_targets(k, s, its);
        for (int i = 0; i < n; i++) {
            if (k->me == its[i]) {
                from[k->nfrom] = s;
                add_edge(k->from, &k->nfrom, s);
            }
        }
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, k->nfrom, from, weights, nto, to, weights, MPI_INFO_NULL, 0,
                                   &k->comm);
}

/* Each rank and both beside it, which are one of two ranks, or itself. */
static void make_old_graph(neighbors_t *k)
{
    int *ends = calloc((size_t) k->n, sizeof *ends), *edges = calloc(2 * (size_t) k->n, sizeof *edges);
    for (int r = 0; r < k->n; r++) {
        ends[r] = 2 * (r + 1);
        edges[2 * r] = (r + 1) % k->n;
        edges[2 * r + 1] = (r + k->n - 1) % k->n;
    }
    MPI_Graph_create(MPI_COMM_WORLD, k->n, ends, edges, 0, &k->comm);
    for (int i = 0; i < 2; i++) {
        add_edge(k->to, &k->nto, edges[2 * k->me + i]);
        add_edge(k->from, &k->nfrom, edges[2 * k->me + i]);
    }
    free(ends);
    free(edges);
}

static void make_topology(neighbors_t *k)
{
    k->nfrom = k->nto = 0;
    switch (k->topology) {
    case RING:
        make_grid(k, k->n, 0, true);
        break;
    case LINE:
        make_grid(k, k->n, 0, false);
        break;
    case THIN:
        make_grid(k, k->n, 1, true);
        break;
    case PAIRS:
        make_grid(k, 0 == k->n % 2 ? k->n / 2 : k->n, 0 == k->n % 2 ? 2 : 1, true);
        break;
    case LISTS:
        make_lists(k);
        break;
    default:
        make_old_graph(k);
        break;
    }
    MPI_Comm_set_errhandler(k->comm, MPI_ERRORS_ARE_FATAL);
}

/* ---- what goes where ---- */

static bool is_gather(const neighbors_t *k)
{
    return ALLGATHER == k->coll || ALLGATHERV == k->coll;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

/* Elements that go from a to b by their edge of that number. */
static int length(const neighbors_t *k, int a, int b, int number)
{
    if (ALLGATHER == k->coll || ALLTOALL == k->coll) {
        return k->most;
    }
    return (int) (mix((uint64_t) (a + 1) * 7919 + (is_gather(k) ? 0 : (uint64_t) (b * 31 + number))) %
                  ((uint64_t) k->most + 1));
}

static int value(const neighbors_t *k, int a, int b, int number, int i)
{
    return 1000003 * a + (is_gather(k) ? 0 : 10007 * b + 131 * number) + 3 * i + k->coll;
}

/* In which element block e begins, and how far its elements are apart: of alltoallw, every other block has gaps. */
static size_t place(const neighbors_t *k, int e)
{
    const bool one_by_one = ALLGATHER == k->coll || ALLTOALL == k->coll;
    return (size_t) e * (size_t) (one_by_one ? k->most : 2 * k->most + GAP);
}

static size_t step(const neighbors_t *k, int e)
{
    return ALLTOALLW == k->coll && 0 != e % 2 ? 2 : 1;
}

static void put(const neighbors_t *k, int *image, int e, int a, int b, int number)
{
    for (int i = 0; i < length(k, a, b, number); i++) {
        image[place(k, e) + (size_t) i * step(k, e)] = value(k, a, b, number, i);
    }
}

static void fill(neighbors_t *k)
{
    for (size_t i = 0; i < k->room; i++) {
        k->image[i] = k->want[i] = POISON;
    }
    mem_write(k->out, k->image, k->room * sizeof *k->image);
    for (int e = 0; e < k->nfrom; e++) {
        if (k->from[e].rank >= 0) {
            put(k, k->want, e, k->from[e].rank, k->me, k->from[e].number);
        }
    }
    if (is_gather(k)) {
        put(k, k->image, 0, k->me, 0, 0);
    }
    for (int e = 0; e < k->nto && !is_gather(k); e++) {
        if (k->to[e].rank >= 0) {
            put(k, k->image, e, k->me, k->to[e].rank, k->to[e].number);
        }
    }
    mem_write(k->in, k->image, k->room * sizeof *k->image);
}

/* ---- calls ---- */

typedef struct {
    int scount, scounts[EDGES_MAX], rcounts[EDGES_MAX], sdispls[EDGES_MAX], rdispls[EDGES_MAX];
    MPI_Aint sbytes[EDGES_MAX], rbytes[EDGES_MAX];
    MPI_Datatype stypes[EDGES_MAX], rtypes[EDGES_MAX];
} args_t;

static void make_side(const neighbors_t *k, const edge_t *list, int n, bool sent, args_t *a)
{
    for (int e = 0; e < n; e++) {
        const int other = list[e].rank, number = list[e].number;
        const int count = sent ? length(k, k->me, other, number) : length(k, other, k->me, number);
        (sent ? a->scounts : a->rcounts)[e] = other < 0 ? 1 : count;
        (sent ? a->sdispls : a->rdispls)[e] = (int) place(k, e);
        (sent ? a->sbytes : a->rbytes)[e] = (MPI_Aint) (place(k, e) * sizeof(int));
        (sent ? a->stypes : a->rtypes)[e] = 2 == step(k, e) ? k->every_other : MPI_INT;
    }
}

#define MAKE(CALL, k, a)                                                                                           \
    (ALLGATHER == (k)->coll                                                                                        \
         ? CALL(eighbor_allgather, (k)->in, (a)->scount, MPI_INT, (k)->out, (k)->most, MPI_INT, (k)->comm)         \
     : ALLGATHERV == (k)->coll ? CALL(eighbor_allgatherv, (k)->in, (a)->scount, MPI_INT, (k)->out, (a)->rcounts,   \
                                      (a)->rdispls, MPI_INT, (k)->comm)                                            \
     : ALLTOALL == (k)->coll                                                                                       \
         ? CALL(eighbor_alltoall, (k)->in, (k)->most, MPI_INT, (k)->out, (k)->most, MPI_INT, (k)->comm)            \
     : ALLTOALLV == (k)->coll ? CALL(eighbor_alltoallv, (k)->in, (a)->scounts, (a)->sdispls, MPI_INT, (k)->out,    \
                                     (a)->rcounts, (a)->rdispls, MPI_INT, (k)->comm)                               \
                              : CALL(eighbor_alltoallw, (k)->in, (a)->scounts, (a)->sbytes, (a)->stypes, (k)->out, \
                                     (a)->rcounts, (a)->rbytes, (a)->rtypes, (k)->comm))
#define CALL_BLOCKING(name, ...) MPI_N##name(__VA_ARGS__)
#define CALL_NONBLOCKING(name, ...) MPI_In##name(__VA_ARGS__, &request)
#define CALL_PERSISTENT(name, ...) PERSISTENT_INIT(N##name)(__VA_ARGS__, MPI_INFO_NULL, &request)

/* Returns how often the collective was called. */
static int call(const neighbors_t *k, args_t *a)
{
    MPI_Request request;
    switch (k->form) {
    case BLOCKING:
        MAKE(CALL_BLOCKING, k, a);
        return 1;
    case NONBLOCKING:
        MAKE(CALL_NONBLOCKING, k, a);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        return 1;
    default:
        MAKE(CALL_PERSISTENT, k, a);
        for (int i = 0; i < 2; i++) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        MPI_Request_free(&request);
        return 2;
    }
}

static void one(neighbors_t *k)
{
    args_t a = {.scount = length(k, k->me, 0, 0)};
    make_side(k, k->to, k->nto, true, &a);
    make_side(k, k->from, k->nfrom, false, &a);
    fill(k);

    const unsigned long long before = mpit_count(names[k->coll], "native");
    const int calls = call(k, &a);
    const unsigned long long native = mpit_count(names[k->coll], "native") - before;
    mem_read(k->image, k->out, k->room * sizeof *k->image);
    size_t at = 0;
    while (at < k->room && k->image[at] == k->want[at]) {
        at++;
    }
    const bool ways = 1 == k->n || native == (unsigned long long) calls;
    if (at < k->room || !ways) {
        fprintf(stderr, "neighbors: FAIL on rank %d: %s %s on %s, up to %d: ", k->me, forms[k->form], names[k->coll],
                topologies[k->topology], k->most);
        if (at < k->room) {
            fprintf(stderr, "element %zu is %d, not %d\n", at, k->image[at], k->want[at]);
        } else {
            fprintf(stderr, "%llu of %d calls by kernels\n", native, calls);
        }
    }
    check_result(&k->t, at == k->room && ways);
}

/* ---- counts that do not match ---- */

/* On a line, every rank sends `sent` elements to the upper neighbour, which takes `taken`. */
static void mismatch(neighbors_t *k, int sent, int taken)
{
    const int lower = k->from[0].rank, upper = k->to[1].rank, got = sent < taken ? sent : taken;
    int scounts[2] = {0, sent}, rcounts[2] = {taken, 0}, displs[2] = {0, 0}, class = MPI_SUCCESS;

    fill(k);
    for (size_t i = 0; i < k->room; i++) {
        k->want[i] = POISON;
    }
    for (int i = 0; i < sent; i++) {
        k->image[i] = value(k, k->me, upper, 0, i);
        k->want[i] = lower >= 0 && i < got ? value(k, lower, k->me, 0, i) : POISON;
    }
    mem_write(k->in, k->image, k->room * sizeof *k->image);
    const int rc = MPI_Neighbor_alltoallv(k->in, scounts, displs, MPI_INT, k->out, rcounts, displs, MPI_INT, k->comm);
    if (MPI_SUCCESS != rc) {
        MPI_Error_class(rc, &class);
    }
    mem_read(k->image, k->out, k->room * sizeof *k->image);
    const int expected = lower >= 0 && sent > taken ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
    const bool right = 0 == memcmp(k->image, k->want, k->room * sizeof *k->image);
    if (class != expected || !right) {
        fprintf(stderr, "neighbors: FAIL on rank %d: %d of %d elements taken: error class %d, not %d%s\n", k->me, taken,
                sent, class, expected, right ? "" : "; wrong elements");
    }
    check_result(&k->t, class == expected && right);
}

static void mismatches(neighbors_t *k)
{
    static const int most[] = {10, 20000};
    k->topology = LINE;
    k->coll = ALLTOALLV;
    make_topology(k);
    MPI_Comm_set_errhandler(k->comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < 2; i++) {
        k->most = most[i];
        mismatch(k, most[i], most[i] - 3);
        mismatch(k, most[i] - 3, most[i]);
        mismatch(k, most[i], most[i]);
        mismatch(k, most[i], 0);
    }
    check_collect(&k->t);
    MPI_Comm_free(&k->comm);
}

int main(int argc, char **argv)
{
    static neighbors_t k;
    static const int most[] = {3, 800, 30000};

    check_init(&argc, &argv, "neighbors", MPI_THREAD_SINGLE);
    const uint64_t limit = check_number("--most", 30000);
    const bool messages = check_flag("--messages");
    check_arguments_end(USAGE);
    check_start(&k.t, "neighbors", MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &k.me);
    MPI_Comm_size(MPI_COMM_WORLD, &k.n);
    if (!mem_have(MEM_DEVICE) || (k.n > 1 && !check_native(MEM_DEVICE))) {
        if (0 == k.me) {
            printf("neighbors: needs device memory that the kernels reach\n");
        }
        check_end(&k.t);
        check_fini(0);
        return CHECK_SKIPPED;
    }
    k.room = (size_t) EDGES_MAX * (2 * (size_t) most[2] + GAP);
    k.image = malloc(k.room * sizeof *k.image);
    k.want = malloc(k.room * sizeof *k.want);
    k.in = mem_alloc(MEM_DEVICE, k.room * sizeof *k.in);
    k.out = mem_alloc(MEM_DEVICE, k.room * sizeof *k.out);
    if (NULL == k.image || NULL == k.want || NULL == k.in || NULL == k.out) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &k.every_other);
    MPI_Type_commit(&k.every_other);
    (void) mpit_count(names[ALLTOALLW], "native_messages"); /* it is counted from here */
    for (k.topology = 0; k.topology < TOPOLOGIES; k.topology++) {
        make_topology(&k);
        for (int i = 0; i < COLLS * FORMS * 3; i++) {
            k.coll = i % COLLS;
            k.form = i / COLLS % FORMS;
            k.most = most[i / COLLS / FORMS];
            if ((uint64_t) k.most <= limit) {
                one(&k);
            }
        }
        check_collect(&k.t);
        MPI_Comm_free(&k.comm);
    }
    if (messages && k.n > 1) {
        check_result(&k.t, mpit_count(names[ALLTOALLW], "native_messages") > 0);
        check_collect(&k.t);
    }
    mismatches(&k);
    MPI_Type_free(&k.every_other);
    mem_free(MEM_DEVICE, k.in);
    mem_free(MEM_DEVICE, k.out);
    free(k.image);
    free(k.want);
    const long failed = check_end(&k.t);
    check_print("neighbors", k.t.passed, k.t.failed);
    return check_fini(failed);
}
