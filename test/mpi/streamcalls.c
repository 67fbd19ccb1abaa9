/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test of libgpusym, without a component's collectives on streams: where gpusym is not in use, every function
 * returns an error that says what to do; with --offered, this program offers functions in the component's place, which
 * get every argument as it was passed, and whose errors and texts come back. Wrong arguments are refused, as MPI does.
 * All of it in both forms, with counts that are int and with those that are MPI_Count.
 * Every error calls the error handler once; with --fatal MPI's own ends the job.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NOLOAD */
#endif
#include <dlfcn.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "api/gpusym.h"
#include "api/mpix_stream.h"
#include "kernels/kernels.h"
#include "mca/common/gpusym/streams.h"

#define WHAT_TO_DO "--mca coll gpusym"
#define RANKS_MAX 16
#define THREADS 4

static int rank, ranks;
static long passed, failed;
static bool offered;

static bool say(bool good, const char *call, const char *what)
{
    passed += good;
    failed += !good;
    if (!good) {
        fprintf(stderr, "streamcalls: FAIL on rank %d: %s: %s\n", rank, call, what);
    }
    return good;
}

/* ---- what is offered in the component's place ---- */

static struct {
    int calls, checks, prepares, handle;
    size_t bytes;
    void *comm, *stream, *request;
    gpusym_stream_call_t call;
    int array[4][RANKS_MAX]; /* its arrays, which need not be there later */
    int answer, check_answer;
    const char *text;
} seen;

static int fake_prepare(void *comm)
{
    seen.prepares++;
    seen.comm = comm;
    return seen.answer;
}

static void copy_array(const int *from, int to[RANKS_MAX])
{
    for (int i = 0; i < ranks && NULL != from; i++) {
        to[i] = from[i];
    }
}

static int fake_call(void *comm, const gpusym_stream_call_t *call, void *stream)
{
    seen.calls++;
    seen.comm = comm;
    seen.stream = stream;
    seen.call = *call;
    copy_array(call->scounts, seen.array[0]);
    copy_array(call->sdispls, seen.array[1]);
    copy_array(call->rcounts, seen.array[2]);
    copy_array(call->rdispls, seen.array[3]);
    return seen.answer;
}

/* Of the communicator that is not MPI_COMM_SELF it is the larger one. */
static uint64_t fake_place(void *comm)
{
    return (void *) MPI_COMM_SELF == comm ? 1 : 2;
}

static int fake_check(void *comm, const gpusym_stream_call_t *call, void *stream)
{
    (void) comm, (void) call, (void) stream;
    seen.checks++;
    return seen.check_answer;
}

static int fake_start(void *request, void *stream, void **comm)
{
    seen.request = request;
    seen.stream = stream;
    *comm = MPI_COMM_SELF;
    return seen.answer;
}

static int fake_wait(void *request, void *stream, void **comm)
{
    return fake_start(request, stream, comm);
}

static int fake_failed(void *comm, int *error, int *cause)
{
    seen.comm = comm;
    *error = MPI_ERR_TRUNCATE;
    *cause = 7;
    return seen.answer;
}

static int fake_register(void *comm, void *base, size_t bytes, int *handle)
{
    seen.comm = comm;
    seen.stream = base;
    seen.bytes = bytes;
    *handle = 5;
    return seen.answer;
}

static int fake_deregister(void *comm, int handle)
{
    seen.comm = comm;
    seen.handle = handle;
    return seen.answer;
}

static const char *fake_why(void)
{
    return seen.text;
}

static gpusym_streams_t fake = {.version = GPUSYM_STREAMS_VERSION,
                                .bytes = sizeof(fake),
                                .prepare = fake_prepare,
                                .call = fake_call,
                                .check = fake_check,
                                .place = fake_place,
                                .start = fake_start,
                                .wait = fake_wait,
                                .failed = fake_failed,
                                .register_memory = fake_register,
                                .deregister_memory = fake_deregister,
                                .why = fake_why};

/* Returns what was offered before. */
static const gpusym_streams_t *offer(const gpusym_streams_t *streams)
{
    void *library = dlopen("libmca_common_gpusym.so", RTLD_LAZY | RTLD_NOLOAD);
    const gpusym_streams_t *(*get)(void), *before;
    void (*set)(const gpusym_streams_t *);

    if (NULL == library) {
        fprintf(stderr, "streamcalls: gpusym is not loaded\n");
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    *(void **) &get = dlsym(library, "gpusym_streams");
    *(void **) &set = dlsym(library, "gpusym_streams_offer");
    before = get();
    set(streams);
    dlclose(library);
    return before;
}

/* ---- errors ---- */

static struct {
    int times, code;
    MPI_Comm comm;
} raised;

static void handler(MPI_Comm *comm, int *code, ...)
{
    __atomic_fetch_add(&raised.times, 1, __ATOMIC_RELAXED);
    raised.code = *code;
    raised.comm = *comm;
}

static bool has_text(int code, const char *words)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;

    return MPI_SUCCESS == MPI_Error_string(code, text, &length) && NULL != strstr(text, words);
}

/* Whether rc is of that class and has these words (NULL: any), and the handler of comm was called once with it. */
static bool is_error(int rc, int error_class, const char *words, MPI_Comm comm)
{
    int found = -1;
    const bool told = 1 == raised.times && rc == raised.code && (MPI_COMM_NULL == comm || comm == raised.comm);

    MPI_Error_class(rc, &found);
    raised.times = 0;
    return found == error_class && told && (NULL == words || has_text(rc, words));
}

