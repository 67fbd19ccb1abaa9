/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A cube of complex numbers on device memory, in slabs along x, is transposed to slabs along y with x innermost, by one
 * MPI_Alltoallw: subarrays are sent, hindexed types of vectors received, as in Fourier transforms. Every
 * byte is compared. Prints the median time of the slowest rank, and that of MPI_Neighbor_alltoall on a ring.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"
#include "test/mpi/mpit.h"

#define USAGE "usage: transpose [--n EDGE] [--times N] [--ring BYTES]"
enum { RANKS_MAX = 32 };

/* One element, 16 bytes. */
typedef struct {
    uint64_t a, b;
} element_t;

typedef struct {
    check_t t;
    int me, ranks, n; /* n: elements along an edge */
    int times;
    size_t room; /* elements of a slab at most */
    element_t *in, *out, *image;
    MPI_Datatype stypes[RANKS_MAX], rtypes[RANKS_MAX];
} cube_t;

/* Rank r has [first, end) of x, then of y. */
static int first_of(const cube_t *k, int r)
{
    return (int) ((long) k->n * r / k->ranks);
}

static int count_of(const cube_t *k, int r)
{
    return first_of(k, r + 1) - first_of(k, r);
}

static element_t value(int x, int y, int z)
{
    const uint64_t id = (uint64_t) x << 40 | (uint64_t) y << 20 | (uint64_t) z;
    return (element_t){id, id * 0x9e3779b97f4a7c15u};
}

static void make_types(cube_t *k)
{
    const int nx = count_of(k, k->me), ny = count_of(k, k->me);
    for (int p = 0; p < k->ranks; p++) {
        const int sizes[] = {nx, k->n, k->n}, parts[] = {nx, count_of(k, p), k->n}, starts[] = {0, first_of(k, p), 0};
        MPI_Datatype column;
        MPI_Aint displs[k->n];
        int lengths[k->n];
        MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_C_DOUBLE_COMPLEX, &k->stypes[p]);
        MPI_Type_vector(ny * k->n, 1, k->n, MPI_C_DOUBLE_COMPLEX, &column);
        for (int x = 0; x < count_of(k, p); x++) {
            lengths[x] = 1;
            displs[x] = (MPI_Aint) sizeof(element_t) * (first_of(k, p) + x);
        }
        MPI_Type_create_hindexed(count_of(k, p), lengths, displs, column, &k->rtypes[p]);
        MPI_Type_free(&column);
        MPI_Type_commit(&k->stypes[p]);
        MPI_Type_commit(&k->rtypes[p]);
    }
}

static void fill(const cube_t *k)
{
    memset(k->image, 0xa5, k->room * sizeof *k->image);
    mem_write(k->out, k->image, k->room * sizeof *k->image);
    for (int x = 0; x < count_of(k, k->me); x++) {
        for (int y = 0; y < k->n; y++) {
            for (int z = 0; z < k->n; z++) {
                k->image[((size_t) x * k->n + y) * k->n + z] = value(first_of(k, k->me) + x, y, z);
            }
        }
    }
    mem_write(k->in, k->image, k->room * sizeof *k->image);
}

