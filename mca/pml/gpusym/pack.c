/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Packing: see pack.h.
 */
#include "mca/pml/gpusym/pack.h"

#include <sched.h>
#include <string.h>

#include "mca/common/gpusym/exec/copier.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/pinned.h"
#include "tuning/copy.h"

/* How long the end waits for a kernel that is on its way, in ns. */
#define CLOSE_NS 1000000000u

/* Pinned memory that the copier reaches, of the first GPU that wants it. */
static struct {
    bool busy; /* atomic: who sets it has the rest */
    gpusym_gpu_t *gpu;
    char *memory;             /* for the longest copy, and a byte more; NULL: none yet */
    gpusym_copier_t *calling; /* a copy of nothing of use, by which the copier's kernel comes; NULL: none */
} pinned;
static bool waiting; /* atomic: `calling` is set */

static void give_pinned(void)
{
    __atomic_store_n(&pinned.busy, false, __ATOMIC_RELEASE);
}

static bool take_pinned(gpusym_gpu_t *gpu)
{
    if (__atomic_exchange_n(&pinned.busy, true, __ATOMIC_ACQUIRE)) {
        return false;
    }
    if (NULL == pinned.memory) {
        pinned.memory = gpusym_pinned_get(gpusym_current.dev, gpu, gpusym_tuning_copy_resident_max() + 1);
        pinned.gpu = gpu;
    }
    if (NULL == pinned.memory || pinned.gpu != gpu) {
        give_pinned();
        return false;
    }
    return true;
}

/* Whether no kernel is on its way. */
static bool poll_calling(void)
{
    if (NULL != pinned.calling && 0 != gpusym_copier_poll(pinned.calling)) {
        pinned.calling = NULL;
        __atomic_store_n(&waiting, false, __ATOMIC_RELAXED);
    }
    return NULL == pinned.calling;
}

void pml_gpusym_pack_poll(void)
{
    if (__atomic_load_n(&waiting, __ATOMIC_RELAXED) && !__atomic_exchange_n(&pinned.busy, true, __ATOMIC_ACQUIRE)) {
        (void) poll_calling();
        give_pinned();
    }
}

/* Has the copier's kernel come for the next message. Nobody waits for it: the program's kernels may fill the GPU. */
static void call_kernel(gpusym_gpu_t *gpu)
{
    const gpusym_copier_run_t run = {
        .dst = pinned.memory + gpusym_tuning_copy_resident_max(), .src = pinned.memory, .bytes = 1};
    if (GPUSYM_SUCCESS != gpusym_copier_start(gpusym_current.dev, gpu, &run, &pinned.calling)) {
        pinned.calling = NULL;
    }
    __atomic_store_n(&waiting, NULL != pinned.calling, __ATOMIC_RELAXED);
}

/* Copies between the GPU and the pinned memory. Whether that has been done. */
static bool copy_pinned(gpusym_gpu_t *gpu, char *at, size_t bytes, bool to_host)
{
    const gpusym_copier_run_t run = {.dst = to_host ? pinned.memory : at,
                                     .src = to_host ? at : pinned.memory,
                                     .bytes = (uint32_t) bytes,
                                     .does = to_host ? GPUSYM_COPY_FAR : 0};
    gpusym_copier_t *copier;
    int done;

    if (!poll_calling()) {
        return false;
    }
    if (GPUSYM_SUCCESS != gpusym_copier_command(gpusym_current.dev, gpu, &run, &copier)) {
        call_kernel(gpu);
        return false;
    }
    do {
        done = gpusym_copier_poll(copier);
    } while (0 == done);
    return done > 0;
}

/* Whether the message has been copied: by the copier, through pinned memory. The CPU's copies between that and ordinary
 * memory take a small part of what is saved. */
static bool copy_short(gpusym_gpu_t *gpu, char *at, char *host, size_t bytes, bool to_host)
{
    if (0 == bytes || bytes > gpusym_tuning_copy_resident_max() || NULL == gpu || !take_pinned(gpu)) {
        return false;
    }
    if (!to_host) {
        memcpy(pinned.memory, host, bytes);
    }
    const bool copied = copy_pinned(gpu, at, bytes, to_host);
    if (copied && to_host) {
        memcpy(host, pinned.memory, bytes);
    }
    give_pinned();
    return copied;
}

int pml_gpusym_pack(gpusym_gpu_t *gpu, const gpusym_layout_t *l, void *packed, const void *buf, size_t bytes)
{
    char *at = (char *) ((uintptr_t) buf + (uintptr_t) l->lo);

    if (gpusym_layout_is_one(gpusym_current.dev, l, buf) && copy_short(gpu, at, packed, bytes, true)) {
        return GPUSYM_SUCCESS;
    }
    return gpusym_layout_pack(gpusym_current.dev, gpu, l, packed, buf, bytes);
}

int pml_gpusym_unpack(gpusym_gpu_t *gpu, const gpusym_layout_t *l, void *buf, const void *packed, size_t bytes)
{
    char *at = (char *) ((uintptr_t) buf + (uintptr_t) l->lo);

    if (gpusym_layout_is_one(gpusym_current.dev, l, buf) &&
        copy_short(gpu, at, (char *) (uintptr_t) packed, bytes, false)) {
        return GPUSYM_SUCCESS;
    }
    return gpusym_layout_unpack(gpusym_current.dev, gpu, l, buf, packed, bytes);
}

void pml_gpusym_pack_close(void)
{
    const uint64_t since = gpusym_now_ns();

    waiting = false;
    if (NULL != pinned.memory && !gpusym_current.dev->gpu_alive(pinned.gpu)) { /* the program has reset it */
        gpusym_pinned_put(pinned.memory);
        pinned.memory = NULL;
        pinned.calling = NULL; /* gpusym_copiers_close() forgets its copier */
        return;
    }
    while (!poll_calling() && gpusym_now_ns() - since < CLOSE_NS) {
        sched_yield();
    }
    if (NULL != pinned.memory && NULL == pinned.calling) {
        gpusym_pinned_put(pinned.memory);
    }
    pinned.memory = NULL;
}
