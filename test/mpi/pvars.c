/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The component's MPI_T performance variables: all there, of the promised kind, and counting what
 * happens: calls of MPI_Allreduce on host memory, on GPU memory, mixed, with a user operation, on an
 * intercommunicator.  Whatever a call becomes, the sums must hold: native = its algorithms and copies,
 * staged = its reasons, and every call counts once.
 *
 *   pvars [--device sim|cuda|host]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "test/mpi/check.h"

#define USAGE "pvars [--device sim|cuda|host]"
#define PREFIX "coll_gpusym_allreduce_"
#define CALLS 5

/* One for every counter, in the order of the lists. */
enum {
    NATIVE,
    STAGED,
    FORWARDED,
    ZERO_COPY,
    RESIDENT,
    EARLY,
    LATE,
    COPY,
#define GPUSYM_ALGORITHM(id, name, coll, family, schedule, doc) ALG_##id,
#include "kernels/kernels.def"
#define GPUSYM_REASON(ID, name, doc, hint) REASON_##ID,
#include "mca/coll/gpusym/args/coll_gpusym.def"
    COUNTERS
};

/* NULL: an algorithm of another collective. */
static const char *const names[COUNTERS] = {
    "native",   "staged",      "forwarded", "zero_copy", /* of the native ones, beside the algorithms: in no sum */
    "resident", "early",                                 /* likewise */
    "late",     "native_copy",
#define GPUSYM_ALGORITHM(id, name, coll, family, schedule, doc) \
    GPUSYM_COLL_##coll == GPUSYM_COLL_ALLREDUCE ? "native_" #name : NULL,
#include "kernels/kernels.def"
#define GPUSYM_REASON(ID, name, doc, hint) "staged_" #name,
#include "mca/coll/gpusym/args/coll_gpusym.def"
};

typedef unsigned long long counts_t[COUNTERS];

static MPI_T_pvar_session session;
static MPI_T_pvar_handle handles[COUNTERS];

static bool wrong(const check_t *t, const char *what, const char *name)
{
    fprintf(stderr, "pvars: rank %d: %s: %s\n", t->rank, name, what);
    return false;
}

/* Finds a variable, compares what MPI_T says of it, and binds a handle. */
static bool open_one(const check_t *t, int which)
{
    char name[128], found[128], doc[256];
    int index, length = sizeof(found), doc_length = sizeof(doc), count = 0;
    int verbosity, class, bind, readonly, continuous, atomic;
    MPI_Datatype type;
    MPI_T_enum choices;

    snprintf(name, sizeof(name), PREFIX "%s", names[which]);
    if (MPI_SUCCESS != MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index)) {
        return wrong(t, "no such counter", name);
    }
    if (MPI_SUCCESS != MPI_T_pvar_get_info(index, found, &length, &verbosity, &class, &type, &choices, doc, &doc_length,
                                           &bind, &readonly, &continuous, &atomic)) {
        return wrong(t, "no information", name);
    }
    if (0 != strcmp(name, found) || MPI_T_PVAR_CLASS_COUNTER != class || MPI_UNSIGNED_LONG_LONG != type ||
        MPI_T_BIND_NO_OBJECT != bind || !readonly || !continuous || '\0' == *doc) {
        return wrong(t, "not a readonly, continuous counter of type unsigned long long", name);
    }
    if (MPI_SUCCESS != MPI_T_pvar_handle_alloc(session, index, NULL, &handles[which], &count) || 1 != count) {
        return wrong(t, "no handle", name);
    }
    return true;
}

static bool open_all(const check_t *t)
{
    for (int i = 0; i < COUNTERS; i++) {
        if (NULL != names[i] && !open_one(t, i)) {
            return false;
        }
    }
    return true;
}

static bool read_all(const check_t *t, counts_t counts)
{
    for (int i = 0; i < COUNTERS; i++) {
        counts[i] = 0;
        if (NULL != names[i] && MPI_SUCCESS != MPI_T_pvar_read(session, handles[i], &counts[i])) {
            return wrong(t, "cannot be read", names[i]);
        }
    }
    return true;
}

/* By how much the counters have risen since `before`, which becomes now. */
static bool risen(const check_t *t, counts_t before, counts_t delta)
{
    counts_t now;

    if (!read_all(t, now)) {
        return false;
    }
    for (int i = 0; i < COUNTERS; i++) {
        delta[i] = now[i] - before[i];
        before[i] = now[i];
    }
    return true;
}

/* Whether the sums hold and `calls` calls were counted. */
static bool sums_hold(const counts_t d, unsigned long long calls)
{
    unsigned long long native = d[COPY], staged = 0;

    for (int i = COPY + 1; i < COUNTERS; i++) {
        if (NULL != names[i] && 0 == strncmp(names[i], "native_", 7)) {
            native += d[i];
        } else {
            staged += d[i];
        }
    }
    return d[NATIVE] == native && d[STAGED] == staged && calls == d[NATIVE] + d[STAGED] + d[FORWARDED];
}

