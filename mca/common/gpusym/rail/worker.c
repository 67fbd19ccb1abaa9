/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The worker: see worker.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_setname_np */
#endif
#include "mca/common/gpusym/rail/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/left.h"
#include "mca/common/gpusym/rail/call.h"
#include "mca/common/gpusym/shm/gauges.h"

/* How often the helper thread looks. */
#define QUICK_NS 100000u
#define SLOW_NS 10000000u
/* So long after something has moved it looks often: more will follow. */
#define MOVING_NS 50000000u
/* So long after MPI's threads were here it stays away: they come again. */
#define AWAY_NS 1000000u

struct gpusym_worker_peer {
    gpusym_worker_peer_t *next;
    gpusym_net_peer_t *net; /* NULL: it could not be reached */
    uint32_t users;
    const char *lost; /* atomic; NULL, or why */
    char why[96];
    size_t bytes;
    unsigned char address[]; /* [bytes] */
};

struct gpusym_worker {
    pthread_mutex_t lock; /* of all that is not said to be otherwise */
    const gpusym_transport_t *transport;
    gpusym_net_streams_t *streams;
    uint32_t piece_bytes; /* constant */
    char *memory;         /* constant */
    uint64_t bytes;       /* of it; constant */
    uint64_t usable;      /* of them: all, until it is pinned */
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu; /* that the memory is pinned for; NULL: none */
    char *device_side; /* the memory for it */
    gpusym_worker_peer_t *peers;
    gpusym_worker_task_t *tasks;
    uint64_t entered; /* when one of MPI's threads was last here; atomic */
    uint64_t moved;   /* when something last came or went */

    /* The helper thread */
    bool started;
    pthread_t thread;
    uint64_t looked;          /* when it last did */
    pthread_mutex_t nap_lock; /* of ending */
    pthread_cond_t nap;
    bool ending;
};

/* ---- the lock ---- */

/* With the lock held. Returns the time. */
static uint64_t move_streams(gpusym_worker_t *w)
{
    const uint64_t now = gpusym_now_ns();
    if (gpusym_net_streams_progress(w->streams)) {
        w->moved = now;
    }
    return now;
}

static void begin_turn(gpusym_worker_t *w)
{
    __atomic_store_n(&w->entered, move_streams(w), __ATOMIC_RELEASE);
}

bool gpusym_worker_enter(gpusym_worker_t *w)
{
    if (0 != pthread_mutex_trylock(&w->lock)) {
        return false;
    }
    begin_turn(w);
    return true;
}

void gpusym_worker_enter_wait(gpusym_worker_t *w)
{
    pthread_mutex_lock(&w->lock);
    begin_turn(w);
}

void gpusym_worker_leave(gpusym_worker_t *w)
{
    pthread_mutex_unlock(&w->lock);
}

/* ---- the helper thread ---- */

/* With the lock held. Returns whether a task waits. A task may remove itself. */
static bool poll_tasks(gpusym_worker_t *w)
{
    bool waits = false;
    for (gpusym_worker_task_t *task = w->tasks, *next; NULL != task; task = next) {
        next = task->next;
        waits = task->poll(task->arg) || waits;
    }
    return waits;
}

/* Moves everything on, unless MPI's threads do. Returns after how many nanoseconds to look again. */
static uint64_t look(gpusym_worker_t *w, bool *waits)
{
    const uint64_t entered = __atomic_load_n(&w->entered, __ATOMIC_ACQUIRE);
    const uint64_t before = gpusym_now_ns(), since = before - entered;
    if (!*waits && since < AWAY_NS && before - w->looked < SLOW_NS) {
        return AWAY_NS - since;
    }
    pthread_mutex_lock(&w->lock);
    const uint64_t now = w->looked = move_streams(w);
    *waits = poll_tasks(w);
    const bool quick = *waits || now - w->moved < MOVING_NS;
    pthread_mutex_unlock(&w->lock);
    return quick ? QUICK_NS : SLOW_NS;
}

