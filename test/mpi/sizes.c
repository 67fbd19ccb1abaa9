/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that are wrong in their counts, on device memory: a rank sends more than another takes (MPI_ERR_TRUNCATE there
 * and nowhere else, and what lies behind its part stays as it is), or less (no error), or a count is negative
 * (MPI_ERR_COUNT). Later calls on the communicator are right.  Also what looks wrong and is not: negative
 * displacements; with --staged, all-to-all in place.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"
#include "test/mpi/mpit.h"
#include "test/mpi/persistent.h"

#define USAGE "usage: sizes [--kinds device] [--most COUNT] [--staged]"
enum { RANKS_MAX = 32, GAP = 5, POISON = -77 };

/* V: counts and displacements; else one count, blocks one after the other. */
#define COLLS                    \
    COLL(ALLTOALLV, alltoallv)   \
    COLL(ALLTOALLW, alltoallw)   \
    COLL(ALLGATHERV, allgatherv) \
    COLL(GATHERV, gatherv)       \
    COLL(SCATTERV, scatterv)     \
    COLL(ALLTOALL, alltoall)     \
    COLL(ALLGATHER, allgather)   \
    COLL(GATHER, gather)         \
    COLL(SCATTER, scatter)       \
    COLL(BCAST, bcast)
enum {
#define COLL(ID, name) ID,
    COLLS
#undef COLL
        COLL_COUNT
};
static bool may_stage; /* --staged: calls may go through the host */
static const char *const names[] = {
#define COLL(ID, name) #name,
    COLLS
#undef COLL
};
enum { BLOCKING, NONBLOCKING, PERSISTENT, FORMS };
static const char *const forms[] = {"blocking", "nonblocking", "persistent"};

typedef struct {
    check_t t;
    int me, n, root, coll, form;
    int *sent, *taken; /* [n][n]: elements that a sends to b as a says, and as b says */
    int *in, *out;     /* device memory, `room` elements each */
    int *image;        /* host memory, as much */
    size_t room;
    int stride; /* elements from block to block of the v-collectives */
    bool flip;  /* displacements are negative */
} sizes_t;

static int *sent(const sizes_t *k, int a, int b)
{
    return &k->sent[a * k->n + b];
}

static int *taken(const sizes_t *k, int a, int b)
{
    return &k->taken[a * k->n + b];
}

/* What a sends to b as its i-th element. */
static int value(const sizes_t *k, int a, int b, int i)
{
    const bool alike = ALLGATHER == k->coll || ALLGATHERV == k->coll || BCAST == k->coll;
    return 1000003 * a + (alike ? 0 : 10007 * b) + 3 * i + k->coll;
}

static bool is_v(const sizes_t *k)
{
    return k->coll <= SCATTERV;
}

/* Where block p of a buffer begins that has one for each rank, of `count` elements where there is one count. */
static size_t place(const sizes_t *k, int p, int count)
{
    return is_v(k) ? (size_t) p * (size_t) k->stride : (size_t) p * (size_t) count;
}

static bool goes(const sizes_t *k, int a, int b)
{
    switch (k->coll) {
    case GATHER:
    case GATHERV:
        return b == k->root;
    case SCATTER:
    case SCATTERV:
        return a == k->root;
    case BCAST:
        return a == k->root && b != k->root;
    default:
        return true;
    }
}

static bool truncated_anywhere(const sizes_t *k)
{
    bool any = false;
    for (int i = 0; i < k->n * k->n; i++) {
        any = any || (goes(k, i / k->n, i % k->n) && k->sent[i] > k->taken[i]);
    }
    return any;
}

/* Where in this rank's input lies what goes to p. */
static size_t from_at(const sizes_t *k, int p)
{
    const bool one =
        ALLGATHER == k->coll || ALLGATHERV == k->coll || GATHER == k->coll || GATHERV == k->coll || BCAST == k->coll;
    return one ? 0 : place(k, p, *sent(k, k->me, p));
}

static size_t to_at(const sizes_t *k, int p)
{
    const bool one = SCATTER == k->coll || SCATTERV == k->coll || BCAST == k->coll;
    return one ? 0 : place(k, p, *taken(k, p, k->me));
}

static void fill(sizes_t *k)
{
    for (size_t i = 0; i < k->room; i++) {
        k->image[i] = POISON;
    }
    mem_write(k->out, k->image, k->room * sizeof *k->image);
    for (int p = 0; p < k->n; p++) {
        for (int i = 0; goes(k, k->me, p) && i < *sent(k, k->me, p); i++) {
            k->image[from_at(k, p) + (size_t) i] = value(k, k->me, p, i);
        }
    }
    mem_write(BCAST == k->coll && k->me == k->root ? k->out : k->in, k->image, k->room * sizeof *k->image);
}

