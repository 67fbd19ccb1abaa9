/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: one-sided calls on windows of host memory, which Open MPI's own components serve, with origins, results
 * and comparands in GPU memory: each call, each kind of epoch, all results compared. What Open MPI answers to a wrong
 * call must not depend on the memory of the origin. With --fails the simulator fails copy 5 and copy 16 of each rank:
 * the call that needs it returns an error, and can be made again. --served: no component of Open MPI takes the windows,
 * and gpusym's own serves them: they have no bounce buffers. --unserved: gpusym's own cannot serve dynamic
 * windows, which request GPU memory.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/mpi/check.h"

#define USAGE "[--fails | --served | --unserved]"
#define ROOM 4096 /* ints of a rank's part */
#define BYTES (ROOM * sizeof(int))

enum sort { CREATED, ALLOCATED, SHARED, DYNAMIC, SORTS };
static const char *const names[] = {"created", "allocated", "shared", "dynamic"};

typedef struct {
    check_t *t;
    MPI_Win win;
    int *part;        /* this rank's */
    int *gpu, *other; /* GPU memory */
    int sort, left, right;
    MPI_Aint at, unit; /* displacements at the right neighbour: of its part, of an int */
} test_t;

static long wrong; /* checks, since the last stage */
static bool served, unserved;

static void check(const test_t *s, bool right, const char *what)
{
    if (!right) {
        fprintf(stderr, "rank %d: %s, window %s\n", s->t->rank, what, names[s->sort]);
        wrong++;
    }
}

static void done(const test_t *s, int rc, const char *call)
{
    check(s, MPI_SUCCESS == rc, call);
}

