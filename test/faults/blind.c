/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank that can open no descriptor of its peers, and so maps none of their memory, as where /proc is restricted.
 * Loaded before any program (LD_PRELOAD); GPUSYM_BLIND is the number of that rank. GPUSYM_DENIED is that of a rank
 * whose calls to copy from and to other processes' memory fail, as where ptrace is restricted.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static bool is_rank(const char *variable)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *named = getenv(variable);
    return NULL != rank && NULL != named && 0 == strcmp(rank, named);
}

/* Whether a path is a descriptor of another process. */
static bool is_of_peer(const char *path)
{
    int pid, fd;
    return 2 == sscanf(path, "/proc/%d/fd/%d", &pid, &fd) && pid != getpid();
}

int open(const char *path, int flags, ...)
{
    static int (*next)(const char *, int, ...);
    va_list ap;

    if (is_of_peer(path) && is_rank("GPUSYM_BLIND")) {
        errno = EACCES;
        return -1;
    }
    *(void **) &next = dlsym(RTLD_NEXT, "open");
    va_start(ap, flags);
    const int mode = va_arg(ap, int); /* read where there is none, too, and not used then */
    va_end(ap);
    return next(path, flags, mode);
}

typedef ssize_t (*process_vm_t)(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
                                unsigned long);

static process_vm_t allowed(const char *name)
{
    process_vm_t next = NULL;

    if (is_rank("GPUSYM_DENIED")) {
        errno = EPERM;
        return NULL;
    }
    *(void **) &next = dlsym(RTLD_NEXT, name);
    return next;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n, const struct iovec *from,
                         unsigned long nfrom, unsigned long flags)
{
    const process_vm_t next = allowed("process_vm_readv");
    return NULL != next ? next(pid, to, n, from, nfrom, flags) : -1;
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *from, unsigned long n, const struct iovec *to,
                          unsigned long nto, unsigned long flags)
{
    const process_vm_t next = allowed("process_vm_writev");
    return NULL != next ? next(pid, from, n, to, nto, flags) : -1;
}
