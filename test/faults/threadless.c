/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A process that cannot start the thread which moves calls between hosts on, as at a limit on processes. Loaded before
 * any program (LD_PRELOAD).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "mca/common/gpusym/rail/worker.h"

static _Thread_local bool adding; /* in gpusym_worker_add_task, which starts it */

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*) (void *), void *);

    if (adding) {
        return EAGAIN;
    }
    *(void **) &next = dlsym(RTLD_NEXT, "pthread_create");
    return next(thread, attr, start, arg);
}

int gpusym_worker_add_task(gpusym_worker_t *worker, gpusym_worker_task_t *task)
{
    static int (*next)(gpusym_worker_t *, gpusym_worker_task_t *);

    *(void **) &next = dlsym(RTLD_NEXT, "gpusym_worker_add_task"); /* the program is linked with it */
    adding = true;
    const int rc = next(worker, task);
    adding = false;
    return rc;
}
