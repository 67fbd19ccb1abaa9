/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: large messages straight between the users' buffers, which are freed and allocated again all the time, so
 * that what was once a peer's buffer is often another one at the same address: it must never be read or written by an
 * old mapping. More buffers are alive than the component lists for its peers (with coll_gpusym_reg_limit); several
 * communicators, with the ranks in other orders, share them; other kinds of memory come and go between them.
 *
 * That a call went by zero copy is asserted by its counter, of every call that all ranks know to be fit for it: whose
 * buffers are of any of --kinds that peers can map.
 *   --import-fails   a rank is made to fail when it maps a peer's buffer (coll_gpusym_sim_fail=import:N@R): right
 *                    results, and no zero copy from then on
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/shm/fd.h"
#include "test/mpi/coll.h"
#include "test/mpi/mpit.h"

#define USAGE "[--seed N] [--n CALLS] [--kinds LIST] [--least BYTES] [--most BYTES] [--import-fails]"
#define STORES 5          /* sets of buffers: more than coll_gpusym_reg_limit=3 lists */
#define NOISE 8           /* allocations that are only there to move the others' addresses */
#define LEAST (32u << 10) /* default of --least */
#define SHARED (2u << 20) /* peers can map no smaller allocation on GPUs, where --least is larger than this */
#define COMMS_MAX 4
#define PLACES 40 /* buffers that are one after the other at the same place */

/* With the algorithms that have a form without staging, and whether they have none in place. */
static const struct {
    enum coll_id coll;
    const char *algorithm[2];
    bool apart;
    bool sure; /* every rank knows the sizes of all: zero copy must come about */
} colls[] = {
    {COLL_ALLREDUCE, {"rsxst_agxst", "rsxld_agxst"}, false, true},
    {COLL_ALLGATHER, {"st", "st"}, false, true},
    {COLL_ALLGATHERV, {"st", "ce"}, false, true},
    {COLL_REDUCE_SCATTER, {"ld", "ld"}, true, true},
    {COLL_REDUCE_SCATTER_BLOCK, {"ld", "ld"}, true, true},
    {COLL_BCAST, {"st", "st"}, false, true},
    {COLL_REDUCE, {"st", "st"}, false, true},
    {COLL_ALLTOALL, {"st", "st"}, true, true},
    {COLL_ALLTOALLV, {"st", "ce"}, true, false},
    {COLL_ALLTOALLW, {"st", "st"}, true, false},
    {COLL_GATHER, {"st", "st"}, false, true},
    {COLL_GATHERV, {"st", "st"}, false, false},
    {COLL_SCATTER, {"st", "st"}, false, true},
    {COLL_SCATTERV, {"st", "st"}, false, false},
    {COLL_SCAN, {"st", "st"}, true, true},
    {COLL_EXSCAN, {"st", "st"}, true, true},
};
#define COLLS (sizeof(colls) / sizeof(colls[0]))

typedef struct {
    check_t t;
    uint64_t x; /* what is drawn next; the same on all ranks */
    uint64_t least, most;
    bool import_fails;
    coll_store_t *store[STORES];
    struct {
        int kind;
        void *p;
    } noise[NOISE];
    int kinds[CHECK_KINDS], nkinds;
    int fit[CHECK_KINDS], nfit; /* those of them that peers can map */
    coll_comm_t comms[COMMS_MAX];
    int ncomms;
    unsigned long long went[COLLS]; /* by zero copy, on this rank */
} zero_t;

static uint64_t draw(zero_t *z, uint64_t below)
{
    z->x = ref_mix(z->x + 1);
    return (z->x >> 8) % below;
}

/* From z->least to z->most bytes: every power of two as often as any other. */
static size_t draw_bytes(zero_t *z)
{
    size_t steps = 0;
    uint64_t bytes;

    while (z->least << (steps + 1) <= z->most) {
        steps++;
    }
    bytes = z->least << draw(z, steps + 1);
    bytes += draw(z, bytes);
    return (size_t) (bytes < z->most ? bytes : z->most);
}