/* The arguments of a call: buffers from where displacements count. */
typedef struct {
    int scounts[RANKS_MAX], rcounts[RANKS_MAX], displs[RANKS_MAX];
    int bytes[RANKS_MAX]; /* displs in bytes */
    MPI_Datatype types[RANKS_MAX];
    int scount, rcount;
    int *in, *out, *vin, *vout;
} args_t;

static void args_make(const sizes_t *k, args_t *a)
{
    const int back = k->flip ? k->n * k->stride : 0;
    for (int p = 0; p < k->n; p++) {
        a->scounts[p] = *sent(k, k->me, p);
        a->rcounts[p] = *taken(k, p, k->me);
        a->displs[p] = p * k->stride - back;
        a->bytes[p] = a->displs[p] * (int) sizeof(int);
        a->types[p] = MPI_INT;
    }
    a->in = k->in;
    a->out = k->out;
    a->vin = k->in + back;
    a->vout = k->out + back;
    a->scount = *sent(k, k->me, k->root);
    a->rcount = BCAST == k->coll && k->me == k->root ? *sent(k, k->me, (k->me + 1) % k->n) : *taken(k, k->root, k->me);
}

#define W MPI_COMM_WORLD
/* The call by functions CALL(Name, arguments...). */
#define MAKE(CALL, k, a)                                                                                               \
    (ALLTOALLV == (k)->coll   ? CALL(Alltoallv, (a)->vin, (a)->scounts, (a)->displs, MPI_INT, (a)->vout, (a)->rcounts, \
                                     (a)->displs, MPI_INT, W)                                                          \
     : ALLTOALLW == (k)->coll ? CALL(Alltoallw, (a)->vin, (a)->scounts, (a)->bytes, (a)->types, (a)->vout,             \
                                     (a)->rcounts, (a)->bytes, (a)->types, W)                                          \
     : ALLGATHERV == (k)->coll                                                                                         \
         ? CALL(Allgatherv, (a)->in, (a)->scount, MPI_INT, (a)->vout, (a)->rcounts, (a)->displs, MPI_INT, W)           \
     : GATHERV == (k)->coll                                                                                            \
         ? CALL(Gatherv, (a)->in, (a)->scount, MPI_INT, (a)->vout, (a)->rcounts, (a)->displs, MPI_INT, (k)->root, W)   \
     : SCATTERV == (k)->coll                                                                                           \
         ? CALL(Scatterv, (a)->vin, (a)->scounts, (a)->displs, MPI_INT, (a)->out, (a)->rcount, MPI_INT, (k)->root, W)  \
     : ALLTOALL == (k)->coll  ? CALL(Alltoall, (a)->in, (a)->scount, MPI_INT, (a)->out, (a)->rcount, MPI_INT, W)       \
     : ALLGATHER == (k)->coll ? CALL(Allgather, (a)->in, (a)->scount, MPI_INT, (a)->out, (a)->rcount, MPI_INT, W)      \
     : GATHER == (k)->coll ? CALL(Gather, (a)->in, (a)->scount, MPI_INT, (a)->out, (a)->rcount, MPI_INT, (k)->root, W) \
     : SCATTER == (k)->coll                                                                                            \
         ? CALL(Scatter, (a)->in, (a)->scount, MPI_INT, (a)->out, (a)->rcount, MPI_INT, (k)->root, W)                  \
         : CALL(Bcast, (a)->out, (a)->rcount, MPI_INT, (k)->root, W))
#define CALL_BLOCKING(Name, ...) MPI_##Name(__VA_ARGS__)
#define CALL_NONBLOCKING(Name, ...) MPI_I##Name(__VA_ARGS__, &request)
#define CALL_PERSISTENT(Name, ...) PERSISTENT_INIT(Name)(__VA_ARGS__, MPI_INFO_NULL, &request)
#define MPI_IAlltoallv MPI_Ialltoallv
#define MPI_IAlltoallw MPI_Ialltoallw
#define MPI_IAllgatherv MPI_Iallgatherv
#define MPI_IGatherv MPI_Igatherv
#define MPI_IScatterv MPI_Iscatterv
#define MPI_IAlltoall MPI_Ialltoall
#define MPI_IAllgather MPI_Iallgather
#define MPI_IGather MPI_Igather
#define MPI_IScatter MPI_Iscatter
#define MPI_IBcast MPI_Ibcast

