/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: every collective x mode x communicator x type and operation x count x root x in place or not x kinds of
 * memory, small. --full: the whole product. Without: all of it for integers in device memory; all types, operations and
 * kinds of memory on MPI_COMM_WORLD with one count; and of the rest one call in THIN.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "test/mpi/coll.h"

#define USAGE "[--seed N] [--kinds LIST] [--full] [--thin N] [--coll NAME] [--mode NAME] [--counters]"
#define STARTS 3 /* of a persistent call */
#define COMMS_MAX 8

static const struct {
    const char *type, *op;
} data[] = {{"MPI_INT", "MPI_SUM"},
            {"MPI_DOUBLE", "MPI_SUM"},
            {"MPI_DOUBLE", "MPI_MAX"},
            {"MPI_FLOAT_INT", "MPI_MINLOC"},
            {"MPI_LONG_DOUBLE", "MPI_SUM"},
            {"MPI_UNSIGNED_CHAR", "MPI_BXOR"},
            {"user matrix", "user operation"}, /* not commutative */
            {"user vector with gaps", "user operation"},
            {"user struct", "user operation"},
            {"struct with a negative lower bound", "MPI_SUM"}}; /* moved only */
#define DATA (sizeof(data) / sizeof(data[0]))

static const size_t counts[] = {0, 1, 3, 17, 1000};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))
#define ONE_COUNT 3 /* of them, for what is tested with one count */

/* Which memory the ranks have: one kind everywhere, or mixed in one of two ways. */
enum { MIXED_RANKS = CHECK_KINDS, MIXED_BUFFERS, HOWS };

typedef struct {
    check_t t;
    coll_store_t *store;
    uint64_t seed;
    bool full, have[CHECK_KINDS];
    uint64_t thin;
    int kinds[CHECK_KINDS], nkinds;
    int main_kind; /* device memory, where there is some */
    coll_comm_t comms[COMMS_MAX];
    int ncomms;
} every_t;

static void make_comms(every_t *e)
{
    MPI_Comm world = MPI_COMM_WORLD;
    int n = e->t.nranks;

    coll_comm_of(&e->comms[e->ncomms++], world, "MPI_COMM_WORLD");
    coll_comm_reversed(&e->comms[e->ncomms++], world);
    if (n > 1) {
        coll_comm_inter(&e->comms[e->ncomms++], world, 1);
    }
    if (n > 2) {
        coll_comm_inter(&e->comms[e->ncomms++], world, n - n / 2);
    }
    coll_comm_cart(&e->comms[e->ncomms++], world, n % 2, false);
    if (n >= 4 && 0 == n % 2) {
        coll_comm_cart(&e->comms[e->ncomms++], world, true, true);
    }
    coll_comm_graph(&e->comms[e->ncomms++], world, e->seed);
}

/* The kinds of this rank's buffers; x is the same on all ranks. */
static void memory_of(const every_t *e, int how, uint64_t x, coll_call_t *call)
{
    uint64_t own = ref_mix(x + (uint64_t) e->t.rank);

    call->soff = own & 1 ? 0 : (own >> 8) % 64;
    call->roff = own & 2 ? 0 : (own >> 16) % 64;
    call->sflat = own & 4;
    call->rflat = own & 8;
    if (how < CHECK_KINDS) {
        call->skind = call->rkind = how;
        return;
    }
    call->skind = e->kinds[(own >> 24) % (uint64_t) e->nkinds];
    call->rkind = MIXED_RANKS == how ? call->skind : e->kinds[(own >> 32) % (uint64_t) e->nkinds];
}

/* x: a number of the call, the same on all ranks. */
static bool wanted(const every_t *e, const coll_call_t *call, size_t which, size_t count, bool last, int how,
                   uint64_t x)
{
    bool in_world = MPI_COMM_WORLD == call->comm->comm || coll_what(call->coll) & COLL_IS_NEIGHBOR;

    return e->full || (0 == which && e->main_kind == how) || (in_world && ONE_COUNT == count && last) ||
           0 == x % e->thin;
}

