/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * mpirun test: which info objects give GPU memory by MPI_Alloc_mem and MPI_Win_allocate, and what a window of GPU
 * memory can do. By default libgpusym_kinds is loaded before this program (LD_PRELOAD), and "mpi_memory_alloc_kinds"
 * counts too;
 * --plain says that it is not.
 *
 * With --fails an allocation of GPU memory fails on rank 1, the first there (coll_gpusym_sim_fail=alloc:1@1): all ranks
 * get that window in host memory.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/device/sim/sim.h"
#include "test/mpi/check.h"
#include "test/mpi/mpit.h"

#define USAGE "[--plain] [--fails] [--rounds N]"
#define ELEMENTS (1u << 20) /* 4 MiB: allocations of that size can be mapped by peers */
#define UNIT ((int) sizeof(int))

static bool loaded; /* libgpusym_kinds is */

/* An info object's pair, and who takes it to ask for GPU memory. */
typedef struct {
    const char *key, *value;
    enum { NOBODY, KINDS, POOL } by;
} hint_t;

static const hint_t hints[] = {
    {"mpool_hints", "mpool=gpusym", POOL},
    {"mpool_hints", "page_size=2M,mpool=gpusym", POOL},
    {"mpi_memory_alloc_kinds", "cuda:device", KINDS},
    {"mpi_memory_alloc_kinds", "system,mpi:alloc_mem:win_allocate,cuda:device", KINDS},
    {"mpi_memory_alloc_kinds", "cuda:host:device,system", KINDS},
    {"mpi_memory_alloc_kinds", "cuda:host,cuda:device", KINDS},
    {"mpi_memory_alloc_kinds", ",,cuda:device,", KINDS},
    {NULL, NULL, NOBODY}, /* MPI_INFO_NULL */
    {"mpool_hints", "mpool=gpusymm", NOBODY},
    {"mpi_memory_alloc_kinds", "system", NOBODY},
    {"mpi_memory_alloc_kinds", "cuda", NOBODY},
    {"mpi_memory_alloc_kinds", "cuda:host,cuda:managed", NOBODY},
    {"mpi_memory_alloc_kinds", "cuda:devices", NOBODY},
    {"mpi_memory_alloc_kinds", "cuda:devic", NOBODY},
    {"mpi_memory_alloc_kinds", "cuda,:device", NOBODY},
    {"mpi_memory_alloc_kinds", "cuda;device", NOBODY},
    {"mpi_memory_alloc_kinds", "device:cuda", NOBODY},
    {"mpi_memory_alloc_kinds", "xcuda:device", NOBODY},
    {"mpi_memory_alloc_kinds", "CUDA:DEVICE", NOBODY},
    {"mpi_memory_alloc_kinds", "rocm:device", NOBODY},
    {"mpi_memory_alloc_kinds", ":,:", NOBODY},
    {"mpi_assert_memory_alloc_kinds", "cuda:device", NOBODY},
};
#define HINTS (sizeof(hints) / sizeof(hints[0]))

static const hint_t nothing = {NULL, NULL, NOBODY};

static bool gives_gpu(const hint_t *hint)
{
    return POOL == hint->by || (KINDS == hint->by && loaded);
}

static MPI_Info info_of(const hint_t *hint)
{
    MPI_Info info = MPI_INFO_NULL;

    if (NULL != hint->key) {
        MPI_Info_create(&info);
        MPI_Info_set(info, hint->key, hint->value);
    }
    return info;
}

static void info_end(MPI_Info info)
{
    if (MPI_INFO_NULL != info) {
        MPI_Info_free(&info);
    }
}

/* What is said of a check that failed; returns ok. */
static bool expect(const check_t *t, bool ok, const char *what, const hint_t *hint)
{
    if (!ok) {
        fprintf(stderr, "kinds: FAIL on rank %d: %s (%s=%s)\n", t->rank, what,
                NULL != hint->key ? hint->key : "no info", NULL != hint->key ? hint->value : "");
    }
    return ok;
}

