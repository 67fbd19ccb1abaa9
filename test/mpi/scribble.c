/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank that writes over the memory by which ranks agree (agreement.h), as a program does that writes out of bounds,
 * while a call waits: the call must end, with an error that names the rank, or right; never in a crash or for ever; and
 * other communicators work on. Of the simulator: its memory is the program's.
 *
 *     scribble [--seed N]
 */
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "mca/common/gpusym/agree/agreement.h"
#include "test/mpi/check.h"

enum { SMALL = 1000, LARGE = 1000000, VICTIM = 1, LINES = 64 };

/* What is written over what. */
enum way { ZEROS, ONES, RANDOM, ENTRIES, WORD, KIND, BYTES, FLAGS, VOTE, GO, ABORT, KEYS, PLACES, TURN, TABLE, WAYS };

static const struct {
    const char *name;
    bool error; /* on all ranks; else it may go right too */
    bool large; /* a message that goes by zero copy */
    bool alone; /* the rank itself finds it while it waits; it would write over it, if the others came before */
} ways[WAYS] = {
    [ZEROS] = {"zeros over the line", true, false},
    [ONES] = {"ones over the line", true, false},
    [RANDOM] = {"random bytes over the line", true, false},
    [ENTRIES] = {"zeros over the entries", true, false},
    [WORD] = {"another call's number", true, false},
    [KIND] = {"a kind of buffer that there is not", true, false},
    [BYTES] = {"a length that there is not", true, false},
    [FLAGS] = {"flags that there are not", true, false},
    [VOTE] = {"a vote of a call to come", true, false, true},
    [GO] = {"the go of a call to come", true, false, true},
    [ABORT] = {"an abort of another value", true, false, true},
    [KEYS] = {"another buffer's key", true, true},
    [PLACES] = {"another place in the buffer", true, true},
    [TURN] = {"the turn of nobody", false, false},
    [TABLE] = {"random bytes over the table of buffers", false, true},
};

static struct {
    enum way way;
    gpusym_line_t *line;
    uint64_t seq;    /* of the call that waits */
    uint64_t x;      /* random */
    unsigned seen;   /* so often it has been found posted */
    unsigned rounds; /* so often it is to scribble */
    unsigned *done;  /* so often it has; of all ranks, atomic */
} it;

static int rank, nranks;
static check_t t;

static uint64_t next_random(void)
{
    return it.x = ref_mix(it.x);
}

static uint64_t *turn(void)
{
    return (uint64_t *) (void *) ((char *) gpusym_pages_area(GPUSYM_AREA_REG) - 4096 +
                                  24); /* magic, nonce, nonce, turn */
}

static void fill_random(void *p, size_t size)
{
    unsigned char *bytes = p;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char) next_random();
    }
}

static void scribble(void)
{
    gpusym_entry_t *e = &it.line->entry[it.seq % GPUSYM_AGREEMENT_HISTORY];
    switch (it.way) {
    case ZEROS:
        memset(it.line, 0, sizeof *it.line);
        break;
    case ONES:
        memset(it.line, 0xff, sizeof *it.line);
        break;
    case RANDOM:
        fill_random(it.line, sizeof *it.line);
        break;
    case ENTRIES:
        memset(it.line->entry, 0, sizeof it.line->entry);
        break;
    case WORD:
        e->word ^= 7ull << 48;
        break;
    case KIND:
        e->word |= 0xffull << 40;
        break;
    case BYTES:
        e->bytes = next_random() | 1ull << 60;
        break;
    case FLAGS:
        e->flags |= 1u << 30;
        break;
    case VOTE:
        it.line->vote[e - it.line->entry] = next_random() | 1ull << 60;
        break;
    case GO:
        it.line->go = next_random() | 1ull << 60;
        break;
    case ABORT:
        it.line->abort = 0xdead;
        break;
    case KEYS:
        e->in_key ^= (uint32_t) next_random() | 1;
        e->out_key ^= (uint32_t) next_random() | 1;
        break;
    case PLACES:
        e->in_off ^= next_random() | 1;
        e->out_off ^= next_random() | 1;
        break;
    case TURN:
        *turn() = next_random() | 1;
        break;
    default:
        fill_random(gpusym_pages_area(GPUSYM_AREA_REG), GPUSYM_AREA_REG_LAST + 1 - GPUSYM_AREA_REG);
        break;
    }
}

