/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pages and roll-call: see rollcall.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/agree/rollcall.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mca/common/gpusym/shm/fd.h"
#include "mca/common/gpusym/memory/heap.h"

/* ---- pages ---- */

/* Sparse: what no line was ever handed out of takes no memory. Room for 28,000 communicators. */
#define SLAB_BYTES (64ull << 20)
#define SLAB_MAGIC 0x6770757379706731ull

/* The slab's first line. */
typedef struct {
    uint64_t magic, nonce[2];
    uint64_t turn;  /* 0: free; else the token of the communicator that holds it */
    uint64_t lines; /* so many have been handed out, free ones too; only rises */
} slab_head_t;
/* Then the area, then the lines. */
#define SLAB_AREA 4096u
#define SLAB_LINES (SLAB_AREA + GPUSYM_PAGES_AREA)
_Static_assert(sizeof(slab_head_t) <= SLAB_AREA, "the head does not fit its place");
_Static_assert(64 == sizeof(gpusym_entry_t) && 0 == sizeof(gpusym_line_t) % 64, "entries are cache lines");

struct gpusym_peer {
    gpusym_pages_id_t id;
    char *base;
    int pidfd; /* -1: the kernel has none, or it is ourselves */
    struct gpusym_peer *next;
};

/* A line of ours that peers may still read. */
typedef struct left_line {
    uint64_t off;
    uint32_t nranks, next; /* ranks below `next` have left */
    gpusym_line_t **line;
    uint64_t *life;
    struct left_line *after;
} left_line_t;

static struct {
    pthread_mutex_t lock;
    gpusym_pages_id_t id;
    gpusym_arena_t *arena;
    char *base;
    gpusym_peer_t *peers;
    uint64_t life;     /* the last one given to a line; even */
    left_line_t *left; /* not to be handed out yet */
} slab = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock held. */
static int slab_make(void)
{
    slab_head_t head = {.magic = SLAB_MAGIC};
    int fd, error;
    const int rc = gpusym_memfd_make("gpusym", SLAB_BYTES, &fd);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (!gpusym_random(head.nonce, sizeof head.nonce)) {
        goto close_fd;
    }
    slab.base = mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (MAP_FAILED == slab.base) {
        goto close_fd;
    }
    slab.arena = gpusym_arena_create(SLAB_BYTES - SLAB_LINES, 64);
    if (NULL == slab.arena) {
        goto unmap;
    }
    memcpy(slab.base, &head, sizeof head);
    slab.id = (gpusym_pages_id_t){{head.nonce[0], head.nonce[1]}, getpid(), fd, SLAB_BYTES};
    return GPUSYM_SUCCESS;

unmap:
    munmap(slab.base, SLAB_BYTES);
close_fd:
    error = errno;
    slab.base = NULL;
    close(fd);
    errno = error;
    return GPUSYM_ERR_NO_MEMORY;
}

int gpusym_pages_open(gpusym_pages_id_t *id)
{
    pthread_mutex_lock(&slab.lock);
    const int rc = NULL != slab.base ? GPUSYM_SUCCESS : slab_make();
    *id = slab.id;
    pthread_mutex_unlock(&slab.lock);
    return rc;
}

static void left_free(left_line_t *l)
{
    free(l->line);
    free(l->life);
    free(l);
}

/* With the lock held: lines that no peer reads any more are free. */
static void left_sweep(void)
{
    for (left_line_t **link = &slab.left; NULL != *link;) {
        left_line_t *l = *link;
        while (l->next < l->nranks && gpusym_line_life(l->line[l->next]) != l->life[l->next]) {
            l->next++;
        }
        if (l->next < l->nranks) {
            link = &l->after;
            continue;
        }
        *link = l->after;
        gpusym_arena_free(slab.arena, l->off - SLAB_LINES);
        left_free(l);
    }
}

void gpusym_pages_close(void)
{
    pthread_mutex_lock(&slab.lock);
    while (NULL != slab.left) {
        left_line_t *l = slab.left;
        slab.left = l->after;
        left_free(l);
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
        gpusym_arena_destroy(slab.arena);
        munmap(slab.base, SLAB_BYTES);
        close(slab.id.fd);
        slab.base = NULL;
        slab.arena = NULL;
    }
    pthread_mutex_unlock(&slab.lock);
    gpusym_fd_close();
}

