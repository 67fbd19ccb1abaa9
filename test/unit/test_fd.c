/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/shm/fd.c: memory files, and who may fetch a descriptor. What Yama does (ptrace_scope
 * 1 and 2) is played by this program, which has the library's calls of prctl() and syscall(): so the tests need no such
 * Linux.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create, RTLD_NEXT */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/shm/fd.h"
#include "test/hang.h"

/* Under ThreadSanitizer fd.c tries by a fork, which is seen, and does not share what is played here. */
#ifdef __SANITIZE_THREAD__
#define NEEDS_CLONE() skip()
#else
#define NEEDS_CLONE() ((void) 0)
#endif

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

long syscall(long number, ...);

/* ---- Yama, played ---- */

enum { ANY = -1, NOBODY = 0 };

/* Shared by all processes of a test. */
static struct world {
    int scope;     /* of ptrace: 0, 1, 2 */
    pid_t owner;   /* whose descriptors are fetched */
    int tracer;    /* whom it has named: a process, ANY, NOBODY */
    unsigned said; /* how often it said so */
} * world;

static pid_t parent(pid_t pid)
{
    char path[64], line[512];
    int number = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int) pid);
    if (gpusym_file_line(path, line, sizeof line)) {
        (void) !sscanf(strrchr(line, ')') + 1, " %*c %d", &number);
    }
    return number;
}

static bool is_below(pid_t pid, pid_t above)
{
    while (pid > 0 && pid != above) {
        pid = parent(pid);
    }
    return pid > 0;
}

static bool may_fetch(pid_t pid)
{
    return pid == world->owner || 0 == world->scope ||
           (1 == world->scope && (is_below(world->owner, pid) || ANY == world->tracer ||
                                  (NOBODY != world->tracer && is_below(pid, world->tracer))));
}

int prctl(int option, ...)
{
    static int (*next)(int, ...);
    unsigned long a[4];
    va_list ap;

    va_start(ap, option);
    for (int i = 0; i < 4; i++) {
        a[i] = va_arg(ap, unsigned long);
    }
    va_end(ap);
    if (PR_SET_PTRACER == option) {
        world->tracer = (int) a[0];
        world->said++;
        return 0;
    }
    if (NULL == next) {
        *(void **) &next = dlsym(RTLD_NEXT, "prctl");
    }
    return next(option, a[0], a[1], a[2], a[3]);
}