/* The others come to the call. */
static void let_others_come(void)
{
    __atomic_store_n(it.done, it.rounds, __ATOMIC_RELEASE);
}

static void scribble_now(void)
{
    scribble();
    if (!ways[it.way].alone) {
        let_others_come();
    }
}

/* After so much of this process's own time. */
static void look_later(void)
{
    const struct itimerval timer = {.it_value = {.tv_usec = 4000}};
    setitimer(ITIMER_PROF, &timer, NULL);
}

/* Once this rank has posted its call, and has waited for the others for a while. */
static void scribble_at_alarm(int number)
{
    const gpusym_entry_t *e = &it.line->entry[it.seq % GPUSYM_AGREEMENT_HISTORY];
    (void) number;
    it.seen += it.seq == __atomic_load_n(&e->word, __ATOMIC_ACQUIRE) >> 48;
    if (it.seen > 2) {
        scribble_now();
    } else {
        look_later();
    }
}

/* The line of the communicator that had its first call last. */
static gpusym_line_t *newest_line(void)
{
    gpusym_line_t *first = (gpusym_line_t *) (void *) ((char *) gpusym_pages_area(GPUSYM_AREA_REG) +
                                                       (size_t) GPUSYM_AREAS_BYTES),
                  *newest = first;
    for (unsigned i = 1; i < LINES; i++) {
        newest = first[i].end.generation > newest->end.generation ? &first[i] : newest;
    }
    return newest;
}

/* ---- what we say, read back ---- */

static int saved_stderr;
static FILE *said;

