/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The simulator's kernels: one function each. kernels_sim_family.c defines them, kernels_sim.c calls them.
 */
#ifndef GPUSYM_KERNELS_SIM_FAMILY_H
#define GPUSYM_KERNELS_SIM_FAMILY_H

#include "kernels/prim/reduce.h" /* with prim.h, which needs it */
#include "kernels/work.h"

#define HIDDEN __attribute__((visibility("hidden")))
#define GPUSYM_FAMILY(id, ...) HIDDEN void gpusym_kernel_sim_any_##id(gs_ctx_t c, const gpusym_work_t *w);
#include "kernels/kernels.def"

#define GPUSYM_KERNEL(a, o, t) HIDDEN void gpusym_kernel_sim_##a##_##o##_##t(gs_ctx_t c, const gpusym_work_t *w);
#include "kernels/kernels.def"
#undef HIDDEN

#endif