long syscall(long number, ...)
{
    static long (*next)(long, ...);
    long a[6];
    va_list ap;

    va_start(ap, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(ap, long);
    }
    va_end(ap);
    if (SYS_pidfd_getfd == number && !may_fetch(getpid())) {
        errno = EPERM;
        return -1;
    }
    if (NULL == next) {
        *(void **) &next = dlsym(RTLD_NEXT, "syscall");
    }
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- processes: an owner and a peer, each a child of this one, or of a child of it (a script that starts it) ---- */

typedef struct {
    int down[2], up[2];
} pipelines_t;

typedef void (*role_t)(pipelines_t *pipes);

/* Starts a role, behind so many processes that only wait for it. */
static pid_t start(role_t role, unsigned behind, pipelines_t *pipes)
{
    const pid_t child = fork();
    int status = 1;

    if (0 != child) {
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    alarm(hang_s());
    close(pipes->down[1]); /* its end is the end of the pipe */
    close(pipes->up[0]);
    if (0 == behind) {
        role(pipes);
        _exit(0);
    }
    const pid_t next = start(role, behind - 1, pipes);
    _exit(next != waitpid(next, &status, 0) || 0 != status);
}

#define CHILD(good)                                                        \
    do {                                                                   \
        if (!(good)) {                                                     \
            fprintf(stderr, "line %d, in a child: %s\n", __LINE__, #good); \
            _exit(1);                                                      \
        }                                                                  \
    } while (0)

/* The owner: takes a pid of a peer (0: none), shares a descriptor and says which and whether. Then takes more peers; a
 * negative one: ends, in order. */
static void own(pipelines_t *pipes)
{
    int fd = memfd_create("shared", 0), answer[3], peer;

    world->owner = getpid();
    CHILD(sizeof peer == read(pipes->down[0], &peer, sizeof peer));
    if (peer > 0) {
        gpusym_fd_admit(peer);
    }
    answer[0] = gpusym_fd_share(fd);
    answer[1] = getpid();
    answer[2] = fd;
    CHILD(gpusym_fd_share(fd) == answer[0]);
    CHILD(sizeof answer == write(pipes->up[1], answer, sizeof answer));
    while (sizeof peer == read(pipes->down[0], &peer, sizeof peer) && peer > 0) {
        gpusym_fd_admit(peer);
        CHILD(1 == write(pipes->up[1], "", 1));
    }
    gpusym_fd_close();
    gpusym_fd_close();
}

/* A peer: says who it is, takes an owner and a descriptor, and says whether it could fetch that. */
static void fetch(pipelines_t *pipes)
{
    int from[2], pid = getpid(), rc, copy;

    CHILD(sizeof pid == write(pipes->up[1], &pid, sizeof pid));
    while (sizeof from == read(pipes->down[0], from, sizeof from)) {
        rc = gpusym_fd_fetch(from[0], from[1], &copy);
        CHILD(GPUSYM_SUCCESS != rc || 0 == close(copy));
        CHILD(sizeof rc == write(pipes->up[1], &rc, sizeof rc));
    }
}

static void say(pipelines_t *pipes, const void *what, size_t size)
{
    assert_int_equal(write(pipes->down[1], what, size), size);
}

static void hear(pipelines_t *pipes, void *what, size_t size)
{
    assert_int_equal(read(pipes->up[0], what, size), size);
}

static pid_t begin(role_t role, unsigned behind, pipelines_t *pipes)
{
    assert_true(0 == pipe2(pipes->down, O_CLOEXEC) && 0 == pipe2(pipes->up, O_CLOEXEC));
    const pid_t pid = start(role, behind, pipes);
    assert_true(pid > 0);
    close(pipes->down[0]);
    close(pipes->up[1]);
    return pid;
}

static void end(pid_t pid, pipelines_t *pipes)
{
    int status;
    close(pipes->down[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(pipes->up[0]);
}

static void world_set(int scope, int tracer)
{
    *world = (struct world){.scope = scope, .tracer = tracer};
}

/* One owner, one peer, each behind so many others: what the owner has said of its tracer while it shared, if it knew
 * the peer at first (or was told later), and whether the peer could fetch then. */
static int share_and_fetch(unsigned owner_behind, unsigned peer_behind, bool at_first, int *share_rc)
{
    pipelines_t to_owner, to_peer;
    int answer[3], peer, rc, tracer;
    const int none = 0, over = -1;
    char byte;
    /* the owner last: no other process has its pipe, which it reads to the end */
    const pid_t second = begin(fetch, peer_behind, &to_peer), first = begin(own, owner_behind, &to_owner);

    hear(&to_peer, &peer, sizeof peer);
    say(&to_owner, at_first ? &peer : &none, sizeof peer);
    hear(&to_owner, answer, sizeof answer);
    if (!at_first) {
        say(&to_owner, &peer, sizeof peer);
        hear(&to_owner, &byte, 1);
    }
    say(&to_peer, &answer[1], 2 * sizeof answer[1]);
    hear(&to_peer, &rc, sizeof rc);
    tracer = world->tracer;
    say(&to_owner, &over, sizeof over);
    end(first, &to_owner);
    end(second, &to_peer);
    *share_rc = answer[0];
    assert_int_equal(rc, 2 == world->scope ? GPUSYM_ERR_UNREACHABLE : GPUSYM_SUCCESS);
    return tracer;
}

static void where_all_may_nothing_is_said(void **state)
{
    NEEDS_CLONE();
    (void) state;
    int rc;
    world_set(0, NOBODY);
    (void) share_and_fetch(0, 0, true, &rc);
    OK(rc);
    assert_int_equal(world->said, 0);
}

/* The tracer is this process, which has started both, and nobody afterwards. */
static void only_what_one_process_has_started_may(void **state)
{
    (void) state;
    for (unsigned way = 0; way < 18; way++) {
        int rc;
        world_set(1, NOBODY);
        assert_int_equal(share_and_fetch(way / 6, way / 2 % 3, 0 != way % 2, &rc), getpid());
        OK(rc);
        assert_int_equal(world->tracer, NOBODY);
    }
}

/* What somebody else in this process has allowed is his to take back. */
static void what_others_allowed_stays(void **state)
{
    NEEDS_CLONE();
    (void) state;
    int rc;
    world_set(1, ANY);
    assert_int_equal(share_and_fetch(1, 1, true, &rc), ANY);
    OK(rc);
    assert_int_equal(world->said, 0);
    assert_int_equal(world->tracer, ANY);
}

static void where_nobody_may_that_is_told(void **state)
{
    NEEDS_CLONE();
    (void) state;
    int rc;
    world_set(2, NOBODY);
    assert_int_equal(share_and_fetch(0, 0, true, &rc), NOBODY);
    assert_int_equal(rc, GPUSYM_ERR_UNREACHABLE);
}

static volatile sig_atomic_t children;

static void count_child(int number)
{
    (void) number;
    children = children + 1;
}

/* That we try is nothing that the program sees: no SIGCHLD, no child to wait for, its signal mask and descriptors as
 * before. */
static void a_try_is_not_seen(void **state)
{
    NEEDS_CLONE();
    (void) state;
    sigset_t before = {0}, after = {0};
    const int fd = memfd_create("shared", 0);
    world_set(1, NOBODY);
    world->owner = getpid();
    signal(SIGCHLD, count_child);
    sigprocmask(SIG_SETMASK, NULL, &before);
    const int next = dup(fd);
    close(next);
    OK(gpusym_fd_share(fd));
    assert_int_equal(world->tracer, getppid());
    assert_int_equal(dup(fd), next);
    close(next);
    sigprocmask(SIG_SETMASK, NULL, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(children, 0);
    assert_int_equal(waitpid(-1, NULL, __WALL), -1);
    assert_int_equal(errno, ECHILD);
    gpusym_fd_close();
    assert_int_equal(world->tracer, NOBODY);
    signal(SIGCHLD, SIG_DFL);
    close(fd);
}

/* ---- memory files ---- */

static void files_are_sealed(void **state)
{
    (void) state;
    int fd;
    OK(gpusym_memfd_make("test", 8192, &fd));
    assert_true(gpusym_memfd_is_sealed(fd, 8192));
    assert_false(gpusym_memfd_is_sealed(fd, 4096));
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_int_equal(ftruncate(fd, 16384), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_true(0 != (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    close(fd);
    fd = memfd_create("open", MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_false(gpusym_memfd_is_sealed(fd, 8192));
    close(fd);
    assert_false(gpusym_memfd_is_sealed(fd, 8192));
    assert_false(gpusym_memfd_is_sealed(0, 0)); /* whatever that is */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_try_is_not_seen),
        cmocka_unit_test(where_all_may_nothing_is_said),
        cmocka_unit_test(only_what_one_process_has_started_may),
        cmocka_unit_test(what_others_allowed_stays),
        cmocka_unit_test(where_nobody_may_that_is_told),
        cmocka_unit_test(files_are_sealed),
    };
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (MAP_FAILED == world) {
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("fd", tests, NULL, NULL);
}
