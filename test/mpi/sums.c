/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI_T: what the variables coll_gpusym_<collective>_{recorded,bytes,time,waiting} say of calls on GPU memory, to the
 * call and byte: of all forms, of one rank alone, of staged calls, of four threads; only while there is a handle; time
 * that the other ranks wait for a late one; and the category of the variables. Where MPI_T has events, those of calls.
 *
 *   sums [--device sim|cuda]
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/mpi/check.h"
#include "test/mpi/persistent.h"

#define CALLS 12
#define COUNT 1024
#define BYTES (COUNT * sizeof(int))
#define THREADS 4
#define LATE_US 10000

enum { RECORDED, BYTES_SUM, TIME, WAITING, VARIABLES };
typedef unsigned long long values_t[VARIABLES];

static const struct {
    const char *name;
    int class;
} variables[VARIABLES] = {{"recorded", MPI_T_PVAR_CLASS_COUNTER},
                          {"bytes", MPI_T_PVAR_CLASS_AGGREGATE},
                          {"time", MPI_T_PVAR_CLASS_TIMER},
                          {"waiting", MPI_T_PVAR_CLASS_TIMER}};

static MPI_T_pvar_session session;
static void *in, *out;

static int index_of(const char *coll, int i)
{
    char name[128];
    int index = -1;
    snprintf(name, sizeof name, "coll_gpusym_%s_%s", coll, variables[i].name);
    return MPI_SUCCESS == MPI_T_pvar_get_index(name, variables[i].class, &index) ? index : -1;
}

static bool is_right(int index, int class)
{
    char name[128], doc[512];
    int length = sizeof name, doc_length = sizeof doc, verbosity, is, bind, readonly, continuous, atomic;
    MPI_Datatype type;
    MPI_T_enum choices;
    return MPI_SUCCESS == MPI_T_pvar_get_info(index, name, &length, &verbosity, &is, &type, &choices, doc, &doc_length,
                                              &bind, &readonly, &continuous, &atomic) &&
           class == is && MPI_UNSIGNED_LONG_LONG == type && MPI_T_BIND_NO_OBJECT == bind && readonly && continuous &&
           '\0' != doc[0];
}

static bool open_all(const char *coll, MPI_T_pvar_handle *handle)
{
    for (int i = 0; i < VARIABLES; i++) {
        int count = 0;
        const int index = index_of(coll, i);
        if (index < 0 || !is_right(index, variables[i].class) ||
            MPI_SUCCESS != MPI_T_pvar_handle_alloc(session, index, NULL, &handle[i], &count) || 1 != count) {
            fprintf(stderr, "sums: %s_%s: not there, or not as it should be\n", coll, variables[i].name);
            return false;
        }
    }
    return true;
}

static void close_all(MPI_T_pvar_handle *handle)
{
    for (int i = 0; i < VARIABLES; i++) {
        MPI_T_pvar_handle_free(session, &handle[i]);
    }
}

static void read_all(MPI_T_pvar_handle *handle, values_t value)
{
    for (int i = 0; i < VARIABLES; i++) {
        if (MPI_SUCCESS != MPI_T_pvar_read(session, handle[i], &value[i])) {
            value[i] = ~0ull;
        }
    }
}

/* So many calls of so many bytes each. */
static void expect(check_t *t, const char *what, MPI_T_pvar_handle *handle, unsigned long long calls, size_t bytes)
{
    values_t v;
    read_all(handle, v);
    const bool ok =
        calls == v[RECORDED] && calls * bytes == v[BYTES_SUM] && (v[TIME] > 0) == (calls > 0) && v[WAITING] <= v[TIME];
    if (!ok) {
        fprintf(stderr, "sums: rank %d: %s: %llu calls, %llu bytes, %llu ns, of these waiting %llu; expected %llu\n",
                t->rank, what, v[RECORDED], v[BYTES_SUM], v[TIME], v[WAITING], calls);
    }
    check_result(t, ok);
}

static void reduce_some(MPI_Comm comm)
{
    for (int i = 0; i < CALLS; i++) {
        MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
    }
}

static void in_all_forms(void)
{
    MPI_Request persistent, request;
    PERSISTENT_INIT(Allreduce)(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &persistent);
    for (int i = 0; i < CALLS; i++) {
        MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Start(&persistent);
        MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&persistent);
}

static void largest(void *a, void *b, int *n, MPI_Datatype *type)
{
    (void) type;
    for (int i = 0; i < *n; i++) {
        ((int *) b)[i] = ((int *) a)[i] > ((int *) b)[i] ? ((int *) a)[i] : ((int *) b)[i];
    }
}