static void stage(const test_t *s, void (*run)(const test_t *s))
{
    wrong = 0;
    run(s);
    check_result(s->t, 0 == wrong);
    MPI_Barrier(MPI_COMM_WORLD);
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

/* Whether n ints, of which each is `step` behind the one before, are those of a rank, and what is between them is 0. */
static bool holds(const int *p, int rank, int n, int step)
{
    const size_t ints = (size_t) (n - 1) * (size_t) step + 1;
    int *image = malloc(ints * sizeof(int));
    bool same = true;
    mem_read(image, p, ints * sizeof(int));
    for (size_t i = 0; i < ints; i++) {
        same = same && (0 == i % (size_t) step ? value(rank, (int) (i / (size_t) step)) : 0) == image[i];
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

static void zero(int *p, size_t bytes)
{
    void *image = calloc(1, bytes);
    mem_write(p, image, bytes);
    free(image);
}

static void clear(const test_t *s)
{
    memset(s->part, 0, BYTES);
    zero(s->other, BYTES);
    fill(s->gpu, s->t->rank, ROOM);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s->t->rank, 0, s->win); /* the stores are seen by all */
    MPI_Win_unlock(s->t->rank, s->win);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The displacement of an int of the right neighbour's part. */
static MPI_Aint disp(const test_t *s, int i)
{
    return s->at + s->unit * i;
}

/* ---- windows ---- */

static void open_window(test_t *s, int sort)
{
    MPI_Aint mine = 0;
    MPI_Info info;

    s->sort = sort;
    s->unit = DYNAMIC == sort ? (MPI_Aint) sizeof(int) : 1;
    if (CREATED == sort) {
        s->part = malloc(BYTES);
        MPI_Win_create(s->part, BYTES, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &s->win);
    } else if (ALLOCATED == sort) {
        MPI_Win_allocate(BYTES, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &s->part, &s->win);
    } else if (SHARED == sort) {
        MPI_Win_allocate_shared(BYTES, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &s->part, &s->win);
    } else {
        MPI_Info_create(&info);
        MPI_Info_set(info, "mpool_hints", unserved ? "mpool=gpusym" : "mpool=default");
        MPI_Win_create_dynamic(info, MPI_COMM_WORLD, &s->win);
        MPI_Info_free(&info);
        s->part = malloc(BYTES);
        MPI_Win_attach(s->win, s->part, BYTES);
        MPI_Get_address(s->part, &mine);
    }
    MPI_Sendrecv(&mine, 1, MPI_AINT, s->left, 0, &s->at, 1, MPI_AINT, s->right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Win_set_errhandler(s->win, MPI_ERRORS_RETURN);
    check(s, mem_plain(s->part), "the kind of the memory");
}

static void close_window(test_t *s)
{
    done(s, MPI_Win_free(&s->win), "MPI_Win_free");
    if (CREATED == s->sort || DYNAMIC == s->sort) {
        free(s->part);
    }
}

/* ---- put and get ---- */

static void fences(const test_t *s)
{
    MPI_Datatype column, far;
    const int length = 1;
    MPI_Aint address;

    clear(s);
    MPI_Type_vector(100, 1, 3, MPI_INT, &column);
    MPI_Type_commit(&column);
    MPI_Get_address(s->gpu, &address);
    MPI_Type_create_hindexed(1, &length, &address, MPI_INT, &far);
    MPI_Type_commit(&far);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, s->win);
    done(s, MPI_Put(s->gpu, 1000, MPI_INT, s->right, disp(s, 0), 1000, MPI_INT, s->win), "MPI_Put");
    done(s, MPI_Put(s->gpu, 100, MPI_INT, s->right, disp(s, 2000), 1, column, s->win), "MPI_Put to a column");
    done(s, MPI_Put(MPI_BOTTOM, 1, far, s->right, disp(s, 3000), 1, MPI_INT, s->win), "MPI_Put of an address");
    done(s, MPI_Put(s->gpu, 0, MPI_INT, s->right, disp(s, 0), 0, MPI_INT, s->win), "MPI_Put of nothing");
    done(s, MPI_Put(s->gpu, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, s->win), "MPI_Put to nobody");
    MPI_Win_fence(0, s->win);
    check(s, holds(s->part, s->left, 1000, 1) && holds(s->part + 2000, s->left, 100, 3), "what MPI_Put has stored");
    check(s, 0 == s->part[1000] && value(s->left, 0) == s->part[3000] && 0 == s->part[3001], "what is behind it");
    MPI_Win_fence(0, s->win);
    done(s, MPI_Get(s->other, 1, column, s->right, disp(s, 0), 100, MPI_INT, s->win), "MPI_Get to a column");
    done(s, MPI_Get(s->other + 1000, 1000, MPI_INT, s->right, disp(s, 0), 900, MPI_INT, s->win),
         "MPI_Get to a longer origin");
    MPI_Type_free(&column);
    MPI_Type_free(&far);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);
    check(s, holds(s->other, s->t->rank, 100, 3), "a column that was got");
    check(s, holds(s->other + 1000, s->t->rank, 900, 1) && 0 == read_int(s->other + 1900), "what was got of a part");
}

static void passive(const test_t *s)
{
    MPI_Request req;

    clear(s);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s->right, 0, s->win);
    done(s, MPI_Put(s->gpu, 1000, MPI_INT, s->right, disp(s, 0), 1000, MPI_INT, s->win), "MPI_Put");
    done(s, MPI_Win_flush(s->right, s->win), "MPI_Win_flush");
    done(s, MPI_Get(s->other, 1000, MPI_INT, s->right, disp(s, 0), 1000, MPI_INT, s->win), "MPI_Get");
    done(s, MPI_Win_flush_local(s->right, s->win), "MPI_Win_flush_local");
    check(s, holds(s->other, s->t->rank, 1000, 1), "what was put and flushed");
    done(s, MPI_Get(s->other + 1000, 500, MPI_INT, s->right, disp(s, 0), 500, MPI_INT, s->win), "MPI_Get");
    done(s, MPI_Win_unlock(s->right, s->win), "MPI_Win_unlock");
    check(s, holds(s->other + 1000, s->t->rank, 500, 1), "what was got under a lock");
    MPI_Win_lock_all(0, s->win);
    done(s, MPI_Rput(s->gpu, 500, MPI_INT, s->right, disp(s, 2000), 500, MPI_INT, s->win, &req), "MPI_Rput");
    done(s, MPI_Wait(&req, MPI_STATUS_IGNORE), "MPI_Wait");
    done(s, MPI_Win_flush_all(s->win), "MPI_Win_flush_all");
    zero(s->other, BYTES);
    done(s, MPI_Rget(s->other, 500, MPI_INT, s->right, disp(s, 2000), 500, MPI_INT, s->win, &req), "MPI_Rget");
    done(s, MPI_Wait(&req, MPI_STATUS_IGNORE), "MPI_Wait");
    check(s, holds(s->other, s->t->rank, 500, 1), "what MPI_Rget has got");
    done(s, MPI_Get(s->other + 1000, 500, MPI_INT, s->right, disp(s, 0), 500, MPI_INT, s->win), "MPI_Get");
    done(s, MPI_Win_flush_local_all(s->win), "MPI_Win_flush_local_all");
    check(s, holds(s->other + 1000, s->t->rank, 500, 1), "what was got and flushed");
    done(s, MPI_Get(s->other + 2000, 500, MPI_INT, s->right, disp(s, 0), 500, MPI_INT, s->win), "MPI_Get");
    done(s, MPI_Win_unlock_all(s->win), "MPI_Win_unlock_all");
    check(s, holds(s->other + 2000, s->t->rank, 500, 1), "what was got under MPI_Win_lock_all");
    MPI_Barrier(MPI_COMM_WORLD);
    check(s, holds(s->part, s->left, 1000, 1) && holds(s->part + 2000, s->left, 500, 1), "what was put under locks");
}

static void active(const test_t *s)
{
    MPI_Group all, to, from;

    MPI_Win_get_group(s->win, &all);
    MPI_Group_incl(all, 1, &s->right, &to);
    MPI_Group_incl(all, 1, &s->left, &from);
    clear(s);
    for (int i = 0; i < 5; i++) {
        MPI_Win_post(from, 0, s->win);
        MPI_Win_start(to, 0, s->win);
        done(s, MPI_Put(s->gpu, 100, MPI_INT, s->right, disp(s, 200 * i), 100, MPI_INT, s->win), "MPI_Put");
        if (i > 0) {
            done(s, MPI_Get(s->other + 100 * i, 100, MPI_INT, s->right, disp(s, 200 * (i - 1)), 100, MPI_INT, s->win),
                 "MPI_Get");
        }
        done(s, MPI_Win_complete(s->win), "MPI_Win_complete");
        check(s, 0 == i || holds(s->other + 100 * i, s->t->rank, 100, 1), "what was got between start and complete");
        done(s, MPI_Win_wait(s->win), "MPI_Win_wait");
        check(s, holds(s->part + 200 * i, s->left, 100, 1), "what was put between start and complete");
    }
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Group_free(&all);
}

/* ---- accumulates ---- */

/* Each adds to its neighbour's part, where nobody else does. */
static void accumulates(const test_t *s)
{
    MPI_Datatype column;
    MPI_Request req;
    bool right = true;

    clear(s);
    MPI_Type_vector(100, 1, 3, MPI_INT, &column);
    MPI_Type_commit(&column);
    MPI_Win_fence(0, s->win);
    done(s, MPI_Put(s->gpu, 1000, MPI_INT, s->right, disp(s, 0), 1000, MPI_INT, s->win), "MPI_Put");
    MPI_Win_fence(0, s->win);
    done(s, MPI_Accumulate(s->gpu, 1000, MPI_INT, s->right, disp(s, 0), 1000, MPI_INT, MPI_SUM, s->win),
         "MPI_Accumulate");
    done(s, MPI_Accumulate(s->gpu, 1, column, s->right, disp(s, 2000), 100, MPI_INT, MPI_SUM, s->win),
         "MPI_Accumulate of a column");
    MPI_Win_fence(0, s->win);
    for (int i = 0; i < 1000; i++) {
        right = right && 2 * value(s->left, i) == s->part[i];
        right = right && (i >= 100 || value(s->left, 3 * i) == s->part[2000 + i]);
    }
    check(s, right, "sums");

    /* What is fetched; of MPI_NO_OP the origin is nothing. */
    MPI_Win_fence(0, s->win);
    zero(s->other, BYTES);
    done(s,
         MPI_Get_accumulate(s->gpu + 1, 1, MPI_INT, s->other, 1, column, s->right, disp(s, 2000), 100, MPI_INT,
                            MPI_NO_OP, s->win),
         "MPI_NO_OP");
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);
    for (int i = 0; i < 100; i++) {
        right = right && value(s->t->rank, 3 * i) == read_int(s->other + 3 * i) && 0 == read_int(s->other + 3 * i + 1);
    }
    check(s, right, "what MPI_NO_OP has fetched");
    MPI_Type_free(&column);

    clear(s);
    MPI_Win_lock(MPI_LOCK_SHARED, s->right, 0, s->win);
    done(s, MPI_Raccumulate(s->gpu, 100, MPI_INT, s->right, disp(s, 0), 100, MPI_INT, MPI_SUM, s->win, &req),
         "MPI_Raccumulate");
    done(s, MPI_Wait(&req, MPI_STATUS_IGNORE), "MPI_Wait");
    MPI_Win_flush(s->right, s->win);
    done(s,
         MPI_Rget_accumulate(s->gpu, 100, MPI_INT, s->other, 100, MPI_INT, s->right, disp(s, 0), 100, MPI_INT, MPI_MAX,
                             s->win, &req),
         "MPI_Rget_accumulate");
    done(s, MPI_Wait(&req, MPI_STATUS_IGNORE), "MPI_Wait");
    check(s, holds(s->other, s->t->rank, 100, 1), "what MPI_Rget_accumulate has fetched");
    MPI_Win_unlock(s->right, s->win);
    MPI_Barrier(MPI_COMM_WORLD);
    check(s, holds(s->part, s->left, 100, 1), "what they have stored");
}

