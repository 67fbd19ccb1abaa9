/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/rail/worker.c: workers of one process, over a net without hosts, and over UCX where
 * it is there.  A seed as the argument repeats a run, but for what the threads do.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_getname_np, RTLD_NEXT */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/memory/left.h"
#include "mca/common/gpusym/rail/worker.h"
#include "test/unit/clock.h"
#include "test/unit/net_fake.h"
#include "test/unit/random.h"

enum { PIECES = 8, PIECE = 16 << 10, EXCHANGED = 400 };
#define MEMORY ((uint64_t) 1 << 20)
#define MS 1000000u
#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

static uint64_t load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void sleep_ns(uint64_t ns)
{
    const struct timespec t = {.tv_sec = (time_t) (ns / 1000000000u), .tv_nsec = (long) (ns % 1000000000u)};
    OK(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL));
}

/* Sleeps until *p is at least `least`. */
static void wait_for(const uint64_t *p, uint64_t least)
{
    while (load(p) < least) {
        sleep_ns(MS);
    }
}

/* ---- the net without hosts, for several threads ---- */

static pthread_mutex_t world;
static unsigned opened, closed; /* peers; with world locked */

static int world_open(const gpusym_net_params_t *params, gpusym_net_t **net, const char **why)
{
    pthread_mutex_lock(&world);
    const int rc = net_fake.open(params, net, why);
    pthread_mutex_unlock(&world);
    return rc;
}

static void world_close(gpusym_net_t *net)
{
    pthread_mutex_lock(&world);
    net_fake.close(net);
    pthread_mutex_unlock(&world);
}

static int world_peer_open(gpusym_net_t *net, const void *address, size_t bytes, bool inside, void *owner,
                           gpusym_net_peer_t **peer)
{
    pthread_mutex_lock(&world);
    opened++;
    const int rc = net_fake.peer_open(net, address, bytes, inside, owner, peer);
    pthread_mutex_unlock(&world);
    return rc;
}

static void world_peer_close(gpusym_net_peer_t *peer)
{
    pthread_mutex_lock(&world);
    closed++;
    net_fake.peer_close(peer);
    pthread_mutex_unlock(&world);
}

static int world_send(gpusym_net_peer_t *peer, const gpusym_net_head_t *head, const void *data, uint32_t *sent)
{
    pthread_mutex_lock(&world);
    const int rc = net_fake.send(peer, head, data, sent);
    pthread_mutex_unlock(&world);
    return rc;
}

/* Time goes on when an end has nothing to do. */
static bool world_progress(gpusym_net_t *net)
{
    pthread_mutex_lock(&world);
    const bool moved = net_fake.progress(net);
    if (!moved) {
        (void) net_fake_step();
    }
    pthread_mutex_unlock(&world);
    return moved;
}

static gpusym_transport_t transport;

static int setup(void **state)
{
    pthread_mutexattr_t recursive;

    (void) state;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&world, &recursive); /* progress calls who sends */
    pthread_mutexattr_destroy(&recursive);
    net_fake_start(&(net_fake_params_t){.seed = next_random(), .jitter = NET_FAKE_DELAY});
    opened = closed = 0;
    transport = net_fake;
    transport.open = world_open;
    transport.close = world_close;
    transport.peer_open = world_peer_open;
    transport.peer_close = world_peer_close;
    transport.send = world_send;
    transport.progress = world_progress;
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    pthread_mutex_destroy(&world);
    return 0;
}

static gpusym_worker_t *open_worker(const gpusym_transport_t *over, uint64_t bytes)
{
    gpusym_worker_t *w = NULL;
    const char *why = NULL;
    const gpusym_worker_params_t params = {.transport = over, .bytes = bytes};

    if (GPUSYM_SUCCESS != gpusym_worker_open(&params, &w, &why)) {
        fail_msg("%s", why);
    }
    return w;
}

/* With the lock held. */
static gpusym_worker_peer_t *get_peer(gpusym_worker_t *w, const gpusym_worker_t *of)
{
    gpusym_worker_peer_t *peer = NULL;
    size_t bytes;
    const void *address = gpusym_worker_address(of, &bytes);

    OK(gpusym_worker_peer_get(w, address, bytes, false, &peer));
    return peer;
}

/* ---- open ---- */

static int refuse_open(const gpusym_net_params_t *params, gpusym_net_t **net, const char **why)
{
    (void) net;
    static char text[64];

    snprintf(text, sizeof text, "%s|%s|%s", params->devices.only, params->devices.nearest, params->devices.astray);
    *why = text;
    return GPUSYM_ERR_NOT_AVAILABLE;
}

