/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * File descriptors of other processes of this host, fetched without their help: memory that is known by a descriptor
 * alone is shared that way.
 */
#ifndef GPUSYM_COMMON_FD_H
#define GPUSYM_COMMON_FD_H

#include <stdbool.h>
#include <sys/types.h>

/* Owner: processes of the same user may fetch our descriptors, of which fd is one, from now on, also where the system
 * otherwise keeps that to parents and debuggers (Yama, ptrace_scope 1). GPUSYM_ERR_UNREACHABLE, with errno, where it is
 * known that no process can: an old Linux, a container whose seccomp profile forbids it. */
int gpusym_fd_share(int fd);

/* Whether a failure of a system call is that there is no descriptor left, of this process or of the system. */
bool gpusym_fd_is_lack(int error);
/* Whether there is none left now: why something may have failed that does not say so (a driver). */
bool gpusym_fd_lack(void);

/*
 * A copy of descriptor fd of process pid, closed on exec; the caller closes it. The caller knows that pid is the
 * process it means and that it has fd open. By pidfd_getfd(2), Linux 5.6. GPUSYM_ERR_UNREACHABLE, with errno, where
 * that is not there, is forbidden (Yama, seccomp), or the process or its descriptor has gone.
 */
int gpusym_fd_fetch(pid_t pid, int fd, int *copy);

#endif