static bool is_fit(const zero_t *z, int kind)
{
    for (int i = 0; i < z->nfit; i++) {
        if (z->fit[i] == kind) {
            return true;
        }
    }
    return false;
}

static int draw_fit(const zero_t *z, uint64_t x)
{
    return z->fit[x % (uint64_t) z->nfit];
}

/* Some memory goes, some comes; each rank's in its own order. */
static void shake(zero_t *z)
{
    uint64_t own = ref_mix(z->x + 3 * (uint64_t) z->t.rank);

    for (int i = 0; i < 2; i++, own = ref_mix(own)) {
        const uint64_t which = own % NOISE;

        if (NULL != z->noise[which].p) {
            mem_free(z->noise[which].kind, z->noise[which].p);
        }
        z->noise[which].kind = own & 256 ? draw_fit(z, own >> 9) : z->kinds[(own >> 10) % (uint64_t) z->nkinds];
        z->noise[which].p = mem_alloc(z->noise[which].kind, LEAST + (size_t) (own >> 20) % (256u << 10));
    }
    if (0 == own % 3) {
        coll_store_forget(z->store[(own >> 8) % STORES]);
    }
}

/* A call of collective number i, on a communicator; all but the memory of it. */
static coll_call_t make_call(zero_t *z, size_t i, const coll_comm_t *comm)
{
    static const char *const types[] = {"MPI_INT", "MPI_DOUBLE", "MPI_LONG"};
    const unsigned what = coll_what(colls[i].coll);
    const bool each = what & (COLL_IS_SEND_EACH | COLL_IS_RECV_EACH | COLL_IS_SCATTERED);
    coll_call_t call = {.comm = comm, .coll = colls[i].coll, .type = ref_type_find(types[draw(z, 3)])};

    call.op = ref_op_find(0 == draw(z, 3) ? "MPI_MAX" : "MPI_SUM");
    call.mode = (enum coll_mode) draw(z, COLL_MODES);
    call.count = draw_bytes(z) / call.type->bytes / (each ? (size_t) comm->n : 1) + 1;
    call.root = (int) draw(z, (uint64_t) comm->n);
    call.in_place = 0 == draw(z, 4) && what & COLL_IS_IN_PLACE;
    call.seed = ref_mix(z->x + 5);
    return call;
}

/* This rank's memory; odd: one rank may have other memory than what peers can map. Whether all have that. */
static bool draw_memory(zero_t *z, coll_call_t *call, bool odd)
{
    const uint64_t own = ref_mix(z->x + 9 * (uint64_t) z->t.rank);
    const int other = (int) draw(z, (uint64_t) z->t.nranks), kind = z->kinds[draw(z, (uint64_t) z->nkinds)];

    call->soff = own & 1 ? 0 : (own >> 8) % 512;
    call->roff = own & 2 ? 0 : (own >> 24) % 512;
    call->skind = draw_fit(z, own >> 40);
    call->rkind = draw_fit(z, own >> 48);
    if (odd && other == z->t.rank) {
        call->skind = call->rkind = kind;
    }
    return !odd || is_fit(z, kind);
}

/* Whether a sure collective's buffers are as large as peers can map. The counts of an allgatherv may be of any size, or
 * all 0: nothing is launched then. A scatter's peers map a block each, which is short where there are many. */
static bool is_large(const zero_t *z, const coll_call_t *call)
{
    static coll_side_t send, recv;
    static coll_args_t args;

    coll_layout(call, &send, &recv, &args);
    return (COLL_ALLGATHERV != call->coll && COLL_SCATTER != call->coll) ||
           recv.hi - recv.lo >= (z->least > SHARED ? SHARED : 1);
}

/* Whether the counters say what must be. */
static bool zero_copied(zero_t *z, size_t i, const coll_call_t *call, bool device, unsigned long long rose, int calls)
{
    char text[512];
    bool must_not = z->import_fails || 1 == call->comm->n || (call->in_place && colls[i].apart);
    bool must = !must_not && colls[i].sure && device && is_large(z, call);

    z->went[i] += rose;
    if ((must && rose != (unsigned long long) calls) || (must_not && 0 != rose)) {
        fprintf(stderr, "zerocopy: FAIL on rank %d: %llu of %d calls by zero copy, expected %s: %s\n", z->t.rank, rose,
                calls, must_not ? "none" : "all", coll_text(call, text, sizeof(text)));
        return false;
    }
    return true;
}

