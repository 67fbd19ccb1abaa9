/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Stand-in for the header of this name that Open MPI 5.0 and 6.0 include and do not install.
 * Last on the include path (m4/gpusym_ompi.m4), so the real one is taken where it is there. Names are Open MPI's.
 */
#ifndef GPUSYM_COMPAT_THREADS_PTHREADS_TSD_H
#define GPUSYM_COMPAT_THREADS_PTHREADS_TSD_H

#include <pthread.h>

#include "opal/constants.h"

typedef pthread_key_t opal_tsd_key_t;

static inline int opal_tsd_key_delete(opal_tsd_key_t key)
{
    return pthread_key_delete(key) ? OPAL_ERR_IN_ERRNO : OPAL_SUCCESS;
}

static inline int opal_tsd_set(opal_tsd_key_t key, void *value)
{
    return pthread_setspecific(key, value) ? OPAL_ERR_IN_ERRNO : OPAL_SUCCESS;
}

static inline int opal_tsd_get(opal_tsd_key_t key, void **value)
{
    *value = pthread_getspecific(key);
    return OPAL_SUCCESS;
}

#endif
