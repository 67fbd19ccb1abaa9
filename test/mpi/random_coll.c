/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: random collectives: which, mode, type, operation, count (log-uniform), root, in place or not, kinds of
 * memory per rank, offsets, communicator, all drawn from a printed seed, alike on every rank. Several calls are in
 * flight on one and on several communicators; every rank ends them in an order of its own, by MPI_Wait, MPI_Test,
 * MPI_Waitany and MPI_Waitall. --threads: so in several threads at the same time, each with communicators of its own.
 * --makes: while calls are in flight, communicators are made of theirs (MPI_Comm_idup, which itself is in flight beside
 * any calls, MPI_Comm_split, MPI_Comm_create_group), used and freed, and MPI_Ibarrier is called. --ran: of collectives
 * with these algorithms alone, which the parameters force: no GPU call of theirs may have had another. --soak: soak.h.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "test/mpi/coll.h"
#include "test/mpi/mpit.h"
#include "test/mpi/soak.h"
#include "test/mpi/stream.h"

#define USAGE                                                                                           \
    "[--seed N] [--n CALLS] [--max COUNT] [--kinds LIST] [--threads N] [--makes] [--coll NAME] [--ran " \
    "ALGORITHM,...] " SOAK_USAGE
#define COMMS 8
#define COMMS_LIFE 150 /* calls after which other communicators are made */
#define SLOTS 6        /* calls in flight */
#define THREADS_MAX 8

typedef struct {
    coll_run_t *run; /* NULL: free */
    int starts;      /* a persistent call's starts that are still to come */
    bool ended, right;
} slot_t;

/* A communicator that MPI_Comm_idup makes; NULL: none. One at a time: while Open MPI makes one of another, it takes the
 * steps of a second one in another order on every rank. */
typedef struct {
    const coll_comm_t *of;
    MPI_Comm comm;
    MPI_Request request;
} making_t;

typedef struct {
    pthread_t id;
    MPI_Comm base;
    check_t t;
    coll_store_t *store;
    stream_t s;   /* the same on all ranks */
    stream_t own; /* this rank's */
    coll_comm_t comms[COMMS];
    slot_t slots[SLOTS];
    bool makes;
    making_t making;
    MPI_Request barrier;      /* or MPI_REQUEST_NULL */
    size_t calls, done, most; /* checked calls: wanted, so far; elements */
    bool not [COLL_COUNT];    /* collectives that are left out */
    const int *kinds;
    int nkinds;
} worker_t;

static void make_comms(worker_t *w)
{
    int n = w->t.nranks, rank = w->t.rank;
    uint64_t seed = stream_next(&w->s);

    coll_comm_of(&w->comms[0], w->base, "the base");
    coll_comm_dup(&w->comms[1], w->base);
    coll_comm_reversed(&w->comms[2], w->base);
    coll_comm_split(&w->comms[3], w->base, rank % 2, rank, "even and odd");
    coll_comm_split(&w->comms[4], w->base, (int) (ref_mix(seed + (uint64_t) rank) % 3),
                    (int) (ref_mix(seed - (uint64_t) rank) % 1000), "a random split");
    if (n > 1) {
        coll_comm_inter(&w->comms[5], w->base, 1 + (int) (seed % (uint64_t) (n - 1)));
    } else {
        coll_comm_dup(&w->comms[5], w->base);
    }
    coll_comm_cart(&w->comms[6], w->base, seed & 1, seed & 2);
    coll_comm_graph(&w->comms[7], w->base, seed);
}

static void free_comms(worker_t *w)
{
    for (int i = 1; i < COMMS; i++) {
        coll_comm_free(&w->comms[i]);
    }
}

/* This rank's memory: mostly one kind on all ranks, sometimes any. */
static void draw_memory(worker_t *w, coll_call_t *call)
{
    uint64_t how = stream_below(&w->s, 8), seed = stream_next(&w->s) + (uint64_t) w->t.rank, n = (uint64_t) w->nkinds;

    call->skind = call->rkind = w->kinds[stream_below(&w->s, n)];
    if (0 == how) {
        call->skind = w->kinds[ref_mix(seed) % n];
        call->rkind = w->kinds[ref_mix(seed + 1) % n];
    }
    seed = ref_mix(seed + 2);
    call->soff = seed & 1 ? 0 : (seed >> 8) % 256;
    call->roff = seed & 2 ? 0 : (seed >> 16) % 256;
    call->sflat = seed & 4;
    call->rflat = seed & 8;
}