static bool is_success(int rc)
{
    const bool quiet = 0 == raised.times;

    raised.times = 0;
    return MPI_SUCCESS == rc && quiet;
}

/* ---- the calls ---- */

typedef struct {
    const void *sbuf;
    void *rbuf, *stream;
    int scount, rcount, root;
    MPI_Count more; /* than an int holds: beyond each count, and far beyond the last displacement */
    MPI_Aint far;
    const int *counts, *displs;
    MPI_Datatype stype, rtype;
    MPI_Op op;
    MPI_Comm comm;
} args_t;

/* The arrays as they are in the form with MPI_Count; those of a call are alike. */
static const MPI_Count *wide_counts(const args_t *a)
{
    static MPI_Count wide[RANKS_MAX];
    for (int i = 0; i < ranks && NULL != a->counts; i++) {
        wide[i] = a->counts[i] + a->more;
    }
    return NULL != a->counts ? wide : NULL;
}

static const MPI_Aint *wide_displs(const args_t *a)
{
    static MPI_Aint wide[RANKS_MAX];
    for (int i = 0; i < ranks && NULL != a->displs; i++) {
        wide[i] = a->displs[i] + a->far;
    }
    return NULL != a->displs ? wide : NULL;
}

/* COUNT, COUNTS and DISPLS are what a form has. */
#define ONE_TYPE a->sbuf, a->rbuf, COUNT(a->rcount), a->rtype, a->op
#define TWO_TYPES a->sbuf, COUNT(a->scount), a->stype, a->rbuf, COUNT(a->rcount), a->rtype

/* CALL(ID, name, what it has, (arguments)): o an operation, r a root, s a type of what is sent, 1 a count of that, n
 * counts of what is received, d displacements, N counts and displacements of what is sent, c a count of what is
 * received, b no buffer of what is sent; S: it scatters, G: it gathers. */
#define CALLS                                                                                                   \
    CALL(ALLREDUCE, allreduce, "oc", (ONE_TYPE, a->comm, a->stream))                                            \
    CALL(ALLGATHER, allgather, "s1c", (TWO_TYPES, a->comm, a->stream))                                          \
    CALL(ALLGATHERV, allgatherv, "s1nd",                                                                        \
         (a->sbuf, COUNT(a->scount), a->stype, a->rbuf, COUNTS, DISPLS, a->rtype, a->comm, a->stream))          \
    CALL(REDUCE_SCATTER, reduce_scatter, "on", (a->sbuf, a->rbuf, COUNTS, a->rtype, a->op, a->comm, a->stream)) \
    CALL(REDUCE_SCATTER_BLOCK, reduce_scatter_block, "oc", (ONE_TYPE, a->comm, a->stream))                      \
    CALL(BCAST, bcast, "rcb", (a->rbuf, COUNT(a->rcount), a->rtype, a->root, a->comm, a->stream))               \
    CALL(REDUCE, reduce, "orc", (ONE_TYPE, a->root, a->comm, a->stream))                                        \
    CALL(ALLTOALLV, alltoallv, "sNnd",                                                                          \
         (a->sbuf, COUNTS, DISPLS, a->stype, a->rbuf, COUNTS, DISPLS, a->rtype, a->comm, a->stream))            \
    CALL(GATHERV, gatherv, "rs1ndG",                                                                            \
         (a->sbuf, COUNT(a->scount), a->stype, a->rbuf, COUNTS, DISPLS, a->rtype, a->root, a->comm, a->stream)) \
    CALL(SCATTERV, scatterv, "rsNcS",                                                                           \
         (a->sbuf, COUNTS, DISPLS, a->stype, a->rbuf, COUNT(a->rcount), a->rtype, a->root, a->comm, a->stream)) \
    CALL(ALLTOALL, alltoall, "s1c", (TWO_TYPES, a->comm, a->stream))                                            \
    CALL(GATHER, gather, "rs1cG", (TWO_TYPES, a->root, a->comm, a->stream))                                     \
    CALL(SCATTER, scatter, "rs1cS", (TWO_TYPES, a->root, a->comm, a->stream))                                   \
    CALL(SCAN, scan, "oc", (ONE_TYPE, a->comm, a->stream))                                                      \
    CALL(EXSCAN, exscan, "oc", (ONE_TYPE, a->comm, a->stream))

#define CALL(id, name, has, arguments)              \
    static int call_##name(const args_t *a)         \
    {                                               \
        return gpusym_##name##_on_stream arguments; \
    }
#define COUNT(n) n
#define COUNTS a->counts
#define DISPLS a->displs
CALLS
#undef CALL
#undef COUNT
#undef COUNTS
#undef DISPLS
#define CALL(id, name, has, arguments)                \
    static int call_##name##_c(const args_t *a)       \
    {                                                 \
        return gpusym_##name##_on_stream_c arguments; \
    }
#define COUNT(n) ((n) + a->more)
#define COUNTS wide_counts(a)
#define DISPLS wide_displs(a)
CALLS
#undef CALL
#undef COUNT
#undef COUNTS
#undef DISPLS

