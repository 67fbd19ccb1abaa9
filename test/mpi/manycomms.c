/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: ten thousand communicators made and freed, some hundreds of them alive at once, one all-reduce of device
 * memory in each; descriptors, mappings and memory stay what they are, and calls that ran on the GPU still do.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/mpi/coll.h"
#include "test/mpi/usage.h"

#define USAGE "[--seed N] [--kinds KIND] [--n COMMUNICATORS] [--batch N] [--alive N]"

/* The largest batch is made this often before the process counts as settled: the peak is then behind it. */
#define SETTLE 2

typedef struct {
    check_t t;
    coll_store_t *store;
    uint64_t seed;
    int kind;
    coll_comm_t *comms;
} many_t;

static void use(many_t *m, const coll_comm_t *comm, uint64_t salt)
{
    coll_call_t call = {.comm = comm,
                        .coll = COLL_ALLREDUCE,
                        .mode = 0 == salt % 5 ? COLL_NONBLOCKING : COLL_BLOCKING,
                        .type = ref_type_find(salt % 2 ? "MPI_FLOAT" : "MPI_INT"),
                        .op = ref_op_find("MPI_SUM"),
                        .count = 1 + (size_t) (salt % 100),
                        .in_place = 0 == salt % 3,
                        .skind = m->kind,
                        .rkind = m->kind,
                        .seed = ref_mix(m->seed + salt)};

    if (coll_possible(&call)) {
        coll_once(&m->t, m->store, &call, 1);
    }
}

/* n communicators at once: duplicates, and now and then a split in two or one of reversed ranks. Each batch begins
 * alike, so that none needs more than the largest. */
static void batch(many_t *m, int n, uint64_t salt)
{
    MPI_Comm world = MPI_COMM_WORLD;

    for (int i = 0; i < n; i++) {
        uint64_t x = ref_mix(m->seed + (uint64_t) i);

        if (0 == x % 16) {
            coll_comm_split(&m->comms[i], world, m->t.rank % 2, m->t.rank, "even and odd");
        } else if (1 == x % 16) {
            coll_comm_reversed(&m->comms[i], world);
        } else {
            coll_comm_dup(&m->comms[i], world);
        }
        use(m, &m->comms[i], salt + (uint64_t) i);
    }
    for (int i = 0; i < n; i++) { /* in another order than they were made */
        int at = i < (n + 1) / 2 ? 2 * i : 2 * (i - (n + 1) / 2) + 1;

        coll_comm_free(&m->comms[at]);
    }
    check_collect(&m->t);
}

/* What the process holds once all ranks have freed their communicators: the one that is made here ends what had waited
 * for other ranks. */
static usage_t usage_behind(many_t *m, uint64_t salt)
{
    MPI_Barrier(MPI_COMM_WORLD);
    batch(m, 1, salt);
    return usage_now();
}

static void many(many_t *m, int n, int size, int alive)
{
    usage_t before = {0}, after;
    uint64_t salt = 0;

    for (int i = 0; i < SETTLE; i++, salt += (uint64_t) alive) {
        batch(m, alive, salt);
    }
    before = usage_behind(m, salt++);
    while (salt < (uint64_t) n) {
        int now = 0 == salt % 7 ? alive : size; /* some batches with many at once */

        batch(m, now, salt);
        salt += (uint64_t) now;
    }
    after = usage_behind(m, salt++);
    check_result(&m->t, usage_same("manycomms", m->t.rank, &before, &after));
    if (0 == m->t.rank) {
        printf("%llu communicators\n", (unsigned long long) salt);
    }
}

int main(int argc, char **argv)
{
    static many_t m;
    int kinds[CHECK_KINDS], nkinds, n, size, alive;
    bool native, still;
    long failed;

    check_init(&argc, &argv, "manycomms", MPI_THREAD_SINGLE);
    m.seed = check_seed();
    n = (int) check_number("--n", 10000);
    size = (int) check_number("--batch", 50);
    alive = (int) check_number("--alive", 300);
    nkinds = check_kinds(kinds);
    check_arguments_end(USAGE);
    m.kind = kinds[0];
    for (int i = 0; i < nkinds; i++) {
        m.kind = MEM_DEVICE == kinds[i] ? MEM_DEVICE : m.kind;
    }
    native = check_native(m.kind);

    check_start(&m.t, "manycomms", MPI_COMM_WORLD);
    m.store = coll_store_new();
    m.comms = calloc((size_t) (alive > size ? alive : size), sizeof(*m.comms));
    if (NULL == m.comms) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    many(&m, n, size, alive);
    still = check_native(m.kind);
    if (native && !still) {
        fprintf(stderr, "manycomms: FAIL on rank %d: %s memory was native at the start and is no longer\n", m.t.rank,
                mem_name(m.kind));
    }
    check_result(&m.t, still || !native);
    free(m.comms);
    coll_store_free(m.store);
    failed = check_end(&m.t);
    check_print("manycomms", m.t.passed, m.t.failed);
    return check_fini(failed);
}
