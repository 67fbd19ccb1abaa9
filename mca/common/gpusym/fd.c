/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Descriptors of other processes: see fd.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mca/common/gpusym/common.h"

bool gpusym_fd_is_lack(int error)
{
    return EMFILE == error || ENFILE == error;
}

bool gpusym_fd_lack(void)
{
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
        return false;
    }
    return gpusym_fd_is_lack(errno);
}

int gpusym_fd_fetch(pid_t pid, int fd, int *copy)
{
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_getfd)
    const int process = (int) syscall(SYS_pidfd_open, pid, 0);
    if (process < 0) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    *copy = (int) syscall(SYS_pidfd_getfd, process, fd, 0);
    const int error = errno;
    close(process);
    errno = error;
    return *copy < 0 ? GPUSYM_ERR_UNREACHABLE : GPUSYM_SUCCESS;
#else
    (void) pid;
    (void) fd;
    (void) copy;
    errno = ENOSYS;
    return GPUSYM_ERR_UNREACHABLE;
#endif
}

int gpusym_fd_share(int fd)
{
    int copy;
#ifdef PR_SET_PTRACER
    (void) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
    /* A process may always fetch from itself, if the call is there and allowed at all. */
    const int rc = gpusym_fd_fetch(getpid(), fd, &copy);
    if (GPUSYM_SUCCESS == rc) {
        close(copy);
    }
    return rc;
}
