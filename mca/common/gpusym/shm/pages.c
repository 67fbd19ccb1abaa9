/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The slab of this process, and those of its peers: see pages.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/shm/pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/shm/arena.h"
#include "mca/common/gpusym/shm/fd.h"
#include "mca/common/gpusym/shm/gauges.h"
#include "mca/common/gpusym/shm/process.h"

/* ---- the slab ---- */

/* Sparse: only what was touched takes memory. Room for 26,000 communicators, and tables for as many of 18 ranks. */
#define SLAB_BYTES (96ull << 20)
/* "gpusypg" and a digit, which changes with what gpusym_pages_look() finds: lines, areas. */
#define SLAB_MAGIC 0x6770757379706735ull
#define SLAB_MAGIC_VERSION 0xffull

/* The slab's first line. */
typedef struct {
    gpusym_segment_head_t segment;
    uint64_t token; /* see gpusym_peer_token */
    uint64_t lines; /* lines handed out so far, freed ones too; only rises */
    int64_t owner;  /* process id: another process may have this slab open for a moment */
} slab_head_t;
/* Then the areas, then the lines, then the tables. */
#define SLAB_AREAS 4096u
#define SLAB_LINES (SLAB_AREAS + (uint64_t) GPUSYM_AREAS_BYTES)
#define SLAB_TABLES (64ull << 20)
_Static_assert(sizeof(slab_head_t) <= SLAB_AREAS, "the head does not fit its place");
_Static_assert(sizeof(gpusym_gauges_t) <= GPUSYM_AREA_GAUGES_LAST - GPUSYM_AREA_GAUGES, "nor do the gauges");
_Static_assert(0 == GPUSYM_PAGES_LINE % 64, "lines are whole cache lines");
/* Where the end of a line begins. */
#define LINE_END (GPUSYM_PAGES_LINE - sizeof(gpusym_line_end_t))

struct gpusym_peer {
    gpusym_pages_id_t id;
    char *base;
    int pidfd;  /* -1: the kernel has none, or it is ourselves */
    bool ended; /* its process was found to have ended; it was last looked for at looked_ns */
    uint64_t looked_ns;
    struct gpusym_peer *next;
};

/* How often a peer that retires nothing is looked for. In nanoseconds. */
#define LOOK_NS 10000000ull

/* A line of this process that peers may still read. */
typedef struct retired {
    uint64_t off;
    uint64_t table[GPUSYM_LINE_TABLES]; /* 0: it has none */
    uint32_t nranks, next;              /* ranks below `next` have retired theirs */
    void **line;
    uint64_t *generation;
    struct retired *after;
} retired_t;

static struct {
    pthread_mutex_t lock;
    gpusym_pages_id_t id;
    gpusym_arena_t *lines, *tables;
    char *base; /* atomic: gpusym_pages_area() reads it without the lock */
    gpusym_peer_t *peers;
    uint64_t generation; /* the last one given to a line; even */
    retired_t *retired;  /* not to be handed out yet */
} slab = {.lock = PTHREAD_MUTEX_INITIALIZER};

static gpusym_line_end_t *line_end(void *line)
{
    return (gpusym_line_end_t *) (void *) ((char *) line + LINE_END);
}

static void free_arenas(void)
{
    gpusym_arena_destroy(slab.lines);
    gpusym_arena_destroy(slab.tables);
    slab.lines = slab.tables = NULL;
}

/* Makes the slab of this process. With the lock held. */
static int make_slab(void)
{
    void *base;
    const int rc = gpusym_segment_make("gpusym", SLAB_MAGIC, SLAB_BYTES, &slab.id, &base);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    slab.lines = gpusym_arena_create(SLAB_TABLES - SLAB_LINES, 64);
    slab.tables = gpusym_arena_create(SLAB_BYTES - SLAB_TABLES, 64);
    if (NULL == slab.lines || NULL == slab.tables) {
        free_arenas();
        gpusym_segment_free(&slab.id, base);
        errno = ENOMEM;
        return GPUSYM_ERR_NO_MEMORY;
    }
    __atomic_store_n(&slab.base, base, __ATOMIC_RELEASE);
    ((slab_head_t *) base)->owner = getpid();
    gpusym_gauges_move((gpusym_gauges_t *) gpusym_pages_area(GPUSYM_AREA_GAUGES));
    return GPUSYM_SUCCESS;
}