/* Sleeps. False, at once: the worker closes. */
static bool take_nap(gpusym_worker_t *w, uint64_t ns)
{
    const uint64_t until = gpusym_now_ns() + ns;
    const struct timespec end = {.tv_sec = (time_t) (until / 1000000000u), .tv_nsec = (long) (until % 1000000000u)};
    int rc = 0;

    pthread_mutex_lock(&w->nap_lock);
    while (!w->ending && 0 == rc) {
        rc = pthread_cond_timedwait(&w->nap, &w->nap_lock, &end);
    }
    const bool ending = w->ending;
    pthread_mutex_unlock(&w->nap_lock);
    return !ending;
}

static void *help(void *arg)
{
    gpusym_worker_t *w = arg;
    bool waits = false;

    pthread_setname_np(pthread_self(), "gpusym-net");
    while (take_nap(w, look(w, &waits))) {
    }
    return NULL;
}

/* The thread blocks all signals but those of its own faults: a program's handlers run in its own threads. */
static int start_thread(gpusym_worker_t *w)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t blocked, saved;

    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        sigdelset(&blocked, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &saved);
    const int error = pthread_create(&w->thread, NULL, help, w);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    w->started = 0 == error;
    if (!w->started) {
        GPUSYM_LOG(2, "the thread for calls between hosts cannot be started: %s", strerror(error));
    }
    return w->started ? GPUSYM_SUCCESS : GPUSYM_ERR_NOT_AVAILABLE;
}

static void end_thread(gpusym_worker_t *w)
{
    pthread_mutex_lock(&w->nap_lock);
    w->ending = true;
    pthread_cond_signal(&w->nap);
    pthread_mutex_unlock(&w->nap_lock);
    if (w->started) {
        pthread_join(w->thread, NULL);
    }
}

int gpusym_worker_add_task(gpusym_worker_t *w, gpusym_worker_task_t *task)
{
    const int rc = w->started ? GPUSYM_SUCCESS : start_thread(w);
    if (GPUSYM_SUCCESS == rc) {
        task->next = w->tasks;
        w->tasks = task;
    }
    return rc;
}

void gpusym_worker_remove_task(gpusym_worker_t *w, gpusym_worker_task_t *task)
{
    gpusym_worker_task_t **at = &w->tasks;

    while (*at != task) {
        at = &(*at)->next;
    }
    *at = task->next;
}

/* ---- open and close ---- */

static uint32_t piece_of(uint64_t bytes)
{
    uint32_t piece = GPUSYM_WORKER_PIECE_MIN;

    while (piece < GPUSYM_WORKER_PIECE_MAX && 2 * (uint64_t) piece <= bytes / GPUSYM_WORKER_PARTS) {
        piece *= 2;
    }
    return piece;
}

static void mark_lost(void *arg, void *owner, const char *why)
{
    gpusym_worker_peer_t *peer = owner;

    (void) arg;
    snprintf(peer->why, sizeof peer->why, "%s", why);
    __atomic_store_n(&peer->lost, peer->why, __ATOMIC_RELEASE);
    if (0 != peer->users) {
        GPUSYM_LOG(2, "a process on another host is lost: %s", why);
    }
}

