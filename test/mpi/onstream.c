/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test of collectives on streams (api/gpusym.h): all of them in a random order, on several communicators and
 * streams, eager, in graphs, and beside ordinary calls, with every byte compared to what MPI does on host memory; ranks
 * that come late; communicators freed with work queued; calls that are refused, and ranks that disagree; registered
 * memory, with a counter that says which calls went straight between buffers; persistent requests that are started on
 * streams and by MPI_Start in turns; groups of calls.
 *
 *     onstream [--n STEPS] [--seed NUMBER] [--threads | --requests]      the latter: persistent requests alone
 *     onstream --differ     ranks that queue different calls
 *     onstream --large      one broadcast and one all-reduce of more bytes than an int counts, as so many elements
 */
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/gpusym.h"
#include "api/mpix_stream.h"
#include "test/mpi/check.h"
#include "test/mpi/gpu_stream.h"
#include "test/mpi/mem.h"
#include "test/mpi/mpit.h"
#include "test/mpi/persistent.h"

enum { RANKS_MAX = 16, SLOTS = 8, COUNT_MAX = 6000, COMMS = 3, STREAMS = 2, GRAPH_CALLS = 3, THREADS = 2, ROUNDS = 4 };
#define WORDS_MAX ((COUNT_MAX + 4) * RANKS_MAX)

static int rank, ranks;
static long passed, failed; /* atomic */

static bool say(bool good, const char *what)
{
    __atomic_fetch_add(good ? &passed : &failed, 1, __ATOMIC_RELAXED);
    if (!good) {
        fprintf(stderr, "onstream: FAIL on rank %d: %s\n", rank, what);
    }
    return good;
}

