/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the simulator's files share: whether it is open, its GPU, its errors in words, whether streams are being
 * captured, and how many bytes of device memory are allocated.
 */
#include <stdarg.h>
#include <stdio.h>

#include "mca/common/gpusym/device/sim/sim_internal.h"

gpusym_sim_params_t gpusym_sim_params;

sim_state_t sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- errors ---- */

static _Thread_local char error_text[256] = "no error";

int sim_fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error_text, sizeof(error_text), format, args);
    va_end(args);
    return code;
}

const char *sim_error(void)
{
    return error_text;
}

int sim_gpu_check(const gpusym_gpu_t *gpu)
{
    if (!__atomic_load_n(&sim.opened, __ATOMIC_ACQUIRE)) {
        return sim_fail(GPUSYM_ERR_NOT_AVAILABLE, "the simulator is not open");
    }
    if (&sim.gpu != gpu) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "not a GPU of the simulator");
    }
    return GPUSYM_SUCCESS;
}

/* ---- bytes allocated ---- */

static uint64_t allocated; /* atomic */
static uint64_t peak;      /* atomic: the most that allocated has been since open */

bool sim_bytes_take(size_t size)
{
    if (size > sim.gpu.info.bytes) {
        return false;
    }
    const uint64_t now = size + __atomic_fetch_add(&allocated, size, __ATOMIC_RELAXED);
    if (now > sim.gpu.info.bytes) {
        __atomic_fetch_sub(&allocated, size, __ATOMIC_RELAXED);
        return false;
    }
    uint64_t most = __atomic_load_n(&peak, __ATOMIC_RELAXED);
    while (most < now && !__atomic_compare_exchange_n(&peak, &most, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return true;
}

void sim_bytes_give(size_t size)
{
    __atomic_fetch_sub(&allocated, size, __ATOMIC_RELAXED);
}

void sim_peak_reset(void)
{
    __atomic_store_n(&peak, __atomic_load_n(&allocated, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

void gpusym_sim_bytes(uint64_t *now, uint64_t *most)
{
    if (NULL != now) {
        *now = __atomic_load_n(&allocated, __ATOMIC_RELAXED);
    }
    if (NULL != most) {
        *most = __atomic_load_n(&peak, __ATOMIC_RELAXED);
    }
}
