/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Lines and errors: see log.h.
 */
#include "mca/common/gpusym/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/common.h"

#define RULE "--------------------------------------------------------------------------\n"

int gpusym_log_level;

/* `lock` covers the rest. */
static struct {
    pthread_mutex_t lock;
    gpusym_log_print_t *print;
    int stream;
    unsigned long rank;
    char host[256];
} out = {.lock = PTHREAD_MUTEX_INITIALIZER, .host = "this host"};

void gpusym_log_to(gpusym_log_print_t *print, int stream, int level)
{
    pthread_mutex_lock(&out.lock);
    out.print = print;
    out.stream = stream;
    pthread_mutex_unlock(&out.lock);
    __atomic_store_n(&gpusym_log_level, NULL != print ? level : 0, __ATOMIC_RELAXED);
}

void gpusym_log_raise(int level)
{
    if (level > gpusym_log_level) {
        __atomic_store_n(&gpusym_log_level, level, __ATOMIC_RELAXED);
    }
}

void gpusym_log_line(const char *format, ...)
{
    char line[1024];
    va_list ap;

    va_start(ap, format);
    vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    pthread_mutex_lock(&out.lock);
    if (NULL != out.print) {
        out.print(out.stream, "gpusym: %s", line);
    }
    pthread_mutex_unlock(&out.lock);
}

void gpusym_log_call(const char *call, const char *what)
{
    const int error = errno;

    GPUSYM_LOG(1, "%s failed (%s): %s", call, what, strerror(error));
    errno = error;
}

void gpusym_log_no_memory(const char *what)
{
    const int error = errno;

    GPUSYM_LOG(1, "out of host memory: %s", what);
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

void gpusym_help_list(const char *format, va_list arguments)
{
    char text[4096];
    const size_t room = sizeof(text) - sizeof(RULE); /* the closing rule always fits */
    size_t used;

    pthread_mutex_lock(&out.lock);
    used = (size_t) snprintf(text, room, RULE "gpusym, process %lu on %s, pid %d:\n\n", out.rank, out.host,
                             (int) getpid());
    pthread_mutex_unlock(&out.lock);
    if (used < room) {
        vsnprintf(text + used, room - used, format, arguments);
    }
    strcat(text, RULE);
    /* By one write, so that the messages of several ranks do not mix; signals do not interrupt it. */
    fflush(stderr);
    (void) gpusym_write_all(fileno(stderr), text, strlen(text));
}

void gpusym_help(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    gpusym_help_list(format, ap);
    va_end(ap);
}