static void reduce_staged(void)
{
    MPI_Op op;
    MPI_Op_create(largest, 1, &op);
    MPI_Allreduce(in, out, COUNT, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Op_free(&op);
}

/* Calls on host memory are counted as such, and not here. */
static void reduce_on_host(void)
{
    static int a[COUNT], b[COUNT];
    MPI_Allreduce(a, b, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void count_calls(check_t *t)
{
    MPI_T_pvar_handle first[VARIABLES], second[VARIABLES], local[VARIABLES];
    reduce_some(MPI_COMM_WORLD);
    if (!open_all("allreduce", first) || !open_all("reduce_local", local)) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    expect(t, "calls before there was a handle", first, 0, BYTES);
    in_all_forms();
    expect(t, "three forms", first, 3 * CALLS, BYTES);
    reduce_on_host();
    expect(t, "host memory", first, 3 * CALLS, BYTES);
    reduce_staged();
    expect(t, "one staged", first, 3 * CALLS + 1, BYTES);
    if (!open_all("allreduce", second)) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    reduce_some(MPI_COMM_SELF);
    expect(t, "one rank alone", first, 4 * CALLS + 1, BYTES);
    close_all(first);
    MPI_Reduce_local(in, out, COUNT, MPI_INT, MPI_SUM);
    expect(t, "MPI_Reduce_local", local, 1, BYTES);
    close_all(local);
    reduce_some(MPI_COMM_WORLD);
    expect(t, "since the second handle", second, 2 * CALLS, BYTES);
    close_all(second);
    reduce_some(MPI_COMM_WORLD);
    if (!open_all("allreduce", first)) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    reduce_some(MPI_COMM_WORLD);
    expect(t, "since a handle after none", first, CALLS, BYTES);
    close_all(first);
}

/* One call that the last rank makes some time after all others have. */
static void make_late_call(const check_t *t)
{
    const int last = t->nranks - 1;
    MPI_Request request;
    if (t->rank == last) {
        for (int rank = 0; rank < last; rank++) {
            MPI_Recv(NULL, 0, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        usleep(LATE_US);
    }
    MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (t->rank != last) {
        MPI_Send(NULL, 0, MPI_INT, last, 0, MPI_COMM_WORLD);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Each other rank has waited for as long at least, and the last one not at all. */
static void wait_for_late(check_t *t)
{
    MPI_T_pvar_handle handle[VARIABLES];
    values_t v;
    if (!open_all("allreduce", handle)) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < CALLS; i++) {
        make_late_call(t);
    }
    read_all(handle, v);
    const bool ok = t->rank == t->nranks - 1 ? 0 == v[WAITING] : v[WAITING] >= 1000ull * LATE_US * CALLS;
    if (!ok) {
        fprintf(stderr, "sums: rank %d of %d, the last of which is late, has waited %llu ns\n", t->rank, t->nranks,
                v[WAITING]);
    }
    check_result(t, ok);
    close_all(handle);
}

typedef struct {
    MPI_Comm comm;
    void *out; /* its own */
    pthread_t thread;
} caller_t;

static void *call_some(void *arg)
{
    const caller_t *c = arg;
    for (int i = 0; i < CALLS; i++) {
        MPI_Allreduce(in, c->out, COUNT, MPI_INT, MPI_SUM, c->comm);
    }
    return NULL;
}

/* A tool gets handles, and frees them, while the threads call: each handle has the calls of its time at most. */
static void switch_beside(check_t *t, caller_t *caller)
{
    MPI_T_pvar_handle handle[VARIABLES];
    bool ok = true;
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&caller[i].thread, NULL, call_some, &caller[i]);
    }
    for (int i = 0; i < 50 && ok; i++) {
        values_t v;
        ok = open_all("allreduce", handle);
        if (ok) {
            read_all(handle, v);
            ok = v[RECORDED] <= THREADS * CALLS;
            close_all(handle);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(caller[i].thread, NULL);
    }
    check_result(t, ok);
}

static void in_threads(check_t *t)
{
    MPI_T_pvar_handle handle[VARIABLES];
    caller_t caller[THREADS];
    for (int i = 0; i < THREADS; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &caller[i].comm);
        caller[i].out = mem_alloc(MEM_DEVICE, BYTES);
    }
    if (!open_all("allreduce", handle)) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&caller[i].thread, NULL, call_some, &caller[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(caller[i].thread, NULL);
    }
    expect(t, "threads", handle, THREADS * CALLS, BYTES);
    close_all(handle);
    switch_beside(t, caller);
    for (int i = 0; i < THREADS; i++) {
        MPI_Comm_free(&caller[i].comm);
        mem_free(MEM_DEVICE, caller[i].out);
    }
}

#ifdef MPI_T_EVENT_REGISTRATION_NULL

enum { BEGIN, END, EVENTS };
static struct {
    unsigned begun, ended, unpaired;
    unsigned open; /* the call that has begun; 0: none */
    unsigned long long bytes, time, forms;
} seen;

static void note_event(MPI_T_event_instance event, MPI_T_event_registration handle, MPI_T_cb_safety safety, void *which)
{
    unsigned call = 0;
    int form = -1, error = 0;
    unsigned long long bytes = 0, ns = 0;
    (void) handle;
    (void) safety;
    MPI_T_event_read(event, 0, &call);
    MPI_T_event_read(event, 1, &form);
    seen.forms += (unsigned) form;
    if (BEGIN == *(int *) which) {
        seen.begun++;
        seen.unpaired += 0 != seen.open;
        seen.open = call;
        return;
    }
    MPI_T_event_read(event, 2, &bytes);
    MPI_T_event_read(event, 3, &ns);
    MPI_T_event_read(event, 5, &error);
    seen.ended++;
    seen.unpaired += call != seen.open || MPI_SUCCESS != error;
    seen.open = 0;
    seen.bytes += bytes;
    seen.time += ns;
}

/* One call at a time: each end belongs to the begin before. */
static void see_events(check_t *t)
{
    static int which[EVENTS] = {BEGIN, END};
    static const char *const names[EVENTS] = {"ompi.coll_gpusym_allreduce_begin", "ompi.coll_gpusym_allreduce_end"};
    MPI_T_event_registration handle[EVENTS];
    bool ok = true;
    for (int i = 0; i < EVENTS; i++) {
        int index = -1;
        ok = ok && MPI_SUCCESS == MPI_T_event_get_index(names[i], &index) &&
             MPI_SUCCESS == MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &handle[i]) &&
             MPI_SUCCESS == MPI_T_event_register_callback(handle[i], MPI_T_CB_REQUIRE_MPI_RESTRICTED, MPI_INFO_NULL,
                                                          &which[i], note_event);
    }
    if (!ok) {
        fprintf(stderr, "sums: no events\n");
        check_result(t, false);
        return;
    }
    in_all_forms();
    for (int i = 0; i < EVENTS; i++) {
        MPI_T_event_handle_free(handle[i], NULL, NULL);
    }
    reduce_some(MPI_COMM_WORLD);
    ok = 3 * CALLS == seen.begun && seen.begun == seen.ended && 0 == seen.unpaired && 2 * 3 * CALLS == seen.forms &&
         3 * CALLS * BYTES == seen.bytes && seen.time > 0;
    if (!ok) {
        fprintf(stderr, "sums: rank %d: %u calls have begun, %u ended, %u of them not in pairs; %llu bytes\n", t->rank,
                seen.begun, seen.ended, seen.unpaired, seen.bytes);
    }
    check_result(t, ok);
}

#endif

/* One category has them all, and is described. */
static bool category_is_right(void)
{
    char name[128], doc[512];
    int length = sizeof name, doc_length = sizeof doc, index, cvars, pvars, categories;
    static int members[4096];
    if (MPI_SUCCESS != MPI_T_category_get_index("ompi_coll_gpusym", &index) ||
        MPI_SUCCESS != MPI_T_category_get_info(index, name, &length, doc, &doc_length, &cvars, &pvars, &categories) ||
        0 != strncmp(doc, "gpusym", 6) || cvars < 50 || pvars > 4096 ||
        MPI_SUCCESS != MPI_T_category_get_pvars(index, pvars, members)) {
        return false;
    }
    for (int i = 0; i < VARIABLES; i++) {
        bool found = false;
        for (int k = 0; k < pvars; k++) {
            found = found || members[k] == index_of("scatterv", i);
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    check_t t;
    int provided;
    const int given = check_init(&argc, &argv, "sums", MPI_THREAD_MULTIPLE);
    check_arguments_end("[--device sim|cuda]");
    check_start(&t, "sums", MPI_COMM_WORLD);
    MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided);
    MPI_T_pvar_session_create(&session);
    in = mem_alloc(MEM_DEVICE, BYTES);
    out = mem_alloc(MEM_DEVICE, BYTES);
    check_result(&t, category_is_right());
    count_calls(&t);
#ifdef MPI_T_EVENT_REGISTRATION_NULL
    see_events(&t);
#endif
    if (t.nranks > 1) {
        wait_for_late(&t);
    }
    if (MPI_THREAD_MULTIPLE == given) {
        in_threads(&t);
    }
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    const long failed = check_end(&t);
    check_print("sums", t.passed, t.failed);
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    return check_fini(failed);
}
