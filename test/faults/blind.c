/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank that can open no descriptor of its peers, and so maps none of their memory, as where /proc is restricted.
 * Loaded before any program (LD_PRELOAD); GPUSYM_BLIND is the number of that rank.
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
#include <unistd.h>

static bool is_blind(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *blind = getenv("GPUSYM_BLIND");
    return NULL != rank && NULL != blind && 0 == strcmp(rank, blind);
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

    if (is_of_peer(path) && is_blind()) {
        errno = EACCES;
        return -1;
    }
    *(void **) &next = dlsym(RTLD_NEXT, "open");
    va_start(ap, flags);
    const int mode = va_arg(ap, int); /* read where there is none, too, and not used then */
    va_end(ap);
    return next(path, flags, mode);
}
