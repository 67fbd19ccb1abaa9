/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The error codes of libmca_common_gpusym in words; reading and writing under signals.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/common.h"

#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

const char *gpusym_strerror(int err)
{
    switch (err) {
    case GPUSYM_SUCCESS:
        return "success";
    case GPUSYM_ERR:
        return "the GPU or its driver reports an error";
    case GPUSYM_ERR_NO_MEMORY:
        return "out of host or GPU memory";
    case GPUSYM_ERR_NOT_AVAILABLE:
        return "not available on this machine, in this build or by its settings";
    case GPUSYM_ERR_BAD_PARAM:
        return "bad parameter";
    case GPUSYM_ERR_UNREACHABLE:
        return "a peer's memory cannot be mapped";
    case GPUSYM_ERR_CORRUPT:
        return "memory shared with a peer was overwritten";
    default:
        return "unknown error";
    }
}

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
