/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: random calls of MPI_Allreduce against ref.h: type, operation, count (log-uniform), kinds of
 * memory, in place or not, offsets, and communicator (duplicated, split, reordered, of one rank) are drawn from a
 * printed seed, alike on every rank.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/mpi/check.h"
#include "test/mpi/stream.h"

#define USAGE "[--seed N] [--n CALLS] [--max COUNT] [--kinds LIST]"
#define COMMS 6
#define COMMS_LIFE 50 /* calls after which other communicators are made */

/* A communicator, and a number that tells the parts of a split apart. */
typedef struct {
    MPI_Comm comm;
    int color;
} part_t;

static void split(part_t *p, int color, int key)
{
    p->color = color;
    MPI_Comm_split(MPI_COMM_WORLD, color, key, &p->comm);
}

static void make_comms(part_t comms[COMMS], stream_t *s, int rank, int nranks)
{
    uint64_t parts = 1 + stream_below(s, 3), seed = stream_next(s);

    comms[0] = (part_t){MPI_COMM_WORLD, 0};
    comms[1].color = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1].comm);
    split(&comms[2], 0, nranks - rank); /* reversed */
    split(&comms[3], rank % 2, rank);   /* even and odd */
    split(&comms[4], (int) (ref_mix(seed + (uint64_t) rank) % parts), (int) (ref_mix(seed - (uint64_t) rank) % 1000));
    split(&comms[5], stream_below(s, 4) ? 0 : rank, rank); /* one each, or all */
}

static void free_comms(part_t comms[COMMS])
{
    for (int i = 1; i < COMMS; i++) {
        MPI_Comm_free(&comms[i].comm);
    }
}

static void random_case(stream_t *s, ref_case_t *c)
{
    do {
        c->type = ref_type((int) stream_below(s, (uint64_t) ref_ntypes()));
        c->op = ref_op((int) stream_below(s, (uint64_t) ref_nops()));
    } while (!ref_allowed(c->type, c->op));
}

/* The kinds of this rank's two buffers; returns whether all ranks have only native ones of one kind. */
static bool random_kinds(stream_t *s, const int *kinds, const bool *native, int n, int rank, check_call_t *k)
{
    uint64_t how = stream_below(s, 8), seed = stream_next(s);
    uint64_t both = stream_below(s, (uint64_t) n);

    k->skind = k->rkind = kinds[both];
    if (how > 0) {
        return native[both];
    }
    k->skind = kinds[ref_mix(seed + 2 * (uint64_t) rank) % (uint64_t) n]; /* mixed over ranks and buffers */
    k->rkind = kinds[ref_mix(seed + 2 * (uint64_t) rank + 1) % (uint64_t) n];
    return false;
}

static size_t random_offset(uint64_t seed, size_t bytes)
{
    switch (seed % 4) {
    case 0:
        return (seed >> 8) % 256;
    case 1:
        return bytes * ((seed >> 8) % 4);
    default:
        return 0;
    }
}

static void random_call(check_t *t, stream_t *s, const part_t *comms, const int *kinds, const bool *native, int n,
                        size_t most)
{
    const part_t *part = &comms[stream_below(s, COMMS)];
    check_call_t k = {.comm = part->comm, .contribute = -1};
    ref_case_t c = {0};
    uint64_t offset;
    bool on_gpu;

    random_case(s, &c);
    k.count = stream_log_uniform(s, most);
    k.in_place = stream_below(s, 2);
    k.first = stream_below(s, 1u << 30);
    c.seed = stream_next(s) + (uint64_t) part->color;
    on_gpu = random_kinds(s, kinds, native, n, t->rank, &k);
    offset = stream_next(s) + (uint64_t) t->rank;
    k.soff = random_offset(ref_mix(offset), c.type->bytes);
    k.roff = random_offset(ref_mix(~offset), c.type->bytes);
    MPI_Comm_size(k.comm, &c.nranks);
    k.c = &c;
    if (0 == stream_below(s, 16)) {
        check_forget(t);
    }
    if (check_prepare(&c, on_gpu)) {
        check_run(t, &k);
    }
}

int main(int argc, char **argv)
{
    check_t t;
    part_t comms[COMMS];
    int kinds[CHECK_KINDS], n;
    bool native[CHECK_KINDS];
    stream_t s = {0};
    size_t calls, most;
    long failed;

    check_init(&argc, &argv, "random", MPI_THREAD_SINGLE);
    s.seed = check_seed();
    calls = check_number("--n", 400);
    most = check_number("--max", 200000);
    n = check_kinds(kinds);
    check_arguments_end(USAGE);
    for (int i = 0; i < n; i++) {
        native[i] = check_native(kinds[i]);
    }

    check_start(&t, "random", MPI_COMM_WORLD);
    for (size_t i = 0; i < calls; i++) {
        if (0 == i % COMMS_LIFE) {
            if (i > 0) {
                free_comms(comms);
            }
            make_comms(comms, &s, t.rank, t.nranks);
        }
        random_call(&t, &s, comms, kinds, native, n, most);
        if (i % 100 == 99) {
            check_collect(&t);
        }
    }
    if (calls > 0) {
        free_comms(comms);
    }
    failed = check_end(&t);
    check_print("random", t.passed, t.failed);
    return check_fini(failed);
}