/* Blocking more often than the others; persistent calls are started several times. */
static void draw_call(worker_t *w, coll_call_t *call)
{
    stream_t *s = &w->s;
    uint64_t mode, most = w->most;

    memset(call, 0, sizeof(*call));
    do {
        call->coll = (enum coll_id) stream_below(s, COLL_COUNT);
    } while (w->not [call->coll]);
    do { /* each collective as often as the others, whatever it allows */
        call->comm = &w->comms[stream_below(s, COMMS)];
        mode = stream_below(s, 8);
        call->mode = mode < 3 ? COLL_BLOCKING : mode < 6 ? COLL_NONBLOCKING : COLL_PERSISTENT;
        call->type = ref_type((int) stream_below(s, (uint64_t) ref_ntypes()));
        call->op = ref_op((int) stream_below(s, (uint64_t) ref_nops()));
        call->in_place = 0 == stream_below(s, 3);
    } while (!coll_possible(call));
    /* All ranks count the whole: so that every block has its part of the most. */
    if (coll_what(call->coll) & (COLL_IS_SEND_EACH | COLL_IS_RECV_EACH | COLL_IS_SCATTERED)) {
        most = most / (uint64_t) w->t.nranks + 1;
    }
    call->count = 0 == stream_below(s, 20) ? 0 : stream_log_uniform(s, most);
    call->root = (int) stream_below(s, (uint64_t) w->t.nranks);
    call->root_group = (int) stream_below(s, 2);
    call->seed = stream_next(s);
    draw_memory(w, call);
}

/* ---- in flight ---- */

static void end(worker_t *w, slot_t *slot)
{
    if (NULL != slot->run && !slot->ended) {
        slot->right = coll_check(&w->t, slot->run);
        slot->ended = true;
    }
}

static void wait_for(worker_t *w, slot_t *slot)
{
    MPI_Request *request = coll_request(slot->run);
    int done = 0;

    if (slot->ended) {
        return;
    }
    if (stream_below(&w->own, 2)) {
        MPI_Wait(request, MPI_STATUS_IGNORE);
    } else {
        while (!done) {
            MPI_Test(request, &done, MPI_STATUS_IGNORE);
        }
    }
    end(w, slot);
}

/* Some of what is in flight, whichever this rank likes: the verdicts are kept until all ranks come to them. */
static void end_some(worker_t *w)
{
    MPI_Request requests[SLOTS];
    int at = (int) stream_below(&w->own, SLOTS), done = 0;

    switch (stream_below(&w->own, 8)) {
    case 0:
        if (NULL != w->slots[at].run) {
            wait_for(w, &w->slots[at]);
        }
        return;
    case 1:
        if (NULL != w->slots[at].run && !w->slots[at].ended) {
            MPI_Test(coll_request(w->slots[at].run), &done, MPI_STATUS_IGNORE);
            if (done) {
                end(w, &w->slots[at]);
            }
        }
        return;
    case 2:
        for (int i = 0; i < SLOTS; i++) {
            requests[i] =
                NULL == w->slots[i].run || w->slots[i].ended ? MPI_REQUEST_NULL : *coll_request(w->slots[i].run);
        }
        MPI_Waitany(SLOTS, requests, &at, MPI_STATUS_IGNORE);
        if (MPI_UNDEFINED != at) {
            *coll_request(w->slots[at].run) = requests[at];
            end(w, &w->slots[at]);
        }
    }
}

static void end_all(worker_t *w)
{
    MPI_Request requests[SLOTS];

    for (int i = 0; i < SLOTS; i++) {
        requests[i] = NULL == w->slots[i].run || w->slots[i].ended ? MPI_REQUEST_NULL : *coll_request(w->slots[i].run);
    }
    MPI_Waitall(SLOTS, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < SLOTS; i++) {
        if (NULL != w->slots[i].run && !w->slots[i].ended) {
            *coll_request(w->slots[i].run) = requests[i];
            end(w, &w->slots[i]);
        }
    }
}

