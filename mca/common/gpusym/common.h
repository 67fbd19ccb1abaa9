/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Error codes of libmca_common_gpusym, system calls that signals do not interrupt, and the clock.  The library exports
 * the symbols that begin with gpusym_.
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
    GPUSYM_ERR = -1,               /* the device's error() describes it */
    GPUSYM_ERR_NO_MEMORY = -2,     /* host or GPU memory */
    GPUSYM_ERR_NOT_AVAILABLE = -3, /* this machine, build or configuration does not have it */
    GPUSYM_ERR_BAD_PARAM = -4,
    GPUSYM_ERR_UNREACHABLE = -5, /* a peer's memory cannot be mapped */
    GPUSYM_ERR_CORRUPT = -6,     /* shared memory holds values that its owner does not write */
    GPUSYM_ERR_LATE = -7,        /* what a copy waits for has not come in time, or it cannot wait: nothing is lost */
};

/*
 * result = call, repeated as long as a signal handler (a timer's, a profiler's) interrupts it. For all system calls
 * that can fail with EINTR, except close(): on Linux it has closed the descriptor nevertheless.
 */
#define GPUSYM_RESTART(result, call) \
    do {                             \
        (result) = (call);           \
    } while (-1 == (result) && EINTR == errno)

/* Returns the time of a monotonic clock, in nanoseconds. */
static inline uint64_t gpusym_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

/* The same, to some milliseconds, for a few nanoseconds. */
static inline uint64_t gpusym_coarse_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

/* Reads the first line of a file (of /proc, say), without its newline, cut to size - 1 characters. False, with text "":
 * the file cannot be read (errno), or is empty. */
bool gpusym_file_line(const char *path, char *text, size_t size);
/* Fills p with `size` random bytes of the kernel, at most 256. False, with errno: none are available. */
bool gpusym_random(void *p, size_t size);
/* Writes `size` bytes to fd, by one write() if the file accepts that. False, with errno: not all were written. */
bool gpusym_write_all(int fd, const void *data, size_t size);

#endif