static void what_cannot_be_opened_is_told(void **state)
{
    gpusym_worker_t *w;
    const char *why = NULL;
    gpusym_worker_params_t params = {.transport = &transport};

    (void) state;
    assert_int_equal(gpusym_worker_open(&params, &w, &why), GPUSYM_ERR_BAD_PARAM);
    assert_non_null(why);
    params.bytes = (uint64_t) 1 << 60;
    assert_int_equal(gpusym_worker_open(&params, &w, &why), GPUSYM_ERR_NO_MEMORY);
    params.bytes = MEMORY;
    params.devices.only = "nosuch0";
    params.devices.nearest = "nosuch1:1";
    params.devices.astray = "nosuch2";
    transport.open = refuse_open;
    assert_int_equal(gpusym_worker_open(&params, &w, &why), GPUSYM_ERR_NOT_AVAILABLE);
    assert_string_equal(why, "nosuch0|nosuch1:1|nosuch2");
    gpusym_worker_close(NULL);
}

static void pieces_are_a_part_of_the_memory(void **state)
{
    static const struct {
        uint64_t bytes;
        uint32_t piece;
    } rows[] = {{1, 16 << 10},          {MEMORY, 16 << 10},     {(8 << 20) - 4096, 16 << 10},
                {8 << 20, 32 << 10},    {31 << 20, 64 << 10},   {32 << 20, 128 << 10},
                {127 << 20, 256 << 10}, {128 << 20, 512 << 10}, {512 << 20, 512 << 10}};

    (void) state;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        gpusym_worker_t *w = open_worker(&transport, rows[i].bytes);
        assert_int_equal(gpusym_worker_piece_bytes(w), rows[i].piece);
        gpusym_worker_close(w);
    }
}

/* ---- memory ---- */

/* With the lock held. A stream to a peer, with a ring of `pieces` pieces. */
static int open_ring(gpusym_worker_t *w, gpusym_worker_peer_t *peer, uint32_t pieces, gpusym_net_stream_t **stream)
{
    const gpusym_net_stream_params_t params = {.peer = gpusym_worker_peer_net(peer),
                                               .token_in = 1,
                                               .token_out = 2,
                                               .pieces_in = pieces,
                                               .pieces_out = pieces,
                                               .bytes_in = PIECE,
                                               .bytes_out = PIECE};
    return gpusym_net_stream_open(gpusym_worker_streams(w), &params, stream);
}

static void rings_and_send_buffers_share_the_memory(void **state)
{
    enum { ALL = MEMORY / PIECE };
    gpusym_net_stream_t *stream = NULL;
    char *p[ALL], *more = NULL;

    (void) state;
    gpusym_worker_t *w = open_worker(&transport, MEMORY - 1);
    gpusym_worker_enter_wait(w);
    gpusym_worker_peer_t *peer = get_peer(w, w);
    assert_int_equal(gpusym_worker_room(w), MEMORY);
    assert_int_equal(gpusym_worker_alloc(w, 0, &more), GPUSYM_ERR_BAD_PARAM);
    assert_int_equal(gpusym_worker_alloc(w, MEMORY + 1, &more), GPUSYM_ERR_NO_MEMORY);
    for (unsigned i = 0; i < ALL; i++) {
        OK(gpusym_worker_alloc(w, PIECE - 1, &p[i]));
        assert_int_equal((uintptr_t) p[i] % 4096, 0);
        memset(p[i], (int) i, PIECE);
        assert_int_equal(gpusym_worker_room(w), MEMORY - (i + 1) * PIECE);
    }
    for (unsigned i = 0; i < ALL; i++) {
        assert_true((unsigned char) p[i][0] == i && (unsigned char) p[i][PIECE - 1] == i);
    }
    assert_int_equal(gpusym_worker_alloc(w, 1, &more), GPUSYM_ERR_NO_MEMORY);
    assert_int_equal(open_ring(w, peer, 1, &stream), GPUSYM_ERR_NO_MEMORY);
    assert_null(more);
    for (unsigned i = 0; i < ALL; i++) {
        gpusym_worker_free(w, p[i], PIECE - 1);
    }
    OK(open_ring(w, peer, ALL, &stream));
    assert_int_equal(gpusym_worker_room(w), 0);
    assert_int_equal(gpusym_worker_alloc(w, 1, &more), GPUSYM_ERR_NO_MEMORY);
    assert_true(gpusym_net_stream_close(stream));
    assert_int_equal(gpusym_worker_room(w), MEMORY);
    gpusym_worker_peer_put(peer);
    gpusym_worker_leave(w);
    gpusym_worker_close(w);
}