int gpusym_pages_open(gpusym_pages_id_t *id)
{
    pthread_mutex_lock(&slab.lock);
    const int rc = NULL != slab.base ? GPUSYM_SUCCESS : make_slab();
    *id = slab.id;
    pthread_mutex_unlock(&slab.lock);
    return rc;
}

static void free_retired(retired_t *l)
{
    free(l->line);
    free(l->generation);
    free(l);
}

/* Whether the process that has this line has ended: it neither reads nor retires any more. With the lock held. */
static bool has_ended(const void *line)
{
    gpusym_peer_t *p = slab.peers;
    while (NULL != p && ((const char *) line < p->base || (const char *) line >= p->base + SLAB_BYTES)) {
        p = p->next;
    }
    const uint64_t now = gpusym_now_ns();
    if (NULL != p && !p->ended && now - p->looked_ns > LOOK_NS) {
        p->looked_ns = now;
        p->ended = !gpusym_pidfd_alive(p->pidfd, p->id.pid);
    }
    return NULL != p && p->ended;
}

static bool has_retired(const retired_t *l, uint32_t r)
{
    return gpusym_line_generation(l->line[r]) != l->generation[r] || has_ended(l->line[r]);
}

/* Frees the lines that no peer reads any more. With the lock held. */
static void sweep_retired(void)
{
    for (retired_t **link = &slab.retired; NULL != *link;) {
        retired_t *l = *link;
        while (l->next < l->nranks && has_retired(l, l->next)) {
            l->next++;
        }
        if (l->next < l->nranks) {
            link = &l->after;
            continue;
        }
        *link = l->after;
        gpusym_arena_free(slab.lines, l->off - SLAB_LINES);
        for (int i = 0; i < GPUSYM_LINE_TABLES; i++) {
            if (0 != l->table[i]) {
                gpusym_arena_free(slab.tables, l->table[i] - SLAB_TABLES);
            }
        }
        free_retired(l);
    }
}

