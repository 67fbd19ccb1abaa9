/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test, for an Open MPI with fault tolerance (mpirun --with-ft ulfm): ranks that die and communicators that are
 * revoked, with the survivors' communicators behind them.
 *
 *     ulfm [--case death|revoke|planned|slots|dup|wildcard|messages|streams]
 *          [--form blocking|nonblocking|persistent] [--coll allreduce|bcast|alltoall] [--count INTEGERS] [--host]
 *          [--stop LEFT] [--rounds N] [--injected] [--staged] [--silent | --cut HOST] [--lose N]
 *
 * death     the last rank dies; the survivors see that by their next calls, revoke, acknowledge, agree and shrink, and
 *           go on with the communicator that they have made, on which the next one dies, until LEFT are there
 * revoke    rank 0 revokes a communicator in whose collective the other ranks wait, N times
 * planned   before a rank ends the others make a communicator by MPI_Comm_create_group
 * slots     15 communicators have made calls when a rank dies; as many made afterwards have room in a heap of 19 slots
 *           (coll_gpusym_heap_size=4M coll_gpusym_heap_slabs=1)
 * dup       a communicator with a dead rank is duplicated
 * wildcard  a nonblocking receive from any source is pending when a rank dies
 * messages  a rank dies with messages under way, to it and from it; the survivors go on with messages of all lengths
 *           on the communicator that has lost it; not with --host (Open MPI 5.0.7 loses some, without gpusym too)
 * streams   a rank dies whose kernels the others wait for on streams, and a communicator is revoked then
 *
 * --host: buffers in host memory. --injected: the simulator ends the first rank that dies, in the middle of a call.
 * --staged: no call is by kernels. --silent: the last rank is stopped instead, which the others cannot tell from a host
 * that is cut off. --cut: that host of test/mpi/hosts.sh is cut off, where the last ranks are, which live until the
 * others are done. --lose: as many ranks, the last ones, in place of one; with --silent or --cut.
 * Exit status 77: Open MPI has no fault tolerance, or mpirun was not told to use it.
 */
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/gpusym.h"
#include "test/mpi/check.h"
#include "test/mpi/gpu_stream.h"

#ifdef OMPI_HAVE_MPIX_COMM_GET_FAILED

/* MAYBE_EAGER: in bytes; messages up to this length may leave before a receiver has come. */
enum { GOOD_CALLS = 5, CALLS_MAX = 100000, RANKS_MAX = 64, MANY = 15, MAYBE_EAGER = 65536 };
typedef enum { BLOCKING, NONBLOCKING, PERSISTENT } form_t;
typedef enum { ALLREDUCE, BCAST, ALLTOALL } coll_t;

static const char *const form_names[] = {"blocking", "nonblocking", "persistent"};
static const char *const coll_names[] = {"allreduce", "bcast", "alltoall"};

static int world_rank, count;
static long passed, failed;
static form_t form;
static coll_t coll;
static int kind = MEM_DEVICE;
static bool injected, staged, silent;
static const char *cut;        /* a host, which is cut off in place of that; NULL: none */
static int lost = 1;           /* the last ranks, which die, or are silent */
static int stopped[RANKS_MAX]; /* the processes that have been, for them to be silent; 0: none */
/* `count` integers for each rank: the buffers of all calls, and what the CPU sees of them. */
static int *in, *out, *image;

static bool say(bool good, const char *what)
{
    passed += good;
    failed += !good;
    if (!good) {
        fprintf(stderr, "ulfm: FAIL on rank %d: %s\n", world_rank, what);
    }
    return good;
}

static int class_of(int rv)
{
    int class = MPI_SUCCESS;
    if (MPI_SUCCESS != rv) {
        MPI_Error_class(rv, &class);
    }
    return class;
}

/* The error is one of two classes; if not, it is printed. */
static bool say_class(int rv, int one, int other, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    const bool good = class_of(rv) == one || class_of(rv) == other;
    if (!good) {
        MPI_Error_string(rv, text, &length);
        fprintf(stderr, "ulfm: rank %d got %s\n", world_rank, text);
    }
    return say(good, what);
}

static int size_of(MPI_Comm comm)
{
    int n;
    MPI_Comm_size(comm, &n);
    return n;
}