static int error_class(int rc)
{
    int class = MPI_SUCCESS;
    if (MPI_SUCCESS != rc) {
        MPI_Error_class(rc, &class);
    }
    return class;
}

static int make(const sizes_t *k, const args_t *a)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rc;
    if (BLOCKING == k->form) {
        return MAKE(CALL_BLOCKING, k, a);
    }
    if (NONBLOCKING == k->form) {
        rc = MAKE(CALL_NONBLOCKING, k, a);
        return MPI_SUCCESS == rc ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
    }
    rc = MAKE(CALL_PERSISTENT, k, a);
    /* Open MPI frees a request that ended with an error. */
    for (int i = 0; MPI_SUCCESS == rc && i < (truncated_anywhere(k) ? 1 : 2); i++) {
        rc = MPI_Start(&request);
        rc = MPI_SUCCESS == rc ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
    }
    if (MPI_REQUEST_NULL != request) {
        MPI_Request_free(&request);
    }
    return rc;
}

/* Whether the output is as it must be. */
static bool right(sizes_t *k)
{
    int *out = k->image;
    bool *ours = calloc(k->room, sizeof *ours); /* may have been written, or has been looked at */
    bool good = NULL != ours;

    mem_read(out, k->out, k->room * sizeof *out);
    for (int p = 0; good && p < k->n; p++) {
        const int here = goes(k, p, k->me) ? *taken(k, p, k->me) : 0,
                  there = goes(k, p, k->me) ? *sent(k, p, k->me) : 0;
        for (int i = 0; i < here; i++) {
            const size_t at = to_at(k, p) + (size_t) i;
            ours[at] = true;
            good = good && (there > here || out[at] == (i < there ? value(k, p, k->me, i) : POISON));
        }
    }
    for (size_t i = 0; good && i < k->room && !(BCAST == k->coll && k->me == k->root); i++) {
        good = ours[i] || POISON == out[i];
    }
    free(ours);
    return good;
}

static bool later(void)
{
    int in = 1, out = 0, n;
    MPI_Comm_size(W, &n);
    return MPI_SUCCESS == MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, W) && n == out;
}

static void say(const sizes_t *k, const char *what, const char *why)
{
    fprintf(stderr, "sizes: FAIL on rank %d: %s %s of %d, root %d%s, %s: %s\n", k->me, forms[k->form], names[k->coll],
            k->stride - GAP, k->root, k->flip ? ", negative displacements" : "", what, why);
}

/* One call with the sizes that are set. */
static void one(sizes_t *k, const char *what)
{
    int want = MPI_SUCCESS;
    args_t a;

    for (int p = 0; p < k->n; p++) {
        want = goes(k, p, k->me) && *sent(k, p, k->me) > *taken(k, p, k->me) ? MPI_ERR_TRUNCATE : want;
    }
    args_make(k, &a);
    fill(k);
    const unsigned long long staged = mpit_count(names[k->coll], "staged");
    const int got = error_class(make(k, &a));
    bool good = want == got;
    if (!good) {
        say(k, what, MPI_SUCCESS == got ? "no error" : "another error");
    }
    if (good && !(good = right(k))) {
        say(k, what, "wrong data, or memory written that is not the call's");
    }
    if (good && !may_stage && !(good = staged == mpit_count(names[k->coll], "staged"))) {
        say(k, what, "staged");
    }
    if (!later()) {
        say(k, what, "the next call");
        good = false;
    }
    check_result(&k->t, good);
}

/* All sizes right, about `most`. */
static void agree(sizes_t *k, int most)
{
    const bool alike = ALLGATHERV == k->coll;
    for (int a = 0; a < k->n; a++) {
        for (int b = 0; b < k->n; b++) {
            const int less = is_v(k) ? (a * 7 + (alike ? 0 : b * 3)) % (most / 3 + 1) : 0;
            *sent(k, a, b) = *taken(k, a, b) = most - less;
        }
    }
    k->stride = most + GAP;
}

/* Rank x sends or takes another number of elements than it should: of all that it sends, where there is one count. */
static void differ(sizes_t *k, int x, int y, bool sender, int by)
{
    const bool one_sent = ALLGATHERV == k->coll || !is_v(k), one_taken = !is_v(k);
    for (int p = 0; p < k->n; p++) {
        if (ALLTOALL == k->coll) { /* Open MPI itself refuses a rank's two counts that differ */
            *sent(k, sender ? x : y, p) += by;
            *taken(k, p, sender ? x : y) += by;
        } else if (sender && (one_sent || p == y)) {
            *sent(k, x, p) += by;
        } else if (!sender && (one_taken || p == x)) {
            *taken(k, p, y) += by;
        }
    }
}