static const struct {
    unsigned id;
    const char *name, *has;
    int (*make)(const args_t *a);
    bool wide;
} calls[] = {
#define CALL(id, name, has, arguments) \
    {GPUSYM_COLL_##id, #name, has, call_##name, false}, {GPUSYM_COLL_##id, #name "_c", has, call_##name##_c, true},
    CALLS
#undef CALL
};

#define CALL_COUNT ((int) (sizeof(calls) / sizeof(calls[0])))

static bool has(int i, char what)
{
    return NULL != strchr(calls[i].has, what);
}

/* Got as it was passed: the same array or, in the wide form, one with the same numbers, if it counts on this rank. */
static bool is_array(int i, const int *got, const int copy[RANKS_MAX], const int *given, bool counts)
{
    if (!calls[i].wide) {
        return got == given;
    }
    bool same = (NULL == got) == (NULL == given || !counts);
    for (int r = 0; r < ranks && NULL != got && NULL != given; r++) {
        same = same && copy[r] == given[r];
    }
    return same;
}

/* Offered: got as it was passed. Else: the error that says what to do. */
static bool is_queued(int i, const args_t *a)
{
    const gpusym_stream_call_t *c = &seen.call;
    const int before = seen.calls, rc = calls[i].make(a);
    const MPI_Count more = calls[i].wide ? a->more : 0;
    const bool at_root = rank == a->root && has(i, 'r');
    const bool sends = (at_root || !has(i, 'S')) && MPI_IN_PLACE != a->sbuf;
    const bool receives = (at_root || !has(i, 'G')) && !(at_root && MPI_IN_PLACE == a->rbuf);

    if (!offered) {
        return is_error(rc, MPI_ERR_UNSUPPORTED_OPERATION, WHAT_TO_DO, a->comm);
    }
    return is_success(rc) && before + 1 == seen.calls && seen.comm == (void *) a->comm && seen.stream == a->stream &&
           c->coll == calls[i].id && c->rbuf == a->rbuf && c->rdtype == (void *) a->rtype &&
           c->sbuf == (has(i, 'b') ? NULL : a->sbuf) && c->rcount == (size_t) (has(i, 'c') ? a->rcount + more : 0) &&
           c->scount == (size_t) (has(i, '1') ? a->scount + more : 0) &&
           is_array(i, c->scounts, seen.array[0], has(i, 'N') ? a->counts : NULL, sends) &&
           is_array(i, c->sdispls, seen.array[1], has(i, 'N') ? a->displs : NULL, sends) &&
           is_array(i, c->rcounts, seen.array[2], has(i, 'n') ? a->counts : NULL, receives) &&
           is_array(i, c->rdispls, seen.array[3], has(i, 'd') ? a->displs : NULL, receives) &&
           c->sdtype == (has(i, 's') ? (void *) a->stype : NULL) && c->op == (has(i, 'o') ? (void *) a->op : NULL) &&
           c->root == (has(i, 'r') ? a->root : 0);
}

/* Wrong arguments are refused, if they count here; else the call is queued. */
static void refuse(int i, const args_t *a, bool counts, int error_class, const char *words, const char *what)
{
    const int before = seen.calls;

    if (!counts) {
        say(is_queued(i, a), calls[i].name, what);
        return;
    }
    say(is_error(calls[i].make(a), error_class, words, a->comm) && seen.calls == before, calls[i].name, what);
}

/* One argument of `good` is another. words: of the error's text; NULL: any. */
#define WITH_WORDS(member, value, counts, error_class, words)                    \
    do {                                                                         \
        args_t bad = *good;                                                      \
        bad.member = value;                                                      \
        refuse(i, &bad, counts, error_class, words, "with " #member " " #value); \
    } while (0)
#define WITH(member, value, counts, error_class) WITH_WORDS(member, value, counts, error_class, NULL)

static void try_arguments(int i, const args_t *good, MPI_Comm inter)
{
    static int negative[RANKS_MAX];
    const bool gather = has(i, 'G'), scatter = has(i, 'S');
    const bool at_root = rank == good->root && has(i, 'r');
    const bool sends = has(i, 's') && (at_root || !scatter), receives = at_root || !gather;
    const bool counts = (has(i, 'n') && receives) || (has(i, 'N') && sends);
    const bool displs = (has(i, 'd') && receives) || (has(i, 'N') && sends);

    negative[ranks - 1] = -1;
    say(is_queued(i, good), calls[i].name, "good arguments");
    WITH(comm, MPI_COMM_NULL, true, MPI_ERR_COMM);
    if (MPI_COMM_NULL != inter) {
        WITH(comm, inter, true, MPI_ERR_COMM);
    }
    WITH(root, -1, has(i, 'r'), MPI_ERR_ROOT);
    WITH(root, ranks, has(i, 'r'), MPI_ERR_ROOT);
    WITH(op, MPI_OP_NULL, has(i, 'o'), MPI_ERR_OP);
    WITH(scount, -1, sends && has(i, '1'), MPI_ERR_COUNT);
    WITH(stype, MPI_DATATYPE_NULL, sends, MPI_ERR_TYPE);
    WITH(rtype, MPI_DATATYPE_NULL, receives, MPI_ERR_TYPE);
    WITH(rcount, -1, receives && has(i, 'c'), MPI_ERR_COUNT);
    WITH(counts, NULL, counts, MPI_ERR_ARG);
    WITH(counts, negative, counts, MPI_ERR_COUNT);
    WITH(displs, NULL, displs, MPI_ERR_ARG);
    /* What an int does not hold: a count may be so, but not the bytes of all ranks, nor a number in an array. */
    WITH_WORDS(more, INT_MAX + (MPI_Count) 1, counts && calls[i].wide, MPI_ERR_COUNT,
               "count for rank 0 is 2147483648,");
    WITH(more, PTRDIFF_MAX / 8 / ranks,
         calls[i].wide && (counts || (sends && has(i, '1')) || (receives && has(i, 'c'))), MPI_ERR_COUNT);
    WITH_WORDS(far, INT_MAX + (MPI_Aint) 1, displs && calls[i].wide, MPI_ERR_COUNT,
               "displacement for rank 0 is 2147483648,");
    WITH_WORDS(far, INT_MIN - (MPI_Aint) 1, displs && calls[i].wide, MPI_ERR_COUNT,
               "displacement for rank 0 is -2147483649,");
    WITH(rbuf, MPI_IN_PLACE, !(scatter && at_root), MPI_ERR_BUFFER);
    if (!has(i, 'b')) {
        WITH(sbuf, MPI_IN_PLACE, scatter || (has(i, 'r') && !at_root), MPI_ERR_BUFFER);
    }
}

static void try_prepare_and_error(MPI_Comm comm)
{
    int error = -1, cause = -2, rc = gpusym_stream_prepare(comm, MPI_INFO_NULL);

    say(offered ? is_success(rc) : is_error(rc, MPI_ERR_UNSUPPORTED_OPERATION, WHAT_TO_DO, comm), "prepare", "good");
    rc = gpusym_stream_prepare(MPI_COMM_NULL, MPI_INFO_NULL);
    say(is_error(rc, MPI_ERR_COMM, NULL, MPI_COMM_NULL), "prepare", "without communicator");
    rc = gpusym_stream_error(comm, &error, &cause);
    say(offered ? is_success(rc) && MPI_ERR_TRUNCATE == error && 7 == cause
                : is_error(rc, MPI_ERR_UNSUPPORTED_OPERATION, WHAT_TO_DO, comm),
        "error", "good");
    say(is_error(gpusym_stream_error(comm, NULL, &cause), MPI_ERR_ARG, NULL, comm), "error", "no error");
    say(is_error(gpusym_stream_error(comm, &error, NULL), MPI_ERR_ARG, NULL, comm), "error", "no rank");
    rc = gpusym_stream_error(MPI_COMM_NULL, &error, &cause);
    say(is_error(rc, MPI_ERR_COMM, NULL, MPI_COMM_NULL), "error", "without communicator");
}

static void try_memory(MPI_Comm comm)
{
    char memory[8];
    int handle = -1, rc = gpusym_mem_register(comm, memory, sizeof(memory), &handle);

    say(offered ? is_success(rc) && 5 == handle && seen.comm == (void *) comm && seen.stream == (void *) memory &&
                      sizeof(memory) == seen.bytes
                : is_error(rc, MPI_ERR_UNSUPPORTED_OPERATION, WHAT_TO_DO, comm),
        "register", "good");
    rc = gpusym_mem_register(comm, NULL, 0, &handle);
    say(offered ? is_success(rc) && 0 == seen.bytes : is_error(rc, MPI_ERR_UNSUPPORTED_OPERATION, WHAT_TO_DO, comm),
        "register", "nothing");
    rc = gpusym_mem_deregister(comm, 7);
    say(offered ? is_success(rc) && 7 == seen.handle : is_error(rc, MPI_ERR_UNSUPPORTED_OPERATION, WHAT_TO_DO, comm),
        "deregister", "good");
    say(is_error(gpusym_mem_register(comm, memory, -1, &handle), MPI_ERR_ARG, NULL, comm), "register", "negative");
    say(is_error(gpusym_mem_register(comm, NULL, 1, &handle), MPI_ERR_ARG, NULL, comm), "register", "no memory");
    say(is_error(gpusym_mem_register(comm, memory, 1, NULL), MPI_ERR_ARG, NULL, comm), "register", "no handle");
    rc = gpusym_mem_register(MPI_COMM_NULL, memory, 1, &handle);
    say(is_error(rc, MPI_ERR_COMM, NULL, MPI_COMM_NULL), "register", "without communicator");
    rc = gpusym_mem_deregister(MPI_COMM_NULL, 7);
    say(is_error(rc, MPI_ERR_COMM, NULL, MPI_COMM_NULL), "deregister", "without communicator");
}

static bool is_empty(const MPI_Status *status)
{
    int count, cancelled;

    MPI_Get_count(status, MPI_INT, &count);
    MPI_Test_cancelled(status, &cancelled);
    return MPI_ANY_SOURCE == status->MPI_SOURCE && MPI_ANY_TAG == status->MPI_TAG && MPI_SUCCESS == status->MPI_ERROR &&
           0 == count && !cancelled;
}

/* Offered: any request gets through. */
static void try_requests(void)
{
    static int stream;
    const int no = MPI_ERR_UNSUPPORTED_OPERATION;
    const MPI_Comm none = MPI_COMM_NULL;
    MPI_Request null = MPI_REQUEST_NULL, request;
    MPI_Status status;
    char byte;
    int rc;

    MPI_Recv_init(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, &request);
    memset(&status, 1, sizeof(status));
    rc = gpusym_start_on_stream(&request, &stream);
    say(offered ? is_success(rc) && seen.request == (void *) request && seen.stream == &stream
                : is_error(rc, no, WHAT_TO_DO, none),
        "start", "good");
    seen.request = NULL;
    rc = gpusym_wait_on_stream(&request, &status, &stream);
    say(offered ? is_success(rc) && seen.request == (void *) request && seen.stream == &stream && is_empty(&status)
                : is_error(rc, no, WHAT_TO_DO, none),
        "wait", "good");
    rc = gpusym_wait_on_stream(&request, MPI_STATUS_IGNORE, &stream);
    say(offered ? is_success(rc) : is_error(rc, no, WHAT_TO_DO, none), "wait", "without status");
    say(is_error(gpusym_start_on_stream(NULL, &stream), MPI_ERR_REQUEST, "null", none), "start", "no request");
    say(is_error(gpusym_start_on_stream(&null, &stream), MPI_ERR_REQUEST, "null", none), "start", "a null request");
    say(is_error(gpusym_wait_on_stream(NULL, &status, &stream), MPI_ERR_REQUEST, "null", none), "wait", "no request");
    say(is_error(gpusym_wait_on_stream(&null, &status, &stream), MPI_ERR_REQUEST, "null", none), "wait",
        "a null request");
    if (offered) { /* the handler is that of the communicator which the component names */
        seen.answer = MPI_ERR_REQUEST;
        seen.text = "a reason";
        say(is_error(gpusym_start_on_stream(&request, &stream), MPI_ERR_REQUEST, "a reason", MPI_COMM_SELF), "start",
            "refused");
        say(is_error(gpusym_wait_on_stream(&request, &status, &stream), MPI_ERR_REQUEST, "a reason", MPI_COMM_SELF),
            "wait", "refused");
        seen.answer = MPI_SUCCESS;
    }
    MPI_Request_free(&request);
}

/* ---- groups ---- */

/* Not offered: the call's error is the group's. */
static void try_groups_not_offered(const args_t *a)
{
    int rc, end;

    say(is_success(gpusym_group_start()), "group", "start");
    rc = call_allreduce(a);
    say(is_error(rc, MPI_ERR_UNSUPPORTED_OPERATION, WHAT_TO_DO, a->comm), "group", "a call");
    end = gpusym_group_end();
    say(end == rc && 0 == raised.times, "group", "its error again, without a handler");
}

/* Two calls, the second one on MPI_COMM_SELF, which is the first of all communicators. True: it was queued last. */
static bool second_is_last(const args_t *a, void *second_stream)
{
    args_t b = *a;
    const int before = seen.calls, checks = seen.checks;

    b.comm = MPI_COMM_SELF;
    b.stream = second_stream;
    say(is_success(gpusym_group_start()) && is_success(gpusym_group_start()) && is_success(call_allreduce(a)) &&
            is_success(gpusym_group_end()) && is_success(call_allreduce(&b)) && before == seen.calls,
        "group", "two calls");
    say(is_success(gpusym_group_end()) && before + 2 == seen.calls && checks + 2 == seen.checks, "group", "its end");
    return seen.comm == (void *) MPI_COMM_SELF && seen.stream == second_stream;
}

/* Arrays are copied where they count, and not looked at elsewhere. */
static void try_group_arrays(const args_t *a)
{
    int counts[RANKS_MAX], displs[RANKS_MAX];
    args_t b = *a;

    for (int i = 0; i < ranks; i++) {
        counts[i] = 10 + i;
        displs[i] = 100 + i;
    }
    b.counts = rank == b.root ? counts : (const int *) (uintptr_t) 8;
    b.displs = rank == b.root ? displs : (const int *) (uintptr_t) 8;
    gpusym_group_start();
    say(is_success(call_gatherv(&b)), "group", "gatherv");
    memset(counts, -1, sizeof(counts));
    memset(displs, -1, sizeof(displs));
    say(is_success(gpusym_group_end()) && GPUSYM_COLL_GATHERV == seen.call.coll, "group", "end of gatherv");
    for (int i = 0; i < ranks && rank == b.root; i++) {
        say(10 + i == seen.array[2][i] && 100 + i == seen.array[3][i], "group", "an array");
    }
    say(rank == b.root || (NULL == seen.call.rcounts && NULL == seen.call.rdispls), "group", "no array");
}

static void try_group_errors(const args_t *a)
{
    args_t bad = *a;
    MPI_Request request;
    int rc, before = seen.calls;
    char byte;

    bad.op = MPI_OP_NULL;
    gpusym_group_start();
    say(is_success(call_allreduce(a)), "group", "a call before a wrong one");
    rc = call_allreduce(&bad);
    say(is_error(rc, MPI_ERR_OP, NULL, a->comm), "group", "a wrong call");
    say(is_success(call_allreduce(a)), "group", "a call behind a wrong one");
    say(gpusym_group_end() == rc && 0 == raised.times && before == seen.calls, "group", "ends with its first error");
    seen.check_answer = MPI_ERR_OTHER;
    seen.text = "a reason";
    gpusym_group_start();
    say(is_success(call_allreduce(a)) && is_success(call_allreduce(a)), "group", "calls to be refused");
    say(is_error(gpusym_group_end(), MPI_ERR_OTHER, "a reason", a->comm) && before == seen.calls, "group", "refused");
    seen.check_answer = MPI_SUCCESS;
    seen.answer = MPI_ERR_ARG;
    gpusym_group_start();
    say(is_success(call_allreduce(a)) && is_success(call_allreduce(a)), "group", "calls that fail");
    say(is_error(gpusym_group_end(), MPI_ERR_ARG, "a reason", a->comm) && before + 1 == seen.calls, "group", "failed");
    seen.answer = MPI_SUCCESS;
    MPI_Recv_init(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, &request);
    gpusym_group_start();
    rc = gpusym_start_on_stream(&request, a->stream);
    say(is_error(rc, MPI_ERR_UNSUPPORTED_OPERATION, "gpusym_group_end", MPI_COMM_NULL), "group", "a request");
    say(gpusym_group_end() == rc && 0 == raised.times, "group", "with a request");
    MPI_Request_free(&request);
}

/* MPICH's names in a group: none of its calls is queued where one of them has no stream, or is a message. */
static void try_group_mpix_errors(const args_t *a)
{
    const int before = seen.calls;
    char byte = 0;
    int rc;

    gpusym_group_start();
    say(is_success(call_allreduce(a)), "group", "a call before one of MPICH's");
    rc = MPIX_Allreduce_enqueue(a->sbuf, a->rbuf, a->rcount, a->rtype, a->op, a->comm);
    say(is_error(rc, MPI_ERR_COMM, "MPIX_Stream_comm_create", a->comm), "group", "MPIX_Allreduce_enqueue, no stream");
    say(gpusym_group_end() == rc && 0 == raised.times && before == seen.calls, "group", "ends with MPICH's error");
    gpusym_group_start();
    say(is_success(call_allreduce(a)), "group", "a call before a message");
    rc = MPIX_Send_enqueue(&byte, 1, MPI_BYTE, 0, 0, a->comm);
    say(is_error(rc, MPI_ERR_UNSUPPORTED_OPERATION, "MPI_Send", a->comm), "group", "MPIX_Send_enqueue");
    say(gpusym_group_end() == rc && 0 == raised.times && before == seen.calls, "group", "ends with a message's error");
}

static void try_groups(const args_t *a)
{
    static int other_stream;

    say(is_error(gpusym_group_end(), MPI_ERR_OTHER, "gpusym_group_start", MPI_COMM_NULL), "group", "end without start");
    say(is_success(gpusym_group_start()) && is_success(gpusym_group_end()), "group", "an empty one");
    if (!offered) {
        try_groups_not_offered(a);
        return;
    }
    say(second_is_last(a, a->stream), "group", "one stream keeps its order");
    say(!second_is_last(a, &other_stream), "group", "streams go in the communicators' order");
    try_group_arrays(a);
    try_group_errors(a);
    try_group_mpix_errors(a);
    say(is_success(call_allreduce(a)), "group", "a call behind all groups");
}

/* Errors of the component: its classes and texts, more of them than there are codes for, and a long one. */
static void try_texts(const args_t *a)
{
    char text[2000];

    seen.text = text;
    for (int i = 0; i < 200; i++) {
        seen.answer = i % 2 ? MPI_ERR_ARG : MPI_ERR_OTHER;
        snprintf(text, sizeof(text), "reason %d", i % 100);
        say(is_error(call_allreduce(a), seen.answer, text, a->comm), "allreduce", text);
    }
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    say(is_error(call_allreduce(a), seen.answer, "xxxxxxxx", a->comm), "allreduce", "a long text");
    seen.answer = MPI_SUCCESS;
    fake.version++;
    say(is_error(call_allreduce(a), MPI_ERR_UNSUPPORTED_OPERATION, "version", a->comm), "allreduce", "a version");
    fake.version--;
    fake.bytes++;
    say(is_error(call_allreduce(a), MPI_ERR_UNSUPPORTED_OPERATION, "version", a->comm), "allreduce", "a size");
    fake.bytes--;
}

/* ---- MPICH's names ---- */

static void try_wrong_infos(MPI_Info info)
{
    MPIX_Stream stream = MPIX_STREAM_NULL;
    const MPI_Comm none = MPI_COMM_NULL;
    char long_value[MPI_MAX_INFO_VAL] = {0};

    say(is_error(MPIX_Stream_create(MPI_INFO_NULL, &stream), MPI_ERR_UNSUPPORTED_OPERATION, "cudaStream_t", none),
        "MPIX_Stream_create", "without info");
    say(is_error(MPIX_Stream_create(info, &stream), MPI_ERR_UNSUPPORTED_OPERATION, "cudaStream_t", none),
        "MPIX_Stream_create", "without type");
    MPI_Info_set(info, "type", "cudaStream_t");
    say(is_error(MPIX_Stream_create(info, &stream), MPI_ERR_INFO_VALUE, "MPIX_Info_set_hex", none),
        "MPIX_Stream_create", "without value");
    MPI_Info_set(info, "value", "0123456789abcdeg");
    say(is_error(MPIX_Stream_create(info, &stream), MPI_ERR_INFO_VALUE, NULL, none), "MPIX_Stream_create", "no digits");
    say(is_error(MPIX_Stream_create(info, NULL), MPI_ERR_ARG, NULL, none), "MPIX_Stream_create", "without result");
    say(is_error(MPIX_Info_set_hex(MPI_INFO_NULL, "value", &info, 1), MPI_ERR_ARG, NULL, none), "MPIX_Info_set_hex",
        "without info");
    say(is_error(MPIX_Info_set_hex(info, "value", NULL, 1), MPI_ERR_ARG, NULL, none), "MPIX_Info_set_hex",
        "without value");
    say(is_error(MPIX_Info_set_hex(info, "value", long_value, MPI_MAX_INFO_VAL), MPI_ERR_INFO_VALUE, NULL, none),
        "MPIX_Info_set_hex", "too long");
    say(is_error(MPIX_Info_set_hex(info, "value", long_value, -1), MPI_ERR_INFO_VALUE, NULL, none), "MPIX_Info_set_hex",
        "shorter than nothing");
    say(is_error(MPIX_Stream_free(&stream), MPI_ERR_ARG, NULL, none), "MPIX_Stream_free", "of none");
    say(is_error(MPIX_Stream_free(NULL), MPI_ERR_ARG, NULL, none), "MPIX_Stream_free", "null");
}

static void try_messages(MPI_Comm comm)
{
    const int no = MPI_ERR_UNSUPPORTED_OPERATION;
    MPI_Request request = MPI_REQUEST_NULL;
    char byte = 0;

    say(is_error(MPIX_Send_enqueue(&byte, 1, MPI_BYTE, 0, 0, comm), no, "MPI_Send", comm), "MPIX_Send_enqueue", "");
    say(is_error(MPIX_Recv_enqueue(&byte, 1, MPI_BYTE, 0, 0, comm, MPI_STATUS_IGNORE), no, "MPI_Send", comm),
        "MPIX_Recv_enqueue", "");
    say(is_error(MPIX_Isend_enqueue(&byte, 1, MPI_BYTE, 0, 0, comm, &request), no, "MPI_Send", comm),
        "MPIX_Isend_enqueue", "");
    say(is_error(MPIX_Irecv_enqueue(&byte, 1, MPI_BYTE, 0, 0, comm, &request), no, "MPI_Send", comm),
        "MPIX_Irecv_enqueue", "");
    say(is_error(MPIX_Wait_enqueue(&request, MPI_STATUS_IGNORE), no, NULL, MPI_COMM_NULL), "MPIX_Wait_enqueue", "");
    say(is_error(MPIX_Waitall_enqueue(1, &request, MPI_STATUSES_IGNORE), no, NULL, MPI_COMM_NULL),
        "MPIX_Waitall_enqueue", "");
}

static bool stream_is(MPI_Comm comm, MPIX_Stream wanted)
{
    MPIX_Stream stream;

    return is_success(MPIX_Comm_get_stream(comm, 0, &stream)) && stream == wanted;
}

/* A communicator with a stream, and its duplicate, outlive the handle. */
static void try_stream_comm(const args_t *a, MPIX_Stream stream)
{
    const int before = seen.prepares;
    const MPI_Count many = INT_MAX + (MPI_Count) 1;
    MPI_Comm comm, copy;
    int queued;

    say(is_success(MPIX_Stream_comm_create(a->comm, stream, &comm)) && before + 1 == seen.prepares &&
            seen.comm == (void *) comm,
        "MPIX_Stream_comm_create", "good");
    say(stream_is(comm, stream), "MPIX_Comm_get_stream", "good");
    MPI_Comm_dup(comm, &copy);
    say(stream_is(copy, stream), "MPIX_Comm_get_stream", "of a duplicate");
    say(is_success(MPIX_Stream_free(&stream)) && MPIX_STREAM_NULL == stream, "MPIX_Stream_free", "good");
    MPI_Comm_free(&comm);
    say(is_success(MPIX_Allreduce_enqueue(a->sbuf, a->rbuf, a->rcount, a->rtype, a->op, copy)) &&
            seen.stream == a->stream && seen.comm == (void *) copy && seen.call.rbuf == a->rbuf,
        "MPIX_Allreduce_enqueue", "good");
    say(is_success(MPIX_Allreduce_enqueue_c(a->sbuf, a->rbuf, many, a->rtype, a->op, copy)) &&
            seen.stream == a->stream && seen.comm == (void *) copy && (size_t) many == seen.call.rcount,
        "MPIX_Allreduce_enqueue_c", "good");
    queued = seen.calls;
    gpusym_group_start();
    say(is_success(MPIX_Allreduce_enqueue(a->sbuf, a->rbuf, a->rcount, a->rtype, a->op, copy)) && queued == seen.calls,
        "MPIX_Allreduce_enqueue", "in a group");
    say(is_success(gpusym_group_end()) && queued + 1 == seen.calls && seen.stream == a->stream &&
            seen.comm == (void *) copy,
        "MPIX_Allreduce_enqueue", "a group's end");
    say(is_error(MPIX_Comm_get_stream(copy, 1, &stream), MPI_ERR_ARG, NULL, copy), "MPIX_Comm_get_stream", "idx 1");
    MPI_Comm_free(&copy);
}

static void try_mpix(const args_t *a)
{
    MPIX_Stream stream = MPIX_STREAM_NULL;
    MPI_Comm comm;
    MPI_Info info;

    MPI_Info_create(&info);
    try_wrong_infos(info);
    say(is_success(MPIX_Info_set_hex(info, "value", &a->stream, sizeof(a->stream))), "MPIX_Info_set_hex", "good");
    say(is_success(MPIX_Stream_create(info, &stream)), "MPIX_Stream_create", "good");
    MPI_Info_free(&info);
    try_messages(a->comm);
    say(is_error(MPIX_Allreduce_enqueue(a->sbuf, a->rbuf, a->rcount, a->rtype, a->op, a->comm), MPI_ERR_COMM,
                 "MPIX_Stream_comm_create", a->comm),
        "MPIX_Allreduce_enqueue", "without stream");
    say(is_error(MPIX_Stream_comm_create(MPI_COMM_NULL, stream, &comm), MPI_ERR_COMM, NULL, MPI_COMM_NULL),
        "MPIX_Stream_comm_create", "without communicator");
    say(is_success(MPIX_Stream_comm_create(a->comm, MPIX_STREAM_NULL, &comm)) && stream_is(comm, MPIX_STREAM_NULL),
        "MPIX_Stream_comm_create", "without stream");
    MPI_Comm_free(&comm);
    if (offered) {
        try_stream_comm(a, stream);
        return;
    }
    say(is_error(MPIX_Stream_comm_create(a->comm, stream, &comm), MPI_ERR_UNSUPPORTED_OPERATION, WHAT_TO_DO,
                 MPI_COMM_NULL) &&
            MPI_COMM_NULL == comm,
        "MPIX_Stream_comm_create", "good");
    say(is_success(MPIX_Stream_free(&stream)), "MPIX_Stream_free", "good");
}

/* ---- all ---- */

static void *thread_calls(void *arg)
{
    const args_t *a = arg;

    for (int n = 0; n < 1000; n++) {
        if (!has_text(call_allreduce(a), WHAT_TO_DO) && !offered) {
            return arg;
        }
    }
    return NULL;
}

static void try_threads(args_t *a)
{
    pthread_t threads[THREADS];
    void *wrong;

    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, thread_calls, a);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &wrong);
        say(NULL == wrong, "allreduce", "by threads");
    }
    raised.times = 0;
}