static int rank_in(MPI_Comm comm)
{
    int rank;
    MPI_Comm_rank(comm, &rank);
    return rank;
}

/* The number of an option's value among n names; 0 if it is not given. */
static int choose(const char *option, const char *const *names, int n)
{
    const char *given = check_option(option);
    for (int i = 0; NULL != given && i < n; i++) {
        if (0 == strcmp(given, names[i])) {
            return i;
        }
    }
    if (NULL != given) {
        fprintf(stderr, "ulfm: %s %s is not known\n", option, given);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return 0;
}

/* ---- one collective ---- */

static int value_at(int rank, int round, int i)
{
    return 1000 * rank + 7 * round + i % 100;
}

static void fill(MPI_Comm comm, int round)
{
    const int n = size_of(comm), rank = rank_in(comm);
    for (int i = 0; i < n * count; i++) {
        image[i] = value_at(rank, round, i);
    }
    mem_write(in, image, sizeof *in * (size_t) (n * count));
    memset(image, 0xff, sizeof *image * (size_t) (n * count));
    mem_write(out, image, sizeof *out * (size_t) (n * count));
    if (BCAST == coll && 0 == rank) {
        mem_read(image, in, sizeof *in * (size_t) count);
        mem_write(out, image, sizeof *in * (size_t) count);
    }
}

static int expected(MPI_Comm comm, int round, int i)
{
    const int n = size_of(comm), rank = rank_in(comm);
    int sum = 0;
    switch (coll) {
    case BCAST:
        return value_at(0, round, i);
    case ALLTOALL:
        return value_at(i / count, round, rank * count + i % count);
    default:
        for (int r = 0; r < n; r++) {
            sum += value_at(r, round, i);
        }
        return sum;
    }
}

static bool is_right(MPI_Comm comm, int round)
{
    const int n = ALLTOALL == coll ? size_of(comm) * count : count;
    mem_read(image, out, sizeof *out * (size_t) n);
    for (int i = 0; i < n; i++) {
        if (image[i] != expected(comm, round, i)) {
            return false;
        }
    }
    return true;
}

static int start(MPI_Comm comm, MPI_Request *request)
{
    switch (coll) {
    case BCAST:
        return MPI_Ibcast(out, count, MPI_INT, 0, comm, request);
    case ALLTOALL:
        return MPI_Ialltoall(in, count, MPI_INT, out, count, MPI_INT, comm, request);
    default:
        return MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, comm, request);
    }
}

static int make(MPI_Comm comm, MPI_Request *request)
{
    switch (coll) {
    case BCAST:
        return MPI_Bcast_init(out, count, MPI_INT, 0, comm, MPI_INFO_NULL, request);
    case ALLTOALL:
        return MPI_Alltoall_init(in, count, MPI_INT, out, count, MPI_INT, comm, MPI_INFO_NULL, request);
    default:
        return MPI_Allreduce_init(in, out, count, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, request);
    }
}

static int block(MPI_Comm comm)
{
    switch (coll) {
    case BCAST:
        return MPI_Bcast(out, count, MPI_INT, 0, comm);
    case ALLTOALL:
        return MPI_Alltoall(in, count, MPI_INT, out, count, MPI_INT, comm);
    default:
        return MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
    }
}

/* *request: a persistent one, which is made by the first call. */
static int call(MPI_Comm comm, MPI_Request *request)
{
    int rv;
    switch (form) {
    case NONBLOCKING:
        rv = start(comm, request);
        return MPI_SUCCESS == rv ? MPI_Wait(request, MPI_STATUS_IGNORE) : rv;
    case PERSISTENT:
        rv = MPI_REQUEST_NULL == *request ? make(comm, request) : MPI_SUCCESS;
        rv = MPI_SUCCESS == rv ? MPI_Start(request) : rv;
        return MPI_SUCCESS == rv ? MPI_Wait(request, MPI_STATUS_IGNORE) : rv;
    default:
        return block(comm);
    }
}

static int call_round(MPI_Comm comm, MPI_Request *request, int round, bool *right)
{
    fill(comm, round);
    const int rv = call(comm, request);
    *right = MPI_SUCCESS == rv && is_right(comm, round);
    return rv;
}

