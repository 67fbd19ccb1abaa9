/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: communicators of different ranks of a host, one after the other, with small all-reduces on each: of all
 * ranks but the last, of all but the first, of all, and then of each of these again. Their names are "low", "high",
 * "whole", "low again" and so on: what is set up for one may serve another of the same ranks, or of fewer.
 */
#include <mpi.h>
#include <stdio.h>

#include "test/mpi/check.h"

#define USAGE "[--seed N] [--kinds KIND]"

/* Checked calls on a communicator of ranks first to last, of some lengths. */
static void use(check_t *t, int kind, uint64_t seed, const char *name, int first, int last)
{
    ref_case_t c = {.type = ref_type_find("MPI_FLOAT"), .op = ref_op_find("MPI_SUM"), .seed = ref_mix(seed)};
    check_call_t k = {.c = &c, .contribute = -1, .skind = kind, .rkind = kind};

    MPI_Comm_split(MPI_COMM_WORLD, t->rank >= first && t->rank <= last ? 0 : MPI_UNDEFINED, 0, &k.comm);
    if (MPI_COMM_NULL != k.comm) {
        MPI_Comm_set_name(k.comm, name);
        MPI_Comm_size(k.comm, &c.nranks);
        check_prepare(&c, false);
    }
    for (k.count = 1; k.count < 100000; k.count = 31 * k.count) {
        if (MPI_COMM_NULL != k.comm) {
            check_run(t, &k);
        } else {
            check_absent(t);
        }
    }
    if (MPI_COMM_NULL != k.comm) {
        MPI_Comm_free(&k.comm);
    }
    check_collect(t);
}

int main(int argc, char **argv)
{
    check_t t;
    int kinds[CHECK_KINDS], kind, n, last;
    uint64_t seed;

    check_init(&argc, &argv, "subsets", MPI_THREAD_SINGLE);
    seed = check_seed();
    n = check_kinds(kinds);
    check_arguments_end(USAGE);
    kind = kinds[0];
    for (int i = 0; i < n; i++) {
        kind = MEM_DEVICE == kinds[i] ? MEM_DEVICE : kind;
    }

    check_start(&t, "subsets", MPI_COMM_WORLD);
    last = t.nranks - 1;
    use(&t, kind, seed, "low", 0, last - 1);
    use(&t, kind, seed + 1, "high", 1, last);
    use(&t, kind, seed + 2, "whole", 0, last);
    use(&t, kind, seed + 3, "low again", 0, last - 1);
    use(&t, kind, seed + 4, "high again", 1, last);
    use(&t, kind, seed + 5, "whole again", 0, last);
    const long failed = check_end(&t);
    check_print("subsets", t.passed, t.failed);
    return check_fini(failed);
}