static void lengths(sizes_t *k, int most)
{
    const int other = (k->root + 1) % k->n,
              by = most / 2; /* no size is 0: Open MPI itself returns from some such calls */
    const bool roots = GATHER == k->coll || GATHERV == k->coll, from_root = SCATTER == k->coll || SCATTERV == k->coll;
    const int x = from_root || BCAST == k->coll ? k->root : other, y = from_root || BCAST == k->coll ? other : k->root;

    agree(k, most);
    one(k, "all that is sent is taken");
    agree(k, most - by);
    k->stride = most + GAP;
    differ(k, x, y, true, by);
    one(k, "a rank sends more");
    agree(k, most);
    differ(k, x, y, false, -by);
    one(k, "a rank takes less");
    agree(k, most);
    differ(k, x, y, true, -by);
    one(k, "a rank sends less");
    agree(k, most - by);
    k->stride = most + GAP;
    differ(k, x, y, false, by);
    one(k, "a rank takes more");
    if (roots || from_root) { /* the root's own part */
        agree(k, most);
        differ(k, k->root, k->root, roots, roots ? by : -by);
        one(k, "the root and itself");
    }
}

/* ---- negative counts ---- */

static void refused(sizes_t *k, const char *what, int rc)
{
    const int class = error_class(rc);
    if (MPI_ERR_COUNT != class) {
        fprintf(stderr, "sizes: FAIL on rank %d: %s with a negative count: error class %d\n", k->me, what, class);
    }
    const bool on = later();
    check_result(&k->t, MPI_ERR_COUNT == class && on);
}