/* As many of the calls as succeed, with right results. */
static int good_calls(MPI_Comm comm, MPI_Request *request, int n)
{
    bool right = true;
    int i = 0;
    while (i < n && MPI_SUCCESS == call_round(comm, request, i, &right) && right) {
        i++;
    }
    return i;
}

static unsigned long long native(void)
{
    unsigned long long value = 0;
    return check_counter_of(coll_names[coll], CHECK_NATIVE, &value) ? value : 0;
}

static bool is_gpu(void)
{
    unsigned long long value;
    return MEM_DEVICE == kind && check_counter_of(coll_names[coll], CHECK_NATIVE, &value);
}

/* Calls on a communicator that is to work, by kernels. */
static void use(MPI_Comm comm, const char *what)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const unsigned long long before = native();
    say(GOOD_CALLS == good_calls(comm, &request, GOOD_CALLS), what);
    if (is_gpu() && !staged && size_of(comm) > 1) {
        say(native() == before + GOOD_CALLS, "these calls are native");
    }
    if (MPI_REQUEST_NULL != request) {
        MPI_Request_free(&request);
    }
}

static MPI_Comm duplicate(MPI_Comm comm)
{
    MPI_Comm copy;
    MPI_Comm_dup(comm, &copy);
    MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
    return copy;
}

static void nap(int ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l};
    nanosleep(&t, NULL);
}

/* A file of all hosts, which is there once those that are cut off shall end. */
static const char *end_file(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s.end", getenv("GPUSYM_HOSTS_SWITCH"));
    return path;
}

static void die(void)
{
    while (NULL != cut && 0 != access(end_file(), F_OK)) {
        nap(10);
    }
    kill(getpid(), silent ? SIGSTOP : SIGKILL);
    pause();
}

/* Of the ranks that are to die: one, mostly. */
static bool is_last(MPI_Comm comm)
{
    return rank_in(comm) >= size_of(comm) - lost;
}

