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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(self_is_alive_and_has_a_start),
        cmocka_unit_test(memory_lies_around_what_is_in_use),
        cmocka_unit_test(a_death_is_seen_before_the_parent_reaps),
        cmocka_unit_test(another_process_of_the_same_id_is_not_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
