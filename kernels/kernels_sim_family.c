/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The simulator's kernels of one family of kernels.def. Compiled once for each family, with
 *
 *     -D'GPUSYM_SIM_FAMILY_<id>=~,1'
 *
 * as many small translation units, which a build makes side by side.
 */
#include "kernels/families.h"
#include "kernels/kernels_sim_family.h"

/* HERE(id): 1 in the family's own translation unit, 0 elsewhere. There the macro of its name is two arguments, ~ and 1;
 * elsewhere it is only a name, and the second argument is the 0. */
#define HERE(id) SECOND(GPUSYM_SIM_FAMILY_##id, 0, 0)
#define SECOND(...) SECOND_(__VA_ARGS__)
#define SECOND_(a, b, ...) b
#define IF(here, ...) IF_(here, __VA_ARGS__)
#define IF_(here, ...) IF_##here(__VA_ARGS__)
#define IF_0(...)
#define IF_1(...) __VA_ARGS__

/* On a stream the block's only thread has begun with that count. */
#define GS_SIM_COUNT(w) w->epoch, GS_ON_STREAM(w) ? gs_stream_entries(*gs_block_own()) : 0, false, {{0, 0}}, false

/* clang-format off */
/* The generic kernel. */
#define GPUSYM_FAMILY(id, ...)                                                     \
    IF(HERE(id), void gpusym_kernel_sim_any_##id(gs_ctx_t c, const gpusym_work_t *w) \
    {                                                                              \
        const gs_kernel_t kernel = {w, GS_ANY, GS_ANY, GS_REDUCES_##id, GS_SIM_COUNT(w)};           \
        GS_RUN_##id(c, kernel);                                                    \
    })
#include "kernels/kernels.def"

/* The specialised kernels: one function each, so that constants reach the inner loops. */
#define GPUSYM_KERNEL(a, o, t)                                                             \
    IF(HERE(a), void gpusym_kernel_sim_##a##_##o##_##t(gs_ctx_t c, const gpusym_work_t *w) \
    {                                                                                      \
        const gs_kernel_t kernel = {w, GPUSYM_OP_##o, GPUSYM_T_##t, GS_REDUCES_##a, GS_SIM_COUNT(w)};       \
        GS_RUN_##a(c, kernel);                                                             \
    })
/* clang-format on */
#include "kernels/kernels.def"