static void memory_is_only_reserved(void **state)
{
    enum { BYTES = 32 << 20, PAGES = BYTES / 4096 };
    static unsigned char resident[PAGES];
    char *p;

    (void) state;
    gpusym_worker_t *w = open_worker(&transport, BYTES);
    gpusym_worker_enter_wait(w);
    OK(gpusym_worker_alloc(w, BYTES, &p));
    gpusym_worker_leave(w);
    OK(mincore(p, BYTES, resident));
    for (unsigned i = 0; i < PAGES; i++) {
        assert_int_equal(resident[i] & 1, 0);
    }
    gpusym_worker_close(w);
}

static int refuse_register(gpusym_gpu_t *g, void *host, size_t size, void **at)
{
    (void) g;
    (void) host;
    (void) size;
    (void) at;
    return GPUSYM_ERR_NO_MEMORY;
}

static void memory_is_pinned_for_one_gpu(void **state)
{
    gpusym_device_t dev = gpusym_device_sim;
    gpusym_gpu_t *gpu, *other = (gpusym_gpu_t *) &dev; /* is only compared */
    char *host = NULL, *device = NULL, *again = NULL, *p;
    const char *why;
    gpusym_mem_t mem;

    (void) state;
    OK(dev.open(&why));
    OK(dev.gpu_open(NULL, &gpu));
    gpusym_worker_t *w = open_worker(&transport, MEMORY);
    gpusym_worker_enter_wait(w);
    OK(gpusym_worker_alloc(w, MEMORY, &p));
    dev.host_register = refuse_register;
    assert_int_equal(gpusym_worker_map(w, &dev, gpu, &host, &device), GPUSYM_ERR_NO_MEMORY);
    dev.host_register = gpusym_device_sim.host_register;
    OK(gpusym_worker_map(w, &dev, gpu, &host, &device));
    assert_ptr_equal(host, p);
    dev.query(host + MEMORY - 1, &mem);
    assert_int_equal(mem.kind, GPUSYM_MEM_REGISTERED);
    dev.host_register = refuse_register; /* it is not tried again */
    host = NULL;
    OK(gpusym_worker_map(w, &dev, gpu, &host, &again));
    assert_true(host == p && again == device);
    assert_int_equal(gpusym_worker_map(w, &dev, other, &host, &again), GPUSYM_ERR_UNREACHABLE);
    gpusym_worker_leave(w);
    gpusym_worker_close(w);
    dev.query(p, &mem);
    assert_int_equal(mem.kind, GPUSYM_MEM_HOST);
    dev.close();
}

static uint64_t may_pin;

static int register_some(gpusym_gpu_t *gpu, void *host, size_t size, void **at)
{
    return size > may_pin ? GPUSYM_ERR_NO_MEMORY : gpusym_device_sim.host_register(gpu, host, size, at);
}

static void as_much_is_pinned_as_can_be(void **state)
{
    gpusym_device_t dev = gpusym_device_sim;
    gpusym_gpu_t *gpu;
    char *host, *device, *p;
    const char *why;

    (void) state;
    OK(dev.open(&why));
    OK(dev.gpu_open(NULL, &gpu));
    dev.host_register = register_some;
    for (unsigned k = 0; k < 4; k++) { /* all of it, a half, too little, less than is used */
        static const uint64_t may[] = {8 * MEMORY, 5 * MEMORY, MEMORY / 2, 2 * MEMORY};
        static const uint64_t usable[] = {8 * MEMORY, 4 * MEMORY, 0, 0};
        gpusym_worker_t *w = open_worker(&transport, 8 * MEMORY);
        gpusym_worker_enter_wait(w);
        may_pin = may[k];
        if (3 == k) {
            OK(gpusym_worker_alloc(w, 3 * MEMORY, &p));
        }
        assert_int_equal(gpusym_worker_map(w, &dev, gpu, &host, &device),
                         0 != usable[k] ? GPUSYM_SUCCESS : GPUSYM_ERR_NO_MEMORY);
        if (0 != usable[k]) {
            assert_int_equal(gpusym_worker_bytes(w), usable[k]);
            assert_int_equal(gpusym_worker_alloc(w, usable[k] + 1, &p), GPUSYM_ERR_NO_MEMORY);
            OK(gpusym_worker_alloc(w, usable[k], &p));
            assert_int_equal(gpusym_worker_room(w), 0);
        }
        gpusym_worker_leave(w);
        gpusym_worker_close(w);
    }
    dev.close();
}

/* ---- the cgroup's limit ---- */

static char folder[] = "/tmp/gpusym-left-XXXXXX";