/* Pairs, which have gaps. osc/pt2pt ends the job at such an operation. */
static void pairs(const test_t *s)
{
    typedef struct {
        double v;
        int at;
    } pair_t;
    const pair_t low[3] = {{-1, 7}, {5, 8}, {-2, 9}}, high[2] = {{1, s->t->rank}, {4, s->t->rank}};
    pair_t got[3] = {{0, 0}, {0, 0}, {0, 0}};

    clear(s);
    memcpy(s->part, low, sizeof low);
    mem_write(s->other, high, sizeof high);
    MPI_Win_fence(0, s->win);
    done(s,
         MPI_Get_accumulate(s->other, 2, MPI_DOUBLE_INT, s->other + 100, 2, MPI_DOUBLE_INT, s->right, disp(s, 0), 2,
                            MPI_DOUBLE_INT, MPI_MAXLOC, s->win),
         "MPI_MAXLOC");
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);
    mem_read(got, s->other + 100, sizeof got);
    check(s, -1 == (int) got[0].v && 7 == got[0].at && 5 == (int) got[1].v && 8 == got[1].at && 0 == got[2].at,
          "what MPI_MAXLOC has found there");
    memcpy(got, s->part, sizeof got);
    check(s, 1 == (int) got[0].v && s->left == got[0].at && 5 == (int) got[1].v && 8 == got[1].at,
          "what MPI_MAXLOC has stored");
    check(s, -2 == (int) got[2].v && 9 == got[2].at, "the pair behind it");
}

