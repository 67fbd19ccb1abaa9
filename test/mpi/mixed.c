/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: calls of MPI_Allreduce in which some ranks give host memory and others device memory: every
 * combination over the ranks (up to 4; on more ranks a random choice, with all single ones), several sizes, in
 * place and not; then send and receive buffers of different kinds on the same rank.
 */
#include <mpi.h>
#include <stdio.h>

#include "test/mpi/check.h"

#define USAGE "[--seed N] [--kinds LIST] [--rounds N]"
#define ALL_RANKS 4 /* up to so many ranks: every combination */

static const size_t counts[] = {1, 5, 1000, 4000};
#define FLOATS_MORE 10 /* times the last count for MPI_FLOAT: the others' reference is slow */
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

static const struct {
    const char *type, *op;
} cases[] = {{"MPI_FLOAT", "MPI_SUM"},
             {"MPI_INT8_T", "MPI_MAX"},
             {"MPI_2INT", "MPI_MINLOC"},
             {"MPI_LONG_DOUBLE", "MPI_SUM"},
             {"user vector with gaps", "user operation"},
             {"user matrix", "user operation"}};
#define CASES (sizeof(cases) / sizeof(cases[0]))

/* One call of every size of the given kinds on this rank; variants: 1: out of place, 2: and in place. */
static void sizes(check_t *t, uint64_t seed, int skind, int rkind, int variants)
{
    const unsigned which = (unsigned) (seed % CASES);
    ref_case_t c = {.type = ref_type_find(cases[which].type),
                    .op = ref_op_find(cases[which].op),
                    .seed = seed,
                    .nranks = t->nranks};

    for (size_t n = 0; n < COUNTS; n++) {
        for (int in_place = 0; in_place < variants; in_place++) {
            check_call_t k = {.comm = MPI_COMM_WORLD,
                              .c = &c,
                              .contribute = -1,
                              .first = n * 7919 + (size_t) in_place,
                              .count = COUNTS - 1 == n && 0 == which ? FLOATS_MORE * counts[n] : counts[n],
                              .in_place = in_place,
                              .skind = skind,
                              .rkind = rkind,
                              .soff = 0 == seed % 3 ? 1 : 0,
                              .roff = 0 == seed % 5 ? 3 : 0};

            if (check_prepare(&c, false)) {
                check_run(t, &k);
            }
        }
    }
}

/* Ranks whose bit is set in mask have device memory. */
static void host_and_device(check_t *t, uint64_t seed, uint64_t mask, int device)
{
    int kind = (mask >> t->rank) & 1 ? device : MEM_HOST;

    for (unsigned which = 0; which < CASES; which++) {
        sizes(t, ref_mix(seed + mask) / CASES * CASES + which, kind, kind, 2);
    }
    check_collect(t);
}

static void combinations(check_t *t, uint64_t seed, int device, uint64_t rounds)
{
    uint64_t all = t->nranks < 64 ? (UINT64_C(1) << t->nranks) - 1 : ~UINT64_C(0);

    if (t->nranks <= ALL_RANKS) {
        for (uint64_t mask = 0; mask <= all; mask++) {
            host_and_device(t, seed, mask, device);
        }
        return;
    }
    host_and_device(t, seed, 0, device);
    host_and_device(t, seed, all, device);
    for (int r = 0; r < t->nranks && r < 64; r++) {
        host_and_device(t, seed, UINT64_C(1) << r, device);
    }
    for (uint64_t i = 0; i < rounds; i++) {
        host_and_device(t, seed, ref_mix(seed + i) & all, device);
    }
}

/* Any kind for either buffer on every rank. */
static void any_kinds(check_t *t, uint64_t seed, const int *kinds, int n, uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t round = ref_mix(seed + 1000 + i);
        uint64_t own = ref_mix(round + (uint64_t) t->rank);

        sizes(t, round, kinds[own % (uint64_t) n], kinds[(own >> 16) % (uint64_t) n], 0 == i % 4 ? 2 : 1);
    }
    check_collect(t);
}

int main(int argc, char **argv)
{
    check_t t;
    int kinds[CHECK_KINDS], n;
    uint64_t seed, rounds;
    long failed;

    check_init(&argc, &argv, "mixed", MPI_THREAD_SINGLE);
    seed = check_seed();
    rounds = check_number("--rounds", 12);
    n = check_kinds(kinds);
    check_arguments_end(USAGE);

    check_start(&t, "mixed", MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) {
        if (MEM_HOST != kinds[i]) {
            combinations(&t, seed + (uint64_t) kinds[i], kinds[i], rounds);
        }
    }
    any_kinds(&t, seed, kinds, n, 8 * rounds);
    failed = check_end(&t);
    check_print("mixed", t.passed, t.failed);
    return check_fini(failed);
}
