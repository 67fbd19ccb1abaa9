/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: one-sided calls on windows of GPU memory, created, allocated, shared, dynamic, and created with host
 * memory on some ranks: each call, each kind of epoch, all results compared, and errors by their class. With --hosts
 * the ranks are on several hosts, so that no window is shared. With --unshared the ranks do not reach each other's GPU:
 * shared windows have host memory.
 *
 * With --kill a rank dies, and the others' calls end with an error; to be run below test/outlive.sh. holder: rank 1,
 * with rank 0's lock; waiter: the last one, which waits for that lock; accumulator: rank 1, in an accumulate to rank 0,
 * by a fault of the simulator.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* process_vm_readv */
#endif
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "test/mpi/check.h"

#define USAGE "[--kill holder|waiter|accumulator] [--hosts] [--unshared]"
#define ROOM 4096 /* ints of a rank's part */
#define BYTES (ROOM * sizeof(int))

enum sort { CREATED, ALLOCATED, MIXED, SHARED, APART, SORTS, DYNAMIC = SORTS };
static const char *const names[] = {"created", "allocated",           "allocated, host memory on odd ranks",
                                    "shared",  "shared, not in line", "dynamic"};

typedef struct {
    check_t *t;
    MPI_Win win;
    int *part;        /* this rank's */
    int *gpu, *other; /* origins in GPU memory */
    int sort, left, right;
    bool hosts; /* the ranks are on several */
} test_t;

static long wrong; /* checks, since the last stage */

static void check(const test_t *s, bool right, const char *what)
{
    if (!right) {
        fprintf(stderr, "rank %d: %s, window %s\n", s->t->rank, what, names[s->sort]);
        wrong++;
    }
}

static void stage(const test_t *s, void (*run)(const test_t *s))
{
    wrong = 0;
    run(s);
    check_result(s->t, 0 == wrong);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void expect_class(const test_t *s, int rc, int want, const char *what)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(rc, &class);
    if (class != want) {
        fprintf(stderr, "rank %d: error class %d, not %d\n", s->t->rank, class, want);
    }
    check(s, class == want, what);
}

/* ---- values ---- */

static int value(int rank, int i)
{
    return 100000 * (rank + 1) + i;
}

static void fill(int *p, int rank, int n)
{
    int *image = malloc((size_t) n * sizeof(int));
    for (int i = 0; i < n; i++) {
        image[i] = value(rank, i);
    }
    mem_write(p, image, (size_t) n * sizeof(int));
    free(image);
}

/* Whether n ints at p are those of a rank, from its first on. */
static bool holds(const int *p, int rank, int n)
{
    int *image = malloc((size_t) n * sizeof(int));
    bool same = true;
    mem_read(image, p, (size_t) n * sizeof(int));
    for (int i = 0; i < n; i++) {
        same = same && value(rank, i) == image[i];
    }
    free(image);
    return same;
}

static int read_int(const int *p)
{
    int v;
    mem_read(&v, p, sizeof v);
    return v;
}

static void write_int(int *p, int v)
{
    mem_write(p, &v, sizeof v);
}

/* ---- windows ---- */

static void open_window(test_t *s, int sort, const char *key, const char *val)
{
    MPI_Info info;
    const bool host = MIXED == sort && 1 == s->t->rank % 2;

    s->sort = sort;
    MPI_Info_create(&info);
    if (NULL != key) {
        MPI_Info_set(info, key, val);
    }
    if (CREATED == sort) {
        s->part = mem_alloc(MEM_DEVICE, BYTES);
        MPI_Win_create(s->part, BYTES, sizeof(int), info, MPI_COMM_WORLD, &s->win);
    } else {
        if (!host) {
            MPI_Info_set(info, "mpool_hints", "mpool=gpusym");
        }
        if (APART == sort) {
            MPI_Info_set(info, "alloc_shared_noncontig", "true");
        }
        (SHARED == sort || APART == sort ? MPI_Win_allocate_shared : MPI_Win_allocate)(
            BYTES, sizeof(int), info, MPI_COMM_WORLD, &s->part, &s->win);
    }
    MPI_Info_free(&info);
    MPI_Win_set_errhandler(s->win, MPI_ERRORS_RETURN);
    check(s, host == mem_plain(s->part), "the kind of the memory");
}

static void close_window(test_t *s)
{
    check(s, MPI_SUCCESS == MPI_Win_free(&s->win), "MPI_Win_free");
    if (CREATED == s->sort) {
        mem_free(MEM_DEVICE, s->part);
    }
}