/* Of one root, one set of data and one communicator: all counts, kinds of memory, in place and not. */
static void calls(every_t *e, coll_call_t *call, size_t which, bool last, uint64_t x)
{
    for (size_t n = 0; n < COUNTS; n++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            for (int how = 0; how < HOWS; how++) {
                call->count = counts[n];
                call->in_place = in_place;
                if (!(how < CHECK_KINDS ? e->have[how] : e->nkinds > 1) || !coll_possible(call)) {
                    continue;
                }
                x = ref_mix(x + 1);
                if (wanted(e, call, which, n, last, how, x)) {
                    call->seed = x;
                    memory_of(e, how, x, call);
                    coll_once(&e->t, e->store, call, STARTS);
                }
            }
        }
    }
}

static void roots(every_t *e, coll_call_t *call, size_t which, uint64_t x)
{
    bool rooted = coll_what(call->coll) & (COLL_IS_FROM_ROOT | COLL_IS_TO_ROOT);
    int n = rooted ? e->t.nranks : 1;

    for (int root = 0; root < n; root++) {
        if (0 == root || n - 1 == root || (1 == root && n > 4)) {
            call->root = root;
            call->root_group = (root + (int) which) % 2;
            calls(e, call, which, n - 1 == root, ref_mix(x + (uint64_t) root));
        }
    }
}

static void every(every_t *e, enum coll_id coll, const char *mode)
{
    for (int i = 0; i < e->ncomms; i++) {
        for (size_t d = 0; d < DATA; d++) {
            for (int m = 0; m < COLL_MODES; m++) {
                coll_call_t call = {.comm = &e->comms[i],
                                    .coll = coll,
                                    .mode = (enum coll_mode) m,
                                    .type = ref_type_find(data[d].type),
                                    .op = ref_op_find(data[d].op)};

                if (NULL == mode || 0 == strcmp(mode, coll_mode_name(call.mode))) {
                    roots(e, &call, d,
                          ref_mix(e->seed + (((uint64_t) coll * 64 + (uint64_t) i) * 64 + d) * 4 + (uint64_t) m));
                }
            }
        }
    }
    check_collect(&e->t);
}

/* What the component made of each collective, at rank 0. */
static void print_counters(void)
{
    for (int id = 0; id < COLL_COUNT; id++) {
        unsigned long long n[3];

        if (check_counter_of(coll_name((enum coll_id) id), CHECK_NATIVE, &n[0]) &&
            check_counter_of(coll_name((enum coll_id) id), CHECK_STAGED, &n[1]) &&
            check_counter_of(coll_name((enum coll_id) id), CHECK_FORWARDED, &n[2])) {
            printf("%-22s native %llu, staged %llu, forwarded %llu\n", coll_name((enum coll_id) id), n[0], n[1], n[2]);
        }
    }
}

int main(int argc, char **argv)
{
    static every_t e;
    const char *only, *mode;
    bool counters;
    long failed;

    check_init(&argc, &argv, "every", MPI_THREAD_SINGLE);
    e.seed = check_seed();
    e.nkinds = check_kinds(e.kinds);
    e.full = check_flag("--full");
    e.thin = check_number("--thin", 16);
    only = check_option("--coll");
    mode = check_option("--mode");
    counters = check_flag("--counters");
    check_arguments_end(USAGE);

    check_start(&e.t, "every", MPI_COMM_WORLD);
    e.store = coll_store_new();
    e.main_kind = e.kinds[0];
    for (int i = 0; i < e.nkinds; i++) {
        e.have[e.kinds[i]] = true;
        e.main_kind = MEM_DEVICE == e.kinds[i] ? MEM_DEVICE : e.main_kind;
    }
    make_comms(&e);
    for (int id = 0; id < COLL_COUNT; id++) {
        if (NULL == only || 0 == strcmp(only, coll_name((enum coll_id) id))) {
            every(&e, (enum coll_id) id, mode);
        }
    }
    for (int i = 0; i < e.ncomms; i++) {
        coll_comm_free(&e.comms[i]);
    }
    coll_store_free(e.store);
    if (counters && 0 == e.t.rank) {
        print_counters();
    }
    failed = check_end(&e.t);
    check_print("every", e.t.passed, e.t.failed);
    return check_fini(failed);
}
