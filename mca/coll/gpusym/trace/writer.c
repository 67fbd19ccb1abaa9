/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The thread that writes files: see writer.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity, pthread_setname_np */
#endif
#include "mca/coll/gpusym/trace/writer.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/log.h"

/* Runs on the cores that this process is not bound to. If there are none that it may use, or more than the set can
 * name, it stays where it is. */
static void leave_cores(void)
{
    cpu_set_t own, others;
    if (0 != sched_getaffinity(0, sizeof own, &own)) {
        return;
    }
    memset(&others, 0xff, sizeof others);
    CPU_XOR(&others, &others, &own);
    (void) sched_setaffinity(0, sizeof others, &others);
}

/* Sleeps until it is time, or it is woken, with the lock. False: it ends. */
static bool sleep_until_next(coll_gpusym_writer_t *w)
{
    const uint64_t until = gpusym_now_ns() + w->every_ns;
    const struct timespec at = {.tv_sec = (time_t) (until / 1000000000u), .tv_nsec = (long) (until % 1000000000u)};
    for (int rv = 0; !w->ending && !w->woken && ETIMEDOUT != rv;) {
        rv = 0 == w->every_ns ? pthread_cond_wait(&w->wake, &w->lock) : pthread_cond_timedwait(&w->wake, &w->lock, &at);
    }
    w->woken = false;
    return !w->ending;
}

static void *keep_writing(void *arg)
{
    coll_gpusym_writer_t *w = arg;
    pthread_setname_np(pthread_self(), w->name);
    leave_cores();
    pthread_mutex_lock(&w->lock);
    for (bool ok = true; ok && sleep_until_next(w);) {
        pthread_mutex_unlock(&w->lock);
        ok = w->write();
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void end_locks(coll_gpusym_writer_t *w)
{
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    w->pid = 0;
}

bool coll_gpusym_writer_start(coll_gpusym_writer_t *w)
{
    pthread_condattr_t monotonic;
    sigset_t all, saved;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    w->woken = w->ending = false;
    w->pid = getpid();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    const int error = pthread_create(&w->thread, NULL, keep_writing, w);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    if (0 != error) {
        GPUSYM_LOG(1, "%s: pthread_create: %s", w->name, strerror(error));
        end_locks(w);
    }
    return 0 == error;
}

void coll_gpusym_writer_wake(coll_gpusym_writer_t *w)
{
    pthread_mutex_lock(&w->lock);
    w->woken = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

bool coll_gpusym_writer_stop(coll_gpusym_writer_t *w)
{
    if (getpid() != w->pid) { /* there is none, or it is the parent's */
        return false;
    }
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    end_locks(w);
    return true;
}