static void must(int rv, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (MPI_SUCCESS != rv) {
        MPI_Error_string(rv, text, &length);
        fprintf(stderr, "onstream: rank %d: %s: %s\n", rank, what, text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void expect_error(int rv, int class, const char *words, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int is = MPI_SUCCESS, length;
    MPI_Error_class(rv, &is);
    MPI_Error_string(rv, text, &length);
    if (!say(class == is && NULL != strstr(text, words), what)) {
        fprintf(stderr, "onstream: class %d, expected %d: %s\n", is, class, text);
    }
}

/* ---- the collectives, on a stream and on host memory ---- */

/* What a call has; the same on all ranks but for the buffers. */
typedef struct {
    int coll, count, root;
    bool in_place;
    MPI_Op op;
    MPI_Comm comm;
    int counts[RANKS_MAX], displs[RANKS_MAX];
    /* What this rank sends to each, and gets from each, of an all-to-all with counts; and what the root has for each,
     * or gets. Often nothing. */
    int sent[RANKS_MAX], sent_at[RANKS_MAX], got[RANKS_MAX], got_at[RANKS_MAX], part[RANKS_MAX], part_at[RANKS_MAX];
} what_t;

/* Words behind the last of these. */
static int end_of(const int *counts, const int *displs)
{
    return displs[ranks - 1] + counts[ranks - 1];
}

static const void *input(const what_t *w, const void *in)
{
    return w->in_place ? MPI_IN_PLACE : in;
}

/* Arrays as the functions take them whose names end in _c: at most two of each for a call. */
static const MPI_Count *wide_counts(const int *counts)
{
    static _Thread_local MPI_Count wide[2][RANKS_MAX];
    static _Thread_local unsigned calls;
    MPI_Count *to = wide[calls++ % 2];
    for (int r = 0; r < ranks; r++) {
        to[r] = counts[r];
    }
    return to;
}

static const MPI_Aint *wide_displs(const int *displs)
{
    static _Thread_local MPI_Aint wide[2][RANKS_MAX];
    static _Thread_local unsigned calls;
    MPI_Aint *to = wide[calls++ % 2];
    for (int r = 0; r < ranks; r++) {
        to[r] = displs[r];
    }
    return to;
}

/* COLLECTIVE(name, arguments of `w`, in, out; words of input and output of a rank) */
#define COLLECTIVES                                                                                                    \
    COLLECTIVE(allreduce, Allreduce, (input(w, in), out, w->count, MPI_INT, w->op, w->comm A), w->count, w->count)     \
    COLLECTIVE(                                                                                                        \
        reduce, Reduce,                                                                                                \
        (w->in_place && rank == w->root ? MPI_IN_PLACE : in, out, w->count, MPI_INT, w->op, w->root, w->comm A),       \
        w->count, w->count)                                                                                            \
    COLLECTIVE(bcast, Bcast, (out, w->count, MPI_INT, w->root, w->comm A), 0, w->count)                                \
    COLLECTIVE(allgather, Allgather, (input(w, in), w->count, MPI_INT, out, w->count, MPI_INT, w->comm A), w->count,   \
               w->count *ranks)                                                                                        \
    COLLECTIVE(allgatherv, Allgatherv,                                                                                 \
               (input(w, in), w->counts[rank], MPI_INT, out, C(w->counts), D(w->displs), MPI_INT, w->comm A),          \
               w->counts[rank], w->displs[ranks - 1] + w->counts[ranks - 1])                                           \
    COLLECTIVE(reduce_scatter, Reduce_scatter, (input(w, in), out, C(w->counts), MPI_INT, w->op, w->comm A),           \
               end_of(w->counts, w->displs), w->in_place ? end_of(w->counts, w->displs) : w->counts[rank])             \
    COLLECTIVE(reduce_scatter_block, Reduce_scatter_block, (input(w, in), out, w->count, MPI_INT, w->op, w->comm A),   \
               w->count *ranks, w->in_place ? w->count *ranks : w->count)                                              \
    COLLECTIVE(alltoall, Alltoall, (input(w, in), w->count, MPI_INT, out, w->count, MPI_INT, w->comm A),               \
               w->count *ranks, w->count *ranks)                                                                       \
    COLLECTIVE(alltoallv, Alltoallv,                                                                                   \
               (w->in_place ? MPI_IN_PLACE : in, C(w->sent), D(w->sent_at), MPI_INT, out, C(w->got), D(w->got_at),     \
                MPI_INT, w->comm A),                                                                                   \
               end_of(w->sent, w->sent_at), end_of(w->got, w->got_at))                                                 \
    COLLECTIVE(gatherv, Gatherv,                                                                                       \
               (w->in_place && rank == w->root ? MPI_IN_PLACE : in, w->part[rank], MPI_INT, out, C(w->part),           \
                D(w->part_at), MPI_INT, w->root, w->comm A),                                                           \
               w->part[rank], end_of(w->part, w->part_at))                                                             \
    COLLECTIVE(scatterv, Scatterv,                                                                                     \
               (in, C(w->part), D(w->part_at), MPI_INT, w->in_place && rank == w->root ? MPI_IN_PLACE : out,           \
                w->part[rank], MPI_INT, w->root, w->comm A),                                                           \
               end_of(w->part, w->part_at), w->part[rank])                                                             \
    COLLECTIVE(gather, Gather, (in, w->count, MPI_INT, out, w->count, MPI_INT, w->root, w->comm A), w->count,          \
               w->count *ranks)                                                                                        \
    COLLECTIVE(scatter, Scatter, (in, w->count, MPI_INT, out, w->count, MPI_INT, w->root, w->comm A), w->count *ranks, \
               w->count)                                                                                               \
    COLLECTIVE(scan, Scan, (input(w, in), out, w->count, MPI_INT, w->op, w->comm A), w->count, w->count)               \
    COLLECTIVE(exscan, Exscan, (input(w, in), out, w->count, MPI_INT, w->op, w->comm A), w->count, w->count)

enum {
#define COLLECTIVE(name, Name, arguments, in, out) name##_number,
    COLLECTIVES
#undef COLLECTIVE
        COLLECTIVE_COUNT
};

static int on_stream_c(const what_t *w, const void *in, void *out, void *stream)
{
    switch (w->coll) {
#define A , stream
#define C(counts) wide_counts(counts)
#define D(displs) wide_displs(displs)
#define COLLECTIVE(name, Name, arguments, in_words, out_words) \
    case name##_number:                                        \
        return gpusym_##name##_on_stream_c arguments;
        COLLECTIVES
#undef COLLECTIVE
#undef A
#undef C
#undef D
    default:
        return MPI_ERR_ARG;
    }
}

#define C(counts) counts
#define D(displs) displs

/* By the functions of both kinds in turns. */
static int on_stream(const what_t *w, const void *in, void *out, void *stream)
{
    static unsigned calls;
    if (0 != __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % 2) {
        return on_stream_c(w, in, out, stream);
    }
    switch (w->coll) {
#define A , stream
#define COLLECTIVE(name, Name, arguments, in_words, out_words) \
    case name##_number:                                        \
        return gpusym_##name##_on_stream arguments;
        COLLECTIVES
#undef COLLECTIVE
#undef A
    default:
        return MPI_ERR_ARG;
    }
}

static int on_host(const what_t *w, const void *in, void *out)
{
    switch (w->coll) {
#define A
#define COLLECTIVE(name, Name, arguments, in_words, out_words) \
    case name##_number:                                        \
        return MPI_##Name arguments;
        COLLECTIVES
#undef COLLECTIVE
#undef A
    default:
        return MPI_ERR_ARG;
    }
}

/* The persistent request of a call. */
static int on_request(const what_t *w, const void *in, void *out, MPI_Request *request)
{
    switch (w->coll) {
#define A , MPI_INFO_NULL, request
#define COLLECTIVE(name, Name, arguments, in_words, out_words) \
    case name##_number:                                        \
        return PERSISTENT_INIT(Name) arguments;
        COLLECTIVES
#undef COLLECTIVE
#undef A
    default:
        return MPI_ERR_ARG;
    }
}

static void count_words(const what_t *w, size_t *in, size_t *out)
{
    switch (w->coll) {
#define COLLECTIVE(name, Name, arguments, in_words, out_words) \
    case name##_number:                                        \
        *in = (size_t) (in_words);                             \
        *out = (size_t) (out_words);                           \
        break;
        COLLECTIVES
#undef COLLECTIVE
    default:
        *in = *out = 0;
        break;
    }
}

static const char *name_of(int coll)
{
    static const char *const names[] = {
#define COLLECTIVE(name, Name, arguments, in, out) #name,
        COLLECTIVES
#undef COLLECTIVE
    };
    return names[coll];
}

/* Words from one rank to another, the same on both. In place they are as many in both directions. Rank 0 has some for
 * itself: a persistent collective of nothing at all is not gpusym's. */
static int words_between(uint32_t seed, const what_t *w, int from, int to)
{
    const int low = from < to ? from : to, high = from < to ? to : from;
    uint32_t state = seed + (uint32_t) (w->in_place ? low * RANKS_MAX + high : from * RANKS_MAX + to) * 2654435761u;
    (void) next_random(&state);
    if (0 == high) {
        return 1 + (int) (next_random(&state) % (uint32_t) w->count);
    }
    return 0 == next_random(&state) % 3 ? 0 : (int) (next_random(&state) % (uint32_t) (w->count + 1));
}

/* Where blocks of these lengths begin, some with a gap before them. */
static void place_blocks(uint32_t seed, const int *counts, int *at)
{
    for (int r = 0, next = 0; r < ranks; r++) {
        at[r] = next + (int) (next_random(&seed) % 2);
        next = at[r] + counts[r];
    }
}

static void make_lengths(what_t *w, uint32_t seed)
{
    for (int r = 0; r < ranks; r++) {
        w->sent[r] = words_between(seed, w, rank, r);
        w->got[r] = words_between(seed, w, r, rank);
        w->part[r] = words_between(seed + 1, w, 0, r);
    }
    place_blocks(seed + 2 + (uint32_t) rank, w->sent, w->sent_at);
    place_blocks(seed + 3 + (uint32_t) rank, w->got, w->got_at);
    place_blocks(seed + 4, w->part, w->part_at);
}

/* A random call, the same on all ranks that have the same state. */
static what_t make_what(uint32_t *state, MPI_Comm comm)
{
    static const int counts[] = {1, 2, 3, 5, 17, 64, 255, 1000, COUNT_MAX};
    static const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_BXOR};
    what_t w = {.coll = (int) (next_random(state) % COLLECTIVE_COUNT),
                .count = counts[next_random(state) % (sizeof counts / sizeof counts[0])],
                .root = (int) (next_random(state) % (uint32_t) ranks),
                .op = ops[next_random(state) % 3],
                .comm = comm};
    w.in_place =
        0 == next_random(state) % 3 && bcast_number != w.coll && gather_number != w.coll && scatter_number != w.coll;
    make_lengths(&w, next_random(state));
    for (int r = 0, at = 0; r < ranks; r++) {
        const uint32_t more = next_random(state) % 4;
        const bool equal = w.in_place && reduce_scatter_number == w.coll;
        w.counts[r] = equal ? w.count : r > 0 && 3 == more ? 0 : w.count + (int) more;
        w.displs[r] = at;
        at += w.counts[r];
    }
    if (allgatherv_number == w.coll) { /* each rank has it laid out in a way of its own */
        place_blocks(next_random(state) + (uint32_t) rank, w.counts, w.displs);
    }
    return w;
}

/* ---- buffers ---- */

/* A call that has been queued: what goes in and what has come out, and the GPU memory in which it does. */
typedef struct {
    what_t what;
    bool again; /* an ordinary MPI_Allreduce of the output has followed */
    int *in, *out, *back, *gpu_in, *gpu_out;
    int *own_in, *own_out; /* gpu_in and gpu_out, where they are no registered memory */
} slot_t;

/* Host memory that streams copy from and to without waiting. */
static void slot_open(slot_t *s)
{
    const size_t bytes = WORDS_MAX * sizeof(int);
    s->in = mem_alloc(MEM_REGISTERED, bytes);
    s->out = mem_alloc(MEM_REGISTERED, bytes);
    s->back = mem_alloc(MEM_REGISTERED, bytes);
    s->gpu_in = s->own_in = mem_alloc(MEM_DEVICE, bytes);
    s->gpu_out = s->own_out = mem_alloc(MEM_DEVICE, bytes);
    if (NULL == s->in || NULL == s->out || NULL == s->back || NULL == s->gpu_in || NULL == s->gpu_out) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void slot_close(slot_t *s)
{
    mem_free(MEM_REGISTERED, s->in);
    mem_free(MEM_REGISTERED, s->out);
    mem_free(MEM_REGISTERED, s->back);
    mem_free(MEM_DEVICE, s->own_in);
    mem_free(MEM_DEVICE, s->own_out);
}

static void slot_fill(slot_t *s, uint32_t seed)
{
    size_t in, out;
    uint32_t state = seed * 31 + (uint32_t) rank;
    count_words(&s->what, &in, &out);
    for (size_t i = 0; i < in; i++) {
        s->in[i] = (int) (next_random(&state) % 100000);
    }
    for (size_t i = 0; i < out + 1; i++) { /* one behind the end: nothing is written there */
        s->out[i] = (int) (next_random(&state) % 100000);
    }
}

/* Queues the copies to the GPU. */
static void slot_upload(const slot_t *s, void *stream)
{
    size_t in, out;
    count_words(&s->what, &in, &out);
    if (0 != in) {
        gpu_stream_copy(stream, s->gpu_in, s->in, in * sizeof(int));
    }
    gpu_stream_copy(stream, s->gpu_out, s->out, (out + 1) * sizeof(int));
}

/* Queues the copy back. */
static void slot_download(const slot_t *s, void *stream)
{
    size_t in, out;
    count_words(&s->what, &in, &out);
    gpu_stream_copy(stream, s->back, s->gpu_out, (out + 1) * sizeof(int));
}

/* Queues the call, between the copies to the GPU and back. */
static void slot_queue(slot_t *s, void *stream)
{
    slot_upload(s, stream);
    must(on_stream(&s->what, s->gpu_in, s->gpu_out, stream), name_of(s->what.coll));
    if (s->again) { /* it begins when the call on the stream has ended */
        must(MPI_Allreduce(MPI_IN_PLACE, s->gpu_out, s->what.count, MPI_INT, MPI_BXOR, s->what.comm), "MPI_Allreduce");
    }
    slot_download(s, stream);
}

/* Words of the output that MPI defines: behind a part that is reduced and scattered in place it does not. */
static size_t count_defined(const what_t *w, size_t out)
{
    return !w->in_place                             ? out
           : reduce_scatter_number == w->coll       ? (size_t) w->counts[rank]
           : reduce_scatter_block_number == w->coll ? (size_t) w->count
                                                    : out;
}

/* Compares it, once its stream has been synchronized. MPI does it on host memory, on another communicator. */
static void slot_compare(slot_t *s, MPI_Comm reference)
{
    char text[128];
    size_t in, out, wrong = 0, first = 0;
    count_words(&s->what, &in, &out);
    s->what.comm = reference;
    must(on_host(&s->what, s->in, s->out), "the reference");
    if (s->again) {
        must(MPI_Allreduce(MPI_IN_PLACE, s->out, s->what.count, MPI_INT, MPI_BXOR, reference), "the reference");
    }
    const size_t defined = count_defined(&s->what, out);
    for (size_t i = 0; i < out + 1; i++) {
        const bool is_wrong = (i < defined || i == out) && s->out[i] != s->back[i];
        first = 0 == wrong && is_wrong ? i : first;
        wrong += is_wrong;
    }
    snprintf(text, sizeof text, "%s of %d%s: %zu elements wrong, from %zu on", name_of(s->what.coll), s->what.count,
             s->what.in_place ? " in place" : "", wrong, first);
    say(0 == wrong, text);
}

/* ---- random programs ---- */

typedef struct {
    MPI_Comm comm[COMMS], reference;
    void *stream[STREAMS];
    slot_t slot[SLOTS];
    uint32_t seed;
    int steps;
} program_t;

static void program_open(program_t *p, uint32_t seed, int steps)
{
    p->seed = seed;
    p->steps = steps;
    MPI_Comm_dup(MPI_COMM_WORLD, &p->reference);
    for (int c = 0; c < COMMS; c++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &p->comm[c]);
        MPI_Comm_set_errhandler(p->comm[c], MPI_ERRORS_RETURN);
        if (0 != c) { /* the first is prepared by its first call */
            must(gpusym_stream_prepare(p->comm[c], MPI_INFO_NULL), "gpusym_stream_prepare");
        }
    }
    for (int s = 0; s < STREAMS; s++) {
        p->stream[s] = gpu_stream_create();
    }
    for (int s = 0; s < SLOTS; s++) {
        slot_open(&p->slot[s]);
    }
}

static void program_close(program_t *p)
{
    for (int s = 0; s < SLOTS; s++) {
        slot_close(&p->slot[s]);
    }
    for (int s = 0; s < STREAMS; s++) {
        gpu_stream_destroy(p->stream[s]);
    }
    for (int c = 0; c < COMMS; c++) {
        int error, who;
        must(gpusym_stream_error(p->comm[c], &error, &who), "gpusym_stream_error");
        say(MPI_SUCCESS == error, "no call has failed");
        MPI_Comm_free(&p->comm[c]);
    }
    MPI_Comm_free(&p->reference);
}

static void synchronize(const program_t *p)
{
    for (int s = 0; s < STREAMS; s++) {
        gpu_stream_synchronize(p->stream[s]);
    }
}

/* A few calls as a graph, launched several times; `eager` ranks queue them as often. */
static void run_graph(program_t *p, uint32_t *state, int c)
{
    const bool eager = 0 == next_random(state) % 2 && 1 == rank % 2;
    const int launches = 1 + (int) (next_random(state) % 4);
    void *stream = p->stream[next_random(state) % STREAMS], *graph = NULL;
    const uint32_t seed = next_random(state);
    for (int i = 0; i < GRAPH_CALLS; i++) {
        p->slot[i].what = make_what(state, p->comm[c]);
        p->slot[i].again = false;
        slot_fill(&p->slot[i], seed + (uint32_t) i);
    }
    if (!eager) {
        gpu_capture_begin(stream);
        for (int i = 0; i < GRAPH_CALLS; i++) {
            slot_queue(&p->slot[i], stream);
        }
        graph = gpu_capture_end(stream);
    }
    for (int l = 0; l < launches; l++) {
        if (!eager) {
            say(gpu_graph_launch(graph, stream), "a graph is launched");
        }
        for (int i = 0; eager && i < GRAPH_CALLS; i++) {
            slot_queue(&p->slot[i], stream);
        }
    }
    gpu_stream_synchronize(stream);
    for (int i = 0; i < GRAPH_CALLS; i++) {
        slot_compare(&p->slot[i], p->reference);
    }
    if (!eager) {
        gpu_graph_destroy(graph);
    }
}

static void program_run(program_t *p)
{
    uint32_t state = p->seed, own = p->seed + (uint32_t) rank;
    for (int done = 0; done < p->steps; done += SLOTS) {
        if (0 == next_random(&state) % 4) {
            run_graph(p, &state, (int) (1 + next_random(&state) % (COMMS - 1)));
        }
        for (int i = 0; i < SLOTS; i++) {
            slot_t *s = &p->slot[i];
            const int c = (int) (next_random(&state) % COMMS);
            void *stream = p->stream[0 == next_random(&state) % 4 ? c % STREAMS : 0];
            s->what = make_what(&state, p->comm[c]);
            s->again = 0 == next_random(&state) % 8;
            slot_fill(s, next_random(&state));
            for (uint32_t naps = next_random(&own) % 8; 1 == naps;) { /* a late rank */
                struct timespec nap = {0, 2000000};
                nanosleep(&nap, NULL);
                naps = 0;
            }
            slot_queue(s, stream);
        }
        synchronize(p);
        for (int i = 0; i < SLOTS; i++) {
            slot_compare(&p->slot[i], p->reference);
        }
    }
}

static void *run_thread(void *arg)
{
    program_run(arg);
    return NULL;
}

static void run_programs(uint32_t seed, int steps, int threads)
{
    static program_t program[THREADS];
    pthread_t thread[THREADS];
    for (int t = 0; t < threads; t++) {
        program_open(&program[t], seed + 1000u * (uint32_t) t, steps);
    }
    for (int t = 1; t < threads; t++) {
        if (0 != pthread_create(&thread[t], NULL, run_thread, &program[t])) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    program_run(&program[0]);
    for (int t = 1; t < threads; t++) {
        pthread_join(thread[t], NULL);
    }
    for (int t = 0; t < threads; t++) {
        program_close(&program[t]);
    }
}

/* ---- ranks that come late ---- */

/* Rank 0 queues a call, and goes on to tell the others to do so. */
static void nobody_waits(void)
{
    MPI_Comm comm;
    slot_t s = {.what = {.coll = allreduce_number, .count = 100, .op = MPI_SUM}};
    void *stream = gpu_stream_create(), *event = gpu_event_create();
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    must(gpusym_stream_prepare(comm, MPI_INFO_NULL), "gpusym_stream_prepare");
    slot_open(&s);
    s.what.comm = comm;
    slot_fill(&s, 1);
    if (0 == rank) {
        slot_queue(&s, stream);
        gpu_event_record(event, stream);
        say(1 == ranks || !gpu_event_reached(event), "a call does not end before all have queued it");
    }
    MPI_Bcast(&s.what.root, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (0 != rank) {
        slot_queue(&s, stream);
        gpu_event_record(event, stream);
    }
    gpu_stream_synchronize(stream);
    say(gpu_event_reached(event), "an event behind the call is reached");
    slot_compare(&s, MPI_COMM_WORLD);
    slot_close(&s);
    gpu_event_destroy(event);
    gpu_stream_destroy(stream);
    MPI_Comm_free(&comm);
}

/* The same of two streams, of which the second waits for the first. */
static void no_stream_waits_on_the_cpu(void)
{
    MPI_Comm comm;
    slot_t s[2];
    void *stream[2] = {gpu_stream_create(), gpu_stream_create()};
    int told = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    must(gpusym_stream_prepare(comm, MPI_INFO_NULL), "gpusym_stream_prepare");
    for (int i = 0; i < 2; i++) {
        slot_open(&s[i]);
        s[i].what = (what_t){.coll = allreduce_number, .count = 100, .op = MPI_SUM, .comm = comm};
        s[i].again = false;
        slot_fill(&s[i], 1 + (uint32_t) i);
    }
    for (int i = 0; i < 2 && 0 == rank; i++) {
        slot_queue(&s[i], stream[i]);
    }
    MPI_Bcast(&told, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 2 && 0 != rank; i++) {
        slot_queue(&s[i], stream[i]);
    }
    for (int i = 0; i < 2; i++) {
        gpu_stream_synchronize(stream[i]);
        slot_compare(&s[i], MPI_COMM_WORLD);
        slot_close(&s[i]);
        gpu_stream_destroy(stream[i]);
    }
    MPI_Comm_free(&comm);
}

static void nap_long(void *nothing)
{
    const struct timespec nap = {0, 20000000};
    (void) nothing;
    nanosleep(&nap, NULL);
}

/* A communicator of one rank: its calls come one behind the other on any streams, and an ordinary one behind them. */
static void alone_in_order(void)
{
    enum { WORDS = 100, BUFFERS = 4 };
    int *const gpu = mem_alloc(MEM_DEVICE, BUFFERS * WORDS * sizeof(int)), host[BUFFERS * WORDS] = {0};
    void *stream[2] = {gpu_stream_create(), gpu_stream_create()};
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    for (int i = 0; i < WORDS; i++) {
        host[i] = i + 1;
    }
    mem_write(gpu, host, sizeof host);
    gpu_stream_call(stream[0], nap_long, NULL);
    for (int i = 0; i < 2; i++) {
        must(gpusym_allreduce_on_stream(gpu + i * WORDS, gpu + (i + 1) * WORDS, WORDS, MPI_INT, MPI_SUM, comm,
                                        stream[i]),
             "a call of one rank");
    }
    must(MPI_Allreduce(gpu + 2 * WORDS, gpu + 3 * WORDS, WORDS, MPI_INT, MPI_SUM, comm), "MPI_Allreduce");
    mem_read(host, gpu, sizeof host);
    say(0 == memcmp(host, host + 3 * WORDS, WORDS * sizeof(int)), "the calls of one rank come in order");
    MPI_Comm_free(&comm);
    for (int i = 0; i < 2; i++) {
        gpu_stream_destroy(stream[i]);
    }
    mem_free(MEM_DEVICE, gpu);
}

/* A communicator is freed while its calls are queued. */
static void freed_with_work_queued(void)
{
    slot_t s[SLOTS];
    MPI_Comm comm;
    void *stream = gpu_stream_create();
    uint32_t state = 5;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < SLOTS; i++) {
        slot_open(&s[i]);
        s[i].what = make_what(&state, comm);
        s[i].again = false;
        slot_fill(&s[i], (uint32_t) i);
        slot_queue(&s[i], stream);
    }
    MPI_Comm_free(&comm);
    gpu_stream_synchronize(stream);
    for (int i = 0; i < SLOTS; i++) {
        slot_compare(&s[i], MPI_COMM_WORLD);
        slot_close(&s[i]);
    }
    gpu_stream_destroy(stream);
}

/* ---- groups ---- */

/* The counts are another call's once this returns. */
static void call_in_group(const slot_t *s, void *stream)
{
    what_t w = s->what;
    must(on_stream(&w, s->gpu_in, s->gpu_out, stream), name_of(w.coll));
    memset(&w, 0x11, sizeof w);
}

/* Of a thread: communicators, each with a stream of its own, and their calls. */
typedef struct {
    MPI_Comm comm[COMMS], reference;
    void *stream[COMMS];
    slot_t slot[SLOTS];
    uint32_t state;
} groups_t;

/* No communicator is prepared. */
static void groups_open(groups_t *g, uint32_t seed)
{
    g->state = seed;
    MPI_Comm_dup(MPI_COMM_WORLD, &g->reference);
    for (int c = 0; c < COMMS; c++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &g->comm[c]);
        g->stream[c] = gpu_stream_create();
    }
    for (int i = 0; i < SLOTS; i++) {
        slot_open(&g->slot[i]);
        g->slot[i].again = false;
    }
}

static void groups_close(groups_t *g)
{
    for (int c = 0; c < COMMS; c++) {
        gpu_stream_destroy(g->stream[c]);
        MPI_Comm_free(&g->comm[c]);
    }
    for (int i = 0; i < SLOTS; i++) {
        slot_close(&g->slot[i]);
    }
    MPI_Comm_free(&g->reference);
}

/* Each rank begins with another communicator: one call after the other would wait for ever, to prepare them. */
static void group_in_any_order(groups_t *g)
{
    slot_t *s = g->slot;
    for (int i = 0; i < 2 * COMMS; i++) {
        s[i].what = make_what(&g->state, g->comm[i % COMMS]);
        slot_fill(&s[i], (uint32_t) i);
        slot_upload(&s[i], g->stream[i % COMMS]);
    }
    must(gpusym_group_start(), "gpusym_group_start");
    for (int i = 0; i < 2 * COMMS; i++) {
        const int turn = i / COMMS * COMMS + (i + rank) % COMMS;
        must(gpusym_group_start(), "gpusym_group_start");
        call_in_group(&s[turn], g->stream[turn % COMMS]);
        must(gpusym_group_end(), "gpusym_group_end of an inner group");
    }
    must(gpusym_group_end(), "gpusym_group_end");
    for (int i = 0; i < 2 * COMMS; i++) {
        slot_download(&s[i], g->stream[i % COMMS]);
    }
    for (int c = 0; c < COMMS; c++) {
        gpu_stream_synchronize(g->stream[c]);
    }
    for (int i = 0; i < 2 * COMMS; i++) {
        slot_compare(&s[i], g->reference);
    }
}

/* All in one stream, launched twice. */
static void group_captured(groups_t *g)
{
    slot_t *s = g->slot;
    void *stream = g->stream[1], *graph;
    for (int i = 0; i < SLOTS; i++) {
        s[i].what = make_what(&g->state, g->comm[i % COMMS]);
        slot_fill(&s[i], (uint32_t) i);
    }
    gpu_capture_begin(stream);
    must(gpusym_group_start(), "gpusym_group_start");
    for (int i = 0; i < SLOTS; i++) {
        call_in_group(&s[i], stream);
    }
    must(gpusym_group_end(), "gpusym_group_end in a capture");
    graph = gpu_capture_end(stream);
    for (int i = 0; i < 2 * SLOTS; i++) {
        slot_upload(&s[i % SLOTS], stream);
        if (SLOTS - 1 == i % SLOTS) {
            say(gpu_graph_launch(graph, stream), "a group's graph is launched");
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        slot_download(&s[i], stream);
    }
    gpu_stream_synchronize(stream);
    gpu_graph_destroy(graph);
    for (int i = 0; i < SLOTS; i++) {
        slot_compare(&s[i], g->reference);
    }
}

/* One call of two cannot be queued: the other one is not, either, and a third goes on. */
static void group_refused(MPI_Comm comm, void *stream)
{
    enum { WORDS = 8 };
    int *gpu = mem_alloc(MEM_DEVICE, 2 * WORDS * sizeof(int)), host[2 * WORDS] = {0};
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < WORDS; i++) {
        host[i] = i + 1;
        host[WORDS + i] = -1;
    }
    mem_write(gpu, host, sizeof host);
    must(gpusym_group_start(), "gpusym_group_start");
    must(gpusym_allreduce_on_stream(gpu, gpu + WORDS, WORDS, MPI_INT, MPI_SUM, comm, stream), "a call in a group");
    must(gpusym_allreduce_on_stream(host, gpu + WORDS, WORDS, MPI_INT, MPI_SUM, comm, stream), "host memory is noted");
    expect_error(gpusym_group_end(), MPI_ERR_UNSUPPORTED_OPERATION, "host memory", "a group with host memory");
    gpu_stream_synchronize(stream);
    mem_read(host, gpu, sizeof host);
    say(-1 == host[WORDS] && -1 == host[2 * WORDS - 1], "nothing of a refused group is queued");
    must(gpusym_allreduce_on_stream(gpu, gpu + WORDS, WORDS, MPI_INT, MPI_SUM, comm, stream), "a call behind a group");
    gpu_stream_synchronize(stream);
    mem_read(host, gpu, sizeof host);
    say(ranks == host[WORDS] && WORDS * ranks == host[2 * WORDS - 1], "a call behind a refused group");
    mem_free(MEM_DEVICE, gpu);
}

static MPIX_Stream make_handle(void *stream)
{
    MPIX_Stream handle;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "type", "cudaStream_t");
    must(MPIX_Info_set_hex(info, "value", &stream, sizeof stream), "MPIX_Info_set_hex");
    must(MPIX_Stream_create(info, &handle), "MPIX_Stream_create");
    MPI_Info_free(&info);
    return handle;
}

/* Communicators of all ranks but the last, and of all but the first: each rank calls in an order of its own, some of
 * them by MPICH's names, on two streams and then, in one order, on one. */
static void group_of_overlapping(uint32_t seed)
{
    enum { HALVES = 2, CALLS = 6 };
    MPI_Comm comm[HALVES], reference[HALVES];
    MPIX_Stream handle[HALVES];
    slot_t s[CALLS];
    void *stream[HALVES];
    for (int h = 0; h < HALVES; h++) {
        MPI_Comm half;
        const bool in = rank != (0 == h ? ranks - 1 : 0);
        MPI_Comm_split(MPI_COMM_WORLD, in ? 0 : MPI_UNDEFINED, rank, &half);
        stream[h] = gpu_stream_create();
        handle[h] = make_handle(stream[h]);
        comm[h] = reference[h] = MPI_COMM_NULL;
        if (in) {
            must(MPIX_Stream_comm_create(half, handle[h], &comm[h]), "MPIX_Stream_comm_create");
            reference[h] = half;
        }
    }
    for (int i = 0; i < CALLS; i++) {
        slot_open(&s[i]);
    }
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < CALLS; i++) {
            s[i].what = (what_t){.coll = allreduce_number,
                                 .count = 0 == i % 3 ? COUNT_MAX : 64,
                                 .op = MPI_SUM,
                                 .comm = comm[i % HALVES]};
            s[i].again = false;
            slot_fill(&s[i], seed + (uint32_t) (turn * CALLS + i));
            slot_upload(&s[i], stream[0 == turn ? i % HALVES : 0]);
        }
        must(gpusym_group_start(), "gpusym_group_start");
        for (int i = 0; i < CALLS; i++) {
            const int n = 0 == turn ? i / HALVES * HALVES + (i + rank) % HALVES : i;
            const what_t *w = &s[n].what;
            if (MPI_COMM_NULL == w->comm) {
                continue;
            }
            if (0 == turn && n < CALLS / 2) {
                must(MPIX_Allreduce_enqueue(s[n].gpu_in, s[n].gpu_out, w->count, MPI_INT, w->op, w->comm),
                     "MPIX_Allreduce_enqueue in a group");
            } else {
                call_in_group(&s[n], stream[0 == turn ? n % HALVES : 0]);
            }
        }
        must(gpusym_group_end(), "gpusym_group_end of overlapping communicators");
        for (int i = 0; i < CALLS; i++) {
            slot_download(&s[i], stream[0 == turn ? i % HALVES : 0]);
        }
        for (int h = 0; h < HALVES; h++) {
            gpu_stream_synchronize(stream[h]);
        }
        for (int i = 0; i < CALLS; i++) {
            if (MPI_COMM_NULL != comm[i % HALVES]) {
                slot_compare(&s[i], reference[i % HALVES]);
            }
        }
    }
    for (int h = 0; h < HALVES; h++) {
        must(MPIX_Stream_free(&handle[h]), "MPIX_Stream_free");
        if (MPI_COMM_NULL != comm[h]) {
            MPI_Comm_free(&comm[h]);
            MPI_Comm_free(&reference[h]);
        }
        gpu_stream_destroy(stream[h]);
    }
    for (int i = 0; i < CALLS; i++) {
        slot_close(&s[i]);
    }
}

