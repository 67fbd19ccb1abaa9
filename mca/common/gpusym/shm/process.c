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

/* Fields of /proc/PID/stat behind the name, which ends with the last ')'; the state is the 1st. */
enum { FIELD_PARENT = 2, FIELD_START = 20, FIELD_STACK = 26, FIELD_HEAP = 45 };

typedef struct {
    char state;
    int32_t parent;
    uint64_t start;
    uint64_t stack, heap; /* where they begin; 0 in the file of another user's process */
} process_stat_t;

static void take_field(process_stat_t *stat, int field, const char *text)
{
    switch (field) {
    case FIELD_PARENT:
        stat->parent = (int32_t) strtol(text, NULL, 10);
        break;
    case FIELD_START:
        stat->start = strtoull(text, NULL, 10);
        break;
    case FIELD_STACK:
        stat->stack = strtoull(text, NULL, 10);
        break;
    case FIELD_HEAP:
        stat->heap = strtoull(text, NULL, 10);
        break;
    default:
        break;
    }
}

/* Whether /proc numbers processes as we do: it may be that of the pid namespace outside ours. */
static bool proc_is_ours(void)
{
    char text[32];
    const ssize_t n = readlink("/proc/self", text, sizeof text - 1);

    text[n > 0 ? n : 0] = '\0';
    return strtol(text, NULL, 10) == (long) getpid();
}

/* Reads the fields of a process from the file that is said to be its own; leaves unchanged what cannot be read. False:
 * there is no such process. */
static bool read_file(const char *path, process_stat_t *stat)
{
    char line[1024];

    errno = 0;
    if (!gpusym_file_line(path, line, sizeof line)) {
        return ENOENT != errno && ESRCH != errno;
    }
    const char *p = strrchr(line, ')');
    if (NULL == p || '\0' == p[1] || '\0' == p[2]) {
        return true;
    }
    stat->state = p[2];
    p++;
    for (int field = 2; NULL != (p = strchr(p + 1, ' ')); field++) {
        take_field(stat, field, p);
    }
    return true;
}

/* The same of any process; of what /proc shows under other numbers nothing can be read. */
static bool read_stat(int32_t pid, process_stat_t *stat)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/stat", (int) pid);
    return !proc_is_ours() ? 0 == kill(pid, 0) || ESRCH != errno : read_file(path, stat);
}

void gpusym_process_self(gpusym_process_id_t *id)
{
    process_stat_t stat = {.start = 0};

    *id = (gpusym_process_id_t){.pid = (int32_t) getpid()};
    (void) read_stat(id->pid, &stat);
    id->start = stat.start;
}

pid_t gpusym_pid_parent(pid_t pid)
{
    process_stat_t stat = {.parent = 0};

    (void) read_stat((int32_t) pid, &stat);
    return (pid_t) stat.parent;
}

void gpusym_process_memory(uintptr_t *stack, uintptr_t *heap)
{
    process_stat_t stat = {.stack = 0};

    (void) read_file("/proc/self/stat", &stat);
    *stack = (uintptr_t) stat.stack;
    *heap = (uintptr_t) stat.heap;
}

/* Returns, from /proc alone, whether the process exists, is no zombie, and started when id says. */
static bool is_there(const gpusym_process_id_t *id)
{
    process_stat_t stat = {.state = 'R', .start = id->start};

    return id->pid > 0 && read_stat(id->pid, &stat) && 'Z' != stat.state && 'X' != stat.state &&
           (0 == id->start || stat.start == id->start);
}

int gpusym_pidfd_open(pid_t pid)
{
    int pidfd = -1;
#ifdef SYS_pidfd_open
    GPUSYM_RESTART(pidfd, (int) syscall(SYS_pidfd_open, pid, 0));
#else
    (void) pid;
    errno = ENOSYS;
#endif
    return pidfd;
}

/* 1: the process runs; 0: it has ended; -1: the descriptor does not tell. A pidfd is readable from the moment the
 * process has ended, reaped or not. */
static int poll_pidfd(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int n;

    if (pidfd < 0) {
        return -1;
    }
    GPUSYM_RESTART(n, poll(&p, 1, 0));
    if (0 == n) {
        return 1;
    }
    return n > 0 && 0 != (p.revents & POLLIN) ? 0 : -1;
}

bool gpusym_pidfd_alive(int pidfd, pid_t pid)
{
    const int runs = poll_pidfd(pidfd);

    return runs < 0 ? gpusym_pid_alive(pid) : 0 != runs;
}

/* Opens the descriptor before the check, so that both mean the same process. */
static void watch_process(gpusym_process_t *process)
{
    process->watched = true;
    process->pidfd = gpusym_pidfd_open(process->id.pid);
    process->dead = !is_there(&process->id);
}

bool gpusym_process_alive(gpusym_process_t *process)
{
    if (!process->watched) {
        watch_process(process);
    } else if (!process->dead) {
        const int runs = poll_pidfd(process->pidfd);
        process->dead = runs < 0 ? !is_there(&process->id) : 0 == runs;
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
    process_stat_t stat = {.state = 'R'};

    if (pid <= 0 || (0 != kill(pid, 0) && ESRCH == errno)) {
        return false;
    }
    (void) read_stat(pid, &stat);
    return 'Z' != stat.state && 'X' != stat.state;
}
