/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: communicators.  A thousand duplicated, used and freed ones leave no descriptor, mapping or memory
 * behind; hundreds alive at once all work; splits, groups, one rank, intercommunicators are right; and after
 * all that, calls still run on the GPU where they did before.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/mpi/check.h"
#include "test/mpi/usage.h"

#define USAGE "[--seed N] [--kinds KIND] [--churn N] [--alive N]"

/* Communicators after which a process has settled. */
#define SETTLED 100

/* One small checked call on comm; `salt` makes its data its own. */
static void use(check_t *t, MPI_Comm comm, int kind, uint64_t salt, size_t count)
{
    ref_case_t c = {
        .type = ref_type_find(salt % 2 ? "MPI_FLOAT" : "MPI_INT"), .op = ref_op_find("MPI_SUM"), .seed = ref_mix(salt)};
    check_call_t k = {.comm = comm,
                      .c = &c,
                      .contribute = -1,
                      .count = count,
                      .in_place = salt % 3 == 0,
                      .skind = kind,
                      .rkind = kind};

    MPI_Comm_size(comm, &c.nranks);
    check_prepare(&c, false);
    check_run(t, &k);
}

/* dup, use, free; returns nothing grown after the first SETTLED. */
static void churn(check_t *t, int kind, uint64_t seed, int rounds)
{
    usage_t before = {0}, after;
    bool right;

    for (int i = 0; i < rounds; i++) {
        MPI_Comm comm;

        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        use(t, comm, kind, seed + (uint64_t) i, 1 + (size_t) i % 300);
        MPI_Comm_free(&comm);
        if (SETTLED - 1 == i) {
            before = usage_now();
        }
    }
    if (rounds <= SETTLED) {
        return;
    }
    after = usage_now();
    right = usage_same("comms", t->rank, &before, &after);
    check_result(t, right);
    check_collect(t);
}

/* Many at the same time, used in one order and then in another, freed in a third. */
static void alive(check_t *t, int kind, uint64_t seed, int n)
{
    MPI_Comm *comms = malloc((size_t) n * sizeof(MPI_Comm));

    if (NULL == comms) {
        MPI_Abort(MPI_COMM_WORLD, 99);
        return;
    }
    for (int i = 0; i < n; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        use(t, comms[i], kind, seed + (uint64_t) i, 10);
    }
    for (int i = n - 1; i >= 0; i--) {
        use(t, comms[i], kind, seed + (uint64_t) (n + i), 2000);
    }
    for (int i = 0; i < n; i++) { /* every second first */
        int at = i < (n + 1) / 2 ? 2 * i : 2 * (i - (n + 1) / 2) + 1;

        MPI_Comm_free(&comms[at]);
    }
    free(comms);
    check_collect(t);
}

static void split(check_t *t, int kind, uint64_t seed, int color, int key)
{
    MPI_Comm comm;

    MPI_Comm_split(MPI_COMM_WORLD, color, key, &comm);
    if (MPI_COMM_NULL == comm) {
        check_absent(t);
        check_absent(t);
        return;
    }
    use(t, comm, kind, seed + (uint64_t) color, 1023);
    use(t, comm, kind, seed + 100 + (uint64_t) color, 50000);
    MPI_Comm_free(&comm);
}

/* Groups of ranks, each made by MPI_Comm_create_group among its members only. */
static void group(check_t *t, int kind, uint64_t seed, int first, int last)
{
    int range[1][3] = {{first, last, 1}};
    MPI_Group world, part;
    MPI_Comm comm;

    if (t->rank < first || t->rank > last) {
        check_absent(t);
        return;
    }
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, range, &part);
    MPI_Comm_create_group(MPI_COMM_WORLD, part, first, &comm);
    use(t, comm, kind, seed, 777);
    MPI_Comm_free(&comm);
    MPI_Group_free(&part);
    MPI_Group_free(&world);
}

