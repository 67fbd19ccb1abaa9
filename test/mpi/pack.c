/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: datatypes with gaps, regular and not, in device memory, in the collectives that move data: packed and
 * unpacked by the GPU, so counted as native. The ranks say the same data by different datatypes: one sends a vector,
 * another receives plain elements. The gaps stay as they are.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"
#include "test/mpi/mpit.h"

#define USAGE "[--seed N] [--n CALLS] [--most ELEMENTS]"
#define ITEMS 12  /* of the base type in an element, whatever its shape */
#define GUARD 128 /* bytes around a buffer that must stay as they are */
#define RANKS_MOST 64

/* How an element lies in memory: its items' places and its extent, in items. */
typedef struct {
    const char *name;
    bool plain; /* ITEMS elements of the base type */
    MPI_Datatype (*make)(MPI_Datatype base, MPI_Aint size);
    int at[ITEMS], extent;
} shape_t;

static MPI_Datatype resized(MPI_Datatype type, MPI_Aint extent)
{
    MPI_Datatype made;

    MPI_Type_create_resized(type, 0, extent, &made);
    MPI_Type_free(&type);
    return made;
}

static MPI_Datatype make_plain(MPI_Datatype base, MPI_Aint size)
{
    MPI_Datatype made;

    (void) size;
    MPI_Type_dup(base, &made);
    return made;
}

static MPI_Datatype make_block(MPI_Datatype base, MPI_Aint size)
{
    MPI_Datatype made;

    (void) size;
    MPI_Type_contiguous(ITEMS, base, &made);
    return made;
}

static MPI_Datatype make_rows(MPI_Datatype base, MPI_Aint size)
{
    MPI_Datatype made;

    MPI_Type_vector(4, 3, 5, base, &made);
    return resized(made, 20 * size);
}

static MPI_Datatype make_column(MPI_Datatype base, MPI_Aint size)
{
    MPI_Datatype made;

    MPI_Type_vector(ITEMS, 1, 2, base, &made);
    return resized(made, 24 * size);
}

static MPI_Datatype make_hvector(MPI_Datatype base, MPI_Aint size)
{
    MPI_Datatype made;

    MPI_Type_create_hvector(3, 4, 7 * size, base, &made);
    return resized(made, 21 * size);
}

static MPI_Datatype make_nested(MPI_Datatype base, MPI_Aint size)
{
    MPI_Datatype inner, made;

    MPI_Type_vector(2, 3, 5, base, &inner);
    inner = resized(inner, 10 * size);
    MPI_Type_contiguous(2, inner, &made);
    MPI_Type_free(&inner);
    return made;
}

/* The first row does not begin at the address that MPI is given. */
static MPI_Datatype make_behind(MPI_Datatype base, MPI_Aint size)
{
    const MPI_Aint at = 2 * size;
    MPI_Datatype inner, made;

    MPI_Type_vector(4, 3, 5, base, &inner);
    MPI_Type_create_hindexed(1, (int[]){1}, &at, inner, &made);
    MPI_Type_free(&inner);
    return resized(made, 20 * size);
}

static MPI_Datatype make_dense_end(MPI_Datatype base, MPI_Aint size)
{
    MPI_Datatype made;

    (void) size;
    MPI_Type_vector(4, 3, 5, base, &made);
    return made;
}

static MPI_Datatype make_indexed(MPI_Datatype base, MPI_Aint size)
{
    MPI_Datatype made;

    MPI_Type_indexed(3, (int[]){5, 3, 4}, (int[]){0, 6, 10}, base, &made);
    return resized(made, 15 * size);
}

static const shape_t shapes[] = {
    {"plain", true, make_plain, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 12},
    {"block", false, make_block, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 12},
    {"rows", false, make_rows, {0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17}, 20},
    {"column", false, make_column, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}, 24},
    {"hvector", false, make_hvector, {0, 1, 2, 3, 7, 8, 9, 10, 14, 15, 16, 17}, 21},
    {"nested", false, make_nested, {0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17}, 20},
    {"behind", false, make_behind, {2, 3, 4, 7, 8, 9, 12, 13, 14, 17, 18, 19}, 20},
    {"dense end", false, make_dense_end, {0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17}, 18},
    {"indexed", false, make_indexed, {0, 1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13}, 15},
};
#define SHAPES (int) (sizeof(shapes) / sizeof(shapes[0]))