/* Checks a step: calls in all, of them `expect` in counter `which` (-1: whichever). */
static void step(check_t *t, const char *what, counts_t before, unsigned long long calls, int which)
{
    counts_t d;
    bool ok = risen(t, before, d) && sums_hold(d, calls) && (which < 0 || calls == d[which]);

    if (!ok) {
        fprintf(stderr, "pvars: rank %d: %s: %llu calls, expected as %s; but:", t->rank, what, calls,
                which < 0 ? "anything" : names[which]);
        for (int i = 0; i < COUNTERS; i++) {
            if (d[i] > 0) {
                fprintf(stderr, " %s %llu", names[i], d[i]);
            }
        }
        fprintf(stderr, "\n");
    }
    check_result(t, ok);
}

static void user_sum(void *a, void *b, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n; i++) {
        ((int *) b)[i] += ((const int *) a)[i];
    }
}

static void allreduce_between(int from, int to, MPI_Op op, MPI_Comm comm, int calls)
{
    const int one = 1;
    void *in = mem_alloc(from, sizeof(int));
    void *out = mem_alloc(to, sizeof(int));

    if (NULL == in || NULL == out) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    mem_write(in, &one, sizeof(one));
    for (int i = 0; i < calls; i++) {
        MPI_Allreduce(in, out, 1, MPI_INT, op, comm);
    }
    mem_free(from, in);
    mem_free(to, out);
}

static void allreduce(int kind, MPI_Op op, MPI_Comm comm, int calls)
{
    allreduce_between(kind, kind, op, comm, calls);
}

/* Even and odd ranks talk to each other. */
static void on_intercommunicator(check_t *t, counts_t before)
{
    const int kind = mem_have(MEM_DEVICE) ? MEM_DEVICE : MEM_HOST;
    MPI_Comm half, inter;

    MPI_Comm_split(MPI_COMM_WORLD, t->rank % 2, t->rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - t->rank % 2, 7, &inter);
    (void) read_all(t, before); /* making communicators may have taken reductions of its own */
    allreduce(kind, MPI_SUM, inter, CALLS);
    step(t, "an intercommunicator", before, CALLS, MEM_DEVICE == kind ? REASON_INTER : FORWARDED);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* native: whether the kernels serve this device here; else why the calls are staged is not ours to say. */
static void on_device(check_t *t, counts_t before, bool native)
{
    MPI_Op op;

    allreduce(MEM_DEVICE, MPI_SUM, MPI_COMM_WORLD, CALLS);
    step(t, "device memory", before, CALLS, native ? NATIVE : STAGED);
    allreduce(MEM_DEVICE, MPI_SUM, MPI_COMM_SELF, CALLS);
    step(t, "device memory, one rank", before, CALLS, COPY);
    if (1 == t->nranks) {
        return;
    }
    MPI_Op_create(user_sum, 1, &op);
    allreduce(MEM_DEVICE, op, MPI_COMM_WORLD, CALLS);
    MPI_Op_free(&op);
    step(t, "device memory, user operation", before, CALLS, native ? REASON_USER_OP : STAGED);
    allreduce_between(0 == t->rank ? MEM_HOST : MEM_DEVICE, 1 == t->rank ? MEM_HOST : MEM_DEVICE, MPI_SUM,
                      MPI_COMM_WORLD, CALLS);
    step(t, "one buffer on the host", before, CALLS, native ? NATIVE : STAGED);
    allreduce(0 == t->rank ? MEM_HOST : MEM_DEVICE, MPI_SUM, MPI_COMM_WORLD, CALLS);
    step(t, "mixed memory", before, CALLS, 0 == t->rank ? FORWARDED : native ? REASON_MIXED : STAGED);
    if (native) { /* ranks on the host find out every 16 calls */
        allreduce(0 == t->rank ? MEM_HOST : MEM_DEVICE, MPI_SUM, MPI_COMM_WORLD, 32);
        (void) read_all(t, before);
        allreduce(0 == t->rank ? MEM_HOST : MEM_DEVICE, MPI_SUM, MPI_COMM_WORLD, CALLS);
        step(t, "mixed memory, from the 32nd call on", before, CALLS, NATIVE);
        allreduce(MEM_HOST, MPI_SUM, MPI_COMM_WORLD, 64);
        step(t, "host memory after that", before, 64, FORWARDED);
    }
}

int main(int argc, char **argv)
{
    check_t t;
    counts_t before;
    int provided;
    bool there, native;
    long failed;

    check_init(&argc, &argv, "pvars", MPI_THREAD_SINGLE);
    check_arguments_end(USAGE);
    check_start(&t, "pvars", MPI_COMM_WORLD);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    native = mem_have(MEM_DEVICE) && check_native(MEM_DEVICE);

    there = open_all(&t) && read_all(&t, before);
    check_result(&t, there);
    if (!there) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    allreduce(MEM_HOST, MPI_SUM, MPI_COMM_WORLD, CALLS);
    step(&t, "host memory", before, CALLS, FORWARDED);
    if (mem_have(MEM_DEVICE)) {
        on_device(&t, before, native);
    }
    if (t.nranks > 1) {
        on_intercommunicator(&t, before);
    }

    failed = check_end(&t);
    check_print("pvars", t.passed, t.failed);
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    return check_fini(failed);
}