static void groups(uint32_t seed)
{
    groups_t g;
    if (ranks > 2) {
        group_of_overlapping(seed);
    }
    groups_open(&g, seed);
    group_in_any_order(&g);
    group_captured(&g);
    group_refused(g.comm[0], g.stream[0]);
    groups_close(&g);
}

static void *run_groups(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        group_in_any_order(arg);
    }
    return NULL;
}

/* Each thread has its own group open at once, of communicators of its own. */
static void groups_in_threads(uint32_t seed)
{
    static groups_t g[THREADS];
    pthread_t thread[THREADS];
    for (int t = 0; t < THREADS; t++) {
        groups_open(&g[t], seed + 1000u * (uint32_t) t);
    }
    for (int t = 0; t < THREADS; t++) {
        if (0 != pthread_create(&thread[t], NULL, run_groups, &g[t])) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(thread[t], NULL);
        groups_close(&g[t]);
    }
}

/* ---- what is refused ---- */

static void add_one(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void) in, (void) inout, (void) n, (void) type;
}

static void refused(void)
{
    MPI_Comm comm, fresh;
    MPI_Datatype gaps;
    MPI_Op own;
    int host[8] = {0}, counts[RANKS_MAX];
    void *stream = gpu_stream_create();
    int *gpu = mem_alloc(MEM_DEVICE, 4096), rv;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &fresh);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(fresh, MPI_ERRORS_RETURN);
    must(gpusym_stream_prepare(comm, MPI_INFO_NULL), "gpusym_stream_prepare");
    rv = gpusym_allreduce_on_stream(host, gpu, 8, MPI_INT, MPI_SUM, comm, stream);
    expect_error(rv, MPI_ERR_UNSUPPORTED_OPERATION, "host memory", "host memory is refused");
    MPI_Type_vector(4, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    rv = gpusym_bcast_on_stream(gpu, 2, gaps, 0, comm, stream);
    if (ranks > 1) {
        expect_error(rv, MPI_ERR_UNSUPPORTED_OPERATION, "gaps", "elements with gaps are refused");
    }
    MPI_Type_free(&gaps);
    MPI_Op_create(add_one, 1, &own);
    rv = gpusym_allreduce_on_stream(gpu, gpu + 512, 8, MPI_INT, own, comm, stream);
    if (ranks > 1) {
        expect_error(rv, MPI_ERR_UNSUPPORTED_OPERATION, "user-defined", "user-defined operations are refused");
    }
    MPI_Op_free(&own);
    for (int r = 0; r < ranks; r++) {
        counts[r] = 8 + (ranks - 1 == r);
    }
    rv = gpusym_reduce_scatter_on_stream(MPI_IN_PLACE, gpu, counts, MPI_INT, MPI_SUM, comm, stream);
    if (ranks > 1) {
        expect_error(rv, MPI_ERR_UNSUPPORTED_OPERATION, "different lengths", "uneven parts in place are refused");
    }
    gpu_capture_begin(stream);
    rv = gpusym_allreduce_on_stream(gpu, gpu + 512, 8, MPI_INT, MPI_SUM, fresh, stream);
    gpu_graph_destroy(gpu_capture_end(stream));
    if (ranks > 1) {
        expect_error(rv, MPI_ERR_UNSUPPORTED_OPERATION, "gpusym_stream_prepare", "a first call is not captured");
    }
    must(gpusym_allreduce_on_stream(gpu, gpu + 512, 8, MPI_INT, MPI_SUM, comm, stream), "a call behind refused ones");
    must(gpusym_allreduce_on_stream(gpu, gpu + 512, 0, MPI_INT, MPI_SUM, comm, stream), "no elements");
    gpu_stream_synchronize(stream);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&fresh);
    mem_free(MEM_DEVICE, gpu);
    gpu_stream_destroy(stream);
}

