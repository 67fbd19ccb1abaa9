/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The unit tests' own CLOCK_MONOTONIC, in place of libc's for this program and for the library: it stands still but for
 * when a test lets it go on. So whatever waits by the clock (kernels for a rank that stays away, or for the next
 * command) ends when the test says so, however busy this machine is. To be included in one file of a program.
 */
#ifndef TEST_UNIT_CLOCK_H
#define TEST_UNIT_CLOCK_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_held_ns;               /* atomic; 0: this is the system's */
static _Thread_local uint64_t *clock_reader; /* atomic: counts how often this thread reads the clock; NULL: nothing */

int clock_gettime(clockid_t id, struct timespec *t)
{
    const uint64_t ns = __atomic_load_n(&clock_held_ns, __ATOMIC_ACQUIRE);
    if (CLOCK_MONOTONIC != id || 0 == ns) {
        return (int) syscall(SYS_clock_gettime, id, t);
    }
    if (NULL != clock_reader) {
        __atomic_fetch_add(clock_reader, 1, __ATOMIC_ACQ_REL);
    }
    t->tv_sec = (time_t) (ns / 1000000000u);
    t->tv_nsec = (long) (ns % 1000000000u);
    return 0;
}

/* From now on it stands still. */
__attribute__((unused)) static void clock_hold(void)
{
    __atomic_store_n(&clock_held_ns, 1000000000u, __ATOMIC_RELEASE);
}

/* So many nanoseconds pass, at once. */
__attribute__((unused)) static void clock_go_on(uint64_t ns)
{
    __atomic_fetch_add(&clock_held_ns, ns, __ATOMIC_ACQ_REL);
}

/* It is the system's again. */
__attribute__((unused)) static void clock_release(void)
{
    __atomic_store_n(&clock_held_ns, 0, __ATOMIC_RELEASE);
}

#endif
