/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading and writing under signals; random bytes; the coarse clock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/common.h"

#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "mca/common/gpusym/lock.h"

bool gpusym_threads = true;

bool gpusym_file_line(const char *path, char *text, size_t size)
{
    size_t used = 0;
    ssize_t got = 0;
    int fd;

    text[0] = '\0';
    GPUSYM_RESTART(fd, open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0) {
        return false;
    }
    do {
        GPUSYM_RESTART(got, read(fd, text + used, size - 1 - used));
        used += got > 0 ? (size_t) got : 0;
    } while (got > 0 && used < size - 1 && NULL == memchr(text, '\n', used));
    close(fd);
    text[used] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return got >= 0 && used > 0;
}

bool gpusym_random(void *p, size_t size)
{
    ssize_t n;
    GPUSYM_RESTART(n, getrandom(p, size, 0));
    return (ssize_t) size == n;
}

bool gpusym_write_all(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t n;
        GPUSYM_RESTART(n, write(fd, at, size));
        if (n <= 0) {
            return false;
        }
        at += n;
        size -= (size_t) n;
    }
    return true;
}