typedef enum { OTHER_CALL, OTHER_COUNT, OTHER_GATHERED, OTHER_SCATTERED, DIFFERENCES } differ_t;

/* A call of which rank 0 has another form; of one count of several, that of the last rank. */
static int call_differently(differ_t how, int *gpu, MPI_Comm comm, void *stream)
{
    const int mine = 0 == rank && OTHER_CALL != how ? 7 : 8;
    int counts[RANKS_MAX], displs[RANKS_MAX];
    for (int r = 0; r < ranks; r++) {
        counts[r] = ranks - 1 == r ? mine : 8;
        displs[r] = 8 * r;
    }
    if (OTHER_GATHERED == how) {
        return gpusym_allgatherv_on_stream(gpu, counts[rank], MPI_INT, gpu + 512, counts, displs, MPI_INT, comm,
                                           stream);
    }
    if (OTHER_SCATTERED == how) {
        return gpusym_reduce_scatter_on_stream(gpu, gpu + 512, counts, MPI_INT, MPI_SUM, comm, stream);
    }
    return OTHER_CALL == how && 0 == rank
               ? gpusym_bcast_on_stream(gpu, 8, MPI_INT, 0, comm, stream)
               : gpusym_allreduce_on_stream(gpu, gpu + 512, mine, MPI_INT, MPI_SUM, comm, stream);
}

