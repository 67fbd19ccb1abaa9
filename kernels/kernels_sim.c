/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernels of kernels.def for the simulator.
 */
#include "kernels/symm_ll.h"
#include "kernels/symm_rs_ag.h"

#define GS_RUN_AGXLL_R(c, w, op, type) gs_agxll_r(c, w, op, type)
#define GS_RUN_RSXLD_AGXST(c, w, op, type) gs_rs_ag(c, w, op, type, false)
#define GS_RUN_RSXST_AGXST(c, w, op, type) gs_rs_ag(c, w, op, type, true)

/* The generic kernels. */
static void run_any(unsigned alg, gs_ctx_t c, const gpusym_work_t *w)
{
    switch (alg) {
#define GPUSYM_ALGORITHM(id, name, coll, doc) \
    case GPUSYM_ALG_##id:                     \
        GS_RUN_##id(c, w, GS_ANY, GS_ANY);    \
        return;
#include "kernels/kernels.def"
    default:
        return;
    }
}

/* The specialised kernels: one function each, so that constants reach the inner loops. */
#define GPUSYM_KERNEL(a, o, t)                                                          \
    static void kernel_##a##_##o##_##t(gs_ctx_t c, const gpusym_work_t *w)              \
    {                                                                                   \
        GS_RUN_##a(c, w, GPUSYM_OP_##o, GPUSYM_T_##t);                                  \
    }
#include "kernels/kernels.def"

static void (*const special[])(gs_ctx_t, const gpusym_work_t *) = {
#define GPUSYM_KERNEL(a, o, t) kernel_##a##_##o##_##t,
#include "kernels/kernels.def"
};

void gpusym_kernel_sim(unsigned kernel, const gpusym_work_t *w, uint32_t block)
{
    const gs_ctx_t c = {0, 1, block, w->nblocks};
    if (kernel < GPUSYM_ALG_COUNT) {
        run_any(kernel, c, w);
    } else if (kernel < GPUSYM_K_COUNT) {
        special[kernel - GPUSYM_K_FIRST_SPECIAL - 1](c, w);
    }
}