/* ---- Allocations ---- */

static void one_memory(check_t *t, const hint_t *hint)
{
    MPI_Info info = info_of(hint);
    void *p = NULL;
    bool ok = expect(t, MPI_SUCCESS == MPI_Alloc_mem(1000, info, &p) && NULL != p, "MPI_Alloc_mem", hint);

    ok = ok && expect(t, gives_gpu(hint) != mem_plain(p), "the memory is of the other kind", hint);
    if (MPI_INFO_NULL != info) { /* the program's object is as it was */
        int keys = 0;
        char key[MPI_MAX_INFO_KEY + 1];
        MPI_Info_get_nkeys(info, &keys);
        MPI_Info_get_nthkey(info, 0, key);
        ok = expect(t, 1 == keys && 0 == strcmp(key, hint->key), "its info object was changed", hint) && ok;
    }
    info_end(info);
    check_result(t, expect(t, MPI_SUCCESS == MPI_Free_mem(p), "MPI_Free_mem", hint) && ok);
}

/* Fortran's entry points, as a compiler calls them. Without libgpusym_kinds they are only in libraries for Fortran. */
static void one_fortran(check_t *t, const char *name, bool window, const hint_t *hint)
{
    typedef void alloc_mem_t(const MPI_Aint *, const MPI_Fint *, void *, MPI_Fint *);
    typedef void win_allocate_t(const MPI_Aint *, const MPI_Fint *, const MPI_Fint *, const MPI_Fint *, void *,
                                MPI_Fint *, MPI_Fint *);
    const MPI_Aint size = 1000;
    const MPI_Fint unit = 1, comm = MPI_Comm_c2f(t->world);
    MPI_Info info = info_of(hint);
    const MPI_Fint info_f = MPI_Info_c2f(info);
    MPI_Fint win_f = -1, ierr = -1;
    void *symbol = dlsym(RTLD_DEFAULT, name), *p = NULL;
    bool ok = expect(t, NULL != symbol, name, hint);

    if (ok && window) {
        win_allocate_t *call;
        memcpy(&call, &symbol, sizeof(call));
        call(&size, &unit, &info_f, &comm, &p, &win_f, &ierr);
    } else if (ok) {
        alloc_mem_t *call;
        memcpy(&call, &symbol, sizeof(call));
        call(&size, &info_f, &p, &ierr);
    }
    ok = ok && expect(t, MPI_SUCCESS == ierr && NULL != p, name, hint);
    ok = ok && expect(t, gives_gpu(hint) != mem_plain(p), "the memory is of the other kind", hint);
    if (ok && window) {
        MPI_Win win = MPI_Win_f2c(win_f);
        ok = MPI_SUCCESS == MPI_Win_free(&win);
    } else if (ok) {
        ok = MPI_SUCCESS == MPI_Free_mem(p);
    }
    info_end(info);
    check_result(t, ok);
}

static void fortran(check_t *t)
{
    static const struct {
        const char *name;
        bool window;
    } names[] = {
        {"mpi_alloc_mem_", false},   {"mpi_alloc_mem_cptr_", false},   {"mpi_alloc_mem_f08_", false},
        {"mpi_win_allocate_", true}, {"mpi_win_allocate_cptr_", true}, {"mpi_win_allocate_f08_", true},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        one_fortran(t, names[i].name, names[i].window, &hints[2]);
        one_fortran(t, names[i].name, names[i].window, &nothing);
    }
}

/* ---- Windows ---- */

static void *window(MPI_Comm comm, size_t bytes, const hint_t *hint, MPI_Win *win)
{
    MPI_Info info = info_of(hint);
    void *p = NULL;

    if (MPI_SUCCESS != MPI_Win_allocate((MPI_Aint) bytes, UNIT, info, comm, &p, win)) {
        p = NULL;
    }
    info_end(info);
    return p;
}