void gpusym_pages_close(void)
{
    pthread_mutex_lock(&slab.lock);
    while (NULL != slab.retired) {
        retired_t *l = slab.retired;
        slab.retired = l->after;
        free_retired(l);
    }
    while (NULL != slab.peers) {
        gpusym_peer_t *peer = slab.peers;
        slab.peers = peer->next;
        if (peer->base != slab.base) {
            munmap(peer->base, peer->id.bytes);
        }
        if (peer->pidfd >= 0) {
            close(peer->pidfd);
        }
        free(peer);
    }
    if (NULL != slab.base) {
        free_arenas();
        gpusym_gauges_move(NULL);
        gpusym_segment_free(&slab.id, slab.base);
        __atomic_store_n(&slab.base, NULL, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&slab.lock);
    gpusym_fd_close();
}

/* Lets peers that search for lines find this one: all lines have one size and lie at its multiples. With the lock
 * held. */
static void count_line(uint64_t off)
{
    slab_head_t *head = (slab_head_t *) (void *) slab.base;
    const uint64_t lines = (off - SLAB_LINES) / GPUSYM_PAGES_LINE + 1;
    if (lines > head->lines) {
        __atomic_store_n(&head->lines, lines, __ATOMIC_RELEASE);
    }
}

int gpusym_pages_alloc(uint64_t *off)
{
    pthread_mutex_lock(&slab.lock);
    int rc = GPUSYM_ERR_NOT_AVAILABLE;
    if (NULL != slab.base) {
        sweep_retired();
        rc = gpusym_arena_alloc(slab.lines, GPUSYM_PAGES_LINE, off);
    }
    if (GPUSYM_SUCCESS == rc) {
        *off += SLAB_LINES;
        gpusym_line_end_t *end = line_end(slab.base + *off);
        memset(slab.base + *off, 0, LINE_END); /* peers of its last use may read the generation */
        end->key = 0;
        slab.generation += 2;
        __atomic_store_n(&end->generation, slab.generation, __ATOMIC_RELEASE);
        count_line(*off);
    }
    pthread_mutex_unlock(&slab.lock);
    return rc;
}

void gpusym_pages_free(uint64_t off)
{
    pthread_mutex_lock(&slab.lock);
    if (NULL != slab.base) {
        gpusym_line_end_t *end = line_end(slab.base + off);
        __atomic_store_n(&end->key, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&end->generation, end->generation + 1, __ATOMIC_RELEASE);
        gpusym_arena_free(slab.lines, off - SLAB_LINES);
    }
    pthread_mutex_unlock(&slab.lock);
}

int gpusym_pages_alloc_table(uint64_t bytes, uint64_t *off)
{
    pthread_mutex_lock(&slab.lock);
    sweep_retired();
    const int rc = gpusym_arena_alloc(slab.tables, bytes, off);
    if (GPUSYM_SUCCESS == rc) {
        *off += SLAB_TABLES;
        memset(slab.base + *off, 0, bytes);
    }
    pthread_mutex_unlock(&slab.lock);
    return rc;
}

void gpusym_pages_free_table(uint64_t off)
{
    pthread_mutex_lock(&slab.lock);
    if (NULL != slab.base) {
        gpusym_arena_free(slab.tables, off - SLAB_TABLES);
    }
    pthread_mutex_unlock(&slab.lock);
}

void gpusym_pages_retire(uint64_t off, const uint64_t *table, uint32_t nranks, uint32_t rank, void **line,
                         uint64_t *generation)
{
    retired_t *l = malloc(sizeof *l);
    pthread_mutex_lock(&slab.lock);
    if (NULL != slab.base) { /* release: what we read of the peers' lines, we have read */
        gpusym_line_end_t *end = line_end(line[rank]);
        __atomic_store_n(&end->key, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&end->generation, generation[rank] + 1, __ATOMIC_RELEASE);
    }
    if (NULL != l && NULL != slab.base) {
        *l = (retired_t){.off = off, .nranks = nranks, .line = line, .generation = generation, .after = slab.retired};
        memcpy(l->table, table, sizeof l->table);
        slab.retired = l;
        l = NULL;
    } else { /* the line is lost */
        free(line);
        free(generation);
    }
    pthread_mutex_unlock(&slab.lock);
    free(l);
}

bool gpusym_pages_is_in_use(uint64_t off)
{
    pthread_mutex_lock(&slab.lock);
    sweep_retired();
    const retired_t *l = slab.retired;
    while (NULL != l && l->off != off) {
        l = l->after;
    }
    pthread_mutex_unlock(&slab.lock);
    return NULL != l;
}

/* ---- peers ---- */

/* Finds a peer, or maps its slab. With the lock held. */
static int get_peer(const gpusym_pages_id_t *id, gpusym_peer_t **peer)
{
    for (gpusym_peer_t *p = slab.peers; NULL != p; p = p->next) {
        if (gpusym_segment_same(&p->id, id)) {
            *peer = p;
            return GPUSYM_SUCCESS;
        }
    }
    gpusym_peer_t *p = calloc(1, sizeof *p);
    if (NULL == p) {
        gpusym_log_no_memory("a peer's pages");
        return GPUSYM_ERR_NO_MEMORY;
    }
    p->id = *id;
    p->pidfd = -1;
    if (NULL != slab.base && gpusym_segment_same(&slab.id, id)) {
        p->base = slab.base;
    } else {
        void *base;
        const int rc = gpusym_segment_map(id, SLAB_MAGIC, SLAB_BYTES, &base);
        if (GPUSYM_SUCCESS != rc) {
            const int error = errno;
            free(p);
            errno = error;
            return rc;
        }
        p->base = base;
        p->pidfd = gpusym_pidfd_open(id->pid);
        gpusym_fd_admit(id->pid);
    }
    p->next = slab.peers;
    slab.peers = p;
    *peer = p;
    return GPUSYM_SUCCESS;
}

int gpusym_pages_peer(const gpusym_pages_id_t *id, gpusym_peer_t **peer)
{
    pthread_mutex_lock(&slab.lock);
    const int rc = get_peer(id, peer);
    pthread_mutex_unlock(&slab.lock);
    return rc;
}

bool gpusym_line_fits(uint64_t off)
{
    return off >= SLAB_LINES && off <= SLAB_TABLES - GPUSYM_PAGES_LINE && 0 == off % 64;
}

void *gpusym_peer_line(gpusym_peer_t *peer, uint64_t off)
{
    return !gpusym_line_fits(off) ? NULL : peer->base + off;
}

void *gpusym_peer_table(gpusym_peer_t *peer, uint64_t off, uint64_t bytes)
{
    const bool fits = off >= SLAB_TABLES && off <= SLAB_BYTES && bytes <= SLAB_BYTES - off && 0 == off % 64;
    return fits ? peer->base + off : NULL;
}

void *gpusym_pages_line(uint64_t off)
{
    return slab.base + off;
}

uint64_t gpusym_line_generation(const void *line)
{
    const gpusym_line_end_t *end = (const void *) ((const char *) line + LINE_END);
    return __atomic_load_n(&end->generation, __ATOMIC_ACQUIRE);
}

uint64_t gpusym_peer_lines(const gpusym_peer_t *peer)
{
    const slab_head_t *head = (const slab_head_t *) (const void *) peer->base;
    const uint64_t lines = __atomic_load_n(&head->lines, __ATOMIC_ACQUIRE);
    const uint64_t room = (SLAB_TABLES - SLAB_LINES) / GPUSYM_PAGES_LINE;
    return lines < room ? lines : room; /* a bound that holds even if the peer's memory is corrupt */
}

const void *gpusym_peer_line_at(const gpusym_peer_t *peer, uint64_t i)
{
    return peer->base + SLAB_LINES + i * GPUSYM_PAGES_LINE;
}

uint64_t *gpusym_peer_token(gpusym_peer_t *peer)
{
    return &((slab_head_t *) (void *) peer->base)->token;
}

/* No processor of x86-64 refuses the instruction, but compilers do not emit it for all of them. */
#if defined(__x86_64__)
#define WITH_PREFETCHW __attribute__((target("prfchw")))
#else
#define WITH_PREFETCHW
#endif

WITH_PREFETCHW void gpusym_peer_token_prefetch(gpusym_peer_t *peer)
{
    __builtin_prefetch(gpusym_peer_token(peer), 1);
}

const gpusym_pages_id_t *gpusym_peer_id(const gpusym_peer_t *peer)
{
    return &peer->id;
}

void *gpusym_pages_area(gpusym_area_t area)
{
    char *base = __atomic_load_n(&slab.base, __ATOMIC_ACQUIRE);
    void *at = NULL != base ? base + SLAB_AREAS + area : NULL;
    return at;
}

void *gpusym_peer_area(gpusym_peer_t *peer, gpusym_area_t area)
{
    return peer->base + SLAB_AREAS + area;
}

int gpusym_peer_pid(const gpusym_peer_t *peer)
{
    return peer->id.pid;
}

bool gpusym_peer_alive(gpusym_peer_t *peer)
{
    return gpusym_pidfd_alive(peer->pidfd, peer->id.pid);
}

/* Opens descriptor fd of process pid, if that is its slab, and reads its head. -1: it is not, or cannot be opened. */
static int open_slab(int32_t pid, int fd, slab_head_t *head)
{
    char path[64], target[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int) pid, fd);
    const ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    if (0 != strncmp(target, "/memfd:gpusym", 13)) {
        return -1;
    }
    const int copy = open(path, O_RDONLY | O_CLOEXEC);
    if (copy >= 0 && (sizeof *head != pread(copy, head, sizeof *head, 0) || pid != head->owner ||
                      SLAB_MAGIC >> 8 != head->segment.magic >> 8)) {
        close(copy);
        return -1;
    }
    return copy;
}