/* Two halves; MPI_COMM_NULL on one rank. */
static MPI_Comm intercommunicator(MPI_Comm comm)
{
    MPI_Comm half, inter = MPI_COMM_NULL;

    if (ranks > 1) {
        MPI_Comm_split(comm, rank % 2, rank, &half);
        MPI_Intercomm_create(half, 0, comm, 1 - rank % 2, 1, &inter);
        MPI_Comm_free(&half);
        MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    }
    return inter;
}

static void try_all(void)
{
    static double in[RANKS_MAX], out[RANKS_MAX];
    static int counts[RANKS_MAX], displs[RANKS_MAX], stream;
    args_t good = {in, out, &stream, 1, 1, 0, 0, 0, counts, displs, MPI_DOUBLE, MPI_DOUBLE, MPI_SUM, MPI_COMM_NULL};
    MPI_Errhandler errhandler;
    MPI_Comm inter;

    MPI_Comm_dup(MPI_COMM_WORLD, &good.comm);
    inter = intercommunicator(good.comm);
    MPI_Comm_create_errhandler(handler, &errhandler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, errhandler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, errhandler);
    MPI_Comm_set_errhandler(good.comm, errhandler);
    if (MPI_COMM_NULL != inter) {
        MPI_Comm_set_errhandler(inter, errhandler);
    }
    for (int i = 0; i < CALL_COUNT; i++) {
        try_arguments(i, &good, inter);
    }
    try_prepare_and_error(good.comm);
    try_memory(good.comm);
    try_requests();
    try_mpix(&good);
    try_groups(&good);
    try_threads(&good);
    if (offered) {
        try_texts(&good);
    }
    MPI_Comm_free(&good.comm);
    if (MPI_COMM_NULL != inter) {
        MPI_Comm_free(&inter);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&errhandler);
}

