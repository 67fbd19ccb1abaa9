/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: what one-sided calls on GPU memory say that wait for long, with a short coll_gpusym_warn. The last rank
 * is late: it does what the others wait for once they have said so. With --hosts the ranks are on several hosts; with
 * --silent coll_gpusym_warn is 0, and nothing is said.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "test/mpi/check.h"

#define USAGE "[--hosts] [--silent]"
#define COUNT 1000
#define LIMIT_S 60 /* by then a rank that waits has said so */
#define SILENT_MS 500

typedef struct {
    int rank, ranks, late;
    long passed, failed;
    bool hosts, silent;
    int *part;
    MPI_Win win;
    MPI_Group others, last; /* all but the late rank; that one */
    char file[64];          /* where all ranks' errors go */
    int was;                /* standard error */
} awaited_t;

static void check(awaited_t *a, bool good, const char *what)
{
    if (!good) {
        dprintf(a->was, "awaited: FAIL on rank %d: %s\n", a->rank, what);
    }
    a->passed += good;
    a->failed += !good;
}

static void nap(long ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* What has been said so far. */
static const char *said(const awaited_t *a)
{
    static char text[65536];
    const int fd = open(a->file, O_RDONLY);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* Whether a line says that somebody waits for `whom` to do `what`. On one host it has the process. */
static bool is_said(const awaited_t *a, const char *whom, const char *what)
{
    for (const char *line = strstr(said(a), whom); NULL != line; line = strstr(line + 1, whom)) {
        const char *does = line + strlen(whom);
        if (0 == strncmp(does, " (pid ", 6)) {
            does = strchr(does, ')') + 1;
        }
        if (0 == strncmp(does, " to ", 4) && 0 == strncmp(does + 4, what, strlen(what))) {
            return true;
        }
    }
    return false;
}

/* Waits until others have said it. */
static void await_words(awaited_t *a, const char *whom, const char *what)
{
    if (a->silent) {
        nap(SILENT_MS);
        return;
    }
    for (int i = 0; i < LIMIT_S * 100 && !is_said(a, whom, what); i++) {
        nap(10);
    }
    check(a, is_said(a, whom, what), what);
}

/* The late rank waits until others have said that they wait for it. */
static void be_awaited(awaited_t *a, const char *what)
{
    char whom[32];
    snprintf(whom, sizeof whom, " s for rank %d", a->late);
    await_words(a, whom, what);
}

static bool begin(awaited_t *a)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return a->rank == a->late;
}

/* Of those that wait in a fence one says it. Over hosts they do not know for whom. */
static void fence(awaited_t *a)
{
    if (begin(a)) {
        if (a->hosts) {
            await_words(a, " s for other ranks", "call MPI_Win_fence or MPI_Win_free. ");
        } else {
            be_awaited(a, "call MPI_Win_fence or MPI_Win_free. ");
        }
    }
    check(a, MPI_SUCCESS == MPI_Win_fence(0, a->win), "MPI_Win_fence");
    check(a, a->hosts || NULL == strstr(said(a), "gpusym: rank 1 of a window"), "the lowest rank alone says it");
}

static void start(awaited_t *a)
{
    if (begin(a)) {
        be_awaited(a, "call MPI_Win_post. ");
        check(a, MPI_SUCCESS == MPI_Win_post(a->others, 0, a->win), "MPI_Win_post");
        check(a, MPI_SUCCESS == MPI_Win_wait(a->win), "MPI_Win_wait");
    } else {
        check(a, MPI_SUCCESS == MPI_Win_start(a->last, 0, a->win), "MPI_Win_start");
        check(a, MPI_SUCCESS == MPI_Win_complete(a->win), "MPI_Win_complete");
    }
}

static void complete(awaited_t *a)
{
    if (begin(a)) {
        check(a, MPI_SUCCESS == MPI_Win_start(a->others, 0, a->win), "MPI_Win_start");
        be_awaited(a, "call MPI_Win_complete. ");
        check(a, MPI_SUCCESS == MPI_Win_complete(a->win), "MPI_Win_complete");
    } else {
        check(a, MPI_SUCCESS == MPI_Win_post(a->last, 0, a->win), "MPI_Win_post");
        check(a, MPI_SUCCESS == MPI_Win_wait(a->win), "MPI_Win_wait");
    }
}

/* The late rank holds the lock of rank 0, which all others want. */
static void lock(awaited_t *a)
{
    const bool late = a->rank == a->late;
    if (late) {
        check(a, MPI_SUCCESS == MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, a->win), "MPI_Win_lock");
    }
    (void) begin(a);
    if (late) {
        be_awaited(a, "release the lock of rank 0. ");
    } else {
        check(a, MPI_SUCCESS == MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, a->win), "MPI_Win_lock that waits");
    }
    check(a, MPI_SUCCESS == MPI_Win_unlock(0, a->win), "MPI_Win_unlock");
}