static void write_file(const char *name, const char *text)
{
    char at[128];
    snprintf(at, sizeof at, "%s/%s", folder, name);
    FILE *f = fopen(at, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static uint64_t left_by(const char *line)
{
    char at[128];
    write_file("cgroup", line);
    snprintf(at, sizeof at, "%s/cgroup", folder);
    return gpusym_memory_left_in(at, folder);
}

static void a_cgroup_leaves_memory(void **state)
{
    static const char *const names[] = {"job/memory.max",
                                        "job/memory.current",
                                        "job/memory.stat",
                                        "memory/memory.limit_in_bytes",
                                        "memory/memory.usage_in_bytes",
                                        "cgroup",
                                        "job",
                                        "memory",
                                        ""};
    char at[128];
    (void) state;
    assert_non_null(mkdtemp(folder));
    for (unsigned i = 6; i < 8; i++) {
        snprintf(at, sizeof at, "%s/%s", folder, names[i]);
        assert_int_equal(mkdir(at, 0700), 0);
    }
    assert_true(UINT64_MAX == left_by("0::/job\n"));
    write_file("job/memory.max", "max\n");
    write_file("job/memory.current", "700\n");
    assert_true(UINT64_MAX == left_by("0::/job\n"));
    write_file("job/memory.max", "1000\n");
    assert_int_equal(left_by("3:pids:/x\n0::/job\n"), 300);
    write_file("job/memory.stat", "anon 5\nfile_mapped 9\nfile 200\n");
    assert_int_equal(left_by("0::/job\n"), 500);
    write_file("job/memory.stat", "file 200\nshmem 150\n");
    assert_int_equal(left_by("0::/job\n"), 350);
    write_file("memory/memory.limit_in_bytes", "400\n");
    write_file("memory/memory.usage_in_bytes", "500\n");
    assert_int_equal(left_by("4:memory:/not/here\n0::/job\n"), 0);
    write_file("memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(UINT64_MAX == left_by("4:memory:/\n"));
    assert_true(UINT64_MAX == gpusym_memory_left_in("/nowhere", folder));
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(at, sizeof at, "%s/%s", folder, names[i]);
        assert_int_equal(remove(at), 0);
    }
}

/* The limit of locked memory is told while there is one. */
static void limits_are_told(void **state)
{
    char text[GPUSYM_LIMITS_TEXT];
    struct rlimit before, now;
    (void) state;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    now = before;
    now.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &now), 0);
    assert_non_null(strstr(gpusym_memory_limits(text), "; the limit of locked memory (ulimit -l) is 0 KiB"));
    if (RLIM_INFINITY == before.rlim_max) {
        now.rlim_cur = RLIM_INFINITY;
        assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &now), 0);
        assert_null(strstr(gpusym_memory_limits(text), "ulimit"));
    }
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

/* ---- peers ---- */

static void peers_are_shared(void **state)
{
    gpusym_worker_peer_t *none = NULL;
    gpusym_worker_t *w[3];

    (void) state;
    for (unsigned i = 0; i < 3; i++) {
        w[i] = open_worker(&transport, MEMORY);
    }
    gpusym_worker_enter_wait(w[0]);
    gpusym_worker_peer_t *one = get_peer(w[0], w[1]), *two = get_peer(w[0], w[2]);
    assert_ptr_not_equal(one, two);
    assert_ptr_not_equal(gpusym_worker_peer_net(one), gpusym_worker_peer_net(two));
    assert_ptr_equal(get_peer(w[0], w[1]), one);
    assert_int_equal(opened, 2);
    gpusym_worker_peer_put(one);
    gpusym_worker_peer_put(one); /* it stays open */
    assert_ptr_equal(get_peer(w[0], w[1]), one);
    assert_int_equal(opened, 2);
    assert_int_equal(closed, 0);
    for (unsigned i = 0; i < 2; i++) { /* an address of nobody: tried once */
        assert_int_equal(gpusym_worker_peer_get(w[0], "nobody", 6, false, &none), GPUSYM_ERR_UNREACHABLE);
    }
    assert_int_equal(opened, 3);
    gpusym_worker_leave(w[0]);
    for (unsigned i = 0; i < 3; i++) {
        gpusym_worker_close(w[i]);
    }
}

static unsigned lines; /* that tell of a loss */

static void count_lines(const char *line)
{
    lines += NULL != strstr(line, "lost") ? 1 : 0;
}