/* What MPI says of a window. */
static bool attributes(const check_t *t, MPI_Win win, const void *p, size_t bytes, const hint_t *hint)
{
    void *base = NULL;
    MPI_Aint *size = NULL;
    int *unit = NULL, *flavor = NULL, found[4] = {0, 0, 0, 0};
    bool ok;

    MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &found[0]);
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &size, &found[1]);
    MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit, &found[2]);
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &found[3]);
    ok = found[0] && found[1] && found[2] && found[3];
    ok = ok && base == p && (MPI_Aint) bytes == *size && UNIT == *unit && MPI_WIN_FLAVOR_ALLOCATE == *flavor;
    return expect(t, ok, "the window's attributes", hint);
}

/* One-sided calls reach a window of which some part is GPU memory: test/mpi/rma.c has them all. bytes: of the part of
 * the next rank. */
static bool reaches(const check_t *t, MPI_Win win, size_t bytes, const hint_t *hint)
{
    const int peer = (t->rank + 1) % t->nranks, value = 1000 + t->rank;
    int got = 0, class = MPI_SUCCESS;

    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    bool ok = MPI_SUCCESS == MPI_Win_fence(0, win) && MPI_SUCCESS == MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, win);
    MPI_Error_class(MPI_Put(&value, 1, MPI_INT, peer, 0, 1, MPI_INT, win), &class);
    ok = ok && class == (0 == bytes ? MPI_ERR_RMA_RANGE : MPI_SUCCESS) && MPI_SUCCESS == MPI_Win_flush(peer, win);
    if (0 != bytes) {
        ok = ok && MPI_SUCCESS == MPI_Get(&got, 1, MPI_INT, peer, 0, 1, MPI_INT, win);
    }
    ok = MPI_SUCCESS == MPI_Win_unlock(peer, win) && ok && (0 == bytes || value == got);
    ok = MPI_SUCCESS == MPI_Win_fence(MPI_MODE_NOSUCCEED, win) && ok;
    return expect(t, ok, "one-sided calls on a window of GPU memory", hint);
}