static void clear(const test_t *s)
{
    int *zero = calloc(ROOM, sizeof(int));
    mem_write(s->part, zero, BYTES);
    free(zero);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- MPI_Win_shared_query ---- */

/* Loads and stores by the addresses of the parts that it tells; of parts on other hosts it tells none. */
static void queried(const test_t *s)
{
    int *p, *lowest = NULL, unit, there = 0;
    MPI_Aint bytes;

    fill(s->part, s->t->rank, 1000);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int r = 0; r < s->t->nranks; r++) {
        p = s->part;
        check(s, MPI_SUCCESS == MPI_Win_shared_query(s->win, r, &bytes, &unit, &p), "MPI_Win_shared_query");
        check(s, sizeof(int) == (size_t) unit && (0 == bytes ? NULL == p : BYTES == bytes), "size and unit of a part");
        check(s, r != s->t->rank || p == s->part, "the own part");
        if (NULL != p) {
            check(s, holds(p, r, 1000), "what another rank has stored");
            write_int(p + 2000 + s->t->rank, value(r, s->t->rank));
            lowest = NULL == lowest ? p : lowest;
            there++;
        }
    }
    check(s, s->hosts ? there < s->t->nranks : there == s->t->nranks, "how many parts are accessible");
    check(s, MPI_SUCCESS == MPI_Win_shared_query(s->win, MPI_PROC_NULL, &bytes, &unit, &p) && p == lowest,
          "MPI_Win_shared_query of MPI_PROC_NULL");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int r = 0; r < s->t->nranks && !s->hosts; r++) {
        check(s, value(s->t->rank, r) == read_int(s->part + 2000 + r), "what another rank has stored here");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- fences ---- */

static void fences(const test_t *s)
{
    int host[64];

    clear(s);
    fill(s->gpu, s->t->rank, 1000);
    for (int i = 0; i < 64; i++) {
        host[i] = value(s->t->rank, i);
    }
    check(s, MPI_SUCCESS == MPI_Win_fence(MPI_MODE_NOPRECEDE, s->win), "MPI_Win_fence");
    check(s, MPI_SUCCESS == MPI_Put(s->gpu, 1000, MPI_INT, s->right, 0, 1000, MPI_INT, s->win), "MPI_Put");
    check(s, MPI_SUCCESS == MPI_Put(host, 64, MPI_INT, s->right, 2000, 64, MPI_INT, s->win), "MPI_Put of host memory");
    check(s, MPI_SUCCESS == MPI_Put(NULL, 0, MPI_INT, s->right, 0, 0, MPI_INT, s->win), "MPI_Put of nothing");
    check(s, MPI_SUCCESS == MPI_Put(host, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, s->win), "MPI_Put to nobody");
    check(s, MPI_SUCCESS == MPI_Win_fence(0, s->win), "MPI_Win_fence");
    check(s, holds(s->part, s->left, 1000) && holds(s->part + 2000, s->left, 64), "what MPI_Put has stored");
    check(s, 0 == read_int(s->part + 1000) && 0 == read_int(s->part + 2064), "what is behind it");
    memset(host, 0, sizeof host);
    check(s, MPI_SUCCESS == MPI_Get(s->other, 1000, MPI_INT, s->right, 0, 1000, MPI_INT, s->win), "MPI_Get");
    check(s, MPI_SUCCESS == MPI_Get(host, 64, MPI_INT, s->right, 2000, 64, MPI_INT, s->win), "MPI_Get to the host");
    check(s, MPI_SUCCESS == MPI_Win_fence(MPI_MODE_NOPUT | MPI_MODE_NOSTORE | MPI_MODE_NOSUCCEED, s->win),
          "MPI_Win_fence");
    check(s, holds(s->other, s->t->rank, 1000) && holds(host, s->t->rank, 64), "what MPI_Get has got");
    expect_class(s, MPI_Put(host, 1, MPI_INT, s->right, 0, 1, MPI_INT, s->win), MPI_ERR_RMA_SYNC,
                 "MPI_Put without an epoch");
}

/* Rows to a column, and back. */
static void datatypes(const test_t *s)
{
    MPI_Datatype column, pairs;
    int host[128];
    bool right = true;

    MPI_Type_vector(32, 1, 16, MPI_INT, &column);
    MPI_Type_commit(&column);
    MPI_Type_vector(16, 2, 3, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    clear(s);
    fill(s->gpu, s->t->rank, 1000);
    MPI_Win_fence(0, s->win);
    check(s, MPI_SUCCESS == MPI_Put(s->gpu, 32, MPI_INT, s->right, 5, 1, column, s->win), "MPI_Put to a column");
    check(s, MPI_SUCCESS == MPI_Put(s->gpu, 1, column, s->right, 2000, 1, pairs, s->win),
          "MPI_Put, gaps on both sides");
    MPI_Win_fence(0, s->win);
    for (int i = 0; i < 32; i++) {
        right = right && value(s->left, i) == read_int(s->part + 5 + 16 * i);
        right = right && value(s->left, 16 * i) == read_int(s->part + 2000 + 3 * (i / 2) + i % 2);
    }
    check(s, right && 0 == read_int(s->part + 6) && 0 == read_int(s->part + 2002), "columns that were put");
    memset(host, 0, sizeof host);
    check(s, MPI_SUCCESS == MPI_Get(host, 1, pairs, s->right, 5, 1, column, s->win), "MPI_Get to gaps of the host");
    MPI_Win_fence(0, s->win);
    right = true;
    for (int i = 0; i < 32; i++) {
        right = right && value(s->t->rank, i) == host[3 * (i / 2) + i % 2];
    }
    check(s, right && 0 == host[2], "a column that was got");
    expect_class(s, MPI_Put(s->gpu, 1, column, s->right, ROOM - 496, 1, column, s->win), MPI_ERR_RMA_RANGE,
                 "a column that ends behind the window");
    check(s, MPI_SUCCESS == MPI_Get(s->other, 1, column, s->right, ROOM - 497, 1, column, s->win),
          "a column that ends with it");
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);
    MPI_Type_free(&column);
    MPI_Type_free(&pairs);
}

/* Whether of a column at `part` the first n elements are what a rank has put there, and the others as they were. */
static bool has_column(const int *part, int rank, int n)
{
    for (int i = 0; i < 32; i++) {
        if ((i < n ? value(rank, i) : 0) != read_int(part + 4 * i)) {
            return false;
        }
    }
    return true;
}

/* Fetches what was put before, and combines fewer elements than that; then what these have become. */
static void fetches(const test_t *s, MPI_Op op, int n)
{
    enum { ALL = 40, AT = 1500 };
    int seen[ALL], now[ALL];
    MPI_Datatype column;
    bool right = true;

    MPI_Type_vector(ALL, 1, 3, MPI_INT, &column);
    MPI_Type_commit(&column);
    MPI_Win_fence(0, s->win);
    MPI_Put(s->gpu, ALL, MPI_INT, s->right, AT, 1, column, s->win);
    MPI_Win_fence(0, s->win);
    check(s,
          MPI_SUCCESS == MPI_Get_accumulate(s->gpu + 100, n, MPI_INT, s->other + 500, ALL, MPI_INT, s->right, AT, 1,
                                            column, op, s->win),
          "MPI_Get_accumulate of fewer");
    MPI_Win_fence(0, s->win);
    mem_read(seen, s->other + 500, sizeof seen);
    for (int i = 0; i < ALL; i++) {
        now[i] = read_int(s->part + AT + 3 * i);
        const int was = value(s->left, i), given = value(s->left, 100 + i);
        const int want = i >= n ? was : MPI_REPLACE == op ? given : MPI_SUM == op ? was + given : was;
        right = right && value(s->t->rank, i) == seen[i] && want == now[i];
    }
    check(s, right, "what MPI_Get_accumulate of fewer has fetched and left");
    MPI_Type_free(&column);
}

/* More room than is sent: by elements, and with gaps to within one. */
static void lengths(const test_t *s)
{
    MPI_Datatype column;
    int host[256];
    bool right = true;

    MPI_Type_vector(32, 1, 4, MPI_INT, &column);
    MPI_Type_commit(&column);
    clear(s);
    fill(s->gpu, s->t->rank, 1000);
    mem_write(s->other, memset(host, 0, sizeof host), sizeof host);
    MPI_Win_fence(0, s->win);
    check(s, MPI_SUCCESS == MPI_Put(s->gpu, 10, MPI_INT, s->right, 0, 12, MPI_INT, s->win), "MPI_Put of fewer");
    check(s, MPI_SUCCESS == MPI_Put(s->gpu, 32, MPI_INT, s->right, 100, 2, column, s->win), "one column of two");
    check(s, MPI_SUCCESS == MPI_Put(s->gpu, 0, MPI_INT, s->right, 0, 4, MPI_INT, s->win), "MPI_Put of none");
    check(s, MPI_SUCCESS == MPI_Accumulate(s->gpu, 10, MPI_INT, s->right, 500, 12, MPI_INT, MPI_SUM, s->win),
          "MPI_Accumulate of fewer");
    check(s, MPI_SUCCESS == MPI_Put(s->gpu, 10, MPI_INT, s->right, 600, 1, column, s->win), "a part of a column");
    check(s, MPI_SUCCESS == MPI_Accumulate(s->gpu, 10, MPI_INT, s->right, 800, 1, column, MPI_SUM, s->win),
          "MPI_Accumulate to a part of a column");
    check(s, MPI_SUCCESS == MPI_Accumulate(s->gpu, 33, MPI_INT, s->right, 1000, 2, column, MPI_SUM, s->win),
          "MPI_Accumulate to a column and a part of one");
    check(s, MPI_SUCCESS == MPI_Accumulate(s->gpu, 10, MPI_INT, s->right, 1300, 1, column, MPI_REPLACE, s->win),
          "MPI_REPLACE of a part of a column");
    fetches(s, MPI_NO_OP, 0);
    fetches(s, MPI_REPLACE, 10);
    fetches(s, MPI_SUM, 10);
    fetches(s, MPI_SUM, 0);
    expect_class(s, MPI_Put(s->gpu, 12, MPI_INT, s->right, 0, 10, MPI_INT, s->win), MPI_ERR_TRUNCATE,
                 "MPI_Put of more than there is room for");
    expect_class(s, MPI_Get(s->other, 10, MPI_INT, s->right, 0, 12, MPI_INT, s->win), MPI_ERR_TRUNCATE,
                 "MPI_Get of more than there is room for");
    MPI_Win_fence(0, s->win);
    check(s, holds(s->part, s->left, 10) && 0 == read_int(s->part + 10), "what was put, and what is behind it");
    check(s, holds(s->part + 500, s->left, 10) && 0 == read_int(s->part + 510), "what was added");
    check(s, has_column(s->part + 600, s->left, 10), "a part of a column that was put");
    check(s, has_column(s->part + 800, s->left, 10), "a part of a column to which was added");
    check(s,
          has_column(s->part + 1000, s->left, 32) && value(s->left, 32) == read_int(s->part + 1125) &&
              0 == read_int(s->part + 1129),
          "a column and a part of one to which was added");
    check(s, has_column(s->part + 1300, s->left, 10), "a part of a column that was replaced");
    for (int i = 0; i < 64; i++) {
        const int at = 100 + 4 * i - (i < 32 ? 0 : 3); /* the second one follows the first one's last element */
        right = right && (i < 32 ? value(s->left, i) : 0) == read_int(s->part + at);
    }
    check(s, right, "one column of two that was put");
    check(s, MPI_SUCCESS == MPI_Get(s->other, 12, MPI_INT, s->right, 0, 10, MPI_INT, s->win), "MPI_Get of fewer");
    memset(host, 0, sizeof host);
    check(s, MPI_SUCCESS == MPI_Get(s->other + 100, 1, column, s->right, 0, 10, MPI_INT, s->win),
          "to a part of a column");
    check(s, MPI_SUCCESS == MPI_Get(host, 1, column, s->right, 0, 10, MPI_INT, s->win), "to one of the host");
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);
    check(s, holds(s->other, s->t->rank, 10) && 0 == read_int(s->other + 10), "what was got, and what is behind it");
    right = true;
    for (int i = 0; i < 32; i++) {
        const int want = i < 10 ? value(s->t->rank, i) : 0;
        right = right && want == read_int(s->other + 100 + 4 * i) && want == host[4 * i];
    }
    check(s, right, "a part of a column that was got");
    MPI_Type_free(&column);
}

/* ---- locks ---- */

