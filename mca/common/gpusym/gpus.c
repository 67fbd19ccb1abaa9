/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The GPUs that this process uses for messages: see gpus.h.
 */
#include "mca/common/gpusym/gpus.h"

#include "mca/common/gpusym/exec/copier.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/p2p/send_desc.h"
#include "tuning/resident.h"

/* Calls of gpusym_p2p_gpu_review() between two looks at the peers: a process that begins to use the same GPU waits that
 * long for its time. */
#define REVIEW 1024u

int gpusym_p2p_linger;

static gpusym_gpu_t *last;  /* atomic */
static uint32_t until_look; /* calls; near enough if several threads count */
static bool takes_turns;    /* atomic */

gpusym_gpu_t *gpusym_p2p_gpu_last(void)
{
    return __atomic_load_n(&last, __ATOMIC_ACQUIRE);
}

bool gpusym_p2p_gpu_reaches(const void *p, size_t bytes)
{
    gpusym_mem_t begin, end;
    gpusym_current.dev->query(p, &begin);
    if (GPUSYM_MEM_REGISTERED != begin.kind) {
        return false;
    }
    gpusym_current.dev->query((const char *) p + bytes - 1, &end);
    return GPUSYM_MEM_REGISTERED == end.kind && begin.id == end.id;
}

int gpusym_p2p_gpu_open(const gpusym_mem_t *mem, gpusym_gpu_t **gpu)
{
    const int rc = gpusym_current.dev->gpu_open(mem, gpu);

    if (GPUSYM_SUCCESS == rc && *gpu != gpusym_p2p_gpu_last()) {
        gpusym_gpu_info_t info;
        gpusym_current.dev->gpu_info(*gpu, &info);
        gpusym_send_descs_use_gpu(info.uuid);
        __atomic_store_n(&until_look, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&last, *gpu, __ATOMIC_RELEASE);
    }
    return rc;
}

void gpusym_p2p_gpu_review(gpusym_gpu_t *gpu)
{
    const gpusym_device_t *dev = gpusym_current.dev;
    const int us = gpusym_p2p_linger;
    gpusym_gpu_info_t info;

    const uint32_t calls = __atomic_load_n(&until_look, __ATOMIC_RELAXED);
    if (0 != calls) {
        __atomic_store_n(&until_look, calls - 1, __ATOMIC_RELAXED);
        return;
    }
    __atomic_store_n(&until_look, REVIEW, __ATOMIC_RELAXED);
    dev->gpu_info(gpu, &info);
    const uint64_t linger = us < 0 ? gpusym_tuning_linger_us(dev->simulated) : (uint64_t) us;
    const bool shared = gpusym_send_descs_gpu_shared(info.uuid);
    const bool turns = shared && !info.mps;
    __atomic_store_n(&takes_turns, turns, __ATOMIC_RELAXED);
    if (shared && NULL != dev->gpu_crowded) {
        dev->gpu_crowded(gpu);
    }
    if (turns && 0 != linger) {
        GPUSYM_LOG(2, "point-to-point: no copier on %s, which another rank uses too", info.where);
    }
    gpusym_copier_linger(dev, gpu, turns ? 0 : 1000 * linger, us < 0);
}

bool gpusym_p2p_gpu_takes_turns(void)
{
    return __atomic_load_n(&takes_turns, __ATOMIC_RELAXED);
}

void gpusym_p2p_gpus_close(void)
{
    last = NULL;
    until_look = 0;
}