/* One-sided calls on host memory are Open MPI's, as ever. */
static bool put_round(const check_t *t, MPI_Win win, const int *p, const hint_t *hint)
{
    int value = 1000 + t->rank;
    const int to = (t->rank + 1) % t->nranks, from = (t->rank + t->nranks - 1) % t->nranks;

    MPI_Win_fence(0, win);
    MPI_Put(&value, 1, MPI_INT, to, 3, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    return expect(t, 1000 + from == p[3], "MPI_Put on a window of host memory", hint);
}

/* Sums over all ranks between two windows, element by element: right, and by the way that this memory goes. */
static bool sums(const check_t *t, int *in, int *out, bool gpu, bool native, const hint_t *hint)
{
    int *image = malloc(ELEMENTS * sizeof(int)), wrong = 0;
    const char *way = !gpu ? "forwarded" : native ? "zero_copy" : NULL;
    const unsigned long long before = NULL != way ? mpit_count("allreduce", way) : 0;

    for (unsigned k = 0; k < ELEMENTS; k++) {
        image[k] = t->rank + (int) k;
    }
    mem_write(in, image, ELEMENTS * sizeof(int));
    MPI_Allreduce(in, out, ELEMENTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (NULL != way && !expect(t, 1 == mpit_count("allreduce", way) - before, way, hint)) {
        wrong++;
    }
    mem_read(image, out, ELEMENTS * sizeof(int));
    for (unsigned k = 0; k < ELEMENTS; k++) {
        wrong += image[k] != t->nranks * (t->nranks - 1) / 2 + t->nranks * (int) k;
    }
    free(image);
    return expect(t, 0 == wrong, "the sums", hint);
}

static void one_window(check_t *t, const hint_t *hint, bool native)
{
    const size_t bytes = ELEMENTS * sizeof(int);
    const bool gpu = gives_gpu(hint);
    MPI_Win win[2];
    int *in = window(t->world, bytes, hint, &win[0]), *out = window(t->world, bytes, hint, &win[1]);
    bool ok = expect(t, NULL != in && NULL != out, "MPI_Win_allocate", hint);

    ok = ok &&
         expect(t, gpu != mem_plain(in) && gpu != mem_plain(out), "the window's memory is of the other kind", hint);
    ok = ok && attributes(t, win[0], in, bytes, hint) && attributes(t, win[1], out, bytes, hint);
    /* Collective from here on: what one rank found must not keep it from the others. */
    ok = (gpu ? reaches(t, win[0], bytes, hint) : put_round(t, win[0], in, hint)) && ok;
    ok = sums(t, in, out, gpu, native, hint) && ok;
    ok = MPI_SUCCESS == MPI_Win_free(&win[0]) && MPI_SUCCESS == MPI_Win_free(&win[1]) && ok;
    check_result(t, expect(t, ok, "a window", hint));
}

/* Some ranks ask for GPU memory, others for none of it, and one for no memory at all. */
static void mixed(check_t *t, int asking)
{
    const hint_t *hint = t->rank % 2 == asking ? &hints[2] : &nothing;
    const size_t most = 100000, bytes = t->nranks > 2 && 2 == t->rank ? 0 : most;
    const bool any = loaded && (0 == asking || t->nranks > 1), gpu = gives_gpu(hint);
    MPI_Win win = MPI_WIN_NULL;
    char *p = window(t->world, bytes, hint, &win), byte = 7;
    bool ok = expect(t, MPI_WIN_NULL != win && (0 == bytes || NULL != p), "MPI_Win_allocate on mixed ranks", hint);

    ok = ok && expect(t, 0 == bytes || gpu != mem_plain(p), "mixed ranks: memory of the other kind", hint);
    if (any) {
        ok = reaches(t, win, t->nranks > 2 && 2 == (t->rank + 1) % t->nranks ? 0 : most, hint) && ok;
    }
    if (ok && bytes > 0) {
        mem_write(p + bytes - 1, &byte, 1);
        byte = 0;
        mem_read(&byte, p + bytes - 1, 1);
        ok = 7 == byte;
    }
    check_result(t, MPI_SUCCESS == MPI_Win_free(&win) && expect(t, ok, "mixed ranks", hint));
}

/* Windows of other communicators and flavors. */
static void others(check_t *t)
{
    const hint_t *hint = &hints[0];
    MPI_Comm half;
    MPI_Win win;
    MPI_Info info = info_of(hint);
    void *p, *q = NULL;

    p = window(MPI_COMM_SELF, 100, hint, &win);
    check_result(t, expect(t, NULL != p && !mem_plain(p), "a window of MPI_COMM_SELF", hint));
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);

    /* Different info objects, but no rank that asks shares a window with one that does not. */
    MPI_Comm_split(t->world, t->rank % 2, -t->rank, &half);
    p = window(half, 100, 0 == t->rank % 2 ? hint : &nothing, &win);
    check_result(t, expect(t, NULL != p && (0 != t->rank % 2) == mem_plain(p), "a window of half of the ranks", hint));
    MPI_Comm_free(&half);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);

    MPI_Win_allocate_shared(100, 1, info, t->world, &q, &win);
    check_result(t, expect(t, NULL != q && !mem_plain(q), "a window of shared memory", hint));
    MPI_Win_free(&win);
    info_end(info);
    /* Who names kinds wants that memory for the CPUs of all ranks. */
    info = info_of(&hints[2]);
    MPI_Win_allocate_shared(100, 1, info, t->world, &q, &win);
    check_result(t, expect(t, NULL != q && mem_plain(q), "a window of shared memory", &hints[2]));
    MPI_Win_free(&win);
    info_end(info);
#if MPI_VERSION >= 4
    info = info_of(&hints[2]);
    MPI_Win_allocate_c(100, 1, info, t->world, &q, &win);
    check_result(t, expect(t, NULL != q && loaded != mem_plain(q), "MPI_Win_allocate_c", &hints[2]));
    MPI_Win_free(&win);
    info_end(info);
#endif
}