/* With the lock held: peers that look for lines find this one. All are of one size, so they lie at its multiples. */
static void lines_count(uint64_t off)
{
    slab_head_t *head = (slab_head_t *) (void *) slab.base;
    const uint64_t lines = (off - SLAB_LINES) / sizeof(gpusym_line_t) + 1;
    if (lines > head->lines) {
        __atomic_store_n(&head->lines, lines, __ATOMIC_RELEASE);
    }
}

int gpusym_pages_alloc(uint64_t *off)
{
    pthread_mutex_lock(&slab.lock);
    int rc = GPUSYM_ERR_NOT_AVAILABLE;
    if (NULL != slab.arena) {
        left_sweep();
        rc = gpusym_arena_alloc(slab.arena, sizeof(gpusym_line_t), off);
    }
    if (GPUSYM_SUCCESS == rc) {
        *off += SLAB_LINES;
        gpusym_line_t *line = (gpusym_line_t *)(void *)(slab.base + *off);
        memset(line, 0, offsetof(gpusym_line_t, life)); /* peers of its last use may look at that word */
        slab.life += 2;
        __atomic_store_n(&line->life, slab.life, __ATOMIC_RELEASE);
        lines_count(*off);
    }
    pthread_mutex_unlock(&slab.lock);
    return rc;
}

void gpusym_pages_free(uint64_t off)
{
    pthread_mutex_lock(&slab.lock);
    if (NULL != slab.arena) {
        gpusym_pages_line(off)->key = 0;
        gpusym_arena_free(slab.arena, off - SLAB_LINES);
    }
    pthread_mutex_unlock(&slab.lock);
}

void gpusym_rollcall_leave(gpusym_rollcall_t *rc, uint64_t off)
{
    left_line_t *l = malloc(sizeof *l);
    pthread_mutex_lock(&slab.lock);
    if (NULL != slab.arena) { /* release: what we read of the peers' lines, we have read */
        __atomic_store_n(&rc->line[rc->rank]->key, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&rc->line[rc->rank]->life, rc->life[rc->rank] + 1, __ATOMIC_RELEASE);
    }
    if (NULL != l && NULL != slab.arena) {
        *l = (left_line_t){off, rc->nranks, 0, rc->line, rc->life, slab.left};
        slab.left = l;
        l = NULL;
    } else { /* the line is lost */
        free(rc->line);
        free(rc->life);
    }
    pthread_mutex_unlock(&slab.lock);
    free(l);
    rc->line = NULL;
    rc->life = NULL;
}