enum coll { ALLGATHER, ALLTOALL, GATHER, SCATTER, BCAST, COLLS };
static const char *const names[COLLS] = {"allgather", "alltoall", "gather", "scatter", "bcast"};
/* The forms with counts and displacements. */
static const char *const v_names[COLLS] = {"allgatherv", "alltoallv", "gatherv", "scatterv", "bcast"};

/* One buffer of this rank: blocks of `count` elements of a shape. */
typedef struct {
    const shape_t *shape;
    MPI_Datatype type;
    size_t blocks;
    unsigned char *mem, *image; /* device memory; what it must hold. Both with GUARD on either side */
    size_t bytes;               /* of both */
    size_t off;                 /* where the buffer begins */
} side_t;

typedef struct {
    check_t t;
    int me, n;
    /* The call: */
    enum coll coll;
    int root;
    bool in_place, nonblocking, vector;
    size_t count, size; /* elements of a block, bytes of an item */
    MPI_Datatype base;
    uint64_t seed;
    side_t send, recv;
} pack_t;

static unsigned char content(const pack_t *k, int from, int to, size_t i)
{
    return (unsigned char) (ref_mix(k->seed + ((uint64_t) from * 64 + (uint64_t) to) * 1000000007u + i / 8) >>
                            (i % 8 * 8));
}