static void passive(const test_t *s)
{
    MPI_Request req[2];

    clear(s);
    fill(s->gpu, s->t->rank, 1000);
    check(s, MPI_SUCCESS == MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s->right, 0, s->win), "MPI_Win_lock");
    expect_class(s, MPI_Win_lock(MPI_LOCK_SHARED, s->right, 0, s->win), MPI_ERR_RMA_CONFLICT, "a lock that is held");
    expect_class(s, MPI_Win_fence(0, s->win), MPI_ERR_RMA_SYNC, "a fence under a lock");
    expect_class(s, MPI_Win_lock_all(0, s->win), MPI_ERR_RMA_SYNC, "MPI_Win_lock_all under a lock");
    check(s, MPI_SUCCESS == MPI_Put(s->gpu, 1000, MPI_INT, s->right, 0, 1000, MPI_INT, s->win), "MPI_Put");
    check(s, MPI_SUCCESS == MPI_Win_flush(s->right, s->win), "MPI_Win_flush");
    check(s, MPI_SUCCESS == MPI_Get(s->other, 1000, MPI_INT, s->right, 0, 1000, MPI_INT, s->win), "MPI_Get");
    check(s, MPI_SUCCESS == MPI_Win_flush_local(s->right, s->win), "MPI_Win_flush_local");
    check(s, holds(s->other, s->t->rank, 1000), "what was put and flushed");
    check(s, MPI_SUCCESS == MPI_Win_unlock(s->right, s->win), "MPI_Win_unlock");
    expect_class(s, MPI_Win_unlock(s->right, s->win), MPI_ERR_RMA_SYNC, "MPI_Win_unlock without a lock");
    expect_class(s, MPI_Win_flush(s->right, s->win), MPI_ERR_RMA_SYNC, "MPI_Win_flush without a lock");
    expect_class(s, MPI_Win_flush_all(s->win), MPI_ERR_RMA_SYNC, "MPI_Win_flush_all without a lock");
    MPI_Barrier(MPI_COMM_WORLD);
    check(s, MPI_SUCCESS == MPI_Win_lock_all(MPI_MODE_NOCHECK, s->win), "MPI_Win_lock_all");
    check(s, MPI_SUCCESS == MPI_Rput(s->gpu, 500, MPI_INT, s->right, 2000, 500, MPI_INT, s->win, &req[0]), "MPI_Rput");
    check(s, MPI_SUCCESS == MPI_Wait(&req[0], MPI_STATUS_IGNORE), "MPI_Wait");
    check(s, MPI_SUCCESS == MPI_Win_flush_all(s->win) && MPI_SUCCESS == MPI_Win_flush_local_all(s->win),
          "MPI_Win_flush_all");
    write_int(s->other, 0);
    check(s, MPI_SUCCESS == MPI_Rget(s->other, 500, MPI_INT, s->right, 2000, 500, MPI_INT, s->win, &req[1]),
          "MPI_Rget");
    MPI_Wait(&req[1], MPI_STATUS_IGNORE);
    check(s, holds(s->other, s->t->rank, 500), "what MPI_Rget has got");
    check(s, MPI_SUCCESS == MPI_Win_sync(s->win), "MPI_Win_sync");
    check(s, MPI_SUCCESS == MPI_Win_unlock_all(s->win), "MPI_Win_unlock_all");
    MPI_Barrier(MPI_COMM_WORLD);
    check(s, holds(s->part, s->left, 1000) && holds(s->part + 2000, s->left, 500), "what was put under locks");
}

/* All ranks count in rank 0's window, by get and put, which only the lock makes one step. */
static void counting(const test_t *s)
{
    enum { ROUNDS = 20 };
    int v;

    clear(s);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, s->win);
        MPI_Get(&v, 1, MPI_INT, 0, 7, 1, MPI_INT, s->win);
        MPI_Win_flush(0, s->win);
        v++;
        MPI_Put(&v, 1, MPI_INT, 0, 7, 1, MPI_INT, s->win);
        MPI_Win_unlock(0, s->win);
        MPI_Win_lock_all(0, s->win);
        MPI_Get(&v, 1, MPI_INT, 0, 7, 1, MPI_INT, s->win);
        MPI_Win_unlock_all(s->win);
        check(s, v >= i + 1 && v <= ROUNDS * s->t->nranks, "the count on its way");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    check(s, 0 != s->t->rank || ROUNDS * s->t->nranks == read_int(s->part + 7), "the count under exclusive locks");
}

/* All count in all parts under exclusive locks, one after the other, and every now and then lock all of them: nobody
 * waits for ever, neither for a lock nor for all of them. */