/* Calls `found` for descriptors of process pid until it returns true. Returns whether it has; -1: none can be seen. */
static int each_fd(int32_t pid, bool (*found)(int32_t pid, int fd, void *arg), void *arg)
{
    char path[64];
    const struct dirent *entry;
    bool done = false;

    snprintf(path, sizeof path, "/proc/%d/fd", (int) pid);
    DIR *dir = opendir(path);
    if (NULL == dir) {
        return -1;
    }
    while (!done && NULL != (entry = readdir(dir))) {
        done = '.' != entry->d_name[0] && found(pid, atoi(entry->d_name), arg);
    }
    closedir(dir);
    return done;
}

static bool identify_slab(int32_t pid, int fd, void *arg)
{
    slab_head_t head;
    const int copy = open_slab(pid, fd, &head);
    if (copy < 0) {
        return false;
    }
    close(copy);
    *(gpusym_pages_id_t *) arg =
        (gpusym_pages_id_t){{head.segment.nonce[0], head.segment.nonce[1]}, pid, fd, SLAB_BYTES};
    return SLAB_MAGIC == head.segment.magic;
}

int gpusym_pages_find(int32_t pid, gpusym_peer_t **peer)
{
    gpusym_pages_id_t id;
    const int found = each_fd(pid, identify_slab, &id);
    if (found < 0) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    return found ? gpusym_pages_peer(&id, peer) : GPUSYM_ERR_NOT_AVAILABLE;
}

