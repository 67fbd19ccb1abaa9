/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that processes of this host share by file descriptors: memfds, and descriptors fetched from other processes
 * without their help.
 */
#ifndef GPUSYM_COMMON_SHM_FD_H
#define GPUSYM_COMMON_SHM_FD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Makes a memfd of `bytes` zeroed bytes, accessible to this user alone, closed on exec.  The caller closes it.  It is
 * sealed: no process can shrink it, which would kill the processes that map it.  Errors, with errno:
 * GPUSYM_ERR_NOT_AVAILABLE, GPUSYM_ERR_NO_MEMORY.
 */
int gpusym_memfd_make(const char *name, uint64_t bytes, int *fd);
/* Returns whether fd, of any process, is such a memfd of exactly `bytes` bytes.  Once true, this stays true. */
bool gpusym_memfd_is_sealed(int fd, uint64_t bytes);

/*
 * Owner: lets peers fetch the descriptors of this process, fd among them, until gpusym_fd_close, even if the system
 * reserves that to parents and debuggers (Yama, ptrace_scope 1).  It then permits the descendants of the nearest
 * ancestor that has all admitted peers among its own (mpirun, its daemon, slurmstepd; a shell over several jobs), or
 * all processes of this user if no such ancestor is known.  If another library of this process has permitted it before
 * (Open MPI and UCX do, to all), that setting is left alone, now and at the end.  The first call takes about 0.1 ms.
 * GPUSYM_ERR_UNREACHABLE, with errno: no process can fetch, on an old Linux, in a container whose seccomp profile
 * forbids it, or under ptrace_scope 2.
 */
int gpusym_fd_share(int fd);
/* Owner: admits a process of this host that is going to fetch, at any time before it does. */
void gpusym_fd_admit(pid_t pid);
/* Owner: revokes what gpusym_fd_share permitted, and forgets all peers.  Idempotent. */
void gpusym_fd_close(void);

/* Returns whether a system call failed with this errno because the process or the system has no descriptor left. */
bool gpusym_fd_is_lack(int error);
/* Returns whether no descriptor is left now: a cause of errors that do not name it (a driver's). */
bool gpusym_fd_lack(void);

/*
 * Copies descriptor fd of process pid to *copy, closed on exec.  The caller closes it, and knows that pid is the
 * process that it means and that it has fd open.  Uses pidfd_getfd(2), Linux 5.6.  GPUSYM_ERR_UNREACHABLE, with errno:
 * the kernel does not have that call or forbids it (Yama, seccomp), or the process or its descriptor is gone.
 */
int gpusym_fd_fetch(pid_t pid, int fd, int *copy);

#endif
