/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/net/net_ucx.c: streams between two processes, by fork, as between hosts and as inside
 * one; then one of them is killed.  Skipped where there is no UCX.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/net/stream.h"
#include "test/hang.h"
#include "test/unit/random.h"

enum { PIECES = 16, PIECE = 256 << 10, MESSAGES = 3000, ADDRESS_MAX = 4096 };

/* What the processes share; zeroed at first. */
typedef struct {
    struct {
        unsigned char address[ADDRESS_MAX];
        size_t bytes;
        uint32_t ready, done;
    } side[2];
} channel_t;

static channel_t *channel;
static bool inside;

/* One process's end. */
static struct {
    const gpusym_transport_t *ucx;
    unsigned side, losses;
    gpusym_net_streams_t *streams;
    gpusym_net_peer_t *peer;
    gpusym_net_stream_t *stream;
    gpusym_net_message_t message[PIECES];
    unsigned char *data, *memory; /* [PIECES][PIECE] each */
} me;

/* A failure of either process, in plain C: cmocka's assertions belong to the parent. */
static bool expect(bool right, const char *what)
{
    if (!right) {
        fprintf(stderr, "side %u: %s\n", me.side, what);
    }
    return right;
}

static void on_lost(void *arg, void *owner, const char *why)
{
    (void) arg;
    (void) owner;
    (void) why;
    me.losses++;
}

static bool reach(const uint32_t *flag)
{
    const uint64_t end = gpusym_now_ns() + hang_s() * 1000000000ull;
    while (0 == __atomic_load_n(flag, __ATOMIC_ACQUIRE) && gpusym_now_ns() < end) {
        sched_yield();
    }
    return expect(0 != __atomic_load_n(flag, __ATOMIC_ACQUIRE), "the other process does not answer");
}

static bool open_end(unsigned side)
{
    const char *why;

    me.side = side;
    me.ucx = gpusym_transport_ucx(&why);
    me.data = mmap(NULL, 2 * PIECES * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    me.memory = me.data + PIECES * PIECE;
    const gpusym_net_streams_params_t params = {
        .transport = me.ucx, .piece_bytes = PIECE, .memory = me.memory, .bytes = PIECES * PIECE, .lost = on_lost};
    if (!expect(MAP_FAILED != me.data && NULL != me.ucx, "no UCX or no memory") ||
        !expect(GPUSYM_SUCCESS == gpusym_net_streams_open(&params, &me.streams, &why), why)) {
        return false;
    }
    const void *address = me.ucx->address(gpusym_net_streams_net(me.streams), &channel->side[side].bytes);
    if (!expect(channel->side[side].bytes <= ADDRESS_MAX, "a long address")) {
        return false;
    }
    memcpy(channel->side[side].address, address, channel->side[side].bytes);
    __atomic_store_n(&channel->side[side].ready, 1, __ATOMIC_RELEASE);
    return reach(&channel->side[1 - side].ready);
}

static bool open_stream(void)
{
    gpusym_net_stream_params_t params = {.token_in = 1000 + me.side,
                                         .token_out = 1001 - me.side,
                                         .pieces_in = PIECES,
                                         .pieces_out = PIECES,
                                         .bytes_in = PIECE,
                                         .bytes_out = PIECE};
    char way[128] = "";

    if (!expect(GPUSYM_SUCCESS == me.ucx->peer_open(gpusym_net_streams_net(me.streams),
                                                    channel->side[1 - me.side].address,
                                                    channel->side[1 - me.side].bytes, inside, NULL, &me.peer),
                "no peer")) {
        return false;
    }
    me.ucx->describe(me.peer, way, sizeof way);
    for (unsigned i = 0; i < PIECES; i++) {
        me.message[i].sent = 1;
    }
    params.peer = me.peer;
    if (0 == me.side) {
        print_message("way: %s\n", way);
    }
    return expect(NULL != strchr(way, '/'), "no transport is named") &&
           expect(GPUSYM_SUCCESS == gpusym_net_stream_open(me.streams, &params, &me.stream), "no stream");
}

static uint64_t mix(unsigned from, uint32_t number)
{
    random_state = seed ^ from ^ (uint64_t) number << 8;
    return next_random();
}

/* Mostly short, so that short and long ones overtake each other. */
static uint32_t bytes_of(uint64_t what)
{
    return 0 == what % 4 ? (uint32_t) (what >> 20) % (PIECE + 1) : (uint32_t) (what >> 20) % 200;
}

static void send_pieces(uint32_t *sent)
{
    while (*sent < MESSAGES && 0 != gpusym_net_stream_room(me.stream)) {
        gpusym_net_message_t *message = &me.message[*sent % PIECES];
        const uint64_t what = mix(me.side, *sent);
        if (1 != message->sent) {
            return;
        }
        unsigned char *data = me.data + *sent % PIECES * PIECE;
        memset(data, (int) (what & 255), bytes_of(what));
        message->head = (gpusym_net_head_t){.record = {what, *sent}};
        if (GPUSYM_SUCCESS != gpusym_net_stream_send(me.stream, message, data, bytes_of(what))) {
            return;
        }
        (*sent)++;
    }
}

static bool read_pieces(uint32_t *read)
{
    const gpusym_net_head_t *head;
    const void *data;

    while (gpusym_net_stream_read(me.stream, &head, &data)) {
        const uint64_t what = mix(1 - me.side, *read);
        const unsigned char *bytes = data;
        if (!expect(head->record[0] == what && head->record[1] == *read && head->bytes == bytes_of(what), "a head")) {
            return false;
        }
        for (uint32_t i = 0; i < head->bytes; i++) {
            if (bytes[i] != (what & 255)) {
                return expect(false, "a byte");
            }
        }
        gpusym_net_stream_release(me.stream, 1);
        (*read)++;
    }
    return true;
}

/* Both ways at once. Goes on until the other side has all too: nobody closes before. */
static bool exchange(void)
{
    const uint64_t end = gpusym_now_ns() + hang_s() * 1000000000ull;
    uint32_t sent = 0, read = 0;

    while (read < MESSAGES || sent < MESSAGES ||
           0 == __atomic_load_n(&channel->side[1 - me.side].done, __ATOMIC_ACQUIRE)) {
        if (!gpusym_net_streams_progress(me.streams)) {
            sched_yield();
        }
        send_pieces(&sent);
        if (!read_pieces(&read) || !expect(gpusym_now_ns() < end, "it takes too long")) {
            return false;
        }
        if (MESSAGES == read) {
            __atomic_store_n(&channel->side[me.side].done, 1, __ATOMIC_RELEASE);
        }
    }
    const gpusym_net_counters_t *c = me.ucx->counters(gpusym_net_streams_net(me.streams));
    return expect(c->dropped <= 1 && 0 == c->lost, "dropped or lost"); /* a hello that came early */
}

/* The other process: exchanges, then waits to be killed. */
static void run_child(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!open_end(1) || !open_stream() || !exchange()) {
        _exit(1);
    }
    __atomic_store_n(&channel->side[1].done, 2, __ATOMIC_RELEASE);
    for (;;) {
        gpusym_net_streams_progress(me.streams);
        sched_yield();
    }
}