static void splits(check_t *t, int kind, uint64_t seed)
{
    int half = t->nranks / 2;

    split(t, kind, seed, 0, t->nranks - t->rank);
    split(t, kind, seed + 1, t->rank % 2, 0);
    split(t, kind, seed + 2, t->rank < half ? 0 : 1, -t->rank);
    split(t, kind, seed + 3, t->rank, 0);
    split(t, kind, seed + 4, 0 == t->rank ? 0 : MPI_UNDEFINED, 0);
    split(t, kind, seed + 5, t->nranks - 1 == t->rank ? MPI_UNDEFINED : 0, 0);
    use(t, MPI_COMM_SELF, kind, seed + 6, 99);
    group(t, kind, seed + 7, 0, t->nranks - 1);
    group(t, kind, seed + 8, half, t->nranks - 1);
    group(t, kind, seed + 9, t->nranks - 1, t->nranks - 1);
    check_collect(t);
}

/* MPI_Allreduce over an intercommunicator: each side gets the reduction of the other. */
static void between(check_t *t, int kind, uint64_t seed, int first_part)
{
    int side = t->rank < first_part ? 0 : 1, size, remote;
    ref_case_t here = {.type = ref_type_find("MPI_DOUBLE"), .op = ref_op_find("MPI_SUM")}, there;
    check_call_t k = {.c = &there, .own = &here, .contribute = -1, .skind = kind, .rkind = kind};
    MPI_Comm local;

    MPI_Comm_split(MPI_COMM_WORLD, side, t->rank, &local);
    MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, 0 == side ? first_part : 0, 7, &k.comm);
    MPI_Comm_size(k.comm, &size);
    MPI_Comm_remote_size(k.comm, &remote);
    there = here;
    here.seed = seed + (uint64_t) side;
    here.nranks = size;
    there.seed = seed + (uint64_t) (1 - side);
    there.nranks = remote;
    for (k.count = 1; k.count < 20000; k.count = 7 * k.count + 1) {
        k.first = k.count;
        check_run(t, &k);
    }
    MPI_Comm_free(&k.comm);
    MPI_Comm_free(&local);
    check_collect(t);
}

/* Calls must run on the GPU if they did at the start, on a new communicator too: what was freed is used again. */
static void still_native(check_t *t, int kind, bool native)
{
    MPI_Comm comm;
    bool now;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    now = check_native_on(kind, comm);
    MPI_Comm_free(&comm);
    now = check_native(kind) && now;

    if (native && !now) {
        fprintf(stderr, "comms: FAIL on rank %d: %s memory was native at the start and is no longer\n", t->rank,
                mem_name(kind));
    }
    check_result(t, now || !native);
}

int main(int argc, char **argv)
{
    check_t t;
    int kinds[CHECK_KINDS], n, kind;
    uint64_t seed;
    int rounds, together;
    bool native;
    long failed;

    check_init(&argc, &argv, "comms", MPI_THREAD_SINGLE);
    seed = check_seed();
    rounds = (int) check_number("--churn", 1000);
    together = (int) check_number("--alive", 300);
    n = check_kinds(kinds);
    check_arguments_end(USAGE);
    kind = kinds[0];
    for (int i = 0; i < n; i++) {
        kind = MEM_DEVICE == kinds[i] ? MEM_DEVICE : kind;
    }
    native = check_native(kind);

    check_start(&t, "comms", MPI_COMM_WORLD);
    splits(&t, kind, seed);
    churn(&t, kind, seed, rounds);
    still_native(&t, kind, native);
    alive(&t, kind, seed, together);
    still_native(&t, kind, native);
    if (t.nranks > 1) {
        between(&t, kind, seed, 1);
        between(&t, kind, seed + 10, t.nranks / 2);
    }
    splits(&t, kind, seed + 1000);
    still_native(&t, kind, native);
    if (0 == t.rank) {
        printf("%s memory: %s\n", mem_name(kind), native ? "native" : "not native");
    }
    failed = check_end(&t);
    check_print("comms", t.passed, t.failed);
    return check_fini(failed);
}