/* Ranks that have queued different calls all find that, and so do their later calls; others go on. */
static void ranks_disagree(differ_t how)
{
    MPI_Comm comm;
    void *stream = gpu_stream_create();
    int *gpu = mem_alloc(MEM_DEVICE, 4096), error, who;
    if (ranks > 1) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        must(gpusym_stream_prepare(comm, MPI_INFO_NULL), "gpusym_stream_prepare");
        must(call_differently(how, gpu, comm, stream), "a call");
        gpu_stream_synchronize(stream);
        (void) gpusym_allreduce_on_stream(gpu, gpu + 512, 8, MPI_INT, MPI_SUM, comm, stream); /* who only sends */
        gpu_stream_synchronize(stream);
        must(gpusym_stream_error(comm, &error, &who), "gpusym_stream_error");
        say(MPI_SUCCESS != error && who >= 0 && who != rank, "ranks that disagree are found");
        expect_error(gpusym_allreduce_on_stream(gpu, gpu + 512, 8, MPI_INT, MPI_SUM, comm, stream), MPI_ERR_OTHER,
                     "has failed", "later calls fail");
        MPI_Comm_free(&comm);
    }
    mem_free(MEM_DEVICE, gpu);
    gpu_stream_destroy(stream);
}

/* ---- registered memory ---- */

enum { REGIONS = 2, SHIFT_MAX = 33, STRAIGHT_MIN = 1000, REGISTERED_MAX = 16 };
/* Of a region, for a buffer of each slot; and in words behind its memory's start where that of rank 0 begins. */
#define ROOM (WORDS_MAX + SHIFT_MAX)
#define WORDS_BEFORE 5

/* Memory of which all but the first words is registered; by rank, these are more. */
typedef struct {
    MPI_Comm comm, reference;
    void *stream;
    int *memory[REGIONS], handle[REGIONS];
    int poor; /* a rank that registers so many words; -1: none */
    size_t poor_words;
    slot_t slot[SLOTS];
} registered_t;

static void register_region(registered_t *r, int i)
{
    const int before = WORDS_BEFORE + rank;
    const size_t words = rank == r->poor ? r->poor_words : SLOTS * ROOM + (size_t) i;
    must(gpusym_mem_register(r->comm, r->memory[i] + before, (MPI_Aint) (words * sizeof(int)), &r->handle[i]),
         "gpusym_mem_register");
}

/* The communicator is not prepared: its first registration does that. */
static void registered_open(registered_t *r)
{
    r->poor = -1;
    MPI_Comm_dup(MPI_COMM_WORLD, &r->comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &r->reference);
    MPI_Comm_set_errhandler(r->comm, MPI_ERRORS_RETURN);
    r->stream = gpu_stream_create();
    for (int i = 0; i < REGIONS; i++) {
        r->memory[i] = mem_alloc(MEM_DEVICE, (SLOTS * ROOM + WORDS_BEFORE + RANKS_MAX + REGIONS) * sizeof(int));
        if (NULL == r->memory[i]) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        register_region(r, i);
    }
    for (int i = 0; i < SLOTS; i++) {
        slot_open(&r->slot[i]);
    }
}

