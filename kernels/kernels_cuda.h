/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the two units of kernels for GPUs have in common.
 */
#ifndef GPUSYM_KERNELS_CUDA_H
#define GPUSYM_KERNELS_CUDA_H

#include <stddef.h>

#include "kernels/families.h"

/* What a family takes of the descriptor. */
#define GPUSYM_FAMILY(id, next, ...)                                      \
    typedef struct {                                                      \
        uint64_t words[offsetof(gpusym_work_t, next) / sizeof(uint64_t)]; \
    } gs_arg_##id;
#include "kernels/kernels.def"

#endif
