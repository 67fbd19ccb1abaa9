/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test of datatypes whose parts lie in several allocations: arrays of one size in GPU memory, which lie at one
 * distance by chance; arrays of several kinds of memory, the host's heap, stack and mappings among them. Each is sent,
 * received, broadcast, gathered, scattered, exchanged and packed; every element is checked, and so are the gaps.
 *
 * The reference is plain: the list of the elements in packed order, each an array and an index.
 *
 *     parts [--preloaded] [--only WORD] [--thin N] [--room MIB]
 *
 * --preloaded: packing instead, by libgpusym_mpi. --only: the cases whose description has the word.
 * --thin: every N-th case. --room: with no more address space than that beside what the process has at the start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "test/mpi/check.h"
#include "test/mpi/persistent.h"

#define USAGE "[--preloaded] [--only WORD] [--thin N] [--room MIB]"
#define PARTS 3
#define ROOM 3200 /* ints of the largest array */
#define SHORT 320 /* ints of the others */
#define COLUMN 5  /* of those with gaps, so many ints are used in a row, */
#define PITCH 8   /* and the next ones so many further on */
#define RANKS_MAX 8

/* Where an array lies: one of mem.h's kinds, or host memory of several kinds. */
enum place {
    DEVICE = MEM_DEVICE,
    MANAGED = MEM_MANAGED,
    PINNED = MEM_REGISTERED,
    HEAP = MEM_COUNT,
    STACK,
    MAPPED,
    STATIC
};

static const struct {
    const char *name;
    int n;
    enum place place[PARTS];
} mixes[] = {
    {"device-device", 2, {DEVICE, DEVICE}},
    {"device-device-device", 3, {DEVICE, DEVICE, DEVICE}},
    {"managed-managed", 2, {MANAGED, MANAGED}},
    {"device-managed", 2, {DEVICE, MANAGED}},
    {"device-pinned", 2, {DEVICE, PINNED}},
    {"heap-device", 2, {HEAP, DEVICE}},
    {"stack-device", 2, {STACK, DEVICE}},
    {"mapped-device", 2, {MAPPED, DEVICE}},
    {"static-device", 2, {STATIC, DEVICE}},
    {"heap-stack-device", 3, {HEAP, STACK, DEVICE}},
    {"heap-device-mapped", 3, {HEAP, DEVICE, MAPPED}},
    {"heap-managed", 2, {HEAP, MANAGED}},
    {"mapped-mapped", 2, {MAPPED, MAPPED}},
};

/* Arrays, and the datatype of their elements. */
typedef struct {
    int n;
    enum place place[PARTS];
    int *at[PARTS];
    int ints[PARTS]; /* of each array */
    int elements;    /* of all */
    struct {
        int part, index;
    } * e; /* [elements], in packed order */
    MPI_Datatype type;
    void *buf; /* to be passed with it */
} shape_t;

static check_t t;
static int me, ranks;
static const char *only;
static uint64_t thin, cases;
static bool preloaded;
static int *on_stack, in_data[ROOM];
static int *image[PARTS]; /* what the arrays hold, or are to hold */
static int *scratch, scratch_of_all[RANKS_MAX * PARTS * ROOM];