static void contended(const test_t *s)
{
    enum { ROUNDS = 60 };
    const int n = s->t->nranks;
    int v, sum = 0;

    clear(s);
    for (int i = 0; i < ROUNDS; i++) {
        const int target = (s->t->rank * (i % 3) + i) % n;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, s->win);
        MPI_Get(&v, 1, MPI_INT, target, 7, 1, MPI_INT, s->win);
        MPI_Win_flush(target, s->win);
        v++;
        MPI_Put(&v, 1, MPI_INT, target, 7, 1, MPI_INT, s->win);
        MPI_Win_unlock(target, s->win);
        if (i % 4 == s->t->rank % 4) {
            MPI_Win_lock_all(0, s->win);
            MPI_Get(&v, 1, MPI_INT, s->right, 7, 1, MPI_INT, s->win);
            MPI_Win_unlock_all(s->win);
            check(s, v >= 0 && v <= ROUNDS * n, "a count on its way");
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    v = read_int(s->part + 7);
    MPI_Allreduce(&v, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(s, ROUNDS * n == sum, "the counts under exclusive locks of all parts");
}

/* What is sent while a rank asks for a lock, and behind it. */
enum { ASKS, ASKED, GRANTED };
enum { PINGS = 3 };

/* Rank 0: has a rank ask for its lock, and returns once it has. The rank posts receives, says that it asks, and asks.
 * They match while the rank makes progress, which it does when it has asked; each takes a message and an answer, so
 * that a request that rank 0 must be in MPI for has come, too. Returns its process id. */
static int have_asked(int rank)
{
    int pid, ping = 0;

    MPI_Send(&ping, 1, MPI_INT, rank, ASKS, MPI_COMM_WORLD);
    MPI_Recv(&pid, 1, MPI_INT, rank, ASKS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < PINGS; i++) {
        MPI_Ssend(&ping, 1, MPI_INT, rank, ASKED, MPI_COMM_WORLD);
    }
    return pid;
}

typedef enum { EXCLUSIVE, SHARED_LOCK, ALL, ASKERS } asker_t;

/* The rank's side of have_asked. */
static int ask(const test_t *s, asker_t how)
{
    int pid = (int) getpid(), ping[PINGS], go;
    MPI_Request request[PINGS];

    MPI_Recv(&go, 1, MPI_INT, 0, ASKS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < PINGS; i++) {
        MPI_Irecv(&ping[i], 1, MPI_INT, 0, ASKED, MPI_COMM_WORLD, &request[i]);
    }
    MPI_Send(&pid, 1, MPI_INT, 0, ASKS, MPI_COMM_WORLD);
    const int rc = ALL == how ? MPI_Win_lock_all(0, s->win)
                              : MPI_Win_lock(EXCLUSIVE == how ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, 0, 0, s->win);
    MPI_Waitall(PINGS, request, MPI_STATUSES_IGNORE);
    return rc;
}

/* The kind of the asker that comes at a place of a round. Over hosts MPI_Win_lock_all asks by several messages, which
 * the ranks cannot tell from outside. */
static asker_t kind_of(const test_t *s, int round, int place)
{
    const asker_t how = (asker_t) ((place + round / 2) % ASKERS);
    return s->hosts && ALL == how ? SHARED_LOCK : how;
}

/* Whether a rank that asked at a place may have got the lock as the got-th: shared ones that follow each other have it
 * together. */
static bool is_in_turn(const test_t *s, int round, int place, int got)
{
    int from = place, to = place;

    while (EXCLUSIVE != kind_of(s, round, place) && from > 0 && EXCLUSIVE != kind_of(s, round, from - 1)) {
        from--;
    }
    while (EXCLUSIVE != kind_of(s, round, place) && to < s->t->nranks - 2 && EXCLUSIVE != kind_of(s, round, to + 1)) {
        to++;
    }
    return got >= from && got <= to;
}

/* While rank 0 holds its own lock, the others ask for it, one after the other, and get it in that order: exclusive ones
 * are not overtaken by shared ones, nor ranks of other hosts by those of this one. Each counts under it. Those that
 * share it come back at once, many times, as a stream of others does. */
static void in_order(const test_t *s)
{
    enum { ROUNDS = 6, AGAIN = 20 };
    const int others = s->t->nranks - 1, one = 1;
    int got;

    clear(s);
    for (int round = 0; round < ROUNDS; round++) {
        const int place = 0 == s->t->rank ? 0 : (s->t->rank - 1 + round) % others;
        if (0 == s->t->rank) {
            write_int(s->part + 9, 0);
            MPI_Win_lock(0 == round % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, 0, 0, s->win);
            for (int i = 0; i < others; i++) {
                (void) have_asked(1 + (i + others - round % others) % others);
            }
            MPI_Win_unlock(0, s->win);
            for (int rank = 1; rank <= others; rank++) {
                MPI_Recv(&got, 1, MPI_INT, rank, GRANTED, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                check(s, is_in_turn(s, round, (rank - 1 + round) % others, got), "the order of those that get a lock");
            }
        } else {
            const asker_t how = kind_of(s, round, place);
            check(s, MPI_SUCCESS == ask(s, how), "a lock");
            MPI_Fetch_and_op(&one, &got, MPI_INT, 0, 9, MPI_SUM, s->win);
            (void) (ALL == how ? MPI_Win_unlock_all(s->win) : MPI_Win_unlock(0, s->win));
            for (int i = 0; SHARED_LOCK == how && i < AGAIN; i++) {
                MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, s->win);
                MPI_Win_unlock(0, s->win);
            }
            MPI_Send(&got, 1, MPI_INT, 0, GRANTED, MPI_COMM_WORLD);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* All but the last rank share locks of another window, rank 0 also of its own part. While the last one, which holds
 * none, waits for rank 0's to itself, they ask for it, too: they go ahead, since it waits for one that waits for them.
 */
static void ahead_by(const test_t *given, MPI_Win other)
{
    test_t own = *given, *s = &own;
    const int last = s->t->nranks - 1;
    int token = 0;

    open_window(s, ALLOCATED, NULL, NULL);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);
    if (last != s->t->rank) {
        MPI_Win_lock_all(0, other);
    }
    if (0 == s->t->rank && 0 != last) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, s->win);
        (void) have_asked(last);
        for (int rank = 1; rank < last; rank++) {
            MPI_Send(&token, 1, MPI_INT, rank, GRANTED, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_INT, rank, GRANTED, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Win_unlock(0, s->win);
    } else if (last == s->t->rank && 0 != last) {
        check(s, MPI_SUCCESS == ask(s, EXCLUSIVE), "an exclusive lock behind others");
        MPI_Win_unlock(0, s->win);
    } else if (0 != last) {
        MPI_Recv(&token, 1, MPI_INT, 0, GRANTED, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(s, MPI_SUCCESS == MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, s->win), "a shared lock of one that holds another");
        MPI_Win_unlock(0, s->win);
        MPI_Send(&token, 1, MPI_INT, 0, GRANTED, MPI_COMM_WORLD);
    }
    if (last != s->t->rank) {
        MPI_Win_unlock_all(other);
    }
    close_window(s);
}

/* By a window of GPU memory, and by one of host memory, which may be another component's. */
static void ahead(const test_t *s)
{
    int v = 0;
    MPI_Win host;

    ahead_by(s, s->win);
    if (s->t->nranks > 1) { /* osc/rdma of 4.1 has no window of one rank */
        MPI_Win_create(&v, sizeof v, sizeof v, MPI_INFO_NULL, MPI_COMM_WORLD, &host);
        ahead_by(s, host);
        MPI_Win_free(&host);
    }
}

/* ---- post, start, complete, wait ---- */

static void active(const test_t *s)
{
    MPI_Group all, to, from;
    int flag = 0;

    MPI_Win_get_group(s->win, &all);
    MPI_Group_incl(all, 1, &s->right, &to);
    MPI_Group_incl(all, 1, &s->left, &from);
    clear(s);
    fill(s->gpu, s->t->rank, 1000);
    expect_class(s, MPI_Win_wait(s->win), MPI_ERR_RMA_SYNC, "MPI_Win_wait without a post");
    expect_class(s, MPI_Win_test(s->win, &flag), MPI_ERR_RMA_SYNC, "MPI_Win_test without a post");
    expect_class(s, MPI_Win_complete(s->win), MPI_ERR_RMA_SYNC, "MPI_Win_complete without a start");
    for (int i = 0; i < 5; i++) {
        check(s, MPI_SUCCESS == MPI_Win_post(from, 0, s->win), "MPI_Win_post");
        expect_class(s, MPI_Win_post(from, 0, s->win), MPI_ERR_RMA_SYNC, "a second MPI_Win_post");
        check(s, MPI_SUCCESS == MPI_Win_start(to, 0, s->win), "MPI_Win_start");
        expect_class(s, MPI_Win_lock(MPI_LOCK_SHARED, s->right, 0, s->win), MPI_ERR_RMA_SYNC, "a lock behind a start");
        if (s->t->nranks > 2) {
            expect_class(s, MPI_Put(s->gpu, 1, MPI_INT, s->left, 0, 1, MPI_INT, s->win), MPI_ERR_RMA_SYNC,
                         "MPI_Put to a rank that is not in the group");
        }
        MPI_Put(s->gpu, 100, MPI_INT, s->right, 200 * i, 100, MPI_INT, s->win);
        check(s, MPI_SUCCESS == MPI_Win_complete(s->win), "MPI_Win_complete");
        if (0 == i % 2) {
            check(s, MPI_SUCCESS == MPI_Win_wait(s->win), "MPI_Win_wait");
        } else {
            for (flag = 0; !flag;) {
                MPI_Win_test(s->win, &flag);
            }
        }
        check(s, holds(s->part + 200 * i, s->left, 100), "what was put between start and complete");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Group_free(&all);
}

/* ---- accumulates ---- */

static void accumulates(const test_t *s)
{
    const int n = s->t->nranks, sum = n * (n + 1) / 2, root = n - 1;
    int mine = s->t->rank + 1, got[8], one = 1;
    struct {
        double v;
        int at;
    } pair[2] = {{s->t->rank, s->t->rank}, {-s->t->rank, s->t->rank}};
    MPI_Request req;
    bool right = true;

    clear(s);
    int *ones = malloc(1000 * sizeof(int));
    for (int i = 0; i < 1000; i++) {
        ones[i] = mine;
    }
    mem_write(s->gpu, ones, 1000 * sizeof(int));
    MPI_Win_fence(0, s->win);
    check(s, MPI_SUCCESS == MPI_Accumulate(s->gpu, 1000, MPI_INT, root, 0, 1000, MPI_INT, MPI_SUM, s->win),
          "MPI_Accumulate");
    check(s, MPI_SUCCESS == MPI_Accumulate(&mine, 1, MPI_INT, root, 1001, 1, MPI_INT, MPI_MAX, s->win), "MPI_MAX");
    check(s, MPI_SUCCESS == MPI_Accumulate(&mine, 1, MPI_INT, root, 1010 + s->t->rank, 1, MPI_INT, MPI_REPLACE, s->win),
          "MPI_REPLACE");
    check(s, MPI_SUCCESS == MPI_Accumulate(pair, 2, MPI_DOUBLE_INT, root, 1100, 2, MPI_DOUBLE_INT, MPI_MAXLOC, s->win),
          "MPI_MAXLOC");
    expect_class(s, MPI_Accumulate(&mine, 1, MPI_INT, root, ROOM, 1, MPI_INT, MPI_SUM, s->win), MPI_ERR_RMA_RANGE,
                 "MPI_Accumulate behind the window");
    /* Of two types; Open MPI 4.1 refuses that before it asks us. */
    check(s, MPI_SUCCESS != MPI_Accumulate(&mine, 1, MPI_INT, root, 0, 1, MPI_FLOAT, MPI_SUM, s->win),
          "MPI_Accumulate of two types");
    MPI_Win_fence(0, s->win);
    if (s->t->rank == root) {
        mem_read(ones, s->part, 1000 * sizeof(int));
        for (int i = 0; i < 1000; i++) {
            right = right && sum == ones[i];
        }
        check(s, right && n == read_int(s->part + 1001), "sums and maximum");
        for (int i = 0; i < n; i++) {
            check(s, i + 1 == read_int(s->part + 1010 + i), "what MPI_REPLACE has stored");
        }
        mem_read(pair, s->part + 1100, sizeof pair);
        check(s, n - 1 == (int) pair[0].v && n - 1 == pair[0].at && 0 == (int) pair[1].v && 0 == pair[1].at,
              "what MPI_MAXLOC has found");
    }
    free(ones);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);

    /* Every number once. */
    clear(s);
    MPI_Win_lock_all(0, s->win);
    for (int i = 0; i < 5; i++) {
        check(s, MPI_SUCCESS == MPI_Fetch_and_op(&one, &got[i], MPI_INT, root, 3, MPI_SUM, s->win), "MPI_Fetch_and_op");
        MPI_Win_flush(root, s->win);
        check(s, MPI_SUCCESS == MPI_Accumulate(&one, 1, MPI_INT, root, 100 + got[i], 1, MPI_INT, MPI_SUM, s->win),
              "MPI_Accumulate");
    }
    check(s, MPI_SUCCESS == MPI_Fetch_and_op(NULL, s->other, MPI_INT, root, 3, MPI_NO_OP, s->win), "MPI_NO_OP");
    MPI_Win_flush(root, s->win);
    check(s, read_int(s->other) >= 5 && read_int(s->other) <= 5 * n, "what MPI_NO_OP has fetched");
    MPI_Win_unlock_all(s->win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->t->rank == root) {
        for (int i = 0; i < 5 * n; i++) {
            check(s, 1 == read_int(s->part + 100 + i), "a number that MPI_Fetch_and_op gave");
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);

    /* One of all ranks finds the old value. */
    MPI_Win_lock(MPI_LOCK_SHARED, root, 0, s->win);
    int old = 5 * n, won, winners;
    check(s, MPI_SUCCESS == MPI_Compare_and_swap(&mine, &old, &got[0], MPI_INT, root, 3, s->win),
          "MPI_Compare_and_swap");
    MPI_Win_unlock(root, s->win);
    won = got[0] == old && old != mine;
    MPI_Allreduce(&won, &winners, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(s, 1 == winners || old <= n, "winners of MPI_Compare_and_swap");
    MPI_Barrier(MPI_COMM_WORLD);

    /* With results, gaps and requests. */
    MPI_Datatype gaps;
    MPI_Type_vector(4, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    fill(s->part, s->t->rank, 1000);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s->right, 0, s->win);
    const int add[4] = {1, 2, 3, 4};
    check(s, MPI_SUCCESS == MPI_Get_accumulate(add, 4, MPI_INT, got, 1, gaps, s->right, 10, 1, gaps, MPI_SUM, s->win),
          "MPI_Get_accumulate");
    MPI_Win_flush(s->right, s->win);
    for (int i = 0; i < 4; i++) {
        check(s, value(s->right, 10 + 2 * i) == got[2 * i], "what MPI_Get_accumulate has fetched");
    }
    check(s,
          MPI_SUCCESS ==
              MPI_Rget_accumulate(add, 4, MPI_INT, got, 4, MPI_INT, s->right, 10, 1, gaps, MPI_SUM, s->win, &req),
          "MPI_Rget_accumulate");
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    for (int i = 0; i < 4; i++) {
        check(s, value(s->right, 10 + 2 * i) + add[i] == got[i], "what MPI_Rget_accumulate has fetched");
    }
    check(s, MPI_SUCCESS == MPI_Raccumulate(add, 4, MPI_INT, s->right, 10, 1, gaps, MPI_SUM, s->win, &req),
          "MPI_Raccumulate");
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    MPI_Win_unlock(s->right, s->win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 4; i++) {
        check(s, value(s->t->rank, 10 + 2 * i) + 3 * add[i] == read_int(s->part + 10 + 2 * i), "three sums");
        check(s, value(s->t->rank, 11 + 2 * i) == read_int(s->part + 11 + 2 * i), "a gap");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Type_free(&gaps);
}

/* ---- more than one message carries ---- */

/* Of all elements of a block of `all` ints, those that an irregular type has. */
static MPI_Datatype irregular(int blocks, bool *has, int all)
{
    int *len = malloc((size_t) blocks * sizeof *len), *at = malloc((size_t) blocks * sizeof *at), end = 0;
    MPI_Datatype type;

    for (int i = 0; i < blocks; i++) {
        len[i] = 1 + i % 3;
        at[i] = end;
        end += len[i] + 1 + i % 2;
        for (int j = 0; j < len[i] && at[i] + j < all; j++) {
            has[at[i] + j] = true;
        }
    }
    MPI_Type_indexed(blocks, len, at, MPI_INT, &type);
    MPI_Type_commit(&type);
    free(len);
    free(at);
    return type;
}

static bool are_sums(const int *image, int n, int first, int factor)
{
    for (int i = 0; i < n; i++) {
        if (image[i] != factor * (first + i)) {
            return false;
        }
    }
    return true;
}

/* Put, get and accumulates of elements without gaps, in GPU memory and on the host, and of many runs. */
static void lengthy(const test_t *given)
{
    enum { LONG = 700001, BLOCKS = 2000, RUNS = 8000, PAIRS = 30000 };
    test_t own = *given, *s = &own;
    const size_t bytes = LONG * sizeof(int);
    int *part = mem_alloc(MEM_DEVICE, bytes), *gpu = mem_alloc(MEM_DEVICE, bytes), *image = calloc(1, bytes);
    int *host = malloc(bytes);
    bool *has = calloc(RUNS, sizeof *has), right = true;
    struct {
        short v;
        int at;
    } *pair = calloc(PAIRS, sizeof *pair);
    const MPI_Datatype runs = irregular(BLOCKS, has, RUNS);

    s->sort = CREATED;
    mem_write(part, image, bytes);
    MPI_Win_create(part, (MPI_Aint) bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &s->win);
    MPI_Win_set_errhandler(s->win, MPI_ERRORS_RETURN);
    for (int i = 0; i < LONG; i++) {
        host[i] = s->t->rank + i;
    }
    mem_write(gpu, host, bytes);
    MPI_Win_fence(0, s->win);
    check(s, MPI_SUCCESS == MPI_Put(gpu, LONG, MPI_INT, s->right, 0, LONG, MPI_INT, s->win), "a long MPI_Put");
    MPI_Win_fence(0, s->win);
    check(s, MPI_SUCCESS == MPI_Accumulate(host, LONG, MPI_INT, s->right, 0, LONG, MPI_INT, MPI_SUM, s->win),
          "a long MPI_Accumulate");
    check(s, MPI_SUCCESS == MPI_Accumulate(gpu, LONG, MPI_INT, s->right, 0, LONG, MPI_INT, MPI_SUM, s->win),
          "a long MPI_Accumulate of GPU memory");
    MPI_Win_fence(0, s->win);
    mem_read(image, part, bytes);
    check(s, are_sums(image, LONG, s->left, 3), "long sums");
    MPI_Win_fence(0, s->win);
    check(s,
          MPI_SUCCESS ==
              MPI_Get_accumulate(gpu, LONG, MPI_INT, image, LONG, MPI_INT, s->right, 0, LONG, MPI_INT, MPI_SUM, s->win),
          "a long MPI_Get_accumulate");
    MPI_Win_fence(0, s->win);
    check(s, are_sums(image, LONG, s->t->rank, 3), "what a long MPI_Get_accumulate has fetched");
    check(s, MPI_SUCCESS == MPI_Get(gpu, LONG, MPI_INT, s->right, 0, LONG, MPI_INT, s->win), "a long MPI_Get");
    MPI_Win_fence(0, s->win);
    mem_read(image, gpu, bytes);
    check(s, are_sums(image, LONG, s->t->rank, 4), "what a long MPI_Get has got");
    /* Of many runs: added once more, and got. */
    check(s, MPI_SUCCESS == MPI_Accumulate(host, 1, runs, s->right, 0, 1, runs, MPI_SUM, s->win),
          "MPI_Accumulate to many runs");
    MPI_Win_fence(0, s->win);
    check(s, MPI_SUCCESS == MPI_Get(gpu, 1, runs, s->right, 0, 1, runs, s->win), "MPI_Get of many runs");
    MPI_Win_fence(0, s->win);
    mem_read(image, part, bytes);
    mem_read(host, gpu, bytes);
    for (int i = 0; i < RUNS; i++) {
        right = right && image[i] == (has[i] ? 5 : 4) * (s->left + i);
        right = right && host[i] == (has[i] ? 5 : 4) * (s->t->rank + i);
    }
    check(s, right, "sums in many runs");
    /* Elements with gaps within. */
    for (int i = 0; i < PAIRS; i++) {
        pair[i].v = (short) (0 == i % 2 ? 1 : -1);
        pair[i].at = i;
    }
    memset(image, 0, bytes);
    mem_write(part, image, bytes);
    MPI_Win_fence(0, s->win);
    check(s,
          MPI_SUCCESS ==
              MPI_Accumulate(pair, PAIRS, MPI_SHORT_INT, s->right, 0, PAIRS, MPI_SHORT_INT, MPI_MAXLOC, s->win),
          "MPI_MAXLOC of many pairs");
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);
    mem_read(pair, part, PAIRS * sizeof *pair);
    right = true;
    for (int i = 0; i < PAIRS; i++) {
        right = right && pair[i].v == (0 == i % 2 ? 1 : 0) && pair[i].at == (0 == i % 2 ? i : 0);
    }
    check(s, right, "what MPI_MAXLOC has found in many pairs");
    MPI_Win_free(&s->win);
    MPI_Type_free((MPI_Datatype[]){runs});
    mem_free(MEM_DEVICE, part);
    mem_free(MEM_DEVICE, gpu);
    free(image);
    free(host);
    free(pair);
    free(has);
}

/* ---- other windows ---- */

/* The last rank's memory is accessed while it calls MPI_Win_test. */
static void tested(const test_t *s)
{
    const int last = s->t->nranks - 1, origin = 0;
    int v = 9, flag = 0;
    MPI_Group all, one;

    MPI_Win_get_group(s->win, &all);
    if (last == s->t->rank) {
        MPI_Group_incl(all, 1, &origin, &one);
        MPI_Win_post(one, 0, s->win);
        while (!flag) {
            MPI_Win_test(s->win, &flag);
        }
        MPI_Group_free(&one);
    } else if (origin == s->t->rank) {
        MPI_Group_incl(all, 1, &last, &one);
        MPI_Win_start(one, 0, s->win);
        check(s, MPI_SUCCESS == MPI_Put(&v, 1, MPI_INT, last, 6, 1, MPI_INT, s->win), "MPI_Put");
        MPI_Win_complete(s->win);
        MPI_Group_free(&one);
    }
    MPI_Group_free(&all);
    check(s, last != s->t->rank || 9 == read_int(s->part + 6), "what was put while its owner tested");
}

/* Memory that peers cannot map, beside GPU memory that they can: its owner copies. Elements without gaps are longer
 * than one request, and those with gaps have more runs. */
static void unmapped(const test_t *given, int kind)
{
    enum { LONG = 100000, RUNS = 1500 };
    test_t own = *given, *s = &own;
    const bool last = s->t->rank == s->t->nranks - 1;
    const size_t bytes = 3 * LONG * sizeof(int);
    int *p = mem_alloc(last ? kind : MEM_DEVICE, bytes), *image = calloc(1, bytes), *origin = malloc(bytes);
    int v = 7, old = 0, sum = 0, unit, *last_part;
    MPI_Datatype runs;
    bool right = true;
    MPI_Aint there;

    s->sort = CREATED;
    s->part = p;
    mem_write(p, image, bytes);
    MPI_Win_create(p, (MPI_Aint) bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &s->win);
    MPI_Win_set_errhandler(s->win, MPI_ERRORS_RETURN);
    MPI_Type_vector(RUNS, 1, 3, MPI_INT, &runs);
    MPI_Type_commit(&runs);
    for (int i = 0; i < LONG; i++) {
        origin[i] = value(s->t->rank, i);
    }
    check(s,
          MPI_SUCCESS == MPI_Win_shared_query(s->win, s->t->nranks - 1, &there, &unit, &last_part) &&
              (last ? p == last_part && (MPI_Aint) bytes == there : NULL == last_part && 0 == there),
          "MPI_Win_shared_query of memory that cannot be mapped");
    MPI_Win_fence(0, s->win);
    check(s, MPI_SUCCESS == MPI_Put(origin, LONG, MPI_INT, s->right, LONG, LONG, MPI_INT, s->win), "a long MPI_Put");
    check(s, MPI_SUCCESS == MPI_Put(origin, RUNS, MPI_INT, s->right, 100, 1, runs, s->win), "MPI_Put to many runs");
    check(s, MPI_SUCCESS == MPI_Accumulate(&v, 1, MPI_INT, s->t->nranks - 1, 1, 1, MPI_INT, MPI_SUM, s->win),
          "MPI_Accumulate");
    expect_class(s, MPI_Put(origin, 2, MPI_INT, s->right, 3 * LONG - 1, 2, MPI_INT, s->win), MPI_ERR_RMA_RANGE,
                 "MPI_Put behind the window");
    MPI_Win_fence(0, s->win);
    mem_read(image, p, bytes);
    for (int i = 0; i < LONG; i++) {
        right = right && value(s->left, i) == image[LONG + i];
        right = right && (i >= 3 * RUNS || (0 == i % 3 ? value(s->left, i / 3) : 0) == image[100 + i]);
    }
    check(s, right && 0 == image[2 * LONG] && 0 == image[99], "what was put");
    check(s, !last || v * s->t->nranks == image[1], "the sum of all");
    memset(origin, 0, bytes);
    check(s, MPI_SUCCESS == MPI_Get(origin, 1, runs, s->right, 100, 1, runs, s->win), "MPI_Get of many runs");
    check(s, MPI_SUCCESS == MPI_Get(s->gpu, ROOM, MPI_INT, s->right, LONG, ROOM, MPI_INT, s->win),
          "MPI_Get to the GPU");
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);
    right = true;
    for (int i = 0; i < 3 * RUNS; i++) {
        right = right && (0 == i % 3 ? value(s->t->rank, i / 3) : 0) == origin[i];
    }
    check(s, right && holds(s->gpu, s->t->rank, ROOM), "what was got");
    /* Passive: the owner is in MPI_Barrier, or asks others itself. */
    MPI_Win_lock_all(0, s->win);
    for (int i = 0; i < 50; i++) {
        v = 1;
        MPI_Fetch_and_op(&v, &old, MPI_INT, s->t->nranks - 1, 2, MPI_SUM, s->win);
        check(s, old >= i && old < 50 * s->t->nranks, "what MPI_Fetch_and_op has fetched");
        MPI_Compare_and_swap(&v, &sum, &old, MPI_INT, s->right, 3, s->win);
    }
    if (last) { /* it makes no call that waits */
        for (v = 0; v < s->t->nranks - 1;) {
            MPI_Fetch_and_op(NULL, &v, MPI_INT, s->t->rank, 4, MPI_NO_OP, s->win);
        }
        for (v = 0; v < s->t->nranks - 1;) {
            MPI_Win_sync(s->win);
            mem_read(&v, p + 5, sizeof v);
        }
    } else {
        v = 1;
        MPI_Accumulate(&v, 1, MPI_INT, s->t->nranks - 1, 4, 1, MPI_INT, MPI_SUM, s->win);
        MPI_Accumulate(&v, 1, MPI_INT, s->t->nranks - 1, 5, 1, MPI_INT, MPI_SUM, s->win);
    }
    MPI_Win_unlock_all(s->win);
    tested(s);
    MPI_Barrier(MPI_COMM_WORLD);
    check(s, !last || 50 * s->t->nranks == read_int(p + 2), "a count of all ranks");
    check(s, 1 == read_int(p + 3), "a swap");
    MPI_Type_free(&runs);
    MPI_Win_free(&s->win);
    mem_free(last ? kind : MEM_DEVICE, p);
    free(origin);
    free(image);
}

static void host_part(const test_t *s)
{
    unmapped(s, MEM_HOST);
}

static void async_part(const test_t *s)
{
    unmapped(s, MEM_ASYNC);
}

/* Rank 1 has host memory, and is in no call of MPI while rank 0 accesses it: possible where a process may copy from and
 * to another's memory. */
static void idle_owner(const test_t *given)
{
    test_t own = *given, *s = &own;
    const bool owner = 1 == s->t->rank;
    int *p = mem_alloc(owner ? MEM_HOST : MEM_DEVICE, BYTES), v[2] = {7, 8}, may = 0, pid = (int) getpid();
    const struct iovec here = {v, sizeof v};
    struct iovec there = {p, sizeof v};
    MPI_Datatype two;

    s->sort = CREATED;
    s->part = p;
    clear(s);
    MPI_Bcast(&pid, 1, MPI_INT, 1, MPI_COMM_WORLD);
    MPI_Bcast(&there.iov_base, sizeof there.iov_base, MPI_BYTE, 1, MPI_COMM_WORLD);
    if (0 == s->t->rank) {
        may = sizeof v == process_vm_writev((pid_t) pid, &here, 1, &there, 1, 0);
    }
    MPI_Bcast(&may, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Type_vector(2, 1, 100, MPI_INT, &two);
    MPI_Type_commit(&two);
    MPI_Win_create(p, BYTES, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &s->win);
    MPI_Win_lock_all(0, s->win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (may && 0 == s->t->rank) {
        MPI_Put(v, 2, MPI_INT, 1, 200, 1, two, s->win);
        MPI_Accumulate(v, 2, MPI_INT, 1, 200, 1, two, MPI_SUM, s->win);
        MPI_Get(v, 2, MPI_INT, 1, 200, 1, two, s->win);
        MPI_Win_flush(1, s->win);
        check(s, 14 == v[0] && 16 == v[1], "what was got of an owner that does nothing");
        v[0] = 1;
        MPI_Put(v, 1, MPI_INT, 1, 0, 1, MPI_INT, s->win);
    }
    while (may && owner && 1 != __atomic_load_n(p, __ATOMIC_ACQUIRE)) {
        sched_yield();
    }
    check(s, !owner || !may || (14 == p[200] && 16 == p[300]), "what was put to an owner that does nothing");
    MPI_Win_unlock_all(s->win);
    MPI_Win_free(&s->win);
    MPI_Type_free(&two);
    mem_free(owner ? MEM_HOST : MEM_DEVICE, p);
}

/* A shared window of n ints of this rank. */
static int *open_shared(MPI_Win *win, int n, bool wants, bool apart)
{
    MPI_Info info;
    int *p = NULL;

    MPI_Info_create(&info);
    if (wants) {
        MPI_Info_set(info, "mpool_hints", "mpool=gpusym");
    }
    MPI_Info_set(info, "alloc_shared_noncontig", apart ? "true" : "false");
    MPI_Win_allocate_shared(n * (MPI_Aint) sizeof(int), sizeof(int), info, MPI_COMM_WORLD, &p, win);
    MPI_Win_set_errhandler(*win, MPI_ERRORS_RETURN);
    MPI_Info_free(&info);
    return p;
}

static int ints_of(const test_t *s, int rank)
{
    return 0 == rank && s->t->nranks > 1 ? 0 : 1000 + 3 * rank;
}

/* What MPI_Win_shared_query tells; loads and stores by it, of all parts. */
static void query_all(const test_t *s, bool apart, bool gpu)
{
    const int first = s->t->nranks > 1 ? 1 : 0, mine = ints_of(s, s->t->rank);
    int *before = NULL, *p, *lowest;
    MPI_Aint bytes;
    MPI_Win win;
    int unit, v = 0;

    int *own = open_shared(&win, mine, true, apart);
    check(s, 0 == mine || gpu != mem_plain(own), "the kind of shared memory");
    if (mine > 0) {
        fill(own, s->t->rank, mine);
    }
    MPI_Win_fence(0, win);
    for (int r = 0; r < s->t->nranks; r++) {
        check(s, MPI_SUCCESS == MPI_Win_shared_query(win, r, &bytes, &unit, &p), "MPI_Win_shared_query");
        check(s, ints_of(s, r) * (MPI_Aint) sizeof(int) == bytes && sizeof(int) == (size_t) unit, "size and unit");
        check(s, r != s->t->rank || 0 == mine || p == own, "the own part");
        check(s, apart || NULL == before || p == before, "the part behind another");
        check(s, 0 == ints_of(s, r) || holds(p, r, ints_of(s, r)), "what another rank has stored");
        before = (int *) (void *) ((char *) p + bytes);
    }
    check(s, MPI_SUCCESS == MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &lowest), "MPI_Win_shared_query");
    MPI_Win_shared_query(win, first, &bytes, &unit, &p);
    check(s, p == lowest && ints_of(s, first) * (MPI_Aint) sizeof(int) == bytes, "of MPI_PROC_NULL");
    MPI_Win_fence(0, win);
    if (s->t->rank == s->t->nranks - 1) {
        write_int(p + 5, 77);
    }
    MPI_Win_fence(0, win);
    MPI_Get(&v, 1, MPI_INT, first, 5, 1, MPI_INT, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    check(s, 77 == v && 77 == read_int(p + 5), "what was stored to another's part");
    check(s, MPI_SUCCESS == MPI_Win_free(&win), "MPI_Win_free");
}

static void shared(const test_t *given)
{
    test_t own = *given, *s = &own;
    MPI_Aint bytes;
    MPI_Win win;
    int unit, *p;

    s->sort = SHARED;
    query_all(s, false, true);
    s->sort = APART;
    query_all(s, true, true);
    p = open_shared(&win, 100, s->t->rank > 0, false);
    check(s, mem_plain(p), "memory of a window that not all ranks want on GPUs");
    MPI_Win_free(&win);
    p = open_shared(&win, 0, true, false);
    check(s, MPI_SUCCESS == MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &p) && 0 == bytes && NULL == p,
          "a window without memory");
    MPI_Win_free(&win);
}

static void unshared(const test_t *given)
{
    test_t own = *given, *s = &own;

    s->sort = SHARED;
    query_all(s, false, false);
    s->sort = APART; /* osc/sm of Open MPI 4.1 tells other sizes then */
    check(s, mem_plain(open_shared(&own.win, 1024, true, true)), "the kind of shared memory");
    MPI_Win_free(&own.win);
}

/* Each rank attaches GPU memory and host memory, and learns the addresses of its neighbour's. */
static void dynamic(const test_t *given)
{
    test_t own = *given, *s = &own;
    int *p[2] = {mem_alloc(MEM_DEVICE, BYTES), mem_alloc(MEM_HOST, BYTES)}, v = 5, old;
    MPI_Aint mine[2], theirs[2], size = 1;
    void *base = p;
    int flag = 0, unit;

    s->sort = DYNAMIC;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &s->win);
    MPI_Win_set_errhandler(s->win, MPI_ERRORS_RETURN);
    expect_class(s, MPI_Win_shared_query(s->win, 0, &size, &unit, &base), MPI_ERR_RMA_FLAVOR,
                 "MPI_Win_shared_query of a dynamic window");
    size = 1;
    MPI_Win_get_attr(s->win, MPI_WIN_BASE, &base, &flag);
    check(s, flag && MPI_BOTTOM == base, "MPI_WIN_BASE");
    expect_class(s, MPI_Win_detach(s->win, p[0]), MPI_ERR_BASE, "MPI_Win_detach of what is not attached");
    for (int i = 0; i < 2; i++) {
        s->part = p[i];
        clear(s);
        check(s, MPI_SUCCESS == MPI_Win_attach(s->win, p[i], BYTES), "MPI_Win_attach");
        expect_class(s, MPI_Win_attach(s->win, p[i] + 1, 8), MPI_ERR_RMA_ATTACH, "MPI_Win_attach of the same again");
        MPI_Get_address(p[i], &mine[i]);
    }
    MPI_Sendrecv(mine, 2, MPI_AINT, s->left, 0, theirs, 2, MPI_AINT, s->right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2; i++) {
        s->part = p[i];
        fill(s->gpu, s->t->rank, 1000);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s->right, 0, s->win);
        check(s, MPI_SUCCESS == MPI_Put(s->gpu, 1000, MPI_INT, s->right, theirs[i], 1000, MPI_INT, s->win), "MPI_Put");
        MPI_Win_flush(s->right, s->win);
        check(s, MPI_SUCCESS == MPI_Get(s->other, 1000, MPI_INT, s->right, theirs[i], 1000, MPI_INT, s->win),
              "MPI_Get");
        MPI_Win_flush(s->right, s->win);
        check(s, holds(s->other, s->t->rank, 1000), "what MPI_Get has got");
        check(s,
              MPI_SUCCESS == MPI_Fetch_and_op(&v, &old, MPI_INT, s->right,
                                              MPI_Aint_add(theirs[i], 1000 * (MPI_Aint) sizeof(int)), MPI_SUM, s->win),
              "MPI_Fetch_and_op");
        expect_class(s, MPI_Put(&v, 1, MPI_INT, s->right, theirs[i] + (MPI_Aint) BYTES - 3, 1, MPI_INT, s->win),
                     MPI_ERR_RMA_RANGE, "MPI_Put over the end");
        expect_class(s, MPI_Put(&v, 1, MPI_INT, s->right, theirs[i] - 1, 1, MPI_INT, s->win), MPI_ERR_RMA_RANGE,
                     "MPI_Put before the beginning");
        MPI_Win_unlock(s->right, s->win);
        MPI_Barrier(MPI_COMM_WORLD);
        check(s, holds(p[i], s->left, 1000) && 5 == read_int(p[i] + 1000), "what was put to attached memory");
        check(s, MPI_SUCCESS == MPI_Win_detach(s->win, p[i]), "MPI_Win_detach");
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock_all(0, s->win);
        expect_class(s, MPI_Put(&v, 1, MPI_INT, s->right, theirs[i], 1, MPI_INT, s->win), MPI_ERR_RMA_RANGE,
                     "MPI_Put to memory that is detached");
        MPI_Win_unlock_all(s->win);
    }
    /* More than the table has; what is left is detached by MPI_Win_free. */
    enum { MOST = 4096, ROOM_FOR_MORE = 2 * MOST };
    char *bytes = mem_alloc(MEM_DEVICE, ROOM_FOR_MORE);
    int attached = 0;
    while (attached < ROOM_FOR_MORE && MPI_SUCCESS == MPI_Win_attach(s->win, bytes + attached, size)) {
        attached++;
    }
    check(s, MOST == attached, "as many pieces as are said to be possible");
    check(s, MPI_SUCCESS == MPI_Win_detach(s->win, bytes + 7) && MPI_SUCCESS == MPI_Win_attach(s->win, bytes + 7, size),
          "a piece in place of another");
    MPI_Get_address(bytes, &mine[0]);
    MPI_Sendrecv(mine, 1, MPI_AINT, s->left, 0, theirs, 1, MPI_AINT, s->right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Win_fence(0, s->win);
    check(s, MPI_SUCCESS == MPI_Put(s->gpu, 100, MPI_INT, s->right, theirs[0] + 4, 100, MPI_INT, s->win),
          "MPI_Put to many pieces");
    expect_class(s, MPI_Put(s->gpu, 1, MPI_INT, s->right, theirs[0] + MOST - 2, 1, MPI_INT, s->win), MPI_ERR_RMA_RANGE,
                 "MPI_Put behind the last piece");
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);
    check(s, holds((int *) (void *) (bytes + 4), s->left, 100), "what was put to many pieces");
    check(s, MPI_SUCCESS == MPI_Win_free(&s->win), "MPI_Win_free");
    mem_free(MEM_DEVICE, bytes);
    mem_free(MEM_DEVICE, p[0]);
    mem_free(MEM_HOST, p[1]);
}

/* More windows than one call of progress looks at, whose ranks request something of each other in all of them. */
static void many(const test_t *given)
{
    enum { WINDOWS = 20 };
    test_t s[WINDOWS];

    for (int i = 0; i < WINDOWS; i++) {
        s[i] = *given;
        open_window(&s[i], ALLOCATED, NULL, NULL);
        clear(&s[i]);
    }
    for (int i = 0; i < WINDOWS; i++) {
        int sent = value(s[i].t->rank, i), was = -1;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s[i].right, 0, s[i].win);
        MPI_Fetch_and_op(&sent, &was, MPI_INT, s[i].right, 1, MPI_SUM, s[i].win);
        MPI_Win_unlock(s[i].right, s[i].win);
        check(&s[i], 0 == was, "what was fetched of one of many windows");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < WINDOWS; i++) {
        const int k = 0 == i % 2 ? i : WINDOWS - i; /* not in the order of a list */
        check(&s[k], value(s[k].left, k) == read_int(s[k].part + 1), "what one of many windows holds");
        close_window(&s[k]);
    }
}

static void no_locks(const test_t *given)
{
    test_t own = *given, *s = &own;

    open_window(s, ALLOCATED, "no_locks", "true");
    expect_class(s, MPI_Win_lock(MPI_LOCK_SHARED, s->right, 0, s->win), MPI_ERR_RMA_SYNC, "a lock despite no_locks");
    expect_class(s, MPI_Win_lock_all(0, s->win), MPI_ERR_RMA_SYNC, "MPI_Win_lock_all despite no_locks");
    close_window(s);
}

/* Windows of which no rank has a byte, as OSU's programs make them for the first of their sizes. */
static void empty(const test_t *given)
{
    test_t own = *given, *s = &own;
    int v = 7, unit, *p = &v;
    MPI_Aint bytes = 1;

    const int rv = MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &s->win);
    check(s, MPI_SUCCESS == rv, "MPI_Win_create of no bytes");
    if (MPI_SUCCESS != rv) {
        return;
    }
    MPI_Win_set_errhandler(s->win, MPI_ERRORS_RETURN);
    check(s, MPI_SUCCESS == MPI_Win_shared_query(s->win, MPI_PROC_NULL, &bytes, &unit, &p) && 0 == bytes && NULL == p,
          "MPI_Win_shared_query of a window of no bytes");
    MPI_Win_lock(MPI_LOCK_SHARED, s->right, 0, s->win);
    check(s, MPI_SUCCESS == MPI_Put(s->other, 0, MPI_INT, s->right, 0, 0, MPI_INT, s->win), "MPI_Put of nothing");
    expect_class(s, MPI_Put(&v, 1, MPI_INT, s->right, 0, 1, MPI_INT, s->win), MPI_ERR_RMA_RANGE,
                 "MPI_Put to a window of no bytes");
    MPI_Win_unlock(s->right, s->win);
    check(s, MPI_SUCCESS == MPI_Win_free(&s->win), "MPI_Win_free");
}

/* ---- a rank that dies ---- */

/* Rank 1 dies, and holds rank 0's lock. Returns what another rank's call ends with that waits for it. */
static int holder_died(const test_t *s)
{
    if (1 == s->t->rank) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, s->win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (1 == s->t->rank) {
        kill(getpid(), SIGKILL);
    }
    return MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, s->win);
}

/* The last rank dies, which waits for rank 0's lock; rank 0 shares it. The others come behind it. */
static int waiter_died(const test_t *s)
{
    int token = 0;

    if (0 != s->t->rank) {
        if (s->t->nranks - 1 == s->t->rank) {
            (void) ask(s, EXCLUSIVE);
        }
        MPI_Recv(&token, 1, MPI_INT, 0, GRANTED, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, s->win);
    }
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, s->win);
    kill((pid_t) have_asked(s->t->nranks - 1), SIGKILL);
    for (int rank = 1; rank < s->t->nranks - 1; rank++) {
        MPI_Send(&token, 1, MPI_INT, rank, GRANTED, MPI_COMM_WORLD);
    }
    const int unlock = MPI_Win_unlock(0, s->win), lock = MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, s->win);
    check(s, MPI_SUCCESS == unlock, "MPI_Win_unlock of a lock that a dead rank waits for");
    return lock;
}

