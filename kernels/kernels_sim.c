/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of kernels.def for the simulator, by number.
 */
#include "kernels/kernels.h"
#include "kernels/kernels_sim_family.h"
#include "kernels/symm/enter.h"

static void (*const any[])(gs_ctx_t, const gpusym_work_t *) = {
#define GPUSYM_FAMILY(id, ...) gpusym_kernel_sim_any_##id,
#include "kernels/kernels.def"
};

static void (*const special[])(gs_ctx_t, const gpusym_work_t *) = {
#define GPUSYM_KERNEL(a, o, t) gpusym_kernel_sim_##a##_##o##_##t,
#include "kernels/kernels.def"
};

static void run(unsigned kernel, gs_ctx_t c, const gpusym_work_t *w)
{
    if (kernel < GPUSYM_F_COUNT) {
        any[kernel](c, w);
    } else {
        special[kernel - GPUSYM_K_FIRST_SPECIAL - 1](c, w);
    }
}

/* On a stream of the program: by the code of the other kernels, with a descriptor of its own, to which the epoch
 * comes. */
static void run_on_stream(unsigned kernel, gs_ctx_t c, const gpusym_work_t *w)
{
    gpusym_work_t own = *w;
    const uint32_t plan = gpusym_family_plan(gpusym_kernel_family(kernel));
    gs_count_t count;
    const uint32_t status = gs_stream_begin(c, w, plan, gs_is_sized(w), &count, NULL);
    own.epoch = count.epoch;
    if (GPUSYM_STATUS_OK == status) {
        run(gpusym_kernel_find(gpusym_kernel_family(kernel), w->op, w->type), c, &own);
    } else {
        gs_stream_end(c, &own, status);
    }
}

void gpusym_kernel_sim(unsigned kernel, const gpusym_work_t *w, uint32_t block)
{
    const gs_ctx_t c = {0, 1, block, w->nblocks};
    if (0 == block) {
        gs_time(w, GPUSYM_TIME_BEGIN, w->done_seq);
    }
    if (kernel >= GPUSYM_K_COUNT || (GPUSYM_EARLY_ENTERS == w->early && !gs_enter(c, w))) {
        return;
    }
    if (kernel >= GPUSYM_K_FIRST_STREAM) {
        run_on_stream(kernel, c, w);
    } else {
        run(kernel, c, w);
    }
}
