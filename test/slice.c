/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Runs a command, with all that it starts, in time slices of 0.1 ms:
 *
 *     test/slice COMMAND [ARGUMENT...]
 *
 * Ranks of the tests wait by sched_yield(). Beside busy processes each of these costs a slice, of 3 ms by default, and
 * whoever is waited for comes as much later. Shares of the CPU stay as they are. Linux has this since 6.12; before, the
 * command is run as ever.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As sched_setattr(2) describes it; C libraries before 2.41 do not declare it. */
typedef struct {
    uint32_t size, policy; /* 0: SCHED_OTHER */
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
} attributes_t;

int main(int argc, char **argv)
{
    attributes_t attributes = {.size = sizeof attributes, .runtime_ns = 100000};

    if (argc < 2) {
        fprintf(stderr, "usage: test/slice COMMAND [ARGUMENT...]\n");
        return 2;
    }
    errno = 0;
    attributes.nice = nice(0);
    if (0 != errno || 0 != syscall(SYS_sched_setattr, 0, &attributes, 0)) {
        fprintf(stderr, "test/slice: time slices remain as they are: %s\n", strerror(errno));
    }
    execvp(argv[1], argv + 1);
    fprintf(stderr, "test/slice: %s: %s\n", argv[1], strerror(errno));
    return 127;
}
