/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Stand-in for the header of this name that Open MPI 5.0 and 6.0 include and do not install.
 * Last on the include path (m4/gpusym_ompi.m4), so the real one is taken where it is there. Names are Open MPI's.
 */
#ifndef GPUSYM_COMPAT_THREADS_PTHREADS_THREADS_H
#define GPUSYM_COMPAT_THREADS_PTHREADS_THREADS_H

#include <pthread.h>
#include <signal.h>

/* libopen-pal's choice of what a waiting thread does; never NULL. */
extern void (*opal_threads_pthreads_yield_fn)(void);

static inline void opal_thread_yield(void)
{
    opal_threads_pthreads_yield_fn();
}

#endif