/* All count in rank 0's part, from GPU memory to GPU memory. */
static void atomics(const test_t *s)
{
    enum { ROUNDS = 20 };
    const MPI_Aint at = s->at;
    const int one = 1;
    bool right = true;
    test_t root = *s;

    clear(s);
    root.at = DYNAMIC == s->sort && 0 == s->t->rank ? (MPI_Aint) s->part : at;
    MPI_Bcast(&root.at, 1, MPI_AINT, 0, MPI_COMM_WORLD);
    mem_write(s->gpu, &one, sizeof one);
    MPI_Win_lock_all(0, s->win);
    for (int i = 0; i < ROUNDS; i++) {
        done(s, MPI_Fetch_and_op(s->gpu, s->other, MPI_INT, 0, disp(&root, 3), MPI_SUM, s->win), "MPI_Fetch_and_op");
        MPI_Win_flush(0, s->win);
        const int got = read_int(s->other);
        right = right && got >= i && got < ROUNDS * s->t->nranks;
    }
    check(s, right, "what MPI_Fetch_and_op has fetched");
    for (int i = 0; i < ROUNDS;) { /* the comparand is what was found last */
        const int found = read_int(s->other + 1), next = found + 1;
        mem_write(s->other + 2, &next, sizeof next);
        done(s, MPI_Compare_and_swap(s->other + 2, s->other + 1, s->other + 3, MPI_INT, 0, disp(&root, 4), s->win),
             "MPI_Compare_and_swap");
        MPI_Win_flush(0, s->win);
        const int now = read_int(s->other + 3), comparand = found == now ? next : now;
        mem_write(s->other + 1, &comparand, sizeof comparand);
        i += found == now ? 1 : 0;
    }
    MPI_Win_unlock_all(s->win);
    MPI_Barrier(MPI_COMM_WORLD);
    check(s, 0 != s->t->rank || (ROUNDS * s->t->nranks == s->part[3] && ROUNDS * s->t->nranks == s->part[4]),
          "counts of all ranks");
}

