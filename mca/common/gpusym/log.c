/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Lines and errors: see log.h.
 */
#include "mca/common/gpusym/log.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mca/common/gpusym/common.h"

#define RULE "--------------------------------------------------------------------------\n"

int gpusym_log_level;

/* `lock` covers the rest. */
static struct {
    pthread_mutex_t lock;
    gpusym_log_print_t *print;
    unsigned long rank;
    char host[256];
    uint64_t told[64]; /* the names that this process holds, see is_ours_to_tell */
    unsigned ntold;
} out = {.lock = PTHREAD_MUTEX_INITIALIZER, .rank = GPUSYM_LOG_NO_RANK, .host = "this host"};

void gpusym_log_to(gpusym_log_print_t *print, int level)
{
    pthread_mutex_lock(&out.lock);
    out.print = print;
    pthread_mutex_unlock(&out.lock);
    __atomic_store_n(&gpusym_log_level, level, __ATOMIC_RELAXED);
}

void gpusym_log_raise(int level)
{
    if (level > gpusym_log_level) {
        __atomic_store_n(&gpusym_log_level, level, __ATOMIC_RELAXED);
    }
}

/* By one write, so that what several ranks print does not mix; signals do not interrupt it. */
static void write_text(const char *text)
{
    fflush(stderr);
    (void) gpusym_write_all(fileno(stderr), text, strlen(text));
}

/* "host", or "host:rank 3". With the lock held. */
static void name_process(char *buf, size_t size)
{
    if (GPUSYM_LOG_NO_RANK == out.rank) {
        snprintf(buf, size, "%s", out.host);
    } else {
        snprintf(buf, size, "%s:rank %lu", out.host, out.rank);
    }
}

void gpusym_log_line(const char *format, ...)
{
    char line[1400], name[300];
    size_t used;
    va_list ap;

    pthread_mutex_lock(&out.lock);
    gpusym_log_print_t *print = out.print;
    name_process(name, sizeof(name));
    pthread_mutex_unlock(&out.lock);
    used = (size_t) snprintf(line, sizeof(line), "[%s] gpusym: ", name);
    va_start(ap, format);
    vsnprintf(line + used, sizeof(line) - used - 1, format, ap);
    va_end(ap);
    strcat(line, "\n");
    if (NULL != print) {
        print(line);
    } else {
        write_text(line);
    }
}

void gpusym_log_call(const char *call, const char *what)
{
    const int error = errno;

    GPUSYM_LOG(2, "%s failed (%s): %s", call, what, strerror(error));
    errno = error;
}

void gpusym_log_no_memory(const char *what)
{
    const int error = errno;

    GPUSYM_LOG(2, "out of host memory: %s", what);
    errno = error;
}

void gpusym_log_name(unsigned long rank, const char *host)
{
    pthread_mutex_lock(&out.lock);
    out.rank = rank;
    if (NULL != host) {
        snprintf(out.host, sizeof(out.host), "%s", host);
    }
    pthread_mutex_unlock(&out.lock);
}

/* ---- errors ---- */

/* How long processes that meet the same error take to tell it. A later one of the same words is another. */
#define TELL_NS 10000000000ull

/* A name for an error in a span of that time, alike in all processes of the job whose texts differ by no more than
 * numbers. */
static uint64_t name_error(const char *job, const char *text, uint64_t span)
{
    uint64_t name = 0xcbf29ce484222325ull ^ span; /* FNV-1a */

    for (const char *c = job; '\0' != *c; c++) {
        name = (name ^ (unsigned char) *c) * 0x100000001b3ull;
    }
    for (const char *c = text; '\0' != *c; c++) {
        if (!isdigit((unsigned char) *c)) {
            name = (name ^ (unsigned char) *c) * 0x100000001b3ull;
        }
    }
    return name;
}

/* With the lock held. */
static bool holds_name(uint64_t name)
{
    for (unsigned i = 0; i < out.ntold; i++) {
        if (out.told[i] == name) {
            return true;
        }
    }
    return false;
}

/* An abstract socket: one process of a node can have the name, until it ends. */
static socklen_t socket_address(uint64_t name, struct sockaddr_un *address)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    return (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 +
                        (size_t) snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "gpusym-told-%016llx",
                                          (unsigned long long) name));
}

/* Whether another process holds the name. With the lock held. */
static bool is_held_elsewhere(uint64_t name)
{
    struct sockaddr_un address;
    const socklen_t length = socket_address(name, &address);
    const int fd = holds_name(name) ? -1 : socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool held = fd >= 0 && 0 == connect(fd, (const struct sockaddr *) &address, length);

    if (fd >= 0) {
        close(fd);
    }
    return held;
}

/* Takes the name. False: another process has it. With the lock held. */
static bool take_name(uint64_t name)
{
    struct sockaddr_un address;
    const socklen_t length = socket_address(name, &address);
    int fd;

    if (holds_name(name) || out.ntold == sizeof(out.told) / sizeof(out.told[0])) {
        return true;
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && 0 == bind(fd, (const struct sockaddr *) &address, length)) {
        out.told[out.ntold++] = name; /* the descriptor stays open, and the name with it */
        return true;
    }
    const bool taken = fd >= 0 && EADDRINUSE == errno;
    if (fd >= 0) {
        close(fd);
    }
    return !taken;
}

/* Whether this process prints an error: no other one of its job on this node has in this span of time or the last. What
 * holds the name may print it again. */
static bool is_ours_to_tell(const char *text)
{
    const char *job = getenv("PMIX_NAMESPACE");
    const uint64_t span = gpusym_now_ns() / TELL_NS;
    bool ours;

    if (NULL == job) {
        return true;
    }
    pthread_mutex_lock(&out.lock);
    ours = !is_held_elsewhere(name_error(job, text, span - 1)) && take_name(name_error(job, text, span));
    pthread_mutex_unlock(&out.lock);
    return ours;
}

void gpusym_help_list(const char *format, va_list arguments)
{
    char text[4096];
    const size_t room = sizeof(text) - sizeof(RULE); /* the closing rule always fits */
    size_t used;

    pthread_mutex_lock(&out.lock);
    used = (size_t) snprintf(text, room, RULE "gpusym, process %lu on %s, pid %d:\n\n", out.rank, out.host,
                             (int) getpid());
    pthread_mutex_unlock(&out.lock);
    vsnprintf(text + used, room - used, format, arguments);
    if (is_ours_to_tell(text + used)) {
        strcat(text, RULE);
        write_text(text);
    } else {
        GPUSYM_LOG(2, "an error that another process of this node has printed: %s", text + used);
    }
}

void gpusym_help(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    gpusym_help_list(format, ap);
    va_end(ap);
}

void gpusym_append(char *text, size_t size, size_t *used, const char *format, ...)
{
    va_list ap;

    if (*used >= size) {
        return;
    }
    va_start(ap, format);
    const int n = vsnprintf(text + *used, size - *used, format, ap);
    va_end(ap);
    *used += n > 0 ? (size_t) n : 0;
}