/* One checked call. */
static void one(zero_t *z)
{
    const size_t i = draw(z, COLLS);
    coll_call_t call = make_call(z, i, &z->comms[draw(z, (uint64_t) z->ncomms)]);
    const char *name = coll_name(call.coll);
    const bool device = draw_memory(z, &call, 0 == draw(z, 6));
    const int calls = COLL_PERSISTENT == call.mode ? 2 : 1;
    coll_store_t *store = z->store[draw(z, STORES)];
    unsigned long long before;

    shake(z);
    if (!coll_possible(&call)) {
        return;
    }
    mpit_algorithm(name, colls[i].algorithm[draw(z, 2)]);
    before = mpit_count(name, "zero_copy");
    coll_once(&z->t, store, &call, calls);
    check_result(&z->t, zero_copied(z, i, &call, device, mpit_count(name, "zero_copy") - before, calls));
}

/* A call on every communicator at the same time: more buffers in use than can be listed for the peers. */
static void crowd(zero_t *z)
{
    coll_run_t *run[COMMS_MAX];

    for (int c = 0; c < z->ncomms; c++) {
        const size_t i = draw(z, COLLS);
        coll_call_t call = make_call(z, i, &z->comms[c]);

        call.mode = COLL_NONBLOCKING;
        draw_memory(z, &call, false);
        if (!coll_possible(&call)) { /* integers and real numbers can be added everywhere */
            call.in_place = false;
            coll_possible(&call);
        }
        run[c] = coll_make(z->store[(size_t) c % STORES], &call);
        coll_start(run[c]);
    }
    for (int c = 0; c < z->ncomms; c++) {
        MPI_Wait(coll_request(run[c]), MPI_STATUS_IGNORE);
        check_result(&z->t, coll_check(&z->t, run[c]));
        coll_drop(run[c]);
    }
}

static void make_comms(zero_t *z)
{
    const int n = z->t.nranks, me = z->t.rank;

    coll_comm_of(&z->comms[z->ncomms++], MPI_COMM_WORLD, "MPI_COMM_WORLD");
    if (z->import_fails) { /* each communicator finds out by itself */
        return;
    }
    coll_comm_reversed(&z->comms[z->ncomms++], MPI_COMM_WORLD);
    coll_comm_split(&z->comms[z->ncomms++], MPI_COMM_WORLD, 0, (me + 1) % n, "rotated");
    coll_comm_split(&z->comms[z->ncomms++], MPI_COMM_WORLD, me % 2, -me, "a half");
}

