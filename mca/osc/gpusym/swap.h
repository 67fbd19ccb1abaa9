/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Accumulates of a few elements: one command of the origin's copier (common/gpusym/exec/copier.h) combines them in the
 * target's memory, and stores what was there in the result. It costs no launch, and takes as long as a get and a put.
 *
 * It is done once, or not at all: see gpusym_copier_poll.
 */
#ifndef MCA_OSC_GPUSYM_SWAP_H
#define MCA_OSC_GPUSYM_SWAP_H

#include "mca/osc/gpusym/move.h"

/* All have as many bytes, of whole elements. */
typedef struct {
    const osc_gpusym_elements_t *target, *given;
    const osc_gpusym_elements_t *compared; /* of GPUSYM_COMBINE_COMPARE */
    const osc_gpusym_elements_t *result;   /* NULL: none is wanted */
    uint32_t op, type;                     /* as of gpusym_combine_t (kernels/work.h) */
} osc_gpusym_swap_t;

/* Sets the target's elements, and the result to what they were before. The caller has the target's lock for
 * accumulates. Complete on return. False: nothing has been done, since there is no copier, or it is not for such
 * elements. *rc: MPI error code; the target is undefined then, and it must not be done again. */
bool osc_gpusym_swap(osc_gpusym_window_t *w, const osc_gpusym_swap_t *swap, int *rc);

#endif
