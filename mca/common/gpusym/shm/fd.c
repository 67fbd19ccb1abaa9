/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Descriptors of other processes: see fd.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/shm/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/sanitizers.h"
#include "mca/common/gpusym/shm/process.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3 */
#endif

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61 /* Linux 3.4 */
#define PR_SET_PTRACER_ANY ((unsigned long) -1)
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
        gpusym_log_call("memfd_create", name);
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
    gpusym_log_call("fchmod, ftruncate or F_ADD_SEALS", name);
    close(*fd);
    *fd = -1;
    errno = error;
    return GPUSYM_ERR_NO_MEMORY;
}

bool gpusym_memfd_is_sealed(int fd, uint64_t bytes)
{
    struct stat st;
    const int seals = fcntl(fd, F_GET_SEALS); /* before the size is read, which may change until then */
    return seals >= 0 && SEALS == (seals & SEALS) && 0 == fstat(fd, &st) && (uint64_t) st.st_size == bytes;
}

bool gpusym_fd_is_lack(int error)
{
    return EMFILE == error || ENFILE == error;
}

bool gpusym_fd_lack(void)
{
    int fd;
    GPUSYM_RESTART(fd, open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (fd >= 0) {
        close(fd);
        return false;
    }
    return gpusym_fd_is_lack(errno);
}

int gpusym_fd_fetch(pid_t pid, int fd, int *copy)
{
#ifdef SYS_pidfd_getfd
    const int process = gpusym_pidfd_open(pid);
    if (process < 0) {
        gpusym_log_call("pidfd_open", "a peer's file descriptor");
        return GPUSYM_ERR_UNREACHABLE;
    }
    GPUSYM_RESTART(*copy, (int) syscall(SYS_pidfd_getfd, process, fd, 0));
    if (*copy < 0) {
        gpusym_log_call("pidfd_getfd", "a peer's file descriptor");
    }
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

/* ---- processes that may fetch from this one ---- */

/*
 * Linux lets processes of one user fetch from each other. Yama (ptrace_scope 1) permits only ancestors, and either the
 * descendants of one process that this one names, or any process (prctl(2), PR_SET_PTRACER). Other libraries may have
 * permitted any process before: Open MPI (btl/vader, smsc/cma: at MPI_Init), UCX. The setting cannot be read, so a
 * process that is no ancestor tries to fetch: if it can, the setting is left alone, now and at the end.
 */
static struct {
    pthread_mutex_t lock;
    bool open;    /* other processes can fetch */
    bool named;   /* because this code has set PR_SET_PTRACER */
    pid_t *peers; /* processes that are to fetch */
    size_t npeers, room;
} us = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_descendant(pid_t pid, pid_t from)
{
    while (pid > 0 && pid != from) {
        pid = gpusym_pid_parent(pid);
    }
    return pid > 0;
}

/* The nearest ancestor of this process that has all peers among its descendants: the launch daemon, where that started
 * all ranks. 0: none is known. */
static pid_t common_ancestor(void)
{
    pid_t ancestor = getppid();
    for (size_t i = 0; i < us.npeers; i++) {
        while (ancestor > 0 && !is_descendant(us.peers[i], ancestor)) {
            ancestor = gpusym_pid_parent(ancestor);
        }
    }
    return ancestor;
}

/* Permits the common ancestor's descendants; any process, where no such ancestor is visible from here. */
static void name_tracer(void)
{
    const pid_t ancestor = common_ancestor();
    (void) prctl(PR_SET_PTRACER, ancestor > 0 ? (unsigned long) ancestor : PR_SET_PTRACER_ANY, 0, 0, 0);
    us.named = true;
}

static void unname_tracer(void)
{
    if (us.named) {
        (void) prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    }
    us.named = false;
}

typedef struct {
    pid_t pid;
    int fd;
} target_t;

static int fetch_as_child(void *arg)
{
    const target_t *target = arg;
    int copy; /* closed with the process, which has a table of its own */
    return GPUSYM_SUCCESS == gpusym_fd_fetch(target->pid, target->fd, &copy) ? 0 : 1;
}

/* Returns whether a child can fetch fd from this process: 1: yes; 0: no; -1: no child can be made. The child shares
 * this process's memory and ends before this thread goes on. It sends and gets no signal, and no other wait() returns
 * it. With the lock held. */
static int others_can(int fd)
{
    static _Alignas(64) char stack[64 << 10];
    target_t target = {getpid(), fd};
    sigset_t all, saved;
    int status = -1;
    pid_t rc = -1;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
#ifdef __SANITIZE_THREAD__ /* knows no processes that share memory */
    const pid_t child = fork();
    if (0 == child) {
        _exit(fetch_as_child(&target));
    }
    (void) stack;
#else
    const pid_t child = clone(fetch_as_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK, &target);
#endif
    if (child > 0) {
        GPUSYM_RESTART(rc, waitpid(child, &status, __WALL));
    }
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    return child <= 0 || rc != child || !WIFEXITED(status) ? -1 : 0 == WEXITSTATUS(status);
}

/* Makes the descriptors fetchable for peers. With the lock held. */
static int open_to_peers(int fd)
{
    const int can = others_can(fd);
    us.open = true;
    if (can > 0) {
        return GPUSYM_SUCCESS;
    }
    if (can < 0) { /* other libraries may rely on "any": permit that, for good */
        (void) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        return GPUSYM_SUCCESS;
    }
    name_tracer();
    if (0 != others_can(fd)) {
        return GPUSYM_SUCCESS;
    }
    unname_tracer();
    us.open = false;
    errno = EPERM;
    return GPUSYM_ERR_UNREACHABLE;
}

int gpusym_fd_share(int fd)
{
    int copy;
    /* A process can always fetch from itself, if the kernel has the call and permits it at all. */
    int rc = gpusym_fd_fetch(getpid(), fd, &copy);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    close(copy);
    pthread_mutex_lock(&us.lock);
    if (!us.open) {
        rc = open_to_peers(fd);
    }
    pthread_mutex_unlock(&us.lock);
    return rc;
}

void gpusym_fd_admit(pid_t pid)
{
    pthread_mutex_lock(&us.lock);
    if (us.npeers == us.room) {
        const size_t room = 0 == us.room ? 16 : 2 * us.room;
        pid_t *more = realloc(us.peers, room * sizeof *more);
        us.peers = NULL == more ? us.peers : more;
        us.room = NULL == more ? us.room : room;
    }
    if (us.npeers < us.room) { /* else that process may be unable to fetch */
        us.peers[us.npeers++] = pid;
    }
    if (us.named) {
        name_tracer();
    }
    pthread_mutex_unlock(&us.lock);
}

void gpusym_fd_close(void)
{
    pthread_mutex_lock(&us.lock);
    unname_tracer();
    free(us.peers);
    us.peers = NULL;
    us.npeers = us.room = 0;
    us.open = false;
    pthread_mutex_unlock(&us.lock);
}
