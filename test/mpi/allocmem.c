/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: MPI_Alloc_mem gives GPU memory where the info object has mpool_hints=mpool=gpusym, before any collective
 * was called: the collectives take it for GPU memory, and large messages move straight between such buffers. Without
 * that key, with another pool's name, and with keys that Open MPI does not hand on, it gives host memory. All of it is
 * freed by MPI_Free_mem, in another order; what is freed can be had again without end.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"
#include "test/mpi/mpit.h"

#define USAGE "[--rounds N]"
#define BUFFERS 6
#define ELEMENTS (1u << 20) /* 4 MiB: allocations of that size can be mapped by peers */

/* An info object's pair, and whether it asks for GPU memory. */
typedef struct {
    const char *key, *value;
    bool gpu;
} hint_t;

static const hint_t hints[] = {
    {"mpool_hints", "mpool=gpusym", true},
    {"mpool_hints", "page_size=2M,mpool=gpusym", true},
    {NULL, NULL, false}, /* MPI_INFO_NULL */
    {"mpool_hints", "mpool=gpusy", false},
    {"mpool_hints", "mpool=gpusymm", false},
    {"mpool_hints", ",", false},
    {"mpi_memory_alloc_kinds", "cuda:device", false},
};
#define HINTS (sizeof(hints) / sizeof(hints[0]))

static void *allocate(size_t bytes, const hint_t *hint)
{
    MPI_Info info = MPI_INFO_NULL;
    void *p = NULL;

    if (NULL != hint->key) {
        MPI_Info_create(&info);
        MPI_Info_set(info, hint->key, hint->value);
    }
    MPI_Alloc_mem((MPI_Aint) bytes, info, &p);
    if (MPI_INFO_NULL != info) {
        MPI_Info_free(&info);
    }
    return p;
}

/* Sums rank + k over all ranks from in to out, element by element; whether that is what came out. */
static bool sums(const check_t *t, int *in, int *out)
{
    int *image = malloc(ELEMENTS * sizeof(int)), wrong = 0;

    for (unsigned k = 0; k < ELEMENTS; k++) {
        image[k] = t->rank + (int) k;
    }
    mem_write(in, image, ELEMENTS * sizeof(int));
    MPI_Allreduce(in, out, ELEMENTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    mem_read(image, out, ELEMENTS * sizeof(int));
    for (unsigned k = 0; k < ELEMENTS; k++) {
        wrong += image[k] != t->nranks * (t->nranks - 1) / 2 + t->nranks * (int) k;
    }
    free(image);
    if (wrong > 0) {
        fprintf(stderr, "allocmem: FAIL on rank %d: %d wrong elements\n", t->rank, wrong);
    }
    return 0 == wrong;
}

/* A call on memory that a hint gave: right, and by the way that its kind goes. native: kernels reach GPU memory here.
 */
static void one(check_t *t, const hint_t *hint, bool native)
{
    int *in = allocate(ELEMENTS * sizeof(int), hint), *out = allocate(ELEMENTS * sizeof(int), hint);
    const char *way = !hint->gpu ? "forwarded" : native ? "zero_copy" : NULL;
    const unsigned long long before = NULL != way ? mpit_count("allreduce", way) : 0;

    check_result(t, NULL != in && NULL != out && sums(t, in, out));
    if (NULL != way && 1 != mpit_count("allreduce", way) - before) {
        fprintf(stderr, "allocmem: FAIL on rank %d: %s=%s: the call was not counted as %s\n", t->rank,
                NULL != hint->key ? hint->key : "no info", NULL != hint->key ? hint->value : "", way);
        check_result(t, false);
    } else {
        check_result(t, true);
    }
    MPI_Free_mem(in);
    MPI_Free_mem(out);
}

/* Small and large allocations of both kinds, beside each other, freed in another order. */
static void churn(check_t *t, uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        char *p[BUFFERS], byte = 7;
        bool ok = true;
        size_t bytes[BUFFERS];

        for (uint64_t k = 0; k < BUFFERS; k++) {
            bytes[k] = (size_t) (ref_mix(i * BUFFERS + k) % ((uint64_t) 1 << (4 + 4 * k))) + 1;
            p[k] = allocate(bytes[k], &hints[(i + k) % HINTS]);
            mem_write(p[k] + bytes[k] - 1, &byte, 1);
        }
        for (uint64_t k = 0; k < BUFFERS; k++) {
            const uint64_t which = (5 * k + i) % BUFFERS; /* 5 and BUFFERS have no common divisor */

            byte = 0;
            mem_read(&byte, p[which] + bytes[which] - 1, 1);
            ok = ok && 7 == byte;
            ok = MPI_SUCCESS == MPI_Free_mem(p[which]) && ok;
        }
        check_result(t, ok);
    }
    check_collect(t);
}

int main(int argc, char **argv)
{
    static check_t t;
    uint64_t rounds;
    long failed;
    bool native;

    check_init(&argc, &argv, "allocmem", MPI_THREAD_SINGLE);
    rounds = check_number("--rounds", 100);
    check_arguments_end(USAGE);
    if (!mem_have(MEM_DEVICE)) {
        printf("allocmem: needs GPU memory\n");
        return check_fini(0), CHECK_SKIPPED;
    }
    check_start(&t, "allocmem", MPI_COMM_WORLD);
    /* First of all: the device is not open yet. */
    void *first = allocate(100, &hints[0]);
    check_result(&t, NULL != first && MPI_SUCCESS == MPI_Free_mem(first));
    native = t.nranks > 1 && check_native(MEM_DEVICE);
    mpit_need("coll_gpusym_zero_copy_min", 1);
    if (native) {
        mpit_algorithm("allreduce", "rsxst_agxst");
    }
    for (size_t i = 0; i < HINTS; i++) {
        one(&t, &hints[i], native);
    }
    churn(&t, rounds);
    failed = check_end(&t);
    check_print("allocmem", t.passed, t.failed);
    return check_fini(failed);
}