/* GPU memory of this process that is allocated. 0 on GPUs, where the simulator does not count. */
static uint64_t bytes_now(void)
{
    uint64_t now = 0;

    if (NULL != gpusym_device() && gpusym_device()->simulated) {
        gpusym_sim_bytes(&now, NULL);
    }
    return now;
}

/* What was freed can be had again without end: two windows at a time, freed in either order. */
static void churn(check_t *t, uint64_t rounds)
{
    const uint64_t before = bytes_now();

    for (uint64_t i = 0; i < rounds; i++) {
        MPI_Win win[2];
        void *p = window(t->world, 1000000, &hints[2], &win[0]), *q = window(t->world, 10, &hints[i % HINTS], &win[1]);
        bool ok = NULL != p && NULL != q && loaded != mem_plain(p);

        MPI_Win_fence(0, win[i % 2]);
        ok = MPI_SUCCESS == MPI_Win_free(&win[i % 2]) && ok;
        ok = MPI_SUCCESS == MPI_Win_free(&win[1 - i % 2]) && ok;
        check_result(t, expect(t, ok, "the n-th window", &hints[2]));
    }
    check_result(t, expect(t, bytes_now() == before, "GPU memory was not given back", &nothing));
    check_collect(t);
}

/* The first allocation of GPU memory on rank 1 fails. */
static void fails(check_t *t)
{
    const uint64_t before = bytes_now();
    MPI_Win win;

    for (int round = 0; round < 2; round++) {
        int *p = window(t->world, 100000, &hints[0], &win);
        bool ok = expect(t, NULL != p, "MPI_Win_allocate beside a rank that fails", &hints[0]);

        ok = ok &&
             expect(t, (0 == round) == mem_plain(p), "memory of the other kind beside a rank that fails", &hints[0]);
        ok = (0 == round ? put_round(t, win, p, &hints[0]) : reaches(t, win, 100000, &hints[0])) && ok;
        check_result(t, MPI_SUCCESS == MPI_Win_free(&win) && ok);
    }
    check_result(t, expect(t, bytes_now() == before, "GPU memory was not given back", &nothing));
}

int main(int argc, char **argv)
{
    static check_t t;
    uint64_t rounds;
    long failed;
    bool native, failing;

    check_init(&argc, &argv, "kinds", MPI_THREAD_SINGLE);
    loaded = !check_flag("--plain");
    failing = check_flag("--fails");
    rounds = check_number("--rounds", 300);
    check_arguments_end(USAGE);
    if (!mem_have(MEM_DEVICE)) {
        printf("kinds: needs GPU memory\n");
        return check_fini(0), CHECK_SKIPPED;
    }
    check_start(&t, "kinds", MPI_COMM_WORLD);
    if (failing) { /* first of all, before a collective takes memory */
        fails(&t);
    } else {
        for (size_t i = 0; i < HINTS; i++) {
            one_memory(&t, &hints[i]);
        }
        if (loaded) {
            fortran(&t);
        }
        native = t.nranks > 1 && check_native(MEM_DEVICE);
        mpit_need("coll_gpusym_zero_copy_min", 1);
        if (native) {
            mpit_algorithm("allreduce", "rsxst_agxst");
        }
        for (size_t i = 0; i < HINTS; i++) {
            one_window(&t, &hints[i], native);
        }
        mixed(&t, 0);
        mixed(&t, 1);
        others(&t);
        churn(&t, rounds);
    }
    failed = check_end(&t);
    check_print("kinds", t.passed, t.failed);
    return check_fini(failed);
}
