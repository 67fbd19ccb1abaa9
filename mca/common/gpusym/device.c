/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which device this process uses, and whether a multicast object may be made.  Knows the two
 * tables by name only; touches no GPU itself.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device.h"

gpusym_sim_params_t gpusym_sim_params;

#if !GPUSYM_HAVE_CUDA
/* device_cuda.c is not part of this build. */
const gpusym_device_t *const gpusym_device_cuda = NULL;
#endif

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

static const gpusym_device_t *choose(gpusym_device_choice_t choice, const char **why)
{
    switch (choice) {
    case GPUSYM_DEVICE_AUTO: /* the simulator is for who asks for it */
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
        const gpusym_device_t *dev = choose(choice, &reason);
        chosen.why = NULL != reason ? reason : "the device did not say why";
        chosen.made = true;
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

const gpusym_device_t *(*gpusym_device_opener)(void);

const gpusym_device_t *gpusym_device_need(void)
{
    const gpusym_device_t *dev = gpusym_device();

    return NULL == dev && NULL != gpusym_device_opener ? gpusym_device_opener() : dev;
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

/* An "enable" number of NCCL: off where NCCL would read 0, which any text that is no number is to it too. Empty is
 * unset. */
static bool enable_is_off(const char *value)
{
    if (NULL == value || '\0' == value[0]) {
        return false;
    }
    errno = 0;
    long long number = strtoll(value, NULL, 0);
    return 0 == errno && 0 == number;
}

/* A "disable" switch as NVSHMEM reads it: on when set at all, but for what begins like 0, no or false. */
static bool disable_is_on(const char *value)
{
    return NULL != value && ('\0' == value[0] || NULL == strchr("0nNfF", value[0]));
}

bool gpusym_multicast_allowed(bool param, const char **why)
{
    static const struct {
        const char *name;
        bool (*forbids)(const char *value);
        const char *why;
    } veto[] = {
        {"NCCL_NVLS_ENABLE", enable_is_off, "NCCL_NVLS_ENABLE=0 in the environment forbids multicast"},
        {"NVSHMEM_DISABLE_NVLS", disable_is_on, "NVSHMEM_DISABLE_NVLS in the environment forbids multicast"},
        {"TORCH_SYMM_MEM_DISABLE_MULTICAST", disable_is_on,
         "TORCH_SYMM_MEM_DISABLE_MULTICAST in the environment forbids multicast"},
    };
    const char *reason = NULL;
    for (size_t i = 0; i < sizeof(veto) / sizeof(veto[0]) && NULL == reason; i++) {
        if (veto[i].forbids(getenv(veto[i].name))) {
            reason = veto[i].why;
        }
    }
    if (NULL == reason && !param) {
        reason = "the multicast parameter forbids it";
    }
    if (NULL != reason && NULL != why) {
        *why = reason;
    }
    return NULL == reason;
}

int gpusym_multicast_create(const gpusym_device_t *dev, bool param, gpusym_gpu_t *gpu, unsigned members, size_t size,
                            gpusym_mc_t **mc, gpusym_handle_t *handle)
{
    if (!gpusym_multicast_allowed(param, NULL) || NULL == dev->mc_create) {
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    return dev->mc_create(gpu, members, size, mc, handle);
}