/* Maps the slab of another process, and makes sure that it is the one meant. */
static int slab_map(const gpusym_pages_id_t *id, gpusym_peer_t *peer)
{
    char path[64];
    slab_head_t head;
    ssize_t n = 0;
    int fd;

    if (id->pid <= 0 || id->fd < 0 || SLAB_BYTES != id->bytes) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", id->pid, id->fd);
    GPUSYM_RESTART(fd, open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    peer->base = MAP_FAILED;
    errno = ESRCH; /* a descriptor of another process, which has that number by now */
    if (gpusym_memfd_is_sealed(fd, SLAB_BYTES)) {
        GPUSYM_RESTART(n, pread(fd, &head, sizeof head, 0));
    }
    if (sizeof head == n && SLAB_MAGIC == head.magic && head.nonce[0] == id->nonce[0] &&
        head.nonce[1] == id->nonce[1]) {
        peer->base = mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    const int error = errno;
    close(fd);
    if (MAP_FAILED == peer->base) {
        errno = error;
        return GPUSYM_ERR_UNREACHABLE;
    }
#ifdef SYS_pidfd_open
    GPUSYM_RESTART(peer->pidfd, (int) syscall(SYS_pidfd_open, id->pid, 0));
#endif
    return GPUSYM_SUCCESS;
}

/* With the lock held. */
static int peer_get(const gpusym_pages_id_t *id, gpusym_peer_t **peer)
{
    for (gpusym_peer_t *p = slab.peers; NULL != p; p = p->next) {
        if (p->id.nonce[0] == id->nonce[0] && p->id.nonce[1] == id->nonce[1]) {
            *peer = p;
            return GPUSYM_SUCCESS;
        }
    }
    gpusym_peer_t *p = calloc(1, sizeof *p);
    if (NULL == p) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    p->id = *id;
    p->pidfd = -1;
    if (NULL != slab.base && slab.id.nonce[0] == id->nonce[0] && slab.id.nonce[1] == id->nonce[1]) {
        p->base = slab.base;
    } else {
        const int rc = slab_map(id, p);
        if (GPUSYM_SUCCESS != rc) {
            const int error = errno;
            free(p);
            errno = error;
            return rc;
        }
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
    const int rc = peer_get(id, peer);
    pthread_mutex_unlock(&slab.lock);
    return rc;
}

/* Whether a line can stand there. */
static bool off_valid(uint64_t off)
{
    return off >= SLAB_LINES && off <= SLAB_BYTES - sizeof(gpusym_line_t) && 0 == off % 64;
}

gpusym_line_t *gpusym_peer_line(gpusym_peer_t *peer, uint64_t off)
{
    return !off_valid(off) ? NULL : (gpusym_line_t *) (void *) (peer->base + off);
}

gpusym_line_t *gpusym_pages_line(uint64_t off)
{
    return (gpusym_line_t *) (void *) (slab.base + off);
}

uint64_t gpusym_line_life(const gpusym_line_t *line)
{
    return __atomic_load_n(&line->life, __ATOMIC_ACQUIRE);
}

void *gpusym_pages_area(void)
{
    pthread_mutex_lock(&slab.lock);
    void *area = NULL != slab.base ? slab.base + SLAB_AREA : NULL;
    pthread_mutex_unlock(&slab.lock);
    return area;
}

void *gpusym_peer_area(gpusym_peer_t *peer)
{
    return peer->base + SLAB_AREA;
}

int gpusym_peer_pid(const gpusym_peer_t *peer)
{
    return peer->id.pid;
}

/* Without a pidfd: a process that its parent has not reaped yet still answers to kill(), so ask for its state too. */
static bool pid_alive(pid_t pid)
{
    char path[64], line[512];
    if (pid <= 0 || (0 != kill(pid, 0) && ESRCH == errno)) {
        return false;
    }
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    gpusym_file_line(path, line, sizeof line);
    const char *name_end = strrchr(line, ')');
    return NULL == name_end || ('Z' != name_end[2] && 'X' != name_end[2]);
}

bool gpusym_peer_alive(gpusym_peer_t *peer)
{
    struct pollfd p = {.fd = peer->pidfd, .events = POLLIN};
    int n = -1;
    if (peer->pidfd >= 0) { /* readable from the moment the process has ended, reaped or not */
        GPUSYM_RESTART(n, poll(&p, 1, 0));
    }
    if (n > 0 && 0 != (p.revents & POLLIN)) {
        return false;
    }
    return 0 == n || pid_alive(peer->id.pid); /* poll() failed, or says something else: that is no death */
}

/* ---- where a process was last ---- */

/* To some milliseconds, for a few nanoseconds. */
static uint64_t coarse_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

static void line_stamp(gpusym_line_t *line)
{
    __atomic_store_n(&line->stamp, coarse_ns(), __ATOMIC_RELAXED);
}

void gpusym_line_name(gpusym_line_t *line, uint64_t key, const char *label)
{
    snprintf(line->label, sizeof line->label, "%s", label);
    line_stamp(line);
    __atomic_store_n(&line->key, key, __ATOMIC_RELEASE);
}

void gpusym_line_step(gpusym_line_t *line, uint32_t step)
{
    __atomic_store_n(&line->step, step, __ATOMIC_RELEASE);
}

void gpusym_line_abort(gpusym_line_t *line)
{
    __atomic_store_n(&line->abort, 1u, __ATOMIC_RELEASE);
}

void gpusym_line_say(gpusym_line_t *line, uint64_t mark)
{
    __atomic_store_n(&line->said, mark, __ATOMIC_RELEASE);
}

/* The last entry's `what`: their sequences rise, modulo 2^16. -1: none has been posted. */
static int line_last(const gpusym_line_t *line)
{
    uint16_t last = 0;
    int what = -1;
    for (unsigned i = 0; i < GPUSYM_ROLLCALL_HISTORY; i++) {
        const uint64_t word = __atomic_load_n(&line->entry[i].word, __ATOMIC_ACQUIRE);
        const uint16_t seq = (uint16_t) (word >> 48);
        if (0 != word && (what < 0 || (int16_t) (uint16_t) (seq - last) > 0)) {
            last = seq;
            what = (uint8_t) (word >> 32);
        }
    }
    return what;
}

void gpusym_peer_seen(gpusym_peer_t *peer, uint64_t key, gpusym_seen_t *seen)
{
    const slab_head_t *head = (const slab_head_t *) (const void *) peer->base;
    const uint64_t room = (SLAB_BYTES - SLAB_LINES) / sizeof(gpusym_line_t), now = coarse_ns();
    uint64_t lines = __atomic_load_n(&head->lines, __ATOMIC_ACQUIRE), latest = 0;

    *seen = (gpusym_seen_t){.what = -1};
    lines = lines < room ? lines : room; /* whatever the peer's memory says */
    for (uint64_t i = 0; i < lines; i++) {
        const gpusym_line_t *line = gpusym_peer_line(peer, SLAB_LINES + i * sizeof *line);
        const uint64_t stamp = __atomic_load_n(&line->stamp, __ATOMIC_RELAXED);
        if (0 != key && __atomic_load_n(&line->key, __ATOMIC_ACQUIRE) == key) {
            seen->begun = true;
            seen->step = __atomic_load_n(&line->step, __ATOMIC_ACQUIRE);
            seen->said = __atomic_load_n(&line->said, __ATOMIC_ACQUIRE);
        }
        if (0 != stamp && stamp >= latest) { /* the younger line of those of one tick */
            latest = stamp;
            seen->what = line_last(line);
            snprintf(seen->label, sizeof seen->label, "%.*s", (int) sizeof line->label, line->label);
        }
    }
    seen->age_ns = now > latest ? now - latest : 0;
}

/* Whether descriptor fd of process pid, which is named so, is a slab; then *id is of it. */
static bool slab_is(int32_t pid, int fd, gpusym_pages_id_t *id)
{
    char path[64], target[64];
    slab_head_t head;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int) pid, fd);
    const ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    if (0 != strncmp(target, "/memfd:gpusym", 13)) {
        return false;
    }
    const int copy = open(path, O_RDONLY | O_CLOEXEC);
    const bool good = copy >= 0 && sizeof head == pread(copy, &head, sizeof head, 0) && SLAB_MAGIC == head.magic;
    if (copy >= 0) {
        close(copy);
    }
    *id = (gpusym_pages_id_t){{head.nonce[0], head.nonce[1]}, pid, fd, SLAB_BYTES};
    return good;
}

int gpusym_pages_find(int32_t pid, gpusym_peer_t **peer)
{
    char path[64];
    const struct dirent *entry;
    gpusym_pages_id_t id;
    int rc = GPUSYM_ERR_NOT_AVAILABLE;

    snprintf(path, sizeof path, "/proc/%d/fd", (int) pid);
    DIR *dir = opendir(path);
    if (NULL == dir) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    while (GPUSYM_ERR_NOT_AVAILABLE == rc && NULL != (entry = readdir(dir))) {
        if ('.' != entry->d_name[0] && slab_is(pid, atoi(entry->d_name), &id)) {
            rc = gpusym_pages_peer(&id, peer);
        }
    }
    closedir(dir);
    return rc;
}

/* ---- roll-call ---- */

#define HISTORY GPUSYM_ROLLCALL_HISTORY

static gpusym_entry_t *entry_of(const gpusym_rollcall_t *rc, uint32_t r, uint64_t seq)
{
    return &rc->line[r]->entry[seq % HISTORY];
}

/* Whether rank r has posted call seq, or a later one of those that its line may hold by now. */
static bool has_posted(const gpusym_rollcall_t *rc, uint32_t r, uint64_t seq)
{
    const uint64_t word = __atomic_load_n(&entry_of(rc, r, seq)->word, __ATOMIC_ACQUIRE);
    return (int16_t)(uint16_t)((uint16_t)(word >> 48) - (uint16_t)seq) >= 0;
}

/* Host buffers' short way comes by at gpusym_rollcall_near_enough() now and then, and leaves a stamp every so many
 * calls. */
#define STAMP_CALLS 64u

/* A peer that has posted call seq - HISTORY / 2 has left all calls before it, so nobody will read what is overwritten. */
bool gpusym_rollcall_near_enough(const gpusym_rollcall_t *rc, uint64_t seq)
{
    if (0 == seq % STAMP_CALLS) {
        line_stamp(rc->line[rc->rank]);
    }
    if (seq <= HISTORY / 2) {
        return true;
    }
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (r != rc->rank && !has_posted(rc, r, seq - HISTORY / 2)) {
            return false;
        }
    }
    return true;
}