static size_t count_wrong(const cube_t *k)
{
    size_t wrong = 0;
    mem_read(k->image, k->out, k->room * sizeof *k->image);
    for (int y = 0; y < count_of(k, k->me); y++) {
        for (int z = 0; z < k->n; z++) {
            for (int x = 0; x < k->n; x++) {
                const element_t *is = &k->image[((size_t) y * k->n + z) * k->n + x];
                const element_t want = value(x, first_of(k, k->me) + y, z);
                wrong += is->a != want.a || is->b != want.b;
            }
        }
    }
    return wrong;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* The median of the slowest rank's times, in microseconds; sorts. */
static double median(double *us, int n)
{
    MPI_Allreduce(MPI_IN_PLACE, us, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(us, (size_t) n, sizeof *us, compare);
    return us[n / 2];
}

static void transpose(cube_t *k)
{
    int ones[RANKS_MAX], zeros[RANKS_MAX] = {0};
    double us[k->times];
    for (int p = 0; p < k->ranks; p++) {
        ones[p] = 0 != count_of(k, p) && 0 != count_of(k, k->me);
    }
    fill(k);
    const unsigned long long before = mpit_count("alltoallw", "native");
    for (int i = 0; i < k->times; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        MPI_Alltoallw(k->in, ones, zeros, k->stypes, k->out, ones, zeros, k->rtypes, MPI_COMM_WORLD);
        us[i] = 1e6 * (MPI_Wtime() - start);
    }
    const bool native = mpit_count("alltoallw", "native") - before == (unsigned long long) k->times;
    const size_t wrong = count_wrong(k);
    if (0 != wrong || !native) {
        fprintf(stderr, "transpose: FAIL on rank %d: %zu elements wrong, %s\n", k->me, wrong,
                native ? "by kernels" : "not always by kernels");
    }
    check_result(&k->t, 0 == wrong && native);
    const double at = median(us, k->times);
    if (0 == k->me) {
        printf("transpose of %d^3 by MPI_Alltoallw: %.1f us\n", k->n, at);
    }
}

static void ring(cube_t *k, size_t bytes)
{
    const int periodic = 1;
    double us[k->times];
    MPI_Comm comm;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &k->ranks, &periodic, 0, &comm);
    for (int i = 0; i < k->times; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        MPI_Neighbor_alltoall(k->in, (int) bytes, MPI_BYTE, k->out, (int) bytes, MPI_BYTE, comm);
        us[i] = 1e6 * (MPI_Wtime() - start);
    }
    MPI_Comm_free(&comm);
    const double at = median(us, k->times);
    if (0 == k->me) {
        printf("MPI_Neighbor_alltoall on a ring, %zu bytes a neighbour: %.1f us\n", bytes, at);
    }
}

int main(int argc, char **argv)
{
    static cube_t k;

    check_init(&argc, &argv, "transpose", MPI_THREAD_SINGLE);
    k.n = (int) check_number("--n", 16);
    k.times = (int) check_number("--times", 3);
    const size_t bytes = (size_t) check_number("--ring", 512);
    check_arguments_end(USAGE);
    check_start(&k.t, "transpose", MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &k.me);
    MPI_Comm_size(MPI_COMM_WORLD, &k.ranks);
    if (!mem_have(MEM_DEVICE) || k.ranks > RANKS_MAX || k.times < 1 || (k.ranks > 1 && !check_native(MEM_DEVICE))) {
        if (0 == k.me) {
            printf("transpose: needs device memory that the kernels reach\n");
        }
        check_end(&k.t);
        check_fini(0);
        return CHECK_SKIPPED;
    }
    k.room = ((size_t) k.n / (size_t) k.ranks + 1) * (size_t) k.n * (size_t) k.n;
    k.room = k.room * sizeof *k.in < 2 * bytes ? 2 * bytes / sizeof *k.in + 1 : k.room;
    k.in = mem_alloc(MEM_DEVICE, k.room * sizeof *k.in);
    k.out = mem_alloc(MEM_DEVICE, k.room * sizeof *k.out);
    k.image = malloc(k.room * sizeof *k.image);
    if (NULL == k.in || NULL == k.out || NULL == k.image) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    make_types(&k);
    transpose(&k);
    ring(&k, bytes);
    for (int p = 0; p < k.ranks; p++) {
        MPI_Type_free(&k.stypes[p]);
        MPI_Type_free(&k.rtypes[p]);
    }
    mem_free(MEM_DEVICE, k.in);
    mem_free(MEM_DEVICE, k.out);
    free(k.image);
    const long failed = check_end(&k.t);
    check_print("transpose", k.t.passed, k.t.failed);
    return check_fini(failed);
}