/* Of the two that end, one is needed: only its loss is logged. */
static void a_loss_is_told(void **state)
{
    gpusym_worker_t *w[3];
    gpusym_worker_peer_t *peer[3];

    (void) state;
    for (unsigned i = 0; i < 3; i++) {
        w[i] = open_worker(&transport, MEMORY);
    }
    gpusym_worker_enter_wait(w[0]);
    peer[1] = get_peer(w[0], w[1]);
    peer[2] = get_peer(w[0], w[2]);
    gpusym_worker_peer_put(peer[2]);
    gpusym_worker_leave(w[0]);
    gpusym_log_to(count_lines, 2);
    lines = 0;
    for (unsigned i = 1; i < 3; i++) {
        assert_null(gpusym_worker_peer_lost(peer[i]));
        net_fake_kill(gpusym_net_streams_net(gpusym_worker_streams(w[i])));
        for (unsigned k = 0; k < 10; k++) {
            assert_true(gpusym_worker_enter(w[0]));
            gpusym_worker_leave(w[0]);
        }
        assert_string_equal(gpusym_worker_peer_lost(peer[i]), "the process has ended");
        assert_int_equal(lines, 1);
    }
    gpusym_log_to(NULL, 0);
    gpusym_worker_enter_wait(w[0]);
    assert_ptr_equal(get_peer(w[0], w[1]), peer[1]); /* it is got all the same */
    gpusym_worker_leave(w[0]);
    for (unsigned i = 0; i < 3; i++) {
        gpusym_worker_close(w[i]);
    }
}

/* ---- the lock ---- */

static struct {
    gpusym_worker_t *worker;
    uint64_t step; /* atomic */
} holder;

static void *enter_and_stay(void *arg)
{
    (void) arg;
    gpusym_worker_enter_wait(holder.worker);
    __atomic_store_n(&holder.step, 1, __ATOMIC_RELEASE);
    while (1 == load(&holder.step)) {
        usleep(100);
    }
    gpusym_worker_leave(holder.worker);
    return NULL;
}

static void one_thread_at_a_time(void **state)
{
    pthread_t thread;

    (void) state;
    holder.worker = open_worker(&transport, MEMORY);
    holder.step = 0;
    assert_true(gpusym_worker_enter(holder.worker));
    OK(pthread_create(&thread, NULL, enter_and_stay, NULL));
    sleep_ns(20 * MS);
    assert_int_equal(load(&holder.step), 0); /* it waits */
    gpusym_worker_leave(holder.worker);
    wait_for(&holder.step, 1);
    assert_false(gpusym_worker_enter(holder.worker));
    __atomic_store_n(&holder.step, 2, __ATOMIC_RELEASE);
    OK(pthread_join(thread, NULL));
    assert_true(gpusym_worker_enter(holder.worker));
    gpusym_worker_leave(holder.worker);
    gpusym_worker_close(holder.worker);
}

/* ---- the helper thread ---- */

/* A task that counts its polls. */
typedef struct {
    gpusym_worker_task_t task;
    uint64_t polls, waits; /* atomic */
} clock_task_t;

static bool note_poll(void *arg)
{
    clock_task_t *c = arg;
    __atomic_fetch_add(&c->polls, 1, __ATOMIC_ACQ_REL);
    return 0 != load(&c->waits);
}

static void add_clock(gpusym_worker_t *w, clock_task_t *c)
{
    *c = (clock_task_t){.task = {.poll = note_poll, .arg = c}};
    gpusym_worker_enter_wait(w);
    OK(gpusym_worker_add_task(w, &c->task));
    gpusym_worker_leave(w);
}

/* The helper thread's naps, where a test holds the clock: they last until it lets them end, or they are interrupted. */
static struct {
    bool held;               /* atomic */
    uint64_t begun, let, ns; /* how many have begun; and were let end; how long the last one is to be. Atomic */
} naps;

/* In place of libc's, for the library; the thread's condition variable is of CLOCK_MONOTONIC. A nap that is held comes
 * back again and again before its time, as POSIX allows: only the caller can see what it waits for, and a signal may
 * come when a wait has just timed out. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *end)
{
    static __thread uint64_t number; /* of this thread's nap; 0: the next call begins one */
    struct timespec soon;

    if (!__atomic_load_n(&naps.held, __ATOMIC_ACQUIRE)) {
        number = 0;
        return pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, end);
    }
    if (0 == number) {
        const uint64_t ns = (uint64_t) end->tv_sec * 1000000000u + (uint64_t) end->tv_nsec - gpusym_now_ns();
        __atomic_store_n(&naps.ns, ns, __ATOMIC_RELEASE);
        number = __atomic_add_fetch(&naps.begun, 1, __ATOMIC_ACQ_REL);
    }
    if (load(&naps.let) >= number) {
        number = 0;
        return ETIMEDOUT;
    }
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &soon);
    soon.tv_nsec += (long) MS / 10;
    soon.tv_sec += soon.tv_nsec / 1000000000;
    soon.tv_nsec %= 1000000000;
    (void) pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &soon);
    return 0;
}

