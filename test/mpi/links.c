/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: GPUs that do not all reach each other (coll_gpusym_sim_links).  Every collective that has kernels and
 * wants no topology, by itself and with each of its algorithms requested, on MPI_COMM_WORLD, its ranks reversed, and
 * its halves: the results are right, and on whole MPI_COMM_WORLD the counters say that it went where it should:
 *   --reach all     every rank reaches every other: natively
 *   --reach rings   some do not, but there is a ring of those that do: natively what rings and chains can do; else
 *                   staged
 *   --reach none    there is no ring either: staged
 *   --no-ll128      some link is no NVLink, so that LL128 is not to be had
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "test/mpi/coll.h"
#include "test/mpi/mpit.h"

#define USAGE "--reach all|rings|none [--no-ll128] [--seed N]"

/* Those that have kernels, by their number there. */
static const enum coll_id colls[] = {
#define GPUSYM_COLLECTIVE(id, ...) COLL_##id,
#include "kernels/kernels.def"
};
#define COLLS (sizeof(colls) / sizeof(colls[0]))

/* As they are called in the component's variables. */
static const char *const names[] = {
#define COLL(id, Name, name, what, ...) #name,
#define COLL_LOCAL COLL
#include "test/mpi/colls.def"
};

enum reach { REACH_ALL, REACH_RINGS, REACH_NONE };

typedef struct {
    check_t t;
    coll_store_t *store;
    uint64_t seed, calls;
    enum reach reach;
    bool ll128;
} links_t;

static bool begins(const char *text, const char *with)
{
    return 0 == strncmp(text, with, strlen(with));
}

/* Whether an algorithm uses no links but those of rings. */
static bool along_rings(const char *name)
{
    return begins(name, "ring") || begins(name, "chain");
}

static bool is_ll128(const char *name)
{
    const size_t n = strlen(name);
    return n > 5 && 0 == strcmp(name + n - 5, "ll128");
}

static bool has_rings(unsigned coll)
{
    bool has = false;

    for (size_t a = 0; a < GPUSYM_ALG_COUNT; a++) {
        has = has || (coll == mpit_algorithms[a].coll && along_rings(mpit_algorithms[a].name));
    }
    return has;
}

static void make(links_t *l, const coll_comm_t *comm, unsigned coll, size_t count)
{
    static const struct {
        const char *type, *op;
    } data[] = {{"MPI_FLOAT", "MPI_SUM"}, {"MPI_INT", "MPI_MAX"}, {"MPI_DOUBLE", "MPI_SUM"}};
    const uint64_t n = l->calls++;
    coll_call_t call = {.comm = comm,
                        .coll = colls[coll],
                        .mode = (enum coll_mode)(n % COLL_MODES),
                        .type = ref_type_find(data[n % 3].type),
                        .op = ref_op_find(data[n % 3].op),
                        .count = count,
                        .root = (int) n,
                        .in_place = 1 == n / 3 % 2 && 0 != (coll_what(colls[coll]) & COLL_IS_IN_PLACE),
                        .skind = MEM_DEVICE,
                        .rkind = MEM_DEVICE,
                        .seed = ref_mix(l->seed + n)};

    if (coll_possible(&call)) {
        coll_once(&l->t, l->store, &call, 1);
    } else {
        fprintf(stderr, "links: %s cannot be tested\n", names[call.coll]);
        check_result(&l->t, false);
    }
}

/* Whether a counter of a collective has risen by that much. */
static void rose(links_t *l, const char *coll, const char *which, long long rise, unsigned by)
{
    if (rise != by) {
        fprintf(stderr, "links: rank %d: %s: %s rose by %lld, not by %u\n", l->t.rank, coll, which, rise, by);
    }
    check_result(&l->t, rise == by);
}

/* One call that counts: which should raise that counter, or not. Random counts for each rank may leave nothing for
 * others, and such a call is native anywhere, or not counted, alike on all ranks: there is another one. Returns how far
 * the counter has risen by the last one. */
static long long run(links_t *l, const coll_comm_t *comm, unsigned coll, size_t count, const char *which, bool rises)
{
    const char *name = names[colls[coll]];
    unsigned long long before, after;
    unsigned calls = 0;

    do {
        before = mpit_count(name, which);
        make(l, comm, coll, count);
        after = mpit_count(name, which);
        calls++;
    } while (calls < 4 && 0 != (coll_what(colls[coll]) & COLL_IS_V) && rises != (after != before));
    return (long long) (after - before);
}