static void *need(void *p)
{
    if (NULL == p) {
        fprintf(stderr, "pack: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
        exit(99);
    }
    return p;
}

static void side_make(const pack_t *k, side_t *s, int shape, size_t blocks, size_t shift)
{
    s->shape = &shapes[shape];
    s->type = s->shape->make(k->base, (MPI_Aint) k->size);
    MPI_Type_commit(&s->type);
    s->blocks = blocks;
    s->off = GUARD + shift;
    s->bytes = s->off + blocks * k->count * (size_t) s->shape->extent * k->size + GUARD;
    s->mem = need(mem_alloc(MEM_DEVICE, s->bytes));
    s->image = need(malloc(s->bytes));
    for (size_t i = 0; i < s->bytes; i++) {
        s->image[i] = (unsigned char) (0x5b + 29 * i);
    }
}

static void side_free(side_t *s)
{
    if (MPI_DATATYPE_NULL != s->type) {
        MPI_Type_free(&s->type);
    }
    mem_free(MEM_DEVICE, s->mem);
    free(s->image);
}

/* Puts what `from` sends to `to` into the image, as a block. */
static void put(const pack_t *k, side_t *s, size_t block, int from, int to)
{
    const size_t extent = (size_t) s->shape->extent * k->size;

    for (size_t e = 0; e < k->count; e++) {
        unsigned char *element = s->image + s->off + (block * k->count + e) * extent;

        for (size_t i = 0; i < ITEMS * k->size; i++) {
            element[(size_t) s->shape->at[i / k->size] * k->size + i % k->size] =
                content(k, from, to, e * ITEMS * k->size + i);
        }
    }
}

static void to_memory(const side_t *s)
{
    mem_write(s->mem, s->image, s->bytes);
}

/* Whether the memory is as the image. */
static bool right(const pack_t *k, const side_t *s, const char *which)
{
    unsigned char *got = need(malloc(s->bytes));
    size_t i = 0;

    mem_read(got, s->mem, s->bytes);
    while (i < s->bytes && got[i] == s->image[i]) {
        i++;
    }
    if (i < s->bytes) {
        fprintf(stderr, "pack: FAIL on rank %d: the %s buffer has %02x in place of %02x at byte %ld\n", k->me, which,
                got[i], s->image[i], (long) i - (long) s->off);
    }
    free(got);
    return i == s->bytes;
}

static bool has_send(const pack_t *k)
{
    return SCATTER == k->coll  ? k->me == k->root
           : GATHER == k->coll ? !(k->in_place && k->me == k->root)
           : BCAST == k->coll  ? false
                               : !k->in_place;
}

static bool has_recv(const pack_t *k)
{
    return GATHER == k->coll ? k->me == k->root : SCATTER == k->coll ? !(k->in_place && k->me == k->root) : true;
}

/* What stands in the buffers before the call. */
static void before(pack_t *k)
{
    const bool each = ALLTOALL == k->coll || SCATTER == k->coll;

    for (size_t b = 0; has_send(k) && b < k->send.blocks; b++) {
        put(k, &k->send, b, k->me, each ? (int) b : 0);
    }
    if (BCAST == k->coll && k->me == k->root) {
        put(k, &k->recv, 0, k->root, 0);
    } else if (k->in_place && (ALLGATHER == k->coll || (GATHER == k->coll && k->me == k->root))) {
        put(k, &k->recv, (size_t) k->me, k->me, 0);
    }
    for (int b = 0; k->in_place && ALLTOALL == k->coll && b < k->n; b++) {
        put(k, &k->recv, (size_t) b, k->me, b);
    }
}

/* And after it. */
static void after(pack_t *k)
{
    if (!has_recv(k)) {
        return;
    }
    if (BCAST == k->coll || SCATTER == k->coll) {
        put(k, &k->recv, 0, k->root, BCAST == k->coll ? 0 : k->me);
        return;
    }
    for (int b = 0; b < k->n; b++) {
        put(k, &k->recv, (size_t) b, b, ALLTOALL == k->coll ? k->me : 0);
    }
}

static const char *name_of(const pack_t *k)
{
    return k->vector ? v_names[k->coll] : names[k->coll];
}

/* The call, in one of its two forms. */
#define CALL(Name, name, ...) (k->nonblocking ? MPI_I##name(__VA_ARGS__, &request) : MPI_##Name(__VA_ARGS__))
/* A nonblocking call needs no handles of its datatypes once it is started. */
static void end_call(pack_t *k, MPI_Request *request)
{
    if (k->nonblocking) {
        MPI_Type_free(&k->send.type);
        MPI_Type_free(&k->recv.type);
    }
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

/* With blocks where the other forms have them. */
static void call_v(pack_t *k, const void *sbuf, int sn, void *rbuf, int rn, MPI_Request *pending)
{
    static int counts[2][RANKS_MOST], displs[2][RANKS_MOST]; /* until the call has ended */
    const MPI_Datatype st = k->send.type, rt = k->recv.type;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm comm = MPI_COMM_WORLD;

    for (int i = 0; i < k->n; i++) {
        counts[0][i] = sn;
        counts[1][i] = rn;
        displs[0][i] = i * sn;
        displs[1][i] = i * rn;
    }
    switch (k->coll) {
    case ALLGATHER:
        CALL(Allgatherv, allgatherv, sbuf, sn, st, rbuf, counts[1], displs[1], rt, comm);
        break;
    case ALLTOALL:
        CALL(Alltoallv, alltoallv, sbuf, counts[0], displs[0], st, rbuf, counts[1], displs[1], rt, comm);
        break;
    case GATHER:
        CALL(Gatherv, gatherv, sbuf, sn, st, rbuf, counts[1], displs[1], rt, k->root, comm);
        break;
    default:
        CALL(Scatterv, scatterv, sbuf, counts[0], displs[0], st, rbuf, rn, rt, k->root, comm);
        break;
    }
    *pending = request;
}

static void call(pack_t *k)
{
    const side_t *s = &k->send, *r = &k->recv;
    const int sn = (int) (k->count * (s->shape->plain ? ITEMS : 1));
    const int rn = (int) (k->count * (r->shape->plain ? ITEMS : 1));
    const void *sbuf = has_send(k) ? s->mem + s->off : SCATTER == k->coll ? NULL : MPI_IN_PLACE;
    void *rbuf = has_recv(k) ? r->mem + r->off : SCATTER == k->coll ? MPI_IN_PLACE : NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm comm = MPI_COMM_WORLD;

    if (k->vector) {
        call_v(k, sbuf, sn, rbuf, rn, &request);
        end_call(k, &request);
        return;
    }
    switch (k->coll) {
    case ALLGATHER:
        CALL(Allgather, allgather, sbuf, sn, s->type, rbuf, rn, r->type, comm);
        break;
    case ALLTOALL:
        CALL(Alltoall, alltoall, sbuf, sn, s->type, rbuf, rn, r->type, comm);
        break;
    case GATHER:
        CALL(Gather, gather, sbuf, sn, s->type, rbuf, rn, r->type, k->root, comm);
        break;
    case SCATTER:
        CALL(Scatter, scatter, sbuf, sn, s->type, rbuf, rn, r->type, k->root, comm);
        break;
    default:
        CALL(Bcast, bcast, rbuf, rn, r->type, k->root, comm);
        break;
    }
    end_call(k, &request);
}

static void say(const pack_t *k, const char *what)
{
    fprintf(stderr, "pack: FAIL on rank %d: %s%s, root %d%s, %zu elements of %d x %zu bytes, %s to %s, seed %llu: %s\n",
            k->me, k->nonblocking ? "nonblocking " : "", name_of(k), k->root, k->in_place ? ", in place" : "", k->count,
            ITEMS, k->size, k->send.shape->name, k->recv.shape->name, (unsigned long long) k->seed, what);
}

static void one(pack_t *k)
{
    const char *name = name_of(k);
    unsigned long long native, staged;
    bool ok;

    before(k);
    to_memory(&k->send);
    to_memory(&k->recv);
    native = mpit_count(name, "native");
    staged = mpit_count(name, "staged");
    call(k);
    native = mpit_count(name, "native") - native;
    staged = mpit_count(name, "staged") - staged;
    after(k);
    ok = right(k, &k->send, "send") & right(k, &k->recv, "receive");
    if (!ok) {
        say(k, "wrong data");
    } else if (1 != native || 0 != staged) {
        say(k, "not native");
        ok = false;
    }
    check_result(&k->t, ok);
}

/* Everything from x, which is the same on all ranks; the shapes are each rank's own. */
static void draw(pack_t *k, uint64_t x, size_t most)
{
    static const size_t sizes[] = {1, 2, 4, 8};
    const MPI_Datatype bases[] = {MPI_BYTE, MPI_SHORT, MPI_INT, MPI_DOUBLE};
    const uint64_t own = ref_mix(x + 11 * (uint64_t) k->me);
    const size_t n = (size_t) k->n;
    bool root;

    k->seed = x;
    k->coll = (enum coll)((x >> 4) % COLLS);
    k->root = (int) ((x >> 12) % n);
    k->in_place = 0 == (x >> 20) % 4 && BCAST != k->coll;
    k->nonblocking = 0 == (x >> 24) % 3;
    k->vector = 0 == (x >> 44) % 2 && BCAST != k->coll;
    k->size = sizes[(x >> 28) % 4];
    k->base = bases[(x >> 28) % 4];
    k->count = 0 == (x >> 32) % 4 ? 1 : 1 + (size_t) (ref_mix(x) % most >> (x >> 40) % 10);
    root = k->me == k->root;
    side_make(k, &k->send, (int) (own % SHAPES), ALLTOALL == k->coll || (SCATTER == k->coll && root) ? n : 1,
              (size_t) (own >> 8) % 8 * k->size);
    side_make(k, &k->recv, (int) ((own >> 16) % SHAPES),
              ALLTOALL == k->coll || ALLGATHER == k->coll || (GATHER == k->coll && root) ? n : 1,
              (size_t) (own >> 24) % 8 * k->size);
}

int main(int argc, char **argv)
{
    static pack_t k;
    uint64_t x, n, most;
    long failed;
    bool native;

    check_init(&argc, &argv, "pack", MPI_THREAD_SINGLE);
    x = check_seed();
    n = check_number("--n", 1500);
    most = check_number("--most", 3000);
    check_arguments_end(USAGE);
    check_start(&k.t, "pack", MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &k.me);
    MPI_Comm_size(MPI_COMM_WORLD, &k.n);
    native = mem_have(MEM_DEVICE) && k.n > 1 && check_native(MEM_DEVICE);
    for (uint64_t i = 0; native && i < n; i++) {
        x = ref_mix(x + 1);
        draw(&k, x, (size_t) most);
        one(&k);
        side_free(&k.send);
        side_free(&k.recv);
        if (31 == i % 32) {
            check_collect(&k.t);
        }
    }
    failed = check_end(&k.t);
    check_print("pack", k.t.passed, k.t.failed);
    if (!native && 0 == k.me) {
        printf("pack: needs 2 ranks or more whose device memory the kernels reach\n");
    }
    return native ? check_fini(failed) : (check_fini(0), CHECK_SKIPPED);
}