/* Of what peers take for addresses, in call seq. */
static uint64_t entry_check(const gpusym_entry_t *e, uint64_t seq)
{
    uint64_t check = (seq ^ ((uint64_t) e->in_key << 32 | e->out_key)) * 0x9e3779b97f4a7c15ull;
    check = (check ^ e->in_off) * 0xbf58476d1ce4e5b9ull;
    return (check ^ check >> 32 ^ e->out_off) * 0x94d049bb133111ebull;
}

bool gpusym_entry_intact(const gpusym_entry_t *e, uint64_t seq)
{
    return e->check == entry_check(e, seq);
}

static void entry_fill(gpusym_entry_t *e, const gpusym_post_t *post, uint64_t seq)
{
    e->bytes = post->bytes;
    e->balance = post->balance;
    e->flags = post->flags;
    e->layout = post->layout;
    e->in_key = post->in_key;
    e->out_key = post->out_key;
    e->in_off = post->in_off;
    e->out_off = post->out_off;
    if (0 != (post->in_key | post->out_key)) {
        e->check = entry_check(e, seq);
    }
}

bool gpusym_rollcall_post(gpusym_rollcall_t *rc, const gpusym_post_t *post, gpusym_rollcall_read_t *read)
{
    const uint64_t seq = rc->seq + 1; /* from 1: a fresh line, all zero, says that call 0 was posted */
    if (0 == seq % (HISTORY / 2) && !gpusym_rollcall_near_enough(rc, seq)) {
        return false;
    }
    rc->seq = seq;
    *read = (gpusym_rollcall_read_t){.seq = seq,
                                     .host = GPUSYM_KIND_HOST == post->kind,
                                     .stage = -1,
                                     .stage_rank = -1,
                                     .mismatch_rank = -1,
                                     .corrupt_rank = -1,
                                     .word = seq << 48 | (uint64_t) post->kind << 40 | (uint64_t) post->what << 32 |
                                             post->hash,
                                     .bytes = post->bytes,
                                     .exact = post->exact,
                                     .max_bytes = post->bytes,
                                     .all = post->flags,
                                     .any = post->flags,
                                     .layout = post->layout,
                                     .same_layout = true};
    gpusym_entry_t *e = entry_of(rc, rc->rank, seq);
    line_stamp(rc->line[rc->rank]);
    if (GPUSYM_KIND_HOST != post->kind) {
        entry_fill(e, post, seq);
    }
    /* Release: what this rank did before the call is done for those that read the entry. */
    __atomic_store_n(&e->word, read->word, __ATOMIC_RELEASE);
    return true;
}

