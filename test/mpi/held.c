/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * To be loaded before a program (LD_PRELOAD): counts the blocks of memory that the program and gpusym's libraries have
 * from the C library and have not freed. Open MPI's own are left out: some of its components keep what belonged to a
 * persistent request (coll/libnbc of 4.1), or to a communicator.
 *
 *     held_begin()               from now on; again where libraries have been loaded since
 *     held_now(&blocks, &bytes)  of those allocated since the first held_begin()
 *
 * bytes is that of blocks of less than HELD_LARGE: tables that double are few and large.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER ((uintptr_t) __builtin_return_address(0))

enum { RANGES = 128, TABLE = 1 << 20, HELD_LARGE = 256 << 10 };

/* The C library's own, by the names that it has for libraries like this one. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *p);

EXPORT void held_begin(void);
EXPORT bool held_now(long *blocks, long *bytes);

typedef struct {
    uintptr_t p;
    size_t size;
} block_t;

/* Covered by the lock but for `nranges`, behind which the ranges do not change. */
static struct {
    pthread_mutex_t lock;
    unsigned nranges; /* 0: nothing is counted yet */
    struct {
        uintptr_t from, to;
    } range[RANGES];
    block_t block[TABLE]; /* by address, open addressing */
    long blocks, bytes;
    bool full;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- whose call ---- */

static bool is_known(uintptr_t from)
{
    for (unsigned i = 0; i < held.nranges; i++) {
        if (held.range[i].from == from) {
            return true;
        }
    }
    return false;
}

/* The program's name is "". */
static int add_object(struct dl_phdr_info *object, size_t size, void *unused)
{
    const bool ours = '\0' == *object->dlpi_name || NULL != strstr(object->dlpi_name, "gpusym");

    (void) size, (void) unused;
    for (int i = 0; ours && i < object->dlpi_phnum; i++) {
        const uintptr_t from = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        const bool code = PT_LOAD == object->dlpi_phdr[i].p_type && 0 != (PF_X & object->dlpi_phdr[i].p_flags);
        if (code && held.nranges < RANGES && !is_known(from)) {
            held.range[held.nranges].from = from;
            held.range[held.nranges].to = from + object->dlpi_phdr[i].p_memsz;
            __atomic_store_n(&held.nranges, held.nranges + 1, __ATOMIC_RELEASE);
        }
    }
    return 0;
}

void held_begin(void)
{
    dl_iterate_phdr(add_object, NULL);
}

static bool is_ours(uintptr_t caller)
{
    const unsigned n = __atomic_load_n(&held.nranges, __ATOMIC_ACQUIRE);

    for (unsigned i = 0; i < n; i++) {
        if (held.range[i].from <= caller && caller < held.range[i].to) {
            return true;
        }
    }
    return false;
}

/* ---- the table ---- */

static size_t place_of(uintptr_t p)
{
    return (size_t) ((p >> 4) * 0x9e3779b97f4a7c15u >> 44) % TABLE;
}

static void tally(const block_t *b, long sign)
{
    held.blocks += sign;
    held.bytes += b->size < HELD_LARGE ? sign * (long) b->size : 0;
}

static void *add(uintptr_t caller, void *p, size_t size)
{
    if (NULL == p || !is_ours(caller)) {
        return p;
    }
    pthread_mutex_lock(&held.lock);
    held.full = held.full || held.blocks > TABLE / 2;
    if (!held.full) {
        size_t at = place_of((uintptr_t) p);
        while (0 != held.block[at].p) {
            at = (at + 1) % TABLE;
        }
        held.block[at] = (block_t){(uintptr_t) p, size};
        tally(&held.block[at], 1);
    }
    pthread_mutex_unlock(&held.lock);
    return p;
}

/* Moves what follows to where it is found without the block at `hole`. */
static void close_up(size_t hole)
{
    for (size_t at = (hole + 1) % TABLE; 0 != held.block[at].p; at = (at + 1) % TABLE) {
        const size_t from = place_of(held.block[at].p);
        if ((at - from + TABLE) % TABLE >= (at - hole + TABLE) % TABLE) {
            held.block[hole] = held.block[at];
            hole = at;
        }
    }
    held.block[hole].p = 0;
}

static void drop(void *p)
{
    if (NULL == p || 0 == __atomic_load_n(&held.nranges, __ATOMIC_ACQUIRE)) {
        return;
    }
    pthread_mutex_lock(&held.lock);
    size_t at = place_of((uintptr_t) p);
    while (0 != held.block[at].p && (uintptr_t) p != held.block[at].p) {
        at = (at + 1) % TABLE;
    }
    if (0 != held.block[at].p) {
        tally(&held.block[at], -1);
        close_up(at);
    }
    pthread_mutex_unlock(&held.lock);
}

/* False: there were more than it can count. */
bool held_now(long *blocks, long *bytes)
{
    pthread_mutex_lock(&held.lock);
    const bool right = !held.full;
    *blocks = held.blocks;
    *bytes = held.bytes;
    pthread_mutex_unlock(&held.lock);
    return right;
}

/* ---- in the C library's place ---- */

EXPORT void *malloc(size_t size)
{
    return add(CALLER, __libc_malloc(size), size);
}

EXPORT void *calloc(size_t n, size_t size)
{
    return add(CALLER, __libc_calloc(n, size), n * size);
}

/* Where it fails, p is no longer counted, though it is there. */
EXPORT void *realloc(void *p, size_t size)
{
    drop(p);
    return add(CALLER, __libc_realloc(p, size), size);
}

EXPORT void *memalign(size_t align, size_t size)
{
    return add(CALLER, __libc_memalign(align, size), size);
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
    return add(CALLER, __libc_memalign(align, size), size);
}

EXPORT int posix_memalign(void **p, size_t align, size_t size)
{
    if (0 == align || 0 != (align & (align - 1)) || 0 != align % sizeof(void *)) {
        return EINVAL;
    }
    void *const got = add(CALLER, __libc_memalign(align, size), size);
    if (NULL == got) {
        return ENOMEM;
    }
    *p = got;
    return 0;
}

EXPORT void free(void *p)
{
    drop(p);
    __libc_free(p);
}

EXPORT char *strdup(const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = add(CALLER, __libc_malloc(size), size);

    return NULL == copy ? NULL : memcpy(copy, text, size);
}
