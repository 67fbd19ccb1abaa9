/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: MPI_Iallreduce of a few integers, where nothing tells the name of a function, as in a program that is
 * linked statically: so gpusym cannot tell such a call from those by which Open MPI makes communicators. On memory of
 * each kind, in place and not: the sums are right.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr, RTLD_NEXT */
#endif
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

#include "test/mpi/check.h"

#define USAGE "[--kinds LIST]"
#define COUNT 4

static long asked; /* how often gpusym, or another library, has asked for a name */

/* In place of libc's. */
int dladdr(const void *address, Dl_info *info)
{
    static int (*next)(const void *, Dl_info *);

    *(void **) &next = dlsym(RTLD_NEXT, "dladdr");
    const int found = next(address, info);
    info->dli_sname = NULL;
    __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
    return found;
}

static bool sums_up(const check_t *t, int kind, bool in_place)
{
    int *in = mem_alloc(kind, COUNT * sizeof(int)), *out = mem_alloc(kind, COUNT * sizeof(int)), image[COUNT];
    const int n = t->nranks;
    bool right = true;
    MPI_Request request;

    if (NULL == in || NULL == out) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (int i = 0; i < COUNT; i++) {
        image[i] = 100 * i + t->rank;
    }
    mem_write(in_place ? out : in, image, sizeof image);
    MPI_Iallreduce(in_place ? MPI_IN_PLACE : in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    mem_read(image, out, sizeof image);
    for (int i = 0; i < COUNT; i++) {
        right = right && image[i] == 100 * i * n + n * (n - 1) / 2;
    }
    mem_free(kind, in);
    mem_free(kind, out);
    if (!right) {
        fprintf(stderr, "nameless: FAIL on rank %d: %s memory%s\n", t->rank, mem_name(kind),
                in_place ? ", in place" : "");
    }
    return right;
}

int main(int argc, char **argv)
{
    int kinds[CHECK_KINDS];
    check_t t;

    check_init(&argc, &argv, "nameless", MPI_THREAD_SINGLE);
    const int n = check_kinds(kinds);
    check_arguments_end(USAGE);
    check_start(&t, "nameless", MPI_COMM_WORLD);
    const long before = asked;
    for (int i = 0; i < 2 * n; i++) {
        check_result(&t, sums_up(&t, kinds[i / 2], 1 == i % 2));
    }
    check_result(&t, asked > before);
    const long failed = check_end(&t);
    check_print("nameless", t.passed, t.failed);
    return check_fini(failed);
}
