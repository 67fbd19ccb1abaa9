/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test, on 2 ranks: messages between arrays of three and four dimensions by subarrays, vectors and other types.
 * Those that are boxes, of memory that the receiver can map, are not packed, as the counter tells; all arrive, and
 * nothing beside them changes.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"
#include "test/mpi/mpit.h"
#include "test/mpi/msg.h"

#define NAME "boxes"
#define USAGE ""
#define TAG 5
#define INTS (1 << 13) /* of a buffer */
#define PART 192       /* of a message's element */

enum shape { FACE_Z, FACE_Y, FACE_X, BLOCK, FOUR, VECTOR, PLAIN, LIST, SHAPES };
static const char *const shape_names[] = {"face z", "face y", "face x", "block", "4-D", "vector", "plain", "list"};

/* A type of PART ints, and where they are. */
typedef struct {
    MPI_Datatype type;
    int at[PART], extent;
} kind_t;

static struct {
    check_t t;
    int rank;
    kind_t kind[SHAPES];
} self;

static bool wrong(const char *what, const char *why)
{
    fprintf(stderr, NAME ": FAIL on rank %d: %s: %s\n", self.rank, what, why);
    return false;
}

/* ---- types ---- */

/* A subarray of up to four dimensions, the last one of neighbours. */
static void make_subarray(kind_t *k, int dims, const int *size, const int *part, const int *start)
{
    int n = 0;
    MPI_Type_create_subarray(dims, size, part, start, MPI_ORDER_C, MPI_INT, &k->type);
    k->extent = 1;
    for (int d = 0; d < dims; d++) {
        k->extent *= size[d];
    }
    for (int i = 0; i < k->extent; i++) {
        bool inside = true;
        for (int d = dims - 1, rest = i; d >= 0; rest /= size[d--]) {
            inside = inside && rest % size[d] >= start[d] && rest % size[d] < start[d] + part[d];
        }
        if (inside) {
            k->at[n++] = i;
        }
    }
}

static void make_list(kind_t *k)
{
    int at[PART / 2], two[PART / 2];
    for (int i = 0; i < PART / 2; i++) {
        at[i] = 5 * i + (i > 17); /* at no one distance */
        two[i] = 2;
        k->at[2 * i] = at[i];
        k->at[2 * i + 1] = at[i] + 1;
    }
    k->extent = at[PART / 2 - 1] + 2;
    MPI_Type_indexed(PART / 2, two, at, MPI_INT, &k->type);
}

static void make_types(void)
{
    const int cube[] = {18, 18, 18}, four[] = {5, 6, 5, 4}, one[] = {1, 1, 1, 1};
    make_subarray(&self.kind[FACE_Z], 3, cube, (const int[]){1, 12, 16}, one);
    make_subarray(&self.kind[FACE_Y], 3, cube, (const int[]){12, 1, 16}, one);
    make_subarray(&self.kind[FACE_X], 3, cube, (const int[]){12, 16, 1}, one);
    make_subarray(&self.kind[BLOCK], 3, cube, (const int[]){4, 6, 8}, one);
    make_subarray(&self.kind[FOUR], 4, four, (const int[]){4, 4, 4, 3}, one);
    make_subarray(&self.kind[VECTOR], 2, (const int[]){48, 7}, (const int[]){48, 4}, (const int[]){0, 2});
    make_subarray(&self.kind[PLAIN], 1, (const int[]){PART}, (const int[]){PART}, (const int[]){0});
    make_list(&self.kind[LIST]);
    for (int i = 0; i < SHAPES; i++) {
        MPI_Type_commit(&self.kind[i].type);
    }
}

/* ---- messages ---- */