/* ---- errors ---- */

static void same_class(const test_t *s, int host, int gpu, const char *what)
{
    int of_host, of_gpu;
    MPI_Error_class(host, &of_host);
    MPI_Error_class(gpu, &of_gpu);
    check(s, of_host == of_gpu, what);
}

/* Without an epoch. */
static void errors(const test_t *s)
{
    int v[2] = {1, 2};
    const int host = MPI_Put(v, 1, MPI_INT, s->right, disp(s, 0), 1, MPI_INT, s->win);

    same_class(s, host, MPI_Put(s->gpu, 1, MPI_INT, s->right, disp(s, 0), 1, MPI_INT, s->win), "MPI_Put");
    same_class(s, MPI_Win_flush(s->right, s->win), MPI_Win_flush(s->right, s->win), "MPI_Win_flush");
    if (!served && DYNAMIC == s->sort) {
        same_class(s, MPI_ERR_RMA_ATTACH, MPI_Win_attach(s->win, s->gpu, BYTES), "MPI_Win_attach of GPU memory");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static bool is_other(int rc)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(rc, &class);
    return MPI_ERR_OTHER == class;
}

/* Ten puts, then ten gets, of which one each fails at first. */
static void fails(test_t *s)
{
    int failed = 0;

    wrong = 0;
    open_window(s, ALLOCATED);
    clear(s);
    MPI_Win_lock_all(0, s->win);
    for (int i = 0; i < 10; i++) {
        for (int rc = MPI_ERR_OTHER, tries = 0; MPI_SUCCESS != rc && tries < 2; tries++) {
            rc = MPI_Put(s->gpu + 100 * i, 100, MPI_INT, s->right, disp(s, 100 * i), 100, MPI_INT, s->win);
            check(s, MPI_SUCCESS == rc || (is_other(rc) && 0 == tries), "MPI_Put");
            failed += is_other(rc) ? 1 : 0;
        }
    }
    check(s, 1 == failed && MPI_SUCCESS == MPI_Win_flush_all(s->win), "a put that fails, and its flush");
    for (int i = 0; i < 10; i++) {
        for (int rc = MPI_ERR_OTHER, tries = 0; MPI_SUCCESS != rc && tries < 2; tries++) {
            done(s, MPI_Get(s->other + 100 * i, 100, MPI_INT, s->right, disp(s, 100 * i), 100, MPI_INT, s->win),
                 "MPI_Get");
            rc = MPI_Win_flush(s->right, s->win);
            check(s, MPI_SUCCESS == rc || (is_other(rc) && 0 == tries), "MPI_Win_flush");
            failed += is_other(rc) ? 1 : 0;
        }
    }
    check(s, 2 == failed, "a get that fails");
    MPI_Win_unlock_all(s->win);
    MPI_Barrier(MPI_COMM_WORLD);
    check(s, holds(s->other, s->t->rank, 1000, 1) && holds(s->part, s->left, 1000, 1), "what was put and got");
    close_window(s);
    check_result(s->t, 0 == wrong);
}

/* ---- much ---- */

/* More than bounce buffers may take: what was got first is there before the epoch ends. */
static void much(test_t *s)
{
    enum { LONG = 6 << 20, TIMES = 4 };
    int *p = malloc((size_t) LONG * sizeof(int)), *to = mem_alloc(MEM_DEVICE, (size_t) LONG * TIMES * sizeof(int));

    wrong = 0;
    s->sort = CREATED;
    fill(p, s->t->rank, LONG);
    zero(to, (size_t) LONG * TIMES * sizeof(int));
    MPI_Win_create(p, LONG * (MPI_Aint) sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &s->win);
    MPI_Win_lock_all(0, s->win);
    for (int i = 0; i < TIMES; i++) {
        done(s, MPI_Get(to + i * LONG, LONG, MPI_INT, s->right, 0, LONG, MPI_INT, s->win), "MPI_Get");
    }
    check(s, served || holds(to, s->right, LONG, 1), "what was got before the bounce buffers were too many");
    MPI_Win_unlock_all(s->win);
    for (int i = 0; i < TIMES; i++) {
        check(s, holds(to + i * LONG, s->right, LONG, 1), "what was got in a lock");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    zero(to, (size_t) LONG * TIMES * sizeof(int));
    MPI_Win_fence(0, s->win);
    for (int i = 0; i < TIMES; i++) {
        done(s, MPI_Get(to + i * LONG, LONG, MPI_INT, s->right, 0, LONG, MPI_INT, s->win), "MPI_Get");
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win);
    for (int i = 0; i < TIMES; i++) {
        check(s, holds(to + i * LONG, s->right, LONG, 1), "what was got between fences");
    }
    MPI_Win_free(&s->win);
    mem_free(MEM_DEVICE, to);
    free(p);
    check_result(s->t, 0 == wrong);
}

/* Many windows at a time, which end in another order. */
static void many(const test_t *given)
{
    enum { WINDOWS = 150 };
    static test_t s[WINDOWS];

    wrong = 0;
    for (int i = 0; i < WINDOWS; i++) {
        s[i] = *given;
        open_window(&s[i], CREATED);
    }
    for (int i = 0; i < WINDOWS; i++) {
        test_t *w = &s[(7 * i) % WINDOWS];
        memset(w->part, 0, BYTES);
        MPI_Win_fence(0, w->win);
        done(w, MPI_Put(w->gpu, 10, MPI_INT, w->right, 0, 10, MPI_INT, w->win), "MPI_Put");
        MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win);
        check(w, holds(w->part, w->left, 10, 1), "what was put to one of many windows");
        close_window(w);
        if (0 == i % 10) { /* in the place of one that is gone */
            open_window(w, CREATED);
            close_window(w);
        }
    }
    check_result(given->t, 0 == wrong);
}

int main(int argc, char **argv)
{
    check_t t;
    test_t s = {.t = &t};

    check_init(&argc, &argv, "rma_host", MPI_THREAD_SINGLE);
    const bool with_faults = check_flag("--fails");
    served = check_flag("--served");
    unserved = check_flag("--unserved");
    check_arguments_end(USAGE);
    check_start(&t, "rma_host", MPI_COMM_WORLD);
    s.left = (t.rank + t.nranks - 1) % t.nranks;
    s.right = (t.rank + 1) % t.nranks;
    s.gpu = mem_alloc(MEM_DEVICE, BYTES);
    s.other = mem_alloc(MEM_DEVICE, BYTES);
    for (int sort = 0; sort < SORTS && !with_faults; sort++) {
        open_window(&s, sort);
        stage(&s, fences);
        stage(&s, passive);
        stage(&s, active);
        stage(&s, accumulates);
        if (ALLOCATED == sort || SHARED == sort) {
            stage(&s, pairs);
        }
        stage(&s, atomics);
        stage(&s, errors);
        close_window(&s);
    }
    fill(s.gpu, t.rank, ROOM);
    if (with_faults) {
        fails(&s);
    } else {
        much(&s);
        many(&s);
    }
    mem_free(MEM_DEVICE, s.gpu);
    mem_free(MEM_DEVICE, s.other);
    const long failed = check_end(&t);
    check_print("rma_host", t.passed, failed);
    return check_fini(failed);
}