/* The verdict, at the same place of the tally on all ranks; then the next start, or the end of it. */
static void settle(worker_t *w, slot_t *slot, bool again)
{
    wait_for(w, slot);
    check_result(&w->t, slot->right);
    w->done++;
    if (again && slot->starts > 0) {
        slot->starts--;
        slot->ended = false;
        coll_start(slot->run);
        return;
    }
    coll_drop(slot->run);
    slot->run = NULL;
}

static void settle_all(worker_t *w)
{
    end_all(w);
    for (int i = 0; i < SLOTS; i++) {
        if (NULL != w->slots[i].run) {
            settle(w, &w->slots[i], false);
        }
    }
}

static void begin(worker_t *w, slot_t *slot)
{
    coll_call_t call;
    char text[512];

    draw_call(w, &call);
    if (check_trace()) {
        fprintf(stderr, "random_coll: rank %d: %s\n", w->t.rank, coll_text(&call, text, sizeof(text)));
    }
    *slot = (slot_t){.run = coll_make(w->store, &call), .starts = (int) stream_below(&w->s, 4)};
    slot->starts = COLL_PERSISTENT == call.mode ? slot->starts : 0;
    coll_start(slot->run);
    if (COLL_BLOCKING == call.mode) {
        end(w, slot);
        settle(w, slot, false);
    }
}

/* ---- communicators, made while calls are in flight ---- */

/* A blocking call on a new communicator, of ranks that may be some of its parent's. */
static void use_made(worker_t *w, MPI_Comm comm)
{
    int one = 1, sum = 0, n;

    MPI_Comm_size(comm, &n);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (sum != n) {
        fprintf(stderr, "random_coll: FAIL on rank %d: a new communicator of %d ranks counts %d\n", w->t.rank, n, sum);
    }
    check_result(&w->t, sum == n);
    MPI_Comm_free(&comm);
}

static void end_making(worker_t *w)
{
    if (NULL == w->making.of) {
        return;
    }
    for (int done = 0; !done;) {
        if (stream_below(&w->own, 2)) {
            MPI_Wait(&w->making.request, MPI_STATUS_IGNORE);
            done = 1;
        } else {
            MPI_Test(&w->making.request, &done, MPI_STATUS_IGNORE);
        }
    }
    w->making.of = NULL;
    use_made(w, w->making.comm);
}

/* MPI_Comm_create_group is called by its members alone: every `step`-th rank from the first on. */
static void make_group(worker_t *w, const coll_comm_t *of, int step)
{
    const int range[1][3] = {{0, of->n - 1, step}};
    MPI_Group all, some;
    MPI_Comm comm = MPI_COMM_NULL;

    if (0 == of->me % step) {
        MPI_Comm_group(of->comm, &all);
        MPI_Group_range_incl(all, 1, (int(*)[3]) range, &some);
        MPI_Comm_create_group(of->comm, some, 5, &comm);
        MPI_Group_free(&some);
        MPI_Group_free(&all);
        use_made(w, comm);
    } else {
        check_absent(&w->t);
    }
}

static void make_split(worker_t *w, const coll_comm_t *of, int parts)
{
    MPI_Comm comm;

    MPI_Comm_split(of->comm, of->me % parts, -of->me, &comm);
    use_made(w, comm);
}

/* The beginning or the end of something that is none of the calls that are checked byte for byte. */
static void make_something(worker_t *w)
{
    const coll_comm_t *of = &w->comms[stream_below(&w->s, 5)]; /* no intercommunicator, no topology */
    const int how = (int) stream_below(&w->s, 8), parts = 1 + (int) stream_below(&w->s, 3);

    if (how < 2) {
        if (MPI_REQUEST_NULL != w->barrier) {
            MPI_Wait(&w->barrier, MPI_STATUS_IGNORE);
        }
        MPI_Ibarrier(of->comm, &w->barrier);
    } else if (NULL != w->making.of) {
        end_making(w);
    } else if (how < 6) {
        w->making.of = of;
        MPI_Comm_idup(of->comm, &w->making.comm, &w->making.request);
    } else if (how == 6) {
        make_split(w, of, parts);
    } else {
        make_group(w, of, parts);
    }
}