/* No buffer has so many bytes: addresses have fewer bits. */
#define BYTES_BITS 57

/* Takes rank r's entry into account. */
static void note(gpusym_rollcall_read_t *read, uint32_t r, uint64_t word, const gpusym_entry_t *e)
{
    const uint8_t kind = (uint8_t)(word >> 40);
    if (GPUSYM_KIND_HOST == kind) {
        read->host = true;
        return;
    }
    if (kind >= GPUSYM_KIND_STAGE && read->stage < 0) {
        read->stage = kind;
        read->stage_rank = (int)r;
    }
    if (0 != (e->bytes >> BYTES_BITS | e->flags / GPUSYM_POST_FLAGS_END)) {
        read->corrupt_rank = (int) r;
    }
    const bool same_call = (uint8_t)(word >> 32) == (uint8_t)(read->word >> 32) && (uint32_t)word == (uint32_t)read->word;
    const bool same = same_call && (!read->exact || e->bytes == read->bytes);
    read->other_call = read->other_call || !same_call;
    read->balance += e->balance;
    if (!same && read->mismatch_rank < 0) {
        read->mismatch_rank = (int)r;
        read->mismatch_bytes = e->bytes;
    }
    read->max_bytes = e->bytes > read->max_bytes ? e->bytes : read->max_bytes;
    read->all &= e->flags;
    read->any |= e->flags;
    read->same_layout = read->same_layout && e->layout == read->layout;
}

bool gpusym_rollcall_has_posted(const gpusym_rollcall_t *rc, uint32_t r, uint64_t seq)
{
    return has_posted(rc, r, seq);
}