static void *need(void *p)
{
    if (NULL == p || MAP_FAILED == p) {
        fprintf(stderr, "parts: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
        exit(99);
    }
    return p;
}

/* ---- arrays ---- */

static int *array_make(enum place place)
{
    switch (place) {
    case HEAP:
        return need(malloc(sizeof(int) * ROOM));
    case STACK:
        return on_stack;
    case MAPPED:
        return need(mmap(NULL, sizeof(int) * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    case STATIC:
        return in_data;
    default:
        return need(mem_alloc((int) place, sizeof(int) * ROOM));
    }
}

static void array_free(enum place place, int *p)
{
    switch (place) {
    case HEAP:
        free(p);
        break;
    case MAPPED:
        munmap(p, sizeof(int) * ROOM);
        break;
    case STACK:
    case STATIC:
        break;
    default:
        mem_free((int) place, p);
    }
}

/* ---- shapes ---- */

/* Variants of a mix, by their bits. */
enum { DESCENDING = 1, RELATIVE = 2, UNEQUAL = 4, GAPS = 8, LONG = 16, VARIANTS = 32 };

/* By address, rising or falling. */
static void sort_parts(shape_t *s, bool descending)
{
    for (int i = 0; i < s->n; i++) {
        for (int k = i + 1; k < s->n; k++) {
            if ((s->at[i] > s->at[k]) != descending) {
                int *const at = s->at[i];
                const enum place place = s->place[i];
                s->at[i] = s->at[k];
                s->place[i] = s->place[k];
                s->at[k] = at;
                s->place[k] = place;
            }
        }
    }
}

/* One array's elements. */
static MPI_Datatype make_part(int ints, bool gaps)
{
    MPI_Datatype made;
    if (gaps) {
        MPI_Type_vector(ints / PITCH, COLUMN, PITCH, MPI_INT, &made);
    } else {
        MPI_Type_contiguous(ints, MPI_INT, &made);
    }
    return made;
}

static void shape_start(shape_t *s, int mix, int variant)
{
    const bool gaps = variant & GAPS;
    int ones[PARTS];
    MPI_Aint at[PARTS];
    MPI_Datatype types[PARTS];

    *s = (shape_t){.n = mixes[mix].n};
    for (int i = 0; i < s->n; i++) {
        s->place[i] = mixes[mix].place[i];
        s->at[i] = array_make(s->place[i]);
    }
    sort_parts(s, variant & DESCENDING);
    s->e = need(malloc(PARTS * ROOM * sizeof *s->e));
    for (int i = 0; i < s->n; i++) {
        s->ints[i] = (variant & LONG ? ROOM : SHORT) / (variant & UNEQUAL ? i + 1 : 1) / PITCH * PITCH;
        for (int k = 0; k < s->ints[i]; k++) {
            if (!gaps || k % PITCH < COLUMN) {
                s->e[s->elements].part = i;
                s->e[s->elements++].index = k;
            }
        }
        ones[i] = 1;
        types[i] = make_part(s->ints[i], gaps);
        MPI_Get_address(s->at[i], &at[i]);
        at[i] -= variant & RELATIVE ? (MPI_Aint) s->at[0] : 0;
    }
    s->buf = variant & RELATIVE ? (void *) s->at[0] : MPI_BOTTOM;
    MPI_Type_create_struct(s->n, ones, at, types, &s->type);
    MPI_Type_commit(&s->type);
    for (int i = 0; i < s->n; i++) {
        MPI_Type_free(&types[i]);
    }
}

static void shape_end(shape_t *s)
{
    MPI_Type_free(&s->type);
    for (int i = 0; i < s->n; i++) {
        array_free(s->place[i], s->at[i]);
    }
    free(s->e);
}

/* Fills all arrays, gaps included, and the image: element k of rank r has the value of value(r, k), what lies between
 * another one. */
static int value(int rank, int k)
{
    return rank * 1000000 + k;
}

static void shape_fill(shape_t *s, int rank)
{
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < ROOM; k++) {
            image[i][k] = -1 - k;
        }
    }
    for (int k = 0; rank >= 0 && k < s->elements; k++) {
        image[s->e[k].part][s->e[k].index] = value(rank, k);
    }
    for (int i = 0; i < s->n; i++) {
        mem_write(s->at[i], image[i], sizeof(int) * ROOM);
    }
}

/* What is due: the elements of a rank, and nothing else has changed. */
static bool shape_holds(shape_t *s, int rank)
{
    for (int k = 0; rank >= 0 && k < s->elements; k++) {
        image[s->e[k].part][s->e[k].index] = value(rank, k);
    }
    for (int i = 0; i < s->n; i++) {
        mem_read(scratch, s->at[i], sizeof(int) * ROOM);
        for (int k = 0; k < ROOM; k++) {
            if (scratch[k] != image[i][k]) {
                fprintf(stderr, "parts: rank %d: array %d of %d, int %d: %d, %d is due\n", me, i, s->n, k, scratch[k],
                        image[i][k]);
                return false;
            }
        }
    }
    return true;
}

/* Packed ints, of all ranks one behind the other: in device memory, or in the heap. */
static int *flat;
static int flat_kind;

static void flat_fill(int rank, int blocks, int elements)
{
    int *all = need(malloc(sizeof(int) * (size_t) (blocks * elements)));
    for (int b = 0; b < blocks; b++) {
        for (int k = 0; k < elements; k++) {
            all[b * elements + k] = rank < 0 ? -7 : value(rank, k) + b * 100000000;
        }
    }
    mem_write(flat, all, sizeof(int) * (size_t) (blocks * elements));
    free(all);
}

/* Block b has the elements of rank b + first. */
static bool flat_holds(int first, int blocks, int elements)
{
    int *all = need(malloc(sizeof(int) * (size_t) (blocks * elements)));
    bool right = true;
    mem_read(all, flat, sizeof(int) * (size_t) (blocks * elements));
    for (int i = 0; right && i < blocks * elements; i++) {
        if (all[i] != value(first + i / elements, i % elements)) {
            fprintf(stderr, "parts: rank %d: packed int %d: %d, %d is due\n", me, i, all[i],
                    value(first + i / elements, i % elements));
            right = false;
        }
    }
    free(all);
    return right;
}

static bool flat_is(const int *due, int n)
{
    int *all = need(malloc(sizeof(int) * (size_t) n));
    bool right = true;
    mem_read(all, flat, sizeof(int) * (size_t) n);
    for (int i = 0; right && i < n; i++) {
        if (all[i] != due[i]) {
            fprintf(stderr, "parts: rank %d: packed int %d: %d, %d is due\n", me, i, all[i], due[i]);
            right = false;
        }
    }
    free(all);
    return right;
}

/* ---- calls ---- */

/* Each tells whether this rank has what is due. */

static bool call_send(shape_t *s)
{
    shape_fill(s, me);
    flat_fill(-1, 1, s->elements);
    if (0 == me) {
        for (int r = 1; r < ranks; r++) {
            MPI_Send(s->buf, 1, s->type, r, 1, MPI_COMM_WORLD);
        }
        return shape_holds(s, 0);
    }
    MPI_Recv(flat, s->elements, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return flat_holds(0, 1, s->elements);
}

static bool call_recv(shape_t *s)
{
    MPI_Request request;
    shape_fill(s, -1);
    flat_fill(me, 1, s->elements);
    if (0 == me) {
        for (int r = 1; r < ranks; r++) {
            MPI_Send(flat, s->elements, MPI_INT, r, 2, MPI_COMM_WORLD);
            MPI_Send(flat, s->elements / 2, MPI_INT, r, 3, MPI_COMM_WORLD);
        }
        return flat_holds(0, 1, s->elements);
    }
    MPI_Recv(s->buf, 1, s->type, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    bool right = shape_holds(s, 0);
    shape_fill(s, -1);
    MPI_Irecv(s->buf, 1, s->type, 0, 3, MPI_COMM_WORLD, &request); /* a part of it */
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    const int all = s->elements;
    s->elements /= 2;
    right = shape_holds(s, 0) && right;
    s->elements = all;
    return right;
}

/* From shape to shape, around. */
static bool call_ring(shape_t *s)
{
    MPI_Request request;
    const int next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    shape_fill(s, me);
    flat_fill(me, 1, s->elements);
    MPI_Isend(flat, s->elements, MPI_INT, next, 4, MPI_COMM_WORLD, &request);
    MPI_Recv(s->buf, 1, s->type, last, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Isend(s->buf, 1, s->type, last, 5, MPI_COMM_WORLD, &request);
    MPI_Recv(flat, s->elements, MPI_INT, next, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return shape_holds(s, last) && flat_holds(me, 1, s->elements);
}

static bool call_pair(shape_t *s)
{
    const int root = ranks - 1;
    shape_fill(s, root == me ? me : -1);
    if (root == me) {
        for (int r = 0; r < root; r++) {
            MPI_Ssend(s->buf, 1, s->type, r, 6, MPI_COMM_WORLD);
        }
    } else {
        MPI_Recv(s->buf, 1, s->type, root, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return shape_holds(s, root);
}

static bool call_bcast(shape_t *s)
{
    MPI_Request request;
    shape_fill(s, 0 == me ? 0 : -1);
    MPI_Bcast(s->buf, 1, s->type, 0, MPI_COMM_WORLD);
    bool right = shape_holds(s, 0);
    shape_fill(s, 1 == me ? 1 : -1);
    MPI_Ibcast(s->buf, 1, s->type, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    right = shape_holds(s, 1) && right;
    PERSISTENT_INIT(Bcast)(s->buf, 1, s->type, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int i = 0; i < 2; i++) {
        shape_fill(s, 0 == me ? 0 : -1);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        right = shape_holds(s, 0) && right;
    }
    MPI_Request_free(&request);
    return right;
}

static bool call_allgather(shape_t *s)
{
    shape_fill(s, me);
    flat_fill(-1, ranks, s->elements);
    MPI_Allgather(s->buf, 1, s->type, flat, s->elements, MPI_INT, MPI_COMM_WORLD);
    return flat_holds(0, ranks, s->elements) && shape_holds(s, me);
}

static bool call_gather(shape_t *s)
{
    shape_fill(s, me);
    flat_fill(-1, ranks, s->elements);
    MPI_Gather(s->buf, 1, s->type, flat, s->elements, MPI_INT, 0, MPI_COMM_WORLD);
    return (0 != me || flat_holds(0, ranks, s->elements)) && shape_holds(s, me);
}

static bool call_scatter(shape_t *s)
{
    shape_fill(s, -1);
    flat_fill(0, ranks, s->elements);
    MPI_Scatter(flat, s->elements, MPI_INT, s->buf, 1, s->type, 0, MPI_COMM_WORLD);
    for (int k = 0; k < s->elements; k++) {
        image[s->e[k].part][s->e[k].index] = value(0, k) + me * 100000000;
    }
    return shape_holds(s, -1);
}

/* What this rank has goes to the next rank, which takes it by the same type, or as it is. */
static bool exchange(shape_t *s, bool sends)
{
    const int next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    int scounts[RANKS_MAX] = {0}, rcounts[RANKS_MAX] = {0}, displs[RANKS_MAX] = {0};
    shape_fill(s, sends ? me : -1);
    flat_fill(sends ? -1 : me, 1, s->elements);
    scounts[next] = sends ? 1 : s->elements;
    rcounts[last] = sends ? s->elements : 1;
    if (sends) {
        MPI_Alltoallv(s->buf, scounts, displs, s->type, flat, rcounts, displs, MPI_INT, MPI_COMM_WORLD);
    } else {
        MPI_Alltoallv(flat, scounts, displs, MPI_INT, s->buf, rcounts, displs, s->type, MPI_COMM_WORLD);
    }
    return shape_holds(s, sends ? me : last) && flat_holds(sends ? last : me, 1, s->elements);
}

static bool call_alltoallv(shape_t *s)
{
    const bool right = exchange(s, true);
    return exchange(s, false) && right;
}

static bool call_alltoallw(shape_t *s)
{
    const int next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    int scounts[RANKS_MAX] = {0}, rcounts[RANKS_MAX] = {0}, displs[RANKS_MAX] = {0};
    MPI_Datatype stypes[RANKS_MAX], rtypes[RANKS_MAX];
    shape_fill(s, -1);
    flat_fill(me, 1, s->elements);
    for (int r = 0; r < ranks; r++) {
        stypes[r] = MPI_INT;
        rtypes[r] = s->type;
    }
    scounts[next] = s->elements;
    rcounts[last] = 1;
    MPI_Alltoallw(flat, scounts, displs, stypes, s->buf, rcounts, displs, rtypes, MPI_COMM_WORLD);
    return shape_holds(s, last) && flat_holds(me, 1, s->elements);
}

/* To and from each rank, a block each: those of one array lie SHORT ints apart. */
static void images_of_all(const shape_t *s, bool mine)
{
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < ROOM; k++) {
            image[i][k] = -1 - k;
        }
    }
    for (int r = 0; r < ranks; r++) {
        for (int k = 0; k < s->elements; k++) {
            image[s->e[k].part][r * SHORT + s->e[k].index] =
                mine ? value(me, k) + r * 100000000 : value(r, k) + me * 100000000;
        }
    }
}

static bool call_alltoallv_all(shape_t *s)
{
    int ones[RANKS_MAX], elements[RANKS_MAX], first[RANKS_MAX], behind[RANKS_MAX];
    MPI_Datatype type;
    MPI_Type_create_resized(s->type, 0, SHORT * (MPI_Aint) sizeof(int), &type);
    MPI_Type_commit(&type);
    for (int r = 0; r < ranks; r++) {
        ones[r] = 1;
        elements[r] = s->elements;
        first[r] = r;
        behind[r] = r * s->elements;
    }
    images_of_all(s, true);
    for (int i = 0; i < s->n; i++) {
        mem_write(s->at[i], image[i], sizeof(int) * ROOM);
    }
    flat_fill(-1, ranks, s->elements);
    MPI_Alltoallv(s->buf, ones, first, type, flat, elements, behind, MPI_INT, MPI_COMM_WORLD);
    bool right = shape_holds(s, -1);
    for (int r = 0; r < ranks; r++) { /* what came has this rank's number in front */
        for (int k = 0; k < s->elements; k++) {
            scratch_of_all[r * s->elements + k] = value(r, k) + me * 100000000;
        }
    }
    right = flat_is(scratch_of_all, ranks * s->elements) && right;
    flat_fill(me, ranks, s->elements);
    shape_fill(s, -1);
    MPI_Alltoallv(flat, elements, behind, MPI_INT, s->buf, ones, first, type, MPI_COMM_WORLD);
    images_of_all(s, false);
    right = shape_holds(s, -1) && right;
    MPI_Type_free(&type);
    return right;
}

/* Two arrays, to two neighbours on a ring, by their addresses; and back. */
static bool call_neighbors(shape_t *s)
{
    const int next = (me + 1) % ranks, last = (me + ranks - 1) % ranks, from[2] = {last, next}, to[2] = {next, last};
    const int counts[2] = {s->ints[0], s->ints[1]}, ones[2] = {1, 1};
    const MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    const MPI_Aint behind[2] = {0, (MPI_Aint) sizeof(int) * ROOM};
    MPI_Aint at[2];
    MPI_Comm ring;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, ones, 2, to, ones, MPI_INFO_NULL, 0, &ring);
    shape_fill(s, -1);
    for (int i = 0; i < 2; i++) {
        MPI_Get_address(s->at[i], &at[i]);
        for (int k = 0; k < s->ints[i]; k++) {
            image[i][k] = value(me, i * ROOM + k);
        }
        mem_write(s->at[i], image[i], sizeof(int) * ROOM);
    }
    flat_fill(-1, 2, ROOM);
    MPI_Neighbor_alltoallw(MPI_BOTTOM, counts, at, types, flat, counts, behind, types, ring);
    bool right = shape_holds(s, -1);
    for (int k = 0; k < 2 * ROOM; k++) {
        scratch_of_all[k] = k % ROOM < s->ints[k / ROOM] ? value(from[k / ROOM], k) : -7;
    }
    right = flat_is(scratch_of_all, 2 * ROOM) && right;
    shape_fill(s, -1);
    MPI_Neighbor_alltoallw(flat, counts, behind, types, MPI_BOTTOM, counts, at, types, ring); /* what came before */
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < s->ints[i]; k++) {
            image[i][k] = value((i == 0 ? last + ranks - 1 : next + 1) % ranks, i * ROOM + k);
        }
    }
    right = shape_holds(s, -1) && right;
    MPI_Comm_free(&ring);
    return right;
}

static bool call_pack(shape_t *s)
{
    const int bytes = (int) sizeof(int) * s->elements;
    int position = 0;
    shape_fill(s, me);
    flat_fill(-1, 1, s->elements);
    MPI_Pack(s->buf, 1, s->type, flat, bytes, &position, MPI_COMM_WORLD);
    bool right = position == bytes && flat_holds(me, 1, s->elements) && shape_holds(s, me);
    flat_fill(me + 1, 1, s->elements);
    shape_fill(s, -1);
    position = 0;
    MPI_Unpack(flat, bytes, &position, s->buf, 1, s->type, MPI_COMM_WORLD);
    right = position == bytes && shape_holds(s, me + 1) && right;
    shape_fill(s, me);
    MPI_Sendrecv_replace(s->buf, 1, s->type, (me + 1) % ranks, 7, (me + ranks - 1) % ranks, 7, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    return shape_holds(s, (me + ranks - 1) % ranks) && right;
}

static bool call_pack_external(shape_t *s)
{
    MPI_Aint size = 0, position = 0;
    MPI_Pack_external_size("external32", 1, s->type, &size);
    shape_fill(s, me);
    MPI_Pack_external("external32", s->buf, 1, s->type, flat, size, &position);
    shape_fill(s, -1);
    position = 0;
    MPI_Unpack_external("external32", flat, size, &position, s->buf, 1, s->type);
    return shape_holds(s, me);
}

static const struct {
    const char *name;
    bool (*run)(shape_t *s);
    bool preloaded, is_short; /* only then; only short arrays */
} calls[] = {
    {"send", call_send, false, false},
    {"recv", call_recv, false, false},
    {"ring", call_ring, false, false},
    {"pair", call_pair, false, false},
    {"bcast", call_bcast, false, false},
    {"allgather", call_allgather, false, false},
    {"gather", call_gather, false, false},
    {"scatter", call_scatter, false, false},
    {"alltoallv", call_alltoallv, false, false},
    {"alltoallv of all", call_alltoallv_all, false, true},
    {"alltoallw", call_alltoallw, false, false},
    {"neighbors", call_neighbors, false, false},
    {"pack", call_pack, true, false},
    {"external", call_pack_external, true, false},
};

static void check_one(int mix, int variant, size_t call)
{
    shape_t s;
    char text[160];
    snprintf(text, sizeof text, "%s %s%s%s%s%s%s, flat %s", calls[call].name, mixes[mix].name,
             variant & DESCENDING ? ", descending" : "", variant & RELATIVE ? ", relative" : "",
             variant & UNEQUAL ? ", unequal" : "", variant & GAPS ? ", gaps" : "", variant & LONG ? ", long" : "",
             mem_name(flat_kind));
    if (preloaded != calls[call].preloaded || (calls[call].is_short && 0 != (variant & LONG)) || 0 != cases++ % thin ||
        (NULL != only && NULL == strstr(text, only))) {
        return;
    }
    if (check_trace() && 0 == me) {
        fprintf(stderr, "parts: %s\n", text);
    }
    shape_start(&s, mix, variant);
    const bool right = calls[call].run(&s);
    if (!right) {
        fprintf(stderr, "parts: FAIL: rank %d: %s\n", me, text);
    }
    check_result(&t, right);
    shape_end(&s);
}

static bool have(int mix)
{
    for (int i = 0; i < mixes[mix].n; i++) {
        if (mixes[mix].place[i] < HEAP && !mem_have((int) mixes[mix].place[i])) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    int stack[ROOM];

    check_init(&argc, &argv, "parts", MPI_THREAD_SINGLE);
    preloaded = check_flag("--preloaded");
    only = check_option("--only");
    thin = check_number("--thin", 1);
    const uint64_t room = check_number("--room", 0);
    check_arguments_end(USAGE);
    check_start(&t, "parts", MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2 || ranks > RANKS_MAX || 0 == thin || !mem_have(MEM_DEVICE)) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (0 != room && !mem_limit((size_t) room << 20)) {
        MPI_Finalize();
        return 77; /* cannot run here */
    }
    on_stack = stack;
    scratch = need(malloc(sizeof(int) * ROOM));
    for (int i = 0; i < PARTS; i++) {
        image[i] = need(malloc(sizeof(int) * ROOM));
    }
    for (int kind = 0; kind < 2; kind++) {
        flat_kind = 0 == kind ? MEM_DEVICE : MEM_HOST;
        flat = need(mem_alloc(flat_kind, sizeof(int) * (size_t) (RANKS_MAX * PARTS * ROOM)));
        for (int mix = 0; mix < (int) (sizeof mixes / sizeof mixes[0]); mix++) {
            for (int variant = 0; have(mix) && variant < VARIANTS; variant += 1 + 2 * kind) {
                for (size_t call = 0; call < sizeof calls / sizeof calls[0]; call++) {
                    check_one(mix, variant, call);
                }
            }
        }
        mem_free(flat_kind, flat);
    }
    for (int i = 0; i < PARTS; i++) {
        free(image[i]);
    }
    free(scratch);
    const long failed = check_end(&t);
    check_print("parts", t.passed, t.failed);
    return check_fini(failed);
}