/* One buffer after the other, nothing between them: each is mostly where the last one was. Prints how often. */
static void same_place(zero_t *z, int kind)
{
    const size_t n = z->least / sizeof(int) * 2;
    int *image = calloc(n, sizeof(int)), same = 0;
    unsigned long long before = mpit_count("allreduce", "zero_copy");
    const void *last = NULL;

    if (NULL == image) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    mpit_algorithm("allreduce", "rsxst_agxst");
    for (int i = 0; i < PLACES; i++) {
        int *p = mem_alloc(kind, n * sizeof(int)), wrong = 0;

        same += last == p;
        last = p;
        for (size_t k = 0; k < n; k++) {
            image[k] = i + (int) k * (z->t.rank + 1);
        }
        mem_write(p, image, n * sizeof(int));
        MPI_Allreduce(MPI_IN_PLACE, p, (int) n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        mem_read(image, p, n * sizeof(int));
        for (size_t k = 0; k < n; k++) {
            wrong += image[k] != i * z->t.nranks + (int) k * (z->t.nranks * (z->t.nranks + 1) / 2);
        }
        if (wrong > 0) {
            fprintf(stderr, "zerocopy: FAIL on rank %d: buffer %d at %p: %d of %zu elements\n", z->t.rank, i,
                    (void *) p, wrong, n);
        }
        check_result(&z->t, 0 == wrong);
        mem_free(kind, p);
    }
    before = mpit_count("allreduce", "zero_copy") - before;
    check_result(&z->t, (z->import_fails ? 0 : PLACES) == before);
    check_collect(&z->t);
    if (0 == z->t.rank) {
        printf("%s: %d buffers, %d at the same place as the last, %llu by zero copy\n", mem_name(kind), PLACES, same,
               before);
    }
    free(image);
}

/* Every collective went by zero copy at least once. */
static void summary(zero_t *z, uint64_t n)
{
    for (size_t i = 0; i < COLLS; i++) {
        const bool ok = z->import_fails || 0 != z->went[i] || n < 40 * COLLS;

        if (!ok) {
            fprintf(stderr, "zerocopy: FAIL on rank %d: no %s by zero copy\n", z->t.rank, coll_name(colls[i].coll));
        }
        check_result(&z->t, ok);
        if (0 == z->t.rank) {
            printf("%-22s %llu by zero copy\n", coll_name(colls[i].coll), z->went[i]);
        }
    }
}

static void run(zero_t *z, uint64_t n)
{
    make_comms(z);
    for (int i = 0; i < z->ncomms; i++) { /* a communicator's first call finds out who has GPUs, and goes by the heap */
        (void) check_native_on(z->fit[0], z->comms[i].comm);
    }
    mpit_need("coll_gpusym_zero_copy_min", 1); /* segments of one call have very different lengths */
    for (int i = 0; i < STORES; i++) {
        z->store[i] = coll_store_new();
    }
    for (int i = 0; i < z->nfit; i++) {
        same_place(z, z->fit[i]);
    }
    for (uint64_t k = 0; k < n; k++) {
        if (!z->import_fails && 7 == k % 8) {
            crowd(z);
        } else {
            one(z);
        }
        if (15 == k % 16) {
            check_collect(&z->t);
        }
    }
    summary(z, n);
    for (int i = 0; i < STORES; i++) {
        coll_store_free(z->store[i]);
    }
    for (int i = 0; i < NOISE; i++) {
        mem_free(z->noise[i].kind, z->noise[i].p);
    }
    for (int i = 0; i < z->ncomms; i++) {
        coll_comm_free(&z->comms[i]);
    }
}

/* Memory that is shared by a descriptor can be where this system lets processes fetch one. */
static void find_fit(zero_t *z)
{
    const bool by_fd = GPUSYM_SUCCESS == gpusym_fd_share(fileno(stdout));

    for (int i = 0; i < z->nkinds; i++) {
        if (MEM_DEVICE == z->kinds[i] || (MEM_VMM == z->kinds[i] && by_fd)) {
            z->fit[z->nfit++] = z->kinds[i];
        }
    }
    if (!by_fd && 0 == z->t.rank) {
        printf("no memory is shared by descriptor here\n");
    }
}

int main(int argc, char **argv)
{
    static zero_t z;
    uint64_t n;
    long failed;
    bool native;

    check_init(&argc, &argv, "zerocopy", MPI_THREAD_SINGLE);
    z.x = check_seed();
    n = check_number("--n", 400);
    z.least = check_number("--least", LEAST);
    z.most = check_number("--most", 16 * z.least);
    z.import_fails = check_flag("--import-fails");
    z.nkinds = check_kinds(z.kinds);
    check_arguments_end(USAGE);
    check_start(&z.t, "zerocopy", MPI_COMM_WORLD);
    find_fit(&z);
    native = z.nfit > 0 && z.t.nranks > 1 && check_native(z.fit[0]);
    if (native) {
        run(&z, n);
    }
    failed = check_end(&z.t);
    check_print("zerocopy", z.t.passed, z.t.failed);
    if (!native && 0 == z.t.rank) {
        printf("zerocopy: needs 2 ranks or more whose device memory the kernels reach, and peers map\n");
    }
    return native ? check_fini(failed) : (check_fini(0), CHECK_SKIPPED);
}