/* EXPRESSION(Name, ...) of each form; the rank that has the counts alone makes the call: it ends at once. */
#define REFUSED(who, Name, ...)                                                                \
    do {                                                                                       \
        MPI_Request request = MPI_REQUEST_NULL;                                                \
        refused(k, #Name, (who) ? MPI_##Name(__VA_ARGS__) : MPI_ERR_COUNT);                    \
        refused(k, "I" #Name, (who) ? CALL_NONBLOCKING(Name, __VA_ARGS__) : MPI_ERR_COUNT);    \
        refused(k, #Name "_init", (who) ? CALL_PERSISTENT(Name, __VA_ARGS__) : MPI_ERR_COUNT); \
    } while (0)
#define MPI_IAlltoallw MPI_Ialltoallw
#define MPI_IReduce_scatter MPI_Ireduce_scatter
#define MPI_INeighbor_allgatherv MPI_Ineighbor_allgatherv
#define MPI_INeighbor_alltoallv MPI_Ineighbor_alltoallv
#define MPI_INeighbor_alltoallw MPI_Ineighbor_alltoallw

static void negative(sizes_t *k)
{
    int counts[RANKS_MAX + 2], good[RANKS_MAX + 2], displs[RANKS_MAX + 2];
    MPI_Aint adispls[RANKS_MAX + 2];
    MPI_Datatype types[RANKS_MAX + 2];
    const int periodic = 1, n = k->n;
    const bool root = 0 == k->me;
    MPI_Comm ring;

    for (int i = 0; i < RANKS_MAX + 2; i++) {
        counts[i] = good[i] = 2;
        displs[i] = 2 * i;
        adispls[i] = 8 * i;
        types[i] = MPI_INT;
    }
    counts[n > 2 ? 1 : n - 1] = -3;
    MPI_Cart_create(W, 1, &n, &periodic, 0, &ring);
    MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN);
    REFUSED(true, Allgatherv, k->in, 2, MPI_INT, k->out, counts, displs, MPI_INT, W);
    REFUSED(true, Alltoallv, k->in, counts, displs, MPI_INT, k->out, good, displs, MPI_INT, W);
    REFUSED(true, Alltoallv, k->in, good, displs, MPI_INT, k->out, counts, displs, MPI_INT, W);
    REFUSED(true, Alltoallw, k->in, counts, displs, types, k->out, good, displs, types, W);
    REFUSED(true, Alltoallw, k->in, good, displs, types, k->out, counts, displs, types, W);
    REFUSED(true, Reduce_scatter, k->in, k->out, counts, MPI_INT, MPI_SUM, W);
    REFUSED(root, Gatherv, k->in, 2, MPI_INT, k->out, counts, displs, MPI_INT, 0, W);
    REFUSED(root, Scatterv, k->in, counts, displs, MPI_INT, k->out, 2, MPI_INT, 0, W);
    counts[0] = -1;
    counts[1] = 2;
    REFUSED(true, Neighbor_allgatherv, k->in, 2, MPI_INT, k->out, counts, displs, MPI_INT, ring);
    REFUSED(true, Neighbor_alltoallv, k->in, counts, displs, MPI_INT, k->out, good, displs, MPI_INT, ring);
    REFUSED(true, Neighbor_alltoallv, k->in, good, displs, MPI_INT, k->out, counts, displs, MPI_INT, ring);
    REFUSED(true, Neighbor_alltoallw, k->in, counts, adispls, types, k->out, good, adispls, types, ring);
    REFUSED(true, Neighbor_alltoallw, k->in, good, adispls, types, k->out, counts, adispls, types, ring);
    MPI_Comm_free(&ring);
    /* A rank alone, and host memory: no form leaves it to Open MPI. */
    int in[2] = {0}, out[2] = {0};
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    REFUSED(true, Allgatherv, in, 2, MPI_INT, out, counts, displs, MPI_INT, MPI_COMM_SELF);
}

/* In place, what comes overwrites what is sent. Windows carry it all the same. */
static void in_place(sizes_t *k, int count)
{
    const size_t all = (size_t) (k->n * count);
    const unsigned long long moved = mpit_count("alltoall", "staged_by_windows");
    bool good = true;

    k->coll = ALLTOALL;
    k->form = BLOCKING;
    for (size_t i = 0; i < all; i++) {
        k->image[i] = value(k, k->me, (int) i / count, (int) i % count);
    }
    mem_write(k->out, k->image, all * sizeof *k->out);
    good = MPI_SUCCESS == MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, k->out, count, MPI_INT, W);
    mem_read(k->image, k->out, all * sizeof *k->out);
    for (size_t i = 0; good && i < all; i++) {
        good = k->image[i] == value(k, (int) i / count, k->me, (int) i % count);
    }
    if (!good) {
        say(k, "in place", "wrong data");
    } else if (moved + 1 != mpit_count("alltoall", "staged_by_windows")) {
        say(k, "in place", "not by windows");
        good = false;
    }
    check_result(&k->t, good);
}

int main(int argc, char **argv)
{
    static sizes_t k;
    static const int most[] = {2, 3, 40, 3000, 90000};
    long failed;
    uint64_t limit;

    check_init(&argc, &argv, "sizes", MPI_THREAD_SINGLE);
    limit = check_number("--most", 90000);
    may_stage = check_flag("--staged");
    check_arguments_end(USAGE);
    check_start(&k.t, "sizes", W);
    MPI_Comm_rank(W, &k.me);
    MPI_Comm_size(W, &k.n);
    const bool native = k.n > 1 && k.n <= RANKS_MAX && mem_have(MEM_DEVICE) && check_native(MEM_DEVICE);
    if (!native) {
        if (0 == k.me) {
            printf("sizes: needs 2 ranks or more whose device memory the kernels reach\n");
        }
        check_end(&k.t);
        check_fini(0);
        return CHECK_SKIPPED;
    }
    MPI_Comm_set_errhandler(W, MPI_ERRORS_RETURN);
    k.room = (size_t) k.n * (most[4] + GAP) * 2;
    k.sent = calloc((size_t) (k.n * k.n), sizeof *k.sent);
    k.taken = calloc((size_t) (k.n * k.n), sizeof *k.taken);
    k.image = calloc(k.room, sizeof *k.image);
    k.in = mem_alloc(MEM_DEVICE, k.room * sizeof *k.in);
    k.out = mem_alloc(MEM_DEVICE, k.room * sizeof *k.out);
    if (NULL == k.sent || NULL == k.taken || NULL == k.image || NULL == k.in || NULL == k.out) {
        MPI_Abort(W, 2);
    }
    for (int i = 0; i < COLL_COUNT * FORMS * 5; i++) {
        k.coll = i % COLL_COUNT;
        k.form = i / COLL_COUNT % FORMS;
        k.flip = is_v(&k) && 0 != i % 2;
        k.root = (i / 7) % k.n;
        if ((uint64_t) most[i / COLL_COUNT / FORMS] <= limit) {
            lengths(&k, most[i / COLL_COUNT / FORMS]);
            check_collect(&k.t);
        }
    }
    negative(&k);
    for (int i = 0; may_stage && i < 5; i++) {
        in_place(&k, most[i]);
        check_collect(&k.t);
    }
    mem_free(MEM_DEVICE, k.in);
    mem_free(MEM_DEVICE, k.out);
    free(k.sent);
    free(k.taken);
    free(k.image);
    failed = check_end(&k.t);
    check_print("sizes", k.t.passed, k.t.failed);
    return check_fini(failed);
}