/* Rank 1 dies in one of these. */
static int accumulator_died(const test_t *s)
{
    int rc = MPI_SUCCESS;

    MPI_Win_lock_all(0, s->win);
    while (MPI_SUCCESS == rc) {
        rc = MPI_Accumulate(s->gpu, 1000, MPI_INT, 0, 0, 1000, MPI_INT, MPI_SUM, s->win);
    }
    return rc;
}

static const struct {
    const char *who;
    int (*died)(const test_t *s);
} deaths[] = {{"holder", holder_died}, {"waiter", waiter_died}, {"accumulator", accumulator_died}};
enum { DEATHS = sizeof deaths / sizeof *deaths };

/* who: one of deaths[]. */
static int died(test_t *s, const char *who)
{
    const int last = s->hosts ? s->t->nranks - 1 : 0;
    int lock = MPI_SUCCESS;

    open_window(s, ALLOCATED, NULL, NULL);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);
    for (int i = 0; i < DEATHS; i++) {
        lock = 0 == strcmp(who, deaths[i].who) ? deaths[i].died(s) : lock;
    }
    const int fence = 0 == strcmp(who, "accumulator")
                          ? MPI_Accumulate(s->gpu, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, s->win)
                          : MPI_Win_fence(0, s->win);
    expect_class(s, lock, MPI_ERR_OTHER, "a call that waits for a dead rank");
    if (MPI_SUCCESS == lock || MPI_SUCCESS == fence || 0 != wrong) {
        printf("rank %d: a call has succeeded that waits for a dead rank\n", s->t->rank);
        fflush(stdout);
        _exit(1);
    }
    printf("rank %d: both have ended with an error\n", s->t->rank);
    fflush(stdout);
    if (last == s->t->rank) {
        MPI_Abort(MPI_COMM_WORLD, 3); /* rank 1's outlive.sh ends by this alone */
    }
    sleep(30);
    return 1;
}