static void init_locks(gpusym_worker_t *w)
{
    pthread_condattr_t monotonic;

    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->nap_lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->nap, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static int open_streams(gpusym_worker_t *w, const gpusym_worker_params_t *from, const char **why)
{
    void *memory = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (MAP_FAILED == memory) {
        gpusym_log_call("mmap", "memory for messages between hosts");
        *why = "out of host memory";
        return GPUSYM_ERR_NO_MEMORY;
    }
    const gpusym_net_streams_params_t params = {.transport = w->transport,
                                                .devices = from->devices,
                                                .piece_bytes = GPUSYM_RAIL_LONG_BYTES(w->piece_bytes),
                                                .memory = memory,
                                                .bytes = w->bytes,
                                                .lost = mark_lost};
    const int rc = gpusym_net_streams_open(&params, &w->streams, why);
    if (GPUSYM_SUCCESS != rc) {
        munmap(memory, w->bytes);
        return rc;
    }
    w->memory = memory;
    return GPUSYM_SUCCESS;
}

int gpusym_worker_open(const gpusym_worker_params_t *params, gpusym_worker_t **worker, const char **why)
{
    const uint64_t page = (uint64_t) sysconf(_SC_PAGESIZE);

    *why = "no memory is allowed for messages between hosts";
    if (0 == params->bytes) {
        return GPUSYM_ERR_BAD_PARAM;
    }
    *why = "out of host memory";
    gpusym_worker_t *w = calloc(1, sizeof *w);
    if (NULL == w) {
        gpusym_log_no_memory("the net between hosts");
        return GPUSYM_ERR_NO_MEMORY;
    }
    w->transport = params->transport;
    w->bytes = (params->bytes + page - 1) / page * page;
    w->usable = w->bytes;
    w->piece_bytes = piece_of(w->bytes);
    const int rc = open_streams(w, params, why);
    if (GPUSYM_SUCCESS != rc) {
        free(w);
        return rc;
    }
    init_locks(w);
    *worker = w;
    return GPUSYM_SUCCESS;
}

void gpusym_worker_close(gpusym_worker_t *w)
{
    if (NULL == w) {
        return;
    }
    end_thread(w);
    gpusym_net_streams_close(w->streams);
    while (NULL != w->peers) {
        gpusym_worker_peer_t *peer = w->peers;
        w->peers = peer->next;
        free(peer);
    }
    if (NULL != w->gpu) {
        (void) w->dev->host_unregister(w->gpu, w->memory);
        gpusym_gauge_add(GPUSYM_GAUGE_PINNED, -(int64_t) w->usable);
    }
    munmap(w->memory, w->bytes);
    pthread_cond_destroy(&w->nap);
    pthread_mutex_destroy(&w->nap_lock);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

uint32_t gpusym_worker_piece_bytes(const gpusym_worker_t *w)
{
    return w->piece_bytes;
}

const void *gpusym_worker_address(const gpusym_worker_t *w, size_t *bytes)
{
    return w->transport->address(gpusym_net_streams_net(w->streams), bytes);
}

gpusym_net_streams_t *gpusym_worker_streams(gpusym_worker_t *w)
{
    return w->streams;
}

/* ---- peers ---- */

static gpusym_worker_peer_t *find_peer(const gpusym_worker_t *w, const void *address, size_t bytes)
{
    gpusym_worker_peer_t *peer = w->peers;

    while (NULL != peer && (peer->bytes != bytes || 0 != memcmp(peer->address, address, bytes))) {
        peer = peer->next;
    }
    return peer;
}

static int open_peer(gpusym_worker_t *w, const void *address, size_t bytes, bool inside, gpusym_worker_peer_t **peer)
{
    gpusym_worker_peer_t *p = calloc(1, sizeof *p + bytes);

    if (NULL == p) {
        gpusym_log_no_memory("a peer on another host");
        return GPUSYM_ERR_NO_MEMORY;
    }
    p->bytes = bytes;
    memcpy(p->address, address, bytes);
    const int rc = w->transport->peer_open(gpusym_net_streams_net(w->streams), p->address, bytes, inside, p, &p->net);
    if (GPUSYM_SUCCESS != rc && GPUSYM_ERR_UNREACHABLE != rc) {
        free(p);
        return rc;
    }
    p->next = w->peers;
    w->peers = p;
    *peer = p;
    return rc;
}

int gpusym_worker_peer_get(gpusym_worker_t *w, const void *address, size_t bytes, bool inside,
                           gpusym_worker_peer_t **peer)
{
    *peer = find_peer(w, address, bytes);
    const int rc = NULL == *peer          ? open_peer(w, address, bytes, inside, peer)
                   : NULL == (*peer)->net ? GPUSYM_ERR_UNREACHABLE
                                          : GPUSYM_SUCCESS;
    if (GPUSYM_SUCCESS == rc) {
        (*peer)->users++;
    }
    return rc;
}

void gpusym_worker_peer_put(gpusym_worker_peer_t *peer)
{
    peer->users--;
}

gpusym_net_peer_t *gpusym_worker_peer_net(gpusym_worker_peer_t *peer)
{
    return peer->net;
}

const char *gpusym_worker_peer_lost(const gpusym_worker_peer_t *peer)
{
    return __atomic_load_n(&peer->lost, __ATOMIC_ACQUIRE);
}

/* ---- memory ---- */

/* Half as much of the memory, whole pages. False: that is too little, or more is used already. */
static bool use_half(gpusym_worker_t *w)
{
    const uint64_t page = (uint64_t) sysconf(_SC_PAGESIZE), half = w->usable / 2 / page * page;
    if (half < GPUSYM_WORKER_PINNED_MIN || GPUSYM_SUCCESS != gpusym_net_streams_cut(w->streams, half)) {
        return false;
    }
    w->usable = half;
    return true;
}

/* Pins as much of the memory as can be. */
static int pin_memory(gpusym_worker_t *w, const gpusym_device_t *dev, gpusym_gpu_t *gpu, void **device_side)
{
    const uint64_t left = gpusym_memory_left();
    char limits[GPUSYM_LIMITS_TEXT];

    while (w->usable > left / 2 && use_half(w)) {
    }
    if (w->usable < w->bytes) {
        GPUSYM_LOG(2, "the memory limit of this process's cgroup leaves %lu bytes", (unsigned long) left);
    }
    int rc = dev->host_register(gpu, w->memory, w->usable, device_side);
    while (GPUSYM_SUCCESS != rc) {
        GPUSYM_LOG(2, "%lu bytes for messages between hosts cannot be pinned: %s%s", (unsigned long) w->usable,
                   dev->error(), gpusym_memory_limits(limits));
        if (!use_half(w)) {
            return rc;
        }
        rc = dev->host_register(gpu, w->memory, w->usable, device_side);
    }
    return GPUSYM_SUCCESS;
}

uint64_t gpusym_worker_bytes(const gpusym_worker_t *w)
{
    return w->usable;
}

int gpusym_worker_map(gpusym_worker_t *w, const gpusym_device_t *dev, gpusym_gpu_t *gpu, char **host, char **device)
{
    void *device_side;

    if (NULL != w->gpu && gpu != w->gpu) {
        GPUSYM_LOG(2, "the memory for messages between hosts is pinned for another GPU of this process");
        return GPUSYM_ERR_UNREACHABLE;
    }
    if (NULL == w->gpu) {
        const uint64_t start = gpusym_now_ns();
        const int rc = pin_memory(w, dev, gpu, &device_side);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
        w->dev = dev;
        w->gpu = gpu;
        w->device_side = device_side;
        gpusym_gauge_add(GPUSYM_GAUGE_PINNED, (int64_t) w->usable);
        GPUSYM_LOG(2, "%lu bytes pinned for messages between hosts, in %.1f ms", (unsigned long) w->usable,
                   (double) (gpusym_now_ns() - start) / 1e6);
    }
    *host = w->memory;
    *device = w->device_side;
    return GPUSYM_SUCCESS;
}

int gpusym_worker_alloc(gpusym_worker_t *w, uint64_t bytes, char **p)
{
    void *buffer;
    const int rc = gpusym_net_streams_alloc(w->streams, bytes, &buffer);

    if (GPUSYM_SUCCESS == rc) {
        *p = buffer;
    }
    return rc;
}

void gpusym_worker_free(gpusym_worker_t *w, char *p, uint64_t bytes)
{
    gpusym_net_streams_free(w->streams, p, bytes);
}

uint64_t gpusym_worker_room(const gpusym_worker_t *w)
{
    return w->usable - gpusym_net_streams_used(w->streams);
}
