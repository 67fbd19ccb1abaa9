/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Error codes of libmca_common_gpusym, and system calls that signals do not disturb.  The library exports what begins
 * with gpusym_.
 */
#ifndef GPUSYM_COMMON_COMMON_H
#define GPUSYM_COMMON_COMMON_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum {
    GPUSYM_SUCCESS = 0,
    GPUSYM_ERR = -1,               /* see the device's error() */
    GPUSYM_ERR_NO_MEMORY = -2,     /* host or GPU memory */
    GPUSYM_ERR_NOT_AVAILABLE = -3, /* this machine, build or setting does not have it */
    GPUSYM_ERR_BAD_PARAM = -4,
    GPUSYM_ERR_UNREACHABLE = -5, /* a peer's memory cannot be mapped */
    GPUSYM_ERR_CORRUPT = -6,     /* shared memory holds what its owner cannot have written there */
};

/*
 * result = call, made again as long as a signal's handler cuts it short: a program's timer, a profiler's. For all
 * system calls that can say EINTR but close(), which on Linux has closed the descriptor all the same.
 */
#define GPUSYM_RESTART(result, call) \
    do {                             \
        (result) = (call);           \
    } while (-1 == (result) && EINTR == errno)

/* A clock that only rises, in nanoseconds. */
static inline uint64_t gpusym_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

/* The first line of a file (of /proc, say), without its end, cut to size - 1 characters. False, and text "": it cannot
 * be read, or is empty. */
bool gpusym_file_line(const char *path, char *text, size_t size);
/* Random bytes of the kernel's, 256 at most. False, with errno: there are none to be had. */
bool gpusym_random(void *p, size_t size);
/* Writes all of it, in one piece where the file takes that. False, with errno: it could not. */
bool gpusym_write_all(int fd, const void *data, size_t size);

#endif