/* The first of the last ranks: the others of them have nothing more to receive. */
static void cut_host(MPI_Comm comm)
{
    const int first = size_of(comm) - lost;
    FILE *port;
    for (int i = 1; i < lost && rank_in(comm) == first; i++) {
        MPI_Recv(NULL, 0, MPI_BYTE, first + i, 1, comm, MPI_STATUS_IGNORE);
    }
    if (rank_in(comm) != first) {
        MPI_Send(NULL, 0, MPI_BYTE, first, 1, comm);
    } else if (NULL == (port = fopen(getenv("GPUSYM_HOSTS_SWITCH"), "w")) || fprintf(port, "cut %s\n", cut) < 0 ||
               0 != fclose(port)) {
        fprintf(stderr, "ulfm: GPUSYM_HOSTS_SWITCH is no file\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

/* The last ranks go on when all others are here: one that has its result may be ahead of others that wait for
 * theirs. */
static void tell_last(MPI_Comm comm)
{
    const int first = size_of(comm) - lost;
    for (int i = 0; i < first && is_last(comm); i++) {
        MPI_Recv(NULL, 0, MPI_BYTE, i, 0, comm, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < lost && !is_last(comm); i++) {
        MPI_Send(NULL, 0, MPI_BYTE, first + i, 0, comm);
    }
    if (NULL != cut && is_last(comm)) {
        cut_host(comm);
    }
}

/* ---- a rank dies ---- */

/* Calls until one fails, which it must in a communicator with a dead rank: its error. */
static int call_until_error(MPI_Comm comm, MPI_Request *request)
{
    bool right, lied = false;
    int rv = MPI_SUCCESS, n = 0;
    for (; MPI_SUCCESS == rv && n < CALLS_MAX; n++) {
        rv = call_round(comm, request, n, &right);
        lied = lied || (MPI_SUCCESS == rv && !right);
    }
    say(!lied, "no call succeeds with a wrong result");
    return rv;
}

/* Of an island of which nothing comes, a rank may know one rank so far. */
static void check_acknowledged(MPI_Comm comm)
{
    MPI_Group failed_group;
    int n = 0;
    say(MPI_SUCCESS == MPIX_Comm_failure_ack(comm), "failures are acknowledged");
    say(MPI_SUCCESS == MPIX_Comm_failure_get_acked(comm, &failed_group), "the acknowledged ones are told");
    MPI_Group_size(failed_group, &n);
    say(n > 0 && n <= lost, "no more ranks have failed than were lost");
    MPI_Group_free(&failed_group);
}

/* The survivors' communicator. */
static MPI_Comm recover(MPI_Comm comm, int error)
{
    MPI_Comm shrunken = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    int flag = 1;
    say_class(error, MPIX_ERR_PROC_FAILED, MPIX_ERR_REVOKED, "the call ends with the error of a failed process");
    if (MPIX_ERR_PROC_FAILED == class_of(error)) {
        check_acknowledged(comm);
        const bool blocks = BLOCKING == form;
        form = BLOCKING;
        say_class(call(comm, &request), MPIX_ERR_PROC_FAILED, MPIX_ERR_REVOKED, "and so does the next one");
        form = NONBLOCKING;
        say_class(call(comm, &request), MPIX_ERR_PROC_FAILED, MPIX_ERR_REVOKED, "and so does a nonblocking one");
        form = blocks ? BLOCKING : form;
    }
    say(MPI_SUCCESS == MPIX_Comm_revoke(comm), "the communicator is revoked");
    say_class(block(comm), MPIX_ERR_REVOKED, MPIX_ERR_REVOKED, "calls on it say so");
    say_class(MPIX_Comm_agree(comm, &flag), MPI_SUCCESS, MPIX_ERR_PROC_FAILED, "the survivors agree");
    say(1 == flag, "on what all have said");
    say(MPI_SUCCESS == MPIX_Comm_shrink(comm, &shrunken), "the communicator is shrunken");
    say(size_of(shrunken) == size_of(comm) - lost, "to the survivors");
    MPI_Comm_set_errhandler(shrunken, MPI_ERRORS_RETURN);
    return shrunken;
}

/* The last rank of *comm dies. *comm becomes the survivors' communicator. */
static void lose_last(MPI_Comm *comm, bool by_simulator)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm work = duplicate(*comm), untouched;
    const form_t given = form;
    const bool last = is_last(*comm);

    MPI_Comm_split(*comm, last, 0, &untouched);
    MPI_Comm_set_errhandler(untouched, MPI_ERRORS_RETURN);
    if (!by_simulator) {
        use(untouched, "a communicator without that rank works");
        say(GOOD_CALLS == good_calls(work, &request, GOOD_CALLS), "the communicator works while all live");
    }
    if (silent) {
        const int pid = last ? getpid() : 0;
        MPI_Allgather(&pid, 1, MPI_INT, stopped, 1, MPI_INT, *comm);
    }
    if (!by_simulator) {
        tell_last(*comm);
        if (last) {
            die();
        }
    }
    const int error = call_until_error(work, &request);
    use(untouched, "a communicator without the dead rank goes on");
    MPI_Comm shrunken = recover(work, error);
    form = given;
    use(shrunken, "the shrunken communicator works");
    if (MPI_REQUEST_NULL != request) {
        say(MPI_SUCCESS == MPI_Request_free(&request), "a persistent request of the revoked one is freed");
    }
    MPI_Comm_free(&work);
    MPI_Comm_free(&untouched);
    use(shrunken, "and when the revoked one is freed");
    *comm = shrunken;
}

static void test_death(MPI_Comm *comm)
{
    const int stop = (int) check_number("--stop", 2);
    check_arguments_end("");
    for (bool first = true; size_of(*comm) > stop; first = false) {
        lose_last(comm, first && injected);
    }
    for (int r = 0; r < RANKS_MAX && 0 == rank_in(*comm); r++) { /* mpirun waits for them */
        if (0 != stopped[r]) {
            kill(stopped[r], SIGKILL);
        }
    }
    if (NULL != cut && 0 == rank_in(*comm)) {
        const int fd = open(end_file(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        say(fd >= 0 && 0 == close(fd), "those that are cut off hear that they shall end");
    }
}

/* ---- no rank dies ---- */

static void test_revoke(MPI_Comm *comm)
{
    const int rounds = (int) check_number("--rounds", 3);
    check_arguments_end("");
    for (int round = 0; round < rounds; round++) {
        MPI_Comm work = duplicate(*comm), shrunken;
        MPI_Request request = MPI_REQUEST_NULL, others[4];
        int n = 0, revoked = 0;
        if (round > 0) { /* else it is not set up yet */
            say(GOOD_CALLS == good_calls(work, &request, GOOD_CALLS), "the communicator works");
        }
        if (0 == rank_in(work)) {
            nap(50);
            say(MPI_SUCCESS == MPIX_Comm_revoke(work), "rank 0 revokes it");
        } else {
            for (; NONBLOCKING == form && n < 4; n++) { /* several at once */
                if (MPI_SUCCESS != start(work, &others[n])) {
                    break;
                }
            }
            say_class(call_until_error(work, &request), MPIX_ERR_REVOKED, MPIX_ERR_REVOKED,
                      "a call that waits for rank 0 ends");
            for (int i = 0; i < n; i++) {
                const int rv = MPI_Wait(&others[i], MPI_STATUS_IGNORE);
                say(BCAST == coll || MPIX_ERR_REVOKED == class_of(rv), "and so do those before it");
            }
        }
        say(MPI_SUCCESS == MPIX_Comm_is_revoked(work, &revoked) && 1 == revoked, "the communicator is revoked");
        say_class(block(work), MPIX_ERR_REVOKED, MPIX_ERR_REVOKED, "further calls are refused");
        say(MPI_SUCCESS == MPIX_Comm_shrink(work, &shrunken), "it can be shrunken");
        MPI_Comm_set_errhandler(shrunken, MPI_ERRORS_RETURN);
        say(size_of(shrunken) == size_of(*comm), "to all ranks");
        use(shrunken, "the shrunken communicator works");
        use(*comm, "and so does the one from which the revoked one was made");
        if (MPI_REQUEST_NULL != request) {
            say(MPI_SUCCESS == MPI_Request_free(&request), "a persistent request of the revoked one is freed");
        }
        MPI_Comm_free(&work);
        MPI_Comm_free(&shrunken);
    }
}

/* The last rank's place is given up before the rank ends. */
static MPI_Comm leave_planned(MPI_Comm comm)
{
    MPI_Group all, rest;
    MPI_Comm survivors = MPI_COMM_NULL;
    int last = size_of(comm) - 1;
    MPI_Comm_group(comm, &all);
    MPI_Group_excl(all, 1, &last, &rest);
    if (rank_in(comm) != last) {
        say(MPI_SUCCESS == MPI_Comm_create_group(comm, rest, 17, &survivors), "the others make a communicator");
        MPI_Comm_set_errhandler(survivors, MPI_ERRORS_RETURN);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&rest);
    return survivors;
}

static void test_planned(MPI_Comm *comm)
{
    check_arguments_end("");
    while (size_of(*comm) > 2) {
        use(*comm, "all ranks work");
        tell_last(*comm);
        MPI_Comm survivors = leave_planned(*comm);
        if (MPI_COMM_NULL == survivors) {
            nap(100);
            die();
        }
        use(survivors, "the survivors work");
        nap(300);
        use(survivors, "and when that rank has ended");
        if (MPI_COMM_WORLD != *comm) {
            MPI_Comm_free(comm);
        }
        *comm = survivors;
    }
}

/* ---- room for communicators ---- */

static void test_slots(MPI_Comm *comm)
{
    MPI_Comm many[MANY];
    MPI_Request request = MPI_REQUEST_NULL;
    check_arguments_end("");
    const int n = MANY;
    for (int i = 0; i < n; i++) {
        many[i] = duplicate(*comm);
        use(many[i], "one of many communicators works");
    }
    tell_last(*comm);
    if (is_last(*comm)) {
        die();
    }
    int error = MPI_SUCCESS;
    for (int i = 0; i < n; i++) {
        error = call_until_error(many[i], &request);
        say_class(error, MPIX_ERR_PROC_FAILED, MPIX_ERR_REVOKED, "each ends with the error");
    }
    MPI_Comm shrunken = recover(many[0], error);
    for (int i = 0; i < n; i++) {
        MPI_Comm_free(&many[i]);
    }
    use(shrunken, "the shrunken communicator works");
    for (int i = 0; i < n; i++) {
        many[i] = duplicate(shrunken);
        use(many[i], "there is room for as many");
    }
    for (int i = 0; i < n; i++) {
        MPI_Comm_free(&many[i]);
    }
    *comm = shrunken;
}

/* ---- a communicator with a dead rank, elsewhere ---- */

static void test_dup(MPI_Comm *comm)
{
    MPI_Comm work = duplicate(*comm), copy = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    check_arguments_end("");
    use(work, "the communicator works");
    tell_last(*comm);
    if (is_last(*comm)) {
        die();
    }
    say_class(MPI_Comm_dup(work, &copy), MPIX_ERR_PROC_FAILED, MPIX_ERR_REVOKED, "it cannot be duplicated");
    *comm = recover(work, call_until_error(work, &request));
    use(*comm, "the shrunken communicator works");
    MPI_Comm_free(&work);
}

/* Rank 0's receives, while all others but rank 1, which sends to it, wait for its word. */
static void receive_among_dead(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int flag = 0, go = 1;
    MPI_Irecv(out, count, MPI_INT, MPI_ANY_SOURCE, 3, comm, &request);
    say_class(MPI_Wait(&request, MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED_PENDING, MPIX_ERR_PROC_FAILED_PENDING,
              "a receive from any source is pending");
    say(MPI_REQUEST_NULL != request, "and is still there");
    MPIX_Comm_failure_ack(comm);
    say_class(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), MPI_SUCCESS, MPI_SUCCESS, "once acknowledged");
    say(0 == flag, "it goes on");
    MPI_Send(&go, 1, MPI_INT, 1, 4, comm);
    say_class(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, MPI_SUCCESS, "and receives");
    mem_read(image, out, sizeof *out * (size_t) count);
    say(value_at(1, 1, count - 1) == image[count - 1], "what a survivor has sent");
    say_class(MPI_Recv(out, count, MPI_INT, size_of(comm) - 1, 3, comm, MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED,
              MPIX_ERR_PROC_FAILED, "a receive from the dead rank fails");
    for (int r = 1; r < size_of(comm) - 1; r++) {
        MPI_Send(&go, 1, MPI_INT, r, 5, comm);
    }
    MPI_Irecv(out, count, MPI_INT, 1, 3, comm, &request);
    MPIX_Comm_revoke(comm);
    say_class(MPI_Wait(&request, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED, MPIX_ERR_REVOKED,
              "a receive on a revoked communicator ends");
}

static void test_wildcard(MPI_Comm *comm)
{
    MPI_Comm work = duplicate(*comm);
    MPI_Request request = MPI_REQUEST_NULL;
    int go;
    check_arguments_end("");
    use(work, "the communicator works");
    tell_last(*comm);
    if (is_last(*comm)) {
        nap(200);
        die();
    }
    if (0 == rank_in(work)) {
        receive_among_dead(work);
    } else {
        if (1 == rank_in(work)) {
            fill(work, 1);
            say(MPI_SUCCESS == MPI_Recv(&go, 1, MPI_INT, 0, 4, work, MPI_STATUS_IGNORE), "a survivor receives");
            say(MPI_SUCCESS == MPI_Send(in, count, MPI_INT, 0, 3, work), "and sends");
        }
        say_class(MPI_Recv(&go, 1, MPI_INT, 0, 5, work, MPI_STATUS_IGNORE), MPI_SUCCESS, MPIX_ERR_REVOKED,
                  "the others hear of it");
    }
    *comm = recover(work, call_until_error(work, &request));
    use(*comm, "the shrunken communicator works");
    MPI_Comm_free(&work);
}

/* ---- messages ---- */

/* To the next survivor and from the one before, of each length, on a communicator whose last rank has died. */
static void pass_on(MPI_Comm comm, int round, bool late)
{
    const int n = size_of(comm) - 1, rank = rank_in(comm), from = (rank + n - 1) % n;
    for (int length = 1; length <= count; length = length < 8 ? length + 1 : 3 * length) {
        MPI_Request request;
        fill(comm, round);
        int rv = MPI_Isend(in, length, MPI_INT, (rank + 1) % n, 7, comm, &request);
        nap(late ? 3 : 0); /* a short message that nobody receives is buffered */
        say_class(rv, MPI_SUCCESS, MPI_SUCCESS, "a survivor sends to the next one");
        rv = MPI_Recv(out, length, MPI_INT, from, 7, comm, MPI_STATUS_IGNORE);
        say_class(rv, MPI_SUCCESS, MPI_SUCCESS, "and receives from the one before");
        say_class(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS, MPI_SUCCESS, "what was sent has left");
        mem_read(image, out, sizeof *out * (size_t) length);
        say(value_at(from, round, 0) == image[0] && value_at(from, round, length - 1) == image[length - 1],
            "the data are right");
    }
}

/* The last rank has a message for rank 0, and rank 0 one for it. */
static void lose_partner(MPI_Comm comm)
{
    const int last = size_of(comm) - 1;
    MPI_Request sent = MPI_REQUEST_NULL, received = MPI_REQUEST_NULL;
    int n = 0;
    fill(comm, 1);
    if (last == rank_in(comm)) {
        MPI_Isend(in, count, MPI_INT, 0, 3, comm, &sent);
        tell_last(comm);
        die();
    }
    if (0 == rank_in(comm)) {
        MPI_Isend(in, count, MPI_INT, last, 4, comm, &sent);
        while (0 == n) { /* it is under way */
            MPI_Iprobe(last, 3, comm, &n, MPI_STATUS_IGNORE);
        }
    }
    tell_last(comm);
    if (0 == rank_in(comm)) {
        nap(100);
        int rv = MPI_Irecv(out, count, MPI_INT, last, 3, comm, &received);
        rv = MPI_SUCCESS == rv ? MPI_Wait(&received, MPI_STATUS_IGNORE) : rv;
        mem_read(image, out, sizeof *out * (size_t) count); /* what it had may still be there */
        const bool right = MPI_SUCCESS == rv && value_at(last, 1, count - 1) == image[count - 1];
        say_class(right ? MPIX_ERR_PROC_FAILED : rv, MPIX_ERR_PROC_FAILED, MPIX_ERR_PROC_FAILED,
                  "a message from the dead rank is right, or fails");
        rv = MPI_Wait(&sent, MPI_STATUS_IGNORE);
        const bool left = sizeof *in * (size_t) count <= MAYBE_EAGER; /* between hosts, before the receiver died */
        say_class(rv, MPIX_ERR_PROC_FAILED, left ? MPI_SUCCESS : MPIX_ERR_PROC_FAILED, "so does one to it");
    }
}

static void test_messages(MPI_Comm *comm)
{
    MPI_Comm work = duplicate(*comm);
    int done = 1;
    MPI_Request request = MPI_REQUEST_NULL;
    check_arguments_end("");
    use(work, "the communicator works");
    lose_partner(work);
    const int error = call_until_error(work, &request);
    check_acknowledged(work);
    pass_on(work, 1, false);
    pass_on(work, 2, true);
    say(MPI_SUCCESS == MPIX_Comm_agree(work, &done), "all are done"); /* the first one may revoke then */
    *comm = recover(work, error);
    use(*comm, "the shrunken communicator works");
    MPI_Comm_free(&work);
}

/* ---- streams ---- */

static int queue(MPI_Comm comm, void *stream)
{
    return gpusym_allreduce_on_stream(in, out, count, MPI_INT, MPI_SUM, comm, stream);
}

/* Prepares a communicator, whose calls on the stream then work. */
static MPI_Comm make_streamed(MPI_Comm from, void *stream)
{
    MPI_Comm comm = duplicate(from);
    say(MPI_SUCCESS == gpusym_stream_prepare(comm, MPI_INFO_NULL), "a communicator is prepared for streams");
    for (int i = 0; i < GOOD_CALLS; i++) {
        fill(comm, i);
        const int rv = queue(comm, stream);
        gpu_stream_synchronize(stream);
        say(MPI_SUCCESS == rv && is_right(comm, i), "calls on a stream work");
    }
    return comm;
}

/* A call that is queued waits for a rank until that is known to send nothing; then the stream ends. Others may have
 * revoked the communicator by then. */
static void wait_for_error(MPI_Comm comm, void *stream, int class, const char *what)
{
    int error = queue(comm, stream), rank, waits = 0;
    while (MPI_SUCCESS == error && waits++ < 3000 && MPI_SUCCESS == gpusym_stream_error(comm, &error, &rank)) {
        nap(10);
    }
    say_class(error, class, MPIX_ERR_REVOKED, what);
    gpu_stream_synchronize(stream);
    say_class(queue(comm, stream), class, MPIX_ERR_REVOKED, "and so says the next call");
}

static void test_streams(MPI_Comm *comm)
{
    check_arguments_end("");
    say(0 == gpu_stream_init(), "there are streams");
    void *stream = gpu_stream_create();
    MPI_Comm work = make_streamed(*comm, stream), revoked = make_streamed(*comm, stream);
    if (0 == rank_in(revoked)) {
        nap(100);
        say(MPI_SUCCESS == MPIX_Comm_revoke(revoked), "a communicator is revoked");
        say_class(queue(revoked, stream), MPIX_ERR_REVOKED, MPIX_ERR_REVOKED, "calls on it say so");
    } else {
        wait_for_error(revoked, stream, MPIX_ERR_REVOKED, "calls on a stream end when it is revoked");
    }
    tell_last(*comm);
    if (is_last(*comm)) {
        die();
    }
    wait_for_error(work, stream, MPIX_ERR_PROC_FAILED, "calls on a stream end when a rank has died");
    check_acknowledged(work);
    MPI_Comm shrunken = recover(work, MPIX_ERR_PROC_FAILED), again = make_streamed(shrunken, stream);
    use(again, "ordinary calls work beside them");
    MPI_Comm_free(&again);
    MPI_Comm_free(&work);
    MPI_Comm_free(&revoked);
    *comm = shrunken;
    gpu_stream_destroy(stream);
}

/* ---- */

static bool is_tolerant(void)
{
    int *value, flag = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, (void *) &value, &flag);
    return 0 != flag && 0 != *value;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"death", "revoke",   "planned",  "slots",
                                        "dup",   "wildcard", "messages", "streams"};
    static void (*const tests[])(MPI_Comm *) = {test_death, test_revoke,   test_planned,  test_slots,
                                                test_dup,   test_wildcard, test_messages, test_streams};
    MPI_Comm comm = MPI_COMM_WORLD;
    long sums[2];

    check_init(&argc, &argv, "ulfm", MPI_THREAD_SINGLE);
    world_rank = rank_in(comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (!is_tolerant()) {
        if (0 == world_rank) {
            printf("ulfm: this job is not fault tolerant (mpirun --with-ft ulfm)\n");
        }
        MPI_Finalize();
        return CHECK_SKIPPED;
    }
    form = (form_t) choose("--form", form_names, 3);
    coll = (coll_t) choose("--coll", coll_names, 3);
    void (*const test)(MPI_Comm *) = tests[choose("--case", names, (int) (sizeof(names) / sizeof(names[0])))];
    injected = check_flag("--injected");
    staged = check_flag("--staged");
    silent = check_flag("--silent");
    cut = check_option("--cut");
    lost = (int) check_number("--lose", 1);
    count = (int) check_number("--count", 1000);
    kind = check_flag("--host") || 0 == strcmp("host", mem_device()) ? MEM_HOST : MEM_DEVICE;
    const size_t bytes = sizeof *in * (size_t) (count * size_of(comm));
    in = mem_alloc(kind, bytes);
    out = mem_alloc(kind, bytes);
    image = malloc(bytes);
    if (NULL == in || NULL == out || NULL == image) {
        fprintf(stderr, "ulfm: no memory\n");
        MPI_Abort(comm, 1);
    }
    test(&comm);

    const long mine[] = {passed, failed};
    MPI_Reduce(mine, sums, 2, MPI_LONG, MPI_SUM, 0, comm);
    if (0 == rank_in(comm)) {
        printf("ulfm: %ld passed, %ld failed\n", sums[0], sums[1]);
    }
    if (MPI_COMM_WORLD != comm) {
        MPI_Comm_free(&comm);
    }
    mem_free(kind, in);
    mem_free(kind, out);
    free(image);
    mem_fini();
    MPI_Finalize();
    return failed > 0;
}

#else

int main(int argc, char **argv)
{
    check_init(&argc, &argv, "ulfm", MPI_THREAD_SINGLE);
    printf("ulfm: this Open MPI has no fault tolerance\n");
    mem_fini();
    MPI_Finalize();
    return CHECK_SKIPPED;
}

#endif