static void end_made(worker_t *w)
{
    end_making(w);
    MPI_Wait(&w->barrier, MPI_STATUS_IGNORE);
}

static void *work(void *arg)
{
    worker_t *w = arg;

    make_comms(w);
    for (size_t i = 0; w->done < w->calls; i++) {
        slot_t *slot = &w->slots[stream_below(&w->s, SLOTS)];

        if (COMMS_LIFE - 1 == i % COMMS_LIFE) {
            settle_all(w); /* MPI allows to free them earlier, but Open MPI's own nonblocking calls then crash */
            end_made(w);
            free_comms(w);
            coll_store_forget(w->store);
            make_comms(w);
        }
        if (w->makes && 0 == stream_below(&w->s, 4)) {
            make_something(w);
        } else if (0 == stream_below(&w->s, 16)) {
            settle_all(w);
        } else if (NULL != slot->run) {
            settle(w, slot, true);
        } else {
            begin(w, slot);
        }
        end_some(w);
    }
    settle_all(w);
    end_made(w);
    free_comms(w);
    return NULL;
}

/* ---- the program ---- */

/* Which collective of the tests' is one of the list. */
static const enum coll_id coll_of[] = {
#define GPUSYM_COLLECTIVE(id, ...) [GPUSYM_COLL_##id] = COLL_##id,
#include "kernels/kernels.def"
};

/* Whether a word is one of a list with commas. */
static bool listed(const char *list, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = list; NULL != at; at = strchr(at, ',')) {
        at += ',' == *at;
        if (0 == strncmp(at, word, length) && ('\0' == at[length] || ',' == at[length])) {
            return true;
        }
    }
    return false;
}

/* Leaves out all but one collective, or those with one of the algorithms. False: that leaves none. */
static bool leave_out(bool * not, const char *name, const char *ran)
{
    bool any = false;

    for (int id = 0; id < COLL_COUNT; id++) {
        not [id] = NULL != ran || (NULL != name && 0 != strcmp(name, coll_name((enum coll_id) id)));
    }
    for (size_t a = 0; NULL != ran && a < GPUSYM_ALG_COUNT; a++) {
        if (listed(ran, mpit_algorithms[a].name)) {
            not [coll_of[mpit_algorithms[a].coll]] = false;
        }
    }
    for (int id = 0; id < COLL_COUNT; id++) {
        any = any || !not [id];
    }
    return any;
}

static unsigned long long times_ran(size_t a)
{
    char which[64];

    snprintf(which, sizeof(which), "native_%s", mpit_algorithms[a].name);
    return mpit_count(coll_name(coll_of[mpit_algorithms[a].coll]), which);
}

/* Some rank ran each of the algorithms, and none another one of the same collective. Called before the calls too, when
 * nothing has run: counters count from the first time they are read. */
static void all_ran(check_t *t, const char *ran, bool over)
{
    for (size_t a = 0; NULL != ran && a < GPUSYM_ALG_COUNT; a++) {
        unsigned long long here, all, others = 0;

        if (!listed(ran, mpit_algorithms[a].name)) {
            continue;
        }
        for (size_t b = 0; b < GPUSYM_ALG_COUNT; b++) {
            others += b != a && mpit_algorithms[b].coll == mpit_algorithms[a].coll ? times_ran(b) : 0;
        }
        here = times_ran(a);
        MPI_Allreduce(&here, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (over && (0 == all || 0 != others)) {
            fprintf(stderr, "random_coll: FAIL on rank %d: %s: %llu by %s, here %llu, and %llu by others\n", t->rank,
                    coll_name(coll_of[mpit_algorithms[a].coll]), all, mpit_algorithms[a].name, here, others);
        }
        if (over) {
            check_result(t, 0 != all && 0 == others);
        }
    }
}

/* What the MPI library can do is asked before there are threads. */
static void ask_library(void)
{
    for (int i = 0; i < ref_ntypes(); i++) {
        for (int j = 0; j < ref_nops(); j++) {
            if (ref_allowed(ref_type(i), ref_op(j))) {
                check_library(ref_type(i), ref_op(j));
            }
        }
    }
}

/* Without threads MPI need not be told of any; which must be known before MPI has begun. */
static int level_wanted(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (0 == strncmp(argv[i], "--threads", 9)) {
            return MPI_THREAD_MULTIPLE;
        }
    }
    return MPI_THREAD_SINGLE;
}