/* Outside of MPI_Init and MPI_Finalize: an error, and nothing of MPI's is called. */
static void try_outside(const char *when)
{
    MPIX_Stream stream;
    int error, cause;

    say(MPI_ERR_OTHER == gpusym_allreduce_on_stream(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD, NULL), "allreduce",
        when);
    say(MPI_ERR_OTHER == gpusym_stream_prepare(MPI_COMM_WORLD, MPI_INFO_NULL), "prepare", when);
    say(MPI_ERR_OTHER == gpusym_stream_error(MPI_COMM_WORLD, &error, &cause), "error", when);
    say(MPI_ERR_OTHER == gpusym_mem_register(MPI_COMM_WORLD, NULL, 0, &error), "register", when);
    say(MPI_ERR_OTHER == gpusym_mem_deregister(MPI_COMM_WORLD, 1), "deregister", when);
    say(MPI_ERR_OTHER == gpusym_start_on_stream(NULL, NULL), "start", when);
    say(MPI_ERR_OTHER == gpusym_wait_on_stream(NULL, NULL, NULL), "wait", when);
    say(MPI_ERR_OTHER == MPIX_Stream_create(MPI_INFO_NULL, &stream), "MPIX_Stream_create", when);
    say(MPI_ERR_OTHER == MPIX_Comm_get_stream(MPI_COMM_WORLD, 0, &stream), "MPIX_Comm_get_stream", when);
    say(MPI_ERR_OTHER == MPIX_Wait_enqueue(NULL, NULL), "MPIX_Wait_enqueue", when);
}

int main(int argc, char **argv)
{
    const gpusym_streams_t *before = NULL;
    int level;

    offered = argc > 1 && 0 == strcmp(argv[1], "--offered");
    try_outside("before MPI_Init");
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > RANKS_MAX) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    if (argc > 1 && 0 == strcmp(argv[1], "--fatal")) {
        gpusym_allreduce_on_stream(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD, NULL);
    }
    if (offered) {
        before = offer(&fake);
    }
    try_all();
    if (offered) {
        offer(before);
    }
    MPI_Finalize();
    try_outside("after MPI_Finalize");
    if (0 == rank || failed > 0) {
        printf("streamcalls: %ld passed, %ld failed\n", passed, failed);
    }
    return 0 == failed ? 0 : 1;
}
