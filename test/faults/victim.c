/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What test/faults/faults.sh runs: a series of checked calls of MPI_Allreduce in which, if requested, a rank dies
 * (instead of a call, or in the midst of one: coll_gpusym_sim_fail=die:...) or calls with another count than the
 * others. --coll: a series of another collective, or of all that have kernels, one after the other.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "test/mpi/check.h"
#include "test/mpi/coll.h"

#define USAGE                                                                                      \
    "[--seed N] [--calls N] [--kinds KIND] [--most COUNT] [--dir DIR: who dies leaves DIR/died]\n" \
    "    [--rank N: of it ...] [--kill CALL: dies instead of this call]\n"                         \
    "    [--mismatch CALL: gives one element more in this call]\n"                                 \
    "    [--coll NAME|all [--mode blocking|nonblocking|persistent]: calls of each, of up to COUNT elements]"

static char died[4096]; /* the file that is made just before dying; "" for none */

static void die(void)
{
    if ('\0' != died[0]) {
        FILE *f = fopen(died, "w");
        if (NULL == f || 0 != fclose(f)) {
            fprintf(stderr, "victim: cannot write %s\n", died);
            MPI_Abort(MPI_COMM_WORLD, 99);
        }
    }
    kill(getpid(), SIGKILL);
}

/* Collectives that have kernels; the others' calls are staged whatever happens. */
static bool has_kernels(enum coll_id id)
{
    return !(coll_what(id) & (COLL_IS_LOCAL | COLL_IS_NEIGHBOR | COLL_IS_W));
}

/* The series of --coll: short, middling and long messages by turns. */
static void other_collectives(check_t *t, const char *name, const char *mode, const ref_case_t *c, int kind,
                              uint64_t calls, uint64_t most)
{
    const uint64_t counts[] = {1, most / 100 + 1, most};
    coll_store_t *store = coll_store_new();
    coll_comm_t world;

    coll_comm_of(&world, MPI_COMM_WORLD, "MPI_COMM_WORLD");
    for (uint64_t i = 0; i < calls * COLL_COUNT; i++) {
        coll_call_t call = {.comm = &world,
                            .coll = (enum coll_id)(i % COLL_COUNT),
                            .type = c->type,
                            .op = c->op,
                            .count = (size_t) counts[i / COLL_COUNT % 3],
                            .root = (int) (i % (uint64_t) world.n),
                            .seed = ref_mix(c->seed + i),
                            .skind = kind,
                            .rkind = kind};

        while (0 != strcmp(mode, coll_mode_name(call.mode)) && call.mode < COLL_MODES - 1) {
            call.mode++;
        }
        if (has_kernels(call.coll) && (0 == strcmp(name, "all") || 0 == strcmp(name, coll_name(call.coll))) &&
            coll_possible(&call)) {
            coll_once(t, store, &call, COLL_PERSISTENT == call.mode ? 2 : 1);
        }
    }
    coll_store_free(store);
}

int main(int argc, char **argv)
{
    check_t t;
    ref_case_t c = {0};
    int kinds[CHECK_KINDS], rank;
    uint64_t calls, most, kill_at, mismatch_at;
    long failed;
    const char *dir, *coll, *mode;
    int victim;

    check_init(&argc, &argv, "victim", MPI_THREAD_SINGLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c.nranks);
    c.seed = check_seed();
    calls = check_number("--calls", 6);
    most = check_number("--most", 100000);
    victim = (int) check_number("--rank", (uint64_t) -1);
    kill_at = check_number("--kill", (uint64_t) -1);
    mismatch_at = check_number("--mismatch", (uint64_t) -1);
    dir = check_option("--dir");
    coll = check_option("--coll");
    mode = check_option("--mode");
    check_kinds(kinds);
    check_arguments_end(USAGE);
    if (NULL != dir) {
        snprintf(died, sizeof(died), "%s/died", dir);
    }
    gpusym_sim_params.dies = die;
    check_start(&t, "victim", MPI_COMM_WORLD);
    c.type = ref_type_find("MPI_FLOAT");
    c.op = ref_op_find("MPI_SUM");
    if (NULL != coll) {
        other_collectives(&t, coll, NULL == mode ? "blocking" : mode, &c, kinds[0], calls, most);
    }
    for (uint64_t i = 0; NULL == coll && i < calls; i++) {
        check_call_t k = {.comm = MPI_COMM_WORLD,
                          .c = &c,
                          .contribute = -1,
                          .first = i,
                          .in_place = i % 2,
                          .skind = kinds[0],
                          .rkind = kinds[0]};

        k.count = 0 == i % 3 ? 1 : 1 == i % 3 ? most / 100 + 1 : most;
        if (rank == victim && i == kill_at) {
            die();
        }
        if (rank == victim && i == mismatch_at) {
            k.count++;
        }
        check_run(&t, &k);
    }
    failed = check_end(&t);
    check_print("victim", t.passed, t.failed);
    return check_fini(failed);
}
