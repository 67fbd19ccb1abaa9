/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Locks of what only threads that are in MPI use, and no helper thread. A lock that nobody contends takes 20 ns, and a
 * message has ten of them; without MPI_THREAD_MULTIPLE one thread is in MPI at a time, so they are not taken.
 */
#ifndef GPUSYM_LOCK_H
#define GPUSYM_LOCK_H

#include <pthread.h>
#include <stdbool.h>

/* Whether several threads may be in MPI at once; so it is until the faces know better. Written while no such lock is
 * held. */
extern bool gpusym_threads;

static inline void gpusym_lock(pthread_mutex_t *lock)
{
    if (__builtin_expect(gpusym_threads, 0)) {
        pthread_mutex_lock(lock);
    }
}

static inline void gpusym_unlock(pthread_mutex_t *lock)
{
    if (__builtin_expect(gpusym_threads, 0)) {
        pthread_mutex_unlock(lock);
    }
}

#endif