static void hold_naps(void)
{
    clock_hold();
    naps.begun = naps.let = 0;
    __atomic_store_n(&naps.held, true, __ATOMIC_RELEASE);
}

static void release_naps(void)
{
    __atomic_store_n(&naps.held, false, __ATOMIC_RELEASE);
    clock_release();
}

/* So much of a nap has passed, and MPI's threads are here. */
static void enter_after(gpusym_worker_t *w, uint64_t ns)
{
    clock_go_on(ns);
    gpusym_worker_enter_wait(w);
    gpusym_worker_leave(w);
}

/* The rest of a nap, so much, has passed. Returns how long the next one is to be. */
static uint64_t end_nap(uint64_t ns)
{
    clock_go_on(ns);
    const uint64_t number = __atomic_add_fetch(&naps.let, 1, __ATOMIC_ACQ_REL) + 1;
    wait_for(&naps.begun, number);
    return load(&naps.ns);
}

static void it_looks_as_often_as_needed(void **state)
{
    clock_task_t idle, busy;
    gpusym_net_stream_t *stream;
    unsigned quick = 0;

    (void) state;
    hold_naps();
    gpusym_worker_t *w = open_worker(&transport, MEMORY);
    add_clock(w, &idle);
    wait_for(&naps.begun, 1);
    add_clock(w, &busy);
    for (unsigned i = 0; i < 20; i++) { /* nothing waits */
        assert_int_equal(end_nap(10 * MS), 10 * MS);
        assert_int_equal(load(&busy.polls), i + 1);
    }
    __atomic_store_n(&busy.waits, 1, __ATOMIC_RELEASE); /* one of two tasks waits */
    assert_int_equal(end_nap(10 * MS), MS / 10);
    for (unsigned i = 0; i < 20; i++) {
        const uint64_t polls = load(&idle.polls);
        assert_int_equal(end_nap(MS / 10), MS / 10);
        assert_int_equal(load(&idle.polls), polls + 1);
    }
    __atomic_store_n(&busy.waits, 0, __ATOMIC_RELEASE);
    assert_int_equal(end_nap(MS / 10), 10 * MS);

    gpusym_worker_enter_wait(w); /* something moves: the stream's hello, which comes to nobody */
    OK(open_ring(w, get_peer(w, w), 1, &stream));
    gpusym_worker_leave(w);
    uint64_t nap = end_nap(10 * MS);
    for (; MS / 10 == nap; quick++) {
        nap = end_nap(nap);
    }
    assert_int_equal(nap, 10 * MS);
    assert_true(quick >= 390); /* of the 50 ms that follow */
    gpusym_worker_close(w);
    release_naps();
}

/* But it comes every 10 ms; and if a task waits, it comes all the same. */
static void it_stays_away_while_others_are_at_it(void **state)
{
    clock_task_t c;

    (void) state;
    hold_naps();
    gpusym_worker_t *w = open_worker(&transport, MEMORY);
    add_clock(w, &c);
    wait_for(&naps.begun, 1);
    __atomic_store_n(&c.waits, 1, __ATOMIC_RELEASE);
    assert_int_equal(end_nap(10 * MS), MS / 10);
    for (unsigned i = 0; i < 20; i++) {
        const uint64_t polls = load(&c.polls);
        enter_after(w, MS / 20);
        assert_int_equal(end_nap(MS / 20), MS / 10);
        assert_int_equal(load(&c.polls), polls + 1);
    }
    __atomic_store_n(&c.waits, 0, __ATOMIC_RELEASE);
    assert_int_equal(end_nap(MS / 10), 10 * MS);

    const uint64_t polls = load(&c.polls);
    enter_after(w, 10 * MS - 1); /* just before it would look: it has not for 10 ms, and does */
    assert_int_equal(end_nap(1), 10 * MS);
    assert_int_equal(load(&c.polls), polls + 1);
    enter_after(w, 9 * MS);
    assert_int_equal(end_nap(MS / 2), MS / 2); /* woken 9.5 ms after its last look: it stays away for 1 ms since */
    assert_int_equal(load(&c.polls), polls + 1);
    enter_after(w, MS / 4);
    assert_int_equal(end_nap(MS / 8), MS - MS / 8);
    assert_int_equal(load(&c.polls), polls + 1);
    enter_after(w, MS / 8); /* 10 ms since */
    assert_int_equal(end_nap(0), 10 * MS);
    assert_int_equal(load(&c.polls), polls + 2);
    gpusym_worker_close(w);
    release_naps();
}

static struct {
    char name[16];
    bool signals; /* that handlers may take are blocked, those of faults are not */
    uint64_t done;
} looks;