static unsigned long long unpacked(void)
{
    unsigned long long value = 0;
    if (!mpit_counter("coll_gpusym_p2p_sent_unpacked", &value)) {
        wrong("coll_gpusym_p2p_sent_unpacked", "no such counter");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return value;
}

static int value_of(int i)
{
    return 77 * i + 1;
}

/* One message, of `count` elements on both sides, from memory of one kind to memory of another. */
static void try_message(enum shape from, enum shape to, int count, int from_mem, int to_mem, bool persistent)
{
    char what[160];
    if (!mem_have(from_mem) || !mem_have(to_mem)) {
        return;
    }
    int image[INTS], *buffer = mem_alloc(0 == self.rank ? from_mem : to_mem, sizeof(image));
    const kind_t *k = &self.kind[0 == self.rank ? from : to];
    const unsigned long long before = unpacked();
    bool right = true;

    snprintf(what, sizeof(what), "%d of %s of %s memory to %s of %s memory%s", count, shape_names[from],
             mem_name(from_mem), shape_names[to], mem_name(to_mem), persistent ? ", persistent" : "");
    for (int i = 0; i < INTS; i++) {
        image[i] = 0 == self.rank ? value_of(i) : -i;
    }
    mem_write(buffer, image, sizeof(image));
    if (persistent) {
        MPI_Request r;
        if (0 == self.rank) {
            MPI_Send_init(buffer, count, k->type, 1, TAG, MPI_COMM_WORLD, &r);
        } else {
            MPI_Recv_init(buffer, count, k->type, 0, TAG, MPI_COMM_WORLD, &r);
        }
        for (int i = 0; i < 2; i++) {
            MPI_Start(&r);
            MPI_Wait(&r, MPI_STATUS_IGNORE);
        }
        MPI_Request_free(&r);
    } else if (0 == self.rank) {
        MPI_Send(buffer, count, k->type, 1, TAG, MPI_COMM_WORLD);
    } else {
        MPI_Recv(buffer, count, k->type, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (1 == self.rank) {
        int *got = malloc(sizeof(image));
        for (int e = 0; e < count; e++) {
            for (int i = 0; i < PART; i++) {
                image[e * k->extent + k->at[i]] = value_of(e * self.kind[from].extent + self.kind[from].at[i]);
            }
        }
        mem_read(got, buffer, sizeof(image));
        right = 0 == memcmp(got, image, sizeof(image)) || wrong(what, "the receiver's buffer");
        free(got);
    } else {
        /* what a peer cannot map is packed; elements of a 4-D array are one dimension too many */
        const bool box = PLAIN != from && LIST != from && MEM_DEVICE == from_mem && (1 == count || FOUR != from);
        const unsigned long long wanted = !box ? 0 : persistent ? 2 : 1;
        right = wanted == unpacked() - before || wrong(what, box ? "it was packed" : "it was not packed");
    }
    mem_free(0 == self.rank ? from_mem : to_mem, buffer);
    check_result(&self.t, right);
}

int main(int argc, char **argv)
{
    static const int mems[] = {MEM_DEVICE, MEM_HOST, MEM_ASYNC};
    long failed;

    check_init(&argc, &argv, NAME, MPI_THREAD_SINGLE);
    check_arguments_end(USAGE);
    check_start(&self.t, NAME, MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
    if (2 != self.t.nranks) {
        fprintf(stderr, NAME ": for 2 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    make_types();
    for (int from = 0; from < SHAPES; from++) {
        for (int to = 0; to < SHAPES; to++) {
            for (int m = 0; m < 3; m++) {
                try_message((enum shape) from, (enum shape) to, 1, MEM_DEVICE, mems[m], false);
            }
            try_message((enum shape) from, (enum shape) to, 1, MEM_ASYNC, MEM_DEVICE, false);
        }
        const int count = BLOCK < from ? 2 : 1; /* two large ones would not fit */
        try_message((enum shape) from, PLAIN, count, MEM_DEVICE, MEM_DEVICE, true);
        try_message(PLAIN, (enum shape) from, count, MEM_DEVICE, MEM_DEVICE, true);
    }
    for (int i = 0; i < SHAPES; i++) {
        MPI_Type_free(&self.kind[i].type);
    }
    failed = check_end(&self.t);
    check_print(NAME, self.t.passed, self.t.failed);
    return check_fini(failed);
}