/* Sends to the process that was killed, until that is known. */
static bool finds_loss(void)
{
    const uint64_t end = gpusym_now_ns() + hang_s() * 1000000000ull;
    static gpusym_net_message_t note;

    note.sent = 1;
    while (0 == me.losses && gpusym_now_ns() < end) {
        gpusym_net_streams_progress(me.streams);
        if (1 == note.sent) {
            (void) gpusym_net_stream_note(me.stream, &note);
        }
        sched_yield();
    }
    return expect(1 == me.losses, "no loss is told") &&
           expect(GPUSYM_ERR_UNREACHABLE == gpusym_net_stream_note(me.stream, &note), "a lost peer is sent to");
}

/* The process that stays: exchanges, kills the other one, and closes. */
static bool stay(pid_t other)
{
    if (!open_end(0) || !open_stream() || !exchange()) {
        return false;
    }
    const uint64_t end = gpusym_now_ns() + hang_s() * 1000000000ull;
    while (2 != __atomic_load_n(&channel->side[1].done, __ATOMIC_ACQUIRE)) {
        gpusym_net_streams_progress(me.streams);
        if (!expect(gpusym_now_ns() < end, "the other process does not end")) {
            return false;
        }
    }
    kill(other, SIGKILL);
    const bool right = inside || finds_loss();
    gpusym_net_streams_close(me.streams);
    return right;
}