static void listen(void)
{
    said = tmpfile();
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    if (NULL == said || saved_stderr < 0 || dup2(fileno(said), STDERR_FILENO) < 0) {
        perror("scribble: stderr");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

/* 2: that memory of the victim was overwritten; 1: that another rank gave up; 0: neither. Passes it all on. */
static int heard(void)
{
    static char text[1 << 16];
    char expected[80];
    fflush(stderr);
    rewind(said);
    text[fread(text, 1, sizeof text - 1, said)] = '\0';
    fclose(said);
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    fputs(text, stderr);
    snprintf(expected, sizeof expected, "memory by which rank %d and its peers agree", VICTIM);
    return NULL != strstr(text, expected) ? 2 : NULL != strstr(text, "has aborted the collective") ? 1 : 0;
}

/* ---- calls ---- */

/* They come to a spoiled call once that is done. */
static void wait_for_victim(void)
{
    while (__atomic_load_n(it.done, __ATOMIC_ACQUIRE) < it.rounds) {
        usleep(1000);
    }
}

/* MPI's error code; *right: whether the result is, untouched where that is not success. */
static int call(MPI_Comm comm, int count, bool blocking, bool spoil, int *host, int *in, int *out, bool *right)
{
    MPI_Request request;
    int rc;
    for (int i = 0; i < count; i++) {
        host[i] = rank + i;
    }
    mem_write(in, host, (size_t) count * sizeof *host);
    MPI_Barrier(MPI_COMM_WORLD);
    it.rounds += spoil;
    if (spoil && VICTIM != rank) {
        wait_for_victim();
    }
    if (spoil && VICTIM == rank && blocking) {
        signal(SIGPROF, scribble_at_alarm);
        it.seen = 0;
        look_later();
    }
    if (blocking) {
        rc = MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
    } else {
        rc = MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, comm, &request);
        if (MPI_SUCCESS == rc && spoil && VICTIM == rank) {
            scribble_now();
        }
        rc = MPI_SUCCESS == rc ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
    }
    if (spoil && VICTIM == rank) {
        let_others_come();
    }
    mem_read(host, out, (size_t) count * sizeof *host);
    *right = MPI_SUCCESS == rc;
    for (int i = 0; i < count; i++) {
        *right = *right && host[i] == nranks * i + nranks * (nranks - 1) / 2;
    }
    return rc;
}

static void expect(bool good, const char *way, bool blocking, const char *what)
{
    int mine = good, all;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    t.passed += all;
    t.failed += !all;
    if (!all && 0 == rank) {
        printf("FAILED: %s, %s: %s\n", way, blocking ? "blocking" : "nonblocking", what);
    }
}

/* fresh: a buffer that no peer has mapped yet, for the call that is spoiled. */
static void one(enum way way, bool blocking, int *host, int *in, int *out, int *fresh)
{
    const int count = ways[way].large ? LARGE : SMALL;
    const char *name = ways[way].name;
    int errors, rc, most, ears;
    bool right;
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < 2; i++) {
        rc = call(comm, count, blocking, false, host, in, out, &right);
        expect(MPI_SUCCESS == rc && right, name, blocking, "right before");
    }
    it.way = way;
    it.line = newest_line();
    it.seq = 3;
    listen();
    rc = call(comm, count, blocking, true, host, in, TABLE == way ? fresh : out, &right);
    ears = heard();
    errors = MPI_SUCCESS != rc;
    expect(right || errors, name, blocking, "not wrong");
    expect(!errors || ears > 0, name, blocking, "an error is told");
    MPI_Allreduce(&errors, &most, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(most == nranks || (0 == most && !ways[way].error), name, blocking, "on all ranks");
    MPI_Allreduce(MPI_IN_PLACE, &ears, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    expect(0 == most || 2 == ears, name, blocking, "the rank is named");
    if (0 == rank) {
        printf("%-40s %s: %s\n", name, blocking ? "blocking   " : "nonblocking", 0 == most ? "right" : "an error");
    }
    if (TURN == way && VICTIM == rank) {
        *turn() = 0;
    }
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    int *host, *in, *out, *fresh, unit;
    MPI_Aint bytes;
    MPI_Win window;
    long failed;

    check_init(&argc, &argv, "scribble", MPI_THREAD_SINGLE);
    it.x = check_seed();
    check_arguments_end("[--seed N], on the simulator and at least 2 ranks");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    unsetenv("PMIX_NAMESPACE"); /* without it each rank prints its errors itself, as is expected here */
    check_start(&t, "scribble", MPI_COMM_WORLD);
    MPI_Win_allocate_shared(0 == rank ? (MPI_Aint) sizeof *it.done : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &it.done,
                            &window);
    MPI_Win_shared_query(window, 0, &bytes, &unit, &it.done);
    if (0 == rank) {
        *it.done = 0; /* before the barrier of the first call */
    }
    host = malloc(LARGE * sizeof *host);
    in = mem_alloc(MEM_DEVICE, LARGE * sizeof *in);
    out = mem_alloc(MEM_DEVICE, LARGE * sizeof *out);
    fresh = mem_alloc(MEM_DEVICE, LARGE * sizeof *fresh);
    if (NULL == host || NULL == in || NULL == out || NULL == fresh) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (enum way way = 0; way < WAYS; way++) {
        one(way, true, host, in, out, fresh);
        if (TABLE != way) { /* which is lost for good */
            one(way, false, host, in, out, fresh);
        }
    }
    mem_free(MEM_DEVICE, in);
    mem_free(MEM_DEVICE, out);
    mem_free(MEM_DEVICE, fresh);
    free(host);
    MPI_Win_free(&window);
    failed = check_end(&t);
    check_print("scribble", t.passed, t.failed);
    return check_fini(failed);
}
