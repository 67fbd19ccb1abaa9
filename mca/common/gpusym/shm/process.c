/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes: see process.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/shm/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mca/common/gpusym/common.h"

/* Fields of /proc/PID/stat behind the name, which ends with the last ')': the state is the 1st, the start the 20th. */
#define FIELD_START 20

/* False: there is no such process. What cannot be read is left as it was. */
static bool stat_read(int32_t pid, char *state, uint64_t *start)
{
    char path[64], line[1024];

    snprintf(path, sizeof path, "/proc/%d/stat", (int) pid);
    FILE *f = fopen(path, "re");
    if (NULL == f) {
        return ENOENT != errno && ESRCH != errno;
    }
    const bool read = NULL != fgets(line, sizeof line, f);
    fclose(f);
    const char *p = read ? strrchr(line, ')') : NULL;
    if (NULL == p || '\0' == p[1] || '\0' == p[2]) {
        return true;
    }
    *state = p[2];
    p++;
    for (int i = 1; NULL != p && i < FIELD_START; i++) {
        p = strchr(p + 1, ' ');
    }
    if (NULL != p) {
        *start = strtoull(p, NULL, 10);
    }
    return true;
}

void gpusym_process_self(gpusym_process_id_t *id)
{
    char state;

    *id = (gpusym_process_id_t){.pid = (int32_t) getpid()};
    (void) stat_read(id->pid, &state, &id->start);
}

/* By /proc alone: there, not a zombie, and not another process of the same id. */
static bool is_there(const gpusym_process_id_t *id)
{
    char state = 'R';
    uint64_t start = id->start;

    return stat_read(id->pid, &state, &start) && 'Z' != state && 'X' != state && (0 == id->start || start == id->start);
}

/* The descriptor first, then the check: so it is of the process that the check has seen. */
static void watch(gpusym_process_t *process)
{
    process->watched = true;
    process->pidfd = -1;
#ifdef SYS_pidfd_open
    process->pidfd = (int) syscall(SYS_pidfd_open, process->id.pid, 0);
#endif
    process->dead = !is_there(&process->id);
}

/* Readable from the moment the process has ended, reaped or not. */
static bool pidfd_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int n;

    do {
        n = poll(&p, 1, 0);
    } while (n < 0 && EINTR == errno);
    return n > 0;
}

bool gpusym_process_alive(gpusym_process_t *process)
{
    if (!process->watched) {
        watch(process);
    } else if (!process->dead) {
        process->dead = process->pidfd >= 0 ? pidfd_ended(process->pidfd) : !is_there(&process->id);
    }
    return !process->dead;
}

void gpusym_process_forget(gpusym_process_t *process)
{
    if (process->watched && process->pidfd >= 0) {
        close(process->pidfd);
    }
    process->watched = false;
}

bool gpusym_pid_alive(pid_t pid)
{
    char path[64], line[512];
    if (pid <= 0 || (0 != kill(pid, 0) && ESRCH == errno)) {
        return false;
    }
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    gpusym_file_line(path, line, sizeof line);
    const char *name_end = strrchr(line, ')');
    return NULL == name_end || ('Z' != name_end[2] && 'X' != name_end[2]);
}
