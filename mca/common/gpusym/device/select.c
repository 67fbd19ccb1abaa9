/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which device this process uses.  It knows the two tables by name only, and touches no GPU itself.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <pthread.h>
#include <stddef.h>

#include "mca/common/gpusym/device/cuda/cuda_device.h"
#include "mca/common/gpusym/device/plain.h"
#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/device/sim/sim.h"

/* The choice made; `lock` covers the rest. dev is read without it by gpusym_device(). */
static struct {
    pthread_mutex_t lock;
    bool made;
    const gpusym_device_t *dev;
    const char *why; /* static, or owned by the table that refused */
} chosen = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Opens dev (NULL: not in this build); returns it, or NULL with *why. */
static const gpusym_device_t *open_one(const gpusym_device_t *dev, const char **why)
{
    if (NULL == dev) {
        *why = "this build has no CUDA (configure it --with-cuda)";
        return NULL;
    }
    return GPUSYM_SUCCESS == dev->open(why) ? dev : NULL;
}

static const gpusym_device_t *open_choice(gpusym_device_choice_t choice, const char **why)
{
    switch (choice) {
    case GPUSYM_DEVICE_AUTO: /* the simulator is taken only by name */
    case GPUSYM_DEVICE_CUDA:
        return open_one(gpusym_device_cuda, why);
    case GPUSYM_DEVICE_SIM:
        return open_one(&gpusym_device_sim, why);
    case GPUSYM_DEVICE_NONE:
        *why = "GPUs are switched off (device none)";
        return NULL;
    default:
        *why = "unknown choice of device";
        return NULL;
    }
}

const gpusym_device_t *gpusym_device_select(gpusym_device_choice_t choice, const char **why)
{
    pthread_mutex_lock(&chosen.lock);
    if (!chosen.made) {
        const char *reason = NULL;
        const gpusym_device_t *dev = open_choice(choice, &reason);
        chosen.why = NULL != reason ? reason : "the device gave no reason";
        chosen.made = true;
        gpusym_plain_find(&gpusym_device_sim == dev && gpusym_sim_params.host);
        __atomic_store_n(&chosen.dev, dev, __ATOMIC_RELEASE);
    }
    const gpusym_device_t *dev = chosen.dev;
    if (NULL == dev && NULL != why) {
        *why = chosen.why;
    }
    pthread_mutex_unlock(&chosen.lock);
    return dev;
}

const gpusym_device_t *gpusym_device(void)
{
    return __atomic_load_n(&chosen.dev, __ATOMIC_ACQUIRE);
}

void gpusym_device_close(void)
{
    pthread_mutex_lock(&chosen.lock);
    const gpusym_device_t *dev = chosen.dev;
    __atomic_store_n(&chosen.dev, NULL, __ATOMIC_RELEASE);
    chosen.made = false;
    if (NULL != dev) {
        dev->close();
    }
    pthread_mutex_unlock(&chosen.lock);
}
