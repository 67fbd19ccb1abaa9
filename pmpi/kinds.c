/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * libgpusym_kinds: the info key "mpi_memory_alloc_kinds", with "cuda:device" among its values, asks MPI_Alloc_mem and
 * MPI_Win_allocate for GPU memory. Open MPI shows that key to no memory pool, so that this is done by MPI's profiling
 * interface: a library to be loaded before the program's (LD_PRELOAD) or linked with it. It turns the key into the one
 * that mpool/gpusym and osc/gpusym know, "mpool_hints"; all the rest is theirs.
 *
 * It is not part of the components, because MPI-4.1 (11.4.3) says of the key that it tells which kinds of memory may be
 * used, and does not affect what MPI_Alloc_mem and MPI_Win_allocate give. Programs that load this library request it.
 *
 * The syntax is MPI-4.1's: kinds with commas between, each with any number of restrictors behind colons; the kinds of
 * CUDA memory are in the side document "Memory Allocation Kinds" 1.0.
 *
 * MPI_Free_mem and MPI_Win_free need no help. MPI_Win_allocate_shared is left alone: its memory is for the CPUs of all
 * ranks. Fortran's entry points do not come by C's, so the common spellings of their names are here too.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define KEY "mpi_memory_alloc_kinds"
#define KIND "cuda"
#define RESTRICTOR "device"

/* The next of the words that `separator` keeps apart, *text being moved behind it; its length. */
static size_t next_word(const char **text, const char *end, char separator)
{
    const char *hit = memchr(*text, separator, (size_t) (end - *text));
    const size_t length = (size_t) ((NULL != hit ? hit : end) - *text);

    *text += length + (NULL != hit);
    return length;
}

static bool word_is(const char *word, size_t length, const char *what)
{
    return strlen(what) == length && 0 == memcmp(word, what, length);
}

/* Whether one kind, from text to end, is CUDA memory that may be device memory: "cuda:device", "cuda:host:device". */
static bool kind_is_device(const char *text, const char *end)
{
    const char *word = text;

    if (!word_is(word, next_word(&text, end, ':'), KIND)) {
        return false;
    }
    while (text < end) {
        word = text;
        if (word_is(word, next_word(&text, end, ':'), RESTRICTOR)) {
            return true;
        }
    }
    return false;
}

static bool kinds_have_device(const char *kinds)
{
    const char *end = kinds + strlen(kinds);

    while (kinds < end) {
        const char *kind = kinds;
        const size_t length = next_word(&kinds, end, ',');
        if (kind_is_device(kind, kind + length)) {
            return true;
        }
    }
    return false;
}

/* The kinds that an info object names, in value; false if it names none. */
static bool kinds_of(MPI_Info info, char value[MPI_MAX_INFO_VAL + 1])
{
    int found = 0;
#if MPI_VERSION >= 4 /* where MPI_Info_get is deprecated */
    int size = MPI_MAX_INFO_VAL + 1;
    const int rc = PMPI_Info_get_string(info, KEY, &size, value, &found);
#else
    const int rc = PMPI_Info_get(info, KEY, MPI_MAX_INFO_VAL, value, &found);
#endif

    return MPI_SUCCESS == rc && 0 != found;
}

/*
 * The info object to hand on: `info` itself, or, where that asks for GPU memory, a copy in which mpool_hints says so,
 * *made is true and the caller frees it. What mpool_hints said before is about host memory, and is lost. On an error,
 * whose handler has been called, `info` itself: the memory is the host's then.
 */
static MPI_Info translate_info(MPI_Info info, bool *made)
{
    char value[MPI_MAX_INFO_VAL + 1];
    MPI_Info copy;

    *made = false;
    if (MPI_INFO_NULL == info || NULL == info || !kinds_of(info, value) || !kinds_have_device(value) ||
        MPI_SUCCESS != PMPI_Info_dup(info, &copy)) {
        return info;
    }
    if (MPI_SUCCESS != PMPI_Info_set(copy, "mpool_hints", "mpool=gpusym")) {
        (void) PMPI_Info_free(&copy);
        return info;
    }
    *made = true;
    return copy;
}