/* The late rank makes no MPI calls, by which it would serve ranks of other hosts. */
static void answer(awaited_t *a)
{
    int got = -1;
    const bool late = begin(a);
    if (late) {
        be_awaited(a, "answer, ");
    } else {
        check(a, MPI_SUCCESS == MPI_Win_lock(MPI_LOCK_SHARED, a->late, 0, a->win), "MPI_Win_lock of a rank outside");
        check(a, MPI_SUCCESS == MPI_Get(&got, 1, MPI_INT, a->late, 7, 1, MPI_INT, a->win), "MPI_Get");
        check(a, MPI_SUCCESS == MPI_Win_unlock(a->late, a->win), "MPI_Win_unlock");
        check(a, 7 + a->late == got, "what MPI_Get has got");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void open_window(awaited_t *a)
{
    int image[COUNT];
    MPI_Group all;
    a->part = mem_alloc(MEM_DEVICE, sizeof image);
    if (NULL == a->part) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    for (int i = 0; i < COUNT; i++) {
        image[i] = i + a->rank;
    }
    mem_write(a->part, image, sizeof image);
    MPI_Win_create(a->part, sizeof image, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &a->win);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &a->late, &a->last);
    MPI_Group_excl(all, 1, &a->late, &a->others);
    MPI_Group_free(&all);
}

static void close_window(awaited_t *a)
{
    MPI_Group_free(&a->last);
    MPI_Group_free(&a->others);
    MPI_Win_free(&a->win);
    mem_free(MEM_DEVICE, a->part);
}

/* Standard error of all ranks goes to one file, at the end of which each line is written. */
static void redirect(awaited_t *a)
{
    snprintf(a->file, sizeof a->file, "/tmp/gpusym-awaited-XXXXXX");
    if (0 == a->rank) {
        close(mkstemp(a->file));
    }
    MPI_Bcast(a->file, sizeof a->file, MPI_CHAR, 0, MPI_COMM_WORLD);
    a->was = dup(STDERR_FILENO);
    const int fd = open(a->file, O_WRONLY | O_APPEND);
    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) {
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
    close(fd);
}

static void restore(awaited_t *a)
{
    MPI_Barrier(MPI_COMM_WORLD);
    dup2(a->was, STDERR_FILENO);
    if (0 == a->rank) {
        check(a, !a->silent || NULL == strstr(said(a), "has waited"), "nothing is said");
        fputs(said(a), stderr);
        unlink(a->file);
    }
}

int main(int argc, char **argv)
{
    static awaited_t a;

    check_init(&argc, &argv, "awaited", MPI_THREAD_SINGLE);
    a.hosts = check_flag("--hosts");
    a.silent = check_flag("--silent");
    check_arguments_end(USAGE);
    MPI_Comm_rank(MPI_COMM_WORLD, &a.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &a.ranks);
    a.late = a.ranks - 1;
    open_window(&a);
    redirect(&a);
    fence(&a);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, a.win);
    start(&a);
    complete(&a);
    lock(&a);
    if (a.hosts) {
        answer(&a);
    }
    restore(&a);
    close_window(&a);
    long all[2], mine[] = {a.passed, a.failed};
    MPI_Allreduce(mine, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    check_print("awaited", all[0], all[1]);
    return check_fini(all[1]);
}
