/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether a multicast object may be made: see multicast.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/multicast.h"
#include "tuning/geometry.h"

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

bool gpusym_multicast_allowed(int setting, bool simulated, const char **why)
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
    if (NULL == reason && 0 == setting) {
        reason = "the multicast parameter forbids it";
    } else if (NULL == reason && setting < 0 && !gpusym_tuning_multicast(simulated)) {
        reason =
            "the tuning table has no multicast for GPUs, where it has not run yet: coll_gpusym_multicast=1 tries it";
    }
    if (NULL != reason && NULL != why) {
        *why = reason;
    }
    return NULL == reason;
}