static void free_translation(MPI_Info *info, bool made)
{
    if (made) {
        (void) PMPI_Info_free(info);
    }
}

/* ---- C ---- */

int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *baseptr)
{
    bool made;
    MPI_Info ours = translate_info(info, &made);
    const int rc = PMPI_Alloc_mem(size, ours, baseptr);

    free_translation(&ours, made);
    return rc;
}

int MPI_Win_allocate(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr, MPI_Win *win)
{
    bool made;
    MPI_Info ours = translate_info(info, &made);
    const int rc = PMPI_Win_allocate(size, disp_unit, ours, comm, baseptr, win);

    free_translation(&ours, made);
    return rc;
}

#if MPI_VERSION >= 4
int MPI_Win_allocate_c(MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr, MPI_Win *win)
{
    bool made;
    MPI_Info ours = translate_info(info, &made);
    const int rc = PMPI_Win_allocate_c(size, disp_unit, ours, comm, baseptr, win);

    free_translation(&ours, made);
    return rc;
}
#endif

/* ---- Fortran: mpif.h and the module mpi (with and without TYPE(C_PTR)), and mpi_f08, as gfortran and its like spell
 * them. A TYPE(MPI_Info) is an integer; an IERROR that was left out is NULL. ---- */

static void alloc_mem_f(const MPI_Aint *size, const MPI_Fint *info, void *baseptr, MPI_Fint *ierr)
{
    const int rc = MPI_Alloc_mem(*size, PMPI_Info_f2c(*info), baseptr);

    if (NULL != ierr) {
        *ierr = (MPI_Fint) rc;
    }
}

/* What the two spellings of a displacement unit have in common: rc and the window are C's. */
static void win_end_f(int rc, MPI_Win made, MPI_Fint *win, MPI_Fint *ierr)
{
    *win = PMPI_Win_c2f(made);
    if (NULL != ierr) {
        *ierr = (MPI_Fint) rc;
    }
}

#define ALLOC_MEM(name)                                                                   \
    void name(const MPI_Aint *size, const MPI_Fint *info, void *baseptr, MPI_Fint *ierr); \
    void name(const MPI_Aint *size, const MPI_Fint *info, void *baseptr, MPI_Fint *ierr)  \
    {                                                                                     \
        alloc_mem_f(size, info, baseptr, ierr);                                           \
    }
#define WIN_ALLOCATE(name, unit_f, unit_c, call)                                                                     \
    void name(const MPI_Aint *size, const unit_f *disp_unit, const MPI_Fint *info, const MPI_Fint *comm,             \
              void *baseptr, MPI_Fint *win, MPI_Fint *ierr);                                                         \
    void name(const MPI_Aint *size, const unit_f *disp_unit, const MPI_Fint *info, const MPI_Fint *comm,             \
              void *baseptr, MPI_Fint *win, MPI_Fint *ierr)                                                          \
    {                                                                                                                \
        MPI_Win made = MPI_WIN_NULL;                                                                                 \
        const int rc = call(*size, (unit_c) *disp_unit, PMPI_Info_f2c(*info), PMPI_Comm_f2c(*comm), baseptr, &made); \
        win_end_f(rc, made, win, ierr);                                                                              \
    }

ALLOC_MEM(mpi_alloc_mem_)
ALLOC_MEM(mpi_alloc_mem_cptr_)
ALLOC_MEM(mpi_alloc_mem_f08_)
WIN_ALLOCATE(mpi_win_allocate_, MPI_Fint, int, MPI_Win_allocate)
WIN_ALLOCATE(mpi_win_allocate_cptr_, MPI_Fint, int, MPI_Win_allocate)
WIN_ALLOCATE(mpi_win_allocate_f08_, MPI_Fint, int, MPI_Win_allocate)
#if MPI_VERSION >= 4
WIN_ALLOCATE(mpi_win_allocate_c_f08_, MPI_Aint, MPI_Aint, MPI_Win_allocate_c)
#endif