uint64_t gpusym_rollcall_last(const gpusym_rollcall_t *rc, uint32_t r)
{
    int16_t ahead = INT16_MIN;
    for (uint32_t i = 0; i < HISTORY; i++) {
        const uint64_t word = __atomic_load_n(&rc->line[r]->entry[i].word, __ATOMIC_ACQUIRE);
        const int16_t distance = (int16_t) (uint16_t) ((uint16_t) (word >> 48) - (uint16_t) rc->seq);
        ahead = 0 != word && distance > ahead ? distance : ahead;
    }
    return INT16_MIN == ahead ? 0 : rc->seq + (uint64_t) (int64_t) ahead;
}

bool gpusym_rollcall_has_voted(const gpusym_rollcall_t *rc, uint32_t r, uint64_t seq)
{
    return __atomic_load_n(&rc->line[r]->vote[seq % HISTORY], __ATOMIC_ACQUIRE) >> 1 == seq;
}

bool gpusym_rollcall_read(gpusym_rollcall_t *rc, gpusym_rollcall_read_t *read)
{
    /* Ask for all lines at once: each is a miss of a tenth of a microsecond or more. */
    for (uint32_t r = read->next; r < rc->nranks; r++) {
        __builtin_prefetch(entry_of(rc, r, read->seq));
    }
    for (; read->next < rc->nranks; read->next++) {
        const gpusym_entry_t *e = entry_of(rc, read->next, read->seq);
        const uint64_t word = __atomic_load_n(&e->word, __ATOMIC_ACQUIRE);
        if ((uint16_t)(word >> 48) != (uint16_t)read->seq) {
            return false;
        }
        note(read, read->next, word, e);
    }
    return true;
}

const gpusym_entry_t *gpusym_rollcall_entry(const gpusym_rollcall_t *rc, uint32_t r, uint64_t seq)
{
    return entry_of(rc, r, seq);
}

void gpusym_rollcall_vote(gpusym_rollcall_t *rc, uint64_t seq, bool yes)
{
    __atomic_store_n(&rc->line[rc->rank]->vote[seq % HISTORY], seq << 1 | yes, __ATOMIC_RELEASE);
}

int gpusym_rollcall_votes(const gpusym_rollcall_t *rc, uint64_t seq)
{
    int result = 1;
    for (uint32_t r = 0; r < rc->nranks; r++) {
        const uint64_t vote = __atomic_load_n(&rc->line[r]->vote[seq % HISTORY], __ATOMIC_ACQUIRE);
        if (vote >> 1 != seq) {
            return 0;
        }
        result = 0 == (vote & 1) ? -1 : result;
    }
    return result;
}

void gpusym_rollcall_launched(gpusym_rollcall_t *rc, uint64_t seq)
{
    __atomic_store_n(&rc->line[rc->rank]->launched, seq, __ATOMIC_RELEASE);
}

bool gpusym_rollcall_all_launched(const gpusym_rollcall_t *rc, uint64_t seq)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (__atomic_load_n(&rc->line[r]->launched, __ATOMIC_ACQUIRE) < seq) {
            return false;
        }
    }
    return true;
}

/* ---- turns ---- */

static uint64_t *turn_of(gpusym_peer_t *peer)
{
    return &((slab_head_t *)(void *)peer->base)->turn;
}