static void registered_close(registered_t *r)
{
    MPI_Comm_free(&r->comm); /* with what is registered */
    for (int i = 0; i < SLOTS; i++) {
        slot_close(&r->slot[i]);
    }
    for (int i = 0; i < REGIONS; i++) {
        mem_free(MEM_DEVICE, r->memory[i]);
    }
    gpu_stream_destroy(r->stream);
    MPI_Comm_free(&r->reference);
}

static bool goes_straight(const what_t *w)
{
    int longest = w->count;
    bool able = false;
    switch (w->coll) {
    case allgatherv_number:
    case reduce_scatter_number:
        for (int r = 0; r < ranks; r++) {
            longest = w->counts[r] > longest ? w->counts[r] : longest;
        }
        able = allgatherv_number == w->coll || !w->in_place;
        break;
    case allreduce_number:
    case bcast_number:
    case allgather_number:
        able = true;
        break;
    case alltoall_number:
    case reduce_scatter_block_number:
        able = !w->in_place; /* else ranks would overwrite what others have still to get */
        break;
    default:
        break;
    }
    return able && ranks > 1 && (size_t) longest * sizeof(int) >= STRAIGHT_MIN;
}

/* Where the buffers of slot i are: in which regions all ranks know, where there is each rank's own. */
static void place_slot(registered_t *r, int i, uint32_t *state, uint32_t *own)
{
    const uint32_t regions = next_random(state);
    slot_t *s = &r->slot[i];
    s->gpu_in = r->memory[regions % 2] + WORDS_BEFORE + rank + (size_t) i * ROOM + next_random(own) % SHIFT_MAX;
    s->gpu_out = r->memory[1 - regions % 2] + WORDS_BEFORE + rank + (size_t) i * ROOM + next_random(own) % SHIFT_MAX;
    if (0 == regions / 2 % 4 && s->what.count < COUNT_MAX) { /* both in one */
        s->gpu_out = s->gpu_in + WORDS_MAX / 2;
    }
}

/* Queues a call, and whether it goes straight is as it should be. */
static void queue_counted(slot_t *s, void *stream, bool straight)
{
    const char *name = name_of(s->what.coll);
    const unsigned long long before = mpit_count(name, "zero_copy");
    slot_queue(s, stream);
    say(straight == (0 != mpit_count(name, "zero_copy") - before), straight ? "straight" : "not straight");
}

static void make_registered(registered_t *r, int i, uint32_t *state, uint32_t *own)
{
    r->slot[i].what = make_what(state, r->comm);
    r->slot[i].again = false;
    place_slot(r, i, state, own);
    slot_fill(&r->slot[i], next_random(state));
}

static void run_registered(registered_t *r, uint32_t *state, uint32_t *own, bool straight)
{
    for (int i = 0; i < SLOTS; i++) {
        make_registered(r, i, state, own);
        queue_counted(&r->slot[i], r->stream, straight && goes_straight(&r->slot[i].what));
    }
    gpu_stream_synchronize(r->stream);
    for (int i = 0; i < SLOTS; i++) {
        slot_compare(&r->slot[i], r->reference);
    }
}

/* Calls of a graph go straight each time; odd ranks queue them. */
static void run_registered_graph(registered_t *r, uint32_t *state, uint32_t *own, bool straight)
{
    const bool eager = 1 == rank % 2;
    void *graph = NULL;
    for (int i = 0; i < GRAPH_CALLS; i++) {
        make_registered(r, i, state, own);
    }
    if (!eager) {
        gpu_capture_begin(r->stream);
        for (int i = 0; i < GRAPH_CALLS; i++) {
            queue_counted(&r->slot[i], r->stream, straight && goes_straight(&r->slot[i].what));
        }
        graph = gpu_capture_end(r->stream);
    }
    for (int l = 0; l < 3; l++) {
        if (!eager) {
            say(gpu_graph_launch(graph, r->stream), "a graph is launched");
        }
        for (int i = 0; eager && i < GRAPH_CALLS; i++) {
            slot_queue(&r->slot[i], r->stream);
        }
    }
    gpu_stream_synchronize(r->stream);
    for (int i = 0; i < GRAPH_CALLS; i++) {
        slot_compare(&r->slot[i], r->reference);
    }
    if (!eager) {
        gpu_graph_destroy(graph);
    }
}

/* Beyond what kernels load, in bytes, all of it: others scatter then. */
#define LONG_BYTES (9ul << 20)

static void run_long(MPI_Comm comm)
{
    const size_t words = LONG_BYTES / sizeof(int);
    int *memory = mem_alloc(MEM_DEVICE, LONG_BYTES), *host = malloc(LONG_BYTES), *want = malloc(LONG_BYTES), handle;
    void *stream = gpu_stream_create();
    const unsigned long long before = mpit_count("allreduce", "zero_copy");
    if (NULL == memory || NULL == host || NULL == want) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (size_t i = 0; i < words; i++) {
        host[i] = (int) (i % 1000 * (size_t) (rank + 1));
        want[i] = (int) (i % 1000 * (size_t) (ranks * (ranks + 1) / 2));
    }
    mem_write(memory, host, LONG_BYTES);
    must(gpusym_mem_register(comm, memory, (MPI_Aint) LONG_BYTES, &handle), "gpusym_mem_register");
    must(gpusym_allreduce_on_stream(MPI_IN_PLACE, memory, (int) words, MPI_INT, MPI_SUM, comm, stream), "a long call");
    gpu_stream_synchronize(stream);
    mem_read(host, memory, LONG_BYTES);
    say(0 == memcmp(host, want, LONG_BYTES), "a long call in place");
    say((ranks > 1) == (0 != mpit_count("allreduce", "zero_copy") - before), "a long call straight");
    must(gpusym_mem_deregister(comm, handle), "gpusym_mem_deregister");
    mem_free(MEM_DEVICE, memory);
    gpu_stream_destroy(stream);
    free(host);
    free(want);
}

/* A rank has registered nothing, or less than any call needs: all ranks know, and no call goes straight. */
static void run_with_poor_rank(registered_t *r, uint32_t *state, uint32_t *own)
{
    const size_t words[] = {0, STRAIGHT_MIN / sizeof(int) - 1};
    for (int i = 0; i < 2; i++) {
        r->poor = ranks - 1;
        r->poor_words = words[i];
        for (int g = 0; g < REGIONS; g++) {
            must(gpusym_mem_deregister(r->comm, r->handle[g]), "gpusym_mem_deregister");
            register_region(r, g);
        }
        run_registered(r, state, own, false);
        run_registered_graph(r, state, own, false);
    }
}

static void registered_memory(uint32_t seed)
{
    registered_t r;
    uint32_t state = seed, own = seed + 7u * (uint32_t) rank;
    registered_open(&r);
    for (int i = 0; i < ROUNDS; i++) {
        run_registered(&r, &state, &own, true);
        run_registered_graph(&r, &state, &own, true);
        for (int g = 0; g < REGIONS; g++) {
            must(gpusym_mem_deregister(r.comm, r.handle[g]), "gpusym_mem_deregister");
        }
        run_registered(&r, &state, &own, false);
        for (int g = 0; g < REGIONS; g++) {
            const int old = r.handle[g];
            register_region(&r, g);
            say(1 == ranks || old != r.handle[g], "a handle is not used again");
        }
    }
    run_long(r.comm);
    run_registered(&r, &state, &own, true);
    run_with_poor_rank(&r, &state, &own);
    registered_close(&r);
}

/* The buffers of rank 0 are not registered, or elsewhere: all ranks find out. */
static void registered_elsewhere(bool nowhere)
{
    registered_t r;
    int error, who;
    if (1 == ranks) {
        return;
    }
    registered_open(&r);
    slot_t *s = &r.slot[0];
    s->what = (what_t){.coll = allreduce_number, .count = COUNT_MAX, .op = MPI_SUM, .comm = r.comm};
    s->again = false;
    s->gpu_in = r.memory[0] + WORDS_BEFORE + RANKS_MAX;
    s->gpu_out = r.memory[1] + WORDS_BEFORE + RANKS_MAX;
    if (0 == rank) {
        s->gpu_in = nowhere ? s->own_in : s->gpu_out + ROOM;
    }
    slot_fill(s, 3);
    slot_queue(s, r.stream);
    gpu_stream_synchronize(r.stream);
    must(gpusym_stream_error(r.comm, &error, &who), "gpusym_stream_error");
    say(MPI_SUCCESS != error && who >= 0 && who != rank, "other memory is found");
    expect_error(gpusym_bcast_on_stream(s->own_out, 8, MPI_INT, 0, r.comm, r.stream), MPI_ERR_OTHER, "has failed",
                 "later calls fail");
    expect_error(gpusym_mem_register(r.comm, r.memory[0], 64, &r.handle[0]), MPI_ERR_UNSUPPORTED_OPERATION,
                 "has failed", "nothing is registered behind a failure");
    registered_close(&r);
}