int main(int argc, char **argv)
{
    check_t t;
    test_t s = {.t = &t};
    long failed;

    check_init(&argc, &argv, "rma", MPI_THREAD_SINGLE);
    const char *const kills = check_option("--kill");
    const bool over_hosts = check_flag("--hosts"), apart = check_flag("--unshared"), plain = !apart;
    check_arguments_end(USAGE);
    check_start(&t, "rma", MPI_COMM_WORLD);
    s.left = (t.rank + t.nranks - 1) % t.nranks;
    s.right = (t.rank + 1) % t.nranks;
    s.hosts = over_hosts;
    s.gpu = mem_alloc(MEM_DEVICE, BYTES);
    s.other = mem_alloc(MEM_DEVICE, BYTES);
    if (NULL != kills) {
        return died(&s, kills);
    }
    for (int sort = 0; sort < SORTS && plain; sort++) {
        if (over_hosts && (SHARED == sort || APART == sort)) {
            continue;
        }
        open_window(&s, sort, NULL, NULL);
        stage(&s, queried);
        stage(&s, fences);
        stage(&s, datatypes);
        stage(&s, lengths);
        stage(&s, passive);
        stage(&s, counting);
        stage(&s, contended);
        stage(&s, in_order);
        stage(&s, ahead);
        stage(&s, active);
        stage(&s, accumulates);
        close_window(&s);
    }
    if (apart) {
        stage(&s, unshared);
    } else if (t.nranks > 1) { /* else it would be a window of host memory */
        stage(&s, host_part);
        if (!over_hosts) {
            stage(&s, idle_owner);
        }
        if (mem_have(MEM_ASYNC)) {
            stage(&s, async_part);
        }
    }
    if (plain) {
        if (!over_hosts) {
            stage(&s, shared);
        }
        stage(&s, lengthy);
        stage(&s, dynamic);
        stage(&s, no_locks);
        stage(&s, many);
        stage(&s, empty);
    }
    mem_free(MEM_DEVICE, s.gpu);
    mem_free(MEM_DEVICE, s.other);
    failed = check_end(&t);
    check_print("rma", t.passed, failed);
    return check_fini(failed);
}
