/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: what MPI promises of collectives in flight. A start does not wait for a peer; starts on different
 * communicators may come in another order on every rank; requests end in any order, by MPI_Wait, MPI_Test and their
 * kin; persistent ones are started one by one and by MPI_Startall, and are freed; a pending call holds up no other
 * communicator, and outlives its own (where the calls are native: Open MPI's own then crash).
 *
 * --random: instead, so many nonblocking calls on two, then on three communicators, which every rank interleaves as it
 * likes, with pauses, tests, waits for all that the GPU does, and memory that is allocated and freed between them (on
 * GPUs that waits, too). Most calls are like the one before, so kernels are launched before the peers have posted the
 * call.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/mpi/coll.h"
#include "test/mpi/mpit.h"

#define USAGE "[--seed N] [--kinds LIST] [--many N] [--starts N] [--random CALLS] [--multiple]"
#define COMMS 4
#define RUNS 128
#define GO 77 /* tag of the message that lets a rank go on */

typedef struct {
    check_t t;
    coll_store_t *store;
    uint64_t seed;
    int kind;
    bool native;
    int many, starts;
    coll_comm_t world, comms[COMMS];
    coll_run_t *runs[RUNS];
    int n;
} flight_t;

/* What is drawn from where the collective does not matter. */
static const struct {
    enum coll_id coll;
    const char *type, *op;
} mix[] = {{COLL_ALLREDUCE, "MPI_FLOAT", "MPI_SUM"},
           {COLL_BCAST, "MPI_DOUBLE", "MPI_SUM"},
           {COLL_ALLGATHER, "MPI_INT", "MPI_SUM"},
           {COLL_REDUCE_SCATTER_BLOCK, "MPI_INT", "MPI_MAX"},
           {COLL_ALLTOALLV, "MPI_SHORT", "MPI_SUM"},
           {COLL_REDUCE, "MPI_2INT", "MPI_MINLOC"},
           {COLL_SCAN, "MPI_UNSIGNED", "MPI_BXOR"},
           {COLL_GATHERV, "user vector with gaps", "user operation"},
           {COLL_ALLREDUCE, "user matrix", "user operation"},
           {COLL_SCATTER, "MPI_CHAR", "MPI_SUM"}};
#define MIX ((int) (sizeof(mix) / sizeof(mix[0])))

/* Makes run f->n: the i-th of the mix (an all-reduce of floats is 0). */
static coll_run_t *make(flight_t *f, const coll_comm_t *comm, enum coll_mode mode, int i, size_t count)
{
    const char *type = mix[i % MIX].type;
    coll_call_t call = {.comm = comm,
                        .coll = mix[i % MIX].coll,
                        .mode = mode,
                        .type = ref_type_find(NULL != ref_type_find(type) ? type : "MPI_INT"),
                        .op = ref_op_find(mix[i % MIX].op),
                        .count = count,
                        .root = i,
                        .skind = f->kind,
                        .rkind = f->kind,
                        .seed = ref_mix(f->seed + (uint64_t) f->n)};

    f->seed++;
    if (!coll_possible(&call)) {
        call.op = ref_op_find("MPI_SUM");
        call.type = ref_type_find("MPI_INT");
        coll_possible(&call);
    }
    f->runs[f->n] = coll_make(f->store, &call);
    coll_init(f->runs[f->n]);
    return f->runs[f->n++];
}

static void wait_run(coll_run_t *run)
{
    MPI_Wait(coll_request(run), MPI_STATUS_IGNORE);
}

/* All runs have ended: what came out. */
static void verdicts(flight_t *f)
{
    for (int i = 0; i < f->n; i++) {
        check_result(&f->t, coll_check(&f->t, f->runs[i]));
    }
}

static void drop_all(flight_t *f)
{
    for (int i = 0; i < f->n; i++) {
        coll_drop(f->runs[i]);
    }
    f->n = 0;
    check_collect(&f->t);
}

static void collect_requests(flight_t *f, MPI_Request *requests)
{
    for (int i = 0; i < f->n; i++) {
        requests[i] = *coll_request(f->runs[i]);
    }
}

static void return_requests(flight_t *f, const MPI_Request *requests)
{
    for (int i = 0; i < f->n; i++) {
        *coll_request(f->runs[i]) = requests[i];
    }
}

/* All ranks but one start; only then is that one told to, by a message. A start that waited for it would never end. */
static void late(flight_t *f, int who, int many, size_t count, enum coll_mode mode)
{
    int go = 0;

    for (int i = 0; i < many; i++) {
        make(f, &f->world, mode, 0, count + (size_t) i);
    }
    if (f->t.rank == who) {
        for (int r = 0; r < f->t.nranks; r++) {
            if (r != who) {
                MPI_Recv(&go, 1, MPI_INT, r, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
    }
    for (int i = 0; i < f->n; i++) {
        coll_start(f->runs[i]);
    }
    if (f->t.rank != who) {
        MPI_Send(&go, 1, MPI_INT, who, GO, MPI_COMM_WORLD);
    }
    for (int i = 0; i < f->n; i++) {
        wait_run(f->runs[i]);
    }
    verdicts(f);
    drop_all(f);
}

/* A call that one rank has yet to start holds up nobody on other communicators. */
static void not_held_up(flight_t *f)
{
    int last = f->t.nranks - 1, go = 0;
    coll_comm_t part;
    coll_run_t *pending;

    coll_comm_split(&part, MPI_COMM_WORLD, f->t.rank == last, f->t.rank, "all but one");
    pending = make(f, &f->world, COLL_NONBLOCKING, 0, 5000);
    if (f->t.rank == last) {
        MPI_Recv(&go, 1, MPI_INT, MPI_ANY_SOURCE, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    coll_start(pending);
    for (int i = 0; i < 20; i++) {
        coll_start(make(f, &part, i % 2 ? COLL_BLOCKING : COLL_NONBLOCKING, i, 1 + 100 * (size_t) i));
        wait_run(f->runs[f->n - 1]);
    }
    if (0 == f->t.rank && f->t.rank != last) {
        MPI_Send(&go, 1, MPI_INT, last, GO, MPI_COMM_WORLD);
    }
    wait_run(pending);
    verdicts(f);
    drop_all(f);
    coll_comm_free(&part);
}

/* Several communicators, started in another order on every rank, ended in a third. */
static void other_order(flight_t *f, enum coll_mode mode)
{
    for (int i = 0; i < 8 * COMMS; i++) {
        make(f, &f->comms[i % COMMS], mode, i / COMMS, 300);
    }
    for (int c = 0; c < COMMS; c++) {
        for (int i = 0; i < 8; i++) { /* on one communicator all ranks have the same order */
            coll_start(f->runs[i * COMMS + (c + f->t.rank) % COMMS]);
        }
    }
    for (int i = 0; i < f->n; i++) {
        wait_run(f->runs[(i * 5 + 3 * f->t.rank) % f->n]); /* 5 and 32 have no common factor */
    }
    verdicts(f);
    drop_all(f);
}

/* One communicator; the last first. */
static void reversed(flight_t *f, size_t count)
{
    for (int i = 0; i < 3 * MIX; i++) {
        coll_start(make(f, &f->comms[0], COLL_NONBLOCKING, i, count));
    }
    for (int i = f->n - 1; i >= 0; i--) {
        wait_run(f->runs[i]);
    }
    verdicts(f);
    drop_all(f);
}

/* Until all have ended: 0: MPI_Testall, 1: MPI_Testsome, 2: MPI_Testany, 3: MPI_Waitsome, 4: MPI_Request_get_status */
static void end_by(flight_t *f, int how)
{
    MPI_Request requests[RUNS];
    int at[RUNS], done = 0, some, left = f->n;

    collect_requests(f, requests);
    while (left > 0) {
        some = 0;
        switch (how) {
        case 0:
            MPI_Testall(f->n, requests, &done, MPI_STATUSES_IGNORE);
            left = done ? 0 : left;
            break;
        case 1:
            MPI_Testsome(f->n, requests, &some, at, MPI_STATUSES_IGNORE);
            left -= MPI_UNDEFINED == some ? left : some;
            break;
        case 2:
            MPI_Testany(f->n, requests, &some, &done, MPI_STATUS_IGNORE);
            left -= done ? (MPI_UNDEFINED == some ? left : 1) : 0;
            break;
        case 3:
            MPI_Waitsome(f->n, requests, &some, at, MPI_STATUSES_IGNORE);
            left -= MPI_UNDEFINED == some ? left : some;
            break;
        default:
            MPI_Request_get_status(requests[left - 1], &done, MPI_STATUS_IGNORE);
            if (done) {
                MPI_Wait(&requests[--left], MPI_STATUS_IGNORE);
            }
        }
    }
    return_requests(f, requests);
}

static void tested(flight_t *f)
{
    for (int how = 0; how < 5; how++) {
        for (int i = 0; i < 2 * MIX; i++) {
            coll_start(make(f, &f->comms[i % COMMS], COLL_NONBLOCKING, i, 200));
        }
        end_by(f, how);
        verdicts(f);
        drop_all(f);
    }
}

/* An inactive request ends at once, and is there again and again. */
static bool inactive_ends(coll_run_t *run)
{
    int done = 0;

    MPI_Wait(coll_request(run), MPI_STATUS_IGNORE);
    MPI_Test(coll_request(run), &done, MPI_STATUS_IGNORE);
    return done && MPI_REQUEST_NULL != *coll_request(run);
}

/* A persistent request a communicator: the order within MPI_Startall is not specified. */
static void startall(flight_t *f)
{
    MPI_Request requests[RUNS];

    for (int i = 0; i < COMMS; i++) {
        coll_start(make(f, &f->comms[i], COLL_PERSISTENT, i, 500));
    }
    for (int i = 0; i < COMMS; i++) {
        wait_run(f->runs[i]);
        check_result(&f->t, inactive_ends(f->runs[i]));
    }
    verdicts(f);
    for (int again = 0; again < f->starts; again++) {
        coll_startall(f->runs, f->n);
        collect_requests(f, requests);
        if (again % 2) {
            MPI_Waitall(f->n, requests, MPI_STATUSES_IGNORE);
        } else {
            end_by(f, 0);
        }
        verdicts(f);
    }
    drop_all(f);
}

/* Several persistent requests on one communicator, their starts mixed with those of other calls. */
static void persistent(flight_t *f)
{
    int n = 2 * MIX;

    for (int i = 0; i < n; i++) {
        make(f, &f->comms[0], COLL_PERSISTENT, i, 100 + 50 * (size_t) i);
    }
    for (int again = 0; again < f->starts; again++) {
        for (int i = 0; i < n; i++) {
            coll_start(f->runs[again % 2 ? n - 1 - i : i]);
        }
        coll_start(make(f, &f->comms[0], COLL_BLOCKING, again, 10));
        for (int i = 0; i < n; i++) {
            wait_run(f->runs[(i + f->t.rank) % n]);
        }
        verdicts(f);
        coll_drop(f->runs[--f->n]);
    }
    drop_all(f); /* frees the inactive requests */
}

/* The communicator is freed while calls on it are pending. */
static void freed(flight_t *f, enum coll_mode mode)
{
    coll_comm_t comm;

    coll_comm_dup(&comm, MPI_COMM_WORLD);
    for (int i = 0; i < 10; i++) {
        coll_start(make(f, &comm, mode, 0, 100 * (size_t) (i + 1)));
    }
    MPI_Comm_free(&comm.comm);
    for (int i = 0; i < f->n; i++) {
        wait_run(f->runs[i]);
    }
    verdicts(f);
    drop_all(f);
}

/* A barrier may not overtake the calls that wait for their turn: the library tells a communicator's calls apart by
 * counting them. On rank 0 nothing waits, on the others all does. */
static void barriers(flight_t *f)
{
    enum { BLOCK = 16, TIMES = 3 };
    const int n = f->t.nranks;
    const size_t bytes = (size_t) n * BLOCK * sizeof(int);
    int *image = calloc(2, bytes), *counts = malloc(2 * sizeof(int) * (size_t) n), *displs = counts + n;
    MPI_Datatype *types = malloc(sizeof(*types) * (size_t) n);
    int *send = mem_alloc(f->kind, bytes), *recv = mem_alloc(f->kind, bytes),
        *sum = mem_alloc(f->kind, 2 * sizeof(int));
    bool right = true;

    for (int i = 0; i < n; i++) {
        counts[i] = BLOCK;
        displs[i] = i * BLOCK * (int) sizeof(int);
        types[i] = MPI_INT;
        for (int k = 0; k < BLOCK; k++) {
            image[i * BLOCK + k] = 1000 * f->t.rank + i + k;
        }
    }
    mem_write(send, image, bytes);
    for (int time = 0; time < TIMES; time++) {
        MPI_Request q[3];
        int one[2] = {f->t.rank + time, 1};

        mem_write(sum, one, sizeof(one));
        if (0 == f->t.rank) {
            usleep(20000);
        }
        MPI_Iallreduce(MPI_IN_PLACE, sum, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q[0]);
        if (0 == f->t.rank) {
            MPI_Wait(&q[0], MPI_STATUS_IGNORE);
        }
        MPI_Ialltoallw(send, counts, displs, types, recv, counts, displs, types, MPI_COMM_WORLD, &q[1]);
        MPI_Ibarrier(MPI_COMM_WORLD, &q[2]);
        MPI_Waitall(3, q, MPI_STATUSES_IGNORE);
        mem_read(one, sum, sizeof(one));
        mem_read(image, recv, bytes);
        right = right && n == one[1] && n * (n - 1) / 2 + n * time == one[0];
        for (int i = 0; i < n * BLOCK; i++) {
            right = right && 1000 * (i / BLOCK) + f->t.rank + i % BLOCK == image[i];
        }
    }
    if (!right) {
        fprintf(stderr, "inflight: FAIL on rank %d: calls before a barrier, %s memory\n", f->t.rank, mem_name(f->kind));
    }
    check_result(&f->t, right);
    mem_free(f->kind, sum);
    mem_free(f->kind, recv);
    mem_free(f->kind, send);
    free(types);
    free(counts);
    free(image);
}

static void all(flight_t *f)
{
    barriers(f);
    for (int who = 0; who < f->t.nranks && who < 4; who++) {
        late(f, who, f->many, 16, COLL_NONBLOCKING);
        late(f, who, f->many / 10, 20000, COLL_NONBLOCKING);
        late(f, who, f->many / 2, 16, COLL_PERSISTENT);
    }
    if (f->t.nranks > 1) {
        not_held_up(f);
    }
    other_order(f, COLL_NONBLOCKING);
    other_order(f, COLL_PERSISTENT);
    reversed(f, 10);
    reversed(f, 3000);
    tested(f);
    startall(f);
    persistent(f);
    if (f->native) {
        freed(f, COLL_NONBLOCKING);
        freed(f, COLL_PERSISTENT);
    }
}

/* ---- random steps ---- */

#define LANES 3   /* communicators at most */
#define BUFFERS 2 /* calls of a communicator in flight at most */
#define WORDS 9000
#define PAUSE_US 400.0
#define WORK_US 20.0
#define CALM 24
#define WILD 8

static const char *const random_colls[] = {"allreduce", "bcast", "reduce", "allgather", "alltoall"};
#define RANDOM_COLLS (sizeof random_colls / sizeof random_colls[0])

/* A communicator with its calls, which are the same on all ranks; `next` is the number of the one to be started. */
typedef struct {
    MPI_Comm comm;
    uint64_t next;
    MPI_Request request[BUFFERS];
    uint64_t number[BUFFERS];
    int *in[BUFFERS], *out[BUFFERS];
} lane_t;

typedef struct {
    check_t *t;
    lane_t lane[LANES];
    uint64_t seed, own;     /* own: another on every rank */
    int lanes, kind, *host; /* [WORDS * ranks] */
} random_t;

static int word_of(uint64_t call, int rank, int i)
{
    return (int) (call * 7 + (uint64_t) rank * 131 + (uint64_t) i);
}

/* What call number `call` is: for a while the same. Words that a rank has for each, or for all. */
static unsigned what_is(const random_t *r, int lane, uint64_t call, int *words, int *root)
{
    const uint64_t x = ref_mix(r->seed + (uint64_t) lane * 977 + call / 16);
    const unsigned what = (unsigned) (x % RANDOM_COLLS);
    *words = (int) (1 + x / 64 % (what < 3 ? WORDS : WORDS / (unsigned) r->t->nranks));
    *root = (int) (x / 1048576 % (uint64_t) r->t->nranks);
    return what;
}

static void start_random(random_t *r, int c)
{
    lane_t *l = &r->lane[c];
    const uint64_t call = l->next++;
    const int b = (int) (call % BUFFERS), n = r->t->nranks, rank = r->t->rank;
    int words, root;
    const unsigned what = what_is(r, c, call, &words, &root);
    const int sent = 4 == what ? n * words : words;
    for (int i = 0; i < sent; i++) {
        r->host[i] = word_of(call, rank, i);
    }
    mem_write(1 == what && rank == root ? l->out[b] : l->in[b], r->host, (size_t) sent * sizeof(int));
    l->number[b] = call;
    switch (what) {
    case 0:
        MPI_Iallreduce(l->in[b], l->out[b], words, MPI_INT, MPI_SUM, l->comm, &l->request[b]);
        break;
    case 1:
        MPI_Ibcast(l->out[b], words, MPI_INT, root, l->comm, &l->request[b]);
        break;
    case 2:
        MPI_Ireduce(l->in[b], l->out[b], words, MPI_INT, MPI_SUM, root, l->comm, &l->request[b]);
        break;
    case 3:
        MPI_Iallgather(l->in[b], words, MPI_INT, l->out[b], words, MPI_INT, l->comm, &l->request[b]);
        break;
    default:
        MPI_Ialltoall(l->in[b], words, MPI_INT, l->out[b], words, MPI_INT, l->comm, &l->request[b]);
        break;
    }
}

/* What word i of the result must be. */
static int result_of(const random_t *r, unsigned what, uint64_t call, int words, int root, int i)
{
    const int n = r->t->nranks;
    switch (what) {
    case 0:
    case 2:
        return n * word_of(call, 0, i) + 131 * n * (n - 1) / 2;
    case 1:
        return word_of(call, root, i);
    case 3:
        return word_of(call, i / words, i % words);
    default:
        return word_of(call, i / words, r->t->rank * words + i % words);
    }
}

static bool is_right(random_t *r, int c, int b)
{
    const lane_t *l = &r->lane[c];
    int words, root;
    const unsigned what = what_is(r, c, l->number[b], &words, &root);
    const int got = what > 2 ? r->t->nranks * words : 2 == what && r->t->rank != root ? 0 : words;
    mem_read(r->host, l->out[b], (size_t) got * sizeof(int));
    for (int i = 0; i < got; i++) {
        if (r->host[i] != result_of(r, what, l->number[b], words, root, i)) {
            fprintf(stderr, "inflight: FAIL on rank %d: call %llu of communicator %d, %s of %d words: word %d\n",
                    r->t->rank, (unsigned long long) l->number[b], c, random_colls[what], words, i);
            return false;
        }
    }
    return true;
}

/* Whether the buffers of a communicator's next call are free: a call that has ended is compared. Nothing is waited for:
 * a rank that did might wait for one that waits for a call of another communicator, which it has not started itself. */
static bool is_free(random_t *r, int c, int b)
{
    lane_t *l = &r->lane[c];
    int done = 1;
    if (MPI_REQUEST_NULL != l->request[b]) {
        MPI_Test(&l->request[b], &done, MPI_STATUS_IGNORE);
        if (done) {
            check_result(r->t, is_right(r, c, b));
        }
    }
    return done;
}

static bool all_free(random_t *r)
{
    bool all = true;
    for (int c = 0; c < r->lanes; c++) {
        for (int b = 0; b < BUFFERS; b++) {
            all = is_free(r, c, b) && all;
        }
    }
    return all;
}

/* Between two starts: nothing; a pause in which calls may end; memory that comes and goes; or a wait for the GPU. */
static void between(random_t *r, uint64_t x)
{
    const double until = MPI_Wtime() + 1e-6 * PAUSE_US * (double) (x / 16 % 64) / 64;
    if (x % 16 < 6) {
        while (!all_free(r) && MPI_Wtime() < until) {
        }
    } else if (6 == x % 16) {
        mem_free(r->kind, mem_alloc(r->kind, 1 + x / 16 % 100000));
    } else if (7 == x % 16) {
        mem_synchronize();
    }
}

/* CALM calls of one communicator, one after the other, with some work behind each start: kernels are launched early. */
static void calm_round(random_t *r, int c)
{
    for (int i = 0; i < CALM; i++) {
        const int b = (int) (r->lane[c].next % BUFFERS);
        while (!all_free(r)) { /* all ranks have started, or will start, all that this one has */
        }
        start_random(r, c);
        for (const double until = MPI_Wtime() + 1e-6 * WORK_US; MPI_Wtime() < until;) {
        }
        while (!is_free(r, c, b)) {
        }
    }
}

/* WILD calls of each communicator, in another order on every rank. The first of them may be launched early, too. */
static void wild_round(random_t *r)
{
    int left = r->lanes, to_start[LANES];
    for (int c = 0; c < r->lanes; c++) {
        to_start[c] = WILD;
    }
    while (left > 0) {
        const uint64_t x = r->own = ref_mix(r->own);
        const int c = (int) (x % (uint64_t) r->lanes);
        if (0 != to_start[c] && is_free(r, c, (int) (r->lane[c].next % BUFFERS))) {
            start_random(r, c);
            left -= 0 == --to_start[c];
            between(r, x / 4);
        }
    }
}

/* So many calls, or some more, of all communicators together. */
static void random_run(random_t *r, uint64_t calls)
{
    uint64_t x = r->seed;
    for (uint64_t done = 0; done < calls;) {
        x = ref_mix(x);
        if (0 == x % 2) {
            calm_round(r, (int) (x / 2 % (uint64_t) r->lanes));
            done += CALM;
        } else {
            wild_round(r);
            done += (uint64_t) r->lanes * WILD;
        }
    }
    while (!all_free(r)) {
    }
}

/* Of all collectives here. */
static unsigned long long count_all(const char *counter)
{
    unsigned long long all = 0;
    for (size_t i = 0; i < RANDOM_COLLS; i++) {
        all += mpit_count(random_colls[i], counter);
    }
    return all;
}

static void random_steps(flight_t *f, uint64_t calls)
{
    static random_t r;
    const size_t bytes = WORDS * sizeof(int) * (size_t) f->t.nranks;
    (void) count_all("early");
    (void) count_all("late");
    for (r.lanes = 2; r.lanes <= LANES; r.lanes++) {
        r = (random_t){.t = &f->t,
                       .lanes = r.lanes,
                       .kind = f->kind,
                       .seed = f->seed + (uint64_t) r.lanes,
                       .own = ref_mix(f->seed * 3 + (uint64_t) (f->t.rank * LANES + r.lanes)),
                       .host = malloc(bytes)};
        for (int c = 0; c < r.lanes; c++) {
            r.lane[c].comm = f->comms[c].comm;
            for (int b = 0; b < BUFFERS; b++) {
                r.lane[c].request[b] = MPI_REQUEST_NULL;
                r.lane[c].in[b] = mem_alloc(f->kind, bytes);
                r.lane[c].out[b] = mem_alloc(f->kind, bytes);
            }
        }
        random_run(&r, calls);
        for (int c = 0; c < r.lanes; c++) {
            for (int b = 0; b < BUFFERS; b++) {
                mem_free(f->kind, r.lane[c].in[b]);
                mem_free(f->kind, r.lane[c].out[b]);
            }
        }
        free(r.host);
        check_collect(&f->t);
    }
    const unsigned long long early = count_all("early"), late = count_all("late");
    if (0 == f->t.rank) {
        printf("rank 0: %llu launched early, %llu once more, because the first had left\n", early, late);
    }
}

int main(int argc, char **argv)
{
    static flight_t f;
    int kinds[CHECK_KINDS], n;
    long failed;

    bool multiple = false; /* which must be known before MPI has begun */
    for (int i = 1; i < argc; i++) {
        multiple = multiple || 0 == strcmp(argv[i], "--multiple");
    }
    check_init(&argc, &argv, "inflight", multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    (void) check_flag("--multiple");
    f.seed = check_seed();
    f.many = (int) check_number("--many", 100);
    f.starts = (int) check_number("--starts", 4);
    const uint64_t calls = check_number("--random", 0);
    n = check_kinds(kinds);
    check_arguments_end(USAGE);
    if (f.many > RUNS) {
        fprintf(stderr, "--many: up to %d\n", RUNS);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    check_start(&f.t, "inflight", MPI_COMM_WORLD);
    f.store = coll_store_new();
    coll_comm_of(&f.world, MPI_COMM_WORLD, "MPI_COMM_WORLD");
    for (int i = 0; i < COMMS; i++) {
        coll_comm_dup(&f.comms[i], MPI_COMM_WORLD);
    }
    for (int i = 0; i < n; i++) {
        f.kind = kinds[i];
        f.native = check_native(kinds[i]);
        if (0 != calls) {
            random_steps(&f, calls);
        } else {
            all(&f);
        }
        if (0 == f.t.rank) {
            printf("%s memory: %s\n", mem_name(f.kind), f.native ? "native" : "not native");
        }
    }
    for (int i = 0; i < COMMS; i++) {
        coll_comm_free(&f.comms[i]);
    }
    coll_store_free(f.store);
    failed = check_end(&f.t);
    check_print("inflight", f.t.passed, f.t.failed);
    return check_fini(failed);
}