/* ---- without mapping it ---- */

static bool look_at(int32_t pid, int fd, void *arg)
{
    slab_head_t head;
    gpusym_look_t *look = arg;
    look->fd = open_slab(pid, fd, &head);
    if (look->fd < 0) {
        return false;
    }
    look->other = SLAB_MAGIC != head.segment.magic || !gpusym_memfd_is_sealed(look->fd, SLAB_BYTES);
    look->version = (int) (head.segment.magic & SLAB_MAGIC_VERSION);
    return true;
}

int gpusym_look_open(int32_t pid, gpusym_look_t *look)
{
    *look = (gpusym_look_t){.fd = -1};
    const int found = each_fd(pid, look_at, look);
    if (found < 0) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    if (!found) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    if (look->other) {
        gpusym_look_close(look);
        return GPUSYM_ERR_BAD_PARAM;
    }
    return GPUSYM_SUCCESS;
}

void gpusym_look_close(gpusym_look_t *look)
{
    if (look->fd >= 0) {
        close(look->fd);
        look->fd = -1;
    }
}

uint64_t gpusym_look_lines(const gpusym_look_t *look)
{
    slab_head_t head;
    const uint64_t room = (SLAB_TABLES - SLAB_LINES) / GPUSYM_PAGES_LINE;
    const bool good = sizeof head == pread(look->fd, &head, sizeof head, 0);
    return !good ? 0 : head.lines < room ? head.lines : room;
}

bool gpusym_look_line(const gpusym_look_t *look, uint64_t i, size_t from, size_t bytes, void *copy)
{
    return (ssize_t) bytes == pread(look->fd, copy, bytes, (off_t) (SLAB_LINES + i * GPUSYM_PAGES_LINE + from));
}

bool gpusym_look_area(const gpusym_look_t *look, gpusym_area_t area, size_t bytes, void *copy)
{
    return (ssize_t) bytes == pread(look->fd, copy, bytes, (off_t) (SLAB_AREAS + area));
}
