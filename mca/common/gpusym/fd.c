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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mca/common/gpusym/common.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3 */
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int gpusym_memfd_make(const char *name, uint64_t bytes, int *fd)
{
    int rc;
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (*fd < 0 && EINVAL == errno) { /* an older Linux */
        *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    if (*fd < 0) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    GPUSYM_RESTART(rc, fchmod(*fd, S_IRUSR | S_IWUSR));
    if (0 == rc) {
        GPUSYM_RESTART(rc, ftruncate(*fd, (off_t) bytes));
    }
    if (0 == rc) {
        GPUSYM_RESTART(rc, fcntl(*fd, F_ADD_SEALS, SEALS));
    }
    if (0 == rc) {
        return GPUSYM_SUCCESS;
    }
    const int error = errno;
    close(*fd);
    *fd = -1;
    errno = error;
    return GPUSYM_ERR_NO_MEMORY;
}

bool gpusym_memfd_is_sealed(int fd, uint64_t bytes)
{
    struct stat st;
    const int seals = fcntl(fd, F_GET_SEALS); /* before the size is asked for, which may change till then */
    return seals >= 0 && SEALS == (seals & SEALS) && 0 == fstat(fd, &st) && (uint64_t) st.st_size == bytes;
}

int gpusym_fd_fetch(pid_t pid, int fd, int *copy)
{
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_getfd)
    int process;
    GPUSYM_RESTART(process, (int) syscall(SYS_pidfd_open, pid, 0));
    if (process < 0) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    GPUSYM_RESTART(*copy, (int) syscall(SYS_pidfd_getfd, process, fd, 0));
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