static bool look_around(void *arg)
{
    sigset_t blocked;

    (void) arg;
    pthread_getname_np(pthread_self(), looks.name, sizeof looks.name);
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    looks.signals = 1 == sigismember(&blocked, SIGALRM) && 1 == sigismember(&blocked, SIGCHLD) &&
                    1 == sigismember(&blocked, SIGINT) && 0 == sigismember(&blocked, SIGSEGV);
    __atomic_store_n(&looks.done, 1, __ATOMIC_RELEASE);
    return false;
}

static void it_has_a_name_and_takes_no_signals(void **state)
{
    gpusym_worker_task_t task = {.poll = look_around};
    sigset_t mine;

    (void) state;
    looks.done = 0;
    gpusym_worker_t *w = open_worker(&transport, MEMORY);
    gpusym_worker_enter_wait(w);
    OK(gpusym_worker_add_task(w, &task));
    gpusym_worker_leave(w);
    wait_for(&looks.done, 1);
    gpusym_worker_close(w);
    assert_string_equal(looks.name, "gpusym-net");
    assert_true(looks.signals);
    pthread_sigmask(SIG_BLOCK, NULL, &mine);
    assert_int_equal(sigismember(&mine, SIGALRM), 0);
}

/* In place of libc's, for the threads of this program and of the library. */
static bool no_threads;

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*) (void *), void *);

    *(void **) &next = dlsym(RTLD_NEXT, "pthread_create");
    return no_threads ? EAGAIN : next(thread, attr, start, arg);
}

/* At a limit on processes: the task is not added, the worker does all else, and a later task has a thread. */
static void a_task_without_a_thread_is_refused(void **state)
{
    clock_task_t refused = {.task = {.poll = note_poll, .arg = &refused}}, next;

    (void) state;
    gpusym_worker_t *w = open_worker(&transport, MEMORY);
    gpusym_worker_enter_wait(w);
    no_threads = true;
    assert_int_equal(gpusym_worker_add_task(w, &refused.task), GPUSYM_ERR_NOT_AVAILABLE);
    no_threads = false;
    gpusym_worker_leave(w);
    assert_true(gpusym_worker_enter(w));
    gpusym_worker_leave(w);
    add_clock(w, &next);
    wait_for(&next.polls, 3);
    gpusym_worker_close(w);
    assert_int_equal(load(&refused.polls), 0);
}

/* A task that removes itself at its third poll. */
typedef struct {
    gpusym_worker_task_t task;
    gpusym_worker_t *worker;
    uint64_t polls; /* atomic */
} short_task_t;

static bool leave_soon(void *arg)
{
    short_task_t *s = arg;
    if (3 == __atomic_add_fetch(&s->polls, 1, __ATOMIC_ACQ_REL)) {
        gpusym_worker_remove_task(s->worker, &s->task);
    }
    return true;
}

static void tasks_come_and_go(void **state)
{
    clock_task_t first, last;

    (void) state;
    gpusym_worker_t *w = open_worker(&transport, MEMORY);
    short_task_t s = {.task = {.poll = leave_soon, .arg = &s}, .worker = w};
    add_clock(w, &first);
    gpusym_worker_enter_wait(w);
    OK(gpusym_worker_add_task(w, &s.task));
    gpusym_worker_leave(w);
    add_clock(w, &last);
    wait_for(&s.polls, 3);
    wait_for(&first.polls, load(&first.polls) + 3);
    assert_int_equal(load(&s.polls), 3);
    gpusym_worker_enter_wait(w);
    gpusym_worker_remove_task(w, &first.task);
    const uint64_t polls = load(&first.polls);
    gpusym_worker_leave(w);
    wait_for(&last.polls, load(&last.polls) + 3);
    assert_int_equal(load(&first.polls), polls);
    gpusym_worker_close(w);
}

/* A nap that would not end is interrupted. */
static void close_ends_it_at_once(void **state)
{
    (void) state;
    hold_naps();
    gpusym_worker_t *w = open_worker(&transport, MEMORY);
    clock_task_t c;
    add_clock(w, &c);
    wait_for(&naps.begun, 1);
    gpusym_worker_close(w);
    assert_int_equal(load(&c.polls), 1);
    release_naps();
}

/* ---- pieces, moved on by the helper threads alone ---- */

typedef struct {
    unsigned side;
    gpusym_worker_t *worker;
    gpusym_worker_task_t task;
    gpusym_net_stream_t *stream;
    gpusym_net_message_t message[PIECES];
    char *data; /* [PIECES][PIECE] */
    uint32_t sent, read;
    uint64_t wrong, done; /* atomic */
} end_t;

static uint32_t bytes_of(uint32_t number)
{
    return 0 == number % 3 ? PIECE - number : number % 200;
}