/* The last rank's memory is none that can be registered: an error on all ranks that names it. */
static void register_wrong(MPI_Comm comm, int kind, const char *words)
{
    char name[32];
    int handle, *wrong = mem_alloc(kind, 4096), *right = mem_alloc(MEM_DEVICE, 4096);
    snprintf(name, sizeof name, "rank %d", ranks - 1);
    int rv = gpusym_mem_register(comm, ranks - 1 == rank ? wrong : right, 4096, &handle);
    expect_error(rv, MPI_ERR_UNSUPPORTED_OPERATION, name, "the rank is named");
    expect_error(rv, MPI_ERR_UNSUPPORTED_OPERATION, words, mem_name(kind));
    mem_free(kind, wrong);
    mem_free(MEM_DEVICE, right);
}

static void registered_wrongly(void)
{
    MPI_Comm comm;
    int handle[REGISTERED_MAX + 1], *gpu = mem_alloc(MEM_DEVICE, 4096);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    expect_error(gpusym_mem_register(comm, gpu, -1, &handle[0]), MPI_ERR_ARG, "", "less than nothing");
    expect_error(gpusym_mem_register(comm, NULL, 8, &handle[0]), MPI_ERR_ARG, "", "no memory");
    expect_error(gpusym_mem_register(comm, gpu, 8, NULL), MPI_ERR_ARG, "", "no handle");
    expect_error(gpusym_mem_deregister(comm, 1), MPI_ERR_ARG, "handle", "nothing is registered");
    if (ranks > 1) {
        register_wrong(comm, MEM_HOST, "not GPU memory");
        register_wrong(comm, MEM_REGISTERED, "not GPU memory");
        if (mem_have(MEM_ASYNC)) {
            register_wrong(comm, MEM_ASYNC, "cudaMallocAsync");
        }
        for (int i = 0; i < REGISTERED_MAX; i++) { /* some ranks have nothing there */
            must(gpusym_mem_register(comm, gpu, i % ranks == rank ? 0 : 4096, &handle[i]), "gpusym_mem_register");
        }
        expect_error(gpusym_mem_register(comm, gpu, 8, &handle[REGISTERED_MAX]), MPI_ERR_NO_MEM, "at most 16",
                     "too many registrations");
        must(gpusym_mem_deregister(comm, handle[3]), "gpusym_mem_deregister");
        expect_error(gpusym_mem_deregister(comm, handle[3]), MPI_ERR_ARG, "handle", "deregistered twice");
        must(gpusym_mem_register(comm, NULL, 0, &handle[3]), "nothing on all ranks");
    }
    MPI_Comm_free(&comm);
    mem_free(MEM_DEVICE, gpu);
}

/* ---- persistent requests ---- */

enum { ENDS = 5 };

typedef struct {
    MPI_Comm comm, reference;
    void *stream[STREAMS];
    slot_t slot[SLOTS];
    MPI_Request request[SLOTS];
} requests_t;

static void requests_open(requests_t *q, uint32_t *state)
{
    MPI_Comm_dup(MPI_COMM_WORLD, &q->comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &q->reference);
    MPI_Comm_set_errhandler(q->comm, MPI_ERRORS_RETURN);
    for (int s = 0; s < STREAMS; s++) {
        q->stream[s] = gpu_stream_create();
    }
    for (int i = 0; i < SLOTS; i++) {
        slot_open(&q->slot[i]);
        q->slot[i].what = make_what(state, q->comm);
        q->slot[i].again = false;
        must(on_request(&q->slot[i].what, q->slot[i].gpu_in, q->slot[i].gpu_out, &q->request[i]), "a request is made");
    }
}

static void requests_close(requests_t *q)
{
    for (int i = 0; i < SLOTS; i++) {
        MPI_Request_free(&q->request[i]);
        slot_close(&q->slot[i]);
    }
    for (int s = 0; s < STREAMS; s++) {
        gpu_stream_destroy(q->stream[s]);
    }
    MPI_Comm_free(&q->comm);
    MPI_Comm_free(&q->reference);
}

static void start_on(MPI_Request *request, void *stream)
{
    must(gpusym_start_on_stream(request, stream), "gpusym_start_on_stream");
}

static void wait_on(MPI_Request *request, void *stream)
{
    MPI_Status status;
    must(gpusym_wait_on_stream(request, &status, stream), "gpusym_wait_on_stream");
}

/* The captured start and wait of a request, launched some times. */
static void replay_request(slot_t *s, MPI_Request *request, void *stream, int launches)
{
    void *graph;
    gpu_capture_begin(stream);
    slot_upload(s, stream);
    start_on(request, stream);
    wait_on(request, stream);
    slot_download(s, stream);
    graph = gpu_capture_end(stream);
    for (int l = 0; l < launches; l++) {
        say(gpu_graph_launch(graph, stream), "a graph is launched");
    }
    gpu_graph_destroy(graph);
    gpu_stream_synchronize(stream); /* no call is queued while graphs have some */
}

/* One start of a request, and its end: on the same stream, on another one, by MPI_Wait, by MPI_Test; or all on the
 * host. Not all ranks do it in the same way. */