static bool turn_swap(gpusym_peer_t *peer, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(turn_of(peer), &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static bool before(const gpusym_pages_id_t *a, const gpusym_pages_id_t *b)
{
    return a->nonce[0] != b->nonce[0] ? a->nonce[0] < b->nonce[0] : a->nonce[1] < b->nonce[1];
}

void gpusym_turns_init(gpusym_rollcall_t *rc, uint32_t *order, uint64_t line_off)
{
    for (uint32_t r = 0; r < rc->nranks; r++) { /* by insertion: teams are small */
        uint32_t i = r;
        for (; i > 0 && before(&rc->peer[r]->id, &rc->peer[order[i - 1]]->id); i--) {
            order[i] = order[i - 1];
        }
        order[i] = r;
    }
    rc->order = order;
    /* The process of rank 0, and the line that it has for this communicator alone. */
    rc->token = (uint64_t)(uint32_t)rc->peer[0]->id.pid << 32 | (uint32_t)line_off;
}

int gpusym_turns_take(gpusym_rollcall_t *rc, uint64_t seq)
{
    if (0 != rc->rank) {
        return __atomic_load_n(&rc->line[0]->go, __ATOMIC_ACQUIRE) == seq;
    }
    for (; rc->turns < rc->nranks; rc->turns++) {
        if (!turn_swap(rc->peer[rc->order[rc->turns]], 0, rc->token)) {
            return 0;
        }
    }
    __atomic_store_n(&rc->line[0]->go, seq, __ATOMIC_RELEASE);
    return 1;
}

void gpusym_turns_give(gpusym_rollcall_t *rc, bool failed)
{
    rc->turns = 0;
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (r == rc->rank || (failed && 0 == rc->rank)) {
            turn_swap(rc->peer[r], rc->token, 0); /* does nothing where another communicator has it */
        }
    }
}

int gpusym_turns_rescue(gpusym_rollcall_t *rc)
{
    if (0 != rc->rank || rc->turns >= rc->nranks) {
        return -1;
    }
    gpusym_peer_t *peer = rc->peer[rc->order[rc->turns]];
    const uint64_t token = __atomic_load_n(turn_of(peer), __ATOMIC_ACQUIRE);
    if (0 != token && (0 == token >> 32 || 0 != token >> 63 || !off_valid((uint32_t) token))) {
        return (int) rc->order[rc->turns];
    }
    if (0 != token && !pid_alive((pid_t)(token >> 32))) {
        turn_swap(peer, token, 0);
    }
    return -1;
}

/* ---- failures ---- */

int gpusym_rollcall_aborted(const gpusym_rollcall_t *rc)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (r != rc->rank && NULL != rc->line[r] && 0 != __atomic_load_n(&rc->line[r]->abort, __ATOMIC_ACQUIRE)) {
            return (int)r;
        }
    }
    return -1;
}

/* Whether an entry can be one of call seq's place, when our last call is rc->seq: ranks are less than HISTORY apart,
 * and an entry stays for HISTORY calls. */
static bool entry_plausible(const gpusym_rollcall_t *rc, const gpusym_line_t *line, uint64_t seq)
{
    const gpusym_entry_t *e = &line->entry[seq % HISTORY];
    const uint64_t word = __atomic_load_n(&e->word, __ATOMIC_ACQUIRE);
    const uint64_t voted = __atomic_load_n(&line->vote[seq % HISTORY], __ATOMIC_ACQUIRE) >> 1;
    const uint16_t said = (uint16_t) (word >> 48);
    const int ahead = (int16_t) (uint16_t) (said - (uint16_t) rc->seq);
    const bool fresh = 0 == word && rc->seq < 2 * HISTORY;
    return (fresh || (said % HISTORY == seq % HISTORY && ahead < (int) HISTORY && ahead > -2 * (int) HISTORY)) &&
           (0 == voted || (voted % HISTORY == seq % HISTORY && voted < rc->seq + HISTORY));
}

static bool line_plausible(const gpusym_rollcall_t *rc, uint32_t r)
{
    const gpusym_line_t *line = rc->line[r];
    const uint64_t life = gpusym_line_life(line);
    return __atomic_load_n(&line->abort, __ATOMIC_ACQUIRE) <= 1 &&
           (NULL == rc->life || rc->life[r] == life || rc->life[r] + 1 == life) &&
           __atomic_load_n(&line->go, __ATOMIC_ACQUIRE) < rc->seq + HISTORY &&
           __atomic_load_n(&line->launched, __ATOMIC_ACQUIRE) < rc->seq + HISTORY &&
           /* what gpusym_rollcall_read() waits for, and what gpusym_rollcall_post() does */
           entry_plausible(rc, line, rc->seq) &&
           (rc->seq < HISTORY / 2 || entry_plausible(rc, line, rc->seq + 1 - HISTORY / 2));
}

int gpusym_rollcall_corrupt(const gpusym_rollcall_t *rc, const gpusym_rollcall_read_t *read)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (!line_plausible(rc, r)) {
            return (int) r;
        }
    }
    if (0 != read->seq && read->seq == rc->seq &&
        __atomic_load_n(&entry_of(rc, rc->rank, read->seq)->word, __ATOMIC_RELAXED) != read->word) {
        return (int) rc->rank;
    }
    return -1;
}

int gpusym_rollcall_dead(const gpusym_rollcall_t *rc)
{
    for (uint32_t r = 0; r < rc->nranks; r++) {
        if (r != rc->rank && !gpusym_peer_alive(rc->peer[r])) {
            return (int)r;
        }
    }
    return -1;
}
