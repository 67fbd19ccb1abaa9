/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that processes of this host share by file descriptors: files of it, and descriptors of other processes,
 * fetched without their help.
 */
#ifndef GPUSYM_COMMON_SHM_FD_H
#define GPUSYM_COMMON_SHM_FD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * A file of `bytes` zeroed bytes of memory, for this user alone, closed on exec; the caller closes it. It is sealed: no
 * process can make it shorter under the mappings of the others, which would kill them. GPUSYM_ERR_NOT_AVAILABLE,
 * GPUSYM_ERR_NO_MEMORY, with errno.
 */
int gpusym_memfd_make(const char *name, uint64_t bytes, int *fd);
/* Whether fd, of whichever process, is such a file, of just so many bytes: that is so for ever, once it is true. */
bool gpusym_memfd_is_sealed(int fd, uint64_t bytes);

/*
 * Owner: peers may fetch our descriptors, of which fd is one, from now on until gpusym_fd_close, also where the system
 * otherwise keeps that to parents and debuggers (Yama, ptrace_scope 1). There it is allowed to the descendants of our
 * nearest ancestor that has all admitted peers among its own (mpirun, its daemon, slurmstepd; a shell over several
 * jobs), or to all processes of this user where no such ancestor is known. Where somebody else in this process has
 * allowed it before (Open MPI and UCX do, to all), that is let be, then and at the end. GPUSYM_ERR_UNREACHABLE, with
 * errno, where it is known that no process can: an old Linux, a container whose seccomp profile forbids it,
 * ptrace_scope 2. The first call takes about 0.1 ms.
 */
int gpusym_fd_share(int fd);
/* Owner: a process of this host that will fetch from us. Before it does, at any time. */
void gpusym_fd_admit(pid_t pid);
/* Owner: takes back what gpusym_fd_share allowed, and forgets all peers. Idempotent. */
void gpusym_fd_close(void);

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