static void run_request(requests_t *q, int i, uint32_t way)
{
    slot_t *s = &q->slot[i];
    void *const first = q->stream[i % STREAMS], *const other = q->stream[(i + 1) % STREAMS];
    MPI_Request *request = &q->request[i];
    int done = 0;
    slot_upload(s, first);
    if (4 == way) {
        gpu_stream_synchronize(first);
        must(MPI_Start(request), "MPI_Start");
    } else {
        start_on(request, first);
    }
    if (way < 2) {
        wait_on(request, 0 == way ? first : other);
    } else if (3 == way) {
        while (!done) {
            must(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        }
    } else {
        must(MPI_Wait(request, MPI_STATUS_IGNORE), "MPI_Wait");
    }
    slot_download(s, 1 == way ? other : first);
}

static void run_requests(requests_t *q, uint32_t *state, uint32_t *own)
{
    const uint32_t odd = next_random(state) | 1;
    for (int i = 0; i < SLOTS; i++) {
        slot_fill(&q->slot[i], next_random(state));
    }
    for (uint32_t n = 0; n < SLOTS; n++) {
        const int i = (int) (odd * n % SLOTS);            /* each of them, in some order */
        const bool host = 0 == next_random(state) % ENDS; /* an ordinary call, so on all ranks */
        run_request(q, i, host ? 4 : next_random(own) % 4);
    }
    for (int s = 0; s < STREAMS; s++) {
        gpu_stream_synchronize(q->stream[s]);
    }
    if (0 == next_random(state) % 2) {
        const int launches = 1 + (int) (next_random(state) % 3);
        const int replayed = (int) (next_random(state) % SLOTS);
        slot_t *s = &q->slot[replayed];
        slot_fill(s, next_random(state));
        if (0 != (rank + replayed) % 2) { /* others queue it without the request */
            for (int l = 0; l < launches; l++) {
                slot_queue(s, q->stream[0]);
            }
            gpu_stream_synchronize(q->stream[0]);
        } else {
            replay_request(s, &q->request[replayed], q->stream[0], launches);
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        slot_compare(&q->slot[i], q->reference);
        q->slot[i].what.comm = q->comm;
    }
}

/* A start does not wait for the other ranks, nor does a wait on another stream. */
static void requests_do_not_wait(requests_t *q)
{
    slot_t *s = &q->slot[0];
    int done = 1, told = 0;
    slot_fill(s, 17);
    for (int turn = 0; turn < 2; turn++) {
        if ((0 == turn) == (0 == rank)) {
            slot_upload(s, q->stream[0]);
            start_on(&q->request[0], q->stream[0]);
            if (0 == turn && ranks > 1) {
                must(MPI_Test(&q->request[0], &done, MPI_STATUS_IGNORE), "MPI_Test");
                say(!done, "a request is not complete before all ranks have started it");
            }
            wait_on(&q->request[0], q->stream[1]);
            must(MPI_Test(&q->request[0], &done, MPI_STATUS_IGNORE), "MPI_Test");
            say(done, "a request that a stream waits for is inactive");
            slot_download(s, q->stream[1]);
        }
        MPI_Bcast(&told, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    gpu_stream_synchronize(q->stream[1]);
    slot_compare(s, q->reference);
    s->what.comm = q->comm;
}

static void expect_refused(int rv, const char *words, const char *what)
{
    expect_error(rv, MPI_ERR_REQUEST, words, what);
}

/* Requests that are none of gpusym's, or not in the state for it. */
static void requests_refused(requests_t *q)
{
    MPI_Request message, host, *mine = &q->request[0];
    int word = 0;
    MPI_Recv_init(&word, 1, MPI_INT, MPI_PROC_NULL, 0, q->comm, &message);
    must(PERSISTENT_INIT(Bcast)(&word, 1, MPI_INT, 0, q->comm, MPI_INFO_NULL, &host), "a request of host memory");
    expect_refused(gpusym_start_on_stream(&message, q->stream[0]), "not a persistent collective", "a message");
    expect_refused(gpusym_wait_on_stream(&message, MPI_STATUS_IGNORE, q->stream[0]), "not a persistent", "a message");
    expect_refused(gpusym_start_on_stream(&host, q->stream[0]), "not a persistent collective", "host memory");
    MPI_Request_free(&message);
    MPI_Request_free(&host);
    expect_refused(gpusym_wait_on_stream(mine, MPI_STATUS_IGNORE, q->stream[0]), "not been started", "inactive");
    start_on(mine, q->stream[0]);
    expect_refused(gpusym_start_on_stream(mine, q->stream[0]), "active", "started twice");
    wait_on(mine, q->stream[0]);
    expect_refused(gpusym_wait_on_stream(mine, MPI_STATUS_IGNORE, q->stream[0]), "waited for", "waited for twice");
    gpu_stream_synchronize(q->stream[0]);
    must(MPI_Start(mine), "MPI_Start");
    expect_refused(gpusym_start_on_stream(mine, q->stream[0]), "active", "started on the host");
    expect_refused(gpusym_wait_on_stream(mine, MPI_STATUS_IGNORE, q->stream[0]), "not been started", "on the host");
    must(MPI_Wait(mine, MPI_STATUS_IGNORE), "MPI_Wait");
}

/* A captured start is waited for in its capture; MPI_Wait says so. What is captured is not launched. */
static void requests_captured(requests_t *q)
{
    const int no = MPI_ERR_UNSUPPORTED_OPERATION;
    slot_t *s = &q->slot[0];
    MPI_Request *mine = &q->request[0], fresh;
    start_on(mine, q->stream[0]);
    gpu_capture_begin(q->stream[1]);
    expect_error(gpusym_wait_on_stream(mine, MPI_STATUS_IGNORE, q->stream[1]), no, "in a capture", "a wait in a graph");
    gpu_graph_destroy(gpu_capture_end(q->stream[1]));
    wait_on(mine, q->stream[1]);
    gpu_stream_synchronize(q->stream[1]);
    must(on_request(&s->what, s->gpu_in, s->gpu_out, &fresh), "a request is made");
    gpu_capture_begin(q->stream[0]);
    start_on(mine, q->stream[0]);
    expect_error(gpusym_wait_on_stream(mine, MPI_STATUS_IGNORE, q->stream[1]), no, "the same capture",
                 "another stream waits for a graph");
    wait_on(mine, q->stream[0]);
    start_on(&fresh, q->stream[0]);
    expect_refused(MPI_Wait(&fresh, MPI_STATUS_IGNORE), "", "MPI_Wait for a graph");
    gpu_graph_destroy(gpu_capture_end(q->stream[0]));
    must(MPI_Wait(mine, MPI_STATUS_IGNORE), "MPI_Wait for an inactive request");
    if (MPI_REQUEST_NULL != fresh) { /* Open MPI has freed it */
        MPI_Request_free(&fresh);
    }
}

/* A request is freed while the stream has its call. */
static void request_freed(requests_t *q)
{
    slot_t *s = &q->slot[0];
    MPI_Request fresh;
    slot_fill(s, 19);
    must(on_request(&s->what, s->gpu_in, s->gpu_out, &fresh), "a request is made");
    slot_upload(s, q->stream[0]);
    start_on(&fresh, q->stream[0]);
    wait_on(&fresh, q->stream[1]);
    MPI_Request_free(&fresh);
    slot_download(s, q->stream[1]);
    gpu_stream_synchronize(q->stream[1]);
    slot_compare(s, q->reference);
    s->what.comm = q->comm;
}

/* A collective without kernels for streams is served by gpusym, but not there. */
static void requests_without_kernels(requests_t *q)
{
    int counts[RANKS_MAX], displs[RANKS_MAX];
    MPI_Datatype types[RANKS_MAX];
    slot_t *s = &q->slot[0];
    MPI_Request request;
    for (int r = 0; r < ranks; r++) {
        counts[r] = 1;
        displs[r] = r * (int) sizeof(int);
        types[r] = MPI_INT;
    }
    must(PERSISTENT_INIT(Alltoallw)(s->gpu_in, counts, displs, types, s->gpu_out, counts, displs, types, q->comm,
                                    MPI_INFO_NULL, &request),
         "a request is made");
    expect_error(gpusym_start_on_stream(&request, q->stream[0]), MPI_ERR_UNSUPPORTED_OPERATION, "", "MPI_Alltoallw");
    must(MPI_Start(&request), "MPI_Start");
    must(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    MPI_Request_free(&request);
}

static void persistent_requests(uint32_t seed, int steps)
{
    requests_t q;
    uint32_t state = seed, own = seed + 7u * (uint32_t) rank;
    /* of errors without a communicator, one or the other, by the version of MPI */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    requests_open(&q, &state);
    requests_refused(&q);
    for (int done = 0; done < steps; done += SLOTS) {
        run_requests(&q, &state, &own);
    }
    requests_do_not_wait(&q);
    requests_captured(&q);
    request_freed(&q);
    requests_without_kernels(&q);
    run_requests(&q, &state, &own);
    requests_close(&q);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

/* ---- more elements than an int counts ---- */

/* Byte i of what rank r has. */
static unsigned char large_byte(size_t i, int r)
{
    return (unsigned char) ((i * 2654435761u >> 13) + (size_t) r * 11u);
}

/* Byte i of a result: of rank 0, or (largest) the largest of all. */
static unsigned char large_result(size_t i, bool largest)
{
    unsigned char is = large_byte(i, 0);
    for (int r = 1; r < ranks && largest; r++) {
        is = large_byte(i, r) > is ? large_byte(i, r) : is;
    }
    return is;
}

static void large_counts(void)
{
    const size_t count = (size_t) INT_MAX + 6, part = 1u << 20;
    unsigned char *chunk = malloc(part), *data = mem_alloc(MEM_DEVICE, count);
    void *stream = gpu_stream_create();
    if (NULL == chunk || NULL == data) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int turn = 0; turn < 2; turn++) {
        for (size_t at = 0; at < count; at += part) {
            const size_t n = count - at < part ? count - at : part;
            for (size_t i = 0; i < n; i++) {
                chunk[i] = large_byte(at + i, rank);
            }
            mem_write(data + at, chunk, n);
        }
        must(0 == turn ? gpusym_bcast_on_stream_c(data, (MPI_Count) count, MPI_BYTE, 0, MPI_COMM_WORLD, stream)
                       : gpusym_allreduce_on_stream_c(MPI_IN_PLACE, data, (MPI_Count) count, MPI_UNSIGNED_CHAR, MPI_MAX,
                                                      MPI_COMM_WORLD, stream),
             "large");
        gpu_stream_synchronize(stream);
        size_t wrong = 0;
        for (size_t at = 0; at < count; at += part) {
            const size_t n = count - at < part ? count - at : part;
            mem_read(chunk, data + at, n);
            for (size_t i = 0; i < n; i++) {
                wrong += chunk[i] != large_result(at + i, 0 != turn);
            }
        }
        say(0 == wrong, 0 == turn ? "a large broadcast" : "a large all-reduce");
    }
    gpu_stream_destroy(stream);
    mem_free(MEM_DEVICE, data);
    free(chunk);
}

int main(int argc, char **argv)
{
    long all[2], mine[2];
    bool threaded = false;
    for (int i = 1; i < argc; i++) {
        threaded = threaded || 0 == strcmp(argv[i], "--threads");
    }
    (void) check_init(&argc, &argv, "onstream", threaded ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    const int steps = (int) check_number("--n", 200);
    const uint32_t seed = (uint32_t) check_seed();
    threaded = check_flag("--threads");
    const bool requests = check_flag("--requests"), large = check_flag("--large"), differ = check_flag("--differ");
    check_arguments_end("[--n STEPS] [--seed NUMBER] [--threads | --requests | --large | --differ]");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > RANKS_MAX || 0 != gpu_stream_init()) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (large) {
        large_counts();
    } else if (requests) {
        persistent_requests(seed, steps);
    } else if (differ) {
        for (int how = 0; how < DIFFERENCES; how++) {
            ranks_disagree((differ_t) how);
        }
        nobody_waits(); /* on other communicators all is well */
    } else {
        run_programs(seed, steps, threaded ? THREADS : 1);
    }
    if (threaded) {
        groups_in_threads(seed);
    }
    if (!threaded && !requests && !large && !differ) {
        nobody_waits();
        no_stream_waits_on_the_cpu();
        alone_in_order();
        freed_with_work_queued();
        refused();
        mpit_need("coll_gpusym_zero_copy_min", STRAIGHT_MIN);
        registered_memory(seed);
        registered_elsewhere(true);
        registered_elsewhere(false);
        registered_wrongly();
        mpit_need("coll_gpusym_zero_copy_min", 0);
        nobody_waits(); /* on other communicators all is well */
        groups(seed);   /* last: the graph's communicators do not give back what they have of the heap */
    }
    mine[0] = passed;
    mine[1] = failed;
    MPI_Allreduce(mine, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (0 == rank) {
        printf("onstream: %ld passed, %ld failed\n", all[0], all[1]);
    }
    return check_fini(all[1]);
}