/* One call, on MPI_COMM_WORLD or its ranks in another order, where it should go. */
static void counted(links_t *l, const coll_comm_t *comm, unsigned coll, size_t count)
{
    const char *name = names[colls[coll]];
    const bool native = REACH_ALL == l->reach || (REACH_RINGS == l->reach && has_rings(coll));
    const unsigned long long staged = mpit_count(name, "staged_unreachable");

    rose(l, name, "native", run(l, comm, coll, count, "native", native), native);
    if (0 == (coll_what(colls[coll]) & COLL_IS_V)) { /* else a rank may have no data, and nothing to stage */
        rose(l, name, "staged_unreachable", (long long) (mpit_count(name, "staged_unreachable") - staged), !native);
    }
}

/* An algorithm requested by name. */
static void forced(links_t *l, const coll_comm_t *comm, size_t a, size_t count)
{
    const char *name = names[colls[mpit_algorithms[a].coll]];
    char counter[64];
    long long rise;
    bool taken = REACH_ALL == l->reach || (REACH_RINGS == l->reach && along_rings(mpit_algorithms[a].name));

    snprintf(counter, sizeof(counter), "native_%s", mpit_algorithms[a].name);
    taken = taken && (l->ll128 || !is_ll128(mpit_algorithms[a].name));
    mpit_algorithm(name, mpit_algorithms[a].name);
    rise = run(l, comm, mpit_algorithms[a].coll, count, counter, taken);
    mpit_algorithm(name, "auto");
    /* Where all reach all, multicast takes the place of what is not there by its own rules. */
    if (REACH_ALL != l->reach || along_rings(mpit_algorithms[a].name)) {
        rose(l, name, counter, rise, taken);
    }
}

/* Whether a collective has no meaning on communicators without a topology. */
static bool wants_neighbors(unsigned coll)
{
    return 0 != (coll_what(colls[coll]) & COLL_IS_NEIGHBOR);
}

static void all_calls(links_t *l, const coll_comm_t *whole, int nwhole, const coll_comm_t *half)
{
    static const size_t counts[] = {40, 3001, 40001};

    for (unsigned coll = 0; coll < COLLS; coll++) {
        if (wants_neighbors(coll)) {
            continue;
        }
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            for (int c = 0; c < nwhole; c++) {
                counted(l, &whole[c], coll, counts[i]);
            }
            make(l, half, coll, counts[i]);
        }
        check_collect(&l->t);
    }
    for (size_t a = 0; a < GPUSYM_ALG_COUNT; a++) {
        if (wants_neighbors(mpit_algorithms[a].coll)) {
            continue;
        }
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            forced(l, &whole[i % (size_t) nwhole], a, counts[i]);
        }
        check_collect(&l->t);
    }
}

int main(int argc, char **argv)
{
    static links_t l;
    coll_comm_t whole[2], half;
    const char *reach;
    long failed;

    check_init(&argc, &argv, "links", MPI_THREAD_SINGLE);
    l.seed = check_seed();
    reach = check_option("--reach");
    l.ll128 = !check_flag("--no-ll128");
    check_arguments_end(USAGE);
    if (NULL == reach || (0 != strcmp(reach, "all") && 0 != strcmp(reach, "rings") && 0 != strcmp(reach, "none"))) {
        fprintf(stderr, "usage: links " USAGE "\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    l.reach = 0 == strcmp(reach, "all") ? REACH_ALL : 0 == strcmp(reach, "rings") ? REACH_RINGS : REACH_NONE;

    check_start(&l.t, "links", MPI_COMM_WORLD);
    l.store = coll_store_new();
    coll_comm_of(&whole[0], MPI_COMM_WORLD, "MPI_COMM_WORLD");
    coll_comm_reversed(&whole[1], MPI_COMM_WORLD);
    coll_comm_split(&half, MPI_COMM_WORLD, l.t.rank % 2, l.t.rank, "even and odd");
    all_calls(&l, whole, 2, &half);
    coll_comm_free(&half);
    coll_comm_free(&whole[1]);
    coll_store_free(l.store);
    failed = check_end(&l.t);
    check_print("links", l.t.passed, l.t.failed);
    return check_fini(failed);
}