static void start(worker_t *w, int nthreads, int rank)
{
    const int one = 1, no = 0;
    MPI_Comm line;

    /* Open MPI opens its topologies at their first use, which two threads may not do at once. */
    MPI_Cart_create(MPI_COMM_SELF, 1, &one, &no, 0, &line);
    MPI_Comm_free(&line);
    for (int i = 0; i < nthreads; i++) {
        worker_t *next = &w[(i + rank) % nthreads]; /* another order on every rank */

        if (0 != pthread_create(&next->id, NULL, work, next)) {
            fprintf(stderr, "rank %d: pthread_create failed\n", rank);
            MPI_Abort(MPI_COMM_WORLD, 99);
        }
    }
    for (int i = 0; i < nthreads; i++) {
        pthread_join(w[i].id, NULL);
    }
}

/* What is asked for, of all rounds. */
typedef struct {
    worker_t of; /* each worker begins as this one */
    int nthreads, rank;
    const char *ran;
} wanted_t;

/* The calls of one seed, with everything that they need. Their number that was right; *failed of rank 0's. */
static long one_round(const wanted_t *wanted, uint64_t seed, long *failed)
{
    static worker_t w[THREADS_MAX];
    long passed = 0;

    *failed = 0;
    for (int i = 0; i < wanted->nthreads || 0 == i; i++) {
        w[i] = wanted->of;
        w[i].s.seed = ref_mix(seed + (uint64_t) i);
        w[i].own.seed = ref_mix(w[i].s.seed + 1 + (uint64_t) wanted->rank);
        w[i].store = coll_store_new();
        MPI_Comm_dup(MPI_COMM_WORLD, &w[i].base);
        check_start(&w[i].t, "random_coll", w[i].base);
    }
    all_ran(&w[0].t, wanted->ran, false);
    if (wanted->nthreads > 0) {
        start(w, wanted->nthreads, wanted->rank);
    } else {
        work(&w[0]);
    }
    all_ran(&w[0].t, wanted->ran, true);
    for (int i = 0; i < wanted->nthreads || 0 == i; i++) {
        *failed += check_end(&w[i].t);
        passed += w[i].t.passed;
        coll_store_free(w[i].store);
        MPI_Comm_free(&w[i].base);
    }
    return passed;
}

int main(int argc, char **argv)
{
    wanted_t wanted = {.of = {.barrier = MPI_REQUEST_NULL}};
    const char *name;
    int kinds[CHECK_KINDS], level;
    long passed, failed;
    soak_t *soak;
    bool more;

    level = check_init(&argc, &argv, "random_coll", level_wanted(argc, argv));
    MPI_Comm_rank(MPI_COMM_WORLD, &wanted.rank);
    soak = soak_begin("random_coll", check_seed());
    wanted.of.calls = check_number("--n", 2000);
    wanted.of.most = check_number("--max", 2000);
    wanted.nthreads = (int) check_number("--threads", 0);
    name = check_option("--coll");
    wanted.ran = check_option("--ran");
    wanted.of.makes = check_flag("--makes");
    wanted.of.kinds = kinds;
    wanted.of.nkinds = check_kinds(kinds);
    check_arguments_end(USAGE);
    if (wanted.of.makes && wanted.nthreads > 0) { /* Open MPI's threads wait for each other over communicators' ids */
        fprintf(stderr, "random_coll: --makes is for one thread\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    if (wanted.nthreads > THREADS_MAX || (wanted.nthreads > 0 && level < MPI_THREAD_MULTIPLE)) {
        if (0 == wanted.rank) {
            printf("random_coll: %d threads at most, and MPI_THREAD_MULTIPLE: skipped\n", THREADS_MAX);
        }
        check_fini(0);
        return CHECK_SKIPPED;
    }
    if (!leave_out(wanted.of.not, name, wanted.ran)) {
        fprintf(stderr, "random_coll: there is no such collective\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    ask_library();
    do {
        passed = one_round(&wanted, soak_seed(soak), &failed);
        more = soak_next(soak, passed + failed, passed, failed);
    } while (more);
    return check_fini(soak_end(soak));
}
