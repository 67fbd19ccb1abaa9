/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Gauges: see gauges.h.
 */
#include "mca/common/gpusym/shm/gauges.h"

#include <pthread.h>
#include <string.h>

/* Where they are while there are no pages. */
static gpusym_gauges_t own;
static gpusym_gauges_t *gauges = &own; /* atomic */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* What has been added up: others can write to the gauges. */
static uint64_t sum[GPUSYM_GAUGES_COUNT];

void gpusym_gauge_add(gpusym_gauge_t gauge, int64_t change)
{
    pthread_mutex_lock(&lock);
    sum[gauge] += (uint64_t) change;
    __atomic_store_n(&gauges->value[gauge], sum[gauge], __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
}

uint64_t gpusym_gauge_sum(gpusym_gauge_t gauge)
{
    pthread_mutex_lock(&lock);
    const uint64_t value = sum[gauge];
    pthread_mutex_unlock(&lock);
    return value;
}

void gpusym_gauges_move(gpusym_gauges_t *to)
{
    pthread_mutex_lock(&lock);
    to = NULL != to ? to : &own;
    memset(to, 0, sizeof *to);
    memcpy(to->value, sum, sizeof sum);
    __atomic_store_n(&gauges, to, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

gpusym_kernel_status_t *gpusym_gauges_copier(unsigned i)
{
    return &__atomic_load_n(&gauges, __ATOMIC_ACQUIRE)->copier[i];
}