static int byte_of(unsigned side, uint32_t number)
{
    return (int) ((number * 7 + side * 100) & 255);
}

static void send_pieces(end_t *e)
{
    while (e->sent < EXCHANGED && 0 != gpusym_net_stream_room(e->stream)) {
        gpusym_net_message_t *message = &e->message[e->sent % PIECES];
        char *data = e->data + (size_t) (e->sent % PIECES) * PIECE;
        if (1 != __atomic_load_n(&message->sent, __ATOMIC_ACQUIRE)) {
            return;
        }
        memset(data, byte_of(e->side, e->sent), bytes_of(e->sent));
        message->head = (gpusym_net_head_t){.call = e->sent};
        if (GPUSYM_SUCCESS != gpusym_net_stream_send(e->stream, message, data, bytes_of(e->sent))) {
            return;
        }
        e->sent++;
    }
}

static void read_pieces(end_t *e)
{
    const gpusym_net_head_t *head;
    const void *data;

    while (gpusym_net_stream_read(e->stream, &head, &data)) {
        const unsigned char *bytes = data;
        bool right = head->call == e->read && head->bytes == bytes_of(e->read);
        for (uint32_t i = 0; right && i < head->bytes; i++) {
            right = byte_of(1 - e->side, e->read) == bytes[i];
        }
        e->wrong += right ? 0 : 1;
        e->read++;
        gpusym_net_stream_release(e->stream, 1);
    }
}

static bool poll_end(void *arg)
{
    end_t *e = arg;

    send_pieces(e);
    read_pieces(e);
    if (EXCHANGED == e->sent && EXCHANGED == e->read) {
        __atomic_store_n(&e->done, 1, __ATOMIC_RELEASE);
    }
    return false;
}

static void begin_exchange(end_t *e, const gpusym_worker_t *other)
{
    gpusym_worker_enter_wait(e->worker);
    const gpusym_net_stream_params_t params = {.peer = gpusym_worker_peer_net(get_peer(e->worker, other)),
                                               .token_in = 1000 + e->side,
                                               .token_out = 1001 - e->side,
                                               .pieces_in = PIECES,
                                               .pieces_out = PIECES,
                                               .bytes_in = PIECE,
                                               .bytes_out = PIECE};
    OK(gpusym_net_stream_open(gpusym_worker_streams(e->worker), &params, &e->stream));
    OK(gpusym_worker_alloc(e->worker, (uint64_t) PIECES * PIECE, &e->data));
    OK(gpusym_worker_add_task(e->worker, &e->task));
    gpusym_worker_leave(e->worker);
}

static void exchange(const gpusym_transport_t *over)
{
    static end_t end[2];

    memset(end, 0, sizeof end);
    for (unsigned i = 0; i < 2; i++) {
        end[i].side = i;
        end[i].worker = open_worker(over, MEMORY);
        end[i].task = (gpusym_worker_task_t){.poll = poll_end, .arg = &end[i]};
        for (unsigned k = 0; k < PIECES; k++) {
            end[i].message[k].sent = 1;
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        begin_exchange(&end[i], end[1 - i].worker);
    }
    for (unsigned i = 0; i < 2; i++) {
        wait_for(&end[i].done, 1);
    }
    for (unsigned i = 0; i < 2; i++) {
        gpusym_worker_close(end[i].worker);
        assert_int_equal(end[i].wrong, 0);
    }
}

static void helper_threads_move_pieces(void **state)
{
    (void) state;
    exchange(&transport);
}

static void over_ucx(void **state)
{
    const char *why;
    const gpusym_transport_t *ucx = gpusym_transport_ucx(&why);

    (void) state;
    if (NULL == ucx) {
        print_message("%s\n", why);
        skip();
    }
    exchange(ucx);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(what_cannot_be_opened_is_told),
        TEST(pieces_are_a_part_of_the_memory),
        TEST(rings_and_send_buffers_share_the_memory),
        TEST(memory_is_only_reserved),
        TEST(memory_is_pinned_for_one_gpu),
        TEST(as_much_is_pinned_as_can_be),
        TEST(a_cgroup_leaves_memory),
        TEST(limits_are_told),
        TEST(peers_are_shared),
        TEST(a_loss_is_told),
        TEST(one_thread_at_a_time),
        TEST(it_looks_as_often_as_needed),
        TEST(it_stays_away_while_others_are_at_it),
        TEST(it_has_a_name_and_takes_no_signals),
        TEST(tasks_come_and_go),
        TEST(a_task_without_a_thread_is_refused),
        TEST(close_ends_it_at_once),
        TEST(helper_threads_move_pieces),
        TEST(over_ucx),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