/* Both are forked: UCX is never loaded before a fork. */
static void two_processes(bool on_one_host)
{
    pid_t pid[2];
    int status[2];

    inside = on_one_host;
    channel = mmap(NULL, sizeof *channel, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(MAP_FAILED != channel);
    for (int side = 1; side >= 0; side--) {
        fflush(NULL);
        pid[side] = fork();
        assert_true(pid[side] >= 0);
        if (0 == pid[side] && 1 == side) {
            run_child();
        } else if (0 == pid[side]) {
            _exit(stay(pid[1]) ? 0 : 1);
        }
    }
    assert_int_equal(waitpid(pid[0], &status[0], 0), pid[0]);
    kill(pid[1], SIGKILL); /* where the first one has failed */
    assert_int_equal(waitpid(pid[1], &status[1], 0), pid[1]);
    assert_true(WIFEXITED(status[0]) && 0 == WEXITSTATUS(status[0]));
    assert_true(WIFSIGNALED(status[1]));
    munmap(channel, sizeof *channel);
}

/* ---- a close that is given up ---- */

static int looks = -1; /* at the clock until a minute is over, of this process; less than 0: it is the system's */
static void (*at_look)(void);

/* In place of libc's, for this program and the library. */
int clock_gettime(clockid_t id, struct timespec *t)
{
    const int rc = (int) syscall(SYS_clock_gettime, id, t);
    if (CLOCK_MONOTONIC == id && looks >= 0) {
        t->tv_sec += 0 == looks ? 60 : 0;
        looks -= looks > 0;
        at_look();
    }
    return rc;
}

static void *accept_head(void *arg, const gpusym_net_head_t *head)
{
    (void) head;
    return arg;
}

static void note_landed(void *arg, const gpusym_net_head_t *head, bool whole)
{
    (void) head;
    *(unsigned *) arg += whole;
}

enum { SENT = 500 }; /* more than its queue holds */

/* Two nets of this process: one sends to the other, which takes it up later, and closes. */
static struct {
    const gpusym_transport_t *ucx;
    gpusym_net_t *net[2];
    gpusym_net_peer_t *peer[2];
    unsigned landed[2];
    uint32_t sent[SENT];
} pair;

static bool open_pair(uint32_t bytes_max)
{
    const char *why;
    size_t bytes;

    pair.ucx = gpusym_transport_ucx(&why);
    for (unsigned i = 0; i < 2; i++) {
        const gpusym_net_params_t params = {
            .user = {.arg = &pair.landed[i], .place = accept_head, .landed = note_landed, .lost = on_lost},
            .bytes_max = bytes_max};
        if (!expect(GPUSYM_SUCCESS == pair.ucx->open(&params, &pair.net[i], &why), why)) {
            return false;
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        const void *address = pair.ucx->address(pair.net[1 - i], &bytes);
        if (!expect(GPUSYM_SUCCESS == pair.ucx->peer_open(pair.net[i], address, bytes, true, NULL, &pair.peer[i]),
                    "no peer")) {
            return false;
        }
    }
    return true;
}

static void other_looks(void)
{
    static bool at_it;
    if (!at_it) {
        at_it = true;
        pair.ucx->progress(pair.net[1]);
        at_it = false;
    }
}

/* Gives up after so many looks at the clock, while the other takes up what was sent. */
static bool give_up(int after)
{
    static const gpusym_net_head_t head = {.mark = GPUSYM_NET_MARK, .kind = GPUSYM_NET_CREDIT};

    if (!open_pair(64)) {
        return false;
    }
    for (unsigned i = 0; i < SENT; i++) {
        if (!expect(GPUSYM_SUCCESS == pair.ucx->send(pair.peer[0], &head, NULL, &pair.sent[i]), "not sent")) {
            return false;
        }
        while (0 == i && 0 == pair.landed[1]) {
            pair.ucx->progress(pair.net[0]);
            pair.ucx->progress(pair.net[1]);
        }
    }
    at_look = other_looks;
    looks = after;
    pair.ucx->close(pair.net[0]);
    looks = -1;
    pair.ucx->close(pair.net[1]);
    return true;
}

static void nothing(void)
{
}

/* Closes while the other has not begun to fetch a long message, and never will. */
static bool close_amid_a_rendezvous(void)
{
    static const gpusym_net_head_t first = {.mark = GPUSYM_NET_MARK, .kind = GPUSYM_NET_CREDIT};
    const gpusym_net_head_t head = {.mark = GPUSYM_NET_MARK, .kind = GPUSYM_NET_DATA, .bytes = PIECE};
    void *data = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (!expect(MAP_FAILED != data, "no memory") || !open_pair(PIECE) ||
        !expect(GPUSYM_SUCCESS == pair.ucx->send(pair.peer[0], &first, NULL, &pair.sent[0]), "not sent")) {
        return false;
    }
    while (0 == pair.landed[1]) {
        pair.ucx->progress(pair.net[0]);
        pair.ucx->progress(pair.net[1]);
    }
    if (!expect(GPUSYM_SUCCESS == pair.ucx->send(pair.peer[0], &head, data, &pair.sent[1]), "not sent")) {
        return false;
    }
    at_look = nothing;
    looks = 5;
    pair.ucx->close(pair.net[0]);
    return true;
}

static bool there;

static void need_ucx(void)
{
    if (!there) {
        skip();
    }
}

static void between_hosts(void **state)
{
    (void) state;
    need_ucx();
    two_processes(false);
}

static void inside_a_host(void **state)
{
    (void) state;
    need_ucx();
    two_processes(true);
}

/* As over RDMA: longer pieces land after they were placed. */
static void by_rendezvous(void **state)
{
    (void) state;
    need_ucx();
    setenv("GPUSYM_UCX_RNDV_THRESH", "1000", 1);
    two_processes(true);
    unsetenv("GPUSYM_UCX_RNDV_THRESH");
}

/* UCX ends a process that closes with requests of its own: each in one of its own. */
static void a_close_that_is_given_up(void **state)
{
    (void) state;
    need_ucx();
    for (int after = 0; after < 40; after += 1 + after / 8) {
        int status;
        fflush(NULL);
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (0 == pid) {
            _exit(give_up(after) ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && 0 == WEXITSTATUS(status));
    }
}

static void a_close_amid_a_rendezvous(void **state)
{
    int status;

    (void) state;
    need_ucx();
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (0 == pid) {
        setenv("GPUSYM_UCX_RNDV_THRESH", "1000", 1);
        _exit(close_amid_a_rendezvous() ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && 0 == WEXITSTATUS(status));
}

/* UCX would install its own.  It is loaded here for the first time in this process, which forks no more. */
static void signal_handlers_stay(void **state)
{
    const char *why;
    struct sigaction before, after;

    (void) state;
    need_ucx();
    signal(SIGBUS, SIG_IGN);
    sigaction(SIGSEGV, NULL, &before);
    assert_non_null(gpusym_transport_ucx(&why));
    sigaction(SIGSEGV, NULL, &after);
    assert_ptr_equal(before.sa_handler, after.sa_handler);
    sigaction(SIGBUS, NULL, &after);
    assert_ptr_equal(after.sa_handler, SIG_IGN);
}

/* An unknown device is an error with words, not an abort. */
static void a_device_that_is_not_there(void **state)
{
    const char *why = NULL;
    gpusym_net_t *net;

    (void) state;
    need_ucx();
    const gpusym_net_params_t params = {.bytes_max = 64, .devices.only = "nosuch0"};
    const gpusym_transport_t *ucx = gpusym_transport_ucx(&why);
    if (GPUSYM_SUCCESS == ucx->open(&params, &net, &why)) { /* UCX may still have memory of this host */
        size_t bytes;
        assert_non_null(ucx->address(net, &bytes));
        ucx->close(net);
    } else {
        assert_non_null(strstr(why, "UCX"));
    }
}

static char lines[4096];

static void take_line(const char *line)
{
    strncat(lines, line, sizeof lines - 1 - strlen(lines));
}

static void take_tcp(void *arg, const char *device, const char *way)
{
    if (0 == strcmp(way, "tcp")) {
        snprintf(arg, 64, "%s", device);
    }
}

/* Opens a net, and expects this part of a line, and not the other one. */
static void expect_devices(const gpusym_net_devices_t *devices, const char *part, const char *absent)
{
    const gpusym_net_params_t params = {.bytes_max = 64, .devices = *devices};
    gpusym_net_t *net = NULL;
    const char *why;
    const gpusym_transport_t *ucx = gpusym_transport_ucx(&why);

    lines[0] = '\0';
    gpusym_log_to(take_line, 2);
    const int rc = ucx->open(&params, &net, &why);
    gpusym_log_to(NULL, 0);
    assert_int_equal(rc, GPUSYM_SUCCESS);
    ucx->close(net);
    if (NULL == strstr(lines, part) || NULL != strstr(lines, absent)) {
        fail_msg("\"%s\" should tell of \"%s\", and not of \"%s\"", lines, part, absent);
    }
}

static void expect_line(const char *only, const char *nearest, const char *part, const char *absent)
{
    const gpusym_net_devices_t devices = {.only = only, .nearest = nearest};

    expect_devices(&devices, part, absent);
}

/* An interface of TCP takes the place of an RDMA device. */
static void devices_that_are_advised(void **state)
{
    char tcp[64] = "", more[96], line[160];
    const char *why;

    (void) state;
    need_ucx();
    unsetenv("UCX_NET_DEVICES");
    unsetenv("GPUSYM_UCX_NET_DEVICES");
    gpusym_transport_ucx(&why)->devices(take_tcp, tcp);
    if ('\0' == tcp[0]) {
        skip();
    }
    snprintf(line, sizeof line, "devices: %s and TCP; CUDA memory: ", tcp);
    expect_line(NULL, tcp, line, "net: not with");
    expect_line("", tcp, line, "net: not with");
    expect_line(NULL, NULL, "devices: all; CUDA memory: ", "net: not with");
    snprintf(line, sizeof line, "devices: %s; ", tcp);
    expect_line(tcp, "nosuch0:1", line, "nosuch0:1");

    expect_line(NULL, "nosuch0:1", "net: not with nosuch0:1 alone: UCX does not use them here", "nosuch0:1 and TCP");
    assert_non_null(strstr(lines, "devices: all"));
    snprintf(more, sizeof more, "%s,nosuch0:1", tcp);
    expect_line(NULL, more, "nosuch0:1 alone: UCX does not use them here", "nosuch0:1 and TCP");
    snprintf(more, sizeof more, "%.1s", tcp); /* the first letter of a name is none */
    expect_line(NULL, more, "alone: UCX does not use them here", "and TCP");

    setenv("UCX_NET_DEVICES", "all", 1);
    expect_line(NULL, tcp, "alone: UCX_NET_DEVICES is set", "and TCP");
    unsetenv("UCX_NET_DEVICES");
    setenv("GPUSYM_UCX_NET_DEVICES", tcp, 1);
    expect_line(NULL, tcp, "alone: UCX_NET_DEVICES is set", "and TCP");
    unsetenv("GPUSYM_UCX_NET_DEVICES");
}

static void take_all_tcp(void *arg, const char *device, const char *way)
{
    char *list = arg;

    if (0 == strcmp(way, "tcp") && strlen(list) + strlen(device) + 2 < 1024) {
        sprintf(list + strlen(list), "%s%s", '\0' != *list ? "," : "", device);
    }
}

/* Interfaces that lead nowhere. */
static void devices_to_leave_out(void **state)
{
    char all[1024] = "", line[1200], more[1100];
    const char *why;

    (void) state;
    need_ucx();
    unsetenv("UCX_NET_DEVICES");
    unsetenv("GPUSYM_UCX_NET_DEVICES");
    gpusym_transport_ucx(&why)->devices(take_all_tcp, all);
    if (NULL == strchr(all, ',')) {
        skip(); /* there are not two */
    }
    snprintf(more, sizeof more, "%.*s", (int) strcspn(all, ","), all);
    gpusym_net_devices_t devices = {.astray = more};
    snprintf(line, sizeof line, "devices: all but %s; ", more);
    expect_devices(&devices, line, "net: not without");
    devices.nearest = strrchr(all, ',') + 1;
    snprintf(line, sizeof line, "devices: %s and TCP but %s; ", devices.nearest, more);
    expect_devices(&devices, line, "net: not with");
    devices.only = devices.nearest;
    snprintf(line, sizeof line, "devices: %s; ", devices.only);
    expect_devices(&devices, line, " but ");
    devices = (gpusym_net_devices_t){.astray = "nosuch0"};
    expect_devices(&devices, "devices: all but nosuch0; ", "net: not without");

    setenv("UCX_NET_DEVICES", "all", 1);
    expect_devices(&devices, "net: not without nosuch0: UCX_NET_DEVICES is set", " but ");
    unsetenv("UCX_NET_DEVICES");
}

/* Whether UCX can be used, found out in a process of its own: the tests fork before they load it. */
static bool has_ucx(void)
{
    int status;
    const pid_t pid = fork();

    if (0 == pid) {
        const char *why;
        const bool found = NULL != gpusym_transport_ucx(&why);
        if (!found) {
            fprintf(stderr, "%s\n", why);
        }
        _exit(found ? 0 : 1);
    }
    return pid == waitpid(pid, &status, 0) && WIFEXITED(status) && 0 == WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_hosts),
        cmocka_unit_test(inside_a_host),
        cmocka_unit_test(by_rendezvous),
        cmocka_unit_test(a_close_that_is_given_up),
        cmocka_unit_test(a_close_amid_a_rendezvous),
        cmocka_unit_test(signal_handlers_stay),
        cmocka_unit_test(a_device_that_is_not_there),
        cmocka_unit_test(devices_that_are_advised),
        cmocka_unit_test(devices_to_leave_out),
    };
    random_start(argc, argv);
    there = has_ucx();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
