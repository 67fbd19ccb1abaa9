/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/shm/process.c: processes forked from this one, and ids that no process has any more.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sbrk */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mca/common/gpusym/shm/process.h"

static void self_is_alive_and_has_a_start(void **state)
{
    gpusym_process_t p = {0};

    (void) state;
    gpusym_process_self(&p.id);
    assert_int_equal(p.id.pid, getpid());
    assert_int_not_equal(p.id.start, 0);
    assert_true(gpusym_process_alive(&p));
    assert_true(gpusym_process_alive(&p));
    gpusym_process_forget(&p);
}

static void memory_lies_around_what_is_in_use(void **state)
{
    uintptr_t stack, heap;
    int local = 0;

    (void) state;
    gpusym_process_memory(&stack, &heap);
    assert_true((uintptr_t) &local < stack && stack - (uintptr_t) &local < 1 << 20);
    assert_true(0 != heap && heap <= (uintptr_t) sbrk(0));
}

/* A child that waits to be killed; its id, by itself. */
static pid_t child_make(gpusym_process_id_t *id)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (0 == pid) {
        gpusym_process_self(id);
        const bool told = sizeof *id == write(ends[1], id, sizeof *id);
        while (told) {
            pause();
        }
        _exit(1);
    }
    assert_int_equal(read(ends[0], id, sizeof *id), sizeof *id);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

/* Waits until the child is a zombie, and leaves it one. */
static void child_kill(pid_t pid)
{
    siginfo_t info;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t) pid, &info, WEXITED | WNOWAIT), 0);
}

static void a_death_is_seen_before_the_parent_reaps(void **state)
{
    gpusym_process_t watched = {0}, fresh = {0}, reaped = {0};

    (void) state;
    const pid_t pid = child_make(&watched.id);
    fresh.id = reaped.id = watched.id;
    assert_int_equal(watched.id.pid, pid);
    assert_true(gpusym_process_alive(&watched));
    child_kill(pid);
    assert_false(gpusym_process_alive(&watched));
    assert_false(gpusym_process_alive(&fresh)); /* never watched while it lived */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(gpusym_process_alive(&watched));
    assert_false(gpusym_process_alive(&reaped));
    gpusym_process_forget(&watched);
    gpusym_process_forget(&fresh);
    gpusym_process_forget(&reaped);
}

/* Another process has the id by now: it started later. */
static void another_process_of_the_same_id_is_not_it(void **state)
{
    gpusym_process_t p = {0}, unknown = {0};

    (void) state;
    gpusym_process_self(&p.id);
    unknown.id = p.id;
    p.id.start--;
    assert_false(gpusym_process_alive(&p));
    assert_false(gpusym_process_alive(&p));
    unknown.id.start = 0; /* not known: the id has to do */
    assert_true(gpusym_process_alive(&unknown));
    gpusym_process_forget(&p);
    gpusym_process_forget(&unknown);
}

/* In a pid namespace below that of /proc, whose numbers mean other processes, or none. The exit status tells which
 * check failed; asserting would end only this process. */
static int look_from_inside(void)
{
    uintptr_t stack, heap;
    int local = 0;
    gpusym_process_t child = {0}, self = {0};
    gpusym_process_memory(&stack, &heap);
    if ((uintptr_t) &local >= stack || stack - (uintptr_t) &local >= 1 << 20 || heap > (uintptr_t) sbrk(0)) {
        return 1;
    }
    gpusym_process_self(&self.id);
    if (1 != self.id.pid || 0 != self.id.start || !gpusym_process_alive(&self)) {
        return 2;
    }
    for (int i = 0; i < 3; i++) { /* some numbers are those of a process outside, some of none */
        const pid_t pid = child_make(&child.id);
        if (child.id.pid != pid || !gpusym_process_alive(&child) || !gpusym_pid_alive(pid)) {
            return 3;
        }
        child_kill(pid);
        if (gpusym_process_alive(&child) || pid != waitpid(pid, NULL, 0) || gpusym_pid_alive(pid)) {
            return 4;
        }
        gpusym_process_forget(&child);
    }
    return 0;
}

static void a_proc_of_another_namespace_is_not_believed(void **state)
{
    int status;
    (void) state;
    const pid_t outer = fork();
    assert_true(outer >= 0);
    if (0 == outer) {
        if (0 != unshare(CLONE_NEWPID)) {
            _exit(77);
        }
        const pid_t inner = fork();
        if (0 == inner) {
            _exit(look_from_inside());
        }
        _exit(inner > 0 && inner == waitpid(inner, &status, 0) && WIFEXITED(status) ? WEXITSTATUS(status) : 5);
    }
    assert_int_equal(waitpid(outer, &status, 0), outer);
    assert_true(WIFEXITED(status));
    if (77 == WEXITSTATUS(status)) {
        skip(); /* only root may */
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(self_is_alive_and_has_a_start),
        cmocka_unit_test(memory_lies_around_what_is_in_use),
        cmocka_unit_test(a_death_is_seen_before_the_parent_reaps),
        cmocka_unit_test(another_process_of_the_same_id_is_not_it),
        cmocka_unit_test(a_proc_of_another_namespace_is_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
